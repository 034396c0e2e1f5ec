//! Why a server did not answer.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use http::header::{LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode, Uri};
use policy::ask::{Reason, Refusal};
use policy::content::without_values;
use policy::offer::ReadOnlyHint;
use policy::scope;

use super::credential::CredentialError;
use crate::base::share::NoShare;
use crate::mcp::wire::{DecodeError, FromServerError};
use crate::net::connection::LinkError;
use crate::outbound::environment::WorldError;

/// Longest URL of a redirect that is shown whole, in bytes.
const SHOWN: usize = 256;

/// Why a server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// It failed for somebody else who asked for the same at the same time, with this code.
    #[error("the server failed for another request a moment ago")]
    Shared(&'static str),
    /// It has failed too often in a row; it is asked again later.
    #[error("the server keeps failing; it is asked again in {0:?}")]
    Open(Duration),
    /// It is not the one that was approved.
    #[error("the server is not the one that was approved")]
    Stranger,
    /// No connection, or none any more.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// What it should be shown is not to be had.
    #[error(transparent)]
    World(WorldError),
    /// There is nothing to show the server that it would let in.
    #[error("there is no credential for the server")]
    Credential(#[source] CredentialError),
    /// The server does not let in whom we speak for.
    #[error("the server does not accept our credential: HTTP status {0}")]
    Unauthorized(u16),
    /// The same, and it wants a credential with scopes that let something be changed.
    #[error("the server wants a credential with scopes that write: HTTP status {0}")]
    WriteScopes(u16),
    /// The program could not be started.
    #[error("could not start the program")]
    Start(#[source] io::Error),
    /// The program has ended.
    #[error("the program has ended")]
    Exited,
    /// The program has ended too often; it is started again later.
    #[error("the program keeps ending; it is started again in {0:?}")]
    Backoff(Duration),
    /// The program does not read what it is sent.
    #[error("the program does not take requests")]
    Stalled,
    /// Too many bytes wait to be sent to it: of this caller, or of all.
    #[error("too many bytes wait to be sent to the server")]
    Full(#[source] NoShare),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer ended before it was complete.
    #[error("the answer ended early")]
    Incomplete,
    /// An HTTP status that carries no answer.
    #[error("HTTP status {0}")]
    Status(u16),
    /// A redirect. It is not followed: what is sent, and what the server is shown, is for the URL that is configured.
    #[error(
        "HTTP status {0}: a redirect to `{1}`, which is not followed; if that is right, set `url` to it"
    )]
    Redirect(u16, Box<str>),
    /// An answer that is neither JSON nor a stream of events.
    #[error("the answer has an unexpected content type or encoding")]
    ContentType,
    /// More than is read.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// Not a message.
    #[error("the answer is not a message")]
    Message(#[source] DecodeError),
    /// A message that has no place here.
    #[error("{0}")]
    Protocol(&'static str),
    /// Too many bytes of answers are in memory: of this server, of this caller, or of all.
    #[error("too many bytes of answers are being read")]
    Memory(#[source] NoShare),
    /// There is no process left for this caller.
    #[error("no process of the server is free for this caller")]
    Processes(#[source] NoShare),
    /// There are more sessions with it than are kept.
    #[error("more sessions than are kept")]
    Crowded,
    /// The server does not want the handshake.
    #[error("the server refused the handshake")]
    Refused,
    /// The server's session is gone.
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
    /// The code of [`Self::Open`], also where that was found out for somebody else.
    const CIRCUIT_OPEN: &'static str = "circuit-open";
    /// The server goes on sending lines that carry nothing.
    pub(super) const BLANK: Self =
        Self::Protocol("the server sends too many lines that carry no message");

    /// What a server means that does not let us in, with a status and these headers. Nothing that it asks for
    /// is asked for at an authorization server: which scopes a credential has is configured.
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

    /// Why what the server wants is not asked for in the call of a tool that says this of itself.
    #[must_use]
    pub const fn wanted_of(&self, hint: ReadOnlyHint) -> Option<Refusal> {
        match (self, hint) {
            (Self::WriteScopes(_), ReadOnlyHint::Claimed) => {
                Some(Refusal { reason: Reason::WriteScope, at: "" })
            }
            _ => None,
        }
    }

    /// An HTTP status that carries no answer, of a server at `base`; of a redirect also to where.
    pub(super) fn status(status: StatusCode, headers: &HeaderMap, base: &Uri) -> Self {
        let to = headers.get(LOCATION).filter(|_| status.is_redirection());
        let to = to.and_then(|to| target(to.to_str().ok()?, base));
        to.map_or(Self::Status(status.as_u16()), |to| Self::Redirect(status.as_u16(), to))
    }

    /// Whether it is that the server is left alone.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.code() == Self::CIRCUIT_OPEN
    }

    /// Whether it is that the server is not the one that was approved.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        self.code() == Self::Stranger.code()
    }

    /// The stable code for records: `docs/reasons.md` says what to do.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Shared(code) => code,
            Self::Open(_) => Self::CIRCUIT_OPEN,
            Self::Stranger => "server-identity",
            Self::Link(LinkError::Connect(_)) => "upstream-connect",
            Self::Link(LinkError::Egress { .. }) => "upstream-egress",
            Self::Link(LinkError::Identity(_)) => "upstream-identity",
            Self::World(_) | Self::Credential(_) => "upstream-credential",
            Self::Unauthorized(_) | Self::WriteScopes(_) => "upstream-unauthorized",
            Self::Start(_) | Self::Exited | Self::Backoff(_) | Self::Stalled => "upstream-process",
            Self::Timeout(_) => "upstream-timeout",
            Self::Link(LinkError::Broken(_) | LinkError::Unprocessed(_)) | Self::Incomplete => {
                "upstream-broken"
            }
            Self::Status(_) | Self::Redirect(..) => "upstream-status",
            Self::ContentType
            | Self::TooLong(_)
            | Self::Message(_)
            | Self::Protocol(_)
            | Self::Refused => "upstream-protocol",
            Self::SessionGone => "upstream-session",
            Self::Memory(_) => "upstream-memory",
            Self::Crowded | Self::Processes(_) | Self::Full(_) => "upstream-crowded",
        }
    }
}

/// The URL that a redirect of a server at `base` leads to, as an operator may see it: without a name or password, and
/// without a query, which may hold a secret. Of one that is long, that is not written plainly, or has a secret in its
/// path, the origin alone; `None` where there is none or where its name is a secret.
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
