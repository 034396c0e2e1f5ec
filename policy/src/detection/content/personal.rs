//! Finds personal data: contact data, and identity and bank numbers of persons.
//!
//! A number is recognised by its shape and its check digits, or by the words before it; a number that has
//! neither is ignored.

mod numbers;
mod cards;

use std::net::{Ipv4Addr, Ipv6Addr};

use self::numbers::{FEWEST, Number, identify};
use super::found::{FoundValue, ValueClass};

/// Longest number with its separators, in bytes.
const LONGEST: usize = 44;
/// Longest word that is tested, in bytes.
const WORD: usize = 64;
/// Fewest digits in a text that can hold an identity number or an IPv4 address.
const DIGITS: usize = 4;
/// How many bytes before a number are searched for its designation.
const BEFORE: usize = 40;
/// Longest local part and domain of an e-mail address, in bytes (RFC 5321 section 4.5.3.1).
const LOCAL: usize = 64;
const DOMAIN: usize = 255;

/// Appends the personal data in `text`.
pub(super) fn find(text: &str, out: &mut Vec<FoundValue>) {
    let bytes = text.as_bytes();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let wide = || text.chars().filter(|c| cards::digit(*c).is_some()).count();
    if digits >= cards::FEWEST || !text.is_ascii() && wide() >= cards::FEWEST {
        cards::find(text, out);
    }
    // With fewer digits, only e-mail addresses and IPv6 addresses are possible.
    if digits < DIGITS && memchr::memchr(b'@', bytes).is_none() && !text.contains("::") {
        return;
    }
    let mut at = 0;
    let mut before = b' ';
    while let Some(byte) = bytes.get(at) {
        let starts = !before.is_ascii_alphanumeric();
        let next = match byte {
            b'@' => email(text, at, out),
            b'0'..=b'9' | b'+' if starts && !goes_on(bytes, at) => number(text, at, out),
            b'(' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => number(text, at, out),
            b'A'..=b'Z' | b'a'..=b'z' if starts && could_be(bytes, at) => word(text, at, out),
            b':' if bytes.get(at + 1) == Some(&b':') && starts => word(text, at, out),
            _ => None,
        };
        // Nothing begins inside a word: a rejected number is not tested again from its middle.
        let next = next.unwrap_or_else(|| {
            let rest = bytes.get(at + 1..).unwrap_or_default();
            let inside = |byte: &u8| byte.is_ascii_alphanumeric();
            let skip = if inside(byte) { rest.iter().take_while(|b| inside(b)).count() } else { 0 };
            at + 1 + skip
        });
        before = bytes.get(next - 1).copied().unwrap_or(b' ');
        at = next;
    }
}

/// Whether a word has a digit or continues like an IPv6 address: most words are ruled out here.
fn could_be(bytes: &[u8], at: usize) -> bool {
    let rest = bytes.get(at..).unwrap_or_default();
    let mut word = rest.iter().skip_while(|byte| byte.is_ascii_alphabetic());
    matches!(word.next(), Some(b'0'..=b'9' | b':'))
}

