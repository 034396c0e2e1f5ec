//! Records that wait for somebody slow: bounded by bytes, so that what cannot be delivered is known
//! before it is lost.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

/// Which part of a spool refusals leave free for the records of calls: one of so many.
const RESERVED: usize = 4;

/// What is shared by who fills it and who empties it.
#[derive(Default)]
struct Shared {
    lines: Mutex<VecDeque<Bytes>>,
    /// Bytes that are not delivered: those that wait and those on their way.
    held: AtomicUsize,
    /// It takes nothing until what it has is delivered.
    broken: AtomicBool,
    filled: Notify,
    emptied: Notify,
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, VecDeque<Bytes>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that is filled.
#[derive(Clone)]
pub struct Spool {
    name: Arc<str>,
    limit: usize,
    shared: Arc<Shared>,
}

/// The end that is emptied.
pub struct Outlet(Arc<Shared>);

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").finish_non_exhaustive()
    }
}

impl Spool {
    /// A spool for `limit` bytes.
    #[must_use]
    pub fn new(name: &str, limit: usize) -> (Self, Outlet) {
        let shared = Arc::new(Shared::default());
        (Self { name: name.into(), limit, shared: Arc::clone(&shared) }, Outlet(shared))
    }

    /// Waits until there is room for `bytes`, or until it is empty where it is smaller.
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

    /// Whether it has room beside what is kept for the records of calls.
    #[must_use]
    pub fn has_room_beside_calls(&self) -> bool {
        self.room(self.limit / RESERVED + 1)
    }

    /// What it is called in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `bytes` more find room in it.
    #[must_use]
    pub fn room(&self, bytes: usize) -> bool {
        let held = self.shared.held.load(Ordering::Acquire);
        !self.shared.broken.load(Ordering::Acquire) && held + bytes <= self.limit
    }

    /// Puts a line behind those that wait.
    pub fn push(&self, line: &Bytes) {
        self.shared.held.fetch_add(line.len(), Ordering::AcqRel);
        self.shared.lines().push_back(line.clone());
        self.shared.filled.notify_one();
    }

    /// Bytes that are not delivered.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }
}

impl Outlet {
    /// The records that wait, up to `most` bytes but at least one, as soon as there is one.
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

    /// They are delivered.
    pub fn delivered(&self, batch: &[Bytes]) {
        self.0.broken.store(false, Ordering::Release);
        let bytes = batch.iter().map(Bytes::len).sum();
        self.0.held.fetch_sub(bytes, Ordering::AcqRel);
        self.0.emptied.notify_waiters();
    }

    /// They could not be delivered, and will be tried again: until then nothing more is taken.
    pub fn failed(&self) {
        self.0.broken.store(true, Ordering::Release);
    }
}

/// How long to wait before something is tried again that has failed `times` times.
#[must_use]
pub fn patience(times: u32) -> Duration {
    Duration::from_millis(100).saturating_mul(1 << times.min(8)).min(Duration::from_secs(15))
}

#[cfg(test)]
mod tests {
    use super::Spool;
    use crate::audit::sink::Sink as _;
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
        // One that is longer than a batch is a batch.
        assert_eq!(outlet.take(1).len(), 1);
    }
}
