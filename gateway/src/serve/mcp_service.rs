//! The data path as a service: [`McpService`] answers every HTTP request that a listener of the configuration receives.
//! The gateway's own listeners call it, and an application can mount it in its own server: it is a [`tower::Service`].

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    CONTENT_LENGTH, HOST, TRANSFER_ENCODING, VARY,
};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::Service;

use crate::base::log_limit::LogLimit;
use crate::base::task::Tasks;
use crate::edge::admission::{Admission, Peer};
use crate::edge::encode;
use crate::edge::failure::{Failure, HttpFailure};
use crate::mcp::protocol::header;
use crate::net::http_framing::FramingCounts;
use crate::net::http2::HeldUntilSent;
use crate::serve::generation::{CurrentGeneration, Generation};
use crate::serve::http_sse::HttpSseServer;
use crate::serve::well_known::{Arrival, WellKnown};
use crate::stream::body::{Body, CutOff};

/// Largest number of headers of one request.
pub(super) const HEADERS: usize = 100;
/// Limit for the log lines about requests whose client is not known.
static NO_PEER: LogLimit = LogLimit::new(1, 5);

/// The data path of one listener of the configuration, as a [`tower::Service`].
///
/// [`RunningGateway::service`](crate::control::run::RunningGateway::service) makes it. It answers the paths of the
/// configuration's routes, those of their HTTP+SSE endpoints, and `/.well-known/oauth-protected-resource`; every other
/// path is refused and recorded. Paths are compared with those of the configuration, so it is mounted where it sees the
/// whole path: in axum with `fallback_service` or `route_service`, not with `nest_service`. A clone is cheap, and every
/// clone serves the configuration in force at the time of a request.
///
/// # What the caller supplies
///
/// * **The client's address**, as an extension of each request: a [`Peer`], or what axum's
///   `into_make_service_with_connect_info::<SocketAddr>()` adds. Without it a request is answered with 500. Behind a
///   proxy, that is the address of the proxy.
/// * **The bounds of a connection**: how many there are, the time for a request head and its length, how long a client may
///   leave a response unread, and TLS. The gateway's own listeners bound them by `limits`; a service sees requests only.
/// * **Unambiguous framing.** The gateway's own listeners inspect the bytes of a request head; here, only a request with
///   several `Content-Length`, or with that and `Transfer-Encoding`, is refused.
///
/// # What the service does
///
/// Everything else is as with the gateway's own listener, for the settings of `listeners` by that name: the headers `Host`
/// and `Origin`, authentication, the limits on requests in flight, bodies and times, the policy, and the audit records. If
/// the `address` in the configuration is a loopback address, clients on other machines are refused.
///
/// # How it ends
///
/// Once [`RunningGateway::stop`](crate::control::run::RunningGateway::stop) was called, new requests are answered with
/// 503 and streams without an end are ended. `stop` waits until all responses of the service were read or dropped, but
/// not longer than `limits.drainTimeout`.
#[derive(Clone, Debug)]
pub struct McpService(Arc<ServedListener>);

/// What the requests of one listener share.
#[derive(Debug)]
struct ServedListener {
    live: Arc<CurrentGeneration>,
    http_sse: Arc<HttpSseServer>,
    well_known: WellKnown,
    /// Index of the listener in the configuration.
    at: usize,
    /// Tasks of the process, which outlive a configuration.
    tasks: Tasks,
}

impl McpService {
    /// The service of the listener with the index `at`.
    #[must_use]
    pub fn new(
        live: &Arc<CurrentGeneration>,
        http_sse: &Arc<HttpSseServer>,
        tasks: &Tasks,
        at: usize,
    ) -> Self {
        Self(Arc::new(ServedListener {
            live: Arc::clone(live),
            http_sse: Arc::clone(http_sse),
            well_known: WellKnown::new(),
            at,
            tasks: tasks.clone(),
        }))
    }

    /// The tasks of the process.
    pub(super) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    /// The generation in force and this listener's admission in it; `None` if the generation has no such listener.
    pub(super) fn now(&self) -> Option<(Arc<Generation>, Arc<Admission>)> {
        let now = self.0.live.now();
        let admission = now.admissions.get(self.0.at).cloned()?;
        Some((now, admission))
    }

