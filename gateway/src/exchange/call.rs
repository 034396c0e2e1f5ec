//! Requests about one thing: tool calls, prompts, resources, completions, tasks, subscriptions and extension methods.
//! Decides, records, and then sends the request; the answer is handled in `in_flight_call`.

use std::sync::Arc;

use detection::inspect::Finding;
use http::Response;
use json::{Document, Fragment, JsonBounds};
use policy::definition::mirror::HeaderArgument;
use policy::definition::offer::{Catalog, CatalogItem, ItemKind, ReadOnlyHint};
use policy::definition::registry::RateLimit;
use policy::engine::message::{
    ClientRequest as Sent, ItemRequest, RequestExtras, RequestOperation,
};
use policy::engine::pipeline::{Facts, Permit, Policy, SendableTrace};
use policy::rules::approval::ApprovalDemand;
use policy::rules::control::Control;
use policy::rules::decision::{self, Decision, Denial, Reason};
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;
use policy_core::subject::skill::is_skill_uri;
use policy_core::subject::uri::ResourceUri;
use tokio::time::timeout;

use super::cancellation::CancellationEntry;
use super::flows::ExchangeFlow;
use super::guardrails::GuardrailSubject;
use super::in_flight_call::{HeldByUse, UpstreamCall, WaitingExchange};
use super::server_requests::edited;
use super::state::{RequestState, RequestStateBinding};
use super::stream_expiry::UsedItem;
use super::through_call::{PermittedCall, fits_through};
use super::{DecodedRequest, Gateway, InFlightSlot, ParkedCall};
use crate::audit::{
    AuditError, Intent, LostRecord, OpenRecord, ReadEntry, Record, RecordedDecision,
};
use crate::base::share::{Holder, Share};
use crate::config::call_budget::BudgetedCall;
use crate::config::quota::Quota;
use crate::edge::decode::{ParamHeader, UseOperation};
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::client_info::Client;
use crate::mcp::discovery_tools::DiscoveryTool;
use crate::mcp::protocol::{Era, meta};
use crate::mcp::trace_context::PropagatedContext;
use crate::mcp::wire::{DecodeError, Id, Object};
use crate::metrics::outcome::ExchangeEnd;
use crate::outbound::guardrail::{GuardedPart, GuardrailsPassed};
use crate::session::approvals::{ApprovalFailure, ApprovalForm};
use crate::session::call_budgets::BudgetDebit;
use crate::session::disclosed_client::DisclosedClient;
use crate::session::rate_limiter::WithinRate;
use crate::session::repeated_calls::RepeatRefusal;
use crate::stream::body::Body;
use crate::upstream::{
    CallOptions, Cleared, ClearedAnswer, InputResponses, Listing, RetryCount, Upstream,
    UpstreamError, listening_bytes,
};

/// The policy returned a list permit for a call (a bug).
const NO_USE: Failure = Failure::Upstream(UpstreamError::Protocol("the permit is for a list"));
/// The log level for legacy clients that set none.
const LEVEL: &str = r#""info""#;

/// A request that the policy permits; with a [`Cleared`] permit one that may be sent.
pub(super) struct PermittedUse<P> {
    server_index: usize,
    server: Arc<Upstream>,
    permit: P,
    verb: RequestOperation,
    /// The tool, prompt, URI, task or method, with the name that the server uses.
    name: Box<str>,
    /// The request state that the client returned, after it was opened.
    state: Option<RequestState>,
    mirrored: Vec<HeaderArgument>,
    held: HeldByUse,
}

/// Why no permit was given for a request.
pub(super) enum UseStopped {
    /// It was denied, or failed.
    Failed(Failure),
    /// The user of a modern client is asked about it first.
    Asks(Box<AskedClient>),
}

/// What the user of a modern client is asked about a call.
pub(super) struct AskedClient {
    pub(super) form: ApprovalForm,
    /// The sealed request state that the client returns with the answer.
    pub(super) state: String,
}

impl From<Failure> for UseStopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Why a request came to nothing before its server answered.
enum SendAborted {
    /// The client has cancelled it.
    Cancelled,
    /// It was not sent, or its server failed, or its caller or what it uses was revoked.
    Failed(Failure),
}

/// What a call that the server has interrupted is continued with.
#[derive(Default)]
struct CallContinuation {
    /// The client's answers to what the server asked.
    inputs: Option<Arc<InputResponses>>,
    /// The server's own state of the call.
    state: Option<Box<str>>,
}

/// A request as the policy decides about it.
#[derive(Clone, Debug)]
pub(super) struct DecidableUse {
    /// The request itself.
    pub(super) call: ItemRequest,
    /// What is sent in the same message, and what else the decision knows.
    pub(super) extras: RequestExtras,
    /// The flow of the request, if flows are remembered.
    pub(super) flow: Option<ExchangeFlow>,
    /// The client as servers may receive it.
    pub(super) client: DisclosedClient,
    /// What the server lists of the kind.
    offers: Option<Arc<Catalog>>,
}

/// A call that needs an approval.
struct WantedApproval {
    asked: DecidableUse,
    demand: ApprovalDemand,
    /// The state with which the client continues a call that was made before.
    continued: Option<Box<str>>,
}

/// The server that a name leads to.
pub(super) struct RequestTarget<'a> {
    /// The index of the server on the route.
    pub(super) server_index: usize,
    pub(super) server: &'a Arc<Upstream>,
    /// The name that the server uses.
    pub(super) name: Box<str>,
}

/// What the client said of a request beside what is asked.
struct Wanted {
    id: Id,
    /// The token for progress notifications.
    progress: Option<Id>,
    /// The lowest log level.
    level: Option<Box<str>>,
    slot: InFlightSlot,
}

impl PermittedUse<Cleared> {
    /// The server's index on the route, the server, and the permit.
    pub(super) fn into_parts(self) -> (usize, Arc<Upstream>, Cleared) {
        (self.server_index, self.server, self.permit)
    }
}

impl Gateway {
    /// The response to a request that is not made, or not yet.
    fn stopped(
        &self,
        entry: ReadEntry,
        verb: RequestOperation,
        stopped: UseStopped,
        id: &Id,
    ) -> Response<Body> {
        match stopped {
            UseStopped::Asks(asked) => {
                let body = encode::approval_required(id, &asked.form, &asked.state);
                let ending =
                    ExchangeEnd { reason: Some("input-required"), ..ExchangeEnd::answered() };
                self.shown(entry, ending, Some(id), encode::json(body))
            }
            UseStopped::Failed(Failure::Approval(ApprovalFailure::Cancelled)) => {
                let nothing = encode::events(Body::empty());
                self.shown(entry, ExchangeEnd::cancelled(), None, nothing)
            }
            UseStopped::Failed(failure) => self.failed_use(entry, verb, &failure, id),
        }
    }

