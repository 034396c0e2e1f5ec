//! Detects member names that some parsers take for another name.
//!
//! Several JSON libraries match names without regard to case, and fold `ſ` to `s` and the Kelvin sign to `k`, so that
//! `Name` for one parser is `name` for another (threat PV-05, CVE-2026-27896, GHSA-4gph-2hhr-5mwg). Others accept the
//! names of their own language beside those of the protocol: the MCP SDK for Python reads `input_requests` as
//! `inputRequests`.

use json::Value;
use policy_core::base::hidden::Hidden;
use unicode_normalization::UnicodeNormalization as _;

/// Whether `object` has a member that is not one of `known` but could be taken for one.
pub(super) fn has_variant(object: Value<'_>, known: &[&str]) -> bool {
    object.members().any(|(key, _)| {
        if known.contains(&&*key) {
            return false;
        }
        if key.is_ascii() {
            return known.iter().any(|known| letters(known).eq(letters(&key)));
        }
        let folded = fold(&key);
        known.iter().any(|known| letters(known).eq(letters(&folded)))
    })
}

/// Whether `object` has a member that is not one of `known` but could be taken for one by a parser that ignores case.
pub(super) fn has_case_variant(object: Value<'_>, known: &[&str]) -> bool {
    object.members().any(|(key, _)| {
        let is_like = |known: &&str| {
            if key.is_ascii() {
                known.eq_ignore_ascii_case(&key)
            } else {
                fold(known) == fold(&key)
            }
        };
        !known.contains(&&*key) && known.iter().any(is_like)
    })
}

/// The characters of a name in lower case, without what separates its words, and without blanks and control characters: some
/// readers end a name at a NUL, others drop blanks around it. A first `_` is no separator: `_meta` is not `meta`.
fn letters(name: &str) -> impl Iterator<Item = char> {
    let separates = |(at, c): &(usize, char)| {
        *at > 0 && matches!(c, '_' | '-') || c.is_whitespace() || c.is_control()
    };
    let kept = name.char_indices().filter(move |part| !separates(part));
    kept.map(|(_, c)| c.to_ascii_lowercase())
}

/// Whether `key` could be taken for a name that begins with `prefix`, which is ASCII in lower case.
pub(super) fn begins_with(key: &str, prefix: &str) -> bool {
    if key.is_ascii() {
        let beginning = key.as_bytes().get(..prefix.len());
        return beginning
            .is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix.as_bytes()));
    }
    fold(key).starts_with(prefix)
}

/// Whether `key` could be taken for `name`, which is ASCII in lower case.
pub(super) fn is_like(key: &str, name: &str) -> bool {
    if key.is_ascii() { key.eq_ignore_ascii_case(name) } else { fold(key) == name }
}

/// Normalizes a name: NFKC, lower case, and without invisible characters.
fn fold(text: &str) -> String {
    let shown = |c: &char| Hidden::of(*c).is_none();
    text.nfkc().flat_map(char::to_lowercase).nfkc().filter(shown).collect()
}
