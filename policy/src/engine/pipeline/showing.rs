//! Inspects what a server sends, and determines which part of it may be shown.

use std::collections::BTreeSet;
use std::sync::Arc;

use detection::content::{
    self, ContentRecipient, ContentReport, Direction, LabelledContent, Mention, OtherServerTools,
    OversizeAction, SeenTools, TextMarking,
};
use detection::inspect::{self, Detector, Finding};
use detection::labels::{self, ConcealedMembers, LabelledPart};
use json::{Document, Fragment, JsonBounds, Value, write_string};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::schema::{Schema, SchemaViolation};
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use policy_core::subject::scope;

use super::sending::passed;
use super::skills::unverified_file;
use super::standing::Viewer;
use super::{
    CatalogView, Expectation, Facts, Policy, ReleasedReply, ReplyTerms, Shown, VisibleReply,
};
use crate::definition::offer::{Catalog, CatalogItem, ItemKind, ReadOnlyHint};
use crate::definition::pin::Digest;
use crate::definition::shadow::ShadowingConflicts;
use crate::engine::ask;
use crate::engine::message::Reply;
use crate::engine::places::{ResultKind, is_meta};
use crate::rules::apps::message::ReadItem;
use crate::rules::control::{Control, ControlSet};
use crate::rules::decision::Mode;

/// A result compared with the output schema.
#[derive(Debug, Default)]
struct SchemaComparison {
    /// The schema that the result matches, if it has to match one.
    fits: Option<Arc<Schema>>,
    /// The mismatch with the schema, and how it is treated.
    misfit: Option<(Mode, Finding)>,
}

impl ReleasedReply {
    /// A reply that is withheld because of `finding`.
    fn withheld(finding: Finding, ran: ControlSet) -> Self {
        Self { reply: VisibleReply::Withheld(finding.clone()), findings: vec![finding], ran }
    }

    /// The same as a message that is no response.
    fn told(self) -> Self {
        let reply = match self.reply {
            VisibleReply::Result(said) | VisibleReply::Error(said) => VisibleReply::Told(said),
            other @ (VisibleReply::Told(_)
            | VisibleReply::List(_)
            | VisibleReply::Withheld(_)
            | VisibleReply::Apart(_)) => other,
        };
        Self { reply, ..self }
    }
}

/// A result without the members that are hidden from its caller.
struct UnlabelledMessage {
    said: Fragment,
    /// Removed values, which can occur elsewhere in the result as well.
    values: BTreeSet<String>,
    found: Vec<Finding>,
}

/// A caller, and the server whose words it may see, under the facts of one decision.
#[derive(Clone, Copy)]
struct Reading<'a> {
    facts: &'a Facts,
    principal: &'a Principal,
    server: &'a ServerName,
}

/// What a server said before its response or unasked.
#[derive(Clone, Debug)]
pub struct EarlyMessage {
    /// The part of a message that it is.
    pub part: LabelledPart,
    /// The value of that part.
    pub said: Fragment,
}

/// A message of a server other than the result of a call.
struct InboundMessage {
    said: Fragment,
    /// The part of a message that it is.
    part: LabelledPart,
    /// The kind of result, by which members are sealed.
    answer: ResultKind,
}

impl Policy {
    /// Decides whether a reply may be shown, and which part of it.
    ///
    /// Inspection is charged to `budget`; a reply that exhausts it is withheld.
    pub fn release(
        &self,
        facts: &Facts,
        principal: &Principal,
        due: Expectation,
        reply: Reply,
        budget: &WorkBudget,
    ) -> ReleasedReply {
        let Expectation { server, terms, .. } = due;
        let reading = Reading { facts, principal, server: &server };
        match reply {
            Reply::List(catalog) => {
                let reply = VisibleReply::List(Arc::new(self.view(facts, principal, catalog)));
                ReleasedReply { reply, findings: Vec::new(), ran: ControlSet::default() }
            }
            Reply::Result(said) => self.answered(reading, &terms, said, budget),
            Reply::Error(said) => {
                let size = self.contents.of(&server).size.filter(|_| terms.calls);
                // A truncated error is useless, and stored ones are never fetched.
                if size.is_some_and(|size| said.value().raw().len() > size.most) {
                    let reply = VisibleReply::Withheld(Finding::too_long());
                    let ran = ControlSet::default();
                    return ReleasedReply { reply, findings: vec![Finding::too_long()], ran };
                }
                let said =
                    InboundMessage { said, part: LabelledPart::Error, answer: ResultKind::Plain };
                self.heard(reading, said, &terms.hidden, budget)
            }
            Reply::Told(said) => {
                let said =
                    InboundMessage { said, part: LabelledPart::Params, answer: ResultKind::Plain };
                self.heard(reading, said, &terms.hidden, budget)
            }
        }
    }

