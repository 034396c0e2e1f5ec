//! A client for short HTTP and gRPC requests: key sets of issuers, tokens, token introspection.
//!
//! One request and one response, each with limits of size and time; redirects are not followed, no
//! proxy is used, and the connection is subject to the egress rules (control C21).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;

use crate::net::connection::{ConnectTarget, ConnectionError};
use crate::net::egress::Egress;
use crate::stream::body::BodyCollector;

/// A URL that requests are sent to, with the limits of a request.
#[derive(Clone, Debug)]
pub struct Endpoint {
    target: ConnectTarget,
    host: HeaderValue,
    path: Uri,
    limit: usize,
    time: Duration,
}

/// The connection settings for endpoints.
#[derive(Clone, Debug)]
pub struct HttpClientSettings {
    /// The TLS configuration, which verifies the server.
    pub tls: Arc<ClientConfig>,
    /// The egress rules; `None` admits the addresses that the URL itself suggests ([`Egress::usual`]).
    pub egress: Option<Egress>,
    /// Time limit for establishing a connection.
    pub connect_timeout: Duration,
    /// Time limit for a request as a whole, connection included.
    pub time: Duration,
    /// Most bytes of a response body.
    pub limit: usize,
}

/// An HTTP response with its whole body.
#[derive(Debug)]
pub struct FetchedResponse {
    /// The HTTP status code.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    /// The whole response body.
    pub body: Bytes,
}

