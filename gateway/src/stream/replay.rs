//! The replay buffer of one event stream of a legacy session. The exchange pushes messages; each connection of the
//! client reads them through a [`ReplayReader`].
//!
//! A client that lost its connection resumes with the id of the last event it received and gets the events after it
//! once and in order (SPEC 2025-11-25 basic/transports#resumability-and-redelivery). Events that were not sent yet are
//! never dropped: when the buffer is full, the sender waits.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use policy_core::subject::name::ServerName;
use tokio::sync::Notify;

use crate::stream::budget::{self, BudgetShare, StreamBounds};
use crate::stream::queue::ReadProgress;
use crate::stream::sse;

/// Memory of an event besides its message, in bytes: the id, the field names, the entry in the queue with its share of the
/// budget, and what the allocator adds. Measured with messages of 70 bytes.
const FRAME: usize = 352;
/// Data of an event of at least so many bytes is not copied to stand beside its fields.
const LONG_EVENT: usize = 64 * 1024;

/// How often a reader of any stream has left; tells whose client left first.
static DEPARTURES: AtomicU64 = AtomicU64::new(0);

/// The replay buffer of one stream.
#[derive(Debug)]
pub struct ReplayBuffer {
    id: u64,
    room: StreamBounds,
    state: Mutex<ReplayState>,
    /// Notified when an event is sent or the stream ends: there may be room, or nothing more to wait for.
    sent: Notify,
}

#[derive(Debug, Default)]
struct ReplayState {
    held: VecDeque<BufferedEvent>,
    bytes: usize,
    /// The number of the next event to be added.
    next: u64,
    /// The number of the next event to be sent.
    at: u64,
    /// Bytes of that event that were already sent.
    begun: usize,
    /// The number of the reader that may read; attaching a new reader invalidates the previous one.
    reader: u64,
    attached: bool,
    /// The number of the departure of the last reader.
    departure: u64,
    waker: Option<Waker>,
    /// Nothing more will be added.
    over: bool,
    /// Another stream has taken over from this one.
    superseded: bool,
    /// The stream ends when its reader leaves.
    closing: bool,
    /// The connection is to be closed, although more events will follow.
    resting: bool,
    /// The kept events were replaced with an error.
    withdrawn: bool,
    /// The reader has received part of an event that is no longer kept.
    torn: bool,
}

#[derive(Debug)]
struct BufferedEvent {
    number: u64,
    event: EventBytes,
    /// The server that has sent the message, if it is not about a call.
    source: Option<ServerName>,
    /// Its share of the budget; `None` for the priming event, which carries no message.
    _taken: Option<BudgetShare>,
}

/// The bytes of an event.
#[derive(Clone, Debug)]
struct EventBytes {
    /// The fields, and all of a short event.
    head: Bytes,
    /// The data of a long event with its end, which is not copied for its fields.
    data: Bytes,
}

impl EventBytes {
    fn len(&self) -> usize {
        self.head.len() + self.data.len()
    }

    /// The piece after the first `begun` bytes, of at most `most`.
    fn piece(&self, begun: usize, most: usize) -> Bytes {
        let (part, begun) = match begun.checked_sub(self.head.len()) {
            Some(begun) if !self.data.is_empty() => (&self.data, begun),
            _ => (&self.head, begun),
        };
        let begun = begun.min(part.len());
        part.slice(begun..begun.saturating_add(most).min(part.len()))
    }
}

impl From<Bytes> for EventBytes {
    fn from(head: Bytes) -> Self {
        Self { head, data: Bytes::new() }
    }
}

/// A message that becomes an event.
#[derive(Clone, Copy)]
enum EventMessage<'a> {
    /// Its JSON, which is copied.
    Json(&'a [u8]),
    /// The data of its event, which ends with the end of the event.
    Data(&'a Bytes),
}

impl EventMessage<'_> {
    fn len(self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Data(data) => data.len(),
        }
    }
}

