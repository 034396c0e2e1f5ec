//! Clients of the old HTTP+SSE transport: a stream at `PATH/sse` for everything they are told, and
//! `PATH/message` for everything they say.
//!
//! SPEC 2024-11-05 basic/transports#http-with-sse; deprecated, and served only where a route asks
//! for it.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use policy::principal::Principal;
use tokio::sync::mpsc;

use crate::body::Body;
use crate::bounded::Bounded;
use crate::bridge::Bridge;
use crate::door::{Door, Peer};
use crate::exchange::Gateway;
use crate::failure::Failure;
use crate::hex;
use crate::reply;
use crate::seal;
use crate::sse;

/// Messages that wait for one client.
const WAITING: usize = 64;

/// The clients that are connected.
#[derive(Debug)]
pub struct Old {
    clients: Bounded<[u8; 16], (Arc<Bridge>, Arc<Principal>)>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The stream.
    Stream,
    /// A message.
    Message,
}

impl Old {
    /// Serves at most `limit` clients.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { clients: Bounded::new(limit) }
    }

    /// Which of the routes at `paths`, and which end of the transport a request is for, if any.
    #[must_use]
    pub fn serves<'a>(
        paths: &'a [Box<str>],
        method: &Method,
        path: &str,
    ) -> Option<(&'a str, End)> {
        if paths.is_empty() {
            return None;
        }
        let (route, end) = match (method, path.rsplit_once('/')?) {
            (&Method::GET, (route, "sse")) => (route, End::Stream),
            (&Method::POST, (route, "message")) => (route, End::Message),
            _ => return None,
        };
        let known = paths.iter().find(|known| known.trim_end_matches('/') == route)?;
        Some((known, end))
    }

    /// Answers a request for the end `end` of the route `route`.
    pub async fn answer(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        door: &Arc<Door>,
        peer: &Peer,
        request: Request<Incoming>,
        (route, end): (&str, End),
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let (caller, peer, mut record) = match gateway.greet(door, peer, route, &head).await {
            Ok(greeted) => greeted,
            Err(refused) => return *refused,
        };
        let known = gateway.routes.get(route).cloned();
        record.route = known.as_ref().map(|route| Arc::clone(&route.path));
        let principal = Arc::clone(&caller.principal);
        let answered = match end {
            End::Stream => self.open(gateway, door, &peer, route, principal, head.headers),
            End::Message => match gateway.body(body).await {
                Ok(text) => self.take(&head, &principal, text).await,
                Err(failure) => Err(failure),
            },
        };
        let response = gateway.settle(&record, answered);
        match known {
            Some(route) => gateway.leased(caller, route, response),
            None => response,
        }
    }

    /// Opens the stream of a client.
    fn open(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        door: &Arc<Door>,
        peer: &Peer,
        route: &str,
        principal: Arc<Principal>,
        credentials: HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        let key: [u8; 16] = seal::random().map_err(|_opaque| Failure::Overload)?;
        let path: Uri = route.parse().map_err(|_unusable| Failure::Route)?;
        let (out, mut messages) = mpsc::channel(WAITING);
        let door = Arc::new(door.inside());
        let bridge = Bridge::new(Arc::clone(gateway), door, peer.clone(), path, out);
        let taken = self.clients.insert(key, (Arc::clone(&bridge), principal));
        taken.map_err(|_full| Failure::Overload)?;
        let (events, body) = mpsc::channel(WAITING);
        let endpoint =
            format!("{}/message?session={}", route.trim_end_matches('/'), hex::encode(&key));
        let (old, tasks) = (Arc::clone(self), gateway.tasks.clone());
        gateway.tasks.spawn(async move {
            let first = Bytes::from(format!("event: endpoint\ndata: {endpoint}\n\n"));
            let mut open = events.send(first).await.is_ok();
            while open {
                let message: Option<Bytes> = tokio::select! {
                    message = messages.recv() => message,
                    () = events.closed() => None,
                    () = tasks.stopping() => None,
                };
                open = match message {
                    Some(message) => events.send(sse::encode(&message)).await.is_ok(),
                    None => false,
                };
            }
            old.clients.remove(&key);
            bridge.end(&credentials).await;
        });
        Ok(reply::events(Body::stream(body)))
    }

    /// Takes a message of a client.
    ///
    /// # Errors
    /// When its stream is not open, or is another's: the caller is not told which.
    async fn take(
        &self,
        head: &Parts,
        principal: &Principal,
        text: Bytes,
    ) -> Result<Response<Body>, Failure> {
        let unknown = || Failure::Session(crate::session::SessionError::Unknown);
        let key = head.uri.query().and_then(|query| query.strip_prefix("session="));
        let key: [u8; 16] =
            key.and_then(hex::decode).and_then(|key| key.try_into().ok()).ok_or_else(unknown)?;
        let (bridge, owner) = self.clients.get(&key).ok_or_else(unknown)?;
        if owner.key() != principal.key() {
            return Err(unknown());
        }
        bridge.take(text, &head.headers).await;
        Ok(reply::empty(StatusCode::ACCEPTED))
    }
}
