//! Draws the arguments of a call for the person who is asked about it.

use json::{Fragment, Value};
use policy_core::base::hidden::Hidden;

use crate::mcp::wire::Object;

/// A value as canonical JSON, with every character that is not shown, or that moves others, written as `\u{200b}`. JSON
/// writes a backslash of the value as two, so nothing in the value can look like that.
#[must_use]
pub fn drawn(value: Value<'_>) -> String {
    let mut plain = Vec::new();
    json::write_plain(&mut plain, value);
    drawn_text(&String::from_utf8_lossy(&plain))
}

/// Members as [`drawn`] draws an object; an empty text if there are none.
#[must_use]
pub fn drawn_members(members: &[(Box<str>, Fragment)]) -> String {
    if members.is_empty() {
        return String::new();
    }
    let mut plain = Vec::new();
    let mut object = Object::open(&mut plain);
    for (key, member) in members {
        json::write_plain(object.key(key), member.value());
    }
    object.close();
    drawn_text(&String::from_utf8_lossy(&plain))
}

/// A text drawn in the same way, line ends too.
#[must_use]
pub(super) fn drawn_text(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        let is_odd_space = c != ' ' && c.is_whitespace();
        if Hidden::of(c).is_some() || is_odd_space {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::drawn;

    fn of(text: &str) -> String {
        let text = bytes::Bytes::copy_from_slice(text.as_bytes());
        drawn(Document::parse(text, &JsonBounds::MESSAGE).unwrap().root())
    }

    #[test]
    fn what_is_not_shown_is_drawn_and_nothing_looks_like_it() {
        assert_eq!(of(r#"{"b": 1, "a": "x"}"#), r#"{"a":"x","b":1}"#);
        assert_eq!(of("[\"a\u{200b}b\u{202e}c\u{a0}d\"]"), r#"["a\u{200b}b\u{202e}c\u{a0}d"]"#);
        assert_eq!(of(r#"["a\u200bb"]"#), r#"["a\u{200b}b"]"#);
        // JSON writes control characters and line separators as escapes of its own.
        assert_eq!(of("[\"\u{e0041}\u{2028}\"]"), r#"["\u{e0041}\u2028"]"#);
        assert_eq!(of(r#"["\\u{200b}"]"#), r#"["\\u{200b}"]"#);
        assert_eq!(of(r#"{"k\u2066":0}"#), r#"{"k\u{2066}":0}"#);
        assert_eq!(of(r#"["a\nb"]"#), r#"["a\nb"]"#);
    }
}
