//! Any message is looked at, what is shown of it is JSON, and looking at that again changes nothing.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use policy::content::{Contents, Direction};
use policy::json::{Bounds, Document};
use policy::name::ServerName;

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = Document::parse(Bytes::copy_from_slice(bytes), &Bounds::ANSWER) else { return };
    let (contents, server) = (Contents::default(), ServerName::parse("up").unwrap());
    for direction in [Direction::Result, Direction::Argument] {
        let seen = contents.look(&server, direction, "ana", document.root());
        if let Some(changed) = seen.changed {
            assert!(!seen.findings.is_empty());
            // Names that become equal make what is no JSON here, and withhold the message.
            let Ok(again) = Document::parse(changed.into(), &Bounds::ANSWER) else { continue };
            assert!(contents.look(&server, direction, "ana", again.root()).changed.is_none());
        }
    }
});
