//! What is counted and measured, in one place: read by Prometheus and sent by OTLP alike.
//!
//! Labels are names from the configuration and from this code, never anything a peer sent: what a
//! peer names that is not configured is `_OTHER`. The names of MCP are those of the OpenTelemetry
//! semantic conventions (in development; this is the only place that has them), the others are ours.

pub mod credential_check;
pub mod outcome;
mod evaluations;
mod series;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use policy::control::{Control, Ran};
use policy::inspect::{Detector, Finding};
use policy::lock::State;
use policy::schema::Compiled;

use crate::base::intake::Intake;
use crate::base::offload::Counts;
use crate::base::share::{Ceiling, Shares};
use crate::metrics::credential_check::Detail;
use crate::metrics::outcome::Outcome;

use evaluations::Evaluations;
use series::{Labelled, Series};

/// The value of a label that stands for what is not configured.
pub const OTHER: &str = "_OTHER";

/// Most names of tools and prompts that labels have because they were approved.
const PINNED: usize = 500;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets for what is quick, in microseconds.
const QUICK: [u64; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000,
    10_000_000,
];

/// Those that the semantic conventions of MCP name.
const OPERATION: [u64; 14] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
];

/// Durations, counted by size.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64; 14],
    buckets: [Counter; 15],
    micros: Counter,
}

impl Histogram {
    const fn new(bounds: &'static [u64; 14]) -> Self {
        Self {
            bounds,
            buckets: [const { Counter(AtomicU64::new(0)) }; 15],
            micros: Counter(AtomicU64::new(0)),
        }
    }

    /// For operations of MCP.
    #[must_use]
    pub const fn operation() -> Self {
        Self::new(&OPERATION)
    }

    /// Counts one.
    pub fn observe(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = self.bounds.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.add(1);
        }
        self.micros.add(micros);
    }

    fn has_any(&self) -> bool {
        self.buckets.iter().any(|bucket| bucket.get() > 0)
    }

    fn read(&self) -> Value {
        let counts = self.buckets.iter().map(Counter::get).collect();
        Value::Histogram { bounds: self.bounds, counts, micros: self.micros.get() }
    }
}

/// A value at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One that only grows.
    Sum(u64),
    /// One that goes up and down.
    Gauge(u64),
    /// Durations: the upper bounds in microseconds, how many in each bucket, one more than bounds, and
    /// all of them together.
    Histogram {
        /// The upper bounds.
        bounds: &'static [u64],
        /// How many in each bucket.
        counts: Vec<u64>,
        /// The sum.
        micros: u64,
    },
}

/// Names and values of labels.
pub type Labels = Vec<(&'static str, Box<str>)>;

/// All values of one name at one moment.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name, as OpenTelemetry writes it.
    pub name: &'static str,
    /// Its unit, as UCUM writes it; empty where there is none.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// The values.
    pub points: Vec<(Labels, Value)>,
}

/// What is counted of one server.
#[derive(Debug)]
pub struct OfServer {
    name: Box<str>,
    calls: Histogram,
    up: AtomicU64,
    /// The circuit of the configuration in force.
    circuit: ArcSwapOption<AtomicU64>,
    opened: Counter,
    /// Lines of the log that it caused and that were not written.
    suppressed: Counter,
    /// Progress notifications that belonged to no request, or for which there was no room.
    progress_dropped: Counter,
    /// Notifications for a call that were dropped because there was no room for them, or the call waits for its client.
    notifications_dropped: Counter,
    /// Bytes that wait to be sent to it on channels.
    unsent: AtomicU64,
    /// Messages that were refused because too many bytes waited.
    not_queued: Counter,
    /// Channels that were ended because it took nothing of what was sent to it.
    stalls: Counter,
    /// How long sessions with it lasted: those the gateway has ended, and those it has lost.
    sessions: [Histogram; 2],
}

impl OfServer {
    /// Counts what it took for one answer.
    pub fn answered(&self, time: Duration) {
        self.calls.observe(time);
    }

    /// Notes whether it could be reached when it was last tried.
    pub fn reached(&self, up: bool) {
        self.up.store(u64::from(up), Ordering::Relaxed);
    }

