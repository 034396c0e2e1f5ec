//! The HTTP listeners: accepts connections, terminates TLS, and serves HTTP/1.1 and HTTP/2 within the configured
//! limits. Each request is answered by the [`McpService`] of the listener.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::base::log_limit::LogLimit;
use crate::base::share::{Holder, Share};
use crate::base::task::Tasks;
use crate::config::settings::Limits;
use crate::edge::admission::Peer;
use crate::edge::encode;
use crate::edge::failure::HttpFailure;
use crate::edge::tls;
use crate::metrics::Metrics;
use crate::net::chunked_writer::ChunkedWriter;
use crate::net::http_framing::{FramedStream, FramingCounts};
use crate::net::http2::server::ServeContext;
use crate::net::http2::{self, AuthenticationSignal, HeldUntilSent, IncomingBody};
use crate::net::lingering_close::LingeringClose;
use crate::net::write_timeout::WriteTimeout;
use crate::serve::hand_over::{FlushedStream, HandOver};
use crate::serve::mcp_service::{FramingCheck, HEADERS, McpService, named};
use crate::stream::body::Body;

/// Pause after a failed accept, usually because the process has no file descriptors left, so that the accept loop does
/// not spin.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Limits for the log lines about refused connections, failed TLS handshakes and HTTP/2 floods: any client on the
/// network can cause these.
static CLOSED: LogLimit = LogLimit::new(1, 5);
/// Limits the log lines about connections that cannot be accepted: each worker tries again after [`ACCEPT_PAUSE`].
static UNACCEPTED: LogLimit = LogLimit::new(1, 5);
static UNSHAKEN: LogLimit = LogLimit::new(1, 20);
static FLOODED: LogLimit = LogLimit::new(1, 5);

/// Accepts a worker's share of the connections to the listener of `service`, until the process stops.
pub fn begin(service: &McpService, listener: &std::net::TcpListener) {
    match listener.try_clone().and_then(TcpListener::from_std) {
        Ok(listener) => service.tasks().spawn(serve(service.clone(), listener)),
        Err(error) => {
            let listener = service.now().map(|(_, admission)| Arc::clone(&admission.name));
            tracing::error!(
                event = "listener.socket_failed", listener = listener.as_deref(), %error,
                "a worker could not clone the listening socket"
            );
        }
    }
}

