//! Characters of a text that are not shown, and terminal escape sequences.
//!
//! One table for the detectors that look for them, the cleaning that removes them and the output that draws them
//! (threat T1402, vector PV-49).

use std::borrow::Cow;
use std::fmt::Write as _;

use regex::Regex;

use crate::base::compiled::Compiled;

/// Why a character is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// It joins its neighbours or keeps them apart: legitimate inside emoji and several scripts.
    Joiner,
    /// It changes the display order of a text (Unicode Standard Annex 9).
    Order,
    /// A tag character, which spells invisible text (U+E0000 to U+E007F, and the unassigned space up to U+E0FFF).
    Tag,
    /// It selects a variant of the character before it.
    Variation,
    /// It says how signs of music or of shorthand belong together.
    Notation,
    /// It has no glyph.
    Shapeless,
    /// It is a control character.
    Control,
}

/// Every character with the property `Default_Ignorable_Code_Point` (`DerivedCoreProperties.txt` of Unicode 18.0.0), and
/// the marks of interlinear annotations (U+FFF9 to U+FFFB), which are not shown either. In ascending order.
const IGNORABLE: [(char, char, Hidden); 26] = [
    ('\u{ad}', '\u{ad}', Hidden::Shapeless),
    ('\u{34f}', '\u{34f}', Hidden::Shapeless),
    ('\u{61c}', '\u{61c}', Hidden::Order),
    ('\u{115f}', '\u{1160}', Hidden::Shapeless),
    ('\u{17b4}', '\u{17b5}', Hidden::Shapeless),
    ('\u{180b}', '\u{180d}', Hidden::Variation),
    ('\u{180e}', '\u{180e}', Hidden::Joiner),
    ('\u{180f}', '\u{180f}', Hidden::Variation),
    ('\u{200b}', '\u{200b}', Hidden::Shapeless),
    ('\u{200c}', '\u{200d}', Hidden::Joiner),
    ('\u{200e}', '\u{200f}', Hidden::Order),
    ('\u{202a}', '\u{202e}', Hidden::Order),
    ('\u{2060}', '\u{2065}', Hidden::Shapeless),
    ('\u{2066}', '\u{2069}', Hidden::Order),
    ('\u{206a}', '\u{206f}', Hidden::Shapeless),
    ('\u{3164}', '\u{3164}', Hidden::Shapeless),
    ('\u{fe00}', '\u{fe0f}', Hidden::Variation),
    ('\u{feff}', '\u{feff}', Hidden::Shapeless),
    ('\u{ffa0}', '\u{ffa0}', Hidden::Shapeless),
    ('\u{fff0}', '\u{fff8}', Hidden::Shapeless),
    ('\u{fff9}', '\u{fffb}', Hidden::Shapeless),
    ('\u{1bca0}', '\u{1bca3}', Hidden::Notation),
    ('\u{1d173}', '\u{1d17a}', Hidden::Notation),
    ('\u{e0000}', '\u{e00ff}', Hidden::Tag),
    ('\u{e0100}', '\u{e01ef}', Hidden::Variation),
    ('\u{e01f0}', '\u{e0fff}', Hidden::Tag),
];

impl Hidden {
    /// Why a character is not shown; `None` for a character that is.
    #[must_use]
    pub fn of(c: char) -> Option<Self> {
        match c {
            ' '..='~' | '\t' | '\n' | '\r' => None,
            '\0'..='\u{ac}' => c.is_control().then_some(Self::Control),
            _ => {
                let at = IGNORABLE.partition_point(|(_, last, _)| *last < c);
                let (first, _, why) = IGNORABLE.get(at)?;
                (*first <= c).then_some(*why)
            }
        }
    }
}

/// Most hidden characters between two that are shown, where they belong: a variant and a joiner.
const RUN: usize = 2;
/// The same for marks of direction and for signs of music and shorthand, of which several open and close at one place.
const NESTED: usize = 4;

