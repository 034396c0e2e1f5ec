//! The sorts of things that servers offer.

use crate::json::Value;

/// What sort of thing is offered, or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A tool, known by its `name`.
    Tool,
    /// A prompt, known by its `name`.
    Prompt,
    /// A resource, known by its `uri`.
    Resource,
    /// A family of resources, known by its `uriTemplate` (RFC 6570).
    Template,
    /// Nothing of a list: a method that only the two ends know.
    Method,
}

impl Kind {
    /// The kinds that come in lists.
    pub const LISTED: [Self; 4] = [Self::Tool, Self::Prompt, Self::Resource, Self::Template];

    /// Its name in rules, records and messages.
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

    /// The member of a definition that names it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt | Self::Method => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }

    /// The member of a result that holds the list.
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

/// Whether a tool says of itself that it changes nothing (`annotations.readOnlyHint`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOnlyHint {
    /// It does not say so, or it is no tool.
    #[default]
    Absent,
    /// It says so.
    Claimed,
}

impl ReadOnlyHint {
    /// What a definition says.
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
