//! Inspects clients' responses to elicitation and sampling requests before they are sent to the upstream server.

use std::sync::Arc;

use detection::inspect::Finding;
use json::Fragment;
use policy::engine::pipeline::{Facts, Policy};
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::guardrails::GuardrailSubject;
use super::server_request_records::{ServerQuestion, denied};
use super::server_requests::edited;
use super::{Gateway, Route};
use crate::mcp::protocol::code;
use crate::mcp::wire::{Id, ResponseOutcome};
use crate::metrics::outcome::ExchangeEnd;
use crate::outbound::guardrail;
use crate::upstream::{ClearedAnswer, ClearedOutcome, ServerReply, Upstream};

impl Gateway {
    /// Inspects a response and returns it as it may be sent, or `None` if it may not, with the findings of the
    /// detectors and the guardrails.
    pub(super) async fn sent(
        &self,
        caller: &Arc<Principal>,
        route: &Route,
        question: ServerQuestion<'_>,
        outcome: ResponseOutcome,
    ) -> (Option<ClearedOutcome>, Vec<Finding>) {
        let (answer, wrap): (_, fn(ClearedAnswer) -> ClearedOutcome) = match outcome {
            ResponseOutcome::Result(result) => (result, ClearedOutcome::Result),
            ResponseOutcome::Error(error) => (error, ClearedOutcome::Error),
        };
        let ServerQuestion { server, method } = question;
        let (sent, found) = self.answerable(caller, route, server, method, answer).await;
        for finding in &found {
            tracing::info!(
                event = "client_response.finding", server = %server.name(), %finding,
                "finding in the response of a client"
            );
        }
        (sent.ok().map(wrap), found)
    }

    /// The same for a response that belongs to no current exchange: findings get an audit record of their own, and
    /// without that record nothing is sent.
    pub(super) async fn answered_to(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        question: ServerQuestion<'_>,
        outcome: ResponseOutcome,
    ) -> Option<ClearedOutcome> {
        let (sent, found) = self.sent(caller, route, question, outcome).await;
        if found.is_empty() {
            return sent;
        }
        let ending = if sent.is_some() { ExchangeEnd::answered() } else { denied("content") };
        let recorded = self.on_record(caller, route, question, found, ending);
        sent.filter(|_| recorded)
    }

    /// Waits for the client's response to the server request `id`, at most `inputTimeout`; a refusal if none comes, or none
    /// that may be sent.
    pub(super) async fn awaited(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        question: ServerQuestion<'_>,
        id: &Id,
        response: oneshot::Receiver<ResponseOutcome>,
    ) -> ServerReply {
        let came = timeout(self.limits.input_timeout, response).await.ok().and_then(Result::ok);
        let sent = match came {
            Some(outcome) => self.answered_to(caller, route, question, outcome).await,
            None => None,
        };
        match sent {
            Some(outcome) => ServerReply::answer(id, outcome),
            None => ServerReply::refusal(id, code::INTERNAL, "the client did not answer"),
        }
    }

    /// Inspects a fragment of a client's response with the detectors and the guardrails of the route.
    pub(super) async fn answerable(
        &self,
        caller: &Arc<Principal>,
        route: &Route,
        server: &Upstream,
        name: &str,
        answer: Fragment,
    ) -> (Result<ClearedAnswer, Finding>, Vec<Finding>) {
        let granted = server.server_requests().answer_edits(answer.value());
        let Ok(answer) = edited(&answer, granted) else {
            let mut found = Vec::new();
            let finding = self.unseen(Finding::over_budget(), &mut found);
            return (Err(finding), found);
        };
        let (to, bytes) = (server.name().clone(), answer.value().span().len());
        let look =
            move |policy: &Policy, _: &Facts, caller: &Arc<Principal>, budget: &WorkBudget| {
                policy.answerable(caller, &to, answer, budget)
            };
        let Ok((sent, mut found)) = self.inspect(caller, bytes, look).await else {
            let mut found = Vec::new();
            let finding = self.unseen(Finding::over_budget(), &mut found);
            return (Err(finding), found);
        };
        self.note_findings(caller, &found);
        let answer = match sent {
            Ok(answer) => answer,
            Err(finding) => return (Err(finding), found),
        };
        let value = answer.value();
        let about = GuardrailSubject {
            server,
            name,
            part: guardrail::GuardedPart::Answers,
            value,
            beside: "",
        };
        let guarded = self.guarded(route, caller, about).await;
        match guarded {
            Ok((agreed, noted)) => {
                found.extend(noted);
                (Ok(ClearedAnswer::new(answer, agreed)), found)
            }
            Err((finding, noted)) => {
                found.extend(noted);
                (Err(finding), found)
            }
        }
    }
}
