//! Runs the checks and hands out the proofs the gateway needs to act.

mod expected;
mod recording;
mod sending;
mod showing;
mod standing;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::access::{Access, Decided};
use crate::condition::{Arguments, Subject};
use crate::constraint::Constraint;
use crate::content::Contents;
use crate::control::{Control, Ran};
use crate::decision::{Decision, Denial, Denials, Effect, Mode, Reason, Told};
use crate::definitions::Definitions;
use crate::inspect::Finding;
use crate::json::{Document, Fragment, Value};
use crate::labels::Concealed;
use crate::links::{Links, LinksOf};
use crate::message::{Beside, Call, Reply, Use, Verb};
use crate::name::{RuleId, ServerName};
use crate::offer::{Catalog, Kind, Offer, Place, ReadOnlyHint};
use crate::pins::{Pins, Unfit};
use crate::places::Answer;
use crate::principal::Principal;
use crate::registry::{Registered, Registry};
use crate::revoked::Revoked;
use crate::schema::{Compilable, Compiled};
use crate::shadow::{Shadowing, Shadows, SharedRoutes};
use crate::work::Budget;

pub use expected::Fate;
use sending::Sendable;
use standing::rule_name;

/// Proof that a call was allowed. Only this module makes one, and it cannot be copied.
///
/// ```compile_fail
/// # fn forge(call: policy::message::Call, rule: policy::name::RuleId) {
/// let permit = policy::pipeline::Permit { call, rule }; // private fields
/// # }
/// ```
///
/// ```compile_fail
/// # fn replay(permit: policy::pipeline::Permit) {
/// let (first, second) = (permit.spend(), permit.spend()); // spent once
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is not spent is a request that was dropped"]
pub struct Permit {
    call: Call,
    rule: RuleId,
    terms: Terms,
}

/// What the reply is held to.
#[derive(Debug, Default)]
struct Terms {
    /// What the result has to be like, and what is done if it is not.
    output: Option<(Arc<Compilable>, Mode)>,
    /// Members that this caller does not see.
    hidden: Concealed,
    /// Members that are labelled, whoever sees them.
    labelled: Concealed,
    /// It is a call of a tool, or what came of one.
    calls: bool,
    /// What the tool says of itself.
    hint: ReadOnlyHint,
}

impl Terms {
    /// What in the result is sealed.
    const fn answer(&self) -> Answer {
        if self.calls { Answer::OfCall } else { Answer::Plain }
    }
}

impl Permit {
    /// The call, as it would be sent.
    #[must_use]
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// The arguments, as they would be sent.
    #[must_use]
    pub fn arguments(&self) -> Option<&Fragment> {
        match &self.call {
            Call::List { .. } => None,
            Call::Use(call) => call.arguments.as_ref(),
        }
    }

    /// What the tool that is called says of itself.
    #[must_use]
    pub const fn hint(&self) -> ReadOnlyHint {
        self.terms.hint
    }

    /// Gives the call up for sending and keeps the right to judge its reply.
    #[must_use]
    pub fn spend(self) -> (Call, Expectation) {
        let server = match &self.call {
            Call::List { server, .. } => server.clone(),
            Call::Use(call) => call.server.clone(),
        };
        (self.call, Expectation { rule: self.rule, server, terms: self.terms })
    }
}

/// The right to judge one reply, left over from a spent [`Permit`].
#[derive(Debug)]
pub struct Expectation {
    rule: RuleId,
    server: ServerName,
    terms: Terms,
}

impl Expectation {
    /// Whether what the reply is held to has been worked out.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.terms.output.as_ref().is_none_or(|(schema, _)| schema.is_compiled())
    }

    /// The rule that allowed the call.
    #[must_use]
    pub const fn rule(&self) -> &RuleId {
        &self.rule
    }

    /// What the tool that was called says of itself.
    #[must_use]
    pub const fn hint(&self) -> ReadOnlyHint {
        self.terms.hint
    }
}

/// Proof that a reply was checked and may be shown to the client.
#[derive(Debug)]
#[must_use = "a released reply that is not sent leaves the client waiting"]
pub struct Released {
    reply: Shown,
    findings: Vec<Finding>,
    ran: Ran,
}

/// What may be shown.
#[derive(Debug)]
pub enum Shown {
    /// This much of a catalogue.
    List(Arc<View>),
    /// The answer to a call, or something said before it, as it came.
    Answer(Reply),
    /// Nothing, because of what was found in it.
    Withheld(Finding),
    /// A place where it can be read: it is longer than answers may be.
    Apart(Fragment),
}

