//! Waits for a person where the policy permits a call only with an approval.
//!
//! The wait holds no thread. It ends closed: when nobody answers in time, when the gateway stops, when another
//! configuration takes over, and when the caller or what it uses is revoked. The question outlives the exchange, so that
//! the same call finds the answer after its client has lost the connection. What was approved is decided again by the
//! policy, as the state is then.

use std::sync::Arc;

use json::Fragment;
use policy::engine::message::{ItemRequest, RequestExtras};
use policy::rules::approval::ApprovalDemand;
use tokio::time::sleep;

use super::call::{AskedClient, DecidableUse, UseStopped};
use super::cancellation::CancellationEntry;
use super::state::{RequestState, RequestStateBinding};
use super::stream_expiry::UsedItem;
use super::{DecodedRequest, Gateway};
use crate::audit::Record;
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::protocol::{Era, method};
use crate::mcp::wire::ResponseOutcome;
use crate::session::approvals::{
    ApprovalAnswer, ApprovalBinding, ApprovalFailure, ApprovalId, ApprovalQuestion, ApprovalState,
    AskError, BoundCall, FORM_KEY, OpenApproval, SpentApproval, drawn, drawn_members, form_answer,
};
use crate::session::state::SessionState;
use crate::stream::replay::ReplayBuffer;

/// What a person approved, with the proof that no other call has used the approval.
#[derive(Debug)]
pub(super) struct ApprovedDemand {
    demand: ApprovalDemand,
    spent: SpentApproval,
}

impl ApprovedDemand {
    /// Uses the approval in the decision about the call.
    pub(super) fn used_in(self, extras: &mut RequestExtras) {
        let Self { demand, spent } = self;
        // It was spent for this decision, and is gone with it.
        drop(spent);
        extras.approved = Some(demand);
    }
}

impl Gateway {
    /// Whether anybody can be asked about a call. The self-test asks nobody.
    pub(super) fn can_ask(&self, arrived: &DecodedRequest, asked: &DecidableUse) -> bool {
        let can = self.approval_settings.asks_operator || self.can_ask_client(arrived, asked);
        can && !asked.call.server.is_reserved()
    }

    /// Whether the user of the client can be asked: the client offers forms, and can be reached.
    fn can_ask_client(&self, arrived: &DecodedRequest, asked: &DecidableUse) -> bool {
        let offers = asked.client.lacks(method::ELICIT, None).is_none();
        let is_allowed = self.approval_settings.asks_client && !arrived.batched;
        is_allowed && offers && (is_modern(arrived) || self.standing(arrived).is_some())
    }

    /// The state of a legacy session, and its stream for messages that belong to no call, if the client reads it.
    fn standing(&self, arrived: &DecodedRequest) -> Option<(Arc<SessionState>, Arc<ReplayBuffer>)> {
        let state = self.session_states.find(arrived.session.as_ref()?.key)?;
        let stream = state.standing()?;
        Some((state, stream))
    }

    /// Takes the answer of the user of a modern client to a question.
    pub(super) async fn answered_by_client(&self, id: &ApprovalId, inputs: Option<Fragment>) {
        let given = inputs.as_ref().and_then(|inputs| inputs.value().get(FORM_KEY));
        let Some(given) = given.filter(|_| self.approval_settings.asks_client) else { return };
        self.note_client_answer(id, form_answer(given)).await;
    }

    async fn note_client_answer(&self, id: &ApprovalId, answer: ApprovalAnswer) {
        if let Err(error) = self.approvals.answer(id, answer).await {
            tracing::info!(
                event = "approval.answer_ignored", approval = %id, %error,
                "the answer of a client to a question about a call was not taken"
            );
        }
    }

    /// The approval of a call that is continued with `state` after questions of its server.
    pub(super) fn continued(&self, state: &str, demand: &ApprovalDemand) -> Option<ApprovedDemand> {
        let (former, spent) = self.approvals.resume(state)?;
        former.continues_as(demand).then(|| ApprovedDemand { demand: demand.clone(), spent })
    }

