//! Clients of services other than MCP servers: secret stores, authorization servers, guardrails and collectors of
//! telemetry.

pub mod secrets;
pub mod environment;
pub mod authorization_server;
pub mod guardrail;
pub mod otlp;
