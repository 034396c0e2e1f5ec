//! Inspects what is sent to a server, and determines what its reply must satisfy.

use std::sync::Arc;

use detection::content::{ChosenPart, ContentReport, Direction, TracePart, TrackerVersion};
use detection::inspect::{Detector, Finding};
use detection::labels::ConcealedMembers;
use json::{Document, Fragment, JsonBounds, Value};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::schema::SchemaViolation;
use policy_core::schema::declared;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;

use super::{Facts, Permit, Policy, ReplyTerms, Ruling};
use crate::definition::offer::{CatalogItem, ItemKind, ReadOnlyHint};
use crate::engine::message::{ClientRequest, ItemRequest, RequestExtras, RequestOperation};
use crate::engine::method::MethodSpec;
use crate::rules::constraint::Constraint;
use crate::rules::control::{Control, ControlSet};
use crate::rules::decision::{Decision, Denial, Disclosure, Effect, Mode, Reason};

/// Who has chosen the name in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameOrigin {
    /// The server: the name is listed.
    Server,
    /// The caller: the name is not listed.
    Caller,
}

/// Facts about a call that is to be sent.
#[derive(Clone, Copy)]
pub(super) struct OutgoingCall<'a> {
    /// The state under which it is decided.
    pub(super) facts: &'a Facts,
    /// The definition of the called tool.
    pub(super) offer: Option<&'a CatalogItem>,
    /// Who has chosen the name.
    pub(super) name: NameOrigin,
    /// Values sent in the same message.
    pub(super) beside: &'a RequestExtras,
}

/// Proof that what a client says to a server, in answer to it or of itself, was inspected, and may be sent to that
/// server. Only [`Policy::answerable`] mints one, and it cannot be copied.
///
/// ```
/// # fn read(answer: policy::engine::pipeline::Answerable) {
/// let said = answer.value();
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # fn forge(server: policy_core::subject::name::ServerName, answer: json::Fragment) {
/// let answer = policy::engine::pipeline::Answerable { server, answer }; // private fields
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an answer that is not sent leaves the server waiting"]
pub struct Answerable {
    server: ServerName,
    answer: Fragment,
}

impl Answerable {
    /// The server for which it was inspected: the detectors of another one may differ.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// What may be sent.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        self.answer.value()
    }

    /// What may be sent, as it is kept.
    #[must_use]
    pub const fn fragment(&self) -> &Fragment {
        &self.answer
    }

    /// The member `key`, if it is an object: a part of what was inspected.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<Self> {
        let member = self.answer.value().get(key).filter(|member| member.is_object())?;
        let answer = member.fragment(&self.answer.document());
        Some(Self { server: self.server.clone(), answer })
    }
}

/// Proof that a caller's trace context was inspected, and may be sent to that server. Only [`Policy::traceable`] mints one.
///
/// ```
/// # fn read(trace: policy::engine::pipeline::SendableTrace) {
/// let parent = trace.parent();
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # fn forge(server: policy_core::subject::name::ServerName, parent: Box<str>) {
/// let trace = policy::engine::pipeline::SendableTrace { server, parent, state: None }; // private fields
/// # }
/// ```
#[derive(Debug)]
pub struct SendableTrace {
    server: ServerName,
    parent: Box<str>,
    state: Option<Box<str>>,
}

