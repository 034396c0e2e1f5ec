//! Takes a stream that is open for hours away from hyper: once the head of the response is written, the connection goes
//! to a [`ChunkedWriter`], which needs no buffers while the stream is silent.
//!
//! hyper is given a body that never yields anything, and writes the head for it. When the head has left hyper's buffer,
//! the connection is taken apart, and the real body is written to it. The response says `Connection: close`, because no
//! request is read after it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Response, Version};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::chunked_writer::ChunkedWriter;
use crate::net::forward_writes;
use crate::stream::body::{Body, CutOff, HeldOpen};

/// No response is handed over, or hyper has not written its head.
const NOT_BEGUN: u8 = 0;
/// hyper has the head in its buffer, because it has asked for the body.
const HEAD_BUFFERED: u8 = 1;
/// The head was written: hyper has flushed its buffer since.
const HEAD_WRITTEN: u8 = 2;

/// The response of a connection that is handed over, if one is.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    body: Mutex<Option<Body>>,
    stage: AtomicU8,
}

/// The body of a response, as hyper sees it.
#[derive(Debug)]
pub(super) enum ServedBody {
    /// It is sent by hyper.
    Own(Body),
    /// It is sent by a [`ChunkedWriter`] after hyper has written the head.
    HandedOver(Arc<HandOver>),
}

/// A connection that tells a [`HandOver`] when its buffer was flushed.
#[derive(Debug)]
pub(super) struct FlushedStream<S> {
    stream: S,
    hand_over: Arc<HandOver>,
}

impl HandOver {
    /// Keeps the body of a response that stays open. One to a client of HTTP/1.0 is left to hyper, because it is not
    /// chunked.
    pub(super) fn take(
        self: &Arc<Self>,
        version: Version,
        mut response: Response<Body>,
    ) -> Response<ServedBody> {
        let is_held = response.extensions_mut().remove::<HeldOpen>().is_some();
        if !is_held || version != Version::HTTP_11 {
            return response.map(ServedBody::Own);
        }
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response.map(|body| {
            *self.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
            ServedBody::HandedOver(Arc::clone(self))
        })
    }

    /// Whether the connection can be taken from hyper.
    pub(super) fn is_ready(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == HEAD_WRITTEN
    }

    /// The writer of the body; `None` if no response was handed over.
    pub(super) fn writer<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: FlushedStream<S>,
    ) -> Option<ChunkedWriter<S, Body>> {
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner).take();
        body.map(|body| ChunkedWriter::new(stream.stream, body))
    }
}

impl<S> FlushedStream<S> {
    pub(super) const fn new(stream: S, hand_over: Arc<HandOver>) -> Self {
        Self { stream, hand_over }
    }
}

impl http_body::Body for ServedBody {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(cx),
            Self::HandedOver(hand_over) => {
                // hyper asks for a body after it has put the head into its buffer.
                if hand_over.stage.load(Ordering::Relaxed) == NOT_BEGUN {
                    hand_over.stage.store(HEAD_BUFFERED, Ordering::Relaxed);
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::HandedOver(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::HandedOver(_) => SizeHint::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FlushedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FlushedStream<S> {
    forward_writes!(stream);

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        // hyper flushes the connection when its own buffer is empty.
        if matches!(flushed, Poll::Ready(Ok(())))
            && this.hand_over.stage.load(Ordering::Relaxed) == HEAD_BUFFERED
        {
            this.hand_over.stage.store(HEAD_WRITTEN, Ordering::Relaxed);
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
