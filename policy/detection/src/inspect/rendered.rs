//! A text as programs that show HTML or Markdown read the links and attributes in it (vectors PV-37 to PV-39).
//!
//! They decode character references (HTML, section 13.5; CommonMark, section 2.5), Markdown drops the backslash of an escape
//! (section 2.4), CSS decodes its own escapes (CSS Syntax, section 4.3.7), and a parser of URLs drops tabs and line ends
//! (WHATWG URL, section 4.4). None of that makes a tag, a quotation mark or a bracket that delimits something: those stay as
//! they are, and so does text that shows them.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr2};
use regex::Regex;

/// Longest beginning of a line that is searched for marks of block quotations, in bytes.
const MARKS: usize = 32;
/// Longest name of a character reference that is decoded, in bytes.
const NAME: usize = 13;

/// The references by name to characters that a link is made of (HTML, section 13.5). Tabs and line ends are dropped.
const NAMED: [(&str, &str); 30] = [
    ("Tab", ""),
    ("NewLine", ""),
    ("num", "#"),
    ("dollar", "$"),
    ("percnt", "%"),
    ("ast", "*"),
    ("midast", "*"),
    ("plus", "+"),
    ("comma", ","),
    ("period", "."),
    ("sol", "/"),
    ("colon", ":"),
    ("semi", ";"),
    ("equals", "="),
    ("quest", "?"),
    ("commat", "@"),
    ("bsol", "\\"),
    ("Hat", "^"),
    ("lowbar", "_"),
    ("UnderBar", "_"),
    ("lcub", "{"),
    ("lbrace", "{"),
    ("verbar", "|"),
    ("vert", "|"),
    ("VerticalLine", "|"),
    ("rcub", "}"),
    ("rbrace", "}"),
    ("fjlig", "fj"),
    ("lpar", "("),
    ("rpar", ")"),
];

/// A text as it is read, and where each part of it stands in the source.
#[derive(Debug)]
pub(crate) struct RenderedText {
    text: String,
    /// The starts of parts, in the text and in the source. Each is read as it stands, or is one character reference or escape.
    parts: Vec<(u32, u32)>,
}

impl RenderedText {
    /// Reads a text; `None` if it is read as it stands.
    pub(crate) fn of(source: &str) -> Option<Self> {
        let bytes = source.as_bytes();
        let is_markdown = memchr(b'\\', bytes).is_some()
            && bytes.windows(2).any(|pair| matches!(pair, b"](" | b"]:"));
        let has_quotes = memchr_iter(b'>', bytes).any(|at| begins_line(bytes, at));
        if memchr2(b'&', b'<', bytes).is_none() && !is_markdown && !has_quotes {
            return None;
        }
        let mut reader = Reader {
            source,
            is_markdown,
            has_quotes,
            has_tags: false,
            is_target_start: false,
            value_end: 0,
            target_end: Some(0),
            done: 0,
            read: Self { text: String::new(), parts: Vec::new() },
        };
        reader.read_all();
        let Reader { done, mut read, .. } = reader;
        if done == 0 {
            return None;
        }
        read.add(done, source.get(done..).unwrap_or_default());
        Some(read)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The range of the source that a range of the text was read from.
    pub(crate) fn source(&self, range: Range<usize>) -> Range<usize> {
        self.place(range.start)..self.place(range.end)
    }

    /// The source with what an expression matches in the text replaced; `None` if it matches nothing.
    pub(crate) fn replaced(&self, source: &str, pattern: &Regex, by: &str) -> Option<String> {
        let (mut out, mut done) = (None::<String>, 0);
        for one in pattern.find_iter(&self.text) {
            let Range { start, end } = self.source(one.range());
            let out = out.get_or_insert_with(|| String::with_capacity(source.len()));
            out.push_str(source.get(done..start).unwrap_or_default());
            out.push_str(by);
            done = end.max(done);
        }
        let mut out = out?;
        out.push_str(source.get(done..).unwrap_or_default());
        Some(out)
    }

    /// The offset in the source of the offset `at` in the text.
    fn place(&self, at: usize) -> usize {
        let part = self.parts.partition_point(|(start, _)| *start <= offset(at));
        let part = part.checked_sub(1).and_then(|part| self.parts.get(part));
        part.map_or(at, |(start, source)| {
            (source + (offset(at) - start)).try_into().unwrap_or(usize::MAX)
        })
    }

    /// Adds a part that stands at `from` in the source.
    fn add(&mut self, from: usize, text: &str) {
        self.parts.push((offset(self.text.len()), offset(from)));
        self.text.push_str(text);
    }
}

/// An offset as `u32`: no text of a message is longer.
fn offset(at: usize) -> u32 {
    at.try_into().unwrap_or(u32::MAX)
}

/// The state of reading. Each byte is looked at a fixed number of times.
struct Reader<'a> {
    source: &'a str,
    is_markdown: bool,
    /// Whether a line begins with the mark of a block quotation.
    has_quotes: bool,
    /// Whether a tag has begun. Where it ends depends on the reader: on comments, on code in Markdown, on elements of text.
    has_tags: bool,
    /// Whether the target of a Markdown link begins here: after `](` or `]:`, and blanks.
    is_target_start: bool,
    /// The end of the quoted value of an attribute.
    value_end: usize,
    /// The end of the last Markdown target in `<>`; `None` once no `>` follows.
    target_end: Option<usize>,
    /// The end of what was read.
    done: usize,
    read: RenderedText,
}

