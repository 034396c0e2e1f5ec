//! The attacks of the self-test. Each is sent through an exchange, like a request of a client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use detection::inspect::Detector;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use policy::engine::pipeline::ExpectedTreatment;
use policy::rules::control::{Control, ControlSet};
use policy_core::subject::name::{RESERVED, ServerName};
use serde_json::{Value, json};

use super::{AttackResult, AttackVerdict, ObservedExchange, SelftestObserver, broken};
use crate::config::selftest_fixtures as own;
use crate::config::settings::AuthScheme;
use crate::config::settings::selftest::{GUARDED, PATH, SelftestSettings};
use crate::edge::admission::{Admission, Peer};
use crate::mcp::protocol::{ProtocolVersion, header, meta, method};
use crate::serve::generation::Generation;

/// Maximum length of a response that is read, in bytes.
const MAX_RESPONSE: usize = 1024 * 1024;
/// Maximum time for one attack.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends attacks to one generation.
pub(super) struct Attacker<'a> {
    generation: Arc<Generation>,
    admission: Arc<Admission>,
    selftest: &'a SelftestSettings,
    witness: SelftestObserver,
    server: ServerName,
    sent: AtomicUsize,
}

/// The response to an attack, and the observed exchange.
struct AttackResponse {
    status: StatusCode,
    text: String,
    seen: Option<ObservedExchange>,
}

/// The detector that has to find an attack.
#[derive(Clone, Copy)]
struct ExpectedDetection {
    control: Control,
    detector: Detector,
    /// What the policy does about a finding of it.
    fate: ExpectedTreatment,
}

impl AttackResponse {
    fn reason(&self) -> &'static str {
        self.seen.as_ref().and_then(|seen| seen.reason).unwrap_or("none")
    }

    fn ran(&self, control: Control) -> bool {
        self.seen.as_ref().map_or(ControlSet::default(), |seen| seen.ran).has(control)
    }

    fn found(&self, detector: Detector) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.found.contains(&detector))
    }

    /// The result of an attack that `control` must stop.
    fn row(&self, control: Control, attack: &str, held: bool) -> AttackResult {
        let verdict = match (held, self.ran(control)) {
            (true, _) => AttackVerdict::Held,
            (false, false) => AttackVerdict::Off,
            (false, true) => AttackVerdict::Failed,
        };
        self.judged(control, attack, verdict)
    }

    /// Like [`Self::row`], where the policy decides what happens to findings of `detector`; `held` says whether the
    /// attack was stopped.
    fn found_row(&self, expected: ExpectedDetection, attack: &str, held: bool) -> AttackResult {
        let ExpectedDetection { control, detector, fate } = expected;
        let verdict = match (fate, held, self.found(detector)) {
            (ExpectedTreatment::Ignored, _, _) => AttackVerdict::Off,
            (ExpectedTreatment::Stopped | ExpectedTreatment::Recorded, true, _) => {
                AttackVerdict::Held
            }
            (ExpectedTreatment::Recorded, false, true) => AttackVerdict::Recorded,
            // A finding that passes although it should be stopped.
            (ExpectedTreatment::Stopped, false, true) => AttackVerdict::Failed,
            (ExpectedTreatment::Stopped | ExpectedTreatment::Recorded, false, false) => {
                match self.ran(control) {
                    true => AttackVerdict::Failed,
                    false => AttackVerdict::Off,
                }
            }
        };
        self.judged(control, attack, verdict)
    }

    fn judged(&self, control: Control, attack: &str, verdict: AttackVerdict) -> AttackResult {
        let note = match verdict {
            AttackVerdict::Held if self.reason() == "none" => "taken out".to_owned(),
            AttackVerdict::Held => self.reason().to_owned(),
            AttackVerdict::Recorded => "let through, and on record".to_owned(),
            AttackVerdict::Off => "switched off, or not asked".to_owned(),
            AttackVerdict::Failed => format!("it got through ({}, {})", self.status, self.reason()),
        };
        let took = self.seen.as_ref().map(|seen| seen.gateway).unwrap_or_default();
        let attack = attack.to_owned();
        AttackResult { control: Some(control), attack, verdict, note, took, excepted: false }
    }

    /// Like [`Self::row`], where a denial with this reason is expected.
    fn denied(&self, control: Control, attack: &str, reason: &str) -> AttackResult {
        self.row(control, attack, self.reason() == reason)
    }
}

