//! A call in flight: reads the steps of the server's answer, inspects each, and passes to the client what the policy
//! releases, as a single response or as a stream.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use detection::inspect::{Detector, Finding};
use http::Response;
use json::{Fragment, Value};
use policy::definition::offer::{ItemKind, ReadOnlyHint};
use policy::engine::ask::Refusal;
use policy::engine::message::{Reply, RequestOperation};
use policy::engine::pipeline::{Expectation, Shown, VisibleReply};
use policy::rules::approval::ApprovalDemand;
use policy::rules::decision::{Denial, Disclosure, Reason};
use policy_core::subject::principal::Principal;

use super::cancellation::CancellationEntry;
use super::event_sink::EventSink;
use super::flows::ExchangeFlow;
use super::guardrails::GuardrailSubject;
use super::state::RequestStateBinding;
use super::stream_expiry::{AnsweredCalls, UsedItem};
use super::{Gateway, InFlightSlot, Route};
use crate::audit::{Intent, LostRecord};
use crate::base::intake::ResponseAccount;
use crate::base::share::{Holder, Share, ShareError};
use crate::edge::denial::ToolDenial;
use crate::edge::encode::{self, Replacement, ShownNotification};
use crate::edge::failure::Failure;
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, ProtocolVersion, method};
use crate::mcp::wire::{self, Id, Notification, ResponseOutcome};
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome as Ended};
use crate::outbound::guardrail;
use crate::session::SessionKey;
use crate::session::call_budgets::BudgetDebit;
use crate::session::disclosed_client::DisclosedClient;
use crate::session::state::{AnswerReceipt, AnsweredCall, SessionSlot};
use crate::stream::body::{Body, PIECE};
use crate::upstream::{
    self, AnswerStep, CallAnswer, FailedRequest, InputRequest, ListChanges, Upstream, UpstreamError,
};

/// How long an answer may take before a resumable stream is opened for it: most answers are one JSON object, and need
/// no stream.
const GRACE: Duration = Duration::from_millis(100);

/// Members of a block of content, and of a resource.
const BLOCK: [&str; 13] = [
    "type",
    "text",
    "data",
    "mimeType",
    "uri",
    "name",
    "title",
    "description",
    "resource",
    "blob",
    "annotations",
    "size",
    "_meta",
];

/// Members of a result that clients interpret.
const RESULT: [&str; 11] = [
    "content",
    "structuredContent",
    "isError",
    "resultType",
    "contents",
    "messages",
    "skill",
    "completion",
    "ttlMs",
    "cacheScope",
    "_meta",
];

/// The upstream side of a call. A call that waits for its client outlives the exchange that started it.
#[derive(Debug)]
pub(super) struct UpstreamCall {
    pub(super) gateway: Arc<Gateway>,
    pub(super) caller: Arc<Principal>,
    /// The holder whose shares the call takes.
    pub(super) holder: Holder,
    pub(super) client: DisclosedClient,
    pub(super) route: Arc<Route>,
    pub(super) server: Arc<Upstream>,
    pub(super) expectation: Option<Expectation>,
    pub(super) answer: Box<CallAnswer>,
    /// The tool, prompt, URI or method, with the name that the server uses.
    pub(super) tool: Box<str>,
    /// What the sealed `requestState` is bound to; set once the arguments are dropped.
    pub(super) bound: Option<RequestStateBinding>,
    /// Requests of a legacy server that the client has not answered.
    pub(super) waiting: Vec<InputRequest<Shown>>,
    /// The memory share for `waiting`.
    pub(super) asked: Option<ResponseAccount>,
    /// How many rounds of requests the client was sent.
    pub(super) rounds: usize,
    /// The flow to which the answer is shown; `None` if no flow is remembered.
    pub(super) flow: Option<ExchangeFlow>,
    /// What the request holds until the call is over.
    pub(super) held: HeldByUse,
}

/// What a request holds until its call is over.
#[derive(Debug, Default)]
pub(super) struct HeldByUse {
    /// What a person has approved of it.
    pub(super) approved: Option<ApprovalDemand>,
    /// The budgets that it was taken from.
    pub(super) debit: BudgetDebit,
    /// The place among the calls of the server.
    pub(super) place: Option<Share<Holder>>,
}

/// The exchange that currently waits for a call.
#[derive(Debug)]
pub(super) struct WaitingExchange {
    pub(super) entry: Intent,
    pub(super) id: Id,
    pub(super) version: ProtocolVersion,
    /// Whether the message is part of a batch, whose response cannot carry server requests.
    pub(super) batched: bool,
    pub(super) progress: Option<Id>,
    pub(super) level: Option<Box<str>>,
    pub(super) session: Option<SessionKey>,
    /// The session's reservation of an entry in `session_states`, until a stream is opened.
    pub(super) session_slot: Option<SessionSlot>,
    pub(super) cancelled: CancellationEntry,
    pub(super) started: Instant,
    pub(super) slot: InFlightSlot,
}

/// A call with the exchange that waits for it.
#[derive(Debug)]
pub(super) struct InFlightCall {
    pub(super) call: UpstreamCall,
    pub(super) frame: Box<WaitingExchange>,
    /// The latest progress value of the server.
    pub(super) progress: Option<f64>,
    /// The key under which the call stays parked after the exchange, with the caller's share for it.
    pub(super) parked: Option<([u8; 16], Share<Holder>)>,
    /// How many requests of the server the policy has refused.
    pub(super) refused: usize,
    /// What the audit record says, if the response may still be cut off.
    receipt: Option<Arc<AnswerReceipt>>,
    list_changes: ListChanges<Notification>,
}

