//! The bridge for clients that do not use Streamable HTTP: over stdio or HTTP+SSE. It turns each of their messages into
//! an HTTP request to [`Gateway::exchange`], so they pass the same checks as any other, and writes the responses to
//! their stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use json::{Fragment, JsonBounds, Value};
use policy::engine::method::MethodSpec;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::base::segments::Segments;
use crate::edge::admission::{Admission, Peer};
use crate::edge::failure::PublicError;
use crate::exchange::Gateway;
use crate::mcp::protocol::{code, header, meta, method};
use crate::mcp::wire::{self, Id, Message, headers};
use crate::stream::body::Body;
use crate::stream::queue::{self, SendError};
use crate::stream::sse;

/// Headers that authenticate the client; copied to every request.
pub const CREDENTIALS: [HeaderName; 2] =
    [http::header::AUTHORIZATION, HeaderName::from_static("x-api-key")];
/// Largest number of requests of one client in flight.
const ROOM: usize = 64;
/// How long the stream of a revoked client is kept open to send the errors of calls in flight.
const CLOSING: Duration = Duration::from_secs(2);
/// How often in a row a lost stream is resumed without receiving another event.
const ATTEMPTS: usize = 5;
/// Time until a stream that is refused because its caller is over its share is asked for again.
const AGAIN: Duration = Duration::from_secs(5);

/// The connection of one client.
pub struct Bridge {
    gateway: Arc<Gateway>,
    admission: Arc<Admission>,
    peer: Peer,
    path: Uri,
    /// Messages to the client.
    out: Arc<ClientOutput>,
    session: Arc<Mutex<BridgedSession>>,
    /// Cancellation of modern-era requests in flight: those are cancelled by dropping them.
    under_way: Arc<Mutex<BTreeMap<Id, CancellationToken>>>,
    /// Bounds the requests in flight; when it is exhausted, no more messages are read from the client.
    room: Arc<Semaphore>,
    /// Lets one message wait although the client's share of memory is used up.
    alone: Arc<Semaphore>,
    /// Cancelled when the client's credential was refused.
    refused: CancellationToken,
    /// Cancelled when the client has disconnected.
    over: CancellationToken,
    /// Set when the client may no longer use its stream: no more messages are taken, and its calls are answered with
    /// this error.
    closing: Arc<StreamRevocation>,
    /// Cancelled when nothing more may be taken from the client or sent to it.
    cut: CancellationToken,
}

/// Why and when the client lost the right to its stream.
#[derive(Debug, Default)]
struct StreamRevocation {
    /// The error that the client receives.
    told: OnceLock<PublicError>,
    /// Cancelled once `told` is set.
    begun: CancellationToken,
}

impl StreamRevocation {
    /// The replacement of an unread message: error responses are kept, results become the error, other messages are
    /// dropped.
    fn instead_of(&self, message: Bytes) -> Option<Bytes> {
        let told = self.told.get()?;
        let Ok(Message::Response(response)) = wire::decode(message.clone(), &JsonBounds::ANSWER)
        else {
            return None;
        };
        if let wire::ResponseOutcome::Error(_) = response.outcome {
            return Some(message);
        }
        let (id, data) = (response.id.as_ref(), told.data.as_deref());
        Some(wire::error(id, told.code, &told.message, data).into())
    }
}

/// The outgoing side of a client.
#[derive(Debug)]
pub struct ClientOutput {
    /// The queue of messages to the client.
    pub queue: queue::EventSender,
    /// Encodes a message for the transport.
    pub write: fn(Bytes) -> Bytes,
    /// How long the client may read nothing while a message waits for room, before it is cut off. `None` means no
    /// limit, for a client that has the gateway to itself.
    pub patience: Option<Duration>,
    /// What a reload does to the client.
    pub on_reload: OnReload,
}

/// What happens to a client when another configuration is put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReload {
    /// The connection continues under the new configuration.
    Continues,
    /// The stream ends, and the client reconnects.
    Ends,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The client's legacy session, after its handshake.
#[derive(Debug, Default)]
struct BridgedSession {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// Whether the stream of the session was opened, after the client's `notifications/initialized`.
    listens: bool,
    /// The id of the last event on the stream of the session.
    last: Option<HeaderValue>,
}

