//! Recording of arguments and results, for operators who want them in the log (control C24): off by default, redacted
//! of secrets and personal data, and bounded in size.

/// The contents of an exchange that are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedContent {
    /// The arguments of the call, if they are captured.
    pub arguments: Option<Excerpt>,
    /// The result of the call, if it is captured.
    pub result: Option<Excerpt>,
    /// Number of bytes to reserve for the result.
    pub due: usize,
}

impl CapturedContent {
    /// Number of bytes that the `intent` line takes for it.
    #[must_use]
    pub fn intent_bytes(&self) -> usize {
        self.arguments.as_ref().map_or(0, |arguments| arguments.length)
    }
}

/// The beginning of a text, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The captured, redacted text.
    pub text: Box<str>,
    /// Whether the text was longer.
    pub cut: bool,
    /// Its length in a record, in bytes.
    pub length: usize,
}

impl Excerpt {
    /// Takes as much of `text` as fits `most` bytes of a record, in which everything but printable ASCII is escaped.
    #[must_use]
    pub fn of(text: &str, most: usize) -> Self {
        let mut left = most;
        for (at, letter) in text.char_indices() {
            let length = match letter {
                '"' | '\\' | '\n' | '\r' | '\t' => 2,
                ' '..='~' => 1,
                _ => 6 * letter.len_utf16(),
            };
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => {
                    let text = text.get(..at).unwrap_or_default();
                    return Self { text: text.into(), cut: true, length: most - left };
                }
            }
        }
        Self { text: text.into(), cut: false, length: most - left }
    }

    /// An empty excerpt, for text that could not be redacted.
    #[must_use]
    pub fn withheld() -> Self {
        Self { text: "".into(), cut: true, length: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::Excerpt;
    use json::write_ascii;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn an_excerpt_is_never_longer_than_it_may_be(text in "\\PC{0,40}[\\x00-\\x7f]{0,40}", most in 0_usize..200) {
            let excerpt = Excerpt::of(&text, most);
            let mut written = Vec::new();
            write_ascii(&mut written, &excerpt.text);
            prop_assert_eq!(written.len() - 2, excerpt.length);
            prop_assert!(excerpt.length <= most);
            prop_assert!(text.starts_with(&*excerpt.text));
            prop_assert_eq!(excerpt.cut, excerpt.text.len() < text.len());
        }
    }
}
