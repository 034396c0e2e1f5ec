//! Network connections of the gateway, in both directions: egress rules, server verification, HTTP/1.1 framing, HTTP/2.

/// The writes of `AsyncWrite`, of a wrapper that leaves them to the connection in its field `$inner`.
macro_rules! forward_writes {
    ($inner:ident) => {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.get_mut().$inner).poll_write(cx, bytes)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            parts: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.get_mut().$inner).poll_write_vectored(cx, parts)
        }
    };
}

pub(crate) use forward_writes;

/// The methods of `AsyncWrite` besides its writes that the wrappers of a connection leave to the connection in their
/// field `$inner`.
macro_rules! forward_flush_and_shutdown {
    ($inner:ident) => {
        forward_flush!($inner);

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.get_mut().$inner).poll_shutdown(cx)
        }
    };
}

/// The same without the shutdown, which the wrapper does itself.
macro_rules! forward_flush {
    ($inner:ident) => {
        fn is_write_vectored(&self) -> bool {
            self.$inner.is_write_vectored()
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.get_mut().$inner).poll_flush(cx)
        }
    };
}

pub mod handshake_bound;
pub mod lingering_close;
pub mod egress;
pub mod server_verifier;
pub mod http2;
pub mod chunked;
pub mod chunked_writer;
pub mod unbuffered;
pub mod connection;
pub mod http_client;
pub mod write_timeout;
pub mod http_framing;
