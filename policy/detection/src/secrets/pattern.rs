//! Reads the formats of `table`, and matches them around their anchor: the text in a format by which it is found.
//!
//! No format is matched with backtracking: a run takes as many bytes of its alphabet as it may have.

use super::table::{CheckDigits, KeyForm};

/// How many bytes of a run without an upper limit are tested before the whole format is known to match.
const SAMPLE: usize = 160;
/// From this least length on, a run without a greatest length has its least in most keys.
const USUAL: usize = 20;
/// Fewest bytes of the text that a format is found by, if it begins with it.
const ANCHOR: usize = 2;

/// The characters that a run consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alphabet {
    Digit,
    Hex,
    Lower,
    Upper,
    Alnum,
    Word,
    Url,
    Dot,
    Secret,
    Base64,
    Percent,
}

impl Alphabet {
    /// The alphabet of this name in the table.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "digit" => Self::Digit,
            // Lower-case hexadecimal digits, as vendors print them.
            "hex" => Self::Hex,
            "lower" => Self::Lower,
            "up" => Self::Upper,
            "alnum" => Self::Alnum,
            "word" => Self::Word,
            // URL-safe base64.
            "url" => Self::Url,
            // The same with dots between parts.
            "dot" => Self::Dot,
            "secret" => Self::Secret,
            "base64" => Self::Base64,
            "percent" => Self::Percent,
            _ => return None,
        })
    }

    const fn has(self, byte: u8) -> bool {
        match self {
            Self::Digit => byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'),
            Self::Lower => byte.is_ascii_digit() || byte.is_ascii_lowercase(),
            Self::Upper => byte.is_ascii_digit() || byte.is_ascii_uppercase(),
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Dot => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
            Self::Secret => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~')
            }
            Self::Base64 => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-')
            }
            Self::Percent => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'%')
            }
        }
    }
}

/// Consecutive bytes of one alphabet.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRun {
    alphabet: Alphabet,
    least: usize,
    /// `None` where the vendor documents no upper limit.
    most: Option<usize>,
}

impl KeyRun {
    /// The run that `ALPHABET:LENGTH` describes.
    fn parse(text: &str) -> Option<Self> {
        let (alphabet, length) = text.split_once(':')?;
        let (least, most) = match length.split_once('-') {
            Some((least, "")) => (least.parse().ok()?, None),
            Some((least, most)) => (least.parse().ok()?, Some(most.parse().ok()?)),
            None => (length.parse().ok()?, Some(length.parse().ok()?)),
        };
        Some(Self { alphabet: Alphabet::named(alphabet)?, least, most })
    }

    fn limit(self) -> usize {
        self.most.unwrap_or(SAMPLE.max(self.least))
    }

    /// The number of bytes of the run, of those in `bytes`; `None` if they are too few.
    fn length(self, bytes: impl Iterator<Item = u8>) -> Option<usize> {
        let length = bytes.take(self.limit()).take_while(|byte| self.alphabet.has(*byte)).count();
        (length >= self.least).then_some(length)
    }

    /// The length of a run that some programs print in groups or break over two lines. One that may be longer has its least
    /// length in most keys.
    pub(super) fn usual(self) -> Option<usize> {
        let is_exact = self.most == Some(self.least);
        (is_exact || self.most.is_none() && self.least >= USUAL).then_some(self.least)
    }

    /// Whether its alphabet has none of the signs that separate groups.
    pub(super) const fn has_groups(self) -> bool {
        matches!(self.alphabet, Alphabet::Upper | Alphabet::Alnum | Alphabet::Hex)
    }

    pub(super) const fn has(self, byte: u8) -> bool {
        self.alphabet.has(byte)
    }
}

/// A part of a format.
#[derive(Clone, Debug)]
pub(super) enum FormPart {
    Text(Box<str>),
    Run(KeyRun),
}

