//! MCP messages after decoding: no HTTP, no SSE, no JSON-RPC framing, no protocol era.

use std::sync::Arc;

use crate::json::Fragment;
use crate::name::ServerName;
use crate::offer::{Catalog, Kind};

/// A client's request to one upstream server.
#[derive(Clone, Debug)]
pub enum Call {
    /// A list, every page of it.
    List {
        /// Which server.
        server: ServerName,
        /// Of what.
        kind: Kind,
    },
    /// Something about one thing the server offers.
    Use(Use),
}

/// What is done with a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `tools/call`
    Call,
    /// `prompts/get`
    Get,
    /// `resources/read`
    Read,
    /// `resources/subscribe` (legacy); in a `subscriptions/listen` otherwise
    Subscribe,
    /// `resources/unsubscribe` (legacy)
    Unsubscribe,
    /// `completion/complete` for an argument of a prompt
    CompletePrompt,
    /// `completion/complete` for a variable of a resource template
    CompleteTemplate,
    /// Something about a task that a call of a tool has become
    Task(Task),
    /// A method this gateway does not know, by its name
    Other,
}

/// What is asked of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// `tasks/get`: how does it stand?
    Get,
    /// `tasks/result` (2025-11-25): what came of it?
    Result,
    /// `tasks/update` (modern): here is what you asked for
    Update,
    /// `tasks/cancel`: give it up
    Cancel,
}

impl Verb {
    /// Whether it takes arguments that a rule may speak of. What does not is decided as the list
    /// is: a completion needs none, and a task was permitted with its own when it began.
    #[must_use]
    pub const fn takes_arguments(self) -> bool {
        match self {
            Self::Call
            | Self::Get
            | Self::Read
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::Other => true,
            Self::CompletePrompt | Self::CompleteTemplate | Self::Task(_) => false,
        }
    }

    /// What sort of thing it is done with: the same rules decide whatever is done with a thing.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Call | Self::Task(_) => Kind::Tool,
            Self::Get | Self::CompletePrompt => Kind::Prompt,
            Self::Read | Self::Subscribe | Self::Unsubscribe => Kind::Resource,
            Self::CompleteTemplate => Kind::Template,
            Self::Other => Kind::Method,
        }
    }
}

/// One request about one thing.
#[derive(Clone, Debug)]
pub struct Use {
    /// Which server.
    pub server: ServerName,
    /// What is done.
    pub verb: Verb,
    /// Of which: the name, URI or method as the server knows it; of a task, the tool it came of.
    pub name: Box<str>,
    /// The arguments of a tool or a prompt, an object; `None` when the caller sent none.
    pub arguments: Option<Fragment>,
    /// Members of `params` that this gateway does not know, to be passed on as they are.
    pub extra: Vec<(Box<str>, Fragment)>,
    /// Members of `params._meta` that are not the protocol's own, likewise.
    pub meta: Vec<(Box<str>, Fragment)>,
}

/// What a caller has chosen beside a [`Use`] and what goes to the server in one message with it.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// What the client says of itself, as JSON.
    pub client: Vec<Box<str>>,
    /// What the client answers to questions of the server.
    pub answers: Option<Fragment>,
    /// The trace: the text of `traceparent`, and that of `tracestate`.
    pub trace: Vec<Box<str>>,
}

impl Beside {
    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = self.client.iter().chain(&self.trace).map(|text| text.len());
        let answers = self.answers.iter().map(|answers| answers.value().span().len());
        texts.chain(answers).fold(0, usize::saturating_add)
    }
}

/// A server's answer to one [`Call`].
#[derive(Debug)]
pub enum Reply {
    /// A list, still unfiltered.
    List(Arc<Catalog>),
    /// The `result` object.
    Result(Fragment),
    /// A JSON-RPC error from the server: the `error` object.
    Error(Fragment),
    /// Something said before the answer: the `params` of the notification.
    Told(Fragment),
}
