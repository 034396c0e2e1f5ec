//! Bounds the bytes that a peer may send before its TLS handshake is complete.
//!
//! A handshake message may be 64 KiB long, and rustls keeps what has come of one until it is whole. Peers that stop in the
//! middle of such a message would each hold that much for as long as a handshake may take, and nobody is charged for it,
//! because nobody is known yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a client may send before it was sent anything: a `ClientHello`. The longest that browsers and SDKs send,
/// with a post-quantum key share, a ticket and an encrypted name, are below 3 KiB.
pub const CLIENT_HELLO: usize = 8 * 1024;
/// Bytes that a client may send in all until the handshake is complete, where it is not asked for a certificate.
pub const HANDSHAKE: usize = 24 * 1024;
/// The same where the client is asked for a certificate, which it sends with those of the authorities in between.
pub const HANDSHAKE_WITH_CERTIFICATE: usize = 48 * 1024;

/// A connection of which a bounded number of bytes is read until [`Self::complete`] is called.
#[derive(Debug)]
pub struct HandshakeBound<S> {
    stream: S,
    /// The bytes that may still be read; `None` after the handshake.
    left: Option<usize>,
    /// How many of them come after the first bytes that were written.
    later: usize,
}

impl<S> HandshakeBound<S> {
    /// Bounds what is read of `stream` to `most` bytes, of which the first [`CLIENT_HELLO`] may come before anything was
    /// written.
    #[must_use]
    pub fn new(stream: S, most: usize) -> Self {
        Self {
            stream,
            left: Some(most.min(CLIENT_HELLO)),
            later: most.saturating_sub(CLIENT_HELLO),
        }
    }

    /// Ends the bound, because the handshake is complete.
    pub fn complete(&mut self) {
        self.left = None;
    }

    fn written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Some(left), Poll::Ready(Ok(1..))) = (&mut self.left, &written) {
            *left += std::mem::take(&mut self.later);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HandshakeBound<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if let Some(left) = &mut this.left {
            let new = buffer.filled().len() - before;
            let Some(rest) = left.checked_sub(new) else {
                let why = "the TLS handshake is longer than is read";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
            };
            *left = rest;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HandshakeBound<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.written(written)
    }

    forward_flush_and_shutdown!(stream);
}
