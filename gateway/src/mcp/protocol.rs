//! Constants of MCP: revisions, methods, error codes, headers and reserved `_meta` keys.
//!
//! SPEC <https://modelcontextprotocol.io/specification/2026-07-28> and the revisions before it.

pub use policy::engine::method;
use policy::engine::method::{MethodEras, MethodSpec};

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
    /// Whether a revision of this era has the method.
    #[must_use]
    pub fn has(self, method: &MethodSpec) -> bool {
        match method.eras {
            MethodEras::Legacy => self == Self::Legacy,
            MethodEras::Modern => self == Self::Modern,
            MethodEras::Both => true,
        }
    }

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
    use http::HeaderName;

    /// Revision of the request.
    pub static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    /// Method of the request (modern).
    pub static METHOD: HeaderName = HeaderName::from_static("mcp-method");
    /// Tool name of the request (modern).
    pub static NAME: HeaderName = HeaderName::from_static("mcp-name");
    /// Session id of the request (legacy).
    pub static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
    /// Id of the last event that the client received (legacy).
    pub static LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
    /// W3C Trace Context of the request.
    pub static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
    /// W3C Trace Context of the request: the vendors' data.
    pub static TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");
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
    /// Key of the gateway: descriptions in the definition of a tool are cut.
    pub const SHORTENED: &str = "dev.portcullis/shortened";
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
