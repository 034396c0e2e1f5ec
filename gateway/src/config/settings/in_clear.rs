//! Warns about values that look like plaintext secrets in a configuration. They are only warnings: whether a value
//! is secret is a guess from its form, its place and its name.
//!
//! The text is examined before variables are substituted.

use detection::content;
use json::pointer::escaped;

use super::problem::{ConfigProblem, ConfigProblems};
use super::variables::{VariableFallback, VariableReference, replaced};
use super::yaml::{NodeKind, YamlNode};
use crate::base::masking;

/// Sections with patterns and sample values, which are not used as credentials.
const SKIPPED: [&str; 2] = ["/policy", "/registry"];
/// Keys of digests and of texts for callers.
const PUBLIC: [&str; 3] = ["sha256", "keys", "overrides"];
/// Last words of secret names that are also the last words of many other names.
const VAGUE: [&str; 6] = ["auth", "key", "otp", "pat", "sas", "sig"];
/// Minimum size of a value under such a name that counts as a secret, in bytes.
const DRAWN: usize = 12;
/// Maximum digits of a number that counts as an amount.
const AMOUNT: usize = 6;
/// Values that switch something on or off.
const SWITCHES: [&str; 12] = [
    "true", "false", "yes", "no", "on", "off", "none", "null", "auto", "default", "enabled",
    "disabled",
];

/// The help for a literal value of a variable or a header.
const VALUE: &str =
    "write `fromEnv: VARIABLE`, `fromFile: PATH` or `fromCommand: [...]` in the place of `value`";
/// The help for an argument of a program.
const ARGUMENT: &str = "every user of the machine can see the arguments of a program: give it to the program under `env`, with \
                        `fromEnv`, `fromFile` or `fromCommand`; or write `${VARIABLE}` here";
/// The help for a URL.
const URL: &str = "show it in `credential` or `headers`, with `fromEnv`, `fromFile` or `fromCommand`; or write `${VARIABLE}` here";
/// The help for other places.
const ELSEWHERE: &str = "write `${VARIABLE}` here, and set the variable";

/// A warning for each probable plaintext secret, with its place and help; the secret is masked.
pub(super) fn warnings(file: &str, text: &str, root: &YamlNode) -> Vec<Box<str>> {
    let mut found = Vec::new();
    look(root, "", &mut found);
    let told = ConfigProblems::new(file, text, found).each().into_iter();
    told.map(|(said, help)| format!("{said}; {help}").into()).collect()
}

/// INVARIANT: the parser limits the nesting, so the recursion is limited too.
fn look(node: &YamlNode, at: &str, found: &mut Vec<ConfigProblem>) {
    if SKIPPED.contains(&at) {
        return;
    }
    match &node.kind {
        NodeKind::Scalar(one) => {
            let text = written(&one.text);
            if has_secret_in_url(&text) {
                found.push(problem(node, "in this URL", URL));
            } else if has_form(&text) {
                found.push(problem(node, "here", ELSEWHERE));
            }
        }
        NodeKind::Sequence(items) if at.ends_with("/args") || at.ends_with("/fromCommand") => {
            arguments(items, found);
        }
        NodeKind::Sequence(items) => {
            for (n, item) in items.iter().enumerate() {
                look(item, &format!("{at}/{n}"), found);
            }
        }
        NodeKind::Mapping(members) => {
            let name = members.iter().find(|(key, _)| key.text == "name");
            let name = name.and_then(|(_, node)| scalar(node)).unwrap_or_default();
            for (key, member) in members {
                let value = scalar(member).map(written).filter(|_| key.text == "value");
                if value.is_some_and(|value| is_secret(name, &value)) {
                    let place = format!("as the value of `{}`", name.escape_debug());
                    found.push(problem(member, &place, VALUE));
                } else if !PUBLIC.contains(&&*key.text) {
                    look(member, &format!("{at}/{}", escaped(&key.text)), found);
                }
            }
        }
    }
}

/// Examines the arguments of a program.
fn arguments(items: &[YamlNode], found: &mut Vec<ConfigProblem>) {
    let mut before = String::new();
    for item in items {
        let text = scalar(item).map(written).unwrap_or_default();
        if is_secret_argument(&before, &text) {
            found.push(problem(item, "among the arguments of a program", ARGUMENT));
        }
        before = text;
    }
}

/// Whether one of the arguments of a program is probably a secret, also as the value of the flag before it.
#[must_use]
pub fn has_secret_argument(arguments: &[String]) -> bool {
    let before = std::iter::once("").chain(arguments.iter().map(String::as_str));
    before.zip(arguments).any(|(before, argument)| is_secret_argument(before, argument))
}

/// Whether an argument that stands after `before` is probably a secret.
fn is_secret_argument(before: &str, text: &str) -> bool {
    let given = text.split_once('=').or_else(|| text.split_once(": "));
    let is_given = given.is_some_and(|(name, value)| is_secret(name, value));
    let follows = before.starts_with('-') && !before.contains('=') && !text.starts_with('-');
    let follows = follows && is_secret(before, text);
    is_given || follows || has_form(text) || has_secret_in_url(text)
}

