//! What the detectors and the policy share: a budget for inspections, the callers and servers that a policy speaks of,
//! and JSON Schema. Pure: no I/O, no clock, no async, no randomness.
//!
//! The rooms are listed in dependency order: each uses only rooms above it, and so do the modules within a room.
//!
//! - [`base`]: the budget of an inspection, and characters that are not shown
//! - [`subject`]: callers, servers and what servers offer: their names, URIs and patterns
//! - [`schema`]: JSON Schema validation of arguments and results
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod base;
pub mod subject;
pub mod schema;