/// The next event of a call in flight.
#[derive(Debug)]
pub(super) enum CallEvent {
    /// A step of the server's answer.
    Step(AnswerStep),
    /// The client has cancelled the request.
    Cancelled,
    /// The server sent a request the policy refuses, and does not continue without it.
    Refused(Refusal),
    /// The grace period has passed.
    Late,
}

impl UpstreamCall {
    /// What of a released reply the guardrails of the route let pass. Their findings are added to `found`.
    async fn passed_guardrails(
        &self,
        shown: VisibleReply,
        found: &mut Vec<Finding>,
    ) -> VisibleReply {
        let (VisibleReply::Result(said) | VisibleReply::Error(said) | VisibleReply::Apart(said)) =
            &shown
        else {
            return shown;
        };
        let about = GuardrailSubject {
            server: &self.server,
            name: &self.tool,
            part: guardrail::GuardedPart::Result,
            value: said.value(),
            beside: "",
        };
        match self.gateway.guarded(&self.route, &self.caller, about).await {
            Ok((_, noted)) => {
                found.extend(noted);
                shown
            }
            Err((finding, noted)) => {
                found.extend(noted);
                VisibleReply::Withheld(finding)
            }
        }
    }

    /// Replacements in a result: route names for server names, and the configured name for an unapproved `serverInfo`.
    /// Resource links in the result become readable for the caller.
    fn renamed(&self, result: &Shown) -> Vec<Replacement> {
        let value = result.value();
        self.gateway.linked(&self.caller, self.server.name(), value);
        let rename = |kind: ItemKind, name: &str| self.route.shown(&self.server, kind, name);
        let mut renamed = Vec::new();
        if self.route.renames() {
            renamed = encode::resource_uri_spans(value, &rename);
            renamed.extend(encode::app_uri_spans(value, &rename));
        }
        if matches!(self.answer.verb(), RequestOperation::Call | RequestOperation::Task(_)) {
            let ids =
                self.gateway.task_ids(&self.caller, &self.route, &self.server, &self.tool, value);
            renamed.extend(ids);
        }
        renamed.extend(self.unapproved_infos(value));
        renamed
    }

    /// What the server says of itself in a result and was not approved, and what stands for it. The answer to
    /// `tasks/get` has the result of the task inside.
    pub(super) fn unapproved_infos(&self, result: Value<'_>) -> Vec<Replacement> {
        let of_task = |(key, _): &(Cow<'_, str>, Value<'_>)| key.eq_ignore_ascii_case("result");
        let inner = result.members().filter(of_task).map(|(_, inner)| inner);
        let metas = std::iter::once(result).chain(inner).flat_map(wire::metas);
        let name = self.server.name();
        metas.flat_map(|meta| self.gateway.unapproved_info(name, meta)).collect()
    }

    /// The call under way in this exchange. Boxed, because it is handed from step to step.
    pub(super) fn under(self, frame: Box<WaitingExchange>) -> Box<InFlightCall> {
        Box::new(InFlightCall {
            call: self,
            frame,
            progress: None,
            parked: None,
            refused: 0,
            receipt: None,
            list_changes: ListChanges::default(),
        })
    }

    /// The binding of request state that is given to the client.
    pub(super) fn bound(&self) -> RequestStateBinding {
        let bound =
            || RequestStateBinding::new(&self.caller, self.route.identity(), self.answer.call());
        self.bound.clone().unwrap_or_else(bound)
    }

    /// Charges the waiting server requests to the caller while they wait. Returns the share for the response that
    /// carries them, of `answer` bytes.
    ///
    /// # Errors
    /// If the caller's share is used up.
    pub(super) fn count_waiting(&mut self, answer: usize) -> Result<ResponseAccount, ShareError> {
        let memory = |asked: &InputRequest<Shown>| {
            asked.params.as_ref().map(|one| one.fragment().document().memory())
        };
        let bytes = self.waiting.iter().filter_map(memory).sum();
        let (server, caller) = (self.server.name().as_str().into(), self.caller.id.as_str().into());
        // Released first, because everything that waits is charged anew.
        self.asked = None;
        let mut asked = self.gateway.quotas.answers.begin_for(&server, Some(&caller));
        asked.holds(bytes)?;
        let mut unsent = asked.beside();
        unsent.holds(answer)?;
        self.asked = Some(asked);
        Ok(unsent)
    }

    /// Drops the arguments while the call waits, which may take minutes. The client sends them again, and their digest
    /// is compared.
    pub(super) fn forget_sent(&mut self) {
        self.bound = Some(self.bound());
        self.answer.forget_sent();
    }

    /// Remembers that a person has approved the call, for the client that continues it with `state`.
    pub(super) fn interrupted(&self, state: &str) {
        if let Some(demand) = &self.held.approved {
            let until = self.gateway.clock.instant() + self.gateway.limits.input_timeout;
            self.gateway.approvals.interrupt(state, demand, until);
        }
    }

    /// The read-only hint in the definition of the tool that was called.
    pub(super) fn hint(&self) -> ReadOnlyHint {
        self.expectation.as_ref().map(Expectation::hint).unwrap_or_default()
    }

