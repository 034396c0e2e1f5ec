//! The admin API on the operator's listener: health and metrics, which are public, and changes (revocations, reload,
//! self-test), which require the operator's token.
//!
//! Requests are admitted as on every other listener, and everything that a peer controls is bounded: connections, in
//! total and from one address, request heads, bodies, and the time for each.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use aws_lc_rs::{constant_time, digest};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use policy_core::subject::revoked::RevocationList;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::audit::{Journal, RevocationSource};
use crate::base::heartbeat::Heartbeats;
use crate::base::share::{Share, ShareError, Shares, network};
use crate::base::task::Tasks;
use crate::control::reload::Reloader;
use crate::control::revocation::{
    ChangeError, ChangePersistence, RevocationAction, RevocationManager,
};
use crate::control::selftest::SelftestRunner;
use crate::edge::admission::Admission;
use crate::edge::failure::{HttpFailure, SOON};
use crate::mcp::wire::headers::{SingleValue, single};
use crate::metrics::Metrics;
use crate::net::write_timeout::WriteTimeout;
use crate::outbound::secrets::LiveSecret;
use crate::serve::generation::CurrentGeneration;
use crate::serve::listener::ACCEPT_PAUSE;
use crate::stream::body::Body;

/// Maximum number of connections, in total and from one address.
const CONNECTIONS: usize = 256;
const OF_ONE_ADDRESS: usize = 64;
/// Maximum length of a request head in bytes, and of headers in it.
const HEAD: usize = 16 * 1024;
const HEADERS: usize = 64;
/// Maximum length of a request body, in bytes: a change of revocations.
const BODY: usize = 2 * 1024 * 1024;
/// Maximum time for a request head, from the end of the previous request or the start of the connection.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// Maximum time for a request body, and for a peer to accept written data.
const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum interval between log lines about closed connections.
const SELDOM: Duration = Duration::from_secs(60);

/// The state that the admin API reports and changes.
#[derive(Clone, Debug)]
pub struct AdminApi {
    /// The metrics of the process.
    pub metrics: Arc<Metrics>,
    /// The audit journal of the process.
    pub journal: Arc<Journal>,
    /// The generation of the configuration that is in force.
    pub live: Arc<CurrentGeneration>,
    /// The tasks of the gateway, which tell whether it stops.
    pub tasks: Tasks,
    /// The revocations in force.
    pub switch: Arc<RevocationManager>,
    /// Reloads the configuration; `None` if it was not read from a file.
    pub reloader: Option<Arc<Reloader>>,
    /// Runs the self-test on request.
    pub tester: Arc<SelftestRunner>,
    /// The token that an operator must present; without one, only health and metrics are served.
    pub token: Option<Arc<LiveSecret>>,
    /// Decides which requests are admitted.
    pub door: Arc<Admission>,
    /// The heartbeats of the workers.
    pub beats: Arc<Heartbeats>,
}

/// The state of a connection: no request yet, a request is being answered, or the last one was answered.
const SILENT: u8 = 0;
const ANSWERED: u8 = 1;
const IDLE: u8 = 2;

/// An open connection and its share.
#[derive(Debug)]
struct AdminConnection {
    source: IpAddr,
    /// One of [`SILENT`], [`ANSWERED`] and [`IDLE`].
    state: AtomicU8,
    place: Mutex<Option<Share<IpAddr>>>,
    /// Cancelled to close the connection because another takes its place.
    over: CancellationToken,
}

impl AdminConnection {
    /// Returns the share of the connection at once, and closes it.
    fn leave(&self) {
        drop(self.place.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.over.cancel();
    }
}

/// The open connections. When a limit is reached, a connection that is not being answered is closed in favour of the
/// new one, so that idle connections cannot block health checks.
#[derive(Debug)]
struct AdminConnections {
    places: Arc<Shares<IpAddr>>,
    /// Ordered from oldest to newest.
    seats: VecDeque<Weak<AdminConnection>>,
}

impl AdminConnections {
    fn new() -> Self {
        Self { places: Shares::new(CONNECTIONS, OF_ONE_ADDRESS), seats: VecDeque::new() }
    }

