//! Rate limits for calls of a tool by a caller, as set in the registry.

use std::time::{Duration, Instant};

use policy::registry::Rate;

use crate::base::bounded::Bounded;
use crate::base::gcra::{Gcra, Pace};

/// Identifies a rate limit: caller, server and tool.
type Key = (Box<str>, Box<str>, Box<str>);

/// Proof that a call is within the rate limit of its tool. [`Cleared`] takes it.
///
/// [`Cleared`]: crate::upstream::Cleared
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a call that was counted is sent or refused"]
pub struct WithinRate(());

impl WithinRate {
    /// For what has no rate limit.
    pub const fn unlimited() -> Self {
        Self(())
    }
}

/// The rate limiters of all callers and tools.
#[derive(Debug)]
pub struct Rates {
    calls: Bounded<Key, Gcra>,
}

impl Rates {
    /// Rate limiters for at most `limit` pairs of caller and tool.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { calls: Bounded::new(limit) }
    }

    /// Counts a call. A call is refused too if there is no room for its counter.
    ///
    /// # Errors
    /// How long to wait, if the rate is exceeded.
    pub fn take(&self, key: Key, rate: Rate, now: Instant) -> Result<WithinRate, Duration> {
        let pace = Pace::new(rate.count, rate.per, rate.count);
        if self.calls.insert(key.clone(), Gcra::new()).is_err() {
            return Err(pace.each());
        }
        let mut taken = Err(pace.each());
        self.calls.update(key, |mut calls| {
            taken = calls.take(pace, now).map(WithinRate);
            calls
        });
        taken
    }

    /// Removes the counters that have recovered fully.
    pub fn sweep(&self, now: Instant) {
        self.calls.retain(|_, calls| !calls.is_even(now));
    }
}

#[cfg(test)]
mod tests {
    use super::{Rates, WithinRate};
    use crate::base::clock::{Clock as _, System};
    use policy::registry::Rate;
    use std::time::Duration;

    #[test]
    fn so_many_calls_pass_in_so_much_time() {
        let (rates, start) = (Rates::new(100), System.instant());
        let rate = Rate { count: 3, per: Duration::from_secs(60) };
        let take = |who: &str, seconds| {
            let key = (who.into(), "s".into(), "t".into());
            rates.take(key, rate, start + Duration::from_secs(seconds))
        };
        for _ in 0..3 {
            assert_eq!(take("ana", 0), Ok(WithinRate(())));
        }
        assert_eq!(take("ana", 0), Err(Duration::from_secs(20)));
        assert_eq!(take("bob", 0), Ok(WithinRate(())));
        assert_eq!(take("ana", 19), Err(Duration::from_secs(1)));
        assert_eq!(take("ana", 20), Ok(WithinRate(())));
        assert!(take("ana", 20).is_err());
        for _ in 0..3 {
            assert_eq!(take("ana", 600), Ok(WithinRate(())));
        }
        assert!(take("ana", 600).is_err());
    }
}
