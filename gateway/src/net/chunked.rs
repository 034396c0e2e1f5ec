//! The chunked transfer coding of HTTP/1.1 (RFC 9112, section 7.1): decodes it from parts of any size, and writes the
//! line before a chunk. Neither keeps bytes of the body.

use bytes::Bytes;

/// Most bytes of the line before a chunk: its size and its extensions, which are ignored.
const SIZE_LINE: usize = 1024;
/// Most digits of a size: other parsers read no more.
const DIGITS: usize = 15;
/// Most bytes of the lines after the last chunk, which are ignored.
const TRAILERS: usize = 16 * 1024;

/// The end of a chunk.
pub(super) const CHUNK_END: &[u8] = b"\r\n";
/// The last chunk, without trailers.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The line before a chunk of `length` bytes.
pub(super) fn size_line(length: usize) -> Bytes {
    format!("{length:x}\r\n").into()
}

/// Why a body is not in the chunked coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The line before a chunk has no size, or another character than it may have.
    #[error("a chunk has no valid size")]
    Size,
    /// The line before a chunk is too long.
    #[error("the line before a chunk is longer than {SIZE_LINE} bytes")]
    LongLine,
    /// A chunk does not end where its size says.
    #[error("a chunk does not end where its size says")]
    End,
    /// The lines after the last chunk are too long.
    #[error("the trailers are longer than {TRAILERS} bytes")]
    LongTrailers,
}

/// An incremental decoder of a chunked body.
#[derive(Debug)]
pub(super) struct ChunkedDecoder {
    place: ChunkPosition,
    /// Bytes of the current line before a chunk, or of all trailers.
    line: usize,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPosition {
    /// The size of a chunk, before its first digit.
    FirstDigit,
    /// The digits of a size, with the size so far.
    Digits(u64),
    /// White space after the digits.
    Space(u64),
    /// The extensions after them.
    Extension(u64),
    /// The line feed after the size.
    SizeEnd(u64),
    /// A chunk, with the number of bytes that are left.
    Data(u64),
    /// The carriage return, and the line feed, after a chunk.
    DataReturn,
    DataFeed,
    /// The beginning of a line after the last chunk.
    TrailerStart,
    /// A line after the last chunk.
    Trailer,
    /// The line feed of such a line.
    TrailerFeed,
    /// The line feed of the empty line that ends the body.
    LastFeed,
    /// The body was read to its end.
    Over,
}

impl ChunkedDecoder {
    /// A decoder at the beginning of a body.
    pub(super) const fn new() -> Self {
        Self { place: ChunkPosition::FirstDigit, line: 0 }
    }

    /// Whether the body was read to its end. Bytes after that belong to no body, and are ignored.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.place, ChunkPosition::Over)
    }

    /// Decodes a part of the body, and adds the data to `out`.
    ///
    /// # Errors
    /// If it is not in the chunked coding; the decoder cannot be used after that.
    pub(super) fn decode(&mut self, mut part: &[u8], out: &mut Vec<u8>) -> Result<(), ChunkError> {
        while let Some((&first, rest)) = part.split_first() {
            match self.place {
                ChunkPosition::Over => return Ok(()),
                ChunkPosition::Data(left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
                    let (data, after) = part.split_at_checked(most).unwrap_or((part, &[]));
                    out.extend_from_slice(data);
                    part = after;
                    self.place = match left - data.len() as u64 {
                        0 => ChunkPosition::DataReturn,
                        left => ChunkPosition::Data(left),
                    };
                }
                _ => {
                    self.place = self.after(first)?;
                    part = rest;
                }
            }
        }
        Ok(())
    }