    /// Admits a connection from `address`. Also returns the exceeded limit, if another connection was closed for it.
    fn take(
        &mut self,
        address: IpAddr,
    ) -> Result<(Arc<AdminConnection>, Option<ShareError>), ShareError> {
        self.seats.retain(|seat| seat.strong_count() > 0);
        let source = source(address);
        let (place, left) = match self.places.take(&source, 1) {
            Ok(place) => (place, None),
            Err(full) if self.make_room(source, full) => {
                (self.places.take(&source, 1)?, Some(full))
            }
            Err(full) => return Err(full),
        };
        let seat = Arc::new(AdminConnection {
            source,
            state: AtomicU8::new(SILENT),
            place: Mutex::new(Some(place)),
            over: CancellationToken::new(),
        });
        self.seats.push_back(Arc::downgrade(&seat));
        Ok((seat, left))
    }

    /// Closes the oldest connection without a request, or else the oldest idle one, among those that count against
    /// the limit `full`. Returns whether there was one.
    fn make_room(&self, source: IpAddr, full: ShareError) -> bool {
        let helps = |seat: &AdminConnection| match full {
            ShareError::All { .. } => true,
            ShareError::Holder { .. } => seat.source == source,
        };
        let oldest = |state: u8| {
            let mut seats = self.seats.iter().filter_map(Weak::upgrade);
            seats.find(|seat| {
                let is_open = !seat.over.is_cancelled();
                is_open && seat.state.load(Ordering::Acquire) == state && helps(seat)
            })
        };
        let seat = oldest(SILENT).or_else(|| oldest(IDLE));
        if let Some(seat) = &seat {
            seat.leave();
        }
        seat.is_some()
    }
}

/// The address that a connection is counted under. All loopback addresses are one, because every local process can
/// use each of them.
fn source(address: IpAddr) -> IpAddr {
    let address = network(address);
    if address.is_loopback() || address == network(IpAddr::V6(Ipv6Addr::LOCALHOST)) {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        address
    }
}

/// Serves the operator's listener until the gateway stops.
pub async fn serve(ops: AdminApi, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the operator's listener does not listen"),
    };
    let tasks = ops.tasks.clone();
    let clock = Arc::clone(&ops.live.now().gateway.clock);
    let mut seats = AdminConnections::new();
    let mut told = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tasks.stopping() => return,
        };
        let Ok((stream, address)) = accepted else {
            // The process is out of descriptors or memory: retrying at once would only spin.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (seat, closed) = match seats.take(address.ip()) {
            Ok((seat, left)) => (Some(seat), left),
            Err(error) => (None, Some(error)),
        };
        if let Some(error) = closed {
            ops.metrics.ops_refused.add(1);
            let now = clock.instant();
            if told.is_none_or(|told| now.saturating_duration_since(told) >= SELDOM) {
                told = Some(now);
                tracing::warn!(%error, peer = %address, "a connection of an operator was closed");
            }
        }
        let Some(seat) = seat else { continue };
        tasks.spawn(answer_connection(ops.clone(), stream, seat));
    }
}

