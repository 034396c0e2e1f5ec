//! The MCP data types: protocol revisions and constants, JSON-RPC messages, client information, tool names on a route,
//! and trace context. Nothing here does I/O.

pub mod protocol;
pub mod client_info;
pub mod wire;
pub mod tool_naming;
pub mod trace_context;
