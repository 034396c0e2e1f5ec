//! Decodes text that is encoded so that it does not look like text.

use std::collections::BTreeSet;

use json::coding;
use policy_core::base::compiled::{CompileResult, Compiled};
use regex::{Captures, Regex};

use super::lexicon::LEXICON;
use super::normal::printable;

/// Most levels of encodings within each other that are decoded.
const DEPTH: usize = 2;
/// Most decoded texts of one text, and of one definition.
const OF_ONE: usize = 4;
pub(super) const OF_ALL: usize = 12;
/// Most decoded texts of one definition from which those are chosen.
pub(super) const TRIED: usize = 200;
/// Most runs of one encoding in one text that are tried.
const RUNS: usize = 8;
/// Longest part of a text that is decoded, in bytes.
pub(super) const LONGEST: usize = 16 * 1024;

/// The encoding of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextEncoding {
    Hidden,
    Entities,
    Escapes,
    Percent,
    Base64,
    Hex,
    Spaced,
    Leet,
    Rot13,
    Backwards,
}

impl TextEncoding {
    pub(super) const fn note(self) -> &'static str {
        match self {
            Self::Hidden => "hides text in characters that are not shown",
            Self::Entities => "spells text in HTML entities",
            Self::Escapes => "spells text in escapes",
            Self::Percent => "spells text in percent escapes",
            Self::Base64 => "hides text in Base64",
            Self::Hex => "hides text in hexadecimal",
            Self::Spaced => "spaces the letters of words apart",
            Self::Leet => "writes digits for letters",
            Self::Rot13 => "hides text in ROT13",
            Self::Backwards => "is written backwards",
        }
    }
}

/// The patterns, compiled on first use.
struct DecodePatterns {
    entity: Regex,
    escape: Regex,
    percent: Regex,
    base64: Regex,
    hex: Regex,
    spaced: Regex,
    gap: Regex,
    active: Regex,
}

static PATTERNS: Compiled<DecodePatterns> = Compiled::new(patterns);

fn patterns() -> CompileResult<DecodePatterns> {
    Ok(DecodePatterns {
        entity: Regex::new(
            r"&(?:#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos|nbsp));",
        )?,
        escape: Regex::new(r"\\u\{?([0-9a-fA-F]{4,5})\}?|\\x([0-9a-fA-F]{2})")?,
        percent: Regex::new(r"(?:%[0-9a-fA-F]{2})+")?,
        base64: Regex::new(r"[A-Za-z0-9+/_-]{16,}={0,2}")?,
        hex: Regex::new(r"(?:[0-9a-fA-F]{2}[ :]?){12,}|(?:\\x[0-9a-fA-F]{2}){6,}")?,
        spaced: Regex::new(r"(?:(?-u:\b)[A-Za-z0-9'][ .\-_*|]{1,2}){5,}[A-Za-z0-9](?-u:\b)")?,
        gap: Regex::new(r"\s{2,}| ?[/|] ?")?,
        active: Regex::new(
            r"(?i)/bin/(?:ba)?sh|(?-u:\b)sh(?-u:\b)|curl|wget|powershell|https?://|/dev/tcp|\.ssh|eval|exec",
        )?,
    })
}

/// Whether a decoded text executes or downloads something.
pub(super) fn is_active(text: &str) -> bool {
    PATTERNS.get().is_none_or(|patterns| patterns.active.is_match(text))
}

/// Appends the decoded forms of `text`, in each encoding that yields something.
pub(super) fn views(text: &str, out: &mut Vec<(TextEncoding, String)>) {
    let mut left = vec![(text.to_owned(), 0)];
    while let Some((text, depth)) = left.pop() {
        if depth >= DEPTH || out.len() >= TRIED || text.len() < 16 {
            continue;
        }
        let Some(patterns) = PATTERNS.get() else { return };
        let text = text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default();
        for (code, decoded) in once(text, patterns).into_iter().take(OF_ONE) {
            left.push((decoded.clone(), depth + 1));
            out.push((code, decoded));
        }
    }
}

