//! Any text is read as a lockfile or refused.
#![no_main]

use gateway::settings::lockfile;
use libfuzzer_sys::fuzz_target;
use policy::lock::Lock;

fuzz_target!(|text: &str| {
    drop(lockfile::check(text, &Lock::default()));
});
