//! What may be shown of what a server says.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::sending::passed;
use super::{Expectation, Policy, Released, Shown, Terms, View};
use crate::ask;
use crate::content::{self, Direction, Mention, Others, Over, Reader, Seen, SeenTools};
use crate::control::{Control, Ran};
use crate::decision::Mode;
use crate::inspect::{Detector, Finding};
use crate::json::{Bounds, Document, Fragment, Value, write_string};
use crate::labels::{self, Concealed, Part};
use crate::message::Reply;
use crate::name::ServerName;
use crate::offer::{Catalog, Kind, ReadOnlyHint};
use crate::places::Answer;
use crate::principal::Principal;
use crate::schema::{Misfit, Schema};
use crate::scope;
use crate::shadow::Shadows;
use crate::work::{Budget, USUAL_MOST};

/// A result beside what the definition says of results.
#[derive(Debug, Default)]
struct Compared {
    /// The schema that it is as, where it is held to one.
    fits: Option<Arc<Schema>>,
    /// What is not as the schema says, and what is done about that.
    misfit: Option<(Mode, Finding)>,
}

impl Released {
    /// Nothing is shown, because of this.
    fn withheld(finding: Finding, ran: Ran) -> Self {
        Self { reply: Shown::Withheld(finding.clone()), findings: vec![finding], ran }
    }
}

/// A result without what its caller does not see.
struct Unlabelled {
    said: Fragment,
    /// The values that were taken out, which may stand elsewhere too.
    values: BTreeSet<String>,
    found: Vec<Finding>,
}

/// Something that a server says, beside the result of a call.
struct Heard {
    said: Fragment,
    /// Which part of a message it is.
    part: Part,
    /// Which strings in it are sealed.
    answer: Answer,
}

impl Policy {
    /// May this reply be shown?
    ///
    /// What looking at it costs is taken from `budget`; over that it is withheld.
    pub fn release(
        &self,
        principal: &Principal,
        due: Expectation,
        reply: Reply,
        budget: &Budget,
    ) -> Released {
        let Expectation { server, terms, .. } = due;
        match reply {
            Reply::List(catalog) => {
                let reply = Shown::List(Arc::new(self.view(principal, catalog)));
                Released { reply, findings: Vec::new(), ran: Ran::default() }
            }
            Reply::Result(said) => self.answered(principal, &server, &terms, said, budget),
            Reply::Error(said) => {
                let size = self.contents.of(&server).size.filter(|_| terms.calls);
                // A part of an error is of no use, and nobody comes back for one.
                if size.is_some_and(|size| said.value().raw().len() > size.most) {
                    let reply = Shown::Withheld(Finding::too_long());
                    let ran = Ran::default();
                    return Released { reply, findings: vec![Finding::too_long()], ran };
                }
                let said = Heard { said, part: Part::Error, answer: Answer::Plain };
                self.heard(principal, &server, said, &terms.hidden, budget)
            }
            Reply::Told(said) => {
                let said = Heard { said, part: Part::Params, answer: Answer::Plain };
                self.heard(principal, &server, said, &terms.hidden, budget)
            }
        }
    }

