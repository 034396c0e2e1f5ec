//! Finds secrets on command lines and in HTTP basic authentication.

use json::coding;

use super::placeholder::{self, distinct};
use super::{LONGEST, ends_with, is_reference};
use crate::secrets::found::{FoundValue, ValueClass};

/// How many bytes before a value are searched for the beginning of a command line.
const COMMAND: usize = 120;

/// Finds a value on a command line, or a name and a password in base64 (RFC 7617).
pub(super) fn flagged(text: &str, from: usize, end: usize) -> Option<FoundValue> {
    let bytes = text.as_bytes();
    // A shortcut for words that follow another word directly.
    if from < 3 || !bytes.get(from - 1).is_some_and(|b| matches!(b, b' ' | b'=' | b'"' | b'\'')) {
        return None;
    }
    let before = text.get(text.floor_char_boundary(from.saturating_sub(COMMAND))..from)?;
    let value = text.get(from..end)?;
    if ends_with(before, "basic ") {
        let plain = coding::base64(value.trim_end_matches('=')).filter(|_| value.len() >= 8)?;
        let named = std::str::from_utf8(&plain).ok()?.split_once(':')?;
        let secret = named.1.len() >= 3 && !plain.iter().any(u8::is_ascii_control);
        return secret.then(|| FoundValue::new(ValueClass::Secret, "basic-auth", from, end));
    }
    let flag = before.trim_end_matches(['"', '\'']).trim_end_matches([' ', '=']);
    let (head, flag) = flag.rsplit_once(char::is_whitespace)?;
    let has = |words: &[&str]| {
        let lower = head.to_ascii_lowercase();
        words.iter().any(|word| lower.contains(word))
    };
    let whole = value.len() >= 4 && !placeholder::is_password(value) && !value.starts_with('-');
    match flag {
        "-p" | "/p" if whole && has(&["psexec", "sshpass", "plink", "mysql", "ldapsearch"]) => {
            Some(FoundValue::new(ValueClass::Secret, "password", from, end))
        }
        "--password" | "--pass" | "--passwd"
            if whole && !is_reference(value) && distinct(value) >= 5 =>
        {
            Some(FoundValue::new(ValueClass::Secret, "password", from, end))
        }
        "-u" | "--user" if has(&["curl", "wget", "http"]) && bytes.get(end) == Some(&b':') => {
            let rest = text.get(end + 1..)?;
            let length = rest
                .bytes()
                .take(LONGEST)
                .take_while(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\''))
                .count();
            let password = rest.get(..length)?;
            let whole = length >= 4 && !placeholder::is_password(password);
            whole
                .then(|| FoundValue::new(ValueClass::Secret, "password", end + 1, end + 1 + length))
        }
        _ => None,
    }
}
