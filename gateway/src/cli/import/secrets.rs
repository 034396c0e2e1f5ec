//! What may be written down and what may not. Nothing is taken for harmless because it is not known to be
//! a secret: what is written is made of words, and stands where no secret is expected.

use std::fmt::Write as _;

/// What a name of a variable, a header or a flag has in it when a secret belongs there.
const NAMES: [&str; 18] = [
    "key", "token", "secret", "pass", "pwd", "auth", "cred", "pin", "cookie", "session", "bearer",
    "sign", "private", "webhook", "dsn", "conn", "otp", "jwt",
];
/// What a value may be that is one word.
const WORDS: [&str; 12] = [
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "production",
    "development",
    "info",
    "debug",
    "warn",
    "error",
];
/// Longest word, and longest number, that is not taken for something drawn at random.
const WORD: usize = 20;
const NUMBER: usize = 5;

/// Whether a secret belongs where this name stands.
pub(super) fn is_named(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|word| name.contains(word))
}

/// Whether `value` can be written down for the variable or the header `name`.
pub(in crate::cli) fn is_plain(name: &str, value: &str) -> bool {
    let number = value.len() <= NUMBER && value.bytes().all(|byte| byte.is_ascii_digit());
    !is_named(name)
        && (number
            || WORDS.contains(&value)
            || (value.starts_with('/') && is_words(value, "/-_."))
            || is_plain_url(value))
}

/// Whether a URL has nothing in it but names: no user, no query, no segment drawn at random.
pub(super) fn is_plain_url(text: &str) -> bool {
    let Some(("http" | "https", rest)) = text.split_once("://") else { return false };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !host.is_empty() && host.chars().all(is_host) && is_words(path, "/-_.~")
}

