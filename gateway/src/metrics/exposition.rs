//! Writes a snapshot of the metrics in Prometheus's text format, with the encoder of `prometheus-client`.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::{self, Write as _};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::{Labels, MetricFamily, MetricValue};

/// The metrics at one moment, as the encoder asks for them.
#[derive(Debug)]
struct Snapshot(Vec<MetricFamily>);

/// The labels of one data point, with their names in Prometheus's spelling. A histogram has them in every line.
struct PointLabels<'a>(Vec<(String, &'a str)>);

/// Writes all `families` that have data points.
pub(super) fn text(families: Vec<MetricFamily>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(families)));
    let mut out = String::new();
    // Writing to a string does not fail.
    prometheus_text::encode(&mut out, &registry).unwrap_or_default();
    out
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl MetricFamily {
    /// Writes the family. The encoder appends the unit and, for a counter, `_total` to the name.
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.points.first() {
            Some((_, MetricValue::Sum(_))) => MetricType::Counter,
            Some((_, MetricValue::Gauge(_))) => MetricType::Gauge,
            Some((_, MetricValue::Histogram { .. })) => MetricType::Histogram,
            None => return Ok(()),
        };
        let unit = match self.unit {
            "s" => Some(Unit::Seconds),
            "By" => Some(Unit::Bytes),
            _ => None,
        };
        let name = prometheus(self.name);
        let mut family = encoder.encode_descriptor(&name, self.help, unit.as_ref(), kind)?;
        for (labels, value) in &self.points {
            let labels = PointLabels::of(labels);
            value.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl MetricValue {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Sum(value) => encoder.encode_counter::<NoLabelSet, u64, f64>(value, None),
            Self::Gauge(value) => encoder.encode_gauge(value),
            Self::Histogram { bounds, counts, micros } => {
                let bounds = bounds.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
                let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
                let (sum, count) = (seconds(*micros), counts.iter().sum());
                encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            }
        }
    }
}

impl<'a> PointLabels<'a> {
    fn of(labels: &'a Labels) -> Self {
        let label = |(name, value): &'a (&'static str, Box<str>)| (prometheus(name), &**value);
        Self(labels.iter().map(label).collect())
    }
}

impl EncodeLabelSet for PointLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in &self.0 {
            let mut label = encoder.encode_label();
            let mut key = label.encode_label_key()?;
            key.write_str(name)?;
            let mut text = key.encode_label_value()?;
            text.write_str(value)?;
            text.finish()?;
        }
        Ok(())
    }
}

/// A name in Prometheus's spelling, which has no dots.
fn prometheus(name: &str) -> String {
    name.replace('.', "_")
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::{Labels, MetricFamily, MetricValue, text};

    fn family(
        name: &'static str,
        unit: &'static str,
        points: Vec<(Labels, MetricValue)>,
    ) -> MetricFamily {
        MetricFamily { name, unit, help: "What it is.", points }
    }

    #[test]
    fn a_family_has_the_names_and_values_that_prometheus_expects() {
        let labels = vec![("gen_ai.tool.name", "a\\b\"c\nd".into()), ("server", "up".into())];
        let durations = MetricValue::Histogram {
            bounds: &[10_000, 2_500_000],
            counts: vec![1, 0, 2],
            micros: 7_000_001,
        };
        let families = vec![
            family("portcullis.calls", "", vec![(labels, MetricValue::Sum(3))]),
            family("portcullis.held", "By", vec![(Vec::new(), MetricValue::Gauge(7))]),
            family("portcullis.none", "", Vec::new()),
            family("mcp.wait", "s", vec![(vec![("mcp.method.name", "ping".into())], durations)]),
        ];
        let expected = r#"# HELP portcullis_calls_total What it is.
# TYPE portcullis_calls_total counter
portcullis_calls_total{gen_ai_tool_name="a\\b\"c\nd",server="up"} 3
# HELP portcullis_held_bytes What it is.
# TYPE portcullis_held_bytes gauge
portcullis_held_bytes 7
# HELP mcp_wait_seconds What it is.
# TYPE mcp_wait_seconds histogram
mcp_wait_seconds_bucket{mcp_method_name="ping",le="0.01"} 1
mcp_wait_seconds_bucket{mcp_method_name="ping",le="2.5"} 1
mcp_wait_seconds_bucket{mcp_method_name="ping",le="+Inf"} 3
mcp_wait_seconds_sum{mcp_method_name="ping"} 7.000001
mcp_wait_seconds_count{mcp_method_name="ping"} 3
"#;
        assert_eq!(text(families), expected);
    }
}
