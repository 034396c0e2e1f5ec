//! Reads and writes JSON-RPC messages.
//!
//! Messages are read strictly, and the envelope of an outgoing message is always built here, member by member; only
//! values that were read strictly are copied into it.

pub mod headers;
mod spelling;
mod marks;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use bytes::Bytes;
use json::{Document, Fragment, JsonBounds, JsonError, JsonKind, Value, write_string};
use policy::engine::places::is_meta;
use tokio::sync::Semaphore;

use crate::base::intake::ResponseAccount;
use crate::base::segments::Segments;
use crate::base::share::ShareError;
use crate::mcp::protocol;

/// Most bytes of an id that is echoed.
const ID: usize = 256;
/// Most bytes of a method name.
const METHOD: usize = 128;
/// Integers that every JSON parser represents exactly.
const SAFE: std::ops::RangeInclusive<i64> = -9_007_199_254_740_991..=9_007_199_254_740_991;
/// Members of `params` that some method reads.
const PARAMS: [&str; 20] = [
    "name",
    "arguments",
    "_meta",
    "cursor",
    "uri",
    "protocolVersion",
    "capabilities",
    "clientInfo",
    "requestId",
    "progressToken",
    "inputResponses",
    "requestState",
    "ref",
    "argument",
    "context",
    "level",
    "notifications",
    "task",
    "taskId",
    "reason",
];

/// A JSON-RPC id, which identifies a request to the peer that sent it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// An integer that every JSON parser represents exactly.
    Number(i64),
    /// A string of at most 256 bytes.
    Text(Box<str>),
}

impl Id {
    /// Reads an id, or a progress token, which has the same form; `None` if the value is neither type or too long.
    #[must_use]
    pub fn read(value: Value<'_>) -> Option<Self> {
        match value.kind() {
            JsonKind::Number => value.as_i64().filter(|n| SAFE.contains(n)).map(Self::Number),
            JsonKind::Plain | JsonKind::Escaped => {
                let text = value.as_str().filter(|text| text.len() <= ID)?;
                Some(Self::Text(text.into()))
            }
            JsonKind::Null | JsonKind::Boolean | JsonKind::Array | JsonKind::Object => None,
        }
    }

    /// Appends the id as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => {
                out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes());
            }
            Self::Text(text) => write_string(out, text),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{}", text.escape_debug()),
        }
    }
}

/// A single JSON-RPC message, of any kind.
#[derive(Debug)]
pub enum Message {
    /// A message that expects a response.
    Request(Request),
    /// A message that expects no response.
    Notification(Notification),
    /// The response to a request.
    Response(Response),
}

impl Message {
    /// Bytes that the index over the message's values takes. The messages of a batch share one text and one index.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        let part = match self {
            Self::Request(request) => request.params.as_ref(),
            Self::Notification(notification) => notification.params.as_ref(),
            Self::Response(response) => Some(match &response.outcome {
                ResponseOutcome::Result(part) | ResponseOutcome::Error(part) => part,
            }),
        };
        part.map_or(0, |part| part.document().index_bytes())
    }
}

/// A JSON-RPC request, which expects a response.
#[derive(Debug)]
pub struct Request {
    /// Id of the request.
    pub id: Id,
    /// Name of the method.
    pub method: Box<str>,
    /// Parameters, which are always an object.
    pub params: Option<Fragment>,
}

/// A JSON-RPC notification, which expects no response.
#[derive(Debug)]
pub struct Notification {
    /// Name of the method.
    pub method: Box<str>,
    /// Parameters, which are always an object.
    pub params: Option<Fragment>,
}

/// A JSON-RPC response to a request.
#[derive(Debug)]
pub struct Response {
    /// Id of the request; `None` in an error if the peer could not read it.
    pub id: Option<Id>,
    /// Result or error of the request.
    pub outcome: ResponseOutcome,
}