    /// What the call uses.
    pub(super) fn used(&self) -> UsedItem<'_> {
        UsedItem { server: self.server.name(), kind: self.answer.verb().kind(), name: &self.tool }
    }

    /// The failure if the call is revoked now. A revoked call is not handed on, even if the client comes back for it.
    fn revocation(&self) -> Option<Failure> {
        self.gateway.revocation(&self.caller, self.used())
    }

    /// The failure for a call that was revoked, even if the revocation has since been lifted.
    fn was_revoked(&self) -> Failure {
        let denial = Denial { reason: Reason::Revoked, told: Disclosure::Nothing };
        Failure::Denied(self.answer.verb().kind(), denial)
    }

    /// Resolves with the failure when the call is revoked.
    fn revoked(&self) -> impl Future<Output = Failure> + Send + use<> {
        let (gateway, caller) = (Arc::clone(&self.gateway), Arc::clone(&self.caller));
        let (server, tool) = (Arc::clone(&self.server), self.tool.clone());
        let kind = self.answer.verb().kind();
        async move {
            let used = UsedItem { server: server.name(), kind, name: &tool };
            gateway.revoked(&caller, used).await
        }
    }

    /// How long the server may be silent: longer once it waits for the client.
    fn patience(&self) -> Duration {
        let limits = &self.gateway.limits;
        if self.rounds == 0 {
            limits.response_timeout
        } else {
            limits.input_timeout.max(limits.response_timeout)
        }
    }
}

impl InFlightCall {
    pub(super) fn era(&self) -> Era {
        self.frame.version.era()
    }

    /// Waits for the first event: most calls have only one, and are answered with a JSON object.
    pub(super) async fn answer(mut self: Box<Self>) -> Response<Body> {
        let revoked = self.call.revoked();
        let first = tokio::select! {
            biased;
            failure = revoked => FirstAnswer::Failed(failure),
            first = self.first() => first,
        };
        match first {
            FirstAnswer::Opened(opened) => self.stream(*opened),
            FirstAnswer::Asks(body, ending) => {
                // The body holds the result of a modern server. Requests of a legacy server were charged by `count_waiting`.
                let unsent = self.call.answer.unsent(body.length());
                self.object(body.counted(unsent), ending)
            }
            FirstAnswer::Answered(body, ending) => match self.call.revocation() {
                // Revoked while the result was inspected.
                Some(failure) => self.broken(&failure),
                None => {
                    let unsent = self.call.answer.unsent(body.length());
                    self.object(body.counted(unsent), ending)
                }
            },
            FirstAnswer::Failed(failure) => self.broken(&failure),
            FirstAnswer::Cancelled => {
                // The client has cancelled the request, so it gets no response.
                self.recorded(ExchangeEnd::cancelled(), 0);
                encode::events(Body::empty())
            }
        }
    }

    /// Answers with a JSON object. If it is not handed to the connection at once, it stays revocable until it is.
    fn object(mut self: Box<Self>, body: Body, ending: ExchangeEnd) -> Response<Body> {
        let waits = self.frame.batched || body.length() > PIECE;
        let about = waits.then(|| self.about());
        if let Some(about) = &about {
            // INVARIANT: the receipt is not shared yet.
            let _is_first = about.receipt.answer();
        }
        self.recorded(ending, body.length());
        let mut response = encode::json(body);
        *response.status_mut() = status(ending);
        if let Some(about) = about {
            response.extensions_mut().insert(AnsweredCalls(vec![about]));
        }
        response
    }

    /// Waits until it is known how the call is answered.
    async fn first(&mut self) -> FirstAnswer {
        // Only 2025-11-25 lets a client resume a stream before its first event.
        let primes = self.frame.version == ProtocolVersion::V2025November;
        let mut late = if primes { Some(GRACE) } else { None };
        loop {
            match self.next(late).await {
                // Boxed, because few calls have notifications.
                Ok(CallEvent::Step(AnswerStep::Told(told))) => {
                    let method = told.method.clone();
                    match Box::pin(self.visible(told)).await {
                        Some(message) => match self.open() {
                            Some(opened) => {
                                return opened.first(Some(PendingStep::Message(message)));
                            }
                            // The call has been made, so it is answered without its notifications.
                            None => self.untold(&method),
                        },
                        None => continue,
                    }
                }
                Ok(CallEvent::Step(AnswerStep::Asked(asked))) if self.era() == Era::Modern => {
                    let paused = Box::pin(self.pause(asked)).await;
                    return paused.map_or_else(FirstAnswer::Failed, |(body, end)| {
                        FirstAnswer::Asks(body, end)
                    });
                }
                Ok(CallEvent::Step(AnswerStep::Rests(_))) if self.era() == Era::Modern => {}
                Ok(CallEvent::Step(AnswerStep::Asked(asked))) => match self.open() {
                    Some(opened) => {
                        return opened.first(Some(PendingStep::Step(AnswerStep::Asked(asked))));
                    }
                    None => {
                        if let Err(failure) = Box::pin(self.cannot_ask(asked)).await {
                            return FirstAnswer::Failed(failure);
                        }
                    }
                },
                Ok(CallEvent::Step(step @ AnswerStep::Rests(_))) => {
                    if let Some(opened) = self.open() {
                        return opened.first(Some(PendingStep::Step(step)));
                    }
                }
                Ok(CallEvent::Refused(refusal)) => {
                    return FirstAnswer::Failed(Failure::Refused(refusal));
                }
                Ok(CallEvent::Late) => match self.has_room().then(|| self.open()).flatten() {
                    Some(opened) => return opened.first(None),
                    None => late = None,
                },
                Ok(CallEvent::Step(AnswerStep::Final(outcome))) => {
                    let released = self.released(outcome).await;
                    return released.map_or_else(FirstAnswer::Failed, |(body, end)| {
                        FirstAnswer::Answered(body, end)
                    });
                }
                Ok(CallEvent::Cancelled) => return FirstAnswer::Cancelled,
                Err(error) => return FirstAnswer::Failed(self.failed(error)),
            }
        }
    }

