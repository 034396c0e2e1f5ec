//! Evaluates the access rules. A `forbid` overrides every `allow`; without an `allow`, access is denied.

mod index;

use std::borrow::Cow;
use std::sync::Arc;

use policy_core::subject::name::{RuleId, Scope, ServerName};
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::{Principal, PrincipalSelector, RequiredProof};
use policy_core::subject::uri;

use crate::definition::offer::ItemKind;
use crate::rules::condition::{AccessRequest, Condition, ConditionOutcome, EvaluationError};
use crate::rules::control::{Control, ControlSet};
use crate::rules::decision::{
    ConditionFault, ConditionRemedy, Decision, Denial, Disclosure, Effect, Mode, Reason,
};

use index::RuleIndex;

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RuleEffect {
    /// Allows access, unless another rule forbids it.
    Allow,
    /// Forbids access, even where other rules allow it.
    Forbid,
}

/// The patterns of a rule, by kind. An empty list matches nothing of that kind.
#[derive(Debug, Default)]
pub struct ItemPatterns {
    /// Patterns over tool names.
    pub tools: Vec<Pattern>,
    /// Patterns over prompt names.
    pub prompts: Vec<Pattern>,
    /// Patterns over resource URIs and over the text of resource templates.
    pub resources: Vec<Pattern>,
    /// Patterns over the URIs of skills.
    pub skills: Vec<Pattern>,
    /// Patterns over methods, notifications and extensions that this gateway does not know.
    pub methods: Vec<Pattern>,
}

impl ItemPatterns {
    /// The patterns for one kind.
    #[must_use]
    pub fn of(&self, kind: ItemKind) -> &[Pattern] {
        match kind {
            ItemKind::Tool => &self.tools,
            ItemKind::Prompt => &self.prompts,
            ItemKind::Resource | ItemKind::Template => &self.resources,
            ItemKind::Skill => &self.skills,
            ItemKind::Method => &self.methods,
        }
    }

    /// Whether these patterns match everything that `other` matches.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        ItemKind::RULED.into_iter().all(|kind| {
            let wide = self.of(kind);
            other.of(kind).iter().all(|narrow| wide.iter().any(|wide| wide.covers(narrow)))
        })
    }
}

/// One rule of the policy.
#[derive(Debug)]
pub struct Rule {
    /// Id of the rule, unique in the policy.
    pub id: RuleId,
    /// Whether the rule allows or forbids.
    pub says: RuleEffect,
    /// Principals the rule applies to: any that one of these selects. Empty: none.
    pub principals: Vec<PrincipalSelector>,
    /// Servers the rule applies to. Empty: none.
    pub servers: Vec<Pattern>,
    /// Tools, prompts, resources, skills and methods the rule applies to. Empty: none.
    pub things: ItemPatterns,
    /// For an `allow`: scopes of which the credential must have every one.
    pub scopes: Arc<[Scope]>,
    /// For an `allow`: the proof of possession that the caller's credential must have. `None`: none required.
    pub proof: Option<RequiredProof>,
    /// Condition under which the rule applies. `None`: always.
    pub when: Option<Condition>,
    /// Whether the rule is enforced, only audited, or off.
    pub mode: Mode,
    /// Whether a caller denied by this rule is told so. If not, the thing appears not to exist.
    pub disclose: bool,
    /// Contact named to a denied caller.
    pub contact: Option<Arc<str>>,
    /// For an `allow`: whether a person has to approve each call that it permits.
    pub requires_approval: bool,
}

impl Rule {
    fn speaks_of(&self, principal: &Principal, server: &ServerName) -> bool {
        self.principals.iter().any(|who| who.is(principal)) && self.is_about(server)
    }

    /// Whether the rule applies to `server`. The self-test server has to be named literally; patterns never match it.
    pub(crate) fn is_about(&self, server: &ServerName) -> bool {
        server.is_among(&self.servers)
    }

