//! HTTP/2 with clients ([`server`]) and with upstream servers ([`client`]).
//!
//! The `h2` crate implements the protocol. This module limits what a peer may cost: `frames` counts on
//! the wire what the crate does not bound, and `upkeep` bounds how long a connection may make no progress.
//! `docs/decisions/0012-http2-bounded-on-the-wire.md` assigns each bound (vectors PV-29 to PV-32;
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

pub use frames::{FrameHeader, frame_headers};

/// The ALPN identifier of HTTP/2 (RFC 9113, section 3.2).
pub const ALPN: &[u8] = b"h2";
/// The ALPN identifier of HTTP/1.1.
pub const ALPN_OLD: &[u8] = b"http/1.1";

/// Largest frame that is accepted, in bytes: the smallest limit that the protocol permits (RFC 9113, section 6.5.2).
const FRAME: u32 = 16 * 1024;
/// Largest flow-control window in bytes (RFC 9113, section 6.9.1).
pub const WINDOW: u32 = (1 << 31) - 1;

/// Stream window in bytes before a request on the connection was authenticated. Bytes that arrive until then wait in
/// the connection and are charged to no principal, so the window is small.
pub const UNAUTHENTICATED_WINDOW: u32 = 16 * 1024;
/// Connection window before that, in bytes: the initial value of RFC 9113, section 6.9.2, which cannot be reduced.
const CONNECTION_WINDOW_OF_STRANGERS: u32 = 65_535;

/// Whether a request on a connection was authenticated: from then on its client has the windows of `limits.http2`.
#[derive(Debug, Default)]
pub struct AuthenticationSignal {
    is: AtomicBool,
    waker: AtomicWaker,
}

impl AuthenticationSignal {
    /// Records that a request was authenticated, and wakes the connection's task.
    pub fn vouch(&self) {
        if !self.is.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Whether a request was authenticated.
    #[must_use]
    pub fn is(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// Like [`Self::is`]; the current task is woken when it changes.
    fn is_for(&self, cx: &Context<'_>) -> bool {
        if !self.is() {
            self.waker.register(cx.waker());
        }
        self.is()
    }
}

/// The resources that a response takes from its caller's share until its last byte was written to the connection. It is
/// an extension of the response; over HTTP/1.1, with one response at a time, the resources are released earlier.
#[derive(Clone)]
pub struct HeldUntilSent {
    _held: Arc<dyn Any + Send + Sync>,
}

impl HeldUntilSent {
    /// Keeps `held` until the response was sent.
    #[must_use]
    pub fn new(held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _held: held }
    }
}

impl fmt::Debug for HeldUntilSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UntilSent(..)")
    }
}

/// The bounds of an HTTP/2 connection; the configuration schema describes each with its key.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "described once, on the keys of the file")]
pub struct Http2Bounds {
    pub max_concurrent_streams: u32,
    pub stream_resets: u32,
    pub control_frames: u32,
    pub stream_window: u32,
    pub connection_window: u32,
    pub send_buffer: usize,
    pub response_buffer: usize,
    pub idle_timeout: Duration,
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
}

/// The bounds of an HTTP/2 connection, together with those that apply to HTTP/1.1 as well.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    /// The bounds of `limits.http2`.
    pub bounds: Http2Bounds,
    /// Largest header list, in bytes as counted in RFC 9113, section 6.5.2.
    pub head: u32,
    /// Time limit for receiving a header list.
    pub head_time: Duration,
    /// How long the peer may accept none of what is written to it.
    pub write_timeout: Duration,
}

/// The limit that a peer has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerLimit {
    /// It resets more streams than it had responses for.
    #[error("over `limits.http2.streamResets`")]
    Resets,
    /// It sends too many frames that carry neither headers nor data.
    #[error("over `limits.http2.controlFrames`")]
    Control,
    /// A header list was not completed in time.
    #[error("a list of headers did not come in time")]
    Head,
}

/// Why a connection has ended prematurely.
#[derive(Debug, thiserror::Error)]
pub enum Http2Error {
    /// The client's connection preface did not arrive in time.
    #[error("the preface did not come in time")]
    Late,
    /// The peer has exceeded a limit.
    #[error("the connection was ended")]
    Flood(#[source] PeerLimit),
    /// The peer is gone or hangs.
    #[error("the peer does not answer pings")]
    Silent,
    /// The connection failed, or the peer violated the protocol.
    #[error("the connection broke")]
    Broken(#[source] h2::Error),
}

impl Http2Error {
    /// Whether the connection was ended because the peer exceeded a limit.
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

/// The body of a request or a response that is being received.
#[derive(Debug)]
pub struct IncomingBody {
    stream: RecvStream,
    /// Bytes that are left according to `Content-Length`. `h2` resets a stream whose body differs.
    left: Option<u64>,
}

impl IncomingBody {
    /// The body in `stream`, for a message with these headers.
    fn new(stream: RecvStream, headers: &http::HeaderMap) -> Self {
        let length = headers.get(http::header::CONTENT_LENGTH);
        let left = length.and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, left }
    }
}

impl http_body::Body for IncomingBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let body = self.get_mut();
        let Some(data) = ready!(body.stream.poll_data(cx)) else { return Poll::Ready(None) };
        let taken = data.and_then(|data| {
            // The reader of the body has a limit of its own, so the window is restored at once.
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
