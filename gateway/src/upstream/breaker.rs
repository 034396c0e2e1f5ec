//! A server that keeps failing is left alone for a while, so that it can recover and nobody waits for
//! it (control C16, threat ASI08).
//!
//! After so many failures in a row the circuit opens: nothing is asked of the server. After a pause one
//! request goes and sees; an answer closes the circuit, a failure is followed by another pause. Off
//! unless configured: whoever can make a server fail can keep others from it.
//!
//! Whoever asks holds a [`Pass`], which is told once what became of the request. One that is dropped
//! untold makes room for the next, so nobody can keep others from going by giving up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::UpstreamError;
use crate::config::settings::CircuitBreaker;
use crate::mcp::protocol::method;
use crate::mcp::wire::Message;
use crate::metrics::OfServer;
use crate::net::connection::LinkError;

/// How far a server is trusted to answer.
#[derive(Debug)]
pub(super) struct Breaker {
    bounds: CircuitBreaker,
    born: Instant,
    /// Failures in a row.
    failures: AtomicU32,
    /// Until when nobody may go, in microseconds after [`Self::born`]; zero while the circuit is closed.
    until: Arc<AtomicU64>,
    counts: Arc<OfServer>,
}

/// One request, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Nobody, where nobody wants to know, or knows already.
    breaker: Option<Arc<Breaker>>,
    /// Until when others wait for it, if it goes to see.
    slot: Option<u64>,
    /// To be silent is an answer to what is asked.
    excused: bool,
}

/// What an error says of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// It has failed.
    Failed,
    /// It is there.
    Answered,
    /// Nothing: it was not asked.
    Nothing,
}

impl Breaker {
    pub(super) fn new(bounds: CircuitBreaker, counts: Arc<OfServer>, now: Instant) -> Self {
        Self { bounds, born: now, failures: AtomicU32::new(0), until: Arc::default(), counts }
    }

