//! Builds the messages that are sent to an upstream server, in the form of the era that the server speaks.

use std::time::Duration;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use json::{Document, Fragment, JsonBounds, write_string};
use policy::definition::mirror::HeaderArgument;
use policy::definition::offer::ItemKind;
use policy::engine::message::{ItemRequest, RequestOperation};
use policy::engine::method::{MethodSpec, NamePlace};
use policy::engine::pipeline::SendableTrace;

use super::UpstreamError;
use super::cleared::InputResponses;
use super::on_behalf_of::{OnBehalfOf, SubjectToken};
use super::reply::ServerReply;
use super::retry::RetryCount;
use crate::base::segments::Segments;
use crate::base::share::{Holder, Share};
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, ProtocolVersion, header, meta, method};
use crate::mcp::wire::{self, Id, Object, headers};
use crate::session::UpstreamSession;

/// A message to an upstream server.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    /// The JSON-RPC id; `None` for a notification or a response.
    pub(super) id: Option<i64>,
    /// The MCP method of the message.
    pub(super) method: Cow<'a, str>,
    /// The name or URI of the call, mirrored in a header for modern servers.
    pub(super) name: Option<&'a str>,
    /// Arguments that are mirrored in headers for modern servers.
    pub(super) mirrored: Vec<(HeaderName, HeaderValue)>,
    /// The protocol revision of the message.
    pub(super) version: ProtocolVersion,
    /// The id of the session it belongs to.
    pub(super) session: Option<&'a str>,
    /// The messages before the response that its client accepts.
    pub(super) takes: AcceptedMessages,
    /// The access token of the caller.
    pub(super) subject: Option<&'a Arc<SubjectToken>>,
    /// The id of the caller that waits for the answer; `None` if the gateway itself does.
    pub(super) caller: Option<&'a str>,
    /// The value of the `traceparent` header.
    pub(super) trace: Option<HeaderValue>,
    /// The value of the `Via` header, if it is not that of the gateway itself.
    pub(super) path: Option<&'a HeaderValue>,
    /// The part of the caller's share of request bytes that it takes until it is sent.
    pub(super) share: Option<Arc<Share<Holder>>>,
    /// The serialized JSON-RPC message.
    pub(super) body: Segments,
}

/// The messages before the response that the client of a request accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AcceptedMessages {
    /// It accepts elicitation, sampling and roots requests.
    pub(super) questions: bool,
    /// It wants progress notifications.
    pub(super) progress: bool,
}

/// The sender of a message: client, session and caller. The session determines the era.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestContext<'a> {
    /// The name and capabilities of the client. A legacy server knows them already.
    pub(super) client: &'a Client,
    /// The session; `None` for a modern server, where each message is self-contained.
    pub(super) upstream_session: Option<&'a UpstreamSession>,
    /// The access token of the caller.
    pub(super) subject: Option<&'a Arc<SubjectToken>>,
    /// The id of the caller.
    pub(super) caller: Option<&'a str>,
    /// The gateways that the caller's request has passed.
    pub(super) path: Option<&'a HeaderValue>,
}

impl OnBehalfOf {
    /// The sender of a message on behalf of this caller in the session `upstream_session`.
    pub(super) fn speaker<'a>(
        &'a self,
        upstream_session: Option<&'a UpstreamSession>,
    ) -> RequestContext<'a> {
        let (subject, caller, path) = (self.subject.as_ref(), self.caller(), self.path.as_ref());
        RequestContext { client: &self.client, upstream_session, subject, caller, path }
    }
}

impl<'a> RequestContext<'a> {
    /// The gateway itself, towards a server of unknown era.
    pub(super) fn unknown_era() -> Self {
        let (client, upstream_session) = (Client::gateway(), None);
        Self { client, upstream_session, subject: None, caller: None, path: None }
    }

    pub(super) fn version(self) -> ProtocolVersion {
        self.upstream_session
            .map_or(ProtocolVersion::V2026July, |upstream_session| upstream_session.version)
    }

    pub(super) fn era(self) -> Era {
        self.version().era()
    }

    pub(super) fn session(self) -> Option<&'a str> {
        self.upstream_session.and_then(|upstream_session| upstream_session.id.as_deref())
    }

    fn meta(self, meta: &mut Object<'_>) {
        // SPEC 2026-07-28 basic#meta, «per-request protocol fields»
        if self.era() == Era::Modern {
            meta.text(meta::VERSION, ProtocolVersion::V2026July.as_str());
            meta.raw(meta::CLIENT_INFO, self.client.info());
            meta.raw(meta::CLIENT_CAPABILITIES, self.client.capabilities());
        }
    }

    fn own_meta(self, params: &mut Object<'_>) {
        if self.era() == Era::Modern {
            let mut meta = Object::open(params.key("_meta"));
            self.meta(&mut meta);
            meta.close();
        }
    }
}

