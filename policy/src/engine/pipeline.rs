//! Runs all checks on requests and replies, and mints the proofs that the gateway needs to act.

mod facts;
mod shown;
mod expected;
mod recording;
mod apps;
mod standing;
mod skills;
mod sending;
mod describing;
mod showing;
mod questions;

use std::sync::Arc;

use detection::content::{ContentPolicy, Honeytoken};
use detection::inspect::Finding;
use detection::labels::ConcealedMembers;
use json::{Document, Fragment, Value};
use policy_core::base::work::WorkBudget;
use policy_core::schema::{CachedSchema, SchemaCache};
use policy_core::subject::links::{CallerLinks, Links};
use policy_core::subject::name::{RuleId, ServerName};
use policy_core::subject::principal::Principal;
use policy_core::subject::revoked::RevocationList;

use crate::definition::decoy::Decoys;
use crate::definition::offer::{Catalog, CatalogItem, CatalogMatch, ItemKind, ReadOnlyHint};
use crate::definition::pins::{PinViolation, Pins};
use crate::definition::registry::{Registry, RegistryEntry};
use crate::definition::shadow::{ShadowingConflicts, ShadowingPolicy, SharedRoutes};
use crate::engine::events;
use crate::engine::message::{ClientRequest, ItemRequest, RequestExtras, RequestOperation};
use crate::engine::places::ResultKind;
use crate::flow::guard::{
    FlowClause, FlowFacts, FlowMode, FlowPolicy, FlowViolation, ToolFlowLabels,
};
use crate::rules::access::{AccessDecision, RuleSet};
use crate::rules::approval::{ApprovalCause, ApprovalDemand};
use crate::rules::apps::AppPolicies;
use crate::rules::apps::message::ReadItem;
use crate::rules::condition::{AccessRequest, KnownArguments};
use crate::rules::constraint::Constraint;
use crate::rules::control::{Control, ControlSet};
use crate::rules::decision::{Decision, Denial, DenialFormat, Disclosure, Effect, Mode, Reason};
use crate::rules::definitions::DefinitionPolicy;

pub use describing::{DescriptionError, SendableDescription};
pub use expected::ExpectedTreatment;
use facts::CurrentFacts;
pub use facts::Facts;
pub use questions::{RouteFlow, Standing};
pub use sending::{Answerable, SendableTrace};
use sending::{NameOrigin, OutgoingCall};
pub use showing::EarlyMessage;
pub use shown::{Shown, StoredWords};
use skills::ExpectedSkill;
use standing::{Viewer, rule_name};

/// Proof that a request was allowed. Only this module mints one, and it cannot be copied.
///
/// ```
/// # fn spend(permit: policy::engine::pipeline::Permit) {
/// let (request, expectation) = permit.spend();
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # fn forge(permit: policy::engine::pipeline::Permit) {
/// let permit = policy::engine::pipeline::Permit { ..permit }; // private fields
/// # }
/// ```
///
/// ```compile_fail,E0382
/// # fn replay(permit: policy::engine::pipeline::Permit) {
/// let (first, second) = (permit.spend(), permit.spend()); // spent once
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is not spent is a request that was dropped"]
pub struct Permit {
    call: ClientRequest,
    rule: RuleId,
    terms: ReplyTerms,
    /// What asks for the approval of a person. [`Policy::approved`] hands on no permit of a request without it.
    causes: Vec<ApprovalCause>,
}

/// Requirements that the reply to a request has to meet.
#[derive(Debug, Default)]
struct ReplyTerms {
    /// The output schema, and how a violation is treated.
    output: Option<(Arc<CachedSchema>, Mode)>,
    /// Members that are hidden from this caller.
    hidden: ConcealedMembers,
    /// All labelled members, including those shown to this caller.
    labelled: ConcealedMembers,
    /// Whether the request is a tool call or concerns a task.
    calls: bool,
    /// The read-only claim of the tool.
    hint: ReadOnlyHint,
    /// What the answer about a skill has to say.
    skill: Option<ExpectedSkill>,
    /// Whether an app is read.
    read: ReadItem,
}

impl ReplyTerms {
    /// The kind of result, by which members are sealed.
    const fn answer(&self) -> ResultKind {
        if self.calls { ResultKind::OfCall } else { ResultKind::Plain }
    }
}

impl Permit {
    /// The request as it will be sent.
    #[must_use]
    pub const fn call(&self) -> &ClientRequest {
        &self.call
    }

