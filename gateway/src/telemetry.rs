//! Traces and metrics on their way to a collector, from the same records and counts as the audit log
//! and Prometheus (control C24).
//!
//! A request only leaves its span in a queue that is bounded; a thread that serves no client writes it
//! down and sends it. A collector that is down costs spans, which are counted, and nothing else.

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
use crate::config::settings::{OtlpProtocol, Telemetry as Settings};
use crate::mcp::trace_context::{Parent, Trace};
use crate::metrics::Metrics;
use crate::metrics::outcome::Ending;
use crate::net::http_client::Endpoint;
use crate::outbound::secrets::LiveSecret;

use send::Sender;
use span::Span;

/// Most spans that wait.
const WAITING: usize = 8192;
/// How long the last of them may take.
const LAST: Duration = Duration::from_secs(3);
/// What of a trace id decides whether it is recorded: its last 56 bits, which are random in every id that
/// keeps to W3C Trace Context Level 2.
const RANDOM: u128 = (1 << 56) - 1;

/// Which exchanges leave spans, and where those go.
pub struct Telemetry {
    below: u64,
    restarts: bool,
    metrics: Arc<Metrics>,
    spans: Option<Arc<ArrayQueue<Box<Span>>>>,
    last: Option<mpsc::Sender<oneshot::Sender<()>>>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("below", &self.below).finish_non_exhaustive()
    }
}

/// Who takes OTLP.
#[derive(Debug)]
pub struct Collector {
    /// Where it is asked for traces and for metrics; one place for both where it speaks gRPC.
    pub endpoints: [Endpoint; 2],
    /// How it is spoken to.
    pub protocol: OtlpProtocol,
    /// What it is shown.
    pub token: Option<Arc<LiveSecret>>,
    /// How often metrics are sent.
    pub interval: Duration,
}

impl Telemetry {
    /// Begins to send to `collector`, if there is one.
    ///
    /// # Errors
    /// When there can be no more threads.
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
            let sender = Sender {
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

    /// The trace of an exchange with this id, until it is known what it belongs to.
    #[must_use]
    pub fn begin(&self, id: u128) -> Trace {
        let mut trace = Trace::new(id);
        trace.sampled = self.samples(&trace);
        trace
    }

    /// Makes it a part of what its client does, or links it to that.
    pub fn join(&self, trace: &mut Trace, parent: Option<Parent>, link: Option<Parent>) {
        match self.restarts {
            true => trace.join(None, parent.or(link)),
            false => trace.join(parent, link),
        }
        trace.sampled = self.samples(trace);
    }

    fn samples(&self, trace: &Trace) -> bool {
        self.spans.is_some() && trace.id & RANDOM < u128::from(self.below)
    }

    /// Sends what is left.
    pub async fn stop(&self) {
        let Some(last) = &self.last else { return };
        let (done, is_done) = oneshot::channel();
        if last.try_send(done).is_ok() && tokio::time::timeout(LAST, is_done).await.is_err() {
            tracing::warn!("the last spans were not sent");
        }
    }
}

impl Observer for Telemetry {
    fn ended(&self, record: &Record, ending: Ending, now: Instant) {
        let Some(spans) = self.spans.as_ref().filter(|_| record.trace.sampled) else { return };
        if spans.push(Box::new(Span::new(record, ending, now))).is_err() {
            let [_, lost] = &self.metrics.spans;
            lost.add(1);
        }
    }
}
