//! The words of the protocol: revisions, methods, codes, headers and reserved keys.
//!
//! SPEC <https://modelcontextprotocol.io/specification/2026-07-28> and the revisions before it.

/// A revision of the protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
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
    pub const ALL: [Self; 4] =
        [Self::V2026July, Self::V2025November, Self::V2025June, Self::V2025March];
    /// The newest with a handshake: what a client with an unknown version is offered.
    pub const LAST_LEGACY: Self = Self::V2025November;

    /// As written in messages and headers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
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

    /// Which era it belongs to.
    #[must_use]
    pub const fn era(self) -> Era {
        match self {
            Self::V2025March | Self::V2025June | Self::V2025November => Era::Legacy,
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
    /// SPEC 2026-07-28 basic/versioning#protocol-version-negotiation
    pub const UNSUPPORTED_VERSION: i32 = -32022;
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
    /// Asks for progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// W3C Trace Context.
    pub const TRACE_PARENT: &str = "traceparent";
    /// Every key that must not be given in another spelling.
    pub const RESERVED: [&str; 6] =
        [VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL, PROGRESS_TOKEN, TRACE_PARENT];
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
    /// The client is ready (legacy).
    pub const INITIALIZED: &str = "notifications/initialized";
    /// A request is no longer wanted.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// How far a request has come.
    pub const PROGRESS: &str = "notifications/progress";
    /// All of them: the only values of a method that become a metric label.
    pub const KNOWN: [&str; 8] =
        [INITIALIZE, DISCOVER, PING, TOOLS_LIST, TOOLS_CALL, INITIALIZED, CANCELLED, PROGRESS];
}
