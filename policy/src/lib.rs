//! Decides what an MCP message may do. Pure: no I/O, no clock, no async, no randomness.
//!
//! Read the modules in this order; each may use those above it and none below.
//!
//! - [`work`]: what one exchange may cost
//! - [`name`]: validated names and ids
//! - [`mod@pointer`]: where in a document, as JSON Pointer
//! - [`hidden`]: what is in a text and not shown
//! - [`address`]: what an address of a network leads to
//! - [`uri`]: URIs of resources, in the one form that is compared
//! - [`pattern`]: names with `*` and `?` in them
//! - [`template`]: which URIs a resource template stands for
//! - [`principal`]: who is asking, as the gateway concluded it
//! - [`links`]: resources that a caller was given links to
//! - [`revoked`]: what is no longer to be used, whatever the rules say
//! - [`json`]: JSON, read once and strictly, kept as bytes
//! - [`scope`]: what a scope of OAuth lets its holder do, by its name
//! - [`kind`]: the sorts of things servers offer
//! - [`pin`]: what a definition is recognised by
//! - [`mod@alike`]: whether two definitions say the same although their bytes differ
//! - [`detect`]: whether a text gives orders to a model
//! - [`schema`]: whether arguments and results are as the definition says
//! - [`inspect`]: what the detectors see in a definition
//! - [`clean`]: takes out of a definition what should not stand in it
//! - [`mirror`]: the arguments that are repeated in headers
//! - [`offer`]: what a server offers
//! - [`lock`]: what was approved
//! - [`drift`]: what has changed in a definition, and how much that matters
//! - [`review`]: what a reviewer would say about a definition
//! - [`places`]: the places of a message, and how each is treated
//! - [`message`]: what is being asked or answered, free of transport and era
//! - [`mode`]: whether a control acts
//! - [`control`]: what is checked, and what was
//! - [`constraint`]: what an argument may be
//! - [`definitions`]: what is done about what is found in a definition
//! - [`content`]: what is in results and arguments, and what is done about it
//! - [`ask`]: what a server may ask of clients
//! - [`labels`]: which members of results are labelled as sensitive
//! - [`pins`]: whether a definition is one that was approved
//! - [`shadow`]: what could be taken for something else
//! - [`registry`]: what we know about tools ourselves
//! - [`decision`]: reasons, denials and decisions
//! - [`condition`]: the `when:` of a rule
//! - [`access`]: the rules
//! - [`explain`]: what each rule says of one use, for people
//! - [`pipeline`]: runs the checks and is the only place that mints a [`pipeline::Permit`]
//! - [`config`]: the policy section of the configuration, compiled or refused with its problems
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm)]

mod coding;
pub mod work;
pub mod name;
pub mod pointer;
pub mod hidden;
pub mod address;
pub mod uri;
pub mod pattern;
pub mod template;
pub mod principal;
pub mod links;
pub mod revoked;
pub mod json;
pub mod scope;
pub mod kind;
pub mod pin;
pub mod alike;
pub mod detect;
pub mod schema;
mod declared;
pub mod inspect;
pub mod labels;
pub mod clean;
pub mod mirror;
pub mod offer;
pub mod lock;
pub mod drift;
pub mod review;
pub mod places;
pub mod message;
pub mod mode;
pub mod control;
pub mod constraint;
pub mod definitions;
pub mod content;
pub mod ask;
pub mod pins;
pub mod shadow;
pub mod registry;
pub mod decision;
pub mod condition;
pub mod access;
pub mod explain;
pub mod pipeline;
pub mod config;