impl SendableTrace {
    /// The server for which it was inspected.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// The text of `traceparent`.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// The text of `tracestate`, if there is one.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

impl Policy {
    /// Inspects an allowed call; the permit returned holds the call as it may be sent.
    pub(super) fn sendable(
        &self,
        principal: &Principal,
        OutgoingCall { facts, offer, name: origin, beside }: OutgoingCall<'_>,
        mut decision: Decision,
        mut permit: Permit,
        budget: &WorkBudget,
    ) -> Ruling<Permit> {
        let ClientRequest::Use(call) = &mut permit.call else {
            return Ruling { decision, outcome: Ok(permit) };
        };
        let (skill, read) = (permit.terms.skill.take(), permit.terms.read);
        permit.terms = ReplyTerms { skill, read, ..self.terms(principal, offer, call) };
        let (caller, contents) = (principal.id.as_str(), &self.contents);
        let mut blocked = None;
        decision.ran.note(Control::Arguments);
        // Names are not rewritten, because the decision was about them.
        let name = (origin == NameOrigin::Caller).then_some((place(call.verb), &*call.name));
        let keys = call.extra.iter().map(|(key, _)| ("/params", &**key));
        let keys = keys.chain(call.meta.iter().map(|(key, _)| ("/_meta", &**key)));
        for (at, text) in name.into_iter().chain(keys) {
            let seen = contents.look_strictly(&call.server, caller, text, budget);
            let placed = |finding: Finding| Finding { at: at.to_owned(), ..finding };
            decision.findings.extend(seen.findings.into_iter().map(placed));
            blocked = blocked.or(seen.blocked.map(placed));
        }
        let pieces = self.pieces(caller, call, name, beside, budget);
        let verb = call.verb;
        let extra = call.extra.iter_mut().filter(|(key, _)| !is_of_server(verb, key));
        let parts = call.arguments.iter_mut().chain(extra.map(|(_, value)| value));
        for part in parts.chain(call.meta.iter_mut().map(|(_, value)| value)) {
            let (passed, findings) = {
                let seen = contents.look_at_part(&call.server, caller, part.value(), budget);
                passed(seen, part.clone(), &JsonBounds::MESSAGE)
            };
            match passed {
                Ok(passed) => *part = passed,
                Err(finding) => blocked = blocked.or(Some(finding)),
            }
            decision.findings.extend(findings);
        }
        decision.findings.extend(pieces.findings);
        let Some(finding) = blocked.or(pieces.blocked) else {
            // Arguments are validated in the form in which they are sent.
            return match self.misfit(facts, caller, call, offer, &mut decision, budget) {
                Some(denial) => Ruling { decision, outcome: Err(denial) },
                None => Ruling { decision, outcome: Ok(permit) },
            };
        };
        let told = Disclosure::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::Content(finding), told };
        decision.effect = Effect::Deny(denial.clone());
        Ruling { decision, outcome: Err(denial) }
    }

    /// The honeytokens in a call that is denied for another reason.
    pub fn honeytokens_in(
        &self,
        principal: &Principal,
        call: &ItemRequest,
        budget: &WorkBudget,
    ) -> Vec<Finding> {
        let caller = principal.id.as_str();
        let members = call.extra.iter().chain(&call.meta).map(|(_, value)| value);
        let parts = call.arguments.iter().chain(members);
        let found = |part: &Fragment| {
            self.contents.honeytokens_in(&call.server, caller, part.value(), budget)
        };
        parts.flat_map(found).collect()
    }

