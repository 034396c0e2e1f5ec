//! Keeps a peer that always has more data ready from starving other tasks of a worker thread.
//!
//! A read that is ready at once does not return to the scheduler, so a loop over such reads lets no timer fire and no
//! other task run. Every loop over data of a peer therefore yields after a bounded amount ([`ReadBudget`]), and lines
//! without a message are bounded as well ([`BlankLines`]).

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of items, and of bytes, that are read before other tasks run. An item may be a message, which costs more
/// than its bytes: it is parsed, inspected and handed on.
const ITEMS: usize = 2;
const BYTES: usize = 16 * 1024;
/// Maximum number of lines without content in [`WINDOW`] while no message comes: more than 60 comments a second.
const LINES: usize = 8192;
const WINDOW: Duration = Duration::from_secs(60);

/// Counts what was read since the loop last yielded to other tasks.
#[derive(Debug, Default)]
pub struct ReadBudget {
    items: usize,
    bytes: usize,
}

impl ReadBudget {
    /// A counter at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { items: 0, bytes: 0 }
    }

    /// Counts one item of `bytes` bytes.
    pub const fn took(&mut self, bytes: usize) {
        self.items = self.items.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Yields to other tasks and timers if enough was read. Call it before a read: nothing is lost if the future is
    /// dropped here.
    pub async fn turn(&mut self) {
        if self.items >= ITEMS || self.bytes >= BYTES {
            *self = Self::new();
            tokio::task::yield_now().await;
        }
    }

    /// [`Self::turn`] for code that polls: pending if enough was read, and woken after other tasks have run.
    pub fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.items < ITEMS && self.bytes < BYTES {
            return Poll::Ready(());
        }
        *self = Self::new();
        pin!(tokio::task::yield_now()).poll(cx)
    }
}

/// A peer has sent too many lines without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {LINES} lines in a minute carry nothing")]
pub struct TooManyBlankLines;

/// Counts lines without content: comments, empty events, empty lines.
#[derive(Debug, Default)]
pub struct BlankLines {
    lines: usize,
    since: Option<Instant>,
}

impl BlankLines {
    /// A counter at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: 0, since: None }
    }

    /// Resets the count, because a message has come.
    pub const fn message(&mut self) {
        *self = Self::new();
    }

    /// Counts `lines` more lines.
    ///
    /// # Errors
    /// [`TooManyBlankLines`] if there are too many in one minute.
    pub fn count(&mut self, lines: usize, now: Instant) -> Result<(), TooManyBlankLines> {
        if lines == 0 {
            return Ok(());
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= WINDOW {
            *self = Self { lines: 0, since: Some(now) };
        }
        self.lines = self.lines.saturating_add(lines);
        if self.lines > LINES { Err(TooManyBlankLines) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, BlankLines, ITEMS, LINES, ReadBudget, TooManyBlankLines, WINDOW};
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};
    use tokio::time::Instant;

    fn waits(future: impl Future<Output = ()>) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending
    }

    #[test]
    fn after_a_few_items_or_16_kib_other_tasks_run() {
        let mut fair = ReadBudget::new();
        for _ in 0..ITEMS {
            assert!(!waits(fair.turn()));
            fair.took(1);
        }
        assert!(waits(fair.turn()));
        assert!(!waits(fair.turn()), "the count begins anew");
        fair.took(BYTES - 1);
        assert!(!waits(fair.turn()));
        fair.took(1);
        assert!(waits(fair.turn()));
    }

    #[test]
    fn what_is_polled_waits_once_and_is_woken() {
        let (mut fair, wakes) = (ReadBudget::new(), Arc::new(Wakes::default()));
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        fair.took(BYTES);
        assert_eq!(fair.poll_turn(&mut cx), Poll::Pending);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(fair.poll_turn(&mut cx), Poll::Ready(()));
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn lines_without_content_are_bounded_unless_a_message_or_a_minute_lies_between() {
        let (mut blanks, now) = (BlankLines::new(), Instant::now());
        assert_eq!(blanks.count(LINES, now), Ok(()));
        assert_eq!(blanks.count(0, now), Ok(()));
        assert_eq!(blanks.count(1, now), Err(TooManyBlankLines));
        assert_eq!(blanks.count(LINES, now + WINDOW), Ok(()));
        blanks.message();
        assert_eq!(blanks.count(LINES, now + WINDOW), Ok(()));
        assert_eq!(blanks.count(1, now + WINDOW), Err(TooManyBlankLines));
    }
}
