//! Normalises text to what a person would see, and reports the tricks that make it look otherwise.

use std::sync::LazyLock;

use policy_core::base::hidden::{Hidden, TERMINAL, is_rtl};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::lexicon::LEXICON;

/// A way to disguise text as other text, or to hide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trick {
    /// Tag characters, which are invisible, that spell text.
    Tags,
    /// Variation selectors that spell text.
    Selectors,
    /// Zero-width characters that encode text.
    ZeroWidth,
    /// Invisible characters inside words.
    Split,
    /// Characters that reverse the direction of the text.
    Reversed,
    /// Characters that isolate text of another direction, where there is no such text.
    Isolated,
    /// Escape sequences for terminals.
    Terminal,
    /// Combining marks on letters that normally carry none.
    Marks,
    /// Mathematical or enclosed letters.
    Styled,
    /// Words that mix letters of two scripts.
    MixedScripts,
    /// Words that alternate between lower and upper case.
    Alternating,
}

impl Trick {
    /// A description for findings.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::Tags => "hides text in tag characters",
            Self::Selectors => "hides text in variation selectors",
            Self::ZeroWidth => "hides text in characters of no width",
            Self::Split => "has characters inside words that are not shown",
            Self::Reversed => "turns the order of its text around",
            Self::Isolated => "sets text apart that has no other direction",
            Self::Terminal => "has commands to a terminal",
            Self::Marks => "has marks on letters that carry none",
            Self::Styled => "is written in mathematical or circled letters",
            Self::MixedScripts => "mixes letters of several scripts within words",
            Self::Alternating => "changes case with every letter",
        }
    }
}

/// The result of normalisation.
#[derive(Debug, Default)]
pub(super) struct NormalText {
    pub(super) text: String,
    pub(super) tricks: Vec<Trick>,
    /// Texts that invisible characters spell.
    pub(super) hidden: Vec<String>,
}

/// Letters of other scripts that look like Latin ones, in the order of [`LATIN`].
const FOREIGN: &str =
    "авеёкмнорстухіјѕһԁԛԝҽӏɡьъАВЕКМНОРСТУХІЈЅҺԌԚԜҮαβεηικνορτυχωγΑΒΕΖΗΙΚΜΝΟΡΤΥΧℓօսհոցԍɩıȷ";
const LATIN: &str =
    "abeekmhopctyxijshdqwelgbbABEKMHOPCTYXIJSHGQWYaBenikvoptuxwyABEZHIKMNOPTYXlouhngGiij";

static CONFUSABLE: LazyLock<std::collections::BTreeMap<char, char>> =
    LazyLock::new(|| FOREIGN.chars().zip(LATIN.chars()).collect());

/// The script of a letter: Latin, Greek, Cyrillic, Armenian or another one; a blank for other characters.
fn script(c: char) -> char {
    match c {
        c if c.is_ascii_alphabetic() => 'L',
        '\u{c0}'..='\u{24f}' => 'L',
        '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => 'G',
        '\u{400}'..='\u{52f}' => 'C',
        '\u{530}'..='\u{58f}' => 'A',
        c if c.is_alphabetic() => 'O',
        _ => ' ',
    }
}

/// Decodes bytes as UTF-8, if there are at least six and 95 % of the characters are printable.
pub(super) fn printable(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() >= 6)?;
    let shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let (all, good) = (text.chars().count(), text.chars().filter(shown).count());
    (good * 100 >= all * 95).then_some(text)
}

/// Upper bound of the length of a text after normalisation, in bytes: compatibility characters can expand to
/// 18 characters (Unicode Standard Annex 15, section 12.1).
pub(super) fn expanded(text: &str) -> usize {
    let cost = |c: char| match c {
        '\0'..='\u{a0}' => 1,
        // Arabic ligatures of whole words.
        '\u{fdf0}'..='\u{fdff}' => 36,
        '\u{fb50}'..='\u{fdef}' | '\u{fe70}'..='\u{fefc}' | '\u{3200}'..='\u{33ff}' => 12,
        _ => 2 * c.len_utf8(),
    };
    text.chars().map(cost).fold(0, usize::saturating_add)
}

pub(super) fn normal(text: &str) -> NormalText {
    if text.is_ascii() && !text.contains(['\u{1b}', '\u{8}']) {
        return NormalText { text: text.to_owned(), ..NormalText::default() };
    }
    let mut found = NormalText::default();
    let plain = stripped(text, &mut found);
    let plain = match TERMINAL.get() {
        Some(ansi) if ansi.is_match(&plain) => {
            found.tricks.push(Trick::Terminal);
            ansi.replace_all(&plain, " ").into_owned()
        }
        _ => plain,
    };
    let styled = |c: &char| matches!(c, '\u{1d400}'..='\u{1d7ff}' | '\u{ff21}'..='\u{ff5a}' | '\u{24b6}'..='\u{24e9}');
    if plain.chars().filter(styled).count() >= 12 {
        found.tricks.push(Trick::Styled);
    }
    let folded: String = plain.nfkc().collect();
    let mixed = mixed_words(&folded);
    if mixed >= 2 {
        found.tricks.push(Trick::MixedScripts);
    }
    let latin = |c: char| CONFUSABLE.get(&c).copied().unwrap_or(c);
    let folded: String = if mixed > 0 { folded.chars().map(latin).collect() } else { folded };
    found.text = folded.nfd().filter(|c| !is_combining_mark(*c)).collect();
    found
}

