//! How an exchange ended, in the words of the audit log and the metrics.

use crate::metrics::credential_check::Detail;

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// In a word.
    pub outcome: Outcome,
    /// Where it stopped, when it did: a code of `docs/reasons.md`.
    pub reason: Option<&'static str>,
    /// Which check the credential did not pass, when it did not: for records alone.
    pub detail: Option<Detail>,
    /// The HTTP status.
    pub status: u16,
    /// The JSON-RPC code, when the answer was an error.
    pub code: Option<i32>,
}

/// In a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The client has its answer.
    Answered,
    /// The answer was that the tool failed.
    ToolError,
    /// The answer was an error of the server.
    ServerError,
    /// The policy said no.
    Denied,
    /// The request was not acceptable.
    Refused,
    /// The gateway or the server failed.
    Failed,
    /// The client went, or said that it no longer wants it.
    Cancelled,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 7] = [
        Self::Answered,
        Self::ToolError,
        Self::ServerError,
        Self::Denied,
        Self::Refused,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::ToolError => "tool-error",
            Self::ServerError => "server-error",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Ending {
    /// The client has its answer.
    #[must_use]
    pub const fn answered() -> Self {
        let (reason, detail, code) = (None, None, None);
        Self { outcome: Outcome::Answered, reason, detail, status: 200, code }
    }

    /// What wants no answer was taken.
    #[must_use]
    pub const fn accepted() -> Self {
        Self { status: 202, ..Self::answered() }
    }

    /// The client went. The status is the one that nginx made known for this.
    #[must_use]
    pub const fn cancelled() -> Self {
        let (outcome, reason) = (Outcome::Cancelled, Some("cancelled"));
        Self { outcome, reason, status: 499, ..Self::answered() }
    }

    /// The `error.type` of OpenTelemetry; `None` when all went well.
    #[must_use]
    pub fn error_type(&self, reason: Option<&'static str>) -> Option<&'static str> {
        match self.outcome {
            Outcome::Answered => None,
            Outcome::ToolError => Some("tool_error"),
            Outcome::ServerError
            | Outcome::Denied
            | Outcome::Refused
            | Outcome::Failed
            | Outcome::Cancelled => Some(reason.unwrap_or(self.outcome.as_str())),
        }
    }
}
