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

/// How a denied call of a tool is answered whose caller may know of the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Denials {
    /// With a result that has `isError: true`: the loop of an agent goes on, and its model reads why.
    #[default]
    Result,
    /// With the JSON-RPC error -31403. What is wrong with the arguments is a result all the same.
    Error,
}
