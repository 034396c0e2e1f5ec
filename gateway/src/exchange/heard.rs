//! What a server says beside its answers, as a caller may see it: notifications and questions pass
//! the same inspection as answers do.

use std::sync::Arc;

use policy::ask::{Decision, Edit, Reason, Refusal};
use policy::inspect::Finding;
use policy::json::{Bounds, Document, Fragment};
use policy::labels::Part;
use policy::message::Reply;
use policy::pipeline::{Expectation, Policy, Released, Shown};
use policy::principal::Principal;
use policy::work::Budget;

use super::guarded::Matter;
use super::{Gateway, Route};
use crate::ending::{Ending, Outcome as Ended};
use crate::failure::Failure;
use crate::guardrail;
use crate::offload::OffloadError;
use crate::protocol::code;
use crate::upstream::{Asked, Question, Upstream, UpstreamError};
use crate::wire::{Notification, Outcome};

impl Gateway {
    /// Looks at a message of so many bytes, of which `caller` is the cause: here if it is short, and beside
    /// the threads that serve clients if it is not. What it may cost is in proportion to its length.
    ///
    /// # Errors
    /// When it could not be looked at.
    pub(super) async fn inspect<T, F>(
        &self,
        caller: &Arc<Principal>,
        bytes: usize,
        look: F,
    ) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce(&Policy, &Arc<Principal>, &Budget) -> T + Send + 'static,
    {
        let most = self.limits.inspection_work;
        if bytes < self.limits.inspected_inline {
            return Ok(look(&self.policy, caller, &Budget::for_bytes(bytes, most)));
        }
        let (policy, principal) = (Arc::clone(&self.policy), Arc::clone(caller));
        let look = move |budget: &Budget| look(&policy, &principal, budget);
        self.tasks.offload().run(caller.id.as_str(), bytes, most, look).await
    }

