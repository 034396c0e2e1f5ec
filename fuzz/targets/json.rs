//! What we read as JSON, serde_json reads too, and the same.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use bytes::Bytes;
use json::{Document, JsonBounds, JsonKind, Value};
use libfuzzer_sys::fuzz_target;

use self::bounded::bounded;

fn same(ours: Value<'_>, theirs: &serde_json::Value) -> bool {
    match ours.kind() {
        JsonKind::Null => theirs.is_null(),
        JsonKind::Boolean => ours.as_bool() == theirs.as_bool(),
        JsonKind::Number => theirs.is_number(),
        JsonKind::Plain | JsonKind::Escaped => ours.as_str().as_deref() == theirs.as_str(),
        JsonKind::Array => {
            let theirs = theirs.as_array().map_or(&[] as &[_], Vec::as_slice);
            ours.items().count() == theirs.len()
                && ours.items().zip(theirs).all(|(o, t)| same(o, t))
        }
        JsonKind::Object => {
            let count = theirs.as_object().map_or(0, serde_json::Map::len);
            ours.members().count() == count
                && ours
                    .members()
                    .all(|(key, value)| theirs.get(&*key).is_some_and(|t| same(value, t)))
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = bounded(bytes.len(), |_| {
        Document::parse(Bytes::copy_from_slice(bytes), &JsonBounds::MESSAGE)
    }) {
        match serde_json::from_slice::<serde_json::Value>(bytes) {
            Ok(theirs) => assert!(same(document.root(), &theirs)),
            Err(error) => assert!(error.to_string().contains("number out of range"), "{error}"),
        }
    }
});
