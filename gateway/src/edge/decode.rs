//! Decodes a client's message into a [`ClientOperation`], independent of the protocol era. The exchange calls it for
//! each message.
//!
//! The era is decided once, by one table, from the version header, the version in the body and the method; combinations
//! that leave it open are rejected (threats PV-12, PV-16, PV-17, PV-19).

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use json::{Document, Fragment, Value};
use policy::definition::offer::ItemKind;
use policy::engine::message::RequestOperation;
use policy::engine::method::{Form, MethodAction, MethodSpec, NamePlace};

use crate::edge::failure::Failure;
use crate::mcp::client_info::Client;
use crate::mcp::discovery_tools::ThroughCall;
use crate::mcp::protocol::{Era, LEVELS, ProtocolVersion, header, meta, method};
use crate::mcp::trace_context::ParentSpan;
use crate::mcp::wire::headers::{self, SingleValue};
use crate::mcp::wire::{self, Id, Message, ResponseOutcome};

/// Longest name of a method and of what is used, in bytes. Names are compared with rules and written on record on the thread
/// that serves the client.
const LONGEST_NAME: usize = 8192;

/// A decoded message of a client.
#[derive(Debug)]
pub struct Inbound {
    /// Protocol revision of the message.
    pub version: ProtocolVersion,
    /// What it asks for.
    pub ask: ClientOperation,
    /// The client's description of itself: in every modern message, and in a legacy `initialize`.
    pub client: Option<Arc<Client>>,
    /// Trace context: the parent span, and a second span to link to.
    pub parents: Box<[Option<ParentSpan>; 2]>,
}

