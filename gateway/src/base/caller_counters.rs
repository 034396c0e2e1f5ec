//! Counts by caller in memory of a fixed size: what callers have written, and how often they have asked.
//!
//! A map with an entry for each caller needs a limit, and a caller with many names can use that up for all. Here each
//! caller has two of a fixed number of counters, chosen by a hash with a secret key, and its count is the smaller of the
//! two (a count-min sketch). It is never too small. It is too large only if both counters are shared with callers
//! that count much, which nobody can arrange without the key. No operation takes a lock or allocates.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::base::gcra::EventRate;
use crate::base::share::Holder;

/// The number of callers whose rate is told apart: 128 KiB of counters.
const RATED: usize = 16 * 1024;

/// A caller as counters know it: a hash of its [`Holder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerKey(u64);

impl CallerKey {
    /// The places of its two counters among `length`.
    fn places(self, length: usize) -> [usize; 2] {
        let place = |half: u64| usize::try_from(half & 0xffff_ffff).map_or(0, |half| half % length);
        [place(self.0), place(self.0 >> 32)]
    }
}

/// Sums of amounts by caller, such as bytes that were written.
pub struct CallerCounters(Box<[AtomicU64]>);

impl fmt::Debug for CallerCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallerCounters").field(&self.0.len()).finish()
    }
}

impl CallerCounters {
    /// `length` counters, all zero.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self((0..length.max(1)).map(|_| AtomicU64::new(0)).collect())
    }

    fn of(&self, caller: CallerKey) -> impl Iterator<Item = &AtomicU64> {
        let [first, second] = caller.places(self.0.len());
        let second = (second != first).then_some(second);
        [Some(first), second].into_iter().flatten().filter_map(|place| self.0.get(place))
    }

    /// Adds `amount` to what the caller has.
    pub fn add(&self, caller: CallerKey, amount: u64) {
        for counter in self.of(caller) {
            counter.fetch_add(amount, Ordering::AcqRel);
        }
    }

    /// Takes back what was added.
    pub fn subtract(&self, caller: CallerKey, amount: u64) {
        for counter in self.of(caller) {
            counter.fetch_sub(amount, Ordering::AcqRel);
        }
    }

    /// What the caller has, or more.
    #[must_use]
    pub fn get(&self, caller: CallerKey) -> u64 {
        self.of(caller).map(|counter| counter.load(Ordering::Acquire)).min().unwrap_or_default()
    }

    /// Sets all counters to zero.
    pub fn clear(&self) {
        for counter in &self.0 {
            counter.store(0, Ordering::Release);
        }
    }
}

/// The rate at which each caller may do something, and what it has done. What is done is counted afterwards, so that
/// its outcome can decide whether it counts.
pub struct CallerRates {
    hasher: RandomState,
    /// When it was first used.
    begun: OnceLock<Instant>,
    usual: EventRate,
    /// Rates of particular callers.
    others: HashMap<Holder, EventRate>,
    /// The theoretical arrival times ([`crate::base::gcra`]), in nanoseconds after `begun`.
    arrivals: CallerCounters,
}

impl fmt::Debug for CallerRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerRates").field("usual", &self.usual).finish_non_exhaustive()
    }
}

impl CallerRates {
    /// Allows `usual`, and some callers another rate.
    #[must_use]
    pub fn new(usual: EventRate, others: HashMap<Holder, EventRate>) -> Arc<Self> {
        let (hasher, arrivals) = (RandomState::new(), CallerCounters::new(RATED));
        Arc::new(Self { hasher, begun: OnceLock::new(), usual, others, arrivals })
    }

    /// What is counted of this caller.
    #[must_use]
    pub fn caller(self: &Arc<Self>, holder: &Holder) -> RatedCaller {
        let pace = match self.others.is_empty() {
            true => self.usual,
            false => self.others.get(holder).copied().unwrap_or(self.usual),
        };
        RatedCaller { key: CallerKey(self.hasher.hash_one(holder)), pace, of: Arc::clone(self) }
    }

