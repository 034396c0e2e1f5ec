//! Bodies: those that come, and those of our answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::intake::Received;
use crate::queue::{self, Progress};
use crate::replay::Reader;
use crate::sse;

/// How long a stream says nothing before it says that it is alive. Proxies close what was silent
/// for a minute.
const QUIET: Duration = Duration::from_secs(15);

/// Most bytes that are given to a connection at a time. It takes the next when it has written most of those before: what
/// a client does not read stays here, where it is counted.
pub(crate) const PIECE: usize = 64 * 1024;

/// A body that comes in pieces, up to a limit. One that comes in one piece is not copied.
#[derive(Debug)]
pub struct Pieces {
    first: Bytes,
    more: BytesMut,
    expected: usize,
    limit: usize,
}

/// More than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Pieces {
    /// Nothing yet of a body that says it has `expected` bytes.
    ///
    /// # Errors
    /// When that is more than `limit` already.
    pub fn expecting(expected: u64, limit: usize) -> Result<Self, TooLong> {
        let expected = usize::try_from(expected).map_err(|_more_than_memory| TooLong)?;
        if expected > limit {
            return Err(TooLong);
        }
        Ok(Self { first: Bytes::new(), more: BytesMut::new(), expected, limit })
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// When it is more than the limit with it.
    pub fn push(&mut self, piece: Bytes) -> Result<(), TooLong> {
        if self.first.len() + self.more.len() + piece.len() > self.limit {
            return Err(TooLong);
        }
        if self.first.is_empty() && self.more.is_empty() {
            self.first = piece;
            return Ok(());
        }
        if self.more.is_empty() {
            self.more.reserve(self.expected.max(self.first.len() + piece.len()));
            self.more.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(&piece);
        Ok(())
    }

    /// How much has come.
    #[must_use]
    pub fn length(&self) -> usize {
        self.first.len() + self.more.len()
    }

    /// All of it.
    #[must_use]
    pub fn whole(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

/// The text of a message that is sent: parts, one after the other. What was not changed of what came in is a part of
/// this as well, and not copied.
#[derive(Clone, Debug, Default)]
pub struct Segments(VecDeque<Bytes>);

impl Segments {
    /// `text`, into which these parts belong, each in front of the byte with the number that stands with it. The numbers
    /// go up.
    #[must_use]
    pub fn woven(text: Vec<u8>, parts: Vec<(usize, Bytes)>) -> Self {
        let mut rest = Bytes::from(text);
        let (mut done, mut all) = (0, VecDeque::with_capacity(1 + 2 * parts.len()));
        for (at, part) in parts {
            all.push_back(rest.split_to(at.saturating_sub(done).min(rest.len())));
            all.push_back(part);
            done = at;
        }
        all.push_back(rest);
        all.retain(|part| !part.is_empty());
        Self(all)
    }

    /// How many bytes there are.
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// The parts in their order; none of them is empty.
    pub fn parts(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }

    /// Takes the first part out.
    pub fn first(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }
}

impl<T: Into<Bytes>> From<T> for Segments {
    fn from(text: T) -> Self {
        let text = text.into();
        Self(if text.is_empty() { VecDeque::new() } else { [text].into() })
    }
}

impl http_body::Body for Segments {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().first().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length() as u64)
    }
}

/// A body: parts that are there already, or a stream of events.
#[derive(Debug)]
pub enum Body {
    /// These parts, one after the other; they are not copied together.
    Parts(VecDeque<Bytes>),
    /// The same of a server's answer, which takes of the share of its caller until it is sent.
    Counted(VecDeque<Bytes>, Received),
    /// Events as they come, until the sender is gone.
    Stream(queue::Receiver, Pulse),
    /// Events of a stream that is kept.
    Replay(Reader, Pulse),
    /// One of these, until the right to it ends.
    Leased(Box<Self>, Lease),
}

/// Resolves when a stream has to end, with the event that is sent last, if there is one.
pub struct Lease(Pin<Box<dyn Future<Output = Option<Bytes>> + Send>>);

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lease(..)")
    }
}

