//! Who may call what. A `forbid` beats every `allow`; no `allow` means no.

mod index;

use std::sync::Arc;

use crate::condition::{Condition, Outcome, Subject};
use crate::control::{Control, Ran};
use crate::decision::{Decision, Denial, Effect, Mode, Reason, Told};
use crate::name::{RuleId, Scope, ServerName};
use crate::offer::Kind;
use crate::pattern::Pattern;
use crate::principal::{Principal, Wanted, Who};
use crate::uri;

use index::Index;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Says {
    /// May.
    Allow,
    /// May not.
    Forbid,
}

/// The names a rule speaks of, by kind. No names of a kind: none of it.
#[derive(Debug, Default)]
pub struct Things {
    /// Tools.
    pub tools: Vec<Pattern>,
    /// Prompts.
    pub prompts: Vec<Pattern>,
    /// Resources by URI, and templates by their text.
    pub resources: Vec<Pattern>,
    /// Methods, notifications and extensions that this gateway does not know.
    pub methods: Vec<Pattern>,
}

impl Things {
    /// The patterns for one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &[Pattern] {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource | Kind::Template => &self.resources,
            Kind::Method => &self.methods,
        }
    }

    /// Whether it speaks of nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.prompts.is_empty()
            && self.resources.is_empty()
            && self.methods.is_empty()
    }

    /// Whether it speaks of everything that `other` speaks of.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::Method].into_iter().all(|kind| {
            let wide = self.of(kind);
            other.of(kind).iter().all(|narrow| wide.iter().any(|wide| wide.covers(narrow)))
        })
    }
}

/// One rule of the policy.
#[derive(Debug)]
pub struct Rule {
    /// Its id, unique in the policy.
    pub id: RuleId,
    /// What it says.
    pub says: Says,
    /// Whom it speaks of; it applies to any of them. Empty: to nobody.
    pub principals: Vec<Who>,
    /// Which servers. Empty: none.
    pub servers: Vec<Pattern>,
    /// Which tools, prompts, resources and methods. Empty: none.
    pub things: Things,
    /// An `allow`: the scopes a credential must have, all of them.
    pub scopes: Arc<[Scope]>,
    /// An `allow`: how the caller must have proved that the credential is its own.
    pub proof: Option<Wanted>,
    /// When. `None`: always.
    pub when: Option<Condition>,
    /// Whether it acts.
    pub mode: Mode,
    /// Whether a caller it denies is told so; otherwise the thing looks as if it did not exist.
    pub disclose: bool,
    /// Whom a denied caller may ask.
    pub contact: Option<Arc<str>>,
}

impl Rule {
    fn speaks_of(&self, principal: &Principal, server: &ServerName) -> bool {
        self.principals.iter().any(|who| who.is(principal)) && self.is_about(server)
    }

    /// Whether it speaks of `server`; of that of the self-test only if it is named.
    pub(crate) fn is_about(&self, server: &ServerName) -> bool {
        server.is_among(&self.servers)
    }

    /// Whether it applies, its condition aside. The name is what sets most rules apart, so it is
    /// looked at first.
    fn concerns(&self, subject: Subject<'_>) -> bool {
        self.mode != Mode::Off
            && self.names(subject.kind, subject.name)
            && self.speaks_of(subject.principal, subject.server)
    }

    /// Whether it names the thing. A `forbid` of a resource names every URI by which servers may give
    /// the same one: with a query, with a slash at its end.
    pub(crate) fn names(&self, kind: Kind, name: &str) -> bool {
        let patterns = self.things.of(kind);
        let any = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        if any(name) {
            return true;
        }
        let is_uri = matches!(kind, Kind::Resource | Kind::Template);
        is_uri
            && self.says == Says::Forbid
            && !patterns.is_empty()
            && uri::related(name).iter().any(|form| any(form))
    }

    /// Whether it speaks of whatever `other` speaks of, conditions and credentials aside.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let patterns = |wide: &[Pattern], narrow: &[Pattern]| {
            narrow.iter().all(|narrow| wide.iter().any(|wide| wide.covers(narrow)))
        };
        let who = |narrow: &Who| self.principals.iter().any(|wide| wide.covers(narrow));
        other.principals.iter().all(who)
            && patterns(&self.servers, &other.servers)
            && self.things.covers(&other.things)
    }

    /// What the credential of `principal` lacks for this rule to allow.
    pub(crate) fn lack(&self, principal: &Principal) -> Option<Reason> {
        let claims = &principal.claims;
        if !self.scopes.iter().all(|scope| claims.scopes.contains(scope)) {
            return Some(Reason::Scope(self.id.clone(), Arc::clone(&self.scopes)));
        }
        let wanted = self.proof.filter(|wanted| !wanted.is_met_by(claims.proof))?;
        Some(Reason::Proof(self.id.clone(), wanted))
    }

    /// What its condition comes to.
    pub(crate) fn outcome(&self, subject: Subject<'_>) -> Outcome {
        self.when.as_ref().map_or(Outcome::Holds, |when| when.evaluate(subject))
    }
}

