//! Why an exchange failed, for two readers: the operator gets the error chain, the client gets a fixed sentence. The
//! exchange returns a [`Failure`]; encoding it for the client goes through [`PublicError`], which must not quote error
//! chains or hidden names.

mod http_failure;

use std::time::Duration;

use detection::inspect::{Detector, Finding};
use http::{HeaderValue, StatusCode};
use json::write_string;
use policy::definition::offer::ItemKind;
use policy::engine::ask::Refusal;
use policy::rules::decision::{Denial, Disclosure, Reason};

use crate::audit::{self, AuditError};
use crate::base::share::ShareError;
use crate::config::quota::Quota;
use crate::identity::AuthnError;
use crate::identity::resource::ChallengeError;
use crate::mcp::protocol::{Era, ProtocolVersion, code};
use crate::mcp::wire::{DecodeError, Object};
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome};
use crate::session::SessionError;
use crate::session::approvals::ApprovalFailure;
use crate::session::call_budgets::BudgetExceeded;
use crate::upstream::UpstreamError;

pub use http_failure::HttpFailure;

/// Why an exchange ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The HTTP request cannot carry a message.
    #[error(transparent)]
    Http(#[from] HttpFailure),
    /// The caller is not authenticated, or its credential was rejected.
    #[error("could not authenticate the caller")]
    Authn(#[source] Box<AuthnFailure>),
    /// The caller needs a token with more scopes or with proof of possession; with the challenge for it.
    #[error("denied as {}", .0.reason)]
    StepUp(Box<Denial>, Option<Box<HeaderValue>>),
    /// The operator has revoked everything.
    #[error("everything is revoked")]
    Everything,
    /// The caller touched a decoy, and is refused everything for a while.
    #[error("the caller is locked")]
    Locked,
    /// No route has this path.
    #[error("there is no such route")]
    Route(PathMismatch),
    /// The caller exceeded the rate limit of a tool; with the time until the next call is allowed.
    #[error("too many calls of this tool")]
    Rate(Duration),
    /// A budget of the caller's calls is used up.
    #[error("the budget `{}` is used up", .0.budget)]
    Budget(Box<BudgetExceeded>),
    /// The caller sends too much that is no allowed call; with the time until it may send more.
    #[error("limit `limits.otherRequestsPerMinutePerCaller` reached")]
    OtherRequests(Duration),
    /// The caller's records take its share of a queue or of a disk that they are written to.
    #[error("the audit records of the caller take its share of what they are written to")]
    RecordShare,
    /// The caller makes the same call again and again; with the time until it is allowed.
    #[error("the same call was made too often")]
    Repeated(Duration),
    /// As many calls of the server are under way as may be: of the caller, or of all.
    #[error("too many calls of the server are under way")]
    ServerBusy(#[source] ShareError),
    /// The gateway works on as many requests as it may.
    #[error("too many requests at once")]
    Overload,
    /// The caller, or its address, has used up its share of a resource.
    #[error("limit `limits.{}` reached", .0.setting())]
    Share(Quota),
    /// The body is not one well-formed JSON-RPC message.
    #[error("could not decode the message")]
    Decode(#[source] DecodeError),
    /// The message is not valid in this place or revision.
    #[error("{0}")]
    Shape(&'static str),
    /// A header that mirrors the body differs from it.
    #[error("{0}")]
    HeaderMismatch(&'static str),
    /// The protocol version is not supported.
    #[error("unsupported protocol version")]
    Version {
        /// The version the client asked for.
        requested: Box<str>,
    },
    /// The params do not fit the method.
    #[error("{0}")]
    Params(&'static str),
    /// The method belongs to another protocol revision; reported as HTTP 404 in any era.
    #[error("the revision has no such method")]
    Removed,
    /// The gateway does not offer the method.
    #[error("the method is not offered")]
    Method,
    /// The session is missing, has ended, or belongs to another principal.
    #[error("could not bind the session")]
    Session(#[source] SessionError),
    /// The events after `Last-Event-ID` are no longer kept, or never existed.
    #[error("there are no events after the one named")]
    Replay,
    /// A request with the same id is in flight in this session.
    #[error("a request with this id is in flight")]
    Duplicate,
    /// The policy denied the request.
    #[error("denied as {}", .1.reason)]
    Denied(ItemKind, Denial),
    /// A person has to approve the call, and did not.
    #[error("{}", .0.note())]
    Approval(ApprovalFailure),
    /// A call of a tool of discovery has to be corrected; nothing was sent.
    #[error("the call has to be corrected: {}", .0.text)]
    Discovery(Box<CallCorrection>),
    /// A detector withheld the server's result.
    #[error("withheld: {0}")]
    Withheld(Finding),
    /// The client's input was blocked by a detector or a guardrail.
    #[error("not sent: {0}")]
    Unsent(Finding),
    /// The client's answer to a server is not what the server asked for.
    #[error("the answer to the server is not what was asked for: {0}")]
    Answer(Finding),
    /// The policy does not let the server send this request to clients.
    #[error("the server request is not allowed: {0}")]
    Refused(Refusal),
    /// The server requires a client capability that the client did not declare: that capability, as JSON of
    /// `capabilities`.
    #[error("the server request requires `{0}`, a capability that the client does not declare")]
    Unasked(&'static str),
    /// The client did not answer an elicitation or sampling request.
    #[error("the client did not answer the server")]
    Unanswered,
    /// The audit record could not be opened, so nothing was sent.
    #[error("could not open the audit record")]
    Audit(#[source] AuditError),
    /// The upstream server could not be reached, failed, or violated the protocol.
    #[error("the server failed")]
    Upstream(#[source] UpstreamError),
}

/// What is wrong with a call of a tool of discovery, and how it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCorrection {
    /// What kind of mistake it is.
    pub mistake: DiscoveryMistake,
    /// For the model: the mistake and the correction, in sentences.
    pub text: String,
}

/// What is wrong with a call of a tool of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryMistake {
    /// It does not say clearly what is asked.
    Form,
    /// The tool is called through the gateway's tool for another class.
    Class,
}

/// Why a path matches no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMismatch {
    /// No route has this path, with or without a trailing slash.
    Unknown,
    /// A route has this path without its trailing slash.
    Slash,
    /// A route has this path with a trailing slash added.
    NoSlash,
}

impl PathMismatch {
    /// The message for the client. It names no route, and reveals nothing about paths other than the requested one with
    /// or without a trailing slash.
    const fn note(self) -> &'static str {
        match self {
            Self::Unknown => {
                "no route of this gateway has this path; correct the path of the URL, or ask who runs the gateway for it"
            }
            Self::Slash => {
                "no route of this gateway has this path: it ends in a slash; use the same URL without it"
            }
            Self::NoSlash => {
                "no route of this gateway has this path: it does not end in a slash; use the same URL with one"
            }
        }
    }
}

/// An authentication failure, with the challenge for the client.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct AuthnFailure {
    /// The reason why authentication failed.
    #[source]
    pub error: AuthnError,
    /// The value of `WWW-Authenticate`, if any.
    pub challenge: Option<HeaderValue>,
    /// A `DPoP-Nonce` for the next proof of possession.
    pub nonce: Option<HeaderValue>,
}

/// What follows from a failure: how the exchange is recorded, and whether its client can do anything about it.
#[derive(Clone, Copy, Debug)]
struct FailureEffects {
    /// The outcome in the audit record.
    outcome: ExchangeOutcome,
    /// The time after which a retry can succeed; `None` if waiting does not help.
    retry_after: Option<Duration>,
    /// See [`Failure::comes_before_the_body`].
    comes_before_the_body: bool,
    /// See [`Failure::is_turned_away`].
    is_turned_away: bool,
    /// See [`Failure::is_about_arguments`].
    is_about_arguments: bool,
}

impl FailureEffects {
    /// The request is wrong in itself, or comes at the wrong time.
    const REFUSED: Self = Self {
        outcome: ExchangeOutcome::Refused,
        retry_after: None,
        comes_before_the_body: true,
        is_turned_away: false,
        is_about_arguments: false,
    };
    /// Nothing of the caller is acted on.
    const TURNED_AWAY: Self = Self { is_turned_away: true, ..Self::REFUSED };
    /// The policy, a detector or a guardrail stops it.
    const DENIED: Self = Self { outcome: ExchangeOutcome::Denied, ..Self::REFUSED };
    /// The gateway, a server or the client's answer to a server is at fault.
    const FAILED: Self = Self { outcome: ExchangeOutcome::Failed, ..Self::REFUSED };

    const fn retried_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }
}

/// The error as the client sees it. It never quotes an error chain.
#[derive(Debug, PartialEq, Eq)]
pub struct PublicError {
    /// Status of the HTTP response.
    pub status: StatusCode,
    /// Code of the JSON-RPC error.
    pub code: i32,
    /// The JSON-RPC error message, one sentence.
    pub message: String,
    /// The JSON of `error.data`, if any.
    pub data: Option<String>,
    /// The `WWW-Authenticate` challenge, if any.
    pub challenge: Option<HeaderValue>,
    /// A `DPoP-Nonce` for the next proof of possession, if any.
    pub nonce: Option<HeaderValue>,
    /// Seconds for `Retry-After`, if a retry can succeed.
    pub retry_after: Option<u64>,
}

/// Delay in seconds that `Retry-After` names for conditions that may pass at any moment: a share that is used up, a
/// credential that cannot be checked, a record that cannot be written.
pub const RETRY_SOON_SECONDS: u64 = 1;
/// Delay for a caller whose records take its share of what they are written to: a slow receiver, or a full disk.
const FOR_ROOM: Duration = Duration::from_secs(5);
/// [`RETRY_SOON_SECONDS`] as a duration.
const A_MOMENT: Duration = Duration::from_secs(RETRY_SOON_SECONDS);

/// Rounds up to whole seconds, and to at least one, so that the client does not retry too early.
fn seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(RETRY_SOON_SECONDS)
}

/// The message for a resource that does not exist or that the caller may not know of.
const NO_RESOURCE: &str = "resource not found";

impl PublicError {
    /// Adds the requested URI to the error data of "resource not found".
    ///
    /// SPEC 2026-07-28 server/resources#error-handling
    #[must_use]
    pub fn naming(self, asked: Option<&(ItemKind, Box<str>)>) -> Self {
        let Some((ItemKind::Resource, uri)) = asked else { return self };
        if self.message != NO_RESOURCE {
            return self;
        }
        let mut data = br#"{"uri":"#.to_vec();
        write_string(&mut data, uri);
        data.push(b'}');
        Self { data: String::from_utf8(data).ok(), ..self }
    }

    fn new(status: StatusCode, code: i32, message: &str) -> Self {
        let (data, challenge, nonce, retry_after) = (None, None, None, None);
        Self { status, code, message: message.to_owned(), data, challenge, nonce, retry_after }
    }
}

impl Failure {
    /// The failure for a record that was not written.
    #[must_use]
    pub fn unrecorded(error: AuditError) -> Self {
        match error {
            AuditError::Share => Self::RecordShare,
            error => Self::Audit(error),
        }
    }

    /// The failure for a share that could not be taken.
    #[must_use]
    pub const fn no_share(quota: Quota, none: ShareError) -> Self {
        match none {
            ShareError::All { .. } => Self::Overload,
            ShareError::Holder { .. } => Self::Share(quota),
        }
    }

    /// The failure for a denial. It is a step-up if a better credential helps; `challenge` asks for that one.
    #[must_use]
    pub fn of_denial(kind: ItemKind, denial: Denial, challenge: Option<HeaderValue>) -> Self {
        if denial.reason.is_step_up() {
            Self::StepUp(Box::new(denial), challenge.map(Box::new))
        } else {
            Self::Denied(kind, denial)
        }
    }

    /// The stable reason code for audit records; `docs/reasons.md` documents each.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Http(failure) => failure.reason(),
            Self::Authn(failure) => failure.error.code(),
            Self::StepUp(denial, _) => denial.reason.code(),
            Self::Everything => "everything-revoked",
            Self::Locked => "decoy-locked",
            Self::Route(_) => "unknown-route",
            Self::Overload => "overload",
            Self::ServerBusy(_) => "server-busy",
            Self::Share(Quota::Unauthenticated) => "address-limit",
            Self::Share(Quota::InFlight) => "caller-limit-requests",
            Self::Share(Quota::Bodies) => "caller-limit-bodies",
            Self::Share(Quota::Parked) => "caller-limit-elicitations",
            Self::Share(Quota::Sessions) => "caller-limit-sessions",
            Self::Share(Quota::Streams) => "caller-limit-streams",
            Self::Share(Quota::Subscriptions) => "caller-limit-subscriptions",
            Self::OtherRequests(_) => "caller-limit-rate",
            Self::RecordShare => audit::OVER_SHARE,
            Self::Rate(_) => "rate-limited",
            Self::Budget(_) => "budget-exceeded",
            Self::Repeated(_) => "repeated-call",
            Self::Decode(DecodeError::Json(_)) => "invalid-json",
            Self::Decode(DecodeError::Shape { .. }) | Self::Shape(_) => "invalid-message",
            Self::HeaderMismatch(_) => "header-mismatch",
            Self::Version { .. } => "unsupported-version",
            Self::Params(_) => "invalid-params",
            Self::Method | Self::Removed => "unknown-method",
            Self::Session(_) => "invalid-session",
            Self::Replay => "replay-expired",
            Self::Duplicate => "duplicate-id",
            Self::Denied(_, denial) => denial.reason.code(),
            Self::Approval(failure) => failure.reason(),
            Self::Discovery(correction) => match correction.mistake {
                DiscoveryMistake::Form => "discovery-form",
                DiscoveryMistake::Class => "discovery-class",
            },
            Self::Withheld(Finding { detector: Detector::SkillEntries, .. }) => "skill-changed",
            Self::Withheld(Finding { detector: Detector::SkillFiles, .. }) => "skill-file-changed",
            Self::Withheld(finding) if matches!(finding.detector, Detector::Flow) => "flow-planner",
            Self::Withheld(_) | Self::Unsent(_) => "content",
            Self::Answer(_) => "client-answer",
            Self::Refused(refusal) => refusal.reason.code(),
            Self::Unasked(_) => "client-capability",
            Self::Unanswered => "client-input",
            Self::Audit(_) => "audit-unavailable",
            Self::Upstream(error) => error.code(),
        }
    }

    /// What follows from the failure, besides its reason code and its words.
    fn effects(&self) -> FailureEffects {
        match self {
            Self::Http(failure) => FailureEffects {
                comes_before_the_body: failure.comes_before_the_body(),
                ..FailureEffects::REFUSED
            },
            Self::Authn(failure) if failure.error.is_ours() => {
                FailureEffects::FAILED.retried_after(A_MOMENT)
            }
            Self::Authn(failure) => FailureEffects {
                is_turned_away: matches!(failure.error, AuthnError::Revoked),
                ..FailureEffects::REFUSED
            },
            Self::Route(_) | Self::Everything | Self::Locked => FailureEffects::TURNED_AWAY,
            Self::OtherRequests(wait) => FailureEffects::TURNED_AWAY.retried_after(*wait),
            Self::RecordShare => FailureEffects::TURNED_AWAY.retried_after(FOR_ROOM),
            Self::Rate(wait) | Self::Repeated(wait) => FailureEffects::REFUSED.retried_after(*wait),
            Self::Budget(exceeded) => FailureEffects::REFUSED.retried_after(exceeded.wait),
            Self::ServerBusy(ShareError::Holder { .. })
            | Self::Share(_)
            | Self::Session(SessionError::Seal) => FailureEffects::REFUSED.retried_after(A_MOMENT),
            Self::Decode(_)
            | Self::Shape(_)
            | Self::HeaderMismatch(_)
            | Self::Version { .. }
            | Self::Params(_)
            | Self::Removed
            | Self::Method
            | Self::Session(SessionError::Missing | SessionError::Unknown)
            | Self::Replay
            | Self::Duplicate => FailureEffects::REFUSED,
            Self::Denied(_, denial) => FailureEffects {
                is_about_arguments: denial.reason.is_about_arguments(),
                ..FailureEffects::DENIED
            },
            Self::Unsent(_) => {
                FailureEffects { is_about_arguments: true, ..FailureEffects::DENIED }
            }
            Self::Answer(_) | Self::Discovery(_) => {
                FailureEffects { is_about_arguments: true, ..FailureEffects::REFUSED }
            }
            Self::Approval(ApprovalFailure::Interrupted) => {
                FailureEffects::DENIED.retried_after(A_MOMENT)
            }
            Self::StepUp(..) | Self::Withheld(_) | Self::Refused(_) | Self::Approval(_) => {
                FailureEffects::DENIED
            }
            Self::Upstream(UpstreamError::CircuitOpen(wait)) => {
                FailureEffects::FAILED.retried_after(*wait)
            }
            Self::ServerBusy(ShareError::All { .. })
            | Self::Overload
            | Self::Audit(_)
            | Self::Upstream(UpstreamError::SendQueueFull(_)) => {
                FailureEffects::FAILED.retried_after(A_MOMENT)
            }
            Self::Upstream(_) | Self::Unasked(_) | Self::Unanswered => FailureEffects::FAILED,
        }
    }

    /// Whether the rest of the body may be read and dropped, so that the connection stays usable after the response.
    #[must_use]
    pub fn comes_before_the_body(&self) -> bool {
        self.effects().comes_before_the_body
    }

    /// Whether such refusals are summarised even if the caller is known: everything or the caller is revoked, no
    /// route has the path, or the caller has left too many records already. All of it is decided before the message is
    /// acted on.
    #[must_use]
    pub fn is_turned_away(&self) -> bool {
        self.effects().is_turned_away
    }

    /// Whether the call may succeed with other arguments.
    #[must_use]
    pub fn is_about_arguments(&self) -> bool {
        self.effects().is_about_arguments
    }

    /// Seconds until a retry can succeed, for `Retry-After`; `None` if waiting does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.effects().retry_after.map(seconds)
    }

    /// The outcome for the audit record.
    #[must_use]
    pub fn ending(&self, public: &PublicError) -> ExchangeEnd {
        let status = public.status.as_u16();
        let detail = if let Self::Authn(failure) = self { failure.error.detail() } else { None };
        ExchangeEnd {
            outcome: self.effects().outcome,
            reason: Some(self.reason()),
            detail,
            status,
            code: Some(public.code),
        }
    }

    /// The same for a failure that the client received as a tool result.
    #[must_use]
    pub fn ending_in_result(&self, era: Era) -> ExchangeEnd {
        ExchangeEnd { status: 200, code: None, ..self.ending(&self.public(Some(era))) }
    }

    /// The error as the client sees it. Legacy clients take an HTTP error for the end of their session, so a failure of
    /// a single request is then reported in JSON-RPC only.
    #[must_use]
    pub fn public(&self, era: Option<Era>) -> PublicError {
        PublicError { retry_after: self.retry_after(), ..self.told(era) }
    }

    fn told(&self, era: Option<Era>) -> PublicError {
        let plain = PublicError::new;
        let of_request = |status| status_of_request(status, era);
        let shape = |message: &str| plain(StatusCode::BAD_REQUEST, code::REQUEST, message);
        let refused =
            |message: &str| self.with_reason(plain(StatusCode::OK, code::DENIED, message));
        match self {
            Self::Http(failure) => failure.told(),
            Self::Authn(failure) => failure.told(),
            Self::StepUp(denial, challenge) => step_up(denial, challenge.as_deref().cloned()),
            Self::Everything => plain(
                StatusCode::FORBIDDEN,
                code::REQUEST,
                "the operator has stopped all use of this gateway",
            ),
            // It does not say why: the caller need not know what it has touched.
            Self::Locked => plain(
                StatusCode::FORBIDDEN,
                code::REQUEST,
                "the gateway refuses this caller for now; ask who runs the gateway",
            ),
            Self::Route(astray) => plain(StatusCode::NOT_FOUND, code::REQUEST, astray.note()),
            Self::Overload => self.with_reason(plain(
                StatusCode::SERVICE_UNAVAILABLE,
                code::INTERNAL,
                "too many requests at once; try again",
            )),
            Self::Share(quota) => self.with_reason(over_share(*quota)),
            Self::ServerBusy(none) => self.with_reason(server_busy(*none, era)),
            Self::Rate(wait) => {
                self.with_reason(over_rate("too many calls of this tool", *wait, era))
            }
            Self::Repeated(wait) => self.with_reason(over_rate(REPEATED, *wait, era)),
            Self::OtherRequests(wait) => self.with_reason(over_rate(OTHER_REQUESTS, *wait, era)),
            Self::RecordShare => {
                let status = of_request(StatusCode::TOO_MANY_REQUESTS);
                self.with_reason(plain(status, code::INTERNAL, RECORD_SHARE))
            }
            Self::Budget(exceeded) => {
                self.with_reason(over_rate(&exceeded.to_string(), exceeded.wait, era))
            }
            Self::Decode(error) => undecoded(error),
            Self::Shape(reason) => shape(reason),
            Self::HeaderMismatch(what) => {
                plain(StatusCode::BAD_REQUEST, code::HEADER_MISMATCH, what)
            }
            Self::Version { requested } => unsupported(requested),
            Self::Params(what) => plain(of_request(StatusCode::BAD_REQUEST), code::PARAMS, what),
            Self::Removed => plain(StatusCode::NOT_FOUND, code::METHOD, "method not found"),
            Self::Method => {
                plain(of_request(StatusCode::NOT_FOUND), code::METHOD, "method not found")
            }
            Self::Session(error) => no_session(error),
            Self::Replay => shape("the events after `Last-Event-ID` are not kept; begin anew"),
            Self::Duplicate => shape("a request with this id is in flight"),
            // The caller has to spell the URI differently whether or not the resource exists, so this reveals nothing.
            Self::Denied(_, Denial { reason: Reason::Uri(error), .. }) => {
                plain(of_request(StatusCode::BAD_REQUEST), code::PARAMS, error.note())
            }
            Self::Denied(kind, denial) => denied(*kind, denial, era),
            Self::Approval(failure) => refused(&format!("denied: {}", failure.note())),
            Self::Discovery(correction) => self.with_reason(plain(
                of_request(StatusCode::BAD_REQUEST),
                code::PARAMS,
                &correction.text,
            )),
            Self::Withheld(finding) => refused(&withheld(finding)),
            Self::Unsent(finding) => refused(&unsent(finding)),
            // What is wrong is said without the value.
            Self::Answer(finding) => self.with_reason(plain(
                of_request(StatusCode::BAD_REQUEST),
                code::PARAMS,
                &format!("the answer is not what was asked for: `{}` {}", finding.at, finding.note),
            )),
            Self::Refused(refusal) => {
                refused(&format!("the server request is not allowed: {}", refusal.reason.note()))
            }
            Self::Unasked(capability) => unasked(capability, era),
            Self::Unanswered => plain(
                of_request(StatusCode::OK),
                code::INTERNAL,
                "the client did not answer what the server asked it",
            ),
            Self::Audit(_) => plain(
                of_request(StatusCode::SERVICE_UNAVAILABLE),
                code::INTERNAL,
                "audit log unavailable; the request was not processed",
            ),
            Self::Upstream(error) => self.told_of_server(error, era),
        }
    }

    /// The error for a server that failed.
    fn told_of_server(&self, error: &UpstreamError, era: Option<Era>) -> PublicError {
        let plain = PublicError::new;
        let of_request = |status| status_of_request(status, era);
        match error {
            UpstreamError::SessionGone if era == Some(Era::Legacy) => {
                plain(StatusCode::NOT_FOUND, code::REQUEST, "no such session; initialize again")
            }
            UpstreamError::Timeout(_) => plain(
                of_request(StatusCode::GATEWAY_TIMEOUT),
                code::INTERNAL,
                "the server did not answer in time",
            ),
            UpstreamError::Memory(_) => plain(
                of_request(StatusCode::SERVICE_UNAVAILABLE),
                code::INTERNAL,
                "response memory limit reached: the answer of the server was discarded, and a call may have been made",
            ),
            UpstreamError::SendQueueFull(_) => {
                let public = plain(
                    of_request(StatusCode::SERVICE_UNAVAILABLE),
                    code::INTERNAL,
                    "too many bytes wait to be sent to the server; nothing was sent, try again",
                );
                self.with_reason(public)
            }
            UpstreamError::CircuitOpen(wait) => {
                let message =
                    format!("the server keeps failing; try again in {} s", seconds(*wait));
                let status = of_request(StatusCode::SERVICE_UNAVAILABLE);
                self.with_reason(plain(status, code::INTERNAL, &message))
            }
            UpstreamError::SharedFailure(_)
            | UpstreamError::IdentityMismatch
            | UpstreamError::Revoked
            | UpstreamError::Connection(_)
            | UpstreamError::Environment(_)
            | UpstreamError::Credential(_)
            | UpstreamError::Unauthorized(_)
            | UpstreamError::WriteScopes(_)
            | UpstreamError::Start(_)
            | UpstreamError::Exited
            | UpstreamError::Backoff(_)
            | UpstreamError::Stalled
            | UpstreamError::Incomplete
            | UpstreamError::Status(_)
            | UpstreamError::Redirect(..)
            | UpstreamError::ContentType
            | UpstreamError::TooLong(_)
            | UpstreamError::Message(_)
            | UpstreamError::Protocol(_)
            | UpstreamError::ListError(_)
            | UpstreamError::Processes(_)
            | UpstreamError::SessionLimit
            | UpstreamError::Refused
            | UpstreamError::SessionGone => plain(
                of_request(StatusCode::BAD_GATEWAY),
                code::INTERNAL,
                "the server behind the gateway failed",
            ),
        }
    }

    /// Adds the reason to an error that the client can act on.
    fn with_reason(&self, public: PublicError) -> PublicError {
        PublicError { data: Some(self.reasoned()), ..public }
    }

    /// The JSON of `error.data` with the reason code and, if waiting helps, the delay in seconds.
    fn reasoned(&self) -> String {
        let reason = self.reason();
        match self.retry_after() {
            Some(wait) => format!(r#"{{"reason":"{reason}","retryAfter":{wait}}}"#),
            None => format!(r#"{{"reason":"{reason}"}}"#),
        }
    }
}

impl AuthnFailure {
    /// The error as the client sees it, with the challenge.
    fn told(&self) -> PublicError {
        let Self { error, challenge, nonce } = self;
        if error.is_ours() {
            return PublicError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                code::INTERNAL,
                "the credential cannot be checked now; try again",
            );
        }
        let (status, message) = match (error, error.wrong()) {
            (_, ChallengeError::Request) => {
                (StatusCode::BAD_REQUEST, "send one credential, in one header")
            }
            (AuthnError::Unwanted, _) => {
                (StatusCode::UNAUTHORIZED, "this listener takes no credential; send none")
            }
            (_, _) => (StatusCode::UNAUTHORIZED, "authenticate and try again"),
        };
        let public = PublicError::new(status, code::REQUEST, message);
        PublicError { challenge: challenge.clone(), nonce: nonce.clone(), ..public }
    }
}

/// The HTTP status for the failure of a single request. Legacy clients take an HTTP error for the end of their session,
/// so they get status 200.
fn status_of_request(status: StatusCode, era: Option<Era>) -> StatusCode {
    if era == Some(Era::Legacy) { StatusCode::OK } else { status }
}

/// The error for a call of a server that has no place for another one.
fn server_busy(none: ShareError, era: Option<Era>) -> PublicError {
    let (status, whose) = match none {
        ShareError::All { .. } => (StatusCode::SERVICE_UNAVAILABLE, ""),
        ShareError::Holder { .. } => (StatusCode::TOO_MANY_REQUESTS, " of this caller"),
    };
    let message = format!("too many calls{whose} of this server are under way; try again");
    PublicError::new(status_of_request(status, era), code::INTERNAL, &message)
}

/// The error for a body that is not one message.
fn undecoded(error: &DecodeError) -> PublicError {
    let plain = |code, message: &str| PublicError::new(StatusCode::BAD_REQUEST, code, message);
    match error {
        DecodeError::Json(error) if error.is_syntax() => plain(code::PARSE, "the body is not JSON"),
        DecodeError::Json(error) => plain(code::REQUEST, &error.to_string()),
        DecodeError::Shape { reason, .. } => plain(code::REQUEST, reason),
    }
}

/// The error for a protocol version that is not supported, with those that are.
fn unsupported(requested: &str) -> PublicError {
    let message = "unsupported protocol version";
    let public = PublicError::new(StatusCode::BAD_REQUEST, code::UNSUPPORTED_VERSION, message);
    PublicError { data: Some(supported(requested)), ..public }
}

/// The error for a request whose session cannot be used.
fn no_session(error: &SessionError) -> PublicError {
    match error {
        SessionError::Missing => PublicError::new(
            StatusCode::BAD_REQUEST,
            code::REQUEST,
            "no session is named: `initialize` first and send the id that the answer has in `Mcp-Session-Id`, or send \
             `MCP-Protocol-Version: 2026-07-28`, which needs none",
        ),
        SessionError::Unknown => PublicError::new(
            StatusCode::NOT_FOUND,
            code::REQUEST,
            "no such session; initialize again",
        ),
        SessionError::Seal => PublicError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            code::INTERNAL,
            "the gateway cannot do this now",
        ),
    }
}

