//! Bytes as hexadecimal digits.

/// In lower case, at the end of `out`.
pub fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| DIGITS.get(usize::from(half & 15)).copied().unwrap_or_default();
    out.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]));
}

/// In lower case.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    write(&mut text, bytes);
    String::from_utf8(text).unwrap_or_default()
}

/// From either case; `None` when `text` is not whole bytes of hexadecimal digits.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}
