//! Strict JSON documents that keep the bytes they were parsed from. Pure: no I/O, no clock, no async, no randomness.
//!
//! A [`Document`] is the text together with an index of its values. Nothing is converted until it is
//! requested, so a number keeps its spelling, an unknown member keeps its place, and an unchanged part
//! is copied as bytes. Text that two readers could understand differently is refused when the document
//! is parsed: a duplicate key (also when one of the two is escaped), a lone surrogate, a byte order
//! mark, bytes that are not UTF-8, more depth or more values than [`JsonBounds`] allow (threats PV-01 to
//! PV-04, PV-07, PV-08 and PV-10).
//!
//! Beside it:
//!
//! - [`hex`]: hexadecimal digits
//! - [`coding`]: base64 and percent escapes
//! - [`mod@pointer`]: JSON Pointers into a document
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod hex;
pub mod coding;
pub mod pointer;
mod canonical;
mod text;
mod parse;
mod write;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

pub use canonical::{
    InexactNumber, by_units, rounded_to_integer, write_canonical, write_canonical_string,
};
pub use parse::{JsonBounds, JsonError};
pub use write::{write_ascii, write_items, write_members, write_name, write_plain, write_string};

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    /// The literal `null`.
    Null,
    /// One of the literals `true` and `false`.
    Boolean,
    /// A number, in its original spelling.
    Number,
    /// A string without escapes, whose bytes are its text.
    Plain,
    /// A string with at least one escape.
    Escaped,
    /// An array, `[..]`.
    Array,
    /// `{..}`; its children are key, value, key, value.
    Object,
}

/// One value in the index.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: JsonKind,
    /// Offset of the first byte, the opening quote or bracket included.
    start: u32,
    /// Offset after the last byte.
    end: u32,
    /// Index of the node after this one and its descendants.
    next: u32,
}

/// A JSON text and the index of its values.
#[derive(Clone, Debug)]
pub struct Document {
    text: Bytes,
    nodes: Box<[Node]>,
}

impl Document {
    /// Parses exactly one JSON text.
    ///
    /// # Errors
    /// When `text` is anything else, or more than `bounds` allow.
    pub fn parse(text: Bytes, bounds: &JsonBounds) -> Result<Self, JsonError> {
        Self::parse_within(text, bounds, |_bytes| true)
    }

    /// Parses like [`Self::parse`]. Before the index of values grows, `has_room` is called with the bytes that it takes
    /// during the growth; `false` ends the parse.
    ///
    /// # Errors
    /// As [`Self::parse`], and [`JsonError::Room`] when `has_room` returns `false`.
    pub fn parse_within(
        text: Bytes,
        bounds: &JsonBounds,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Result<Self, JsonError> {
        let nodes = parse::index(&text, bounds, &mut has_room)?;
        Ok(Self { text, nodes })
    }

    /// The outermost value of the document.
    #[must_use]
    pub const fn root(&self) -> Value<'_> {
        Value { document: self, at: 0 }
    }

    /// The whole text, as it was parsed.
    #[must_use]
    pub const fn text(&self) -> &Bytes {
        &self.text
    }

    /// Size in bytes of the index of values: a fixed number for each value and each key, so for a text with many short
    /// values several times the size of the text.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
    }

    /// Size in bytes of the text and the index together.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.text.len() + self.index_bytes()
    }

    /// A part of the text that starts and ends with a value or a string in it.
    fn part(&self, span: std::ops::Range<usize>) -> &str {
        // INVARIANT: the whole text was checked to be UTF-8 and nodes start and end at ASCII bytes.
        let bytes = self.text.get(span);
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    fn node(&self, at: u32) -> Node {
        let outside = Node { kind: JsonKind::Null, start: 0, end: 0, next: at.saturating_add(1) };
        self.nodes.get(at as usize).copied().unwrap_or(outside)
    }
}

/// A value inside a [`Document`].
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    document: &'a Document,
    at: u32,
}

impl<'a> Value<'a> {
    /// The type of the value.
    #[must_use]
    pub fn kind(self) -> JsonKind {
        self.document.node(self.at).kind
    }

