//! Checks the framing of HTTP/1.1 requests on the wire.
//!
//! hyper removes `Content-Length` from a request that has `Transfer-Encoding` too, merges equal
//! lengths, and considers only the last transfer coding: its result does not show that a proxy in
//! front could have parsed the same bytes as other requests (RFC 9112, section 11.2; control C33). So the
//! heads are inspected as they arrive: a request must have exactly one `Content-Length`, exactly
//! one `Transfer-Encoding: chunked`, or no body, and its target must have no fragment, which other servers may read as
//! part of the path.
//!
//! Bodies are followed only where their framing is unambiguous. From the first ambiguous request on,
//! every request on the connection is refused.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest part of a line in a head or a chunk that is inspected, in bytes. The relevant names and values are
/// shorter; the beginning of a longer line determines which header it is.
const LINE: usize = 128;
/// Most digits of a length.
const DIGITS: usize = 15;

/// Number of unambiguously framed requests on a connection, and of requests that were checked.
#[derive(Debug, Default)]
pub struct FramingCounts {
    good: AtomicU64,
    asked: AtomicU64,
}

impl FramingCounts {
    /// Whether the next request is unambiguously framed. To be called once for each request, in order.
    #[must_use]
    pub fn next_is_good(&self) -> bool {
        self.asked.fetch_add(1, Ordering::AcqRel) < self.good.load(Ordering::Acquire)
    }
}

/// A connection whose request heads are inspected.
#[derive(Debug)]
pub struct FramedStream<S> {
    stream: S,
    framing: Arc<FramingCounts>,
    place: FramingPosition,
    line: HeadLine,
}

/// The current line of a head or a chunk.
#[derive(Debug, Default)]
struct HeadLine {
    /// The beginning of the line.
    text: Vec<u8>,
    /// Whether the line is longer than the kept beginning.
    cut: bool,
    /// Whether the line contains a `#` anywhere.
    has_hash: bool,
    /// The last two bytes, which end the line if they are CRLF.
    end: [u8; 2],
}

/// What a request head says about the body.
#[derive(Clone, Copy, Debug, Default)]
struct RequestFraming {
    /// Whether the request line has been read.
    begun: bool,
    length: Option<u64>,
    chunked: bool,
    /// Whether the framing is ambiguous.
    bad: bool,
}

/// The position of the next byte in the sequence of requests.
#[derive(Clone, Copy, Debug)]
enum FramingPosition {
    Head(RequestFraming),
    /// In a body, with the number of bytes that are left.
    Body(u64),
    /// In the line with the size of a chunk.
    Size,
    /// In a chunk, with the number of bytes that are left, line end included.
    Chunk(u64),
    /// In the lines after the last chunk.
    Trailer,
    /// Unknown, after an ambiguous request.
    Lost,
}

impl<S> FramedStream<S> {
    /// Inspects the bytes that are read from `stream`, and counts requests in `framing`.
    #[must_use]
    pub fn new(stream: S, framing: Arc<FramingCounts>) -> Self {
        let place = FramingPosition::Head(RequestFraming::default());
        Self { stream, framing, place, line: HeadLine::default() }
    }

