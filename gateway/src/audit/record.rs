//! What is recorded, and how it is written down.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use policy::content::{Contents, without_values};
use policy::control::Ran;
use policy::decision::{Decision, Effect};
use policy::inspect::{Detector, Finding};
use policy::json::write_ascii;
use policy::name::ClientId;
use policy::offer::Kind;
use policy::pipeline::Policy;
use policy::principal::{Principal, Proof};

use super::captured::{Captured, Excerpt};
use super::chain::SCHEMA;
use super::tree::{Hash, Tree};
use crate::base::hex;
use crate::base::masking;
use crate::mcp::protocol::Version;
use crate::mcp::trace_context::Trace;
use crate::mcp::wire::{Id, Object};
use crate::metrics::credential_check::Detail;
use crate::metrics::outcome::{Ending, Outcome};
use crate::metrics::{self, Operated};

/// Most bytes of a name that a peer chose.
pub const FOREIGN: usize = 256;

/// Most bytes of such a name that are looked at for what is not written down.
const LOOKED: usize = 64 * 1024;
/// The smallest number that may be one of a person or an account: those have seven digits or more.
const UNTOLD: u64 = 1_000_000;
/// Most bytes of what is said of an event in words.
const WHAT: usize = 8 * 1024;
/// Most findings of one exchange that are on record.
const FOUND: usize = 32;
/// Most things of a list of which it is on record why they were not shown.
pub const UNSEEN: usize = 32;
/// How `scheme` names a caller whom an issuer vouches for.
pub const OAUTH: &str = "oauth";
/// How it names one by certificate.
pub const CERTIFICATE: &str = "certificate";
/// Most groups, roles and scopes of a caller that are on record.
pub const NAMES: usize = 128;

/// The id of a record: a UUID of version 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId(u128);

impl RecordId {
    pub(super) fn new(now: SystemTime, process: u64, count: u64) -> Self {
        let millis = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        // 48 bits of time, 12 of the process, 62 of the process and the count.
        let tail = u128::from(mixed(process << 32 ^ count));
        Self(millis << 80 | 7 << 76 | u128::from(process >> 52) << 64 | 2 << 62 | tail)
    }

    /// As a number: also a trace id, where the client sent none.
    #[must_use]
    pub const fn number(self) -> u128 {
        self.0
    }

