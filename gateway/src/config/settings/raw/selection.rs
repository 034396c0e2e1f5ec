//! The `selection` section as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawEmbeddings, RawJudge};

/// How `find_tools` and `portcullis select` rank the tools of a caller, on every route with discovery.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "SelectionSettings")]
pub(in crate::config::settings) struct RawSelection {
    /// What each score counts in the one that tools are ranked by.
    pub(in crate::config::settings) weights: RawSelectionWeights,
    /// What the gateway remembers of requests for tools and of the calls that follow them.
    pub(in crate::config::settings) history: RawSelectionHistory,
    /// A language model that orders the first tools of an answer. Without it they have the order of their scores.
    pub(in crate::config::settings) judge: Option<RawJudge>,
    /// A service that makes embeddings, whose angle is a further score. Without it there is no such score.
    pub(in crate::config::settings) embeddings: Option<RawEmbeddings>,
}

/// Whether it is remembered which tools a caller used after which request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "HistoryMode")]
pub(in crate::config::settings) enum RawHistoryMode {
    /// Nothing is remembered.
    #[default]
    Off,
    /// Similar requests of the same caller find these tools first.
    On,
}

/// Whose history a request of a caller is ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HistorySharing {
    /// That of the same principal with the same client.
    #[default]
    Principal,
    /// Also that of members of the caller's groups, for tools that at least three other members used.
    Group,
}

/// What the records of `find_tools` have of requests for tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RequestRecording {
    /// Nothing but a digest.
    #[default]
    Nothing,
    /// The request without secrets and numbers of cards, accounts and persons, and the tools in the answer: what
    /// `portcullis weights` learns from. Requests can say what people work on.
    Queries,
}

/// What the gateway remembers of requests for tools and of the calls that follow them: in memory, until it stops.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "SelectionHistory")]
pub(in crate::config::settings) struct RawSelectionHistory {
    /// Whether it is remembered which tools a caller used after which request: `off` (default) or `on`.
    pub(in crate::config::settings) mode: RawHistoryMode,
    /// The time after which a use counts half, such as `7d`. From a minute to a year. Default `7d`.
    pub(in crate::config::settings) half_life: Option<String>,
    /// How long after a request a call belongs to it, such as `10m`. At most a day. Default `10m`.
    pub(in crate::config::settings) window: Option<String>,
    /// How many uses are kept of each principal, at most 1000. Of more, those that count least are forgotten. Default
    /// 100.
    pub(in crate::config::settings) entries: Option<usize>,
    /// Of how many principals something is kept, each with its client, at most 100000, and of all together at most a
    /// million uses; over it nothing is learned of further ones, nor with more than 8 clients of one. Default 1000.
    pub(in crate::config::settings) principals: Option<usize>,
    /// Whose history a request is ranked by: `principal` (default) or `group`.
    pub(in crate::config::settings) share_by: HistorySharing,
    /// What the audit log has of requests: `nothing` (default) or `queries`.
    pub(in crate::config::settings) record: RequestRecording,
}

/// What each score counts in the one that tools are ranked by: numbers from 0 to 10, up to 100 for `judged` and from 0 to
/// 1 for `close`. The defaults of `words`, `similarWords` and `direction` were chosen on requests that the measurements do
/// not have; `docs/discovery.md` describes the scores.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "SelectionWeights")]
pub(in crate::config::settings) struct RawSelectionWeights {
    /// Words that the request and the definition share. `words`, `similarWords` and `direction` cannot all be 0. Default
    /// 0.4.
    pub(in crate::config::settings) words: Option<f64>,
    /// Words of the definition that are similar to those of the request. Default 1.1.
    pub(in crate::config::settings) similar_words: Option<f64>,
    /// The angle between the directions of the request and of the definition. Default 0.6.
    pub(in crate::config::settings) direction: Option<f64>,
    /// How often similar requests of the caller led to the tool. Default 0.15.
    pub(in crate::config::settings) history: Option<f64>,
    /// What a tool loses if its server is not available. Default 0.3.
    pub(in crate::config::settings) available: Option<f64>,
    /// The place that the judge gave the tool, at most 100. Above 0 the order of the judge stands, whatever the
    /// scores are. Default 20.
    pub(in crate::config::settings) judged: Option<f64>,
    /// By how much the embedding of the tool is closer to that of the request than the mean of the tools. Default 1.
    pub(in crate::config::settings) embedding: Option<f64>,
    /// Tools whose scores differ by less than this from the best one are called close. At most 1. Default 0.03.
    pub(in crate::config::settings) close: Option<f64>,
}
