//! The principals that are locked for a while because they touched a decoy (control C35). Everything is refused to them,
//! like to those that are revoked; unlike a revocation, a lock ends by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use crate::base::bounded::{BoundedMap, MapFull};
use crate::metrics::Metrics;

/// A lock of one principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalLock {
    /// When it ends, on the monotonic clock.
    until: Instant,
    /// When the lock ends, for people.
    pub expires: SystemTime,
    /// Which decoy the principal touched, without any content.
    pub cause: Arc<str>,
}

/// A time in both clocks.
#[derive(Clone, Copy, Debug)]
pub struct LockTime {
    /// The monotonic time, which decides.
    pub instant: Instant,
    /// The time of day.
    pub now: SystemTime,
}

/// The locks of all principals. It outlives a reload of the configuration, and ends with the process.
#[derive(Debug)]
pub struct LockStore {
    locks: BoundedMap<Box<str>, PrincipalLock>,
    metrics: Arc<Metrics>,
}

impl LockStore {
    /// A store for at most `limit` locks.
    #[must_use]
    pub fn new(limit: usize, metrics: Arc<Metrics>) -> Self {
        Self { locks: BoundedMap::new(limit), metrics }
    }

    /// Whether the principal with this id is locked.
    #[must_use]
    pub fn has(&self, id: &str, now: Instant) -> bool {
        // It is asked for every request, and formats nothing where nobody is locked.
        self.locks.length() > 0 && self.locks.get(&id.into()).is_some_and(|lock| now < lock.until)
    }

    /// Locks the principal with this id for `time`. `None` if it was locked for as long before.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn add(
        &self,
        id: &str,
        time: Duration,
        at: LockTime,
        cause: &Arc<str>,
    ) -> Result<Option<PrincipalLock>, MapFull> {
        let lock = PrincipalLock {
            until: at.instant + time,
            expires: at.now + time,
            cause: Arc::clone(cause),
        };
        let mut is_new = true;
        let mut set = || {
            self.locks.set(id.into(), |known| {
                let longer = known.filter(|known| known.until >= lock.until);
                is_new = longer.is_none();
                longer.unwrap_or(&lock).clone()
            })
        };
        if set().is_err() {
            // Locks that have ended make room.
            self.sweep(at.instant);
            set()?;
        }
        self.measure();
        Ok(is_new.then_some(lock))
    }

    /// Lifts the lock of the principal with this id; returns whether there was one.
    pub fn lift(&self, id: &str) -> bool {
        let lifted = self.locks.remove(&id.into()).is_some();
        self.measure();
        lifted
    }

    /// The locks that have not ended, by the ids of their principals.
    #[must_use]
    pub fn all(&self, now: Instant) -> Vec<(Box<str>, PrincipalLock)> {
        let mut all = Vec::new();
        self.locks.retain(|id, lock| {
            if now < lock.until {
                all.push((id.clone(), lock.clone()));
            }
            true
        });
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Drops the locks that have ended.
    pub fn sweep(&self, now: Instant) {
        self.locks.retain(|_, lock| now < lock.until);
        self.measure();
    }

    fn measure(&self) {
        self.metrics.locks.store(self.locks.length() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use super::{LockStore, LockTime};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::metrics::Metrics;

    #[test]
    fn a_lock_ends_by_itself_and_a_shorter_one_does_not_shorten_it() {
        let locks = LockStore::new(2, Arc::new(Metrics::new(UNIX_EPOCH)));
        let start = SystemClock.instant();
        let at = |seconds| start + Duration::from_secs(seconds);
        let lock = |id: &str, seconds, now| {
            let time = LockTime { instant: at(now), now: UNIX_EPOCH };
            locks.add(id, Duration::from_secs(seconds), time, &"decoy".into())
        };
        assert!(!locks.has("ana", at(0)));
        lock("ana", 60, 0).unwrap();
        lock("ana", 10, 1).unwrap();
        assert!(locks.has("ana", at(59)) && !locks.has("ana", at(60)) && !locks.has("bob", at(1)));
        lock("ana", 60, 1).unwrap();
        assert!(locks.has("ana", at(60)));
        lock("bob", 60, 0).unwrap();
        assert!(lock("carl", 60, 0).is_err(), "there is no room, and nobody is unlocked for it");
        assert_eq!(locks.all(at(2)).len(), 2);
        locks.sweep(at(60));
        assert_eq!(locks.all(at(2)).len(), 1);
        assert!(locks.lift("ana") && !locks.lift("ana") && !locks.has("ana", at(2)));
    }
}