    /// Runs a request: `open record -> authorize -> log intent -> send -> inspect -> answer`.
    ///
    /// The record is open before anything is asked of a server, its lists included, and the intent of the request is in
    /// the log before the request is sent.
    pub(super) async fn handle_use(
        self: Arc<Self>,
        arrived: Box<DecodedRequest>,
        ask: Box<UseOperation>,
        record: Box<Record>,
        slot: InFlightSlot,
    ) -> Response<Body> {
        if ask.verb == RequestOperation::Read && Self::is_kept(&ask.name) {
            return Box::pin(self.read_kept(&arrived, &ask.name, record)).await;
        }
        self.keep_loaded(&arrived, &record);
        if let Some(tool) = Self::called_discovery(&arrived, &ask) {
            return Box::pin(self.called_through(arrived, tool, ask, record, slot)).await;
        }
        self.handle_item(arrived, ask, record, slot).await
    }

    /// Runs the call of a tool of discovery; of one that calls other tools as the call of that tool.
    async fn called_through(
        self: Arc<Self>,
        arrived: Box<DecodedRequest>,
        tool: DiscoveryTool,
        mut ask: Box<UseOperation>,
        mut record: Box<Record>,
        slot: InFlightSlot,
    ) -> Response<Body> {
        if !self.may_use_any(&arrived) {
            // To this caller nothing is there.
            self.note_asked(&ask, &mut record);
            let (decision, denial) = Policy::unknown(ItemKind::Tool);
            record.decision = RecordedDecision::Decided(Box::new(decision));
            return self.refuse(&record, &Failure::Denied(ItemKind::Tool, denial));
        }
        self.metrics.discovery(tool);
        let DiscoveryTool::Call(class) = tool else {
            return self.discovery_called(&arrived, tool, *ask, record).await;
        };
        match self.unwrap_call(&arrived, &mut ask, class, &mut record).await {
            Ok(()) => self.handle_item(arrived, ask, record, slot).await,
            Err(failure) => {
                self.note_asked(&ask, &mut record);
                // A call that is not clear carries what it carries.
                let honeytokens = self.honeytokens_in(&arrived, &ask).await;
                let id = arrived.id.clone().unwrap_or(Id::Number(0));
                match self.journal.open(record) {
                    Ok(mut entry) => {
                        entry.found(honeytokens);
                        self.failed_call(entry, &failure, &id)
                    }
                    Err(error) => arrived.unrecorded(error),
                }
            }
        }
    }

