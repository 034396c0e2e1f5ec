//! The servers behind the gateway. A call needs a permit and an open record; there is no other way
//! to make one.
//!
//! What is sent is written for the era the server speaks, found out once and again when it no
//! longer holds. Ids, progress tokens and sessions on this side are the gateway's own.

mod error;
mod turn;
mod link;
mod request;
mod http;
mod stdio;
mod answer;
mod handshake;
mod listing;
mod catalog;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwapOption;
use policy::message::Call;
use policy::name::ServerName;
use policy::pipeline::{Expectation, Permit};
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

use crate::audit::Entry;
use crate::bounded::Bounded;
use crate::metrics::Metrics;
use crate::protocol::{Era, Version};
use crate::secret::Secret;
use crate::session::Leg;
use crate::settings::{Limits, Program, Protocol, Reach, Server};
use crate::task::Tasks;
use crate::wire::{Id, Message, Outcome};

use answer::Messages;
pub use answer::{Answer, Step};
use catalog::Slot;
pub use error::UpstreamError;
pub use handshake::Hello;
use handshake::Known;
use http::Http;
pub use listing::{Listing, Written};
use request::{Outgoing, Speech};
use stdio::Stdio;
use turn::Turn;

/// The first id used towards a server. All have ten digits for a long time to come, so that two
/// answers that say the same differ in those digits alone.
const FIRST_ID: i64 = 1_000_000_000;

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
    probing: Turn,
    /// The tools it offers to the gateway, and those it offers within a client's session.
    shared: Arc<Slot>,
    sessions: Bounded<Leg, Arc<Slot>>,
}

#[derive(Debug)]
enum Transport {
    Http(Http),
    Stdio(Stdio),
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
            probing: Turn::default(),
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
            let farewell = request::initialized(leg);
            let ended = tokio::time::timeout(self.limits.answer_time, http.end(&farewell)).await;
            if let Ok(Err(error)) = ended {
                let error = crate::report::Chain(&error);
                tracing::debug!(server = %self.name, %error, "the session was not ended");
            }
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
        let leg = leg.cloned().or_else(|| known.as_ref().and_then(|known| known.leg.clone()));
        let (upstream, deadline) = (Arc::clone(self), Instant::now() + self.limits.total_time);
        // From here on a call that is given up is cancelled, also before the server has begun.
        let mut answer = Answer { upstream, messages: None, over: false, id, leg, deadline };
        match self.send(&outgoing, deadline).await {
            Err(UpstreamError::SessionGone) if known.is_some() => {
                // The server forgot our own session; the call was not accepted. Once more.
                self.known.store(None);
                answer.over = true;
                let known = self.known().await?;
                answer.over = false;
                answer.id = self.id();
                let outgoing = request::call(answer.id, &call, progress, known.speech());
                answer.leg.clone_from(&known.leg);
                answer.messages = Some(self.send(&outgoing, deadline).await?);
            }
            sent => {
                answer.over =
                    matches!(&sent, Err(error) if !matches!(error, UpstreamError::Timeout(_)));
                answer.messages = Some(self.noted(sent)?);
            }
        }
        Ok((due, answer))
    }

    fn id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
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

    /// Notes whether the server was reached, and forgets what no longer holds.
    fn noted<T>(&self, result: Result<T, UpstreamError>) -> Result<T, UpstreamError> {
        match &result {
            Ok(_) => self.metrics.reached(self.index, true),
            Err(UpstreamError::SessionGone) => {}
            Err(error) => {
                self.metrics.reached(self.index, false);
                // It may have been replaced by one that speaks otherwise. One that is merely slow,
                // or answers one call badly, has not.
                if matches!(error, UpstreamError::Connect(_) | UpstreamError::Status(400..500)) {
                    self.known.store(None);
                }
                let error = crate::report::Chain(error);
                tracing::warn!(server = %self.name, %error, "the server failed");
            }
        }
        result
    }
}

const MISDIRECTED: UpstreamError = UpstreamError::Protocol("the permit is for something else");
