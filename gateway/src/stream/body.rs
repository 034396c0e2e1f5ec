//! HTTP bodies: collects bodies that arrive in pieces (`BodyCollector`) and defines the response body of the gateway (`Body`).
//! The edge and the exchange build responses from it, and the listener and the bridge poll it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::base::intake::ResponseAccount;
use crate::base::segments::{SegmentBuffer, Segments};
use crate::stream::queue::{self, ReadProgress};
use crate::stream::replay::ReplayReader;
use crate::stream::sse;

/// Idle time after which an event stream sends a comment as keep-alive. Common proxies close a connection that was
/// silent for a minute.
const QUIET: Duration = Duration::from_secs(15);

/// Largest frame that is handed to the connection at a time. The connection polls for the next frame when most of the
/// previous one is written, so that bytes the client has not read stay in the body, where they are counted.
pub(crate) const PIECE: usize = 64 * 1024;

/// Collects a body that arrives in pieces, up to a limit. A body of a single piece is not copied.
#[derive(Debug)]
pub struct BodyCollector {
    first: Bytes,
    more: SegmentBuffer,
    expected: usize,
    limit: usize,
}

/// The body is longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyTooLong;

impl BodyCollector {
    /// An empty collector for a body whose declared length is `expected` bytes.
    ///
    /// # Errors
    /// If `expected` exceeds `limit`.
    pub fn expecting(expected: u64, limit: usize) -> Result<Self, BodyTooLong> {
        let expected = usize::try_from(expected).map_err(|_more_than_memory| BodyTooLong)?;
        if expected > limit {
            return Err(BodyTooLong);
        }
        Ok(Self { first: Bytes::new(), more: SegmentBuffer::new(), expected, limit })
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// If the body exceeds the limit with this piece.
    pub fn push(&mut self, piece: Bytes) -> Result<(), BodyTooLong> {
        if self.length() + piece.len() > self.limit {
            return Err(BodyTooLong);
        }
        if self.length() == 0 {
            self.first = piece;
            return Ok(());
        }
        if self.more.is_empty() {
            self.more.expect(self.expected);
            self.more.push(&std::mem::take(&mut self.first));
        }
        self.more.push(&piece);
        Ok(())
    }

    /// Bytes collected so far.
    #[must_use]
    pub fn length(&self) -> usize {
        self.first.len() + self.more.len()
    }

    /// Takes the whole body out; the collector is empty then.
    #[must_use]
    pub fn take(&mut self) -> Segments {
        if self.more.is_empty() { std::mem::take(&mut self.first).into() } else { self.more.take() }
    }
}

/// The body of a response: parts in memory, or a stream of events.
#[derive(Debug)]
pub enum Body {
    /// Parts that are sent one after the other, without being copied together.
    Parts(VecDeque<Bytes>),
    /// Parts of an upstream server's response, charged to the caller's memory share until they are sent.
    Counted(VecDeque<Bytes>, ResponseAccount),
    /// Events from a queue; the body ends when the sender is dropped or ends the queue.
    Stream(queue::EventReceiver, KeepAlive),
    /// Events of a stream that is kept for replay.
    Replay(ReplayReader, KeepAlive),
    /// Another body, which is ended early when its lease ends.
    Leased(Box<Self>, Lease),
}

/// An extension of a response that belongs to no call: its stream stays open for as long as the client listens, and is
/// silent for most of that time.
#[derive(Clone, Copy, Debug)]
pub struct HeldOpen;

/// The lease of a response ended before all of it was handed to the connection. HTTP cannot say so in band: the
/// connection is closed, or the HTTP/2 stream is reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the right to the answer has ended")]
pub struct CutOff {
    /// The JSON-RPC error to send instead, for transports that can still send one.
    pub told: Option<Bytes>,
}

/// How a response ends whose lease has ended.
pub struct Termination {
    /// The JSON-RPC message that replaces what was not read, if any.
    pub told: Option<Bytes>,
    /// Called if part of the response was not read; dropped uncalled if all of it was.
    pub on_cut: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Termination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Termination").field("told", &self.told).finish_non_exhaustive()
    }
}

