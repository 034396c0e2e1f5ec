//! Waits for a person where the policy permits a call only with an approval.
//!
//! The wait holds no thread. It ends closed: when nobody answers in time, when the gateway stops, when another
//! configuration takes over, and when the caller or what it uses is revoked. The question outlives the exchange, so that
//! the same call finds the answer after its client has lost the connection. What was approved is decided again by the
//! policy, as the state is then.

use std::sync::Arc;

use policy::engine::message::{ItemRequest, RequestExtras};
use policy::rules::approval::ApprovalDemand;
use tokio::time::sleep;

use super::call::DecidableUse;
use super::cancellation::CancellationEntry;
use super::stream_expiry::UsedItem;
use super::{DecodedRequest, Gateway};
use crate::audit::Record;
use crate::edge::failure::Failure;
use crate::session::approvals::{
    ApprovalBinding, ApprovalFailure, ApprovalId, ApprovalQuestion, ApprovalState, AskError,
    BoundCall, OpenApproval, SpentApproval, drawn, drawn_members,
};

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
    pub(super) fn can_ask(&self, call: &ItemRequest) -> bool {
        self.approval_settings.asks_operator && !call.server.is_reserved()
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
    ) -> Result<ApprovedDemand, Failure> {
        let binding = self.binding(arrived, asked, &demand);
        let began = self.clock.instant();
        loop {
            let open = match self.approvals.find(&binding) {
                Some(open) => open,
                None => self.question(arrived, asked, &demand, &binding)?,
            };
            let id = &open.question.id;
            record.approval = Some(id.as_str().into());
            let answer = self.answer_to(arrived, &asked.call, &open).await;
            record.wait_before_send += self.since(began);
            match answer? {
                ApprovalState::Approved => {
                    if let Some(spent) = self.approvals.spend(id, &binding) {
                        return Ok(ApprovedDemand { demand, spent });
                    }
                }
                ApprovalState::Denied => return Err(Failure::Approval(ApprovalFailure::Denied)),
                // Another exchange with the same call has used the approval, so this one needs its own.
                ApprovalState::Over | ApprovalState::Waiting => {}
            }
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
            flow: asked.flow.as_ref().map(super::flows::ExchangeFlow::key),
            demand,
            config_digest: &self.config_digest,
        };
        bound.binding()
    }

    /// Asks the question whether a call may be made.
    fn question(
        &self,
        arrived: &DecodedRequest,
        asked: &DecidableUse,
        demand: &ApprovalDemand,
        binding: &ApprovalBinding,
    ) -> Result<OpenApproval, Failure> {
        let settings = &self.approval_settings;
        let (principal, call) = (&arrived.caller.principal, &asked.call);
        let value = call.arguments.as_ref().map(json::Fragment::value);
        let (arguments, extra) = (value.map(drawn).unwrap_or_default(), drawn_members(&call.extra));
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
        self.approvals.ask(question, settings).map_err(|error| match error {
            AskError::Limit(limit) => Failure::Approval(ApprovalFailure::Limit(limit)),
            AskError::Unrecorded(error) => Failure::Audit(error),
        })
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
        tokio::select! {
            biased;
            failure = self.revoked(&arrived.caller.principal, used) => Err(failure),
            () = self.tasks.stopping() => ended(ApprovalFailure::Interrupted),
            () = credential => ended(ApprovalFailure::Interrupted),
            () = cancelled => ended(ApprovalFailure::Cancelled),
            () = gone => ended(ApprovalFailure::Cancelled),
            () = sleep(left) => {
                self.approvals.expire();
                ended(ApprovalFailure::Timeout)
            }
            state = state.wait_for(|state| *state != ApprovalState::Waiting) => {
                Ok(state.map_or(ApprovalState::Over, |state| state.clone()))
            }
        }
    }
}