/// Options of a call, besides what is called.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// The server may send progress notifications.
    pub progress: bool,
    /// The least severe log level that is wanted, as JSON.
    pub level: Option<Box<str>>,
    /// The client's responses to the requests of a modern server.
    pub inputs: Option<Arc<InputResponses>>,
    /// The opaque `requestState` that a modern server wants back.
    pub state: Option<Box<str>>,
    /// The arguments that are mirrored in headers.
    pub mirrored: Vec<HeaderArgument>,
    /// The client accepts elicitation, sampling and roots requests during the call.
    pub accepts_requests: bool,
    /// The time limit of this call, if it is shorter than the general one.
    pub timeout: Option<Duration>,
    /// How often the call may be repeated if the connection to the server fails.
    pub retries: RetryCount,
    /// The trace context to propagate, which only the policy makes. It is left out if it was inspected for another server.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use gateway::upstream::CallOptions;
    /// # fn traced(trace: policy::engine::pipeline::SendableTrace) {
    /// let options = CallOptions { trace: Some(Arc::new(trace)), ..CallOptions::default() };
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use std::sync::Arc;
    /// # use gateway::{mcp::trace_context::PropagatedContext, upstream::CallOptions};
    /// # fn traced(trace: PropagatedContext) {
    /// let options = CallOptions { trace: Some(Arc::new(trace)), ..CallOptions::default() }; // not inspected
    /// # }
    /// ```
    pub trace: Option<Arc<SendableTrace>>,
    /// The part of the caller's share of request bytes that it takes until it is sent.
    pub share: Option<Arc<Share<Holder>>>,
}

impl CallOptions {
    /// The messages before the response that the client accepts.
    pub(super) const fn takes(&self) -> AcceptedMessages {
        AcceptedMessages { questions: self.accepts_requests, progress: self.progress }
    }

    /// The time limit of this call, at most `total`.
    pub(super) fn patience(&self, total: Duration) -> Duration {
        self.timeout.map_or(total, |timeout| timeout.min(total))
    }
}

/// Builds a `server/discover` request.
pub(super) fn discover<'a>(id: i64, speaker: RequestContext<'a>) -> Outgoing<'a> {
    message(Some(id), method::DISCOVER, speaker, |params| speaker.own_meta(params))
}

/// Builds `initialize` with `version`.
pub(super) fn initialize<'a>(
    id: i64,
    version: ProtocolVersion,
    on_behalf: &'a OnBehalfOf,
    session: Option<&'a str>,
) -> Outgoing<'a> {
    let client = &on_behalf.client;
    let body = body(Some(id), method::INITIALIZE, |params, _long| {
        params.text("protocolVersion", version.as_str());
        params.raw("capabilities", client.capabilities());
        params.raw("clientInfo", client.info());
    });
    let outgoing = outgoing(Some(id), method::INITIALIZE, version, session, body);
    let (subject, path) = (on_behalf.subject.as_ref(), on_behalf.path.as_ref());
    Outgoing { subject, caller: on_behalf.caller(), path, ..outgoing }
}

/// Builds the `notifications/initialized` message.
pub(super) fn initialized<'a>(
    on_behalf: &'a OnBehalfOf,
    upstream_session: &'a UpstreamSession,
) -> Outgoing<'a> {
    message(None, method::INITIALIZED, on_behalf.speaker(Some(upstream_session)), |_| {})
}

/// Builds `notifications/cancelled` for the request `id`.
pub(super) fn cancelled<'a>(id: i64, speaker: RequestContext<'a>) -> Outgoing<'a> {
    message(None, method::CANCELLED, speaker, |params| {
        Id::Number(id).write(params.key("requestId"));
        params.text("reason", "no longer wanted");
    })
}

/// Builds the request for one page of a list.
pub(super) fn list<'a>(
    id: i64,
    kind: ItemKind,
    cursor: Option<&str>,
    speaker: RequestContext<'a>,
) -> Outgoing<'a> {
    message(Some(id), method::list(kind), speaker, |params| {
        if let Some(cursor) = cursor {
            params.text("cursor", cursor);
        }
        speaker.own_meta(params);
    })
}

