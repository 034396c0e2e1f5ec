//! Validates a configuration against its JSON Schema, and turns schema errors into problems with help for the
//! operator.

mod needed;

use std::collections::{BTreeMap, BTreeSet};

use json::pointer::{escaped, unescaped};
use jsonschema::JsonType;
use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::bounds::Unit;
use super::former_keys;
use super::nearest::nearest;
use super::problem::ConfigProblem;
use super::raw::RawSettings;
use super::yaml::{NodeKind, YamlNode};
use crate::base::masking;

/// The key that names the variable of a secret. An object with this key is a reference to a secret.
const FROM_ENV: &str = "fromEnv";
/// The most keys that are listed for an unknown one.
const LISTED: usize = 12;
/// What others write for the effect `forbid` of a rule.
const FORBIDS: [&str; 5] = ["block", "deny", "disallow", "refuse", "reject"];

/// The JSON Schema of the configuration.
#[must_use]
pub fn schema() -> Value {
    schema_of::<RawSettings>("Portcullis configuration")
}

/// The JSON Schema of a file that deserializes to `T`.
pub(super) fn schema_of<T: JsonSchema>(title: &str) -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".to_owned(), title.into());
    }
    schema
}

/// Changes that make an invalid configuration deserializable, so that the rest of it can still be checked.
#[derive(Debug, Default)]
struct Repairs {
    /// Members to remove: the JSON Pointer of the mapping, and the key.
    cuts: BTreeSet<(String, String)>,
    /// Values for missing keys, by JSON Pointer: an empty list, or the only allowed value.
    gaps: BTreeMap<String, Value>,
}

/// The result of a schema check.
#[derive(Debug)]
pub(super) struct SchemaCheck {
    /// The JSON without its invalid parts. Missing keys have a placeholder unless their absence is waived, so that
    /// the rest can be checked; a configuration with placeholders is never served.
    pub(super) json: Value,
    /// The violations of the schema that were not waived.
    pub(super) problems: Vec<ConfigProblem>,
    /// The violations that were waived.
    pub(super) waived: Vec<ConfigProblem>,
}

/// Validates `root` against `schema`. Violations at JSON Pointers that `waives` accepts are returned separately.
pub(super) fn check(
    root: &mut YamlNode,
    schema: &Value,
    waives: &dyn Fn(&str) -> bool,
) -> SchemaCheck {
    let options = jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex());
    let needed = needed::part(schema, &root.json());
    let Ok(validator) = options.build(&needed) else {
        // The test `the_schema_is_a_schema` excludes this; if it happens anyway, no configuration is accepted.
        let problems = vec![ConfigProblem::new(0..0, "the schema is broken", "report a bug")];
        return SchemaCheck { json: Value::Null, problems, waived: Vec::new() };
    };
    let json = root.json();
    for error in validator.iter_errors(&json) {
        let at = error.instance_path().to_string();
        let wants_text = leaves(&error).iter().any(|leaf| wants_string(leaf));
        if let Some(YamlNode { kind: NodeKind::Scalar(scalar), .. }) = root.at_mut(&at)
            && wants_text
            && scalar.substituted
        {
            scalar.plain = false;
        }
    }
    let mut json = root.json();
    let (mut problems, mut waived) = (Vec::new(), Vec::new());
    let mut repairs = Repairs::default();
    let original = json.clone();
    for error in validator.iter_errors(&original) {
        let is_waived = waives(&error.instance_path().to_string());
        let found = if is_waived { &mut waived } else { &mut problems };
        explain(&error, root, schema, found, &mut repairs);
    }
    let causes = problems.clone();
    problems.retain(|problem| !causes.iter().any(|cause| problem.follows(cause)));
    for (parent, key) in repairs.cuts {
        if let Some(Value::Object(object)) = json.pointer_mut(&parent) {
            object.remove(&key);
        }
    }
    for pointer in problems.iter().filter_map(ConfigProblem::missing_key) {
        let Some(value) = repairs.gaps.remove(pointer) else { continue };
        let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(object)) = json.pointer_mut(parent) {
            object.insert(unescaped(key).into_owned(), value);
        }
    }
    SchemaCheck { json, problems, waived }
}

