//! The HTTP+SSE transport of 2024-11-05: the client opens a stream with GET `PATH/sse`, on which it receives all
//! messages, and sends its own with POST to `PATH/message`. The listener passes these requests on, and a [`Bridge`]
//! turns each message into an exchange.
//!
//! SPEC 2024-11-05 basic/transports#http-with-sse; deprecated, and served only on routes that enable it.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use json::hex;
use policy_core::subject::principal::Principal;

use crate::base::bounded::BoundedMap;
use crate::base::random;
use crate::base::segments::Segments;
use crate::base::share::Holder;
use crate::edge::admission::{Admission, Peer};
use crate::edge::encode;
use crate::edge::failure::{Failure, PathMismatch};
use crate::exchange::{Gateway, InFlightSlot, Route};
use crate::identity::AuthenticatedCaller;
use crate::serve::bridge::{Bridge, ClientOutput, OnReload};
use crate::stream::body::{Body, HeldOpen};
use crate::stream::budget::StreamBounds;
use crate::stream::queue::queue;
use crate::stream::slots::EventStreamSlot;
use crate::stream::sse;

/// Largest number of messages that wait for one client.
const CLIENT_QUEUE: usize = 64;

/// The connected clients, by the key in their message URL, with the principal that opened the stream.
#[derive(Debug)]
pub struct HttpSseServer {
    clients: BoundedMap<[u8; 16], (Arc<Bridge>, Arc<Principal>)>,
}

/// The client that opens a stream.
#[derive(Clone, Copy)]
struct StreamOpener<'a> {
    admission: &'a Arc<Admission>,
    peer: &'a Peer,
    caller: &'a AuthenticatedCaller,
    holder: &'a Holder,
}

/// A connected client, which is removed when its stream ends.
struct ConnectedClient {
    http_sse: Arc<HttpSseServer>,
    key: [u8; 16],
    bridge: Arc<Bridge>,
    _stream_slot: EventStreamSlot,
}

impl ConnectedClient {
    /// Waits until the client disconnects, stops reading, or may no longer use its stream, and accepts no more messages
    /// from it. After a revocation the calls in flight are still answered, with errors; otherwise the stream is cut at
    /// once.
    async fn until_it_ends(
        self,
        gateway: Arc<Gateway>,
        caller: AuthenticatedCaller,
        route: Arc<Route>,
        credentials: HeaderMap,
    ) {
        let told = tokio::select! {
            () = self.bridge.deserted() => None,
            () = self.bridge.has_been_cut() => None,
            told = gateway.right_ended(&caller, &route) => told,
        };
        self.http_sse.clients.remove(&self.key);
        match told {
            Some(told) => self.bridge.close(told).await,
            None => self.bridge.cut(),
        }
        self.bridge.end(&credentials).await;
    }
}

/// The endpoint of the transport that a request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseEndpoint {
    /// GET `PATH/sse`: opens the stream.
    Stream,
    /// POST `PATH/message`: sends a message.
    Message,
}

/// The route and the endpoint that a request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseTarget<'a> {
    /// The path of the route.
    pub route: &'a str,
    /// The endpoint below it.
    pub endpoint: SseEndpoint,
}

