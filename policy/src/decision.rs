//! What was decided, complete enough to explain.

use std::fmt;
use std::sync::Arc;

use crate::control::Ran;
use crate::inspect::Finding;
pub use crate::mode::{Denials, Mode};
use crate::name::{RuleId, Scope};
use crate::offer::Kind;
use crate::pin::Digest;
use crate::pins::Unfit;
use crate::principal::Wanted;
use crate::uri::UriError;

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
    /// It could be taken for something of another server.
    Shadowed(Finding),
    /// A rule allows it to a caller whose credential has these scopes.
    Scope(RuleId, Arc<[Scope]>),
    /// A rule allows it to a caller who proves that the credential is its own.
    Proof(RuleId, Wanted),
    /// It was revoked, or the caller was.
    Revoked,
    /// The arguments are not as the definition or the policy says.
    Arguments(Finding),
    /// A detector found something in what is sent.
    Content(Finding),
    /// Its definition is not one that was approved.
    Pin(Unfit),
    /// A person has to approve each call, and there is nobody to ask.
    Approval,
    /// Its URI has no canonical form, so no rule can speak of it.
    Uri(UriError),
}

impl Reason {
    /// Every code, for the documentation and its test.
    pub const CODES: [&str; 25] = [
        "not-granted",
        "forbidden",
        "condition-error",
        "unknown-tool",
        "unknown-prompt",
        "unknown-resource",
        "unknown-template",
        "method-not-granted",
        "definition",
        "shadowed",
        "approval-required",
        "insufficient-scope",
        "proof-required",
        "revoked",
        "content",
        "arguments",
        "uri",
        Unfit::CODES[0],
        Unfit::CODES[1],
        Unfit::CODES[2],
        Unfit::CODES[3],
        Unfit::CODES[4],
        Unfit::CODES[5],
        Unfit::CODES[6],
        Unfit::CODES[7],
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
            Self::Shadowed(_) => "shadowed",
            Self::Scope(..) => "insufficient-scope",
            Self::Proof(..) => "proof-required",
            Self::Revoked => "revoked",
            Self::Content(_) => "content",
            Self::Arguments(_) => "arguments",
            Self::Pin(unfit) => unfit.code(),
            Self::Approval => "approval-required",
            Self::Uri(_) => "uri",
        }
    }

    /// The rule that decided, when one did.
    #[must_use]
    pub const fn rule(&self) -> Option<&RuleId> {
        match self {
            Self::Forbidden(rule)
            | Self::ConditionError(rule)
            | Self::Scope(rule, _)
            | Self::Proof(rule, _) => Some(rule),
            Self::NotGranted
            | Self::Unknown(_)
            | Self::Definition(_)
            | Self::Shadowed(_)
            | Self::Revoked
            | Self::Content(_)
            | Self::Arguments(_)
            | Self::Pin(_)
            | Self::Approval
            | Self::Uri(_) => None,
        }
    }

    /// Whether the caller may have it with a better credential: it is shown, and told what is
    /// missing.
    #[must_use]
    pub const fn is_step_up(&self) -> bool {
        matches!(self, Self::Scope(..) | Self::Proof(..))
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
    /// The digest of the definition it is about, where there is one.
    pub definition: Option<Digest>,
    /// The controls that were asked.
    pub ran: Ran,
}

impl Decision {
    /// One of which nothing else is to be said.
    #[must_use]
    pub fn of(effect: Effect) -> Self {
        let (shadow, findings, ran) = (Vec::new(), Vec::new(), Ran::default());
        Self { effect, shadow, findings, definition: None, ran }
    }

    /// Whether what was decided about is shown to the caller.
    #[must_use]
    pub const fn shows(&self) -> bool {
        match &self.effect {
            Effect::Allow(_) => true,
            Effect::Deny(denial) => denial.reason.is_step_up(),
        }
    }
}

/// What to do with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Let it pass, on the strength of this rule.
    Allow(RuleId),
    /// Stop it.
    Deny(Denial),
}