/// A future that resolves when a response has to end, because the caller may no longer receive it.
pub struct Lease(Pin<Box<dyn Future<Output = Termination> + Send>>);

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lease(..)")
    }
}

impl Lease {
    /// A lease that ends when `over` resolves.
    #[must_use]
    pub fn new(over: impl Future<Output = Termination> + Send + 'static) -> Self {
        Self(Box::pin(over))
    }
}

/// Timer of the keep-alive comment of an event stream.
#[derive(Debug)]
pub struct KeepAlive(Pin<Box<Sleep>>);

impl KeepAlive {
    fn start() -> Self {
        Self(Box::pin(sleep_until(Instant::now() + QUIET)))
    }

    /// Starts the idle time anew, after something was sent.
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
    /// A body of zero bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self::Parts(VecDeque::new())
    }

    /// A body that streams the events of a queue.
    #[must_use]
    pub fn stream(events: queue::EventReceiver) -> Self {
        Self::Stream(events, KeepAlive::start())
    }

    /// A body that streams the events of a replay buffer.
    #[must_use]
    pub fn replay(reader: ReplayReader) -> Self {
        Self::Replay(reader, KeepAlive::start())
    }

    /// Charges the body to `share` until all of it is handed to the connection. Streams are unchanged: they have a
    /// budget of their own.
    #[must_use]
    pub fn counted(self, share: Option<ResponseAccount>) -> Self {
        match (self, share) {
            (Self::Parts(parts), Some(share)) => Self::Counted(parts, share),
            (body, _) => body,
        }
    }

    /// Whether the body is handed to the connection in one frame, so that none of it can be taken back.
    #[must_use]
    pub fn is_one_piece(&self) -> bool {
        matches!(self, Self::Parts(_) | Self::Counted(..)) && self.length() <= PIECE
    }

    /// Takes the memory share out of the body, for a caller that holds it until the body is sent.
    #[must_use]
    pub fn uncounted(&mut self) -> Option<ResponseAccount> {
        match std::mem::replace(self, Self::empty()) {
            Self::Counted(parts, share) => {
                *self = Self::Parts(parts);
                Some(share)
            }
            Self::Leased(mut body, lease) => {
                let share = body.uncounted();
                *self = Self::Leased(body, lease);
                share
            }
            body @ (Self::Parts(_) | Self::Stream(..) | Self::Replay(..)) => {
                *self = body;
                None
            }
        }
    }

    /// Whether the body is a stream of events.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        match self {
            Self::Stream(..) | Self::Replay(..) => true,
            Self::Parts(_) | Self::Counted(..) => false,
            Self::Leased(body, _) => body.is_stream(),
        }
    }

    /// Ends the body when `lease` ends, unless all of it was read before. A stream then ends with the termination's
    /// message as its last event; any other body breaks off with [`CutOff`].
    #[must_use]
    pub fn leased(self, lease: Lease) -> Self {
        Self::Leased(Box::new(self), lease)
    }

    /// The rest of this body once its lease has ended; what was not read is discarded.
    ///
    /// # Errors
    /// If the body is not a stream and was not read completely.
    fn ended_with(&self, Termination { told, on_cut }: Termination) -> Result<Self, CutOff> {
        let progress = match self {
            Self::Stream(events, _) => events.progress(),
            Self::Replay(reader, _) => reader.progress(),
            Self::Parts(_) | Self::Counted(..) if http_body::Body::is_end_stream(self) => {
                ReadProgress::Finished
            }
            Self::Parts(_) | Self::Counted(..) => {
                on_cut();
                return Err(CutOff { told });
            }
            // INVARIANT: a leased body never wraps another leased body.
            Self::Leased(..) => ReadProgress::Finished,
        };
        if progress == ReadProgress::Finished {
            return Ok(Self::empty());
        }
        on_cut();
        Ok(match (progress, told.map(|told| sse::encode(&told))) {
            (_, None) | (ReadProgress::Finished, _) => Self::empty(),
            (ReadProgress::Between, Some(last)) => last.into(),
            (ReadProgress::Within, Some(last)) => Self::Parts([sse::BROKEN_OFF, last].into()),
        })
    }

    /// Length in bytes of the parts in memory; zero for a stream.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Parts(parts) | Self::Counted(parts, _) => parts.iter().map(Bytes::len).sum(),
            Self::Stream(..) | Self::Replay(..) => 0,
            Self::Leased(body, _) => body.length(),
        }
    }
}