/// Every character of a text, with the reason why it is not shown, unless it belongs where it stands.
///
/// Hidden characters belong in emoji, in variants of ideographs and of a few other characters, between the letters of
/// scripts that need them, in text from right to left, and in music and shorthand.
pub fn misplaced(text: &str) -> impl Iterator<Item = (char, Option<Hidden>)> + '_ {
    let rtl = text.chars().any(is_rtl);
    let (mut before, mut run) = (' ', 0);
    let mut chars = text.chars();
    std::iter::from_fn(move || {
        let c = chars.next()?;
        let Some(hidden) = Hidden::of(c) else {
            (before, run) = (c, 0);
            return Some((c, None));
        };
        let next = || chars.clone().next().unwrap_or(' ');
        let belongs = match hidden {
            Hidden::Joiner if c == '\u{180e}' => {
                run < RUN && is_mongolian(before) && is_mongolian(next())
            }
            Hidden::Joiner => {
                let joins = !before.is_ascii() && !before.is_whitespace();
                run < RUN && joins && !next().is_ascii()
            }
            Hidden::Variation => {
                let most = if matches!(c, '\u{180b}'..='\u{180f}') { RUN } else { 1 };
                run < most && has_variant(before, c, next())
            }
            // Marks and isolates belong in right-to-left text; embeddings and overrides belong nowhere.
            Hidden::Order => run < NESTED && rtl && !matches!(c, '\u{202a}'..='\u{202e}'),
            Hidden::Notation => {
                let shown = chars.clone().take(NESTED).find(|c| Hidden::of(*c).is_none());
                run < NESTED && (is_notation(c, before) || shown.is_some_and(|s| is_notation(c, s)))
            }
            // Fillers stand for a consonant or a vowel of an old Korean syllable.
            Hidden::Shapeless => match c {
                '\u{115f}' => run == 0 && matches!(next(), '\u{1161}'..='\u{11a7}'),
                '\u{1160}' => run == 0 && matches!(before, '\u{1100}'..='\u{115e}'),
                _ => false,
            },
            Hidden::Tag | Hidden::Control => false,
        };
        run += 1;
        Some((c, (!belongs).then_some(hidden)))
    })
}

/// Whether a selector of variants fits between these characters: by `emoji-variation-sequences.txt` and
/// `StandardizedVariants.txt` of Unicode 18.0.0, with the blocks of those characters for the characters themselves, and by
/// the Ideographic Variation Database, in which no ideograph has more than 32 variants.
#[must_use]
pub fn has_variant(before: char, selector: char, next: char) -> bool {
    match selector {
        '\u{180b}'..='\u{180d}' | '\u{180f}' => is_mongolian(before),
        '\u{fe0e}' | '\u{fe0f}' => match before {
            // The parts of a keycap.
            '0'..='9' | '#' | '*' => next == '\u{20e3}',
            '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{3030}' | '\u{303d}'
            | '\u{3297}' | '\u{3299}' => true,
            '\u{2100}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}' => true,
            _ => false,
        },
        '\u{e0100}'..='\u{e011f}' => is_ideograph(before),
        '\u{fe00}' => {
            let has_one = matches!(before,
                '\u{1000}'..='\u{109f}' | '\u{2200}'..='\u{22ff}' | '\u{2a00}'..='\u{2aff}' | '\u{a840}'..='\u{a877}'
                | '\u{aa60}'..='\u{aa7f}' | '\u{10ac0}'..='\u{10aff}');
            has_one || has_several(before)
        }
        '\u{fe01}' | '\u{fe02}' => has_several(before),
        '\u{fe03}'..='\u{fe06}' => is_hieroglyph(before),
        _ => false,
    }
}

/// Whether a character has more than one variant of its own.
fn has_several(c: char) -> bool {
    let punctuation = matches!(
        c,
        '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' | '\u{3001}' | '\u{3002}' | '\u{ff01}'
            ..='\u{ff1f}'
    );
    punctuation || is_ideograph(c) || is_hieroglyph(c)
}

const fn is_hieroglyph(c: char) -> bool {
    matches!(c, '\u{13000}'..='\u{143ff}')
}

const fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

const fn is_mongolian(c: char) -> bool {
    matches!(c, '\u{1800}'..='\u{180a}' | '\u{1810}'..='\u{18af}' | '\u{11660}'..='\u{1167f}')
}

/// Whether a sign is of the notation of which `control` is: shorthand (Duployan) or music.
const fn is_notation(control: char, sign: char) -> bool {
    match control {
        '\u{1bca0}'..='\u{1bca3}' => matches!(sign, '\u{1bc00}'..='\u{1bc9f}'),
        _ => matches!(sign, '\u{1d100}'..='\u{1d1ff}'),
    }
}

/// The text with each character that is not shown written as `<U+200B>`, line ends and tabs too: what a server calls
/// something begins no line of what is printed.
#[must_use]
pub fn visible(text: &str) -> String {
    let breaks = |c: char| matches!(c, '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}');
    spelled(text, |c| breaks(c) || Hidden::of(c).is_some())
}

/// The text with each character that is not shown written as `<U+200B>`. Line ends stay.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    spelled(text, |c| Hidden::of(c).is_some())
}

