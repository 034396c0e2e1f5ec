//! Extracts the features of a window of words for the linear model.

use std::collections::BTreeSet;

use super::lexicon::LEXICON;
use super::rules::RULES;
use super::tokens::{Token, parts};

/// Number of buckets that features are hashed into.
pub const BUCKETS: usize = 1 << 18;
/// The bits of a hash that are its bucket.
const MASK: u32 = (1 << BUCKETS.trailing_zeros()) - 1;
/// Least length of a window in words, its greatest length until a sentence ends, and the least distance of two starts.
const SHORT: usize = 24;
const LONG: usize = 48;
const STEP: usize = 8;

/// A match of a rule: its index, its first and its last word.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleHit {
    pub(super) rule: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

/// The ranges of overlapping windows over the words.
pub(super) fn windows(tokens: &[Token]) -> Vec<(usize, usize)> {
    let is_end = |at: usize| tokens.get(at).is_some_and(|token| **token == *".");
    let mut found = Vec::new();
    let mut last: Option<usize> = None;
    for at in (0..tokens.len()).filter(|at| !is_end(*at)) {
        let since = last.map_or(usize::MAX, |last| at - last);
        let begins = at == 0 || is_end(at - 1);
        if !(begins && since >= STEP || since >= SHORT) {
            continue;
        }
        let mut end = at + SHORT;
        while end < tokens.len() && end < at + LONG && !is_end(end - 1) {
            end += 1;
        }
        let end = end.min(tokens.len());
        found.push((at, end));
        last = Some(at);
        if end >= tokens.len() {
            break;
        }
    }
    found
}

/// FNV-1a over the parts, joined by blanks, as a bucket.
fn hash(parts: &[&str]) -> u32 {
    let mut hash: u32 = 0x811c_9dc5;
    let mut add = |byte: u8| hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            add(b' ');
        }
        part.bytes().for_each(&mut add);
    }
    (hash ^ (hash >> 15)) & MASK
}

/// The classes of a word or a placeholder.
fn classes(token: &str) -> &[&'static str] {
    match token {
        "IDENT" => &["@ID"],
        "IDENTW" => &["@ID", "@IDW"],
        "IDENTR" => &["@ID", "@IDR"],
        "QSTR" => &["@QS"],
        "^" => &["^"],
        "PATHS" => &["@SENS", "SECRET"],
        "PATH" => &["FILE"],
        "URL" => &["@URL"],
        "EMAIL" => &["@EMAIL"],
        "PARAM" => &["@PAR"],
        "SELF" => &["@SELF"],
        "QUOTED" => &["@Q"],
        "CONSTID" => &["@CONST"],
        "NUM" | "." => &[],
        word => LEXICON.classes(word),
    }
}

fn stem(token: &str) -> &str {
    if is_placeholder(token) {
        return token;
    }
    token.char_indices().nth(6).map_or(token, |(at, _)| token.get(..at).unwrap_or(token))
}

/// The classes of the words in a tool's name.
pub(super) fn of_name(name: &str) -> BTreeSet<&'static str> {
    let words = parts(name).map(str::to_lowercase);
    words.flat_map(|word| LEXICON.classes(&word).to_vec()).collect()
}

/// A feature for the share of a name's words that its description repeats: none, some or all.
pub(super) fn agreement(name: &str, description: &str) -> &'static str {
    let start = |word: &str| word.to_lowercase().chars().take(4).collect::<String>();
    let wanted: Vec<String> = parts(name).filter(|part| part.len() > 2).map(start).collect();
    let text = description.get(..description.floor_char_boundary(400)).unwrap_or_default();
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() >= 3);
    let said: BTreeSet<String> = words.map(start).collect();
    match wanted.iter().filter(|word| said.contains(*word)).count() {
        0 => "o0",
        some if some < wanted.len() => "o1",
        _ => "o2",
    }
}

