//! Encodes spans and metrics as OTLP 1 messages, for `send`.

use std::iter;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Wire, Status};

use prost::Message as _;

use super::span::{AttributeValue, Attributes, ExchangeSpan};
use crate::mcp::trace_context::ParentSpan;
use crate::metrics::{MetricFamily, MetricValue as Measured};

/// The version of the semantic conventions that the names follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.40.0";

/// The configured resource attributes.
type ResourceAttributes = [(Box<str>, Box<str>)];

/// Tags of the protobuf fields that are encoded by hand here: the field number and wire type 2.
///
/// <https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto>
const SPANS: u8 = 2 << 3 | 2;
const SCOPE_SPANS: u8 = 2 << 3 | 2;
const RESOURCE_SPANS: u8 = 1 << 3 | 2;

/// Encodes the spans as one `ExportTraceServiceRequest`.
///
/// Each span is encoded and dropped before the next: a whole batch as message structs would take megabytes, on a
/// thread that shares its caches with the serving threads.
pub(super) fn traces(resource: &ResourceAttributes, spans: &[Box<ExchangeSpan>]) -> Vec<u8> {
    let (scope, schema_url) = (Some(scope()), SCHEMA.to_owned());
    let mut scope = ScopeSpans { scope, schema_url, ..ScopeSpans::default() }.encode_to_vec();
    for span in spans.iter().flat_map(|span| both(span)) {
        inside(&mut scope, SPANS, &span.encode_to_vec());
    }
    let (resource, schema_url) = (Some(self_described(resource)), SCHEMA.to_owned());
    let resource = ResourceSpans { resource, schema_url, ..ResourceSpans::default() };
    let mut resource = resource.encode_to_vec();
    inside(&mut resource, SCOPE_SPANS, &scope);
    let mut request = Vec::with_capacity(resource.len() + 16);
    inside(&mut request, RESOURCE_SPANS, &resource);
    request
}

/// Appends `message` as the value of a length-delimited field.
fn inside(out: &mut Vec<u8>, field: u8, message: &[u8]) {
    out.push(field);
    // Writing to a vector does not fail.
    prost::encode_length_delimiter(message.len(), out).unwrap_or_default();
    out.extend_from_slice(message);
}

/// The server span of the exchange, and the client span of its upstream call if there was one.
fn both(span: &ExchangeSpan) -> impl Iterator<Item = Wire> {
    let trace = &span.trace;
    let trace_id = trace.id.to_be_bytes().to_vec();
    let end = span.start + span.took;
    let status = |failed: bool| {
        let code = if failed { StatusCode::Error } else { StatusCode::Unset };
        Some(Status { code: code as i32, message: String::new() })
    };
    let parent = trace.parent.as_ref();
    let state = parent.and_then(|parent| parent.state.as_deref()).unwrap_or_default();
    let server = Wire {
        trace_id: trace_id.clone(),
        span_id: trace.span.to_be_bytes().to_vec(),
        parent_span_id: parent.map(|p| p.span.to_be_bytes().to_vec()).unwrap_or_default(),
        trace_state: state.to_owned(),
        flags: 1,
        name: span.name(),
        kind: SpanKind::Server as i32,
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(end),
        attributes: attributes(span.server_side()),
        links: trace.link.iter().map(link).collect(),
        status: status(span.failed()),
        ..Wire::default()
    };
    let client = span.upstream.map(|(sent, took)| Wire {
        trace_id,
        span_id: trace.upstream().to_be_bytes().to_vec(),
        parent_span_id: trace.span.to_be_bytes().to_vec(),
        trace_state: state.to_owned(),
        flags: 1,
        name: span.name(),
        kind: SpanKind::Client as i32,
        start_time_unix_nano: nanos(span.start + sent),
        end_time_unix_nano: nanos((span.start + sent + took).min(end)),
        attributes: attributes(span.client_side()),
        status: status(span.failed()),
        ..Wire::default()
    });
    iter::once(server).chain(client)
}