    /// A result as it may be shown.
    fn answered(
        &self,
        reading: Reading<'_>,
        terms: &ReplyTerms,
        said: Fragment,
        budget: &WorkBudget,
    ) -> ReleasedReply {
        let Reading { principal, server, .. } = reading;
        let mut ran = ControlSet::default();
        let is_claimed = terms.hint == ReadOnlyHint::Claimed;
        let written = (is_claimed && wants_to_write(said.value()))
            .then(|| Finding::unasked("/_meta", ask::RefusalReason::WriteScope.code()));
        if let Some(finding) = written.or_else(|| terms.unlike(said.value(), &mut ran)) {
            return ReleasedReply::withheld(finding, ran);
        }
        let (said, apps) = match self.without_apps_in(server, said, terms.read) {
            Ok(without) => without,
            Err(finding) => return ReleasedReply::withheld(finding, ran),
        };
        if terms.output.is_some() {
            ran.note(Control::OutputSchema);
        }
        let SchemaComparison { fits, misfit } =
            self.compared(principal, server, terms, &said, budget);
        if let Some((Mode::Enforce, finding)) = misfit {
            return ReleasedReply::withheld(finding, ran);
        }
        let UnlabelledMessage { said, values, mut found } =
            match self.unlabelled(principal, server, terms, fits.as_deref(), said, budget) {
                Ok(unlabelled) => unlabelled,
                Err(finding) => return ReleasedReply::withheld(finding, ran),
            };
        found.extend(apps);
        // Truncation comes before fences are added.
        let profile = self.contents.of(server);
        let marks = |most: usize| if profile.fence { most / FENCE_SHARE } else { 0 };
        let cuts = profile.size.filter(|size| {
            let long = said.value().raw().len() > size.most - marks(size.most);
            terms.calls && size.over == OversizeAction::Truncate && long
        });
        // The result is processed further if it is cut.
        // A client compares the files of a skill with their digests, so nothing is added to them.
        let is_bare = cuts.is_some() || terms.skill.is_some();
        let marking = if is_bare { TextMarking::Bare } else { TextMarking::Marked };
        let content =
            LabelledContent { labelled: &values, sealed: terms.answer().sealed(), marking };
        ran.note(Control::Results);
        let seen = self.read_by(reading, |reader| {
            self.contents.look_without(server, reader, said.value(), content, budget)
        });
        let (passed, findings) = passed(seen, said, &JsonBounds::ANSWER);
        found.extend(misfit.map(|(_, finding)| finding));
        found.extend(findings);
        let reply = match passed {
            Err(finding) => VisibleReply::Withheld(finding),
            // Inspection has changed what the client would compare with a digest, so it could only refuse it.
            Ok(said) if terms.unlike(said.value(), &mut ran).is_some() => {
                let finding = found.first().cloned().unwrap_or_else(Finding::unchanged);
                VisibleReply::Withheld(finding)
            }
            Ok(said) => match cuts {
                Some(size) => {
                    found.push(Finding::too_long());
                    let sealed = terms.answer().sealed();
                    self.shortened(reading, size.most, sealed, &said, budget)
                }
                None => self.fitted(server, terms, said, &mut found),
            },
        };
        let reply = inspected_completely(reply, budget, &mut found);
        ReleasedReply { reply, findings: found, ran }
    }

