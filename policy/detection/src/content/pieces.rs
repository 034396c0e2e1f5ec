//! Finds values from another server that are split into pieces over several places of one message.
//!
//! No piece is the value, so no detector finds it in its place. All pieces of a message are joined in the order in
//! which they are sent and searched as one text: once as they are, and once for each encoding, with each piece
//! decoded on its own. The parts of a message (its arguments, its `_meta`, the client's information on itself) are also
//! joined in pairs, in every order, because the order in which a server combines them is unknown.

use std::ops::Range;

use json::coding;
use json::{JsonKind, Value};

use super::encoded;
use super::lens::StringScan;
use crate::secrets::found::FoundValue;

/// Bytes at the beginning and at the end of a long string that are searched together with its neighbours: more
/// than the longest key has.
const EDGE: usize = 4096;
/// Bytes at the end of one part and at the beginning of another one that are joined.
const SEAM: usize = 256;
/// Most parts of a message that are joined in pairs; further parts are merged into the last one.
const PARTS: usize = 12;
/// Units that reading a piece costs for each byte.
const READING: usize = 2;
/// A letter that separates two texts: no value contains it.
const BETWEEN: char = '\u{2d63}';

/// A part of a message that a caller has chosen.
#[derive(Clone, Copy, Debug)]
pub enum ChosenPart<'a> {
    /// A text that stands alone, such as the URI of a resource or the name of a method.
    Text(&'a str),
    /// The name and the value of a member. If the value is an object, each of its members is a part of its own.
    Member(&'a str, Value<'a>),
    /// A value as a single part.
    Value(Value<'a>),
    /// An object, each of whose members is a part of its own.
    Members(Value<'a>),
    /// A `tracestate`: `key=value` pairs, separated by commas.
    Trace(&'a str),
}

/// The rule of a value from another server that is split over these parts; `None` if there is none. A value within one
/// piece is found in its place.
pub(super) fn find(lens: &StringScan<'_>, parts: &[ChosenPart<'_>]) -> Option<&'static str> {
    PieceEncoding::ALL.into_iter().find_map(|reading| {
        let mut joined = PieceSearch::new(lens, reading);
        parts.iter().for_each(|part| joined.part(*part));
        joined.carried()
    })
}

/// The encoding in which pieces are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceEncoding {
    /// Each text is one piece, in plain.
    AsItStands,
    /// Each text is one piece in base64. A text that is not base64 is read as it is.
    Base64,
    /// Each text is one piece in hexadecimal, or in base64 where it does not decode to text. Any other text is read as
    /// it is.
    Hexadecimal,
    /// Each run of letters and digits is a piece in base64. A run that does not decode to text is skipped.
    Base64Runs,
    /// Each run of letters and digits is a piece in hexadecimal. A run that does not decode to text is skipped.
    HexadecimalRuns,
}

impl PieceEncoding {
    const ALL: [Self; 5] = [
        Self::AsItStands,
        Self::Base64,
        Self::Hexadecimal,
        Self::Base64Runs,
        Self::HexadecimalRuns,
    ];

    /// Whether a text can have several pieces in this encoding.
    const fn is_of_runs(self) -> bool {
        matches!(self, Self::Base64Runs | Self::HexadecimalRuns)
    }

    /// Decodes a text as a whole; `None` where the result is not text. White space, quotes and commas are ignored, as
    /// many decoders do.
    fn decoded(self, text: &str) -> Option<String> {
        if self == Self::AsItStands || self.is_of_runs() {
            return None;
        }
        let counts = |c: &char| !c.is_whitespace() && !matches!(c, '"' | '\'' | '`' | ',');
        let text: String = text.chars().filter(counts).collect();
        let (bytes, undone) = coding::percent(&text);
        let plain = if undone > 0 { encoded::printable(&bytes) } else { None };
        let read = |text: &str| {
            let base64 = || encoded::printable(&coding::base64(text)?);
            let hexadecimal = || {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let is_whole = digits.len().is_multiple_of(2);
                encoded::printable(&is_whole.then(|| encoded::hexadecimal(digits))??)
            };
            let decoded =
                if self == Self::Base64 { base64() } else { hexadecimal().or_else(base64) };
            decoded.filter(|decoded| !decoded.is_empty())
        };
        read(&text).or(plain).filter(|decoded| !decoded.is_empty())
    }

