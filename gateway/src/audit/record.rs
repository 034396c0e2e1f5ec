//! The contents of records and their serialization: [`Record`] for exchanges, [`AuditEvent`] for everything else.

mod exchange_line;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use audit_log::chain::SCHEMA;
use audit_log::tree::{Hash, MerkleTree};
use detection::content::{ContentPolicy, without_values};
use detection::inspect::{Detector, Finding};
use json::hex;
use json::write_ascii;
use policy::definition::offer::ItemKind;
use policy::engine::pipeline::Policy;
use policy::rules::control::ControlSet;
use policy::rules::decision::{Decision, Effect};
use policy_core::subject::principal::Principal;

use super::captured::{CapturedContent, Excerpt};
use crate::base::caller_counters::{CallerKey, RatedCaller};
use crate::base::masking;
use crate::mcp::discovery_tools::ThroughCall;
use crate::mcp::protocol::ProtocolVersion;
use crate::mcp::trace_context::Trace;
use crate::mcp::wire::{Id, Object};
use crate::metrics::approval_step::ApprovalStep;
use crate::metrics::credential_check::CredentialCheck;
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome};
use crate::metrics::selection_outcome::SelectionOutcome;
use crate::metrics::{self, OperationLabels};

use exchange_line::ExchangeLine;

/// Maximum length of a name chosen by a peer, in bytes.
pub const FOREIGN: usize = 256;

/// Maximum length of such a name that is searched for values to redact, in bytes.
const MAX_REDACTED_NAME: usize = 64 * 1024;
/// Numbers from here on may identify a person or an account: those have seven digits or more.
const MIN_REDACTED_NUMBER: u64 = 1_000_000;
/// Maximum length of the `what` text of an event, in bytes.
const WHAT: usize = 8 * 1024;
/// Maximum number of findings of one exchange in a record.
const MAX_FINDINGS: usize = 32;
/// Maximum number of withheld items of a list in a record.
pub const UNSEEN: usize = 32;
/// The `scheme` of a caller with an access token.
pub const OAUTH: &str = "oauth";
/// The `scheme` of a caller with a client certificate.
pub const CERTIFICATE: &str = "certificate";
/// Maximum number each of groups, roles and scopes of a caller in a record.
pub const NAMES: usize = 128;

/// The id of a record: a UUID version 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId(u128);

impl RecordId {
    pub(super) fn new(now: SystemTime, process: u64, count: u64) -> Self {
        let millis = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        // 48 bits of time, 12 of the process, 62 of the process and the counter.
        let tail = u128::from(mixed(process << 32 ^ count));
        Self(millis << 80 | 7 << 76 | u128::from(process >> 52) << 64 | 2 << 62 | tail)
    }

    /// The id as a number. It is also the trace id if the client sent none.
    #[must_use]
    pub const fn number(self) -> u128 {
        self.0
    }