/// Takes the next frame of at most [`PIECE`] bytes from `parts`, without copying.
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
    type Error = CutOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let this = self.get_mut();
        if let Self::Leased(body, lease) = this {
            match lease.0.as_mut().poll(cx) {
                Poll::Pending => return Pin::new(&mut **body).poll_frame(cx),
                Poll::Ready(termination) => {
                    let (rest, cut) = match body.ended_with(termination) {
                        Ok(rest) => (rest, None),
                        Err(cut) => (Self::empty(), Some(cut)),
                    };
                    *this = rest;
                    if let Some(cut) = cut {
                        return Poll::Ready(Some(Err(cut)));
                    }
                }
            }
        }
        let (event, pulse) = match this {
            Self::Parts(parts) | Self::Counted(parts, _) => {
                return Poll::Ready(piece(parts).map(|part| Ok(Frame::data(part))));
            }
            // INVARIANT: `ended_with` never returns a leased body.
            Self::Leased(..) => return Poll::Ready(None),
            Self::Stream(events, pulse) => (events.poll_piece(cx, PIECE), pulse),
            Self::Replay(reader, pulse) => (reader.poll_piece(cx, PIECE), pulse),
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
        match self {
            Self::Parts(parts) | Self::Counted(parts, _) => parts.is_empty(),
            Self::Stream(..) | Self::Replay(..) => false,
            Self::Leased(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Parts(_) | Self::Counted(..) => SizeHint::with_exact(self.length() as u64),
            Self::Stream(..) | Self::Replay(..) => SizeHint::default(),
            Self::Leased(body, _) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use http_body::Body as _;
    use tokio::sync::oneshot;

    use super::{Body, CutOff, Lease, PIECE, Termination};

    fn frame(body: &mut Body) -> Option<Result<usize, CutOff>> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => {
                frame.map(|frame| frame.map(|frame| frame.into_data().unwrap().len()))
            }
            Poll::Pending => panic!("there is more"),
        }
    }

    #[test]
    fn an_answer_breaks_off_when_the_right_to_it_ends_before_its_last_piece() {
        for (read, is_cut) in [(1, true), (2, true), (3, false)] {
            let cuts = Arc::new(AtomicUsize::new(0));
            let (end, ended) = oneshot::channel::<()>();
            let counted = Arc::clone(&cuts);
            let lease = Lease::new(async move {
                ended.await.unwrap_or_default();
                let on_cut = Box::new(move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                });
                Termination { told: Some(Bytes::from_static(b"{}")), on_cut }
            });
            let mut body = Body::from(vec![b'x'; 2 * PIECE + 1]).leased(lease);
            assert_eq!(body.size_hint().exact(), Some(2 * PIECE as u64 + 1));
            for _ in 0..read {
                assert!(frame(&mut body).unwrap().is_ok());
            }
            drop(end);
            let told = Some(Bytes::from_static(b"{}"));
            assert_eq!(frame(&mut body), is_cut.then_some(Err(CutOff { told })));
            assert_eq!(frame(&mut body), None);
            assert_eq!(cuts.load(Ordering::Relaxed), usize::from(is_cut));
        }
    }
}
