//! HTTP/2 connections to upstream servers, each shared by many requests.
//!
//! A task drives each connection, on the worker that opened it. It ends when the connection
//! has been idle for a while, or when the server exceeds a limit.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Reason, SendStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::frames::{FrameMonitor, MonitoredStream};
use super::upkeep::{ConnectionTimers, ConnectionUse, ExpiredTimer};
use super::{ConnectionBounds, FRAME, Http2Error, IncomingBody, PeerLimit, WINDOW};
use crate::base::segments::Segments;
use crate::base::task::Tasks;

/// A connection with open requests that has received nothing for this time takes no new ones: it may
/// be dead, and a new request should not wait until that is certain.
const SILENCE: Duration = Duration::from_secs(10);
/// Flag for a connection that takes no more requests, above the number of open ones.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// A handle to a connection that many requests share.
#[derive(Clone, Debug)]
pub struct SharedHttp2 {
    sender: SendRequest<Bytes>,
    state: Arc<SharedHttp2State>,
}

/// The state of a connection.
#[derive(Debug)]
struct SharedHttp2State {
    /// Number of open requests, with the flag [`CLOSED`].
    open: AtomicUsize,
    /// Most open requests at a time.
    most: usize,
    /// How long the connection may be idle and is still used.
    idle_timeout: Duration,
    started: Instant,
    /// The end of the last request, in milliseconds after `started`.
    left: AtomicU64,
    watch: Arc<FrameMonitor>,
}

impl SharedHttp2State {
    fn close(&self) {
        self.open.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Closes the connection if it has no requests; `true` if it is closed.
    fn close_if_unused(&self) -> bool {
        let (acquire, release) = (Ordering::Acquire, Ordering::AcqRel);
        match self.open.compare_exchange(0, CLOSED, release, acquire) {
            Ok(_) => true,
            Err(open) => open & CLOSED != 0,
        }
    }

    /// The time since the last request ended.
    fn unused(&self) -> Duration {
        let left = Duration::from_millis(self.left.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(left)
    }
}

/// Closes the connection when its driver ends, for any reason.
struct CloseOnDrop(Arc<SharedHttp2State>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The place of one request on a connection, which it releases when it is dropped.
#[derive(Debug)]
pub struct StreamSlot {
    shared: SharedHttp2,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let state = &self.shared.state;
        let now = u64::try_from(state.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        state.left.store(now, Ordering::Relaxed);
        state.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl SharedHttp2 {
    /// Starts HTTP/2 on `stream`; the connection is used until it was idle for `idle_timeout`.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn begin<S>(
        stream: S,
        terms: ConnectionBounds,
        idle_timeout: Duration,
        tasks: &Tasks,
    ) -> Result<Self, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (stream, watch) = MonitoredStream::of_server(stream, &terms.bounds);
        let (sender, mut connection) = builder(&terms).handshake(stream).await?;
        let state = Arc::new(SharedHttp2State {
            open: AtomicUsize::new(0),
            most: usize::try_from(terms.bounds.max_concurrent_streams).unwrap_or(usize::MAX),
            idle_timeout,
            started: Instant::now(),
            left: AtomicU64::new(0),
            watch: Arc::clone(&watch),
        });
        let upkeep = ConnectionTimers::new(watch, terms, idle_timeout, connection.ping_pong());
        let closing = CloseOnDrop(Arc::clone(&state));
        let driver = Driver { connection, upkeep, closing };
        let halting = tasks.clone();
        tasks.spawn_service(async move {
            tokio::select! {
                ended = driver.drive() => {
                    if let Err(error) = ended {
                        let error = crate::base::error_chain::ErrorChain(&error);
                        tracing::debug!(%error, "HTTP/2 connection to a server ended early");
                    }
                }
                () = halting.halting() => {}
            }
        });
        Ok(Self { sender, state })
    }

    /// A place for one more request; `None` if the connection is full, closed, idle for too long or silent.
    #[must_use]
    pub fn enter(&self) -> Option<StreamSlot> {
        let state = &self.state;
        let most = state.most.min(self.sender.current_max_send_streams());
        let before = state.open.load(Ordering::Acquire);
        if before == 0 && state.unused() >= state.idle_timeout {
            // The server may be about to close it, and the request may not be repeatable.
            state.close_if_unused();
            return None;
        }
        if before > 0 && state.watch.heard().elapsed() >= SILENCE {
            return None;
        }
        let more = |open: usize| (open < most).then_some(open + 1);
        state.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(StreamSlot { shared: self.clone() })
    }

    /// Whether the connection can take requests at all.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.open.load(Ordering::Acquire) & CLOSED == 0
    }
}

impl StreamSlot {
    /// The connection of this place.
    #[must_use]
    pub fn shared(&self) -> &SharedHttp2 {
        &self.shared
    }

    /// Sends a request, and waits for the head of the response. Dropping the future cancels the
    /// request.
    ///
    /// # Errors
    /// When the stream or the connection fails.
    pub async fn send(
        &mut self,
        request: Request<Segments>,
    ) -> Result<Response<IncomingBody>, h2::Error> {
        let answered = self.exchange(request).await;
        // An error of one stream does not affect others; any other error ends the connection.
        if answered.as_ref().is_err_and(|error| !error.is_reset()) {
            self.shared.state.close();
        }
        answered
    }

    async fn exchange(
        &self,
        request: Request<Segments>,
    ) -> Result<Response<IncomingBody>, h2::Error> {
        let (mut head, body) = request.into_parts();
        let ends = body.length() == 0;
        if !ends {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.length()));
        }
        let mut sender = self.shared.sender.clone();
        poll_fn(|cx| sender.poll_ready(cx)).await?;
        let (response, stream) = sender.send_request(Request::from_parts(head, ()), ends)?;
        let mut response = pin!(response);
        let mut upload = pin!(upload(body, stream));
        let mut sent = ends;
        // The server may respond before it has read the whole body.
        let answered = poll_fn(|cx| {
            if let Poll::Ready(answered) = response.as_mut().poll(cx) {
                return Poll::Ready(answered);
            }
            sent = sent || upload.as_mut().poll(cx).is_ready();
            Poll::Pending
        });
        let (head, body) = answered.await?.into_parts();
        let body = IncomingBody::new(body, &head.headers);
        Ok(Response::from_parts(head, body))
    }
}

