//! The log of a process that serves, written to standard error by a thread of its own.
//!
//! The reader of standard error may stop reading, or be gone: then a thread that writes there waits for ever, or fails.
//! The threads that serve, reload and stop therefore only add lines to a queue. Lines for which it has no room are
//! counted, and the log says how many there were as soon as it is read again.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Most bytes of lines that wait.
const BYTES: usize = 4 * 1024 * 1024;
/// Time between two attempts to write to a descriptor that does not block and has no room.
const FULL: Duration = Duration::from_millis(5);
/// Longest time that the end of the process waits for the lines that are not written yet.
const FLUSH: Duration = Duration::from_secs(1);

/// The queue of this process; `None` if it has no thread that writes.
static QUEUE: OnceLock<Option<Arc<LogQueue>>> = OnceLock::new();

/// Lines that wait to be written.
#[derive(Debug, Default)]
struct LogQueue {
    state: Mutex<LogQueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogQueueState {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that were dropped since the log last said so.
    dropped: u64,
    /// A line is being written.
    is_writing: bool,
}

impl LogQueue {
    fn add(&self, line: &[u8]) {
        let mut state = self.state();
        if state.bytes + line.len() > BYTES {
            state.dropped += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the next line, and the number of lines that were dropped before it; waits until there is one.
    fn next(&self) -> (Vec<u8>, u64) {
        let mut state = self.state();
        state.is_writing = false;
        self.changed.notify_all();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.is_writing = true;
                return (line, std::mem::take(&mut state.dropped));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until everything is written, but not for longer than `most`.
    fn flush(&self, most: Duration) {
        let is_pending = |state: &mut LogQueueState| state.is_writing || !state.lines.is_empty();
        // What is left after that is lost with the process.
        drop(self.changed.wait_timeout_while(self.state(), most, is_pending));
    }

    fn state(&self) -> MutexGuard<'_, LogQueueState> {
        // No operation leaves the queue half changed, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes log lines to standard error, by way of the queue where there is one.
#[derive(Debug)]
pub struct LogWriter(Option<Arc<LogQueue>>);

/// The writer of this process. The first call starts the thread.
#[must_use]
pub fn writer() -> LogWriter {
    LogWriter(QUEUE.get_or_init(|| start().ok()).clone())
}

/// Writes a line to standard error that is no log line, in its place among these: through the queue if the log has one, so
/// that no other line stands within it.
pub fn say(line: &str) {
    let line = format!("{line}\n");
    match QUEUE.get() {
        Some(Some(queue)) => queue.add(line.as_bytes()),
        // If standard error fails, there is nowhere to report it.
        Some(None) | None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Waits for a short time until the lines so far are written. Called at the end of the process.
pub fn flush() {
    if let Some(Some(queue)) = QUEUE.get() {
        queue.flush(FLUSH);
    }
}

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(queue) => queue.add(line),
            None => io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn start() -> io::Result<Arc<LogQueue>> {
    let queue = Arc::new(LogQueue::default());
    let lines = Arc::clone(&queue);
    // Not `io::stderr()` itself, whose lock would let a reader that does not read hold other threads as well.
    let mut out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let thread = thread::Builder::new().name("log".to_owned());
    thread.spawn(move || {
        loop {
            let (line, dropped) = lines.next();
            // If standard error fails, there is nowhere to report it.
            drop(write_whole(&mut out, &line));
            if dropped > 0 {
                tracing::warn!(
                    event = "log.lines_dropped",
                    dropped,
                    "log lines were dropped, because standard error was not read"
                );
            }
        }
    })?;
    Ok(queue)
}

/// Writes all of `line`, also where the descriptor does not block: another process that has it may have set that.
fn write_whole(out: &mut impl io::Write, line: &[u8]) -> io::Result<()> {
    let mut rest = line;
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::park_timeout(FULL),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::{BYTES, LogQueue, write_whole};

    /// Takes three bytes at a time, and none every other time.
    struct Reluctant(Vec<u8>, u32);

    impl io::Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1 % 2 == 1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let taken = bytes.len().min(3);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_descriptor_that_does_not_block_loses_no_part_of_a_line() {
        let mut out = Reluctant(Vec::new(), 0);
        write_whole(&mut out, b"one line\n").unwrap();
        assert_eq!(out.0, b"one line\n");
        let mut full: &mut [u8] = &mut [];
        assert_eq!(write_whole(&mut full, b"a").unwrap_err().kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn lines_without_room_are_counted_and_nothing_waits_for_a_reader() {
        let queue = LogQueue::default();
        queue.add(&vec![b'a'; BYTES - 1]);
        for _ in 0..3 {
            queue.add(b"bb");
        }
        queue.add(b"c");
        queue.flush(Duration::ZERO);
        let (line, dropped) = queue.next();
        assert_eq!((line.len(), dropped), (BYTES - 1, 3));
        queue.add(b"dd");
        assert_eq!(queue.next(), (b"c".to_vec(), 0));
        assert_eq!(queue.next(), (b"dd".to_vec(), 0));
        assert_eq!(queue.state().bytes, 0);
    }
}
