//! Compiles `judge` and `embeddings` of `selection`: services with models that help to rank tools.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use policy::definition::registry::RateLimit;

use super::compiler::SettingsCompiler;
use super::raw::{RawCircuitBreaker, RawEmbeddings, RawJudge, RawReach, RawSecret};
use super::{CircuitBreaker, ConnectionSettings, SecretRef, ServiceEndpoint};
use crate::base::expiring_cache::CacheBounds;
use crate::net::egress::is_this_machine;

/// The default and the maximum time limit of a judge, and of an embedding of a request.
const JUDGE_TIME: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
const REQUEST_TIME: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// The same for embeddings of definitions.
const BATCH_TIME: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));
/// The default and the maximum age of an answer that is used again.
const AGE: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(24 * 3600));
/// How many candidates a judge orders by default, and at least and at most.
const CANDIDATES: usize = 10;
const FEWEST_CANDIDATES: usize = 2;
const MOST_CANDIDATES: usize = 20;
/// The default and the maximum length of a question to a judge, in bytes.
const PROMPT: (usize, usize) = (64 * 1024, 1024 * 1024);
/// How many questions are under way at most, by default.
const CONCURRENT: usize = 16;
/// How many questions one caller causes, by default.
const RATE: RateLimit = RateLimit { count: 120, per: Duration::from_secs(60) };
/// How many answers of a judge are kept by default, and most bytes of all of them.
const JUDGED: (usize, usize) = (4096, 1024 * 1024);
/// How many embeddings of requests are kept by default, and most bytes of all of them.
const REQUESTS: (usize, usize) = (1024, 16 * 1024 * 1024);
/// How many definitions are in one question by default, and how many have embeddings.
const BATCH: usize = 16;
const DEFINITIONS: usize = 16 * 1024;
/// Longest name of a model in bytes.
const MAX_MODEL: usize = 256;

/// A web service with models, in the form of the API of OpenAI.
#[derive(Clone, Debug)]
pub struct ModelServiceSettings {
    /// The URL that questions are sent to, and how the gateway connects to it.
    pub place: ServiceEndpoint,
    /// The bearer token, if it requires one.
    pub token: Option<SecretRef>,
    /// The name of the model.
    pub model: Box<str>,
    /// How long an answer may take that a caller waits for.
    pub timeout: Duration,
    /// Most questions under way.
    pub concurrent: usize,
    /// Most questions of one caller under way.
    pub concurrent_per_caller: usize,
    /// How many questions one caller causes; `None` for as many as it wants.
    pub rate: Option<RateLimit>,
    /// When the service is left alone.
    pub circuit_breaker: CircuitBreaker,
}

/// A language model that orders the first tools of an answer.
#[derive(Clone, Debug)]
pub struct JudgeSettings {
    /// The service that runs the language model.
    pub service: ModelServiceSettings,
    /// How many tools are ordered.
    pub candidates: usize,
    /// Most bytes of a question.
    pub max_prompt: usize,
    /// What is kept of answers.
    pub cache: CacheBounds,
}

/// A service that makes embeddings of requests and definitions.
#[derive(Clone, Debug)]
pub struct EmbeddingsSettings {
    /// The service that makes embeddings.
    pub service: ModelServiceSettings,
    /// How long embeddings of definitions may take.
    pub batch_timeout: Duration,
    /// How many definitions are in one question.
    pub batch: usize,
    /// Most definitions with embeddings.
    pub definitions: usize,
    /// What is kept of embeddings of requests.
    pub cache: CacheBounds,
}

/// A service that the command line names.
#[derive(Clone, Debug)]
pub struct GivenService {
    /// The URL of the API.
    pub url: String,
    /// The name of the model.
    pub model: String,
    /// The file with the token, if the service requires one.
    pub token_file: Option<PathBuf>,
    /// How long an answer may take; the default of the configuration if not given.
    pub timeout: Option<Duration>,
}

