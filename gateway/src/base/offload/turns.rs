//! A fair queue: holders take turns, so that the items of one holder do not delay those of others.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Queued items, by holder.
#[derive(Debug)]
pub(super) struct FairQueue<K, T> {
    most: usize,
    inner: Mutex<FairQueueState<K, T>>,
    added: Condvar,
}

#[derive(Debug)]
struct FairQueueState<K, T> {
    count: usize,
    /// The items of each holder that has any, oldest first.
    waiting: HashMap<K, VecDeque<T>>,
    /// The holders that have items, once each, in the order of their turns.
    order: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    /// Makes an empty queue with room for `most` items.
    pub(super) fn new(most: usize) -> Self {
        let inner = FairQueueState { count: 0, waiting: HashMap::new(), order: VecDeque::new() };
        Self { most, inner: Mutex::new(inner), added: Condvar::new() }
    }

    /// Appends an item to those of its holder; returns `false` if the queue is full.
    pub(super) fn push(&self, holder: K, item: T) -> bool {
        let mut inner = self.lock();
        if inner.count >= self.most {
            return false;
        }
        inner.count += 1;
        let own = inner.waiting.entry(holder.clone()).or_default();
        own.push_back(item);
        if own.len() == 1 {
            inner.order.push_back(holder);
        }
        drop(inner);
        self.added.notify_one();
        true
    }

    /// Takes the oldest item of the holder whose turn it is; blocks until there is one.
    pub(super) fn pop(&self) -> T {
        let mut inner = self.lock();
        loop {
            if let Some(item) = inner.next() {
                return item;
            }
            inner = self.added.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairQueueState<K, T>> {
        // No operation leaves the queue half changed, so a poisoned lock is usable.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash, T> FairQueueState<K, T> {
    fn next(&mut self) -> Option<T> {
        let holder = self.order.pop_front()?;
        let own = self.waiting.get_mut(&holder)?;
        let item = own.pop_front();
        if own.is_empty() {
            self.waiting.remove(&holder);
        } else {
            self.order.push_back(holder);
        }
        self.count -= usize::from(item.is_some());
        item
    }
}

#[cfg(test)]
mod tests {
    use super::FairQueue;

    #[test]
    fn one_who_puts_in_many_does_not_stand_before_others() {
        let turns = FairQueue::new(100);
        for n in 0..16 {
            assert!(turns.push("ana", n));
        }
        assert!(turns.push("bob", 100) && turns.push("eve", 200));
        let order: Vec<_> = (0..5).map(|_| turns.pop()).collect();
        assert_eq!(order, [0, 100, 200, 1, 2]);
    }

    #[test]
    fn it_refuses_over_its_room_and_takes_more_when_some_are_gone() {
        let turns = FairQueue::new(2);
        assert!(turns.push("ana", 1) && turns.push("ana", 2) && !turns.push("bob", 3));
        assert_eq!(turns.pop(), 1);
        assert!(turns.push("bob", 3));
    }
}
