//! x
pub mod clock;
pub mod report;
pub mod secret;
pub mod hex;
pub mod settings;
