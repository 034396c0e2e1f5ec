//! The `approvals` section as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawReach, RawSecret};

/// How people are asked about calls that need an approval: those of rules with `requireApproval`, of tools with
/// `approvalRequired` in the registry, and of `policy.flow.mode: ask`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawApprovals {
    /// Who can answer: `client` asks the user of the client that calls, by elicitation, if the client offers that;
    /// `operator` waits for an operator at the admin API, which needs `ops.token`. Default: both. The client is on the
    /// side of the caller: where it is not trusted, write `[operator]`.
    pub(in crate::config::settings) ask: Option<Vec<Approver>>,
    /// How long a question can be answered, and an approval be used, such as `5m`. Default `5m`, at most `24h`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// Most questions of one principal that wait for an answer. Default 10.
    pub(in crate::config::settings) per_principal: Option<usize>,
    /// The time in which `perWindow` questions may be asked, such as `10m`. Default `10m`.
    pub(in crate::config::settings) window: Option<String>,
    /// Most questions of one principal about one server in `window`. Default 20.
    pub(in crate::config::settings) per_window: Option<u32>,
    /// Most questions and unused approvals of all principals. Default 1000.
    pub(in crate::config::settings) open: Option<usize>,
    /// Most bytes of the arguments in all of them, such as `8MiB`. Default `8MiB`.
    pub(in crate::config::settings) memory: Option<String>,
    /// Most bytes of the arguments in one question, as they are shown, such as `16KiB`. A call with more is denied,
    /// because a question is never shown in part. Default `16KiB`.
    pub(in crate::config::settings) argument_bytes: Option<String>,
    /// A file in which questions and approvals are kept, so that they survive the end of the gateway. One process uses it,
    /// and other users must not be able to change it: who can write it can approve calls. Default: memory.
    pub(in crate::config::settings) file: Option<String>,
    /// A web service that is told of each question and of its end, for example to write to a chat. It answers through
    /// the admin API.
    pub(in crate::config::settings) webhook: Option<RawWebhook>,
}

/// A web service that gets signed notices (Standard Webhooks).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawWebhook {
    /// The URL that notices are sent to by POST: `https`, or `http` on this machine.
    pub(in crate::config::settings) url: String,
    /// The secret with which notices are signed (HMAC-SHA256): any text, or `whsec_` and base64.
    pub(in crate::config::settings) secret: RawSecret,
    /// How long the service may take to answer, at most `60s`. Default `10s`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// How the gateway connects to the service.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// Who can answer a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum Approver {
    /// The user of the client that calls.
    Client,
    /// An operator, through the admin API.
    Operator,
}
