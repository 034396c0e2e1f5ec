//! The `registry` section as written.

use std::collections::BTreeMap;

use policy::definition::registry::{DataClass, ToolEffect};
use policy::flow::guard::GivenLabels;
use schemars::JsonSchema;
use serde::Deserialize;

/// The operator's own facts about tools. Rules read them as `risk`, and limits use them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawRegistry {
    /// The tools that the facts are about.
    pub(in crate::config::settings) tools: Vec<RawRegistered>,
    /// A directory with more of them, relative to the directory of this file. Each tool has a file
    /// `NAME.policy.yaml` in the form of an item of `tools`, and may have `NAME.schema.json` with the input schema
    /// that it must have, and `NAME.examples.jsonl` with arguments that must match the schema.
    pub(in crate::config::settings) folder: Option<String>,
}

/// The operator's own facts about one tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawRegistered {
    /// The name of the tool's server.
    pub(in crate::config::settings) server: String,
    /// The tool, by the server's own name for it.
    pub(in crate::config::settings) tool: String,
    /// The owner who is responsible for the tool.
    pub(in crate::config::settings) owner: Option<String>,
    /// The description that clients see in place of the server's, at most 8,192 bytes. Pins, detectors and the comparison
    /// with other servers still take the server's.
    pub(in crate::config::settings) description: Option<String>,
    /// The version of the tool that these facts are about.
    pub(in crate::config::settings) version: Option<String>,
    /// The effect of a call: `read`, `write`, or `destructive` if it cannot be undone.
    pub(in crate::config::settings) effect: Option<ToolEffect>,
    /// How sensitive the results are.
    pub(in crate::config::settings) data_class: Option<DataClass>,
    /// Whether each call needs the approval of a person, as `approvals` says.
    #[serde(default)]
    pub(in crate::config::settings) approval_required: bool,
    /// The resources that the tool accesses; for rules and people only.
    pub(in crate::config::settings) resource_scope: Option<String>,
    /// Time limit for a call, such as `10s`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// How often a call is repeated whose connection to the server failed before the server answered anything; at most 5.
    /// Only with `idempotent`.
    #[serde(default)]
    pub(in crate::config::settings) retries: u32,
    /// Whether a repeated call has no further effect.
    #[serde(default)]
    pub(in crate::config::settings) idempotent: bool,
    /// What a call costs, in the units of `cost` in `budgets`. Default 1.
    #[schemars(range(min = 1))]
    pub(in crate::config::settings) cost: Option<u64>,
    /// Whether the same call may be made again and again, as with a tool that tells the state of something; otherwise
    /// `repeatedCalls` applies.
    #[serde(default)]
    pub(in crate::config::settings) may_repeat: bool,
    /// The sensitive members of results: JSON Pointers, with `*` for every item or member, and the label of each.
    /// `fields` of `content` in the policy says which callers see them.
    #[serde(default)]
    pub(in crate::config::settings) fields: BTreeMap<String, String>,
    /// The labels of the tool for flow control. They come before those under `policy.flow.labels`.
    pub(in crate::config::settings) flow: Option<GivenLabels>,
    /// Maximum rate of calls by one caller: `5/s`, `60/m` or `100/h`.
    pub(in crate::config::settings) rate: Option<String>,
}
