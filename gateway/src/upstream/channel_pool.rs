//! Pool of channels to one upstream server: one that all callers share, or one for each session, as configured.
//!
//! Each caller has a share of the session channels. A caller that exceeds it loses its own least recently used idle
//! channel; when all channels are taken, the caller with the most channels loses one. A shared channel that ended is
//! opened again by the next request, after a pause that grows while channels keep ending.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Cell, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::channel::{Channel, ChannelShare};
use super::demux::ConnectionScope;
use super::error::UpstreamError;
use super::http_sse::HttpSseClient;
use super::on_behalf_of::OnBehalfOf;
use super::stdio::ProcessStarter;
use crate::base::share::{ShareError, Shares};
use crate::config::settings::ProcessSharing;

/// The first and the longest pause before a channel is opened again.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A channel that is replaced later than this after its start begins a new count of failures.
const STEADY: Duration = Duration::from_secs(10);
/// How long to wait for a process to end so that another can start. A process that does not end when asked to has
/// been killed by then.
const ENDING: Duration = Duration::from_secs(6);

/// How channels to a server are opened.
#[derive(Debug)]
pub(super) enum ChannelOpener {
    /// Starts a process of a program.
    Program(Box<ProcessStarter>),
    /// Connects to a server over the HTTP+SSE transport.
    HttpSse(Box<HttpSseClient>),
}

/// The channels to one server.
#[derive(Debug)]
pub(super) struct ChannelPool {
    opener: ChannelOpener,
    sharing: ProcessSharing,
    shared: Mutex<SharedChannel>,
    sessions: Cell<BTreeMap<Box<str>, SessionChannel>>,
    /// Shares of session channels, by caller. A part is released when the process has ended.
    shares: Arc<Shares<Arc<str>>>,
    generation: AtomicU64,
    /// The server is revoked: no channel is opened or used.
    suspended: AtomicBool,
}

/// The channel of one session.
#[derive(Debug)]
struct SessionChannel {
    /// The id of the principal, without its client and key.
    holder: Arc<str>,
    channel: Arc<Channel>,
}

#[derive(Debug, Default)]
struct SharedChannel {
    channel: Option<Arc<Channel>>,
    /// The number of channels in a row that ended soon after their start.
    failures: u32,
    not_before: Option<Instant>,
}

impl ChannelPool {
    /// An empty pool for at most `limit` session channels, and at most `each` of them of one caller.
    pub(super) fn new(
        opener: ChannelOpener,
        sharing: ProcessSharing,
        limit: usize,
        each: usize,
    ) -> Self {
        let (sessions, generation) = (Cell::default(), AtomicU64::new(0));
        let shares = Shares::new(limit, each);
        let (shared, suspended) = (Mutex::default(), AtomicBool::new(false));
        Self { opener, sharing, shared, sessions, shares, generation, suspended }
    }

    /// Opens and uses no channel any more, until [`Self::resume`]. Returns whether it was not suspended before, so that its
    /// channels are to be ended.
    pub(super) fn suspend(&self) -> bool {
        !self.suspended.swap(true, Ordering::AcqRel)
    }

    /// Opens and uses channels again.
    pub(super) fn resume(&self) {
        self.suspended.store(false, Ordering::Release);
    }

    /// Ends all channels, if the pool is still suspended. Waits for one that is being opened.
    pub(super) async fn end_suspended(&self) {
        let mut state = self.shared.lock().await;
        if self.usable().is_ok() {
            return;
        }
        if let Some(channel) = std::mem::take(&mut *state).channel {
            channel.over.cancel();
        }
        for (_, seat) in std::mem::take(&mut *self.sessions()) {
            seat.channel.over.cancel();
        }
    }

    /// # Errors
    /// While the pool is suspended, because the server is revoked.
    fn usable(&self) -> Result<(), UpstreamError> {
        if self.suspended.load(Ordering::Acquire) { Err(UpstreamError::Revoked) } else { Ok(()) }
    }

    /// Whether each session gets a channel of its own, including the sessions that the gateway keeps for callers.
    pub(super) fn own(&self) -> bool {
        self.sharing == ProcessSharing::PerSession
    }

