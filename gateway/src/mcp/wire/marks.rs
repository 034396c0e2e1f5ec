//! Removes marks of the gateway from messages of upstream servers: `_meta` keys and the error code that only the
//! gateway sets.
//!
//! A client takes `_meta["dev.portcullis/denial"]` for a decision of the gateway, so a server must not be able to send
//! it. Such keys are removed from every `_meta`, and every member that a client could take for one, in a message of a server: in results and their content, in definitions,
//! errors, notifications and server requests. An error with the code of a denial, in a response or as the outcome of a
//! task, gets the code of an internal error and loses its `data`, which would name a rule and a contact.

use bytes::Bytes;
use json::{Document, JsonKind, Value, write_string};
use policy::engine::ask::RefusalReason;
use policy::engine::places::is_meta;

use super::spelling;
use crate::mcp::protocol::code;

/// The text of `document` without marks of the gateway; `None` if it has none, which is usual.
pub(super) fn removed(document: &Document) -> Option<Bytes> {
    // A key without escapes occurs in the text literally.
    let text = document.text();
    let may_have_meta = names_meta(text) || has_escapes(text);
    let denials: Vec<usize> = denials(document.root()).collect();
    if denials.is_empty() && (!may_have_meta || !has_marks(document.root())) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len());
    Cleaner { denials }.write(&mut out, document.root(), EnclosingObject::Anything);
    Some(out.into())
}

/// Whether all marks in `document`, which has some, are errors with which the gateway refused a request of the server,
/// and which the server passes on as the outcome of its call.
pub(super) fn are_passed_on(document: &Document) -> bool {
    let is_passed_on = |error: Value<'_>| {
        let message = error.get("message").and_then(Value::as_str);
        message.is_some_and(|message| RefusalReason::is_passed_on(&message))
    };
    denial_errors(document.root()).all(is_passed_on) && !has_marks(document.root())
}

/// Whether a character may be written by its number.
fn has_escapes(text: &[u8]) -> bool {
    memchr::memchr_iter(b'\\', text).any(|at| text.get(at + 1) == Some(&b'u'))
}

/// Whether `meta` occurs in a text, in any case.
fn names_meta(text: &[u8]) -> bool {
    memchr::memchr2_iter(b'm', b'M', text)
        .any(|at| text.get(at..at + 4).is_some_and(|word| word.eq_ignore_ascii_case(b"meta")))
}

/// Byte offsets of the errors with the code of a denial: the error of a response, and that of a task in a result or a
/// notification.
fn denials(message: Value<'_>) -> impl Iterator<Item = usize> {
    denial_errors(message).map(|error| error.span().start)
}

/// The errors of a message that have the code of a denial.
fn denial_errors(message: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    let parts = [Some(message), message.get("result"), message.get("params")];
    let errors = parts.into_iter().flatten().filter_map(|part| part.get("error"));
    errors.filter(|error| is_denial(*error))
}

/// Whether a client could take an error for a denial, in any spelling of the code.
fn is_denial(error: Value<'_>) -> bool {
    let denied = f64::from(code::DENIED);
    let is_code = |code: Value<'_>| code.as_f64().is_some_and(|code| (code - denied).abs() < 0.5);
    error.members().any(|(key, member)| spelling::is_like(&key, "code") && is_code(member))
}

/// The object that a member belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EnclosingObject {
    /// A `_meta` object.
    Meta,
    /// Any other object.
    Anything,
}

impl EnclosingObject {
    fn of(key: &str) -> Self {
        if is_meta(key) { Self::Meta } else { Self::Anything }
    }

    /// Whether a member with this name is a mark of the gateway in this object.
    fn is_mark(self, key: &str) -> bool {
        self == Self::Meta && super::is_mark(key)
    }
}

/// INVARIANT: the depth of a document is bounded, so the recursion is.
fn has_marks(value: Value<'_>) -> bool {
    value.items().any(has_marks)
        || value.members().any(|(key, member)| {
            let within = EnclosingObject::of(&key);
            member.members().any(|(key, _)| within.is_mark(&key)) || has_marks(member)
        })
}

/// Writes a message without the marks of the gateway.
struct Cleaner {
    /// Byte offsets of the errors with the code of a denial.
    denials: Vec<usize>,
}

