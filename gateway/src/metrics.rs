//! The one declared table of counters, gauges and histograms. Every module of the gateway adds to it; the
//! operator's listener renders it for Prometheus and `telemetry` exports it over OTLP.
//!
//! Label values are names from the configuration and from this code, never text that a peer sent: a name that is
//! not configured becomes `_OTHER`. The MCP metric names are those of the OpenTelemetry semantic conventions (in
//! development; only this module has them), all other names are Portcullis's own.

pub mod approval_step;
pub mod decoy_kind;
pub mod credential_check;
pub mod outcome;
pub mod list_tokens;
pub mod selection_outcome;
mod evaluations;
mod exposition;
mod series;
mod table;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use detection::inspect::{Detector, Finding};
use policy::definition::lock::ApprovalState;
use policy::rules::control::ControlSet;
use policy_core::schema::SchemaCache;

use crate::base::intake::ResponseAccounts;
use crate::base::offload::OffloadCounts;
use crate::base::share::{Ceiling, Shares};
use crate::mcp::discovery_tools::DiscoveryTool;
use crate::metrics::approval_step::ApprovalStep;
use crate::metrics::credential_check::CredentialCheck;
use crate::metrics::decoy_kind::DecoyKind;
use crate::metrics::outcome::ExchangeOutcome;
use crate::metrics::selection_outcome::SelectionOutcome;

use evaluations::Evaluations;
use list_tokens::{ListTokens, ShownTools};
use series::{AllowedNames, OperationSeries};

/// The label value that replaces every name that is not configured.
pub const OTHER: &str = "_OTHER";