    /// The same as [`Self::handle_use`], for what is no tool of discovery.
    async fn handle_item(
        self: Arc<Self>,
        arrived: Box<DecodedRequest>,
        mut ask: Box<UseOperation>,
        mut record: Box<Record>,
        slot: InFlightSlot,
    ) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        record.session = arrived.session.as_ref().map(|session| session.key);
        if self.is_channel_call(&arrived, &ask) {
            return Box::pin(self.channel_called(&arrived, *ask, record)).await;
        }
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let (verb, inputs) = (ask.verb, ask.inputs.clone());
        let task_answers = self.task_answers(&arrived, &ask);
        let (progress, level) = (ask.progress.take(), self.level(&arrived, ask.level.take()));
        let admitted = match self.authorize(&arrived, *ask, &mut entry).await {
            Ok(admitted) => admitted,
            Err(stopped) => return self.stopped(entry, verb, stopped, &id),
        };
        if self.is_ours(&arrived, &admitted) {
            return self.subscribe(&arrived, &admitted, entry).await;
        }
        let is_of_task = task_answers.is_some();
        let given = self.given_answers(admitted.state.as_ref(), inputs.as_ref(), task_answers);
        let mut inputs = inputs;
        if let Some(given) = given {
            // The answers to a task are no inputs.
            inputs = if is_of_task { inputs } else { given.asked() };
            if let Err(failure) = self.fit_given(&arrived, Some(given), &mut entry).await {
                return self.failed_use(entry, verb, &failure, &id);
            }
        }
        let wanted = Wanted { id, progress, level, slot };
        let mut frame = match self.with_intent(&arrived, entry, wanted) {
            Ok(frame) => frame,
            Err(refused) => return *refused,
        };
        let entry = &mut frame.entry;
        // The answer to a question of the gateway is not for the server.
        let is_answer = matches!(admitted.state, Some(RequestState::Approval(_)));
        let inputs = inputs.filter(|_| !is_answer);
        let inputs = match self.sendable_inputs(&arrived, &admitted, inputs, entry).await {
            Ok(inputs) => inputs,
            Err(failure) => return self.failed_use(frame.entry, verb, &failure, &frame.id),
        };
        let whole = || inputs.as_ref().map(|inputs| Arc::new(InputResponses::whole(inputs)));
        match admitted.state.clone() {
            Some(RequestState::Parked(name)) => {
                Box::pin(self.resume(admitted, frame, name, inputs)).await
            }
            Some(RequestState::Server(state)) => {
                let continued = CallContinuation { inputs: whole(), state: state.own };
                self.send(&arrived, admitted, frame, continued).await
            }
            Some(RequestState::Again) => {
                self.send(&arrived, admitted, frame, CallContinuation::default()).await
            }
            Some(RequestState::Approval(_)) | None => {
                let continued = CallContinuation { inputs: whole(), state: None };
                self.send(&arrived, admitted, frame, continued).await
            }
        }
    }

    /// Decides about a request, and applies the rate limit of the tool and the guardrails of the route to it.
    pub(super) async fn authorize(
        self: &Arc<Self>,
        arrived: &DecodedRequest,
        ask: UseOperation,
        entry: &mut ReadEntry,
    ) -> Result<Box<PermittedUse<Cleared>>, UseStopped> {
        let inputs = ask.inputs.as_ref().map_or(0, |inputs| inputs.value().raw().len());
        let mut admitted = self.admit(arrived, ask, entry).await?;
        admitted.held.place = entered(arrived, &admitted)?;
        let (rate, debit) = self.counted(arrived, &admitted, inputs, entry)?;
        let agreed = self.agreed(arrived, &admitted, entry).await?;
        let PermittedUse { server_index, server, permit, verb, name, state, mirrored, held } =
            admitted;
        let permit = Cleared::new(permit, rate, agreed);
        // Boxed, because the futures of the next steps hold it, and are copied when they begin.
        Ok(Box::new(PermittedUse {
            server_index,
            server,
            permit,
            verb,
            name,
            state,
            mirrored,
            held: HeldByUse { debit, ..held },
        }))
    }

    /// Writes the intent of a request to the log, once there is room for what its answer may need.
    fn with_intent(
        self: &Arc<Self>,
        arrived: &DecodedRequest,
        entry: ReadEntry,
        wanted: Wanted,
    ) -> Result<Box<WaitingExchange>, Box<Response<Body>>> {
        let Wanted { id, progress, level, slot } = wanted;
        let session = arrived.session.as_ref().map(|session| session.key);
        let session_slot =
            session.map(|session| self.session_states.reserve(session, &arrived.holder));
        let session_slot = match session_slot.transpose() {
            Ok(session_slot) => session_slot,
            Err(none) => {
                let failure = Failure::no_share(Quota::Sessions, none);
                return Err(Box::new(self.failed(entry, &failure, Some(&id))));
            }
        };
        let cancelled = match CancellationEntry::enter(self, session, &id) {
            Ok(cancelled) => cancelled,
            Err(failure) => return Err(Box::new(self.failed(entry, &failure, Some(&id)))),
        };
        let entry = entry.log_intent().map_err(|error| {
            // Where it is only this caller that has no room, the log works.
            if !matches!(error, AuditError::Share) {
                self.journal.log_lost(&error, LostRecord::Intent);
            }
            Box::new(arrived.unrecorded(error))
        })?;
        Ok(Box::new(WaitingExchange {
            entry,
            id,
            version: arrived.inbound.version,
            batched: arrived.batched,
            progress,
            level,
            session,
            session_slot,
            cancelled,
            started: self.clock.instant(),
            slot,
        }))
    }

    /// Continues a call that waits for its client. It was permitted and sent before: this permit says that it may
    /// continue. The state is bound to the call, so it is the same call.
    async fn resume(
        self: Arc<Self>,
        admitted: Box<PermittedUse<Cleared>>,
        frame: Box<WaitingExchange>,
        name: [u8; 16],
        inputs: Option<ClearedAnswer>,
    ) -> Response<Body> {
        // A call of another configuration is not continued under this one.
        let ours = |parked: &ParkedCall| Arc::ptr_eq(&parked.call.gateway, &self);
        let Some(ParkedCall { mut call, share, .. }) = self.parked_calls.remove(&name).filter(ours)
        else {
            let gone =
                Failure::Params("`requestState` belongs to a call that no longer waits for input");
            return self.failed(frame.entry, &gone, Some(&frame.id));
        };
        // The call may be parked again, with a new share.
        drop(share);
        call.answer.remember_sent(admitted.permit);
        call.answer.takes_of(frame.slot.body());
        call.under(frame).resume(inputs).await
    }

    /// Inspects the client's responses to a server's requests. Findings are recorded.
    async fn sendable_inputs(
        &self,
        arrived: &DecodedRequest,
        admitted: &PermittedUse<Cleared>,
        inputs: Option<Fragment>,
        entry: &mut Intent,
    ) -> Result<Option<ClearedAnswer>, Failure> {
        let Some(inputs) = inputs else { return Ok(None) };
        let (caller, route) = (&arrived.caller.principal, &arrived.route);
        let (server, name) = (&*admitted.server, &*admitted.name);
        let sent = Box::pin(self.answerable(caller, route, server, name, inputs));
        let (sent, found) = sent.await;
        entry.found(found);
        sent.map(Some).map_err(Failure::Unsent)
    }

    /// The trace context that the server may receive, if any. Findings are recorded.
    fn sendable_trace(
        &self,
        arrived: &DecodedRequest,
        admitted: &PermittedUse<Cleared>,
        entry: &mut Intent,
    ) -> Result<Option<Arc<SendableTrace>>, Failure> {
        let Some(told) = entry.trace.told() else { return Ok(None) };
        let (sent, found) = self.traceable(&arrived.caller.principal, &admitted.server, &told);
        entry.found(found);
        Ok(sent.map_err(Failure::Unsent)?.map(Arc::new))
    }

    /// Answers a request that failed after its record was opened; a denied tool call gets a result with `isError`.
    fn failed_use<S>(
        &self,
        entry: OpenRecord<S>,
        verb: RequestOperation,
        failure: &Failure,
        id: &Id,
    ) -> Response<Body> {
        if verb == RequestOperation::Call {
            self.failed_call(entry, failure, id)
        } else {
            self.failed(entry, failure, Some(id))
        }
    }

    /// Sends a request whose intent is in the log, and answers it.
    async fn send(
        self: Arc<Self>,
        arrived: &DecodedRequest,
        admitted: Box<PermittedUse<Cleared>>,
        mut frame: Box<WaitingExchange>,
        continued: CallContinuation,
    ) -> Response<Body> {
        let verb = admitted.verb;
        match self.begin_call(arrived, admitted, &mut frame, continued).await {
            Ok(call) => call.under(frame).answer().await,
            Err(SendAborted::Failed(failure)) => {
                self.failed_use(frame.entry, verb, &failure, &frame.id)
            }
            Err(SendAborted::Cancelled) => {
                let nothing = encode::events(Body::empty());
                self.shown(frame.entry, ExchangeEnd::cancelled(), None, nothing)
            }
        }
    }

    /// Sends a request, and waits until its server begins to answer.
    async fn begin_call(
        self: &Arc<Self>,
        arrived: &DecodedRequest,
        admitted: Box<PermittedUse<Cleared>>,
        frame: &mut WaitingExchange,
        continued: CallContinuation,
    ) -> Result<UpstreamCall, SendAborted> {
        let trace = self.sendable_trace(arrived, &admitted, &mut frame.entry);
        let trace = trace.map_err(SendAborted::Failed)?;
        let known =
            self.policy.registered(admitted.server.name(), admitted.verb.kind(), &admitted.name);
        let timeout = known.and_then(|known| known.timeout);
        let idempotent = known.filter(|known| known.idempotent);
        let retries = RetryCount::new(idempotent.map_or(0, |known| known.retries));
        let PermittedUse { server_index, server, permit, name, verb, mirrored, held, .. } =
            *admitted;
        let options = CallOptions {
            progress: frame.progress.is_some(),
            level: frame.level.clone(),
            inputs: continued.inputs,
            state: continued.state,
            mirrored,
            accepts_requests: true,
            timeout,
            retries: retries.clone(),
            trace,
            share: frame.slot.body(),
        };
        let on_behalf = arrived.on_behalf(server_index);
        let client = on_behalf.client.clone();
        let hint = permit.hint();
        let caller = &arrived.caller.principal;
        let used = UsedItem { server: server.name(), kind: verb.kind(), name: &name };
        let sent = tokio::select! {
            biased;
            failure = self.revoked(caller, used) => Err(SendAborted::Failed(failure)),
            () = frame.cancelled.cancelled() => Err(SendAborted::Cancelled),
            sent = server.call(permit, &frame.entry, on_behalf, options) => Ok(sent),
        };
        let took = self.clock.instant().saturating_duration_since(frame.started);
        frame.entry.upstream_duration = took;
        frame.entry.sent_at = Some(frame.started);
        frame.entry.retries = retries.made();
        self.metrics.upstream_retries.add(u64::from(retries.made()));
        let (expectation, answer) = sent?.map_err(|error| {
            let failure = self.failed_sending(&server, hint, error, &mut frame.entry);
            SendAborted::Failed(failure)
        })?;
        Ok(UpstreamCall {
            tool: name,
            caller: Arc::clone(&arrived.caller.principal),
            holder: arrived.holder.clone(),
            client,
            route: Arc::clone(&arrived.route),
            server,
            expectation: Some(expectation),
            answer,
            bound: None,
            waiting: Vec::new(),
            asked: None,
            rounds: 0,
            flow: self.flow_of(arrived, &frame.entry),
            held,
            gateway: Arc::clone(self),
        })
    }

    /// The failure for a server that could not be asked. Records a finding if the server wants what it may not ask for.
    fn failed_sending(
        &self,
        server: &Upstream,
        hint: ReadOnlyHint,
        error: UpstreamError,
        entry: &mut Intent,
    ) -> Failure {
        let Some(refusal) = error.wanted_of(hint) else { return Failure::Upstream(error) };
        let finding = self.not_asked(server, refusal);
        entry.found(vec![finding]);
        Failure::Refused(refusal)
    }

    /// Asks the guardrails of the route whether the request may be sent.
    pub(super) async fn agreed(
        &self,
        arrived: &DecodedRequest,
        admitted: &PermittedUse<Permit>,
        record: &mut Record,
    ) -> Result<GuardrailsPassed, Failure> {
        let (caller, about) = (&arrived.caller.principal, (&*admitted.server, &*admitted.name));
        let Sent::Use(call) = admitted.permit.call() else { return Err(NO_USE) };
        if arrived.route.guardrails.is_empty() {
            return Ok(GuardrailsPassed::nothing_to_judge());
        }
        let Some((chosen, beside)) =
            chosen(call, &arrived.on_behalf(admitted.server_index).client, record)
        else {
            return Ok(GuardrailsPassed::nothing_to_judge());
        };
        // INVARIANT: the parts were parsed by the same reader within the narrower bounds of a message.
        let unread = |error| Failure::Decode(DecodeError::Json(error));
        let chosen = Document::parse(chosen.into(), &JsonBounds::ANSWER).map_err(unread)?;
        let arguments = admitted.permit.arguments().map(Fragment::value);
        let value = arguments.unwrap_or_else(|| chosen.root());
        let (server, name) = about;
        let about =
            GuardrailSubject { server, name, part: GuardedPart::Request, value, beside: &beside };
        match self.guarded(&arrived.route, caller, about).await {
            Ok((agreed, found)) => {
                // A guardrail that fails open leaves findings; then it has not been applied.
                if found.is_empty() {
                    record.controls_run.note(Control::Guardrails);
                }
                record.found(found);
                Ok(agreed)
            }
            Err((finding, found)) => {
                record.controls_run.note(Control::Guardrails);
                record.found(found);
                Err(Failure::Unsent(finding))
            }
        }
    }

    /// The caller's trace context as a server may receive it, with the findings in it.
    fn traceable(
        &self,
        caller: &Principal,
        server: &Upstream,
        told: &PropagatedContext,
    ) -> (Result<Option<SendableTrace>, Finding>, Vec<Finding>) {
        let (parent, state) = (&told.parent, told.state.as_deref());
        let (sent, found) = self.policy.traceable(caller, server.name(), parent, state);
        self.note_findings(caller, &found);
        (sent, found)
    }

    /// Counts a call: identical ones, those of its tool, and what it takes of budgets, with `inputs` bytes of answers to
    /// its server. Continuing a parked call counts nothing.
    fn counted(
        &self,
        arrived: &DecodedRequest,
        admitted: &PermittedUse<Permit>,
        inputs: usize,
        record: &mut Record,
    ) -> Result<(WithinRate, BudgetDebit), Failure> {
        if matches!(admitted.state, Some(RequestState::Parked(_))) {
            return Ok((WithinRate::unlimited(), BudgetDebit::default()));
        }
        self.not_repeated(arrived, admitted)?;
        let (server, name) = (admitted.server.name(), &admitted.name);
        let known = self.policy.registered(server, admitted.verb.kind(), name);
        let rate = known.and_then(|known| known.rate);
        let within = match rate.filter(|_| admitted.verb == RequestOperation::Call) {
            Some(rate) => {
                record.controls_run.note(Control::Rates);
                let caller = arrived.caller.principal.id.as_str().into();
                let key = (caller, server.as_str().into(), name.clone());
                self.rate_limiter.take(key, rate, self.clock.instant()).map_err(Failure::Rate)?
            }
            None => WithinRate::unlimited(),
        };
        Ok((within, self.budgeted(arrived, admitted, inputs, record)?))
    }

    /// Refuses a call of a tool that the caller makes again and again with the same arguments.
    fn not_repeated(
        &self,
        arrived: &DecodedRequest,
        admitted: &PermittedUse<Permit>,
    ) -> Result<(), Failure> {
        let (server, name) = (admitted.server.name(), &admitted.name);
        let known = self.policy.registered(server, admitted.verb.kind(), name);
        let is_counted =
            admitted.verb == RequestOperation::Call && !known.is_some_and(|known| known.may_repeat);
        let Some(rate) = self.repeat_limit.filter(|_| is_counted) else { return Ok(()) };
        let mut arguments = comparable(admitted.permit.arguments().map(Fragment::value));
        // A call that goes on after questions of its server is another one each time.
        match &admitted.state {
            Some(RequestState::Server(state)) => {
                arguments.extend_from_slice(state.own.as_deref().unwrap_or("\n").as_bytes());
            }
            Some(RequestState::Again) => arguments.push(b'\n'),
            Some(RequestState::Parked(_) | RequestState::Approval(_)) | None => {}
        }
        self.count_equal(arrived, [server.as_str(), name], &arguments, rate)
    }

    /// Counts a call of a tool of a server with these arguments among equal ones of the caller.
    pub(super) fn count_equal(
        &self,
        arrived: &DecodedRequest,
        [server, name]: [&str; 2],
        arguments: &[u8],
        rate: RateLimit,
    ) -> Result<(), Failure> {
        let (caller, now) = (arrived.caller.principal.id.as_str(), self.clock.instant());
        let parts = [server.as_bytes(), name.as_bytes(), arguments];
        self.repeated_calls.take(caller, parts, rate, now).map_err(|refusal| match refusal {
            RepeatRefusal::Repeated(wait) => Failure::Repeated(wait),
            RepeatRefusal::Full => Failure::Overload,
        })
    }

    /// Takes a request from the budgets that count it.
    fn budgeted(
        &self,
        arrived: &DecodedRequest,
        admitted: &PermittedUse<Permit>,
        inputs: usize,
        record: &mut Record,
    ) -> Result<BudgetDebit, Failure> {
        let (server, name, kind) = (admitted.server.name(), &*admitted.name, admitted.verb.kind());
        if self.budgets.is_empty() || !admitted.verb.is_use() {
            return Ok(BudgetDebit::default());
        }
        let cost = self.policy.registered(server, kind, name).and_then(|known| known.cost);
        let bytes = admitted.permit.sent_length().saturating_add(inputs);
        let call = BudgetedCall {
            principal: &arrived.caller.principal,
            server: Some(server),
            kind,
            name,
            calls: 1,
            bytes: bytes as u64,
            cost: cost.unwrap_or(1),
        };
        self.take_budgets(&call, record)
    }

    /// Takes a call from the budgets that count it.
    pub(super) fn take_budgets(
        &self,
        call: &BudgetedCall<'_>,
        record: &mut Record,
    ) -> Result<BudgetDebit, Failure> {
        record.controls_run.note(Control::Rates);
        let taken = self.call_budgets.take(&self.budgets, call, self.clock.instant());
        taken.map_err(|exceeded| {
            record.budget = Some(exceeded.budget.clone());
            self.metrics.budgets_exceeded.add(1);
            Failure::Budget(Box::new(exceeded))
        })
    }

    /// The least severe log level that the client wants: as the request says, or as its session does.
    fn level(&self, arrived: &DecodedRequest, said: Option<Box<str>>) -> Option<Box<str>> {
        let Some(session) = &arrived.session else { return said };
        let kept = self.session_states.find(session.key).and_then(|kept| kept.level());
        Some(kept.unwrap_or_else(|| LEVEL.into()))
    }

    /// Decides about a request: finds the server and the definition, and asks the policy; and a person, where the policy
    /// requires that.
    pub(super) async fn admit(
        self: &Arc<Self>,
        arrived: &DecodedRequest,
        mut ask: UseOperation,
        record: &mut ReadEntry,
    ) -> Result<PermittedUse<Permit>, UseStopped> {
        let kind = ask.verb.kind();
        self.note_asked(&ask, record);
        if let Some(denied) = self.decoy_called(arrived, &ask, record) {
            return Err(denied.into());
        }
        let Some(target) = self.target(arrived, &mut ask, record).await? else {
            let (mut decision, denial) = self.without_target(arrived, kind, record);
            decision.findings.extend(self.honeytokens_in(arrived, &ask).await);
            record.decision = RecordedDecision::Decided(Box::new(decision));
            return Err(Failure::Denied(kind, denial).into());
        };
        self.note_target(&target, &mut ask, record).await;
        let verb = ask.verb;
        let listing = self.listing_of(arrived, &target, verb.kind(), record).await;
        let listing = listing.map_err(|failure| as_asked(failure, kind))?;
        let catalog = listing.as_ref().map(|listing| &**listing.catalog());
        let offer = catalog.and_then(|catalog| catalog.offer(&target.name));
        let mirrored = offer.map(CatalogItem::mirrored).unwrap_or_default().to_vec();
        let repeats = arrived.inbound.version.era() == Era::Modern && ask.mirrored.is_some();
        let answers = ask.inputs.clone();
        let said = ask.mirrored.take().unwrap_or_default();
        let (arguments, text) = (ask.arguments.clone(), ask.state.take());
        let through = ask.through.take();
        let mut asked = self.decidable(arrived, &target, ask, listing.as_deref(), record);
        let state = text.as_ref().map(|text| self.opened_state(arrived, &asked.call, text));
        asked.extras.unasked = asked.extras.answers.clone().filter(|_| state.is_none());
        if let Some(Ok(RequestState::Approval(id))) = &state {
            Box::pin(self.answered_by_client(id, asked.extras.answers.take())).await;
        }
        // What needs no approval of a person is moved, not copied.
        let again = self.policy.asks_people().then(|| asked.clone());
        let mut ruling = self.ruling(arrived, asked, record).await?;
        let demand = demanded(&ruling, verb);
        // Nobody is asked about a call that came the wrong way.
        if let Some(through) = through.filter(|_| ruling.is_ok() || demand.is_some()) {
            let called = PermittedCall {
                server: target.server.name(),
                shown_name: record.item.as_ref().map_or("", |(_, name)| name),
                offer,
                arguments: arguments.as_ref().map(Fragment::value),
            };
            fits_through(&self.policy, &through, &called)?;
        }
        // Nobody is asked about a call that would be refused for its state.
        let state = match state {
            Some(Err(failure)) if demand.is_some() => return Err(failure.into()),
            state => state,
        };
        if let (Some(again), Some(demand)) = (again, demand.clone()) {
            // An approval is spent once: not on a call whose answers are refused anyway.
            let opened = state.as_ref().and_then(|state| state.as_ref().ok());
            let given = self.given_answers(opened, answers.as_ref(), None);
            self.fit_given(arrived, given, record).await?;
            let continued = text.filter(|_| matches!(state, Some(Ok(_))));
            let wanted = WantedApproval { asked: again, demand, continued };
            ruling = self.ruling_of_person(arrived, &target, wanted, record).await?;
        }
        let approved = demand.filter(|_| ruling.is_ok());
        let permit = ruling.map_err(|denial| self.denied(arrived, kind, denial));
        let permit = permit.map_err(|failure| respelled(failure, kind, &target.name))?;
        if repeats {
            agree(&mirrored, &said, arguments.as_ref().map(Fragment::value))?;
        }
        let state = state.transpose()?;
        let RequestTarget { server_index, server, name } = target;
        let server = Arc::clone(server);
        let held = HeldByUse { approved, ..HeldByUse::default() };
        Ok(PermittedUse { server_index, server, permit, verb, name, state, mirrored, held })
    }

    /// Notes in the record which item of which server is asked for.
    async fn note_target(
        &self,
        target: &RequestTarget<'_>,
        ask: &mut UseOperation,
        record: &mut Record,
    ) {
        // Their names on a route hide the scheme by which files of skills are told from other resources.
        if ask.verb == RequestOperation::Read && is_skill_uri(&target.name) {
            ask.verb = RequestOperation::ReadSkillFile;
        }
        record.server = Some(target.server.name().as_str().into());
        record.upstream_name = Some(target.name.clone());
        self.capture_arguments(target.server.name(), ask.arguments.as_ref(), record).await;
        if matches!(ask.verb, RequestOperation::Task(_)) {
            record.item = Some((ask.verb.kind(), target.name.clone()));
        }
    }

    /// The request as the policy decides about it.
    fn decidable(
        &self,
        arrived: &DecodedRequest,
        target: &RequestTarget<'_>,
        ask: UseOperation,
        listing: Option<&Listing>,
        record: &Record,
    ) -> DecidableUse {
        let call = ItemRequest {
            server: target.server.name().clone(),
            verb: ask.verb,
            name: target.name.clone(),
            arguments: ask.arguments,
            extra: granted(target.server, ask.extra),
            meta: target.server.sendable_meta(ask.meta),
        };
        let client = arrived.on_behalf(target.server_index).client;
        let extras = request_extras(ask.inputs, &client, record);
        let offers = listing.map(|listing| Arc::clone(listing.catalog()));
        DecidableUse { call, extras, flow: self.flow_of(arrived, record), client, offers }
    }

    /// Asks the policy about a request, under the facts as they are now: reading the definitions may have added approvals
    /// and conflicts. The decision is noted in the record.
    async fn ruling(
        &self,
        arrived: &DecodedRequest,
        asked: DecidableUse,
        record: &mut Record,
    ) -> Result<Result<Permit, Denial>, Failure> {
        let DecidableUse { call, extras, flow, offers, .. } = asked;
        let offer = offers.as_ref().and_then(|offers| offers.offer(&call.name));
        // Findings in the definition were counted when it was listed.
        let listed = offer.map_or(&[][..], CatalogItem::findings).to_vec();
        let bytes = self.to_inspect(&call, offer).saturating_add(extras.bytes());
        let admit =
            move |policy: &Policy, facts: &Facts, caller: &Arc<Principal>, budget: &WorkBudget| {
                let decide = |call, extras: &RequestExtras| {
                    policy.admit_with(facts, caller, offers.as_deref(), call, extras, budget)
                };
                match flow {
                    Some(flow) => flow.admit(policy, call, offers.as_deref(), extras, decide),
                    None => decide(call, &extras),
                }
            };
        let ruling = self.inspect(&arrived.caller.principal, bytes, admit).await;
        let ruling = ruling.map_err(|_refused| Failure::Overload)?;
        let sent = ruling.decision.findings.iter().filter(|finding| !listed.contains(finding));
        self.note_findings(&arrived.caller.principal, sent);
        record.decision = RecordedDecision::Decided(Box::new(ruling.decision));
        Ok(ruling.outcome)
    }

    /// Waits for the approval of a person, and asks the policy again about the same request: time has passed.
    async fn ruling_of_person(
        self: &Arc<Self>,
        arrived: &DecodedRequest,
        target: &RequestTarget<'_>,
        wanted: WantedApproval,
        record: &mut ReadEntry,
    ) -> Result<Result<Permit, Denial>, UseStopped> {
        let WantedApproval { mut asked, demand, continued } = wanted;
        let kind = asked.call.verb.kind();
        let continued = continued.and_then(|text| self.continued(&text, &demand));
        if continued.is_none() && !self.can_ask(arrived, &asked) {
            let contact = self.policy.contact().map(Into::into);
            let told = decision::Disclosure::Rule { rule: None, contact };
            return Ok(Err(Denial { reason: Reason::Approval(Box::new(demand)), told }));
        }
        let approved = match continued {
            Some(approved) => approved,
            None => Box::pin(self.approved(arrived, &asked, demand, record)).await?,
        };
        let listing = self.listing_of(arrived, target, kind, record).await?;
        asked.offers = listing.map(|listing| Arc::clone(listing.catalog()));
        approved.used_in(&mut asked.extras);
        let ruling = self.ruling(arrived, asked, record).await?;
        match ruling {
            Err(Denial { reason: Reason::Approval(_), .. }) => {
                Err(Failure::Approval(ApprovalFailure::Changed).into())
            }
            ruling => Ok(ruling),
        }
    }

    /// Notes in the record what is asked: the item, and the digest of the arguments.
    pub(super) fn note_asked(&self, ask: &UseOperation, record: &mut Record) {
        let kind = ask.verb.kind();
        record.item = Some((kind, ask.name.clone()));
        let is_uri = matches!(kind, ItemKind::Resource | ItemKind::Skill);
        if let (true, Ok(uri)) = (is_uri, ResourceUri::parse(&ask.name)) {
            record.item = Some((kind, uri.as_str().into()));
        }
        let arguments = ask.arguments.as_ref();
        record.argument_digest =
            arguments.map(|args| self.journal.digest(args.value().raw().as_bytes()));
    }

    /// The server's list of what it offers of a kind; `None` for methods, which are never listed. A caller that may use
    /// nothing of the kind is denied: it must not cause any request to the server, not even for the list.
    async fn listing_of(
        &self,
        arrived: &DecodedRequest,
        target: &RequestTarget<'_>,
        kind: ItemKind,
        record: &mut ReadEntry,
    ) -> Result<Option<Arc<Listing>>, Failure> {
        let (principal, server) = (&*arrived.caller.principal, target.server.name());
        let denied = |record: &mut ReadEntry, decision, denial| {
            record.decision = RecordedDecision::Decided(Box::new(decision));
            self.denied(arrived, kind, denial)
        };
        let permit = match kind {
            ItemKind::Method => {
                let standing = self.policy.may_list(&arrived.facts, principal, server, kind);
                return match standing.into_parts() {
                    (decision, Some(denial)) => Err(denied(record, decision, denial)),
                    (_, None) => Ok(None),
                };
            }
            ItemKind::Tool
            | ItemKind::Prompt
            | ItemKind::Resource
            | ItemKind::Template
            | ItemKind::Skill => {
                let ruling = self.policy.admit_list(&arrived.facts, principal, server, kind);
                ruling.outcome.map_err(|denial| denied(record, ruling.decision, denial))?
            }
        };
        let (asked, on_behalf) = (self.clock.instant(), arrived.on_behalf(target.server_index));
        let listing = target.server.catalog(permit, record, &on_behalf).await;
        record.wait_before_send += self.since(asked);
        if listing.as_ref().is_err_and(|error| self.is_identity_mismatch(target.server, error)) {
            let (decision, denial) = Policy::of_stranger();
            record.decision = RecordedDecision::Decided(Box::new(decision));
            return Err(Failure::Denied(kind, denial));
        }
        Ok(Some(listing.map_err(Failure::Upstream)?))
    }

    /// Opens the request state that the client returned with a call.
    fn opened_state(
        &self,
        arrived: &DecodedRequest,
        call: &ItemRequest,
        text: &str,
    ) -> Result<RequestState, Failure> {
        let (principal, route) = (&arrived.caller.principal, arrived.route.identity());
        let bound = RequestStateBinding::new(principal, route, call);
        let state = bound.open(&self.sealer, text, self.clock.now());
        state
            .ok_or(Failure::Params("`requestState` was not given for this request, or has expired"))
    }

    /// The server that a name leads to, with its index and the name there; `None` if there is none. If the lookup
    /// fails, `record` names the failing server.
    async fn target<'a>(
        &self,
        arrived: &'a DecodedRequest,
        ask: &mut UseOperation,
        record: &mut ReadEntry,
    ) -> Result<Option<RequestTarget<'a>>, Failure> {
        let servers = &arrived.route.servers;
        if matches!(ask.verb, RequestOperation::Task(_)) {
            let Some(task) = self.task(arrived, ask) else { return Ok(None) };
            ask.extra.push(("taskId".into(), task.id));
            let target =
                |server| RequestTarget { server_index: task.server_index, server, name: task.tool };
            return Ok(servers.get(task.server_index).map(target));
        }
        let renamed = arrived.route.renames() && ask.verb.kind() != ItemKind::Method;
        if let [server] = &servers[..]
            && !renamed
        {
            return Ok(Some(RequestTarget { server_index: 0, server, name: ask.name.clone() }));
        }
        let found = match ask.verb.kind() {
            ItemKind::Resource | ItemKind::Template | ItemKind::Skill => {
                let own = |server: &Arc<Upstream>| {
                    arrived.route.own_uri(server.name(), &ask.name).map(Into::into)
                };
                servers.iter().enumerate().find_map(|(server_index, server)| {
                    Some(RequestTarget { server_index, server, name: own(server)? })
                })
            }
            // A method name identifies no server, so exactly one server must be granted.
            ItemKind::Method => {
                let (facts, principal) = (&arrived.facts, &*arrived.caller.principal);
                let mut granted = servers.iter().enumerate().filter(|(_, server)| {
                    self.policy
                        .may_list(facts, principal, server.name(), ItemKind::Method)
                        .is_granted()
                });
                let first = granted.next();
                let name = ask.name.clone();
                first
                    .filter(|_| granted.next().is_none())
                    .map(|(server_index, server)| RequestTarget { server_index, server, name })
            }
            kind @ (ItemKind::Tool | ItemKind::Prompt) => {
                self.named(arrived, kind, &ask.name, record).await?
            }
        };
        Ok(found)
    }

    /// The decision about a name that leads to no server. The caller always gets `unknown`. The record gets the denial
    /// if all candidate servers share it.
    fn without_target(
        &self,
        arrived: &DecodedRequest,
        kind: ItemKind,
        record: &mut ReadEntry,
    ) -> (Decision, Denial) {
        let name = record.item.as_ref().map(|(_, name)| name.clone()).unwrap_or_default();
        let unknown = || Policy::unknown(kind);
        if !matches!(kind, ItemKind::Tool | ItemKind::Prompt) {
            return unknown();
        }
        let (facts, principal, route) =
            (&arrived.facts, &*arrived.caller.principal, &arrived.route);
        let mut could_have = route.servers.iter().filter(|server| {
            route.compares(kind)
                || route.naming(server.name(), Arc::default()).may_show(server.name(), &name)
        });
        let Some(first) = could_have.next() else { return unknown() };
        let (decision, denial) =
            self.policy.may_list(facts, principal, first.name(), kind).into_parts();
        let Some(denial) = denial else { return unknown() };
        let mut is_only = true;
        for server in could_have {
            is_only = false;
            let standing = self.policy.may_list(facts, principal, server.name(), kind);
            if standing.denial().is_none_or(|other| other.reason != denial.reason) {
                return unknown();
            }
        }
        if is_only {
            record.server = Some(first.name().as_str().into());
        }
        (decision, denial)
    }

    /// Whether the gateway emulates the subscription: the client has no session of its own with the server.
    fn is_ours(&self, arrived: &DecodedRequest, admitted: &PermittedUse<Cleared>) -> bool {
        matches!(admitted.verb, RequestOperation::Subscribe | RequestOperation::Unsubscribe)
            && arrived.upstream_session(admitted.server_index).is_none()
    }

    async fn subscribe(
        &self,
        arrived: &DecodedRequest,
        admitted: &PermittedUse<Cleared>,
        entry: ReadEntry,
    ) -> Response<Body> {
        let id = arrived.id.as_ref();
        let session_slot = arrived.session.as_ref();
        let session_slot =
            session_slot.map(|session| self.session_states.reserve(session.key, &arrived.holder));
        let session_slot = match session_slot.transpose() {
            Ok(session_slot) => session_slot,
            Err(none) => return self.failed(entry, &Failure::no_share(Quota::Sessions, none), id),
        };
        let bytes = listening_bytes(&admitted.name);
        let wanted = admitted.verb == RequestOperation::Subscribe;
        let wanted = wanted.then(|| self.quotas.subscriptions.take(&arrived.holder, bytes));
        let wanted = match wanted.transpose() {
            Ok(wanted) => wanted,
            Err(none) => {
                return self.failed(entry, &Failure::no_share(Quota::Subscriptions, none), id);
            }
        };
        let kept = session_slot.map(|session_slot| self.session_states.enter(session_slot));
        let watched = kept
            .as_ref()
            .is_some_and(|kept| kept.watch(admitted.server_index, &admitted.name, wanted));
        if let Some(kept) = kept.filter(|_| watched) {
            // The client must not miss events after the response, so the upstream subscription is awaited.
            drop(timeout(self.limits.connect_timeout, kept.settled(admitted.server_index)).await);
        }
        match id.filter(|_| watched) {
            Some(id) => {
                self.shown(entry, ExchangeEnd::answered(), Some(id), encode::empty_result(id))
            }
            None => self.failed(entry, &Failure::Overload, id),
        }
    }
}

