//! The `telemetry` section as written.

use std::collections::BTreeMap;

use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawReach, RawSecret};

/// The export of traces and metrics. Prometheus scrapes the operator's listener and does not need this section. The
/// `OTEL_*` environment variables set what it leaves out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawTelemetry {
    /// The collector. Without it, the one that the `OTEL_*` environment variables name; if they name none, nothing is
    /// exported, and no spans are created.
    pub(in crate::config::settings) otlp: Option<RawOtlp>,
    /// Which exchanges are traced.
    #[serde(default)]
    pub(in crate::config::settings) traces: RawTraces,
    /// Resource attributes of the gateway, such as `service.name` and `deployment.environment.name`. If not given,
    /// `service.name: portcullis`.
    #[serde(default)]
    pub(in crate::config::settings) resource: BTreeMap<String, String>,
}

/// A collector that accepts OTLP.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawOtlp {
    /// The URL of the collector: `http://collector:4318`, or `:4317` for gRPC.
    pub(in crate::config::settings) url: String,
    /// The transport of OTLP.
    #[serde(default)]
    pub(in crate::config::settings) protocol: OtlpProtocol,
    /// The token in `Authorization: Bearer`. It requires `https`, or a collector on this machine.
    pub(in crate::config::settings) token: Option<RawSecret>,
    /// The interval between exports of metrics. Default `15s`.
    pub(in crate::config::settings) interval: Option<String>,
    /// How the gateway connects to the collector.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// A transport of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum OtlpProtocol {
    /// Protobuf messages over HTTP/1.1.
    #[default]
    #[serde(rename = "http")]
    Http,
    /// OTLP over gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

/// A kind of telemetry that OTLP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpSignal {
    /// Traces: the spans of exchanges.
    Traces,
    /// The metrics that Prometheus can also scrape.
    Metrics,
    /// Log records, which audit records are exported as.
    Logs,
}

impl OtlpSignal {
    /// The path that OTLP defines for the signal, below the URL of a collector.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }

    /// The URL of the signal at the collector `base`; `None` if there can be none.
    #[must_use]
    pub fn below(self, base: &Uri) -> Option<Uri> {
        let base = base.to_string();
        format!("{}{}", base.trim_end_matches('/'), self.path()).parse().ok()
    }
}

/// Which exchanges are traced.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawTraces {
    /// The sampled fraction of traces, from 0 to 1. Default 1. The decision depends on the trace id only, so that
    /// every service with the same fraction samples the same traces; the sampled flag of a client is ignored.
    pub(in crate::config::settings) sample: Option<f64>,
    /// What happens to the trace context that a client sends. Default `continue`.
    #[serde(default)]
    pub(in crate::config::settings) clients: RawClientTraces,
}

/// What happens to the trace context that a client sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ClientTraces")]
pub(in crate::config::settings) enum RawClientTraces {
    /// The exchange becomes part of the client's trace.
    #[default]
    Continue,
    /// The exchange starts a trace of its own, with a link to the client's.
    Restart,
}
