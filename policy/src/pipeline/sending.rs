//! What may be sent, and what the reply to it is held to.

use std::sync::Arc;

use super::{Permit, Policy, Ruling, Terms};
use crate::constraint::Constraint;
use crate::content::{Direction, Seen};
use crate::control::{Control, Ran};
use crate::decision::{Decision, Denial, Effect, Mode, Reason, Told};
use crate::inspect::{Detector, Finding};
use crate::json::{Bounds, Document, Fragment};
use crate::labels::Concealed;
use crate::message::{Call, Use, Verb};
use crate::name::ServerName;
use crate::offer::{Kind, Offer};
use crate::principal::Principal;

impl Policy {
    /// The same, if what is sent may be, as it may be.
    pub(super) fn sendable(
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
        decision.ran.note(Control::Arguments);
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
            return match self.misfit(caller, call, offer, &mut decision) {
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
    pub(super) fn terms(&self, principal: &Principal, offer: Option<&Offer>, call: &Use) -> Terms {
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
        let labels = own.chain(offer.map(Offer::labels));
        let hidden = Concealed::of(labels.clone(), may);
        let labelled = Concealed::of(labels, |_| false);
        Terms { output, hidden, labelled, calls }
    }

    /// Whether the arguments of a call are as the definition and the policy say.
    pub(super) fn misfit(
        &self,
        caller: &str,
        call: &Use,
        offer: Option<&Offer>,
        decision: &mut Decision,
    ) -> Option<Denial> {
        let (server, name) = (&call.server, &*call.name);
        let arguments = call.arguments.as_ref().map(Fragment::value);
        let mut ran = Ran::default();
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
        let checks = mode != Mode::Off && call.verb == Verb::Call;
        let schema = offer.and_then(Offer::input).filter(|_| checks);
        if let Some(schema) = schema {
            ran.note(Control::InputSchema);
            if let Err(misfit) = schema.check_arguments(arguments) {
                found(mode, Detector::InputSchema, misfit);
            }
        }
        let of =
            |constraint: &&Constraint| call.verb == Verb::Call && constraint.is_of(server, name);
        for constraint in self.constraints.iter().filter(of) {
            ran.note(Control::Constraints);
            if let Err(misfit) = constraint.check(arguments) {
                found(constraint.mode, Detector::Constraints, misfit);
            }
        }
        decision.ran.join(ran);
        let finding = enforced?;
        let told = Told::Rule { rule: None, contact: self.contact.clone() };
        let denial = Denial { reason: Reason::Arguments(finding), told };
        decision.effect = Effect::Deny(denial.clone());
        Some(denial)
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
}

/// What may pass of what was looked at, and what was found in it. What cannot be read any more without
/// what was taken out does not pass.
pub(super) fn passed(
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
