//! One at a time, and one failure for all who waited.

use std::future::Future;
use std::sync::Mutex as Cell;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::UpstreamError;

/// A thing that many want done and that is done once.
#[derive(Debug, Default)]
pub(super) struct Turn {
    busy: Mutex<()>,
    /// When it last failed, and how.
    failed: Cell<Option<(Instant, &'static str)>>,
}

impl Turn {
    /// Waits for whoever is at it, at most `patience`; then looks whether it is `done`, and if not
    /// does the `work`. Who waited while it failed does not try again: a silent server would take
    /// the time of each of them in turn.
    pub(super) async fn take<T, F>(
        &self,
        patience: Duration,
        done: impl Fn() -> Option<T>,
        work: impl FnOnce() -> F,
    ) -> Result<T, UpstreamError>
    where
        F: Future<Output = Result<T, UpstreamError>>,
    {
        let came = Instant::now();
        let Ok(_busy) = timeout(patience, self.busy.lock()).await else {
            return Err(UpstreamError::Timeout(patience));
        };
        if let Some(done) = done() {
            return Ok(done);
        }
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, code)) = failed.filter(|(when, _)| *when >= came) {
            return Err(UpstreamError::Shared(code));
        }
        work().await.inspect_err(|error| {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = Some((Instant::now(), error.code()));
        })
    }
}
