//! `portcullis select`: ranks the tools of a file, or those that a lockfile approves, for requests in a person's words,
//! without a gateway.

mod rows;
mod approved;
pub(super) mod services;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use gateway::base::clock::{Clock as _, SystemClock};
use selector::fusion::{Signals, Strategy, Weights};
use selector::index::{Index, MAX_LIMIT, MAX_TOOLS, PreparedTool, Search};
use selector::model::Model;
use selector::query::{MAX_QUERY_BYTES, Query};
use selector::ranking::{Ambiguity, Distinction, Hit, Ranking, ToolIndex, WordMatch};
use serde_json::{Value, json};

use super::printable::printable;
use super::{complain, settings};
use rows::{RequestRow, ToolRow, requests, tools};
use services::{JudgedOrder, ServiceArgs, Services, WantedServices, printed_question};

/// How many candidates are in a printed question to a judge: as many as a configuration shows it by default.
const PRINTED_CANDIDATES: usize = 10;

#[derive(Debug, Args)]
pub(super) struct SelectArgs {
    /// The request. The answer is for people then.
    #[arg(value_name = "QUERY", required_unless_present = "queries", conflicts_with = "queries")]
    query: Option<String>,
    /// The tools, as JSON Lines: `{"tool_id", "server", "tool": {…}}`.
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    tools: Option<PathBuf>,
    /// The configuration whose `selection` ranks the tools. Without `--tools` these are those that its lockfile
    /// approves, with the ids `SERVER/NAME`.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only the tools that this principal would be shown. Default: those that the rules allow anybody.
    #[arg(long, value_name = "ID", requires = "config", conflicts_with = "tools")]
    principal: Option<String>,
    /// Requests, as JSON Lines: `{"id", "query"}`. The answer is JSON Lines then: `{"id", "tools", "micros"}`.
    #[arg(long, value_name = "FILE")]
    queries: Option<PathBuf>,
    /// Most tools of an answer.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// What the tools are ranked by. Default: `fused`, or `all` if the command line names a service.
    #[arg(long, value_enum)]
    strategy: Option<StrategyName>,
    /// Add the scores of each tool, the words that led to it, and which tools are too close to prefer one.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    services: ServiceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StrategyName {
    /// Words that the request and the definition share.
    Lexical,
    /// Where the request and the definition point as a whole.
    Semantic,
    /// All that the definition says, as discovery on a route does without services.
    Fused,
    /// The same, with the embeddings of a service.
    Embeddings,
    /// Like `fused`, with the first tools in the order of a judge.
    Judge,
    /// With embeddings and a judge, as far as there are such services: as discovery on a route does that has them.
    All,
}

impl StrategyName {
    const fn strategy(self) -> Strategy {
        match self {
            Self::Lexical => Strategy::Lexical,
            Self::Semantic => Strategy::Semantic,
            Self::Fused | Self::Embeddings | Self::Judge | Self::All => Strategy::Fused,
        }
    }

    const fn services(self) -> Option<WantedServices> {
        match self {
            Self::Lexical | Self::Semantic | Self::Fused => None,
            Self::Embeddings => Some(WantedServices::Embeddings),
            Self::Judge => Some(WantedServices::Judge),
            Self::All => Some(WantedServices::All),
        }
    }
}

impl SelectArgs {
    fn strategy(&self) -> StrategyName {
        let names_service = self.services.names_any() && !self.services.print_judge_requests;
        let usual = if names_service { StrategyName::All } else { StrategyName::Fused };
        self.strategy.unwrap_or(usual)
    }
}

pub(super) fn run(select: &SelectArgs) -> ExitCode {
    // Everything is read before anything is printed: an answer for half of a file would look like one for all of it.
    let selection = Selection::read(select);
    let selection = match selection {
        Ok(selection) => selection,
        Err(code) => return code,
    };
    let mut out = io::stdout().lock();
    let written = match &select.query {
        query if select.services.print_judge_requests => {
            let given = query.iter().map(|query| RequestRow { id: json!(0), query: query.clone() });
            let all: Vec<_> = selection.requests.iter().cloned().chain(given).collect();
            let model = select.services.judge_model();
            all.iter().try_for_each(|one| writeln!(out, "{}", selection.question(model, one)))
        }
        Some(query) => write!(out, "{}", printable(&selection.for_people(query))),
        None => selection.requests.iter().try_for_each(|request| {
            writeln!(out, "{}", printable(&selection.for_programs(request).to_string()))
        }),
    };
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(super::FAILED) }
}