    /// A result as it may be shown.
    pub(super) fn answered(
        &self,
        principal: &Principal,
        server: &ServerName,
        terms: &Terms,
        said: Fragment,
        budget: &Budget,
    ) -> Released {
        let mut ran = Ran::default();
        if terms.hint == ReadOnlyHint::Claimed && wants_to_write(said.value()) {
            let finding = Finding::unasked("/_meta", ask::Reason::WriteScope.code());
            return Released::withheld(finding, ran);
        }
        if terms.output.is_some() {
            ran.note(Control::OutputSchema);
        }
        let Compared { fits, misfit } = self.compared(principal, server, terms, &said, budget);
        if let Some((Mode::Enforce, finding)) = misfit {
            return Released::withheld(finding, ran);
        }
        let fits = fits.as_deref();
        let Unlabelled { said, values, mut found } =
            match self.unlabelled(principal, server, terms, fits, said, budget) {
                Ok(unlabelled) => unlabelled,
                Err(finding) => return Released::withheld(finding, ran),
            };
        // What is cut is cut before marks are put around it.
        let profile = self.contents.of(server);
        let marks = |most: usize| if profile.fence { most / MARKS } else { 0 };
        let cuts = profile.size.filter(|size| {
            let long = said.value().raw().len() > size.most - marks(size.most);
            terms.calls && size.over == Over::Truncate && long
        });
        let how = (cuts.is_some(), terms.answer().sealed());
        ran.note(Control::Results);
        let seen = self.read_by(principal, server, |reader| {
            self.contents.look_without(server, reader, said.value(), &values, how, budget)
        });
        let (passed, findings) = passed(seen, said, &Bounds::ANSWER);
        found.extend(misfit.map(|(_, finding)| finding));
        found.extend(findings);
        let reply = match passed {
            Err(finding) => Shown::Withheld(finding),
            Ok(said) => match cuts {
                Some(size) => {
                    let how = (size.most, terms.answer().sealed());
                    self.shortened(principal, server, how, &said, &mut found, budget)
                }
                None => self.fitted(server, terms, said, &mut found),
            },
        };
        let reply = match reply {
            // What could not be looked at to its end is not shown, whatever the mode of what looked.
            Shown::Answer(_) | Shown::Apart(_) if budget.is_exhausted() => {
                found.push(Finding::over_budget());
                Shown::Withheld(Finding::over_budget())
            }
            reply @ (Shown::Answer(_) | Shown::Apart(_) | Shown::List(_) | Shown::Withheld(_)) => {
                reply
            }
        };
        Released { reply, findings: found, ran }
    }

    /// Whether a result is as the definition says, where it is held to that.
    fn compared(
        &self,
        principal: &Principal,
        server: &ServerName,
        terms: &Terms,
        said: &Fragment,
        budget: &Budget,
    ) -> Compared {
        let Some((schema, mode)) = &terms.output else { return Compared::default() };
        let schema = schema.get(server, &self.compiled, budget);
        match unlike(said.value(), &schema, budget) {
            None => Compared { fits: Some(schema), misfit: None },
            Some(finding) => {
                let finding = self.contents.placed(server, principal.id.as_str(), finding);
                Compared { fits: None, misfit: Some((*mode, finding)) }
            }
        }
    }

    /// Has `look` look at what `server` says as what `principal` reads, who sees what it does of its tools and those
    /// of other servers.
    fn read_by<T>(
        &self,
        principal: &Principal,
        server: &ServerName,
        look: impl FnOnce(Reader<'_>) -> T,
    ) -> T {
        let shadows = self.shadows.load_full();
        let others = |mention: &Mention| self.is_of_another(principal, server, mention, &shadows);
        let others = has_others(&shadows, server, &others);
        let own = |mention: &Mention| {
            shadows.names().is_of_own(server, mention, |name| {
                let mut listed = shadows.listed(server, Kind::Tool, name);
                listed.any(|offer| self.about(principal, server, offer).shows())
            })
        };
        look(Reader { caller: principal.id.as_str(), tools: Some(SeenTools { own: &own, others }) })
    }

    /// Whether something that a text of `server` names is a tool of another one that `principal` sees.
    fn is_of_another(
        &self,
        principal: &Principal,
        server: &ServerName,
        mention: &Mention,
        shadows: &Shadows,
    ) -> bool {
        shadows.names().is_of_another(server, mention, |other, name| {
            let (listed, approved) = (
                shadows.listed(other, Kind::Tool, name),
                shadows.approved(other, Kind::Tool, name),
            );
            let mut offers = listed.chain(approved);
            offers.any(|offer| self.about(principal, other, offer).shows())
        })
    }

    /// A result without what its caller does not see; `fits` is the schema that it is as.
    fn unlabelled(
        &self,
        principal: &Principal,
        server: &ServerName,
        terms: &Terms,
        fits: Option<&Schema>,
        said: Fragment,
        budget: &Budget,
    ) -> Result<Unlabelled, Finding> {
        let cut = self.cut(principal, server, said, (Part::Result, &terms.hidden), budget)?;
        let schema = fits.filter(|_| !cut.found.is_empty());
        let said = match schema {
            Some(schema) => fitting(cut.said, schema, budget)?,
            None => cut.said,
        };
        Ok(Unlabelled { said, ..cut })
    }

    /// What a server says without what `hidden` names.
    fn cut(
        &self,
        principal: &Principal,
        server: &ServerName,
        said: Fragment,
        (part, hidden): (Part, &Concealed),
        budget: &Budget,
    ) -> Result<Unlabelled, Finding> {
        let caller = principal.id.as_str();
        // Each name is looked up on the way to each label, and a text that is JSON is read again.
        let each = if hidden.is_empty() { 0 } else { LABELLED };
        if !budget.spend(said.value().span().len().saturating_mul(each)) {
            return Err(Finding::over_budget());
        }
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
            return Ok(Unlabelled { said, values: BTreeSet::new(), found: Vec::new() });
        };
        if cut.full {
            return Err(Finding::unchanged());
        }
        let document = Document::parse(cut.text.into(), &Bounds::ANSWER);
        let document = document.map_err(|_unreadable| Finding::unchanged())?;
        let said = Fragment::whole(Arc::new(document));
        let placed = |finding| self.contents.placed(server, caller, finding);
        let found = cut.findings.into_iter().map(placed).collect();
        Ok(Unlabelled { said, values: cut.values, found })
    }

