//! Values that are secrets because of the member they stand in, for what is written down: a password
//! of four words is none by itself.

use crate::json::{
    Bounds, Document, Kind, Value, write_items, write_members, write_name, write_string,
};
use crate::labels::form::{self, Form};

/// What such members are called, compared without case and without what joins words.
const NAMES: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "token",
    "authorization",
];
/// Longest name that is looked at, in bytes.
const LONGEST: usize = 256;
/// How often a text may be JSON within a string of JSON: what goes deeper is replaced.
const NESTED: usize = 4;

/// Whether a member of this name holds a secret.
fn says_so(name: &str) -> bool {
    let name: String = name
        .chars()
        .take(LONGEST)
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    NAMES.iter().any(|known| name.contains(known))
}

/// `value` with a mark in place of every text and number in such members; `None` if there are none.
pub(super) fn without(value: Value<'_>, mark: &dyn Fn(&str) -> String) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(value.raw().len());
    let mut changes = false;
    write(&mut out, value, false, NESTED, &mut |text| {
        changes = true;
        mark(text)
    });
    changes.then_some(out)
}

/// INVARIANT: the parser bounds the depth, and [`NESTED`] that of texts in texts, so the recursion is
/// bounded too.
fn write(
    out: &mut Vec<u8>,
    value: Value<'_>,
    inside: bool,
    nested: usize,
    mark: &mut dyn FnMut(&str) -> String,
) {
    match value.kind() {
        Kind::Plain | Kind::Escaped if inside => {
            write_string(out, &mark(&value.as_str().unwrap_or_default()));
        }
        Kind::Number if inside => write_string(out, &mark(value.raw())),
        Kind::Plain | Kind::Escaped => {
            match text(&value.as_str().unwrap_or_default(), nested, mark) {
                Some(shown) => write_string(out, &shown),
                None => out.extend_from_slice(value.raw().as_bytes()),
            }
        }
        Kind::Number | Kind::Boolean | Kind::Null => {
            out.extend_from_slice(value.raw().as_bytes());
        }
        Kind::Array => {
            write_items(out, value.items(), |out, item| write(out, item, inside, nested, mark));
        }
        Kind::Object => write_members(out, value.members(), |out, (name, member)| {
            write_name(out, &name);
            write(out, member, inside || says_so(&name), nested, mark);
        }),
    }
}

/// A text that is JSON without what stands in such members; a mark where it may hold one and cannot be
/// read.
fn text(text: &str, nested: usize, mark: &mut dyn FnMut(&str) -> String) -> Option<String> {
    let values = match form::of(text) {
        Form::Plain => return form::gives(text, says_so).then(|| mark(text)),
        Form::Json(values) if nested > 0 => values,
        Form::Json(_) | Form::Odd => return Some(mark(text)),
    };
    let (mut out, mut done, mut changes) = (Vec::with_capacity(text.len()), 0, false);
    for place in values {
        let value = text.get(place.clone()).unwrap_or_default().to_owned();
        let Ok(document) = Document::parse(value.into(), &Bounds::ANSWER) else {
            return Some(mark(text));
        };
        out.extend_from_slice(text.get(done..place.start).unwrap_or_default().as_bytes());
        write(&mut out, document.root(), false, nested - 1, &mut |text| {
            changes = true;
            mark(text)
        });
        done = place.end;
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default().as_bytes());
    let shown = if changes { String::from_utf8(out).ok() } else { return None };
    Some(shown.unwrap_or_else(|| mark(text)))
}

#[cfg(test)]
mod tests {
    use super::{says_so, without};
    use crate::json::{Bounds, Document};

    #[test]
    fn what_is_called_a_secret_is_one_whatever_it_says() {
        let text =
            r#"{"a":{"pass\u0077ord":"four words of mine","DB-Token":["x",7,true]},"note":"y"}"#;
        let document = Document::parse(text.into(), &Bounds::MESSAGE).unwrap();
        let out = without(document.root(), &|_| "#".to_owned()).unwrap();
        let expected = r##"{"a":{"password":"#","DB-Token":["#","#",true]},"note":"y"}"##;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let none = Document::parse(r#"{"pass":"y"}"#.into(), &Bounds::MESSAGE).unwrap();
        assert_eq!(without(none.root(), &|_| "#".to_owned()), None);
        assert!(says_so("clientSecret") && !says_so("secre"));
        // Also in a text that is JSON, or that nobody can read as such.
        for text in [
            r#"{"password":"four words of mine"}"#,
            r#"{"password":"four words of mine","n":NaN}"#,
            r#"so {"password":"four words of mine"}"#,
            r#"{"a":"{\"password\":\"four words of mine\"}"}"#,
        ] {
            let quoted = serde_json::Value::from(text).to_string();
            let document = Document::parse(quoted.into(), &Bounds::MESSAGE).unwrap();
            let out = without(document.root(), &|_| "#".to_owned()).unwrap();
            assert!(!String::from_utf8(out).unwrap().contains("four"), "{text}");
        }
    }
}