    /// The arguments as they will be sent.
    #[must_use]
    pub fn arguments(&self) -> Option<&Fragment> {
        match &self.call {
            ClientRequest::List { .. } => None,
            ClientRequest::Use(call) => call.arguments.as_ref(),
        }
    }

    /// The length of all that the caller sends with the request beside the name, in bytes: arguments, and members of
    /// `params` and `_meta` that go to the server.
    #[must_use]
    pub fn sent_length(&self) -> usize {
        let ClientRequest::Use(call) = &self.call else { return 0 };
        let more = call.extra.iter().chain(&call.meta);
        let names: usize = more.clone().map(|(name, _)| name.len()).sum();
        let values = call.arguments.iter().chain(more.map(|(_, value)| value));
        values.fold(names, |sum, value| sum.saturating_add(value.value().raw().len()))
    }

    /// Whether it is for a call of a tool.
    fn is_tool_call(&self) -> bool {
        matches!(&self.call, ClientRequest::Use(call) if call.verb == RequestOperation::Call)
    }

    /// The read-only claim of the tool that is called.
    #[must_use]
    pub const fn hint(&self) -> ReadOnlyHint {
        self.terms.hint
    }

    /// Consumes the permit of a list whose definitions are read and shown to nobody: they are what a decision about one
    /// of them is made from. `None` for the permit of a use.
    #[must_use]
    pub fn spend_on_reading(self) -> Option<(ServerName, ItemKind)> {
        match self.call {
            ClientRequest::List { server, kind } => Some((server, kind)),
            ClientRequest::Use(_) => None,
        }
    }

    /// Consumes the permit: returns the request to send, and the right to release its reply.
    #[must_use]
    pub fn spend(self) -> (ClientRequest, Expectation) {
        let server = match &self.call {
            ClientRequest::List { server, .. } => server.clone(),
            ClientRequest::Use(call) => call.server.clone(),
        };
        (self.call, Expectation { rule: self.rule, server, terms: self.terms })
    }
}

/// Proof that a caller may make requests to a server that are about nothing it offers: a handshake, the state of a
/// session, a subscription. Only [`Policy::admit_server`] mints one.
///
/// ```
/// # use policy::engine::pipeline::{Facts, Policy};
/// # use policy_core::subject::{name::ServerName, principal::Principal};
/// # fn ask(policy: &Policy, facts: &Facts, who: &Principal, server: &ServerName) {
/// let permit = policy.admit_server(facts, who, server);
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # fn forge(server: policy_core::subject::name::ServerName) {
/// let permit = policy::engine::pipeline::ServerPermit { server }; // a private field
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a permit of a server that is not used is a request that was dropped"]
pub struct ServerPermit {
    server: ServerName,
}

impl ServerPermit {
    /// The server that it is for.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// Consumes the permit: the server that it is for.
    #[must_use]
    pub fn into_server(self) -> ServerName {
        self.server
    }
}

/// The right to release one reply, left over from a spent [`Permit`].
#[derive(Debug)]
pub struct Expectation {
    rule: RuleId,
    server: ServerName,
    terms: ReplyTerms,
}

impl Expectation {
    /// Whether the output schema is compiled, if there is one.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.terms.output.as_ref().is_none_or(|(schema, _)| schema.is_compiled())
    }

    /// The rule that allowed the request.
    #[must_use]
    pub const fn rule(&self) -> &RuleId {
        &self.rule
    }

    /// The read-only claim of the tool that was called.
    #[must_use]
    pub const fn hint(&self) -> ReadOnlyHint {
        self.terms.hint
    }
}

/// Proof that a reply was inspected and may be sent to the client.
#[derive(Debug)]
#[must_use = "a released reply that is not sent leaves the client waiting"]
pub struct ReleasedReply {
    reply: VisibleReply,
    findings: Vec<Finding>,
    ran: ControlSet,
}

/// The part of a reply that may be shown.
#[derive(Debug)]
pub enum VisibleReply {
    /// The visible part of a catalog.
    List(Arc<CatalogView>),
    /// The result of a request.
    Result(Shown),
    /// The error of a request.
    Error(Shown),
    /// What was said before the response or unasked.
    Told(Shown),
    /// Nothing, because of this finding.
    Withheld(Finding),
    /// A result over the size limit, to be stored and read separately.
    Apart(Shown),
}

impl ReleasedReply {
    /// The reply as it may be shown.
    #[must_use]
    pub fn into_shown(self) -> VisibleReply {
        self.reply
    }

    /// The controls that ran for the reply.
    #[must_use]
    pub const fn ran(&self) -> ControlSet {
        self.ran
    }

