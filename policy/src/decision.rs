//! What was decided, complete enough to explain.

use std::fmt;
use std::sync::Arc;

use crate::inspect::Finding;
use crate::name::RuleId;
use crate::offer::Kind;

/// Why a message may not pass. Closed: a new reason must be given a code and a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No rule allows it.
    NotGranted,
    /// A rule forbids it.
    Forbidden(RuleId),
    /// The condition of a rule could not be evaluated.
    ConditionError(RuleId),
    /// The server offers no such thing.
    Unknown(Kind),
    /// A detector found something in the definition.
    Definition(Finding),
}

impl Reason {
    /// Every code, for the documentation and its test.
    pub const CODES: [&str; 9] = [
        "not-granted",
        "forbidden",
        "condition-error",
        "unknown-tool",
        "unknown-prompt",
        "unknown-resource",
        "unknown-template",
        "method-not-granted",
        "definition",
    ];

    /// The stable code for clients, metrics and the audit log.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotGranted => "not-granted",
            Self::Forbidden(_) => "forbidden",
            Self::ConditionError(_) => "condition-error",
            Self::Unknown(Kind::Tool) => "unknown-tool",
            Self::Unknown(Kind::Prompt) => "unknown-prompt",
            Self::Unknown(Kind::Resource) => "unknown-resource",
            Self::Unknown(Kind::Template) => "unknown-template",
            Self::Unknown(Kind::Method) => "method-not-granted",
            Self::Definition(_) => "definition",
        }
    }

    /// The rule that decided, when one did.
    #[must_use]
    pub const fn rule(&self) -> Option<&RuleId> {
        match self {
            Self::Forbidden(rule) | Self::ConditionError(rule) => Some(rule),
            Self::NotGranted | Self::Unknown(_) | Self::Definition(_) => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A denial and how much of it the caller may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Why, for the record.
    pub reason: Reason,
    /// What the caller is told.
    pub told: Told,
}

/// What a caller learns of a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing: the thing looks as if it did not exist.
    Nothing,
    /// The rule, and whom to ask.
    Rule {
        /// The rule that decided; `None` when none allows the call.
        rule: Option<RuleId>,
        /// Whom to ask, as configured.
        contact: Option<Arc<str>>,
    },
}

/// The conclusion about one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub effect: Effect,
    /// Rules in audit mode that would have changed the effect.
    pub shadow: Vec<RuleId>,
    /// What the detectors saw, whether or not it mattered.
    pub findings: Vec<Finding>,
}

/// What to do with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Let it pass, on the strength of this rule.
    Allow(RuleId),
    /// Stop it.
    Deny(Denial),
}

/// Whether a rule or a detector acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It acts.
    #[default]
    Enforce,
    /// It is recorded what it would have done.
    Audit,
    /// It is ignored.
    Off,
}
