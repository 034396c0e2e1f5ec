//! Clients of services other than MCP servers: secret stores, authorization servers, guardrails, collectors of
//! telemetry, and webhooks.

pub mod secrets;
pub mod environment;
pub mod authorization_server;
pub mod guardrail;
pub mod otlp;
pub mod webhook;
