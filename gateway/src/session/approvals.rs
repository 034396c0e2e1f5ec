//! Approvals of calls by people: the questions that are open, the answers, and the approvals that were not used yet.
//!
//! A question is bound to one call ([`ApprovalBinding`]): its principal, server, tool, arguments, definition, flow and
//! configuration. An approval is spent by one call ([`Approvals::spend`]), within the time that the question had. State
//! that is lost denies: a call that finds no approval asks again.

mod question;
mod document;
mod drawing;
mod stored;
mod file;
mod memory;
mod form;
mod changes;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use policy::rules::approval::ApprovalDemand;
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::changes::{AnswerFate, StoreChanges};

use crate::audit::{ApprovalEvent, AuditError, Journal, LostRecord};
use crate::base::bounded::BoundedMap;
use crate::base::clock::Clock;
use crate::base::file::FileTaskError;
use crate::base::sha256::sha256;
use crate::config::settings::ApprovalSettings;
use crate::metrics::Metrics;
use crate::metrics::approval_step::ApprovalStep;

pub use document::{details, summary};
pub use drawing::{drawn, drawn_members};
pub use file::{ApprovalFileError, FileApprovals};
pub use form::{ApprovalForm, FORM_KEY, form_answer};
pub use memory::MemoryApprovals;
pub use question::{ApprovalBinding, ApprovalId, ApprovalQuestion, BoundCall};

/// Who answered a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// Whether the call may be made.
    pub verdict: ApprovalVerdict,
    /// Through which way the answer came.
    pub source: AnswerSource,
    /// The name of the person, as they gave it.
    pub by: Option<Box<str>>,
    /// The reason that the person gave.
    pub reason: Option<Box<str>>,
}

/// What a person answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// The call may be made.
    Approve,
    /// The call may not be made.
    Deny,
}

impl ApprovalVerdict {
    /// The state of a question that was answered so.
    const fn state(self) -> ApprovalState {
        match self {
            Self::Approve => ApprovalState::Approved,
            Self::Deny => ApprovalState::Denied,
        }
    }

    const fn step(self) -> ApprovalStep {
        match self {
            Self::Approve => ApprovalStep::Approved,
            Self::Deny => ApprovalStep::Denied,
        }
    }
}

/// The way through which an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerSource {
    /// The admin API, by an operator.
    Operator,
    /// An elicitation of the client that called.
    Client,
}

impl AnswerSource {
    /// The name in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Client => "client",
        }
    }
}

/// The state of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// Nobody has answered it yet.
    Waiting,
    /// A person approved the call, and no call has used that.
    Approved,
    /// A person denied the call. The same call is denied until the question expires.
    Denied,
    /// The question was removed: the approval was spent or withdrawn, or the time is over.
    Over,
}

impl ApprovalState {
    /// The name in the admin API.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Over => "over",
        }
    }
}

/// A question that can be answered, or was.
#[derive(Clone, Debug)]
pub struct OpenApproval {
    /// The question that is asked.
    pub question: Arc<ApprovalQuestion>,
    /// The state, and every later one.
    pub state: watch::Receiver<ApprovalState>,
    /// When the question and the approval expire.
    pub until: Instant,
}

/// Why a question is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionLimit {
    /// Too many questions of the principal wait for an answer.
    #[error("too many questions of the caller wait for an answer")]
    Principal,
    /// The principal has asked too often about this server.
    #[error("the caller has asked too often about this server")]
    Window,
    /// There are too many questions, or their arguments are too long together.
    #[error("too many questions wait for an answer")]
    All,
    /// The question cannot be written to the file of approvals.
    #[error("questions cannot be kept")]
    Store,
}

/// Why an answer was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// There is no such question: it was never asked, or has expired or was withdrawn.
    #[error(
        "there is no such question: it was answered and used, has expired, or the configuration has changed"
    )]
    Unknown,
    /// It was answered before.
    #[error("the question was answered before")]
    Answered,
    /// The answer could not be recorded, so it has no effect.
    #[error("the answer cannot be recorded")]
    Unrecorded,
}