    /// Compares a result with the output schema, if it has to match one.
    fn compared(
        &self,
        principal: &Principal,
        server: &ServerName,
        terms: &ReplyTerms,
        said: &Fragment,
        budget: &WorkBudget,
    ) -> SchemaComparison {
        let Some((schema, mode)) = &terms.output else { return SchemaComparison::default() };
        let schema = schema.get(server, &self.compiled, budget);
        match unlike(said.value(), &schema, budget) {
            None => SchemaComparison { fits: Some(schema), misfit: None },
            Some(finding) => {
                let finding = self.contents.placed(server, principal.id.as_str(), finding);
                SchemaComparison { fits: None, misfit: Some((*mode, finding)) }
            }
        }
    }

    /// Runs `look` with a reader that knows which tools, of the server and of others, the caller sees.
    fn read_by<T>(&self, reading: Reading<'_>, look: impl FnOnce(ContentRecipient<'_>) -> T) -> T {
        let Reading { facts, principal, server } = reading;
        let shadows = facts.shadows();
        let others = |mention: &Mention| self.is_of_another(reading, mention);
        let others = has_others(shadows, server, &others);
        let own = |mention: &Mention| {
            shadows.names().is_of_own(server, mention, |name| {
                let mut listed = shadows.listed(server, ItemKind::Tool, name);
                listed.any(|offer| self.about(facts, principal, server, offer).shows())
            })
        };
        look(ContentRecipient {
            caller: principal.id.as_str(),
            tools: Some(SeenTools { own: &own, others }),
        })
    }

    /// Whether a text of the server names a tool of another server that the caller sees.
    fn is_of_another(&self, reading: Reading<'_>, mention: &Mention) -> bool {
        let Reading { facts, principal, server } = reading;
        let shadows = facts.shadows();
        shadows.names().is_of_another(server, mention, |other, name| {
            let (listed, approved) = (
                shadows.listed(other, ItemKind::Tool, name),
                shadows.approved(other, ItemKind::Tool, name),
            );
            let mut offers = listed.chain(approved);
            offers.any(|offer| self.about(facts, principal, other, offer).shows())
        })
    }

    /// A result without its hidden members; `fits` is the schema it matched before.
    fn unlabelled(
        &self,
        principal: &Principal,
        server: &ServerName,
        terms: &ReplyTerms,
        fits: Option<&Schema>,
        said: Fragment,
        budget: &WorkBudget,
    ) -> Result<UnlabelledMessage, Finding> {
        let cut = self.cut(principal, server, said, LabelledPart::Result, &terms.hidden, budget)?;
        let schema = fits.filter(|_| !cut.found.is_empty());
        let said = match schema {
            Some(schema) => fitting(cut.said, schema, budget)?,
            None => cut.said,
        };
        Ok(UnlabelledMessage { said, ..cut })
    }

    /// A message without the members in `hidden`.
    fn cut(
        &self,
        principal: &Principal,
        server: &ServerName,
        said: Fragment,
        part: LabelledPart,
        hidden: &ConcealedMembers,
        budget: &WorkBudget,
    ) -> Result<UnlabelledMessage, Finding> {
        let caller = principal.id.as_str();
        let mark = |value: &str| self.contents.mark(server, caller, value);
        let cut = if hidden.is_empty() {
            None
        } else {
            labels::without(said.value(), part, hidden, &mark, budget)
        };
        if budget.is_exhausted() {
            return Err(Finding::over_budget());
        }
        let Some(cut) = cut else {
            return Ok(UnlabelledMessage { said, values: BTreeSet::new(), found: Vec::new() });
        };
        if cut.full {
            return Err(Finding::unchanged());
        }
        let document = Document::parse(cut.text.into(), &JsonBounds::ANSWER);
        let document = document.map_err(|_unreadable| Finding::unchanged())?;
        let said = Fragment::whole(Arc::new(document));
        let placed = |finding| self.contents.placed(server, caller, finding);
        let found = cut.findings.into_iter().map(placed).collect();
        Ok(UnlabelledMessage { said, values: cut.values, found })
    }

    /// A result with its longest strings truncated so that it has at most `most` bytes, and fenced after that.
    fn shortened(
        &self,
        reading: Reading<'_>,
        most: usize,
        sealed: &[&str],
        said: &Fragment,
        budget: &WorkBudget,
    ) -> VisibleReply {
        let cut = || {
            let text = content::truncated(said.value(), most - most / FENCE_SHARE)?;
            let document = Document::parse(text.into(), &JsonBounds::ANSWER).ok()?;
            let cut = Fragment::whole(Arc::new(document));
            let seen = self.read_by(reading, |reader| {
                self.contents.look_but(reading.server, reader, cut.value(), sealed, budget)
            });
            let cut = passed(seen, cut, &JsonBounds::ANSWER).0.ok()?;
            (cut.value().raw().len() <= most).then_some(cut)
        };
        cut().map_or_else(
            || VisibleReply::Withheld(Finding::too_long()),
            |cut| VisibleReply::Result(Shown::inspected(cut)),
        )
    }

    /// A result, unless it exceeds the size limit.
    pub(super) fn fitted(
        &self,
        server: &ServerName,
        terms: &ReplyTerms,
        said: Fragment,
        found: &mut Vec<Finding>,
    ) -> VisibleReply {
        let size = self.contents.of(server).size.filter(|_| terms.calls);
        let length = said.value().raw().len();
        let Some(size) = size.filter(|size| length > size.most) else {
            return VisibleReply::Result(Shown::inspected(said));
        };
        found.push(Finding::too_long());
        match size.over {
            OversizeAction::Offload => VisibleReply::Apart(Shown::inspected(said)),
            // Only the fences made it too long.
            OversizeAction::Refuse | OversizeAction::Truncate => {
                VisibleReply::Withheld(Finding::too_long())
            }
        }
    }

    /// Decides whether a message may be shown that the server sent before its reply or unsolicited. Members that the
    /// caller must not see in the pending reply (`hidden`) are removed here as well.
    pub fn release_early(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        told: EarlyMessage,
        hidden: &ConcealedMembers,
        budget: &WorkBudget,
    ) -> ReleasedReply {
        let EarlyMessage { part, said } = told;
        let said = InboundMessage { said, part, answer: ResultKind::Plain };
        self.heard(Reading { facts, principal, server }, said, hidden, budget).told()
    }

    /// Decides whether a result may be shown that requests input from the client. Its state is not inspected: the
    /// caller only sees it sealed.
    pub fn release_asking(
        &self,
        facts: &Facts,
        principal: &Principal,
        server: &ServerName,
        asking: Fragment,
        hidden: &ConcealedMembers,
        budget: &WorkBudget,
    ) -> ReleasedReply {
        let said =
            InboundMessage { said: asking, part: LabelledPart::Result, answer: ResultKind::Asking };
        self.heard(Reading { facts, principal, server }, said, hidden, budget).told()
    }

    /// Decides whether the instructions of a server may be shown, which a model reads: they pass the detectors for
    /// definitions. `digest` is that of the server's information, by which findings are accepted. With instructions that
    /// are shown comes a finding by which they are suspect, for the log.
    ///
    /// # Errors
    /// The finding for which they are withheld from all callers.
    pub fn release_instructions(
        &self,
        facts: &Facts,
        server: &ServerName,
        digest: Option<Digest>,
        instructions: Fragment,
        budget: &WorkBudget,
    ) -> Result<(Shown, Option<Finding>), Finding> {
        let findings = inspect::text(instructions.value(), budget);
        let excused = Self::excused_of_server(facts, server, digest);
        match self.withholds_but(&findings, excused) {
            Some(finding) => Err(finding.clone()),
            None => {
                Ok((Shown::inspected(instructions), self.suspects_but(&findings, excused).cloned()))
            }
        }
    }

    /// Whether tool results of `server` over the size limit are stored for later reading.
    #[must_use]
    pub fn keeps(&self, server: &ServerName) -> bool {
        self.contents.of(server).size.is_some_and(|size| size.over == OversizeAction::Offload)
    }

    /// The findings in a value sent by or to a server, and the value after all actions.
    #[must_use]
    pub fn looked_at(
        &self,
        server: &ServerName,
        direction: Direction,
        value: Value<'_>,
    ) -> ContentReport {
        self.contents.look(server, direction, "", value, &WorkBudget::unlimited())
    }

    /// A message of a server as it may be shown; every string in it is inspected.
    fn heard(
        &self,
        reading: Reading<'_>,
        heard: InboundMessage,
        hidden: &ConcealedMembers,
        budget: &WorkBudget,
    ) -> ReleasedReply {
        let Reading { principal, server, .. } = reading;
        let InboundMessage { said, part, answer } = heard;
        let ran = ControlSet::of(&[Control::Results]);
        if let Some(finding) = unverified_file(said.value()) {
            return ReleasedReply::withheld(finding, ran);
        }
        let (said, apps) = match self.without_apps_in(server, said, ReadItem::Other) {
            Ok(without) => without,
            Err(finding) => return ReleasedReply::withheld(finding, ran),
        };
        let UnlabelledMessage { said, values, mut found } =
            match self.cut(principal, server, said, part, hidden, budget) {
                Ok(unlabelled) => unlabelled,
                Err(finding) => return ReleasedReply::withheld(finding, ran),
            };
        found.extend(apps);
        let content = LabelledContent {
            labelled: &values,
            sealed: answer.sealed(),
            marking: TextMarking::Marked,
        };
        let seen = self.read_by(reading, |reader| {
            self.contents.look_without(server, reader, said.value(), content, budget)
        });
        let (passed, findings) = passed(seen, said, &JsonBounds::ANSWER);
        found.extend(findings);
        let reply = match (passed.map(Shown::inspected), part) {
            (Err(finding), _) => VisibleReply::Withheld(finding),
            (Ok(said), LabelledPart::Result) => VisibleReply::Result(said),
            (Ok(said), LabelledPart::Error) => VisibleReply::Error(said),
            (Ok(said), LabelledPart::Params) => VisibleReply::Told(said),
        };
        ReleasedReply { reply, findings: found, ran }
    }

    /// Shows a cached view again if it is still valid for `principal`, and computes it anew if not. The gateway keeps
    /// views with their policy and catalog.
    pub fn release_again(
        &self,
        facts: &Facts,
        principal: &Principal,
        due: Expectation,
        view: &Arc<CatalogView>,
    ) -> ReleasedReply {
        if !self.holds(facts, view, principal) {
            let budget = WorkBudget::new(USUAL_MOST);
            let reply = Reply::List(Arc::clone(&view.catalog));
            return self.release(facts, principal, due, reply, &budget);
        }
        let (reply, ran) = (VisibleReply::List(Arc::clone(view)), ControlSet::default());
        ReleasedReply { reply, findings: Vec::new(), ran }
    }

    pub(super) fn view(
        &self,
        facts: &Facts,
        principal: &Principal,
        catalog: Arc<Catalog>,
    ) -> CatalogView {
        let (mut visible, mut hidden) = (Vec::new(), Vec::new());
        let given = self.given(principal, catalog.kind());
        let viewer = Viewer { principal, facts, links: given.as_deref() };
        for (at, offer) in catalog.offers().iter().enumerate() {
            let decision = self.about_for(viewer, catalog.server(), offer);
            match self.cleaned(offer, Self::excused(facts, catalog.server(), offer)) {
                Ok(cleaned) if decision.shows() => {
                    let shown = cleaned.as_ref().map_or(offer.definition(), |known| known.root());
                    let without = self.without_apps(catalog.server(), shown);
                    let shown = without.or(cleaned);
                    let described = self.described(catalog.server(), offer, shown.as_deref());
                    visible.push((at, described.or(shown)));
                }
                Ok(_) | Err(_) => hidden.push((at, decision)),
            }
        }
        let (principal, facts) = (principal.clone(), facts.clone());
        CatalogView { principal, facts, given, catalog, visible, hidden }
    }
}

