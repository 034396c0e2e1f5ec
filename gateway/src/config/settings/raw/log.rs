//! How the process logs, as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// How the process logs to standard error. What happened to whom is in the audit log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawLog {
    /// How lines are written. If not given, `human` on a terminal and `json` elsewhere; `--log-format` of the command
    /// line counts more.
    pub(in crate::config::settings) format: Option<LogFormat>,
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// In words, with a line for each request.
    Human,
    /// As JSON.
    Json,
}
