//! Server-sent events: decodes them from chunks of any size, and encodes a JSON-RPC message as one event.
//!
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>
//!
//! The event names, ids and retry times of an upstream server are for the gateway alone: they have no meaning for the
//! client and are never relayed (threat PV-34).

use bytes::Bytes;

use crate::base::segments::{SegmentBuffer, Segments};

/// Longest event id that is kept, in bytes. It also bounds event types and retry times.
const ID: usize = 1024;
/// Most bytes that are kept of a line that is not one of data: its field and, if it is not too long, its value.
const LINE: usize = ID + 64;
/// How a line of data begins.
const DATA: &[u8] = b"data:";
/// The byte order mark that a stream may begin with.
const BOM: &[u8] = b"\xef\xbb\xbf";
/// The type of an event whose type is not UTF-8 or too long. No event names it, since an empty type is none.
const UNREADABLE: &str = "";
/// Longest reconnection time that a server can set, in milliseconds.
const RETRY: u64 = 60_000;

/// A line or an event exceeds the limit of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event or a line is longer than {limit} bytes")]
pub struct EventTooLong {
    limit: usize,
}

/// One event of a stream, as decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field: its type, if it names one. [`UNREADABLE`] stands for a type that is not kept.
    pub name: Option<Box<str>>,
    /// The `data` field; empty if the event has none.
    pub data: Segments,
    /// The `id` field, if it is valid.
    pub id: Option<Box<str>>,
    /// The `retry` field: how long to wait before reconnecting, in milliseconds.
    pub retry: Option<u64>,
}

impl SseEvent {
    /// Bytes of its fields in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        let text = |field: &Option<Box<str>>| field.as_ref().map_or(0, |text| text.len());
        self.data.length() + text(&self.id) + text(&self.name)
    }

    /// Whether the event carries a JSON-RPC message.
    #[must_use]
    pub fn is_message(&self) -> bool {
        !self.data.is_empty() && self.name.as_deref().is_none_or(|name| name == MESSAGE)
    }
}

/// An incremental decoder of an event stream.
#[derive(Debug)]
pub struct SseDecoder {
    limit: usize,
    /// The current line, unless it is one of data: at most [`LINE`] bytes of it.
    line: Vec<u8>,
    /// The length of the current line.
    length: usize,
    kind: LineKind,
    data: SegmentBuffer,
    /// Where in `data` the value of the current line begins.
    value: usize,
    event: SseEvent,
    has_data: bool,
    /// Lines that carried no data, since the last event with data or since they were last taken.
    blank: usize,
    /// The last byte was a carriage return: a line feed that follows belongs to the same line end.
    after_return: bool,
    started: bool,
}

/// What is known of the current line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    /// It does not begin with `data:`, as far as it has arrived.
    Other,
    /// It begins with `data:`. A space that follows belongs to the field, and not to its value.
    DataBegun,
    /// It is a line of data, and its value has begun.
    Data,
}

