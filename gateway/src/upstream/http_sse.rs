//! Client of the legacy HTTP+SSE transport (2024-11-05): one SSE stream for all messages of the server, and a second
//! endpoint to which messages are posted.
//!
//! SPEC 2024-11-05 basic/transports#http-with-sse

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use policy_core::subject::name::ServerName;
use tokio::time::{Instant, timeout};

use super::ConfiguredHeaders;
use super::channel::{Channel, ChannelShare, ChannelTerms};
use super::credential::Credentials;
use super::demux::ConnectionScope;
use super::error::UpstreamError;
use super::message;
use crate::base::fair::{BlankLines, ReadBudget};
use crate::base::intake::ResponseAccount;
use crate::base::segments::Segments;
use crate::base::task::Tasks;
use crate::config::settings::Limits;
use crate::net::connection::{ConnectTarget, ServerConnection, ServerResponseBody};
use crate::stream::sse;

/// How long to wait for room to read the rest of an event.
const ROOM: Duration = Duration::from_secs(5);

/// An upstream server of the HTTP+SSE transport.
#[derive(Debug)]
pub(super) struct HttpSseClient {
    terms: ChannelTerms,
    uri: Uri,
    target: ConnectTarget,
    shown: RequestAuth,
    tasks: Tasks,
}

/// The credential and configured headers; the same for all callers, because they share a stream.
pub(super) type RequestAuth = (Arc<Credentials>, ConfiguredHeaders);

/// The headers that authenticate a request to the server.
async fn headers(auth: &RequestAuth) -> Result<HeaderMap, UpstreamError> {
    let (credentials, extra) = auth;
    let mut map = extra.fixed.clone();
    extra.write(&mut map)?;
    if let Some((name, value)) = credentials.shown(None).await? {
        map.insert(name, value);
    }
    Ok(map)
}

impl HttpSseClient {
    pub(super) fn new(
        terms: ChannelTerms,
        uri: &Uri,
        target: ConnectTarget,
        shown: RequestAuth,
        tasks: Tasks,
    ) -> Self {
        Self { terms, uri: uri.clone(), target, shown, tasks }
    }

    /// Opens the stream and waits for the endpoint for messages.
    pub(super) async fn connect(
        &self,
        generation: u64,
        serves: ConnectionScope,
        held: Option<ChannelShare>,
    ) -> Result<Arc<Channel>, UpstreamError> {
        let ChannelTerms { name, limits, .. } = &self.terms;
        let connected = timeout(limits.response_timeout, self.open()).await;
        let late = |_| UpstreamError::Timeout(limits.response_timeout);
        let (stream, endpoint) = connected.map_err(late)??;
        let channel = Channel::new(generation, serves, &self.terms, held);
        let sender = MessagePoster {
            name: name.clone(),
            target: self.target.clone(),
            host: host(&self.uri)?,
            shown: self.shown.clone(),
            endpoint,
            limits: *limits,
        };
        // The stream never ends by itself, so it must be ended when the gateway stops.
        let (tasks, over) = (self.tasks.clone(), channel.over.clone());
        self.tasks.spawn_service(async move {
            tokio::select! {
                () = tasks.halting() => over.cancel(),
                () = over.cancelled() => {}
            }
        });
        self.tasks.spawn_service(sender.write(Arc::clone(&channel)));
        self.tasks.spawn_service(read(stream, Arc::clone(&channel), name.clone()));
        Ok(channel)
    }

    async fn open(&self) -> Result<(EventStream, Uri), UpstreamError> {
        let mut link = self.target.connect().await?;
        let mut request = Request::new(Bytes::new());
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = relative(path)?;
        let map = request.headers_mut();
        map.extend(headers(&self.shown).await?);
        map.insert(HOST, host(&self.uri)?);
        map.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = link.send(request).await?;
        match response.status().as_u16() {
            200 => {}
            status @ (401 | 403) => {
                self.shown.0.renew();
                return Err(UpstreamError::Unauthorized(status));
            }
            _ => {
                let (status, headers) = (response.status(), response.headers());
                return Err(UpstreamError::status(status, headers, &self.uri));
            }
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Err(UpstreamError::ContentType);
        }
        let coding = response.headers().get(CONTENT_ENCODING);
        if coding.is_some_and(|coding| coding != "identity") {
            return Err(UpstreamError::ContentType);
        }
        let ChannelTerms { name, limits, response_memory, .. } = &self.terms;
        let decoder = sse::SseDecoder::new(limits.response_body);
        let (waiting, limit) = (std::collections::VecDeque::new(), limits.response_body);
        let body = response.into_body();
        let (fair, blanks) = (ReadBudget::new(), BlankLines::new());
        let received = response_memory.begin(&name.as_str().into(), None);
        let broken = None;
        let mut stream =
            EventStream { link, body, decoder, waiting, limit, fair, blanks, broken, received };
        let first = stream.next().await?.ok_or(UpstreamError::Incomplete)?;
        if first.name.as_deref() != Some("endpoint") {
            return Err(UpstreamError::Protocol("the stream does not begin with the endpoint"));
        }
        let told = first.data.parts().next();
        let endpoint = told.and_then(|told| std::str::from_utf8(told).ok());
        let endpoint = endpoint.and_then(|text| self.endpoint(text));
        let outside = UpstreamError::Protocol("the server names an endpoint of another server");
        Ok((stream, endpoint.ok_or(outside)?))
    }

