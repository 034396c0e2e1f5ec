//! The servers behind the gateway. A call needs a permit and an open record; there is no other way
//! to make one.
//!
//! What is sent is written for the era the server speaks, found out once and again when it no
//! longer holds. Ids, progress tokens and sessions on this side are the gateway's own.

mod error;
mod http;
mod link;
mod listing;
mod request;
mod stdio;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use policy::json::{Bounds, Fragment, Value};
use policy::message::Call;
use policy::name::ServerName;
use policy::pipeline::{Expectation, Permit};
use rustls::ClientConfig;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::audit::Entry;
use crate::bounded::Bounded;
use crate::metrics::Metrics;
use crate::protocol::{Era, Version, code, meta, method};
use crate::secret::Secret;
use crate::session::Leg;
use crate::settings::{Limits, Program, Protocol, Reach, Server};
use crate::task::Tasks;
use crate::wire::{Id, Message, Outcome};

pub use error::UpstreamError;
use http::{Http, HttpAnswer};
pub use listing::{Listing, Written};
use request::{Outgoing, Speech};
use stdio::{Stdio, StdioAnswer};

/// The first id used towards a server. All have ten digits for a long time to come, so that two
/// answers that say the same differ in those digits alone.
const FIRST_ID: i64 = 1_000_000_000;
/// How long a program may take to answer the question which era it speaks. A legacy program may
/// never answer it.
///
/// SPEC 2026-07-28 basic/transports/stdio#backward-compatibility
const PROBE: Duration = Duration::from_secs(3);

/// A server.
#[derive(Debug)]
pub struct Upstream {
    name: ServerName,
    /// Its place in the configuration and in the metrics.
    index: usize,
    protocol: Protocol,
    transport: Transport,
    limits: Limits,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    next_id: AtomicI64,
    known: ArcSwapOption<Known>,
    probing: Mutex<()>,
    /// The tools it offers to the gateway, and those it offers within a client's session.
    shared: Arc<Slot>,
    sessions: Bounded<Leg, Arc<Slot>>,
}

#[derive(Debug)]
enum Transport {
    Http(Http),
    Stdio(Stdio),
}

/// What a server said of itself.
#[derive(Clone, Debug)]
pub struct Hello {
    /// Which era it speaks.
    pub era: Era,
    /// Its name and version, as it gives them.
    pub info: Option<Fragment>,
    /// What it wants a model to know. Inspected before it is shown.
    pub instructions: Option<Fragment>,
    /// Whether it offers tools.
    pub tools: bool,
}

/// What is known of a server until it is started again.
#[derive(Debug)]
struct Known {
    hello: Arc<Hello>,
    generation: u64,
    /// The gateway's own session with a legacy server.
    leg: Option<Leg>,
}

impl Known {
    fn speech(&self) -> Speech<'_> {
        self.leg.as_ref().map_or(Speech::Modern, Speech::Legacy)
    }
}

#[derive(Debug, Default)]
struct Slot {
    listing: ArcSwapOption<(Arc<Listing>, Instant)>,
    reading: Mutex<()>,
}

/// The answer to a call, step by step.
#[derive(Debug)]
pub struct Answer {
    upstream: Arc<Upstream>,
    messages: Option<Messages>,
    id: i64,
    /// How it was asked: what a cancellation has to say again.
    leg: Option<Leg>,
    deadline: Instant,
}

#[derive(Debug)]
enum Messages {
    Http(Box<HttpAnswer>),
    Stdio(StdioAnswer),
}

/// A step of an answer.
#[derive(Debug)]
pub enum Step {
    /// How far it is: the `params` of the notification.
    Progress(Fragment),
    /// The end.
    Final(Outcome),
}

