//! Identity numbers of many countries: their groups, their check digits, and the words that announce them. One row a number.

use super::numbers::{Number, luhn, says};

/// An identity number that consists of digits.
struct NationalId {
    /// The rule that the finding names.
    rule: &'static str,
    /// The numbers of digits in its groups, in each way in which it is written.
    groups: &'static [&'static [u8]],
    /// Those of these ways that no word has to announce.
    alone: &'static [&'static [u8]],
    /// Whether the digits are those of such a number.
    is_valid: fn(&[u8]) -> bool,
    /// Words that announce it, in lower case.
    words: &'static [&'static str],
}

#[rustfmt::skip]
const IDS: &[NationalId] = &[
    NationalId { rule: "be-national-number", groups: &[&[11], &[2, 2, 2, 3, 2], &[6, 3, 2]], alone: &[&[2, 2, 2, 3, 2]],
        is_valid: belgian, words: &["rijksregister", "national number", "numéro national", "registre national", "insz", "niss", "nationalregister"] },
    NationalId { rule: "dk-cpr", groups: &[&[6, 4], &[10]], alone: &[], is_valid: |d| day_month(d), words: &["cpr", "personnummer", "dansk"] },
    NationalId { rule: "no-birth-number", groups: &[&[6, 5], &[11]], alone: &[&[6, 5]], is_valid: norwegian, words: &["fødsels", "personnummer", "født", "fnr", "d-nummer", "birth number"] },
    NationalId { rule: "se-personal-number", groups: &[&[10], &[12], &[8, 4], &[6, 4]], alone: &[], is_valid: swedish, words: &["personnummer", "samordningsnummer", "personal number", "swedish"] },
    NationalId { rule: "nl-bsn", groups: &[&[9], &[3, 3, 3], &[4, 2, 3]], alone: &[], is_valid: |d| sum(d, &[9, 8, 7, 6, 5, 4, 3, 2, 10]).is_multiple_of(11), words: &["bsn", "burgerservice", "sofi", "citizen service number"] },
    NationalId { rule: "pl-nip", groups: &[&[10], &[3, 3, 2, 2], &[3, 2, 2, 3]], alone: &[], is_valid: |d| sum(d, &[6, 5, 7, 2, 3, 4, 5, 6, 7]) % 11 == last(d), words: &["nip"] },
    NationalId { rule: "pl-pesel", groups: &[&[11]], alone: &[], is_valid: |d| (10 - sum(d, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3]) % 10) % 10 == last(d), words: &["pesel"] },
    NationalId { rule: "pt-nif", groups: &[&[9], &[3, 3, 3]], alone: &[], is_valid: portuguese, words: &["nif", "contribuinte", "nipc", "número fiscal"] },
    NationalId { rule: "ch-ahv", groups: &[&[13], &[3, 4, 4, 2]], alone: &[&[3, 4, 4, 2], &[13]], is_valid: swiss, words: &["ahv", "avs", "navs"] },
    NationalId { rule: "at-social-insurance", groups: &[&[10], &[4, 6]], alone: &[], is_valid: austrian, words: &["svnr", "sozialversicherung", "versicherungsnummer", "sv-nummer"] },
    NationalId { rule: "tr-tckn", groups: &[&[11]], alone: &[], is_valid: turkish, words: &["kimlik", "tckn", "tc no", "t.c.", "turkish id"] },
    NationalId { rule: "br-cpf", groups: &[&[11], &[3, 3, 3, 2]], alone: &[], is_valid: |d| brazilian(d, 9), words: &["cpf"] },
    NationalId { rule: "br-cnpj", groups: &[&[14]], alone: &[], is_valid: |d| brazilian(d, 12), words: &["cnpj"] },
    NationalId { rule: "cn-resident-id", groups: &[&[18]], alone: &[&[18]], is_valid: chinese, words: &[] },
    NationalId { rule: "kr-rrn", groups: &[&[13]], alone: &[], is_valid: |d| month_day(d.get(2..).unwrap_or_default()), words: &["rrn", "resident registration", "주민"] },
    NationalId { rule: "jp-my-number", groups: &[&[12], &[4, 4, 4]], alone: &[], is_valid: japanese, words: &["my number", "マイナンバー", "個人番号", "mynumber"] },
    NationalId { rule: "za-id", groups: &[&[13], &[6, 4, 3]], alone: &[], is_valid: south_african, words: &["south african", "id number", "identity number", "rsa id", "sa id", "id no"] },
    NationalId { rule: "us-npi", groups: &[&[10]], alone: &[], is_valid: american_provider, words: &["npi", "national provider"] },
    NationalId { rule: "gr-amka", groups: &[&[11]], alone: &[], is_valid: |d| day_month(d) && luhn(d), words: &["amka", "αμκα"] },
    NationalId { rule: "ro-cnp", groups: &[&[13]], alone: &[], is_valid: |d| sum(d, &[2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9]) % 11 % 10 == last(d), words: &["cnp", "cod numeric"] },
    NationalId { rule: "bg-egn", groups: &[&[10]], alone: &[], is_valid: |d| sum(d, &[2, 4, 8, 5, 10, 9, 7, 3, 6]) % 11 % 10 == last(d), words: &["egn", "егн"] },
    NationalId { rule: "hr-oib", groups: &[&[11]], alone: &[], is_valid: iso_7064, words: &["oib"] },
    NationalId { rule: "hu-taj", groups: &[&[9], &[3, 3, 3]], alone: &[], is_valid: |d| sum(d, &[3, 7, 3, 7, 3, 7, 3, 7]) % 10 == last(d), words: &["taj"] },
    NationalId { rule: "lt-personal-code", groups: &[&[11]], alone: &[], is_valid: baltic, words: &["asmens kod", "isikukood", "personal code"] },
    NationalId { rule: "ru-snils", groups: &[&[11], &[3, 3, 3, 2]], alone: &[], is_valid: |d| sum(d, &[9, 8, 7, 6, 5, 4, 3, 2, 1]) % 101 % 100 == pair(d, 9), words: &["снилс", "snils"] },
    NationalId { rule: "ru-inn", groups: &[&[12]], alone: &[], is_valid: |d| sum(d, &[7, 2, 4, 10, 3, 5, 9, 4, 6, 8]) % 11 % 10 == digit(d, 10), words: &["инн", "inn"] },
    NationalId { rule: "ua-tax-number", groups: &[&[10]], alone: &[], is_valid: |_| true, words: &["рнокпп", "ідентифікаційний", "іпн"] },
    NationalId { rule: "il-id", groups: &[&[9]], alone: &[], is_valid: luhn, words: &["teudat", "israeli id", "תעודת זהות"] },
    NationalId { rule: "cl-rut", groups: &[&[9], &[8, 1], &[2, 3, 3, 1], &[7, 1], &[1, 3, 3, 1]], alone: &[], is_valid: chilean, words: &["rut", "r.u.t", "rol único"] },
    NationalId { rule: "ar-cuit", groups: &[&[11], &[2, 8, 1]], alone: &[&[2, 8, 1]], is_valid: |d| (11 - sum(d, &[5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) % 11) % 11 == last(d), words: &["cuit", "cuil"] },
    NationalId { rule: "co-cedula", groups: &[&[8], &[10], &[2, 3, 3], &[1, 3, 3, 3]], alone: &[], is_valid: |_| true, words: &["cédula", "cedula"] },
    NationalId { rule: "my-nric", groups: &[&[12], &[6, 2, 4]], alone: &[&[6, 2, 4]], is_valid: |d| month_day(d.get(2..).unwrap_or_default()), words: &["mykad", "nric", "kad pengenalan"] },
    NationalId { rule: "id-nik", groups: &[&[16]], alone: &[], is_valid: |_| true, words: &["nik", "ktp"] },
    NationalId { rule: "pk-cnic", groups: &[&[13], &[5, 7, 1]], alone: &[&[5, 7, 1]], is_valid: |d| digit(d, 0) > 0, words: &["cnic"] },
    NationalId { rule: "ng-nin", groups: &[&[11]], alone: &[], is_valid: |_| true, words: &["national identification number", "nigerian", "nin", "bvn"] },
    NationalId { rule: "nz-ird", groups: &[&[9], &[3, 3, 3]], alone: &[], is_valid: |d| (11 - sum(d, &[3, 2, 7, 6, 5, 4, 3, 2]) % 11) % 11 == last(d), words: &["ird"] },
    NationalId { rule: "uk-utr", groups: &[&[10], &[5, 5]], alone: &[], is_valid: |_| true, words: &["utr", "unique taxpayer"] },
    NationalId { rule: "in-aadhaar", groups: &[&[12], &[4, 4, 4]], alone: &[], is_valid: |d| digit(d, 0) > 1, words: &["aadhaar", "आधार"] },
];

