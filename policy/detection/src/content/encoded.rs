//! Finds secrets and personal data that are encoded once: in base64, in hexadecimal, or with percent escapes.

use std::ops::Range;

use json::coding;
use policy_core::base::work::WorkBudget;

use super::personal;
use super::planted::PlantedValues;
use crate::secrets::found::{FoundValue, ValueClass};
use crate::secrets::{self, runs};

/// Shortest run that is decoded, in bytes.
const SHORTEST: usize = 20;
/// Longest piece of a run that is decoded at once, in bytes: a multiple of four.
const PIECE: usize = 64 * 1024;
/// Overlap of two pieces, so that no key is cut in both, in bytes: a multiple of four.
const OVERLAP: usize = 4096;
/// Fewest consecutive printable bytes that are searched as text in binary data.
const SHOWN: usize = 8;
/// Fewest letters of a natural word: an encoding is rarely split into such words.
const WORD: usize = 5;
/// Longest gap between two parts of one encoding, in characters: a line end and its indentation.
const GAP: usize = 16;
/// Most places in an interrupted run from which it is decoded, besides its beginning.
const STARTS: usize = 8;
/// Units that one decoding of a run costs for each byte.
const READING: usize = 2;
/// Units that a text with its percent escapes decoded costs for each byte.
const UNESCAPING: usize = 8;

/// Remembers the values found in a text, and adds the remembered values that occur in it.
pub(super) type Recall<'a> = &'a dyn Fn(&str, &mut Vec<FoundValue>);

/// The context in which encodings are searched.
#[derive(Clone, Copy)]
pub(super) struct DecodeContext<'a> {
    /// The canaries and honeytokens of the policy.
    pub(super) planted: &'a PlantedValues,
    /// The budget of the search.
    pub(super) budget: &'a WorkBudget,
    /// Compares decoded values with remembered ones, as plain values are.
    pub(super) recall: Option<Recall<'a>>,
}

/// Appends what is found in the encoded runs of `text`.
pub(super) fn find(text: &str, with: DecodeContext<'_>, out: &mut Vec<FoundValue>) {
    let mut runs = Vec::new();
    if runs::long(text.as_bytes(), SHORTEST, is_run).next().is_some() {
        whole(text, with, &mut runs);
    }
    split(text, with, &runs, out);
    out.append(&mut runs);
    unescaped(text, with, out);
}

/// Appends what is found in the text with all percent escapes decoded: a single escape can hide a value, together
/// with the text on both sides of it.
fn unescaped(text: &str, with: DecodeContext<'_>, out: &mut Vec<FoundValue>) {
    let Some((plain, places)) = coding::unescaped(text) else { return };
    if !with.budget.spend(text.len().saturating_mul(UNESCAPING)) {
        return;
    }
    let in_text = |at: usize| usize::try_from(*places.get(at)?).ok();
    out.extend(in_plain(&plain, with).into_iter().filter_map(|one| {
        Some(FoundValue { from: in_text(one.from)?, end: in_text(one.end)?, ..one })
    }));
}

/// The values in a decoded text.
fn in_plain(text: &str, with: DecodeContext<'_>) -> Vec<FoundValue> {
    let mut found = with.planted.find(text.as_bytes());
    secrets::find(text, &mut found);
    personal::find(text, &mut found);
    if let Some(recall) = with.recall {
        recall(text, &mut found);
    }
    found
}