    /// Appends the id in the notation of RFC 9562 to `out`.
    fn write(self, out: &mut Vec<u8>) {
        let bytes = self.0.to_be_bytes();
        let mut rest = &bytes[..];
        for length in [4, 2, 2, 2, 6] {
            let (part, after) = rest.split_at_checked(length).unwrap_or_default();
            hex::write(out, part);
            if !after.is_empty() {
                out.push(b'-');
            }
            rest = after;
        }
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(36);
        self.write(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// Mixes the low 62 bits so that each depends on all of them: these ids are also trace ids, which samplers select by
/// their last bits. Every step is invertible, so ids stay unique.
const fn mixed(bits: u64) -> u64 {
    const LAST: u64 = (1 << 62) - 1;
    // The multipliers of SplitMix64.
    let bits = bits & LAST;
    let bits = (bits ^ bits >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) & LAST;
    let bits = (bits ^ bits >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) & LAST;
    bits ^ bits >> 31
}

/// Formatted members that occur in both records of a call.
#[derive(Debug)]
struct RecordTexts {
    id: Vec<u8>,
    time: String,
    peer: String,
    definition: Option<String>,
    trace: String,
}

/// What is known of an exchange, filled in while it proceeds.
#[derive(Debug)]
pub struct Record {
    /// The id of the record.
    pub id: RecordId,
    /// Time at which the request was received.
    pub time: SystemTime,
    /// The same as `time`, for durations.
    pub started: Instant,
    /// The version of the configuration in force.
    pub config_digest: Arc<str>,
    /// The policy in force, which also says which values are redacted.
    pub policy: Arc<Policy>,
    /// The listener that received the request.
    pub listener: Arc<str>,
    /// The network address of the client.
    pub peer: SocketAddr,
    /// The caller, if it is authenticated.
    pub principal: Option<Arc<Principal>>,
    /// The authentication scheme of the caller.
    pub scheme: Option<&'static str>,
    /// The caller as the party whose share of the log the records take, if it is authenticated and the request is for a
    /// route.
    pub caller: Option<RatedCaller>,
    /// Whether the request is to use a tool, prompt or resource of a server, if that is allowed. Subscriptions, operations on
    /// tasks, notifications and what the gateway answers itself are none.
    pub asks_server: bool,
    /// The route, if one matches the request.
    pub route: Option<Arc<str>>,
    /// The protocol version of the request.
    pub version: Option<ProtocolVersion>,
    /// The JSON-RPC method of the request.
    pub method: Option<Box<str>>,
    /// The HTTP method (`GET`, `POST`, `DELETE`), recorded for requests without a JSON-RPC method.
    pub http_method: Option<&'static str>,
    /// The JSON-RPC id of the request.
    pub rpc_id: Option<Id>,
    /// The upstream server it is for.
    pub server: Option<Box<str>>,
    /// The tool, prompt, resource or template that was requested, as the caller named it.
    pub item: Option<(ItemKind, Box<str>)>,
    /// The upstream server's own name of that item, if it is known: a route may rename it. Metrics use it as a label.
    pub upstream_name: Option<Box<str>>,
    /// The session that the call was made in, if there is one.
    pub session: Option<[u8; 16]>,
    /// How the call came through a tool of the gateway, if it did.
    pub through: Option<ThroughCall>,
    /// The request for tools and the names in its answer, if records have them.
    pub search: Option<Box<RecordedSearch>>,
    /// What came of asking the judge of tools, if a search was to ask it.
    pub judged: Option<SelectionOutcome>,
    /// The keyed digest of the arguments.
    pub argument_digest: Option<String>,
    /// The id of the approval that the call waited for, or was made with.
    pub approval: Option<Box<str>>,
    /// The budget that is used up.
    pub budget: Option<Box<str>>,
    /// How often the call was repeated because the connection to the server failed.
    pub retries: u32,
    /// Captured arguments and results, if capture is configured.
    pub captured: Option<Box<CapturedContent>>,
    /// Whether an `intent` line was written.
    pub(super) intent_logged: bool,
    /// The decision of the policy.
    pub decision: RecordedDecision,
    /// Findings in what the upstream server sent.
    pub server_findings: Vec<Finding>,
    /// Numbers of list items that were shown and hidden.
    pub listed: Option<(usize, usize)>,
    /// The first [`UNSEEN`] hidden list items, with the reasons.
    pub hidden_items: Vec<WithheldItem>,
    /// Length of the request body, in bytes.
    pub bytes_in: usize,
    /// Length of the response body, in bytes.
    pub bytes_out: usize,
    /// Time from the first message of the request to an upstream server until its answer was complete.
    pub upstream_duration: Duration,
    /// Time spent waiting before that: for lists, handshakes and subscriptions of upstream servers, and for a person.
    pub wait_before_send: Duration,
    /// Time of the first message to an upstream server.
    pub sent_at: Option<Instant>,
    /// The trace context of the exchange.
    pub trace: Trace,
    /// Controls that were evaluated, in addition to those of the decision.
    pub controls_run: ControlSet,
    /// Cache of formatted members.
    texts: OnceLock<Box<RecordTexts>>,
}

/// A request for tools that is recorded.
#[derive(Clone, Debug)]
pub struct RecordedSearch {
    /// The request, as it came. It is written without what looks like a secret, and clipped.
    pub query: String,
    /// The names in the answer, as the caller was shown them.
    pub tools: Vec<Box<str>>,
}

/// A list item that the caller was not shown.
#[derive(Clone, Debug)]
pub struct WithheldItem {
    /// The upstream server that offers it.
    pub server: Box<str>,
    /// The name that its upstream server uses.
    pub name: Box<str>,
    /// The reason code of the denial.
    pub code: &'static str,
    /// The detector that matched its definition, if that is the reason.
    pub detector: Option<&'static str>,
}

/// The facts that are known when an exchange begins.
#[derive(Debug)]
pub struct RecordStart {
    /// The id of the record.
    pub id: RecordId,
    /// Time at which the request was received, as time of day and for durations.
    pub at: (SystemTime, Instant),
    /// The version of the configuration in force.
    pub config_digest: Arc<str>,
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// The listener, and the network address of the client.
    pub through: (Arc<str>, SocketAddr),
    /// A trace context for the exchange, until that of the request is known.
    pub trace: Trace,
}

/// The decision about an exchange, if there was one.
#[derive(Clone, Debug, Default)]
pub enum RecordedDecision {
    /// None: the request was refused earlier, or needs no decision.
    #[default]
    None,
    /// The policy has decided.
    Decided(Box<Decision>),
}

impl Record {
    /// Makes a record of an exchange that begins.
    #[must_use]
    pub fn new(beginning: RecordStart) -> Self {
        let RecordStart {
            id,
            at: (time, started),
            config_digest,
            policy,
            through: (listener, peer),
            trace,
        } = beginning;
        Self {
            id,
            time,
            started,
            config_digest,
            policy,
            listener,
            peer,
            principal: None,
            scheme: None,
            caller: None,
            asks_server: false,
            route: None,
            version: None,
            method: None,
            http_method: None,
            rpc_id: None,
            server: None,
            item: None,
            upstream_name: None,
            session: None,
            through: None,
            search: None,
            judged: None,
            argument_digest: None,
            approval: None,
            budget: None,
            retries: 0,
            captured: None,
            intent_logged: false,
            decision: RecordedDecision::None,
            server_findings: Vec::new(),
            listed: None,
            hidden_items: Vec::new(),
            bytes_in: 0,
            bytes_out: 0,
            upstream_duration: Duration::ZERO,
            wait_before_send: Duration::ZERO,
            sent_at: None,
            trace,
            controls_run: ControlSet::default(),
            texts: OnceLock::new(),
        }
    }

    fn texts(&self) -> &RecordTexts {
        self.texts.get_or_init(|| {
            let mut id = Vec::with_capacity(36);
            self.id.write(&mut id);
            let definition = self.decision().and_then(|decision| decision.definition);
            Box::new(RecordTexts {
                id,
                time: shown_in(28, &humantime::format_rfc3339_micros(self.time)),
                peer: shown_in(48, &self.peer),
                definition: definition.map(|definition| shown_in(72, &definition)),
                trace: shown_in(32, &self.trace),
            })
        })
    }

    /// Total time spent waiting for upstream servers and people. The rest is the gateway's own.
    #[must_use]
    pub fn in_servers(&self) -> Duration {
        self.upstream_duration.saturating_add(self.wait_before_send)
    }

    /// The caller whose share of the log the records take.
    pub(super) fn caller_key(&self) -> Option<CallerKey> {
        self.caller.as_ref().map(RatedCaller::key)
    }

    /// Whether the caller has sent more that is no allowed call than its rate allows.
    pub(super) fn is_over_rate(&self, now: Instant) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.wait(now).is_some())
    }

    /// Whether the caller has no name.
    pub(super) fn is_anonymous(&self) -> bool {
        self.scheme == Some("anonymous")
    }

    /// Whether the exchange was a use of a tool, prompt or resource that was allowed and announced, so that its server was
    /// asked.
    pub(super) const fn is_of_call(&self) -> bool {
        self.intent_logged && self.asks_server
    }

    /// Adds findings in what the upstream server sent, up to the limit.
    pub fn found(&mut self, found: Vec<Finding>) {
        let room = MAX_FINDINGS.saturating_sub(self.server_findings.len());
        self.server_findings.extend(found.into_iter().take(room));
    }

    /// Whether a message of the exchange exceeded its inspection budget.
    pub(super) fn is_over_budget(&self) -> bool {
        let decided = self.decision().into_iter().flat_map(|decision| &decision.findings);
        let mut all = decided.chain(&self.server_findings);
        all.any(|finding| finding.detector == Detector::InspectionBudget)
    }

    /// Serializes the `intent` record, which is written before a call is sent.
    pub(super) fn intent(&self, chain: &str) -> Vec<u8> {
        ExchangeLine { record: self, chain, event: "intent", end: None }.write()
    }

    /// Serializes the `exchange` record, which is written at the end.
    pub(super) fn exchange(&self, chain: &str, ending: ExchangeEnd, now: Instant) -> Vec<u8> {
        ExchangeLine { record: self, chain, event: "exchange", end: Some((ending, now)) }.write()
    }

    /// Formats a hidden list item as `SERVER/NAME: CODE`, followed by the detector if that is the reason.
    fn left_out(&self, WithheldItem { server, name, code, detector }: &WithheldItem) -> String {
        let name = self.shown(name);
        let detector = detector.map(|detector| format!(" {detector}")).unwrap_or_default();
        format!("{server}/{name}: {code}{detector}")
    }

    /// Writes a member with a value chosen by a peer that may be a URI or contain a sensitive value.
    fn named(&self, line: &mut Object<'_>, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            write_ascii(line.ours(key), &self.shown(value));
        }
    }