/// Features of neighbouring letters of a word, which forms of one word have in common: four of an ASCII word with its
/// ends, and two to four of any other, because in a script without blanks a word is a sentence.
fn letters(word: &str, out: &mut Vec<u32>) {
    if word.is_ascii() {
        let ends = [b"_", word.as_bytes(), b"_"].concat();
        let parts = ends.windows(4).filter_map(|part| str::from_utf8(part).ok());
        return out.extend(parts.map(|part| hash(&["c4", part])));
    }
    let starts: Vec<usize> = word.char_indices().map(|(at, _)| at).chain([word.len()]).collect();
    let latin = word.chars().any(|c| c.is_ascii_alphabetic());
    for (n, from) in starts.iter().enumerate() {
        for (length, kind) in [(2, "l2"), (3, "l3"), (4, "l4")] {
            let part = starts.get(n + length).and_then(|end| word.get(*from..*end));
            if let Some(part) = part.filter(|_| !latin || length > 2) {
                out.push(hash(&[kind, part]));
            }
        }
    }
}

/// Whether a token stands for words, such as `URL`, or ends a sentence.
fn is_placeholder(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_uppercase() || c == '^' || c == '.')
}

/// Features of the words themselves: their stems, alone, in pairs and in pairs with one between, and their letters.
fn of_words(words: &[Token], out: &mut Vec<u32>) {
    let stems: Vec<&str> = words.iter().map(|token| stem(token)).collect();
    for (n, one) in stems.iter().enumerate() {
        out.push(hash(&["u", one]));
        if let Some(word) = words.get(n).filter(|word| !is_placeholder(word)) {
            letters(word, out);
        }
        if let Some(next) = stems.get(n + 1) {
            out.push(hash(&["b", one, next]));
        }
        if let Some(second) = stems.get(n + 2) {
            out.push(hash(&["s", one, second]));
        }
    }
}

/// The features of the words in one window, without duplicates.
pub(super) fn of_window(
    words: &[Token],
    name: &BTreeSet<&'static str>,
    rules: &[usize],
    agreement: &str,
) -> Vec<u32> {
    let mut out = Vec::with_capacity(640);
    of_words(words, &mut out);
    const END: &[&str] = &["."];
    let mut sequence: Vec<&[&'static str]> = Vec::with_capacity(words.len());
    let mut all = BTreeSet::new();
    for word in words {
        if **word == *"." {
            sequence.push(END);
            continue;
        }
        let known = sequence.len();
        match LEXICON.within(word) {
            Some(within) => sequence.extend(within),
            None => sequence.extend(Some(classes(word)).filter(|about| !about.is_empty())),
        }
        all.extend(sequence.iter().skip(known).copied().flatten());
    }
    for (n, about) in sequence.iter().enumerate() {
        let next = |distance: usize| sequence.get(n + distance).copied().unwrap_or_default();
        for one in *about {
            for (distance, kind) in [(1, "q"), (2, "k"), (3, "k")] {
                out.extend(next(distance).iter().map(|other| hash(&[kind, one, other])));
            }
            for second in next(1) {
                out.extend(next(2).iter().map(|third| hash(&["t", one, second, third])));
            }
        }
    }
    let all: Vec<&str> = all.into_iter().collect();
    for (n, one) in all.iter().enumerate() {
        out.push(hash(&["c", one]));
        if !name.contains(one) {
            out.push(hash(&["n", one]));
        }
        out.extend(all.iter().skip(n + 1).map(|other| hash(&["p", one, other])));
    }
    let mut families = BTreeSet::new();
    for rule in rules.iter().filter_map(|rule| RULES.get(*rule)) {
        out.push(hash(&["r", rule.id]));
        families.insert(rule.family);
    }
    let families: Vec<&str> = families.into_iter().collect();
    for (n, one) in families.iter().enumerate() {
        out.push(hash(&["f", one]));
        out.extend(families.iter().skip(n + 1).map(|other| hash(&["g", one, other])));
        out.push(hash(&["fc", ["1", "2", "3", "4", "5"].get(n).unwrap_or(&"5")]));
    }
    let count = ["0", "1", "2", "3", "4", "5"].get(families.len()).unwrap_or(&"5");
    out.push(hash(&["fn", count]));
    out.push(hash(&[agreement]));
    out.sort_unstable();
    out.dedup();
    // A text can begin a window with every few words.
    out.shrink_to_fit();
    out
}
