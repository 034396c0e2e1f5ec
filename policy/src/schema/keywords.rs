//! What the keywords of JSON Schema hold, and where references in a schema lead.
//!
//! The walks that price a schema go by this table, so they read it as the validator does: a member of
//! `properties` is a schema whatever its name is, and what stands under `enum` is none.

use std::borrow::Cow;

use serde_json::Value;

use crate::coding;

/// What a keyword holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// A schema for the value itself.
    Same,
    /// Several of them in a list.
    SameList,
    /// Several of them by name.
    SameMap,
    /// A schema for members or items of the value.
    Inside,
    /// One of them, or a list with one for each item.
    InsideList,
    /// One of them for each member, by name.
    InsideMap,
    /// Schemas that count only where something refers to them.
    Definitions,
    /// A reference to a schema.
    Reference,
    /// A name by which references find a schema. The validator follows such names; the walks do not, so
    /// they may stand at the root alone.
    Name,
    /// A reference that is followed by what stands around it: not used.
    Dynamic,
    /// Anything else: data, or an assertion about the value.
    Data,
}

/// What `keyword` holds, in any draft.
pub(super) fn holds(keyword: &str) -> Holds {
    match keyword {
        "not" | "if" | "then" | "else" => Holds::Same,
        "allOf" | "anyOf" | "oneOf" => Holds::SameList,
        "dependentSchemas" | "dependencies" => Holds::SameMap,
        "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "contains"
        | "unevaluatedItems"
        | "additionalItems" => Holds::Inside,
        "items" | "prefixItems" => Holds::InsideList,
        "properties" | "patternProperties" => Holds::InsideMap,
        "$defs" | "definitions" => Holds::Definitions,
        "$ref" => Holds::Reference,
        "$id" | "id" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor" => Holds::Name,
        "$dynamicRef" | "$recursiveRef" => Holds::Dynamic,
        _ => Holds::Data,
    }
}

/// The part of `root` that a reference leads to; `None` where it leads nowhere, outside, or to a name.
///
/// RFC 6901, section 6: a pointer in a fragment is escaped as URIs are.
pub(super) fn target<'a>(root: &'a Value, to: &str) -> Option<&'a Value> {
    let own = root.get("$id").or_else(|| root.get("id")).and_then(Value::as_str);
    let own = own.map(|id| id.trim_end_matches('#')).filter(|id| !id.is_empty());
    let fragment = own.and_then(|id| to.strip_prefix(id)).unwrap_or(to);
    let escaped = if fragment.is_empty() && fragment.len() < to.len() {
        ""
    } else {
        fragment.strip_prefix('#')?
    };
    let (pointer, _) = coding::percent(escaped);
    let pointer = String::from_utf8(pointer).ok()?;
    root.pointer(&pointer)
}

/// The schemas that a keyword holds, as they stand: none for keywords that hold something else.
pub(super) fn schemas(held: Holds, value: &Value) -> Cow<'_, [&Value]> {
    match (held, value) {
        (Holds::SameList | Holds::InsideList, Value::Array(items)) => items.iter().collect(),
        (Holds::SameMap | Holds::InsideMap | Holds::Definitions, Value::Object(members)) => {
            members.values().collect()
        }
        (Holds::Same | Holds::Inside | Holds::InsideList, schema) => Cow::Owned(vec![schema]),
        (
            Holds::SameList
            | Holds::SameMap
            | Holds::InsideMap
            | Holds::Definitions
            | Holds::Reference
            | Holds::Name
            | Holds::Dynamic
            | Holds::Data,
            _,
        ) => Cow::Borrowed(&[]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::target;

    #[test]
    fn references_lead_into_the_schema_and_nowhere_else() {
        let root =
            json!({ "$id": "https://a.example/s", "$defs": { "a b": { "type": "string" } } });
        let found = Some(&root["$defs"]["a b"]);
        for to in ["#/$defs/a b", "#/%24defs/a%20b", "https://a.example/s#/$defs/a%20b"] {
            assert_eq!(target(&root, to), found, "{to}");
        }
        assert_eq!(target(&root, "#"), Some(&root));
        assert_eq!(target(&root, "https://a.example/s"), Some(&root));
        for to in ["#name", "", "other.json#/$defs/a b", "https://a.example/t", "#/$defs/c"] {
            assert_eq!(target(&root, to), None, "{to}");
        }
    }
}
