//! The `registry` section as written.

use std::collections::BTreeMap;

use policy::registry::{DataClass, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// What we know about tools ourselves. Rules read it as `risk`, and limits act on it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawRegistry {
    /// The tools.
    pub(in crate::config::settings) tools: Vec<RawRegistered>,
    /// A folder with more of them, one file each: `NAME.policy.yaml` as an item of `tools`, with
    /// `NAME.schema.json`, the input schema it has to have, and `NAME.examples.jsonl`, arguments
    /// that have to fit it. From the folder of this file.
    pub(in crate::config::settings) folder: Option<String>,
}

/// What we know about one tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawRegistered {
    /// Its server.
    pub(in crate::config::settings) server: String,
    /// Its name, as its server gives it.
    pub(in crate::config::settings) tool: String,
    /// Who answers for it.
    pub(in crate::config::settings) owner: Option<String>,
    /// Which version of it this is about.
    pub(in crate::config::settings) version: Option<String>,
    /// What it does: `read`, `write`, or `destructive` for what cannot be taken back.
    pub(in crate::config::settings) effect: Option<Effect>,
    /// How sensitive what it returns is.
    pub(in crate::config::settings) data_class: Option<DataClass>,
    /// A person has to approve each call. There is nobody to ask yet, so every call is denied.
    #[serde(default)]
    pub(in crate::config::settings) approval_required: bool,
    /// Which resources it touches, for rules and people.
    pub(in crate::config::settings) resource_scope: Option<String>,
    /// How long a call may take, such as `10s`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// How often a call that failed may be repeated, for rules and people. The gateway repeats none.
    #[serde(default)]
    pub(in crate::config::settings) retries: u32,
    /// A call that is made twice does what it does once.
    #[serde(default)]
    pub(in crate::config::settings) idempotent: bool,
    /// Which members of what it gives back are sensitive: JSON Pointers with `*` for every item or
    /// member, and the label of each. Whom they are shown to says `fields` of `content` in the policy.
    #[serde(default)]
    pub(in crate::config::settings) fields: BTreeMap<String, String>,
    /// How often one caller may call it: `5/s`, `60/m` or `100/h`.
    pub(in crate::config::settings) rate: Option<String>,
}
