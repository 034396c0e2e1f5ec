//! Reads the environment variables that OpenTelemetry defines for SDKs, as far as the gateway has what they set.
//!
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/> and
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>. A value that cannot be used is a problem of the
//! configuration: the specification lets an SDK go on without it, but a gateway that exports something else than its
//! operator wants must not start.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use json::coding;

use super::credentials::is_own_header;
use super::raw::{OtlpProtocol, OtlpSignal};
use super::variables::VariableLookup;
use crate::net::egress::is_this_machine;

/// The default interval between exports of spans.
const SPAN_DELAY: Duration = Duration::from_millis(500);
/// The default of the most exchanges whose spans wait.
const SPAN_QUEUE: usize = 8192;
/// The default of the most spans in one request.
const SPAN_BATCH: usize = 1024;
/// The default time limit of an export of spans, with its retries.
const SPAN_TIME: Duration = Duration::from_secs(30);
/// The longest time that a variable sets, in milliseconds: a year, as in the file.
const MAX_MILLISECONDS: u64 = 366 * 24 * 3600 * 1000;
/// The most exchanges whose spans may wait.
const MOST_WAITING: u64 = 1 << 20;
/// The bounds of the number of spans in one request. An exchange has up to two.
const SPANS: RangeInclusive<u64> = 2..=16_384;

const SERVICE: &str = "service.name";

/// A value that a variable has and that cannot be used.
#[derive(Debug)]
pub(super) struct VariableProblem {
    /// What is wrong. Secrets are not included.
    pub(super) message: String,
    /// What to write instead, as an imperative.
    pub(super) help: &'static str,
}

/// How spans are collected for export, as the `OTEL_BSP_*` variables define it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanBatch {
    /// The interval between exports.
    pub delay: Duration,
    /// The most exchanges whose spans wait; the spans of further ones are dropped and counted.
    pub queue: usize,
    /// The most spans in one request.
    pub size: usize,
    /// The time limit of an export, with its retries.
    pub time: Duration,
}

