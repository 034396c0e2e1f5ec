//! Runs changes of a store that waits for a disk beside the threads that serve requests, so that a disk that is slow or
//! does not answer delays those alone who need an approval.
//!
//! One change runs at a time, and each caller has one in the queue: however many approvals a caller needs at once, it is
//! in front of others by one change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::base::file::{FileTaskError, FileTasks};
use crate::base::turns::Turns;

/// Longest wait for a change, with that for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// The changes of one store.
#[derive(Debug)]
pub(super) struct StoreChanges {
    files: FileTasks,
    callers: Turns,
    patience: Duration,
}

impl Default for StoreChanges {
    fn default() -> Self {
        Self::within(PATIENCE)
    }
}

impl StoreChanges {
    /// Changes that are waited for so long.
    pub(super) fn within(patience: Duration) -> Self {
        let callers = Turns::new(Semaphore::MAX_PERMITS, 1);
        Self { files: FileTasks::default(), callers, patience }
    }

    /// Runs a change that `caller` needs, and waits for it. A change that is given up while it runs continues.
    ///
    /// # Errors
    /// If it has no result in time. After [`FileTaskError::Busy`] it was not begun.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        caller: &str,
        change: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FileTaskError> {
        let end = Instant::now() + self.patience;
        let own = timeout_at(end, self.callers.take(caller)).await;
        let _own = own.map_err(|_late| FileTaskError::Busy)?;
        self.files.in_turn(end.saturating_duration_since(Instant::now()), change).await
    }

    /// Runs a change that is repeated later, unless another one is under way.
    pub(super) async fn run_if_idle(&self, change: impl FnOnce() + Send + 'static) {
        self.files.run(self.patience, change).await.unwrap_or_default();
    }
}

/// Whether an answer takes effect or is given up: what is said first is true.
#[derive(Debug, Default)]
pub(super) struct AnswerFate(AtomicBool);

impl AnswerFate {
    /// Decides it, unless it was decided before. Returns whether it was not.
    pub(super) fn decide(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Sender};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::{AnswerFate, StoreChanges};
    use crate::base::file::FileTaskError;

    /// A change that ends when it is told to, and what tells it.
    fn held() -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (ends, told) = mpsc::channel();
        (ends, move || told.recv().unwrap_or_default())
    }

    #[tokio::test]
    async fn a_disk_that_does_not_answer_delays_those_alone_who_need_it() {
        let changes = StoreChanges::within(Duration::from_millis(50));
        let (ends, hangs) = held();
        // The runtime has one thread, and goes on.
        let (late, served) = tokio::join!(changes.run("ana", hangs), async { 7 });
        assert_eq!((late, served), (Err(FileTaskError::Late), 7));
        assert_eq!(changes.run("bob", || 1).await, Err(FileTaskError::Busy));
        let (tell, told) = mpsc::channel();
        changes.run_if_idle(move || tell.send(()).unwrap()).await;
        assert!(told.recv().is_err(), "one is under way");
        ends.send(()).unwrap();
        let mut again = changes.run("bob", || 2).await;
        while again == Err(FileTaskError::Busy) {
            again = changes.run("bob", || 2).await;
        }
        assert_eq!(again, Ok(2));
    }

    #[tokio::test]
    async fn a_caller_with_many_changes_is_in_front_of_others_by_one() {
        let changes = StoreChanges::within(Duration::from_secs(60));
        let order = Arc::new(Mutex::new(Vec::new()));
        let (ends, hangs) = held();
        let mut first = Box::pin(changes.run("ana", hangs));
        assert!(first.as_mut().now_or_never().is_none());
        let mut all = Vec::new();
        for who in ["ana", "ana", "ana", "bob"] {
            let order = Arc::clone(&order);
            let mut one = Box::pin(changes.run(who, move || order.lock().unwrap().push(who)));
            assert!(one.as_mut().now_or_never().is_none());
            all.push(one);
        }
        ends.send(()).unwrap();
        first.await.unwrap();
        for done in futures_util::future::join_all(all).await {
            done.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["bob", "ana", "ana", "ana"]);
    }

    #[test]
    fn an_answer_has_one_fate() {
        let fate = AnswerFate::default();
        assert!(fate.decide());
        assert!(!fate.decide());
    }
}
