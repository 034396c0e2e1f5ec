//! What is told to an observability stack, as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawReach, RawSecret};

/// What is told to an observability stack. Prometheus reads the operator's listener, without this.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawTelemetry {
    /// Who takes OTLP. Without it nothing is sent, and there are no spans.
    pub(in crate::config::settings) otlp: Option<RawOtlp>,
    /// Which exchanges leave spans.
    #[serde(default)]
    pub(in crate::config::settings) traces: RawTraces,
    /// What the gateway says of itself, such as `service.name` and `deployment.environment.name`. Default
    /// `service.name: portcullis`.
    #[serde(default)]
    pub(in crate::config::settings) resource: BTreeMap<String, String>,
}

/// Who takes OTLP.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawOtlp {
    /// Where: `http://collector:4318`, or `:4317` for gRPC.
    pub(in crate::config::settings) url: String,
    /// How it is spoken to.
    #[serde(default)]
    pub(in crate::config::settings) protocol: OtlpProtocol,
    /// What it is shown in `Authorization: Bearer`; by `https` alone, or to this machine.
    pub(in crate::config::settings) token: Option<RawSecret>,
    /// How often metrics are sent. Default `15s`.
    pub(in crate::config::settings) interval: Option<String>,
    /// How it is reached.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// How OTLP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP/1.1.
    #[default]
    #[serde(rename = "http")]
    Http,
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

/// Which exchanges leave spans.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawTraces {
    /// The part of all traces that is recorded, from 0 to 1. Default 1. It goes by the id of the trace,
    /// so that all who record the same part record the same traces; what a client says about it makes no
    /// difference.
    pub(in crate::config::settings) sample: Option<f64>,
    /// What becomes of the trace a client names. Default `continue`.
    #[serde(default)]
    pub(in crate::config::settings) clients: Clients,
}

/// What becomes of the trace a client names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ClientTraces")]
pub(in crate::config::settings) enum Clients {
    /// The exchange is a part of it.
    #[default]
    Continue,
    /// The exchange begins a trace of its own, with a link to it.
    Restart,
}
