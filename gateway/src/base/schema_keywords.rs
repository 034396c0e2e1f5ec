//! The keywords of JSON Schema that have schemas in them (JSON Schema 2020-12, core, section 10, and `definitions` of
//! earlier drafts).

/// Keywords whose value is a schema, or an array of schemas.
pub const SCHEMAS: [&str; 13] = [
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedProperties",
];
/// Keywords whose value maps names to schemas.
pub const MAPS_OF_SCHEMAS: [&str; 5] =
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
