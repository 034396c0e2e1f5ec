//! Elicitation, sampling and roots requests that a server sends during a call.
//!
//! A legacy client receives them on the stream of its call and responds with a message of its own. A modern client
//! receives them as the result of its call and repeats the call with the responses. Client and server may be of
//! different eras: a legacy server's call is parked in the gateway in the meantime, a modern server is called again.

use std::sync::Arc;
use std::time::Instant;

use http::Response;
use json::{Fragment, JsonKind, Value};
use policy::engine::ask::{AT_ONCE, JsonEdit, LONGEST_TERMS, Refusal, RequestTerms};
use policy::engine::message::RequestOperation;
use policy::engine::pipeline::Shown;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::event_sink::EventSink;
use super::in_flight_call::{CallEvent, InFlightCall, UpstreamCall};
use super::server_request_records::ServerQuestion;
use super::server_requests::edited;
use super::state::{RequestState, ServerState};
use crate::base::random;
use crate::base::share::{Holder, Share};
use crate::config::quota::Quota;
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::client_info::capability_for;
use crate::mcp::protocol::{Era, code, method};
use crate::mcp::wire::{self, DecodeError};
use crate::metrics::outcome::ExchangeEnd;
use crate::stream::body::Body;
use crate::upstream::{
    AnswerStep, ClearedAnswer, ClearedOutcome, InputRequest, InputRequired, InputResponsesDraft,
    ServerReply, UpstreamError,
};

/// Largest number of rounds of server requests in one call.
const ROUNDS: usize = 32;

/// Members of a result by which a server asks its client, or that hold a result or a task that does.
const HOLDER: [&str; 10] = [
    "inputRequests",
    "requestState",
    "resultType",
    "status",
    "task",
    "taskId",
    "result",
    "structuredContent",
    "isError",
    "_meta",
];

/// The failure for what a server asks in names that some clients would read otherwise.
const fn misspelled() -> Failure {
    Failure::Upstream(UpstreamError::Protocol(
        "an entry of `inputRequests` has a member in another spelling",
    ))
}

/// Whether a client could take `error` for one that requires URL elicitation, also one that reads names loosely.
///
/// SPEC 2025-11-25 client/elicitation#url-elicitation-required-error
pub(super) fn may_require_elicitation(error: &Fragment) -> bool {
    let value = error.value();
    has_misspelled_elicitations(value) || is_elicitation_required(value)
}

/// Whether some clients would read an error as one that requires URL elicitation, or other pages in it.
fn has_misspelled_elicitations(error: Value<'_>) -> bool {
    let data = error.get("data");
    wire::is_misspelled(error, &wire::ERROR)
        || data.is_some_and(|data| wire::is_misspelled(data, &["elicitations"]))
}

/// Elicitation requests with these params, each with the edits that the policy requires.
fn elicitations(
    params: impl Iterator<Item = (Fragment, Vec<JsonEdit>)>,
) -> Result<Vec<InputRequest>, Refusal> {
    let question = |(n, (params, edits)): (usize, (Fragment, Vec<JsonEdit>))| {
        let (key, params) = (format!("elicitation-{n}").into(), Some(edited(&params, edits)?));
        Ok(InputRequest { key, id: None, method: method::ELICIT.into(), params })
    };
    params.enumerate().map(question).collect()
}

/// Whether the code of an error says that it requires URL elicitation.
fn is_elicitation_required(error: Value<'_>) -> bool {
    error.get("code").and_then(Value::as_i64) == Some(i64::from(code::URL_ELICITATION))
}

/// A call that is parked until its client responds.
#[derive(Debug)]
pub struct ParkedCall {
    pub(super) call: UpstreamCall,
    pub(super) since: Instant,
    /// What the client's answers must be.
    pub(super) terms: Arc<RequestTerms>,
    /// The caller's share of parked calls.
    pub(super) share: Share<Holder>,
}

impl InFlightCall {
    /// Checks that the client declared the capabilities that the requests need; a server that asks for more violates
    /// the protocol.
    fn can_be_asked(&self, questions: &[InputRequest<Shown>]) -> Result<(), Failure> {
        let lacking = questions.iter().find_map(|question| {
            let params = question.params.as_ref().map(Shown::value);
            self.call.client.lacks(&question.method, params)
        });
        lacking.map_or(Ok(()), |capability| Err(Failure::Unasked(capability)))
    }

