//! The stream of one response: a queue for a connected client, or the replay buffer of a legacy session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::time::timeout;

use crate::base::task;
use crate::edge::encode;
use crate::session::state::RETRY;
use crate::stream::body::Body;
use crate::stream::budget::StreamBounds;
use crate::stream::queue;
use crate::stream::replay::ReplayBuffer;
use crate::stream::sse;

/// Largest number of events that wait for a slow client; the server waits for more room.
const EVENTS: usize = 16;

/// The sink for the events of one response.
#[derive(Debug)]
pub(super) enum EventSink {
    /// A connected client: in the modern era a disconnect cancels the request.
    Direct(queue::EventSender),
    /// A replay buffer, from which a legacy client can resume.
    Kept(Arc<ReplayBuffer>),
}

impl EventSink {
    /// A sink for the connected client, and the response that carries it. `room` bounds the bytes that wait.
    pub(super) fn direct(room: StreamBounds) -> (Self, Response<Body>) {
        let (events, body) = queue::queue(StreamBounds { events: EVENTS, ..room });
        (Self::Direct(events), encode::events(Body::stream(body)))
    }

    /// Like [`Self::kept`]; the client can resume the stream before its first message.
    ///
    /// SPEC 2025-11-25 basic/transports#sending-messages-to-the-server
    pub(super) fn primed(stream: Arc<ReplayBuffer>) -> Option<(Self, Response<Body>)> {
        stream.prime(RETRY);
        Self::kept(stream)
    }

    /// A sink for a new stream of a legacy session.
    pub(super) fn kept(stream: Arc<ReplayBuffer>) -> Option<(Self, Response<Body>)> {
        let reader = stream.attach(None)?;
        Some((Self::Kept(stream), encode::events(Body::replay(reader))))
    }

    /// Sends a message; returns false if the client has disconnected or reads nothing for `patience`. With a replay
    /// buffer, `patience` bounds the whole wait.
    pub(super) async fn send(&self, message: &[u8], patience: Duration) -> bool {
        match self {
            Self::Direct(events) => {
                let made = || sse::encode(message);
                events.send_made_within(message.len(), patience, made).await.is_ok()
            }
            Self::Kept(stream) => timeout(patience, stream.push(message)).await.is_ok(),
        }
    }

    /// Sends a message in parts, as [`Self::send`]. A long one is copied beside the worker.
    pub(super) async fn send_parts(&self, parts: VecDeque<Bytes>, patience: Duration) -> bool {
        let bytes = parts.iter().map(Bytes::len).sum();
        // The fields before the data of a kept event are known when it is added.
        let head = match self {
            Self::Direct(_) => sse::MESSAGE_FIELDS,
            Self::Kept(_) => "",
        };
        let copy = move || sse::event_of(head, parts.iter().map(|part| &**part));
        let Some(event) = task::copied(bytes, copy).await else { return false };
        match self {
            Self::Direct(events) => events.send_within(event, patience).await.is_ok(),
            Self::Kept(stream) => timeout(patience, stream.push_data(event)).await.is_ok(),
        }
    }

    /// Ends the stream with `message` in place of what was not read, without waiting for the client.
    pub(super) async fn withdraw(&self, message: &[u8]) {
        match self {
            // The lease of a connected client's response ends the stream as well, and may already have done so.
            Self::Direct(_) => {
                self.send(message, Duration::ZERO).await;
                self.end();
            }
            Self::Kept(stream) => stream.withdraw(message),
        }
    }

    /// Closes the connection of a resumable stream, as a server does that continues later.
    pub(super) fn rest(&self) {
        if let Self::Kept(stream) = self {
            stream.rest();
        }
    }

    /// Ends the stream after the events already sent.
    pub(super) fn end(&self) {
        match self {
            Self::Direct(events) => events.end(),
            Self::Kept(stream) => stream.end(),
        }
    }

    /// Resolves when the client has disconnected; never for a resumable stream.
    pub(super) async fn closed(&self) {
        match self {
            Self::Direct(events) => events.closed().await,
            Self::Kept(_) => std::future::pending().await,
        }
    }
}
