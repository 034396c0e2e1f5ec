//! HTTP/2, as it is spoken with clients ([`server`]) and with servers ([`client`]).
//!
//! The protocol itself is the `h2` crate's. This module decides what a peer may cost: `frames` counts on
//! the wire what the crate does not bound, `upkeep` bounds how long a connection may stand still.
//! `docs/decisions/0012-http2-bounded-on-the-wire.md` says which bound is whose (vectors PV-29 to PV-32;
//! control C33).

mod frames;
mod upkeep;
pub mod client;
pub mod server;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use h2::RecvStream;
use http_body::{Frame, SizeHint};

/// What is agreed on for HTTP/2 in the handshake of TLS (RFC 9113, section 3.2).
pub const ALPN: &[u8] = b"h2";
/// The same for HTTP/1.1.
pub const ALPN_OLD: &[u8] = b"http/1.1";

/// Longest frame that is taken: the smallest limit that a peer may be given (RFC 9113, section 6.5.2).
const FRAME: u32 = 16 * 1024;
/// Largest window there is (RFC 9113, section 6.9.1).
pub const WINDOW: u32 = (1 << 31) - 1;

/// Bytes of the body of one request that a client may send before one of its requests on the connection was authenticated.
/// What comes meanwhile waits in the connection and is counted for nobody, so it is little for each request.
pub const WINDOW_OF_STRANGERS: u32 = 16 * 1024;
/// The same of all requests on the connection: what RFC 9113, section 6.9.2 starts with, which cannot be less.
const CONNECTION_WINDOW_OF_STRANGERS: u32 = 65_535;

/// Whether a request on a connection was authenticated: from then on its client has the windows of `limits.http2`.
#[derive(Debug, Default)]
pub struct Vouched {
    is: AtomicBool,
    waker: AtomicWaker,
}

impl Vouched {
    /// A request was authenticated.
    pub fn vouch(&self) {
        if !self.is.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Whether one was.
    #[must_use]
    pub fn is(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// The same; the task is woken when it changes.
    fn is_for(&self, cx: &Context<'_>) -> bool {
        if !self.is() {
            self.waker.register(cx.waker());
        }
        self.is()
    }
}

/// What an answer takes of the shares of its caller until its last byte was written to the connection. It stands in the
/// extensions of the response; over HTTP/1.1, where a connection has one answer at a time, it is given back before.
#[derive(Clone)]
pub struct UntilSent {
    _held: Arc<dyn Any + Send + Sync>,
}

impl UntilSent {
    /// Keeps `held`.
    #[must_use]
    pub fn new(held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _held: held }
    }
}

impl fmt::Debug for UntilSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UntilSent(..)")
    }
}

/// The bounds of a connection; each is described with its key in the schema.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "described once, on the keys of the file")]
pub struct Bounds {
    pub streams: u32,
    pub resets: u32,
    pub control: u32,
    pub window: u32,
    pub connection_window: u32,
    pub send_buffer: usize,
    pub answers: usize,
    pub idle_time: Duration,
    pub ping_time: Duration,
    pub ping_timeout: Duration,
}

/// The bounds of a connection, with those that hold for HTTP/1.1 as well.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Those of HTTP/2.
    pub bounds: Bounds,
    /// Longest list of headers, counted as RFC 9113, section 6.5.2 does.
    pub head: u32,
    /// How long a list of headers may take to come.
    pub head_time: Duration,
    /// How long a peer may take nothing of what is written to it.
    pub write_time: Duration,
}

/// Why a connection is ended for what its peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flood {
    /// It resets more requests than it has answered.
    #[error("over `limits.http2.resets`")]
    Resets,
    /// It sends too many frames that carry nothing.
    #[error("over `limits.http2.control`")]
    Control,
    /// A list of headers does not come to an end.
    #[error("a list of headers did not come in time")]
    Head,
}

/// Why a connection has ended early.
#[derive(Debug, thiserror::Error)]
pub enum Http2Error {
    /// The preface did not come in time.
    #[error("the preface did not come in time")]
    Late,
    /// The peer costs more than it may.
    #[error("the connection was ended")]
    Flood(#[source] Flood),
    /// The peer is gone, or hangs.
    #[error("the peer does not answer pings")]
    Silent,
    /// The connection broke, or the peer breaks the protocol.
    #[error("the connection broke")]
    Broken(#[source] h2::Error),
}

impl Http2Error {
    /// Whether it was ended because the peer costs more than it may.
    #[must_use]
    pub fn is_flood(&self) -> bool {
        match self {
            Self::Flood(_) => true,
            Self::Broken(error) => {
                !error.is_remote() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
            }
            Self::Late | Self::Silent => false,
        }
    }
}

/// The body of a request or of an answer as it comes in.
#[derive(Debug)]
pub struct Received {
    stream: RecvStream,
    /// Bytes that are still to come, where the peer says so. `h2` resets a stream whose body differs.
    left: Option<u64>,
}

impl Received {
    /// The body in `stream` of a message with these headers.
    fn new(stream: RecvStream, headers: &http::HeaderMap) -> Self {
        let length = headers.get(http::header::CONTENT_LENGTH);
        let left = length.and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, left }
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let body = self.get_mut();
        let Some(data) = ready!(body.stream.poll_data(cx)) else { return Poll::Ready(None) };
        let taken = data.and_then(|data| {
            // The reader of the body has a bound of its own, so the peer may send as much again.
            body.stream.flow_control().release_capacity(data.len())?;
            body.left = body.left.map(|left| left.saturating_sub(data.len() as u64));
            Ok(Frame::data(data))
        });
        Poll::Ready(Some(taken))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.stream.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}
