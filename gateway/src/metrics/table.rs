//! The declared table of all metrics: the name, unit and help of each, and how it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use detection::inspect::Detector;

use super::approval_step::ApprovalStep;
use super::credential_check::CredentialCheck;
use super::decoy_kind::DecoyKind;
use super::outcome::ExchangeOutcome;
use super::selection_outcome::SelectionOutcome;
use super::{
    Counter, Histogram, Labels, MetricFamily, MetricValue, Metrics, SelectionServiceMetrics,
    ServerMetrics,
};
use crate::mcp::discovery_tools::DiscoveryTool;

/// The data points of a metric.
type DataPoints = Vec<(Labels, MetricValue)>;

/// A metric of the table.
pub(super) struct MetricDefinition {
    /// The name in OpenTelemetry's spelling.
    name: &'static str,
    /// The unit in UCUM notation; empty for a plain number.
    unit: &'static str,
    help: &'static str,
    source: MetricSource,
}

/// The kind of a metric, and where its values are.
enum MetricSource {
    /// A counter of [`Metrics`].
    Count(fn(&Metrics) -> &Counter),
    /// A counter that another part of the gateway keeps.
    Sum(fn(&Metrics) -> u64),
    /// A gauge of [`Metrics`], which holds its last value.
    Level(fn(&Metrics) -> &AtomicU64),
    /// A gauge that another part of the gateway keeps.
    Gauge(fn(&Metrics) -> u64),
    /// A histogram of durations, in seconds.
    Durations(fn(&Metrics) -> &Histogram),
    /// A pair of counters: of what succeeded, and of what failed.
    Results(fn(&Metrics) -> &[Counter; 2]),
    /// A value of each upstream server, by its name.
    OfServers(fn(&ServerMetrics) -> MetricValue),
    /// The data points of each upstream server.
    EachServer(fn(&ServerMetrics) -> DataPoints),
    /// Data points with labels of their own.
    Points(fn(&Metrics) -> DataPoints),
}

impl MetricDefinition {
    /// The metric with its values at this moment; `servers` are those whose metrics are held.
    pub(super) fn read(&self, metrics: &Metrics, servers: &[Arc<ServerMetrics>]) -> MetricFamily {
        let Self { name, unit, help, source } = self;
        MetricFamily { name, unit, help, points: source.points(metrics, servers) }
    }
}

impl MetricSource {
    fn points(&self, metrics: &Metrics, servers: &[Arc<ServerMetrics>]) -> DataPoints {
        let one = |value: MetricValue| vec![(Labels::new(), value)];
        match self {
            Self::Count(counter) => one(sum(counter(metrics))),
            Self::Sum(value) => one(MetricValue::Sum(value(metrics))),
            Self::Level(value) => one(gauge(value(metrics))),
            Self::Gauge(value) => one(MetricValue::Gauge(value(metrics))),
            Self::Durations(histogram) => one(histogram(metrics).read()),
            Self::Results(counters) => {
                let named = ["success", "failure"].into_iter().zip(counters(metrics));
                named.map(|(name, counter)| (vec![("result", name.into())], sum(counter))).collect()
            }
            Self::OfServers(value) => {
                let point = |server: &Arc<ServerMetrics>| {
                    (vec![("server", server.name.clone())], value(server))
                };
                servers.iter().map(point).collect()
            }
            Self::EachServer(points) => servers.iter().flat_map(|server| points(server)).collect(),
            Self::Points(points) => points(metrics),
        }
    }
}

