//! Tool results that are too long for a response. The response links to a resource of the gateway, which the same
//! caller can read as long as the policy would still allow the call.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use json::{Document, Fragment, JsonBounds, Value, write_string};
use policy::definition::offer::ItemKind;
use policy::engine::message::ItemRequest;
use policy::engine::pipeline::{Facts, Policy, Shown};
use policy::flow::planner::Planner;
use policy::rules::decision::{Decision, Denial, Effect, Reason};
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;

use super::guardrails::GuardrailSubject;
use super::in_flight_call::InFlightCall;
use super::shown_values::ShownResult;
use super::{DecodedRequest, Gateway};
use crate::audit::{ReadEntry, Record, RecordedDecision};
use crate::config::call_budget::BudgetedCall;
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::protocol::Era;
use crate::mcp::wire::{self, Id, Object};
use crate::metrics::outcome::ExchangeEnd;
use crate::outbound::guardrail::GuardedPart;
use crate::session::result_store::{SCHEME, StoredResult, name_in};
use crate::stream::body::Body;

/// Where results are kept for the untrusted planner. No route has this identity: those begin with a path.
const READERS: &str = "untrusted planner";

/// Where a result is kept, as its caller is told.
#[derive(Clone, Copy)]
struct KeptLink<'a> {
    /// What the caller is told.
    said: &'a str,
    /// The resource under which it is kept.
    uri: &'a str,
    /// Whether the response says that the call has failed.
    failed: bool,
    /// The length of the result in bytes, if the caller may know it.
    length: Option<usize>,
}

impl InFlightCall {
    /// Stores a result that is too long, and returns the response with a link to it; `None` if there is no room.
    pub(super) fn kept(&self, result: &Shown) -> Option<Body> {
        let (call, gateway) = (&self.call, &self.call.gateway);
        let length = result.value().raw().len();
        // A client that validates results against an output schema does not apply it to errors.
        let value = result.value();
        let failed = value.get("isError").is_some_and(Value::may_be_true);
        let failed = failed || value.get("structuredContent").is_some();
        let uri = self.stored(result, call.route.identity())?;
        let minutes = gateway.result_store.time().as_secs().div_ceil(60);
        let said = format!(
            "The result is {length} bytes long, more than answers may be. For {minutes} minutes you can \
             read it as the resource {uri}"
        );
        Some(self.linking(&KeptLink { said: &said, uri: &uri, failed, length: Some(length) }))
    }

    /// Stores a result for the untrusted planner, and returns the response with a link to it for the trusted one; `None`
    /// if there is no room. Nothing of the response depends on the text of the result.
    pub(super) fn kept_for_reader(&self, result: &Shown) -> Option<Body> {
        let value = result.value();
        // A client that validates results against an output schema does not apply it to errors.
        let failed = value.get("isError").is_some_and(Value::may_be_true);
        let failed = failed || value.get("structuredContent").is_some();
        let uri = self.stored(result, READERS)?;
        let said = format!(
            "The result is kept as `{uri}`; its source is untrusted: the untrusted planner can read it there, and pass values \
             of it through the channel"
        );
        Some(self.linking(&KeptLink { said: &said, uri: &uri, failed, length: None }))
    }

    /// Stores a result for the caller at `place`, and returns its URI; `None` if there is no room.
    fn stored(&self, result: &Shown, place: &str) -> Option<String> {
        let (call, gateway) = (&self.call, &self.call.gateway);
        let (made, held) = apart(call.answer.call())?;
        let kept = StoredResult {
            result: result.stored(),
            call: made,
            held,
            content_digest: gateway.content_digest,
            caller: Arc::clone(&call.caller),
        };
        gateway.result_store.keep(&call.caller, place, kept, gateway.clock.instant())
    }