/// Parses an event id as a client returns it in `Last-Event-ID`: the id of the stream and the number of the event.
/// `None` for any spelling but the canonical one.
#[must_use]
pub fn read_id(text: &str) -> Option<(u64, u64)> {
    let (stream, event) = text.split_once('-')?;
    let canonical = stream.len() == 16 && (event == "0" || !event.starts_with('0'));
    let stream = u64::from_str_radix(stream, 16).ok()?;
    canonical.then_some((stream, event.parse().ok()?))
}

impl ReplayBuffer {
    /// A stream without events.
    #[must_use]
    pub fn new(id: u64, room: StreamBounds) -> Arc<Self> {
        Arc::new(Self { id, room, state: Mutex::default(), sent: Notify::new() })
    }

    /// The id of the stream: 64 random bits, so that no two streams have the same.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    fn state(&self) -> MutexGuard<'_, ReplayState> {
        // Every change completes under the lock, so the state of a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event with an id and no data, so that a client can resume before the first message, and sets the
    /// reconnection time.
    pub fn prime(&self, retry: Duration) {
        let mut state = self.state();
        let retry = format!("retry: {}\n", retry.as_millis());
        let event = self.event(&state, &retry, EventMessage::Json(b""));
        Self::add(&mut state, event, None);
    }

    /// Adds a message, waiting for room. A message to an ended stream is dropped.
    pub async fn push(&self, message: &[u8]) {
        self.push_of(None, message).await;
    }

    /// As [`Self::push`], for the data of an event with its end ([`sse::event_of`] without fields), which is not copied if
    /// it is long.
    pub async fn push_data(&self, data: Bytes) {
        self.push_message(None, EventMessage::Data(&data)).await;
    }

    /// As [`Self::push`], for a message of a server that is about no call: it can be withdrawn.
    pub async fn push_of(&self, source: Option<&ServerName>, message: &[u8]) {
        self.push_message(source, EventMessage::Json(message)).await;
    }

    async fn push_message(&self, source: Option<&ServerName>, message: EventMessage<'_>) {
        loop {
            let mut sent = std::pin::pin!(self.sent.notified());
            let mut freed = std::pin::pin!(self.room.all.freed());
            sent.as_mut().enable();
            freed.as_mut().enable();
            if self.try_push_of(source, message) {
                return;
            }
            tokio::select! {
                () = sent => {}
                () = freed => {}
                () = budget::again() => {}
            }
        }
    }

    /// Adds a message if there is room, and returns whether the caller is done with it: a message to an ended stream is
    /// dropped.
    #[must_use]
    pub fn try_push(&self, message: &[u8]) -> bool {
        self.try_push_of(None, EventMessage::Json(message))
    }

    fn try_push_of(&self, source: Option<&ServerName>, message: EventMessage<'_>) -> bool {
        let mut state = self.state();
        if state.over {
            return true;
        }
        let size = message.len() + FRAME;
        loop {
            let long = state.bytes + size > self.room.bytes;
            let full = !state.held.is_empty() && (long || state.held.len() >= self.room.events);
            if !full && let Ok(taken) = self.room.all.take(&self.room.holder, size) {
                let event = self.event(&state, "", message);
                Self::add(&mut state, event, Some(taken));
                if let Some(added) = state.held.back_mut() {
                    added.source = source.cloned();
                }
                return true;
            }
            // Events that were sent are evicted to make room.
            let at = state.at;
            let Some(old) = state.held.pop_front_if(|held| held.number < at) else { return false };
            state.bytes -= old.event.len();
        }
    }

    /// Encodes the next event: `before` holds further fields in front of the data.
    fn event(&self, state: &ReplayState, before: &str, message: EventMessage<'_>) -> EventBytes {
        let number = state.next;
        let mut head = String::with_capacity(before.len() + 64);
        if message.len() > 0 {
            head.push_str("event: message\n");
        }
        // Writing to a string cannot fail.
        write!(head, "id: {:016x}-{number}\n{before}data: ", self.id).unwrap_or_default();
        match message {
            EventMessage::Json(json) => sse::event(&head, json).into(),
            EventMessage::Data(data) if data.len() < LONG_EVENT => {
                Bytes::from([head.as_bytes(), data].concat()).into()
            }
            EventMessage::Data(data) => EventBytes { head: head.into(), data: data.clone() },
        }
    }

