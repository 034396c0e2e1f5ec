//! The values of a message, in the form in which they are compared: keyed hashes of tokens and of runs of words.
//!
//! A token is what stands between spaces, quotes and brackets: a word, a number, an address. It is compared in lower
//! case, in Unicode normalisation form KC, without invisible characters, and a URL without its scheme. No text is kept.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, Hash, Hasher as _, RandomState};

use json::{JsonKind, Value};
use policy_core::base::hidden::is_plain_ascii;
use unicode_normalization::UnicodeNormalization as _;

/// Words of a run. Shorter runs are common in any two texts of one language.
const RUN: usize = 5;
/// Most tokens of one message that are looked at.
const TOKENS: usize = 1 << 16;
/// Fewest letters and digits of an account number, and digits among them.
const ACCOUNT: (usize, usize) = (8, 4);
/// Longest text that is compared as a whole too, in bytes: a name of several words.
const WHOLE: usize = 64;
/// Most bytes and words of a line that is a name.
const NAME: (usize, usize) = (48, 3);

/// The key of all hashes of one process. It does not leave the process.
#[derive(Clone, Debug)]
pub struct ValueKey(RandomState);

impl ValueKey {
    /// A key with this random state.
    #[must_use]
    pub const fn new(random: RandomState) -> Self {
        Self(random)
    }

    fn token(&self, text: &str) -> u64 {
        self.0.hash_one((0_u8, text))
    }

    fn run(&self, words: &[&str]) -> u64 {
        let mut hasher = self.0.build_hasher();
        1_u8.hash(&mut hasher);
        words.iter().for_each(|word| word.hash(&mut hasher));
        hasher.finish()
    }
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueKind {
    /// A token that names no place: a word or a number.
    Word,
    /// A short text as a whole.
    Whole,
    /// A token that names one thing wherever it stands: a URL, a host, a mail address, an account, a path, a name with
    /// an underscore.
    Address,
    /// A run of words.
    Run,
}

/// All values of a message were visited, or the message has too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueExtent {
    /// All.
    Complete,
    /// Not all: the message has more tokens than are looked at, or the visitor has stopped.
    Partial,
}

/// Visits the values of a message, with a bound on their number.
#[derive(Debug)]
pub struct ValueVisitor<'a, F> {
    key: &'a ValueKey,
    left: usize,
    visit: F,
}

impl<'a, F: FnMut(ValueKind, u64) -> bool> ValueVisitor<'a, F> {
    /// Calls `visit` for each value; it returns whether to go on.
    pub const fn new(key: &'a ValueKey, visit: F) -> Self {
        Self { key, left: TOKENS, visit }
    }

    /// Visits the strings and numbers in `value`, and below the first level the names of members.
    pub fn all_of(&mut self, value: Value<'_>) -> ValueExtent {
        let is_complete = match value.kind() {
            JsonKind::Object => value.members().all(|(_, member)| self.below(member)),
            JsonKind::Null
            | JsonKind::Boolean
            | JsonKind::Number
            | JsonKind::Plain
            | JsonKind::Escaped
            | JsonKind::Array => self.below(value),
        };
        if is_complete { ValueExtent::Complete } else { ValueExtent::Partial }
    }

    /// Visits the values of one text.
    pub fn text(&mut self, text: &str) -> ValueExtent {
        if self.whole_text(text) { ValueExtent::Complete } else { ValueExtent::Partial }
    }

    /// Visits what is in a member; whether all was visited.
    ///
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn below(&mut self, value: Value<'_>) -> bool {
        match value.kind() {
            JsonKind::Null | JsonKind::Boolean => true,
            JsonKind::Number => self.whole_text(value.raw()),
            JsonKind::Plain | JsonKind::Escaped => {
                self.whole_text(&value.as_str().unwrap_or_default())
            }
            JsonKind::Array => value.items().all(|item| self.below(item)),
            JsonKind::Object => {
                value.members().all(|(name, member)| self.whole_text(&name) && self.below(member))
            }
        }
    }

