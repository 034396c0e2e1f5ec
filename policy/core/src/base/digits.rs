//! Decimal digits of all scripts.

/// The zero of each set of decimal digits (general category `Nd` of Unicode 16.0), in ascending order. Nine more digits
/// follow each.
const ZEROS: [char; 76] = [
    '\u{30}',
    '\u{660}',
    '\u{6f0}',
    '\u{7c0}',
    '\u{966}',
    '\u{9e6}',
    '\u{a66}',
    '\u{ae6}',
    '\u{b66}',
    '\u{be6}',
    '\u{c66}',
    '\u{ce6}',
    '\u{d66}',
    '\u{de6}',
    '\u{e50}',
    '\u{ed0}',
    '\u{f20}',
    '\u{1040}',
    '\u{1090}',
    '\u{17e0}',
    '\u{1810}',
    '\u{1946}',
    '\u{19d0}',
    '\u{1a80}',
    '\u{1a90}',
    '\u{1b50}',
    '\u{1bb0}',
    '\u{1c40}',
    '\u{1c50}',
    '\u{a620}',
    '\u{a8d0}',
    '\u{a900}',
    '\u{a9d0}',
    '\u{a9f0}',
    '\u{aa50}',
    '\u{abf0}',
    '\u{ff10}',
    '\u{104a0}',
    '\u{10d30}',
    '\u{10d40}',
    '\u{11066}',
    '\u{110f0}',
    '\u{11136}',
    '\u{111d0}',
    '\u{112f0}',
    '\u{11450}',
    '\u{114d0}',
    '\u{11650}',
    '\u{116c0}',
    '\u{116d0}',
    '\u{116da}',
    '\u{11730}',
    '\u{118e0}',
    '\u{11950}',
    '\u{11bf0}',
    '\u{11c50}',
    '\u{11d50}',
    '\u{11da0}',
    '\u{11f50}',
    '\u{16130}',
    '\u{16a60}',
    '\u{16ac0}',
    '\u{16b50}',
    '\u{16d70}',
    '\u{1ccf0}',
    '\u{1d7ce}',
    '\u{1d7d8}',
    '\u{1d7e2}',
    '\u{1d7ec}',
    '\u{1d7f6}',
    '\u{1e140}',
    '\u{1e2f0}',
    '\u{1e4f0}',
    '\u{1e5f1}',
    '\u{1e950}',
    '\u{1fbf0}',
];

/// The value of a decimal digit of any script: languages read the digits of all scripts as numbers, such as Python.
#[must_use]
pub fn decimal_digit(c: char) -> Option<u8> {
    let zero = *ZEROS.get(ZEROS.partition_point(|zero| *zero <= c).checked_sub(1)?)?;
    let value = u32::from(c) - u32::from(zero);
    u8::try_from(value).ok().filter(|value| *value < 10)
}

/// The ASCII digit for a decimal digit of any script; any other character as it is.
#[must_use]
pub fn with_ascii_digit(c: char) -> char {
    match c.is_ascii() {
        true => c,
        false => decimal_digit(c).map_or(c, |value| char::from(b'0' + value)),
    }
}

#[cfg(test)]
mod tests {
    use super::{ZEROS, decimal_digit, with_ascii_digit};

    #[test]
    fn a_digit_of_any_script_has_its_value() {
        assert!(ZEROS.is_sorted());
        for (c, value) in [
            ('0', Some(0)),
            ('9', Some(9)),
            ('/', None),
            (':', None),
            ('a', None),
            ('\u{663}', Some(3)),
            ('\u{66a}', None),
            ('\u{ff19}', Some(9)),
            ('\u{1d7d8}', Some(0)),
            ('\u{1d7ff}', Some(9)),
            ('\u{1d800}', None),
            ('\u{b2}', None),
            ('\u{2460}', None),
            ('\u{1fbf9}', Some(9)),
            (char::MAX, None),
        ] {
            assert_eq!(decimal_digit(c), value, "{c:?}");
        }
        let text: String = "card \u{664}\u{665}\u{666} é".chars().map(with_ascii_digit).collect();
        assert_eq!(text, "card 456 é");
    }
}
