//! Whether a thing exists for a caller: the one answer behind lists and calls.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Listed, Policy};
use crate::access::Decided;
use crate::clean;
use crate::condition::{Arguments, Subject};
use crate::control::Control;
use crate::decision::{Decision, Denial, Effect, Mode, Reason, Told};
use crate::inspect;
use crate::inspect::{Excused, Finding};
use crate::json::{Bounds, Document};
use crate::mode::Treatment;
use crate::name::ServerName;
use crate::offer::{Catalog, Kind, Offer};
use crate::pin::Digest;
use crate::pins::{Linked, Pins};
use crate::principal::Principal;
use crate::shadow::Shadows;
use crate::uri::{ResourceUri, UriError};
use crate::work::{Budget, USUAL_MOST};

impl Policy {
    /// The first finding for which a text is withheld, whoever asks.
    #[must_use]
    pub fn withholds<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        self.withholds_but(findings, Excused::default())
    }

    /// The same without those that somebody has accepted.
    #[must_use]
    pub fn withholds_but<'a>(
        &self,
        findings: &'a [Finding],
        excused: Excused,
    ) -> Option<&'a Finding> {
        findings.iter().find(|finding| {
            let treatment = self.definitions.treatment(finding.detector);
            matches!(treatment, Treatment::Enforce | Treatment::Strip) && !excused.covers(finding)
        })
    }

    /// What was found in `offer` and accepted, as long as its definition is the one that was approved.
    pub(super) fn excused(&self, server: &ServerName, offer: &Offer) -> Excused {
        if offer.findings().is_empty() {
            return Excused::default();
        }
        let (kind, name) = (Some(offer.kind()), offer.name().as_str());
        self.pins.load().excused(server.as_str(), kind, name, offer.digest())
    }

    /// What was found and accepted in what `server` says of itself, as long as that has this digest.
    #[must_use]
    pub fn excused_of_server(&self, server: &str, digest: Option<Digest>) -> Excused {
        self.pins.load().excused(server, None, "", digest)
    }

    /// Every finding for which the definition of `offer` is withheld from everybody, where `excused` is accepted:
    /// those that are enforced, else what is found in it when it is cleaned.
    #[must_use]
    pub fn withheld(&self, offer: &Offer, excused: Excused) -> Vec<Finding> {
        let found = self.enforced(offer, excused);
        if found.is_empty() {
            return self.cleaned(offer, excused).err().into_iter().collect();
        }
        found
    }

    /// The findings that are enforced, without those that somebody has accepted.
    fn enforced(&self, offer: &Offer, excused: Excused) -> Vec<Finding> {
        let counts = |finding: &&Finding| {
            self.definitions.treatment(finding.detector) == Treatment::Enforce
                && !excused.covers(finding)
        };
        offer.findings().iter().filter(counts).cloned().collect()
    }

    /// The same of `offer` as `server` lists it now. Nothing is cleaned for it.
    #[must_use]
    pub fn enforced_now(&self, server: &ServerName, offer: &Offer) -> Vec<Finding> {
        self.enforced(offer, self.excused(server, offer))
    }

    /// What [`Self::withheld`] says of `offer` as `server` lists it now.
    #[must_use]
    pub fn withheld_now(&self, server: &ServerName, offer: &Offer) -> Vec<Finding> {
        if offer.findings().is_empty() {
            return Vec::new();
        }
        self.withheld(offer, self.excused(server, offer))
    }

    /// The definition as it is shown, where something has to be taken out of it. What is left is
    /// looked at anew, by every detector: taking out can join what stood apart.
    ///
    /// # Errors
    /// What is found after that.
    pub fn cleaned(
        &self,
        offer: &Offer,
        excused: Excused,
    ) -> Result<Option<Arc<Document>>, Finding> {
        let length = offer.definition().span().len();
        let clean = || self.clean(offer, excused, &Budget::for_bytes(length, USUAL_MOST));
        offer.cleaned(excused, clean)
    }

    /// Works out what [`Self::cleaned`] gives for every definition of a catalogue, at the cost of `budget`.
    pub fn clean_all(&self, catalog: &Catalog, budget: &Budget) {
        for offer in catalog.offers().iter().filter(|offer| !offer.is_cleaned()) {
            let excused = self.excused(catalog.server(), offer);
            drop(offer.cleaned(excused, || self.clean(offer, excused, budget)));
        }
    }

    pub(super) fn clean(
        &self,
        offer: &Offer,
        excused: Excused,
        budget: &Budget,
    ) -> Result<Option<Arc<Document>>, Finding> {
        let strips = |finding: &&Finding| {
            self.definitions.treatment(finding.detector) == Treatment::Strip
                && !excused.covers(finding)
        };
        let Some(first) = offer.findings().iter().find(strips) else {
            return Ok(None);
        };
        let text = clean::definition(offer.definition(), self.definitions.cleaning(excused));
        // INVARIANT: cleaning makes nothing longer than its bounds.
        let document = Document::parse(text.into(), &Bounds::ANSWER);
        let document = document.map_err(|_error| first.clone())?;
        // What was accepted is what stood there before: what is found at another place is new.
        let mut left = inspect::text(document.root(), budget);
        left.retain(|one| {
            let was = offer.findings().iter().filter(|former| excused.covers(former));
            !was.into_iter().any(|was| (was.detector, &was.at) == (one.detector, &one.at))
        });
        match self.withholds(&left) {
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

    pub(super) fn standing(
        &self,
        principal: &Principal,
        server: &ServerName,
        kind: Kind,
        name: &str,
        (offer, listed): (Option<&Offer>, Listed),
    ) -> Decided {
        let rule_name = match rule_name(kind, name, offer) {
            Ok(rule_name) => rule_name,
            Err(error) => return uncomparable(kind, error),
        };
        let known = self.registered(server, kind, name);
        let arguments = Arguments::Unknown;
        let subject = Subject { principal, server, kind, name: &rule_name, arguments, known };
        let mut decided = self.access.decide(subject);
        let decision = &mut decided.decision;
        decision.definition = offer.and_then(Offer::digest);
        let revoked = self.revoked.load();
        decision.ran.note(Control::Revocation);
        if revoked.has_principal(principal) || revoked.has(server, &rule_name) {
            let denial = Denial { reason: Reason::Revoked, told: Told::Nothing };
            decision.effect = Effect::Deny(denial);
            decided.for_any_arguments = true;
        }
        self.pinned(&mut decided, subject, offer, listed);
        let definition = offer.map(Offer::definition);
        if let (Some(known), Some(definition)) = (subject.known, definition)
            && decided.decision.shows()
            && asked(&mut decided, Control::Registry)
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
        decision.ran.note(Control::Definitions);
        let findings = offer.map(Offer::findings).unwrap_or_default();
        if findings.is_empty() {
            return decided;
        }
        let excused = offer.map(|offer| self.excused(server, offer)).unwrap_or_default();
        let of = |treatment| {
            let treated = move |f: &&Finding| {
                self.definitions.treatment(f.detector) == treatment && !excused.covers(f)
            };
            findings.iter().filter(treated).cloned()
        };
        let enforced = offer.map(|offer| self.withheld(offer, excused)).unwrap_or_default();
        decision.findings.extend(self.accepted(server, offer));
        decision.findings.extend(of(Treatment::Audit).chain(of(Treatment::Strip)));
        if let (true, Some(finding)) = (decision.shows(), enforced.first()) {
            let reason = Reason::Definition(finding.clone());
            decision.effect = Effect::Deny(Denial { reason, told: Told::Nothing });
        }
        decision.findings.extend(enforced);
        decided
    }

    /// What was found in `offer` and would count if nobody had accepted it, with who has.
    fn accepted(&self, server: &ServerName, offer: Option<&Offer>) -> Vec<Finding> {
        let Some(offer) = offer else { return Vec::new() };
        let pins = self.pins.load();
        let (kind, name) = (Some(offer.kind()), offer.name().as_str());
        let exceptions = pins.exceptions(server.as_str(), kind, name, offer.digest());
        let by = |finding: &Finding| {
            let mut of = exceptions.iter().filter(|one| one.finding == finding.detector);
            let is_ignored = self.definitions.treatment(finding.detector) == Treatment::Off;
            let exception = of.next().filter(|_| !is_ignored && finding.unacceptable().is_none());
            exception.map(|exception| finding.accepted_by(&exception.by))
        };
        offer.findings().iter().filter_map(by).collect()
    }

    /// Whether it could be taken for something else that this caller sees, and gives way to it.
    pub(super) fn shadowed(&self, decided: &mut Decided, subject: Subject<'_>) {
        let Subject { principal, server, kind, name, .. } = subject;
        let shadows = self.shadows.load();
        let conflicts = shadows.of(server, kind, name);
        decided.decision.ran.note(Control::Shadowing);
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
    pub(super) fn sees(
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
        let known = self.registered(server, kind, name);
        let arguments = Arguments::Unknown;
        let subject = Subject { principal, server, kind, name, arguments, known };
        if !self.access.decide(subject).decision.shows() || self.revoked.load().has(server, name) {
            return false;
        }
        let enforced = pins.mode == Mode::Enforce;
        let id = server.as_str();
        let fits = |offer: &&Offer| !enforced || pins.unfit(id, kind, name, Some(offer)).is_none();
        // As long as its server has not listed it what was approved stands for it.
        let stands = || !enforced || pins.unfit_unlisted(id, kind, name, Linked::No).is_none();
        let approved = shadows.approved(server, kind, name).filter(|_| stands());
        let mut offers = shadows.listed(server, kind, name).filter(fits).chain(approved);
        offers.any(|offer| {
            self.withholds_but(offer.findings(), self.excused(server, offer)).is_none()
        })
    }

    /// Whether the definition is one that was approved: asked of what the rules would show.
    pub(super) fn pinned(
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
        decided.decision.ran.note(Control::Pins);
        let Subject { principal, server, kind, name, .. } = subject;
        let linked = self.linked(principal, server, kind, name);
        let server = server.as_str();
        let of_offer = |offer: &Offer| {
            pins.unfit_for(server, kind, offer.name().as_str(), Some(offer), linked)
        };
        let unfit = match (offer, listed) {
            (None, Listed::Unknown) => pins.unfit_unlisted(server, kind, name, linked),
            (None, Listed::Known) => pins.unfit_for(server, kind, name, None, linked),
            // It is not listed itself, and so has no approval that counts: it is held to that of the other.
            (Some(offer), _) if offer.rule_name() != Ok(name) => {
                pins.unfit_beside(server, name, offer, linked)
            }
            (Some(offer), _) => of_offer(offer),
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

impl Policy {
    /// Whether `principal` was given a link to the resource `name`, a URI in canonical form.
    fn linked(&self, principal: &Principal, server: &ServerName, kind: Kind, name: &str) -> Linked {
        let given = || {
            self.links
                .of(principal)
                .is_some_and(|given| given.has(principal, server.as_str(), name))
        };
        if kind == Kind::Resource && given() { Linked::Given } else { Linked::No }
    }
}

/// What rules and revocations call a thing: of a resource or a template its URI in canonical form.
///
/// # Errors
/// When it has none.
pub(super) fn rule_name<'a>(
    kind: Kind,
    name: &'a str,
    offer: Option<&'a Offer>,
) -> Result<Cow<'a, str>, UriError> {
    match (kind, offer) {
        (Kind::Tool | Kind::Prompt | Kind::Method, _) => Ok(Cow::Borrowed(name)),
        (Kind::Resource | Kind::Template, Some(offer)) if offer.name().as_str() == name => {
            offer.rule_name().map(Cow::Borrowed)
        }
        (Kind::Resource, _) => {
            ResourceUri::parse(name).map(|uri| Cow::Owned(uri.as_str().to_owned()))
        }
        (Kind::Template, _) => {
            ResourceUri::template(name).map(|uri| Cow::Owned(uri.as_str().to_owned()))
        }
    }
}

/// What is said of a URI without a canonical form: no rule can speak of it, so none allows it.
fn uncomparable(kind: Kind, error: UriError) -> Decided {
    let effect = Effect::Deny(Denial { reason: Reason::Uri(error), told: Told::Nothing });
    let mut decision = Decision::of(effect);
    decision.ran.note(Control::Rules);
    decision.findings.push(Finding::uncomparable(kind.key(), error));
    Decided { decision, for_any_arguments: true, contact: None }
}

/// Notes that a control is asked now.
const fn asked(decided: &mut Decided, control: Control) -> bool {
    decided.decision.ran.note(control);
    true
}
