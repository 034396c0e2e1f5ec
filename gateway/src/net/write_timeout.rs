//! A connection wrapper that fails when a write makes no progress, and that yields to other tasks when much is
//! transferred.
//!
//! Otherwise a client that stops reading would hold the bytes written for it, and its connection, for ever
//! (vectors PV-28, PV-29; control C33), and a client that sends or reads a long message would hold the worker thread
//! until all of it is transferred.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::base::fair::ReadBudget;

/// Most bytes that are written in one system call, during which the thread does nothing else.
const PIECE: usize = 64 * 1024;

/// A connection whose writes time out and whose transfers yield to other tasks.
#[derive(Debug)]
pub struct WriteTimeout<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write is pending.
    waiting: Option<Pin<Box<Sleep>>>,
    /// The transferred bytes, in both directions, which determine when to yield.
    moved: ReadBudget,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WriteTimeout<S> {
    /// Wraps `stream`; a write that is pending for `patience` fails with `TimedOut`.
    #[must_use]
    pub const fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None, moved: ReadBudget::new() }
    }

    /// Writes when it is this task's turn, and counts the written bytes.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.moved.poll_turn(cx));
        let written = self.watched(cx, write);
        if let Poll::Ready(Ok(bytes)) = &written {
            self.moved.took(*bytes);
        }
        written
    }

    fn watched<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.stream), cx);
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let until = Instant::now() + self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(until)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let patient = self.get_mut();
        ready!(patient.moved.poll_turn(cx));
        let before = buffer.filled().len();
        let read = Pin::new(&mut patient.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            patient.moved.took(bytes);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let piece = bytes.get(..PIECE).unwrap_or(bytes);
        self.get_mut().write(cx, |stream, cx| stream.poll_write(cx, piece))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // As many parts as fit the limit, and at least one.
        let mut left = PIECE;
        let fits = |part: &&io::IoSlice<'_>| {
            let fits = left > 0;
            left = left.saturating_sub(part.len());
            fits
        };
        let count = parts.iter().take_while(fits).count();
        let first = parts.get(..count).unwrap_or(parts);
        if let [only] = first {
            return self.poll_write(cx, only);
        }
        self.get_mut().write(cx, |stream, cx| stream.poll_write_vectored(cx, first))
    }

    forward_flush_and_shutdown!(stream);
}
