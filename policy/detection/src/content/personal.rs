//! Finds personal data: contact data, and identity and bank numbers of persons.
//!
//! A number is recognised by its shape and its check digits, or by the words before it; a number that has
//! neither is ignored.

mod numbers;
mod examples;
mod national;
mod cards;
mod kinds;

use std::net::{Ipv4Addr, Ipv6Addr};

use policy_core::base::digits::decimal_digit;

pub use self::kinds::{
    PERSONAL_NAMES, PersonalKind, PersonalNames, identity_words, kind_of_pattern,
};
use self::numbers::{FEWEST, Number, bank_account, identifier, phone};
use crate::secrets::found::{FoundValue, ValueClass};

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
    let wide = || text.chars().filter(|c| decimal_digit(*c).is_some()).count();
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

/// Appends the identity number that a value is because of the name of its member, by the words that announce it in a text.
pub(super) fn find_named(name: &str, value: &str, out: &mut Vec<FoundValue>) {
    let whole = value.trim();
    let digits = whole.bytes().filter(u8::is_ascii_digit).count();
    if digits < FEWEST || whole.len() > WORD || name.len() > WORD {
        return;
    }
    let mut text = String::with_capacity(name.len() + whole.len() + 8);
    let mut last = ' ';
    for c in name.chars() {
        if last.is_lowercase() && c.is_uppercase() {
            text.push(' ');
        }
        text.push(if matches!(c, '_' | '-') { ' ' } else { c });
        last = c;
    }
    text.push_str(": ");
    let from = text.len();
    text.push_str(whole);
    let mut found = Vec::new();
    find(&text, &mut found);
    // Systems of many kinds call a number that of an account.
    found.retain(|one| {
        one.class == ValueClass::Identifier
            && one.rule != "bank-account"
            && one.from == from
            && one.end == text.len()
    });
    let start = value.len() - value.trim_start().len();
    out.extend(found.into_iter().map(|one| FoundValue {
        from: start,
        end: start + whole.len(),
        ..one
    }));
}