/// Takes a place among the calls of the server for a new use. A call that waits for its client has its place.
fn entered(
    arrived: &DecodedRequest,
    admitted: &PermittedUse<Permit>,
) -> Result<Option<Share<Holder>>, Failure> {
    let parked = matches!(admitted.state, Some(RequestState::Parked(_)));
    if parked || !admitted.verb.is_use() {
        return Ok(None);
    }
    admitted.server.enter(&arrived.holder).map_err(Failure::ServerBusy)
}

/// The approval that a tool call needs, if that is why it is denied.
fn demanded(ruling: &Result<Permit, Denial>, verb: RequestOperation) -> Option<ApprovalDemand> {
    match ruling {
        Err(Denial { reason: Reason::Approval(demand), .. }) if verb == RequestOperation::Call => {
            Some((**demand).clone())
        }
        Ok(_) | Err(_) => None,
    }
}

/// Client info, trace context and input responses, inspected together with the params.
fn request_extras(answers: Option<Fragment>, client: &Client, record: &Record) -> RequestExtras {
    let mut extras = RequestExtras { answers, ..RequestExtras::default() };
    if !client.says_nothing() {
        extras.client.extend(client.said_info().map(Into::into));
        extras.client.push(client.capabilities().into());
    }
    if let Some(PropagatedContext { parent, state }) = record.trace.told() {
        extras.trace.push(parent);
        extras.trace.extend(state);
    }
    extras
}

