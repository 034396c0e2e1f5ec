//! Explains what each rule says about one request, and reviews the rules themselves. Decides nothing:
//! [`RuleSet::decide`] does, by the same rules.

use std::borrow::Cow;

use policy_core::subject::name::RuleId;
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::PrincipalSelector;

use crate::definition::offer::ItemKind;
use crate::rules::access::{Rule, RuleEffect, RuleSet};
use crate::rules::condition::{AccessRequest, ConditionOutcome};
use crate::rules::decision::{Mode, Reason};

/// What one rule says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleExplanation {
    /// Id of the rule.
    pub rule: RuleId,
    /// The effect of the rule.
    pub says: RuleEffect,
    /// Whether the rule is enforced, only audited, or off.
    pub mode: Mode,
    /// Whether the rule applies to the request.
    pub applies: Applicability,
}

/// Whether a rule applies to a request, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// The rule applies to the request.
    Yes,
    /// The rule applies with some arguments, which are not known yet.
    Depends,
    /// The rule would apply to a credential that has what this one lacks.
    Lacks(Reason),
    /// The condition of the rule does not hold.
    Fails,
    /// The condition of the rule could not be evaluated, for this reason: an `allow` does not grant, a `forbid` denies.
    Error(Box<str>),
    /// The rule is for other principals.
    Caller,
    /// The rule is for other servers.
    Server,
    /// The rule is for other tools, prompts, resources or methods.
    Thing,
    /// The rule is switched off.
    Off,
}

impl Applicability {
    /// Describes the value in a few words.
    #[must_use]
    pub fn note(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Error(why) => {
                return format!("its condition could not be evaluated: {why}").into();
            }
            Self::Yes => "applies",
            Self::Depends => "applies with some arguments",
            Self::Lacks(_) => "would apply with another credential",
            Self::Fails => "its condition does not hold",
            Self::Caller => "is for other callers",
            Self::Server => "is about other servers",
            Self::Thing => "is about other things",
            Self::Off => "is switched off",
        })
    }
}

/// A remark on one rule, for the author of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRemark {
    /// Id of the rule.
    pub rule: RuleId,
    /// Subject of the remark.
    pub what: RuleIssue,
}

/// Subject of a remark on a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleIssue {
    /// Another rule already has the same effect for everything that this one covers.
    Covered(RuleId),
    /// The rule grants access to more than can have been reviewed.
    Broad(&'static str),
    /// The rule names something of this kind that no server offers. Never reported for `*`.
    Idle(ItemKind, Box<str>),
    /// The rule forbids the contents of a folder of resources but not the folder itself; holds the missing pattern.
    Beside(Box<str>),
    /// The rule is not enforced.
    Inactive,
}

impl RuleIssue {
    /// A stable code for reports.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Covered(_) => "covered",
            Self::Broad(_) => "broad",
            Self::Idle(..) => "idle",
            Self::Beside(_) => "beside",
            Self::Inactive => "inactive",
        }
    }
}

impl RuleSet {
    /// Explains what each rule says about a request, in the order of the configuration.
    #[must_use]
    pub fn explain(&self, subject: AccessRequest<'_>) -> Vec<RuleExplanation> {
        let said = |rule: &Rule| RuleExplanation {
            rule: rule.id.clone(),
            says: rule.says,
            mode: rule.mode,
            applies: applies(rule, subject),
        };
        self.rules().iter().map(said).collect()
    }