    /// The reply and its findings, for the audit record.
    #[must_use]
    pub fn into_parts(self) -> (VisibleReply, Vec<Finding>) {
        (self.reply, self.findings)
    }
}

/// The part of one catalog that one principal sees.
#[derive(Debug)]
pub struct CatalogView {
    principal: Principal,
    /// The facts when the view was made.
    facts: Facts,
    /// The links of the caller when the view was made; only for resources.
    given: Option<Arc<CallerLinks>>,
    catalog: Arc<Catalog>,
    visible: Vec<(usize, Option<Arc<Document>>)>,
    hidden: Vec<(usize, Decision)>,
}

impl CatalogView {
    /// The visible items, in the server's order.
    pub fn offers(&self) -> impl Iterator<Item = &CatalogItem> {
        self.visible.iter().filter_map(|(at, _)| self.catalog.offers().get(*at))
    }

    /// The visible items with their definitions as shown, cleaned if necessary.
    pub fn definitions(&self) -> impl Iterator<Item = (&CatalogItem, Value<'_>)> {
        self.visible.iter().filter_map(|(at, cleaned)| {
            let offer = self.catalog.offers().get(*at)?;
            Some((offer, cleaned.as_ref().map_or(offer.definition(), |document| document.root())))
        })
    }

    /// The hidden items with the decision about each.
    pub fn hidden(&self) -> impl Iterator<Item = (&CatalogItem, &Decision)> {
        self.hidden.iter().filter_map(|(at, why)| Some((self.catalog.offers().get(*at)?, why)))
    }

    /// The number of visible items, and of hidden ones.
    #[must_use]
    pub const fn counts(&self) -> (usize, usize) {
        (self.visible.len(), self.hidden.len())
    }
}

/// The result of an evaluation: a decision to record, and an outcome to act on.
#[derive(Debug)]
#[must_use]
pub struct Ruling<T> {
    /// The decision for the audit log.
    pub decision: Decision,
    /// The proof, or the denial.
    pub outcome: Result<T, Denial>,
}

/// Whether the catalog of the server is available for the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatalogAvailability {
    Known,
    Unknown,
}

/// A compiled policy. The default allows nothing.
#[derive(Debug, Default)]
pub struct Policy {
    access: RuleSet,
    definitions: DefinitionPolicy,
    contact: Option<Arc<str>>,
    denials: DenialFormat,
    shadowing: ShadowingPolicy,
    contents: ContentPolicy,
    constraints: Vec<Constraint>,
    /// Loaded by [`Self::facts`] alone: what decides takes a snapshot.
    current: CurrentFacts,
    routes: SharedRoutes,
    links: Arc<Links>,
    compiled: Arc<SchemaCache>,
    registry: Registry,
    flow: FlowPolicy,
    decoys: Decoys,
    apps: AppPolicies,
}

/// A call, and the flow that it belongs to.
struct FlowingCall<'a> {
    call: ItemRequest,
    flow: &'a FlowFacts,
}

/// A call, and what the server lists of its item.
struct AskedItem<'a> {
    call: ItemRequest,
    flow: &'a FlowFacts,
    /// Its definition; of a file, that of its skill.
    offer: Option<&'a CatalogItem>,
}

/// The item that a call is of, after the decision whether the caller may know of it.
struct SeenItem<'a> {
    /// Its definition, if the server lists it.
    offer: Option<&'a CatalogItem>,
    /// The decision whether it may be known.
    seen: Decision,
    /// The flow that the call belongs to.
    flow: &'a FlowFacts,
}

impl Policy {
    /// A policy with these rules and this treatment of findings in definitions; `contact` is named in denials. Nothing is approved until
    /// [`Self::pin`] is called.
    #[must_use]
    pub fn new(access: RuleSet, definitions: DefinitionPolicy, contact: Option<Arc<str>>) -> Self {
        Self { access, definitions, contact, ..Self::default() }
    }

    /// Sets how denied tool calls are answered.
    #[must_use]
    pub fn with_denials(self, denials: DenialFormat) -> Self {
        Self { denials, ..self }
    }

    /// How a denied tool call is answered if the caller may know that the tool exists.
    #[must_use]
    pub const fn denials(&self) -> DenialFormat {
        self.denials
    }

    /// The contact for denied callers, where the rule has none.
    #[must_use]
    pub fn contact(&self) -> Option<&str> {
        self.contact.as_deref()
    }

    /// Sets how definitions are treated that can be mistaken for others.
    #[must_use]
    pub fn with_shadowing(self, shadowing: ShadowingPolicy) -> Self {
        Self { shadowing, ..self }
    }

