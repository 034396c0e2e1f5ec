//! The answer to a call, step by step.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use policy::json::{Fragment, Value};
use tokio::time::{Instant, timeout_at};

use super::http::{self, HttpAnswer};
use super::request::{self, Speech};
use super::stdio::StdioAnswer;
use super::{Upstream, UpstreamError};
use crate::protocol::{meta, method};
use crate::session::Leg;
use crate::wire::{Message, Outcome};

/// The answer to a call, step by step.
#[derive(Debug)]
pub struct Answer {
    pub(super) upstream: Arc<Upstream>,
    pub(super) messages: Option<Messages>,
    /// There is nothing left to cancel.
    pub(super) over: bool,
    pub(super) id: i64,
    /// How it was asked: what a cancellation has to say again.
    pub(super) leg: Option<Leg>,
    pub(super) deadline: Instant,
}

#[derive(Debug)]
pub(super) enum Messages {
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

impl Messages {
    /// The whole answer as text, where it is one message and not yet read.
    pub(super) async fn text(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Option<Bytes>, UpstreamError> {
        match self {
            Self::Http(answer) if answer.is_json() => {
                let text = timeout_at(deadline, answer.next()).await;
                text.map_err(|_late| UpstreamError::Timeout(patience))?
            }
            Self::Http(_) | Self::Stdio(_) => Ok(None),
        }
    }

    pub(super) async fn next(
        &mut self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Message, UpstreamError> {
        let until = deadline.min(Instant::now() + patience);
        let late = |_| UpstreamError::Timeout(patience);
        match self {
            Self::Http(answer) => {
                let text = timeout_at(until, answer.next()).await.map_err(late)??;
                http::read(text.ok_or(UpstreamError::Incomplete)?).await
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
                    self.over = true;
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
        if self.over {
            return;
        }
        let leg = self.leg.take();
        match self.messages.take() {
            Some(Messages::Stdio(answer)) => {
                let speech = leg.as_ref().map_or(Speech::Modern, Speech::Legacy);
                answer.process().try_notify(&request::cancelled(self.id, speech));
            }
            Some(Messages::Http(_)) | None => {
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
