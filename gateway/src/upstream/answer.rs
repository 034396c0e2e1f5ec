//! The answer to a call, step by step.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use policy::ask::AT_ONCE;
use policy::json::{Fragment, Value};
use policy::message::{Use, Verb};
use tokio::time::{Instant, sleep, timeout_at};

use super::breaker::Pass;
use super::channel::ChannelAnswer;
use super::demux::{Named, Ticket};
use super::request::{self, Manner};
use super::streamable_http::HttpAnswer;
use super::{Party, Transport, Upstream, UpstreamError};
use crate::base::gcra::{Gcra, Pace};
use crate::base::intake::Received;
use crate::base::share::{Holder, Share};
use crate::mcp::protocol::{Era, method};
use crate::mcp::wire::{self, Id, Message, Notification, Outcome};
use crate::session::Leg;

/// How often in a row a lost stream is asked for before it is given up.
const ATTEMPTS: u32 = 5;
/// How often a server may ask in mid-answer whether somebody is there: once in each second, after so many at once.
const PINGS: Pace = Pace::new(1, Duration::from_secs(1), 64);
/// How long is waited for log lines of a call that has been answered on another connection.
const TRAILING: Duration = Duration::from_millis(25);

/// The answer to a call, step by step.
#[derive(Debug)]
pub struct Answer {
    pub(super) upstream: Arc<Upstream>,
    pub(super) messages: Option<Messages>,
    /// There is nothing left to cancel.
    pub(super) over: bool,
    pub(super) id: i64,
    pub(super) call: Arc<Use>,
    pub(super) manner: Manner,
    /// For whom it was asked.
    pub(super) party: Party,
    /// How it was asked: what a cancellation has to say again.
    pub(super) leg: Option<Leg>,
    pub(super) deadline: Instant,
    /// The stream was lost: after which event it goes on, and when.
    pub(super) lost: Option<(Box<str>, Duration)>,
    /// Who is told of the answer, while the stream is lost.
    pub(super) pass: Pass,
    /// How often in a row it was lost without a message in between.
    pub(super) attempts: u32,
    /// How often the server asked whether somebody is there.
    pub(super) pings: Gcra,
    /// What the server says elsewhere in the session, and means for this call.
    pub(super) aside: Option<Ticket>,
    /// How many of the messages that wait there come before what comes in answer.
    pub(super) ahead: usize,
    /// The server has reported progress in the answer itself.
    pub(super) reports: bool,
    /// The response, while what the server said before it elsewhere was not read, and until when that may still be on its
    /// way, if it may.
    pub(super) last: Option<(Message, Option<Instant>)>,
    /// What of the server's answer is in memory when it has been read to its end.
    pub(super) received: Option<Received>,
    /// The request, while the headers of its response have not come.
    pub(super) pending: Option<PendingHeaders>,
    /// What the server has said elsewhere in the session before the headers of the response.
    pub(super) interim: Option<Message>,
}

/// A request that was sent and whose response has no headers yet.
pub(super) struct PendingHeaders {
    /// The lock is never taken: it makes the future one that several threads may refer to.
    response: Mutex<BoxFuture<'static, Result<Incoming, UpstreamError>>>,
    /// Is told whether the server has answered.
    pass: Pass,
}

impl fmt::Debug for PendingHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingHeaders").finish_non_exhaustive()
    }
}

/// What comes in answer to a request.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) incoming: Incoming,
    /// Is told whether the server has answered.
    pub(super) pass: Pass,
}

/// On which way it comes.
#[derive(Debug)]
pub(super) enum Incoming {
    /// The answer, and what of it has come and was not read yet.
    Http(Box<HttpAnswer>, Option<Bytes>),
    Channel(ChannelAnswer),
}

/// A step of an answer.
#[derive(Debug)]
pub enum Step {
    /// Something said on the way: progress under our own token, a line of the log, or something
    /// else.
    Told(Notification),
    /// Something the client has to answer first.
    Asked(Asked),
    /// The server closed the connection and goes on later.
    Rests(Duration),
    /// The end.
    Final(Outcome),
}

/// What a client has to answer.
#[derive(Debug)]
pub struct Asked {
    /// The questions; there may be none, when the call is to be made once more.
    pub questions: Vec<Question>,
    /// The whole result of a modern server, which has ended its answer with it; `None` when a
    /// legacy server waits.
    pub result: Option<Fragment>,
}