impl Bridge {
    /// A bridge for a client that was admitted by `admission` at `peer` and uses the route at `path`; messages to it go to
    /// `out`.
    #[must_use]
    pub fn new(
        gateway: Arc<Gateway>,
        admission: Arc<Admission>,
        peer: Peer,
        path: Uri,
        out: ClientOutput,
    ) -> Arc<Self> {
        Arc::new(Self {
            gateway,
            admission,
            peer,
            path,
            out: Arc::new(out),
            session: Arc::default(),
            under_way: Arc::default(),
            room: Arc::new(Semaphore::new(ROOM)),
            alone: Arc::new(Semaphore::new(1)),
            refused: CancellationToken::new(),
            over: CancellationToken::new(),
            closing: Arc::default(),
            cut: CancellationToken::new(),
        })
    }

    /// The bridge of the same client under another configuration. Its session continues, and requests in flight finish
    /// under the configuration they started with.
    #[must_use]
    pub fn moved(&self, gateway: Arc<Gateway>, credentials: &HeaderMap) -> Arc<Self> {
        let moved = Arc::new(Self {
            gateway,
            admission: Arc::clone(&self.admission),
            peer: self.peer.clone(),
            path: self.path.clone(),
            out: Arc::clone(&self.out),
            session: Arc::clone(&self.session),
            under_way: Arc::clone(&self.under_way),
            room: Arc::clone(&self.room),
            alone: Arc::clone(&self.alone),
            refused: self.refused.clone(),
            over: self.over.clone(),
            closing: Arc::clone(&self.closing),
            cut: self.cut.clone(),
        });
        if moved.session().listens {
            moved.begin_listening(credentials);
        }
        moved
    }

    /// Checks whether the gateway authenticates the client with these credentials; a failure is recorded in the audit
    /// log.
    ///
    /// # Errors
    /// The status of the response that the client would get.
    pub async fn admitted(&self, credentials: &HeaderMap) -> Result<(), StatusCode> {
        let (head, _) = self.request(Method::POST, Segments::empty(), credentials).into_parts();
        let greeted =
            self.gateway.greet(&self.admission, &self.peer, self.path.path(), &head).await;
        greeted.map(|_known| ()).map_err(|refused| refused.status())
    }

    /// Resolves when the client's credential was refused and the client has been told.
    pub async fn has_been_refused(&self) {
        self.refused.cancelled().await;
    }

    /// Whether the client is still connected and its messages are exchanged by `gateway`.
    #[must_use]
    pub fn serves(&self, gateway: &Arc<Gateway>) -> bool {
        Arc::ptr_eq(&self.gateway, gateway) && !self.is_cut()
    }

    /// Ends the connection at once: nothing more is taken from the client or sent to it, and waiting messages are
    /// discarded.
    pub fn cut(&self) {
        self.cut.cancel();
        self.out.queue.cut();
    }

    /// Ends the stream of a client that may no longer use it: calls in flight and unread responses are answered with
    /// the error `told`, then the stream ends. Calls that take longer than `CLOSING` are dropped.
    pub async fn close(&self, told: PublicError) {
        // Only the first call sets the error.
        drop(self.closing.told.set(told));
        self.closing.begun.cancel();
        self.replace_unread();
        // Each call in flight holds one of these permits, and ends by itself when it is revoked.
        let all = u32::try_from(ROOM).unwrap_or(u32::MAX);
        drop(tokio::time::timeout(CLOSING, self.room.acquire_many(all)).await);
        self.cut.cancel();
        // Messages that were about to be sent when the right ended.
        self.replace_unread();
        self.out.queue.end();
    }

    /// Replaces the messages that the client has not read completely.
    fn replace_unread(&self) {
        self.out.queue.replace(sse::BROKEN_OFF, |event| {
            let mut messages = Vec::new();
            let mut decoder = sse::SseDecoder::new(usize::MAX);
            decoder.feed(&event, |event| messages.push(event)).ok()?;
            let message = messages.into_iter().find(sse::SseEvent::is_message)?;
            self.closing.instead_of(message.data.joined()).map(self.out.write)
        });
    }

    fn is_cut(&self) -> bool {
        self.cut.is_cancelled() || self.gateway.tasks.is_retired()
    }

    /// Resolves when the client was cut off.
    pub async fn has_been_cut(&self) {
        self.cut.cancelled().await;
    }

    /// Resolves when the queue to the client loses its reader: the client has disconnected or does not read.
    pub async fn deserted(&self) {
        self.out.queue.closed().await;
    }

