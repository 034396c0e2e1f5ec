//! The methods of MCP: one table of their properties. The gateway uses it to decode messages, to compare headers with names
//! and to write requests; the policy uses it to report where a name was found.
//!
//! SPEC <https://modelcontextprotocol.io/specification/2026-07-28> and the revisions before it.

use crate::definition::offer::ItemKind;
use crate::engine::events::EVENT_METHODS;
use crate::engine::message::{RequestOperation, TaskOperation};

/// Opens a session (legacy).
pub const INITIALIZE: &str = "initialize";
/// Requests the server's information and capabilities (modern).
pub const DISCOVER: &str = "server/discover";
/// Checks that the peer is alive (legacy).
pub const PING: &str = "ping";
/// Lists the server's tools.
pub const TOOLS_LIST: &str = "tools/list";
/// Calls a tool of the server.
pub const TOOLS_CALL: &str = "tools/call";
/// Lists the server's prompts.
pub const PROMPTS_LIST: &str = "prompts/list";
/// Gets the messages of a prompt.
pub const PROMPTS_GET: &str = "prompts/get";
/// Lists the server's resources.
pub const RESOURCES_LIST: &str = "resources/list";
/// Lists the server's resource templates.
pub const TEMPLATES_LIST: &str = "resources/templates/list";
/// Reads the content of a resource.
pub const RESOURCES_READ: &str = "resources/read";
/// Subscribes to updates of a resource (legacy).
pub const SUBSCRIBE: &str = "resources/subscribe";
/// Unsubscribes from updates of a resource (legacy).
pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
/// Lists the server's skills (SEP-2640).
pub const SKILLS_LIST: &str = "skills/list";
/// Reads the manifest of a skill (SEP-2640).
pub const SKILLS_GET: &str = "skills/get";
/// Lists what is in a directory of resources (SEP-2640).
pub const DIRECTORY_READ: &str = "resources/directory/read";
/// Requests completions of an argument.
pub const COMPLETE: &str = "completion/complete";
/// Sets the least severe log level that the client wants (legacy).
pub const SET_LEVEL: &str = "logging/setLevel";
/// Opens a stream of notifications (modern).
pub const LISTEN: &str = "subscriptions/listen";
/// Requests the state of a task.
pub const TASKS_GET: &str = "tasks/get";
/// Waits for the result of a task (2025-11-25).
pub const TASKS_RESULT: &str = "tasks/result";
/// Sends the input that a task requires (modern).
pub const TASKS_UPDATE: &str = "tasks/update";
/// Cancels a running task.
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// Lists the server's tasks (2025-11-25).
pub const TASKS_LIST: &str = "tasks/list";
/// Requests input from the user (elicitation).
pub const ELICIT: &str = "elicitation/create";
/// Requests a message from the client's model (sampling).
pub const SAMPLE: &str = "sampling/createMessage";
/// Requests the client's roots.
pub const ROOTS: &str = "roots/list";
/// Reports that the client has finished the handshake (legacy).
pub const INITIALIZED: &str = "notifications/initialized";
/// Cancels a running request.
pub const CANCELLED: &str = "notifications/cancelled";
/// Reports progress of a request.
pub const PROGRESS: &str = "notifications/progress";
/// Transmits a log message of the server.
pub const LOG: &str = "notifications/message";
/// Reports that the list of tools has changed.
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
/// Reports that the list of prompts has changed.
pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
/// Reports that the list of resources has changed.
pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
/// Reports that the content of a resource has changed.
pub const UPDATED: &str = "notifications/resources/updated";
/// Reports that the client's list of roots has changed (legacy).
pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
/// Reports that a URL elicitation was completed in the browser (2025-11-25).
pub const ELICITED: &str = "notifications/elicitation/complete";
/// Reports the state of a task (2025-11-25).
pub const TASK_STATUS: &str = "notifications/tasks/status";
/// Reports the state of a task (modern).
pub const TASK: &str = "notifications/tasks";
/// Reports which part of a subscription filter the server honours (modern).
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The eras of MCP that have a method: that with sessions, up to 2025-11-25, and that without, from 2026-07-28 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodEras {
    /// Revisions with sessions only.
    Legacy,
    /// Revisions without sessions only.
    Modern,
    /// Revisions of both eras.
    Both,
}

