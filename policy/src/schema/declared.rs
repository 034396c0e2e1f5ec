//! Determines which arguments an input schema declares, including schemas that permit additional properties.
//!
//! A server may act on an argument that has not been reviewed, since rules, constraints and reviewers rely on the
//! definition.

use std::collections::BTreeMap;

use crate::json::pointer::{escaped, unescaped};
use crate::json::{JsonKind, Value};
use crate::schema::SchemaViolation;

/// Most schemas visited for one call, counting each visit.
const PARTS: usize = 1_000_000;
/// Most nested schemas for one value; also ends cyclic references.
const DEPTH: usize = 32;
/// Keywords with a list of schemas that apply to the value itself.
const IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with one schema that applies to the value itself.
const BRANCHES: [&str; 3] = ["if", "then", "else"];

/// Which members of an object are refused.
#[derive(Clone, Copy)]
enum UndeclaredMembers {
    /// All that no schema declares.
    Refused,
    /// The same, but an object may have any members if none is declared.
    RefusedBesideDeclared,
}

/// The first argument that the schema of a tool does not declare.
pub(crate) fn undeclared(
    schema: Option<Value<'_>>,
    arguments: Value<'_>,
) -> Option<SchemaViolation> {
    let mut look = DeclarationReader { root: schema, parts: 0 };
    let schemas: Vec<_> = schema.into_iter().collect();
    look.object(&schemas, arguments, &mut String::new(), UndeclaredMembers::Refused)
}

/// What the schema of a tool states about one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declaration {
    /// The argument is declared, or can be: the schema describes members of any name.
    Argument,
    /// The schema states nothing about which members exist.
    Nothing,
    /// The schema declares other members, but not this one.
    Others,
}

/// What the schema of a tool states about the argument at `path`, the parts of a JSON Pointer with `*` for each item
/// or member.
pub(crate) fn declares(schema: Option<Value<'_>>, path: &[Box<str>]) -> Declaration {
    let mut look = DeclarationReader { root: schema, parts: 0 };
    let mut schemas: Vec<_> = schema.into_iter().collect();
    for part in path {
        let declared = look.of(&schemas);
        // A schema too large to visit completely may declare anything.
        if declared.is_map || look.parts > PARTS {
            return Declaration::Argument;
        }
        let is_silent = !declared.is_closed && declared.items.is_empty();
        let inside = declared.inside(part);
        if inside.is_empty() {
            return if is_silent && !are_plain(&schemas) {
                Declaration::Nothing
            } else {
                Declaration::Others
            };
        }
        schemas = inside;
    }
    Declaration::Argument
}

/// Whether the schema of a tool declares a member of exactly this name at `path`, the parts of a JSON Pointer with
/// `*` for each item or member.
pub(crate) fn declares_member(schema: Option<Value<'_>>, path: &[Box<str>], name: &str) -> bool {
    let mut look = DeclarationReader { root: schema, parts: 0 };
    let mut schemas: Vec<_> = schema.into_iter().collect();
    for part in path {
        schemas = look.of(&schemas).inside(part);
    }
    let declared = look.of(&schemas);
    look.parts <= PARTS && declared.members.contains_key(name)
}

/// Whether all these schemas describe values without members or items.
fn are_plain(schemas: &[Value<'_>]) -> bool {
    const PLAIN: [&str; 5] = ["string", "number", "integer", "boolean", "null"];
    let is_plain = |schema: &Value<'_>| {
        let kind = schema.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| PLAIN.contains(&&*kind))
    };
    !schemas.is_empty() && schemas.iter().all(is_plain)
}

/// What a set of schemas states about the members of one object.
#[derive(Default)]
struct Declared<'a> {
    /// Schemas of the members, by name.
    members: BTreeMap<String, Vec<Value<'a>>>,
    /// Schemas of the items.
    items: Vec<Value<'a>>,
    /// Whether there may be members of any name with a described schema.
    is_map: bool,
    /// Whether members are declared, or no other members are permitted.
    is_closed: bool,
}

impl<'a> Declared<'a> {
    /// The schemas of the value that a part of a JSON Pointer leads to; `*` is each item or member.
    fn inside(self, part: &str) -> Vec<Value<'a>> {
        let Self { mut members, items, .. } = self;
        match part {
            "*" => members.into_values().flatten().chain(items).collect(),
            part => members
                .remove(part)
                .unwrap_or_else(|| if part.parse::<usize>().is_ok() { items } else { Vec::new() }),
        }
    }
}

struct DeclarationReader<'a> {
    root: Option<Value<'a>>,
    parts: usize,
}

