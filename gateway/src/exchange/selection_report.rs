//! How the gateway would rank the tools of a route for a request of some caller, for operators. Nothing is asked of a
//! server: the lists are those that the gateway has read by itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
use policy::engine::pipeline::{Facts, Policy};
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use selector::fusion::{Signals, Strategy};
use selector::index::{Index, PreparedTool, Search};
use selector::model::Model;
use selector::query::Query;
use selector::ranking::{Hit, Ranking, ToolIndex};
use selector::tool::ToolText;

use super::{Gateway, Route};
use crate::base::offload::OffloadError;

/// Most tools that are ranked. Those of the last servers of the route are left out.
const MAX_TOOLS: usize = 4096;
/// Estimated bytes of a definition, for the work that reading it takes.
const EACH_TOOL: usize = 1024;

/// What a ranking is asked for.
#[derive(Clone, Debug)]
pub struct RankingQuestion {
    /// The caller as which it is asked.
    pub principal: Principal,
    /// The path of the route.
    pub route: Box<str>,
    /// The request in words.
    pub query: String,
    /// Most tools of the answer.
    pub limit: usize,
}

/// A tool in a ranking.
#[derive(Clone, Debug)]
pub struct RankedTool {
    /// Its name on the route.
    pub name: String,
    /// The name of its server.
    pub server: Box<str>,
    /// Its scores, and the words that led to it.
    pub hit: Hit,
    /// What is known of it besides its definition.
    pub signals: Signals,
}

/// The ranking of the tools that a caller may use.
#[derive(Clone, Debug, Default)]
pub struct RankingReport {
    /// The tools, the best one first.
    pub tools: Vec<RankedTool>,
    /// The names of those that are too close to prefer one.
    pub close: Vec<String>,
    /// The servers whose lists the gateway has not read by itself.
    pub missing: Vec<Box<str>>,
    /// The services that help to rank for callers and were not asked, by their keys in `selection`.
    pub not_asked: Vec<&'static str>,
}

/// Why there is no ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRanking {
    /// There is no such route, or it has no discovery.
    Route,
    /// There is too much other work.
    Overload,
}

/// A tool that the caller may use.
struct UsableTool {
    server: ServerName,
    own_name: Box<str>,
    text: ToolText,
}

impl Gateway {
    /// Ranks the tools of a route with discovery as it does for this caller. What the caller may not use is not in it.
    ///
    /// # Errors
    /// If there is no such route, or too much other work.
    pub async fn ranking(&self, question: RankingQuestion) -> Result<RankingReport, NoRanking> {
        let RankingQuestion { principal, route, query, limit } = question;
        let route = self.routes.get(&route).filter(|route| route.discovery.is_some());
        let route = Arc::clone(route.ok_or(NoRanking::Route)?);
        let (catalogs, missing) = known_catalogs(&route);
        let left_out: Vec<_> =
            catalogs.iter().map(|one| self.left_out(&route, one).unwrap_or_default()).collect();
        let principal = Arc::new(principal);
        let source = self.signal_source_of(&route, &principal, None);
        let weights = self.selection.weights;
        let least = if source.asks_others() { self.limits.inspected_inline } else { 0 };
        let count: usize = catalogs.iter().map(|one| one.offers().len()).sum();
        let look = move |policy: &Policy, facts: &Facts, who: &Arc<Principal>, _: &WorkBudget| {
            let shows = |server: &ServerName, offer: &CatalogItem| {
                policy.about(facts, who, server, offer).shows()
            };
            let tools = usable(&catalogs, &left_out, shows);
            let model = Model::built_in();
            let prepared: Vec<_> =
                tools.iter().map(|tool| PreparedTool::new(model, &tool.text)).collect();
            let query = Query::new(model, &query);
            let names = tools.iter().map(|tool| (tool.server.as_str(), &*tool.own_name));
            let signals = source.of_names(&query, &names.collect::<Vec<_>>());
            let known = |tool: ToolIndex| signals.get(tool.0 as usize).copied().unwrap_or_default();
            let search = Search { strategy: Strategy::Fused, limit, weights: &weights };
            let index = Index::build(model, &prepared);
            let ranking = index.search(&query, &search, |_| true, known);
            (tools, signals, ranking)
        };
        let bytes = count.saturating_mul(EACH_TOOL).max(least);
        let looked = self.inspect(&principal, bytes, look).await;
        let (tools, signals, ranking) =
            looked.map_err(|_refused: OffloadError| NoRanking::Overload)?;
        let ranked = report(&route, &tools, &signals, ranking);
        Ok(RankingReport { missing, not_asked: self.selection_services.names(), ..ranked })
    }
}

/// The lists of tools that the gateway has read by itself, and the servers of which it has none.
fn known_catalogs(route: &Route) -> (Vec<Arc<Catalog>>, Vec<Box<str>>) {
    let (mut catalogs, mut missing) = (Vec::new(), Vec::new());
    for server in &route.servers {
        match server.last_catalog(ItemKind::Tool) {
            Some(catalog) => catalogs.push(catalog),
            None => missing.push(server.name().as_str().into()),
        }
    }
    (catalogs, missing)
}

/// The tools of the lists that the caller is shown.
fn usable(
    catalogs: &[Arc<Catalog>],
    left_out: &[Arc<BTreeSet<Box<str>>>],
    shows: impl Fn(&ServerName, &CatalogItem) -> bool,
) -> Vec<UsableTool> {
    let mut tools = Vec::new();
    for (catalog, left_out) in catalogs.iter().zip(left_out) {
        let server = catalog.server();
        for offer in catalog.offers() {
            let name = offer.name().as_str();
            if tools.len() < MAX_TOOLS && !left_out.contains(name) && shows(server, offer) {
                let text = ToolText::read(server.as_str(), offer.definition());
                tools.push(UsableTool { server: server.clone(), own_name: name.into(), text });
            }
        }
    }
    tools
}

fn report(
    route: &Route,
    tools: &[UsableTool],
    signals: &[Signals],
    ranking: Ranking,
) -> RankingReport {
    let name = |tool: &UsableTool| {
        let others = tools.iter().filter(|other| other.server != tool.server);
        let taken: BTreeSet<Box<str>> = others.map(|other| other.own_name.clone()).collect();
        let naming = route.naming(&tool.server, Arc::new(taken));
        let shown = naming.show(&tool.server, ItemKind::Tool, &tool.own_name);
        shown.map_or_else(|| String::from(&*tool.own_name), std::borrow::Cow::into_owned)
    };
    let at = |tool: ToolIndex| tools.get(tool.0 as usize);
    let close = ranking.ambiguity.iter().flat_map(|close| &close.tools);
    let close = close.filter_map(|one| at(one.tool)).map(name).collect();
    let ranked = ranking.hits.into_iter().filter_map(|hit| {
        let tool = at(hit.tool)?;
        let signals = signals.get(hit.tool.0 as usize).copied().unwrap_or_default();
        Some(RankedTool { name: name(tool), server: tool.server.as_str().into(), hit, signals })
    });
    RankingReport { tools: ranked.collect(), close, ..RankingReport::default() }
}
