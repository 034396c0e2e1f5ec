//! Serves clients that use HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};

use super::frames::{FrameMonitor, MonitoredStream};
use super::upkeep::{ConnectionTimers, ConnectionUse, ExpiredTimer};
use super::{
    AuthenticationSignal, CONNECTION_WINDOW_OF_STRANGERS, ConnectionBounds, FRAME, HeldUntilSent,
    Http2Error, IncomingBody, PeerLimit, UNAUTHENTICATED_WINDOW,
};
use crate::base::clock::Clock;
use crate::base::intake;
use crate::base::task::Tasks;
use crate::stream::body::{Body, CutOff};

/// How long a connection is kept after its client was told that it ends, for requests that are already on the
/// way.
const CLOSING: Duration = Duration::from_secs(1);
/// Most unauthenticated responses that wait on one connection for a flow-control window. Each is short, but occupies
/// its stream, and is charged to no principal.
const UNAUTHENTICATED: usize = 8;
/// How long such a response waits, if `writeTimeout` is not shorter. A regular HTTP/2 client opens the window of a stream
/// before it sends the request.
const UNAUTHENTICATED_TIME: Duration = Duration::from_secs(2);
/// Bytes of a response that the client must take within `writeTimeout`, if as many are left: otherwise a client that takes
/// a single byte now and then would hold the rest for hours.
const TAKEN: usize = 64 * 1024;

/// The context in which a connection is served.
#[derive(Debug)]
pub struct ServeContext {
    /// The bounds of the connection.
    pub terms: ConnectionBounds,
    /// The tasks that process its requests.
    pub tasks: Tasks,
    /// The clock for the `Date` of responses.
    pub clock: Arc<dyn Clock>,
    /// Whether a request of its client was authenticated.
    pub vouched: Arc<AuthenticationSignal>,
}

/// The stage of a connection's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownStage {
    /// It accepts new requests.
    Serving,
    /// The client was told that it ends, and may complete open requests.
    Closing,
    /// It is flushed and then closed.
    Leaving,
}

/// An event on a connection.
enum Http2Event {
    Request(Box<Request<RecvStream>>, SendResponse<Bytes>),
    Ended(Result<(), h2::Error>),
    Flood(PeerLimit),
    Stopping,
    Due(ExpiredTimer),
}

/// Serves a connection until it ends, and responds to each request with the result of `answer`.
///
/// # Errors
/// When the client exceeds a limit, or the connection fails.
pub async fn serve<S, A, F>(
    stream: S,
    means: Arc<ServeContext>,
    answer: A,
) -> Result<(), Http2Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<IncomingBody>) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let mut client = ClientConnection::accept(stream, Arc::clone(&means)).await?;
    let unsent = Arc::new(WaitingResponses {
        bytes: AtomicUsize::new(0),
        most: means.terms.bounds.response_buffer,
        unauthenticated: AtomicUsize::new(0),
    });
    let _ended = ReleaseOnEnd(Arc::clone(&client.watch));
    let mut stopping = pin!(means.tasks.stopping());
    loop {
        let event = poll_fn(|cx| client.poll_event(cx, stopping.as_mut())).await;
        let (request, reply) = match client.heard(event) {
            ConnectionStep::Wait => continue,
            ConnectionStep::Answer(request, reply) => (request, reply),
            ConnectionStep::End(ended) => return ended,
        };
        let (head, body) = request.into_parts();
        let bodiless = head.method == Method::HEAD;
        let body = IncomingBody::new(body, &head.headers);
        let answer = Box::pin(answer(Request::from_parts(head, body)));
        let (unsent, watch) = (Arc::clone(&unsent), Arc::clone(&client.watch));
        let exchange = Http2Exchange { reply, bodiless, unsent, means: Arc::clone(&means), watch };
        means.tasks.spawn(exchange.answered(answer));
    }
}

/// The connection of a client, and how far its shutdown has come.
struct ClientConnection<S> {
    upkeep: ConnectionTimers,
    connection: Connection<MonitoredStream<S>, Bytes>,
    watch: Arc<FrameMonitor>,
    means: Arc<ServeContext>,
    stage: ShutdownStage,
    /// Whether the windows of an authenticated client are open.
    is_open: bool,
    /// Whether the task was registered to be woken by a stop.
    is_woken_by_stop: bool,
    /// What is returned when the connection has been flushed.
    why: Result<(), Http2Error>,
}

