//! Tells numbers that vendors and authorities publish as examples from those of persons.

use super::numbers::Number;
use crate::secrets::found::{FoundValue, ValueClass};

/// The rule of a number that stands in place of one.
const PLACEHOLDER: &str = "placeholder";

/// Card numbers that payment services document for tests, sorted.
#[rustfmt::skip]
const CARDS: [&str; 30] = [
    "2223003122003222", "3056930009020004", "30569309025904", "3530111333300000", "3566002020360505", "36227206271667", "371449635398431", "378282246310005", "378734493671000", "38520000023237", "4000000000000002", "4000000000000077", "4000000000003220", "4000000000009995", "4000002500003155", "4000002760003184", "4000056655665556", "4012888888881881", "4111111111111111", "4222222222222", "4242424242424242", "5105105105105100", "5200828282828210", "5424000000000015", "5555555555554444", "6011000990139424", "6011111111111117", "6200000000000005", "6304000000000000", "6555900000604105",
];
/// Social security numbers that were printed in advertisements, or are customary in examples.
const SOCIAL: [&str; 5] = ["078051120", "123456789", "219099999", "457555462", "987654321"];
/// The first digits of telephone numbers that are reserved for films and documentations, behind the code of the country.
#[rustfmt::skip]
const RESERVED: [&str; 10] = [
    "1134960", "1144960", "1154960", "1164960", "1174960", "1214960", "1632960", "2079460", "7700900", "8081570",
];

/// The class and the rule of an identified number: an example is a placeholder.
pub(super) fn told_apart(
    number: &Number<'_>,
    class: ValueClass,
    rule: &'static str,
) -> (ValueClass, &'static str) {
    let digits: String = number.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
    let example = match rule {
        "card-number" => is_test_card(&digits),
        "us-ssn" => SOCIAL.contains(&&*digits),
        "phone-number" => is_reserved(&digits),
        _ => false,
    };
    if example { (ValueClass::Placeholder, PLACEHOLDER) } else { (class, rule) }
}

/// A card number as it was found, as a placeholder if it is one for tests.
pub(super) fn card(digits: &[u8], from: usize, end: usize) -> FoundValue {
    let text: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
    if is_test_card(&text) {
        return FoundValue::new(ValueClass::Placeholder, PLACEHOLDER, from, end);
    }
    FoundValue::new(ValueClass::Identifier, "card-number", from, end)
}

fn is_test_card(digits: &str) -> bool {
    CARDS.binary_search(&digits).is_ok()
}

/// Whether a telephone number is reserved for fiction: 555-0100 to 555-0199 in North America, and some of Great Britain.
fn is_reserved(digits: &str) -> bool {
    let american = digits.len().checked_sub(7).and_then(|at| digits.get(at..));
    let american = american.is_some_and(|line| line.starts_with("55501"))
        && (matches!(digits.len(), 7 | 10) || digits.len() == 11 && digits.starts_with('1'));
    let home = digits.strip_prefix("44").unwrap_or(digits).trim_start_matches('0');
    american || home.len() == 10 && RESERVED.iter().any(|begins| home.starts_with(begins))
}

#[cfg(test)]
mod tests {
    use super::{CARDS, is_reserved};

    #[test]
    fn the_cards_are_in_order() {
        assert!(CARDS.is_sorted());
    }

    #[test]
    fn only_reserved_numbers_are_examples() {
        for digits in
            ["5550142", "2125550187", "12025550143", "442079460123", "02079460999", "07700900123"]
        {
            assert!(is_reserved(digits), "{digits}");
        }
        for digits in ["5551142", "2125560187", "442079461123", "4930901820"] {
            assert!(!is_reserved(digits), "{digits}");
        }
    }
}
