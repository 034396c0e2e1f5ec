//! Writes JSON in canonical form (RFC 8785), so that equal values have equal bytes.

use super::{JsonKind, Value};

/// A number that canonical form would change: the spellings of two different numbers would become
/// equal (RFC 8785 section 3.2.2.3 writes every number as an IEEE 754 double).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a number in it does not survive canonical form")]
pub struct InexactNumber;

/// Appends `value` in canonical form.
///
/// INVARIANT: the depth of a document is bounded, so the recursion is.
///
/// # Errors
/// When a number in it has no exact canonical form.
pub fn write_canonical(out: &mut Vec<u8>, value: Value<'_>) -> Result<(), InexactNumber> {
    match value.kind() {
        JsonKind::Null | JsonKind::Boolean => out.extend_from_slice(value.raw().as_bytes()),
        JsonKind::Number => {
            out.extend_from_slice(number(value.raw()).ok_or(InexactNumber)?.as_bytes())
        }
        JsonKind::Plain | JsonKind::Escaped => {
            write_canonical_string(out, &value.as_str().unwrap_or_default())
        }
        JsonKind::Array => {
            out.push(b'[');
            for (n, item) in value.items().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                write_canonical(out, item)?;
            }
            out.push(b']');
        }
        JsonKind::Object => {
            let mut members: Vec<_> = value.members().collect();
            members.sort_by(|(one, _), (other, _)| by_units(one, other));
            out.push(b'{');
            for (n, (key, member)) in members.into_iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                write_canonical_string(out, &key);
                out.push(b':');
                write_canonical(out, member)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// The order of names in canonical form: by UTF-16 code units (RFC 8785 section 3.2.3).
#[must_use]
pub fn by_units(one: &str, other: &str) -> std::cmp::Ordering {
    // For ASCII, the order of bytes is that of code units.
    if one.is_ascii() && other.is_ascii() {
        return one.cmp(other);
    }
    one.encode_utf16().cmp(other.encode_utf16())
}

/// Appends `text` as a string with the escapes of canonical form.
pub fn write_canonical_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut done = 0;
    for (at, byte) in text.bytes().enumerate().filter(|(_, b)| *b < b' ' || b"\"\\".contains(b)) {
        out.extend_from_slice(text.as_bytes().get(done..at).unwrap_or_default());
        done = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x09 => out.extend_from_slice(b"\\t"),
            0x0a => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            0x0d => out.extend_from_slice(b"\\r"),
            other => out.extend_from_slice(format!("\\u{other:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(text.as_bytes().get(done..).unwrap_or_default());
    out.push(b'"');
}

/// A number as ECMAScript writes it (ECMA-262, Number::toString); `None` if that is another number.
fn number(spelled: &str) -> Option<String> {
    let value: f64 = spelled.parse().ok().filter(|value: &f64| value.is_finite())?;
    // `{:e}` has the fewest digits that read back as the same double: `-1.5e-7`.
    let shortest = format!("{:e}", value.abs());
    let (digits, exponent) = shortest.split_once('e')?;
    let digits: String = digits.chars().filter(|digit| *digit != '.').collect();
    let exponent: i32 = exponent.parse().ok()?;
    if value == 0.0 {
        return (decimal(spelled)?.0.is_empty()).then(|| "0".to_owned());
    }
    let trimmed = digits.trim_end_matches('0').to_owned();
    if decimal(spelled)? != (trimmed, i64::from(exponent)) {
        return None;
    }
    let count = i32::try_from(digits.len()).ok()?;
    let point = exponent + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    let text = if count <= point && point <= 21 {
        format!("{digits}{}", zeros(point - count))
    } else if 0 < point && point <= 21 {
        let (whole, part) = digits.split_at_checked(usize::try_from(point).ok()?)?;
        format!("{whole}.{part}")
    } else if -6 < point && point <= 0 {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let (first, rest) = digits.split_at_checked(1)?;
        let dot = if rest.is_empty() { "" } else { "." };
        format!("{first}{dot}{rest}e{sign}{}", exponent.unsigned_abs())
    };
    Some(if value < 0.0 { format!("-{text}") } else { text })
}

/// The digits of the integer that readers with doubles make of a number whose fraction is too small for a double, without
/// its sign: `4.0000000000000000001` is 4 for them. `None` for every other number, also for one that is too small for a double:
/// all readers make 0 of it.
#[must_use]
pub fn rounded_to_integer(spelled: &str) -> Option<String> {
    if !spelled.contains(['.', 'e', 'E']) {
        return None;
    }
    // A double tells numbers of so many digits apart, also from integers.
    let mantissa = spelled.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
    if mantissa.filter(u8::is_ascii_digit).count() <= f64::DIGITS as usize {
        return None;
    }
    let (digits, first) = decimal(spelled)?;
    let has_fraction = i64::try_from(digits.len()).ok()? > first.saturating_add(1);
    let value: f64 = spelled.parse().ok()?;
    let is_integer = value.is_finite() && value.fract() == 0.0 && value != 0.0;
    (has_fraction && is_integer).then(|| format!("{:.0}", value.abs()))
}

/// The magnitude of a spelled number: its significant digits without zeros around them, and the power of
/// ten of the first. Zero has no digits.
fn decimal(spelled: &str) -> Option<(String, i64)> {
    let spelled = spelled.strip_prefix('-').unwrap_or(spelled);
    let (mantissa, exponent) = spelled.split_once(['e', 'E']).unwrap_or((spelled, "0"));
    let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{part}");
    let digits = all.trim_start_matches('0');
    if digits.is_empty() {
        return Some((String::new(), 0));
    }
    let leading = all.len() - digits.len();
    let first = i64::try_from(whole.len()).ok()? - i64::try_from(leading).ok()? - 1;
    Some((digits.trim_end_matches('0').to_owned(), exponent.checked_add(first)?))
}

#[cfg(test)]
mod tests {
    use super::{InexactNumber, number, rounded_to_integer, write_canonical};

    #[test]
    fn a_fraction_that_a_double_has_no_room_for_is_seen() {
        for (spelled, read) in [
            ("5", None),
            ("9007199254740993", None),
            ("5.0", None),
            ("-0.0e9", None),
            ("1.5e3", None),
            ("0.1", None),
            ("0.10000000000000000555", None),
            ("4503599627370495.5", None),
            ("5.00000000000000000000001", Some("5")),
            ("-4.99999999999999999999999", Some("5")),
            ("4556737586899855.0000000000001", Some("4556737586899855")),
            ("4556737586899854.9", Some("4556737586899855")),
            ("4.5567375868998550000000000001e15", Some("4556737586899855")),
            ("1e-400", None),
            ("1e999", None),
        ] {
            assert_eq!(rounded_to_integer(spelled).as_deref(), read, "{spelled}");
        }
    }

    use crate::{Document, JsonBounds};
    use bytes::Bytes;
    use proptest::prelude::*;

    fn canonical(text: &str) -> Result<String, InexactNumber> {
        let document = Document::parse(Bytes::from(text.to_owned()), &JsonBounds::MESSAGE).unwrap();
        let mut out = Vec::new();
        write_canonical(&mut out, document.root())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_example_of_the_rfc() {
        let text = r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#;
        // Its first number has more digits than a double holds, which is refused here.
        assert_eq!(canonical(text), Err(InexactNumber));
        let text = text.replace("333333333.33333329", "333333333.3333333");
        let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\"string\":\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        assert_eq!(canonical(&text).unwrap(), expected);
    }

    #[test]
    fn names_are_in_the_order_of_utf_16() {
        let text = "{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,\"\\u00f6\":7}";
        let order: Vec<_> = canonical(text)
            .unwrap()
            .chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
            .chars()
            .collect();
        // The key `1` itself is a digit too.
        assert_eq!(order, ['2', '1', '4', '6', '7', '1', '5', '3']);
    }

    #[test]
    fn numbers_are_as_ecmascript_writes_them_or_refused() {
        for (spelled, written) in [
            ("0", Some("0")),
            ("-0", Some("0")),
            ("0.0e5", Some("0")),
            ("1.0", Some("1")),
            ("-10", Some("-10")),
            ("1e21", Some("1e+21")),
            ("1e20", Some("100000000000000000000")),
            ("123456789012345680000", Some("123456789012345680000")),
            ("1e-6", Some("0.000001")),
            ("1e-7", Some("1e-7")),
            ("1.5e-7", Some("1.5e-7")),
            ("9007199254740992", Some("9007199254740992")),
            ("9007199254740993", None),
            ("0.1000000000000000055", None),
            ("1e400", None),
            ("1e-400", None),
            ("1.7976931348623157e308", Some("1.7976931348623157e+308")),
            ("5e-324", Some("5e-324")),
        ] {
            assert_eq!(number(spelled).as_deref(), written, "{spelled}");
        }
    }

    proptest! {
        #[test]
        fn a_double_survives(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
            let text = number(&format!("{value:e}")).unwrap();
            prop_assert_eq!(text.parse::<f64>().unwrap(), value);
            let again = number(&text).unwrap();
            prop_assert_eq!(again, text);
        }

        #[test]
        fn writing_again_changes_nothing(text in "[ -~é€😀\\u{0}-\\u{1f}]{0,20}", n in any::<i32>()) {
            let mut quoted = Vec::new();
            super::super::write_string(&mut quoted, &text);
            let quoted = String::from_utf8(quoted).unwrap();
            let once = canonical(&format!("{{ \"b\": [{n}, {quoted}], \"a\": {{}} }}")).unwrap();
            prop_assert_eq!(canonical(&once).unwrap(), once);
        }
    }
}
