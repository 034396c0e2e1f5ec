//! Values that are secrets because of the member they stand in, for what is written down: a password
//! of four words is none by itself.

use crate::json::{Kind, Value, write_items, write_members, write_name, write_string};

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
    write(&mut out, value, false, &mut |text| {
        changes = true;
        mark(text)
    });
    changes.then_some(out)
}

/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn write(out: &mut Vec<u8>, value: Value<'_>, inside: bool, mark: &mut dyn FnMut(&str) -> String) {
    match value.kind() {
        Kind::Plain | Kind::Escaped if inside => {
            write_string(out, &mark(&value.as_str().unwrap_or_default()));
        }
        Kind::Number if inside => write_string(out, &mark(value.raw())),
        Kind::Plain | Kind::Escaped | Kind::Number | Kind::Boolean | Kind::Null => {
            out.extend_from_slice(value.raw().as_bytes());
        }
        Kind::Array => {
            write_items(out, value.items(), |out, item| write(out, item, inside, mark));
        }
        Kind::Object => write_members(out, value.members(), |out, (name, member)| {
            write_name(out, &name);
            write(out, member, inside || says_so(&name), mark);
        }),
    }
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
    }
}
