//! Messages that an upstream server sends on its own initiative, such as list-changed and resource-updated
//! notifications.
//!
//! A legacy server sends them on the GET stream of a session, a modern one in answer to `subscriptions/listen`, a
//! program on its output at any time. A [`Feed`] hides the difference from the exchange.

use std::sync::Arc;

use json::Fragment;
use policy::definition::offer::ItemKind;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::answer::{Incoming, IncomingMessages, InputRequest};
use super::demux::{Demux, QueuedNotification};
use super::reply::ServerReply;
use super::request;
use super::stream::{SILENCE, SessionStream, pause};
use super::subscription::{NotificationFilter, changed};
use super::{MISDIRECTED, OnBehalfOf, ReplySender, Transport, Upstream, UpstreamError};
use crate::audit::ReadEntry;
use crate::mcp::protocol::{Era, method};
use crate::mcp::wire::{Message, Notification};
use crate::session::UpstreamSession;

/// A message that a server sent on its own initiative.
#[derive(Debug)]
pub enum ServerMessage {
    /// A notification, which needs no answer.
    Notification(Arc<Notification>),
    /// A request to the client; the reply goes to the replier.
    Request(InputRequest, Box<ReplySender>),
}

/// The messages of one server for one listener.
#[derive(Debug)]
pub struct Feed {
    upstream: Arc<Upstream>,
    on_behalf: OnBehalfOf,
    upstream_session: Option<UpstreamSession>,
    wants: NotificationFilter,
    source: FeedSource,
    /// Distributes progress to the calls of the session.
    demux: Option<Arc<Demux>>,
    /// The resources that are counted in `watched` for this feed. With `generation`, the channel they belong to.
    counted: Vec<Box<str>>,
    generation: u64,
    /// How many times in a row the stream was lost.
    attempts: u32,
}

#[derive(Debug)]
enum FeedSource {
    /// The GET stream of a legacy session.
    Session(Box<SessionStream>),
    /// The answer to `subscriptions/listen`, and the id of that request.
    Listen(Option<Box<IncomingMessages>>, i64),
    /// The notifications of a channel or of a standing session.
    Channel(broadcast::Receiver<Arc<QueuedNotification>>),
    /// A server that sends nothing on its own initiative.
    Silent,
}

