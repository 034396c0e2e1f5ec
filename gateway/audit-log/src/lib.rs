//! The format of the audit log: how records are chained and signed, and how a log is verified from its files alone.
//!
//! The gateway writes with it and an auditor verifies with it, who needs nothing else of the gateway:
//!
//! ```
//! use audit_log::note::NoteVerifier;
//! use audit_log::verify::{LogVerifier, ProblemSeverity, VerifyOptions};
//!
//! # fn check(key: &str, log: &mut dyn std::io::BufRead) -> Result<bool, Box<dyn std::error::Error>> {
//! let keys = vec![NoteVerifier::parse(key)?];
//! let mut verifier = LogVerifier::new(VerifyOptions { keys, ..VerifyOptions::default() });
//! verifier.read("audit.jsonl", log)?;
//! let report = verifier.finish();
//! # Ok(report.weight() != Some(ProblemSeverity::Broken))
//! # }
//! ```
//!
//! `docs/audit.md` describes the format. The modules are listed in dependency order:
//!
//! - [`tree`]: the Merkle tree over the records
//! - [`chain`]: the hash chain, and reading a record of it
//! - [`note`]: signed checkpoints
//! - [`verify`]: checks that a log is intact
#![warn(missing_docs)]

pub mod tree;
pub mod chain;
pub mod note;
pub mod verify;