fn explain(
    error: &ValidationError<'_>,
    root: &YamlNode,
    schema: &Value,
    problems: &mut Vec<ConfigProblem>,
    repairs: &mut Repairs,
) {
    let at = error.instance_path().to_string();
    match error.kind() {
        // An optional section is an `anyOf` of the section and null: only the errors within the section matter.
        ValidationErrorKind::AnyOf { context } if error.instance().is_object() => {
            let of_null = |branch: &&Vec<ValidationError<'_>>| {
                let wants = |leaf: &ValidationError<'_>| {
                    matches!(leaf.kind(), ValidationErrorKind::Type { kind: TypeKind::Single(wanted) }
                        if wanted.to_string() == "null")
                };
                branch.iter().all(wants)
            };
            for inner in context.iter().filter(|branch| !of_null(branch)).flatten() {
                explain(inner, root, schema, problems, repairs);
            }
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known = known_keys(schema, &error.schema_path().to_string());
            for key in unexpected {
                let place = root.key_place(&at, key);
                let message = format!("unknown key `{}`", key.escape_debug());
                let near = nearest_key(key, &known, &at);
                let help = suggest(near, &known);
                let near = near.map(|near| format!("{at}/{}", escaped(near)));
                let problem = ConfigProblem::new(place, message, help);
                let problem = problem.of_unknown_key(root.place(&at), near);
                let is_secret = known.iter().any(|key| key == FROM_ENV) || masking::is_secret(key);
                // An unknown key beside a reference to a secret may hold the secret itself, and so may `value`.
                let values = [format!("{at}/{}", escaped(key)), format!("{at}/value")];
                let values = values.iter().filter(|_| is_secret).flat_map(|at| root.scalars(at));
                problems.push(problem.hiding(values));
                repairs.cuts.insert((at.clone(), key.clone()));
            }
        }
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            let message = format!("`{key}` is missing");
            let path = error.schema_path().to_string();
            let only = path
                .strip_suffix("/required")
                .and_then(|path| only_value(schema, schema_at(schema, path), key));
            let help = match only {
                Some(only) => format!("add `{key}: {only}` here"),
                None => format!("add `{key}:` here"),
            };
            let pointer = format!("{at}/{}", escaped(key));
            let object = path.strip_suffix("/required").map(|path| schema_at(schema, path));
            if let Some(value) = object.and_then(|object| stand_in(schema, object, key)) {
                repairs.gaps.insert(pointer.clone(), value);
            }
            let problem = ConfigProblem::new(root.place(&at), message, help);
            problems.push(problem.of_missing_key(pointer));
        }
        _ => {
            let (parent, key) = at.rsplit_once('/').unwrap_or(("", &at));
            repairs.cuts.insert((parent.to_owned(), unescaped(key).into_owned()));
            problems.push(misfit(error, root, schema, &at));
        }
    }
}

/// A placeholder without effect for a missing key of an object: an empty list, the only allowed value, or an object
/// of these.
fn stand_in(schema: &Value, object: &Value, key: &str) -> Option<Value> {
    if let Some(only) = only_value(schema, object, key) {
        return Some(only.into());
    }
    let wanted = resolved(schema, object.get("properties")?.get(key)?);
    match wanted.get("type")?.as_str()? {
        "array" => Some(Value::Array(Vec::new())),
        "object" => {
            let required = wanted.get("required").and_then(Value::as_array);
            let required = required.into_iter().flatten().filter_map(Value::as_str);
            let members =
                required.map(|key| Some((key.to_owned(), stand_in(schema, wanted, key)?)));
            members.collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
        }
        _ => None,
    }
}

/// The only string that a key of an object may have; `None` if there are several.
fn only_value<'a>(schema: &'a Value, object: &'a Value, key: &str) -> Option<&'a str> {
    let mut wanted = resolved(schema, object.get("properties")?.get(key)?);
    if let Some([only]) = wanted.get("oneOf").and_then(Value::as_array).map(Vec::as_slice) {
        wanted = resolved(schema, only);
    }
    let constant = wanted.get("const").and_then(Value::as_str);
    let listed = || match wanted.get("enum")?.as_array()?.as_slice() {
        [only] => only.as_str(),
        _ => None,
    };
    constant.or_else(listed)
}

/// The problem for the value at `at`. It does not show a value that may be a secret.
fn misfit(error: &ValidationError<'_>, root: &YamlNode, schema: &Value, at: &str) -> ConfigProblem {
    let place = root.place(at);
    let is_secret = masking::is_secret(at.rsplit('/').next().unwrap_or_default());
    let (message, help, hides) = special(error, schema, at).unwrap_or_else(|| {
        let (mut message, help) = words(error);
        if is_secret {
            message = message.replace(&shown(error.instance()), "what is written here");
        }
        (message, help, ValueMasking::Nothing)
    });
    let problem = ConfigProblem::new(place, message, help);
    if is_secret || hides == ValueMasking::Values {
        problem.hiding(root.scalars(at))
    } else {
        problem
    }
}

/// Whether a problem masks the values that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueMasking {
    /// The values may be secrets and are masked.
    Values,
    /// The values are shown.
    Nothing,
}

