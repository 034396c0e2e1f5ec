//! Foundations of every inspection: a budget for its work, and the characters of a text that are not shown.
//!
//! Neither module knows of JSON, of MCP or of a policy.
//!
//! - [`work`]: the inspection budget of one exchange
//! - [`hidden`]: invisible and deceptive characters in a text

pub mod work;
pub mod hidden;
