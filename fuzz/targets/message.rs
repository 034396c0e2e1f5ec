//! A message that is read has exactly one meaning, and its id can be written again.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use bytes::Bytes;
use gateway::mcp::wire::{Id, Message, decode};
use json::{Document, JsonBounds};
use libfuzzer_sys::fuzz_target;

use self::bounded::bounded;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Message::Request(request)) =
        bounded(bytes.len(), |_| decode(Bytes::copy_from_slice(bytes), &JsonBounds::MESSAGE))
    {
        let mut out = Vec::new();
        request.id.write(&mut out);
        let document = Document::parse(out.into(), &JsonBounds::MESSAGE).expect("our own JSON");
        assert_eq!(Id::read(document.root()), Some(request.id));
    }
});
