//! `portcullis select`: ranks the tools of a file, or those that a lockfile approves, for requests in a person's words,
//! without a gateway.

mod rows;
mod approved;

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
    /// What the tools are ranked by.
    #[arg(long, value_enum, default_value_t = StrategyName::Fused)]
    strategy: StrategyName,
    /// Add the scores of each tool, the words that led to it, and which tools are too close to prefer one.
    #[arg(long)]
    explain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StrategyName {
    /// Words that the request and the definition share.
    Lexical,
    /// Where the request and the definition point as a whole.
    Semantic,
    /// All of it, as discovery on a route does.
    Fused,
}

impl StrategyName {
    const fn strategy(self) -> Strategy {
        match self {
            Self::Lexical => Strategy::Lexical,
            Self::Semantic => Strategy::Semantic,
            Self::Fused => Strategy::Fused,
        }
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
}

impl Selection {
    fn read(select: &SelectArgs) -> Result<Self, ExitCode> {
        let configured = select.config.as_deref().map(settings).transpose()?;
        let weights = configured.as_ref().map(|configured| configured.selection.weights);
        let rows = match (&select.tools, configured) {
            (Some(file), _) => tools(file).map_err(|why| complain(&why))?,
            (None, Some(settings)) => approved::tools(settings, select.principal.as_deref())?,
            (None, None) => Vec::new(),
        };
        let selection = Self::of(select, rows).map_err(|why| complain(&why))?;
        Ok(Self { weights: weights.unwrap_or_default(), ..selection })
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
            strategy: select.strategy.strategy(),
            limit: usize::from(select.limit).min(MAX_LIMIT),
            explain: select.explain,
        })
    }

    fn id(&self, tool: ToolIndex) -> &str {
        self.tools.get(tool.0 as usize).map_or("", |row| &row.id)
    }

    fn ranking(&self, query: &str) -> Ranking {
        let query = Query::new(Model::built_in(), query);
        let search = Search { strategy: self.strategy, limit: self.limit, weights: &self.weights };
        self.index.search(&query, &search, |_| true, |_| Signals::default())
    }

    /// The answer to a request of a file.
    fn for_programs(&self, request: &RequestRow) -> Value {
        let began = SystemClock.instant();
        let ranking = self.ranking(&request.query);
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let tools: Vec<_> = ranking.hits.iter().map(|hit| self.id(hit.tool)).collect();
        let mut answer = json!({ "id": request.id, "tools": tools, "micros": micros });
        if self.explain
            && let Some(members) = answer.as_object_mut()
        {
            let scores: Vec<_> = ranking.hits.iter().map(|hit| self.scored(hit)).collect();
            members.insert("scores".to_owned(), json!(scores));
            let close = ranking.ambiguity.iter().flat_map(|close| &close.tools);
            let close: Vec<_> = close.map(|one| self.distinguished(one)).collect();
            members.insert("close".to_owned(), json!(close));
        }
        answer
    }

    fn scored(&self, hit: &Hit) -> Value {
        let matched = |one: &WordMatch| json!({ "asked": one.asked, "found": one.found, "similarity": one.similarity });
        json!({
            "tool": self.id(hit.tool),
            "score": hit.score,
            "lexical": hit.scores.lexical,
            "soft": hit.scores.soft,
            "semantic": hit.scores.semantic,
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
        let ranking = self.ranking(query);
        if ranking.hits.is_empty() {
            return "no tool matches\n".to_owned();
        }
        let mut text = String::new();
        for (place, hit) in (1..).zip(&ranking.hits) {
            text += &format!("{place}. {}\n", self.id(hit.tool));
            if self.explain {
                text += &reasons(hit);
            }
        }
        if let Some(ambiguity) = ranking.ambiguity.filter(|_| self.explain) {
            text += &self.close(&ambiguity);
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
fn reasons(hit: &Hit) -> String {
    let scores = hit.scores;
    let words: Vec<_> = hit.matches.iter().map(matched).collect();
    let words = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    format!(
        "   score {:.2}: shared words {:.1}, similar words {:.1}, direction {:.2}\n   words: {words}\n",
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
