//! The gateway's own tools on a route with discovery: their names, and the classes of tools that calls are told apart by.

use json::Value;
use policy::definition::registry::ToolEffect;
use policy::flow::label::Sink;
use policy_core::subject::kind::hints;

/// What a tool does by the operator's label if there is one, else by the annotations of its definition. What is not clear
/// counts as destructive.
#[must_use]
pub fn effect_of(sink: Option<Sink>, definition: Value<'_>) -> ToolEffect {
    match sink {
        Some(Sink::None) => return ToolEffect::Read,
        Some(Sink::Write | Sink::Fetch | Sink::External) => return ToolEffect::Write,
        Some(Sink::Destructive) => return ToolEffect::Destructive,
        None => {}
    }
    // A hint counts if it has this value in every spelling that a client may read.
    let says = |name: &str, wanted: bool| {
        let mut values = hints(definition, name).map(Value::as_bool).peekable();
        values.peek().is_some() && values.all(|value| value == Some(wanted))
    };
    let may_destroy =
        hints(definition, "destructiveHint").next().is_some() && !says("destructiveHint", false);
    if may_destroy {
        ToolEffect::Destructive
    } else if says("readOnlyHint", true) {
        ToolEffect::Read
    } else if says("destructiveHint", false) {
        ToolEffect::Write
    } else {
        ToolEffect::Destructive
    }
}

/// A tool of the gateway on a route with discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryTool {
    /// Finds tools by words.
    Find,
    /// Shows the definition of a tool.
    Describe,
    /// Calls a tool of this class.
    Call(ToolEffect),
}

impl DiscoveryTool {
    /// Every tool, in the order of lists and counters.
    pub const ALL: [Self; 5] = [
        Self::Find,
        Self::Describe,
        Self::Call(ToolEffect::Read),
        Self::Call(ToolEffect::Write),
        Self::Call(ToolEffect::Destructive),
    ];

    /// The name, which no tool of a server can have on such a route.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Find => "find_tools",
            Self::Describe => "describe_tool",
            Self::Call(ToolEffect::Read) => "call_read_tool",
            Self::Call(ToolEffect::Write) => "call_write_tool",
            Self::Call(ToolEffect::Destructive) => "call_destructive_tool",
        }
    }

    /// The tool with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }
}

/// What was wrong with a call through a tool of the gateway, and had one meaning all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMend {
    /// `arguments` was the text of an object.
    TextArguments,
    /// The member `arguments` was `null`.
    NullArguments,
    /// `name` and `arguments` were inside of `arguments`.
    NameInArguments,
    /// The call was a call of a `call_*_tool` once more.
    NestedCall,
    /// The parameters were beside `name`.
    MissingWrapper,
    /// The name was called `tool` or `tool_name`.
    NameMember,
}

impl CallMend {
    /// The name in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TextArguments => "arguments-text",
            Self::NullArguments => "arguments-null",
            Self::NameInArguments => "name-in-arguments",
            Self::NestedCall => "nested-call",
            Self::MissingWrapper => "missing-wrapper",
            Self::NameMember => "name-member",
        }
    }
}

/// How a call came through a tool of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThroughCall {
    /// The class of tools that the gateway's tool calls.
    pub class: ToolEffect,
    /// What was mended in the call.
    pub mended: Vec<CallMend>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, JsonBounds};
    use policy::flow::label::Sink;

    use super::{DiscoveryTool, ToolEffect, effect_of};

    fn class(sink: Option<Sink>, annotations: &str) -> ToolEffect {
        let text = format!(r#"{{"name":"x","annotations":{annotations}}}"#);
        let document = Arc::new(Document::parse(text.into(), &JsonBounds::ANSWER).unwrap());
        effect_of(sink, document.root())
    }

    #[test]
    fn what_is_not_clearly_harmless_is_destructive() {
        for (annotations, expected) in [
            ("{}", ToolEffect::Destructive),
            (r#"{"readOnlyHint":true}"#, ToolEffect::Read),
            (r#"{"readOnlyHint":true,"destructiveHint":false}"#, ToolEffect::Read),
            (r#"{"readOnlyHint":true,"destructiveHint":true}"#, ToolEffect::Destructive),
            (r#"{"readOnlyHint":true,"read_only_hint":false}"#, ToolEffect::Destructive),
            (r#"{"readOnlyHint":"true"}"#, ToolEffect::Destructive),
            (r#"{"destructiveHint":false}"#, ToolEffect::Write),
            (r#"{"readOnlyHint":false,"destructiveHint":false}"#, ToolEffect::Write),
            (r#"{"destructiveHint":false,"destructive_hint":true}"#, ToolEffect::Destructive),
            (r#"{"destructiveHint":0}"#, ToolEffect::Destructive),
            ("7", ToolEffect::Destructive),
        ] {
            assert_eq!(class(None, annotations), expected, "{annotations}");
        }
    }

    #[test]
    fn the_label_of_the_operator_decides() {
        let lies = r#"{"readOnlyHint":true}"#;
        assert_eq!(class(Some(Sink::Destructive), lies), ToolEffect::Destructive);
        for sink in [Sink::Write, Sink::Fetch, Sink::External] {
            assert_eq!(class(Some(sink), lies), ToolEffect::Write);
        }
        assert_eq!(class(Some(Sink::None), "{}"), ToolEffect::Read);
    }

    #[test]
    fn every_tool_has_a_name_of_its_own() {
        for tool in DiscoveryTool::ALL {
            assert_eq!(DiscoveryTool::named(tool.name()), Some(tool));
        }
        assert_eq!(DiscoveryTool::named("find"), None);
    }
}
