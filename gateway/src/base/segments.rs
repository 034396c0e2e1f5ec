//! The text of a message in consecutive parts, and how such a text is collected.
//!
//! A long text that arrives in pieces is collected in blocks of a fixed size. Moving it into ever larger buffers would
//! copy megabytes in one step of a worker, and so would putting its blocks together; [`Segments::joined`] does the
//! latter and is left to the thread that parses the text.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Size in bytes of the blocks of a long text.
const BLOCK: usize = 64 * 1024;

/// The text of a message as consecutive parts. Unchanged parts of a received message are shared with it, not copied.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// Empty only if the text is.
    first: Bytes,
    /// None of them is empty.
    more: VecDeque<Bytes>,
}

impl Segments {
    /// Inserts `parts` into `text`, each in front of the byte at its offset in `text`. The offsets are in ascending
    /// order.
    #[must_use]
    pub fn woven(text: Vec<u8>, parts: Vec<(usize, Bytes)>) -> Self {
        let mut rest = Bytes::from(text);
        let (mut done, mut all) = (0, VecDeque::with_capacity(1 + 2 * parts.len()));
        for (at, part) in parts {
            all.push_back(rest.split_to(at.saturating_sub(done).min(rest.len())));
            all.push_back(part);
            done = at;
        }
        all.push_back(rest);
        Self::of(all)
    }

    /// A text without bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self { first: Bytes::new(), more: VecDeque::new() }
    }

    fn of(mut all: VecDeque<Bytes>) -> Self {
        all.retain(|part| !part.is_empty());
        Self { first: all.pop_front().unwrap_or_default(), more: all }
    }

    /// Total length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.parts().map(Bytes::len).sum()
    }

    /// Whether the text has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// The parts in order; none of them is empty.
    pub fn parts(&self) -> impl Iterator<Item = &Bytes> {
        (!self.is_empty()).then_some(&self.first).into_iter().chain(&self.more)
    }

    /// Whether `expected` stands at the byte offset `at`.
    #[must_use]
    pub fn has_at(&self, at: usize, mut expected: &[u8]) -> bool {
        let mut before = at;
        for part in self.parts() {
            let Some(here) = part.get(before..) else {
                before -= part.len();
                continue;
            };
            before = 0;
            let (now, later) = expected.split_at(expected.len().min(here.len()));
            if !here.starts_with(now) {
                return false;
            }
            expected = later;
        }
        expected.is_empty()
    }

    /// Removes and returns the first part; `None` when no part is left.
    pub fn take_first(&mut self) -> Option<Bytes> {
        let next = self.more.pop_front().unwrap_or_default();
        let first = std::mem::replace(&mut self.first, next);
        (!first.is_empty()).then_some(first)
    }

    /// The text in one piece. It is copied if it has several parts: for a long text, call this on a thread that serves
    /// no clients.
    #[must_use]
    pub fn joined(mut self) -> Bytes {
        if self.more.is_empty() {
            return self.first;
        }
        let mut whole = Vec::with_capacity(self.length());
        // Each part is freed as soon as it was copied.
        while let Some(part) = self.take_first() {
            whole.extend_from_slice(&part);
        }
        whole.into()
    }
}

impl<T: Into<Bytes>> From<T> for Segments {
    fn from(text: T) -> Self {
        Self { first: text.into(), more: VecDeque::new() }
    }
}

/// Two texts are equal if their bytes are, wherever their parts begin.
impl PartialEq for Segments {
    fn eq(&self, other: &Self) -> bool {
        self.length() == other.length() && self.parts().flatten().eq(other.parts().flatten())
    }
}

impl Eq for Segments {}

impl http_body::Body for Segments {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().take_first().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length() as u64)
    }
}

/// A text that is being collected, in blocks of [`BLOCK`] bytes. Nothing that was added is moved again, but for the
/// bytes of a text that is shorter than a block.
#[derive(Debug, Default)]
pub struct SegmentBuffer {
    full: VecDeque<Bytes>,
    last: Vec<u8>,
}

impl SegmentBuffer {
    /// A text of which nothing has arrived.
    #[must_use]
    pub const fn new() -> Self {
        Self { full: VecDeque::new(), last: Vec::new() }
    }

