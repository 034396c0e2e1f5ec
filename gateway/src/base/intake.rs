//! Accounts for the bytes of upstream servers' responses in memory, while they are read, inspected and sent on.
//!
//! An upstream server decides how long a response is and when the rest of it comes, so the bytes received so far are
//! charged to a share of that server and to one of the caller who waits for it. Of the share of a server, one caller has a
//! part, so that its responses leave room for those that others wait for. Short responses are not charged and take no
//! lock: the limits on requests and streams bound their number.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::base::share::{Ceiling, Payer, Share, ShareError, ShareLimits, Shares};

/// Responses of up to this many bytes are not counted.
const UNCOUNTED_BYTES: usize = 16 * 1024;
/// Granularity of the accounting, in bytes.
const STEP: usize = 64 * 1024;
/// Interval between attempts while a response waits for room.
const PAUSE: Duration = Duration::from_millis(25);

/// A server and a caller who uses it, by their names.
type ServerUse = (Arc<str>, Arc<str>);

/// The accounts of all responses.
pub struct ResponseAccounts {
    /// Shares by the id of the caller's principal.
    callers: Arc<Shares<Arc<str>>>,
    /// Shares by the name of the upstream server.
    servers: Arc<Shares<Arc<str>>>,
    /// The part of a server's share that one caller may take.
    uses: Arc<Shares<ServerUse>>,
    /// The bytes of every response, whichever shares they take, by the id of the caller, or by the name of the server
    /// if there is no caller. The ceiling above bounds them.
    held: Arc<Shares<Arc<str>>>,
    refused: AtomicU64,
}

impl fmt::Debug for ResponseAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Default for ResponseAccounts {
    fn default() -> Self {
        Self::new(usize::MAX, usize::MAX, usize::MAX)
    }
}

impl ResponseAccounts {
    /// Makes accounts with `all` bytes in total, of which one caller may hold `of_caller` and one server `of_server`, also
    /// for one caller.
    #[must_use]
    pub fn new(all: usize, of_caller: usize, of_server: usize) -> Self {
        let ceiling = Shares::new(usize::MAX, usize::MAX);
        Self::under(&ceiling, Shares::new(all, of_caller), Shares::new(all, of_server), of_server)
    }

    /// Makes accounts with these shares, by the id of the caller's principal and by the name of the server, of whose
    /// share one caller may hold `of_use` bytes. Every byte is charged to `ceiling` as well.
    #[must_use]
    pub fn under(
        ceiling: &Arc<Ceiling>,
        callers: Arc<Shares<Arc<str>>>,
        servers: Arc<Shares<Arc<str>>>,
        of_use: usize,
    ) -> Self {
        let portions = ShareLimits { all: usize::MAX, each: usize::MAX, others: HashMap::new() };
        let held = Shares::under(ceiling, Payer::caller, 0, portions);
        let uses = Shares::new(usize::MAX, of_use);
        Self { callers, servers, uses, held, refused: AtomicU64::new(0) }
    }

    /// The number of bytes that are counted now: being read, being inspected, or waiting for a client to read them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held.taken()
    }

    /// The number of responses for which there was no room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Charges a message of `bytes` bytes that was read for `caller` from a connection that callers share. Only the
    /// share of the caller is charged: a caller that does not read its messages must not stop the connection for
    /// others.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn keep(
        self: &Arc<Self>,
        server: &Arc<str>,
        caller: &Arc<str>,
        bytes: usize,
    ) -> Result<ResponseAccount, ShareError> {
        let mut kept = self.begin_for(server, Some(caller));
        kept.holds(bytes)?;
        Ok(kept)
    }

    /// Starts an account for messages for `caller` on a connection that callers share: see [`Self::keep`]. Without a
    /// caller, only the bound on all responses is charged.
    pub fn begin_for(
        self: &Arc<Self>,
        server: &Arc<str>,
        caller: Option<&Arc<str>>,
    ) -> ResponseAccount {
        let (of, server, caller) = (Arc::clone(self), Arc::clone(server), caller.cloned());
        ResponseAccount { of, server, caller, charged: ChargedShares::Caller, taken: None }
    }

    /// Starts an account for a response of `server`, and of `caller` if there is one.
    pub fn begin(self: &Arc<Self>, server: &Arc<str>, caller: Option<&str>) -> ResponseAccount {
        let (of, server) = (Arc::clone(self), Arc::clone(server));
        let caller = caller.map(Into::into);
        ResponseAccount { of, server, caller, charged: ChargedShares::ServerAndCaller, taken: None }
    }
}