/// What a message asks for.
#[derive(Debug)]
pub enum ClientOperation {
    /// `server/discover`: describe the server (modern).
    Discover,
    /// `initialize` (legacy), with the agreed revision in [`Inbound::version`].
    Initialize,
    /// `ping`: answer with an empty result (legacy).
    Ping,
    /// List the definitions of a kind.
    List(ItemKind),
    /// Use one thing, for example call a tool.
    Use(Box<UseOperation>),
    /// Open a subscription (modern), with its filter.
    Listen(Fragment),
    /// Set the log level of the session (legacy): the level, as JSON.
    Level(&'static str),
    /// Cancel the request with this id (legacy).
    Cancel(Id),
    /// The response to a request that the gateway sent to the client (legacy).
    Answer(Id, ResponseOutcome),
    /// The client's roots have changed, `notifications/roots/list_changed` (legacy).
    RootsChanged,
    /// A notification without effect here (legacy).
    Notice,
    /// A notification that is passed to the server if the policy allows it (legacy).
    Tell(Box<UseOperation>),
    /// Open the stream of the session, or resume a stream after this event id (legacy).
    Stream(Option<Box<str>>),
    /// End the session (legacy).
    End,
}

/// An `Mcp-Param-` header: the name of its argument, and its decoded value if it can be decoded.
pub type ParamHeader = (Box<str>, Option<Box<str>>);

/// A request about one thing, with the names that the client used.
#[derive(Debug)]
pub struct UseOperation {
    /// What is done with the thing.
    pub verb: RequestOperation,
    /// The name, URI or id of the thing.
    pub name: Box<str>,
    /// The arguments of a tool or a prompt, always an object.
    pub arguments: Option<Fragment>,
    /// Members of `params` that the gateway does not know.
    pub extra: Vec<(Box<str>, Fragment)>,
    /// Members of `_meta` that the gateway does not know.
    pub meta: Vec<(Box<str>, Fragment)>,
    /// The client's progress token.
    pub progress: Option<Id>,
    /// The lowest log level the client wants, as JSON (modern).
    pub level: Option<Box<str>>,
    /// The `inputResponses` to a server's requests (modern).
    pub inputs: Option<Fragment>,
    /// The `requestState` that the gateway returned before (modern).
    pub state: Option<Box<str>>,
    /// Arguments mirrored in headers; `None` if the transport has no such headers.
    pub mirrored: Option<Vec<ParamHeader>>,
    /// How the call came through a tool of the gateway; `None` for any other request. The decoder leaves it empty.
    pub through: Option<ThroughCall>,
}

/// Decodes `message`. The revision is stored in `spoken` as soon as it is known, because the wording of an error
/// depends on it.
///
/// # Errors
/// If the era is ambiguous, headers and body differ, or the params do not fit the method.
pub fn read(
    headers: &HeaderMap,
    message: Message,
    spoken: &mut Option<ProtocolVersion>,
) -> Result<Inbound, Failure> {
    let (method, params, kind) = match message {
        Message::Request(request) => (request.method, request.params, MessageKind::Request),
        Message::Notification(notification) => {
            (notification.method, notification.params, MessageKind::Notification)
        }
        Message::Response(response) => {
            let version = match header_version(headers)? {
                Some(version) if version.era() == Era::Modern => {
                    return Err(Failure::Shape("a client sends no responses in this revision"));
                }
                version => version.unwrap_or(ProtocolVersion::V2025March),
            };
            let ask = response.id.map_or(ClientOperation::Notice, |id| {
                ClientOperation::Answer(id, response.outcome)
            });
            return Ok(Inbound { version, ask, client: None, parents: Box::default() });
        }
    };
    let meta = params.as_ref().and_then(|params| params.value().get("_meta"));
    if meta.is_some_and(|meta| !meta.is_object() || wire::meta_is_misspelled(meta)) {
        return Err(Failure::Params("`_meta` is not an object with keys as specified"));
    }
    let version = version(headers, &method, meta)?;
    let version = if &*method == method::INITIALIZE { agreed(params.as_ref()) } else { version };
    *spoken = Some(version);
    let mut client = None;
    if version.era() == Era::Modern {
        mirrored(headers, &method, params.as_ref())?;
        let capabilities = meta.and_then(|meta| meta.get(meta::CLIENT_CAPABILITIES));
        let Some(capabilities) = capabilities.filter(|capabilities| capabilities.is_object())
        else {
            return Err(Failure::Params(
                "`_meta` has no `io.modelcontextprotocol/clientCapabilities`",
            ));
        };
        if kind == MessageKind::Notification {
            return Err(Failure::Shape("a client sends no notifications in this revision"));
        }
        let info = meta.and_then(|meta| meta.get(meta::CLIENT_INFO));
        client = Some(Arc::new(Client::new(capabilities, info)));
    } else if &*method == method::INITIALIZE {
        client = Some(Arc::new(introduced(params.as_ref())));
    }
    let parents = Box::new(parents(headers, meta));
    let mut ask = ask(version.era(), &method, params.as_ref(), kind)?;
    if let ClientOperation::Use(asked) = &mut ask {
        match version.era() {
            Era::Modern if asked.verb == RequestOperation::Call => {
                asked.mirrored = Some(repeated(headers)?);
            }
            Era::Modern => {}
            Era::Legacy if asked.inputs.is_some() || asked.state.is_some() => {
                return Err(Failure::Params(
                    "`inputResponses` and `requestState` are not supported before 2026-07-28",
                ));
            }
            Era::Legacy => {}
        }
    }
    Ok(Inbound { version, ask, client, parents })
}

/// The client's description of itself in a legacy handshake.
fn introduced(params: Option<&Fragment>) -> Client {
    let params = params.map(Fragment::value);
    let capabilities = params.and_then(|params| params.get("capabilities"));
    let info = params.and_then(|params| params.get("clientInfo"));
    match capabilities.filter(|capabilities| capabilities.is_object()) {
        Some(capabilities) => Client::new(capabilities, info),
        None => (**Client::gateway()).clone(),
    }
}

/// The arguments mirrored in `Mcp-Param-` headers.
fn repeated(headers: &HeaderMap) -> Result<Vec<ParamHeader>, Failure> {
    let mut found = Vec::new();
    for name in headers.keys() {
        let Some(rest) = name.as_str().strip_prefix(header::PARAM) else { continue };
        let value = match headers::single(headers, name) {
            SingleValue::Value(text) => headers::decode(text).map(|text| text.as_ref().into()),
            SingleValue::Absent | SingleValue::Bad => {
                return Err(Failure::HeaderMismatch("an `Mcp-Param-` header is not one value"));
            }
        };
        found.push((rest.into(), value));
    }
    Ok(found)
}

/// Whether the client waits for an answer to its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Request,
    Notification,
}

