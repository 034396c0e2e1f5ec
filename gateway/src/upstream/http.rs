//! A server that speaks Streamable HTTP.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use policy::json::Bounds;
use rustls::ClientConfig;

use super::error::UpstreamError;
use super::link::{Link, Target};
use super::request::Outgoing;
use crate::body::Pieces;
use crate::protocol::{Era, header};
use crate::settings::Limits;
use crate::sse;
use crate::task;
use crate::wire::{self, Message, headers};

/// Most connections to one server that each worker keeps without using them.
const KEPT: usize = 256;

/// A server at a URL.
#[derive(Debug)]
pub(super) struct Http {
    target: Target,
    path: Uri,
    /// Headers every request has.
    base: HeaderMap,
    /// Connections that wait to be used again, by worker: a connection belongs to the scheduler it
    /// was made under.
    idle: Vec<Arc<ArrayQueue<Link>>>,
    limits: Limits,
}

/// What a server answers with, message by message.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    link: Option<Link>,
    idle: Arc<ArrayQueue<Link>>,
    body: Incoming,
    content: Content,
    limit: usize,
    /// The session id in the head of the answer.
    pub(super) session: Option<Box<str>>,
}

#[derive(Debug)]
enum Content {
    /// One message.
    Json,
    /// Events; those that have come and were not asked for yet wait here.
    Events(sse::Decoder, std::collections::VecDeque<Bytes>),
    /// Read to its end.
    Over,
}

