//! Single-flight: concurrent callers share one attempt and its error.

use std::future::Future;
use std::sync::Mutex as Cell;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::UpstreamError;

/// Work that many callers may need at the same time and that only one of them does.
#[derive(Debug, Default)]
pub(super) struct SingleFlight {
    busy: Mutex<()>,
    /// The failure of the last attempt.
    failed: Cell<Option<SharedFailure>>,
}

/// A failure that all waiting callers get.
#[derive(Clone, Copy, Debug)]
struct SharedFailure {
    when: Instant,
    code: &'static str,
    /// When the pause of the circuit breaker ends, if it was open.
    open_until: Option<Instant>,
}

impl SharedFailure {
    fn new(error: &UpstreamError) -> Self {
        let when = Instant::now();
        let open_until = match error {
            UpstreamError::CircuitOpen(wait) => Some(when + *wait),
            _ => None,
        };
        Self { when, code: error.code(), open_until }
    }

    /// The error for another caller.
    fn again(self) -> UpstreamError {
        match self.open_until {
            Some(until) => {
                UpstreamError::CircuitOpen(until.saturating_duration_since(Instant::now()))
            }
            None => UpstreamError::SharedFailure(self.code),
        }
    }
}

impl SingleFlight {
    /// Waits at most `patience` for a running attempt. Then returns the result of `done` if there is one, and
    /// otherwise does the `work`. A caller that waited while an attempt failed gets its error and does not try again,
    /// because callers would otherwise wait for a silent server one after the other.
    ///
    /// # Errors
    /// That of the attempt; [`UpstreamError::Timeout`] after `patience`.
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
            // This caller's share of memory is exhausted; another caller has a share of its own.
            if let UpstreamError::Memory(_) | UpstreamError::SendQueueFull(_) = error {
                return;
            }
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = Some(SharedFailure::new(error));
        })
    }
}