/// Sends a body within the flow-control window. If the server stops reading, its response tells why.
async fn upload(mut body: Segments, mut stream: SendStream<Bytes>) {
    while let Some(mut segment) = body.take_first() {
        while !segment.is_empty() {
            stream.reserve_capacity(segment.len());
            if stream.capacity() == 0 {
                match poll_fn(|cx| stream.poll_capacity(cx)).await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
            let part = segment.split_to(stream.capacity().min(segment.len()));
            let is_last = segment.is_empty() && body.length() == 0;
            if !part.is_empty() && stream.send_data(part, is_last).is_err() {
                return;
            }
        }
    }
}

/// Whether the server has not processed the failed request, so that it may be repeated (RFC 9113, section 8.7).
#[must_use]
pub fn is_unprocessed(error: &h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    let told = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
    error.is_remote() && (refused || told)
}

/// Drives a connection and its timers.
struct Driver<S> {
    connection: Connection<MonitoredStream<S>, Bytes>,
    upkeep: ConnectionTimers,
    closing: CloseOnDrop,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    async fn drive(mut self) -> Result<(), Http2Error> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Http2Error>> {
        let state = &self.closing.0;
        if let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(cx) {
            return Poll::Ready(ended.map_err(Http2Error::Broken));
        }
        // The streams end with the connection, and their requests fail.
        if let Some(flood) = state.watch.flood() {
            return Poll::Ready(Err(Http2Error::Flood(flood)));
        }
        loop {
            let connection = ConnectionUse::of(state.open.load(Ordering::Acquire) & !CLOSED > 0);
            return match self.upkeep.poll(cx, connection) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(ExpiredTimer::Head) => {
                    Poll::Ready(Err(Http2Error::Flood(PeerLimit::Head)))
                }
                Poll::Ready(ExpiredTimer::Silent) => Poll::Ready(Err(Http2Error::Silent)),
                Poll::Ready(ExpiredTimer::Idle) if state.close_if_unused() => Poll::Ready(Ok(())),
                // A request arrived in the meantime.
                Poll::Ready(ExpiredTimer::Idle) => continue,
            };
        }
    }
}

fn builder(terms: &ConnectionBounds) -> Builder {
    let bounds = &terms.bounds;
    let (streams, resets) = (
        usize::try_from(bounds.max_concurrent_streams).unwrap_or(usize::MAX),
        usize::try_from(bounds.stream_resets).unwrap_or(usize::MAX),
    );
    // A slow reader fills the window of its stream, but must not fill that of the connection, which the
    // other streams need.
    let all = bounds.stream_window.saturating_mul(bounds.max_concurrent_streams).min(WINDOW);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(streams)
        .max_header_list_size(terms.head)
        .max_frame_size(FRAME)
        .initial_window_size(bounds.stream_window)
        .initial_connection_window_size(all)
        .max_send_buffer_size(bounds.send_buffer)
        .max_concurrent_reset_streams(resets)
        .max_pending_accept_reset_streams(resets)
        .max_local_error_reset_streams(Some(resets));
    builder
}