impl Http {
    pub(super) fn new(
        uri: &Uri,
        tls: &Arc<ClientConfig>,
        limits: Limits,
    ) -> Result<Self, UpstreamError> {
        let invalid = UpstreamError::Protocol("the URL cannot be used");
        let host = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let host = HeaderValue::from_str(host)
            .map_err(|_unusable| UpstreamError::Protocol("the host cannot be used"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let base = HeaderMap::from_iter([
            (HOST, host),
            (
                USER_AGENT,
                HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION"))),
            ),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            // A compressed answer would have to be unpacked to be looked at.
            (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        ]);
        Ok(Self {
            target: Target::new(uri, tls, limits.connect_time)?,
            path: path.parse().map_err(|_unusable| invalid)?,
            base,
            idle: (0..task::places()).map(|_| Arc::new(ArrayQueue::new(KEPT))).collect(),
            limits,
        })
    }

    /// Sends a request and reads the head of the answer.
    pub(super) async fn send(&self, outgoing: &Outgoing<'_>) -> Result<HttpAnswer, UpstreamError> {
        let (link, response) = self.exchange(Method::POST, outgoing).await?;
        let (head, body) = response.into_parts();
        let session = head.headers.get(header::SESSION).and_then(|id| id.to_str().ok());
        let session = session.filter(|id| id.len() <= 1024).map(Into::into);
        let content = self.content(&head.headers);
        let answer = |content| HttpAnswer {
            link: Some(link),
            idle: self.idle(),
            body,
            content,
            limit: self.limits.response_body,
            session,
        };
        match (head.status, content) {
            (StatusCode::OK, Some(content)) => Ok(answer(content)),
            (StatusCode::OK, None) => Err(UpstreamError::ContentType),
            (StatusCode::NOT_FOUND, _) if outgoing.session.is_some() => {
                Err(UpstreamError::SessionGone)
            }
            // A modern server gives errors a status of their own.
            (StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND, Some(Content::Json))
                if outgoing.version.era() == Era::Modern =>
            {
                Ok(answer(Content::Json))
            }
            (status, _) => Err(UpstreamError::Status(status.as_u16())),
        }
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, outgoing: &Outgoing<'_>) -> Result<(), UpstreamError> {
        let (mut link, response) = self.exchange(Method::POST, outgoing).await?;
        let status = response.status();
        let mut body = response.into_body();
        if body.is_end_stream() || link.frame(&mut body).await.is_none() {
            give_back(&self.idle(), link).await;
        }
        if status.is_success() { Ok(()) } else { Err(UpstreamError::Status(status.as_u16())) }
    }

    /// Ends a legacy session.
    pub(super) async fn end(&self, outgoing: &Outgoing<'_>) -> Result<(), UpstreamError> {
        self.exchange(Method::DELETE, outgoing).await.map(|_| ())
    }

    async fn exchange(
        &self,
        method: Method,
        outgoing: &Outgoing<'_>,
    ) -> Result<(Link, Response<Incoming>), UpstreamError> {
        let mut link = self.link().await?;
        let response = link.send(self.request(method, outgoing)).await?;
        Ok((link, response))
    }

    fn idle(&self) -> Arc<ArrayQueue<Link>> {
        self.idle.get(task::place()).cloned().unwrap_or_else(|| Arc::new(ArrayQueue::new(1)))
    }

    async fn link(&self) -> Result<Link, UpstreamError> {
        let idle = self.idle();
        while let Some(mut link) = idle.pop() {
            if link.is_usable().await {
                return Ok(link);
            }
        }
        self.target.connect().await
    }

    fn request(&self, method: Method, outgoing: &Outgoing<'_>) -> Request<Full<Bytes>> {
        let body = if method == Method::POST { outgoing.body.clone() } else { Bytes::new() };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.path.clone();
        let map = request.headers_mut();
        map.clone_from(&self.base);
        let version = HeaderValue::from_static(outgoing.version.as_str());
        match outgoing.version.era() {
            Era::Modern => {
                map.insert(header::VERSION, version);
                map.insert(header::METHOD, HeaderValue::from_static(outgoing.method));
                if let Some(name) = outgoing.name {
                    map.insert(header::NAME, headers::encode(name));
                }
            }
            Era::Legacy => {
                // The handshake itself has no version header: it is about to be agreed on.
                if outgoing.method != crate::protocol::method::INITIALIZE {
                    map.insert(header::VERSION, version);
                }
                let session = outgoing.session.and_then(|id| HeaderValue::from_str(id).ok());
                if let Some(session) = session {
                    map.insert(header::SESSION, session);
                }
            }
        }
        request
    }

    fn content(&self, headers: &HeaderMap) -> Option<Content> {
        if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return None;
        }
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        match kind.split(';').next()?.trim() {
            kind if kind.eq_ignore_ascii_case("application/json") => Some(Content::Json),
            kind if kind.eq_ignore_ascii_case("text/event-stream") => {
                let decoder = sse::Decoder::new(self.limits.response_body);
                Some(Content::Events(decoder, std::collections::VecDeque::new()))
            }
            _ => None,
        }
    }
}

impl HttpAnswer {
    /// The bytes of the next message; `None` when there is none left.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        let Some(link) = &mut self.link else { return Ok(None) };
        match &mut self.content {
            Content::Over => Ok(None),
            Content::Json => {
                let text = collect(link, &mut self.body, self.limit).await?;
                self.content = Content::Over;
                self.release().await;
                Ok(Some(text))
            }
            Content::Events(decoder, waiting) => {
                while waiting.is_empty() {
                    let Some(frame) = link.frame(&mut self.body).await else {
                        self.content = Content::Over;
                        self.release().await;
                        return Ok(None);
                    };
                    let Ok(data) = frame?.into_data() else { continue };
                    let fed = decoder.feed(&data, |event| waiting.push_back(event));
                    fed.map_err(|_long| UpstreamError::TooLong(self.limit))?;
                    waiting.retain(|event| !event.is_empty());
                }
                Ok(waiting.pop_front())
            }
        }
    }

    /// Waits for the stream to end, as it should after the answer, so that the connection can be
    /// used again. A server that does not end it loses the connection.
    pub(super) async fn finish(mut self) {
        const SOON: std::time::Duration = std::time::Duration::from_secs(1);
        let Some(link) = &mut self.link else { return };
        let rest = tokio::time::timeout(SOON, link.frame(&mut self.body)).await;
        if matches!(rest, Ok(None)) {
            self.release().await;
        }
    }

    /// Whether it is one message that was not read yet.
    pub(super) const fn is_json(&self) -> bool {
        matches!(self.content, Content::Json)
    }

    /// Whether all of it was read.
    pub(super) const fn is_over(&self) -> bool {
        self.link.is_none()
    }

    async fn release(&mut self) {
        if let Some(link) = self.link.take() {
            give_back(&self.idle, link).await;
        }
    }
}

async fn give_back(idle: &ArrayQueue<Link>, mut link: Link) {
    link.rest();
    if link.is_usable().await {
        // With enough connections kept already this one is closed.
        drop(idle.push(link));
    }
}

async fn collect(
    link: &mut Link,
    body: &mut Incoming,
    limit: usize,
) -> Result<Bytes, UpstreamError> {
    let too_long = |_| UpstreamError::TooLong(limit);
    let mut pieces = Pieces::expecting(body.size_hint().lower(), limit).map_err(too_long)?;
    while let Some(frame) = link.frame(body).await {
        if let Ok(piece) = frame?.into_data() {
            pieces.push(piece).map_err(too_long)?;
        }
    }
    Ok(pieces.whole())
}

/// Reads a message of a server.
pub(super) async fn read(text: Bytes) -> Result<Message, UpstreamError> {
    wire::decode_any(text, &Bounds::ANSWER).await.map_err(UpstreamError::Message)
}
