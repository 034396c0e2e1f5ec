//! Identifies numbers of persons and accounts by their check digits, or by the words before them.

use super::LONGEST;

/// Fewest digits of a number that can be identified.
pub(super) const FEWEST: usize = 7;

/// A sequence of digits with its separators.
pub(super) struct Number<'a> {
    pub(super) text: &'a str,
    pub(super) digits: Vec<u8>,
    /// Number of digits in each group.
    groups: Vec<u8>,
}

impl<'a> Number<'a> {
    pub(super) fn at(text: &'a str, from: usize) -> Option<Self> {
        let bytes = text.as_bytes().get(from..)?;
        let (mut digits, mut groups, mut end, mut gap) = (Vec::new(), Vec::new(), 0, true);
        for (n, byte) in bytes.iter().take(LONGEST).enumerate() {
            match byte {
                b'0'..=b'9' => {
                    if gap {
                        groups.push(0);
                    }
                    gap = false;
                    digits.push(byte - b'0');
                    if let Some(last) = groups.last_mut() {
                        *last += 1;
                    }
                    end = n + 1;
                }
                b'+' if n == 0 => {}
                b'(' | b')' | b' ' | b'-' | b'.' => {
                    // A separator that is repeated ends the number.
                    let twice = n > 0 && bytes.get(n - 1) == Some(byte);
                    if twice {
                        break;
                    }
                    gap = true;
                }
                _ => break,
            }
        }
        // A letter directly behind it makes it something else.
        let next = bytes.get(end).copied().unwrap_or(b' ');
        let whole = !next.is_ascii_alphanumeric() && !matches!(next, b'_');
        (end > 0 && whole).then_some(())?;
        Some(Self { text: text.get(from..from + end)?, digits, groups })
    }

    /// This number without its last group; `None` if it has only one.
    pub(super) fn shorter(mut self) -> Option<Self> {
        let last = usize::from(self.groups.pop()?);
        (!self.groups.is_empty()).then_some(())?;
        self.digits.truncate(self.digits.len() - last);
        let text = self.text.get(..self.text.len() - last)?;
        Some(Self { text: text.trim_end_matches(['(', ')', ' ', '-', '.']), ..self })
    }

    fn is(&self, groups: &[u8]) -> bool {
        self.groups == groups
    }

    /// The number of digits in each group.
    pub(super) fn groups(&self) -> &[u8] {
        &self.groups
    }

    /// Whether the same characters, or those of a printed form, separate the groups.
    pub(super) fn is_uniform(&self) -> bool {
        self.separated_by(&[' '])
            || self.separated_by(&['-'])
            || self.separated_by(&['.'])
            || self.separated_by(&['.', '-'])
    }

    fn separated_by(&self, allowed: &[char]) -> bool {
        self.text.chars().all(|c| c.is_ascii_digit() || allowed.contains(&c))
    }

    fn weighed(&self, weights: &[u32]) -> u32 {
        self.digits.iter().zip(weights).map(|(digit, weight)| u32::from(*digit) * weight).sum()
    }

    fn value(&self, range: std::ops::Range<usize>) -> u32 {
        let digits = self.digits.get(range).unwrap_or_default();
        digits.iter().fold(0, |value, digit| value * 10 + u32::from(*digit))
    }

    /// Whether the digit after the weighted ones is 11 less their sum modulo 11, in its last decimal place.
    fn is_checked(&self, weights: &[u32]) -> bool {
        let check = (11 - self.weighed(weights) % 11) % 10;
        self.digits.get(weights.len()).is_some_and(|digit| u32::from(*digit) == check)
    }

    fn luhn(&self) -> bool {
        luhn(&self.digits)
    }

    fn is_card(&self) -> bool {
        is_card(&self.digits) && self.separated_by(&[' ', '-']) && self.groups.len() <= 5
    }
}

/// Whether the check digit is valid (ISO/IEC 7812-1 annex B).
pub(super) fn luhn(digits: &[u8]) -> bool {
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let each = digits.iter().rev().enumerate();
    let sum: u32 =
        each.map(|(n, d)| if n % 2 == 1 { doubled((*d).into()) } else { (*d).into() }).sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != 0)
}

