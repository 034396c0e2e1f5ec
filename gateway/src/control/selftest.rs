//! The gateway attacks itself: the configuration in force, through its own exchanges, with a server of its
//! own behind it. What is configured and does not run, and what runs and does not hold, is told.
//!
//! Nothing here knows how a control works. An attack is sent as a client would send it, and what counts
//! is what comes back, what arrived at the server, and what was put on record.

mod attacks;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use policy::control::{Control, Ran};
use policy::inspect::Detector;
use serde_json::json;

use crate::audit::{Journal, Observer, Record};
use crate::base::clock::Clock;
use crate::base::task::Tasks;
use crate::config::settings::selftest::Selftest;
use crate::metrics::Metrics;
use crate::metrics::outcome::Ending;
use crate::serve::generation::{Generation, Live};

use attacks::Attacker;

/// How often it is looked whether the configuration is another one.
const TURN: Duration = Duration::from_secs(1);
/// After how long what did not hold is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What became of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was stopped.
    Held,
    /// It was let through and is on record, as the configuration wants it.
    Recorded,
    /// Nothing was asked: it is switched off, or it does not run.
    Off,
    /// It got through.
    Failed,
}

impl Verdict {
    /// In a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Recorded => "recorded",
            Self::Off => "off",
            Self::Failed => "failed",
        }
    }
}

/// One attack and what became of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// What has to stop it; none for what the self-test itself needs.
    pub control: Option<Control>,
    /// What it is.
    pub attack: String,
    /// What became of it.
    pub verdict: Verdict,
    /// What was seen, in words.
    pub note: String,
    /// What it cost in the gateway.
    pub took: Duration,
    /// The configuration says that it need not hold.
    pub excepted: bool,
}

impl Row {
    /// Its name: that of the control, and of the attack.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.control.map_or("selftest", Control::as_str), self.attack)
    }

    /// Whether it is as it should be.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.excepted || matches!(self.verdict, Verdict::Held | Verdict::Recorded)
    }
}

/// What came of all attacks on one configuration.
#[derive(Clone, Debug)]
pub struct Report {
    /// When.
    pub at: SystemTime,
    /// The configuration: its digest.
    pub configuration: Arc<str>,
    /// The attacks.
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether everything holds.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(Row::is_good)
    }

    /// What does not hold, by name.
    #[must_use]
    pub fn bad(&self) -> Vec<String> {
        self.rows.iter().filter(|row| !row.is_good()).map(Row::name).collect()
    }

    /// All of it as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let row = |row: &Row| {
            json!({ "name": row.name(), "verdict": row.verdict.as_str(), "note": row.note,
                "excepted": row.excepted, "gatewayMicros": u64::try_from(row.took.as_micros()).unwrap_or(u64::MAX) })
        };
        let at = humantime::format_rfc3339_millis(self.at).to_string();
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let whole = json!({ "passed": self.is_good(), "at": at, "configuration": &*self.configuration, "attacks": rows });
        format!("{whole}\n")
    }
}

/// What is seen of one exchange when it ends.
#[derive(Clone, Debug)]
struct Seen {
    ran: Ran,
    reason: Option<&'static str>,
    found: Vec<Detector>,
    gateway: Duration,
}

/// Sees how the exchanges of the self-test end.
#[derive(Clone, Debug, Default)]
struct Witness(Arc<Mutex<Vec<Seen>>>);

impl Witness {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Witness {
    fn ended(&self, record: &Record, ending: Ending, now: Instant) {
        // No connection comes from port 0.
        if record.peer.port() != 0 {
            return;
        }
        let decided = record.decision().into_iter().flat_map(|decision| &decision.findings);
        let found = decided.chain(&record.found).map(|finding| finding.detector).collect();
        let total = now.saturating_duration_since(record.started);
        let gateway = total.saturating_sub(record.upstream);
        let reason = ending.reason.or_else(|| record.reason());
        self.seen().push(Seen { ran: record.asked(), reason, found, gateway });
    }
}

/// Which configuration was attacked: one that says the same may be another.
#[derive(Debug)]
struct Of(Weak<Generation>);

impl Of {
    fn is(&self, generation: &Arc<Generation>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(generation))
    }
}