/// Keeps questions and approvals. An implementation that several gateways share has to spend each approval once among
/// all of them.
pub trait ApprovalStore: fmt::Debug + Send + Sync {
    /// Whether changes wait for a disk.
    fn waits_for_disk(&self) -> bool {
        false
    }

    /// Whether the last change could not be kept, so that calls that need an approval are not made.
    fn is_failing(&self) -> bool {
        false
    }

    /// The question of this call, if it was asked and has not expired.
    fn find(&self, binding: &ApprovalBinding, now: Instant) -> Option<OpenApproval>;

    /// Keeps a new question within the bounds of `settings`. If the call has one already, that one is returned, and the
    /// new one is dropped.
    ///
    /// # Errors
    /// The bound that was reached; then nothing is kept.
    fn ask(
        &self,
        question: ApprovalQuestion,
        settings: &ApprovalSettings,
        now: Instant,
    ) -> Result<KeptQuestion, QuestionLimit>;

    /// Every question, in the order in which they were asked.
    fn all(&self, now: Instant) -> Vec<OpenApproval>;

    /// The question with this id.
    fn get(&self, id: &ApprovalId, now: Instant) -> Option<OpenApproval>;

    /// Answers a question that waits. `is_wanted` is asked once, just before the answer takes effect: if it is not
    /// wanted any more, it has none ([`AnswerError::Unrecorded`]).
    ///
    /// # Errors
    /// If there is no such question, or it was answered, or the answer has no effect.
    fn answer(
        &self,
        id: &ApprovalId,
        verdict: ApprovalVerdict,
        now: Instant,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), AnswerError>;

    /// Removes an approval so that a call can be made with it. Returns whether there was one: exactly one caller gets
    /// `true` for it.
    fn spend(&self, id: &ApprovalId, binding: &ApprovalBinding, now: Instant) -> bool;

    /// Removes the questions that have expired or that `is_withdrawn` selects; those and their former state are
    /// returned.
    fn remove(
        &self,
        now: Instant,
        is_withdrawn: &dyn Fn(&ApprovalQuestion) -> bool,
    ) -> Vec<RemovedQuestion>;
}

/// A question that is kept, and whether it is new.
#[derive(Clone, Debug)]
pub struct KeptQuestion {
    /// The question.
    pub open: OpenApproval,
    /// Whether it was kept by this call.
    pub is_new: bool,
}

/// A question that was removed before a call was made with it.
#[derive(Clone, Debug)]
pub struct RemovedQuestion {
    /// The question.
    pub question: Arc<ApprovalQuestion>,
    /// The state that it had.
    pub state: ApprovalState,
    /// Why it was removed.
    pub step: ApprovalStep,
}

/// Proof that a person approved a call, and that no other call has used the approval. Only [`Approvals::spend`] makes
/// one, and it cannot be copied.
#[derive(Debug)]
#[must_use = "an approval that is not used is lost"]
pub struct SpentApproval(());

/// The approvals of the process: the store, and the records and metrics of what happens to each.
#[derive(Debug)]
pub struct Approvals {
    store: Box<dyn ApprovalStore>,
    journal: Arc<Journal>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// Random bytes of the process.
    process: [u8; 32],
    /// Held while a question is answered or removed, so that the records tell what happened.
    changing: Mutex<()>,
    /// Changes that wait for a disk.
    changes: StoreChanges,
    /// Calls that a server has interrupted with questions of its own, by the digest of the state that their client carries.
    interrupted: BoundedMap<[u8; 32], InterruptedCall>,
}

/// What was approved of a call that waits for its client, so that it is continued without another approval.
#[derive(Clone, Debug)]
struct InterruptedCall {
    demand: ApprovalDemand,
    until: Instant,
}

/// Whose changes those of operators are, in the queue for the disk. No principal has this name.
const OPERATORS: &str = "";

/// Most interrupted calls that are remembered; what is forgotten needs an approval again.
const INTERRUPTED: usize = 1000;