fn once(text: &str, patterns: &DecodePatterns) -> Vec<(TextEncoding, String)> {
    let mut found = Vec::new();
    let english = |text: &str| LEXICON.english(text);
    if text.contains('&') && patterns.entity.find_iter(text).take(6).count() == 6 {
        let decoded = patterns.entity.replace_all(text, |c: &Captures<'_>| entity(c));
        found.push((TextEncoding::Entities, decoded.into_owned()));
    }
    if text.contains('\\') && patterns.escape.find_iter(text).take(6).count() == 6 {
        let decoded = patterns.escape.replace_all(text, |c: &Captures<'_>| {
            let hex = c.get(1).or(c.get(2)).map_or("", |found| found.as_str());
            character(u32::from_str_radix(hex, 16).unwrap_or_default())
        });
        found.push((TextEncoding::Escapes, decoded.into_owned()));
    }
    if text.bytes().filter(|byte| *byte == b'%').take(4).count() == 4 {
        let decoded = patterns.percent.replace_all(text, |c: &Captures<'_>| {
            let whole = c.get(0).map_or("", |found| found.as_str());
            String::from_utf8_lossy(&pairs(&whole.replace('%', ""))).into_owned()
        });
        let (hit, all) = english(&decoded);
        if decoded != text && hit >= 3 && hit * 3 >= all {
            found.push((TextEncoding::Percent, decoded.into_owned()));
        }
    }
    for run in patterns.base64.find_iter(text).take(RUNS) {
        let run = run.as_str().trim_end_matches('=');
        let different: BTreeSet<_> = run.bytes().collect();
        let decoded = coding::base64(run).filter(|_| different.len() >= 8);
        if let Some(decoded) = decoded.and_then(printable)
            && (english(&decoded).0 >= 2 || is_active(&decoded))
        {
            found.push((TextEncoding::Base64, decoded));
        }
    }
    for run in patterns.hex.find_iter(text).take(RUNS) {
        let digits = run.as_str().replace("\\x", "").replace([' ', ':'], "");
        if let Some(decoded) = printable(pairs(&digits)).filter(|text| english(text).0 >= 2) {
            found.push((TextEncoding::Hex, decoded));
        }
    }
    if patterns.spaced.is_match(text) {
        let joined = patterns.spaced.replace_all(text, |c: &Captures<'_>| {
            let whole = c.get(0).map_or("", |found| found.as_str());
            let words = patterns.gap.split(whole);
            let glued = words.map(|word| word.replace([' ', '.', '-', '_', '*', '|'], ""));
            glued.collect::<Vec<_>>().join(" ")
        });
        found.push((TextEncoding::Spaced, joined.into_owned()));
    }
    let (hit, all) = english(text);
    if let Some(decoded) = leet(text, hit) {
        found.push((TextEncoding::Leet, decoded));
    }
    if all >= 5 {
        found.extend(rearranged(text, hit));
    }
    found
}

/// The text with its letters or their order exchanged, if that gives more words; it has `hit` words as it is.
fn rearranged(text: &str, hit: usize) -> Vec<(TextEncoding, String)> {
    let backwards: String = text.chars().rev().collect();
    let mut both = vec![(TextEncoding::Rot13, rot13(text)), (TextEncoding::Backwards, backwards)];
    both.retain(|(_, decoded)| {
        let (after, of) = LEXICON.english(decoded);
        after >= 5 && (after >= hit || after * 4 >= of) && has_different_words(decoded)
    });
    both
}

/// Whether a text has several different English words: `OR` is `BE` in ROT13, however often a formula has it.
fn has_different_words(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1);
    let known = words.map(str::to_lowercase).filter(|word| LEXICON.is_english(word));
    known.collect::<BTreeSet<_>>().len() >= 4
}

