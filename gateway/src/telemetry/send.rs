//! The export thread: takes spans from the queue and a snapshot of the metrics, and sends both to their collectors.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, timeout};

use super::otlp::{self, MetricTimes};
use super::span::ExchangeSpan;
use crate::base::clock::Clock;
use crate::config::settings::SpanBatch;
use crate::metrics::Metrics;
use crate::outbound::otlp::OtlpClient;

/// Most spans of one exchange.
const SPANS: usize = 2;
/// The interval for what is not exported.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Exports spans and metrics, each if there is a collector for it.
pub(super) struct Exporter {
    pub(super) spans: Option<SpanExport>,
    pub(super) metrics: Option<MetricExport>,
    /// Requests to export what there is before the gateway ends.
    pub(super) told: mpsc::Receiver<oneshot::Sender<()>>,
}

/// The export of spans.
pub(super) struct SpanExport {
    /// The exporter of the SDK, which encodes and repeats, and sends through `client`.
    pub(super) exporter: opentelemetry_otlp::SpanExporter,
    pub(super) client: Arc<OtlpClient>,
    pub(super) scope: InstrumentationScope,
    pub(super) queue: Arc<ArrayQueue<Box<ExchangeSpan>>>,
    pub(super) batch: SpanBatch,
    /// Where exported and lost spans are counted.
    pub(super) counts: Arc<Metrics>,
}

/// The export of metrics.
pub(super) struct MetricExport {
    pub(super) client: Arc<OtlpClient>,
    pub(super) interval: Duration,
    pub(super) resource: Resource,
    pub(super) scope: InstrumentationScope,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Exporter {
    pub(super) async fn run(mut self) {
        let often = self.spans.as_ref().map_or(NEVER, |spans| spans.batch.delay);
        let rarely = self.metrics.as_ref().map_or(NEVER, |metrics| metrics.interval);
        let (mut often, mut rarely) = (tokio::time::interval(often), tokio::time::interval(rarely));
        often.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rarely.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = often.tick() => self.traces().await,
                _ = rarely.tick() => self.counts().await,
                asked = self.told.recv() => {
                    let Some(asked) = asked else { return };
                    self.traces().await;
                    self.counts().await;
                    // The task that stops the gateway may have stopped waiting.
                    asked.send(()).unwrap_or_default();
                }
            }
        }
    }

    async fn traces(&self) {
        if let Some(spans) = &self.spans {
            spans.export_all().await;
        }
    }

    async fn counts(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.export().await;
        }
    }
}

impl SpanExport {
    /// Exports the spans in the queue, until it is empty or an export fails.
    async fn export_all(&self) {
        let [sent, lost] = &self.counts.spans;
        loop {
            let (mut spans, mut count) = (Vec::new(), 0);
            while spans.len() + SPANS <= self.batch.size
                && let Some(exchange) = self.queue.pop()
            {
                spans.extend(exchange.spans(&self.scope));
                count += 1;
            }
            if spans.is_empty() {
                return;
            }
            match timeout(self.batch.time, self.exporter.export(spans)).await {
                Ok(Ok(())) => {
                    let rejected = self.client.last().rejected.min(count);
                    sent.add(count - rejected);
                    lost.add(rejected);
                }
                Ok(Err(_)) | Err(_) => return lost.add(count),
            }
        }
    }
}

impl MetricExport {
    /// Exports the values of this moment.
    async fn export(&self) {
        let times = MetricTimes { started: self.metrics.started(), now: self.clock.now() };
        self.metrics.count_lists().await;
        let families = self.metrics.snapshot();
        let request = otlp::metrics(&self.resource, &self.scope, families, times);
        // No retry: the values are cumulative, so the next export has everything that a failed one had.
        drop(self.client.send(request.encode_to_vec().into()).await);
    }
}
