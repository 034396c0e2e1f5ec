//! Any text is read as a lockfile or refused.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use gateway::config::settings::lockfile;
use libfuzzer_sys::fuzz_target;
use policy::definition::lock::Lockfile;

use self::bounded::bounded;

fuzz_target!(|text: &str| {
    let _lock = bounded(text.len(), |_| lockfile::check(text, &Lockfile::default()));
});
