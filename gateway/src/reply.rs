//! Answers to clients, written for the era they ask in.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use policy::json::{Fragment, Value};

use crate::body::Body;
use crate::failure::Public;
use crate::protocol::{Era, Version, meta, method};
use crate::upstream::{Hello, Listing, Written};
use crate::wire::{self, Id, Object};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// An answer that is one JSON object.
pub fn json(body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// An answer that is a stream of events.
pub fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // SPEC 2026-07-28 basic/transports/streamable-http#receiving-messages
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// An error.
pub fn error(public: &Public, id: Option<&Id>) -> Response<Body> {
    let mut response = json(wire::error(id, public.code, &public.message, public.data.as_deref()));
    *response.status_mut() = public.status;
    let headers = response.headers_mut();
    match public.status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}

/// The answer to `ping`.
pub fn pong(id: &Id) -> Response<Body> {
    let mut out = wire::head(Some(id), 16);
    out.extend_from_slice(br#""result":{}}"#);
    json(out)
}

/// Who the gateway says it is: the one server behind it, or itself.
#[derive(Debug)]
pub struct Presentation {
    /// `serverInfo`, as JSON.
    info: String,
    /// `instructions`, as JSON; already found fit to be shown.
    instructions: Option<String>,
    tools: bool,
}

impl Presentation {
    /// Presents these servers. `shown` says whether a server's instructions may be.
    pub fn new(servers: &[Arc<Hello>], shown: impl Fn(&Fragment) -> bool) -> Self {
        let tools = servers.iter().any(|server| server.tools);
        let version = env!("CARGO_PKG_VERSION");
        let ourselves = format!(r#"{{"name":"portcullis","version":"{version}"}}"#);
        let [server] = servers else {
            return Self { info: ourselves, instructions: None, tools };
        };
        let raw = |fragment: &Fragment| fragment.value().raw().to_owned();
        Self {
            info: server.info.as_ref().map_or(ourselves, raw),
            instructions: server.instructions.as_ref().filter(|text| shown(text)).map(raw),
            tools,
        }
    }

    fn common(&self, result: &mut Object<'_>) {
        result.raw("capabilities", if self.tools { r#"{"tools":{}}"# } else { "{}" });
        if let Some(instructions) = &self.instructions {
            result.raw("instructions", instructions);
        }
    }

    /// The answer to `server/discover`.
    pub fn discovered(&self, id: &Id) -> Response<Body> {
        let mut out = wire::head(Some(id), 512);
        out.extend_from_slice(br#""result":"#);
        let mut result = Object::open(&mut out);
        result.text("resultType", "complete");
        result.raw("supportedVersions", concat!("[\"", "2026-07-28", "\"]"));
        self.common(&mut result);
        result.raw("ttlMs", "0");
        result.text("cacheScope", "private");
        let mut meta = Object::open(result.key("_meta"));
        meta.raw(meta::SERVER_INFO, &self.info);
        meta.close();
        result.close();
        out.push(b'}');
        json(out)
    }

    /// The answer to `initialize`.
    pub fn initialized(&self, id: &Id, version: Version) -> Response<Body> {
        let mut out = wire::head(Some(id), 512);
        out.extend_from_slice(br#""result":"#);
        let mut result = Object::open(&mut out);
        result.text("protocolVersion", version.as_str());
        self.common(&mut result);
        result.raw("serverInfo", &self.info);
        result.close();
        out.push(b'}');
        json(out)
    }
}

/// The answer to `tools/list`: what of each listing is shown.
///
/// The definitions are not copied; the envelope is written around them.
///
/// A list that lacks the tools of some server is stale at once.
pub fn tools(
    id: &Id,
    era: Era,
    shown: &[(Arc<Listing>, Arc<Written>)],
    whole: bool,
) -> Response<Body> {
    let mut parts = VecDeque::new();
    let mut out = wire::head(Some(id), 256);
    out.extend_from_slice(br#""result":{"#);
    if era == Era::Modern {
        out.extend_from_slice(br#""resultType":"complete","#);
    }
    out.extend_from_slice(br#""tools":["#);
    let mut empty = true;
    for (_, written) in shown.iter().filter(|(_, written)| !written.tools.is_empty()) {
        if !std::mem::replace(&mut empty, false) {
            out.push(b',');
        }
        parts.push_back(Bytes::from(std::mem::take(&mut out)));
        parts.push_back(written.tools.clone());
    }
    out.push(b']');
    if era == Era::Modern {
        let ttl = shown.iter().map(|(listing, _)| listing.ttl()).min().filter(|_| whole);
        let ttl = ttl.unwrap_or(0);
        out.extend_from_slice(br#","ttlMs":"#);
        out.extend_from_slice(itoa::Buffer::new().format(ttl).as_bytes());
        // What one caller sees is not for another.
        out.extend_from_slice(br#","cacheScope":"private""#);
    }
    if let [(listing, _)] = shown {
        for (key, value) in listing.extra() {
            out.push(b',');
            policy::json::write_string(&mut out, key);
            out.push(b':');
            out.extend_from_slice(value.value().raw().as_bytes());
        }
    }
    out.extend_from_slice(b"}}");
    parts.push_back(out.into());
    json(Body::Parts(parts))
}

/// A result as it came, in the envelope of our answer, with or without `resultType`.
pub fn result(id: &Id, era: Era, result: &Fragment) -> Body {
    let value = result.value();
    let kind = value.get("resultType");
    let mut parts = VecDeque::with_capacity(3);
    let mut out = wire::head(Some(id), 32);
    out.extend_from_slice(br#""result":"#);
    match (era, kind) {
        (Era::Modern, Some(_)) | (Era::Legacy, None) => {
            parts.push_back(out.into());
            parts.push_back(value.raw_bytes());
        }
        (Era::Modern, None) => {
            out.extend_from_slice(br#"{"resultType":"complete""#);
            out.push(if value.members().next().is_some() { b',' } else { b' ' });
            parts.push_back(out.into());
            parts.push_back(value.raw_bytes().slice(1..));
        }
        (Era::Legacy, Some(_)) => {
            let mut object = Object::open(&mut out);
            for (key, member) in value.members().filter(|(key, _)| key != "resultType") {
                object.raw(&key, member.raw());
            }
            object.close();
            parts.push_back(out.into());
        }
    }
    parts.push_back(Bytes::from_static(b"}"));
    Body::Parts(parts)
}

/// An error of a server, in the envelope of our answer.
pub fn server_error(id: &Id, error: &Fragment) -> Body {
    let mut out = wire::head(Some(id), 256);
    out.extend_from_slice(br#""error":"#);
    out.extend_from_slice(error.value().raw().as_bytes());
    out.push(b'}');
    out.into()
}

/// A progress notification under the client's own token.
#[must_use]
pub fn progress(token: &Id, params: &Fragment) -> Vec<u8> {
    let mut out = wire::head(None, 256);
    out.extend_from_slice(br#""method":""#);
    out.extend_from_slice(method::PROGRESS.as_bytes());
    out.extend_from_slice(br#"","params":"#);
    let mut object = Object::open(&mut out);
    token.write(object.key(meta::PROGRESS_TOKEN));
    let others = |(key, _): &(std::borrow::Cow<'_, str>, Value<'_>)| key != meta::PROGRESS_TOKEN;
    for (key, value) in params.value().members().filter(others) {
        object.raw(&key, value.raw());
    }
    object.close();
    out.push(b'}');
    out
}

/// The bytes of a body whose parts are all there.
#[must_use]
pub fn joined(body: Body) -> Vec<u8> {
    match body {
        Body::Parts(parts) => parts.into_iter().fold(Vec::new(), |mut all, part| {
            all.extend_from_slice(&part);
            all
        }),
        Body::Stream(_) => Vec::new(),
    }
}
