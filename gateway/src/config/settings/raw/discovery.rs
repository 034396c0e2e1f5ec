//! The `discovery` section of a route as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// Whether models find the tools of a route by words, instead of reading all of them in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DiscoveryMode")]
pub(in crate::config::settings) enum RawDiscoveryMode {
    /// The list has every tool that the caller may use.
    #[default]
    Off,
    /// The list has the tools of the gateway and those of `always`; the others are found with `find_tools`.
    Search,
    /// The list has every tool that the caller may use, and the tools of the gateway.
    Both,
}

/// How models find the tools of a route.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "DiscoverySettings")]
pub(in crate::config::settings) struct RawDiscovery {
    /// What the list of tools has: `off` (default), `search` or `both`.
    pub(in crate::config::settings) mode: RawDiscoveryMode,
    /// Patterns for the names on the route of tools that the list has in the mode `search` as well, such as
    /// `files__read` or `files__*`. At most 256.
    pub(in crate::config::settings) always: Vec<String>,
    /// How many tools `find_tools` answers if its caller asks for no number, at most 50. Default 10.
    pub(in crate::config::settings) limit: Option<usize>,
    /// Whether tools that `find_tools` or `describe_tool` has shown to a caller stand in the list of this caller from then
    /// on, with the mode `search`. The caller is told that its list has changed. Default false.
    pub(in crate::config::settings) loads: bool,
    /// How many tools the list of one caller has because they were found, at most 200. Those that were found first go.
    /// Default 50.
    pub(in crate::config::settings) load_limit: Option<usize>,
    /// How often one caller may call `find_tools` and `describe_tool` together, such as `60/m`. Without it, only budgets
    /// and `repeatedCalls` bound that.
    pub(in crate::config::settings) rate: Option<String>,
    /// How many tokens the descriptions of a tool and of its parameters have together at most in the list. What exceeds that
    /// is left out behind a sentence, and `describe_tool` shows it: the modes `search` and `both` have it. At most 10000.
    /// Default: descriptions are shown as they are.
    pub(in crate::config::settings) description_tokens: Option<usize>,
}
