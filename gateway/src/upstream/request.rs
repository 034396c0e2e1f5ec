//! What is sent to a server: one inner form, written for the era the server speaks.

use std::time::Duration;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use policy::json::{Fragment, write_string};
use policy::message::{Task, Use, Verb};
use policy::mirror::Mirrored;
use policy::offer::Kind;

use super::on_behalf_of::{Party, Subject};
use crate::base::share::{Holder, Share};
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, Version, code, header, meta, method};
use crate::mcp::trace_context::Told;
use crate::mcp::wire::{self, Id, Object, headers};
use crate::session::Leg;
use crate::stream::body::Segments;

/// A message on its way to a server.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    /// Its id; `None` for a notification.
    pub(super) id: Option<i64>,
    /// What it asks for.
    pub(super) method: Cow<'a, str>,
    /// What it is about, mirrored in a header for modern servers.
    pub(super) name: Option<&'a str>,
    /// Arguments, mirrored likewise.
    pub(super) mirrored: Vec<(HeaderName, HeaderValue)>,
    /// The revision it is in.
    pub(super) version: Version,
    /// The session it belongs to.
    pub(super) session: Option<&'a str>,
    /// What the client behind it takes beside the answer.
    pub(super) takes: Takes,
    /// The token of the caller behind it.
    pub(super) subject: Option<&'a Arc<Subject>>,
    /// The id of the caller who waits for the answer; `None` where it is the gateway.
    pub(super) caller: Option<&'a str>,
    /// The trace it belongs to.
    pub(super) trace: Option<HeaderValue>,
    /// The part of its caller's share of bytes of requests that it takes as long as it waits to be sent.
    pub(super) share: Option<Arc<Share<Holder>>>,
    /// The message.
    pub(super) body: Segments,
}

/// What the client behind a request takes beside the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Takes {
    /// It may be asked something.
    pub(super) questions: bool,
    /// It wants to be told how far the request is.
    pub(super) progress: bool,
}

/// Who speaks, and in which era.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speaker<'a> {
    /// What the client behind us says of itself; a legacy server knows it already.
    pub(super) client: &'a Client,
    /// The session; without one everything is in the message.
    pub(super) leg: Option<&'a Leg>,
    /// The token of the caller we speak for.
    pub(super) subject: Option<&'a Arc<Subject>>,
    /// The id of the caller we speak for.
    pub(super) caller: Option<&'a str>,
}

impl Party {
    /// The party as it speaks in the session `leg`.
    pub(super) fn speaker<'a>(&'a self, leg: Option<&'a Leg>) -> Speaker<'a> {
        let (subject, caller) = (self.subject.as_ref(), self.caller());
        Speaker { client: &self.client, leg, subject, caller }
    }
}

impl<'a> Speaker<'a> {
    /// The gateway itself, to a server it knows nothing of.
    pub(super) fn stranger() -> Self {
        Self { client: Client::gateway(), leg: None, subject: None, caller: None }
    }

    pub(super) fn version(self) -> Version {
        self.leg.map_or(Version::V2026July, |leg| leg.version)
    }

    pub(super) fn era(self) -> Era {
        self.version().era()
    }

    pub(super) fn session(self) -> Option<&'a str> {
        self.leg.and_then(|leg| leg.id.as_deref())
    }

    fn meta(self, meta: &mut Object<'_>) {
        // SPEC 2026-07-28 basic#meta, «per-request protocol fields»
        if self.era() == Era::Modern {
            meta.text(meta::VERSION, Version::V2026July.as_str());
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

/// How a call is made, besides what is called.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// The server may tell how far it is.
    pub progress: bool,
    /// The least severe log message that is wanted, as JSON.
    pub level: Option<Box<str>>,
    /// The client's answers to what the server asked.
    pub inputs: Option<Fragment>,
    /// What the server wants to be reminded of.
    pub state: Option<Box<str>>,
    /// The arguments that are repeated in headers.
    pub mirrored: Vec<Mirrored>,
    /// The client can be asked something while it waits.
    pub asks: bool,
    /// How long it may take, if less than any may.
    pub timeout: Option<Duration>,
    /// The trace it belongs to.
    pub trace: Option<Box<Told>>,
    /// The part of its caller's share of bytes of requests that it takes, kept as long as it waits to be sent.
    pub share: Option<Arc<Share<Holder>>>,
}

impl Manner {
    /// What the client takes beside the answer.
    pub(super) const fn takes(&self) -> Takes {
        Takes { questions: self.asks, progress: self.progress }
    }

    /// How long it may take where any may take `total`.
    pub(super) fn patience(&self, total: Duration) -> Duration {
        self.timeout.map_or(total, |timeout| timeout.min(total))
    }
}

/// `server/discover`
pub(super) fn discover<'a>(id: i64, speaker: Speaker<'a>) -> Outgoing<'a> {
    message(Some(id), method::DISCOVER, speaker, |params| speaker.own_meta(params))
}

