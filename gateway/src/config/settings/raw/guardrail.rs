//! A guardrail as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawReach, RawSecret};

/// Somebody outside who is asked about arguments and results: it gets `{"direction", "route",
/// "server", "tool", "principal", "value"}` and answers `{"verdict": "allow" | "deny", "reason"}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawGuardrail {
    /// Its name in records.
    pub(in crate::config::settings) name: String,
    /// Where it is asked by POST: an `https` URL, or an `http` one of this machine.
    pub(in crate::config::settings) url: String,
    /// What becomes of a message about which it gives no answer in time, or none that can be read:
    /// `deny` or `allow`. There is no default.
    pub(in crate::config::settings) on_failure: Failing,
    /// How long it may take, at most `60s`. Default `2s`.
    pub(in crate::config::settings) deadline: Option<String>,
    /// What it is shown in `Authorization: Bearer`.
    pub(in crate::config::settings) token: Option<RawSecret>,
    /// It is asked about what is sent: arguments of tools. Default `true`.
    #[serde(default = "yes")]
    pub(in crate::config::settings) arguments: bool,
    /// It is asked about results of calls. Default `true`.
    #[serde(default = "yes")]
    pub(in crate::config::settings) results: bool,
    /// Longest message it is asked about: a longer one does not pass, also with `onFailure: allow`.
    /// Default `1MiB`.
    pub(in crate::config::settings) most: Option<String>,
    /// How it is reached.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

const fn yes() -> bool {
    true
}

/// What becomes of what nobody has judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Failing {
    /// It does not pass.
    Deny,
    /// It passes, and that is recorded.
    Allow,
}
