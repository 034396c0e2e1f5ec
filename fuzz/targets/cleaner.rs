//! What was cleaned is clean: cleaning it again changes nothing, or something is found in it, and a definition in which
//! something is found is withheld. The first byte says what is removed.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use detection::clean::{self, Cleaning};
use detection::inspect;
use json::{Document, JsonBounds, write_string};
use libfuzzer_sys::fuzz_target;
use policy_core::base::work::{USUAL_MOST, WorkBudget};

use self::bounded::bounded;

fuzz_target!(|input: (u8, &[u8])| {
    let (what, bytes) = input;
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let has = |bit: u8| what & bit != 0;
    let cleaning = Cleaning { hidden: has(1), markup: has(2), secrets: has(4), addresses: has(8) };
    let once = bounded(bytes.len(), |_| clean::text(text, cleaning));
    let twice = clean::text(&once, cleaning);
    if once != twice {
        let mut quoted = Vec::new();
        write_string(&mut quoted, &once);
        let document = Document::parse(quoted.into(), &JsonBounds::ANSWER).expect("our own JSON");
        let budget = WorkBudget::for_bytes(once.len(), USUAL_MOST);
        assert!(!inspect::text(document.root(), &budget).is_empty(), "{once:?} {twice:?}");
    }
});
