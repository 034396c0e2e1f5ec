//! Decisions about messages, with enough detail to explain them.

use std::fmt;
use std::sync::Arc;

use detection::inspect::Finding;
pub use policy_core::subject::mode::{DenialFormat, Mode};
use policy_core::subject::name::{RuleId, Scope};
use policy_core::subject::principal::RequiredProof;
use policy_core::subject::uri::UriError;

use crate::definition::offer::ItemKind;
use crate::definition::pin::Digest;
use crate::definition::pins::PinViolation;
use crate::flow::guard::{FlowClause, FlowViolation};
use crate::rules::approval::ApprovalDemand;
use crate::rules::apps::AppViolation;
use crate::rules::control::ControlSet;

/// Why a message is denied. Closed: a new reason needs a code and an entry in `docs/reasons.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No rule allows the request.
    NotGranted,
    /// A rule forbids the request.
    Forbidden(RuleId),
    /// The condition of a rule could not be evaluated.
    ConditionError(RuleId, ConditionFault),
    /// The server offers no such thing.
    Unknown(ItemKind),
    /// A resource has the scheme of skills, and no manifest of a skill that the caller may use names it.
    SkillFile,
    /// A detector found something in the definition.
    Definition(Finding),
    /// The definition can be mistaken for one of another server.
    Shadowed(Finding),
    /// A rule allows the request for a credential with these scopes.
    Scope(RuleId, Arc<[Scope]>),
    /// A rule allows the request with this proof of possession.
    Proof(RuleId, RequiredProof),
    /// The thing or the caller was revoked.
    Revoked,
    /// The arguments violate the input schema or a constraint.
    Arguments(Finding),
    /// A detector found something in the arguments.
    Content(Finding),
    /// The definition is not an approved one.
    Pin(PinViolation),
    /// The call is permitted, and needs the approval of a person.
    Approval(Box<ApprovalDemand>),
    /// The URI has no canonical form, so no rule can apply to it.
    Uri(UriError),
    /// Flow control refuses the call in this flow.
    Flow(FlowViolation),
    /// The tool is a decoy.
    Decoy,
    /// The resource is an app that its server may not show.
    App(AppViolation),
    /// The subscription would have the server send events to an address past the gateway.
    EventWebhook,
}

/// What is known about a condition that could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionFault {
    /// What has to be corrected.
    pub remedy: ConditionRemedy,
    /// The member that the request lacks, by the name that the condition itself writes; `None` if the reason is another
    /// one, or if the caller chose the name.
    pub missing: Option<Arc<str>>,
}

/// What has to be corrected before a condition can be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionRemedy {
    /// The arguments: with other ones the condition can be true or false.
    Arguments,
    /// The rule: it reads no argument, or its value need not be true or false.
    Rule,
}

/// Writes `CODES` and `code` of an enum from one table, so that a variant without a code does not compile and a code
/// cannot be missing from `CODES`.
macro_rules! coded {
    ($this:ident, $doc:literal, $($variant:pat => $code:expr,)+) => {
        /// Every code, in the order of the table.
        pub const CODES: [&'static str; [$($code),+].len()] = [$($code),+];

        #[doc = $doc]
        #[must_use]
        pub const fn code(&$this) -> &'static str {
            match $this {
                $($variant => $code,)+
            }
        }
    };
}

impl Reason {
    coded! {
        self, "The stable code for clients, metrics and the audit log.",
        Self::NotGranted => "not-granted",
        Self::Forbidden(_) => "forbidden",
        Self::ConditionError(..) => "condition-error",
        Self::Unknown(ItemKind::Tool) => "unknown-tool",
        Self::Unknown(ItemKind::Prompt) => "unknown-prompt",
        Self::Unknown(ItemKind::Resource) => "unknown-resource",
        Self::Unknown(ItemKind::Template) => "unknown-template",
        Self::Unknown(ItemKind::Skill) => "unknown-skill",
        Self::SkillFile => "skill-file-unknown",
        Self::Unknown(ItemKind::Method) => "method-not-granted",
        Self::Definition(_) => "definition-finding",
        Self::Shadowed(_) => "shadowed",
        Self::Approval(_) => "approval-required",
        Self::Scope(..) => "insufficient-scope",
        Self::Proof(..) => "proof-required",
        Self::Revoked => "revoked",
        Self::Content(_) => "content",
        Self::Arguments(_) => "arguments",
        Self::Uri(_) => "non-canonical-uri",
        Self::Decoy => "decoy",
        Self::App(_) => "app-not-allowed",
        Self::EventWebhook => "event-webhook",
        Self::Flow(FlowViolation { clause: FlowClause::Target, .. }) => FlowClause::Target.code(),
        Self::Flow(FlowViolation { clause: FlowClause::Value, .. }) => FlowClause::Value.code(),
        Self::Flow(FlowViolation { clause: FlowClause::Confidential, .. }) => FlowClause::Confidential.code(),
        Self::Flow(FlowViolation { clause: FlowClause::Destructive, .. }) => FlowClause::Destructive.code(),
        Self::Flow(FlowViolation { clause: FlowClause::Planner, .. }) => FlowClause::Planner.code(),
        Self::Pin(PinViolation::NotApproved) => PinViolation::NotApproved.code(),
        Self::Pin(PinViolation::Changed) => PinViolation::Changed.code(),
        Self::Pin(PinViolation::Revoked) => PinViolation::Revoked.code(),
        Self::Pin(PinViolation::Unpinnable) => PinViolation::Unpinnable.code(),
        Self::Pin(PinViolation::Removed) => PinViolation::Removed.code(),
        Self::Pin(PinViolation::Inconsistent) => PinViolation::Inconsistent.code(),
        Self::Pin(PinViolation::Quarantined) => PinViolation::Quarantined.code(),
        Self::Pin(PinViolation::Identity) => PinViolation::Identity.code(),
        Self::Pin(PinViolation::Unevaluated) => PinViolation::Unevaluated.code(),
        Self::Pin(PinViolation::EvaluationFailed) => PinViolation::EvaluationFailed.code(),
    }