/// What the gateway does with a client's message of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodAction {
    /// Describes itself and its servers, without a session.
    Discover,
    /// Opens a session.
    Initialize,
    /// Answers with an empty result.
    Ping,
    /// Lists the definitions of a kind.
    List(ItemKind),
    /// Asks the policy for this operation on an item, and passes it to the item's server.
    Use(RequestOperation),
    /// Sets the log level of the session.
    SetLevel,
    /// Opens a stream of notifications.
    Listen,
    /// Cancels a request of the same client.
    Cancel,
    /// Tells the servers that the client's roots have changed.
    RootsChanged,
    /// Asks the policy about the notification, and passes it to a server.
    Tell,
    /// Nothing: the notification is accepted and has no effect.
    Ignore,
    /// Refuses it like an unknown method, in every era.
    Refuse,
    /// Refuses it, because only servers send it.
    OfServers,
}

/// Where a request has the name, URI or id of what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamePlace {
    /// JSON Pointer into `params`, with one member or two.
    pub at: &'static str,
    /// The `type` of the reference that has the name, if it is in one.
    pub reference: Option<&'static str>,
}

impl NamePlace {
    /// The member of `params`, and the member within it if the name is not its value.
    #[must_use]
    pub fn members(self) -> (&'static str, Option<&'static str>) {
        let path = self.at.trim_start_matches('/');
        path.split_once('/').map_or((path, None), |(outer, inner)| (outer, Some(inner)))
    }
}

/// A method of MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodSpec {
    /// The name in messages. `completion/complete` has one row for each kind of reference.
    pub name: &'static str,
    /// The eras that have the method.
    pub eras: MethodEras,
    /// What is done with a client's message of the method.
    pub action: MethodAction,
    /// Where the request names what it is about, if it is about one thing.
    pub named: Option<NamePlace>,
    /// Whether modern requests repeat the name in `Mcp-Name`
    /// (SPEC 2026-07-28 basic/transports/streamable-http#server-validation).
    pub is_name_in_header: bool,
    /// Whether the request has `arguments`, an object.
    pub has_arguments: bool,
    /// Whether the result can ask the client for input, which then repeats the request with its answers
    /// (SPEC 2026-07-28 basic/patterns/mrtr#supported-requests).
    pub can_ask: bool,
}

const fn method(name: &'static str, eras: MethodEras, action: MethodAction) -> MethodSpec {
    MethodSpec {
        name,
        eras,
        action,
        named: None,
        is_name_in_header: false,
        has_arguments: false,
        can_ask: false,
    }
}

impl MethodSpec {
    const fn named_at(self, at: &'static str) -> Self {
        Self { named: Some(NamePlace { at, reference: None }), ..self }
    }

    const fn referring(self, at: &'static str, kind: &'static str) -> Self {
        Self { named: Some(NamePlace { at, reference: Some(kind) }), ..self }
    }

    const fn name_in_header(self) -> Self {
        Self { is_name_in_header: true, ..self }
    }

    const fn with_arguments(self) -> Self {
        Self { has_arguments: true, ..self }
    }

    const fn asking(self) -> Self {
        Self { can_ask: true, ..self }
    }

    /// The row of the method with this name; `None` if no revision has it.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        METHODS.iter().find(|spec| spec.name == name)
    }

    /// The row of the method that performs `operation`; `None` for a method that the gateway does not know.
    #[must_use]
    pub fn of(operation: RequestOperation) -> Option<&'static Self> {
        // The files of skills are resources.
        let is_file = operation == RequestOperation::ReadSkillFile;
        let operation = if is_file { RequestOperation::Read } else { operation };
        METHODS.iter().find(|spec| spec.action == MethodAction::Use(operation))
    }

    /// The member of `params` that modern requests repeat in `Mcp-Name`, if they do.
    #[must_use]
    pub fn member_in_header(&self) -> Option<&'static str> {
        self.named.filter(|_| self.is_name_in_header).map(|place| place.members().0)
    }

    /// Whether messages of the method are notifications, which have no id.
    #[must_use]
    pub fn is_notification(&self) -> bool {
        self.name.starts_with("notifications/")
    }
}

