//! Client of an external guardrail, which decides whether a message may pass (control C13).
//!
//! Guardrails are asked last, about messages that the policy permits, in the form in which they would be sent or
//! shown. A guardrail can only deny. If it does not answer in time, the configuration decides; a message that is too
//! long for it is denied, because a peer controls the length.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use detection::inspect::{Detector, Finding};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use json::{Document, JsonBounds, Value};
use tokio::time::{Instant, timeout};

use crate::base::log_limit::LogLimit;
use crate::base::turns::Turns;
use crate::config::settings::{GuardrailFailure, GuardrailSettings as Settings};
use crate::mcp::wire::Object;
use crate::net::http_client::{Endpoint, FetchError};
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::secrets::LiveSecret;

/// The maximum length of an answer, in bytes.
const ANSWER: usize = 64 * 1024;
/// The maximum length of a recorded reason, in characters.
pub const REASON: usize = 200;
/// Characters of a reason in which secrets are looked for before it is cut to [`REASON`].
const READ: usize = 4096;

/// Limits the log lines about questions that waited too long for their turn.
static BUSY: LogLimit = LogLimit::new(1, 5);

/// The client of one external guardrail.
#[derive(Debug)]
pub struct GuardrailClient {
    name: Box<str>,
    endpoint: Endpoint,
    token: Option<Arc<LiveSecret>>,
    on_failure: GuardrailFailure,
    most: usize,
    arguments: bool,
    results: bool,
    turns: Turns,
    /// How long a question waits for its turn.
    patience: Duration,
}

/// The kind of message that a guardrail is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedPart {
    /// The name and capabilities of a client.
    Client,
    /// The request of a client.
    Request,
    /// The responses of a client to a server's requests for input.
    Answers,
    /// The result of a server.
    Result,
}

impl GuardedPart {
    const fn direction(self) -> &'static str {
        match self {
            Self::Client | Self::Request | Self::Answers => "arguments",
            Self::Result => "result",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Request => "request",
            Self::Answers => "answers",
            Self::Result => "result",
        }
    }
}

/// A message that a guardrail is asked about, with its context.
#[derive(Clone, Copy, Debug)]
pub struct GuardrailRequest<'a> {
    /// The kind of message.
    pub part: GuardedPart,
    /// The path of the route.
    pub route: &'a str,
    /// The name of the upstream server.
    pub server: &'a str,
    /// The name of the tool, prompt or resource at its server.
    pub name: &'a str,
    /// The id of the principal.
    pub principal: &'a str,
    /// The value that would be sent or shown.
    pub value: Value<'a>,
    /// Further input of the caller, as the members of a JSON object without its braces; may be empty.
    pub beside: &'a str,
}

/// Proof that the guardrail check of a request is done: passed, skipped, or failed open. [`Cleared`] takes it.
///
/// [`Cleared`]: crate::upstream::Cleared
#[derive(Debug)]
#[must_use = "a request that guardrails have judged is sent or refused"]
pub struct GuardrailsPassed(());

impl GuardrailsPassed {
    /// For a route without guardrails, and for a request that holds nothing its caller chose.
    pub const fn nothing_to_judge() -> Self {
        Self(())
    }
}

/// Asks the guardrails that judge this part of a message, one after the other. Returns the findings of those that gave
/// no answer and let it pass all the same.
///
/// # Errors
/// The finding of the first guardrail that denies, and those before it.
pub async fn ask_all(
    guardrails: &[GuardrailClient],
    question: GuardrailRequest<'_>,
) -> Result<(GuardrailsPassed, Vec<Finding>), (Finding, Vec<Finding>)> {
    let mut found = Vec::new();
    for guardrail in guardrails.iter().filter(|one| one.judges(question.part)) {
        match guardrail.ask(question).await {
            Ok(noted) => found.extend(noted),
            Err(finding) => {
                found.push(finding.clone());
                return Err((finding, found));
            }
        }
    }
    Ok((GuardrailsPassed(()), found))
}

