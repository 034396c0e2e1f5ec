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

use super::desk::{Delivered, Desk, Serves, Ticket};
use super::error::UpstreamError;
use super::noise::Noise;
use super::request::{self, Outgoing};
use crate::intake::{Intake, Received};
use crate::protocol::method;
use crate::share::Share;
use crate::wire::Message;

/// Messages that wait to be sent.
const QUEUE: usize = 64;
/// Characters of the name of a method that are logged.
const NAME: usize = 64;

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    /// Which one this is of those that were opened one after the other.
    pub(super) generation: u64,
    input: mpsc::Sender<Bytes>,
    pub(super) desk: Arc<Desk>,
    noise: Arc<Noise>,
    /// The part of its caller's share that it takes until its process has ended.
    held: Option<Held>,
    /// The channel is to end, or has ended.
    pub(super) over: CancellationToken,
    pub(super) answered: AtomicBool,
    pub(super) started: Instant,
    /// When it was last used, in seconds after it was started.
    used: AtomicU64,
}

/// The part of a share that a channel takes. It is given back when the last task of the channel ends:
/// the one that watches the process does so after it.
#[derive(Debug)]
pub(super) struct Held {
    share: Option<Share<Arc<str>>>,
    gone: CancellationToken,
}

impl Held {
    pub(super) fn new(share: Share<Arc<str>>) -> Self {
        Self { share: Some(share), gone: CancellationToken::new() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Given back first: who is told may take it.
        drop(self.share.take());
        self.gone.cancel();
    }
}

/// The answer to one request, message by message.
#[derive(Debug)]
pub(super) struct ChannelAnswer {
    channel: Arc<Channel>,
    ticket: Ticket,
}

impl Channel {
    /// A channel to the server of this name, and what is to be written to it. `limit` is how many requests may wait.
    pub(super) fn new(
        generation: u64,
        serves: Serves,
        limit: usize,
        noise: Arc<Noise>,
        name: &ServerName,
        answers: &Arc<Intake>,
        held: Option<Held>,
    ) -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (input, lines) = mpsc::channel(QUEUE);
        let channel = Self {
            generation,
            input,
            desk: Desk::new(serves, limit, name, answers),
            noise,
            held,
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
        let ticket = self.desk.wait(id, outgoing.takes, outgoing.caller);
        let ticket = ticket.ok_or(UpstreamError::Stalled)?;
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

    /// When it was last used, to the second.
    pub(super) fn last_used(&self) -> Instant {
        self.started + Duration::from_secs(self.used.load(Ordering::Relaxed))
    }

    /// What tells when it has given its part of a share back, which is when its process has ended.
    pub(super) fn gone(&self) -> Option<CancellationToken> {
        self.held.as_ref().map(|held| held.gone.clone())
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
        match self.desk.deliver(message) {
            Delivered::Done => {}
            Delivered::Unclaimed => self.noise.progress_dropped(name),
            Delivered::Refused(question) => {
                if &*question.method != method::PING
                    && let Some(suppressed) = self.noise.allow(Instant::now())
                {
                    let method: String = question.method.chars().take(NAME).collect();
                    let method = method.escape_debug();
                    tracing::warn!(
                        server = %name, %method, suppressed, why = self.desk.serves().refuses(),
                        "a question of the server was refused: it belongs to no one call whose client can be asked"
                    );
                }
                let why = self.desk.serves().refuses();
                self.try_notify(request::unasked(&question, why).into());
            }
            Delivered::Stray => {
                if let Some(suppressed) = self.noise.allow(Instant::now()) {
                    tracing::warn!(server = %name, suppressed, "a response nobody waits for was dropped");
                }
            }
        }
    }
}

impl ChannelAnswer {
    /// The next message.
    pub(super) async fn next(&mut self) -> Result<Message, UpstreamError> {
        tokio::select! {
            biased;
            message = self.ticket.next() => {
                message.ok_or(UpstreamError::Exited)?.map_err(UpstreamError::Memory)
            }
            () = self.channel.over.cancelled() => Err(UpstreamError::Exited),
        }
    }

    /// What of the response is in memory, to be kept for as long as it is used.
    pub(super) const fn received(&mut self) -> Option<Received> {
        self.ticket.received()
    }

    /// The channel that was asked.
    pub(super) const fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }
}