/// The shares that a response is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChargedShares {
    /// The share of its server, and that of its caller if there is one.
    ServerAndCaller,
    /// The share of its caller alone: see [`ResponseAccounts::keep`].
    Caller,
}

/// The account of one response; its bytes are released on drop.
#[must_use = "what is dropped is not counted any more"]
pub struct ResponseAccount {
    of: Arc<ResponseAccounts>,
    server: Arc<str>,
    caller: Option<Arc<str>>,
    charged: ChargedShares,
    /// Boxed because most responses are short.
    taken: Option<Box<HeldShares>>,
}

/// The shares that a response holds.
struct HeldShares {
    bytes: usize,
    /// The same bytes in the account of all responses.
    held: Share<Arc<str>>,
    /// `None` for a message from a connection that callers share: see [`ResponseAccounts::keep`].
    of_server: Option<Share<Arc<str>>>,
    /// `None` as above, and if nobody waits for the response.
    of_use: Option<Share<ServerUse>>,
    of_caller: Option<Share<Arc<str>>>,
}

impl fmt::Debug for ResponseAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.taken.as_ref().map_or(0, |taken| taken.bytes);
        f.debug_struct("Received").field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl HeldShares {
    fn join(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.held.join(more.held);
        for (share, more) in
            [(&mut self.of_server, more.of_server), (&mut self.of_caller, more.of_caller)]
        {
            if let (Some(share), Some(more)) = (share, more) {
                share.join(more);
            }
        }
        if let (Some(share), Some(more)) = (&mut self.of_use, more.of_use) {
            share.join(more);
        }
    }

    /// Releases `bytes` in place, without having to find room for the remainder.
    fn release(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.held.release(bytes);
        self.of_server.iter_mut().chain(&mut self.of_caller).for_each(|share| share.release(bytes));
        self.of_use.iter_mut().for_each(|share| share.release(bytes));
    }
}

impl ResponseAccount {
    /// Sets the number of bytes in memory.
    ///
    /// # Errors
    /// If there is no room for them; the caller must then stop reading the response.
    pub fn holds(&mut self, bytes: usize) -> Result<(), ShareError> {
        self.take(bytes).inspect_err(|_none| self.was_refused())
    }