/// Whether `text` is made of words and small numbers: letters, then digits.
fn is_words(text: &str, between: &str) -> bool {
    text.split(|c| between.contains(c)).all(|part| {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let letters = part.len() - digits.len();
        letters <= WORD
            && digits.len() <= NUMBER
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether an argument of a program can be written down; `before` is the argument before it.
pub(super) fn is_plain_argument(before: Option<&str>, text: &str) -> bool {
    let expected = before.is_some_and(|flag| {
        flag.starts_with('-')
            && !flag.contains('=')
            && (is_named(flag) || matches!(flag, "-H" | "--header" | "-u" | "--user" | "-p"))
    });
    // A flag that only names a secret is followed by it, or does something else with it.
    let flag = text.starts_with('-') && !text.contains(['=', ':', ' ']);
    let assigns = |word: &str| {
        word.split_once(['=', ':']).is_some_and(|(name, value)| is_named(name) && !value.is_empty())
    };
    let address = text.find("://").is_some_and(|at| {
        let start =
            text.get(..at).map_or(0, |before| before.rfind(['=', ' ']).map_or(0, |at| at + 1));
        text.get(start..).is_none_or(|url| !is_plain_url(url))
    });
    (flag || !expected)
        && !text.split_whitespace().chain([text]).any(assigns)
        && !address
        && !text.split(['=', ' ', ',']).any(is_random)
}

/// Whether something looks as if it was drawn at random.
fn is_random(text: &str) -> bool {
    let parts = || text.split(|c: char| !c.is_ascii_alphanumeric());
    let drawn = |part: &str, length: usize| {
        part.len() >= length
            && part.bytes().any(|byte| byte.is_ascii_digit())
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    // The name of a package has signs between its words, and a version behind an `@`.
    let joined: String = match text.contains(['@', '/']) {
        true => String::new(),
        false => text.chars().filter(char::is_ascii_alphanumeric).collect(),
    };
    parts().any(|part| drawn(part, 16) || part.len() >= 32) || drawn(&joined, 20)
}

/// `${VAR}`, `${env:VAR}` and `${input:id}` as our own `${VAR}`, and the variables. What stands for a
/// variable that is not set is kept when it is plain.
pub(super) fn placeholders(text: &str) -> (String, Vec<String>) {
    let (mut out, mut variables, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inner, after)) = after.split_once('}') else { break };
        let (name, usual) = inner.split_once(":-").map_or((inner, None), |(n, u)| (n, Some(u)));
        let input = name.strip_prefix("input:").map(|id| variable_of("", id));
        let name = input.unwrap_or_else(|| name.trim_start_matches("env:").to_owned());
        let usual = usual.filter(|usual| is_plain(&name, usual));
        let usual = usual.map(|usual| format!(":-{usual}")).unwrap_or_default();
        write!(out, "{before}${{{name}{usual}}}").unwrap_or_default();
        variables.push(name);
        rest = after;
    }
    out.push_str(rest);
    (out, variables)
}

/// `text` without its placeholders.
pub(super) fn without_placeholders(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((_, after)) = after.split_once('}') else { break };
        out.push_str(before);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The variable that stands for `name` of `server`.
pub(super) fn variable_of(server: &str, name: &str) -> String {
    let joined = if server.is_empty() { name.to_owned() } else { format!("{server}_{name}") };
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    joined.chars().map(upper).collect()
}

#[cfg(test)]
mod tests {
    use super::{is_plain, is_plain_argument, is_plain_url, placeholders};

    #[test]
    fn values_that_anybody_may_know_are_told_from_others() {
        for (name, value, plain) in [
            ("LEVEL", "info", true),
            ("PORT", "8080", true),
            ("ROOT", "/srv/files/v2", true),
            ("API", "https://api.example.com:8443/v1/mcp-server", true),
            ("API_KEY", "info", false),
            ("PIN", "1234", false),
            ("DB_PASSWORD", "123456", false),
            ("NUMBER", "123456", false),
            ("NAME", "hunter", false),
            ("SLASH", "/9j4AAQSkZJRg", false),
            (
                "HOOK",
                "https://hooks.example.com/services/T01ABCDEF/B02/x8Fq2LmPz0RtYw4nKc7VbJdE",
                false,
            ),
            ("URL", "https://example.com/mcp?code=x", false),
            ("URL", "https://u:p@example.com/mcp", false),
            ("URL", "https://example.com/5f0c1c9e-7c0b-4a4e-9c5e-1f2d3c4b5a69/mcp", false),
            ("URL", "postgres://db/x", false),
        ] {
            assert_eq!(is_plain(name, value), plain, "{name}={value}");
        }
        assert!(!is_plain_url("https://example.com/mcp#x9"));
    }

    #[test]
    fn arguments_that_anybody_may_know_are_told_from_others() {
        for (before, text, plain) in [
            (None, "-y", true),
            (Some("-y"), "@modelcontextprotocol/server-filesystem@2026.8.31", true),
            (None, "mcp-server-fetch==2025.4.7", true),
            (Some("--api-key"), "--verbose", true),
            (None, "--api-key", true),
            (None, "/srv/files", true),
            (None, "--url=https://example.com/mcp", true),
            (None, "https://example.com/mcp", true),
            (Some("--api-key"), "hunter", false),
            (Some("--token"), "x", false),
            (Some("--header"), "X-Anything: y", false),
            (None, "Authorization: Bearer x", false),
            (None, "Authorization:${AUTH}x", false),
            (None, "--token=x", false),
            (None, "TOKEN=x npx server", false),
            (None, "--url=https://example.com/mcp?k=v", false),
            (None, "postgres://u:p@db/x", false),
            (None, "sk-live-4f9b2c7d1e8a6053b7c2", false),
            (None, "5f0c1c9e-7c0b-4a4e-9c5e-1f2d3c4b5a69", false),
            (None, "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY/x", false),
        ] {
            assert_eq!(is_plain_argument(before, text), plain, "{before:?} {text}");
        }
    }

    #[test]
    fn placeholders_of_every_client_become_ours() {
        let (text, variables) = placeholders("a ${X} ${env:Y} ${input:my-key} ${Z:-info} ${");
        assert_eq!(text, "a ${X} ${Y} ${MY_KEY} ${Z:-info} ${");
        assert_eq!(variables, ["X", "Y", "MY_KEY", "Z"]);
        assert_eq!(placeholders("${X_KEY:-hunter} ${Y:-hunter}").0, "${X_KEY} ${Y}");
    }
}