    /// Appends the decoded form of a run of letters and digits; `false` if that is not ASCII text. The other
    /// characters of base64 do not occur where letters and digits are encoded.
    fn add_run(self, run: &[u8], out: &mut String) -> bool {
        let (from, mut bits, mut held) = (out.len(), 0_u32, 0_u32);
        let is_hexadecimal = self == Self::HexadecimalRuns;
        let run = if is_hexadecimal { digits_of(run) } else { run };
        let each = if is_hexadecimal { 4 } else { 6 };
        let has_rest =
            if is_hexadecimal { !run.len().is_multiple_of(2) } else { run.len() % 4 == 1 };
        if has_rest {
            return false;
        }
        for byte in run {
            let digit = if is_hexadecimal { hex_digit(*byte) } else { base64_digit(*byte) };
            let Some(digit) = digit else {
                out.truncate(from);
                return false;
            };
            bits = (bits << each | u32::from(digit)) & 0xffff;
            held += each;
            if held < 8 {
                continue;
            }
            held -= 8;
            let byte = u8::try_from(bits >> held & 0xff).unwrap_or_default();
            if !matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n') {
                out.truncate(from);
                return false;
            }
            out.push(char::from(byte));
        }
        out.len() > from
    }
}

/// A run without the prefix of hexadecimal digits: `0x67`, or `\x67` in many languages.
fn digits_of(run: &[u8]) -> &[u8] {
    run.strip_prefix(b"0x").or_else(|| run.strip_prefix(b"x")).unwrap_or(run)
}

/// The value of a hexadecimal digit.
fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The value of a letter or a digit in base64 (RFC 4648 section 4).
const fn base64_digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        _ => None,
    }
}

/// The runs of letters and digits of a text; the letter of a JSON escape (`\n`) counts as a separator.
fn runs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut before = b' ';
    let pieces = text.split_inclusive(|byte| !byte.is_ascii_alphanumeric());
    pieces.map(move |piece| {
        let (run, behind) = match piece.split_last() {
            Some((sign, run)) if !sign.is_ascii_alphanumeric() => (run, *sign),
            Some(_) | None => (piece, b' '),
        };
        let run = match run {
            [b'n' | b'r' | b't', rest @ ..] if before == b'\\' => rest,
            run => run,
        };
        before = behind;
        run
    })
}

/// The role of a piece in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceKind {
    /// The name of a member.
    Name,
    /// A string or a number.
    Value,
}

/// The joined pieces of a message in one encoding.
struct PieceSearch<'a, 'b> {
    lens: &'a StringScan<'b>,
    reading: PieceEncoding,
    /// Whether any piece was decoded.
    is_decoded: bool,
    values: JoinedPieces,
    names: JoinedPieces,
    both: JoinedPieces,
}

impl<'a, 'b> PieceSearch<'a, 'b> {
    fn new(lens: &'a StringScan<'b>, reading: PieceEncoding) -> Self {
        let [values, names, both] = [(); 3].map(|()| JoinedPieces::default());
        Self { lens, reading, is_decoded: false, values, names, both }
    }

    fn part(&mut self, part: ChosenPart<'_>) {
        match part {
            ChosenPart::Text(text) => {
                self.text(text, PieceKind::Value);
                self.last_of(text);
            }
            ChosenPart::Member(name, value) => {
                self.text(name, PieceKind::Name);
                self.members(value);
            }
            ChosenPart::Value(value) => self.value(value),
            ChosenPart::Members(value) => self.members(value),
            ChosenPart::Trace(text) => {
                for member in text.split(',') {
                    match member.split_once('=') {
                        Some((name, value)) => {
                            self.text(name, PieceKind::Name);
                            self.text(value, PieceKind::Value);
                        }
                        None => self.text(member, PieceKind::Value),
                    }
                }
            }
        }
        self.values.end_part();
    }

    /// Adds an object, each of whose members is a part of its own, or another value.
    fn members(&mut self, value: Value<'_>) {
        if !value.is_object() {
            self.value(value);
            return;
        }
        for (name, member) in value.members() {
            self.text(&name, PieceKind::Name);
            self.value(member);
            self.values.end_part();
        }
    }