    /// A response that says where a result is kept.
    fn linking(&self, link: &KeptLink<'_>) -> Body {
        let KeptLink { said, uri, failed, length } = *link;
        let (id, era, call) = (&self.frame.id, self.era(), &self.call);
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
        write_string(content, said);
        content.push(b'}');
        // SPEC 2025-06-18 changelog: earlier revisions have no resource links.
        if self.frame.version.has_links() {
            content.extend_from_slice(br#",{"type":"resource_link","uri":"#);
            write_string(content, uri);
            content.extend_from_slice(br#","name":"#);
            write_string(content, &format!("result of {}", call.tool));
            if let Some(length) = length {
                content.extend_from_slice(format!(",\"size\":{length}").as_bytes());
            }
            content.push(b'}');
        }
        content.push(b']');
        object.close();
        out.push(b'}');
        out.into()
    }
}

impl Gateway {
    /// Whether a URI is in the scheme of kept results, regardless of who may read it.
    pub(super) fn is_kept(uri: &str) -> bool {
        // A non-canonical spelling of the scheme is refused like any other non-canonical URI.
        name_in(uri).is_some() || uri.starts_with(SCHEME)
    }

    /// Reads a kept result. The policy decides as it would decide about the original call now, with the current rules,
    /// pins and revocations. Nothing is sent to a server.
    pub(super) async fn read_kept(
        &self,
        arrived: &DecodedRequest,
        uri: &str,
        mut record: Box<Record>,
    ) -> Response<Body> {
        let principal = &arrived.caller.principal;
        record.item = Some((ItemKind::Resource, uri.into()));
        let route = arrived.route.identity();
        let now = self.clock.instant();
        let find = |place: &str| self.result_store.find(principal, place, uri, now);
        let reads_kept = arrived.route.planner == Some(Planner::Untrusted);
        // A token of the same principal with other groups may not see what the first one saw.
        let own = find(route).filter(|kept| kept.caller.is_selected_like(principal));
        let kept = own.or_else(|| find(READERS).filter(|_| reads_kept));
        // A result inspected under other settings may contain what the current ones would withhold.
        let kept = kept.filter(|kept| kept.content_digest == self.content_digest);
        // INVARIANT: kept results have been parsed before.
        let read = |kept: StoredResult| {
            let result = kept.result.read()?;
            Some((kept, result))
        };
        let Some((kept, result)) = kept.and_then(read) else {
            let (decision, denial) = Policy::unknown(ItemKind::Resource);
            record.decision = RecordedDecision::Decided(Box::new(decision));
            return self.refuse(&record, &Failure::Denied(ItemKind::Resource, denial));
        };
        record.server = Some(kept.call.server.as_str().into());
        let flow = self.flow_of(arrived, &record);
        let (server, tool) = (kept.call.server.clone(), kept.call.name.clone());
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        if let Err(failure) = self.still_allowed(arrived, kept.call, &mut entry).await {
            return self.failed(entry, &failure, Some(&id));
        }
        // A reading that a budget refuses asks no guardrail, like a call.
        if let Err(failure) = self.kept_budgeted(principal, &server, &tool, &result, &mut entry) {
            return self.failed(entry, &failure, Some(&id));
        }
        if let Err(failure) = self.kept_guarded(arrived, &server, &tool, &result, &mut entry).await
        {
            return self.failed(entry, &failure, Some(&id));
        }
        // The reader's flow may be another than that of the call.
        if let Some(flow) = flow {
            let said = &result;
            let result = ShownResult { server: &server, kind: ItemKind::Tool, name: &tool, said };
            self.remember_shown(&flow, principal, result).await;
        }
        let body = contents(&id, arrived.inbound.version.era(), uri, &result);
        self.shown(entry, ExchangeEnd::answered(), Some(&id), encode::json(body))
    }

    /// Takes the bytes of a kept result from the budgets that count the call of its tool.
    fn kept_budgeted(
        &self,
        principal: &Principal,
        server: &ServerName,
        name: &str,
        result: &Shown,
        record: &mut ReadEntry,
    ) -> Result<(), Failure> {
        if self.budgets.is_empty() {
            return Ok(());
        }
        let (kind, bytes) = (ItemKind::Tool, result.value().raw().len() as u64);
        let server = Some(server);
        let read = BudgetedCall { principal, server, kind, name, calls: 0, bytes, cost: 0 };
        self.take_budgets(&read, record).map(drop)
    }

    /// Asks the guardrails of the route on which a kept result is read: the call may have been made on another one, or
    /// before the route had them.
    async fn kept_guarded(
        &self,
        arrived: &DecodedRequest,
        server: &ServerName,
        name: &str,
        result: &Shown,
        record: &mut ReadEntry,
    ) -> Result<(), Failure> {
        let mut servers = arrived.route.servers.iter();
        let server = servers.find(|one| one.name() == server).ok_or(Failure::Unanswered)?;
        let (part, value) = (GuardedPart::Result, result.value());
        let about = GuardrailSubject { server, name, part, value, beside: "" };
        let guarded = self.guarded(&arrived.route, &arrived.caller.principal, about).await;
        let (passed, found) = match guarded {
            Ok((_, found)) => (Ok(()), found),
            Err((finding, found)) => (Err(Failure::Withheld(finding)), found),
        };
        record.found(found);
        passed
    }

    /// Whether the original call would be allowed now. Otherwise the resource is reported as unknown.
    async fn still_allowed(
        &self,
        arrived: &DecodedRequest,
        call: ItemRequest,
        record: &mut ReadEntry,
    ) -> Result<(), Failure> {
        let principal = &arrived.caller.principal;
        let mut servers = arrived.route.servers.iter().enumerate();
        let found = servers.find(|(_, server)| *server.name() == call.server);
        let (decision, allowed) = match found {
            None => (Policy::unknown(ItemKind::Resource).0, false),
            Some(_) if arrived.facts.has_revoked_use(principal, &call.server, &call.name) => {
                (Policy::unknown(ItemKind::Resource).0, false)
            }
            Some((server_index, server)) => {
                let (asked, facts) = (self.clock.instant(), &arrived.facts);
                let ruling = self.policy.admit_list(facts, principal, &call.server, ItemKind::Tool);
                let Ok(permit) = ruling.outcome else {
                    return Err(Self::gone(record, ruling.decision));
                };
                let listing =
                    server.catalog(permit, record, &arrived.on_behalf(server_index)).await;
                record.wait_before_send += self.since(asked);
                if listing.as_ref().is_err_and(|error| self.is_identity_mismatch(server, error)) {
                    (Policy::of_stranger().0, false)
                } else {
                    let listing = listing.map_err(Failure::Upstream)?;
                    let catalog = Arc::clone(listing.catalog());
                    let bytes = self.to_inspect(&call, catalog.offer(&call.name));
                    let ask = move |policy: &Policy,
                                    facts: &Facts,
                                    caller: &Arc<Principal>,
                                    budget: &WorkBudget| {
                        policy.may_use(facts, caller, Some(&*catalog), call, budget)
                    };
                    let standing = self.inspect(principal, bytes, ask).await;
                    let standing = standing.map_err(|_refused| Failure::Overload)?;
                    match standing.into_parts() {
                        (decision, None) => (decision, true),
                        // A person approved the call that produced the result, and nothing is sent again.
                        (decision, Some(Denial { reason: Reason::Approval(demand), .. })) => {
                            let effect = Effect::Allow(demand.rule);
                            (Decision { effect, ..decision }, true)
                        }
                        (decision, Some(_)) => (decision, false),
                    }
                }
            }
        };
        if !allowed {
            return Err(Self::gone(record, decision));
        }
        record.decision = RecordedDecision::Decided(Box::new(decision));
        Ok(())
    }

    /// The failure for a kept result whose call would not be allowed now: it is reported as unknown.
    fn gone(record: &mut ReadEntry, decision: Decision) -> Failure {
        record.decision = RecordedDecision::Decided(Box::new(decision));
        let (_, denial) = Policy::unknown(ItemKind::Resource);
        Failure::Denied(ItemKind::Resource, denial)
    }
}

/// A copy of a call that does not share memory with the request body, and its size in bytes.
fn apart(call: &ItemRequest) -> Option<(ItemRequest, usize)> {
    let mut held = 0;
    let mut copy = |part: &Fragment| {
        let text = Bytes::copy_from_slice(part.value().raw().as_bytes());
        held += text.len();
        let document = Document::parse(text, &JsonBounds::MESSAGE).ok()?;
        Some(Fragment::whole(Arc::new(document)))
    };
    let arguments = match &call.arguments {
        Some(arguments) => Some(copy(arguments)?),
        None => None,
    };
    let mut members = |parts: &[(Box<str>, Fragment)]| -> Option<Vec<_>> {
        parts.iter().map(|(name, part)| Some((name.clone(), copy(part)?))).collect()
    };
    let (extra, meta) = (members(&call.extra)?, members(&call.meta)?);
    let (server, name) = (call.server.clone(), call.name.clone());
    Some((ItemRequest { server, verb: call.verb, name, arguments, extra, meta }, held))
}

/// Encodes a tool result as resource contents: one part per content block, and one for structured content.
fn contents(id: &Id, era: Era, uri: &str, result: &Shown) -> Body {
    let result = result.value();
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