/// Whether a word has a digit or continues like an IPv6 address, or is the beginning of a British insurance number in
/// groups: most words are ruled out here.
fn could_be(bytes: &[u8], at: usize) -> bool {
    let rest = bytes.get(at..).unwrap_or_default();
    let letters = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    match rest.get(letters) {
        Some(b'0'..=b'9' | b':') => true,
        Some(b' ') => letters == 2 && rest.get(3).is_some_and(u8::is_ascii_digit),
        _ => false,
    }
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
    if let Some(length) = text.get(from..).and_then(national::printed_cnpj) {
        return found(out, ValueClass::Identifier, "br-cnpj", from, from + length);
    }
    let mut number = Number::at(text, from)?;
    if number.digits.len() < FEWEST {
        return None;
    }
    let before = context(text, from);
    // The last groups may be another number: try again without them.
    for _ in 0..4 {
        if let Some((class, rule)) = identify(&number, &before) {
            let (class, rule) = examples::told_apart(&number, class, rule);
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

/// The class and the rule of a number, by its form and the text before it.
fn identify(number: &Number<'_>, before: &str) -> Option<(ValueClass, &'static str)> {
    let rule = identifier(number, before)
        .or_else(|| national::identify(number, before))
        .or_else(|| bank_account(number, before));
    let person = rule.map(|rule| (ValueClass::Identifier, rule));
    person.or_else(|| phone(number, before).then_some((ValueClass::Contact, "phone-number")))
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
    let numbers = || word.bytes().take(digits).map(|byte| byte - b'0').collect::<Vec<u8>>();
    if digits == 17
        && word.len() == 18
        && word.ends_with(['X', 'x'])
        && national::is_chinese_with_letter(&numbers())
    {
        return Some(("cn-resident-id", from + length));
    }
    if let Some(length) = german_insurance(rest) {
        return Some(("de-social-insurance", from + length));
    }
    if digits == 7
        && matches!(word.len(), 8 | 9)
        && irish(word)
        && context(text, from).contains("pps")
    {
        return Some(("ie-pps", from + length));
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

/// The length of a German social insurance number at the start of the text, with or without blanks: the area, the
/// birthday, a letter, the serial number and the check digit (section 147 SGB VI).
fn german_insurance(text: &str) -> Option<usize> {
    let mut compact = String::new();
    let mut end = 0;
    for (at, c) in text.char_indices().take(16) {
        let blank =
            c == ' ' && matches!(compact.len(), 2 | 8 | 9) && !text.get(..at)?.ends_with(' ');
        if !blank {
            (c.is_ascii_digit() || c.is_ascii_uppercase() && compact.len() == 8).then_some(())?;
            compact.push(c);
            end = at + 1;
        }
        if compact.len() == 12 {
            break;
        }
    }
    let bytes = compact.as_bytes();
    let letter = bytes.get(8).filter(|byte| byte.is_ascii_uppercase())?;
    let place = format!("{:02}", letter - b'A' + 1);
    let all = compact.get(..8)?.bytes().chain(place.bytes()).chain(compact.get(9..11)?.bytes());
    let weights = [2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1];
    let each = all.zip(weights).map(|(byte, weight)| u32::from(byte - b'0') * weight);
    let sum: u32 = each.map(|product| product / 10 + product % 10).sum();
    let day: u32 = compact.get(2..4)?.parse().ok()?;
    let month: u32 = compact.get(4..6)?.parse().ok()?;
    let next = text.as_bytes().get(end).copied().unwrap_or(b' ');
    let is_one = (1..=31).contains(&day)
        && (1..=12).contains(&month)
        && bytes.get(11).is_some_and(|check| u32::from(check - b'0') == sum % 10)
        && !next.is_ascii_alphanumeric();
    is_one.then_some(end)
}

/// Whether a word is an Irish personal public service number: seven digits, a check letter and possibly another letter.
fn irish(word: &str) -> bool {
    let mut bytes = word.bytes();
    let digits = bytes.by_ref().take(7).zip((2..=8_u32).rev());
    let sum: u32 = digits.map(|(byte, weight)| u32::from(byte.wrapping_sub(b'0')) * weight).sum();
    let letter = |byte: u8| u32::from(byte.to_ascii_uppercase().wrapping_sub(b'A')) + 1;
    let check = bytes.next().map_or(0, letter);
    let more = bytes.next().map_or(0, |byte| letter(byte) * 9);
    check % 23 == (sum + more) % 23
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
    if bytes.len() >= 4
        && shape_of_iban(bytes)
        && let Some(end) = iban(rest)
    {
        return found(out, ValueClass::Identifier, "iban", from, from + end);
    }
    if bytes.len() == 2
        && let Some(length) = printed_nino(rest)
    {
        return found(out, ValueClass::Identifier, "uk-nino", from, from + length);
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
    } else if shape("A9999999A") && nie(word) {
        "es-nie"
    } else if shape("AAAAAA99A99A999A") && fiscal_code(bytes) {
        "it-fiscal-code"
    } else if shape("AAAA999999AAAAAA99") || shape("AAAA999999AAAAAAA9") {
        "mx-curp"
    } else if shape("A999999999") && taiwanese(bytes) && context(text, from).contains("id") {
        "tw-id"
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

/// The length of a British insurance number in groups at the start of the text: `AB 12 34 56 C`.
fn printed_nino(text: &str) -> Option<usize> {
    let bytes = text.as_bytes().get(..13)?;
    let compact: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != b' ').collect();
    let blanks = [2, 5, 8, 11].into_iter().all(|at| bytes.get(at) == Some(&b' '));
    let digits = compact.get(2..8)?.iter().all(u8::is_ascii_digit);
    let next = text.as_bytes().get(13).copied().unwrap_or(b' ');
    let whole = compact.len() == 9 && blanks && digits && !next.is_ascii_alphanumeric();
    (whole && compact.iter().take(2).all(u8::is_ascii_uppercase) && nino(&compact)).then_some(13)
}

/// Whether a word is a Spanish NIE: the letter in front stands for a digit of the number that is checked.
fn nie(word: &str) -> bool {
    let first = match word.as_bytes().first() {
        Some(b'X') => "0",
        Some(b'Y') => "1",
        Some(b'Z') => "2",
        _ => return false,
    };
    let number = word.get(1..8).map(|rest| format!("{first}{rest}"));
    let number: Option<usize> = number.and_then(|number| number.parse().ok());
    let check = number.and_then(|number| b"TRWAGMYFPDXBNJZSQVHLCKE".get(number % 23));
    check.is_some() && check == word.as_bytes().get(8)
}

/// Whether the last letter of an Italian fiscal code is the check letter of the others (DM 23 December 1976).
fn fiscal_code(bytes: &[u8]) -> bool {
    const ODD: [u32; 26] = [
        1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24,
        23,
    ];
    let value =
        |byte: u8| usize::from(if byte.is_ascii_digit() { byte - b'0' } else { byte - b'A' });
    let each = bytes.iter().take(15).enumerate().map(|(at, byte)| match at % 2 {
        0 => ODD.get(value(*byte)).copied().unwrap_or_default(),
        _ => u32::try_from(value(*byte)).unwrap_or_default(),
    });
    let check = each.sum::<u32>() % 26;
    bytes.get(15).is_some_and(|last| u32::from(last - b'A') == check)
}

/// Whether a word is an identity number of Taiwan: the letter stands for two digits.
fn taiwanese(bytes: &[u8]) -> bool {
    const LETTERS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVXYWZIO";
    let Some(place) = bytes.first().and_then(|first| LETTERS.iter().position(|c| c == first))
    else {
        return false;
    };
    let number = u32::try_from(place).unwrap_or_default() + 10;
    let digits = bytes.iter().skip(1).map(|byte| u32::from(byte.wrapping_sub(b'0')));
    let weighed: u32 =
        digits.zip([8, 7, 6, 5, 4, 3, 2, 1, 1]).map(|(digit, weight)| digit * weight).sum();
    (number / 10 + number % 10 * 9 + weighed).is_multiple_of(10)
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
    let expected = iban_length(text.get(..2)?);
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
        if whole == 1 && Some(length) == expected {
            best = Some(end);
        }
    }
    best.filter(|best| *best == end || text.as_bytes().get(*best).is_some_and(|b| *b == b' '))
}

/// The length of the IBANs of a country (registry of ISO 13616).
fn iban_length(country: &str) -> Option<usize> {
    const LENGTHS: [(&str, usize); 33] = [
        ("NO", 15),
        ("BE", 16),
        ("DKFIFKFOGLNLSD", 18),
        ("MKSI", 19),
        ("ATBAEEKZLTLUMNXK", 20),
        ("CHHRLILV", 21),
        ("BGBHCRDEGBGEIEMERSVA", 22),
        ("AEGIILIQOMSOTL", 23),
        ("ADCZESMDPKROSASESKTNVG", 24),
        ("LYPTST", 25),
        ("ISTR", 26),
        ("BIDJFRGRITMCMRSM", 27),
        ("ALAZBYCYDOGTHNHULBNIPLSV", 28),
        ("BREGPSQAUA", 29),
        ("JOKWMUYE", 30),
        ("MTSC", 31),
        ("LC", 32),
        ("RU", 33),
        ("IR", 26),
        ("DZ", 26),
        ("AO", 25),
        ("BF", 28),
        ("BJ", 28),
        ("CG", 27),
        ("CI", 28),
        ("CM", 27),
        ("CV", 25),
        ("GA", 27),
        ("MA", 28),
        ("MG", 27),
        ("ML", 28),
        ("MZ", 25),
        ("SN", 28),
    ];
    let has = |countries: &str| countries.as_bytes().chunks(2).any(|one| one == country.as_bytes());
    LENGTHS.iter().find(|(countries, _)| has(countries)).map(|(_, length)| *length)
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
