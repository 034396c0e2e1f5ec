//! `tools/call`

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use policy::json::{Fragment, Value};
use policy::message::{Reply, ToolCall};
use policy::pipeline::{Expectation, Permit, Policy, Shown};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Arrived, Gateway, Place};
use crate::audit::{Entry, Record, Verdict};
use crate::body::Body;
use crate::ending::{Ending, Outcome as Ended};
use crate::failure::Failure;
use crate::inbound::{Ask, ToolAsk};
use crate::protocol::Era;
use crate::reply;
use crate::session::SessionKey;
use crate::sse;
use crate::upstream::{Answer, Step, Upstream, UpstreamError};
use crate::wire::{self, Id, Outcome};

/// Events that wait for a client that reads slowly. Then the server waits.
const EVENTS: usize = 16;

/// Members of a result that clients read.
const RESULT: [&str; 5] = ["content", "structuredContent", "isError", "resultType", "_meta"];

/// A call that is under way.
struct Underway {
    gateway: Arc<Gateway>,
    caller: Arc<policy::principal::Principal>,
    server: Arc<Upstream>,
    entry: Entry,
    due: Option<Expectation>,
    answer: Answer,
    id: Id,
    era: Era,
    progress: Option<Id>,
    cancelled: Cancellable,
    started: std::time::Instant,
    _place: Place,
}

impl Gateway {
    /// Calls a tool, if the policy permits it, once that is on record.
    pub(super) async fn call(
        self: Arc<Self>,
        mut arrived: Arrived,
        mut record: Box<Record>,
        place: Place,
    ) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        let era = arrived.inbound.version.era();
        let ask = std::mem::replace(&mut arrived.inbound.ask, Ask::Notice);
        let Ask::CallTool(ask) = ask else {
            return self.refuse(&record, &Failure::Method);
        };
        let progress = ask.progress.clone();
        let (at, server, permit) = match self.admit(&arrived, ask, &mut record).await {
            Ok(admitted) => admitted,
            Err(failure) => return self.refuse(&record, &failure),
        };
        let key = arrived.session.as_ref().map(|session| session.key);
        let cancelled = match Cancellable::enter(&self, key, &id) {
            Ok(cancelled) => cancelled,
            Err(failure) => return self.refuse(&record, &failure),
        };
        let mut entry = match self.journal.open_call(record) {
            Ok(entry) => entry,
            Err(error) => {
                tracing::error!(error = %crate::report::Chain(&error), "no record, no call");
                return reply::error(&Failure::Audit(error).public(Some(era)), Some(&id));
            }
        };
        let started = self.clock.instant();
        let leg = arrived.leg(at);
        let sent = tokio::select! {
            sent = server.call(permit, &entry, leg, progress.is_some()) => Some(sent),
            () = cancelled.cancelled() => None,
        };
        if let Some(record) = entry.record() {
            record.upstream = self.clock.instant().saturating_duration_since(started);
        }
        let (due, answer) = match sent {
            Some(Ok(sent)) => sent,
            Some(Err(error)) => return self.failed(entry, &Failure::Upstream(error), Some(&id)),
            None => {
                return self.shown(entry, Ending::cancelled(), None, reply::events(Body::empty()));
            }
        };
        let caller = Arc::clone(&arrived.caller.principal);
        let gateway = self;
        let underway = Underway {
            gateway,
            caller,
            server,
            entry,
            due: Some(due),
            answer,
            id,
            era,
            progress,
            cancelled,
            started,
            _place: place,
        };
        underway.answer().await
    }

    /// The decision: which server, which tool, and whether.
    async fn admit(
        &self,
        arrived: &Arrived,
        ask: ToolAsk,
        record: &mut Record,
    ) -> Result<(usize, Arc<Upstream>, Permit), Failure> {
        record.tool = Some(ask.name.clone());
        record.argument_digest = ask
            .arguments
            .as_ref()
            .map(|arguments| self.journal.digest(arguments.value().raw().as_bytes()));
        let Some((place, server, tool)) = target(arrived, &ask.name) else {
            let (decision, denial) = Policy::unknown();
            record.verdict = Verdict::Decided(Box::new(decision));
            return Err(Failure::Denied(denial));
        };
        record.server = Some(server.name().as_str().into());
        let principal = &*arrived.caller.principal;
        let call = ToolCall {
            server: server.name().clone(),
            tool: tool.into(),
            arguments: ask.arguments,
            extra: ask.extra,
            meta: ask.meta,
        };
        // Who may call nothing of this server causes no request to it: not even for its list.
        let any = self.policy.admit_list(principal, server.name());
        if let Err(denial) = any.outcome {
            record.verdict = Verdict::Decided(Box::new(any.decision));
            return Err(Failure::Denied(denial));
        }
        let listing = server.catalog(arrived.leg(place)).await.map_err(Failure::Upstream)?;
        let ruling = self.policy.admit(principal, listing.catalog(), call);
        record.verdict = Verdict::Decided(Box::new(ruling.decision));
        let permit = ruling.outcome.map_err(Failure::Denied)?;
        Ok((place, Arc::clone(server), permit))
    }
}