    /// Answers with a failure.
    pub(super) fn broken(mut self: Box<Self>, failure: &Failure) -> Response<Body> {
        let (response, ending) = self.refusal(failure);
        self.recorded(ending, response.body().length());
        response
    }

    /// The response to a failure and its outcome for the record; a denied tool call gets a result with `isError`.
    fn refusal(&mut self, failure: &Failure) -> (Response<Body>, ExchangeEnd) {
        let (era, calls) = (self.era(), self.call.answer.verb() == RequestOperation::Call);
        let record = self.frame.entry.id;
        let denial = || ToolDenial::of(failure, &self.call.gateway.policy, Some(record));
        if let Some(denial) = calls.then(denial).flatten() {
            let response = encode::denied_call(&self.frame.id, era, &denial);
            return (response, failure.ending_in_result(era));
        }
        let public = failure.public(Some(era)).naming(self.frame.entry.item.as_ref());
        (encode::error(&public, Some(&self.frame.id)), failure.ending(&public))
    }

    /// The next event, or `Late` after `late`. Requests that the policy refuses are answered here.
    async fn next(&mut self, late: Option<Duration>) -> Result<CallEvent, UpstreamError> {
        loop {
            let asked = match self.step(late).await? {
                CallEvent::Step(AnswerStep::Asked(asked)) => asked,
                next => return Ok(next),
            };
            if let Some(next) = Box::pin(self.permitted(asked)).await {
                return Ok(next);
            }
        }
    }

    /// The next step of the server, unless the client cancels or `late` passes first.
    async fn step(&mut self, late: Option<Duration>) -> Result<CallEvent, UpstreamError> {
        let patience = self.call.patience();
        tokio::select! {
            biased;
            step = self.call.answer.next(patience) => step.map(CallEvent::Step),
            () = self.frame.cancelled.cancelled() => Ok(CallEvent::Cancelled),
            () = waited(late) => Ok(CallEvent::Late),
        }
    }

    /// What is needed to record and answer the call if its response is cut off later.
    fn about(&mut self) -> AnsweredCall {
        let record = &self.frame.entry;
        let (method, asked, trace) =
            (record.method.clone(), record.item.clone(), Some(record.trace.clone()));
        AnsweredCall {
            caller: Arc::clone(&self.call.caller),
            route: Arc::clone(&self.call.route.path),
            server: self.call.server.name().clone(),
            kind: self.call.answer.verb().kind(),
            name: self.call.tool.clone(),
            id: self.frame.id.clone(),
            version: self.frame.version,
            method,
            asked,
            trace,
            receipt: Arc::clone(self.receipt.get_or_insert_default()),
        }
    }

    /// Whether the session has room for a stream; otherwise the client waits for a single response.
    fn has_room(&self) -> bool {
        let gateway = &self.call.gateway;
        let kept = self.frame.session.and_then(|session| gateway.session_states.find(session));
        kept.is_none_or(|kept| kept.has_room())
    }

    /// Opens a stream and the response that carries it; `None` if the session or the caller has no room for one, or if
    /// the call is part of a batch.
    fn open(&mut self) -> Option<OpenedStream> {
        if self.frame.batched {
            return None;
        }
        let gateway = Arc::clone(&self.call.gateway);
        if self.frame.session.is_none() {
            let (outlet, response) =
                EventSink::direct(gateway.session_states.room(&self.call.holder));
            return Some(OpenedStream { outlet, response, ready: None });
        }
        let kept = match self.frame.session_slot.take() {
            Some(session_slot) => gateway.session_states.enter(session_slot),
            None => gateway.session_states.find(self.frame.session?)?,
        };
        let about = Arc::new(self.about());
        let stream = kept.stream(Some(about), &self.call.caller, gateway.clock.instant())?;
        let (outlet, response) = match self.frame.version {
            ProtocolVersion::V2025November => EventSink::primed(stream)?,
            _ => EventSink::kept(stream)?,
        };
        Some(OpenedStream { outlet, response, ready: None })
    }

    /// Logs a notification that is dropped because there is no stream.
    fn untold(&self, method: &str) {
        let (server, tool) = (self.call.server.name(), &self.call.tool);
        tracing::debug!(%server, %tool, method, "message dropped: the client has no stream");
    }

    /// Answers with a stream and passes the steps on in a task of its own.
    fn stream(mut self: Box<Self>, opened: OpenedStream) -> Response<Body> {
        let OpenedStream { outlet, mut response, ready } = opened;
        response.extensions_mut().insert(AnsweredCalls(vec![self.about()]));
        let gateway = Arc::clone(&self.call.gateway);
        gateway.tasks.spawn(self.pump(ready, outlet));
        response
    }

    async fn pump(mut self: Box<Self>, first: Option<PendingStep>, outlet: EventSink) {
        let revoked = self.call.revoked();
        let end = tokio::select! {
            biased;
            failure = revoked => StreamEnd::Response(Err(failure)),
            end = self.passed_on(first, &outlet) => end,
        };
        match (end, self.call.revocation()) {
            (StreamEnd::Response(outcome), _) => self.conclude(outcome, &outlet).await,
            // The connection also watches for revocations, and may have ended the stream first.
            (StreamEnd::Cancelled, Some(failure)) => self.conclude(Err(failure), &outlet).await,
            (StreamEnd::Cancelled, None) => {
                outlet.end();
                self.recorded(ExchangeEnd::cancelled(), 0);
            }
        }
    }

