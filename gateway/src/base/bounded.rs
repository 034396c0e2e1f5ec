//! A concurrent map with a hard limit on its number of entries.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of parts, each with a lock of its own.
const SHARDS: usize = 32;
/// Number of entries for which an empty part keeps its memory.
const SPARE: usize = 16;

/// The map is full, so an entry was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds {limit} entries already")]
pub struct MapFull {
    limit: usize,
}

/// A map of at most `limit` entries that many tasks use at once. A full map refuses an entry; it never evicts one
/// that a caller relies on.
///
/// The map is split by a keyed hash into parts with a lock each, held for one operation, so two tasks contend only
/// when they use the same part at the same instant. The limit is that of the whole map: an entry is never refused
/// because its part happens to be full.
pub struct BoundedMap<K, V> {
    shards: Vec<Mutex<HashMap<K, V>>>,
    hasher: RandomState,
    limit: usize,
    length: AtomicUsize,
}

impl<K, V> fmt::Debug for BoundedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<K: Eq + Hash, V> BoundedMap<K, V> {
    /// Makes an empty map with room for `limit` entries.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect();
        Self { shards, hasher: RandomState::new(), limit, length: AtomicUsize::new(0) }
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Inserts an entry. If the key is taken, the map is unchanged and the value is returned.
    ///
    /// # Errors
    /// [`MapFull`] if there is no room.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, MapFull> {
        let Some(mut shard) = self.shard(&key) else { return Err(MapFull { limit: self.limit }) };
        if shard.contains_key(&key) {
            return Ok(Some(value));
        }
        let another = |length: usize| Some(length + 1).filter(|length| *length <= self.limit);
        if self.length.fetch_update(Ordering::AcqRel, Ordering::Acquire, another).is_err() {
            return Err(MapFull { limit: self.limit });
        }
        shard.insert(key, value);
        Ok(None)
    }

    /// Sets an entry to what `next` makes of its value, which is `None` for a new one. Nobody sees the map in between.
    ///
    /// # Errors
    /// [`MapFull`] if the entry is new and there is no room.
    pub fn set(&self, key: K, next: impl FnOnce(Option<&V>) -> V) -> Result<(), MapFull> {
        let full = MapFull { limit: self.limit };
        let Some(mut shard) = self.shard(&key) else { return Err(full) };
        if let Some(known) = shard.get_mut(&key) {
            *known = next(Some(known));
            return Ok(());
        }
        let another = |length: usize| Some(length + 1).filter(|length| *length <= self.limit);
        if self.length.fetch_update(Ordering::AcqRel, Ordering::Acquire, another).is_err() {
            return Err(full);
        }
        shard.insert(key, next(None));
        Ok(())
    }

    /// Removes an entry and returns its value.
    pub fn remove(&self, key: &K) -> Option<V> {
        let removed = self.shard(key)?.remove(key);
        self.length.fetch_sub(usize::from(removed.is_some()), Ordering::AcqRel);
        removed
    }

    /// Returns a copy of the value of `key`.
    pub fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.shard(key)?.get(key).cloned()
    }

    /// Replaces the value of `key` by `change` of it, and returns the new value. A missing entry counts as the
    /// default value, and an entry that has become the default is removed. The limit does not apply here: callers
    /// bound what they count.
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

    /// What `read` makes of the value of `key`. The part of the map that has it is locked meanwhile.
    pub fn read<T>(&self, key: &K, read: impl FnOnce(&V) -> T) -> Option<T> {
        self.shard(key)?.get(key).map(read)
    }

    /// Whether there is an entry for `key`.
    pub fn contains(&self, key: &K) -> bool {
        self.shard(key).is_some_and(|shard| shard.contains_key(key))
    }

    /// Keeps only the entries for which `keep` returns true, and frees memory that a burst of entries has left
    /// behind.
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
        // No operation above can leave a map half changed, so a poisoned lock is usable.
        Some(self.shards.get(hash)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedMap;

    #[test]
    fn a_full_map_refuses_and_forgets_nothing() {
        let map = BoundedMap::new(64);
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
        let map = BoundedMap::new(1);
        assert_eq!(map.update("a", |held: usize| held + 1), 1);
        assert_eq!(map.update("a", |held: usize| held + 1), 2);
        assert_eq!(map.length(), 1);
        assert_eq!(map.update("a", |_: usize| 0), 0);
        assert_eq!(map.length(), 0);
    }
}
