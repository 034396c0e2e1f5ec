//! Selects the lines of a text that may be encoded or disguised, with a cheap test, so that ordinary text is
//! not decoded in every known way.

use std::sync::LazyLock;

use crate::json::coding;

/// Longest part of a line that is tested at once, in bytes.
const LINE: usize = 2000;
/// Shortest run that could be an encoding, in bytes.
const RUN: usize = 20;
/// Fewest words in a line that is tested for being in no language.
const WORDS: usize = 5;

/// In prose at least one word in this many is a function word.
const SHARE: usize = 12;
/// Function words of languages in Latin script, sorted.
#[rustfmt::skip]
const SMALL: [&str; 129] = [
    "a", "al", "all", "an", "and", "are", "as", "at", "att", "au", "auf", "av", "be", "bei", "bir", "but",
    "by", "cac", "can", "che", "cho", "com", "con", "da", "dan", "dans", "das", "dat", "de", "del", "den", "der",
    "des", "det", "di", "die", "do", "du", "e", "een", "ei", "ein", "eine", "el", "em", "en", "er", "es",
    "est", "et", "for", "from", "gli", "har", "he", "het", "i", "if", "il", "im", "in", "ini", "is", "ist",
    "it", "itu", "ja", "jest", "ke", "khi", "la", "las", "le", "les", "los", "mit", "mot", "na", "ne", "nie",
    "no", "non", "not", "o", "och", "of", "og", "on", "op", "or", "os", "par", "para", "pas", "per", "por",
    "pour", "que", "se", "si", "sie", "som", "su", "sur", "that", "the", "this", "to", "um", "uma", "un", "und",
    "une", "va", "van", "ve", "voi", "von", "w", "was", "we", "wir", "with", "y", "yang", "you", "your", "z",
    "zu",
];

/// English function words backwards (the, and, for, you, this, with, that, your) and in ROT13: no
/// language has these words.
const TURNED: [&str; 16] = [
    "eht", "dna", "rof", "uoy", "siht", "htiw", "taht", "ruoy", "gur", "naq", "sbe", "lbh", "guvf",
    "jvgu", "gung", "lbhe",
];

/// The kind of a known short word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordOrigin {
    /// A function word of some language.
    Small,
    /// A function word of English, backwards or in ROT13.
    Turned,
}

/// A hash table of packed short words, because every short word of a text is looked up.
struct ShortWordTable(Vec<Option<(u32, WordOrigin)>>);

impl ShortWordTable {
    /// Number of slots, more than twice the number of words.
    const PLACES: usize = 1 << 10;

    fn new(words: impl Iterator<Item = (&'static str, WordOrigin)>) -> Self {
        let mut table = Self(vec![None; Self::PLACES]);
        for (word, known) in words {
            let word = packed(word.as_bytes());
            if let Some(place) = table.place(word).and_then(|at| table.0.get_mut(at)) {
                *place = Some((word, known));
            }
        }
        table
    }

    /// The slot of a word, or the free slot for it.
    fn place(&self, word: u32) -> Option<usize> {
        let start = usize::try_from(word.wrapping_mul(0x9e37_79b1) >> 22).unwrap_or_default();
        let free = |at: &usize| {
            self.0.get(*at).is_some_and(|one| one.is_none_or(|(known, _)| known == word))
        };
        (start..Self::PLACES).chain(0..start).find(free)
    }

    fn get(&self, word: u32) -> Option<WordOrigin> {
        self.0.get(self.place(word)?).copied().flatten().map(|(_, known)| known)
    }
}

static KNOWN: LazyLock<ShortWordTable> = LazyLock::new(|| {
    let small = SMALL.iter().map(|word| (*word, WordOrigin::Small));
    ShortWordTable::new(small.chain(TURNED.iter().map(|word| (*word, WordOrigin::Turned))))
});

/// Packs the first four bytes of a word into a number, in lower case.
fn packed(word: &[u8]) -> u32 {
    word.iter().take(4).fold(0, |all, byte| all << 8 | u32::from(byte.to_ascii_lowercase()))
}

/// The suspicious lines of a text, each followed by a line end.
pub(super) fn of(text: &str) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let mut rest = line;
        while !rest.is_empty() {
            let (part, more) = rest.split_at(rest.floor_char_boundary(LINE));
            // A character has at most four bytes, so a part is never empty.
            if is_suspect(part) {
                out.push_str(part);
                out.push('\n');
            }
            rest = more;
        }
    }
    out
}