/// Builds a call. The progress token equals the id.
pub(super) fn call<'a>(
    id: i64,
    call: &'a ItemRequest,
    options: &CallOptions,
    speaker: RequestContext<'a>,
) -> Outgoing<'a> {
    let modern = speaker.era() == Era::Modern;
    let trace = options.trace.as_ref().filter(|trace| *trace.server() == call.server);
    let spec = MethodSpec::of(call.verb);
    let method = spec.map_or(&*call.name, |spec| spec.name);
    let outgoing = woven(Some(id), method, speaker, |params, long| {
        if let Some(place) = spec.and_then(|spec| spec.named) {
            name_item(params, call, place);
        }
        if let Some(arguments) = &call.arguments {
            long.member(params, "arguments", arguments);
        }
        long.copy(params, &call.extra);
        if let Some(inputs) = options.inputs.as_ref().filter(|_| modern) {
            long.member(params, "inputResponses", inputs.fragment());
        }
        if let Some(state) = options.state.as_ref().filter(|_| modern) {
            params.text("requestState", state);
        }
        if !modern && call.meta.is_empty() && !options.progress && trace.is_none() {
            return;
        }
        let mut meta = Object::open(params.key("_meta"));
        speaker.meta(&mut meta);
        if let Some(level) = options.level.as_ref().filter(|_| modern) {
            meta.raw(meta::LOG_LEVEL, level);
        }
        if options.progress {
            Id::Number(id).write(meta.key(meta::PROGRESS_TOKEN));
        }
        if let Some(trace) = trace {
            meta.text(meta::TRACE_PARENT, trace.parent());
            if let Some(state) = trace.state() {
                meta.text(meta::TRACE_STATE, state);
            }
        }
        long.copy(&mut meta, &call.meta);
        meta.close();
    });
    let name = spec.and_then(MethodSpec::member_in_header).map(|_| &*call.name);
    let mirrored = if modern { mirrored(call, &options.mirrored) } else { Vec::new() };
    let trace = trace.and_then(|trace| HeaderValue::from_str(trace.parent()).ok());
    let share = options.share.clone();
    Outgoing { name, mirrored, takes: options.takes(), trace, share, ..outgoing }
}

/// The text in which a call is sent to a server of a revision, on behalf of the gateway itself. It sends nothing:
/// `tests/differential` compares how the libraries of servers read it.
#[must_use]
pub fn call_text(item: &ItemRequest, version: ProtocolVersion) -> Vec<u8> {
    let upstream_session = UpstreamSession { version, id: None };
    let speaker = RequestContext {
        upstream_session: Some(&upstream_session),
        ..RequestContext::unknown_era()
    };
    let outgoing = call(super::FIRST_ID, item, &CallOptions::default(), speaker);
    outgoing.body.parts().flat_map(|part| part.iter().copied()).collect()
}

/// Writes the name of the item that a call is about. A task is named by its id, which is among the other members.
fn name_item(params: &mut Object<'_>, call: &ItemRequest, place: NamePlace) {
    if matches!(call.verb, RequestOperation::Task(_)) {
        return;
    }
    match (place.members(), place.reference) {
        ((outer, Some(inner)), Some(kind)) => {
            let mut reference = Object::open(params.key(outer));
            reference.text("type", kind);
            reference.text(inner, &call.name);
            reference.close();
        }
        ((member, _), _) => params.text(member, &call.name),
    }
}

/// Builds a `subscriptions/listen` request.
pub(super) fn listen<'a>(
    id: i64,
    wants: &super::NotificationFilter,
    speaker: RequestContext<'a>,
) -> Outgoing<'a> {
    message(Some(id), method::LISTEN, speaker, |params| {
        let mut filter = Object::open(params.key("notifications"));
        wants.items().show(&mut filter);
        filter.close();
        speaker.own_meta(params);
    })
}

/// Builds a message of any method with the client's params; a request if it has an `id`.
pub(super) fn other<'a>(
    id: Option<i64>,
    method: &'a str,
    params: &[(Box<str>, Fragment)],
    meta: &[(Box<str>, Fragment)],
    speaker: RequestContext<'a>,
) -> Outgoing<'a> {
    woven(id, method, speaker, |object, long| {
        long.copy(object, params);
        if meta.is_empty() && speaker.era() == Era::Legacy {
            return;
        }
        let mut own = Object::open(object.key("_meta"));
        speaker.meta(&mut own);
        long.copy(&mut own, meta);
        own.close();
    })
}