    fn session(&self) -> MutexGuard<'_, BridgedSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<Id, CancellationToken>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message that the client sent with these credentials, and returns when the next may be read. Returns the
    /// message if it was not taken because another configuration was put in force.
    pub async fn take(
        self: &Arc<Self>,
        text: Segments,
        credentials: &HeaderMap,
    ) -> Option<Segments> {
        let message = wire::decode_any(text.clone(), &JsonBounds::MESSAGE).await.ok();
        let mut request = self.request(Method::POST, text.clone(), credentials);
        match message {
            Some(Message::Request(asked)) => {
                self.describe(&mut request, &asked.method, asked.params.as_ref());
                if &*asked.method == method::INITIALIZE {
                    // Awaited here, because later messages belong to the session that this one opens.
                    self.ask(request, asked.id, CancellationToken::new()).await;
                } else {
                    let room = tokio::select! {
                        room = Arc::clone(&self.room).acquire_owned() => room,
                        () = self.cut.cancelled() => return None,
                        () = self.closing.begun.cancelled() => return None,
                        () = self.gateway.tasks.stopping() => return Some(text),
                    };
                    // A request that waited is decided under the configuration in force now, or not at all.
                    let Some(room) = room.ok().filter(|_| !self.is_cut()) else {
                        return (!self.cut.is_cancelled()).then_some(text);
                    };
                    let (bridge, given_up) = (Arc::clone(self), self.enter(&request, &asked.id));
                    self.gateway.tasks.spawn(async move {
                        bridge.ask(request, asked.id, given_up).await;
                        drop(room);
                    });
                }
            }
            Some(Message::Notification(told)) => {
                let cancelled = told.params.as_ref().filter(|_| &*told.method == method::CANCELLED);
                let id = cancelled.and_then(|params| Id::read(params.value().get("requestId")?));
                if let Some(given_up) = id.and_then(|id| self.under_way().remove(&id)) {
                    given_up.cancel();
                    return None;
                }
                self.describe(&mut request, &told.method, told.params.as_ref());
                self.pass(request).await;
                if &*told.method == method::INITIALIZED {
                    self.session().listens = true;
                    self.begin_listening(credentials);
                }
            }
            // A response, or an invalid message, which the exchange refuses.
            Some(Message::Response(_)) | None => self.pass(request).await,
        }
        None
    }

    fn begin_listening(self: &Arc<Self>, credentials: &HeaderMap) {
        let (bridge, credentials) = (Arc::clone(self), credentials.clone());
        self.gateway.tasks.spawn(async move { bridge.listen(&credentials).await });
    }

    /// Ends the client's session and cancels its modern-era requests, after it has disconnected.
    pub async fn end(&self, credentials: &HeaderMap) {
        self.over.cancel();
        for given_up in std::mem::take(&mut *self.under_way()).into_values() {
            given_up.cancel();
        }
        if self.session().id.is_some() {
            let request = self.request(Method::DELETE, Segments::empty(), credentials);
            drop(self.exchange(request).await);
        }
    }

    fn request(
        &self,
        method: Method,
        text: Segments,
        credentials: &HeaderMap,
    ) -> Request<Segments> {
        let mut request = Request::new(text);
        *request.method_mut() = method;
        *request.uri_mut() = self.path.clone();
        let session = self.session();
        let map = request.headers_mut();
        map.insert(HOST, HeaderValue::from_static("localhost"));
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        for name in CREDENTIALS {
            map.extend(
                credentials.get_all(&name).iter().map(|value| (name.clone(), value.clone())),
            );
        }
        map.extend(session.id.clone().map(|id| (header::SESSION.clone(), id)));
        let version = session.version.clone();
        map.extend(version.map(|version| (header::VERSION.clone(), version)));
        request
    }

    /// Adds the headers that must mirror a modern message: these transports carry it without headers.
    fn describe(&self, request: &mut Request<Segments>, asked: &str, params: Option<&Fragment>) {
        let params = params.map(Fragment::value);
        let said = params.and_then(|params| params.get("_meta")?.get(meta::VERSION)?.as_str());
        let Some(version) = said.and_then(|version| HeaderValue::from_str(&version).ok()) else {
            return;
        };
        let map = request.headers_mut();
        map.remove(&header::SESSION);
        map.insert(&header::VERSION, version);
        if let Ok(asked) = HeaderValue::from_str(asked) {
            map.insert(&header::METHOD, asked);
        }
        let member = MethodSpec::by_name(asked).and_then(MethodSpec::member_in_header);
        let name = member.and_then(|member| params?.get(member)?.as_str());
        if let Some(name) = name {
            map.insert(&header::NAME, headers::encode(&name));
        }
    }

    async fn exchange(&self, request: Request<Segments>) -> Response<Body> {
        let (gateway, admission) = (Arc::clone(&self.gateway), Arc::clone(&self.admission));
        match gateway.enter(&self.peer) {
            // Boxed, because it is larger than everything else a message of this transport keeps.
            Ok(slot) => {
                Box::pin(gateway.exchange(admission, self.peer.clone(), request, slot)).await
            }
            Err(failure) => gateway.turned_away(&self.admission, &self.peer, &failure),
        }
    }

