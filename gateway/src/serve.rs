//! Serves clients: the data path as a service, the HTTP listeners that call it, the HTTP+SSE transport of 2024-11-05, and
//! the bridge that HTTP+SSE and stdio share. Every message becomes an exchange of the gateway whose configuration is in
//! force.

pub mod generation;
pub mod bridge;
pub mod http_sse;
mod well_known;
mod mcp_service;
mod hand_over;
pub mod listener;

pub use mcp_service::{McpService, MountedBody};
