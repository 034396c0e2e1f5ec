//! Rate limits for calls of a tool by a caller, as set in the registry.

use std::time::{Duration, Instant};

use policy::definition::registry::RateLimit;

use crate::base::bounded::BoundedMap;
use crate::base::gcra::{EventRate, Gcra};

/// Identifies a rate limit: caller, server and tool. With an empty name of a tool it limits the requests of the server to
/// the caller.
type RateKey = (Box<str>, Box<str>, Box<str>);

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
pub struct RateLimiter {
    calls: BoundedMap<RateKey, Gcra>,
}

impl RateLimiter {
    /// Rate limiters for at most `limit` pairs of caller and tool.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { calls: BoundedMap::new(limit) }
    }

    /// Counts a call. A call is refused too if there is no room for its counter.
    ///
    /// # Errors
    /// How long to wait, if the rate is exceeded.
    pub fn take(
        &self,
        key: RateKey,
        rate: RateLimit,
        now: Instant,
    ) -> Result<WithinRate, Duration> {
        let pace = EventRate::new(rate.count, rate.per, rate.count);
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
    use super::{RateLimiter, WithinRate};
    use crate::base::clock::{Clock as _, SystemClock};
    use policy::definition::registry::RateLimit;
    use std::time::Duration;

    #[test]
    fn so_many_calls_pass_in_so_much_time() {
        let (rates, start) = (RateLimiter::new(100), SystemClock.instant());
        let rate = RateLimit { count: 3, per: Duration::from_secs(60) };
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
