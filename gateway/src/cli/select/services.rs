//! The services with models that `portcullis select` ranks with: a judge, and one that makes embeddings.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use detection::content::without_values;
use gateway::base::error_chain::ErrorChain;
use gateway::base::sha256::sha256;
use gateway::base::share::Holder;
use gateway::config::settings::{
    EmbeddingsSettings, GivenService, JudgeSettings, Limits, SelectionSettings,
};
use gateway::mcp::tool_signature::ToolSignature;
use gateway::metrics::selection_outcome::SelectionOutcome;
use gateway::outbound::embeddings::{Embedding, Embeddings, cosine, text_of};
use gateway::outbound::tool_judge::{JudgeQuestion, ToolJudge, question_body};
use selector::ranking::{Hit, ToolIndex};
use tokio::runtime::Runtime;

use super::rows::{RequestRow, ToolRow};
use crate::cli::{doctor, say};

/// The longest time that any step of an exchange may take.
const MOST_TIME: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(super) struct ServiceArgs {
    /// The URL of the API of a judge, in the form of OpenAI's: questions go to `/chat/completions` below it. In place of
    /// `selection.judge` of the configuration.
    #[arg(long, value_name = "URL", requires = "judge_model")]
    judge_url: Option<String>,
    /// The name of the model of the judge.
    #[arg(long, value_name = "MODEL")]
    judge_model: Option<String>,
    /// A file with the token for the judge.
    #[arg(long, value_name = "FILE", requires = "judge_url")]
    judge_token_file: Option<PathBuf>,
    /// How long the judge may take, such as `800ms`.
    #[arg(long, value_name = "TIME", requires = "judge_url", value_parser = humantime::parse_duration)]
    judge_timeout: Option<Duration>,
    /// The URL of an API that makes embeddings, in the form of OpenAI's: questions go to `/embeddings` below it. In place
    /// of `selection.embeddings` of the configuration.
    #[arg(long, value_name = "URL", requires = "embeddings_model")]
    embeddings_url: Option<String>,
    /// The name of the model that makes embeddings.
    #[arg(long, value_name = "MODEL", requires = "embeddings_url")]
    embeddings_model: Option<String>,
    /// A file with the token for the service that makes embeddings.
    #[arg(long, value_name = "FILE", requires = "embeddings_url")]
    embeddings_token_file: Option<PathBuf>,
    /// How long the embedding of a request may take, such as `500ms`.
    #[arg(long, value_name = "TIME", requires = "embeddings_url", value_parser = humantime::parse_duration)]
    embeddings_timeout: Option<Duration>,
    /// Print what a judge would be asked, as JSON Lines, and ask none: `{"id", "key", "candidates", "request"}`. `request`
    /// is the body of the question, and `key` the SHA-256 of its bytes.
    #[arg(long, requires = "judge_model")]
    pub(super) print_judge_requests: bool,
}

/// Which services the strategy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedServices {
    /// Only the judge is asked.
    Judge,
    /// Only the service for embeddings is asked.
    Embeddings,
    /// Those that there are, and at least one.
    All,
}

/// What a judge says about the candidates for a request.
pub(super) struct JudgedOrder {
    /// What came of asking it.
    pub(super) outcome: SelectionOutcome,
    /// Those that fit, the best one first.
    pub(super) order: Vec<ToolIndex>,
}

impl JudgedOrder {
    /// The place of a tool, counted from 1.
    pub(super) fn place(&self, tool: ToolIndex) -> Option<usize> {
        self.order.iter().position(|one| *one == tool).map(|place| place + 1)
    }
}

/// The services that are ranked with.
pub(in crate::cli) struct Services {
    runtime: Runtime,
    judge: Option<ConnectedJudge>,
    embeddings: Option<EmbeddedTools>,
}

struct ConnectedJudge {
    judge: ToolJudge,
    candidates: usize,
}

struct EmbeddedTools {
    client: Embeddings,
    /// The embedding of each tool, in the order of the index.
    tools: Vec<Option<Embedding>>,
}

impl ServiceArgs {
    /// Whether the command line names a service.
    pub(super) const fn names_any(&self) -> bool {
        self.judge_url.is_some() || self.embeddings_url.is_some()
    }

