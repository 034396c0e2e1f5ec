//! Secrets and personal data that were encoded once: in base64, in hexadecimal, or for a URL.

use aho_corasick::AhoCorasick;

use super::lens::{Class, Found};
use super::{personal, secrets};
use crate::coding;

/// Shortest run that is decoded, in bytes.
const SHORTEST: usize = 20;
/// Longest piece of a run that is decoded at once, in bytes: a multiple of four.
const PIECE: usize = 64 * 1024;
/// By so much two pieces overlap, so that none cuts a key from both: a multiple of four.
const OVERLAP: usize = 4096;
/// Of a piece, so much is decoded to see whether it is text, in bytes: a multiple of four.
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
        if at - from >= SHORTEST {
            let run = text.get(from..at).unwrap_or_default();
            let mut seen = Decoded { canaries, kinds: Vec::new() };
            let skipped = seen.run(run, escapes > 0, hex);
            let kinds = seen.kinds.into_iter();
            out.extend(kinds.map(|(class, rule)| Found::new(class, rule, from + skipped, at)));
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

/// What is found in a run when it is decoded: one of each class, what says most first.
struct Decoded<'a> {
    canaries: Option<&'a AhoCorasick>,
    kinds: Vec<(Class, &'static str)>,
}

impl Decoded<'_> {
    /// Decodes a run in every way in which it could be encoded, until something is found; says how much
    /// of its beginning does not belong to it.
    fn run(&mut self, run: &str, has_escapes: bool, is_hex: bool) -> usize {
        if has_escapes {
            self.look(percent(run));
        }
        if self.kinds.is_empty() && is_hex {
            pieces(run).for_each(|piece| self.look(hexadecimal(piece)));
        }
        if self.kinds.is_empty() {
            self.base64(run);
        }
        let tail = run.rfind('/').map_or(0, |slash| slash + 1);
        if self.kinds.is_empty() && tail > 0 {
            self.base64(run.get(tail..).unwrap_or_default());
            return tail;
        }
        0
    }

    fn base64(&mut self, run: &str) {
        let run = run.trim_start_matches(['=', '%']).trim_end_matches('=');
        pieces(run).for_each(|piece| self.look(base64(piece)));
    }

    fn look(&mut self, decoded: Option<String>) {
        let Some(text) = decoded else { return };
        let mut found = Vec::new();
        if self.canaries.is_some_and(|canaries| canaries.is_match(&text)) {
            found.push(Found::new(Class::Canary, "canary", 0, text.len()));
        }
        secrets::find(&text, &mut found);
        personal::find(&text, &mut found);
        for one in found {
            if !self.kinds.iter().any(|(class, _)| *class == one.class) {
                self.kinds.push((one.class, one.rule));
            }
        }
        self.kinds.sort_by_key(|(class, _)| match class {
            Class::Canary => 0,
            Class::Secret => 1,
            Class::Identifier => 2,
            Class::Contact | Class::Carried | Class::Field => 3,
        });
    }
}

/// A run in pieces of bounded length.
fn pieces(run: &str) -> impl Iterator<Item = &str> {
    let starts = (0..run.len()).step_by(PIECE - OVERLAP);
    starts.filter_map(move |from| run.get(from..run.len().min(from + PIECE)))
}

/// Bytes as text, if it could be printed; a character that a piece cuts does not count.
fn printable(bytes: &[u8]) -> Option<String> {
    let cut = bytes.iter().take(3).take_while(|byte| (0x80..0xc0).contains(*byte)).count();
    let bytes = bytes.get(cut..)?;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?
        }
        Err(_binary) => return None,
    };
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    (!text.contains(control)).then(|| text.to_owned())
}

fn percent(run: &str) -> Option<String> {
    let (bytes, undone) = coding::percent(run);
    if undone == 0 { None } else { printable(&bytes) }
}

fn hexadecimal(run: &str) -> Option<String> {
    let value = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = run.as_bytes().chunks(2).map(pair).collect();
    printable(&bytes?)
}

fn base64(run: &str) -> Option<String> {
    // Most runs are words, paths or pictures: a glance at the start tells.
    let sample = run.get(..SAMPLE.min(run.len() / 4 * 4))?;
    let start = coding::base64(sample)?;
    let is_text = start
        .iter()
        .all(|b| (b' '..0x7f).contains(b) || matches!(b, b'\n' | b'\r' | b'\t' | 0x80..));
    if !is_text {
        return None;
    }
    printable(&coding::base64(run)?)
}