fn ask(
    era: Era,
    method: &str,
    params: Option<&Fragment>,
    kind: MessageKind,
) -> Result<ClientOperation, Failure> {
    bounded(method)?;
    let use_of = |verb| used(verb, method, params).map(|ask| ClientOperation::Use(Box::new(ask)));
    let tell = || {
        let told = used(RequestOperation::Other, method, params);
        told.map(|told| ClientOperation::Tell(Box::new(told)))
    };
    let list = |kind| {
        // The gateway reads all pages of a server and returns one, so it never issues cursors.
        match params.is_some_and(|params| params.value().get("cursor").is_some()) {
            true => Err(Failure::Params("unknown cursor")),
            false => Ok(ClientOperation::List(kind)),
        }
    };
    let member = |key: &str| -> Result<_, Failure> {
        let params = params.ok_or(Failure::Params("`params` is missing"))?;
        Ok(params.value().get(key).map(|value| value.fragment(&params.document())))
    };
    let spec = match method::form(method) {
        Form::Known(spec) => allowed(spec, era, kind)?,
        Form::Malformed => {
            return Err(Failure::Shape("malformed method name"));
        }
        // Only extensions, which no server can take for methods of the protocol, are left to the policy for unknown
        // methods.
        Form::Extension => {
            return match kind {
                MessageKind::Request => use_of(RequestOperation::Other),
                MessageKind::Notification => tell(),
            };
        }
    };
    match spec.action {
        MethodAction::Discover => Ok(ClientOperation::Discover),
        MethodAction::Initialize => Ok(ClientOperation::Initialize),
        MethodAction::Ping => Ok(ClientOperation::Ping),
        MethodAction::List(kind) => list(kind),
        MethodAction::Use(
            RequestOperation::CompletePrompt | RequestOperation::CompleteTemplate,
        ) => use_of(completed(params)?),
        MethodAction::Use(verb) => use_of(verb),
        MethodAction::SetLevel => {
            let level: Option<Fragment> = member("level")?;
            let level = level.and_then(|level| known_level(level.value()));
            level.map(ClientOperation::Level).ok_or(Failure::Params("`level` is not a log level"))
        }
        MethodAction::Listen => {
            let filter: Option<Fragment> = member("notifications")?;
            let filter = filter.filter(|filter| filter.value().is_object());
            let wrong = Failure::Params("`notifications` is not an object");
            filter.map(ClientOperation::Listen).ok_or(wrong)
        }
        MethodAction::Cancel => {
            let id = params.and_then(|params| params.value().get("requestId")).and_then(Id::read);
            Ok(id.map_or(ClientOperation::Notice, ClientOperation::Cancel))
        }
        MethodAction::RootsChanged => Ok(ClientOperation::RootsChanged),
        MethodAction::Tell => tell(),
        MethodAction::Ignore => Ok(ClientOperation::Notice),
        MethodAction::OfServers if spec.is_notification() => {
            Err(Failure::Shape("a client does not send this notification"))
        }
        MethodAction::OfServers | MethodAction::Refuse => Err(Failure::Method),
    }
}

/// The method, if messages of this era and kind may have it.
fn allowed(
    spec: &'static MethodSpec,
    era: Era,
    kind: MessageKind,
) -> Result<&'static MethodSpec, Failure> {
    // Methods of the other era do not exist in this one, regardless of the policy for unknown methods.
    let is_of_other_era = !spec.is_notification() && !era.has(spec);
    if is_of_other_era || spec.action == MethodAction::Refuse {
        return Err(Failure::Method);
    }
    match (kind, spec.is_notification()) {
        (MessageKind::Request, false) | (MessageKind::Notification, true) => Ok(spec),
        (MessageKind::Notification, false) => {
            Err(Failure::Shape("a request of the protocol has an `id`"))
        }
        (MessageKind::Request, true) => {
            Err(Failure::Shape("a notification of the protocol has no `id`"))
        }
    }
}

