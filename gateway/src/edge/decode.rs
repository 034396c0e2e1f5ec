//! What a client asks, free of the era it asks in.
//!
//! The era is decided once, by one table, from the version header, the version in the body and the
//! method; what those three leave open is refused (threats PV-12, PV-16, PV-17, PV-19).

use std::sync::Arc;

use http::HeaderMap;
use policy::json::{Document, Fragment, Value};
use policy::message::{Task, Verb};
use policy::offer::Kind;

use crate::edge::failure::Failure;
use crate::mcp::client_info::Client;
use crate::mcp::protocol::method::Form;
use crate::mcp::protocol::{Era, LEVELS, Version, header, meta, method};
use crate::mcp::trace_context::Parent;
use crate::mcp::wire::headers::{self, Single};
use crate::mcp::wire::{self, Id, Message, Outcome};

/// A message of a client.
#[derive(Debug)]
pub struct Inbound {
    /// The revision it is in.
    pub version: Version,
    /// What it asks for.
    pub ask: Ask,
    /// What the client says of itself, where it says so in every message or opens a session.
    pub client: Option<Arc<Client>>,
    /// What the client does it for, and what else that has to do with.
    pub parents: Box<[Option<Parent>; 2]>,
}

/// What a client asks for.
#[derive(Debug)]
pub enum Ask {
    /// What is this server?
    Discover,
    /// Open a session (legacy), in the revision of the message.
    Initialize,
    /// Are you there? (legacy)
    Ping,
    /// What is there of this kind?
    List(Kind),
    /// Do something with one thing.
    Use(Box<UseAsk>),
    /// Tell when something changes (modern): the filter.
    Listen(Fragment),
    /// Log from this level on (legacy): the level, as JSON.
    Level(Fragment),
    /// Give up the request with this id (legacy).
    Cancel(Id),
    /// The answer to a question of ours (legacy).
    Answer(Id, Outcome),
    /// The client has other roots now (legacy).
    RootsChanged,
    /// Something that wants no answer and has no effect here (legacy).
    Notice,
    /// Something that wants no answer, and that only the two ends know (legacy).
    Tell(Box<UseAsk>),
    /// Open the stream of the session, or go on with one after this event (legacy).
    Stream(Option<Box<str>>),
    /// End the session (legacy).
    End,
}

/// An argument repeated in a header: the header, and what it says if that can be read.
pub type Repeated = (Box<str>, Option<Box<str>>);

/// Something about one thing, as it came.
#[derive(Debug)]
pub struct UseAsk {
    /// What is to be done.
    pub verb: Verb,
    /// With which thing, as the caller names it.
    pub name: Box<str>,
    /// The arguments of a tool or a prompt, an object.
    pub arguments: Option<Fragment>,
    /// Members of `params` we do not know.
    pub extra: Vec<(Box<str>, Fragment)>,
    /// Members of `_meta` we do not know.
    pub meta: Vec<(Box<str>, Fragment)>,
    /// The token that progress is to be reported under.
    pub progress: Option<Id>,
    /// The least severe log message that is wanted, as JSON (modern).
    pub level: Option<Box<str>>,
    /// The answers to what a server asked (modern).
    pub inputs: Option<Fragment>,
    /// What we wanted to be reminded of (modern).
    pub state: Option<Box<str>>,
    /// The arguments that are repeated in headers; `None` where there are no headers.
    pub mirrored: Option<Vec<Repeated>>,
}

