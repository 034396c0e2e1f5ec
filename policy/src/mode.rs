//! Whether a control acts.

/// What is done about what a detector finds in a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Treatment {
    /// The definition is withheld.
    #[default]
    Enforce,
    /// It is taken out, and the rest is shown; what cannot be taken out withholds the definition.
    Strip,
    /// It is recorded.
    Audit,
    /// It is ignored.
    Off,
}

/// Whether a rule or a detector acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It acts.
    #[default]
    Enforce,
    /// It is recorded what it would have done.
    Audit,
    /// It is ignored.
    Off,
}
