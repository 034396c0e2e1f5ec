//! Holds clients' answers to what they were asked, before anything of them is sent to a server.
//!
//! What an answer must be is taken from the request as the client was shown it: a session keeps it with the question, a
//! modern client carries it in its `requestState`, a parked call has it, and of tasks it is remembered.

use std::sync::Arc;

use detection::inspect::{Detector, Finding};
use http::Response;
use json::{Document, Fragment, JsonBounds, Value};
use policy::engine::ask::{AnswerTerms, RequestTerms};
use policy::engine::message::{RequestOperation, TaskOperation};
use policy::engine::pipeline::{Facts, Policy, Shown};
use policy_core::base::work::WorkBudget;
use policy_core::schema::SchemaViolation;
use policy_core::subject::principal::Principal;

use super::in_flight_call::UpstreamCall;
use super::state::RequestState;
use super::{DecodedRequest, Gateway, Route};
use crate::audit::{ReadEntry, Record};
use crate::edge::decode::UseOperation;
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::protocol::ProtocolVersion;
use crate::session::task_questions::TaskDigest;
use crate::stream::body::Body;
use crate::upstream::InputRequest;

/// The note for answers to a task of which no questions are known.
const UNKNOWN_TASK: &str = "is for a task whose questions the gateway does not know: get the task (`tasks/get`), and answer again";

/// Answers of a modern client, with what they must be.
pub(super) struct GivenAnswers {
    answers: Fragment,
    terms: Option<Arc<RequestTerms>>,
    unasked: UnaskedAnswers,
}

/// What becomes of answers under other keys than those of the requests.
#[derive(Clone, Copy)]
enum UnaskedAnswers {
    /// They would be sent to the server, and are refused.
    Refused,
    /// They are sent to nobody (SPEC 2026-07-28, SEP-2322: what was not asked for is ignored).
    Dropped,
}

impl GivenAnswers {
    /// Compares the answers with what they must be.
    fn check(&self, budget: &WorkBudget) -> Result<(), SchemaViolation> {
        let answers = self.answers.value();
        let Some(terms) = &self.terms else {
            let note = UNKNOWN_TASK.to_owned();
            return Err(SchemaViolation { at: String::new(), note });
        };
        match self.unasked {
            UnaskedAnswers::Refused => terms.check(answers, budget),
            UnaskedAnswers::Dropped => terms.check_asked(answers, budget),
        }
    }

    /// The answers that were asked for; `None` if there are none.
    pub(super) fn asked(&self) -> Option<Fragment> {
        let (answers, terms) = (self.answers.value(), self.terms.as_ref()?);
        let is_asked = |key: &str| terms.asks(key);
        if answers.members().all(|(key, _)| is_asked(&key)) {
            return Some(self.answers.clone());
        }
        let asked: Vec<_> = answers.members().filter(|(key, _)| is_asked(key)).collect();
        let mut out = Vec::new();
        json::write_members(&mut out, asked.iter(), |out, (key, answer)| {
            json::write_name(out, key);
            out.extend_from_slice(answer.raw().as_bytes());
        });
        // INVARIANT: an object from which members were removed is within the bounds of the whole.
        let document = Document::parse(out.into(), &JsonBounds::ANSWER).ok()?;
        (!asked.is_empty()).then(|| Fragment::whole(Arc::new(document)))
    }
}

impl Gateway {
    /// The answers in an update of a task, with what they must be.
    pub(super) fn task_answers(
        &self,
        arrived: &DecodedRequest,
        ask: &UseOperation,
    ) -> Option<GivenAnswers> {
        if !matches!(ask.verb, RequestOperation::Task(TaskOperation::Update)) {
            return None;
        }
        let (_, answers) = ask.extra.iter().find(|(key, _)| &**key == "inputResponses")?;
        let task = self.task(arrived, ask)?;
        let server = arrived.route.servers.get(task.server_index)?;
        let id = task.id.value().as_str()?;
        let caller = &arrived.caller.principal;
        let digest = digest(caller, &arrived.route, server.name().as_str(), &id);
        let terms = self.task_questions.of(caller.id.as_str(), digest);
        Some(GivenAnswers { answers: answers.clone(), terms, unasked: UnaskedAnswers::Refused })
    }

    /// The answers in a request that are for a server, with what they must be.
    pub(super) fn given_answers(
        &self,
        state: Option<&RequestState>,
        inputs: Option<&Fragment>,
        of_task: Option<GivenAnswers>,
    ) -> Option<GivenAnswers> {
        let given = |terms| {
            let (answers, unasked) = (inputs?.clone(), UnaskedAnswers::Dropped);
            Some(GivenAnswers { answers, terms: Some(terms), unasked })
        };
        match state {
            _ if of_task.is_some() => of_task,
            // What was asked is not known: a server without a state takes answers in a first request as well (SEP-2322). They are
            // inspected like arguments.
            None => None,
            Some(RequestState::Server(state)) => given(Arc::new(state.terms.clone())),
            Some(RequestState::Parked(name)) => {
                given(self.parked_calls.read(name, |parked| Arc::clone(&parked.terms))?)
            }
            // Their answers are not sent to a server.
            Some(RequestState::Again | RequestState::Approval(_)) => None,
        }
    }