    /// Ensures that at least `bytes` are counted. A failure does not count as a refused response.
    ///
    /// # Errors
    /// If there is no room for them; what was taken before stays taken.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), ShareError> {
        let held = self.taken.as_ref().map_or(0, |taken| taken.bytes);
        if bytes > held { self.take(bytes) } else { Ok(()) }
    }

    /// Counts at most `bytes` from now on; a smaller count stays as it is.
    pub fn shrink(&mut self, bytes: usize) {
        let held = self.taken.as_ref().map_or(0, |taken| taken.bytes);
        // Taking less than before cannot fail.
        if bytes < held && self.take(bytes).is_err() {
            self.taken = None;
        }
    }

    /// Counts a response that was given up because there was no room for it.
    pub fn was_refused(&self) {
        self.of.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts an empty account for the same server and caller, for data that comes beside this response.
    pub fn beside(&self) -> Self {
        let (of, server) = (Arc::clone(&self.of), Arc::clone(&self.server));
        Self { of, server, caller: self.caller.clone(), charged: self.charged, taken: None }
    }

    /// Converts this to the account of a response of `bytes` that waits for its client to read it, charged to the
    /// share of the caller alone: a client that does not read must not block the server for others.
    pub fn unsent(mut self, bytes: usize) -> Self {
        self.charged = ChargedShares::Caller;
        if let Some(taken) = &mut self.taken {
            (taken.of_server, taken.of_use) = (None, None);
        }
        let held = self.taken.as_ref().map_or(0, |taken| taken.bytes);
        // The response was admitted with what is held, so it can take less and no more.
        if bytes <= held && self.take(bytes).is_err() {
            self.taken = None;
        }
        self
    }

    /// Adds the shares of another account of the same server and caller, to be released with this one.
    pub fn absorb(&mut self, mut other: Self) {
        match (&mut self.taken, other.taken.take()) {
            (Some(taken), Some(more)) => taken.join(*more),
            (taken @ None, more) => *taken = more,
            (Some(_), None) => {}
        }
    }

    /// Like [`Self::holds`], but waits for room for at most `patience`.
    ///
    /// # Errors
    /// If there is no room in that time.
    pub async fn waits(&mut self, bytes: usize, patience: Duration) -> Result<(), ShareError> {
        let until = Instant::now() + patience;
        while self.take(bytes).is_err() {
            if Instant::now() >= until {
                return self.holds(bytes);
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), ShareError> {
        if bytes <= UNCOUNTED_BYTES {
            self.taken = None;
            return Ok(());
        }
        let wanted = bytes.checked_next_multiple_of(STEP).unwrap_or(usize::MAX);
        let held = self.taken.as_ref().map_or(0, |taken| taken.bytes);
        if wanted > held {
            let more = self.counted(wanted - held)?;
            match &mut self.taken {
                Some(taken) => taken.join(more),
                None => self.taken = Some(Box::new(more)),
            }
        } else if let Some(taken) = &mut self.taken {
            taken.release(held - wanted);
        }
        Ok(())
    }

    fn counted(&self, bytes: usize) -> Result<HeldShares, ShareError> {
        let (of_server, of_use) = match self.charged {
            ChargedShares::ServerAndCaller => {
                let of_use = self.caller.as_ref().map(|caller| {
                    let used = (Arc::clone(&self.server), Arc::clone(caller));
                    self.of.uses.take(&used, bytes)
                });
                let of_use = of_use.transpose()?;
                (Some(self.of.servers.take(&self.server, bytes)?), of_use)
            }
            ChargedShares::Caller => (None, None),
        };
        let of_caller = self.caller.as_ref();
        let of_caller = of_caller.map(|caller| self.of.callers.take(caller, bytes)).transpose()?;
        let held = self.caller.as_ref().unwrap_or(&self.server);
        let held = self.of.held.take(held, bytes)?;
        Ok(HeldShares { bytes, held, of_server, of_use, of_caller })
    }

    /// Moves the shares taken so far to a new account and leaves this one empty: what was read is inspected after the
    /// response has ended.
    pub fn split(&mut self) -> Self {
        Self { taken: self.taken.take(), ..self.beside() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ResponseAccounts, STEP, UNCOUNTED_BYTES};
    use crate::base::share::{ShareError, Shares};

    #[test]
    fn a_short_answer_always_finds_room_and_a_long_one_only_what_is_left() {
        let response_memory = Arc::new(ResponseAccounts::new(4 * STEP, 3 * STEP, 2 * STEP));
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let mut slow = response_memory.begin(&one, Some("ana"));
        slow.holds(UNCOUNTED_BYTES).unwrap();
        assert_eq!(response_memory.bytes(), 0);
        slow.holds(2 * STEP).unwrap();
        let over = ShareError::Holder { limit: 2 * STEP };
        assert_eq!(response_memory.begin(&one, Some("bob")).holds(UNCOUNTED_BYTES + 1), Err(over));
        response_memory.begin(&one, Some("bob")).holds(UNCOUNTED_BYTES).unwrap();
        // Another server has its own share, of which the caller may take what is left of the caller's share.
        let mut second = response_memory.begin(&other, Some("ana"));
        second.holds(STEP).unwrap();
        let over = ShareError::Holder { limit: 3 * STEP };
        assert_eq!(second.holds(STEP + 1), Err(over));
        assert_eq!(response_memory.refused(), 2);
        drop((slow, second));
        assert_eq!(response_memory.bytes(), 0);
    }

    #[test]
    fn a_message_that_is_kept_takes_of_the_share_of_its_caller_and_of_no_server() {
        let response_memory = Arc::new(ResponseAccounts::new(4 * STEP, 2 * STEP, STEP));
        let (up, ana): (Arc<str>, Arc<str>) = ("up".into(), "ana".into());
        let kept = response_memory.keep(&up, &ana, 2 * STEP).unwrap();
        // What is charged to no server's share is held all the same.
        assert_eq!(response_memory.bytes(), 2 * STEP);
        let over = ShareError::Holder { limit: 2 * STEP };
        assert_eq!(response_memory.keep(&up, &ana, UNCOUNTED_BYTES + 1).err(), Some(over));
        drop(response_memory.keep(&up, &ana, UNCOUNTED_BYTES).unwrap());
        drop(response_memory.keep(&up, &"bob".into(), STEP).unwrap());
        response_memory.begin(&up, None).holds(STEP).unwrap();
        drop(kept);
        drop(response_memory.keep(&up, &ana, 2 * STEP).unwrap());
    }

    #[test]
    fn a_caller_has_a_part_of_the_share_of_a_server_until_what_it_waits_for_was_read() {
        let ceiling = Shares::new(usize::MAX, usize::MAX);
        let (callers, servers) =
            (Shares::new(16 * STEP, 16 * STEP), Shares::new(16 * STEP, 3 * STEP));
        let accounts = Arc::new(ResponseAccounts::under(&ceiling, callers, servers, 2 * STEP));
        let (one, other) = (Arc::from("one"), Arc::from("other"));
        let mut ana = accounts.begin(&one, Some("ana"));
        ana.holds(2 * STEP).unwrap();
        let over = ShareError::Holder { limit: 2 * STEP };
        assert_eq!(accounts.begin(&one, Some("ana")).holds(STEP), Err(over));
        accounts.begin(&other, Some("ana")).holds(2 * STEP).unwrap();
        let mut bob = accounts.begin(&one, Some("bob"));
        bob.holds(STEP).unwrap();
        let over = ShareError::Holder { limit: 3 * STEP };
        assert_eq!(accounts.begin(&one, Some("eve")).holds(STEP), Err(over));
        // What ana has not read yet takes of no share of the server.
        let unsent = ana.unsent(2 * STEP);
        let mut next = accounts.begin(&one, Some("ana"));
        next.holds(2 * STEP).unwrap();
        next.shrink(STEP);
        accounts.begin(&one, Some("ana")).holds(STEP).unwrap();
        drop((unsent, next, bob));
        assert_eq!(accounts.bytes(), 0);
    }

    #[test]
    fn what_waits_for_its_client_is_held_under_the_ceiling_of_its_caller() {
        let ceiling = Shares::new(4 * STEP, 3 * STEP);
        let shares = || Shares::new(16 * STEP, 16 * STEP);
        let response_memory =
            Arc::new(ResponseAccounts::under(&ceiling, shares(), shares(), 16 * STEP));
        let mut read = response_memory.begin(&"up".into(), Some("ana"));
        read.holds(3 * STEP).unwrap();
        let over = ShareError::Holder { limit: 3 * STEP };
        assert_eq!(response_memory.begin(&"up".into(), Some("ana")).holds(STEP), Err(over));
        let unsent = read.unsent(2 * STEP);
        assert_eq!((response_memory.bytes(), ceiling.taken()), (2 * STEP, 2 * STEP));
        let mut other = response_memory.begin(&"up".into(), Some("bob"));
        other.holds(2 * STEP).unwrap();
        let over = ShareError::All { limit: 4 * STEP };
        assert_eq!(response_memory.begin(&"up".into(), None).holds(STEP), Err(over));
        drop((unsent, other));
        assert_eq!((response_memory.bytes(), ceiling.taken()), (0, 0));
    }

    #[test]
    fn what_an_answer_no_longer_holds_is_given_back() {
        let response_memory = Arc::new(ResponseAccounts::new(4 * STEP, 4 * STEP, 4 * STEP));
        let mut reading = response_memory.begin(&"one".into(), None);
        reading.holds(3 * STEP).unwrap();
        reading.holds(STEP).unwrap();
        assert_eq!(response_memory.bytes(), STEP);
        let kept = reading.split();
        reading.holds(UNCOUNTED_BYTES).unwrap();
        assert_eq!(response_memory.bytes(), STEP);
        drop(kept);
        assert_eq!(response_memory.bytes(), 0);
    }
}
