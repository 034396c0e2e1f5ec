//! What an input schema takes, argument by argument, so that two schemas can be compared without their digests.

use std::collections::{BTreeMap, BTreeSet};

use json::pointer::escaped;
use json::{JsonKind, Value};

/// Deepest argument that is read.
const DEEPEST: usize = 12;
/// Most arguments that are read.
const MOST: usize = 2000;

/// What a schema says of one argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgumentShape {
    /// The types that it names; empty if it names none.
    pub types: BTreeSet<String>,
    /// The values that it lists, as JSON; `None` if it lists none.
    pub values: Option<BTreeSet<String>>,
    /// Whether the argument has to be given.
    pub is_required: bool,
    /// What it says for people and models.
    pub description: String,
}

/// The arguments of a schema by their place in it, a JSON Pointer such as `/properties/state`. What stands in a part of
/// `anyOf`, `oneOf` or `allOf` has the place that it would have without that.
#[must_use]
pub fn arguments(definition: Value<'_>) -> BTreeMap<String, ArgumentShape> {
    let mut found = BTreeMap::new();
    if let Some(schema) = definition.get("inputSchema") {
        members(schema, "", 0, &mut found);
    }
    found
}

fn members(schema: Value<'_>, at: &str, depth: usize, found: &mut BTreeMap<String, ArgumentShape>) {
    if depth > DEEPEST || found.len() > MOST {
        return;
    }
    let required: BTreeSet<String> = texts(schema.get("required"));
    let properties = schema.get("properties");
    for (name, property) in properties.into_iter().flat_map(Value::members) {
        let at = format!("{at}/properties/{}", escaped(&name));
        let shape = ArgumentShape { is_required: required.contains(&*name), ..shape(property) };
        add(found, at.clone(), shape);
        members(property, &at, depth + 1, found);
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        let at = format!("{at}/items");
        add(found, at.clone(), shape(items));
        members(items, &at, depth + 1, found);
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        for part in schema.get(keyword).into_iter().flat_map(Value::items) {
            members(part, at, depth + 1, found);
        }
    }
}

/// Adds the shape of an argument. If several parts of a schema describe it, it takes what one of them takes.
fn add(found: &mut BTreeMap<String, ArgumentShape>, at: String, shape: ArgumentShape) {
    let Some(known) = found.get_mut(&at) else {
        found.insert(at, shape);
        return;
    };
    known.types.extend(shape.types);
    known.values = match (known.values.take(), shape.values) {
        (Some(mut values), Some(more)) => {
            values.extend(more);
            Some(values)
        }
        (None, _) | (_, None) => None,
    };
    known.is_required &= shape.is_required;
    if !known.description.is_empty() && !shape.description.is_empty() {
        known.description.push(' ');
    }
    known.description.push_str(&shape.description);
}

fn shape(schema: Value<'_>) -> ArgumentShape {
    let alternatives = ["anyOf", "oneOf"].into_iter().filter_map(|keyword| schema.get(keyword));
    let alternatives = alternatives.flat_map(Value::items);
    let types =
        alternatives.flat_map(|part| texts(part.get("type"))).chain(texts(schema.get("type")));
    let values = schema.get("enum").filter(|values| values.kind() == JsonKind::Array);
    let values = values.map(|values| values.items().map(|one| one.raw().to_owned()).collect());
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    ArgumentShape {
        types: types.collect(),
        values,
        is_required: false,
        description: description.into_owned(),
    }
}

/// A text, or each text of a list.
fn texts(value: Option<Value<'_>>) -> BTreeSet<String> {
    let one = value.and_then(Value::as_str).map(std::borrow::Cow::into_owned);
    let all = value.into_iter().flat_map(Value::items);
    one.into_iter().chain(all.filter_map(|one| one.as_str().map(Into::into))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, JsonBounds};

    use super::*;

    #[test]
    fn arguments_are_read_wherever_they_stand() {
        let text = r#"{"inputSchema":{"required":["a/b"],"properties":{
            "a/b":{"type":["string","null"],"enum":["x","y"],"description":"Which"},
            "list":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}}}}},
            "anyOf":[{"properties":{"other":{"anyOf":[{"type":"string"},{"type":"null"}]}}}]}}"#;
        let document =
            Arc::new(Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).unwrap());
        let found = arguments(document.root());
        let paths: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            [
                "/properties/a~1b",
                "/properties/list",
                "/properties/list/items",
                "/properties/list/items/properties/id",
                "/properties/other",
            ]
        );
        let first = &found["/properties/a~1b"];
        assert!(first.is_required && first.types.len() == 2 && first.description == "Which");
        assert_eq!(first.values.as_ref().map(BTreeSet::len), Some(2));
        assert_eq!(found["/properties/other"].types.len(), 2);
        // What several parts say of one argument is put together.
        let text = r#"{"inputSchema":{"anyOf":[
            {"properties":{"a":{"enum":["x"],"description":"One"}},"required":["a"]},
            {"properties":{"a":{"enum":["y"],"description":"other"}}}]}}"#;
        let parts = Arc::new(Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).unwrap());
        let both = &arguments(parts.root())["/properties/a"];
        assert_eq!(both.values.as_ref().map(BTreeSet::len), Some(2));
        assert!(!both.is_required && both.description == "One other");
        assert!(
            arguments(Arc::new(Document::parse("{}".into(), &JsonBounds::ANSWER).unwrap()).root())
                .is_empty()
        );
    }
}
