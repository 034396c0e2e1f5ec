//! What accepts clients: HTTP listeners, the HTTP+SSE transport of 2024-11-05, and the bridge that both it and stdio use.

pub mod generation;
pub mod bridge;
pub mod http_sse;
pub mod listener;
