//! The reasons why a request to an upstream server fails.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use detection::content::without_values;
use http::header::{LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode, Uri};
use policy::definition::offer::ReadOnlyHint;
use policy::engine::ask::{Refusal, RefusalReason};
use policy_core::subject::scope;

use super::credential::CredentialError;
use crate::base::share::ShareError;
use crate::mcp::wire::{DecodeError, FromServerError};
use crate::net::connection::ConnectionError;
use crate::outbound::environment::EnvironmentError;

/// The longest URL of a redirect that is shown whole, in bytes.
const SHOWN: usize = 256;

/// Why a request to an upstream server failed.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// A concurrent request for the same purpose failed with this code.
    #[error("the server failed for another request a moment ago")]
    SharedFailure(&'static str),
    /// The circuit breaker is open after too many failures in a row; the server is tried again after this time.
    #[error("the server keeps failing; it is asked again in {0:?}")]
    CircuitOpen(Duration),
    /// The server is not the one that was approved.
    #[error("the server is not the one that was approved")]
    IdentityMismatch,
    /// The server is revoked: nothing is sent to it (control C32).
    #[error("the server is revoked")]
    Revoked,
    /// The connection could not be made or was lost.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// A secret or file that the request needs cannot be read.
    #[error(transparent)]
    Environment(EnvironmentError),
    /// No credential for the server could be obtained.
    #[error("there is no credential for the server")]
    Credential(#[source] CredentialError),
    /// The server does not accept the credential, with this HTTP status.
    #[error("the server does not accept our credential: HTTP status {0}")]
    Unauthorized(u16),
    /// Like [`Self::Unauthorized`], and the server requests scopes that permit writing.
    #[error("the server wants a credential with scopes that write: HTTP status {0}")]
    WriteScopes(u16),
    /// The program could not be started.
    #[error("could not start the program")]
    Start(#[source] io::Error),
    /// The program has ended.
    #[error("the program has ended")]
    Exited,
    /// The program keeps ending soon after its start; it may be started again after this time.
    #[error("the program keeps ending; it is started again in {0:?}")]
    Backoff(Duration),
    /// The program does not read its input.
    #[error("the request queue of the program is full: it does not read its input")]
    Stalled,
    /// Too many bytes wait to be sent to the server: of this caller, or in total.
    #[error("too many bytes wait to be sent to the server")]
    SendQueueFull(#[source] ShareError),
    /// The server did not answer within this time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer ended before it was complete.
    #[error("the answer ended early")]
    Incomplete,
    /// The HTTP status of a response without an MCP message.
    #[error("HTTP status {0}")]
    Status(u16),
    /// A redirect, with its status and target. Not followed, because the request and its credential are meant for the
    /// configured URL.
    #[error(
        "HTTP status {0}: a redirect to `{1}`, which is not followed; if that is right, set `url` to it"
    )]
    Redirect(u16, Box<str>),
    /// The answer is neither JSON nor an SSE stream, or is compressed.
    #[error("the answer has an unexpected content type or encoding")]
    ContentType,
    /// The answer is longer than this many bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The answer is not a valid JSON-RPC message.
    #[error("the answer is not a message")]
    Message(#[source] DecodeError),
    /// The message violates the protocol.
    #[error("{0}")]
    Protocol(&'static str),
    /// The server answered a list with this JSON-RPC error code. Its message is not repeated: the server chose it.
    #[error("the server answered the list with the error {0}")]
    ListError(i64),
    /// Too many bytes of answers are in memory: of this server, of this caller, or in total.
    #[error("response memory limit reached (`limits.responseMemory`)")]
    Memory(#[source] ShareError),
    /// No process of the server is free for this caller.
    #[error("no process of the server is free for this caller")]
    Processes(#[source] ShareError),
    /// There are too many sessions with the server.
    #[error("session limit reached")]
    SessionLimit,
    /// The server refused `initialize`, `subscriptions/listen` or `resources/subscribe`.
    #[error("the server refused the handshake")]
    Refused,
    /// The server no longer knows the session.
    #[error("the session with the server is gone")]
    SessionGone,
}

impl From<FromServerError> for UpstreamError {
    fn from(error: FromServerError) -> Self {
        match error {
            FromServerError::Decode(error) => Self::Message(error),
            FromServerError::Memory { none, .. } => Self::Memory(none),
        }
    }
}

impl UpstreamError {
    /// The code of [`Self::CircuitOpen`], which [`Self::SharedFailure`] may also carry.
    const CIRCUIT_OPEN: &'static str = "circuit-open";
    /// The server keeps sending lines without a message.
    pub(super) const BLANK: Self =
        Self::Protocol("the server sends too many lines that carry no message");

    /// The error for a status 401 or 403 with these headers. The scopes that the server requests are never requested
    /// from an authorization server, because the scopes of a credential are configured.
    pub(super) fn unauthorized(status: StatusCode, headers: &HeaderMap) -> Self {
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut scopes =
            challenges.filter_map(|one| one.to_str().ok()).flat_map(scope::of_challenge);
        if scopes.any(|one| scope::writes(&one)) {
            Self::WriteScopes(status.as_u16())
        } else {
            Self::Unauthorized(status.as_u16())
        }
    }

    /// The refusal if the server requests write scopes for a call of a tool with this read-only hint; otherwise
    /// `None`.
    #[must_use]
    pub const fn wanted_of(&self, hint: ReadOnlyHint) -> Option<Refusal> {
        match (self, hint) {
            (Self::WriteScopes(_), ReadOnlyHint::Claimed) => {
                Some(Refusal { reason: RefusalReason::WriteScope, at: "" })
            }
            _ => None,
        }
    }

    /// The error for an HTTP status without an MCP message, of a server at `base`, with the target of a redirect.
    pub(super) fn status(status: StatusCode, headers: &HeaderMap, base: &Uri) -> Self {
        let to = headers.get(LOCATION).filter(|_| status.is_redirection());
        let to = to.and_then(|to| target(to.to_str().ok()?, base));
        to.map_or(Self::Status(status.as_u16()), |to| Self::Redirect(status.as_u16(), to))
    }

    /// Whether the circuit breaker of the server is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.code() == Self::CIRCUIT_OPEN
    }

    /// Whether the server is not the one that was approved.
    #[must_use]
    pub fn is_identity_mismatch(&self) -> bool {
        self.code() == Self::IdentityMismatch.code()
    }

    /// The stable code for audit records; `docs/reasons.md` describes each.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SharedFailure(code) => code,
            Self::CircuitOpen(_) => Self::CIRCUIT_OPEN,
            Self::IdentityMismatch => "server-identity",
            Self::Revoked => "revoked",
            Self::Connection(ConnectionError::Connect(_)) => "upstream-connect",
            Self::Connection(ConnectionError::Egress { .. }) => "upstream-egress",
            Self::Connection(ConnectionError::Identity(_)) => "upstream-identity",
            Self::Environment(_) | Self::Credential(_) => "upstream-credential",
            Self::Unauthorized(_) | Self::WriteScopes(_) => "upstream-unauthorized",
            Self::Start(_) | Self::Exited | Self::Backoff(_) | Self::Stalled => "upstream-process",
            Self::Timeout(_) => "upstream-timeout",
            Self::Connection(ConnectionError::Broken(_) | ConnectionError::Unprocessed(_))
            | Self::Incomplete => "upstream-reset",
            Self::Status(_) | Self::Redirect(..) => "upstream-status",
            Self::ContentType
            | Self::TooLong(_)
            | Self::Message(_)
            | Self::Protocol(_)
            | Self::ListError(_)
            | Self::Refused => "upstream-protocol",
            Self::SessionGone => "upstream-session",
            Self::Memory(_) => "upstream-memory-limit",
            Self::SessionLimit | Self::Processes(_) | Self::SendQueueFull(_) => {
                "upstream-session-limit"
            }
        }
    }
}

/// The target of a redirect of a server at `base`, as an operator may see it: without user name, password and query,
/// which may hold secrets. The origin only, if the URL is long, has unusual characters or has a secret in its path;
/// `None` without a host or if the host looks like a secret.
fn target(location: &str, base: &Uri) -> Option<Box<str>> {
    let to: Uri = location.trim().parse().ok()?;
    let (scheme, authority) = match (to.scheme_str(), to.authority()) {
        (Some(scheme @ ("http" | "https")), Some(authority)) => (scheme, authority),
        (None, None) if to.path().starts_with('/') => (base.scheme_str()?, base.authority()?),
        _ => return None,
    };
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    let origin = format!("{scheme}://{host}");
    let path = to.path();
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'`');
    let is_secret = |text: &str| matches!(without_values(text, None), Cow::Owned(_));
    let hides = is_secret(&origin) || host.split('.').any(is_secret);
    if hides || !is_plain(&origin) || origin.len() > SHOWN {
        return None;
    }
    let whole = is_plain(path) && !is_secret(path) && origin.len() + path.len() <= SHOWN;
    Some(if whole { format!("{origin}{path}") } else { origin }.into())
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn of_a_redirect_what_an_operator_needs_is_shown_and_no_secret() {
        let base = "https://mcp.example/mcp".parse().unwrap();
        for (location, shown) in [
            ("/mcp/", Some("https://mcp.example/mcp/")),
            ("https://other.example:8443/v2?token=secret", Some("https://other.example:8443/v2")),
            ("https://ana:secret@other.example/", Some("https://other.example/")),
            ("HTTPS://other.example", Some("https://other.example/")),
            (
                "https://other.example/p/ghp_1234567890abcdefghijABCDEFGHIJ123456",
                Some("https://other.example"),
            ),
            ("/t/ghp_1234567890abcdefghijABCDEFGHIJ123456/mcp", Some("https://mcp.example")),
            ("https://ghp_1234567890abcdefghijABCDEFGHIJ123456.example/", None),
            ("file:///etc/passwd", None),
            ("mcp/", None),
            ("", None),
        ] {
            assert_eq!(target(location, &base).as_deref(), shown, "{location}");
        }
        let long = format!("/{}", "a".repeat(300));
        assert_eq!(target(&long, &base).as_deref(), Some("https://mcp.example"));
    }
}
