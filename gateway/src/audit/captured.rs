//! What was said, for operators who want that on record (control C24): off unless configured, without
//! secrets and personal data, and never more than so much.

/// What of an exchange is recorded of its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// What was sent.
    pub arguments: Option<Excerpt>,
    /// What came back.
    pub result: Option<Excerpt>,
    /// Bytes that will be wanted when it has come.
    pub due: usize,
}

impl Captured {
    /// Bytes of it that stand in the intent.
    #[must_use]
    pub fn announced(&self) -> usize {
        self.arguments.as_ref().map_or(0, |arguments| arguments.length)
    }
}

/// The beginning of a text, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text.
    pub text: Box<str>,
    /// There was more.
    pub cut: bool,
    /// Bytes of it in a record.
    pub length: usize,
}

impl Excerpt {
    /// As much of `text` as has `most` bytes in a record, where everything but printable ASCII is escaped.
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

    /// What could not be made fit to be written down.
    #[must_use]
    pub fn withheld() -> Self {
        Self { text: "".into(), cut: true, length: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::Excerpt;
    use policy::json::write_ascii;
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
