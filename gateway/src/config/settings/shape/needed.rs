//! The part of a JSON Schema that can apply to a given document.
//!
//! The schema of the configuration describes many sections, and a file has few of them. Compiling all of it takes longer
//! than everything else that is done to load a configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::base::schema_keywords::{MAPS_OF_SCHEMAS, SCHEMAS};

/// The keyword whose value maps names of members to schemas.
const OF_MEMBERS: &str = "properties";
/// The definitions, and the prefix of references to them.
const DEFINITIONS: &str = "$defs";
const REFERENCE: &str = "#/$defs/";

/// `schema` without what cannot apply to `document`: the schema of a member is `true` if no object in the document has
/// a member of that name, and definitions that nothing refers to are left out. Both schemas find the same
/// violations, with the same paths.
pub(super) fn part(schema: &Value, document: &Value) -> Value {
    let mut names = BTreeSet::new();
    collect_names(document, &mut names);
    let mut referenced = Vec::new();
    let mut root = reduced(schema, &names, &mut referenced);
    let all = schema.get(DEFINITIONS).and_then(Value::as_object);
    let mut kept: BTreeMap<&str, Value> = BTreeMap::new();
    while let Some(name) = referenced.pop() {
        if kept.contains_key(name) {
            continue;
        }
        if let Some(definition) = all.and_then(|all| all.get(name)) {
            kept.insert(name, reduced(definition, &names, &mut referenced));
        }
    }
    if let Some(root) = root.as_object_mut()
        && all.is_some()
    {
        let kept = kept.into_iter().map(|(name, definition)| (name.to_owned(), definition));
        root.insert(DEFINITIONS.to_owned(), Value::Object(kept.collect()));
    }
    root
}

/// Adds the names of all members in `value`. INVARIANT: the parser limits the nesting, so the recursion is limited too.
fn collect_names<'a>(value: &'a Value, names: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                names.insert(name);
                collect_names(member, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A schema, or an array of schemas, without what applies to members of other names; and the definitions that it refers
/// to.
fn reduced<'a>(schema: &'a Value, names: &BTreeSet<&str>, referenced: &mut Vec<&'a str>) -> Value {
    let members = match schema {
        Value::Object(members) => members,
        Value::Array(items) => {
            return items.iter().map(|item| reduced(item, names, referenced)).collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return schema.clone();
        }
    };
    let mut out = Map::new();
    for (keyword, value) in members {
        let value = match (keyword.as_str(), value) {
            (DEFINITIONS, _) => continue,
            (OF_MEMBERS, Value::Object(of)) => {
                let one = |(name, schema): (&'a String, &'a Value)| {
                    let applies = names.contains(name.as_str());
                    let schema = if applies {
                        reduced(schema, names, referenced)
                    } else {
                        Value::Bool(true)
                    };
                    (name.clone(), schema)
                };
                Value::Object(of.iter().map(one).collect())
            }
            (keyword, Value::Object(of)) if MAPS_OF_SCHEMAS.contains(&keyword) => {
                let one = |(name, schema): (&'a String, &'a Value)| {
                    (name.clone(), reduced(schema, names, referenced))
                };
                Value::Object(of.iter().map(one).collect())
            }
            (keyword, value) if SCHEMAS.contains(&keyword) => reduced(value, names, referenced),
            (keyword, value) => {
                if let Some(to) = value.as_str().filter(|_| keyword == "$ref") {
                    referenced.extend(to.strip_prefix(REFERENCE));
                }
                value.clone()
            }
        };
        out.insert(keyword.clone(), value);
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::part;
    use crate::config::settings::shape;

    #[test]
    fn only_what_the_document_has_is_kept() {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#/$defs/b"}},
            "$defs": {
                "a": {"properties": {"a": {"$ref": "#/$defs/a"}, "c": {"$ref": "#/$defs/c"}, "properties": {"minimum": 1}}},
                "b": {"type": "string"},
                "c": {"anyOf": [{"$ref": "#/$defs/d"}, {"type": "null"}]},
                "d": {"items": {"properties": {"e": {"type": "string"}}}},
            },
        });
        let expected = json!({
            "type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {"a": {"$ref": "#/$defs/a"}, "b": true},
            "$defs": {
                "a": {"properties": {"a": {"$ref": "#/$defs/a"}, "c": {"$ref": "#/$defs/c"}, "properties": true}},
                "c": {"anyOf": [{"$ref": "#/$defs/d"}, {"type": "null"}]},
                "d": {"items": {"properties": {"e": true}}},
            },
        });
        assert_eq!(part(&schema, &json!({"a": {"c": [{}]}})), expected);
    }

    /// A keyword that is unknown here would be copied with the references in it.
    #[test]
    fn the_keywords_with_schemas_are_known_and_every_reference_leads_to_a_definition() {
        let schema = shape::schema();
        let everything = names_of(&schema);
        assert_eq!(part(&schema, &everything), schema);
        let nothing = part(&schema, &json!({}));
        assert_eq!(nothing["$defs"], json!({}));
        for name in everything.as_object().unwrap().keys() {
            let text = part(&schema, &json!({ name: everything })).to_string();
            for referenced in text.split("\"#/$defs/").skip(1) {
                let definition = referenced.split('"').next().unwrap();
                assert!(text.contains(&format!("\"{definition}\":{{")), "{definition} is left out");
            }
        }
    }

    /// A document that has each name that the schema has.
    fn names_of(schema: &Value) -> Value {
        match schema {
            Value::Object(members) => {
                let own = members.iter().map(|(name, value)| (name.clone(), names_of(value)));
                Value::Object(own.collect())
            }
            Value::Array(items) => items.iter().map(names_of).collect(),
            other => other.clone(),
        }
    }
}
