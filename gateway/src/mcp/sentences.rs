//! Where the sentences of a description end, so that it is never cut within one.
//!
//! A place counts as an end only if it is clear that it is one: a cut at an end too few leaves more text, and a cut within
//! a sentence can turn its meaning around.

/// Words before a full stop that do not end a sentence, in small letters.
const ABBREVIATIONS: [&str; 24] = [
    "approx", "art", "ca", "cf", "dr", "eg", "eq", "est", "etc", "excl", "fig", "ie", "incl",
    "max", "min", "mr", "mrs", "ms", "no", "nr", "resp", "sec", "st", "vs",
];
/// First words of a sentence that limit the one before, in small letters: the two are not separated.
const LIMITS: [&str; 16] = [
    "although",
    "but",
    "do",
    "don't",
    "except",
    "however",
    "instead",
    "never",
    "no",
    "not",
    "only",
    "otherwise",
    "rather",
    "unless",
    "without",
    "yet",
];

/// The lengths in bytes of the beginnings of a text that are whole sentences, in increasing order; the last is that of the
/// whole text without the spaces at its end.
#[must_use]
pub fn sentence_ends(text: &str) -> Vec<usize> {
    let whole = text.trim_end().len();
    let (mut ends, mut nesting) = (Vec::new(), Nesting::default());
    for (at, c) in text.char_indices() {
        nesting.read(c);
        let end = at + c.len_utf8();
        let (before, after) =
            (text.get(..at).unwrap_or_default(), text.get(end..).unwrap_or_default());
        let closes = match c {
            '.' => after.starts_with(char::is_whitespace) && !is_abbreviation(before),
            '!' | '?' => after.starts_with(char::is_whitespace),
            '。' | '！' | '？' => true,
            // A blank line ends a paragraph, but not one that announces the next.
            '\n' => is_paragraph(before) && starts_with_blank_line(after),
            _ => false,
        };
        let end = if c == '\n' { at } else { end };
        if closes && end < whole && nesting.is_outside() && begins_sentence(after) {
            ends.push(end);
        }
    }
    ends.dedup();
    if whole > 0 {
        ends.push(whole);
    }
    ends
}

/// Whether a place is within brackets, quotes or code.
#[derive(Debug, Default)]
struct Nesting {
    brackets: usize,
    is_quoted: bool,
    is_code: bool,
}

impl Nesting {
    const fn read(&mut self, c: char) {
        match c {
            '(' | '[' | '{' => self.brackets += 1,
            // One that closes nothing is the mark of a list, or a face.
            ')' | ']' | '}' if self.brackets > 0 => self.brackets -= 1,
            '"' => self.is_quoted = !self.is_quoted,
            '`' => self.is_code = !self.is_code,
            _ => {}
        }
    }

    const fn is_outside(&self) -> bool {
        self.brackets == 0 && !self.is_quoted && !self.is_code
    }
}

/// Whether the last word is one that a full stop shortens: an abbreviation, a letter, or one with a dot in it.
fn is_abbreviation(before: &str) -> bool {
    let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let is_letter = word.chars().count() == 1 && word.chars().all(char::is_alphabetic);
    let is_dotted = word.contains('.') && !word.contains(['/', '`']);
    is_letter || is_dotted || ABBREVIATIONS.contains(&&*word.to_lowercase())
}

/// Whether a text may be the end of a paragraph that does not need the next one. Spaces at its end are not read again for
/// each line of them.
fn is_paragraph(before: &str) -> bool {
    let last = before.chars().next_back();
    last.is_some_and(|c| !c.is_whitespace() && !matches!(c, ':' | ',' | ';' | '-' | '–' | '—'))
}

fn starts_with_blank_line(after: &str) -> bool {
    after.trim_start_matches([' ', '\t', '\r']).starts_with('\n')
}

/// Whether what follows is a sentence of its own: it does not begin with a small letter or a number, and does not limit the
/// sentence before.
fn begins_sentence(after: &str) -> bool {
    let after = after.trim_start().trim_start_matches(['*', '_', '#', '-', '•', '>', ' ']);
    let is_beginning = |c: char| !c.is_lowercase() && !c.is_numeric();
    let word = after.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’').next();
    let word = word.unwrap_or_default().to_lowercase().replace('’', "'");
    after.chars().next().is_some_and(is_beginning) && !LIMITS.contains(&&*word)
}

#[cfg(test)]
mod tests {
    use super::sentence_ends;

    fn sentences(text: &str) -> Vec<&str> {
        let mut start = 0;
        let ends = sentence_ends(text).into_iter();
        ends.map(|end| text.get(std::mem::replace(&mut start, end)..end).unwrap().trim_start())
            .collect()
    }

    #[test]
    fn sentences_end_at_stops_and_blank_lines() {
        let whole = ["Reads a file.", "It is slow!", "Is it?", "A list", "The end"];
        assert_eq!(sentences("Reads a file. It is slow! Is it? A list\n\nThe end \n"), whole);
        assert_eq!(sentences("读取文件。很慢。"), ["读取文件。", "很慢。"]);
        assert_eq!(sentences("One"), ["One"]);
        assert!(sentences(" \n").is_empty());
        assert_eq!(
            sentences("Does 1) this. And 2) that :-)"),
            ["Does 1) this.", "And 2) that :-)"]
        );
    }

    /// What would take minutes if each place were looked at with all that is before or behind it.
    #[test]
    fn the_time_is_that_of_reading_whatever_a_text_has() {
        for part in ["\n", ". A", "!\n ", "。", "- ! ", "(.) A", "a.b. C ", ". - - - ", "x\n\n* "]
        {
            let text = part.repeat(128 * 1024);
            assert!(sentence_ends(&text).is_sorted(), "{part:?}");
        }
    }

    #[test]
    fn what_only_looks_like_an_end_is_none() {
        for text in [
            "Reads files, e.g. Markdown and text, of version 2. 4 are too many: see a.b. C",
            "Reads approx. Ten files of J. Smith vs. Others, no. 7, at example.com today",
            "Sends mail (to one person. Or two.) and `a. B` \"c. D\" [e. F] now",
            "Deletes all of the following:\n\n- files\n- folders",
            "Deletes files. but asks first.",
            "Deletes files. Never those of others.",
            "Deletes files! However, it asks first.",
            "Deletes files.\n\n**Not** those of others",
            "Deletes files. Don’t use it.",
            "First ask:\n\nThen delete",
        ] {
            assert_eq!(sentences(text), [text]);
        }
    }
}
