//! Resolves the escapes of JSON strings.

/// Resolves the escapes of a string that the parser has checked.
pub(super) fn unescape(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let mut chars = after.chars();
        match chars.next() {
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('u') => {
                let (found, left) = code_point(chars.as_str());
                text.extend(found);
                rest = left;
                continue;
            }
            Some(other) => text.push(other),
            None => {}
        }
        rest = chars.as_str();
    }
    text.push_str(rest);
    text
}

/// The character of `XXXX` or `XXXX\uXXXX`, and the text after it.
fn code_point(text: &str) -> (Option<char>, &str) {
    let (first, rest) = unit(text);
    if !(0xD800..0xDC00).contains(&first) {
        return (char::from_u32(first), rest);
    }
    let (second, rest) = unit(rest.strip_prefix("\\u").unwrap_or_default());
    let joined = 0x1_0000 + ((first - 0xD800) << 10) + (second.wrapping_sub(0xDC00) & 0x3FF);
    (char::from_u32(joined), rest)
}

fn unit(text: &str) -> (u32, &str) {
    let (digits, rest) = text.split_at_checked(4).unwrap_or_default();
    (u32::from_str_radix(digits, 16).unwrap_or_default(), rest)
}
