//! Ends the process when it does not stop in time: a computation cannot be interrupted, and the operator must not
//! have to kill the gateway.
//!
//! A separate thread waits for the stop to begin, and for its end. If the end does not come in time, the thread
//! records that, if possible, and ends the process.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::audit::Journal;
use crate::base::error_chain::ErrorChain;
use crate::base::log_queue;

/// Exit code of the process if work had to be abandoned.
pub const ABANDONED: u8 = 9;
/// Maximum time for the last records, spans and programs after the work has ended or was given up.
pub const END: Duration = Duration::from_secs(30);
/// Maximum time for the record of a forced end.
const RECORD: Duration = Duration::from_secs(2);

/// Watches the end of the process until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    begun: CancellationToken,
    _ended: DropGuard,
}

/// What starts the time limit of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopTrigger {
    /// SIGINT or SIGTERM, even if the thread that should handle it is blocked.
    WithSignal,
    /// Only a call of [`Watchdog::begin`].
    WithCall,
}

impl Watchdog {
    /// Starts the watchdog; a stop may take `within`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(journal: Arc<Journal>, begins: StopTrigger, within: Duration) -> io::Result<Self> {
        let (begun, ended) = (CancellationToken::new(), CancellationToken::new());
        let watched = (begun.clone(), ended.clone());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let (begun, ended) = watched;
            let overdue = runtime.block_on(async {
                tokio::select! {
                    () = told_to_stop(begins) => {}
                    () = begun.cancelled() => {}
                    () = ended.cancelled() => return false,
                }
                overdue(&ended, within).await
            });
            if overdue {
                end(journal);
            }
        })?;
        Ok(Self { begun, _ended: ended.drop_guard() })
    }

    /// Starts the time limit of the stop.
    pub fn begin(&self) {
        self.begun.cancel();
    }
}

/// Whether a stop that begins now does not end in time.
async fn overdue(ended: &CancellationToken, within: Duration) -> bool {
    timeout(within, ended.cancelled()).await.is_err()
}

async fn told_to_stop(begins: StopTrigger) {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
    let signals = (begins == StopTrigger::WithSignal).then(|| kinds.map(signal));
    let Some([Ok(mut interrupt), Ok(mut terminate)]) = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Ends the process. The record is written by another thread, which may be blocked like the others.
#[expect(clippy::exit, reason = "what should return from `main` is held, and nothing else ends it")]
fn end(journal: Arc<Journal>) {
    tracing::error!(
        event = "gateway.stop_timeout",
        "the gateway did not stop in time; the process exits with requests in progress"
    );
    let (done, wait) = mpsc::channel();
    let written = thread::Builder::new().name("last-record".to_owned()).spawn(move || {
        let what = "work under way did not end in time and was abandoned";
        if let Err(error) = journal.record_event("stop", what) {
            tracing::error!(
                event = "audit.write_failed", error = %ErrorChain(&error),
                "the `stop` record was not written"
            );
        }
        // The receiver waits only until the time limit.
        done.send(()).unwrap_or_default();
    });
    match written {
        Ok(_) if wait.recv_timeout(RECORD).is_ok() => {}
        Ok(_) | Err(_) => tracing::error!(
            event = "audit.write_failed",
            "the `stop` record was not written before the time limit"
        ),
    }
    log_queue::flush();
    std::process::exit(ABANDONED.into());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::overdue;

    #[tokio::test]
    async fn a_stop_is_overdue_when_its_end_does_not_come() {
        let ended = CancellationToken::new();
        assert!(overdue(&ended, Duration::from_millis(1)).await);
        ended.cancel();
        assert!(!overdue(&ended, Duration::from_secs(60)).await);
    }
}
