//! What a client asks, free of the era it asks in.
//!
//! The era is decided once, by one table, from the version header, the version in the body and the
//! method; what those three leave open is refused (threats PV-12, PV-16, PV-17, PV-19).

use http::HeaderMap;
use policy::json::{Fragment, Value};

use crate::failure::Failure;
use crate::protocol::{Era, Version, header, meta, method};
use crate::wire::headers::{self, Single};
use crate::wire::{self, Id, Message};

/// A message of a client.
#[derive(Debug)]
pub struct Inbound {
    /// The revision it is in.
    pub version: Version,
    /// What it asks for.
    pub ask: Ask,
    /// The trace it belongs to, 32 hexadecimal digits.
    pub trace: Option<Box<str>>,
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
    /// Which tools are there?
    ListTools,
    /// Call one.
    CallTool(ToolAsk),
    /// Give up the request with this id (legacy).
    Cancel(Id),
    /// Something that wants no answer and has no effect here (legacy).
    Notice,
}

/// A call as it came.
#[derive(Debug)]
pub struct ToolAsk {
    /// The tool as the caller names it.
    pub name: Box<str>,
    /// Its arguments, an object.
    pub arguments: Option<Fragment>,
    /// Members of `params` we do not know.
    pub extra: Vec<(Box<str>, Fragment)>,
    /// Members of `_meta` we do not know.
    pub meta: Vec<(Box<str>, Fragment)>,
    /// The token that progress is to be reported under.
    pub progress: Option<Id>,
}

/// Members of `params` that are ours to write, or that nobody can use yet: an answer to a question
/// that was never asked is refused.
const UNASKED: [&str; 2] = ["inputResponses", "requestState"];

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
        Message::Response(_) => {
            // A legacy client may answer; nothing is ever asked of it here.
            return match header_version(headers)? {
                Some(version) if version.era() == Era::Modern => {
                    Err(Failure::Shape("a client sends no responses in this revision"))
                }
                version => Ok(Inbound {
                    version: version.unwrap_or(Version::V2025March),
                    ask: Ask::Notice,
                    trace: None,
                }),
            };
        }
    };
    let meta = params.as_ref().and_then(|params| params.value().get("_meta"));
    if meta.is_some_and(|meta| !meta.is_object() || wire::meta_is_misspelled(meta)) {
        return Err(Failure::Params("`_meta` is not an object with keys as specified"));
    }
    let version = version(headers, &method, meta)?;
    let version = if &*method == method::INITIALIZE { agreed(params.as_ref()) } else { version };
    *spoken = Some(version);
    if version.era() == Era::Modern {
        mirrored(headers, &method, params.as_ref())?;
        let capabilities = meta.and_then(|meta| meta.get(meta::CLIENT_CAPABILITIES));
        if !capabilities.is_some_and(Value::is_object) {
            return Err(Failure::Params(
                "`_meta` has no `io.modelcontextprotocol/clientCapabilities`",
            ));
        }
        if !wants_answer {
            return Err(Failure::Shape("a client sends no notifications in this revision"));
        }
    }
    let trace = trace(headers, meta);
    let ask = ask(version.era(), &method, params.as_ref(), wants_answer)?;
    Ok(Inbound { version, ask, trace })
}

fn ask(
    era: Era,
    method: &str,
    params: Option<&Fragment>,
    wants_answer: bool,
) -> Result<Ask, Failure> {
    let cursor = params.is_some_and(|params| params.value().get("cursor").is_some());
    match (era, method, wants_answer) {
        (Era::Modern, method::DISCOVER, true) => Ok(Ask::Discover),
        (Era::Legacy, method::INITIALIZE, true) => Ok(Ask::Initialize),
        (Era::Legacy, method::PING, true) => Ok(Ask::Ping),
        // Every page was read and shown at once, so there is no cursor of ours.
        (_, method::TOOLS_LIST, true) if cursor => Err(Failure::Params("unknown cursor")),
        (_, method::TOOLS_LIST, true) => Ok(Ask::ListTools),
        (_, method::TOOLS_CALL, true) => tool(params).map(Ask::CallTool),
        (Era::Legacy, method::CANCELLED, false) => {
            let id = params.and_then(|params| params.value().get("requestId")).and_then(Id::read);
            Ok(id.map_or(Ask::Notice, Ask::Cancel))
        }
        (Era::Legacy, _, false) => Ok(Ask::Notice),
        (_, _, _) => Err(Failure::Method),
    }
}

fn tool(params: Option<&Fragment>) -> Result<ToolAsk, Failure> {
    let params = params.ok_or(Failure::Params("`params` is missing"))?;
    let document = params.document();
    let (mut name, mut arguments, mut progress) = (None, None, None);
    let (mut extra, mut meta) = (Vec::new(), Vec::new());
    for (key, value) in params.value().members() {
        match &*key {
            "name" => name = value.as_str(),
            "arguments" if value.is_object() => arguments = Some(value.fragment(&document)),
            "arguments" => return Err(Failure::Params("`arguments` is not an object")),
            "_meta" => {
                for (key, value) in value.members() {
                    match &*key {
                        meta::VERSION
                        | meta::CLIENT_INFO
                        | meta::CLIENT_CAPABILITIES
                        | meta::LOG_LEVEL => {}
                        meta::PROGRESS_TOKEN => {
                            let token = Id::read(value);
                            progress = Some(token.ok_or(Failure::Params(
                                "`progressToken` is not a string or an integer",
                            ))?);
                        }
                        _ => meta.push((key.into(), value.fragment(&document))),
                    }
                }
            }
            key if UNASKED.contains(&key) => {
                return Err(Failure::Params("nothing was asked that this could be the answer to"));
            }
            _ => extra.push((key.into(), value.fragment(&document))),
        }
    }
    let name = name.filter(|name| !name.contains('\0'));
    let name = name.ok_or(Failure::Params("`name` is not a string"))?.into();
    Ok(ToolAsk { name, arguments, extra, meta, progress })
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
        (_, Some(_), _) if handshake => {
            Err(Failure::Shape("`initialize` does not exist in the revision the body names"))
        }
        (_, None, Some(Version::V2026July)) if handshake => {
            Err(Failure::Shape("`initialize` does not exist in the revision the header names"))
        }
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
        method::TOOLS_CALL | "prompts/get" => "name",
        "resources/read" => "uri",
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

/// The trace id of W3C Trace Context, from the body before the header (SEP-414).
///
/// <https://www.w3.org/TR/trace-context/#traceparent-header>
fn trace(headers: &HeaderMap, meta: Option<Value<'_>>) -> Option<Box<str>> {
    let body = meta.and_then(|meta| meta.get(meta::TRACE_PARENT)).and_then(Value::as_str);
    let head = match headers::single(headers, meta::TRACE_PARENT) {
        Single::Value(text) => Some(text),
        Single::Absent | Single::Bad => None,
    };
    let text = body.as_deref().or(head)?;
    let mut parts = text.split('-');
    let hex = |part: Option<&str>, length: usize| {
        let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        part.is_some_and(|part| part.len() == length && part.bytes().all(lower))
    };
    let version = hex(parts.next(), 2);
    let trace = parts.next();
    let rest = hex(parts.next(), 16) && hex(parts.next(), 2);
    let good = version && hex(trace, 32) && rest && trace != Some(&"0".repeat(32));
    trace.filter(|_| good).map(Into::into)
}

#[cfg(test)]
mod tests;