/// The server a tool name leads to, and the tool's name there.
fn target<'a>(arrived: &'a Arrived, name: &'a str) -> Option<(usize, &'a Arc<Upstream>, &'a str)> {
    let servers = &arrived.route.servers;
    if !arrived.route.prefixed() {
        return Some((0, servers.first()?, name));
    }
    let (prefix, tool) = name.split_once("__")?;
    let place = servers.iter().position(|server| server.name().as_str() == prefix)?;
    Some((place, servers.get(place)?, tool))
}

impl Underway {
    /// Waits for the first step: most calls have but one, and their answer is one JSON object.
    async fn answer(mut self) -> Response<Body> {
        match self.step().await {
            Ok(Some(Step::Progress(params))) => self.stream(params),
            Ok(Some(Step::Final(outcome))) => match self.released(outcome) {
                Ok((body, ending)) => {
                    self.recorded(ending, body.length());
                    reply::json(body)
                }
                Err(error) => self.broken(error),
            },
            Ok(None) => {
                // The client said that it no longer wants the answer, so it gets none.
                self.recorded(Ending::cancelled(), 0);
                reply::events(Body::empty())
            }
            Err(error) => self.broken(error),
        }
    }

    /// The answer when the server has none.
    fn broken(self, error: UpstreamError) -> Response<Body> {
        let failure = Failure::Upstream(error);
        let public = failure.public(Some(self.era));
        let response = reply::error(&public, Some(&self.id));
        self.recorded(failure.ending(&public), response.body().length());
        response
    }

    /// The next step; `None` when the call was cancelled.
    async fn step(&mut self) -> Result<Option<Step>, UpstreamError> {
        tokio::select! {
            biased;
            step = self.answer.next() => step.map(Some),
            () = self.cancelled.cancelled() => Ok(None),
        }
    }

    /// Passes the steps on as they come.
    fn stream(self, first: Fragment) -> Response<Body> {
        let (events, body) = mpsc::channel(EVENTS);
        let tasks = self.gateway.tasks.clone();
        tasks.spawn(self.pump(first, events));
        reply::events(Body::Stream(body))
    }

    async fn pump(mut self, first: Fragment, events: mpsc::Sender<Bytes>) {
        let mut next = Ok(Some(Step::Progress(first)));
        loop {
            let outcome = match next {
                Ok(Some(Step::Progress(params))) => {
                    self.report(&params, &events).await;
                    None
                }
                Ok(Some(Step::Final(outcome))) => Some(self.released(outcome)),
                Ok(None) => return self.recorded(Ending::cancelled(), 0),
                Err(error) => Some(Err(error)),
            };
            if let Some(outcome) = outcome {
                return self.conclude(outcome, &events).await;
            }
            next = tokio::select! {
                step = self.step() => step,
                // SPEC 2026-07-28 basic/patterns/cancellation: to hang up is to cancel. Not so in
                // the revisions before, where the call goes on to its end.
                () = events.closed(), if self.era == Era::Modern => Ok(None),
            };
        }
    }

    /// Passes progress on to a client that asked for it. One that has gone shows in the next step.
    async fn report(&self, params: &Fragment, events: &mpsc::Sender<Bytes>) {
        if let Some(token) = &self.progress {
            self.send(sse::encode(&reply::progress(token, params)), events).await;
        }
    }

    /// Sends an event, unless the client has gone or does not read.
    async fn send(&self, event: Bytes, events: &mpsc::Sender<Bytes>) -> bool {
        let patience = self.gateway.limits.answer_time;
        matches!(tokio::time::timeout(patience, events.send(event)).await, Ok(Ok(())))
    }