/// The message and help for common mistakes: a plaintext secret, the bare name of a variable, a mapping in place of a
/// list of variables, `true` in place of a section, and a time or size without a unit.
fn special(
    error: &ValidationError<'_>,
    schema: &Value,
    at: &str,
) -> Option<(String, String, ValueMasking)> {
    let leaves = leaves(error);
    leaves.into_iter().find_map(|leaf| {
        let place = leaf.schema_path().to_string();
        let wanted = schema_at(schema, place.strip_suffix("/type")?);
        let has = |schema: &Value, key: &str| {
            schema.get("properties").is_some_and(|keys| keys.get(key).is_some())
        };
        let instance = leaf.instance();
        if has(wanted, FROM_ENV) && has(wanted, "name") && is_name_in_env(instance, at) {
            // What is written may be a secret all the same, so that it is not repeated.
            let message = "an item of `env` is a mapping";
            let help = "an item of `env` is `{name: TOKEN, fromEnv: TOKEN}`";
            return Some((message.to_owned(), help.to_owned(), ValueMasking::Values));
        }
        if has(wanted, FROM_ENV) && !instance.is_object() && !instance.is_null() {
            let help = "write `{fromEnv: NAME}` and set the variable, or `{fromFile: PATH}`; use a new \
                        secret, because this one has been in a file";
            let message = "a secret is written out here";
            return Some((message.to_owned(), help.to_owned(), ValueMasking::Values));
        }
        let items = wanted.get("items").map(|items| resolved(schema, items));
        if let (Some(items), Some(members)) = (items, instance.as_object())
            && has(items, FROM_ENV)
            && has(items, "value")
        {
            let name = members.keys().next().map_or("NAME", String::as_str).escape_debug();
            let help = format!(
                "write an item for each: `- {{name: {name}, value: ..}}`, or for a secret \
                 `- {{name: {name}, fromEnv: VARIABLE}}`"
            );
            return Some(("a mapping is not a list".to_owned(), help, ValueMasking::Values));
        }
        if instance.as_bool() == Some(true) && is_optional_section(wanted) {
            let (section, key) = at.rsplit_once('/').unwrap_or(("", at));
            let purpose =
                if section.ends_with("/serverRequests") { "to allow it" } else { "for its defaults" };
            let help = format!("write `{key}: {{}}` {purpose}, or keys and values");
            return Some(("`true` is not a mapping".to_owned(), help, ValueMasking::Nothing));
        }
        let unit = wanted.get("description").and_then(Value::as_str).and_then(Unit::of_examples)?;
        let (message, help) = unit.missing(&instance.as_u64()?.to_string());
        Some((message, help, ValueMasking::Nothing))
    })
}

/// Whether the value looks like the name of a variable, and is an item of `env`.
fn is_name_in_env(value: &Value, at: &str) -> bool {
    let is_item = at.rsplit_once('/').is_some_and(|(list, _)| list.ends_with("/env"));
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
            && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            && masking::secrets(text) == text
    };
    is_item && value.as_str().is_some_and(is_name)
}

/// Whether a schema is an object with known keys only, none of which is required. It may have no keys at all.
fn is_optional_section(schema: &Value) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    let is_closed = schema.get("additionalProperties").and_then(Value::as_bool) == Some(false);
    is_closed && required.is_none_or(Vec::is_empty)
}

fn words(error: &ValidationError<'_>) -> (String, String) {
    let leaves = leaves(error);
    let options: Vec<String> = leaves.iter().flat_map(|leaf| options(leaf)).collect();
    if !options.is_empty() {
        let message = format!("{} is not known here", shown(error.instance()));
        let near = error.instance().as_str().and_then(|text| {
            let forbids = FORBIDS.contains(&&*text.to_lowercase());
            let forbid = options.iter().find(|option| forbids && *option == "forbid");
            let forbid = forbid.map(String::as_str);
            forbid.or_else(|| nearest(text, options.iter().map(String::as_str)))
        });
        let list = options.iter().map(|o| format!("`{o}`")).collect::<Vec<_>>().join(", ");
        let help = near.map_or_else(
            || format!("use one of {list}"),
            |near| match options.len() {
                1 => format!("write `{near}`"),
                _ => format!("did you mean `{near}`? It is one of {list}"),
            },
        );
        return (message, help);
    }
    for leaf in &leaves {
        if let Some(wanted) = wanted(leaf) {
            let message = format!("{} is not {}", shown(leaf.instance()), article(&wanted));
            let unquoted = leaf.instance().as_str().filter(|text| is_unquoted(text, &wanted));
            if let Some(text) = unquoted {
                return (message, format!("write `{text}` without quotes"));
            }
            let is_address = leaf.instance_path().as_str().ends_with("/address");
            let help = match wanted.as_str() {
                "string" if is_address => {
                    "write the address and the port: `127.0.0.1:8080`, `[::1]:8080` or `0.0.0.0:8080`"
                }
                "string" => "write text here; quote it if it looks like a number or a boolean",
                "array" => "write a list here: `[a, b]`, or one `- item` on each line",
                "object" => "write keys and values here",
                _ => "correct the value",
            };
            return (message, help.to_owned());
        }
    }
    (error.to_string(), "correct the value".to_owned())
}

