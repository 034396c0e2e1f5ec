//! The rules of an operator and the decisions that they lead to: who may use what, with which arguments, and how
//! findings in definitions are treated.
//!
//! A [`decision::Decision`] names every rule and every control behind it, so that it can be explained.
//!
//! - [`control`]: the controls, and which of them ran
//! - [`constraint`]: limits on arguments beyond their schema
//! - [`definitions`]: how findings in definitions are treated
//! - [`apps`]: apps of servers, which clients show to their users
//! - [`approval`]: what needs the approval of a person
//! - [`decision`]: decisions, denials and their reasons
//! - [`condition`]: the `when` condition of a rule
//! - [`access`]: the access rules
//! - [`explain`]: explains what each rule says about one request

pub mod control;
pub mod constraint;
pub mod definitions;
pub mod apps;
pub mod approval;
pub mod decision;
pub mod condition;
pub mod access;
pub mod explain;