    /// As RFC 9562 writes it, at the end of `out`.
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

/// The last 62 bits, each of which then depends on all of them: of the traces that these ids name a part is
/// recorded, and which is told by their last bits. Every step can be taken back, so no two become one.
const fn mixed(bits: u64) -> u64 {
    const LAST: u64 = (1 << 62) - 1;
    // The factors of SplitMix64.
    let bits = bits & LAST;
    let bits = (bits ^ bits >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) & LAST;
    let bits = (bits ^ bits >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) & LAST;
    bits ^ bits >> 31
}

/// What stands in both records of a call and takes a while to be written.
#[derive(Debug)]
struct Texts {
    id: Vec<u8>,
    time: String,
    peer: String,
    definition: Option<String>,
    trace: String,
}

/// What is known of an exchange. Filled in as it becomes known.
#[derive(Debug)]
pub struct Record {
    /// Its id.
    pub id: RecordId,
    /// When the request came.
    pub time: SystemTime,
    /// The same, for durations.
    pub started: Instant,
    /// The configuration in force.
    pub policy: Arc<str>,
    /// Its rules: they say which values are in no record.
    pub rules: Arc<Policy>,
    /// Where it came in.
    pub listener: Arc<str>,
    /// Where it came from.
    pub peer: SocketAddr,
    /// Who sent it.
    pub principal: Option<Arc<Principal>>,
    /// How that is known.
    pub scheme: Option<&'static str>,
    /// Which way it was to go.
    pub route: Option<Arc<str>>,
    /// The revision it was in.
    pub version: Option<Version>,
    /// What it asked for.
    pub method: Option<Box<str>>,
    /// How it came over HTTP (`GET`, `POST`, `DELETE`): all that is known of a request that has no method of MCP.
    pub http_method: Option<&'static str>,
    /// Its JSON-RPC id.
    pub rpc_id: Option<Id>,
    /// The server it was for.
    pub server: Option<Box<str>>,
    /// What it was for: a tool, a prompt, a resource, as the caller named it.
    pub item: Option<(Kind, Box<str>)>,
    /// What its server calls it, where that is known: on a route it can have another name. Metrics tell tools and prompts
    /// apart by it.
    pub own_name: Option<Box<str>>,
    /// The keyed digest of the arguments.
    pub argument_digest: Option<String>,
    /// What was said, where that is recorded.
    pub captured: Option<Box<Captured>>,
    /// There is an intent.
    pub(super) announced: bool,
    /// What was decided.
    pub verdict: Verdict,
    /// What was found in what the server said.
    pub found: Vec<Finding>,
    /// How many were shown, and how many hidden.
    pub listed: Option<(usize, usize)>,
    /// What was hidden, and why: the first [`UNSEEN`] of it.
    pub unseen: Vec<Unseen>,
    /// Bytes of the request's body.
    pub bytes_in: usize,
    /// Bytes of the answer's body.
    pub bytes_out: usize,
    /// How long servers took.
    pub upstream: Duration,
    /// When something was sent to a server.
    pub sent: Option<Instant>,
    /// The trace it belongs to.
    pub trace: Trace,
    /// The controls that were asked, beside those of the decision.
    pub ran: Ran,
    /// Written once.
    texts: OnceLock<Box<Texts>>,
}

/// Something of a list that its caller was not shown.
#[derive(Clone, Debug)]
pub struct Unseen {
    /// Whose it is.
    pub server: Box<str>,
    /// Its name, as its server gives it.
    pub name: Box<str>,
    /// The reason code.
    pub code: &'static str,
    /// Which detector found something in its definition, where that is the reason.
    pub detector: Option<&'static str>,
}

/// What is known when an exchange begins.
#[derive(Debug)]
pub struct Beginning {
    /// Its id.
    pub id: RecordId,
    /// When the request came, and the same for durations.
    pub at: (SystemTime, Instant),
    /// The configuration in force.
    pub policy: Arc<str>,
    /// Its rules.
    pub rules: Arc<Policy>,
    /// Where it came in, and where it came from.
    pub through: (Arc<str>, SocketAddr),
    /// Its trace, until it is known what it belongs to.
    pub trace: Trace,
}

/// What was decided.
#[derive(Clone, Debug, Default)]
pub enum Verdict {
    /// Nothing: it was refused before, or needs no decision.
    #[default]
    None,
    /// This.
    Decided(Box<Decision>),
}

impl Record {
    /// A record of which only the beginning is known.
    #[must_use]
    pub fn new(beginning: Beginning) -> Self {
        let Beginning { id, at: (time, started), policy, rules, through: (listener, peer), trace } =
            beginning;
        Self {
            id,
            time,
            started,
            policy,
            rules,
            listener,
            peer,
            principal: None,
            scheme: None,
            route: None,
            version: None,
            method: None,
            http_method: None,
            rpc_id: None,
            server: None,
            item: None,
            own_name: None,
            argument_digest: None,
            captured: None,
            announced: false,
            verdict: Verdict::None,
            found: Vec::new(),
            listed: None,
            unseen: Vec::new(),
            bytes_in: 0,
            bytes_out: 0,
            upstream: Duration::ZERO,
            sent: None,
            trace,
            ran: Ran::default(),
            texts: OnceLock::new(),
        }
    }

    fn texts(&self) -> &Texts {
        self.texts.get_or_init(|| {
            let mut id = Vec::with_capacity(36);
            self.id.write(&mut id);
            let definition = self.decision().and_then(|decision| decision.definition);
            Box::new(Texts {
                id,
                time: humantime::format_rfc3339_micros(self.time).to_string(),
                peer: self.peer.to_string(),
                definition: definition.map(|definition| definition.to_string()),
                trace: self.trace.to_string(),
            })
        })
    }

    /// Notes what was found in what the server said: the first of it.
    pub fn found(&mut self, found: Vec<Finding>) {
        let room = FOUND.saturating_sub(self.found.len());
        self.found.extend(found.into_iter().take(room));
    }

