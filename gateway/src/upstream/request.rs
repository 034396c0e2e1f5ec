//! What is sent to a server: one inner form, written for the era the server speaks.

use bytes::Bytes;
use policy::json::{Fragment, write_string};
use policy::message::ToolCall;

use crate::protocol::{Era, Version, meta, method};
use crate::session::Leg;
use crate::wire::{self, Id, Object};

/// How we present ourselves to servers.
const OURSELVES: &str =
    concat!(r#"{"name":"portcullis","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
/// What we can do for servers that ask something of their client.
const CAPABILITIES: &str = "{}";

/// A message on its way to a server.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    /// Its id; `None` for a notification.
    pub(super) id: Option<i64>,
    /// What it asks for.
    pub(super) method: &'static str,
    /// The tool it is about, mirrored in a header for modern servers.
    pub(super) name: Option<&'a str>,
    /// The revision it is in.
    pub(super) version: Version,
    /// The legacy session it belongs to.
    pub(super) session: Option<&'a str>,
    /// The message.
    pub(super) body: Bytes,
}

/// The revision and session a message belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Speech<'a> {
    /// Everything is in the message.
    Modern,
    /// There was a handshake.
    Legacy(&'a Leg),
}

impl<'a> Speech<'a> {
    const fn version(self) -> Version {
        match self {
            Self::Modern => Version::V2026July,
            Self::Legacy(leg) => leg.version,
        }
    }

    fn session(self) -> Option<&'a str> {
        match self {
            Self::Modern => None,
            Self::Legacy(leg) => leg.id.as_deref(),
        }
    }
}

/// `server/discover`
pub(super) fn discover<'a>(id: i64) -> Outgoing<'a> {
    message(Some(id), method::DISCOVER, Speech::Modern, |params| own_meta(params, Era::Modern))
}

/// `initialize`, asking for `version`.
pub(super) fn initialize<'a>(id: i64, version: Version) -> Outgoing<'a> {
    let body = body(Some(id), method::INITIALIZE, |params| {
        params.text("protocolVersion", version.as_str());
        params.raw("capabilities", CAPABILITIES);
        params.raw("clientInfo", OURSELVES);
    });
    Outgoing { id: Some(id), method: method::INITIALIZE, name: None, version, session: None, body }
}

/// `notifications/initialized`
pub(super) fn initialized(leg: &Leg) -> Outgoing<'_> {
    message(None, method::INITIALIZED, Speech::Legacy(leg), |_| {})
}

/// `notifications/cancelled` for the request `id`.
pub(super) fn cancelled(id: i64, speech: Speech<'_>) -> Outgoing<'_> {
    message(None, method::CANCELLED, speech, |params| {
        Id::Number(id).write(params.key("requestId"));
        params.text("reason", "no longer wanted");
    })
}

/// One page of `tools/list`.
pub(super) fn tools<'a>(id: i64, cursor: Option<&str>, speech: Speech<'a>) -> Outgoing<'a> {
    message(Some(id), method::TOOLS_LIST, speech, |params| {
        if let Some(cursor) = cursor {
            params.text("cursor", cursor);
        }
        own_meta(params, speech.version().era());
    })
}

/// `tools/call`. With `progress` the server may tell how far it is; the token is the id.
pub(super) fn call<'a>(
    id: i64,
    call: &'a ToolCall,
    progress: bool,
    speech: Speech<'a>,
) -> Outgoing<'a> {
    let era = speech.version().era();
    let outgoing = message(Some(id), method::TOOLS_CALL, speech, |params| {
        params.text("name", &call.tool);
        if let Some(arguments) = &call.arguments {
            params.raw("arguments", arguments.value().raw());
        }
        copy(params, &call.extra);
        if era == Era::Legacy && call.meta.is_empty() && !progress {
            return;
        }
        let mut meta = Object::open(params.key("_meta"));
        protocol_meta(&mut meta, era);
        if progress {
            Id::Number(id).write(meta.key(meta::PROGRESS_TOKEN));
        }
        copy(&mut meta, &call.meta);
        meta.close();
    });
    Outgoing { name: Some(&call.tool), ..outgoing }
}

/// The answer to a request of a server.
pub(super) fn reply(body: Vec<u8>, speech: Speech<'_>) -> Outgoing<'_> {
    let (version, session) = (speech.version(), speech.session());
    Outgoing { id: None, method: method::PING, name: None, version, session, body: body.into() }
}

fn copy(object: &mut Object<'_>, members: &[(Box<str>, Fragment)]) {
    for (key, value) in members {
        object.raw(key, value.value().raw());
    }
}

fn own_meta(params: &mut Object<'_>, era: Era) {
    if era == Era::Modern {
        let mut meta = Object::open(params.key("_meta"));
        protocol_meta(&mut meta, era);
        meta.close();
    }
}

/// SPEC 2026-07-28 basic#meta, «per-request protocol fields»
fn protocol_meta(meta: &mut Object<'_>, era: Era) {
    if era == Era::Modern {
        meta.text(meta::VERSION, Version::V2026July.as_str());
        meta.raw(meta::CLIENT_INFO, OURSELVES);
        meta.raw(meta::CLIENT_CAPABILITIES, CAPABILITIES);
    }
}

fn message<'a>(
    id: Option<i64>,
    method: &'static str,
    speech: Speech<'a>,
    params: impl FnOnce(&mut Object<'_>),
) -> Outgoing<'a> {
    let (version, session) = (speech.version(), speech.session());
    Outgoing { id, method, name: None, version, session, body: body(id, method, params) }
}

fn body(id: Option<i64>, method: &str, params: impl FnOnce(&mut Object<'_>)) -> Bytes {
    let mut out = wire::head(id.map(Id::Number).as_ref(), 512);
    out.extend_from_slice(br#""method":"#);
    write_string(&mut out, method);
    out.extend_from_slice(br#","params":"#);
    let mut object = Object::open(&mut out);
    params(&mut object);
    object.close();
    out.push(b'}');
    out.into()
}