impl Released {
    /// The reply as it may be shown.
    #[must_use]
    pub fn into_shown(self) -> Shown {
        self.reply
    }

    /// The controls that were asked.
    #[must_use]
    pub const fn ran(&self) -> Ran {
        self.ran
    }

    /// The same, and what was found in it, for the record.
    #[must_use]
    pub fn into_parts(self) -> (Shown, Vec<Finding>) {
        (self.reply, self.findings)
    }
}

/// What one principal sees of one catalogue.
#[derive(Debug)]
pub struct View {
    principal: Principal,
    /// What was revoked when it was made.
    revoked: Arc<Revoked>,
    /// What was approved when it was made.
    pins: Arc<Pins>,
    /// What could be taken for what when it was made.
    shadows: Arc<Shadows>,
    /// The links that the caller was given when it was made; of resources alone.
    given: Option<Arc<LinksOf>>,
    catalog: Arc<Catalog>,
    visible: Vec<(usize, Option<Arc<Document>>)>,
    hidden: Vec<(usize, Decision)>,
}

impl View {
    /// What is shown, in the server's order.
    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.visible.iter().filter_map(|(at, _)| self.catalog.offers().get(*at))
    }

    /// The same with each definition as it is shown: as it came, or without what was taken out.
    pub fn definitions(&self) -> impl Iterator<Item = (&Offer, Value<'_>)> {
        self.visible.iter().filter_map(|(at, cleaned)| {
            let offer = self.catalog.offers().get(*at)?;
            Some((offer, cleaned.as_ref().map_or(offer.definition(), |document| document.root())))
        })
    }

    /// What is not, and why.
    pub fn hidden(&self) -> impl Iterator<Item = (&Offer, &Decision)> {
        self.hidden.iter().filter_map(|(at, why)| Some((self.catalog.offers().get(*at)?, why)))
    }

    /// How many are shown, and how many are not.
    #[must_use]
    pub const fn counts(&self) -> (usize, usize) {
        (self.visible.len(), self.hidden.len())
    }
}

/// The end of an evaluation: a decision to record, and an outcome to act on.
#[derive(Debug)]
#[must_use]
pub struct Ruling<T> {
    /// For the audit log, whatever it was.
    pub decision: Decision,
    /// The proof, or why there is none.
    pub outcome: Result<T, Denial>,
}

/// Whether the list of the server is at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Known,
    Unknown,
}

/// A compiled policy. The default one allows nothing.
#[derive(Debug, Default)]
pub struct Policy {
    access: Access,
    definitions: Definitions,
    contact: Option<Arc<str>>,
    denials: Denials,
    revoked: ArcSwap<Revoked>,
    pins: ArcSwap<Pins>,
    shadowing: Shadowing,
    contents: Contents,
    constraints: Vec<Constraint>,
    shadows: ArcSwap<Shadows>,
    routes: SharedRoutes,
    links: Arc<Links>,
    compiled: Arc<Compiled>,
    registry: Registry,
}

impl Policy {
    /// A policy of these rules and detectors; `contact` is whom a denied caller may ask. Nothing is
    /// approved yet: see [`Self::pin`].
    #[must_use]
    pub fn new(access: Access, definitions: Definitions, contact: Option<Arc<str>>) -> Self {
        Self { access, definitions, contact, ..Self::default() }
    }

