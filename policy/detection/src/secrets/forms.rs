//! Recognises secrets by the formats that vendors document.

use std::ops::Range;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::coding;
use policy_core::base::compiled::Compiled;

use super::is_uuid;
use super::pattern::{FormPart, KeyPattern, KeyPlace};
use super::placeholder::{self, Likeness};
use super::table::{CheckDigits, FORMS, OWN};
use crate::secrets::found::{FoundValue, ValueClass};

/// The beginning of a JSON Web Token: `{"` in base64.
const TOKEN: &str = "eyJ";
/// Longest header of a JSON Web Token, in bytes.
const TOKEN_HEADER: usize = 1024;
/// Shortest part of a key that looks random by itself, in bytes.
const RANDOM: usize = 10;
/// The least length of a key of any vendor, in bytes.
#[cfg(test)]
const LEAST: usize = 20;
/// From this length on, a prefix is distinctive regardless of the text before it.
const DISTINCTIVE: usize = 5;
/// Least length of a prefix whose keys are also found in groups, in bytes.
const OF_GROUPS: usize = 4;
/// Least length of the groups, in bytes.
const GROUP: usize = 4;
/// Most characters that separate two groups: a line end and the indentation of the next line.
const BETWEEN: usize = 12;
/// The rule of what stands in place of a key.
pub(super) const PLACEHOLDER: &str = "placeholder";
/// Fewest distinct characters beside the text of a format that begins with a run.
const FEWEST: usize = 4;
/// Number of check digits of a GitHub token.
const CHECK: usize = 6;

/// The formats, and the automaton for what they are found by.
struct KeyFormats {
    patterns: Vec<KeyPattern>,
    /// The anchors, each once, and then [`TOKEN`].
    starts: AhoCorasick,
    /// For each anchor, the indices of its patterns.
    of_anchor: Vec<Vec<usize>>,
    /// Anchors of keys whose groups may be apart, and for each of them the index of its pattern.
    grouped: AhoCorasick,
    of_group: Vec<usize>,
}

static FORMATS: Compiled<KeyFormats> = Compiled::new(|| {
    let patterns: Vec<KeyPattern> = FORMS.iter().filter_map(KeyPattern::parse).flatten().collect();
    let mut anchors: Vec<&str> = patterns.iter().map(|pattern| &*pattern.anchor).collect();
    anchors.sort_unstable();
    anchors.dedup();
    let of = |anchor: &&str| {
        let all = patterns.iter().enumerate();
        all.filter(|(_, pattern)| &*pattern.anchor == *anchor).map(|(at, _)| at).collect()
    };
    let of_anchor = anchors.iter().map(of).collect();
    let starts = AhoCorasick::new(anchors.iter().copied().chain([TOKEN]))?;
    let of_group: Vec<usize> =
        (0..patterns.len()).filter(|at| patterns.get(*at).and_then(group).is_some()).collect();
    let prefixes = of_group.iter().filter_map(|at| patterns.get(*at));
    let grouped = AhoCorasick::new(prefixes.map(|pattern| &*pattern.anchor))?;
    Ok(KeyFormats { patterns, starts, of_anchor, grouped, of_group })
});

/// The number of characters behind a distinctive prefix, where it is nearly always the same.
fn group(pattern: &KeyPattern) -> Option<usize> {
    match pattern.after.as_slice() {
        [FormPart::Run(run)] if pattern.anchor.len() >= OF_GROUPS => run.usual(),
        _ => None,
    }
}

/// Appends the keys with a vendor's format and the tokens, wherever they stand: in a path, behind a name and a dot or a
/// dash, behind an escape. One pass, with a bounded test at each anchor.
pub(super) fn find(text: &str, out: &mut Vec<FoundValue>) {
    let Some(formats) = FORMATS.get() else { return };
    let mut last: Option<FoundKey> = None;
    for anchor in formats.starts.find_overlapping_iter(text) {
        // What begins within a key is a part of it.
        if last
            .is_some_and(|last| last.place.from < anchor.start() && anchor.start() < last.place.end)
        {
            continue;
        }
        let found = match formats.of_anchor.get(anchor.pattern().as_usize()) {
            Some(of) => formats.best(text, of, anchor.start()),
            None => token(text, anchor.start()),
        };
        let Some(found) = found else { continue };
        match last {
            Some(known) if found.place.from < known.place.end => {
                if found.place.from <= known.place.from && found.fixed > known.fixed {
                    last = Some(found);
                }
            }
            _ => {
                out.extend(last.map(FoundKey::value));
                last = Some(found);
            }
        }
    }
    out.extend(last.map(FoundKey::value));
    formats.in_groups(text, out);
}