    /// Visits the values of one text; whether all were visited.
    fn whole_text(&mut self, text: &str) -> bool {
        let text = normal(text);
        if text.len() <= WHOLE && text.contains(' ') {
            let whole = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if !self.pass(ValueKind::Whole, self.key.token(&whole)) {
                return false;
            }
        }
        let mut window: Vec<&str> = Vec::with_capacity(RUN);
        let mut groups = String::new();
        for token in text.split(is_separator).map(trimmed).filter(|token| !token.is_empty()) {
            if !self.one(token) || !self.grouped(&mut groups, token) {
                return false;
            }
            for word in token.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
                if window.len() == RUN {
                    window.remove(0);
                }
                window.push(word);
                if window.len() == RUN && !self.pass(ValueKind::Run, self.key.run(&window)) {
                    return false;
                }
            }
        }
        self.end_group(&mut groups)
    }

    /// Visits a token, and the host of one that is a URL.
    fn one(&mut self, token: &str) -> bool {
        let bare = without_scheme(token);
        if !is_address(bare) {
            return self.pass(ValueKind::Word, self.key.token(bare));
        }
        if !self.pass(ValueKind::Address, self.key.token(bare)) {
            return false;
        }
        match bare.split_once(['/', '?', '#', ':']) {
            Some((host, _)) if is_host(host) => self.pass(ValueKind::Address, self.key.token(host)),
            Some(_) | None => true,
        }
    }

    /// Joins an account number that is written in groups, as in `GB29 NWBK 6016 1331 9268 19`.
    fn grouped(&mut self, groups: &mut String, token: &str) -> bool {
        let short =
            (2..=4).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_alphanumeric());
        if short && (!groups.is_empty() || token.bytes().any(|b| b.is_ascii_digit())) {
            groups.push_str(token);
            return true;
        }
        self.end_group(groups)
    }

    fn end_group(&mut self, groups: &mut String) -> bool {
        let joined = std::mem::take(groups);
        !is_account(&joined) || self.pass(ValueKind::Address, self.key.token(&joined))
    }

    fn pass(&mut self, kind: ValueKind, hash: u64) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        (self.visit)(kind, hash)
    }
}

/// Calls `visit` with each string in `value`.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
pub fn each_text(value: Value<'_>, visit: &mut impl FnMut(&str)) {
    if let Some(text) = value.as_str() {
        visit(&text);
    }
    value.items().for_each(|item| each_text(item, visit));
    value.members().for_each(|(_, member)| each_text(member, visit));
}

/// Calls `visit` with each member of `value` that has one of these names, at any depth.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
pub fn each_member(value: Value<'_>, names: &[Box<str>], visit: &mut impl FnMut(Value<'_>)) {
    value.items().for_each(|item| each_member(item, names, visit));
    for (name, member) in value.members() {
        if names.iter().any(|known| **known == *name) {
            visit(member);
        }
        each_member(member, names, visit);
    }
}

/// Whether a text consists of names, one on each line: it is too short to tell its reader what to do.
#[must_use]
pub fn is_names(text: &str) -> bool {
    let (bytes, words) = NAME;
    let is_name = |line: &str| {
        let line = line.strip_prefix("- ").unwrap_or(line);
        line.len() <= bytes && line.split_whitespace().count() <= words
    };
    text.lines().all(is_name)
}

/// The form in which texts are compared.
fn normal(text: &str) -> Cow<'_, str> {
    // ASCII is in normalisation form KC already.
    if is_plain_ascii(text) {
        return match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
    }
    let seen = text.nfkc().filter(|c| policy_core::base::hidden::Hidden::of(*c).is_none());
    Cow::Owned(seen.flat_map(char::to_lowercase).collect())
}

/// Whether a character ends a token.
fn is_separator(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"'`<>()[]{}|,;*“”‘’«»".contains(c)
}

fn trimmed(token: &str) -> &str {
    token
        .trim_start_matches(['.', ':', '!', '?', '=', '#', '&'])
        .trim_end_matches(['.', ':', '!', '?', '=', '#', '&', '/', '-'])
}

