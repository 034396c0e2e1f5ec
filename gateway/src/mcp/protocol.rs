//! The words of the protocol: revisions, methods, codes, headers and reserved keys.
//!
//! SPEC <https://modelcontextprotocol.io/specification/2026-07-28> and the revisions before it.

/// A revision of the protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 2024-11-05: the first, made for HTTP+SSE and stdio; many programs still speak it.
    V2024November,
    /// 2025-03-26: the first with Streamable HTTP, the only one with batches.
    V2025March,
    /// 2025-06-18: the first with the version header.
    V2025June,
    /// 2025-11-25: the last with a handshake.
    V2025November,
    /// 2026-07-28: stateless.
    V2026July,
}

impl Version {
    /// Every revision, newest first, as offered to a client that asked for another.
    pub const ALL: [Self; 5] = [
        Self::V2026July,
        Self::V2025November,
        Self::V2025June,
        Self::V2025March,
        Self::V2024November,
    ];
    /// The newest with a handshake: what a client with an unknown version is offered.
    pub const LAST_LEGACY: Self = Self::V2025November;

    /// Whether a result of a tool may have links to resources (2025-06-18 changelog).
    #[must_use]
    pub const fn has_links(self) -> bool {
        !matches!(self, Self::V2024November | Self::V2025March)
    }

    /// As written in messages and headers.
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

    /// The revision called `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// All of them as a JSON array: what is offered to a client that speaks another, and what a
    /// client that asks is told.
    #[must_use]
    pub fn list() -> String {
        let quoted: Vec<_> = Self::ALL.iter().map(|v| format!("\"{}\"", v.as_str())).collect();
        format!("[{}]", quoted.join(","))
    }

    /// Which era it belongs to.
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

/// Whether a peer opens a session or says everything in each request.
///
/// SPEC 2026-07-28 basic/versioning#terminology
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Up to 2025-11-25.
    Legacy,
    /// From 2026-07-28.
    Modern,
}