    /// Passes steps on until the response or the end of the call.
    async fn passed_on(&mut self, first: Option<PendingStep>, outlet: &EventSink) -> StreamEnd {
        let mut ready = first;
        loop {
            let step = match ready.take().or_else(|| self.due_change()) {
                Some(PendingStep::Message(message)) => {
                    if !self.send(outlet, &message).await {
                        return StreamEnd::Cancelled;
                    }
                    continue;
                }
                Some(PendingStep::Step(step)) => Ok(CallEvent::Step(step)),
                None => tokio::select! {
                    step = self.next(self.list_changes.wait(self.now())) => step,
                    // SPEC 2026-07-28 basic/patterns/cancellation: a disconnect cancels the request. In earlier
                    // revisions the call continues.
                    () = outlet.closed() => Ok(CallEvent::Cancelled),
                },
            };
            match step {
                Ok(CallEvent::Step(AnswerStep::Told(told))) => {
                    if !self.pass_on(told, outlet).await {
                        return StreamEnd::Cancelled;
                    }
                }
                Ok(CallEvent::Step(AnswerStep::Asked(asked))) if self.era() == Era::Modern => {
                    return StreamEnd::Response(self.pause(asked).await);
                }
                Ok(CallEvent::Step(AnswerStep::Asked(asked))) => {
                    match self.ask(asked, outlet).await {
                        Ok(true) => {}
                        Ok(false) => return StreamEnd::Cancelled,
                        Err(failure) => return StreamEnd::Response(Err(failure)),
                    }
                }
                Ok(CallEvent::Step(AnswerStep::Rests(_))) => {
                    // A client of an earlier revision may have no event id to resume from.
                    if self.frame.version == ProtocolVersion::V2025November {
                        outlet.rest();
                    }
                }
                Ok(CallEvent::Step(AnswerStep::Final(outcome))) => {
                    while let Some(told) = self.list_changes.last() {
                        if !self.pass_on(told, outlet).await {
                            return StreamEnd::Cancelled;
                        }
                    }
                    return StreamEnd::Response(self.released(outcome).await);
                }
                Ok(CallEvent::Refused(refusal)) => {
                    return StreamEnd::Response(Err(Failure::Refused(refusal)));
                }
                Ok(CallEvent::Late) => {}
                Ok(CallEvent::Cancelled) => return StreamEnd::Cancelled,
                Err(error) => return StreamEnd::Response(Err(self.failed(error))),
            }
        }
    }

    fn now(&self) -> Instant {
        self.call.gateway.clock.instant()
    }

    /// A notification that a list has changed, which was held back until now.
    fn due_change(&mut self) -> Option<PendingStep> {
        let now = self.now();
        self.list_changes.due(now).map(|told| PendingStep::Step(AnswerStep::Told(told)))
    }

    /// Sends the client a notification of the server, if it may see it; returns false if the client has disconnected for
    /// good or does not read.
    async fn pass_on(&mut self, told: Notification, outlet: &EventSink) -> bool {
        match self.visible(told).await {
            Some(message) => self.send(outlet, &message).await,
            None => true,
        }
    }

    /// Sends an event; returns false if the client has disconnected for good or does not read.
    pub(super) async fn send(&self, outlet: &EventSink, message: &[u8]) -> bool {
        self.call.gateway.call_budgets.answered(&self.call.held.debit, message.len(), self.now());
        outlet.send(message, self.patience(outlet)).await
    }

    /// How long an event waits for its client.
    fn patience(&self, outlet: &EventSink) -> Duration {
        let limits = &self.call.gateway.limits;
        match outlet {
            EventSink::Direct(_) => limits.write_timeout,
            // A disconnected client may still resume the stream.
            EventSink::Kept(_) => limits.replay_ttl,
        }
    }

    /// Sends the response and closes the record.
    async fn conclude(
        mut self: Box<Self>,
        outcome: Result<(Body, ExchangeEnd), Failure>,
        outlet: &EventSink,
    ) {
        let concluded = match self.call.revocation() {
            Some(failure) => Err(failure),
            None => self.handed(outcome, outlet).await,
        };
        let (bytes, ending) = match concluded {
            Ok(concluded) => concluded,
            Err(failure) => {
                let (body, ending) = self.response(Err(failure));
                let message = encode::joined(body);
                outlet.withdraw(&message).await;
                (message.len(), ending)
            }
        };
        self.recorded(ending, bytes);
    }

    /// Sends the response as the last event; returns its length and the outcome for the record.
    ///
    /// # Errors
    /// If the call is revoked before its receipt says that it was answered.
    async fn handed(
        &mut self,
        outcome: Result<(Body, ExchangeEnd), Failure>,
        outlet: &EventSink,
    ) -> Result<(usize, ExchangeEnd), Failure> {
        let (body, ending) = self.response(outcome);
        let length = body.length();
        let (parts, patience) = (encode::parts(body), self.patience(outlet));
        let revoked = self.call.revoked();
        let sent = tokio::select! {
            biased;
            sent = outlet.send_parts(parts, patience) => sent,
            failure = revoked => return Err(failure),
        };
        outlet.end();
        if !sent {
            // The connection may have ended the stream because of a revocation.
            let cancelled = (length, ExchangeEnd::cancelled());
            return self.call.revocation().map_or(Ok(cancelled), Err);
        }
        // A revocation after this point finds the receipt answered, and records the cut itself.
        let receipt = self.receipt.get_or_insert_default();
        let was_cut = !receipt.answer();
        match self.call.revocation() {
            Some(failure) => Err(failure),
            None if was_cut => Err(self.call.was_revoked()),
            None => Ok((length, ending)),
        }
    }