/// Who attacks, when, and what came of it last.
#[derive(Debug)]
pub struct Tester {
    live: Arc<Live>,
    journal: Arc<Journal>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<(Of, Report)>>,
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Tester {
    /// One for the configurations that are in force here.
    #[must_use]
    pub fn new(
        live: Arc<Live>,
        journal: Arc<Journal>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let turn = tokio::sync::Mutex::new(());
        Self { live, journal, metrics, clock, last: Mutex::new(None), turn }
    }

    /// What keeps the gateway from being ready, if anything does.
    #[must_use]
    pub fn hindrance(&self) -> Option<String> {
        let now = self.live.now();
        now.selftest.as_ref().filter(|selftest| selftest.gates)?;
        match &*self.last() {
            Some((of, report)) if of.is(&now) && report.is_good() => None,
            Some((of, report)) if of.is(&now) => Some(report.bad().join(", ")),
            Some(_) | None => Some("under way".to_owned()),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<(Of, Report)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attacks whatever is in force, when it is first in force and as often as it says.
    pub async fn tend(self: Arc<Self>, tasks: Tasks) {
        let mut turn = tokio::time::interval(TURN);
        loop {
            tokio::select! {
                _ = turn.tick() => {}
                () = tasks.halting() => return,
            }
            let now = self.live.now();
            let Some(selftest) = &now.selftest else { continue };
            let due = match &*self.last() {
                Some((of, report)) if of.is(&now) => {
                    let age = self.clock.now().duration_since(report.at).unwrap_or_default();
                    // What could not be tried, or was not itself, is tried again soon.
                    let every = if report.is_good() { selftest.every } else { Some(AGAIN) };
                    every.is_some_and(|every| age >= every)
                }
                Some(_) | None => true,
            };
            drop(now);
            if due {
                // What came of it was told.
                drop(self.run().await);
            }
        }
    }

    /// Attacks what is in force now; `None` where that is not wanted.
    pub async fn run(&self) -> Option<Report> {
        let _turn = self.turn.lock().await;
        let now = self.live.now();
        let selftest = now.selftest.clone()?;
        let witness = Witness::default();
        self.journal.watched_by(Some(Box::new(witness.clone())));
        let rows = tokio::time::timeout(LIMIT, self.attack(&now, &selftest, witness)).await;
        self.journal.watched_by(None);
        let mut rows = rows.unwrap_or_else(|_late| vec![broken("it took longer than a minute")]);
        for row in &mut rows {
            let name = row.name();
            let of_control = row.control.map_or("", Control::as_str);
            let named = |except: &String| *except == name || except == of_control;
            row.excepted = selftest.except.iter().any(named);
        }
        let configuration = Arc::clone(&now.gateway.configuration);
        let report = Report { at: self.clock.now(), configuration, rows };
        self.tell(&report);
        *self.last() = Some((Of(Arc::downgrade(&now)), report.clone()));
        Some(report)
    }

    async fn attack(
        &self,
        now: &Arc<Generation>,
        selftest: &Selftest,
        witness: Witness,
    ) -> Vec<Row> {
        let before = self.journal.accounted();
        let attacker = Attacker::new(Arc::clone(now), selftest, witness.clone());
        let Some(attacker) = attacker else { return vec![broken("its server has no name")] };
        let mut rows = attacker.attack().await;
        // Every exchange has to be on record, and records have to be taken.
        let (sent, seen) = (attacker.sent(), witness.seen().len());
        let grown = usize::try_from(self.journal.accounted() - before).unwrap_or(usize::MAX);
        let good = sent == seen && grown >= sent && self.journal.is_working();
        let verdict = if good { Verdict::Held } else { Verdict::Failed };
        let note = format!("{} of {sent} exchanges are on record", seen.min(grown));
        let (attack, took) = ("audit".to_owned(), Duration::ZERO);
        rows.push(Row { control: None, attack, verdict, note, took, excepted: false });
        rows
    }

    fn tell(&self, report: &Report) {
        self.metrics.tested(report.is_good(), report.at);
        let bad = report.bad();
        let what = if bad.is_empty() {
            format!("passed: {} attacks", report.rows.len())
        } else {
            format!("failed: {}", bad.join(", "))
        };
        if bad.is_empty() {
            tracing::info!(attacks = report.rows.len(), "the self-test has passed");
        } else {
            tracing::error!(failed = %bad.join(", "), "the self-test has failed");
        }
        if let Err(error) = self.journal.noted("selftest", &what) {
            tracing::error!(error = %crate::base::error_chain::Chain(&error), "not recorded");
        }
    }
}

/// The self-test itself did not work.
fn broken(note: &str) -> Row {
    let (attack, took) = ("server".to_owned(), Duration::ZERO);
    let verdict = Verdict::Failed;
    Row { control: None, attack, verdict, note: note.to_owned(), took, excepted: false }
}

/// A report in words, a line for each attack.
#[must_use]
pub fn words(report: &serde_json::Value) -> String {
    let mut out = String::new();
    let text = |row: &serde_json::Value, name: &str| {
        row.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let rows = report.get("attacks").and_then(serde_json::Value::as_array).into_iter().flatten();
    for row in rows {
        let excepted = row.get("excepted").and_then(serde_json::Value::as_bool) == Some(true);
        let micros = row.get("gatewayMicros").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let (name, verdict, note) = (text(row, "name"), text(row, "verdict"), text(row, "note"));
        let excepted = if excepted { " (excepted)" } else { "" };
        writeln!(out, "{verdict:<9}{name:<36}{micros:>8} us  {note}{excepted}").unwrap_or_default();
    }
    out
}