/// A format that can be matched.
#[derive(Clone, Debug)]
pub(super) struct KeyPattern {
    pub(super) rule: &'static str,
    pub(super) check: CheckDigits,
    /// What stands before the anchor, from the anchor backwards.
    before: Vec<FormPart>,
    pub(super) anchor: Box<str>,
    /// What stands behind the anchor.
    pub(super) after: Vec<FormPart>,
    /// Number of bytes that are the same in each key.
    pub(super) fixed: usize,
    /// The least length of a key, in bytes.
    pub(super) least: usize,
}

/// Where a format matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyPlace {
    pub(super) from: usize,
    /// Where the anchor ends.
    pub(super) body: usize,
    /// Where the last run begins.
    pub(super) tail: usize,
    pub(super) end: usize,
}

impl KeyPattern {
    /// The patterns of a row of the table; `None` if the row is not well-formed.
    pub(super) fn parse(row: &KeyForm) -> Option<Vec<Self>> {
        expanded(row.form).iter().map(|form| Self::of(row, form)).collect()
    }

    fn of(row: &KeyForm, form: &str) -> Option<Self> {
        let parts = parts(form)?;
        let is_text = |part: &FormPart, least: usize| match part {
            FormPart::Text(text) => text.len() >= least,
            FormPart::Run(_) => false,
        };
        let begins = parts.first().is_some_and(|part| is_text(part, ANCHOR));
        let longest = |(at, part): (usize, &FormPart)| match part {
            FormPart::Text(text) => Some((text.len(), at)),
            FormPart::Run(_) => None,
        };
        let longest = || parts.iter().enumerate().filter_map(longest).max().map(|(_, at)| at);
        let at = if begins { 0 } else { longest()? };
        let FormPart::Text(anchor) = parts.get(at)?.clone() else { return None };
        let length = |part: &FormPart, fixed: bool| match part {
            FormPart::Text(text) => text.len(),
            FormPart::Run(run) => {
                if fixed {
                    0
                } else {
                    run.least
                }
            }
        };
        Some(Self {
            rule: row.rule,
            check: row.check,
            before: parts.get(..at)?.iter().rev().cloned().collect(),
            after: parts.get(at + 1..)?.to_vec(),
            fixed: parts.iter().map(|part| length(part, true)).sum(),
            least: parts.iter().map(|part| length(part, false)).sum(),
            anchor,
        })
    }

    /// Where the format matches around an anchor that begins at `at`.
    pub(super) fn at(&self, bytes: &[u8], at: usize) -> Option<KeyPlace> {
        let body = at + self.anchor.len();
        let from = self.backward(bytes, at)?;
        let (mut end, mut last) = (body, None);
        for part in &self.after {
            let rest = bytes.get(end..)?;
            match part {
                FormPart::Text(text) => {
                    rest.starts_with(text.as_bytes()).then_some(())?;
                    (end, last) = (end + text.len(), None);
                }
                FormPart::Run(run) => {
                    let length = run.length(rest.iter().copied())?;
                    last = Some((*run, end));
                    end += length;
                }
            }
        }
        let (goes_on, tail) = match last {
            Some((run, begins)) => (run.most.is_some() && goes_on(bytes, end, run), begins),
            None => (false, end),
        };
        (!goes_on).then_some(KeyPlace { from, body, tail, end })
    }

    /// The whole key, of which a part was tested where it has no greatest length. Punctuation at its end is no part of it.
    pub(super) fn whole(&self, bytes: &[u8], place: KeyPlace) -> Option<KeyPlace> {
        let Some(FormPart::Run(run)) = self.after.last().filter(|_| place.end > place.tail) else {
            return Some(place);
        };
        if run.most.is_some() {
            return Some(place);
        }
        let rest = bytes.get(place.end..).unwrap_or_default();
        let end = place.end + rest.iter().take_while(|byte| run.has(**byte)).count();
        let tail = bytes.get(place.tail..end).unwrap_or_default();
        let signs = tail.iter().rev().take_while(|byte| matches!(byte, b'.' | b'-')).count();
        let is_one = tail.len() - signs >= run.least;
        is_one.then_some(KeyPlace { end: end - signs, ..place })
    }

