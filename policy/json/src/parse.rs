//! Checks the grammar of a JSON text and builds its index, in one pass over the bytes.
//!
//! Not recursive: the open containers stand in a vector whose length is the depth, so a text of a
//! million brackets costs a million comparisons and no stack.

use super::{JsonKind, Node, text};

/// Limits on the size of a JSON text.
#[derive(Clone, Copy, Debug)]
pub struct JsonBounds {
    /// Depth of nested containers.
    pub depth: usize,
    /// Number of values, keys included.
    pub nodes: usize,
    /// Bytes in one key, without its quotes.
    pub key: usize,
    /// Bytes in one number.
    pub number: usize,
}

impl JsonBounds {
    /// Limits of a client's message.
    pub const MESSAGE: Self = Self { depth: 64, nodes: 100_000, key: 1024, number: 256 };
    /// Limits of an upstream server's answer, which may hold ten times as many values.
    pub const ANSWER: Self = Self { nodes: 1_000_000, ..Self::MESSAGE };
}

/// Why bytes are not one acceptable JSON text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The bytes are not JSON.
    #[error("not JSON at byte {at}: {expected}")]
    Syntax {
        /// Offset of the unexpected byte.
        at: usize,
        /// Description of the expected input.
        expected: &'static str,
    },
    /// The bytes are not UTF-8.
    #[error("not UTF-8 at byte {at}")]
    Encoding {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// A surrogate without its other half.
    #[error("lone surrogate at byte {at}")]
    Surrogate {
        /// Offset of the escape in bytes.
        at: usize,
    },
    /// A key that appears twice in one object: two readers would disagree on its value.
    #[error("a key appears twice in the object at byte {at}")]
    DuplicateKey {
        /// Offset of the object in bytes.
        at: usize,
    },
    /// A limit of [`JsonBounds`] is exceeded.
    #[error("more than {limit} {what}")]
    Bound {
        /// The counted quantity, in the plural.
        what: &'static str,
        /// The greatest number that is allowed.
        limit: usize,
    },
    /// The memory for the index of values is not available.
    #[error("more values than there is room for")]
    Room,
}

impl JsonError {
    /// Whether the bytes are not JSON, as opposed to JSON that is refused.
    #[must_use]
    pub const fn is_syntax(&self) -> bool {
        matches!(self, Self::Syntax { .. } | Self::Encoding { .. } | Self::Surrogate { .. })
    }
}

/// Builds the index of `text`. Before the index grows, `has_room` is called with its size in bytes during the growth.
pub(super) fn index(
    text: &[u8],
    bounds: &JsonBounds,
    has_room: &mut dyn FnMut(usize) -> bool,
) -> Result<Box<[Node]>, JsonError> {
    if u32::try_from(text.len()).is_err() {
        return Err(JsonError::Bound { what: "bytes", limit: u32::MAX as usize });
    }
    if let Err(error) = std::str::from_utf8(text) {
        return Err(JsonError::Encoding { at: error.valid_up_to() });
    }
    let mut parser = Parser {
        text,
        at: 0,
        nodes: Vec::with_capacity((text.len() / 16).clamp(8, 4096).min(bounds.nodes)),
        open: Vec::with_capacity(8),
        tight: !text.iter().fold(false, |found, byte| found | (*byte < b' ')),
        bounds,
        has_room,
    };
    parser.run()?;
    Ok(parser.nodes.into_boxed_slice())
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    /// Indices of the open containers.
    open: Vec<u32>,
    /// Whether the text has no control character, so that strings need no check for one.
    tight: bool,
    bounds: &'a JsonBounds,
    /// Whether the index may take this many bytes.
    has_room: &'a mut dyn FnMut(usize) -> bool,
}

