//! Finds the tools of a catalogue that a request in a person's words is about. Pure: no I/O, no clock, no async, no
//! randomness.
//!
//! An [`index::Index`] is built from the texts of the tools' definitions. A search ranks its tools by three
//! scores, of which [`fusion::Weights`] makes one: words that the query and the definition share (lexical), words of
//! similar meaning (soft), and the direction of the text as a whole (semantic). What words mean is a table that
//! was trained and is compiled in ([`model`]); nothing is downloaded, and the same query has the same answer everywhere.
//!
//! A tool that the caller may not use moves no score and no rank: all statistics are those of the model, and none is of
//! the catalogue.
//!
//! Definitions are written by servers, and servers are not trusted: every text has a bound, a word counts once in each
//! field, and a longer description weighs each of its words less.
//!
//! - [`text`]: words of a text
//! - [`tool`]: the texts of a definition
//! - [`model`]: the trained table of words
//! - [`bag`]: the words of a text with what each of them counts
//! - [`vector`]: the direction of a text
//! - [`query`]: a request in words
//! - [`history`]: what similar requests led to
//! - [`fusion`]: how scores become one
//! - [`learning`]: which weights would have been better
//! - [`ranking`]: the answer to a query
//! - [`index`]: the tools, and the search among them
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod text;
pub mod tool;
pub mod model;
pub mod bag;
pub mod vector;
pub mod query;
pub mod history;
pub mod fusion;
pub mod learning;
pub mod ranking;
pub mod index;