/// Whether the text at `at` continues a name or a longer number.
fn goes_on(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|at| bytes.get(at)).copied();
    match before(1) {
        Some(b'_' | b'#' | b'.') => true,
        Some(b' ' | b'-') => before(2).is_some_and(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

fn found(
    out: &mut Vec<FoundValue>,
    class: ValueClass,
    rule: &'static str,
    from: usize,
    end: usize,
) -> Option<usize> {
    out.push(FoundValue::new(class, rule, from, end));
    Some(end)
}

/// An e-mail address around the `@` at `at` (RFC 5321, without quoted local parts).
fn email(text: &str, at: usize, out: &mut Vec<FoundValue>) -> Option<usize> {
    let (before, after) = (text.as_bytes().get(..at)?, text.as_bytes().get(at + 1..)?);
    let of_local = |b: &&u8| {
        b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'%' | b'+' | b'-' | b'\'')
    };
    let local = before.iter().rev().take(LOCAL).take_while(of_local).count();
    let of_domain = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
    let domain = after.iter().take(DOMAIN).take_while(of_domain).count();
    let name = text.get(at + 1..at + 1 + domain)?.trim_end_matches(['.', '-']);
    let (host, top) = name.rsplit_once('.')?;
    let is_name = top.len() >= 2 && top.bytes().all(|b| b.is_ascii_alphabetic());
    // Logins in URLs and versions of packages are not addresses.
    let is_package = before
        .get(..at - local)
        .and_then(<[u8]>::last)
        .is_some_and(|b| matches!(b, b'/' | b'@' | b':'));
    if local == 0 || host.is_empty() || !is_name || is_package {
        return None;
    }
    found(out, ValueClass::Contact, "email-address", at - local, at + 1 + name.len())
}

/// The text before `at`, in lower case.
fn context(text: &str, at: usize) -> String {
    let from = text.floor_char_boundary(at.saturating_sub(BEFORE));
    text.get(from..at).unwrap_or_default().to_lowercase()
}

fn number(text: &str, from: usize, out: &mut Vec<FoundValue>) -> Option<usize> {
    if let Some(end) = address(text, from).or_else(|| version_six(text, from)) {
        return found(out, ValueClass::Contact, "ip-address", from, end);
    }
    if let Some((rule, end)) = with_letters(text, from) {
        return found(out, ValueClass::Identifier, rule, from, end);
    }
    let mut number = Number::at(text, from)?;
    if number.digits.len() < FEWEST {
        return None;
    }
    let before = context(text, from);
    // The last groups may be another number: try again without them.
    for _ in 0..4 {
        if let Some((class, rule)) = identify(&number, &before) {
            return found(out, class, rule, from, from + number.text.len());
        }
        // No part of a uniformly separated number is a number of its own.
        let whole = number.text;
        number = number.shorter()?;
        let between = whole.as_bytes().get(number.text.len()).copied().map_or(' ', char::from);
        if number.text.contains(between) {
            return None;
        }
    }
    None
}

/// The end of an IPv4 address that begins at `from`.
fn address(text: &str, from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    let length = rest.bytes().take(16).take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let quad = rest.get(..length)?.trim_end_matches('.');
    quad.parse::<Ipv4Addr>().ok()?;
    let before = text.as_bytes().get(..from)?.last().copied().unwrap_or(b' ');
    let next = rest.as_bytes().get(quad.len()).copied().unwrap_or(b' ');
    // Four numbers before a dash or a letter are a version.
    let alone = !matches!(before, b'v' | b'=' | b'.' | b'-')
        && !next.is_ascii_alphanumeric()
        && next != b'-';
    alone.then(|| from + quad.len())
}

/// The end of an IPv6 address that begins at `from`.
fn version_six(text: &str, from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    let length = rest
        .bytes()
        .take(46)
        .take_while(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
        .count();
    let word = rest.get(..length)?;
    (word.bytes().filter(|b| *b == b':').count() >= 2).then_some(())?;
    let word = word.trim_end_matches(['.', ':']);
    let word =
        if rest.get(word.len()..)?.starts_with("::") { rest.get(..word.len() + 2)? } else { word };
    word.parse::<Ipv6Addr>().ok()?;
    let next = rest.as_bytes().get(word.len()).copied().unwrap_or(b' ');
    let prefix =
        next == b'/' && rest.as_bytes().get(word.len() + 1).is_some_and(u8::is_ascii_digit);
    // `::` is a path separator in several programming languages.
    let whole = word.len() > 3 || prefix || word == "::1";
    (!next.is_ascii_alphanumeric() && next != b'_' && whole).then(|| from + word.len())
}

/// Identity numbers that begin with digits and have letters: the rule, and the end of the number.
fn with_letters(text: &str, from: usize) -> Option<(&'static str, usize)> {
    let rest = text.get(from..)?;
    let length = rest
        .bytes()
        .take(WORD)
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+'))
        .count();
    let word = rest.get(..length)?;
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    if word.len() == 11 && digits == 6 && finnish(word) {
        return Some(("fi-personal-code", from + 11));
    }
    let letters = word.get(digits..)?.trim_start_matches('-');
    let letter = *letters.as_bytes().first()?;
    if matches!(digits, 7 | 8) && letters.len() == 1 {
        let number: usize = word.get(..digits)?.parse().ok()?;
        let table = b"TRWAGMYFPDXBNJZSQVHLCKE";
        return (table.get(number % 23) == Some(&letter.to_ascii_uppercase()))
            .then_some(("es-nif", from + length));
    }
    None
}

/// Whether a word is a Finnish personal identity code (Digital and Population Data Services Agency).
fn finnish(word: &str) -> bool {
    let value =
        |range: std::ops::Range<usize>| word.get(range).and_then(|text| text.parse::<usize>().ok());
    let (Some(born), Some(day), Some(month), Some(individual)) =
        (value(0..6), value(0..2), value(2..4), value(7..10))
    else {
        return false;
    };
    let century = word.as_bytes().get(6).is_some_and(|c| b"+-ABCDEFUVWXY".contains(c));
    let check = b"0123456789ABCDEFHJKLMNPRSTUVWXY".get((born * 1000 + individual) % 31);
    let days = match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=days).contains(&day)
        && (1..=12).contains(&month)
        && individual >= 2
        && century
        && check == word.as_bytes().get(10)
}

/// Finds numbers that begin with a letter.
fn word(text: &str, from: usize, out: &mut Vec<FoundValue>) -> Option<usize> {
    let begins = text.as_bytes().get(..from)?.last() != Some(&b':');
    if let Some(end) = version_six(text, from).filter(|_| begins) {
        return found(out, ValueClass::Contact, "ip-address", from, end);
    }
    let rest = text.get(from..)?;
    let length = rest.bytes().take(WORD).take_while(u8::is_ascii_alphanumeric).count();
    let word = rest.get(..length)?;
    let bytes = word.as_bytes();
    let shape = |pattern: &str| {
        bytes.len() == pattern.len()
            && bytes.iter().zip(pattern.bytes()).all(|(b, p)| match p {
                b'A' => b.is_ascii_uppercase(),
                b'9' => b.is_ascii_digit(),
                other => *b == other,
            })
    };
    if bytes.len() >= 4 && shape_of_iban(bytes) {
        let end = iban(rest)?;
        return found(out, ValueClass::Identifier, "iban", from, from + end);
    }
    if !bytes.iter().any(u8::is_ascii_digit) {
        return None;
    }
    let rule = if shape("AAAAA9999A") && bytes.get(3).is_some_and(|c| b"PCHABGJLFT".contains(c)) {
        "in-pan"
    } else if shape("AA999999A") && nino(bytes) {
        "uk-nino"
    } else if shape("A9999999A") && bytes.first().is_some_and(|c| b"STFGM".contains(c)) {
        "sg-nric"
    } else if shape("A9999999A") && bytes.first().is_some_and(|c| b"XYZ".contains(c)) {
        "es-nie"
    } else if shape("AAAAAA99A99A999A") {
        "it-fiscal-code"
    } else if is_bitcoin(word) {
        "bitcoin-address"
    } else if (shape("A99999999") || shape("AA9999999") || shape("A9999999"))
        && context(text, from).contains("passport")
    {
        "passport-number"
    } else if (6..=14).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        && ["driver", "licence", "license"].iter().any(|word| context(text, from).contains(word))
        && bytes.iter().filter(|b| b.is_ascii_digit()).count() >= 4
    {
        "driving-licence"
    } else {
        return None;
    };
    found(out, ValueClass::Identifier, rule, from, from + length)
}

fn nino(bytes: &[u8]) -> bool {
    let (first, second, last) = (bytes.first(), bytes.get(1), bytes.get(8));
    let taken = |c: Option<&u8>, not: &[u8]| c.is_some_and(|c| !not.contains(c));
    taken(first, b"DFIQUV")
        && taken(second, b"DFIOQUV")
        && last.is_some_and(|c| b"ABCD".contains(c))
}

fn shape_of_iban(bytes: &[u8]) -> bool {
    matches!(bytes, [a, b, c, d, ..] if a.is_ascii_uppercase() && b.is_ascii_uppercase() && c.is_ascii_digit() && d.is_ascii_digit())
}

/// The length of an IBAN at the start of the text, with or without groups (ISO 13616-1).
fn iban(text: &str) -> Option<usize> {
    let (mut rest, mut end, mut length) = (0_u32, 0, 0);
    let mut best = None;
    let mut head = Vec::new();
    for (n, byte) in text.bytes().take(LONGEST).enumerate() {
        if byte == b' ' && length % 4 == 0 {
            continue;
        }
        let value = match byte {
            b'0'..=b'9' => u32::from(byte - b'0'),
            b'A'..=b'Z' => u32::from(byte - b'A') + 10,
            _ => break,
        };
        length += 1;
        end = n + 1;
        if length <= 4 {
            head.push(value);
            continue;
        }
        rest = (if value > 9 { rest * 100 } else { rest * 10 } + value) % 97;
        let whole = head
            .iter()
            .fold(rest, |rest, v| (if *v > 9 { rest * 100 } else { rest * 10 } + v) % 97);
        if (15..=34).contains(&length) && whole == 1 {
            best = Some(end);
        }
    }
    best.filter(|best| *best == end || text.as_bytes().get(*best).is_some_and(|b| *b == b' '))
}

/// Whether a word has the form of a Bitcoin segwit address (BIP 173).
fn is_bitcoin(word: &str) -> bool {
    let rest = word.strip_prefix("bc1").unwrap_or_default();
    let digits = rest.bytes().filter(u8::is_ascii_digit).count();
    matches!(rest.len(), 39 | 59)
        && digits >= 3
        && rest.bytes().all(|b| {
            b.is_ascii_lowercase() && !matches!(b, b'b' | b'i' | b'o')
                || matches!(b, b'0' | b'2'..=b'9')
        })
}
