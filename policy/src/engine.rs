//! Applies the policy to messages: every request and every reply goes through [`pipeline::Policy`], which runs the
//! checks of the other rooms in order and mints the proofs without which the gateway sends and shows nothing.
//!
//! - [`places`]: the members of a message, and how each is inspected
//! - [`message`]: requests and replies, independent of transport and protocol revision
//! - [`events`]: subscriptions whose events would not come through the gateway
//! - [`method`]: the methods of the protocol, as one table
//! - [`ask`]: elicitation and sampling requests of servers
//! - [`pipeline`]: runs all checks; the only module that mints a [`pipeline::Permit`]
//! - [`config`]: compiles the `policy` section of the configuration, or reports its problems

pub mod places;
pub mod message;
pub mod events;
pub mod method;
pub mod ask;
pub mod pipeline;
pub mod config;
