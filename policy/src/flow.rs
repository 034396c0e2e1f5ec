//! Guards what flows between servers: what a caller was shown, and what it is about to send (control C15).
//!
//! Results carry labels, and those of a flow only grow. Beside them, a flow remembers which source has shown which value,
//! so that a value that only untrusted results have shown is recognised when it is about to be sent somewhere. Pure: the
//! gateway keeps the memory of each flow, and gives the key of its hashes.
//!
//! - [`label`]: the labels of tools and flows, and those that servers send
//! - [`value`]: the values and runs of words of a message, as keyed hashes
//! - [`memory`]: what one flow remembers
//! - [`channel`]: the values that pass between two planners
//! - [`guard`]: the `flow` section of the policy, and the judgement about a call
//! - [`planner`]: what two planners may be shown, and may use

pub mod label;
pub mod value;
pub mod memory;
pub mod channel;
pub mod guard;
pub mod planner;
