//! Results that are too long for an answer: the answer says where they can be read, and they are read
//! there, by the caller who got them.

use bytes::Bytes;
use http::Response;
use policy::decision::{Decision, Effect};
use policy::json::{Bounds, Document, Fragment, Value, write_string};
use policy::name::RuleId;
use policy::offer::Kind;
use policy::pipeline::Policy;

use super::underway::Underway;
use super::{Arrived, Gateway};
use crate::audit::{Record, Verdict};
use crate::body::Body;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::kept::{Kept, SCHEME};
use crate::protocol::{Era, Version};
use crate::reply;
use crate::wire::{self, Id, Object};

impl Underway {
    /// Keeps a result that is too long: the answer that says where it can be read.
    pub(super) fn kept(&self, result: &Fragment, rule: RuleId) -> Option<Body> {
        let (call, gateway) = (&self.call, &self.call.gateway);
        let length = result.value().raw().len();
        // A client that holds results to a schema does not hold errors to it.
        let value = result.value();
        let failed = value.get("isError").and_then(Value::as_bool) == Some(true);
        let failed = failed || value.get("structuredContent").is_some();
        let kept = Kept {
            result: Bytes::copy_from_slice(value.raw().as_bytes()),
            tool: call.tool.clone(),
            server: call.server.name().clone(),
            rule,
        };
        let (route, now) = (call.route.identity(), gateway.clock.instant());
        let uri = gateway.results.keep(&call.caller, &route, kept, now)?;
        let minutes = gateway.results.time().as_secs().div_ceil(60);
        let said = format!(
            "The result is {length} bytes long, more than answers may be. For {minutes} minutes you can \
             read it as the resource {uri}"
        );
        let (id, era) = (&self.frame.id, self.era());
        let mut out = wire::head(Some(id), 512);
        out.extend_from_slice(br#""result":"#);
        let mut object = Object::open(&mut out);
        if era == Era::Modern {
            object.text("resultType", "complete");
        }
        if failed {
            object.raw("isError", "true");
        }
        let content = object.key("content");
        content.extend_from_slice(br#"[{"type":"text","text":"#);
        write_string(content, &said);
        content.push(b'}');
        // SPEC 2025-06-18 changelog: there were no links to resources before.
        if self.frame.version.has_links() {
            content.extend_from_slice(br#",{"type":"resource_link","uri":"#);
            write_string(content, &uri);
            content.extend_from_slice(br#","name":"#);
            write_string(content, &format!("result of {}", call.tool));
            content.extend_from_slice(format!(",\"size\":{length}}}").as_bytes());
        }
        content.push(b']');
        object.close();
        out.push(b'}');
        Some(out.into())
    }
}

impl Gateway {
    /// Whether this is the URI of a result that is kept here, whoever may read it.
    pub(super) fn is_kept(uri: &str) -> bool {
        uri.starts_with(SCHEME)
    }

    /// Reads a result that is kept.
    pub(super) fn read_kept(
        &self,
        arrived: &Arrived,
        uri: &str,
        mut record: Box<Record>,
    ) -> Response<Body> {
        let principal = &arrived.caller.principal;
        record.item = Some((Kind::Resource, uri.into()));
        let route = arrived.route.identity();
        let kept = self.results.find(principal, &route, uri, self.clock.instant());
        let gone = |kept: &Kept| self.policy.has_revoked_use(principal, &kept.server, &kept.tool);
        // INVARIANT: what is kept was read before.
        let read = |kept: Kept| {
            let document = Document::parse(kept.result.clone(), &Bounds::ANSWER).ok()?;
            Some((kept, document))
        };
        let Some((kept, result)) = kept.filter(|kept| !gone(kept)).and_then(read) else {
            let (decision, denial) = Policy::unknown(Kind::Resource);
            record.verdict = Verdict::Decided(Box::new(decision));
            return self.refuse(&record, &Failure::Denied(Kind::Resource, denial));
        };
        record.server = Some(kept.server.as_str().into());
        let effect = Effect::Allow(kept.rule.clone());
        let decision = Decision::of(effect);
        record.verdict = Verdict::Decided(Box::new(decision));
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        let version = record.version;
        let entry = match self.journal.open_read(record) {
            Ok(entry) => entry,
            Err(error) => {
                let era = version.map(Version::era);
                return reply::error(&Failure::Audit(error).public(era), Some(&id));
            }
        };
        let body = contents(&id, arrived.inbound.version.era(), uri, result.root());
        self.shown(entry, Ending::answered(), Some(&id), reply::json(body))
    }
}

/// A result as what a resource holds: one part for each block, and one for what is structured.
fn contents(id: &Id, era: Era, uri: &str, result: Value<'_>) -> Body {
    let mut out = wire::head(Some(id), result.raw().len() + 256);
    out.extend_from_slice(br#""result":"#);
    let mut object = Object::open(&mut out);
    if era == Era::Modern {
        object.text("resultType", "complete");
        object.raw("ttlMs", "0");
        object.text("cacheScope", "private");
    }
    let list = object.key("contents");
    list.push(b'[');
    let mut first = true;
    let mut part = |kind: &str, member: &str, raw: &str| {
        if !std::mem::take(&mut first) {
            list.push(b',');
        }
        let mut part = Object::open(list);
        part.text("uri", uri);
        part.text("mimeType", kind);
        part.raw(member, raw);
        part.close();
    };
    let quoted = |text: &str| {
        let mut out = Vec::new();
        write_string(&mut out, text);
        String::from_utf8(out).unwrap_or_default()
    };
    for block in result.get("content").into_iter().flat_map(Value::items) {
        let holder = block.get("resource").unwrap_or(block);
        let declared = holder.get("mimeType").and_then(Value::as_str);
        let text = holder.get("text").filter(|text| text.as_str().is_some());
        let data = holder.get("blob").or_else(|| holder.get("data"));
        match (text, data.filter(|data| data.as_str().is_some())) {
            (Some(text), _) => {
                part(declared.as_deref().unwrap_or("text/plain"), "text", text.raw());
            }
            (None, Some(data)) => {
                part(declared.as_deref().unwrap_or("application/octet-stream"), "blob", data.raw());
            }
            (None, None) => part("application/json", "text", &quoted(block.raw())),
        }
    }
    if let Some(structured) = result.get("structuredContent") {
        part("application/json", "text", &quoted(structured.raw()));
    }
    list.push(b']');
    object.close();
    out.push(b'}');
    out.into()
}
