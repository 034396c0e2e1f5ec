//! Tells generated values from words, by what is usual in their alphabet.

use std::sync::LazyLock;

use super::{is_mixed, is_reference};

/// Share of the greatest entropy that a generated value of this length has at least.
const SHARE: f64 = 0.7;

/// Whether a value looks generated. The more characters an alphabet has, the more a generated value differs from word to
/// word: hexadecimal digits, digits and letters of one case, and base64 have a limit each.
pub(super) fn looks_generated(value: &str) -> bool {
    let count = |is: fn(&u8) -> bool| value.bytes().filter(is).count();
    let (digits, lower) = (count(u8::is_ascii_digit), count(u8::is_ascii_lowercase));
    let upper = count(u8::is_ascii_uppercase);
    let letters = lower + upper;
    let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.+/=~%:!$".contains(&b));
    if !plain || letters + digits < value.len() * 3 / 4 || is_reference(value) {
        return false;
    }
    let hex = value.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let alphabet = match (hex, lower > 0 && upper > 0) {
        (true, _) => 16.0,
        (false, false) => 36.0,
        (false, true) => 62.0,
    };
    let enough = match (hex, lower > 0 && upper > 0) {
        (true, _) => digits >= 3 && letters >= 2,
        (false, false) => digits >= 3 && letters >= 3,
        (false, true) => digits >= 2 || value.len() >= 24 && is_mixed(value),
    };
    let words = !hex && is_worded(value);
    enough && !words && entropy(value) >= SHARE * greatest(value, alphabet)
}

/// Shannon entropy of the characters, in bits for each.
fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
    }
    let length = value.bytes().fold(0.0_f64, |sum, _| sum + 1.0);
    let share = |count: &u32| f64::from(*count) / length;
    counts.iter().filter(|count| **count > 0).map(|c| -share(c) * share(c).log2()).sum()
}

/// The greatest entropy of a value of this length in an alphabet.
fn greatest(value: &str, alphabet: f64) -> f64 {
    let length = value.bytes().fold(0.0_f64, |sum, _| sum + 1.0);
    length.min(alphabet).log2()
}

/// The most frequent pairs of letters of English words and of names in programs, two letters each.
const PAIRS: &[u8] = b"thheineranreonatenndtiesorteofedisitalarsttontngsehaasouiolevecomedehiriroicneearacelichllbemasiomur\
    caeltalansdifohopeecprnoctusacotiltrlyncetutsssorsunlowageiewheewiemadolrtpowenaulnitsmoowpaimmiaish\
    irsuidosiviaamficivipligtuevldrympfeblabghtyopwosaayexkefroo";
/// Fewest frequent pairs of a value that consists of words.
const FEWEST: usize = 5;

/// For each letter, the letters that follow it in [`PAIRS`], one bit each.
static FREQUENT: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let following = |first: u8| {
        let pairs = PAIRS.chunks_exact(2).filter(|pair| pair.first() == Some(&first));
        pairs.filter_map(|pair| pair.last()).fold(0, |bits, next| bits | 1 << (next - b'a'))
    };
    (b'a'..=b'z').map(following).collect()
});

/// Whether a value consists of words, as the name of a type or of a file does: three of five pairs of letters are frequent
/// ones. Of generated values of 20 characters that is so for one of 150.
pub(super) fn is_worded(value: &str) -> bool {
    let (mut pairs, mut frequent) = (0, 0);
    for pair in value.as_bytes().windows(2) {
        let [before, next] = pair else { continue };
        if goes_on(*before, *next) {
            pairs += 1;
            frequent += usize::from(is_frequent(*before, *next));
        }
    }
    frequent >= FEWEST && frequent * 5 >= pairs * 3 && pairs * 3 >= value.len()
}

/// Whether two letters are of one word: both of one case, or a capital in front.
const fn goes_on(before: u8, next: u8) -> bool {
    before.is_ascii_alphabetic()
        && (next.is_ascii_lowercase() || before.is_ascii_uppercase() && next.is_ascii_uppercase())
}

fn is_frequent(before: u8, next: u8) -> bool {
    let place = |letter: u8| letter.to_ascii_lowercase().wrapping_sub(b'a');
    let following = FREQUENT.get(usize::from(place(before))).copied().unwrap_or_default();
    following & 1 << (place(next) % 32) != 0
}

#[cfg(test)]
mod tests {
    use super::{is_worded, looks_generated};

    #[test]
    fn names_are_told_from_generated_values() {
        for name in [
            "metric.Int64Counter",
            "apiv1beta1bearertokenconfig",
            "Ed25519PrivateKey",
            "PersonalAccessToken01245678900000000",
            "win32api.RegOpenKeyEx",
        ] {
            assert!(is_worded(name), "{name}");
            assert!(!looks_generated(name), "{name}");
        }
        for value in [
            "9f8e7d6c5b4a39281706f5e4d3c2b1a0",
            "abcdefghijklmnopqrstuvwxyz123456",
            "x7Kq2mVt9LpRz4WbN8sY",
            "abcd1234ABCD5678efgh9012EFGH3456",
            "nmaqhbb63zabja7tesiydcfuvu",
        ] {
            assert!(looks_generated(value), "{value}");
        }
    }
}
