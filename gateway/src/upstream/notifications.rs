//! What a server says without having been asked: that its lists have changed, that a resource has.
//!
//! A legacy server says it on the GET stream of a session, a modern one in answer to
//! `subscriptions/listen`, a program wherever it likes. Here it is one thing.

use std::sync::Arc;

use policy::json::Fragment;
use policy::offer::Kind;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::answer::{Incoming, Messages, Question};
use super::demux::{Desk, Told};
use super::request;
use super::stream::{SILENCE, Stream, pause};
use super::subscription::{Wants, changed};
use super::{Party, Replier, Transport, Upstream, UpstreamError};
use crate::audit::Entry;
use crate::mcp::protocol::{Era, method};
use crate::mcp::wire::{Message, Notification};
use crate::session::Leg;

/// Something a server says.
#[derive(Debug)]
pub enum Heard {
    /// It tells.
    Told(Arc<Notification>),
    /// It asks; the answer is given to the replier.
    Asked(Question, Box<Replier>),
}

/// What one server says.
#[derive(Debug)]
pub struct Feed {
    upstream: Arc<Upstream>,
    party: Party,
    leg: Option<Leg>,
    wants: Wants,
    source: Source,
    /// Where calls of the session wait for progress.
    desk: Option<Arc<Desk>>,
    /// The resources this one is counted for, and on which channel.
    counted: Vec<Box<str>>,
    generation: u64,
    /// How often in a row the stream was lost.
    attempts: u32,
}

#[derive(Debug)]
enum Source {
    /// The stream of a legacy session.
    Session(Box<Stream>),
    /// The answer to `subscriptions/listen`, and its id.
    Listen(Option<Box<Messages>>, i64),
    /// A channel.
    Channel(broadcast::Receiver<Arc<Told>>),
    /// A server that says nothing by itself.
    Silent,
}