    /// Waits until a person has approved a call.
    ///
    /// # Errors
    /// If nobody may be asked, or the call was not approved.
    pub(super) async fn approved(
        self: &Arc<Self>,
        arrived: &DecodedRequest,
        asked: &DecidableUse,
        demand: ApprovalDemand,
        record: &mut Record,
    ) -> Result<ApprovedDemand, UseStopped> {
        let binding = self.binding(arrived, asked, &demand);
        loop {
            let open = match self.approvals.find(&binding) {
                Some(open) => open,
                None => self.question(arrived, asked, &demand, &binding, record).await?,
            };
            let id = &open.question.id;
            record.approval = Some(id.as_str().into());
            let is_open = *open.state.borrow() == ApprovalState::Waiting;
            let asks_client = is_open && self.can_ask_client(arrived, asked);
            if asks_client && is_modern(arrived) {
                return Err(self.asked_of_client(arrived, asked, &open)?);
            }
            let by_client = async {
                match asks_client {
                    true => self.answered_on_stream(arrived, &open).await,
                    false => std::future::pending().await,
                }
            };
            let asked_at = self.clock.instant();
            let answer = tokio::select! {
                answer = self.answer_to(arrived, &asked.call, &open) => answer,
                () = by_client => Ok(ApprovalState::Waiting),
            };
            record.wait_before_send += self.since(asked_at);
            match answer? {
                ApprovalState::Approved => {
                    let spent = self.approvals.spend(&open.question, &binding).await;
                    let unspent = |limit| Failure::Approval(ApprovalFailure::Limit(limit));
                    if let Some(spent) = spent.map_err(unspent)? {
                        return Ok(ApprovedDemand { demand, spent });
                    }
                }
                ApprovalState::Denied => {
                    return Err(Failure::Approval(ApprovalFailure::Denied).into());
                }
                // Another exchange with the same call has used the approval, so this one needs its own; or the client
                // has answered.
                ApprovalState::Over | ApprovalState::Waiting => {}
            }
        }
    }

    /// The question as the user of a modern client gets it.
    fn asked_of_client(
        &self,
        arrived: &DecodedRequest,
        asked: &DecidableUse,
        open: &OpenApproval,
    ) -> Result<UseStopped, Failure> {
        let (principal, route) = (&arrived.caller.principal, arrived.route.identity());
        let bound = RequestStateBinding::new(principal, route, &asked.call);
        let state = RequestState::Approval(open.question.id.clone());
        let left = open.until.saturating_duration_since(self.clock.instant());
        let sealed = bound.seal(&self.sealer, &state, self.clock.now(), left);
        let state = sealed.map_err(|_opaque| Failure::Overload)?;
        Ok(UseStopped::Asks(Box::new(AskedClient { form: open.question.form(), state })))
    }

    /// Asks the user of a legacy client on the stream of its session, and takes the answer. Never resolves if the client
    /// gives none.
    async fn answered_on_stream(&self, arrived: &DecodedRequest, open: &OpenApproval) {
        let put =
            self.standing(arrived).and_then(|(state, stream)| Some((state.ask(None)?, stream)));
        let Some(((id, answer), stream)) = put else { return std::future::pending().await };
        stream.push(&encode::approval_request(&id, &open.question.form())).await;
        match answer.await {
            Ok(ResponseOutcome::Result(given)) => {
                self.note_client_answer(&open.question.id, form_answer(given.value())).await;
            }
            // A client that fails to ask its user leaves the question to others.
            Ok(ResponseOutcome::Error(_)) | Err(_) => std::future::pending().await,
        }
    }

    /// What the approval of a call is bound to.
    fn binding(
        &self,
        arrived: &DecodedRequest,
        asked: &DecidableUse,
        demand: &ApprovalDemand,
    ) -> ApprovalBinding {
        let bound = BoundCall {
            principal: &arrived.caller.principal,
            call: &asked.call,
            unasked: asked.extras.unasked.as_ref(),
            flow: asked.flow.as_ref().map(super::flows::ExchangeFlow::key),
            demand,
            config_digest: &self.config_digest,
            process: demand.violation().is_some().then_some(self.approvals.process()),
        };
        bound.binding()
    }

