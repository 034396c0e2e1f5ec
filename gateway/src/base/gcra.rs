//! The generic cell rate algorithm (ITU-T I.371): a burst, then so many in so much time.
//!
//! One instant stands for all that was counted: the one at which the next would come, had all of them come evenly.
//! Each moves it forward by the time that one is worth, and one is let through while the instant is not further
//! ahead than the burst allows.

use std::time::{Duration, Instant};

/// How many are let through in how much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time that one is worth.
    each: Duration,
    /// How far ahead of now the instant may be.
    ahead: Duration,
}

impl Pace {
    /// `count` in the time `per`, after at most `burst` at once. At least one of each.
    #[must_use]
    pub const fn new(count: u32, per: Duration, burst: u32) -> Self {
        let each = match per.checked_div(count) {
            Some(each) => each,
            // One of them.
            None => per,
        };
        Self { each, ahead: each.saturating_mul(burst.saturating_sub(1)) }
    }

    /// The time that one is worth.
    #[must_use]
    pub const fn each(self) -> Duration {
        self.each
    }
}

/// What was counted so far; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gcra {
    even: Option<Instant>,
}

impl Gcra {
    /// Nothing counted.
    #[must_use]
    pub const fn new() -> Self {
        Self { even: None }
    }

    /// Counts one more at `now`.
    ///
    /// # Errors
    /// How long to wait, where it is one too many; then it is not counted.
    pub fn take(&mut self, pace: Pace, now: Instant) -> Result<(), Duration> {
        let even = self.even.map_or(now, |even| even.max(now));
        let wait = even.saturating_duration_since(now).saturating_sub(pace.ahead);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.even = Some(even.checked_add(pace.each).unwrap_or(even));
        Ok(())
    }

    /// Whether what was counted no longer makes a difference.
    #[must_use]
    pub fn is_even(&self, now: Instant) -> bool {
        self.even.is_none_or(|even| even <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::{Gcra, Pace};
    use crate::base::clock::{Clock as _, System};
    use std::time::Duration;

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let (mut gcra, start) = (Gcra::new(), System.instant());
        let pace = Pace::new(2, Duration::from_secs(1), 3);
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
        let (mut gcra, start) = (Gcra::new(), System.instant());
        let pace = Pace::new(0, Duration::from_secs(1), 0);
        assert_eq!(gcra.take(pace, start), Ok(()));
        assert_eq!(gcra.take(pace, start), Err(Duration::from_secs(1)));
        assert_eq!(gcra.take(pace, start + Duration::from_secs(1)), Ok(()));
    }
}
