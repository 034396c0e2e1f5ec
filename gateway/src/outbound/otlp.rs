//! Carries OTLP to a collector: the HTTP client that the exporters of `opentelemetry_otlp` send their messages with.
//! The connections are those of [`Endpoint`], so that egress rules, server verification and time limits hold for
//! telemetry and for audit records as well.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message as _;

use crate::base::error_chain::ErrorChain;
use crate::config::settings::{OtlpProtocol, OtlpSignal};
use crate::metrics::Metrics;
use crate::net::http_client::{Endpoint, FetchError};
use crate::outbound::secrets::LiveSecret;

/// What the gateway presents to a collector.
#[derive(Clone, Debug)]
pub enum OtlpCredential {
    /// Nothing: the collector asks for no credential.
    None,
    /// A bearer token, in `Authorization`.
    Token(Arc<LiveSecret>),
    /// These headers, which `OTEL_EXPORTER_OTLP_HEADERS` gives.
    Headers(HeaderMap),
}

/// The client of a collector for one kind of telemetry.
#[derive(Debug)]
pub struct OtlpClient {
    /// The kind of telemetry that the messages contain.
    pub signal: OtlpSignal,
    /// The URL that messages are sent to.
    pub endpoint: Endpoint,
    /// The transport of OTLP.
    pub protocol: OtlpProtocol,
    /// What is presented to the collector.
    pub credential: OtlpCredential,
    /// The metrics that count the messages, if they are counted.
    pub metrics: Option<Arc<Metrics>>,
    /// What the collector said about the last message.
    last: Mutex<CollectorReply>,
}

/// What a collector said about a message. The exporters of `opentelemetry_otlp` do not return it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorReply {
    /// The number of spans, data points or records that it accepted and threw away. OTLP does not allow sending them
    /// again.
    pub rejected: u64,
    /// Why the message was not accepted; `None` if it was.
    pub error: Option<String>,
}

impl OtlpClient {
    /// A client whose messages are not counted.
    #[must_use]
    pub fn new(
        signal: OtlpSignal,
        endpoint: Endpoint,
        protocol: OtlpProtocol,
        credential: OtlpCredential,
    ) -> Self {
        Self { signal, endpoint, protocol, credential, metrics: None, last: Mutex::default() }
    }

    /// The same client, whose messages are counted in `metrics`.
    #[must_use]
    pub fn counted(self, metrics: &Arc<Metrics>) -> Self {
        Self { metrics: Some(Arc::clone(metrics)), ..self }
    }

    /// Sends an export request of its signal, as protobuf, once.
    ///
    /// # Errors
    /// If there is no response. A response of any status is one; [`Self::last`] says whether it accepts the message.
    pub async fn send(&self, message: Bytes) -> Result<Response<Bytes>, FetchError> {
        let answer = self.exchange(message).await;
        let reply = reply(&answer);
        if let Some(metrics) = &self.metrics {
            let [good, bad] = &metrics.exports;
            if reply.error.is_none() { good.add(1) } else { bad.add(1) }
        }
        if let Some(error) = &reply.error {
            tracing::debug!(%error, signal = ?self.signal, "the collector rejected an export");
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = reply;
        answer
    }

    /// What the collector said about the last message.
    #[must_use]
    pub fn last(&self) -> CollectorReply {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn exchange(&self, message: Bytes) -> Result<Response<Bytes>, FetchError> {
        let mut headers = match &self.credential {
            OtlpCredential::None | OtlpCredential::Token(_) => HeaderMap::new(),
            OtlpCredential::Headers(headers) => headers.clone(),
        };
        if let OtlpCredential::Token(token) = &self.credential {
            headers.insert(AUTHORIZATION, token.bearer().ok_or(FetchError::Token)?);
        }
        match self.protocol {
            OtlpProtocol::Grpc => {
                let method = method(self.signal);
                self.endpoint.call(method, headers, &message).await?;
                Ok(Response::new(Bytes::new()))
            }
            OtlpProtocol::Http => {
                let kind = HeaderValue::from_static("application/x-protobuf");
                headers.insert(CONTENT_TYPE, kind);
                let answer = self.endpoint.send(Method::POST, headers, message).await?;
                let mut response = Response::new(answer.body);
                *response.status_mut() = answer.status;
                *response.headers_mut() = answer.headers;
                Ok(response)
            }
        }
    }
}

#[async_trait]
impl HttpClient for OtlpClient {
    /// Sends the body of a request of an exporter. Its URL and its headers are not used: the exporters take them from
    /// the environment of the process, and the gateway from its configuration.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        Ok(self.send(request.into_body()).await?)
    }
}

fn reply(answer: &Result<Response<Bytes>, FetchError>) -> CollectorReply {
    let failed = |error| CollectorReply { rejected: 0, error: Some(error) };
    match answer {
        Err(error) => failed(ErrorChain(error).to_string()),
        Ok(answer) if !answer.status().is_success() => {
            failed(format!("HTTP status {}", answer.status().as_u16()))
        }
        Ok(answer) => {
            // The responses of all signals have the same fields.
            let answer = ExportLogsServiceResponse::decode(answer.body().clone()).ok();
            let partial = answer.and_then(|answer| answer.partial_success);
            let rejected = partial.map_or(0, |partial| partial.rejected_log_records);
            CollectorReply { rejected: u64::try_from(rejected).unwrap_or_default(), error: None }
        }
    }
}

/// The gRPC method that takes export requests of a signal.
const fn method(signal: OtlpSignal) -> &'static str {
    match signal {
        OtlpSignal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        OtlpSignal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        OtlpSignal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    }
}
