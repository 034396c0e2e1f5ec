//! Secrets that seem to stand in a configuration as they are. They are warned of and nothing is refused: that a value is
//! secret is a guess, by its form, by where it stands and by what it is called.
//!
//! Looked at is what is written, before variables are put in.

use policy::content;
use policy::pointer::escaped;

use super::problem::{Problem, Problems};
use super::variables::replaced;
use super::yaml::{Kind, Node};
use crate::base::masking;

/// Sections with patterns, and with values that are there to be found: they show nobody anything.
const SKIPPED: [&str; 2] = ["/policy", "/registry"];
/// Members with digests, and with words for callers.
const PUBLIC: [&str; 3] = ["sha256", "keys", "overrides"];
/// Last words of names that are also the last words of much that is no secret.
const VAGUE: [&str; 6] = ["auth", "key", "otp", "pat", "sas", "sig"];
/// Shortest value of something so named that is taken for a secret, in bytes.
const DRAWN: usize = 12;
/// Longest number that is taken for an amount, in digits.
const AMOUNT: usize = 6;
/// Values that switch something on or off.
const SWITCHES: [&str; 12] = [
    "true", "false", "yes", "no", "on", "off", "none", "null", "auto", "default", "enabled",
    "disabled",
];

/// What to do about a literal of a variable or a header.
const VALUE: &str =
    "write `fromEnv: VARIABLE`, `fromFile: PATH` or `fromCommand: [...]` in the place of `value`";
/// The same of an argument.
const ARGUMENT: &str = "every user of the machine can see the arguments of a program: give it to the program under `env`, with \
                        `fromEnv`, `fromFile` or `fromCommand`; or write `${VARIABLE}` here";
/// The same of a URL.
const URL: &str = "show it in `credential` or `headers`, with `fromEnv`, `fromFile` or `fromCommand`; or write `${VARIABLE}` here";
/// The same wherever else.
const ELSEWHERE: &str = "write `${VARIABLE}` here, and set the variable";

/// A warning for each secret that seems to stand in the file, with its place and what to do; the secret is not shown.
pub(super) fn warnings(file: &str, text: &str, root: &Node) -> Vec<Box<str>> {
    let mut found = Vec::new();
    look(root, "", &mut found);
    let told = Problems::new(file, text, found).each().into_iter();
    told.map(|(said, help)| format!("{said}; {help}").into()).collect()
}

/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn look(node: &Node, at: &str, found: &mut Vec<Problem>) {
    if SKIPPED.contains(&at) {
        return;
    }
    match &node.kind {
        Kind::Scalar(one) => {
            let text = written(&one.text);
            if has_secret_in_url(&text) {
                found.push(problem(node, "in this URL", URL));
            } else if has_form(&text) {
                found.push(problem(node, "here", ELSEWHERE));
            }
        }
        Kind::Sequence(items) if at.ends_with("/args") || at.ends_with("/fromCommand") => {
            arguments(items, found);
        }
        Kind::Sequence(items) => {
            for (n, item) in items.iter().enumerate() {
                look(item, &format!("{at}/{n}"), found);
            }
        }
        Kind::Mapping(members) => {
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

/// Looks at the arguments of a program.
fn arguments(items: &[Node], found: &mut Vec<Problem>) {
    let mut before = String::new();
    for item in items {
        let text = scalar(item).map(written).unwrap_or_default();
        let given = text.split_once('=').or_else(|| text.split_once(": "));
        let is_given = given.is_some_and(|(name, value)| is_secret(name, value));
        let follows = before.starts_with('-') && !before.contains('=') && !text.starts_with('-');
        let follows = follows && is_secret(&before, &text);
        if is_given || follows || has_form(&text) || has_secret_in_url(&text) {
            found.push(problem(item, "among the arguments of a program", ARGUMENT));
        }
        before = text;
    }
}

fn problem(node: &Node, place: &str, help: &str) -> Problem {
    let message =
        format!("a secret seems to stand {place}, where all who can read this file see it");
    Problem::new(node.span.clone(), message, help).hiding([node.span.clone()])
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Scalar(scalar) => Some(&scalar.text),
        Kind::Sequence(_) | Kind::Mapping(_) => None,
    }
}

/// What of a text stands in the file: without references to variables, and with what stands for those that are not set.
fn written(text: &str) -> String {
    replaced(text, |inner| inner.split_once(":-").map_or("", |(_, otherwise)| otherwise).to_owned())
}

/// Whether a text has the form of a secret.
fn has_form(text: &str) -> bool {
    content::without_secrets(text) != text
}

/// Whether a secret stands in a URL: a password, or a parameter that is called like one. The name of a user alone is
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
        // What a variable stands for is not written.
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

/// Whether `value` seems to be the secret that belongs under `name`: a variable, a header or a flag.
fn is_secret(name: &str, value: &str) -> bool {
    if has_form(value) || has_secret_in_url(value) {
        return true;
    }
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let last = name.rsplit(['_', '-', '.', ' ']).next().unwrap_or_default();
    // `x-api-key` says more than `key`.
    let is_clear = masking::is_secret(&name) && !VAGUE.contains(&&*name);
    if !is_clear && !VAGUE.contains(&last) || is_harmless(value) {
        return false;
    }
    is_clear || value.len() >= DRAWN && value.bytes().any(|byte| byte.is_ascii_digit())
}

/// Whether a value opens nothing, whatever it is called: a switch, an amount, a path, or a URL, whose secrets are found
/// by themselves.
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
        assert_eq!(yaml("policy: {canaries: ['https://h/?token=hunter2']}"), 0);
    }
}
