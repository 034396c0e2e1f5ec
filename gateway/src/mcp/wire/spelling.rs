//! Detects member names that some parsers take for another name.
//!
//! Several JSON libraries match names without regard to case, and fold `ſ` to `s` and the Kelvin sign to `k`, so that
//! `Name` for one parser is `name` for another (threat PV-05, CVE-2026-27896, GHSA-4gph-2hhr-5mwg).

use policy::json::Value;
use unicode_normalization::UnicodeNormalization as _;

/// Whether `object` has a member that is not one of `known` but could be taken for one.
pub(super) fn has_variant(object: Value<'_>, known: &[&str]) -> bool {
    object.members().any(|(key, _)| {
        if known.contains(&&*key) {
            return false;
        }
        if key.is_ascii() {
            return known.iter().any(|known| known.eq_ignore_ascii_case(&key));
        }
        let folded = fold(&key);
        known.iter().any(|known| fold(known) == folded)
    })
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
    let shown = |c: &char| !matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{feff}');
    text.nfkc().flat_map(char::to_lowercase).nfkc().filter(shown).collect()
}
