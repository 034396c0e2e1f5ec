//! Clients of services other than MCP servers: secret stores, authorization servers and guardrails.

pub mod secrets;
pub mod environment;
pub mod authorization_server;
pub mod guardrail;
