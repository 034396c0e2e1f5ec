//! A connection on which both sides say what they like, message after message: a program's input
//! and output, or the old HTTP+SSE transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use policy::name::ServerName;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::desk::{Desk, Ticket};
use super::error::UpstreamError;
use super::request::{self, Outgoing};
use crate::wire::Message;

/// Messages that wait to be sent.
const QUEUE: usize = 64;

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    /// Which one this is of those that were opened one after the other.
    pub(super) generation: u64,
    input: mpsc::Sender<Bytes>,
    pub(super) desk: Arc<Desk>,
    /// The channel is to end, or has ended.
    pub(super) over: CancellationToken,
    pub(super) answered: AtomicBool,
    pub(super) started: Instant,
    /// When it was last used, in seconds after it was started.
    used: AtomicU64,
}

/// The answer to one request, message by message.
#[derive(Debug)]
pub(super) struct ChannelAnswer {
    channel: Arc<Channel>,
    ticket: Ticket,
}

impl Channel {
    /// A channel, and what is to be written to it. `limit` is how many requests may wait.
    pub(super) fn new(
        generation: u64,
        own: bool,
        limit: usize,
    ) -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (input, lines) = mpsc::channel(QUEUE);
        let channel = Self {
            generation,
            input,
            desk: Desk::new(own, limit),
            over: CancellationToken::new(),
            answered: AtomicBool::new(false),
            started: Instant::now(),
            used: AtomicU64::new(0),
        };
        (Arc::new(channel), lines)
    }

    /// Sends a request.
    pub(super) async fn send(
        self: &Arc<Self>,
        outgoing: &Outgoing<'_>,
        at_most: Duration,
    ) -> Result<ChannelAnswer, UpstreamError> {
        let id = outgoing.id.ok_or(UpstreamError::Protocol("a request needs an id"))?;
        let ticket = self.desk.wait(id, outgoing.asks).ok_or(UpstreamError::Stalled)?;
        self.notify(outgoing, at_most).await?;
        Ok(ChannelAnswer { channel: Arc::clone(self), ticket })
    }

    /// Sends what wants no answer.
    pub(super) async fn notify(
        &self,
        outgoing: &Outgoing<'_>,
        at_most: Duration,
    ) -> Result<(), UpstreamError> {
        self.used.store(self.started.elapsed().as_secs(), Ordering::Relaxed);
        tokio::select! {
            sent = timeout(at_most, self.input.send(outgoing.body.clone())) => match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(UpstreamError::Exited),
                Err(_) => Err(UpstreamError::Stalled),
            },
            () = self.over.cancelled() => Err(UpstreamError::Exited),
        }
    }

    /// Whether nobody has used it for `age`, and nobody waits or listens.
    pub(super) fn is_idle(&self, age: Duration) -> bool {
        let used = Duration::from_secs(self.used.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(used) >= age && !self.desk.is_busy()
    }

    /// Sends what wants no answer if there is room for it right now.
    pub(super) fn try_notify(&self, body: Bytes) {
        if let Err(error) = self.input.try_send(body) {
            tracing::debug!(%error, "a notification was not sent");
        }
    }

    /// Gives a message to whom it belongs.
    pub(super) fn deliver(&self, message: Message, name: &ServerName) {
        if matches!(message, Message::Response(_)) {
            self.answered.store(true, Ordering::Relaxed);
        }
        if let Some(question) = self.desk.deliver(message) {
            tracing::debug!(server = %name, "a question of the server was answered here");
            self.try_notify(request::unasked(&question).into());
        }
    }
}

impl ChannelAnswer {
    /// The next message.
    pub(super) async fn next(&mut self) -> Result<Message, UpstreamError> {
        tokio::select! {
            biased;
            message = self.ticket.next() => message.ok_or(UpstreamError::Exited),
            () = self.channel.over.cancelled() => Err(UpstreamError::Exited),
        }
    }

    /// The channel that was asked.
    pub(super) const fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }
}
