//! The spans of an exchange, as the OpenTelemetry SDK has them, with attributes named by the OpenTelemetry semantic
//! conventions for MCP and GenAI.
//!
//! <https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/> (in development). Arguments, results and credentials
//! must never become attributes.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use policy::definition::offer::ItemKind;

use crate::audit::{Record, RecordId, written};
use crate::mcp::protocol::{Era, ProtocolVersion, method};
use crate::mcp::trace_context::{ParentSpan, Trace};
use crate::mcp::wire::Id;
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome};

/// An exchange that ended, with what its spans report. It is made on the path of a request; the spans are made from it
/// on the export thread.
#[derive(Debug)]
pub(super) struct ExchangeSpan {
    trace: Trace,
    start: SystemTime,
    took: Duration,
    /// When the request to the upstream server was sent, from the start of the exchange, and how long it took.
    upstream: Option<(Duration, Duration)>,
    ending: ExchangeEnd,
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

impl ExchangeSpan {
    pub(super) fn new(record: &Record, ending: ExchangeEnd, now: Instant) -> Self {
        let decision = record.decision();
        let sent = record.sent_at.map(|sent| sent.saturating_duration_since(record.started));
        Self {
            trace: record.trace.clone(),
            start: record.time,
            took: now.saturating_duration_since(record.started),
            upstream: sent.map(|sent| (sent, record.upstream_duration)),
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

    /// The server span of the exchange, and the client span of its upstream call if there was one.
    pub(super) fn spans(&self, scope: &InstrumentationScope) -> impl Iterator<Item = SpanData> {
        let trace = &self.trace;
        let parent = trace.parent.as_ref();
        let end = self.start + self.took;
        let mut links = SpanLinks::default();
        links.links = trace.link.iter().map(link).collect();
        let context = |span: u64| {
            let state = parent.and_then(|parent| parent.state.as_deref()).unwrap_or_default();
            let (trace, span) = (TraceId::from(trace.id), SpanId::from(span));
            SpanContext::new(trace, span, TraceFlags::SAMPLED, false, state_of(state))
        };
        let server = SpanData {
            span_context: context(trace.span),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span)),
            parent_span_is_remote: parent.is_some(),
            span_kind: SpanKind::Server,
            name: self.name(),
            start_time: self.start,
            end_time: end,
            attributes: self.server_side(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: self.status(),
            instrumentation_scope: scope.clone(),
        };
        let client = self.upstream.map(|(sent, took)| SpanData {
            span_context: context(trace.upstream()),
            parent_span_id: SpanId::from(trace.span),
            parent_span_is_remote: false,
            span_kind: SpanKind::Client,
            name: self.name(),
            start_time: self.start + sent,
            end_time: (self.start + sent + took).min(end),
            attributes: self.client_side(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: self.status(),
            instrumentation_scope: scope.clone(),
        });
        std::iter::once(server).chain(client)
    }

    /// The span name: the method, followed by the tool or prompt if its definition is known, as in `tools/call
    /// add`.
    fn name(&self) -> Cow<'static, str> {
        match &self.item {
            Some((ItemKind::Tool | ItemKind::Prompt, name)) if self.known => {
                format!("{} {}", self.method, written(name)).into()
            }
            Some(_) | None => self.method.into(),
        }
    }

    /// An error is one of the gateway, the upstream server or the tool, and not of the caller.
    fn status(&self) -> Status {
        match self.ending.outcome {
            ExchangeOutcome::ToolError | ExchangeOutcome::ServerError | ExchangeOutcome::Failed => {
                Status::error("")
            }
            ExchangeOutcome::Answered
            | ExchangeOutcome::Denied
            | ExchangeOutcome::Refused
            | ExchangeOutcome::Cancelled => Status::Unset,
        }
    }

    fn error(&self) -> Option<&'static str> {
        self.ending.error_type(self.reason)
    }

    /// The attributes of both spans.
    fn common(&self) -> Vec<KeyValue> {
        let mut found = vec![KeyValue::new("mcp.method.name", self.method)];
        match &self.item {
            Some((ItemKind::Tool, name)) => {
                found.push(text("gen_ai.tool.name", written(name)));
                if self.method == method::TOOLS_CALL {
                    found.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
                }
            }
            Some((ItemKind::Prompt, name)) => {
                found.push(text("gen_ai.prompt.name", written(name)));
            }
            Some((ItemKind::Resource | ItemKind::Template | ItemKind::Skill, uri)) => {
                found.push(text("mcp.resource.uri", written(uri)));
            }
            Some((ItemKind::Method, _)) | None => {}
        }
        if let Some(server) = &self.server {
            found.push(text("portcullis.server", &**server));
        }
        if let Some(version) = self.version {
            found.push(KeyValue::new("mcp.protocol.version", version.as_str()));
        }
        if let Some(error) = self.error() {
            found.push(KeyValue::new("error.type", error));
        }
        if let Some(code) = self.ending.code {
            found.push(text("rpc.response.status_code", code.to_string()));
        }
        found
    }

    /// The attributes of the server span, which describes the exchange with the client.
    fn server_side(&self) -> Vec<KeyValue> {
        let mut found = self.common();
        if let Some(id) = &self.rpc_id {
            let id = match id {
                Id::Number(id) => id.to_string().into(),
                Id::Text(id) => written(id),
            };
            found.push(text("jsonrpc.request.id", id));
        }
        found.push(text("client.address", self.peer.ip().to_string()));
        found.push(KeyValue::new("client.port", i64::from(self.peer.port())));
        found.push(KeyValue::new("network.transport", "tcp"));
        found.push(text("portcullis.record.id", self.record.to_string()));
        found.push(KeyValue::new("portcullis.outcome", self.ending.outcome.as_str()));
        if let Some(route) = &self.route {
            found.push(KeyValue::new("http.route", Value::String(Arc::clone(route).into())));
        }
        if let Some(rule) = &self.rule {
            found.push(text("portcullis.rule", &**rule));
        }
        if let Some(era) = self.version.map(ProtocolVersion::era) {
            found.push(KeyValue::new("portcullis.era", Era::as_str(era)));
        }
        found
    }

    /// The attributes of the client span, which describes the call to the upstream server.
    fn client_side(&self) -> Vec<KeyValue> {
        self.common()
    }
}

fn text<'a>(key: &'static str, text: impl Into<Cow<'a, str>>) -> KeyValue {
    KeyValue::new(key, text.into().into_owned())
}

fn link(to: &ParentSpan) -> Link {
    let (trace, span) = (TraceId::from(to.trace), SpanId::from(to.span));
    let flags = if to.sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
    Link::new(context, Vec::new(), 0)
}

/// The vendors' data of a parent, which was checked when it was read.
fn state_of(text: &str) -> TraceState {
    match text {
        "" => TraceState::NONE,
        text => text.parse().unwrap_or(TraceState::NONE),
    }
}
