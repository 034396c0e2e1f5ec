//! A cache with bounds on entries, bytes and age.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What entries are found by: a digest.
pub type CacheKey = [u8; 32];

/// Bounds of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBounds {
    /// The maximum number of entries.
    pub entries: usize,
    /// Most bytes of all values, as their owners count them.
    pub bytes: usize,
    /// How long an entry is used.
    pub lifetime: Duration,
}

/// A cache of values under digests. A new entry takes the room of the oldest ones.
pub struct ExpiringCache<V> {
    bounds: CacheBounds,
    state: Mutex<CacheState<V>>,
}

struct CacheState<V> {
    entries: HashMap<CacheKey, CacheEntry<V>>,
    /// Keys by age, the oldest one first. Each is in `entries`.
    ages: VecDeque<CacheKey>,
    bytes: usize,
}

struct CacheEntry<V> {
    value: V,
    bytes: usize,
    until: Instant,
}

impl<V> fmt::Debug for ExpiringCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringCache").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl<V: Clone> ExpiringCache<V> {
    /// An empty cache with these bounds.
    #[must_use]
    pub fn new(bounds: CacheBounds) -> Self {
        let state = CacheState { entries: HashMap::new(), ages: VecDeque::new(), bytes: 0 };
        Self { bounds, state: Mutex::new(state) }
    }

    /// The value under a key at `now`; `None` if there is none, or it is too old.
    pub fn get(&self, key: &CacheKey, now: Instant) -> Option<V> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = state.entries.get(key).filter(|entry| now < entry.until)?;
        Some(entry.value.clone())
    }

    /// Keeps a value of `bytes` bytes under a key from `now` on. One that has no room is not kept.
    pub fn insert(&self, key: CacheKey, value: V, bytes: usize, now: Instant) {
        let CacheBounds { entries: most, bytes: room, lifetime } = self.bounds;
        let Some(until) = now.checked_add(lifetime).filter(|until| *until > now) else { return };
        if most == 0 || bytes > room {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.remove(&key) {
            state.ages.retain(|known| *known != key);
        }
        while state.entries.len() >= most || state.bytes.saturating_add(bytes) > room {
            let Some(oldest) = state.ages.pop_front() else { break };
            let _removed = state.remove(&oldest);
        }
        state.bytes = state.bytes.saturating_add(bytes);
        state.ages.push_back(key);
        state.entries.insert(key, CacheEntry { value, bytes, until });
    }
}

impl<V> CacheState<V> {
    /// Whether there was an entry.
    fn remove(&mut self, key: &CacheKey) -> bool {
        let gone = self.entries.remove(key);
        self.bytes = self.bytes.saturating_sub(gone.as_ref().map_or(0, |gone| gone.bytes));
        gone.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CacheBounds, ExpiringCache};
    use crate::base::clock::{Clock as _, SystemClock};

    #[test]
    fn the_oldest_entries_make_room_and_none_is_used_for_too_long() {
        let bounds = CacheBounds { entries: 3, bytes: 10, lifetime: Duration::from_secs(60) };
        let (cache, start) = (ExpiringCache::new(bounds), SystemClock.instant());
        for n in 0..4 {
            cache.insert([n; 32], n, 2, start);
        }
        let known = |at| (0..9).filter(|n| cache.get(&[*n; 32], at).is_some()).collect::<Vec<_>>();
        assert_eq!(known(start), [1, 2, 3]);
        cache.insert([1; 32], 1, 2, start);
        cache.insert([4; 32], 4, 5, start);
        assert_eq!(known(start), [1, 3, 4], "the entry that was set again is the younger one");
        cache.insert([5; 32], 5, 8, start);
        assert_eq!(known(start), [5]);
        cache.insert([6; 32], 6, 11, start);
        assert_eq!(known(start), [5], "what has no room takes none");
        assert_eq!(known(start + Duration::from_secs(59)), [5]);
        assert!(known(start + Duration::from_secs(60)).is_empty());
    }
}