impl Reader<'_> {
    fn read_all(&mut self) {
        let bytes = self.source.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let is_inside = at < self.value_end || self.target_end.is_some_and(|end| at < end);
            let read = match byte {
                b'&' => reference(self.source.get(at..).unwrap_or_default(), self.opens(at)),
                b'\\' => self.escape(at),
                b'\n' => self.line_end(at, is_inside),
                b'\t' | b'\r' if is_inside => Some((1, Cow::Borrowed(""))),
                _ => {
                    self.note(at, *byte);
                    None
                }
            };
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            self.is_target_start = match byte {
                b'(' | b':' => before == Some(&b']'),
                blank => self.is_target_start && blank.is_ascii_whitespace(),
            };
            let Some((length, instead)) = read else {
                at += 1;
                continue;
            };
            if self.done < at {
                self.read.add(self.done, self.source.get(self.done..at).unwrap_or_default());
            }
            if !instead.is_empty() {
                // A part of its own, so that what stands before it ends where it begins.
                self.read.add(at, &instead);
            }
            at += length;
            self.done = at;
        }
    }

    /// Notes where a tag, the value of an attribute or a target begins.
    fn note(&mut self, at: usize, byte: u8) {
        let behind = self.source.as_bytes().get(at + 1..).unwrap_or_default();
        match byte {
            b'<' => {
                self.has_tags |= behind.first().is_some_and(u8::is_ascii_alphabetic);
                if self.is_target_start && self.target_end.is_some_and(|end| end <= at) {
                    self.target_end = memchr(b'>', behind).map(|end| at + 1 + end);
                }
            }
            // Also within a value: its opening quote may be in a comment, and then this is the one that counts.
            b'=' if self.has_tags => {
                let blanks = behind.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                let Some(quote @ (b'"' | b'\'')) = behind.get(blanks) else { return };
                let value = behind.get(blanks + 1..).unwrap_or_default();
                if let Some(end) = memchr(*quote, value) {
                    self.value_end = self.value_end.max(at + 1 + blanks + 1 + end);
                }
            }
            _ => {}
        }
    }

    /// The line end at a place with the marks of block quotations behind it. Within a target or a value it is dropped.
    fn line_end(&self, at: usize, is_inside: bool) -> Option<(usize, Cow<'static, str>)> {
        let marks = if self.has_quotes { quote_marks(self.source.as_bytes(), at + 1) } else { 0 };
        match (is_inside, marks) {
            (true, _) => Some((1 + marks, Cow::Borrowed(""))),
            (false, 0) => None,
            (false, _) => Some((1 + marks, Cow::Borrowed("\n"))),
        }
    }

    /// The escape at a backslash: of CSS where there are tags, or of Markdown.
    fn escape(&self, at: usize) -> Option<(usize, Cow<'static, str>)> {
        let bytes = self.source.as_bytes().get(at..)?;
        let style = self.has_tags.then(|| style_escape(bytes)).flatten();
        style.or_else(|| markdown_escape(bytes.get(1)).filter(|_| self.is_markdown))
    }

    /// Whether a parenthesis at a place is one of a function in a style, not one that delimits a target of Markdown.
    fn opens(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|at| self.source.as_bytes().get(at));
        self.has_tags && before != Some(&b']')
    }
}

