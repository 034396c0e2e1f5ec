//! How often a caller may call a tool, where the registry says so.
//!
//! The generic cell rate algorithm (ITU-T I.371): one instant for each caller and tool, the one at which
//! its calls so far would have come had they come evenly.

use std::time::{Duration, Instant};

use policy::registry::Rate;

use crate::bounded::Bounded;

/// Whose calls of what.
type Key = (Box<str>, Box<str>, Box<str>);

/// The calls of callers.
#[derive(Debug)]
pub struct Rates {
    even: Bounded<Key, Option<Instant>>,
}

impl Rates {
    /// With room for so many callers and tools.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { even: Bounded::new(limit) }
    }

    /// Counts a call; `Err` with how long to wait if it is one too many. With no room to count it
    /// is one too many as well.
    ///
    /// # Errors
    /// How long to wait.
    pub fn take(&self, key: Key, rate: Rate, now: Instant) -> Result<(), Duration> {
        let each = rate.per / rate.count;
        let tolerance = rate.per.saturating_sub(each);
        if self.even.insert(key.clone(), None).is_err() {
            return Err(each);
        }
        let mut wait = Duration::ZERO;
        self.even.update(key, |even: Option<Instant>| {
            let even = even.map_or(now, |even| even.max(now));
            wait = even.saturating_duration_since(now).saturating_sub(tolerance);
            Some(if wait.is_zero() { even + each } else { even })
        });
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    /// Forgets those who have been even for a while.
    pub fn sweep(&self, now: Instant) {
        self.even.retain(|_, even| even.is_some_and(|even| even > now));
    }
}

#[cfg(test)]
mod tests {
    use super::Rates;
    use crate::clock::{Clock as _, System};
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
            assert_eq!(take("ana", 0), Ok(()));
        }
        assert_eq!(take("ana", 0), Err(Duration::from_secs(20)));
        assert_eq!(take("bob", 0), Ok(()));
        assert_eq!(take("ana", 19), Err(Duration::from_secs(1)));
        assert_eq!(take("ana", 20), Ok(()));
        assert!(take("ana", 20).is_err());
        for _ in 0..3 {
            assert_eq!(take("ana", 600), Ok(()));
        }
        assert!(take("ana", 600).is_err());
    }
}
