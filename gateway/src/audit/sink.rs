//! Places that lines are written to.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::runtime::Builder;

use super::lines::{self, Colours};
use super::spool::{Outlet, Spool, patience};
use super::watch::{Lost, Watch};
use crate::config::settings::Rotation;

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

    /// What shows whether its file is still the one that is written to, if there is one.
    fn watch(&self) -> Option<Watch> {
        None
    }

    /// How many bytes somebody else has appended to its file since this was last asked. They are left where they
    /// stand, and what is written next begins on a line of its own.
    ///
    /// # Errors
    /// When that cannot be found out, or the line they leave open cannot be ended.
    fn foreign(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    /// Takes nothing more until it has recovered: its file is not what it was.
    fn lose(&mut self, _what: Lost) {}

    /// Goes on after it was lost, where it can: with what was there before, or with a new file, whose first record
    /// is the one with number `seq`. Then it says which was the first record of the file that was lost.
    ///
    /// # Errors
    /// When it cannot; then it takes nothing.
    fn recover(&mut self, _seq: u64, _now: SystemTime) -> io::Result<Option<u64>> {
        Ok(None)
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

impl Sink for Spool {
    fn name(&self) -> &str {
        Spool::name(self)
    }

    fn room(&self, bytes: usize) -> bool {
        Spool::room(self, bytes)
    }

    fn append(&mut self, line: &Bytes) -> io::Result<()> {
        self.push(line);
        Ok(())
    }

    fn spool(&self) -> Option<&Spool> {
        Some(self)
    }
}

/// How records are written to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// As they are.
    Whole,
    /// As lines for people, without those that say nothing to them.
    Lines(Colours),
}

/// Writes what comes out of `outlet` to standard output.
///
/// # Errors
/// When there can be no more threads.
pub fn write_to_stdout(outlet: Outlet, written: Rendering) -> io::Result<()> {
    // Without the buffer of the library: what was taken is known to the byte.
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let out = Arc::new(ArcSwap::from_pointee(out));
    Apart { name: "audit-stdout", out, synced: false, written, outlet }.start()
}

/// Somebody who writes on a thread of its own: a reader that stalls must stall calls by refusing them,
/// not by holding the threads that serve everybody.
#[derive(Debug)]
pub(super) struct Apart {
    pub(super) name: &'static str,
    /// What is written to; somebody else may put another in its place.
    pub(super) out: Arc<ArcSwap<File>>,
    /// Nothing is delivered before it is on the disk.
    pub(super) synced: bool,
    /// How lines are written.
    pub(super) written: Rendering,
    pub(super) outlet: Outlet,
}

impl Apart {
    /// Begins to write.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(super) fn start(mut self) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let thread = thread::Builder::new().name(self.name.to_owned());
        thread.spawn(move || {
            runtime.block_on(async {
                loop {
                    let batch = self.outlet.next(BATCH).await;
                    self.batch(&batch).await;
                    self.outlet.delivered(&batch);
                }
            });
        })?;
        Ok(())
    }

    async fn batch(&mut self, batch: &[Bytes]) {
        for failures in 0.. {
            for line in batch {
                self.line(line).await;
            }
            let out = self.out.load_full();
            match if self.synced { out.sync_data() } else { Ok(()) } {
                Ok(()) => return,
                // What the disk has refused it has forgotten: it is written once more.
                Err(error) => self.failed(&error, failures).await,
            }
        }
    }

    async fn line(&mut self, line: &Bytes) {
        let shown = match self.written {
            Rendering::Whole => None,
            Rendering::Lines(colours) => {
                let shown = lines::line(line, colours).map(|line| format!("{line}\n"));
                Some(shown.unwrap_or_default())
            }
        };
        let (mut rest, mut failures) = (shown.as_ref().map_or(&**line, String::as_bytes), 0);
        while !rest.is_empty() {
            let out = self.out.load_full();
            match (&*out).write(rest) {
                Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                failed => {
                    let error = failed.err().unwrap_or_else(|| ErrorKind::WriteZero.into());
                    self.failed(&error, failures).await;
                    failures += 1;
                }
            }
        }
    }

    async fn failed(&self, error: &io::Error, failures: u32) {
        if failures == 0 {
            tracing::warn!(%error, to = self.name, "not written; it is tried again");
        }
        self.outlet.failed();
        // Who is beside us is asked often.
        tokio::time::sleep(patience(failures.min(3))).await;
    }
}
