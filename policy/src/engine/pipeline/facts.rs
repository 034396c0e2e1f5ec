//! The state that decisions depend on and that changes while a policy is in force: approvals, revocations and shadowing
//! conflicts.

use std::sync::Arc;

use arc_swap::ArcSwap;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use policy_core::subject::revoked::RevocationList;

use crate::definition::pins::{PinViolation, Pins};
use crate::definition::shadow::ShadowingConflicts;
use crate::rules::decision::Mode;

/// The state that a decision depends on besides the rules, as it was at one time.
///
/// A function that decides takes the facts and loads no state of its own, so one decision never sees two states, whatever
/// is replaced while it is made. Only [`Policy::facts`] takes a snapshot. The caller takes a new one for each decision
/// that has to see later changes: after definitions were read, which can add approvals and conflicts, and after waiting.
///
/// ```
/// # fn decide(policy: &policy::engine::pipeline::Policy) {
/// let facts = policy.facts();
/// # }
/// ```
///
/// Facts cannot be put together from elsewhere:
///
/// ```compile_fail,E0423
/// # use std::sync::Arc;
/// let facts = policy::engine::pipeline::Facts(Arc::default()); // a private field
/// ```
///
/// [`Policy::facts`]: super::Policy::facts
#[derive(Clone, Debug)]
pub struct Facts(Arc<FactState>);

#[derive(Clone, Debug, Default)]
struct FactState {
    pins: Arc<Pins>,
    revoked: Arc<RevocationList>,
    shadows: Arc<ShadowingConflicts>,
}

impl Facts {
    /// What the lockfile approves.
    #[must_use]
    pub fn pins(&self) -> &Pins {
        &self.0.pins
    }

    /// What is revoked: callers, their tokens and clients, servers, and what servers offer.
    #[must_use]
    pub fn revoked(&self) -> &RevocationList {
        &self.0.revoked
    }

    /// The definitions that can be mistaken for those of another server.
    #[must_use]
    pub fn shadows(&self) -> &ShadowingConflicts {
        &self.0.shadows
    }

    /// Whether `principal` is revoked.
    #[must_use]
    pub fn has_revoked(&self, principal: &Principal) -> bool {
        self.revoked().has_principal(principal)
    }

    /// Whether `principal`, or `name` of `server`, is revoked.
    #[must_use]
    pub fn has_revoked_use(&self, principal: &Principal, server: &ServerName, name: &str) -> bool {
        self.revoked().has_principal(principal) || self.revoked().has(server, name)
    }

    /// Why nothing of `server` may be used; `None` if nothing prevents it or pins are not enforced.
    #[must_use]
    pub fn unfit_server(&self, server: &ServerName) -> Option<PinViolation> {
        let pins = self.pins();
        if pins.mode == Mode::Enforce { pins.unfit_server(server.as_str()) } else { None }
    }

    /// Whether these are the same facts: nothing was replaced in between.
    pub(super) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The facts that are in force now. Each part is replaced on its own, and a snapshot has all of them as of one time.
#[derive(Debug, Default)]
pub(super) struct CurrentFacts(ArcSwap<FactState>);

impl CurrentFacts {
    /// Takes a snapshot of all facts, with one load.
    pub(super) fn now(&self) -> Facts {
        Facts(self.0.load_full())
    }

    /// Replaces the approvals.
    pub(super) fn pin(&self, pins: &Arc<Pins>) {
        self.0.rcu(|state| FactState { pins: Arc::clone(pins), ..FactState::clone(state) });
    }

    /// Replaces the revocations.
    pub(super) fn revoke(&self, revoked: &Arc<RevocationList>) {
        self.0.rcu(|state| FactState { revoked: Arc::clone(revoked), ..FactState::clone(state) });
    }

