//! A server that keeps failing is left alone for a while, so that it can recover and nobody waits for
//! it (control C16, threat ASI08).
//!
//! After so many failures in a row the circuit opens: nothing is asked of the server. After a while
//! one request may go and see; an answer closes the circuit, anything else leaves it open for as long
//! again. Off unless configured: whoever can make a server fail can keep others from it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::UpstreamError;
use crate::link::LinkError;
use crate::settings::CircuitBreaker;

/// How far a server is trusted to answer.
#[derive(Debug)]
pub(super) struct Breaker {
    bounds: Option<CircuitBreaker>,
    born: Instant,
    /// Failures in a row.
    failures: AtomicU32,
    /// Until when nobody may go, in microseconds after [`Self::born`]; zero while the circuit is closed.
    until: AtomicU64,
    /// Somebody has gone to see since it opened.
    gone: AtomicBool,
}

/// What a failure or an answer has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// Nothing is asked of the server from now on.
    Open,
    /// It answers again.
    Closed,
}

impl Breaker {
    pub(super) fn new(bounds: Option<CircuitBreaker>, now: Instant) -> Self {
        Self {
            bounds,
            born: now,
            failures: AtomicU32::new(0),
            until: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        }
    }

    /// Whether somebody may ask at `now`, who has not said that they do.
    ///
    /// # Errors
    /// [`UpstreamError::Open`] while the circuit is, with the time until it is worth another try.
    pub(super) fn look(&self, now: Instant) -> Result<(), UpstreamError> {
        let (at, until) = (self.micros(now), self.until.load(Ordering::Acquire));
        match until.checked_sub(at).filter(|left| *left > 0) {
            Some(left) => Err(UpstreamError::Open(Duration::from_micros(left))),
            None => Ok(()),
        }
    }

    /// Lets somebody ask at `now`.
    ///
    /// # Errors
    /// As [`Self::look`], and where somebody else has just gone.
    pub(super) fn admit(&self, now: Instant) -> Result<(), UpstreamError> {
        let until = self.until.load(Ordering::Acquire);
        let Some(bounds) = self.bounds.filter(|_| until > 0) else { return Ok(()) };
        self.look(now)?;
        let at = self.micros(now);
        // One goes and sees. The others wait for it, and for another if it does not come back.
        let next = at.saturating_add(micros(bounds.open_for));
        match self.until.compare_exchange(until, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.gone.store(true, Ordering::Release);
                Ok(())
            }
            Err(_) => Err(UpstreamError::Open(bounds.open_for)),
        }
    }

    /// The server has failed.
    pub(super) fn failed(&self, now: Instant) -> Option<Turned> {
        let bounds = self.bounds?;
        let more = |failures: u32| Some(failures.saturating_add(1));
        let before = self.failures.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        if before.unwrap_or_else(|same| same).saturating_add(1) < bounds.failures.get() {
            return None;
        }
        // Those that were on their way when it opened do not keep it open.
        let until = self.micros(now).saturating_add(micros(bounds.open_for)).max(1);
        let opened = self.until.compare_exchange(0, until, Ordering::AcqRel, Ordering::Acquire);
        opened.is_ok().then(|| {
            self.gone.store(false, Ordering::Release);
            Turned::Open
        })
    }

    /// The server has answered.
    pub(super) fn answered(&self) -> Option<Turned> {
        self.bounds?;
        let open = self.until.load(Ordering::Acquire) > 0;
        // What was asked before it opened says nothing about now.
        if open && !self.gone.load(Ordering::Acquire) {
            return None;
        }
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Release);
        }
        (open && self.until.swap(0, Ordering::AcqRel) > 0).then_some(Turned::Closed)
    }

    fn micros(&self, now: Instant) -> u64 {
        micros(now.saturating_duration_since(self.born))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl UpstreamError {
    /// Whether it is the server that failed, and not what was asked, who asked, or what it may be shown.
    pub(super) const fn is_failure(&self) -> bool {
        match self {
            Self::Link(LinkError::Connect(_) | LinkError::Broken(_))
            | Self::Start(_)
            | Self::Exited
            | Self::Backoff(_)
            | Self::Stalled
            | Self::Timeout(_)
            | Self::Incomplete => true,
            Self::Status(status) => *status >= 500,
            Self::Shared(_)
            | Self::Open(_)
            | Self::Stranger
            | Self::Link(LinkError::Egress { .. } | LinkError::Identity(_))
            | Self::World(_)
            | Self::Credential(_)
            | Self::Unauthorized(_)
            | Self::ContentType
            | Self::TooLong(_)
            | Self::Message(_)
            | Self::Protocol(_)
            | Self::Crowded
            | Self::Refused
            | Self::SessionGone => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use proptest::prelude::{Just, Strategy, prop, prop_assert_eq, prop_oneof, proptest};
    use tokio::time::Instant;

    use super::{Breaker, Turned};
    use crate::settings::CircuitBreaker;

    const OPEN: Duration = Duration::from_secs(30);

    fn breaker(failures: u32, now: Instant) -> Breaker {
        let failures = NonZeroU32::new(failures).unwrap();
        Breaker::new(Some(CircuitBreaker { failures, open_for: OPEN }), now)
    }

    #[derive(Clone, Copy, Debug)]
    enum Happens {
        Fails,
        Answers,
        Asks,
        Later(u64),
    }

    proptest! {
        /// The same as a model that says in words what is promised.
        #[test]
        fn nobody_is_let_through_an_open_circuit_but_one_at_a_time(
            bound in 1_u32..5,
            events in prop::collection::vec(prop_oneof![
                4 => Just(Happens::Fails),
                1 => Just(Happens::Answers),
                4 => Just(Happens::Asks),
                2 => (1_u64..40).prop_map(Happens::Later),
            ], 0..80),
        ) {
            let mut now = Instant::now();
            let breaker = breaker(bound, now);
            let (mut failures, mut closed_until, mut gone) = (0, None::<Instant>, false);
            for event in events {
                match event {
                    Happens::Later(seconds) => now += Duration::from_secs(seconds),
                    Happens::Fails => {
                        failures += 1;
                        let opens = failures >= bound && closed_until.is_none();
                        if opens {
                            (closed_until, gone) = (Some(now + OPEN), false);
                        }
                        prop_assert_eq!(breaker.failed(now), opens.then_some(Turned::Open));
                    }
                    Happens::Answers => {
                        let closes = closed_until.is_some() && gone;
                        if closes || closed_until.is_none() {
                            (failures, closed_until) = (0, None);
                        }
                        prop_assert_eq!(breaker.answered(), closes.then_some(Turned::Closed));
                    }
                    Happens::Asks => {
                        let let_through = closed_until.is_none_or(|until| now >= until);
                        if closed_until.is_some() && let_through {
                            (closed_until, gone) = (Some(now + OPEN), true);
                        }
                        prop_assert_eq!(breaker.admit(now).is_ok(), let_through);
                    }
                }
            }
        }
    }

    #[test]
    fn without_bounds_it_never_opens() {
        let now = Instant::now();
        let breaker = Breaker::new(None, now);
        assert!((0..100).all(|_| breaker.failed(now).is_none() && breaker.admit(now).is_ok()));
    }
}