impl Policy {
    /// A definition as callers see it who may use it: without what is removed, and with the operator's description; `None`
    /// if that is the server's own. Whether it is shown at all is not asked.
    #[must_use]
    pub fn shown_definition(
        &self,
        facts: &Facts,
        server: &ServerName,
        offer: &CatalogItem,
    ) -> Option<Arc<Document>> {
        let excused = Self::excused(facts, server, offer);
        let cleaned = self.cleaned(offer, excused).ok().flatten();
        self.described(server, offer, cleaned.as_deref()).or(cleaned)
    }

    /// A definition with the operator's description in place of the server's, if the registry has one.
    fn described(
        &self,
        server: &ServerName,
        offer: &CatalogItem,
        shown: Option<&Document>,
    ) -> Option<Arc<Document>> {
        let known = self.registered(server, offer.kind(), offer.name().as_str())?;
        let definition = shown.map_or(offer.definition(), Document::root);
        let text = known.described(definition)?;
        // INVARIANT: a definition with a description of bounded length is within the bounds of an answer.
        Document::parse(text.into(), &JsonBounds::ANSWER).ok().map(Arc::new)
    }
}

/// The share of a size limit that is reserved for fences: one in this many bytes.
const FENCE_SHARE: usize = 8;

/// `others`, if there are other servers.
fn has_others<'a>(
    shadows: &ShadowingConflicts,
    server: &ServerName,
    others: OtherServerTools<'a>,
) -> Option<OtherServerTools<'a>> {
    shadows.names().has_others(server).then_some(others)
}

