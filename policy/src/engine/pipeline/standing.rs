//! Decides whether a thing exists for a caller; used by both lists and calls.

use std::borrow::Cow;
use std::sync::Arc;

use detection::clean;
use detection::inspect;
use detection::inspect::{AcceptedDetectors, Detector, Finding};
use json::{Document, JsonBounds};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::subject::links::CallerLinks;
use policy_core::subject::mode::FindingTreatment;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use policy_core::subject::skill;
use policy_core::subject::uri::{ResourceUri, UriError};

use super::{CatalogAvailability, Facts, Policy};
use crate::definition::offer::{Catalog, CatalogItem, ItemKind};
use crate::definition::pin::Digest;
use crate::definition::pins::LinkStatus;
use crate::rules::access::AccessDecision;
use crate::rules::condition::AccessRequest;
use crate::rules::control::Control;
use crate::rules::decision::{Decision, Denial, Disclosure, Effect, Mode, Reason};

/// A caller, and the state under which it is decided what exists for it.
#[derive(Clone, Copy)]
pub(super) struct Viewer<'a> {
    pub(super) principal: &'a Principal,
    pub(super) facts: &'a Facts,
    /// The links that the caller was given; only for resources.
    pub(super) links: Option<&'a CallerLinks>,
}

impl Policy {
    /// The first finding for which a text is withheld from all callers.
    #[must_use]
    pub fn withholds<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        self.withholds_but(findings, AcceptedDetectors::default())
    }

    /// What follows from a finding in a definition that is not accepted.
    #[must_use]
    pub fn treatment_of(&self, finding: &Finding) -> FindingTreatment {
        self.definitions.treatment_of(finding)
    }

    /// Like [`Self::withholds`], without accepted findings.
    #[must_use]
    pub fn withholds_but<'a>(
        &self,
        findings: &'a [Finding],
        excused: AcceptedDetectors,
    ) -> Option<&'a Finding> {
        findings.iter().find(|finding| {
            let treatment = self.definitions.treatment_of(finding);
            matches!(treatment, FindingTreatment::Enforce | FindingTreatment::Strip)
                && !excused.covers(finding)
        })
    }

    /// The first finding of planted instructions that withholds nothing, and is not switched off.
    #[must_use]
    pub fn suspects<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        self.suspects_but(findings, AcceptedDetectors::default())
    }

    /// Like [`Self::suspects`], without accepted findings.
    #[must_use]
    pub fn suspects_but<'a>(
        &self,
        findings: &'a [Finding],
        excused: AcceptedDetectors,
    ) -> Option<&'a Finding> {
        findings.iter().find(|finding| {
            finding.detector == Detector::PlantedInstructions
                && self.definitions.treatment_of(finding) == FindingTreatment::Audit
                && !excused.covers(finding)
        })
    }

    /// The finding of [`Self::suspects`] in `offer` as `server` lists it now, if the definition is not withheld.
    #[must_use]
    pub fn suspects_now(
        &self,
        facts: &Facts,
        server: &ServerName,
        offer: &CatalogItem,
    ) -> Option<Finding> {
        let excused = Self::excused(facts, server, offer);
        if self.withholds_but(offer.findings(), excused).is_some() {
            return None;
        }
        self.suspects_but(offer.findings(), excused).cloned()
    }

    /// The accepted findings in `offer`, if its definition has the approved digest.
    pub(super) fn excused(
        facts: &Facts,
        server: &ServerName,
        offer: &CatalogItem,
    ) -> AcceptedDetectors {
        if offer.findings().is_empty() {
            return AcceptedDetectors::default();
        }
        let (kind, name) = (Some(offer.kind()), offer.name().as_str());
        facts.pins().excused(server.as_str(), kind, name, offer.digest())
    }

    /// The accepted findings in what `server` states about itself, if that has this digest.
    pub(super) fn excused_of_server(
        facts: &Facts,
        server: &ServerName,
        digest: Option<Digest>,
    ) -> AcceptedDetectors {
        facts.pins().excused(server.as_str(), None, "", digest)
    }

    /// Every finding for which the definition of `offer` is withheld from all callers if `excused` is accepted: the
    /// enforced ones, or else the one that remains after cleaning.
    #[must_use]
    pub fn withheld(&self, offer: &CatalogItem, excused: AcceptedDetectors) -> Vec<Finding> {
        let found = self.enforced(offer, excused);
        if found.is_empty() {
            return self.cleaned(offer, excused).err().into_iter().collect();
        }
        found
    }

    /// The findings that are enforced, without accepted ones.
    fn enforced(&self, offer: &CatalogItem, excused: AcceptedDetectors) -> Vec<Finding> {
        // What is removed from a skill is missed by its client, which compares it with its files.
        let misses = |finding: &Finding| {
            offer.kind() == ItemKind::Skill
                && self.definitions.treatment_of(finding) == FindingTreatment::Strip
        };
        let counts = |finding: &&Finding| {
            let is_enforced = self.definitions.treatment_of(finding) == FindingTreatment::Enforce;
            (is_enforced || misses(finding)) && !excused.covers(finding)
        };
        offer.findings().iter().filter(counts).cloned().collect()
    }

    /// The enforced findings in `offer` as `server` lists it now. Does not clean the definition.
    #[must_use]
    pub fn enforced_now(
        &self,
        facts: &Facts,
        server: &ServerName,
        offer: &CatalogItem,
    ) -> Vec<Finding> {
        self.enforced(offer, Self::excused(facts, server, offer))
    }

    /// The findings of [`Self::withheld`] for `offer` as `server` lists it now.
    #[must_use]
    pub fn withheld_now(
        &self,
        facts: &Facts,
        server: &ServerName,
        offer: &CatalogItem,
    ) -> Vec<Finding> {
        if offer.findings().is_empty() {
            return Vec::new();
        }
        self.withheld(offer, Self::excused(facts, server, offer))
    }

    /// The cleaned definition; `None` if nothing has to be removed. The rest is inspected again by every detector,
    /// because removals can join separate parts.
    ///
    /// # Errors
    /// A finding that remains after cleaning.
    pub fn cleaned(
        &self,
        offer: &CatalogItem,
        excused: AcceptedDetectors,
    ) -> Result<Option<Arc<Document>>, Finding> {
        let length = offer.definition().span().len();
        let clean = || self.clean(offer, excused, &WorkBudget::for_bytes(length, USUAL_MOST));
        offer.cleaned(excused, clean)
    }

    /// Computes [`Self::cleaned`] for every definition of a catalog, charged to `budget`.
    pub fn clean_all(&self, facts: &Facts, catalog: &Catalog, budget: &WorkBudget) {
        for offer in catalog.offers().iter().filter(|offer| !offer.is_cleaned()) {
            let excused = Self::excused(facts, catalog.server(), offer);
            drop(offer.cleaned(excused, || self.clean(offer, excused, budget)));
        }
    }

    pub(super) fn clean(
        &self,
        offer: &CatalogItem,
        excused: AcceptedDetectors,
        budget: &WorkBudget,
    ) -> Result<Option<Arc<Document>>, Finding> {
        let strips = |finding: &&Finding| {
            self.definitions.treatment_of(finding) == FindingTreatment::Strip
                && !excused.covers(finding)
        };
        let Some(first) = offer.findings().iter().find(strips) else {
            return Ok(None);
        };
        let text = clean::definition(offer.definition(), self.definitions.cleaning(excused));
        // INVARIANT: cleaning does not make a document exceed its bounds.
        let document = Document::parse(text.into(), &JsonBounds::ANSWER);
        let document = document.map_err(|_error| first.clone())?;
        // Only findings at their former places are accepted; others are new.
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

    /// Decides whether `offer` exists for `principal`; used by both lists and calls.
    #[must_use]
    pub fn about(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        offer: &CatalogItem,
    ) -> Decision {
        let links = self.given(principal, offer.kind());
        self.about_for(Viewer { principal, facts, links: links.as_deref() }, server, offer)
    }

    /// Whether an item is withheld from every caller, whatever the rules say: its definition is not approved or not
    /// evaluated where that is needed, it is revoked, or something is found in it. For reports, not for the request path.
    #[must_use]
    pub fn withholds_from_all(
        &self,
        facts: &Facts,
        server: &ServerName,
        offer: &CatalogItem,
    ) -> bool {
        let (kind, name, pins) = (offer.kind(), offer.name().as_str(), facts.pins());
        let is_unfit = || pins.unfit(server.as_str(), kind, name, Some(offer)).is_some();
        facts.revoked().has(server, name)
            || pins.mode == Mode::Enforce && is_unfit()
            || !self.withheld(offer, Self::excused(facts, server, offer)).is_empty()
    }

    /// Like [`Self::about`], for a caller whose links are known.
    pub(super) fn about_for(
        &self,
        viewer: Viewer<'_>,
        server: &ServerName,
        offer: &CatalogItem,
    ) -> Decision {
        let (kind, name) = (offer.kind(), offer.name().as_str());
        self.standing(viewer, server, kind, name, Some(offer), CatalogAvailability::Known).decision
    }

    /// Decides whether an item is visible, by rules, pins, shadowing, findings and revocations; without arguments.
    /// Lists and calls are both decided here, so that what is listed can be called and what is hidden cannot.
    pub(super) fn standing(
        &self,
        viewer: Viewer<'_>,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
        offer: Option<&CatalogItem>,
        listed: CatalogAvailability,
    ) -> AccessDecision {
        let Viewer { principal, facts, .. } = viewer;
        let rule_name = match rule_name(kind, name, offer) {
            Ok(rule_name) => rule_name,
            Err(error) => return uncomparable(kind, error),
        };
        // Only a manifest says which bytes a file of a skill has, so no rule about resources allows one.
        if matches!(kind, ItemKind::Resource | ItemKind::Template)
            && skill::is_skill_uri(&rule_name)
        {
            return unlisted_file();
        }
        let known = self.registered(server, kind, name);
        let subject = AccessRequest::of_any_use(principal, server, kind, &rule_name, known);
        let mut decided = self.access.decide(subject);
        let decision = &mut decided.decision;
        decision.definition = offer.and_then(CatalogItem::digest);
        let revoked = facts.revoked();
        decision.ran.note(Control::Revocation);
        if revoked.has_principal(principal) || revoked.has(server, &rule_name) {
            let denial = Denial { reason: Reason::Revoked, told: Disclosure::Nothing };
            decision.effect = Effect::Deny(denial);
            decided.for_any_arguments = true;
        }
        // A tool that a server lists under the name of a decoy is not shown: the name is the operator's.
        if self.decoys.has(server.as_str(), kind, name) {
            let denial = Denial { reason: Reason::Decoy, told: Disclosure::Nothing };
            decided.decision.effect = Effect::Deny(denial);
            decided.for_any_arguments = true;
        }
        pinned(viewer, &mut decided, subject, offer, listed);
        registered(&mut decided, subject, offer);
        self.shadowed(facts, &mut decided, subject);
        decided.for_any_arguments |=
            self.refuses_app(server, kind, &rule_name, offer, &mut decided.decision);
        let decision = &mut decided.decision;
        decision.ran.note(Control::Definitions);
        let findings = offer.map(CatalogItem::findings).unwrap_or_default();
        if findings.is_empty() {
            return decided;
        }
        let excused = offer.map(|offer| Self::excused(facts, server, offer)).unwrap_or_default();
        let of = |treatment| {
            let treated = move |f: &&Finding| {
                self.definitions.treatment_of(f) == treatment && !excused.covers(f)
            };
            findings.iter().filter(treated).cloned()
        };
        let enforced = offer.map(|offer| self.withheld(offer, excused)).unwrap_or_default();
        decision.findings.extend(self.accepted(facts, server, offer));
        decision.findings.extend(of(FindingTreatment::Audit).chain(of(FindingTreatment::Strip)));
        if let (true, Some(finding)) = (decision.shows(), enforced.first()) {
            let reason = Reason::Definition(finding.clone());
            decision.effect = Effect::Deny(Denial { reason, told: Disclosure::Nothing });
        }
        decision.findings.extend(enforced);
        decided
    }

    /// The accepted findings in `offer` that would otherwise count, with the person who accepted them.
    fn accepted(
        &self,
        facts: &Facts,
        server: &ServerName,
        offer: Option<&CatalogItem>,
    ) -> Vec<Finding> {
        let Some(offer) = offer else { return Vec::new() };
        let (kind, name) = (Some(offer.kind()), offer.name().as_str());
        let exceptions = facts.pins().exceptions(server.as_str(), kind, name, offer.digest());
        let by = |finding: &Finding| {
            let mut of = exceptions.iter().filter(|one| one.finding == finding.detector);
            let is_ignored = self.definitions.treatment_of(finding) == FindingTreatment::Off;
            let exception = of.next().filter(|_| !is_ignored && finding.unacceptable().is_none());
            exception.map(|exception| finding.accepted_by(&exception.by))
        };
        offer.findings().iter().filter_map(by).collect()
    }

    /// Denies the thing if it can be mistaken for another one that this caller sees and that takes precedence.
    fn shadowed(&self, facts: &Facts, decided: &mut AccessDecision, subject: AccessRequest<'_>) {
        let AccessRequest { principal, server, kind, name, .. } = subject;
        let conflicts = facts.shadows().of(server, kind, name);
        decided.decision.ran.note(Control::Shadowing);
        if conflicts.is_empty() || !decided.decision.shows() {
            return;
        }
        for conflict in conflicts {
            let mode = self.shadowing.of(conflict.likeness);
            let rival = conflict.rival.as_ref();
            let seen =
                rival.is_none_or(|(rival, other)| self.sees(facts, principal, rival, kind, other));
            if mode == Mode::Off || !seen {
                continue;
            }
            let finding = Finding::shadowing(conflict.to_string());
            let yields = self.shadowing.yields(conflict, facts.pins(), server, kind, name);
            if mode == Mode::Enforce && yields {
                let reason = Reason::Shadowed(finding.clone());
                decided.decision.effect =
                    Effect::Deny(Denial { reason, told: Disclosure::Nothing });
                decided.for_any_arguments = true;
            }
            decided.decision.findings.push(finding);
            if !decided.decision.shows() {
                return;
            }
        }
    }

    /// Whether the rival item is visible to `principal`, ignoring shadowing. A withheld item shadows nothing.
    fn sees(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> bool {
        if name.is_empty() {
            return self.grants_any(facts, principal, server);
        }
        let known = self.registered(server, kind, name);
        let subject = AccessRequest::of_any_use(principal, server, kind, name, known);
        if !self.access.decide(subject).decision.shows() || facts.revoked().has(server, name) {
            return false;
        }
        let (pins, shadows) = (facts.pins(), facts.shadows());
        let enforced = pins.mode == Mode::Enforce;
        let id = server.as_str();
        let fits =
            |offer: &&CatalogItem| !enforced || pins.unfit(id, kind, name, Some(offer)).is_none();
        // Until its server has listed it, the approved definition represents it.
        let stands = || !enforced || pins.unfit_unlisted(id, kind, name, LinkStatus::No).is_none();
        let approved = shadows.approved(server, kind, name).filter(|_| stands());
        let mut offers = shadows.listed(server, kind, name).filter(fits).chain(approved);
        offers.any(|offer| {
            self.withholds_but(offer.findings(), Self::excused(facts, server, offer)).is_none()
        })
    }
}

/// Checks that the definition is approved, if the rules would show it.
fn pinned(
    viewer: Viewer<'_>,
    decided: &mut AccessDecision,
    subject: AccessRequest<'_>,
    offer: Option<&CatalogItem>,
    listed: CatalogAvailability,
) {
    let pins = viewer.facts.pins();
    if pins.mode == Mode::Off || !decided.decision.shows() {
        return;
    }
    decided.decision.ran.note(Control::Pins);
    let AccessRequest { server, kind, name, .. } = subject;
    let linked = viewer.linked(server, kind, name);
    let server = server.as_str();
    let of_offer = |offer: &CatalogItem| {
        pins.unfit_for(server, kind, offer.name().as_str(), Some(offer), linked)
    };
    let unfit = match (offer, listed) {
        (None, CatalogAvailability::Unknown) => pins.unfit_unlisted(server, kind, name, linked),
        (None, CatalogAvailability::Known) => pins.unfit_for(server, kind, name, None, linked),
        // The name is not listed and has no approval of its own, so the approval of the related resource applies.
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
    let denial = Denial { reason: Reason::Pin(unfit), told: Disclosure::Nothing };
    decided.decision.effect = Effect::Deny(denial);
    decided.for_any_arguments = true;
}

impl Viewer<'_> {
    /// Whether the caller received a link to the resource `name`, a canonical URI.
    fn linked(self, server: &ServerName, kind: ItemKind, name: &str) -> LinkStatus {
        let is_given = kind == ItemKind::Resource
            && self.links.is_some_and(|given| given.has(self.principal, server.as_str(), name));
        if is_given { LinkStatus::Given } else { LinkStatus::No }
    }
}

/// The name that rules and revocations use: for a resource or template, its canonical URI.
///
/// # Errors
/// If the URI has no canonical form.
pub(super) fn rule_name<'a>(
    kind: ItemKind,
    name: &'a str,
    offer: Option<&'a CatalogItem>,
) -> Result<Cow<'a, str>, UriError> {
    match (kind, offer) {
        (ItemKind::Tool | ItemKind::Prompt | ItemKind::Method, _) => Ok(Cow::Borrowed(name)),
        (ItemKind::Resource | ItemKind::Template | ItemKind::Skill, Some(offer))
            if offer.name().as_str() == name =>
        {
            offer.rule_name().map(Cow::Borrowed)
        }
        (ItemKind::Resource | ItemKind::Skill, _) => {
            ResourceUri::parse(name).map(|uri| Cow::Owned(uri.as_str().to_owned()))
        }
        (ItemKind::Template, _) => {
            ResourceUri::template(name).map(|uri| Cow::Owned(uri.as_str().to_owned()))
        }
    }
}