/// Reads what `message` asks, and notes its revision in `spoken` as soon as that is known: in which
/// words a refusal is told depends on it.
///
/// # Errors
/// When its era is not clear, its headers say something else, or its parameters do not fit.
pub fn read(
    headers: &HeaderMap,
    message: Message,
    spoken: &mut Option<Version>,
) -> Result<Inbound, Failure> {
    let (method, params, wants_answer) = match message {
        Message::Request(request) => (request.method, request.params, true),
        Message::Notification(notification) => (notification.method, notification.params, false),
        Message::Response(response) => {
            let version = match header_version(headers)? {
                Some(version) if version.era() == Era::Modern => {
                    return Err(Failure::Shape("a client sends no responses in this revision"));
                }
                version => version.unwrap_or(Version::V2025March),
            };
            let ask = response.id.map_or(Ask::Notice, |id| Ask::Answer(id, response.outcome));
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
        if !wants_answer {
            return Err(Failure::Shape("a client sends no notifications in this revision"));
        }
        let info = meta.and_then(|meta| meta.get(meta::CLIENT_INFO));
        client = Some(Arc::new(Client::new(capabilities, info)));
    } else if &*method == method::INITIALIZE {
        client = Some(Arc::new(introduced(params.as_ref())));
    }
    let parents = Box::new(parents(headers, meta));
    let mut ask = ask(version.era(), &method, params.as_ref(), wants_answer)?;
    if let Ask::Use(asked) = &mut ask {
        match version.era() {
            Era::Modern if asked.verb == Verb::Call => {
                asked.mirrored = Some(repeated(headers)?);
            }
            Era::Modern => {}
            Era::Legacy if asked.inputs.is_some() || asked.state.is_some() => {
                return Err(Failure::Params("nothing was asked that this could be the answer to"));
            }
            Era::Legacy => {}
        }
    }
    Ok(Inbound { version, ask, client, parents })
}

/// What a legacy client says of itself in its handshake.
fn introduced(params: Option<&Fragment>) -> Client {
    let params = params.map(Fragment::value);
    let capabilities = params.and_then(|params| params.get("capabilities"));
    let info = params.and_then(|params| params.get("clientInfo"));
    match capabilities.filter(|capabilities| capabilities.is_object()) {
        Some(capabilities) => Client::new(capabilities, info),
        None => (**Client::gateway()).clone(),
    }
}

/// The arguments that are repeated in headers.
fn repeated(headers: &HeaderMap) -> Result<Vec<Repeated>, Failure> {
    let mut found = Vec::new();
    for name in headers.keys() {
        let Some(rest) = name.as_str().strip_prefix(header::PARAM) else { continue };
        let value = match headers::single(headers, name.as_str()) {
            Single::Value(text) => headers::decode(text).map(|text| text.as_ref().into()),
            Single::Absent | Single::Bad => {
                return Err(Failure::HeaderMismatch("an `Mcp-Param-` header is not one value"));
            }
        };
        found.push((rest.into(), value));
    }
    Ok(found)
}

fn ask(
    era: Era,
    method: &str,
    params: Option<&Fragment>,
    wants_answer: bool,
) -> Result<Ask, Failure> {
    let use_of = |verb| used(verb, method, params).map(|ask| Ask::Use(Box::new(ask)));
    let list = |kind| {
        // Every page was read and shown at once, so there is no cursor of ours.
        match params.is_some_and(|params| params.value().get("cursor").is_some()) {
            true => Err(Failure::Params("unknown cursor")),
            false => Ok(Ask::List(kind)),
        }
    };
    let member = |key: &str| {
        let params = params.ok_or(Failure::Params("`params` is missing"))?;
        Ok(params.value().get(key).map(|value| value.fragment(&params.document())))
    };
    match (era, method, wants_answer) {
        (Era::Modern, method::DISCOVER, true) => Ok(Ask::Discover),
        (Era::Legacy, method::INITIALIZE, true) => Ok(Ask::Initialize),
        (Era::Legacy, method::PING, true) => Ok(Ask::Ping),
        (_, method::TOOLS_LIST, true) => list(Kind::Tool),
        (_, method::PROMPTS_LIST, true) => list(Kind::Prompt),
        (_, method::RESOURCES_LIST, true) => list(Kind::Resource),
        (_, method::TEMPLATES_LIST, true) => list(Kind::Template),
        (_, method::TOOLS_CALL, true) => use_of(Verb::Call),
        (_, method::PROMPTS_GET, true) => use_of(Verb::Get),
        (_, method::RESOURCES_READ, true) => use_of(Verb::Read),
        (_, method::COMPLETE, true) => use_of(completed(params)?),
        (Era::Legacy, method::SUBSCRIBE, true) => use_of(Verb::Subscribe),
        (Era::Legacy, method::UNSUBSCRIBE, true) => use_of(Verb::Unsubscribe),
        (_, method::TASKS_GET, true) => use_of(Verb::Task(Task::Get)),
        (_, method::TASKS_CANCEL, true) => use_of(Verb::Task(Task::Cancel)),
        (Era::Modern, method::TASKS_UPDATE, true) => use_of(Verb::Task(Task::Update)),
        (Era::Legacy, method::TASKS_RESULT, true) => use_of(Verb::Task(Task::Result)),
        (Era::Legacy, method::SET_LEVEL, true) => {
            let level: Option<Fragment> = member("level")?;
            let known = |level: &Fragment| is_level(level.value());
            let level = level.filter(known).ok_or(Failure::Params("`level` is not a log level"))?;
            Ok(Ask::Level(level))
        }
        (Era::Modern, method::LISTEN, true) => {
            let filter: Option<Fragment> = member("notifications")?;
            let filter = filter.filter(|filter| filter.value().is_object());
            filter.map(Ask::Listen).ok_or(Failure::Params("`notifications` is not an object"))
        }
        (Era::Legacy, method::CANCELLED, false) => {
            let id = params.and_then(|params| params.value().get("requestId")).and_then(Id::read);
            Ok(id.map_or(Ask::Notice, Ask::Cancel))
        }
        (Era::Legacy, method::ROOTS_CHANGED, false) => Ok(Ask::RootsChanged),
        (Era::Legacy, method::INITIALIZED | method::PROGRESS, false) => Ok(Ask::Notice),
        // Methods of the other era do not exist in this one, whatever a policy says of methods.
        (
            Era::Modern,
            method::INITIALIZE
            | method::PING
            | method::SUBSCRIBE
            | method::UNSUBSCRIBE
            | method::SET_LEVEL
            | method::TASKS_RESULT,
            _,
        )
        | (Era::Legacy, method::DISCOVER | method::LISTEN | method::TASKS_UPDATE, _)
        // Whose tasks a server lists nobody can tell.
        | (_, method::TASKS_LIST, _) => Err(Failure::Method),
        (_, method, wants_answer) => other(method, params, wants_answer),
    }
}

/// A method that this gateway does not handle by name. Only one that no server could take for a method of
/// the protocol is left to the rules about unknown methods.
fn other(method: &str, params: Option<&Fragment>, wants_answer: bool) -> Result<Ask, Failure> {
    let used = || used(Verb::Other, method, params).map(Box::new);
    match (method::form(method), wants_answer) {
        (Form::Malformed, _) => {
            Err(Failure::Shape("the method is not written as the specification writes methods"))
        }
        (Form::Request, false) => Err(Failure::Shape("a request of the protocol has an `id`")),
        (Form::Notification, true) => {
            Err(Failure::Shape("a notification of the protocol has no `id`"))
        }
        // Only servers send these.
        (Form::Request, true) => Err(Failure::Method),
        // A client that runs tasks for its server says how they stand (2025-11-25).
        (Form::Notification, false) if method == method::TASK_STATUS => used().map(Ask::Tell),
        (Form::Notification, false) => {
            Err(Failure::Shape("a client does not send this notification"))
        }
        (Form::Extension, true) => used().map(Ask::Use),
        (Form::Extension, false) => used().map(Ask::Tell),
    }
}

/// What a completion is for.
fn completed(params: Option<&Fragment>) -> Result<Verb, Failure> {
    let reference = params.and_then(|params| params.value().get("ref"));
    let kind = reference.and_then(|reference| reference.get("type")).and_then(Value::as_str);
    match kind.as_deref() {
        Some("ref/prompt") => Ok(Verb::CompletePrompt),
        Some("ref/resource") => Ok(Verb::CompleteTemplate),
        _ => Err(Failure::Params("`ref` is neither `ref/prompt` nor `ref/resource`")),
    }
}

fn used(verb: Verb, method: &str, params: Option<&Fragment>) -> Result<UseAsk, Failure> {
    let mut ask = UseAsk {
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
    };
    let Some(params) = params else {
        let plain = verb == Verb::Other;
        return if plain { Ok(ask) } else { Err(Failure::Params("`params` is missing")) };
    };
    let document = params.document();
    let (key, mut name) = (naming_member(verb), None);
    let takes_arguments = matches!(verb, Verb::Call | Verb::Get);
    for (member, value) in params.value().members() {
        match &*member {
            "_meta" => meta_of(&mut ask, value, &document)?,
            member if Some(member) == key => {
                let value = match verb {
                    Verb::CompletePrompt => value.get("name"),
                    Verb::CompleteTemplate => value.get("uri"),
                    Verb::Call
                    | Verb::Get
                    | Verb::Read
                    | Verb::Subscribe
                    | Verb::Unsubscribe
                    | Verb::Task(_)
                    | Verb::Other => Some(value),
                };
                name = value.and_then(Value::as_str);
            }
            "arguments" if takes_arguments && value.is_object() => {
                ask.arguments = Some(value.fragment(&document));
            }
            "arguments" if takes_arguments => {
                return Err(Failure::Params("`arguments` is not an object"));
            }
            "inputResponses" if asks_again(verb) => {
                let inputs = value.is_object().then(|| value.fragment(&document));
                let wrong = Failure::Params("`inputResponses` is not an object");
                ask.inputs = Some(inputs.ok_or(wrong)?);
            }
            "requestState" if asks_again(verb) => {
                let state = value.as_str().map(Into::into);
                ask.state = Some(state.ok_or(Failure::Params("`requestState` is not a string"))?);
            }
            member => ask.extra.push((member.into(), value.fragment(&document))),
        }
    }
    if key.is_some() {
        let name = name.filter(|name| !name.contains('\0'));
        let missing = Failure::Params("what it is about is not given, or is not a string");
        ask.name = name.ok_or(missing)?.into();
    }
    Ok(ask)
}

/// Whether the answer to such a request may be a question, after which it is made again.
///
/// SPEC 2026-07-28 basic/patterns/mrtr#supported-requests
const fn asks_again(verb: Verb) -> bool {
    matches!(verb, Verb::Call | Verb::Get | Verb::Read)
}

/// The member of `params` that says which thing it is about.
const fn naming_member(verb: Verb) -> Option<&'static str> {
    match verb {
        Verb::Call | Verb::Get => Some("name"),
        Verb::Read | Verb::Subscribe | Verb::Unsubscribe => Some("uri"),
        Verb::CompletePrompt | Verb::CompleteTemplate => Some("ref"),
        Verb::Task(_) => Some("taskId"),
        Verb::Other => None,
    }
}