    /// Redacts and clips a text chosen by a peer for records and traces: without secrets, numbers of cards, accounts
    /// and persons, and the canary values that the policy plants.
    #[must_use]
    pub fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        without(text, Some(self.policy.contents()))
    }

    /// Redacts the id of a request. A number that looks like a sensitive one becomes a redacted string.
    #[must_use]
    pub fn shown_id(&self, id: &Id) -> Id {
        match id {
            Id::Number(number) if number.unsigned_abs() < MIN_REDACTED_NUMBER => {
                Id::Number(*number)
            }
            Id::Number(number) => match self.shown(itoa::Buffer::new().format(*number)) {
                Cow::Borrowed(_same) => Id::Number(*number),
                Cow::Owned(shown) => Id::Text(shown.into()),
            },
            Id::Text(text) => Id::Text(self.shown(text).into()),
        }
    }

    /// The decision, if there was one.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.decision {
            RecordedDecision::Decided(decision) => Some(decision),
            RecordedDecision::None => None,
        }
    }

    /// All controls that were evaluated before anything was sent.
    #[must_use]
    pub fn asked(&self) -> ControlSet {
        let mut ran = self.controls_run;
        ran.join(self.decision().map(|decision| decision.ran).unwrap_or_default());
        ran
    }

    /// The id of the rule that decided.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        let rule = match &self.decision()?.effect {
            Effect::Allow(rule) => Some(rule),
            Effect::Deny(denial) => denial.reason.rule(),
        };
        rule.map(|rule| rule.as_str())
    }

    /// The member that the condition of that rule reads and that the request lacks.
    pub(super) fn missing(&self) -> Option<&str> {
        match &self.decision()?.effect {
            Effect::Allow(_) => None,
            Effect::Deny(denial) => denial.reason.missing(),
        }
    }

    /// The exchange as an MCP operation, for metrics.
    pub(super) fn operated(&self, ending: ExchangeEnd) -> OperationLabels<'_> {
        let named = self
            .item
            .as_ref()
            .filter(|(kind, _)| matches!(kind, ItemKind::Tool | ItemKind::Prompt));
        // Without a known server, the name must not become a label value, even if another route has such a tool.
        let own_name = self.upstream_name.as_deref().unwrap_or(metrics::OTHER);
        OperationLabels {
            method: self.method.as_deref(),
            name: named.map(|_| own_name),
            server: self.server.as_deref(),
            version: self.version.map(ProtocolVersion::as_str),
            error: ending.error_type(ending.reason.or_else(|| self.reason())),
            code: ending.code,
        }
    }

    /// The reason code of the denial, if it was denied.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match &self.decision()?.effect {
            Effect::Deny(denial) => Some(denial.reason.code()),
            Effect::Allow(_) => None,
        }
    }
}