    /// A result with its longest strings cut, and then the marks around what is left.
    fn shortened(
        &self,
        principal: &Principal,
        server: &ServerName,
        (most, sealed): (usize, &[&str]),
        said: &Fragment,
        found: &mut Vec<Finding>,
        budget: &Budget,
    ) -> Shown {
        found.push(Finding::too_long());
        let cut = || {
            let text = content::truncated(said.value(), most - most / MARKS)?;
            let document = Document::parse(text.into(), &Bounds::ANSWER).ok()?;
            let cut = Fragment::whole(Arc::new(document));
            let seen = self.read_by(principal, server, |reader| {
                self.contents.look_but(server, reader, cut.value(), sealed, budget)
            });
            let cut = passed(seen, cut, &Bounds::ANSWER).0.ok()?;
            (cut.value().raw().len() <= most).then_some(cut)
        };
        cut().map_or_else(
            || Shown::Withheld(Finding::too_long()),
            |cut| Shown::Answer(Reply::Result(cut)),
        )
    }

    /// A result as long as it may be.
    pub(super) fn fitted(
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
        match size.over {
            Over::Offload => Shown::Apart(said),
            // Only marks made it too long.
            Over::Refuse | Over::Truncate => Shown::Withheld(Finding::too_long()),
        }
    }

    /// May this be shown, which the server said before it replied, or without being asked? A reply
    /// that is `due` is so still, and what its caller does not see in that is not seen here either.
    pub fn release_early(
        &self,
        principal: &Principal,
        server: &ServerName,
        (part, told): (Part, Fragment),
        hidden: &Concealed,
        budget: &Budget,
    ) -> Released {
        let said = Heard { said: told, part, answer: Answer::Plain };
        let released = self.heard(principal, server, said, hidden, budget);
        let reply = match released.reply {
            Shown::Answer(Reply::Result(said) | Reply::Error(said)) => {
                Shown::Answer(Reply::Told(said))
            }
            other @ (Shown::Answer(Reply::Told(_) | Reply::List(_))
            | Shown::List(_)
            | Shown::Withheld(_)
            | Shown::Apart(_)) => other,
        };
        Released { reply, ..released }
    }

    /// May this result be shown, with which the server asks for something first? Its state is not looked
    /// at: the caller sees it sealed.
    pub fn release_asking(
        &self,
        principal: &Principal,
        server: &ServerName,
        asking: Fragment,
        hidden: &Concealed,
        budget: &Budget,
    ) -> Released {
        let said = Heard { said: asking, part: Part::Result, answer: Answer::Asking };
        let released = self.heard(principal, server, said, hidden, budget);
        let reply = match released.reply {
            Shown::Answer(Reply::Result(said)) => Shown::Answer(Reply::Told(said)),
            other @ (Shown::Answer(Reply::Told(_) | Reply::List(_) | Reply::Error(_))
            | Shown::List(_)
            | Shown::Withheld(_)
            | Shown::Apart(_)) => other,
        };
        Released { reply, ..released }
    }

    /// Whether results of tools of `server` that are too long are kept to be read.
    #[must_use]
    pub fn keeps(&self, server: &ServerName) -> bool {
        self.contents.of(server).size.is_some_and(|size| size.over == Over::Offload)
    }