    /// Lets the policy judge server requests. `None` if they were refused and the legacy server was told, so that the
    /// call continues.
    pub(super) async fn permitted(&mut self, asked: InputRequired) -> Option<CallEvent> {
        let ids: Vec<_> = asked.questions.iter().filter_map(|asked| asked.id.clone()).collect();
        let hint = self.call.hint();
        let said = asked.questions.iter().map(|one| one.params.as_ref().map(Fragment::value));
        let said = said.chain(asked.result.iter().map(|result| Some(result.value())));
        let is_withheld = said.chain([None]).any(|said| self.call.is_withheld(said));
        let UpstreamCall { gateway, caller, server, .. } = &self.call;
        let judged = match is_withheld {
            true => Err(Refusal::to_planner()),
            false => gateway.judged(caller, server, asked, hint).await,
        };
        let refusal = match judged {
            Ok(asked) => return Some(CallEvent::Step(AnswerStep::Asked(asked))),
            Err(refusal) => refusal,
        };
        self.refused += 1;
        self.note(refusal);
        if ids.is_empty() || self.refused > ROUNDS {
            return Some(CallEvent::Refused(refusal));
        }
        let replier = self.call.answer.replier();
        for id in &ids {
            let note = refusal.reason.note();
            replier.reply(ServerReply::refusal(id, code::DENIED, note)).await;
        }
        None
    }

    /// The failure for an upstream error. If the server demands scopes for writing, for a tool with a read-only hint,
    /// the demand is refused.
    pub(super) fn failed(&mut self, error: UpstreamError) -> Failure {
        match error.wanted_of(self.call.hint()) {
            Some(refusal) => {
                self.note(refusal);
                Failure::Refused(refusal)
            }
            None => Failure::Upstream(error),
        }
    }

    /// Records that the policy refused a server request.
    fn note(&mut self, refusal: Refusal) {
        let finding = self.call.gateway.not_asked(&self.call.server, refusal);
        self.frame.entry.found(vec![finding]);
    }