impl Upstream {
    /// Listens to the server for `party`, for as long as the feed is kept.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn listen(
        self: &Arc<Self>,
        mut wants: Wants,
        _on_record: &Entry,
        party: Party,
    ) -> Result<Feed, UpstreamError> {
        let leg = self.reach(&party).await?;
        let era = leg.as_ref().map_or(Era::Modern, |leg| leg.version.era());
        let source = match (&self.transport, era) {
            (Transport::Http(_), Era::Legacy) => match (&leg, self.overheard(&party)) {
                (_, Some(overheard)) if party.leg.is_none() => Source::Channel(overheard),
                (Some(leg), _) => match Stream::new(self, &party, leg) {
                    Some(stream) => Source::Session(Box::new(stream)),
                    None => Source::Silent,
                },
                (None, _) => Source::Silent,
            },
            (Transport::Channel(seats), Era::Legacy) => {
                let session = leg.as_ref().and_then(|leg| leg.id.as_deref());
                Source::Channel(seats.channel(session).await?.desk.listen())
            }
            (_, Era::Modern) => {
                if wants.kinds.is_empty() && wants.resources.is_empty() {
                    Source::Silent
                } else {
                    match self.ask_to_listen(&mut wants, &party, leg.as_ref()).await {
                        Ok((messages, id)) => Source::Listen(Some(Box::new(messages)), id),
                        // A server that tells nothing has nothing to tell.
                        Err(UpstreamError::Refused) => {
                            wants = Wants::new(wants.everything);
                            Source::Silent
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        };
        let generation = match &self.transport {
            Transport::Http(_) => 0,
            Transport::Channel(_) => self.known(&party).await?.generation,
        };
        let own =
            leg.as_ref().filter(|_| matches!(source, Source::Session(_)) && party.leg.is_some());
        let desk = own.and_then(|leg| self.desk(&party, leg));
        desk.iter().for_each(|desk| desk.attended());
        let (upstream, counted) = (Arc::clone(self), Vec::new());
        let mut feed =
            Feed { upstream, party, leg, wants, source, desk, counted, generation, attempts: 0 };
        if era == Era::Legacy {
            for uri in feed.wants.resources.clone() {
                feed.watch(&uri).await?;
            }
        }
        Ok(feed)
    }

    /// SPEC 2026-07-28 basic/patterns/subscriptions#opening-a-stream
    async fn ask_to_listen(
        self: &Arc<Self>,
        wants: &mut Wants,
        party: &Party,
        leg: Option<&Leg>,
    ) -> Result<(Messages, i64), UpstreamError> {
        let id = self.id();
        let speaker = party.speaker(leg);
        let outgoing = request::listen(id, wants, speaker);
        let deadline = Instant::now() + self.limits.answer_time;
        let mut messages = self.noted(self.send(&outgoing, deadline).await)?;
        loop {
            let next = messages.next(deadline, self.limits.answer_time).await;
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

    /// Takes note of what a server says, whoever it is told to.
    pub fn heard(&self, told: &Notification) {
        if let Some(kind) = changed(&told.method) {
            self.changed(kind);
        }
    }
}

impl Feed {
    /// What the server agreed to.
    #[must_use]
    pub const fn wants(&self) -> &Wants {
        &self.wants
    }

    /// Resolves when nothing the server says from now on is missed.
    #[must_use]
    pub fn opened(&self) -> CancellationToken {
        match &self.source {
            Source::Session(stream) => stream.opened(),
            Source::Listen(..) | Source::Channel(_) | Source::Silent => {
                let already = CancellationToken::new();
                already.cancel();
                already
            }
        }
    }

    /// The server.
    #[must_use]
    pub const fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The next thing the server says. A stream that is lost is opened again. Never ends by itself,
    /// unless the session is gone.
    ///
    /// # Errors
    /// When the server does not know the session any more.
    pub async fn next(&mut self) -> Result<Heard, UpstreamError> {
        loop {
            let deadline = Instant::now() + SILENCE;
            let message = match &mut self.source {
                Source::Silent => std::future::pending().await,
                Source::Channel(told) => match told.recv().await {
                    Ok(told) => {
                        self.upstream.heard(&told.notification);
                        return Ok(Heard::Told(Arc::clone(&told.notification)));
                    }
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        tracing::warn!(server = %self.upstream.name, missed, "notifications were missed");
                        continue;
                    }
                    Err(broadcast::error::RecvError::Closed) => {
                        return Err(UpstreamError::SessionGone);
                    }
                },
                Source::Session(stream) => Some(stream.next().await?),
                Source::Listen(Some(messages), _) => {
                    messages.next(deadline, SILENCE).await.ok().flatten()
                }
                Source::Listen(None, _) => None,
            };
            match message {
                Some(Message::Notification(told)) if &*told.method == method::PROGRESS => {
                    self.attempts = 0;
                    if !self.desk.as_ref().is_some_and(|desk| desk.progress(told)) {
                        self.upstream.progress_dropped();
                    }
                }
                Some(Message::Notification(told)) => {
                    self.attempts = 0;
                    self.upstream.heard(&told);
                    return Ok(Heard::Told(Arc::new(told)));
                }
                Some(Message::Request(request)) => {
                    self.attempts = 0;
                    let upstream = Arc::clone(&self.upstream);
                    let replier = Replier::new(upstream, self.party.clone(), self.leg.clone());
                    if &*request.method == method::PING {
                        replier.reply(request::unasked(&request, "nothing else is offered")).await;
                        continue;
                    }
                    let key = request.id.to_string().into();
                    let (method, params) = (request.method, request.params);
                    let question = Question { key, id: Some(request.id), method, params };
                    return Ok(Heard::Asked(question, Box::new(replier)));
                }
                // The end of a subscription, which we open again.
                Some(Message::Response(_)) | None => self.again().await,
            }
        }
    }

    /// Opens a lost stream again, after a pause that grows.
    async fn again(&mut self) {
        sleep(pause(self.attempts)).await;
        self.attempts += 1;
        let upstream = Arc::clone(&self.upstream);
        match &mut self.source {
            Source::Listen(messages, id) => {
                *messages = None;
                let mut wants = self.wants.clone();
                let asked = upstream.ask_to_listen(&mut wants, &self.party, self.leg.as_ref());
                if let Ok((opened, new)) = asked.await {
                    (*messages, *id) = (Some(Box::new(opened)), new);
                    // What was missed meanwhile cannot be known, so all of it may have changed.
                    for kind in [Kind::Tool, Kind::Prompt, Kind::Resource] {
                        upstream.changed(kind);
                    }
                }
            }
            Source::Session(_) | Source::Channel(_) | Source::Silent => {}
        }
    }

    /// Asks a legacy server to tell when a resource changes, if nobody did yet.
    async fn watch(&mut self, uri: &str) -> Result<(), UpstreamError> {
        let key = (self.leg.clone(), self.generation, Box::from(uri));
        self.counted.push(uri.into());
        if self.upstream.watched.update(key, |count| count + 1) > 1 {
            return Ok(());
        }
        self.subscription(method::SUBSCRIBE, uri).await
    }

    async fn subscription(&self, method: &'static str, uri: &str) -> Result<(), UpstreamError> {
        let mut text = Vec::new();
        policy::json::write_string(&mut text, uri);
        let speaker = self.party.speaker(self.leg.as_ref());
        let document = policy::json::Document::parse(text.into(), &policy::json::Bounds::MESSAGE);
        let Ok(document) = document else { return Ok(()) };
        let params = [("uri".into(), Fragment::whole(Arc::new(document)))];
        self.upstream.short(method, &params, speaker).await.map(drop)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Source::Listen(Some(messages), id) = &self.source
            && let Incoming::Channel(answer) = &messages.incoming
        {
            let speaker = self.party.speaker(self.leg.as_ref());
            answer.cancel(request::cancelled(*id, speaker).body);
        }
        let legacy = self.leg.as_ref().is_some_and(|leg| leg.version.era() == Era::Legacy);
        if !legacy || self.counted.is_empty() {
            return;
        }
        let last = |uri: &str| {
            let key = (self.leg.clone(), self.generation, Box::from(uri));
            self.upstream.watched.update(key, |count| count.saturating_sub(1)) == 0
        };
        let over: Vec<_> = self.counted.iter().filter(|uri| last(uri.as_ref())).cloned().collect();
        let (upstream, party) = (Arc::clone(&self.upstream), self.party.clone());
        let quiet = Self {
            upstream: Arc::clone(&upstream),
            party,
            leg: self.leg.clone(),
            wants: Wants::default(),
            source: Source::Silent,
            desk: None,
            counted: Vec::new(),
            generation: self.generation,
            attempts: 0,
        };
        upstream.tasks.spawn(async move {
            for uri in over {
                if let Err(error) = quiet.subscription(method::UNSUBSCRIBE, &uri).await {
                    let error = crate::base::error_chain::Chain(&error);
                    tracing::debug!(%error, "a subscription was not ended");
                }
            }
        });
    }
}