/// The next token that the grammar expects.
enum ExpectedToken {
    Value,
    /// A value or `]`.
    FirstItem,
    /// A key or `}`.
    FirstKey,
    Key,
    /// `,` or the end of the innermost container.
    Separator,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), JsonError> {
        let mut want = ExpectedToken::Value;
        loop {
            self.space();
            want = match want {
                ExpectedToken::Value => self.value()?,
                ExpectedToken::FirstItem if self.take(b']') => self.close()?,
                ExpectedToken::FirstItem => self.value()?,
                ExpectedToken::FirstKey if self.take(b'}') => self.close()?,
                ExpectedToken::FirstKey | ExpectedToken::Key => self.key()?,
                ExpectedToken::Separator => match self.open.last().copied() {
                    None => break,
                    Some(container) => self.separator(container)?,
                },
            };
        }
        if self.at == self.text.len() { Ok(()) } else { Err(self.expected("end of text")) }
    }

    fn separator(&mut self, container: u32) -> Result<ExpectedToken, JsonError> {
        let object = self.nodes.get(container as usize).is_some_and(|n| n.kind == JsonKind::Object);
        if self.take(b',') {
            return Ok(if object { ExpectedToken::Key } else { ExpectedToken::Value });
        }
        if self.take(if object { b'}' } else { b']' }) {
            return self.close();
        }
        Err(self.expected("`,` or the end of the container"))
    }

    fn value(&mut self) -> Result<ExpectedToken, JsonError> {
        let start = self.at;
        match self.peek() {
            Some(b'{') => self.enter(JsonKind::Object, ExpectedToken::FirstKey),
            Some(b'[') => self.enter(JsonKind::Array, ExpectedToken::FirstItem),
            Some(b'"') => {
                let kind = self.string()?;
                self.leaf(kind, start)
            }
            Some(b't') => self.word(b"true", JsonKind::Boolean),
            Some(b'f') => self.word(b"false", JsonKind::Boolean),
            Some(b'n') => self.word(b"null", JsonKind::Null),
            Some(b'-' | b'0'..=b'9') => {
                self.number()?;
                self.leaf(JsonKind::Number, start)
            }
            _ => Err(self.expected("a value")),
        }
    }

    fn key(&mut self) -> Result<ExpectedToken, JsonError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key"));
        }
        let kind = self.string()?;
        if self.at - start > self.bounds.key + 2 {
            return Err(JsonError::Bound { what: "bytes in a key", limit: self.bounds.key });
        }
        self.leaf(kind, start)?;
        self.space();
        if self.take(b':') { Ok(ExpectedToken::Value) } else { Err(self.expected("`:`")) }
    }

    fn enter(&mut self, kind: JsonKind, want: ExpectedToken) -> Result<ExpectedToken, JsonError> {
        if self.open.len() >= self.bounds.depth {
            return Err(JsonError::Bound { what: "levels of depth", limit: self.bounds.depth });
        }
        self.open.push(offset(self.nodes.len()));
        let start = self.at;
        self.at += 1;
        self.push(kind, start, 0)?;
        Ok(want)
    }

    fn close(&mut self) -> Result<ExpectedToken, JsonError> {
        let (end, next) = (offset(self.at), offset(self.nodes.len()));
        let container = self.open.pop().unwrap_or_default();
        if let Some(node) = self.nodes.get_mut(container as usize) {
            (node.end, node.next) = (end, next);
            if node.kind == JsonKind::Object {
                let at = node.start as usize;
                self.distinct(container, next)
                    .then_some(())
                    .ok_or(JsonError::DuplicateKey { at })?;
            }
        }
        Ok(ExpectedToken::Separator)
    }

    /// Whether all keys of an object differ after their escapes are resolved.
    fn distinct(&self, container: u32, end: u32) -> bool {
        /// Up to this many keys, comparing every pair is faster than sorting.
        const FEW: usize = 12;
        let mut at = container + 1;
        let keys = std::iter::from_fn(|| {
            let key = self.nodes.get(at as usize).filter(|_| at < end)?;
            at = self.nodes.get(key.next as usize)?.next;
            Some(*key)
        });
        let mut few = [&[] as &[u8]; FEW];
        let mut many: Vec<std::borrow::Cow<'_, [u8]>> = Vec::new();
        let mut count = 0;
        for key in keys {
            let inner = self.text.get(key.start as usize + 1..key.end as usize - 1);
            let inner = inner.unwrap_or_default();
            let plain = key.kind == JsonKind::Plain;
            if plain && many.is_empty() && count < FEW {
                let (seen, free) = few.split_at_mut(count);
                if seen.contains(&inner) {
                    return false;
                }
                if let Some(slot) = free.first_mut() {
                    *slot = inner;
                }
                count += 1;
                continue;
            }
            if many.is_empty() {
                many.extend(few.iter().take(count).map(|key| (*key).into()));
            }
            many.push(if plain {
                inner.into()
            } else {
                let inner = std::str::from_utf8(inner).unwrap_or_default();
                text::unescape(inner).into_bytes().into()
            });
        }
        many.sort_unstable();
        !many.windows(2).any(|pair| pair.first() == pair.last())
    }

    fn leaf(&mut self, kind: JsonKind, start: usize) -> Result<ExpectedToken, JsonError> {
        self.push(kind, start, self.at)?;
        Ok(ExpectedToken::Separator)
    }

    fn push(&mut self, kind: JsonKind, start: usize, end: usize) -> Result<(), JsonError> {
        if self.nodes.len() >= self.bounds.nodes {
            return Err(JsonError::Bound { what: "values", limit: self.bounds.nodes });
        }
        if self.nodes.len() == self.nodes.capacity() {
            self.grow()?;
        }
        let next = offset(self.nodes.len() + 1);
        self.nodes.push(Node { kind, start: offset(start), end: offset(end), next });
        Ok(())
    }

    /// Doubles the capacity of the index. During the move, both the old and the new index are in memory.
    fn grow(&mut self) -> Result<(), JsonError> {
        let held = self.nodes.len();
        let wanted = held.saturating_mul(2).max(8).min(self.bounds.nodes);
        let bytes = held.saturating_add(wanted).saturating_mul(size_of::<Node>());
        if !(self.has_room)(bytes) {
            return Err(JsonError::Room);
        }
        self.nodes.reserve_exact(wanted.saturating_sub(held));
        Ok(())
    }

    fn string(&mut self) -> Result<JsonKind, JsonError> {
        let mut kind = JsonKind::Plain;
        self.at += 1;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            self.at += if self.tight {
                memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
            } else {
                plain_run(rest)
            };
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(kind);
                }
                Some(b'\\') => {
                    kind = JsonKind::Escaped;
                    self.escape()?;
                }
                Some(_) => return Err(self.expected("a control character to be escaped")),
                None => return Err(self.expected("`\"`")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let lone = JsonError::Surrogate { at: self.at };
                match self.unit()? {
                    0xD800..0xDC00 => {
                        let low = self.text.get(self.at..self.at + 2) == Some(b"\\u")
                            && matches!(self.unit()?, 0xDC00..0xE000);
                        low.then_some(()).ok_or(lone)?;
                    }
                    0xDC00..0xE000 => return Err(lone),
                    _ => {}
                }
            }
            _ => return Err(self.expected("an escape")),
        }
        Ok(())
    }

    /// Reads a `\uXXXX` escape.
    fn unit(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.get(self.at + 2..self.at + 6).unwrap_or_default();
        let value = digits
            .iter()
            .try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?));
        match value {
            Some(value) if digits.len() == 4 => {
                self.at += 6;
                Ok(value)
            }
            _ => Err(self.expected("four hexadecimal digits")),
        }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _signed = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        if self.at - start > self.bounds.number {
            return Err(JsonError::Bound { what: "bytes in a number", limit: self.bounds.number });
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count > 0 { Ok(()) } else { Err(self.expected("a digit")) }
    }

    fn word(&mut self, word: &'static [u8], kind: JsonKind) -> Result<ExpectedToken, JsonError> {
        let start = self.at;
        if !self.text.get(start..).unwrap_or_default().starts_with(word) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        self.leaf(kind, start)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    const fn expected(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax { at: self.at, expected }
    }
}

/// Number of bytes before the next `"`, `\` or control character.
///
/// A block at a time without an early exit, so that the compiler can use vector instructions.
fn plain_run(bytes: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let clean = blocks
        .iter()
        .take_while(|block| !block.iter().fold(false, |found, byte| found | special(*byte)))
        .count();
    let rest = bytes.get(clean * BLOCK..).unwrap_or_default();
    clean * BLOCK + rest.iter().position(|byte| special(*byte)).unwrap_or(rest.len())
}

/// INVARIANT: `index` refuses a text longer than `u32::MAX`, and no offset or count exceeds it.
#[expect(clippy::cast_possible_truncation, reason = "bounded by the length check in `index`")]
const fn offset(at: usize) -> u32 {
    at as u32
}