    /// Whether a key begins with a number.
    pub(super) fn begins_with_digits(&self) -> bool {
        matches!(self.before.last(), Some(FormPart::Run(run)) if run.alphabet == Alphabet::Digit)
    }

    /// Where the parts before an anchor begin. What is within a longer word of the same characters is no key.
    fn backward(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let mut from = at;
        let mut first = None;
        for part in &self.before {
            let head = bytes.get(..from)?;
            match part {
                FormPart::Text(text) => {
                    head.ends_with(text.as_bytes()).then_some(())?;
                    (from, first) = (from - text.len(), None);
                }
                FormPart::Run(run) => {
                    from -= run.length(head.iter().rev().copied())?;
                    first = Some(*run);
                }
            }
        }
        let before = from.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
        // A number may follow a name, as in the paths of Telegram.
        let word = before.is_ascii_alphanumeric() && !self.begins_with_digits();
        let inside = first.is_some_and(|run| run.has(before) || word);
        (!inside).then_some(from)
    }
}

/// Whether a run goes on beyond its greatest length, or another word begins directly behind it.
fn goes_on(bytes: &[u8], end: usize, run: KeyRun) -> bool {
    let next = bytes.get(end).copied().unwrap_or(b' ');
    run.has(next) || next.is_ascii_alphanumeric()
}

/// A format with each of its alternatives.
fn expanded(form: &str) -> Vec<String> {
    let split = form
        .split_once('{')
        .and_then(|(head, rest)| rest.split_once('}').map(|(choices, tail)| (head, choices, tail)));
    let Some((head, choices, tail)) = split else { return vec![form.to_owned()] };
    choices.split(',').flat_map(|one| expanded(&format!("{head}{one}{tail}"))).collect()
}

fn parts(form: &str) -> Option<Vec<FormPart>> {
    let (mut parts, mut rest) = (Vec::new(), form);
    while let Some((text, behind)) = rest.split_once('<') {
        let (run, tail) = behind.split_once('>')?;
        if !text.is_empty() {
            parts.push(FormPart::Text(text.into()));
        }
        parts.push(FormPart::Run(KeyRun::parse(run)?));
        rest = tail;
    }
    if !rest.is_empty() {
        parts.push(FormPart::Text(rest.into()));
    }
    Some(parts)
}

/// A made-up key of a format, for tests: different characters of each alphabet, in an order that repeats for one seed.
#[cfg(test)]
pub(super) fn sample(pattern: &KeyPattern, seed: u32) -> String {
    let mut state = seed;
    let mut next = |most: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        usize::try_from(state >> 8).unwrap_or_default() % most
    };
    let mut text = |part: &FormPart| match part {
        FormPart::Text(text) => text.to_string(),
        FormPart::Run(run) => {
            let all: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').collect();
            let fit: Vec<char> = all
                .into_iter()
                .filter(|c| u8::try_from(*c).is_ok_and(|byte| run.has(byte)))
                .collect();
            (0..run.least).filter_map(|_| fit.get(next(fit.len())).copied()).collect()
        }
    };
    let before: Vec<String> = pattern.before.iter().rev().map(&mut text).collect();
    let after: Vec<String> = pattern.after.iter().map(&mut text).collect();
    format!("{}{}{}", before.concat(), pattern.anchor, after.concat())
}

/// The same with one character in place of all others: what a documentation shows.
#[cfg(test)]
pub(super) fn twin(pattern: &KeyPattern) -> String {
    let text = |part: &FormPart| match part {
        FormPart::Text(text) => text.to_string(),
        FormPart::Run(run) => {
            let sign =
                ['x', 'X', '0'].into_iter().find(|c| u8::try_from(*c).is_ok_and(|b| run.has(b)));
            sign.unwrap_or('0').to_string().repeat(run.least)
        }
    };
    let before: Vec<String> = pattern.before.iter().rev().map(text).collect();
    let after: Vec<String> = pattern.after.iter().map(text).collect();
    format!("{}{}{}", before.concat(), pattern.anchor, after.concat())
}
