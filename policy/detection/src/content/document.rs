//! A text that is JSON: finds the secrets that names of its members announce, and keeps it JSON when values in it are
//! replaced.

use std::ops::Range;

use json::{Document, JsonBounds, JsonKind, Value};

use super::members::{NamedBy, NamesWithin};
use crate::labels::form;
use crate::secrets::found::FoundValue;

/// A text that consists of JSON values.
#[derive(Debug)]
pub(super) struct JsonText {
    /// The values, each with its place in the text.
    values: Vec<(usize, Document)>,
    /// The strings and numbers of the text, in order.
    tokens: Vec<JsonToken>,
}

/// A string or a number in a text.
#[derive(Debug)]
struct JsonToken {
    /// Its place, without quotation marks.
    at: Range<usize>,
    kind: TokenKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    /// The name of a member.
    Name,
    String,
    Number,
}

/// A part of a JSON text that can be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplaceablePart {
    /// The part of the text.
    pub(super) at: Range<usize>,
    /// Whether it is a number, in place of which only a string in quotation marks can stand.
    pub(super) is_number: bool,
}

/// Appends what is found in a value because of the name before it.
type FindNamed<'f> = &'f mut dyn FnMut(&str, &str, &mut Vec<FoundValue>);

impl JsonText {
    /// The JSON values of a text; `None` where it is anything else.
    pub(super) fn of(text: &str) -> Option<Self> {
        let values = form::documents(text)?;
        let mut tokens = Vec::new();
        for (from, value) in &values {
            let end = from + value.text().len();
            add_tokens(text.as_bytes().get(..end)?, *from, &mut tokens);
        }
        Some(Self { values, tokens })
    }

    /// What `find` finds in the values that have a name.
    pub(super) fn named(&self, find: FindNamed<'_>) -> Vec<FoundValue> {
        let mut out = Vec::new();
        for (from, document) in &self.values {
            add_named(document.root(), NamedBy::Nothing, *from, find, &mut out);
        }
        out
    }

    /// The strings and names that have escapes, each with its place and decoded.
    pub(super) fn escaped(&self, text: &str) -> impl Iterator<Item = (Range<usize>, String)> {
        let strings = self.tokens.iter().filter(|token| token.kind != TokenKind::Number);
        strings.filter_map(move |token| {
            let written = text.get(token.at.clone()).filter(|text| text.contains('\\'))?;
            let string = format!("\"{written}\"").into();
            let string = Document::parse(string, &JsonBounds::ANSWER).ok()?;
            Some((token.at.clone(), string.root().as_str()?.into_owned()))
        })
    }

    /// The parts of a range of the text that can be replaced: what of it lies within strings, with whole escapes, and whole
    /// numbers. Of a range over several of them, the names of members are left as they are. What lies outside the values (in
    /// a comment before them, or on the line of a fence) can be replaced as it is.
    pub(super) fn parts(&self, text: &str, range: &Range<usize>) -> Vec<ReplaceablePart> {
        let mut parts = self.outside(text, range);
        let first = self.tokens.partition_point(|token| token.at.end <= range.start);
        let rest = self.tokens.get(first..).unwrap_or_default();
        let count = rest.partition_point(|token| token.at.start < range.end);
        let within = rest.get(..count).unwrap_or_default();
        let touched = within.iter().filter(|token| count == 1 || token.kind != TokenKind::Name);
        let part = |token: &JsonToken| match token.kind {
            TokenKind::Number => ReplaceablePart { at: token.at.clone(), is_number: true },
            TokenKind::Name | TokenKind::String => {
                let (start, end) = (range.start.max(token.at.start), range.end.min(token.at.end));
                let at = whole_escapes(text, &token.at, start..end);
                ReplaceablePart { at, is_number: false }
            }
        };
        parts.extend(touched.map(part).filter(|part| !part.at.is_empty()));
        parts.sort_by_key(|part| part.at.start);
        parts
    }

