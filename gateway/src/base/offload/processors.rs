//! Lets a few of many threads compute at a time, in turns.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The processors that the threads of a pool may use at a time.
#[derive(Debug)]
pub(super) struct Processors {
    turns: Mutex<ProcessorTurns>,
    freed: Condvar,
    /// Threads that wait. It may lag behind `turns`, and saves those who compute from locking these.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct ProcessorTurns {
    free: usize,
    /// The tickets of the threads that wait, the next one first.
    order: VecDeque<u64>,
    next_ticket: u64,
}

thread_local! {
    /// The processors of which this thread holds one.
    static HELD: RefCell<Option<Arc<Processors>>> = const { RefCell::new(None) };
}

/// A processor that the current thread holds, until it is dropped.
#[derive(Debug)]
pub(super) struct HeldProcessor(Arc<Processors>);

impl Drop for HeldProcessor {
    fn drop(&mut self) {
        HELD.set(None);
        self.0.free();
    }
}

/// Lets the next thread that waits for the processor of this one compute first. A thread that holds none, or for whose
/// processor nobody waits, yields to the threads of other pools.
pub(super) fn pass_on() {
    let held = HELD.with_borrow(Clone::clone);
    match held.filter(|held| held.waiting.load(Ordering::Relaxed) > 0) {
        Some(held) => {
            let mut turns = held.turns();
            turns.free += 1;
            held.wait(turns);
        }
        None => thread::yield_now(),
    }
}

impl Processors {
    /// `count` processors, all of them free.
    pub(super) const fn new(count: usize) -> Self {
        let turns = ProcessorTurns { free: count, order: VecDeque::new(), next_ticket: 0 };
        Self { turns: Mutex::new(turns), freed: Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    /// Takes a processor for the current thread, behind those who wait already.
    pub(super) fn take(self: &Arc<Self>) -> HeldProcessor {
        self.wait(self.turns());
        HELD.set(Some(Arc::clone(self)));
        HeldProcessor(Arc::clone(self))
    }

    /// Waits for a processor, behind those who wait already.
    fn wait(&self, mut turns: MutexGuard<'_, ProcessorTurns>) {
        let ticket = turns.next_ticket;
        turns.next_ticket += 1;
        turns.order.push_back(ticket);
        self.waiting.store(turns.order.len(), Ordering::Relaxed);
        // All of them, here and below, because only the one whose turn it is goes on; there are few.
        self.freed.notify_all();
        while turns.free == 0 || turns.order.front() != Some(&ticket) {
            turns = self.freed.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        turns.free -= 1;
        turns.order.pop_front();
        self.waiting.store(turns.order.len(), Ordering::Relaxed);
        let is_next_free = turns.free > 0 && !turns.order.is_empty();
        drop(turns);
        if is_next_free {
            self.freed.notify_all();
        }
    }

    fn free(&self) {
        self.turns().free += 1;
        self.freed.notify_all();
    }

    fn turns(&self) -> MutexGuard<'_, ProcessorTurns> {
        // No operation leaves the turns half changed, so a poisoned lock is usable.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::{Processors, pass_on};

    #[test]
    fn threads_compute_in_turns() {
        let processors = Arc::new(Processors::new(1));
        let seen = Mutex::new(Vec::new());
        let first = processors.take();
        thread::scope(|scope| {
            for name in ["a", "b"] {
                let begun = processors.turns().order.len();
                let (processors, seen) = (Arc::clone(&processors), &seen);
                let waiting = Arc::clone(&processors);
                scope.spawn(move || {
                    let _held = processors.take();
                    for _ in 0..3 {
                        seen.lock().unwrap().push(name);
                        pass_on();
                    }
                });
                while waiting.turns().order.len() == begun {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(seen.into_inner().unwrap(), ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(processors.turns().free, 1);
        // Without a processor nobody waits.
        pass_on();
    }
}
