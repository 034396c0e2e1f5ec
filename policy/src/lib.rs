//! Decides what an MCP message may do. Pure: no I/O, no clock, no async, no randomness.
//!
//! The rooms are listed in dependency order: each uses only rooms above it, and so do the modules within a room.
//!
//! - [`definition`]: definitions of servers: their pins, lockfile, changes and conflicts
//! - [`flow`]: labels of what callers are shown, and where the values in their calls came from
//! - [`rules`]: the operator's rules and controls, and the decisions that they lead to
//! - [`engine`]: applies the policy to messages; mints every permit
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm)]

mod spelling;
pub mod definition;
pub mod flow;
pub mod rules;
pub mod engine;
