//! A shared map that cannot grow past what was promised.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts that are locked on their own.
const SHARDS: usize = 32;
/// Entries for which a part keeps its memory when it has become empty.
const SPARE: usize = 16;

/// Why an entry was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds {limit} entries already")]
pub struct Full {
    limit: usize,
}

/// A map of at most `limit` entries that many tasks use at once. It refuses; it does not evict what
/// a caller relies on.
///
/// Split by a keyed hash into parts with a lock each, held for one operation: two tasks meet only
/// when they touch the same part in the same instant. The limit is that of the whole map, not of a
/// part: an entry is never refused because its part happens to be full.
pub struct Bounded<K, V> {
    shards: Vec<Mutex<HashMap<K, V>>>,
    hasher: RandomState,
    limit: usize,
    length: AtomicUsize,
}

impl<K, V> fmt::Debug for Bounded<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<K: Eq + Hash, V> Bounded<K, V> {
    /// An empty map with room for `limit`.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect();
        Self { shards, hasher: RandomState::new(), limit, length: AtomicUsize::new(0) }
    }

    /// How many entries there are.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Adds an entry; gives the value back when its key is taken.
    ///
    /// # Errors
    /// When there is no room.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, Full> {
        let Some(mut shard) = self.shard(&key) else { return Err(Full { limit: self.limit }) };
        if shard.contains_key(&key) {
            return Ok(Some(value));
        }
        let another = |length: usize| Some(length + 1).filter(|length| *length <= self.limit);
        if self.length.fetch_update(Ordering::AcqRel, Ordering::Acquire, another).is_err() {
            return Err(Full { limit: self.limit });
        }
        shard.insert(key, value);
        Ok(None)
    }

    /// Takes an entry out.
    pub fn remove(&self, key: &K) -> Option<V> {
        let removed = self.shard(key)?.remove(key);
        self.length.fetch_sub(usize::from(removed.is_some()), Ordering::AcqRel);
        removed
    }

    /// Reads an entry.
    pub fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.shard(key)?.get(key).cloned()
    }

    /// Changes the entry of `key`, which counts as the default where there is none; one that has
    /// become the default again is taken out. Gives what it has become. An entry that is made so is
    /// counted and not refused: whoever changes entries bounds what they stand for.
    pub fn update(&self, key: K, change: impl FnOnce(V) -> V) -> V
    where
        V: Clone + Default + PartialEq,
    {
        let Some(mut shard) = self.shard(&key) else { return V::default() };
        let new = change(shard.get(&key).cloned().unwrap_or_default());
        if new == V::default() {
            let removed = shard.remove(&key).is_some();
            self.length.fetch_sub(usize::from(removed), Ordering::AcqRel);
        } else {
            let added = shard.insert(key, new.clone()).is_none();
            self.length.fetch_add(usize::from(added), Ordering::AcqRel);
        }
        new
    }

    /// Whether there is such an entry.
    pub fn contains(&self, key: &K) -> bool {
        self.shard(key).is_some_and(|shard| shard.contains_key(key))
    }

    /// Drops the entries that `keep` does not want, and gives back the memory that a burst of entries
    /// has left behind.
    pub fn retain(&self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let before = shard.len();
            shard.retain(&mut keep);
            self.length.fetch_sub(before - shard.len(), Ordering::AcqRel);
            if shard.capacity() > 4 * shard.len().max(SPARE) {
                let left = 2 * shard.len().max(SPARE);
                shard.shrink_to(left);
            }
        }
    }

    fn shard(&self, key: &K) -> Option<MutexGuard<'_, HashMap<K, V>>> {
        let hash = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or_default();
        // No operation above can leave a map half changed, so a poisoned lock is still good.
        Some(self.shards.get(hash)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::Bounded;

    #[test]
    fn a_full_map_refuses_and_forgets_nothing() {
        let map = Bounded::new(64);
        let taken: Vec<_> = (0..1000).filter(|n| map.insert(*n, ()).is_ok()).collect();
        assert_eq!((taken.len(), map.length()), (64, 64));
        assert!(taken.iter().all(|n| map.contains(n)));
        assert_eq!(map.insert(taken[0], ()), Ok(Some(())));
        assert_eq!(map.remove(&taken[0]), Some(()));
        assert_eq!(map.insert(2000, ()), Ok(None));
        assert!(map.insert(2001, ()).is_err());
        map.retain(|n, ()| *n == 2000);
        assert_eq!(map.length(), 1);
    }

    #[test]
    fn an_entry_that_is_changed_is_counted_while_it_is_there() {
        let map = Bounded::new(1);
        assert_eq!(map.update("a", |held: usize| held + 1), 1);
        assert_eq!(map.update("a", |held: usize| held + 1), 2);
        assert_eq!(map.length(), 1);
        assert_eq!(map.update("a", |_: usize| 0), 0);
        assert_eq!(map.length(), 0);
    }
}
