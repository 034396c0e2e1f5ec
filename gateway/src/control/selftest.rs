//! The self-test: the gateway attacks its own configuration in force, through its own exchanges, with a built-in
//! upstream server. It reports controls that are configured but do not run, and controls that run but do not hold.
//!
//! The attacks know nothing of how a control works. They are sent like requests of a client, and judged by the
//! response, by what reached the server, and by what was recorded.

mod attacks;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use detection::inspect::Detector;
use policy::rules::control::{Control, ControlSet};
use serde_json::json;

use crate::audit::{Journal, Observer, Record};
use crate::base::clock::Clock;
use crate::base::task::Tasks;
use crate::config::settings::selftest::SelftestSettings;
use crate::metrics::Metrics;
use crate::metrics::outcome::ExchangeEnd;
use crate::serve::generation::{CurrentGeneration, Generation};

use attacks::Attacker;

/// Interval between checks for a new configuration.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a failed self-test is repeated.
const RETRY_AFTER_FAILURE: Duration = Duration::from_secs(30);
/// Maximum time for the whole self-test.
const LIMIT: Duration = Duration::from_secs(60);

/// The result of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttackVerdict {
    /// The attack was stopped.
    Held,
    /// The attack was let through and recorded, as configured.
    Recorded,
    /// The control is switched off, or did not run.
    Off,
    /// The attack got through.
    Failed,
}

impl AttackVerdict {
    /// The verdict as one word.
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

/// One attack and its result.
#[derive(Clone, Debug)]
pub struct AttackResult {
    /// The control that must stop it; `None` for checks of the self-test itself.
    pub control: Option<Control>,
    /// The name of the attack.
    pub attack: String,
    /// The result of the attack.
    pub verdict: AttackVerdict,
    /// The observed behaviour, in words.
    pub note: String,
    /// Time spent in the gateway.
    pub took: Duration,
    /// Whether the configuration excludes it from the verdict.
    pub excepted: bool,
}

impl AttackResult {
    /// The name of the control, and that of the attack.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.control.map_or("selftest", Control::as_str), self.attack)
    }

    /// Whether the result is acceptable.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.excepted || matches!(self.verdict, AttackVerdict::Held | AttackVerdict::Recorded)
    }
}

/// The results of all attacks on one configuration.
#[derive(Clone, Debug)]
pub struct SelftestReport {
    /// The time of the self-test.
    pub at: SystemTime,
    /// The digest of the configuration.
    pub configuration: Arc<str>,
    /// The attacks and their results.
    pub rows: Vec<AttackResult>,
}

impl SelftestReport {
    /// Whether all results are acceptable.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(AttackResult::is_good)
    }

    /// The names of the attacks with unacceptable results.
    #[must_use]
    pub fn bad(&self) -> Vec<String> {
        self.rows.iter().filter(|row| !row.is_good()).map(AttackResult::name).collect()
    }

    /// The report as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let row = |row: &AttackResult| {
            json!({ "name": row.name(), "verdict": row.verdict.as_str(), "note": row.note,
                "excepted": row.excepted, "gatewayMicros": u64::try_from(row.took.as_micros()).unwrap_or(u64::MAX) })
        };
        let at = humantime::format_rfc3339_millis(self.at).to_string();
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let whole = json!({ "passed": self.is_good(), "at": at, "configuration": &*self.configuration, "attacks": rows });
        format!("{whole}\n")
    }
}

/// The observed end of one exchange.
#[derive(Clone, Debug)]
struct ObservedExchange {
    ran: ControlSet,
    reason: Option<&'static str>,
    found: Vec<Detector>,
    gateway: Duration,
}

/// Observes how the exchanges of the self-test end.
#[derive(Clone, Debug, Default)]
struct SelftestObserver(Arc<Mutex<Vec<ObservedExchange>>>);

impl SelftestObserver {
    fn seen(&self) -> MutexGuard<'_, Vec<ObservedExchange>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for SelftestObserver {
    fn ended(&self, record: &Record, ending: ExchangeEnd, now: Instant) {
        // No network connection comes from port 0, which the self-test uses.
        if record.peer.port() != 0 {
            return;
        }
        let decided = record.decision().into_iter().flat_map(|decision| &decision.findings);
        let found =
            decided.chain(&record.server_findings).map(|finding| finding.detector).collect();
        let total = now.saturating_duration_since(record.started);
        let gateway = total.saturating_sub(record.in_servers());
        let reason = ending.reason.or_else(|| record.reason());
        self.seen().push(ObservedExchange { ran: record.asked(), reason, found, gateway });
    }
}

/// Identifies the generation that was attacked; another one may have the same configuration.
#[derive(Debug)]
struct TestedGeneration(Weak<Generation>);

impl TestedGeneration {
    fn is(&self, generation: &Arc<Generation>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(generation))
    }
}