    /// The position after a byte that is not data.
    fn after(&mut self, byte: u8) -> Result<ChunkPosition, ChunkError> {
        self.line += 1;
        match self.place {
            ChunkPosition::FirstDigit
            | ChunkPosition::Digits(_)
            | ChunkPosition::Space(_)
            | ChunkPosition::Extension(_)
            | ChunkPosition::SizeEnd(_) => self.in_size_line(byte),
            ChunkPosition::DataReturn if byte == b'\r' => Ok(ChunkPosition::DataFeed),
            ChunkPosition::DataFeed if byte == b'\n' => {
                self.line = 0;
                Ok(ChunkPosition::FirstDigit)
            }
            ChunkPosition::DataReturn | ChunkPosition::DataFeed => Err(ChunkError::End),
            ChunkPosition::TrailerStart
            | ChunkPosition::Trailer
            | ChunkPosition::TrailerFeed
            | ChunkPosition::LastFeed => self.in_trailers(byte),
            place @ (ChunkPosition::Data(_) | ChunkPosition::Over) => Ok(place),
        }
    }

    /// The position after a byte of the line before a chunk.
    fn in_size_line(&mut self, byte: u8) -> Result<ChunkPosition, ChunkError> {
        if self.line > SIZE_LINE {
            return Err(ChunkError::LongLine);
        }
        let digit = char::from(byte).to_digit(16).map(u64::from);
        match (self.place, byte) {
            (ChunkPosition::FirstDigit, _) => {
                digit.map(ChunkPosition::Digits).ok_or(ChunkError::Size)
            }
            (ChunkPosition::Digits(size), _) if digit.is_some() && self.line <= DIGITS => {
                digit.map(|digit| ChunkPosition::Digits(size * 16 + digit)).ok_or(ChunkError::Size)
            }
            (ChunkPosition::Digits(size) | ChunkPosition::Space(size), b' ' | b'\t') => {
                Ok(ChunkPosition::Space(size))
            }
            (ChunkPosition::Digits(size) | ChunkPosition::Space(size), b';') => {
                Ok(ChunkPosition::Extension(size))
            }
            (
                ChunkPosition::Digits(size)
                | ChunkPosition::Space(size)
                | ChunkPosition::Extension(size),
                b'\r',
            ) => Ok(ChunkPosition::SizeEnd(size)),
            // A line feed alone ends the line for some readers only.
            (ChunkPosition::Extension(size), byte) if byte != b'\n' => {
                Ok(ChunkPosition::Extension(size))
            }
            (ChunkPosition::SizeEnd(size), b'\n') => {
                self.line = 0;
                Ok(match size {
                    0 => ChunkPosition::TrailerStart,
                    size => ChunkPosition::Data(size),
                })
            }
            _ => Err(ChunkError::Size),
        }
    }

