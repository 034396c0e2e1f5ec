//! Classifies the keywords of JSON Schema by their contents, and resolves references.
//!
//! The walks that estimate the cost of a schema use this table so that they interpret it like the validator: a member
//! of `properties` is a schema irrespective of its name, and the contents of `enum` are not.

use std::borrow::Cow;

use serde_json::Value;

use crate::json::coding;

/// The contents of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeywordContents {
    /// A schema for the value itself.
    Same,
    /// A list of schemas for the value itself.
    SameList,
    /// Named schemas for the value itself.
    SameMap,
    /// A schema for members or items of the value.
    Inside,
    /// A schema for all items, or a list with one for each item.
    InsideList,
    /// Named schemas for members of the value.
    InsideMap,
    /// Schemas that only apply where they are referenced.
    Definitions,
    /// A reference to a schema.
    Reference,
    /// A name by which references can find a schema. The validator resolves such names and the walks do not, so they
    /// are only accepted at the root.
    Name,
    /// A reference that depends on the dynamic scope; not supported.
    Dynamic,
    /// Data, or an assertion about the value.
    Data,
}

/// The contents of `keyword`, in any draft.
pub(super) fn holds(keyword: &str) -> KeywordContents {
    match keyword {
        "not" | "if" | "then" | "else" => KeywordContents::Same,
        "allOf" | "anyOf" | "oneOf" => KeywordContents::SameList,
        "dependentSchemas" | "dependencies" => KeywordContents::SameMap,
        "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "contains"
        | "unevaluatedItems"
        | "additionalItems" => KeywordContents::Inside,
        "items" | "prefixItems" => KeywordContents::InsideList,
        "properties" | "patternProperties" => KeywordContents::InsideMap,
        "$defs" | "definitions" => KeywordContents::Definitions,
        "$ref" => KeywordContents::Reference,
        "$id" | "id" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor" => KeywordContents::Name,
        "$dynamicRef" | "$recursiveRef" => KeywordContents::Dynamic,
        _ => KeywordContents::Data,
    }
}

/// The subschema of `root` that a reference leads to; `None` if it has no target, leads outside, or to a name.
///
/// RFC 6901, section 6: a pointer in a URI fragment is percent-encoded.
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

/// The schemas directly contained in a keyword; empty for keywords with other contents.
pub(super) fn schemas(held: KeywordContents, value: &Value) -> Cow<'_, [&Value]> {
    match (held, value) {
        (KeywordContents::SameList | KeywordContents::InsideList, Value::Array(items)) => {
            items.iter().collect()
        }
        (
            KeywordContents::SameMap | KeywordContents::InsideMap | KeywordContents::Definitions,
            Value::Object(members),
        ) => members.values().collect(),
        (KeywordContents::Same | KeywordContents::Inside | KeywordContents::InsideList, schema) => {
            Cow::Owned(vec![schema])
        }
        (
            KeywordContents::SameList
            | KeywordContents::SameMap
            | KeywordContents::InsideMap
            | KeywordContents::Definitions
            | KeywordContents::Reference
            | KeywordContents::Name
            | KeywordContents::Dynamic
            | KeywordContents::Data,
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