    /// The response of a streamed call, and the outcome for the record.
    fn response(&mut self, outcome: Result<(Body, ExchangeEnd), Failure>) -> (Body, ExchangeEnd) {
        outcome.unwrap_or_else(|failure| {
            let (response, ending) = self.refusal(&failure);
            // The status of a stream was sent when it was opened.
            (response.into_body(), ExchangeEnd { status: 200, ..ending })
        })
    }

    /// Encodes a notification for the client; `None` if it may not see it, or not yet.
    async fn visible(&mut self, told: Notification) -> Option<Vec<u8>> {
        if let Some(kind) = upstream::changed(&told.method) {
            return self.list_changed(told, kind).await;
        }
        let told = &told;
        if &*told.method == method::PROGRESS {
            if !self.is_ours(told) || self.frame.progress.is_none() {
                if !self.call.answer.passes_on(told) {
                    self.call.server.progress_dropped();
                }
                return None;
            }
            if !told.params.as_ref().is_some_and(|params| self.is_further(params)) {
                return None;
            }
        }
        let legacy = self.era() == Era::Legacy;
        if self.call.is_withheld(told.params.as_ref().map(Fragment::value)) {
            return None;
        }
        let (call, frame) = (&self.call, &mut self.frame);
        let mut found = Vec::new();
        let expectation = call.expectation.as_ref();
        let params = call
            .gateway
            .heard_params(&call.caller, &call.server, told, expectation, &mut found)
            .await;
        frame.entry.found(found);
        let told = &ShownNotification { method: told.method.clone(), params: params.ok()? };
        let params = told.params.as_ref();
        call.remember_shown(params).await;
        match &*told.method {
            method::PROGRESS => {
                let (token, params) = frame.progress.as_ref().zip(params)?;
                Some(encode::progress(token, params))
            }
            method::LOG if legacy => Some(encode::notification(told, &[])),
            method::LOG => {
                let wanted = frame.level.as_deref()?;
                encode::is_severe_enough(told, wanted).then(|| encode::notification(told, &[]))
            }
            method::UPDATED if legacy => {
                let uri = params.and_then(|params| params.value().get("uri"));
                let uri = uri.and_then(Value::as_str)?;
                let may = call.gateway.may_watch(&call.caller, &call.server, &uri);
                let shown = call.route.shown(&call.server, ItemKind::Resource, &uri)?;
                may.then(|| encode::notification(told, &[("uri", &shown)]))
            }
            method::ELICITED if legacy => Some(encode::notification(told, &[])),
            // Their ids are those of the server, and mean nothing to the client.
            method::ELICITED
            | method::UPDATED
            | method::CANCELLED
            | method::TASK_STATUS
            | method::TASK => None,
            name => {
                let may = call.gateway.may_notify(&call.caller, &call.server, name);
                may.then(|| encode::notification(told, &[]))
            }
        }
    }

    /// Encodes the notification that a list has changed; `None` if the client may not see it, or not yet.
    async fn list_changed(&mut self, told: Notification, kind: ItemKind) -> Option<Vec<u8>> {
        let (legacy, now) = (self.era() == Era::Legacy, self.now());
        let call = &self.call;
        call.server.heard(&told);
        let (policy, facts) = (&call.gateway.policy, call.gateway.policy.facts());
        let standing = policy.may_list(&facts, &call.caller, call.server.name(), kind);
        let shown = legacy && standing.is_granted();
        let told = if shown { self.list_changes.pass(kind, told, now)? } else { told };
        let told = self.inspected_change(told).await.filter(|_| shown)?;
        self.list_changes.sent(kind, now);
        Some(encode::notification(&told, &[]))
    }

    /// The notification that a list has changed as the client may see it; `None` if it is withheld. Of a call whose results
    /// are withheld nothing is shown that the server adds to it.
    async fn inspected_change(&mut self, told: Notification) -> Option<ShownNotification> {
        let (call, frame) = (&self.call, &mut self.frame);
        if call.is_withheld(told.params.as_ref().map(Fragment::value)) {
            return Some(ShownNotification { method: told.method, params: None });
        }
        let mut found = Vec::new();
        let told = call.gateway.told(&call.caller, &call.server, &told, &mut found).await;
        frame.entry.found(found);
        told
    }

    /// Whether the progress value increases, as the protocol requires (vector PV-43).
    fn is_further(&mut self, params: &Fragment) -> bool {
        let now = params.value().get("progress").and_then(Value::as_f64);
        let further = now.is_some_and(|now| self.progress.is_none_or(|before| now > before));
        if further {
            self.progress = now;
        }
        further
    }

    fn is_ours(&self, told: &Notification) -> bool {
        upstream::is_progress(told, self.call.answer.token())
    }

    /// Keeps an excerpt of what the server sent for the record, where the operator wants that.
    async fn capture(&mut self, reply: &Reply, expectation: &Expectation) {
        let (Reply::Result(said) | Reply::Error(said)) = reply else { return };
        let call = &self.call;
        let captured = call.gateway.captured_result(
            &call.caller,
            call.server.name(),
            said,
            expectation.labelled(),
        );
        let captured = captured.await;
        if let Some(known) = self.frame.entry.captured.as_mut() {
            known.result = captured;
        }
    }

    /// Logs whether the sandbox of the server's program explains what the server `said` about its failure. The URI of a
    /// resource is left out: it can hold the path.
    fn explain_denial(&self, said: Value<'_>) {
        let call = &self.call;
        let request = match call.answer.verb() {
            RequestOperation::Call => FailedRequest::Tool(&call.tool),
            RequestOperation::Get
            | RequestOperation::Read
            | RequestOperation::GetSkill
            | RequestOperation::ReadSkillFile
            | RequestOperation::Subscribe
            | RequestOperation::Unsubscribe
            | RequestOperation::CompletePrompt
            | RequestOperation::CompleteTemplate
            | RequestOperation::Task(_)
            | RequestOperation::Other => FailedRequest::Other,
        };
        call.server.explain_denial(request, said, call.gateway.clock.instant());
    }

