//! Strings on their way out.

/// Appends `text` as a JSON string.
///
/// Control characters are escaped, and so are U+2028 and U+2029, which some readers take for line
/// ends (threat PV-34).
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    write(out, text, |c| matches!(c, '\u{2028}' | '\u{2029}'));
}

/// Appends `text` as a JSON string of printable ASCII only.
///
/// For logs: nothing a peer sent can hide, reorder or recolour a line.
pub fn write_ascii(out: &mut Vec<u8>, text: &str) {
    write(out, text, |c| !c.is_ascii() || c == '\u{7f}');
}

fn write(out: &mut Vec<u8>, text: &str, escaped: impl Fn(char) -> bool) {
    out.push(b'"');
    // Most strings need no escape: found out without looking at characters one by one.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    let mut done = 0;
    for (at, c) in text.char_indices() {
        if !(c < ' ' || c == '"' || c == '\\' || escaped(c)) {
            continue;
        }
        out.extend_from_slice(text.get(done..at).unwrap_or_default().as_bytes());
        done = at + c.len_utf8();
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default().as_bytes());
    out.push(b'"');
}
