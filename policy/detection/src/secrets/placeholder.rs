//! Tells what stands in place of a secret from a secret: examples of documentations, and values that a program or a person
//! fills in later.

use aho_corasick::AhoCorasick;
use policy_core::base::compiled::Compiled;

use super::randomness::is_worded;

/// Fewest distinct characters of a value that was generated.
const DIFFERENT: usize = 5;

/// Parts of values that are obvious placeholders, compared without case.
const PARTS: [&str; 25] = [
    "example",
    "xxxx",
    "your",
    "placeholder",
    "changeme",
    "change-me",
    "change_me",
    "redacted",
    "dummy",
    "insert",
    "replace-",
    "replace_",
    "replaceme",
    "sample-",
    "sample_",
    "goes-here",
    "goes_here",
    "*****",
    ".....",
    "-----",
    "_____",
    "process.env",
    "os.environ",
    "getenv",
    "\u{2026}",
];
/// Whole values that are placeholders, in lower case and sorted.
const VALUES: [&str; 47] = [
    "12345",
    "123456",
    "1234567",
    "12345678",
    "123456789",
    "abc123",
    "apikey",
    "asdfghjkl",
    "bar",
    "baz",
    "bearer",
    "bool",
    "boolean",
    "changeit",
    "credential",
    "default",
    "empty",
    "false",
    "filtered",
    "foo",
    "foobar",
    "hidden",
    "key",
    "masked",
    "mypass",
    "mypassword",
    "mysecret",
    "mytoken",
    "none",
    "null",
    "optional",
    "pass",
    "passwd",
    "password",
    "password1",
    "password123",
    "private",
    "pwd",
    "required",
    "secret",
    "string",
    "text",
    "todo",
    "token",
    "true",
    "undefined",
    "yourpassword",
];
/// Keys that vendors publish as examples in their documentation.
const DOCUMENTED: [&str; 2] = [
    // https://jwt.io
    "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
    // https://docs.stripe.com/keys
    "sk_test_4eC39HqLyjWDarjtT1zdp7dc",
];

static KNOWN: Compiled<AhoCorasick> =
    Compiled::new(|| Ok(AhoCorasick::builder().ascii_case_insensitive(true).build(PARTS)?));

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// It was generated at random.
    Random,
    /// It is made of words.
    Words,
    /// What stands in place of a value.
    Placeholder,
}

/// What the characters of a key behind its prefix look like.
pub(super) fn likeness(rest: &str) -> Likeness {
    if is_one(rest) || distinct(rest) < DIFFERENT {
        return Likeness::Placeholder;
    }
    let mut words = rest.split(['-', '_', '.']).filter(|part| part.len() >= 3);
    let spoken = words.all(|part| part.bytes().all(|b| b.is_ascii_lowercase()));
    if spoken || is_worded(rest) {
        return Likeness::Words;
    }
    Likeness::Random
}

/// Whether a value is a placeholder by one of its parts.
pub(super) fn is_one(value: &str) -> bool {
    KNOWN.get().is_some_and(|known| known.is_match(value))
}

/// Whether a whole value stands in place of a password: a common example, a reference to a variable, one character again and
/// again.
pub(super) fn is_password(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let plain = lower.trim_matches(|c: char| !c.is_alphanumeric());
    let of_user = ["my-", "my_", "the-", "the_", "some-", "some_"];
    VALUES.binary_search(&plain).is_ok()
        || of_user.iter().any(|begins| plain.starts_with(begins))
        || ["your", "enter"].iter().any(|begins| asks_for_value(plain, begins))
        || is_reference(value)
        || is_one(value)
        || distinct(value) <= 2
}

/// Whether a value begins with `word` and then names what is to be put there, as `your-token` and `yourpassword` do, and
/// `Enterprise2024` does not.
fn asks_for_value(value: &str, word: &str) -> bool {
    const NAMED: [&str; 9] = ["your", "a", "the", "api", "key", "pass", "secret", "token", "value"];
    value.strip_prefix(word).is_some_and(|rest| {
        !rest.starts_with(|c: char| c.is_ascii_lowercase())
            || NAMED.iter().any(|named| rest.starts_with(named))
    })
}

/// Whether a value is the name of a variable behind a dollar sign.
fn is_variable(value: &str) -> bool {
    value.strip_prefix('$').is_some_and(|name| {
        name.starts_with(['(', '{', '['])
            || name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':'))
    })
}

/// Whether a value refers to another place: a variable, a template, an element of a documentation.
pub(super) fn is_reference(value: &str) -> bool {
    let enclosed = [("<", ">"), ("[", "]"), ("{", "}"), ("((", "))"), ("%", "%")];
    let begins = [
        "{{", "((", "<", "!", "@", "env.", "env(", "env:", "ENV[", "secrets.", "vault:", "op://",
        "arn:", "ref+", "file:",
    ];
    enclosed.iter().any(|(open, close)| value.starts_with(open) && value.ends_with(close))
        || begins.iter().any(|begins| value.starts_with(begins)) && !is_mixed(value)
        || is_variable(value)
        || value.contains("${")
        || value.contains("{{")
}

/// Whether a value that begins with a sign has the digits of a password as well.
fn is_mixed(value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let signs = value.bytes().skip(1).filter(u8::is_ascii_punctuation).count();
    let ends = value.ends_with(['>', '}', ')', ']']);
    digits >= 2 && signs >= 1 && !ends && !value.starts_with(['{', '<'])
        || digits >= 2 && value.starts_with(['!', '@'])
}

/// Whether a key is one that its vendor publishes as an example.
pub(super) fn is_documented(key: &str) -> bool {
    DOCUMENTED.iter().any(|known| key.ends_with(known))
}

/// Number of distinct bytes.
pub(super) fn distinct(word: &str) -> usize {
    let mut seen = [false; 256];
    for byte in word.bytes() {
        if let Some(known) = seen.get_mut(usize::from(byte)) {
            *known = true;
        }
    }
    seen.into_iter().filter(|seen| *seen).count()
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, VALUES, is_password};

    #[test]
    fn the_lists_compile() {
        assert!(KNOWN.error().is_none());
        assert!(VALUES.is_sorted());
    }

    #[test]
    fn what_stands_in_place_of_a_password_is_told_from_one() {
        for value in [
            "changeme",
            "your-password",
            "********",
            "${DB_PASSWORD}",
            "<password>",
            "{{ .Values.x }}",
            "process.env.X",
            "xxxxxxxx",
            "%PASSWORD%",
            "$PASSWORD",
            "string",
            "[password]",
            "Password1",
            "123456789",
        ] {
            assert!(is_password(value), "{value}");
        }
        for value in ["hunter42x", "s3cr3tpw", "Tr0ub4dor&3", "$9fK!2mQz", "letmein42"] {
            assert!(!is_password(value), "{value}");
        }
    }
}
