//! The lines of a program are those of its output, wherever it is cut, and none is longer than the limit; a message is
//! one line, and is read there as it was.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use gateway::base::intake::ResponseAccounts;
use gateway::upstream::line_framing::{LineError, append_flat, read_line};
use json::{Document, JsonBounds, write_plain};
use libfuzzer_sys::fuzz_target;
use tokio::io::BufReader;

use self::bounded::bounded;

const LIMIT: usize = 64;

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
});

/// The lines of an output that is read with a buffer of this size, and why there are no more.
fn lines(output: &[u8], buffer: usize) -> (Vec<Bytes>, LineError) {
    let accounts = Arc::new(ResponseAccounts::new(usize::MAX, usize::MAX, usize::MAX));
    let mut received = accounts.begin(&"up".into(), None);
    RUNTIME.block_on(async {
        let mut input = BufReader::with_capacity(buffer, output);
        let mut found = Vec::new();
        loop {
            match read_line(&mut input, LIMIT, &mut received).await {
                Ok(line) => found.push(line.joined()),
                Err(error) => return (found, error),
            }
        }
    })
}

fuzz_target!(|bytes: &[u8]| {
    let (found, end) = bounded(bytes.len(), |_| lines(bytes, 8192));
    for size in [1, 3, 16] {
        assert_eq!((found.clone(), end), lines(bytes, size));
    }
    let mut parts: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    // After the last line end there is nothing.
    parts.pop_if(|last| last.is_empty());
    let expected: Vec<_> = parts.iter().copied().take_while(|part| part.len() <= LIMIT).collect();
    assert_eq!(found, expected);
    let is_whole = expected.len() == parts.len();
    assert_eq!(end, if is_whole { LineError::Closed } else { LineError::TooLong });

    let Ok(message) = Document::parse(Bytes::copy_from_slice(bytes), &JsonBounds::MESSAGE) else {
        return;
    };
    let mut line = Vec::new();
    bytes.chunks(5).for_each(|part| append_flat(&mut line, part));
    assert!(!line.iter().any(|byte| matches!(byte, b'\n' | b'\r')));
    let again = Document::parse(line.into(), &JsonBounds::MESSAGE).expect("the same JSON");
    let plain = |document: &Document| {
        let mut out = Vec::new();
        write_plain(&mut out, document.root());
        out
    };
    assert_eq!(plain(&message), plain(&again));
});