    /// Bytes collected so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.full.len() * BLOCK + self.last.len()
    }

    /// Whether nothing was collected.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Makes room for a text of about `bytes` bytes, in the first block alone: what has not arrived takes no more.
    pub fn expect(&mut self, bytes: usize) {
        if self.is_empty() {
            self.last.reserve_exact(bytes.min(BLOCK));
        }
    }

    /// Adds `bytes` at the end.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.last.len() == BLOCK {
                let full = std::mem::replace(&mut self.last, Vec::with_capacity(BLOCK));
                self.full.push_back(full.into());
            }
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.last.len()));
            self.reserve(now.len());
            self.last.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Makes room for `more` bytes in the last block, which grows to at most [`BLOCK`].
    fn reserve(&mut self, more: usize) {
        let needed = self.last.len() + more;
        if needed > self.last.capacity() {
            let size = needed.max(2 * self.last.capacity()).min(BLOCK);
            self.last.reserve_exact(size - self.last.len());
        }
    }

    /// Takes the text out; the buffer is empty then.
    #[must_use]
    pub fn take(&mut self) -> Segments {
        let Self { full: mut all, last } = std::mem::take(self);
        let last = Bytes::from(last);
        match all.pop_front() {
            None => last.into(),
            Some(first) => {
                all.push_back(last);
                Segments { first, more: all }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body::Body as _;
    use proptest::prelude::*;

    use super::{BLOCK, SegmentBuffer, Segments};

    fn parts(text: &Segments) -> Vec<Bytes> {
        text.parts().cloned().collect()
    }

    #[test]
    fn parts_are_woven_in_at_their_places() {
        let part = |at, text: &'static str| (at, Bytes::from_static(text.as_bytes()));
        let woven = Segments::woven(b"ad".to_vec(), vec![part(1, "b"), part(1, "c"), part(2, "e")]);
        assert_eq!(parts(&woven), ["a", "b", "c", "d", "e"]);
        assert_eq!((woven.length(), &woven.joined()[..]), (5, &b"abcde"[..]));
        let empty = Segments::woven(Vec::new(), vec![part(0, "")]);
        assert!(empty.is_empty() && empty.is_end_stream() && parts(&empty).is_empty());
    }

    #[test]
    fn what_stands_at_a_place_is_found_across_parts() {
        let text = Segments::woven(b"ad".to_vec(), vec![(1, Bytes::from_static(b"bc"))]);
        for (at, expected, is_there) in [
            (0, "abcd", true),
            (0, "abcde", false),
            (1, "bcd", true),
            (3, "d", true),
            (3, "c", false),
            (4, "", true),
            (5, "x", false),
        ] {
            assert_eq!(text.has_at(at, expected.as_bytes()), is_there, "{at} {expected}");
        }
    }

    #[test]
    fn a_text_of_one_part_is_not_copied() {
        let text = Bytes::from(vec![7; 100]);
        assert_eq!(Segments::from(text.clone()).joined().as_ptr(), text.as_ptr());
    }

    #[test]
    fn a_short_text_is_one_part_and_a_long_one_is_in_blocks() {
        let mut buffer = SegmentBuffer::new();
        buffer.expect(usize::MAX);
        assert_eq!(buffer.last.capacity(), BLOCK);
        buffer.push(&vec![1; BLOCK]);
        assert_eq!(buffer.take().parts().count(), 1);
        for _ in 0..5 {
            buffer.push(&vec![1; BLOCK / 2 + 1]);
            assert!(buffer.last.capacity() <= BLOCK);
        }
        let lengths: Vec<_> = buffer.take().parts().map(Bytes::len).collect();
        assert_eq!(lengths, [BLOCK, BLOCK, BLOCK / 2 + 5]);
        assert!(buffer.is_empty() && buffer.take().is_empty());
    }

    proptest! {
        #[test]
        fn what_is_collected_is_what_was_added(
            pieces in prop::collection::vec(0..BLOCK + 10, 0..6),
        ) {
            let (mut buffer, mut whole) = (SegmentBuffer::new(), Vec::new());
            for (fill, length) in (0_u8..).zip(pieces) {
                let piece = vec![fill; length];
                buffer.push(&piece);
                whole.extend_from_slice(&piece);
                prop_assert_eq!(buffer.len(), whole.len());
            }
            let text = buffer.take();
            prop_assert_eq!(text.length(), whole.len());
            prop_assert!(text.parts().all(|part| !part.is_empty()));
            prop_assert_eq!(&text, &Segments::from(whole.clone()));
            prop_assert_eq!(&text.joined()[..], &whole[..]);
        }
    }
}
