//! The kinds of things that servers offer.

use json::Value;

/// Kind of a thing that a server offers or a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemKind {
    /// A tool, identified by its `name`.
    Tool,
    /// A prompt, identified by its `name`.
    Prompt,
    /// A resource, identified by its `uri`.
    Resource,
    /// A resource template, identified by its `uriTemplate` (RFC 6570).
    Template,
    /// A skill, identified by the `uri` of its `SKILL.md` (SEP-2640).
    Skill,
    /// A method that this gateway does not know; it is in no list.
    Method,
}

impl ItemKind {
    /// The kinds that servers list.
    pub const LISTED: [Self; 5] =
        [Self::Tool, Self::Prompt, Self::Resource, Self::Template, Self::Skill];
    /// The kinds that rules name. Templates are named as resources are.
    pub const RULED: [Self; 5] =
        [Self::Tool, Self::Prompt, Self::Resource, Self::Skill, Self::Method];

    /// Name in rules, audit records and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "template",
            Self::Skill => "skill",
            Self::Method => "method",
        }
    }

    /// The member of a definition that identifies it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt | Self::Method => "name",
            Self::Resource | Self::Skill => "uri",
            Self::Template => "uriTemplate",
        }
    }

    /// The member of a list result that holds the items.
    #[must_use]
    pub const fn list(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Prompt => "prompts",
            Self::Resource => "resources",
            Self::Template => "resourceTemplates",
            Self::Skill => "skills",
            Self::Method => "methods",
        }
    }
}

/// Whether a tool claims to be read-only (`annotations.readOnlyHint`), in any spelling that a client may read so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOnlyHint {
    /// No such claim, or not a tool.
    #[default]
    Absent,
    /// The definition claims it.
    Claimed,
}

impl ReadOnlyHint {
    /// Reads the hint of a definition.
    #[must_use]
    pub fn of(definition: Value<'_>) -> Self {
        if hints(definition, "readOnlyHint").any(Value::may_be_true) {
            Self::Claimed
        } else {
            Self::Absent
        }
    }
}

/// The values of the annotation `name` of a definition, also under a name that some clients take for it: the MCP SDK for
/// Python reads `read_only_hint` as `readOnlyHint`, and other parsers ignore case.
pub fn hints<'a>(definition: Value<'a>, name: &str) -> impl Iterator<Item = Value<'a>> + use<'a> {
    let wanted = letters(name);
    let annotations = definition.get("annotations").into_iter().flat_map(Value::members);
    annotations.filter(move |(key, _)| letters(key) == wanted).map(|(_, value)| value)
}

/// The letters and digits of the name of a member in lower case, by which readers that take several spellings compare it.
pub fn letters(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};
    use serde_json::json;

    use super::ReadOnlyHint;

    #[test]
    fn a_hint_counts_in_every_spelling_that_a_client_may_read_as_true() {
        for (annotations, claimed) in [
            (json!({ "readOnlyHint": true }), true),
            (json!({ "readOnlyHint": "true" }), true),
            (json!({ "readOnlyHint": 1.0 }), true),
            (json!({ "readOnlyHint": "Yes" }), true),
            (json!({ "read_only_hint": "t" }), true),
            (json!({ "ReadOnlyHint": " on " }), true),
            (json!({ "readOnlyHint": false, "read_only_hint": true }), true),
            (json!({ "readOnlyHint": false }), false),
            (json!({ "readOnlyHint": 0 }), false),
            (json!({ "readOnlyHint": "no" }), false),
            (json!({ "readOnlyHint": null }), false),
            (json!({ "readOnlyHint": [true] }), false),
            (json!({ "idempotentHint": true }), false),
            (json!(["readOnlyHint"]), false),
        ] {
            let text = json!({ "annotations": annotations }).to_string();
            let definition = Document::parse(text.into(), &JsonBounds::ANSWER).unwrap();
            let is = ReadOnlyHint::of(definition.root()) == ReadOnlyHint::Claimed;
            assert_eq!(is, claimed, "{annotations}");
        }
    }
}
