//! Checks the HTTP method and headers of a request before its body is read.

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::edge::failure::HttpFailure;
use crate::mcp::protocol::{ProtocolVersion, header};
use crate::mcp::wire::headers::{SingleValue, single};

const MODERN: &str = ProtocolVersion::V2026July.as_str();

/// The name of a supported method, for the record; `None` for any other, since callers could choose it freely.
pub(super) const fn named(method: &Method) -> Option<&'static str> {
    match *method {
        Method::GET => Some("GET"),
        Method::POST => Some("POST"),
        Method::DELETE => Some("DELETE"),
        _ => None,
    }
}

/// Checks that a request can carry a message, open a stream or end a session.
pub(super) fn framed(head: &Parts) -> Result<(), HttpFailure> {
    match head.method {
        Method::POST => {}
        Method::DELETE => return Ok(()),
        // SPEC 2026-07-28: this revision has no GET stream.
        Method::GET if single(&head.headers, &header::VERSION) == SingleValue::Value(MODERN) => {
            return Err(HttpFailure::Verb);
        }
        Method::GET if has(&head.headers, "text/event-stream", "text/*") => return Ok(()),
        Method::GET => return Err(HttpFailure::Accept),
        _ => return Err(HttpFailure::Verb),
    }
    let json = match single(&head.headers, CONTENT_TYPE) {
        SingleValue::Value(kind) => is_json(kind),
        SingleValue::Absent | SingleValue::Bad => false,
    };
    if !json || head.headers.contains_key(CONTENT_ENCODING) {
        return Err(HttpFailure::MediaType);
    }
    if accepts(&head.headers) { Ok(()) } else { Err(HttpFailure::Accept) }
}

/// Whether the media type is `application/json`, in UTF-8 if it names a charset.
fn is_json(kind: &str) -> bool {
    let mut parts = kind.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    json && parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
            value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        Some(_) => true,
        None => parameter.is_empty(),
    })
}

/// Whether both response formats are accepted, SPEC 2026-07-28 basic/transports/streamable-http#sending-messages
fn accepts(headers: &HeaderMap) -> bool {
    has(headers, "application/json", "application/*") && has(headers, "text/event-stream", "text/*")
}

fn has(headers: &HeaderMap, wanted: &str, group: &str) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let kind = range.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case(wanted) || kind == "*/*" || kind.eq_ignore_ascii_case(group)
    })
}
