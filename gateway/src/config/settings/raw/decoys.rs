//! The `decoys` section as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// Traps for attackers: tools that no server has, and values that nobody has a reason to send. Nobody who does honest
/// work touches one of them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawDecoys {
    /// What happens to a caller that touches a decoy, if that says nothing else. Without it the call is denied and
    /// recorded, and the caller can go on.
    pub(in crate::config::settings) lock: Option<RawLock>,
    /// Tools that no server has. A call of one is denied and never reaches a server.
    pub(in crate::config::settings) tools: Vec<RawDecoyTool>,
    /// Values that nobody has a reason to send. A message with one of them is withheld, in both directions, also if
    /// the value is encoded once.
    pub(in crate::config::settings) honeytokens: Vec<RawHoneytoken>,
}

/// What a caller that touches a decoy is refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawLock {
    /// For how long everything is refused to the principal, such as `1h`. An operator can lift the lock earlier.
    pub(in crate::config::settings) principal: String,
}

/// A tool that no server has.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawDecoyTool {
    /// The server among whose tools it stands. It is on every route of this server.
    pub(in crate::config::settings) server: String,
    /// The name, as the server would use it: 1 to 64 letters, digits, `_`, `-` and `.`. A tool that the server lists
    /// under this name is not shown to anybody.
    pub(in crate::config::settings) name: String,
    /// The description in lists.
    #[serde(default)]
    pub(in crate::config::settings) description: String,
    /// The input schema in lists. Default: an object with any members.
    pub(in crate::config::settings) input_schema:
        Option<serde_json::Map<String, serde_json::Value>>,
    /// The principals whose lists have it, written as in rules: `*`, `group:NAME`, `role:NAME`, `client:ID`,
    /// `principal:ID`. Default: nobody, so that only a caller who guesses its name can call it.
    #[serde(default)]
    pub(in crate::config::settings) shown_to: Vec<String>,
    /// What happens to a caller, in place of `lock` of the section.
    pub(in crate::config::settings) lock: Option<RawLock>,
}

/// A value that nobody has a reason to send: exactly one of `value`, `fromEnv`, `fromFile` and `fromCommand`. It has 16
/// to 1,024 bytes; at most 1,000 values.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawHoneytoken {
    /// Its name in records and in the log, which never have the value.
    pub(in crate::config::settings) name: String,
    /// The value itself. Everybody who can read this file then knows it.
    pub(in crate::config::settings) value: Option<String>,
    /// The environment variable of the gateway that holds the value.
    pub(in crate::config::settings) from_env: Option<String>,
    /// The file that holds the value.
    pub(in crate::config::settings) from_file: Option<String>,
    /// A program that prints the value on its standard output: its absolute path and its arguments. It is run once,
    /// when the configuration is read.
    pub(in crate::config::settings) from_command: Option<Vec<String>>,
    /// What happens to a caller, in place of `lock` of the section.
    pub(in crate::config::settings) lock: Option<RawLock>,
}
