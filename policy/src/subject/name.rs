//! Names and ids that are validated once, where they enter.

use std::fmt;

/// Why a string is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The string is empty.
    #[error("is empty")]
    Empty,
    /// The string is longer than its limit.
    #[error("is {length} bytes long, the most is {limit}")]
    Length {
        /// Length of the string, in bytes.
        length: usize,
        /// Largest allowed length, in bytes.
        limit: usize,
    },
    /// A character outside the allowed alphabet.
    #[error("has `{}` at byte {at}; use {allowed}", .found.escape_debug())]
    Character {
        /// Byte offset of the character.
        at: usize,
        /// The character that is not allowed.
        found: char,
        /// Describes the allowed alphabet.
        allowed: &'static str,
    },
}

/// Longest name that an operator may assign, in bytes.
const LABEL: usize = 64;
/// Longest name that a peer may assign, in bytes.
const FOREIGN: usize = 256;
/// Longest name or URI of a thing that a server offers, in bytes.
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

/// Validates a name from the configuration; it appears in logs, metrics and prefixes.
fn label(text: &str) -> Result<(), NameError> {
    check(text, LABEL, "letters, digits, `_`, `-` and `.`", standard)
}

/// Validates a name from a peer: any printable text, since it is compared and never interpreted.
fn foreign(text: &str) -> Result<(), NameError> {
    check(text, FOREIGN, "printable characters", |c| !c.is_control())
}

/// Validates a name or URI of a thing that a server offers.
fn offered(text: &str) -> Result<(), NameError> {
    check(text, OFFERED, "printable characters", |c| !c.is_control())
}

/// The alphabet that the specification recommends for tool names.
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
name!(/** What a server offers, by the name or the URI it gives it. */ ItemName, offered);

/// Name of the self-test server, and prefix of all names reserved for the self-test. Patterns of the operator never
/// match it.
pub const RESERVED: &str = "portcullis-selftest";

impl ServerName {
    /// Whether this is the self-test server.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        *self.0 == *RESERVED
    }
}

impl ItemName {
    /// Whether the name has the alphabet and the length that the specification recommends.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        self.0.len() <= 128 && self.0.chars().all(standard)
    }
}

#[cfg(test)]
mod tests {
    use super::{ItemName, NameError, RuleId};

    #[test]
    fn a_control_character_is_reported_escaped() {
        let error = ItemName::parse("rm\u{1b}[2J").unwrap_err();
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