/// Result or error of a request.
#[derive(Debug)]
pub enum ResponseOutcome {
    /// The object under `result`.
    Result(Fragment),
    /// The object under `error`.
    Error(Fragment),
}

/// Why a text is not one acceptable message.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The text is not acceptable JSON.
    #[error("not acceptable JSON")]
    Json(#[source] JsonError),
    /// The text is JSON, but not a message.
    #[error("{reason}")]
    Shape {
        /// The id, if it could be read.
        id: Option<Id>,
        /// Fixed description of the problem, without input of the peer.
        reason: &'static str,
    },
}

/// Parses exactly one message.
///
/// # Errors
/// If `text` is not one message, or has more than one interpretation.
pub fn decode(text: Bytes, bounds: &JsonBounds) -> Result<Message, DecodeError> {
    let document = Arc::new(Document::parse(text, bounds).map_err(DecodeError::Json)?);
    message(document.root(), &document)
}

/// Parses a batch of at most `limit` messages, each of which may be unacceptable on its own; `None` if the text is not
/// an array.
///
/// # Errors
/// If the text is not acceptable JSON, contains no message, or more than `limit`.
///
/// SPEC 2025-03-26 basic#batching: the only revision with batches.
pub fn decode_batch(
    text: Bytes,
    bounds: &JsonBounds,
    limit: usize,
) -> Result<Option<Vec<Result<Message, DecodeError>>>, DecodeError> {
    let document = Arc::new(Document::parse(text, bounds).map_err(DecodeError::Json)?);
    let root = document.root();
    if root.kind() != JsonKind::Array {
        return Ok(None);
    }
    let count = root.items().count();
    if count == 0 || count > limit {
        let reason = "a batch has at least one message, and not too many";
        return Err(DecodeError::Shape { id: None, reason });
    }
    Ok(Some(root.items().map(|item| message(item, &document)).collect()))
}

/// The members that a message may have.
#[derive(Default)]
struct MessageMembers<'a> {
    version: Option<Value<'a>>,
    id: Option<Value<'a>>,
    method: Option<Value<'a>>,
    params: Option<Value<'a>>,
    result: Option<Value<'a>>,
    error: Option<Value<'a>>,
}

impl<'a> MessageMembers<'a> {
    /// Finds the members in `root`.
    ///
    /// # Errors
    /// The reason why it is no message.
    fn of(root: Value<'a>) -> Result<Self, &'static str> {
        match root.kind() {
            JsonKind::Object => {}
            JsonKind::Array => return Err("batches are not accepted"),
            _ => return Err("a message is an object"),
        }
        let mut members = Self::default();
        for (key, value) in root.members() {
            let slot = match &*key {
                "jsonrpc" => &mut members.version,
                "id" => &mut members.id,
                "method" => &mut members.method,
                "params" => &mut members.params,
                "result" => &mut members.result,
                "error" => &mut members.error,
                _ => return Err("the message has a member that JSON-RPC does not know"),
            };
            *slot = Some(value);
        }
        Ok(members)
    }
}

/// Reads one message of a document.
fn message(root: Value<'_>, document: &Arc<Document>) -> Result<Message, DecodeError> {
    let wrong = |id, reason| Err(DecodeError::Shape { id, reason });
    let members = match MessageMembers::of(root) {
        Ok(members) => members,
        Err(reason) => return wrong(None, reason),
    };
    let MessageMembers { version, id, method, params, result, error } = members;
    let read = id.map(Id::read);
    let known = read.clone().flatten();
    if version.and_then(Value::as_str).as_deref() != Some("2.0") {
        return wrong(known, "`jsonrpc` is not `2.0`");
    }
    let object = |value: Option<Value<'_>>| value.is_none_or(Value::is_object);
    if !object(params) {
        return wrong(known, "`params` is not an object");
    }
    // The protocol says which members its own methods have; what other methods have is between the two ends.
    let of_protocol =
        method.and_then(Value::as_str).is_some_and(|name| protocol::method::is_of_protocol(&name));
    let misspelled = |params: Value<'_>| match of_protocol {
        true => spelling::has_variant(params, &PARAMS),
        false => spelling::has_case_variant(params, &PARAMS),
    };
    if params.is_some_and(misspelled) {
        return wrong(known, "`params` has a member in another spelling");
    }
    let owned = |value: Value<'_>| value.fragment(document);
    match (method, read, result, error) {
        (Some(method), read, None, None) => {
            let Some(method) = method.as_str().filter(|text| text.len() <= METHOD) else {
                return wrong(known, "`method` is not a short string");
            };
            let (method, params) = (method.into(), params.map(owned));
            match read {
                None => Ok(Message::Notification(Notification { method, params })),
                Some(Some(id)) => Ok(Message::Request(Request { id, method, params })),
                Some(None) => wrong(None, "`id` is not a string or an integer"),
            }
        }
        (None, Some(Some(id)), Some(result), None) if params.is_none() && result.is_object() => {
            let outcome = ResponseOutcome::Result(owned(result));
            Ok(Message::Response(Response { id: Some(id), outcome }))
        }
        (None, _, None, Some(error)) if params.is_none() && error.is_object() => {
            if error.get("code").and_then(Value::as_i64).is_none() {
                return wrong(known, "`error` has no integer `code`");
            }
            let outcome = ResponseOutcome::Error(owned(error));
            Ok(Message::Response(Response { id: known, outcome }))
        }
        _ => wrong(known, "neither a request nor a notification nor a response"),
    }
}

