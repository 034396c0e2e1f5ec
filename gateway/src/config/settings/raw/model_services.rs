//! The services with models that help to rank tools, as written: `judge` and `embeddings` of `selection`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawCircuitBreaker, RawReach, RawSecret};

/// A language model that orders the first tools of an answer. It receives the request, and of these tools their names,
/// parameters and the first sentence of their descriptions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawJudge {
    /// The URL of an API in the form of OpenAI's, such as `https://api.example.com/v1`: `https`, or `http` on this machine.
    /// Questions go to `/chat/completions` below it by POST.
    pub(in crate::config::settings) url: String,
    /// The name of the model at the service.
    pub(in crate::config::settings) model: String,
    /// The token in `Authorization: Bearer`.
    pub(in crate::config::settings) token: Option<RawSecret>,
    /// How long an answer may take, at most `30s`. Then the tools have the selector's order. Default `800ms`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// Number of tools that are ordered, from 2 to 20. Default 10.
    pub(in crate::config::settings) candidates: Option<usize>,
    /// How long an answer is used for the same question of the same caller, at most `24h`; `0s` for not at all. Default
    /// `10m`.
    pub(in crate::config::settings) cache_ttl: Option<String>,
    /// Maximum number of answers that are kept. Default 4096.
    #[schemars(range(min = 1, max = 65536))]
    pub(in crate::config::settings) cache_entries: Option<usize>,
    /// Maximum length of a question. A longer one is not asked. Default `64KiB`.
    pub(in crate::config::settings) max_prompt: Option<String>,
    /// Maximum questions that are under way. Further ones are not asked. Default 16.
    #[schemars(range(min = 1))]
    pub(in crate::config::settings) max_concurrent: Option<usize>,
    /// Maximum questions of one caller among them. Default a quarter of `maxConcurrent`.
    #[schemars(range(min = 1))]
    pub(in crate::config::settings) max_concurrent_per_caller: Option<usize>,
    /// How many questions each caller causes, such as `60/m`: a number for each second (`/s`), minute (`/m`) or hour (`/h`).
    /// Further ones are not asked. Default `120/m`.
    pub(in crate::config::settings) rate: Option<String>,
    /// When the service is left alone because it keeps failing.
    #[serde(default)]
    pub(in crate::config::settings) circuit_breaker: RawCircuitBreaker,
    /// How the gateway connects to the service.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// A service that makes embeddings of requests and of definitions: of names, parameters and the first sentence of
/// descriptions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawEmbeddings {
    /// The URL of an API in the form of OpenAI's, such as `https://api.example.com/v1`: `https`, or `http` on this machine.
    /// Questions go to `/embeddings` below it by POST.
    pub(in crate::config::settings) url: String,
    /// The name of the model at the service.
    pub(in crate::config::settings) model: String,
    /// The token in `Authorization: Bearer`.
    pub(in crate::config::settings) token: Option<RawSecret>,
    /// How long the embedding of a request may take, at most `30s`. Then tools are ranked without. Default `500ms`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// How long embeddings of definitions may take, which nobody waits for, at most `10m`. Default `30s`.
    pub(in crate::config::settings) batch_timeout: Option<String>,
    /// Number of definitions in one question. Default 16.
    #[schemars(range(min = 1, max = 256))]
    pub(in crate::config::settings) batch: Option<usize>,
    /// Maximum number of definitions with an embedding; more are ranked without. Default 16384.
    #[schemars(range(min = 1, max = 65536))]
    pub(in crate::config::settings) max_definitions: Option<usize>,
    /// How long the embedding of a request is used for the same request of the same caller, at most `24h`; `0s` for not at
    /// all. Default `10m`.
    pub(in crate::config::settings) cache_ttl: Option<String>,
    /// Maximum number of requests whose embeddings are kept. Default 1024.
    #[schemars(range(min = 1, max = 65536))]
    pub(in crate::config::settings) cache_entries: Option<usize>,
    /// Maximum requests of callers that are under way. Further ones are not asked. Default 16.
    #[schemars(range(min = 1))]
    pub(in crate::config::settings) max_concurrent: Option<usize>,
    /// Maximum requests of one caller among them. Default a quarter of `maxConcurrent`.
    #[schemars(range(min = 1))]
    pub(in crate::config::settings) max_concurrent_per_caller: Option<usize>,
    /// How many questions each caller causes, such as `60/m`: a number for each second (`/s`), minute (`/m`) or hour (`/h`).
    /// Further ones are not asked. Default `120/m`.
    pub(in crate::config::settings) rate: Option<String>,
    /// When the service is left alone because it keeps failing.
    #[serde(default)]
    pub(in crate::config::settings) circuit_breaker: RawCircuitBreaker,
    /// How the gateway connects to the service.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}