impl Upstream {
    /// Listens to the server for `on_behalf`, until the feed is dropped.
    ///
    /// The proof is `wants`, which is made of the permit of the server and those of what is listened for, with the entry
    /// of the exchange that asks.
    ///
    /// # Errors
    /// If the server cannot be reached, or `wants` is for another one.
    pub async fn listen(
        self: &Arc<Self>,
        mut wants: NotificationFilter,
        _on_record: &ReadEntry,
        on_behalf: OnBehalfOf,
    ) -> Result<Feed, UpstreamError> {
        if *wants.server() != self.name {
            return Err(MISDIRECTED);
        }
        let upstream_session = self.reach(&on_behalf).await?;
        let era = upstream_session
            .as_ref()
            .map_or(Era::Modern, |upstream_session| upstream_session.version.era());
        let source = match (&self.transport, era) {
            (Transport::Http(_), Era::Legacy) => {
                match (&upstream_session, self.overheard(&on_behalf)) {
                    (_, Some(overheard)) if on_behalf.upstream_session.is_none() => {
                        FeedSource::Channel(overheard)
                    }
                    (Some(upstream_session), _) => {
                        match SessionStream::new(self, &on_behalf, upstream_session) {
                            Some(stream) => FeedSource::Session(Box::new(stream)),
                            None => FeedSource::Silent,
                        }
                    }
                    (None, _) => FeedSource::Silent,
                }
            }
            (Transport::Channel(pool), Era::Legacy) => {
                let session = upstream_session
                    .as_ref()
                    .and_then(|upstream_session| upstream_session.id.as_deref());
                FeedSource::Channel(pool.channel(session).await?.demux.listen())
            }
            (_, Era::Modern) => {
                if wants.items().is_empty() {
                    FeedSource::Silent
                } else {
                    match self
                        .ask_to_listen(&mut wants, &on_behalf, upstream_session.as_ref())
                        .await
                    {
                        Ok((messages, id)) => FeedSource::Listen(Some(Box::new(messages)), id),
                        // The server does not offer subscriptions.
                        Err(UpstreamError::Refused) => {
                            wants.clear();
                            FeedSource::Silent
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        };
        let generation = match &self.transport {
            Transport::Http(_) => 0,
            Transport::Channel(_) => self.known(&on_behalf).await?.generation,
        };
        let own = upstream_session.as_ref().filter(|_| {
            matches!(source, FeedSource::Session(_)) && on_behalf.upstream_session.is_some()
        });
        let demux = own.and_then(|upstream_session| self.demux(&on_behalf, upstream_session));
        demux.iter().for_each(|demux| demux.attended());
        let (upstream, counted) = (Arc::clone(self), Vec::new());
        let mut feed = Feed {
            upstream,
            on_behalf,
            upstream_session,
            wants,
            source,
            demux,
            counted,
            generation,
            attempts: 0,
        };
        if era == Era::Legacy {
            for uri in feed.wants.items().resources().to_vec() {
                feed.watch(&uri).await?;
            }
        }
        Ok(feed)
    }

    /// Sends `subscriptions/listen` and limits `wants` to what the server acknowledges: SPEC 2026-07-28
    /// basic/patterns/subscriptions#opening-a-stream.
    async fn ask_to_listen(
        self: &Arc<Self>,
        wants: &mut NotificationFilter,
        on_behalf: &OnBehalfOf,
        upstream_session: Option<&UpstreamSession>,
    ) -> Result<(IncomingMessages, i64), UpstreamError> {
        let id = self.id();
        let speaker = on_behalf.speaker(upstream_session);
        let outgoing = request::listen(id, wants, speaker);
        let deadline = Instant::now() + self.limits.response_timeout;
        let mut messages = self.noted(self.send(&outgoing, deadline).await)?;
        loop {
            let next = messages.next(deadline, self.limits.response_timeout).await;
            match self.noted(next)?.ok_or_else(|| messages.broken_off())? {
                Message::Notification(told) if &*told.method == method::ACKNOWLEDGED => {
                    let agreed = told.params.as_ref().map(Fragment::value);
                    let agreed = agreed.and_then(|params| params.get("notifications"));
                    let missing = "the server does not say what it agrees to";
                    wants.limit(agreed.ok_or(UpstreamError::Protocol(missing))?);
                    messages.pass.answered();
                    return Ok((messages, id));
                }
                Message::Notification(_) | Message::Request(_) => {}
                Message::Response(_) => {
                    return Err(UpstreamError::Refused);
                }
            }
        }
    }

    /// Begins or ends the subscription to a resource at a legacy server, for a feed whose filter has its permit.
    async fn subscription(
        &self,
        method: &'static str,
        uri: &str,
        on_behalf: &OnBehalfOf,
        upstream_session: Option<&UpstreamSession>,
    ) -> Result<(), UpstreamError> {
        let params = [("uri".into(), request::text(uri)?)];
        self.short(method, &params, on_behalf.speaker(upstream_session)).await.map(drop)
    }

    /// Marks cached lists as stale after a list-changed notification, for any recipient.
    pub fn heard(&self, told: &Notification) {
        if let Some(kind) = changed(&told.method) {
            self.changed(kind);
        }
    }
}

impl Feed {
    /// The notifications that the server agreed to send.
    #[must_use]
    pub const fn wants(&self) -> &NotificationFilter {
        &self.wants
    }

    /// Cancelled once no further message of the server can be missed.
    #[must_use]
    pub fn opened(&self) -> CancellationToken {
        match &self.source {
            FeedSource::Session(stream) => stream.opened(),
            FeedSource::Listen(..) | FeedSource::Channel(_) | FeedSource::Silent => {
                let already = CancellationToken::new();
                already.cancel();
                already
            }
        }
    }

    /// The server of this feed.
    #[must_use]
    pub const fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The next message of the server. A lost stream is opened again, so this waits until there is one.
    ///
    /// # Errors
    /// If the server no longer knows the session.
    pub async fn next(&mut self) -> Result<ServerMessage, UpstreamError> {
        loop {
            let deadline = Instant::now() + SILENCE;
            let message = match &mut self.source {
                FeedSource::Silent => std::future::pending().await,
                FeedSource::Channel(told) => match told.recv().await {
                    Ok(told) => {
                        self.upstream.heard(&told.notification);
                        return Ok(ServerMessage::Notification(Arc::clone(&told.notification)));
                    }
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        tracing::warn!(
                            event = "notification.missed", server = %self.upstream.name, missed,
                            "notifications of the server were missed"
                        );
                        continue;
                    }
                    Err(broadcast::error::RecvError::Closed) => {
                        return Err(UpstreamError::SessionGone);
                    }
                },
                FeedSource::Session(stream) => Some(stream.next().await?),
                FeedSource::Listen(Some(messages), _) => {
                    messages.next(deadline, SILENCE).await.ok().flatten()
                }
                FeedSource::Listen(None, _) => None,
            };
            match message {
                Some(Message::Notification(told)) if &*told.method == method::PROGRESS => {
                    self.attempts = 0;
                    if !self.demux.as_ref().is_some_and(|demux| demux.progress(told)) {
                        self.upstream.progress_dropped();
                    }
                }
                Some(Message::Notification(told)) => {
                    self.attempts = 0;
                    self.upstream.heard(&told);
                    return Ok(ServerMessage::Notification(Arc::new(told)));
                }
                Some(Message::Request(request)) => {
                    self.attempts = 0;
                    let upstream = Arc::clone(&self.upstream);
                    let replier = ReplySender::new(
                        upstream,
                        self.on_behalf.clone(),
                        self.upstream_session.clone(),
                    );
                    if &*request.method == method::PING {
                        let pong = ServerReply::unasked(&request, "nothing else is offered");
                        replier.reply(pong).await;
                        continue;
                    }
                    let key = request.id.to_string().into();
                    let (method, params) = (request.method, request.params);
                    let question = InputRequest { key, id: Some(request.id), method, params };
                    return Ok(ServerMessage::Request(question, Box::new(replier)));
                }
                // The subscription ended, or its connection was lost.
                Some(Message::Response(_)) | None => self.again().await,
            }
        }
    }

    /// Waits for a pause that grows with each attempt, and opens a lost subscription again.
    async fn again(&mut self) {
        sleep(pause(self.attempts)).await;
        self.attempts += 1;
        let upstream = Arc::clone(&self.upstream);
        match &mut self.source {
            FeedSource::Listen(messages, id) => {
                *messages = None;
                let mut wants = self.wants.again();
                let asked = upstream.ask_to_listen(
                    &mut wants,
                    &self.on_behalf,
                    self.upstream_session.as_ref(),
                );
                if let Ok((opened, new)) = asked.await {
                    (*messages, *id) = (Some(Box::new(opened)), new);
                    // Notifications may have been missed meanwhile, so all lists count as changed.
                    for kind in [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource] {
                        upstream.changed(kind);
                    }
                }
            }
            FeedSource::Session(_) | FeedSource::Channel(_) | FeedSource::Silent => {}
        }
    }

    /// Subscribes to a resource at a legacy server, unless another feed of the session has done so.
    async fn watch(&mut self, uri: &str) -> Result<(), UpstreamError> {
        let key = (self.upstream_session.clone(), self.generation, Box::from(uri));
        self.counted.push(uri.into());
        if self.upstream.watched.update(key, |count| count + 1) > 1 {
            return Ok(());
        }
        self.upstream
            .subscription(method::SUBSCRIBE, uri, &self.on_behalf, self.upstream_session.as_ref())
            .await
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let FeedSource::Listen(Some(messages), id) = &self.source
            && let Incoming::Channel(answer) = &messages.incoming
        {
            let speaker = self.on_behalf.speaker(self.upstream_session.as_ref());
            answer.cancel(request::cancelled(*id, speaker).body);
        }
        let legacy = self
            .upstream_session
            .as_ref()
            .is_some_and(|upstream_session| upstream_session.version.era() == Era::Legacy);
        if !legacy || self.counted.is_empty() {
            return;
        }
        let last = |uri: &str| {
            let key = (self.upstream_session.clone(), self.generation, Box::from(uri));
            self.upstream.watched.update(key, |count| count.saturating_sub(1)) == 0
        };
        let over: Vec<_> = self.counted.iter().filter(|uri| last(uri.as_ref())).cloned().collect();
        let upstream = Arc::clone(&self.upstream);
        let (on_behalf, upstream_session) = (self.on_behalf.clone(), self.upstream_session.clone());
        self.upstream.tasks.spawn(async move {
            for uri in over {
                let ended = upstream
                    .subscription(method::UNSUBSCRIBE, &uri, &on_behalf, upstream_session.as_ref())
                    .await;
                if let Err(error) = ended {
                    let error = crate::base::error_chain::ErrorChain(&error);
                    tracing::debug!(%error, "a subscription could not be ended");
                }
            }
        });
    }
}