async fn serve(service: McpService, listener: TcpListener) {
    let tasks = service.tasks();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tasks.stopping() => return,
        };
        let Some((now, admission)) = service.now() else { return };
        let gateway = &now.gateway;
        match accepted {
            Ok((stream, address)) => {
                let peer = Peer::at(address);
                let holder = Holder::network(address.ip());
                let share = match gateway.quotas.connections.take(&holder, 1) {
                    Ok(share) => share,
                    Err(error) => {
                        gateway.metrics.connections_refused.add(1);
                        if let Some(suppressed) = CLOSED.allow(gateway.clock.instant()) {
                            let (listener, peer) = (&admission.name, address.ip());
                            tracing::warn!(
                                event = "connection.refused", %listener, %peer, %error, suppressed,
                                "connection refused"
                            );
                        }
                        continue;
                    }
                };
                tasks.spawn(welcome(service.clone(), stream, peer, share));
            }
            Err(error) => {
                gateway.metrics.accept_failures.add(1);
                if let Some(suppressed) = UNACCEPTED.allow(gateway.clock.instant()) {
                    tracing::warn!(
                        event = "listener.accept_failed", listener = %admission.name, %error, suppressed,
                        "a connection could not be accepted"
                    );
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Counts a connection and serves it, after a TLS handshake where the listener has TLS. The stages are boxed, so that a
/// connection takes memory only for the stage it is in.
async fn welcome(service: McpService, stream: TcpStream, mut peer: Peer, share: Share<Holder>) {
    let Some((now, admission)) = service.now() else { return };
    let (limits, clock) = (now.gateway.limits, Arc::clone(&now.gateway.clock));
    let metrics = Arc::clone(&now.gateway.metrics);
    // The connection may outlive this configuration.
    drop(now);
    let _counted = ConnectionGuard::new(&metrics, share);
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let stream = WriteTimeout::new(LingeringClose::new(stream), limits.write_timeout);
    match &admission.tls {
        None => Box::pin(connection(service, limits, stream, peer)).await,
        Some(acceptor) => {
            let shaken =
                tokio::time::timeout(limits.request_timeout, Box::pin(acceptor.accept(stream)));
            match shaken.await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok((stream, certificate)) => {
                    peer.certificate = certificate;
                    // The connection ends when the client certificate expires.
                    let ends = peer.certificate.as_ref().map(|shown| shown.ends);
                    let left = ends.map(|ends| ends.duration_since(clock.now()));
                    let left = left.map(Result::unwrap_or_default);
                    let served = Box::pin(async {
                        if tls::is_http2(&stream) {
                            multiplexed(service, limits, stream, peer).await;
                        } else {
                            connection(service, limits, stream, peer).await;
                        }
                    });
                    match left {
                        Some(left) => drop(tokio::time::timeout(left, served).await),
                        None => served.await,
                    }
                }
                Err(error) => {
                    metrics.handshakes_failed.add(1);
                    if let Some(suppressed) = UNSHAKEN.allow(clock.instant()) {
                        let (peer, error) =
                            (peer.address, crate::base::error_chain::ErrorChain(&error));
                        tracing::info!(
                            event = "tls.handshake_failed", listener = %admission.name, %peer, %error,
                            suppressed,
                            "TLS handshake failed"
                        );
                    }
                }
            }
        }
    }
}

/// Counts a connection for as long as it lasts.
struct ConnectionGuard {
    metrics: Arc<Metrics>,
    _share: Share<Holder>,
}

impl ConnectionGuard {
    fn new(metrics: &Arc<Metrics>, share: Share<Holder>) -> Self {
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        Self { metrics: Arc::clone(metrics), _share: share }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves an HTTP/1.1 connection. Its last response may be a stream that stays open: hyper's part of the connection is
/// dropped before that is written.
async fn connection<S>(service: McpService, limits: Limits, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    let Some(writer) = Box::pin(requests(service, limits, stream, peer)).await else { return };
    if let Err(error) = writer.finish().await {
        let error = crate::base::error_chain::ErrorChain(&error);
        tracing::debug!(peer = %address, %error, "connection ended early");
    }
}

/// Answers the requests of a connection. Returns the writer of a response that stays open; `None` when the connection has
/// ended.
async fn requests<S>(
    service: McpService,
    limits: Limits,
    stream: S,
    peer: Peer,
) -> Option<ChunkedWriter<FramedStream<S>, Body>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = service.tasks().clone();
    let (address, recorder) = (peer.address, service.clone());
    let (framing, hand_over) = (Arc::new(FramingCounts::default()), Arc::<HandOver>::default());
    let stream = FramedStream::new(stream, Arc::clone(&framing));
    let stream = FlushedStream::new(stream, Arc::clone(&hand_over));
    let taken = Arc::clone(&hand_over);
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, peer, taken) = (service.clone(), peer.clone(), Arc::clone(&taken));
        let framed = FramingCheck::of_http1(&framing);
        // Boxed, because the connection reserves the memory of this future for as long as it lasts and is idle most of
        // the time.
        Box::pin(async move {
            let version = request.version();
            let mut response = service.respond(peer, request, framed).await;
            // HTTP/1.1 has one response at a time, and the connection itself is already counted for its address.
            drop(response.extensions_mut().remove::<HeldUntilSent>());
            Ok::<_, Infallible>(taken.take(version, response))
        })
    });
    let mut connection = http1_bounds(limits).serve_connection(TokioIo::new(stream), answer);
    let mut stopping = pin!(tasks.stopping());
    let (mut asked, mut told) = (false, false);
    let ended = poll_fn(|cx| {
        // `stopping` is polled once, so that a stop wakes this task; after that the flag is enough, and no request
        // takes the lock behind the future.
        if !std::mem::replace(&mut asked, true) && stopping.as_mut().poll(cx).is_ready() {
            told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if tasks.is_stopping() && !std::mem::replace(&mut told, true) {
            Pin::new(&mut connection).graceful_shutdown();
        }
        match Pin::new(&mut connection).poll(cx) {
            Poll::Pending if hand_over.is_ready() => Poll::Ready(None),
            ended => ended.map(Some),
        }
    })
    .await;
    let Some(ended) = ended else {
        return hand_over.writer(connection.into_parts().io.into_inner());
    };
    if let Err(error) = ended {
        if error.is_parse()
            && let Some((now, admission)) = recorder.now()
        {
            let failure = match error.is_parse_too_large() {
                true => HttpFailure::LongHead,
                false => HttpFailure::Head,
            };
            now.gateway.record_unreadable(&admission, address, failure);
        }
        let error = crate::base::error_chain::ErrorChain(&error);
        tracing::debug!(peer = %address, %error, "connection ended early");
    }
    None
}

/// The bounds of an HTTP/1.1 connection.
fn http1_bounds(limits: Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_timeout)
        .max_headers(HEADERS)
        .max_header_size(limits.request_head)
        .max_buf_size(64 * 1024);
    builder
}

/// Serves an HTTP/2 connection; each request on it is answered as on a connection of its own.
async fn multiplexed<S>(service: McpService, limits: Limits, stream: S, mut peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some((now, admission)) = service.now() else { return };
    let (metrics, clock) = (Arc::clone(&now.gateway.metrics), Arc::clone(&now.gateway.clock));
    let (listener, address) = (Arc::clone(&admission.name), peer.address);
    // The connection may outlive this configuration.
    drop((now, admission));
    let terms = limits.http2_of_clients();
    let (tasks, vouched) = (service.tasks().clone(), Arc::new(AuthenticationSignal::default()));
    peer.vouched = Some(Arc::clone(&vouched));
    let means = ServeContext { terms, tasks, clock: Arc::clone(&clock), vouched };
    let answer = move |request: Request<IncomingBody>| {
        let (service, peer) = (service.clone(), peer.clone());
        async move {
            if request.headers().len() > HEADERS {
                if let Some((now, admission)) = service.now() {
                    let failure = HttpFailure::LongHead;
                    now.gateway.record_unreadable(&admission, peer.address, failure);
                }
                // As hyper does for HTTP/1.1, and `h2` for a header list that is too long.
                return encode::empty(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            }
            let framed = FramingCheck::of_headers(request.headers());
            service.respond(peer, named(request), framed).await
        }
    };
    let ended = http2::server::serve(stream, Arc::new(means), answer).await;
    let Err(error) = ended else { return };
    let flood = error.is_flood();
    let error = crate::base::error_chain::ErrorChain(&error);
    if !flood {
        tracing::debug!(peer = %address, %error, "connection ended early");
        return;
    }
    metrics.http2_floods.add(1);
    if let Some(suppressed) = FLOODED.allow(clock.instant()) {
        let peer = address.ip();
        tracing::warn!(
            event = "connection.flood", %listener, %peer, %error, suppressed,
            "HTTP/2 connection closed: flood limit exceeded"
        );
    }
}

/// Stops all tasks, waiting at most `at_most` for those that are still working.
pub async fn drain(tasks: &Tasks, at_most: Duration) {
    if !tasks.stop(at_most).await {
        tracing::warn!(
            event = "listener.drain_timeout",
            "requests were cut off at the end of the drain time"
        );
    }
}
