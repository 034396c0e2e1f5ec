//! Any text is a configuration or a list of problems that can be shown.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use libfuzzer_sys::fuzz_target;

use self::bounded::bounded;

fuzz_target!(|text: &str| {
    if let Err(problems) =
        bounded(text.len(), |_| gateway::config::settings::load("f.yaml", text, &|_| None))
    {
        assert!(problems.count() > 0);
        let _shown = (problems.human(), problems.json());
    }
});