fn spelled(text: &str, is_spelled: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_spelled(c) {
            write!(out, "<U+{:04X}>", u32::from(c)).unwrap_or_default();
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a text has characters that are not shown. A scan over the bytes rules out most texts.
#[must_use]
pub fn has_any(text: &str) -> bool {
    let odd = |byte: u8| match byte {
        b' '..=b'~' | b'\t' | b'\n' | b'\r' => false,
        // The first bytes of all hidden characters, and the bytes that begin no character.
        0xc2 | 0xcd | 0xd8 | 0xe1 | 0xe2 | 0xe3 | 0xef | 0xf0 | 0xf3 => true,
        0x80.. => false,
        _ => true,
    };
    if is_plain_ascii(text) {
        return false;
    }
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(more) = bytes.get(at..).and_then(|rest| rest.iter().position(|b| odd(*b))) {
        at += more;
        let c = text.get(at..).and_then(|rest| rest.chars().next());
        if c.is_some_and(|c| Hidden::of(c).is_some()) {
            return true;
        }
        at += c.map_or(1, char::len_utf8);
    }
    false
}

/// Whether a text consists of printable ASCII characters, blanks and line ends, as most texts do. The pieces of it are
/// tested without an early end, so that the compiler tests many bytes at once.
#[must_use]
pub fn is_plain_ascii(text: &str) -> bool {
    const PIECE: usize = 64;
    let is_odd = |byte: u8| !matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    let has_odd = |piece: &[u8]| piece.iter().fold(false, |any, byte| any | is_odd(*byte));
    !text.as_bytes().chunks(PIECE).any(has_odd)
}

/// Whether the character belongs to a script that is written from right to left. A mark of direction belongs to none.
#[must_use]
pub const fn is_rtl(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}');
    !is_mark
        && matches!(
            c,
            '\u{590}'..='\u{8ff}'
                | '\u{fb1d}'..='\u{fdff}'
                | '\u{fe70}'..='\u{fefe}'
                | '\u{10800}'..='\u{10fff}'
                | '\u{1e800}'..='\u{1efff}'
        )
}

/// Longest terminal escape sequence that is recognised, in characters: the rest of a longer one is shown as text.
const COMMAND: usize = 200;

/// Terminal escape sequences (ECMA-48): CSI and OSC, in seven bits and in eight, and other escapes.
pub static TERMINAL: Compiled<Regex> = Compiled::new(|| {
    Ok(Regex::new(&format!(
        r"(?:\x1b\[|\u{{9b}})[0-9;?]*[ -/]*[@-~]|(?:\x1b\]|\u{{9d}})[^\x07\x1b\u{{9c}}]{{0,{COMMAND}}}(?:\x07|\x1b\\|\u{{9c}})?|\x1b[@-Z\\^_]"
    ))?)
});

/// Sequences that only choose a colour or a weight (SGR, ECMA-48 section 8.3.117) and hide nothing.
static COLOUR: Compiled<Regex> = Compiled::new(|| {
    Ok(Regex::new(
        r"\x1b\[(?:0?[0-7]|9|0?9|2[1-79]|3[0-79]|4[0-79]|9[0-7]|10[0-7]|[34]8;5;\d{1,3}|;){0,8}m",
    )?)
});

/// The text without sequences that only choose a colour or a weight.
#[must_use]
pub fn without_colours(text: &str) -> Cow<'_, str> {
    match COLOUR.get().filter(|_| text.contains('\u{1b}')) {
        Some(colour) => colour.replace_all(text, ""),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{COLOUR, Hidden, TERMINAL, has_any, visible, visible_lines, without_colours};

    #[test]
    fn the_patterns_compile() {
        assert!(TERMINAL.error().is_none() && COLOUR.error().is_none());
    }

    #[test]
    fn a_look_at_the_bytes_tells_the_same() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            assert_eq!(has_any(&format!("é世{c}a")), Hidden::of(c).is_some(), "{c:?}");
        }
    }

    /// The property of the standard library of expressions is of an older version; no character has lost it since.
    #[test]
    fn every_character_that_is_ignored_by_default_is_hidden() {
        let ignored = regex::Regex::new(r"\A\p{Default_Ignorable_Code_Point}\z").unwrap();
        let of = |c: char| ignored.is_match(c.encode_utf8(&mut [0; 4]));
        let chars = (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| !c.is_control());
        let (mut count, mut others) = (0, Vec::new());
        for c in chars {
            match (of(c), Hidden::of(c).is_some()) {
                (true, hidden) => {
                    assert!(hidden, "{c:?}");
                    count += 1;
                }
                (false, true) => others.push(c),
                (false, false) => {}
            }
        }
        assert_eq!((count, others), (4174, vec!['\u{fff9}', '\u{fffa}', '\u{fffb}']));
        assert!(super::IGNORABLE.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }

    /// How many characters of a text are hidden and do not belong where they stand.
    fn misplaced(text: &str) -> usize {
        super::misplaced(text).filter(|(_, why)| why.is_some()).count()
    }

    #[test]
    fn hidden_characters_stay_where_they_belong() {
        for text in [
            "👩\u{200d}💻 ok ✔\u{fe0f} ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3} 👁\u{fe0f}\u{200d}🗨\u{fe0f} ©\u{fe0e}",
            "葛\u{e0100}飾区 辻\u{e0101} 神\u{fe00} 。\u{fe01} ∩\u{fe00}",
            "ᠬᠠᠭᠠᠨ\u{180b}ᠲᠤ ᠮᠣᠩᠭᠣᠯ\u{180e}ᠠ ᠭ\u{180f}ᠠ ᠨ\u{180d}\u{180e}ᠠ",
            "\u{1d173}\u{1d15f}\u{1d174} \u{1d173}\u{1d175}\u{1d15f}\u{1d15f}\u{1d176}\u{1d174}",
            "\u{1bc00}\u{1bca0}\u{1bc01}",
            "می\u{200c}خواهم 12\u{61c} العربية \u{200f}abc\u{200f} \u{2067}x\u{2069}",
            "क्\u{200d}ष ක්\u{200d}ර",
            "ᄒ\u{1160}ᆞ \u{115f}ᅡ",
        ] {
            assert_eq!(misplaced(text), 0, "{}", visible(text));
        }
    }

    #[test]
    fn hidden_characters_are_found_where_they_do_not_belong() {
        for (text, count) in [
            ("a\u{180f}b\u{1bca0}c\u{1d173}d\u{fff0}e\u{61c}f", 5),
            ("a\u{fe0f}b\u{fe0e}c \u{fe0f} 1\u{fe0f} é\u{fe0f}", 5),
            ("✔\u{fe0f}\u{fe0e}\u{fe0f}", 2),
            ("葛\u{e0100}\u{e0100} 葛\u{e0150} a\u{e0100}", 3),
            ("é\u{200c}\u{200d}\u{200c}\u{200d}é a\u{200d}b", 3),
            ("ا\u{200e}\u{200f}\u{200e}\u{200f}\u{200e}\u{200f}", 2),
            ("\u{1d15f} a\u{1d173}\u{1d173}b \u{1bca0}\u{1d15f}", 3),
            ("ᠠ\u{180b}\u{180c}\u{180d} \u{180e}", 2),
            ("\u{61c}\u{61c}", 2),
            ("\u{115f}\u{1160}\u{115f}", 3),
        ] {
            assert_eq!(misplaced(text), count, "{}", visible(text));
        }
    }

    #[test]
    fn nothing_that_is_printed_as_a_name_begins_a_line() {
        assert_eq!(
            visible("a\nb\tc\r\u{2028}d\u{200b}"),
            "a<U+000A>b<U+0009>c<U+000D><U+2028>d<U+200B>"
        );
        assert_eq!(visible_lines("a\nb\u{200b}"), "a\nb<U+200B>");
    }

    #[test]
    fn what_is_shown_is_not_hidden() {
        for text in ["Reads a file.\r\n\t", "größer als 1 MB – ファイルを読む", "עברית العربية"]
        {
            assert!(text.chars().all(|c| Hidden::of(c).is_none()), "{text}");
        }
        for c in (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| c.is_alphanumeric()) {
            let filler = matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}');
            assert_eq!(Hidden::of(c).is_some(), filler, "{c:?}");
        }
    }

    #[test]
    fn colours_are_told_from_what_hides() {
        assert_eq!(
            without_colours("\u{1b}[32mPASS\u{1b}[0m \u{1b}[1;31m x \u{1b}[38;5;208my\u{1b}[m"),
            "PASS  x y"
        );
        for hiding in ["\u{1b}[8mx\u{1b}[28m", "\u{1b}[2K", "\u{1b}[1A", "\u{1b}[1;8m"] {
            assert!(without_colours(hiding).contains('\u{1b}'), "{hiding:?}");
        }
    }

    #[test]
    fn commands_to_terminals_are_found_whole() {
        let terminal = TERMINAL.get().unwrap();
        for command in [
            "\u{1b}[31;1m",
            "\u{9b}31m",
            "\u{1b}]8;;https://a.example\u{7}",
            "\u{1b}]0;title\u{1b}\\",
            "\u{9d}0;title\u{9c}",
            "\u{1b}M",
        ] {
            let text = format!("a{command}b");
            assert_eq!(terminal.replace_all(&text, ""), "ab", "{command:?}");
        }
    }
}
