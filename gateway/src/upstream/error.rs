//! Why a server did not answer.

use std::io;
use std::time::Duration;

use super::credential::CredentialError;
use crate::link::LinkError;
use crate::share::NoShare;
use crate::wire::DecodeError;
use crate::world::WorldError;

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
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer ended before it was complete.
    #[error("the answer ended early")]
    Incomplete,
    /// An HTTP status that carries no answer.
    #[error("HTTP status {0}")]
    Status(u16),
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

impl UpstreamError {
    /// The code of [`Self::Open`], also where that was found out for somebody else.
    const CIRCUIT_OPEN: &'static str = "circuit-open";
    /// The server goes on sending lines that carry nothing.
    pub(super) const BLANK: Self =
        Self::Protocol("the server sends too many lines that carry no message");

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
            Self::Unauthorized(_) => "upstream-unauthorized",
            Self::Start(_) | Self::Exited | Self::Backoff(_) | Self::Stalled => "upstream-process",
            Self::Timeout(_) => "upstream-timeout",
            Self::Link(LinkError::Broken(_) | LinkError::Unprocessed(_)) | Self::Incomplete => {
                "upstream-broken"
            }
            Self::Status(_) => "upstream-status",
            Self::ContentType
            | Self::TooLong(_)
            | Self::Message(_)
            | Self::Protocol(_)
            | Self::Refused => "upstream-protocol",
            Self::SessionGone => "upstream-session",
            Self::Memory(_) => "upstream-memory",
            Self::Crowded | Self::Processes(_) => "upstream-crowded",
        }
    }
}
