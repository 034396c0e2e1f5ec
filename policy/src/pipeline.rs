//! Runs the checks and hands out the proofs the gateway needs to act.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::access::{Access, Decided};
use crate::clean;
use crate::condition::{Arguments, Subject};
use crate::constraint::Constraint;
use crate::content::{self, Contents, Direction, Over, Seen};
use crate::decision::{Decision, Denial, Effect, Mode, Reason, Told};
use crate::definitions::Definitions;
use crate::inspect::{self, Detector, Finding};
use crate::json::{Bounds, Document, Fragment, Value};
use crate::labels;
use crate::message::{Call, Reply, Use, Verb};
use crate::mode::Treatment;
use crate::name::{RuleId, ServerName};
use crate::offer::{Catalog, Kind, Offer};
use crate::pins::{Pins, Unfit};
use crate::principal::Principal;
use crate::registry::{Registered, Registry};
use crate::revoked::Revoked;
use crate::schema::{Misfit, Schema};
use crate::shadow::{Shadowing, Shadows};

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
    output: Option<(Arc<Schema>, Mode)>,
    /// Members that this caller does not see.
    hidden: Vec<Vec<Box<str>>>,
    /// It is a call of a tool, or what came of one.
    calls: bool,
}

impl Permit {
    /// The arguments, as they would be sent.
    #[must_use]
    pub fn arguments(&self) -> Option<&Fragment> {
        match &self.call {
            Call::List { .. } => None,
            Call::Use(call) => call.arguments.as_ref(),
        }
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
    /// The rule that allowed the call.
    #[must_use]
    pub const fn rule(&self) -> &RuleId {
        &self.rule
    }
}

/// Proof that a reply was checked and may be shown to the client.
#[derive(Debug)]
#[must_use = "a released reply that is not sent leaves the client waiting"]
pub struct Released {
    reply: Shown,
    findings: Vec<Finding>,
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
    revoked: ArcSwap<Revoked>,
    pins: ArcSwap<Pins>,
    shadowing: Shadowing,
    contents: Contents,
    constraints: Vec<Constraint>,
    shadows: ArcSwap<Shadows>,
    registry: Registry,
}

impl Policy {
    /// A policy of these rules and detectors; `contact` is whom a denied caller may ask. Nothing is
    /// approved yet: see [`Self::pin`].
    #[must_use]
    pub fn new(access: Access, definitions: Definitions, contact: Option<Arc<str>>) -> Self {
        Self { access, definitions, contact, ..Self::default() }
    }

    /// The same, with this done about things that could be taken for others.
    #[must_use]
    pub fn with_shadowing(self, shadowing: Shadowing) -> Self {
        Self { shadowing, ..self }
    }

    /// The same, with this done about what is said and sent.
    #[must_use]
    pub fn with_contents(self, contents: Contents) -> Self {
        Self { contents, ..self }
    }

    /// The same, with these arguments only.
    #[must_use]
    pub fn with_constraints(self, constraints: Vec<Constraint>) -> Self {
        Self { constraints, ..self }
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
    pub fn revoke(&self, revoked: Arc<Revoked>) {
        self.revoked.store(revoked);
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
    }

    /// May what `server` offers of `kind` be asked for on behalf of `principal`?
    pub fn admit_list(
        &self,
        principal: &Principal,
        server: &ServerName,
        kind: Kind,
    ) -> Ruling<Permit> {
        let (shadow, findings, definition) = (Vec::new(), Vec::new(), None);
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
                decision: Decision { effect, shadow, findings, definition },
                outcome: Err(denial),
            };
        };
        let effect = Effect::Allow(rule.clone());
        let permit = Permit {
            call: Call::List { server: server.clone(), kind },
            rule,
            terms: Terms::default(),
        };
        Ruling { decision: Decision { effect, shadow, findings, definition }, outcome: Ok(permit) }
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
        (Decision { effect, shadow: Vec::new(), findings: Vec::new(), definition: None }, denial)
    }