    /// Reviews the rules. `offered` tells whether a server among these patterns offers what a pattern names; `None`
    /// if that is not known.
    #[must_use]
    pub fn review(
        &self,
        offered: impl Fn(&[Pattern], ItemKind, &Pattern) -> Option<bool>,
    ) -> Vec<RuleRemark> {
        let mut remarks = Vec::new();
        for (n, rule) in self.rules().iter().enumerate() {
            let mut note = |what| remarks.push(RuleRemark { rule: rule.id.clone(), what });
            if rule.mode != Mode::Enforce {
                note(RuleIssue::Inactive);
                continue;
            }
            // Of two equivalent rules, the later one is superfluous.
            let mut covering = self.around(rule).filter(|(m, other)| {
                *m != n && says_all_of(other, rule) && (*m < n || !says_all_of(rule, other))
            });
            if let Some((_, other)) = covering.next() {
                note(RuleIssue::Covered(other.id.clone()));
            }
            if let Some(what) = broad(rule) {
                note(RuleIssue::Broad(what));
            }
            if let Some(folder) = beside(rule) {
                note(RuleIssue::Beside(folder));
            }
            for kind in [ItemKind::Tool, ItemKind::Prompt] {
                let named = rule.things.of(kind).iter().filter(|pattern| pattern.as_str() != "*");
                for pattern in named {
                    if offered(&rule.servers, kind, pattern) == Some(false) {
                        note(RuleIssue::Idle(kind, pattern.as_str().into()));
                    }
                }
            }
        }
        remarks
    }
}

/// A folder whose contents a rule forbids while it leaves the folder itself readable.
fn beside(rule: &Rule) -> Option<Box<str>> {
    if rule.says != RuleEffect::Forbid {
        return None;
    }
    let patterns = &rule.things.resources;
    let folders = patterns.iter().filter_map(|pattern| pattern.as_str().strip_suffix("/*"));
    // A pattern that ends at the authority is not a folder, and one with a wildcard may not be.
    let mut folders = folders.filter(|folder| {
        let rest = folder.split_once("://").map_or(*folder, |(_, rest)| rest);
        rest.contains('/') && !folder.contains(['*', '?'])
    });
    let covered = |folder: &&str| patterns.iter().any(|pattern| pattern.matches(folder));
    folders.find(|folder| !covered(folder)).map(Into::into)
}

fn applies(rule: &Rule, subject: AccessRequest<'_>) -> Applicability {
    let AccessRequest { principal, server, kind, name, .. } = subject;
    if rule.mode == Mode::Off {
        return Applicability::Off;
    }
    if !rule.principals.iter().any(|who| who.is(principal)) {
        return Applicability::Caller;
    }
    if !rule.is_about(server) {
        return Applicability::Server;
    }
    if !rule.names(kind, name) {
        return Applicability::Thing;
    }
    match rule.outcome(subject) {
        Err(error) => Applicability::Error(error.to_string().into()),
        Ok(ConditionOutcome::Fails) => Applicability::Fails,
        Ok(ConditionOutcome::Holds | ConditionOutcome::Depends)
            if rule.says == RuleEffect::Allow && rule.lack(principal).is_some() =>
        {
            rule.lack(principal).map_or(Applicability::Yes, Applicability::Lacks)
        }
        Ok(ConditionOutcome::Holds) => Applicability::Yes,
        Ok(ConditionOutcome::Depends) => Applicability::Depends,
    }
}

/// Whether `wide` has the effect of `narrow` for everything that `narrow` covers.
fn says_all_of(wide: &Rule, narrow: &Rule) -> bool {
    wide.mode == Mode::Enforce
        && wide.says == narrow.says
        && (wide.requires_approval || !narrow.requires_approval)
        && wide.when.is_none()
        && wide.proof.is_none()
        && wide.scopes.iter().all(|scope| narrow.scopes.contains(scope))
        && wide.covers(narrow)
}

fn broad(rule: &Rule) -> Option<&'static str> {
    let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.as_str() == "*");
    let everyone = rule.principals.contains(&PrincipalSelector::Anyone);
    if rule.says != RuleEffect::Allow || rule.when.is_some() {
        return None;
    }
    if any(&rule.things.methods) {
        return Some("whatever method a server invents is let through");
    }
    match (any(&rule.things.tools), everyone, any(&rule.servers)) {
        (true, true, true) => Some("every caller may use every tool of every server"),
        (true, true, false) => Some("every caller may use every tool, those to come as well"),
        (true, false, true) => Some("every tool of every server, those to come as well"),
        (true, false, false) | (false, ..) => None,
    }
}

