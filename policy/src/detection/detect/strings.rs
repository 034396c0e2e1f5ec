//! Collects the strings of a definition, each with its place and role.

use std::collections::BTreeSet;

use super::lexicon::LEXICON;
use super::tokens::parts;
use crate::json::Value;
use crate::json::pointer::escaped;

/// Longest part of one string that is read, in bytes.
const LONGEST: usize = 20_000;
/// Most strings of one definition that are read.
const MOST: usize = 20_000;

/// The role of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StringRole {
    /// The name of the defined item.
    Name,
    /// A member name that the server chose.
    Key,
    /// An item of an enumeration or of `required`.
    Word,
    /// Free text, such as a description.
    Text,
    /// Free text that describes a boolean argument.
    Flag,
}

impl StringRole {
    /// Whether the string is free text.
    pub(super) const fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Flag)
    }
}

/// A string with its role, and its place as a JSON Pointer.
#[derive(Debug)]
pub(super) struct DefinitionString {
    pub(super) slot: StringRole,
    pub(super) text: String,
    pub(super) at: String,
}

/// All strings with content, the name and the description first; and whether some were left out.
pub(super) fn of(definition: Value<'_>) -> (Vec<DefinitionString>, bool) {
    let mut walk = StringCollector { pieces: Vec::new(), cut: false };
    let name = definition.get("name").or_else(|| definition.get("uri")).and_then(Value::as_str);
    walk.push(StringRole::Name, &name.unwrap_or_default(), "/name".to_owned());
    for key in ["title", "description"] {
        if let Some(value) = definition.get(key) {
            walk.value(value, key, MemberNameKind::Keywords, &format!("/{key}"));
        }
    }
    if definition.as_str().is_some() {
        walk.value(definition, "description", MemberNameKind::Keywords, "");
    }
    for (key, value) in definition.members() {
        if matches!(&*key, "name" | "title" | "description") {
            continue;
        }
        let at = inside("", &key);
        if !LEXICON.keys.contains(&*key) {
            walk.push(StringRole::Key, &key, at.clone());
        }
        walk.value(value, &key, MemberNameKind::Keywords, &at);
    }
    for (n, item) in definition.items().enumerate() {
        walk.value(item, "", MemberNameKind::Keywords, &inside("", &n.to_string()));
    }
    (walk.pieces, walk.cut)
}

/// The names of a definition's parameters, in lower case.
pub(super) fn parameters(definition: Value<'_>) -> BTreeSet<String> {
    fn walk(value: Value<'_>, out: &mut BTreeSet<String>) {
        for (key, member) in value.members() {
            if key == "properties" {
                let names = member.members().map(|(name, _)| name);
                out.extend(names.filter(|n| parts(n).count() < 6).map(|n| n.to_lowercase()));
            }
            walk(member, out);
        }
        value.items().for_each(|item| walk(item, out));
    }
    let mut out = BTreeSet::new();
    for key in ["inputSchema", "outputSchema"] {
        definition.get(key).into_iter().for_each(|schema| walk(schema, &mut out));
    }
    let arguments = definition.get("arguments").into_iter().flat_map(Value::items);
    let named = arguments.filter_map(|item| item.get("name")?.as_str());
    out.extend(named.map(|name| name.to_lowercase()));
    out
}

/// Whether a schema admits only booleans, or booleans and null.
fn is_flag(schema: Value<'_>) -> bool {
    let Some(sort) = schema.get("type") else { return false };
    let is = |value: Value<'_>, known: &str| value.as_str().is_some_and(|name| name == known);
    is(sort, "boolean")
        || sort.items().any(|one| is(one, "boolean"))
            && sort.items().all(|one| is(one, "boolean") || is(one, "null"))
}

/// What the names of an object's members are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberNameKind {
    /// Keywords of MCP or JSON Schema, which say what the values are.
    Keywords,
    /// Names that the author chose, such as those of parameters.
    Chosen,
}

struct StringCollector {
    pieces: Vec<DefinitionString>,
    /// Whether strings or parts of them were left out.
    cut: bool,
}

/// Longest pointer that is kept, in bytes; a deeper place is reported as that of its container.
const POINTER: usize = 256;

fn inside(at: &str, name: &str) -> String {
    if at.len() + name.len() > POINTER {
        return at.to_owned();
    }
    format!("{at}/{}", escaped(name))
}

impl StringCollector {
    fn push(&mut self, slot: StringRole, text: &str, at: String) {
        self.cut |= self.pieces.len() >= MOST || text.len() > LONGEST;
        if self.pieces.len() < MOST {
            let text = text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default().to_owned();
            self.pieces.push(DefinitionString { slot, text, at });
        }
    }

    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn value(&mut self, value: Value<'_>, key: &str, names: MemberNameKind, at: &str) {
        if let Some(text) = value.as_str() {
            let technical =
                matches!(key, "type" | "$schema" | "$ref" | "mimeType" | "format" | "$id");
            if technical && text.len() <= 80 && !text.contains(' ') {
                return;
            }
            let slot = if matches!(key, "required" | "enum") {
                StringRole::Word
            } else {
                StringRole::Text
            };
            return self.push(slot, &text, at.to_owned());
        }
        for (n, item) in value.items().enumerate() {
            self.value(item, key, MemberNameKind::Keywords, &inside(at, &n.to_string()));
        }
        let are_keywords = names == MemberNameKind::Keywords;
        let flag = are_keywords && at.starts_with("/inputSchema/") && is_flag(value);
        for (name, member) in value.members() {
            let at = inside(at, &name);
            if flag
                && name == "description"
                && let Some(text) = member.as_str()
            {
                self.push(StringRole::Flag, &text, at);
                continue;
            }
            if !are_keywords || !LEXICON.keys.contains(&*name) {
                self.push(StringRole::Key, &name, at.clone());
            }
            let inner = match &*name {
                "properties" | "$defs" | "definitions" | "patternProperties" if are_keywords => {
                    MemberNameKind::Chosen
                }
                _ => MemberNameKind::Keywords,
            };
            self.value(member, if are_keywords { &name } else { "" }, inner, &at);
        }
    }
}
