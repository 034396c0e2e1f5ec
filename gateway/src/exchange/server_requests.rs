//! Judges and inspects elicitation, sampling and roots requests of a server before a client sees them.

use std::borrow::Cow;
use std::sync::Arc;

use detection::inspect::Finding;
use detection::labels::LabelledPart;
use json::{Document, Fragment, JsonBounds};
use policy::definition::offer::ReadOnlyHint;
use policy::engine::ask::{JsonEdit, Refusal, RefusalReason};
use policy::engine::pipeline::{EarlyMessage, Expectation, Facts, Policy, Shown};
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;

use super::Gateway;
use crate::upstream::{InputRequest, InputRequired, Upstream};

impl Gateway {
    /// Lets the policy judge a server's requests, and applies the edits it requires. `hint` is the read-only hint of
    /// the tool that is being called.
    ///
    /// # Errors
    /// The refusal; then none of the requests is sent.
    pub(super) async fn judged(
        &self,
        caller: &Arc<Principal>,
        server: &Arc<Upstream>,
        asked: InputRequired,
        hint: ReadOnlyHint,
    ) -> Result<InputRequired, Refusal> {
        let InputRequired { questions, result } = asked;
        let put = questions.iter().map(|one| (one.method.clone(), one.params.clone())).collect();
        let edits = self.edits(caller, server, put, hint).await?;
        if edits.iter().all(Vec::is_empty) {
            return Ok(InputRequired { questions, result });
        }
        let Some(result) = result else {
            let cut = |(question, edits): (InputRequest, Vec<JsonEdit>)| {
                let params = question.params.as_ref().map(|params| edited(params, edits));
                Ok(InputRequest { params: params.transpose()?, ..question })
            };
            let questions = questions.into_iter().zip(edits).map(cut).collect::<Result<_, _>>()?;
            return Ok(InputRequired { questions, result: None });
        };
        // A modern server's result contains the same requests.
        let result = edited(&result, edits.into_iter().flatten().collect())?;
        let document = result.document();
        let again = |question: InputRequest| {
            let asked = result.value().get("inputRequests");
            let params = asked.and_then(|asked| asked.get(&question.key)?.get("params"));
            let params = params.map(|params| params.fragment(&document));
            InputRequest { params, ..question }
        };
        let questions = questions.into_iter().map(again).collect();
        Ok(InputRequired { questions, result: Some(result) })
    }

    /// The edits that the policy requires for each of the requests, given as methods with their params.
    ///
    /// # Errors
    /// The refusal; then none of the requests is sent.
    pub(super) async fn edits(
        &self,
        caller: &Arc<Principal>,
        server: &Arc<Upstream>,
        put: Vec<(Box<str>, Option<Fragment>)>,
        hint: ReadOnlyHint,
    ) -> Result<Vec<Vec<JsonEdit>>, Refusal> {
        // What is refused for another reason reaches nobody, and does not count.
        let edits = self.edits_uncounted(caller, server, put, hint).await?;
        self.within_request_rate(caller, server, edits.len())?;
        Ok(edits)
    }

    /// The same for requests that were counted before: a task that waits repeats them whenever it is asked for.
    ///
    /// # Errors
    /// The refusal; then none of the requests is sent.
    pub(super) async fn edits_uncounted(
        &self,
        caller: &Arc<Principal>,
        server: &Arc<Upstream>,
        put: Vec<(Box<str>, Option<Fragment>)>,
        hint: ReadOnlyHint,
    ) -> Result<Vec<Vec<JsonEdit>>, Refusal> {
        let length = |params: &Fragment| params.value().raw().len();
        let lengths = put.iter().filter_map(|(_, params)| params.as_ref().map(length));
        let (bytes, asking) = (lengths.sum(), Arc::clone(server));
        let look = move |_: &Policy, _: &Facts, _: &Arc<Principal>, budget: &WorkBudget| {
            let put = put.iter().map(|(method, params)| {
                (Cow::Borrowed(&**method), params.as_ref().map(Fragment::value))
            });
            asking.server_requests().decide_all(put, hint, budget)
        };
        let decided = self.inspect(caller, bytes, look).await;
        decided.unwrap_or_else(|error| {
            tracing::warn!(
                event = "server_request.uninspected",
                error = %crate::base::error_chain::ErrorChain(&error),
                "a server request could not be inspected; it was refused"
            );
            Err(Refusal::unjudged())
        })
    }

    /// Counts `requests` of a server to a caller.
    ///
    /// # Errors
    /// The refusal, if the server makes more than its rate permits.
    fn within_request_rate(
        &self,
        caller: &Principal,
        server: &Upstream,
        requests: usize,
    ) -> Result<(), Refusal> {
        let Some(rate) = server.server_requests().rate else { return Ok(()) };
        let now = self.clock.instant();
        for _ in 0..requests {
            // No tool has the empty name.
            let key = (caller.id.as_str().into(), server.name().as_str().into(), "".into());
            if self.rate_limiter.take(key, rate, now).is_err() {
                return Err(Refusal::too_often());
            }
        }
        Ok(())
    }

    /// The requests as `caller` may see them.
    ///
    /// # Errors
    /// The finding if one of them is withheld; then none is sent.
    pub(super) async fn asked(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        asked: InputRequired,
        expectation: Option<&Expectation>,
        found: &mut Vec<Finding>,
    ) -> Result<InputRequired<Shown>, Finding> {
        let InputRequired { questions, result } = asked;
        // The result contains the same requests, so its findings are counted instead of theirs.
        let result = match result {
            Some(result) => {
                let (name, bytes) = (server.name().clone(), result.value().span().len());
                let hidden = expectation.map(Expectation::hidden).cloned().unwrap_or_default();
                let look = move |policy: &Policy,
                                 facts: &Facts,
                                 caller: &Arc<Principal>,
                                 budget: &WorkBudget| {
                    policy.release_asking(facts, caller, &name, result, &hidden, budget)
                };
                self.early(caller, bytes, look, found).await?
            }
            None => None,
        };
        let mut again = Vec::new();
        let mut shown = Vec::with_capacity(questions.len());
        for InputRequest { key, id, method, params } in questions {
            let found = if result.is_some() { &mut again } else { &mut *found };
            let params = match params {
                Some(said) => {
                    let told = EarlyMessage { part: LabelledPart::Params, said };
                    self.heard(caller, server, told, expectation, found).await?
                }
                None => None,
            };
            shown.push(InputRequest { key, id, method, params });
        }
        Ok(InputRequired { questions: shown, result })
    }
}

/// A fragment with the edits applied.
///
/// # Errors
/// If what results is not a document within the bounds of an answer.
pub(super) fn edited(fragment: &Fragment, mut edits: Vec<JsonEdit>) -> Result<Fragment, Refusal> {
    if edits.is_empty() {
        return Ok(fragment.clone());
    }
    edits.sort_by_key(|edit| edit.span.start);
    let value = fragment.value();
    let (raw, start) = (value.raw(), value.span().start);
    let (mut out, mut done) = (String::with_capacity(raw.len() + 16), 0);
    for JsonEdit { span, text } in &edits {
        let (from, to) = (span.start.saturating_sub(start), span.end.saturating_sub(start));
        out.push_str(raw.get(done..from).unwrap_or_default());
        out.push_str(text);
        done = to;
    }
    out.push_str(raw.get(done..).unwrap_or_default());
    let malformed = |_error| Refusal { reason: RefusalReason::Malformed, at: "" };
    let document = Document::parse(out.into(), &JsonBounds::ANSWER).map_err(malformed)?;
    Ok(Fragment::whole(Arc::new(document)))
}