/// A value as text, in memory for `length` bytes: without that, the text is moved each time that it grows.
fn shown_in(length: usize, value: &dyn fmt::Display) -> String {
    let mut text = String::with_capacity(length);
    // A write to a string cannot fail.
    fmt::Write::write_fmt(&mut text, format_args!("{value}")).unwrap_or_default();
    text
}

/// Writes a list of names, unless it is empty.
fn some<'a>(line: &mut Object<'_>, key: &'static str, names: impl Iterator<Item = &'a str>) {
    let mut names = names.take(NAMES).map(str::to_owned).peekable();
    if names.peek().is_some() {
        list(line.ours(key), names);
    }
}

/// Writes a member with a value of the gateway's own, which needs no escapes.
fn plain(line: &mut Object<'_>, key: &'static str, value: &[u8]) {
    let out = line.ours(key);
    out.push(b'"');
    out.extend_from_slice(value);
    out.push(b'"');
}

/// Writes a member with a value chosen by a peer, clipped.
fn foreign(line: &mut Object<'_>, key: &'static str, value: Option<&str>) {
    if let Some(value) = value {
        write_ascii(line.ours(key), clipped(value));
    }
}

/// Writes how sure each finding is, in the order of the members that have them, unless there is none.
fn detections<'a>(
    line: &mut Object<'_>,
    key: &'static str,
    findings: impl Iterator<Item = (&'static str, &'a Finding)>,
) {
    let mut findings = findings.peekable();
    if findings.peek().is_none() {
        return;
    }
    let out = line.ours(key);
    out.push(b'[');
    for (n, (member, finding)) in findings.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        let mut one = Object::open(out);
        one.text("certainty", finding.certainty.as_str());
        one.text("class", finding.detector.name());
        one.text("in", member);
        one.close();
    }
    out.push(b']');
}