/// The words that announce the numbers of this table.
pub(super) fn announcing() -> impl Iterator<Item = &'static str> {
    IDS.iter().flat_map(|id| id.words).copied()
}

/// The rule of an identity number.
pub(super) fn identify(number: &Number<'_>, before: &str) -> Option<&'static str> {
    let written = number.groups();
    let fits = |id: &&NationalId| {
        let alone = id.alone.contains(&written) && number.is_uniform();
        id.groups.contains(&written)
            && (id.is_valid)(&number.digits)
            && (alone || says(before, id.words))
    };
    IDS.iter().find(fits).map(|id| id.rule)
}

/// Whether 17 digits and a letter are a Chinese identity number, whose check digit may be an X.
pub(super) fn is_chinese_with_letter(digits: &[u8]) -> bool {
    chinese_check(digits) == Some(2) && chinese_birth(digits)
}

fn digit(digits: &[u8], at: usize) -> u32 {
    digits.get(at).copied().map_or(0, u32::from)
}

fn last(digits: &[u8]) -> u32 {
    digits.last().copied().map_or(0, u32::from)
}

/// The number that two digits are.
fn pair(digits: &[u8], at: usize) -> u32 {
    digit(digits, at) * 10 + digit(digits, at + 1)
}

/// The sum of the digits with these weights.
fn sum(digits: &[u8], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(digit, weight)| u32::from(*digit) * weight).sum()
}

