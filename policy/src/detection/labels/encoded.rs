//! Finds concealed members in text that is encoded in base64. Decoding is as lenient as the most lenient reader: either
//! alphabet, across blanks and line ends, behind other characters of the alphabet, and as UTF-8, UTF-16 or UTF-32.

use std::borrow::Cow;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::base::work::WorkBudget;
use crate::json::coding;

/// Shortest run that is decoded, in characters: a shorter one has no room for a name and a value in JSON.
const SHORTEST: usize = 10;
/// Longest gap between two parts of one encoding, in characters: a line end and its indentation.
const GAP: usize = 16;
/// Units that one decoding costs for each character.
const READING: usize = 4;
/// At least one in this many bytes of UTF-16 or UTF-32 text is zero, where most of its characters or the names of its
/// members are ASCII.
const ZEROS: usize = 16;

/// Inspects text that was decoded.
pub(crate) trait DecodedInspector {
    /// The decoded text without what is concealed; `None` if it holds nothing concealed.
    fn read(&mut self, decoded: &str) -> Option<String>;
    /// Whether bytes that are not text as a whole hold something concealed.
    fn holds(&self, decoded: &str) -> bool;
    /// The mark that replaces an encoding.
    fn withhold(&mut self, encoded: &str) -> String;
}

/// `text` without what is concealed in the base64 that it carries; `None` if unchanged. An encoding that cannot
/// be inspected within the budget is withheld.
pub(crate) fn without(
    text: &str,
    budget: &WorkBudget,
    reader: &mut dyn DecodedInspector,
) -> Option<String> {
    if text.len() < SHORTEST {
        return None;
    }
    if text.bytes().all(|byte| is_coded(byte) || is_gap(byte)) {
        match read(text, 0, budget, reader) {
            Some(DecodedOutcome::Text(shown)) => return Some(STANDARD.encode(shown)),
            Some(DecodedOutcome::Withheld) => return Some(reader.withhold(text)),
            None => {}
        }
    }
    // First encodings that continue over blanks and line ends, because a name and its value may be on different lines.
    let joined = replaced(text, &stretches(text), budget, reader);
    let rest = joined.as_deref().unwrap_or(text);
    replaced(rest, &runs(rest), budget, reader).or(joined)
}

/// A value that is base64 as a whole, such as a `blob`, without what is concealed, encoded again; `None` if unchanged.
pub(crate) fn whole(
    encoded: &str,
    budget: &WorkBudget,
    reader: &mut dyn DecodedInspector,
) -> Option<String> {
    let shown = match read(encoded, 0, budget, reader)? {
        DecodedOutcome::Text(shown) => shown,
        DecodedOutcome::Withheld => reader.withhold(encoded),
    };
    Some(STANDARD.encode(shown))
}

/// The outcome of decoding an encoding that holds something concealed.
enum DecodedOutcome {
    /// It decodes to text, and this is left of it.
    Text(String),
    /// What would be left of it is unknown.
    Withheld,
}