    fn add(state: &mut ReplayState, event: EventBytes, taken: Option<BudgetShare>) {
        let number = state.next;
        state.bytes += event.len();
        state.held.push_back(BufferedEvent { number, event, source: None, _taken: taken });
        state.next += 1;
        wake(state);
    }

    /// Ends the stream; events in the buffer can still be read.
    pub fn end(&self) {
        let mut state = self.state();
        state.over = true;
        wake(&mut state);
        self.sent.notify_waiters();
    }

    /// Ends the stream as soon as no reader is attached. Until then the present reader is served: its lease ends the response
    /// and says why.
    pub fn end_when_left(&self) {
        let mut state = self.state();
        state.closing = true;
        let is_attached = state.attached;
        drop(state);
        if !is_attached {
            self.end();
        }
    }

    /// Replaces everything that is kept with `message` as the last event and ends the stream. A client that resumes
    /// gets only this event, from any earlier event id.
    pub fn withdraw(&self, message: &[u8]) {
        let mut state = self.state();
        if state.withdrawn {
            return;
        }
        state.torn = state.begun > 0;
        state.begun = 0;
        state.held.clear();
        state.bytes = 0;
        state.at = state.next;
        // The message is short and there is one per stream, so it is added even if the budget is used up.
        let taken = self.room.all.take(&self.room.holder, message.len() + FRAME).ok();
        let event = self.event(&state, "", EventMessage::Json(message));
        Self::add(&mut state, event, taken);
        state.over = true;
        state.withdrawn = true;
        drop(state);
        self.sent.notify_waiters();
    }

    /// Takes the messages of a server out of the kept events; `None`: all messages that are about no call. Their events keep
    /// their ids and have no data, so that a client can go on after any of them.
    pub fn withdraw_messages(&self, of: Option<&ServerName>) {
        let mut state = self.state();
        let (at, is_begun) = (state.at, state.begun > 0);
        let (mut freed, mut is_torn) = (0, false);
        for held in &mut state.held {
            let is_of = held.source.as_ref().is_some_and(|source| of.is_none_or(|of| of == source));
            if is_of {
                let empty = Bytes::from(format!("id: {:016x}-{}\n\n", self.id, held.number));
                freed += held.event.len().saturating_sub(empty.len());
                held.event = empty.into();
                held.source = None;
                is_torn |= is_begun && held.number == at;
            }
        }
        state.bytes = state.bytes.saturating_sub(freed);
        if is_torn {
            (state.begun, state.torn) = (0, true);
        }
    }

    /// Closes the current connection, if any; the client is expected to resume the stream.
    pub fn rest(&self) {
        let mut state = self.state();
        state.resting = state.attached;
        wake(&mut state);
    }

    /// Marks the stream as taken over by another one. An attached reader stays attached but gets no new events.
    pub fn supersede(&self) {
        self.state().superseded = true;
        self.sent.notify_waiters();
    }