    /// Finds data of other servers that is split across the parts of a message. A `name` chosen by the caller is one
    /// of the parts, given with its place.
    fn pieces(
        &self,
        caller: &str,
        call: &ItemRequest,
        name: Option<(&'static str, &str)>,
        beside: &RequestExtras,
        budget: &WorkBudget,
    ) -> ContentReport {
        if !self.contents.seeks(&call.server, caller) {
            return ContentReport::default();
        }
        let documents: Vec<_> = beside.client.iter().map(|text| document_of(text)).collect();
        let extra = call.extra.iter().filter(|(key, _)| !is_of_server(call.verb, key));
        let members = extra.chain(&call.meta);
        let mut parts: Vec<ChosenPart<'_>> = Vec::new();
        parts.extend(name.map(|(_, name)| ChosenPart::Text(name)));
        parts.extend(call.arguments.iter().map(|part| ChosenPart::Value(part.value())));
        parts.extend(members.map(|(key, part)| ChosenPart::Member(key, part.value())));
        parts.extend(beside.answers.iter().map(|part| ChosenPart::Value(part.value())));
        for (document, text) in documents.iter().zip(&beside.client) {
            match document {
                // A version follows every name.
                Some(document) => parts.push(ChosenPart::Members(document.root())),
                None => parts.push(ChosenPart::Text(text)),
            }
        }
        parts.extend(beside.trace.iter().map(|text| ChosenPart::Trace(text)));
        self.contents.look_together(&call.server, caller, &parts, budget)
    }

    /// The requirements for the reply to a call.
    pub(super) fn terms(
        &self,
        principal: &Principal,
        offer: Option<&CatalogItem>,
        call: &ItemRequest,
    ) -> ReplyTerms {
        let profile = self.contents.of(&call.server);
        let output = offer
            .and_then(CatalogItem::output)
            .filter(|_| profile.output_schema != Mode::Off)
            .map(|schema| (Arc::clone(schema), profile.output_schema));
        let calls = matches!(call.verb, RequestOperation::Call | RequestOperation::Task(_));
        let may = |label: &str| {
            let named = profile.fields.iter().filter(|(known, _)| **known == *label);
            named.into_iter().any(|(_, who)| who.iter().any(|who| who.is(principal)))
        };
        let known = self.registered(&call.server, ItemKind::Tool, &call.name).filter(|_| calls);
        let own = known.map(|known| &known.labels).into_iter();
        let labels = own.chain(offer.map(CatalogItem::labels));
        let hidden = ConcealedMembers::of(labels.clone(), may);
        let labelled = ConcealedMembers::of(labels, |_| false);
        let hint = offer.filter(|_| calls).map(|offer| ReadOnlyHint::of(offer.definition()));
        let hint = hint.unwrap_or_default();
        ReplyTerms { output, hidden, labelled, calls, hint, ..ReplyTerms::default() }
    }

    /// Whether arguments match the input schema, and the approved one where both apply; `None` if there is no schema.
    fn fits_schemas(
        &self,
        facts: &Facts,
        server: &ServerName,
        offer: &CatalogItem,
        arguments: Option<Value<'_>>,
        budget: &WorkBudget,
    ) -> Option<Result<(), SchemaViolation>> {
        let approved = facts.pins().approved_input(server.as_str(), offer);
        let mut schemas = offer.input().into_iter().chain(approved).peekable();
        schemas.peek()?;
        Some(schemas.try_for_each(|schema| {
            schema.get(server, &self.compiled, budget).check_arguments(arguments, budget)
        }))
    }

    /// Denies a call whose arguments violate the input schema or a constraint.
    fn misfit(
        &self,
        facts: &Facts,
        caller: &str,
        call: &ItemRequest,
        offer: Option<&CatalogItem>,
        decision: &mut Decision,
        budget: &WorkBudget,
    ) -> Option<Denial> {
        let (server, name) = (&call.server, &*call.name);
        let arguments = call.arguments.as_ref().map(Fragment::value);
        let mut ran = ControlSet::default();
        let mut enforced = None;
        let mut found = |mode: Mode, detector, misfit| {
            let finding = Finding::misfit(detector, "", misfit);
            let finding = self.contents.placed(server, caller, finding);
            if mode == Mode::Enforce && enforced.is_none() {
                enforced = Some(finding.clone());
            }
            decision.findings.push(finding);
        };
        let mode = self.contents.of(&call.server).input_schema;
        let checks = mode != Mode::Off && call.verb == RequestOperation::Call;
        if let Some(offer) = offer.filter(|_| checks)
            && let Some(fits) = self.fits_schemas(facts, server, offer, arguments, budget)
        {
            ran.note(Control::InputSchema);
            if let Err(misfit) = fits {
                found(mode, Detector::InputSchema, misfit);
            }
        }
        let undeclared = self.contents.of(&call.server).undeclared;
        let closes = undeclared != Mode::Off && call.verb == RequestOperation::Call;
        if let Some(offer) = offer.filter(|_| closes) {
            ran.note(Control::InputSchema);
            let schema = offer.definition().get("inputSchema");
            if let Some(misfit) = arguments.and_then(|given| declared::undeclared(schema, given)) {
                found(undeclared, Detector::InputSchema, misfit);
            }
        }
        let of = |constraint: &&Constraint| {
            call.verb == RequestOperation::Call && constraint.is_of(server, name)
        };
        let schema = offer.and_then(|offer| offer.definition().get("inputSchema"));
        for constraint in self.constraints.iter().filter(of) {
            ran.note(Control::Constraints);
            if let Err(misfit) = constraint.check(arguments, schema) {
                found(constraint.mode, Detector::Constraints, misfit);
            }
        }
        decision.ran.join(ran);
        // Arguments that were not checked completely are denied in every mode.
        let finding = match enforced {
            None if budget.is_exhausted() => {
                let finding = Finding::over_budget();
                decision.findings.push(finding.clone());
                finding
            }
            enforced => enforced?,
        };
        let told = Disclosure::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::Arguments(finding), told };
        decision.effect = Effect::Deny(denial.clone());
        Some(denial)
    }

    /// Inspects a client's response to an elicitation or sampling request, or its information about itself, and
    /// returns it as it may be sent.
    ///
    /// # Errors
    /// The finding, if it must not be sent.
    pub fn answerable(
        &self,
        principal: &Principal,
        server: &ServerName,
        answer: Fragment,
        budget: &WorkBudget,
    ) -> (Result<Answerable, Finding>, Vec<Finding>) {
        let caller = principal.id.as_str();
        let seen = self.contents.look(server, Direction::Argument, caller, answer.value(), budget);
        let (passed, findings) = passed(seen, answer, &JsonBounds::MESSAGE);
        (passed.map(|answer| Answerable { server: server.clone(), answer }), findings)
    }

