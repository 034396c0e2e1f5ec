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

/// The arguments of a schema by their path, such as `/filter/state`; `*` stands for each item of a list.
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
        let at = format!("{at}/{}", escaped(&name));
        let shape = ArgumentShape { is_required: required.contains(&*name), ..shape(property) };
        found.insert(at.clone(), shape);
        members(property, &at, depth + 1, found);
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        let at = format!("{at}/*");
        found.insert(at.clone(), shape(items));
        members(items, &at, depth + 1, found);
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        for part in schema.get(keyword).into_iter().flat_map(Value::items) {
            members(part, at, depth + 1, found);
        }
    }
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
