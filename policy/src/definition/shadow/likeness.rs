//! Normal forms in which names and descriptions are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher as _};

use unicode_normalization::UnicodeNormalization as _;
use unicode_security::confusable_detection::skeleton;

use super::Similarity;
use crate::base::hidden::Hidden;
use crate::json::Value;

/// Most words of one description that are examined.
const WORDS: usize = 500;
/// Most separators in a name before which the name of a server is looked for.
const STARTS: usize = 4;
/// Characters that separate words in names.
const SEPARATORS: [char; 7] = ['_', '-', '.', '/', ':', ' ', '\\'];
/// Fewest letters of a name that is recognized in a description.
const FEWEST_LETTERS: usize = 4;
/// Words before and after a name that are searched for instructions.
const AROUND: usize = 8;
/// Words that indicate an instruction about a name beside them.
const DIRECTIONS: [&str; 22] = [
    "before",
    "after",
    "instead",
    "always",
    "must",
    "never",
    "first",
    "replace",
    "replaces",
    "prefer",
    "override",
    "overrides",
    "whenever",
    "also",
    "then",
    "calling",
    "using",
    "invoking",
    "recipient",
    "disable",
    "ignore",
    "deprecated",
];

/// A name in its normal forms, from the most exact to the coarsest.
#[derive(Debug)]
pub(super) struct NameForms {
    raw: Box<str>,
    lower: String,
    joined: String,
    pub(super) compatible: String,
    pub(super) skeleton: String,
}

impl NameForms {
    pub(super) fn of(name: &str) -> Self {
        let lower = name.to_lowercase();
        let joined = join(&lower);
        if name.is_ascii() {
            let skeleton = ascii_skeleton(&joined);
            let compatible = joined.clone();
            return Self { raw: name.into(), lower, joined, compatible, skeleton };
        }
        let folded: String = name.nfkc().collect::<String>().to_lowercase();
        let compatible = join(&folded);
        let visible: String = folded.nfkd().filter(|c| !is_mark(*c)).collect();
        let skeleton: String = skeleton(&visible).collect::<String>().to_lowercase();
        let skeleton = ascii_skeleton(&join(&skeleton));
        Self { raw: name.into(), lower, joined, compatible, skeleton }
    }

    /// How two names with equal skeletons resemble each other.
    pub(super) fn likeness(&self, other: &Self) -> Similarity {
        if self.raw == other.raw {
            Similarity::Exact
        } else if self.lower == other.lower {
            Similarity::Case
        } else if self.joined == other.joined {
            Similarity::Separators
        } else if self.compatible == other.compatible {
            Similarity::Compatibility
        } else {
            Similarity::Confusable
        }
    }
}

fn is_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c) || Hidden::of(c).is_some()
}

fn join(text: &str) -> String {
    text.chars().filter(|c| !SEPARATORS.contains(c) && !is_mark(*c)).collect()
}

/// The visual skeleton of lower-case ASCII text.
fn ascii_skeleton(text: &str) -> String {
    let text = text.replace("rn", "m").replace("vv", "w");
    text.chars()
        .map(|c| match c {
            '0' => 'o',
            '1' | 'i' | '|' => 'l',
            other => other,
        })
        .collect()
}

/// Whether inserting, deleting or replacing one letter turns one name into the other.
pub(super) fn one_letter(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let (short, long) = if one.len() <= other.len() { (&one, &other) } else { (&other, &one) };
    let front = short.iter().zip(long).take_while(|(a, b)| a == b).count();
    let back = short.iter().rev().zip(long.iter().rev()).take_while(|(a, b)| a == b).count();
    // Numbers at the end distinguish variants: `page1` and `page2` are not confusable.
    let digit = |letters: &[char]| letters.get(front).is_some_and(char::is_ascii_digit);
    if digit(short) || digit(long) {
        return false;
    }
    match long.len() - short.len() {
        0 => front + back + 1 >= long.len() && one != other,
        1 => front + back >= short.len(),
        _ => false,
    }
}

/// The parts of a name before its first separators, as skeletons.
pub(super) fn starts(name: &str) -> impl Iterator<Item = String> {
    let ends = name.char_indices().filter(|(_, c)| SEPARATORS.contains(c)).map(|(at, _)| at);
    ends.take(STARTS).filter_map(|end| name.get(..end)).map(|start| NameForms::of(start).skeleton)
}

/// The content of a definition in the form in which it is compared.
#[derive(Debug)]
pub(super) struct DescriptionWords {
    /// Hashes of the words of the description, in order.
    sequence: Vec<u64>,
    pub(super) all: BTreeSet<u64>,
    parameters: BTreeSet<u64>,
    /// Names of items in the description, and whether an instruction is beside them. An ordinary word counts only in
    /// quotes or before parentheses.
    pub(super) identifiers: BTreeMap<String, bool>,
    /// Qualified names, with the name of their server in front, and whether an instruction is beside them.
    pub(super) qualified: BTreeMap<String, bool>,
    /// Ordinary words that the text calls a tool ("the search tool"), and whether an instruction is beside them.
    pub(super) tools: BTreeMap<String, bool>,
}