/// What the caller chose in a request, for guardrails: JSON that stands in for the arguments if there are none, and the
/// members of an object with everything else. `None` if the caller chose only the id of a task it was given.
fn chosen(call: &ItemRequest, client: &Client, record: &Record) -> Option<(Vec<u8>, String)> {
    let takes = matches!(call.verb, RequestOperation::Call | RequestOperation::Get);
    let theirs = |key: &str| matches!(call.verb, RequestOperation::Task(_)) && key == "taskId";
    let extra = || call.extra.iter().filter(|(key, _)| !theirs(key));
    if matches!(call.verb, RequestOperation::Task(_))
        && extra().next().is_none()
        && call.meta.is_empty()
    {
        return None;
    }
    let mut value = Vec::new();
    let mut object = Object::open(&mut value);
    if !takes {
        match call.verb.kind() {
            ItemKind::Resource | ItemKind::Template | ItemKind::Skill => {
                object.text("uri", &call.name)
            }
            ItemKind::Tool | ItemKind::Prompt | ItemKind::Method => {}
        }
        extra().for_each(|(key, member)| object.raw(key, member.value().raw()));
    }
    object.close();
    let mut beside = Vec::new();
    let mut object = Object::open(&mut beside);
    if takes && !call.extra.is_empty() {
        let mut params = Object::open(object.key("params"));
        call.extra.iter().for_each(|(key, member)| params.raw(key, member.value().raw()));
        params.close();
    }
    if !call.meta.is_empty() {
        let mut meta = Object::open(object.key("_meta"));
        call.meta.iter().for_each(|(key, member)| meta.raw(key, member.value().raw()));
        meta.close();
    }
    if let Some(PropagatedContext { parent, state }) = record.trace.told() {
        object.text(meta::TRACE_PARENT, &parent);
        if let Some(state) = state {
            object.text(meta::TRACE_STATE, &state);
        }
    }
    if !client.says_nothing() {
        object.raw("clientCapabilities", client.capabilities());
        if let Some(info) = client.said_info() {
            object.raw("clientInfo", info);
        }
    }
    object.close();
    let beside = String::from_utf8(beside).ok()?;
    let members = beside.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    Some((value, members.unwrap_or_default().to_owned()))
}