fn value(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| value * 10 + u64::from(*digit))
}

fn month_day(digits: &[u8]) -> bool {
    (1..=12).contains(&pair(digits, 0)) && (1..=31).contains(&pair(digits, 2))
}

fn day_month(digits: &[u8]) -> bool {
    (1..=31).contains(&pair(digits, 0)) && (1..=12).contains(&pair(digits, 2))
}

/// The check digits of persons born since 2000 are computed with a 2 in front.
fn belgian(digits: &[u8]) -> bool {
    let number = value(digits.get(..9).unwrap_or_default());
    let check = u64::from(pair(digits, 9));
    97 - number % 97 == check || 97 - (2_000_000_000 + number) % 97 == check
}

fn norwegian(digits: &[u8]) -> bool {
    let check = |weights: &[u32]| (11 - sum(digits, weights) % 11) % 11;
    let born = digit(digits, 0) % 4 * 10 + digit(digits, 1);
    (1..=31).contains(&born)
        && check(&[3, 7, 6, 1, 8, 9, 4, 5, 2]) == digit(digits, 9)
        && check(&[5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) == digit(digits, 10)
}

/// With or without the century. The day of a coordination number is 60 greater.
fn swedish(digits: &[u8]) -> bool {
    let short = digits.get(digits.len().saturating_sub(10)..).unwrap_or_default();
    let day = pair(short, 4) % 60;
    (1..=12).contains(&pair(short, 2)) && (1..=31).contains(&day) && luhn(short)
}

fn portuguese(digits: &[u8]) -> bool {
    let check = 11 - sum(digits, &[9, 8, 7, 6, 5, 4, 3, 2]) % 11;
    (if check > 9 { 0 } else { check }) == last(digits) && digit(digits, 0) > 0
}

/// The check digit is that of an EAN-13.
fn swiss(digits: &[u8]) -> bool {
    digits.starts_with(&[7, 5, 6])
        && (10 - sum(digits, &[1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3]) % 10) % 10 == last(digits)
}

fn austrian(digits: &[u8]) -> bool {
    let check = sum(digits, &[3, 7, 9, 0, 5, 8, 4, 2, 1, 6]) % 11;
    check == digit(digits, 3) && day_month(digits.get(4..).unwrap_or_default())
}

fn turkish(digits: &[u8]) -> bool {
    let odd = sum(digits, &[1, 0, 1, 0, 1, 0, 1, 0, 1]);
    let even = sum(digits, &[0, 1, 0, 1, 0, 1, 0, 1]);
    let tenth = (odd * 7 + 10 * even - even) % 10;
    digit(digits, 0) > 0
        && tenth == digit(digits, 9)
        && (odd + even + tenth) % 10 == digit(digits, 10)
}

/// Both check digits behind the first `length` digits.
fn brazilian(digits: &[u8], length: usize) -> bool {
    let check = |of: &[u8]| {
        // A CPF has weights up to 11, those of a CNPJ begin again behind 9.
        let most = if length == 9 { 11 } else { 9 };
        let weights = (2..=most).cycle();
        let all: u32 =
            of.iter().rev().zip(weights).map(|(digit, weight)| u32::from(*digit) * weight).sum();
        all * 10 % 11 % 10
    };
    let head = digits.get(..length).unwrap_or_default();
    let more = digits.get(..=length).unwrap_or_default();
    check(head) == digit(digits, length)
        && check(more) == digit(digits, length + 1)
        && digits.windows(2).any(|two| matches!(two, [a, b] if a != b))
}

/// A CNPJ as it is printed: `12.345.678/0001-95`; its length in bytes.
pub(super) fn printed_cnpj(text: &str) -> Option<usize> {
    const FORM: &str = "99.999.999/9999-99";
    let bytes = text.as_bytes().get(..FORM.len())?;
    let fits = bytes.iter().zip(FORM.bytes()).all(|(byte, form)| match form {
        b'9' => byte.is_ascii_digit(),
        sign => *byte == sign,
    });
    let digits: Vec<u8> = bytes.iter().filter(|b| b.is_ascii_digit()).map(|b| b - b'0').collect();
    (fits && brazilian(&digits, 12)).then_some(FORM.len())
}

/// The remainder that the check digit of a Chinese identity number stands for (GB 11643, ISO/IEC 7064 MOD 11-2).
fn chinese_check(digits: &[u8]) -> Option<u32> {
    let first = digits.get(..17)?;
    Some(sum(first, &[7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2]) % 11)
}

fn chinese_birth(digits: &[u8]) -> bool {
    let century = pair(digits, 6);
    matches!(century, 19 | 20)
        && month_day(digits.get(10..).unwrap_or_default())
        && digit(digits, 0) > 0
}

fn chinese(digits: &[u8]) -> bool {
    const CHECK: [u32; 11] = [1, 0, 10, 9, 8, 7, 6, 5, 4, 3, 2];
    let check = chinese_check(digits).and_then(|rest| CHECK.get(usize::try_from(rest).ok()?));
    check == Some(&last(digits)) && chinese_birth(digits)
}

fn japanese(digits: &[u8]) -> bool {
    let rest = sum(digits, &[6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) % 11;
    (if rest <= 1 { 0 } else { 11 - rest }) == last(digits)
}

fn south_african(digits: &[u8]) -> bool {
    month_day(digits.get(2..).unwrap_or_default()) && digit(digits, 10) <= 2 && luhn(digits)
}

/// The Luhn check digit is computed with the prefix of the issuer.
fn american_provider(digits: &[u8]) -> bool {
    let whole: Vec<u8> = [8, 0, 8, 4, 0].into_iter().chain(digits.iter().copied()).collect();
    luhn(&whole)
}

/// ISO/IEC 7064 MOD 11,10.
fn iso_7064(digits: &[u8]) -> bool {
    let Some((check, first)) = digits.split_last() else { return false };
    let product = first.iter().fold(10, |product, digit| {
        let sum = (u32::from(*digit) + product) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    (11 - product) % 10 == u32::from(*check)
}

fn baltic(digits: &[u8]) -> bool {
    let first = sum(digits, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 1]) % 11;
    let second = sum(digits, &[3, 4, 5, 6, 7, 8, 9, 1, 2, 3]) % 11 % 10;
    (if first < 10 { first } else { second }) == last(digits)
}

fn chilean(digits: &[u8]) -> bool {
    let Some((check, first)) = digits.split_last() else { return false };
    let all: u32 = first
        .iter()
        .rev()
        .zip((2..=7).cycle())
        .map(|(digit, weight)| u32::from(*digit) * weight)
        .sum();
    (11 - all % 11) % 11 == u32::from(*check)
}
