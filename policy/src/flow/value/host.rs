//! The spellings of a host that its readers take for the same one (WHATWG URL, section 3.5; RFC 3492).

use std::borrow::Cow;

use detection::content::punycode;
use unicode_normalization::UnicodeNormalization as _;

/// What stands before a label in Punycode.
const PUNYCODE: &str = "xn--";
/// Longest label that is decoded, in bytes: the longest one of DNS.
const LABEL: usize = 63;

/// A token with the labels of its hosts as they are read: Punycode is decoded, and an ideographic full stop between two
/// labels is a dot.
pub(super) fn readable(token: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(token);
    if out.contains('\u{3002}') && (has_scheme(&out) || is_between_ascii(&out)) {
        out = Cow::Owned(out.replace('\u{3002}', "."));
    }
    if !out.contains(PUNYCODE) {
        return out;
    }
    let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut text = String::with_capacity(out.len());
    let mut rest = &*out;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
        let (label, after) = rest.split_at(end);
        match label.strip_prefix(PUNYCODE).filter(|_| label.len() <= LABEL).and_then(punycode) {
            Some(label) => text.extend(label.nfkc().flat_map(char::to_lowercase)),
            None => text.push_str(label),
        }
        let next = after.chars().next().map_or(0, char::len_utf8);
        let (sign, after) = after.split_at(next);
        text.push_str(sign);
        rest = after;
    }
    Cow::Owned(text)
}

fn has_scheme(token: &str) -> bool {
    ["http:", "https:", "ftp:", "ws:", "wss:", "mailto:"]
        .iter()
        .any(|known| token.starts_with(known))
        || token.contains('@')
}

/// Whether each ideographic full stop stands between letters or digits of ASCII: in a sentence it stands between others.
fn is_between_ascii(token: &str) -> bool {
    let mut before = None;
    let mut chars = token.chars().peekable();
    while let Some(c) = chars.next() {
        let is_ascii = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        if c == '\u{3002}' && !(is_ascii(before) && is_ascii(chars.peek().copied())) {
            return false;
        }
        before = Some(c);
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::readable;

    #[test]
    fn a_host_is_read_as_its_readers_read_it() {
        for (written, read) in [
            ("eve@xn--bcher-kva.example", "eve@b\u{fc}cher.example"),
            ("https://xn--fsqu00a.xn--0zwm56d/a", "https://\u{4f8b}\u{5b50}.\u{6d4b}\u{8bd5}/a"),
            ("https://evil\u{3002}example/drop", "https://evil.example/drop"),
            ("evil\u{3002}example", "evil.example"),
            ("eve@\u{4f8b}\u{3002}example", "eve@\u{4f8b}.example"),
        ] {
            assert_eq!(readable(written), read);
        }
        for same in [
            "xn--",
            "xn---",
            "xn--\u{fc}",
            "\u{597d}\u{3002}\u{518d}\u{89c1}",
            "xn--99999999999",
            "a.b",
        ] {
            assert_eq!(readable(same), same);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_panics(text in "(xn--)?[a-z0-9-]{0,70}(\\.|\u{3002})?.{0,20}") {
            readable(&text);
        }
    }
}
