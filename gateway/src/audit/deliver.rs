//! Delivers records to remote receivers in order, with retries until they are accepted, on a thread that serves no
//! clients.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use audit_log::chain::read;
use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram};
use tokio::runtime::Builder;

use super::ocsf;
use super::otlp::RecordExporter;
use super::spool::{SpoolReceiver, patience};
use crate::base::error_chain::ErrorChain;
use crate::config::settings::SinkFormat;
use crate::net::http_client::{Endpoint, FetchError};
use crate::outbound::secrets::LiveSecret;

/// Maximum size of one request, in bytes.
const BATCH: usize = 512 * 1024;
/// Timeout of a delivery to syslog.
const PATIENCE: Duration = Duration::from_secs(10);

/// A remote receiver of records, with its queue.
#[derive(Debug)]
pub struct Delivery {
    /// The name of the sink in the configuration.
    pub name: Box<str>,
    /// The consumer end of the sink's spool.
    pub outlet: SpoolReceiver,
    /// The format of the records.
    pub format: SinkFormat,
    /// The address of the receiver.
    pub to: DeliveryTarget,
}

/// The protocol and address of a receiver. The number of a syslog receiver is its facility.
#[derive(Debug)]
pub enum DeliveryTarget {
    /// HTTP POST of JSON lines, with an optional bearer token.
    Http(Box<Endpoint>, Option<Arc<LiveSecret>>),
    /// OTLP logs over HTTP.
    Otlp(Box<RecordExporter>),
    /// Syslog messages over UDP.
    Udp(SocketAddr, u8),
    /// Syslog messages over TCP.
    Tcp(SocketAddr, u8),
    /// Syslog messages to a Unix datagram socket.
    Unix(PathBuf, u8),
}

/// Starts the thread that delivers records until the process ends.
///
/// # Errors
/// If the thread cannot be started.
pub fn deliver(deliveries: Vec<Delivery>) -> io::Result<()> {
    if deliveries.is_empty() {
        return Ok(());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("audit-deliver".to_owned()).spawn(move || {
        runtime.block_on(join_all(deliveries.into_iter().map(Delivery::run)));
    })?;
    Ok(())
}

impl Delivery {
    async fn run(self) {
        let mut stream = None;
        loop {
            let batch = self.outlet.next(BATCH).await;
            let lines: Vec<_> = batch.lines.iter().filter_map(|line| self.written(line)).collect();
            let (mut failures, mut done) = (0, 0);
            while let Err(error) = self.send(&lines, &mut done, &mut stream).await {
                stream = None;
                if failures == 0 {
                    tracing::warn!(
                        event = "audit.delivery_failed", sink = %self.name, %error,
                        "delivery of audit records failed; it is retried"
                    );
                }
                tokio::time::sleep(patience(failures)).await;
                failures += 1;
            }
            if failures > 0 {
                tracing::info!(
                    event = "audit.delivery_recovered", sink = %self.name, failures,
                    "audit records are delivered again"
                );
            }
            self.outlet.delivered(&batch);
        }
    }

    fn written(&self, line: &Bytes) -> Option<Bytes> {
        match self.format {
            SinkFormat::Portcullis => Some(line.clone()),
            SinkFormat::Ocsf => ocsf::event(line.trim_ascii_end()).map(Bytes::from),
        }
    }

    /// Sends the lines that were not sent yet, and counts them in `done` where the protocol sends them one by one.
    async fn send(
        &self,
        lines: &[Bytes],
        done: &mut usize,
        stream: &mut Option<TcpStream>,
    ) -> Result<(), String> {
        let rest = lines.get(*done..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        match &self.to {
            DeliveryTarget::Http(endpoint, token) => post(endpoint, token.as_ref(), rest).await,
            DeliveryTarget::Otlp(exporter) => {
                let rejected = exporter.export(rest).await?;
                if rejected > 0 {
                    tracing::error!(
                        event = "audit.records_rejected", sink = %self.name, rejected,
                        "the receiver has rejected audit records"
                    );
                }
                Ok(())
            }
            DeliveryTarget::Udp(address, facility) => {
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let sent = async {
                    let socket = UdpSocket::bind(any).await?;
                    for line in rest {
                        socket.send_to(&syslog(line, *facility), address).await?;
                        *done += 1;
                    }
                    Ok(())
                };
                in_time(sent).await
            }
            DeliveryTarget::Unix(path, facility) => {
                let sent = async {
                    let socket = UnixDatagram::unbound()?;
                    for line in rest {
                        socket.send_to(&syslog(line, *facility), path).await?;
                        *done += 1;
                    }
                    Ok(())
                };
                in_time(sent).await
            }
            DeliveryTarget::Tcp(address, facility) => {
                let sent = async {
                    // A closed connection is detected before anything is written to it.
                    let gone = |stream: &TcpStream| matches!(stream.try_read(&mut [0; 64]), Ok(0));
                    if stream.as_ref().is_some_and(gone) {
                        *stream = None;
                    }
                    let stream = match stream {
                        Some(stream) => stream,
                        None => stream.insert(TcpStream::connect(address).await?),
                    };
                    for line in rest {
                        // Octet counting (RFC 6587, section 3.4.1).
                        let message = syslog(line, *facility);
                        let head = format!("{} ", message.len());
                        stream.write_all(&[head.as_bytes(), &message].concat()).await?;
                        *done += 1;
                    }
                    Ok(())
                };
                in_time(sent).await
            }
        }
    }
}

async fn in_time(sent: impl Future<Output = io::Result<()>>) -> Result<(), String> {
    match tokio::time::timeout(PATIENCE, sent).await {
        Ok(sent) => sent.map_err(|error| error.to_string()),
        Err(_) => Err("it took too long".to_owned()),
    }
}

async fn post(
    endpoint: &Endpoint,
    token: Option<&Arc<LiveSecret>>,
    lines: &[Bytes],
) -> Result<(), String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, shown(token)?);
    }
    let body = lines.concat().into();
    let answer = endpoint.send(Method::POST, headers, body).await;
    match answer.map_err(|error| ErrorChain(&error).to_string())?.status {
        status if status.is_success() => Ok(()),
        status => Err(format!("HTTP status {}", status.as_u16())),
    }
}

/// The bearer token for a receiver.
fn shown(token: &LiveSecret) -> Result<HeaderValue, String> {
    token.bearer().ok_or_else(|| ErrorChain(&FetchError::Token).to_string())
}

/// Formats a record as a syslog message (RFC 5424, section 6): a warning if the exchange was denied, refused or
/// failed, otherwise informational.
fn syslog(line: &[u8], facility: u8) -> Vec<u8> {
    let document = read(line.trim_ascii_end());
    let root = document.as_ref().map(json::Document::root);
    let text = |name: &str| {
        let found = root.and_then(|root| root.get(name)).and_then(|value| value.as_str());
        found.map(|text| text.into_owned())
    };
    let denied = matches!(text("outcome").as_deref(), Some("denied" | "refused" | "failed"));
    let priority = u32::from(facility) * 8 + if denied { 4 } else { 6 };
    let time = text("time").unwrap_or_else(|| "-".to_owned());
    let process = std::process::id();
    let kind = text("event").unwrap_or_else(|| "-".to_owned());
    let mut out = format!("<{priority}>1 {time} - portcullis {process} {kind} - ").into_bytes();
    out.extend_from_slice(line.trim_ascii_end());
    out
}
