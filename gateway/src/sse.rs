//! Server-sent events: decoded from any chunks, encoded as one line.
//!
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>
//! Only data survives decoding. An upstream's event names, ids and retry times mean nothing to our
//! client and are never relayed (threat PV-34).

use bytes::Bytes;

/// Why a stream is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event or a line is longer than {limit} bytes")]
pub struct TooLong {
    limit: usize,
}

/// Turns chunks into the data of events.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    started: bool,
}

impl Decoder {
    /// A decoder that gives up on a line or an event of more than `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_return: false,
            started: false,
        }
    }

    /// Takes a chunk and hands each complete event to `emit`.
    ///
    /// # Errors
    /// When a line or an event is too long; the stream is of no use then.
    pub fn feed(&mut self, chunk: &[u8], mut emit: impl FnMut(Bytes)) -> Result<(), TooLong> {
        let mut rest = chunk;
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            let (before, after) = rest.split_at(at);
            self.hold(before)?;
            self.line_ends(&mut emit)?;
            rest = match after {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_return = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
        }
        self.hold(rest)
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > self.limit {
            return Err(TooLong { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_ends(&mut self, emit: &mut impl FnMut(Bytes)) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.line);
        let first = !std::mem::replace(&mut self.started, true);
        let line =
            if first { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line) } else { &line };
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                emit(std::mem::take(&mut self.data).into());
            }
            return Ok(());
        }
        let field = match line.strip_prefix(b"data") {
            Some([]) => Some(&[] as &[u8]),
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => Some(value),
            _ => None,
        };
        if let Some(value) = field {
            if self.data.len() + value.len() >= self.limit {
                return Err(TooLong { limit: self.limit });
            }
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value);
        }
        Ok(())
    }
}

/// One event whose data is `json`: a message without line ends.
#[must_use]
pub fn encode(json: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(json.len() + 32);
    out.extend_from_slice(b"event: message\ndata: ");
    // A space means the same to a JSON reader as a line end, which the format has no room for.
    out.extend(json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    out.extend_from_slice(b"\n\n");
    out.into()
}

#[cfg(test)]
mod tests {
    use super::Decoder;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Bytes> {
        let mut decoder = Decoder::new(1000);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk, |event| events.push(event)).unwrap();
        }
        events
    }

    #[test]
    fn the_format_of_the_standard() {
        let text = b"\xef\xbb\xbf: hello\r\n\r\nevent: x\rid: 7\rdata: a\rdata:b\r\rdata\n\nretry: 1\n\ndata: lost";
        assert_eq!(decode(&[text]), ["a\nb", ""]);
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut decoder = Decoder::new(10);
        decoder.feed(b"data: 1234", |_| {}).unwrap();
        assert!(decoder.feed(b"5", |_| {}).is_err());
        let mut decoder = Decoder::new(10);
        assert!(
            decoder.feed(b"data: 12\ndata: 12\ndata: 12\ndata: 12\ndata: 1\n", |_| {}).is_err()
        );
    }

    proptest! {
        #[test]
        fn where_the_chunks_end_makes_no_difference(
            text in "(data: ?[a\u{e9}]{0,3}|event: x|: c|)(\r\n|\r|\n){1,3}(data:b|data)?(\r\n|\r|\n){0,2}",
            cuts in prop::collection::vec(0..40usize, 0..6),
        ) {
            let whole = decode(&[text.as_bytes()]);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut at = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                chunks.push(&text.as_bytes()[at..cut]);
                at = cut;
            }
            prop_assert_eq!(decode(&chunks), whole);
        }
    }
}