    /// What of a range lies outside the values, without blanks around it.
    fn outside(&self, text: &str, range: &Range<usize>) -> Vec<ReplaceablePart> {
        let (mut parts, mut from) = (Vec::new(), range.start);
        let end = std::iter::once((text.len(), text.len()));
        let spans = self.values.iter().map(|(start, value)| (*start, start + value.text().len()));
        for (start, after) in spans.chain(end).skip_while(|(_, after)| *after <= range.start) {
            let gap = from..start.min(range.end);
            let what = text.get(gap.clone()).unwrap_or_default();
            let word = what.trim();
            if !word.is_empty() {
                let start = gap.start + (what.len() - what.trim_start().len());
                parts.push(ReplaceablePart { at: start..start + word.len(), is_number: false });
            }
            from = from.max(after);
            if from >= range.end {
                break;
            }
        }
        parts
    }
}

/// Adds the strings and numbers of the JSON value that begins at `from`.
fn add_tokens(bytes: &[u8], from: usize, tokens: &mut Vec<JsonToken>) {
    let of_number =
        |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        let rest = bytes.get(at + 1..).unwrap_or_default();
        match byte {
            b'"' => {
                let length = string_length(rest);
                let behind = rest.get(length + 1..).unwrap_or_default();
                let next = behind.iter().find(|byte| !byte.is_ascii_whitespace());
                let kind = if next == Some(&b':') { TokenKind::Name } else { TokenKind::String };
                tokens.push(JsonToken { at: at + 1..at + 1 + length, kind });
                at += length + 2;
            }
            b'-' | b'0'..=b'9' => {
                let length = 1 + rest.iter().take_while(|byte| of_number(byte)).count();
                tokens.push(JsonToken { at: at..at + length, kind: TokenKind::Number });
                at += length;
            }
            _ => at += 1,
        }
    }
}

/// The length of a string up to the quotation mark that ends it.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Longest escape: two halves of one character.
const LONGEST_ESCAPE: usize = 12;

/// A range within a string, extended to whole escapes.
fn whole_escapes(text: &str, string: &Range<usize>, range: Range<usize>) -> Range<usize> {
    let start = escape_over(text, string, range.start).map_or(range.start, |escape| escape.start);
    let end = escape_over(text, string, range.end).map_or(range.end, |escape| escape.end);
    start..end.max(start)
}

/// The escape of a string that begins before `at` and ends behind it.
fn escape_over(text: &str, string: &Range<usize>, at: usize) -> Option<Range<usize>> {
    let first = at.saturating_sub(LONGEST_ESCAPE - 1).max(string.start);
    let before = text.as_bytes().get(string.start..at)?;
    (first..at).find_map(|from| {
        let before = before.get(..=from - string.start)?;
        // Of a run of `\`, every second one is escaped itself.
        let run = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        let until = from + escape_length(text.get(from..string.end)?);
        (run % 2 == 1 && at < until).then_some(from..until)
    })
}

/// The length of the escape at the beginning of a text; two halves of one character are one escape.
fn escape_length(text: &str) -> usize {
    let half = |text: &str, digits: [char; 4]| {
        let high = text.strip_prefix("\\u").or_else(|| text.strip_prefix("\\U"));
        let mut letters = high.unwrap_or_default().chars();
        letters.next().is_some_and(|c| c.eq_ignore_ascii_case(&'d'))
            && letters.next().is_some_and(|c| digits.contains(&c.to_ascii_lowercase()))
    };
    let length = if text.starts_with("\\u") { 6 } else { 2 };
    let behind = text.get(length..).unwrap_or_default();
    let pair =
        length == 6 && half(text, ['8', '9', 'a', 'b']) && half(behind, ['c', 'd', 'e', 'f']);
    text.len().min(if pair { 12 } else { length })
}

