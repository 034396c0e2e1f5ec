//! How an exchange ended, with the values that audit records, metrics and spans share.

use crate::metrics::credential_check::CredentialCheck;

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeEnd {
    /// The kind of ending.
    pub outcome: ExchangeOutcome,
    /// Why it stopped early: a code of `docs/reasons.md`. `None` if it did not.
    pub reason: Option<&'static str>,
    /// The check that the credential failed, if it failed one. For audit records only.
    pub detail: Option<CredentialCheck>,
    /// The HTTP status of the response.
    pub status: u16,
    /// The JSON-RPC error code, if the response was an error.
    pub code: Option<i32>,
}

/// The kind of ending of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExchangeOutcome {
    /// The client got a result.
    Answered,
    /// The client got a result that reports a failure of the tool.
    ToolError,
    /// The client got a JSON-RPC error of the upstream server.
    ServerError,
    /// The policy denied the request.
    Denied,
    /// The request was invalid or not acceptable.
    Refused,
    /// The gateway or the upstream server failed.
    Failed,
    /// The client disconnected or cancelled the request.
    Cancelled,
}

impl ExchangeOutcome {
    /// Every variant, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::Answered,
        Self::ToolError,
        Self::ServerError,
        Self::Denied,
        Self::Refused,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name in records and metrics.
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

impl ExchangeEnd {
    /// The client got a result.
    #[must_use]
    pub const fn answered() -> Self {
        let (reason, detail, code) = (None, None, None);
        Self { outcome: ExchangeOutcome::Answered, reason, detail, status: 200, code }
    }

    /// A message that needs no answer was accepted.
    #[must_use]
    pub const fn accepted() -> Self {
        Self { status: 202, ..Self::answered() }
    }

    /// The client disconnected. The status is nginx's 499, client closed request.
    #[must_use]
    pub const fn cancelled() -> Self {
        let (outcome, reason) = (ExchangeOutcome::Cancelled, Some("cancelled"));
        Self { outcome, reason, status: 499, ..Self::answered() }
    }

    /// OpenTelemetry's `error.type`: `reason` if given, else the outcome; `None` on success.
    #[must_use]
    pub fn error_type(&self, reason: Option<&'static str>) -> Option<&'static str> {
        match self.outcome {
            ExchangeOutcome::Answered => None,
            ExchangeOutcome::ToolError => Some("tool_error"),
            ExchangeOutcome::ServerError
            | ExchangeOutcome::Denied
            | ExchangeOutcome::Refused
            | ExchangeOutcome::Failed
            | ExchangeOutcome::Cancelled => Some(reason.unwrap_or(self.outcome.as_str())),
        }
    }
}
