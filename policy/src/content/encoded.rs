//! Secrets and personal data that were encoded once: in base64, in hexadecimal, or for a URL.

use aho_corasick::AhoCorasick;

use super::lens::{Class, Found};
use super::{personal, secrets};
use crate::coding;

/// Shortest run that is decoded, in bytes.
const SHORTEST: usize = 20;
/// Longest run that is decoded, in bytes.
const LONGEST: usize = 64 * 1024;
/// Of a run, so much is decoded to see whether it is text, in bytes: a multiple of four.
const SAMPLE: usize = 64;

/// Adds what is found in runs of `text` when they are decoded: each run as a whole.
pub(super) fn find(text: &str, canaries: Option<&AhoCorasick>, out: &mut Vec<Found>) {
    let bytes = text.as_bytes();
    if !has_run(bytes) {
        return;
    }
    let part = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-' | b'=' | b'%')
    };
    let (mut from, mut escapes, mut hex) = (0, 0, true);
    for at in 0..=bytes.len() {
        let byte = bytes.get(at).copied().unwrap_or(b' ');
        let goes_on = part(byte) || escapes > 0 && matches!(byte, b'.' | b'~' | b':' | b'@');
        // A sign of equality within a run gives a value to a name.
        let assigns =
            byte == b'=' && bytes.get(at + 1).is_some_and(|next| part(*next) && *next != b'=');
        if goes_on && !assigns {
            escapes += usize::from(byte == b'%');
            hex &= byte.is_ascii_hexdigit();
            continue;
        }
        if at - from >= SHORTEST && at - from <= LONGEST {
            let run = text.get(from..at).unwrap_or_default();
            let tail = run.rfind('/').map_or(0, |slash| slash + 1);
            let ways: [(usize, Option<String>); 4] = [
                (from, (escapes > 0).then(|| percent(run)).flatten()),
                (from, hex.then(|| hexadecimal(run)).flatten()),
                (from, base64(run)),
                (from + tail, run.get(tail..).filter(|_| tail > 0).and_then(base64)),
            ];
            for (from, decoded) in ways {
                if let Some(one) = decoded.and_then(|decoded| first(&decoded, canaries)) {
                    out.push(Found::new(one.class, one.rule, from, at));
                    break;
                }
            }
        }
        (from, escapes, hex) = (at + 1, 0, true);
    }
}

/// Whether so many bytes of an encoding stand one behind the other anywhere: one in so many is looked at,
/// and what is around it.
fn has_run(bytes: &[u8]) -> bool {
    let part = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'+' | b'/' | b'_' | b'-' | b'=' | b'%' | b'.' | b'~' | b':' | b'@')
    };
    let mut at = SHORTEST - 1;
    while let Some(byte) = bytes.get(at) {
        if !part(byte) {
            at += SHORTEST;
            continue;
        }
        let before = bytes.get(..at).unwrap_or_default().iter().rev();
        let before = before.take(SHORTEST).take_while(|b| part(b)).count();
        let behind = bytes.get(at..).unwrap_or_default().iter();
        let behind = behind.take(SHORTEST).take_while(|b| part(b)).count();
        if before + behind >= SHORTEST {
            return true;
        }
        at += behind + SHORTEST;
    }
    false
}

/// What says most of what is found in a decoded text.
fn first(text: &str, canaries: Option<&AhoCorasick>) -> Option<Found> {
    if canaries.is_some_and(|canaries| canaries.is_match(text)) {
        return Some(Found::new(Class::Canary, "canary", 0, text.len()));
    }
    let mut found = Vec::new();
    secrets::find(text, &mut found);
    personal::find(text, &mut found);
    found.into_iter().min_by_key(|one| match one.class {
        Class::Secret => 0,
        Class::Identifier => 1,
        Class::Contact | Class::Canary | Class::Carried | Class::Field => 2,
    })
}

/// Bytes as text, if it could be printed.
fn printable(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    (!text.contains(control)).then_some(text)
}

fn percent(run: &str) -> Option<String> {
    let (bytes, undone) = coding::percent(run);
    if undone == 0 { None } else { printable(bytes) }
}

fn hexadecimal(run: &str) -> Option<String> {
    let value = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = run.as_bytes().chunks(2).map(pair).collect();
    printable(bytes?)
}

fn base64(run: &str) -> Option<String> {
    let run = run.trim_start_matches(['=', '%']).trim_end_matches('=');
    // Most runs are words, paths or pictures: a glance at the start tells.
    let sample = run.get(..SAMPLE.min(run.len() / 4 * 4))?;
    let start = coding::base64(sample)?;
    let is_text = start
        .iter()
        .all(|b| (b' '..0x7f).contains(b) || matches!(b, b'\n' | b'\r' | b'\t' | 0x80..));
    if !is_text {
        return None;
    }
    printable(coding::base64(run)?)
}
