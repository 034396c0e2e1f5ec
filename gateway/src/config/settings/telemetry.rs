//! Compiles the `telemetry` section and the `OTEL_*` variables: where traces and metrics are exported to, sampling and
//! resource attributes. A key of the file wins over the variable for the same value.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Uri;

use super::compiler::SettingsCompiler;
use super::otel_variables::{ExporterVariables, OtelVariables, SpanBatch};
use super::raw::{OtlpProtocol, OtlpSignal, RawClientTraces, RawOtlp, RawTelemetry};
use super::variables::VariableLookup;
use super::{ConnectionSettings, SecretRef, ServiceEndpoint};
use crate::crypto::pem;

/// The default interval between exports of metrics.
const INTERVAL: Duration = Duration::from_secs(15);
/// The sampling threshold that every trace id is below.
const EVERY: u64 = 1 << 56;

/// The export of traces and metrics.
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    /// Where spans are exported to; `None` if none are created.
    pub traces: Option<OtlpSettings>,
    /// Where metrics are exported to; `None` if they are not.
    pub metrics: Option<OtlpSettings>,
    /// The interval between exports of metrics.
    pub interval: Duration,
    /// How spans are collected for export.
    pub batch: SpanBatch,
    /// The sampling threshold: a trace is recorded if the last 56 bits of its id are below it.
    pub below: u64,
    /// Whether exchanges start traces of their own, with a link to the client's.
    pub restarts: bool,
    /// The resource attributes of the gateway, each name once.
    pub resource: Vec<(Box<str>, Box<str>)>,
    /// What the `OTEL_*` variables of this machine do, for the operator. Their values are not included.
    pub remarks: Vec<Box<str>>,
    /// Values that the variables give to keys which are not in the file: by JSON Pointer, the value as the file would
    /// have it and the name of the variable.
    pub from_variables: BTreeMap<&'static str, (String, &'static str)>,
}

/// Where one kind of telemetry is exported to.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// The URL for this kind of telemetry, and how the gateway connects to it.
    pub place: ServiceEndpoint,
    /// The transport of OTLP.
    pub protocol: OtlpProtocol,
    /// What the gateway presents to the collector.
    pub secret: OtlpSecret,
    /// The time limit of a request; `None` for that of other services.
    pub time: Option<Duration>,
}

/// What the gateway presents to a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtlpSecret {
    /// Nothing: the collector asks for no credential.
    None,
    /// A bearer token, in `Authorization`.
    Token(SecretRef),
    /// The headers in `OTEL_EXPORTER_OTLP_HEADERS` or in the variable for one signal.
    Headers(SecretRef),
}

impl SettingsCompiler<'_> {
    pub(super) fn telemetry(
        &mut self,
        raw: RawTelemetry,
        variables: VariableLookup<'_>,
    ) -> TelemetrySettings {
        let RawTelemetry { otlp, traces, resource } = raw;
        let mut otel = OtelVariables::new(variables);
        let interval = otlp.as_ref().and_then(|otlp| otlp.interval.clone());
        let interval = match interval {
            Some(text) => self.time("/telemetry/otlp/interval", Some(&text)),
            None => otel.interval(),
        };
        let below = match traces.sample {
            Some(sample) => self.sample(sample),
            None => otel.sampler().map_or(EVERY, threshold),
        };
        let resource = otel.resource(&resource);
        let batch = otel.batch(SpanBatch::default());
        let is_disabled = otel.is_disabled();
        let exporters = match otlp {
            Some(otlp) => {
                otel.note_overruled();
                self.otlp(otlp)
            }
            None if is_disabled => [None, None],
            None => {
                let traces = otel.traces().and_then(|given| self.exporter(&mut otel, given));
                let metrics = otel.metrics().and_then(|given| self.exporter(&mut otel, given));
                let signals = [
                    traces.as_ref().map(|_| OtlpSignal::Traces),
                    metrics.as_ref().map(|_| OtlpSignal::Metrics),
                ];
                otel.note_exports(&signals.into_iter().flatten().collect::<Vec<_>>());
                [traces, metrics]
            }
        };
        let [traces_to, metrics_to] = if is_disabled { [None, None] } else { exporters };
        if is_disabled {
            otel.note_disabled();
        } else if traces_to.is_none() && metrics_to.is_none() {
            // Nothing has an effect.
            otel.remarks.clear();
        }
        let OtelVariables { remarks, problems, values, .. } = otel;
        for (variable, problem) in problems {
            self.report_variable("/telemetry", variable, &problem.message, problem.help);
        }
        TelemetrySettings {
            traces: traces_to,
            metrics: metrics_to,
            interval: interval.unwrap_or(INTERVAL),
            batch,
            below,
            restarts: traces.clients == RawClientTraces::Restart,
            resource,
            remarks,
            from_variables: values,
        }
    }

    /// The sampling threshold for a fraction of the traces.
    fn sample(&mut self, sample: f64) -> u64 {
        if !(0.0..=1.0).contains(&sample) {
            let help = "write a number from 0 to 1, such as 0.1";
            self.report("/telemetry/traces/sample", "must be between 0 and 1", help);
        }
        threshold(sample)
    }

    /// The exporters of traces and of metrics to the collector of the file.
    fn otlp(&mut self, raw: RawOtlp) -> [Option<OtlpSettings>; 2] {
        let token = raw.token.and_then(|token| self.secret("/telemetry/otlp/token", token));
        let url = match token {
            Some(_) => self.guarded_url("/telemetry/otlp/url", &raw.url),
            None => self.collector("/telemetry/otlp/url", &raw.url),
        };
        let way = self.way("/telemetry/otlp/connection", &raw.connection);
        let secret = token.map_or(OtlpSecret::None, OtlpSecret::Token);
        [OtlpSignal::Traces, OtlpSignal::Metrics].map(|signal| {
            let url = signal.below(url.as_ref()?)?;
            let place = ServiceEndpoint { url, way: way.clone() };
            let secret = secret.clone();
            Some(OtlpSettings { place, protocol: raw.protocol, secret, time: None })
        })
    }

    /// Parses the URL of a collector without a token; plain HTTP is common there.
    fn collector(&mut self, at: &str, text: &str) -> Option<Uri> {
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
        });
        if uri.is_none() {
            let message = format!("`{}` is not a URL", text.escape_debug());
            self.report(at, message, "write `http://collector:4318`");
        }
        uri
    }

    /// An exporter to the collector that the variables name.
    fn exporter(
        &mut self,
        otel: &mut OtelVariables<'_>,
        given: ExporterVariables,
    ) -> Option<OtlpSettings> {
        let ExporterVariables { url, protocol, headers, authorities, time } = given;
        let authorities = authorities.map(|(variable, file)| {
            self.uses.believed.push(file.clone());
            if let Err(error) = pem::roots(&file) {
                let help = "give a file with certificates of authorities in PEM";
                otel.problem(variable, error.to_string(), help);
            }
            file
        });
        let secret = headers.map_or(OtlpSecret::None, |variable| {
            // Kept from the programs that the gateway starts, as all variables with secrets are.
            self.uses.variables.insert(variable.to_owned());
            OtlpSecret::Headers(SecretRef::Env(variable.to_owned()))
        });
        let way = ConnectionSettings { authorities, egress: None };
        Some(OtlpSettings { place: ServiceEndpoint { url, way }, protocol, secret, time })
    }
}

/// The threshold that the last 56 bits of a trace id have to be below, for a fraction from 0 to 1 of all traces.
fn threshold(fraction: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is from 0 to 1, and a float is cut to what fits"
    )]
    let below = (fraction * EVERY as f64) as u64;
    below
}
