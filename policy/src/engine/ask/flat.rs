//! Checks that the schema of a form is a flat object of primitive fields.
//!
//! SPEC 2025-11-25 client/elicitation: schemas are limited to flat objects with primitive properties. Anything that
//! clients may interpret differently (a reference, a pattern for names, an object in a field) is rejected, because
//! the fields that the user would see are unknown.

use super::{READ_IN_FIELD, READ_IN_SCHEMA};
use crate::base::work::WorkBudget;
use crate::json::{JsonKind, Value};

/// Units per byte of a form for reading its members.
const READING: usize = 4;

/// Types that a field may have. `null` occurs among the choices of an optional field.
const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "array", "null"];

/// Keywords that define a schema elsewhere, or by other means than plain fields.
const OTHER: [&str; 18] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "patternProperties",
    "propertyNames",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentSchemas",
    "dependentRequired",
    "prefixItems",
    "additionalItems",
    "contains",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// Whether a schema describes a flat form. If `budget` is exhausted afterwards, it was not read completely.
pub(super) fn is_form(schema: Value<'_>, budget: &WorkBudget) -> bool {
    if !budget.spend(schema.raw().len().saturating_mul(READING)) {
        return false;
    }
    let of = |name: &str| schema.get(name);
    let is_object = of("type").and_then(Value::as_str).as_deref() == Some("object");
    let plain = is_plain(schema)
        && ["anyOf", "oneOf", "items"].into_iter().all(|other| of(other).is_none())
        && schema.members().all(|(name, _)| READ_IN_SCHEMA.tells_apart(&name, budget));
    let fields = match of("properties") {
        None => true,
        Some(fields) => {
            fields.is_object() && fields.members().all(|(_, field)| is_field(field, budget))
        }
    };
    let required = of("required").is_none_or(|names| {
        names.kind() == JsonKind::Array && names.items().all(|name| name.as_str().is_some())
    });
    schema.is_object() && is_object && plain && fields && required
}

/// Whether a schema has none of the [`OTHER`] keywords.
fn is_plain(schema: Value<'_>) -> bool {
    let more = schema.get("additionalProperties").is_none_or(|more| more.as_bool().is_some());
    more && OTHER.iter().all(|other| schema.get(other).is_none())
}

/// Whether it is a primitive field or a choice. A value that is not a schema counts as a field without a description.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn is_field(field: Value<'_>, budget: &WorkBudget) -> bool {
    if !field.is_object() {
        return true;
    }
    let known = field
        .get("type")
        .is_none_or(|kind| kind.as_str().is_some_and(|kind| TYPES.contains(&&*kind)));
    let choices = ["anyOf", "oneOf"].into_iter().filter_map(|list| field.get(list));
    let mut inside = choices.flat_map(Value::items).chain(field.get("items"));
    known
        && is_plain(field)
        && field.members().all(|(name, _)| READ_IN_FIELD.tells_apart(&name, budget))
        && field.get("properties").is_none()
        && inside.all(|schema| schema.is_object() && is_field(schema, budget))
}
