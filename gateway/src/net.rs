//! Connections that the gateway opens and accepts: where they may go, whom they trust, HTTP/1.1 framing and HTTP/2.

pub mod egress;
pub mod server_verifier;
pub mod http2;
pub mod connection;
pub mod http_client;
pub mod write_timeout;
pub mod http_framing;
