//! The lock of the ledger, for which a thread that serves requests waits a bounded time: a write to a disk that does not
//! return must not hold every other thread.

use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::base::clock::Clock;

/// Number of attempts before a thread sleeps until the lock is free.
const SPINS: usize = 100;
/// Interval at which a waiting thread checks how long the lock has been held.
const POLL: Duration = Duration::from_millis(100);

/// Since when something has been going on.
#[derive(Debug)]
pub(super) struct Since {
    clock: Arc<dyn Clock>,
    begin: Instant,
    /// In milliseconds after `begin`, plus one; 0 if nothing is going on.
    millis: AtomicU64,
}

impl Since {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let begin = clock.instant();
        Self { clock, begin, millis: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        let since = self.clock.instant().saturating_duration_since(self.begin);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Notes that the step begins now.
    pub(super) fn begin(&self) {
        self.millis.store(self.now(), Ordering::Release);
    }

    /// Notes that the step has ended.
    pub(super) fn end(&self) {
        self.millis.store(0, Ordering::Release);
    }

    /// Whether it has been going on for `time`.
    pub(super) fn lasts(&self, time: Duration) -> bool {
        match self.millis.load(Ordering::Acquire) {
            0 => false,
            since => Duration::from_millis(self.now().saturating_sub(since)) >= time,
        }
    }
}

/// A lock that notes since when it is held.
#[derive(Debug)]
pub(super) struct LedgerLock<T> {
    value: Mutex<T>,
    held: Since,
    /// The time after which its holder counts as stalled.
    limit: Duration,
    sleepers: Sleepers,
}

/// The locked value. Its fields are dropped in this order: the lock is free before others are told.
#[derive(Debug)]
pub(super) struct LedgerGuard<'a, T> {
    _held: HeldMark<'a>,
    value: MutexGuard<'a, T>,
    _wake: WakeMark<'a>,
}

/// Ends the time for which the lock is held.
#[derive(Debug)]
struct HeldMark<'a>(&'a Since);

impl Drop for HeldMark<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The threads that sleep until the lock is free.
#[derive(Debug, Default)]
struct Sleepers {
    count: AtomicUsize,
    gate: Mutex<()>,
    freed: Condvar,
}

/// Wakes one of the sleepers.
#[derive(Debug)]
struct WakeMark<'a>(&'a Sleepers);

impl Drop for WakeMark<'_> {
    fn drop(&mut self) {
        if self.0.count.load(Ordering::SeqCst) > 0 {
            // A thread that was about to sleep does so now, and is woken.
            drop(self.0.gate.lock().unwrap_or_else(PoisonError::into_inner));
            self.0.freed.notify_one();
        }
    }
}

impl<T> LedgerLock<T> {
    /// A lock whose holder counts as stalled after `limit`.
    pub(super) fn new(value: T, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self {
            value: Mutex::new(value),
            held: Since::new(clock),
            limit,
            sleepers: Sleepers::default(),
        }
    }

    /// Whether its holder has stalled.
    pub(super) fn is_stalled(&self) -> bool {
        self.held.lasts(self.limit)
    }

    /// Waits for the lock for as long as it takes.
    pub(super) fn lock(&self) -> LedgerGuard<'_, T> {
        self.guard(self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the lock; `None` if its holder has stalled.
    pub(super) fn lock_in_time(&self) -> Option<LedgerGuard<'_, T>> {
        for _ in 0..SPINS {
            if let Some(value) = self.free() {
                return Some(self.guard(value));
            }
            spin_loop();
        }
        self.sleepers.count.fetch_add(1, Ordering::SeqCst);
        let value = self.freed();
        self.sleepers.count.fetch_sub(1, Ordering::SeqCst);
        value.map(|value| self.guard(value))
    }

    fn freed(&self) -> Option<MutexGuard<'_, T>> {
        let mut gate = self.sleepers.gate.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(value) = self.free() {
                return Some(value);
            }
            if self.is_stalled() {
                return None;
            }
            let woken = self.sleepers.freed.wait_timeout(gate, POLL);
            gate = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn free(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn guard<'a>(&'a self, value: MutexGuard<'a, T>) -> LedgerGuard<'a, T> {
        self.held.begin();
        LedgerGuard { _held: HeldMark(&self.held), value, _wake: WakeMark(&self.sleepers) }
    }
}

impl<T> Deref for LedgerGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for LedgerGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::LedgerLock;
    use crate::base::clock::HandClock;

    const LIMIT: Duration = Duration::from_secs(5);

    #[test]
    fn who_waits_for_a_holder_that_has_stalled_gives_up_and_gets_the_lock_later() {
        let clock = HandClock::new();
        let lock = LedgerLock::new(0, Arc::<HandClock>::clone(&clock), LIMIT);
        let mut held = lock.lock_in_time().unwrap();
        *held += 1;
        clock.forward(LIMIT.checked_sub(Duration::from_millis(1)).unwrap());
        assert!(!lock.is_stalled());
        thread::scope(|scope| {
            let waits = scope.spawn(|| lock.lock_in_time().is_some());
            clock.forward(Duration::from_millis(1));
            assert!(lock.is_stalled());
            assert!(!waits.join().unwrap(), "it gives up");
        });
        assert!(lock.lock_in_time().is_none(), "at once");
        drop(held);
        assert!(!lock.is_stalled());
        assert_eq!(*lock.lock_in_time().unwrap(), 1);
    }

    #[test]
    fn threads_take_turns() {
        let lock = LedgerLock::new(0_u64, HandClock::new(), LIMIT);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *lock.lock_in_time().unwrap() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }
}
