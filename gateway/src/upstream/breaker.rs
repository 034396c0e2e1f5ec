//! Circuit breaker of an upstream server: a server that keeps failing gets no requests for a while, so that it can
//! recover and callers do not wait for it (control C16, threat ASI08).
//!
//! After a configured number of failures in a row the circuit opens, and requests fail at once. After a pause one
//! request probes the server: an answer closes the circuit, a failure starts another pause. Off unless configured,
//! because a caller that can make a server fail could deny it to others.
//!
//! A request holds a [`BreakerPass`], to which its outcome is reported once. A pass that is dropped without an outcome frees
//! the probe slot, so a caller cannot keep the circuit open by giving up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::UpstreamError;
use super::health::ServerHealth;
use crate::config::settings::CircuitBreaker;
use crate::mcp::protocol::method;
use crate::mcp::wire::Message;
use crate::metrics::ServerMetrics;
use crate::net::connection::ConnectionError;

/// The circuit breaker of one server.
#[derive(Debug)]
pub(super) struct Breaker {
    bounds: CircuitBreaker,
    born: Instant,
    /// Number of failures in a row.
    failures: AtomicU32,
    /// When the pause ends, in microseconds after [`Self::born`]; zero while the circuit is closed.
    until: Arc<AtomicU64>,
    counts: Arc<ServerMetrics>,
}

/// Permission to send one request, and the handle to report its outcome.
#[derive(Debug, Default)]
pub(super) struct BreakerPass {
    /// `None` without a configured breaker, and after the outcome was reported.
    breaker: Option<Arc<Breaker>>,
    /// If this request is the probe: the end of the pause during which other requests fail.
    slot: Option<u64>,
    /// A timeout is no failure, because the server may legitimately leave the request unanswered.
    excused: bool,
    /// Where the outcome counts as well, and when the request began; `None` after the outcome was reported.
    health: Option<(Arc<ServerHealth>, Instant)>,
}

/// What an error says about the health of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthSignal {
    /// The server itself has failed.
    Failed,
    /// The server is alive.
    Answered,
    /// Nothing: the server was not asked.
    Nothing,
}

impl Breaker {
    pub(super) fn new(bounds: CircuitBreaker, counts: Arc<ServerMetrics>, now: Instant) -> Self {
        Self { bounds, born: now, failures: AtomicU32::new(0), until: Arc::default(), counts }
    }

