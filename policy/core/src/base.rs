//! Foundations of every inspection: a budget for its work, and the characters of a text that are not shown.
//!
//! No module knows of JSON, of MCP or of a policy.
//!
//! - [`compiled`]: patterns that are compiled from constants
//! - [`work`]: the inspection budget of one exchange
//! - [`hidden`]: invisible and deceptive characters in a text

pub mod compiled;
pub mod work;
pub mod digits;
pub mod hidden;