    /// Asks the question whether a call may be made.
    async fn question(
        &self,
        arrived: &DecodedRequest,
        asked: &DecidableUse,
        demand: &ApprovalDemand,
        binding: &ApprovalBinding,
        record: &mut Record,
    ) -> Result<OpenApproval, Failure> {
        let settings = &self.approval_settings;
        let (principal, call) = (&arrived.caller.principal, &asked.call);
        let value = call.arguments.as_ref().map(Fragment::value);
        let (arguments, extra) =
            (value.map(drawn).unwrap_or_default(), drawn_members(&beside(asked)));
        if arguments.len().saturating_add(extra.len()) > settings.argument_bytes {
            return Err(Failure::Approval(ApprovalFailure::Size));
        }
        let mut plain = Vec::new();
        if let Some(value) = value {
            json::write_plain(&mut plain, value);
        }
        let now = self.clock.now();
        let question = ApprovalQuestion {
            id: ApprovalId::new().map_err(|_no_bytes| Failure::Overload)?,
            binding: binding.clone(),
            principal: principal.id.as_str().into(),
            client: principal.claims.client.as_ref().map(|client| client.as_str().into()),
            server: call.server.as_str().into(),
            tool: call.name.clone(),
            rule: demand.rule.as_str().into(),
            causes: demand.causes.iter().map(|cause| cause.as_str()).collect(),
            arguments: arguments.into(),
            extra: extra.into(),
            argument_digest: self.journal.digest(&plain).into(),
            definition: demand.definition,
            violation: demand.violation().cloned(),
            labels: demand.labels,
            origins: demand.origins.clone(),
            asked: now,
            expires: now + settings.timeout,
            config_digest: Arc::clone(&self.config_digest),
        };
        // A person may see the question before it is known here that it was kept.
        record.approval = Some(question.id.as_str().into());
        let kept = self.approvals.ask(question, settings).await.map_err(|error| {
            record.approval = None;
            match error {
                AskError::Limit(limit) => Failure::Approval(ApprovalFailure::Limit(limit)),
                AskError::Unrecorded(error) => Failure::Audit(error),
            }
        })?;
        if kept.is_new {
            self.notify_of(&kept.open);
        }
        Ok(kept.open)
    }

    /// Waits for the answer to a question: its state then.
    async fn answer_to(
        self: &Arc<Self>,
        arrived: &DecodedRequest,
        call: &ItemRequest,
        open: &OpenApproval,
    ) -> Result<ApprovalState, Failure> {
        let ended = |failure| Err(Failure::Approval(failure));
        let session = arrived.session.as_ref().map(|session| session.key);
        let cancelled = match &arrived.id {
            Some(id) => Some(CancellationEntry::enter(self, session, id)?),
            None => None,
        };
        let cancelled = async {
            match &cancelled {
                Some(cancelled) => cancelled.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let gone = async {
            match &arrived.client_gone {
                Some(gone) => gone.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let credential = arrived.caller.until.map(|until| until.duration_since(self.clock.now()));
        let credential = async {
            match credential {
                Some(left) => sleep(left.unwrap_or_default()).await,
                None => std::future::pending().await,
            }
        };
        let used = UsedItem { server: &call.server, kind: call.verb.kind(), name: &call.name };
        let left = open.until.saturating_duration_since(self.clock.instant());
        let mut state = open.state.clone();
        let answered = async {
            let state = state.wait_for(|state| *state != ApprovalState::Waiting).await;
            state.map_or(ApprovalState::Over, |state| state.clone())
        };
        tokio::select! {
            biased;
            failure = self.revoked(&arrived.caller.principal, used) => Err(failure),
            () = self.tasks.stopping() => ended(ApprovalFailure::Interrupted),
            () = credential => ended(ApprovalFailure::Interrupted),
            () = cancelled => ended(ApprovalFailure::Cancelled),
            () = gone => ended(ApprovalFailure::Cancelled),
            () = sleep(left) => {
                self.approvals.expire(&open.question).await;
                ended(ApprovalFailure::Timeout)
            }
            state = answered => Ok(state),
        }
    }
}

/// What is sent beside the arguments: members of `params` that the gateway does not know, and answers that nobody has
/// asked for.
fn beside(asked: &DecidableUse) -> Vec<(Box<str>, Fragment)> {
    let mut all = asked.call.extra.clone();
    all.extend(asked.extras.unasked.clone().map(|answers| ("inputResponses".into(), answers)));
    all
}

fn is_modern(arrived: &DecodedRequest) -> bool {
    arrived.inbound.version.era() == Era::Modern
}