/// A token without the scheme of a URL, `www.` and the default port.
fn without_scheme(token: &str) -> &str {
    let bare = ["https://", "http://", "mailto:"].iter().find_map(|s| token.strip_prefix(s));
    let bare = bare.unwrap_or(token);
    bare.strip_prefix("www.").unwrap_or(bare)
}

/// Whether a token names one thing wherever it stands.
fn is_address(token: &str) -> bool {
    let host = token.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let is_mail =
        || token.split_once('@').is_some_and(|(name, host)| !name.is_empty() && is_host(host));
    let is_path = || {
        token.len() >= 6
            && (token.starts_with(['/', '~', '\\']) || token.matches(['/', '\\']).count() > 1)
    };
    let is_name = || token.len() >= 8 && token.contains('_');
    is_host(host) || is_mail() || is_account(token) || !is_date(token) && is_path() || is_name()
}

/// Whether a token is a name of a host, or of a file with an extension.
fn is_host(token: &str) -> bool {
    let Some((name, last)) = token.rsplit_once('.') else { return false };
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty()
        && name.chars().all(inside)
        && last.len() >= 2
        && last.chars().all(char::is_alphanumeric)
        && last.chars().any(char::is_alphabetic)
}

/// Whether a token is an account or telephone number.
fn is_account(token: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'+');
    let counted = token.bytes().filter(u8::is_ascii_alphanumeric).count();
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    token.bytes().all(inside) && counted >= ACCOUNT.0 && digits >= ACCOUNT.1 && !is_date(token)
}

/// Whether a token is a date, or begins with one.
fn is_date(token: &str) -> bool {
    let mut parts = token.split(['-', '/', '.', 't']);
    let number = |part: Option<&str>, lengths: std::ops::RangeInclusive<usize>| {
        part.is_some_and(|p| lengths.contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit()))
    };
    number(parts.next(), 1..=4) && number(parts.next(), 1..=2) && number(parts.next(), 1..=4)
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::{ValueKey, ValueKind, ValueVisitor};

    fn addresses(key: &ValueKey, text: &str) -> Vec<u64> {
        let mut found = Vec::new();
        ValueVisitor::new(key, |kind, hash| {
            found.extend((kind == ValueKind::Address).then_some(hash));
            true
        })
        .text(text);
        found
    }

    #[test]
    fn one_address_in_several_spellings_is_one_value() {
        let key = ValueKey::new(RandomState::new());
        for (one, other) in [
            ("see https://www.Example.com/a/", "(example.com/a)"),
            ("<Ana@Example.com>", "mailto:ana@example.com."),
            ("GB29 NWBK 6016 1331 9268 19", "gb29nwbk60161331926819"),
            ("e\u{200b}vil.example", "evil.example"),
            ("ｅvil.example", "evil.example"),
            ("'new_password'", "New_Password!"),
        ] {
            let (one, other) = (addresses(&key, one), addresses(&key, other));
            assert!(!other.is_empty() && other.iter().all(|hash| one.contains(hash)), "{one:?}");
        }
    }

    #[test]
    fn words_numbers_and_dates_are_no_addresses() {
        let key = ValueKey::new(RandomState::new());
        for text in [
            "Hello, world.",
            "2022-01-01",
            "98.70",
            "and/or",
            "1,810.00",
            "12/31/2026",
            "e.g. this",
        ] {
            assert!(addresses(&key, text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_run_is_found_in_another_text() {
        let key = ValueKey::new(RandomState::new());
        let runs = |text: &str| {
            let mut found = Vec::new();
            ValueVisitor::new(&key, |kind, hash| {
                found.extend((kind == ValueKind::Run).then_some(hash));
                true
            })
            .text(text);
            found
        };
        let source = runs("The key is under the mat, behind the house.");
        assert!(runs("They say: the KEY is under the mat").iter().any(|run| source.contains(run)));
        assert!(!runs("the mat is under the key").iter().any(|run| source.contains(run)));
    }
}
