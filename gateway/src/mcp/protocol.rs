//! Constants of MCP: revisions, methods, error codes, headers and reserved `_meta` keys.
//!
//! SPEC <https://modelcontextprotocol.io/specification/2026-07-28> and the revisions before it.

/// A revision of MCP; ordered from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    /// 2024-11-05: the first revision, made for HTTP+SSE and stdio; many programs still speak it.
    V2024November,
    /// 2025-03-26: introduces Streamable HTTP; the only revision with batches.
    V2025March,
    /// 2025-06-18: introduces the version header.
    V2025June,
    /// 2025-11-25: the last revision with a handshake.
    V2025November,
    /// 2026-07-28: the first revision without sessions; every request is self-contained.
    V2026July,
}

impl ProtocolVersion {
    /// Every revision, newest first, as offered to a client that requests an unsupported one.
    pub const ALL: [Self; 5] = [
        Self::V2026July,
        Self::V2025November,
        Self::V2025June,
        Self::V2025March,
        Self::V2024November,
    ];
    /// The newest revision with a handshake, which is offered to a client that requests an unknown one.
    pub const LAST_LEGACY: Self = Self::V2025November;

    /// Whether a tool result may contain resource links (2025-06-18 changelog).
    #[must_use]
    pub const fn has_links(self) -> bool {
        !matches!(self, Self::V2024November | Self::V2025March)
    }

    /// The revision as written in messages and headers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024November => "2024-11-05",
            Self::V2025March => "2025-03-26",
            Self::V2025June => "2025-06-18",
            Self::V2025November => "2025-11-25",
            Self::V2026July => "2026-07-28",
        }
    }

    /// Parses a revision; `None` if it is unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// Every revision as a JSON array, for `server/discover` and for the error about an unsupported revision.
    #[must_use]
    pub fn list() -> String {
        let quoted: Vec<_> = Self::ALL.iter().map(|v| format!("\"{}\"", v.as_str())).collect();
        format!("[{}]", quoted.join(","))
    }

    /// The era that the revision belongs to.
    #[must_use]
    pub const fn era(self) -> Era {
        match self {
            Self::V2024November | Self::V2025March | Self::V2025June | Self::V2025November => {
                Era::Legacy
            }
            Self::V2026July => Era::Modern,
        }
    }
}

/// Whether a peer opens a session, or sends all context in each request.
///
/// SPEC 2026-07-28 basic/versioning#terminology
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Revisions up to 2025-11-25.
    Legacy,
    /// Revisions from 2026-07-28 on.
    Modern,
}

impl Era {
    /// Name of the era in audit records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// Log levels, least severe first.
///
/// SPEC 2026-07-28 server/utilities/logging#log-levels
pub const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Error codes of JSON-RPC and MCP.
pub mod code {
    /// The message is not valid JSON.
    pub const PARSE: i32 = -32700;
    /// The message is not a valid request.
    pub const REQUEST: i32 = -32600;
    /// The method does not exist.
    pub const METHOD: i32 = -32601;
    /// The parameters are wrong, or name an unknown tool.
    pub const PARAMS: i32 = -32602;
    /// The gateway or the upstream server failed.
    pub const INTERNAL: i32 = -32603;
    /// Headers and body disagree (SPEC 2026-07-28 basic/transports/streamable-http#server-validation).
    pub const HEADER_MISMATCH: i32 = -32020;
    /// The request needs a client capability that the client did not declare.
    pub const MISSING_CAPABILITY: i32 = -32021;
    /// The revision is not supported (SPEC 2026-07-28 basic/versioning#protocol-version-negotiation).
    pub const UNSUPPORTED_VERSION: i32 = -32022;
    /// The resource does not exist (up to 2025-11-25; -32602 since).
    pub const NO_RESOURCE: i32 = -32002;
    /// The user has to open a URL first (2025-11-25 only).
    pub const URL_ELICITATION: i32 = -32042;
    /// The policy denied the request, and the caller may know it. Outside the range that JSON-RPC reserves, as the
    /// specification asks for codes that it does not define (2026-07-28 basic#error-codes).
    pub const DENIED: i32 = -31403;
}

/// HTTP header names, in lower case.
pub mod header {
    /// Revision of the request.
    pub const VERSION: &str = "mcp-protocol-version";
    /// Method of the request (modern).
    pub const METHOD: &str = "mcp-method";
    /// Tool name of the request (modern).
    pub const NAME: &str = "mcp-name";
    /// Session id of the request (legacy).
    pub const SESSION: &str = "mcp-session-id";
    /// Id of the last event that the client received (legacy).
    pub const LAST_EVENT: &str = "last-event-id";
    /// Prefix of headers that repeat an argument (modern).
    pub const PARAM: &str = "mcp-param-";
}

/// Keys of `_meta` that MCP or this gateway reserves.
pub mod meta {
    /// Revision of the request.
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Name and version of the client, as the client states them.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Capabilities of the client, as the client states them.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Least severe log level that the client wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Name and version of the server, as the server states them.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Id of the `subscriptions/listen` request that a notification belongs to.
    pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    /// Prefix of the keys that only this gateway sets.
    pub const OURS: &str = "dev.portcullis/";
    /// Key of the gateway: the servers whose part of a list is missing.
    pub const PARTIAL: &str = "dev.portcullis/partial";
    /// Key of the gateway: why a tool call was denied, in its result.
    pub const DENIAL: &str = "dev.portcullis/denial";
    /// Token for progress notifications about the request.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// W3C Trace Context: `traceparent`.
    pub const TRACE_PARENT: &str = "traceparent";
    /// W3C Trace Context: `tracestate`, the vendors' data.
    pub const TRACE_STATE: &str = "tracestate";
    /// W3C Baggage: `baggage`, key-value pairs of the application.
    pub const BAGGAGE: &str = "baggage";
    /// Keys that a request must not have in a variant spelling.
    pub const RESERVED: [&str; 7] = [
        VERSION,
        CLIENT_INFO,
        CLIENT_CAPABILITIES,
        LOG_LEVEL,
        SUBSCRIPTION,
        PROGRESS_TOKEN,
        TRACE_PARENT,
    ];
}

/// Methods this gateway handles by name.
pub mod method {
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