    /// May this call be sent?
    ///
    /// What the caller does not see is denied in the words of [`Self::about`], the function the
    /// list is made with. What the caller sees, used in a way no rule allows, is a denial the
    /// caller is told about. `catalog` is what the server offers of the kind the call is about; a
    /// tool, a prompt or a template that is not in it does not exist. A resource may exist without
    /// being listed, and a method never is.
    pub fn admit(
        &self,
        principal: &Principal,
        catalog: Option<&Catalog>,
        call: Use,
    ) -> Ruling<Permit> {
        let offer = catalog
            .and_then(|catalog| catalog.offer(&call.name))
            .filter(|_| matches!(call.verb, Verb::Call | Verb::Task(_)));
        let ruling = self.decide(principal, catalog, call);
        match ruling.outcome {
            Ok(permit) => self.sendable(principal, offer, ruling.decision, permit),
            Err(denial) => Ruling { decision: ruling.decision, outcome: Err(denial) },
        }
    }

    /// The same, if what is sent may be, as it may be.
    fn sendable(
        &self,
        principal: &Principal,
        offer: Option<&Offer>,
        mut decision: Decision,
        mut permit: Permit,
    ) -> Ruling<Permit> {
        let Call::Use(call) = &mut permit.call else {
            return Ruling { decision, outcome: Ok(permit) };
        };
        permit.terms = self.terms(principal, offer, call);
        let (caller, contents) = (principal.id.as_str(), &self.contents);
        let mut blocked = None;
        let parts = call.arguments.iter_mut().chain(call.extra.iter_mut().map(|(_, value)| value));
        for part in parts.chain(call.meta.iter_mut().map(|(_, value)| value)) {
            let (passed, findings) = {
                let seen = contents.look(&call.server, Direction::Argument, caller, part.value());
                passed(seen, part.clone(), &Bounds::MESSAGE)
            };
            match passed {
                Ok(passed) => *part = passed,
                Err(finding) => blocked = blocked.or(Some(finding)),
            }
            decision.findings.extend(findings);
        }
        let Some(finding) = blocked else {
            // What is sent has to fit, as it is sent.
            return match self.misfit(call, offer, &mut decision) {
                Some(denial) => Ruling { decision, outcome: Err(denial) },
                None => Ruling { decision, outcome: Ok(permit) },
            };
        };
        let told = Told::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::Content(finding), told };
        decision.effect = Effect::Deny(denial.clone());
        Ruling { decision, outcome: Err(denial) }
    }

    /// What the reply to a call is held to.
    fn terms(&self, principal: &Principal, offer: Option<&Offer>, call: &Use) -> Terms {
        let profile = self.contents.of(&call.server);
        let output = offer
            .and_then(Offer::output)
            .filter(|_| profile.output_schema != Mode::Off)
            .map(|schema| (Arc::clone(schema), profile.output_schema));
        let calls = matches!(call.verb, Verb::Call | Verb::Task(_));
        let may = |label: &str| {
            let named = profile.fields.iter().filter(|(known, _)| **known == *label);
            named.into_iter().any(|(_, who)| who.iter().any(|who| who.is(principal)))
        };
        let known = self.registered(&call.server, Kind::Tool, &call.name).filter(|_| calls);
        let own = known.map(|known| &known.labels).into_iter();
        let labels = own.chain(offer.map(Offer::labels)).flat_map(|labels| labels.hidden(may));
        Terms { output, hidden: labels.map(<[_]>::to_vec).collect(), calls }
    }

    /// Whether the arguments of a call are as the definition and the policy say.
    fn misfit(&self, call: &Use, offer: Option<&Offer>, decision: &mut Decision) -> Option<Denial> {
        let (server, name) = (call.server.as_str(), &*call.name);
        let arguments = call.arguments.as_ref().map(Fragment::value);
        let mut enforced = None;
        let mut found = |mode: Mode, detector, misfit| {
            let finding = Finding::misfit(detector, "", misfit);
            if mode == Mode::Enforce && enforced.is_none() {
                enforced = Some(finding.clone());
            }
            decision.findings.push(finding);
        };
        let mode = self.contents.of(&call.server).input_schema;
        let checks = mode != Mode::Off && call.verb == Verb::Call;
        let schema = offer.and_then(Offer::input).filter(|_| checks);
        if let Some(Err(misfit)) = schema.map(|schema| schema.check_arguments(arguments)) {
            found(mode, Detector::InputSchema, misfit);
        }
        let of =
            |constraint: &&Constraint| call.verb == Verb::Call && constraint.is_of(server, name);
        for constraint in self.constraints.iter().filter(of) {
            if let Err(misfit) = constraint.check(arguments) {
                found(constraint.mode, Detector::Constraints, misfit);
            }
        }
        let finding = enforced?;
        let told = Told::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::Arguments(finding), told };
        decision.effect = Effect::Deny(denial.clone());
        Some(denial)
    }

    fn decide(
        &self,
        principal: &Principal,
        catalog: Option<&Catalog>,
        call: Use,
    ) -> Ruling<Permit> {
        let kind = call.verb.kind();
        let catalog =
            catalog.filter(|catalog| catalog.kind() == kind && *catalog.server() == call.server);
        let shadows = self.shadows.load();
        let offer = match catalog {
            Some(catalog) => catalog.offer(&call.name),
            // Who has no list at hand goes by the last that was read.
            None => shadows.offer(&call.server, kind, &call.name),
        };
        let listed = if catalog.is_some() { Listed::Known } else { Listed::Unknown };
        if offer.is_none() && matches!(kind, Kind::Tool | Kind::Prompt | Kind::Template) {
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
            Some(arguments) => Arguments::Given(arguments.value()),
        };
        let known = self.registered(&call.server, kind, &call.name);
        let subject =
            Subject { principal, server: &call.server, kind, name: &call.name, arguments, known };
        let Decided { decision: decided, contact, .. } = self.access.decide(subject);
        match decided.effect {
            Effect::Allow(rule) => {
                if let Some(ruling) = self.unattended(&call, &seen) {
                    return ruling;
                }
                let effect = Effect::Allow(rule.clone());
                let (shadow, findings) = (decided.shadow, seen.findings);
                let definition = seen.definition;
                let decision = Decision { effect, shadow, findings, definition };
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
                let definition = seen.definition;
                let decision = Decision { effect, shadow, findings, definition };
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
        let definition = seen.definition;
        let decision = Decision { effect, shadow, findings, definition };
        Some(Ruling { decision, outcome: Err(denial) })
    }

    /// May this reply be shown?
    pub fn release(&self, principal: &Principal, due: Expectation, reply: Reply) -> Released {
        let Expectation { server, terms, .. } = due;
        match reply {
            Reply::List(catalog) => {
                let reply = Shown::List(Arc::new(self.view(principal, catalog)));
                Released { reply, findings: Vec::new() }
            }
            Reply::Result(said) => self.answered(principal, &server, &terms, said),
            Reply::Error(said) => self.heard(principal, &server, said, Reply::Error),
            Reply::Told(said) => self.heard(principal, &server, said, Reply::Told),
        }
    }

    /// A result as it may be shown.
    fn answered(
        &self,
        principal: &Principal,
        server: &ServerName,
        terms: &Terms,
        said: Fragment,
    ) -> Released {
        let misfit = terms.output.as_ref();
        let misfit = misfit.and_then(|(schema, mode)| Some((*mode, unlike(said.value(), schema)?)));
        if let Some((Mode::Enforce, finding)) = misfit {
            let reply = Shown::Withheld(finding.clone());
            return Released { reply, findings: vec![finding] };
        }
        let caller = principal.id.as_str();
        let hidden: Vec<&[Box<str>]> = terms.hidden.iter().map(|at| &**at).collect();
        let mark = |value: &str| self.contents.mark(server, caller, value);
        let cut = match hidden.is_empty() {
            true => None,
            false => labels::without(said.value(), &hidden, &mark),
        };
        let (said, values, mut found) = match cut {
            None => (said, BTreeSet::new(), Vec::new()),
            Some(cut) => match Document::parse(cut.text.into(), &Bounds::ANSWER) {
                Ok(document) => (Fragment::whole(Arc::new(document)), cut.values, cut.findings),
                Err(_unreadable) => {
                    let reply = Shown::Withheld(Finding::unchanged());
                    return Released { reply, findings: cut.findings };
                }
            },
        };
        let seen = self.contents.look_without(server, caller, said.value(), &values);
        let (passed, findings) = passed(seen, said, &Bounds::ANSWER);
        found.extend(misfit.map(|(_, finding)| finding));
        found.extend(findings);
        let reply = match passed {
            Ok(said) => self.fitted(server, terms, said, &mut found),
            Err(finding) => Shown::Withheld(finding),
        };
        Released { reply, findings: found }
    }

    /// A result as long as it may be.
    fn fitted(
        &self,
        server: &ServerName,
        terms: &Terms,
        said: Fragment,
        found: &mut Vec<Finding>,
    ) -> Shown {
        let size = self.contents.of(server).size.filter(|_| terms.calls);
        let length = said.value().raw().len();
        let Some(size) = size.filter(|size| length > size.most) else {
            return Shown::Answer(Reply::Result(said));
        };
        found.push(Finding::too_long());
        let cut = || {
            let text = content::truncated(said.value(), size.most)?;
            let document = Document::parse(text.into(), &Bounds::ANSWER).ok()?;
            Some(Shown::Answer(Reply::Result(Fragment::whole(Arc::new(document)))))
        };
        match size.over {
            Over::Offload => Shown::Apart(said),
            Over::Truncate => cut().unwrap_or_else(|| Shown::Withheld(Finding::too_long())),
            Over::Refuse => Shown::Withheld(Finding::too_long()),
        }
    }

    /// May this be shown, which the server said before it replied, or without being asked? A reply
    /// that is due is so still.
    pub fn release_early(
        &self,
        principal: &Principal,
        server: &ServerName,
        told: Fragment,
    ) -> Released {
        self.heard(principal, server, told, Reply::Told)
    }

    /// Whether results of tools of `server` that are too long are kept to be read.
    #[must_use]
    pub fn keeps(&self, server: &ServerName) -> bool {
        self.contents.of(server).size.is_some_and(|size| size.over == Over::Offload)
    }

    /// What is found in something that is said by a server or sent to it, and what becomes of it.
    #[must_use]
    pub fn looked_at(&self, server: &ServerName, direction: Direction, value: Value<'_>) -> Seen {
        self.contents.look(server, direction, "", value)
    }

    /// What a caller answers to a server, as it may be sent.
    ///
    /// # Errors
    /// What was found, if it is not sent for it.
    pub fn answerable(
        &self,
        principal: &Principal,
        server: &ServerName,
        answer: Fragment,
    ) -> (Result<Fragment, Finding>, Vec<Finding>) {
        let caller = principal.id.as_str();
        let seen = self.contents.look(server, Direction::Argument, caller, answer.value());
        passed(seen, answer, &Bounds::MESSAGE)
    }

    /// What a server said, as it may be shown: every string of it was looked at.
    fn heard(
        &self,
        principal: &Principal,
        server: &ServerName,
        said: Fragment,
        reply: fn(Fragment) -> Reply,
    ) -> Released {
        let seen =
            self.contents.look(server, Direction::Result, principal.id.as_str(), said.value());
        let (passed, findings) = passed(seen, said, &Bounds::ANSWER);
        let reply = match passed {
            Ok(said) => Shown::Answer(reply(said)),
            Err(finding) => Shown::Withheld(finding),
        };
        Released { reply, findings }
    }

    /// Shows a view again, if it was made for `principal`; the caller keeps views with the policy
    /// they were made under and with their catalogue.
    pub fn release_again(
        &self,
        principal: &Principal,
        due: Expectation,
        view: &Arc<View>,
    ) -> Released {
        if !self.holds(view, principal) {
            return self.release(principal, due, Reply::List(Arc::clone(&view.catalog)));
        }
        Released { reply: Shown::List(Arc::clone(view)), findings: Vec::new() }
    }

    fn view(&self, principal: &Principal, catalog: Arc<Catalog>) -> View {
        let (mut visible, mut hidden) = (Vec::new(), Vec::new());
        let (revoked, pins) = (self.revoked.load_full(), self.pins.load_full());
        let shadows = self.shadows.load_full();
        for (at, offer) in catalog.offers().iter().enumerate() {
            let decision = self.about(principal, catalog.server(), offer);
            match self.cleaned(offer) {
                Ok(cleaned) if decision.shows() => visible.push((at, cleaned)),
                Ok(_) | Err(_) => hidden.push((at, decision)),
            }
        }
        View { principal: principal.clone(), revoked, pins, shadows, catalog, visible, hidden }
    }

    /// The first finding for which a text is withheld, whoever asks.
    #[must_use]
    pub fn withholds<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        findings.iter().find(|finding| {
            let treatment = self.definitions.treatment(finding.detector);
            matches!(treatment, Treatment::Enforce | Treatment::Strip)
        })
    }

    /// The definition as it is shown, where something has to be taken out of it. What is left is
    /// looked at anew, by every detector: taking out can join what stood apart.
    ///
    /// # Errors
    /// What is found after that.
    pub fn cleaned(&self, offer: &Offer) -> Result<Option<Arc<Document>>, Finding> {
        offer.cleaned(|| self.clean(offer))
    }

    fn clean(&self, offer: &Offer) -> Result<Option<Arc<Document>>, Finding> {
        let strips =
            |finding: &Finding| self.definitions.treatment(finding.detector) == Treatment::Strip;
        let Some(first) = offer.findings().iter().find(|finding| strips(finding)) else {
            return Ok(None);
        };
        let text = clean::definition(offer.definition(), self.definitions.cleaning());
        // INVARIANT: cleaning makes nothing longer than its bounds.
        let document = Document::parse(text.into(), &Bounds::ANSWER);
        let document = document.map_err(|_error| first.clone())?;
        match self.withholds(&inspect::text(document.root())) {
            Some(left) => Err(left.clone()),
            None => Ok(Some(Arc::new(document))),
        }
    }

    /// Does `offer` exist for `principal`? The one answer behind both the list and the call.
    #[must_use]
    pub fn about(&self, principal: &Principal, server: &ServerName, offer: &Offer) -> Decision {
        let (kind, name) = (offer.kind(), offer.name().as_str());
        self.standing(principal, server, kind, name, (Some(offer), Listed::Known)).decision
    }

    fn standing(
        &self,
        principal: &Principal,
        server: &ServerName,
        kind: Kind,
        name: &str,
        (offer, listed): (Option<&Offer>, Listed),
    ) -> Decided {
        let known = self.registered(server, kind, name);
        let arguments = Arguments::Unknown;
        let subject = Subject { principal, server, kind, name, arguments, known };
        let mut decided = self.access.decide(subject);
        let decision = &mut decided.decision;
        decision.definition = offer.and_then(Offer::digest);
        let revoked = self.revoked.load();
        if revoked.has_principal(principal) || revoked.has(server, name) {
            let denial = Denial { reason: Reason::Revoked, told: Told::Nothing };
            decision.effect = Effect::Deny(denial);
            decided.for_any_arguments = true;
        }
        self.pinned(&mut decided, subject, offer, listed);
        let definition = offer.map(Offer::definition);
        if let (Some(known), Some(definition)) = (subject.known, definition)
            && decided.decision.shows()
            && !known.fits(definition)
        {
            let finding = Finding::unregistered();
            let reason = Reason::Definition(finding.clone());
            decided.decision.effect = Effect::Deny(Denial { reason, told: Told::Nothing });
            decided.decision.findings.push(finding);
            decided.for_any_arguments = true;
        }
        self.shadowed(&mut decided, subject);
        let decision = &mut decided.decision;
        let findings = offer.map(Offer::findings).unwrap_or_default();
        if findings.is_empty() {
            return decided;
        }
        let of = |treatment| {
            let treated = move |f: &&Finding| self.definitions.treatment(f.detector) == treatment;
            findings.iter().filter(treated).cloned()
        };
        let mut enforced: Vec<Finding> = of(Treatment::Enforce).collect();
        if let (true, Some(Err(left))) = (enforced.is_empty(), offer.map(|o| self.cleaned(o))) {
            enforced.push(left);
        }
        decision.findings.extend(of(Treatment::Audit).chain(of(Treatment::Strip)));
        if let (true, Some(finding)) = (decision.shows(), enforced.first()) {
            let reason = Reason::Definition(finding.clone());
            decision.effect = Effect::Deny(Denial { reason, told: Told::Nothing });
        }
        decision.findings.extend(enforced);
        decided
    }

    /// Whether it could be taken for something else that this caller sees, and gives way to it.
    fn shadowed(&self, decided: &mut Decided, subject: Subject<'_>) {
        let Subject { principal, server, kind, name, .. } = subject;
        let shadows = self.shadows.load();
        let conflicts = shadows.of(server, kind, name);
        if conflicts.is_empty() || !decided.decision.shows() {
            return;
        }
        let pins = self.pins.load();
        for conflict in conflicts {
            let mode = self.shadowing.of(conflict.likeness);
            let rival = conflict.rival.as_ref();
            let seen = rival.is_none_or(|(rival, other)| {
                self.sees(principal, rival, kind, other, &shadows, &pins)
            });
            if mode == Mode::Off || !seen {
                continue;
            }
            let finding = Finding::shadowing(conflict.to_string());
            let yields = self.shadowing.yields(conflict, &pins, server, kind, name);
            if mode == Mode::Enforce && yields {
                let reason = Reason::Shadowed(finding.clone());
                decided.decision.effect = Effect::Deny(Denial { reason, told: Told::Nothing });
                decided.for_any_arguments = true;
            }
            decided.decision.findings.push(finding);
            if !decided.decision.shows() {
                return;
            }
        }
    }

    /// Whether `principal` sees the other thing, aside from what it could be taken for: one that is
    /// withheld anyway drives nothing out.
    fn sees(
        &self,
        principal: &Principal,
        server: &ServerName,
        kind: Kind,
        name: &str,
        shadows: &Shadows,
        pins: &Pins,
    ) -> bool {
        if name.is_empty() {
            return self.grants_any(principal, server);
        }
        let Some(offer) = shadows.offer(server, kind, name) else { return false };
        let known = self.registered(server, kind, name);
        let arguments = Arguments::Unknown;
        let subject = Subject { principal, server, kind, name, arguments, known };
        let revoked = self.revoked.load();
        self.access.decide(subject).decision.shows()
            && !revoked.has(server, name)
            && (pins.mode != Mode::Enforce
                || pins.unfit(server.as_str(), kind, name, Some(offer)).is_none())
            && self.withholds(offer.findings()).is_none()
    }

    /// Whether the definition is one that was approved: asked of what the rules would show.
    fn pinned(
        &self,
        decided: &mut Decided,
        subject: Subject<'_>,
        offer: Option<&Offer>,
        listed: Listed,
    ) {
        let pins = self.pins.load();
        if pins.mode == Mode::Off || !decided.decision.shows() {
            return;
        }
        let Subject { server, kind, name, .. } = subject;
        let unfit = match (offer, listed) {
            (None, Listed::Unknown) => pins.unfit_unlisted(server.as_str(), kind, name),
            _ => pins.unfit(server.as_str(), kind, name, offer),
        };
        let Some(unfit) = unfit else { return };
        if pins.mode == Mode::Audit {
            decided.decision.findings.push(Finding::unfit(unfit.note()));
            return;
        }
        let denial = Denial { reason: Reason::Pin(unfit), told: Told::Nothing };
        decided.decision.effect = Effect::Deny(denial);
        decided.for_any_arguments = true;
    }
}