/// All metrics, in the order in which they are shown.
pub(super) const TABLE: &[MetricDefinition] = &[
    MetricDefinition {
        name: "portcullis.build_info",
        unit: "",
        help: "The running version.",
        source: MetricSource::Points(version),
    },
    MetricDefinition {
        name: "mcp.server.operation.duration",
        unit: "s",
        help: "Operations of MCP as clients see them.",
        source: MetricSource::Points(|m| m.operations.of_clients()),
    },
    MetricDefinition {
        name: "mcp.client.operation.duration",
        unit: "s",
        help: "Operations of MCP as the servers behind the gateway answer them.",
        source: MetricSource::Points(|m| m.operations.of_servers()),
    },
    MetricDefinition {
        name: "mcp.server.session.duration",
        unit: "s",
        help: "Legacy sessions that their clients have ended.",
        source: MetricSource::Durations(|m| &m.sessions),
    },
    MetricDefinition {
        name: "mcp.client.session.duration",
        unit: "s",
        help: "Legacy sessions with servers that are over.",
        source: MetricSource::EachServer(ServerMetrics::sessions),
    },
    MetricDefinition {
        name: "portcullis.exchanges",
        unit: "",
        help: "Exchanges, by how they ended.",
        source: MetricSource::Points(exchanges),
    },
    MetricDefinition {
        name: "portcullis.denials",
        unit: "",
        help: "Denials of the policy, by reason code.",
        source: MetricSource::Points(denials),
    },
    MetricDefinition {
        name: "portcullis.credentials_refused",
        unit: "",
        help: "Credentials that were refused, by the check they did not pass.",
        source: MetricSource::Points(credentials),
    },
    MetricDefinition {
        name: "portcullis.approvals",
        unit: "",
        help: "Questions to people whether a call may be made, by what happened to them.",
        source: MetricSource::Points(approvals),
    },
    MetricDefinition {
        name: "portcullis.approvals_waiting",
        unit: "",
        help: "Questions about calls that wait for an answer.",
        source: MetricSource::Level(|m| &m.approvals_waiting),
    },
    MetricDefinition {
        name: "portcullis.approvals_usable",
        unit: "",
        help: "Whether the file of approvals can be written; otherwise no call that needs an approval is made.",
        source: MetricSource::Level(|m| &m.approvals_usable),
    },
    MetricDefinition {
        name: "portcullis.upstream_retries",
        unit: "",
        help: "Calls that were repeated because the connection to the server failed.",
        source: MetricSource::Count(|m| &m.upstream_retries),
    },
    MetricDefinition {
        name: "portcullis.budgets_exceeded",
        unit: "",
        help: "Calls that were refused because a budget is used up.",
        source: MetricSource::Count(|m| &m.budgets_exceeded),
    },
    MetricDefinition {
        name: "portcullis.decoys",
        unit: "",
        help: "Decoys that callers touched, by kind.",
        source: MetricSource::Points(decoys),
    },
    MetricDefinition {
        name: "portcullis.locked_principals",
        unit: "",
        help: "Principals to whom everything is refused because they touched a decoy.",
        source: MetricSource::Level(|m| &m.locks),
    },
    MetricDefinition {
        name: "portcullis.discovery_calls",
        unit: "",
        help: "Calls of the tools by which models find and call tools.",
        source: MetricSource::Points(discovery),
    },
    MetricDefinition {
        name: "portcullis.list_tokens",
        unit: "",
        help: "Tokens that the tools of a server take in the last list of a route, as it shows them and in full.",
        source: MetricSource::Points(|m| m.list_tokens.points()),
    },
    MetricDefinition {
        name: "portcullis.selection_history",
        unit: "",
        help: "Calls that were counted for a request for tools, by whether they succeeded, and requests without room.",
        source: MetricSource::Points(selection_history),
    },
    MetricDefinition {
        name: "portcullis.selection_judge",
        unit: "",
        help: "Questions to the judge of tools, by what came of them.",
        source: MetricSource::Points(|m| selection(&m.judge)),
    },
    MetricDefinition {
        name: "portcullis.selection_judge_duration",
        unit: "s",
        help: "How long the judge of tools took for an answer.",
        source: MetricSource::Durations(|m| &m.judge.times),
    },
    MetricDefinition {
        name: "portcullis.selection_embeddings",
        unit: "",
        help: "Questions for embeddings of requests and definitions, by what came of them.",
        source: MetricSource::Points(|m| selection(&m.embeddings)),
    },
    MetricDefinition {
        name: "portcullis.selection_embeddings_duration",
        unit: "s",
        help: "How long the service for embeddings took for an answer.",
        source: MetricSource::Durations(|m| &m.embeddings.times),
    },
    MetricDefinition {
        name: "portcullis.content_findings",
        unit: "",
        help: "What was found in results and arguments, by detector.",
        source: MetricSource::Points(findings),
    },
    MetricDefinition {
        name: "portcullis.control_evaluations",
        unit: "",
        help: "How often each control was asked.",
        source: MetricSource::Points(evaluations),
    },
    MetricDefinition {
        name: "portcullis.gateway.duration",
        unit: "s",
        help: "Time in the gateway, without its servers.",
        source: MetricSource::Durations(|m| &m.overhead),
    },
    MetricDefinition {
        name: "portcullis.upstream.duration",
        unit: "s",
        help: "Time a server took for one answer.",
        source: MetricSource::OfServers(|server| server.calls.read()),
    },
    MetricDefinition {
        name: "portcullis.upstream_up",
        unit: "",
        help: "Whether the server was reached when last tried.",
        source: MetricSource::OfServers(|server| gauge(&server.up)),
    },
    MetricDefinition {
        name: "portcullis.circuit_breaker_open",
        unit: "",
        help: "Whether the circuit breaker of the server is open.",
        source: MetricSource::OfServers(|server| MetricValue::Gauge(server.is_open().into())),
    },
    MetricDefinition {
        name: "portcullis.circuit_breaker_openings",
        unit: "",
        help: "Times the circuit breaker of the server opened.",
        source: MetricSource::OfServers(|server| sum(&server.opened)),
    },
    MetricDefinition {
        name: "portcullis.upstream_log_suppressed",
        unit: "",
        help: "Lines of the log that the server caused and that were not written.",
        source: MetricSource::OfServers(|server| sum(&server.suppressed)),
    },
    MetricDefinition {
        name: "portcullis.progress_dropped",
        unit: "",
        help: "Progress notifications of the server that belonged to no request under way, or for which there was no room.",
        source: MetricSource::OfServers(|server| sum(&server.progress_dropped)),
    },
    MetricDefinition {
        name: "portcullis.notifications_dropped",
        unit: "",
        help: "Progress and log messages of the server for a call that were dropped because too many of them waited, \
                 or because the call waits for its client.",
        source: MetricSource::OfServers(|server| sum(&server.notifications_dropped)),
    },
    MetricDefinition {
        name: "portcullis.upstream_send_queue",
        unit: "By",
        help: "Bytes of messages that wait to be sent to the server, or are being sent.",
        source: MetricSource::OfServers(|server| gauge(&server.unsent)),
    },
    MetricDefinition {
        name: "portcullis.upstream_send_queue_rejected",
        unit: "",
        help: "Messages that were refused because too many bytes waited to be sent to the server.",
        source: MetricSource::OfServers(|server| sum(&server.not_queued)),
    },
    MetricDefinition {
        name: "portcullis.upstream_channels_stalled",
        unit: "",
        help: "Channels that were ended because the server took nothing of what was sent to it.",
        source: MetricSource::OfServers(|server| sum(&server.stalls)),
    },
    MetricDefinition {
        name: "portcullis.in_flight",
        unit: "",
        help: "Requests being worked on.",
        source: MetricSource::Level(|m| &m.in_flight),
    },
    MetricDefinition {
        name: "portcullis.connections",
        unit: "",
        help: "Connections of clients.",
        source: MetricSource::Level(|m| &m.connections),
    },
    MetricDefinition {
        name: "portcullis.response_memory",
        unit: "By",
        help: "Bytes of answers of servers that are being read or looked at, or wait for their clients to read them.",
        source: MetricSource::Gauge(|m| m.answers.bytes() as u64),
    },
    MetricDefinition {
        name: "portcullis.responses_dropped",
        unit: "",
        help: "Answers of servers that were given up because too many bytes were being read.",
        source: MetricSource::Sum(|m| m.answers.refused()),
    },
    MetricDefinition {
        name: "portcullis.caller_memory",
        unit: "By",
        help: "Bytes that callers make the gateway hold, of which limits.memory is the bound.",
        source: MetricSource::Gauge(|m| m.ceiling.taken() as u64),
    },
    MetricDefinition {
        name: "portcullis.catalog_memory",
        unit: "By",
        help: "Bytes of lists of servers that are kept for callers, as they are estimated.",
        source: MetricSource::Gauge(|m| m.lists.taken() as u64),
    },
    MetricDefinition {
        name: "portcullis.schema_memory",
        unit: "By",
        help: "Bytes of schemas that are kept compiled, as they are estimated.",
        source: MetricSource::Gauge(|m| m.schemas.bytes() as u64),
    },
    MetricDefinition {
        name: "portcullis.schemas_compiled",
        unit: "",
        help: "Schemas that were compiled, again as well.",
        source: MetricSource::Sum(|m| m.schemas.compilations()),
    },
    MetricDefinition {
        name: "portcullis.inspections_in_flight",
        unit: "",
        help: "Messages that are inspected beside the threads that serve clients, or wait for it.",
        source: MetricSource::Gauge(|m| m.inspections.in_flight()),
    },
    MetricDefinition {
        name: "portcullis.inspections_offloaded",
        unit: "",
        help: "Messages that were given to the threads that inspect beside those that serve.",
        source: MetricSource::Sum(|m| m.inspections.offloaded()),
    },
    MetricDefinition {
        name: "portcullis.inspections_refused",
        unit: "",
        help: "Messages that were withheld because too many bytes were being inspected.",
        source: MetricSource::Sum(|m| m.inspections.refused()),
    },
    MetricDefinition {
        name: "portcullis.workers_stalled",
        unit: "",
        help: "Serving threads that have not been at work for two seconds; liveness is red meanwhile.",
        source: MetricSource::Level(|m| &m.workers_stalled),
    },
    MetricDefinition {
        name: "portcullis.process_limit_reached",
        unit: "",
        help: "1 while the process can open no file or start no thread; readiness is red meanwhile.",
        source: MetricSource::Level(|m| &m.resources_lacking),
    },
    MetricDefinition {
        name: "portcullis.audit_spool",
        unit: "By",
        help: "Bytes of records that are not delivered yet.",
        source: MetricSource::Level(|m| &m.audit_held),
    },
    MetricDefinition {
        name: "portcullis.audit_checkpoints_late",
        unit: "By",
        help: "Bytes of checkpoints that should be in their file by now and are not.",
        source: MetricSource::Level(|m| &m.checkpoints_late),
    },
    MetricDefinition {
        name: "portcullis.certificate_expiry_timestamp",
        unit: "s",
        help: "When the certificate of the listener ends.",
        source: MetricSource::Points(certificates),
    },
    MetricDefinition {
        name: "portcullis.config_last_reload_successful",
        unit: "",
        help: "Whether the last change of the configuration was applied.",
        source: MetricSource::Level(|m| {
            let [successful, _] = &m.reload;
            successful
        }),
    },
    MetricDefinition {
        name: "portcullis.config_last_reload_success_timestamp",
        unit: "s",
        help: "When a configuration was last applied.",
        source: MetricSource::Level(|m| {
            let [_, when] = &m.reload;
            when
        }),
    },
    MetricDefinition {
        name: "portcullis.definitions",
        unit: "",
        help: "Definitions in the lockfile, by server and state; what servers say of themselves is not counted.",
        source: MetricSource::Points(pins),
    },
    MetricDefinition {
        name: "portcullis.lockfile_usable",
        unit: "",
        help: "Whether the lockfile can be used; otherwise nothing is approved.",
        source: MetricSource::Level(|m| &m.lockfile_usable),
    },
    MetricDefinition {
        name: "portcullis.config_usable",
        unit: "",
        help: "Whether the configuration can be read and is not writable by all users; otherwise the previous one \
               stays active.",
        source: MetricSource::Level(|m| &m.config_usable),
    },
    MetricDefinition {
        name: "portcullis.revocations_usable",
        unit: "",
        help: "Whether the revocations file can be read; otherwise the previous revocations stay in force.",
        source: MetricSource::Level(|m| &m.revocations_usable),
    },
    MetricDefinition {
        name: "portcullis.everything_revoked",
        unit: "",
        help: "Whether everything is revoked: no caller is served and no server is used.",
        source: MetricSource::Level(|m| &m.everything_revoked),
    },
    MetricDefinition {
        name: "portcullis.selftest_passed",
        unit: "",
        help: "Whether the last self-test has passed.",
        source: MetricSource::Level(|m| {
            let [passed, _] = &m.selftest;
            passed
        }),
    },
    MetricDefinition {
        name: "portcullis.selftest_timestamp",
        unit: "s",
        help: "When the last self-test was.",
        source: MetricSource::Level(|m| {
            let [_, when] = &m.selftest;
            when
        }),
    },
    MetricDefinition {
        name: "portcullis.token_requests",
        unit: "",
        help: "Tokens that were asked for to be shown to servers.",
        source: MetricSource::Results(|m| &m.tokens),
    },
    MetricDefinition {
        name: "portcullis.secret_reads",
        unit: "",
        help: "Secrets that were read again while the gateway runs.",
        source: MetricSource::Results(|m| &m.secrets),
    },
    MetricDefinition {
        name: "portcullis.secrets_stale",
        unit: "",
        help: "Secrets that are used although they could not be read again.",
        source: MetricSource::Level(|m| &m.secrets_stale),
    },
    MetricDefinition {
        name: "portcullis.spans",
        unit: "",
        help: "Spans, sent and lost.",
        source: MetricSource::Results(|m| &m.spans),
    },
    MetricDefinition {
        name: "portcullis.otlp_exports",
        unit: "",
        help: "Times that OTLP was sent.",
        source: MetricSource::Results(|m| &m.exports),
    },
    MetricDefinition {
        name: "portcullis.streams_revoked",
        unit: "",
        help: "Streams that were cut because the right to them had ended.",
        source: MetricSource::Count(|m| &m.streams_cut),
    },
    MetricDefinition {
        name: "portcullis.worker_stalls",
        unit: "",
        help: "How often a serving thread has stalled.",
        source: MetricSource::Count(|m| &m.worker_stalls),
    },
    MetricDefinition {
        name: "portcullis.ops_connections_refused",
        unit: "",
        help: "Connections to the operator's listener that were closed because there were too many.",
        source: MetricSource::Count(|m| &m.ops_refused),
    },
    MetricDefinition {
        name: "portcullis.revocations_read_failures",
        unit: "",
        help: "Files of revocations that could not be read.",
        source: MetricSource::Count(|m| &m.revocations_unread),
    },
    MetricDefinition {
        name: "portcullis.definition_findings",
        unit: "",
        help: "What was found in definitions and in what servers say of themselves, each finding counted once, by detector.",
        source: MetricSource::Points(definition_findings),
    },
    MetricDefinition {
        name: "portcullis.definition_changes",
        unit: "",
        help: "Definitions that are not as they were approved, each change counted once.",
        source: MetricSource::Count(|m| &m.definition_changes),
    },
    MetricDefinition {
        name: "portcullis.lockfile_read_failures",
        unit: "",
        help: "Lockfiles that could not be used; nothing is approved meanwhile.",
        source: MetricSource::Count(|m| &m.lockfile_unread),
    },
    MetricDefinition {
        name: "portcullis.connections_refused",
        unit: "",
        help: "Connections that were refused because all, or those of one address, were taken.",
        source: MetricSource::Count(|m| &m.connections_refused),
    },
    MetricDefinition {
        name: "portcullis.accept_failures",
        unit: "",
        help: "Failed attempts to accept a connection, as when no more files can be opened.",
        source: MetricSource::Count(|m| &m.accept_failures),
    },
    MetricDefinition {
        name: "portcullis.tls_handshake_failures",
        unit: "",
        help: "Connections on which no TLS could be agreed on.",
        source: MetricSource::Count(|m| &m.handshakes_failed),
    },
    MetricDefinition {
        name: "portcullis.http2_flood_closes",
        unit: "",
        help: "Connections of HTTP/2 that were closed because they exceeded a flood limit.",
        source: MetricSource::Count(|m| &m.http2_floods),
    },
    MetricDefinition {
        name: "portcullis.list_servers_missing",
        unit: "",
        help: "Lists that lacked the part of a server, by server missing.",
        source: MetricSource::Count(|m| &m.partial_lists),
    },
    MetricDefinition {
        name: "portcullis.audit_records",
        unit: "",
        help: "Audit records that all sinks accepted.",
        source: MetricSource::Count(|m| &m.audit_records),
    },
    MetricDefinition {
        name: "portcullis.audit_failures",
        unit: "",
        help: "Audit records that a sink refused.",
        source: MetricSource::Count(|m| &m.audit_failures),
    },
    MetricDefinition {
        name: "portcullis.audit_write_stalled",
        unit: "",
        help: "Whether a write to the audit log does not return, so that requests are refused.",
        source: MetricSource::Level(|m| &m.audit_write_stalled),
    },
    MetricDefinition {
        name: "portcullis.audit_sync_failing",
        unit: "",
        help: "Whether a sync of the audit log does not return or has failed, so that records may be lost in a crash \
               of the machine.",
        source: MetricSource::Level(|m| &m.audit_sync_failing),
    },
    MetricDefinition {
        name: "portcullis.audit_refusals_summarised",
        unit: "",
        help: "Requests of unknown callers, and of callers that leave too many records, that were recorded together and not one by one.",
        source: MetricSource::Count(|m| &m.audit_summarised),
    },
    MetricDefinition {
        name: "portcullis.audit_young_files_removed",
        unit: "",
        help: "Files of records that `maxFiles` has removed less than a day after they were full.",
        source: MetricSource::Count(|m| &m.audit_young_files_removed),
    },
    MetricDefinition {
        name: "portcullis.audit_files_lost",
        unit: "",
        help: "Files of records that were removed, replaced or cut while they were written to.",
        source: MetricSource::Count(|m| &m.audit_files_lost),
    },
    MetricDefinition {
        name: "portcullis.audit_foreign_appends",
        unit: "",
        help: "Times that somebody else was found to have appended to a file of records.",
        source: MetricSource::Count(|m| &m.audit_foreign),
    },
];

