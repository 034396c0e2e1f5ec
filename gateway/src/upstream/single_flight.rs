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
    /// How it last failed.
    failed: Cell<Option<Failed>>,
}

/// A failure that is told to all who waited.
#[derive(Clone, Copy, Debug)]
struct Failed {
    when: Instant,
    code: &'static str,
    /// Until when the server is left alone, if it is.
    alone: Option<Instant>,
}

impl Failed {
    fn new(error: &UpstreamError) -> Self {
        let when = Instant::now();
        let alone = match error {
            UpstreamError::Open(wait) => Some(when + *wait),
            _ => None,
        };
        Self { when, code: error.code(), alone }
    }

    /// The same for another.
    fn again(self) -> UpstreamError {
        match self.alone {
            Some(until) => UpstreamError::Open(until.saturating_duration_since(Instant::now())),
            None => UpstreamError::Shared(self.code),
        }
    }
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
        if let Some(failed) = failed.filter(|failed| failed.when >= came) {
            return Err(failed.again());
        }
        work().await.inspect_err(|error| {
            // There was no room for one of them; another has a share of its own.
            if let UpstreamError::Memory(_) | UpstreamError::Full(_) = error {
                return;
            }
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = Some(Failed::new(error));
        })
    }
}
