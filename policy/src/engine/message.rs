//! MCP messages after decoding: no HTTP, no SSE, no JSON-RPC framing, no protocol era.

use std::sync::Arc;

use json::Fragment;
use policy_core::subject::name::ServerName;

use crate::definition::offer::{Catalog, ItemKind};
use crate::flow::guard::{FlowFacts, SentOperation, SentValues};
use crate::rules::approval::ApprovalDemand;

/// A client's request to one upstream server.
#[derive(Clone, Debug)]
pub enum ClientRequest {
    /// A request for a complete list, across all pages.
    List {
        /// The upstream server addressed.
        server: ServerName,
        /// The kind that is listed.
        kind: ItemKind,
    },
    /// A request that concerns one thing the server offers.
    Use(ItemRequest),
}

/// The operation that a request performs on a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOperation {
    /// `tools/call`: calls a tool
    Call,
    /// `prompts/get`: renders a prompt
    Get,
    /// `resources/read`: reads a resource
    Read,
    /// `skills/get`: reads the manifest of a skill
    GetSkill,
    /// `resources/read` of a file of a skill; [`ItemRequest::name`] holds the URI of the file
    ReadSkillFile,
    /// `resources/subscribe` (legacy), or a resource in `subscriptions/listen`
    Subscribe,
    /// `resources/unsubscribe` (legacy): ends a subscription
    Unsubscribe,
    /// `completion/complete` for an argument of a prompt
    CompletePrompt,
    /// `completion/complete` for a variable of a resource template
    CompleteTemplate,
    /// An operation on a task that a tool call has become
    Task(TaskOperation),
    /// A method that this gateway does not know; [`ItemRequest::name`] holds it
    Other,
}

/// Operation on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskOperation {
    /// `tasks/get`: reads the status
    Get,
    /// `tasks/result` (2025-11-25): reads the result
    Result,
    /// `tasks/update` (modern): supplies input that the task has requested
    Update,
    /// `tasks/cancel`: cancels the task
    Cancel,
}

impl RequestOperation {
    /// Whether the operation has arguments that a rule can refer to. Without, it is decided like a listing: a
    /// completion needs no arguments, and those of a task were checked when the task began.
    #[must_use]
    pub const fn takes_arguments(self) -> bool {
        match self {
            Self::Call
            | Self::Get
            | Self::Read
            | Self::GetSkill
            | Self::ReadSkillFile
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::Other => true,
            Self::CompletePrompt | Self::CompleteTemplate | Self::Task(_) => false,
        }
    }

    /// Whether it uses a thing: a task, a subscription or the end of one comes of an earlier use.
    #[must_use]
    pub const fn is_use(self) -> bool {
        match self {
            Self::Call
            | Self::Get
            | Self::Read
            | Self::GetSkill
            | Self::ReadSkillFile
            | Self::CompletePrompt
            | Self::CompleteTemplate
            | Self::Other => true,
            Self::Subscribe | Self::Unsubscribe | Self::Task(_) => false,
        }
    }

    /// The kind of thing operated on. The same rules decide all operations on a thing.
    #[must_use]
    pub const fn kind(self) -> ItemKind {
        match self {
            Self::Call | Self::Task(_) => ItemKind::Tool,
            Self::Get | Self::CompletePrompt => ItemKind::Prompt,
            Self::Read | Self::Subscribe | Self::Unsubscribe => ItemKind::Resource,
            Self::CompleteTemplate => ItemKind::Template,
            Self::GetSkill | Self::ReadSkillFile => ItemKind::Skill,
            Self::Other => ItemKind::Method,
        }
    }
}

/// One request that concerns one thing.
#[derive(Clone, Debug)]
pub struct ItemRequest {
    /// The upstream server addressed.
    pub server: ServerName,
    /// The operation to perform.
    pub verb: RequestOperation,
    /// Name, URI or method as the server knows it; for a task, the tool that created it.
    pub name: Box<str>,
    /// Arguments of a tool or prompt, a JSON object; `None` if the caller sent none.
    pub arguments: Option<Fragment>,
    /// Members of `params` that this gateway does not know, forwarded unchanged.
    pub extra: Vec<(Box<str>, Fragment)>,
    /// Members of `params._meta` that the protocol does not define, forwarded unchanged.
    pub meta: Vec<(Box<str>, Fragment)>,
}

impl ItemRequest {
    /// A request with nothing but the name of the thing.
    #[must_use]
    pub fn bare(server: &ServerName, verb: RequestOperation, name: &str) -> Self {
        let (arguments, extra, meta) = (None, Vec::new(), Vec::new());
        Self { server: server.clone(), verb, name: name.into(), arguments, extra, meta }
    }

    /// What flow control compares of it.
    #[must_use]
    pub fn sent(&self) -> SentValues<'_> {
        let operation = match self.verb {
            RequestOperation::Call | RequestOperation::Get => SentOperation::Call,
            RequestOperation::Read
            | RequestOperation::GetSkill
            | RequestOperation::ReadSkillFile
            | RequestOperation::Subscribe
            | RequestOperation::Unsubscribe => SentOperation::Resource,
            RequestOperation::CompletePrompt | RequestOperation::CompleteTemplate => {
                SentOperation::Completion
            }
            RequestOperation::Task(_) => SentOperation::Task,
            RequestOperation::Other => SentOperation::Method,
        };
        let arguments = self.arguments.as_ref().map(Fragment::value);
        let Self { name, extra, meta, .. } = self;
        SentValues { operation, name, arguments, extra, meta, unasked: None, names: &[] }
    }
}

/// What belongs to an [`ItemRequest`]: values chosen by the caller that are sent to the server in the same message, and
/// the flow of the request.
#[derive(Clone, Debug, Default)]
pub struct RequestExtras {
    /// The client's information about itself, as JSON.
    pub client: Vec<Box<str>>,
    /// The client's responses to elicitation and sampling requests.
    pub answers: Option<Fragment>,
    /// The same responses, if the request continues none in which a server has asked.
    pub unasked: Option<Fragment>,
    /// Trace context: the text of `traceparent`, and that of `tracestate`.
    pub trace: Vec<Box<str>>,
    /// The flow that the request belongs to. It is not sent.
    pub flow: FlowFacts,
    /// What a person has approved of the request, if a person was asked. It is not sent.
    pub approved: Option<ApprovalDemand>,
}

impl RequestExtras {
    /// The total size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = self.client.iter().chain(&self.trace).map(|text| text.len());
        let answers = self.answers.iter().map(|answers| answers.value().span().len());
        texts.chain(answers).fold(0, usize::saturating_add)
    }
}

/// What a server sends in reply to one [`ClientRequest`].
#[derive(Debug)]
pub enum Reply {
    /// A list, not yet filtered.
    List(Arc<Catalog>),
    /// The `result` object of the JSON-RPC response.
    Result(Fragment),
    /// The `error` object of a JSON-RPC error response.
    Error(Fragment),
    /// The `params` of a notification sent before the response.
    Told(Fragment),
}
