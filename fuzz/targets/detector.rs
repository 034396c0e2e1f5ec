//! A detector that is alone finds what is its own, changes nothing when it only records, blocks exactly what it finds when
//! it blocks, and finds the same again. The first byte says which one.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::sync::LazyLock;

use bytes::Bytes;
use detection::content::{ContentPolicy, ContentProfile, Direction};
use json::{Document, JsonBounds};
use libfuzzer_sys::fuzz_target;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use serde_json::Value;

use self::bounded::bounded;

/// The detectors of texts, by their keys in the configuration.
const DETECTORS: [&str; 10] = [
    "hiddenCharacters",
    "activeMarkup",
    "links",
    "secrets",
    "identifiers",
    "contacts",
    "plantedInstructions",
    "placeholders",
    "canaries",
    "mediaTypes",
];

/// For each detector the policy in which it records, and that in which it blocks; all others are off in both.
static ALONE: LazyLock<Vec<[ContentPolicy; 2]>> = LazyLock::new(|| {
    let policy = |detector: &str, how: &str| {
        let handling = |key: &str| if key == detector { how } else { "off" };
        let results: Value = DETECTORS
            .into_iter()
            .chain(["toolDirections"])
            .map(|key| (key.to_owned(), Value::from(handling(key))))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let results = serde_json::from_value(results).expect("handlings");
        let profile = ContentProfile {
            servers: vec![Pattern::new("*")],
            results,
            link_hosts: vec![Pattern::new("*.example")],
            ..ContentProfile::default()
        };
        let canaries = ["canary-7f3a9c21".to_owned()];
        ContentPolicy::new(vec![profile]).with_canaries(&canaries).expect("a canary")
    };
    DETECTORS
        .into_iter()
        .map(|detector| ["audit", "block"].map(|how| policy(detector, how)))
        .collect()
});

fuzz_target!(|input: (u8, &[u8])| {
    let (which, bytes) = input;
    let Ok(document) = Document::parse(Bytes::copy_from_slice(bytes), &JsonBounds::ANSWER) else {
        return;
    };
    let [records, blocks] = &ALONE[usize::from(which) % ALONE.len()];
    let server = ServerName::parse("up").expect("a name");
    let look = |policy: &ContentPolicy| {
        bounded(bytes.len(), |budget| {
            policy.look(&server, Direction::Result, "ana", document.root(), budget)
        })
    };
    let (recorded, blocked) = (look(records), look(blocks));
    assert!(recorded.changed.is_none());
    assert_eq!(recorded.findings, look(records).findings);
    // What costs too much is blocked whatever is done about findings.
    if recorded.blocked.is_none() {
        assert_eq!(
            recorded.findings.is_empty(),
            blocked.blocked.is_none(),
            "{:?}",
            recorded.findings
        );
    }
});