fn meta_of(ask: &mut UseAsk, meta: Value<'_>, document: &Arc<Document>) -> Result<(), Failure> {
    for (key, value) in meta.members() {
        match &*key {
            meta::VERSION | meta::CLIENT_INFO | meta::CLIENT_CAPABILITIES | meta::SUBSCRIPTION => {}
            // What of these goes on is written anew. Baggage is a way out for anything (SEP-414).
            meta::TRACE_PARENT | meta::TRACE_STATE | meta::BAGGAGE => {}
            meta::LOG_LEVEL => {
                let wrong = Failure::Params("the log level is none that the protocol has");
                ask.level = Some(is_level(value).then(|| value.raw().into()).ok_or(wrong)?);
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

/// Whether it is a log level of the protocol: a level is passed on, so it is one of a list.
fn is_level(value: Value<'_>) -> bool {
    value.as_str().is_some_and(|text| LEVELS.contains(&&*text))
}

/// The era table.
fn version(headers: &HeaderMap, method: &str, meta: Option<Value<'_>>) -> Result<Version, Failure> {
    let named = match headers::single(headers, header::VERSION) {
        Single::Absent => None,
        Single::Value(text) => Some(text),
        Single::Bad => {
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
    match (named, body, named.and_then(Version::parse)) {
        // SPEC 2026-07-28 basic/versioning: the revision has no such method.
        (_, Some(_), _) | (_, None, Some(Version::V2026July)) if handshake => Err(Failure::Removed),
        (_, None, _) if handshake => Ok(Version::LAST_LEGACY),
        (None, Some(_), _) => Err(Failure::HeaderMismatch("`MCP-Protocol-Version` is missing")),
        (Some(named), Some(body), _) if named != body => {
            Err(Failure::HeaderMismatch("`MCP-Protocol-Version` is not the version in the body"))
        }
        (Some(_), Some(_), Some(Version::V2026July)) => Ok(Version::V2026July),
        // Said in the modern way, but of a revision that has no such way, or of none we know.
        (Some(named), Some(_), _) | (Some(named), None, None) => unsupported(named),
        (Some(_), None, Some(Version::V2026July)) => {
            Err(Failure::Params("`_meta` has no `io.modelcontextprotocol/protocolVersion`"))
        }
        (Some(_), None, Some(legacy)) => Ok(legacy),
        // SPEC 2025-11-25 basic/transports#protocol-version-header
        (None, None, _) => Ok(Version::V2025March),
    }
}

/// The revision a handshake agrees on: the one asked for, if it is one with a handshake.
///
/// SPEC 2025-11-25 basic/lifecycle#version-negotiation
fn agreed(params: Option<&Fragment>) -> Version {
    let requested = params.and_then(|params| params.value().get("protocolVersion"));
    let requested = requested.and_then(Value::as_str).and_then(|text| Version::parse(&text));
    let legacy = requested.filter(|version| version.era() == Era::Legacy);
    legacy.unwrap_or(Version::LAST_LEGACY)
}

/// The version header of a message without a body of ours, when there is one we know.
fn header_version(headers: &HeaderMap) -> Result<Option<Version>, Failure> {
    match headers::single(headers, header::VERSION) {
        Single::Absent => Ok(None),
        Single::Value(text) => match Version::parse(text) {
            Some(version) => Ok(Some(version)),
            None => Err(Failure::Shape("`MCP-Protocol-Version` names no revision")),
        },
        Single::Bad => Err(Failure::HeaderMismatch("`MCP-Protocol-Version` is not one value")),
    }
}

/// SPEC 2026-07-28 basic/transports/streamable-http#server-validation
fn mirrored(headers: &HeaderMap, method: &str, params: Option<&Fragment>) -> Result<(), Failure> {
    if headers::single(headers, header::METHOD) != Single::Value(method) {
        return Err(Failure::HeaderMismatch("`Mcp-Method` is not the method in the body"));
    }
    let source = match method {
        method::TOOLS_CALL | method::PROMPTS_GET => "name",
        method::RESOURCES_READ => "uri",
        _ => return Ok(()),
    };
    let body = params.and_then(|params| params.value().get(source)).and_then(Value::as_str);
    let named = match headers::single(headers, header::NAME) {
        Single::Value(text) => headers::decode(text),
        Single::Absent | Single::Bad => None,
    };
    match (named, body) {
        (Some(named), Some(body)) if named == body => Ok(()),
        _ => Err(Failure::HeaderMismatch("`Mcp-Name` is not the name in the body")),
    }
}

/// What the client is doing this for: from the body before the headers (SEP-414), which become a
/// link where they say something else.
fn parents(headers: &HeaderMap, meta: Option<Value<'_>>) -> [Option<Parent>; 2] {
    let head = |name: &str| match headers::single(headers, name) {
        Single::Value(text) => Some(text),
        Single::Absent | Single::Bad => None,
    };
    let body = |name: &str| meta.and_then(|meta| meta.get(name)).and_then(Value::as_str);
    let read = |parent: Option<&str>, state: Option<&str>| {
        parent.and_then(Parent::read).map(|parent| parent.with_state(state))
    };
    let (parent, state) = (body(meta::TRACE_PARENT), body(meta::TRACE_STATE));
    let told = read(parent.as_deref(), state.as_deref());
    let told = told.map(|told| Parent { is_said: true, ..told });
    let around = read(head(meta::TRACE_PARENT), head(meta::TRACE_STATE));
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
