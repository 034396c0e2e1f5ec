//! What a server says without having been asked: that its lists have changed, that a resource has.
//!
//! A legacy server says it on the GET stream of a session, a modern one in answer to
//! `subscriptions/listen`, a program wherever it likes. Here it is one thing.

use std::sync::Arc;
use std::time::Duration;

use policy::json::{Fragment, Value};
use policy::message::{Call, Use, Verb};
use policy::offer::Kind;
use policy::pipeline::Permit;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::answer::{Messages, Question};
use super::http::HttpAnswer;
use super::request::{self, Speaker};
use super::{Party, Replier, Transport, Upstream, UpstreamError};
use crate::audit::Entry;
use crate::protocol::{Era, method};
use crate::session::Leg;
use crate::wire::{Message, Notification, Object};

/// The pause before a lost stream is opened again, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a stream may be without a word or a sign of life.
const SILENCE: Duration = Duration::from_secs(24 * 3600);
/// Most resources one listener waits for.
const RESOURCES: usize = 256;

/// What somebody wants to be told of one server. Made of permits alone.
#[derive(Clone, Debug, Default)]
pub struct Wants {
    kinds: Vec<Kind>,
    resources: Vec<Box<str>>,
    /// Everything the server says to a session, questions among it: what a legacy client gets.
    everything: bool,
}

impl Wants {
    /// Nothing yet, or everything a server says to a session.
    #[must_use]
    pub fn new(everything: bool) -> Self {
        Self { everything, ..Self::default() }
    }

    /// Adds what `permit` is for: a list stands for its changes, a subscription for the resource.
    /// Says whether there was room for it.
    pub fn add(&mut self, permit: Permit) -> bool {
        match permit.spend().0 {
            Call::List { kind, .. } => {
                self.kinds.push(kind);
                true
            }
            Call::Use(Use { verb: Verb::Subscribe, name, .. }) => {
                let room = self.resources.len() < RESOURCES;
                if room && !self.resources.contains(&name) {
                    self.resources.push(name);
                }
                room
            }
            Call::Use(_) => false,
        }
    }

    /// Whether there is nothing to listen for.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.resources.is_empty() && !self.everything
    }

    /// Whether everything a server says to the session is wanted.
    #[must_use]
    pub const fn everything(&self) -> bool {
        self.everything
    }

    /// Whether changes of the lists of `kind` are wanted.
    #[must_use]
    pub fn wants(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Takes back what a modern server does not agree to.
    fn limit(&mut self, agreed: Value<'_>) {
        let says = |kind: Kind| {
            flag(kind).and_then(|flag| agreed.get(flag)).and_then(Value::as_bool) == Some(true)
        };
        self.kinds.retain(|kind| says(*kind));
        let listed = agreed.get("resourceSubscriptions");
        let has = |uri: &str| {
            listed.is_some_and(|listed| {
                listed.items().any(|item| item.as_str().as_deref() == Some(uri))
            })
        };
        self.resources.retain(|uri| has(uri));
    }

    /// Adds what `other` wants, with every URI as `shown` makes it.
    pub fn merge(&mut self, other: &Self, shown: impl Fn(&str) -> String) {
        self.kinds.extend(
            other
                .kinds
                .iter()
                .filter(|kind| !self.kinds.contains(kind))
                .copied()
                .collect::<Vec<_>>(),
        );
        self.resources.extend(other.resources.iter().map(|uri| shown(uri).into()));
    }

    /// The members of a filter.
    pub fn show(&self, filter: &mut Object<'_>) {
        for kind in [Kind::Tool, Kind::Prompt, Kind::Resource] {
            if let Some(flag) = flag(kind).filter(|_| self.wants(kind)) {
                filter.raw(flag, "true");
            }
        }
        if !self.resources.is_empty() {
            let out = filter.key("resourceSubscriptions");
            out.push(b'[');
            for (n, uri) in self.resources.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                policy::json::write_string(out, uri);
            }
            out.push(b']');
        }
    }

    /// Whether a notification is wanted.
    #[must_use]
    pub fn admits(&self, told: &Notification) -> bool {
        match &*told.method {
            method::UPDATED => {
                let uri = told.params.as_ref().and_then(|params| params.value().get("uri"));
                let uri = uri.and_then(Value::as_str);
                uri.is_some_and(|uri| self.resources.iter().any(|wanted| **wanted == *uri))
            }
            name => changed(name).is_some_and(|kind| self.wants(kind)),
        }
    }
}