    fn since(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(*self.begun.get_or_init(|| now)))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A caller whose rate is counted.
#[derive(Clone, Debug)]
pub struct RatedCaller {
    key: CallerKey,
    pace: EventRate,
    of: Arc<CallerRates>,
}

impl RatedCaller {
    /// The caller as other counters know it.
    #[must_use]
    pub const fn key(&self) -> CallerKey {
        self.key
    }

    /// Counts one event at `now`, whether it is within the rate or not. Of events beyond the rate only one counts, so that
    /// what was under way when the rate was reached makes nobody wait longer.
    pub fn count(&self, now: Instant) {
        let (now, each) = (self.of.since(now), nanoseconds(self.pace.each()));
        let most = now.saturating_add(nanoseconds(self.pace.ahead())).saturating_add(each);
        for arrival in self.of.arrivals.of(self.key) {
            // Never refused: the closure always gives a value.
            let _counted = arrival.fetch_update(Ordering::AcqRel, Ordering::Acquire, |even| {
                Some(even.max(even.max(now).saturating_add(each).min(most)))
            });
        }
    }

    /// How long the caller has to wait until another event is within its rate; `None` if it need not.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let latest = self.of.since(now).saturating_add(nanoseconds(self.pace.ahead()));
        let over = self.of.arrivals.get(self.key).saturating_sub(latest);
        (over > 0).then(|| Duration::from_nanos(over))
    }
}

#[cfg(test)]
mod tests {
    use super::{CallerCounters, CallerKey, CallerRates};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::base::gcra::EventRate;
    use crate::base::share::Holder;
    use std::time::Duration;

    fn holder(n: u8) -> Holder {
        Holder::network([192, 0, 2, n].into())
    }

    #[test]
    fn what_a_caller_has_is_never_too_small_and_is_taken_back() {
        let counters = CallerCounters::new(8);
        let keys: Vec<_> =
            (0..64_u64).map(|n| CallerKey(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        for (n, key) in (1..).zip(&keys) {
            counters.add(*key, n);
        }
        for (n, key) in (1..).zip(&keys) {
            assert!(counters.get(*key) >= n);
        }
        for (n, key) in (1..).zip(&keys) {
            counters.subtract(*key, n);
        }
        assert!(keys.iter().all(|key| counters.get(*key) == 0));
        // Both counters of a caller may be the same one.
        let same = CallerKey(0x0000_0003_0000_0003);
        counters.add(same, 5);
        assert_eq!(counters.get(same), 5);
        counters.clear();
        assert_eq!(counters.get(same), 0);
    }

    #[test]
    fn a_caller_over_its_rate_waits_and_others_do_not() {
        let start = SystemClock.instant();
        let at = |seconds| start + Duration::from_secs(seconds);
        let pace = |count| EventRate::new(count, Duration::from_secs(60), count);
        let rates = CallerRates::new(pace(6), [(holder(2), pace(60))].into());
        let [one, two, three] = [1, 2, 3].map(|n| rates.caller(&holder(n)));
        assert_eq!(one.wait(start), None);
        for _ in 0..6 {
            assert_eq!(one.wait(at(1)), None);
            one.count(at(1));
        }
        assert_eq!(one.wait(at(1)), Some(Duration::from_secs(10)));
        assert_eq!(one.wait(at(10)), Some(Duration::from_secs(1)));
        assert_eq!(one.wait(at(11)), None);
        // What was under way when the rate was reached makes nobody wait longer.
        (0..9).for_each(|_| one.count(at(11)));
        assert_eq!(one.wait(at(11)), Some(Duration::from_secs(10)));
        assert_eq!(three.wait(at(1)), None);
        for _ in 0..60 {
            assert_eq!(two.wait(at(1)), None);
            two.count(at(1));
        }
        assert_eq!(two.wait(at(1)), Some(Duration::from_secs(1)));
    }
}