    /// Judges server requests inside a result of another type, such as a task status. Returns the result with the edits
    /// that the policy requires; `None` if it requires none.
    pub(super) async fn asks_in(&mut self, result: &Fragment) -> Result<Option<Fragment>, Failure> {
        let (value, document) = (result.value(), result.document());
        let holders = [Some(value), value.get("task"), value.get("result")];
        // A client that reads names loosely would be asked what was not judged here.
        if holders.into_iter().flatten().any(|holder| wire::is_misspelled(holder, &HOLDER)) {
            return Err(misspelled());
        }
        let asked = holders.into_iter().flatten().filter_map(|holder| holder.get("inputRequests"));
        let mut questions = asked.clone().flat_map(Value::members);
        if questions.any(|(_, question)| wire::is_misspelled(question, &wire::SERVER_REQUEST)) {
            return Err(misspelled());
        }
        let put = asked.flat_map(Value::members).map(|(_, question)| {
            let method = question.get("method").and_then(Value::as_str).unwrap_or_default();
            (method.into(), question.get("params").map(|params| params.fragment(&document)))
        });
        let put: Vec<(Box<str>, Option<Fragment>)> = put.take(AT_ONCE + 1).collect();
        if put.is_empty() {
            return Ok(None);
        }
        let hint = self.call.hint();
        let UpstreamCall { gateway, caller, server, client, .. } = &self.call;
        let lacking = put
            .iter()
            .find_map(|(asked, params)| client.lacks(asked, params.as_ref().map(Fragment::value)));
        // Boxed, because few results ask for anything, and the futures of all of them would have room for it.
        let is_polled = matches!(self.call.answer.verb(), RequestOperation::Task(_));
        let edits = async {
            match is_polled {
                true => gateway.edits_uncounted(caller, server, put, hint).await,
                false => gateway.edits(caller, server, put, hint).await,
            }
        };
        let refusal = match Box::pin(edits).await {
            Ok(_) if let Some(capability) = lacking => return Err(Failure::Unasked(capability)),
            Ok(edits) if edits.iter().all(Vec::is_empty) => return Ok(None),
            Ok(edits) => match edited(result, edits.into_iter().flatten().collect()) {
                Ok(result) => return Ok(Some(result)),
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        self.note(refusal);
        Err(Failure::Refused(refusal))
    }

    fn another_round(&mut self) -> Result<(), Failure> {
        self.call.rounds += 1;
        // The server's time limit starts anew, because a person needs time to respond.
        self.call.answer.renew();
        let endless = UpstreamError::Protocol("the server does not stop asking");
        if self.call.rounds > ROUNDS { Err(Failure::Upstream(endless)) } else { Ok(()) }
    }

    /// The server requests as the client may see them.
    async fn shown(&mut self, asked: InputRequired) -> Result<InputRequired<Shown>, Failure> {
        let mut found = Vec::new();
        let UpstreamCall { gateway, caller, server, expectation, .. } = &self.call;
        let asked = gateway.asked(caller, server, asked, expectation.as_ref(), &mut found).await;
        self.frame.entry.found(found);
        asked.map_err(Failure::Withheld)
    }

    /// Sends server requests to a legacy client. Returns false if the client has cancelled the call.
    pub(super) async fn ask(
        &mut self,
        asked: InputRequired,
        outlet: &EventSink,
    ) -> Result<bool, Failure> {
        self.another_round()?;
        let asked = self.shown(asked).await?;
        match &asked.result {
            None => {
                for question in &asked.questions {
                    self.relay(question, outlet).await?;
                }
                Ok(true)
            }
            Some(_) => self.gather(&asked, outlet).await,
        }
    }

    /// Handles server requests for a legacy client without a stream. A server that waits gets an error response and
    /// continues.
    ///
    /// # Errors
    /// If the server does not wait but expects another call with the responses.
    pub(super) async fn cannot_ask(&mut self, asked: InputRequired) -> Result<(), Failure> {
        let batched = self.frame.batched;
        if asked.result.is_some() {
            let first = asked.questions.first().map(|question| &*question.method);
            let unasked = Failure::Unasked(capability_for(first.unwrap_or_default()));
            return Err(if batched { unasked } else { Failure::Overload });
        }
        self.another_round()?;
        let replier = self.call.answer.replier();
        let (code, why) = match batched {
            true => (code::METHOD, "the client does not offer that"),
            false => (code::INTERNAL, "the client cannot be asked now"),
        };
        for id in asked.questions.iter().filter_map(|question| question.id.as_ref()) {
            replier.reply(ServerReply::refusal(id, code, why)).await;
        }
        Ok(())
    }

    /// Sends a legacy server's request to a legacy client. The response is passed on in a task, as the server may
    /// continue meanwhile.
    async fn relay(
        &self,
        question: &InputRequest<Shown>,
        outlet: &EventSink,
    ) -> Result<(), Failure> {
        let Some(id) = question.id.clone() else { return Ok(()) };
        let replier = self.call.answer.replier();
        if self.can_be_asked(std::slice::from_ref(question)).is_err() {
            let why = "the client does not offer that";
            replier.reply(ServerReply::refusal(&id, code::METHOD, why)).await;
            return Ok(());
        }
        let answer = self.put(question, outlet).await?;
        let (gateway, caller) = (Arc::clone(&self.call.gateway), Arc::clone(&self.call.caller));
        let (server, route) = (Arc::clone(&self.call.server), Arc::clone(&self.call.route));
        let asked = question.method.clone();
        self.call.gateway.tasks.spawn(async move {
            let question = ServerQuestion { server: &server, method: &asked };
            replier.reply(gateway.awaited(&caller, &route, question, &id, answer).await).await;
        });
        Ok(())
    }

    /// Sends a modern server's requests to a legacy client, and calls the server again with the responses.
    async fn gather(
        &mut self,
        asked: &InputRequired<Shown>,
        outlet: &EventSink,
    ) -> Result<bool, Failure> {
        self.can_be_asked(&asked.questions)?;
        let mut waiting = Vec::new();
        for question in &asked.questions {
            waiting.push((question, self.put(question, outlet).await?));
        }
        let mut inputs = InputResponsesDraft::new(self.call.server.name());
        for (question, answer) in waiting {
            let outcome = tokio::select! {
                outcome = timeout(self.call.gateway.limits.input_timeout, answer) => outcome,
                () = self.frame.cancelled.cancelled() => return Ok(false),
            };
            let Ok(Ok(outcome)) = outcome else { return Err(Failure::Unanswered) };
            let UpstreamCall { gateway, caller, route, server, .. } = &self.call;
            let about = ServerQuestion { server, method: &question.method };
            let (sent, found) = gateway.sent(caller, route, about, outcome).await;
            self.frame.entry.found(found);
            match sent {
                Some(ClearedOutcome::Result(answer)) if inputs.answer(&question.key, &answer) => {}
                // `inputResponses` cannot carry errors. An elicitation that was not shown counts as cancelled by the
                // user.
                Some(ClearedOutcome::Error(_)) if &*question.method == method::ELICIT => {
                    inputs.cancel(&question.key);
                }
                Some(ClearedOutcome::Result(_) | ClearedOutcome::Error(_)) | None => {
                    return Err(Failure::Unanswered);
                }
            }
        }
        let unread = |error| Failure::Decode(DecodeError::Json(error));
        let inputs = inputs.finish().map_err(unread)?.map(Arc::new);
        let again = self.call.answer.again(inputs, asked.state()).await;
        again.map_err(|error| self.failed(error))?;
        Ok(true)
    }

    /// Sends one server request to a legacy client, and returns the receiver of its response.
    async fn put(
        &self,
        question: &InputRequest<Shown>,
        outlet: &EventSink,
    ) -> Result<oneshot::Receiver<wire::ResponseOutcome>, Failure> {
        let gateway = &self.call.gateway;
        let session = self.frame.session.ok_or(Failure::Unanswered)?;
        let kept = gateway.session_states.find(session).ok_or(Failure::Unanswered)?;
        let params = question.params.as_ref().map(Shown::value);
        let terms = self.call.server.server_requests().terms(&question.method, params);
        let (id, answer) = kept.ask(Some(terms)).ok_or(Failure::Overload)?;
        let message = encode::server_request(&id, &question.method, question.params.as_ref());
        if self.send(outlet, &message).await { Ok(answer) } else { Err(Failure::Unanswered) }
    }

    /// Ends the exchange with an `input_required` result for a modern client. A legacy server's call is parked.
    pub(super) async fn pause(
        &mut self,
        asked: InputRequired,
    ) -> Result<(Body, ExchangeEnd), Failure> {
        self.another_round()?;
        let asked = self.shown(asked).await?;
        let gateway = Arc::clone(&self.call.gateway);
        let seal = |state: &RequestState| {
            let (now, lifetime) = (gateway.clock.now(), gateway.limits.input_timeout);
            let sealed = self.call.bound().seal(&gateway.sealer, state, now, lifetime);
            let sealed = sealed.map_err(|_opaque| Failure::Overload);
            sealed.inspect(|state| self.call.interrupted(state))
        };
        self.can_be_asked(&asked.questions)?;
        let ending = ExchangeEnd { reason: Some("input-required"), ..ExchangeEnd::answered() };
        if let Some(result) = &asked.result {
            let terms = self.call.terms(&asked.questions);
            if terms.length() > LONGEST_TERMS {
                let refusal = Refusal::too_long();
                self.note(refusal);
                return Err(Failure::Refused(refusal));
            }
            let state = ServerState { own: asked.state(), terms };
            let is_carried = state.own.is_some() || !state.terms.is_empty();
            let state = is_carried.then_some(RequestState::Server(state));
            let state = state.as_ref().map(seal).transpose()?;
            let replaced = self.call.unapproved_infos(result.value());
            let body = encode::input_required_passthrough(
                &self.frame.id,
                result,
                state.as_deref(),
                &replaced,
            );
            return Ok((body, ending));
        }
        let name = random::bytes().map_err(|_opaque| Failure::Overload)?;
        let state = seal(&RequestState::Parked(name))?;
        // Taken before the client is told to come back, so that it finds the call.
        let share = gateway.quotas.parked.take(&self.call.holder, 1);
        let share = share.map_err(|none| Failure::no_share(Quota::Parked, none))?;
        self.call.waiting.extend(asked.questions);
        let body = encode::input_required(&self.frame.id, &self.call.waiting, &state);
        let unsent = self.call.count_waiting(body.length());
        let unsent = unsent.map_err(|none| Failure::Upstream(UpstreamError::Memory(none)))?;
        self.parked = Some((name, share));
        self.call.forget_sent();
        Ok((body.counted(Some(unsent)), ending))
    }

    /// Continues a parked call with the responses of a modern client.
    pub(super) async fn resume(
        mut self: Box<Self>,
        inputs: Option<ClearedAnswer>,
    ) -> Response<Body> {
        let waiting = std::mem::take(&mut self.call.waiting);
        self.call.answer.resume();
        let replier = self.call.answer.replier();
        for question in waiting {
            let given = inputs.as_ref().and_then(|inputs| inputs.member(&question.key));
            match (given, &question.id) {
                (Some(given), Some(id)) => {
                    replier.reply(ServerReply::answer(id, ClearedOutcome::Result(given))).await;
                }
                // SPEC 2026-07-28 basic/patterns/mrtr#error-handling: missing responses are requested again.
                (None, _) | (_, None) => self.call.waiting.push(question),
            }
        }
        if self.call.waiting.is_empty() {
            return self.answer().await;
        }
        match self.pause(InputRequired { questions: Vec::new(), result: None }).await {
            Ok((body, ending)) => {
                self.recorded(ending, body.length());
                encode::json(body)
            }
            Err(failure) => self.broken(&failure),
        }
    }

    /// Handles the error with which a server of 2025-11-25 requires URL elicitation first. A modern client gets an
    /// `input_required` result and repeats the call; for a legacy client the error is passed on, which `None` stands
    /// for.
    ///
    /// SPEC 2025-11-25 client/elicitation#url-elicitation-required-error
    pub(super) async fn asked_elsewhere(
        &mut self,
        error: &Fragment,
    ) -> Option<Result<(Body, ExchangeEnd), Failure>> {
        let value = error.value();
        // A client that reads names loosely would open a page that was not judged here.
        if has_misspelled_elicitations(value) {
            return Some(Err(misspelled()));
        }
        if !is_elicitation_required(value) {
            return None;
        }
        let document = error.document();
        let list = value.get("data").and_then(|data| data.get("elicitations"));
        if list.is_some_and(|list| list.kind() != JsonKind::Array) {
            // Some clients read the members of an object as items.
            return Some(Err(misspelled()));
        }
        // One more than may be asked is refused, and no more than that is kept.
        let items: Vec<_> = list.into_iter().flat_map(Value::items).take(AT_ONCE + 1).collect();
        let put =
            items.iter().map(|params| (method::ELICIT.into(), Some(params.fragment(&document))));
        let mut put: Vec<_> = put.collect();
        // A page that stands elsewhere, or nowhere, is asked for all the same.
        let names_none = put.is_empty();
        if names_none {
            put.push((method::ELICIT.into(), None));
        }
        let hint = self.call.hint();
        let UpstreamCall { gateway, caller, server, .. } = &self.call;
        let edits = match gateway.edits(caller, server, put, hint).await {
            Ok(edits) => edits,
            Err(refusal) => {
                self.note(refusal);
                return Some(Err(Failure::Refused(refusal)));
            }
        };
        if names_none {
            let what = "the server requires a page to be opened and does not say which";
            return Some(Err(Failure::Upstream(UpstreamError::Protocol(what))));
        }
        if self.era() == Era::Legacy {
            return None;
        }
        let fragments = items.into_iter().map(|params| params.fragment(&document));
        let questions = match elicitations(fragments.zip(edits)) {
            Ok(questions) => questions,
            Err(refusal) => return Some(Err(Failure::Refused(refusal))),
        };
        let questions = match self.shown(InputRequired { questions, result: None }).await {
            Ok(asked) => asked.questions,
            Err(failure) => return Some(Err(failure)),
        };
        if let Err(failure) = self.can_be_asked(&questions) {
            return Some(Err(failure));
        }
        let gateway = &self.call.gateway;
        let (now, lifetime) = (gateway.clock.now(), gateway.limits.input_timeout);
        let state = self.call.bound().seal(&gateway.sealer, &RequestState::Again, now, lifetime);
        let state = state.map_err(|_opaque| Failure::Overload);
        if let Ok(state) = &state {
            self.call.interrupted(state);
        }
        let ending = ExchangeEnd { reason: Some("input-required"), ..ExchangeEnd::answered() };
        Some(
            state.map(|state| (encode::input_required(&self.frame.id, &questions, &state), ending)),
        )
    }
}
