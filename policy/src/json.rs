//! JSON, read once, strictly, and kept as the bytes it came in.
//!
//! A [`Document`] is the text together with an index of its values. Nothing is converted until it
//! is asked for, so a number keeps its spelling, an unknown member keeps its place, and a part that
//! was not changed is copied on as bytes. What two readers could understand differently is refused
//! when the document is read: a key given twice (also when one of the two is escaped), a lone
//! surrogate, a byte order mark, bytes that are not UTF-8, more depth or more values than
//! [`Bounds`] allow (threats PV-01 to PV-04, PV-07, PV-08 and PV-10).

mod canonical;
mod text;
mod parse;
mod write;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

pub use canonical::{Inexact, by_units, write_canonical, write_canonical_string};
pub use parse::{Bounds, JsonError};
pub use write::{write_ascii, write_plain, write_string};
pub(crate) use write::{write_items, write_members, write_name};

/// What sort of value this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean,
    /// A number, in the spelling it came in.
    Number,
    /// A string without escapes: its bytes are its text.
    Plain,
    /// A string with at least one escape.
    Escaped,
    /// `[..]`
    Array,
    /// `{..}`; its children are key, value, key, value.
    Object,
}

/// One value in the index.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: Kind,
    /// First byte, the opening quote or bracket included.
    start: u32,
    /// One past the last byte.
    end: u32,
    /// Index of the node after this one and everything in it.
    next: u32,
}

/// One JSON text and the index over it.
#[derive(Clone, Debug)]
pub struct Document {
    text: Bytes,
    nodes: Box<[Node]>,
}

impl Document {
    /// Reads exactly one JSON text.
    ///
    /// # Errors
    /// When `text` is anything else, or more than `bounds` allow.
    pub fn parse(text: Bytes, bounds: &Bounds) -> Result<Self, JsonError> {
        Self::parse_within(text, bounds, |_bytes| true)
    }

    /// The same. Before the index over the values grows, `has_room` is asked with the bytes that it takes meanwhile.
    ///
    /// # Errors
    /// As [`Self::parse`], and [`JsonError::Room`] when there is no room.
    pub fn parse_within(
        text: Bytes,
        bounds: &Bounds,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Result<Self, JsonError> {
        let nodes = parse::index(&text, bounds, &mut has_room)?;
        Ok(Self { text, nodes })
    }

    /// The outermost value.
    #[must_use]
    pub const fn root(&self) -> Value<'_> {
        Value { document: self, at: 0 }
    }

    /// The whole text.
    #[must_use]
    pub const fn text(&self) -> &Bytes {
        &self.text
    }

    /// Bytes that the index over its values takes: a fixed number for each value and each key, so of a text with
    /// many short values several times the text.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
    }

    /// Bytes that it takes: the text and the index.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.text.len() + self.index_bytes()
    }

    fn node(&self, at: u32) -> Node {
        let outside = Node { kind: Kind::Null, start: 0, end: 0, next: at.saturating_add(1) };
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
    /// What sort of value it is.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.document.node(self.at).kind
    }

    /// The text of the value, exactly as it came in.
    #[must_use]
    pub fn raw(self) -> &'a str {
        let node = self.document.node(self.at);
        let bytes = self.document.text.get(node.start as usize..node.end as usize);
        // INVARIANT: the whole text was checked to be UTF-8 and nodes start and end at ASCII bytes.
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// The text of the value as shared bytes, without a copy.
    #[must_use]
    pub fn raw_bytes(self) -> Bytes {
        let node = self.document.node(self.at);
        self.document.text.slice(node.start as usize..node.end as usize)
    }

    /// Where the text of the value lies in the text of its document, in bytes.
    #[must_use]
    pub fn span(self) -> std::ops::Range<usize> {
        let node = self.document.node(self.at);
        node.start as usize..node.end as usize
    }

    /// The string, with its escapes resolved; `None` when it is not a string.
    #[must_use]
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let raw = self.raw();
        let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
        match self.kind() {
            Kind::Plain => Some(Cow::Borrowed(inner)),
            Kind::Escaped => Some(Cow::Owned(text::unescape(inner))),
            Kind::Null | Kind::Boolean | Kind::Number | Kind::Array | Kind::Object => None,
        }
    }

    /// The boolean; `None` when it is not one.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        (self.kind() == Kind::Boolean).then(|| self.raw() == "true")
    }

    /// The integer, when it is a number spelled as one and fits.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        (self.kind() == Kind::Number).then(|| self.raw().parse().ok()).flatten()
    }

    /// The number, when it is one and fits a double.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        let number =
            (self.kind() == Kind::Number).then(|| self.raw().parse::<f64>().ok()).flatten();
        number.filter(|number| number.is_finite())
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    /// The member called `key`; `None` when there is none or this is no object.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        self.members().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The members of an object in the order they came; nothing for any other value.
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Value<'a>)> + use<'a> {
        let mut children = self.children(Kind::Object);
        std::iter::from_fn(move || {
            let key = children.next()?;
            Some((key.as_str()?, children.next()?))
        })
    }

    /// The items of an array in order; nothing for any other value.
    pub fn items(self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        self.children(Kind::Array)
    }

    /// An owned handle on this value.
    #[must_use]
    pub fn fragment(self, owner: &Arc<Document>) -> Fragment {
        Fragment { document: Arc::clone(owner), at: self.at }
    }

    fn children(self, of: Kind) -> impl Iterator<Item = Value<'a>> + use<'a> {
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
    /// The whole of `document`.
    #[must_use]
    pub const fn whole(document: Arc<Document>) -> Self {
        Self { document, at: 0 }
    }

    /// The document it is in.
    #[must_use]
    pub fn document(&self) -> Arc<Document> {
        Arc::clone(&self.document)
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        Value { document: &self.document, at: self.at }
    }
}

#[cfg(test)]
mod tests;