    fn look(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.place {
                FramingPosition::Lost => return,
                FramingPosition::Body(left) => {
                    bytes = self.skip(bytes, left, FramingPosition::Body)
                }
                FramingPosition::Chunk(left) => {
                    bytes = self.skip(bytes, left, FramingPosition::Chunk)
                }
                FramingPosition::Head(_) | FramingPosition::Size | FramingPosition::Trailer => {
                    let end = memchr::memchr(b'\n', bytes);
                    let split = end.and_then(|end| bytes.split_at_checked(end + 1));
                    let (part, rest) = split.unwrap_or((bytes, &[]));
                    self.line.add(part);
                    if end.is_some() {
                        self.place = self.after_line();
                        self.line.clear();
                    }
                    bytes = rest;
                }
            }
        }
    }

    /// Skips bytes of a body; returns the bytes after them.
    fn skip<'a>(
        &mut self,
        bytes: &'a [u8],
        left: u64,
        place: fn(u64) -> FramingPosition,
    ) -> &'a [u8] {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - most as u64;
        self.place = match place(left) {
            FramingPosition::Body(0) => FramingPosition::Head(RequestFraming::default()),
            FramingPosition::Chunk(0) => FramingPosition::Size,
            place => place,
        };
        bytes.get(most..).unwrap_or_default()
    }

    /// The position after the current line.
    fn after_line(&self) -> FramingPosition {
        let line = &self.line;
        let text = line.text.trim_ascii_end();
        match self.place {
            FramingPosition::Head(mut head) if !text.is_empty() || line.cut => {
                head.read(text, line);
                FramingPosition::Head(head)
            }
            // Empty lines before a request are ignored (RFC 9112, section 2.2).
            FramingPosition::Head(head) if !head.begun => FramingPosition::Head(head),
            FramingPosition::Head(head) => {
                if head.bad || head.chunked && head.length.is_some() {
                    return FramingPosition::Lost;
                }
                self.framing.good.fetch_add(1, Ordering::AcqRel);
                match head.length {
                    _ if head.chunked => FramingPosition::Size,
                    Some(left @ 1..) => FramingPosition::Body(left),
                    Some(0) | None => FramingPosition::Head(RequestFraming::default()),
                }
            }
            // In the chunked coding hyper ends a line at CRLF alone, and takes an earlier line feed for a part of it.
            FramingPosition::Size | FramingPosition::Trailer if !line.has_crlf() => {
                FramingPosition::Lost
            }
            FramingPosition::Size => match size(text) {
                Some(0) => FramingPosition::Trailer,
                // Includes the line end after the data.
                Some(size) => FramingPosition::Chunk(size + 2),
                None => FramingPosition::Lost,
            },
            FramingPosition::Trailer if line.is_blank() => {
                FramingPosition::Head(RequestFraming::default())
            }
            place @ (FramingPosition::Trailer
            | FramingPosition::Body(_)
            | FramingPosition::Chunk(_)
            | FramingPosition::Lost) => place,
        }
    }
}

impl HeadLine {
    /// Begins a new line in the same memory.
    fn clear(&mut self) {
        self.text.clear();
        (self.cut, self.has_hash, self.end) = (false, false, [0; 2]);
    }

    fn has_crlf(&self) -> bool {
        self.end == *b"\r\n"
    }

    /// Whether there is nothing before the end of the line.
    fn is_blank(&self) -> bool {
        self.text == b"\r\n"
    }

    fn add(&mut self, part: &[u8]) {
        self.end = match part {
            [.., one, two] => [*one, *two],
            [one] => [self.end[1], *one],
            [] => self.end,
        };
        let room = LINE.saturating_sub(self.text.len());
        self.cut |= part.len() > room;
        self.has_hash |= memchr::memchr(b'#', part).is_some();
        self.text.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
    }
}

impl RequestFraming {
    /// Evaluates a line that is not empty.
    fn read(&mut self, text: &[u8], line: &HeadLine) {
        let cut = line.cut;
        if !std::mem::replace(&mut self.begun, true) {
            // A target has no fragment (RFC 9112, section 3.2), and hyper removes it silently.
            self.bad |= line.has_hash;
            return;
        }
        let Some(colon) = memchr::memchr(b':', text) else { return };
        let (name, value) = text.split_at_checked(colon).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = if cut { None } else { number(value, 10) };
            self.bad |= length.is_none() || self.length.is_some();
            self.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let chunked = !cut && value.eq_ignore_ascii_case(b"chunked");
            self.bad |= !chunked || self.chunked;
            self.chunked = true;
        }
    }
}

/// The size in the first line of a chunk; extensions are ignored.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next()?;
    number(digits, 16)
}

/// A number that consists of digits only.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let fits = !digits.is_empty() && digits.len() <= DIGITS;
    let plain = fits && digits.iter().all(|digit| char::from(*digit).is_digit(radix));
    let text = std::str::from_utf8(digits).ok().filter(|_| plain)?;
    u64::from_str_radix(text, radix).ok()
}