/// The tools and the requests of the files.
struct Selection {
    tools: Vec<ToolRow>,
    requests: Vec<RequestRow>,
    index: Index,
    weights: Weights,
    strategy: Strategy,
    limit: usize,
    explain: bool,
    services: Option<Services>,
}

/// The answer to a request, and what a judge has said.
struct RankedTools {
    ranking: Ranking,
    judged: Option<JudgedOrder>,
}

impl RankedTools {
    /// The place that the judge gave a tool, counted from 1.
    fn place(&self, tool: ToolIndex) -> Option<usize> {
        self.judged.as_ref()?.place(tool)
    }
}

impl Selection {
    fn read(select: &SelectArgs) -> Result<Self, ExitCode> {
        let configured = select.config.as_deref().map(settings).transpose()?;
        let ranked_by = configured.as_ref().map(|configured| configured.selection.clone());
        let rows = match (&select.tools, configured) {
            (Some(file), _) => tools(file).map_err(|why| complain(&why))?,
            (None, Some(settings)) => approved::tools(settings, select.principal.as_deref())?,
            (None, None) => Vec::new(),
        };
        let selection = Self::of(select, rows).map_err(|why| complain(&why))?;
        let services = select.strategy().services().map(|wanted| {
            let connected = select.services.connect(wanted, ranked_by.as_ref(), &selection.tools);
            connected.map_err(|why| complain(&why))
        });
        let weights = ranked_by.map(|ranked_by| ranked_by.weights).unwrap_or_default();
        Ok(Self { weights, services: services.transpose()?, ..selection })
    }

    fn of(select: &SelectArgs, tools: Vec<ToolRow>) -> Result<Self, String> {
        if tools.len() > MAX_TOOLS {
            let count = tools.len();
            return Err(format!("there are {count} tools; at most {MAX_TOOLS} can be searched"));
        }
        if select.query.as_ref().is_some_and(|query| query.len() > MAX_QUERY_BYTES) {
            return Err(format!("the query is longer than {MAX_QUERY_BYTES} bytes"));
        }
        let requests = select
            .queries
            .as_deref()
            .map_or_else(|| Ok(Vec::new()), |file: &Path| requests(file))?;
        let model = Model::built_in();
        let prepared: Vec<_> =
            tools.iter().map(|row| PreparedTool::new(model, &row.text)).collect();
        Ok(Self {
            index: Index::build(model, &prepared),
            tools,
            requests,
            weights: Weights::default(),
            strategy: select.strategy().strategy(),
            limit: usize::from(select.limit).min(MAX_LIMIT),
            explain: select.explain,
            services: None,
        })
    }

    fn id(&self, tool: ToolIndex) -> &str {
        self.tools.get(tool.0 as usize).map_or("", |row| &row.id)
    }

