//! Encodes responses and messages to clients, in the protocol revision of the client. Nothing here decides what a client
//! may see: the words of a server are taken as [`Shown`], or as a [`RenderedView`], which only the policy releases. What the
//! gateway says itself has functions of its own, which take no words of a server.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use json::Value;
use policy::definition::offer::ItemKind;
use policy::engine::pipeline::Shown;
use policy::engine::places::is_meta;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;

use crate::edge::denial::ToolDenial;
use crate::edge::failure::{PublicError, RETRY_SOON_SECONDS};
use crate::mcp::protocol::{Era, LEVELS, code, meta, method};
use crate::mcp::wire::{self, Id, Object};
use crate::session::approvals::{ApprovalForm, FORM_KEY};
use crate::stream::body::Body;
use crate::stream::sse;
use crate::upstream::{InputRequest, Listing, RenderedItem, RenderedView, ShortList};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A response with a JSON body.
pub fn json(body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A response with a stream of events.
pub fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // SPEC 2026-07-28 basic/transports/streamable-http#receiving-messages
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Turns a JSON response into a stream of one event.
pub fn one_event(response: Response<Body>) -> Response<Body> {
    events(sse::encode(&joined(response.into_body())).into())
}

/// A response without a body.
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A 503 response without a body, for requests that no configuration can serve now.
pub fn unavailable() -> Response<Body> {
    let mut response = empty(StatusCode::SERVICE_UNAVAILABLE);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_SOON_SECONDS));
    response
}

/// A JSON-RPC error response, with the HTTP headers that belong to its status.
pub fn error(public: &PublicError, id: Option<&Id>) -> Response<Body> {
    let mut response = json(wire::error(id, public.code, &public.message, public.data.as_deref()));
    *response.status_mut() = public.status;
    let headers = response.headers_mut();
    match public.status {
        StatusCode::UNAUTHORIZED if public.challenge.is_none() => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
        }
        _ => {}
    }
    // Both statuses come with `Retry-After`. In a legacy session the status is 200, and the header carries the delay.
    let comes_back =
        [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&public.status);
    let wait = public.retry_after.or(comes_back.then_some(RETRY_SOON_SECONDS));
    headers.extend(wait.map(|wait| (RETRY_AFTER, HeaderValue::from(wait))));
    headers.extend(public.challenge.clone().map(|challenge| (WWW_AUTHENTICATE, challenge)));
    let nonce = public.nonce.clone();
    headers.extend(nonce.map(|nonce| (HeaderName::from_static("dpop-nonce"), nonce)));
    response
}

/// The response to `ping`.
pub fn pong(id: &Id) -> Response<Body> {
    let mut out = wire::head(Some(id), 16);
    out.extend_from_slice(br#""result":{}}"#);
    json(out)
}

/// A response with an empty result.
pub fn empty_result(id: &Id) -> Response<Body> {
    pong(id)
}

/// What a list has: the definitions of servers, and those of decoys.
#[derive(Debug)]
pub struct ListedItems<'a> {
    /// The listings of the servers, each as it is written for the caller.
    pub shown: &'a [(Arc<Listing>, Arc<RenderedView>)],
    /// The same definitions with shorter descriptions, in this order; empty if they are written as they are.
    pub short: &'a [Arc<ShortList>],
    /// Those of servers that are written; `None` for all.
    pub only: Option<ListedNames<'a>>,
    /// The definitions of the gateway itself that the caller is shown, as JSON: decoys, the tool of the channel between two
    /// planners and the tools of discovery. They are words of the gateway and of the configuration.
    pub own: Vec<Vec<u8>>,
}

/// The names on a route of the definitions that its list has.
#[derive(Clone, Copy, Debug)]
pub struct ListedNames<'a> {
    /// Patterns for those that every list has.
    pub patterns: &'a [Pattern],
    /// Those that the caller has found; `None` if its list does not follow that.
    pub loaded: Option<&'a BTreeSet<Box<str>>>,
}

impl ListedNames<'_> {
    fn has(&self, name: &str) -> bool {
        is_among(name, self.patterns) || self.loaded.is_some_and(|loaded| loaded.contains(name))
    }
}

