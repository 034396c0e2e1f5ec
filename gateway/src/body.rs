//! Bodies of our answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

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