    /// Whether these parts may be sent to `server` in one message: data of another server can be split across them.
    /// Each part is inspected individually elsewhere.
    ///
    /// # Errors
    /// The finding, if they must not be sent.
    pub fn joinable(
        &self,
        principal: &Principal,
        server: &ServerName,
        parts: &[ChosenPart<'_>],
        budget: &WorkBudget,
    ) -> (Result<(), Finding>, Vec<Finding>) {
        let caller = principal.id.as_str();
        let ContentReport { findings, blocked, .. } =
            self.contents.look_together(server, caller, parts, budget);
        (blocked.map_or(Ok(()), Err), findings)
    }

    /// A counter that changes whenever detectors may judge outgoing messages differently: they learn what callers
    /// were shown.
    #[must_use]
    pub fn learned(&self) -> u64 {
        self.contents.learned()
    }

    /// Like [`learned`](Self::learned), for what `principal` sends. Takes a contended lock: call it only after
    /// [`learned`](Self::learned) has changed.
    #[must_use]
    pub fn learned_of(&self, principal: &Principal) -> TrackerVersion {
        self.contents.learned_of(principal.id.as_str())
    }

    /// The caller's trace context as a server may receive it, with the findings in it; `None` if it is left out, because
    /// part of it would be replaced. `parent` is the text of `traceparent`, `state` that of `tracestate`.
    ///
    /// # Errors
    /// The finding, if the message must not be sent.
    pub fn traceable(
        &self,
        principal: &Principal,
        server: &ServerName,
        parent: &str,
        state: Option<&str>,
    ) -> (Result<Option<SendableTrace>, Finding>, Vec<Finding>) {
        let state_part = state.map(|state| ("tracestate", TracePart::State(state)));
        let parts = [Some(("traceparent", TracePart::Parent(parent))), state_part];
        // The texts come from headers, whose length is bounded elsewhere.
        let budget = WorkBudget::for_bytes(0, USUAL_MOST);
        let (mut whole, mut blocked, mut found) = (true, None, Vec::new());
        for (at, part) in parts.into_iter().flatten() {
            let seen = self.contents.look_at_trace(server, principal.id.as_str(), part, &budget);
            let placed = |finding: Finding| Finding { at: format!("/_meta/{at}"), ..finding };
            whole &= seen.changed.is_none();
            found.extend(seen.findings.into_iter().map(placed));
            blocked = blocked.or(seen.blocked.map(placed));
        }
        let trace = whole.then(|| SendableTrace {
            server: server.clone(),
            parent: parent.into(),
            state: state.map(Into::into),
        });
        (blocked.map_or(Ok(trace), Err), found)
    }
}

/// Whether a member of the params was chosen by the server: a task id, which was sealed until now.
fn is_of_server(verb: RequestOperation, key: &str) -> bool {
    matches!(verb, RequestOperation::Task(_)) && key == "taskId"
}

/// Parses the client's information about itself; `None` if it is not JSON.
fn document_of(text: &str) -> Option<Document> {
    Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).ok()
}

/// JSON Pointer of the name in a message.
fn place(verb: RequestOperation) -> &'static str {
    // The name that a task goes by is that of the tool whose call became the task.
    let is_task = matches!(verb, RequestOperation::Task(_));
    let named = if is_task { RequestOperation::Call } else { verb };
    let place = MethodSpec::of(named).and_then(|spec| spec.named);
    place.map_or("/method", |place| place.at)
}

/// The inspected value as it may pass, with its findings. A value that is not valid JSON after removals is withheld.
pub(super) fn passed(
    seen: ContentReport,
    came: Fragment,
    bounds: &JsonBounds,
) -> (Result<Fragment, Finding>, Vec<Finding>) {
    let ContentReport { findings, changed, blocked, .. } = seen;
    let passed = match (blocked, changed) {
        (Some(finding), _) => Err(finding),
        (None, None) => Ok(came),
        (None, Some(changed)) => Document::parse(changed.into(), bounds)
            .map(|document| Fragment::whole(Arc::new(document)))
            .map_err(|_error| findings.first().cloned().unwrap_or_else(Finding::unchanged)),
    };
    (passed, findings)
}