/// Appends what is found in contiguous runs.
fn whole(text: &str, with: DecodeContext<'_>, out: &mut Vec<FoundValue>) {
    let bytes = text.as_bytes();
    let part = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-' | b'=' | b'%')
    };
    let (mut from, mut escapes) = (0, 0);
    for at in 0..=bytes.len() {
        let byte = bytes.get(at).copied().unwrap_or(b' ');
        let goes_on = part(byte) || escapes > 0 && matches!(byte, b'.' | b'~' | b':' | b'@');
        // A `=` within a run separates a name from its value.
        let assigns =
            byte == b'=' && bytes.get(at + 1).is_some_and(|next| part(*next) && *next != b'=');
        if goes_on && !assigns {
            escapes += usize::from(byte == b'%');
            continue;
        }
        if at - from >= SHORTEST {
            let run = text.get(from..at).unwrap_or_default();
            let mut seen = RunDecoder::new(with);
            if escapes > 0 {
                seen.percent(run);
            }
            seen.run(run);
            out.extend(seen.found.into_iter().map(|one| one.behind(from)));
        }
        (from, escapes) = (at + 1, 0);
    }
}

/// Appends what is found in runs that line ends, blanks, dashes or dots interrupt, except for what `runs` has
/// already: many decoders of base64 and hexadecimal skip characters outside the alphabet (RFC 2045
/// section 6.8).
fn split(text: &str, with: DecodeContext<'_>, runs: &[FoundValue], out: &mut Vec<FoundValue>) {
    let bytes = text.as_bytes();
    let mut stretch = InterruptedRun::default();
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

/// Whether a part looks like a natural word: lower-case letters, except for the first one.
fn is_word(part: &[u8]) -> bool {
    let [first, rest @ ..] = part else { return false };
    part.len() >= WORD && first.is_ascii_alphabetic() && rest.iter().all(u8::is_ascii_lowercase)
}

/// Consecutive parts that could be one encoding.
#[derive(Default)]
struct InterruptedRun {
    from: usize,
    end: usize,
    /// Number of encoded characters.
    coded: usize,
    /// Whether a gap follows the last part.
    interrupted: bool,
    /// Whether a gap is between two parts.
    has_gaps: bool,
}

impl InterruptedRun {
    fn add(&mut self, at: usize, length: usize) {
        if self.coded == 0 {
            (self.from, self.interrupted) = (at, false);
        }
        self.has_gaps |= self.interrupted;
        self.coded += length;
        self.end = at + length;
    }

    /// Appends what is found in the stretch, and begins a new one.
    fn end(
        &mut self,
        text: &str,
        with: DecodeContext<'_>,
        runs: &[FoundValue],
        out: &mut Vec<FoundValue>,
    ) {
        let Self { from, end, coded, has_gaps, .. } = std::mem::take(self);
        if coded < SHORTEST || !has_gaps {
            return;
        }
        let stretch = text.get(from..end).unwrap_or_default();
        let mut seen = RunDecoder::new(with);
        let of_url = stretch.contains('-') && stretch.contains(|c: char| c.is_ascii_whitespace());
        let plain: String =
            stretch.chars().filter(|c| u8::try_from(*c).is_ok_and(is_coded)).collect();
        for piece in hexes(&plain) {
            seen.hexadecimal(plain.get(piece.clone()).unwrap_or_default());
            // Computed only for a new class, because a place is counted from the beginning of the stretch.
            if seen.has_new() {
                seen.tell(coded_place(stretch, &piece));
            }
        }
        if of_url && !stretch.contains('.') {
            // A dash is a character of the URL-safe alphabet of base64.
            seen.shifted(&stretch.split_ascii_whitespace().collect::<String>());
        }
        seen.shifted(&plain);
        for start in starts(stretch) {
            seen.base64(plain.get(start..).unwrap_or_default());
        }
        seen.tell(0..stretch.len());
        // A value within a single run is replaced without the words around the run.
        let inside = runs.get(runs.partition_point(|one| one.end <= from)..).unwrap_or_default();
        let is_known = |one: &FoundValue| {
            inside.iter().take_while(|run| run.from < end).any(|run| run.class == one.class)
        };
        let found = seen.found.into_iter().map(|one| one.behind(from));
        out.extend(found.filter(|one| !is_known(one)));
    }
}

/// Where encodings may begin among the encoded characters of a stretch, besides at its beginning: behind a slash or a gap.
/// What stands before can be of the same alphabet.
fn starts(stretch: &str) -> impl Iterator<Item = usize> + '_ {
    let (mut coded, mut begins) = (0, false);
    let each = stretch.bytes().filter_map(move |byte| {
        let starts = begins && is_coded(byte) && coded > 0;
        begins = byte == b'/' || !is_coded(byte);
        let at = coded;
        coded += usize::from(is_coded(byte));
        starts.then_some(at)
    });
    each.take(STARTS)
}

