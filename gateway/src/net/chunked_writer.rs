//! Writes the body of a response in the chunked coding of HTTP/1.1, without buffers while there is nothing to write.
//!
//! hyper keeps 16 KiB or more for a connection while its response is under way. A stream that is open for hours and
//! silent for most of them is written by this writer instead, once hyper has written the head of the response.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::chunked::{CHUNK_END, LAST_CHUNK, size_line};

/// Bytes that are read at once.
const READ: usize = 1024;
/// Most bytes that a client sends during its last response and that are discarded. After that, the connection ends: the
/// client was told that nothing more is answered on it, and without reading on nobody would see that it has left.
const DISCARDED: usize = 64 * 1024;

/// A connection on which the rest of the last response is written.
#[derive(Debug)]
pub struct ChunkedWriter<S, B> {
    stream: S,
    body: B,
    /// The parts of the current chunk that are not written yet.
    unwritten: [Bytes; 3],
    stage: WriteStage,
    /// Bytes that may still be discarded.
    left: usize,
}

/// What is written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStage {
    /// Chunks of the body.
    Body,
    /// The last chunk, of zero bytes (RFC 9112, section 7.1).
    End,
    /// Nothing: the sending direction is closed.
    Shutdown,
}

impl<S, B> ChunkedWriter<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    /// Writes `body` to `stream`.
    #[must_use]
    pub const fn new(stream: S, body: B) -> Self {
        let unwritten = [Bytes::new(), Bytes::new(), Bytes::new()];
        Self { stream, body, unwritten, stage: WriteStage::Body, left: DISCARDED }
    }

    /// Writes the body to its end and closes the connection, or stops when the client has closed it.
    ///
    /// # Errors
    /// If the connection or the body fails. The client sees that the response is incomplete.
    pub async fn finish(mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stage != WriteStage::Shutdown && self.is_deserted(cx)? {
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.poll_write(cx))?;
            match self.stage {
                WriteStage::Body => match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        // There are no trailers, and an empty chunk would end the body.
                        let data = frame.into_data().ok().filter(|data| !data.is_empty());
                        if let Some(data) = data {
                            let end = Bytes::from_static(CHUNK_END);
                            self.unwritten = [size_line(data.len()), data, end];
                        }
                    }
                    Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                    None => {
                        let last = Bytes::from_static(LAST_CHUNK);
                        self.unwritten = [last, Bytes::new(), Bytes::new()];
                        self.stage = WriteStage::End;
                    }
                },
                WriteStage::End => self.stage = WriteStage::Shutdown,
                WriteStage::Shutdown => return Pin::new(&mut self.stream).poll_shutdown(cx),
            }
        }
    }

    /// Writes and flushes what is unwritten.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unwritten.iter().all(Bytes::is_empty) && self.stage == WriteStage::Shutdown {
            return Poll::Ready(Ok(()));
        }
        while self.unwritten.iter().any(|part| !part.is_empty()) {
            let parts = self.unwritten.each_ref().map(|part| io::IoSlice::new(part));
            let written = Pin::new(&mut self.stream).poll_write_vectored(cx, &parts);
            let mut written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            for part in &mut self.unwritten {
                let most = written.min(part.len());
                part.advance(most);
                written -= most;
                if part.is_empty() {
                    // The memory of a chunk is released as soon as it is written.
                    *part = Bytes::new();
                }
            }
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Whether the client has closed the connection. What it sends instead is discarded: it was told that this response
    /// is the last one of the connection.
    fn is_deserted(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut room = [const { MaybeUninit::uninit() }; READ];
        while self.left > 0 {
            let mut buffer = ReadBuf::uninit(&mut room);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Ok(true);
            }
            self.left = self.left.saturating_sub(buffer.filled().len());
        }
        Err(io::Error::other("the client went on sending after its last request"))
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkedWriter, DISCARDED};
    use crate::base::segments::Segments;
    use bytes::Bytes;
    use http_body::{Body, Frame};
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A body that never has anything, or fails.
    struct Quiet(Option<io::Error>);

    impl Body for Quiet {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            match self.get_mut().0.take() {
                Some(error) => Poll::Ready(Some(Err(error))),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test]
    async fn every_part_is_a_chunk_and_the_end_is_marked() {
        for room in [1, 3, 64, 4096] {
            let (mut client, server) = tokio::io::duplex(room);
            let long = "x".repeat(300);
            let parts = vec![(3, Bytes::from(long.clone()))];
            let body = Segments::woven(b"abcdef".to_vec(), parts);
            let mut text = Vec::new();
            let (written, read) = tokio::join!(
                ChunkedWriter::new(server, body).finish(),
                client.read_to_end(&mut text)
            );
            assert!(written.is_ok() && read.is_ok());
            let expected = format!("3\r\nabc\r\n12c\r\n{long}\r\n3\r\ndef\r\n0\r\n\r\n");
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_body_that_fails_has_no_end() {
        let (mut client, server) = tokio::io::duplex(64);
        let body = Quiet(Some(io::ErrorKind::Other.into()));
        assert!(ChunkedWriter::new(server, body).finish().await.is_err());
        let mut text = Vec::new();
        client.read_to_end(&mut text).await.unwrap();
        assert_eq!(text, b"");
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_noticed_whatever_it_has_sent() {
        let (mut client, server) = tokio::io::duplex(64);
        let writing = ChunkedWriter::new(server, Quiet(None)).finish();
        let leaving = async {
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            client.shutdown().await.unwrap();
        };
        assert!(tokio::join!(writing, leaving).0.is_ok());
    }

    #[tokio::test]
    async fn a_client_that_sends_without_end_is_cut_off() {
        let (mut client, server) = tokio::io::duplex(1024);
        let writing = ChunkedWriter::new(server, Quiet(None)).finish();
        let sending = async {
            let mut sent = 0;
            while client.write_all(&[b'x'; 512]).await.is_ok() {
                sent += 512;
            }
            sent
        };
        let (written, sent) = tokio::join!(writing, sending);
        assert!(written.is_err());
        assert!((DISCARDED..=DISCARDED + 2048).contains(&sent), "{sent}");
    }
}