fn gauge(value: &AtomicU64) -> MetricValue {
    MetricValue::Gauge(value.load(Ordering::Relaxed))
}

fn sum(counter: &Counter) -> MetricValue {
    MetricValue::Sum(counter.get())
}

/// The counters of a closed set, with the value that each has for the label `key`.
fn by_label<'a>(
    key: &'static str,
    values: impl IntoIterator<Item = &'static str>,
    counters: impl IntoIterator<Item = &'a Counter>,
) -> DataPoints {
    let named = values.into_iter().zip(counters);
    named.map(|(value, counter)| (vec![(key, value.into())], sum(counter))).collect()
}

fn version(_: &Metrics) -> DataPoints {
    vec![(vec![("version", env!("CARGO_PKG_VERSION").into())], MetricValue::Gauge(1))]
}

fn exchanges(metrics: &Metrics) -> DataPoints {
    let outcomes = ExchangeOutcome::ALL.iter().map(|outcome| outcome.as_str());
    by_label("outcome", outcomes, &metrics.outcomes)
}

fn denials(metrics: &Metrics) -> DataPoints {
    let codes = policy::rules::decision::Reason::CODES.iter().copied();
    by_label("reason", codes, &metrics.denials)
}

fn approvals(metrics: &Metrics) -> DataPoints {
    let steps = ApprovalStep::ALL.iter().map(|step| step.as_str());
    by_label("step", steps, &metrics.approvals)
}

