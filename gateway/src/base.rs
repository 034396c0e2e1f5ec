//! Foundations that every other module uses and that know nothing of MCP: time, threads and tasks, shares of a
//! resource, watched files, and text for logs.

pub mod clock;
pub mod heartbeat;
pub mod error_chain;
pub mod gcra;
pub mod log_limit;
pub mod log_queue;
pub mod secret;
pub mod masking;
pub mod printable;
pub mod random;
pub mod sha256;
pub mod context_tokens;
pub mod schema_keywords;
pub mod fair;
pub mod turns;
pub mod segments;
pub mod bounded;
pub mod expiring_cache;
pub mod share;
pub mod caller_counters;
pub mod intake;
pub mod offload;
pub mod task;
pub mod file;
pub mod systemd;
