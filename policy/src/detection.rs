//! Finds what attacks, leaks or hides in a text, and takes it out: in definitions of tools and in contents of messages.
//!
//! Findings are facts. What is done about them is a setting that the caller passes in, and whether a message passes is
//! decided by the engine.
//!
//! - [`detect`]: detection of instructions to a model in a text
//! - [`inspect`]: detectors over definitions
//! - [`labels`]: sensitivity labels on members of results
//! - [`clean`]: removes detected content from a definition
//! - [`content`]: detectors over results and arguments, and their actions

pub mod detect;
pub mod inspect;
pub mod labels;
pub mod clean;
pub mod content;