impl Lease {
    /// A lease that ends with `over`.
    #[must_use]
    pub fn new(over: impl Future<Output = Option<Bytes>> + Send + 'static) -> Self {
        Self(Box::pin(over))
    }
}

/// When to say that a stream is alive.
#[derive(Debug)]
pub struct Pulse(Pin<Box<Sleep>>);

impl Pulse {
    fn start() -> Self {
        Self(Box::pin(sleep_until(Instant::now() + QUIET)))
    }

    /// Something was said.
    fn restart(&mut self) {
        self.0.as_mut().reset(Instant::now() + QUIET);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.0.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.restart();
        Poll::Ready(Some(sse::ALIVE))
    }
}

impl Body {
    /// Nothing.
    #[must_use]
    pub const fn empty() -> Self {
        Self::Parts(VecDeque::new())
    }

    /// Events as they come.
    #[must_use]
    pub fn stream(events: queue::Receiver) -> Self {
        Self::Stream(events, Pulse::start())
    }

    /// Events of a stream that is kept.
    #[must_use]
    pub fn replay(reader: Reader) -> Self {
        Self::Replay(reader, Pulse::start())
    }

    /// The same, which takes of a share until all of it was given to the connection. Streams have room of their own.
    #[must_use]
    pub fn counted(self, share: Option<Received>) -> Self {
        match (self, share) {
            (Self::Parts(parts), Some(share)) => Self::Counted(parts, share),
            (body, _) => body,
        }
    }

    /// The same until `lease` ends, and then its last event, unless the stream has come to its end before.
    #[must_use]
    pub fn leased(self, lease: Lease) -> Self {
        Self::Leased(Box::new(self), lease)
    }

    /// What is left of a stream that ends with the event `last`, whatever has come and was not read.
    fn ended_with(&self, last: Option<Bytes>) -> Self {
        let progress = match self {
            Self::Stream(events, _) => events.progress(),
            Self::Replay(reader, _) => reader.progress(),
            Self::Parts(_) | Self::Counted(..) | Self::Leased(..) => Progress::Finished,
        };
        match (progress, last) {
            (Progress::Finished, _) | (_, None) => Self::empty(),
            (Progress::Between, Some(last)) => last.into(),
            (Progress::Within, Some(last)) => Self::Parts([sse::BROKEN_OFF, last].into()),
        }
    }

    /// How many bytes there are already.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Parts(parts) | Self::Counted(parts, _) => parts.iter().map(Bytes::len).sum(),
            Self::Stream(..) | Self::Replay(..) | Self::Leased(..) => 0,
        }
    }
}

/// The next piece of these parts. Nothing is copied.
fn piece(parts: &mut VecDeque<Bytes>) -> Option<Bytes> {
    match parts.front_mut() {
        Some(part) if part.len() > PIECE => Some(part.split_to(PIECE)),
        Some(_) | None => parts.pop_front(),
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(part: T) -> Self {
        Self::Parts(VecDeque::from([part.into()]))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Self::Leased(body, lease) = this {
            match lease.0.as_mut().poll(cx) {
                Poll::Pending => return Pin::new(&mut **body).poll_frame(cx),
                Poll::Ready(last) => *this = body.ended_with(last),
            }
        }
        let (event, pulse) = match this {
            Self::Parts(parts) | Self::Counted(parts, _) => {
                return Poll::Ready(piece(parts).map(|part| Ok(Frame::data(part))));
            }
            // INVARIANT: what is left of one has no lease.
            Self::Leased(..) => return Poll::Ready(None),
            Self::Stream(events, pulse) => (events.poll_piece(cx, PIECE), pulse),
            Self::Replay(reader, pulse) => (reader.poll(cx), pulse),
        };
        let event = match event {
            Poll::Ready(event) => {
                pulse.restart();
                Poll::Ready(event)
            }
            Poll::Pending => pulse.poll(cx),
        };
        event.map(|event| event.map(|event| Ok(Frame::data(event))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Parts(parts) | Self::Counted(parts, _) if parts.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Parts(_) | Self::Counted(..) => SizeHint::with_exact(self.length() as u64),
            Self::Stream(..) | Self::Replay(..) | Self::Leased(..) => SizeHint::default(),
        }
    }
}