/// `initialize`, asking for `version`.
pub(super) fn initialize<'a>(
    id: i64,
    version: Version,
    party: &'a Party,
    session: Option<&'a str>,
) -> Outgoing<'a> {
    let client = &party.client;
    let body = body(Some(id), method::INITIALIZE, |params, _long| {
        params.text("protocolVersion", version.as_str());
        params.raw("capabilities", client.capabilities());
        params.raw("clientInfo", client.info());
    });
    let outgoing = outgoing(Some(id), method::INITIALIZE, version, session, body);
    Outgoing { subject: party.subject.as_ref(), caller: party.caller(), ..outgoing }
}

/// `notifications/initialized`
pub(super) fn initialized<'a>(party: &'a Party, leg: &'a Leg) -> Outgoing<'a> {
    message(None, method::INITIALIZED, party.speaker(Some(leg)), |_| {})
}

/// `notifications/cancelled` for the request `id`.
pub(super) fn cancelled<'a>(id: i64, speaker: Speaker<'a>) -> Outgoing<'a> {
    message(None, method::CANCELLED, speaker, |params| {
        Id::Number(id).write(params.key("requestId"));
        params.text("reason", "no longer wanted");
    })
}

/// One page of a list.
pub(super) fn list<'a>(
    id: i64,
    kind: Kind,
    cursor: Option<&str>,
    speaker: Speaker<'a>,
) -> Outgoing<'a> {
    message(Some(id), method::list(kind), speaker, |params| {
        if let Some(cursor) = cursor {
            params.text("cursor", cursor);
        }
        speaker.own_meta(params);
    })
}

/// A call. The progress token is the id.
pub(super) fn call<'a>(
    id: i64,
    call: &'a Use,
    manner: &Manner,
    speaker: Speaker<'a>,
) -> Outgoing<'a> {
    let modern = speaker.era() == Era::Modern;
    let (method, key) = match call.verb {
        Verb::Call => (method::TOOLS_CALL, Some("name")),
        Verb::Get => (method::PROMPTS_GET, Some("name")),
        Verb::Read => (method::RESOURCES_READ, Some("uri")),
        Verb::Subscribe => (method::SUBSCRIBE, Some("uri")),
        Verb::Unsubscribe => (method::UNSUBSCRIBE, Some("uri")),
        Verb::CompletePrompt | Verb::CompleteTemplate => (method::COMPLETE, None),
        Verb::Task(Task::Get) => (method::TASKS_GET, None),
        Verb::Task(Task::Result) => (method::TASKS_RESULT, None),
        Verb::Task(Task::Update) => (method::TASKS_UPDATE, None),
        Verb::Task(Task::Cancel) => (method::TASKS_CANCEL, None),
        Verb::Other => (&*call.name, None),
    };
    let outgoing = woven(Some(id), method, speaker, |params, long| {
        if let Some(key) = key {
            params.text(key, &call.name);
        }
        if let Some((kind, key)) = reference(call.verb) {
            let mut reference = Object::open(params.key("ref"));
            reference.text("type", kind);
            reference.text(key, &call.name);
            reference.close();
        }
        if let Some(arguments) = &call.arguments {
            long.member(params, "arguments", arguments);
        }
        long.copy(params, &call.extra);
        if let Some(inputs) = manner.inputs.as_ref().filter(|_| modern) {
            long.member(params, "inputResponses", inputs);
        }
        if let Some(state) = manner.state.as_ref().filter(|_| modern) {
            params.text("requestState", state);
        }
        if !modern && call.meta.is_empty() && !manner.progress && manner.trace.is_none() {
            return;
        }
        let mut meta = Object::open(params.key("_meta"));
        speaker.meta(&mut meta);
        if let Some(level) = manner.level.as_ref().filter(|_| modern) {
            meta.raw(meta::LOG_LEVEL, level);
        }
        if manner.progress {
            Id::Number(id).write(meta.key(meta::PROGRESS_TOKEN));
        }
        if let Some(Told { parent, state }) = manner.trace.as_deref() {
            meta.text(meta::TRACE_PARENT, parent);
            if let Some(state) = state {
                meta.text(meta::TRACE_STATE, state);
            }
        }
        long.copy(&mut meta, &call.meta);
        meta.close();
    });
    let name = key.filter(|_| call.verb.kind() != Kind::Method).map(|_| &*call.name);
    let mirrored = if modern { mirrored(call, &manner.mirrored) } else { Vec::new() };
    let trace = manner.trace.as_ref().and_then(|trace| HeaderValue::from_str(&trace.parent).ok());
    let share = manner.share.clone();
    Outgoing { name, mirrored, takes: manner.takes(), trace, share, ..outgoing }
}