/// Writes a member with a captured excerpt.
fn excerpt(line: &mut Object<'_>, key: &'static str, said: Option<&Excerpt>) {
    if let Some(said) = said {
        write_ascii(line.ours(key), &said.text);
    }
}

fn list(out: &mut Vec<u8>, items: impl Iterator<Item = String>) {
    out.push(b'[');
    for (n, item) in items.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        // Findings contain no values; only URIs are masked.
        write_ascii(out, &without_uris(&item));
    }
    out.push(b']');
}

fn number(line: &mut Object<'_>, key: &'static str, value: u64) {
    line.ours(key).extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Clips a text chosen by a peer.
fn clipped(text: &str) -> &str {
    let end = text.floor_char_boundary(FOREIGN);
    text.get(..end).unwrap_or_default()
}

/// Masks secrets in URIs and redacts sensitive values in a text chosen by a peer, and clips it. Masking comes first,
/// so that clipping cannot remove the delimiter by which a secret is recognised.
#[must_use]
pub fn written(text: &str) -> Cow<'_, str> {
    without(text, None)
}

/// Like [`written`], and also redacts the values that `contents` names.
fn without<'a>(text: &'a str, contents: Option<&ContentPolicy>) -> Cow<'a, str> {
    match masking::uris(text) {
        Cow::Borrowed(text) => clipped_without(text, contents),
        Cow::Owned(text) => Cow::Owned(clipped_without(&text, contents).into_owned()),
    }
}