/// Whether a completion is for a prompt or for a resource template.
fn completed(params: Option<&Fragment>) -> Result<RequestOperation, Failure> {
    let part = |name| params.and_then(|params| params.value().get(name));
    let reference = part("ref");
    for (object, known) in [(reference, &wire::REFERENCE[..]), (part("argument"), &wire::COMPLETED)]
    {
        if object.is_some_and(|object| object.is_object() && wire::is_misspelled(object, known)) {
            return Err(Failure::Params("`ref` or `argument` has a member in another spelling"));
        }
    }
    let kind = reference.and_then(|reference| reference.get("type")).and_then(Value::as_str);
    let is_meant = |operation: &RequestOperation| {
        let place = MethodSpec::of(*operation).and_then(|spec| spec.named);
        kind.is_some() && place.and_then(|place| place.reference) == kind.as_deref()
    };
    let operations = [RequestOperation::CompletePrompt, RequestOperation::CompleteTemplate];
    let neither = Failure::Params("`ref` is neither `ref/prompt` nor `ref/resource`");
    operations.into_iter().find(is_meant).ok_or(neither)
}

/// Whether all readers take a value for the same arguments.
fn may_be_arguments(value: Value<'_>) -> Result<(), Failure> {
    if !value.is_object() {
        return Err(Failure::Params("`arguments` is not an object"));
    }
    // The SDK for TypeScript leaves this member out.
    if value.get("__proto__").is_some() {
        return Err(Failure::Params("`arguments` has a member `__proto__`"));
    }
    Ok(())
}

fn used(
    verb: RequestOperation,
    method: &str,
    params: Option<&Fragment>,
) -> Result<UseOperation, Failure> {
    let mut ask = UseOperation {
        verb,
        name: method.into(),
        arguments: None,
        extra: Vec::new(),
        meta: Vec::new(),
        progress: None,
        level: None,
        inputs: None,
        state: None,
        mirrored: None,
        through: None,
    };
    let Some(params) = params else {
        let plain = verb == RequestOperation::Other;
        return if plain { Ok(ask) } else { Err(Failure::Params("`params` is missing")) };
    };
    if !wire::has_common_numbers(params.value()) {
        return Err(Failure::Params(
            "`params` has a number that is too large for a double, or has more digits behind the point than a double",
        ));
    }
    let document = params.document();
    let spec = MethodSpec::of(verb);
    let place = spec.and_then(|spec| spec.named).map(NamePlace::members);
    let takes_arguments = spec.is_some_and(|spec| spec.has_arguments);
    let can_ask = spec.is_some_and(|spec| spec.can_ask);
    let mut name = None;
    for (member, value) in params.value().members() {
        match &*member {
            "_meta" => meta_of(&mut ask, value, &document)?,
            member
                if let Some((outer, inner)) = place
                    && member == outer =>
            {
                let value = inner.map_or(Some(value), |inner| value.get(inner));
                name = value.and_then(Value::as_str);
            }
            "arguments" if takes_arguments => {
                may_be_arguments(value)?;
                ask.arguments = Some(value.fragment(&document));
            }
            "inputResponses" if can_ask => {
                let inputs = value.is_object().then(|| value.fragment(&document));
                let wrong = Failure::Params("`inputResponses` is not an object");
                ask.inputs = Some(inputs.ok_or(wrong)?);
            }
            "requestState" if can_ask => {
                let state = value.as_str().map(Into::into);
                ask.state = Some(state.ok_or(Failure::Params("`requestState` is not a string"))?);
            }
            member => ask.extra.push((member.into(), value.fragment(&document))),
        }
    }
    if let Some((member, _)) = place {
        ask.name = usable(name.as_deref(), member)?.into();
    }
    Ok(ask)
}

/// Checks the length of the name of a method.
fn bounded(method: &str) -> Result<(), Failure> {
    match method.len() > LONGEST_NAME {
        true => Err(Failure::Params("the name of the method is longer than 8192 bytes")),
        false => Ok(()),
    }
}

