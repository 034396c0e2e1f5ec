//! Determines which arguments an input schema declares, including schemas that permit additional properties.
//!
//! A server may act on an argument that has not been reviewed, since rules, constraints and reviewers rely on the
//! definition.

use std::collections::BTreeMap;
use std::ops::Range;

use json::pointer::{escaped, unescaped};
use json::{JsonKind, Value, coding};
use regex::{Regex, RegexBuilder};

use super::patterns::LARGE;
use crate::schema::SchemaViolation;

/// Most schemas visited for one call, counting each visit.
const PARTS: usize = 1_000_000;
/// Parts that compiling an expression counts as.
const PATTERN: usize = 1000;
/// Most nested schemas for one value; also ends cyclic references.
const DEPTH: usize = 32;
/// Keywords with a list of schemas that apply to the value itself.
const IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with one schema that applies to the value itself.
const BRANCHES: [&str; 3] = ["if", "then", "else"];
/// Keywords with schemas by the name of a member, each of which applies to the value itself where it has that member.
const DEPENDENT: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords with a schema of the members that no other keyword is about.
const OTHER_MEMBERS: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Keywords with a schema of the items behind those that have a schema by their place.
const OTHER_ITEMS: [&str; 3] = ["items", "additionalItems", "unevaluatedItems"];
/// Keywords with a list of schemas of items by their place; `items` is one in draft 7 and before.
const ITEMS_BY_PLACE: [&str; 2] = ["prefixItems", "items"];

/// Which members of an object are refused.
#[derive(Clone, Copy)]
enum UndeclaredMembers {
    /// All that no schema declares.
    Refused,
    /// The same, but an object may have any members if none is declared.
    RefusedBesideDeclared,
}

/// The first argument that the schema of a tool does not declare.
pub fn undeclared(schema: Option<Value<'_>>, arguments: Value<'_>) -> Option<SchemaViolation> {
    let mut look = DeclarationReader::new(schema);
    let schemas: Vec<_> = schema.into_iter().collect();
    look.object(&schemas, arguments, &mut String::new(), UndeclaredMembers::Refused)
}

/// What the schema of a tool states about one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declaration {
    /// The argument is declared, or can be: the schema describes members of any name.
    Argument,
    /// The schema states nothing about which members exist.
    Nothing,
    /// The schema declares other members, but not this one.
    Others,
}

/// What the schema of a tool states about the argument at `path`, the parts of a JSON Pointer with `*` for each item
/// or member.
pub fn declares(schema: Option<Value<'_>>, path: &[Box<str>]) -> Declaration {
    let mut look = DeclarationReader::new(schema);
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
pub fn declares_member(schema: Option<Value<'_>>, path: &[Box<str>], name: &str) -> bool {
    let mut look = DeclarationReader::new(schema);
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

/// What a set of schemas states about the members of one object, or about the items of one list.
#[derive(Default)]
struct Declared<'a> {
    /// Schemas of the members, by name.
    members: BTreeMap<String, Vec<Value<'a>>>,
    /// Schemas of the members whose name matches an expression.
    patterns: Vec<(String, Value<'a>)>,
    /// Schemas of all other members.
    others: Vec<Value<'a>>,
    /// Schemas of the items, with the places that they are about.
    items: Vec<(Range<usize>, Value<'a>)>,
    /// Whether there may be members of any name with a described schema.
    is_map: bool,
    /// Whether members are declared, or no other members are permitted.
    is_closed: bool,
}

impl<'a> Declared<'a> {
    /// The schemas of the value that a part of a JSON Pointer leads to; `*` is each item or member.
    fn inside(mut self, part: &str) -> Vec<Value<'a>> {
        if part == "*" {
            let items = self.items.into_iter().map(|(_, schema)| schema);
            let patterns = self.patterns.into_iter().map(|(_, schema)| schema);
            let members = self.members.into_values().flatten();
            return members.chain(patterns).chain(self.others).chain(items).collect();
        }
        if let Some(schemas) = self.members.remove(part) {
            return schemas;
        }
        let item = part.parse().map(|place| self.item(place)).unwrap_or_default();
        let patterns = self.patterns.into_iter().map(|(_, schema)| schema);
        item.into_iter().chain(patterns).chain(self.others).collect()
    }

    /// The schemas of the item at a place.
    fn item(&self, place: usize) -> Vec<Value<'a>> {
        let of_place = self.items.iter().filter(|(places, _)| places.contains(&place));
        of_place.map(|(_, schema)| *schema).collect()
    }
}

struct DeclarationReader<'a> {
    root: Option<Value<'a>>,
    parts: usize,
    /// The expressions that were compiled; `None` for one that cannot be used.
    patterns: BTreeMap<String, Option<Regex>>,
    /// The schemas that references by name lead to.
    named: BTreeMap<String, Option<Value<'a>>>,
}