impl ListedItems<'_> {
    /// The definitions of the servers as JSON, in pieces between which commas are missing.
    fn pieces(&self) -> impl Iterator<Item = Bytes> {
        let pieces = self.shown.iter().enumerate().flat_map(|(n, (_, written))| {
            let short = self.short.get(n);
            let Some(only) = self.only else {
                return vec![short.map_or(written.offers(), |short| short.offers()).clone()];
            };
            let items = written.items().iter().enumerate();
            let kept = items.filter(|(_, item)| only.has(item.name()));
            let definition = |(index, item): (usize, &RenderedItem)| match short {
                Some(short) => short.definition(index),
                None => written.definition(item),
            };
            kept.map(definition).collect()
        });
        pieces.filter(|piece| !piece.is_empty())
    }

    /// How many definitions of servers are written.
    #[must_use]
    pub fn count(&self) -> usize {
        let items = self.shown.iter().flat_map(|(_, written)| written.items());
        items.filter(|item| self.only.is_none_or(|only| only.has(item.name()))).count()
    }
}

/// Whether one of the patterns matches the name of a tool on its route.
#[must_use]
pub fn is_among(name: &str, patterns: &[Pattern]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

/// The response to a list request: the visible definitions of each listing, with the members of `extra` in the result.
/// `missing` names the servers whose definitions could not be listed.
///
/// The definitions are not copied; the envelope is written around them. A list with missing servers is marked as
/// partial and has a lifetime of zero.
pub fn list(
    id: &Id,
    era: Era,
    kind: ItemKind,
    items: &ListedItems<'_>,
    extra: Option<&Shown>,
    missing: &[ServerName],
) -> Response<Body> {
    let mut parts = VecDeque::new();
    let mut out = wire::head(Some(id), 256);
    out.extend_from_slice(br#""result":{"#);
    if era == Era::Modern {
        out.extend_from_slice(br#""resultType":"complete","#);
    }
    out.push(b'"');
    out.extend_from_slice(kind.list().as_bytes());
    out.extend_from_slice(br#"":["#);
    let mut empty = true;
    for piece in items.pieces() {
        if !std::mem::replace(&mut empty, false) {
            out.push(b',');
        }
        parts.push_back(Bytes::from(std::mem::take(&mut out)));
        parts.push_back(piece);
    }
    for own in &items.own {
        if !std::mem::replace(&mut empty, false) {
            out.push(b',');
        }
        out.extend_from_slice(own);
    }
    out.push(b']');
    let mut result = Object::resume(&mut out);
    if era == Era::Modern {
        let ttl = items.shown.iter().map(|(listing, _)| listing.ttl()).min();
        // A list that follows what its caller finds may change with the next call.
        let follows = items.only.is_some_and(|only| only.loaded.is_some());
        let ttl = ttl.filter(|_| missing.is_empty() && !follows).unwrap_or(0);
        result.raw("ttlMs", itoa::Buffer::new().format(ttl));
        // What is visible depends on the caller, so a shared cache must not keep it.
        result.text("cacheScope", "private");
    }
    let extra = extra.map(Shown::value).into_iter().flat_map(Value::members);
    for (key, value) in extra.filter(|(key, _)| missing.is_empty() || key != "_meta") {
        result.raw(&key, value.raw());
    }
    if !missing.is_empty() {
        partial(&mut result, missing);
    }
    out.extend_from_slice(b"}}");
    parts.push_back(out.into());
    json(Body::Parts(parts))
}

/// Writes the names of the servers whose items are missing in a list.
fn partial(result: &mut Object<'_>, missing: &[ServerName]) {
    let mut meta = Object::open(result.key("_meta"));
    let names = meta.key(meta::PARTIAL);
    names.push(b'[');
    for (n, server) in missing.iter().enumerate() {
        if n > 0 {
            names.push(b',');
        }
        json::write_string(names, server.as_str());
    }
    names.push(b']');
    meta.close();
}

/// Whether a result has the members that tell clients how long to keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultCaching {
    /// The result of a read or a list.
    Cacheable,
    /// Any other result: it has none of these members.
    Never,
}

/// A value in a message of a server that is written otherwise to the client: words of the gateway in place of it.
///
/// ```
/// # use gateway::edge::encode::Replacement;
/// let named = Replacement::text(3..8, "files__read");
/// ```
///
/// ```compile_fail,E0451
/// # use gateway::edge::encode::Replacement;
/// # fn replace(said: json::Value<'_>) {
/// let said = Replacement { span: 3..8, json: said.raw().to_owned() }; // private fields
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The bytes of the value in the text of its document.
    span: Range<usize>,
    /// The JSON that is written in its place.
    json: String,
}

impl Replacement {
    /// The string `text` in place of the value at `span`: a name on the route, or a sealed id.
    #[must_use]
    pub fn text(span: Range<usize>, text: &str) -> Self {
        let mut json = Vec::with_capacity(text.len() + 2);
        json::write_string(&mut json, text);
        Self { span, json: String::from_utf8(json).unwrap_or_default() }
    }

    /// Information about a server in place of what it says of itself at `span`: its name in the configuration.
    #[must_use]
    pub fn server_info(span: Range<usize>, server: &ServerName) -> Self {
        let mut json = br#"{"name":"#.to_vec();
        json::write_string(&mut json, server.as_str());
        json.extend_from_slice(br#","version":""}"#);
        Self { span, json: String::from_utf8(json).unwrap_or_default() }
    }
}

/// Maps an identifier of a server to its name on the route; `None` if it stays as it is.
pub type Rename<'a> = &'a dyn Fn(ItemKind, &str) -> Option<String>;

/// The response with a server's result in the gateway's envelope: members that the client's era requires are added,
/// those it does not know are dropped, and the strings at `renamed` are replaced. Cacheable results get cache members
/// (modern).
///
/// SPEC 2026-07-28 basic#resulttype, server/utilities/caching#cacheable-results
///
/// ```
/// # use gateway::edge::encode::{self, ResultCaching};
/// # use gateway::mcp::{protocol::Era, wire::Id};
/// # fn answer(id: &Id, said: &policy::engine::pipeline::Shown) {
/// let body = encode::result(id, Era::Modern, said, ResultCaching::Never, &[]);
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # use gateway::edge::encode::{self, ResultCaching};
/// # use gateway::mcp::{protocol::Era, wire::Id};
/// # fn answer(id: &Id, said: &json::Fragment) {
/// let body = encode::result(id, Era::Modern, said, ResultCaching::Never, &[]); // not released
/// # }
/// ```
pub fn result(
    id: &Id,
    era: Era,
    result: &Shown,
    caching: ResultCaching,
    renamed: &[Replacement],
) -> Body {
    let value = result.value();
    let has = |key: &str| value.get(key).is_some();
    let modern = era == Era::Modern;
    let cacheable = caching == ResultCaching::Cacheable;
    let mut added = Vec::new();
    if modern && !has("resultType") {
        added.push(("resultType", r#""complete""#));
    }
    if modern && cacheable && !has("ttlMs") {
        added.push(("ttlMs", "0"));
    }
    if modern && cacheable && !has("cacheScope") {
        added.push(("cacheScope", r#""private""#));
    }
    let foreign = |key: &str| {
        !modern && (key == "resultType" || cacheable && matches!(key, "ttlMs" | "cacheScope"))
    };
    let drops = value.members().any(|(key, _)| foreign(&key));
    let mut parts = VecDeque::with_capacity(4);
    // Reserved at once: a growing vector keeps up to twice the memory of its content.
    let mut out = wire::head(Some(id), if drops { 1024 + value.span().len() } else { 96 });
    out.extend_from_slice(br#""result":"#);
    if drops {
        let mut object = Object::open(&mut out);
        for (key, member) in value.members().filter(|(key, _)| !foreign(key)) {
            with_replacements(object.key(&key), member, renamed);
        }
        object.close();
        parts.push_back(out.into());
    } else {
        let empty = value.members().next().is_none();
        if !added.is_empty() {
            let mut object = Object::open(&mut out);
            added.iter().for_each(|(key, text)| object.raw(key, text));
            out.push(if empty { b' ' } else { b',' });
        }
        let skip = usize::from(!added.is_empty());
        if renamed.is_empty() {
            parts.push_back(out.into());
            parts.push_back(value.raw_bytes().slice(skip..));
        } else {
            let names: usize = renamed.iter().map(|part| part.json.len()).sum();
            let mut whole = Vec::with_capacity(value.span().len() + names);
            with_replacements(&mut whole, value, renamed);
            parts.push_back(out.into());
            parts.push_back(Bytes::from(whole).slice(skip..));
        }
    }
    parts.push_back(Bytes::from_static(b"}"));
    Body::Parts(parts)
}

/// The response to a denied tool call, as a result with `isError`.
#[must_use]
pub fn denied_call(id: &Id, era: Era, denial: &ToolDenial) -> Response<Body> {
    let mut response = json(tool_error(id, era, denial));
    let wait = denial.retry_after.map(HeaderValue::from);
    response.headers_mut().extend(wait.map(|wait| (RETRY_AFTER, wait)));
    response
}

/// The body of a tool result that tells the model why the call was denied.
///
/// SPEC 2026-07-28 server/tools#error-handling
#[must_use]
pub fn tool_error(id: &Id, era: Era, denial: &ToolDenial) -> Body {
    let mut out = wire::head(Some(id), 192 + denial.text.len() + denial.meta.len());
    out.extend_from_slice(br#""result":{"#);
    if era == Era::Modern {
        out.extend_from_slice(br#""resultType":"complete","#);
    }
    out.extend_from_slice(br#""isError":true,"content":[{"type":"text","text":"#);
    json::write_string(&mut out, &denial.text);
    out.extend_from_slice(b"}]");
    let mut result = Object::resume(&mut out);
    let mut meta = Object::open(result.key("_meta"));
    meta.raw(meta::DENIAL, &denial.meta);
    meta.close();
    result.close();
    out.push(b'}');
    out.into()
}

/// Adds `Connection: close`, since the connection cannot be reused (RFC 9112 section 9.6). Over HTTP/2 a stream carries a
/// single request, and [`crate::net::http2::server`] removes the header.
#[must_use]
pub fn close_connection(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The spans of resource URIs in a result, with their replacements on the route.
#[must_use]
pub fn resource_uri_spans(result: Value<'_>, rename: Rename<'_>) -> Vec<Replacement> {
    let mut found = Vec::new();
    let mut link = |holder: Value<'_>| {
        let uri = holder.get("uri");
        let name = uri.and_then(Value::as_str).and_then(|uri| rename(ItemKind::Resource, &uri));
        found.extend(uri.zip(name).map(|(uri, name)| Replacement::text(uri.span(), &name)));
    };
    let mut block = |block: Value<'_>| match block.get("type").and_then(Value::as_str).as_deref() {
        Some("resource_link") => link(block),
        Some("resource") => block.get("resource").into_iter().for_each(&mut link),
        _ => {}
    };
    result.get("content").into_iter().flat_map(Value::items).for_each(&mut block);
    for message in result.get("messages").into_iter().flat_map(Value::items) {
        match message.get("content") {
            Some(content) if content.is_object() => block(content),
            Some(content) => content.items().for_each(&mut block),
            None => {}
        }
    }
    result.get("contents").into_iter().flat_map(Value::items).for_each(&mut link);
    if let Some(skill) = result.get("skill") {
        link(skill);
        skill.get("resources").into_iter().flat_map(Value::items).for_each(&mut link);
    }
    found
}

/// The replacements for the URIs of apps to which a result points, by `rename`.
pub fn app_uri_spans(result: Value<'_>, rename: Rename<'_>) -> Vec<Replacement> {
    let Some(meta) = result.get("_meta") else { return Vec::new() };
    let nested = meta.get("ui").and_then(|ui| ui.get("resourceUri"));
    let uris = [nested, meta.get("ui/resourceUri")].into_iter().flatten();
    let renamed = uris.filter_map(|uri| {
        let name = rename(ItemKind::Resource, &uri.as_str()?)?;
        Some(Replacement::text(uri.span(), &name))
    });
    renamed.collect()
}

/// Writes `value` to `out` with those of the values `replaced` that it contains replaced.
pub fn with_replacements(out: &mut Vec<u8>, value: Value<'_>, replaced: &[Replacement]) {
    let (whole, raw) = (value.span(), value.raw().as_bytes());
    let mut done = 0;
    let within = |part: &&Replacement| whole.start <= part.span.start && part.span.end <= whole.end;
    let mut replaced: Vec<_> = replaced.iter().filter(within).collect();
    replaced.sort_by_key(|part| part.span.start);
    for Replacement { span, json } in replaced {
        let (from, to) = (span.start - whole.start, span.end - whole.start);
        out.extend_from_slice(raw.get(done..from).unwrap_or_default());
        out.extend_from_slice(json.as_bytes());
        done = to;
    }
    out.extend_from_slice(raw.get(done..).unwrap_or_default());
}

/// The response with a server's error in the gateway's envelope. An error code that only the other era defines is
/// translated.
///
/// SPEC 2026-07-28 basic#error-codes
///
/// ```
/// # use gateway::{edge::encode, mcp::{protocol::Era, wire::Id}};
/// # fn answer(id: &Id, said: &policy::engine::pipeline::Shown) {
/// let body = encode::server_error(id, Era::Modern, said);
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # use gateway::{edge::encode, mcp::{protocol::Era, wire::Id}};
/// # fn answer(id: &Id, said: &json::Fragment) {
/// let body = encode::server_error(id, Era::Modern, said); // not released
/// # }
/// ```
pub fn server_error(id: &Id, era: Era, error: &Shown) -> Body {
    let value = error.value();
    let mut out = wire::head(Some(id), 1024 + value.span().len());
    out.extend_from_slice(br#""error":"#);
    let said = value.get("code").and_then(Value::as_i64);
    if era == Era::Modern && said == Some(i64::from(code::NO_RESOURCE)) {
        let mut object = Object::open(&mut out);
        for (key, member) in value.members() {
            match &*key {
                "code" => object.raw("code", itoa::Buffer::new().format(code::PARAMS)),
                key => object.raw(key, member.raw()),
            }
        }
        object.close();
    } else {
        out.extend_from_slice(value.raw().as_bytes());
    }
    out.push(b'}');
    out.into()
}

/// The HTTP status that a modern server sends with a JSON-RPC error code.
#[must_use]
pub const fn status_of(said: i32) -> u16 {
    match said {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => 400,
        code::METHOD => 404,
        _ => 200,
    }
}

/// An elicitation or sampling request to a legacy client.
#[must_use]
pub fn server_request(id: &Id, asked: &str, params: Option<&Shown>) -> Vec<u8> {
    let mut out = wire::head(Some(id), 256);
    let mut message = Object::resume(&mut out);
    // `wire::head` ends with a comma already.
    message.first();
    message.text("method", asked);
    let url = |params: &Shown| {
        params.value().get("mode").and_then(Value::as_str).as_deref() == Some("url")
    };
    match params {
        // Legacy clients require an elicitation id in URL mode; modern servers send none.
        Some(params) if url(params) && params.value().get("elicitationId").is_none() => {
            let mut object = Object::open(message.key("params"));
            params.value().members().for_each(|(key, value)| object.raw(&key, value.raw()));
            object.show("elicitationId", &format_args!("portcullis-{id}"));
            object.close();
        }
        Some(params) => message.raw("params", params.value().raw()),
        None => {}
    }
    message.close();
    out
}

/// The `input_required` result by which the gateway itself asks the user of a modern client about a call.
#[must_use]
pub fn approval_required(id: &Id, form: &ApprovalForm, state: &str) -> Body {
    let question =
        QuestionParts { key: FORM_KEY, method: method::ELICIT, params: Some(form.params()) };
    asking(id, [question], state)
}

/// The request by which the gateway itself asks the user of a legacy client about a call.
#[must_use]
pub fn approval_request(id: &Id, form: &ApprovalForm) -> Vec<u8> {
    let mut out = wire::head(Some(id), 256);
    let mut message = Object::resume(&mut out);
    // `wire::head` ends with a comma already.
    message.first();
    message.text("method", method::ELICIT);
    message.raw("params", form.params());
    message.close();
    out
}

/// The `input_required` result for a modern client, on behalf of a server that cannot send one itself.
///
/// SPEC 2026-07-28 basic/patterns/mrtr#inputrequiredresult
#[must_use]
pub fn input_required(id: &Id, questions: &[InputRequest<Shown>], state: &str) -> Body {
    let parts = questions.iter().map(|question| QuestionParts {
        key: &question.key,
        method: &question.method,
        params: question.params.as_ref().map(|params| params.value().raw()),
    });
    asking(id, parts, state)
}

/// What an `input_required` result has of one question.
struct QuestionParts<'a> {
    key: &'a str,
    method: &'a str,
    params: Option<&'a str>,
}

fn asking<'a>(
    id: &Id,
    questions: impl IntoIterator<Item = QuestionParts<'a>>,
    state: &str,
) -> Body {
    let mut out = wire::head(Some(id), 512);
    out.extend_from_slice(br#""result":"#);
    let mut result = Object::open(&mut out);
    result.text("resultType", "input_required");
    let mut asked = Object::open(result.key("inputRequests"));
    for question in questions {
        let mut request = Object::open(asked.key(question.key));
        request.text("method", question.method);
        if let Some(params) = question.params {
            request.raw("params", params);
        }
        request.close();
    }
    asked.close();
    result.text("requestState", state);
    result.close();
    out.push(b'}');
    out.into()
}

/// The `input_required` result of a modern server, with the gateway's request state in place of the server's, and what
/// is replaced in it besides.
#[must_use]
pub fn input_required_passthrough(
    id: &Id,
    result: &Shown,
    state: Option<&str>,
    replaced: &[Replacement],
) -> Body {
    let mut out = wire::head(Some(id), 512);
    out.extend_from_slice(br#""result":"#);
    let mut object = Object::open(&mut out);
    for (key, value) in result.value().members().filter(|(key, _)| &**key != "requestState") {
        with_replacements(object.key(&key), value, replaced);
    }
    // The gateway has a state also where the server has none: what the answers must be.
    if let Some(state) = state {
        object.text("requestState", state);
    }
    object.close();
    out.push(b'}');
    out.into()
}

/// A notification of a server as a client may see it: its params were released.
///
/// ```compile_fail,E0308
/// # use gateway::{edge::encode, mcp::wire::Notification};
/// # fn tell(told: &Notification) {
/// let message = encode::notification(told, &[]); // as the server sent it
/// # }
/// ```
///
/// ```
/// # use gateway::edge::encode::{self, ShownNotification};
/// # fn tell(told: &ShownNotification) {
/// let message = encode::notification(told, &[]);
/// # }
/// ```
#[derive(Debug)]
pub struct ShownNotification {
    /// Name of the method: one of the protocol, or an extension's that the policy lets the client receive.
    pub method: Box<str>,
    /// Parameters, which are always an object.
    pub params: Option<Shown>,
}

/// A progress notification under the client's own progress token.
#[must_use]
pub fn progress(token: &Id, params: &Shown) -> Vec<u8> {
    let mut out = wire::head(None, 256);
    out.extend_from_slice(br#""method":""#);
    out.extend_from_slice(method::PROGRESS.as_bytes());
    out.extend_from_slice(br#"","params":"#);
    let mut object = Object::open(&mut out);
    token.write(object.key(meta::PROGRESS_TOKEN));
    let others = |(key, _): &(Cow<'_, str>, Value<'_>)| key != meta::PROGRESS_TOKEN;
    for (key, value) in params.value().members().filter(others) {
        object.raw(&key, value.raw());
    }
    object.close();
    out.push(b'}');
    out
}

/// A server's notification with some params replaced by the given strings. The id of the upstream subscription is
/// removed.
#[must_use]
pub fn notification(told: &ShownNotification, replaced: &[(&str, &str)]) -> Vec<u8> {
    write_notification(told, replaced, None)
}

/// The same, as part of the subscription that the client's request `id` opened.
#[must_use]
pub fn subscription_notification(
    told: &ShownNotification,
    replaced: &[(&str, &str)],
    id: &Id,
) -> Vec<u8> {
    write_notification(told, replaced, Some(id))
}

fn write_notification(
    told: &ShownNotification,
    replaced: &[(&str, &str)],
    to: Option<&Id>,
) -> Vec<u8> {
    let mut out = wire::head(None, 256);
    let mut message = Object::resume(&mut out);
    message.first();
    message.text("method", &told.method);
    let params = told.params.as_ref().map(Shown::value);
    let is_other = |(key, _): &(Cow<'_, str>, Value<'_>)| key != meta::SUBSCRIPTION;
    if params.is_some() || to.is_some() {
        let mut object = Object::open(message.key("params"));
        let mut meta = None;
        for (key, value) in params.into_iter().flat_map(Value::members) {
            let new = replaced.iter().find(|(replaced, _)| *replaced == key);
            match (&*key, new) {
                ("_meta", _) => meta = Some(value),
                // A client that reads it as `_meta` would take the message for one of another subscription.
                (key, _) if is_meta(key) && !value.members().all(|part| is_other(&part)) => {
                    let mut like = Object::open(object.key(key));
                    value
                        .members()
                        .filter(is_other)
                        .for_each(|(key, value)| like.raw(&key, value.raw()));
                    like.close();
                }
                (key, Some((_, text))) => object.text(key, text),
                (key, None) => object.raw(key, value.raw()),
            }
        }
        let mut rest = meta.into_iter().flat_map(Value::members).filter(is_other).peekable();
        if to.is_some() || rest.peek().is_some() {
            let mut meta = Object::open(object.key("_meta"));
            if let Some(id) = to {
                id.write(meta.key(meta::SUBSCRIPTION));
            }
            rest.for_each(|(key, value)| meta.raw(&key, value.raw()));
            meta.close();
        }
        object.close();
    }
    message.close();
    out
}

/// The acknowledgment of a subscription: its first message, with the part of the filter that is honoured.
///
/// SPEC 2026-07-28 basic/patterns/subscriptions#acknowledgment
#[must_use]
pub fn acknowledged(id: &Id, write: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    let mut out = wire::head(None, 256);
    let mut message = Object::resume(&mut out);
    message.first();
    message.text("method", method::ACKNOWLEDGED);
    let mut params = Object::open(message.key("params"));
    let mut meta = Object::open(params.key("_meta"));
    id.write(meta.key(meta::SUBSCRIPTION));
    meta.close();
    let mut filter = Object::open(params.key("notifications"));
    write(&mut filter);
    filter.close();
    params.close();
    message.close();
    out
}

/// The response that ends a subscription from the gateway's side.
///
/// SPEC 2026-07-28 basic/patterns/subscriptions#graceful-closure
#[must_use]
pub fn unsubscribed(id: &Id) -> Vec<u8> {
    let mut out = wire::head(Some(id), 128);
    out.extend_from_slice(br#""result":{"resultType":"complete","_meta":"#);
    let mut meta = Object::open(&mut out);
    id.write(meta.key(meta::SUBSCRIPTION));
    meta.close();
    out.extend_from_slice(b"}}");
    out
}

/// Whether a log message is at least as severe as `wanted`, a log level as JSON. A message without a known level is
/// not.
#[must_use]
pub fn is_severe_enough(told: &ShownNotification, wanted: &str) -> bool {
    let place = |level: &str| LEVELS.iter().position(|known| *known == level);
    let level = told.params.as_ref().and_then(|params| params.value().get("level"));
    let level = level.and_then(Value::as_str).and_then(|level| place(&level));
    level.zip(place(wanted.trim_matches('"'))).is_some_and(|(level, wanted)| level >= wanted)
}

/// The bytes of a body in memory; empty for a stream.
#[must_use]
pub fn joined(body: Body) -> Vec<u8> {
    let parts = parts(body);
    // Reserved at once: a growing vector keeps up to twice the memory of its content.
    let all = Vec::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.into_iter().fold(all, |mut all, part| {
        all.extend_from_slice(&part);
        all
    })
}

/// The parts of a body in memory; none of a stream.
#[must_use]
pub fn parts(body: Body) -> VecDeque<Bytes> {
    match body {
        Body::Parts(parts) | Body::Counted(parts, _) => parts,
        Body::Stream(..) | Body::Replay(..) | Body::Leased(..) => VecDeque::new(),
    }
}
