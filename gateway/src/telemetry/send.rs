//! The export thread: takes spans from the queue and a snapshot of the metrics, and sends both to the collector.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::Collector;
use super::otlp;
use super::span::ExchangeSpan;
use crate::base::clock::Clock;
use crate::base::error_chain::ErrorChain;
use crate::config::settings::OtlpProtocol;
use crate::metrics::Metrics;
use crate::net::http_client::FetchError;

/// The interval between exports of spans, and between attempts.
const TURN: Duration = Duration::from_millis(500);
/// Maximum number of spans in one request.
const BATCH: usize = 1024;
/// How many times a request is sent before its spans are given up.
const TRIES: u32 = 3;

/// The kind of telemetry in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Traces,
    Metrics,
}

pub(super) struct Exporter {
    pub(super) collector: Collector,
    pub(super) resource: Vec<(Box<str>, Box<str>)>,
    pub(super) spans: Arc<ArrayQueue<Box<ExchangeSpan>>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) told: mpsc::Receiver<oneshot::Sender<()>>,
}

impl Exporter {
    pub(super) async fn run(mut self) {
        let mut often = tokio::time::interval(TURN);
        let mut rarely = tokio::time::interval(self.collector.interval);
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
        loop {
            let spans: Vec<_> = std::iter::from_fn(|| self.spans.pop()).take(BATCH).collect();
            if spans.is_empty() {
                return;
            }
            let message = Bytes::from(otlp::traces(&self.resource, &spans));
            let [sent, lost] = &self.metrics.spans;
            let count = spans.len() as u64;
            let mut tries = 0;
            loop {
                tries += 1;
                match self.send(Signal::Traces, &message).await {
                    Ok(()) => break sent.add(count),
                    Err(_) if tries < TRIES => tokio::time::sleep(TURN).await,
                    Err(_) => return lost.add(count),
                }
            }
        }
    }

    async fn counts(&self) {
        let (families, started) = (self.metrics.snapshot(), self.metrics.started());
        let request = otlp::metrics(&self.resource, families, started, self.clock.now());
        // No retry: the values are cumulative, so the next export has everything that a failed one had.
        drop(self.send(Signal::Metrics, &request.encode_to_vec().into()).await);
    }

    async fn send(&self, signal: Signal, message: &Bytes) -> Result<(), FetchError> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.collector.token {
            headers.insert(AUTHORIZATION, token.bearer().ok_or(FetchError::Token)?);
        }
        let [traces, metrics] = &self.collector.endpoints;
        let endpoint = if signal == Signal::Traces { traces } else { metrics };
        let sent = match self.collector.protocol {
            OtlpProtocol::Grpc => endpoint.call(signal.method(), headers, message).await,
            OtlpProtocol::Http => {
                let kind = HeaderValue::from_static("application/x-protobuf");
                headers.insert(CONTENT_TYPE, kind);
                let answer = endpoint.send(Method::POST, headers, message.clone()).await;
                answer.and_then(|answer| answer.good().map(|_| ()))
            }
        };
        let [good, bad] = &self.metrics.exports;
        match &sent {
            Ok(()) => good.add(1),
            Err(error) => {
                bad.add(1);
                tracing::debug!(error = %ErrorChain(error), ?signal, "the collector did not take it");
            }
        }
        sent
    }
}

impl Signal {
    const fn method(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }
}
