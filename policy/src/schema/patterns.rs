//! What making the patterns of a schema ready costs (vector PV-38): a server writes them, and a short
//! pattern can stand for a large automaton.
//!
//! A pattern whose automaton is small costs less than a millisecond, so there may be many of those. Which
//! are not is found out with a limit, so that finding out costs no more than a small one. Of the others there
//! may be few, and none may be larger than [`LARGE`].

use std::collections::BTreeSet;

use regex::bytes::RegexBuilder;
use serde_json::Value;

/// Most different patterns of one schema.
const PATTERNS: usize = 128;
/// Longest pattern, in bytes.
const LONGEST: usize = 4096;
/// Most bytes of an automaton that is small.
const SMALL: usize = 64 << 10;
/// Most patterns whose automaton is not.
const LARGE_ONES: usize = 8;
/// Most bytes of the automaton of any pattern.
pub(super) const LARGE: usize = 2 << 20;

/// Sizes between which automata that are small are told apart, in bytes.
const STEPS: [usize; 3] = [4 << 10, 16 << 10, SMALL];
/// How often the size of an automaton for bytes is in memory when it is used, about: those of letters are
/// larger, they are there for both directions, and have tables of what was looked up before.
pub(super) const COPIES: usize = 8;

/// About how many bytes the automata of the patterns of a schema take; `None` where the patterns may not be
/// made ready.
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
                // No automaton is larger, for letters or for bytes.
                weight += COPIES / 2 * LARGE;
            }
        }
    }
    Some(weight)
}

/// Adds every pattern in it; `false` when there are too many, or one is too long.
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

/// Whether the automaton of a pattern has at most so many bytes. It is built for bytes, because classes of letters are large
/// in Unicode and in nearly every schema stand for those of ASCII, as ECMA 262 has it; one for which that
/// cannot be told is not small.
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
        // The same one again and again is one, and a property may be called `pattern`.
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
