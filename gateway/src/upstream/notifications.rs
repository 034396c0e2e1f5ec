//! Messages that an upstream server sends on its own initiative, such as list-changed and resource-updated
//! notifications.
//!
//! A legacy server sends them on the GET stream of a session, a modern one in answer to `subscriptions/listen`, a
//! program on its output at any time. A [`Feed`] hides the difference from the exchange.

use std::sync::{Arc, Weak};
use std::time::Duration;

use json::{Document, Fragment, JsonBounds};
use tokio::sync::{Mutex, broadcast};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::{Incoming, IncomingMessages, InputRequest};
use super::demux::{Demux, QueuedNotification};
use super::list_changes::ListChanges;
use super::reply::ServerReply;
use super::request;
use super::stream::{ReopenPacing, SILENCE, SessionStream};
use super::subscription::{NotificationFilter, SUBSCRIBABLE_LISTS, changed, list_changed};
use super::{MISDIRECTED, OnBehalfOf, ReplySender, Transport, Upstream, UpstreamError};
use crate::audit::ReadEntry;
use crate::base::log_limit::LogLimit;
use crate::base::segments::Segments;
use crate::mcp::protocol::{Era, method};
use crate::mcp::wire::{Message, Notification, Object, Request, ResponseOutcome};
use crate::session::UpstreamSession;

/// Limits the log lines about notifications that a listener has missed: a server can send any number.
static MISSED: LogLimit = LogLimit::new(1, 5);

/// A message that a server sent on its own initiative.
#[derive(Debug)]
pub enum ServerMessage {
    /// A notification, which needs no answer.
    Notification(Arc<Notification>),
    /// A request to the client; the reply goes to the replier.
    Request(InputRequest, Box<ReplySender>),
}

/// What one listener may receive of one server, and is on record: the server can be asked for it any number of times,
/// since it may be away. Only [`Upstream::feed_opener`] makes one, for whose proofs it stands.
#[derive(Debug)]
pub struct FeedOpener {
    upstream: Arc<Upstream>,
    on_behalf: OnBehalfOf,
    wants: NotificationFilter,
    pacing: ReopenPacing,
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
    /// The resources that the server was asked to watch for this feed. With `generation`, the channel they belong to.
    watched: Vec<WatchedResource>,
    generation: u64,
    /// The pauses before a lost stream is opened again.
    pacing: ReopenPacing,
    list_changes: ListChanges<Arc<Notification>>,
}

/// The key of a resource that a legacy server watches: its session, the generation of its channel, and the URI.
pub(super) type WatchKey = (Option<UpstreamSession>, u64, Box<str>);

/// How many feeds have a resource of a session watched. Locked while the server is asked, so that one of them asks and the
/// others rely on an answer.
#[derive(Debug, Default)]
pub(super) struct ResourceWatchers(Mutex<usize>);

/// The watchers of a resource, for as long as a feed has it watched or ends that.
#[derive(Clone, Debug, Default)]
pub(super) struct WeakWatchers(Weak<ResourceWatchers>);