/// Whether the digits begin like those of a card issuer (ISO/IEC 7812), and the check digit is valid.
pub(super) fn is_card(digits: &[u8]) -> bool {
    let first = digits.get(..4).unwrap_or_default();
    let four = first.iter().fold(0, |value, digit| value * 10 + u32::from(*digit));
    let issued = match digits.len() {
        13 | 19 => four / 1000 == 4 || four / 100 == 62 || four / 100 == 65,
        14 => matches!(four / 100, 36 | 38 | 39) || (3000..=3059).contains(&four),
        15 => matches!(four / 100, 34 | 37) || matches!(four, 2131 | 1800),
        16 => {
            four / 1000 == 4
                || (51..=55).contains(&(four / 100))
                || (2221..=2720).contains(&four)
                || four == 6011
                || (6440..=6599).contains(&four)
                || (3528..=3589).contains(&four)
                || matches!(four / 100, 50 | 56 | 57 | 58 | 62 | 63 | 67)
        }
        12 | 17 | 18 => matches!(four / 100, 50 | 56 | 57 | 58 | 62 | 63 | 67),
        _ => false,
    };
    issued && luhn(digits)
}

/// Shorter words must be words of their own, because they are parts of others.
const WHOLE: usize = 5;

/// Whether the text before a number has one of these words.
pub(super) fn says(before: &str, words: &[&str]) -> bool {
    let apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphabetic());
    // The text is short: comparing at each place costs less than preparing a search for each word.
    let places = |word: &str| {
        let first = word.as_bytes().first().copied();
        let begins = before.bytes().enumerate().filter(move |(_, byte)| Some(*byte) == first);
        begins.map(|(at, _)| at)
    };
    let has = |word: &str| {
        let found = |at: &usize| before.get(*at..).is_some_and(|rest| rest.starts_with(word));
        places(word).filter(found).any(|at| {
            let (head, tail) = (before.get(..at), before.get(at + word.len()..));
            let last = head.and_then(|head| head.chars().next_back());
            let next = tail.and_then(|tail| tail.chars().next());
            let plain = word.is_ascii() && word.len() < WHOLE;
            !plain || apart(last) && apart(next)
        })
    };
    words.iter().any(|word| has(word))
}

/// Whether the words directly before a number call it a passport's, as prose, a form and a member of JSON do.
fn names_passport(before: &str) -> bool {
    let words = before.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let filler = |word: &&str| matches!(*word, "is" | "no" | "nr" | "num" | "number" | "id");
    let last = words.rev().take(4).find(|word| !filler(word));
    last.is_some_and(|word| {
        let kind = word.strip_prefix("passport");
        matches!(kind, Some("" | "no" | "nr" | "num" | "number" | "id"))
    })
}

