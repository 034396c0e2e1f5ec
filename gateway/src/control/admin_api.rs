//! The admin API on the operator's listener, a [`Router`]: health and metrics, which are public, and changes
//! (revocations, reload, self-test), which require the operator's token.
//!
//! Every request passes the layers of [`router`] from top to bottom. It is admitted as on every other listener, its body
//! is bounded, and so is the time for it; [`admin_listener`](super::admin_listener) bounds connections and heads.

mod approvals;
mod selection;

use std::fmt::Write as _;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aws_lc_rs::{constant_time, digest};
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, RawQuery, Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use policy_core::subject::revoked::RevocationList;
use tower::ServiceBuilder;

use crate::audit::{Journal, RevocationSource};
use crate::base::error_chain::ErrorChain;
use crate::base::heartbeat::Heartbeats;
use crate::base::task::Tasks;
use crate::control::reload::Reloader;
use crate::control::revocation::{
    ChangeError, ChangePersistence, RevocationAction, RevocationManager,
};
use crate::control::selftest::SelftestRunner;
use crate::edge::admission::Admission;
use crate::edge::failure::{HttpFailure, RETRY_SOON_SECONDS};
use crate::mcp::wire::headers::{SingleValue, single};
use crate::metrics::Metrics;
use crate::outbound::secrets::LiveSecret;
use crate::serve::generation::CurrentGeneration;
use crate::session::approvals::{ApprovalId, Approvals, OpenApproval};

/// Maximum length of a request body, in bytes: a change of revocations.
const BODY: usize = 2 * 1024 * 1024;
/// Maximum time for a request body, and for a peer to accept written data.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The help for methods of public endpoints.
const ONLY_GET: &str = "GET only\n";
/// The media type of the metrics: the text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The state that the admin API reports and changes.
#[derive(Debug)]
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
    pub admission: Arc<Admission>,
    /// The heartbeats of the workers.
    pub beats: Arc<Heartbeats>,
}

/// The admin API as a service. The endpoints that need the operator's token do not exist without one.
pub fn router(api: AdminApi) -> Router {
    let api = Arc::new(api);
    let layers = ServiceBuilder::new()
        // Every 503 says when to come back.
        .layer(map_response(with_retry_after))
        // Refuses other hosts and all web pages.
        .layer(from_fn_with_state(Arc::clone(&api.admission), admit))
        // Bounds the memory of a request.
        .layer(DefaultBodyLimit::max(BODY));
    let mut router = Router::new()
        .route("/livez", read_only(get(livez)))
        .route("/readyz", read_only(get(readyz)))
        .route("/metrics", read_only(get(metrics)));
    if api.token.is_some() {
        router = router.merge(operator_routes(&api));
    }
    router.fallback(unknown).layer(layers).with_state(api)
}

/// The endpoints that require the operator's token.
fn operator_routes(api: &Arc<AdminApi>) -> Router<Arc<AdminApi>> {
    let revocations = get(revocations).post(revoke).delete(lift);
    let revocations = restricted(revocations, "GET, POST, DELETE", "GET, POST or DELETE\n");
    let (config, reload) = match &api.reloader {
        Some(reloader) => {
            let (config, reload) = (get(config), post(reload));
            let state = || Arc::clone(reloader);
            (file_route(config, "GET", state()), file_route(reload, "POST", state()))
        }
        None => (any(no_file), any(no_file)),
    };
    let listed = restricted(get(approvals::list), "GET", "GET /approvals\n");
    let shown = restricted(get(approvals::show), "GET", "GET /approvals/ID\n");
    let approve = restricted(post(approvals::approve), "POST", "POST /approvals/ID/approve\n");
    let deny = restricted(post(approvals::deny), "POST", "POST /approvals/ID/deny\n");
    Router::new()
        .route("/revocations", revocations)
        .route("/approvals", listed)
        .route("/approvals/{id}", shown)
        .route("/approvals/{id}/approve", approve)
        .route("/approvals/{id}/deny", deny)
        .route("/config", config)
        .route("/reload", reload)
        .route("/select", restricted(post(selection::select), "POST", "POST /select\n"))
        .route("/selftest", restricted(post(selftest), "POST", "POST /selftest\n"))
        .route_layer(from_fn_with_state(Arc::clone(api), require_operator))
}

