//! The `budgets` and `repeatedCalls` sections as written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::call_budget::BudgetSubject;

/// What calls may use up in a time. Every budget that names a call applies to it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawBudget {
    /// The name in refusals and records; unique.
    pub(in crate::config::settings) name: String,
    /// What has a budget of its own: each `principal`, each `client` of a principal, each `server`, each `tool`, or each
    /// combination of those that are listed. Default `[principal]`; an empty list is one budget for all.
    pub(in crate::config::settings) per: Option<Vec<BudgetSubject>>,
    /// The principals whose calls count, written as in rules. Default: all.
    pub(in crate::config::settings) principals: Option<Vec<String>>,
    /// The servers whose calls count: names or patterns with `*` and `?`. Default: all.
    pub(in crate::config::settings) servers: Option<Vec<String>>,
    /// The tools whose calls count: names or patterns with `*` and `?`. Default: all, and also prompts, resources,
    /// completions and methods of extensions.
    pub(in crate::config::settings) tools: Option<Vec<String>>,
    /// The time for which the budget is, such as `1h`. It begins with the first call after the last one has ended.
    pub(in crate::config::settings) window: String,
    /// Maximum number of calls.
    #[schemars(range(min = 1))]
    pub(in crate::config::settings) calls: Option<u64>,
    /// Maximum bytes of what callers send with calls and are answered, such as `10MiB`. The answer of the last call may
    /// exceed it.
    pub(in crate::config::settings) bytes: Option<String>,
    /// Maximum cost, in the units of `cost` in the registry: a call costs 1 where that says nothing.
    #[schemars(range(min = 1))]
    pub(in crate::config::settings) cost: Option<u64>,
}

/// When a caller that repeats itself is refused: the same tool with the same arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawRepeatedCalls {
    /// Maximum identical calls of one principal in `window`. A tool with `mayRepeat` in the registry has none.
    #[schemars(range(min = 1))]
    pub(in crate::config::settings) limit: u32,
    /// The time in which they are counted, such as `1m`. Default `1m`, at most `1h`.
    pub(in crate::config::settings) window: Option<String>,
}
