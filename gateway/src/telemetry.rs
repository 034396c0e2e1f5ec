//! Exports traces and metrics over OTLP, from the same records and counters as the audit log and Prometheus
//! (control C24). `control` starts it; the journal hands it every exchange that ended.
//!
//! A request only pushes what its spans report into a bounded queue. A thread that serves no clients makes the spans of
//! the OpenTelemetry SDK of it, and its exporter encodes and sends them. A collector that is down costs spans, which are
//! counted, and must never delay or fail a request.

pub mod terminal;
mod span;
mod otlp;
mod send;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::audit::{Observer, Record};
use crate::base::clock::Clock;
use crate::config::settings::TelemetrySettings as Settings;
use crate::mcp::trace_context::{ParentSpan, Trace};
use crate::metrics::Metrics;
use crate::metrics::outcome::ExchangeEnd;
use crate::outbound::otlp::OtlpClient;

use send::{Exporter, MetricExport, SpanExport};
use span::ExchangeSpan;

/// The version of the semantic conventions that the names follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.40.0";
/// How long the last export may take at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// The random part of a trace id, on which sampling decides: its last 56 bits, as W3C Trace Context Level 2
/// defines.
const RANDOM: u128 = (1 << 56) - 1;

/// Decides which exchanges are sampled, and queues their spans for export.
pub struct Telemetry {
    below: u64,
    restarts: bool,
    metrics: Arc<Metrics>,
    spans: Option<Arc<ArrayQueue<Box<ExchangeSpan>>>>,
    last: Option<mpsc::Sender<oneshot::Sender<()>>>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("below", &self.below).finish_non_exhaustive()
    }
}

/// The collectors that spans and metrics are exported to, if they are.
#[derive(Debug, Default)]
pub struct Collectors {
    /// The collector of spans.
    pub traces: Option<OtlpClient>,
    /// The collector of metrics.
    pub metrics: Option<OtlpClient>,
}

impl Telemetry {
    /// Starts the export thread if there is a collector.
    ///
    /// # Errors
    /// If an exporter, the runtime or the thread cannot be created.
    pub fn start(
        settings: &Settings,
        collectors: Collectors,
        metrics: &Arc<Metrics>,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let Collectors { traces, metrics: values } = collectors;
        let (below, restarts) = (settings.below, settings.restarts);
        let is_exporting = traces.is_some() || values.is_some();
        let (resource, scope) = (resource(settings), scope());
        let spans = traces.map(|client| span_export(client, settings, &resource, metrics));
        let spans = spans.transpose()?;
        let queue = spans.as_ref().map(|spans| Arc::clone(&spans.queue));
        let values = values.map(|client| MetricExport {
            client: Arc::new(client),
            interval: settings.interval,
            resource,
            scope,
            metrics: Arc::clone(metrics),
            clock: Arc::clone(clock),
        });
        let mut last = None;
        if is_exporting {
            let (tell, told) = mpsc::channel(1);
            let exporter = Exporter { spans, metrics: values, told };
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let name = "telemetry".to_owned();
            thread::Builder::new().name(name).spawn(move || runtime.block_on(exporter.run()))?;
            last = Some(tell);
        }
        Ok(Self { below, restarts, metrics: Arc::clone(metrics), spans: queue, last })
    }

    /// A new trace for the exchange `id`, which is used until the trace context of the client is known.
    #[must_use]
    pub fn begin(&self, id: u128) -> Trace {
        let mut trace = Trace::new(id);
        trace.sampled = self.samples(&trace);
        trace
    }

    /// Makes the exchange part of the client's trace, or links it to that trace. If the configuration says
    /// `restart`, it is always a link.
    pub fn join(&self, trace: &mut Trace, parent: Option<ParentSpan>, link: Option<ParentSpan>) {
        match self.restarts {
            true => trace.join(None, parent.or(link)),
            false => trace.join(parent, link),
        }
        trace.sampled = self.samples(trace);
    }

    fn samples(&self, trace: &Trace) -> bool {
        self.spans.is_some() && trace.id & RANDOM < u128::from(self.below)
    }

    /// Exports what is queued, and waits for that up to `FLUSH_TIMEOUT`.
    pub async fn stop(&self) {
        let Some(last) = &self.last else { return };
        let (done, is_done) = oneshot::channel();
        if last.try_send(done).is_ok()
            && tokio::time::timeout(FLUSH_TIMEOUT, is_done).await.is_err()
        {
            tracing::warn!(event = "telemetry.flush_failed", "the last spans were not sent");
        }
    }
}

impl Observer for Telemetry {
    fn ended(&self, record: &Record, ending: ExchangeEnd, now: Instant) {
        let Some(spans) = self.spans.as_ref().filter(|_| record.trace.sampled) else { return };
        if spans.push(Box::new(ExchangeSpan::new(record, ending, now))).is_err() {
            let [_, lost] = &self.metrics.spans;
            lost.add(1);
        }
    }
}

/// The export of spans through `client`, with the exporter of the SDK.
fn span_export(
    client: OtlpClient,
    settings: &Settings,
    resource: &Resource,
    metrics: &Arc<Metrics>,
) -> io::Result<SpanExport> {
    let client = Arc::new(client);
    let time = client.endpoint.time();
    // The exporter wants a URL and would take that of the environment. `client` has the one in force.
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_shared_http_client(Arc::<OtlpClient>::clone(&client))
        .with_endpoint("http://localhost")
        .with_timeout(time)
        .build();
    let mut exporter = exporter.map_err(io::Error::other)?;
    exporter.set_resource(resource);
    let queue = Arc::new(ArrayQueue::new(settings.batch.queue));
    let counts = Arc::clone(metrics);
    Ok(SpanExport { exporter, client, scope: scope(), queue, batch: settings.batch, counts })
}

/// The resource that the gateway is: the configured attributes, and those of the SDK and of the program that they do
/// not set.
fn resource(settings: &Settings) -> Resource {
    let configured = settings.resource.iter();
    let pair =
        |(name, value): &(Box<str>, Box<str>)| KeyValue::new(name.to_string(), value.to_string());
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(configured.map(pair))
        .with_schema_url([version], SCHEMA)
        .build()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("portcullis")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(SCHEMA)
        .build()
}