/// The members of a request as its server may get them: of the answers to requests of a task (`tasks/update`), without
/// what the client is not granted to tell.
fn granted(server: &Upstream, members: Vec<(Box<str>, Fragment)>) -> Vec<(Box<str>, Fragment)> {
    let granted = members.into_iter().filter_map(|(key, member)| {
        if &*key != "inputResponses" {
            return Some((key, member));
        }
        let edits = server.server_requests().answer_edits(member.value());
        Some((key, edited(&member, edits).ok()?))
    });
    granted.collect()
}

/// The denial as one of the kind that the caller asked for: a file of a skill is decided about as the skill, and its caller
/// reads a resource.
fn as_asked(failure: Failure, kind: ItemKind) -> Failure {
    match failure {
        Failure::Denied(_, denial) => Failure::Denied(kind, denial),
        failure => failure,
    }
}

/// Tells a caller that used a non-canonical URI what to correct. The message is the same whether or not a resource it
/// may not see is listed under this spelling.
fn respelled(failure: Failure, kind: ItemKind, name: &str) -> Failure {
    match (failure, ResourceUri::parse(name)) {
        (Failure::Denied(_, denial), Err(error))
            if matches!(kind, ItemKind::Resource | ItemKind::Skill)
                && denial.told == decision::Disclosure::Nothing =>
        {
            Failure::Denied(
                kind,
                Denial { reason: Reason::Uri(error), told: decision::Disclosure::Nothing },
            )
        }
        (failure, Ok(_) | Err(_)) => failure,
    }
}

