//! Writes JSON strings and values.

use super::{JsonKind, Value};

/// Appends `text` as a JSON string.
///
/// Control characters are escaped, and so are U+2028 and U+2029, which some readers take for line
/// ends (threat PV-34).
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    write(out, text, |c| matches!(c, '\u{2028}' | '\u{2029}'));
}

/// Appends `text` as a JSON string of printable ASCII only.
///
/// For logs: no text of a peer can hide, reorder or recolour a line.
pub fn write_ascii(out: &mut Vec<u8>, text: &str) {
    write(out, text, |c| !c.is_ascii() || c == '\u{7f}');
}

fn write(out: &mut Vec<u8>, text: &str, escaped: impl Fn(char) -> bool) {
    out.push(b'"');
    // Most strings need no escape. The check has no early exit, so that the compiler can vectorise it.
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\');
    if text.bytes().fold(true, |all, byte| all & plain(byte)) {
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

/// Appends a list; `each` writes an item.
pub fn write_items<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    each: impl FnMut(&mut Vec<u8>, T),
) {
    write_between(out, b'[', b']', items, each);
}

/// Appends an object; `each` writes a member: its name, a colon and its value.
pub fn write_members<T>(
    out: &mut Vec<u8>,
    members: impl IntoIterator<Item = T>,
    each: impl FnMut(&mut Vec<u8>, T),
) {
    write_between(out, b'{', b'}', members, each);
}

/// Appends the name of a member and a colon.
pub fn write_name(out: &mut Vec<u8>, name: &str) {
    write_string(out, name);
    out.push(b':');
}

fn write_between<T>(
    out: &mut Vec<u8>,
    opens: u8,
    closes: u8,
    parts: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(opens);
    for (n, part) in parts.into_iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        each(out, part);
    }
    out.push(closes);
}

/// Appends `value` in a normal form that depends on its content and not on its spelling: no space, members
/// sorted by name, strings without needless escapes. Numbers keep their spelling.
///
/// INVARIANT: the depth of a document is bounded, so the recursion is.
pub fn write_plain(out: &mut Vec<u8>, value: Value<'_>) {
    match value.kind() {
        JsonKind::Null | JsonKind::Boolean | JsonKind::Number => {
            out.extend_from_slice(value.raw().as_bytes())
        }
        JsonKind::Plain | JsonKind::Escaped => {
            write_string(out, &value.as_str().unwrap_or_default())
        }
        JsonKind::Array => {
            write_items(out, value.items(), write_plain);
        }
        JsonKind::Object => {
            let mut members: Vec<_> = value.members().collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            write_members(out, members, |out, (name, member)| {
                write_name(out, &name);
                write_plain(out, member);
            });
        }
    }
}
