//! The `pins` section as written.

use policy::rules::decision::Mode;
use schemars::JsonSchema;
use serde::Deserialize;

/// How definitions are checked against the approved ones. Without this section: only those that `portcullis.lock`
/// beside this file approves may be used.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawPins {
    /// `enforce` withholds definitions that are not approved, `audit` only records them, `off` approves everything.
    pub(in crate::config::settings) mode: Mode,
    /// The lockfile, relative to the directory of this file. Default `portcullis.lock`.
    pub(in crate::config::settings) file: Option<String>,
    /// Approve the first definition that a server sends, until the gateway stops. For development only.
    pub(in crate::config::settings) trust_on_first_use: bool,
    /// How often the lists of every server are fetched in the background. Default `5m`.
    pub(in crate::config::settings) recheck: Option<String>,
    /// The approvers. If there are any keys, the lockfile must be signed.
    pub(in crate::config::settings) keys: Vec<RawPinKey>,
    /// How many approvers must have signed the lockfile. Default 1.
    pub(in crate::config::settings) min_approvers: Option<usize>,
    /// Withhold approved tools of which the lockfile records no evaluation that passed, as `portcullis eval --record`
    /// writes it.
    pub(in crate::config::settings) require_evaluation: bool,
    /// What happens to a changed definition, by the class of the change.
    pub(in crate::config::settings) drift: RawDrift,
    /// Values in definitions that differ at every start of their server. They are shown as they come and count as
    /// no change; everything else in the definition must match what was approved.
    pub(in crate::config::settings) volatile: Vec<RawVolatile>,
}

/// Values in one definition that differ at every start of its server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawVolatile {
    /// The name of the server.
    pub(in crate::config::settings) server: String,
    /// The tool, by the server's own name for it.
    pub(in crate::config::settings) tool: String,
    /// The values, as JSON Pointers into the definition: `/inputSchema/properties/day/default`. Each points at one
    /// string, number or boolean, or a list of these; an object is never excluded.
    pub(in crate::config::settings) members: Vec<String>,
}

/// An approver and its public key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawPinKey {
    /// The name of the approver.
    pub(in crate::config::settings) name: String,
    /// The Ed25519 public key: 32 bytes, in base64. `portcullis pin key` prints it.
    pub(in crate::config::settings) ed25519: String,
}

/// What happens to an approved definition that has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DriftAction {
    /// The change passes and is logged.
    Accept,
    /// The change passes and is logged as a warning.
    Alert,
    /// The definition is withheld until the change is approved.
    #[default]
    Hold,
    /// Nothing of the server is used until the lockfile changes.
    QuarantineServer,
}

/// What happens to a changed definition, by the class of the change; if it has several, the most severe one
/// decides.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawDrift {
    /// Whitespace, case, punctuation, order, or the version of a server.
    pub(in crate::config::settings) cosmetic: DriftAction,
    /// The input schema admits less than before.
    pub(in crate::config::settings) narrowing: DriftAction,
    /// A text changed without asking for more.
    pub(in crate::config::settings) wording: DriftAction,
    /// Any change that has no class of its own.
    pub(in crate::config::settings) other: DriftAction,
    /// The input schema admits more than before: a type, a value, an argument that became optional.
    pub(in crate::config::settings) widening: DriftAction,
    /// A new argument of a tool or prompt.
    pub(in crate::config::settings) parameter: DriftAction,
    /// A server announces a new capability.
    pub(in crate::config::settings) capability: DriftAction,
    /// An annotation about how dangerous a tool is.
    pub(in crate::config::settings) annotation: DriftAction,
    /// A new argument through which data can leave or code can run.
    pub(in crate::config::settings) sink: DriftAction,
    /// A text that now contains instructions, a URL, the name of another tool, or hidden content.
    pub(in crate::config::settings) instruction: DriftAction,
    /// A definition that was never proposed; `hold` or `quarantineServer`.
    pub(in crate::config::settings) new: DriftAction,
    /// A definition that alternates between versions, because it differs between callers, replicas or times; `hold`
    /// or `quarantineServer`.
    pub(in crate::config::settings) inconsistent: DriftAction,
}
