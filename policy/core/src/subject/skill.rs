//! The URIs of skills and of their files.
//!
//! A skill is a directory of files that a server offers as resources `skill://PATH/FILE`. Its `SKILL.md` stands in the root
//! of the directory, and its URI identifies the skill.
//!
//! SPEC SEP-2640, «Resource Mapping»

use std::borrow::Cow;

/// The scheme of the URIs of skills.
const SCHEME: &str = "skill";
/// The file that every skill has in its root, after the slash before it.
const MAIN: &str = "/SKILL.md";

/// Whether a URI, in any spelling, has the scheme of skills. Parsers of URLs leave out blanks around it, and tabs and ends
/// of lines in it (<https://url.spec.whatwg.org/#concept-basic-url-parser>).
#[must_use]
pub fn is_skill_uri(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| {
        let plain = scheme.chars().filter(|c| !c.is_whitespace() && !c.is_control());
        plain.map(|c| c.to_ascii_lowercase()).eq(SCHEME.chars())
    })
}

/// The URI, or the pattern over URIs, that an operator means: `git-workflow` stands for `skill://git-workflow/SKILL.md`.
#[must_use]
pub fn uri_of(name: &str) -> Cow<'_, str> {
    if name == "*" || name.contains("://") {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("{SCHEME}://{name}{MAIN}"))
    }
}

/// The directory of the skill with this canonical URI, with its slash at the end; `None` if it is not the URI of a
/// `SKILL.md` in a directory.
#[must_use]
pub fn directory(uri: &str) -> Option<&str> {
    let path = uri.strip_prefix(SCHEME)?.strip_prefix("://")?.strip_suffix(MAIN)?;
    let length = uri.len() - MAIN.len() + 1;
    uri.get(..length).filter(|_| !path.is_empty() && !path.contains('?'))
}

/// The last segment of the directory of the skill with this canonical URI, which has to be the name of the skill.
#[must_use]
pub fn name(uri: &str) -> Option<&str> {
    directory(uri)?.strip_suffix('/')?.rsplit('/').next()
}

#[cfg(test)]
mod tests {
    use super::{directory, is_skill_uri, name, uri_of};

    #[test]
    fn the_scheme_is_compared_and_not_a_prefix() {
        for uri in [
            "skill://a/SKILL.md",
            "SKILL://a/b",
            "skill:a",
            " skill ://a",
            "sk\till://a",
            "s\r\nkill://a",
            "\0skill://a",
        ] {
            assert!(is_skill_uri(uri), "{uri:?}");
        }
        for uri in ["skills://a/SKILL.md", "file:///skill:/a", "a", "docs+skill://a/SKILL.md"] {
            assert!(!is_skill_uri(uri), "{uri}");
        }
    }

    #[test]
    fn an_operator_may_write_the_path_for_the_uri() {
        assert_eq!(uri_of("git-workflow"), "skill://git-workflow/SKILL.md");
        assert_eq!(uri_of("acme/*"), "skill://acme/*/SKILL.md");
        assert_eq!(uri_of("skill://a/SKILL.md"), "skill://a/SKILL.md");
        assert_eq!(uri_of("*"), "*");
    }

    #[test]
    fn a_skill_is_named_after_its_directory() {
        let uri = "skill://acme/billing/refunds/SKILL.md";
        assert_eq!(directory(uri), Some("skill://acme/billing/refunds/"));
        assert_eq!(name(uri), Some("refunds"));
        assert_eq!(name("skill://git/SKILL.md"), Some("git"));
        for uri in
            ["skill:///SKILL.md", "skill://a/README.md", "https://a/SKILL.md", "skill://SKILL.md"]
        {
            assert_eq!(directory(uri), None, "{uri}");
        }
    }
}