    /// Whether a message of it cost more to look at than one may.
    pub(super) fn is_over_budget(&self) -> bool {
        let decided = self.decision().into_iter().flat_map(|decision| &decision.findings);
        let mut all = decided.chain(&self.found);
        all.any(|finding| finding.detector == Detector::InspectionBudget)
    }

    /// What is written before a call is sent, in the record of `chain`.
    pub(super) fn intent(&self, chain: &str) -> Vec<u8> {
        self.write(chain, "intent", None)
    }

    /// What is written when all is over.
    pub(super) fn exchange(&self, chain: &str, ending: Ending, now: Instant) -> Vec<u8> {
        self.write(chain, "exchange", Some((ending, now)))
    }

    /// One object, in canonical form but for escapes (RFC 8785): its members are in order.
    fn write(&self, chain: &str, event: &str, end: Option<(Ending, Instant)>) -> Vec<u8> {
        let mut out = Vec::with_capacity(1200);
        let line = &mut Object::open(&mut out);
        let (decision, texts) = (self.decision(), self.texts());
        let claims = self.principal.as_ref().map(|who| &who.claims);
        let actors = claims.map_or(&[] as &[_], |claims| &claims.actors);
        if !actors.is_empty() {
            list(line.ours("actors"), actors.iter().map(ToString::to_string));
        }
        foreign(line, "argumentDigest", self.argument_digest.as_deref());
        // Once: with the intent, or where there is none.
        let captured = self.captured.as_ref();
        let arguments = captured.and_then(|captured| captured.arguments.as_ref());
        let arguments = arguments.filter(|_| end.is_none() || !self.announced);
        let result = captured.and_then(|captured| captured.result.as_ref());
        let result = result.filter(|_| end.is_some());
        excerpt(line, "arguments", arguments);
        if end.is_some() {
            number(line, "bytesIn", self.bytes_in as u64);
            number(line, "bytesOut", self.bytes_out as u64);
        }
        foreign(line, "certificate", claims.and_then(|claims| claims.certificate.as_deref()));
        foreign(line, "chain", Some(chain));
        foreign(line, "client", claims.and_then(|c| c.client.as_ref()).map(ClientId::as_str));
        if let Some(code) = end.and_then(|(ending, _)| ending.code) {
            line.ours("code").extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
        }
        let cuts = [("arguments", arguments), ("result", result)];
        let cuts = cuts.into_iter().filter(|(_, part)| part.is_some_and(|part| part.cut));
        some(line, "cut", cuts.map(|(name, _)| name));
        if let Some(decision) = decision {
            let allowed = matches!(decision.effect, Effect::Allow(_));
            plain(line, "decision", if allowed { b"allow" } else { b"deny" });
            if let Some(definition) = &texts.definition {
                plain(line, "definition", definition.as_bytes());
            }
        }
        let detail = end.and_then(|(ending, _)| ending.detail);
        foreign(line, "detail", detail.map(Detail::code));
        if let Some((_, now)) = end {
            let total = now.saturating_duration_since(self.started);
            let mut durations = Object::open(line.ours("durationMicros"));
            number(&mut durations, "gateway", micros(total.saturating_sub(self.upstream)));
            number(&mut durations, "total", micros(total));
            number(&mut durations, "upstream", micros(self.upstream));
            durations.close();
        }
        foreign(line, "era", self.version.map(|version| version.era().as_str()));
        plain(line, "event", event.as_bytes());
        if let Some(decision) = decision.filter(|decision| !decision.findings.is_empty()) {
            list(line.ours("findings"), decision.findings.iter().map(ToString::to_string));
        }
        if end.is_some() && !self.found.is_empty() {
            list(line.ours("found"), self.found.iter().map(ToString::to_string));
        }
        // What others vouch for: nothing else says it later, when somebody asks what another policy would do.
        let vouched = matches!(self.scheme, Some(OAUTH | CERTIFICATE)) && end.is_some();
        let said = self.principal.as_ref().filter(|_| vouched);
        if let Some(who) = said {
            some(line, "groups", who.groups.iter().map(|group| group.as_str()));
        }
        let listed = end.and(self.listed);
        if let Some((_, hidden)) = listed {
            number(line, "hidden", hidden as u64);
        }
        foreign(line, "httpMethod", self.http_method.filter(|_| self.method.is_none()));
        plain(line, "id", &texts.id);
        foreign(line, "listener", Some(&self.listener));
        self.named(line, "method", self.method.as_deref());
        if let Some((ending, _)) = end {
            plain(line, "outcome", ending.outcome.as_str().as_bytes());
        }
        plain(line, "peer", texts.peer.as_bytes());
        plain(line, "policy", self.policy.as_bytes());
        foreign(line, "principal", self.principal.as_ref().map(|who| who.id.as_str()));
        let item = |line: &mut Object<'_>, kind: Kind| {
            let item = self.item.as_ref().filter(|(its, _)| *its == kind);
            self.named(line, kind.as_str(), item.map(|(_, name)| &**name));
        };
        item(line, Kind::Prompt);
        let proof = claims.map(|claims| claims.proof).filter(|proof| *proof != Proof::None);
        foreign(line, "proof", proof.map(Proof::as_str));
        foreign(line, "protocolVersion", self.version.map(Version::as_str));
        if let Some((ending, _)) = end {
            foreign(line, "reason", ending.reason.or_else(|| self.reason()));
        }
        item(line, Kind::Resource);
        excerpt(line, "result", result);
        if let Some(who) = said {
            some(line, "roles", who.claims.roles.iter().map(|role| role.as_str()));
        }
        foreign(line, "route", self.route.as_deref());
        match self.rpc_id.as_ref().map(|id| self.shown_id(id)) {
            Some(Id::Number(id)) => {
                line.ours("rpcId").extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
            }
            Some(Id::Text(id)) => write_ascii(line.ours("rpcId"), &id),
            None => {}
        }
        foreign(line, "rule", self.rule());
        plain(line, "schema", SCHEMA.as_bytes());
        foreign(line, "scheme", self.scheme);
        if let Some(who) = said {
            some(line, "scopes", who.claims.scopes.iter().map(|scope| scope.as_str()));
        }
        foreign(line, "server", self.server.as_deref());
        if let Some(decision) = decision.filter(|decision| !decision.shadow.is_empty()) {
            list(line.ours("shadow"), decision.shadow.iter().map(ToString::to_string));
        }
        if let Some((shown, _)) = listed {
            number(line, "shown", shown as u64);
        }
        if self.trace.sampled {
            line.show("span", &format_args!("{:016x}", self.trace.span));
        }
        if let Some((ending, _)) = end {
            number(line, "status", ending.status.into());
        }
        item(line, Kind::Template);
        plain(line, "time", texts.time.as_bytes());
        foreign(line, "token", claims.and_then(|claims| claims.token.as_deref()));
        item(line, Kind::Tool);
        plain(line, "trace", texts.trace.as_bytes());
        if end.is_some() && !self.unseen.is_empty() {
            list(line.ours("withheld"), self.unseen.iter().map(|one| self.left_out(one)));
        }
        out.push(b'}');
        out
    }

