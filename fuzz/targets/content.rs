//! Any message is looked at, what is shown of it is JSON, and looking at that again changes nothing,
//! whatever is done about what is found, and what it costs is within its budget. The first byte says what
//! is done.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::sync::LazyLock;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use policy::detection::content::{ContentPolicy, ContentProfile, Direction};
use policy::detection::labels::Labels;
use policy::json::{Document, JsonBounds};
use policy::subject::name::ServerName;
use policy::subject::pattern::Pattern;

use self::bounded::bounded;

static CONTENTS: LazyLock<Vec<ContentPolicy>> = LazyLock::new(|| {
    let all = |how: &str, orders: &str, data: &str| {
        serde_json::json!({ "hiddenCharacters": "strip", "activeMarkup": how, "links": how, "secrets": data,
            "identifiers": data, "contacts": data, "plantedInstructions": orders, "canaries": "audit" })
    };
    [
        (serde_json::json!({}), false),
        (all("strip", "redact", "redact"), false),
        (all("defang", "redact", "redact"), true),
        (all("annotate", "wrap", "annotate"), false),
        (all("defang", "annotate", "redact"), true),
    ]
    .into_iter()
    .map(|(results, fence)| {
        let results = serde_json::from_value(results).unwrap();
        let (servers, link_hosts) = (vec![Pattern::new("*")], vec![Pattern::new("*.example")]);
        let profile =
            ContentProfile { servers, results, link_hosts, fence, ..ContentProfile::default() };
        ContentPolicy::new(vec![profile]).with_canaries(&["canary-7f3a9c21".to_owned()]).unwrap()
    })
    .collect()
});

fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let Ok(document) = Document::parse(Bytes::copy_from_slice(bytes), &JsonBounds::ANSWER) else {
        return;
    };
    drop(Labels::of_schema(document.root()));
    let contents = &CONTENTS[usize::from(*how) % CONTENTS.len()];
    let server = ServerName::parse("up").unwrap();
    for direction in [Direction::Result, Direction::Argument] {
        let seen = bounded(bytes.len(), |budget| {
            contents.look(&server, direction, "ana", document.root(), budget)
        });
        if let Some(changed) = seen.changed {
            // Names that become equal make what is no JSON here, and withhold the message.
            let Ok(again) = Document::parse(changed.into(), &JsonBounds::ANSWER) else { continue };
            let look = |budget: &_| contents.look(&server, direction, "ana", again.root(), budget);
            assert!(bounded(bytes.len(), look).changed.is_none());
        }
    }
});
