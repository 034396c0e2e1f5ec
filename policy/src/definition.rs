//! The definitions that servers list, and whether an operator has approved them.
//!
//! A definition is identified by a digest of its canonical form and compared with the lockfile, with its earlier version
//! and with the definitions of other servers.
//!
//! - [`pin`]: digests that identify definitions
//! - [`mod@alike`]: whether two definitions mean the same although their bytes differ
//! - [`mirror`]: arguments that are repeated in HTTP headers
//! - [`skill`]: the files of a skill and their digests
//! - [`offer`]: the catalog of a server
//! - [`lock`]: the approved definitions (lockfile)
//! - [`drift`]: changes between two versions of a definition, and their severity
//! - [`review`]: remarks on a definition for the person who approves it
//! - [`gravity`]: how grave a finding of a detector is, and what to do about it
//! - [`pins`]: whether a definition is an approved one
//! - [`shadow`]: names and definitions that can be mistaken for those of another server
//! - [`registry`]: the operator's own metadata about tools
//! - [`decoy`]: tools that no server has, for attackers

pub mod pin;
pub mod alike;
pub mod mirror;
pub mod skill;
pub mod offer;
pub mod lock;
pub mod drift;
pub mod review;
pub mod gravity;
pub mod pins;
pub mod shadow;
pub mod registry;
pub mod decoy;
