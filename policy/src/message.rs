//! MCP messages after decoding: no HTTP, no SSE, no JSON-RPC framing, no protocol era.

use crate::json::Fragment;
use crate::name::ServerName;
use crate::tool::Catalog;

/// A client's request to one upstream server.
#[derive(Clone, Debug)]
pub enum Call {
    /// `tools/list`, every page of it.
    ListTools {
        /// Which server.
        server: ServerName,
    },
    /// `tools/call`
    Tool(ToolCall),
}

/// One `tools/call`.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Which server.
    pub server: ServerName,
    /// The tool's name as the caller gave it, without a server's prefix.
    pub tool: Box<str>,
    /// Its arguments, an object; `None` when the caller sent none.
    pub arguments: Option<Fragment>,
    /// Members of `params` that this gateway does not know, to be passed on as they are.
    pub extra: Vec<(Box<str>, Fragment)>,
    /// Members of `params._meta` that are not the protocol's own, likewise.
    pub meta: Vec<(Box<str>, Fragment)>,
}

/// A server's answer to one [`Call`].
#[derive(Debug)]
pub enum Reply {
    /// Answer to `tools/list`, still unfiltered.
    Tools(std::sync::Arc<Catalog>),
    /// Answer to `tools/call`: the `result` object.
    Tool(Fragment),
    /// A JSON-RPC error from the server: the `error` object.
    Error(Fragment),
}