/// Answers the requests on one connection until it ends, it is closed for another one, or the gateway stops.
async fn answer_connection(ops: AdminApi, stream: TcpStream, seat: Arc<AdminConnection>) {
    let stop = ops.tasks.clone();
    let stream = WriteTimeout::new(stream, PATIENCE);
    let held = Arc::clone(&seat);
    let answer = service_fn(move |request| {
        let (ops, seat) = (ops.clone(), Arc::clone(&held));
        async move {
            seat.state.store(ANSWERED, Ordering::Release);
            let answer = ops.answer(request).await;
            seat.state.store(IDLE, Ordering::Release);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(HEADERS)
        .max_header_size(HEAD)
        .max_buf_size(2 * HEAD);
    let served = builder.serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        ended = served => if let Err(error) = ended {
            tracing::debug!(%error, "a connection of the operator ended early");
        },
        () = stop.stopping() => {}
        () = seat.over.cancelled() => {}
    }
}

/// How much the answer to a readiness probe says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadinessDetail {
    /// Whether the gateway is ready.
    Brief,
    /// The state of each part as well.
    Verbose,
}

impl ReadinessDetail {
    fn of(query: Option<&str>) -> Self {
        if query == Some("verbose") { Self::Verbose } else { Self::Brief }
    }
}

impl AdminApi {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        if let Err(failure) = self.door.admit(&head) {
            return match failure {
                HttpFailure::Host => {
                    let help =
                        "this listener does not answer to that host; name it in `ops.hosts`\n";
                    text(StatusCode::MISDIRECTED_REQUEST, help)
                }
                HttpFailure::Origin => {
                    text(StatusCode::FORBIDDEN, "pages may not call this listener\n")
                }
                _ => text(StatusCode::BAD_REQUEST, "HTTP/1.1 without an upgrade, please\n"),
            };
        }
        // Only browsers send `Origin`, and no page may call this listener.
        if head.headers.contains_key(ORIGIN) {
            return text(StatusCode::FORBIDDEN, "pages may not call this listener\n");
        }
        let request = Request::from_parts(head, body);
        if request.uri().path() == "/revocations" && self.token.is_some() {
            return self.revocations(request).await;
        }
        if matches!(request.uri().path(), "/config" | "/reload") && self.token.is_some() {
            return self.configuration(&request).await;
        }
        if request.uri().path() == "/selftest" && self.token.is_some() {
            return self.selftest(&request).await;
        }
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
        }
        match request.uri().path() {
            "/livez" => self.alive(),
            "/readyz" => self.ready(ReadinessDetail::of(request.uri().query())),
            "/metrics" => {
                let mut response = text(StatusCode::OK, self.metrics.text());
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            _ => text(StatusCode::NOT_FOUND, "/livez, /readyz, /readyz?verbose, /metrics\n"),
        }
    }

    /// Serves the configuration in force (GET `/config`) and reloads it (POST `/reload`).
    async fn configuration(&self, request: &Request<Incoming>) -> Response<Body> {
        if !self.is_operator(request.headers()) {
            return stranger();
        }
        let Some(reloader) = &self.reloader else {
            return text(StatusCode::NOT_FOUND, "the configuration was not read from a file\n");
        };
        let status = match (request.method(), request.uri().path()) {
            (&Method::GET, "/config") => StatusCode::OK,
            (&Method::POST, "/reload") => match reloader.reload().await {
                Ok(_) => StatusCode::OK,
                Err(_) => StatusCode::UNPROCESSABLE_ENTITY,
            },
            _ => return text(StatusCode::METHOD_NOT_ALLOWED, "GET /config, POST /reload\n"),
        };
        json(status, reloader.status())
    }

    /// Runs the self-test on the configuration in force (POST `/selftest`), and returns its report.
    async fn selftest(&self, request: &Request<Incoming>) -> Response<Body> {
        if !self.is_operator(request.headers()) {
            return stranger();
        }
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "POST /selftest\n");
        }
        match self.tester.run().await {
            Some(report) => json(StatusCode::OK, report.json()),
            None => text(StatusCode::NOT_FOUND, "add `selftest: {}` to the configuration\n"),
        }
    }

    /// Serves the revocations (GET), adds to them (POST) and removes from them (DELETE).
    async fn revocations(&self, request: Request<Incoming>) -> Response<Body> {
        if !self.is_operator(request.headers()) {
            return stranger();
        }
        let act = match *request.method() {
            Method::GET => return json(StatusCode::OK, format!("{{{}}}\n", self.switch.status())),
            Method::POST => RevocationAction::Revoke,
            Method::DELETE => RevocationAction::Lift,
            _ => return text(StatusCode::METHOD_NOT_ALLOWED, "GET, POST or DELETE\n"),
        };
        let Some(body) = whole(request.into_body()).await else {
            let help = format!("send at most {BODY} bytes within {} s\n", PATIENCE.as_secs());
            return text(StatusCode::BAD_REQUEST, help);
        };
        let what = String::from_utf8_lossy(&body).into_owned();
        let change = match self.switch.read(body, act) {
            Ok(change) => change,
            Err(error) => return refused(&error),
        };
        let revoke = act == RevocationAction::Revoke;
        let unlisted = if revoke { self.unlisted(&change) } else { String::from("[]") };
        // A revocation takes effect even if it cannot be recorded; its removal does not.
        if !revoke && let Err(error) = self.journal.reinstated(&what, RevocationSource::Operator) {
            tracing::error!(error = %crate::base::error_chain::ErrorChain(&error), "not recorded, not taken back");
            return text(StatusCode::SERVICE_UNAVAILABLE, "it cannot be recorded\n");
        }
        match self.switch.change(change, act).await {
            Ok(kept) => {
                if revoke
                    && let Err(error) = self.journal.revoked(&what, RevocationSource::Operator)
                {
                    tracing::error!(error = %crate::base::error_chain::ErrorChain(&error), "not recorded");
                }
                tracing::warn!(revoke, %what, "an operator has changed what is revoked");
                let written = kept == ChangePersistence::Written;
                let status = self.switch.status();
                let body = format!("{{\"written\":{written},\"unlisted\":{unlisted},{status}}}\n");
                json(StatusCode::OK, body)
            }
            Err(error) => {
                tracing::warn!(%what, %error, "what is revoked was not changed");
                refused(&error)
            }
        }
    }

    /// Lists, as a JSON array, the tools and prompts of a change that their servers do not list: such a name may be
    /// misspelt.
    fn unlisted(&self, change: &RevocationList) -> String {
        let gateway = Arc::clone(&self.live.now().gateway);
        let servers: Vec<_> = gateway.routes.values().flat_map(|route| &route.servers).collect();
        let is_unlisted = |entry: &&str| {
            let Some((server, name)) = entry.split_once('/') else { return false };
            let mut servers = servers.iter().filter(|one| one.name().as_str() == server);
            servers.any(|one| one.lists(name) == Some(false))
        };
        let unlisted: Vec<_> =
            change.tools.iter().map(|tool| &**tool).filter(is_unlisted).collect();
        serde_json::Value::from(unlisted).to_string()
    }

    /// Liveness: the workers run, and files and threads are available. Only a restart helps against a stalled worker
    /// or a long lack of files or threads.
    fn alive(&self) -> Response<Body> {
        let (stalled, starved) = (self.beats.stalled(), self.beats.starved());
        if stalled.is_empty() && starved.is_none() {
            return text(StatusCode::OK, "ok\n");
        }
        let mut body = String::from("not alive\n");
        for (worker, since) in stalled {
            writeln!(body, "worker {worker}: stalled for {} s", since.as_secs())
                .unwrap_or_default();
        }
        if let Some(since) = starved {
            writeln!(body, "no more files or threads for {} s", since.as_secs())
                .unwrap_or_default();
        }
        text(StatusCode::SERVICE_UNAVAILABLE, body)
    }

    /// Whether a request carries the token, compared by digest in constant time.
    fn is_operator(&self, headers: &HeaderMap) -> bool {
        let SingleValue::Value(shown) = single(headers, AUTHORIZATION.as_str()) else {
            return false;
        };
        let Some(shown) = shown.strip_prefix("Bearer ") else { return false };
        let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
        let token = self.token.as_ref().and_then(|token| token.now().ok());
        let known = token.map(|token| digest(token.expose()));
        known.is_some_and(|known| {
            let shown = digest(shown);
            constant_time::verify_slices_are_equal(known.as_ref(), shown.as_ref()).is_ok()
        })
    }

    /// Readiness: the gateway can decide and record. An unreachable upstream server does not count, because it must
    /// not take the others out of service.
    fn ready(&self, detail: ReadinessDetail) -> Response<Body> {
        let stopping = self.tasks.is_waning();
        let recording = self.journal.is_working();
        let hindrance = self.tester.hindrance();
        // New clients cannot be served without another file or thread.
        let provided = self.beats.lacking().is_none();
        let good = !stopping && recording && provided && hindrance.is_none();
        let mut body = String::from(if good { "ok\n" } else { "not ready\n" });
        if detail == ReadinessDetail::Verbose {
            let word = |good| if good { "ok" } else { "failing" };
            writeln!(body, "audit: {}", word(recording)).unwrap_or_default();
            writeln!(body, "files and threads: {}", word(provided)).unwrap_or_default();
            writeln!(body, "stopping: {stopping}").unwrap_or_default();
            if self.live.now().gateway.policy.facts().revoked().everything {
                body.push_str("revocations: everything is revoked, so no caller is served\n");
            }
            if let Some(hindrance) = &hindrance {
                writeln!(body, "selftest: {hindrance}").unwrap_or_default();
            }
            for server in self.metrics.unreached() {
                writeln!(body, "server {server}: not reached").unwrap_or_default();
            }
            for issuer in self.live.now().gateway.identity.missing() {
                writeln!(body, "issuer {issuer}: its keys are not known").unwrap_or_default();
            }
        }
        text(if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
    }
}