    /// Whether the rule applies to `subject`, apart from its condition. The name is compared first because it
    /// excludes most rules.
    fn concerns(&self, subject: AccessRequest<'_>) -> bool {
        self.mode != Mode::Off
            && self.names(subject.kind, subject.name)
            && self.speaks_of(subject.principal, subject.server)
    }

    /// Whether the rule names the thing. A `forbid` of a resource matches every URI form that servers may treat as
    /// the same resource: with a query, with a trailing slash.
    pub(crate) fn names(&self, kind: ItemKind, name: &str) -> bool {
        let patterns = self.things.of(kind);
        let any = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        if any(name) {
            return true;
        }
        let is_uri = matches!(kind, ItemKind::Resource | ItemKind::Template | ItemKind::Skill);
        is_uri
            && self.says == RuleEffect::Forbid
            && !patterns.is_empty()
            && uri::related(name).any(|form| any(&form))
    }

    /// Whether this rule applies to everything that `other` applies to, apart from conditions and credentials.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let patterns = |wide: &[Pattern], narrow: &[Pattern]| {
            narrow.iter().all(|narrow| wide.iter().any(|wide| wide.covers(narrow)))
        };
        let who =
            |narrow: &PrincipalSelector| self.principals.iter().any(|wide| wide.covers(narrow));
        other.principals.iter().all(who)
            && patterns(&self.servers, &other.servers)
            && self.things.covers(&other.things)
    }

    /// What the credential of `principal` lacks for this `allow` to grant access; `None` if nothing.
    pub(crate) fn lack(&self, principal: &Principal) -> Option<Reason> {
        let claims = &principal.claims;
        if !self.scopes.iter().all(|scope| claims.scopes.contains(scope)) {
            return Some(Reason::Scope(self.id.clone(), Arc::clone(&self.scopes)));
        }
        let wanted = self.proof.filter(|wanted| !wanted.is_met_by(claims.proof))?;
        Some(Reason::Proof(self.id.clone(), wanted))
    }

    /// Evaluates the condition of the rule; a rule without one holds.
    pub(crate) fn outcome(
        &self,
        subject: AccessRequest<'_>,
    ) -> Result<ConditionOutcome, EvaluationError> {
        self.when.as_ref().map_or(Ok(ConditionOutcome::Holds), |when| when.evaluate(subject))
    }

    /// The reason for a denial because the condition of the rule could not be evaluated.
    fn condition_error(&self, error: &EvaluationError) -> Reason {
        let other = || ConditionFault { remedy: ConditionRemedy::Rule, missing: None };
        let fault = self.when.as_ref().map_or_else(other, |when| when.fault(error));
        Reason::ConditionError(self.id.clone(), fault)
    }
}

/// The compiled access rules, with an index over them.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    index: RuleIndex,
    /// Whether some rule requires approvals.
    requires_approvals: bool,
}

