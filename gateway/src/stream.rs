//! Bodies and event streams: request bodies up to a limit, and response bodies and SSE events within a memory budget.

pub mod sse;
pub mod budget;
pub mod queue;
pub mod replay;
pub mod slots;
pub mod body;