/// Whether the `>` at a place is the mark of a block quotation: nothing but such marks and blanks stands before it in its
/// line (CommonMark, section 5.1).
fn begins_line(bytes: &[u8], at: usize) -> bool {
    let before = bytes.get(at.saturating_sub(MARKS)..at).unwrap_or_default();
    let marks = before.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t' | b'>')).count();
    at > marks && bytes.get(at - marks - 1) == Some(&b'\n')
}

/// The length of the marks of block quotations with which a line begins.
fn quote_marks(bytes: &[u8], start: usize) -> usize {
    let line = bytes.get(start..).unwrap_or_default();
    let marks = line.iter().take(MARKS).take_while(|byte| matches!(byte, b' ' | b'\t' | b'>'));
    let marks = line.get(..marks.count()).unwrap_or_default();
    let last = marks.iter().rposition(|byte| *byte == b'>');
    // One blank after the last mark is part of it.
    last.map_or(0, |last| last + 1 + usize::from(marks.get(last + 1) == Some(&b' ')))
}

/// The length of the character reference at the start of a text and what it stands for; `None` if there is none, or one to a
/// character that delimits something. `opens`: whether a parenthesis delimits nothing here.
fn reference(text: &str, opens: bool) -> Option<(usize, Cow<'static, str>)> {
    let behind = text.strip_prefix('&')?;
    let Some(number) = behind.strip_prefix('#') else {
        let end = memchr(b';', behind.as_bytes().get(..NAME).unwrap_or(behind.as_bytes()))?;
        let name = behind.get(..end)?;
        let (_, instead) = NAMED.iter().find(|(known, _)| *known == name)?;
        if matches!(*instead, "(" | ")") && !opens {
            return None;
        }
        return Some((end + 2, Cow::Borrowed(*instead)));
    };
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let count = digits.bytes().take_while(|byte| char::from(*byte).is_digit(radix)).count();
    let value = digits.get(..count)?.trim_start_matches('0');
    let c = u32::from_str_radix(value, radix).ok().and_then(char::from_u32)?;
    // HTML does not need the semicolon.
    let ended = usize::from(digits.as_bytes().get(count) == Some(&b';'));
    let length = text.len() - digits.len() + count + ended;
    let instead = match c {
        '\t' | '\n' | '\r' => Cow::Borrowed(""),
        '(' | ')' if opens => Cow::Owned(c.to_string()),
        '<' | '>' | '"' | '\'' | '[' | ']' | '(' | ')' | '!' | '&' | '`' => return None,
        // A parser of URLs drops those at its beginning.
        c if c.is_control() => Cow::Borrowed(""),
        c => Cow::Owned(c.to_string()),
    };
    Some((length, instead))
}

/// The escape of Markdown in front of a character that a link is made of.
fn markdown_escape(behind: Option<&u8>) -> Option<(usize, Cow<'static, str>)> {
    let behind = char::from(*behind?);
    let is_of_a_link = matches!(
        behind,
        ':' | '/' | '\\' | '.' | '@' | '?' | '#' | '%' | '=' | '-' | '_' | '~' | '+' | ',' | ';'
    );
    is_of_a_link.then(|| (2, Cow::Owned(behind.to_string())))
}