/// The member of a filter that stands for the changes of a list.
#[must_use]
pub const fn flag(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Tool => Some("toolsListChanged"),
        Kind::Prompt => Some("promptsListChanged"),
        Kind::Resource => Some("resourcesListChanged"),
        Kind::Template | Kind::Method => None,
    }
}

/// The kind whose list a notification says has changed.
#[must_use]
pub fn changed(name: &str) -> Option<Kind> {
    match name {
        method::TOOLS_CHANGED => Some(Kind::Tool),
        method::PROMPTS_CHANGED => Some(Kind::Prompt),
        method::RESOURCES_CHANGED => Some(Kind::Resource),
        _ => None,
    }
}

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
    Channel(broadcast::Receiver<Arc<Notification>>),
    /// A server that says nothing by itself.
    Silent,
}

/// The stream of a legacy session over HTTP. A server may take its time to begin it, so it is
/// opened when something is wanted of it.
///
/// SPEC 2025-11-25 basic/transports#listening-for-messages-from-the-server
#[derive(Debug)]
pub(super) struct Stream {
    upstream: Arc<Upstream>,
    party: Party,
    leg: Leg,
    answer: Option<Box<HttpAnswer>>,
    /// The last event that came.
    last: Option<Box<str>>,
    /// What has come and was not read yet.
    unread: Option<bytes::Bytes>,
    /// How often in a row it was lost without a word.
    attempts: u32,
    /// The server has no such stream.
    silent: bool,
    /// It was opened, or will not be.
    opened: CancellationToken,
}

impl Stream {
    /// The stream of `leg`; `None` where sessions have no id, and so no stream.
    pub(super) fn new(upstream: &Arc<Upstream>, party: &Party, leg: &Leg) -> Option<Self> {
        let http = matches!(upstream.transport, Transport::Http(_));
        let legacy = leg.version.era() == Era::Legacy;
        (http && legacy && leg.id.is_some()).then(|| Self {
            upstream: Arc::clone(upstream),
            party: party.clone(),
            leg: leg.clone(),
            answer: None,
            last: None,
            unread: None,
            attempts: 0,
            silent: false,
            opened: CancellationToken::new(),
        })
    }

    /// The next message. A stream that is lost is opened again and goes on where it was lost. May
    /// be given up and called again.
    ///
    /// # Errors
    /// When the server does not know the session any more.
    pub(super) async fn next(&mut self) -> Result<Message, UpstreamError> {
        loop {
            if self.silent {
                return std::future::pending().await;
            }
            if self.unread.is_none() {
                self.fetch().await?;
            }
            let Some(text) = self.unread.clone() else { continue };
            let read = super::http::read(text).await;
            self.unread = None;
            match read {
                Ok(message) => {
                    self.attempts = 0;
                    return Ok(message);
                }
                Err(error) => {
                    let error = crate::report::Chain(&error);
                    tracing::warn!(server = %self.upstream.name, %error, "not a message");
                }
            }
        }
    }