    /// Something that was not shown: `SERVER/NAME: CODE`, with the detector where that is the reason.
    fn left_out(&self, Unseen { server, name, code, detector }: &Unseen) -> String {
        let name = self.shown(name);
        let detector = detector.map(|detector| format!(" {detector}")).unwrap_or_default();
        format!("{server}/{name}: {code}{detector}")
    }

    /// A member that a peer chose the value of, where that may be a URI or carry a value.
    fn named(&self, line: &mut Object<'_>, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            write_ascii(line.ours(key), &self.shown(value));
        }
    }

    /// As much of what a peer chose as is written down and sent as a part of a trace: without secrets, the numbers
    /// of cards, accounts and persons, and the values that the policy plants.
    #[must_use]
    pub fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        without(text, Some(self.rules.contents()))
    }

    /// An id of a request as it is written down. A number that has the form of one that is not written down
    /// becomes a text.
    #[must_use]
    pub fn shown_id(&self, id: &Id) -> Id {
        match id {
            Id::Number(number) if number.unsigned_abs() < UNTOLD => Id::Number(*number),
            Id::Number(number) => match self.shown(itoa::Buffer::new().format(*number)) {
                Cow::Borrowed(_same) => Id::Number(*number),
                Cow::Owned(shown) => Id::Text(shown.into()),
            },
            Id::Text(text) => Id::Text(self.shown(text).into()),
        }
    }

    /// The decision, where there was one.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.verdict {
            Verdict::Decided(decision) => Some(decision),
            Verdict::None => None,
        }
    }

    /// The controls that were asked before anything was sent.
    #[must_use]
    pub fn asked(&self) -> Ran {
        let mut ran = self.ran;
        ran.join(self.decision().map(|decision| decision.ran).unwrap_or_default());
        ran
    }

    /// The rule that decided.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        let rule = match &self.decision()?.effect {
            Effect::Allow(rule) => Some(rule),
            Effect::Deny(denial) => denial.reason.rule(),
        };
        rule.map(|rule| rule.as_str())
    }

    /// What it was as an operation of MCP.
    pub(super) fn operated(&self, ending: Ending) -> Operated<'_> {
        let named =
            self.item.as_ref().filter(|(kind, _)| matches!(kind, Kind::Tool | Kind::Prompt));
        // What leads to no server has no name that a label could have, also where another route has such a tool.
        let own_name = self.own_name.as_deref().unwrap_or(metrics::OTHER);
        Operated {
            method: self.method.as_deref(),
            name: named.map(|_| own_name),
            server: self.server.as_deref(),
            version: self.version.map(Version::as_str),
            error: ending.error_type(ending.reason.or_else(|| self.reason())),
            code: ending.code,
        }
    }

    /// The code of the denial, when there is one.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match &self.decision()?.effect {
            Effect::Deny(denial) => Some(denial.reason.code()),
            Effect::Allow(_) => None,
        }
    }
}