/// The rule of a number with the form and the check digits of an identifier.
pub(super) fn identifier(number: &Number<'_>, before: &str) -> Option<&'static str> {
    if number.is_card() {
        return Some("card-number");
    }
    match number.digits.len() {
        9 => of_nine(number, before),
        10 if number.separated_by(&[' ', '-']) => of_ten(number, before),
        11 => of_eleven(number, before),
        12.. => of_twelve_and_more(number, before),
        _ => None,
    }
}

/// The rule of an identifier of nine digits.
fn of_nine(number: &Number<'_>, before: &str) -> Option<&'static str> {
    let dashed = number.separated_by(&['-']) || number.separated_by(&[' ']);
    if number.is(&[3, 2, 4]) && dashed {
        let (area, group, serial) = (number.value(0..3), number.value(3..5), number.value(5..9));
        let itin = area >= 900 && (matches!(group, 50..=65 | 70..=88 | 90..=92 | 94..=99));
        if itin {
            return Some("us-itin");
        }
        if area != 0 && area != 666 && area < 900 && group != 0 && serial != 0 {
            return Some("us-ssn");
        }
    }
    if number.is(&[9]) && says(before, &["ssn", "social security"]) {
        return Some("us-ssn");
    }
    let grouped = number.is(&[3, 3, 3]) && dashed;
    let first = number.digits.first().copied().unwrap_or_default();
    if (grouped || says(before, &["sin", "social insurance"]))
        && !matches!(first, 0 | 8)
        && number.luhn()
    {
        return Some("ca-sin");
    }
    let tfn = number.weighed(&[1, 4, 3, 7, 5, 8, 6, 9, 10]).is_multiple_of(11);
    let spaced = number.is(&[3, 3, 3]) && number.separated_by(&[' ']);
    if tfn && (spaced || says(before, &["tfn", "tax file"])) {
        return Some("au-tfn");
    }
    let routed = number.weighed(&[3, 7, 1, 3, 7, 1, 3, 7, 1]).is_multiple_of(10);
    let district = matches!(number.value(0..2), 1..=12 | 21..=32 | 61..=72);
    if routed && district && (number.is(&[4, 4, 1]) || says(before, &["aba", "routing"])) {
        return Some("us-routing-number");
    }
    let acn = (10 - number.weighed(&[8, 7, 6, 5, 4, 3, 2, 1]) % 10) % 10
        == u32::from(*number.digits.get(8)?);
    if acn && says(before, &["acn", "company number"]) {
        return Some("au-acn");
    }
    // Some countries number passports without a letter. Nothing but these words tells such a number from others.
    let words = ["passport no", "passport num", "passport id", "passport #", "passport:"];
    if number.is(&[9]) && (says(before, &words) || names_passport(before)) {
        return Some("passport-number");
    }
    None
}

/// The rule of an identifier of ten digits.
fn of_ten(number: &Number<'_>, before: &str) -> Option<&'static str> {
    let nhs = (11 - number.weighed(&[10, 9, 8, 7, 6, 5, 4, 3, 2]) % 11) % 11;
    let checks = nhs == u32::from(*number.digits.get(9)?) && number.value(0..9) != 0;
    if checks && (number.is(&[3, 3, 4]) && number.separated_by(&[' ']) || says(before, &["nhs"])) {
        return Some("uk-nhs-number");
    }
    // With the century it may be a time ("20261127-1046") and needs a word that announces it.
    if number.is(&[6, 4]) && is_date(number.value(2..4), number.value(4..6)) && number.luhn() {
        return Some("se-personal-number");
    }
    let medicare =
        number.weighed(&[1, 3, 7, 9, 1, 3, 7, 9]) % 10 == u32::from(*number.digits.get(8)?);
    if medicare
        && (number.is(&[4, 5, 1]) || says(before, &["medicare"]))
        && (2..=6).contains(number.digits.first()?)
    {
        return Some("au-medicare-number");
    }
    None
}

/// What announces the number of a German taxpayer, with a blank for each sign between two words.
#[rustfmt::skip]
const GERMAN_TAX: &[&str] = &[
    "steuer id", "steuerid", "steueridentifikation", "steuerliche identifikation", "steuernummer", "idnr", "id nr", "tax id", "taxid", "tax identification",
    "tax number", "taxpayer", "tin", "german tax",
];

/// The rule of an identifier of eleven digits.
fn of_eleven(number: &Number<'_>, before: &str) -> Option<&'static str> {
    let digit = |at: usize| number.digits.get(at).copied().map_or(0, u32::from);
    if number.is(&[3, 3, 3, 2]) && number.text.contains('-') && cpf(number) {
        return Some("br-cpf");
    }
    let abn = number.weighed(&[10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19]);
    if number.is(&[2, 3, 3, 3]) && (abn + 79).is_multiple_of(89) && digit(0) > 0 {
        return Some("au-abn");
    }
    // Digits in one piece are the number of anything: an order, a moment, a parcel.
    if number.is(&[11]) {
        let pesel = (10 - number.weighed(&[1, 3, 7, 9, 1, 3, 7, 9, 1, 3]) % 10) % 10;
        let month = number.value(2..4) % 20;
        if pesel == digit(10) && is_date(month, number.value(4..6)) && says(before, &["pesel"]) {
            return Some("pl-pesel");
        }
        if german(number) && says(&before.replace(['-', '_'], " "), GERMAN_TAX) {
            return Some("de-tax-id");
        }
    }
    if number.is(&[6, 5])
        && is_date(number.value(2..4), number.value(0..2))
        && says(before, &["født", "fødsels", "personnummer"])
    {
        return Some("no-birth-number");
    }
    None
}

/// The rule of an identifier of twelve digits or more.
fn of_twelve_and_more(number: &Number<'_>, before: &str) -> Option<&'static str> {
    let length = number.digits.len();
    if length == 12
        && says(before, &["aadhaar", "uidai", "आधार"])
        && verhoeff(&number.digits)
        && *number.digits.first()? > 1
    {
        return Some("in-aadhaar");
    }
    // Numbers that were given since October 2020 have no check digit, so that they are recognised by the words alone.
    if length == 13
        && number.is(&[6, 7])
        && is_date(number.value(2..4), number.value(4..6))
        && number.text.contains('-')
        && (number.is_checked(&[2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5])
            || says(before, &["rrn", "resident registration", "주민"]))
    {
        return Some("kr-rrn");
    }
    if length == 13
        && number.is(&[1, 4, 5, 2, 1])
        && *number.digits.first()? > 0
        && (number.is_checked(&[13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2])
            || says(before, &["thai", "national id", "เลขประจำตัว", "บัตรประชาชน"]))
    {
        return Some("th-tnin");
    }
    if length == 15 && *number.digits.first()? < 3 && (1..=12).contains(&number.value(3..5)) {
        let key = number.digits.get(..13)?.iter().fold(0_u64, |v, d| (v * 10 + u64::from(*d)) % 97);
        if 97 - key == u64::from(number.value(13..15)) {
            return Some("fr-nir");
        }
    }
    None
}

/// The rule of a number that the text before it calls a bank account.
pub(super) fn bank_account(number: &Number<'_>, before: &str) -> Option<&'static str> {
    let length = number.digits.len();
    let is_one = (8..=17).contains(&length)
        && says(before, &["bank account", "account number", "account no", "acct"])
        && number.groups.len() == 1;
    is_one.then_some("bank-account")
}

/// Words that announce a telephone number.
const PHONES: [&str; 39] = [
    "phone",
    "telephone",
    "phones",
    "phone_number",
    "phonenumber",
    "tel",
    "mobile",
    "cell",
    "fax",
    "call",
    "dial",
    "whatsapp",
    "messages to",
    "sms",
    "contact",
    "telefon",
    "telefonnummer",
    "téléphone",
    "tél",
    "teléfono",
    "telefone",
    "telefono",
    "telefoon",
    "rufnummer",
    "handy",
    "mobil",
    "móvil",
    "celular",
    "cellulare",
    "komórka",
    "telefonu",
    "телефон",
    "тел",
    "cep",
    "电话",
    "電話",
    "手机",
    "전화",
    "هاتف",
];
/// Words directly before a number that make it something else.
const OTHERS: [&str; 26] = [
    "order",
    "invoice",
    "ticket",
    "case",
    "id",
    "ref",
    "reference",
    "sku",
    "article",
    "isbn",
    "ean",
    "upc",
    "version",
    "build",
    "port",
    "page",
    "zip",
    "account",
    "tracking",
    "issue",
    "bug",
    "commit",
    "serial",
    "item",
    "part",
    "rev",
];

/// Whether the word directly before a number says that it is another one.
fn names_other(before: &str) -> bool {
    let mut words =
        before.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).rev();
    let filler = |word: &&str| !matches!(*word, "no" | "nr" | "number" | "is" | "num");
    words.by_ref().take(3).find(filler).is_some_and(|word| OTHERS.contains(&word))
}

/// Whether a number is that of a telephone.
pub(super) fn phone(number: &Number<'_>, before: &str) -> bool {
    let length = number.digits.len();
    let groups = &number.groups;
    if number.text.starts_with('+') {
        // The code of the country has three digits at most; a number in one piece is no year.
        let code = groups.first().is_some_and(|first| *first <= 3 || *first >= 8);
        return (8..=15).contains(&length) && code && *number.digits.first().unwrap_or(&0) != 0;
    }
    // Behind a letter and a dash it is a part of an identifier.
    let mut back = before.chars().rev();
    if back.next() == Some('-') && back.next().is_some_and(char::is_alphanumeric)
        || names_other(before)
    {
        return false;
    }
    let named = says(before, &PHONES);
    if named && (7..=15).contains(&length) && !is_day(number) && groups.len() <= 6 {
        return true;
    }
    let north_american = matches!(groups.as_slice(), [3, 3, 4] | [1, 3, 3, 4])
        && number.digits.get(length - 10).is_some_and(|digit| *digit > 1)
        && !number.text.contains(". ");
    let bracketed =
        number.text.starts_with('(') && (9..=12).contains(&length) && number.text.contains(") ");
    let national = number.digits.first() == Some(&0)
        && (10..=12).contains(&length)
        && (3..=5).contains(&groups.len())
        && groups.first().is_some_and(|first| (2..=5).contains(first))
        && groups.as_slice() != [3, 3, 3]
        && number.separated_by(&[' '])
        && !is_day(number);
    north_american || bracketed || national
}

/// Whether it is a date or a time, and not a telephone number.
fn is_day(number: &Number<'_>) -> bool {
    let year = |range| (1900..2100).contains(&number.value(range));
    match number.groups.as_slice() {
        [4, 2, 2, ..] => year(0..4),
        [2, 2, 4, ..] => year(4..8),
        [1, 2, 4] | [2, 1, 4] => year(3..7),
        _ => false,
    }
}

const fn is_date(month: u32, day: u32) -> bool {
    month >= 1 && month <= 12 && day >= 1 && day <= 31
}

/// Whether both check digits of a CPF are valid (Receita Federal).
fn cpf(number: &Number<'_>) -> bool {
    let digit = |at: usize| number.digits.get(at).copied().map_or(0, u32::from);
    let check = |weights: &[u32]| match number.weighed(weights) * 10 % 11 {
        10 => 0,
        other => other,
    };
    check(&[10, 9, 8, 7, 6, 5, 4, 3, 2]) == digit(9)
        && check(&[11, 10, 9, 8, 7, 6, 5, 4, 3, 2]) == digit(10)
}

/// Whether the check digit of a German tax id is valid (ISO/IEC 7064 MOD 11,10), and at most one digit occurs two or
/// three times (section 139b AO).
fn german(number: &Number<'_>) -> bool {
    let Some((last, first)) = number.digits.split_last() else { return false };
    let mut counts = [0_u8; 10];
    for digit in first {
        if let Some(count) = counts.get_mut(usize::from(*digit)) {
            *count += 1;
        }
    }
    let repeated = counts.iter().filter(|count| **count > 1).count();
    let product = first.iter().fold(10, |product, digit| {
        let sum = (u32::from(*digit) + product) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    let check = (11 - product) % 10;
    let often = counts.iter().any(|count| *count > 3);
    first.first().is_some_and(|digit| *digit > 0)
        && repeated <= 1
        && !often
        && check == u32::from(*last)
}

/// Whether a Verhoeff check digit is valid (over the dihedral group of order ten).
fn verhoeff(digits: &[u8]) -> bool {
    const PERMUTED: [[u8; 10]; 8] = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        [1, 5, 7, 6, 2, 8, 3, 0, 9, 4],
        [5, 8, 0, 3, 7, 9, 6, 1, 4, 2],
        [8, 9, 1, 6, 0, 4, 3, 5, 2, 7],
        [9, 4, 5, 3, 1, 2, 6, 8, 7, 0],
        [4, 2, 8, 6, 5, 7, 3, 9, 0, 1],
        [2, 7, 9, 3, 8, 0, 6, 4, 1, 5],
        [7, 0, 4, 6, 9, 1, 3, 2, 5, 8],
    ];
    let product = |a: u8, b: u8| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => (a + b - 5) % 5 + 5,
        (false, true) => (a - 5 + 5 - b) % 5 + 5,
        (false, false) => (a + 5 - b) % 5,
    };
    let permuted = |n: usize, digit: u8| {
        PERMUTED.get(n % 8).and_then(|row| row.get(usize::from(digit))).copied().unwrap_or_default()
    };
    let digits = digits.iter().rev().enumerate();
    digits.fold(0, |check, (n, digit)| product(check, permuted(n, *digit))) == 0
}
