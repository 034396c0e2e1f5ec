//! What a server asks of clients, as far as it may ask it and as a caller may see it.

use std::sync::Arc;

use policy::ask::{Decision, Edit, Reason, Refusal};
use policy::inspect::Finding;
use policy::json::{Bounds, Document, Fragment};
use policy::labels::Part;
use policy::pipeline::{Expectation, Policy};
use policy::principal::Principal;
use policy::work::Budget;

use super::Gateway;
use crate::upstream::{Asked, Question, Upstream};

impl Gateway {
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
