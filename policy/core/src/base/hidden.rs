//! Characters of a text that are not shown, and terminal escape sequences.
//!
//! One table for the detectors that look for them, the cleaning that removes them and the output that draws them
//! (threat T1402, vector PV-49).

use std::borrow::Cow;

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
    /// It has no glyph.
    Shapeless,
    /// It is a control character.
    Control,
}

impl Hidden {
    /// Why a character is not shown; `None` for a character that is.
    #[must_use]
    pub fn of(c: char) -> Option<Self> {
        match c {
            ' '..='~' | '\t' | '\n' | '\r' => None,
            '\u{200c}' | '\u{200d}' => Some(Self::Joiner),
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => Some(Self::Order),
            '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => Some(Self::Variation),
            '\u{e0000}'..='\u{e0fff}' => Some(Self::Tag),
            '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180e}'
            | '\u{200b}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' => Some(Self::Shapeless),
            other => other.is_control().then_some(Self::Control),
        }
    }
}

/// Whether a text has characters that are not shown. A scan over the bytes rules out most texts.
#[must_use]
pub fn has_any(text: &str) -> bool {
    let odd = |byte: u8| match byte {
        b' '..=b'~' | b'\t' | b'\n' | b'\r' => false,
        // The first bytes of all hidden characters, and the bytes that begin no character.
        0xc2 | 0xcd | 0xd8 | 0xe1 | 0xe2 | 0xe3 | 0xef | 0xf3 => true,
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

/// Whether the character belongs to a script that is written from right to left.
#[must_use]
pub const fn is_rtl(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}')
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
    use super::{COLOUR, Hidden, TERMINAL, has_any, without_colours};

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