    /// The namespaces of the protocol's methods.
    const NAMESPACES: [&str; 12] = [
        "tools",
        "prompts",
        "resources",
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

    /// Every method of every revision.
    const ALL: [&str; 36] = [
        INITIALIZE,
        DISCOVER,
        PING,
        TOOLS_LIST,
        TOOLS_CALL,
        PROMPTS_LIST,
        PROMPTS_GET,
        RESOURCES_LIST,
        TEMPLATES_LIST,
        RESOURCES_READ,
        SUBSCRIBE,
        UNSUBSCRIBE,
        COMPLETE,
        SET_LEVEL,
        LISTEN,
        TASKS_GET,
        TASKS_RESULT,
        TASKS_UPDATE,
        TASKS_CANCEL,
        TASKS_LIST,
        ELICIT,
        SAMPLE,
        ROOTS,
        INITIALIZED,
        CANCELLED,
        PROGRESS,
        LOG,
        TOOLS_CHANGED,
        PROMPTS_CHANGED,
        RESOURCES_CHANGED,
        UPDATED,
        ROOTS_CHANGED,
        ELICITED,
        TASK_STATUS,
        TASK,
        ACKNOWLEDGED,
    ];

    /// Most bytes of the name of an extension method.
    const MAX_METHOD: usize = 128;

    /// Kind of message that a method name belongs to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Form {
        /// A request of MCP in some revision; it has an id.
        Request,
        /// A notification of MCP in some revision; it has no id.
        Notification,
        /// A method of an extension, unknown to the gateway; either a request or a notification.
        Extension,
        /// Not a valid method name, or one that a server could mistake for a method of MCP. Rules about unknown methods
        /// must not decide about it.
        Malformed,
    }

    /// Classifies a method name across all revisions.
    #[must_use]
    pub fn form(method: &str) -> Form {
        if ALL.contains(&method) {
            return match method.starts_with("notifications/") {
                true => Form::Notification,
                false => Form::Request,
            };
        }
        let plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'$');
        let segment = |part: &str| part.bytes().all(plain) && part.bytes().any(|byte| byte != b'.');
        let named = method.len() <= MAX_METHOD && method.split('/').all(segment);
        // JSON-RPC 2.0, section 4, reserves these names for the protocol itself.
        let reserved = method.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("rpc."));
        let like = |known: &&str| letters(known).eq(letters(method));
        if !named || reserved || ALL.iter().any(like) {
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
        ALL.into_iter().find(|known| *known == method).unwrap_or("_OTHER")
    }

    /// The method that lists definitions of a kind.
    #[must_use]
    pub const fn list(kind: policy::definition::offer::ItemKind) -> &'static str {
        use policy::definition::offer::ItemKind;
        match kind {
            ItemKind::Tool | ItemKind::Method => TOOLS_LIST,
            ItemKind::Prompt => PROMPTS_LIST,
            ItemKind::Resource => RESOURCES_LIST,
            ItemKind::Template => TEMPLATES_LIST,
        }
    }
}
