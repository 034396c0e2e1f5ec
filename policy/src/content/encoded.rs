//! Secrets and personal data that were encoded once: in base64, in hexadecimal, or for a URL.

use aho_corasick::AhoCorasick;

use super::lens::{Class, Found};
use super::{personal, secrets};
use crate::coding;
use crate::work::Budget;

/// Shortest run that is decoded, in bytes.
const SHORTEST: usize = 20;
/// Longest piece of a run that is decoded at once, in bytes: a multiple of four.
const PIECE: usize = 64 * 1024;
/// By so much two pieces overlap, so that none cuts a key from both: a multiple of four.
const OVERLAP: usize = 4096;
/// Fewest bytes in a row that are looked at as text in what is no text.
const SHOWN: usize = 8;
/// Fewest letters of a word of a language: an encoding is hardly ever split into such.
const WORD: usize = 5;
/// Most blanks and line ends between two parts of one encoding, with the indentation of a line.
const GAP: usize = 16;
/// What one reading of an encoding costs for each byte, in units.
const READING: usize = 2;

/// Adds what is found in runs of `text` when they are decoded: each run as a whole.
pub(super) fn find(
    text: &str,
    canaries: Option<&AhoCorasick>,
    budget: &Budget,
    out: &mut Vec<Found>,
) {
    let mut runs = Vec::new();
    if has_run(text.as_bytes()) {
        whole(text, canaries, budget, &mut runs);
    }
    split(text, (canaries, budget), &runs, out);
    out.append(&mut runs);
}

/// Adds what is found in runs that nothing interrupts.
fn whole(text: &str, canaries: Option<&AhoCorasick>, budget: &Budget, out: &mut Vec<Found>) {
    let bytes = text.as_bytes();
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
            let mut seen = Decoded { canaries, budget, kinds: Vec::new() };
            let skipped = seen.run(run, escapes > 0, hex);
            let kinds = seen.kinds.into_iter();
            out.extend(kinds.map(|(class, rule)| Found::new(class, rule, from + skipped, at)));
        }
        (from, escapes, hex) = (at + 1, 0, true);
    }
}

/// Adds what is found in runs that line ends, blanks, dashes or dots interrupt, and not in one of the `runs`
/// already: many who decode base64 or hexadecimal leave out what is not of its alphabet (RFC 2045
/// section 6.8).
fn split(text: &str, with: (Option<&AhoCorasick>, &Budget), runs: &[Found], out: &mut Vec<Found>) {
    let bytes = text.as_bytes();
    let mut stretch = Stretch::default();
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let part = rest.iter().take_while(|byte| is_coded(**byte)).count();
        if part == 0 {
            let gap = rest.iter().take_while(|byte| is_gap(**byte)).count();
            if gap == 0 || gap > GAP {
                stretch.end(text, with, runs, out);
            } else {
                stretch.interrupted |= stretch.coded > 0;
            }
            at += gap.max(1);
            continue;
        }
        if is_word(rest.get(..part).unwrap_or_default()) {
            stretch.end(text, with, runs, out);
        } else {
            stretch.add(at, part);
        }
        at += part;
    }
    stretch.end(text, with, runs, out);
}

const fn is_coded(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_')
}

const fn is_gap(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'-' | b'.')
}

/// Whether it reads as a word: small letters, but for the first one.
fn is_word(part: &[u8]) -> bool {
    let [first, rest @ ..] = part else { return false };
    part.len() >= WORD && first.is_ascii_alphabetic() && rest.iter().all(u8::is_ascii_lowercase)
}

/// Parts that could be one encoding.
#[derive(Default)]
struct Stretch {
    from: usize,
    end: usize,
    /// How many characters of an encoding it has.
    coded: usize,
    /// Whether something stands between two of them, or may.
    interrupted: bool,
    /// Whether something stands between two of them.
    has_gaps: bool,
}

impl Stretch {
    fn add(&mut self, at: usize, length: usize) {
        if self.coded == 0 {
            (self.from, self.interrupted) = (at, false);
        }
        self.has_gaps |= self.interrupted;
        self.coded += length;
        self.end = at + length;
    }