    /// The path of the endpoint, if it is on the same server: messages and the credential must not be sent to another
    /// host because the server names one.
    fn endpoint(&self, text: &str) -> Option<Uri> {
        let uri: Uri = text.trim().parse().ok()?;
        let path = text.trim();
        match uri.authority() {
            // By RFC 3986, section 4.2, two slashes begin the name of a host.
            None => {
                let is_path = path.starts_with('/') && !path.starts_with("//");
                is_path.then(|| relative(path).ok())?
            }
            Some(authority) => {
                let same =
                    Some(authority) == self.uri.authority() && uri.scheme() == self.uri.scheme();
                same.then(|| relative(uri.path_and_query()?.as_str()).ok())?
            }
        }
    }
}

fn relative(path: &str) -> Result<Uri, UpstreamError> {
    path.parse().map_err(|_unusable| UpstreamError::Protocol("the URL cannot be used"))
}

fn host(uri: &Uri) -> Result<HeaderValue, UpstreamError> {
    let host = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    HeaderValue::from_str(host)
        .map_err(|_unusable| UpstreamError::Protocol("the host cannot be used"))
}

struct EventStream {
    link: ServerConnection,
    body: ServerResponseBody,
    decoder: sse::SseDecoder,
    waiting: std::collections::VecDeque<sse::SseEvent>,
    limit: usize,
    fair: ReadBudget,
    blanks: BlankLines,
    /// Why the stream ends after the events that are waiting.
    broken: Option<UpstreamError>,
    /// The memory budget of the events. Callers share the stream, so only the server's share is used.
    received: ResponseAccount,
}

impl EventStream {
    /// Bytes of complete and incomplete events that were not returned yet.
    fn in_memory(&self) -> usize {
        self.decoder.held() + self.waiting.iter().map(sse::SseEvent::held).sum::<usize>()
    }

    /// The next event; `None` at the end. Events that stand before a fault are returned before it.
    async fn next(&mut self) -> Result<Option<sse::SseEvent>, UpstreamError> {
        self.fair.turn().await;
        self.received.waits(self.in_memory(), ROOM).await.map_err(UpstreamError::Memory)?;
        while self.waiting.is_empty() {
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            let Some(frame) = self.link.frame(&mut self.body).await else { return Ok(None) };
            let Ok(data) = frame?.into_data() else { continue };
            let waiting = &mut self.waiting;
            let fed = self.decoder.feed(&data, |event| {
                if !event.data.is_empty() {
                    waiting.push_back(event);
                }
            });
            self.broken = fed.err().map(|_long| UpstreamError::TooLong(self.limit));
            self.received.waits(self.in_memory(), ROOM).await.map_err(UpstreamError::Memory)?;
            if !self.waiting.is_empty() {
                self.blanks.message();
            }
            if let Err(_blank) = self.blanks.count(self.decoder.take_blank(), Instant::now()) {
                self.broken = Some(UpstreamError::BLANK);
            }
        }
        let next = self.waiting.pop_front();
        self.fair.took(next.as_ref().map_or(0, |event| event.data.length()));
        Ok(next)
    }
}

async fn read(mut stream: EventStream, channel: Arc<Channel>, name: ServerName) {
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            () = channel.over.cancelled() => return,
        };
        let event = match event {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(error) => {
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::warn!(
                    event = "stream.broken", server = %name, %error,
                    "event stream broken"
                );
                break;
            }
        };
        let received = &stream.received;
        match message::read_patiently(event.data, name.as_str(), received, ROOM).await {
            Ok(read) => {
                channel.deliver(read.message, &name);
                tokio::select! {
                    () = channel.demux.ready() => {}
                    () = channel.over.cancelled() => return,
                }
            }
            Err(error) => {
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::warn!(
                    event = "server.invalid_message", server = %name, %error,
                    "server sent an event that is not a JSON-RPC message"
                );
                break;
            }
        }
    }
    tracing::info!(event = "stream.ended", server = %name, "event stream ended");
    channel.end();
}

/// Posts messages one after the other, over one connection while it lasts.
struct MessagePoster {
    name: ServerName,
    target: ConnectTarget,
    host: HeaderValue,
    shown: RequestAuth,
    endpoint: Uri,
    limits: Limits,
}

impl MessagePoster {
    async fn write(self, channel: Arc<Channel>) {
        let mut kept = None;
        while let Some(message) = channel.next_unsent().await {
            let posting = self.post(message.body.clone(), &mut kept);
            let posted = tokio::select! {
                posted = timeout(self.limits.response_timeout, posting) => posted,
                () = channel.over.cancelled() => break,
            };
            match posted {
                Ok(Ok(())) => channel.sent(message),
                Ok(Err(error)) => {
                    let error = crate::base::error_chain::ErrorChain(&error);
                    tracing::warn!(
                        event = "server.send_failed", server = %self.name, %error,
                        "the server does not accept messages"
                    );
                    break;
                }
                Err(_) => {
                    channel.has_stalled();
                    break;
                }
            }
            channel.moved();
        }
        channel.close();
    }

    async fn post(
        &self,
        line: Segments,
        kept: &mut Option<ServerConnection>,
    ) -> Result<(), UpstreamError> {
        let mut link = match kept.take() {
            Some(mut link) => {
                if link.is_usable().await {
                    link
                } else {
                    self.target.connect().await?
                }
            }
            None => self.target.connect().await?,
        };
        let mut request = Request::new(line);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        let map = request.headers_mut();
        map.extend(headers(&self.shown).await?);
        map.insert(HOST, self.host.clone());
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = link.send(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = response.into_body();
        while let Some(frame) = link.frame(&mut body).await {
            frame?;
        }
        if matches!(status.as_u16(), 401 | 403) {
            // With a new token the stream is opened again.
            self.shown.0.renew();
            return Err(UpstreamError::unauthorized(status, &headers));
        }
        if !status.is_success() {
            return Err(UpstreamError::Status(status.as_u16()));
        }
        link.rest();
        *kept = Some(link);
        Ok(())
    }
}