    /// The name of the model of the judge.
    pub(super) fn judge_model(&self) -> &str {
        self.judge_model.as_deref().unwrap_or_default()
    }

    fn judge(
        &self,
        configured: Option<&SelectionSettings>,
    ) -> Result<Option<JudgeSettings>, String> {
        match (&self.judge_url, &self.judge_model) {
            (Some(url), Some(model)) => {
                let given = GivenService {
                    url: url.clone(),
                    model: model.clone(),
                    token_file: self.judge_token_file.clone(),
                    timeout: self.judge_timeout,
                };
                given.judge().map(Some).map_err(|why| format!("`--judge-url`: {why}"))
            }
            _ => Ok(configured.and_then(|one| one.judge.clone())),
        }
    }

    fn embeddings(
        &self,
        configured: Option<&SelectionSettings>,
    ) -> Result<Option<EmbeddingsSettings>, String> {
        match (&self.embeddings_url, &self.embeddings_model) {
            (Some(url), Some(model)) => {
                let given = GivenService {
                    url: url.clone(),
                    model: model.clone(),
                    token_file: self.embeddings_token_file.clone(),
                    timeout: self.embeddings_timeout,
                };
                given.embeddings().map(Some).map_err(|why| format!("`--embeddings-url`: {why}"))
            }
            _ => Ok(configured.and_then(|one| one.embeddings.clone())),
        }
    }

    /// Connects what the strategy wants. The embeddings of the tools are made here, before any request.
    pub(super) fn connect(
        &self,
        wanted: WantedServices,
        configured: Option<&SelectionSettings>,
        rows: &[ToolRow],
    ) -> Result<Services, String> {
        let judge = match wanted {
            WantedServices::Judge | WantedServices::All => self.judge(configured)?,
            WantedServices::Embeddings => None,
        };
        let embeddings = match wanted {
            WantedServices::Embeddings | WantedServices::All => self.embeddings(configured)?,
            WantedServices::Judge => None,
        };
        if judge.is_none() && embeddings.is_none() {
            let (flag, key) = match wanted {
                WantedServices::Judge => ("`--judge-url`", "`selection.judge`"),
                WantedServices::Embeddings => ("`--embeddings-url`", "`selection.embeddings`"),
                WantedServices::All => ("`--judge-url` or `--embeddings-url`", "`selection`"),
            };
            return Err(format!(
                "no service is known to rank with: give {flag}, or a configuration with {key}"
            ));
        }
        let tools: Vec<_> = rows.iter().map(|row| Arc::clone(&row.signature)).collect();
        Services::new(judge.as_ref(), embeddings.as_ref(), &tools)
    }
}

