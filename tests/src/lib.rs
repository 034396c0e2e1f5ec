//! Harness for the end-to-end tests: the built gateway as a process, clients that send any bytes,
//! and servers that answer with any bytes. Everything is on loopback and on ports of its own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a harness fails by panicking"
)]

pub mod authority;
pub mod canary;
pub mod client;
pub mod gateway;
pub mod golden;
pub mod http2;
pub mod issuer;
pub mod pki;
pub mod port;
pub mod server;
pub mod stdio;
pub mod tls;

use std::time::{Duration, Instant};

/// An era of the protocol, as a test runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2025-11-25, with a session.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// Both.
pub const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// How long anything in a test may take before it has failed.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// Looks again and again until `found` finds something.
///
/// # Panics
/// When it does not within [`PATIENCE`].
#[expect(clippy::disallowed_methods, reason = "a test's patience is real time")]
pub fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what} did not happen");
        // Leaves the processor to what is waited for.
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