/// The text without invisible characters, which are inspected for tricks.
fn stripped(text: &str, found: &mut NormalText) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hidden = InvisibleCharacters::default();
    let mut chars = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        match c {
            '\u{e0000}'..='\u{e007f}' => {
                let ascii = char::from_u32(u32::from(c) - 0xe0000);
                hidden.tags.extend(ascii.filter(|c| matches!(c, ' '..='~')));
                continue;
            }
            '\u{e0100}'..='\u{e01ef}' => {
                hidden.selectors.extend(u8::try_from(u32::from(c) - 0xe0100 + 16).ok());
                continue;
            }
            '\u{fe00}'..='\u{fe0f}' => {
                hidden.selectors.extend(u8::try_from(u32::from(c) - 0xfe00).ok());
                continue;
            }
            _ if matches!(
                Hidden::of(c),
                Some(
                    Hidden::Joiner
                        | Hidden::Order
                        | Hidden::Shapeless
                        | Hidden::Variation
                        | Hidden::Notation
                )
            ) =>
            {
                match c {
                    '\u{202d}' | '\u{202e}' => found.note(Trick::Reversed),
                    '\u{202a}' | '\u{202b}' | '\u{2066}'..='\u{2068}' => hidden.isolates = true,
                    '\u{200b}' | '\u{200c}' | '\u{200d}' | '\u{2060}' | '\u{feff}' => {
                        hidden.zero.push(c);
                    }
                    _ => {}
                }
                hidden.splits +=
                    usize::from(before.is_ascii_alphanumeric() && chars.peek().is_some());
                continue;
            }
            _ => {}
        }
        if before.is_ascii() && !out.is_empty() && is_combining_mark(c) {
            hidden.marks += 1;
            continue;
        }
        hidden.rtl |= is_rtl(c);
        before = c;
        out.push(c);
    }
    hidden.judge(found);
    out
}

/// What stood in a text and cannot be seen, or hides what can.
#[derive(Default)]
struct InvisibleCharacters {
    /// The letters that tag characters stand for.
    tags: String,
    /// The bytes that variation selectors stand for.
    selectors: Vec<u8>,
    /// The characters that have no width.
    zero: Vec<char>,
    /// Number of marks above or below ASCII letters.
    marks: usize,
    /// Number of invisible characters within words.
    splits: usize,
    /// Whether the direction of writing is changed.
    isolates: bool,
    /// Whether there are letters that are written from right to left.
    rtl: bool,
}

impl InvisibleCharacters {
    /// Notes the tricks that they are used for, and what they hide.
    fn judge(self, found: &mut NormalText) {
        if self.tags.len() >= 2 {
            found.note(Trick::Tags);
            found.hidden.push(self.tags);
        }
        let several =
            |bytes: &[u8]| bytes.iter().collect::<std::collections::BTreeSet<_>>().len() >= 4;
        if several(&self.selectors)
            && let Some(text) = printable(self.selectors)
        {
            found.note(Trick::Selectors);
            found.hidden.push(text);
        }
        binary(&self.zero, found);
        if self.splits >= 3 {
            found.note(Trick::Split);
        }
        if self.marks >= 6 {
            found.note(Trick::Marks);
        }
        if self.isolates && !self.rtl {
            found.note(Trick::Isolated);
        }
    }
}

impl NormalText {
    fn note(&mut self, trick: Trick) {
        if !self.tricks.contains(&trick) {
            self.tricks.push(trick);
        }
    }
}

/// Decodes two zero-width characters as the bits of a text.
fn binary(zero: &[char], found: &mut NormalText) {
    if zero.len() < 32 {
        return;
    }
    let bits: Vec<char> =
        zero.iter().copied().filter(|c| matches!(c, '\u{200b}' | '\u{200c}')).collect();
    for off in ['\u{200b}', '\u{200c}'] {
        let byte =
            |bits: &[char]| bits.iter().fold(0_u8, |byte, bit| byte << 1 | u8::from(*bit != off));
        let text = printable(bits.chunks_exact(8).map(byte).collect());
        if let Some(text) = text.filter(|text| LEXICON.english(text).0 >= 2) {
            found.note(Trick::ZeroWidth);
            found.hidden.push(text);
            return;
        }
    }
    if bits.len() >= 64 && bits.iter().any(|bit| Some(bit) != bits.first()) {
        found.note(Trick::ZeroWidth);
    }
}

/// Number of words that mix Latin letters with letters that only look Latin.
fn mixed_words(text: &str) -> usize {
    let words = text.split(|c: char| !c.is_alphabetic());
    let mixed = |word: &&str| {
        if word.is_ascii() || word.chars().count() < 3 {
            return false;
        }
        let mut latin = false;
        let mut foreign = false;
        for c in word.chars() {
            match script(c) {
                'L' => latin = true,
                'G' | 'C' | 'A' if CONFUSABLE.contains_key(&c) => foreign = true,
                'G' | 'C' | 'A' => return false,
                _ => {}
            }
        }
        latin && foreign
    };
    words.filter(mixed).count()
}
