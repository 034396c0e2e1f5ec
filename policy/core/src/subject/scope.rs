//! Judges by its name what an OAuth scope permits.
//!
//! Scopes are opaque (RFC 6749, section 3.3): only the authorization server knows their meaning. This module relies
//! on conventions of common providers (`Mail.ReadWrite`, `admin:org`, `files:write`,
//! `https://graph.microsoft.com/.default`). A scope whose name follows none of them is unknown.

use json::coding;
use json::{JsonKind, Value};

/// Words that mark a scope as a write scope, irrespective of its other words.
#[rustfmt::skip]
const WRITES: [&str; 27] = [
    "write", "writes", "readwrite", "rw", "modify", "edit", "create", "insert", "update", "delete", "remove", "send",
    "upload", "publish", "grant", "revoke", "execute", "invoke", "transfer", "approve", "impersonate", "impersonation",
    "sudo", "superuser", "root", "purge", "deploy",
];

/// Words that mark a scope as a write scope unless it also has a word for reading.
#[rustfmt::skip]
const POWERS: [&str; 14] = [
    "admin", "administrator", "administer", "administration", "manage", "manager", "owner", "full", "fullaccess",
    "control", "post", "put", "compose", "editor",
];

/// Words that mark a scope as read-only.
#[rustfmt::skip]
const READS: [&str; 9] =
    ["read", "readonly", "reader", "reads", "view", "viewer", "list", "get", "search"];

/// Write scopes of GitHub, Google and Microsoft whose names do not say so.
#[rustfmt::skip]
const WHOLE: [&str; 13] = [
    "repo", "public_repo", "workflow", "gist", "user_impersonation",
    "https://mail.google.com/",
    "https://www.googleapis.com/auth/drive", "https://www.googleapis.com/auth/calendar",
    "https://www.googleapis.com/auth/contacts", "https://www.googleapis.com/auth/documents",
    "https://www.googleapis.com/auth/spreadsheets", "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/tasks",
];

/// Parameters of an authorization request that ask for a lasting grant, with their values.
const LASTING: [(&str, &str); 4] = [
    ("access_type", "offline"),
    ("token_access_type", "offline"),
    ("duration", "permanent"),
    ("auto_approve", "true"),
];

/// Most rounds of percent-decoding of a URL, which may contain another URL.
const NESTED: usize = 3;

/// Whether the name indicates a write scope.
#[must_use]
pub fn writes(scope: &str) -> bool {
    if WHOLE.iter().any(|whole| whole.eq_ignore_ascii_case(scope)) {
        return true;
    }
    let words = words(scope);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let all = words.last().is_some_and(|last| last == "all");
    has(&WRITES) || (has(&POWERS) || all || has_wildcard(scope)) && !has(&READS)
}

/// Whether the name indicates a scope for everything, or without expiry.
#[must_use]
pub fn is_standing(scope: &str) -> bool {
    const STANDING: [&str; 6] = ["fullaccess", "superuser", "sudo", "root", "offline", ".default"];
    let lower = scope.to_ascii_lowercase();
    let words = words(scope);
    let pair = |pair: [&str; 2]| words.windows(2).any(|two| two.iter().eq(pair));
    STANDING.contains(&lower.as_str())
        || lower.ends_with("/.default")
        || words.last().is_some_and(|last| last == "all")
        || pair(["offline", "access"])
        || pair(["full", "access"])
        || pair(["full", "control"])
        || has_wildcard(scope)
}

/// Whether a word of a text can only be a scope for everything.
#[must_use]
pub fn is_standing_in_text(word: &str) -> bool {
    let ends = |end: &str| word.len() > end.len() && word.to_ascii_lowercase().ends_with(end);
    let named = ["offline_access", "full_access", "full_access_as_user", "full_access_as_app"];
    named.iter().any(|one| word.eq_ignore_ascii_case(one))
        || [".all", ":all", "/.default", ":*"].into_iter().any(ends)
}

/// The scopes that a URL requests, in its parameters or in those of a URL within it.
#[must_use]
pub fn of_url(url: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in parameters(url) {
        let name = name.to_ascii_lowercase();
        if is_scope(&name) {
            found.extend(value.split([' ', ',']).filter(|one| !one.is_empty()).map(str::to_owned));
        } else if value.trim_start().starts_with('{')
            && let Ok(claims) = json::Document::parse(value.into(), &json::JsonBounds::MESSAGE)
        {
            of_claims(claims.root(), &mut found);
        }
    }
    found
}

