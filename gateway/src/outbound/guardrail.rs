//! Somebody outside who is asked whether something may pass (control C13).
//!
//! It is asked last: about what the policy permits, as it would be sent or shown. Its answer can only
//! take away. What it does not answer in time is decided by what the configuration says; what is too
//! long to be asked about does not pass, because a peer decides how long a message is.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use policy::inspect::{Detector, Finding};
use policy::json::{Bounds, Document, Value};

use crate::config::settings::{Failing, Guardrail as Settings};
use crate::mcp::wire::Object;
use crate::net::http_client::{Endpoint, FetchError};
use crate::outbound::environment::{World, WorldError};
use crate::outbound::secrets::LiveSecret;

/// Longest answer, in bytes.
const ANSWER: usize = 64 * 1024;
/// Longest reason that is recorded, in characters.
const REASON: usize = 200;

/// Somebody who is asked.
#[derive(Debug)]
pub struct Guardrail {
    name: Box<str>,
    endpoint: Endpoint,
    token: Option<Arc<LiveSecret>>,
    on_failure: Failing,
    most: usize,
    arguments: bool,
    results: bool,
}

/// What sort of thing a guardrail is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What a client says of itself.
    Client,
    /// What a client asks for.
    Request,
    /// What a client answers to what a server asked.
    Answers,
    /// What a server answers.
    Result,
}

impl Part {
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

/// What about.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What sort of thing it is.
    pub part: Part,
    /// The path.
    pub route: &'a str,
    /// The server.
    pub server: &'a str,
    /// What is used of it, as it calls it.
    pub name: &'a str,
    /// The caller.
    pub principal: &'a str,
    /// What would be sent or shown.
    pub value: Value<'a>,
    /// What else the caller chose, as the members of a JSON object without its braces; often nothing.
    pub beside: &'a str,
}

impl Guardrail {
    /// One that can be asked.
    ///
    /// # Errors
    /// When its token or the authorities of its certificate cannot be read.
    pub fn new(settings: &Settings, world: &World) -> Result<Self, WorldError> {
        let mut ways = world.ways(&settings.place.way, None)?;
        (ways.time, ways.limit) = (settings.deadline, ANSWER);
        ways.connect_time = ways.connect_time.min(settings.deadline);
        let endpoint = ways.to(&settings.place.url)?;
        let token = settings.token.as_ref().map(|token| world.bearer(token)).transpose()?;
        Ok(Self {
            name: settings.name.clone(),
            endpoint,
            token,
            on_failure: settings.on_failure,
            most: settings.most,
            arguments: settings.arguments,
            results: settings.results,
        })
    }

    /// Whether it says something about this.
    #[must_use]
    pub const fn judges(&self, part: Part) -> bool {
        match part {
            Part::Client | Part::Request | Part::Answers => self.arguments,
            Part::Result => self.results,
        }
    }

    /// Asks. Nothing, or what is to be recorded although it may pass.
    ///
    /// # Errors
    /// Why it may not pass.
    pub async fn ask(&self, question: Question<'_>) -> Result<Option<Finding>, Finding> {
        let length = question.value.raw().len() + question.beside.len();
        if length > self.most {
            tracing::warn!(
                guardrail = &*self.name,
                length,
                most = self.most,
                "a message is longer than a guardrail is asked about"
            );
            return Err(self.finding("cannot be asked: the message is too long"));
        }
        match self.verdict(question).await {
            Ok(None) => Ok(None),
            Ok(Some(reason)) => Err(self.finding(&format!("denies: {reason}"))),
            Err(error) => {
                tracing::warn!(guardrail = &*self.name, error = %crate::base::error_chain::Chain(&error), "a guardrail gave no answer");
                let finding = self.finding("gave no answer");
                match self.on_failure {
                    Failing::Deny => Err(finding),
                    Failing::Allow => Ok(Some(finding)),
                }
            }
        }
    }

    fn finding(&self, what: &str) -> Finding {
        let note = Cow::Owned(format!("`{}` {what}", self.name));
        Finding { detector: Detector::Guardrail, at: String::new(), note }
    }

    /// `None` where it says that it may pass, and otherwise why not.
    async fn verdict(&self, question: Question<'_>) -> Result<Option<String>, FetchError> {
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
        let answer = Document::parse(fetched.body, &Bounds::MESSAGE)
            .map_err(|_error| FetchError::Answer("not JSON"))?;
        let said = |name| answer.root().get(name).and_then(Value::as_str);
        match said("verdict").as_deref() {
            Some("allow") => Ok(None),
            Some("deny") => {
                let reason = said("reason").unwrap_or(Cow::Borrowed("no reason given"));
                Ok(Some(reason.chars().filter(|c| !c.is_control()).take(REASON).collect()))
            }
            _ => Err(FetchError::Answer("the verdict is neither `allow` nor `deny`")),
        }
    }
}
