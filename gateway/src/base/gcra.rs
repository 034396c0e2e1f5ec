//! The generic cell rate algorithm (GCRA, ITU-T I.371): a rate limit with a burst.
//!
//! The state is one instant, the theoretical arrival time: when the next event would come if all events so far had
//! come evenly. Each event moves it forward by the time one event is worth, and an event is accepted while that
//! instant is not further ahead of now than the burst allows.

use std::time::{Duration, Instant};

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRate {
    /// The time that one event is worth.
    each: Duration,
    /// How far ahead of now the theoretical arrival time may be.
    ahead: Duration,
}

impl EventRate {
    /// Allows `count` events in the time `per`, and a burst of at most `burst`. Zero counts as one for both.
    #[must_use]
    pub const fn new(count: u32, per: Duration, burst: u32) -> Self {
        let each = match per.checked_div(count) {
            Some(each) => each,
            // `count` is zero.
            None => per,
        };
        Self { each, ahead: each.saturating_mul(burst.saturating_sub(1)) }
    }

    /// The time that one event is worth.
    #[must_use]
    pub const fn each(self) -> Duration {
        self.each
    }

    /// How far ahead of now the theoretical arrival time may be.
    #[must_use]
    pub const fn ahead(self) -> Duration {
        self.ahead
    }
}

/// The events counted so far; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gcra {
    even: Option<Instant>,
}

impl Gcra {
    /// A state with no events.
    #[must_use]
    pub const fn new() -> Self {
        Self { even: None }
    }

    /// Counts one event at `now`.
    ///
    /// # Errors
    /// The time to wait, if the rate is exceeded; the event is then not counted.
    pub fn take(&mut self, pace: EventRate, now: Instant) -> Result<(), Duration> {
        let even = self.even.map_or(now, |even| even.max(now));
        let wait = even.saturating_duration_since(now).saturating_sub(pace.ahead);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.even = Some(even.checked_add(pace.each).unwrap_or(even));
        Ok(())
    }

    /// Whether the state equals an empty one, so that it can be dropped.
    #[must_use]
    pub fn is_even(&self, now: Instant) -> bool {
        self.even.is_none_or(|even| even <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::{EventRate, Gcra};
    use crate::base::clock::{Clock as _, SystemClock};
    use std::time::Duration;

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let (mut gcra, start) = (Gcra::new(), SystemClock.instant());
        let pace = EventRate::new(2, Duration::from_secs(1), 3);
        let mut take = |millis| gcra.take(pace, start + Duration::from_millis(millis));
        for _ in 0..3 {
            assert_eq!(take(0), Ok(()));
        }
        assert_eq!(take(0), Err(Duration::from_millis(500)));
        assert_eq!(take(499), Err(Duration::from_millis(1)));
        assert_eq!(take(500), Ok(()));
        assert!(take(500).is_err());
        assert!(!gcra.is_even(start + Duration::from_millis(1999)));
        assert!(gcra.is_even(start + Duration::from_secs(2)));
    }

    #[test]
    fn none_in_a_time_is_one_in_it() {
        let (mut gcra, start) = (Gcra::new(), SystemClock.instant());
        let pace = EventRate::new(0, Duration::from_secs(1), 0);
        assert_eq!(gcra.take(pace, start), Ok(()));
        assert_eq!(gcra.take(pace, start), Err(Duration::from_secs(1)));
        assert_eq!(gcra.take(pace, start + Duration::from_secs(1)), Ok(()));
    }
}