/// A match of a format.
#[derive(Clone, Copy, Debug)]
struct FoundKey {
    class: ValueClass,
    rule: &'static str,
    place: KeyPlace,
    /// Number of bytes that are the same in each key: the more there are, the more specific is the format.
    fixed: usize,
}

impl FoundKey {
    const fn value(self) -> FoundValue {
        FoundValue::new(self.class, self.rule, self.place.from, self.place.end)
    }
}

impl KeyFormats {
    /// The most specific of these formats that matches around an anchor.
    fn best(&self, text: &str, of: &[usize], at: usize) -> Option<FoundKey> {
        let patterns = of.iter().filter_map(|one| self.patterns.get(*one));
        let found = patterns.filter_map(|pattern| matched(text, pattern, at));
        found.max_by_key(|found| found.fixed)
    }

    /// Appends the keys that are printed in groups or broken over two lines.
    fn in_groups(&self, text: &str, out: &mut Vec<FoundValue>) {
        for anchor in self.grouped.find_overlapping_iter(text) {
            let known = self.of_group.get(anchor.pattern().as_usize());
            let Some(pattern) = known.and_then(|at| self.patterns.get(*at)) else { continue };
            let Some(length) = group(pattern) else { continue };
            // Tested first: in a repeated letter an anchor begins at each byte.
            if !is_alone(text.as_bytes(), anchor.start()) {
                continue;
            }
            let Some((end, body)) = grouped(text, anchor.end(), pattern, length) else { continue };
            if placeholder::likeness(&body) == Likeness::Random && is_random(&body) {
                out.push(FoundValue::new(ValueClass::Secret, pattern.rule, anchor.start(), end));
            }
        }
    }
}

/// The end of a key whose characters stand in groups of one length, or on two lines; and these characters.
fn grouped(
    text: &str,
    from: usize,
    pattern: &KeyPattern,
    length: usize,
) -> Option<(usize, String)> {
    let [FormPart::Run(run)] = pattern.after.as_slice() else { return None };
    let bytes = text.as_bytes();
    let (mut at, mut body, mut groups, mut lines) = (from, String::new(), Vec::new(), 0);
    while body.len() < length {
        let rest = bytes.get(at..)?;
        let part = rest.iter().take(length + 1).take_while(|byte| run.has(**byte)).count();
        if part > 0 {
            groups.push(part);
            body.push_str(text.get(at..at + part)?);
            at += part;
            continue;
        }
        let gap = rest
            .iter()
            .take(BETWEEN)
            .take_while(|b| matches!(b, b' ' | b'-' | b'\n' | b'\r'))
            .count();
        let broken = rest.iter().take(gap).any(|byte| *byte == b'\n');
        lines += usize::from(broken);
        (gap == 1 && run.has_groups() || broken && gap > 0).then_some(())?;
        at += gap;
    }
    let first = groups.first().copied()?;
    let last = groups.last().copied()?;
    let even = groups.iter().rev().skip(1).all(|group| *group == first) && last <= first;
    let wrapped = lines == 1 && groups.len() == 2 && first >= GROUP && last >= GROUP;
    let next = bytes.get(at).copied().unwrap_or(b' ');
    let ends = !next.is_ascii_alphanumeric() && next != b'_';
    let fits = body.len() == length && ends && groups.len() >= 2;
    (fits && (even && first >= GROUP && run.has_groups() || wrapped)).then_some((at, body))
}

