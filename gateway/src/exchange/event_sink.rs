//! Where the events of one answer go.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tokio::time::timeout;

use crate::edge::encode;
use crate::session::state::RETRY;
use crate::stream::body::Body;
use crate::stream::budget::Room;
use crate::stream::queue;
use crate::stream::replay::Replay;
use crate::stream::sse;

/// Events that wait for a client that reads slowly. Then the server waits.
const EVENTS: usize = 16;

/// Where the events of one answer go.
#[derive(Debug)]
pub(super) enum Outlet {
    /// To the client while it is connected: in the modern era to hang up is to cancel.
    Direct(queue::Sender),
    /// To a stream that is kept for a legacy client that comes back.
    Kept(Arc<Replay>),
}

impl Outlet {
    /// An outlet to the client that is connected now, and the answer that carries it. As many bytes wait
    /// for it as `room` has.
    pub(super) fn direct(room: Room) -> (Self, Response<Body>) {
        let (events, body) = queue::queue(Room { events: EVENTS, ..room });
        (Self::Direct(events), encode::events(Body::stream(body)))
    }

    /// An outlet to a new stream of a legacy session. With `prime` the client can come back before
    /// there is anything to tell.
    ///
    /// SPEC 2025-11-25 basic/transports#sending-messages-to-the-server
    pub(super) fn kept(stream: Arc<Replay>, prime: bool) -> Option<(Self, Response<Body>)> {
        if prime {
            stream.prime(RETRY);
        }
        let reader = stream.attach(None)?;
        Some((Self::Kept(stream), encode::events(Body::replay(reader))))
    }

    /// Sends a message, unless the client has gone, or reads nothing for `patience`. Of a stream that is kept the
    /// whole wait may take so long.
    pub(super) async fn send(&self, message: &[u8], patience: Duration) -> bool {
        match self {
            Self::Direct(events) => {
                let made = || sse::encode(message);
                events.send_made_within(message.len(), patience, made).await.is_ok()
            }
            Self::Kept(stream) => timeout(patience, stream.push(message)).await.is_ok(),
        }
    }

    /// Ends the stream with `message`, in the place of what was not read. Nobody waits for a client to read it.
    pub(super) async fn withdraw(&self, message: &[u8]) {
        match self {
            // The stream of a client that is connected ends so by itself, and may have ended.
            Self::Direct(_) => {
                self.send(message, Duration::ZERO).await;
                self.end();
            }
            Self::Kept(stream) => stream.withdraw(message),
        }
    }

    /// The client hangs up the way a server does that goes on later.
    pub(super) fn rest(&self) {
        if let Self::Kept(stream) = self {
            stream.rest();
        }
    }

    /// Nothing more will come.
    pub(super) fn end(&self) {
        match self {
            Self::Direct(events) => events.end(),
            Self::Kept(stream) => stream.end(),
        }
    }

    /// Resolves when the client has gone for good.
    pub(super) async fn closed(&self) {
        match self {
            Self::Direct(events) => events.closed().await,
            Self::Kept(_) => std::future::pending().await,
        }
    }
}
