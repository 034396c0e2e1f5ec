//! Keeps questions and approvals in the memory of the process. They end with it, and a call that waited is denied.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::{
    AnswerError, ApprovalBinding, ApprovalId, ApprovalQuestion, ApprovalState, ApprovalStore,
    ApprovalVerdict, KeptQuestion, OpenApproval, QuestionLimit, RemovedQuestion,
};
use crate::base::gcra::{EventRate, Gcra};
use crate::config::settings::ApprovalSettings;
use crate::metrics::approval_step::ApprovalStep;

/// For how many times as many pairs of a principal and a server as there may be questions the rate is counted.
const COUNTED: usize = 4;

#[derive(Debug)]
struct KeptApproval {
    question: Arc<ApprovalQuestion>,
    state: watch::Sender<ApprovalState>,
    until: Instant,
    /// The number of the question, by which they are ordered.
    number: u64,
}

impl KeptApproval {
    fn open(&self) -> OpenApproval {
        let question = Arc::clone(&self.question);
        OpenApproval { question, state: self.state.subscribe(), until: self.until }
    }

    fn is(&self, state: &ApprovalState) -> bool {
        *self.state.borrow() == *state
    }

    fn lives(&self, now: Instant) -> bool {
        now < self.until
    }
}

#[derive(Debug, Default)]
struct ApprovalTable {
    kept: BTreeMap<ApprovalId, KeptApproval>,
    ids: HashMap<ApprovalBinding, ApprovalId>,
    /// The bytes of all questions.
    bytes: usize,
    /// How often each principal has asked about each server.
    asked: HashMap<(Box<str>, Box<str>), Gcra>,
    next: u64,
}

impl ApprovalTable {
    fn find(&self, binding: &ApprovalBinding, now: Instant) -> Option<&KeptApproval> {
        self.kept.get(self.ids.get(binding)?).filter(|kept| kept.lives(now))
    }

    fn keep(
        &mut self,
        question: ApprovalQuestion,
        state: ApprovalState,
        until: Instant,
    ) -> OpenApproval {
        let (id, binding) = (question.id.clone(), question.binding.clone());
        let number = self.next;
        self.next += 1;
        self.bytes = self.bytes.saturating_add(question.bytes());
        let (question, state) = (Arc::new(question), watch::Sender::new(state));
        let kept = KeptApproval { question, state, until, number };
        let open = kept.open();
        self.kept.insert(id.clone(), kept);
        self.ids.insert(binding, id);
        open
    }

    fn remove(&mut self, id: &ApprovalId) -> Option<KeptApproval> {
        let kept = self.kept.remove(id)?;
        if self.ids.get(&kept.question.binding) == Some(id) {
            self.ids.remove(&kept.question.binding);
        }
        self.bytes = self.bytes.saturating_sub(kept.question.bytes());
        Some(kept)
    }

    /// Checks the bounds for one more question, and counts it against the rate.
    fn check_bounds(
        &mut self,
        question: &ApprovalQuestion,
        settings: &ApprovalSettings,
        now: Instant,
    ) -> Result<(), QuestionLimit> {
        let bytes = self.bytes.saturating_add(question.bytes());
        if self.kept.len() >= settings.open || bytes > settings.memory {
            return Err(QuestionLimit::All);
        }
        let is_own = |kept: &&KeptApproval| {
            kept.question.principal == question.principal && kept.is(&ApprovalState::Waiting)
        };
        if self.kept.values().filter(is_own).count() >= settings.per_principal {
            return Err(QuestionLimit::Principal);
        }
        let rate = EventRate::new(settings.per_window, settings.window, settings.per_window);
        self.asked.retain(|_, asked| !asked.is_even(now));
        let key = (question.principal.clone(), question.server.clone());
        if self.asked.len() >= settings.open.saturating_mul(COUNTED)
            && !self.asked.contains_key(&key)
        {
            return Err(QuestionLimit::All);
        }
        let asked = self.asked.entry(key).or_default();
        asked.take(rate, now).map_err(|_wait| QuestionLimit::Window)
    }
}

/// Approvals in the memory of one process.
#[derive(Debug, Default)]
pub struct MemoryApprovals(Mutex<ApprovalTable>);

impl MemoryApprovals {
    fn table(&self) -> MutexGuard<'_, ApprovalTable> {
        // No operation leaves the table half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a question that nobody was asked.
    pub(super) fn forget(&self, id: &ApprovalId) {
        drop(self.table().remove(id));
    }

    /// Takes a question in that was asked before the process began. It was within the bounds of that time; new questions
    /// have to be within those of now.
    pub(super) fn restore(&self, question: ApprovalQuestion, state: ApprovalState, until: Instant) {
        self.table().keep(question, state, until);
    }
}

