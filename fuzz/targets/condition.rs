//! Any text is a condition or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::condition::Condition;

fuzz_target!(|text: &str| {
    let _compiled = Condition::compile(text);
});