/// Whether the text would have the expected type without its quotes.
fn is_unquoted(text: &str, wanted: &str) -> bool {
    match wanted {
        "boolean" => ["true", "false"].contains(&text),
        "integer" => text.parse::<i64>().is_ok(),
        "number" => text.parse::<f64>().is_ok_and(f64::is_finite),
        _ => false,
    }
}

/// The errors at the leaves of an `anyOf` or `oneOf`, which say what is wrong; the outer error only says that no
/// branch matched.
fn leaves<'a, 'e>(error: &'a ValidationError<'e>) -> Vec<&'a ValidationError<'e>>
where
    'e: 'a,
{
    match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context.iter().flatten().flat_map(leaves).collect()
        }
        _ => vec![error],
    }
}

fn options(error: &ValidationError<'_>) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match error.kind() {
        ValidationErrorKind::Constant { expected_value } => {
            text(expected_value).into_iter().collect()
        }
        ValidationErrorKind::Enum { options } => {
            options.as_array().into_iter().flatten().filter_map(text).collect()
        }
        _ => Vec::new(),
    }
}

/// The expected type besides null; `None` if several types are allowed.
fn wanted(error: &ValidationError<'_>) -> Option<String> {
    match error.kind() {
        ValidationErrorKind::Type { kind: TypeKind::Single(wanted) } => Some(wanted.to_string()),
        ValidationErrorKind::Type { kind: TypeKind::Multiple(wanted) } => {
            let mut others = wanted.iter().filter(|one| *one != JsonType::Null);
            others.next().filter(|_| others.next().is_none()).map(|one| one.to_string())
        }
        _ => None,
    }
}

fn wants_string(error: &ValidationError<'_>) -> bool {
    wanted(error).is_some_and(|wanted| wanted == "string")
}

fn article(kind: &str) -> String {
    match kind {
        "array" => "a list".to_owned(),
        "object" => "a mapping".to_owned(),
        "integer" => "an integer".to_owned(),
        other => format!("a {other}"),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "a mapping".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("`{}`", text.escape_debug()),
        other => format!("`{other}`"),
    }
}

/// The keys that an object may have, by the schema path of its `additionalProperties`.
fn known_keys(schema: &Value, path: &str) -> Vec<String> {
    let path = path.strip_suffix("/additionalProperties").unwrap_or(path);
    let keys = schema_at(schema, path).get("properties").and_then(Value::as_object);
    keys.into_iter().flat_map(|keys| keys.keys().cloned()).collect()
}

/// The part of the schema at the path of an error, which has a `$ref` for each reference that was followed.
fn schema_at<'a>(schema: &'a Value, path: &str) -> &'a Value {
    let mut at = schema;
    for segment in path.split('/').skip(1) {
        at = resolved(schema, at);
        if segment == "$ref" {
            continue;
        }
        let Some(next) = at.get(segment).or_else(|| at.get(segment.parse::<usize>().ok()?)) else {
            break;
        };
        at = next;
    }
    resolved(schema, at)
}

/// The target of the `$ref` in a part of the schema; the part itself if it has none.
fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    let reference = part.get("$ref").and_then(Value::as_str);
    let found = reference.and_then(|to| schema.pointer(to.trim_start_matches('#')));
    found.unwrap_or(part)
}

/// The closest of the `known` keys of the mapping at a JSON Pointer, also by their former names.
fn nearest_key<'a>(key: &str, known: &'a [String], at: &str) -> Option<&'a str> {
    let former = former_keys::names_at(at);
    let names = known.iter().map(String::as_str).chain(former.iter().map(|(former, _)| *former));
    let near = nearest(key, names)?;
    let current = former.iter().find(|(former, _)| *former == near);
    let near = current.map_or(near, |(_, current)| *current);
    known.iter().map(String::as_str).find(|known| *known == near)
}

fn suggest(near: Option<&str>, known: &[String]) -> String {
    if let Some(near) = near {
        return format!("did you mean `{near}`?");
    }
    let listed = known.iter().take(LISTED).map(|known| format!("`{known}`"));
    let list = listed.collect::<Vec<_>>().join(", ");
    match known.len().checked_sub(LISTED) {
        Some(more @ 1..) => {
            format!("remove it; the keys here are {list} and {more} more, which docs/keys.md has")
        }
        Some(0) | None => format!("remove it; the keys here are {list}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_schema_is_a_schema() {
        jsonschema::validator_for(&super::schema()).unwrap();
    }
}
