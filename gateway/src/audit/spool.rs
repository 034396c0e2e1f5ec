//! A byte-bounded queue of records for a slow receiver, so that lack of room is known before records are lost.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

/// Fraction of a spool that is reserved for records of calls: one in this number.
const RESERVED: usize = 4;

/// The state shared by the two ends.
#[derive(Default)]
struct SpoolState {
    lines: Mutex<VecDeque<Bytes>>,
    /// Bytes that are not delivered, both queued and in flight.
    held: AtomicUsize,
    /// Delivery fails: nothing is accepted until it succeeds.
    broken: AtomicBool,
    filled: Notify,
    emptied: Notify,
}

impl SpoolState {
    fn lines(&self) -> MutexGuard<'_, VecDeque<Bytes>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The producer end of the queue.
#[derive(Clone)]
pub struct Spool {
    name: Arc<str>,
    limit: usize,
    shared: Arc<SpoolState>,
}

/// The consumer end of the queue.
pub struct SpoolReceiver(Arc<SpoolState>);

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for SpoolReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").finish_non_exhaustive()
    }
}

impl Spool {
    /// Makes a spool with room for `limit` bytes.
    #[must_use]
    pub fn new(name: &str, limit: usize) -> (Self, SpoolReceiver) {
        let shared = Arc::new(SpoolState::default());
        (Self { name: name.into(), limit, shared: Arc::clone(&shared) }, SpoolReceiver(shared))
    }

    /// Waits until there is room for `bytes`, or until the spool is empty if its limit is smaller.
    pub async fn vacant(&self, bytes: usize) {
        let bytes = bytes.min(self.limit);
        loop {
            let emptied = self.shared.emptied.notified();
            if self.room(bytes) {
                return;
            }
            emptied.await;
        }
    }

    /// Waits until everything is delivered.
    pub async fn drained(&self) {
        loop {
            let emptied = self.shared.emptied.notified();
            if self.shared.held.load(Ordering::Acquire) == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Whether it has room beside what is reserved for the records of calls.
    #[must_use]
    pub fn has_room_beside_calls(&self) -> bool {
        self.room(self.limit / RESERVED + 1)
    }

    /// The name of the sink in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `bytes` more bytes have room.
    #[must_use]
    pub fn room(&self, bytes: usize) -> bool {
        let held = self.shared.held.load(Ordering::Acquire);
        !self.shared.broken.load(Ordering::Acquire) && held + bytes <= self.limit
    }

    /// Appends a line, without checking for room.
    pub fn push(&self, line: &Bytes) {
        self.shared.held.fetch_add(line.len(), Ordering::AcqRel);
        self.shared.lines().push_back(line.clone());
        self.shared.filled.notify_one();
    }

    /// Number of bytes that are not delivered.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }
}

impl SpoolReceiver {
    /// Waits for queued records and takes up to `most` bytes of them, but at least one record.
    pub async fn next(&self, most: usize) -> Vec<Bytes> {
        loop {
            let filled = self.0.filled.notified();
            let batch = self.take(most);
            if !batch.is_empty() {
                return batch;
            }
            filled.await;
        }
    }

    fn take(&self, most: usize) -> Vec<Bytes> {
        let mut lines = self.0.lines();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(line) = lines.front() {
            bytes += line.len();
            if bytes > most && !batch.is_empty() {
                break;
            }
            batch.extend(lines.pop_front());
        }
        batch
    }

    /// Marks a batch as delivered and frees its room.
    pub fn delivered(&self, batch: &[Bytes]) {
        self.0.broken.store(false, Ordering::Release);
        let bytes = batch.iter().map(Bytes::len).sum();
        self.0.held.fetch_sub(bytes, Ordering::AcqRel);
        self.0.emptied.notify_waiters();
    }

    /// Marks delivery as failing: nothing more is accepted until a batch is delivered.
    pub fn failed(&self) {
        self.0.broken.store(true, Ordering::Release);
    }
}

/// The delay before the next attempt after `times` failures: exponential, from 100 ms to 15 s.
#[must_use]
pub fn patience(times: u32) -> Duration {
    Duration::from_millis(100).saturating_mul(1 << times.min(8)).min(Duration::from_secs(15))
}

#[cfg(test)]
mod tests {
    use super::Spool;
    use crate::audit::sink::AuditSink as _;
    use bytes::Bytes;

    #[test]
    fn a_spool_holds_what_it_promises_and_no_more() {
        let (mut spool, outlet) = Spool::new("a", 10);
        let line = Bytes::from_static(b"1234");
        for _ in 0..2 {
            assert!(spool.room(4));
            spool.append(&line).unwrap();
        }
        assert!(!spool.has_room_beside_calls(), "two bytes are left, and as many are kept");
        assert!(!spool.room(4), "what is on its way counts until it is delivered");
        let batch = outlet.take(4);
        assert_eq!(batch.len(), 1);
        assert!(!spool.room(4));
        outlet.delivered(&batch);
        assert!(spool.room(4));
        // A line that is longer than a batch is a batch of its own.
        assert_eq!(outlet.take(1).len(), 1);
    }
}