    /// Inspects the outcome and encodes what is released, with the ending for the record.
    async fn released(&mut self, outcome: ResponseOutcome) -> Result<(Body, ExchangeEnd), Failure> {
        let (ResponseOutcome::Result(said) | ResponseOutcome::Error(said)) = &outcome;
        let is_withheld = self.call.is_withheld(Some(said.value()));
        let (reply, ending) = match outcome {
            ResponseOutcome::Result(result) => {
                let verb = self.call.answer.verb();
                let ending = judged(&result, verb, &self.call.client)?;
                if ending.outcome == Ended::ToolError {
                    self.explain_denial(result.value());
                }
                let result = self.asks_in(&result).await?.unwrap_or(result);
                (Reply::Result(result), ending)
            }
            ResponseOutcome::Error(error) if is_withheld => {
                let ending = server_error(&error);
                return self.in_place_of(None, ending);
            }
            ResponseOutcome::Error(error) => {
                // Boxed, because results are the rule, and their futures would have room for it.
                if let Some(asked) = Box::pin(self.asked_elsewhere(&error)).await {
                    return asked;
                }
                self.explain_denial(error.value());
                let ending = server_error(&error);
                (Reply::Error(error), ending)
            }
        };
        let twice = Failure::Upstream(UpstreamError::Protocol("the server answered twice"));
        let expectation = self.call.expectation.take().ok_or(twice)?;
        self.capture(&reply, &expectation).await;
        let call = &self.call;
        let released = call.gateway.inspected(&call.caller, expectation, reply).await?;
        let mut found = Vec::new();
        let shown = call.gateway.counted_parts(&call.caller, released, &mut found);
        let mut shown = call.passed_guardrails(shown, &mut found).await;
        self.frame.entry.found(found);
        if is_withheld {
            let (VisibleReply::Result(said) | VisibleReply::Apart(said)) = &shown else {
                return self.in_place_of(None, ending);
            };
            return self.in_place_of(Some(said), ending);
        }
        if let VisibleReply::Result(said) | VisibleReply::Error(said) | VisibleReply::Apart(said) =
            &shown
        {
            self.call.remember_shown(Some(said)).await;
        }
        if let VisibleReply::Result(said) = &shown {
            self.call.remember_task_questions(said.value());
        }
        if let VisibleReply::Apart(result) = shown {
            let call = call.answer.verb() == RequestOperation::Call;
            match call.then(|| self.kept(&result)).flatten() {
                Some(body) => return Ok((body, ending)),
                // The call has been made: an error that suggests lack of room would make the client repeat it.
                None => shown = VisibleReply::Withheld(Finding::too_long()),
            }
        }
        self.encoded(shown, ending)
    }

    /// Encodes what is released, with the ending for the record.
    pub(super) fn encoded(
        &self,
        shown: VisibleReply,
        ending: ExchangeEnd,
    ) -> Result<(Body, ExchangeEnd), Failure> {
        let (call, id, era) = (&self.call, &self.frame.id, self.era());
        let body = match shown {
            VisibleReply::Result(result) => {
                let renamed = call.renamed(&result);
                let caching = match call.answer.verb() {
                    RequestOperation::Read
                    | RequestOperation::GetSkill
                    | RequestOperation::ReadSkillFile => encode::ResultCaching::Cacheable,
                    _ => encode::ResultCaching::Never,
                };
                encode::result(id, era, &result, caching, &renamed)
            }
            VisibleReply::Error(error) => encode::server_error(id, era, &error),
            // A model that reads why its result was withheld continues without it.
            VisibleReply::Withheld(finding) if call.answer.verb() == RequestOperation::Call => {
                let failure = Failure::Withheld(finding);
                let record = self.frame.entry.id;
                let denial =
                    ToolDenial::withheld(&failure, &self.call.gateway.policy, Some(record));
                let body = encode::tool_error(id, era, &denial);
                return Ok((body, failure.ending_in_result(era)));
            }
            VisibleReply::Withheld(finding) => {
                if matches!(finding.detector, Detector::SkillEntries | Detector::SkillFiles) {
                    call.server.skills_changed();
                }
                return Err(Failure::Withheld(finding));
            }
            VisibleReply::Told(_) | VisibleReply::List(_) | VisibleReply::Apart(_) => {
                let what = "an answer was released as something else";
                return Err(Failure::Upstream(UpstreamError::Protocol(what)));
            }
        };
        let status =
            if era == Era::Modern { ending.code.map_or(200, encode::status_of) } else { 200 };
        Ok((body, ExchangeEnd { status, ..ending }))
    }

    /// Closes the record. Parks the call if it waits for the client, and drops it otherwise.
    pub(super) fn recorded(self: Box<Self>, ending: ExchangeEnd, bytes_out: usize) {
        let Self { call, frame, parked, .. } = *self;
        let WaitingExchange { mut entry, cancelled, started, .. } = *frame;
        let (gateway, server) = (Arc::clone(&call.gateway), Arc::clone(&call.server));
        gateway.call_budgets.answered(&call.held.debit, bytes_out, gateway.clock.instant());
        match parked {
            Some((name, share)) => gateway.park(name, call, share),
            None => drop(call),
        }
        drop(cancelled);
        let took = gateway.clock.instant().saturating_duration_since(started);
        server.counts().answered(took);
        entry.upstream_duration = took;
        entry.bytes_out = bytes_out;
        if let Err(error) = entry.close(ending) {
            gateway.journal.log_lost(&error, LostRecord::Exchange);
        }
    }
}