    fn search(&self, limit: usize) -> Search<'_> {
        Search { strategy: self.strategy, limit, weights: &self.weights }
    }

    fn ranking(&self, request: &str) -> RankedTools {
        let query = Query::new(Model::built_in(), request);
        let services = self.services.as_ref();
        let embedding = services.and_then(|services| services.embedding(request));
        let limit = services.map_or(0, Services::candidates).max(self.limit);
        let signals = |_: ToolIndex| Signals::default();
        let cosine = |tool: ToolIndex| services?.cosine(embedding.as_ref(), tool);
        let search = self.search(limit);
        let ranking = self.index.search_embedded(&query, &search, |_| true, signals, cosine);
        let Some(services) = services else { return RankedTools { ranking, judged: None } };
        let judged = services.judged(request, &ranking.hits, &self.tools);
        let order = judged.as_ref().map_or(&[][..], |judged| &judged.order);
        let ranking = self.index.judged(ranking, &self.search(self.limit), order);
        RankedTools { ranking, judged }
    }

    /// What a judge would be asked for a request, as a line.
    fn question(&self, model: &str, request: &RequestRow) -> String {
        let query = Query::new(Model::built_in(), &request.query);
        let search = self.search(PRINTED_CANDIDATES);
        let ranking = self.index.search(&query, &search, |_| true, |_| Signals::default());
        printed_question(model, request, &ranking.hits, &self.tools)
    }

    /// The answer to a request of a file.
    fn for_programs(&self, request: &RequestRow) -> Value {
        let began = SystemClock.instant();
        let ranked = self.ranking(&request.query);
        let ranking = &ranked.ranking;
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let tools: Vec<_> = ranking.hits.iter().map(|hit| self.id(hit.tool)).collect();
        let mut answer = json!({ "id": request.id, "tools": tools, "micros": micros });
        if self.explain
            && let Some(members) = answer.as_object_mut()
        {
            let scored = |hit: &Hit| self.scored(hit, ranked.place(hit.tool));
            let scores: Vec<_> = ranking.hits.iter().map(scored).collect();
            members.insert("scores".to_owned(), json!(scores));
            if let Some(judged) = &ranked.judged {
                members.insert("judge".to_owned(), json!(judged.outcome.as_str()));
            }
            let close = ranking.ambiguity.iter().flat_map(|close| &close.tools);
            let close: Vec<_> = close.map(|one| self.distinguished(one)).collect();
            members.insert("close".to_owned(), json!(close));
        }
        answer
    }

    fn scored(&self, hit: &Hit, judged: Option<usize>) -> Value {
        let matched = |one: &WordMatch| json!({ "asked": one.asked, "found": one.found, "similarity": one.similarity });
        json!({
            "tool": self.id(hit.tool),
            "score": hit.score,
            "lexical": hit.scores.lexical,
            "soft": hit.scores.soft,
            "semantic": hit.scores.semantic,
            "embedding": hit.scores.embedding,
            "judged": judged,
            "words": hit.matches.iter().map(matched).collect::<Vec<_>>(),
        })
    }

    fn distinguished(&self, one: &Distinction) -> Value {
        json!({
            "tool": self.id(one.tool),
            "server": one.server,
            "words": one.words,
            "parameters": one.parameters,
        })
    }

    /// The answer to the request of the command line.
    fn for_people(&self, query: &str) -> String {
        let ranked = self.ranking(query);
        let ranking = &ranked.ranking;
        if ranking.hits.is_empty() {
            return "no tool matches\n".to_owned();
        }
        let mut text = String::new();
        for (place, hit) in (1..).zip(&ranking.hits) {
            text += &format!("{place}. {}\n", self.id(hit.tool));
            if self.explain {
                text += &reasons(hit, ranked.place(hit.tool));
            }
        }
        if let Some(judged) = ranked.judged.as_ref().filter(|_| self.explain) {
            text += &format!("judge: {}\n", judged.outcome.as_str());
        }
        if let Some(ambiguity) = ranking.ambiguity.as_ref().filter(|_| self.explain) {
            text += &self.close(ambiguity);
        }
        text
    }

    fn close(&self, ambiguity: &Ambiguity) -> String {
        let mut text = "too close to prefer one; they differ in:\n".to_owned();
        for one in &ambiguity.tools {
            let server = one.server.iter().map(|server| format!("server {server}"));
            let listed = |what: &str, words: &[String]| {
                (!words.is_empty()).then(|| format!("{what} {}", words.join(", ")))
            };
            let words = listed("words", &one.words);
            let parameters = listed("parameters", &one.parameters);
            let parts: Vec<_> = server.chain(words).chain(parameters).collect();
            let parts = if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") };
            text += &format!("   {}: {parts}\n", self.id(one.tool));
        }
        text
    }
}

/// Why a tool was found, in two lines.
fn reasons(hit: &Hit, judged: Option<usize>) -> String {
    let scores = hit.scores;
    let embedding = scores.embedding.map(|cosine| format!(", embedding {cosine:.2}"));
    let judged = judged.map(|place| format!(", place {place} of the judge"));
    let more = embedding.unwrap_or_default() + &judged.unwrap_or_default();
    let words: Vec<_> = hit.matches.iter().map(matched).collect();
    let words = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    format!(
        "   score {:.2}: shared words {:.1}, similar words {:.1}, direction {:.2}{more}\n   words: {words}\n",
        hit.score, scores.lexical, scores.soft, scores.semantic
    )
}

fn matched(one: &WordMatch) -> String {
    if one.similarity >= 1.0 {
        one.found.clone()
    } else {
        format!("{} ~ {} ({:.2})", one.asked, one.found, one.similarity)
    }
}