impl HttpSseServer {
    /// A server for at most `limit` connected clients.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { clients: BoundedMap::new(limit) }
    }

    /// The route among `paths` and the endpoint that a request addresses; `None` if it belongs to another transport.
    #[must_use]
    pub fn serves<'a>(paths: &'a [Box<str>], method: &Method, path: &str) -> Option<SseTarget<'a>> {
        if paths.is_empty() {
            return None;
        }
        let (route, endpoint) = match (method, path.rsplit_once('/')?) {
            (&Method::GET, (route, "sse")) => (route, SseEndpoint::Stream),
            (&Method::POST, (route, "message")) => (route, SseEndpoint::Message),
            _ => return None,
        };
        let known = paths.iter().find(|known| known.trim_end_matches('/') == route)?;
        Some(SseTarget { route: known, endpoint })
    }

    /// Answers a request for the endpoint `target`.
    pub async fn answer<B>(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        admission: &Arc<Admission>,
        peer: &Peer,
        request: Request<B>,
        target: SseTarget<'_>,
        mut slot: InFlightSlot,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let unread = match gateway.reserve_unread_body(peer, &body) {
            Ok(unread) => unread,
            Err(failure) => return gateway.turned_away(admission, peer, &failure),
        };
        let (caller, peer, mut record) =
            match gateway.greet(admission, peer, target.route, &head).await {
                Ok(greeted) => greeted,
                Err(refused) => return *refused,
            };
        drop(unread);
        let known = gateway.routes.get(target.route).cloned();
        record.route = known.as_ref().map(|route| Arc::clone(&route.path));
        let holder = Gateway::holder(&caller, &peer);
        record.caller = gateway.recorded_caller(&holder, &slot);
        let mut admitted = gateway.charge_to(&mut slot, &holder);
        if let (Ok(()), Some(rated)) = (&admitted, &record.caller) {
            // A message is held to the rate when it is known what it is.
            admitted = match target.endpoint {
                SseEndpoint::Stream => gateway.is_within_rate(rated),
                SseEndpoint::Message => Ok(()),
            };
            if admitted.is_ok() {
                admitted = gateway.has_share_of_log(rated).await;
            }
        }
        let answered = match (admitted, target.endpoint, &known) {
            (Err(failure), ..) => Err(failure),
            (Ok(()), SseEndpoint::Stream, Some(known)) => {
                let client =
                    StreamOpener { admission, peer: &peer, caller: &caller, holder: &holder };
                self.open(gateway, client, known, head.headers)
            }
            (Ok(()), SseEndpoint::Stream, None) => Err(Failure::Route(PathMismatch::Unknown)),
            (Ok(()), SseEndpoint::Message, _) => {
                match gateway.body(body, &holder, &mut slot).await {
                    Ok(text) => {
                        // The exchange of the message takes an in-flight permit of its own.
                        drop(slot);
                        self.take(gateway, &head, &caller.principal, text).await
                    }
                    Err(failure) => Err(failure),
                }
            }
        };
        // No lease here: `ConnectedClient` ends the stream, because the bridge knows the calls that have to be answered first.
        gateway.settle(&record, answered)
    }

    /// Opens the stream of a client and starts the task that ends it.
    fn open(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        client: StreamOpener<'_>,
        route: &Arc<Route>,
        credentials: HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        let StreamOpener { admission, peer, caller, holder } = client;
        let key: [u8; 16] = random::bytes().map_err(|_opaque| Failure::Overload)?;
        let path: Uri =
            route.path.parse().map_err(|_unusable| Failure::Route(PathMismatch::Unknown))?;
        let admission = Arc::new(admission.inside());
        let (events, body) =
            queue(StreamBounds { events: CLIENT_QUEUE, ..gateway.session_states.room(holder) });
        let endpoint =
            format!("{}/message?session={}", route.path.trim_end_matches('/'), hex::encode(&key));
        let first = Bytes::from(format!("event: endpoint\ndata: {endpoint}\n\n"));
        // The queue is empty, so this fails only if the caller has used up its share of memory.
        if events.try_send(&first) != Ok(true) {
            return Err(Failure::Overload);
        }
        // Last, because a stream of a client that is away may end for it.
        // The servers are counted with the stream of the session, which the bridge opens.
        let stream_slot = gateway.stream_slot(holder, 0)?;
        let patience = Some(gateway.limits.write_timeout);
        let write = |message: Bytes| sse::encode(&message);
        let out = ClientOutput { queue: events, write, patience, on_reload: OnReload::Ends };
        let bridge = Bridge::new(Arc::clone(gateway), admission, peer.clone(), path, out);
        let owner = Arc::clone(&caller.principal);
        let taken = self.clients.insert(key, (Arc::clone(&bridge), owner));
        taken.map_err(|_full| Failure::Overload)?;
        let served =
            ConnectedClient { http_sse: Arc::clone(self), key, bridge, _stream_slot: stream_slot };
        let (caller, route) = (caller.clone(), Arc::clone(route));
        gateway.tasks.spawn(served.until_it_ends(Arc::clone(gateway), caller, route, credentials));
        let mut response = encode::events(Body::stream(body));
        response.extensions_mut().insert(HeldOpen);
        Ok(response)
    }

    /// Passes a message of a client to its bridge.
    ///
    /// # Errors
    /// If no stream has this key, or another principal opened it; the error is the same for both.
    async fn take(
        &self,
        gateway: &Arc<Gateway>,
        head: &Parts,
        principal: &Principal,
        text: Segments,
    ) -> Result<Response<Body>, Failure> {
        let unknown = || Failure::Session(crate::session::SessionError::Unknown);
        let key = head.uri.query().and_then(|query| query.strip_prefix("session="));
        let key: [u8; 16] =
            key.and_then(hex::decode).and_then(|key| key.try_into().ok()).ok_or_else(unknown)?;
        let (bridge, owner) = self.clients.get(&key).ok_or_else(unknown)?;
        if owner.key() != principal.key() {
            return Err(unknown());
        }
        // After a reload the stream has ended, whether or not the client has noticed.
        if !bridge.serves(gateway) {
            bridge.cut();
            return Err(unknown());
        }
        // A message that a reload overtakes is lost together with the stream.
        drop(bridge.take(text, &head.headers).await);
        Ok(encode::empty(StatusCode::ACCEPTED))
    }
}