impl Asked {
    /// What the server wants to be reminded of.
    #[must_use]
    pub fn state(&self) -> Option<Box<str>> {
        let state = self.result.as_ref()?.value().get("requestState")?;
        state.as_str().map(Into::into)
    }
}

/// A question of a server.
#[derive(Clone, Debug)]
pub struct Question {
    /// What the server calls it.
    pub key: Box<str>,
    /// The id to answer a legacy server under.
    pub id: Option<Id>,
    /// What is asked.
    pub method: Box<str>,
    /// With what.
    pub params: Option<Fragment>,
}

/// Answers the questions of a legacy server that waits.
#[derive(Clone, Debug)]
pub struct Replier {
    upstream: Arc<Upstream>,
    party: Party,
    leg: Option<Leg>,
}

impl Replier {
    pub(super) const fn new(upstream: Arc<Upstream>, party: Party, leg: Option<Leg>) -> Self {
        Self { upstream, party, leg }
    }

    /// Sends the answer, a whole JSON-RPC response.
    pub async fn reply(&self, body: Vec<u8>) {
        let speaker = self.party.speaker(self.leg.as_ref());
        let deadline = Instant::now() + self.upstream.limits.answer_time;
        let reply = request::reply(body, speaker);
        if let Err(error) = self.upstream.notify(&reply, deadline).await {
            let error = crate::base::error_chain::Chain(&error);
            tracing::warn!(server = %self.upstream.name, %error, "a question was not answered");
        }
    }
}

impl Messages {
    /// The whole answer as text, where it is one message and not yet read.
    pub(super) async fn text(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Option<Bytes>, UpstreamError> {
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

    /// Reads what [`Self::text`] gave.
    pub(super) async fn read(&mut self, text: Bytes) -> Result<Message, UpstreamError> {
        match &mut self.incoming {
            Incoming::Http(answer, _) => answer.read(text).await,
            Incoming::Channel(_) => Err(UpstreamError::Incomplete),
        }
    }

    /// Whether it is a stream of events.
    pub(super) const fn is_streamed(&self) -> bool {
        matches!(&self.incoming, Incoming::Http(answer, _) if answer.is_streamed())
    }

    /// The next message; `None` when the server closed the connection before the end. May be given
    /// up and called again.
    pub(super) async fn next(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Option<Message>, UpstreamError> {
        let next = self.incoming.next(deadline, patience).await;
        self.pass.heard(&next);
        next
    }

    /// What of it is in memory, to be kept for as long as what was read is used.
    pub(super) fn received(&mut self) -> Option<Received> {
        match &mut self.incoming {
            Incoming::Http(answer, _) => Some(answer.received()),
            Incoming::Channel(answer) => answer.received(),
        }
    }

    /// Notes that there is no end to it, and says so.
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
        // A server that always has more to say would never let a timer fire.
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
                next.map_err(|_late| UpstreamError::Timeout(patience))?.map(Some)
            }
        }
    }
}

impl Answer {
    /// The next step. The server may be silent for `patience`.
    ///
    /// # Errors
    /// When there is none in time, or it is none: then there is no further step.
    pub async fn next(&mut self, patience: Duration) -> Result<Step, UpstreamError> {
        loop {
            if let Some(step) = self.trailing_step().await {
                return step;
            }
            let said_before = self.said_before();
            if said_before.is_none() && self.lost.is_some() {
                self.find().await.inspect_err(|error| self.pass.refused(error))?;
            }
            let mut here = false;
            let said = match said_before {
                None => self.interim_message(patience).await?,
                said => said,
            };
            let message = match said {
                Some(message) => message,
                None => {
                    let Some(messages) = &mut self.messages else {
                        return Err(UpstreamError::Incomplete);
                    };
                    let next = tokio::select! {
                        biased;
                        next = messages.next(self.deadline, patience) => {
                            here = true;
                            next
                        }
                        Some(message) = aside(&mut self.aside) => {
                            // What is said elsewhere in the session is said all the same.
                            let next = Ok(Some(message));
                            messages.pass.heard(&next);
                            next
                        }
                    };
                    match self.upstream.noted(next)? {
                        Some(message) => message,
                        None => return self.lose(),
                    }
                }
            };
            self.attempts = 0;
            match message {
                Message::Response(_) => {
                    self.ahead = self.aside.as_ref().map_or(0, Ticket::waiting);
                    let until = self.trails().then(|| Instant::now() + TRAILING);
                    self.last = Some((message, until));
                }
                Message::Notification(told) => {
                    self.reports |= here && &*told.method == method::PROGRESS;
                    return Ok(Step::Told(told));
                }
                Message::Request(request) if &*request.method == method::PING => {
                    self.reply_to_ping(&request)?;
                }
                Message::Request(_) if self.era() == Era::Modern => {
                    return Err(UpstreamError::Protocol("the server asks in mid-answer"));
                }
                Message::Request(request) => {
                    let key = request.id.to_string().into();
                    let (method, params) = (request.method, request.params);
                    let question = Question { key, id: Some(request.id), method, params };
                    return Ok(Step::Asked(Asked { questions: vec![question], result: None }));
                }
            }
        }
    }

