//! What asks for the approval of a person, and the state that an approval is bound to.

use policy_core::subject::name::RuleId;

use crate::definition::pin::Digest;
use crate::flow::guard::{FlowViolation, Origin};
use crate::flow::label::FlowLabels;

/// What in the policy asks for the approval of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalCause {
    /// The rule that allows the call has `requireApproval`.
    Rule,
    /// The registry has `approvalRequired` for the tool.
    Registry,
    /// Flow control asks (`mode: ask`) where it would refuse.
    Flow(FlowViolation),
}

impl ApprovalCause {
    /// The name in questions.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Registry => "registry",
            Self::Flow(violation) => violation.clause.code(),
        }
    }
}

/// The approval that a call needs: it is permitted otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalDemand {
    /// The rule that allows the call.
    pub rule: RuleId,
    /// What asks for the approval; never empty.
    pub causes: Vec<ApprovalCause>,
    /// The digest of the definition of the tool.
    pub definition: Option<Digest>,
    /// The labels of the flow before the call.
    pub labels: FlowLabels,
    /// Where the values of each argument came from, as far as the flow knows.
    pub origins: Vec<(Box<str>, Origin)>,
}

impl ApprovalDemand {
    /// Whether an approval of `self` approves `other` as well: the same rule asks for the same reasons, of the same
    /// definition, in a flow with the same labels. The origins only explain the question.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.rule == other.rule
            && self.causes == other.causes
            && self.definition == other.definition
            && self.labels == other.labels
    }

    /// Whether an approval of `self`, with which a call was made, lets `other` continue that call. The labels of the flow
    /// may have grown by the call itself.
    #[must_use]
    pub fn continues_as(&self, other: &Self) -> bool {
        self.rule == other.rule
            && self.causes == other.causes
            && self.definition == other.definition
    }

    /// Why flow control asks, if it does.
    #[must_use]
    pub fn violation(&self) -> Option<&FlowViolation> {
        self.causes.iter().find_map(|cause| match cause {
            ApprovalCause::Flow(violation) => Some(violation),
            ApprovalCause::Rule | ApprovalCause::Registry => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use policy_core::subject::name::RuleId;

    use super::{ApprovalCause, ApprovalDemand};
    use crate::definition::offer::ItemKind;
    use crate::definition::pin::{Digest, DigestSubject};
    use crate::flow::guard::{FlowClause, FlowViolation, Origin};
    use crate::flow::label::{FlowLabels, Sink};

    fn digest(name: &str) -> Digest {
        Digest::of_texts(DigestSubject::Offer(ItemKind::Tool), &[("name", name)])
    }

    #[test]
    fn an_approval_covers_nothing_that_has_changed_since() {
        let demand = || ApprovalDemand {
            rule: RuleId::parse("writes").unwrap(),
            causes: vec![ApprovalCause::Rule],
            definition: Some(digest("a")),
            labels: FlowLabels::default(),
            origins: vec![("to".into(), Origin::Unknown)],
        };
        let violation = FlowViolation {
            clause: FlowClause::Target,
            at: "/to".to_owned(),
            sink: Sink::External,
        };
        assert!(demand().covers(&ApprovalDemand { origins: Vec::new(), ..demand() }));
        for changed in [
            ApprovalDemand { rule: RuleId::parse("other").unwrap(), ..demand() },
            ApprovalDemand { causes: vec![ApprovalCause::Flow(violation)], ..demand() },
            ApprovalDemand { definition: Some(digest("b")), ..demand() },
            ApprovalDemand { definition: None, ..demand() },
            ApprovalDemand { labels: FlowLabels::STRICTEST, ..demand() },
        ] {
            assert!(!demand().covers(&changed), "{changed:?}");
        }
    }
}
