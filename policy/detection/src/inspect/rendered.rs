//! A text as programs that show HTML or Markdown read the links and attributes in it (vectors PV-37 to PV-39).
//!
//! They decode character references (HTML, section 13.5; CommonMark, section 2.5), Markdown drops the backslash of an escape
//! (section 2.4), CSS decodes its own escapes (CSS Syntax, section 4.3.7), and a parser of URLs drops tabs and line ends
//! (WHATWG URL, section 4.4). None of that makes a tag, a quotation mark or a bracket that delimits something: those stay as
//! they are, and so does text that shows them.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr2};
use regex::Regex;

/// Longest value of an attribute in which tabs and line ends are dropped, in bytes.
const VALUE: usize = 4096;
/// Longest name of a character reference that is decoded, in bytes.
const NAME: usize = 13;

/// The references by name to characters that a link is made of (HTML, section 13.5). Tabs and line ends are dropped.
const NAMED: [(&str, &str); 28] = [
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
];

/// A text as it is read, and where each part of it stands in the source.
#[derive(Debug)]
pub(crate) struct RenderedText {
    text: String,
    /// The starts of parts that are read as they stand, in the text and in the source.
    parts: Vec<(usize, usize)>,
}

impl RenderedText {
    /// Reads a text; `None` if it is read as it stands.
    pub(crate) fn of(source: &str) -> Option<Self> {
        let bytes = source.as_bytes();
        let is_markdown = memchr(b'\\', bytes).is_some()
            && bytes.windows(2).any(|pair| matches!(pair, b"](" | b"]:"));
        if memchr2(b'&', b'<', bytes).is_none() && !is_markdown {
            return None;
        }
        let mut reader = Reader {
            source,
            is_markdown,
            done: 0,
            value: 0,
            tag: 0,
            unclosed: 0,
            read: Self { text: String::new(), parts: Vec::new() },
        };
        reader.read_all();
        let Reader { done, mut read, .. } = reader;
        if done == 0 && read.parts.is_empty() {
            return None;
        }
        read.keep(source, done..source.len());
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

    /// Where what stands at `at` in the text stands in the source.
    fn place(&self, at: usize) -> usize {
        let part = self.parts.partition_point(|(start, _)| *start <= at);
        let part = part.checked_sub(1).and_then(|part| self.parts.get(part));
        part.map_or(at, |(start, source)| source + (at - start))
    }

    /// Adds a part of the source as it stands.
    fn keep(&mut self, source: &str, range: Range<usize>) {
        self.parts.push((self.text.len(), range.start));
        self.text.push_str(source.get(range).unwrap_or_default());
    }
}

/// The state of reading.
struct Reader<'a> {
    source: &'a str,
    is_markdown: bool,
    /// The end of what was read.
    done: usize,
    /// The end of the value of an attribute, or of a destination in Markdown.
    value: usize,
    /// The end of a tag.
    tag: usize,
    /// The end of what has no `>`.
    unclosed: usize,
    read: RenderedText,
}

impl Reader<'_> {
    fn read_all(&mut self) {
        let bytes = self.source.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let read = match byte {
                b'&' => reference(self.source.get(at..).unwrap_or_default()),
                b'\\' if at < self.tag => style_escape(bytes.get(at..).unwrap_or_default()),
                b'\\' if self.is_markdown => markdown_escape(bytes.get(at + 1)),
                b'\t' | b'\n' | b'\r' if at < self.value => Some((1, Cow::Borrowed(""))),
                b'<' => {
                    self.opens(at);
                    None
                }
                b'=' if at < self.tag && at >= self.value => {
                    self.gives(at);
                    None
                }
                _ => None,
            };
            let Some((length, instead)) = read else {
                at += 1;
                continue;
            };
            self.read.keep(self.source, self.done..at);
            if !instead.is_empty() {
                // A part of its own, so that what stands before it ends where it begins.
                self.read.parts.push((self.read.text.len(), at));
                self.read.text.push_str(&instead);
            }
            at += length;
            self.done = at;
        }
    }

    /// Notes the end of the tag that begins at a `<`, or of the destination of a link in Markdown.
    fn opens(&mut self, at: usize) {
        let bytes = self.source.as_bytes();
        if at < self.tag {
            return;
        }
        if bytes.get(..at).is_some_and(|before| before.ends_with(b"](")) {
            let end = self.closes(at + 1);
            self.value = end.unwrap_or(self.value);
        } else if bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic) {
            self.ends(at + 1);
        }
    }

    /// Notes the end of the tag that goes on at `from`. A `>` within a value does not end it: that is seen in `gives`.
    fn ends(&mut self, from: usize) {
        let end = self.closes(from);
        self.tag = end.unwrap_or(from + VALUE);
    }

    /// The place of the next `>`.
    fn closes(&mut self, from: usize) -> Option<usize> {
        if from < self.unclosed {
            return None;
        }
        let behind = self.source.as_bytes().get(from..)?;
        let behind = behind.get(..VALUE).unwrap_or(behind);
        let end = memchr(b'>', behind);
        if end.is_none() {
            self.unclosed = from + behind.len();
        }
        Some(from + end?)
    }

    /// Notes the end of the quoted value of an attribute behind its `=`.
    fn gives(&mut self, at: usize) {
        let Some(behind) = self.source.as_bytes().get(at + 1..) else { return };
        let blanks =
            behind.iter().take(VALUE).take_while(|byte| byte.is_ascii_whitespace()).count();
        let Some(quote @ (b'"' | b'\'')) = behind.get(blanks) else { return };
        let Some(value) = behind.get(blanks + 1..) else { return };
        if let Some(end) = memchr(*quote, value.get(..VALUE).unwrap_or(value)) {
            self.value = at + 1 + blanks + 1 + end;
            if self.tag <= self.value {
                self.ends(self.value + 1);
            }
        }
    }
}

/// The length of the character reference at the start of a text and what it stands for; `None` if there is none, or one to a
/// character that delimits something.
fn reference(text: &str) -> Option<(usize, Cow<'static, str>)> {
    let behind = text.strip_prefix('&')?;
    let Some(number) = behind.strip_prefix('#') else {
        let end = memchr(b';', behind.as_bytes().get(..NAME).unwrap_or(behind.as_bytes()))?;
        let name = behind.get(..end)?;
        let (_, instead) = NAMED.iter().find(|(known, _)| *known == name)?;
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
        '<' | '>' | '"' | '\'' | '[' | ']' | '(' | ')' | '!' | '&' | '`' => return None,
        c if c.is_control() => return None,
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
        ] {
            assert_eq!(read(source), text, "{source}");
        }
    }

    #[test]
    fn nothing_that_is_shown_becomes_markup() {
        for source in [
            "&lt;script&gt; &#60;img src=x&#62; &amp;#58; &quot;a&quot; &#33;&#91;x](y) &unknown; & &# &#x; &#xD800;",
            "C:\\:\\/ has no link in it",
            "a < b\nand c = \"x\ny\"",
            "&#1;",
        ] {
            assert_eq!(read(source), source);
        }
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