    /// Sets the routes on which servers are served.
    #[must_use]
    pub fn with_routes(self, routes: SharedRoutes) -> Self {
        Self { routes, ..self }
    }

    /// Which servers are served to one client together.
    #[must_use]
    pub const fn routes(&self) -> &SharedRoutes {
        &self.routes
    }

    /// Sets the detectors and actions for results and arguments.
    #[must_use]
    pub fn with_contents(self, contents: ContentPolicy) -> Self {
        Self { contents, ..self }
    }

    /// The detectors and actions for results and arguments.
    #[must_use]
    pub const fn contents(&self) -> &ContentPolicy {
        &self.contents
    }

    /// Sets the constraints on arguments.
    #[must_use]
    pub fn with_constraints(self, constraints: Vec<Constraint>) -> Self {
        Self { constraints, ..self }
    }

    /// The constraints on arguments, in the order of the configuration.
    #[must_use]
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// Sets the key that derives the marks of replaced values.
    #[must_use]
    pub fn with_key(self, key: [u8; 32]) -> Self {
        Self { contents: self.contents.with_key(key), ..self }
    }

    /// Sets the registry of tools.
    #[must_use]
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// Adds labels of single tools for flow control, which come before all others.
    #[must_use]
    pub fn with_flow_labels(self, labels: impl IntoIterator<Item = ToolFlowLabels>) -> Self {
        Self { flow: self.flow.labelling(labels), ..self }
    }

    /// Sets the tools that no server has.
    #[must_use]
    pub fn with_decoys(self, decoys: Decoys) -> Self {
        Self { decoys, ..self }
    }

    /// The tools that no server has.
    #[must_use]
    pub const fn decoys(&self) -> &Decoys {
        &self.decoys
    }

    /// Sets the values that nobody has a reason to send.
    ///
    /// # Errors
    /// If they cannot be searched for.
    pub fn with_honeytokens(self, honeytokens: &[Honeytoken]) -> Result<Self, Finding> {
        Ok(Self { contents: self.contents.with_honeytokens(honeytokens)?, ..self })
    }

    /// Sets how flows between servers are guarded.
    #[must_use]
    pub fn with_flow(self, flow: FlowPolicy) -> Self {
        Self { flow, ..self }
    }

    /// Whether any call can need the approval of a person.
    #[must_use]
    pub fn asks_people(&self) -> bool {
        self.access.requires_approvals()
            || self.registry.requires_approvals()
            || self.flow.mode() == FlowMode::Ask
    }

    /// How flows between servers are guarded.
    #[must_use]
    pub const fn flow(&self) -> &FlowPolicy {
        &self.flow
    }

    /// Takes over the links that callers received under a former policy.
    #[must_use]
    pub fn with_links(self, links: Arc<Links>) -> Self {
        Self { links, ..self }
    }

    /// Shares the cache of compiled schemas.
    #[must_use]
    pub fn with_compiled(self, compiled: Arc<SchemaCache>) -> Self {
        Self { compiled, ..self }
    }

    /// Whether what a tool call needs is computed: the labels, and the compiled input schema unless its check is off.
    #[must_use]
    pub fn is_ready(&self, server: &ServerName, offer: &CatalogItem) -> bool {
        let unchecked = || self.contents.of(server).input_schema == Mode::Off;
        let compiled = || offer.input().is_none_or(|schema| schema.is_compiled());
        offer.is_ready() && (unchecked() || compiled())
    }

    /// The resource links that callers received.
    #[must_use]
    pub const fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// The compiled access rules.
    #[must_use]
    pub const fn access(&self) -> &RuleSet {
        &self.access
    }

    /// Names of the registered tools of a server.
    pub fn registered_tools(&self, server: &ServerName) -> impl Iterator<Item = &str> {
        self.registry.names(server.as_str())
    }

    /// The registry entry of a tool.
    #[must_use]
    pub fn registered(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> Option<&RegistryEntry> {
        self.registry.get(server.as_str(), kind, name)
    }

    /// The facts that are in force now, for one decision.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.current.now()
    }

    /// Replaces the shadowing conflicts.
    pub fn shadow(&self, shadows: &Arc<ShadowingConflicts>) {
        self.current.shadow(shadows);
    }

    /// How definitions are treated that can be mistaken for others.
    #[must_use]
    pub const fn shadowing(&self) -> &ShadowingPolicy {
        &self.shadowing
    }

    /// Replaces the approvals: from now on only definitions that `pins` approve may be used.
    pub fn pin(&self, pins: &Arc<Pins>) {
        self.current.pin(pins);
    }

