//! Limits the cost of compiling the patterns of a schema (vector PV-38): a server writes them, and a short pattern
//! can require a large automaton.
//!
//! A pattern with a small automaton compiles in less than a millisecond, so many of those are accepted. Trial
//! compilation with a size limit separates them from larger ones. Few larger ones are accepted, and none above
//! [`LARGE`].

use std::collections::BTreeSet;

use regex::bytes::RegexBuilder;
use serde_json::Value;

/// Most distinct patterns of one schema.
const PATTERNS: usize = 128;
/// Longest pattern, in bytes.
const LONGEST: usize = 4096;
/// Largest automaton that counts as small, in bytes.
const SMALL: usize = 64 << 10;
/// Most patterns with a larger automaton.
const LARGE_ONES: usize = 8;
/// Largest automaton of any pattern, in bytes.
pub(super) const LARGE: usize = 2 << 20;

/// Size classes of small automata, in bytes.
const STEPS: [usize; 3] = [4 << 10, 16 << 10, SMALL];
/// Approximate memory of a compiled pattern, as a multiple of its byte automaton: Unicode automata are larger, exist
/// for both directions, and have lookup caches.
pub(super) const COPIES: usize = 8;

/// Estimated memory of the patterns of a schema, in bytes; `None` if they exceed the limits.
pub(super) fn weight(schema: &Value) -> Option<usize> {
    let mut patterns = BTreeSet::new();
    if !collect(schema, &mut patterns) {
        return None;
    }
    let (mut weight, mut large) = (0, 0);
    for pattern in patterns {
        match STEPS.into_iter().find(|size| is_within(pattern, *size)) {
            Some(size) => weight += COPIES * size,
            None if large == LARGE_ONES => return None,
            None => {
                large += 1;
                // Automata are limited to this size, for Unicode as well as for bytes.
                weight += COPIES / 2 * LARGE;
            }
        }
    }
    Some(weight)
}

/// Collects every pattern; `false` if there are too many, or one is too long.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn collect<'a>(schema: &'a Value, into: &mut BTreeSet<&'a str>) -> bool {
    let mut add = |pattern: &'a str| {
        into.insert(pattern);
        pattern.len() <= LONGEST && into.len() <= PATTERNS
    };
    match schema {
        Value::Object(members) => {
            let own = members.get("pattern").and_then(Value::as_str);
            let of_names = members.get("patternProperties").and_then(Value::as_object);
            let of_names = of_names.into_iter().flat_map(|named| named.keys().map(String::as_str));
            own.into_iter().chain(of_names).all(&mut add)
                && members.values().all(|member| collect(member, into))
        }
        Value::Array(items) => items.iter().all(|item| collect(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Whether the byte automaton of a pattern has at most `size` bytes. Unicode classes would be much larger, although
/// nearly every schema means their ASCII subset, as in ECMA 262. A pattern that is invalid for bytes is not small.
fn is_within(pattern: &str, size: usize) -> bool {
    RegexBuilder::new(pattern).unicode(false).size_limit(size).build().is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{COPIES, LARGE, LARGE_ONES, LONGEST, PATTERNS, weight};

    fn are_few(schema: &Value) -> bool {
        weight(schema).is_some()
    }

    fn properties(pattern: impl Fn(usize) -> String, count: usize) -> Value {
        let part = |n| (format!("p{n}"), json!({ "type": "string", "pattern": pattern(n) }));
        json!({ "properties": (0..count).map(part).collect::<serde_json::Map<_, _>>() })
    }

    #[test]
    fn patterns_of_ordinary_schemas_are_few() {
        for pattern in [
            "^[a-zA-Z0-9_-]{1,64}$",
            r"^[\w.+-]{1,64}@[\w-]+(\.[\w-]+)+$",
            r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$",
            "^[^/]{1,255}$",
        ] {
            let schema = properties(|n| format!("{pattern}|x{n}"), 100);
            assert!(are_few(&schema), "{pattern}");
        }
        // Equal patterns count once, and a property may be named `pattern`.
        assert!(are_few(&properties(|_| "a{1,900}{1,9}".to_owned(), 2000)));
        assert!(are_few(&json!({ "properties": { "pattern": { "type": "string" } } })));
    }

    #[test]
    fn a_large_automaton_weighs_more_than_a_small_one() {
        let of = |pattern: &str| weight(&json!({ "pattern": pattern })).unwrap();
        assert!(of("^[a-y]{900}$") > of("^[a-z]{1,9}$"));
        assert_eq!(of("^[ab]{1,4000}$"), COPIES / 2 * LARGE);
        assert_eq!(weight(&json!({ "type": "string" })), Some(0));
    }

    #[test]
    fn many_patterns_long_ones_and_large_ones_are_too_many() {
        let few = |pattern: &dyn Fn(usize) -> String, count| are_few(&properties(pattern, count));
        let small = |n| format!("^a{n}$");
        assert!(few(&small, PATTERNS) && !few(&small, PATTERNS + 1));
        let large = |n| format!("^x{n}[ab]{{1,4000}}$");
        assert!(few(&large, LARGE_ONES) && !few(&large, LARGE_ONES + 1));
        assert!(!few(&|_| "a".repeat(LONGEST + 1), 1));
        let names: serde_json::Map<_, _> = (0..=PATTERNS).map(|n| (small(n), json!({}))).collect();
        let schema = json!({ "items": [{ "patternProperties": names }] });
        assert!(!are_few(&schema));
    }
}