impl<'a> DeclarationReader<'a> {
    const fn new(root: Option<Value<'a>>) -> Self {
        Self { root, parts: 0, patterns: BTreeMap::new(), named: BTreeMap::new() }
    }

    /// The schemas of the member of this name.
    fn member(&mut self, declared: &Declared<'a>, name: &str) -> Vec<Value<'a>> {
        let mut schemas = declared.members.get(name).cloned().unwrap_or_default();
        let is_named = !schemas.is_empty();
        let before = schemas.len();
        for (pattern, schema) in &declared.patterns {
            self.parts += 1;
            if self.matches(pattern, name) {
                schemas.push(*schema);
            }
        }
        if !is_named && schemas.len() == before {
            schemas.extend(&declared.others);
        }
        schemas
    }

    /// Whether a name matches an expression. One that cannot be used counts as one that matches.
    fn matches(&mut self, pattern: &str, name: &str) -> bool {
        if !self.patterns.contains_key(pattern) {
            self.parts += PATTERN;
            let compiled = RegexBuilder::new(pattern).size_limit(LARGE).build().ok();
            self.patterns.insert(pattern.to_owned(), compiled);
        }
        self.patterns
            .get(pattern)
            .is_none_or(|compiled| compiled.as_ref().is_none_or(|compiled| compiled.is_match(name)))
    }

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
            let found = self.inside(&declared.item(n), item, at);
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
            if closed && !declared.members.contains_key(&*name) {
                let note = format!("`{}` is not one of the members there can be", shown(&name));
                return Some(SchemaViolation { at: at.clone(), note });
            }
            at.push('/');
            at.push_str(&escaped(&name));
            let schemas = self.member(&declared, &name);
            let found = self.inside(&schemas, member, at);
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
        let patterns = schema.get("patternProperties");
        for (pattern, member) in patterns.into_iter().flat_map(Value::members) {
            self.parts += 1;
            declared.patterns.push((pattern.into_owned(), member));
        }
        // `true` and `{}` declare nothing; a schema that says something or `patternProperties` does.
        let others = OTHER_MEMBERS.into_iter().filter_map(|name| schema.get(name));
        let others: Vec<_> = others.filter(|other| other.members().next().is_some()).collect();
        declared.is_map |= !others.is_empty() || patterns.is_some();
        declared.others.extend(others);
        self.items(schema, declared);
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
        for name in DEPENDENT {
            // A list of names is no schema, and has no members.
            for (_, part) in schema.get(name).into_iter().flat_map(Value::members) {
                self.collect(part, declared, depth);
            }
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| self.target(&reference));
        if let Some(target) = target {
            self.collect(target, declared, depth);
        }
    }

    /// Adds the declarations of `schema` about items.
    fn items(&mut self, schema: Value<'a>, declared: &mut Declared<'a>) {
        let by_place = ITEMS_BY_PLACE.into_iter().filter_map(|name| schema.get(name));
        let by_place = by_place.flat_map(Value::items).enumerate();
        let mut behind = 0;
        for (place, item) in by_place {
            self.parts += 1;
            behind = place + 1;
            declared.items.push((place..behind, item));
        }
        let others = OTHER_ITEMS.into_iter().filter_map(|name| schema.get(name));
        let others = others.filter(|items| items.kind() == JsonKind::Object);
        declared.items.extend(others.map(|items| (behind..usize::MAX, items)));
        declared.items.extend(schema.get("contains").map(|item| (0..usize::MAX, item)));
    }

    /// The target of a reference within the schema: by its place (RFC 6901, section 6), by an anchor or by an id.
    fn target(&mut self, reference: &str) -> Option<Value<'a>> {
        let Some(pointer) =
            reference.strip_prefix('#').filter(|at| at.is_empty() || at.starts_with('/'))
        else {
            return self.named(reference);
        };
        let pointer = String::from_utf8(coding::percent(pointer).0).ok()?;
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