/// Adds what is found in `value` and in everything in it; `from` is the place of its document in the text.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn add_named(
    value: Value<'_>,
    named: NamedBy<'_>,
    from: usize,
    find: FindNamed<'_>,
    out: &mut Vec<FoundValue>,
) {
    let start = from + value.span().start;
    match (value.kind(), named.name()) {
        (JsonKind::Number, Some(name)) => {
            let before = out.len();
            find(name, value.raw(), out);
            move_by(out, before, start);
        }
        (JsonKind::Plain, Some(name)) => {
            let before = out.len();
            find(name, &value.as_str().unwrap_or_default(), out);
            move_by(out, before, start + 1);
        }
        (JsonKind::Escaped, Some(name)) => {
            let before = out.len();
            find(name, &value.as_str().unwrap_or_default(), out);
            // Its places are those of the decoded text: the whole string counts.
            let inside = start + 1..start + value.raw().len() - 1;
            for one in out.iter_mut().skip(before) {
                (one.from, one.end) = (inside.start, inside.end);
            }
        }
        (JsonKind::Array, _) => {
            let within = NamesWithin::of(named, value);
            for (n, item) in value.items().enumerate() {
                add_named(item, within.item(n), from, find, out);
            }
        }
        (JsonKind::Object, _) => {
            let within = NamesWithin::of(named, value);
            for (name, member) in value.members() {
                add_named(member, within.member(&name), from, find, out);
            }
        }
        (JsonKind::Null | JsonKind::Boolean, _)
        | (JsonKind::Number | JsonKind::Plain | JsonKind::Escaped, None) => {}
    }
}

/// Moves the findings from the one at `first` on.
fn move_by(out: &mut [FoundValue], first: usize, by: usize) {
    for one in out.iter_mut().skip(first) {
        *one = one.behind(by);
    }
}

#[cfg(test)]
mod tests {
    use super::{JsonText, ReplaceablePart};

    fn parts(text: &str, what: &str) -> Vec<String> {
        let json = JsonText::of(text).unwrap();
        let from = text.find(what).unwrap();
        let parts = json.parts(text, &(from..from + what.len())).into_iter();
        parts
            .map(|ReplaceablePart { at, is_number }| {
                format!("{}{}", text.get(at).unwrap(), if is_number { "#" } else { "" })
            })
            .collect()
    }

    #[test]
    fn what_is_replaced_lies_within_strings_and_numbers() {
        for (text, what, expected) in [
            (r#"{"a":"bcd"}"#, "cd", vec!["cd"]),
            (r#"{"a":"b","c":"d"}"#, r#"b","c":"d"#, vec!["b", "d"]),
            (r#"{"ab":1}"#, "b", vec!["b"]),
            (r#"{"a":-12.5e3}"#, "12", vec!["-12.5e3#"]),
            (r#"["a\"b"]"#, "a\\", vec!["a\\\""]),
            (r#"["a\u00e9b"]"#, "e9b", vec!["\\u00e9b"]),
            (r#"["\ud83d\ude00b"]"#, "ude00b", vec![r"\ud83d\ude00b"]),
            (r#"["a\\"]"#, r"a\", vec![r"a\\"]),
            (r#"{"a":true}"#, "true", vec![]),
            ("{\"a\":1}\n{\"b\":2}\n", "2", vec!["2#"]),
            ("# a word\n{}", "a word", vec!["a word"]),
            ("// a\n{\"b\":\"c\"}", "a\n{\"b\":\"c", vec!["a", "c"]),
            ("```json word\n{\"a\":1}\n```", "word", vec!["word"]),
            (r#"["\\\\\n"]"#, r"\n", vec![r"\n"]),
        ] {
            assert_eq!(parts(text, what), expected, "{text}");
        }
        let text = r#"{"a\u0062":"c","d":["\n"]}"#;
        let escaped: Vec<_> = JsonText::of(text).unwrap().escaped(text).collect();
        assert_eq!(escaped, [(2..9, "ab".to_owned()), (21..23, "\n".to_owned())]);
        assert!(JsonText::of("no JSON").is_none() && JsonText::of("{\"a\":").is_none());
    }
}
