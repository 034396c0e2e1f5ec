//! Converts records to OTLP 1 log records. The body is the record as it is in the file, so that collected records can
//! be verified; attributes repeat the members that queries use.

use std::time::{SystemTime, UNIX_EPOCH};

use audit_log::chain::read;
use bytes::Bytes;
use json::hex;
use json::{Document, Value};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

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

/// Encodes lines of the log as one export request.
pub(super) fn request(lines: &[Bytes]) -> Vec<u8> {
    let log_records = lines.iter().filter_map(record).collect();
    let scope = Some(InstrumentationScope {
        name: "portcullis.audit".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    });
    let scope_logs = vec![ScopeLogs { scope, log_records, ..ScopeLogs::default() }];
    let attributes = vec![named("service.name", "portcullis")];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_logs = vec![ResourceLogs { resource, scope_logs, ..ResourceLogs::default() }];
    ExportLogsServiceRequest { resource_logs }.encode_to_vec()
}

/// The number of records that the receiver rejected; OTLP does not allow sending them again.
pub(super) fn rejected(answer: Bytes) -> i64 {
    let answer = ExportLogsServiceResponse::decode(answer).ok();
    let partial = answer.and_then(|answer| answer.partial_success);
    partial.map_or(0, |partial| partial.rejected_log_records)
}

fn record(line: &Bytes) -> Option<LogRecord> {
    let line = line.trim_ascii_end();
    let document = read(line)?;
    let root = document.root();
    let text = |name: &str| root.get(name).and_then(Value::as_str).map(String::from);
    let event = text("event").unwrap_or_default();
    let time = text("time").and_then(|time| humantime::parse_rfc3339(&time).ok());
    let denied = matches!(text("outcome").as_deref(), Some("denied" | "refused" | "failed"));
    let severity = if denied { SeverityNumber::Warn } else { SeverityNumber::Info };
    let beside = BESIDE.iter().filter_map(|(name, called)| Some(named(called, &text(name)?)));
    Some(LogRecord {
        time_unix_nano: time.map_or(0, nanos),
        observed_time_unix_nano: time.map_or(0, nanos),
        severity_number: severity as i32,
        severity_text: if denied { "WARN" } else { "INFO" }.to_owned(),
        body: Some(string(std::str::from_utf8(line).ok()?)),
        attributes: beside.collect(),
        trace_id: digits(&document, "trace"),
        span_id: digits(&document, "span"),
        event_name: format!("portcullis.audit.{event}"),
        ..LogRecord::default()
    })
}

/// The bytes of a hexadecimal id; empty if it is absent.
fn digits(document: &Document, name: &str) -> Vec<u8> {
    let text = document.root().get(name).and_then(Value::as_str);
    text.and_then(|text| hex::decode(&text)).unwrap_or_default()
}

fn named(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(string(value)), ..KeyValue::default() }
}

fn string(text: &str) -> AnyValue {
    AnyValue { value: Some(Any::StringValue(text.to_owned())) }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