/// The decision about a URI without a canonical form: no rule can name it, so none allows it.
fn uncomparable(kind: ItemKind, error: UriError) -> AccessDecision {
    let effect = Effect::Deny(Denial { reason: Reason::Uri(error), told: Disclosure::Nothing });
    let mut decision = Decision::of(effect);
    decision.ran.note(Control::Rules);
    decision.findings.push(Finding::uncomparable(kind.key(), error));
    AccessDecision { decision, for_any_arguments: true, contact: None, needs_approval: false }
}

/// The decision about a resource with the scheme of skills, as one that no manifest names.
fn unlisted_file() -> AccessDecision {
    let denial = Denial { reason: Reason::SkillFile, told: Disclosure::Nothing };
    let mut decision = Decision::of(Effect::Deny(denial));
    decision.ran.note(Control::Rules);
    AccessDecision { decision, for_any_arguments: true, contact: None, needs_approval: false }
}

/// Records that a control runs now, and returns `true`.
const fn asked(decided: &mut AccessDecision, control: Control) -> bool {
    decided.decision.ran.note(control);
    true
}

/// Denies an item whose definition is not the one that the operator has registered.
fn registered(
    decided: &mut AccessDecision,
    subject: AccessRequest<'_>,
    offer: Option<&CatalogItem>,
) {
    let definition = offer.map(CatalogItem::definition);
    if let (Some(known), Some(definition)) = (subject.known, definition)
        && decided.decision.shows()
        && asked(decided, Control::Registry)
        && !known.fits(definition)
    {
        let finding = Finding::unregistered();
        let reason = Reason::Definition(finding.clone());
        decided.decision.effect = Effect::Deny(Denial { reason, told: Disclosure::Nothing });
        decided.decision.findings.push(finding);
        decided.for_any_arguments = true;
    }
}