/// A list of names that has any.
fn some<'a>(line: &mut Object<'_>, key: &'static str, names: impl Iterator<Item = &'a str>) {
    let mut names = names.take(NAMES).map(str::to_owned).peekable();
    if names.peek().is_some() {
        list(line.ours(key), names);
    }
}

/// A member of our own words, which need no escapes.
fn plain(line: &mut Object<'_>, key: &'static str, value: &[u8]) {
    let out = line.ours(key);
    out.push(b'"');
    out.extend_from_slice(value);
    out.push(b'"');
}

/// A member that a peer chose the value of.
fn foreign(line: &mut Object<'_>, key: &'static str, value: Option<&str>) {
    if let Some(value) = value {
        write_ascii(line.ours(key), clipped(value));
    }
}

/// A member with as much of what was said as may be.
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
        // What was found is told without values already.
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

/// As much of what a peer chose as is written down.
fn clipped(text: &str) -> &str {
    let end = text.floor_char_boundary(FOREIGN);
    text.get(..end).unwrap_or_default()
}

/// As much of what a peer chose as is written down where it may be a URI, or have one in it: without what is
/// secret in that. It is masked before it is cut, so that no secret stands without the sign it ends with.
#[must_use]
pub fn written(text: &str) -> Cow<'_, str> {
    without(text, None)
}

/// The same, also without the values that `contents` names.
fn without<'a>(text: &'a str, contents: Option<&Contents>) -> Cow<'a, str> {
    match masking::uris(text) {
        Cow::Borrowed(text) => clipped_without(text, contents),
        Cow::Owned(text) => Cow::Owned(clipped_without(&text, contents).into_owned()),
    }
}

fn clipped_without<'a>(text: &'a str, contents: Option<&Contents>) -> Cow<'a, str> {
    // Of a text that is much longer than what is written of it, the rest is not looked at.
    let text = text.get(..text.floor_char_boundary(LOOKED)).unwrap_or_default();
    match without_values(text, contents) {
        Cow::Borrowed(text) => Cow::Borrowed(clipped(text)),
        Cow::Owned(text) => Cow::Owned(clipped(&text).to_owned()),
    }
}

/// The same without the user information and the secret parameters of URIs alone.
fn without_uris(text: &str) -> Cow<'_, str> {
    match masking::uris(text) {
        Cow::Borrowed(text) => Cow::Borrowed(clipped(text)),
        Cow::Owned(text) => Cow::Owned(clipped(&text).to_owned()),
    }
}

