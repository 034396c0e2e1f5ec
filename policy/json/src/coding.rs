//! Decodes and encodes bytes as text: base64 and percent escapes. Decoding is as lenient as the most
//! lenient reader of a text, so that nothing is encoded past the detectors.

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes base64, in the standard or the URL-safe alphabet, with or without padding (RFC 4648); `None` where the text
/// is not base64.
#[must_use]
pub fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    if text.contains(['-', '_']) {
        BASE64.decode(text.replace('-', "+").replace('_', "/")).ok()
    } else {
        BASE64.decode(text).ok()
    }
}

/// Decodes base64 as the most lenient readers do: characters outside of the alphabet are skipped, and what stands between
/// padding is decoded by itself (RFC 2045, section 6.8).
#[must_use]
pub fn base64_skipping(text: &str) -> Vec<u8> {
    let is_coded = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
    };
    let plain: String = text.bytes().filter(is_coded).map(char::from).collect();
    let mut out = Vec::with_capacity(plain.len() / 4 * 3);
    for block in plain.split('=') {
        // A single spare character encodes no byte.
        let spare = usize::from(block.len() % 4 == 1);
        let block = block.get(..block.len() - spare).unwrap_or_default();
        out.extend(base64(block).unwrap_or_default());
    }
    out
}

/// Decodes bytes as UTF-8, if most of the result is text.
#[must_use]
pub fn shown(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    is_shown(&text).then(|| text.into_owned())
}

/// Whether at least nine in ten characters are neither control nor replacement characters.
#[must_use]
pub fn is_shown(text: &str) -> bool {
    let odd = |c: &char| {
        *c == '\u{fffd}' || c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{1b}')
    };
    let (all, odd) = (text.chars().count(), text.chars().filter(odd).count());
    odd * 10 <= all
}

/// The bytes with percent escapes decoded (RFC 3986 section 2.1), and the number of escapes.
#[must_use]
pub fn percent(text: &str) -> (Vec<u8>, usize) {
    let digit = |byte: Option<&u8>| {
        let digit = byte.and_then(|byte| char::from(*byte).to_digit(16));
        digit.and_then(|digit| u8::try_from(digit).ok())
    };
    let (bytes, mut out, mut at, mut undone) =
        (text.as_bytes(), Vec::with_capacity(text.len()), 0, 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
                undone += 1;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    (out, undone)
}

/// A text with percent escapes decoded, and for each of its bytes the offset in `text` where that byte begins, with the
/// length of `text` last; `None` where there is no escape. Bytes that are not UTF-8 become `?`.
#[must_use]
pub fn unescaped(text: &str) -> Option<(String, Vec<u32>)> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_escape = |at: usize| digit(at + 1) && digit(at + 2);
    memchr::memchr_iter(b'%', bytes).any(is_escape).then_some(())?;
    let (plain, _undone) = percent(text);
    let (mut places, mut at) = (Vec::with_capacity(plain.len() + 1), 0);
    for _ in 0..=plain.len() {
        places.push(u32::try_from(at).ok()?);
        at += if bytes.get(at) == Some(&b'%') && is_escape(at) { 3 } else { 1 };
    }
    let mut shown = String::with_capacity(plain.len());
    for chunk in plain.utf8_chunks() {
        shown.push_str(chunk.valid());
        shown.extend(chunk.invalid().iter().map(|_| '?'));
    }
    Some((shown, places))
}

/// A text with the escapes of JSON strings decoded (RFC 8259 section 7), and for each of its bytes the offset in `text` where
/// its character begins, with the length of `text` last; `None` where no escape stands for a character that is shown. A half
/// of a character in UTF-16 stays as it is.
#[must_use]
pub fn json_unescaped(text: &str) -> Option<(String, Vec<u32>)> {
    let bytes = text.as_bytes();
    let stands_for = |at: usize| matches!(bytes.get(at + 1), Some(b'u' | b'/'));
    memchr::memchr_iter(b'\\', bytes).any(stands_for).then_some(())?;
    let (mut plain, mut places) =
        (String::with_capacity(text.len()), Vec::with_capacity(text.len() + 1));
    let (mut at, mut is_shown) = (0, false);
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let (c, length) = match json_escape(text.get(at..).unwrap_or_default()) {
            Some((escaped, length)) => {
                is_shown |= !escaped.is_control();
                (escaped, length)
            }
            None => (c, c.len_utf8()),
        };
        plain.push(c);
        places.resize(plain.len(), u32::try_from(at).ok()?);
        at += length;
    }
    places.push(u32::try_from(at).ok()?);
    is_shown.then_some((plain, places))
}

/// The character for which the escape at the beginning of a text stands, and the length of the escape.
fn json_escape(text: &str) -> Option<(char, usize)> {
    let rest = text.strip_prefix('\\')?;
    let simple = match rest.as_bytes().first()? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let unit = |text: &str| {
                let digits =
                    text.get(..4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
                u32::from_str_radix(digits?, 16).ok()
            };
            let high = unit(rest.get(1..)?)?;
            let low = rest.get(5..).and_then(|rest| unit(rest.strip_prefix("\\u")?));
            return match (high, low) {
                (0xd800..=0xdbff, Some(low @ 0xdc00..=0xdfff)) => {
                    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                    Some((char::from_u32(code)?, 12))
                }
                _ => Some((char::from_u32(high)?, 6)),
            };
        }
        _ => return None,
    };
    Some((simple, 2))
}

/// The SHA-256 of the concatenated parts.
#[must_use]
pub fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::{base64, json_unescaped, percent, unescaped};
    use crate::hex;

    #[test]
    fn what_is_written_is_read_however_it_is_written() {
        for text in ["Pz8/Pn4=", "Pz8/Pn4", "Pz8_Pn4="] {
            assert_eq!(base64(text).as_deref(), Some(&b"???>~"[..]), "{text}");
        }
        assert_eq!(base64("no base64!"), None);
        assert_eq!(percent("a%2Fb%2fc%zz%4"), (b"a/b/c%zz%4".to_vec(), 2));
        assert_eq!(hex::encode(&[0, 0x1f, 0xff]), "001fff");
        for text in ["", "abc", r"a\n", r"a\u000a", r"\ud800", r"\u12", r"\x/"] {
            assert_eq!(json_unescaped(text), None, "{text}");
        }
        let places = vec![0, 1, 1, 7, 13, 14];
        assert_eq!(json_unescaped(r"a\u00DF\u0026b"), Some(("a\u{df}&b".to_owned(), places)));
        let decoded = |text| json_unescaped(text).map(|(plain, _places)| plain);
        assert_eq!(decoded(r#"2024\/08\n\"\\u0041"#).as_deref(), Some("2024/08\n\"\\u0041"));
        assert_eq!(decoded(r"\ud83d\ude00\ud83d!").as_deref(), Some("\u{1f600}\\ud83d!"));
        assert_eq!(unescaped("a%zz%4"), None);
        let places = vec![0, 1, 4, 5, 8, 11, 14, 15];
        assert_eq!(unescaped("a%2Fb%c3%A9%ffc"), Some(("a/b\u{e9}?c".to_owned(), places)));
    }
}