#[cfg(test)]
mod tests {
    use policy_core::subject::name::{GroupName, PrincipalId, ServerName};
    use policy_core::subject::principal::Principal;

    use super::{Applicability, RuleIssue};
    use crate::definition::offer::ItemKind;
    use crate::engine::config::{KnownNames, RawPolicy, compile};
    use crate::engine::pipeline::Policy;
    use crate::rules::access::RuleSet;
    use crate::rules::condition::{AccessRequest, KnownArguments};

    const RULES: &str = r#"{"rules": [
        {"id": "all", "effect": "allow", "principals": ["*"], "servers": ["files"], "tools": ["*"]},
        {"id": "reads", "effect": "allow", "principals": ["group:dev"], "servers": ["files"], "tools": ["read_*"]},
        {"id": "writes", "effect": "allow", "principals": ["group:ops"], "servers": ["mail"], "tools": ["send", "gone"]},
        {"id": "late", "effect": "forbid", "principals": ["*"], "servers": ["*"], "tools": ["send"],
         "when": "arguments.size() > 3"},
        {"id": "tried", "effect": "forbid", "principals": ["*"], "servers": ["*"], "tools": ["x"], "mode": "audit"},
        {"id": "inside", "effect": "forbid", "principals": ["*"], "servers": ["files"], "resources": ["file:///srv/secret/*"]},
        {"id": "both", "effect": "forbid", "principals": ["*"], "servers": ["mail"],
         "resources": ["file:///srv/secret", "file:///srv/secret/*", "https://example.com/*"]}
    ]}"#;

    fn policy() -> Policy {
        let raw: RawPolicy = serde_json::from_str(RULES).unwrap();
        let servers = ["files", "mail"].map(|name| ServerName::parse(name).unwrap());
        compile(
            raw,
            KnownNames { servers: &servers, unnamed: false, principals: &[], others: true },
        )
        .unwrap()
    }

    fn access(policy: &Policy) -> &RuleSet {
        policy.access()
    }

    #[test]
    fn each_rule_says_why_it_does_not_apply() {
        let policy = policy();
        let groups = [GroupName::parse("ops").unwrap()].into();
        let principal = Principal::new(PrincipalId::parse("bob").unwrap(), groups);
        let server = ServerName::parse("mail").unwrap();
        let subject = AccessRequest {
            principal: &principal,
            server: &server,
            kind: ItemKind::Tool,
            name: "send",
            arguments: KnownArguments::Unknown,
            known: None,
            flow: None,
        };
        let said = access(&policy).explain(subject);
        let said: Vec<_> = said.iter().map(|said| (said.rule.as_str(), &said.applies)).collect();
        assert_eq!(
            said,
            [
                ("all", &Applicability::Server),
                ("reads", &Applicability::Caller),
                ("writes", &Applicability::Yes),
                ("late", &Applicability::Depends),
                ("tried", &Applicability::Thing),
                ("inside", &Applicability::Server),
                ("both", &Applicability::Thing),
            ]
        );
    }

    #[test]
    fn a_reviewer_sees_what_is_superfluous_broad_and_idle() {
        let remarks = access(&policy()).review(|_, _, pattern| Some(pattern.as_str() != "gone"));
        let remarks: Vec<_> =
            remarks.iter().map(|remark| (remark.rule.as_str(), remark.what.code())).collect();
        assert_eq!(
            remarks,
            [
                ("all", "broad"),
                ("reads", "covered"),
                ("writes", "idle"),
                ("tried", "inactive"),
                ("inside", "beside"),
            ]
        );
        let nothing = access(&policy()).review(|_, _, _| None);
        assert!(!nothing.iter().any(|remark| matches!(remark.what, RuleIssue::Idle(..))));
    }
}
