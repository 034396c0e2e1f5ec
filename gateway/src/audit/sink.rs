//! Sinks: the destinations of audit lines.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::runtime::Builder;

use super::lines::{self, Colours};
use super::spool::{Spool, SpoolReceiver, patience};
use super::watch::{FileIntegrity, LossKind};
use crate::base::caller_counters::CallerKey;
use crate::config::settings::Rotation;

/// Maximum number of bytes in a batch.
const BATCH: usize = 256 * 1024;
/// Time until a stream that takes nothing now is tried again.
const FULL: Duration = Duration::from_millis(10);

/// A destination of audit lines. One thread at a time writes to it, in the order of the chain.
pub trait AuditSink: fmt::Debug + Send {
    /// The name of the sink in the configuration.
    fn name(&self) -> &str;

    /// Whether `bytes` more bytes have room.
    fn room(&self, _bytes: usize) -> bool {
        true
    }

    /// Whether they fit into the share of this caller.
    fn has_share(&self, _caller: CallerKey, _bytes: usize) -> bool {
        true
    }

    /// Appends one line, including its line end, completely or not at all.
    ///
    /// # Errors
    /// If the line is not accepted.
    fn append(&mut self, line: &Bytes) -> io::Result<()>;

    /// Like [`Self::append`], for a line that takes of the share of a caller.
    ///
    /// # Errors
    /// If the line is not accepted.
    fn append_for(&mut self, line: &Bytes, _caller: Option<CallerKey>) -> io::Result<()> {
        self.append(line)
    }

    /// Whether the lines take space of a volume.
    fn takes_space(&self) -> bool {
        false
    }

    /// Rotates the file if that is due; the next record is number `seq`. Returns whether it did.
    ///
    /// # Errors
    /// If it cannot be rotated; then the old file is continued.
    fn turn(&mut self, _seq: u64, _now: &dyn Fn() -> SystemTime) -> io::Result<bool> {
        Ok(false)
    }

    /// Takes the file that must be synced, if there is unsynced data.
    fn unsynced(&mut self) -> Option<Arc<File>> {
        None
    }

    /// Returns a handle to check that its file is intact, if it has one.
    fn watch(&self) -> Option<FileIntegrity> {
        None
    }

    /// Returns the number of bytes that other processes have appended to its file since the last call. They are left
    /// in place, and the next line starts after them.
    ///
    /// # Errors
    /// If the file cannot be examined, or an open line cannot be ended.
    fn foreign(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    /// Stops accepting lines until it has recovered, because its file is no longer intact.
    fn lose(&mut self, _what: LossKind) {}

    /// Recovers after a loss, if possible: with the old file (`None`), or with a new file that starts with record
    /// `seq`. Then it returns the number of the first record of the lost file.
    ///
    /// # Errors
    /// If it cannot; then it still accepts nothing.
    fn recover(&mut self, _seq: u64, _now: SystemTime) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// The path of its file and its rotation settings, if rotated files may expire.
    fn kept(&self) -> Option<(PathBuf, Rotation)> {
        None
    }

    /// Its spool, if it has one.
    fn spool(&self) -> Option<&Spool> {
        None
    }
}

impl AuditSink for Spool {
    fn name(&self) -> &str {
        Spool::name(self)
    }

    fn room(&self, bytes: usize) -> bool {
        Spool::room(self, bytes)
    }

    fn has_share(&self, caller: CallerKey, bytes: usize) -> bool {
        Spool::has_share(self, caller, bytes)
    }

    fn append(&mut self, line: &Bytes) -> io::Result<()> {
        self.append_for(line, None)
    }

    fn append_for(&mut self, line: &Bytes, caller: Option<CallerKey>) -> io::Result<()> {
        self.push(line, caller);
        Ok(())
    }

    fn spool(&self) -> Option<&Spool> {
        Some(self)
    }
}

/// The form in which records are written to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// As complete JSON records.
    Whole,
    /// As lines for people, without records that do not interest them.
    Lines(Colours),
}

/// Starts the thread that writes the spool to standard output.
///
/// # Errors
/// If the thread cannot be started.
pub fn write_to_stdout(outlet: SpoolReceiver, written: Rendering) -> io::Result<()> {
    // Unbuffered, so that the number of accepted bytes is known exactly.
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let out = Arc::new(ArcSwap::from_pointee(out));
    SinkThread { name: "audit-stdout", out, synced: false, written, outlet }.start()
}

/// A writer with a thread of its own: a reader that stalls may cause calls to be denied, but must not block the
/// worker threads.
#[derive(Debug)]
pub(super) struct SinkThread {
    pub(super) name: &'static str,
    /// The file to write to; its owner may replace it.
    pub(super) out: Arc<ArcSwap<File>>,
    /// Whether data must be synced before it counts as delivered.
    pub(super) synced: bool,
    /// The form of the output.
    pub(super) written: Rendering,
    pub(super) outlet: SpoolReceiver,
}

impl SinkThread {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(mut self) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let thread = thread::Builder::new().name(self.name.to_owned());
        thread.spawn(move || {
            runtime.block_on(async {
                loop {
                    let batch = self.outlet.next(BATCH).await;
                    self.batch(&batch.lines).await;
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
                // The kernel may discard data after a failed sync, so the batch is written again.
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
                // A process that shares the stream has made it non-blocking. Its reader is slow, not gone.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    tokio::time::sleep(FULL).await
                }
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
            tracing::warn!(
                event = "audit.sink_retry", %error, to = self.name,
                "writing to the audit sink failed; it is retried"
            );
        }
        self.outlet.failed();
        // A local file is retried more often than a remote receiver.
        tokio::time::sleep(patience(failures.min(3))).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use arc_swap::ArcSwap;
    use bytes::Bytes;
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::{Rendering, SinkThread};
    use crate::audit::spool::Spool;

    #[test]
    fn a_stream_that_takes_nothing_now_is_not_given_up() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let flags = fcntl_getfl(&writer).unwrap();
        fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
        let mut writer = File::from(OwnedFd::from(writer));
        // Nothing more fits at first.
        let mut filled = 0;
        while let Ok(written) = writer.write(&[b'-'; 4096]) {
            filled += written;
        }
        let out = Arc::new(ArcSwap::from_pointee(writer));
        let (spool, outlet) = Spool::new("stdout", 1 << 20);
        let thread =
            SinkThread { name: "stdout", out, synced: false, written: Rendering::Whole, outlet };
        thread.start().unwrap();
        // More than a pipe holds.
        let line = Bytes::from(format!("{}\n", "a".repeat(1023)));
        let lines = 256;
        (0..lines).for_each(|_| spool.push(&line, None));
        // The thread has taken them, and tries to write the first.
        while !spool.is_taken() {
            std::thread::yield_now();
        }
        reader.read_exact(&mut vec![0; filled]).unwrap();
        let mut read = vec![0; line.len()];
        for n in 0..lines {
            reader.read_exact(&mut read).unwrap();
            assert_eq!(read, line, "{n}");
            assert!(spool.room(line.len()), "calls go on after {n}");
        }
    }
}