    /// Adds the last segment of a URI or a name as a part of its own: as a piece behind those of other parts it would
    /// be preceded by the rest of the URI. Where each run is a piece, it is one already.
    fn last_of(&mut self, text: &str) {
        let last = text.rsplit(['/', '?', '#', '&', '=', ':']).next().unwrap_or_default();
        let is_none = last.is_empty() || last.len() == text.len() || last.len() > EDGE;
        if self.reading.is_of_runs() || is_none || self.values.lasts.len() >= PARTS {
            return;
        }
        let decoded = self.reading.decoded(last);
        self.values.lasts.push(decoded.unwrap_or_else(|| last.to_owned()));
    }

    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn value(&mut self, value: Value<'_>) {
        if self.lens.budget.is_exhausted() {
            return;
        }
        match value.kind() {
            JsonKind::Null | JsonKind::Boolean => {}
            JsonKind::Number => self.text(value.raw(), PieceKind::Value),
            JsonKind::Plain | JsonKind::Escaped => {
                self.text(&value.as_str().unwrap_or_default(), PieceKind::Value);
            }
            JsonKind::Array => value.items().for_each(|item| self.value(item)),
            JsonKind::Object => {
                for (name, member) in value.members() {
                    self.text(&name, PieceKind::Name);
                    self.value(member);
                }
            }
        }
    }

    /// Adds a string. Of a long string that is one piece, only both ends count, because no value spans all of it.
    fn text(&mut self, text: &str, kind: PieceKind) {
        if self.reading.is_of_runs() {
            self.runs(text, kind);
        } else if text.len() > 2 * EDGE {
            // Encodings have groups of two or four characters, so the tail begins at a multiple of four.
            let tail = text.ceil_char_boundary((text.len() - EDGE).next_multiple_of(4));
            self.piece(text.get(..text.floor_char_boundary(EDGE)).unwrap_or_default(), kind);
            self.piece(text.get(tail..).unwrap_or_default(), kind);
        } else {
            self.piece(text, kind);
        }
    }

    fn piece(&mut self, text: &str, kind: PieceKind) {
        if !self.lens.budget.spend(text.len().saturating_mul(READING)) {
            return;
        }
        let decoded = self.reading.decoded(text);
        self.is_decoded |= decoded.is_some();
        self.add(decoded.as_deref().unwrap_or(text), kind);
    }

    fn runs(&mut self, text: &str, kind: PieceKind) {
        if !self.lens.budget.spend(text.len().saturating_mul(READING)) {
            return;
        }
        let plain = text.contains('%').then(|| coding::percent(text).0);
        let mut decoded = String::new();
        for run in runs(plain.as_deref().unwrap_or(text.as_bytes())) {
            decoded.clear();
            if self.reading.add_run(run, &mut decoded) {
                self.is_decoded = true;
                self.add(&decoded, kind);
            }
        }
    }

    fn add(&mut self, piece: &str, kind: PieceKind) {
        match kind {
            PieceKind::Name => self.names.add(piece),
            PieceKind::Value => self.values.add(piece),
        }
        self.both.add(piece);
    }

    /// The rule of a value from another server, if several pieces form one together.
    fn carried(&self) -> Option<&'static str> {
        if self.reading != PieceEncoding::AsItStands && !self.is_decoded {
            return None;
        }
        let is_mixed = !self.names.ends.is_empty() && !self.values.ends.is_empty();
        let rows = [Some(&self.values), Some(&self.names), is_mixed.then_some(&self.both)];
        let mut rows = rows.into_iter().flatten().filter(|row| row.ends.len() > 1);
        let found = rows.find_map(|row| row.carried(self.lens));
        found.or_else(|| self.values.seams().carried(self.lens))
    }
}

/// A sequence of joined pieces.
#[derive(Default)]
struct JoinedPieces {
    text: String,
    /// The end of each piece.
    ends: Vec<usize>,
    /// The range of each part of the message that has pieces.
    parts: Vec<Range<usize>>,
    /// Last segments that are parts of their own.
    lasts: Vec<String>,
}

impl JoinedPieces {
    fn add(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.ends.push(self.text.len());
        // The comparison ignores separators within a value.
        self.text.push(' ');
    }

    /// Ends a part of the message, if it has pieces.
    fn end_part(&mut self) {
        let (from, end) = (self.parts.last().map_or(0, |part| part.end), self.text.len());
        if from == end {
            return;
        }
        let is_full = self.parts.len() >= PARTS;
        match self.parts.last_mut().filter(|_| is_full) {
            Some(last) => last.end = end,
            None => self.parts.push(from..end),
        }
    }