/// The variables of one exporter, as they are set.
#[derive(Debug)]
pub(super) struct ExporterVariables {
    /// The URL that this kind of telemetry is sent to.
    pub(super) url: Uri,
    /// The transport of OTLP.
    pub(super) protocol: OtlpProtocol,
    /// The variable that holds headers, if one is set.
    pub(super) headers: Option<&'static str>,
    /// The variable that names a file of certificate authorities, and the file.
    pub(super) authorities: Option<(&'static str, PathBuf)>,
    /// The time limit of a request.
    pub(super) time: Option<Duration>,
}

/// The names of the variables of an exporter: those for one kind of telemetry come before those for all.
struct ExporterNames {
    exporter: &'static str,
    endpoint: &'static str,
    protocol: [&'static str; 2],
    headers: [&'static str; 2],
    certificate: [&'static str; 2],
    timeout: [&'static str; 2],
}

/// The variable for the URL of a collector that takes all kinds of telemetry.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

const TRACES: ExporterNames = ExporterNames {
    exporter: "OTEL_TRACES_EXPORTER",
    endpoint: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    protocol: ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"],
    headers: ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"],
    certificate: ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
    timeout: ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"],
};

const METRICS: ExporterNames = ExporterNames {
    exporter: "OTEL_METRICS_EXPORTER",
    endpoint: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    protocol: ["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"],
    headers: ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"],
    certificate: ["OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
    timeout: ["OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"],
};

/// The `OTEL_*` variables of this machine, and what was found in those that were asked for.
pub(super) struct OtelVariables<'a> {
    lookup: VariableLookup<'a>,
    /// Values that cannot be used, by variable, each variable once.
    pub(super) problems: BTreeMap<&'static str, VariableProblem>,
    /// What the variables do, for the operator.
    pub(super) remarks: Vec<Box<str>>,
    /// Values for keys that are not in the file, with the variable of each.
    pub(super) values: BTreeMap<&'static str, (String, &'static str)>,
}

impl Default for SpanBatch {
    fn default() -> Self {
        Self { delay: SPAN_DELAY, queue: SPAN_QUEUE, size: SPAN_BATCH, time: SPAN_TIME }
    }
}

impl<'a> OtelVariables<'a> {
    pub(super) fn new(lookup: VariableLookup<'a>) -> Self {
        let (problems, remarks, values) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { lookup, problems, remarks, values }
    }

    pub(super) fn problem(&mut self, variable: &'static str, message: String, help: &'static str) {
        self.problems.entry(variable).or_insert(VariableProblem { message, help });
    }

    /// The value of a variable. An empty one counts as not set, as the specification says.
    fn text(&self, variable: &str) -> Option<String> {
        (self.lookup)(variable).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The first of these variables that is set, with its value.
    fn first(&self, variables: [&'static str; 2]) -> Option<(&'static str, String)> {
        variables.into_iter().find_map(|name| Some((name, self.text(name)?)))
    }

    fn number(&mut self, variable: &'static str, bounds: RangeInclusive<u64>) -> Option<u64> {
        let text = self.text(variable)?;
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        if number.is_none() {
            let (least, most) = bounds.into_inner();
            let message = format!("`{}` is no number from {least} to {most}", text.escape_debug());
            self.problem(variable, message, "write digits only");
        }
        number
    }

    /// A time in milliseconds.
    fn time(&mut self, variable: &'static str) -> Option<Duration> {
        self.number(variable, 1..=MAX_MILLISECONDS).map(Duration::from_millis)
    }

    /// Whether nothing is exported, whatever the file says.
    pub(super) fn is_disabled(&mut self) -> bool {
        const DISABLED: &str = "OTEL_SDK_DISABLED";
        let Some(text) = self.text(DISABLED) else { return false };
        let disabled = text.eq_ignore_ascii_case("true");
        if !disabled && !text.eq_ignore_ascii_case("false") {
            let message = format!("`{}` is neither true nor false", text.escape_debug());
            self.problem(DISABLED, message, "write `true`, or unset it");
        }
        disabled
    }

    /// Says that nothing is exported because of a variable.
    pub(super) fn note_disabled(&mut self) {
        self.remarks.clear();
        self.remark("traces and metrics are not exported over OTLP, by `OTEL_SDK_DISABLED`");
    }

    fn remark(&mut self, text: impl Into<Box<str>>) {
        self.remarks.push(text.into());
    }

    /// The interval between exports of metrics.
    pub(super) fn interval(&mut self) -> Option<Duration> {
        const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
        let interval = self.time(INTERVAL)?;
        let shown = humantime::format_duration(interval).to_string();
        self.values.insert("/telemetry/otlp/interval", (shown, INTERVAL));
        Some(interval)
    }

    /// How spans are collected, with `usual` for what no variable sets.
    pub(super) fn batch(&mut self, usual: SpanBatch) -> SpanBatch {
        const SIZE: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let queue = self.number("OTEL_BSP_MAX_QUEUE_SIZE", 1..=MOST_WAITING);
        SpanBatch {
            delay: self.time("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(usual.delay),
            queue: queue.map_or(usual.queue, count),
            size: self.number(SIZE, SPANS).map_or(usual.size, count),
            time: self.time("OTEL_BSP_EXPORT_TIMEOUT").unwrap_or(usual.time),
        }
    }

    /// The fraction of all traces that is recorded, from 0 to 1.
    pub(super) fn sampler(&mut self) -> Option<f64> {
        const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let text = self.text(SAMPLER)?;
        let of_root = text.strip_prefix("parentbased_");
        let (fraction, variable) = match of_root.unwrap_or(&text) {
            "always_on" => (Some(1.0), SAMPLER),
            "always_off" => (Some(0.0), SAMPLER),
            "traceidratio" => match self.text(ARGUMENT) {
                None => (Some(1.0), SAMPLER),
                Some(text) => {
                    let fraction: Option<f64> = text.parse().ok();
                    let fraction = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
                    if fraction.is_none() {
                        let message = format!("`{}` must be between 0 and 1", text.escape_debug());
                        self.problem(ARGUMENT, message, "write a number from 0 to 1, such as 0.1");
                    }
                    (fraction, ARGUMENT)
                }
            },
            _ => {
                let message = format!("there is no sampler `{}` here", text.escape_debug());
                let help = "write `always_on`, `always_off`, or `traceidratio` with its part in \
                            `OTEL_TRACES_SAMPLER_ARG`";
                self.problem(SAMPLER, message, help);
                (None, SAMPLER)
            }
        };
        let fraction = fraction?;
        if of_root.is_some() {
            self.remark(
                "a caller does not decide whether its trace is recorded: of `OTEL_TRACES_SAMPLER` what follows \
                 `parentbased_` applies to every trace",
            );
        }
        self.values.insert("/telemetry/traces/sample", (fraction.to_string(), variable));
        Some(fraction)
    }

    /// The resource attributes: those of the file, then those of the variables, then the name of the program.
    pub(super) fn resource(
        &mut self,
        of_file: &BTreeMap<String, String>,
    ) -> Vec<(Box<str>, Box<str>)> {
        const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
        const NAME: &str = "OTEL_SERVICE_NAME";
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        all.insert(SERVICE.to_owned(), "portcullis".to_owned());
        let mut variables = Vec::new();
        if let Some(text) = self.text(ATTRIBUTES) {
            match pairs(&text) {
                Ok(pairs) => all.extend(pairs),
                Err(what) => {
                    let help = "write `name=value`, and `,` between two; escape other characters as in a URL";
                    self.problem(ATTRIBUTES, what, help);
                }
            }
            variables.push(ATTRIBUTES);
        }
        if let Some(name) = self.text(NAME) {
            all.insert(SERVICE.to_owned(), name);
            variables.push(NAME);
        }
        if !variables.is_empty() {
            let names = variables.join("` and `");
            self.remark(format!(
                "resource attributes that the file does not set are from `{names}`"
            ));
        }
        all.extend(of_file.clone());
        all.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    /// The exporter of spans; `None` if the variables name no collector.
    pub(super) fn traces(&mut self) -> Option<ExporterVariables> {
        self.exporter(OtlpSignal::Traces, &TRACES)
    }

    /// The exporter of metrics; `None` if the variables name no collector.
    pub(super) fn metrics(&mut self) -> Option<ExporterVariables> {
        self.exporter(OtlpSignal::Metrics, &METRICS)
    }

    fn exporter(&mut self, signal: OtlpSignal, names: &ExporterNames) -> Option<ExporterVariables> {
        // A list of exporters; the gateway has the one for OTLP, and Prometheus reads the operator's listener.
        let exporters = self.text(names.exporter).unwrap_or_else(|| "otlp".to_owned());
        if !exporters.split(',').any(|name| name.trim() == "otlp") {
            return None;
        }
        let headers = self.first(names.headers).map(|(variable, text)| {
            if let Err(what) = read_headers(&text) {
                let help =
                    "write `name=value`, and `,` between two; escape other characters as in a URL";
                self.problem(variable, what, help);
            }
            variable
        });
        let own = self.text(names.endpoint);
        let (variable, text) = match (own, self.text(ENDPOINT)) {
            (Some(text), _) => (names.endpoint, text),
            (None, Some(text)) => (ENDPOINT, text),
            (None, None) => return None,
        };
        let url = self.url(variable, &text, headers.is_some());
        let protocol = self.protocol(names.protocol);
        let certificate = self.first(names.certificate);
        let timeout = names.timeout.into_iter().find(|name| self.text(name).is_some());
        let url = url?;
        // The URL for one signal is complete; the path is appended to the one for all.
        let url = if variable == ENDPOINT { signal.below(&url)? } else { url };
        Some(ExporterVariables {
            url,
            protocol,
            headers,
            authorities: certificate.map(|(variable, file)| (variable, file.into())),
            time: timeout.and_then(|variable| self.time(variable)),
        })
    }

    /// The URL of a collector. Headers may be credentials, which are not sent in the clear.
    fn url(&mut self, variable: &'static str, text: &str, has_headers: bool) -> Option<Uri> {
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
                && uri.query().is_none()
        });
        let Some(uri) = uri else {
            // What was written instead may be a secret.
            let help = "write `http://collector:4318`, without a name, a password or a query";
            self.problem(variable, "it is not the URL of a collector".to_owned(), help);
            return None;
        };
        if has_headers && uri.scheme_str() == Some("http") && !is_this_machine(&uri) {
            let message = "headers would be sent to another machine in the clear".to_owned();
            self.problem(variable, message, "write `https://`, or unset the headers");
        }
        Some(uri)
    }

    fn protocol(&mut self, variables: [&'static str; 2]) -> OtlpProtocol {
        let Some((variable, text)) = self.first(variables) else { return OtlpProtocol::Http };
        match &*text {
            "http/protobuf" => OtlpProtocol::Http,
            "grpc" => OtlpProtocol::Grpc,
            _ => {
                let message = format!("OTLP is not spoken as `{}` here", text.escape_debug());
                self.problem(variable, message, "write `http/protobuf` or `grpc`");
                OtlpProtocol::Http
            }
        }
    }

    /// Says that variables of exporters are set although the file has a collector.
    pub(super) fn note_overruled(&mut self) {
        let names = [&TRACES, &METRICS].into_iter().flat_map(|names| {
            let pairs = [names.protocol, names.headers, names.certificate, names.timeout];
            [names.exporter, names.endpoint].into_iter().chain(pairs.into_iter().flatten())
        });
        let mut set: Vec<_> = names.filter(|name| self.text(name).is_some()).collect();
        set.extend(self.text(ENDPOINT).map(|_| ENDPOINT));
        set.sort_unstable();
        set.dedup();
        if !set.is_empty() {
            let names = set.join("`, `");
            self.remark(format!("`telemetry.otlp` of the file applies, and not `{names}`"));
        }
    }

    /// Says what is exported because of variables.
    pub(super) fn note_exports(&mut self, exported: &[OtlpSignal]) {
        let traces = exported.contains(&OtlpSignal::Traces);
        let metrics = exported.contains(&OtlpSignal::Metrics);
        let what = match (traces, metrics) {
            (true, true) => "traces and metrics are",
            (true, false) => "traces are",
            (false, true) => "metrics are",
            (false, false) => return,
        };
        let of = |names: &ExporterNames, is_exported: bool| {
            let own = self.text(names.endpoint).map_or(ENDPOINT, |_| names.endpoint);
            is_exported.then_some(own)
        };
        let mut names: Vec<_> =
            [of(&TRACES, traces), of(&METRICS, metrics)].into_iter().flatten().collect();
        names.retain(|name| self.text(name).is_some());
        names.dedup();
        if !names.is_empty() {
            let names = names.join("` and `");
            self.remark(format!("{what} exported over OTLP, by `{names}`"));
        }
    }
}

/// Reads the headers in a variable, as a `HeaderMap` whose values are marked as sensitive.
///
/// # Errors
/// What is wrong, without any of the text.
pub fn read_headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (n, (name, value)) in pairs(text)?.into_iter().enumerate() {
        let n = n + 1;
        let name = name.parse::<HeaderName>();
        let name = name.map_err(|_invalid| format!("part {n} has no valid name of a header"))?;
        if is_own_header(name.as_str()) {
            return Err(format!("the gateway sets the header `{name}` itself"));
        }
        let value = HeaderValue::from_str(&value);
        let mut value = value.map_err(|_invalid| format!("the value of `{name}` is no text"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// Reads `name=value,name=value`, where values have percent escapes. `Err` says which part is wrong, without its text.
///
/// <https://www.w3.org/TR/baggage/#baggage-http-header-format>
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut all = Vec::new();
    let parts = text.split(',').map(str::trim).enumerate().filter(|(_, part)| !part.is_empty());
    for (n, part) in parts {
        let n = n + 1;
        let pair = part.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        let pair = pair.filter(|(name, _)| !name.is_empty());
        let (name, value) = pair.ok_or_else(|| format!("part {n} is not `name=value`"))?;
        let (bytes, escapes) = coding::percent(value);
        let value = String::from_utf8(bytes).ok().filter(|_| escapes == value.matches('%').count());
        let value = value.ok_or_else(|| format!("part {n} has an escape that is none"))?;
        all.push((name.to_owned(), value));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{OtelVariables, OtlpProtocol, SpanBatch, read_headers};
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// What `read` returns with these variables set, and the problems.
    fn with<T>(
        set: &[(&str, &str)],
        read: impl FnOnce(&mut OtelVariables<'_>) -> T,
    ) -> (T, Vec<&'static str>) {
        let lookup = |name: &str| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let mut otel = OtelVariables::new(&lookup);
        let read = read(&mut otel);
        (read, otel.problems.into_keys().collect())
    }

    #[test]
    fn the_variables_of_a_signal_come_before_those_of_all() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/x/");
        let (found, problems) = with(
            &[
                all,
                ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://m.example/in"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a"),
                ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "api-key=b"),
                ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
                ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", " "),
            ],
            |otel| (otel.traces().unwrap(), otel.metrics().unwrap()),
        );
        assert!(problems.is_empty(), "{problems:?}");
        let (traces, metrics) = found;
        assert_eq!(traces.url, "http://127.0.0.1:4318/x/v1/traces");
        assert_eq!(metrics.url, "https://m.example/in");
        assert_eq!((traces.protocol, metrics.protocol), (OtlpProtocol::Http, OtlpProtocol::Grpc));
        assert_eq!(traces.headers, Some("OTEL_EXPORTER_OTLP_HEADERS"));
        assert_eq!(metrics.headers, Some("OTEL_EXPORTER_OTLP_METRICS_HEADERS"));
        assert_eq!(metrics.time, Some(Duration::from_millis(2500)), "an empty variable is not set");
        let (found, _) = with(&[all, ("OTEL_METRICS_EXPORTER", "prometheus, none")], |otel| {
            (otel.traces().is_some(), otel.metrics().is_some())
        });
        assert_eq!(found, (true, false));
        assert!(with(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "1")], |otel| otel.traces()).0.is_none());
    }

    #[test]
    fn what_cannot_be_used_is_a_problem_of_its_variable() {
        let at = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a:b@collector"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "unix:///run/x"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%zz"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "host=x"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b%0d%0ac"),
            ("OTEL_RESOURCE_ATTRIBUTES", "=x"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_SDK_DISABLED", "yes"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "99999999"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
        ] {
            let set = [(name, value), at];
            let (_, problems) = with(&set, |otel| {
                let none = BTreeMap::new();
                drop((otel.traces(), otel.sampler(), otel.interval(), otel.resource(&none)));
                (otel.is_disabled(), otel.batch(SpanBatch::default()))
            });
            assert_eq!(problems, [name], "{value}");
        }
        let clear = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a"),
        ];
        assert_eq!(with(&clear, |otel| otel.traces()).1, ["OTEL_EXPORTER_OTLP_ENDPOINT"]);
    }

    #[test]
    fn a_sampler_is_a_part_of_all_traces() {
        let fraction = |sampler: &str, argument: &str| {
            let set = [("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument)];
            with(&set, |otel| (otel.sampler(), otel.remarks.len()))
        };
        for (sampler, argument, expected, remarks) in [
            ("always_on", "", 1.0, 0),
            ("always_off", "7", 0.0, 0),
            ("traceidratio", "0.25", 0.25, 0),
            ("traceidratio", "", 1.0, 0),
            ("parentbased_traceidratio", "0.5", 0.5, 1),
        ] {
            let ((found, said), problems) = fraction(sampler, argument);
            assert_eq!((found, said), (Some(expected), remarks), "{sampler}");
            assert!(problems.is_empty());
        }
        assert_eq!(fraction("traceidratio", "2").1, ["OTEL_TRACES_SAMPLER_ARG"]);
    }

    #[test]
    fn the_file_names_the_service_before_the_variables_do() {
        let set = [
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment.name=p%20q, x=1"),
            ("OTEL_SERVICE_NAME", "b"),
        ];
        let named = |file: &[(&str, &str)]| {
            let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let file: BTreeMap<_, _> = file.iter().map(pair).collect();
            let (found, problems) = with(&set, |otel| otel.resource(&file));
            assert!(problems.is_empty());
            found.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(named(&[]), ["deployment.environment.name=p q", "service.name=b", "x=1"]);
        let file = [("service.name", "c"), ("x", "2")];
        assert_eq!(named(&file), ["deployment.environment.name=p q", "service.name=c", "x=2"]);
    }

    #[test]
    fn headers_are_read_without_their_escapes_and_never_shown() {
        let headers = read_headers("Authorization=Basic%20YTpi,x-scope=t%3D1,").unwrap();
        assert_eq!(headers["authorization"], "Basic YTpi");
        assert_eq!(headers["x-scope"], "t=1");
        assert!(!format!("{headers:?}").contains("YTpi"));
        let said = read_headers("a=b,secret-value").unwrap_err();
        assert_eq!(said, "part 2 is not `name=value`");
    }
}
