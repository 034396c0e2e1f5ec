//! Bodies and event streams: read and written within a budget of bytes.

pub mod sse;
pub mod budget;
pub mod queue;
pub mod replay;
pub mod body;