fn is_suspect(line: &str) -> bool {
    let mut shape = LineStats::default();
    for word in line.split_ascii_whitespace() {
        if shape.adds(word) {
            return true;
        }
    }
    let prose = shape.letters * 10 >= line.len() * 7;
    // Prose has function words; text that is spaced apart or written backwards has none.
    let foreign = prose
        && shape.words >= WORDS
        && shape.common * SHARE < shape.words
        && shape.plain * 5 >= shape.words * 4;
    foreign
        || shape.turned >= 2
        || shape.single * 2 >= shape.words && shape.single >= 8
        || shape.mixed >= 3
}

/// Counts over the words of a line.
#[derive(Default)]
struct LineStats {
    words: usize,
    /// Words that consist of letters only.
    plain: usize,
    /// Words of a single letter or digit.
    single: usize,
    /// Function words of some language.
    common: usize,
    /// English function words backwards or in ROT13.
    turned: usize,
    /// Words with a digit between two letters.
    mixed: usize,
    letters: usize,
    percent: usize,
}

impl LineStats {
    /// Adds a word. `true` if the word alone makes the line suspicious.
    fn adds(&mut self, word: &str) -> bool {
        self.words += 1;
        let bytes = word.as_bytes();
        if bytes.len() <= 4 {
            self.single +=
                usize::from(bytes.len() == 1 && bytes.iter().all(u8::is_ascii_alphanumeric));
            let end = bytes.iter().rposition(|b| !matches!(b, b',' | b'.' | b':'));
            let small = bytes.get(..=end.unwrap_or(0)).unwrap_or(bytes);
            match KNOWN.get(packed(small)) {
                Some(WordOrigin::Small) => self.common += 1,
                Some(WordOrigin::Turned) => self.turned += 1,
                None => {}
            }
            let letters = bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
            self.plain += usize::from(letters == small.len());
            self.letters += letters;
            return false;
        }
        // A shortcut for most words, which have only lower-case letters.
        let (last, head) = bytes.split_last().unwrap_or((&b' ', &[]));
        if head.len() < RUN && head.iter().all(u8::is_ascii_lowercase) {
            self.letters += head.len() + usize::from(last.is_ascii_alphabetic());
            self.plain += 1;
            return false;
        }
        let (mut run, mut upper, mut lower, mut digits, mut inside) = (0, 0, 0, 0, 0);
        let mut before = b' ';
        for (n, byte) in bytes.iter().enumerate() {
            match byte {
                b'x' | b'u' if before == b'\\' => return true,
                b'A'..=b'Z' => upper += 1,
                b'a'..=b'z' => lower += 1,
                b'0'..=b'9' => {
                    digits += 1;
                    let next = bytes.get(n + 1).is_some_and(u8::is_ascii_alphabetic);
                    inside += usize::from(before.is_ascii_alphabetic() && next);
                }
                b'+' | b'=' => {}
                b'%' => self.percent += 1,
                b'#' if before == b'&' => return true,
                _ => {
                    (run, upper, lower, digits) = (0, 0, 0, 0);
                    before = *byte;
                    continue;
                }
            }
            run += 1;
            before = *byte;
            // Base64 has letters of both cases and digits; hexadecimal has mostly digits. A separator in a
            // name or a path ends a run.
            let base64 = upper >= 3 && lower >= 3 && digits >= 1;
            if run >= RUN && (base64 || digits * 3 >= run) {
                let start = bytes.get(n + 1 - run..=n).unwrap_or_default();
                if is_text(start) {
                    return true;
                }
                // A run that does not begin with text is no encoded text: hashes, ids, images.
                (run, upper, lower, digits) = (0, 0, 0, 0);
            }
        }
        let letters = bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
        self.plain += usize::from(letters + 1 >= bytes.len());
        self.letters += letters;
        self.mixed += usize::from(inside > 0 && digits <= 4);
        self.percent >= 4
    }
}

/// Whether a run in base64 or hexadecimal begins with text.
fn is_text(run: &[u8]) -> bool {
    let is_text = |bytes: &[u8]| {
        let shown = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t' | 0x80..);
        // The run may end within a character.
        let whole = std::str::from_utf8(bytes).map_or_else(|e| e.error_len().is_none(), |_| true);
        whole && bytes.iter().all(shown)
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8; 2]| match pair.map(digit) {
        [Some(high), Some(low)] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    };
    let (pairs, _) = run.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(pair).collect();
    if bytes.is_some_and(|bytes| is_text(&bytes)) {
        return true;
    }
    let whole = run.get(..run.len() / 4 * 4).and_then(|whole| std::str::from_utf8(whole).ok());
    let decoded = whole.and_then(|whole| coding::base64(whole.trim_end_matches('=')));
    decoded.is_some_and(|decoded| is_text(&decoded))
}