/// Every method of every revision.
#[rustfmt::skip]
pub const METHODS: &[MethodSpec] = {
    use MethodAction::{
        Cancel, Discover, Ignore, Initialize, List, Listen, OfServers, Ping, Refuse, RootsChanged, SetLevel, Tell, Use,
    };
    use MethodEras::{Both, Legacy, Modern};
    use RequestOperation::{Call, CompletePrompt, CompleteTemplate, Get, GetSkill, Read, Subscribe, Task, Unsubscribe};
    &[
        method(INITIALIZE, Legacy, Initialize),
        method(DISCOVER, Modern, Discover),
        method(PING, Legacy, Ping),
        method(TOOLS_LIST, Both, List(ItemKind::Tool)),
        method(TOOLS_CALL, Both, Use(Call)).named_at("/name").name_in_header().with_arguments().asking(),
        method(PROMPTS_LIST, Both, List(ItemKind::Prompt)),
        method(PROMPTS_GET, Both, Use(Get)).named_at("/name").name_in_header().with_arguments().asking(),
        method(RESOURCES_LIST, Both, List(ItemKind::Resource)),
        method(TEMPLATES_LIST, Both, List(ItemKind::Template)),
        method(RESOURCES_READ, Both, Use(Read)).named_at("/uri").name_in_header().asking(),
        // A manifest names every file of a skill, and a directory could only name others.
        method(DIRECTORY_READ, Both, Refuse),
        method(SKILLS_LIST, Both, List(ItemKind::Skill)),
        method(SKILLS_GET, Both, Use(GetSkill)).named_at("/uri"),
        method(SUBSCRIBE, Legacy, Use(Subscribe)).named_at("/uri"),
        method(UNSUBSCRIBE, Legacy, Use(Unsubscribe)).named_at("/uri"),
        method(COMPLETE, Both, Use(CompletePrompt)).referring("/ref/name", "ref/prompt"),
        method(COMPLETE, Both, Use(CompleteTemplate)).referring("/ref/uri", "ref/resource"),
        method(SET_LEVEL, Legacy, SetLevel),
        method(LISTEN, Modern, Listen),
        method(TASKS_GET, Both, Use(Task(TaskOperation::Get))).named_at("/taskId"),
        method(TASKS_RESULT, Legacy, Use(Task(TaskOperation::Result))).named_at("/taskId"),
        method(TASKS_UPDATE, Modern, Use(Task(TaskOperation::Update))).named_at("/taskId"),
        method(TASKS_CANCEL, Both, Use(Task(TaskOperation::Cancel))).named_at("/taskId"),
        // The gateway cannot tell which caller a listed task belongs to.
        method(TASKS_LIST, Legacy, Refuse),
        method(ELICIT, Both, OfServers),
        method(SAMPLE, Both, OfServers),
        method(ROOTS, Both, OfServers),
        method(INITIALIZED, Legacy, Ignore),
        method(CANCELLED, Both, Cancel),
        method(PROGRESS, Both, Ignore),
        method(LOG, Both, OfServers),
        method(TOOLS_CHANGED, Both, OfServers),
        method(PROMPTS_CHANGED, Both, OfServers),
        method(RESOURCES_CHANGED, Both, OfServers),
        method(UPDATED, Both, OfServers),
        method(ROOTS_CHANGED, Legacy, RootsChanged),
        method(ELICITED, Legacy, OfServers),
        // A client that runs tasks for its server reports their status (2025-11-25).
        method(TASK_STATUS, Legacy, Tell),
        method(TASK, Modern, OfServers),
        method(ACKNOWLEDGED, Modern, OfServers),
    ]
};

/// The namespaces of the protocol's methods.
const NAMESPACES: [&str; 13] = [
    "tools",
    "prompts",
    "resources",
    "skills",
    "completion",
    "tasks",
    "logging",
    "subscriptions",
    "elicitation",
    "sampling",
    "roots",
    "server",
    "initialize",
];

/// Whether a method is in one of the protocol's namespaces, as a request or a notification.
#[must_use]
pub fn is_of_protocol(method: &str) -> bool {
    let name = method.strip_prefix("notifications/").unwrap_or(method);
    let namespace = name.split('/').next().unwrap_or_default();
    NAMESPACES.contains(&namespace) || matches!(method, CANCELLED | PROGRESS | LOG)
}

/// Most bytes of the name of an extension method.
const LONGEST: usize = 128;

/// What a method name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A method of MCP in some revision.
    Known(&'static MethodSpec),
    /// A method of an extension, unknown to the gateway; either a request or a notification.
    Extension,
    /// Not a valid method name, or one that a server could mistake for a method of MCP. Rules about unknown methods
    /// must not decide about it.
    Malformed,
}