    /// Measures a legacy session with it that the gateway has `ended`, or that it has lost.
    pub fn session(&self, time: Duration, ended: bool) {
        let [by_us, lost] = &self.sessions;
        if ended { by_us } else { lost }.observe(time);
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shows this circuit from now on, which is open while the number is not zero; or none.
    pub fn circuit(&self, until: Option<Arc<AtomicU64>>) {
        self.circuit.store(until);
    }

    fn is_open(&self) -> bool {
        self.circuit.load().as_ref().is_some_and(|until| until.load(Ordering::Relaxed) > 0)
    }

    /// Counts a line of the log that it caused and that was not written.
    pub fn suppressed(&self) {
        self.suppressed.add(1);
    }

    /// Counts a progress notification that belonged to no request, or for which there was no room; whether it was the first.
    pub fn progress_dropped(&self) -> bool {
        self.progress_dropped.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Counts a notification for a call that was dropped because there was no room for it, or because the call waits for
    /// its client.
    pub fn notification_dropped(&self) {
        self.notifications_dropped.add(1);
    }

    /// Notes that so many bytes more wait to be sent to it.
    pub fn queued(&self, bytes: u64) {
        self.unsent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that so many bytes do not wait to be sent to it any more.
    pub fn sent(&self, bytes: u64) {
        self.unsent.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a message that was refused because too many bytes waited to be sent to it.
    pub fn not_queued(&self) {
        self.not_queued.add(1);
    }

    /// Counts a channel that was ended because it took nothing of what was sent to it.
    pub fn stalled(&self) {
        self.stalls.add(1);
    }

    /// Counts that its circuit has opened.
    pub fn opened(&self) {
        self.opened.add(1);
    }
}

impl OfServer {
    /// Its sessions, by how they ended, as far as there were any.
    fn sessions(&self) -> Vec<(Labels, Value)> {
        let ends = [None, Some(("error.type", Box::from("upstream-session")))];
        let all = ends.into_iter().zip(&self.sessions);
        let point = |(end, histogram): (Option<_>, &Histogram)| {
            let labels = [("portcullis.server", self.name.clone())].into_iter().chain(end);
            (labels.collect(), histogram.read())
        };
        all.filter(|(_, histogram)| histogram.has_any()).map(point).collect()
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    started: SystemTime,
    outcomes: [Counter; Outcome::ALL.len()],
    denials: [Counter; policy::decision::Reason::CODES.len()],
    findings: [Counter; Detector::CONTENT.len()],
    /// Credentials that were refused, by the check they did not pass.
    credentials: [Counter; Detail::ALL.len()],
    evaluations: Evaluations,
    overhead: Histogram,
    /// Operations as clients see them, and as servers do.
    operations: Series,
    /// How long sessions lasted.
    sessions: Histogram,
    /// What is counted of servers, for as long as somebody has them.
    servers: RwLock<Vec<Weak<OfServer>>>,
    /// The names of tools and prompts that labels have.
    names: Labelled,
    /// Requests being worked on.
    pub in_flight: AtomicU64,
    /// Connections of clients.
    pub connections: AtomicU64,
    /// Connections that were refused because all of them, or those of one address, were taken.
    pub connections_refused: Counter,
    /// Connections on which no TLS could be agreed on.
    pub handshakes_failed: Counter,
    /// Connections of HTTP/2 that were ended because they cost more than they may.
    pub http2_floods: Counter,
    /// Streams that were cut because the right to them had ended.
    pub streams_cut: Counter,
    /// Connections to the operator's listener that were closed because there were too many.
    pub ops_refused: Counter,
    /// Workers that serve nobody because something holds them.
    pub workers_stalled: AtomicU64,
    /// How often one has come to that.
    pub worker_stalls: Counter,
    /// 1 while the process can have no more files or threads.
    pub resources_lacking: AtomicU64,
    /// Files of revocations that could not be read.
    pub revocations_unread: Counter,
    /// Changes of definitions that were told of.
    pub definition_changes: Counter,
    /// Lockfiles that could not be used.
    pub lockfile_unread: Counter,
    /// Whether the lockfile can be used.
    pub lockfile_usable: AtomicU64,
    /// How many definitions of each server are in which state.
    pins: ArcSwap<Vec<Pinned>>,
    /// Whether the configuration can be read, and only by its owner and group be written.
    pub config_usable: AtomicU64,
    /// Whether the file of revocations can be read.
    pub revocations_usable: AtomicU64,
    /// Whether everything is revoked.
    pub everything_revoked: AtomicU64,
    /// When the certificate of each listener ends, in seconds since 1970.
    certificates: Vec<(Box<str>, AtomicU64)>,
    /// Messages that are inspected beside the threads that serve clients.
    inspections: Arc<Counts>,
    /// Bytes of servers' answers.
    answers: Arc<Intake>,
    /// Bytes of the lists of servers that are kept for callers.
    lists: Arc<Shares<Arc<str>>>,
    /// Bytes that callers make the process hold.
    ceiling: Arc<Ceiling>,
    /// Schemas that are kept compiled.
    schemas: Arc<Compiled>,
    /// Lists that lacked the part of some server.
    pub partial_lists: Counter,
    /// Records that were taken.
    pub audit_records: Counter,
    /// Records that were not.
    pub audit_failures: Counter,
    /// Requests of callers that are not known which were recorded together.
    pub audit_summarised: Counter,
    /// Files of records that were removed, replaced or cut while they were written to.
    pub audit_files_lost: Counter,
    /// How often somebody else was found to have appended to files of records.
    pub audit_foreign: Counter,
    /// Bytes of records that are not delivered yet.
    pub audit_held: AtomicU64,
    /// Bytes of checkpoints that should be in their file by now and are not.
    pub checkpoints_late: AtomicU64,
    /// Tokens that were got for servers, and those that were not.
    pub tokens: [Counter; 2],
    /// Secrets that were read again while the gateway runs, and those that could not be.
    pub secrets: [Counter; 2],
    /// How many secrets are used although they could not be read again.
    pub secrets_stale: AtomicU64,
    /// Spans that were sent, and those that were lost.
    pub spans: [Counter; 2],
    /// Times that OTLP was taken, and times that it was not.
    pub exports: [Counter; 2],
    /// Whether the last change of the configuration was applied, and when one was.
    reload: [AtomicU64; 2],
    /// Whether the last self-test has passed, and when it was.
    selftest: [AtomicU64; 2],
}

/// How many definitions of one server are in one state of the lockfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Which server.
    pub server: Box<str>,
    /// The state.
    pub state: State,
    /// How many.
    pub count: u64,
}

/// How an operation of MCP ended, for its labels.
#[derive(Clone, Copy, Debug)]
pub struct Operated<'a> {
    /// The method, as the peer named it.
    pub method: Option<&'a str>,
    /// The tool or prompt, as its server calls it; [`OTHER`] where that is not known.
    pub name: Option<&'a str>,
    /// The server.
    pub server: Option<&'a str>,
    /// The revision.
    pub version: Option<&'static str>,
    /// What went wrong.
    pub error: Option<&'static str>,
    /// The code of the JSON-RPC error.
    pub code: Option<i32>,
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(started: SystemTime) -> Self {
        Self {
            started,
            outcomes: Default::default(),
            denials: std::array::from_fn(|_| Counter::default()),
            findings: std::array::from_fn(|_| Counter::default()),
            credentials: std::array::from_fn(|_| Counter::default()),
            evaluations: Evaluations::default(),
            overhead: Histogram::new(&QUICK),
            operations: Default::default(),
            sessions: Histogram::operation(),
            servers: RwLock::default(),
            names: Labelled::default(),
            in_flight: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            connections_refused: Counter::default(),
            handshakes_failed: Counter::default(),
            http2_floods: Counter::default(),
            streams_cut: Counter::default(),
            ops_refused: Counter::default(),
            workers_stalled: AtomicU64::new(0),
            worker_stalls: Counter::default(),
            resources_lacking: AtomicU64::new(0),
            revocations_unread: Counter::default(),
            definition_changes: Counter::default(),
            lockfile_unread: Counter::default(),
            lockfile_usable: AtomicU64::new(1),
            pins: ArcSwap::default(),
            config_usable: AtomicU64::new(1),
            revocations_usable: AtomicU64::new(1),
            everything_revoked: AtomicU64::new(0),
            certificates: Vec::new(),
            inspections: Arc::default(),
            answers: Arc::default(),
            lists: Shares::new(0, 0),
            ceiling: Shares::new(0, 0),
            schemas: Arc::default(),
            partial_lists: Counter::default(),
            audit_records: Counter::default(),
            audit_failures: Counter::default(),
            audit_summarised: Counter::default(),
            audit_files_lost: Counter::default(),
            audit_foreign: Counter::default(),
            audit_held: AtomicU64::new(0),
            checkpoints_late: AtomicU64::new(0),
            tokens: Default::default(),
            secrets: Default::default(),
            secrets_stale: AtomicU64::new(0),
            spans: Default::default(),
            exports: Default::default(),
            reload: Default::default(),
            selftest: Default::default(),
        }
    }

    /// When it began to count.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// What is counted of the server `name`, from now on or since it was first asked for.
    #[must_use]
    pub fn server(&self, name: &str) -> Arc<OfServer> {
        let mut servers = self.servers.write().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|known| known.strong_count() > 0);
        let known = servers.iter().filter_map(Weak::upgrade).find(|known| *known.name == *name);
        if let Some(known) = known {
            return known;
        }
        let calls = Histogram::new(&QUICK);
        let server = Arc::new(OfServer {
            name: name.into(),
            calls,
            up: AtomicU64::new(0),
            circuit: ArcSwapOption::empty(),
            opened: Counter::default(),
            suppressed: Counter::default(),
            progress_dropped: Counter::default(),
            notifications_dropped: Counter::default(),
            unsent: AtomicU64::new(0),
            not_queued: Counter::default(),
            stalls: Counter::default(),
            sessions: [Histogram::operation(), Histogram::operation()],
        });
        servers.push(Arc::downgrade(&server));
        server
    }

    /// Those servers that somebody has.
    fn servers(&self) -> Vec<Arc<OfServer>> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Shows these definitions.
    pub fn pinned(&self, pins: Vec<Pinned>) {
        self.pins.store(Arc::new(pins));
    }

    /// Notes what came of a self-test at `now`.
    pub fn tested(&self, passed: bool, now: SystemTime) {
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let [last, time] = &self.selftest;
        last.store(u64::from(passed), Ordering::Relaxed);
        time.store(seconds, Ordering::Relaxed);
    }

    /// Counts the controls that were asked.
    pub fn ran(&self, ran: Ran) {
        self.evaluations.count(ran);
    }

    /// Shows these names of tools and prompts, which the configuration has, and those that are approved.
    pub fn configured(&self, names: BTreeSet<Arc<str>>) {
        self.names.configured.store(Arc::new(names.into_iter().collect()));
    }

    /// Shows these names of tools and prompts, which somebody has approved, and those of the configuration:
    /// the first `PINNED` in the order of the alphabet.
    pub fn approved(&self, names: &BTreeSet<Arc<str>>) {
        self.names.pinned.store(Arc::new(names.iter().take(PINNED).cloned().collect()));
    }

    /// Notes that a change of the configuration was applied at `now`, or was not.
    pub fn reloaded(&self, good: bool, now: SystemTime) {
        let [successful, when] = &self.reload;
        successful.store(u64::from(good), Ordering::Relaxed);
        if good {
            let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            when.store(now, Ordering::Relaxed);
        }
    }

    /// Counts an exchange that has ended, the code of its denial, and the time it took in here.
    pub fn exchange(&self, outcome: Outcome, denial: Option<&str>, gateway: Duration) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.add(1);
        }
        let codes = &policy::decision::Reason::CODES;
        let at = denial.and_then(|code| codes.iter().position(|known| *known == code));
        if let Some(counter) = at.and_then(|at| self.denials.get(at)) {
            counter.add(1);
        }
        self.overhead.observe(gateway);
    }