/// Whether what begins here is not within a longer word: no letter or digit stands before it, except in an
/// escape.
fn is_alone(bytes: &[u8], from: usize) -> bool {
    let before = bytes.get(..from).unwrap_or_default();
    let hex = |part: &[u8]| part.iter().all(u8::is_ascii_hexdigit);
    match before {
        [] => true,
        [.., last] if !last.is_ascii_alphanumeric() => true,
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'%', one, two] if hex(&[*one, *two]) => true,
        _ => matches!(before.last_chunk::<6>(), Some([b'\\', b'u', rest @ ..]) if hex(rest)),
    }
}

/// The key of this format around an anchor.
fn matched(text: &str, pattern: &KeyPattern, at: usize) -> Option<FoundKey> {
    let bytes = text.as_bytes();
    let place = pattern.at(bytes, at)?;
    let class = class_of(text, pattern, place)?;
    // The whole key is read only where it is one, so that the work is in proportion to the text.
    let place = pattern.whole(bytes, place)?;
    let rule = if class == ValueClass::Placeholder { PLACEHOLDER } else { pattern.rule };
    Some(FoundKey { class, rule, place, fixed: pattern.fixed })
}

/// The class of a text with the form of a key; `None` for one of words, and where it is a part of something else.
fn class_of(text: &str, pattern: &KeyPattern, place: KeyPlace) -> Option<ValueClass> {
    let bytes = text.as_bytes();
    // What is random stands behind the anchor, or around it.
    let around = place.body - place.from > pattern.anchor.len();
    let rest = text.get(if around { place.from } else { place.body }..place.end)?;
    if is_checked(pattern.check, rest) {
        return Some(ValueClass::Secret);
    }
    fits(bytes, pattern, place).then_some(())?;
    // The text of the format is no part of what is random.
    if around && placeholder::distinct(rest) < pattern.fixed + FEWEST {
        return Some(ValueClass::Placeholder);
    }
    match placeholder::likeness(rest) {
        Likeness::Placeholder => Some(ValueClass::Placeholder),
        Likeness::Random if placeholder::is_documented(text.get(place.from..place.end)?) => {
            Some(ValueClass::Placeholder)
        }
        Likeness::Random if stands_out(bytes, pattern, place, rest) => Some(ValueClass::Secret),
        Likeness::Random | Likeness::Words => None,
    }
}

/// Whether the check digits of a key are those that its vendor documents.
fn is_checked(check: CheckDigits, body: &str) -> bool {
    let Some((value, digits)) = body.split_at_checked(body.len().saturating_sub(CHECK)) else {
        return false;
    };
    check == CheckDigits::Crc32Base62
        && digits.len() == CHECK
        && base62(digits) == Some(crc32(value.as_bytes()))
}

/// The number that these digits are in base62: digits, capitals, small letters.
fn base62(digits: &str) -> Option<u32> {
    digits.bytes().try_fold(0_u32, |value, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'A'..=b'Z' => byte - b'A' + 10,
            b'a'..=b'z' => byte - b'a' + 36,
            _ => return None,
        };
        value.checked_mul(62)?.checked_add(digit.into())
    })
}

/// The CRC-32 of ISO/IEC 3309.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Whether a key may stand at this place: a short prefix within a word is there by chance.
fn fits(bytes: &[u8], pattern: &KeyPattern, place: KeyPlace) -> bool {
    let alone = is_alone(bytes, place.from);
    let before = place.from.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
    // What begins with a run has a length of its own.
    if place.body - place.from > pattern.anchor.len() {
        return alone || pattern.begins_with_digits();
    }
    let glued = is_distinctive(pattern) || matches!(pattern.rule, "github-token" | "npm-token");
    let ends = pattern.anchor.ends_with(['-', '_', '.']);
    let whole =
        pattern.after.len() == 1 && group(pattern).is_some() || pattern.rule == "google-api-key";
    // A short prefix behind these characters is base64 data.
    (glued || alone) && (ends || whole || !matches!(before, b'/' | b'+'))
}

/// Whether a prefix tells by itself what it begins. A key of the gateway's own does so wherever it stands.
fn is_distinctive(pattern: &KeyPattern) -> bool {
    let anchor = &pattern.anchor;
    anchor.len() >= DISTINCTIVE && anchor.ends_with(['-', '_', '.', '$']) || pattern.rule == OWN
}

