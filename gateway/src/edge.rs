//! The boundary between HTTP and an exchange: TLS and admission, decoding requests, encoding responses, and how
//! failures and denials are reported to clients.

pub mod failure;
pub mod denial;
pub mod decode;
pub mod encode;
pub mod server_info;
pub mod tls;
pub mod admission;
