//! Bodies: those that come, and those of our answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

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

    /// All of it.
    #[must_use]
    pub fn whole(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

/// A body: parts that are there already, or a stream of events.
#[derive(Debug)]
pub enum Body {
    /// These parts, one after the other; they are not copied together.
    Parts(VecDeque<Bytes>),
    /// What comes, until the sender is gone.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body {
    /// Nothing.
    #[must_use]
    pub const fn empty() -> Self {
        Self::Parts(VecDeque::new())
    }

    /// How many bytes there are already.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Parts(parts) => parts.iter().map(Bytes::len).sum(),
            Self::Stream(_) => 0,
        }
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
        match self.get_mut() {
            Self::Parts(parts) => Poll::Ready(parts.pop_front().map(|part| Ok(Frame::data(part)))),
            Self::Stream(events) => {
                events.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Parts(parts) if parts.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Parts(_) => SizeHint::with_exact(self.length() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
