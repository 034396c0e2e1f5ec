//! Decodes and encodes bytes as text: base64, hexadecimal and percent escapes. Decoding is as lenient as the most
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
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    if text.contains(['-', '_']) {
        BASE64.decode(text.replace('-', "+").replace('_', "/")).ok()
    } else {
        BASE64.decode(text).ok()
    }
}

/// Decodes bytes as UTF-8, if most of the result is text.
pub(crate) fn shown(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    is_shown(&text).then(|| text.into_owned())
}

/// Whether at least nine in ten characters are neither control nor replacement characters.
pub(crate) fn is_shown(text: &str) -> bool {
    let odd = |c: &char| {
        *c == '\u{fffd}' || c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{1b}')
    };
    let (all, odd) = (text.chars().count(), text.chars().filter(odd).count());
    odd * 10 <= all
}

/// The bytes with percent escapes decoded (RFC 3986 section 2.1), and the number of escapes.
pub(crate) fn percent(text: &str) -> (Vec<u8>, usize) {
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
pub(crate) fn unescaped(text: &str) -> Option<(String, Vec<u32>)> {
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

/// Encodes bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The SHA-256 of the concatenated parts.
pub(crate) fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::{base64, hex, percent, unescaped};

    #[test]
    fn what_is_written_is_read_however_it_is_written() {
        for text in ["Pz8/Pn4=", "Pz8/Pn4", "Pz8_Pn4="] {
            assert_eq!(base64(text).as_deref(), Some(&b"???>~"[..]), "{text}");
        }
        assert_eq!(base64("no base64!"), None);
        assert_eq!(percent("a%2Fb%2fc%zz%4"), (b"a/b/c%zz%4".to_vec(), 2));
        assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(unescaped("a%zz%4"), None);
        let places = vec![0, 1, 4, 5, 8, 11, 14, 15];
        assert_eq!(unescaped("a%2Fb%c3%A9%ffc"), Some(("a/b\u{e9}?c".to_owned(), places)));
    }
}
