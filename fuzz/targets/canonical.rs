//! The canonical form of a document is read by another reader as the document itself, is one whatever the document is
//! spelled like, and comes to the same digest; numbers that a double does not hold have none.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use bytes::Bytes;
use json::{Document, JsonBounds, write_canonical, write_plain};
use libfuzzer_sys::fuzz_target;
use policy::definition::pin::{Digest, DigestSubject};
use serde_json::Value;

use self::bounded::bounded;

/// Whether both are the same, with numbers as doubles: canonical form writes no others.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        (one, other) => one == other,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let read = |bytes: &[u8]| Document::parse(Bytes::copy_from_slice(bytes), &JsonBounds::ANSWER);
    let Ok(document) = read(bytes) else { return };
    let (mut canonical, mut plain) = (Vec::new(), Vec::new());
    write_plain(&mut plain, document.root());
    let is_exact =
        bounded(bytes.len(), |_| write_canonical(&mut canonical, document.root()).is_ok());
    let again = read(&plain).expect("our own JSON");
    let mut twice = Vec::new();
    write_plain(&mut twice, again.root());
    assert_eq!(plain, twice);
    twice.clear();
    assert_eq!(write_canonical(&mut twice, again.root()).is_ok(), is_exact);
    let digest = |document: &Document| Digest::of(DigestSubject::Server, document.root());
    assert_eq!(digest(&document), digest(&again));
    if is_exact {
        assert_eq!(canonical, twice);
        let theirs: Value = serde_json::from_slice(bytes).expect("its numbers are doubles");
        let ours: Value = serde_json::from_slice(&canonical).expect("our own JSON");
        assert!(same(&ours, &theirs), "{}", String::from_utf8_lossy(&canonical));
    }
});
