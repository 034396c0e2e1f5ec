//! Between HTTP and an exchange: who may connect, what a request asks, and how an answer or a failure is written.

pub mod failure;
pub mod denial;
pub mod decode;
pub mod encode;
pub mod server_info;
pub mod tls;
pub mod admission;
