//! `portcullis weights`: chooses what the scores of a selection count by an audit log: which tools callers used after which
//! requests. Nothing is changed: the section that would be better is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use gateway::config::settings::{SelectionSettings, Settings};
use gateway::control::dry_run::DryRun;
use gateway::session::selection_history::MAX_OPEN_REQUESTS;
use json::Value;
use policy::definition::offer::{CatalogItem, ItemKind};
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use selector::fusion::Weights;
use selector::index::{Index, MAX_TOOLS, PreparedTool};
use selector::learning::{
    JudgedRequest, LEAST_CALLERS, LEAST_REQUESTS, LearnedWeights, Measured, TooLittle, learn,
};
use selector::model::Model;
use selector::query::Query;
use selector::ranking::ToolIndex;
use selector::tool::ToolText;

use super::policy::recorded_name;
use super::policy::simulate::{RecordedCaller, caller};
use super::{audit, complain, print_for_people, say, settings};

/// Most requests that are learned from: the first ones of the log.
const MAX_REQUESTS: usize = 20_000;

#[derive(Debug, Args)]
pub(super) struct WeightsArgs {
    /// The configuration whose lockfile has the tools, and whose `selection` is compared.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// The files of an audit log that has requests (`selection.history.record: queries`), or `-` for standard input. The
    /// rotated files beside a file are read as well.
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    audit: Vec<PathBuf>,
}

pub(super) fn run(weights: &WeightsArgs) -> ExitCode {
    match advised(weights) {
        Ok(code) | Err(code) => code,
    }
}

fn advised(weights: &WeightsArgs) -> Result<ExitCode, ExitCode> {
    let mut settings = settings(&weights.config)?;
    let current = settings.selection.weights;
    let rehearsal = DryRun::new(&mut settings)
        .map_err(|error| complain(&gateway::base::error_chain::ErrorChain(&error).to_string()))?;
    let mut uses = LoggedUses::default();
    let read = audit::each(&weights.audit, &mut |record| uses.read(record, &settings));
    let unread = read.map_err(|error| complain(&error.to_string()))?;
    if unread > 0 {
        say(&format!("{unread} lines are no records; `portcullis audit verify` says why"));
    }
    if uses.requests == 0 {
        return Err(complain(
            "the log has no requests for tools: set `selection.history.record: queries`, and let callers work for a while",
        ));
    }
    let catalogue = Catalogue::new(&settings, &rehearsal);
    let mut asked = BTreeSet::new();
    let mut judged = Vec::new();
    for one in &uses.found {
        if let Some(request) = catalogue.judged(one) {
            asked.insert(one.query.trim().to_lowercase());
            judged.push(request);
        }
    }
    let learned = learn(&judged, &current).map_err(|little| complain(&too_little(little)))?;
    let counts = LoggedCounts { all: uses.requests, different: asked.len() };
    let text = told(counts, &learned, &settings.selection);
    if !learned.is_gain() {
        print_for_people(&text);
        return Err(complain(
            "no other weights are advised: the interval of the gain includes none",
        ));
    }
    Ok(print_for_people(&(text + &section(&learned.weights))))
}

fn too_little(little: TooLittle) -> String {
    match little {
        TooLittle::Requests(number) => format!(
            "nothing is advised: {number} requests were followed by the call of a tool that is approved; at least \
             {LEAST_REQUESTS} are needed"
        ),
        TooLittle::Callers(number) => format!(
            "nothing is advised: the requests are of {number} callers; at least {LEAST_CALLERS} are needed, because weights \
             are tried on callers that they were not chosen on"
        ),
    }
}

/// How many requests a log has.
#[derive(Clone, Copy)]
struct LoggedCounts {
    /// All requests for tools.
    all: usize,
    /// How many different texts those have that are learned from.
    different: usize,
}

fn told(counts: LoggedCounts, learned: &LearnedWeights, configured: &SelectionSettings) -> String {
    let SelectionSettings { weights: current, window, .. } = configured;
    let measured = |of: Measured| format!("{:.3} ({:.3} to {:.3})", of.mean, of.low, of.high);
    let mut text = String::new();
    let LearnedWeights { requests, callers, before, after, gain, weights } = learned;
    writeln!(
        text,
        "# {requests} of {} requests were followed by a call within {}, of {callers} callers.\n\
         # {} different requests are among them: the same one again says little more.\n\
         # Mean reciprocal rank of the tool that was used, with intervals at 95 %, on callers whose requests were not used:\n\
         #   words {}, similarWords {}, direction {}: {}\n\
         #   words {}, similarWords {}, direction {}: {}\n\
         #   gain: {}",
        counts.all,
        humantime::format_duration(*window),
        counts.different,
        current.lexical, current.soft, current.semantic, measured(*before),
        weights.lexical, weights.soft, weights.semantic, measured(*after),
        measured(*gain),
    )
    .unwrap_or_default();
    text
}

/// The section of a configuration with the weights: all of them, so that it can stand in place of the present one.
fn section(weights: &Weights) -> String {
    let Weights { lexical, soft, semantic, history, available, judged, embedding, close } = weights;
    format!(
        "selection:\n  weights:\n    words: {lexical}\n    similarWords: {soft}\n    direction: {semantic}\n    history: \
         {history}\n    available: {available}\n    judged: {judged}\n    embedding: {embedding}\n    close: {close}\n"
    )
}

fn text(record: Value<'_>, name: &str) -> Option<String> {
    Some(record.get(name)?.as_str()?.into_owned())
}