    /// Replaces the revocations in force.
    pub fn revoke(&self, revoked: &RevocationList) {
        self.current.revoke(&Arc::new(revoked.clone().indexed()));
    }

    /// Whether `view` is what `principal` sees under `facts`: made for an equal caller, with no other revocation,
    /// approval, conflict or link.
    #[must_use]
    pub fn holds(&self, facts: &Facts, view: &CatalogView, principal: &Principal) -> bool {
        view.principal == *principal
            && view.facts.are(facts)
            && match (&view.given, self.given(principal, view.catalog.kind())) {
                (Some(then), Some(now)) => Arc::ptr_eq(then, &now),
                (then, now) => then.is_none() && now.is_none(),
            }
    }

    /// The links of `principal`, for a kind whose visibility depends on them.
    fn given(&self, principal: &Principal, kind: ItemKind) -> Option<Arc<CallerLinks>> {
        if kind == ItemKind::Resource { self.links.of(principal) } else { None }
    }

    /// Decides whether `principal` may list the items of `kind` on `server`.
    pub fn admit_list(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        kind: ItemKind,
    ) -> Ruling<Permit> {
        let Ruling { decision, outcome } = self.decide_list(facts, principal, server, kind);
        let permit = |rule| Permit {
            call: ClientRequest::List { server: server.clone(), kind },
            rule,
            terms: ReplyTerms::default(),
            causes: Vec::new(),
        };
        Ruling { decision, outcome: outcome.map(permit) }
    }

    /// Decides whether some rule could allow `principal` to list or use something of `kind` on `server`; with the rule.
    fn decide_list(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        kind: ItemKind,
    ) -> Ruling<RuleId> {
        let (shadow, findings, definition) = (Vec::new(), Vec::new(), None);
        let ran = ControlSet::of(&[Control::Rules, Control::Revocation]);
        let revoked = facts.has_revoked(principal) || facts.revoked().has_server(server);
        let unfit = facts.unfit_server(server).filter(|_| !revoked);
        let granted = self.access.could_allow(principal, server, kind);
        let granted = granted.filter(|_| !revoked && unfit.is_none());
        let Some(rule) = granted.cloned() else {
            let reason = match unfit {
                Some(unfit) => Reason::Pin(unfit),
                None if revoked => Reason::Revoked,
                None => Reason::NotGranted,
            };
            let denial = Denial { reason, told: Disclosure::Nothing };
            let effect = Effect::Deny(denial.clone());
            return Ruling {
                decision: Decision { effect, shadow, findings, definition, ran },
                outcome: Err(denial),
            };
        };
        let effect = Effect::Allow(rule.clone());
        Ruling {
            decision: Decision { effect, shadow, findings, definition, ran },
            outcome: Ok(rule),
        }
    }

    /// Decides whether `principal` may cause requests to `server` at all.
    #[must_use]
    pub fn admit_server(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
    ) -> Option<ServerPermit> {
        let is_granted = self.grants_any(facts, principal, server);
        is_granted.then(|| ServerPermit { server: server.clone() })
    }

    /// Whether some rule could allow `principal` anything on `server`.
    #[must_use]
    pub fn grants_any(&self, facts: &Facts, principal: &Principal, server: &ServerName) -> bool {
        if facts.has_revoked(principal) || facts.revoked().has_server(server) {
            return false;
        }
        if facts.unfit_server(server).is_some() {
            return false;
        }
        ItemKind::RULED
            .into_iter()
            .any(|kind| self.access.could_allow(principal, server, kind).is_some())
    }

    /// The decision about a thing that no server offers.
    #[must_use]
    pub fn unknown(kind: ItemKind) -> (Decision, Denial) {
        Self::never(Reason::Unknown(kind))
    }

    /// The decision about a server whose identity is not the approved one.
    #[must_use]
    pub fn of_stranger() -> (Decision, Denial) {
        Self::never(Reason::Pin(PinViolation::Identity))
    }

    /// The decision about a call of a decoy.
    #[must_use]
    pub fn of_decoy() -> (Decision, Denial) {
        let (mut decision, denial) = Self::never(Reason::Decoy);
        decision.findings.push(Finding::decoy());
        (decision, denial)
    }

    fn never(reason: Reason) -> (Decision, Denial) {
        let denial = Denial { reason, told: Disclosure::Nothing };
        let effect = Effect::Deny(denial.clone());
        (Decision::of(effect), denial)
    }