/// A route of `/config` or `/reload`, which exist only for a configuration that was read from a file.
fn file_route(
    route: MethodRouter<Arc<Reloader>>,
    allow: &'static str,
    reloader: Arc<Reloader>,
) -> MethodRouter<Arc<AdminApi>> {
    restricted(route, allow, "GET /config, POST /reload\n").with_state(reloader)
}

/// A route that answers GET alone.
fn read_only(route: MethodRouter<Arc<AdminApi>>) -> MethodRouter<Arc<AdminApi>> {
    restricted(route, "GET", ONLY_GET)
}

/// Answers the methods that `route` has no handler for with 405 and `help`. That includes HEAD, which axum would answer
/// as it does GET.
fn restricted<S: Clone + Send + Sync + 'static>(
    route: MethodRouter<S>,
    allow: &'static str,
    help: &'static str,
) -> MethodRouter<S> {
    let refuse = move || ready((StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, allow)], help));
    route.head(refuse).fallback(refuse)
}

/// Adds `Retry-After` to a 503 response.
async fn with_retry_after(mut response: Response) -> Response {
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_SOON_SECONDS));
    }
    response
}

/// Refuses a request for another host, and every request of a web page.
async fn admit(State(admission): State<Arc<Admission>>, request: Request, next: Next) -> Response {
    const PAGES: (StatusCode, &str) = (StatusCode::FORBIDDEN, "pages may not call this listener\n");
    let (head, body) = request.into_parts();
    match admission.admit(&head) {
        // Only browsers send `Origin`, and no page may call this listener, not even one of its own.
        Ok(()) if head.headers.contains_key(ORIGIN) => PAGES.into_response(),
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(HttpFailure::Host) => {
            let help = "this listener does not answer to that host; name it in `ops.hosts`\n";
            (StatusCode::MISDIRECTED_REQUEST, help).into_response()
        }
        Err(HttpFailure::Origin) => PAGES.into_response(),
        Err(_) => {
            (StatusCode::BAD_REQUEST, "HTTP/1.1 without an upgrade, please\n").into_response()
        }
    }
}

