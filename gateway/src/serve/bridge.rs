//! Clients that do not speak Streamable HTTP: over standard input and output, or over the old
//! HTTP+SSE transport. Each of their messages becomes an exchange like any other, so there is no
//! way around what an exchange asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use policy::json::{Bounds, Fragment, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::edge::admission::{Door, Peer};
use crate::edge::failure::Public;
use crate::exchange::Gateway;
use crate::mcp::protocol::{code, header, meta, method};
use crate::mcp::wire::{self, Id, Message, headers};
use crate::stream::body::Body;
use crate::stream::queue::{self, SendError};
use crate::stream::sse;

/// Headers that say who calls.
pub const CREDENTIALS: [HeaderName; 2] =
    [http::header::AUTHORIZATION, HeaderName::from_static("x-api-key")];
/// Most requests of one client that are under way.
const ROOM: usize = 64;
/// How long a stream to which the right has ended is kept for the errors of calls that are under way.
const CLOSING: Duration = Duration::from_secs(2);
/// How often in a row a stream that was lost is asked for again.
const ATTEMPTS: usize = 5;

/// One client.
pub struct Bridge {
    gateway: Arc<Gateway>,
    door: Arc<Door>,
    peer: Peer,
    path: Uri,
    /// Where messages to the client go, and how they are written.
    out: Arc<Out>,
    session: Arc<Mutex<Session>>,
    /// Requests of the modern era, which are cancelled by giving them up.
    under_way: Arc<Mutex<BTreeMap<Id, CancellationToken>>>,
    /// Most requests under way: a client that does not read is not read either.
    room: Arc<Semaphore>,
    /// For the one message that may wait beside what the client may keep.
    alone: Arc<Semaphore>,
    /// Its credential was refused.
    refused: CancellationToken,
    /// The client has gone.
    over: CancellationToken,
    /// Why the right to its stream has ended. Nothing is taken from it any more, and its calls are answered with this.
    closing: Arc<Closing>,
    /// Nothing more is to be taken from it or sent to it.
    cut: CancellationToken,
}

/// How the right to a stream has ended.
#[derive(Debug, Default)]
struct Closing {
    /// What its client is told.
    told: OnceLock<Public>,
    /// It has.
    begun: CancellationToken,
}

impl Closing {
    /// What is sent in the place of a message that waited: errors stand, and all that is no response is dropped.
    fn instead_of(&self, message: Bytes) -> Option<Bytes> {
        let told = self.told.get()?;
        let Ok(Message::Response(response)) = wire::decode(message.clone(), &Bounds::ANSWER) else {
            return None;
        };
        if let wire::Outcome::Error(_) = response.outcome {
            return Some(message);
        }
        let (id, data) = (response.id.as_ref(), told.data.as_deref());
        Some(wire::error(id, told.code, &told.message, data).into())
    }
}

/// Where messages to a client go.
#[derive(Debug)]
pub struct Out {
    /// The queue.
    pub queue: queue::Sender,
    /// How a message is written there.
    pub write: fn(Bytes) -> Bytes,
    /// How long the client may read nothing while a message waits for room, before it is cut off; without a limit if not
    /// given, which is for a client that shares the gateway with nobody.
    pub patience: Option<Duration>,
    /// What becomes of the client when another configuration takes over.
    pub on_reload: OnReload,
}

/// What becomes of a client when another configuration takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReload {
    /// Its connection goes on under the new one.
    Continues,
    /// Its stream ends, and it comes back.
    Ends,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The legacy session, once there is one.
#[derive(Debug, Default)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// Its stream was asked for.
    listens: bool,
    /// The last event that came on a stream which answers no request.
    last: Option<HeaderValue>,
}

