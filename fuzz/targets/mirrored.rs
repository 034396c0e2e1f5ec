//! A header value that is accepted has one spelling.
#![no_main]

use gateway::wire::headers::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let header = encode(text);
    let shown = header.to_str().expect("visible ASCII");
    assert_eq!(decode(shown).as_deref(), Some(text));
    let _any = decode(text);
});
