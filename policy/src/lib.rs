//! Decides what an MCP message may do. Pure: no I/O, no clock, no async, no randomness.
//!
//! The rooms are listed in dependency order: each uses only rooms above it, and so do the modules within a room.
//!
//! - [`base`]: the budget of an inspection, and characters that are not shown
//! - [`json`]: strict JSON parser that keeps the bytes of a document, JSON Pointers and encodings
//! - [`subject`]: callers, servers and what servers offer: their names, URIs and patterns
//! - [`schema`]: JSON Schema validation of arguments and results
//! - [`detection`]: detectors over definitions and contents, and what is done to a text
//! - [`definition`]: definitions of servers: their pins, lockfile, changes and conflicts
//! - [`rules`]: the operator's rules and controls, and the decisions that they lead to
//! - [`engine`]: applies the policy to messages; mints every permit
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod base;
pub mod json;
pub mod subject;
pub mod schema;
pub mod detection;
pub mod definition;
pub mod rules;
pub mod engine;