impl SseDecoder {
    /// A decoder that fails on a line or an event of more than `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            length: 0,
            kind: LineKind::Other,
            data: SegmentBuffer::new(),
            value: 0,
            event: SseEvent { name: None, data: Segments::empty(), id: None, retry: None },
            has_data: false,
            blank: 0,
            after_return: false,
            started: false,
        }
    }

    /// Decodes a chunk and passes each complete event to `emit`.
    ///
    /// # Errors
    /// If a line or an event exceeds the limit; the decoder cannot be used after that.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        mut emit: impl FnMut(SseEvent),
    ) -> Result<(), EventTooLong> {
        let mut rest = chunk;
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            let (before, after) = rest.split_at(at);
            self.hold(before)?;
            self.line_ends(&mut emit);
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

    /// Returns and resets the number of lines without data since the last event with data or the last call. Lines of an
    /// incomplete event count as well.
    pub const fn take_blank(&mut self) -> usize {
        std::mem::replace(&mut self.blank, 0)
    }

    /// Bytes of the current line and of the incomplete event.
    #[must_use]
    pub fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Takes in a part of the current line.
    fn hold(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        self.length = self.length.saturating_add(bytes.len());
        if self.length > self.limit {
            return Err(EventTooLong { limit: self.limit });
        }
        match self.kind {
            LineKind::DataBegun | LineKind::Data => self.hold_data(bytes),
            LineKind::Other => self.hold_other(bytes),
        }
    }

    /// Takes in bytes of a line that did not begin with `data:` so far.
    fn hold_other(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        let known = self.line.len();
        let room = LINE.saturating_sub(known);
        self.line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        let line = self.other_line();
        if !line.starts_with(DATA) {
            return Ok(());
        }
        let value = (self.line.len() - line.len() + DATA.len()).saturating_sub(known);
        self.line.clear();
        self.kind = LineKind::DataBegun;
        self.begin_data();
        self.value = self.data.len();
        self.hold_data(bytes.get(value..).unwrap_or_default())
    }

    /// Begins a line of data: it stands on a line of its own in the data of the event.
    fn begin_data(&mut self) {
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b"\n");
        }
    }

    /// The current line without the byte order mark that a stream may begin with.
    fn other_line(&self) -> &[u8] {
        let line = &*self.line;
        if self.started { line } else { line.strip_prefix(BOM).unwrap_or(line) }
    }

    /// Takes in bytes behind `data:`.
    fn hold_data(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        let Some(first) = bytes.first() else { return Ok(()) };
        let begins = std::mem::replace(&mut self.kind, LineKind::Data) == LineKind::DataBegun;
        let value =
            if begins && *first == b' ' { bytes.get(1..).unwrap_or_default() } else { bytes };
        if self.data.len() + value.len() > self.limit {
            return Err(EventTooLong { limit: self.limit });
        }
        self.data.push(value);
        Ok(())
    }

    /// Takes in the end of the current line.
    fn line_ends(&mut self, emit: &mut impl FnMut(SseEvent)) {
        self.length = 0;
        let kind = std::mem::replace(&mut self.kind, LineKind::Other);
        if kind == LineKind::Other {
            let line = std::mem::take(&mut self.line);
            let first = !std::mem::replace(&mut self.started, true);
            let bare = if first { line.strip_prefix(BOM) } else { None };
            self.other_line_ends(bare.unwrap_or(&line), emit);
            self.line = line;
            self.line.clear();
        } else {
            self.started = true;
            self.blank += usize::from(self.data.len() == self.value);
        }
    }

    /// Takes in a line that does not begin with `data:`.
    fn other_line_ends(&mut self, line: &[u8], emit: &mut impl FnMut(SseEvent)) {
        self.blank += 1;
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) || event.id.is_some() || event.retry.is_some() {
                event.data = self.data.take();
                if !event.data.is_empty() {
                    self.blank = 0;
                }
                emit(event);
            }
            return;
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(at) => {
                let (field, value) = line.split_at(at);
                let value = value.get(1..).unwrap_or_default();
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[] as &[u8]),
        };
        let text = || std::str::from_utf8(value).ok().filter(|text| text.len() <= ID);
        match field {
            // Data without a colon: an empty line of it.
            b"data" => self.begin_data(),
            // An empty type is that of an event without one.
            b"event" if value.is_empty() => self.event.name = None,
            b"event" => self.event.name = Some(text().unwrap_or(UNREADABLE).into()),
            b"id" => self.event.id = text().filter(|id| !id.contains('\0')).map(Into::into),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let retry = text().and_then(|text| text.parse().ok());
                self.event.retry = retry.map(|retry: u64| retry.min(RETRY));
            }
            _ => {}
        }
    }
}

/// A comment, sent as keep-alive so that a quiet connection is not taken for a dead one.
pub const ALIVE: Bytes = Bytes::from_static(b":\r\n\r\n");

/// Ends an event of which only the beginning was sent. It sets an event type that MCP clients ignore, so that they
/// discard the partial event and read on.
pub const BROKEN_OFF: Bytes = Bytes::from_static(b"\nevent: broken-off\n\n");

/// The type of events that carry a JSON-RPC message; events without a type have it as well.
const MESSAGE: &str = "message";

/// Encodes a JSON-RPC message as one event.
#[must_use]
pub fn encode(json: &[u8]) -> Bytes {
    event(MESSAGE_FIELDS, json)
}

/// The fields of an event before its JSON.
pub(crate) const MESSAGE_FIELDS: &str = "event: message\ndata: ";