/// A stream that was opened for a call.
#[derive(Debug)]
struct OpenedStream {
    outlet: EventSink,
    /// The response that carries the stream.
    response: Response<Body>,
    /// What is sent before the next step is awaited.
    ready: Option<PendingStep>,
}

impl OpenedStream {
    /// Makes the stream the first answer, with `ready` sent first.
    fn first(self, ready: Option<PendingStep>) -> FirstAnswer {
        FirstAnswer::Opened(Box::new(Self { ready, ..self }))
    }
}

/// How a call is answered first.
#[derive(Debug)]
enum FirstAnswer {
    /// With a stream of events.
    Opened(Box<OpenedStream>),
    /// With a result that contains the server's requests.
    Asks(Body, ExchangeEnd),
    /// With a response in one body.
    Answered(Body, ExchangeEnd),
    /// With an error response.
    Failed(Failure),
    /// Not at all: the client has cancelled.
    Cancelled,
}

/// How a stream ends.
#[derive(Debug)]
enum StreamEnd {
    /// With a response as the last event.
    Response(Result<(Body, ExchangeEnd), Failure>),
    /// Without a response: the client has cancelled, or is gone or too slow, so that events could not be kept for it. The
    /// stream ends rather than continue with a gap.
    Cancelled,
}

/// What is processed before the next step is awaited.
#[derive(Debug)]
enum PendingStep {
    Message(Vec<u8>),
    Step(AnswerStep),
}

fn status(ending: ExchangeEnd) -> http::StatusCode {
    http::StatusCode::from_u16(ending.status).unwrap_or(http::StatusCode::OK)
}

async fn waited(late: Option<Duration>) {
    match late {
        Some(late) => tokio::time::sleep(late).await,
        None => std::future::pending().await,
    }
}

/// The ending of an exchange that the server answered with an error.
pub(super) fn server_error(error: &Fragment) -> ExchangeEnd {
    let code = error.value().get("code").and_then(Value::as_i64);
    let code = code.and_then(|code| i32::try_from(code).ok());
    ExchangeEnd { outcome: Ended::ServerError, code, ..ExchangeEnd::answered() }
}

/// Checks that a result is well-formed and of a type that the client knows, and returns its ending for the record.
fn judged(
    result: &Fragment,
    verb: RequestOperation,
    client: &Client,
) -> Result<ExchangeEnd, Failure> {
    let broken = |what| Err(Failure::Upstream(UpstreamError::Protocol(what)));
    let value = result.value();
    if wire::is_misspelled(value, &RESULT) {
        return broken("the result has a member in another spelling");
    }
    let kind = value.get("resultType").and_then(Value::as_str);
    let known = |kind: &str| kind == "complete" || kind == "task" && client.takes_tasks();
    if kind.is_some_and(|kind| !known(&kind)) {
        return broken("the result is of a type the client does not know");
    }
    let outcome = if says_failed(value, verb) { Ended::ToolError } else { Ended::Answered };
    Ok(ExchangeEnd { outcome, ..ExchangeEnd::answered() })
}

/// A value that is an object, and the items of one that is a list.
fn one_or_each(value: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    std::iter::once(value).filter(|one| one.is_object()).chain(value.items())
}

/// Whether a block of content in a result has a member that a lenient client takes for one of the protocol. The cost is
/// proportional to the length of the result.
pub(super) fn has_misspelled_content(result: Value<'_>) -> bool {
    blocks(result).any(|block| wire::is_misspelled(block, &BLOCK))
}

/// The blocks of content of a result, of its messages and of its resources, and the resources in them.
fn blocks(result: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    // What comes of a legacy task stands in `result`.
    let results = [Some(result), result.get("result")].into_iter().flatten();
    let content = results.flat_map(move |result| {
        let messages = result.get("messages").into_iter().flat_map(Value::items);
        let own =
            messages.filter_map(|message| message.get("content")).chain(result.get("content"));
        own.flat_map(one_or_each).chain(result.get("contents").into_iter().flat_map(one_or_each))
    });
    content.flat_map(|block| std::iter::once(block).chain(block.get("resource")))
}

/// Whether a result says that its tool has failed: the result of a call, or what a task says of the call it stands for.
fn says_failed(result: Value<'_>, verb: RequestOperation) -> bool {
    let is_error = |of: Value<'_>| of.get("isError").is_some_and(Value::may_be_true);
    let has_failed = |task: Value<'_>| {
        task.get("status").and_then(Value::as_str).is_some_and(|status| status == "failed")
    };
    let failed = match verb {
        RequestOperation::Task(_) => {
            has_failed(result) || result.get("result").is_some_and(is_error)
        }
        // A legacy task stands in `task`; a modern one is the result itself.
        RequestOperation::Call => {
            let kind = result.get("resultType").and_then(Value::as_str);
            let is_task = kind.is_some_and(|kind| kind == "task");
            is_task && has_failed(result) || result.get("task").is_some_and(has_failed)
        }
        RequestOperation::Get
        | RequestOperation::Read
        | RequestOperation::GetSkill
        | RequestOperation::ReadSkillFile
        | RequestOperation::Subscribe
        | RequestOperation::Unsubscribe
        | RequestOperation::CompletePrompt
        | RequestOperation::CompleteTemplate
        | RequestOperation::Other => false,
    };
    failed || is_error(result)
}
