//! What the gateway reads of messages, a line each, for the comparison with the readers of SDKs (`run`).
//!
//!     differential gateway    reads hexadecimal messages and writes what the gateway decides on
//!     differential uri        reads hexadecimal URIs and writes their canonical form
//!
//! A reading is a line of fields with tabs between them, and no reader writes it in another way: the kind of message,
//! the method, the id, the name, the arguments and the URI. Strings are JSON in ASCII, and numbers are the bits of
//! their double, so that what is equal is equal as text. `refused` is a message that the gateway does not accept.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a tool for comparing readers"
)]

use std::env;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufWriter, Write as _, stdin, stdout};

use bytes::Bytes;
use gateway::edge::decode::{ClientOperation, UseOperation, read};
use gateway::mcp::protocol::ProtocolVersion;
use gateway::mcp::wire::{self, Id, Message, headers};
use gateway::upstream::call_text;
use http::{HeaderMap, HeaderName, HeaderValue};
use json::{Fragment, JsonBounds, JsonKind, Value, hex};
use policy::engine::message::{ItemRequest, RequestOperation};
use policy_core::subject::name::ServerName;
use policy_core::subject::uri::ResourceUri;

fn main() {
    let mode = env::args().nth(1).unwrap_or_default();
    let answer: fn(&[u8]) -> String = match mode.as_str() {
        "gateway" => gateway,
        "uri" => uri,
        _ => panic!("differential gateway | differential uri"),
    };
    let mut out = BufWriter::new(stdout());
    for line in stdin().lock().lines() {
        let line = line.unwrap();
        // An empty line asks for what was written so far.
        if line.is_empty() {
            out.flush().unwrap();
            continue;
        }
        writeln!(out, "{}", answer(&hex::decode(&line).unwrap())).unwrap();
    }
    out.flush().unwrap();
}

/// What a message is, in the form in which it is compared.
struct Reading {
    kind: &'static str,
    method: String,
    id: String,
    name: String,
    arguments: String,
    uri: String,
}

impl Reading {
    fn new(kind: &'static str) -> Self {
        let absent = || "-".to_owned();
        Self {
            kind,
            method: absent(),
            id: absent(),
            name: absent(),
            arguments: absent(),
            uri: absent(),
        }
    }

    fn line(&self) -> String {
        let Self { kind, method, id, name, arguments, uri } = self;
        format!("{kind}\t{method}\t{id}\t{name}\t{arguments}\t{uri}")
    }
}

/// What the gateway decides on, then whether a number is none that a double holds, the reading of `serde_json`, and the
/// text that a server of either era is sent.
fn gateway(text: &[u8]) -> String {
    let Some((reading, inexact, call)) = decided(text) else { return "refused".to_owned() };
    let other = by_serde(text).map_or("refused".to_owned(), |reading| reading.line());
    let sent = |version| {
        call.as_ref().map_or("-".to_owned(), |call| hex::encode(&call_text(call, version)))
    };
    let (legacy, modern) = (sent(ProtocolVersion::LAST_LEGACY), sent(ProtocolVersion::V2026July));
    let inexact = if inexact { "inexact" } else { "exact" };
    // The fields of the second reader have tabs of their own.
    let other = hex::encode(other.as_bytes());
    format!("{}\t{inexact}\t{other}\t{legacy}\t{modern}", reading.line())
}

/// Decodes a message as it would be decoded from a client whose headers agree with it.
fn decided(text: &[u8]) -> Option<(Reading, bool, Option<ItemRequest>)> {
    let message = wire::decode(Bytes::copy_from_slice(text), &JsonBounds::MESSAGE).ok()?;
    let (kind, id, method, params) = match &message {
        Message::Request(request) => (
            "request",
            Some(request.id.clone()),
            Some(request.method.clone()),
            request.params.clone(),
        ),
        Message::Notification(told) => {
            ("notification", None, Some(told.method.clone()), told.params.clone())
        }
        Message::Response(response) => ("response", response.id.clone(), None, None),
    };
    let headers = headers_for(method.as_deref(), params.as_ref());
    let inbound = read(&headers, message, &mut None).ok()?;
    // A response to no request is dropped.
    if kind == "response" && matches!(inbound.ask, ClientOperation::Notice) {
        return None;
    }
    let mut reading = Reading::new(kind);
    reading.method = method.as_deref().map_or("-".to_owned(), quoted);
    reading.id = id.map_or("-".to_owned(), |id| written_id(&id));
    let (mut inexact, mut call) = (false, None);
    if let ClientOperation::Use(used) | ClientOperation::Tell(used) = inbound.ask {
        let is_uri = matches!(
            used.verb,
            RequestOperation::Read
                | RequestOperation::GetSkill
                | RequestOperation::Subscribe
                | RequestOperation::Unsubscribe
        );
        if is_uri {
            // No rule allows a URI without a canonical form.
            ResourceUri::parse(&used.name).ok()?;
            reading.uri = quoted(&used.name);
        } else if used.verb != RequestOperation::Other {
            reading.name = quoted(&used.name);
        }
        if let Some(arguments) = &used.arguments {
            reading.arguments = canonical(arguments.value());
            inexact = json::write_canonical(&mut Vec::new(), arguments.value()).is_err();
        }
        // A message without an id is not written as a call.
        call = (kind == "request").then(|| item(*used));
    }
    Some((reading, inexact, call))
}

