//! The answer of an upstream server to a call, read step by step by the exchange: notifications, elicitation and
//! sampling requests, and the final outcome. Dropping a [`CallAnswer`] that has not ended cancels the call.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use json::{Fragment, Value};
use policy::engine::ask::AT_ONCE;
use policy::engine::message::{ClientRequest, ItemRequest, RequestOperation};
use policy::engine::method::MethodSpec;
use policy::engine::pipeline::Shown;
use tokio::time::{Instant, sleep, timeout_at};

use super::breaker::BreakerPass;
use super::channel::ChannelAnswer;
use super::cleared::{Cleared, InputResponses};
use super::demux::{ProgressTarget, RequestInbox};
use super::reply::ServerReply;
use super::request::{self, CallOptions};
use super::streamable_http::HttpAnswer;
use super::{MISDIRECTED, OnBehalfOf, Transport, Upstream, UpstreamError};
use crate::base::gcra::{EventRate, Gcra};
use crate::base::intake::ResponseAccount;
use crate::base::segments::Segments;
use crate::base::share::{Holder, Share};
use crate::mcp::protocol::{Era, method};
use crate::mcp::wire::{self, Id, Message, Notification, ResponseOutcome};
use crate::session::UpstreamSession;

/// How many times in a row a lost stream is resumed before the call fails.
const ATTEMPTS: u32 = 5;
/// Rate of pings that a server may send during an answer: one per second, after a burst of 64.
const PINGS: EventRate = EventRate::new(1, Duration::from_secs(1), 64);
/// How long the gateway waits for log lines and progress on the session's stream after the response has arrived
/// elsewhere.
const TRAILING: Duration = Duration::from_millis(25);

/// The answer to a call, read step by step.
#[derive(Debug)]
pub struct CallAnswer {
    pub(super) upstream: Arc<Upstream>,
    pub(super) messages: Option<IncomingMessages>,
    /// The call needs no cancellation: it has ended, or it was never accepted.
    pub(super) over: bool,
    pub(super) id: i64,
    pub(super) call: Arc<ItemRequest>,
    pub(super) options: CallOptions,
    /// The caller that made the call.
    pub(super) on_behalf: OnBehalfOf,
    /// The session of the call, which a cancellation has to name.
    pub(super) upstream_session: Option<UpstreamSession>,
    pub(super) deadline: Instant,
    /// The stream was lost: the id of its last event, and the time to wait before resuming after it.
    pub(super) lost: Option<(Box<str>, Duration)>,
    /// Reports the outcome to the circuit breaker while the stream is lost.
    pub(super) pass: BreakerPass,
    /// How many times in a row the stream was lost without a message in between.
    pub(super) attempts: u32,
    /// The rate of the server's pings.
    pub(super) pings: Gcra,
    /// Messages for this call on the stream of the session.
    pub(super) aside: Option<RequestInbox>,
    /// How many of the messages in `aside` precede the next message on the connection of the request.
    pub(super) ahead: usize,
    /// The server has sent progress on the connection of the request.
    pub(super) reports: bool,
    /// The response, held back while earlier messages on the session's stream are unread, and until when such
    /// messages may still arrive, if they may.
    pub(super) last: Option<(Message, Option<Instant>)>,
    /// The memory budget of the answer, once it was read to its end.
    pub(super) received: Option<ResponseAccount>,
    /// The request, until the headers of its response arrive.
    pub(super) pending: Option<PendingHeaders>,
    /// A message on the session's stream that arrived before the headers of the response.
    pub(super) interim: Option<Message>,
}

/// A request that was sent and whose response headers have not arrived.
pub(super) struct PendingHeaders {
    /// Never locked: the mutex makes the future `Sync`.
    response: Mutex<BoxFuture<'static, Result<Incoming, UpstreamError>>>,
    /// Reports the outcome to the circuit breaker.
    pass: BreakerPass,
}

