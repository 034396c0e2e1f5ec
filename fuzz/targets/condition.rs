//! Any text is a condition or is refused, at a cost in proportion to its length.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use libfuzzer_sys::fuzz_target;
use policy::rules::condition::Condition;

use self::bounded::bounded;

fuzz_target!(|text: &str| {
    let _compiled = bounded(text.len(), |_| Condition::compile(text));
});
