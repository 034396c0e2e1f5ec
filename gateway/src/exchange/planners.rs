//! What of the servers the trusted planner is not shown, and what lists of planners leave out (control C15).
//!
//! Everything that a server says by itself, and what the gateway cannot attribute to a trusted tool, counts as untrusted.

use std::collections::BTreeSet;
use std::sync::Arc;

use detection::inspect::Finding;
use json::Value;
use policy::definition::lock::ApprovalState;
use policy::definition::offer::{Catalog, ItemKind};
use policy::definition::shadow::looks;
use policy::engine::message::RequestOperation;
use policy::engine::pipeline::{Facts, Shown, VisibleReply};
use policy::flow::guard::FlowClause;
use policy::flow::planner::WITHHELD;
use policy_core::subject::name::ServerName;

use super::in_flight_call::{InFlightCall, UpstreamCall};
use super::{DecodedRequest, Gateway, Route};
use crate::audit::WithheldItem;
use crate::edge::failure::Failure;
use crate::mcp::discovery_tools::DiscoveryTool;
use crate::metrics::outcome::ExchangeEnd;
use crate::stream::body::Body;

/// The code of a tool that is left out because it has the name of a tool of the gateway.
const RESERVED_NAME: &str = "discovery-name";

impl Gateway {
    /// Whether what a server says beside the answer to a call is not shown on a route.
    pub(super) fn is_withheld(
        &self,
        route: &Route,
        server: &ServerName,
        method: &str,
        said: Option<Value<'_>>,
    ) -> bool {
        self.policy.flow().withholds(route.planner, server, ItemKind::Method, method, said)
    }

    /// The names of a server's items that a route does not list, because its planner may not use them, or because they would
    /// have the name of a tool of discovery; `None` on a route without either.
    pub(super) fn left_out(
        &self,
        route: &Route,
        catalog: &Catalog,
    ) -> Option<Arc<BTreeSet<Box<str>>>> {
        if route.planner.is_none() && route.discovery.is_none() {
            return None;
        }
        let names = catalog.offers().iter().map(|offer| offer.name().as_str());
        let (server, kind, facts) = (catalog.server(), catalog.kind(), self.policy.facts());
        let refuses = |name: &&str| {
            let flow = self.policy.flow();
            let is_shown = || {
                !flow.withholds(route.planner, server, kind, name, None)
                    || is_reviewed(&facts, server, kind, name)
            };
            flow.refuses(route.planner, server, kind, name).is_some()
                || !is_shown()
                || route.is_reserved(catalog, name)
        };
        Some(Arc::new(names.filter(refuses).map(Into::into).collect()))
    }

    /// An item of a list that the route leaves out, for the record. That a server uses a name of the gateway is logged.
    pub(super) fn left_out_item(
        &self,
        arrived: &DecodedRequest,
        catalog: &Catalog,
        name: &str,
    ) -> WithheldItem {
        let server = catalog.server();
        let is_reserved = arrived.route.is_reserved(catalog, name);
        let upstream = arrived.route.servers.iter().find(|known| known.name() == server);
        let suppressed = upstream.and_then(|upstream| upstream.may_log(self.clock.instant()));
        if let Some(suppressed) = suppressed.filter(|_| is_reserved) {
            tracing::warn!(
                event = "discovery.name_reserved", %server, tool = name, suppressed,
                "a tool is left out: on a route with discovery its name is that of a tool of the gateway"
            );
        }
        let code = if is_reserved { RESERVED_NAME } else { FlowClause::Planner.code() };
        WithheldItem { server: server.as_str().into(), name: name.into(), code, detector: None }
    }

    /// The finding about what the trusted planner is not shown. It is counted.
    pub(super) fn not_for_planner(&self) -> Finding {
        let finding = Finding::flow("", WITHHELD);
        self.metrics.content([&finding]);
        finding
    }
}

