//! The `pins` section as written.

use policy::decision::Mode;
use schemars::JsonSchema;
use serde::Deserialize;

/// Which definitions were approved. Without this section: those in `portcullis.lock` beside this
/// file, and no others.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawPins {
    /// `enforce` withholds what was not approved, `audit` only records it, `off` approves
    /// everything.
    pub(in crate::config::settings) mode: Mode,
    /// The lockfile, from the folder of this file. Default `portcullis.lock`.
    pub(in crate::config::settings) file: Option<String>,
    /// Approve whatever a server says first, until the gateway stops. For development only.
    pub(in crate::config::settings) trust_on_first_use: bool,
    /// How often every server is asked for its lists in the background. Default `5m`.
    pub(in crate::config::settings) recheck: Option<String>,
    /// Who may approve. With keys here the lockfile must be signed.
    pub(in crate::config::settings) keys: Vec<RawPinKey>,
    /// How many of them must have signed. Default 1.
    pub(in crate::config::settings) min_approvers: Option<usize>,
    /// What is done about a change, by its class.
    pub(in crate::config::settings) drift: RawDrift,
    /// Values in definitions that are others at every start of their server. They are shown as they come and make
    /// no change; everything else of the definition is held to what was approved.
    pub(in crate::config::settings) volatile: Vec<RawVolatile>,
}

/// Values in one definition that are others at every start of its server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawVolatile {
    /// The server.
    pub(in crate::config::settings) server: String,
    /// The tool.
    pub(in crate::config::settings) tool: String,
    /// Where the values are, as JSON Pointers into the definition: `/inputSchema/properties/day/default`. Each names
    /// one string, number or boolean, or a list of these; an object is never left out.
    pub(in crate::config::settings) members: Vec<String>,
}

/// Somebody who may approve.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawPinKey {
    /// Who.
    pub(in crate::config::settings) name: String,
    /// The public key: 32 bytes, in base64. `portcullis pin key` prints it.
    pub(in crate::config::settings) ed25519: String,
}

/// What is done about a change in a definition that was approved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// It passes, and is logged.
    Accept,
    /// It passes, and is logged as a warning.
    Alert,
    /// It is withheld until somebody approves it.
    #[default]
    Hold,
    /// Nothing of the server is used until the lockfile changes.
    QuarantineServer,
}

/// What is done about a change, by its class; the gravest change of a definition decides.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawDrift {
    /// Spaces, case, commas, order, the version of a server.
    pub(in crate::config::settings) cosmetic: Action,
    /// Less is admitted than before.
    pub(in crate::config::settings) narrowing: Action,
    /// A text says something else, without asking for more.
    pub(in crate::config::settings) wording: Action,
    /// Anything else.
    pub(in crate::config::settings) other: Action,
    /// More is admitted than before: a type, a value, an argument that need not be given.
    pub(in crate::config::settings) widening: Action,
    /// A new argument.
    pub(in crate::config::settings) parameter: Action,
    /// A server says that it can do something new.
    pub(in crate::config::settings) capability: Action,
    /// What a server says about how dangerous a tool is.
    pub(in crate::config::settings) annotation: Action,
    /// A new argument through which something can leave or be run.
    pub(in crate::config::settings) sink: Action,
    /// A text now gives an order, names a URL or another tool, or hides something.
    pub(in crate::config::settings) instruction: Action,
    /// A definition that nobody has proposed; `hold` or `quarantineServer`.
    pub(in crate::config::settings) new: Action,
    /// A definition that comes back after it was another: it differs between callers, replicas or
    /// times; `hold` or `quarantineServer`.
    pub(in crate::config::settings) inconsistent: Action,
}