impl Cleaner {
    /// Writes `value`, which is a member of an object of the kind `within`.
    ///
    /// INVARIANT: the depth of a document is bounded, so the recursion is.
    fn write(&self, out: &mut Vec<u8>, value: Value<'_>, within: EnclosingObject) {
        let mut separator = Separator::default();
        match value.kind() {
            JsonKind::Array => {
                out.push(b'[');
                for item in value.items() {
                    separator.write(out);
                    self.write(out, item, EnclosingObject::Anything);
                }
                out.push(b']');
            }
            JsonKind::Object => {
                out.push(b'{');
                let is_denial = self.denials.contains(&value.span().start);
                if is_denial {
                    separator.write(out);
                    out.extend_from_slice(br#""code":"#);
                    out.extend_from_slice(code::INTERNAL.to_string().as_bytes());
                }
                let of_denial =
                    |key: &str| ["code", "data"].iter().any(|own| spelling::is_like(key, own));
                let is_dropped = |key: &str| within.is_mark(key) || (is_denial && of_denial(key));
                for (key, member) in value.members().filter(|(key, _)| !is_dropped(key)) {
                    separator.write(out);
                    write_string(out, &key);
                    out.push(b':');
                    self.write(out, member, EnclosingObject::of(&key));
                }
                out.push(b'}');
            }
            JsonKind::Null
            | JsonKind::Boolean
            | JsonKind::Number
            | JsonKind::Plain
            | JsonKind::Escaped => {
                out.extend_from_slice(value.raw().as_bytes());
            }
        }
    }
}

/// Writes a comma between two items or members.
#[derive(Default)]
struct Separator {
    is_needed: bool,
}

impl Separator {
    fn write(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.is_needed, true) {
            out.push(b',');
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use json::{Document, JsonBounds};

    use policy::engine::ask::{RefusalReason, RequestPurpose};

    use super::{are_passed_on, removed};

    fn without(text: &str) -> Option<String> {
        let text = Bytes::copy_from_slice(text.as_bytes());
        let text = removed(&Document::parse(text, &JsonBounds::ANSWER).unwrap())?;
        Some(String::from_utf8(text.to_vec()).unwrap())
    }

    #[test]
    fn an_error_that_could_be_taken_for_a_denial_is_an_internal_error_without_data() {
        for (forged, clean) in [
            (
                r#"{"id":1,"error":{"code":-31403,"message":"no","data":{"rule":"x","contact":"y"}}}"#,
                r#"{"id":1,"error":{"code":-32603,"message":"no"}}"#,
            ),
            (
                r#"{"error":{"Code":-3.1403e4,"DATA":{},"code":-32000,"message":"no"}}"#,
                r#"{"error":{"code":-32603,"message":"no"}}"#,
            ),
            (
                r#"{"result":{"status":"failed","error":{"message":"no","code":-31403}}}"#,
                r#"{"result":{"status":"failed","error":{"code":-32603,"message":"no"}}}"#,
            ),
            (
                r#"{"params":{"error":{"code":-31403.0,"_meta":{"dev.portcullis/x":1}}}}"#,
                r#"{"params":{"error":{"code":-32603,"_meta":{}}}}"#,
            ),
        ] {
            assert_eq!(without(forged).as_deref(), Some(clean), "{forged}");
            assert_eq!(without(clean), None, "{clean}");
        }
        for own in [
            r#"{"error":{"code":-32603,"message":"no","data":{"reason":"x","rule":"y"}}}"#,
            r#"{"error":{"code":31403,"message":"no","data":-31403}}"#,
            r#"{"result":{"structuredContent":{"error":{"code":-31403,"data":1}}}}"#,
        ] {
            assert_eq!(without(own), None, "{own}");
        }
    }

    #[test]
    fn a_refusal_that_the_server_was_given_is_told_from_a_mark_of_its_own() {
        let told = RefusalReason::NotConfigured(RequestPurpose::Form).note();
        for (text, is_passed_on) in [
            (format!(r#"{{"id":1,"error":{{"code":-31403,"message":"{told}"}}}}"#), true),
            (
                format!(r#"{{"error":{{"code":-31403,"message":"MCP error -31403: {told}"}}}}"#),
                true,
            ),
            (r#"{"error":{"code":-31403,"message":"denied by rule `x`"}}"#.to_owned(), false),
            (r#"{"error":{"code":-31403}}"#.to_owned(), false),
            (
                format!(
                    r#"{{"error":{{"code":-31403,"message":"{told}","_meta":{{"dev.portcullis/denial":1}}}}}}"#
                ),
                false,
            ),
            (r#"{"result":{"_meta":{"dev.portcullis/denial":1}}}"#.to_owned(), false),
        ] {
            let bytes = Bytes::copy_from_slice(text.as_bytes());
            let document = Document::parse(bytes, &JsonBounds::ANSWER).unwrap();
            assert!(removed(&document).is_some(), "{text}");
            assert_eq!(are_passed_on(&document), is_passed_on, "{text}");
        }
    }

    #[test]
    fn only_keys_of_the_gateway_in_a_meta_are_taken_out() {
        for clean in [
            r#"{"result":{"content":[]}}"#,
            r#"{"result":{"_meta":{"com.example/portcullis":1,"dev.portcullis":2}}}"#,
            // Only metadata can hold marks: a tool may return a file that contains such a key.
            r#"{"result":{"structuredContent":{"dev.portcullis/denial":{"reason":"x"}}}}"#,
            r#"{"result":{"text":"_meta dev.portcullis/denial \u0041"}}"#,
            r#"{"result":{"_meta":["dev.portcullis/denial"]}}"#,
        ] {
            assert_eq!(without(clean), None, "{clean}");
        }
        for (forged, clean) in [
            (
                r#"{"result": {"_meta": {"dev.portcullis/denial": {"reason": "x"}, "a": 1.0e2}, "isError": true}}"#,
                r#"{"result":{"_meta":{"a":1.0e2},"isError":true}}"#,
            ),
            (r#"{"_meta":{"dev.portcullis/":0}}"#, r#"{"_meta":{}}"#),
            (
                r#"[{"\u005fmeta":{"\u0064ev.portcullis\/partial":[],"b":[{"_meta":{"dev.portcullis/x":1}}]}}]"#,
                r#"[{"_meta":{"b":[{"_meta":{}}]}}]"#,
            ),
            // Readers that match names loosely take these for the same.
            (r#"{"_meta":{"Dev.Portcullis/denial":1}}"#, r#"{"_meta":{}}"#),
            (r#"{"meta":{"dev.portcullis/denial":1}}"#, r#"{"meta":{}}"#),
            (
                r#"{"content":[{"_Meta":{"dev.portcullis/denial":1}}]}"#,
                r#"{"content":[{"_Meta":{}}]}"#,
            ),
            (r#"{"_meta":{"dev.portculli\u017f/denial":1}}"#, r#"{"_meta":{}}"#),
        ] {
            assert_eq!(without(forged).as_deref(), Some(clean), "{forged}");
            assert_eq!(without(clean), None, "{clean}");
        }
    }
}
