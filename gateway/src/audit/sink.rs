//! Places that lines are written to.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::runtime::Builder;

use super::spool::{Outlet, Spool, patience};
use crate::settings::Rotation;

/// Most bytes that are written at once.
const BATCH: usize = 256 * 1024;

/// A place for lines. One thread at a time writes to it, in the order of the chain.
pub trait Sink: fmt::Debug + Send {
    /// Its name, as configured.
    fn name(&self) -> &str;

    /// Whether it can take so many bytes more.
    fn room(&self, _bytes: usize) -> bool {
        true
    }

    /// Takes one line, its line end included, whole or not at all.
    ///
    /// # Errors
    /// When the line is not taken.
    fn append(&mut self, line: &Bytes) -> io::Result<()>;

    /// Begins anew, where it is time to: what comes next is the record with number `seq`.
    ///
    /// # Errors
    /// When it cannot; then it goes on as before.
    fn turn(&mut self, _seq: u64, _now: &dyn Fn() -> SystemTime) -> io::Result<bool> {
        Ok(false)
    }

    /// What is to be flushed to the disk, if anything is.
    fn unsynced(&mut self) -> Option<Arc<File>> {
        None
    }

    /// Where its full files are, and how long they are kept.
    fn kept(&self) -> Option<(PathBuf, Rotation)> {
        None
    }

    /// What it holds back, where it does.
    fn spool(&self) -> Option<&Spool> {
        None
    }
}

/// Writes what comes out of `outlet` to standard output.
///
/// # Errors
/// When there can be no more threads.
pub fn write_to_stdout(outlet: Outlet) -> io::Result<()> {
    // Without the buffer of the library: what was taken is known to the byte.
    write_apart("audit-stdout", File::from(io::stdout().as_fd().try_clone_to_owned()?), outlet)
}

/// Writes what comes out of `outlet` to `out`, on a thread of its own: a reader that stalls must stall
/// calls by refusing them, not by holding the threads that serve everybody.
///
/// # Errors
/// When there can be no more threads.
pub(super) fn write_apart(name: &'static str, mut out: File, outlet: Outlet) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let regular = out.metadata()?.is_file();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                let batch = outlet.next(BATCH).await;
                for line in &batch {
                    let (mut rest, mut failures) = (&**line, 0);
                    while !rest.is_empty() {
                        match out.write(rest) {
                            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                            Err(error) => {
                                if failures == 0 {
                                    tracing::warn!(%error, "{name}: not written, tried again");
                                }
                                outlet.failed();
                                tokio::time::sleep(patience(failures)).await;
                                failures += 1;
                            }
                        }
                    }
                }
                if let Err(error) = if regular { out.sync_data() } else { Ok(()) } {
                    tracing::warn!(%error, "{name}: written, and not on the disk yet");
                }
                outlet.delivered(&batch);
            }
        });
    })?;
    Ok(())
}