    /// Replaces the shadowing conflicts.
    pub(super) fn shadow(&self, shadows: &Arc<ShadowingConflicts>) {
        self.0.rcu(|state| FactState { shadows: Arc::clone(shadows), ..FactState::clone(state) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use json::{Document, Fragment, JsonBounds};
    use policy_core::base::work::WorkBudget;
    use policy_core::subject::name::{PrincipalId, RuleId, ServerName};
    use policy_core::subject::pattern::Pattern;
    use policy_core::subject::principal::{Principal, PrincipalSelector};
    use policy_core::subject::revoked::RevocationList;

    use super::super::{Facts, Policy, VisibleReply};
    use crate::definition::lock::{ApprovalState, LockedServer, LockedVersion, Lockfile};
    use crate::definition::offer::{Catalog, CatalogItem, ItemKind};
    use crate::definition::pins::{AcceptedChange, PinViolation, Pins};
    use crate::definition::shadow::{ShadowingConflicts, SharedRoutes};
    use crate::engine::message::{ItemRequest, Reply, RequestOperation};
    use crate::rules::access::{ItemPatterns, Rule, RuleEffect, RuleSet};
    use crate::rules::decision::{Mode, Reason};
    use crate::rules::definitions::DefinitionPolicy;

    /// A policy that allows everything that is approved.
    fn allowing() -> Policy {
        let rule = Rule {
            id: RuleId::parse("all").unwrap(),
            says: RuleEffect::Allow,
            principals: vec![PrincipalSelector::Anyone],
            servers: vec![Pattern::new("*")],
            things: ItemPatterns { tools: vec![Pattern::new("*")], ..ItemPatterns::default() },
            scopes: [].into(),
            proof: None,
            when: None,
            mode: Mode::Enforce,
            disclose: false,
            contact: None,
            requires_approval: false,
        };
        Policy::new(RuleSet::new(vec![rule]), DefinitionPolicy::default(), None)
    }

    fn ana() -> Principal {
        Principal::new(PrincipalId::parse("ana").unwrap(), [].into())
    }

    fn server() -> ServerName {
        ServerName::parse("files").unwrap()
    }

    fn tool(schema: &str) -> CatalogItem {
        let text = format!(r#"{{"name":"add","inputSchema":{schema}}}"#);
        CatalogItem::for_tests(ItemKind::Tool, &text)
    }

    fn catalog(item: CatalogItem) -> Arc<Catalog> {
        Arc::new(Catalog::new(server(), ItemKind::Tool, vec![item]))
    }

    fn call(arguments: &str) -> ItemRequest {
        let text = Bytes::copy_from_slice(arguments.as_bytes());
        let document = Arc::new(Document::parse(text, &JsonBounds::MESSAGE).unwrap());
        let arguments = Some(Fragment::whole(document));
        ItemRequest { arguments, ..ItemRequest::bare(&server(), RequestOperation::Call, "add") }
    }

    /// Pins that approve one definition.
    fn approving(item: &CatalogItem) -> Pins {
        let version =
            LockedVersion::new(item.digest().unwrap(), ApprovalState::Approved, item.fragment());
        let offers = [((ItemKind::Tool, "add".into()), vec![version])].into();
        let locked = LockedServer { offers, ..LockedServer::default() };
        let lock = Lockfile { servers: [(server().as_str().into(), locked)].into() };
        Pins { lock: Arc::new(lock), ..Pins::default() }
    }

    fn reason(policy: &Policy, facts: &Facts, catalog: &Catalog, call: ItemRequest) -> Reason {
        let budget = WorkBudget::unlimited();
        policy.admit(facts, &ana(), Some(catalog), call, &budget).outcome.unwrap_err().reason
    }

    /// A decision looks at the pins once for whether the definition is approved, and once more for the schema that was.
    /// A reload in between would let a call through that neither state of the pins allows.
    #[test]
    fn a_reload_of_pins_between_two_looks_of_a_decision_changes_nothing_of_it() {
        let approved = tool(r#"{"type":"object","required":["n"]}"#);
        let listed = tool(r#"{"type":"object"}"#);
        let mut pins = approving(&approved);
        let within = AcceptedChange::within(approved.fragment());
        pins.accepted.insert((server().as_str().into(), listed.digest().unwrap()), within);
        let policy = allowing();
        policy.pin(&Arc::new(pins));
        let (before, catalog) = (policy.facts(), catalog(listed));
        policy.pin(&Arc::new(Pins::default()));
        let under = |facts: &Facts| reason(&policy, facts, &catalog, call("{}"));
        assert!(matches!(under(&before), Reason::Arguments(_)));
        assert_eq!(under(&policy.facts()), Reason::Pin(PinViolation::NotApproved));
        let fits = call(r#"{"n":1}"#);
        let budget = WorkBudget::unlimited();
        assert!(policy.admit(&before, &ana(), Some(&catalog), fits, &budget).outcome.is_ok());
    }

    /// Everything is replaced after the facts were taken, and no function that decides under them notices.
    #[test]
    fn what_is_replaced_afterwards_changes_no_decision_under_former_facts() {
        let (policy, who, server) = (allowing(), ana(), server());
        let (item, other) = (tool("{}"), ServerName::parse("time").unwrap());
        policy.pin(&Arc::new(approving(&item)));
        let (before, budget) = (policy.facts(), WorkBudget::unlimited());
        let listed = catalog(item);
        let twin = Arc::new(Catalog::new(other, ItemKind::Tool, listed.offers().to_vec()));
        let both = [Arc::clone(&listed), twin];
        policy.pin(&Arc::new(Pins::default()));
        policy.revoke(&RevocationList { everything: true, ..RevocationList::default() });
        policy.shadow(&Arc::new(ShadowingConflicts::among(both, &SharedRoutes::default())));
        let decided = |facts: &Facts| {
            let ruling = policy.admit(facts, &who, Some(&listed), call("{}"), &budget);
            let offer = &listed.offers()[0];
            let view = policy.view(facts, &who, Arc::clone(&listed));
            [
                ruling.outcome.is_ok() && ruling.decision.findings.is_empty(),
                policy.may_list(facts, &who, &server, ItemKind::Tool).is_granted(),
                policy.admit_server(facts, &who, &server).is_some(),
                policy.about(facts, &who, &server, offer).shows(),
                view.offers().count() == 1 && policy.holds(facts, &view, &who),
                !facts.has_revoked(&who) && facts.shadows().all().next().is_none(),
            ]
        };
        assert_eq!(decided(&before), [true; 6]);
        let now = policy.facts();
        assert_eq!(decided(&now)[..4], [false; 4]);
        assert!(now.has_revoked(&who) && policy.view(&now, &who, listed).offers().count() == 0);
    }

    #[test]
    fn a_view_of_former_facts_is_not_shown_again() {
        let (policy, who) = (allowing(), ana());
        let item = tool("{}");
        policy.pin(&Arc::new(approving(&item)));
        let (before, listed) = (policy.facts(), catalog(item));
        let view = Arc::new(policy.view(&before, &who, Arc::clone(&listed)));
        policy.pin(&Arc::new(Pins::default()));
        let due = |facts: &Facts| {
            let permit = policy.admit_list(facts, &who, &server(), ItemKind::Tool).outcome;
            permit.unwrap().spend().1
        };
        let seen = |facts: &Facts| {
            let released = policy.release_again(facts, &who, due(facts), &view);
            let VisibleReply::List(view) = released.into_shown() else { panic!("not a list") };
            view.offers().count()
        };
        assert_eq!((seen(&before), seen(&policy.facts())), (1, 0));
        // The list is the same under the facts that it was made from, and only under those.
        let budget = WorkBudget::unlimited();
        let released = policy.release(&before, &who, due(&before), Reply::List(listed), &budget);
        assert!(
            matches!(released.into_shown(), VisibleReply::List(view) if view.offers().count() == 1)
        );
    }

    #[test]
    fn one_part_is_replaced_and_the_others_stay() {
        let policy = allowing();
        let item = tool("{}");
        policy.revoke(&RevocationList { everything: true, ..RevocationList::default() });
        policy.pin(&Arc::new(approving(&item)));
        policy.shadow(&Arc::default());
        let facts = policy.facts();
        assert!(facts.has_revoked(&ana()));
        assert!(facts.pins().lock.servers.contains_key("files"));
    }
}
