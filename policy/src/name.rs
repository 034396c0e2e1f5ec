//! Names that have been checked once, where they entered.

use std::fmt;

/// Why a string is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No characters at all.
    #[error("is empty")]
    Empty,
    /// Too long to be worth logging.
    #[error("is {length} bytes long, the most is {limit}")]
    Length {
        /// What came.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A character that may not stand there.
    #[error("has `{}` at byte {at}; use {allowed}", .found.escape_debug())]
    Character {
        /// Byte offset.
        at: usize,
        /// The character.
        found: char,
        /// What may stand there.
        allowed: &'static str,
    },
}

/// Longest name an operator may give.
const LABEL: usize = 64;
/// Longest name a peer may give.
const FOREIGN: usize = 256;
/// Longest name or URI of what a server offers.
const OFFERED: usize = 2048;

fn check(
    text: &str,
    limit: usize,
    allowed: &'static str,
    fits: fn(char) -> bool,
) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > limit {
        return Err(NameError::Length { length: text.len(), limit });
    }
    let odd = text.char_indices().find(|(_, c)| !fits(*c));
    odd.map_or(Ok(()), |(at, found)| Err(NameError::Character { at, found, allowed }))
}

/// A name from the configuration: it is used in logs, metrics and prefixes.
fn label(text: &str) -> Result<(), NameError> {
    check(text, LABEL, "letters, digits, `_`, `-` and `.`", standard)
}

/// A name from a peer: anything printable, because it is compared and never interpreted.
fn foreign(text: &str) -> Result<(), NameError> {
    check(text, FOREIGN, "printable characters", |c| !c.is_control())
}

/// The same, for what may be a URI.
fn offered(text: &str) -> Result<(), NameError> {
    check(text, OFFERED, "printable characters", |c| !c.is_control())
}

/// The alphabet the specification asks tool names to keep to.
///
/// SPEC 2026-07-28 server/tools#tool-names
const fn standard(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// SPEC RFC 6749, section 3.3: a scope is visible ASCII without `"` and `\`.
fn scope(text: &str) -> Result<(), NameError> {
    let fits = |c| matches!(c, '!' | '#'..='[' | ']'..='~');
    check(text, LABEL * 2, "visible ASCII without `\"` and `\\`", fits)
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Box<str>);

        impl $type {
            /// Checks `text` once; every later holder may trust it.
            ///
            /// # Errors
            /// When `text` is empty, too long, or has a character outside the alphabet.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                $check(text)?;
                Ok(Self(text.into()))
            }

            /// The text as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(/** An upstream server, as the operator names it. */ ServerName, label);
name!(/** A rule in the policy. */ RuleId, label);
name!(/** A group of principals. */ GroupName, foreign);
name!(/** A caller, as its credential names it. */ PrincipalId, foreign);
name!(/** A role of principals. */ RoleName, foreign);
name!(/** A client of an authorization server, as that names it. */ ClientId, foreign);
name!(/** A scope of an access token (RFC 6749, section 3.3). */ Scope, scope);
name!(/** What a server offers, by the name or the URI it gives it. */ OfferName, offered);

/// How the names begin that are kept for the self-test: what the operator says with a pattern is never
/// about them.
pub const RESERVED: &str = "portcullis-selftest";

impl ServerName {
    /// Whether it is the server of the self-test.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        *self.0 == *RESERVED
    }
}

impl OfferName {
    /// Whether the name keeps to the alphabet and the length the specification asks for.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        self.0.len() <= 128 && self.0.chars().all(standard)
    }
}

#[cfg(test)]
mod tests {
    use super::{NameError, OfferName, RuleId};

    #[test]
    fn a_control_character_is_reported_escaped() {
        let error = OfferName::parse("rm\u{1b}[2J").unwrap_err();
        assert!(matches!(error, NameError::Character { at: 2, found: '\u{1b}', .. }));
        assert!(!error.to_string().contains('\u{1b}'));
    }

    #[test]
    fn an_operators_name_keeps_to_the_alphabet() {
        assert_eq!(
            RuleId::parse("rm -rf").unwrap_err().to_string(),
            "has ` ` at byte 2; use letters, digits, `_`, `-` and `.`"
        );
        RuleId::parse("no-rm.v2_x").unwrap();
    }
}
