//! The framing of messages to and from a program: each message is one line (SPEC 2026-07-28 basic/transports/stdio).

use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

use crate::base::intake::ResponseAccount;
use crate::base::segments::{SegmentBuffer, Segments};

/// How long to wait for room to read the rest of a line.
pub(super) const ROOM: Duration = Duration::from_secs(5);

/// Why no further line can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// The program has closed its output, as it does when it ends. The task that waits for its end reports the
    /// consequences.
    Closed,
    /// The line is longer than a message may be.
    TooLong,
    /// The memory budget has no room for the line.
    NoRoom,
}

/// Reads one line without its end, of at most `limit` bytes. Nothing is read from the program while `received` has no
/// room for it.
///
/// # Errors
/// If there is no further line, or it is too long.
pub async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
    received: &mut ResponseAccount,
) -> Result<Segments, LineError> {
    let mut text = SegmentBuffer::new();
    loop {
        let buffer = input.fill_buf().await.map_err(|_closed| LineError::Closed)?;
        if buffer.is_empty() {
            return if text.is_empty() { Err(LineError::Closed) } else { Ok(text.take()) };
        }
        let end = memchr::memchr(b'\n', buffer);
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        if text.len() + part.len() > limit {
            return Err(LineError::TooLong);
        }
        let room = received.waits(text.len() + part.len(), ROOM).await;
        room.map_err(|_full| LineError::NoRoom)?;
        text.push(part);
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(text.take());
        }
    }
}

/// Appends a part of a message to its line. A message must not contain line ends: outside of JSON strings a space is
/// equivalent, and inside they cannot occur.
pub fn append_flat(line: &mut Vec<u8>, part: &[u8]) {
    let plain = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
    line.extend(part.iter().map(plain));
}