fn link(to: &ParentSpan) -> Link {
    Link {
        trace_id: to.trace.to_be_bytes().to_vec(),
        span_id: to.span.to_be_bytes().to_vec(),
        ..Link::default()
    }
}

/// The metrics as one `ExportMetricsServiceRequest`.
pub(super) fn metrics(
    resource: &ResourceAttributes,
    families: Vec<MetricFamily>,
    started: SystemTime,
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let (start, time) = (nanos(started), nanos(now));
    let metric = |family: MetricFamily| {
        let MetricFamily { name, unit, help, points } = family;
        let data = data(points, start, time)?;
        let (name, description, unit) = (name.to_owned(), help.to_owned(), unit.to_owned());
        Some(Metric { name, description, unit, data: Some(data), ..Metric::default() })
    };
    let metrics = families.into_iter().filter_map(metric).collect();
    let scope_metrics =
        vec![ScopeMetrics { scope: Some(scope()), metrics, schema_url: SCHEMA.to_owned() }];
    let resource = Some(self_described(resource));
    let resource_metrics =
        vec![ResourceMetrics { resource, scope_metrics, schema_url: SCHEMA.to_owned() }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn data(points: Vec<(crate::metrics::Labels, Measured)>, start: u64, time: u64) -> Option<Data> {
    let cumulative = AggregationTemporality::Cumulative as i32;
    let number = |labels: crate::metrics::Labels, value: u64| NumberDataPoint {
        attributes: labelled(labels),
        start_time_unix_nano: start,
        time_unix_nano: time,
        value: Some(Number::AsInt(i64::try_from(value).unwrap_or(i64::MAX))),
        ..NumberDataPoint::default()
    };
    let (mut sums, mut gauges, mut histograms) = (Vec::new(), Vec::new(), Vec::new());
    for (labels, value) in points {
        match value {
            Measured::Sum(value) => sums.push(number(labels, value)),
            Measured::Gauge(value) => gauges.push(number(labels, value)),
            Measured::Histogram { bounds, counts, micros } => histograms.push(HistogramDataPoint {
                attributes: labelled(labels),
                start_time_unix_nano: start,
                time_unix_nano: time,
                count: counts.iter().sum(),
                sum: Some(seconds(micros)),
                bucket_counts: counts,
                explicit_bounds: bounds.iter().map(|bound| seconds(*bound)).collect(),
                ..HistogramDataPoint::default()
            }),
        }
    }
    match (sums.is_empty(), gauges.is_empty(), histograms.is_empty()) {
        (false, ..) => Some(Data::Sum(Sum {
            data_points: sums,
            aggregation_temporality: cumulative,
            is_monotonic: true,
        })),
        (_, false, _) => Some(Data::Gauge(Gauge { data_points: gauges })),
        (.., false) => Some(Data::Histogram(Histogram {
            data_points: histograms,
            aggregation_temporality: cumulative,
        })),
        (true, true, true) => None,
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "portcullis".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn self_described(resource: &ResourceAttributes) -> Resource {
    let mut attributes: Vec<_> = resource.iter().map(|(key, value)| pair(key, value)).collect();
    attributes.push(pair("service.version", env!("CARGO_PKG_VERSION")));
    Resource { attributes, ..Resource::default() }
}

fn pair(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn labelled(labels: crate::metrics::Labels) -> Vec<KeyValue> {
    labels.into_iter().map(|(key, value)| pair(key, &value)).collect()
}

fn attributes(attributes: Attributes<'_>) -> Vec<KeyValue> {
    let attribute = |(key, value): (&str, AttributeValue<'_>)| match value {
        AttributeValue::Text(text) => pair(key, &text),
        AttributeValue::Number(number) => {
            let value = Some(AnyValue { value: Some(Any::IntValue(number)) });
            KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
        }
    };
    attributes.into_iter().map(attribute).collect()
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