/// The request as the policy decides about it, with every member that the gateway would pass on.
fn item(used: UseOperation) -> ItemRequest {
    let UseOperation { verb, name, arguments, extra, meta, .. } = used;
    ItemRequest { server: ServerName::parse("up").unwrap(), verb, name, arguments, extra, meta }
}

/// The headers that an honest client of the era of the message sends with it.
fn headers_for(method: Option<&str>, params: Option<&Fragment>) -> HeaderMap {
    let mut map = HeaderMap::new();
    let params = params.map(Fragment::value);
    let meta = params.and_then(|params| params.get("_meta"));
    let version = meta.and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion"));
    let Some(version) = version.and_then(Value::as_str) else { return map };
    let mut insert = |name: &'static str, value: HeaderValue| {
        map.insert(HeaderName::from_static(name), value);
    };
    insert("mcp-protocol-version", headers::encode(&version));
    if let Some(method) = method.and_then(|method| HeaderValue::from_str(method).ok()) {
        insert("mcp-method", method);
    }
    let name = params.and_then(|params| params.get("name").or_else(|| params.get("uri")));
    if let Some(name) = name.and_then(Value::as_str) {
        insert("mcp-name", headers::encode(&name));
    }
    map
}

fn written_id(id: &Id) -> String {
    match id {
        Id::Number(number) => double(&number.to_string()),
        Id::Text(text) => quoted(text),
    }
}

/// A string as JSON in ASCII.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").unwrap();
                }
            }
        }
    }
    out.push('"');
    out
}

/// A number as the bits of its double; a zero has no sign, and one that is too large is infinite.
fn double(spelled: &str) -> String {
    let number = spelled.parse::<f64>().unwrap() + 0.0;
    format!("n{:016x}", number.to_bits())
}

/// A value with its members in the order of their code points.
fn canonical(value: Value<'_>) -> String {
    match value.kind() {
        JsonKind::Null | JsonKind::Boolean => value.raw().to_owned(),
        JsonKind::Number => double(value.raw()),
        JsonKind::Plain | JsonKind::Escaped => quoted(&value.as_str().unwrap()),
        JsonKind::Array => {
            let items: Vec<_> = value.items().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        JsonKind::Object => {
            let mut members: Vec<_> = value.members().collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            let members = members.into_iter();
            let members: Vec<_> = members
                .map(|(key, value)| format!("{}:{}", quoted(&key), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// The message as a program reads it that uses `serde_json` without a schema.
fn by_serde(text: &[u8]) -> Option<Reading> {
    let message: serde_json::Value = serde_json::from_slice(text).ok()?;
    let id = message.get("id");
    let method = message.get("method").and_then(serde_json::Value::as_str);
    let kind = match (method, id) {
        (Some(_), Some(_)) => "request",
        (Some(_), None) => "notification",
        (None, _) => "response",
    };
    let mut reading = Reading::new(kind);
    reading.method = method.map_or("-".to_owned(), quoted);
    reading.id = id.filter(|id| !id.is_null()).map_or("-".to_owned(), loose);
    let params = message.get("params").unwrap_or(&serde_json::Value::Null);
    let text = |value: Option<&serde_json::Value>| {
        value.and_then(serde_json::Value::as_str).map_or("-".to_owned(), quoted)
    };
    match method {
        Some("tools/call" | "prompts/get") => {
            reading.name = text(params.get("name"));
            reading.arguments = params.get("arguments").map_or("-".to_owned(), loose);
        }
        Some("resources/read" | "resources/subscribe" | "resources/unsubscribe" | "skills/get") => {
            reading.uri = text(params.get("uri"));
        }
        Some("completion/complete") => {
            let reference = params.get("ref").unwrap_or(&serde_json::Value::Null);
            let member = if reference["type"] == "ref/prompt" { "name" } else { "uri" };
            reading.name = text(reference.get(member));
        }
        Some("tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel") => {
            reading.name = text(params.get("taskId"));
        }
        _ => {}
    }
    Some(reading)
}

/// [`canonical`] of a value that `serde_json` has read.
fn loose(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "null".to_owned(),
        serde_json::Value::Bool(flag) => flag.to_string(),
        serde_json::Value::Number(number) => double(&number.to_string()),
        serde_json::Value::String(text) => quoted(text),
        serde_json::Value::Array(items) => {
            let items: Vec<_> = items.iter().map(loose).collect();
            format!("[{}]", items.join(","))
        }
        serde_json::Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            let members = members.into_iter();
            let members: Vec<_> =
                members.map(|(key, value)| format!("{}:{}", quoted(key), loose(value))).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// The canonical form of a URI as JSON, and `refused` if it has none.
fn uri(text: &[u8]) -> String {
    let uri = std::str::from_utf8(text).ok().and_then(|text| ResourceUri::parse(text).ok());
    uri.map_or("refused".to_owned(), |uri| quoted(uri.as_str()))
}