/// `subscriptions/listen`
pub(super) fn listen<'a>(id: i64, wants: &super::Wants, speaker: Speaker<'a>) -> Outgoing<'a> {
    message(Some(id), method::LISTEN, speaker, |params| {
        let mut filter = Object::open(params.key("notifications"));
        wants.show(&mut filter);
        filter.close();
        speaker.own_meta(params);
    })
}

/// Something with the params of the peer, under whatever method; with an `id` a request.
pub(super) fn other<'a>(
    id: Option<i64>,
    method: &'a str,
    params: &[(Box<str>, Fragment)],
    meta: &[(Box<str>, Fragment)],
    speaker: Speaker<'a>,
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

/// The answer to a request of a server.
pub(super) fn reply<'a>(body: Vec<u8>, speaker: Speaker<'a>) -> Outgoing<'a> {
    let outgoing = outgoing(None, method::PING, speaker.version(), speaker.session(), body.into());
    Outgoing { subject: speaker.subject, caller: speaker.caller, ..outgoing }
}

/// What a server that asks something of its client is told where there is no client to ask, and `why`: `ping`
/// is answered, nothing else is offered.
pub(super) fn unasked(request: &wire::Request, why: &'static str) -> Vec<u8> {
    if request.method.as_ref() == method::PING {
        let mut out = wire::head(Some(&request.id), 16);
        out.extend_from_slice(br#""result":{}}"#);
        return out;
    }
    wire::error(Some(&request.id), code::METHOD, why, None)
}

const fn reference(verb: Verb) -> Option<(&'static str, &'static str)> {
    match verb {
        Verb::CompletePrompt => Some(("ref/prompt", "name")),
        Verb::CompleteTemplate => Some(("ref/resource", "uri")),
        Verb::Call
        | Verb::Get
        | Verb::Read
        | Verb::Subscribe
        | Verb::Unsubscribe
        | Verb::Task(_)
        | Verb::Other => None,
    }
}

/// SPEC 2026-07-28 basic/transports/streamable-http#client-behavior
fn mirrored(call: &Use, which: &[Mirrored]) -> Vec<(HeaderName, HeaderValue)> {
    let arguments = call.arguments.as_ref().map(Fragment::value);
    let header = |mirrored: &Mirrored| {
        let name = format!("{}{}", header::PARAM, mirrored.header);
        let name = HeaderName::try_from(name).ok()?;
        Some((name, headers::encode(&mirrored.value(arguments)?)))
    };
    which.iter().filter_map(header).collect()
}

/// Bytes from which on a value is sent as the part of the text in which it came, and not copied.
const LONG: usize = 16 * 1024;

/// Values of a message that are long, each with the place in its text where it belongs.
#[derive(Debug, Default)]
struct Long(Vec<(usize, Bytes)>);

impl Long {
    /// Writes a member; of a value that is long only its place.
    fn member(&mut self, object: &mut Object<'_>, key: &str, value: &Fragment) {
        let (value, out) = (value.value(), object.key(key));
        if value.span().len() < LONG {
            out.extend_from_slice(value.raw().as_bytes());
        } else {
            self.0.push((out.len(), value.raw_bytes()));
        }
    }

    /// Writes these members.
    fn copy(&mut self, object: &mut Object<'_>, members: &[(Box<str>, Fragment)]) {
        for (key, value) in members {
            self.member(object, key, value);
        }
    }
}

fn message<'a>(
    id: Option<i64>,
    method: &'a str,
    speaker: Speaker<'a>,
    params: impl FnOnce(&mut Object<'_>),
) -> Outgoing<'a> {
    woven(id, method, speaker, |object, _long| params(object))
}

/// The same with parts that are long: they are not copied.
fn woven<'a>(
    id: Option<i64>,
    method: &'a str,
    speaker: Speaker<'a>,
    params: impl FnOnce(&mut Object<'_>, &mut Long),
) -> Outgoing<'a> {
    let body = body(id, method, params);
    let outgoing = outgoing(id, method, speaker.version(), speaker.session(), body);
    Outgoing { subject: speaker.subject, caller: speaker.caller, ..outgoing }
}

fn outgoing<'a>(
    id: Option<i64>,
    method: &'a str,
    version: Version,
    session: Option<&'a str>,
    body: Segments,
) -> Outgoing<'a> {
    let (method, mirrored) = (Cow::Borrowed(method), Vec::new());
    let (name, takes, subject, caller) = (None, Takes::default(), None, None);
    let (trace, share) = (None, None);
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
        share,
        body,
    }
}

fn body(
    id: Option<i64>,
    method: &str,
    params: impl FnOnce(&mut Object<'_>, &mut Long),
) -> Segments {
    let mut out = wire::head(id.map(Id::Number).as_ref(), 512);
    out.extend_from_slice(br#""method":"#);
    write_string(&mut out, method);
    out.extend_from_slice(br#","params":"#);
    let (mut object, mut long) = (Object::open(&mut out), Long::default());
    params(&mut object, &mut long);
    object.close();
    out.push(b'}');
    Segments::woven(out, long.0)
}