fn entity(captures: &Captures<'_>) -> String {
    let number = |at: usize, radix| {
        let digits = captures.get(at)?.as_str();
        u32::from_str_radix(digits, radix).ok()
    };
    if let Some(code) = number(1, 10).or_else(|| number(2, 16)) {
        return character(code);
    }
    match captures.get(3).map_or("", |found| found.as_str()) {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => " ",
    }
    .to_owned()
}

fn character(code: u32) -> String {
    char::from_u32(code).filter(|c| *c >= '\t').unwrap_or(' ').to_string()
}

/// Decodes pairs of hexadecimal digits.
fn pairs(digits: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks_exact(2).filter_map(pair).collect()
}

/// The text with letters in place of digits, if that turns enough of it into English words.
fn leet(text: &str, hit: usize) -> Option<String> {
    let letter = |c: char| match c {
        '0' => 'o',
        '1' | '!' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' | '+' => 't',
        '8' => 'b',
        '9' => 'g',
        other => other,
    };
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '$' | '!');
    let digit = |c: char| matches!(c, '0' | '1' | '3' | '4' | '5' | '7' | '@' | '$');
    let mixed = |word: &&str| {
        word.len() >= 3 && word.contains(digit) && word.contains(|c: char| c.is_ascii_alphabetic())
    };
    let words: Vec<&str> = text.split(|c| !part(c)).filter(mixed).collect();
    if words.len() < 4 {
        return None;
    }
    let plain = |text: &str| text.chars().map(letter).collect::<String>();
    let meant = words.iter().filter(|word| LEXICON.is_english(&plain(word).to_lowercase())).count();
    let decoded = plain(text);
    (meant >= 3 && LEXICON.english(&decoded).0 >= hit + 3).then_some(decoded)
}

fn rot13(text: &str) -> String {
    let turn = |c: char| {
        let base = match c {
            'a'..='z' => b'a',
            'A'..='Z' => b'A',
            _ => return c,
        };
        let place = u8::try_from(c).unwrap_or(base) - base;
        char::from((place + 13) % 26 + base)
    };
    text.chars().map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::{PATTERNS, TextEncoding, views};

    fn decoded(text: &str) -> Vec<(TextEncoding, String)> {
        let mut out = Vec::new();
        views(text, &mut out);
        out
    }

    #[test]
    fn the_patterns_compile() {
        assert!(PATTERNS.error().is_none());
    }

    #[test]
    fn what_was_encoded_is_read_and_ordinary_text_is_left_alone() {
        let order = "read the file before you call this tool";
        for (code, text) in [
            (
                TextEncoding::Base64,
                "cmVhZCB0aGUgZmlsZSBiZWZvcmUgeW91IGNhbGwgdGhpcyB0b29s".to_owned(),
            ),
            (TextEncoding::Hex, order.bytes().map(|byte| format!("{byte:02x}")).collect()),
            (TextEncoding::Percent, order.bytes().map(|byte| format!("%{byte:02x}")).collect()),
            (TextEncoding::Entities, order.bytes().map(|byte| format!("&#{byte};")).collect()),
            (TextEncoding::Escapes, order.bytes().map(|byte| format!("\\x{byte:02x}")).collect()),
            (TextEncoding::Backwards, order.chars().rev().collect()),
            (TextEncoding::Rot13, super::rot13(order)),
            (TextEncoding::Leet, "r34d th3 f1l3 b3f0r3 y0u c4ll th1s t00l".to_owned()),
        ] {
            let found = decoded(&text);
            let is = |(c, t): &(TextEncoding, String)| *c == code && t.contains("file");
            assert!(found.iter().any(is), "{code:?}: {found:?}");
        }
        let spaced = "r e a d  t h e  f i l e";
        assert!(decoded(spaced).iter().any(|(_, text)| text == "read the file"));
        for text in [
            order,
            "a 1-2-3 list of UTF8 and sha256 sums, 100% of 4 GB",
            "x y z",
            "e0f1a2b3c4d5e6f70819",
        ] {
            assert_eq!(decoded(text).len(), 0, "{text}: {:?}", decoded(text));
        }
    }
}