    /// Until when nobody may go, for whoever shows it; zero while the circuit is closed.
    pub(super) fn until(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.until)
    }

    /// Whether somebody may ask at `now`, who has something to do first.
    ///
    /// # Errors
    /// [`UpstreamError::Open`] while the circuit is, with the time until it is worth another try.
    pub(super) fn look(&self, now: Instant) -> Result<(), UpstreamError> {
        let left = self.until.load(Ordering::Acquire).saturating_sub(self.micros(now));
        if left > 0 { Err(UpstreamError::Open(Duration::from_micros(left))) } else { Ok(()) }
    }

    /// Lets somebody ask at `now`.
    ///
    /// # Errors
    /// As [`Self::look`], and where somebody else has just gone.
    pub(super) fn admit(self: &Arc<Self>, now: Instant) -> Result<Pass, UpstreamError> {
        let until = self.until.load(Ordering::Acquire);
        let pass = |slot| Pass { breaker: Some(Arc::clone(self)), slot, excused: false };
        if until == 0 {
            return Ok(pass(None));
        }
        self.look(now)?;
        // One goes and sees. The others wait for it; for another, if it stays away for so long.
        let slot = self.pause(now);
        match self.until.compare_exchange(until, slot, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(pass(Some(slot))),
            Err(_) => Err(UpstreamError::Open(self.bounds.open_for)),
        }
    }

    /// The server has failed whoever had this slot, if it had one.
    fn failed(&self, slot: Option<u64>, now: Instant) {
        let next = self.pause(now);
        let pause = |before| {
            self.until.compare_exchange(before, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        let more = |failures: u32| Some(failures.saturating_add(1));
        let before = self.failures.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        let failures = before.unwrap_or_else(|same| same).saturating_add(1);
        // Whoever went to see is waited for no longer. Those that were on their way when it opened do
        // not keep it open.
        let seen = slot.is_some_and(pause);
        if !seen && failures >= self.bounds.failures.get() && pause(0) {
            self.counts.opened();
            let server = self.counts.name();
            tracing::warn!(server, "the server keeps failing: the circuit is open");
        }
    }

    /// The server has answered whoever had this slot, if it had one.
    fn answered(&self, slot: Option<u64>) {
        // What was asked before it opened says nothing about now.
        let open = self.until.load(Ordering::Acquire) > 0;
        if open && slot.is_none() {
            return;
        }
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Release);
        }
        if open && self.until.swap(0, Ordering::AcqRel) > 0 {
            let server = self.counts.name();
            tracing::info!(server, "the server answers again: the circuit is closed");
        }
    }

    /// Whoever had this slot has learned nothing: the next may go.
    fn released(&self, slot: u64, now: Instant) {
        let at = self.micros(now).max(1);
        // Where somebody else has it by now it is theirs.
        let _theirs = self.until.compare_exchange(slot, at, Ordering::AcqRel, Ordering::Acquire);
    }

    fn pause(&self, now: Instant) -> u64 {
        self.micros(now).saturating_add(micros(self.bounds.open_for)).max(1)
    }

    fn micros(&self, now: Instant) -> u64 {
        micros(now.saturating_duration_since(self.born))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Pass {
    /// To be silent is an answer to what is asked: SPEC 2026-07-28
    /// basic/transports/stdio#backward-compatibility.
    pub(super) fn excuse(&mut self) {
        self.excused = true;
    }

    /// The server has answered.
    pub(super) fn answered(&mut self) {
        if let Some(breaker) = self.breaker.take() {
            breaker.answered(self.slot);
        }
    }

    /// Notes what an error says of the server.
    pub(super) fn refused(&mut self, error: &UpstreamError) {
        match error.says() {
            Says::Failed if self.excused && matches!(error, UpstreamError::Timeout(_)) => {}
            Says::Failed => {
                if let Some(breaker) = self.breaker.take() {
                    breaker.failed(self.slot, Instant::now());
                }
            }
            Says::Answered => self.answered(),
            Says::Nothing => {}
        }
    }

    /// Notes what came of waiting for the next message.
    pub(super) fn heard(&mut self, next: &Result<Option<Message>, UpstreamError>) {
        match next {
            Ok(Some(Message::Response(_))) => self.answered(),
            // Who asks is there, and waits for the client from then on.
            Ok(Some(Message::Request(asked))) if &*asked.method != method::PING => self.answered(),
            Ok(Some(Message::Request(_) | Message::Notification(_)) | None) => {}
            Err(error) => self.refused(error),
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let (Some(breaker), Some(slot)) = (&self.breaker, self.slot) {
            breaker.released(slot, Instant::now());
        }
    }
}

impl UpstreamError {
    /// Whether it is the server that failed, and not what was asked, who asked, or what it is shown.
    const fn says(&self) -> Says {
        match self {
            Self::Link(
                LinkError::Connect(_) | LinkError::Broken(_) | LinkError::Unprocessed(_),
            )
            | Self::Start(_)
            | Self::Exited
            | Self::Stalled
            | Self::Timeout(_)
            | Self::Incomplete => Says::Failed,
            Self::Status(status) if *status >= 500 => Says::Failed,
            Self::Status(_)
            | Self::Redirect(..)
            | Self::Unauthorized(_)
            | Self::WriteScopes(_)
            | Self::ContentType
            | Self::TooLong(_)
            | Self::Message(_)
            | Self::Protocol(_)
            | Self::Refused => Says::Answered,
            // A session can be gone without anybody having been asked.
            Self::SessionGone
            | Self::Shared(_)
            | Self::Open(_)
            | Self::Stranger
            | Self::Link(LinkError::Egress { .. } | LinkError::Identity(_))
            | Self::World(_)
            | Self::Credential(_)
            | Self::Backoff(_)
            | Self::Crowded
            | Self::Memory(_)
            | Self::Full(_)
            | Self::Processes(_) => Says::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use proptest::prelude::{Just, Strategy, prop, prop_assert_eq, prop_oneof, proptest};
    use tokio::time::Instant;

    use super::Breaker;
    use crate::config::settings::CircuitBreaker;
    use crate::metrics::Metrics;

    const OPEN: Duration = Duration::from_secs(30);

    fn breaker(failures: u32, now: Instant) -> Arc<Breaker> {
        let failures = NonZeroU32::new(failures).unwrap();
        let counts = Metrics::new(SystemTime::UNIX_EPOCH).server("a");
        Arc::new(Breaker::new(CircuitBreaker { failures, open_for: OPEN }, counts, now))
    }

    #[derive(Clone, Copy, Debug)]
    enum Happens {
        Asks,
        Fails(usize),
        Answers(usize),
        GivesUp(usize),
        Later(u64),
    }

    proptest! {
        /// The same as a model that says in words what is promised.
        #[test]
        fn nobody_is_let_through_an_open_circuit_but_one_at_a_time(
            bound in 1_u32..5,
            events in prop::collection::vec(prop_oneof![
                5 => Just(Happens::Asks),
                4 => (0_usize..4).prop_map(Happens::Fails),
                1 => (0_usize..4).prop_map(Happens::Answers),
                1 => (0_usize..4).prop_map(Happens::GivesUp),
                2 => (1_u64..40).prop_map(Happens::Later),
            ], 0..120),
        ) {
            let mut now = Instant::now();
            let breaker = breaker(bound, now);
            // Who has asked, and the time until which others wait for them, if they do.
            let mut asking: Vec<(Option<u64>, Option<Instant>)> = Vec::new();
            let (mut failures, mut closed_until) = (0, None::<Instant>);
            for event in events {
                match event {
                    Happens::Later(seconds) => now += Duration::from_secs(seconds),
                    Happens::Asks => {
                        let may = closed_until.is_none_or(|until| now >= until);
                        let slot = closed_until.filter(|_| may).map(|_| now + OPEN);
                        closed_until = if slot.is_some() { slot } else { closed_until };
                        let admitted = breaker.admit(now);
                        prop_assert_eq!(admitted.is_ok(), may);
                        if let Ok(mut pass) = admitted {
                            prop_assert_eq!(pass.slot.is_some(), slot.is_some());
                            asking.push((pass.slot, slot));
                            pass.breaker = None;
                        }
                    }
                    Happens::Fails(n) if n < asking.len() => {
                        let (slot, until) = asking.remove(n);
                        failures += 1;
                        let theirs = until.is_some() && until == closed_until;
                        if theirs || failures >= bound && closed_until.is_none() {
                            closed_until = Some(now + OPEN);
                        }
                        breaker.failed(slot, now);
                    }
                    Happens::Answers(n) if n < asking.len() => {
                        let (slot, until) = asking.remove(n);
                        if closed_until.is_none() || until.is_some() {
                            (failures, closed_until) = (0, None);
                        }
                        breaker.answered(slot);
                    }
                    Happens::GivesUp(n) if n < asking.len() => {
                        let (slot, until) = asking.remove(n);
                        if let Some(slot) = slot {
                            breaker.released(slot, now);
                        }
                        if until.is_some() && until == closed_until {
                            closed_until = Some(now);
                        }
                    }
                    Happens::Fails(_) | Happens::Answers(_) | Happens::GivesUp(_) => {}
                }
            }
        }
    }

    #[tokio::test]
    async fn whoever_gives_up_makes_room_for_the_next() {
        let now = Instant::now();
        let breaker = breaker(1, now);
        breaker.admit(now).unwrap().refused(&super::UpstreamError::Exited);
        let later = Instant::now() + 2 * OPEN;
        let gone = breaker.admit(later).unwrap();
        assert!(breaker.admit(later).is_err(), "two have gone to see");
        drop(gone);
        assert!(breaker.admit(later).is_ok(), "nobody may go because somebody has given up");
    }
}