    /// Sends the last event of a stream.
    async fn conclude(
        self,
        outcome: Result<(Body, Ending), UpstreamError>,
        events: &mpsc::Sender<Bytes>,
    ) {
        let (body, ending) = outcome.unwrap_or_else(|error| {
            let failure = Failure::Upstream(error);
            let public = failure.public(Some(self.era));
            let body = reply::error(&public, Some(&self.id)).into_body();
            // The stream began well; its status has been sent.
            (body, Ending { status: 200, ..failure.ending(&public) })
        });
        let event = sse::encode(&reply::joined(body));
        let length = event.len();
        let sent = self.send(event, events).await;
        self.recorded(if sent { ending } else { Ending::cancelled() }, length);
    }

    /// What of the outcome is shown, and how that is recorded.
    fn released(&mut self, outcome: Outcome) -> Result<(Body, Ending), UpstreamError> {
        let (reply, ending) = match outcome {
            Outcome::Result(result) => {
                let value = result.value();
                if wire::is_misspelled(value, &RESULT) {
                    let what = "the result has a member in another spelling";
                    return Err(UpstreamError::Protocol(what));
                }
                let kind = value.get("resultType").and_then(Value::as_str);
                if kind.is_some_and(|kind| kind != "complete") {
                    return Err(UpstreamError::Protocol(
                        "the server wants what it was not offered",
                    ));
                }
                let failed = value.get("isError").and_then(Value::as_bool) == Some(true);
                let outcome = if failed { Ended::ToolError } else { Ended::Answered };
                (Reply::Tool(result), Ending { outcome, ..Ending::answered() })
            }
            Outcome::Error(error) => {
                let code = error.value().get("code").and_then(Value::as_i64);
                let code = code.and_then(|code| i32::try_from(code).ok());
                let ending = Ending { outcome: Ended::ServerError, code, ..Ending::answered() };
                (Reply::Error(error), ending)
            }
        };
        let due = self.due.take().ok_or(UpstreamError::Protocol("the server answered twice"))?;
        let body = match self.gateway.policy.release(&self.caller, due, reply).into_shown() {
            Shown::Answer(Reply::Tool(result)) => reply::result(&self.id, self.era, &result),
            Shown::Answer(Reply::Error(error)) => reply::server_error(&self.id, &error),
            Shown::Answer(Reply::Tools(_)) | Shown::Tools(_) => {
                return Err(UpstreamError::Protocol("a list was released as an answer"));
            }
        };
        Ok((body, ending))
    }

    /// Closes the record. The call has happened, so what came of it is shown in any case.
    fn recorded(self, ending: Ending, bytes_out: usize) {
        let Self { gateway, server, mut entry, started, answer, cancelled, .. } = self;
        drop((answer, cancelled));
        let took = gateway.clock.instant().saturating_duration_since(started);
        gateway.metrics.upstream(server.index(), took);
        if let Some(record) = entry.record() {
            record.upstream = took;
            record.bytes_out = bytes_out;
        }
        if let Err(error) = entry.close(ending) {
            tracing::error!(error = %crate::report::Chain(&error), "a call is not on record");
        }
    }
}

/// The entry of a legacy call in the table of calls that can be cancelled.
#[derive(Debug)]
struct Cancellable(Option<(Arc<Gateway>, (SessionKey, Id), CancellationToken)>);

impl Cancellable {
    fn enter(
        gateway: &Arc<Gateway>,
        session: Option<SessionKey>,
        id: &Id,
    ) -> Result<Self, Failure> {
        let Some(session) = session else { return Ok(Self(None)) };
        let (key, token) = ((session, id.clone()), CancellationToken::new());
        match gateway.calls.insert(key.clone(), token.clone()) {
            Ok(None) => Ok(Self(Some((Arc::clone(gateway), key, token)))),
            Ok(Some(_)) => Err(Failure::Duplicate),
            Err(_) => Err(Failure::Overload),
        }
    }

    /// Resolves when the client cancels the call; never for one that cannot be cancelled so.
    async fn cancelled(&self) {
        match &self.0 {
            Some((_, _, token)) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        if let Some((gateway, key, _)) = self.0.take() {
            gateway.calls.remove(&key);
        }
    }
}

/// Work that goes on when nobody waits for it any more.
struct Detached<F: Future<Output = Response<Body>> + Send + 'static> {
    work: Option<Pin<Box<F>>>,
    tasks: crate::task::Tasks,
}

/// Runs `work` to its end, waited for or not.
pub(super) async fn detached<F>(work: F, tasks: crate::task::Tasks) -> Response<Body>
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    Detached { work: Some(Box::pin(work)), tasks }.await
}

impl<F: Future<Output = Response<Body>> + Send + 'static> Future for Detached<F> {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F: Future<Output = Response<Body>> + Send + 'static> Drop for Detached<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.tasks.spawn(async move { drop(work.await) });
        }
    }
}