/// Maximum number of tool and prompt names that become label values because they are approved in the lockfile.
const PINNED: usize = 500;

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more` to the counter.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets for short durations, in microseconds.
const QUICK: [u64; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000,
    10_000_000,
];

/// Upper bounds of the buckets that the MCP semantic conventions recommend, in microseconds.
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

/// A histogram of durations with fixed buckets.
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

    /// An empty histogram with the buckets of the MCP semantic conventions.
    #[must_use]
    pub const fn operation() -> Self {
        Self::new(&OPERATION)
    }

    /// Adds one duration to its bucket.
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

    fn read(&self) -> MetricValue {
        let counts = self.buckets.iter().map(Counter::get).collect();
        MetricValue::Histogram { bounds: self.bounds, counts, micros: self.micros.get() }
    }
}

/// A value of one metric at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricValue {
    /// A sum that only grows.
    Sum(u64),
    /// A value that can rise and fall.
    Gauge(u64),
    /// A distribution of durations.
    Histogram {
        /// The upper bounds of the buckets, in microseconds.
        bounds: &'static [u64],
        /// The number of durations in each bucket: one element more than `bounds`, for everything above the last
        /// one.
        counts: Vec<u64>,
        /// The sum of all durations, in microseconds.
        micros: u64,
    },
}

/// Label keys and their values.
pub type Labels = Vec<(&'static str, Box<str>)>;

/// A metric with all of its data points at one moment.
#[derive(Clone, Debug)]
pub struct MetricFamily {
    /// The name of the metric in OpenTelemetry's spelling.
    pub name: &'static str,
    /// The unit in UCUM notation; empty for a plain number.
    pub unit: &'static str,
    /// The description of the metric.
    pub help: &'static str,
    /// The data points, with the labels of each.
    pub points: Vec<(Labels, MetricValue)>,
}

/// The metrics of one upstream server.
#[derive(Debug)]
pub struct ServerMetrics {
    name: Box<str>,
    calls: Histogram,
    up: AtomicU64,
    /// The circuit breaker of the configuration in force; `None` if none is configured.
    circuit: ArcSwapOption<AtomicU64>,
    opened: Counter,
    /// Log lines about the server that the log rate limit suppressed.
    suppressed: Counter,
    /// Progress notifications that matched no request in flight, or that did not fit in the queue.
    progress_dropped: Counter,
    /// Notifications for a call that were dropped because the queue was full or the call was waiting for its
    /// client.
    notifications_dropped: Counter,
    /// Bytes that wait in the channels to the server.
    unsent: AtomicU64,
    /// Messages that were refused because too many bytes were queued.
    not_queued: Counter,
    /// Channels that were closed because the server stopped reading from them.
    stalls: Counter,
    /// Durations of legacy sessions: first those that the gateway ended, then those that it lost.
    sessions: [Histogram; 2],
}

impl ServerMetrics {
    /// Records the time that the server took for one answer.
    pub fn answered(&self, time: Duration) {
        self.calls.observe(time);
    }

    /// Notes that the last attempt to reach the server succeeded.
    pub fn reached(&self) {
        self.up.store(1, Ordering::Relaxed);
    }

    /// Notes that the last attempt to reach the server failed.
    pub fn not_reached(&self) {
        self.up.store(0, Ordering::Relaxed);
    }

    /// Records the duration of a legacy session that the gateway ended.
    pub fn session_ended(&self, time: Duration) {
        let [ended, _] = &self.sessions;
        ended.observe(time);
    }

    /// Records the duration of a legacy session that the gateway lost.
    pub fn session_lost(&self, time: Duration) {
        let [_, lost] = &self.sessions;
        lost.observe(time);
    }

    /// The name of the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports the state of this circuit breaker from now on: it is open while the number is not zero. `None`
    /// reports a closed one.
    pub fn circuit(&self, until: Option<Arc<AtomicU64>>) {
        self.circuit.store(until);
    }

    fn is_open(&self) -> bool {
        self.circuit.load().as_ref().is_some_and(|until| until.load(Ordering::Relaxed) > 0)
    }

    /// Counts a suppressed log line.
    pub fn suppressed(&self) {
        self.suppressed.add(1);
    }

    /// Counts a progress notification that matched no request or did not fit in the queue. Returns whether it was
    /// the first.
    pub fn progress_dropped(&self) -> bool {
        self.progress_dropped.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Counts a notification for a call that was dropped because the queue was full or the call was waiting for its
    /// client.
    pub fn notification_dropped(&self) {
        self.notifications_dropped.add(1);
    }

    /// Adds `bytes` to the bytes that are queued for the server.
    pub fn queued(&self, bytes: u64) {
        self.unsent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts `bytes` from the bytes that are queued for the server.
    pub fn sent(&self, bytes: u64) {
        self.unsent.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a message that was refused because too many bytes were queued.
    pub fn not_queued(&self) {
        self.not_queued.add(1);
    }

    /// Counts a channel that was closed because the server stopped reading from it.
    pub fn stalled(&self) {
        self.stalls.add(1);
    }

    /// Counts one opening of the circuit breaker.
    pub fn opened(&self) {
        self.opened.add(1);
    }
}

impl ServerMetrics {
    /// The session durations by how the sessions ended; a histogram without any observation is left out.
    fn sessions(&self) -> Vec<(Labels, MetricValue)> {
        let ends = [None, Some(("error.type", Box::from("upstream-session")))];
        let all = ends.into_iter().zip(&self.sessions);
        let point = |(end, histogram): (Option<_>, &Histogram)| {
            let labels = [("portcullis.server", self.name.clone())].into_iter().chain(end);
            (labels.collect(), histogram.read())
        };
        all.filter(|(_, histogram)| histogram.has_any()).map(point).collect()
    }
}

/// The metrics of a service that helps to rank tools.
#[derive(Debug)]
pub struct SelectionServiceMetrics {
    outcomes: [Counter; SelectionOutcome::ALL.len()],
    /// How long the service took for an answer, good or bad.
    times: Histogram,
}

impl Default for SelectionServiceMetrics {
    fn default() -> Self {
        Self { outcomes: Default::default(), times: Histogram::operation() }
    }
}

impl SelectionServiceMetrics {
    /// Counts what came of a question.
    pub fn count(&self, outcome: SelectionOutcome) {
        let place = SelectionOutcome::ALL.iter().position(|known| *known == outcome);
        if let Some(counter) = place.and_then(|place| self.outcomes.get(place)) {
            counter.add(1);
        }
    }

    /// Records how long the service took.
    pub fn took(&self, time: Duration) {
        self.times.observe(time);
    }
}

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    started: SystemTime,
    outcomes: [Counter; ExchangeOutcome::ALL.len()],
    denials: [Counter; policy::rules::decision::Reason::CODES.len()],
    findings: [Counter; Detector::CONTENT.len()],
    /// Findings in definitions, by detector.
    definition_findings: [Counter; Detector::OF_DEFINITIONS.len()],
    /// Refused credentials, by the check that failed.
    credentials: [Counter; CredentialCheck::ALL.len()],
    /// What has happened to approvals, by step.
    approvals: [Counter; ApprovalStep::ALL.len()],
    /// Questions about calls that wait for an answer.
    pub approvals_waiting: AtomicU64,
    /// 1 if approvals can be kept, else 0.
    pub approvals_usable: AtomicU64,
    /// Decoys that callers touched, by kind.
    decoys: [Counter; DecoyKind::ALL.len()],
    /// Calls of the tools of discovery.
    discovery: [Counter; DiscoveryTool::ALL.len()],
    /// Calls that were counted in histories of selection as succeeded and as failed, and requests without room for them.
    pub selection_history: [Counter; 3],
    /// Questions to the judge of tools.
    pub judge: SelectionServiceMetrics,
    /// Questions to the service for embeddings.
    pub embeddings: SelectionServiceMetrics,
    /// Principals that are locked.
    pub locks: AtomicU64,
    /// Calls that were repeated because the connection to the server failed.
    pub upstream_retries: Counter,
    /// Calls that were refused because a budget is used up.
    pub budgets_exceeded: Counter,
    evaluations: Evaluations,
    overhead: Histogram,
    /// MCP operations, as clients see them and as upstream servers answer them.
    operations: OperationSeries,
    /// Durations of legacy sessions with clients.
    sessions: Histogram,
    /// The metrics of each upstream server, for as long as another part of the gateway holds them.
    servers: RwLock<Vec<Weak<ServerMetrics>>>,
    /// The tool and prompt names that are allowed as label values.
    names: AllowedNames,
    /// Requests that are in flight.
    pub in_flight: AtomicU64,
    /// Client connections that are open.
    pub connections: AtomicU64,
    /// Connections that were refused because the limit on all connections, or on those of one address, was reached.
    pub connections_refused: Counter,
    /// Failed attempts to accept a connection.
    pub accept_failures: Counter,
    /// Connections whose TLS handshake failed.
    pub handshakes_failed: Counter,
    /// HTTP/2 connections that were closed because the client exceeded the flood limits.
    pub http2_floods: Counter,
    /// Streams that were closed because the caller's authorization had ended.
    pub streams_cut: Counter,
    /// Connections to the operator's listener that were closed because there were too many.
    pub ops_refused: Counter,
    /// Serving threads that are blocked at the moment.
    pub workers_stalled: AtomicU64,
    /// How often a serving thread became blocked.
    pub worker_stalls: Counter,
    /// 1 while the process cannot open a file or start a thread, else 0.
    pub resources_lacking: AtomicU64,
    /// Failed attempts to read the revocation file.
    pub revocations_unread: Counter,
    /// Definition changes that were reported.
    pub definition_changes: Counter,
    /// Failed attempts to read the lockfile.
    pub lockfile_unread: Counter,
    /// 1 if the lockfile is usable, else 0.
    pub lockfile_usable: AtomicU64,
    /// The number of definitions of each server in each lockfile state.
    pins: ArcSwap<Vec<PinCount>>,
    /// 1 if the configuration is readable and not writable by anyone but its owner and group, else 0.
    pub config_usable: AtomicU64,
    /// 1 if the revocation file is readable, else 0.
    pub revocations_usable: AtomicU64,
    /// 1 while everything is revoked, else 0.
    pub everything_revoked: AtomicU64,
    /// When the certificate of each listener expires, in seconds since 1970.
    certificates: Vec<(Box<str>, AtomicU64)>,
    /// Counts of the messages that the inspection threads process.
    inspections: Arc<OffloadCounts>,
    /// Bytes of upstream answers that are held in memory.
    answers: Arc<ResponseAccounts>,
    /// Bytes of upstream lists that are cached for callers.
    lists: Arc<Shares<Arc<str>>>,
    /// Bytes that callers make the process hold, which `limits.memory` bounds.
    ceiling: Arc<Ceiling>,
    /// The cache of compiled schemas.
    schemas: Arc<SchemaCache>,
    /// Lists that lacked the part of at least one server.
    pub partial_lists: Counter,
    /// The lists of tools that routes have shown last.
    list_tokens: ListTokens,
    /// Audit records that a sink accepted.
    pub audit_records: Counter,
    /// Audit records that could not be written.
    pub audit_failures: Counter,
    /// 1 while a write to the audit log does not return, else 0.
    pub audit_write_stalled: AtomicU64,
    /// 1 while a sync of the audit log does not return or has failed, else 0.
    pub audit_sync_failing: AtomicU64,
    /// Requests that were recorded in a summary: of unauthenticated callers, and of callers that leave too many records.
    pub audit_summarised: Counter,
    /// Audit files that were removed within a day of being full.
    pub audit_young_files_removed: Counter,
    /// Audit files that were removed, replaced or truncated while in use.
    pub audit_files_lost: Counter,
    /// How often another process was found to have appended to an audit file.
    pub audit_foreign: Counter,
    /// Bytes of audit records that are not delivered yet.
    pub audit_held: AtomicU64,
    /// Bytes of checkpoints whose write to the checkpoint file is overdue.
    pub checkpoints_late: AtomicU64,
    /// Tokens that were obtained for upstream servers, and failed attempts.
    pub tokens: [Counter; 2],
    /// Secrets that were read again at run time, and failed attempts.
    pub secrets: [Counter; 2],
    /// The number of secrets in use whose last re-read failed.
    pub secrets_stale: AtomicU64,
    /// Spans that were exported, and spans that were lost.
    pub spans: [Counter; 2],
    /// OTLP exports that succeeded, and exports that failed.
    pub exports: [Counter; 2],
    /// Whether the last configuration reload succeeded, and when one last did.
    reload: [AtomicU64; 2],
    /// Whether the last self-test passed, and when it ran.
    selftest: [AtomicU64; 2],
}

/// The number of definitions of one server in one lockfile state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinCount {
    /// The name of the server.
    pub server: Box<str>,
    /// The state of the definitions in the lockfile.
    pub state: ApprovalState,
    /// The number of definitions.
    pub count: u64,
}

/// An MCP operation that ended, as the labels of its metrics.
#[derive(Clone, Copy, Debug)]
pub struct OperationLabels<'a> {
    /// The method as the peer sent it; `None` if there was none to read.
    pub method: Option<&'a str>,
    /// The tool or prompt by the name that its server gives it; [`OTHER`] if that is not known.
    pub name: Option<&'a str>,
    /// The upstream server, if the operation had one.
    pub server: Option<&'a str>,
    /// The protocol revision, if known.
    pub version: Option<&'static str>,
    /// The `error.type`; `None` on success.
    pub error: Option<&'static str>,
    /// The code of the JSON-RPC error, if the answer was one.
    pub code: Option<i32>,
}

impl Metrics {
    /// Metrics with every counter at zero; `started` is the start time that OTLP reports.
    #[must_use]
    pub fn new(started: SystemTime) -> Self {
        Self {
            started,
            outcomes: Default::default(),
            denials: std::array::from_fn(|_| Counter::default()),
            findings: std::array::from_fn(|_| Counter::default()),
            definition_findings: std::array::from_fn(|_| Counter::default()),
            credentials: std::array::from_fn(|_| Counter::default()),
            approvals: Default::default(),
            approvals_waiting: AtomicU64::new(0),
            approvals_usable: AtomicU64::new(1),
            decoys: Default::default(),
            discovery: Default::default(),
            selection_history: Default::default(),
            judge: SelectionServiceMetrics::default(),
            embeddings: SelectionServiceMetrics::default(),
            locks: AtomicU64::new(0),
            upstream_retries: Counter::default(),
            budgets_exceeded: Counter::default(),
            evaluations: Evaluations::default(),
            overhead: Histogram::new(&QUICK),
            operations: Default::default(),
            sessions: Histogram::operation(),
            servers: RwLock::default(),
            names: AllowedNames::default(),
            in_flight: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            connections_refused: Counter::default(),
            accept_failures: Counter::default(),
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
            list_tokens: ListTokens::default(),
            audit_records: Counter::default(),
            audit_failures: Counter::default(),
            audit_write_stalled: AtomicU64::new(0),
            audit_sync_failing: AtomicU64::new(0),
            audit_summarised: Counter::default(),
            audit_young_files_removed: Counter::default(),
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

    /// When counting began, which is the start time in OTLP.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// The metrics of the upstream server `name`, which are shared by all who hold them and begin anew once all are
    /// dropped.
    #[must_use]
    pub fn server(&self, name: &str) -> Arc<ServerMetrics> {
        let mut servers = self.servers.write().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|known| known.strong_count() > 0);
        let known = servers.iter().filter_map(Weak::upgrade).find(|known| *known.name == *name);
        if let Some(known) = known {
            return known;
        }
        let calls = Histogram::new(&QUICK);
        let server = Arc::new(ServerMetrics {
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

    /// The servers whose metrics are still held somewhere.
    fn servers(&self) -> Vec<Arc<ServerMetrics>> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Replaces the reported lockfile states.
    pub fn pinned(&self, pins: Vec<PinCount>) {
        self.pins.store(Arc::new(pins));
    }

    /// Notes the result of a self-test that ran at `now`.
    pub fn tested(&self, passed: bool, now: SystemTime) {
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let [last, time] = &self.selftest;
        last.store(u64::from(passed), Ordering::Relaxed);
        time.store(seconds, Ordering::Relaxed);
    }

    /// Counts one evaluation of each control in `ran`.
    pub fn ran(&self, ran: ControlSet) {
        self.evaluations.count(ran);
    }

    /// Replaces the tool and prompt names from the configuration that are allowed as label values.
    pub fn configured(&self, names: BTreeSet<Arc<str>>) {
        self.names.configured.store(Arc::new(names.into_iter().collect()));
    }

    /// Replaces the approved tool and prompt names that are allowed as label values: the first `PINNED` in
    /// alphabetical order.
    pub fn approved(&self, names: &BTreeSet<Arc<str>>) {
        self.names.pinned.store(Arc::new(names.iter().take(PINNED).cloned().collect()));
    }

    /// Notes that the configuration in force was loaded at `now`, and that no later one was rejected.
    pub fn reloaded(&self, now: SystemTime) {
        let [successful, when] = &self.reload;
        successful.store(1, Ordering::Relaxed);
        when.store(
            now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            Ordering::Relaxed,
        );
    }

    /// Notes that a new configuration was rejected. The time of the last success remains.
    pub fn reload_failed(&self) {
        let [successful, _] = &self.reload;
        successful.store(0, Ordering::Relaxed);
    }

    /// Counts a step of an approval.
    pub fn approval(&self, step: ApprovalStep) {
        if let Some(counter) = self.approvals.get(step as usize) {
            counter.add(1);
        }
    }

    /// Counts a decoy that a caller touched.
    pub fn decoy(&self, kind: DecoyKind) {
        if let Some(counter) = self.decoys.get(kind as usize) {
            counter.add(1);
        }
    }

    /// Counts a call of a tool of discovery.
    pub fn discovery(&self, tool: DiscoveryTool) {
        let place = DiscoveryTool::ALL.iter().position(|known| *known == tool);
        if let Some(counter) = place.and_then(|place| self.discovery.get(place)) {
            counter.add(1);
        }
    }

    /// Notes the tools of a server in a list that a route has shown. They are counted when metrics are read.
    pub fn note_list(&self, route: &Arc<str>, server: &str, tools: Arc<dyn ShownTools>) {
        self.list_tokens.note(route, server, tools);
    }

    /// Forgets the lists of routes and servers of which `is_kept` says that they are no longer there.
    pub fn keep_lists(&self, is_kept: impl Fn(&str, &str) -> bool) {
        self.list_tokens.keep(is_kept);
    }

    /// Counts the tokens of lists that were shown since the last time, beside the threads that serve clients.
    pub async fn count_lists(self: &Arc<Self>) {
        if !self.list_tokens.has_new() {
            return;
        }
        let metrics = Arc::clone(self);
        // Without a thread the former values are shown.
        drop(tokio::task::spawn_blocking(move || metrics.list_tokens.count()).await);
    }

    /// Counts an exchange that ended, the reason code if it was denied, and the time that it spent in the gateway.
    pub fn exchange(&self, outcome: ExchangeOutcome, denial: Option<&str>, gateway: Duration) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.add(1);
        }
        let codes = &policy::rules::decision::Reason::CODES;
        let at = denial.and_then(|code| codes.iter().position(|known| *known == code));
        if let Some(counter) = at.and_then(|at| self.denials.get(at)) {
            counter.add(1);
        }
        self.overhead.observe(gateway);
    }

    /// Records the duration of an operation as its client sees it, and as its upstream server does if one was
    /// called.
    pub fn operation(
        &self,
        what: &OperationLabels<'_>,
        time: Duration,
        upstream: Option<Duration>,
    ) {
        self.operations.observe(what, &self.names, time, upstream);
    }

    /// Records the duration of a client's legacy session that ended.
    pub fn session(&self, time: Duration) {
        self.sessions.observe(time);
    }

    /// Counts the findings of the content detectors.
    pub fn content<'a>(&self, findings: impl IntoIterator<Item = &'a Finding>) {
        for finding in findings {
            let at = Detector::CONTENT.iter().position(|known| *known == finding.detector);
            if let Some(counter) = at.and_then(|at| self.findings.get(at)) {
                counter.add(1);
            }
        }
    }

    /// Counts a finding in a definition that is reported.
    pub fn in_definition(&self, finding: &Finding) {
        let at = Detector::OF_DEFINITIONS.iter().position(|known| *known == finding.detector);
        if let Some(counter) = at.and_then(|at| self.definition_findings.get(at)) {
            counter.add(1);
        }
    }

    /// Reports the certificates of these listeners.
    #[must_use]
    pub fn with_certificates<'a>(self, listeners: impl IntoIterator<Item = &'a str>) -> Self {
        let listener = |name: &str| (name.into(), AtomicU64::new(0));
        Self { certificates: listeners.into_iter().map(listener).collect(), ..self }
    }

    /// Reports these counts of the inspection threads.
    #[must_use]
    pub fn with_inspections(self, inspections: Arc<OffloadCounts>) -> Self {
        Self { inspections, ..self }
    }

    /// Reports these counts of the bytes of upstream answers.
    #[must_use]
    pub fn with_answers(self, answers: Arc<ResponseAccounts>) -> Self {
        Self { answers, ..self }
    }

    /// Reports these counts of the bytes of cached lists.
    #[must_use]
    pub fn with_lists(self, lists: Arc<Shares<Arc<str>>>) -> Self {
        Self { lists, ..self }
    }

    /// Reports the bytes that this ceiling counts as held for callers.
    #[must_use]
    pub fn with_ceiling(self, ceiling: Arc<Ceiling>) -> Self {
        Self { ceiling, ..self }
    }

    /// Reports the size of this cache of compiled schemas.
    #[must_use]
    pub fn with_schemas(self, schemas: Arc<SchemaCache>) -> Self {
        Self { schemas, ..self }
    }

    /// Notes when the certificate of a listener expires, in seconds since 1970.
    pub fn certificate(&self, listener: &str, ends: u64) {
        let found = self.certificates.iter().find(|(name, _)| **name == *listener);
        if let Some((_, known)) = found {
            known.store(ends, Ordering::Relaxed);
        }
    }

    /// The servers that could not be reached at the last attempt.
    #[must_use]
    pub fn unreached(&self) -> Vec<Box<str>> {
        let servers = self.servers();
        let down = servers.iter().filter(|server| server.up.load(Ordering::Relaxed) == 0);
        down.map(|server| server.name.clone()).collect()
    }

    /// Counts a credential that failed a check.
    pub fn credential_refused(&self, detail: CredentialCheck) {
        if let Some(counter) = self.credentials.get(detail as usize) {
            counter.add(1);
        }
    }

    /// All metrics with their values at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Vec<MetricFamily> {
        let servers = self.servers();
        table::TABLE.iter().map(|metric| metric.read(self, &servers)).collect()
    }

    /// All metrics in the Prometheus text format, version 0.0.4.
    #[must_use]
    pub fn text(&self) -> String {
        exposition::text(self.snapshot())
    }
}
