//! The queue of events for one connected client, bounded by the number of events, by their bytes, and by the shares of
//! the holder and of all streams together. Exchanges and the bridge write to it; a response body reads from it.
//!
//! A client that resumes a stream after a lost connection reads a [`crate::stream::replay::ReplayBuffer`] instead.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::stream::budget::{self, BudgetShare, StreamBounds};

/// The receiver was dropped, or the queue was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody reads the events any more")]
pub struct ReceiverGone;

/// Why an event was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver was dropped, or the queue was ended.
    #[error(transparent)]
    Gone(#[from] ReceiverGone),
    /// There was no room, and the client read nothing for this long.
    #[error("nothing was read for {} s", .0.as_secs())]
    Unread(Duration),
}

/// Measures how long the client has read nothing while an event waits for room. Each piece of a long event counts as a
/// read.
#[derive(Debug)]
struct StallTimer {
    /// Longest time without a read.
    patience: Duration,
    /// The number of pieces read when the current wait began.
    read: u64,
    /// When the current wait began.
    since: Instant,
}

impl StallTimer {
    /// The time left at `now`, with `read` pieces read so far; zero if the client has read nothing for `patience`.
    fn left(&mut self, read: u64, now: Instant) -> Duration {
        if self.read != read {
            (self.read, self.since) = (read, now);
        }
        self.patience.saturating_sub(now.saturating_duration_since(self.since))
    }
}

/// How far the reader of an event stream has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadProgress {
    /// All events that were read were read completely; more may follow.
    Between,
    /// The last event was read in part.
    Within,
    /// Everything was read, and nothing more will be sent.
    Finished,
}

#[derive(Debug)]
struct QueueShared {
    room: StreamBounds,
    state: Mutex<QueueState>,
    /// Notified when the receiver reads or is dropped, and when the queue is cut or its events are replaced.
    moved: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    /// The unread events, each with its share of the budget; `None` for events that take none.
    events: VecDeque<(Bytes, Option<BudgetShare>)>,
    bytes: usize,
    /// The complete first event, if some of its pieces were read but not the last; empty if the rest of that event was
    /// discarded. It shares the memory of the event.
    begun: Option<Bytes>,
    /// Number of pieces read; an event read at once counts as one.
    read: u64,
    /// The sender has ended the queue.
    over: bool,
    /// The receiver was dropped.
    gone: bool,
    waker: Option<Waker>,
}