    /// Decides whether a call may be sent.
    ///
    /// What the caller does not see is denied by `standing`, which also filters lists ([`Self::about`]). What the caller
    /// sees but uses in a way no rule allows is denied with an explanation. `catalog` is the server's catalog of the
    /// kind concerned; a tool, prompt or template that is not in it does not exist. A resource may exist without
    /// being listed, and a method is never listed. Inspection is charged to `budget`; a call that exhausts it is
    /// denied.
    pub fn admit(
        &self,
        facts: &Facts,
        principal: &Principal,
        catalog: Option<&Catalog>,
        call: ItemRequest,
        budget: &WorkBudget,
    ) -> Ruling<Permit> {
        self.admit_with(facts, principal, catalog, call, &RequestExtras::default(), budget)
    }

    /// Like [`Self::admit`], for a call that is sent in one message with `beside`. Each part of `beside` is
    /// inspected elsewhere; here the message is inspected as a whole, for data that is split across its parts.
    pub fn admit_with(
        &self,
        facts: &Facts,
        principal: &Principal,
        catalog: Option<&Catalog>,
        call: ItemRequest,
        beside: &RequestExtras,
        budget: &WorkBudget,
    ) -> Ruling<Permit> {
        let kind = call.verb.kind();
        let offer = catalog.and_then(|catalog| catalog.offer(&call.name));
        let is_listed = offer.is_some() && catalog.is_some_and(|catalog| catalog.kind() == kind);
        // The manifest names the file, or it is not permitted.
        let is_listed = is_listed || call.verb == RequestOperation::ReadSkillFile;
        let name = if is_listed { NameOrigin::Server } else { NameOrigin::Caller };
        let offer = offer
            .filter(|_| matches!(call.verb, RequestOperation::Call | RequestOperation::Task(_)));
        if let Some(offer) = offer {
            offer.prepare();
        }
        // Kept where a denied call is searched as well.
        let sought = self.contents.has_honeytokens().then(|| call.clone());
        let asked = FlowingCall { call, flow: &beside.flow };
        let ruling = self.without_webhook(self.decide(facts, principal, catalog, asked, budget));
        match ruling.outcome {
            Ok(permit) => {
                let sent = OutgoingCall { facts, offer, name, beside };
                let ruling = self.sendable(principal, sent, ruling.decision, permit, budget);
                self.approved(self.guarded(ruling, &beside.flow), beside)
            }
            Err(denial) => {
                let mut decision = ruling.decision;
                let found = sought.map(|call| self.honeytokens_in(principal, &call, budget));
                decision.findings.extend(found.into_iter().flatten());
                Ruling { decision, outcome: Err(denial) }
            }
        }
    }

