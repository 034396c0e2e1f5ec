//! Escapes text for output on a terminal.
//!
//! Names, URIs and messages chosen by clients and upstream servers appear in records, definitions and errors, and so
//! in the output of the CLI and in the log. An escape sequence among them would be executed by the terminal of the
//! reader.

use std::borrow::Cow;
use std::fmt::Write as _;

use policy_core::base::hidden::Hidden;

/// Escapes each character that a terminal or an editor acts on or does not show, in JSON notation (`\u001b`), so that
/// JSON keeps its meaning. Line ends and tabs are kept.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_acted_on) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_acted_on(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").unwrap_or_default();
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Like [`printable`], and escapes line ends and tabs as well, so that untrusted text cannot begin a new line.
#[must_use]
pub fn in_a_line(text: &str) -> String {
    let text = printable(text);
    text.replace('\n', "\\n").replace('\t', "\\t")
}

/// Unescapes quotation marks in text that `str::escape_debug` or JSON has escaped, for display without surrounding
/// quotes. All other escapes are kept.
#[must_use]
pub fn with_quotes(escaped: &str) -> String {
    let mut out = String::with_capacity(escaped.len());
    let mut characters = escaped.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match characters.next() {
            Some(quote @ ('"' | '\'')) => out.push(quote),
            // The second of two backslashes begins no escape.
            Some(other) => out.extend([c, other]),
            None => out.push(c),
        }
    }
    out
}

fn is_acted_on(c: char) -> bool {
    match Hidden::of(c) {
        Some(
            Hidden::Order | Hidden::Tag | Hidden::Notation | Hidden::Shapeless | Hidden::Control,
        ) => true,
        // Joiners and variation selectors are needed for scripts and emoji, but few terminals know those of Mongolian.
        Some(Hidden::Joiner | Hidden::Variation) => matches!(c, '\u{180b}'..='\u{180f}'),
        // Some programs treat these as line ends.
        None => matches!(c, '\r' | '\u{2028}' | '\u{2029}'),
    }
}

#[cfg(test)]
mod tests {
    use super::{in_a_line, printable, with_quotes};
    use std::borrow::Cow;

    #[test]
    fn nothing_that_a_terminal_acts_on_is_printed() {
        assert_eq!(
            printable("a\u{1b}]0;x\u{7}b\u{9b}31m\r"),
            "a\\u001b]0;x\\u0007b\\u009b31m\\u000d"
        );
        assert_eq!(printable("a\u{202e}b\u{2066}\u{e0041}"), "a\\u202eb\\u2066\\udb40\\udc41");
        assert_eq!(in_a_line("a\nb\tc"), "a\\nb\\tc");
        let plain = "tool\tgrüße 👩\u{200d}💻\n";
        assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain));
    }

    #[test]
    fn quotation_marks_alone_need_no_escape() {
        let said = "File \"a.py\", in 'f'\\ \\\" \u{1b}[31m\n";
        assert_eq!(
            with_quotes(&said.escape_debug().to_string()),
            "File \"a.py\", in 'f'\\\\ \\\\\" \\u{1b}[31m\\n"
        );
        assert_eq!(with_quotes("a\\"), "a\\");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "our own output")]
    fn json_means_the_same() {
        let value = serde_json::json!({ "name": "a\u{7f}\u{9b}\u{202e}\u{e0041}b" });
        let text = value.to_string();
        let shown = printable(&text).into_owned();
        assert_ne!(shown, text);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