    /// Whether nothing more will be added.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let state = self.state();
        state.over || state.superseded && !state.attached
    }

    /// Resolves when nothing more is to be added, because the stream has ended or was superseded.
    pub async fn over(&self) {
        self.until(|state| state.over || state.superseded).await;
    }

    /// Resolves when the stream has ended, or was superseded and has no reader.
    pub async fn ended(&self) {
        self.until(|state| state.over || state.superseded && !state.attached).await;
    }

    /// Resolves when `is` holds, which has to be notified of.
    async fn until(&self, is: impl Fn(&ReplayState) -> bool) {
        loop {
            let mut turn = std::pin::pin!(self.sent.notified());
            turn.as_mut().enable();
            if is(&self.state()) {
                return;
            }
            turn.await;
        }
    }

    /// Whether `last` is the number of the last event added.
    #[must_use]
    pub fn ends_with(&self, last: u64) -> bool {
        last.saturating_add(1) == self.state().next
    }

    /// Whether every event was sent.
    #[must_use]
    pub fn is_read(&self) -> bool {
        let state = self.state();
        state.at == state.next
    }

    /// Whether a reader is attached.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.state().attached
    }

    /// The number of the last reader's departure, which grows with each departure from any stream; `None` while a reader is
    /// attached.
    #[must_use]
    pub fn departure(&self) -> Option<u64> {
        let state = self.state();
        (!state.attached).then_some(state.departure)
    }

    /// Whether a reader can continue after event `last`.
    #[must_use]
    pub fn continues_after(&self, last: u64) -> bool {
        self.state().after(Some(last)).is_some()
    }

    /// Attaches a reader that continues after event `last`, or from the first event if `last` is `None`. Returns `None`
    /// if events after `last` are no longer kept, or if `last` was never sent.
    #[must_use]
    pub fn attach(self: &Arc<Self>, last: Option<u64>) -> Option<ReplayReader> {
        let mut state = self.state();
        let at = state.after(last)?;
        state.at = at;
        state.begun = 0;
        state.torn = false;
        state.reader += 1;
        state.attached = true;
        if state.closing {
            state.over = true;
            self.sent.notify_waiters();
        }
        state.resting = false;
        // The previous reader wakes and sees that it is no longer current.
        wake(&mut state);
        Some(ReplayReader { replay: Arc::clone(self), reader: state.reader })
    }
}

impl ReplayState {
    /// The number of the event that a reader begins with which has received `last`; `None` if events after it are no longer
    /// kept, or if it was never sent.
    fn after(&self, last: Option<u64>) -> Option<u64> {
        let at = last.map_or(0, |last| last.saturating_add(1));
        let first = self.first();
        let is_kept = (at >= first || self.withdrawn) && at <= self.next;
        is_kept.then(|| at.max(first))
    }

    /// The number of the first event that is kept.
    fn first(&self) -> u64 {
        self.held.front().map_or(self.next, |held| held.number)
    }
}

fn wake(state: &mut ReplayState) {
    if let Some(waker) = state.waker.take() {
        waker.wake();
    }
}

/// The reading side of a stream, for one connection. A later [`ReplayBuffer::attach`] ends it.
#[derive(Debug)]
pub struct ReplayReader {
    replay: Arc<ReplayBuffer>,
    reader: u64,
}