/// What may pass of what was looked at, and what was found in it. What cannot be read any more without
/// what was taken out does not pass.
fn passed(
    seen: Seen,
    came: Fragment,
    bounds: &Bounds,
) -> (Result<Fragment, Finding>, Vec<Finding>) {
    let Seen { findings, changed, blocked, .. } = seen;
    let passed = match (blocked, changed) {
        (Some(finding), _) => Err(finding),
        (None, None) => Ok(came),
        (None, Some(changed)) => Document::parse(changed.into(), bounds)
            .map(|document| Fragment::whole(Arc::new(document)))
            .map_err(|_error| findings.first().cloned().unwrap_or_else(Finding::unchanged)),
    };
    (passed, findings)
}

/// What of a result is not as the definition says; of one that says that the call failed nothing, and
/// of one that says that the call goes on nothing yet.
///
/// SPEC 2026-07-28 server/tools#output-schema
fn unlike(result: Value<'_>, schema: &Schema) -> Option<Finding> {
    let is_answer = |value: Value<'_>| {
        ["content", "structuredContent"].iter().any(|name| value.get(name).is_some())
    };
    let goes_on =
        result.get("resultType").and_then(Value::as_str).is_some_and(|kind| kind != "complete");
    let of_task =
        ["task", "taskId", "result", "status"].iter().any(|name| result.get(name).is_some());
    let (result, at) = match result.get("result").filter(|inner| is_answer(*inner)) {
        Some(inner) if !is_answer(result) => (inner, "/result/structuredContent"),
        _ if !is_answer(result) && (of_task || goes_on) => return None,
        _ => (result, "/structuredContent"),
    };
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let missing = || Misfit { at: String::new(), note: "is missing".to_owned() };
    let checked = match result.get("structuredContent") {
        Some(content) => schema.check(Some(content)),
        None => Err(missing()),
    };
    Some(Finding::misfit(Detector::OutputSchema, at, checked.err()?))
}

#[cfg(test)]
mod tests;