/// What the two services have in common, as written.
struct WrittenService {
    url: String,
    /// The path below the URL.
    path: &'static str,
    model: String,
    token: Option<RawSecret>,
    timeout: Option<String>,
    /// The default and the maximum time limit.
    times: (Duration, Duration),
    concurrent: Option<usize>,
    concurrent_per_caller: Option<usize>,
    rate: Option<String>,
    circuit_breaker: RawCircuitBreaker,
    connection: RawReach,
}

/// How answers are kept, as written.
struct WrittenCache {
    age: Option<String>,
    entries: Option<usize>,
    /// The default number of entries, and most bytes of all of them.
    usual: (usize, usize),
}

impl SettingsCompiler<'_> {
    /// The judge; `None` if none is configured, or its settings have problems.
    pub(super) fn judge(&mut self, raw: Option<RawJudge>) -> Option<JudgeSettings> {
        let (raw, at) = (raw?, "/selection/judge");
        let candidates = raw.candidates.unwrap_or(CANDIDATES);
        if !(FEWEST_CANDIDATES..=MOST_CANDIDATES).contains(&candidates) {
            let message = format!("a judge cannot order {candidates} tools");
            let help = format!("write a number from {FEWEST_CANDIDATES} to {MOST_CANDIDATES}");
            self.report(&format!("{at}/candidates"), message, help);
        }
        let (usual, most) = PROMPT;
        let prompt = self.size(&format!("{at}/maxPrompt"), raw.max_prompt.as_deref());
        let max_prompt = prompt.unwrap_or(usual);
        if max_prompt > most {
            self.report(&format!("{at}/maxPrompt"), "longer than 1MiB", "give at most `1MiB`");
        }
        let cache = WrittenCache { age: raw.cache_ttl, entries: raw.cache_entries, usual: JUDGED };
        let cache = self.kept(at, &cache);
        let service = WrittenService {
            url: raw.url,
            path: "/chat/completions",
            model: raw.model,
            token: raw.token,
            timeout: raw.timeout,
            times: JUDGE_TIME,
            concurrent: raw.max_concurrent,
            concurrent_per_caller: raw.max_concurrent_per_caller,
            rate: raw.rate,
            circuit_breaker: raw.circuit_breaker,
            connection: raw.connection,
        };
        let service = self.model_service(at, service)?;
        Some(JudgeSettings { service, candidates, max_prompt, cache })
    }

    /// The service for embeddings; `None` if none is configured, or its settings have problems.
    pub(super) fn embeddings(&mut self, raw: Option<RawEmbeddings>) -> Option<EmbeddingsSettings> {
        let (raw, at) = (raw?, "/selection/embeddings");
        let (usual, most) = BATCH_TIME;
        let batch_timeout = self.time_within(
            &format!("{at}/batchTimeout"),
            raw.batch_timeout.as_deref(),
            usual,
            most,
        );
        let cache =
            WrittenCache { age: raw.cache_ttl, entries: raw.cache_entries, usual: REQUESTS };
        let cache = self.kept(at, &cache);
        let service = WrittenService {
            url: raw.url,
            path: "/embeddings",
            model: raw.model,
            token: raw.token,
            timeout: raw.timeout,
            times: REQUEST_TIME,
            concurrent: raw.max_concurrent,
            concurrent_per_caller: raw.max_concurrent_per_caller,
            rate: raw.rate,
            circuit_breaker: raw.circuit_breaker,
            connection: raw.connection,
        };
        let service = self.model_service(at, service)?;
        Some(EmbeddingsSettings {
            service,
            batch_timeout,
            batch: raw.batch.unwrap_or(BATCH),
            definitions: raw.max_definitions.unwrap_or(DEFINITIONS),
            cache,
        })
    }

    fn model_service(&mut self, at: &str, raw: WrittenService) -> Option<ModelServiceSettings> {
        let url = format!("{}{}", raw.url.trim_end_matches('/'), raw.path);
        let url_at = format!("{at}/url");
        let url = if raw.url.contains(['?', '#']) {
            let help = "write the URL of the API, such as `https://host/v1`";
            self.report(&url_at, "the URL has a query or a fragment", help);
            None
        } else {
            self.guarded_url(&url_at, &url)
        };
        if raw.model.is_empty() || raw.model.len() > MAX_MODEL {
            let help = "write the name of a model as the service has it";
            self.report(&format!("{at}/model"), "no model can have this name", help);
        }
        let way = self.way(&format!("{at}/connection"), &raw.connection);
        let token = raw.token.and_then(|token| self.secret(&format!("{at}/token"), token));
        let (usual, most) = raw.times;
        let timeout =
            self.time_within(&format!("{at}/timeout"), raw.timeout.as_deref(), usual, most);
        let circuit_breaker = self.breaker(at, &raw.circuit_breaker);
        let concurrent = raw.concurrent.unwrap_or(CONCURRENT);
        let each = raw.concurrent_per_caller.unwrap_or(concurrent / 4).max(1);
        if each > concurrent {
            let message = format!("one caller cannot have {each} of {concurrent} questions");
            self.report(
                &format!("{at}/maxConcurrentPerCaller"),
                message,
                "give at most `maxConcurrent`",
            );
        }
        let rate = self.call_rate(at, raw.rate.as_deref());
        Some(ModelServiceSettings {
            rate: Some(rate.unwrap_or(RATE)),
            place: ServiceEndpoint { url: url?, way },
            token,
            model: raw.model.into(),
            timeout,
            concurrent,
            concurrent_per_caller: each,
            circuit_breaker,
        })
    }

    fn kept(&mut self, at: &str, raw: &WrittenCache) -> CacheBounds {
        let (usual, most) = AGE;
        let at = format!("{at}/cacheTtl");
        // `0s` turns the cache off, and is no time elsewhere.
        let lifetime = match raw.age.as_deref() {
            Some("0s") => Duration::ZERO,
            age => self.time_within(&at, age, usual, most),
        };
        let (entries, bytes) = raw.usual;
        CacheBounds { entries: raw.entries.unwrap_or(entries), bytes, lifetime }
    }
}

