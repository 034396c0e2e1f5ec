//! A reverse proxy that lets through only the MCP messages a policy permits.
//!
//! One request runs through [`exchange::Gateway::exchange`]; read that function first. The modules
//! stand in the order of their dependencies: each uses those above it and none below.

pub mod base;
pub mod crypto;
pub mod mcp;
pub mod stream;
pub mod net;
pub mod process;
pub mod config;
pub mod metrics;
pub mod outbound;
pub mod audit;
pub mod telemetry;
pub mod identity;
pub mod session;
pub mod pins;
pub mod upstream;
pub mod edge;
pub mod exchange;
pub mod serve;
pub mod control;
