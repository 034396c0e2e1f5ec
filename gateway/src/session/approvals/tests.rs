//! Approvals whose store waits for a disk that is slow.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use audit_log::note::NoteSigner;
use bytes::Bytes;

use super::changes::StoreChanges;
use super::memory::tests::{SETTINGS, question};
use super::{
    AnswerError, AnswerSource, ApprovalAnswer, ApprovalBinding, ApprovalId, ApprovalQuestion,
    ApprovalStore, ApprovalVerdict, Approvals, AskError, KeptQuestion, MemoryApprovals,
    OpenApproval, QuestionLimit, RemovedQuestion,
};
use crate::audit::{AuditSink, CheckpointPolicy, Journal, JournalParts, SinkSlot};
use crate::base::clock::{Clock, HandClock};
use crate::config::settings::{ApprovalSettings, RefusalSettings, SpoolOverflow};
use crate::metrics::Metrics;

/// How long the approvals of these tests wait for the disk.
const PATIENCE: Duration = Duration::from_millis(50);

/// A log that takes everything.
#[derive(Debug)]
struct Taken;

impl AuditSink for Taken {
    fn name(&self) -> &'static str {
        "taken"
    }

    fn append(&mut self, _line: &Bytes) -> io::Result<()> {
        Ok(())
    }
}

/// When a change hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hangs {
    /// Before it has an effect.
    Before,
    /// When it is in force.
    After,
}

/// A store on a disk that does not answer until it is told to, for as long as `hangs` has a value.
#[derive(Debug)]
struct SlowStore {
    memory: MemoryApprovals,
    hangs: Arc<Mutex<Option<Hangs>>>,
    go: Mutex<Receiver<()>>,
}

impl SlowStore {
    fn wait(&self, at: Hangs) {
        if *self.hangs.lock().unwrap() == Some(at) {
            // A thread that must not wait here goes on in the end, and the test fails.
            let limit = Duration::from_secs(10);
            self.go.lock().unwrap().recv_timeout(limit).unwrap_or_default();
        }
    }

    fn change<T>(&self, change: impl FnOnce(&MemoryApprovals) -> T) -> T {
        self.wait(Hangs::Before);
        let changed = change(&self.memory);
        self.wait(Hangs::After);
        changed
    }
}

impl ApprovalStore for SlowStore {
    fn waits_for_disk(&self) -> bool {
        true
    }

    fn find(&self, binding: &ApprovalBinding, now: Instant) -> Option<OpenApproval> {
        self.memory.find(binding, now)
    }

    fn ask(
        &self,
        question: ApprovalQuestion,
        settings: &ApprovalSettings,
        now: Instant,
    ) -> Result<KeptQuestion, QuestionLimit> {
        self.change(|memory| memory.ask(question, settings, now))
    }

    fn all(&self, now: Instant) -> Vec<OpenApproval> {
        self.memory.all(now)
    }

    fn get(&self, id: &ApprovalId, now: Instant) -> Option<OpenApproval> {
        self.memory.get(id, now)
    }

    fn answer(
        &self,
        id: &ApprovalId,
        verdict: ApprovalVerdict,
        now: Instant,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), AnswerError> {
        self.change(|memory| memory.answer(id, verdict, now, is_wanted))
    }

    fn spend(&self, id: &ApprovalId, binding: &ApprovalBinding, now: Instant) -> bool {
        self.change(|memory| memory.spend(id, binding, now))
    }

    fn remove(
        &self,
        now: Instant,
        is_withdrawn: &dyn Fn(&ApprovalQuestion) -> bool,
    ) -> Vec<RemovedQuestion> {
        self.memory.remove(now, is_withdrawn)
    }
}

/// Approvals on such a disk, and what controls the disk.
struct Fixture {
    approvals: Arc<Approvals>,
    hangs: Arc<Mutex<Option<Hangs>>>,
    go: Sender<()>,
}