fn problem(node: &YamlNode, place: &str, help: &str) -> ConfigProblem {
    let message =
        format!("a secret seems to stand {place}, where all who can read this file see it");
    ConfigProblem::new(node.span.clone(), message, help).hiding([node.span.clone()])
}

fn scalar(node: &YamlNode) -> Option<&str> {
    match &node.kind {
        NodeKind::Scalar(scalar) => Some(&scalar.text),
        NodeKind::Sequence(_) | NodeKind::Mapping(_) => None,
    }
}

/// The part of a text that is written in the file: without references to variables, but with their default values.
fn written(text: &str) -> String {
    replaced(text, |inner| match VariableReference::of(inner).fallback {
        VariableFallback::Default(default) => default.to_owned(),
        VariableFallback::None | VariableFallback::Message(_) | VariableFallback::Malformed => {
            String::new()
        }
    })
}

/// Whether a text has the form of a known kind of secret.
fn has_form(text: &str) -> bool {
    content::without_secrets(text) != text
}

/// Whether a URL contains a secret: a password, or a parameter with the name of a secret. A user name alone is
/// none.
fn has_secret_in_url(text: &str) -> bool {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        plain.push_str(before);
        plain.push_str("://");
        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        let (authority, path) = after.split_at_checked(end).unwrap_or((after, ""));
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        // The value of a variable is not written in the file.
        let is_name =
            |user: &str| user.split_once(':').is_none_or(|(_, password)| password.is_empty());
        match user.filter(|user| is_name(user)) {
            Some(user) => plain.push_str(authority.get(user.len() + 1..).unwrap_or_default()),
            None => plain.push_str(authority),
        }
        rest = path;
    }
    plain.push_str(rest);
    text.contains("://") && masking::uris(&plain) != plain
}

/// Whether `value` is probably a secret, as the value of the variable, header or flag `name`.
fn is_secret(name: &str, value: &str) -> bool {
    if has_form(value) || has_secret_in_url(value) {
        return true;
    }
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let last = name.rsplit(['_', '-', '.', ' ']).next().unwrap_or_default();
    // `x-api-key` is more specific than `key`.
    let is_clear = masking::is_secret(&name) && !VAGUE.contains(&&*name);
    if !is_clear && !VAGUE.contains(&last) || is_harmless(value) {
        return false;
    }
    is_clear || value.len() >= DRAWN && value.bytes().any(|byte| byte.is_ascii_digit())
}

/// Whether a value is no secret under any name: a switch, an amount, a path, or a URL, which is examined
/// separately.
fn is_harmless(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let amount = value.len() <= AMOUNT && value.bytes().all(|byte| byte.is_ascii_digit());
    let path = ["/", "./", "../", "~"].iter().any(|root| value.starts_with(root));
    amount || path || value.contains("://") || SWITCHES.contains(&&*lower)
}

#[cfg(test)]
mod tests {
    use super::{has_secret_in_url, is_secret, warnings};
    use crate::config::settings::yaml;

    #[test]
    fn what_is_called_a_secret_and_looks_like_none_is_none() {
        for (name, value) in [
            ("MAX_TOKEN", "4096"),
            ("USE_TOKEN", "false"),
            ("TLS_KEY", "/run/tls/key.pem"),
            ("--auth", "oauth"),
            ("SORT_KEY", "created"),
            ("LEVEL", "info"),
            ("MONKEY", "capuchin"),
            ("API_TOKEN", ""),
        ] {
            assert!(!is_secret(name, value), "{name}");
        }
        for (name, value) in [
            ("X-Api-Key", "abcd1234"),
            ("DB_PASSWORD", "hunter"),
            ("--token", "abc"),
            ("OPENAI_KEY", "a1b2c3d4e5f6"),
        ] {
            assert!(is_secret(name, value), "{name}");
        }
    }

    #[test]
    fn the_name_of_a_user_in_a_url_is_no_secret() {
        for url in [
            "git+ssh://git@example.com/a",
            "postgres://app@db/x",
            "https://h/?page=1",
            "https://:@h/",
        ] {
            assert!(!has_secret_in_url(url), "{url}");
        }
        for url in ["https://h/mcp?api_key=abcd1234", "postgres://app:pw@db/x"] {
            assert!(has_secret_in_url(url), "{url}");
        }
    }

    #[test]
    fn what_a_variable_has_does_not_stand_in_the_file() {
        let yaml = |text: &str| {
            let root = yaml::parse(text).unwrap();
            warnings("x.yaml", text, &root).len()
        };
        assert_eq!(yaml("a: 'https://${U}:${P}@h/?token=${T}'\nargs: [--token, '${T}']"), 0);
        assert_eq!(yaml("env: [{name: API_TOKEN, value: '${T:-hunter2}'}]"), 1);
        // A message for the operator is no default value, whatever stands in it.
        assert_eq!(yaml("env: [{name: API_TOKEN, value: '${T:?set it:-hunter2}'}]"), 0);
        assert_eq!(yaml("env: [{name: API_TOKEN, value: '$${hunter2}'}]"), 1);
        assert_eq!(yaml("policy: {canaries: ['https://h/?token=hunter2']}"), 0);
    }
}