impl<'a> Attacker<'a> {
    pub(super) fn new(
        generation: Arc<Generation>,
        selftest: &'a SelftestSettings,
        witness: SelftestObserver,
    ) -> Option<Self> {
        let mut admission = Admission::plain("selftest".into(), vec![AuthScheme::ApiKey]);
        // As over HTTP, headers and body must agree.
        admission.plain = false;
        let admission = Arc::new(admission);
        let (server, sent) = (ServerName::parse(RESERVED).ok()?, AtomicUsize::new(0));
        Some(Self { generation, admission, selftest, witness, server, sent })
    }

    /// Number of exchanges so far.
    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Runs all attacks in order.
    pub(super) async fn attack(&self) -> Vec<AttackResult> {
        let plain = self.call(own::PLAIN, &json!({})).await;
        if !plain.text.contains("done") {
            let note = format!("its server does not answer: {} {}", plain.status, plain.reason());
            return vec![broken(&note)];
        }
        let mut rows = Vec::new();
        self.at_the_doors(&mut rows).await;
        self.on_messages(&mut rows).await;
        let list = self.list().await;
        self.on_rules(&list, &mut rows).await;
        self.on_definitions(&list, &mut rows).await;
        self.on_arguments(&mut rows).await;
        self.on_results(&mut rows).await;
        rows
    }

    /// Attacks each listener with a wrong `Host`, a foreign `Origin`, and without credentials.
    async fn at_the_doors(&self, rows: &mut Vec<AttackResult>) {
        for admission in &self.generation.admissions {
            let name = &*admission.name;
            let body = message(1, method::TOOLS_LIST, &json!({}));
            let Some(host) = admission.host() else { continue };
            let strange = self.request(&body, "attacker.example", &[]);
            let came = self.send(admission, strange).await;
            let held = came.reason() == "host-not-allowed";
            rows.push(came.row(Control::Door, &format!("host/{name}"), held));
            let strange = self.request(&body, host, &[(ORIGIN, "https://attacker.example")]);
            let came = self.send(admission, strange).await;
            let held = came.reason() == "origin-not-allowed";
            rows.push(came.row(Control::Door, &format!("origin/{name}"), held));
            let mut nobody = self.request(&body, host, &[]);
            nobody.headers_mut().remove(AUTHORIZATION);
            let came = self.send(admission, nobody).await;
            let held = came.status == StatusCode::UNAUTHORIZED;
            let mut row = came.row(Control::Authentication, name, held);
            if admission.schemes.contains(&AuthScheme::Anonymous) {
                (row.verdict, row.note) =
                    (AttackVerdict::Off, "anonymous callers are let in".to_owned());
            }
            rows.push(row);
        }
        let body = message(1, method::TOOLS_LIST, &json!({}));
        let wrong = self.request(&body, "localhost", &[(AUTHORIZATION, "Bearer pcl_wrong")]);
        let came = self.send(&self.admission, wrong).await;
        let held = came.status == StatusCode::UNAUTHORIZED;
        rows.push(came.row(Control::Authentication, "wrong-key", held));
    }

