//! Whether a control acts.

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
