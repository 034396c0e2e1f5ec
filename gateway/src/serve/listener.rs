//! The HTTP listeners: accepts connections, terminates TLS, and serves HTTP/1.1 and HTTP/2 within the configured
//! limits. Each request is passed to the gateway of the configuration in force.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    CONTENT_LENGTH, HOST, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
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
use crate::edge::admission::{Admission, Peer};
use crate::edge::encode;
use crate::edge::failure::HttpFailure;
use crate::edge::tls;
use crate::identity::resource::WELL_KNOWN;
use crate::mcp::protocol::header;
use crate::metrics::Metrics;
use crate::net::http_framing::{FramedStream, FramingCounts};
use crate::net::http2::server::ServeContext;
use crate::net::http2::{self, AuthenticationSignal, HeldUntilSent, IncomingBody};
use crate::net::lingering_close::LingeringClose;
use crate::net::write_timeout::WriteTimeout;
use crate::serve::generation::{CurrentGeneration, Generation};
use crate::serve::http_sse::HttpSseServer;
use crate::stream::body::Body;

/// Pause after a failed accept, usually because the process has no file descriptors left, so that the accept loop does
/// not spin.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Largest number of headers of one request.
const HEADERS: usize = 100;
/// Limits for the log lines about refused connections, failed TLS handshakes and HTTP/2 floods: any client on the
/// network can cause these.
static CLOSED: LogLimit = LogLimit::new(1, 5);
static UNSHAKEN: LogLimit = LogLimit::new(1, 20);
static FLOODED: LogLimit = LogLimit::new(1, 5);

/// Serves a worker's share of the listener with the index `at` until the process stops.
pub fn begin(
    live: &Arc<CurrentGeneration>,
    old: &Arc<HttpSseServer>,
    tasks: &Tasks,
    at: usize,
    listener: &std::net::TcpListener,
) {
    match listener.try_clone().and_then(TcpListener::from_std) {
        Ok(listener) => {
            let served = ConnectionContext {
                live: Arc::clone(live),
                old: Arc::clone(old),
                at,
                tasks: tasks.clone(),
            };
            tasks.spawn(serve(served, listener));
        }
        Err(error) => tracing::error!(listener = at, %error, "a worker does not listen"),
    }
}

/// What the tasks of a connection share.
#[derive(Clone)]
struct ConnectionContext {
    live: Arc<CurrentGeneration>,
    old: Arc<HttpSseServer>,
    /// Index of the listener in the configuration.
    at: usize,
    /// Tasks of the process, which outlive a configuration.
    tasks: Tasks,
}

impl ConnectionContext {
    /// The generation in force and this listener's admission in it; `None` if the generation has no such listener.
    fn now(&self) -> Option<(Arc<Generation>, Arc<Admission>)> {
        let now = self.live.now();
        let door = now.doors.get(self.at).cloned()?;
        Some((now, door))
    }
}

