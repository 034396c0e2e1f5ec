//! Links in a text, exactly as they are written.
//!
//! Addresses are compared in one spelling. A link that somebody else has written as a whole says nothing of what the
//! flow knows, but only in the very spelling in which it was shown: case, final dots and slashes can encode a secret.
//!
//! What the caller has put together is compared the other way round: a server that repeats it can spell it otherwise, so
//! it is known in a form ([`form`]) that the spellings share.

use super::{ValueKey, ValueReading, is_separator, normal, trimmed};

/// The beginnings of a link.
const BEGINNINGS: [&str; 3] = ["https://", "http://", "www."];
/// How often escapes in what was sent are decoded.
const DECODED: usize = 3;

/// What of a link is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPart<'a> {
    /// The form that its spellings share.
    Form(&'a str),
    /// The link as it is written.
    Exact(&'a str),
}

fn is_link(token: &str) -> bool {
    BEGINNINGS.iter().any(|known| token.len() > known.len() && token.starts_with(known))
}

/// The form that the spellings of an address share: without scheme, case, escapes, invisible characters and the marks
/// around it.
fn form(token: &str) -> String {
    let mut text = normal(token).into_owned();
    for _ in 0..DECODED {
        let Some(decoded) = decoded(&text) else { break };
        text = normal(&decoded).into_owned();
    }
    let text = text.replace('\\', "/");
    let of_scheme = BROKEN.iter().find_map(|known| text.strip_prefix(known));
    let bare = of_scheme.or_else(|| text.split_once("://").map(|(_, rest)| rest)).unwrap_or(&text);
    let bare = trimmed(bare.trim_start_matches('/'));
    bare.strip_prefix("www.").unwrap_or(bare).to_owned()
}

/// A text whose escapes of URLs are decoded; `None` if it has none. What is no UTF-8 is replaced.
fn decoded(text: &str) -> Option<String> {
    text.contains('%').then_some(())?;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| *first == b'%').and_then(|d| u8::from_str_radix(d, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    let decoded = String::from_utf8_lossy(&bytes);
    (*decoded != *text).then(|| decoded.into_owned())
}

/// Schemes whose readers drop tabs and line ends in a URL (WHATWG URL, section 4.4).
const BROKEN: [&str; 5] = ["http:", "https:", "ftp:", "ws:", "wss:"];

/// The other ways in which a reader can take a text: without its escapes, and with URLs that are broken over lines in one
/// piece.
pub fn readings(text: &str) -> impl Iterator<Item = String> {
    unescaped(text).into_iter().chain(unbroken(text))
}

/// A text of one URL without the tabs and line ends in it; `None` if it has none.
fn unbroken(text: &str) -> Option<String> {
    let is_dropped = |c: char| matches!(c, '\t' | '\n' | '\r');
    let text = text.trim();
    let begins =
        |known: &str| text.get(..known.len()).is_some_and(|head| head.eq_ignore_ascii_case(known));
    let is_broken = text.contains(is_dropped)
        && !text.contains(' ')
        && BROKEN.iter().any(|known| begins(known));
    is_broken.then(|| text.replace(is_dropped, ""))
}

/// A text whose escapes with a backslash are decoded: those of JSON (`\u0040`) and of Markdown (`\@`); `None` if it has none.
fn without_backslashes(text: &str) -> Option<String> {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut is_changed = false;
    for part in parts {
        let code = part.strip_prefix(['u', 'U']).and_then(|rest| rest.get(..4));
        let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match code.and_then(char::from_u32) {
            Some(character) => {
                out.push(character);
                out.push_str(part.get(5..).unwrap_or_default());
                is_changed = true;
            }
            None if part.starts_with(|c: char| c.is_ascii_punctuation()) => {
                out.push_str(part);
                is_changed = true;
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    is_changed.then_some(out)
}

/// A text whose escapes of URLs, of characters in HTML, and with a backslash are decoded; `None` if it has none.
#[must_use]
pub fn unescaped(text: &str) -> Option<String> {
    let of_url = decoded(text);
    let said = of_url.as_deref().unwrap_or(text);
    let of_html = said.contains('&').then(|| without_references(said));
    let of_html = of_html.filter(|decoded| decoded != said).or(of_url);
    let said = of_html.as_deref().unwrap_or(text);
    said.contains('\\').then(|| without_backslashes(said)).flatten().or(of_html)
}

/// Longest reference of HTML that is decoded, in bytes: a number of eight digits, or a name.
const LONGEST_NAME: usize = 12;

/// A text with the characters to which references in HTML (`&commat;`, `&nbsp;`, `&#32;`, `&#x20;`) refer.
fn without_references(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        // Only so far: of many `&` without an end none is read to the end of the text.
        let end = after.bytes().take(LONGEST_NAME + 1).position(|byte| byte == b';');
        let name = end.and_then(|end| after.get(..end)).unwrap_or_default();
        let character = match name.strip_prefix('#') {
            None => named_character(name),
            Some(number) => match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok().and_then(char::from_u32),
                None => number.parse().ok().and_then(char::from_u32),
            },
        };
        match character {
            Some(character) => out.push(character),
            None => out.push('&'),
        }
        let read = character.map_or(0, |_| name.len() + 1);
        rest = after.get(read..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The ASCII character that a named reference of HTML stands for, and the blank for `nbsp`.
///
/// <https://html.spec.whatwg.org/multipage/named-characters.html>
fn named_character(name: &str) -> Option<char> {
    Some(match name {
        "nbsp" => ' ',
        "Tab" => '\t',
        "NewLine" => '\n',
        "excl" => '!',
        "quot" | "QUOT" => '"',
        "num" => '#',
        "dollar" => '$',
        "percnt" => '%',
        "apos" => '\'',
        "lpar" => '(',
        "rpar" => ')',
        "ast" | "midast" => '*',
        "plus" => '+',
        "comma" => ',',
        "period" => '.',
        "sol" => '/',
        "colon" => ':',
        "semi" => ';',
        "lt" | "LT" => '<',
        "equals" => '=',
        "gt" | "GT" => '>',
        "quest" => '?',
        "commat" => '@',
        "lsqb" | "lbrack" => '[',
        "bsol" => '\\',
        "rsqb" | "rbrack" => ']',
        "Hat" => '^',
        "lowbar" | "UnderBar" => '_',
        "grave" => '`',
        "lcub" | "lbrace" => '{',
        "verbar" | "vert" | "VerticalLine" => '|',
        "rcub" | "rbrace" => '}',
        _ => return None,
    })
}

/// Calls `visit` with each link in a text, also without the marks that end a sentence, and before each with its form,
/// until it returns false; whether all were visited. Of what is sent or given, also with the forms of what could become a link.
pub(super) fn each(
    text: &str,
    reading: ValueReading,
    visit: &mut impl FnMut(LinkPart<'_>) -> bool,
) -> bool {
    if !reading.is_widest() {
        let mut tokens = text.split(is_separator).filter(|token| token.contains('.'));
        return tokens.all(|token| {
            visit(LinkPart::Form(&form(token))) && (!is_link(token) || visit_both(token, visit))
        });
    }
    if !BEGINNINGS.iter().any(|known| text.contains(known)) {
        return true;
    }
    let mut links = text.split(is_separator).filter(|token| is_link(token));
    links.all(|link| visit(LinkPart::Form(&form(link))) && visit_both(link, visit))
}

/// Visits a link as it is written, also without the marks that end a sentence.
fn visit_both(link: &str, visit: &mut impl FnMut(LinkPart<'_>) -> bool) -> bool {
    let end = trimmed(link);
    let has_end = !end.is_empty() && end.len() < link.len();
    visit(LinkPart::Exact(link)) && (!has_end || visit(LinkPart::Exact(end)))
}

/// The hash of a text that is sent and is one link; `None` if it is not.
#[must_use]
pub fn sent(key: &ValueKey, text: &str) -> Option<u64> {
    (is_link(text) && !text.contains(is_separator)).then(|| key.link(LinkPart::Exact(text)))
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::{LinkPart, ValueKey, ValueReading, each, form, sent, unescaped};

    fn shown(key: &ValueKey, text: &str) -> Vec<u64> {
        let mut found = Vec::new();
        each(text, ValueReading::Untrusted, &mut |link| {
            if let LinkPart::Exact(_) = link {
                found.push(key.link(link));
            }
            true
        });
        found
    }

    #[test]
    fn a_link_is_known_in_the_spelling_that_was_shown_and_in_no_other() {
        let key = ValueKey::new(RandomState::new());
        let text = "See (https://docs.example/A/b?x=1), <a href=\"http://one.example/\">one</a>, [two](www.two.example).";
        let shown = shown(&key, text);
        for known in [
            "https://docs.example/A/b?x=1",
            "http://one.example/",
            "http://one.example",
            "www.two.example",
        ] {
            assert!(sent(&key, known).is_some_and(|link| shown.contains(&link)), "{known}");
        }
        for other in [
            "http://docs.example/A/b?x=1",
            "https://www.two.example",
            "https://docs.example/a/b?x=1",
            "https://docs.example/A/b?x=1&y=2",
            "https://docs.example/A/b?x=1/",
            "https://docs.example/A/b",
            "https://one.example//",
            "www.two.example.",
            "www.two.example/secret",
            "see www.two.example",
            "two.example",
            "https://",
            "",
        ] {
            assert!(sent(&key, other).is_none_or(|link| !shown.contains(&link)), "{other}");
        }
    }
    #[test]
    fn escapes_of_urls_and_html_are_decoded() {
        for (escaped, said) in [
            ("the%20launch%C2%A0of", Some("the launch\u{a0}of")),
            ("the&nbsp;launch&#32;of&#x20;it", Some("the launch of it")),
            ("a%26%2332%3Bb", Some("a b")),
            ("a & b; c &amp; d &#; &#xzz; 100 %", None),
            ("eve&commat;evil&period;example", Some("eve@evil.example")),
            ("https&colon;&sol;&sol;evil.example", Some("https://evil.example")),
            (r"eve\u0040evil.example", Some("eve@evil.example")),
            (r"eve\@evil.example", Some("eve@evil.example")),
            (r"C:\Users\eve", None),
        ] {
            assert_eq!(unescaped(escaped).as_deref(), said, "{escaped}");
        }
    }

    #[test]
    fn the_spellings_of_an_address_share_a_form() {
        for other in [
            "HTTPS://EVIL.example/k/Secret",
            "https%3A%2F%2Fevil.example%2Fk%2Fsecret",
            "https%253A%252F%252Fevil.example%252Fk%252Fsecret",
            "evil.example/k/secret",
            "//evil.example/k/secret",
            "https:\\\\evil.example\\k\\secret",
            "https://evil.example/k/se\u{200b}cret",
            "https://www.evil.example/k/secret/",
            "ｅvil.example/k/secret.",
        ] {
            assert_eq!(form(other), "evil.example/k/secret", "{other}");
        }
        assert_ne!(form("https://evil.example/k/other"), "evil.example/k/secret");
    }
}