/// Appends the scopes that a JSON object of a URL requests (`claims`).
fn of_claims(value: Value<'_>, found: &mut Vec<String>) {
    for (name, member) in value.members() {
        if is_scope(&name.to_ascii_lowercase()) {
            found.extend(of_value(member));
        }
        of_claims(member, found);
    }
    value.items().for_each(|item| of_claims(item, found));
}

/// Whether a member or parameter of this name lists scopes.
fn is_scope(name: &str) -> bool {
    name.ends_with("scope") || name.ends_with("scopes")
}

/// Whether a URL requests a lasting grant by a parameter other than its scopes.
#[must_use]
pub fn is_lasting_url(url: &str) -> bool {
    parameters(url).iter().any(|(name, value)| {
        let asks = |(known, lasts): &(&str, &str)| {
            name.eq_ignore_ascii_case(known) && value.eq_ignore_ascii_case(lasts)
        };
        LASTING.iter().any(asks)
    })
}

/// The scopes that a `WWW-Authenticate` challenge requests (RFC 6750, section 3).
#[must_use]
pub fn of_challenge(header: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The parameter name is case-insensitive, and blanks may surround the `=`.
    let lower = header.to_ascii_lowercase();
    // Skips occurrences within a value, so that each byte is read once.
    let mut read = 0;
    for (at, name) in lower.match_indices("scope") {
        if at < read {
            continue;
        }
        let begins = lower.get(..at).unwrap_or_default();
        if begins.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
            continue;
        }
        let rest = header.get(at + name.len()..).unwrap_or_default().trim_start();
        let Some(value) = rest.strip_prefix('=').map(str::trim_start) else { continue };
        let (rest, end) = match value.strip_prefix('"') {
            Some(quoted) => (quoted, quoted.find('"')),
            None => (value, value.find([',', ' ', '\t'])),
        };
        let value = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        read = header.len() - rest.len() + value.len();
        found.extend(value.split_ascii_whitespace().map(str::to_owned));
    }
    found
}

/// The scopes that a value lists: words of a string, items of an array, or member names (as in `OpenAPI` flows).
#[must_use]
pub fn of_value(value: Value<'_>) -> Vec<String> {
    let words = |text: &str| -> Vec<String> {
        text.split([' ', ',']).filter(|one| !one.is_empty()).map(str::to_owned).collect()
    };
    match value.kind() {
        JsonKind::Plain | JsonKind::Escaped => words(&value.as_str().unwrap_or_default()),
        JsonKind::Array => {
            let items = value.items().filter_map(Value::as_str);
            items.flat_map(|text| words(&text)).collect()
        }
        JsonKind::Object => value.members().map(|(name, _)| name.into_owned()).collect(),
        JsonKind::Null | JsonKind::Boolean | JsonKind::Number => Vec::new(),
    }
}

/// The parameters of a URL, and of URLs escaped within it.
fn parameters(url: &str) -> Vec<(String, String)> {
    let (mut found, mut seen) = (Vec::new(), url.to_owned());
    for _ in 0..NESTED {
        for part in seen.split(['?', '&', '#', ';']) {
            let Some((name, value)) = part.split_once('=') else { continue };
            let value = String::from_utf8_lossy(&coding::percent(value).0).replace('+', " ");
            found.push((String::from_utf8_lossy(&coding::percent(name).0).into_owned(), value));
        }
        let (bytes, undone) = coding::percent(&seen);
        if undone == 0 {
            break;
        }
        seen = String::from_utf8_lossy(&bytes).into_owned();
    }
    found
}

/// Whether a part of the scope is `*`.
fn has_wildcard(scope: &str) -> bool {
    scope.split([':', '.', '/', '_', '-']).any(|part| part == "*")
}

