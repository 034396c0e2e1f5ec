//! Client of the Streamable HTTP transport: sends messages to an upstream server at a URL, with its credential, and
//! reads the answers.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT, VIA,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::ConfiguredHeaders;
use super::credential::Credentials;
use super::error::UpstreamError;
use super::message;
use super::request::Outgoing;
use crate::base::fair::{BlankLines, ReadBudget};
use crate::base::intake::{ResponseAccount, ResponseAccounts};
use crate::base::segments::Segments;
use crate::base::task;
use crate::config::settings::Limits;
use crate::mcp::protocol::{Era, header};
use crate::mcp::wire::{FromServerError, Message, headers};
use crate::net::connection::{
    ConnectTarget, ConnectionError, ServerConnection, ServerResponseBody,
};
use crate::net::http2::client::{SharedHttp2, StreamSlot};
use crate::stream::body::BodyCollector;
use crate::stream::sse;

/// The maximum number of idle connections to one server that each worker keeps.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// The maximum number of HTTP/2 connections to one server that the requests of one worker share.
const SHARED: usize = 64;

/// Headers of one request besides those of every request, for which a map has room: with fewer, each request would
/// hash all of them again.
const OF_REQUEST: usize = 8;

/// The pause before a lost stream is resumed, if the server names none.
const RETRY: Duration = Duration::from_secs(1);

/// An upstream server at a URL.
#[derive(Debug)]
pub(super) struct StreamableHttpClient {
    target: ConnectTarget,
    /// The URL as it was configured.
    uri: Uri,
    path: Uri,
    /// The headers of every request.
    base: HeaderMap,
    extra: ConfiguredHeaders,
    credentials: Arc<Credentials>,
    /// Idle connections, by worker: a connection belongs to the scheduler under which it was made.
    idle: Vec<Arc<ArrayQueue<ServerConnection>>>,
    /// HTTP/2 connections, by worker.
    shared: Vec<SharedConnections>,
    /// The last connection made was HTTP/2, which requests share.
    shares: AtomicBool,
    limits: Limits,
    answers: AnswerBudget,
}

/// The memory budget that the answers of a server are charged to.
#[derive(Debug)]
pub(super) struct AnswerBudget {
    /// The name of the server.
    pub(super) server: Arc<str>,
    /// The accounts of all servers.
    pub(super) accounts: Arc<ResponseAccounts>,
}

/// The connections that requests of one worker share. They belong to one entry of `servers`, so credentials and TLS
/// settings are the same for all of them.
#[derive(Debug)]
struct SharedConnections {
    connections: ArrayQueue<SharedHttp2>,
    /// Held while a connection is made, so that requests that arrive meanwhile share it.
    connecting: Mutex<()>,
}

impl SharedConnections {
    fn new() -> Self {
        Self { connections: ArrayQueue::new(SHARED), connecting: Mutex::default() }
    }

    /// A free place on one of the connections.
    fn seat(&self) -> Option<StreamSlot> {
        for _ in 0..self.connections.len() {
            let shared = self.connections.pop()?;
            let seat = shared.enter();
            if shared.is_open() {
                self.add(shared);
            }
            if seat.is_some() {
                return seat;
            }
        }
        None
    }

    /// Adds a connection. If there are enough already, it serves only the request for which it was made.
    fn add(&self, shared: SharedHttp2) {
        drop(self.connections.push(shared));
    }
}

/// The connection that a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionChoice {
    /// An existing one, if there is one.
    Any,
    /// A new one for this request.
    New,
}

/// The HTTP response to a request, read message by message.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    /// The name of the server.
    server: Arc<str>,
    link: Option<ServerConnection>,
    idle: Arc<ArrayQueue<ServerConnection>>,
    body: ServerResponseBody,
    content: AnswerContent,
    limit: usize,
    /// The session id in the headers of the response.
    pub(super) session: Option<Box<str>>,
    streamed: bool,
    /// The id of the last event that was returned, if events have ids. One that
    /// arrived and was not returned is asked for again.
    last: Option<Box<str>>,
    /// Why the stream ends after the events that have arrived.
    broken: Option<UpstreamError>,
    /// The pause that the server wants before a lost stream is resumed.
    retry: Duration,
    /// Yields to other tasks after enough bytes (`fair`), and limits lines without a message (`blanks`).
    fair: ReadBudget,
    blanks: BlankLines,
    /// The memory budget of the answer.
    received: ResponseAccount,
}