/// Why a request has no usable response.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server cannot be reached, or is not the expected one.
    #[error(transparent)]
    Link(#[from] ConnectionError),
    /// The time limit was exceeded.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The body exceeds the size limit.
    #[error("the answer is longer than {0} bytes")]
    Long(usize),
    /// The token to present is unavailable, or is not a valid header value.
    #[error("no token available for the request")]
    Token,
    /// The URL is not usable.
    #[error("the URL cannot be used")]
    Url,
    /// The response has an unexpected HTTP status.
    #[error("HTTP status {0}")]
    Status(u16),
    /// The response cannot be interpreted.
    #[error("the answer is not what it should be: {0}")]
    Answer(&'static str),
}

impl HttpClientSettings {
    /// The endpoint at `uri`, with these settings.
    ///
    /// # Errors
    /// When `uri` has no authority or is otherwise unusable.
    pub fn to(&self, uri: &Uri) -> Result<Endpoint, FetchError> {
        let authority = uri.authority().ok_or(FetchError::Url)?;
        let host =
            HeaderValue::from_str(authority.as_str()).map_err(|_unusable| FetchError::Url)?;
        let egress = self.egress.clone();
        let egress = egress.unwrap_or_else(|| Egress::usual(uri.host().unwrap_or_default()));
        let target =
            ConnectTarget::new(uri, egress, Some(Arc::clone(&self.tls)), self.connect_timeout)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.parse().map_err(|_unusable| FetchError::Url)?;
        Ok(Endpoint { target, host, path, limit: self.limit, time: self.time })
    }
}

impl Endpoint {
    /// The time limit of a request.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// When there is no response. A response of any status is one.
    pub async fn get(&self) -> Result<FetchedResponse, FetchError> {
        self.send(Method::GET, HeaderMap::new(), Bytes::new()).await
    }

    /// Sends a request with this method, these headers and this body.
    ///
    /// # Errors
    /// When there is no response. A response of any status is one.
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<FetchedResponse, FetchError> {
        let asked = tokio::time::timeout(self.time, self.exchange(method, headers, body)).await;
        asked.unwrap_or(Err(FetchError::Late(self.time)))
    }

    /// Calls a unary gRPC method whose result is ignored.
    ///
    /// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>
    ///
    /// # Errors
    /// When the call fails or has another status than OK.
    pub async fn call(
        &self,
        method: &str,
        headers: HeaderMap,
        message: &[u8],
    ) -> Result<(), FetchError> {
        let called = tokio::time::timeout(self.time, self.unary(method, headers, message)).await;
        called.unwrap_or(Err(FetchError::Late(self.time)))
    }

    async fn unary(
        &self,
        method: &str,
        headers: HeaderMap,
        message: &[u8],
    ) -> Result<(), FetchError> {
        let length =
            u32::try_from(message.len()).map_err(|_long| FetchError::Long(message.len()))?;
        let body = [&[0], &length.to_be_bytes()[..], message].concat();
        let scheme = if self.target.is_secure() { "https" } else { "http" };
        let authority = self.host.to_str().map_err(|_unusable| FetchError::Url)?;
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        let uri = format!("{scheme}://{authority}{method}");
        *request.uri_mut() = uri.parse().map_err(|_unusable| FetchError::Url)?;
        let map = request.headers_mut();
        map.extend(headers);
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        map.insert(TE, HeaderValue::from_static("trailers"));
        let stream = TokioIo::new(self.target.stream().await?);
        let shaken = http2::handshake(TokioExecutor::new(), stream).await;
        let (mut sender, connection) = shaken.map_err(ConnectionError::from)?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(ConnectionError::from)?;
            let (head, body) = response.into_parts();
            let collected = Limited::new(body, self.limit).collect().await;
            let collected = collected.map_err(|_broken| FetchError::Answer("it broke off"))?;
            // A response without a message has its status in the headers (trailers-only).
            let trailers = collected.trailers().and_then(|trailers| trailers.get("grpc-status"));
            let status = trailers.or_else(|| head.headers.get("grpc-status")).cloned();
            match status.as_ref().map(HeaderValue::as_bytes) {
                Some(b"0") => Ok(()),
                Some(_) => Err(FetchError::Answer("gRPC refuses it")),
                None => Err(FetchError::Status(head.status.as_u16())),
            }
        };
        tokio::select! {
            done = exchange => done,
            broken = connection => match broken {
                Err(error) => Err(ConnectionError::from(error).into()),
                Ok(()) => Err(FetchError::Answer("the connection was closed")),
            },
        }
    }

    async fn exchange(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<FetchedResponse, FetchError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.path.clone();
        let map = request.headers_mut();
        map.extend(headers);
        map.insert(HOST, self.host.clone());
        map.insert(ACCEPT, HeaderValue::from_static("application/json"));
        map.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        map.insert(CONNECTION, HeaderValue::from_static("close"));
        let agent = concat!("portcullis/", env!("CARGO_PKG_VERSION"));
        map.insert(USER_AGENT, HeaderValue::from_static(agent));
        let mut link = self.target.connect().await?;
        let (head, mut body) = link.send(request).await?.into_parts();
        let long = |_| FetchError::Long(self.limit);
        let mut pieces = BodyCollector::expecting(body.expected(), self.limit).map_err(long)?;
        while let Some(frame) = link.frame(&mut body).await {
            if let Ok(piece) = frame?.into_data() {
                pieces.push(piece).map_err(long)?;
            }
        }
        Ok(FetchedResponse {
            status: head.status,
            headers: head.headers,
            body: pieces.take().joined(),
        })
    }
}

impl FetchedResponse {
    /// This response, if its status is 200.
    ///
    /// # Errors
    /// [`FetchError::Status`] for any other status.
    pub fn good(self) -> Result<Self, FetchError> {
        match self.status {
            StatusCode::OK => Ok(self),
            status => Err(FetchError::Status(status.as_u16())),
        }
    }

    /// The `max-age` of the response; `None` if it has none.
    ///
    /// RFC 9111, section 5.2.2.1
    #[must_use]
    pub fn max_age(&self) -> Option<Duration> {
        let control = self.headers.get(http::header::CACHE_CONTROL)?.to_str().ok()?;
        let age = control.split(',').find_map(|part| part.trim().strip_prefix("max-age="));
        age.and_then(|age| age.parse().ok()).map(Duration::from_secs)
    }
}