    /// The end of each part joined to the beginning of each other part, and all last segments in a row.
    fn seams(&self) -> Self {
        let parts = self.parts.iter().filter_map(|part| self.text.get(part.clone()));
        let parts: Vec<&str> = parts.chain(self.lasts.iter().map(String::as_str)).collect();
        let mut seams = Self::default();
        self.lasts.iter().for_each(|last| seams.add(last));
        seams.text.push(BETWEEN);
        for (at, before) in parts.iter().enumerate() {
            let tail = before.ceil_char_boundary(before.len().saturating_sub(SEAM));
            for (_, behind) in parts.iter().enumerate().filter(|(other, _)| *other != at) {
                seams.add(before.get(tail..).unwrap_or_default());
                let head = behind.floor_char_boundary(SEAM);
                seams.text.push_str(behind.get(..head).unwrap_or_default());
                seams.text.push(BETWEEN);
            }
        }
        seams
    }

    /// The rule of a value from another server that contains the end of a piece.
    fn carried(&self, lens: &StringScan<'_>) -> Option<&'static str> {
        if self.ends.is_empty() || !lens.budget.spend(self.text.len()) {
            return None;
        }
        let mut found = Vec::new();
        lens.sought(&self.text, &mut found);
        let is_split = |one: &FoundValue| {
            let next = self.ends.partition_point(|end| *end <= one.from);
            self.ends.get(next).is_some_and(|end| *end < one.end)
        };
        found.into_iter().find(is_split).map(|one| one.rule)
    }
}

#[cfg(test)]
mod tests {
    use super::{JoinedPieces, PARTS, PieceEncoding, runs};

    #[test]
    fn a_run_is_read_as_what_it_stands_for() {
        let (base64, hexadecimal) = (PieceEncoding::Base64Runs, PieceEncoding::HexadecimalRuns);
        for (reading, run, is) in [
            (base64, "Z2hwXw", Some("ghp_")),
            (base64, "Zw", Some("g")),
            (base64, "Z2hwX", None),
            (base64, "note", None),
            (base64, "", None),
            (hexadecimal, "6768", Some("gh")),
            (hexadecimal, "0x6768", Some("gh")),
            (hexadecimal, "x67", Some("g")),
            (hexadecimal, "676", None),
            (hexadecimal, "67k1", None),
            (hexadecimal, "00", None),
        ] {
            let mut out = "before ".to_owned();
            let is_text = reading.add_run(run.as_bytes(), &mut out);
            assert_eq!(out.strip_prefix("before ").filter(|_| is_text), is, "{run}");
            assert!(is_text || out == "before ", "{run}: {out}");
        }
    }

    #[test]
    fn a_text_has_its_runs_whatever_stands_between_them() {
        let all = |text: &'static str| {
            let all = runs(text.as_bytes()).filter(|run| !run.is_empty());
            all.map(|run| std::str::from_utf8(run).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            all("ab\\nc1,\"d\"/e?f=g&h\nié j"),
            ["ab", "c1", "d", "e", "f", "g", "h", "i", "j"]
        );
        assert!(all("").is_empty() && all("/= ").is_empty());
    }

    #[test]
    fn blanks_line_ends_and_quotes_are_no_part_of_an_encoding() {
        for (reading, text, is) in [
            (PieceEncoding::Base64, "QUtJ\n", Some("AKI")),
            (PieceEncoding::Base64, " \"QU tJ\",", Some("AKI")),
            (PieceEncoding::Hexadecimal, "41 4b\n49", Some("AKI")),
            (PieceEncoding::Hexadecimal, "'0x414b'", Some("AK")),
            (PieceEncoding::Base64, "%41KI%4b", Some("AKIK")),
            (PieceEncoding::Base64, "AKIAQ", None),
            (PieceEncoding::AsItStands, "QUtJ", None),
        ] {
            assert_eq!(reading.decoded(text).as_deref(), is, "{text}");
        }
    }

    #[test]
    fn each_part_stands_before_each_other_one() {
        let mut row = JoinedPieces::default();
        for part in ["ab", "cd", "ef"] {
            row.add(part);
            row.end_part();
            row.end_part();
        }
        assert_eq!(row.parts.len(), 3);
        let seams = row.seams().text.replace(' ', "");
        for pair in ["abcd", "abef", "cdab", "cdef", "efab", "efcd"] {
            assert!(seams.contains(pair), "{pair}: {seams}");
        }
        assert!(!seams.contains("abcdab"), "{seams}");
    }

    #[test]
    fn the_parts_that_are_joined_in_pairs_are_bounded() {
        let mut row = JoinedPieces::default();
        for part in 0..10 * PARTS {
            row.add(&part.to_string());
            row.end_part();
        }
        assert_eq!(row.parts.len(), PARTS);
        assert_eq!(row.parts.last().unwrap().end, row.text.len());
    }
}
