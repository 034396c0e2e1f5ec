//! The words of a text: identifiers are split, letters are folded, and endings are removed, so that `listFiles`,
//! `list_files` and "listing a file" have the words `list` and `file`.

mod stem;

use unicode_normalization::UnicodeNormalization as _;

pub use stem::stem;

/// Most bytes of a text that are read; the rest of it is ignored.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;
/// Most characters of a word; the rest of it is ignored.
pub const MAX_WORD_CHARS: usize = 32;

/// What a character is to the boundaries of words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Lower,
    Upper,
    Digit,
    /// A character of a script that writes no spaces between words: two of them make a word.
    Ideograph,
    Boundary,
}

impl CharClass {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' => {
                Self::Ideograph
            }
            _ if c.is_uppercase() => Self::Upper,
            _ if c.is_alphabetic() => Self::Lower,
            _ if c.is_numeric() => Self::Digit,
            _ => Self::Boundary,
        }
    }
}

/// The words of a text in their order, with their endings removed. At most `limit` words and [`MAX_TEXT_BYTES`] of the
/// text are read.
pub fn words(text: &str, limit: usize) -> Vec<String> {
    let mut words = Words { found: Vec::new(), word: String::new(), chars: 0, limit };
    let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
    let chars: Vec<char> = text.nfkc().take(MAX_TEXT_BYTES).collect();
    let mut before = CharClass::Boundary;
    let mut at = 0;
    while let Some(c) = chars.get(at).copied() {
        if words.found.len() >= limit {
            break;
        }
        if matches!(c, '\'' | '’') {
            let skipped = contraction(chars.get(at + 1..).unwrap_or_default());
            words.end();
            before = CharClass::Boundary;
            at += 1 + skipped;
            continue;
        }
        let class = CharClass::of(c);
        let next = chars.get(at + 1).map_or(CharClass::Boundary, |c| CharClass::of(*c));
        if is_start(before, class, next) {
            words.end();
        }
        match class {
            CharClass::Boundary => {}
            CharClass::Ideograph => {
                if let Some(second) = chars.get(at + 1).filter(|_| next == CharClass::Ideograph) {
                    words.push(c);
                    words.push(*second);
                } else if before != CharClass::Ideograph {
                    words.push(c);
                }
                words.end();
            }
            CharClass::Lower | CharClass::Upper | CharClass::Digit => {
                c.to_lowercase().for_each(|c| words.push(c));
            }
        }
        before = class;
        at += 1;
    }
    words.end();
    words.found.truncate(limit);
    words.found
}

/// Whether a word starts at a character of class `class`.
fn is_start(before: CharClass, class: CharClass, next: CharClass) -> bool {
    match (before, class) {
        (CharClass::Upper, CharClass::Upper) => next == CharClass::Lower,
        (CharClass::Upper | CharClass::Lower, CharClass::Lower)
        | (CharClass::Digit, CharClass::Digit) => false,
        _ => true,
    }
}

/// Characters of the rest of a contraction, such as the `ll` of "I'll", that say nothing.
fn contraction(rest: &[char]) -> usize {
    let length = rest.iter().take(3).take_while(|c| c.is_alphanumeric()).count();
    let ending: String = rest.iter().take(length).collect::<String>().to_lowercase();
    if matches!(ending.as_str(), "s" | "t" | "re" | "ll" | "ve" | "m" | "d") { length } else { 0 }
}

/// Words as they are read.
struct Words {
    found: Vec<String>,
    word: String,
    chars: usize,
    limit: usize,
}

impl Words {
    fn push(&mut self, c: char) {
        if self.chars < MAX_WORD_CHARS {
            self.word.push(c);
            self.chars += 1;
        }
    }

    fn end(&mut self) {
        if !self.word.is_empty() && self.found.len() < self.limit {
            self.found.push(stem(&self.word));
        }
        self.word.clear();
        self.chars = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn identifiers_and_prose_have_the_same_words() {
        let expected = ["list", "fil"];
        for text in ["listFiles", "list_files", "Listing a file", "LIST-FILES", "list.file"] {
            let found: Vec<_> = words(text, 9).into_iter().filter(|word| word != "a").collect();
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(words("HTTPServer v2 parseURLs", 9), ["http", "server", "v", "2", "pars", "url"]);
        assert_eq!(words("What's the user’s e-mail? I'll see", 9).join(" "), "what the user e mail i see");
    }

    #[test]
    fn scripts_without_spaces_have_pairs_of_characters() {
        assert_eq!(words("天气预报 ok", 9), ["天气", "气预", "预报", "ok"]);
        assert_eq!(words("天", 9), ["天"]);
    }

    #[test]
    fn a_text_has_at_most_the_words_asked_for() {
        assert_eq!(words(&"a ".repeat(99), 7).len(), 7);
        assert!(words(&"x".repeat(99_999), 7).iter().all(|word| word.len() <= 32));
    }
}
