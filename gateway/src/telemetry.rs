//! Exports traces and metrics over OTLP, from the same records and counters as the audit log and Prometheus
//! (control C24). `control` starts it; the journal hands it every exchange that ended.
//!
//! A request only pushes its span into a bounded queue; a thread that serves no clients encodes and sends the
//! spans. A collector that is down costs spans, which are counted, and must never delay or fail a request.

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
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::audit::{Observer, Record};
use crate::base::clock::Clock;
use crate::config::settings::{OtlpProtocol, TelemetrySettings as Settings};
use crate::mcp::trace_context::{ParentSpan, Trace};
use crate::metrics::Metrics;
use crate::metrics::outcome::ExchangeEnd;
use crate::net::http_client::Endpoint;
use crate::outbound::secrets::LiveSecret;

use send::Exporter;
use span::ExchangeSpan;

/// Maximum number of spans in the queue; further ones are dropped and counted.
const WAITING: usize = 8192;
/// How long the last export may take at shutdown.
const LAST: Duration = Duration::from_secs(3);
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

/// The collector that spans and metrics are exported to.
#[derive(Debug)]
pub struct Collector {
    /// The endpoints for traces and for metrics; the same one twice for gRPC.
    pub endpoints: [Endpoint; 2],
    /// The transport of OTLP.
    pub protocol: OtlpProtocol,
    /// The bearer token, if the collector requires one.
    pub token: Option<Arc<LiveSecret>>,
    /// The interval between exports of metrics.
    pub interval: Duration,
}

impl Telemetry {
    /// Starts the export thread if there is a `collector`.
    ///
    /// # Errors
    /// If the runtime or the thread cannot be created.
    pub fn start(
        settings: &Settings,
        collector: Option<Collector>,
        metrics: &Arc<Metrics>,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let (below, restarts) = (settings.below, settings.restarts);
        let (mut spans, mut last) = (None, None);
        if let Some(collector) = collector {
            let queue = Arc::new(ArrayQueue::new(WAITING));
            let (tell, told) = mpsc::channel(1);
            let sender = Exporter {
                collector,
                resource: settings.resource.clone(),
                spans: Arc::clone(&queue),
                metrics: Arc::clone(metrics),
                clock: Arc::clone(clock),
                told,
            };
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let name = "telemetry".to_owned();
            thread::Builder::new().name(name).spawn(move || runtime.block_on(sender.run()))?;
            (spans, last) = (Some(queue), Some(tell));
        }
        Ok(Self { below, restarts, metrics: Arc::clone(metrics), spans, last })
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

    /// Exports what is queued, and waits for that up to `LAST`.
    pub async fn stop(&self) {
        let Some(last) = &self.last else { return };
        let (done, is_done) = oneshot::channel();
        if last.try_send(done).is_ok() && tokio::time::timeout(LAST, is_done).await.is_err() {
            tracing::warn!("the last spans were not sent");
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