/// The range in a stretch of a range of its encoded characters.
fn coded_place(stretch: &str, coded: &Range<usize>) -> Range<usize> {
    let mut places = stretch.bytes().enumerate().filter(|(_, byte)| is_coded(*byte));
    let from = places.nth(coded.start).map_or(0, |(at, _)| at);
    let more = coded.len().saturating_sub(2);
    let end = places.nth(more).map_or(stretch.len(), |(at, _)| at + 1);
    from..end
}

/// The runs of hexadecimal digits that are long enough to be decoded.
fn hexes(run: &str) -> Vec<Range<usize>> {
    let (bytes, mut found, mut at) = (run.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if length >= SHORTEST {
            found.push(at..at + length);
        }
        at += length.max(1);
    }
    found
}

/// Whether an encoded value, or one with percent escapes, can have this byte.
const fn is_run(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'+' | b'/' | b'_' | b'-' | b'=' | b'%' | b'.' | b'~' | b':' | b'@')
}

/// The values found in one run when it is decoded, at most one of each class.
struct RunDecoder<'a> {
    with: DecodeContext<'a>,
    /// Values that have no place yet.
    kinds: Vec<(ValueClass, &'static str)>,
    /// Values with their places in the run.
    found: Vec<FoundValue>,
}

impl<'a> RunDecoder<'a> {
    const fn new(with: DecodeContext<'a>) -> Self {
        Self { with, kinds: Vec::new(), found: Vec::new() }
    }

    /// Decodes the percent-encoded bytes of a run. What is found gets its place from [`Self::run`].
    fn percent(&mut self, run: &str) {
        if self.pays(run) {
            let (bytes, undone) = coding::percent(run);
            if undone > 0 {
                self.bytes(&bytes);
            }
        }
    }

    /// Decodes a run in every other way in which it could be encoded. A finding in one encoding does not end the
    /// search in the others, or a value could be put in front as a decoy.
    fn run(&mut self, run: &str) {
        self.base64(run);
        self.tell(0..run.len());
        // A value behind the last slash of a path is replaced without the path.
        let tail = run.rfind('/').map_or(0, |slash| slash + 1);
        if tail > 0 {
            self.aligned(run.get(tail..).unwrap_or_default(), 0);
            self.tell(tail..run.len());
        }
        self.aligned(run, 1);
        self.tell(0..run.len());
        for piece in hexes(run) {
            self.hexadecimal(run.get(piece.clone()).unwrap_or_default());
            self.tell(piece);
        }
    }

    /// Drops the pending values of classes that have a place already; whether any are left.
    fn has_new(&mut self) -> bool {
        self.kinds.retain(|(class, _)| !self.found.iter().any(|known| known.class == *class));
        !self.kinds.is_empty()
    }

    /// Gives the pending values a place: one of each class, the most specific first.
    fn tell(&mut self, place: Range<usize>) {
        self.kinds.sort_by_key(|(class, _)| match class {
            ValueClass::Canary | ValueClass::Honeytoken(_) => 0,
            ValueClass::Secret => 1,
            ValueClass::Identifier => 2,
            ValueClass::Contact
            | ValueClass::Carried
            | ValueClass::Field
            | ValueClass::Placeholder => 3,
        });
        for (class, rule) in self.kinds.drain(..) {
            if !self.found.iter().any(|known| known.class == class) {
                self.found.push(FoundValue::new(class, rule, place.start, place.end));
            }
        }
    }