impl Approvals {
    /// Approvals that are kept in `store`.
    #[must_use]
    pub fn new(
        store: Box<dyn ApprovalStore>,
        journal: Arc<Journal>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        process: [u8; 32],
    ) -> Self {
        let all = store.all(clock.instant());
        let waiting = all.iter().filter(|open| *open.state.borrow() == ApprovalState::Waiting);
        metrics.approvals_waiting.fetch_add(waiting.count() as u64, Ordering::AcqRel);
        Self {
            store,
            journal,
            metrics,
            clock,
            process,
            changing: Mutex::default(),
            changes: StoreChanges::default(),
            interrupted: BoundedMap::new(INTERRUPTED),
        }
    }

    /// What approvals are bound to that flow control asks for: random bytes of the process.
    #[must_use]
    pub const fn process(&self) -> &[u8; 32] {
        &self.process
    }

    /// The question of this call, if it was asked and has not expired.
    #[must_use]
    pub fn find(&self, binding: &ApprovalBinding) -> Option<OpenApproval> {
        self.store.find(binding, self.clock.instant())
    }

    /// Asks a question, and records that.
    ///
    /// # Errors
    /// If a bound is reached, or the question cannot be kept or recorded; then nobody is asked.
    pub async fn ask(
        self: &Arc<Self>,
        question: ApprovalQuestion,
        settings: &ApprovalSettings,
    ) -> Result<KeptQuestion, AskError> {
        let (by, settings) = (question.principal.clone(), *settings);
        let asked = self.changed(&by, move |own| own.asked(question, &settings)).await;
        asked.unwrap_or(Err(AskError::Limit(QuestionLimit::Store)))
    }

    fn asked(
        &self,
        question: ApprovalQuestion,
        settings: &ApprovalSettings,
    ) -> Result<KeptQuestion, AskError> {
        let now = self.clock.instant();
        let kept = self.store.ask(question, settings, now).map_err(AskError::Limit)?;
        if !kept.is_new {
            return Ok(kept);
        }
        self.metrics.approvals_waiting.fetch_add(1, Ordering::AcqRel);
        let asked = &kept.open.question;
        if let Err(error) = self.journal.record_approval(event(asked, ApprovalStep::Asked, None)) {
            let id = asked.id.clone();
            self.remove(&|question| question.id == id);
            return Err(AskError::Unrecorded(error));
        }
        self.metrics.approval(ApprovalStep::Asked);
        tracing::info!(
            event = "approval.asked", approval = %asked.id, principal = %asked.principal,
            server = %asked.server, tool = %asked.tool, rule = %asked.rule,
            "a call waits for the approval of a person"
        );
        Ok(kept)
    }

    /// Every question, in the order in which they were asked.
    #[must_use]
    pub fn all(&self) -> Vec<OpenApproval> {
        self.store.all(self.clock.instant())
    }

    /// The question with this id.
    #[must_use]
    pub fn get(&self, id: &ApprovalId) -> Option<OpenApproval> {
        self.store.get(id, self.clock.instant())
    }

    /// Answers a question, and records who did. An approval that cannot be recorded has no effect; a denial has.
    ///
    /// # Errors
    /// If there is no such question, if it was answered, or if the answer cannot be recorded or kept in time.
    pub async fn answer(
        self: &Arc<Self>,
        id: &ApprovalId,
        answer: ApprovalAnswer,
    ) -> Result<(), AnswerError> {
        let by = match answer.source {
            AnswerSource::Operator => OPERATORS.into(),
            AnswerSource::Client => {
                self.get(id).ok_or(AnswerError::Unknown)?.question.principal.clone()
            }
        };
        let (fate, id) = (Arc::new(AnswerFate::default()), id.clone());
        let decided = Arc::clone(&fate);
        let answered = move |own: &Self| own.answered(&id, &answer, &|| decided.decide());
        match self.changed(&by, answered).await {
            Ok(answered) => answered,
            Err(_) if fate.decide() => Err(AnswerError::Unrecorded),
            // It is in force, and what is late is what follows.
            Err(_) => Ok(()),
        }
    }