/// Runs self-tests, and keeps the last report.
#[derive(Debug)]
pub struct SelftestRunner {
    live: Arc<CurrentGeneration>,
    journal: Arc<Journal>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<(TestedGeneration, SelftestReport)>>,
    /// Held during a self-test, to serialize them.
    turn: tokio::sync::Mutex<()>,
}

impl SelftestRunner {
    /// Makes a tester for the generations that come into force in `live`.
    #[must_use]
    pub fn new(
        live: Arc<CurrentGeneration>,
        journal: Arc<Journal>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let turn = tokio::sync::Mutex::new(());
        Self { live, journal, metrics, clock, last: Mutex::new(None), turn }
    }

    /// The reason why the self-test keeps the gateway from being ready, if it does.
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

    fn last(&self) -> MutexGuard<'_, Option<(TestedGeneration, SelftestReport)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tests each generation when it comes into force, and then at the configured interval.
    pub async fn tend(self: Arc<Self>, tasks: Tasks) {
        let mut turn = tokio::time::interval(CHECK_INTERVAL);
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
                    // A failed self-test is repeated soon, because the failure may be temporary.
                    let every =
                        if report.is_good() { selftest.every } else { Some(RETRY_AFTER_FAILURE) };
                    every.is_some_and(|every| age >= every)
                }
                Some(_) | None => true,
            };
            drop(now);
            if due {
                // The result was reported by `run`.
                drop(self.run().await);
            }
        }
    }

    /// Tests the generation in force; `None` if the self-test is not configured.
    pub async fn run(&self) -> Option<SelftestReport> {
        let _turn = self.turn.lock().await;
        let now = self.live.now();
        let selftest = now.selftest.clone()?;
        let witness = SelftestObserver::default();
        self.journal.set_witness(Some(Box::new(witness.clone())));
        let rows = tokio::time::timeout(LIMIT, self.attack(&now, &selftest, witness)).await;
        self.journal.set_witness(None);
        let mut rows = rows.unwrap_or_else(|_late| vec![broken("it took longer than a minute")]);
        for row in &mut rows {
            let name = row.name();
            let of_control = row.control.map_or("", Control::as_str);
            let named = |except: &String| *except == name || except == of_control;
            row.excepted = selftest.except.iter().any(named);
        }
        let configuration = Arc::clone(&now.gateway.config_digest);
        let report = SelftestReport { at: self.clock.now(), configuration, rows };
        self.tell(&report);
        *self.last() = Some((TestedGeneration(Arc::downgrade(&now)), report.clone()));
        Some(report)
    }

    async fn attack(
        &self,
        now: &Arc<Generation>,
        selftest: &SelftestSettings,
        witness: SelftestObserver,
    ) -> Vec<AttackResult> {
        let before = self.journal.accounted();
        let attacker = Attacker::new(Arc::clone(now), selftest, witness.clone());
        let Some(attacker) = attacker else { return vec![broken("its server has no name")] };
        let mut rows = attacker.attack().await;
        // Every exchange must be on record, and the journal must accept records.
        let (sent, seen) = (attacker.sent(), witness.seen().len());
        let grown = usize::try_from(self.journal.accounted() - before).unwrap_or(usize::MAX);
        let good = sent == seen && grown >= sent && self.journal.is_working();
        let verdict = if good { AttackVerdict::Held } else { AttackVerdict::Failed };
        let note = format!("{} of {sent} exchanges are on record", seen.min(grown));
        let (attack, took) = ("audit".to_owned(), Duration::ZERO);
        rows.push(AttackResult { control: None, attack, verdict, note, took, excepted: false });
        rows
    }

    fn tell(&self, report: &SelftestReport) {
        self.metrics.tested(report.is_good(), report.at);
        let bad = report.bad();
        let what = if bad.is_empty() {
            format!("passed: {} attacks", report.rows.len())
        } else {
            format!("failed: {}", bad.join(", "))
        };
        if bad.is_empty() {
            tracing::info!(
                event = "selftest.passed",
                attacks = report.rows.len(),
                "self-test passed"
            );
        } else {
            tracing::error!(
                event = "selftest.failed", failed = %bad.join(", "),
                "self-test failed"
            );
        }
        if let Err(error) = self.journal.record_event("selftest", &what) {
            tracing::error!(
                event = "audit.write_failed", error = %crate::base::error_chain::ErrorChain(&error),
                "audit event not written"
            );
        }
    }
}

/// The result if the self-test itself did not work.
fn broken(note: &str) -> AttackResult {
    let (attack, took) = ("server".to_owned(), Duration::ZERO);
    let verdict = AttackVerdict::Failed;
    AttackResult { control: None, attack, verdict, note: note.to_owned(), took, excepted: false }
}

/// Formats a JSON report as text, with a line for each attack.
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