/// The escape of CSS at the start of these bytes, of a letter or of a sign that a style is made of.
fn style_escape(bytes: &[u8]) -> Option<(usize, Cow<'static, str>)> {
    let digits = bytes.get(1..)?.iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 {
        let letter = char::from(*bytes.get(1)?);
        return letter.is_ascii_alphabetic().then(|| (2, Cow::Owned(letter.to_string())));
    }
    let value = std::str::from_utf8(bytes.get(1..=digits)?).ok()?;
    let c = u32::from_str_radix(value, 16).ok().and_then(char::from_u32)?;
    let is_meant = c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '(' | '.' | '/');
    // A blank ends the escape.
    let ended = usize::from(bytes.get(1 + digits).is_some_and(u8::is_ascii_whitespace));
    is_meant.then(|| (1 + digits + ended, Cow::Owned(c.to_string())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{NAMED, RenderedText};

    fn read(source: &str) -> String {
        RenderedText::of(source).map_or_else(|| source.to_owned(), |read| read.as_str().to_owned())
    }

    #[test]
    fn a_link_is_read_as_it_is_followed() {
        for (source, text) in [
            ("![x](https&#58;//a.example)", "![x](https://a.example)"),
            ("![x](https&#x3A;//a.example)", "![x](https://a.example)"),
            ("https&#0000000058//a.example", "https://a.example"),
            ("[x](https&colon;&sol;&sol;a&period;example)", "[x](https://a.example)"),
            ("[x](java&Tab;scr&#10;ipt&#x0a;:y)", "[x](javascript:y)"),
            ("<a href=\"java\nscript:y\">\n", "<a href=\"javascript:y\">\n"),
            ("<a title='>' href = 'ht\r\ntps://a'>", "<a title='>' href = 'https://a'>"),
            ("[x](<java\tscript:y>)\tz", "[x](<javascript:y>)\tz"),
            ("[x](javascript\\:y)", "[x](javascript:y)"),
            ("![x](/\\\\a.example)", "![x](/\\a.example)"),
            ("<b style=\"d\\69 splay:none;u\\72l(x)\">", "<b style=\"display:none;url(x)\">"),
            ("<b style=\"d\\isplay:none;url&#40;x&rpar;\">", "<b style=\"display:none;url(x)\">"),
            ("<b c=\"\"> [x](javascript\\:y)", "<b c=\"\"> [x](javascript:y)"),
            ("[x](  <java\tscript:y>)", "[x](  <javascript:y>)"),
            ("[x]:\n <java\tscript:y>", "[x]:\n <javascript:y>"),
            (
                "<!-- <a b=\" --> <a href=\"java\nscript:y\">",
                "<!-- <a b=\" --> <a href=\"javascript:y\">",
            ),
            ("<b [x](<java\tscript:y>)", "<b [x](<javascript:y>)"),
            ("](<a b='>' href='java\nscript:y'>", "](<a b='>' href='javascript:y'>"),
        ] {
            assert_eq!(read(source), text, "{source}");
        }
    }

    /// However much stands before it.
    #[test]
    fn no_length_hides_a_link() {
        let long = "a".repeat(100_000);
        for (before, behind) in [
            ("<a title=\"", "\" href=\"java\nscript:y\">"),
            ("<a href=\"java\nscript:y//", "\">"),
            ("<a ", " href='java\nscript:y'>"),
            ("[x](<java\tscript:y//", ">)"),
        ] {
            let source = [before, &long, behind].concat();
            assert!(read(&source).contains("javascript:y"), "{before}{behind}");
        }
        let blanks = " ".repeat(100_000);
        assert!(read(&format!("[x]({blanks}<java\tscript:y>)")).contains("javascript:y"));
    }

    #[test]
    fn nothing_that_is_shown_becomes_markup() {
        for source in [
            "&lt;script&gt; &#60;img src=x&#62; &amp;#58; &quot;a&quot; &#33;&#91;x](y) &unknown; & &# &#x; &#xD800;",
            "C:\\:\\/ has no link in it",
            "a < b\nand c = \"x\ny\"",
            "<b>![x]&#40;https://a.example",
        ] {
            assert_eq!(read(source), source);
        }
        // What no reader shows is left out, with the marks of block quotations.
        assert_eq!(read("a&#1;b\n> c\n>> > d\ne > f\n"), "ab\nc\nd\ne > f\n");
    }

    #[test]
    fn every_name_is_short_enough_to_be_looked_for() {
        assert!(NAMED.iter().all(|(name, _)| name.len() < super::NAME));
    }

    proptest! {
        #[test]
        fn each_part_is_known_by_its_place(parts in proptest::collection::vec(prop_oneof![
            Just("&#58;"), Just("&Tab;"), Just("<a href=\""), Just("\n"), Just("\">"), Just("]("), Just("\\/"), Just("é"),
            Just("word"), Just("](<"), Just(">"), Just("&#x"), Just("\\69 "), Just("="),
        ], 0..16)) {
            let source = parts.concat();
            if let Some(read) = RenderedText::of(&source) {
                let text = read.as_str();
                prop_assert!(text.len() <= source.len());
                for (at, c) in text.char_indices() {
                    let place = read.source(at..at + c.len_utf8());
                    prop_assert!(place.start < place.end && place.end <= source.len());
                    prop_assert!(source.is_char_boundary(place.start) && source.is_char_boundary(place.end));
                }
                let words = |text: &str| text.matches("word").count();
                prop_assert_eq!(words(text), words(&source));
            }
        }
    }
}