/// Reads a whole body; `None` if it is too long or too slow.
async fn whole(body: Incoming) -> Option<Bytes> {
    // A body that announces too great a length is not read.
    if body.size_hint().lower() > BODY as u64 {
        return None;
    }
    let collected = tokio::time::timeout(PATIENCE, Limited::new(body, BODY).collect()).await;
    Some(collected.ok()?.ok()?.to_bytes())
}

fn refused(error: &ChangeError) -> Response<Body> {
    let status = match error {
        ChangeError::Shape | ChangeError::Many | ChangeError::Name(_) | ChangeError::Unknown(_) => {
            StatusCode::BAD_REQUEST
        }
        ChangeError::NotRevoked(_) => StatusCode::NOT_FOUND,
        ChangeError::Unwritten | ChangeError::Undecided => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, format!("{error}\n"))
}

fn stranger() -> Response<Body> {
    let mut response = text(StatusCode::UNAUTHORIZED, "show the token of `ops.token`\n");
    let challenge = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

fn json(status: StatusCode, body: String) -> Response<Body> {
    let mut response = text(status, body);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(SOON));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::{ANSWERED, AdminConnections, CONNECTIONS, IDLE, OF_ONE_ADDRESS, source};
    use std::net::IpAddr;
    use std::sync::atomic::Ordering;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn all_loopback_addresses_are_one() {
        for address in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(source(at(address)), at("127.0.0.1"), "{address}");
        }
        assert_eq!(source(at("192.0.2.1")), at("192.0.2.1"));
        assert_ne!(source(at("2001:db8::1")), at("127.0.0.1"));
    }

    #[test]
    fn the_oldest_silent_connection_leaves_first_and_none_that_is_being_answered() {
        let mut seats = AdminConnections::new();
        let one = at("127.0.0.1");
        let held: Vec<_> = (0..OF_ONE_ADDRESS).map(|_| seats.take(one).unwrap().0).collect();
        for seat in &held {
            seat.state.store(ANSWERED, Ordering::Release);
        }
        assert!(seats.take(at("127.0.0.2")).is_err());
        held[3].state.store(IDLE, Ordering::Release);
        let (new, left) = seats.take(one).unwrap();
        assert!(left.is_some() && held[3].over.is_cancelled());
        // The new connection has sent nothing so far.
        let (newer, _) = seats.take(one).unwrap();
        assert!(new.over.is_cancelled() && !newer.over.is_cancelled());
        assert!(held.iter().filter(|seat| seat.over.is_cancelled()).count() == 1);
    }

    #[test]
    fn many_addresses_together_do_not_shut_others_out() {
        let mut seats = AdminConnections::new();
        let each = OF_ONE_ADDRESS / 2;
        let address = |n: usize| at(&format!("192.0.2.{}", n / each));
        let held: Vec<_> = (0..CONNECTIONS).map(|n| seats.take(address(n)).unwrap().0).collect();
        let (_here, left) = seats.take(at("127.0.0.1")).unwrap();
        assert!(left.is_some() && held[0].over.is_cancelled());
    }
}
