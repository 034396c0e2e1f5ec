//! The `log` section as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// The process log on standard error. Exchanges are recorded in the audit log instead.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawLog {
    /// The format of log lines. If not given, `human` on a terminal and `json` elsewhere; the command-line option
    /// `--log-format` takes precedence.
    pub(in crate::config::settings) format: Option<LogFormat>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// Text for people, with a line for each request.
    Human,
    /// One JSON object per line.
    Json,
}