impl RuleSet {
    /// Compiles the rules; their order has no meaning. Without any rule, everything is denied.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut index = RuleIndex::default();
        for (place, rule) in rules.iter().enumerate() {
            index.add(place, &rule.principals, |kind| rule.things.of(kind));
        }
        let requires_approvals = rules.iter().any(|rule| rule.requires_approval);
        Self { rules, index, requires_approvals }
    }

    /// Whether some rule requires the approval of a person.
    #[must_use]
    pub const fn requires_approvals(&self) -> bool {
        self.requires_approvals
    }

    /// The rules, in the order of the configuration.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// An enforced rule that could allow `principal` something of `kind` on `server`, if there is one.
    #[must_use]
    pub fn could_allow(
        &self,
        principal: &Principal,
        server: &ServerName,
        kind: ItemKind,
    ) -> Option<&RuleId> {
        let allows = |rule: &&Rule| {
            rule.says == RuleEffect::Allow
                && rule.mode == Mode::Enforce
                && !rule.things.of(kind).is_empty()
                && rule.speaks_of(principal, server)
        };
        let places = self.index.of_kind(principal, kind);
        self.at(&places).find(allows).map(|rule| &rule.id)
    }

    /// Whether an enforced rule allows this thing to some caller. Conditions, credential requirements and `forbid`
    /// rules are not considered. Scans all rules: for policy reports, not for the request path.
    #[must_use]
    pub fn allows_anybody(&self, server: &ServerName, kind: ItemKind, name: &str) -> bool {
        self.rules.iter().any(|rule| {
            rule.says == RuleEffect::Allow
                && rule.mode == Mode::Enforce
                && !rule.principals.is_empty()
                && rule.is_about(server)
                && rule.names(kind, name)
        })
    }

    /// The first enforced `forbid` rule without a condition that names this thing, whoever it is for: an `allow` would
    /// not change anything for those callers. Scans all rules: for policy reports, not for the request path.
    #[must_use]
    pub fn forbids_by_name(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> Option<&RuleId> {
        let forbids = |rule: &&Rule| {
            rule.says == RuleEffect::Forbid
                && rule.mode == Mode::Enforce
                && rule.when.is_none()
                && !rule.principals.is_empty()
                && rule.is_about(server)
                && rule.names(kind, name)
        };
        self.rules.iter().find(forbids).map(|rule| &rule.id)
    }

    /// The effect if it is the same for all arguments, which are not known here, with whether a person has to approve the
    /// call; `None` if it depends on them.
    #[must_use]
    pub fn decide_anyway(&self, subject: AccessRequest<'_>) -> Option<AnywayDecision> {
        // The most permissive outcome that arguments can lead to, and the least permissive.
        let best = self.decide(subject);
        let mut worst = OutcomeTally::default();
        for rule in self.at(&self.candidates(subject)).filter(|rule| rule.concerns(subject)) {
            let outcome = match (rule.outcome(subject), rule.says) {
                (Ok(ConditionOutcome::Depends), RuleEffect::Forbid) => Ok(ConditionOutcome::Holds),
                (Ok(ConditionOutcome::Depends), RuleEffect::Allow) => Ok(ConditionOutcome::Fails),
                (outcome @ (Ok(ConditionOutcome::Holds | ConditionOutcome::Fails) | Err(_)), _) => {
                    outcome
                }
            };
            worst.count(rule, outcome, subject.principal);
        }
        let needs_approval = best.needs_approval;
        let asks_in_any_case = worst.granted().is_some_and(|rule| rule.requires_approval);
        match (best.decision.effect, worst.conclude(subject.kind).effect) {
            (Effect::Allow(_), Effect::Deny(_)) => None,
            (Effect::Allow(_), Effect::Allow(_)) if needs_approval != asks_in_any_case => None,
            (effect, _) => Some(AnywayDecision { effect, needs_approval }),
        }
    }

    /// Decides about a subject. If its arguments are unknown, allows it if some arguments would be allowed.
    #[must_use]
    pub fn decide(&self, subject: AccessRequest<'_>) -> AccessDecision {
        let mut tally = OutcomeTally::default();
        for rule in self.at(&self.candidates(subject)).filter(|rule| rule.concerns(subject)) {
            tally.count(rule, rule.outcome(subject), subject.principal);
        }
        let for_any_arguments = !tally.depends;
        let contact = tally.denied.as_ref().and_then(|(rule, _)| rule.contact.clone());
        let needs_approval = tally.granted().is_some_and(|rule| rule.requires_approval);
        let decision = tally.conclude(subject.kind);
        AccessDecision { decision, for_any_arguments, contact, needs_approval }
    }

    /// Pairs of an `allow` and an unconditional `forbid` that covers it, as positions in the configuration.
    pub(crate) fn void(&self) -> Vec<(usize, usize)> {
        let acts = |rule: &Rule, says: RuleEffect| rule.says == says && rule.mode == Mode::Enforce;
        let allows =
            self.rules.iter().enumerate().filter(|(_, rule)| acts(rule, RuleEffect::Allow));
        let voided = |(n, allow): (usize, &Rule)| {
            let voids = |(_, rule): &(usize, &Rule)| {
                acts(rule, RuleEffect::Forbid) && rule.when.is_none() && rule.covers(allow)
            };
            self.around(allow).find(voids).map(|(m, _)| (n, m))
        };
        allows.filter_map(voided).collect()
    }

    /// Every rule that can apply to everything that `narrow` applies to, with its position; in order.
    pub(crate) fn around(&self, narrow: &Rule) -> impl Iterator<Item = (usize, &Rule)> {
        let first = |kind| narrow.things.of(kind).first().map(|pattern| (kind, pattern));
        let named = ItemKind::RULED.into_iter().find_map(first);
        let places = match (narrow.principals.first(), named) {
            (Some(who), Some((kind, pattern))) => self.index.around(who, kind, pattern),
            // A rule that matches nothing is covered by every rule.
            (None, _) | (_, None) => (0..self.rules.len()).collect(),
        };
        places
            .into_owned()
            .into_iter()
            .filter_map(move |place| Some((place, self.rules.get(place)?)))
    }

    /// Positions of all rules that can concern `subject`; in order.
    fn candidates(&self, subject: AccessRequest<'_>) -> Cow<'_, [usize]> {
        let AccessRequest { principal, kind, name, .. } = subject;
        if matches!(kind, ItemKind::Resource | ItemKind::Template | ItemKind::Skill) {
            // A `forbid` also matches every form that servers may treat as the same URI; the first form is the name
            // itself.
            return self.index.about(principal, kind, uri::related(name));
        }
        self.index.about(principal, kind, [name])
    }

    fn at(&self, places: &[usize]) -> impl Iterator<Item = &Rule> {
        places.iter().filter_map(move |place| self.rules.get(*place))
    }
}

/// What the rules say of a request with any arguments.
#[derive(Clone, Debug)]
pub struct AnywayDecision {
    /// The effect.
    pub effect: Effect,
    /// Whether a person has to approve what is allowed.
    pub needs_approval: bool,
}

impl AnywayDecision {
    /// A request that is denied.
    #[must_use]
    pub const fn denied(denial: Denial) -> Self {
        Self { effect: Effect::Deny(denial), needs_approval: false }
    }
}

/// The result of evaluating the rules.
#[derive(Debug)]
pub struct AccessDecision {
    /// The decision of the rules.
    pub decision: Decision,
    /// Whether the decision is the same for all arguments.
    pub for_any_arguments: bool,
    /// Contact of the rule that denied, if one did and has a contact.
    pub contact: Option<Arc<str>>,
    /// Whether a rule that allows requires the approval of a person.
    pub needs_approval: bool,
}

/// Accumulates the outcomes of the rules.
#[derive(Default)]
struct OutcomeTally<'a> {
    granted: Option<&'a Rule>,
    /// An `allow` with an approval whose condition could not be evaluated. It grants nothing, but what another one grants
    /// needs its approval.
    undecided: Option<&'a Rule>,
    denied: Option<(&'a Rule, Reason)>,
    /// What the credential lacks for an `allow` that would otherwise grant.
    lacks: Option<Reason>,
    /// The reason for a denial because the condition of an `allow` could not be evaluated. It never overrules a grant.
    failed: Option<Reason>,
    would_grant: Vec<&'a Rule>,
    would_deny: Vec<&'a Rule>,
    /// Whether the condition of some rule depends on the unknown arguments.
    depends: bool,
    /// Whether any rule is for the caller and names the thing.
    is_named: bool,
}

impl<'a> OutcomeTally<'a> {
    fn count(
        &mut self,
        rule: &'a Rule,
        outcome: Result<ConditionOutcome, EvaluationError>,
        principal: &Principal,
    ) {
        self.is_named = true;
        let audit = rule.mode == Mode::Audit;
        let lack = || if rule.says == RuleEffect::Allow { rule.lack(principal) } else { None };
        self.depends |= matches!(outcome, Ok(ConditionOutcome::Depends));
        match (rule.says, outcome) {
            (_, Ok(ConditionOutcome::Fails))
            | (RuleEffect::Forbid, Ok(ConditionOutcome::Depends)) => {}
            (RuleEffect::Allow, Err(error)) => {
                self.failed.get_or_insert_with(|| rule.condition_error(&error));
                if rule.requires_approval && !audit && lack().is_none() {
                    self.undecided.get_or_insert(rule);
                }
            }
            (RuleEffect::Allow, Ok(ConditionOutcome::Holds | ConditionOutcome::Depends)) => {
                match (lack(), audit) {
                    (None, true) => self.would_grant.push(rule),
                    (None, false) => self.grant(rule),
                    (Some(_), true) => {}
                    // The first rule is reported, so that equal calls get equal answers.
                    (lack @ Some(_), false) => self.lacks = self.lacks.take().or(lack),
                }
            }
            (RuleEffect::Forbid, Ok(ConditionOutcome::Holds) | Err(_)) if audit => {
                self.would_deny.push(rule)
            }
            (RuleEffect::Forbid, Ok(ConditionOutcome::Holds)) => {
                self.deny(rule, Reason::Forbidden(rule.id.clone()))
            }
            (RuleEffect::Forbid, Err(error)) => {
                self.deny(rule, rule.condition_error(&error));
            }
        }
    }

    /// Keeps the first rule that allows, unless it asks for no approval and this one does: a wider `allow` does not take
    /// an approval away.
    fn grant(&mut self, rule: &'a Rule) {
        let stricter = |held: &Rule| !held.requires_approval && rule.requires_approval;
        if self.granted.is_none_or(stricter) {
            self.granted = Some(rule);
        }
    }

    /// The rule that allows. What an `allow` without an approval grants needs that of one whose condition could not be
    /// evaluated: otherwise a caller would be rid of it with arguments that nobody can judge.
    fn granted(&self) -> Option<&'a Rule> {
        match self.granted {
            Some(rule) if !rule.requires_approval => self.undecided.or(Some(rule)),
            granted => granted,
        }
    }

    /// Keeps the first denial, unless it may not be disclosed and this one may: the caller gets the most informative
    /// answer that a rule permits.
    fn deny(&mut self, rule: &'a Rule, reason: Reason) {
        let better = self.denied.as_ref().is_none_or(|(held, _)| !held.disclose && rule.disclose);
        if better {
            self.denied = Some((rule, reason));
        }
    }

    fn conclude(self, kind: ItemKind) -> Decision {
        // A method exists for those who have a rule that names it.
        let unnamed = if kind == ItemKind::Method && !self.is_named {
            Reason::Unknown(kind)
        } else {
            Reason::NotGranted
        };
        let ids = |rules: &[&Rule]| rules.iter().map(|rule| rule.id.clone()).collect();
        let deny = |reason, told, shadow| Decision {
            effect: Effect::Deny(Denial { reason, told }),
            shadow,
            findings: Vec::new(),
            definition: None,
            ran: ControlSet::of(&[Control::Rules]),
        };
        let granted = self.granted();
        match (self.denied, granted) {
            (Some((rule, reason)), _) => deny(reason, told(rule), Vec::new()),
            (None, None) if self.lacks.is_some() => {
                let reason = self.lacks.unwrap_or(Reason::NotGranted);
                deny(reason, Disclosure::Nothing, ids(&self.would_grant))
            }
            (None, None) => {
                let reason = self.failed.unwrap_or(unnamed);
                deny(reason, Disclosure::Nothing, ids(&self.would_grant))
            }
            (None, Some(rule)) => Decision {
                effect: Effect::Allow(rule.id.clone()),
                shadow: ids(&self.would_deny),
                findings: Vec::new(),
                definition: None,
                ran: ControlSet::of(&[Control::Rules]),
            },
        }
    }
}

fn told(rule: &Rule) -> Disclosure {
    if !rule.disclose {
        return Disclosure::Nothing;
    }
    Disclosure::Rule { rule: Some(rule.id.clone()), contact: rule.contact.clone() }
}

#[cfg(test)]
mod tests;