/// Whether all readers make the same kind of number of every number in `value`. Of one that is not finite as a double some
/// readers make infinity, some an error, and the SDK for Python 1.x makes `null`, which servers take for an argument that
/// was left out. Of one whose fraction a double has no room for, such as `5.00000000000000000001`, most make an integer.
///
/// INVARIANT: the depth of a document is bounded, so the recursion is.
#[must_use]
pub fn has_common_numbers(value: Value<'_>) -> bool {
    match value.kind() {
        // Without an exponent, a number within the bounds of a document is finite: a double has up to 309 digits.
        JsonKind::Number => {
            let raw = value.raw();
            let is_finite = !raw.contains(['e', 'E']) || value.as_f64().is_some();
            is_finite && json::rounded_to_integer(raw).is_none()
        }
        JsonKind::Array => value.items().all(has_common_numbers),
        JsonKind::Object => value.members().all(|(_, member)| has_common_numbers(member)),
        JsonKind::Null | JsonKind::Boolean | JsonKind::Plain | JsonKind::Escaped => true,
    }
}

/// Whether `object` has a member that a lenient parser would take for one of `known`.
#[must_use]
pub fn is_misspelled(object: Value<'_>, known: &[&str]) -> bool {
    spelling::has_variant(object, known)
}

/// Members of a request of a server, as an entry of `inputRequests`.
pub const SERVER_REQUEST: [&str; 4] = ["method", "params", "id", "_meta"];

/// Members of what a completion is for.
pub const REFERENCE: [&str; 4] = ["type", "name", "title", "uri"];

/// Members of the argument that is completed.
pub const COMPLETED: [&str; 2] = ["name", "value"];

/// Members of a JSON-RPC error object.
pub const ERROR: [&str; 3] = ["code", "message", "data"];

/// Size in bytes up to which a text is parsed on the current thread. Longer ones would delay the other exchanges of
/// that thread.
pub const LARGE: usize = 64 * 1024;

/// Permits to parse [`LARGE`] texts: one for two processors, and at least one. A thread that parses gives way to nobody until
/// its time slice is over, so as many as there are processors would delay the workers.
static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from).div_ceil(2)));

/// Runs `read` on a blocking thread as soon as a permit is free; `None` if the thread ended without a result.
async fn read_apart<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let turn = TURNS.acquire().await.ok()?;
    let read = tokio::task::spawn_blocking(move || {
        let read = read();
        drop(turn);
        read
    });
    read.await.ok()
}