    /// Once the response has come: what was said before it on another connection, and then the response; `None` before.
    async fn trailing_step(&mut self) -> Option<Result<Step, UpstreamError>> {
        let until = self.last.as_ref().map(|(_, until)| *until)?;
        while let Some(said) = self.said_before() {
            if let Message::Notification(told) = said {
                return Some(Ok(Step::Told(told)));
            }
        }
        if let Some(until) = until {
            let told = timeout_at(until, aside(&mut self.aside)).await;
            if let Ok(Some(Message::Notification(told))) = told {
                return Some(Ok(Step::Told(told)));
            }
        }
        let (last, _) = self.last.take()?;
        Some(self.end(last))
    }

    /// What the server has said elsewhere and comes first, as long as there is any of it. A response there for which there
    /// is no room is passed over.
    fn said_before(&mut self) -> Option<Message> {
        while self.ahead > 0 {
            self.ahead -= 1;
            if let Some(Ok(said)) = self.aside.as_mut().and_then(Ticket::try_next) {
                return Some(said);
            }
        }
        None
    }

    /// Goes on with a call that has waited for its client. What the server has said meanwhile elsewhere comes first: it was
    /// said before the client's answer, and what the server says after that can bring the call to its end.
    pub fn resume(&mut self) {
        self.renew();
        self.ahead = self.aside.as_ref().map_or(0, Ticket::waiting);
    }

    /// Answers a ping beside the answer: a server that does not take the reply does not delay what comes next.
    fn reply_to_ping(&mut self, ping: &wire::Request) -> Result<(), UpstreamError> {
        if self.pings.take(PINGS, Instant::now().into_std()).is_err() {
            let error = UpstreamError::Protocol("the server sends too many pings");
            return self.upstream.noted(Err(error));
        }
        let replier = self.replier();
        let reply = request::unasked(ping, "nothing else is offered");
        self.upstream.tasks.spawn(async move { replier.reply(reply).await });
        Ok(())
    }

    /// Sends the request, and waits for the headers of the response or, where the server may say something about the
    /// call on another connection of its session, for the first such message. Not noted: see [`Upstream::noted`].
    pub(super) async fn start(&mut self) -> Result<(), UpstreamError> {
        let speaker = self.party.speaker(self.leg.as_ref());
        let outgoing = request::call(self.id, &self.call, &self.manner, speaker);
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

    /// The same for a request whose headers are waited for beside what the server says elsewhere.
    async fn start_pending(&mut self, pass: Pass) -> Result<(), UpstreamError> {
        let (upstream, id) = (Arc::clone(&self.upstream), self.id);
        let (call, manner) = (Arc::clone(&self.call), self.manner.clone());
        let (party, leg) = (self.party.clone(), self.leg.clone());
        let response = async move {
            let outgoing = request::call(id, &call, &manner, party.speaker(leg.as_ref()));
            upstream.dispatch(&outgoing).await
        };
        self.pending = Some(PendingHeaders { response: Mutex::new(response.boxed()), pass });
        self.interim = self.headers_or_message(self.upstream.limits.answer_time).await?;
        Ok(())
    }

    /// What the server says elsewhere before the headers of the response; `None` once these have come. The server
    /// may be silent for `patience`. May be given up and called again.
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
        if matches!(next, Err(UpstreamError::SessionGone)) && self.party.leg.is_none() {
            // The next call gets a new session. This one is not made again: the server has spoken about it.
            self.upstream.lost(&self.party, self.leg.as_ref());
        }
        self.upstream.noted(next)
    }

