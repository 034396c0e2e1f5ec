//! The protocol: its revisions and words, JSON-RPC messages, what clients say of themselves, names on a route, and trace context.

pub mod protocol;
pub mod client_info;
pub mod wire;
pub mod tool_naming;
pub mod trace_context;
