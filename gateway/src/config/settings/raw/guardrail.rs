//! The `guardrails` of a route as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawReach, RawSecret};

/// An external service that judges arguments and results. It receives `{"direction", "route", "server", "tool",
/// "principal", "value"}` and answers `{"verdict": "allow" | "deny", "reason"}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawGuardrail {
    /// The name of the guardrail in records.
    pub(in crate::config::settings) name: String,
    /// The URL that requests are sent to by POST: `https`, or `http` on this machine.
    pub(in crate::config::settings) url: String,
    /// What happens to a message if the guardrail does not answer in time, or its answer is invalid: `deny` or
    /// `allow`. Must be given.
    pub(in crate::config::settings) on_failure: GuardrailFailure,
    /// How long the guardrail may take, at most `60s`. Default `2s`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// Maximum number of questions to it at once, of this route. Others wait, at most for `timeout`. Default 64.
    #[schemars(range(min = 1, max = 10000))]
    pub(in crate::config::settings) max_concurrent: Option<usize>,
    /// The part of `maxConcurrent` that one caller may have. What waits for longer than `timeout` is denied, even with
    /// `onFailure: allow`. Default a quarter.
    #[schemars(range(min = 1, max = 10000))]
    pub(in crate::config::settings) max_concurrent_per_caller: Option<usize>,
    /// The token in `Authorization: Bearer`.
    pub(in crate::config::settings) token: Option<RawSecret>,
    /// Whether arguments of tools are sent to it. Default `true`.
    #[serde(default = "yes")]
    pub(in crate::config::settings) arguments: bool,
    /// Whether results of calls are sent to it. Default `true`.
    #[serde(default = "yes")]
    pub(in crate::config::settings) results: bool,
    /// Maximum size of a message that is sent to it. A longer message is denied, even with `onFailure: allow`.
    /// Default `1MiB`.
    pub(in crate::config::settings) max_size: Option<String>,
    /// How the gateway connects to the guardrail.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

const fn yes() -> bool {
    true
}

/// What happens to a message that a guardrail did not judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GuardrailFailure {
    /// The message is denied.
    Deny,
    /// The message passes, and the record says so.
    Allow,
}