impl GivenService {
    /// The judge at this place, with the defaults of the configuration.
    ///
    /// # Errors
    /// What is wrong with it, in words for the user.
    pub fn judge(self) -> Result<JudgeSettings, String> {
        let (entries, bytes) = JUDGED;
        Ok(JudgeSettings {
            service: self.service("/chat/completions", JUDGE_TIME.0)?,
            candidates: CANDIDATES,
            max_prompt: PROMPT.0,
            cache: CacheBounds { entries, bytes, lifetime: AGE.0 },
        })
    }

    /// The service for embeddings at this place, with the defaults of the configuration.
    ///
    /// # Errors
    /// What is wrong with it, in words for the user.
    pub fn embeddings(self) -> Result<EmbeddingsSettings, String> {
        let (entries, bytes) = REQUESTS;
        Ok(EmbeddingsSettings {
            service: self.service("/embeddings", REQUEST_TIME.0)?,
            batch_timeout: BATCH_TIME.0,
            batch: BATCH,
            definitions: DEFINITIONS,
            cache: CacheBounds { entries, bytes, lifetime: AGE.0 },
        })
    }

    fn service(self, path: &str, usual: Duration) -> Result<ModelServiceSettings, String> {
        let url = format!("{}{path}", self.url.trim_end_matches('/')).parse::<Uri>();
        let url = url.ok().filter(|url| {
            let is_safe = match url.scheme_str() {
                Some("https") => true,
                Some("http") => is_this_machine(url),
                _ => false,
            };
            is_safe && url.authority().is_some_and(|at| !at.as_str().contains('@'))
        });
        let shown = self.url.escape_debug();
        let url = url.ok_or_else(|| {
            format!("`{shown}` is neither an `https` URL nor an `http` URL of this machine")
        })?;
        Ok(ModelServiceSettings {
            place: ServiceEndpoint { url, way: ConnectionSettings::default() },
            token: self.token_file.map(SecretRef::File),
            model: self.model.into(),
            timeout: self.timeout.unwrap_or(usual),
            concurrent: CONCURRENT,
            concurrent_per_caller: CONCURRENT,
            rate: None,
            circuit_breaker: CircuitBreaker { failures: NonZeroU32::MAX, open_for: AGE.0 },
        })
    }
}
