//! Network connections of the gateway, in both directions: egress rules, server verification, HTTP/1.1 framing, HTTP/2.

pub mod handshake_bound;
pub mod egress;
pub mod server_verifier;
pub mod http2;
pub mod connection;
pub mod http_client;
pub mod write_timeout;
pub mod http_framing;