    /// Runs a change of the store that `by` needs: at once, or, if it waits for a disk, in its turn and beside the threads
    /// that serve requests.
    async fn changed<T: Send + 'static>(
        self: &Arc<Self>,
        by: &str,
        change: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, FileTaskError> {
        if !self.store.waits_for_disk() {
            return Ok(self.change(change));
        }
        let own = Arc::clone(self);
        let changed = self.changes.run(by, move || own.change(change)).await;
        if let Err(error) = &changed {
            // The next change that ends says whether the store is usable again.
            self.metrics.approvals_usable.store(0, Ordering::Relaxed);
            tracing::error!(
                event = "approval.unkept", %error, effect = "calls that need an approval are not made",
                "the file of approvals cannot be written"
            );
        }
        changed
    }

    fn change<T>(&self, change: impl FnOnce(&Self) -> T) -> T {
        let changed = change(self);
        let usable = u64::from(!self.store.is_failing());
        self.metrics.approvals_usable.store(usable, Ordering::Relaxed);
        changed
    }

    fn answered(
        &self,
        id: &ApprovalId,
        answer: &ApprovalAnswer,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), AnswerError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.instant();
        let open = self.store.get(id, now).ok_or(AnswerError::Unknown)?;
        if *open.state.borrow() != ApprovalState::Waiting {
            return Err(AnswerError::Answered);
        }
        let step = answer.verdict.step();
        let recorded = self.journal.record_approval(event(&open.question, step, Some(answer)));
        if let Err(error) = recorded {
            self.journal.log_lost(&error, LostRecord::Event);
            if answer.verdict == ApprovalVerdict::Approve {
                return Err(AnswerError::Unrecorded);
            }
        }
        if let Err(error) = self.store.answer(id, answer.verdict, now, is_wanted) {
            // The record says that it was answered, so it must not wait any longer.
            self.withdraw(&|question| question.id == *id);
            return Err(error);
        }
        self.metrics.approvals_waiting.fetch_sub(1, Ordering::AcqRel);
        self.metrics.approval(step);
        let source = answer.source.as_str();
        tracing::info!(
            event = "approval.answered", approval = %id, step = step.as_str(), source,
            "a person answered whether a call may be made"
        );
        Ok(())
    }

    /// Uses the approval of a call; `None` if another call has used it.
    ///
    /// # Errors
    /// If the file does not know in time that it was used. It is not used later either.
    pub async fn spend(
        self: &Arc<Self>,
        question: &ApprovalQuestion,
        binding: &ApprovalBinding,
    ) -> Result<Option<SpentApproval>, QuestionLimit> {
        let (id, binding) = (question.id.clone(), binding.clone());
        let spend = move |own: &Self| own.store.spend(&id, &binding, own.clock.instant());
        match self.changed(&question.principal, spend).await {
            Ok(is_spent) => Ok(is_spent.then_some(SpentApproval(()))),
            Err(_) => Err(QuestionLimit::Store),
        }
    }

    /// Remembers what was approved of a call that waits for its client, which carries `state`, until `until`.
    pub fn interrupt(&self, state: &str, demand: &ApprovalDemand, until: Instant) {
        let call = InterruptedCall { demand: demand.clone(), until };
        // What finds no room needs an approval again.
        drop(self.interrupted.insert(sha256(state.as_bytes()), call));
    }

    /// What was approved of the call that is continued with `state`, once.
    #[must_use]
    pub fn resume(&self, state: &str) -> Option<(ApprovalDemand, SpentApproval)> {
        let InterruptedCall { demand, until } =
            self.interrupted.remove(&sha256(state.as_bytes()))?;
        (self.clock.instant() < until).then_some((demand, SpentApproval(())))
    }

    /// Removes questions that have expired or belong to another configuration than `config_digest`.
    pub fn sweep(self: &Arc<Self>, config_digest: &str) {
        let now = self.clock.instant();
        self.interrupted.retain(|_, call| now < call.until);
        let (own, config_digest): (_, Box<str>) = (Arc::clone(self), config_digest.into());
        let sweep = move || {
            own.change(|own| own.remove(&|question| *question.config_digest != *config_digest));
        };
        match Handle::try_current() {
            Ok(served) if self.store.waits_for_disk() => {
                let own = Arc::clone(self);
                drop(served.spawn(async move { own.changes.run_if_idle(sweep).await }));
            }
            Ok(_) | Err(_) => sweep(),
        }
    }

    /// Removes questions that have expired, after the time of `question`.
    pub async fn expire(self: &Arc<Self>, question: &ApprovalQuestion) {
        // A sweep does what cannot be done now.
        self.changed(&question.principal, |own| own.remove(&|_| false)).await.unwrap_or_default();
    }

    fn remove(&self, is_withdrawn: &dyn Fn(&ApprovalQuestion) -> bool) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.withdraw(is_withdrawn);
    }

    /// Removes questions; the caller holds `changing`.
    fn withdraw(&self, is_withdrawn: &dyn Fn(&ApprovalQuestion) -> bool) {
        for removed in self.store.remove(self.clock.instant(), is_withdrawn) {
            let RemovedQuestion { question, state, step } = removed;
            match state {
                ApprovalState::Waiting => {
                    self.metrics.approvals_waiting.fetch_sub(1, Ordering::AcqRel);
                }
                ApprovalState::Approved => {}
                // The end of a question that was denied is no news.
                ApprovalState::Denied | ApprovalState::Over => continue,
            }
            self.metrics.approval(step);
            if let Err(error) = self.journal.record_approval(event(&question, step, None)) {
                self.journal.log_lost(&error, LostRecord::Event);
            }
        }
    }
}