    /// Whether a legacy session with a program that speaks both eras gets a separate process: if every session does,
    /// or, as needed, if the client can answer requests (`asked`).
    pub(super) fn may_be_own(&self, asked: bool) -> bool {
        matches!(self.opener, ChannelOpener::Program(_))
            && match self.sharing {
                ProcessSharing::AsNeeded => asked,
                ProcessSharing::Shared => false,
                ProcessSharing::PerSession => true,
            }
    }

    /// The channel of `session`, or without one the shared channel, opened if necessary.
    pub(super) async fn channel(
        &self,
        session: Option<&str>,
    ) -> Result<Arc<Channel>, UpstreamError> {
        self.usable()?;
        if let Some(session) = session {
            let channel = self.sessions().get(session).map(|seat| Arc::clone(&seat.channel));
            let alive = channel.filter(|channel| !channel.over.is_cancelled());
            return alive.ok_or(UpstreamError::SessionGone);
        }
        let mut state = self.shared.lock().await;
        self.usable()?;
        if let Some(channel) = &state.channel {
            if !channel.over.is_cancelled() {
                return Ok(Arc::clone(channel));
            }
            // A channel that worked may be opened again at once; one that keeps ending may not.
            // The time until this request is not part of it.
            let ended = channel.ended();
            let steady = ended.saturating_duration_since(channel.started) >= STEADY;
            let answered = channel.answered.load(Ordering::Relaxed);
            state.failures = if steady { 1 } else { state.failures + 1 };
            let worked = answered && state.failures == 1;
            let pause = PAUSE * 2_u32.saturating_pow(state.failures.min(16));
            let pause = if worked { Duration::ZERO } else { pause.min(LONGEST_PAUSE) };
            state.not_before = Some(ended + pause);
            state.channel = None;
        }
        let left = state.not_before.map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Err(UpstreamError::Backoff(left));
        }
        let opened = self.start(ConnectionScope::Everybody, None).await.inspect_err(|_| {
            state.failures += 1;
            state.not_before = Some(Instant::now() + PAUSE);
        })?;
        state.channel = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<Box<str>, SessionChannel>> {
        // No operation leaves the map half changed.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a channel for the session `session` of `on_behalf`.
    pub(super) async fn open(
        &self,
        session: &str,
        on_behalf: &OnBehalfOf,
        serves: ConnectionScope,
    ) -> Result<Arc<Channel>, UpstreamError> {
        self.sessions().retain(|_, seat| !seat.channel.over.is_cancelled());
        let holder: Arc<str> = on_behalf.caller().unwrap_or_default().into();
        let held = self.room(&holder).await?;
        self.usable()?;
        let channel = self.start(serves, Some(held)).await?;
        let seat = SessionChannel { holder, channel: Arc::clone(&channel) };
        self.sessions().insert(session.into(), seat);
        // A revocation since then has not seen this channel.
        self.usable().inspect_err(|_| self.close(session))?;
        Ok(channel)
    }

    /// Reserves a session channel for a caller, evicting an idle one if necessary.
    async fn room(&self, holder: &Arc<str>) -> Result<ChannelShare, UpstreamError> {
        let refused = match self.shares.take(holder, 1) {
            Ok(share) => return Ok(ChannelShare::new(share)),
            Err(refused) => refused,
        };
        if let Some(gone) = self.evict(holder, refused)
            && timeout(ENDING, gone.cancelled()).await.is_ok()
            && let Ok(share) = self.shares.take(holder, 1)
        {
            return Ok(ChannelShare::new(share));
        }
        Err(UpstreamError::Processes(refused))
    }

    /// Ends an idle channel to make room for one of `holder`. The returned token is cancelled when its process has
    /// ended; `None` if no channel may be evicted.
    fn evict(&self, holder: &str, refused: ShareError) -> Option<CancellationToken> {
        let mut sessions = self.sessions();
        let idle = sessions.iter().filter(|(_, seat)| seat.channel.is_idle(Duration::ZERO));
        let idle = idle.map(|(session, seat)| (session, &*seat.holder, seat.channel.last_used()));
        let session = match refused {
            ShareError::Holder { .. } => {
                let own = idle.filter(|(_, whose, _)| *whose == holder);
                own.min_by_key(|(_, _, used)| *used)?.0
            }
            ShareError::All { .. } => {
                let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
                for seat in sessions.values() {
                    *counts.entry(&seat.holder).or_default() += 1;
                }
                crowding(holder, &counts, idle)?
            }
        };
        let session = session.clone();
        let evicted = sessions.remove(&session)?;
        evicted.channel.over.cancel();
        evicted.channel.gone()
    }

    /// Whether a request waits or a listener is subscribed on the channel of a session.
    pub(super) fn is_busy(&self, session: &str) -> bool {
        let sessions = self.sessions();
        sessions.get(session).is_some_and(|seat| !seat.channel.is_idle(Duration::ZERO))
    }

    /// Ends session channels that were not used for `age`.
    pub(super) fn sweep(&self, age: Duration) {
        self.sessions().retain(|_, seat| {
            let idle = seat.channel.is_idle(age);
            if idle {
                seat.channel.over.cancel();
            }
            !idle && !seat.channel.over.is_cancelled()
        });
    }

    /// Ends the channel of a session.
    pub(super) fn close(&self, session: &str) {
        if let Some(seat) = self.sessions().remove(session) {
            seat.channel.over.cancel();
        }
    }

    /// Ends the channel of a session, and waits until its process has ended and its part of the share is free.
    pub(super) async fn closed(&self, session: &str) {
        let seat = self.sessions().remove(session);
        let Some(seat) = seat else { return };
        seat.channel.over.cancel();
        let gone = seat.channel.gone();
        // The share is released with the last reference to the channel.
        drop(seat);
        if let Some(gone) = gone
            && timeout(ENDING, gone.cancelled()).await.is_err()
        {
            tracing::debug!("the process of a session has not ended yet");
        }
    }

    async fn start(
        &self,
        serves: ConnectionScope,
        held: Option<ChannelShare>,
    ) -> Result<Arc<Channel>, UpstreamError> {
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.opener {
            ChannelOpener::Program(starter) => {
                starter.identify().await?;
                starter.start(generation, serves, held)
            }
            ChannelOpener::HttpSse(http_sse) => http_sse.connect(generation, serves, held).await,
        }
    }
}

/// Selects the idle channel that is evicted for `holder` when all are taken: the least recently used one of the
/// caller with the most channels. Only `holder` itself and callers with more channels than `holder` are candidates,
/// so competing callers end up with equal numbers.
fn crowding<'a, T, U: Ord + Copy>(
    holder: &str,
    counts: &BTreeMap<&str, usize>,
    idle: impl Iterator<Item = (T, &'a str, U)>,
) -> Option<T> {
    let count = |whose: &str| counts.get(whose).copied().unwrap_or_default();
    let own = count(holder);
    let candidates = idle.filter(|(_, whose, _)| *whose == holder || count(whose) > own);
    let first = candidates.min_by_key(|(_, whose, used)| (Reverse(count(whose)), *used));
    first.map(|(channel, _, _)| channel)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::crowding;

    #[test]
    fn room_is_made_by_the_caller_that_has_the_most_and_never_by_one_that_has_fewer() {
        let counts = BTreeMap::from([("ana", 3), ("bob", 2), ("eve", 3)]);
        let all = [(1, "ana", 30), (2, "ana", 10), (3, "bob", 1), (4, "eve", 20)];
        let chosen = |holder: &str, idle: &[u32]| {
            crowding(holder, &counts, all.into_iter().filter(|(id, ..)| idle.contains(id)))
        };
        assert_eq!(chosen("dan", &[1, 2, 3, 4]), Some(2), "of those with the most, the oldest");
        assert_eq!(chosen("dan", &[1, 3]), Some(1), "one that is used is not ended");
        assert_eq!(chosen("dan", &[3]), Some(3));
        assert_eq!(chosen("bob", &[1, 3]), Some(1));
        assert_eq!(chosen("bob", &[3]), Some(3), "its own");
        assert_eq!(chosen("ana", &[1, 4]), Some(1), "its own, and not of one that has as many");
        assert_eq!(chosen("ana", &[3, 4]), None);
        assert_eq!(chosen("dan", &[]), None);
    }
}
