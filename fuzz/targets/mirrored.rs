//! A header value that is accepted has one spelling.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use gateway::mcp::wire::headers::{decode, encode};
use libfuzzer_sys::fuzz_target;

use self::bounded::bounded;

fuzz_target!(|text: &str| {
    let header = encode(text);
    let shown = header.to_str().expect("visible ASCII");
    assert_eq!(decode(shown).as_deref(), Some(text));
    let _any = bounded(text.len(), |_| decode(text));
});