/// Refuses a request without the operator's token.
async fn require_operator(
    State(api): State<Arc<AdminApi>>,
    request: Request,
    next: Next,
) -> Response {
    if api.is_operator(request.headers()) {
        return next.run(request).await;
    }
    let challenge = [(WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "show the token of `ops.token`\n").into_response()
}

/// `GET /livez`: liveness. The workers run, and files and threads are available. Only a restart helps against a stalled
/// worker or a long lack of files or threads.
async fn livez(State(api): State<Arc<AdminApi>>) -> (StatusCode, String) {
    let (stalled, starved) = (api.beats.stalled(), api.beats.starved());
    if stalled.is_empty() && starved.is_none() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let mut body = String::from("not alive\n");
    for (worker, since) in stalled {
        writeln!(body, "worker {worker}: stalled for {} s", since.as_secs()).unwrap_or_default();
    }
    if let Some(since) = starved {
        writeln!(body, "no more files or threads for {} s", since.as_secs()).unwrap_or_default();
    }
    (StatusCode::SERVICE_UNAVAILABLE, body)
}

/// `GET /readyz`: readiness. The gateway can decide and record. An unreachable upstream server does not count, because it
/// must not take the others out of service. `GET /readyz?verbose` reports the state of each part as well.
async fn readyz(
    State(api): State<Arc<AdminApi>>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let stopping = api.tasks.is_waning();
    let impediment = api.journal.impediment();
    let hindrance = api.tester.hindrance();
    // New clients cannot be served without another file or thread.
    let provided = api.beats.lacking().is_none();
    let good = !stopping && impediment.is_none() && provided && hindrance.is_none();
    let mut body = String::from(if good { "ok\n" } else { "not ready\n" });
    if query.as_deref() == Some("verbose") {
        let word = |good| if good { "ok" } else { "failing" };
        writeln!(body, "audit: {}", impediment.unwrap_or("ok")).unwrap_or_default();
        writeln!(body, "files and threads: {}", word(provided)).unwrap_or_default();
        writeln!(body, "stopping: {stopping}").unwrap_or_default();
        if api.live.now().gateway.policy.facts().revoked().everything {
            body.push_str("revocations: everything is revoked, so no caller is served\n");
        }
        if let Some(hindrance) = &hindrance {
            writeln!(body, "selftest: {hindrance}").unwrap_or_default();
        }
        if api.metrics.approvals_usable.load(Ordering::Relaxed) == 0 {
            body.push_str(
                "approvals: their file cannot be written, so no call that needs one is made\n",
            );
        }
        for server in api.metrics.unreached() {
            writeln!(body, "server {server}: not reached").unwrap_or_default();
        }
        for issuer in api.live.now().gateway.identity.missing() {
            writeln!(body, "issuer {issuer}: its keys are not known").unwrap_or_default();
        }
    }
    (if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
}

/// `GET /metrics`: the metrics of the process, in the text format of Prometheus.
async fn metrics(State(api): State<Arc<AdminApi>>) -> impl IntoResponse {
    api.metrics.count_lists().await;
    ([(CONTENT_TYPE, METRICS)], api.metrics.text())
}

/// Any other path: the public endpoints.
async fn unknown(method: Method) -> (StatusCode, &'static str) {
    if method == Method::GET {
        (StatusCode::NOT_FOUND, "/livez, /readyz, /readyz?verbose, /metrics\n")
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, ONLY_GET)
    }
}

/// `GET /config`: which configuration is in force, and how the last reload ended.
async fn config(State(reloader): State<Arc<Reloader>>) -> JsonText {
    JsonText(reloader.status())
}

/// `POST /reload`: reads the configuration again and puts it in force; 422 if it cannot be used, and the one in force
/// remains.
async fn reload(State(reloader): State<Arc<Reloader>>) -> (StatusCode, JsonText) {
    let status = match reloader.reload().await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    (status, JsonText(reloader.status()))
}

/// `/config` and `/reload` of a configuration that was not read from a file.
async fn no_file() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "the configuration was not read from a file\n")
}

/// `POST /selftest`: runs the self-test on the configuration in force, and returns its report.
async fn selftest(
    State(api): State<Arc<AdminApi>>,
) -> Result<JsonText, (StatusCode, &'static str)> {
    let report = api.tester.run().await;
    let report = report.map(|report| JsonText(report.json()));
    report.ok_or((StatusCode::NOT_FOUND, "add `selftest: {}` to the configuration\n"))
}

/// `GET /revocations`: what is revoked.
async fn revocations(State(api): State<Arc<AdminApi>>) -> JsonText {
    JsonText(format!("{{{}}}\n", api.switch.status()))
}

/// `POST /revocations`: revokes what the body lists, and returns what is revoked then, with the listed tools and prompts
/// that their servers do not list.
async fn revoke(
    State(api): State<Arc<AdminApi>>,
    RequestText(text): RequestText,
) -> Result<JsonText, ChangeError> {
    let what = String::from_utf8_lossy(&text).into_owned();
    let change = api.switch.read(text, RevocationAction::Revoke)?;
    let unlisted = api.unlisted(&change);
    let kept = api.apply(change, RevocationAction::Revoke, &what).await?;
    // It takes effect even if it cannot be recorded.
    if let Err(error) = api.journal.record_revoked(&what, RevocationSource::Operator) {
        tracing::error!(
            event = "audit.write_failed", error = %ErrorChain(&error),
            "audit event not written"
        );
    }
    Ok(api.changed(kept, &unlisted))
}

