//! The pace at which a connection is read whose server tells all who listen of something.
//!
//! A line of a program is a hundred bytes, and each of hundreds of clients may listen: what the program says in a moment
//! would keep the threads that serve callers busy for a long time. So the connection is not read on until the deliveries
//! of what was read before are worth it; other callers are served meanwhile, and the server waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The time that one delivery to one listener is worth, in microseconds: 20,000 a second.
const EACH: u64 = 50;
/// How far ahead deliveries may be, in microseconds: 1,000 of them at once.
const AHEAD: u64 = 50_000;

/// What one connection was read for all its listeners.
#[derive(Debug)]
pub(super) struct FanOutPace {
    begun: Instant,
    /// When the deliveries so far are worth their time, in microseconds from `begun` on. One task reads a connection.
    due: AtomicU64,
}

impl FanOutPace {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), due: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes that a message was sent to so many listeners.
    pub(super) fn sent(&self, listeners: usize) {
        self.add(listeners, self.now());
    }

    fn add(&self, listeners: usize, now: u64) {
        let worth = (listeners as u64).saturating_mul(EACH);
        let due = self.due.load(Ordering::Relaxed).max(now).saturating_add(worth);
        self.due.store(due, Ordering::Relaxed);
    }

    /// When the connection may be read on.
    fn from(&self) -> u64 {
        self.due.load(Ordering::Relaxed).saturating_sub(AHEAD)
    }

    /// Waits until the connection may be read on.
    pub(super) async fn ready(&self) {
        let from = self.from();
        if from > 0 && from > self.now() {
            sleep_until(self.begun + Duration::from_micros(from)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FanOutPace;

    #[test]
    fn many_deliveries_take_their_time_and_few_take_none() {
        let pace = FanOutPace::new();
        let mut now = 0;
        for _ in 0..10 {
            pace.add(100, now);
            assert!(pace.from() <= now);
        }
        for _ in 0..100 {
            pace.add(200, now);
            now = now.max(pace.from());
        }
        assert_eq!(now, 1_000_000);
        // After a pause many are sent at once again.
        now += 1_000_000;
        pace.add(1000, now);
        assert!(pace.from() <= now);
    }
}
