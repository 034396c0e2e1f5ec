//! Hexadecimal encoding and decoding of bytes.

/// Number of bytes that are encoded in one step.
const PIECE: usize = 32;

/// Appends `bytes` to `out` as lower-case hexadecimal digits.
pub fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    // Arithmetic instead of a table, and a buffer of constant size, so that the compiler can vectorize it.
    let digit = |half: u8| half + if half < 10 { b'0' } else { b'a' - 10 };
    for piece in bytes.chunks(PIECE) {
        let mut text = [[0; 2]; PIECE];
        for (pair, byte) in text.iter_mut().zip(piece) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        let text = text.get(..piece.len()).unwrap_or_default();
        out.extend_from_slice(text.as_flattened());
    }
}

/// Encodes `bytes` as lower-case hexadecimal digits.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    write(&mut text, bytes);
    String::from_utf8(text).unwrap_or_default()
}

/// Decodes digits of either case; `None` if `text` is not an even number of hexadecimal digits.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}
