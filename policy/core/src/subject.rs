//! Who and what a policy speaks of: callers, servers and what servers offer, the names and URIs of these, and the
//! patterns that select them.
//!
//! The types are validated where they enter, so the other rooms compare them without a check of their own. Nothing here
//! decides: [`revoked`] only lists what no rule can allow.
//!
//! - [`mode`]: whether a control enforces, audits or is off
//! - [`name`]: validated names and ids
//! - [`address`]: classes of network addresses
//! - [`uri`]: resource URIs in canonical form
//! - [`skill`]: URIs of skills and of their files
//! - [`pattern`]: name patterns with `*` and `?`
//! - [`template`]: the URIs that a resource template matches
//! - [`principal`]: the authenticated caller, as established by the gateway
//! - [`links`]: resource links that were handed to callers
//! - [`revoked`]: revoked servers, tools and principals, which no rule can allow
//! - [`scope`]: what an OAuth scope permits, judged by its name
//! - [`kind`]: kinds of things that servers offer

pub mod mode;
pub mod name;
pub mod address;
pub mod uri;
pub mod skill;
pub mod pattern;
pub mod template;
pub mod principal;
pub mod links;
pub mod revoked;
pub mod scope;
pub mod kind;