    /// The position after a byte of the lines after the last chunk.
    fn in_trailers(&self, byte: u8) -> Result<ChunkPosition, ChunkError> {
        if self.line > TRAILERS {
            return Err(ChunkError::LongTrailers);
        }
        match (self.place, byte) {
            (ChunkPosition::TrailerStart, b'\r') => Ok(ChunkPosition::LastFeed),
            (ChunkPosition::Trailer, b'\r') => Ok(ChunkPosition::TrailerFeed),
            (ChunkPosition::TrailerFeed, b'\n') => Ok(ChunkPosition::TrailerStart),
            (ChunkPosition::LastFeed, b'\n') => Ok(ChunkPosition::Over),
            (ChunkPosition::TrailerStart | ChunkPosition::Trailer, byte) if byte != b'\n' => {
                Ok(ChunkPosition::Trailer)
            }
            _ => Err(ChunkError::End),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkError, ChunkedDecoder, LAST_CHUNK, SIZE_LINE, TRAILERS, size_line};
    use proptest::prelude::*;

    /// The data of a body that arrives in `parts`, and whether it ended.
    fn decoded<'a>(
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(Vec<u8>, bool), ChunkError> {
        let (mut decoder, mut out) = (ChunkedDecoder::new(), Vec::new());
        for part in parts {
            decoder.decode(part, &mut out)?;
        }
        Ok((out, decoder.is_over()))
    }

    #[test]
    fn sizes_extensions_and_trailers_are_no_data() {
        let good = [
            ("3\r\nabc\r\n0\r\n\r\n", &b"abc"[..], true),
            ("3\r\nabc\r\n", b"abc", false),
            ("0003\r\nabc\r\n0;last\r\n\r\nafter", b"abc", true),
            ("A;x=\"y\"\r\n0123456789\r\n000\r\n\r\n", b"0123456789", true),
            ("2 \t;x\r\n\r\n\r\n1\t\r\n\n\r\n0\r\nx: y\r\nz: 1\r\n\r\n", b"\r\n\n", true),
            ("0\r\n\r\n", b"", true),
            ("", b"", false),
        ];
        for (text, data, is_over) in good {
            assert_eq!(decoded([text.as_bytes()]), Ok((data.to_vec(), is_over)), "{text:?}");
        }
    }

    #[test]
    fn what_two_readers_may_read_differently_is_refused() {
        let bad = [
            ("\r\n", ChunkError::Size),
            ("\n3\r\nabc", ChunkError::Size),
            (" 3\r\nabc", ChunkError::Size),
            ("+3\r\nabc", ChunkError::Size),
            ("-1\r\nabc", ChunkError::Size),
            ("0x3\r\nabc", ChunkError::Size),
            ("3\nabc", ChunkError::Size),
            ("3\rabc", ChunkError::Size),
            ("3 3\r\nabc", ChunkError::Size),
            ("3;x\nabc", ChunkError::Size),
            ("g\r\n", ChunkError::Size),
            ("1000000000000000\r\n", ChunkError::Size),
            ("0000000000000003\r\nabc", ChunkError::Size),
            ("3\r\nabcd\r\n", ChunkError::End),
            ("3\r\nabc\n0\r\n\r\n", ChunkError::End),
            ("3\r\nabc\r0\r\n\r\n", ChunkError::End),
            ("0\r\n\n", ChunkError::End),
            ("0\r\nx: y\n\r\n", ChunkError::End),
            ("0\r\nx: y\r\r\n", ChunkError::End),
        ];
        for (text, error) in bad {
            assert_eq!(decoded([text.as_bytes()]), Err(error), "{text:?}");
        }
    }

    #[test]
    fn what_is_ignored_is_bounded() {
        let line = |length: usize| format!("1;{}\r\nx\r\n", "x".repeat(length - 4));
        assert!(decoded([line(SIZE_LINE).as_bytes(), line(SIZE_LINE).as_bytes()]).is_ok());
        assert_eq!(decoded([line(SIZE_LINE + 1).as_bytes()]), Err(ChunkError::LongLine));
        let trailers = |lines: usize| format!("0\r\n{}\r\n", "x: 12345\r\n".repeat(lines));
        assert!(decoded([trailers(TRAILERS / 10).as_bytes()]).is_ok());
        let long = trailers(TRAILERS / 10 + 1);
        assert_eq!(decoded([long.as_bytes()]), Err(ChunkError::LongTrailers));
    }

    #[test]
    fn the_largest_size_is_no_overflow() {
        let text = b"fffffffffffffff\r\nabc";
        assert_eq!(decoded([&text[..]]), Ok((b"abc".to_vec(), false)));
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_makes_no_difference(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            size in 1..20_usize,
        ) {
            let mut text = Vec::new();
            for chunk in &chunks {
                text.extend_from_slice(&size_line(chunk.len()));
                text.extend_from_slice(chunk);
                text.extend_from_slice(super::CHUNK_END);
            }
            text.extend_from_slice(LAST_CHUNK);
            prop_assert_eq!(decoded(text.chunks(size)), Ok((chunks.concat(), true)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(text in "[0-9a-f;\r\n x]{0,60}", size in 1..20_usize) {
            let whole = decoded([text.as_bytes()]);
            prop_assert_eq!(decoded(text.as_bytes().chunks(size)), whole);
        }
    }
}
