//! Encodes the metrics as an OTLP 1 message, for `send`, from the messages of `opentelemetry-proto`. The metrics of the
//! OpenTelemetry SDK cannot be made from counts that somebody else keeps: decision 0015.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::InstrumentationScope;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource as WireResource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;

use crate::metrics::{Labels, MetricFamily, MetricValue as Measured};

/// When counting began, and when the values were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricTimes {
    pub(super) started: SystemTime,
    pub(super) now: SystemTime,
}

/// The metrics as one `ExportMetricsServiceRequest`.
pub(super) fn metrics(
    resource: &Resource,
    scope: &InstrumentationScope,
    families: Vec<MetricFamily>,
    times: MetricTimes,
) -> ExportMetricsServiceRequest {
    let (start, time) = (nanos(times.started), nanos(times.now));
    let metric = |family: MetricFamily| {
        let MetricFamily { name, unit, help, points } = family;
        let data = data(points, start, time)?;
        let (name, description, unit) = (name.to_owned(), help.to_owned(), unit.to_owned());
        Some(Metric { name, description, unit, data: Some(data), ..Metric::default() })
    };
    let metrics = families.into_iter().filter_map(metric).collect();
    let schema_url = scope.schema_url().unwrap_or_default().to_owned();
    let scope_metrics =
        vec![ScopeMetrics { scope: Some((scope, None).into()), metrics, schema_url }];
    let ResourceAttributesWithSchema { attributes, schema_url } = resource.into();
    let resource = Some(WireResource { attributes: attributes.0, ..WireResource::default() });
    let schema_url = schema_url.unwrap_or_default();
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, schema_url }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn data(points: Vec<(Labels, Measured)>, start: u64, time: u64) -> Option<Data> {
    let cumulative = AggregationTemporality::Cumulative as i32;
    let number = |labels: Labels, value: u64| NumberDataPoint {
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

fn labelled(labels: Labels) -> Vec<KeyValue> {
    let pair = |(key, value): (&str, Box<str>)| {
        let value = Some(AnyValue { value: Some(Any::StringValue(value.into_string())) });
        KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
    };
    labels.into_iter().map(pair).collect()
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