impl fmt::Debug for PendingHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingHeaders").finish_non_exhaustive()
    }
}

/// The incoming messages that answer a request.
#[derive(Debug)]
pub(super) struct IncomingMessages {
    pub(super) incoming: Incoming,
    /// Reports the outcome to the circuit breaker.
    pub(super) pass: BreakerPass,
}

/// The transport of the incoming messages.
#[derive(Debug)]
pub(super) enum Incoming {
    /// The HTTP answer, and text of it that has arrived and was not parsed yet.
    Http(Box<HttpAnswer>, Option<Segments>),
    Channel(ChannelAnswer),
}

/// One step of an answer.
#[derive(Debug)]
pub enum AnswerStep {
    /// A notification before the response: progress under the gateway's own token, a log message or another.
    Told(Notification),
    /// The server needs input from the client before it goes on.
    Asked(InputRequired),
    /// The server closed the connection and goes on after this time.
    Rests(Duration),
    /// The response, which is the last step.
    Final(ResponseOutcome),
}

/// A server's requests for input from the client: as the server sent them, or as the client may see them.
#[derive(Debug)]
pub struct InputRequired<P = Fragment> {
    /// The requests. Empty if the server only wants the call to be repeated.
    pub questions: Vec<InputRequest<P>>,
    /// The whole result of a modern server, which ended its answer; `None` for a legacy server, which waits for a
    /// reply.
    pub result: Option<P>,
}

impl InputRequired<Shown> {
    /// The server's opaque `requestState`, which is sent back when the call is repeated.
    #[must_use]
    pub fn state(&self) -> Option<Box<str>> {
        let state = self.result.as_ref()?.value().get("requestState")?;
        state.as_str().map(Into::into)
    }
}

/// An elicitation, sampling or roots request of a server to a client: as the server sent it, or with [`Shown`] params as
/// the client may see it.
#[derive(Debug)]
pub struct InputRequest<P = Fragment> {
    /// The name by which the server identifies the request.
    pub key: Box<str>,
    /// The JSON-RPC id to reply under; `None` for a modern server.
    pub id: Option<Id>,
    /// The MCP method of the request.
    pub method: Box<str>,
    /// The params of the request.
    pub params: Option<P>,
}

/// Sends replies to the requests of a legacy server that waits for them.
#[derive(Clone, Debug)]
pub struct ReplySender {
    upstream: Arc<Upstream>,
    on_behalf: OnBehalfOf,
    upstream_session: Option<UpstreamSession>,
}

impl ReplySender {
    pub(super) const fn new(
        upstream: Arc<Upstream>,
        on_behalf: OnBehalfOf,
        upstream_session: Option<UpstreamSession>,
    ) -> Self {
        Self { upstream, on_behalf, upstream_session }
    }

    /// Sends a reply. A failure is logged.
    ///
    /// The reply is its own proof: it has the words of a client only if they were cleared for this server. It needs no
    /// permit and no entry, because the server asks during something that has them: a call, or a feed.
    pub async fn reply(&self, reply: ServerReply) {
        let sent = if reply.is_for(&self.upstream.name) {
            let speaker = self.on_behalf.speaker(self.upstream_session.as_ref());
            let deadline = Instant::now() + self.upstream.limits.response_timeout;
            self.upstream.notify(&request::reply(reply, speaker), deadline).await
        } else {
            Err(MISDIRECTED)
        };
        if let Err(error) = sent {
            let error = crate::base::error_chain::ErrorChain(&error);
            tracing::warn!(
                event = "server.reply_failed", server = %self.upstream.name, %error,
                "the reply to a server request was not sent"
            );
        }
    }
}

