//! What is recorded, and how it is written down.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use policy::decision::{Decision, Effect};
use policy::inspect::Finding;
use policy::json::write_ascii;
use policy::name::ClientId;
use policy::offer::Kind;
use policy::principal::{Principal, Proof};

use crate::ending::Ending;
use crate::hex;
use crate::protocol::Version;
use crate::wire::{Id, Object};

/// The version of the format.
const SCHEMA: &str = "portcullis.audit/v1";
/// How every line begins.
const OPEN: &[u8] = br#"{"schema":"portcullis.audit/v1","#;
/// Most bytes of a name that a peer chose.
const FOREIGN: usize = 256;

/// Most findings of one exchange that are on record.
const FOUND: usize = 32;

/// The id of a record: a UUID of version 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId(u128);

impl RecordId {
    pub(super) fn new(now: SystemTime, process: u64, count: u64) -> Self {
        let millis = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        // 48 bits of time, 12 of the process, 62 of the process and the count.
        let process = u128::from(process);
        let tail = (process << 32 ^ u128::from(count)) & ((1 << 62) - 1);
        Self(millis << 80 | 7 << 76 | (process >> 52) << 64 | 2 << 62 | tail)
    }

    /// 32 hexadecimal digits: also a trace id, where the client sent none.
    #[must_use]
    pub fn digits(self) -> String {
        hex::encode(&self.0.to_be_bytes())
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits();
        for (n, (from, to)) in [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)].iter().enumerate() {
            f.write_str(if n > 0 { "-" } else { "" })?;
            f.write_str(digits.get(*from..*to).unwrap_or_default())?;
        }
        Ok(())
    }
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
    /// Its JSON-RPC id.
    pub rpc_id: Option<Id>,
    /// The server it was for.
    pub server: Option<Box<str>>,
    /// What it was for: a tool, a prompt, a resource, as the caller named it.
    pub item: Option<(Kind, Box<str>)>,
    /// The keyed digest of the arguments.
    pub argument_digest: Option<String>,
    /// What was decided.
    pub verdict: Verdict,
    /// What was found in what the server said.
    pub found: Vec<Finding>,
    /// How many were shown, and how many hidden.
    pub listed: Option<(usize, usize)>,
    /// Bytes of the request's body.
    pub bytes_in: usize,
    /// Bytes of the answer's body.
    pub bytes_out: usize,
    /// How long servers took.
    pub upstream: Duration,
    /// The trace it belongs to, 32 hexadecimal digits.
    pub trace: Option<Box<str>>,
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
    /// What both lines of a call have in common: it is known before the call is sent.
    pub(super) fn common(&self, policy: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(640);
        let mut line = Object::open(&mut out);
        self.describe(&mut line, policy);
        out
    }

    /// Notes what was found in what the server said: the first of it.
    pub fn found(&mut self, found: Vec<Finding>) {
        let room = FOUND.saturating_sub(self.found.len());
        self.found.extend(found.into_iter().take(room));
    }

    /// The line that is written before a call is sent.
    pub(super) fn intent(common: &[u8]) -> Vec<u8> {
        [OPEN, br#""event":"intent","#, common.get(1..).unwrap_or_default(), b"}\n"].concat()
    }

    /// The line that is written when all is over.
    pub(super) fn exchange(&self, common: &[u8], ending: Ending, now: Instant) -> Vec<u8> {
        let mut out = Vec::with_capacity(common.len() + 384);
        out.extend_from_slice(OPEN);
        out.extend_from_slice(br#""event":"exchange","#);
        out.extend_from_slice(common.get(1..).unwrap_or_default());
        let mut line = Object::resume(&mut out);
        line.text("outcome", ending.outcome.as_str());
        if let Some(reason) = ending.reason.or_else(|| self.reason()) {
            line.text("reason", reason);
        }
        number(&mut line, "status", ending.status.into());
        if let Some(code) = ending.code {
            line.key("code").extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
        }
        if let Some((shown, hidden)) = self.listed {
            number(&mut line, "shown", shown as u64);
            number(&mut line, "hidden", hidden as u64);
        }
        if !self.found.is_empty() {
            list(line.key("found"), self.found.iter().map(ToString::to_string));
        }
        number(&mut line, "bytesIn", self.bytes_in as u64);
        number(&mut line, "bytesOut", self.bytes_out as u64);
        let total = now.saturating_duration_since(self.started);
        let mut durations = Object::open(line.key("durationMicros"));
        number(&mut durations, "total", micros(total));
        number(&mut durations, "gateway", micros(total.saturating_sub(self.upstream)));
        number(&mut durations, "upstream", micros(self.upstream));
        durations.close();
        line.close();
        out.push(b'\n');
        out
    }

    fn describe(&self, line: &mut Object<'_>, policy: &str) {
        line.show("id", &self.id);
        line.show("time", &humantime::format_rfc3339_micros(self.time));
        line.text("listener", &self.listener);
        line.show("peer", &self.peer);
        let mut foreign = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                write_ascii(line.key(key), clipped(value));
            }
        };
        if let Some(principal) = &self.principal {
            let claims = &principal.claims;
            foreign("principal", Some(principal.id.as_str()));
            foreign("client", claims.client.as_ref().map(ClientId::as_str));
            foreign("certificate", claims.certificate.as_deref());
            foreign("proof", Some(claims.proof.as_str()).filter(|_| claims.proof != Proof::None));
            foreign("token", claims.token.as_deref());
        }
        foreign("scheme", self.scheme);
        foreign("route", self.route.as_deref());
        foreign("era", self.version.map(|version| version.era().as_str()));
        foreign("protocolVersion", self.version.map(Version::as_str));
        foreign("method", self.method.as_deref());
        match &self.rpc_id {
            Some(Id::Number(id)) => line.raw("rpcId", itoa::Buffer::new().format(*id)),
            Some(Id::Text(id)) => write_ascii(line.key("rpcId"), clipped(id)),
            None => {}
        }
        let actors = self.principal.as_ref().map_or(&[] as &[_], |who| &who.claims.actors);
        if !actors.is_empty() {
            list(line.key("actors"), actors.iter().map(ToString::to_string));
        }
        let mut foreign = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                write_ascii(line.key(key), clipped(value));
            }
        };
        foreign("server", self.server.as_deref());
        if let Some((kind, name)) = self.item.as_ref().filter(|(kind, _)| *kind != Kind::Method) {
            foreign(kind.as_str(), Some(name));
        }
        foreign("argumentDigest", self.argument_digest.as_deref());
        foreign("trace", self.trace.as_deref());
        if let Verdict::Decided(decision) = &self.verdict {
            decided(line, decision);
        }
        line.text("policy", policy);
    }

    /// The code of the denial, when there is one.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match &self.verdict {
            Verdict::Decided(decision) => match &decision.effect {
                Effect::Deny(denial) => Some(denial.reason.code()),
                Effect::Allow(_) => None,
            },
            Verdict::None => None,
        }
    }
}

