//! Tasks that somebody waits for.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Every task of the gateway: none outlives it, and a stop is heard by all.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("running", &self.tracker.len()).finish_non_exhaustive()
    }
}

impl Tasks {
    /// Runs `task` beside everything else.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Resolves when the gateway is asked to stop.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Whether the gateway was asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Asks every task to stop and waits for them, at most this long. Says whether all ended.
    pub async fn stop(&self, at_most: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(at_most, self.tracker.wait()).await.is_ok()
    }
}
