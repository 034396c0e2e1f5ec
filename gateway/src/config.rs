//! The configuration: YAML text is parsed, checked against its JSON Schema and compiled into
//! [`settings::Settings`], on which the gateway runs.

pub mod selftest_fixtures;
pub mod overrides;
pub mod call_budget;
pub mod settings;
pub mod quota;
