//! Compares texts by the instructions they contain.

use std::collections::BTreeSet;

use detection::detect;
use json::Value;
use policy_core::base::hidden::{Hidden, visible_lines};

use super::Risk;

/// Longest excerpt of a value in a change, in bytes.
const EXCERPT: usize = 400;

/// Words that turn a description into an instruction. The detector finds instructions without these words.
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

/// Words whose removal can invert the meaning of a sentence.
const LIMITS: [&str; 14] = [
    "not", "no", "never", "without", "only", "cannot", "can't", "don't", "doesn't", "except",
    "unless", "neither", "nor", "refuses",
];

/// What is said of a text without a word that was in [`LIMITS`].
pub const LOST_LIMIT: &str = "has lost a word that set a limit";

/// Classifies the change of the strings in a value, including member names.
pub(super) fn compared(old: Option<Value<'_>>, new: Option<Value<'_>>) -> (Risk, &'static str) {
    let texts = |value: Option<Value<'_>>| {
        let mut texts = Vec::new();
        value.into_iter().for_each(|value| strings(value, &mut texts));
        texts.join("\n")
    };
    judge(&texts(old), &texts(new))
}

/// Classifies the change of a text.
pub(super) fn judge(before: &str, after: &str) -> (Risk, &'static str) {
    let hidden = |text: &str| text.chars().filter(|c| Hidden::of(*c).is_some()).count();
    if hidden(after) > hidden(before) {
        return (Risk::Instruction, "has characters now that are not shown");
    }
    let (old, new) = (tokens(before), tokens(after));
    let fresh: BTreeSet<&String> = new.difference(&old).collect();
    let names = |word: &&&String| {
        word.contains("://") || word.starts_with("www.") || word.contains('@') || is_host(word)
    };
    if fresh.iter().any(|word| names(&word)) {
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
    if old.difference(&new).any(|word| LIMITS.contains(&word.as_str())) {
        return (Risk::Instruction, LOST_LIMIT);
    }
    if detect::is_order(after) && !detect::is_order(before) {
        return (Risk::Instruction, "reads like orders to a model now");
    }
    if phrases(before) == phrases(after) {
        return (Risk::Cosmetic, "spaces, case, commas or quotation marks");
    }
    (Risk::Wording, "says something else")
}

/// Whether a word could be a host name.
fn is_host(word: &str) -> bool {
    let mut labels = word.split('.');
    // A path with a dot in a later part, such as `~/.ssh/config`, is no host.
    let first = labels.next().is_some_and(|label| label.len() > 1 && !label.contains('/'));
    first && labels.clone().count() > 0 && labels.all(|label| label.len() > 1)
}

/// Whether two texts share at least four fifths of their words.
pub(super) fn alike(one: &str, other: &str) -> bool {
    let (one, other) = (tokens(one), tokens(other));
    let common = one.intersection(&other).count();
    let all = one.union(&other).count();
    all > 0 && common * 5 >= all * 4
}

/// Collects every string in a value, including member names.
pub(super) fn strings(value: Value<'_>, out: &mut Vec<String>) {
    if let Some(text) = value.as_str() {
        out.push(text.into_owned());
    }
    for (name, member) in value.members() {
        // The dialect and id of a schema are no instructions to a model.
        let short = |text: &str| text.len() <= 80 && !text.contains(char::is_whitespace);
        if matches!(&*name, "$schema" | "$id") && member.as_str().is_some_and(|text| short(&text)) {
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

/// The words of a text in order, each with the following marks that end a sentence or clause. Texts with equal
/// phrases have the same meaning: the words are the same, sentences end in the same places, and the case of
/// identifiers is the same.
fn phrases(text: &str) -> Vec<(String, String)> {
    let ends = |c: char| matches!(c, '.' | '!' | '?' | ':' | ';');
    let soft =
        |c: char| matches!(c, ',' | '"' | '\'' | '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}');
    let mut phrases: Vec<(String, String)> = Vec::new();
    for token in text.split_whitespace() {
        let token = token.trim_start_matches(soft);
        let word = token.trim_end_matches(|c: char| soft(c) || ends(c));
        let marks = token.strip_prefix(word).unwrap_or_default().chars().filter(|c| ends(*c));
        if !word.is_empty() {
            let word = if is_identifier(word) { word.to_owned() } else { word.to_lowercase() };
            phrases.push((word, String::new()));
        }
        match phrases.last_mut() {
            Some((_, behind)) => behind.extend(marks),
            // Marks before the first word are kept with an empty word.
            None => phrases.push((String::new(), marks.collect())),
        }
    }
    // A final full stop makes no difference.
    if let Some((_, behind)) = phrases.last_mut().filter(|(_, behind)| behind == ".") {
        behind.clear();
    }
    phrases
}

/// Whether the case of a word can be significant: it has other characters than letters, or capitals within lower-case
/// letters.
fn is_identifier(word: &str) -> bool {
    let plain = |c: char| c.is_alphabetic() || matches!(c, '-' | '\'' | '\u{2019}');
    let mixed =
        word.chars().any(char::is_lowercase) && word.chars().skip(1).any(char::is_uppercase);
    mixed || !word.chars().all(plain)
}

/// A value for a change: visible and shortened.
pub(super) fn shown(value: Value<'_>) -> String {
    let text = value.as_str().unwrap_or_else(|| value.raw().into());
    // A hidden character is shown by its number, so the text that is shown is no shorter than that of the value.
    let start = text.get(..text.floor_char_boundary(EXCERPT + 4)).unwrap_or_default();
    let text = visible_lines(start);
    match text.get(..text.floor_char_boundary(EXCERPT)) {
        Some(start) if start.len() < text.len() => format!("{start}…"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{Risk, judge};

    #[test]
    fn a_path_is_no_url_and_weighs_as_much() {
        for (text, what) in [
            ("reads ~/.ssh/config", "names a tool, a parameter or a path now"),
            ("reads /etc/a.conf", "names a tool, a parameter or a path now"),
            ("asks evil.example", "names a URL or an address now"),
            ("asks evil.example/path", "names a URL or an address now"),
            ("asks https://evil.example", "names a URL or an address now"),
        ] {
            assert_eq!(judge("reads", text), (Risk::Instruction, what), "{text}");
        }
    }
}
