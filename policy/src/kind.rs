//! The kinds of things that servers offer.

use crate::json::Value;

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
    /// A method that this gateway does not know; it is in no list.
    Method,
}

impl ItemKind {
    /// The kinds that servers list.
    pub const LISTED: [Self; 4] = [Self::Tool, Self::Prompt, Self::Resource, Self::Template];

    /// Name in rules, audit records and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "template",
            Self::Method => "method",
        }
    }

    /// The member of a definition that identifies it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt | Self::Method => "name",
            Self::Resource => "uri",
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
            Self::Method => "methods",
        }
    }
}

/// Whether a tool claims to be read-only (`annotations.readOnlyHint`).
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
        let annotations = definition.get("annotations");
        let hint = annotations.and_then(|annotations| annotations.get("readOnlyHint"));
        match hint.and_then(Value::as_bool) {
            Some(true) => Self::Claimed,
            Some(false) | None => Self::Absent,
        }
    }
}