    /// The text of the value, exactly as it was parsed.
    #[must_use]
    pub fn raw(self) -> &'a str {
        self.document.part(self.span())
    }

    /// The text of the value as shared bytes, without a copy.
    #[must_use]
    pub fn raw_bytes(self) -> Bytes {
        let node = self.document.node(self.at);
        self.document.text.slice(node.start as usize..node.end as usize)
    }

    /// The byte range of the value in the text of its document.
    #[must_use]
    pub fn span(self) -> std::ops::Range<usize> {
        let node = self.document.node(self.at);
        node.start as usize..node.end as usize
    }

    /// The string, with its escapes resolved; `None` when it is not a string.
    #[must_use]
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        // Taken only of a string: the text of an object may be long, and would be read to its end.
        let inner = || self.document.part(self.inside());
        match self.kind() {
            JsonKind::Plain => Some(Cow::Borrowed(inner())),
            JsonKind::Escaped => Some(Cow::Owned(text::unescape(inner()))),
            JsonKind::Null
            | JsonKind::Boolean
            | JsonKind::Number
            | JsonKind::Array
            | JsonKind::Object => None,
        }
    }

    /// The boolean; `None` when it is not a boolean.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        (self.kind() == JsonKind::Boolean).then(|| self.raw() == "true")
    }

    /// Whether a client may take it for `true`: JSON readers differ in what they convert to a boolean. Pydantic takes
    /// the number 1 and some words in any case, and Jackson takes every number other than 0 and words between blanks.
    #[must_use]
    pub fn may_be_true(self) -> bool {
        const WORDS: [&str; 6] = ["true", "1", "yes", "on", "t", "y"];
        match self.kind() {
            JsonKind::Boolean => self.as_bool() == Some(true),
            // A number that is infinite as a double is not 0.
            JsonKind::Number => self.as_f64().is_none_or(|number| number.abs() > 0.0),
            JsonKind::Plain | JsonKind::Escaped => {
                let text = self.as_str().unwrap_or_default();
                WORDS.iter().any(|word| word.eq_ignore_ascii_case(text.trim()))
            }
            JsonKind::Null | JsonKind::Array | JsonKind::Object => false,
        }
    }

    /// The integer; `None` unless the value is a number that is spelled as an integer and fits.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        (self.kind() == JsonKind::Number).then(|| self.raw().parse().ok()).flatten()
    }

    /// The number as a double; `None` unless the value is a number and is finite as a double.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        let number =
            (self.kind() == JsonKind::Number).then(|| self.raw().parse::<f64>().ok()).flatten();
        number.filter(|number| number.is_finite())
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.kind() == JsonKind::Object
    }

    /// The member called `key`; `None` when there is none or the value is not an object.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        let mut children = self.children(JsonKind::Object);
        while let (Some(name), Some(value)) = (children.next(), children.next()) {
            if name.is_text(key) {
                return Some(value);
            }
        }
        None
    }

    /// Whether it is this string.
    #[must_use]
    pub fn is_text(self, text: &str) -> bool {
        match self.kind() {
            // Compared as bytes: every lookup of a member compares the names before it.
            JsonKind::Plain => self.document.text.get(self.inside()) == Some(text.as_bytes()),
            JsonKind::Escaped => self.as_str().is_some_and(|own| own == text),
            JsonKind::Null
            | JsonKind::Boolean
            | JsonKind::Number
            | JsonKind::Array
            | JsonKind::Object => false,
        }
    }

    /// The members of an object in document order; empty for any other value.
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Value<'a>)> + use<'a> {
        let mut children = self.children(JsonKind::Object);
        std::iter::from_fn(move || {
            let key = children.next()?;
            Some((key.as_str()?, children.next()?))
        })
    }

    /// The items of an array in order; empty for any other value.
    pub fn items(self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        self.children(JsonKind::Array)
    }

    /// An owned handle on this value.
    #[must_use]
    pub fn fragment(self, owner: &Arc<Document>) -> Fragment {
        Fragment { document: Arc::clone(owner), at: self.at }
    }

    /// The byte range of a string without its quotes.
    fn inside(self) -> std::ops::Range<usize> {
        let span = self.span();
        span.start.saturating_add(1)..span.end.saturating_sub(1)
    }

    fn children(self, of: JsonKind) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let node = self.document.node(self.at);
        let end = if node.kind == of { node.next } else { 0 };
        let (document, mut at) = (self.document, self.at.saturating_add(1));
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let child = Value { document, at };
                at = document.node(at).next;
                child
            })
        })
    }
}

/// A value that keeps its document alive.
#[derive(Clone, Debug)]
pub struct Fragment {
    document: Arc<Document>,
    at: u32,
}

impl Fragment {
    /// The root value of `document`.
    #[must_use]
    pub const fn whole(document: Arc<Document>) -> Self {
        Self { document, at: 0 }
    }

    /// The document that contains the value.
    #[must_use]
    pub fn document(&self) -> Arc<Document> {
        Arc::clone(&self.document)
    }

    /// The value that this handle refers to.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        Value { document: &self.document, at: self.at }
    }
}

#[cfg(test)]
mod tests;