    /// Waits for the headers of the response, which is `None`, or for what the server says elsewhere before them.
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
        self.messages = Some(Messages { incoming, pass });
        Ok(None)
    }

    /// Whether what the server said elsewhere before the response may still be on its way.
    fn trails(&self) -> bool {
        let Some(aside) = &self.aside else { return false };
        // A client with a session of its own has the log of it on its own stream.
        let logs = self.manner.level.is_some() && self.party.leg.is_none();
        logs || self.manner.progress && !self.reports && aside.may_trail()
    }

    /// Gives progress that names another request of the session to that one; whether there is one, and it had room.
    #[must_use]
    pub fn passes_on(&self, told: &Notification) -> bool {
        if !matches!(Named::of(told), Named::Request(id) if id != self.id) {
            return false;
        }
        let told = Notification { method: told.method.clone(), params: told.params.clone() };
        self.upstream.progress_elsewhere(self, told)
    }

    /// What the answer takes until a client has read so many bytes of it; `None` of one that has not come yet.
    pub fn unsent(&mut self, bytes: usize) -> Option<Received> {
        self.received.take().map(|received| received.unsent(bytes))
    }

    /// The response has come.
    fn end(&mut self, message: Message) -> Result<Step, UpstreamError> {
        let outcome = self.upstream.outcome(message, self.id);
        self.over = true;
        // What is said elsewhere from now on belongs to those that go on.
        self.received = self.aside.take().and_then(|mut aside| aside.received());
        if let Some(mut messages) = self.messages.take() {
            self.received = self.received.take().or_else(|| messages.received());
            self.upstream.done(messages);
        }
        match outcome? {
            Outcome::Result(result) if self.is_asking(&result) => {
                let questions = questions(&result)?;
                Ok(Step::Asked(Asked { questions, result: Some(result) }))
            }
            outcome => Ok(Step::Final(outcome)),
        }
    }

    /// SPEC 2026-07-28 basic/patterns/mrtr#supported-requests
    fn is_asking(&self, result: &Fragment) -> bool {
        let kind = result.value().get("resultType").and_then(Value::as_str);
        matches!(self.call.verb, Verb::Call | Verb::Get | Verb::Read)
            && kind.as_deref() == Some("input_required")
    }

    /// The connection is closed and the end has not come: a legacy server may go on later.
    fn lose(&mut self) -> Result<Step, UpstreamError> {
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
        Ok(Step::Rests(rests))
    }

    /// Goes on with a lost stream.
    ///
    /// SPEC 2025-11-25 basic/transports#resumability-and-redelivery
    async fn find(&mut self) -> Result<(), UpstreamError> {
        let Some((last, pause)) = self.lost.clone() else { return Ok(()) };
        sleep(pause).await;
        let Transport::Http(http) = &self.upstream.transport else {
            return Err(UpstreamError::Incomplete);
        };
        let Some(leg) = &self.leg else { return Err(UpstreamError::Incomplete) };
        let outgoing = request::initialized(&self.party, leg);
        let until = self.deadline.min(Instant::now() + self.upstream.limits.answer_time);
        let found = timeout_at(until, http.open(&outgoing, Some(&last))).await;
        let found = found.map_err(|_late| UpstreamError::Incomplete)??;
        let found = found.ok_or(UpstreamError::Incomplete)?;
        let (incoming, pass) =
            (Incoming::Http(Box::new(found), None), std::mem::take(&mut self.pass));
        self.messages = Some(Messages { incoming, pass });
        self.lost = None;
        Ok(())
    }

    /// Answers the questions of a legacy server, also while the next step is waited for.
    #[must_use]
    pub fn replier(&self) -> Replier {
        Replier::new(Arc::clone(&self.upstream), self.party.clone(), self.leg.clone())
    }

    /// Makes the call once more, with the client's answers to what a modern server asked.
    ///
    /// SPEC 2026-07-28 basic/patterns/mrtr#basic-workflow
    ///
    /// # Errors
    /// When the server does not begin to answer.
    pub async fn again(
        &mut self,
        inputs: Option<Fragment>,
        state: Option<Box<str>>,
    ) -> Result<(), UpstreamError> {
        self.manner.inputs = inputs;
        self.manner.state = state;
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
        self.leg.as_ref().map_or(Era::Modern, |leg| leg.version.era())
    }

    /// Starts the time anew that the whole answer may take.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + self.manner.patience(self.upstream.limits.total_time);
    }

    /// Drops the arguments of the call and the client's answers. A legacy server has them and is not sent them again:
    /// it waits for an answer to its question.
    pub fn forget_sent(&mut self) {
        let call = &self.call;
        let (server, verb, name) = (call.server.clone(), call.verb, call.name.clone());
        let (arguments, extra, meta) = (None, Vec::new(), Vec::new());
        self.call = Arc::new(Use { server, verb, name, arguments, extra, meta });
        self.manner.inputs = None;
        self.manner.share = None;
    }

    /// Counts what is sent from now on as a part of the body of this request.
    pub fn takes_of(&mut self, share: Option<Arc<Share<Holder>>>) {
        self.manner.share = share;
    }

    /// Puts back the call with its arguments: the result is judged by them.
    pub fn remember_sent(&mut self, call: Use) {
        self.call = Arc::new(call);
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &Use {
        &self.call
    }

    /// What was asked.
    #[must_use]
    pub fn verb(&self) -> Verb {
        self.call.verb
    }
}

