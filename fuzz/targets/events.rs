//! Where the chunks end makes no difference, and no event is longer than the limit.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use gateway::stream::sse::{SseDecoder, SseEvent};
use libfuzzer_sys::fuzz_target;

use self::bounded::bounded;

const LIMIT: usize = 64;

fn events(chunks: &[&[u8]]) -> Option<Vec<SseEvent>> {
    let (mut decoder, mut events) = (SseDecoder::new(LIMIT), Vec::new());
    for chunk in chunks {
        decoder.feed(chunk, |event| events.push(event)).ok()?;
    }
    Some(events)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let (one, two) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = bounded(bytes.len(), |_| events(&[bytes]));
    if let (Some(whole), Some(parts)) = (&whole, events(&[one, two])) {
        assert_eq!(*whole, parts);
        assert!(whole.iter().all(|event| event.data.length() <= LIMIT));
    }
});
