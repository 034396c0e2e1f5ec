//! Places that lines are written to.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// A place for lines.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Its name, as configured.
    fn name(&self) -> &str;
    /// Takes one line, its line end included, whole or not at all.
    ///
    /// # Errors
    /// When the line is not taken.
    fn append(&self, line: &[u8]) -> io::Result<()>;
    /// Waits until every line it took is written, or for `at_most` this long.
    fn finish(&self, at_most: Duration);
}

/// A file that is only appended to.
///
/// One `write` per line: the kernel appends it in one piece, so lines of several threads, and of
/// several processes, do not mix, and no lock of ours is needed.
#[derive(Debug)]
pub struct FileSink {
    name: Box<str>,
    file: File,
    /// The last write was cut short: the next line must not continue it.
    torn: AtomicBool,
}

impl FileSink {
    /// Opens or makes the file at `path`, readable by its owner alone.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn open(name: &str, path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self { name: name.into(), file, torn: AtomicBool::new(false) })
    }
}

impl Sink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn finish(&self, _at_most: Duration) {
        // Every line was written when it was taken.
    }

    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        if self.torn.load(Ordering::Acquire) {
            file.write_all(b"\n")?;
            self.torn.store(false, Ordering::Release);
        }
        match file.write(line) {
            Ok(written) if written == line.len() => Ok(()),
            Ok(written) => {
                self.torn.store(written > 0, Ordering::Release);
                Err(io::Error::new(io::ErrorKind::WriteZero, "only a part of the line was written"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Lines that wait for standard output.
const QUEUE: usize = 4096;

/// What the thread is given.
#[derive(Debug)]
enum Line {
    /// To be written.
    Write(Box<[u8]>),
    /// To be answered when all before it is written.
    Reached(SyncSender<()>),
}

/// Standard output, by way of a thread: a reader that stalls must stall calls by refusing them, not
/// by holding the threads that serve everybody.
#[derive(Debug)]
pub struct StdoutSink {
    name: Box<str>,
    lines: SyncSender<Line>,
    broken: Arc<AtomicBool>,
}

impl StdoutSink {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(name: &str) -> io::Result<Self> {
        let (lines, queue) = sync_channel::<Line>(QUEUE);
        let broken = Arc::new(AtomicBool::new(false));
        let report = Arc::clone(&broken);
        thread::Builder::new().name("audit-stdout".to_owned()).spawn(move || {
            let mut out = io::stdout();
            for line in queue {
                match line {
                    Line::Write(line) => {
                        let written = out.write_all(&line).and_then(|()| out.flush());
                        report.store(written.is_err(), Ordering::Release);
                    }
                    // Nobody may be waiting any more.
                    Line::Reached(reached) => drop(reached.send(())),
                }
            }
        })?;
        Ok(Self { name: name.into(), lines, broken })
    }
}

impl Sink for StdoutSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn finish(&self, at_most: Duration) {
        let (reached, wait) = sync_channel(1);
        if self.lines.try_send(Line::Reached(reached)).is_ok()
            && wait.recv_timeout(at_most).is_err()
        {
            tracing::warn!("standard output did not take the last records");
        }
    }

    fn append(&self, line: &[u8]) -> io::Result<()> {
        // The line is queued all the same: it finds out whether the output works again.
        let sent = self.lines.try_send(Line::Write(line.into()));
        match sent {
            Ok(()) if !self.broken.load(Ordering::Acquire) => Ok(()),
            Ok(()) => Err(io::Error::other("standard output did not take an earlier line")),
            Err(TrySendError::Full(_)) => Err(io::Error::other("the queue is full")),
            Err(TrySendError::Disconnected(_)) => Err(io::Error::other("the writer has ended")),
        }
    }
}