impl WeakWatchers {
    /// Whether a feed uses it.
    pub(super) fn is_used(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl PartialEq for WeakWatchers {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// A resource that a feed has watched at a legacy server.
#[derive(Debug)]
struct WatchedResource {
    uri: Box<str>,
    watchers: Arc<ResourceWatchers>,
    state: WatchState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    /// The server was asked, and has not answered. It is not counted.
    Asked,
    /// The server has agreed. It is counted.
    Agreed,
}

#[derive(Debug)]
enum FeedSource {
    /// The GET stream of a legacy session.
    Session(Box<SessionStream>),
    /// The answer to `subscriptions/listen`; `None` while it is lost.
    Listen(Option<Box<ListenAnswer>>),
    /// The notifications of a channel or of a standing session.
    Channel(broadcast::Receiver<Arc<QueuedNotification>>),
    /// A server that sends nothing on its own initiative.
    Silent,
}

/// The answer to a `subscriptions/listen`. Dropped before the server has ended it, it tells a program that nobody listens
/// any more; over HTTP the connection is closed.
#[derive(Debug)]
struct ListenAnswer {
    messages: IncomingMessages,
    /// The notification for a program; `None` over HTTP, and when the server has ended the subscription.
    cancelled: Option<Segments>,
}

impl Drop for ListenAnswer {
    fn drop(&mut self) {
        if let (Some(cancelled), Incoming::Channel(answer)) =
            (self.cancelled.take(), &self.messages.incoming)
        {
            answer.cancel(cancelled);
        }
    }
}

impl Upstream {
    /// Prepares to listen to the server for `on_behalf`.
    ///
    /// The proof is `wants`, which is made of the permit of the server and those of what is listened for, with the entry
    /// of the exchange that asks. The server may be asked after that entry was closed.
    ///
    /// # Errors
    /// If `wants` is for another server.
    pub fn feed_opener(
        self: &Arc<Self>,
        wants: NotificationFilter,
        _on_record: &ReadEntry,
        on_behalf: OnBehalfOf,
    ) -> Result<FeedOpener, UpstreamError> {
        if *wants.server() != self.name {
            return Err(MISDIRECTED);
        }
        let upstream = Arc::clone(self);
        Ok(FeedOpener { upstream, on_behalf, wants, pacing: ReopenPacing::default() })
    }

    /// Listens to the server for `on_behalf`, until the feed is dropped. Takes what [`Self::feed_opener`] takes.
    ///
    /// # Errors
    /// If the server cannot be reached, or `wants` is for another one.
    pub async fn listen(
        self: &Arc<Self>,
        wants: NotificationFilter,
        on_record: &ReadEntry,
        on_behalf: OnBehalfOf,
    ) -> Result<Feed, UpstreamError> {
        let opener = self.feed_opener(wants, on_record, on_behalf)?;
        self.open_feed(&opener).await
    }

    /// Opens a feed. Opens a new session and repeats this once if the gateway's own was forgotten.
    async fn open_feed(self: &Arc<Self>, opener: &FeedOpener) -> Result<Feed, UpstreamError> {
        let on_behalf = &opener.on_behalf;
        let upstream_session = self.reach(on_behalf).await?;
        match self.feed_in(upstream_session.clone(), opener).await {
            Err(UpstreamError::SessionGone) if on_behalf.upstream_session.is_none() => {
                self.lost(on_behalf, upstream_session.as_ref());
                let upstream_session = self.reach(on_behalf).await?;
                self.feed_in(upstream_session, opener).await
            }
            opened => opened,
        }
    }

    /// Opens a feed in one session.
    async fn feed_in(
        self: &Arc<Self>,
        upstream_session: Option<UpstreamSession>,
        opener: &FeedOpener,
    ) -> Result<Feed, UpstreamError> {
        let mut wants = opener.wants.again();
        let on_behalf = opener.on_behalf.clone();
        let mut pacing = opener.pacing;
        let era = upstream_session
            .as_ref()
            .map_or(Era::Modern, |upstream_session| upstream_session.version.era());
        let session = upstream_session.as_ref();
        let source = self.feed_source(&mut wants, &on_behalf, session).await?;
        let generation = match &self.transport {
            Transport::Http(_) => 0,
            Transport::Channel(_) => self.known(&on_behalf).await?.generation,
        };
        let own = upstream_session.as_ref().filter(|_| {
            matches!(source, FeedSource::Session(_)) && on_behalf.upstream_session.is_some()
        });
        let demux = own.and_then(|upstream_session| self.demux(&on_behalf, upstream_session));
        demux.iter().for_each(|demux| demux.attended());
        pacing.opened();
        let mut feed = Feed {
            upstream: Arc::clone(self),
            on_behalf,
            upstream_session,
            wants,
            source,
            demux,
            watched: Vec::new(),
            generation,
            pacing,
            list_changes: ListChanges::default(),
        };
        if era == Era::Legacy {
            for uri in feed.wants.items().resources().to_vec() {
                match feed.watch(&uri).await {
                    Err(UpstreamError::Refused) => feed.refused(&uri),
                    watched => watched?,
                }
            }
        }
        Ok(feed)
    }

    /// Where the messages of a feed come from in one session. Limits `wants` to what a modern server agrees to.
    async fn feed_source(
        self: &Arc<Self>,
        wants: &mut NotificationFilter,
        on_behalf: &OnBehalfOf,
        upstream_session: Option<&UpstreamSession>,
    ) -> Result<FeedSource, UpstreamError> {
        let era = upstream_session.map_or(Era::Modern, |session| session.version.era());
        match (&self.transport, era) {
            (Transport::Http(_), Era::Legacy) => {
                if on_behalf.upstream_session.is_none()
                    && let Some(overheard) = self.overheard(on_behalf)
                {
                    return Ok(FeedSource::Channel(overheard));
                }
                let stream = upstream_session
                    .and_then(|session| SessionStream::new(self, on_behalf, session));
                Ok(stream
                    .map_or(FeedSource::Silent, |stream| FeedSource::Session(Box::new(stream))))
            }
            (Transport::Channel(pool), Era::Legacy) => {
                let session = upstream_session.and_then(|session| session.id.as_deref());
                Ok(FeedSource::Channel(pool.channel(session).await?.demux.listen()))
            }
            (_, Era::Modern) if wants.items().is_empty() => Ok(FeedSource::Silent),
            (_, Era::Modern) => {
                match self.ask_to_listen(wants, on_behalf, upstream_session).await {
                    Ok(answer) => Ok(FeedSource::Listen(Some(Box::new(answer)))),
                    // The server does not offer subscriptions.
                    Err(UpstreamError::Refused) => {
                        wants.clear();
                        Ok(FeedSource::Silent)
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Sends `subscriptions/listen` and limits `wants` to what the server acknowledges: SPEC 2026-07-28
    /// basic/patterns/subscriptions#opening-a-stream.
    async fn ask_to_listen(
        self: &Arc<Self>,
        wants: &mut NotificationFilter,
        on_behalf: &OnBehalfOf,
        upstream_session: Option<&UpstreamSession>,
    ) -> Result<ListenAnswer, UpstreamError> {
        let id = self.id();
        let speaker = on_behalf.speaker(upstream_session);
        let outgoing = request::listen(id, wants, speaker);
        let deadline = Instant::now() + self.limits.response_timeout;
        let sent = self.send(&outgoing, deadline).await.map_err(|error| match error {
            // Answers to a method or a path that the server does not know.
            UpstreamError::Status(400 | 404 | 405 | 501) => UpstreamError::Refused,
            other => other,
        });
        let messages = self.noted(sent)?;
        let is_program = matches!(messages.incoming, Incoming::Channel(_));
        let cancelled = is_program.then(|| request::cancelled(id, speaker).body);
        let mut answer = ListenAnswer { messages, cancelled };
        loop {
            let next = answer.messages.next(deadline, self.limits.response_timeout).await;
            match self.noted(next)?.ok_or_else(|| answer.messages.broken_off())? {
                Message::Notification(told) if &*told.method == method::ACKNOWLEDGED => {
                    let agreed = told.params.as_ref().map(Fragment::value);
                    let agreed = agreed.and_then(|params| params.get("notifications"));
                    let missing = "the server does not say what it agrees to";
                    wants.limit(agreed.ok_or(UpstreamError::Protocol(missing))?);
                    answer.messages.pass.answered();
                    return Ok(answer);
                }
                Message::Notification(_) | Message::Request(_) => {}
                Message::Response(_) => {
                    answer.cancelled = None;
                    return Err(UpstreamError::Refused);
                }
            }
        }
    }

    /// Begins or ends the subscription to a resource at a legacy server, for a feed whose filter has its permit.
    ///
    /// # Errors
    /// [`UpstreamError::Refused`] if the server does not do that for this resource.
    async fn subscription(
        &self,
        method: &'static str,
        uri: &str,
        on_behalf: &OnBehalfOf,
        upstream_session: Option<&UpstreamSession>,
    ) -> Result<(), UpstreamError> {
        let params = [("uri".into(), request::text(uri)?)];
        match self.short(method, &params, on_behalf.speaker(upstream_session)).await {
            Ok(ResponseOutcome::Result(_)) => Ok(()),
            Ok(ResponseOutcome::Error(_)) | Err(UpstreamError::Status(400 | 405 | 501)) => {
                Err(UpstreamError::Refused)
            }
            Err(error) => Err(error),
        }
    }

    /// Marks the lists whose changes can be subscribed to as stale, because such a change may have been missed.
    fn missed_changes(&self) {
        SUBSCRIBABLE_LISTS.into_iter().for_each(|kind| self.changed(kind));
    }

    /// Marks cached lists as stale after a list-changed notification, for any recipient.
    pub fn heard(&self, told: &Notification) {
        if let Some(kind) = changed(&told.method) {
            self.changed(kind);
        }
    }
}

impl FeedOpener {
    /// The server that is listened to.
    #[must_use]
    pub const fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// What is listened for.
    #[must_use]
    pub const fn wants(&self) -> &NotificationFilter {
        &self.wants
    }

    /// Asks the server until it agrees, with pauses that grow as for a feed that is lost. `first_failure` is called when it
    /// fails for the first time, which is logged as a warning; later failures are not, because a server may be away for
    /// long. `None` if it fails in a session that the server keeps for the caller: that one is asked once, because it is
    /// lost then. Dropping the future ends the request.
    ///
    /// The proof is the opener itself, which only [`Upstream::feed_opener`] makes.
    pub async fn open_repeatedly(&mut self, first_failure: impl FnOnce()) -> Option<Feed> {
        let mut first_failure = Some(first_failure);
        loop {
            let error = match self.upstream.open_feed(self).await {
                Ok(feed) => return Some(feed),
                Err(error) => crate::base::error_chain::ErrorChain(&error).to_string(),
            };
            let server = &self.upstream.name;
            match first_failure.take() {
                Some(first_failure) => {
                    let allowed = self.upstream.failures.allow(Instant::now().into_std());
                    if let Some(suppressed) = allowed {
                        tracing::warn!(
                            event = "subscription.failed", %server, %error, suppressed,
                            "subscription failed"
                        );
                    }
                    first_failure();
                }
                None => tracing::debug!(%server, %error, "subscription failed again"),
            }
            if self.on_behalf.upstream_session.is_some() {
                return None;
            }
            self.pacing.pause().await;
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
            FeedSource::Listen(_) | FeedSource::Channel(_) | FeedSource::Silent => {
                let already = CancellationToken::new();
                already.cancel();
                already
            }
        }
    }

    /// The changes that a listener may have missed before the feed was opened: of every list and resource that it is told
    /// of. The lists that the gateway keeps are stale from now on.
    #[must_use]
    pub fn missed(&self) -> Vec<Notification> {
        let items = self.wants.items();
        let lists = SUBSCRIBABLE_LISTS.into_iter().filter(|kind| self.wants.wants(*kind));
        let lists = lists
            .filter_map(list_changed)
            .map(|method| Notification { method: method.into(), params: None });
        let resources = items.resources().iter().filter_map(|uri| updated(uri));
        let missed: Vec<_> = lists.chain(resources).collect();
        missed.iter().for_each(|told| self.upstream.heard(told));
        missed
    }

    /// The server of this feed.
    #[must_use]
    pub const fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The next message of the server. A lost stream is opened again, so this waits until there is one. Notifications that
    /// a list has changed are paced, as [`ListChanges`] says. Cancel-safe.
    ///
    /// # Errors
    /// If the server no longer knows the session.
    pub async fn next(&mut self) -> Result<ServerMessage, UpstreamError> {
        loop {
            let wait = self.list_changes.wait(Instant::now().into_std());
            let message = tokio::select! {
                biased;
                () = until_due(wait) => self.due_change(),
                message = self.receive() => Some(message?),
            };
            match message {
                Some(ServerMessage::Notification(told)) => {
                    if let Some(told) = self.paced(told) {
                        return Ok(ServerMessage::Notification(told));
                    }
                }
                Some(question) => return Ok(question),
                None => {}
            }
        }
    }

    /// A notification that a list has changed, which was held back until now.
    fn due_change(&mut self) -> Option<ServerMessage> {
        self.list_changes.due(Instant::now().into_std()).map(ServerMessage::Notification)
    }

    /// Returns a notification that may be passed on now; one that a list has changed may have to wait.
    fn paced(&mut self, told: Arc<Notification>) -> Option<Arc<Notification>> {
        let Some(kind) = changed(&told.method) else { return Some(told) };
        let now = Instant::now().into_std();
        let told = self.list_changes.pass(kind, told, now)?;
        self.list_changes.sent(kind, now);
        Some(told)
    }

    /// The next message of the server, as it arrives.
    async fn receive(&mut self) -> Result<ServerMessage, UpstreamError> {
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
                        if let Some(suppressed) = MISSED.allow(Instant::now().into_std()) {
                            tracing::warn!(
                                event = "notification.missed", server = %self.upstream.name, missed, suppressed,
                                "notifications of the server were missed"
                            );
                        }
                        continue;
                    }
                    Err(broadcast::error::RecvError::Closed) => {
                        return Err(UpstreamError::SessionGone);
                    }
                },
                FeedSource::Session(stream) => Some(stream.next().await?),
                FeedSource::Listen(Some(answer)) => {
                    let next = answer.messages.next(deadline, SILENCE).await.ok().flatten();
                    if let Some(Message::Response(_)) = next {
                        answer.cancelled = None;
                    }
                    next
                }
                FeedSource::Listen(None) => None,
            };
            match message {
                Some(Message::Notification(told)) if &*told.method == method::PROGRESS => {
                    if !self.demux.as_ref().is_some_and(|demux| demux.progress(told)) {
                        self.upstream.progress_dropped();
                    }
                }
                Some(Message::Notification(told)) => {
                    self.upstream.heard(&told);
                    return Ok(ServerMessage::Notification(Arc::new(told)));
                }
                Some(Message::Request(request)) => {
                    if let Some(question) = self.question(request).await {
                        return Ok(question);
                    }
                }
                // Nothing is asked on the stream of a session, so a response on it is nobody's.
                Some(Message::Response(_)) if !matches!(self.source, FeedSource::Listen(_)) => {}
                // The subscription ended, or its connection was lost.
                Some(Message::Response(_)) | None => self.again().await?,
            }
        }
    }

    /// A request of the server, with what answers it; `None` for a ping, which is answered here.
    async fn question(&self, request: Request) -> Option<ServerMessage> {
        let upstream = Arc::clone(&self.upstream);
        let session = self.upstream_session.clone();
        let replier = ReplySender::new(upstream, self.on_behalf.clone(), session);
        if &*request.method == method::PING {
            replier.reply(ServerReply::unasked(&request, "nothing else is offered")).await;
            return None;
        }
        let Request { id, method, params } = request;
        let key = id.to_string().into();
        let question = InputRequest { key, id: Some(id), method, params };
        Some(ServerMessage::Request(question, Box::new(replier)))
    }

    /// Waits for a pause that grows with each attempt, and asks once for a lost subscription. Its failure is no error,
    /// because it is asked for again.
    ///
    /// # Errors
    /// If the server no longer knows the session. One of the gateway's own is forgotten.
    async fn again(&mut self) -> Result<(), UpstreamError> {
        let FeedSource::Listen(answer) = &mut self.source else { return Ok(()) };
        *answer = None;
        self.pacing.pause().await;
        let mut wants = self.wants.again();
        let session = self.upstream_session.as_ref();
        match self.upstream.ask_to_listen(&mut wants, &self.on_behalf, session).await {
            Ok(opened) => {
                *answer = Some(Box::new(opened));
                self.pacing.opened();
                self.upstream.missed_changes();
                Ok(())
            }
            Err(UpstreamError::Refused) => {
                self.upstream.missed_changes();
                tracing::info!(
                    event = "subscription.not_offered", server = %self.upstream.name,
                    "the server does not offer subscriptions any more; it is not asked again"
                );
                self.wants.clear();
                self.source = FeedSource::Silent;
                Ok(())
            }
            Err(UpstreamError::SessionGone) => {
                if self.on_behalf.upstream_session.is_none() {
                    self.upstream.lost(&self.on_behalf, session);
                }
                Err(UpstreamError::SessionGone)
            }
            Err(error) => {
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::debug!(server = %self.upstream.name, %error, "subscription failed again");
                Ok(())
            }
        }
    }

    /// Subscribes to a resource at a legacy server, unless another feed of the session has done so.
    async fn watch(&mut self, uri: &str) -> Result<(), UpstreamError> {
        let watchers = self.watchers(uri);
        let patience = self.upstream.limits.response_timeout;
        let Ok(mut feeds) = timeout(patience, watchers.0.lock()).await else {
            return Err(UpstreamError::Timeout(patience));
        };
        let state = if *feeds == 0 { WatchState::Asked } else { WatchState::Agreed };
        let watched = WatchedResource { uri: uri.into(), watchers: Arc::clone(&watchers), state };
        if state == WatchState::Asked {
            // Before the question, because the server may act on it also if nobody waits for its answer.
            self.watched.push(watched);
            self.upstream
                .subscription(
                    method::SUBSCRIBE,
                    uri,
                    &self.on_behalf,
                    self.upstream_session.as_ref(),
                )
                .await?;
            if let Some(watched) = self.watched.last_mut() {
                watched.state = WatchState::Agreed;
            }
        } else {
            self.watched.push(watched);
        }
        *feeds += 1;
        Ok(())
    }

    /// Leaves out a resource that the server does not let anybody subscribe to.
    fn refused(&mut self, uri: &str) {
        tracing::debug!(server = %self.upstream.name, "the server refuses to watch a resource");
        self.wants.remove(uri);
        self.watched.retain(|watched| *watched.uri != *uri);
        self.upstream.forget_unwatched(self.watch_key(uri));
    }

    fn watch_key(&self, uri: &str) -> WatchKey {
        (self.upstream_session.clone(), self.generation, uri.into())
    }

    /// The watchers of a resource in the session of this feed.
    fn watchers(&self, uri: &str) -> Arc<ResourceWatchers> {
        let new = Arc::new(ResourceWatchers::default());
        let known = self.upstream.watched.update(self.watch_key(uri), |known| {
            if known.is_used() { known } else { WeakWatchers(Arc::downgrade(&new)) }
        });
        known.0.upgrade().unwrap_or(new)
    }
}

impl Upstream {
    /// Ends the subscription of a feed to a resource, at the server if no other feed has it watched.
    async fn unwatch(
        &self,
        watched: WatchedResource,
        on_behalf: &OnBehalfOf,
        upstream_session: Option<&UpstreamSession>,
    ) -> Result<(), UpstreamError> {
        let mut feeds = watched.watchers.0.lock().await;
        match watched.state {
            WatchState::Agreed => *feeds = feeds.saturating_sub(1),
            WatchState::Asked => {}
        }
        if *feeds > 0 {
            return Ok(());
        }
        self.subscription(method::UNSUBSCRIBE, &watched.uri, on_behalf, upstream_session).await
    }

    /// Removes the entry of a resource that no feed has watched any more.
    fn forget_unwatched(&self, key: WatchKey) {
        self.watched
            .update(key, |known| if known.is_used() { known } else { WeakWatchers::default() });
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let watched = std::mem::take(&mut self.watched);
        if watched.is_empty() {
            return;
        }
        let upstream = Arc::clone(&self.upstream);
        let on_behalf = self.on_behalf.clone();
        let upstream_session = self.upstream_session.clone();
        let generation = self.generation;
        self.upstream.tasks.spawn(async move {
            for watched in watched {
                let key = (upstream_session.clone(), generation, watched.uri.clone());
                let ended = upstream.unwatch(watched, &on_behalf, upstream_session.as_ref()).await;
                if let Err(error) = ended {
                    let error = crate::base::error_chain::ErrorChain(&error);
                    tracing::debug!(%error, "a subscription could not be ended");
                }
                upstream.forget_unwatched(key);
            }
        });
    }
}

/// Waits for `wait`; forever if there is none.
async fn until_due(wait: Option<Duration>) {
    match wait {
        Some(wait) => sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// The notification that a resource has changed; `None` for a URI that exceeds the bounds of a message.
fn updated(uri: &str) -> Option<Notification> {
    let mut params = Vec::new();
    let mut object = Object::open(&mut params);
    object.text("uri", uri);
    object.close();
    let params = Document::parse(params.into(), &JsonBounds::MESSAGE).ok()?;
    let params = Some(Fragment::whole(Arc::new(params)));
    Some(Notification { method: method::UPDATED.into(), params })
}