    /// The same, answering denied calls of tools like this.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        Self { denials, ..self }
    }

    /// How a denied call of a tool is answered whose caller may know of the tool.
    #[must_use]
    pub const fn denials(&self) -> Denials {
        self.denials
    }

    /// Whom a denied caller may ask, where no rule names somebody else.
    #[must_use]
    pub fn contact(&self) -> Option<&str> {
        self.contact.as_deref()
    }

    /// The same, with this done about things that could be taken for others.
    #[must_use]
    pub fn with_shadowing(self, shadowing: Shadowing) -> Self {
        Self { shadowing, ..self }
    }

    /// The same, for servers on these routes.
    #[must_use]
    pub fn with_routes(self, routes: SharedRoutes) -> Self {
        Self { routes, ..self }
    }

    /// Which servers are offered to one client together.
    #[must_use]
    pub const fn routes(&self) -> &SharedRoutes {
        &self.routes
    }

    /// The same, with this done about what is said and sent.
    #[must_use]
    pub fn with_contents(self, contents: Contents) -> Self {
        Self { contents, ..self }
    }

    /// What is done about what servers say and callers send.
    #[must_use]
    pub const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The same, with these arguments only.
    #[must_use]
    pub fn with_constraints(self, constraints: Vec<Constraint>) -> Self {
        Self { constraints, ..self }
    }

    /// What arguments may be, in the order of the configuration.
    #[must_use]
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// The same with a key for the marks of what is replaced.
    #[must_use]
    pub fn with_key(self, key: [u8; 32]) -> Self {
        Self { contents: self.contents.with_key(key), ..self }
    }

    /// The same, knowing this about tools.
    #[must_use]
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// The same, with the links that callers were given under another policy.
    #[must_use]
    pub fn with_links(self, links: Arc<Links>) -> Self {
        Self { links, ..self }
    }

    /// The same, with schemas compiled among these.
    #[must_use]
    pub fn with_compiled(self, compiled: Arc<Compiled>) -> Self {
        Self { compiled, ..self }
    }

    /// Whether what a call of a tool needs has been worked out: its labels, and its compiled schema where
    /// arguments are held to that.
    #[must_use]
    pub fn is_ready(&self, server: &ServerName, offer: &Offer) -> bool {
        let unchecked = || self.contents.of(server).input_schema == Mode::Off;
        let compiled = || offer.input().is_none_or(|schema| schema.is_compiled());
        offer.is_ready() && (unchecked() || compiled())
    }

    /// The links that callers were given.
    #[must_use]
    pub const fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// The rules.
    #[must_use]
    pub const fn access(&self) -> &Access {
        &self.access
    }

    /// The names of the tools of a server that something is known of.
    pub fn registered_tools(&self, server: &ServerName) -> impl Iterator<Item = &str> {
        self.registry.names(server.as_str())
    }

    /// What is known of a tool.
    #[must_use]
    pub fn registered(&self, server: &ServerName, kind: Kind, name: &str) -> Option<&Registered> {
        self.registry.get(server.as_str(), kind, name)
    }

    /// From now on these could be taken for others.
    pub fn shadow(&self, shadows: Arc<Shadows>) {
        self.shadows.store(shadows);
    }

    /// What could be taken for others, and what is done about it.
    #[must_use]
    pub fn shadows(&self) -> (Arc<Shadows>, &Shadowing) {
        (self.shadows.load_full(), &self.shadowing)
    }

    /// From now on the definitions that `pins` approve may be used, and no others.
    pub fn pin(&self, pins: Arc<Pins>) {
        self.pins.store(pins);
    }

    /// What is approved.
    #[must_use]
    pub fn pins(&self) -> Arc<Pins> {
        self.pins.load_full()
    }

    /// From now on `revoked` is no longer to be used, and nothing else is.
    pub fn revoke(&self, revoked: &Revoked) {
        self.revoked.store(Arc::new(revoked.clone().indexed()));
    }

    /// What is no longer to be used.
    #[must_use]
    pub fn revoked(&self) -> Arc<Revoked> {
        self.revoked.load_full()
    }

    /// Whether `principal` is no longer to be served.
    #[must_use]
    pub fn has_revoked(&self, principal: &Principal) -> bool {
        self.revoked.load().has_principal(principal)
    }

    /// Whether `name` of `server` is no longer to be used by `principal`.
    #[must_use]
    pub fn has_revoked_use(&self, principal: &Principal, server: &ServerName, name: &str) -> bool {
        let revoked = self.revoked.load();
        revoked.has_principal(principal) || revoked.has(server, name)
    }

    /// Whether `view` is what `principal` sees: made for an equal caller, and nothing was revoked or
    /// approved since.
    #[must_use]
    pub fn holds(&self, view: &View, principal: &Principal) -> bool {
        view.principal == *principal
            && Arc::ptr_eq(&view.revoked, &self.revoked.load())
            && Arc::ptr_eq(&view.pins, &self.pins.load())
            && Arc::ptr_eq(&view.shadows, &self.shadows.load())
            && match (&view.given, self.given(principal, view.catalog.kind())) {
                (Some(then), Some(now)) => Arc::ptr_eq(then, &now),
                (then, now) => then.is_none() && now.is_none(),
            }
    }

    /// The links of `principal` on which a list of this kind depends.
    fn given(&self, principal: &Principal, kind: Kind) -> Option<Arc<LinksOf>> {
        if kind == Kind::Resource { self.links.of(principal) } else { None }
    }

    /// May what `server` offers of `kind` be asked for on behalf of `principal`?
    pub fn admit_list(
        &self,
        principal: &Principal,
        server: &ServerName,
        kind: Kind,
    ) -> Ruling<Permit> {
        let (shadow, findings, definition) = (Vec::new(), Vec::new(), None);
        let ran = Ran::of(&[Control::Rules, Control::Revocation]);
        let revoked = self.revoked.load();
        let revoked = revoked.has_principal(principal) || revoked.has_server(server);
        let unfit = self.unfit_server(server).filter(|_| !revoked);
        let granted = self.access.could_allow(principal, server, kind);
        let granted = granted.filter(|_| !revoked && unfit.is_none());
        let Some(rule) = granted.cloned() else {
            let reason = match unfit {
                Some(unfit) => Reason::Pin(unfit),
                None if revoked => Reason::Revoked,
                None => Reason::NotGranted,
            };
            let denial = Denial { reason, told: Told::Nothing };
            let effect = Effect::Deny(denial.clone());
            return Ruling {
                decision: Decision { effect, shadow, findings, definition, ran },
                outcome: Err(denial),
            };
        };
        let effect = Effect::Allow(rule.clone());
        let permit = Permit {
            call: Call::List { server: server.clone(), kind },
            rule,
            terms: Terms::default(),
        };
        Ruling {
            decision: Decision { effect, shadow, findings, definition, ran },
            outcome: Ok(permit),
        }
    }

    /// Whether `principal` could be allowed anything at all of `server`.
    #[must_use]
    pub fn grants_any(&self, principal: &Principal, server: &ServerName) -> bool {
        let revoked = self.revoked.load();
        if revoked.has_principal(principal) || revoked.has_server(server) {
            return false;
        }
        if self.unfit_server(server).is_some() {
            return false;
        }
        [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::Method]
            .into_iter()
            .any(|kind| self.access.could_allow(principal, server, kind).is_some())
    }

    /// Why nothing of `server` may be used, if something is held against it.
    #[must_use]
    pub fn unfit_server(&self, server: &ServerName) -> Option<Unfit> {
        let pins = self.pins.load();
        if pins.mode == Mode::Enforce { pins.unfit_server(server.as_str()) } else { None }
    }

    /// What is said of a thing no server offers.
    #[must_use]
    pub fn unknown(kind: Kind) -> (Decision, Denial) {
        Self::never(Reason::Unknown(kind))
    }

    /// What is said of anything of a server that is found out not to be the one that was approved.
    #[must_use]
    pub fn of_stranger() -> (Decision, Denial) {
        Self::never(Reason::Pin(Unfit::Identity))
    }

    fn never(reason: Reason) -> (Decision, Denial) {
        let denial = Denial { reason, told: Told::Nothing };
        let effect = Effect::Deny(denial.clone());
        (Decision::of(effect), denial)
    }

    /// May this call be sent?
    ///
    /// What the caller does not see is denied in the words of [`Self::about`], the function the
    /// list is made with. What the caller sees, used in a way no rule allows, is a denial the
    /// caller is told about. `catalog` is what the server offers of the kind the call is about; a
    /// tool, a prompt or a template that is not in it does not exist. A resource may exist without
    /// being listed, and a method never is. What looking at the call costs is taken from `budget`; over
    /// that it is denied.
    pub fn admit(
        &self,
        principal: &Principal,
        catalog: Option<&Catalog>,
        call: Use,
        budget: &Budget,
    ) -> Ruling<Permit> {
        self.admit_with(principal, catalog, call, &Beside::default(), budget)
    }

    /// The same for a call that is sent in one message with what stands `beside` it. That is looked at by itself
    /// elsewhere; here it is looked at for what stands in pieces in the whole message.
    pub fn admit_with(
        &self,
        principal: &Principal,
        catalog: Option<&Catalog>,
        call: Use,
        beside: &Beside,
        budget: &Budget,
    ) -> Ruling<Permit> {
        let kind = call.verb.kind();
        let offer = catalog.and_then(|catalog| catalog.offer(&call.name));
        let listed = offer.is_some() && catalog.is_some_and(|catalog| catalog.kind() == kind);
        let offer = offer.filter(|_| matches!(call.verb, Verb::Call | Verb::Task(_)));
        if let Some(offer) = offer {
            offer.prepare();
        }
        let ruling = self.decide(principal, catalog, call, budget);
        match ruling.outcome {
            Ok(permit) => {
                let sent = Sendable { offer, listed, beside };
                self.sendable(principal, sent, ruling.decision, permit, budget)
            }
            Err(denial) => Ruling { decision: ruling.decision, outcome: Err(denial) },
        }
    }

    fn decide(
        &self,
        principal: &Principal,
        catalog: Option<&Catalog>,
        mut call: Use,
        budget: &Budget,
    ) -> Ruling<Permit> {
        let kind = call.verb.kind();
        let catalog =
            catalog.filter(|catalog| catalog.kind() == kind && *catalog.server() == call.server);
        let shadows = self.shadows.load();
        let place = match catalog {
            Some(catalog) => catalog.place(&call.name),
            // Who has no list at hand goes by the last that was read.
            None => shadows.place(&call.server, kind, &call.name),
        };
        // The server is asked in its own spelling: to it another may be another resource.
        if let Some(Place::Listed(offer)) = place
            && offer.name().as_str() != &*call.name
        {
            call.name = offer.name().as_str().into();
        }
        let offer = place.map(Place::offer);
        let listed = if catalog.is_some() { Listed::Known } else { Listed::Unknown };
        if offer.is_none() && matches!(kind, Kind::Tool | Kind::Prompt | Kind::Template) {
            // What does not exist costs the look into the rules that what is hidden costs: the time would tell
            // one from the other most of all without it.
            drop(self.standing(principal, &call.server, kind, &call.name, (None, listed)));
            let (decision, denial) = Self::unknown(kind);
            return Ruling { decision, outcome: Err(denial) };
        }
        let Decided { decision: seen, for_any_arguments, .. } =
            self.standing(principal, &call.server, kind, &call.name, (offer, listed));
        match &seen.effect {
            // What lacks a scope may not be had with these arguments in any case.
            Effect::Deny(denial) if for_any_arguments || !denial.reason.is_step_up() => {
                let denial = denial.clone();
                return Ruling { decision: seen, outcome: Err(denial) };
            }
            Effect::Allow(rule) if for_any_arguments || !call.verb.takes_arguments() => {
                if let Some(ruling) = self.unattended(&call, &seen) {
                    return ruling;
                }
                let permit =
                    Permit { call: Call::Use(call), rule: rule.clone(), terms: Terms::default() };
                return Ruling { decision: seen, outcome: Ok(permit) };
            }
            Effect::Allow(_) | Effect::Deny(_) => {}
        }
        let arguments = match &call.arguments {
            None => Arguments::None,
            Some(arguments) => Arguments::Given(arguments.value(), budget),
        };
        let known = self.registered(&call.server, kind, &call.name);
        let decided = {
            let Ok(name) = rule_name(kind, &call.name, offer) else {
                // INVARIANT: what has no name for rules was denied above.
                let (decision, denial) = Self::unknown(kind);
                return Ruling { decision, outcome: Err(denial) };
            };
            let (server, name) = (&call.server, &*name);
            self.access.decide(Subject { principal, server, kind, name, arguments, known })
        };
        let Decided { decision: decided, contact, .. } = decided;
        match decided.effect {
            Effect::Allow(rule) => {
                if let Some(ruling) = self.unattended(&call, &seen) {
                    return ruling;
                }
                let effect = Effect::Allow(rule.clone());
                let (shadow, findings) = (decided.shadow, seen.findings);
                let (definition, ran) = (seen.definition, seen.ran);
                let decision = Decision { effect, shadow, findings, definition, ran };
                Ruling {
                    decision,
                    outcome: Ok(Permit { call: Call::Use(call), rule, terms: Terms::default() }),
                }
            }
            Effect::Deny(Denial { reason, told }) => {
                let told = match told {
                    Told::Rule { .. } => told,
                    Told::Nothing => {
                        let contact = contact.or_else(|| self.contact.clone());
                        Told::Rule { rule: reason.rule().cloned(), contact }
                    }
                };
                let denial = Denial { reason, told };
                let effect = Effect::Deny(denial.clone());
                let (shadow, findings) = (decided.shadow, seen.findings);
                let (definition, ran) = (seen.definition, seen.ran);
                let decision = Decision { effect, shadow, findings, definition, ran };
                Ruling { decision, outcome: Err(denial) }
            }
        }
    }

    /// The denial of a call that a person has to approve: there is nobody to ask.
    fn unattended(&self, call: &Use, seen: &Decision) -> Option<Ruling<Permit>> {
        let known = self.registered(&call.server, call.verb.kind(), &call.name)?;
        if !known.approval_required || !call.verb.takes_arguments() {
            return None;
        }
        let told = Told::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::Approval, told };
        let effect = Effect::Deny(denial.clone());
        let (shadow, findings) = (seen.shadow.clone(), seen.findings.clone());
        let (definition, mut ran) = (seen.definition, seen.ran);
        ran.note(Control::Registry);
        let decision = Decision { effect, shadow, findings, definition, ran };
        Some(Ruling { decision, outcome: Err(denial) })
    }
}

#[cfg(test)]
mod tests;
