//! Files that people and other programs change while the gateway runs.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Interval;

use crate::task::Tasks;

/// How often it is looked whether a file has changed.
const TURN: Duration = Duration::from_secs(1);

/// When a file is to be looked at.
#[derive(Debug)]
pub struct Watch {
    turn: Interval,
    hangup: Option<Signal>,
    tasks: Tasks,
}

/// Why a file is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It could have changed.
    Time,
    /// Somebody has sent SIGHUP: it is to be read even if it looks the same.
    Asked,
}

impl Watch {
    /// Begins to watch, on the runtime this is called on.
    #[must_use]
    pub fn new(tasks: Tasks) -> Self {
        let turn = tokio::time::interval(TURN);
        Self { turn, hangup: signal(SignalKind::hangup()).ok(), tasks }
    }

    /// Waits until the file is to be looked at; `None` when the gateway stops.
    pub async fn next(&mut self) -> Option<Turn> {
        let asked = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.turn.tick() => Some(Turn::Time),
            _ = asked => Some(Turn::Asked),
            () = self.tasks.halting() => None,
        }
    }
}

/// Writes a file so that whoever reads it sees the old one or the new one.
///
/// # Errors
/// When it cannot be written; then it is as it was.
pub fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let mut next = file.as_os_str().to_owned();
    next.push(".next");
    let mut out = fs::File::create(&next)?;
    out.write_all(text)?;
    out.sync_all()?;
    fs::rename(&next, file)
}