    /// Answers a request of `peer`. The resources of the response are in its [`HeldUntilSent`].
    pub(super) async fn respond<B>(
        &self,
        peer: Peer,
        request: Request<B>,
        framing: FramingCheck,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Some((now, admission)) = self.now() else {
            return encode::unavailable();
        };
        let gateway = Arc::clone(&now.gateway);
        if framing == FramingCheck::Ambiguous {
            return encode::close_connection(gateway.turned_away(
                &admission,
                &peer,
                &HttpFailure::Framing.into(),
            ));
        }
        let origin = admission.origin(request.headers());
        if request.method() == Method::OPTIONS && origin.is_some() {
            let (head, _) = request.into_parts();
            if admission.admit(&head).is_ok() {
                return preflight(origin, &head);
            }
            return encode::empty(StatusCode::FORBIDDEN);
        }
        let slot = match gateway.enter(&peer) {
            Ok(slot) => slot,
            Err(failure) => {
                return encode::close_connection(gateway.turned_away(&admission, &peer, &failure));
            }
        };
        let path = request.uri().path();
        let mut response = match HttpSseServer::serves(&now.http_sse_paths, request.method(), path)
        {
            // These are boxed, because they are rare and larger than the others.
            _ if WellKnown::serves(request.method(), path) => {
                let arrival = Arrival { gateway, admission, peer };
                Box::pin(self.0.well_known.answer(arrival, request.into_parts().0)).await
            }
            Some(target) => {
                let http_sse = &self.0.http_sse;
                Box::pin(http_sse.answer(&gateway, &admission, &peer, request, target, slot)).await
            }
            // Boxed as well: a connection reserves the memory of its futures for as long as it lasts, and many last for
            // hours as a stream whose head was sent long ago.
            None => Box::pin(gateway.exchange(admission, peer, request, slot)).await,
        };
        if let Some(origin) = origin {
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(
                ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static(
                    "mcp-session-id, www-authenticate, dpop-nonce, retry-after",
                ),
            );
            headers.insert(VARY, HeaderValue::from_static("Origin"));
        }
        response
    }

    /// Answers a request that another server than the gateway's own listener has received.
    async fn respond_mounted<B>(self, request: Request<B>) -> Response<MountedBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // Taken before the flag is read, so that a stop waits for every request that it does not refuse.
        let counted = self.0.tasks.counted();
        let mut response = match self.mounted_peer(&request) {
            Ok(peer) => {
                let framing = FramingCheck::of_headers(request.headers());
                let is_http2 = request.version() == Version::HTTP_2;
                let request = if is_http2 { named(request) } else { request };
                self.respond(peer, request, framing).await
            }
            Err(refused) => *refused,
        };
        let unsent = response.extensions_mut().remove::<HeldUntilSent>();
        response.map(|body| MountedBody { body, _held: (counted, unsent) })
    }

    /// The client of a request, if the request may be answered: what the gateway's own listener ensures on its
    /// connections is checked here.
    fn mounted_peer<B>(&self, request: &Request<B>) -> Result<Peer, Box<Response<Body>>> {
        let Some((now, admission)) = self.now().filter(|_| !self.0.tasks.is_stopping()) else {
            return Err(Box::new(encode::unavailable()));
        };
        let Some(peer) = peer_of(request.extensions()) else {
            if let Some(suppressed) = NO_PEER.allow(now.gateway.clock.instant()) {
                let listener = &admission.name;
                tracing::error!(
                    event = "request.no_client_address", %listener, suppressed,
                    "request refused: the application that mounts the gateway gave no client address"
                );
            }
            return Err(Box::new(encode::empty(StatusCode::INTERNAL_SERVER_ERROR)));
        };
        if request.headers().len() > HEADERS {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(Box::new(encode::empty(status)));
        }
        if !admission.is_reachable_from(peer.address.ip()) {
            let failure = Failure::from(HttpFailure::Host);
            return Err(Box::new(now.gateway.turned_away(&admission, &peer, &failure)));
        }
        Ok(peer)
    }
}

impl<B> Service<Request<B>> for McpService
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<MountedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    /// The service is always ready. What it has no room for is answered with 503 or 429, and recorded.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.respond_mounted(request).await) })
    }
}

/// The body of a response of [`McpService`]. It holds the caller's share of the requests in flight, and keeps
/// [`RunningGateway::stop`](crate::control::run::RunningGateway::stop) waiting, until it is dropped.
#[derive(Debug)]
pub struct MountedBody {
    body: Body,
    _held: (TaskTrackerToken, Option<HeldUntilSent>),
}

impl http_body::Body for MountedBody {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The client that an application names for a request.
fn peer_of(extensions: &Extensions) -> Option<Peer> {
    let peer = extensions.get::<Peer>().cloned();
    peer.or_else(|| {
        let ConnectInfo(address) = extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(Peer::at(*address))
    })
}

/// Copies the HTTP/2 `:authority` to `Host`, where admission looks for it. A request with both keeps both and is
/// admitted only if they agree.
///
/// RFC 9113, section 8.3.1
pub(super) fn named<B>(mut request: Request<B>) -> Request<B> {
    let authority = request.uri().authority();
    let host = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = host.filter(|_| !request.headers().contains_key(HOST)) {
        request.headers_mut().insert(HOST, host);
    }
    request
}

/// Whether the message framing is unambiguous (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramingCheck {
    /// It is, so the connection can carry another request.
    Sound,
    /// It could be used to smuggle a second request.
    Ambiguous,
}

impl FramingCheck {
    /// The framing check of the next request on the connection.
    pub(super) fn of_http1(heads: &FramingCounts) -> Self {
        if heads.next_is_good() { Self::Sound } else { Self::Ambiguous }
    }

    /// What is left of a request's framing once another has parsed it. `h2` refuses lengths that differ from each other or
    /// from the body; a repeated equal value is refused here, as in HTTP/1.1.
    pub(super) fn of_headers(headers: &HeaderMap) -> Self {
        let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
        match lengths {
            0 => Self::Sound,
            1 if !headers.contains_key(TRANSFER_ENCODING) => Self::Sound,
            _ => Self::Ambiguous,
        }
    }
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