impl Era {
    /// Its name in records.
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

/// JSON-RPC codes.
pub mod code {
    /// Not JSON.
    pub const PARSE: i32 = -32700;
    /// Not a request.
    pub const REQUEST: i32 = -32600;
    /// No such method.
    pub const METHOD: i32 = -32601;
    /// Wrong parameters, an unknown tool among them.
    pub const PARAMS: i32 = -32602;
    /// The gateway or the server behind it failed.
    pub const INTERNAL: i32 = -32603;
    /// Headers and body disagree. SPEC 2026-07-28 basic/transports/streamable-http#server-validation
    pub const HEADER_MISMATCH: i32 = -32020;
    /// The request needs something of the client that it did not declare.
    pub const MISSING_CAPABILITY: i32 = -32021;
    /// SPEC 2026-07-28 basic/versioning#protocol-version-negotiation
    pub const UNSUPPORTED_VERSION: i32 = -32022;
    /// No such resource (up to 2025-11-25; -32602 since).
    pub const NO_RESOURCE: i32 = -32002;
    /// The user has to open a page first (2025-11-25 only).
    pub const URL_ELICITATION: i32 = -32042;
    /// A denial the caller may know about. Outside the range JSON-RPC reserves, as the
    /// specification asks for codes it does not define (2026-07-28 basic#error-codes).
    pub const DENIED: i32 = -31403;
}

/// Header names, in lower case.
pub mod header {
    /// The revision of a request.
    pub const VERSION: &str = "mcp-protocol-version";
    /// The method of a request (modern).
    pub const METHOD: &str = "mcp-method";
    /// The tool of a request (modern).
    pub const NAME: &str = "mcp-name";
    /// The session of a request (legacy).
    pub const SESSION: &str = "mcp-session-id";
    /// The last event a client has (legacy).
    pub const LAST_EVENT: &str = "last-event-id";
    /// Before the name of a header that repeats an argument (modern).
    pub const PARAM: &str = "mcp-param-";
}

/// Keys of `_meta` that the protocol reserves.
pub mod meta {
    /// The revision of a request.
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Who the client says it is.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// What the client says it can.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The least severe log message the client wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Who the server says it is.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The `subscriptions/listen` a notification belongs to.
    pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    /// How the keys begin that only this gateway sets.
    pub const OURS: &str = "dev.portcullis/";
    /// Ours: the servers whose part of a list is missing.
    pub const PARTIAL: &str = "dev.portcullis/partial";
    /// Ours: why a call of a tool was denied, in its result.
    pub const DENIAL: &str = "dev.portcullis/denial";
    /// Asks for progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// W3C Trace Context.
    pub const TRACE_PARENT: &str = "traceparent";
    /// W3C Trace Context: what vendors keep with it.
    pub const TRACE_STATE: &str = "tracestate";
    /// W3C Baggage.
    pub const BAGGAGE: &str = "baggage";
    /// Every key that must not be given in another spelling.
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
    /// Asks what the server is (modern).
    pub const DISCOVER: &str = "server/discover";
    /// Asks for a sign of life (legacy).
    pub const PING: &str = "ping";
    /// Lists tools.
    pub const TOOLS_LIST: &str = "tools/list";
    /// Calls a tool.
    pub const TOOLS_CALL: &str = "tools/call";
    /// Lists prompts.
    pub const PROMPTS_LIST: &str = "prompts/list";
    /// Gets a prompt.
    pub const PROMPTS_GET: &str = "prompts/get";
    /// Lists resources.
    pub const RESOURCES_LIST: &str = "resources/list";
    /// Lists resource templates.
    pub const TEMPLATES_LIST: &str = "resources/templates/list";
    /// Reads a resource.
    pub const RESOURCES_READ: &str = "resources/read";
    /// Asks to be told when a resource changes (legacy).
    pub const SUBSCRIBE: &str = "resources/subscribe";
    /// No longer asks for it (legacy).
    pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
    /// Asks how an argument could go on.
    pub const COMPLETE: &str = "completion/complete";
    /// Sets the least severe log message that is wanted (legacy).
    pub const SET_LEVEL: &str = "logging/setLevel";
    /// Opens a stream of notifications (modern).
    pub const LISTEN: &str = "subscriptions/listen";
    /// Asks how a task stands.
    pub const TASKS_GET: &str = "tasks/get";
    /// Waits for what came of a task (2025-11-25).
    pub const TASKS_RESULT: &str = "tasks/result";
    /// Answers what a task asks (modern).
    pub const TASKS_UPDATE: &str = "tasks/update";
    /// Gives a task up.
    pub const TASKS_CANCEL: &str = "tasks/cancel";
    /// Lists tasks (2025-11-25).
    pub const TASKS_LIST: &str = "tasks/list";
    /// Asks the user.
    pub const ELICIT: &str = "elicitation/create";
    /// Asks the model of the client.
    pub const SAMPLE: &str = "sampling/createMessage";
    /// Asks for the client's roots.
    pub const ROOTS: &str = "roots/list";
    /// The client is ready (legacy).
    pub const INITIALIZED: &str = "notifications/initialized";
    /// A request is no longer wanted.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// How far a request has come.
    pub const PROGRESS: &str = "notifications/progress";
    /// A line of the server's log.
    pub const LOG: &str = "notifications/message";
    /// There are other tools now.
    pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
    /// There are other prompts now.
    pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
    /// There are other resources now.
    pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
    /// A resource says something else now.
    pub const UPDATED: &str = "notifications/resources/updated";
    /// The client has other roots now (legacy).
    pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
    /// What was asked in a browser has been answered there (2025-11-25).
    pub const ELICITED: &str = "notifications/elicitation/complete";
    /// How a task stands (2025-11-25).
    pub const TASK_STATUS: &str = "notifications/tasks/status";
    /// How a task stands (modern).
    pub const TASK: &str = "notifications/tasks";
    /// What of a filter is honoured (modern).
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

    /// Every method there is.
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

    /// Longest name of a method of an extension.
    const LONGEST: usize = 128;

    /// How a method is meant to be sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Form {
        /// A request of the protocol, in some revision: it has an id.
        Request,
        /// A notification of the protocol, in some revision: it has none.
        Notification,
        /// A method of an extension, which only the two ends know: either.
        Extension,
        /// Not a name of a method, or one that a server could take for a method of the protocol. Rules
        /// about unknown methods must not decide about it.
        Malformed,
    }

    /// How `method` is meant to be sent, whichever revision has it.
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
        let named = method.len() <= LONGEST && method.split('/').all(segment);
        // SPEC JSON-RPC 2.0, section 4: these names are for the protocol below.
        let reserved = method.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("rpc."));
        let like = |known: &&str| letters(known).eq(letters(method));
        if !named || reserved || ALL.iter().any(like) {
            return Form::Malformed;
        }
        Form::Extension
    }

    /// The letters and digits of a method: what is left when a server compares without regard to case
    /// and separators.
    fn letters(method: &str) -> impl Iterator<Item = u8> {
        method.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase())
    }

    /// A method for a label or the name of a span: a peer that makes methods up makes no new ones.
    #[must_use]
    pub fn clamped(method: &str) -> &'static str {
        ALL.into_iter().find(|known| *known == method).unwrap_or("_OTHER")
    }

    /// The method that lists a kind of thing.
    #[must_use]
    pub const fn list(kind: policy::offer::Kind) -> &'static str {
        use policy::offer::Kind;
        match kind {
            Kind::Tool | Kind::Method => TOOLS_LIST,
            Kind::Prompt => PROMPTS_LIST,
            Kind::Resource => RESOURCES_LIST,
            Kind::Template => TEMPLATES_LIST,
        }
    }
}