/// Whether the characters behind a prefix look generated also where the prefix is within another word: names of files
/// and base64 data have short prefixes by chance.
fn stands_out(bytes: &[u8], pattern: &KeyPattern, place: KeyPlace, rest: &str) -> bool {
    let before = place.from.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
    let within = before.is_ascii_alphanumeric()
        || matches!(before, b'-' | b'_' | b'.' | b'/' | b'+' | b'~' | b'!');
    let distinctive = is_distinctive(pattern);
    if !within {
        return true;
    }
    let begins = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let least = pattern.least - pattern.anchor.len().min(pattern.least);
    let short =
        !distinctive && matches!(before, b'-' | b'_') && pattern.anchor.ends_with(['-', '_']);
    let named = !distinctive && is_uuid(rest);
    let random = rest.split(|c: char| !c.is_ascii_alphanumeric()).any(is_random);
    !named && random && (!short || begins >= least)
}

/// Whether a part of a key is neither a word nor a number.
fn is_random(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let cases = |pair: &&[u8]| {
        matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()
            || a.is_ascii_uppercase() && b.is_ascii_lowercase())
    };
    let changes = part.as_bytes().windows(2).filter(cases).count();
    part.len() >= RANDOM && (digits >= 2 && digits < part.len() || changes * 4 >= part.len())
}

/// The JSON Web Token that begins at `at`, if none of its characters is part of a longer word.
fn token(text: &str, at: usize) -> Option<FoundKey> {
    is_alone(text.as_bytes(), at).then_some(())?;
    let part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let run = |from: usize, most: usize| {
        let rest = text.as_bytes().get(from..).unwrap_or_default();
        from..from + rest.iter().take(most).take_while(|byte| part(byte)).count()
    };
    let dot = |at: usize| text.as_bytes().get(at) == Some(&b'.');
    let head: Range<usize> = run(at, TOKEN_HEADER);
    (head.len() >= 10 && dot(head.end) && is_header(text.get(head.clone())?)).then_some(())?;
    let payload = run(head.end + 1, usize::MAX);
    (payload.len() >= 10).then_some(())?;
    let mut end = payload.end;
    // A signature, or the three further parts of an encrypted token.
    for _ in 0..3 {
        end = if dot(end) { run(end + 1, usize::MAX).end } else { break };
    }
    let whole = text.get(at..end)?.trim_end_matches(['.', '-']);
    let place = KeyPlace {
        from: at,
        body: at + TOKEN.len(),
        tail: at + whole.len(),
        end: at + whole.len(),
    };
    let documented = placeholder::is_documented(whole);
    let (class, rule) = if documented {
        (ValueClass::Placeholder, PLACEHOLDER)
    } else {
        (ValueClass::Secret, "jwt")
    };
    Some(FoundKey { class, rule, place, fixed: TOKEN.len() })
}

/// The rule of a word with a documented format that has no text by which it could be found.
pub(super) fn format(word: &str) -> Option<&'static str> {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    if word.starts_with(TOKEN) && !word.contains('.') && is_token(word) {
        return Some(super::ENCODED_TOKEN);
    }
    let mut parts = word.split('-');
    let of_mailgun = [32, 8, 8]
        .into_iter()
        .all(|length| parts.next().is_some_and(|part| part.len() == length && hex(part)));
    (of_mailgun && parts.next().is_none()).then_some("mailgun-key")
}

/// Whether a word is a JSON object in base64 with a member that is called a secret.
fn is_token(word: &str) -> bool {
    let plain = coding::base64(word.trim_end_matches('=')).unwrap_or_default();
    let text = std::str::from_utf8(&plain).unwrap_or_default();
    let has = ["\"k\":", "\"key\":", "\"token\":", "\"secret\":", "\"password\":", "\"auth\":"];
    text.starts_with('{') && has.iter().any(|name| text.contains(name))
}

/// Whether a part is the header of a JWS (RFC 7515 section 4).
fn is_header(part: &str) -> bool {
    let header = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
    let text = std::str::from_utf8(&header).unwrap_or_default();
    text.starts_with('{') && text.trim_end().ends_with('}') && text.contains("\"alg\"")
}

