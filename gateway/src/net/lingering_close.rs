//! A connection wrapper that lets the peer read the last response before the connection is closed.
//!
//! A TCP socket that is closed while bytes of its peer are unread is reset, and the kernel then discards what it has not
//! sent yet (RFC 2525, section 2.17; RFC 9112, section 9.6). A client that is refused while it still sends (a body over
//! the limit, a connection over a limit of HTTP/2) would see a broken connection instead of the reason. Therefore the
//! sending direction is closed first, and what the peer sends after that is read and discarded within bounds.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a peer that goes on sending is read after the sending direction was closed.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// How many bytes of it are read and discarded.
const LINGER_BYTES: usize = 1024 * 1024;
/// Bytes that are read at once.
const PART: usize = 4 * 1024;

/// A connection whose shutdown reads and discards what its peer still sends.
#[derive(Debug)]
pub struct LingeringClose<S> {
    stream: S,
    stage: CloseStage,
}

/// The stage of a connection's shutdown.
#[derive(Debug)]
enum CloseStage {
    Open,
    /// The sending direction is closed.
    Discarding(Discarding),
    Closed,
}

/// The bounds within which a peer is read after the sending direction was closed.
#[derive(Debug)]
struct Discarding {
    /// Bytes that may still be read.
    left: usize,
    /// Set once the peer has sent something.
    until: Option<Pin<Box<Sleep>>>,
    /// Whether a read was pending in an earlier poll of the task.
    was_pending: bool,
}

impl<S> LingeringClose<S> {
    /// Wraps `stream`, usually a TCP connection: the bytes that are discarded are not decrypted.
    #[must_use]
    pub const fn new(stream: S) -> Self {
        Self { stream, stage: CloseStage::Open }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringClose<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl Discarding {
    const fn new() -> Self {
        Self { left: LINGER_BYTES, until: None, was_pending: false }
    }

    /// Reads and discards what the peer sends. Ready when the peer has closed its end, has sent nothing, or has used up
    /// its time or its bytes.
    fn poll<S: AsyncRead + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; PART];
        while self.left > 0 {
            let mut part = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut part) {
                Poll::Ready(Ok(())) if part.filled().is_empty() => break,
                Poll::Ready(Ok(())) => {
                    self.left = self.left.saturating_sub(part.filled().len());
                    self.until.get_or_insert_with(|| Box::pin(sleep(LINGER_TIME)));
                }
                Poll::Ready(Err(_)) => break,
                Poll::Pending => {
                    if let Some(until) = &mut self.until {
                        return until.as_mut().poll(cx);
                    }
                    if std::mem::replace(&mut self.was_pending, true) {
                        // Most likely the peer is idle: one that is sending has filled the receive buffer.
                        break;
                    }
                    // A task that has used up its cooperative budget sees nothing until its next poll.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringClose<S> {
    forward_writes!(stream);

    forward_flush!(stream);

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match &mut this.stage {
                CloseStage::Open => {
                    ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
                    this.stage = CloseStage::Discarding(Discarding::new());
                }
                CloseStage::Discarding(discarding) => {
                    ready!(discarding.poll(&mut this.stream, cx));
                    this.stage = CloseStage::Closed;
                }
                CloseStage::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LINGER_BYTES, LingeringClose};
    use std::future::Future as _;
    use std::io;
    use std::task::{Context, Poll, Waker};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    /// Bytes of a response.
    const RESPONSE: usize = 512 * 1024;

    /// Both ends of a connection over loopback.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    /// What a client reads of a response that does not fit its receive buffer, if it has sent `bytes` bytes that the
    /// server does not read.
    async fn read_by_client(bytes: usize) -> io::Result<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        let mut client = socket.connect(listener.local_addr()?).await?;
        let mut server = LingeringClose::new(listener.accept().await?.0);
        client.write_all(&vec![b'x'; bytes]).await?;
        server.read_exact(&mut [0; 1]).await?;
        let closed = async {
            server.write_all(&vec![b'r'; RESPONSE]).await.unwrap();
            server.shutdown().await.unwrap();
            drop(server);
        };
        let read = async {
            let mut read = Vec::new();
            client.read_to_end(&mut read).await?;
            // Only now does the client close its end.
            drop(client);
            Ok(read)
        };
        tokio::join!(closed, read).1
    }

    #[tokio::test]
    async fn a_client_that_still_sends_reads_the_last_response() {
        for bytes in [2, 10_000, 50_000] {
            assert_eq!(read_by_client(bytes).await.unwrap().len(), RESPONSE, "{bytes}");
        }
    }

    #[tokio::test]
    async fn a_client_that_sends_now_and_then_is_read_for_a_bounded_time() {
        let (mut client, server) = connected().await;
        let mut server = LingeringClose::new(server);
        client.write_all(b"xx").await.unwrap();
        server.read_exact(&mut [0; 1]).await.unwrap();
        // The client keeps its end open.
        server.shutdown().await.unwrap();
        assert!(client.write_all(b"x").await.is_ok());
    }

    #[tokio::test]
    async fn a_client_that_sends_without_end_is_read_for_a_bounded_number_of_bytes() {
        let (client, mut endless) = tokio::io::duplex(64 * 1024);
        let mut server = LingeringClose::new(client);
        let sending = async move {
            let mut sent = 0;
            while endless.write_all(&[b'x'; 1024]).await.is_ok() {
                sent += 1024;
            }
            sent
        };
        let closing = async move {
            server.read_exact(&mut [0; 1]).await.unwrap();
            server.shutdown().await.unwrap();
            drop(server);
        };
        let (sent, ()) = tokio::join!(sending, closing);
        assert!((LINGER_BYTES..2 * LINGER_BYTES).contains(&sent), "{sent}");
    }

    #[tokio::test]
    async fn a_client_that_is_idle_is_not_waited_for() {
        let (_client, server) = connected().await;
        let mut server = LingeringClose::new(server);
        let mut closed = std::pin::pin!(server.shutdown());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(closed.as_mut().poll(&mut cx).is_pending());
        assert!(matches!(closed.as_mut().poll(&mut cx), Poll::Ready(Ok(()))));
    }
}
