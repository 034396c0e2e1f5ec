//! Texts, compared by what they ask.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Risk;
use crate::detect;
use crate::json::Value;

/// Longest excerpt of a value in a change, in bytes.
const EXCERPT: usize = 400;

/// Words that turn a description into an order. What orders without them the detector knows.
const ORDERS: [&str; 22] = [
    "must",
    "always",
    "never",
    "mandatory",
    "shall",
    "instead",
    "ensure",
    "ignore",
    "disregard",
    "forget",
    "override",
    "bypass",
    "secret",
    "secretly",
    "silently",
    "hidden",
    "important",
    "urgent",
    "critical",
    "immediately",
    "don't",
    "beforehand",
];

/// What has become of a text.
pub(super) fn judge(before: &str, after: &str) -> (Risk, &'static str) {
    let hidden = |text: &str| text.chars().filter(|c| is_hidden(*c)).count();
    if hidden(after) > hidden(before) {
        return (Risk::Instruction, "has characters now that are not shown");
    }
    let (old, new) = (tokens(before), tokens(after));
    let fresh: BTreeSet<&String> = new.difference(&old).collect();
    if fresh
        .iter()
        .any(|word| word.contains("://") || word.starts_with("www.") || word.contains('@'))
    {
        return (Risk::Instruction, "names a URL or an address now");
    }
    let identifier = |word: &&&String| {
        word.contains('_') || word.contains('/') || word.contains('`') || word.starts_with('.')
    };
    if fresh.iter().any(|word| identifier(&word)) {
        return (Risk::Instruction, "names a tool, a parameter or a path now");
    }
    if fresh.iter().any(|word| ORDERS.contains(&word.as_str())) {
        return (Risk::Instruction, "gives an order now");
    }
    if !fresh.is_empty() && detect::is_order(after) && !detect::is_order(before) {
        return (Risk::Instruction, "reads like orders to a model now");
    }
    if plain(before) == plain(after) {
        return (Risk::Cosmetic, "spaces, case or punctuation");
    }
    let gone: Vec<_> = old.difference(&new).collect();
    let typo = |word: &&String| {
        gone.iter().any(|old| old.len() > 3 && word.len() > 3 && distance_one_or_two(old, word))
    };
    if fresh.len() <= 2 && gone.len() <= 2 && fresh.iter().all(typo) {
        return (Risk::Cosmetic, "spelling");
    }
    (Risk::Wording, "says something else")
}

/// Whether two texts share most of their words.
pub(super) fn alike(one: &str, other: &str) -> bool {
    let (one, other) = (tokens(one), tokens(other));
    let common = one.intersection(&other).count();
    let all = one.union(&other).count();
    all > 0 && common * 5 >= all * 4
}

/// Every string in a value, member names too.
pub(super) fn strings(value: Value<'_>, out: &mut Vec<String>) {
    if let Some(text) = value.as_str() {
        out.push(text.into_owned());
    }
    for (name, member) in value.members() {
        // Which dialect a schema is in says nothing to a model.
        if matches!(&*name, "$schema" | "$id") {
            continue;
        }
        out.push(name.into_owned());
        strings(member, out);
    }
    value.items().for_each(|item| strings(item, out));
}

fn tokens(text: &str) -> BTreeSet<String> {
    let edge = |c: char| matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | '(' | ')' | '"' | '\'');
    let words = text.split_whitespace().map(|word| word.trim_matches(edge).to_lowercase());
    words.filter(|word| !word.is_empty()).collect()
}

fn plain(text: &str) -> String {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Whether two words differ in at most two letters.
fn distance_one_or_two(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().abs_diff(other.len()) > 2 || one.len() > 64 {
        return false;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (j, b) in other.iter().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or_default();
            left = (left + 1).min(above + 1).min(corner + usize::from(a != b));
            corner = above;
            next.push(left);
        }
        row = next;
    }
    row.last().is_some_and(|distance| *distance <= 2)
}

fn is_hidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}'
            | '\u{17b5}' | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// A text with what is not shown drawn as `<U+200B>`.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            write!(out, "<U+{:04X}>", u32::from(c)).unwrap_or_default();
        } else {
            out.push(c);
        }
    }
    out
}

/// A value as it is told in a change.
pub(super) fn shown(value: Value<'_>) -> String {
    let text = value.as_str().unwrap_or_else(|| value.raw().into());
    let text = visible(&text);
    match text.get(..text.floor_char_boundary(EXCERPT)) {
        Some(start) if start.len() < text.len() => format!("{start}…"),
        _ => text,
    }
}
