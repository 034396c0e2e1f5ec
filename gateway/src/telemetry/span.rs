//! The attributes of an exchange's spans, named by the OpenTelemetry semantic conventions for MCP and GenAI.
//!
//! <https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/> (in development). Arguments, results and credentials
//! must never become attributes.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use policy::definition::offer::ItemKind;

use crate::audit::{Record, RecordId, written};
use crate::mcp::protocol::{Era, ProtocolVersion, method};
use crate::mcp::trace_context::Trace;
use crate::mcp::wire::Id;
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome};

/// An exchange that ended, with what its spans report.
#[derive(Debug)]
pub(super) struct ExchangeSpan {
    pub(super) trace: Trace,
    pub(super) start: SystemTime,
    pub(super) took: Duration,
    /// When the request to the upstream server was sent, from the start of the exchange, and how long it took.
    pub(super) upstream: Option<(Duration, Duration)>,
    pub(super) ending: ExchangeEnd,
    method: &'static str,
    item: Option<(ItemKind, Box<str>)>,
    /// Whether the definition of the item is known, which bounds the number of span names.
    known: bool,
    version: Option<ProtocolVersion>,
    rpc_id: Option<Id>,
    server: Option<Box<str>>,
    route: Option<Arc<str>>,
    peer: SocketAddr,
    reason: Option<&'static str>,
    record: RecordId,
    rule: Option<Box<str>>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttributeValue<'a> {
    Text(Cow<'a, str>),
    Number(i64),
}

pub(super) type Attributes<'a> = Vec<(&'static str, AttributeValue<'a>)>;

impl ExchangeSpan {
    pub(super) fn new(record: &Record, ending: ExchangeEnd, now: Instant) -> Self {
        let decision = record.decision();
        let sent = record.sent.map(|sent| sent.saturating_duration_since(record.started));
        Self {
            trace: record.trace.clone(),
            start: record.time,
            took: now.saturating_duration_since(record.started),
            upstream: sent.map(|sent| (sent, record.upstream)),
            ending,
            method: record.method.as_deref().map_or("HTTP", method::clamped),
            item: record.item.as_ref().map(|(kind, name)| (*kind, record.shown(name).into())),
            known: decision.is_some_and(|decision| decision.definition.is_some()),
            version: record.version,
            rpc_id: record.rpc_id.as_ref().map(|id| record.shown_id(id)),
            server: record.server.clone(),
            route: record.route.clone(),
            peer: record.peer,
            reason: ending.reason.or_else(|| record.reason()),
            record: record.id,
            rule: record.rule().map(Into::into),
        }
    }

    /// The span name: the method, followed by the tool or prompt if its definition is known, as in `tools/call
    /// add`.
    pub(super) fn name(&self) -> String {
        match &self.item {
            Some((ItemKind::Tool | ItemKind::Prompt, name)) if self.known => {
                format!("{} {}", self.method, written(name))
            }
            Some(_) | None => self.method.to_owned(),
        }
    }

    /// Whether the error is one of the gateway or the upstream server, and not of the caller.
    pub(super) fn failed(&self) -> bool {
        matches!(
            self.ending.outcome,
            ExchangeOutcome::ToolError | ExchangeOutcome::ServerError | ExchangeOutcome::Failed
        )
    }

    fn error(&self) -> Option<&'static str> {
        self.ending.error_type(self.reason)
    }

    /// The attributes of both spans.
    fn common(&self) -> Attributes<'_> {
        let mut found: Attributes<'_> = vec![("mcp.method.name", text(self.method))];
        match &self.item {
            Some((ItemKind::Tool, name)) => {
                found.push(("gen_ai.tool.name", text(written(name))));
                if self.method == method::TOOLS_CALL {
                    found.push(("gen_ai.operation.name", text("execute_tool")));
                }
            }
            Some((ItemKind::Prompt, name)) => {
                found.push(("gen_ai.prompt.name", text(written(name))))
            }
            Some((ItemKind::Resource | ItemKind::Template, uri)) => {
                found.push(("mcp.resource.uri", text(written(uri))));
            }
            Some((ItemKind::Method, _)) | None => {}
        }
        if let Some(server) = &self.server {
            found.push(("portcullis.server", text(&**server)));
        }
        if let Some(version) = self.version {
            found.push(("mcp.protocol.version", text(version.as_str())));
        }
        if let Some(error) = self.error() {
            found.push(("error.type", text(error)));
        }
        if let Some(code) = self.ending.code {
            found.push(("rpc.response.status_code", text(code.to_string())));
        }
        found
    }

    /// The attributes of the server span, which describes the exchange with the client.
    pub(super) fn server_side(&self) -> Attributes<'_> {
        let mut found = self.common();
        if let Some(id) = &self.rpc_id {
            let id = match id {
                Id::Number(id) => text(id.to_string()),
                Id::Text(id) => text(written(id)),
            };
            found.push(("jsonrpc.request.id", id));
        }
        found.push(("client.address", text(self.peer.ip().to_string())));
        found.push(("client.port", AttributeValue::Number(self.peer.port().into())));
        found.push(("network.transport", text("tcp")));
        found.push(("portcullis.record.id", text(self.record.to_string())));
        found.push(("portcullis.outcome", text(self.ending.outcome.as_str())));
        if let Some(route) = &self.route {
            found.push(("http.route", text(&**route)));
        }
        if let Some(rule) = &self.rule {
            found.push(("portcullis.rule", text(&**rule)));
        }
        if let Some(era) = self.version.map(ProtocolVersion::era) {
            found.push(("portcullis.era", text(Era::as_str(era))));
        }
        found
    }

    /// The attributes of the client span, which describes the call to the upstream server.
    pub(super) fn client_side(&self) -> Attributes<'_> {
        self.common()
    }
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> AttributeValue<'a> {
    AttributeValue::Text(text.into())
}
