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
    /// A language model that orders the first tools of an answer. Without it they have the order of their scores.
    pub(in crate::config::settings) judge: Option<RawJudge>,
    /// A service that makes embeddings, whose angle is a further score. Without it there is no such score.
    pub(in crate::config::settings) embeddings: Option<RawEmbeddings>,
}

/// What each score counts in the one that tools are ranked by: numbers from 0 to 10. The defaults were chosen on
/// requests that the measurements do not have; `docs/discovery.md` describes the scores.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "SelectionWeights")]
pub(in crate::config::settings) struct RawSelectionWeights {
    /// Words that the request and the definition share. Default 0.4.
    pub(in crate::config::settings) words: Option<f64>,
    /// Words of the definition that are similar to those of the request. Default 1.1.
    pub(in crate::config::settings) similar_words: Option<f64>,
    /// The angle between the directions of the request and of the definition. Default 0.6.
    pub(in crate::config::settings) direction: Option<f64>,
    /// How often similar requests of the caller led to the tool. Default 0.15.
    pub(in crate::config::settings) history: Option<f64>,
    /// What a tool loses if its server is not available. Default 0.3.
    pub(in crate::config::settings) available: Option<f64>,
    /// The place that the judge gave the tool, at most 100. The default is more than scores differ by, so that the order
    /// of the judge stands. Default 20.
    pub(in crate::config::settings) judged: Option<f64>,
    /// By how much the embedding of the tool is closer to that of the request than the mean of the tools. Default 1.
    pub(in crate::config::settings) embedding: Option<f64>,
    /// Tools whose scores differ by less than this from the best one are called close. At most 1. Default 0.03.
    pub(in crate::config::settings) close: Option<f64>,
}