/// Arguments in one spelling, so that equal ones are equal.
pub(super) fn comparable(given: Option<json::Value<'_>>) -> Vec<u8> {
    let mut arguments = Vec::new();
    match given {
        // Numbers of one value are one number; those without an exact form are compared as they are written.
        Some(given) if json::write_canonical(&mut arguments, given).is_err() => {
            arguments.clear();
            json::write_plain(&mut arguments, given);
        }
        Some(_) => {}
        None => arguments.extend_from_slice(b"{}"),
    }
    arguments
}

/// Checks that the headers mirror the arguments as the tool's definition requires.
///
/// SPEC 2026-07-28 basic/transports/streamable-http#server-behavior-for-custom-headers
fn agree(
    wanted: &[HeaderArgument],
    said: &[ParamHeader],
    arguments: Option<json::Value<'_>>,
) -> Result<(), Failure> {
    for mirrored in wanted {
        let said = said.iter().find(|(header, _)| *header == mirrored.header);
        let said = said.map(|(_, value)| value.as_deref());
        match (said, mirrored.value(arguments)) {
            (None, None) => {}
            (Some(Some(said)), Some(meant)) if HeaderArgument::agree(said, &meant) => {}
            (None, Some(_)) => {
                return Err(Failure::HeaderMismatch("an `Mcp-Param-` header is missing"));
            }
            (Some(_), _) => {
                let what = "an `Mcp-Param-` header is not the argument in the body";
                return Err(Failure::HeaderMismatch(what));
            }
        }
    }
    Ok(())
}