fn clipped_without<'a>(text: &'a str, contents: Option<&ContentPolicy>) -> Cow<'a, str> {
    // The rest of a very long text is not searched, because it is not written.
    let text = text.get(..text.floor_char_boundary(MAX_REDACTED_NAME)).unwrap_or_default();
    match without_values(text, contents) {
        Cow::Borrowed(text) => Cow::Borrowed(clipped(text)),
        Cow::Owned(text) => Cow::Owned(clipped(&text).to_owned()),
    }
}

/// Masks secrets in URIs only, and clips.
fn without_uris(text: &str) -> Cow<'_, str> {
    match masking::uris(text) {
        Cow::Borrowed(text) => Cow::Borrowed(clipped(text)),
        Cow::Owned(text) => Cow::Owned(clipped(&text).to_owned()),
    }
}

/// An event of the log itself, or one that belongs to no exchange.
#[derive(Debug, Default)]
pub(super) struct AuditEvent<'a> {
    /// The type of the event.
    pub(super) event: &'a str,
    /// Length of what was cut off a torn file, or appended by another process.
    pub(super) bytes: Option<usize>,
    /// The digest of what was cut off.
    pub(super) digest: Option<Hash>,
    /// Whether the last process ended without a `stop` record.
    pub(super) crashed: bool,
    /// The first and last record that are missing.
    pub(super) missing: Option<(u64, u64)>,
    /// The public key that signs checkpoints from here on.
    pub(super) key: Option<&'a str>,
    /// A checkpoint, as a signed note.
    pub(super) note: Option<&'a str>,
    /// The tree over the records before this one.
    pub(super) tree: Option<&'a MerkleTree>,
    /// A summary of refused requests.
    pub(super) counted: Option<RefusalCount>,
    /// The sink it concerns.
    pub(super) sink: Option<&'a str>,
    /// The source of a revocation.
    pub(super) source: Option<&'a str>,
    /// A description or the name of the subject.
    pub(super) what: Option<&'a str>,
    /// A step in the life of an approval.
    pub(super) approval: Option<ApprovalEvent<'a>>,
    /// The definition that the event is about.
    pub(super) subject: Option<DefinitionSubject<'a>>,
}

/// The definition that an event is about, and what detectors found in it.
#[derive(Clone, Copy, Debug)]
pub struct DefinitionSubject<'a> {
    /// The upstream server.
    pub server: &'a str,
    /// The kind of the item and its name at its server, as it may be recorded; `None` for what the server says of itself.
    pub item: Option<(ItemKind, &'a str)>,
    /// The findings, as they may be recorded.
    pub findings: &'a [Finding],
}

/// A step in the life of the approval of a call. It has none of the arguments.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalEvent<'a> {
    /// The id of the approval.
    pub id: &'a str,
    /// What happened to the question.
    pub step: ApprovalStep,
    /// The keyed digest of the arguments in canonical form.
    pub argument_digest: &'a str,
    /// The principal that called.
    pub principal: &'a str,
    /// The rule that allows the call.
    pub rule: &'a str,
    /// The upstream server.
    pub server: &'a str,
    /// The tool, with the name that the server uses.
    pub tool: &'a str,
    /// Who answered: `operator` or `client`.
    pub source: Option<&'a str>,
    /// The name of the person, as they gave it.
    pub by: Option<&'a str>,
    /// The reason that the person gave.
    pub reason: Option<&'a str>,
}