    /// What is found in something that is said by a server or sent to it, and what becomes of it.
    #[must_use]
    pub fn looked_at(&self, server: &ServerName, direction: Direction, value: Value<'_>) -> Seen {
        self.contents.look(server, direction, "", value, &Budget::unlimited())
    }

    /// What a server said, as it may be shown: every string of it was looked at.
    fn heard(
        &self,
        principal: &Principal,
        server: &ServerName,
        heard: Heard,
        hidden: &Concealed,
        budget: &Budget,
    ) -> Released {
        let Heard { said, part, answer } = heard;
        let ran = Ran::of(&[Control::Results]);
        let Unlabelled { said, values, mut found } =
            match self.cut(principal, server, said, (part, hidden), budget) {
                Ok(unlabelled) => unlabelled,
                Err(finding) => return Released::withheld(finding, ran),
            };
        let how = (false, answer.sealed());
        let seen = self.read_by(principal, server, |reader| {
            self.contents.look_without(server, reader, said.value(), &values, how, budget)
        });
        let (passed, findings) = passed(seen, said, &Bounds::ANSWER);
        found.extend(findings);
        let reply = match (passed, part) {
            (Err(finding), _) => Shown::Withheld(finding),
            (Ok(said), Part::Result) => Shown::Answer(Reply::Result(said)),
            (Ok(said), Part::Error) => Shown::Answer(Reply::Error(said)),
            (Ok(said), Part::Params) => Shown::Answer(Reply::Told(said)),
        };
        Released { reply, findings: found, ran }
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
            let budget = Budget::new(USUAL_MOST);
            return self.release(principal, due, Reply::List(Arc::clone(&view.catalog)), &budget);
        }
        let (reply, ran) = (Shown::List(Arc::clone(view)), Ran::default());
        Released { reply, findings: Vec::new(), ran }
    }

    pub(super) fn view(&self, principal: &Principal, catalog: Arc<Catalog>) -> View {
        let (mut visible, mut hidden) = (Vec::new(), Vec::new());
        let (revoked, pins) = (self.revoked.load_full(), self.pins.load_full());
        let shadows = self.shadows.load_full();
        let given = self.given(principal, catalog.kind());
        for (at, offer) in catalog.offers().iter().enumerate() {
            let decision = self.about(principal, catalog.server(), offer);
            match self.cleaned(offer, self.excused(catalog.server(), offer)) {
                Ok(cleaned) if decision.shows() => visible.push((at, cleaned)),
                Ok(_) | Err(_) => hidden.push((at, decision)),
            }
        }
        let principal = principal.clone();
        View { principal, revoked, pins, shadows, given, catalog, visible, hidden }
    }
}

/// What each byte of a result with labels costs, in units.
const LABELLED: usize = 64;
/// Of a limit, one part in so many is kept free for marks around what is cut.
const MARKS: usize = 8;

/// What a reader sees of other servers, where there are any.
fn has_others<'a>(
    shadows: &Shadows,
    server: &ServerName,
    others: Others<'a>,
) -> Option<Others<'a>> {
    shadows.names().has_others(server).then_some(others)
}

/// Whether a result has a challenge for scopes that write, with which clients that know such members have their
/// users authorize more.
fn wants_to_write(result: Value<'_>) -> bool {
    let holders = [Some(result), result.get("result")].into_iter().flatten();
    let members = holders.filter_map(|holder| holder.get("_meta")).flat_map(Value::members);
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

/// A result from which values were taken that no longer is as the definition says, as an answer that
/// does not have to be: clients refuse others.
fn fitting(said: Fragment, schema: &Schema, budget: &Budget) -> Result<Fragment, Finding> {
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
    let document = Document::parse(out.into(), &Bounds::ANSWER);
    document.map_or(Err(Finding::unchanged()), |document| Ok(Fragment::whole(Arc::new(document))))
}

/// What of a result is not as the definition says; of one that says that the call failed nothing, and
/// of one that says that the call goes on nothing yet.
///
/// SPEC 2026-07-28 server/tools#output-schema
fn unlike(result: Value<'_>, schema: &Schema, budget: &Budget) -> Option<Finding> {
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
        Some(content) => schema.check(Some(content), budget),
        None => Err(missing()),
    };
    Some(Finding::misfit(Detector::OutputSchema, at, checked.err()?))
}