    /// When the pause ends, for the metrics: the value of the field `until`, shared.
    pub(super) fn until(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.until)
    }

    /// Whether the circuit is open at `now`.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.until.load(Ordering::Acquire) > self.micros(now)
    }

    /// Checks that the circuit lets a request through at `now`, without taking the probe slot. For callers that have
    /// other work to do before they send.
    ///
    /// # Errors
    /// [`UpstreamError::CircuitOpen`] during a pause, with the time that is left of it.
    pub(super) fn look(&self, now: Instant) -> Result<(), UpstreamError> {
        let left = self.until.load(Ordering::Acquire).saturating_sub(self.micros(now));
        if left > 0 { Err(UpstreamError::CircuitOpen(Duration::from_micros(left))) } else { Ok(()) }
    }

    /// Admits a request at `now`, as the probe if a pause has ended.
    ///
    /// # Errors
    /// Those of [`Self::look`], and [`UpstreamError::CircuitOpen`] if another request has just become the probe.
    pub(super) fn admit(self: &Arc<Self>, now: Instant) -> Result<BreakerPass, UpstreamError> {
        let until = self.until.load(Ordering::Acquire);
        let pass = |slot| {
            let breaker = Some(Arc::clone(self));
            BreakerPass { breaker, slot, excused: false, health: None }
        };
        if until == 0 {
            return Ok(pass(None));
        }
        self.look(now)?;
        // This request is the probe. Others fail until it ends, or until a pause has passed without an outcome.
        let slot = self.pause(now);
        match self.until.compare_exchange(until, slot, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(pass(Some(slot))),
            Err(_) => Err(UpstreamError::CircuitOpen(self.bounds.open_for)),
        }
    }

    /// Records a failure of the request that held `slot`, if it was the probe.
    fn failed(&self, slot: Option<u64>, now: Instant) {
        let next = self.pause(now);
        let pause = |before| {
            self.until.compare_exchange(before, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        let more = |failures: u32| Some(failures.saturating_add(1));
        let before = self.failures.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        let failures = before.unwrap_or_else(|same| same).saturating_add(1);
        // A failed probe starts the next pause. Requests that were in flight when the circuit opened do not extend
        // it.
        let seen = slot.is_some_and(pause);
        if !seen && failures >= self.bounds.failures.get() && pause(0) {
            self.counts.opened();
            let server = self.counts.name();
            tracing::warn!(
                event = "server.circuit_open",
                server,
                "circuit breaker opened: the server keeps failing"
            );
        }
    }

    /// Records an answer to the request that held `slot`, if it was the probe.
    fn answered(&self, slot: Option<u64>) {
        // A request from before the circuit opened says nothing about the server's health now.
        let open = self.until.load(Ordering::Acquire) > 0;
        if open && slot.is_none() {
            return;
        }
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Release);
        }
        if open && self.until.swap(0, Ordering::AcqRel) > 0 {
            let server = self.counts.name();
            tracing::info!(
                event = "server.circuit_closed",
                server,
                "circuit breaker closed: the server responds again"
            );
        }
    }

    /// Frees the probe slot of a request that ended without an outcome.
    fn released(&self, slot: u64, now: Instant) {
        let at = self.micros(now).max(1);
        // Fails if another request has the slot by now, which then keeps it.
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

impl BreakerPass {
    /// Marks a timeout of this request as no failure: SPEC 2026-07-28 basic/transports/stdio#backward-compatibility.
    pub(super) fn excuse(&mut self) {
        self.excused = true;
    }

    /// The same, with the health of the server to which the outcome is reported from `now` on.
    pub(super) fn counted(mut self, health: &Arc<ServerHealth>, now: Instant) -> Self {
        self.health = Some((Arc::clone(health), now));
        self
    }

    /// Reports that the server has answered.
    pub(super) fn answered(&mut self) {
        if let Some((health, began)) = self.health.take() {
            let now = Instant::now();
            health.answered(now.saturating_duration_since(began), now);
        }
        if let Some(breaker) = self.breaker.take() {
            breaker.answered(self.slot);
        }
    }

    /// Reports an error, unless it says nothing about the server's health.
    pub(super) fn refused(&mut self, error: &UpstreamError) {
        match error.says() {
            HealthSignal::Failed if self.excused && matches!(error, UpstreamError::Timeout(_)) => {}
            HealthSignal::Failed => {
                if let Some((health, _)) = self.health.take() {
                    health.failed(Instant::now());
                }
                if let Some(breaker) = self.breaker.take() {
                    breaker.failed(self.slot, Instant::now());
                }
            }
            HealthSignal::Answered => self.answered(),
            HealthSignal::Nothing => {}
        }
    }

    /// Reports the outcome of waiting for the next message.
    pub(super) fn heard(&mut self, next: &Result<Option<Message>, UpstreamError>) {
        match next {
            Ok(Some(Message::Response(_))) => self.answered(),
            // A server that sends a request is alive, and waits for the client from then on.
            Ok(Some(Message::Request(asked))) if &*asked.method != method::PING => self.answered(),
            Ok(Some(Message::Request(_) | Message::Notification(_)) | None) => {}
            Err(error) => self.refused(error),
        }
    }
}

impl Drop for BreakerPass {
    fn drop(&mut self) {
        if let (Some(breaker), Some(slot)) = (&self.breaker, self.slot) {
            breaker.released(slot, Instant::now());
        }
    }
}

impl UpstreamError {
    /// Whether the server itself failed, as opposed to the request, the caller or the credential.
    const fn says(&self) -> HealthSignal {
        match self {
            Self::Connection(
                ConnectionError::Connect(_)
                | ConnectionError::Broken(_)
                | ConnectionError::Unprocessed(_),
            )
            | Self::Start(_)
            | Self::Exited
            | Self::Stalled
            | Self::Timeout(_)
            | Self::Incomplete => HealthSignal::Failed,
            Self::Status(status) if *status >= 500 => HealthSignal::Failed,
            Self::Status(_)
            | Self::Redirect(..)
            | Self::Unauthorized(_)
            | Self::WriteScopes(_)
            | Self::ContentType
            | Self::TooLong(_)
            | Self::Message(_)
            | Self::Protocol(_)
            | Self::ListError(_)
            | Self::Refused => HealthSignal::Answered,
            // A session can be gone without the server having been asked.
            Self::SessionGone
            | Self::SharedFailure(_)
            | Self::CircuitOpen(_)
            | Self::IdentityMismatch
            | Self::Revoked
            | Self::Connection(ConnectionError::Egress { .. } | ConnectionError::Identity(_))
            | Self::Environment(_)
            | Self::Credential(_)
            | Self::Backoff(_)
            | Self::SessionLimit
            | Self::Memory(_)
            | Self::SendQueueFull(_)
            | Self::Processes(_) => HealthSignal::Nothing,
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
        /// Compares the breaker with a simple model of its promises.
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
            // The requests in flight, and the end of the pause of each that is a probe.
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