/// A string as a parameter of a request.
///
/// # Errors
/// If it exceeds the bounds of a message.
pub(super) fn text(text: &str) -> Result<Fragment, UpstreamError> {
    let mut out = Vec::new();
    write_string(&mut out, text);
    let document = Document::parse(out.into(), &JsonBounds::MESSAGE);
    let too_long = |_error| UpstreamError::Protocol("a parameter exceeds the bounds of a message");
    Ok(Fragment::whole(Arc::new(document.map_err(too_long)?)))
}

/// Builds the reply to a request of a server.
pub(super) fn reply<'a>(reply: ServerReply, speaker: RequestContext<'a>) -> Outgoing<'a> {
    let body = reply.into_body().into();
    let outgoing = outgoing(None, method::PING, speaker.version(), speaker.session(), body);
    let RequestContext { subject, caller, path, .. } = speaker;
    Outgoing { subject, caller, path, ..outgoing }
}

/// The headers that mirror arguments: SPEC 2026-07-28 basic/transports/streamable-http#client-behavior.
fn mirrored(call: &ItemRequest, which: &[HeaderArgument]) -> Vec<(HeaderName, HeaderValue)> {
    let arguments = call.arguments.as_ref().map(Fragment::value);
    let header = |mirrored: &HeaderArgument| {
        let name = format!("{}{}", header::PARAM, mirrored.header);
        let name = HeaderName::try_from(name).ok()?;
        Some((name, headers::encode(&mirrored.value(arguments)?)))
    };
    which.iter().filter_map(header).collect()
}

/// A value of at least this many bytes is sent as a slice of the text in which it arrived, and not copied.
const LONG: usize = 16 * 1024;

/// Long values of a message, each with its offset in the text.
#[derive(Debug, Default)]
struct LongValues(Vec<(usize, Bytes)>);

impl LongValues {
    /// Writes a member; a long value is only recorded with its offset.
    fn member(&mut self, object: &mut Object<'_>, key: &str, value: &Fragment) {
        let (value, out) = (value.value(), object.key(key));
        if value.span().len() < LONG {
            out.extend_from_slice(value.raw().as_bytes());
        } else {
            self.0.push((out.len(), value.raw_bytes()));
        }
    }

    /// Writes all of these members.
    fn copy(&mut self, object: &mut Object<'_>, members: &[(Box<str>, Fragment)]) {
        for (key, value) in members {
            self.member(object, key, value);
        }
    }
}

fn message<'a>(
    id: Option<i64>,
    method: &'a str,
    speaker: RequestContext<'a>,
    params: impl FnOnce(&mut Object<'_>),
) -> Outgoing<'a> {
    woven(id, method, speaker, |object, _long| params(object))
}

/// Like [`message`], with long values that are not copied.
fn woven<'a>(
    id: Option<i64>,
    method: &'a str,
    speaker: RequestContext<'a>,
    params: impl FnOnce(&mut Object<'_>, &mut LongValues),
) -> Outgoing<'a> {
    let body = body(id, method, params);
    let outgoing = outgoing(id, method, speaker.version(), speaker.session(), body);
    let RequestContext { subject, caller, path, .. } = speaker;
    Outgoing { subject, caller, path, ..outgoing }
}

fn outgoing<'a>(
    id: Option<i64>,
    method: &'a str,
    version: ProtocolVersion,
    session: Option<&'a str>,
    body: Segments,
) -> Outgoing<'a> {
    let (method, mirrored) = (Cow::Borrowed(method), Vec::new());
    let (name, takes, subject, caller) = (None, AcceptedMessages::default(), None, None);
    let (trace, path, share) = (None, None, None);
    Outgoing {
        id,
        method,
        name,
        mirrored,
        version,
        session,
        takes,
        subject,
        caller,
        trace,
        path,
        share,
        body,
    }
}

fn body(
    id: Option<i64>,
    method: &str,
    params: impl FnOnce(&mut Object<'_>, &mut LongValues),
) -> Segments {
    let mut out = wire::head(id.map(Id::Number).as_ref(), 512);
    out.extend_from_slice(br#""method":"#);
    write_string(&mut out, method);
    out.extend_from_slice(br#","params":"#);
    let (mut object, mut long) = (Object::open(&mut out), LongValues::default());
    params(&mut object, &mut long);
    object.close();
    out.push(b'}');
    Segments::woven(out, long.0)
}