/// The name of what is used, if it is usable; `member` of the params has it.
fn usable<'a>(name: Option<&'a str>, member: &str) -> Result<&'a str, Failure> {
    if name.is_some_and(|name| name.len() > LONGEST_NAME) {
        return Err(Failure::Params("the name of what is used is longer than 8192 bytes"));
    }
    let name = name.filter(|name| !name.contains('\0'));
    name.ok_or(Failure::Params(unusable_name(member)))
}

/// The message if `member` of the params, which names the item, is not usable.
fn unusable_name(member: &str) -> &'static str {
    match member {
        "name" => "`params.name` is missing, not a string, or has a NUL in it",
        "uri" => "`params.uri` is missing, not a string, or has a NUL in it",
        "taskId" => "`params.taskId` is missing, not a string, or has a NUL in it",
        _ => "`params.ref` has no `name` or `uri`, or it is not a string, or has a NUL in it",
    }
}

fn meta_of(
    ask: &mut UseOperation,
    meta: Value<'_>,
    document: &Arc<Document>,
) -> Result<(), Failure> {
    for (key, value) in meta.members() {
        match &*key {
            meta::VERSION | meta::CLIENT_INFO | meta::CLIENT_CAPABILITIES | meta::SUBSCRIPTION => {}
            // The trace context is written anew for the server. Baggage could carry any data out, so it is dropped
            // (SEP-414).
            meta::TRACE_PARENT | meta::TRACE_STATE | meta::BAGGAGE => {}
            meta::LOG_LEVEL => {
                let wrong = Failure::Params("the log level is none that the protocol has");
                ask.level = Some(known_level(value).map(|_| value.raw().into()).ok_or(wrong)?);
            }
            meta::PROGRESS_TOKEN => {
                let wrong = Failure::Params("`progressToken` is not a string or an integer");
                ask.progress = Some(Id::read(value).ok_or(wrong)?);
            }
            key if wire::is_mark(key) => {
                return Err(Failure::Params("`_meta` has a key that only the gateway sets"));
            }
            _ => ask.meta.push((key.into(), value.fragment(document))),
        }
    }
    Ok(())
}