    /// An answer as `caller` may see it.
    ///
    /// # Errors
    /// When it could not be looked at: then nobody sees it.
    pub(super) async fn inspected(
        &self,
        caller: &Arc<Principal>,
        due: Expectation,
        reply: Reply,
    ) -> Result<Released, Failure> {
        let bytes = match &reply {
            Reply::Result(said) | Reply::Error(said) | Reply::Told(said) => {
                said.value().span().len()
            }
            Reply::List(_) => 0,
        };
        let look = |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
            policy.release(caller, due, reply, budget)
        };
        self.inspect(caller, bytes, look).await.map_err(|error| {
            tracing::warn!(error = %crate::report::Chain(&error), "an answer was withheld");
            let what = "the answer could not be looked at";
            Failure::Upstream(UpstreamError::Protocol(what))
        })
    }

    /// What a server said, as `caller` may see it, also by what its reply is held to that is `due`. What
    /// was found is counted, and added to `found`.
    ///
    /// # Errors
    /// What was found, if it is withheld for it.
    pub(super) async fn heard(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        (part, said): (Part, Option<Fragment>),
        due: Option<&Expectation>,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Fragment>, Finding> {
        let Some(said) = said else { return Ok(None) };
        let (name, bytes) = (server.name().clone(), said.value().span().len());
        let hidden = due.map(Expectation::hidden).cloned().unwrap_or_default();
        let look = move |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
            policy.release_early(caller, &name, (part, said), &hidden, budget)
        };
        self.early(caller, bytes, look, found).await
    }

    /// What may be shown of what was said before the answer, which `look` looks at. What was found is
    /// counted, and added to `found`.
    async fn early(
        &self,
        caller: &Arc<Principal>,
        bytes: usize,
        look: impl FnOnce(&Policy, &Arc<Principal>, &Budget) -> Released + Send + 'static,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Fragment>, Finding> {
        if bytes > self.limits.notification {
            return Err(self.unseen(Finding::too_long(), found));
        }
        let Ok(released) = self.inspect(caller, bytes, look).await else {
            return Err(self.unseen(Finding::over_budget(), found));
        };
        match self.counted_parts(released, found) {
            Shown::Answer(Reply::Told(said)) => Ok(Some(said)),
            Shown::Withheld(finding) => Err(finding),
            Shown::Answer(_) | Shown::List(_) | Shown::Apart(_) => Ok(None),
        }
    }

    /// What is found of what nobody has looked at: it is counted, and added to `found`.
    fn unseen(&self, finding: Finding, found: &mut Vec<Finding>) -> Finding {
        self.metrics.content([&finding]);
        found.push(finding.clone());
        finding
    }

    /// What may be shown of what was released. What was found is counted, and added to `found`.
    pub(super) fn counted_parts(&self, released: Released, found: &mut Vec<Finding>) -> Shown {
        self.metrics.ran(released.ran());
        let (shown, findings) = released.into_parts();
        self.metrics.content(&findings);
        found.extend(findings);
        shown
    }

    /// A notification as `caller` may see it, if it may; what was found in it is logged.
    pub(super) async fn told(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        told: &Notification,
    ) -> Option<Notification> {
        let mut found = Vec::new();
        let said = (Part::Params, told.params.clone());
        let params = self.heard(caller, server, said, None, &mut found).await;
        for finding in &found {
            tracing::info!(server = %server.name(), method = %told.method, %finding, "found in what a server said");
        }
        match params {
            Ok(params) => Some(Notification { method: told.method.clone(), params }),
            Err(finding) => {
                tracing::warn!(server = %server.name(), method = %told.method, %finding, "a notification was withheld");
                None
            }
        }
    }

    /// What a client answered to a question, as it may be sent; `None` if it may not. And what was found
    /// in it, by the detectors and by the guardrails of the route.
    pub(super) async fn sent(
        &self,
        caller: &Arc<Principal>,
        route: &Route,
        (server, asked): (&Upstream, &str),
        outcome: Outcome,
    ) -> (Option<Outcome>, Vec<Finding>) {
        let (answer, wrap): (_, fn(Fragment) -> Outcome) = match outcome {
            Outcome::Result(result) => (result, Outcome::Result),
            Outcome::Error(error) => (error, Outcome::Error),
        };
        let (sent, found) = self.answerable(caller, route, (server, asked), answer).await;
        for finding in &found {
            tracing::info!(server = %server.name(), %finding, "found in what a client answered");
        }
        (sent.ok().map(wrap), found)
    }

    /// The same for an answer that is waited for beside the exchange: what was found in it is a record of
    /// its own, without which it is not sent.
    pub(super) async fn answered_to(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        about: (&Upstream, &str),
        outcome: Outcome,
    ) -> Option<Outcome> {
        let (sent, found) = self.sent(caller, route, about, outcome).await;
        let recorded = self.noted(caller, route, about, (sent.is_some(), found));
        sent.filter(|_| recorded)
    }

    /// What a client answers to a server, as it may be sent, and what was found in it.
    pub(super) async fn answerable(
        &self,
        caller: &Arc<Principal>,
        route: &Route,
        (server, name): (&Upstream, &str),
        answer: Fragment,
    ) -> (Result<Fragment, Finding>, Vec<Finding>) {
        let (to, bytes) = (server.name().clone(), answer.value().span().len());
        let look = move |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
            policy.answerable(caller, &to, answer, budget)
        };
        let Ok((sent, mut found)) = self.inspect(caller, bytes, look).await else {
            let mut found = Vec::new();
            let finding = self.unseen(Finding::over_budget(), &mut found);
            return (Err(finding), found);
        };
        self.metrics.content(&found);
        let answer = match sent {
            Ok(answer) => answer,
            Err(finding) => return (Err(finding), found),
        };
        let value = answer.value();
        let about = Matter { server, name, part: guardrail::Part::Answers, value, beside: "" };
        let guarded = self.guarded(route, caller, about).await;
        match guarded {
            Ok(noted) => {
                found.extend(noted);
                (Ok(answer), found)
            }
            Err((finding, noted)) => {
                found.extend(noted);
                (Err(finding), found)
            }
        }
    }

    /// Records what was found in an answer to a question that belongs to no exchange, or to one that goes
    /// on by itself; whether it may be sent for that.
    pub(super) fn noted(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        (server, asked): (&Upstream, &str),
        (sends, found): (bool, Vec<Finding>),
    ) -> bool {
        if found.is_empty() {
            return true;
        }
        let ending = if sends { Ending::answered() } else { denied("content") };
        self.on_record(caller, route, (server, asked), found, ending)
    }

    /// Records that a server may not ask what it asked outside of a call.
    pub(super) fn refused_to(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        (server, asked): (&Upstream, &str),
        refusal: Refusal,
    ) {
        tracing::warn!(server = %server.name(), asked, %refusal, "a server may not ask this of clients");
        let finding = Finding::unasked(refusal.at, refusal.reason.code());
        self.metrics.content([&finding]);
        let ending = denied(refusal.reason.code());
        self.on_record(caller, route, (server, asked), vec![finding], ending);
    }

    fn on_record(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        (server, asked): (&Upstream, &str),
        found: Vec<Finding>,
        ending: Ending,
    ) -> bool {
        let mut record = self.listening(caller, route, server.name());
        record.method = Some(asked.into());
        record.found(found);
        let recorded = self.journal.refused(&record, ending);
        if let Err(error) = &recorded {
            tracing::error!(error = %crate::report::Chain(error), "not recorded");
        }
        recorded.is_ok()
    }

    /// What a server asks, as far as it may ask it of clients.
    ///
    /// # Errors
    /// Why it may not: then nothing of it is asked.
    pub(super) fn judged(&self, server: &Upstream, asked: Asked) -> Result<Asked, Refusal> {
        let Asked { questions, result } = asked;
        let mut edits = Vec::with_capacity(questions.len());
        for question in &questions {
            let params = question.params.as_ref().map(Fragment::value);
            edits.push(match server.asks().decide(&question.method, params) {
                Decision::Deliver => Vec::new(),
                Decision::Cut(edits) => edits,
                Decision::Refuse(refusal) => return Err(refusal),
            });
        }
        if edits.iter().all(Vec::is_empty) {
            return Ok(Asked { questions, result });
        }
        let Some(result) = result else {
            let cut = |(question, edits): (Question, Vec<Edit>)| {
                let params = question.params.as_ref().map(|params| edited(params, edits));
                Ok(Question { params: params.transpose()?, ..question })
            };
            let questions = questions.into_iter().zip(edits).map(cut).collect::<Result<_, _>>()?;
            return Ok(Asked { questions, result: None });
        };
        // What is asked stands in the result as well.
        let result = edited(&result, edits.into_iter().flatten().collect())?;
        let document = result.document();
        let again = |question: Question| {
            let asked = result.value().get("inputRequests");
            let params = asked.and_then(|asked| asked.get(&question.key)?.get("params"));
            let params = params.map(|params| params.fragment(&document));
            Question { params, ..question }
        };
        let questions = questions.into_iter().map(again).collect();
        Ok(Asked { questions, result: Some(result) })
    }

    /// Questions as `caller` may see them.
    ///
    /// # Errors
    /// What was found, if one is withheld for it: then none is asked.
    pub(super) async fn asked(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        asked: Asked,
        due: Option<&Expectation>,
        found: &mut Vec<Finding>,
    ) -> Result<Asked, Finding> {
        let Asked { questions, result } = asked;
        // What is asked stands in the result too, and is counted once.
        let result = match result {
            Some(result) => {
                let (name, bytes) = (server.name().clone(), result.value().span().len());
                let hidden = due.map(Expectation::hidden).cloned().unwrap_or_default();
                let look = move |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
                    policy.release_asking(caller, &name, result, &hidden, budget)
                };
                self.early(caller, bytes, look, found).await?
            }
            None => None,
        };
        let mut again = Vec::new();
        let mut shown = Vec::with_capacity(questions.len());
        for Question { key, id, method, params } in questions {
            let found = if result.is_some() { &mut again } else { &mut *found };
            let params = self.heard(caller, server, (Part::Params, params), due, found).await?;
            shown.push(Question { key, id, method, params });
        }
        Ok(Asked { questions: shown, result })
    }
}

/// How an exchange ends in which something was not passed on.
fn denied(reason: &'static str) -> Ending {
    let (outcome, code) = (Ended::Denied, Some(code::DENIED));
    Ending { outcome, reason: Some(reason), code, ..Ending::answered() }
}

/// A value with some parts of it changed.
fn edited(fragment: &Fragment, mut edits: Vec<Edit>) -> Result<Fragment, Refusal> {
    if edits.is_empty() {
        return Ok(fragment.clone());
    }
    edits.sort_by_key(|edit| edit.span.start);
    let value = fragment.value();
    let (raw, start) = (value.raw(), value.span().start);
    let (mut out, mut done) = (String::with_capacity(raw.len() + 16), 0);
    for Edit { span, text } in &edits {
        let (from, to) = (span.start.saturating_sub(start), span.end.saturating_sub(start));
        out.push_str(raw.get(done..from).unwrap_or_default());
        out.push_str(text);
        done = to;
    }
    out.push_str(raw.get(done..).unwrap_or_default());
    let malformed = |_error| Refusal { reason: Reason::Malformed, at: "" };
    let document = Document::parse(out.into(), &Bounds::ANSWER).map_err(malformed)?;
    Ok(Fragment::whole(Arc::new(document)))
}