/// Classifies a method name across all revisions.
#[must_use]
pub fn form(method: &str) -> Form {
    if let Some(spec) = MethodSpec::by_name(method) {
        return Form::Known(spec);
    }
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'$');
    let segment = |part: &str| part.bytes().all(plain) && part.bytes().any(|byte| byte != b'.');
    let named = method.len() <= LONGEST && method.split('/').all(segment);
    // JSON-RPC 2.0, section 4, reserves these names for the protocol itself.
    let begins = |prefix: &str| {
        method.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    // SPEC SEP-2640, «Reservations»: a later method could bring text of skills that nothing compares with a manifest.
    let reserved = begins("rpc.") || begins("skills/");
    let like = |known: &str| letters(known).eq(letters(method));
    // What a server could take for a method about events has one spelling, as a rule names it.
    let is_event = EVENT_METHODS.contains(&method);
    let disguised = !is_event && EVENT_METHODS.into_iter().any(like);
    if !named || reserved || disguised || METHODS.iter().any(|known| like(known.name)) {
        return Form::Malformed;
    }
    Form::Extension
}

/// The letters and digits of a method in lower case: all that a server sees if it ignores case and separators.
fn letters(method: &str) -> impl Iterator<Item = u8> {
    method.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase())
}

/// The method for a metric label or a span name; `_OTHER` if it is unknown, so that a peer cannot create new
/// values.
#[must_use]
pub fn clamped(method: &str) -> &'static str {
    MethodSpec::by_name(method).map_or("_OTHER", |spec| spec.name)
}

/// The method that lists definitions of a kind.
#[must_use]
pub fn list(kind: ItemKind) -> &'static str {
    let lists = |spec: &&MethodSpec| spec.action == MethodAction::List(kind);
    METHODS.iter().find(lists).map_or(TOOLS_LIST, |spec| spec.name)
}

#[cfg(test)]
mod tests {
    use super::{Form, METHODS, MethodAction, MethodSpec, form};
    use crate::engine::message::{RequestOperation, TaskOperation};
    use crate::engine::places::PLACES;

    /// Every operation but that of unknown methods; the match makes a new one a compile error.
    fn operations() -> Vec<RequestOperation> {
        let all = [
            RequestOperation::Call,
            RequestOperation::Get,
            RequestOperation::Read,
            RequestOperation::GetSkill,
            RequestOperation::ReadSkillFile,
            RequestOperation::Subscribe,
            RequestOperation::Unsubscribe,
            RequestOperation::CompletePrompt,
            RequestOperation::CompleteTemplate,
            RequestOperation::Task(TaskOperation::Get),
            RequestOperation::Task(TaskOperation::Result),
            RequestOperation::Task(TaskOperation::Update),
            RequestOperation::Task(TaskOperation::Cancel),
        ];
        for operation in all {
            match operation {
                RequestOperation::Call
                | RequestOperation::Get
                | RequestOperation::Read
                | RequestOperation::GetSkill
                | RequestOperation::ReadSkillFile
                | RequestOperation::Subscribe
                | RequestOperation::Unsubscribe
                | RequestOperation::CompletePrompt
                | RequestOperation::CompleteTemplate
                | RequestOperation::Task(
                    TaskOperation::Get
                    | TaskOperation::Result
                    | TaskOperation::Update
                    | TaskOperation::Cancel,
                )
                | RequestOperation::Other => {}
            }
        }
        all.to_vec()
    }

    #[test]
    fn every_operation_has_one_method_that_names_its_item() {
        for operation in operations() {
            // A file of a skill is read as a resource.
            let is_file = operation == RequestOperation::ReadSkillFile;
            let own = if is_file { RequestOperation::Read } else { operation };
            let rows: Vec<_> =
                METHODS.iter().filter(|spec| spec.action == MethodAction::Use(own)).collect();
            assert_eq!(MethodSpec::of(operation), rows.first().copied());
            assert_eq!(rows.len(), 1, "{operation:?}");
            assert!(rows.iter().all(|spec| spec.named.is_some()), "{operation:?}");
        }
        assert_eq!(MethodSpec::of(RequestOperation::Other), None);
    }

    #[test]
    fn the_table_of_places_names_no_other_method() {
        for name in PLACES.iter().flat_map(|row| row.methods).filter(|name| **name != "*") {
            assert!(MethodSpec::by_name(name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_row_is_found_by_its_name() {
        for spec in METHODS {
            assert_eq!(form(spec.name), Form::Known(MethodSpec::by_name(spec.name).unwrap()));
            let rows = METHODS.iter().filter(|row| row.name == spec.name);
            let references: Vec<_> =
                rows.map(|row| row.named.and_then(|at| at.reference)).collect();
            assert!(
                references.len() == 1 || references.iter().all(Option::is_some),
                "{}",
                spec.name
            );
        }
    }
}