impl<S: AsyncRead + Unpin> AsyncRead for FramedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let watched = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut watched.stream).poll_read(cx, buffer);
        watched.look(buffer.filled().get(before..).unwrap_or_default());
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FramedStream<S> {
    forward_writes!(stream);

    forward_flush_and_shutdown!(stream);
}

#[cfg(test)]
mod tests {
    use super::{FramedStream, FramingCounts};
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    /// Number of unambiguously framed requests in `pieces`.
    fn good<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let framing = Arc::new(FramingCounts::default());
        let mut watched = FramedStream::new((), Arc::clone(&framing));
        pieces.into_iter().for_each(|piece| watched.look(piece));
        framing.good.load(Ordering::Relaxed)
    }

    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
         3;x=y\r\na\r\n\r\n1f\r\ncontent-length: 9\r\n0123456789\r\n\r\n0\r\ncontent-length: 9\r\n\r\n";
    const SIZED: &str =
        "POST / HTTP/1.1\r\nHost: h\r\ncontent-LENGTH:  20 \r\n\r\nPOST / HTTP/1.1\r\n\r\n\n";
    const PLAIN: &str = "\r\nGET /sse HTTP/1.1\r\nHost: h\r\n\r\n";

    #[test]
    fn one_length_or_one_chunked_is_good_and_bodies_are_no_heads() {
        assert_eq!(CHUNKED.matches("0123456789").count(), 1);
        for text in [CHUNKED, SIZED, PLAIN] {
            assert_eq!(good([text.as_bytes()]), 1, "{text}");
        }
        let bad = [
            "content-length: 1\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 1",
            "content-length: 1\r\ncontent-length: 1",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding: identity\r\ntransfer-encoding: chunked",
            "transfer-encoding: identity, chunked",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: chunked, chunked",
            "transfer-encoding: identity",
            "transfer-encoding:",
            "content-length: 1, 1",
            "content-length: +1",
            "content-length: 0x1",
            "content-length: 1111111111111111",
        ];
        for headers in bad {
            let text = format!("POST / HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\n{PLAIN}");
            assert_eq!(good([text.as_bytes()]), 0, "{headers}");
            assert_eq!(good([PLAIN.as_bytes(), text.as_bytes()]), 1, "{headers}");
        }
        for target in ["/#", "/x#y", &format!("/{}#y", "x".repeat(999))] {
            let text = format!("POST {target} HTTP/1.1\r\nHost: h\r\n\r\n{PLAIN}");
            assert_eq!(good([text.as_bytes()]), 0, "{target}");
        }
        let elsewhere = "GET / HTTP/1.1\r\nx: #\r\n\r\n";
        assert_eq!(good([elsewhere.as_bytes(), elsewhere.as_bytes()]), 2);
        let chunks = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        for (rest, count) in [
            ("0\r\nx: y\r\n\r\n", 2),
            ("0\r\nx: y\n\n", 1),
            ("0\r\nx: y\n\r\n", 1),
            ("0\r\n\n", 1),
            ("0\n\r\n", 1),
            ("1\na\r\n0\r\n\r\n", 1),
        ] {
            let text = format!("{chunks}{rest}{PLAIN}");
            assert_eq!(good([text.as_bytes()]), count, "{rest:?}");
            assert_eq!(good(text.as_bytes().chunks(1)), count, "{rest:?}");
        }
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "y".repeat(999));
        assert_eq!(good([long.as_bytes(), SIZED.as_bytes()]), 2);
    }

    proptest! {
        /// The requests are independent of how the bytes are split.
        #[test]
        fn where_the_bytes_are_cut_makes_no_difference(
            order in prop::collection::vec(0..3_usize, 1..6),
            size in 1..40_usize,
        ) {
            let all: String = order.iter().map(|n| [CHUNKED, SIZED, PLAIN][*n]).collect();
            let count = u64::try_from(order.len()).unwrap();
            prop_assert_eq!(good(all.as_bytes().chunks(size)), count);
        }
    }
}