#[cfg(test)]
mod tests {
    use super::{FORMATS, FORMS, KeyPattern, LEAST, base62, crc32, find, is_checked};
    use crate::secrets::found::ValueClass;
    use crate::secrets::pattern::{sample, twin};
    use crate::secrets::table::CheckDigits;

    fn found(text: &str) -> Vec<(ValueClass, &'static str)> {
        let mut found = Vec::new();
        find(text, &mut found);
        found.into_iter().map(|one| (one.class, one.rule)).collect()
    }

    #[test]
    fn each_row_of_the_table_is_well_formed() {
        assert!(FORMATS.error().is_none());
        for row in FORMS {
            let patterns = KeyPattern::parse(row);
            assert!(
                patterns.is_some_and(|all| all.iter().all(|one| one.least >= LEAST)),
                "{row:?}"
            );
        }
    }

    /// Each format, and beside it what a documentation shows in its place.
    #[test]
    fn a_key_of_each_form_is_found_and_its_placeholder_is_none() {
        for pattern in FORMS.iter().filter_map(KeyPattern::parse).flatten() {
            let key = sample(&pattern, 7);
            for text in [
                key.clone(),
                format!("value {key}, and more"),
                format!("\"{key}\""),
                format!("(`{key}`)"),
                format!("<a href=\"{key}\">"),
                format!("?key={key}&x=1"),
            ] {
                let one = found(&text);
                assert!(one.contains(&(ValueClass::Secret, pattern.rule)), "{text}: {one:?}");
            }
            // Behind an escape, where the text tells where it begins.
            if pattern.anchor.len() >= 5 && key.starts_with(&*pattern.anchor) {
                let text = format!("a%3D{key}\\n");
                let one = found(&text);
                assert!(one.contains(&(ValueClass::Secret, pattern.rule)), "{text}: {one:?}");
            }
            let twin = twin(&pattern);
            let one = found(&twin);
            assert!(
                one.iter().all(|(class, _)| *class == ValueClass::Placeholder),
                "{twin}: {one:?}"
            );
        }
    }

    #[test]
    fn a_key_within_a_longer_word_is_none() {
        for text in [
            "xAKIAQ3EGRZ7XK2MWPLVT",
            "AKIAQ3EGRZ7XK2MWPLVT7Q",
            "AIzaSyA0B1C2D3E4F5G6H7I8J9K0L1M2N3O4P5Qxyz",
            "abcdapi0123456789abcdef0123456789abcdef",
            "dapi0123456789abcdef0123456789abcdef01",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn a_key_in_groups_or_on_two_lines_is_found() {
        for (text, rule) in [
            ("AKIA Q3EG RZ7X K2MW PLVT", "aws-access-key"),
            ("AKIA-Q3EG-RZ7X-K2MW-PLVT", "aws-access-key"),
            ("AKIAQ3EGRZ7X\n    K2MWPLVT", "aws-access-key"),
            ("it is AIzaSyD3k9Qm2Xv7Lp0R\n  t8Wn4Bz6Hc1Jf5Yg2Ks today", "google-api-key"),
            ("glpat-Xk3v9Qm2\nT7Lp0Rt8Wn4B", "gitlab-token"),
            ("ghp_x8Rk2LmQ9vTz4WbY7nPc\n1HdF6sJg3a2Yq0Lk", "github-token"),
            ("ghp_ x8Rk2LmQ9 vTz4WbY7n Pc1HdF6sJ g3a2Yq0Lk", "github-token"),
        ] {
            assert_eq!(found(text), [(ValueClass::Secret, rule)], "{text}");
        }
        for text in [
            "AKIA IS THE PREFIX OF ACCESS KEYS",
            "dapi of the data base and its many names",
            "AKIA Q3EG RZ7X",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn the_check_digits_are_those_of_the_vendor() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(base62("00000z"), Some(61));
        assert_eq!(base62("zzzzzzz"), None);
        assert!(!is_checked(CheckDigits::None, "000000"));
        // Made of words, so that only the check digits tell that it is a token.
        let token = |digits: &str| format!("ghp_PersonalAccessTokenOfMyAccount{digits}");
        assert_eq!(found(&token("3AltSX")), [(ValueClass::Secret, "github-token")]);
        assert_eq!(found(&token("0aB3xY")), []);
    }
}