impl<'a> DeclarationReader<'a> {
    /// The combined declarations of all these schemas.
    fn of(&mut self, schemas: &[Value<'a>]) -> Declared<'a> {
        let mut declared = Declared::default();
        for schema in schemas {
            self.collect(*schema, &mut declared, DEPTH);
        }
        declared
    }

    /// The first member in `value`, at any depth, that none of the schemas declares.
    fn object(
        &mut self,
        schemas: &[Value<'a>],
        value: Value<'_>,
        at: &mut String,
        undeclared: UndeclaredMembers,
    ) -> Option<SchemaViolation> {
        let declared = self.of(schemas);
        if self.parts > PARTS {
            return Some(SchemaViolation {
                at: at.clone(),
                note: "is more than is looked at".to_owned(),
            });
        }
        let length = at.len();
        for (n, item) in value.items().enumerate() {
            at.push_str(&format!("/{n}"));
            let found = self.inside(&declared.items, item, at);
            at.truncate(length);
            if found.is_some() {
                return found;
            }
        }
        let is_refused = match undeclared {
            UndeclaredMembers::Refused => true,
            UndeclaredMembers::RefusedBesideDeclared => !declared.members.is_empty(),
        };
        let closed = is_refused && !declared.is_map;
        for (name, member) in value.members() {
            let schemas = declared.members.get(&*name);
            if closed && schemas.is_none() {
                let note = format!("`{}` is not one of the members there can be", shown(&name));
                return Some(SchemaViolation { at: at.clone(), note });
            }
            at.push('/');
            at.push_str(&escaped(&name));
            let found = self.inside(schemas.map_or(&[][..], Vec::as_slice), member, at);
            at.truncate(length);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Checks a member or item, which the definition may not describe at all.
    fn inside(
        &mut self,
        schemas: &[Value<'a>],
        value: Value<'_>,
        at: &mut String,
    ) -> Option<SchemaViolation> {
        let nested = matches!(value.kind(), JsonKind::Object | JsonKind::Array);
        if !nested || schemas.is_empty() {
            return None;
        }
        self.object(schemas, value, at, UndeclaredMembers::RefusedBesideDeclared)
    }

    /// Adds the declarations of `schema`.
    fn collect(&mut self, schema: Value<'a>, declared: &mut Declared<'a>, depth: usize) {
        self.parts += 1;
        let Some(depth) = depth.checked_sub(1).filter(|_| self.parts <= PARTS) else { return };
        let extra = schema.get("additionalProperties");
        let is_refused = extra.is_some_and(|extra| extra.as_bool() == Some(false));
        declared.is_closed |= is_refused || schema.get("properties").is_some();
        let properties = schema.get("properties").into_iter().flat_map(Value::members);
        for (name, member) in properties {
            self.parts += 1;
            declared.members.entry(name.into_owned()).or_default().push(member);
        }
        // `true` and `{}` declare nothing; a non-empty schema or `patternProperties` does.
        let says = extra.is_some_and(|extra| extra.members().next().is_some());
        declared.is_map |= says || schema.get("patternProperties").is_some();
        declared.items.extend(schema.get("items").filter(|items| items.kind() == JsonKind::Object));
        declared.items.extend(schema.get("prefixItems").into_iter().flat_map(Value::items));
        for name in IN_PLACE {
            for part in schema.get(name).into_iter().flat_map(Value::items) {
                self.collect(part, declared, depth);
            }
        }
        for name in BRANCHES {
            if let Some(part) = schema.get(name) {
                self.collect(part, declared, depth);
            }
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| self.target(&reference));
        if let Some(target) = target {
            self.collect(target, declared, depth);
        }
    }

    /// The target of a reference within the schema.
    fn target(&self, reference: &str) -> Option<Value<'a>> {
        let pointer = reference.strip_prefix('#')?;
        let mut target = self.root?;
        for part in pointer.split('/').skip(1) {
            let part = unescaped(part);
            target = match target.kind() {
                JsonKind::Array => target.items().nth(part.parse().ok()?)?,
                JsonKind::Object => target.get(&part)?,
                JsonKind::Null
                | JsonKind::Boolean
                | JsonKind::Number
                | JsonKind::Plain
                | JsonKind::Escaped => {
                    return None;
                }
            };
        }
        Some(target)
    }
}

/// A name for messages, shortened to 100 bytes.
fn shown(name: &str) -> String {
    let end = name.floor_char_boundary(100);
    name.get(..end).unwrap_or_default().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::{Declaration, declares, declares_member, undeclared};
    use crate::json::{Document, JsonBounds};

    fn first(schema: &str, arguments: &str) -> Option<String> {
        let parse =
            |text: &str| Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let (schema, arguments) = (parse(schema), parse(arguments));
        let misfit = undeclared(Some(schema.root()), arguments.root())?;
        Some(format!("{}: {}", misfit.at, misfit.note))
    }

    #[test]
    fn an_argument_is_looked_for_as_the_schema_says() {
        let parse =
            |text: &str| Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let schema = parse(
            r##"{"properties": {
                "path": {"type": "string"}, "paths": {"type": "array", "items": {"type": "string"}}, "any": {},
                "map": {"additionalProperties": {"type": "string"}}, "edit": {"$ref": "#/$defs/edit"}
            }, "$defs": {"edit": {"properties": {"from": {}}}}}"##,
        );
        for (path, says) in [
            ("path", Declaration::Argument),
            ("pahts", Declaration::Others),
            ("path/x", Declaration::Others),
            ("paths/*", Declaration::Argument),
            ("paths/0", Declaration::Argument),
            ("paths/x", Declaration::Others),
            ("any/x", Declaration::Nothing),
            ("map/x", Declaration::Argument),
            ("edit/from", Declaration::Argument),
            ("edit/form", Declaration::Others),
            ("*", Declaration::Argument),
        ] {
            let parts: Vec<Box<str>> = path.split('/').map(Into::into).collect();
            assert_eq!(declares(Some(schema.root()), &parts), says, "{path}");
        }
        let path: [Box<str>; 1] = ["path".into()];
        assert_eq!(declares(None, &path), Declaration::Nothing);
        for (text, says) in [
            (r#"{"type": "object"}"#, Declaration::Nothing),
            (r#"{"type": "object", "properties": {}}"#, Declaration::Others),
            (r#"{"additionalProperties": false}"#, Declaration::Others),
        ] {
            assert_eq!(declares(Some(parse(text).root()), &path), says, "{text}");
        }
    }

    #[test]
    fn a_member_is_declared_by_its_very_name() {
        let parse =
            |text: &str| Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let schema = parse(
            r##"{"properties": {"a.b": {}, "list": {"items": {"$ref": "#/$defs/c"}}, "map": {"additionalProperties": {}}},
            "patternProperties": {".*": {}}, "$defs": {"c": {"properties": {"c.d": {}}}}}"##,
        );
        for (path, name, declared) in [
            (&[][..], "a.b", true),
            (&[], "a", false),
            (&[], "A.b", false),
            (&[], "x.y", false),
            (&["list", "*"], "c.d", true),
            (&["list", "0"], "c.d", true),
            (&["list"], "c.d", false),
            (&["map"], "c.d", false),
        ] {
            let path: Vec<Box<str>> = path.iter().map(|part| Box::from(*part)).collect();
            let is = declares_member(Some(schema.root()), &path, name);
            assert_eq!(is, declared, "{path:?} {name}");
        }
        assert!(!declares_member(None, &[], "a.b"));
    }

    #[test]
    fn what_is_declared_is_all_there_is() {
        let schema = r##"{
            "properties": {
                "a": {}, "map": { "additionalProperties": { "type": "string" } }, "free": { "type": "object" },
                "one": { "properties": { "x": {} }, "additionalProperties": true },
                "list": { "items": { "$ref": "#/$defs/item" } }, "tree": { "$ref": "#/$defs/tree" }
            },
            "oneOf": [{ "properties": { "b": {} } }, { "$ref": "#/$defs/more" }],
            "$defs": {
                "more": { "properties": { "c": {} } }, "item": { "properties": { "n": {} } },
                "tree": { "properties": { "next": { "$ref": "#/$defs/tree" } } },
                "loop": { "$ref": "#/$defs/loop" }
            }
        }"##;
        for good in [
            "{}",
            r#"{"a":{"any":1},"b":1,"c":2}"#,
            r#"{"map":{"x":"y"},"free":{"x":{"y":1}},"one":{"x":1}}"#,
            r#"{"list":[{"n":1},{}],"tree":{"next":{"next":{}}}}"#,
        ] {
            assert_eq!(first(schema, good), None, "{good}");
        }
        for (bad, at) in [
            (r#"{"d":1}"#, ": `d`"),
            (r#"{"one":{"y":1}}"#, "/one: `y`"),
            (r#"{"list":[{"n":1},{"m":1}]}"#, "/list/1: `m`"),
            (r#"{"tree":{"next":{"nxt":{}}}}"#, "/tree/next: `nxt`"),
        ] {
            let found = first(schema, bad).unwrap();
            assert!(found.starts_with(at), "{found}");
        }
        assert!(first(r#"{"type":"object"}"#, r#"{"a":1}"#).is_some());
        // A cyclic reference declares nothing.
        assert!(first(r##"{"$ref":"#"}"##, r#"{"a":1}"#).is_some());
    }
}