    /// Measures an operation as its client sees it, and as its server does where one was asked.
    pub fn operation(&self, what: &Operated<'_>, time: Duration, upstream: Option<Duration>) {
        self.operations.observe(what, &self.names, time, upstream);
    }

    /// Measures a legacy session that has ended.
    pub fn session(&self, time: Duration) {
        self.sessions.observe(time);
    }

    /// Counts what was found in what is said and sent.
    pub fn content<'a>(&self, findings: impl IntoIterator<Item = &'a Finding>) {
        for finding in findings {
            let at = Detector::CONTENT.iter().position(|known| *known == finding.detector);
            if let Some(counter) = at.and_then(|at| self.findings.get(at)) {
                counter.add(1);
            }
        }
    }

    /// The same, with these listeners that have certificates.
    #[must_use]
    pub fn with_certificates<'a>(self, listeners: impl IntoIterator<Item = &'a str>) -> Self {
        let listener = |name: &str| (name.into(), AtomicU64::new(0));
        Self { certificates: listeners.into_iter().map(listener).collect(), ..self }
    }

    /// The same, with these counts of what is inspected beside the threads that serve clients.
    #[must_use]
    pub fn with_inspections(self, inspections: Arc<Counts>) -> Self {
        Self { inspections, ..self }
    }

    /// The same, with this count of the bytes of servers' answers.
    #[must_use]
    pub fn with_answers(self, answers: Arc<Intake>) -> Self {
        Self { answers, ..self }
    }

    /// The same, with this count of the bytes of kept lists.
    #[must_use]
    pub fn with_lists(self, lists: Arc<Shares<Arc<str>>>) -> Self {
        Self { lists, ..self }
    }

    /// The same, with this count of bytes that callers make the process hold.
    #[must_use]
    pub fn with_ceiling(self, ceiling: Arc<Ceiling>) -> Self {
        Self { ceiling, ..self }
    }

    /// The same, with this count of schemas that are kept compiled.
    #[must_use]
    pub fn with_schemas(self, schemas: Arc<Compiled>) -> Self {
        Self { schemas, ..self }
    }

    /// Notes when the certificate of a listener ends, in seconds since 1970.
    pub fn certificate(&self, listener: &str, ends: u64) {
        let found = self.certificates.iter().find(|(name, _)| **name == *listener);
        if let Some((_, known)) = found {
            known.store(ends, Ordering::Relaxed);
        }
    }

    /// Which servers could not be reached when they were last tried.
    #[must_use]
    pub fn unreached(&self) -> Vec<Box<str>> {
        let servers = self.servers();
        let down = servers.iter().filter(|server| server.up.load(Ordering::Relaxed) == 0);
        down.map(|server| server.name.clone()).collect()
    }

    /// Counts a credential that did not pass a check.
    pub fn credential_refused(&self, detail: Detail) {
        if let Some(counter) = self.credentials.get(detail as usize) {
            counter.add(1);
        }
    }

    /// All of it, as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Family> {
        let gauge = |value: &AtomicU64| Value::Gauge(value.load(Ordering::Relaxed));
        let sum = |counter: &Counter| Value::Sum(counter.get());
        let one = |value: Value| vec![(Labels::new(), value)];
        let family = |name, unit, help, points| Family { name, unit, help, points };
        let servers = self.servers();
        let by_server = |value: &dyn Fn(&OfServer) -> Value| {
            let point =
                |server: &Arc<OfServer>| (vec![("server", server.name.clone())], value(server));
            servers.iter().map(point).collect::<Vec<_>>()
        };
        let version = vec![("version", env!("CARGO_PKG_VERSION").into())];
        let [operations, upstream] = self.operations.read();
        let [reload, reloaded] = &self.reload;
        let [tested, tested_at] = &self.selftest;
        let pinned = |pinned: &Pinned| {
            let labels =
                vec![("server", pinned.server.clone()), ("state", pinned.state.as_str().into())];
            (labels, Value::Gauge(pinned.count))
        };
        let outcomes = Outcome::ALL.iter().zip(&self.outcomes);
        let codes = policy::decision::Reason::CODES.iter().zip(&self.denials);
        let detectors = Detector::CONTENT.iter().zip(&self.findings);
        let refused = Detail::ALL.iter().zip(&self.credentials);
        let evaluated = |(control, count): (Control, u64)| {
            (vec![("control", control.as_str().into())], Value::Sum(count))
        };
        let results = |counters: &[Counter; 2]| {
            let named = ["success", "failure"].into_iter().zip(counters);
            named.map(|(name, counter)| (vec![("result", name.into())], sum(counter))).collect()
        };
        let mut families = vec![
            family(
                "portcullis.build_info",
                "",
                "The running version.",
                vec![(version, Value::Gauge(1))],
            ),
            family(
                "mcp.server.operation.duration",
                "s",
                "Operations of MCP as clients see them.",
                operations,
            ),
            family(
                "mcp.client.operation.duration",
                "s",
                "Operations of MCP as the servers behind the gateway answer them.",
                upstream,
            ),
            family(
                "mcp.server.session.duration",
                "s",
                "Legacy sessions that their clients have ended.",
                one(self.sessions.read()),
            ),
            family(
                "mcp.client.session.duration",
                "s",
                "Legacy sessions with servers that are over.",
                servers.iter().flat_map(|server| server.sessions()).collect(),
            ),
            family(
                "portcullis.exchanges",
                "",
                "Exchanges, by how they ended.",
                outcomes.map(|(o, c)| (vec![("outcome", o.as_str().into())], sum(c))).collect(),
            ),
            family(
                "portcullis.denials",
                "",
                "Denials of the policy, by reason code.",
                codes.map(|(code, c)| (vec![("reason", (*code).into())], sum(c))).collect(),
            ),
            family(
                "portcullis.credentials_refused",
                "",
                "Credentials that were refused, by the check they did not pass.",
                refused.map(|(d, c)| (vec![("detail", d.code().into())], sum(c))).collect(),
            ),
            family(
                "portcullis.content_findings",
                "",
                "What was found in results and arguments, by detector.",
                detectors.map(|(d, c)| (vec![("detector", d.name().into())], sum(c))).collect(),
            ),
            family(
                "portcullis.control_evaluations",
                "",
                "How often each control was asked.",
                self.evaluations.read().map(evaluated).collect(),
            ),
            family(
                "portcullis.overhead",
                "s",
                "Time in the gateway, without its servers.",
                one(self.overhead.read()),
            ),
            family(
                "portcullis.upstream.duration",
                "s",
                "Time a server took for one answer.",
                by_server(&|server| server.calls.read()),
            ),
            family(
                "portcullis.upstream_up",
                "",
                "Whether the server was reached when last tried.",
                by_server(&|server| gauge(&server.up)),
            ),
            family(
                "portcullis.circuit_breaker_open",
                "",
                "Whether nothing is asked of the server because it keeps failing.",
                by_server(&|server| Value::Gauge(server.is_open().into())),
            ),
            family(
                "portcullis.circuit_breaker_openings",
                "",
                "How often that began.",
                by_server(&|server| sum(&server.opened)),
            ),
            family(
                "portcullis.upstream_log_suppressed",
                "",
                "Lines of the log that the server caused and that were not written.",
                by_server(&|server| sum(&server.suppressed)),
            ),
            family(
                "portcullis.progress_dropped",
                "",
                "Progress notifications of the server that belonged to no request under way, or for which there was no room.",
                by_server(&|server| sum(&server.progress_dropped)),
            ),
            family(
                "portcullis.notifications_dropped",
                "",
                "Progress and log messages of the server for a call that were dropped because too many of them waited, \
                 or because the call waits for its client.",
                by_server(&|server| sum(&server.notifications_dropped)),
            ),
            family(
                "portcullis.upstream_unsent",
                "By",
                "Bytes of messages that wait to be sent to the server, or are being sent.",
                by_server(&|server| gauge(&server.unsent)),
            ),
            family(
                "portcullis.upstream_unsent_refused",
                "",
                "Messages that were refused because too many bytes waited to be sent to the server.",
                by_server(&|server| sum(&server.not_queued)),
            ),
            family(
                "portcullis.upstream_stalls",
                "",
                "Channels that were ended because the server took nothing of what was sent to it.",
                by_server(&|server| sum(&server.stalls)),
            ),
            family(
                "portcullis.in_flight",
                "",
                "Requests being worked on.",
                one(gauge(&self.in_flight)),
            ),
            family(
                "portcullis.connections",
                "",
                "Connections of clients.",
                one(gauge(&self.connections)),
            ),
            family(
                "portcullis.answers_held",
                "By",
                "Bytes of answers of servers that are being read or looked at, or wait for their clients to read them.",
                one(Value::Gauge(self.answers.bytes() as u64)),
            ),
            family(
                "portcullis.answers_refused",
                "",
                "Answers of servers that were given up because too many bytes were being read.",
                one(Value::Sum(self.answers.refused())),
            ),
            family(
                "portcullis.memory_held",
                "By",
                "Bytes that callers make the gateway hold, of which limits.memory is the bound.",
                one(Value::Gauge(self.ceiling.taken() as u64)),
            ),
            family(
                "portcullis.lists_held",
                "By",
                "Bytes of lists of servers that are kept for callers, as they are estimated.",
                one(Value::Gauge(self.lists.taken() as u64)),
            ),
            family(
                "portcullis.schemas_held",
                "By",
                "Bytes of schemas that are kept compiled, as they are estimated.",
                one(Value::Gauge(self.schemas.bytes() as u64)),
            ),
            family(
                "portcullis.schemas_compiled",
                "",
                "Schemas that were compiled, again as well.",
                one(Value::Sum(self.schemas.compilations())),
            ),
            family(
                "portcullis.inspections_in_flight",
                "",
                "Messages that are inspected beside the threads that serve clients, or wait for it.",
                one(Value::Gauge(self.inspections.in_flight())),
            ),
            family(
                "portcullis.inspections_offloaded",
                "",
                "Messages that were given to the threads that inspect beside those that serve.",
                one(Value::Sum(self.inspections.offloaded())),
            ),
            family(
                "portcullis.inspections_refused",
                "",
                "Messages that were withheld because too many bytes were being inspected.",
                one(Value::Sum(self.inspections.refused())),
            ),
            family(
                "portcullis.workers_stalled",
                "",
                "Serving threads that have not been at work for two seconds; liveness is red meanwhile.",
                one(gauge(&self.workers_stalled)),
            ),
            family(
                "portcullis.resources_lacking",
                "",
                "1 while the process can open no file or start no thread; readiness is red meanwhile.",
                one(gauge(&self.resources_lacking)),
            ),
            family(
                "portcullis.audit_spool",
                "By",
                "Bytes of records that are not delivered yet.",
                one(gauge(&self.audit_held)),
            ),
            family(
                "portcullis.audit_checkpoints_late",
                "By",
                "Bytes of checkpoints that should be in their file by now and are not.",
                one(gauge(&self.checkpoints_late)),
            ),
            family(
                "portcullis.certificate_expiry_timestamp",
                "s",
                "When the certificate of the listener ends.",
                self.certificates
                    .iter()
                    .map(|(name, ends)| (vec![("listener", name.clone())], gauge(ends)))
                    .collect(),
            ),
            family(
                "portcullis.config_last_reload_successful",
                "",
                "Whether the last change of the configuration was applied.",
                one(gauge(reload)),
            ),
            family(
                "portcullis.config_last_reload_success_timestamp",
                "s",
                "When a configuration was last applied.",
                one(gauge(reloaded)),
            ),
            family(
                "portcullis.pins",
                "",
                "Definitions in the lockfile, by server and state; what servers say of themselves is not counted.",
                self.pins.load().iter().map(pinned).collect(),
            ),
            family(
                "portcullis.lockfile_usable",
                "",
                "Whether the lockfile can be used; otherwise nothing is approved.",
                one(gauge(&self.lockfile_usable)),
            ),
            family(
                "portcullis.config_usable",
                "",
                "Whether the configuration can be read and has not been opened to all users; otherwise that of before holds.",
                one(gauge(&self.config_usable)),
            ),
            family(
                "portcullis.revocations_usable",
                "",
                "Whether the file of revocations can be read; otherwise those of before hold.",
                one(gauge(&self.revocations_usable)),
            ),
            family(
                "portcullis.everything_revoked",
                "",
                "Whether everything is revoked: no caller is served and no server is used.",
                one(gauge(&self.everything_revoked)),
            ),
            family(
                "portcullis.selftest_passed",
                "",
                "Whether the last self-test has passed.",
                one(gauge(tested)),
            ),
            family(
                "portcullis.selftest_timestamp",
                "s",
                "When the last self-test was.",
                one(gauge(tested_at)),
            ),
            family(
                "portcullis.token_requests",
                "",
                "Tokens that were asked for to be shown to servers.",
                results(&self.tokens),
            ),
            family(
                "portcullis.secret_reads",
                "",
                "Secrets that were read again while the gateway runs.",
                results(&self.secrets),
            ),
            family(
                "portcullis.secrets_stale",
                "",
                "Secrets that are used although they could not be read again.",
                one(gauge(&self.secrets_stale)),
            ),
            family("portcullis.spans", "", "Spans, sent and lost.", results(&self.spans)),
            family(
                "portcullis.otlp_exports",
                "",
                "Times that OTLP was sent.",
                results(&self.exports),
            ),
        ];
        for (name, help, counter) in [
            (
                "portcullis.streams_cut",
                "Streams that were cut because the right to them had ended.",
                &self.streams_cut,
            ),
            (
                "portcullis.worker_stalls",
                "How often a serving thread has stalled.",
                &self.worker_stalls,
            ),
            (
                "portcullis.ops_connections_refused",
                "Connections to the operator's listener that were closed because there were too many.",
                &self.ops_refused,
            ),
            (
                "portcullis.revocations_unread",
                "Files of revocations that could not be read.",
                &self.revocations_unread,
            ),
            (
                "portcullis.definition_changes",
                "Definitions that are not as they were approved, each change counted once.",
                &self.definition_changes,
            ),
            (
                "portcullis.lockfile_unread",
                "Lockfiles that could not be used; nothing is approved meanwhile.",
                &self.lockfile_unread,
            ),
            (
                "portcullis.connections_refused",
                "Connections that were refused because all, or those of one address, were taken.",
                &self.connections_refused,
            ),
            (
                "portcullis.tls_handshake_failures",
                "Connections on which no TLS could be agreed on.",
                &self.handshakes_failed,
            ),
            (
                "portcullis.http2_floods",
                "Connections of HTTP/2 that were ended because they cost more than they may.",
                &self.http2_floods,
            ),
            (
                "portcullis.partial_lists",
                "Lists that lacked the part of a server, by server missing.",
                &self.partial_lists,
            ),
            ("portcullis.audit_records", "Records that were taken.", &self.audit_records),
            ("portcullis.audit_failures", "Records that were not.", &self.audit_failures),
            (
                "portcullis.audit_requests_summarised",
                "Requests of unknown callers that were recorded together and not one by one.",
                &self.audit_summarised,
            ),
            (
                "portcullis.audit_files_lost",
                "Files of records that were removed, replaced or cut while they were written to.",
                &self.audit_files_lost,
            ),
            (
                "portcullis.audit_files_foreign",
                "Times that somebody else was found to have appended to a file of records.",
                &self.audit_foreign,
            ),
        ] {
            families.push(family(name, "", help, one(sum(counter))));
        }
        families
    }

    /// All of it, as Prometheus reads it.
    ///
    /// <https://prometheus.io/docs/instrumenting/exposition_formats/>
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for family in self.snapshot() {
            family.text(&mut out);
        }
        out
    }
}