/// Whether a person has approved the definition of an item. A resource that was made at run time has one that nobody has
/// reviewed, so that it is shown like a result.
pub(super) fn is_reviewed(facts: &Facts, server: &ServerName, kind: ItemKind, name: &str) -> bool {
    let is_made = matches!(kind, ItemKind::Resource);
    let locked = facts.pins().lock.servers.get(server.as_str());
    let mut versions = locked.map(|locked| locked.versions(kind, name)).unwrap_or_default().iter();
    !is_made || versions.any(|version| version.state == ApprovalState::Approved)
}

/// Whether a name is that of a tool of discovery for a reader.
fn looks_like_ours(name: &str) -> bool {
    let mut ours = DiscoveryTool::ALL.into_iter().map(DiscoveryTool::name);
    if !name.is_ascii() {
        let skeleton = looks(name);
        return ours.any(|own| looks(own) == skeleton);
    }
    // Most names are ASCII, and every list compares all of its names.
    let name = name.trim();
    ours.any(|own| own.len() == name.len() && name.bytes().map(folded).eq(own.bytes().map(folded)))
}

/// The ASCII character that stands for those that look like it in a name.
const fn folded(byte: u8) -> u8 {
    match byte.to_ascii_lowercase() {
        b'-' | b'.' | b' ' | b'/' => b'_',
        b'i' | b'1' | b'|' => b'l',
        b'0' => b'o',
        b'5' => b's',
        other => other,
    }
}

impl Route {
    /// Whether a tool of a server would have the name of a tool of the gateway on a route with discovery, or one that looks
    /// like it.
    fn is_reserved(&self, catalog: &Catalog, name: &str) -> bool {
        let (server, kind) = (catalog.server(), catalog.kind());
        if kind != ItemKind::Tool || self.discovery.is_none() {
            return false;
        }
        let shown = self.naming(server, Arc::default()).show(server, kind, name);
        shown.is_some_and(|shown| looks_like_ours(&shown))
    }
}

impl UpstreamCall {
    /// Whether what the server says in answer to the call is not shown on this route: its labels, and those that it says
    /// itself, are not `trusted`.
    pub(super) fn is_withheld(&self, said: Option<Value<'_>>) -> bool {
        let (planner, server, kind) =
            (self.route.planner, self.server.name(), self.answer.verb().kind());
        self.gateway.policy.flow().withholds(planner, server, kind, &self.tool, said)
    }
}

impl InFlightCall {
    /// The answer to the trusted planner in place of one of an untrusted source: a result of a tool is kept for the
    /// untrusted planner, and anything else is withheld.
    pub(super) fn in_place_of(
        &mut self,
        said: Option<&Shown>,
        ending: ExchangeEnd,
    ) -> Result<(Body, ExchangeEnd), Failure> {
        let is_call = self.call.answer.verb() == RequestOperation::Call;
        let content = said.filter(|said| is_call && is_content(said));
        let kept = content.and_then(|said| self.kept_for_reader(said));
        let finding = self.call.gateway.not_for_planner();
        self.frame.entry.found(vec![finding.clone()]);
        match kept {
            Some(body) => Ok((body, ending)),
            None => self.encoded(VisibleReply::Withheld(finding), ending),
        }
    }
}

/// Whether a result is content, and no task or question.
fn is_content(result: &Shown) -> bool {
    let value = result.value();
    let kind = value.get("resultType").and_then(Value::as_str);
    let is_complete = kind.is_none_or(|kind| kind == "complete");
    is_complete && value.get("content").is_some() && value.get("task").is_none()
}

#[cfg(test)]
mod tests {
    use super::looks_like_ours;

    #[test]
    fn only_what_looks_like_a_tool_of_discovery_is_reserved() {
        for name in [
            "find_tools",
            "call_read_tooI",
            "FIND_TOOLS",
            "find-tools",
            "call-read-tool",
            "f1nd_t00ls",
            "describe_tool ",
            "find_t\u{43e}\u{43e}ls",
            "\u{ff46}ind_tools",
        ] {
            assert!(looks_like_ours(name), "{name}");
        }
        for name in
            ["find_tool", "find_toolsets", "files__find_tools", "call_tool", "finden", "\u{43e}"]
        {
            assert!(!looks_like_ours(name), "{name}");
        }
    }
}