impl DescriptionWords {
    pub(super) fn of(definition: Value<'_>) -> Self {
        let text = definition.get("description").and_then(Value::as_str).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().take(WORDS).collect();
        let (mut identifiers, mut qualified, mut tools) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (at, raw) in words.iter().enumerate() {
            let word = raw.trim_matches(edge);
            if self::qualified(word).next().is_some() {
                *qualified.entry(word.to_owned()).or_default() |= is_directed(&words, at);
            }
            if is_identifier(raw, word) {
                *identifiers.entry(word.to_owned()).or_default() |= is_directed(&words, at);
            } else if is_called_a_tool(&words, at) {
                *tools.entry(word.to_lowercase()).or_default() |= is_directed(&words, at);
            }
        }
        let sequence: Vec<u64> = words
            .iter()
            .map(|word| word.trim_matches(edge).to_lowercase())
            .filter(|word| !word.is_empty())
            .map(|word| hash(&word))
            .collect();
        let properties = definition.get("inputSchema").and_then(|schema| schema.get("properties"));
        let arguments = definition.get("arguments").into_iter().flat_map(Value::items);
        let named = arguments.filter_map(|item| item.get("name")?.as_str());
        let parameters = properties.into_iter().flat_map(Value::members).map(|(name, _)| name);
        let parameters = parameters.chain(named).map(|name| hash(&name)).collect();
        let all = sequence.iter().copied().collect();
        Self { sequence, all, parameters, identifiers, qualified, tools }
    }

    /// Hashes of all runs of `length` consecutive words.
    pub(super) fn runs(&self, length: usize) -> impl Iterator<Item = u64> {
        self.sequence.windows(length).map(|run| hash(&run))
    }

    /// Whether both share four fifths of their words, and half of their parameters.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let shared = |one: &BTreeSet<u64>, other: &BTreeSet<u64>, of: usize, parts: usize| {
            let (common, all) = (one.intersection(other).count(), one.union(other).count());
            common * parts >= all * of
        };
        // A large difference in size rules that out.
        let (few, many) =
            (self.all.len().min(other.all.len()), self.all.len().max(other.all.len()));
        few * 5 >= many * 4
            && shared(&self.all, &other.all, 4, 5)
            && shared(&self.parameters, &other.parameters, 1, 2)
    }
}

/// Whether a character is punctuation at the edge of a word.
fn edge(c: char) -> bool {
    !c.is_alphanumeric() && c != '_'
}

/// Whether words near the one at `at` indicate an instruction about it.
fn is_directed(words: &[&str], at: usize) -> bool {
    let near = words
        .get(at.saturating_sub(AROUND)..(at + AROUND + 1).min(words.len()))
        .unwrap_or_default();
    let plain = |word: &&str| word.trim_matches(edge).to_lowercase();
    near.iter().map(plain).any(|word| DIRECTIONS.contains(&&*word))
}

/// Whether the ordinary word at `at` denotes an existing tool: "the search tool", but not "a search tool" or "this
/// search tool", which refer to the tool itself.
fn is_called_a_tool(words: &[&str], at: usize) -> bool {
    let word = |at: Option<usize>| {
        let word = at.and_then(|at| words.get(at)).copied().unwrap_or_default();
        word.trim_matches(edge).to_lowercase()
    };
    // Punctuation separates the word from the next one.
    let joined =
        words.get(at).is_some_and(|word| !word.ends_with(['.', ',', ';', ':', '!', '?', ')']));
    let is_tool = matches!(&*word(at.checked_add(1)), "tool" | "tools" | "function" | "endpoint");
    joined && is_tool && word(at.checked_sub(1)) == "the" && word(Some(at)).len() >= FEWEST_LETTERS
}

/// The server and item that a word can name, in every reading: `files__search`, `files.search`, `files/search`,
/// `files:search`.
pub(super) fn qualified(word: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = ["__", ".", "/", "::", ":"].into_iter().filter_map(|sign| word.split_once(sign));
    parts.filter(|(server, name)| {
        !server.is_empty() && name.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    })
}

/// Whether a word is an identifier rather than an ordinary word.
fn is_identifier(raw: &str, word: &str) -> bool {
    let inner = word.trim_matches('_');
    let camel =
        inner.chars().zip(inner.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    let quoted = raw.starts_with(['`', '"', '\'']) || raw.ends_with("()");
    inner.len() >= FEWEST_LETTERS && (inner.contains('_') || camel || quoted)
}

fn hash(value: &(impl std::hash::Hash + ?Sized)) -> u64 {
    // Fixed keys suffice: the hash is no identity, and a collision only costs a comparison.
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