/// A summary of refused requests of unauthenticated callers or of an upstream server.
#[derive(Clone, Debug)]
pub(super) struct RefusalCount {
    /// The address or network they came from.
    pub(super) address: Option<String>,
    /// The upstream server that sent them.
    pub(super) server: Option<Arc<str>>,
    /// The caller that sent them, if it is authenticated.
    pub(super) principal: Option<Arc<str>>,
    /// Number of requests it stands for.
    pub(super) count: u64,
    /// Time of the first one.
    pub(super) since: SystemTime,
    /// The outcome they share.
    pub(super) outcome: ExchangeOutcome,
    /// Their common reason code.
    pub(super) reason: Option<&'static str>,
    /// The check that their credentials failed.
    pub(super) detail: Option<CredentialCheck>,
    /// The HTTP status of the responses.
    pub(super) status: u16,
}

impl AuditEvent<'_> {
    /// Serializes the event, in canonical form except for escapes.
    pub(super) fn write(
        &self,
        chain: &str,
        id: &RecordId,
        time: SystemTime,
        policy: &str,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let line = &mut Object::open(&mut out);
        let (counted, approval) = (self.counted.as_ref(), self.approval.as_ref());
        self.write_what_happened(line, chain);
        line.show("id", id);
        foreign(line, "key", self.key);
        if let Some(note) = self.note {
            write_ascii(line.key("note"), note);
        }
        foreign(line, "outcome", counted.map(|counted| counted.outcome.as_str()));
        if let Some(tree) = self.tree {
            list(line.key("peaks"), tree.peaks().iter().map(|peak| hex::encode(peak)));
        }
        line.text("policy", policy);
        let principal = counted.and_then(|counted| counted.principal.as_deref());
        foreign(line, "principal", principal.or(approval.map(|approval| approval.principal)));
        self.item(line, ItemKind::Prompt);
        foreign(line, "reason", counted.and_then(|counted| counted.reason));
        self.item(line, ItemKind::Resource);
        foreign(line, "rule", approval.map(|approval| approval.rule));
        line.text("schema", SCHEMA);
        let server = counted.and_then(|counted| counted.server.as_deref());
        let server = server.or(approval.map(|approval| approval.server));
        foreign(line, "server", server.or(self.subject.map(|subject| subject.server)));
        if let Some(counted) = counted {
            line.show("since", &humantime::format_rfc3339_micros(counted.since));
        }
        foreign(line, "sink", self.sink);
        if let Some(tree) = self.tree {
            number(line, "size", tree.size());
        }
        self.item(line, ItemKind::Skill);
        foreign(line, "source", self.source.or(approval.and_then(|approval| approval.source)));
        if let Some(counted) = counted {
            number(line, "status", counted.status.into());
        }
        foreign(line, "step", approval.map(|approval| approval.step.as_str()));
        self.item(line, ItemKind::Template);
        line.show("time", &humantime::format_rfc3339_micros(time));
        if let Some((_, to)) = self.missing {
            number(line, "to", to);
        }
        foreign(line, "tool", approval.map(|approval| written(approval.tool)).as_deref());
        self.item(line, ItemKind::Tool);
        line.text("version", env!("CARGO_PKG_VERSION"));
        if let Some(what) = self.what.or(approval.and_then(|approval| approval.reason)) {
            let what = masking::uris(what);
            let end = what.floor_char_boundary(WHAT);
            write_ascii(line.key("what"), what.get(..end).unwrap_or_default());
        }
        out.push(b'}');
        out
    }

    /// Writes the members from `address` to `from`.
    fn write_what_happened(&self, line: &mut Object<'_>, chain: &str) {
        let counted = self.counted.as_ref();
        let approval = self.approval.as_ref();
        foreign(line, "address", counted.and_then(|counted| counted.address.as_deref()));
        foreign(line, "approval", approval.map(|approval| approval.id));
        foreign(line, "argumentDigest", approval.map(|approval| approval.argument_digest));
        foreign(line, "by", approval.and_then(|approval| approval.by).map(written).as_deref());
        if let Some(bytes) = self.bytes {
            number(line, "bytes", bytes as u64);
        }
        line.text("chain", chain);
        if let Some(counted) = counted {
            number(line, "count", counted.count);
        }
        if self.crashed {
            line.raw("crashed", "true");
        }
        let detail = counted.and_then(|counted| counted.detail);
        foreign(line, "detail", detail.map(CredentialCheck::code));
        let findings = self.subject.map_or(&[][..], |subject| subject.findings);
        detections(line, "detections", findings.iter().map(|finding| ("findings", finding)));
        if let Some(digest) = &self.digest {
            line.text("digest", &hex::encode(digest));
        }
        line.text("event", self.event);
        if !findings.is_empty() {
            list(line.key("findings"), findings.iter().map(ToString::to_string));
        }
        if let Some((from, _)) = self.missing {
            number(line, "from", from);
        }
    }

    /// Writes the name of the item that the event is about, if it is of `kind`.
    fn item(&self, line: &mut Object<'_>, kind: ItemKind) {
        let item = self.subject.and_then(|subject| subject.item);
        foreign(line, kind.as_str(), item.filter(|(its, _)| *its == kind).map(|(_, name)| name));
    }
}

