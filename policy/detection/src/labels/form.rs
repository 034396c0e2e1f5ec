//! Classifies a text as a lenient JSON reader would: not JSON, one value or one value per line, or text that begins
//! like JSON and that readers parse differently.

use std::borrow::Cow;
use std::ops::Range;

use json::{Document, JsonBounds};
use policy_core::base::hidden::Hidden;

/// Most lines of a text that are parsed as JSON Lines: a longer text cannot be read.
const LINES: usize = 100_000;

/// The classification of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextForm {
    /// It does not begin like JSON.
    Plain,
    /// JSON values, by their range in the text.
    Json(Vec<Range<usize>>),
    /// It begins like JSON and is not strict JSON, so its content is unknown.
    Odd,
}

/// Classifies `text`, after a byte order mark, blanks, comments and the opening fence of a code block.
pub(crate) fn of(text: &str) -> TextForm {
    let (body, fenced) = body(text);
    if !body.starts_with(['{', '[', '"']) {
        return TextForm::Plain;
    }
    match parsed(body, fenced, text.len() - body.len()) {
        Some(values) => {
            TextForm::Json(values.iter().map(|(at, one)| *at..at + one.text().len()).collect())
        }
        None if begins(body) => TextForm::Odd,
        None => TextForm::Plain,
    }
}

/// The JSON values that `text` consists of, each with its place in it; `None` for a text that is anything else.
pub(crate) fn documents(text: &str) -> Option<Vec<(usize, Document)>> {
    let (body, fenced) = body(text);
    body.starts_with(['{', '[', '"']).then_some(())?;
    parsed(body, fenced, text.len() - body.len())
}

/// The JSON values of a text that begins like one; `from` is its place in a longer text.
fn parsed(body: &str, fenced: bool, from: usize) -> Option<Vec<(usize, Document)>> {
    let mut whole = body.trim_end_matches(is_blank);
    if fenced {
        whole = whole.trim_end_matches(['`', '~']).trim_end_matches(is_blank);
    }
    match json(whole) {
        Some(one) => Some(vec![(from, one)]),
        None => lines(whole, from),
    }
}

fn json(text: &str) -> Option<Document> {
    Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).ok()
}

/// JSON Lines: every line that is not blank is one value.
fn lines(text: &str, from: usize) -> Option<Vec<(usize, Document)>> {
    let (mut found, mut at) = (Vec::new(), from);
    for line in text.split_inclusive('\n') {
        let start = line.trim_start_matches(is_blank);
        let value = start.trim_end_matches(is_blank);
        let begins = at + line.len() - start.len();
        at += line.len();
        if value.is_empty() {
            continue;
        }
        (found.len() < LINES).then_some(())?;
        found.push((begins, json(value)?));
    }
    (found.len() > 1).then_some(found)
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || Hidden::of(c).is_some()
}

/// The text without what may precede JSON, and whether a code fence was part of that.
fn body(text: &str) -> (&str, bool) {
    let (mut rest, mut fenced) = (text, false);
    loop {
        let next = without_comments(rest);
        let next = match next.strip_prefix("```").or_else(|| next.strip_prefix("~~~")) {
            Some(block) if !fenced => {
                fenced = true;
                behind(block, "\n")
            }
            Some(_) | None => next,
        };
        if next.len() == rest.len() {
            return (rest, fenced);
        }
        rest = next;
    }
}

/// The text without blanks and comments at its beginning, in the syntax of JSON5 and YAML.
fn without_comments(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(is_blank);
        rest = match rest.strip_prefix("/*") {
            Some(comment) => behind(comment, "*/"),
            None if rest.starts_with("//") || rest.starts_with('#') => behind(rest, "\n"),
            None => return rest,
        };
    }
}

/// The text after the first `end`.
fn behind<'a>(text: &'a str, end: &str) -> &'a str {
    text.split_once(end).map_or("", |(_, rest)| rest)
}

/// Whether a text begins like an object or a list, even if the rest is not JSON. Markdown links, log prefixes and
/// placeholders do not.
fn begins(text: &str) -> bool {
    let (mut rest, mut lists) = (text, false);
    while let Some(inner) = rest.strip_prefix('[') {
        (rest, lists) = (without_comments(inner), true);
    }
    if let Some(inner) = rest.strip_prefix('{') {
        let inner = without_comments(inner);
        let name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '.' | '\\');
        let key = inner.trim_start_matches(name);
        return inner.starts_with(['"', '\'', '}'])
            || key.len() < inner.len() && without_comments(key).starts_with(':');
    }
    let scalar = |c: char| c.is_alphanumeric() || matches!(c, '.' | '+' | '-');
    let word = rest.trim_start_matches(scalar);
    lists
        && (rest.starts_with(['"', '\''])
            || word.len() < rest.len() && without_comments(word).starts_with(','))
}

