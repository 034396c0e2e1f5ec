//! A reverse proxy that lets through only the MCP messages a policy permits.
//!
//! [`exchange::Gateway::exchange`] handles one request from end to end; read it first. The `mod` lines are in the order
//! of dependencies: a module uses only the modules above it.

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