/// The message about a result that was withheld.
fn withheld(finding: &Finding) -> String {
    // The place of the finding contains names that the server chose; it is for the audit record only.
    match finding.detector {
        // Its caller need not know what is watched for.
        Detector::Honeytokens => "the server's result was withheld".to_owned(),
        Detector::Flow => format!("the server's result was withheld: {}", finding.note),
        // Its note has fixed words, and names of the app that can be read as nothing else.
        Detector::Apps => format!("the server's result was withheld: {}", finding.note),
        detector => format!("the server's result was withheld: {}", detector.name()),
    }
}

/// The message about what the client gave and the server did not get.
fn unsent(finding: &Finding) -> String {
    match finding.detector {
        // The note of a guardrail is free text of somebody else.
        Detector::Guardrail => "the request was blocked by a guardrail".to_owned(),
        Detector::Honeytokens => "the request was blocked".to_owned(),
        _ => format!("the request was blocked: {finding}"),
    }
}

/// The error for a client that lacks a capability which the server requires.
fn unasked(capability: &str, era: Option<Era>) -> PublicError {
    let missing = PublicError::new(
        status_of_request(StatusCode::BAD_REQUEST, era),
        code::MISSING_CAPABILITY,
        "the server needs something this client does not offer",
    );
    // SPEC 2026-07-28 schema#missingrequiredclientcapabilityerror
    let data = format!(r#"{{"requiredCapabilities":{capability}}}"#);
    PublicError { data: Some(data), ..missing }
}

/// The error for a caller that needs another token, with the challenge for it.
fn step_up(denial: &Denial, challenge: Option<HeaderValue>) -> PublicError {
    let (status, message) = match denial.reason {
        Reason::Proof(..) => {
            (StatusCode::UNAUTHORIZED, "this needs a token with proof of possession")
        }
        _ => (StatusCode::FORBIDDEN, "this needs a token with more scopes"),
    };
    PublicError { challenge, ..PublicError::new(status, code::REQUEST, message) }
}

/// The error for a share that is used up.
fn over_share(quota: Quota) -> PublicError {
    let message = match quota {
        Quota::Unauthenticated => "too many requests from this address at once",
        Quota::InFlight => "too many requests of this caller at once",
        Quota::Bodies => "too many bytes of this caller at once",
        Quota::Parked => "too many calls of this caller wait for its answer",
        Quota::Sessions => "too many sessions of this caller",
        Quota::Streams => "too many event streams of this caller",
        Quota::Subscriptions => "the URIs that this caller is subscribed to are too long together",
    };
    let message = format!("{message}; try again");
    PublicError::new(StatusCode::TOO_MANY_REQUESTS, code::INTERNAL, &message)
}

/// Why a subscription with a webhook is refused, and what to use.
pub(super) const EVENT_WEBHOOK: &str = "with a webhook the server would send the events past the gateway, where nothing \
     inspects them; use `events/poll` or `events/stream`, without an address in the params";
/// What is said of a request of a caller that has sent too many which are no calls.
const OTHER_REQUESTS: &str =
    "too many requests of this caller in a minute that are no allowed calls";
/// What is said of a request of a caller whose records take its share of what they are written to.
const RECORD_SHARE: &str =
    "the audit log has no room for more records of this caller; try again later";
/// What is said of a call that was made too often.
pub(super) const REPEATED: &str = "the same call with the same arguments was made too often";

/// The error for a call that can be made later: a clause says why.
fn over_rate(why: &str, wait: Duration, era: Option<Era>) -> PublicError {
    let wait = seconds(wait);
    let message = format!("{why}; try again in {wait} s");
    let status = status_of_request(StatusCode::TOO_MANY_REQUESTS, era);
    PublicError::new(status, code::INTERNAL, &message)
}

/// The data of an unsupported-version error, SPEC 2026-07-28 basic/versioning#protocol-version-negotiation
fn supported(requested: &str) -> String {
    let mut out = Vec::new();
    let mut data = Object::open(&mut out);
    data.raw("supported", &ProtocolVersion::list());
    data.text("requested", requested);
    data.close();
    String::from_utf8(out).unwrap_or_default()
}

/// The error for a caller that may not know more: hidden and missing things look the same (threat T1602).
fn unknown(kind: ItemKind, era: Option<Era>) -> PublicError {
    let (status, code, message) = match (kind, era) {
        (ItemKind::Tool, _) => (StatusCode::OK, code::PARAMS, "unknown tool"),
        (ItemKind::Prompt, _) => (StatusCode::OK, code::PARAMS, "unknown prompt"),
        (ItemKind::Template, _) => (StatusCode::OK, code::PARAMS, "unknown resource template"),
        (ItemKind::Skill, _) => (StatusCode::OK, code::PARAMS, "unknown skill"),
        // SPEC 2025-11-25 server/resources#error-handling, changed in 2026-07-28
        (ItemKind::Resource, Some(Era::Legacy)) => (StatusCode::OK, code::NO_RESOURCE, NO_RESOURCE),
        (ItemKind::Resource, _) => (StatusCode::OK, code::PARAMS, NO_RESOURCE),
        (ItemKind::Method, Some(Era::Legacy)) => (StatusCode::OK, code::METHOD, "method not found"),
        (ItemKind::Method, _) => (StatusCode::NOT_FOUND, code::METHOD, "method not found"),
    };
    PublicError::new(status, code, message)
}

/// A clause on what is wrong with the argument at `at`. The note continues the clause unless it begins with a name of
/// its own.
fn about_argument(at: &str, note: &str) -> String {
    let what =
        if at.is_empty() { "the arguments".to_owned() } else { format!("the argument `{at}`") };
    let goes_on = !at.is_empty() && note.starts_with(|c: char| c.is_ascii_lowercase());
    format!("{what}{} {note}", if goes_on { "" } else { ":" })
}

fn denied(kind: ItemKind, denial: &Denial, era: Option<Era>) -> PublicError {
    let Disclosure::Rule { rule, contact } = &denial.told else { return unknown(kind, era) };
    let mut message = match rule {
        None if let Reason::Content(Finding { detector: Detector::Honeytokens, .. }) =
            &denial.reason =>
        {
            "denied: the input may not be sent".to_owned()
        }
        None if let Reason::Content(finding) = &denial.reason => format!("denied: {finding}"),
        None if let Reason::Arguments(Finding { at, note, .. }) = &denial.reason => {
            format!("denied: {}", about_argument(at, note))
        }
        Some(rule) => format!("denied by rule `{rule}`"),
        None if let Reason::App(violation) = &denial.reason => {
            format!("denied: {}", violation.note())
        }
        None if denial.reason == Reason::EventWebhook => format!("denied: {EVENT_WEBHOOK}"),
        None => "denied: no rule allows this with these arguments".to_owned(),
    };
    if let Some(contact) = contact {
        message.push_str("; ask ");
        message.push_str(contact);
    }
    let mut out = Vec::new();
    let mut data = Object::open(&mut out);
    data.text("reason", denial.reason.code());
    if let Some(rule) = rule {
        data.text("rule", rule.as_str());
    }
    if let Some(contact) = contact {
        data.text("contact", contact);
    }
    data.close();
    let data = String::from_utf8(out).ok();
    PublicError { data, ..PublicError::new(StatusCode::OK, code::DENIED, &message) }
}