async fn serve(served: ConnectionContext, listener: TcpListener) {
    let tasks = served.tasks.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tasks.stopping() => return,
        };
        let Some((now, door)) = served.now() else { return };
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
                            let (listener, peer) = (&door.name, address.ip());
                            tracing::warn!(%listener, %peer, %error, suppressed, "a connection was refused");
                        }
                        continue;
                    }
                };
                tasks.spawn(welcome(served.clone(), stream, peer, share));
            }
            Err(error) => {
                tracing::warn!(listener = %door.name, %error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Counts a connection and serves it, after a TLS handshake where the listener has TLS. The stages are boxed, so that a
/// connection takes memory only for the stage it is in.
async fn welcome(
    served: ConnectionContext,
    stream: TcpStream,
    mut peer: Peer,
    share: Share<Holder>,
) {
    let Some((now, door)) = served.now() else { return };
    let (limits, clock) = (now.gateway.limits, Arc::clone(&now.gateway.clock));
    let metrics = Arc::clone(&now.gateway.metrics);
    // The connection may outlive this configuration.
    drop(now);
    let _counted = ConnectionGuard::new(&metrics, share);
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let stream = WriteTimeout::new(LingeringClose::new(stream), limits.write_time);
    match &door.tls {
        None => Box::pin(connection(served, limits, stream, peer)).await,
        Some(acceptor) => {
            let shaken =
                tokio::time::timeout(limits.request_time, Box::pin(acceptor.accept(stream)));
            match shaken.await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok((stream, certificate)) => {
                    peer.certificate = certificate;
                    // The connection ends when the client certificate expires.
                    let ends = peer.certificate.as_ref().map(|shown| shown.ends);
                    let left = ends.map(|ends| ends.duration_since(clock.now()));
                    let left = left.map(Result::unwrap_or_default);
                    let served = Box::pin(async {
                        if tls::is_http2(&stream) {
                            multiplexed(served, limits, stream, peer).await;
                        } else {
                            connection(served, limits, stream, peer).await;
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
                        tracing::info!(listener = %door.name, %peer, %error, suppressed, "no TLS with a client");
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

async fn connection<S>(served: ConnectionContext, limits: Limits, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = served.tasks.clone();
    let address = peer.address;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_time)
        .max_headers(HEADERS)
        .max_header_size(limits.request_head)
        .max_buf_size(64 * 1024);
    let framing = Arc::new(FramingCounts::default());
    let stream = FramedStream::new(stream, Arc::clone(&framing));
    let answer = service_fn(move |request: Request<Incoming>| {
        let (served, peer, framed) =
            (served.clone(), peer.clone(), FramingCheck::of_http1(&framing));
        // Boxed, because the connection reserves the memory of this future for as long as it lasts and is idle most of
        // the time.
        Box::pin(async move {
            let mut response = respond(served, peer, request, framed).await;
            // HTTP/1.1 has one response at a time, and the connection itself is already counted for its address.
            drop(response.extensions_mut().remove::<HeldUntilSent>());
            Ok::<_, Infallible>(response)
        })
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    let mut stopping = pin!(tasks.stopping());
    let (mut asked, mut told) = (false, false);
    let ended = poll_fn(|cx| {
        // `stopping` is polled once, so that a stop wakes this task; after that the flag is enough, and no request
        // takes the lock behind the future.
        if !std::mem::replace(&mut asked, true) && stopping.as_mut().poll(cx).is_ready() {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        if tasks.is_stopping() && !std::mem::replace(&mut told, true) {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await;
    if let Err(error) = ended {
        let error = crate::base::error_chain::ErrorChain(&error);
        tracing::debug!(peer = %address, %error, "a connection ended early");
    }
}

/// Serves an HTTP/2 connection; each request on it is answered as on a connection of its own.
async fn multiplexed<S>(served: ConnectionContext, limits: Limits, stream: S, mut peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some((now, door)) = served.now() else { return };
    let (metrics, clock) = (Arc::clone(&now.gateway.metrics), Arc::clone(&now.gateway.clock));
    let (listener, address) = (Arc::clone(&door.name), peer.address);
    // The connection may outlive this configuration.
    drop((now, door));
    let terms = limits.http2_of_clients();
    let (tasks, vouched) = (served.tasks.clone(), Arc::new(AuthenticationSignal::default()));
    peer.vouched = Some(Arc::clone(&vouched));
    let means = ServeContext { terms, tasks, clock: Arc::clone(&clock), vouched };
    let answer = move |request: Request<IncomingBody>| {
        let (served, peer) = (served.clone(), peer.clone());
        async move {
            if request.headers().len() > HEADERS {
                // As hyper does for HTTP/1.1, and `h2` for a header list that is too long.
                return encode::empty(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            }
            let framed = FramingCheck::of_http2(request.headers());
            respond(served, peer, named(request), framed).await
        }
    };
    let ended = http2::server::serve(stream, Arc::new(means), answer).await;
    let Err(error) = ended else { return };
    let flood = error.is_flood();
    let error = crate::base::error_chain::ErrorChain(&error);
    if !flood {
        tracing::debug!(peer = %address, %error, "a connection ended early");
        return;
    }
    metrics.http2_floods.add(1);
    if let Some(suppressed) = FLOODED.allow(clock.instant()) {
        let peer = address.ip();
        tracing::warn!(%listener, %peer, %error, suppressed, "a connection cost more than it may");
    }
}

/// Whether there is at most one `Content-Length`. `h2` refuses values that differ from each other or from the body; a
/// repeated equal value is refused here, as in HTTP/1.1.
fn has_one_length(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_LENGTH).iter().count() < 2
}

/// Copies the HTTP/2 `:authority` to `Host`, where admission looks for it. A request with both keeps both and is
/// admitted only if they agree.
///
/// RFC 9113, section 8.3.1
fn named<B>(mut request: Request<B>) -> Request<B> {
    let authority = request.uri().authority();
    let host = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = host.filter(|_| !request.headers().contains_key(HOST)) {
        request.headers_mut().insert(HOST, host);
    }
    request
}

/// Whether the end of a request's body is where every reader looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramingCheck {
    Sound,
    /// It could be used to smuggle a second request.
    Ambiguous,
}

impl FramingCheck {
    /// What the next request head on an HTTP/1.1 connection says.
    fn of_http1(heads: &FramingCounts) -> Self {
        if heads.next_is_good() { Self::Sound } else { Self::Ambiguous }
    }

    fn of_http2(headers: &HeaderMap) -> Self {
        if has_one_length(headers) { Self::Sound } else { Self::Ambiguous }
    }
}

async fn respond<B>(
    served: ConnectionContext,
    peer: Peer,
    request: Request<B>,
    framing: FramingCheck,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Some((now, door)) = served.now() else {
        return encode::unavailable();
    };
    let (gateway, old) = (Arc::clone(&now.gateway), served.old);
    if framing == FramingCheck::Ambiguous {
        return encode::last(gateway.turned_away(&door, &peer, &HttpFailure::Framing.into()));
    }
    let origin = door.origin(request.headers());
    if request.method() == Method::OPTIONS && origin.is_some() {
        let (head, _) = request.into_parts();
        if door.admit(&head).is_ok() {
            return preflight(origin, &head);
        }
        return encode::empty(StatusCode::FORBIDDEN);
    }
    let place = match gateway.enter(&peer) {
        Ok(place) => place,
        Err(failure) => {
            return encode::last(gateway.turned_away(&door, &peer, &failure));
        }
    };
    let path = request.uri().path();
    let described = path.starts_with(WELL_KNOWN) && request.method() == Method::GET;
    let mut response = match HttpSseServer::serves(&now.old, request.method(), path) {
        _ if described => gateway.describe(&door, &peer, &request.into_parts().0),
        // Boxed, because this future is rare and larger than the others.
        Some(target) => Box::pin(old.answer(&gateway, &door, &peer, request, target, place)).await,
        // Boxed as well: a connection reserves the memory of its futures for as long as it lasts, and many last for
        // hours as a stream whose head was sent long ago.
        None => Box::pin(gateway.exchange(door, peer, request, place)).await,
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("mcp-session-id, www-authenticate, dpop-nonce, retry-after"),
        );
        headers.insert(VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// Answers the CORS preflight request of a browser for a page of an allowed origin.
fn preflight(origin: Option<HeaderValue>, head: &Parts) -> Response<Body> {
    let mut response = encode::empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.extend(origin.map(|origin| (ACCESS_CONTROL_ALLOW_ORIGIN, origin)));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, DELETE"));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(
            "authorization, content-type, dpop, last-event-id, mcp-method, mcp-name, mcp-protocol-version, \
             mcp-session-id, x-api-key",
        ),
    );
    // The names of parameter headers depend on the tools, so those the browser asks for are allowed.
    let asked = head.headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let asked = asked.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    for name in asked.map(str::trim).filter(|name| name.starts_with(header::PARAM)) {
        if let Ok(name) = HeaderValue::from_str(name) {
            headers.append(ACCESS_CONTROL_ALLOW_HEADERS, name);
        }
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    headers.insert(VARY, HeaderValue::from_static("Origin"));
    response
}

/// Stops all tasks, waiting at most `at_most` for those that are still working.
pub async fn drain(tasks: &Tasks, at_most: Duration) {
    if !tasks.stop(at_most).await {
        tracing::warn!("some requests were cut off");
    }
}