impl Bridge {
    /// A client that came through `door` from `peer` for the route at `path`; what is to be sent to
    /// it goes to `out`.
    #[must_use]
    pub fn new(
        gateway: Arc<Gateway>,
        door: Arc<Door>,
        peer: Peer,
        path: Uri,
        out: Out,
    ) -> Arc<Self> {
        Arc::new(Self {
            gateway,
            door,
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

    /// The same client, whose messages are decided about by another configuration from now on. Its session goes on, and
    /// what is under way ends where it began.
    #[must_use]
    pub fn moved(&self, gateway: Arc<Gateway>, credentials: &HeaderMap) -> Arc<Self> {
        let moved = Arc::new(Self {
            gateway,
            door: Arc::clone(&self.door),
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

    /// Whether the client is let in with these credentials. One that is not is on record.
    ///
    /// # Errors
    /// The status of the answer that it would get.
    pub async fn admitted(&self, credentials: &HeaderMap) -> Result<(), StatusCode> {
        let (head, _) = self.request(Method::POST, Bytes::new(), credentials).into_parts();
        let greeted = self.gateway.greet(&self.door, &self.peer, self.path.path(), &head).await;
        greeted.map(|_known| ()).map_err(|refused| refused.status())
    }

    /// Resolves when the credential of the client was refused; it has been told.
    pub async fn has_been_refused(&self) {
        self.refused.cancelled().await;
    }

    /// Whether its messages are decided about by `gateway`, and not by one of another configuration.
    #[must_use]
    pub fn serves(&self, gateway: &Arc<Gateway>) -> bool {
        Arc::ptr_eq(&self.gateway, gateway) && !self.is_cut()
    }

    /// From now on nothing is taken from the client or sent to it, and what waits for it is dropped.
    pub fn cut(&self) {
        self.cut.cancel();
        self.out.queue.cut();
    }

    /// The right of the client to its stream has ended: calls that are under way, and those whose answers it has not
    /// read, are answered with errors, and then the stream ends. What is not answered soon is given up.
    pub async fn close(&self, told: Public) {
        // It ends once.
        drop(self.closing.told.set(told));
        self.closing.begun.cancel();
        self.replace_unread();
        // Each call that is under way has one of these, and ends by itself when it is revoked.
        let all = u32::try_from(ROOM).unwrap_or(u32::MAX);
        drop(tokio::time::timeout(CLOSING, self.room.acquire_many(all)).await);
        self.cut.cancel();
        // What was about to be sent when the right ended.
        self.replace_unread();
        self.out.queue.end();
    }

    /// Replaces what the client has not read to its end.
    fn replace_unread(&self) {
        self.out.queue.replace(sse::BROKEN_OFF, |event| {
            let mut messages = Vec::new();
            let mut decoder = sse::Decoder::new(usize::MAX);
            decoder.feed(&event, |event| messages.push(event)).ok()?;
            let message = messages.into_iter().find(sse::Event::is_message)?;
            self.closing.instead_of(message.data).map(self.out.write)
        });
    }

    fn is_cut(&self) -> bool {
        self.cut.is_cancelled() || self.gateway.tasks.is_retired()
    }

    /// Resolves when the client is cut off.
    pub async fn has_been_cut(&self) {
        self.cut.cancelled().await;
    }

    /// Resolves when the client has gone for good, or does not read any more.
    pub async fn deserted(&self) {
        self.out.queue.closed().await;
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<Id, CancellationToken>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message of the client, which came with these credentials. Returns when the next may
    /// be taken: with the message, where it was not taken because another configuration has taken over.
    pub async fn take(self: &Arc<Self>, text: Bytes, credentials: &HeaderMap) -> Option<Bytes> {
        let message = wire::decode(text.clone(), &Bounds::MESSAGE).ok();
        let mut request = self.request(Method::POST, text.clone(), credentials);
        match message {
            Some(Message::Request(asked)) => {
                self.describe(&mut request, &asked.method, asked.params.as_ref());
                if &*asked.method == method::INITIALIZE {
                    // What follows belongs to the session that this opens.
                    self.ask(request, asked.id, CancellationToken::new()).await;
                } else {
                    let room = tokio::select! {
                        room = Arc::clone(&self.room).acquire_owned() => room,
                        () = self.cut.cancelled() => return None,
                        () = self.closing.begun.cancelled() => return None,
                        () = self.gateway.tasks.stopping() => return Some(text),
                    };
                    // A request that has waited is decided under the configuration of now, or not at all.
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
            // An answer, or something the exchange will refuse.
            Some(Message::Response(_)) | None => self.pass(request).await,
        }
        None
    }

    fn begin_listening(self: &Arc<Self>, credentials: &HeaderMap) {
        let (bridge, credentials) = (Arc::clone(self), credentials.clone());
        self.gateway.tasks.spawn(async move { bridge.listen(&credentials).await });
    }

    /// The client has gone: its session ends, and what is under way for it in the modern era.
    pub async fn end(&self, credentials: &HeaderMap) {
        self.over.cancel();
        for given_up in std::mem::take(&mut *self.under_way()).into_values() {
            given_up.cancel();
        }
        if self.session().id.is_some() {
            let request = self.request(Method::DELETE, Bytes::new(), credentials);
            drop(self.exchange(request).await);
        }
    }

    fn request(
        &self,
        method: Method,
        text: Bytes,
        credentials: &HeaderMap,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(text));
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
        map.extend(session.id.clone().map(|id| (HeaderName::from_static(header::SESSION), id)));
        let version = session.version.clone();
        map.extend(version.map(|version| (HeaderName::from_static(header::VERSION), version)));
        request
    }

    /// Repeats in headers what a modern message says: over these transports it says it once.
    fn describe(&self, request: &mut Request<Full<Bytes>>, asked: &str, params: Option<&Fragment>) {
        let params = params.map(Fragment::value);
        let said = params.and_then(|params| params.get("_meta")?.get(meta::VERSION)?.as_str());
        let Some(version) = said.and_then(|version| HeaderValue::from_str(&version).ok()) else {
            return;
        };
        let map = request.headers_mut();
        map.remove(header::SESSION);
        map.insert(header::VERSION, version);
        if let Ok(asked) = HeaderValue::from_str(asked) {
            map.insert(header::METHOD, asked);
        }
        let name = match asked {
            method::TOOLS_CALL | method::PROMPTS_GET => "name",
            method::RESOURCES_READ => "uri",
            _ => return,
        };
        if let Some(name) = params.and_then(|params| params.get(name)).and_then(Value::as_str) {
            map.insert(header::NAME, headers::encode(&name));
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Response<Body> {
        let (gateway, door) = (Arc::clone(&self.gateway), Arc::clone(&self.door));
        match gateway.enter(&self.peer) {
            // Apart: it is larger than what else a message of this transport keeps.
            Ok(place) => Box::pin(gateway.exchange(door, self.peer.clone(), request, place)).await,
            Err(failure) => gateway.turned_away(&self.door, &self.peer, &failure),
        }
    }

    /// Passes on what wants no answer; that something is wrong with it is told all the same.
    async fn pass(&self, request: Request<Full<Bytes>>) {
        let response = self.exchange(request).await;
        if response.status() != StatusCode::ACCEPTED {
            self.hand(response, None).await;
        }
    }

    /// Passes on a request, and what comes of it.
    async fn ask(&self, request: Request<Full<Bytes>>, id: Id, given_up: CancellationToken) {
        let credentials = request.headers().clone();
        tokio::select! {
            () = self.answer(request, &id, &credentials) => {}
            // To let go of the answer is to cancel it.
            () = given_up.cancelled() => {}
            () = self.cut.cancelled() => {}
        }
        self.under_way().remove(&id);
    }

    /// What gives a request of the modern era up; noted before the next message is read.
    fn enter(&self, request: &Request<Full<Bytes>>, id: &Id) -> CancellationToken {
        let given_up = CancellationToken::new();
        if request.headers().contains_key(header::METHOD) {
            self.under_way().insert(id.clone(), given_up.clone());
        }
        given_up
    }

    async fn answer(&self, request: Request<Full<Bytes>>, id: &Id, credentials: &HeaderMap) {
        let mut response = self.exchange(request).await;
        if let Some(session) = response.headers().get(header::SESSION) {
            self.session().id = Some(session.clone());
        }
        let (mut attempts, mut before) = (0, None);
        while attempts < ATTEMPTS {
            let Some((last, pause)) = self.hand(response, Some(id)).await else { return };
            attempts = if before.as_ref() == Some(&last) { attempts + 1 } else { 0 };
            before = Some(last.clone());
            tokio::time::sleep(pause).await;
            if self.is_cut() {
                // A client that stays connected has to ask for it again.
                let continues =
                    self.out.on_reload == OnReload::Continues && !self.cut.is_cancelled();
                if continues && !self.gateway.tasks.is_stopping() {
                    break;
                }
                return;
            }
            let mut again = self.request(Method::GET, Bytes::new(), credentials);
            again.headers_mut().insert(header::LAST_EVENT, last);
            response = self.exchange(again).await;
        }
        let lost = wire::error(Some(id), code::INTERNAL, "the answer was lost", None);
        self.send(lost.into()).await;
    }

    /// The stream of the session.
    async fn listen(&self, credentials: &HeaderMap) {
        loop {
            let mut request = self.request(Method::GET, Bytes::new(), credentials);
            if let Some(last) = self.session().last.take() {
                request.headers_mut().insert(header::LAST_EVENT, last);
            }
            let response = self.exchange(request).await;
            if response.status() != StatusCode::OK {
                return;
            }
            let next = async {
                let (event, pause) = self.hand(response, None).await?;
                tokio::time::sleep(pause).await;
                Some(event)
            };
            let event = tokio::select! {
                event = next => event,
                () = self.over.cancelled() => return,
                () = self.cut.cancelled() => return,
                () = self.closing.begun.cancelled() => return,
                () = self.gateway.tasks.stopping() => return,
            };
            let Some(event) = event else { return };
            self.session().last = Some(event);
        }
    }

    /// Hands an answer to the client, message by message. A stream that was closed before the
    /// response to `awaited` came gives what it takes to go on with it.
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
                self.note(&whole);
                self.send(whole).await;
            }
            if status == StatusCode::UNAUTHORIZED {
                self.refused.cancel();
            }
            return None;
        }
        let mut decoder = sse::Decoder::new(self.gateway.limits.response_body);
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
                self.note(&event.data);
                let done = awaited.is_some_and(|id| answers(&event.data, id));
                self.send(event.data).await;
                if done {
                    return None;
                }
            }
        }
        last.map(|last| (last, pause))
    }

    /// Notes the revision that a handshake agreed on.
    fn note(&self, text: &Bytes) {
        if self.session().version.is_some() || self.session().id.is_none() {
            return;
        }
        let Ok(Message::Response(response)) = wire::decode(text.clone(), &Bounds::ANSWER) else {
            return;
        };
        if let wire::Outcome::Result(result) = response.outcome {
            let version = result.value().get("protocolVersion").and_then(Value::as_str);
            self.session().version = version.and_then(|text| HeaderValue::from_str(&text).ok());
        }
    }

    /// Sends a message. A client that reads nothing while it waits for room is cut off in time, and so is one of whose share
    /// of memory nothing is left: one that does not read would hold what is kept for it, and the right to
    /// it, for as long as it likes.
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
                // Where other streams have the memory, one message of a client that reads may wait.
                None => match self.alone.try_acquire() {
                    Ok(_alone) if out.is_read() => out.send_within(event, patience).await,
                    Ok(_) | Err(_) => return Some("the memory for what waits for it is taken"),
                },
            };
            match sent {
                // A client that has gone is noticed where its messages come from.
                Ok(()) | Err(SendError::Gone(_)) => None,
                Err(SendError::Unread(_)) => Some("it does not read"),
            }
        };
        let why = tokio::select! {
            biased;
            () = self.cut.cancelled() => None,
            () = self.closing.begun.cancelled() => {
                let instead = self.closing.instead_of(message).map(self.out.write);
                // There is room: what waited was replaced. One that does not fit is lost with the stream.
                if let Some(event) = instead
                    && out.try_send(&event) != Ok(true)
                {
                    tracing::debug!("an error was lost with the stream of its client");
                }
                None
            }
            why = sending => why,
        };
        let Some(why) = why else { return };
        if !self.cut.is_cancelled() {
            let door = &*self.door.name;
            tracing::info!(listener = door, peer = %self.peer.address, why, "a client that does not read was cut off");
            self.gateway.metrics.streams_cut.add(1);
        }
        self.cut();
    }
}

/// An answer with the id of its request: one that was refused before it was read is told without, and over these
/// transports nothing else says what it is the answer to.
fn addressed(answer: Bytes, id: &Id, status: StatusCode) -> Bytes {
    let Ok(Message::Response(response)) = wire::decode(answer.clone(), &Bounds::ANSWER) else {
        let message = format!("the request was not answered: HTTP status {}", status.as_u16());
        return wire::error(Some(id), code::INTERNAL, &message, None).into();
    };
    match (response.id, response.outcome) {
        (None, wire::Outcome::Error(error)) => {
            let member = |name: &str| error.value().get(name);
            let number = member("code").and_then(|code| code.raw().parse().ok());
            let message = member("message").and_then(Value::as_str).unwrap_or_default();
            let data = member("data").map(|data| data.raw().to_owned());
            let number = number.unwrap_or(code::INTERNAL);
            wire::error(Some(id), number, &message, data.as_deref()).into()
        }
        (Some(_), _) | (None, wire::Outcome::Result(_)) => answer,
    }
}

/// Whether a message is the response to the request `id`.
fn answers(text: &Bytes, id: &Id) -> bool {
    match wire::decode(text.clone(), &Bounds::ANSWER) {
        Ok(Message::Response(response)) => response.id.as_ref() == Some(id),
        Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => false,
    }
}
