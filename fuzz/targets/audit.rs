//! A log that the verifier finds intact, with the key of its signer and its last checkpoint at hand, has the records that
//! were written, in their order, whatever was done to the file. The input is edits of a log.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::sync::LazyLock;

use audit_log::chain::{HashChain, content};
use audit_log::note::{NoteSigner, NoteVerifier};
use audit_log::verify::{LogVerifier, ProblemSeverity, VerifyOptions};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

use self::bounded::bounded;

struct Log {
    text: Vec<u8>,
    key: NoteVerifier,
    /// The last checkpoint, which an auditor has kept.
    witness: String,
}

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let signer = NoteSigner::generate("fuzz").expect("a key");
    let mut chain = HashChain::new("0011223344556677");
    let mut text = Vec::new();
    let mut write = |chain: &mut HashChain, members: &str| {
        let schema = audit_log::chain::SCHEMA;
        let mut line =
            format!(r#"{{"chain":"0011223344556677",{members},"schema":"{schema}"}}"#).into_bytes();
        let place = chain.next(&content(&line));
        place.seal(&mut line);
        chain.push(&place);
        text.extend_from_slice(&line);
    };
    let key = signer.public().text();
    write(&mut chain, &format!(r#""event":"start","key":"{key}","peaks":[],"size":0"#));
    let mut witness = String::new();
    for round in 0..3 {
        for n in 0..3 {
            write(&mut chain, &format!(r#""event":"exchange","id":"{round}-{n}","micros":{n}.5"#));
        }
        if round == 2 {
            write(&mut chain, r#""event":"stop""#);
        }
        witness = signer.note(&chain.id, &chain.tree);
        let note = Value::from(witness.clone());
        write(&mut chain, &format!(r#""event":"checkpoint","note":{note}"#));
    }
    Log { text, key: signer.public().clone(), witness }
});

/// `text` after the edits that `bytes` are: what is done, a place in 256 parts and one in bytes, a length, and the bytes
/// themselves.
fn edited(text: &[u8], mut bytes: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    while let Some(([what, part, more, length], rest)) = bytes.split_first_chunk::<4>() {
        let at = (usize::from(*part) * text.len() / 256 + usize::from(*more)).min(text.len());
        let length = usize::from(*length);
        let end = (at + length).min(text.len());
        let (own, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        match what % 6 {
            0 => drop(text.splice(at..end, own.iter().copied())),
            1 => drop(text.splice(at..at, own.iter().copied())),
            2 => drop(text.drain(at..end)),
            3 => text.truncate(at),
            // A line twice, or at another place.
            what => {
                let mut lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
                if let Some(line) = lines.get(usize::from(*part) % lines.len().max(1)).copied() {
                    if what == 5 {
                        lines.remove(usize::from(*part) % lines.len());
                    }
                    lines.insert(usize::from(*more) % (lines.len() + 1), line);
                }
                text = lines.concat();
            }
        }
    }
    text
}

fn records(text: &[u8]) -> Option<Vec<Value>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).ok()).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let Log { text, key, witness } = &*LOG;
    let verify = |text: &[u8]| {
        let demands =
            VerifyOptions { keys: vec![key.clone()], uncovered: 1, ..VerifyOptions::default() };
        let mut verifier = LogVerifier::new(demands);
        assert_eq!(verifier.witness(witness), Ok(1));
        bounded(text.len(), |_| verifier.read("log", &mut &text[..])).expect("read from memory");
        verifier.finish().weight() != Some(ProblemSeverity::Broken)
    };
    assert!(verify(text), "the log as it was written");
    for text_now in [edited(text, bytes), bytes.to_vec()] {
        if verify(&text_now) {
            assert_eq!(records(&text_now), records(text), "{}", String::from_utf8_lossy(&text_now));
        }
    }
});