    async fn fetch(&mut self) -> Result<(), UpstreamError> {
        let Some(answer) = &mut self.answer else { return self.open().await };
        let next = answer.next(Instant::now() + SILENCE, SILENCE).await;
        let lost = answer.lost();
        if let Some((last, _)) = &lost {
            self.last = Some(last.clone());
        }
        match next {
            Ok(Some(text)) => self.unread = Some(text),
            Ok(None) | Err(_) => {
                self.answer = None;
                if let Some((_, pause)) = lost {
                    sleep(pause).await;
                }
            }
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<(), UpstreamError> {
        if self.attempts > 0 {
            let pause = PAUSE * 2_u32.saturating_pow(self.attempts.min(10));
            sleep(pause.min(LONGEST_PAUSE)).await;
        }
        self.attempts += 1;
        let Transport::Http(http) = &self.upstream.transport else {
            self.silent = true;
            return Ok(());
        };
        let opened = http.open(&request::initialized(&self.leg), self.last.as_deref()).await;
        self.opened.cancel();
        match opened {
            Ok(Some(answer)) => self.answer = Some(Box::new(answer)),
            // SPEC: 405 says that there is no such stream. 400 is what servers without it say.
            Ok(None) | Err(UpstreamError::Status(400 | 404)) => self.silent = true,
            Err(UpstreamError::SessionGone) => return Err(UpstreamError::SessionGone),
            Err(error) => {
                let error = crate::report::Chain(&error);
                tracing::debug!(server = %self.upstream.name, %error, "no stream");
            }
        }
        Ok(())
    }

    /// Resolves when the stream was opened, or will not be.
    pub(super) fn opened(&self) -> CancellationToken {
        self.opened.clone()
    }

    pub(super) fn replier(&self) -> Replier {
        let upstream = Arc::clone(&self.upstream);
        Replier::new(upstream, self.party.clone(), Some(self.leg.clone()))
    }
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
                let session = leg.as_ref().and_then(|leg| leg.id.as_deref()).filter(|_| seats.own);
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
            Transport::Channel(_) => self.known().await?.generation,
        };
        let (upstream, counted) = (Arc::clone(self), Vec::new());
        let mut feed =
            Feed { upstream, party, leg, wants, source, counted, generation, attempts: 0 };
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
        let speaker = Speaker { client: &party.client, leg };
        let outgoing = request::listen(id, wants, speaker);
        let deadline = Instant::now() + self.limits.answer_time;
        let mut messages = self.noted(self.send(&outgoing, deadline).await)?;
        loop {
            let next = messages.next(deadline, self.limits.answer_time).await;
            match self.noted(next)?.ok_or(UpstreamError::Incomplete)? {
                Message::Notification(told) if &*told.method == method::ACKNOWLEDGED => {
                    let agreed = told.params.as_ref().map(Fragment::value);
                    let agreed = agreed.and_then(|params| params.get("notifications"));
                    let missing = "the server does not say what it agrees to";
                    wants.limit(agreed.ok_or(UpstreamError::Protocol(missing))?);
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
                        self.upstream.heard(&told);
                        return Ok(Heard::Told(told));
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
                        replier.reply(request::unasked(&request)).await;
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
        let pause = PAUSE * 2_u32.saturating_pow(self.attempts.min(10));
        self.attempts += 1;
        sleep(pause.min(LONGEST_PAUSE)).await;
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
        let speaker = Speaker { client: &self.party.client, leg: self.leg.as_ref() };
        let document = policy::json::Document::parse(text.into(), &policy::json::Bounds::MESSAGE);
        let Ok(document) = document else { return Ok(()) };
        let params = [("uri".into(), Fragment::whole(Arc::new(document)))];
        self.upstream.short(method, &params, speaker).await.map(drop)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Source::Listen(Some(messages), id) = &self.source
            && let Messages::Channel(answer) = &**messages
        {
            let speaker = Speaker { client: &self.party.client, leg: self.leg.as_ref() };
            answer.channel().try_notify(request::cancelled(*id, speaker).body);
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
            counted: Vec::new(),
            generation: self.generation,
            attempts: 0,
        };
        upstream.tasks.spawn(async move {
            for uri in over {
                if let Err(error) = quiet.subscription(method::UNSUBSCRIBE, &uri).await {
                    let error = crate::report::Chain(&error);
                    tracing::debug!(%error, "a subscription was not ended");
                }
            }
        });
    }
}
