//! Exports records as log records over OTLP, with the log exporter of `opentelemetry_otlp`. The body is the record as it
//! is in the file, so that collected records can be verified; attributes repeat the members that queries use.
//!
//! The exporter encodes and sends, once. The queue, the order and the retries are those of every other sink, because the
//! batch processor of the SDK drops what it has no room for.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use audit_log::chain::read;
use bytes::Bytes;
use json::{Document, Value};
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry::{InstrumentationScope, KeyValue, SpanId, TraceId};
use opentelemetry_otlp::{LogExporter, RetryPolicy, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{
    LogBatch, LogExporter as _, SdkLogRecord, SdkLogger, SdkLoggerProvider,
};

use crate::outbound::otlp::OtlpClient;

/// The name of the instrumentation scope.
const SCOPE: &str = "portcullis.audit";

/// Members of a record that become attributes, and the names of those attributes.
const BESIDE: [(&str, &str); 9] = [
    ("outcome", "portcullis.outcome"),
    ("reason", "error.type"),
    ("rule", "portcullis.rule"),
    ("principal", "enduser.id"),
    ("method", "mcp.method.name"),
    ("server", "portcullis.server"),
    ("tool", "gen_ai.tool.name"),
    ("route", "http.route"),
    ("id", "portcullis.record.id"),
];

/// The event name of the log record for each event: those of `docs/audit.md`.
const EVENTS: [(&str, &str); 24] = [
    ("applied", "portcullis.audit.applied"),
    ("approval", "portcullis.audit.approval"),
    ("began", "portcullis.audit.began"),
    ("checkpoint", "portcullis.audit.checkpoint"),
    ("definition", "portcullis.audit.definition"),
    ("exchange", "portcullis.audit.exchange"),
    ("foreign", "portcullis.audit.foreign"),
    ("gap", "portcullis.audit.gap"),
    ("intent", "portcullis.audit.intent"),
    ("lost", "portcullis.audit.lost"),
    ("opened", "portcullis.audit.opened"),
    ("pins", "portcullis.audit.pins"),
    ("probe", "portcullis.audit.probe"),
    ("refusals", "portcullis.audit.refusals"),
    ("reinstated", "portcullis.audit.reinstated"),
    ("rejected", "portcullis.audit.rejected"),
    ("renamed", "portcullis.audit.renamed"),
    ("retired", "portcullis.audit.retired"),
    ("revoked", "portcullis.audit.revoked"),
    ("sandbox", "portcullis.audit.sandbox"),
    ("selftest", "portcullis.audit.selftest"),
    ("shadowing", "portcullis.audit.shadowing"),
    ("start", "portcullis.audit.start"),
    ("stop", "portcullis.audit.stop"),
];

/// Exports records to a collector.
#[derive(Debug)]
pub struct RecordExporter {
    exporter: LogExporter,
    client: Arc<OtlpClient>,
    scope: InstrumentationScope,
    /// Makes records of the SDK; nothing is emitted to it.
    logger: SdkLogger,
}

impl RecordExporter {
    /// An exporter that sends through `client`.
    ///
    /// # Errors
    /// If the SDK cannot make one.
    pub fn new(client: OtlpClient) -> io::Result<Self> {
        let client = Arc::new(client);
        // The exporter wants a URL and would take that of the environment. `client` has the one in force.
        let exporter = LogExporter::builder()
            .with_http()
            .with_shared_http_client(Arc::<OtlpClient>::clone(&client))
            .with_endpoint("http://localhost")
            .with_timeout(client.endpoint.time())
            .with_retry_policy(RetryPolicy::disabled())
            .build();
        let mut exporter = exporter.map_err(io::Error::other)?;
        let name = KeyValue::new("service.name", "portcullis");
        exporter.set_resource(&Resource::builder_empty().with_attribute(name).build());
        let version = env!("CARGO_PKG_VERSION");
        let scope = InstrumentationScope::builder(SCOPE).with_version(version).build();
        let logger = SdkLoggerProvider::builder().build().logger(SCOPE);
        Ok(Self { exporter, client, scope, logger })
    }

    /// Sends lines of the log as one export request. Returns the number of records that the collector accepted and threw
    /// away.
    ///
    /// # Errors
    /// If the collector did not accept the request, with the reason.
    pub(super) async fn export(&self, lines: &[Bytes]) -> Result<u64, String> {
        let records: Vec<_> = lines.iter().filter_map(|line| self.record(line)).collect();
        let batch: Vec<_> = records.iter().map(|record| (record, &self.scope)).collect();
        let sent = self.exporter.export(LogBatch::new(&batch)).await;
        let reply = self.client.last();
        match sent {
            Ok(()) => Ok(reply.rejected),
            Err(error) => Err(reply.error.unwrap_or_else(|| error.to_string())),
        }
    }

    fn record(&self, line: &Bytes) -> Option<SdkLogRecord> {
        let line = line.trim_ascii_end();
        let document = read(line)?;
        let root = document.root();
        let text = |name: &str| root.get(name).and_then(Value::as_str).map(String::from);
        let event = text("event").unwrap_or_default();
        let time = text("time").and_then(|time| humantime::parse_rfc3339(&time).ok());
        let time: SystemTime = time.unwrap_or(UNIX_EPOCH);
        let denied = matches!(text("outcome").as_deref(), Some("denied" | "refused" | "failed"));
        let mut record = self.logger.create_log_record();
        record.set_timestamp(time);
        record.set_observed_timestamp(time);
        record.set_severity_number(if denied { Severity::Warn } else { Severity::Info });
        record.set_severity_text(if denied { "WARN" } else { "INFO" });
        record.set_body(AnyValue::from(std::str::from_utf8(line).ok()?.to_owned()));
        for (name, called) in BESIDE {
            if let Some(text) = text(name) {
                record.add_attribute(called, text);
            }
        }
        if let Some((_, name)) = EVENTS.iter().find(|(known, _)| *known == event) {
            record.set_event_name(name);
        }
        if let Some(trace) = id(&document, "trace", TraceId::from_hex) {
            let span = id(&document, "span", SpanId::from_hex).unwrap_or(SpanId::INVALID);
            record.set_trace_context(trace, span, None);
        }
        Some(record)
    }
}

/// The hexadecimal id in a member of a record; `None` if it is absent.
fn id<T, E>(document: &Document, name: &str, read: fn(&str) -> Result<T, E>) -> Option<T> {
    let text = document.root().get(name).and_then(Value::as_str)?;
    read(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::EVENTS;
    use std::collections::BTreeSet;

    #[test]
    fn every_event_of_the_documentation_has_a_name() {
        let page = include_str!("../../../docs/audit.md");
        let table = page.split("| event | when |\n|---|---|\n").nth(1).unwrap();
        let rows = table.lines().take_while(|line| line.starts_with('|'));
        let cells = rows.map(|row| row.split('|').nth(1).unwrap());
        let documented: BTreeSet<_> =
            cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let named: BTreeSet<_> = EVENTS.iter().map(|(event, _)| *event).collect();
        assert_eq!(named, documented);
        for (event, name) in EVENTS {
            assert_eq!(name, format!("portcullis.audit.{event}"));
        }
    }
}
