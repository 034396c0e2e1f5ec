//! Evaluates definitions of tools by examples: whether requests lead to the tools that they are about, whether the
//! arguments of the examples fit the schemas, and what a change of a definition does to both. Pure: no I/O, no clock, no
//! async, no randomness, and no model but the table of words of the selector. `docs/evaluation.md` describes the figures.
//!
//! - [`ratio`]: a share and how certain it is
//! - [`likeness`]: how much of a text another one keeps
//! - [`tool`]: a definition, prepared for evaluation
//! - [`example`]: what is expected of the definitions
//! - [`suite`]: definitions and examples
//! - [`shape`]: what an input schema takes, argument by argument
//! - [`result`]: what came out for each example, and the figures
//! - [`run`]: the evaluation
//! - [`threshold`]: which figures suffice
//! - [`comparison`]: which figures a change of definitions lowers
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod ratio;
pub mod likeness;
pub mod tool;
pub mod example;
pub mod suite;
pub mod shape;
pub mod result;
pub mod run;
pub mod threshold;
pub mod comparison;
