//! Encodes and decodes HTTP header values that mirror the message body.
//!
//! SPEC 2026-07-28 basic/transports/streamable-http#value-encoding

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AsHeaderName;
use http::{HeaderMap, HeaderValue};

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// Value of a header that must occur at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SingleValue<'a> {
    /// The header is absent.
    Absent,
    /// The header occurs once, as text.
    Value(&'a str),
    /// The header occurs more than once, or is not visible ASCII.
    Bad,
}

/// Reads a header that must occur at most once.
#[must_use]
pub fn single(headers: &HeaderMap, name: impl AsHeaderName) -> SingleValue<'_> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => SingleValue::Absent,
        (Some(value), None) => value.to_str().map_or(SingleValue::Bad, SingleValue::Value),
        (Some(_), Some(_)) => SingleValue::Bad,
    }
}

/// Decodes a mirrored value; `None` if it is not well-formed.
///
/// Only canonical Base64 is accepted, so that one text has one spelling (threat PV-13).
#[must_use]
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let Some(inner) = value.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE)) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Encodes `text` as a header value.
#[must_use]
pub fn encode(text: &str) -> HeaderValue {
    let visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let padded = text.starts_with(' ') || text.ends_with(' ');
    let marked = text.starts_with(OPEN) && text.ends_with(CLOSE);
    let safe = visible && !padded && !marked;
    let plain = safe.then(|| HeaderValue::from_str(text).ok()).flatten();
    plain.unwrap_or_else(|| {
        let encoded = format!("{OPEN}{}{CLOSE}", STANDARD.encode(text));
        // INVARIANT: Base64 and its delimiters are visible ASCII.
        HeaderValue::from_str(&encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
    })
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_specification() {
        for (text, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(text), header);
            assert_eq!(decode(header).unwrap(), text);
        }
    }

    #[test]
    fn another_spelling_of_the_same_bytes_is_refused() {
        for bad in ["=?base64?QQ?=", "=?base64?QR==?=", "=?base64?Q Q=?=", "=?base64?/w==?="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert_eq!(decode("=?BASE64?QQ==?=").unwrap(), "=?BASE64?QQ==?=");
    }

    proptest! {
        #[test]
        fn every_text_survives(text in any::<String>()) {
            let header = encode(&text);
            prop_assert_eq!(decode(header.to_str().unwrap()).unwrap(), text);
        }
    }
}