    /// Sends a message that expects no response; an error is still sent to the client.
    async fn pass(&self, request: Request<Segments>) {
        let response = self.exchange(request).await;
        if response.status() != StatusCode::ACCEPTED {
            self.hand(response, None).await;
        }
    }

    /// Sends a request and hands its response to the client.
    async fn ask(&self, request: Request<Segments>, id: Id, given_up: CancellationToken) {
        let credentials = request.headers().clone();
        tokio::select! {
            () = self.answer(request, &id, &credentials) => {}
            // Dropping the exchange cancels it.
            () = given_up.cancelled() => {}
            () = self.cut.cancelled() => {}
        }
        self.under_way().remove(&id);
    }

    /// The cancellation token of a request, registered before the next message is read if the request is modern.
    fn enter(&self, request: &Request<Segments>, id: &Id) -> CancellationToken {
        let given_up = CancellationToken::new();
        if request.headers().contains_key(&header::METHOD) {
            self.under_way().insert(id.clone(), given_up.clone());
        }
        given_up
    }

    async fn answer(&self, request: Request<Segments>, id: &Id, credentials: &HeaderMap) {
        let mut response = self.exchange(request).await;
        if let Some(session) = response.headers().get(&header::SESSION) {
            self.session().id = Some(session.clone());
        }
        let (mut attempts, mut before) = (0, None);
        while attempts < ATTEMPTS {
            let Some((last, pause)) = self.hand(response, Some(id)).await else { return };
            attempts = if before.as_ref() == Some(&last) { attempts + 1 } else { 0 };
            before = Some(last.clone());
            tokio::time::sleep(pause).await;
            if self.is_cut() {
                // The new configuration cannot resume this stream, so the client that stays connected has to retry.
                let continues =
                    self.out.on_reload == OnReload::Continues && !self.cut.is_cancelled();
                if continues && !self.gateway.tasks.is_stopping() {
                    break;
                }
                return;
            }
            let mut again = self.request(Method::GET, Segments::empty(), credentials);
            again.headers_mut().insert(&header::LAST_EVENT, last);
            response = self.exchange(again).await;
        }
        let lost = wire::error(Some(id), code::INTERNAL, "the answer was lost", None);
        self.send(lost.into()).await;
    }

    /// Hands the stream of the session to the client, and resumes it when it is interrupted.
    async fn listen(&self, credentials: &HeaderMap) {
        loop {
            let mut request = self.request(Method::GET, Segments::empty(), credentials);
            let last = self.session().last.take();
            if let Some(last) = &last {
                request.headers_mut().insert(&header::LAST_EVENT, last.clone());
            }
            let response = self.exchange(request).await;
            // The caller is over its share for now.
            let is_early = response.status() == StatusCode::TOO_MANY_REQUESTS;
            if response.status() != StatusCode::OK && !is_early {
                return;
            }
            let next = async {
                if is_early {
                    tokio::time::sleep(AGAIN).await;
                    return Some(last);
                }
                let (event, pause) = self.hand(response, None).await?;
                tokio::time::sleep(pause).await;
                Some(Some(event))
            };
            let event = tokio::select! {
                event = next => event,
                () = self.over.cancelled() => return,
                () = self.cut.cancelled() => return,
                () = self.closing.begun.cancelled() => return,
                () = self.gateway.tasks.stopping() => return,
            };
            let Some(event) = event else { return };
            self.session().last = event;
        }
    }