impl Family {
    /// Its name, as Prometheus writes it.
    #[must_use]
    pub fn prometheus_name(&self) -> String {
        let mut name = self.name.replace('.', "_");
        match self.unit {
            "s" => name.push_str("_seconds"),
            "By" => name.push_str("_bytes"),
            _ => {}
        }
        let is_sum = self.points.first().is_some_and(|(_, value)| matches!(value, Value::Sum(_)));
        if is_sum {
            name.push_str("_total");
        }
        name
    }

    fn text(&self, out: &mut String) {
        let name = self.prometheus_name();
        let kind = match self.points.first() {
            Some((_, Value::Sum(_))) => "counter",
            Some((_, Value::Histogram { .. })) => "histogram",
            Some((_, Value::Gauge(_))) => "gauge",
            None => return,
        };
        writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", self.help).unwrap_or_default();
        for (labels, value) in &self.points {
            let mut shown = String::new();
            for (label, value) in labels {
                let comma = if shown.is_empty() { "" } else { "," };
                let (label, value) = (label.replace('.', "_"), escaped(value));
                write!(shown, "{comma}{label}=\"{value}\"").unwrap_or_default();
            }
            match value {
                Value::Sum(value) | Value::Gauge(value) => {
                    let labels = if shown.is_empty() { shown } else { format!("{{{shown}}}") };
                    writeln!(out, "{name}{labels} {value}").unwrap_or_default();
                }
                Value::Histogram { bounds, counts, micros } => {
                    let mut below = 0;
                    let comma = if shown.is_empty() { "" } else { "," };
                    let bounds = bounds.iter().map(|bound| seconds(*bound));
                    for (count, bound) in counts.iter().zip(bounds.chain(["+Inf".to_owned()])) {
                        below += count;
                        let line = format!("{name}_bucket{{{shown}{comma}le=\"{bound}\"}} {below}");
                        writeln!(out, "{line}").unwrap_or_default();
                    }
                    let sum = seconds(*micros);
                    writeln!(out, "{name}_sum{{{shown}}} {sum}").unwrap_or_default();
                    writeln!(out, "{name}_count{{{shown}}} {below}").unwrap_or_default();
                }
            }
        }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Micro- to whole seconds without a detour through floating point.
fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