/// Like [`decode`], but on a blocking thread if the text is longer than [`LARGE`].
///
/// # Errors
/// As [`decode`].
pub async fn decode_any(
    text: Segments,
    bounds: &'static JsonBounds,
) -> Result<Message, DecodeError> {
    if text.length() <= LARGE {
        return decode(text.joined(), bounds);
    }
    // Boxed, here and below, because it is rare, and the futures of all messages would have room for it.
    Box::pin(read_apart(move || decode(text.joined(), bounds))).await.unwrap_or(Err(UNREAD))
}

/// Like [`decode_batch`], but on a blocking thread if the text is longer than [`LARGE`].
///
/// # Errors
/// As [`decode_batch`].
pub async fn decode_any_batch(
    text: Segments,
    bounds: &'static JsonBounds,
    limit: usize,
) -> Result<Option<Vec<Result<Message, DecodeError>>>, DecodeError> {
    if text.length() <= LARGE {
        return decode_batch(text.joined(), bounds, limit);
    }
    let read = Box::pin(read_apart(move || decode_batch(text.joined(), bounds, limit))).await;
    read.unwrap_or(Err(UNREAD))
}

/// Puts the parts of `text` together, on a blocking thread if there is more than [`LARGE`] to copy.
pub async fn joined_any(text: Segments) -> Option<Bytes> {
    if text.parts().nth(1).is_none() || text.length() <= LARGE {
        return Some(text.joined());
    }
    Box::pin(read_apart(move || text.joined())).await
}

/// Error if the thread that parses a message ended without a result.
const UNREAD: DecodeError =
    DecodeError::Shape { id: None, reason: "the message could not be read" };

/// The marks of the gateway that a message of a server had: `_meta` keys and the error code that only the gateway sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedMarks {
    /// It had none.
    None,
    /// It had the code alone, with which the gateway had refused a request of the server: the server passes on the error
    /// that it was given, as libraries do.
    PassedOn,
    /// It had others, which a client could take for a decision of the gateway.
    Set,
}

/// A message from an upstream server, without the marks that only the gateway may set.
#[derive(Debug)]
pub struct FromServer {
    /// The message, without `_meta` keys and the error code that only the gateway sets.
    pub message: Message,
    /// What the message had of these.
    pub marks: RemovedMarks,
    /// Memory of the index over the message's values; keep it as long as the message is used.
    pub index: ResponseAccount,
}

/// Why a message from an upstream server was rejected.
#[derive(Debug, thiserror::Error)]
pub enum FromServerError {
    /// The text is not one acceptable message.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The memory limit leaves no room for the index over the message's values.
    #[error("there is no room for the values of the message, which take {wanted} bytes or more")]
    Memory {
        /// Bytes of the last reservation.
        wanted: usize,
        /// The share of memory that was exceeded.
        #[source]
        none: ShareError,
    },
}

/// Parses exactly one message of an upstream server, on a blocking thread if the text is longer than [`LARGE`]. Removes
/// `_meta` keys that only the gateway sets. The memory of the index over the values is counted in `index`.
///
/// # Errors
/// As [`decode`], and if there is no room for the index.
pub async fn decode_from_server(
    text: Segments,
    index: ResponseAccount,
) -> Result<FromServer, FromServerError> {
    if text.length() <= LARGE {
        return without_marks(text.joined(), index);
    }
    let read = Box::pin(read_apart(move || without_marks(text.joined(), index))).await;
    read.unwrap_or(Err(FromServerError::Decode(UNREAD)))
}

fn without_marks(text: Bytes, mut index: ResponseAccount) -> Result<FromServer, FromServerError> {
    let read = parse_counted(text, &mut index)?;
    let clean = marks::removed(&read);
    let (read, marks) = match clean {
        Some(clean) => {
            let marks = match marks::are_passed_on(&read) {
                true => RemovedMarks::PassedOn,
                false => RemovedMarks::Set,
            };
            drop(read);
            (parse_counted(clean, &mut index)?, marks)
        }
        None => (read, RemovedMarks::None),
    };
    let document = Arc::new(read);
    Ok(FromServer { message: message(document.root(), &document)?, marks, index })
}