/// Encodes one event: `head` holds its fields and ends with an open `data: `, and `json` is the data.
#[must_use]
pub(crate) fn event(head: &str, json: &[u8]) -> Bytes {
    event_of(head, [json])
}

/// As [`event`], for JSON in several parts.
pub(crate) fn event_of<'a>(
    head: &str,
    json: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
) -> Bytes {
    let json = json.into_iter();
    let length: usize = json.clone().map(<[u8]>::len).sum();
    let mut out = Vec::with_capacity(length + head.len() + 2);
    out.extend_from_slice(head.as_bytes());
    for part in json {
        // A line end would end the field. Between JSON tokens, a space is equivalent.
        let line = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
        out.extend(part.iter().map(line));
    }
    out.extend_from_slice(b"\n\n");
    out.into()
}

#[cfg(test)]
mod tests {
    use super::SseDecoder;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Bytes> {
        let mut decoder = SseDecoder::new(1000);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk, |event| events.push(event.data.joined())).unwrap();
        }
        events
    }

    #[test]
    fn the_format_of_the_standard() {
        let text = b"\xef\xbb\xbf: hello\r\n\r\nevent: x\rid: 7\rdata: a\rdata:b\r\rdata\n\nretry: 1\n\ndata: lost";
        assert_eq!(decode(&[text]), ["a\nb", "", ""]);
        let mut events = Vec::new();
        SseDecoder::new(1000).feed(text, |event| events.push(event)).unwrap();
        assert_eq!((events[0].name.as_deref(), events[0].id.as_deref()), (Some("x"), Some("7")));
        assert_eq!(events[2].retry, Some(1));
    }

    #[test]
    fn an_event_is_a_message_by_its_type_alone() {
        let long = "x".repeat(super::ID + 1);
        for (fields, is_message) in [
            (&b""[..], true),
            (b"event: message\n", true),
            (b"event:\n", true),
            (b"event\n", true),
            (b"event: x\nevent:\n", true),
            (b"event: x\n", false),
            (b"event: \xff\n", false),
            (format!("event: {long}\n").as_bytes(), false),
        ] {
            let mut decoder = SseDecoder::new(4000);
            let mut seen = Vec::new();
            let text = [fields, b"data: {}\n\n"].concat();
            decoder.feed(&text, |event| seen.push(event.is_message())).unwrap();
            assert_eq!(seen, [is_message], "{}", String::from_utf8_lossy(fields));
        }
    }

    #[test]
    fn lines_that_carry_nothing_are_counted_until_data_comes() {
        let mut decoder = SseDecoder::new(1000);
        decoder.feed(b":\n\ndata:\n\nretry: 0\n\n\n", |_| {}).unwrap();
        assert_eq!(decoder.take_blank(), 7);
        assert_eq!(decoder.take_blank(), 0);
        decoder.feed(b":\n\nid: 1\ndata: a\ndata: b\n\n", |_| {}).unwrap();
        assert_eq!(decoder.take_blank(), 0);
        decoder.feed(b"data: a\n:\n", |_| {}).unwrap();
        assert_eq!(decoder.take_blank(), 1);
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut decoder = SseDecoder::new(10);
        decoder.feed(b"data: 1234", |_| {}).unwrap();
        assert!(decoder.feed(b"5", |_| {}).is_err());
        let mut decoder = SseDecoder::new(10);
        assert!(
            decoder.feed(b"data: 12\ndata: 12\ndata: 12\ndata: 12\ndata: 1\n", |_| {}).is_err()
        );
    }

    #[test]
    fn an_event_that_was_broken_off_is_no_message_and_the_next_one_is() {
        let whole = super::encode(br#"{"a":1}"#);
        // Wherever it is broken off, but for its last line end: then all of it was sent.
        for at in 0..whole.len() - 1 {
            let mut decoder = SseDecoder::new(1000);
            let mut messages = Vec::new();
            for part in [whole.slice(..at), super::BROKEN_OFF, super::encode(b"{}")] {
                let emit = |event: super::SseEvent| {
                    messages.extend(event.is_message().then(|| event.data.joined()))
                };
                decoder.feed(&part, emit).unwrap();
            }
            assert_eq!(messages, ["{}"], "{at}");
        }
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
