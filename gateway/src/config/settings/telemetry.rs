//! Compiles the `telemetry` section: the collector, sampling and resource attributes.

use std::time::Duration;

use http::Uri;

use super::compiler::SettingsCompiler;
use super::raw::{OtlpProtocol, RawOtlp, RawTelemetry, Restart};
use super::{SecretRef, ServiceEndpoint};

/// The default interval between exports of metrics.
const INTERVAL: Duration = Duration::from_secs(15);

/// The export of traces and metrics.
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    /// The collector; `None` if nothing is exported.
    pub otlp: Option<OtlpSettings>,
    /// The sampling threshold: a trace is recorded if the last 56 bits of its id are below it.
    pub below: u64,
    /// Whether exchanges start traces of their own, with a link to the client's.
    pub restarts: bool,
    /// The resource attributes of the gateway.
    pub resource: Vec<(Box<str>, Box<str>)>,
}

/// A collector that accepts OTLP.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// The URL, and how the gateway connects to it.
    pub place: ServiceEndpoint,
    /// The transport of OTLP.
    pub protocol: OtlpProtocol,
    /// The bearer token, if it requires one.
    pub token: Option<SecretRef>,
    /// The interval between exports of metrics.
    pub interval: Duration,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        let resource = vec![("service.name".into(), "portcullis".into())];
        Self { otlp: None, below: 1 << 56, restarts: false, resource }
    }
}

impl SettingsCompiler<'_> {
    pub(super) fn telemetry(&mut self, raw: RawTelemetry) -> TelemetrySettings {
        let usual = TelemetrySettings::default();
        let sample = raw.traces.sample.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&sample) {
            let help = "write a number from 0 to 1, such as 0.1";
            self.report("/telemetry/traces/sample", "this is no part of all traces", help);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is from 0 to 1, and a float is cut to what fits"
        )]
        let below = (sample * (1_u64 << 56) as f64) as u64;
        let mut resource: Vec<_> = raw
            .resource
            .iter()
            .map(|(name, value)| (Box::from(&**name), Box::from(&**value)))
            .collect();
        if !raw.resource.contains_key("service.name") {
            resource.extend(usual.resource);
        }
        let restarts = raw.traces.clients == Restart::Restart;
        TelemetrySettings {
            otlp: raw.otlp.and_then(|raw| self.otlp(raw)),
            below,
            restarts,
            resource,
        }
    }

    fn otlp(&mut self, raw: RawOtlp) -> Option<OtlpSettings> {
        let token = raw.token.and_then(|token| self.secret("/telemetry/otlp/token", token));
        let url = match token {
            Some(_) => self.guarded_url("/telemetry/otlp/url", &raw.url)?,
            None => self.collector("/telemetry/otlp/url", &raw.url)?,
        };
        let way = self.way("/telemetry/otlp/connection", &raw.connection);
        let interval = self.time("/telemetry/otlp/interval", raw.interval.as_deref());
        let (place, interval) = (ServiceEndpoint { url, way }, interval.unwrap_or(INTERVAL));
        Some(OtlpSettings { place, protocol: raw.protocol, token, interval })
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
}
