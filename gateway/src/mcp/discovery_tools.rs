//! The gateway's own tools on a route with discovery: their names, and the classes of tools that calls are told apart by.

use json::Value;
use policy::flow::label::Sink;
use policy_core::subject::kind::hints;

/// What a call of a tool can do, so that a client can treat calls differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolClass {
    /// It only reads, and changes nothing.
    Read,
    /// It changes or sends something.
    Write,
    /// It may remove something.
    Destructive,
}

impl ToolClass {
    /// Every class, the most harmless first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Destructive];

    /// The class of a tool: by the operator's label if there is one, else by the annotations of its definition. What is not
    /// clear has the strictest class.
    #[must_use]
    pub fn of(sink: Option<Sink>, definition: Value<'_>) -> Self {
        match sink {
            Some(Sink::None) => return Self::Read,
            Some(Sink::Write | Sink::Fetch | Sink::External) => return Self::Write,
            Some(Sink::Destructive) => return Self::Destructive,
            None => {}
        }
        // A hint counts if it has this value in every spelling that a client may read.
        let says = |name: &str, wanted: bool| {
            let mut values = hints(definition, name).map(Value::as_bool).peekable();
            values.peek().is_some() && values.all(|value| value == Some(wanted))
        };
        let may_destroy = hints(definition, "destructiveHint").next().is_some()
            && !says("destructiveHint", false);
        if may_destroy {
            Self::Destructive
        } else if says("readOnlyHint", true) {
            Self::Read
        } else if says("destructiveHint", false) {
            Self::Write
        } else {
            Self::Destructive
        }
    }

    /// The name in texts for models.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }

    /// The gateway's tool that calls tools of this class.
    #[must_use]
    pub const fn call_tool(self) -> &'static str {
        DiscoveryTool::Call(self).name()
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
    Call(ToolClass),
}

impl DiscoveryTool {
    /// Every tool, in the order of lists and counters.
    pub const ALL: [Self; 5] = [
        Self::Find,
        Self::Describe,
        Self::Call(ToolClass::Read),
        Self::Call(ToolClass::Write),
        Self::Call(ToolClass::Destructive),
    ];

    /// The name, which no tool of a server can have on such a route.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Find => "find_tools",
            Self::Describe => "describe_tool",
            Self::Call(ToolClass::Read) => "call_read_tool",
            Self::Call(ToolClass::Write) => "call_write_tool",
            Self::Call(ToolClass::Destructive) => "call_destructive_tool",
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
    pub class: ToolClass,
    /// What was mended in the call.
    pub mended: Vec<CallMend>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, JsonBounds};
    use policy::flow::label::Sink;

    use super::{DiscoveryTool, ToolClass};

    fn class(sink: Option<Sink>, annotations: &str) -> ToolClass {
        let text = format!(r#"{{"name":"x","annotations":{annotations}}}"#);
        let document = Arc::new(Document::parse(text.into(), &JsonBounds::ANSWER).unwrap());
        ToolClass::of(sink, document.root())
    }

    #[test]
    fn what_is_not_clearly_harmless_is_destructive() {
        for (annotations, expected) in [
            ("{}", ToolClass::Destructive),
            (r#"{"readOnlyHint":true}"#, ToolClass::Read),
            (r#"{"readOnlyHint":true,"destructiveHint":false}"#, ToolClass::Read),
            (r#"{"readOnlyHint":true,"destructiveHint":true}"#, ToolClass::Destructive),
            (r#"{"readOnlyHint":true,"read_only_hint":false}"#, ToolClass::Destructive),
            (r#"{"readOnlyHint":"true"}"#, ToolClass::Destructive),
            (r#"{"destructiveHint":false}"#, ToolClass::Write),
            (r#"{"readOnlyHint":false,"destructiveHint":false}"#, ToolClass::Write),
            (r#"{"destructiveHint":false,"destructive_hint":true}"#, ToolClass::Destructive),
            (r#"{"destructiveHint":0}"#, ToolClass::Destructive),
            ("7", ToolClass::Destructive),
        ] {
            assert_eq!(class(None, annotations), expected, "{annotations}");
        }
    }

    #[test]
    fn the_label_of_the_operator_decides() {
        let lies = r#"{"readOnlyHint":true}"#;
        assert_eq!(class(Some(Sink::Destructive), lies), ToolClass::Destructive);
        for sink in [Sink::Write, Sink::Fetch, Sink::External] {
            assert_eq!(class(Some(sink), lies), ToolClass::Write);
        }
        assert_eq!(class(Some(Sink::None), "{}"), ToolClass::Read);
    }

    #[test]
    fn every_tool_has_a_name_of_its_own() {
        for tool in DiscoveryTool::ALL {
            assert_eq!(DiscoveryTool::named(tool.name()), Some(tool));
        }
        assert_eq!(DiscoveryTool::named("find"), None);
    }
}