impl Upstream {
    /// The server `server`, not yet spoken to.
    ///
    /// # Errors
    /// When its URL cannot be used.
    pub fn new(
        index: usize,
        server: &Server,
        env: Vec<(String, Secret)>,
        limits: Limits,
        tls: &Arc<ClientConfig>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) -> Result<Self, UpstreamError> {
        let name = server.name.clone();
        let transport = match &server.reach {
            Reach::Http(uri) => Transport::Http(Http::new(uri, tls, limits)?),
            Reach::Stdio(program) => {
                let program = Program { env: Vec::new(), ..program.clone() };
                Transport::Stdio(Stdio::new(name.clone(), program, env, limits, tasks.clone()))
            }
        };
        Ok(Self {
            name,
            index,
            protocol: server.protocol,
            transport,
            limits,
            metrics,
            tasks,
            next_id: AtomicI64::new(FIRST_ID),
            known: ArcSwapOption::empty(),
            probing: Mutex::new(()),
            shared: Arc::default(),
            sessions: Bounded::new(limits.sessions),
        })
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &ServerName {
        &self.name
    }

    /// Its place in the configuration.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn hello(&self) -> Result<Arc<Hello>, UpstreamError> {
        Ok(Arc::clone(&self.known().await?.hello))
    }

    /// Opens a session of its own for a legacy client, where the server is legacy and keeps
    /// sessions; a program has but one conversation.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn open(&self, version: Version) -> Result<(Arc<Hello>, Option<Leg>), UpstreamError> {
        let known = self.known().await?;
        let own = matches!(self.transport, Transport::Http(_)) && known.hello.era == Era::Legacy;
        if !own {
            return Ok((Arc::clone(&known.hello), None));
        }
        let opened = self.initialize(version, known.generation).await?;
        Ok((Arc::clone(&opened.hello), opened.leg))
    }

    /// Ends a session that was opened for a client.
    pub async fn close(&self, leg: &Leg) {
        self.sessions.remove(leg);
        if let Transport::Http(http) = &self.transport {
            let ended = http.end(&request::initialized(leg)).await;
            if let Err(error) = ended {
                let error = crate::report::Chain(&error);
                tracing::debug!(server = %self.name, %error, "the session was not ended");
            }
        }
    }

    /// Its tools as they were last read, or read now if that was too long ago. The gateway asks in
    /// its own name: nothing of a caller's goes out.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn catalog(&self, leg: Option<&Leg>) -> Result<Arc<Listing>, UpstreamError> {
        let slot = self.slot(leg);
        let fresh = |slot: &Slot| {
            let held = slot.listing.load();
            let held = held.as_ref().filter(|held| held.1.elapsed() < self.limits.catalog_age);
            held.map(|held| Arc::clone(&held.0))
        };
        if let Some(listing) = fresh(&slot) {
            return Ok(listing);
        }
        let _one = slot.reading.lock().await;
        match fresh(&slot) {
            Some(listing) => Ok(listing),
            None => self.read(&slot, leg).await,
        }
    }

    /// Its tools, read now.
    ///
    /// # Errors
    /// When they cannot be read, or the permit is for something else.
    pub async fn list(
        &self,
        permit: Permit,
        _on_record: &Entry,
        leg: Option<&Leg>,
    ) -> Result<(Expectation, Arc<Listing>), UpstreamError> {
        let (call, due) = permit.spend();
        match call {
            Call::ListTools { server } if server == self.name => {
                Ok((due, self.read(&self.slot(leg), leg).await?))
            }
            Call::ListTools { .. } | Call::Tool(_) => Err(MISDIRECTED),
        }
    }

    /// Makes a permitted call that is on record. With `progress` it may tell how far it is.
    ///
    /// # Errors
    /// When the server does not begin to answer.
    pub async fn call(
        self: &Arc<Self>,
        permit: Permit,
        _on_record: &Entry,
        leg: Option<&Leg>,
        progress: bool,
    ) -> Result<(Expectation, Answer), UpstreamError> {
        let (call, due) = permit.spend();
        let call = match call {
            Call::Tool(call) if call.server == self.name => call,
            Call::Tool(_) | Call::ListTools { .. } => return Err(MISDIRECTED),
        };
        let known = if leg.is_none() { Some(self.known().await?) } else { None };
        let speech = match (leg, &known) {
            (Some(leg), _) => Speech::Legacy(leg),
            (None, Some(known)) => known.speech(),
            (None, None) => Speech::Modern,
        };
        let id = self.id();
        let outgoing = request::call(id, &call, progress, speech);
        let deadline = Instant::now() + self.limits.total_time;
        let messages = match self.send(&outgoing, deadline).await {
            Err(UpstreamError::SessionGone) if leg.is_none() => {
                // The server forgot our own session; the call was not accepted. Once more.
                self.known.store(None);
                let known = self.known().await?;
                let id = self.id();
                let outgoing = request::call(id, &call, progress, known.speech());
                let messages = self.send(&outgoing, deadline).await?;
                let leg = known.leg.clone();
                return Ok((due, self.answer(messages, id, leg, deadline)));
            }
            sent => self.noted(sent)?,
        };
        let leg = leg.cloned().or_else(|| known.and_then(|known| known.leg.clone()));
        Ok((due, self.answer(messages, id, leg, deadline)))
    }

    fn answer(
        self: &Arc<Self>,
        messages: Messages,
        id: i64,
        leg: Option<Leg>,
        deadline: Instant,
    ) -> Answer {
        Answer { upstream: Arc::clone(self), messages: Some(messages), id, leg, deadline }
    }

    fn slot(&self, leg: Option<&Leg>) -> Arc<Slot> {
        let Some(leg) = leg.filter(|leg| leg.id.is_some()) else { return Arc::clone(&self.shared) };
        if let Some(slot) = self.sessions.get(leg) {
            return slot;
        }
        let slot = Arc::new(Slot::default());
        // With no room to keep it the list is read for every request: slower, not wrong.
        if let Err(full) = self.sessions.insert(leg.clone(), Arc::clone(&slot)) {
            tracing::debug!(server = %self.name, %full, "the tools of a session are not kept");
        }
        slot
    }

    fn id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads every page of the list.
    async fn read(&self, slot: &Slot, leg: Option<&Leg>) -> Result<Arc<Listing>, UpstreamError> {
        let known = if leg.is_none() { Some(self.known().await?) } else { None };
        let speech = match (leg, &known) {
            (Some(leg), _) => Speech::Legacy(leg),
            (None, Some(known)) => known.speech(),
            (None, None) => Speech::Modern,
        };
        let read = self.pages(slot, speech).await;
        if matches!(read, Err(UpstreamError::SessionGone)) && leg.is_none() {
            self.known.store(None);
            let known = self.known().await?;
            return self.noted(self.pages(slot, known.speech()).await);
        }
        self.noted(read)
    }

    async fn pages(&self, slot: &Slot, speech: Speech<'_>) -> Result<Arc<Listing>, UpstreamError> {
        let held = slot.listing.load_full().map(|held| Arc::clone(&held.0));
        let deadline = Instant::now() + self.limits.answer_time;
        let mut pages = listing::Pages::new(&self.name, &self.limits);
        let mut cursor = None;
        loop {
            let id = self.id();
            let outgoing = request::tools(id, cursor.as_deref(), speech);
            let mut messages = self.send(&outgoing, deadline).await?;
            let text = messages.text(deadline).await?;
            if let (Some(text), Some(held), None) = (&text, &held, &cursor)
                && held.is_repeated_by(text, id)
            {
                slot.listing.store(Some(Arc::new((Arc::clone(held), Instant::now()))));
                return Ok(Arc::clone(held));
            }
            let outcome = match &text {
                Some(text) => self.outcome(http::read(text.clone(), &Bounds::MESSAGE)?, id)?,
                None => self.wait(&mut messages, id, speech, deadline).await?,
            };
            self.done(messages);
            let Outcome::Result(result) = outcome else {
                return Err(UpstreamError::Protocol("the server answered the list with an error"));
            };
            cursor = pages.take(&result)?;
            if cursor.is_none() {
                let source = text.and_then(|text| {
                    let id = result.document().root().get("id")?.span();
                    Some((text, id))
                });
                let listing = Arc::new(pages.finish(source));
                slot.listing.store(Some(Arc::new((Arc::clone(&listing), Instant::now()))));
                return Ok(listing);
            }
        }
    }

    /// What is known of the server, found out first if need be.
    async fn known(&self) -> Result<Arc<Known>, UpstreamError> {
        let generation = match &self.transport {
            Transport::Http(_) => 0,
            Transport::Stdio(stdio) => stdio.process().await?.generation,
        };
        let current = || self.known.load_full().filter(|known| known.generation == generation);
        if let Some(known) = current() {
            return Ok(known);
        }
        let _one = self.probing.lock().await;
        if let Some(known) = current() {
            return Ok(known);
        }
        let found = match self.protocol {
            Protocol::Modern => self.discover(generation).await,
            Protocol::Legacy => Ok(None),
            Protocol::Auto => self.discover(generation).await,
        };
        let found = match found {
            Ok(Some(known)) => Ok(known),
            Ok(None) if self.protocol == Protocol::Modern => {
                Err(UpstreamError::Protocol("the server does not speak 2026-07-28"))
            }
            Ok(None) => self.initialize(Version::LAST_LEGACY, generation).await,
            Err(error) => Err(error),
        };
        let known = Arc::new(self.noted(found)?);
        tracing::info!(server = %self.name, era = known.hello.era.as_str(), "server reached");
        self.known.store(Some(Arc::clone(&known)));
        Ok(known)
    }

    /// Asks a modern server what it is; `None` when it is not one.
    ///
    /// SPEC 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions
    async fn discover(&self, generation: u64) -> Result<Option<Known>, UpstreamError> {
        let stdio = matches!(self.transport, Transport::Stdio(_));
        let patience = if stdio { PROBE } else { self.limits.answer_time };
        let id = self.id();
        let deadline = Instant::now() + patience;
        let asked = self.ask(&request::discover(id), id, deadline).await;
        match asked {
            Ok((Outcome::Result(result), _)) => {
                let versions = result.value().get("supportedVersions");
                let ours = Version::V2026July.as_str();
                let speaks = versions.is_some_and(|versions| {
                    versions.items().any(|version| version.as_str().as_deref() == Some(ours))
                });
                let hello = Arc::new(Hello::read(Era::Modern, &result));
                Ok(speaks.then_some(Known { hello, generation, leg: None }))
            }
            Ok((Outcome::Error(error), _)) => {
                let code = error.value().get("code").and_then(Value::as_i64);
                let modern = [code::HEADER_MISMATCH, -32021].map(i64::from);
                if code.is_some_and(|code| modern.contains(&code)) {
                    return Err(UpstreamError::Protocol("the server does not accept our requests"));
                }
                Ok(None)
            }
            Err(UpstreamError::Timeout(_)) if stdio => Ok(None),
            Err(
                UpstreamError::Status(400..500)
                | UpstreamError::ContentType
                | UpstreamError::Message(_),
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a session with a legacy server.
    ///
    /// SPEC 2025-11-25 basic/lifecycle#initialization
    async fn initialize(&self, version: Version, generation: u64) -> Result<Known, UpstreamError> {
        let id = self.id();
        let deadline = Instant::now() + self.limits.answer_time;
        let asked = self.ask(&request::initialize(id, version), id, deadline).await?;
        let (Outcome::Result(result), session) = asked else {
            return Err(UpstreamError::Protocol("the server refused the handshake"));
        };
        let agreed = result.value().get("protocolVersion").and_then(Value::as_str);
        let agreed = agreed.and_then(|text| Version::parse(&text));
        let Some(version) = agreed.filter(|version| version.era() == Era::Legacy) else {
            return Err(UpstreamError::Protocol("the server wants a revision we do not speak"));
        };
        let leg = Leg { version, id: session };
        self.notify(&request::initialized(&leg), deadline).await?;
        let hello = Arc::new(Hello::read(Era::Legacy, &result));
        Ok(Known { hello, generation, leg: Some(leg) })
    }

    /// One question, one answer.
    async fn ask(
        &self,
        outgoing: &Outgoing<'_>,
        id: i64,
        deadline: Instant,
    ) -> Result<(Outcome, Option<Box<str>>), UpstreamError> {
        let mut messages = self.send(outgoing, deadline).await?;
        let session = match &mut messages {
            Messages::Http(answer) => answer.session.take(),
            Messages::Stdio(_) => None,
        };
        // Before the era is known nothing that is asked can be answered in it.
        let outcome = self.wait(&mut messages, id, Speech::Modern, deadline).await?;
        self.done(messages);
        Ok((outcome, session))
    }

    async fn send(
        &self,
        outgoing: &Outgoing<'_>,
        deadline: Instant,
    ) -> Result<Messages, UpstreamError> {
        let deadline = deadline.min(Instant::now() + self.limits.answer_time);
        match &self.transport {
            Transport::Http(http) => {
                let sent = timeout_at(deadline, http.send(outgoing)).await;
                let late = |_| UpstreamError::Timeout(self.limits.answer_time);
                Ok(Messages::Http(Box::new(sent.map_err(late)??)))
            }
            Transport::Stdio(stdio) => {
                let process = stdio.process().await?;
                let answer = process.send(outgoing, self.limits.connect_time).await?;
                Ok(Messages::Stdio(answer))
            }
        }
    }

    async fn notify(
        &self,
        outgoing: &Outgoing<'_>,
        deadline: Instant,
    ) -> Result<(), UpstreamError> {
        match &self.transport {
            Transport::Http(http) => {
                let sent = timeout_at(deadline, http.notify(outgoing)).await;
                sent.map_err(|_late| UpstreamError::Timeout(self.limits.answer_time))?
            }
            Transport::Stdio(stdio) => {
                let process = stdio.process().await?;
                process.notify(outgoing, self.limits.connect_time).await
            }
        }
    }

    /// Waits for the response and passes over what comes before it.
    async fn wait(
        &self,
        messages: &mut Messages,
        id: i64,
        speech: Speech<'_>,
        deadline: Instant,
    ) -> Result<Outcome, UpstreamError> {
        loop {
            let message = messages.next(deadline, self.limits.answer_time).await?;
            match message {
                Message::Response(_) => return self.outcome(message, id),
                Message::Notification(_) => {}
                Message::Request(request) => self.reply(&request, speech, deadline).await,
            }
        }
    }

    /// The outcome of the request `id`, if this is its response.
    fn outcome(&self, message: Message, id: i64) -> Result<Outcome, UpstreamError> {
        match message {
            // A modern server may leave out the id of a request it could not read.
            Message::Response(response)
                if response.id.is_none() && matches!(response.outcome, Outcome::Error(_)) =>
            {
                Ok(response.outcome)
            }
            Message::Response(response) if response.id == Some(Id::Number(id)) => {
                Ok(response.outcome)
            }
            Message::Response(_) => {
                Err(UpstreamError::Protocol("the server answered another request"))
            }
            Message::Notification(_) | Message::Request(_) => {
                Err(UpstreamError::Protocol("the server did not answer with a response"))
            }
        }
    }

    /// Answers a server that asks something of its client over HTTP. A program's questions are
    /// answered where its output is read.
    async fn reply(&self, request: &crate::wire::Request, speech: Speech<'_>, deadline: Instant) {
        let reply = request::reply(stdio::reply_to(request), speech);
        if let Err(error) = self.notify(&reply, deadline).await {
            let error = crate::report::Chain(&error);
            tracing::debug!(server = %self.name, %error, "a question was not answered");
        }
    }

    fn done(&self, messages: Messages) {
        if let Messages::Http(answer) = messages
            && !answer.is_over()
        {
            self.tasks.spawn(answer.finish());
        }
    }

    /// Notes whether the server was reached; what was known of one that fails is found out again.
    fn noted<T>(&self, result: Result<T, UpstreamError>) -> Result<T, UpstreamError> {
        match &result {
            Ok(_) => self.metrics.reached(self.index, true),
            Err(UpstreamError::SessionGone) => {}
            Err(error) => {
                self.metrics.reached(self.index, false);
                self.known.store(None);
                let error = crate::report::Chain(error);
                tracing::warn!(server = %self.name, %error, "the server failed");
            }
        }
        result
    }
}

const MISDIRECTED: UpstreamError = UpstreamError::Protocol("the permit is for something else");

impl Messages {
    /// The whole answer as text, where it is one message and not yet read.
    async fn text(&mut self, deadline: Instant) -> Result<Option<Bytes>, UpstreamError> {
        match self {
            Self::Http(answer) if answer.is_json() => {
                let text = timeout_at(deadline, answer.next()).await;
                text.map_err(|_late| UpstreamError::Incomplete)?
            }
            Self::Http(_) | Self::Stdio(_) => Ok(None),
        }
    }

    async fn next(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Message, UpstreamError> {
        let until = deadline.min(Instant::now() + patience);
        let late = |_| UpstreamError::Timeout(patience);
        match self {
            Self::Http(answer) => {
                let text = timeout_at(until, answer.next()).await.map_err(late)??;
                http::read(text.ok_or(UpstreamError::Incomplete)?, &Bounds::MESSAGE)
            }
            Self::Stdio(answer) => timeout_at(until, answer.next()).await.map_err(late)?,
        }
    }
}

impl Answer {
    /// The next step.
    ///
    /// # Errors
    /// When there is none in time, or it is none: then there is no further step.
    pub async fn next(&mut self) -> Result<Step, UpstreamError> {
        loop {
            let Some(messages) = &mut self.messages else {
                return Err(UpstreamError::Incomplete);
            };
            let limits = &self.upstream.limits;
            let next = messages.next(self.deadline, limits.answer_time).await;
            let message = self.upstream.noted(next)?;
            match message {
                Message::Response(_) => {
                    let outcome = self.upstream.outcome(message, self.id);
                    if let Some(messages) = self.messages.take() {
                        self.upstream.done(messages);
                    }
                    return outcome.map(Step::Final);
                }
                Message::Notification(notification) => {
                    let ours = notification.params.filter(|params| {
                        notification.method.as_ref() == method::PROGRESS
                            && params.value().get(meta::PROGRESS_TOKEN).and_then(Value::as_i64)
                                == Some(self.id)
                    });
                    if let Some(params) = ours {
                        return Ok(Step::Progress(params));
                    }
                }
                Message::Request(request) => {
                    let speech = self.leg.as_ref().map_or(Speech::Modern, Speech::Legacy);
                    self.upstream.reply(&request, speech, self.deadline).await;
                }
            }
        }
    }
}

impl Drop for Answer {
    /// An answer that is no longer wanted is cancelled: a modern server over HTTP sees the
    /// connection close, every other is told.
    fn drop(&mut self) {
        let Some(messages) = self.messages.take() else { return };
        let leg = self.leg.take();
        match messages {
            Messages::Stdio(answer) => {
                let speech = leg.as_ref().map_or(Speech::Modern, Speech::Legacy);
                answer.process().try_notify(&request::cancelled(self.id, speech));
            }
            Messages::Http(_) => {
                let Some(leg) = leg else { return };
                let (upstream, id) = (Arc::clone(&self.upstream), self.id);
                self.upstream.tasks.spawn(async move {
                    let deadline = Instant::now() + upstream.limits.answer_time;
                    let cancelled = request::cancelled(id, Speech::Legacy(&leg));
                    if let Err(error) = upstream.notify(&cancelled, deadline).await {
                        let error = crate::report::Chain(&error);
                        tracing::debug!(server = %upstream.name, %error, "not cancelled");
                    }
                });
            }
        }
    }
}

impl Hello {
    fn read(era: Era, result: &Fragment) -> Self {
        let document = result.document();
        let value = result.value();
        let info = match era {
            Era::Modern => value.get("_meta").and_then(|meta| meta.get(meta::SERVER_INFO)),
            Era::Legacy => value.get("serverInfo"),
        };
        let object = |value: &Value<'_>| value.is_object();
        Self {
            era,
            info: info.filter(object).map(|info| info.fragment(&document)),
            instructions: value
                .get("instructions")
                .filter(|text| text.as_str().is_some())
                .map(|text| text.fragment(&document)),
            tools: value.get("capabilities").and_then(|all| all.get("tools")).is_some(),
        }
    }
}