/// The rules.
#[derive(Debug, Default)]
pub struct Access {
    rules: Vec<Rule>,
    index: Index,
}

impl Access {
    /// The rules; their order has no meaning. None at all allow nothing.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut index = Index::default();
        for (place, rule) in rules.iter().enumerate() {
            index.add(place, &rule.principals, |kind| rule.things.of(kind));
        }
        Self { rules, index }
    }

    /// The rules, in the order of the configuration.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// A rule that could allow `principal` something of `kind` of `server`, if there is one.
    #[must_use]
    pub fn could_allow(
        &self,
        principal: &Principal,
        server: &ServerName,
        kind: Kind,
    ) -> Option<&RuleId> {
        let allows = |rule: &&Rule| {
            rule.says == Says::Allow
                && rule.mode == Mode::Enforce
                && !rule.things.of(kind).is_empty()
                && rule.speaks_of(principal, server)
        };
        let places = self.index.of_kind(principal, kind);
        self.at(&places).find(allows).map(|rule| &rule.id)
    }

    /// Whether a rule that acts allows this thing to some caller. Its condition, what a credential has to have and what
    /// other rules forbid are not asked. It goes through all rules: it is for people who look over a policy.
    #[must_use]
    pub fn allows_anybody(&self, server: &ServerName, kind: Kind, name: &str) -> bool {
        self.rules.iter().any(|rule| {
            rule.says == Says::Allow
                && rule.mode == Mode::Enforce
                && !rule.principals.is_empty()
                && rule.is_about(server)
                && rule.names(kind, name)
        })
    }

    /// What is decided whatever the arguments are, which are not known; `None` where it depends on them.
    #[must_use]
    pub fn decide_anyway(&self, subject: Subject<'_>) -> Option<Effect> {
        // The best that could become of it, and the worst.
        let best = self.decide(subject).decision.effect;
        let mut worst = Tally::default();
        for rule in self.at(&self.candidates(subject)).filter(|rule| rule.concerns(subject)) {
            let outcome = match (rule.outcome(subject), rule.says) {
                (Outcome::Depends, Says::Forbid) => Outcome::Holds,
                (Outcome::Depends, Says::Allow) => Outcome::Fails,
                (outcome @ (Outcome::Holds | Outcome::Fails | Outcome::Error), _) => outcome,
            };
            worst.count(rule, outcome, subject.principal);
        }
        match (best, worst.conclude().effect) {
            (Effect::Allow(_), Effect::Deny(_)) => None,
            (best, _) => Some(best),
        }
    }

    /// Decides about a thing. With arguments not known, what is allowed is what some call could be.
    #[must_use]
    pub fn decide(&self, subject: Subject<'_>) -> Decided {
        let mut tally = Tally::default();
        for rule in self.at(&self.candidates(subject)).filter(|rule| rule.concerns(subject)) {
            tally.count(rule, rule.outcome(subject), subject.principal);
        }
        let for_any_arguments = !tally.depends;
        let contact = tally.denied.as_ref().and_then(|(rule, _)| rule.contact.clone());
        Decided { decision: tally.conclude(), for_any_arguments, contact }
    }

    /// Every `allow` that some `forbid` without a condition makes void, with that `forbid`: their
    /// places in the order of the configuration.
    pub(crate) fn void(&self) -> Vec<(usize, usize)> {
        let acts = |rule: &Rule, says: Says| rule.says == says && rule.mode == Mode::Enforce;
        let allows = self.rules.iter().enumerate().filter(|(_, rule)| acts(rule, Says::Allow));
        let voided = |(n, allow): (usize, &Rule)| {
            let voids = |(_, rule): &(usize, &Rule)| {
                acts(rule, Says::Forbid) && rule.when.is_none() && rule.covers(allow)
            };
            self.around(allow).find(voids).map(|(m, _)| (n, m))
        };
        allows.filter_map(voided).collect()
    }

    /// Every rule that can speak of whatever `narrow` speaks of, with its place; in order.
    pub(crate) fn around(&self, narrow: &Rule) -> impl Iterator<Item = (usize, &Rule)> {
        let first = |kind| narrow.things.of(kind).first().map(|pattern| (kind, pattern));
        let named =
            [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::Method].into_iter().find_map(first);
        let places = match (narrow.principals.first(), named) {
            (Some(who), Some((kind, pattern))) => self.index.around(who, kind, pattern),
            // What speaks of nothing is covered by everything.
            (None, _) | (_, None) => (0..self.rules.len()).collect(),
        };
        places.into_iter().filter_map(move |place| Some((place, self.rules.get(place)?)))
    }

    /// The places of all rules that can concern `subject`; in order.
    fn candidates(&self, subject: Subject<'_>) -> Vec<usize> {
        let Subject { principal, kind, name, .. } = subject;
        if matches!(kind, Kind::Resource | Kind::Template) {
            // A `forbid` also names it by every form that servers may take for the same; the first form
            // is the name itself.
            let forms = uri::related(name);
            return self.index.about(principal, kind, forms.iter().map(|form| &**form));
        }
        self.index.about(principal, kind, [name])
    }

    fn at(&self, places: &[usize]) -> impl Iterator<Item = &Rule> {
        places.iter().filter_map(move |place| self.rules.get(*place))
    }
}

