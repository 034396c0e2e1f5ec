//! Finds what attacks, leaks or hides in a text, and takes it out: in definitions of tools and in contents of messages.
//! Pure: no I/O, no clock, no async, no randomness.
//!
//! Findings are facts. What is done about them is a setting that the caller passes in, and whether a message passes is
//! decided by the engine of the policy.
//!
//! - [`detect`]: detection of instructions to a model in a text
//! - `secrets`: detection of secrets, for definitions and contents
//! - [`inspect`]: detectors over definitions
//! - [`labels`]: sensitivity labels on members of results
//! - [`clean`]: removes detected content from a definition
//! - [`content`]: detectors over results and arguments, and their actions
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod detect;
mod secrets;
pub mod inspect;
pub mod labels;
pub mod clean;
pub mod content;