/// The words of a scope, in lower case: `Mail.ReadWrite` has three.
fn words(scope: &str) -> Vec<String> {
    let (mut words, mut word, mut before_lower) = (Vec::new(), String::new(), false);
    for c in scope.chars() {
        if (!c.is_alphanumeric() || c.is_uppercase() && before_lower) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before_lower = c.is_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{is_lasting_url, is_standing, is_standing_in_text, of_challenge, of_url, writes};

    #[test]
    fn scopes_that_change_something_are_known_by_their_words() {
        for scope in [
            "write",
            "files:write",
            "files.write",
            "write:packages",
            "Mail.ReadWrite",
            "Mail.ReadWrite.All",
            "Mail.Send",
            "delete_repo",
            "repo",
            "REPO",
            "admin:org",
            "admin",
            "user.admin",
            "manage_billing:enterprise",
            "files:*",
            "*",
            "repo.all",
            "full_access",
            "Sites.FullControl.All",
            "chat:write.public",
            "https://www.googleapis.com/auth/drive",
            "https://www.googleapis.com/auth/gmail.modify",
            "https://mail.google.com/",
        ] {
            assert!(writes(scope), "{scope}");
        }
        for scope in [
            "",
            "openid",
            "profile",
            "email",
            "offline_access",
            "files:read",
            "read:org",
            "Mail.Read",
            "User.Read.All",
            "admin.directory.user.readonly",
            "read:admin",
            "https://www.googleapis.com/auth/drive.readonly",
            "posts:read",
            "read_all",
            "tickets",
            "mcp",
            "updates",
            "allergies",
        ] {
            assert!(!writes(scope), "{scope}");
        }
    }

    #[test]
    fn scopes_for_everything_or_for_good_are_known() {
        for scope in [
            "offline_access",
            "offline",
            "User.Read.All",
            "files:all",
            "all",
            "full_access",
            "fullAccess",
            "https://graph.microsoft.com/.default",
            "api://app/.default",
            "*",
            "files:*",
        ] {
            assert!(is_standing(scope), "{scope}");
        }
        for scope in
            ["openid", "files:read", "files:write", "allergies", "default", "Mail.Read", "overall"]
        {
            assert!(!is_standing(scope), "{scope}");
        }
        for word in ["Mail.Read.All", "offline_access", "api://x/.default", "repo:*"] {
            assert!(is_standing_in_text(word), "{word}");
        }
        for word in ["all", "*", "src/*", "**bold**", "default", ".all", "e.g."] {
            assert!(!is_standing_in_text(word), "{word}");
        }
    }

    #[test]
    fn the_scopes_of_a_request_are_found_however_deep_it_stands() {
        for (url, scopes) in [
            ("https://a.example/auth?scope=files:read+files%3Awrite&x=1", "files:read files:write"),
            ("https://a.example/auth?user_scope=chat:write,users:read", "chat:write users:read"),
            ("https://a.example/auth#scope=a", "a"),
            ("https://a.example/auth?SCOPE=a", "a"),
            ("https://a.example/auth?x=scope", ""),
            ("https://a.example/telescopes?x=1", ""),
            ("https://a.example/auth?claims=%7B%22scope%22%3A%22a%20b%22%7D", "a b"),
            ("https://a.example/auth?claims={\"id_token\":{\"x\":[{\"scopes\":[\"a\"]}]}}", "a"),
            (
                "https://a.example/auth?claims=%7B%22acr%22%3A%7B%22values%22%3A%5B%22a%22%5D%7D%7D",
                "",
            ),
        ] {
            let mut found = of_url(url);
            found.dedup();
            let all: std::collections::BTreeSet<_> = found.iter().map(String::as_str).collect();
            assert_eq!(all, scopes.split_ascii_whitespace().collect(), "{url}");
        }
        let nested =
            "https://a.example/go?to=https%3A%2F%2Fb.example%2Fauth%3Fscope%3Dfiles%253Awrite";
        assert!(of_url(nested).iter().any(|scope| scope == "files:write"));
        assert!(is_lasting_url("https://a.example/auth?access_type=offline"));
        assert!(!is_lasting_url("https://a.example/auth?access_type=online"));
    }

    #[test]
    fn the_scopes_of_a_challenge_are_found() {
        for (header, scopes) in [
            (
                r#"Bearer error="insufficient_scope", scope="files:read files:write""#,
                "files:read files:write",
            ),
            ("Bearer scope=files:write, error=x", "files:write"),
            (r#"Bearer realm="a", SCOPE = "b""#, "b"),
            (r#"Bearer realm="a", x_scope="b""#, ""),
            (r#"Bearer error="insufficient_scope""#, ""),
            (r#"Bearer scope="a scope=b", scope=c"#, "a scope=b c"),
        ] {
            assert_eq!(of_challenge(header).join(" "), scopes, "{header}");
        }
        // No byte of the header is part of two scopes.
        for part in ["scope=", "scope=\"", "scope scope = "] {
            let header = format!("Bearer {}", part.repeat(20_000));
            let found: usize = of_challenge(&header).iter().map(String::len).sum();
            assert!(found <= header.len(), "{part}: {found}");
        }
    }
}
