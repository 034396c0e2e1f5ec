//! Masks secrets in text for records, spans, log lines and messages.
//!
//! A caller may name a resource by a URI with a password before its host or a token in its query. The upstream server
//! receives it as it was sent; records of the call must not become a second place to steal it from.

use std::borrow::Cow;
use std::ops::Range;

use detection::content;

/// The replacement for a secret.
const MASK: &str = "***";
/// Maximum length of a parameter name that is checked, in bytes; the known ones are shorter.
const NAME: usize = 128;
/// Names of parameters that carry a secret, in lower case and without separators.
const SECRETS: [&str; 9] =
    ["auth", "authorization", "key", "otp", "pass", "passphrase", "pw", "sas", "sig"];
/// Endings of such names: `access_token`, `X-Amz-Signature`, `client_secret`, `PHPSESSID`.
const ENDINGS: [&str; 15] = [
    "accesskey",
    "accesskeyid",
    "apikey",
    "assertion",
    "credential",
    "credentials",
    "jwt",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "sessid",
    "signature",
    "token",
];

/// Masks what has the form of a secret, and the secret parts of URIs: for log lines and messages that may quote
/// arbitrary text.
#[must_use]
pub fn secrets(text: &str) -> String {
    uris(&content::without_secrets(text)).into_owned()
}

/// Masks the user information and the secret parameters of URIs anywhere in the text. Text without any is returned
/// unchanged.
#[must_use]
pub fn uris(text: &str) -> Cow<'_, str> {
    let mut found = user_information(text);
    found.extend(parameters(text));
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    found.sort_by_key(|range| range.start);
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for Range { start, end } in found {
        if end > done {
            out.push_str(text.get(done..start).unwrap_or_default());
            out.push_str(MASK);
            done = end;
        }
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// Whether the identity of a server that was approved is the one that was found. Identities have no secrets of URIs; those
/// that earlier versions wrote may have them.
#[must_use]
pub fn is_same_identity(approved: &str, found: &str) -> bool {
    approved == found || uris(approved) == found
}

/// Finds user information: the text between `//` and the last `@` of an authority.
///
/// RFC 3986, section 3.2.1. Many parsers treat a backslash as a slash, so this one does too.
fn user_information(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let is_slash = |byte: Option<&u8>| matches!(byte, Some(b'/' | b'\\'));
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(at) = bytes.get(from..).and_then(|rest| memchr::memchr2(b'/', b'\\', rest)) {
        let at = from + at;
        from = at + 1;
        let begins = at == 0 || bytes.get(at - 1) == Some(&b':');
        if !begins || !is_slash(bytes.get(at + 1)) {
            continue;
        }
        let rest = text.get(at + 2..).unwrap_or_default();
        let end = rest.find(|c: char| matches!(c, '/' | '\\' | '?' | '#') || ends_a_uri(c));
        let authority = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        if let Some(length) = authority.rfind('@') {
            found.push(at + 2..at + 2 + length);
        }
        from = at + 2 + authority.len();
    }
    found
}

/// Finds the values of secret parameters in queries and fragments.
fn parameters(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(['?', '&', ';', '#'])) {
        let start = from + at + 1;
        let rest = text.get(start..).unwrap_or_default();
        let end = rest.find(|c: char| matches!(c, '&' | ';' | '#') || ends_a_uri(c));
        let pair = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        if let Some((name, value)) = pair.split_once('=')
            && !value.is_empty()
            && is_secret(name)
        {
            let value_at = start + name.len() + 1;
            found.push(value_at..value_at + value.len());
        }
        from = start + pair.len();
    }
    found
}

/// Whether this character ends a URI that stands in a longer text.
fn ends_a_uri(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '<' | '>' | '`')
}

/// Whether a parameter or member of this name carries a secret, in any case and with any separators.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    if name.len() > NAME {
        return false;
    }
    let name = plain(name);
    SECRETS.contains(&&*name) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The letters and digits of a name in lower case, after percent-decoding.
fn plain(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let decoded = match (byte, after) {
            (b'%', [high, low, ..]) => char::from(*high)
                .to_digit(16)
                .zip(char::from(*low).to_digit(16))
                .and_then(|(high, low)| u8::try_from(high << 4 | low).ok()),
            _ => None,
        };
        let (byte, after) = match decoded {
            Some(decoded) => (decoded, after.get(2..).unwrap_or_default()),
            None => (byte, after),
        };
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte.to_ascii_lowercase()));
        }
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{secrets, uris};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use std::borrow::Cow;

    #[test]
    fn user_information_and_secret_parameters_are_not_shown() {
        for (text, shown) in [
            ("https://ana:hunter2@example.com/a", "https://***@example.com/a"),
            ("postgres://ana:p@ss@db:5432/x", "postgres://***@db:5432/x"),
            ("//ana@example.com", "//***@example.com"),
            ("https:\\\\ana:hunter2@example.com\\a", "https:\\\\***@example.com\\a"),
            ("see https://a:b@c and http://d:e@f.", "see https://***@c and http://***@f."),
            ("https://h/?access_token=abc&x=1", "https://h/?access_token=***&x=1"),
            ("https://h/?x=1&X-Amz-Signature=0f/+=#a", "https://h/?x=1&X-Amz-Signature=***#a"),
            ("https://h/#id_token=abc", "https://h/#id_token=***"),
            ("https://h/?api%5Fkey=abc", "https://h/?api%5Fkey=***"),
            ("https://h/?%74oken=abc", "https://h/?%74oken=***"),
            ("https://h/?sig=abc;sv=2", "https://h/?sig=***;sv=2"),
            ("https://a:b@h/?next=https://c:d@e", "https://***@h/?next=https://***@e"),
        ] {
            assert_eq!(uris(text), shown);
        }
    }

    #[test]
    fn what_is_a_secret_by_its_form_or_by_its_place_is_not_shown() {
        let text =
            "ghp_1234567890abcdefghijABCDEFGHIJ123456 at https://ana@h/?access_token=abc&x=1";
        let shown = secrets(text);
        assert!(!shown.contains("ghp_1234") && shown.contains("[REDACTED:"), "{shown}");
        assert!(shown.ends_with("https://***@h/?access_token=***&x=1"), "{shown}");
        assert_eq!(secrets("3 of 4 at https://h/a"), "3 of 4 at https://h/a");
    }

    #[test]
    fn what_has_no_secret_is_as_it_was() {
        for text in [
            "",
            "read_file",
            "https://example.com:8443/a@b?page=2&monkey=1#part",
            "file:///srv/a@b",
            "mailto:ana@example.com",
            "a//b@c",
            "https://h/?token=",
            "what is this? nothing; really",
            "spiffe://example.org/ns/a",
        ] {
            assert!(matches!(uris(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd_and_a_second_look_finds_nothing(text in any::<String>()) {
            let once = uris(&text).into_owned();
            prop_assert_eq!(uris(&once), &*once);
        }

        #[test]
        fn a_password_is_never_left(
            before in "[a-z ]{0,8}",
            name in "[a-z]{0,6}",
            password in "[0-9a-f]{16}[!$*+,=@:%]{0,3}",
            after in "[/?#][a-z/?#&=]{0,8}",
        ) {
            let text = format!("{before}https://{name}:{password}@host{after}");
            let shown = uris(&text).into_owned();
            prop_assert!(!shown.contains(&password), "{}", shown);
            prop_assert!(shown.contains("***@host"), "{}", shown);
        }
    }
}