/// The text with marks in place of the encodings at `places` that hold something concealed; `None` if unchanged.
fn replaced(
    text: &str,
    places: &[Range<usize>],
    budget: &WorkBudget,
    reader: &mut dyn DecodedInspector,
) -> Option<String> {
    let (mut out, mut done) = (String::new(), 0);
    for place in places {
        let encoded = text.get(place.clone()).unwrap_or_default();
        // Text directly before the encoding may be of the same alphabet.
        let held = (0..4).any(|skipped| read(encoded, skipped, budget, reader).is_some());
        if held {
            out.push_str(text.get(done..place.start).unwrap_or_default());
            out.push_str(&reader.withhold(encoded));
            done = place.end;
        }
    }
    if done == 0 {
        return None;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Some(out)
}

/// Decodes an encoding without its first `skipped` characters and inspects the result; `None` if it holds nothing
/// concealed.
fn read(
    encoded: &str,
    skipped: usize,
    budget: &WorkBudget,
    reader: &mut dyn DecodedInspector,
) -> Option<DecodedOutcome> {
    if !budget.spend(encoded.len().saturating_mul(READING)) {
        return Some(DecodedOutcome::Withheld);
    }
    let bytes = decoded(encoded, skipped);
    if let Some(text) = coding::shown(&bytes) {
        if let Some(shown) = reader.read(&text) {
            return Some(DecodedOutcome::Text(shown));
        }
    } else if reader.holds(&String::from_utf8_lossy(&bytes)) {
        return Some(DecodedOutcome::Withheld);
    }
    let zeros = memchr::memchr_iter(0, &bytes).count();
    if zeros == 0 || zeros * ZEROS < bytes.len() {
        return None;
    }
    if !budget.spend(encoded.len().saturating_mul(READING * 3)) {
        return Some(DecodedOutcome::Withheld);
    }
    let plain: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    let wide = [
        String::from_utf8_lossy(&plain),
        Cow::Owned(wide(&bytes, u16::from_le_bytes)),
        Cow::Owned(wide(&bytes, u16::from_be_bytes)),
    ];
    let held = wide.iter().any(|text| {
        if coding::is_shown(text) { reader.read(text).is_some() } else { reader.holds(text) }
    });
    held.then_some(DecodedOutcome::Withheld)
}

/// Decodes bytes as UTF-16 and drops the byte order mark.
fn wide(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|pair| unit(*pair)).collect();
    let text = String::from_utf16_lossy(&units);
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

/// Decodes an encoding, which may be several ones separated by padding. Characters outside the alphabet are
/// skipped (RFC 2045 section 6.8).
fn decoded(encoded: &str, skipped: usize) -> Vec<u8> {
    let plain: String = encoded.chars().filter(|c| u8::try_from(*c).is_ok_and(is_coded)).collect();
    let mut out = Vec::with_capacity(plain.len());
    for block in plain.split('=') {
        let block = block.get(skipped..).unwrap_or_default();
        // A single spare character encodes no byte.
        let spare = usize::from(block.len() % 4 == 1);
        let block = block.get(..block.len() - spare).unwrap_or_default();
        out.extend(coding::base64(block).unwrap_or_default());
    }
    out
}

const fn is_coded(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

const fn is_gap(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// The ranges of contiguous runs.
fn runs(text: &str) -> Vec<Range<usize>> {
    parts(text).filter(|part| part.len() >= SHORTEST).collect()
}

/// Parts of one encoding with gaps between them.
struct SplitEncoding {
    /// Their range in the text, gaps included.
    range: Range<usize>,
    /// Total number of encoded characters.
    coded: usize,
}

/// The ranges of several runs with only blanks and line ends between them.
fn stretches(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut open: Option<SplitEncoding> = None;
    for part in parts(text) {
        let joins = |before: &Range<usize>| {
            let between = bytes.get(before.end..part.start).unwrap_or_default();
            between.len() <= GAP && between.iter().all(|byte| is_gap(*byte))
        };
        open = match open {
            Some(SplitEncoding { range, coded }) if joins(&range) => {
                Some(SplitEncoding { range: range.start..part.end, coded: coded + part.len() })
            }
            other => {
                found.extend(other.and_then(|one| long_enough(bytes, one)));
                Some(SplitEncoding { coded: part.len(), range: part })
            }
        };
    }
    found.extend(open.and_then(|one| long_enough(bytes, one)));
    found
}

/// The range of a stretch, if it has a gap and enough encoded characters.
fn long_enough(bytes: &[u8], stretch: SplitEncoding) -> Option<Range<usize>> {
    let is_joined = bytes.get(stretch.range.clone())?.len() > stretch.coded;
    (is_joined && stretch.coded >= SHORTEST).then_some(stretch.range)
}

/// The ranges of contiguous characters of either alphabet.
fn parts(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).unwrap_or_default();
        let start = at + rest.iter().position(|byte| is_coded(*byte))?;
        let rest = bytes.get(start..).unwrap_or_default();
        let length = rest.iter().position(|byte| !is_coded(*byte)).unwrap_or(rest.len());
        at = start + length;
        Some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

    use super::{DecodedInspector, without};
    use crate::base::work::WorkBudget;

    /// Conceals this number.
    struct Number;

    impl DecodedInspector for Number {
        fn read(&mut self, decoded: &str) -> Option<String> {
            self.holds(decoded).then(|| decoded.replace("847-55", "#"))
        }

        fn holds(&self, decoded: &str) -> bool {
            decoded.contains("847-55")
        }

        fn withhold(&mut self, _encoded: &str) -> String {
            "#".to_owned()
        }
    }

    fn shown(text: &str) -> Option<String> {
        without(text, &WorkBudget::unlimited(), &mut Number)
    }

    #[test]
    fn what_is_in_base64_is_found_wherever_it_stands() {
        let inner = "{\"ssn\":\"847-55\",\"of\":\"\u{3b1}???>>>\"}";
        let code = STANDARD.encode(inner);
        let left = STANDARD.encode(inner.replace("847-55", "#"));
        assert_eq!(shown(&code), Some(left.clone()));
        let lines: Vec<&str> =
            code.as_bytes().chunks(12).map(|line| std::str::from_utf8(line).unwrap()).collect();
        assert_eq!(shown(&lines.join("\r\n")), Some(left));
        assert_eq!(shown(&format!("It is: {code}, at last.")).unwrap(), "It is: #, at last.");
        for text in [
            URL_SAFE_NO_PAD.encode(inner),
            format!("x{code}"),
            format!("of/{code}"),
            format!("data={code}"),
            format!("{}{}", STANDARD.encode("{\"a\":1} "), code),
            format!("It is: {}.", lines.join("\n  ")),
            lines.join(" "),
        ] {
            assert!(
                shown(&text).is_some_and(|shown| !shown.contains(code.get(14..22).unwrap())),
                "{text}"
            );
        }
        for wide in [
            inner.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>(),
            inner.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            inner.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect(),
            [b"\xff\xfe".to_vec(), inner.encode_utf16().flat_map(u16::to_le_bytes).collect()]
                .concat(),
        ] {
            assert_eq!(shown(&STANDARD_NO_PAD.encode(wide)).as_deref(), Some("#"));
        }
    }

    #[test]
    fn what_holds_nothing_stays_as_it_is() {
        let image = STANDARD.encode([0x89, b'P', b'N', b'G', 0, 0, 0, 13].repeat(64));
        for text in ["", "A sentence of some words without a code", "847-55 is plain", &image] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn reading_costs_in_proportion_to_the_text() {
        for part in ["QUJD", "a b ", "a=", "a\n", "==", "AAAA", "SWdub3JlIGFsbA== ", "word, "] {
            let cost = |bytes: usize| {
                let budget = WorkBudget::unlimited();
                let _read = without(&part.repeat(bytes / part.len()), &budget, &mut Number);
                budget.spent() / u64::try_from(bytes / 1024).unwrap()
            };
            let (few, many) = (cost(16 * 1024), cost(1024 * 1024));
            assert!(many <= 4 * few.max(1), "{part:?}: {few} and {many} units");
        }
        let budget = WorkBudget::new(10);
        let code = STANDARD.encode("nothing that nobody may see");
        assert!(without(&code, &budget, &mut Number).is_some() && budget.is_exhausted());
    }
}