    /// The schema that has this anchor or id.
    fn named(&mut self, reference: &str) -> Option<Value<'a>> {
        if let Some(known) = self.named.get(reference) {
            return *known;
        }
        let anchor = reference.strip_prefix('#');
        let is = |schema: Value<'a>, key: &str, name: &str| {
            schema.get(key).and_then(Value::as_str).is_some_and(|own| own == name)
        };
        let is_meant = |schema: Value<'a>| {
            is(schema, "$id", reference) || anchor.is_some_and(|name| is(schema, "$anchor", name))
        };
        let mut left: Vec<Value<'a>> = self.root.into_iter().collect();
        let mut found = None;
        while let Some(value) = left.pop() {
            self.parts += 1;
            if self.parts > PARTS {
                break;
            }
            if is_meant(value) {
                found = Some(value);
                break;
            }
            left.extend(value.members().map(|(_, member)| member).chain(value.items()));
        }
        self.named.insert(reference.to_owned(), found);
        found
    }
}

/// A name for messages, shortened to 100 bytes.
fn shown(name: &str) -> String {
    let end = name.floor_char_boundary(100);
    name.get(..end).unwrap_or_default().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::{Declaration, declares, declares_member, undeclared};

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
    fn what_is_declared_is_all_there_is_wherever_an_object_stands() {
        const OBJECT: &str = r#"{"type": "object", "properties": {"a": {}}}"#;
        for (schema, before, behind) in [
            (r#"{"properties": {"l": {"items": [OBJECT]}}}"#, r#"{"l": ["#, "]}"),
            (
                r#"{"properties": {"l": {"items": [{}], "additionalItems": OBJECT}}}"#,
                r#"{"l": [{"z": 1},"#,
                "]}",
            ),
            (
                r#"{"properties": {"l": {"prefixItems": [{}, OBJECT]}}}"#,
                r#"{"l": [{"z": 1},"#,
                "]}",
            ),
            (
                r#"{"properties": {"l": {"prefixItems": [{}], "items": OBJECT}}}"#,
                r#"{"l": [{"z": 1},"#,
                "]}",
            ),
            (r#"{"properties": {"l": {"unevaluatedItems": OBJECT}}}"#, r#"{"l": ["#, "]}"),
            (r#"{"properties": {"l": {"contains": OBJECT}}}"#, r#"{"l": ["#, "]}"),
            (
                r#"{"properties": {"m": {"additionalProperties": OBJECT}}}"#,
                r#"{"m": {"any": "#,
                "}}",
            ),
            (
                r#"{"properties": {"m": {"unevaluatedProperties": OBJECT}}}"#,
                r#"{"m": {"any": "#,
                "}}",
            ),
            (
                r#"{"properties": {"m": {"patternProperties": {"^x": OBJECT, "^y": {}}}}}"#,
                r#"{"m": {"y": {"z": 1}, "x": "#,
                "}}",
            ),
            (
                r#"{"properties": {"m": {"patternProperties": {"^y": {}}, "additionalProperties": OBJECT}}}"#,
                r#"{"m": {"y": {"z": 1}, "x": "#,
                "}}",
            ),
            (r#"{"dependentSchemas": {"o": {"properties": {"o": OBJECT}}}}"#, r#"{"o": "#, "}"),
            (
                r#"{"dependencies": {"o": {"properties": {"o": OBJECT}}, "p": ["q"]}}"#,
                r#"{"o": "#,
                "}",
            ),
            (r#"{"if": {}, "then": {"properties": {"o": OBJECT}}}"#, r#"{"o": "#, "}"),
            (r#"{"if": {}, "else": {"properties": {"o": OBJECT}}}"#, r#"{"o": "#, "}"),
            (
                r#"{"allOf": [{"properties": {"o": {"anyOf": [{"oneOf": [OBJECT]}]}}}]}"#,
                r#"{"o": "#,
                "}",
            ),
            (
                r##"{"properties": {"o": {"$ref": "#/$defs/a%20b"}}, "$defs": {"a b": OBJECT}}"##,
                r#"{"o": "#,
                "}",
            ),
            (
                r##"{"properties": {"o": {"$ref": "#x"}}, "$defs": {"d": {"$anchor": "x", "allOf": [OBJECT]}}}"##,
                r#"{"o": "#,
                "}",
            ),
            (
                r##"{"properties": {"o": {"$ref": "urn:x"}}, "$defs": {"d": {"$id": "urn:x", "allOf": [OBJECT]}}}"##,
                r#"{"o": "#,
                "}",
            ),
        ] {
            let schema = schema.replace("OBJECT", OBJECT);
            let with = |object: &str| first(&schema, &format!("{before}{object}{behind}"));
            assert_eq!(with(r#"{"a": 1}"#), None, "{schema}");
            let found = with(r#"{"a": 1, "z": "more"}"#).unwrap_or_default();
            assert!(
                found.ends_with("`z` is not one of the members there can be"),
                "{schema}: {found}"
            );
        }
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