/// What is done after an event on a connection.
enum ConnectionStep {
    /// The next event is awaited.
    Wait,
    /// A request is answered.
    Answer(Box<Request<RecvStream>>, SendResponse<Bytes>),
    /// The connection has ended, with this result.
    End(Result<(), Http2Error>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientConnection<S> {
    /// Performs the HTTP/2 handshake with a client.
    async fn accept(stream: S, means: Arc<ServeContext>) -> Result<Self, Http2Error> {
        let terms = &means.terms;
        let (stream, watch) =
            MonitoredStream::of_client(stream, &terms.bounds, Arc::clone(&means.vouched));
        let shaken = timeout(terms.head_time, builder(terms).handshake(stream)).await;
        let shaken = shaken.map_err(|_elapsed| Http2Error::Late)?;
        let mut connection: Connection<_, Bytes> = shaken.map_err(Http2Error::Broken)?;
        let pings = connection.ping_pong();
        let upkeep =
            ConnectionTimers::new(Arc::clone(&watch), *terms, terms.bounds.idle_timeout, pings);
        Ok(Self {
            upkeep,
            connection,
            watch,
            means,
            stage: ShutdownStage::Serving,
            is_open: false,
            is_woken_by_stop: false,
            why: Ok(()),
        })
    }

    /// Polls for the next event. `stopping` resolves when the gateway stops.
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        stopping: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<Http2Event> {
        let mut accepted = self.connection.poll_accept(cx);
        if accepted.is_pending() && !self.is_open && self.means.vouched.is_for(cx) {
            self.is_open = open_windows(&mut self.connection, &self.means.terms);
            if self.is_open {
                accepted = self.connection.poll_accept(cx);
            }
        }
        if let Some(flood) = self.watch.flood().filter(|_| self.stage != ShutdownStage::Leaving) {
            return Poll::Ready(Http2Event::Flood(flood));
        }
        match accepted {
            Poll::Ready(Some(Ok((request, reply)))) => {
                return Poll::Ready(Http2Event::Request(Box::new(request), reply));
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Http2Event::Ended(Err(error))),
            Poll::Ready(None) => return Poll::Ready(Http2Event::Ended(Ok(()))),
            Poll::Pending => {}
        }
        if self.stage == ShutdownStage::Serving {
            // Polled once, so that a stop wakes this task; later iterations only read a flag.
            let first = !std::mem::replace(&mut self.is_woken_by_stop, true);
            if first && stopping.poll(cx).is_ready() || self.means.tasks.is_stopping() {
                return Poll::Ready(Http2Event::Stopping);
            }
        }
        let connection = ConnectionUse::of(self.connection.has_streams());
        self.upkeep.poll(cx, connection).map(Http2Event::Due)
    }

    /// Moves the shutdown forward as the event demands, and returns what is done next.
    fn heard(&mut self, event: Http2Event) -> ConnectionStep {
        match (event, self.stage) {
            // The connection has ended, or the client does not even read the GOAWAY frame.
            (Http2Event::Ended(_) | Http2Event::Due(_), ShutdownStage::Leaving) => {
                return ConnectionStep::End(std::mem::replace(&mut self.why, Ok(())));
            }
            (
                Http2Event::Request(..) | Http2Event::Flood(_) | Http2Event::Stopping,
                ShutdownStage::Leaving,
            ) => {}
            (Http2Event::Ended(ended), ShutdownStage::Serving | ShutdownStage::Closing) => {
                return ConnectionStep::End(ended.map_err(Http2Error::Broken));
            }
            (
                Http2Event::Request(request, reply),
                ShutdownStage::Serving | ShutdownStage::Closing,
            ) => return ConnectionStep::Answer(request, reply),
            (Http2Event::Stopping, ShutdownStage::Serving | ShutdownStage::Closing)
            | (Http2Event::Due(ExpiredTimer::Idle), ShutdownStage::Serving) => {
                self.connection.graceful_shutdown();
                self.upkeep.hurry(CLOSING);
                self.stage = ShutdownStage::Closing;
            }
            (Http2Event::Due(ExpiredTimer::Idle), ShutdownStage::Closing) => {
                self.connection.abrupt_shutdown(Reason::NO_ERROR);
                self.upkeep.hurry(CLOSING);
                self.stage = ShutdownStage::Leaving;
            }
            (
                Http2Event::Due(ExpiredTimer::Silent),
                ShutdownStage::Serving | ShutdownStage::Closing,
            ) => return ConnectionStep::End(Err(Http2Error::Silent)),
            (Http2Event::Flood(flood), ShutdownStage::Serving | ShutdownStage::Closing) => {
                self.leave_for(flood);
            }
            (
                Http2Event::Due(ExpiredTimer::Head),
                ShutdownStage::Serving | ShutdownStage::Closing,
            ) => self.leave_for(PeerLimit::Head),
        }
        ConnectionStep::Wait
    }

    /// Tells the client that it has exceeded a limit, and ends the connection once that is flushed.
    fn leave_for(&mut self, limit: PeerLimit) {
        self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        (self.stage, self.why) = (ShutdownStage::Leaving, Err(Http2Error::Flood(limit)));
    }
}

/// Opens the configured windows for an authenticated client; `false` while it has not acknowledged
/// the previous settings: the caller tries again when it has sent more.
fn open_windows<S>(connection: &mut Connection<S, Bytes>, terms: &ConnectionBounds) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    connection.set_target_window_size(terms.bounds.connection_window);
    connection.set_initial_window_size(terms.bounds.stream_window).is_ok()
}

fn builder(terms: &ConnectionBounds) -> Builder {
    let bounds = &terms.bounds;
    let resets = usize::try_from(bounds.stream_resets).unwrap_or(usize::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(bounds.max_concurrent_streams)
        .max_header_list_size(terms.head)
        .max_frame_size(FRAME)
        .initial_window_size(UNAUTHENTICATED_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW_OF_STRANGERS)
        .max_send_buffer_size(bounds.send_buffer)
        // Reset streams are remembered for frames that are still on the way.
        .max_concurrent_reset_streams(resets)
        .max_pending_accept_reset_streams(resets)
        .max_local_error_reset_streams(Some(resets));
    builder
}

/// Releases the resources of all responses when their connection ends, for any reason.
struct ReleaseOnEnd(Arc<FrameMonitor>);

impl Drop for ReleaseOnEnd {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The responses that wait on one connection. HTTP/1.1 needs no such limit, with one response at a time.
#[derive(Debug)]
struct WaitingResponses {
    bytes: AtomicUsize,
    most: usize,
    /// Number of unauthenticated responses that are being sent.
    unauthenticated: AtomicUsize,
}

/// The bytes of one response, which are released when it is dropped.
struct ResponseBytes {
    unsent: Arc<WaitingResponses>,
    bytes: usize,
}

/// The place of one unauthenticated response that is being sent, which is released when it is dropped.
struct WaitingSlot(Arc<WaitingResponses>);

impl WaitingResponses {
    /// Accounts for a response of `bytes` bytes; `None` beyond the limit. A single response always fits.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<ResponseBytes> {
        let fits = |before: usize| {
            let after = before.saturating_add(bytes);
            (before == 0 || after <= self.most).then_some(after)
        };
        self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(ResponseBytes { unsent: Arc::clone(self), bytes })
    }

    /// Accounts for an unauthenticated response until it is sent; `None` beyond the limit. Only a response that the
    /// client opens no window for is not sent at once.
    fn wait(self: &Arc<Self>) -> Option<WaitingSlot> {
        let fits = |before: usize| (before < UNAUTHENTICATED).then_some(before + 1);
        self.unauthenticated.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(WaitingSlot(Arc::clone(self)))
    }
}

impl Drop for ResponseBytes {
    fn drop(&mut self) {
        self.unsent.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Drop for WaitingSlot {
    fn drop(&mut self) {
        self.0.unauthenticated.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The resources of a response, until its last frame was written.
struct ResponseResources {
    _place: Option<HeldUntilSent>,
    _share: Option<intake::ResponseAccount>,
}

/// The recipient of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseRecipient {
    /// An authenticated caller, whose share the response is charged to.
    Caller,
    /// A client whose request was not authenticated; the response is charged to no share.
    Unauthenticated,
}

/// A stream with one request and its response.
struct Http2Exchange {
    reply: SendResponse<Bytes>,
    /// Whether the response has no body, regardless of its headers.
    bodiless: bool,
    unsent: Arc<WaitingResponses>,
    means: Arc<ServeContext>,
    watch: Arc<FrameMonitor>,
}

impl Http2Exchange {
    /// Sends the response that `answer` resolves to. The future is dropped when the client resets the stream or
    /// disconnects, as with HTTP/1.1.
    async fn answered(mut self, mut answer: impl Future<Output = Response<Body>> + Unpin) {
        let Some(response) = self.until_reset(&mut answer).await else { return };
        drop(answer);
        let (mut head, mut body) = response.into_parts();
        self.complete(&mut head.headers, &body);
        let ends = self.bodiless || body.is_end_stream();
        let place = head.extensions.remove::<HeldUntilSent>();
        // An event stream is always charged to a share.
        let audience = match &place {
            None if !body.is_stream() => ResponseRecipient::Unauthenticated,
            None | Some(_) => ResponseRecipient::Caller,
        };
        let Some(_taken) = self.room_for(&body, audience, ends) else {
            self.reply.send_reset(Reason::ENHANCE_YOUR_CALM);
            return;
        };
        let stream = self.reply.stream_id().as_u32();
        let holding = ResponseResources { _place: place, _share: body.uncounted() };
        self.watch.hold(stream, Box::new(holding));
        let sent = match self.reply.send_response(Response::from_parts(head, ()), ends) {
            Ok(_) if ends => Ok(()),
            Ok(stream) => self.sending(stream, audience).send(body).await,
            Err(error) => {
                self.reply.send_reset(Reason::INTERNAL_ERROR);
                Err(BodySendError::Broken(error))
            }
        };
        if let Err(stopped) = sent {
            // The connection drops its part of the body with the stream.
            self.watch.release(stream);
            tracing::debug!(
                error = %crate::base::error_chain::ErrorChain(&stopped),
                "a response was not sent completely"
            );
        }
    }

    /// Accounts for a response with this body until it is sent; `None` beyond a limit of the connection. A response
    /// that `ends` with its head never waits.
    fn room_for(
        &self,
        body: &Body,
        audience: ResponseRecipient,
        ends: bool,
    ) -> Option<(ResponseBytes, Option<WaitingSlot>)> {
        let bytes = self.unsent.take(body.length())?;
        let slot = match audience {
            ResponseRecipient::Unauthenticated if !ends => Some(self.unsent.wait()?),
            ResponseRecipient::Unauthenticated | ResponseRecipient::Caller => None,
        };
        Some((bytes, slot))
    }

    /// The sender for the body of a response to `audience` on `stream`.
    fn sending(&self, stream: SendStream<Bytes>, audience: ResponseRecipient) -> BodySender {
        let patience = self.means.terms.write_timeout;
        let patience = match audience {
            ResponseRecipient::Caller => patience,
            ResponseRecipient::Unauthenticated => patience.min(UNAUTHENTICATED_TIME),
        };
        BodySender { stream, patience, until: None, taken: 0 }
    }

    async fn until_reset<T>(
        &mut self,
        answer: &mut (impl Future<Output = T> + Unpin),
    ) -> Option<T> {
        poll_fn(|cx| {
            if self.reply.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            Pin::new(&mut *answer).poll(cx).map(Some)
        })
        .await
    }

    /// Adds required headers of a response, and removes connection-specific ones of HTTP/1.1, which has no
    /// equivalent: only a reset ends an HTTP/2 stream early (RFC 9113, sections 8.1 and 8.2.2).
    fn complete(&self, headers: &mut HeaderMap, body: &Body) {
        headers.remove(CONNECTION);
        let length = body.size_hint().exact().filter(|length| *length > 0);
        if let Some(length) = length.filter(|_| !headers.contains_key(CONTENT_LENGTH)) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        // RFC 9110, section 6.6.1.
        let date = httpdate::fmt_http_date(self.means.clock.now());
        if let Ok(date) = HeaderValue::try_from(date) {
            headers.insert(DATE, date);
        }
    }
}

/// Why a body was not sent completely; its stream has ended then.
#[derive(Debug, thiserror::Error)]
enum BodySendError {
    /// The client has reset the stream or disconnected.
    #[error("stream reset by the client")]
    Reset,
    /// The client takes less than [`TAKEN`] bytes within the time limit.
    #[error("the client stopped reading")]
    Slow,
    /// The authorization of the stream has ended.
    #[error("the authorization of the stream has ended")]
    CutOff(#[source] CutOff),
    /// The stream or the connection failed.
    #[error("the stream broke")]
    Broken(#[source] h2::Error),
}

impl BodySendError {
    /// The error code for the client, unless it has ended the stream itself.
    const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Slow | Self::CutOff(_) => Some(Reason::CANCEL),
            Self::Reset | Self::Broken(_) => None,
        }
    }
}

/// The state of sending one response body.
struct BodySender {
    stream: SendStream<Bytes>,
    /// The time in which the client must take [`TAKEN`] bytes, or all that are left.
    patience: Duration,
    /// The end of that time, while bytes wait.
    until: Option<Instant>,
    /// Bytes taken since that time began.
    taken: usize,
}

impl BodySender {
    /// Sends a body as fast as the client takes it, and resets the stream if the client is too slow. The write timeout
    /// of the connection does not cover this, because other streams may make progress.
    async fn send(mut self, body: Body) -> Result<(), BodySendError> {
        let sent = self.pieces(body).await;
        if let Some(reason) = sent.as_ref().err().and_then(BodySendError::reason) {
            self.stream.send_reset(reason);
        }
        sent
    }

    async fn pieces(&mut self, mut body: Body) -> Result<(), BodySendError> {
        loop {
            let next = poll_fn(|cx| {
                if self.stream.poll_reset(cx).is_ready() {
                    return Poll::Ready(Err(BodySendError::Reset));
                }
                let next = Pin::new(&mut body).poll_frame(cx);
                if next.is_pending() {
                    // No bytes wait for the client.
                    (self.until, self.taken) = (None, 0);
                }
                next.map(|next| next.transpose().map_err(BodySendError::CutOff))
            });
            let data = next.await?.and_then(|frame| frame.into_data().ok());
            let last = data.is_none() || body.is_end_stream();
            self.piece(data.unwrap_or_default(), last).await?;
            if last {
                return Ok(());
            }
        }
    }

    /// Sends a part of a body; `last` ends the stream.
    async fn piece(&mut self, mut data: Bytes, last: bool) -> Result<(), BodySendError> {
        while !data.is_empty() {
            self.stream.reserve_capacity(data.len());
            if self.stream.capacity() == 0 {
                self.room().await?;
            }
            let part = data.split_to(self.stream.capacity().min(data.len()));
            if part.is_empty() {
                continue;
            }
            self.taken += part.len();
            if self.taken >= TAKEN {
                (self.until, self.taken) = (None, 0);
            }
            let done = last && data.is_empty();
            self.stream.send_data(part, done).map_err(BodySendError::Broken)?;
            if done {
                return Ok(());
            }
        }
        if last {
            self.stream.send_data(Bytes::new(), true).map_err(BodySendError::Broken)?;
        }
        Ok(())
    }

    /// Waits until the client opens the window of the stream.
    async fn room(&mut self) -> Result<(), BodySendError> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.patience);
        let room = timeout_at(until, poll_fn(|cx| self.stream.poll_capacity(cx)));
        match room.await {
            Ok(Some(Ok(_))) => Ok(()),
            Ok(Some(Err(error))) => Err(BodySendError::Broken(error)),
            Ok(None) => Err(BodySendError::Reset),
            Err(_elapsed) => Err(BodySendError::Slow),
        }
    }
}
