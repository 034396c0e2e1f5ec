//! Channels to a server: one that everybody shares, and one for each session where the server is
//! set up so. A channel that ends is opened again by the next request, after a pause that grows
//! while it keeps ending.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Cell, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::channel::Channel;
use super::error::UpstreamError;
use super::old::Old;
use super::program::Starter;

/// The first pause before a channel is opened again, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Ends are counted together that are closer than this.
const STEADY: Duration = Duration::from_secs(10);

/// How a channel is opened.
#[derive(Debug)]
pub(super) enum Opener {
    /// A program is started.
    Program(Starter),
    /// A server of the old HTTP+SSE transport is connected to.
    Old(Old),
}

/// The channels to one server.
#[derive(Debug)]
pub(super) struct Seats {
    opener: Opener,
    /// Each session gets a channel of its own.
    pub(super) own: bool,
    shared: Mutex<State>,
    sessions: Cell<BTreeMap<Box<str>, Arc<Channel>>>,
    limit: usize,
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    channel: Option<Arc<Channel>>,
    /// Ends in a row, each soon after the start.
    failures: u32,
    not_before: Option<Instant>,
}

impl Seats {
    pub(super) fn new(opener: Opener, own: bool, limit: usize) -> Self {
        let (sessions, generation) = (Cell::default(), AtomicU64::new(0));
        Self { opener, own, shared: Mutex::default(), sessions, limit, generation }
    }

    /// The channel of a session, or the one that is shared, opened if there is none.
    pub(super) async fn channel(
        &self,
        session: Option<&str>,
    ) -> Result<Arc<Channel>, UpstreamError> {
        if let Some(session) = session {
            let channel = self.sessions().get(session).cloned();
            let alive = channel.filter(|channel| !channel.over.is_cancelled());
            return alive.ok_or(UpstreamError::SessionGone);
        }
        let mut state = self.shared.lock().await;
        if let Some(channel) = &state.channel {
            if !channel.over.is_cancelled() {
                return Ok(Arc::clone(channel));
            }
            // One that worked for a while may start again at once; one that keeps ending may not.
            let steady = channel.started.elapsed() >= STEADY;
            let answered = channel.answered.load(Ordering::Relaxed);
            state.failures = if steady { 1 } else { state.failures + 1 };
            let worked = answered && state.failures == 1;
            let pause = PAUSE * 2_u32.saturating_pow(state.failures.min(16));
            let pause = if worked { Duration::ZERO } else { pause.min(LONGEST_PAUSE) };
            state.not_before = Some(Instant::now() + pause);
            state.channel = None;
        }
        let left = state.not_before.map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Err(UpstreamError::Backoff(left));
        }
        let opened = self.start(false).await.inspect_err(|_| {
            state.failures += 1;
            state.not_before = Some(Instant::now() + PAUSE);
        })?;
        state.channel = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Arc<Channel>>> {
        // No operation leaves the map half changed.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a channel for one session, to be found under `session`.
    pub(super) async fn open(&self, session: &str) -> Result<Arc<Channel>, UpstreamError> {
        self.sessions().retain(|_, channel| !channel.over.is_cancelled());
        if self.sessions().len() >= self.limit {
            return Err(UpstreamError::Crowded);
        }
        let channel = self.start(true).await?;
        let mut sessions = self.sessions();
        if sessions.len() >= self.limit {
            channel.over.cancel();
            return Err(UpstreamError::Crowded);
        }
        sessions.insert(session.into(), Arc::clone(&channel));
        Ok(channel)
    }

    /// Ends the channels of sessions that nobody has used for `age`.
    pub(super) fn sweep(&self, age: Duration) {
        self.sessions().retain(|_, channel| {
            let idle = channel.is_idle(age);
            if idle {
                channel.over.cancel();
            }
            !idle && !channel.over.is_cancelled()
        });
    }

    /// Ends the channel of a session.
    pub(super) fn close(&self, session: &str) {
        if let Some(channel) = self.sessions().remove(session) {
            channel.over.cancel();
        }
    }

    async fn start(&self, own: bool) -> Result<Arc<Channel>, UpstreamError> {
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.opener {
            Opener::Program(starter) => {
                starter.identify().await?;
                starter.start(generation, own)
            }
            Opener::Old(old) => old.connect(generation, own).await,
        }
    }
}