/// Whether a result contains a challenge for write scopes, which some clients answer by asking their users for
/// further authorization.
fn wants_to_write(result: Value<'_>) -> bool {
    let holders = [Some(result), result.get("result")].into_iter().flatten();
    let metas = holders.flat_map(Value::members).filter(|(key, _)| is_meta(key));
    let members = metas.flat_map(|(_, meta)| meta.members());
    let named = |name: &str| {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        letters.collect::<String>().to_ascii_lowercase().ends_with("wwwauthenticate")
    };
    let challenges = members.filter(|(name, _)| named(name)).flat_map(|(_, value)| {
        value.as_str().into_iter().chain(value.items().filter_map(Value::as_str))
    });
    let mut scopes = challenges.flat_map(|challenge| scope::of_challenge(&challenge));
    scopes.any(|one| scope::writes(&one))
}

/// A result that no longer matches its schema after removals, converted to an error result without
/// `structuredContent`: clients reject mismatches.
fn fitting(said: Fragment, schema: &Schema, budget: &WorkBudget) -> Result<Fragment, Finding> {
    let value = said.value();
    if unlike(value, schema, budget).is_none() || value.get("structuredContent").is_none() {
        return Ok(said);
    }
    let mut out = br#"{"isError":true"#.to_vec();
    let kept = |name: &str| !matches!(name, "structuredContent" | "isError");
    for (name, member) in value.members().filter(|(name, _)| kept(name)) {
        out.push(b',');
        write_string(&mut out, &name);
        out.push(b':');
        out.extend_from_slice(member.raw().as_bytes());
    }
    out.push(b'}');
    let document = Document::parse(out.into(), &JsonBounds::ANSWER);
    document.map_or(Err(Finding::unchanged()), |document| Ok(Fragment::whole(Arc::new(document))))
}

/// How a result violates the output schema; `None` for error results and for results that are not final.
///
/// SPEC 2026-07-28 server/tools#output-schema
fn unlike(result: Value<'_>, schema: &Schema, budget: &WorkBudget) -> Option<Finding> {
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
    let missing = || SchemaViolation { at: String::new(), note: "is missing".to_owned() };
    let checked = match result.get("structuredContent") {
        Some(content) => schema.check(Some(content), budget),
        None => Err(missing()),
    };
    Some(Finding::misfit(Detector::OutputSchema, at, checked.err()?))
}

/// A reply, unless a part of it was not inspected: such a result is withheld in every mode.
fn inspected_completely(
    reply: VisibleReply,
    budget: &WorkBudget,
    found: &mut Vec<Finding>,
) -> VisibleReply {
    match reply {
        VisibleReply::Result(_) | VisibleReply::Apart(_) if budget.is_exhausted() => {
            found.push(Finding::over_budget());
            VisibleReply::Withheld(Finding::over_budget())
        }
        reply @ (VisibleReply::Result(_)
        | VisibleReply::Error(_)
        | VisibleReply::Told(_)
        | VisibleReply::Apart(_)
        | VisibleReply::List(_)
        | VisibleReply::Withheld(_)) => reply,
    }
}