/// Parses JSON of a server. `index` reserves the memory of the index over the values before it is allocated.
fn parse_counted(text: Bytes, index: &mut ResponseAccount) -> Result<Document, FromServerError> {
    let mut refused = None;
    let has_room = |wanted| {
        let reserved = index.reserve(wanted);
        refused = reserved.err().map(|none| FromServerError::Memory { wanted, none });
        refused.is_none()
    };
    let read = Document::parse_within(text, &JsonBounds::ANSWER, has_room);
    if let Some(refused) = refused {
        return Err(refused);
    }
    let read = read.map_err(DecodeError::Json)?;
    let wanted = read.index_bytes();
    index.holds(wanted).map_err(|none| FromServerError::Memory { wanted, none })?;
    Ok(read)
}

/// Whether `_meta` has a reserved key in a variant spelling.
#[must_use]
pub fn meta_is_misspelled(meta: Value<'_>) -> bool {
    spelling::has_variant(meta, &protocol::meta::RESERVED)
}

/// The members of `object` that a client could take for its `_meta`.
pub fn metas(object: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    object.members().filter(|(key, _)| is_meta(key)).map(|(_, member)| member)
}

/// Whether a key of `_meta` is one that only the gateway sets, or a variant spelling of one.
#[must_use]
pub fn is_mark(key: &str) -> bool {
    spelling::begins_with(key, protocol::meta::OURS)
}

/// Begins a message with `{"jsonrpc":"2.0","id":..,`, and reserves `more` bytes for the rest.
#[must_use]
pub fn head(id: Option<&Id>, more: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + more);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","#);
    if let Some(id) = id {
        out.extend_from_slice(br#""id":"#);
        id.write(&mut out);
        out.push(b',');
    }
    out
}

/// Writes an error response. `data` is JSON.
#[must_use]
pub fn error(id: Option<&Id>, code: i32, message: &str, data: Option<&str>) -> Vec<u8> {
    let mut out = head(id, 64 + message.len());
    out.extend_from_slice(br#""error":{"code":"#);
    out.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
    out.extend_from_slice(br#","message":"#);
    write_string(&mut out, message);
    if let Some(data) = data {
        out.extend_from_slice(br#","data":"#);
        out.extend_from_slice(data.as_bytes());
    }
    out.extend_from_slice(b"}}");
    out
}

/// Writes a JSON object member by member, with the commas between them.
#[derive(Debug)]
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Writes the opening brace of an object.
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Continues an object that already has members and is not closed.
    pub fn resume(out: &'a mut Vec<u8>) -> Self {
        Self { out, empty: false }
    }

    /// Makes the next member the first one, or one that follows an existing comma.
    pub fn first(&mut self) {
        self.empty = true;
    }

    /// Writes a key, and returns the buffer to append its value to.
    pub fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        write_string(self.out, key);
        self.out.push(b':');
        self.out
    }

    /// Like [`Self::key`], for a key of the gateway that needs no escaping.
    pub fn ours(&mut self, key: &'static str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a member whose value is text of the gateway that needs no escaping.
    pub fn show(&mut self, key: &str, value: &dyn fmt::Display) {
        use std::io::Write as _;
        let out = self.key(key);
        out.push(b'"');
        // A write to a vector cannot fail.
        drop(write!(out, "{value}"));
        out.push(b'"');
    }

    /// Writes a member whose value is JSON already.
    pub fn raw(&mut self, key: &str, value: &str) {
        self.key(key).extend_from_slice(value.as_bytes());
    }

    /// Writes a member whose value is a string.
    pub fn text(&mut self, key: &str, value: &str) {
        write_string(self.key(key), value);
    }

    /// Writes the closing brace.
    pub fn close(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests;
