//! x
pub mod clock;
pub mod report;
pub mod secret;
pub mod hex;
pub mod settings;
pub mod protocol;
pub mod wire;
pub mod sse;
pub mod bounded;
pub mod ending;
pub mod metrics;
pub mod audit;
pub mod identity;
pub mod session;