impl ApprovalStore for MemoryApprovals {
    fn find(&self, binding: &ApprovalBinding, now: Instant) -> Option<OpenApproval> {
        self.table().find(binding, now).map(KeptApproval::open)
    }

    fn ask(
        &self,
        question: ApprovalQuestion,
        settings: &ApprovalSettings,
        now: Instant,
    ) -> Result<KeptQuestion, QuestionLimit> {
        let mut table = self.table();
        if let Some(kept) = table.find(&question.binding, now) {
            return Ok(KeptQuestion { open: kept.open(), is_new: false });
        }
        table.check_bounds(&question, settings, now)?;
        let open = table.keep(question, ApprovalState::Waiting, now + settings.timeout);
        Ok(KeptQuestion { open, is_new: true })
    }

    fn all(&self, now: Instant) -> Vec<OpenApproval> {
        let table = self.table();
        let mut all: Vec<_> = table.kept.values().filter(|kept| kept.lives(now)).collect();
        all.sort_by_key(|kept| kept.number);
        all.into_iter().map(KeptApproval::open).collect()
    }

    fn get(&self, id: &ApprovalId, now: Instant) -> Option<OpenApproval> {
        self.table().kept.get(id).filter(|kept| kept.lives(now)).map(KeptApproval::open)
    }

    fn answer(
        &self,
        id: &ApprovalId,
        verdict: ApprovalVerdict,
        now: Instant,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), AnswerError> {
        let table = self.table();
        let kept = table.kept.get(id).filter(|kept| kept.lives(now));
        let kept = kept.ok_or(AnswerError::Unknown)?;
        if !kept.is(&ApprovalState::Waiting) {
            return Err(AnswerError::Answered);
        }
        if !is_wanted() {
            return Err(AnswerError::Unrecorded);
        }
        kept.state.send_replace(verdict.state());
        Ok(())
    }

    fn spend(&self, id: &ApprovalId, binding: &ApprovalBinding, now: Instant) -> bool {
        let mut table = self.table();
        let Some(kept) = table.kept.get(id) else { return false };
        let is_approved = kept.is(&ApprovalState::Approved);
        if !is_approved || !kept.lives(now) || kept.question.binding != *binding {
            return false;
        }
        if let Some(kept) = table.remove(id) {
            kept.state.send_replace(ApprovalState::Over);
        }
        true
    }

    fn remove(
        &self,
        now: Instant,
        is_withdrawn: &dyn Fn(&ApprovalQuestion) -> bool,
    ) -> Vec<RemovedQuestion> {
        let mut table = self.table();
        let step = |kept: &KeptApproval| match kept.lives(now) {
            false => Some(ApprovalStep::Expired),
            true => is_withdrawn(&kept.question).then_some(ApprovalStep::Withdrawn),
        };
        let due = table.kept.iter().filter_map(|(id, kept)| Some((id.clone(), step(kept)?)));
        let due: Vec<_> = due.collect();
        let mut removed = Vec::with_capacity(due.len());
        for (id, step) in due {
            let Some(kept) = table.remove(&id) else { continue };
            let state = kept.state.send_replace(ApprovalState::Over);
            removed.push(RemovedQuestion { question: kept.question, state, step });
        }
        removed
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant, UNIX_EPOCH};

    use policy::flow::label::FlowLabels;
    use policy::rules::approval::{ApprovalCause, ApprovalDemand};
    use policy_core::subject::name::{PrincipalId, RuleId, ServerName};
    use policy_core::subject::principal::Principal;

    use super::super::BoundCall;
    use super::{
        AnswerError, ApprovalId, ApprovalQuestion, ApprovalState, ApprovalStep, ApprovalStore,
        ApprovalVerdict, MemoryApprovals, QuestionLimit,
    };
    use crate::config::settings::ApprovalSettings;
    use policy::engine::message::{ItemRequest, RequestOperation};

    pub(in crate::session::approvals) const SETTINGS: ApprovalSettings = ApprovalSettings {
        asks_client: false,
        asks_operator: true,
        timeout: Duration::from_secs(60),
        per_principal: 3,
        window: Duration::from_secs(600),
        per_window: 4,
        open: 5,
        memory: 1000,
        argument_bytes: 100,
    };