/// Whether there is nothing left to cancel at the server after this: a request that took too long may be under way.
fn is_final<T>(result: &Result<T, UpstreamError>) -> bool {
    matches!(result, Err(error) if !matches!(error, UpstreamError::Timeout(_)))
}

/// What the server says elsewhere; for ever nothing where there is no such place. A response there for which there is no
/// room is passed over: it belongs on the connection of the request.
async fn aside(ticket: &mut Option<Ticket>) -> Option<Message> {
    match ticket {
        Some(ticket) => ticket.next().await?.ok(),
        None => std::future::pending().await,
    }
}

/// The questions in a result.
fn questions(result: &Fragment) -> Result<Vec<Question>, UpstreamError> {
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
        return wrong("the server asks for input and does not say for which");
    }
    let document = result.document();
    let mut questions = Vec::new();
    for (key, question) in asked.into_iter().flat_map(Value::members) {
        let method = question.get("method").and_then(Value::as_str);
        let Some(method) = method.filter(|_| questions.len() < AT_ONCE) else {
            return wrong("the server asks what is no question, or too much at once");
        };
        let params = question.get("params").map(|params| params.fragment(&document));
        let (key, method) = (key.into(), method.into());
        questions.push(Question { key, id: None, method, params });
    }
    Ok(questions)
}

/// Whether a notification that came in answer to the request `id`, or was given to it, is progress of it: one
/// without a token is.
#[must_use]
pub fn is_progress(told: &Notification, id: i64) -> bool {
    let named = || match Named::of(told) {
        Named::Request(named) => named == id,
        Named::Nothing => true,
        Named::Stranger => false,
    };
    &*told.method == method::PROGRESS && named()
}

impl Drop for Answer {
    /// An answer that is no longer wanted is cancelled: a modern server over HTTP sees the
    /// connection close, every other is told.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let leg = self.leg.take();
        let party = self.party.clone();
        match self.messages.take() {
            Some(Messages { incoming: Incoming::Channel(answer), .. }) => {
                let speaker = party.speaker(leg.as_ref());
                answer.cancel(request::cancelled(self.id, speaker).body);
            }
            // Nothing was sent.
            None if matches!(self.upstream.transport, Transport::Channel(_)) => {}
            Some(Messages { incoming: Incoming::Http(..), .. }) | None => {
                if !leg.as_ref().is_some_and(|leg| leg.version.era() == Era::Legacy) {
                    return;
                }
                let (upstream, id) = (Arc::clone(&self.upstream), self.id);
                self.upstream.tasks.spawn(async move {
                    let deadline = Instant::now() + upstream.limits.answer_time;
                    let speaker = party.speaker(leg.as_ref());
                    let cancelled = request::cancelled(id, speaker);
                    if let Err(error) = upstream.notify(&cancelled, deadline).await {
                        let error = crate::base::error_chain::Chain(&error);
                        tracing::debug!(server = %upstream.name, %error, "not cancelled");
                    }
                });
            }
        }
    }
}