impl IncomingMessages {
    /// The text of the whole answer, if it is a single JSON message that was not read yet.
    pub(super) async fn text(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Option<Segments>, UpstreamError> {
        let text = match &mut self.incoming {
            Incoming::Http(answer, _) if answer.is_json() => answer.next(deadline, patience).await,
            Incoming::Http(..) | Incoming::Channel(_) => Ok(None),
        };
        match &text {
            Ok(Some(_)) => self.pass.answered(),
            Ok(None) => {}
            Err(error) => self.pass.refused(error),
        }
        text
    }

    /// Parses the text that [`Self::text`] returned.
    pub(super) async fn read(&mut self, text: Segments) -> Result<Message, UpstreamError> {
        match &mut self.incoming {
            Incoming::Http(answer, _) => answer.read(text).await,
            Incoming::Channel(_) => Err(UpstreamError::Incomplete),
        }
    }

    /// Whether the answer is an SSE stream.
    pub(super) const fn is_streamed(&self) -> bool {
        matches!(&self.incoming, Incoming::Http(answer, _) if answer.is_streamed())
    }

    /// The next message; `None` if the server closed the connection before the response. Cancel-safe.
    pub(super) async fn next(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Option<Message>, UpstreamError> {
        let next = self.incoming.next(deadline, patience).await;
        self.pass.heard(&next);
        next
    }

    /// Takes the memory budget of the answer, to be kept for as long as its content is used.
    pub(super) fn received(&mut self) -> Option<ResponseAccount> {
        match &mut self.incoming {
            Incoming::Http(answer, _) => Some(answer.received()),
            Incoming::Channel(answer) => answer.received(),
        }
    }

    /// Reports an answer without a response to the breaker, and returns the error for it.
    pub(super) fn broken_off(&mut self) -> UpstreamError {
        self.pass.refused(&UpstreamError::Incomplete);
        UpstreamError::Incomplete
    }
}

impl Incoming {
    async fn next(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Option<Message>, UpstreamError> {
        // A server that sends without pause would never let the timeout below fire.
        if Instant::now() >= deadline {
            return Err(UpstreamError::Timeout(patience));
        }
        match self {
            Self::Http(answer, unread) => {
                if unread.is_none() {
                    *unread = answer.next(deadline, patience).await?;
                }
                let Some(text) = unread.clone() else { return Ok(None) };
                let read = answer.read(text).await;
                *unread = None;
                read.map(Some)
            }
            Self::Channel(answer) => {
                let until = deadline.min(Instant::now() + patience);
                let next = timeout_at(until, answer.next()).await;
                let Ok(next) = next else {
                    answer.timed_out();
                    return Err(UpstreamError::Timeout(patience));
                };
                next.map(Some)
            }
        }
    }
}

/// A message about a call.
struct HeardMessage {
    message: Message,
    /// Whether it came on the connection of the call, and not on the session's stream.
    is_own: bool,
}

impl CallAnswer {
    /// Returns the next step. The server may be silent for `patience`.
    ///
    /// # Errors
    /// If no valid message arrives in time; there is no further step then.
    pub async fn next(&mut self, patience: Duration) -> Result<AnswerStep, UpstreamError> {
        loop {
            if let Some(step) = self.trailing_step().await {
                return step;
            }
            let Some(heard) = self.next_message(patience).await? else { return self.lose() };
            self.attempts = 0;
            if let Some(step) = self.step(heard)? {
                return Ok(step);
            }
        }
    }

    /// The next message about the call; `None` if the server closed the connection before the response.
    async fn next_message(
        &mut self,
        patience: Duration,
    ) -> Result<Option<HeardMessage>, UpstreamError> {
        let said_before = self.said_before();
        if said_before.is_none() && self.lost.is_some() {
            Box::pin(self.find()).await.inspect_err(|error| self.pass.refused(error))?;
        }
        let said = match said_before {
            None => self.interim_message(patience).await?,
            said => said,
        };
        if let Some(message) = said {
            return Ok(Some(HeardMessage { message, is_own: false }));
        }
        let Some(messages) = &mut self.messages else {
            return Err(UpstreamError::Incomplete);
        };
        let (next, is_own) = tokio::select! {
            biased;
            next = messages.next(self.deadline, patience) => (next, true),
            Some(message) = aside(&mut self.aside) => {
                // A message on the session's stream counts as a sign of life too.
                let next = Ok(Some(message));
                messages.pass.heard(&next);
                (next, false)
            }
        };
        let next = self.upstream.noted(next)?;
        Ok(next.map(|message| HeardMessage { message, is_own }))
    }

    /// Takes in a message, and returns the step that it makes; `None` if it makes none.
    fn step(&mut self, heard: HeardMessage) -> Result<Option<AnswerStep>, UpstreamError> {
        let HeardMessage { message, is_own } = heard;
        match message {
            Message::Response(_) => {
                self.ahead = self.aside.as_ref().map_or(0, RequestInbox::waiting);
                let until = self.trails().then(|| Instant::now() + TRAILING);
                self.last = Some((message, until));
                Ok(None)
            }
            Message::Notification(told) => {
                self.reports |= is_own && &*told.method == method::PROGRESS;
                Ok(Some(AnswerStep::Told(told)))
            }
            Message::Request(request) if &*request.method == method::PING => {
                self.reply_to_ping(&request)?;
                Ok(None)
            }
            Message::Request(_) if self.era() == Era::Modern => Err(UpstreamError::Protocol(
                "a modern server sent a request on the response stream",
            )),
            Message::Request(request) => {
                let key = request.id.to_string().into();
                let (method, params) = (request.method, request.params);
                let question = InputRequest { key, id: Some(request.id), method, params };
                let questions = vec![question];
                Ok(Some(AnswerStep::Asked(InputRequired { questions, result: None })))
            }
        }
    }

    /// After the response has arrived: earlier messages on the session's stream, and then the response. `None` before
    /// that.
    async fn trailing_step(&mut self) -> Option<Result<AnswerStep, UpstreamError>> {
        let until = self.last.as_ref().map(|(_, until)| *until)?;
        while let Some(said) = self.said_before() {
            if let Message::Notification(told) = said {
                return Some(Ok(AnswerStep::Told(told)));
            }
        }
        if let Some(until) = until {
            let told = timeout_at(until, aside(&mut self.aside)).await;
            if let Ok(Some(Message::Notification(told))) = told {
                return Some(Ok(AnswerStep::Told(told)));
            }
        }
        let (last, _) = self.last.take()?;
        Some(self.end(last))
    }

    /// The next message on the session's stream that precedes the connection's own. A response there that was
    /// dropped for lack of memory is skipped.
    fn said_before(&mut self) -> Option<Message> {
        while self.ahead > 0 {
            self.ahead -= 1;
            if let Some(Ok(said)) = self.aside.as_mut().and_then(RequestInbox::try_next) {
                return Some(said);
            }
        }
        None
    }

    /// Resumes a call that waited for its client. Messages that arrived on the session's stream meanwhile come first,
    /// because the server sent them before the client's answer, and messages after that answer can end the call.
    pub fn resume(&mut self) {
        self.renew();
        self.ahead = self.aside.as_ref().map_or(0, RequestInbox::waiting);
    }

    /// Replies to a ping in the background, so a server that does not take the reply does not delay the next message.
    fn reply_to_ping(&mut self, ping: &wire::Request) -> Result<(), UpstreamError> {
        if self.pings.take(PINGS, Instant::now().into_std()).is_err() {
            let error = UpstreamError::Protocol("the server sends too many pings");
            return self.upstream.noted(Err(error));
        }
        let replier = self.replier();
        let reply = ServerReply::unasked(ping, "nothing else is offered");
        self.upstream.tasks.spawn(async move { replier.reply(reply).await });
        Ok(())
    }

    /// Sends the request. Waits for the headers of the response or, where the server may send messages of the call on
    /// the session's stream, for the first such message. The result is not passed through [`Upstream::noted`].
    pub(super) async fn start(&mut self) -> Result<(), UpstreamError> {
        let speaker = self.on_behalf.speaker(self.upstream_session.as_ref());
        let outgoing = request::call(self.id, &self.call, &self.options, speaker);
        let started = if self.aside.is_none() {
            let sent = self.upstream.send(&outgoing, self.deadline).await;
            sent.map(|messages| self.messages = Some(messages))
        } else {
            match self.upstream.admitted(&outgoing, self.deadline).await {
                Ok(pass) => self.start_pending(pass).await,
                Err(error) => Err(error),
            }
        };
        self.over = is_final(&started);
        started
    }

    /// Like [`Self::start`], again if the connection to the server fails and the call may be repeated.
    pub(super) async fn start_again(&mut self) -> Result<(), UpstreamError> {
        let retries = self.options.retries.clone();
        let mut started = self.start().await;
        while let Err(error) = &started
            && retries.again(error, self.deadline).await
        {
            let (inputs, state) = (self.options.inputs.clone(), self.options.state.clone());
            started = Box::pin(self.again(inputs, state)).await;
        }
        started
    }

    /// Like [`Self::start`], while messages on the session's stream are read at the same time.
    async fn start_pending(&mut self, pass: BreakerPass) -> Result<(), UpstreamError> {
        let (upstream, id) = (Arc::clone(&self.upstream), self.id);
        let (call, options) = (Arc::clone(&self.call), self.options.clone());
        let (on_behalf, upstream_session) = (self.on_behalf.clone(), self.upstream_session.clone());
        let response = async move {
            let outgoing =
                request::call(id, &call, &options, on_behalf.speaker(upstream_session.as_ref()));
            upstream.dispatch(&outgoing).await
        };
        self.pending = Some(PendingHeaders { response: Mutex::new(response.boxed()), pass });
        self.interim = self.headers_or_message(self.upstream.limits.response_timeout).await?;
        Ok(())
    }

    /// A message on the session's stream that arrives before the headers of the response; `None` once these have
    /// arrived. The server may be silent for `patience`. Cancel-safe.
    async fn interim_message(
        &mut self,
        patience: Duration,
    ) -> Result<Option<Message>, UpstreamError> {
        if let Some(message) = self.interim.take() {
            return Ok(Some(message));
        }
        if self.pending.is_none() {
            return Ok(None);
        }
        let next = self.headers_or_message(patience).await;
        if next.is_err() {
            self.over = is_final(&next);
        }
        if matches!(next, Err(UpstreamError::SessionGone))
            && self.on_behalf.upstream_session.is_none()
        {
            // The next call gets a new session. This call is not repeated: the server has begun to process it.
            self.upstream.lost(&self.on_behalf, self.upstream_session.as_ref());
        }
        self.upstream.noted(next)
    }

    /// Waits for the headers of the response (`None`) or for an earlier message on the session's stream.
    async fn headers_or_message(
        &mut self,
        patience: Duration,
    ) -> Result<Option<Message>, UpstreamError> {
        let Some(PendingHeaders { response, pass }) = &mut self.pending else { return Ok(None) };
        let until = self.deadline.min(Instant::now() + patience);
        let response = response.get_mut().unwrap_or_else(PoisonError::into_inner);
        let incoming = tokio::select! {
            biased;
            incoming = timeout_at(until, response) => {
                incoming.unwrap_or(Err(UpstreamError::Timeout(patience)))
            }
            Some(message) = aside(&mut self.aside) => {
                let message = Ok(Some(message));
                pass.heard(&message);
                return message;
            }
        };
        let mut pass = std::mem::take(pass);
        self.pending = None;
        let incoming = incoming.inspect_err(|error| pass.refused(error))?;
        self.messages = Some(IncomingMessages { incoming, pass });
        Ok(None)
    }

    /// Whether messages on the session's stream that the server sent before the response may still arrive.
    fn trails(&self) -> bool {
        let Some(aside) = &self.aside else { return false };
        // A client with a session of its own gets log messages on its own stream.
        let logs = self.options.level.is_some() && self.on_behalf.upstream_session.is_none();
        logs || self.options.progress && !self.reports && aside.may_trail()
    }

    /// Forwards progress that names another request of the session to that request. Returns whether there is such a
    /// request and it had room.
    #[must_use]
    pub fn passes_on(&self, told: &Notification) -> bool {
        if !matches!(ProgressTarget::of(told), ProgressTarget::Request(id) if id != self.id) {
            return false;
        }
        let told = Notification { method: told.method.clone(), params: told.params.clone() };
        self.upstream.progress_elsewhere(self, told)
    }

    /// Takes the memory budget of the answer, to be held until a client has read `bytes` of it; `None` before the
    /// answer has arrived.
    pub fn unsent(&mut self, bytes: usize) -> Option<ResponseAccount> {
        self.received.take().map(|received| received.unsent(bytes))
    }

    /// Turns the response into the last step.
    fn end(&mut self, message: Message) -> Result<AnswerStep, UpstreamError> {
        let outcome = self.upstream.outcome(message, self.id);
        self.over = true;
        // Later messages on the session's stream belong to other calls.
        self.received = self.aside.take().and_then(|mut aside| aside.received());
        if let Some(mut messages) = self.messages.take() {
            self.received = self.received.take().or_else(|| messages.received());
            self.upstream.done(messages);
        }
        match outcome? {
            ResponseOutcome::Result(result) if self.is_asking(&result) => {
                let questions = questions(&result)?;
                Ok(AnswerStep::Asked(InputRequired { questions, result: Some(result) }))
            }
            outcome => Ok(AnswerStep::Final(outcome)),
        }
    }

    /// Whether the result asks the client for input: SPEC 2026-07-28 basic/patterns/mrtr#supported-requests.
    fn is_asking(&self, result: &Fragment) -> bool {
        let kind = result.value().get("resultType").and_then(Value::as_str);
        MethodSpec::of(self.call.verb).is_some_and(|spec| spec.can_ask)
            && kind.as_deref() == Some("input_required")
    }

    /// Handles a connection that closed before the response: a legacy server may resume its stream.
    fn lose(&mut self) -> Result<AnswerStep, UpstreamError> {
        let legacy = self.era() == Era::Legacy;
        let Some(mut messages) = self.messages.take() else {
            return Err(UpstreamError::Incomplete);
        };
        let lost = match &messages.incoming {
            Incoming::Http(answer, _) if legacy => answer.lost(),
            Incoming::Http(..) | Incoming::Channel(_) => None,
        };
        self.attempts += 1;
        let Some(lost) = lost.filter(|_| self.attempts <= ATTEMPTS) else {
            return Err(messages.broken_off());
        };
        self.pass = messages.pass;
        let rests = lost.1;
        self.lost = Some(lost);
        Ok(AnswerStep::Rests(rests))
    }

    /// Resumes a lost stream after its last event.
    ///
    /// SPEC 2025-11-25 basic/transports#resumability-and-redelivery
    async fn find(&mut self) -> Result<(), UpstreamError> {
        let Some((last, pause)) = self.lost.clone() else { return Ok(()) };
        sleep(pause).await;
        let Transport::Http(http) = &self.upstream.transport else {
            return Err(UpstreamError::Incomplete);
        };
        let Some(upstream_session) = &self.upstream_session else {
            return Err(UpstreamError::Incomplete);
        };
        let outgoing = request::initialized(&self.on_behalf, upstream_session);
        let until = self.deadline.min(Instant::now() + self.upstream.limits.response_timeout);
        let found = timeout_at(until, http.open(&outgoing, Some(&last))).await;
        let found = found.map_err(|_late| UpstreamError::Incomplete)??;
        let found = found.ok_or(UpstreamError::Incomplete)?;
        let (incoming, pass) = (Incoming::Http(found, None), std::mem::take(&mut self.pass));
        self.messages = Some(IncomingMessages { incoming, pass });
        self.lost = None;
        Ok(())
    }

    /// A handle to reply to the requests of a legacy server, usable while the next step is awaited.
    #[must_use]
    pub fn replier(&self) -> ReplySender {
        ReplySender::new(
            Arc::clone(&self.upstream),
            self.on_behalf.clone(),
            self.upstream_session.clone(),
        )
    }

    /// Repeats the call with the client's input that a modern server requested. The call had its permit and its intent
    /// when it was made, and the input was cleared.
    ///
    /// SPEC 2026-07-28 basic/patterns/mrtr#basic-workflow
    ///
    /// # Errors
    /// If the server does not begin to answer, or the input was cleared for another one.
    pub async fn again(
        &mut self,
        inputs: Option<Arc<InputResponses>>,
        state: Option<Box<str>>,
    ) -> Result<(), UpstreamError> {
        if inputs.as_ref().is_some_and(|inputs| *inputs.server() != self.upstream.name) {
            return Err(MISDIRECTED);
        }
        self.options.inputs = inputs;
        self.options.state = state;
        self.id = self.upstream.id();
        self.over = false;
        let aside = self.upstream.aside(self);
        self.aside = aside;
        let started = self.start().await;
        self.upstream.noted(started)
    }

    /// The progress token of this call, which is also its id.
    #[must_use]
    pub const fn token(&self) -> i64 {
        self.id
    }

    fn era(&self) -> Era {
        self.upstream_session
            .as_ref()
            .map_or(Era::Modern, |upstream_session| upstream_session.version.era())
    }

    /// Restarts the time limit of the whole answer.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + self.options.patience(self.upstream.limits.call_timeout);
    }

    /// Drops the arguments of the call and the client's input to free their memory. A legacy server has them already
    /// and is not sent them again.
    pub fn forget_sent(&mut self) {
        let call = &self.call;
        let (server, verb, name) = (call.server.clone(), call.verb, call.name.clone());
        let (arguments, extra, meta) = (None, Vec::new(), Vec::new());
        self.call = Arc::new(ItemRequest { server, verb, name, arguments, extra, meta });
        self.options.inputs = None;
        self.options.share = None;
    }

    /// Counts further request bytes against `share`.
    pub fn takes_of(&mut self, share: Option<Arc<Share<Holder>>>) {
        self.options.share = share;
    }

    /// Restores the call with its arguments, against which the result is judged. Takes the permit of the same call, which
    /// its client has repeated: the call may be sent again with it.
    ///
    /// ```
    /// # fn resume(answer: &mut gateway::upstream::CallAnswer, cleared: gateway::upstream::Cleared) {
    /// answer.remember_sent(cleared);
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use policy::engine::message::ItemRequest;
    /// # fn resume(answer: &mut gateway::upstream::CallAnswer, call: ItemRequest) {
    /// answer.remember_sent(call); // a call that nothing has permitted
    /// # }
    /// ```
    pub fn remember_sent(&mut self, permit: Cleared) {
        match permit.into_permit().spend().0 {
            ClientRequest::Use(call) if call.server == self.upstream.name => {
                self.call = Arc::new(call);
            }
            ClientRequest::Use(_) | ClientRequest::List { .. } => {}
        }
    }

    /// The call that is answered.
    #[must_use]
    pub fn call(&self) -> &ItemRequest {
        &self.call
    }

    /// The kind of request.
    #[must_use]
    pub fn verb(&self) -> RequestOperation {
        self.call.verb
    }
}

/// Whether `result` leaves nothing to cancel at the server. A request that timed out may still be in progress there.
fn is_final<T>(result: &Result<T, UpstreamError>) -> bool {
    matches!(result, Err(error) if !matches!(error, UpstreamError::Timeout(_)))
}

/// The next message on the session's stream; pending forever without an `inbox`. A response there that found no room
/// yields `None`, because the response belongs on the connection of the request.
async fn aside(inbox: &mut Option<RequestInbox>) -> Option<Message> {
    match inbox {
        Some(inbox) => inbox.next().await?.ok(),
        None => std::future::pending().await,
    }
}

/// Parses the requests for input in a result.
fn questions(result: &Fragment) -> Result<Vec<InputRequest>, UpstreamError> {
    let value = result.value();
    let wrong = |what| Err(UpstreamError::Protocol(what));
    if wire::is_misspelled(value, &["inputRequests", "requestState", "resultType", "_meta"]) {
        return wrong("the result has a member in another spelling");
    }
    let asked = value.get("inputRequests");
    let state = value.get("requestState");
    if state.is_some_and(|state| state.as_str().is_none()) {
        return wrong("`requestState` is not a string");
    }
    if asked.is_none() && state.is_none() {
        return wrong("an `input_required` result has neither `inputRequests` nor `requestState`");
    }
    let document = result.document();
    let mut questions = Vec::new();
    for (key, question) in asked.into_iter().flat_map(Value::members) {
        if wire::is_misspelled(question, &wire::SERVER_REQUEST) {
            return wrong("an entry of `inputRequests` has a member in another spelling");
        }
        let method = question.get("method").and_then(Value::as_str);
        let Some(method) = method else {
            return wrong("an entry of `inputRequests` has no `method`");
        };
        if questions.len() >= AT_ONCE {
            return wrong("`inputRequests` has more than 32 entries");
        }
        let params = question.get("params").map(|params| params.fragment(&document));
        let (key, method) = (key.into(), method.into());
        questions.push(InputRequest { key, id: None, method, params });
    }
    Ok(questions)
}

/// Whether a notification that belongs to the request `id` is progress of that request, and not of another one that its
/// token names. Progress without a token counts as its own.
#[must_use]
pub fn is_progress(told: &Notification, id: i64) -> bool {
    let named = || match ProgressTarget::of(told) {
        ProgressTarget::Request(named) => named == id,
        ProgressTarget::Nothing => true,
        ProgressTarget::UnknownToken => false,
    };
    &*told.method == method::PROGRESS && named()
}

impl Drop for CallAnswer {
    /// Cancels a call whose answer is no longer wanted. A modern server over HTTP sees the connection close; any
    /// other server is sent a cancellation.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let upstream_session = self.upstream_session.take();
        let on_behalf = self.on_behalf.clone();
        match self.messages.take() {
            Some(IncomingMessages { incoming: Incoming::Channel(answer), .. }) => {
                let speaker = on_behalf.speaker(upstream_session.as_ref());
                answer.cancel(request::cancelled(self.id, speaker).body);
            }
            // Nothing was sent.
            None if matches!(self.upstream.transport, Transport::Channel(_)) => {}
            Some(IncomingMessages { incoming: Incoming::Http(..), .. }) | None => {
                if !upstream_session
                    .as_ref()
                    .is_some_and(|upstream_session| upstream_session.version.era() == Era::Legacy)
                {
                    return;
                }
                let (upstream, id) = (Arc::clone(&self.upstream), self.id);
                self.upstream.tasks.spawn(async move {
                    let deadline = Instant::now() + upstream.limits.response_timeout;
                    let speaker = on_behalf.speaker(upstream_session.as_ref());
                    let cancelled = request::cancelled(id, speaker);
                    if let Err(error) = upstream.notify(&cancelled, deadline).await {
                        let error = crate::base::error_chain::ErrorChain(&error);
                        tracing::debug!(
                            server = %upstream.name, %error,
                            "the cancellation was not sent"
                        );
                    }
                });
            }
        }
    }
}
