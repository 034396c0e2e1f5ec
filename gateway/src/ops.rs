//! The operator's listener: health and metrics, which are not secret; and revocations, for which an
//! operator has to show a token.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{constant_time, digest};
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::audit::Journal;
use crate::body::Body;
use crate::killswitch::{Kept, Killswitch};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::reload::Reloader;
use crate::secret::Secret;
use crate::selftest::Tester;
use crate::task::Tasks;
use crate::wire::headers::{Single, single};

/// How long a request's head may take, and how long a connection may be idle.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the acceptor rests when it could not accept.
const REST: Duration = Duration::from_millis(50);

/// What is asked about.
#[derive(Clone, Debug)]
pub struct Ops {
    /// The counts.
    pub metrics: Arc<Metrics>,
    /// The records.
    pub journal: Arc<Journal>,
    /// The gateway.
    pub live: Arc<Live>,
    /// Whether the gateway stops.
    pub tasks: Tasks,
    /// What was revoked.
    pub switch: Arc<Killswitch>,
    /// Who changes the configuration.
    pub reloader: Option<Arc<Reloader>>,
    /// Who attacks the gateway.
    pub tester: Arc<Tester>,
    /// What an operator shows to change something.
    pub token: Option<Arc<Secret>>,
}

/// Serves the operator's listener until the gateway is asked to stop.
pub async fn serve(ops: Ops, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the operator's listener does not listen"),
    };
    let tasks = ops.tasks.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tasks.stopping() => return,
        };
        let Ok((stream, _)) = accepted else {
            // The machine has no room for another connection: trying again at once would only spin.
            tokio::time::sleep(REST).await;
            continue;
        };
        let ops = ops.clone();
        let stop = tasks.clone();
        tasks.spawn(async move {
            let answer = service_fn(move |request| {
                let ops = ops.clone();
                async move { Ok::<_, Infallible>(ops.answer(request).await) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            let served = builder.serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                ended = served => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection of the operator ended early");
                },
                () = stop.stopping() => {}
            }
        });
    }
}

impl Ops {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
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
            "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" => self.ready(request.uri().query() == Some("verbose")),
            "/metrics" => {
                let mut response = text(StatusCode::OK, self.metrics.text());
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            _ => text(StatusCode::NOT_FOUND, "/livez, /readyz, /readyz?verbose, /metrics\n"),
        }
    }

    /// What is in force (GET `/config`), and a change of it (POST `/reload`).
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

    /// An attack on the configuration in force (POST `/selftest`): what came of it.
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

    /// What was revoked: to be seen, added to (POST) and taken back from (DELETE).
    async fn revocations(&self, request: Request<Incoming>) -> Response<Body> {
        if !self.is_operator(request.headers()) {
            return stranger();
        }
        let revoke = match *request.method() {
            Method::GET => return json(StatusCode::OK, self.switch.list()),
            Method::POST => true,
            Method::DELETE => false,
            _ => return text(StatusCode::METHOD_NOT_ALLOWED, "GET, POST or DELETE\n"),
        };
        let body = match self.live.now().gateway.body(request.into_body()).await {
            Ok(body) => body,
            Err(failure) => return text(StatusCode::BAD_REQUEST, format!("{failure}\n")),
        };
        let what = String::from_utf8_lossy(&body).into_owned();
        // What is revoked holds whether or not that can be written down; what is taken back does not.
        if !revoke && let Err(error) = self.journal.changed(revoke, &what) {
            tracing::error!(error = %crate::report::Chain(&error), "not recorded, not taken back");
            return text(StatusCode::SERVICE_UNAVAILABLE, "it cannot be recorded\n");
        }
        match self.switch.change(body, revoke) {
            Ok(kept) => {
                if revoke && let Err(error) = self.journal.changed(revoke, &what) {
                    tracing::error!(error = %crate::report::Chain(&error), "not recorded");
                }
                tracing::warn!(revoke, %what, "an operator has changed what is revoked");
                let written = kept == Kept::Written;
                json(StatusCode::OK, format!("{{\"written\":{written}}}\n"))
            }
            Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        }
    }

    /// Whether a request shows the token, compared by digest in constant time.
    fn is_operator(&self, headers: &HeaderMap) -> bool {
        let Single::Value(shown) = single(headers, AUTHORIZATION.as_str()) else { return false };
        let Some(shown) = shown.strip_prefix("Bearer ") else { return false };
        let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
        let known = self.token.as_ref().map(|token| digest(token.expose()));
        known.is_some_and(|known| {
            let shown = digest(shown);
            constant_time::verify_slices_are_equal(known.as_ref(), shown.as_ref()).is_ok()
        })
    }

    /// Ready to decide and to record. A server that is down is its own problem: it must not take
    /// the others out of service.
    fn ready(&self, verbose: bool) -> Response<Body> {
        let stopping = self.tasks.is_waning();
        let recording = self.journal.is_working();
        let hindrance = self.tester.hindrance();
        let good = !stopping && recording && hindrance.is_none();
        let mut body = String::from(if good { "ok\n" } else { "not ready\n" });
        if verbose {
            let word = |good| if good { "ok" } else { "failing" };
            writeln!(body, "audit: {}", word(recording)).unwrap_or_default();
            writeln!(body, "stopping: {stopping}").unwrap_or_default();
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

fn text(status: StatusCode, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
