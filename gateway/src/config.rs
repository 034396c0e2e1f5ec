//! The configuration: YAML in, compiled settings out.

pub mod selftest_fixtures;
pub mod overrides;
pub mod settings;
pub mod quota;