    /// Decodes characters of which the first ones may belong to something else.
    fn shifted(&mut self, run: &str) {
        // In base64 of ASCII text, the first of four characters is a letter.
        let letters = run.bytes().filter(u8::is_ascii_alphabetic).count();
        if letters * 8 >= run.len() {
            self.aligned(run, 0);
        }
    }

    /// Decodes base64 at the offsets from `first` to 3, because the text before it may be of the same
    /// alphabet.
    fn aligned(&mut self, run: &str, first: usize) {
        for skipped in first..4 {
            self.base64(run.get(skipped..).unwrap_or_default());
        }
    }

    /// Spends one more decoding of the run; `false` if the budget does not suffice.
    fn pays(&self, run: &str) -> bool {
        self.with.budget.spend(run.len().saturating_mul(READING))
    }

    /// Decodes hexadecimal from the first and from the second digit on.
    fn hexadecimal(&mut self, run: &str) {
        for skipped in 0..2 {
            for piece in pieces(run.get(skipped..).unwrap_or_default()) {
                if self.pays(piece)
                    && let Some(bytes) = hexadecimal(piece)
                {
                    self.bytes(&bytes);
                }
            }
        }
    }

    fn base64(&mut self, run: &str) {
        let run = run.trim_start_matches(['=', '%']).trim_end_matches('=');
        for piece in pieces(run) {
            // A single spare character encodes no byte.
            let spare = usize::from(piece.len() % 4 == 1);
            let piece = piece.get(..piece.len() - spare).unwrap_or_default();
            if self.pays(piece)
                && let Some(bytes) = coding::base64(piece)
            {
                self.bytes(&bytes);
            }
        }
    }

    /// Searches bytes: as one text if they are text, otherwise the text within them. Binary data around a value
    /// does not keep a server from reading it.
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(text) = printable(bytes) {
            let found = in_plain(&text, self.with);
            found.into_iter().for_each(|one| self.add(one.class, one.rule));
            return;
        }
        self.shown(bytes);
        // UTF-16 and UTF-32 have zeros beside each ASCII character.
        let zeros = memchr::memchr_iter(0, bytes).count();
        if zeros * 4 >= bytes.len() {
            let plain: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
            self.shown(&plain);
        }
    }

    /// Searches each run of text within binary data for planted and remembered values and secrets.
    fn shown(&mut self, bytes: &[u8]) {
        for one in self.with.planted.find(bytes) {
            self.add(one.class, one.rule);
        }
        let is_shown = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
        for run in bytes.split(|byte| !is_shown(byte)).filter(|run| run.len() >= SHOWN) {
            let mut found = Vec::new();
            // INVARIANT: a run consists of ASCII bytes.
            let run = std::str::from_utf8(run).unwrap_or_default();
            secrets::find(run, &mut found);
            if let Some(recall) = self.with.recall {
                recall(run, &mut found);
            }
            found.into_iter().for_each(|one| self.add(one.class, one.rule));
        }
    }

    /// Adds a pending value, if it is the first of its class.
    fn add(&mut self, class: ValueClass, rule: &'static str) {
        // What stands in place of a value hides nothing that the encoding would have to be replaced for.
        if class != ValueClass::Placeholder && !self.kinds.iter().any(|(known, _)| *known == class)
        {
            self.kinds.push((class, rule));
        }
    }
}

/// Splits a run into overlapping pieces of bounded length.
fn pieces(run: &str) -> impl Iterator<Item = &str> {
    let starts = (0..run.len()).step_by(PIECE - OVERLAP);
    starts.filter_map(move |from| run.get(from..run.len().min(from + PIECE)))
}

/// Decodes bytes as UTF-8, if the text has no control characters; a character cut at either end is dropped.
pub(super) fn printable(bytes: &[u8]) -> Option<String> {
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

/// Decodes pairs of hexadecimal digits; `None` where a character is not a digit.
pub(super) fn hexadecimal(run: &str) -> Option<Vec<u8>> {
    let value = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    };
    run.as_bytes().chunks_exact(2).map(pair).collect()
}
