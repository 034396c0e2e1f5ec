//! Settings for whether a control enforces, audits or is off.

/// How a finding of a detector in a definition is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FindingTreatment {
    /// Withholds the definition from callers.
    #[default]
    Enforce,
    /// Removes the finding and shows the rest; withholds the definition if the finding cannot be removed.
    Strip,
    /// Records the finding and shows the definition.
    Audit,
    /// Does not look for it.
    Off,
}

/// Whether a rule or a detector is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// The control is enforced.
    #[default]
    Enforce,
    /// Records what would have been done, and does nothing.
    Audit,
    /// The control is ignored.
    Off,
}

/// How a denied tool call is answered if the caller may know that the tool exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DenialFormat {
    /// With a tool result that has `isError: true`: an agent's loop continues, and its model reads the reason.
    #[default]
    Result,
    /// With the JSON-RPC error -31403. Invalid arguments are still answered with a result.
    Error,
}
