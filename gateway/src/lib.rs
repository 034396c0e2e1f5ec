//! A reverse proxy that lets through only the MCP messages a policy permits.
//!
//! One request runs through [`exchange::Gateway::exchange`]; read that function first. The modules
//! stand in the order of their dependencies: each uses those above it and none below.

pub mod clock;
pub mod report;
pub mod secret;
pub mod hex;
pub mod naming;
pub mod seal;
pub mod task;
pub mod file;
pub mod sha256;
pub mod sse;
pub mod replay;
pub mod body;
pub mod bounded;
pub mod rates;
pub mod egress;
pub mod x509;
pub mod pem;
pub mod trust;
pub mod link;
pub mod fetch;
pub mod jose;
pub mod ending;
pub mod metrics;
pub mod settings;
pub mod world;
pub mod oauth;
pub mod resource;
pub mod protocol;
pub mod client;
pub mod wire;
pub mod audit;
pub mod pinning;
pub mod identity;
pub mod tls;
pub mod session;
pub mod conversation;
pub mod upstream;
pub mod failure;
pub mod inbound;
pub mod reply;
pub mod presentation;
pub mod door;
pub mod patient;
pub mod exchange;
pub mod bridge;
pub mod old;
pub mod front;
pub mod killswitch;
pub mod ops;
pub mod console;
pub mod start;
pub mod survey;
pub mod canary;