/// The log level of the protocol that a value is. Levels are passed on, so only known ones are accepted.
fn known_level(value: Value<'_>) -> Option<&'static str> {
    let text = value.as_str()?;
    LEVELS.into_iter().find(|known| *known == text)
}

/// The era table: decides the protocol revision from header, body and method.
fn version(
    headers: &HeaderMap,
    method: &str,
    meta: Option<Value<'_>>,
) -> Result<ProtocolVersion, Failure> {
    let named = match headers::single(headers, &header::VERSION) {
        SingleValue::Absent => None,
        SingleValue::Value(text) => Some(text),
        SingleValue::Bad => {
            return Err(Failure::HeaderMismatch("`MCP-Protocol-Version` is not one value"));
        }
    };
    let body = meta.and_then(|meta| meta.get(meta::VERSION));
    let body = match body.map(|value| value.as_str()) {
        Some(None) => return Err(Failure::Params("the protocol version is not a string")),
        Some(text) => text,
        None => None,
    };
    let handshake = method == method::INITIALIZE;
    let unsupported = |text: &str| {
        let shown = text.get(..text.floor_char_boundary(64)).unwrap_or_default();
        Err(Failure::Version { requested: shown.into() })
    };
    match (named, body, named.and_then(ProtocolVersion::parse)) {
        // SPEC 2026-07-28 basic/versioning: this revision has no `initialize`.
        (_, Some(_), _) | (_, None, Some(ProtocolVersion::V2026July)) if handshake => {
            Err(Failure::Removed)
        }
        (_, None, _) if handshake => Ok(ProtocolVersion::LAST_LEGACY),
        (None, Some(_), _) => Err(Failure::HeaderMismatch("`MCP-Protocol-Version` is missing")),
        (Some(named), Some(body), _) if named != body => {
            Err(Failure::HeaderMismatch("`MCP-Protocol-Version` is not the version in the body"))
        }
        (Some(_), Some(_), Some(ProtocolVersion::V2026July)) => Ok(ProtocolVersion::V2026July),
        // The version is in the body as in the modern era, but names a legacy or an unknown revision.
        (Some(named), Some(_), _) | (Some(named), None, None) => unsupported(named),
        (Some(_), None, Some(ProtocolVersion::V2026July)) => {
            Err(Failure::Params("`_meta` has no `io.modelcontextprotocol/protocolVersion`"))
        }
        (Some(_), None, Some(legacy)) => Ok(legacy),
        // SPEC 2025-11-25 basic/transports#protocol-version-header
        (None, None, _) => Ok(ProtocolVersion::V2025March),
    }
}

/// The revision of a handshake: the requested one if it is a legacy revision, otherwise the last legacy revision.
///
/// SPEC 2025-11-25 basic/lifecycle#version-negotiation
fn agreed(params: Option<&Fragment>) -> ProtocolVersion {
    let requested = params.and_then(|params| params.value().get("protocolVersion"));
    let requested =
        requested.and_then(Value::as_str).and_then(|text| ProtocolVersion::parse(&text));
    let legacy = requested.filter(|version| version.era() == Era::Legacy);
    legacy.unwrap_or(ProtocolVersion::LAST_LEGACY)
}

/// The version header of a message that carries no version in its body; `None` if it is absent.
fn header_version(headers: &HeaderMap) -> Result<Option<ProtocolVersion>, Failure> {
    match headers::single(headers, &header::VERSION) {
        SingleValue::Absent => Ok(None),
        SingleValue::Value(text) => match ProtocolVersion::parse(text) {
            Some(version) => Ok(Some(version)),
            None => Err(Failure::Shape("`MCP-Protocol-Version` names no revision")),
        },
        SingleValue::Bad => Err(Failure::HeaderMismatch("`MCP-Protocol-Version` is not one value")),
    }
}

/// Checks that the headers mirror the body, SPEC 2026-07-28 basic/transports/streamable-http#server-validation
fn mirrored(headers: &HeaderMap, method: &str, params: Option<&Fragment>) -> Result<(), Failure> {
    if headers::single(headers, &header::METHOD) != SingleValue::Value(method) {
        return Err(Failure::HeaderMismatch("`Mcp-Method` is not the method in the body"));
    }
    let Some(member) = MethodSpec::by_name(method).and_then(MethodSpec::member_in_header) else {
        return Ok(());
    };
    let body = params.and_then(|params| params.value().get(member)).and_then(Value::as_str);
    let named = match headers::single(headers, &header::NAME) {
        SingleValue::Value(text) => headers::decode(text),
        SingleValue::Absent | SingleValue::Bad => None,
    };
    match (named, body) {
        (Some(named), Some(body)) if named == body => Ok(()),
        _ => Err(Failure::HeaderMismatch("`Mcp-Name` is not the name in the body")),
    }
}

/// The trace context: from the body first (SEP-414). A different one in the headers becomes a link.
fn parents(headers: &HeaderMap, meta: Option<Value<'_>>) -> [Option<ParentSpan>; 2] {
    let head = |name: &HeaderName| match headers::single(headers, name) {
        SingleValue::Value(text) => Some(text),
        SingleValue::Absent | SingleValue::Bad => None,
    };
    let body = |name: &str| meta.and_then(|meta| meta.get(name)).and_then(Value::as_str);
    let read = |parent: Option<&str>, state: Option<&str>| {
        parent.and_then(ParentSpan::read).map(|parent| parent.with_state(state))
    };
    let (parent, state) = (body(meta::TRACE_PARENT), body(meta::TRACE_STATE));
    let told = read(parent.as_deref(), state.as_deref());
    let told = told.map(|told| ParentSpan { is_said: true, ..told });
    let around = read(head(&header::TRACE_PARENT), head(&header::TRACE_STATE));
    match told {
        None => [around, None],
        Some(told) => {
            let other =
                around.filter(|around| (around.trace, around.span) != (told.trace, told.span));
            [Some(told), other]
        }
    }
}

#[cfg(test)]
mod tests;
