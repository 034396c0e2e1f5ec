//! Links in a text, exactly as they are written.
//!
//! Addresses are compared in one spelling. A link that somebody else has written as a whole says nothing of what the
//! flow knows, but only in the very spelling in which it was shown: case, final dots and slashes can encode a secret.

use super::{ValueKey, ValueReading, is_separator, trimmed};

/// The beginnings of a link. The scheme is not compared, since texts often leave it out.
const SCHEMES: [&str; 2] = ["https://", "http://"];
/// The beginning of a link without a scheme.
const BARE: &str = "www.";

/// The part of a link that is compared; `None` if the token is no link.
fn compared(token: &str) -> Option<&str> {
    let bare = SCHEMES.iter().find_map(|scheme| token.strip_prefix(scheme));
    bare.or_else(|| token.starts_with(BARE).then_some(token)).filter(|link| !link.is_empty())
}

/// Calls `visit` with each link in a text, also without the marks that end a sentence, until it returns false; whether all
/// were visited. Of what is sent, also with what would be a link if somebody put a scheme before it.
pub(super) fn each(
    text: &str,
    reading: ValueReading,
    visit: &mut impl FnMut(&str) -> bool,
) -> bool {
    let is_shown = reading.is_widest();
    if is_shown && !text.contains("://") && !text.contains(BARE) {
        return true;
    }
    let link = |token| {
        let could_be = |token: &&str| !is_shown && token.contains('.');
        compared(token).or_else(|| Some(token).filter(could_be))
    };
    let mut tokens = text.split(is_separator).filter_map(link);
    tokens.all(|link| {
        let end = trimmed(link);
        visit(link) && (end.is_empty() || end.len() == link.len() || visit(end))
    })
}

/// The hash of a text that is sent and is one link; `None` if it is not.
#[must_use]
pub fn sent(key: &ValueKey, text: &str) -> Option<u64> {
    compared(text).filter(|link| !link.contains(is_separator)).map(|link| key.link(link))
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::{ValueKey, ValueReading, each, sent};

    fn shown(key: &ValueKey, text: &str) -> Vec<u64> {
        let mut found = Vec::new();
        each(text, ValueReading::Untrusted, &mut |link| {
            found.push(key.link(link));
            true
        });
        found
    }

    #[test]
    fn a_link_is_known_in_the_spelling_that_was_shown_and_in_no_other() {
        let key = ValueKey::new(RandomState::new());
        let text = "See (https://docs.example/A/b?x=1), <a href=\"http://one.example/\">one</a>, [two](www.two.example).";
        let shown = shown(&key, text);
        for known in [
            "https://docs.example/A/b?x=1",
            "http://docs.example/A/b?x=1",
            "http://one.example/",
            "https://one.example",
            "www.two.example",
            "https://www.two.example",
        ] {
            assert!(sent(&key, known).is_some_and(|link| shown.contains(&link)), "{known}");
        }
        for other in [
            "https://docs.example/a/b?x=1",
            "https://docs.example/A/b?x=1&y=2",
            "https://docs.example/A/b?x=1/",
            "https://docs.example/A/b",
            "https://one.example//",
            "www.two.example.",
            "www.two.example/secret",
            "see www.two.example",
            "two.example",
            "https://",
            "",
        ] {
            assert!(sent(&key, other).is_none_or(|link| !shown.contains(&link)), "{other}");
        }
    }
}