/// Why a call that needs an approval is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalFailure {
    /// A person denied it.
    Denied,
    /// Nobody answered in time.
    Timeout,
    /// A bound on questions is reached.
    Limit(QuestionLimit),
    /// The arguments are too long for a question.
    Size,
    /// The call, its flow, the definition or the policy changed after the question.
    Changed,
    /// The gateway stops, or another configuration takes over.
    Interrupted,
    /// The client has cancelled the request, or is gone.
    Cancelled,
}

impl ApprovalFailure {
    /// The reason code of the denial.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Denied => "approval-denied",
            Self::Timeout => "approval-timeout",
            Self::Limit(_) => "approval-limit",
            Self::Size => "approval-size",
            Self::Changed => "approval-changed",
            Self::Interrupted | Self::Cancelled => "approval-interrupted",
        }
    }

    /// What happened, as a clause for clients.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::Denied => "a person was asked and did not approve this call",
            Self::Timeout => "a person has to approve this call, and nobody answered in time",
            Self::Limit(_) => {
                "a person has to approve this call, and too many questions wait for an answer or were asked lately"
            }
            Self::Size => {
                "a person has to approve this call, and its arguments are too long to be shown to one"
            }
            Self::Changed => "what a person approved is no longer what would be done",
            Self::Interrupted | Self::Cancelled => {
                "a person has to approve this call, and the wait for the answer was interrupted"
            }
        }
    }
}

/// Why nobody was asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A bound was reached.
    #[error("a limit of questions is reached")]
    Limit(#[source] QuestionLimit),
    /// The question cannot be recorded.
    #[error("the question cannot be recorded")]
    Unrecorded(#[source] AuditError),
}

/// The record of a step.
fn event<'a>(
    question: &'a ApprovalQuestion,
    step: ApprovalStep,
    answer: Option<&'a ApprovalAnswer>,
) -> ApprovalEvent<'a> {
    ApprovalEvent {
        id: question.id.as_str(),
        step,
        argument_digest: &question.argument_digest,
        principal: &question.principal,
        rule: &question.rule,
        server: &question.server,
        tool: &question.tool,
        source: answer.map(|answer| answer.source.as_str()),
        by: answer.and_then(|answer| answer.by.as_deref()),
        reason: answer.and_then(|answer| answer.reason.as_deref()),
    }
}

#[cfg(test)]
mod tests;