impl GuardrailClient {
    /// A guardrail with these settings.
    ///
    /// # Errors
    /// If its token or the authorities for its certificate cannot be read.
    pub fn new(settings: &Settings, environment: &Environment) -> Result<Self, EnvironmentError> {
        let mut ways = environment.ways(&settings.place.way, None)?;
        (ways.time, ways.limit) = (settings.deadline, ANSWER);
        ways.connect_timeout = ways.connect_timeout.min(settings.deadline);
        let endpoint = ways.to(&settings.place.url)?;
        let token = settings.token.as_ref().map(|token| environment.bearer(token)).transpose()?;
        Ok(Self {
            name: settings.name.clone(),
            endpoint,
            token,
            on_failure: settings.on_failure,
            most: settings.most,
            arguments: settings.arguments,
            results: settings.results,
            turns: Turns::new(settings.concurrent, settings.concurrent_per_caller),
            patience: settings.deadline,
        })
    }

    /// Whether this guardrail is asked about such messages.
    #[must_use]
    pub const fn judges(&self, part: GuardedPart) -> bool {
        match part {
            GuardedPart::Client | GuardedPart::Request | GuardedPart::Answers => self.arguments,
            GuardedPart::Result => self.results,
        }
    }

    /// Asks about a message. Returns `None` if it may pass, or a finding to record although it may pass.
    ///
    /// # Errors
    /// The finding for which it must not pass.
    pub async fn ask(&self, question: GuardrailRequest<'_>) -> Result<Option<Finding>, Finding> {
        let length = question.value.raw().len() + question.beside.len();
        if length > self.most {
            tracing::warn!(
                event = "guardrail.message_too_long",
                guardrail = &*self.name,
                length,
                most = self.most,
                "the message is longer than the guardrail accepts"
            );
            return Err(self.finding("cannot be asked: the message is too long"));
        }
        // Denied even with `onFailure: allow`, because a peer controls how much it asks at once.
        let turn = timeout(self.patience, self.turns.take(question.principal)).await;
        let Ok(Some(_turn)) = turn else {
            if let Some(suppressed) = BUSY.allow(Instant::now().into_std()) {
                tracing::warn!(
                    event = "guardrail.busy",
                    guardrail = &*self.name,
                    suppressed,
                    "a question to the guardrail waited too long for its turn"
                );
            }
            return Err(self.finding("cannot be asked: too many questions to it wait"));
        };
        match self.verdict(question).await {
            Ok(None) => Ok(None),
            Ok(Some(reason)) => Err(self.finding(&format!("denies: {reason}"))),
            Err(error) => {
                tracing::warn!(
                    event = "guardrail.failed", guardrail = &*self.name,
                    error = %crate::base::error_chain::ErrorChain(&error),
                    "the guardrail gave no verdict"
                );
                let finding = self.finding("gave no answer");
                match self.on_failure {
                    GuardrailFailure::Deny => Err(finding),
                    GuardrailFailure::Allow => Ok(Some(finding)),
                }
            }
        }
    }

    fn finding(&self, what: &str) -> Finding {
        let note = Cow::Owned(format!("`{}` {what}", self.name));
        Finding::new(Detector::Guardrail, String::new(), note)
    }

    /// Sends the question; `None` if the guardrail allows the message, and otherwise its reason.
    async fn verdict(&self, question: GuardrailRequest<'_>) -> Result<Option<String>, FetchError> {
        let value = question.value.raw();
        let mut body = Vec::with_capacity(value.len() + question.beside.len() + 256);
        let mut object = Object::open(&mut body);
        object.text("direction", question.part.direction());
        object.text("part", question.part.as_str());
        object.text("route", question.route);
        object.text("server", question.server);
        object.text("tool", question.name);
        object.text("principal", question.principal);
        object.raw("value", value);
        if !question.beside.is_empty() {
            object.raw("beside", &format!("{{{}}}", question.beside));
        }
        object.close();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.bearer().ok_or(FetchError::Token)?);
        }
        let fetched = self.endpoint.send(Method::POST, headers, Bytes::from(body)).await?;
        if fetched.status != StatusCode::OK {
            return Err(FetchError::Status(fetched.status.as_u16()));
        }
        let answer = Document::parse(fetched.body, &JsonBounds::MESSAGE)
            .map_err(|_error| FetchError::Answer("not JSON"))?;
        let said = |name| answer.root().get(name).and_then(Value::as_str);
        match said("verdict").as_deref() {
            Some("allow") => Ok(None),
            Some("deny") => {
                let reason = said("reason").unwrap_or(Cow::Borrowed("no reason given"));
                Ok(Some(reason.chars().filter(|c| !c.is_control()).take(READ).collect()))
            }
            _ => Err(FetchError::Answer("the verdict is neither `allow` nor `deny`")),
        }
    }
}