fn decided(line: &mut Object<'_>, decision: &Decision) {
    let (word, rule) = match &decision.effect {
        Effect::Allow(rule) => ("allow", Some(rule)),
        Effect::Deny(denial) => ("deny", denial.reason.rule()),
    };
    line.text("decision", word);
    if let Some(rule) = rule {
        line.text("rule", rule.as_str());
    }
    if let Some(definition) = decision.definition {
        line.text("definition", &definition.to_string());
    }
    if !decision.shadow.is_empty() {
        let shadow = decision.shadow.iter().map(ToString::to_string);
        list(line.key("shadow"), shadow);
    }
    if !decision.findings.is_empty() {
        list(line.key("findings"), decision.findings.iter().map(ToString::to_string));
    }
}

fn list(out: &mut Vec<u8>, items: impl Iterator<Item = String>) {
    out.push(b'[');
    for (n, item) in items.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write_ascii(out, clipped(&item));
    }
    out.push(b']');
}

fn number(line: &mut Object<'_>, key: &str, value: u64) {
    line.raw(key, itoa::Buffer::new().format(value));
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn clipped(text: &str) -> &str {
    let end = text.floor_char_boundary(FOREIGN);
    text.get(..end).unwrap_or_default()
}

/// The line of something that happened to the journal itself.
pub(super) fn event(
    event: &str,
    id: &RecordId,
    time: SystemTime,
    policy: &str,
    what: Option<&str>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut line = Object::open(&mut out);
    line.text("schema", SCHEMA);
    line.text("event", event);
    line.text("id", &id.to_string());
    line.text("time", &humantime::format_rfc3339_micros(time).to_string());
    line.text("version", env!("CARGO_PKG_VERSION"));
    line.text("policy", policy);
    if let Some(what) = what {
        write_ascii(line.key("what"), what);
    }
    line.close();
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::RecordId;
    use std::time::{Duration, UNIX_EPOCH};

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
}