    /// Refuses a request about events that may be sent otherwise, if the server would send them to an address past the
    /// gateway: no rule can allow that.
    fn without_webhook(&self, ruling: Ruling<Permit>) -> Ruling<Permit> {
        let asked = match &ruling.outcome {
            Ok(Permit { call: ClientRequest::Use(call), .. })
                if call.verb == RequestOperation::Other =>
            {
                events::webhook_of(call)
            }
            Ok(_) | Err(_) => None,
        };
        let Some(at) = asked else { return ruling };
        let mut decision = ruling.decision;
        decision.findings.push(Finding::webhook(at));
        let told = Disclosure::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::EventWebhook, told };
        decision.effect = Effect::Deny(denial.clone());
        Ruling { decision, outcome: Err(denial) }
    }

    /// Refuses a call that may be sent otherwise, if flow control refuses it in its flow; records in `observe` that it
    /// would.
    fn guarded(&self, ruling: Ruling<Permit>, flow: &FlowFacts) -> Ruling<Permit> {
        let (Ok(_), Some(violation)) = (&ruling.outcome, &flow.violation) else { return ruling };
        let Ruling { mut decision, mut outcome } = ruling;
        decision.findings.push(Finding::flow(&violation.at, violation.clause.note()));
        if violation.clause == FlowClause::Planner {
            // What a route is not for is refused in every mode, and nobody is asked about it.
            return self.refused_by_flow(decision, violation);
        }
        match (self.flow.mode(), &mut outcome) {
            (FlowMode::Off | FlowMode::Observe, _) => Ruling { decision, outcome },
            (FlowMode::Ask, Ok(permit)) if permit.is_tool_call() => {
                permit.causes.push(ApprovalCause::Flow(violation.clone()));
                Ruling { decision, outcome }
            }
            (FlowMode::Ask | FlowMode::Deny, _) => self.refused_by_flow(decision, violation),
        }
    }

    /// The ruling about a call that flow control refuses.
    fn refused_by_flow(&self, decision: Decision, violation: &FlowViolation) -> Ruling<Permit> {
        let told = Disclosure::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::Flow(violation.clone()), told };
        let decision = Decision { effect: Effect::Deny(denial.clone()), ..decision };
        Ruling { decision, outcome: Err(denial) }
    }

    /// Denies a request that needs the approval of a person, unless exactly this was approved. It comes last: nobody is
    /// asked about what is denied in any case.
    fn approved(&self, ruling: Ruling<Permit>, beside: &RequestExtras) -> Ruling<Permit> {
        let Ruling { mut decision, outcome } = ruling;
        let permit = match outcome {
            Ok(permit) if !permit.causes.is_empty() => permit,
            outcome => return Ruling { decision, outcome },
        };
        let demand = ApprovalDemand {
            rule: permit.rule.clone(),
            causes: permit.causes.clone(),
            definition: decision.definition,
            labels: beside.flow.labels,
            origins: beside.flow.origins.clone(),
        };
        let is_approved = beside.approved.as_ref().is_some_and(|given| given.covers(&demand));
        if is_approved && permit.is_tool_call() {
            return Ruling { decision, outcome: Ok(permit) };
        }
        let told = Disclosure::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::Approval(Box::new(demand)), told };
        decision.effect = Effect::Deny(denial.clone());
        Ruling { decision, outcome: Err(denial) }
    }

    /// Decides by the rules, revocations and pins, before anything that is sent is inspected.
    fn decide(
        &self,
        facts: &Facts,
        principal: &Principal,
        catalog: Option<&Catalog>,
        asked: FlowingCall<'_>,
        budget: &WorkBudget,
    ) -> Ruling<Permit> {
        let FlowingCall { mut call, flow } = asked;
        let kind = call.verb.kind();
        if self.decoys.has(call.server.as_str(), kind, &call.name) {
            let (decision, denial) = Self::of_decoy();
            return Ruling { decision, outcome: Err(denial) };
        }
        let catalog =
            catalog.filter(|catalog| catalog.kind() == kind && *catalog.server() == call.server);
        if call.verb == RequestOperation::ReadSkillFile {
            return self.decide_file(facts, principal, catalog, FlowingCall { call, flow }, budget);
        }
        let place = match catalog {
            Some(catalog) => catalog.place(&call.name),
            // Without a catalog, the last known one decides.
            None => facts.shadows().place(&call.server, kind, &call.name),
        };
        // The server gets its own spelling of the URI, since it may treat another one as another resource.
        if let Some(CatalogMatch::Listed(offer)) = place
            && offer.name().as_str() != &*call.name
        {
            call.name = offer.name().as_str().into();
        }
        let offer = place.map(CatalogMatch::offer);
        let listed = if catalog.is_some() {
            CatalogAvailability::Known
        } else {
            CatalogAvailability::Unknown
        };
        let links = self.given(principal, kind);
        let viewer = Viewer { principal, facts, links: links.as_deref() };
        if offer.is_none() && !matches!(kind, ItemKind::Resource | ItemKind::Method) {
            // Evaluates the rules for a thing that does not exist as well, so that its response time does not
            // distinguish it from a hidden one.
            drop(self.standing(viewer, &call.server, kind, &call.name, None, listed));
            let (decision, denial) = Self::unknown(kind);
            return Ruling { decision, outcome: Err(denial) };
        }
        let seen = self.standing(viewer, &call.server, kind, &call.name, offer, listed);
        self.decide_seen(principal, seen, AskedItem { call, flow, offer }, budget)
    }

    /// Decides about a call after the decision whether the caller may know of the item.
    fn decide_seen(
        &self,
        principal: &Principal,
        seen: AccessDecision,
        asked: AskedItem<'_>,
        budget: &WorkBudget,
    ) -> Ruling<Permit> {
        let AccessDecision { decision: mut seen, for_any_arguments, needs_approval, .. } = seen;
        let AskedItem { call, flow, offer } = asked;
        match &seen.effect {
            // A missing scope can be irrelevant: the rules for these arguments may deny in any case.
            Effect::Deny(denial) if for_any_arguments || !denial.reason.is_step_up() => {
                let denial = denial.clone();
                return Ruling { decision: seen, outcome: Err(denial) };
            }
            Effect::Allow(rule) if for_any_arguments || !call.verb.takes_arguments() => {
                let rule = rule.clone();
                let causes = self.approval_causes(&call, needs_approval, &mut seen);
                let permit = self.use_permit(call, rule, offer, causes);
                return Ruling { decision: seen, outcome: Ok(permit) };
            }
            Effect::Allow(_) | Effect::Deny(_) => {}
        }
        self.decide_arguments(principal, call, SeenItem { offer, seen, flow }, budget)
    }

    /// Decides about a call for which the rules have to look at its arguments.
    fn decide_arguments(
        &self,
        principal: &Principal,
        call: ItemRequest,
        item: SeenItem<'_>,
        budget: &WorkBudget,
    ) -> Ruling<Permit> {
        let SeenItem { offer, mut seen, flow } = item;
        let kind = call.verb.kind();
        let arguments = match &call.arguments {
            None => KnownArguments::None,
            Some(arguments) => KnownArguments::Given(arguments.value(), budget),
        };
        let known = self.registered(&call.server, kind, &call.name);
        let decided = {
            // A file is decided about as its skill.
            let of_skill = offer.filter(|_| call.verb == RequestOperation::ReadSkillFile);
            let name = of_skill.map_or(&*call.name, |skill| skill.name().as_str());
            let Ok(name) = rule_name(kind, name, offer) else {
                // INVARIANT: what has no name for rules was denied above.
                let (decision, denial) = Self::unknown(kind);
                return Ruling { decision, outcome: Err(denial) };
            };
            let (server, name) = (&call.server, &*name);
            self.access.decide(AccessRequest {
                principal,
                server,
                kind,
                name,
                arguments,
                known,
                flow: Some(flow),
            })
        };
        let AccessDecision { decision: decided, contact, needs_approval, .. } = decided;
        match decided.effect {
            Effect::Allow(rule) => {
                let causes = self.approval_causes(&call, needs_approval, &mut seen);
                Ruling {
                    decision: Decision {
                        effect: Effect::Allow(rule.clone()),
                        shadow: decided.shadow,
                        ..seen
                    },
                    outcome: Ok(self.use_permit(call, rule, offer, causes)),
                }
            }
            Effect::Deny(Denial { reason, told }) => {
                let told = self.told_of_arguments(&reason, told, contact);
                let denial = Denial { reason, told };
                let effect = Effect::Deny(denial.clone());
                let decision = Decision { effect, shadow: decided.shadow, ..seen };
                Ruling { decision, outcome: Err(denial) }
            }
        }
    }

    /// The permit of a use that a rule allows.
    fn use_permit(
        &self,
        call: ItemRequest,
        rule: RuleId,
        offer: Option<&CatalogItem>,
        causes: Vec<ApprovalCause>,
    ) -> Permit {
        let skill = ExpectedSkill::of(&call, offer);
        let read = apps::read_item(&call);
        let terms = ReplyTerms { skill, read, ..ReplyTerms::default() };
        Permit { call: ClientRequest::Use(call), rule, terms, causes }
    }

    /// What is disclosed of a denial that depends on the arguments: the caller knows of the tool.
    fn told_of_arguments(
        &self,
        reason: &Reason,
        told: Disclosure,
        contact: Option<Arc<str>>,
    ) -> Disclosure {
        match told {
            Disclosure::Rule { .. } => told,
            Disclosure::Nothing => {
                let contact = contact.or_else(|| self.contact.clone());
                Disclosure::Rule { rule: reason.rule().cloned(), contact }
            }
        }
    }

    /// What asks for the approval of a person before `call` is sent. A task was approved with the call that began it, and
    /// the end of a subscription sends nothing.
    fn approval_causes(
        &self,
        call: &ItemRequest,
        by_rule: bool,
        seen: &mut Decision,
    ) -> Vec<ApprovalCause> {
        let begins = match call.verb {
            RequestOperation::Task(_) | RequestOperation::Unsubscribe => false,
            RequestOperation::Call
            | RequestOperation::Get
            | RequestOperation::Read
            | RequestOperation::GetSkill
            | RequestOperation::ReadSkillFile
            | RequestOperation::Subscribe
            | RequestOperation::CompletePrompt
            | RequestOperation::CompleteTemplate
            | RequestOperation::Other => true,
        };
        let mut causes = Vec::new();
        if by_rule && begins {
            causes.push(ApprovalCause::Rule);
        }
        let known = self.registered(&call.server, call.verb.kind(), &call.name);
        if known.is_some_and(|known| known.approval_required) && call.verb.takes_arguments() {
            seen.ran.note(Control::Registry);
            causes.push(ApprovalCause::Registry);
        }
        causes
    }
}

#[cfg(test)]
mod tests;