#[cfg(test)]
mod tests {
    use audit_log::tree::MerkleTree;

    use detection::inspect::Finding;
    use policy::definition::offer::ItemKind;

    use super::{
        AuditEvent, CredentialCheck, DefinitionSubject, ExchangeOutcome, RecordId, RefusalCount,
    };
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn members_of_events_are_in_order() {
        let tree = MerkleTree::default();
        let event = AuditEvent {
            approval: None,
            event: "x",
            bytes: Some(1),
            digest: Some([0; 32]),
            crashed: true,
            missing: Some((1, 2)),
            key: Some("k"),
            note: Some("n\n\u{2014}"),
            tree: Some(&tree),
            counted: Some(RefusalCount {
                address: Some("192.0.2.1".to_owned()),
                server: Some("up".into()),
                principal: Some("ana".into()),
                count: 2,
                since: UNIX_EPOCH,
                outcome: ExchangeOutcome::Refused,
                reason: Some("r"),
                detail: Some(CredentialCheck::Signature),
                status: 401,
            }),
            sink: Some("s"),
            source: Some("o"),
            what: Some("w"),
            subject: Some(DefinitionSubject {
                server: "up",
                item: Some((ItemKind::Tool, "t")),
                findings: &[Finding::duplicate_name()],
            }),
        };
        let id = RecordId::new(UNIX_EPOCH, 1, 1);
        in_order(&event.write("c", &id, UNIX_EPOCH, "p"));
    }

    fn in_order(line: &[u8]) {
        let document = audit_log::chain::read(line).unwrap();
        let names: Vec<_> = document.root().members().map(|(name, _)| name.into_owned()).collect();
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(names, sorted);
    }

    #[test]
    fn an_id_is_a_uuid_of_version_7_and_sorts_by_time() {
        let at = |seconds, count| {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            RecordId::new(time, 0xffff_ffff_ffff_ffff, count).to_string()
        };
        let id = at(1_800_000_000, 1);
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'7');
        assert!(matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert_ne!(at(1_800_000_000, 1), at(1_800_000_000, 2));
        assert!(at(1_800_000_000, 9) < at(1_800_000_001, 1));
    }

    #[test]
    fn the_traces_of_one_process_are_a_sample_like_any_other() {
        let tenth = (1 << 56) / 10;
        for process in [0, 0x0123_4567_89ab_cdef, u64::MAX] {
            let id = |count| RecordId::new(UNIX_EPOCH, process, count).number();
            let below = (0..10_000).filter(|count| id(*count) & ((1 << 56) - 1) < tenth).count();
            assert!((800..1200).contains(&below), "{below} of 10000");
        }
    }
}
