//! A byte-bounded queue of records for a slow receiver, so that lack of room is known before records are lost.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::base::caller_counters::{CallerCounters, CallerKey};

/// Fraction of a spool that is reserved for records of calls: one in this number.
const RESERVED: usize = 4;
/// The part of a spool that the records of one caller may take: one in this number.
const CALLER_SHARE: usize = 2;
/// Number of counters of what callers have in a spool.
const COUNTERS: usize = 1024;

/// A line in a spool, and the caller whose share it takes.
struct SpooledLine {
    bytes: Bytes,
    caller: Option<CallerKey>,
}

/// Lines that were taken from a spool to be delivered.
#[derive(Debug, Default)]
pub struct SpoolBatch {
    /// The lines, in order.
    pub lines: Vec<Bytes>,
    /// What each caller gets back when they are delivered.
    shares: Vec<(CallerKey, usize)>,
}

/// The state shared by the two ends.
struct SpoolState {
    lines: Mutex<VecDeque<SpooledLine>>,
    /// Bytes that are not delivered, both queued and in flight.
    held: AtomicUsize,
    /// Those of them that callers have caused.
    callers: CallerCounters,
    /// Delivery fails: nothing is accepted until it succeeds.
    broken: AtomicBool,
    filled: Notify,
    emptied: Notify,
}

impl SpoolState {
    fn lines(&self) -> MutexGuard<'_, VecDeque<SpooledLine>> {
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
        let shared = Arc::new(SpoolState {
            lines: Mutex::default(),
            held: AtomicUsize::new(0),
            callers: CallerCounters::new(COUNTERS),
            broken: AtomicBool::new(false),
            filled: Notify::new(),
            emptied: Notify::new(),
        });
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

    /// Waits until the caller has room for `bytes` in its share, or has no record in the spool.
    pub async fn vacant_for(&self, caller: CallerKey, bytes: usize) {
        loop {
            let emptied = self.shared.emptied.notified();
            if self.has_share(caller, bytes) {
                return;
            }
            emptied.await;
        }
    }

    /// Whether `bytes` more bytes fit into the caller's share. What is longer than the share fits if the caller has
    /// no record in the spool.
    #[must_use]
    pub fn has_share(&self, caller: CallerKey, bytes: usize) -> bool {
        let held = usize::try_from(self.shared.callers.get(caller)).unwrap_or(usize::MAX);
        held == 0 || held.saturating_add(bytes) <= self.limit / CALLER_SHARE
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

    /// The same where each request waits for room for `bytes`, which has to be left as well: in at most half of the spool.
    #[must_use]
    pub fn has_room_beside_waiting_calls(&self, bytes: usize) -> bool {
        self.room((self.limit / RESERVED + 1 + bytes).min(self.limit / 2))
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

    /// Appends a line, without checking for room. It takes of the share of `caller`, if one has caused it.
    pub fn push(&self, line: &Bytes, caller: Option<CallerKey>) {
        self.shared.held.fetch_add(line.len(), Ordering::AcqRel);
        if let Some(caller) = caller {
            self.shared.callers.add(caller, line.len() as u64);
        }
        self.shared.lines().push_back(SpooledLine { bytes: line.clone(), caller });
        self.shared.filled.notify_one();
    }

    /// Whether the consumer has taken all lines, delivered or not.
    #[cfg(test)]
    pub(super) fn is_taken(&self) -> bool {
        self.shared.lines().is_empty()
    }

    /// Number of bytes that are not delivered.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }
}

impl SpoolReceiver {
    /// Waits for queued records and takes up to `most` bytes of them, but at least one record.
    pub async fn next(&self, most: usize) -> SpoolBatch {
        loop {
            let filled = self.0.filled.notified();
            let batch = self.take(most);
            if !batch.lines.is_empty() {
                return batch;
            }
            filled.await;
        }
    }

    fn take(&self, most: usize) -> SpoolBatch {
        let mut lines = self.0.lines();
        let (mut batch, mut bytes) = (SpoolBatch::default(), 0);
        while let Some(line) = lines.front() {
            bytes += line.bytes.len();
            if bytes > most && !batch.lines.is_empty() {
                break;
            }
            let Some(SpooledLine { bytes: line, caller }) = lines.pop_front() else { break };
            batch.shares.extend(caller.map(|caller| (caller, line.len())));
            batch.lines.push(line);
        }
        batch
    }

    /// Marks a batch as delivered and frees its room.
    pub fn delivered(&self, batch: &SpoolBatch) {
        self.0.broken.store(false, Ordering::Release);
        for (caller, bytes) in &batch.shares {
            self.0.callers.subtract(*caller, *bytes as u64);
        }
        let bytes = batch.lines.iter().map(Bytes::len).sum();
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
    use crate::base::caller_counters::CallerRates;
    use crate::base::gcra::EventRate;
    use crate::base::share::Holder;
    use bytes::Bytes;
    use std::time::Duration;

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
        assert_eq!(batch.lines.len(), 1);
        assert!(!spool.room(4));
        outlet.delivered(&batch);
        assert!(spool.room(4));
        // A line that is longer than a batch is a batch of its own.
        assert_eq!(outlet.take(1).lines.len(), 1);
    }

    #[test]
    fn one_caller_has_half_of_a_spool() {
        let rates = CallerRates::new(EventRate::new(1, Duration::from_secs(1), 1), [].into());
        let [ana, bob] =
            [1, 2].map(|n| rates.caller(&Holder::network([192, 0, 2, n].into())).key());
        let (spool, outlet) = Spool::new("a", 20);
        let line = Bytes::from_static(b"12345678");
        assert!(spool.has_share(ana, 40), "what is longer than a share passes alone");
        spool.push(&line, Some(ana));
        assert!(spool.has_share(ana, 2) && !spool.has_share(ana, 3));
        assert!(spool.has_share(bob, 10));
        // What belongs to nobody takes of no share.
        spool.push(&line, None);
        assert!(spool.has_share(ana, 2));
        let batch = outlet.take(8);
        assert!(!spool.has_share(ana, 3), "it counts until it is delivered");
        outlet.delivered(&batch);
        assert!(spool.has_share(ana, 10));
        outlet.delivered(&outlet.take(8));
        assert_eq!(spool.held(), 0);
    }
}