    /// Looks at what it stands for, and begins another.
    fn end(
        &mut self,
        text: &str,
        (canaries, budget): (Option<&AhoCorasick>, &Budget),
        runs: &[Found],
        out: &mut Vec<Found>,
    ) {
        let Self { from, end, coded, has_gaps, .. } = std::mem::take(self);
        if coded < SHORTEST || !has_gaps {
            return;
        }
        let stretch = text.get(from..end).unwrap_or_default();
        let mut seen = Decoded { canaries, budget, kinds: Vec::new() };
        let of_url = stretch.contains('-') && stretch.contains(|c: char| c.is_ascii_whitespace());
        if of_url && !stretch.contains('.') {
            // A dash is a character of the second alphabet of base64.
            seen.shifted(&stretch.split_ascii_whitespace().collect::<String>());
        }
        if seen.kinds.is_empty() {
            let plain = stretch.chars().filter(|c| u8::try_from(*c).is_ok_and(is_coded));
            seen.shifted(&plain.collect::<String>());
        }
        // What stands in one run alone is replaced without the words around it.
        let inside = runs.get(runs.partition_point(|one| one.end <= from)..).unwrap_or_default();
        let is_known = |class: Class| {
            inside.iter().take_while(|one| one.from < end).any(|one| one.class == class)
        };
        let kinds = seen.kinds.into_iter().filter(|(class, _)| !is_known(*class));
        out.extend(kinds.map(|(class, rule)| Found::new(class, rule, from, end)));
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
    budget: &'a Budget,
    kinds: Vec<(Class, &'static str)>,
}

impl Decoded<'_> {
    /// Decodes a run in every way in which it could be encoded, until something is found; says how much
    /// of its beginning does not belong to it.
    fn run(&mut self, run: &str, has_escapes: bool, is_hex: bool) -> usize {
        if has_escapes && self.pays(run) {
            let (bytes, undone) = coding::percent(run);
            if undone > 0 {
                self.bytes(&bytes);
            }
        }
        if self.kinds.is_empty() && is_hex {
            self.hexadecimal(run);
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

    /// The same for characters of which the first ones may belong to something else.
    fn shifted(&mut self, run: &str) {
        if run.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            for skipped in 0..2 {
                self.hexadecimal(run.get(skipped..).unwrap_or_default());
            }
        }
        // Of four characters that stand for three of ASCII, the first is a letter.
        let letters = run.bytes().filter(u8::is_ascii_alphabetic).count();
        if letters * 8 < run.len() {
            return;
        }
        for skipped in 0..4 {
            if self.kinds.is_empty() {
                self.base64(run.get(skipped..).unwrap_or_default());
            }
        }
    }

    /// Whether the budget has room for one more reading of it.
    fn pays(&self, run: &str) -> bool {
        self.budget.spend(run.len().saturating_mul(READING))
    }

    fn hexadecimal(&mut self, run: &str) {
        for piece in pieces(run) {
            if self.pays(piece)
                && let Some(bytes) = hexadecimal(piece)
            {
                self.bytes(&bytes);
            }
        }
    }

    fn base64(&mut self, run: &str) {
        let run = run.trim_start_matches(['=', '%']).trim_end_matches('=');
        for piece in pieces(run) {
            // One character more stands for no byte.
            let spare = usize::from(piece.len() % 4 == 1);
            let piece = piece.get(..piece.len() - spare).unwrap_or_default();
            if self.pays(piece)
                && let Some(bytes) = coding::base64(piece)
            {
                self.bytes(&bytes);
            }
        }
    }

    /// Looks at bytes: as one text if they are one, else at what is text in them. Bytes that nobody can
    /// print before a value or behind it do not keep a server from reading the value.
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(text) = printable(bytes) {
            self.look(&text);
            return;
        }
        if self.canaries.is_some_and(|canaries| canaries.is_match(bytes)) {
            self.add(Class::Canary, "canary");
        }
        self.shown(bytes);
        // In UTF-16 and UTF-32 there are zeros around each character of ASCII.
        let zeros = memchr::memchr_iter(0, bytes).count();
        if zeros * 4 >= bytes.len() {
            let plain: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
            if self.canaries.is_some_and(|canaries| canaries.is_match(&plain)) {
                self.add(Class::Canary, "canary");
            }
            self.shown(&plain);
        }
    }

    /// Looks for secrets in each run of text within bytes.
    fn shown(&mut self, bytes: &[u8]) {
        let is_shown = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
        for run in bytes.split(|byte| !is_shown(byte)).filter(|run| run.len() >= SHOWN) {
            let mut found = Vec::new();
            // INVARIANT: a run has bytes of ASCII alone.
            secrets::find(std::str::from_utf8(run).unwrap_or_default(), &mut found);
            found.into_iter().for_each(|one| self.add(one.class, one.rule));
        }
        self.sort();
    }

    fn look(&mut self, text: &str) {
        let mut found = Vec::new();
        if self.canaries.is_some_and(|canaries| canaries.is_match(text)) {
            found.push(Found::new(Class::Canary, "canary", 0, text.len()));
        }
        secrets::find(text, &mut found);
        personal::find(text, &mut found);
        found.into_iter().for_each(|one| self.add(one.class, one.rule));
        self.sort();
    }

    /// Notes it, if it is the first of its class.
    fn add(&mut self, class: Class, rule: &'static str) {
        if !self.kinds.iter().any(|(known, _)| *known == class) {
            self.kinds.push((class, rule));
        }
    }

    fn sort(&mut self) {
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

fn hexadecimal(run: &str) -> Option<Vec<u8>> {
    let value = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    };
    run.as_bytes().chunks_exact(2).map(pair).collect()
}
