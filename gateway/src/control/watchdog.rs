//! The end of the process when what is under way does not end: a computation cannot be interrupted, and whoever
//! has asked the gateway to stop must not have to kill it.
//!
//! A thread of its own waits for the stop to begin, and for its end. When that does not come in time it
//! records what has happened, as far as that is possible, and ends the process.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::audit::Journal;
use crate::base::error_chain::Chain;

/// What the process ends with when work had to be abandoned.
pub const ABANDONED: u8 = 9;
/// How long the last records, spans and programs may take after the work has ended or its time has.
pub const END: Duration = Duration::from_secs(30);
/// How long the record of a forced end may take.
const RECORD: Duration = Duration::from_secs(2);

/// Watches over the end of the process for as long as it is kept.
#[derive(Debug)]
pub struct Watchdog {
    begun: CancellationToken,
    _ended: DropGuard,
}

/// What the stop begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// SIGINT or SIGTERM, also where the thread that should act on it is held.
    WithSignal,
    /// A call of [`Watchdog::begin`] alone.
    WithCall,
}

impl Watchdog {
    /// Begins to watch. A stop may take as long as `within`.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(journal: Arc<Journal>, begins: Begins, within: Duration) -> io::Result<Self> {
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

    /// The stop has begun.
    pub fn begin(&self) {
        self.begun.cancel();
    }
}

/// Whether a stop that begins now does not come to its end in time.
async fn overdue(ended: &CancellationToken, within: Duration) -> bool {
    timeout(within, ended.cancelled()).await.is_err()
}

async fn told_to_stop(begins: Begins) {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
    let signals = (begins == Begins::WithSignal).then(|| kinds.map(signal));
    let Some([Ok(mut interrupt), Ok(mut terminate)]) = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Ends the process. The record is written on a thread of its own: what holds the others may hold it as well.
#[expect(clippy::exit, reason = "what should return from `main` is held, and nothing else ends it")]
fn end(journal: Arc<Journal>) {
    tracing::error!("the gateway did not stop in time; the process ends with work under way");
    let (done, wait) = mpsc::channel();
    let written = thread::Builder::new().name("last-record".to_owned()).spawn(move || {
        let what = "work under way did not end in time and was abandoned";
        if let Err(error) = journal.noted("stop", what) {
            tracing::error!(error = %Chain(&error), "the last record was not taken");
        }
        // Nobody waits for longer than the bound.
        done.send(()).unwrap_or_default();
    });
    match written {
        Ok(_) if wait.recv_timeout(RECORD).is_ok() => {}
        Ok(_) | Err(_) => tracing::error!("the last record was not written"),
    }
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