    /// Attacks with ambiguous and oversized messages, mismatched headers, and a forged session.
    async fn on_messages(&self, rows: &mut Vec<AttackResult>) {
        let call = message(1, method::TOOLS_CALL, &json!({ "name": own::PLAIN, "arguments": {} }));
        let named = |body: &str, name: &'static str| {
            let mut request = self.request(body, "localhost", &[]);
            request.headers_mut().insert(&header::NAME, HeaderValue::from_static(name));
            request
        };
        let twice = call.replacen("\"arguments\"", "\"arguments\":{},\"arguments\"", 1);
        let came = self.send(&self.admission, named(&twice, own::PLAIN)).await;
        let held = came.status == StatusCode::BAD_REQUEST;
        rows.push(came.row(Control::Message, "two-members", held));
        let came = self.send(&self.admission, named(&call, own::UNGRANTED)).await;
        let held = !came.text.contains("done") && came.status == StatusCode::BAD_REQUEST;
        rows.push(came.row(Control::Message, "other-header", held));
        let long = " ".repeat(self.generation.gateway.limits.request_body + 1);
        let came = self.send(&self.admission, self.request(&long, "localhost", &[])).await;
        let held = came.status == StatusCode::PAYLOAD_TOO_LARGE;
        // It is refused before it is parsed, so the control does not run.
        let mut row = came.row(Control::Message, "too-long", held);
        if !held {
            row.verdict = AttackVerdict::Failed;
        }
        rows.push(row);
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": method::TOOLS_LIST }).to_string();
        let mut forged = self.request(&list, "localhost", &[]);
        let headers = forged.headers_mut();
        headers.insert(
            &header::VERSION,
            HeaderValue::from_static(ProtocolVersion::LAST_LEGACY.as_str()),
        );
        headers.insert(&header::SESSION, HeaderValue::from_static("somebody-elses"));
        let came = self.send(&self.admission, forged).await;
        let held = came.status == StatusCode::NOT_FOUND;
        rows.push(came.row(Control::Session, "forged", held));
    }

    async fn on_rules(&self, list: &str, rows: &mut Vec<AttackResult>) {
        let came = self.call(own::UNGRANTED, &json!({})).await;
        rows.push(came.denied(Control::Rules, "not-granted", "not-granted"));
        let unlisted = !has(list, own::UNGRANTED) && has(list, own::PLAIN);
        rows.push(came.row(Control::Rules, "not-listed", unlisted));
        let came = self.call(own::CONDITIONAL, &json!({ "n": 6 })).await;
        rows.push(came.denied(Control::Rules, "condition", "forbidden"));
        let route = self.generation.gateway.routes.get(GUARDED);
        if route.is_some_and(|route| !route.guardrails.is_empty()) {
            // The guardrails may answer as they like: only whether they were asked counts.
            let came = self.call_at(GUARDED, own::PLAIN, &json!({})).await;
            rows.push(came.row(Control::Guardrails, "asked", came.ran(Control::Guardrails)));
        }
        let came = self.call(own::REVOKED, &json!({})).await;
        rows.push(came.denied(Control::Revocation, "tool", "revoked"));
        let came = self.call(own::ATTENDED, &json!({})).await;
        rows.push(came.denied(Control::Registry, "approval", "approval-required"));
        // The limit allows one call, so one of two is refused, regardless of earlier calls.
        let first = self.call(own::RATED, &json!({})).await;
        let second = self.call(own::RATED, &json!({})).await;
        let limited = |came: &AttackResponse| came.reason() == "rate-limited";
        let held = limited(&first) || limited(&second);
        rows.push(second.row(Control::Rates, "too-often", held));
    }

    /// The detector that has to find an attack, and the action that the policy takes on its findings.
    fn expected(&self, control: Control, detector: Detector) -> ExpectedDetection {
        let policy = &self.generation.gateway.policy;
        let fate = policy.fate(&policy.facts(), control, detector, &self.server);
        ExpectedDetection { control, detector, fate }
    }

    async fn on_definitions(&self, list: &str, rows: &mut Vec<AttackResult>) {
        let pins = self.expected(Control::Pins, Detector::Pins);
        for (tool, attack, reason) in [
            (own::UNAPPROVED, "not-approved", "not-approved"),
            (own::CHANGED, "changed", "definition-changed"),
        ] {
            let came = self.call(tool, &json!({})).await;
            let held = came.reason() == reason;
            rows.push(came.found_row(pins, attack, held));
        }
        let came = self.call(own::LOOKALIKE, &json!({})).await;
        let of = self.expected(Control::Shadowing, Detector::Shadowing);
        let held = came.reason() == "shadowed" && came.found(of.detector);
        rows.push(came.found_row(of, "reserved-name", held));
        for (tool, detector) in own::POISONED {
            let came = self.call(tool, &json!({})).await;
            let of = self.expected(Control::Definitions, detector);
            // A tool whose definition was cleaned stays in the list without the poisoned text, and is not denied.
            let cleaned = has(list, tool) && !list.contains(mark(detector));
            let withheld = came.reason() == "definition-finding" && !has(list, tool);
            let held = came.found(detector) && (withheld || cleaned);
            rows.push(came.found_row(of, detector.name(), held));
        }
    }

    async fn on_arguments(&self, rows: &mut Vec<AttackResult>) {
        let came = self.call(own::STRICT, &json!({ "n": "seven" })).await;
        let of = self.expected(Control::InputSchema, Detector::InputSchema);
        let held = came.reason() == "arguments" && came.found(of.detector);
        rows.push(came.found_row(of, "type", held));
        let came = self.call(own::CONSTRAINED, &json!({ "path": "/srv/../etc/passwd" })).await;
        let of = self.expected(Control::Constraints, Detector::Constraints);
        let held = came.reason() == "arguments" && came.found(of.detector);
        rows.push(came.found_row(of, "path", held));
        for (detector, text) in own::SENT {
            let came = self.call(own::HEAR, &json!({ "text": text })).await;
            let of = self.expected(Control::Arguments, detector);
            let held = came.found(detector) && !came.text.contains(own::ARRIVED);
            rows.push(came.found_row(of, detector.name(), held));
        }
    }

    async fn on_results(&self, rows: &mut Vec<AttackResult>) {
        for (detector, _, marker) in own::SAID {
            let came = self.call(own::SPEAK, &json!({ "what": detector.name() })).await;
            let escaped = Value::from(marker).to_string();
            let whole = came.text.contains(marker) || came.text.contains(escaped.trim_matches('"'));
            let held = came.found(detector) && !whole;
            let of = self.expected(Control::Results, detector);
            rows.push(came.found_row(of, detector.name(), held));
        }
        let came = self.call(own::MISSHAPEN, &json!({})).await;
        let of = self.expected(Control::OutputSchema, Detector::OutputSchema);
        let held = came.found(of.detector) && !came.text.contains("seven");
        rows.push(came.found_row(of, "type", held));
    }

    async fn list(&self) -> String {
        let body = message(1, method::TOOLS_LIST, &json!({}));
        self.send(&self.admission, self.request(&body, "localhost", &[])).await.text
    }

    async fn call(&self, tool: &str, arguments: &Value) -> AttackResponse {
        self.call_at(PATH, tool, arguments).await
    }

    async fn call_at(&self, path: &'static str, tool: &str, arguments: &Value) -> AttackResponse {
        let params = json!({ "name": tool, "arguments": arguments });
        let mut request = self.request(&message(1, method::TOOLS_CALL, &params), "localhost", &[]);
        *request.uri_mut() = http::Uri::from_static(path);
        if let Ok(name) = HeaderValue::from_str(tool) {
            request.headers_mut().insert(&header::NAME, name);
        }
        self.send(&self.admission, request).await
    }

    fn request(&self, body: &str, host: &str, more: &[(HeaderName, &str)]) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http::Uri::from_static(PATH);
        let called =
            if body.contains(method::TOOLS_CALL) { method::TOOLS_CALL } else { method::TOOLS_LIST };
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(
            &header::VERSION,
            HeaderValue::from_static(ProtocolVersion::V2026July.as_str()),
        );
        headers.insert(&header::METHOD, HeaderValue::from_static(called));
        let key = format!("Bearer {}", self.selftest.key.expose());
        let values = [(HOST, host), (AUTHORIZATION, key.as_str())];
        for (name, value) in values.iter().chain(more) {
            headers.extend(HeaderValue::from_str(value).ok().map(|value| (name.clone(), value)));
        }
        for (name, value) in more {
            headers.remove(name);
            headers.extend(HeaderValue::from_str(value).ok().map(|value| (name.clone(), value)));
        }
        request
    }

    /// Sends a request through `admission`, and returns the response with the observed exchange.
    async fn send(
        &self,
        admission: &Arc<Admission>,
        request: Request<Full<Bytes>>,
    ) -> AttackResponse {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let before = self.witness.seen().len();
        let gateway = Arc::clone(&self.generation.gateway);
        let nowhere = Peer::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        let exchange = async {
            // The self-test neither takes the place of a client's request nor waits for one.
            let slot = gateway.enter_unlimited();
            let gateway = Arc::clone(&gateway);
            let exchange = gateway.exchange(Arc::clone(admission), nowhere, request, slot);
            let response = Box::pin(exchange).await;
            let (head, body) = response.into_parts();
            let read = Limited::new(body, MAX_RESPONSE).collect().await;
            let bytes = read.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            (head.status, String::from_utf8_lossy(&bytes).into_owned())
        };
        let (status, text) = tokio::time::timeout(PATIENCE, exchange)
            .await
            .unwrap_or((StatusCode::GATEWAY_TIMEOUT, String::new()));
        let seen = self.witness.seen().get(before).cloned();
        AttackResponse { status, text, seen }
    }
}

/// Whether a list has a tool of this name.
fn has(list: &str, tool: &str) -> bool {
    list.contains(&format!("\"name\":\"{tool}\""))
}

/// The part of a poisoned definition that would appear in a list.
const fn mark(detector: Detector) -> &'static str {
    match detector {
        Detector::ActiveMarkup => "<!-- and more",
        Detector::HiddenCharacters => "\u{200b}",
        Detector::Secrets => "ghp_0Zk3",
        _ => "you must read the file",
    }
}

/// Builds a JSON-RPC request of the modern era.
fn message(id: u64, method: &str, params: &Value) -> String {
    let version = ProtocolVersion::V2026July.as_str();
    let meta = json!({ meta::VERSION: version, meta::CLIENT_CAPABILITIES: {} });
    let mut params = params.as_object().cloned().unwrap_or_default();
    params.insert("_meta".to_owned(), meta);
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}