impl ReplayReader {
    /// The next piece of at most `most` bytes of an event; `None` when this reader gets no more. A connection buffers
    /// little, so the rest of a long event stays here until the client reads.
    pub fn poll_piece(&mut self, cx: &Context<'_>, most: usize) -> Poll<Option<Bytes>> {
        let mut state = self.replay.state();
        if state.reader != self.reader {
            return Poll::Ready(None);
        }
        if std::mem::take(&mut state.torn) {
            return Poll::Ready(Some(sse::BROKEN_OFF));
        }
        let place = usize::try_from(state.at.saturating_sub(state.first())).unwrap_or(usize::MAX);
        let begun = state.begun;
        let held = state.held.get(place);
        let held = held.map(|held| (held.number, held.event.piece(begun, most), held.event.len()));
        if let Some((number, piece, length)) = held {
            if begun + piece.len() < length {
                state.begun += piece.len();
                return Poll::Ready(Some(piece));
            }
            state.begun = 0;
            state.at = number + 1;
            drop(state);
            self.replay.sent.notify_waiters();
            return Poll::Ready(Some(piece));
        }
        if state.over || state.resting {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl ReplayReader {
    /// How far this reader has read.
    #[must_use]
    pub fn progress(&self) -> ReadProgress {
        let state = self.replay.state();
        let is_read = state.over && state.at == state.next;
        match state.reader != self.reader || is_read {
            true => ReadProgress::Finished,
            false if state.begun > 0 || state.torn => ReadProgress::Within,
            false => ReadProgress::Between,
        }
    }
}

impl Drop for ReplayReader {
    fn drop(&mut self) {
        let mut state = self.replay.state();
        if state.reader == self.reader {
            state.attached = false;
            state.departure = DEPARTURES.fetch_add(1, Ordering::Relaxed);
            state.begun = 0;
            state.torn = false;
            state.resting = false;
            state.waker = None;
            state.over |= state.closing;
            drop(state);
            self.replay.sent.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EventMessage, FRAME, LONG_EVENT, ReplayBuffer, ReplayReader, read_id};
    use crate::base::share::Holder;
    use crate::stream::budget::{StreamBounds, StreamBudget};
    use crate::stream::queue::ReadProgress;
    use crate::stream::sse;
    use bytes::Bytes;
    use policy_core::subject::name::ServerName;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    fn holder(last: u8) -> Holder {
        Holder::network([192, 0, 2, last].into())
    }

    fn room() -> StreamBounds {
        StreamBounds {
            events: 4,
            bytes: 4096,
            all: StreamBudget::new(1 << 20, 1 << 20),
            holder: holder(1),
        }
    }

    /// The next event, if there is one to read now.
    fn next(reader: &mut ReplayReader) -> Option<Bytes> {
        match reader.poll_piece(&Context::from_waker(Waker::noop()), usize::MAX) {
            Poll::Ready(event) => event,
            Poll::Pending => None,
        }
    }

    /// The ids and data of what there is to read now.
    fn read(reader: &mut ReplayReader) -> Vec<(u64, String)> {
        let mut read = Vec::new();
        while let Some(event) = next(reader) {
            let text = String::from_utf8(event.to_vec()).unwrap();
            let field = |name: &str| {
                text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
            };
            read.push((read_id(&field("id:")).unwrap().1, field("data:")));
        }
        read
    }

    #[test]
    fn a_client_that_comes_back_gets_what_it_missed() {
        let stream = ReplayBuffer::new(7, room());
        stream.prime(Duration::from_secs(1));
        assert!(stream.try_push(b"a") && stream.try_push(b"b"));
        let mut first = stream.attach(None).unwrap();
        assert_eq!(read(&mut first), [(0, String::new()), (1, "a".into()), (2, "b".into())]);
        let mut second = stream.attach(Some(1)).unwrap();
        assert!(is_over(&mut first));
        assert_eq!(read(&mut second), [(2, "b".into())]);
        assert!(stream.try_push(b"c"));
        drop(second);
        stream.end();
        assert_eq!(read(&mut stream.attach(Some(2)).unwrap()), [(3, "c".into())]);
        assert!(stream.attach(Some(9)).is_none());
    }

    /// Whether this reader gets no more.
    fn is_over(reader: &mut ReplayReader) -> bool {
        let next = reader.poll_piece(&Context::from_waker(Waker::noop()), usize::MAX);
        matches!(next, Poll::Ready(None))
    }

    #[tokio::test]
    async fn data_of_any_length_is_read_whole_in_pieces_of_any_length() {
        for length in [0, 1, LONG_EVENT - 3, LONG_EVENT - 2, LONG_EVENT, 3 * LONG_EVENT] {
            for most in [7, 4096, usize::MAX] {
                let bounds = StreamBounds { bytes: 1 << 20, ..room() };
                let stream = ReplayBuffer::new(7, bounds);
                let json = vec![b'x'; length];
                stream.push_data(sse::event_of("", [&*json])).await;
                stream.end();
                let mut reader = stream.attach(None).unwrap();
                let mut text = Vec::new();
                let context = Context::from_waker(Waker::noop());
                while let Poll::Ready(Some(piece)) = reader.poll_piece(&context, most) {
                    assert!(!piece.is_empty() && piece.len() <= most);
                    text.extend_from_slice(&piece);
                }
                let head = "event: message\nid: 0000000000000007-0\ndata: ";
                assert_eq!(text, [head.as_bytes(), &json, b"\n\n"].concat(), "{length} {most}");
            }
        }
    }

    #[test]
    fn a_long_event_is_read_in_pieces_and_again_from_its_beginning() {
        let stream = ReplayBuffer::new(7, room());
        assert!(stream.try_push(&[b'x'; 100]) && stream.try_push(b"y"));
        stream.end();
        let piece = |reader: &mut ReplayReader, most: usize| match reader
            .poll_piece(&Context::from_waker(Waker::noop()), most)
        {
            Poll::Ready(Some(piece)) => piece,
            Poll::Ready(None) | Poll::Pending => panic!("there is more"),
        };
        let mut first = stream.attach(None).unwrap();
        assert_eq!(first.progress(), ReadProgress::Between);
        let begun = piece(&mut first, 90);
        assert_eq!((begun.len(), first.progress()), (90, ReadProgress::Within));
        let mut second = stream.attach(None).unwrap();
        assert_eq!(second.progress(), ReadProgress::Between);
        let whole = [piece(&mut second, 90), piece(&mut second, 90)].concat();
        assert!(whole.starts_with(&begun) && whole.ends_with(b"x\n\n"));
        assert_eq!(second.progress(), ReadProgress::Between);
        assert!(piece(&mut second, 90).ends_with(b"y\n\n"));
        assert_eq!(second.progress(), ReadProgress::Finished);
    }

    #[test]
    fn a_stream_that_ends_with_its_reader_can_be_read_to_its_end_by_who_comes_back() {
        let stream = ReplayBuffer::new(7, room());
        assert!(stream.try_push(b"a") && stream.try_push(b"b"));
        let mut first = stream.attach(None).unwrap();
        assert!(next(&mut first).is_some());
        stream.end_when_left();
        assert!(!stream.is_over());
        drop(first);
        assert!(stream.is_over());
        let mut second = stream.attach(Some(0)).unwrap();
        assert_eq!(read(&mut second), [(1, "b".into())]);
        assert!(is_over(&mut second));
        let empty = ReplayBuffer::new(8, room());
        empty.end_when_left();
        assert!(empty.is_over());
    }

    #[test]
    fn messages_of_a_server_can_be_taken_out_and_the_others_keep_their_ids() {
        let stream = ReplayBuffer::new(7, room());
        let [up, other] = ["up", "other"].map(|name| ServerName::parse(name).unwrap());
        assert!(stream.try_push(b"a"));
        assert!(
            stream.try_push_of(Some(&up), EventMessage::Json(b"b"))
                && stream.try_push_of(Some(&other), EventMessage::Json(b"c"))
        );
        let mut reader = stream.attach(None).unwrap();
        stream.withdraw_messages(Some(&up));
        let all: Vec<_> = std::iter::from_fn(|| next(&mut reader)).collect();
        let text = String::from_utf8(all.concat()).unwrap();
        assert!(
            text.contains("data: a\n") && text.contains("-1\n\n") && text.contains("data: c\n")
        );
        assert!(!text.contains("data: b"), "{text}");
        stream.withdraw_messages(None);
        let mut again = stream.attach(Some(0)).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| next(&mut again)).collect();
        assert!(!String::from_utf8(all.concat()).unwrap().contains("data"));
    }

    #[test]
    fn what_is_withdrawn_is_had_by_nobody() {
        for begun in [false, true] {
            let stream = ReplayBuffer::new(7, room());
            assert!(stream.try_push(b"a") && stream.try_push(&[b'x'; 100]));
            stream.end();
            let mut reader = stream.attach(None).unwrap();
            assert!(next(&mut reader).is_some());
            if begun {
                let piece = reader.poll_piece(&Context::from_waker(Waker::noop()), 80);
                assert!(piece.is_ready());
            }
            stream.withdraw(b"no");
            stream.withdraw(b"again");
            assert!(stream.is_over());
            let mut rest = String::new();
            while let Some(event) = next(&mut reader) {
                rest.push_str(std::str::from_utf8(&event).unwrap());
            }
            assert_eq!(rest.starts_with("\nevent: broken-off\n\n"), begun, "{rest}");
            assert!(rest.ends_with("-2\ndata: no\n\n") && !rest.contains('x'), "{rest}");
            assert_eq!(reader.progress(), ReadProgress::Finished);
            for last in [None, Some(0), Some(1)] {
                assert_eq!(read(&mut stream.attach(last).unwrap()), [(2, "no".into())]);
            }
            assert!(is_over(&mut stream.attach(Some(2)).unwrap()));
            assert!(stream.attach(Some(3)).is_none());
        }
    }

    #[test]
    fn what_was_not_sent_is_not_dropped() {
        let stream = ReplayBuffer::new(7, room());
        for message in [b"a", b"b", b"c", b"d"] {
            assert!(stream.try_push(message));
        }
        assert!(!stream.try_push(b"e"));
        let mut reader = stream.attach(None).unwrap();
        assert_eq!(read(&mut reader).len(), 4);
        assert!(stream.try_push(b"e"));
        // The first event had to make room.
        assert!(stream.attach(None).is_none());
    }

    #[test]
    fn what_all_streams_keep_together_is_bounded_and_given_back() {
        let event = 60 + FRAME;
        let all = StreamBudget::new(3 * event, 2 * event);
        let room = |who| StreamBounds {
            events: 100,
            bytes: 4096,
            all: Arc::clone(&all),
            holder: holder(who),
        };
        let (one, two) = (ReplayBuffer::new(1, room(1)), ReplayBuffer::new(2, room(1)));
        let message = [b'x'; 60];
        assert!(one.try_push(&message) && two.try_push(&message));
        assert!(!one.try_push(&message) && !all.has_room(&holder(1)), "it has taken its share");
        let other = ReplayBuffer::new(3, room(2));
        assert!(other.try_push(&message) && !other.try_push(&message), "all is taken");
        drop(two);
        assert!(one.try_push(&message));
    }

    #[test]
    fn a_stream_that_another_took_over_from_says_nothing_more() {
        let stream = ReplayBuffer::new(7, room());
        let mut reader = stream.attach(None).unwrap();
        stream.supersede();
        assert!(next(&mut reader).is_none() && !is_over(&mut reader) && !stream.is_over());
        drop(reader);
        assert!(stream.is_over());
    }

    #[test]
    fn an_id_has_one_spelling() {
        assert_eq!(read_id("00000000000000ff-10"), Some((255, 10)));
        for bad in ["ff-1", "00000000000000ff-01", "00000000000000ff-", "x", "00000000000000ff-1-2"]
        {
            assert_eq!(read_id(bad), None, "{bad}");
        }
    }

    proptest! {
        /// A client gets every message once and in order, no matter how often it loses its connection and how much it
        /// had read by then.
        #[test]
        fn nothing_is_lost_and_nothing_repeated(
            steps in prop::collection::vec((0..3usize, 0..4usize), 1..60),
        ) {
            let stream = ReplayBuffer::new(1, room());
            let (mut sent, mut got): (Vec<String>, Vec<(u64, String)>) = (Vec::new(), Vec::new());
            let mut reader: Option<ReplayReader> = stream.attach(None);
            for (push, keep) in steps {
                for _ in 0..push {
                    let message = sent.len().to_string();
                    if stream.try_push(message.as_bytes()) {
                        sent.push(message);
                    }
                }
                if let Some(mut reading) = reader.take() {
                    // Of what was handed out, the client may have received only the first few.
                    let handed = read(&mut reading);
                    let lost = keep == 3;
                    let kept = if lost { handed.len().min(1) } else { handed.len() };
                    got.extend(handed.into_iter().take(kept));
                    reader = if lost {
                        drop(reading);
                        let last = got.last().map(|(id, _)| *id);
                        Some(Arc::clone(&stream).attach(last).unwrap())
                    } else {
                        Some(reading)
                    };
                }
            }
            stream.end();
            let last = got.last().map(|(id, _)| *id);
            got.extend(read(&mut stream.attach(last).unwrap()));
            let got: Vec<_> = got.into_iter().map(|(_, data)| data).collect();
            prop_assert_eq!(got, sent);
        }
    }
}