    /// Hands a response to the client, message by message. If a stream closed before the response to `awaited`, returns
    /// the last event id and the pause with which to resume it.
    async fn hand(
        &self,
        response: Response<Body>,
        awaited: Option<&Id>,
    ) -> Option<(HeaderValue, Duration)> {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let streamed = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        let status = response.status();
        let mut body = response.into_body();
        if !streamed {
            let whole = match body.collect().await {
                Ok(whole) => whole.to_bytes(),
                Err(cut) => cut.told.unwrap_or_default(),
            };
            let whole = match awaited {
                Some(id) if !status.is_success() => addressed(whole, id, status),
                Some(_) | None => whole,
            };
            if !whole.is_empty() {
                self.note(&whole).await;
                self.send(whole).await;
            }
            if status == StatusCode::UNAUTHORIZED {
                self.refused.cancel();
            }
            return None;
        }
        let mut decoder = sse::SseDecoder::new(self.gateway.limits.response_body);
        let (mut last, mut pause) = (None, crate::session::state::RETRY);
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            let mut events = Vec::new();
            decoder.feed(&data, |event| events.push(event)).ok()?;
            for event in events {
                let is_message = event.is_message();
                last = event.id.and_then(|id| HeaderValue::from_str(&id).ok()).or(last);
                pause = event.retry.map_or(pause, Duration::from_millis);
                if !is_message {
                    continue;
                }
                let data = wire::joined_any(event.data).await?;
                self.note(&data).await;
                let done = match awaited {
                    Some(id) => answers(&data, id).await,
                    None => false,
                };
                self.send(data).await;
                if done {
                    return None;
                }
            }
        }
        last.map(|last| (last, pause))
    }

    /// Remembers the protocol version that the handshake agreed on.
    async fn note(&self, text: &Bytes) {
        if self.session().version.is_some() || self.session().id.is_none() {
            return;
        }
        let read = wire::decode_any(text.clone().into(), &JsonBounds::ANSWER).await;
        let Ok(Message::Response(response)) = read else {
            return;
        };
        if let wire::ResponseOutcome::Result(result) = response.outcome {
            let version = result.value().get("protocolVersion").and_then(Value::as_str);
            self.session().version = version.and_then(|text| HeaderValue::from_str(&text).ok());
        }
    }

    /// Sends a message to the client. A client that reads nothing for `patience`, or whose share of memory is used up,
    /// is cut off: otherwise it could hold its waiting messages, and the right to them, for as long as it likes.
    async fn send(&self, message: Bytes) {
        let (out, event) = (&self.out.queue, (self.out.write)(message.clone()));
        let Some(patience) = self.out.patience else {
            tokio::select! {
                _ = out.send(event) => {}
                () = self.cut.cancelled() => {}
            }
            return;
        };
        let sending = async {
            let sent = match out.take(event.len()) {
                Some(taken) => out.send_taken_within(event, taken, patience).await,
                // If other streams use the memory, a client that has read everything may still have one message
                // waiting.
                None => match self.alone.try_acquire() {
                    Ok(_alone) if out.is_read() => out.send_within(event, patience).await,
                    Ok(_) | Err(_) => return Some("the memory for what waits for it is taken"),
                },
            };
            match sent {
                // The task that reads from the client notices that it has disconnected.
                Ok(()) | Err(SendError::Gone(_)) => None,
                Err(SendError::Unread(_)) => Some("it does not read"),
            }
        };
        let why = tokio::select! {
            biased;
            () = self.cut.cancelled() => None,
            () = self.closing.begun.cancelled() => {
                let instead = self.closing.instead_of(message).map(self.out.write);
                // The unread messages were replaced, so there is room. A message that does not fit is lost with the
                // stream.
                if let Some(event) = instead
                    && out.try_send(&event) != Ok(true)
                {
                    tracing::debug!("an error was dropped: the stream of its client has ended");
                }
                None
            }
            why = sending => why,
        };
        let Some(why) = why else { return };
        if !self.cut.is_cancelled() {
            let admission = &*self.admission.name;
            tracing::info!(
                event = "stdio.client_stalled", listener = admission, peer = %self.peer.address, why,
                "client disconnected: it does not read"
            );
            self.gateway.metrics.streams_cut.add(1);
        }
        self.cut();
    }
}

/// Adds the id of its request to an error response without one: a request refused before it was parsed is answered
/// without an id, and these transports have no other way to match the two.
fn addressed(answer: Bytes, id: &Id, status: StatusCode) -> Bytes {
    let Ok(Message::Response(response)) = wire::decode(answer.clone(), &JsonBounds::ANSWER) else {
        let message = format!("the request was not answered: HTTP status {}", status.as_u16());
        return wire::error(Some(id), code::INTERNAL, &message, None).into();
    };
    match (response.id, response.outcome) {
        (None, wire::ResponseOutcome::Error(error)) => {
            let member = |name: &str| error.value().get(name);
            let number = member("code").and_then(|code| code.raw().parse().ok());
            let message = member("message").and_then(Value::as_str).unwrap_or_default();
            let data = member("data").map(|data| data.raw().to_owned());
            let number = number.unwrap_or(code::INTERNAL);
            wire::error(Some(id), number, &message, data.as_deref()).into()
        }
        (Some(_), _) | (None, wire::ResponseOutcome::Result(_)) => answer,
    }
}

/// Whether `text` is the response to request `id`.
async fn answers(text: &Bytes, id: &Id) -> bool {
    match wire::decode_any(text.clone().into(), &JsonBounds::ANSWER).await {
        Ok(Message::Response(response)) => response.id.as_ref() == Some(id),
        Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => false,
    }
}
