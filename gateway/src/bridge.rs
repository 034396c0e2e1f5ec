//! Clients that do not speak Streamable HTTP: over standard input and output, or over the old
//! HTTP+SSE transport. Each of their messages becomes an exchange like any other, so there is no
//! way around what an exchange asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use policy::json::{Bounds, Fragment, Value};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::door::{Door, Peer};
use crate::exchange::Gateway;
use crate::protocol::{code, header, meta, method};
use crate::sse;
use crate::wire::{self, Id, Message, headers};

/// Headers that say who calls.
pub const CREDENTIALS: [HeaderName; 2] =
    [http::header::AUTHORIZATION, HeaderName::from_static("x-api-key")];
/// Most requests of one client that are under way.
const ROOM: usize = 64;
/// How often in a row a stream that was lost is asked for again.
const ATTEMPTS: usize = 5;

/// One client.
pub struct Bridge {
    gateway: Arc<Gateway>,
    door: Arc<Door>,
    peer: Peer,
    path: Uri,
    /// Where messages to the client go.
    out: mpsc::Sender<Bytes>,
    session: Mutex<Session>,
    /// Requests of the modern era, which are cancelled by giving them up.
    under_way: Mutex<BTreeMap<Id, CancellationToken>>,
    /// Most requests under way: a client that does not read is not read either.
    room: Arc<Semaphore>,
    /// The client has gone.
    over: CancellationToken,
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
        out: mpsc::Sender<Bytes>,
    ) -> Arc<Self> {
        Arc::new(Self {
            gateway,
            door,
            peer,
            path,
            out,
            session: Mutex::default(),
            under_way: Mutex::default(),
            room: Arc::new(Semaphore::new(ROOM)),
            over: CancellationToken::new(),
        })
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<Id, CancellationToken>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message of the client, which came with these credentials. Returns when the next may
    /// be taken.
    pub async fn take(self: &Arc<Self>, text: Bytes, credentials: &HeaderMap) {
        let message = wire::decode(text.clone(), &Bounds::MESSAGE).ok();
        let mut request = self.request(Method::POST, text, credentials);
        match message {
            Some(Message::Request(asked)) => {
                self.describe(&mut request, &asked.method, asked.params.as_ref());
                if &*asked.method == method::INITIALIZE {
                    // What follows belongs to the session that this opens.
                    self.ask(request, asked.id, CancellationToken::new()).await;
                } else {
                    let Ok(room) = Arc::clone(&self.room).acquire_owned().await else { return };
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
                    return;
                }
                self.describe(&mut request, &told.method, told.params.as_ref());
                self.pass(request).await;
                if &*told.method == method::INITIALIZED {
                    let (bridge, credentials) = (Arc::clone(self), credentials.clone());
                    self.gateway.tasks.spawn(async move { bridge.listen(&credentials).await });
                }
            }
            // An answer, or something the exchange will refuse.
            Some(Message::Response(_)) | None => self.pass(request).await,
        }
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
        match gateway.enter() {
            Ok(place) => gateway.exchange(door, self.peer.clone(), request, place).await,
            Err(_full) => gateway.overloaded(&self.door, &self.peer),
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
            let mut again = self.request(Method::GET, Bytes::new(), credentials);
            again.headers_mut().insert(header::LAST_EVENT, last);
            response = self.exchange(again).await;
        }
        let lost = wire::error(Some(id), code::INTERNAL, "the answer was lost", None);
        self.send(lost.into()).await;
    }

    /// The stream of the session.
    async fn listen(&self, credentials: &HeaderMap) {
        let mut last: Option<HeaderValue> = None;
        loop {
            let mut request = self.request(Method::GET, Bytes::new(), credentials);
            if let Some(last) = last.take() {
                request.headers_mut().insert(header::LAST_EVENT, last);
            }
            let response = self.exchange(request).await;
            if response.status() != StatusCode::OK {
                return;
            }
            let rest = tokio::select! {
                rest = self.hand(response, None) => rest,
                () = self.over.cancelled() => return,
            };
            let Some((event, pause)) = rest else { return };
            tokio::time::sleep(pause).await;
            last = Some(event);
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
        let mut body = response.into_body();
        if !streamed {
            let whole = body.collect().await.ok()?.to_bytes();
            if !whole.is_empty() {
                self.note(&whole);
                self.send(whole).await;
            }
            return None;
        }
        let mut decoder = sse::Decoder::new(self.gateway.limits.response_body);
        let (mut last, mut pause) = (None, crate::conversation::RETRY);
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            let mut events = Vec::new();
            decoder.feed(&data, |event| events.push(event)).ok()?;
            for event in events {
                last = event.id.and_then(|id| HeaderValue::from_str(&id).ok()).or(last);
                pause = event.retry.map_or(pause, Duration::from_millis);
                if event.data.is_empty() {
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

    async fn send(&self, message: Bytes) {
        // A client that has gone is noticed where its messages come from.
        drop(self.out.send(message).await);
    }
}

/// Whether a message is the response to the request `id`.
fn answers(text: &Bytes, id: &Id) -> bool {
    match wire::decode(text.clone(), &Bounds::ANSWER) {
        Ok(Message::Response(response)) => response.id.as_ref() == Some(id),
        Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => false,
    }
}