/// Something that happened to the log itself, or that belongs to no exchange.
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    /// What.
    pub(super) event: &'a str,
    /// The bytes that were torn.
    pub(super) bytes: Option<usize>,
    /// The digest of what was torn.
    pub(super) digest: Option<Hash>,
    /// The last process ended without saying so.
    pub(super) crashed: bool,
    /// The first record that is missing somewhere, and the last.
    pub(super) missing: Option<(u64, u64)>,
    /// The key that checkpoints are signed with from here on.
    pub(super) key: Option<&'a str>,
    /// A signed checkpoint.
    pub(super) note: Option<&'a str>,
    /// The tree over the records before this one.
    pub(super) tree: Option<&'a Tree>,
    /// Requests that are recorded together.
    pub(super) counted: Option<Counted>,
    /// The sink it is about.
    pub(super) sink: Option<&'a str>,
    /// Where it was asked for.
    pub(super) source: Option<&'a str>,
    /// More, in words.
    pub(super) what: Option<&'a str>,
}

/// Requests of callers that are not known, or of a server, recorded together.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    /// Where they came from.
    pub(super) address: Option<String>,
    /// The server that made them.
    pub(super) server: Option<Arc<str>>,
    /// How many they are.
    pub(super) count: u64,
    /// When the first of them came.
    pub(super) since: SystemTime,
    /// How they ended.
    pub(super) outcome: Outcome,
    /// Why.
    pub(super) reason: Option<&'static str>,
    /// Which check their credentials did not pass.
    pub(super) detail: Option<Detail>,
    /// With which HTTP status.
    pub(super) status: u16,
}

impl Event<'_> {
    /// Its object, in canonical form but for escapes.
    pub(super) fn write(
        &self,
        chain: &str,
        id: &RecordId,
        time: SystemTime,
        policy: &str,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let line = &mut Object::open(&mut out);
        let counted = self.counted.as_ref();
        foreign(line, "address", counted.and_then(|counted| counted.address.as_deref()));
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
        foreign(line, "detail", detail.map(Detail::code));
        if let Some(digest) = &self.digest {
            line.text("digest", &hex::encode(digest));
        }
        line.text("event", self.event);
        if let Some((from, _)) = self.missing {
            number(line, "from", from);
        }
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
        foreign(line, "reason", counted.and_then(|counted| counted.reason));
        line.text("schema", SCHEMA);
        foreign(line, "server", counted.and_then(|counted| counted.server.as_deref()));
        if let Some(counted) = counted {
            line.show("since", &humantime::format_rfc3339_micros(counted.since));
        }
        foreign(line, "sink", self.sink);
        if let Some(tree) = self.tree {
            number(line, "size", tree.size());
        }
        foreign(line, "source", self.source);
        if let Some(counted) = counted {
            number(line, "status", counted.status.into());
        }
        line.show("time", &humantime::format_rfc3339_micros(time));
        if let Some((_, to)) = self.missing {
            number(line, "to", to);
        }
        line.text("version", env!("CARGO_PKG_VERSION"));
        if let Some(what) = self.what {
            let what = masking::uris(what);
            let end = what.floor_char_boundary(WHAT);
            write_ascii(line.key("what"), what.get(..end).unwrap_or_default());
        }
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::{Counted, Detail, Event, Outcome, RecordId};
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn members_of_events_are_in_order() {
        let tree = Tree::default();
        let event = Event {
            event: "x",
            bytes: Some(1),
            digest: Some([0; 32]),
            crashed: true,
            missing: Some((1, 2)),
            key: Some("k"),
            note: Some("n\n\u{2014}"),
            tree: Some(&tree),
            counted: Some(Counted {
                address: Some("192.0.2.1".to_owned()),
                server: Some("up".into()),
                count: 2,
                since: UNIX_EPOCH,
                outcome: Outcome::Refused,
                reason: Some("r"),
                detail: Some(Detail::Signature),
                status: 401,
            }),
            sink: Some("s"),
            source: Some("o"),
            what: Some("w"),
        };
        let id = RecordId::new(UNIX_EPOCH, 1, 1);
        in_order(&event.write("c", &id, UNIX_EPOCH, "p"));
    }

    fn in_order(line: &[u8]) {
        let document = super::super::chain::read(line).unwrap();
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