impl Fixture {
    fn new() -> Self {
        let clock = HandClock::new();
        let sink = Box::new(Taken);
        let slot = SinkSlot { sink, full: SpoolOverflow::Deny, missing: None, begun: false };
        let parts = JournalParts {
            sinks: vec![slot],
            resumed: None,
            checkpoints: CheckpointPolicy {
                signer: NoteSigner::generate("test").unwrap(),
                records: 1000,
                interval: Duration::from_secs(3600),
            },
            checkpoint_file: None,
            volume: |_| None,
            config_digest: "sha256:0".to_owned(),
            digest_key: None,
            refusals: RefusalSettings::default(),
            observers: Vec::new(),
        };
        let metrics = Arc::new(Metrics::new(SystemTime::UNIX_EPOCH));
        let read: Arc<dyn Clock> = clock;
        let journal = Journal::new(parts, Arc::clone(&read), Arc::clone(&metrics)).unwrap();
        let (go, told) = channel();
        let hangs = Arc::<Mutex<Option<Hangs>>>::default();
        let store = SlowStore {
            memory: MemoryApprovals::default(),
            hangs: Arc::clone(&hangs),
            go: Mutex::new(told),
        };
        let journal = Arc::new(journal);
        let approvals = Approvals::new(Box::new(store), journal, metrics, read, [0; 32]);
        let approvals = Approvals { changes: StoreChanges::within(PATIENCE), ..approvals };
        Self { approvals: Arc::new(approvals), hangs, go }
    }

    fn hang(&self, at: Option<Hangs>) {
        *self.hangs.lock().unwrap() = at;
    }

    /// Lets what hangs go on, and waits until the disk takes a change again.
    async fn go_on(&self) {
        self.hang(None);
        self.go.send(()).unwrap();
        while self.approvals.changes.run("somebody", || ()).await.is_err() {}
    }

    async fn asked(&self, who: &str) -> OpenApproval {
        self.approvals.ask(question(who, "mail", "send"), &SETTINGS).await.unwrap().open
    }

    async fn approve(&self, open: &OpenApproval) -> Result<(), AnswerError> {
        let answer = ApprovalAnswer {
            verdict: ApprovalVerdict::Approve,
            source: AnswerSource::Operator,
            by: None,
            reason: None,
        };
        self.approvals.answer(&open.question.id, answer).await
    }

    fn usable(&self) -> u64 {
        self.approvals.metrics.approvals_usable.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_question_that_the_disk_does_not_take_is_not_asked_and_delays_nobody() {
    let fixture = Fixture::new();
    fixture.hang(Some(Hangs::Before));
    let ask = fixture.approvals.ask(question("ana", "mail", "send"), &SETTINGS);
    // Both are on one thread.
    let (asked, served) = tokio::join!(ask, async { 7 });
    assert!(matches!(asked, Err(AskError::Limit(QuestionLimit::Store))), "{asked:?}");
    assert_eq!((served, fixture.usable()), (7, 0));
    fixture.go_on().await;
    drop(fixture.asked("bob").await);
    assert_eq!(fixture.usable(), 1);
}

#[tokio::test]
async fn an_answer_that_was_given_up_is_never_in_force_and_one_in_force_is_not_given_up() {
    for at in [Hangs::Before, Hangs::After] {
        let fixture = Fixture::new();
        let open = fixture.asked("ana").await;
        fixture.hang(Some(at));
        let answered = fixture.approve(&open).await;
        fixture.go_on().await;
        let binding = &open.question.binding;
        let spent = fixture.approvals.spend(&open.question, binding).await.unwrap();
        match at {
            Hangs::Before => {
                assert_eq!(answered, Err(AnswerError::Unrecorded));
                assert!(spent.is_none());
            }
            Hangs::After => {
                assert_eq!(answered, Ok(()));
                assert!(spent.is_some());
            }
        }
    }
}

#[tokio::test]
async fn an_approval_whose_use_the_disk_does_not_take_is_used_neither_then_nor_later() {
    let fixture = Fixture::new();
    let open = fixture.asked("ana").await;
    fixture.approve(&open).await.unwrap();
    fixture.hang(Some(Hangs::Before));
    let binding = &open.question.binding;
    let spent = fixture.approvals.spend(&open.question, binding).await;
    assert!(matches!(spent, Err(QuestionLimit::Store)), "{spent:?}");
    fixture.go_on().await;
    assert!(fixture.approvals.spend(&open.question, binding).await.unwrap().is_none());
}