/// `DELETE /revocations`: lifts the revocations that the body lists, and returns what is still revoked.
async fn lift(
    State(api): State<Arc<AdminApi>>,
    RequestText(text): RequestText,
) -> Result<JsonText, Response> {
    let what = String::from_utf8_lossy(&text).into_owned();
    let change = api.switch.read(text, RevocationAction::Lift);
    let change = change.map_err(IntoResponse::into_response)?;
    // Unlike a revocation, it does not take effect if it cannot be recorded.
    if let Err(error) = api.journal.record_lifted(&what, RevocationSource::Operator) {
        tracing::error!(
            event = "revocation.rejected", error = %ErrorChain(&error),
            "revocation not lifted: the change could not be written to the audit log"
        );
        return Err((StatusCode::SERVICE_UNAVAILABLE, "it cannot be recorded\n").into_response());
    }
    let kept = api.apply(change, RevocationAction::Lift, &what).await;
    let kept = kept.map_err(IntoResponse::into_response)?;
    Ok(api.changed(kept, "[]"))
}

impl AdminApi {
    /// Puts a change of revocations in force. `what` is its text, for the log.
    async fn apply(
        &self,
        change: RevocationList,
        action: RevocationAction,
        what: &str,
    ) -> Result<ChangePersistence, ChangeError> {
        let revoke = action == RevocationAction::Revoke;
        match self.switch.change(change, action).await {
            Ok(kept) => {
                tracing::warn!(
                    event = "revocation.changed", revoke, %what,
                    "revocations changed over the admin API"
                );
                Ok(kept)
            }
            Err(error) => {
                tracing::warn!(
                    event = "revocation.rejected", %what, %error,
                    "revocation change rejected"
                );
                Err(error)
            }
        }
    }

    /// The answer to a change of revocations: whether it was written, the JSON array `unlisted`, and what is revoked now.
    fn changed(&self, kept: ChangePersistence, unlisted: &str) -> JsonText {
        let written = kept == ChangePersistence::Written;
        let status = self.switch.status();
        JsonText(format!("{{\"written\":{written},\"unlisted\":{unlisted},{status}}}\n"))
    }

    /// The questions to people, and their answers.
    fn approvals(&self) -> Arc<Approvals> {
        Arc::clone(&self.live.now().gateway.approvals)
    }

    /// The questions of the configuration in force.
    fn open_approvals(&self) -> Vec<OpenApproval> {
        let config_digest = Arc::clone(&self.live.now().gateway.config_digest);
        let mut all = self.approvals().all();
        all.retain(|open| open.question.config_digest == config_digest);
        all
    }

    /// The question with this id, if it is of the configuration in force.
    fn open_approval(&self, id: &ApprovalId) -> Option<OpenApproval> {
        let config_digest = Arc::clone(&self.live.now().gateway.config_digest);
        let open = self.approvals().get(id)?;
        (open.question.config_digest == config_digest).then_some(open)
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

    /// Whether a request carries the token, compared by digest in constant time.
    fn is_operator(&self, headers: &HeaderMap) -> bool {
        let SingleValue::Value(shown) = single(headers, AUTHORIZATION) else {
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
}

/// The body of a request, read whole.
struct RequestText(Bytes);

impl<S: Send + Sync> FromRequest<S> for RequestText {
    type Rejection = (StatusCode, String);

    /// Reads the body; an error if it is too long or too slow.
    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let help = format!("send at most {BODY} bytes within {} s\n", PATIENCE.as_secs());
        // A body that announces too great a length is not read.
        if request.body().size_hint().lower() > BODY as u64 {
            return Err((StatusCode::BAD_REQUEST, help));
        }
        match tokio::time::timeout(PATIENCE, Bytes::from_request(request, state)).await {
            Ok(Ok(text)) => Ok(Self(text)),
            Ok(Err(_)) | Err(_) => Err((StatusCode::BAD_REQUEST, help)),
        }
    }
}

/// A response body that is JSON already.
struct JsonText(String);

impl IntoResponse for JsonText {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

impl IntoResponse for ChangeError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Shape | Self::Many | Self::Name(_) | Self::Unknown(_) => StatusCode::BAD_REQUEST,
            Self::NotRevoked(_) => StatusCode::NOT_FOUND,
            Self::Unwritten | Self::Undecided => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, format!("{self}\n")).into_response()
    }
}
