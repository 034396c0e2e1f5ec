//! Why an HTTP request cannot carry a message of the protocol. Clients of every era see these as HTTP errors.

use http::StatusCode;

use super::PublicError;
use crate::mcp::protocol::code;

/// Why an HTTP request cannot carry a message.
#[derive(Debug, thiserror::Error)]
pub enum HttpFailure {
    /// The Host header names none of the listener's hosts.
    #[error("the host is not one of this listener's")]
    Host,
    /// The Origin header names an origin that is not allowed.
    #[error("the origin may not call this listener")]
    Origin,
    /// The request asks for an upgrade, CONNECT or HTTP/1.0.
    #[error("the connection is not upgraded")]
    Upgrade,
    /// The HTTP method is not POST, GET or DELETE, or is not supported at this path.
    #[error("the HTTP method is not offered")]
    Verb,
    /// The length of the body is given twice, or in a way that is not understood.
    #[error("the request is framed ambiguously")]
    Framing,
    /// The head of the request is not valid HTTP/1.1, so that nothing else is known of the request.
    #[error("the head of the request cannot be read")]
    Head,
    /// The head of the request is too long, or has too many fields; nothing else is known of the request.
    #[error("the head of the request is too long")]
    LongHead,
    /// The content type is not JSON, or the body is compressed.
    #[error("the content type or encoding is not accepted")]
    MediaType,
    /// The client does not accept both JSON and event streams.
    #[error("the client does not accept JSON and event streams")]
    Accept,
    /// The request has passed this gateway before.
    #[error("the gateway is behind itself")]
    Loop,
    /// The request has passed more gateways than `limits.hops`.
    #[error("the request has passed too many gateways")]
    Hops,
    /// The body is longer than this many bytes.
    #[error("the body is longer than {0} bytes")]
    BodyLength(usize),
    /// The body did not arrive in time.
    #[error("the body did not come in time")]
    BodyTime,
    /// The connection broke before the body was complete.
    #[error("the body did not come whole")]
    BodyBroken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl HttpFailure {
    /// The stable reason code for audit records; `docs/reasons.md` documents each.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Host => "host-not-allowed",
            Self::Origin => "origin-not-allowed",
            Self::Upgrade => "upgrade-not-supported",
            Self::Verb => "http-method",
            Self::Framing => "ambiguous-framing",
            Self::Head | Self::LongHead => "malformed-request",
            Self::MediaType => "media-type",
            Self::Accept => "not-acceptable",
            Self::Loop => "gateway-loop",
            Self::Hops => "gateway-hops",
            Self::BodyLength(_) => "body-length",
            Self::BodyTime => "body-time",
            Self::BodyBroken(_) => "body-broken",
        }
    }

    /// Whether the body is unread and can be drained, so that the connection stays usable after the response.
    pub(super) const fn comes_before_the_body(&self) -> bool {
        match self {
            Self::BodyLength(_)
            | Self::BodyTime
            | Self::BodyBroken(_)
            | Self::Framing
            | Self::Head
            | Self::LongHead => false,
            Self::Host
            | Self::Origin
            | Self::Upgrade
            | Self::Verb
            | Self::MediaType
            | Self::Accept
            | Self::Loop
            | Self::Hops => true,
        }
    }

    /// The error as the client sees it.
    pub(super) fn told(&self) -> PublicError {
        let plain = |status, message: &str| PublicError::new(status, code::REQUEST, message);
        let shape = |message: &str| plain(StatusCode::BAD_REQUEST, message);
        match self {
            Self::Host => {
                plain(StatusCode::MISDIRECTED_REQUEST, "this listener does not answer to that host")
            }
            Self::Origin => plain(StatusCode::FORBIDDEN, "this origin may not call this listener"),
            Self::Upgrade => shape("connections are not upgraded"),
            Self::Verb => plain(StatusCode::METHOD_NOT_ALLOWED, "send messages with POST"),
            Self::Framing => {
                shape("send one `Content-Length`, or one `Transfer-Encoding: chunked`")
            }
            Self::Head => shape("the head of the request is not valid HTTP/1.1"),
            Self::LongHead => plain(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the head of the request is too long, or has too many fields",
            ),
            Self::MediaType => plain(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "send `Content-Type: application/json` in UTF-8, not compressed",
            ),
            Self::Accept => plain(
                StatusCode::NOT_ACCEPTABLE,
                "send `Accept: application/json, text/event-stream`",
            ),
            Self::Loop => plain(
                StatusCode::LOOP_DETECTED,
                "the request has passed this gateway before; correct the URL of a server",
            ),
            Self::Hops => plain(
                StatusCode::LOOP_DETECTED,
                "the request has passed more gateways than `limits.hops`",
            ),
            Self::BodyLength(limit) => plain(
                StatusCode::PAYLOAD_TOO_LARGE,
                &format!("the body is longer than {limit} bytes"),
            ),
            Self::BodyTime => plain(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
            Self::BodyBroken(_) => shape("the body did not come whole"),
        }
    }
}