    /// Refuses a request with answers that are not what was asked for, and notes why in its record.
    ///
    /// # Errors
    /// The failure.
    pub(super) async fn fit_given(
        &self,
        arrived: &DecodedRequest,
        given: Option<GivenAnswers>,
        record: &mut ReadEntry,
    ) -> Result<(), Failure> {
        let Some(given) = given else { return Ok(()) };
        self.fit(arrived, given).await.map_err(|finding| {
            record.found(vec![finding.clone()]);
            Failure::Answer(finding)
        })
    }

    /// Compares answers of a modern client with what they must be.
    ///
    /// # Errors
    /// The finding.
    pub(super) async fn fit(
        &self,
        arrived: &DecodedRequest,
        given: GivenAnswers,
    ) -> Result<(), Finding> {
        let bytes = given.answers.value().span().len();
        let length = given.terms.as_ref().map_or(0, |terms| terms.length());
        let look = move |_: &Policy, _: &Facts, _: &Arc<Principal>, budget: &WorkBudget| {
            given.check(budget)
        };
        self.compared(arrived, bytes.saturating_add(length), "/inputResponses", look).await
    }

    /// Compares the result of a legacy client with what it must be.
    ///
    /// # Errors
    /// The finding.
    pub(super) async fn fits_terms(
        &self,
        arrived: &DecodedRequest,
        terms: Arc<AnswerTerms>,
        result: &Fragment,
    ) -> Result<(), Finding> {
        let (bytes, result) = (result.value().span().len(), result.clone());
        let bytes = bytes.saturating_add(terms.length());
        let look = move |_: &Policy, _: &Facts, _: &Arc<Principal>, budget: &WorkBudget| {
            terms.check(result.value(), budget)
        };
        self.compared(arrived, bytes, "/result", look).await
    }

    async fn compared(
        &self,
        arrived: &DecodedRequest,
        bytes: usize,
        at: &str,
        look: impl FnOnce(&Policy, &Facts, &Arc<Principal>, &WorkBudget) -> Result<(), SchemaViolation>
        + Send
        + 'static,
    ) -> Result<(), Finding> {
        let caller = &arrived.caller.principal;
        let Ok(compared) = self.inspect(caller, bytes, look).await else {
            return Err(Finding::over_budget());
        };
        let compared =
            compared.map_err(|misfit| Finding::misfit(Detector::InputSchema, at, misfit));
        compared.inspect_err(|finding| self.note_findings(caller, [finding]))
    }

    /// Records and refuses the response of a legacy client. The error has no id: that of the response belongs to a request
    /// of the gateway, and a request of the client may have the same.
    pub(super) fn refuse_answer(&self, record: &Record, finding: Finding) -> Response<Body> {
        let failure = Failure::Answer(finding);
        let public = failure.public(record.version.map(ProtocolVersion::era));
        match self.journal.record_unopened(record, failure.ending(&public)) {
            Ok(()) => encode::error(&public, None),
            Err(error) => self.unrecorded(record, error),
        }
    }
}

impl UpstreamCall {
    /// What the answers to these requests must be.
    pub(super) fn terms(&self, questions: &[InputRequest<Shown>]) -> RequestTerms {
        RequestTerms::of(questions.iter().map(|question| {
            let params = question.params.as_ref().map(Shown::value);
            let terms = self.server.server_requests().terms(&question.method, params);
            (question.key.clone(), terms)
        }))
    }

    /// Remembers what a task asks in a result that the client is shown.
    pub(super) fn remember_task_questions(&self, result: Value<'_>) {
        if !matches!(self.answer.verb(), RequestOperation::Call | RequestOperation::Task(_)) {
            return;
        }
        let holders = [Some(result), result.get("task"), result.get("result")];
        let asked = holders.into_iter().flatten().filter_map(|holder| holder.get("inputRequests"));
        let asked: Vec<_> = asked.flat_map(Value::members).collect();
        if asked.is_empty() {
            return;
        }
        let named = [Some(result), result.get("task")].into_iter().flatten();
        let id = named.filter_map(|holder| holder.get("taskId")).find_map(Value::as_str);
        let sent = self.answer.call().extra.iter().find(|(key, _)| &**key == "taskId");
        let id = id.or_else(|| sent.and_then(|(_, id)| id.value().as_str()));
        let Some(id) = id else { return };
        let policy = self.server.server_requests();
        let terms = RequestTerms::of(asked.into_iter().map(|(key, question)| {
            let method = question.get("method").and_then(Value::as_str).unwrap_or_default();
            (key.into(), policy.terms(&method, question.get("params")))
        }));
        let digest = digest(&self.caller, &self.route, self.server.name().as_str(), &id);
        self.gateway.task_questions.remember(self.caller.id.as_str(), digest, terms);
    }
}

/// The digest of a task of a caller.
fn digest(caller: &Principal, route: &Route, server: &str, id: &str) -> TaskDigest {
    TaskDigest::of([caller.key(), route.identity(), server, id])
}
