//! The operator's listener: health and metrics. Nothing here is secret, and nothing can be changed.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::audit::Journal;
use crate::body::Body;
use crate::exchange::Gateway;
use crate::metrics::Metrics;
use crate::task::Tasks;

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
    pub gateway: Arc<Gateway>,
    /// Whether the gateway stops.
    pub tasks: Tasks,
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
                let response = ops.answer(&request);
                async move { Ok::<_, Infallible>(response) }
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
    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
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

    /// Ready to decide and to record. A server that is down is its own problem: it must not take
    /// the others out of service.
    fn ready(&self, verbose: bool) -> Response<Body> {
        let stopping = self.tasks.is_stopping();
        let recording = self.journal.is_working();
        let good = !stopping && recording;
        let mut body = String::from(if good { "ok\n" } else { "not ready\n" });
        if verbose {
            let word = |good| if good { "ok" } else { "failing" };
            writeln!(body, "audit: {}", word(recording)).unwrap_or_default();
            writeln!(body, "stopping: {stopping}").unwrap_or_default();
            for server in self.metrics.unreached() {
                writeln!(body, "server {server}: not reached").unwrap_or_default();
            }
            for issuer in self.gateway.identity.missing() {
                writeln!(body, "issuer {issuer}: its keys are not known").unwrap_or_default();
            }
        }
        text(if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
    }
}

fn text(status: StatusCode, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