#[derive(Debug)]
enum AnswerContent {
    /// A single message, as far as it has arrived.
    Json(BodyCollector),
    /// An SSE stream, with the events that have arrived and were not returned yet.
    Events(sse::SseDecoder, VecDeque<sse::SseEvent>),
    /// The response was read to its end.
    Over,
}

/// How long the next message of an answer may take.
#[derive(Clone, Copy)]
struct ReadPatience {
    /// The time at which the whole answer has to be there.
    deadline: Instant,
    /// How long the server may be silent.
    patience: Duration,
}

impl ReadPatience {
    /// The time until which a read that begins now may take.
    ///
    /// # Errors
    /// When the deadline has passed: a timeout does not fire around a read that is always ready.
    fn until(self) -> Result<Instant, UpstreamError> {
        let now = Instant::now();
        if now >= self.deadline {
            return Err(self.late());
        }
        Ok(self.deadline.min(now + self.patience))
    }

    /// The error for a server that is too slow.
    const fn late(self) -> UpstreamError {
        UpstreamError::Timeout(self.patience)
    }
}

impl StreamableHttpClient {
    pub(super) fn new(
        uri: &Uri,
        target: ConnectTarget,
        credentials: Arc<Credentials>,
        extra: ConfiguredHeaders,
        limits: Limits,
        answers: AnswerBudget,
    ) -> Result<Self, UpstreamError> {
        let invalid = UpstreamError::Protocol("the URL cannot be used");
        let host = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let host = HeaderValue::from_str(host)
            .map_err(|_unusable| UpstreamError::Protocol("the host cannot be used"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let own = HeaderMap::from_iter([
            (HOST, host),
            (
                USER_AGENT,
                HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION"))),
            ),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            // A compressed answer would have to be decompressed before inspection.
            (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        ]);
        // Configured headers come first, so that they cannot replace the gateway's own.
        let mut base = HeaderMap::with_capacity(extra.fixed.len() + own.len() + OF_REQUEST);
        base.extend(extra.fixed.iter().map(|(name, value)| (name.clone(), value.clone())));
        base.extend(own);
        Ok(Self {
            target,
            uri: uri.clone(),
            credentials,
            path: path.parse().map_err(|_unusable| invalid)?,
            base,
            extra,
            idle: (0..task::places())
                .map(|_| Arc::new(ArrayQueue::new(MAX_IDLE_CONNECTIONS)))
                .collect(),
            shared: (0..task::places()).map(|_| SharedConnections::new()).collect(),
            shares: AtomicBool::new(false),
            limits,
            answers,
        })
    }

    /// Sends a request and reads the headers of the response.
    pub(super) async fn send(
        &self,
        outgoing: &Outgoing<'_>,
    ) -> Result<Box<HttpAnswer>, UpstreamError> {
        let (link, response) = self.let_in(&Method::POST, outgoing, None).await?;
        self.answer(link, response, outgoing)
    }

    /// Opens the GET stream of a session, or resumes one after the event `last`; `None` if the server has no such
    /// stream.
    ///
    /// SPEC 2025-11-25 basic/transports#listening-for-messages-from-the-server
    pub(super) async fn open(
        &self,
        outgoing: &Outgoing<'_>,
        last: Option<&str>,
    ) -> Result<Option<Box<HttpAnswer>>, UpstreamError> {
        let (link, response) = self.let_in(&Method::GET, outgoing, last).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Ok(None);
        }
        let mut answer = self.answer(link, response, outgoing)?;
        answer.last = last.map(Into::into);
        if answer.is_json() { Err(UpstreamError::ContentType) } else { Ok(Some(answer)) }
    }

    fn answer(
        &self,
        link: ServerConnection,
        response: Response<ServerResponseBody>,
        outgoing: &Outgoing<'_>,
    ) -> Result<Box<HttpAnswer>, UpstreamError> {
        let (head, body) = response.into_parts();
        let session = head.headers.get(&header::SESSION).and_then(|id| id.to_str().ok());
        let session = session.filter(|id| id.len() <= 1024).map(Into::into);
        let content = self.content(&head.headers, &body)?;
        let streamed = matches!(content, Some(AnswerContent::Events(..)));
        let answer = |content| {
            Box::new(HttpAnswer {
                server: Arc::clone(&self.answers.server),
                link: Some(link),
                idle: self.idle(),
                body,
                content,
                limit: self.limits.response_body,
                session,
                streamed,
                last: None,
                broken: None,
                retry: RETRY,
                fair: ReadBudget::new(),
                blanks: BlankLines::new(),
                received: self.answers.accounts.begin(&self.answers.server, outgoing.caller),
            })
        };
        match (head.status, content) {
            (StatusCode::OK, Some(content)) => Ok(answer(content)),
            (StatusCode::OK, None) => Err(UpstreamError::ContentType),
            (StatusCode::NOT_FOUND, _) if outgoing.session.is_some() => {
                Err(UpstreamError::SessionGone)
            }
            // A modern server sends JSON-RPC errors with an error status.
            (
                StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND,
                Some(content @ AnswerContent::Json(_)),
            ) if outgoing.version.era() == Era::Modern => Ok(answer(content)),
            (status, _) => Err(UpstreamError::status(status, &head.headers, &self.uri)),
        }
    }

    /// Sends a notification or a response.
    pub(super) async fn notify(&self, outgoing: &Outgoing<'_>) -> Result<(), UpstreamError> {
        let (mut link, response) = self.let_in(&Method::POST, outgoing, None).await?;
        let (head, mut body) = response.into_parts();
        if body.is_over() || link.frame(&mut body).await.is_none() {
            give_back(&self.idle(), link).await;
        }
        if head.status.is_success() {
            Ok(())
        } else {
            Err(UpstreamError::status(head.status, &head.headers, &self.uri))
        }
    }

    /// Ends a legacy session with `DELETE`.
    pub(super) async fn end(&self, outgoing: &Outgoing<'_>) -> Result<(), UpstreamError> {
        self.let_in(&Method::DELETE, outgoing, None).await.map(|_| ())
    }

    /// Obtains and caches the credential for a request.
    pub(super) async fn ready(&self, outgoing: &Outgoing<'_>) -> Result<(), UpstreamError> {
        self.credentials.shown(outgoing.subject).await.map(drop)
    }

    /// Removes the tokens that have expired.
    pub(super) fn sweep(&self) {
        self.credentials.sweep();
    }

    /// Sends a request with the credential. Retries once with a new token if the server rejects the cached one, and
    /// once over a new connection if the server reports the request as unprocessed. The server's challenge is not
    /// passed on, because obtaining tokens is up to the gateway and not to the client (vector AV-51).
    async fn let_in(
        &self,
        method: &Method,
        outgoing: &Outgoing<'_>,
        last: Option<&str>,
    ) -> Result<(ServerConnection, Response<ServerResponseBody>), UpstreamError> {
        let (mut again, mut over) = (self.credentials.are_renewable(), ConnectionChoice::Any);
        loop {
            let shown = self.credentials.shown(outgoing.subject).await?;
            let mut request = self.request(method, outgoing);
            let map = request.headers_mut();
            self.extra.write(map)?;
            if *method == Method::GET {
                map.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
                map.remove(CONTENT_TYPE);
                let last = last.and_then(|last| HeaderValue::from_str(last).ok());
                if let Some(last) = last {
                    map.insert(&header::LAST_EVENT, last);
                }
            }
            if let Some((name, value)) = &shown {
                map.insert(name, value.clone());
            }
            let mut link = match *method {
                Method::GET => Box::pin(self.listening_link(over)).await?,
                _ => self.link(over).await?,
            };
            let response = match link.send(request).await {
                Err(ConnectionError::Unprocessed(_)) if over == ConnectionChoice::Any => {
                    over = ConnectionChoice::New;
                    continue;
                }
                answered => answered?,
            };
            match (response.status(), shown) {
                (StatusCode::UNAUTHORIZED, Some((_, value))) if again => {
                    self.credentials.forget(outgoing.subject, &value);
                    again = false;
                }
                (status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), _) => {
                    return Err(UpstreamError::unauthorized(status, response.headers()));
                }
                _ => return Ok((link, response)),
            }
        }
    }

    fn idle(&self) -> Arc<ArrayQueue<ServerConnection>> {
        self.idle.get(task::place()).cloned().unwrap_or_else(|| Arc::new(ArrayQueue::new(1)))
    }

    async fn link(&self, over: ConnectionChoice) -> Result<ServerConnection, UpstreamError> {
        let sharing = self.shared.get(task::place());
        let (Some(sharing), ConnectionChoice::Any) = (sharing, over) else {
            return Ok(Box::pin(self.target.connect()).await?);
        };
        let idle = self.idle();
        while let Some(mut link) = idle.pop() {
            if link.is_usable().await {
                return Ok(link);
            }
        }
        if let Some(seat) = sharing.seat() {
            return Ok(ServerConnection::Shared(seat));
        }
        // Requests wait for the connection that is being made if they will share it, but no longer than making one
        // may take.
        let _turn = if self.shares.load(Ordering::Relaxed) {
            let turn = timeout(self.limits.connect_timeout, sharing.connecting.lock()).await;
            let late = |_| ConnectionError::Connect(io::ErrorKind::TimedOut.into());
            let turn = turn.map_err(late)?;
            if let Some(seat) = sharing.seat() {
                return Ok(ServerConnection::Shared(seat));
            }
            Some(turn)
        } else {
            None
        };
        let link = Box::pin(self.target.connect()).await?;
        if let Some(shared) = link.shared() {
            sharing.add(shared.clone());
        }
        self.shares.store(link.shared().is_some(), Ordering::Relaxed);
        Ok(link)
    }

    /// The connection for the GET stream of a session. There is one for each client that listens, so HTTP/1.1 has no
    /// buffers for it while the server is silent.
    async fn listening_link(
        &self,
        over: ConnectionChoice,
    ) -> Result<ServerConnection, UpstreamError> {
        if over == ConnectionChoice::New || self.shares.load(Ordering::Relaxed) {
            return self.link(over).await;
        }
        let link = Box::pin(self.target.connect_unbuffered()).await?;
        if let (Some(shared), Some(sharing)) = (link.shared(), self.shared.get(task::place())) {
            sharing.add(shared.clone());
        }
        Ok(link)
    }

    fn request(&self, method: &Method, outgoing: &Outgoing<'_>) -> Request<Segments> {
        let body =
            if *method == Method::POST { outgoing.body.clone() } else { Segments::default() };
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.path.clone();
        let map = request.headers_mut();
        map.clone_from(&self.base);
        if let Some(trace) = &outgoing.trace {
            map.insert(&header::TRACE_PARENT, trace.clone());
        }
        if let Some(path) = outgoing.path {
            map.insert(VIA, path.clone());
        }
        let version = HeaderValue::from_static(outgoing.version.as_str());
        match outgoing.version.era() {
            Era::Modern => {
                map.insert(&header::VERSION, version);
                if let Ok(method) = HeaderValue::from_str(&outgoing.method) {
                    map.insert(&header::METHOD, method);
                }
                map.extend(outgoing.mirrored.iter().cloned());
                if let Some(name) = outgoing.name {
                    map.insert(&header::NAME, headers::encode(name));
                }
            }
            Era::Legacy => {
                // `initialize` has no version header, because the version is not agreed on yet.
                if outgoing.method != crate::mcp::protocol::method::INITIALIZE {
                    map.insert(&header::VERSION, version);
                }
                let session = outgoing.session.and_then(|id| HeaderValue::from_str(id).ok());
                if let Some(session) = session {
                    map.insert(&header::SESSION, session);
                }
            }
        }
        request
    }

    fn content(
        &self,
        headers: &HeaderMap,
        body: &ServerResponseBody,
    ) -> Result<Option<AnswerContent>, UpstreamError> {
        if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Ok(None);
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("text/event-stream") {
            let decoder = sse::SseDecoder::new(self.limits.response_body);
            return Ok(Some(AnswerContent::Events(decoder, VecDeque::new())));
        }
        if !kind.eq_ignore_ascii_case("application/json") {
            return Ok(None);
        }
        let limit = self.limits.response_body;
        let pieces = BodyCollector::expecting(body.expected(), limit);
        let pieces = pieces.map_err(|_long| UpstreamError::TooLong(limit))?;
        Ok(Some(AnswerContent::Json(pieces)))
    }
}

impl HttpAnswer {
    /// The text of the next message; `None` at the end. The server may be silent for `patience`; an SSE comment
    /// counts as a sign of life. Cancel-safe.
    pub(super) async fn next(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Option<Segments>, UpstreamError> {
        let wait = ReadPatience { deadline, patience };
        match &self.content {
            AnswerContent::Over => Ok(None),
            AnswerContent::Json(_) => self.next_json(wait).await,
            AnswerContent::Events(..) => self.next_event(wait).await,
        }
    }

    /// Reads the single message of the answer.
    async fn next_json(&mut self, wait: ReadPatience) -> Result<Option<Segments>, UpstreamError> {
        let (Some(link), AnswerContent::Json(pieces)) = (&mut self.link, &mut self.content) else {
            return Ok(None);
        };
        let too_long = |_| UpstreamError::TooLong(self.limit);
        loop {
            let frame = timeout_at(wait.until()?, link.frame(&mut self.body)).await;
            let Some(frame) = frame.map_err(|_late| wait.late())? else { break };
            if let Ok(piece) = frame?.into_data() {
                pieces.push(piece).map_err(too_long)?;
                self.received.holds(pieces.length()).map_err(UpstreamError::Memory)?;
            }
        }
        let text = pieces.take();
        self.content = AnswerContent::Over;
        self.release().await;
        Ok(Some(text))
    }

    /// Reads the next message of the SSE stream.
    async fn next_event(&mut self, wait: ReadPatience) -> Result<Option<Segments>, UpstreamError> {
        let (Some(link), AnswerContent::Events(decoder, waiting)) =
            (&mut self.link, &mut self.content)
        else {
            return Ok(None);
        };
        self.fair.turn().await;
        // Messages that were returned are counted by their reader.
        self.received.holds(in_memory(decoder, waiting)).map_err(UpstreamError::Memory)?;
        while waiting.is_empty() {
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            let frame = timeout_at(wait.until()?, link.frame(&mut self.body)).await;
            let Some(frame) = frame.map_err(|_late| wait.late())? else {
                self.content = AnswerContent::Over;
                self.release().await;
                return Ok(None);
            };
            let Ok(data) = frame?.into_data() else { continue };
            let (last, retry) = (&mut self.last, &mut self.retry);
            let fed = decoder.feed(&data, |event| {
                if let Some(millis) = event.retry {
                    *retry = Duration::from_millis(millis);
                }
                if !event.data.is_empty() {
                    waiting.push_back(event);
                } else if event.id.is_some() {
                    // An id without a message counts once the message before it was returned.
                    *waiting.back_mut().map_or(&mut *last, |before| &mut before.id) = event.id;
                }
            });
            self.broken = fed.err().map(|_long| UpstreamError::TooLong(self.limit));
            self.received.holds(in_memory(decoder, waiting)).map_err(UpstreamError::Memory)?;
            if !waiting.is_empty() {
                self.blanks.message();
            }
            if let Err(_blank) = self.blanks.count(decoder.take_blank(), Instant::now()) {
                self.broken = Some(UpstreamError::BLANK);
            }
        }
        let next = waiting.pop_front().map(|event| {
            if event.id.is_some() {
                self.last = event.id;
            }
            event.data
        });
        self.fair.took(next.as_ref().map_or(0, Segments::length));
        Ok(next)
    }

    /// Waits for the end of the stream, which should follow the response, so that the connection can be reused.
    /// Otherwise the connection is closed.
    pub(super) async fn finish(mut self) {
        const REST_TIMEOUT: Duration = Duration::from_secs(1);
        let Some(link) = &mut self.link else { return };
        let rest = timeout(REST_TIMEOUT, link.frame(&mut self.body)).await;
        if matches!(rest, Ok(None)) {
            self.release().await;
        }
    }

    /// How to resume a lost stream: after which event, and after which pause; `None` if its events have no ids.
    pub(super) fn lost(&self) -> Option<(Box<str>, Duration)> {
        Some((self.last.clone()?, self.retry))
    }

    /// Parses the text of a message. The memory of the index over its values counts against the budget of the answer.
    pub(super) async fn read(&mut self, text: Segments) -> Result<Message, UpstreamError> {
        let read = message::read(text, &self.server, self.received.beside()).await;
        let read = read.inspect_err(|error| {
            if let FromServerError::Memory { .. } = error {
                self.received.was_refused();
            }
        })?;
        self.received.absorb(read.index);
        Ok(read.message)
    }

    /// Takes the memory budget of the answer, to be kept for as long as its content is used.
    pub(super) fn received(&mut self) -> ResponseAccount {
        self.received.split()
    }

    /// Whether it is a single message that was not read yet.
    pub(super) const fn is_json(&self) -> bool {
        matches!(self.content, AnswerContent::Json(_))
    }

    /// Whether it arrived as an SSE stream.
    pub(super) const fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// Whether it was read to its end.
    pub(super) const fn is_over(&self) -> bool {
        self.link.is_none()
    }

    async fn release(&mut self) {
        if let Some(link) = self.link.take() {
            give_back(&self.idle, link).await;
        }
    }
}

/// Bytes of complete and incomplete events that were not returned yet.
fn in_memory(decoder: &sse::SseDecoder, waiting: &VecDeque<sse::SseEvent>) -> usize {
    decoder.held() + waiting.iter().map(sse::SseEvent::held).sum::<usize>()
}

async fn give_back(idle: &ArrayQueue<ServerConnection>, mut link: ServerConnection) {
    link.rest();
    if link.is_usable().await {
        // If enough idle connections are kept, this one is closed.
        drop(idle.push(link));
    }
}
