//! Clients of services other than MCP servers: secret stores, authorization servers, guardrails, collectors of
//! telemetry, webhooks, and models that help to rank tools.

pub mod secrets;
pub mod environment;
pub mod authorization_server;
pub mod guardrail;
pub mod otlp;
pub mod webhook;
pub mod model_service;
pub mod tool_judge;
pub mod embeddings;