/// What the rules came to.
#[derive(Debug)]
pub struct Decided {
    /// The decision.
    pub decision: Decision,
    /// Whether it would be the same with whatever arguments.
    pub for_any_arguments: bool,
    /// Whom to ask about the rule that denied it, when one did.
    pub contact: Option<Arc<str>>,
}

/// What the rules came to so far.
#[derive(Default)]
struct Tally<'a> {
    granted: Option<&'a Rule>,
    denied: Option<(&'a Rule, Reason)>,
    /// What the credential lacks for an `allow` that would grant it.
    lacks: Option<Reason>,
    /// An `allow` whose condition could not be evaluated; it explains, it does not overrule.
    failed: Option<&'a Rule>,
    would_grant: Vec<&'a Rule>,
    would_deny: Vec<&'a Rule>,
    /// Some condition waits for the arguments.
    depends: bool,
}

impl<'a> Tally<'a> {
    fn count(&mut self, rule: &'a Rule, outcome: Outcome, principal: &Principal) {
        let audit = rule.mode == Mode::Audit;
        let lack = || if rule.says == Says::Allow { rule.lack(principal) } else { None };
        self.depends |= outcome == Outcome::Depends;
        match (rule.says, outcome) {
            (_, Outcome::Fails) | (Says::Forbid, Outcome::Depends) => {}
            (Says::Allow, Outcome::Error) => self.failed = self.failed.or(Some(rule)),
            (Says::Allow, Outcome::Holds | Outcome::Depends) => match (lack(), audit) {
                (None, true) => self.would_grant.push(rule),
                (None, false) => self.granted = self.granted.or(Some(rule)),
                (Some(_), true) => {}
                // The first rule speaks, so that the same call is always told the same.
                (lack @ Some(_), false) => self.lacks = self.lacks.take().or(lack),
            },
            (Says::Forbid, Outcome::Holds | Outcome::Error) if audit => self.would_deny.push(rule),
            (Says::Forbid, Outcome::Holds) => self.deny(rule, Reason::Forbidden(rule.id.clone())),
            (Says::Forbid, Outcome::Error) => {
                self.deny(rule, Reason::ConditionError(rule.id.clone()));
            }
        }
    }

    /// The first denial decides, unless a later one may be told and it may not: the caller is
    /// owed the clearest answer that some rule permits.
    fn deny(&mut self, rule: &'a Rule, reason: Reason) {
        let better = self.denied.as_ref().is_none_or(|(held, _)| !held.disclose && rule.disclose);
        if better {
            self.denied = Some((rule, reason));
        }
    }

    fn conclude(self) -> Decision {
        let ids = |rules: &[&Rule]| rules.iter().map(|rule| rule.id.clone()).collect();
        let deny = |reason, told, shadow| Decision {
            effect: Effect::Deny(Denial { reason, told }),
            shadow,
            findings: Vec::new(),
            definition: None,
            ran: Ran::of(&[Control::Rules]),
        };
        match (self.denied, self.granted) {
            (Some((rule, reason)), _) => deny(reason, told(rule), Vec::new()),
            (None, None) if self.lacks.is_some() => {
                let reason = self.lacks.unwrap_or(Reason::NotGranted);
                deny(reason, Told::Nothing, ids(&self.would_grant))
            }
            (None, None) => {
                let reason = self
                    .failed
                    .map_or(Reason::NotGranted, |rule| Reason::ConditionError(rule.id.clone()));
                deny(reason, Told::Nothing, ids(&self.would_grant))
            }
            (None, Some(rule)) => Decision {
                effect: Effect::Allow(rule.id.clone()),
                shadow: ids(&self.would_deny),
                findings: Vec::new(),
                definition: None,
                ran: Ran::of(&[Control::Rules]),
            },
        }
    }
}

fn told(rule: &Rule) -> Told {
    if !rule.disclose {
        return Told::Nothing;
    }
    Told::Rule { rule: Some(rule.id.clone()), contact: rule.contact.clone() }
}

#[cfg(test)]
mod tests;