fn decoys(metrics: &Metrics) -> DataPoints {
    let kinds = DecoyKind::ALL.iter().map(|kind| kind.as_str());
    by_label("kind", kinds, &metrics.decoys)
}

fn discovery(metrics: &Metrics) -> DataPoints {
    let tools = DiscoveryTool::ALL.iter().map(|tool| tool.name());
    by_label("tool", tools, &metrics.discovery)
}

fn selection_history(metrics: &Metrics) -> DataPoints {
    by_label("outcome", ["succeeded", "failed", "full"], &metrics.selection_history)
}

/// Only what has happened: most outcomes are of one of the services alone.
fn selection(service: &SelectionServiceMetrics) -> DataPoints {
    let outcomes = SelectionOutcome::ALL.iter().map(|outcome| outcome.as_str());
    let mut points = by_label("outcome", outcomes, &service.outcomes);
    points.retain(|(_, value)| *value != MetricValue::Sum(0));
    points
}

fn credentials(metrics: &Metrics) -> DataPoints {
    let checks = CredentialCheck::ALL.iter().map(|check| check.code());
    by_label("detail", checks, &metrics.credentials)
}

fn findings(metrics: &Metrics) -> DataPoints {
    let detectors = Detector::CONTENT.iter().map(|detector| detector.name());
    by_label("detector", detectors, &metrics.findings)
}

fn definition_findings(metrics: &Metrics) -> DataPoints {
    let detectors = Detector::OF_DEFINITIONS.iter().map(|detector| detector.name());
    by_label("detector", detectors, &metrics.definition_findings)
}

fn evaluations(metrics: &Metrics) -> DataPoints {
    let evaluated = metrics.evaluations.read();
    let labels = |name: &str| vec![("control", name.into())];
    evaluated.map(|(control, n)| (labels(control.as_str()), MetricValue::Sum(n))).collect()
}

fn certificates(metrics: &Metrics) -> DataPoints {
    let listeners = metrics.certificates.iter();
    listeners.map(|(name, ends)| (vec![("listener", name.clone())], gauge(ends))).collect()
}

fn pins(metrics: &Metrics) -> DataPoints {
    let pins = metrics.pins.load();
    let labels =
        |server: &str, state: &str| vec![("server", server.into()), ("state", state.into())];
    let point = |pin: &super::PinCount| {
        (labels(&pin.server, pin.state.as_str()), MetricValue::Gauge(pin.count))
    };
    pins.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::TABLE;
    use std::collections::BTreeSet;

    #[test]
    fn every_metric_is_declared_once() {
        let names: BTreeSet<_> = TABLE.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), TABLE.len());
    }
}
