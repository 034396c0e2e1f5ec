//! The MCP data model: protocol revisions and constants, JSON-RPC messages, client information, tool names on a route,
//! and trace context. All other modules that read or write messages use it; it performs no I/O.

pub mod protocol;
pub mod client_info;
pub mod wire;
pub mod tool_naming;
pub mod sentences;
pub mod tool_signature;
pub mod discovery_tools;
pub mod model_text;
pub mod short_definition;
pub mod trace_context;
pub mod gateway_path;