/// A request that no call has followed yet.
struct OpenRequest {
    route: String,
    query: String,
    tools: BTreeSet<String>,
    at: SystemTime,
}

/// A request with the call that followed it.
struct LoggedUse {
    /// The principal with its client.
    key: String,
    principal: Box<Principal>,
    route: String,
    query: String,
    server: String,
    tool: String,
}

/// The requests of a log, with the calls that followed them.
#[derive(Default)]
struct LoggedUses {
    open: BTreeMap<String, Vec<OpenRequest>>,
    found: Vec<LoggedUse>,
    /// All requests for tools.
    requests: usize,
}

impl LoggedUses {
    fn read(&mut self, record: Value<'_>, settings: &Settings) {
        let text = |name: &str| text(record, name);
        // A call with a reason waits for its caller, and has not ended.
        let is_answered =
            text("outcome").as_deref() == Some("answered") && text("reason").is_none();
        if text("event").as_deref() != Some("exchange") || !is_answered {
            return;
        }
        let (Some(principal), Some(route), Some(tool)) =
            (text("principal"), text("route"), text("tool"))
        else {
            return;
        };
        let time = text("time").and_then(|time| humantime::parse_rfc3339(&time).ok());
        let Some(at) = time else { return };
        // A principal with another client is another caller, as in the history of the gateway.
        let key = format!("{principal}\0{}", text("client").unwrap_or_default());
        let open = self.open.entry(key.clone()).or_default();
        if let Some(query) = text("query") {
            self.requests += 1;
            let tools = record.get("tools").into_iter().flat_map(Value::items);
            let tools: BTreeSet<_> =
                tools.filter_map(|tool| Some(tool.as_str()?.into_owned())).collect();
            if tools.is_empty() {
                return;
            }
            if open.len() >= MAX_OPEN_REQUESTS {
                open.remove(0);
            }
            open.push(OpenRequest { route, query, tools, at });
            return;
        }
        let Some(server) = text("server") else { return };
        // Both times are those at which the gateway received the requests.
        let is_soon = |open: &OpenRequest| {
            at.duration_since(open.at).is_ok_and(|after| after < settings.selection.window)
        };
        let follows =
            |open: &OpenRequest| open.route == route && open.tools.contains(&tool) && is_soon(open);
        let Some(place) = open.iter().rposition(follows) else { return };
        let OpenRequest { query, .. } = open.remove(place);
        let RecordedCaller::Known(principal) = caller(record, settings) else { return };
        if self.found.len() < MAX_REQUESTS {
            self.found.push(LoggedUse { key, principal, route, query, server, tool });
        }
    }
}

/// The tools that the lockfile approves.
struct Catalogue<'a> {
    settings: &'a Settings,
    rehearsal: &'a DryRun,
    tools: Vec<CatalogueTool<'a>>,
    index: Index,
}

struct CatalogueTool<'a> {
    server: &'a ServerName,
    offer: &'a CatalogItem,
}

impl<'a> Catalogue<'a> {
    fn new(settings: &'a Settings, rehearsal: &'a DryRun) -> Self {
        let offers = rehearsal.offers().filter(|(_, offer)| offer.kind() == ItemKind::Tool);
        let tools: Vec<_> =
            offers.map(|(server, offer)| CatalogueTool { server, offer }).take(MAX_TOOLS).collect();
        let model = Model::built_in();
        let prepared = tools.iter().map(|tool| {
            let text = ToolText::read(tool.server.as_str(), tool.offer.definition());
            PreparedTool::new(model, &text)
        });
        let index = Index::build(model, &prepared.collect::<Vec<_>>());
        Self { settings, rehearsal, tools, index }
    }

    /// The scores of the tool that was used, and of the others that the caller could have used on the route. `None` if the
    /// tool is not among them any more, or does not fit the request at all.
    fn judged(&self, logged: &LoggedUse) -> Option<JudgedRequest> {
        let server = ServerName::parse(&logged.server).ok()?;
        let route = self.settings.routes.iter().find(|route| *route.path == *logged.route)?;
        let servers = route.servers.iter().filter_map(|place| self.settings.servers.get(*place));
        let servers: BTreeSet<&ServerName> = servers.map(|server| &server.name).collect();
        let shown = (logged.tool.as_str(), Some(logged.route.as_str()));
        let name = recorded_name(self.settings, self.rehearsal, &server, ItemKind::Tool, shown)?;
        let (policy, facts) = (self.rehearsal.policy(), self.rehearsal.policy().facts());
        let is_allowed = |tool: &CatalogueTool<'_>| {
            servers.contains(tool.server)
                && policy.about(&facts, &logged.principal, tool.server, tool.offer).shows()
        };
        let allowed: Vec<bool> = self.tools.iter().map(is_allowed).collect();
        let is_listed = |tool: ToolIndex| allowed.get(tool.0 as usize).copied().unwrap_or(false);
        let query = Query::new(Model::built_in(), &logged.query);
        let (mut used, mut others) = (None, Vec::new());
        for (tool, scores) in self.index.relative_scores(&query, is_listed) {
            let is_used = self
                .tools
                .get(tool.0 as usize)
                .is_some_and(|tool| *tool.server == server && *tool.offer.name().as_str() == *name);
            if is_used { used = Some(scores) } else { others.push(scores) }
        }
        Some(JudgedRequest { caller: logged.key.clone(), used: used?, others })
    }
}