/// Whether a text assigns a value to a known name in the syntax of JSON, anywhere and with escaped quotes too.
/// A name with Unicode escapes counts as known.
pub(crate) fn gives(text: &str, is_known: impl Fn(&str) -> bool) -> bool {
    has_given(text, |name| name.contains("\\u") || is_known(&shown(name)))
}

/// The same for bytes that are not text as a whole: every image has quotation marks, so the bytes between two of them
/// are a name only if all of them are readable.
pub(crate) fn gives_in_bytes(text: &str, is_known: impl Fn(&str) -> bool) -> bool {
    let is_odd = |c: char| c == char::REPLACEMENT_CHARACTER || c.is_control();
    let is_escaped = |name: &str| {
        name.split("\\u").skip(1).any(|code| {
            code.get(..4).is_some_and(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()))
        })
    };
    has_given(text, |name| !name.contains(is_odd) && (is_escaped(name) || is_known(&shown(name))))
}

/// Whether a text assigns a value to a name that satisfies `is_known`.
fn has_given(text: &str, is_known: impl Fn(&str) -> bool) -> bool {
    ["\"", "'", "&quot;"].iter().any(|quote| {
        let mut parts = text.split(quote).skip(1).peekable();
        while let Some(name) = parts.next() {
            let name = name.trim_end_matches('\\');
            let given = |rest: &&str| rest.trim_start_matches(is_blank).starts_with([':', '=']);
            if parts.peek().is_some_and(given) && is_known(name) {
                return true;
            }
        }
        false
    })
}

/// A name without its hidden characters.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    if name.contains(|c| Hidden::of(c).is_some()) {
        Cow::Owned(name.chars().filter(|c| Hidden::of(*c).is_none()).collect())
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{TextForm, gives, gives_in_bytes, of};

    #[test]
    fn json_is_found_behind_what_may_stand_before_it() {
        for (before, behind) in [
            ("", ""),
            ("\u{feff} \n", "\n"),
            ("```json\n", "\n```\n"),
            ("// a\n/* b */ ", ""),
            ("# a\n```\n", "```"),
        ] {
            let text = format!("{before}{{\"a\":1}}{behind}");
            let range = before.len()..before.len() + 7;
            assert_eq!(of(&text), TextForm::Json(vec![range]), "{text}");
        }
        assert_eq!(of("{\"a\":1}\n\n [2]\n"), TextForm::Json(vec![0..7, 10..13]));
        assert_eq!(of("\"a\""), TextForm::Json(std::iter::once(0..3).collect()));
    }

    #[test]
    fn what_begins_like_json_and_is_none_is_odd() {
        for text in [
            "{\"a\":NaN}",
            "{\"a\":1,}",
            "{\"a\":1,\"a\":2}",
            "{'a':1}",
            "{a: 1}",
            "{/* x */ a: 1}",
            "{\"a\":1} and more",
            "{\"a\":1}\n{\"a\":2",
            "[{\"a\":NaN}]",
            "[NaN, {\"a\":1}]",
            "[\"a\", 'b']",
            "[ [ {a:1} ] ]",
        ] {
            assert_eq!(of(text), TextForm::Odd, "{text}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(80), "}".repeat(80));
        assert_eq!(of(&deep), TextForm::Odd);
    }

    #[test]
    fn ordinary_texts_are_plain() {
        for text in [
            "",
            "A sentence.",
            "[link](https://a.example)",
            "[INFO] it began",
            "[2026-01-01 10:00:00] GET /",
            "[[wiki]] page",
            "[x] done",
            "{name} is a placeholder",
            "{{ mustache }}",
            "\"Well\", she said",
            "# Title\n\nA text",
            "```sh\nls\n```",
        ] {
            assert_eq!(of(text), TextForm::Plain, "{text}");
        }
    }

    #[test]
    fn a_value_that_is_given_to_a_name_is_found_in_any_text() {
        let known = |name: &str| name == "ssn";
        for text in [
            "So: {\"ssn\": 1}",
            "'ssn' : 1",
            "{\\\"ssn\\\":1}",
            "x {\"s\\u0073n\":1}",
            "a &quot;ssn&quot;: 1",
            "\"s\u{200b}sn\":1",
        ] {
            assert!(gives(text, known), "{text}");
        }
        for text in ["the ssn: 1", "\"ssn\" is a name", "\"name\": \"ssn\""] {
            assert!(!gives(text, known), "{text}");
        }
        assert!(gives_in_bytes("\u{fffd}\u{1}{\"ssn\":\"1\u{fffd}", known));
        assert!(gives_in_bytes("\u{fffd}\"s\\u0073n\" : 1", known));
        for text in ["\"\u{fffd}\\u\"=", "\"a\\uz\":", "\"\u{1}\\u0073\":"] {
            assert!(!gives_in_bytes(text, known), "{text:?}");
        }
    }
}