impl Services {
    pub(in crate::cli) fn new(
        judge: Option<&JudgeSettings>,
        embeddings: Option<&EmbeddingsSettings>,
        tools: &[Arc<ToolSignature>],
    ) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no threads: {error}"))?;
        let environment = doctor::environment(Limits::default(), MOST_TIME);
        let unusable = |error| format!("a service cannot be used: {}", ErrorChain(&error));
        let judge = judge.map(|settings| {
            let judge = ToolJudge::new(settings, &environment).map_err(unusable)?;
            Ok::<_, String>(ConnectedJudge { judge, candidates: settings.candidates })
        });
        let embeddings = embeddings.map(|settings| {
            let client = Embeddings::new(settings, &environment).map_err(unusable)?;
            let tools = runtime.block_on(embedded(&client, settings.batch, tools));
            Ok::<_, String>(EmbeddedTools { client, tools })
        });
        Ok(Self { judge: judge.transpose()?, embeddings: embeddings.transpose()?, runtime })
    }

    /// How many candidates the judge is shown; 0 without one.
    pub(in crate::cli) fn candidates(&self) -> usize {
        self.judge.as_ref().map_or(0, |judge| judge.candidates)
    }

    /// The embedding of a request, if the service makes one in time.
    pub(super) fn embedding(&self, request: &str) -> Option<Embedding> {
        let embeddings = self.embeddings.as_ref()?;
        let request = without_values(request, None);
        let made = self.runtime.block_on(embeddings.client.of_request(&holder(), &request));
        made.inspect_err(|outcome| {
            say(&format!("warning: a request has no embedding: {}", outcome.as_str()));
        })
        .ok()
    }

    /// The cosine between the embeddings of a request and of a tool.
    pub(super) fn cosine(&self, request: Option<&Embedding>, tool: ToolIndex) -> Option<f32> {
        let tools = &self.embeddings.as_ref()?.tools;
        cosine(request?, tools.get(tool.0 as usize)?.as_ref()?)
    }

    /// The places of the candidates that fit a request, the best one first, as the judge says; `None` without a judge.
    pub(in crate::cli) fn places(
        &self,
        request: &str,
        candidates: Vec<Arc<ToolSignature>>,
    ) -> Option<Result<Vec<u8>, SelectionOutcome>> {
        let (judge, count) = (&self.judge.as_ref()?.judge, candidates.len());
        let asked = judge
            .body(&question(request, candidates))
            .and_then(|body| self.runtime.block_on(judge.ask(&holder(), body, count)));
        Some(asked.inspect_err(|outcome| {
            say(&format!("warning: the judge gave no order: {}", outcome.as_str()));
        }))
    }

    /// What the judge says about the first tools for a request; `None` without a judge, and if there is nothing to order.
    pub(super) fn judged(
        &self,
        request: &str,
        hits: &[Hit],
        rows: &[ToolRow],
    ) -> Option<JudgedOrder> {
        let hits = hits.get(..self.candidates()).unwrap_or(hits);
        if hits.len() < 2 {
            return None;
        }
        Some(match self.places(request, signatures(hits, rows))? {
            Err(outcome) => JudgedOrder { outcome, order: Vec::new() },
            Ok(places) if places.is_empty() => {
                JudgedOrder { outcome: SelectionOutcome::NoneFits, order: Vec::new() }
            }
            Ok(places) => {
                let tool = |place: &u8| hits.get(usize::from(*place)).map(|hit| hit.tool);
                let order = places.iter().filter_map(tool).collect();
                JudgedOrder { outcome: SelectionOutcome::Answered, order }
            }
        })
    }
}

/// The embeddings of tools, in their order.
async fn embedded(
    client: &Embeddings,
    batch: usize,
    tools: &[Arc<ToolSignature>],
) -> Vec<Option<Embedding>> {
    let mut all = Vec::new();
    for tools in tools.chunks(batch.max(1)) {
        let texts: Vec<_> = tools.iter().map(|tool| text_of(tool)).collect();
        match client.of_definitions(&holder(), &texts).await {
            Ok(made) => all.extend(made.into_iter().map(Some)),
            Err(outcome) => {
                let (count, why) = (tools.len(), outcome.as_str());
                say(&format!("warning: {count} tools have no embedding: {why}"));
                all.extend(tools.iter().map(|_| None));
            }
        }
    }
    all
}

/// What a judge is asked. What looks like a secret is not sent.
fn question(request: &str, candidates: Vec<Arc<ToolSignature>>) -> JudgeQuestion {
    JudgeQuestion { request: without_values(request, None).into_owned(), candidates }
}

fn signatures(hits: &[Hit], rows: &[ToolRow]) -> Vec<Arc<ToolSignature>> {
    let signature = |hit: &Hit| {
        rows.get(hit.tool.0 as usize).map(|row| Arc::clone(&row.signature)).unwrap_or_default()
    };
    hits.iter().map(signature).collect()
}

/// A line with what a judge would be asked about the first tools for a request.
pub(super) fn printed_question(
    model: &str,
    request: &RequestRow,
    hits: &[Hit],
    rows: &[ToolRow],
) -> String {
    let body = question_body(model, &question(&request.query, signatures(hits, rows)));
    let id = &request.id;
    let ids: Vec<_> =
        hits.iter().filter_map(|hit| rows.get(hit.tool.0 as usize)).map(|row| &row.id).collect();
    // The body as it is sent, so that its digest is that of the bytes in the line.
    format!(
        "{{\"id\":{id},\"key\":\"{}\",\"candidates\":{},\"request\":{}}}",
        json::hex::encode(&sha256(&body)),
        serde_json::json!(ids),
        String::from_utf8_lossy(&body)
    )
}

fn holder() -> Holder {
    Holder::Network(IpAddr::V4(Ipv4Addr::LOCALHOST))
}