    /// The rule that decided, if one did.
    #[must_use]
    pub fn rule(&self) -> Option<&RuleId> {
        match self {
            Self::Approval(demand) => Some(&demand.rule),
            Self::Forbidden(rule)
            | Self::ConditionError(rule, _)
            | Self::Scope(rule, _)
            | Self::Proof(rule, _) => Some(rule),
            Self::NotGranted
            | Self::Unknown(_)
            | Self::SkillFile
            | Self::Definition(_)
            | Self::Shadowed(_)
            | Self::Revoked
            | Self::Content(_)
            | Self::Arguments(_)
            | Self::Pin(_)
            | Self::Flow(_)
            | Self::Decoy
            | Self::App(_)
            | Self::EventWebhook
            | Self::Uri(_) => None,
        }
    }

    /// The member that the condition of the rule reads and that the request lacks, if that is the reason.
    #[must_use]
    pub fn missing(&self) -> Option<&str> {
        match self {
            Self::ConditionError(_, fault) => fault.missing.as_deref(),
            Self::NotGranted
            | Self::Forbidden(_)
            | Self::Unknown(_)
            | Self::SkillFile
            | Self::Definition(_)
            | Self::Shadowed(_)
            | Self::Scope(..)
            | Self::Proof(..)
            | Self::Revoked
            | Self::Arguments(_)
            | Self::Content(_)
            | Self::Pin(_)
            | Self::Approval(_)
            | Self::Flow(_)
            | Self::Decoy
            | Self::App(_)
            | Self::EventWebhook
            | Self::Uri(_) => None,
        }
    }

    /// Whether a better credential would grant access. The thing is then listed, and the denial says what is missing.
    #[must_use]
    pub const fn is_step_up(&self) -> bool {
        match self {
            Self::Scope(..) | Self::Proof(..) => true,
            Self::NotGranted
            | Self::Forbidden(_)
            | Self::ConditionError(..)
            | Self::Unknown(_)
            | Self::SkillFile
            | Self::Definition(_)
            | Self::Shadowed(_)
            | Self::Revoked
            | Self::Arguments(_)
            | Self::Content(_)
            | Self::Pin(_)
            | Self::Approval(_)
            | Self::Flow(_)
            | Self::Decoy
            | Self::App(_)
            | Self::EventWebhook
            | Self::Uri(_) => false,
        }
    }

    /// Whether the arguments themselves are refused: other ones can be allowed.
    #[must_use]
    pub const fn is_about_arguments(&self) -> bool {
        match self {
            Self::Arguments(_) | Self::Content(_) => true,
            Self::NotGranted
            | Self::Forbidden(_)
            | Self::ConditionError(..)
            | Self::Unknown(_)
            | Self::SkillFile
            | Self::Definition(_)
            | Self::Shadowed(_)
            | Self::Scope(..)
            | Self::Proof(..)
            | Self::Revoked
            | Self::Pin(_)
            | Self::Approval(_)
            | Self::Flow(_)
            | Self::Decoy
            | Self::App(_)
            | Self::EventWebhook
            | Self::Uri(_) => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A denial, and how much of it is disclosed to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The reason, for the audit record.
    pub reason: Reason,
    /// What is disclosed to the caller.
    pub told: Disclosure,
}

/// What a denial discloses to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disclosure {
    /// Nothing: the thing appears not to exist.
    Nothing,
    /// The rule and its contact.
    Rule {
        /// The rule that decided; `None` if no rule allows the call.
        rule: Option<RuleId>,
        /// The contact, as configured.
        contact: Option<Arc<str>>,
    },
}

/// The policy's decision about one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the message is allowed.
    pub effect: Effect,
    /// Rules in audit mode that would have changed the effect.
    pub shadow: Vec<RuleId>,
    /// Findings of the detectors, including those without influence on the effect.
    pub findings: Vec<Finding>,
    /// Digest of the definition concerned, if there is one.
    pub definition: Option<Digest>,
    /// The controls that ran for this decision.
    pub ran: ControlSet,
}

impl Decision {
    /// A decision with this effect and nothing else.
    #[must_use]
    pub fn of(effect: Effect) -> Self {
        let (shadow, findings, ran) = (Vec::new(), Vec::new(), ControlSet::default());
        Self { effect, shadow, findings, definition: None, ran }
    }

    /// Whether the thing decided about is listed to the caller.
    #[must_use]
    pub const fn shows(&self) -> bool {
        match &self.effect {
            Effect::Allow(_) => true,
            Effect::Deny(denial) => denial.reason.is_step_up(),
        }
    }
}

/// Whether a message is allowed or denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The message is allowed by this rule.
    Allow(RuleId),
    /// The message is denied.
    Deny(Denial),
}