impl QueueShared {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // Every change completes under the lock, so the state of a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn clear(&mut self) {
        self.events.clear();
        self.bytes = 0;
        self.begun = self.begun.take().map(|_dropped| Bytes::new());
    }

    /// Whether an event of `bytes` bytes fits the bounds of this queue. An event that would be alone in the queue may
    /// exceed the limit in bytes.
    ///
    /// # Errors
    /// If the queue was ended or the receiver was dropped.
    fn has_place(&self, bytes: usize, room: &StreamBounds) -> Result<bool, ReceiverGone> {
        if self.gone || self.over {
            return Err(ReceiverGone);
        }
        let is_long = !self.events.is_empty() && self.bytes + bytes > room.bytes;
        Ok(!is_long && self.events.len() < room.events)
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A sender and a receiver of a new queue with the bounds of `room`.
#[must_use]
pub fn queue(room: StreamBounds) -> (EventSender, EventReceiver) {
    let shared = Arc::new(QueueShared { room, state: Mutex::default(), moved: Notify::new() });
    (EventSender(Arc::clone(&shared)), EventReceiver(shared))
}

/// The sending half of a queue. When it is dropped, the receiver gets the remaining events and then the end.
#[derive(Debug)]
pub struct EventSender(Arc<QueueShared>);

impl EventSender {
    /// Adds an event, waiting for room without a time limit.
    ///
    /// # Errors
    /// If the queue was ended or the receiver was dropped.
    pub async fn send(&self, event: Bytes) -> Result<(), ReceiverGone> {
        match self.wait(event, None, None).await {
            // Without `patience`, `wait` never returns `Unread`.
            Ok(()) | Err(SendError::Unread(_)) => Ok(()),
            Err(SendError::Gone(gone)) => Err(gone),
        }
    }

    /// Adds an event, waiting for room as long as the client does not stop reading for `patience`.
    ///
    /// # Errors
    /// If the queue was ended, the receiver was dropped, or nothing was read for `patience`.
    pub async fn send_within(&self, event: Bytes, patience: Duration) -> Result<(), SendError> {
        self.wait(event, None, Some(patience)).await
    }

    /// As [`Self::send_within`], for an event of about `bytes` bytes that `make` builds only once it fits the bounds of
    /// the queue, so that a waiting event takes no memory of its own.
    ///
    /// # Errors
    /// As [`Self::send_within`].
    pub async fn send_made_within(
        &self,
        bytes: usize,
        patience: Duration,
        make: impl FnOnce() -> Bytes,
    ) -> Result<(), SendError> {
        let (read, since) = (self.read(), Instant::now());
        let mut still = StallTimer { patience, read, since };
        loop {
            let mut moved = std::pin::pin!(self.0.moved.notified());
            moved.as_mut().enable();
            if self.0.state().has_place(bytes, &self.0.room)? {
                break;
            }
            let left = still.left(self.read(), Instant::now());
            if left.is_zero() {
                return Err(SendError::Unread(patience));
            }
            tokio::select! {
                biased;
                () = moved => {}
                () = sleep(left) => {}
            }
        }
        self.send_within(make(), patience).await
    }

    /// As [`Self::send_within`], for an event whose share of the budget is already taken, which bounds waiting events
    /// as well.
    ///
    /// # Errors
    /// If the queue was ended, the receiver was dropped, or nothing was read for `patience`.
    pub async fn send_taken_within(
        &self,
        event: Bytes,
        taken: BudgetShare,
        patience: Duration,
    ) -> Result<(), SendError> {
        self.wait(event, Some(taken), Some(patience)).await
    }

    /// Takes a share of the budget for an event of `bytes` bytes; `None` if the holder or all streams together have
    /// used theirs up.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<BudgetShare> {
        self.0.room.all.take(&self.0.room.holder, bytes).ok()
    }

    async fn wait(
        &self,
        event: Bytes,
        mut taken: Option<BudgetShare>,
        patience: Option<Duration>,
    ) -> Result<(), SendError> {
        let (read, since) = (self.read(), Instant::now());
        let mut standstill = patience.map(|patience| StallTimer { patience, read, since });
        loop {
            let mut moved = std::pin::pin!(self.0.moved.notified());
            let mut freed = std::pin::pin!(self.0.room.all.freed());
            moved.as_mut().enable();
            freed.as_mut().enable();
            if self.add(&event, &mut taken)? {
                return Ok(());
            }
            let left = standstill.as_mut().map(|still| still.left(self.read(), Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(SendError::Unread(patience.unwrap_or_default()));
            }
            tokio::select! {
                biased;
                () = moved => {}
                () = freed => {}
                () = budget::again() => {}
                () = waited(left) => {}
            }
        }
    }

    /// Number of pieces read so far.
    fn read(&self) -> u64 {
        self.0.state().read
    }

    /// Adds an event if there is room for it, and returns whether it was added.
    ///
    /// # Errors
    /// If the queue was ended or the receiver was dropped.
    pub fn try_send(&self, event: &Bytes) -> Result<bool, ReceiverGone> {
        self.add(event, &mut None)
    }

    fn add(&self, event: &Bytes, taken: &mut Option<BudgetShare>) -> Result<bool, ReceiverGone> {
        let room = &self.0.room;
        let mut state = self.0.state();
        if !state.has_place(event.len(), room)? {
            return Ok(false);
        }
        let Some(taken) = taken.take().or_else(|| self.take(event.len())) else { return Ok(false) };
        state.bytes += event.len();
        state.events.push_back((event.clone(), Some(taken)));
        state.wake();
        Ok(true)
    }

    /// Whether no event is left in the queue.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.0.state().events.is_empty()
    }

    /// Resolves when the receiver is dropped.
    pub async fn closed(&self) {
        loop {
            let mut moved = std::pin::pin!(self.0.moved.notified());
            moved.as_mut().enable();
            if self.0.state().gone {
                return;
            }
            moved.await;
        }
    }

    /// Ends the queue; events already in it can still be read.
    pub fn end(&self) {
        let mut state = self.0.state();
        state.over = true;
        state.wake();
    }

    /// Replaces every event that was not read completely with the result of `each`, or drops it on `None`. If part of
    /// the first event was read, `broken_off` is sent before its replacement. Replacements are short and take no share
    /// of the budget; events that an earlier call put here are kept.
    pub fn replace(&self, broken_off: Bytes, each: impl Fn(Bytes) -> Option<Bytes>) {
        let mut guard = self.0.state();
        let state = &mut *guard;
        let mut events: Vec<_> = state.events.drain(..).collect();
        state.bytes = 0;
        if let Some((whole, (first, _taken))) = state.begun.take().zip(events.first_mut()) {
            *first = whole;
            state.bytes += broken_off.len();
            state.events.push_back((broken_off, None));
            state.wake();
        }
        // `each` may take long for long events, so it runs without the lock.
        drop(guard);
        let replaced = |(event, taken): (Bytes, Option<BudgetShare>)| match taken {
            Some(_taken) => each(event),
            None => Some(event),
        };
        let events: Vec<_> = events.into_iter().filter_map(replaced).collect();
        let mut state = self.0.state();
        let is_open = !state.gone && !state.over;
        for event in events.into_iter().filter(|_| is_open) {
            state.bytes += event.len();
            state.events.push_back((event, None));
        }
        state.wake();
        drop(state);
        self.0.moved.notify_waiters();
    }

    /// Ends the queue at once and discards the events that were not read.
    pub fn cut(&self) {
        let mut state = self.0.state();
        state.over = true;
        state.clear();
        state.wake();
        drop(state);
        self.0.moved.notify_waiters();
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sleeps for `time`; never resolves for `None`.
async fn waited(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// The receiving half of a queue.
#[derive(Debug)]
pub struct EventReceiver(Arc<QueueShared>);

impl EventReceiver {
    /// The next event; `None` when the queue has ended.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.0.state();
        if let Some((event, taken)) = state.events.pop_front() {
            state.bytes -= event.len();
            state.begun = None;
            state.read += 1;
            drop(state);
            drop(taken);
            self.0.moved.notify_waiters();
            return Poll::Ready(Some(event));
        }
        if state.over {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next piece of at most `most` bytes of an event; `None` when the queue has ended. An event keeps its share of
    /// the budget until its last piece is read: a connection buffers little, so the rest of a long event stays here
    /// until the client reads.
    pub fn poll_piece(&mut self, cx: &Context<'_>, most: usize) -> Poll<Option<Bytes>> {
        let mut state = self.0.state();
        if let Some((event, _taken)) = state.events.front_mut()
            && event.len() > most
        {
            let whole = event.clone();
            let piece = event.split_to(most);
            state.bytes -= piece.len();
            state.begun.get_or_insert(whole);
            state.read += 1;
            drop(state);
            // Senders waiting for room learn from this that the client reads.
            self.0.moved.notify_waiters();
            return Poll::Ready(Some(piece));
        }
        drop(state);
        self.poll(cx)
    }

    /// How far the receiver has read.
    #[must_use]
    pub fn progress(&self) -> ReadProgress {
        let state = self.0.state();
        match state.over && state.events.is_empty() {
            _ if state.begun.is_some() => ReadProgress::Within,
            true => ReadProgress::Finished,
            false => ReadProgress::Between,
        }
    }

    /// The next piece of at most `most` bytes of an event; `None` when the queue has ended.
    pub async fn piece(&mut self, most: usize) -> Option<Bytes> {
        std::future::poll_fn(|cx| self.poll_piece(cx, most)).await
    }

    /// The next event; `None` when the queue has ended.
    pub async fn next(&mut self) -> Option<Bytes> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.gone = true;
        state.clear();
        drop(state);
        self.0.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::{EventReceiver, ReadProgress, ReceiverGone, StallTimer, queue};
    use crate::base::share::Holder;
    use crate::stream::budget::{StreamBounds, StreamBudget};
    use bytes::Bytes;
    use std::future::Future as _;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;
    use tokio::time::Instant;

    fn room(all: &Arc<StreamBudget>) -> StreamBounds {
        let holder = Holder::network([192, 0, 2, 1].into());
        StreamBounds { events: 3, bytes: 100, all: Arc::clone(all), holder }
    }

    fn read(receiver: &mut EventReceiver) -> Option<usize> {
        match receiver.poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(event) => event.map(|event| event.len()),
            Poll::Pending => Some(0),
        }
    }

    #[test]
    fn events_are_bounded_by_count_and_by_bytes() {
        let budget = StreamBudget::new(1000, 1000);
        let event = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        let (sender, mut receiver) = queue(room(&budget));
        // A single event may be longer than the stream may keep.
        assert_eq!(sender.try_send(&event(200)), Ok(true));
        assert_eq!(sender.try_send(&event(1)), Ok(false));
        assert_eq!((read(&mut receiver), read(&mut receiver)), (Some(200), Some(0)));
        for _ in 0..3 {
            assert_eq!(sender.try_send(&event(1)), Ok(true));
        }
        assert_eq!(sender.try_send(&event(1)), Ok(false));
        drop(receiver);
        assert_eq!(sender.try_send(&event(1)), Err(ReceiverGone));
    }

    #[tokio::test]
    async fn what_is_read_of_a_long_event_makes_room_for_the_next_one() {
        let budget = StreamBudget::new(1000, 1000);
        let (sender, mut receiver) = queue(room(&budget));
        assert_eq!(sender.try_send(&Bytes::from_static(&[b'x'; 250])), Ok(true));
        let mut next = pin!(sender.send(Bytes::from_static(&[b'y'; 50])));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut cx).is_pending());
        let mut piece = || match receiver.poll_piece(&cx, 100) {
            Poll::Ready(piece) => piece.unwrap().len(),
            Poll::Pending => 0,
        };
        assert_eq!((piece(), piece()), (100, 100));
        // The rest of the first event is not read, and there is room for both.
        assert!(next.as_mut().poll(&mut cx).is_ready());
        assert_eq!(receiver.progress(), ReadProgress::Within);
        assert_eq!((read(&mut receiver), read(&mut receiver)), (Some(50), Some(50)));
        assert_eq!(receiver.progress(), ReadProgress::Between);
        sender.end();
        assert_eq!(receiver.progress(), ReadProgress::Finished);
    }

    #[test]
    fn who_reads_a_long_event_slowly_does_not_stand_still() {
        let budget = StreamBudget::new(1000, 1000);
        let (sender, mut receiver) = queue(room(&budget));
        assert_eq!(sender.try_send(&Bytes::from_static(&[b'x'; 900])), Ok(true));
        let (patience, since) = (Duration::from_secs(30), Instant::now());
        let mut still = StallTimer { patience, read: sender.read(), since };
        let mut now = since;
        for _ in 0..8 {
            now += Duration::from_secs(29);
            assert_eq!(still.left(sender.read(), now), Duration::from_secs(1));
            assert!(receiver.poll_piece(&Context::from_waker(Waker::noop()), 100).is_ready());
            assert_eq!(still.left(sender.read(), now), patience);
        }
        now += patience;
        assert_eq!(still.left(sender.read(), now), Duration::ZERO);
    }

    #[test]
    fn what_was_not_read_to_its_end_is_replaced() {
        for begun in [false, true] {
            let budget = StreamBudget::new(1000, 1000);
            let (sender, mut receiver) = queue(room(&budget));
            assert_eq!(sender.try_send(&Bytes::from_static(&[b'x'; 90])), Ok(true));
            assert_eq!(sender.try_send(&Bytes::from_static(b"drop")), Ok(true));
            if begun {
                assert!(receiver.poll_piece(&Context::from_waker(Waker::noop()), 50).is_ready());
            }
            let each = |event: Bytes| {
                // `each` sees the complete event, even if part of it was read.
                (event != "drop").then(|| Bytes::from(vec![b'n'; event.len() / 10]))
            };
            for _again in 0..2 {
                sender.replace(Bytes::from_static(b"broken off"), each);
            }
            let expected = if begun { [Some(10), Some(9)] } else { [Some(9), Some(0)] };
            assert_eq!([read(&mut receiver), read(&mut receiver)], expected);
            sender.end();
            assert_eq!((read(&mut receiver), receiver.progress()), (None, ReadProgress::Finished));
        }
    }

    #[test]
    fn what_is_not_read_takes_from_the_budget_until_it_is() {
        let budget = StreamBudget::new(50, 50);
        let event = Bytes::from_static(&[b'x'; 40]);
        let (first, mut reading) = queue(room(&budget));
        let (second, _waiting) = queue(room(&budget));
        assert_eq!((first.try_send(&event), second.try_send(&event)), (Ok(true), Ok(false)));
        assert_eq!(read(&mut reading), Some(40));
        assert_eq!(second.try_send(&event), Ok(true));
        second.cut();
        assert_eq!(
            (first.try_send(&event), second.try_send(&event)),
            (Ok(true), Err(ReceiverGone))
        );
        drop(first);
        assert_eq!((read(&mut reading), read(&mut reading)), (Some(40), None));
    }
}