    pub(in crate::session::approvals) fn question(
        principal: &str,
        server: &str,
        tool: &str,
    ) -> ApprovalQuestion {
        let who = Principal::new(PrincipalId::parse(principal).unwrap(), [].into());
        let call =
            ItemRequest::bare(&ServerName::parse(server).unwrap(), RequestOperation::Call, tool);
        let demand = ApprovalDemand {
            rule: RuleId::parse("writes").unwrap(),
            causes: vec![ApprovalCause::Rule],
            definition: None,
            labels: FlowLabels::default(),
            origins: Vec::new(),
        };
        let bound = BoundCall {
            principal: &who,
            call: &call,
            unasked: None,
            flow: None,
            demand: &demand,
            config_digest: "",
            process: None,
        };
        ApprovalQuestion {
            id: ApprovalId::new().unwrap(),
            binding: bound.binding(),
            principal: principal.into(),
            client: None,
            server: server.into(),
            tool: tool.into(),
            rule: "writes".into(),
            causes: vec!["rule"],
            arguments: "{}".into(),
            extra: "".into(),
            argument_digest: "".into(),
            definition: None,
            violation: None,
            labels: FlowLabels::default(),
            origins: Vec::new(),
            asked: UNIX_EPOCH,
            expires: UNIX_EPOCH,
            config_digest: "".into(),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn an_approval_is_spent_once_in_its_time_by_the_call_that_it_is_of() {
        let (store, now) = (MemoryApprovals::default(), start());
        let asked = question("ana", "mail", "send");
        let (id, binding) = (asked.id.clone(), asked.binding.clone());
        let other = question("ana", "mail", "remove").binding;
        let open = store.ask(asked, &SETTINGS, now).unwrap().open;
        assert!(!store.spend(&id, &binding, now), "nobody has answered");
        store.answer(&id, ApprovalVerdict::Approve, now, &|| true).unwrap();
        assert_eq!(*open.state.borrow(), ApprovalState::Approved);
        assert_eq!(
            store.answer(&id, ApprovalVerdict::Deny, now, &|| true),
            Err(AnswerError::Answered),
            "an answer stands"
        );
        assert!(!store.spend(&id, &other, now));
        assert!(!store.spend(&id, &binding, now + SETTINGS.timeout));
        assert!(store.spend(&id, &binding, now));
        assert!(!store.spend(&id, &binding, now), "spent");
        assert_eq!(*open.state.borrow(), ApprovalState::Over);
        assert!(store.find(&binding, now).is_none() && store.get(&id, now).is_none());
    }

    #[test]
    fn the_same_call_joins_its_question_and_what_was_denied_stays_so() {
        let (store, now) = (MemoryApprovals::default(), start());
        let first = store.ask(question("ana", "mail", "send"), &SETTINGS, now).unwrap();
        let again = store.ask(question("ana", "mail", "send"), &SETTINGS, now).unwrap();
        assert!(first.is_new && !again.is_new);
        assert_eq!(first.open.question.id, again.open.question.id);
        store.answer(&first.open.question.id, ApprovalVerdict::Deny, now, &|| true).unwrap();
        let found = store.find(&first.open.question.binding, now).unwrap();
        assert_eq!(*found.state.borrow(), ApprovalState::Denied);
        let later = now + SETTINGS.timeout;
        assert!(store.find(&first.open.question.binding, later).is_none());
        let removed = store.remove(later, &|_| false);
        assert_eq!(removed.len(), 1);
        assert_eq!(
            (removed[0].step, &removed[0].state),
            (ApprovalStep::Expired, &ApprovalState::Denied)
        );
    }

    #[test]
    fn each_bound_refuses() {
        let (store, now) = (MemoryApprovals::default(), start());
        let ask = |who: &str, server: &str, tool: &str| {
            store.ask(question(who, server, tool), &SETTINGS, now).map(|kept| kept.open.question)
        };
        let first = ask("ana", "mail", "a").unwrap();
        ask("ana", "mail", "b").unwrap();
        ask("ana", "chat", "c").unwrap();
        assert_eq!(ask("ana", "chat", "d").unwrap_err(), QuestionLimit::Principal);
        // One that was answered waits no longer.
        store.answer(&first.id, ApprovalVerdict::Deny, now, &|| true).unwrap();
        ask("ana", "mail", "d").unwrap();
        ask("bob", "mail", "e").unwrap();
        assert_eq!(ask("eve", "mail", "f").unwrap_err(), QuestionLimit::All);
        store.remove(now, &|_| true);
        ask("ana", "mail", "g").unwrap();
        assert_eq!(ask("ana", "mail", "h").unwrap_err(), QuestionLimit::Window);
        let long =
            ApprovalQuestion { arguments: "x".repeat(1000).into(), ..question("bob", "mail", "i") };
        assert_eq!(store.ask(long, &SETTINGS, now).unwrap_err(), QuestionLimit::All);
    }
}
