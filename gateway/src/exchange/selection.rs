//! The ranking of the tools of a route for a request: what is known of each tool, the search, and what services say that
//! the operator has configured for it.
//!
//! Only tools of the list that the caller may see now are ranked, and only those are named to a service. A service that
//! does not answer, or badly, leaves the order as the selector has it. A request is sent to a service in the form in which
//! it would be sent to a server of the route: what is removed from arguments is removed from it.

use std::sync::Arc;
use std::time::Instant;

use detection::content::without_values;
use json::{Document, JsonBounds, write_string};
use policy::engine::pipeline::{Facts, Policy};
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use selector::fusion::{Signals, Strategy};
use selector::index::{Index, Search};
use selector::model::Model;
use selector::query::Query;
use selector::ranking::{Hit, Ranking, ToolIndex};

use super::selection_signals::SignalSource;
use super::tool_embeddings::ToolEmbeddings;
use super::tool_index::{BuiltIndex, CallerListing, ListedPlace};
use super::{DecodedRequest, Gateway};
use crate::base::expiring_cache::{CacheKey, ExpiringCache};
use crate::base::sha256::sha256;
use crate::base::share::Holder;
use crate::config::settings::SelectionSettings;
use crate::edge::failure::Failure;
use crate::metrics::selection_outcome::SelectionOutcome;
use crate::outbound::embeddings::Embedding;
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::tool_judge::{JudgeQuestion, ToolJudge};
use crate::session::selection_history::HistoryTool;

/// Most tools among which a thread that serves clients searches.
const MAX_INLINE_TOOLS: usize = 1024;
/// Estimated bytes of an answer of a judge in the cache, besides its numbers.
const ANSWER: usize = 128;
/// Most definitions that one search notes because they have no embedding.
const MAX_NOTED: usize = 256;

/// A request for tools.
#[derive(Debug)]
pub(super) struct FindRequest {
    pub(super) query: String,
    pub(super) limit: usize,
}

/// What a search found, with the lists that it searched.
pub(super) struct SearchedLists {
    pub(super) index: Arc<BuiltIndex>,
    pub(super) places: Vec<Option<ListedPlace>>,
    query: Query,
    pub(super) ranking: Ranking,
}

impl SearchedLists {
    /// Drops the tools that the present lists of the caller lack, or have with another definition.
    pub(super) fn keep_listed(&mut self, shown: &[CallerListing], present: &[CallerListing]) {
        let is_listed = |hit: &Hit| {
            let place = (*self.places.get(hit.tool.0 as usize)?)?;
            let (listing, written) = shown.get(place.list)?;
            let (server, item) = (listing.catalog().server(), written.items().get(place.item)?);
            let of_server = present.iter().filter(|(one, _)| one.catalog().server() == server);
            let mut same = of_server.flat_map(|(_, written)| {
                let items = written.items().iter();
                items
                    .filter(move |one| one.own_name() == item.own_name())
                    .map(move |one| (written, one))
            });
            let (now, one) = same.next()?;
            let is_same = one.name() == item.name();
            (is_same && now.definition(one) == written.definition(item)).then_some(())
        };
        self.ranking.hits.retain(|hit| is_listed(hit).is_some());
    }

    /// The tools that were found, by their servers and the names that these use.
    fn tools(&self, shown: &[CallerListing]) -> Vec<HistoryTool> {
        let tool = |hit: &Hit| {
            let place = (*self.places.get(hit.tool.0 as usize)?)?;
            let (listing, written) = shown.get(place.list)?;
            let server = listing.catalog().server().as_str().into();
            let name = written.items().get(place.item)?.own_name().into();
            Some(HistoryTool { server, name })
        };
        self.ranking.hits.iter().filter_map(tool).collect()
    }
}

/// The services that help to rank tools, of one configuration.
#[derive(Debug)]
pub struct SelectionServices {
    judge: Option<CachedJudge>,
    embeddings: Option<Arc<ToolEmbeddings>>,
}

/// A judge, and its answers.
#[derive(Debug)]
struct CachedJudge {
    judge: ToolJudge,
    candidates: usize,
    answers: ExpiringCache<Arc<[u8]>>,
}

impl SelectionServices {
    /// The services of these settings.
    ///
    /// # Errors
    /// If a token or the authorities for a certificate cannot be read.
    pub fn new(
        settings: &SelectionSettings,
        environment: &Environment,
    ) -> Result<Self, EnvironmentError> {
        let judge = settings.judge.as_ref().map(|settings| {
            let (candidates, answers) = (settings.candidates, ExpiringCache::new(settings.cache));
            let judge = ToolJudge::new(settings, environment)?;
            Ok::<_, EnvironmentError>(CachedJudge { judge, candidates, answers })
        });
        let embeddings = settings.embeddings.as_ref();
        let embeddings =
            embeddings.map(|settings| ToolEmbeddings::new(settings, environment).map(Arc::new));
        Ok(Self { judge: judge.transpose()?, embeddings: embeddings.transpose()? })
    }

    /// Whether there are any, so that a search may wait for them.
    pub(super) const fn are_configured(&self) -> bool {
        self.judge.is_some() || self.embeddings.is_some()
    }

    /// The services that there are, by their keys in the configuration.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let judge = self.judge.is_some().then_some("judge");
        judge.into_iter().chain(self.embeddings.is_some().then_some("embeddings")).collect()
    }
}

/// What a search is made of.
struct SearchInput {
    query: String,
    limit: usize,
    /// The embedding of the request, if there is one.
    embedding: Option<Embedding>,
    /// What is known of the tools besides their definitions.
    signals: SignalSource,
}

impl Gateway {
    /// Ranks the tools of the lists for a request, and remembers the answer where the history of callers counts. Returns
    /// what came of asking the judge, if it was to be asked.
    pub(super) async fn ranked(
        &self,
        arrived: &DecodedRequest,
        shown: &[CallerListing],
        find: FindRequest,
    ) -> Result<(SearchedLists, Option<SelectionOutcome>), Failure> {
        let FindRequest { query, limit } = find;
        let signals = self.signal_source(arrived);
        let input = SearchInput { query, limit, embedding: None, signals: signals.clone() };
        let (searched, judged) = match self.selection_services.are_configured() {
            false => (self.searched(arrived, shown, input).await?, None),
            // Boxed, because most configurations have no services, and the futures of all calls would have room for it.
            true => Box::pin(self.ranked_with_services(arrived, shown, input)).await?,
        };
        signals.answered(&searched.query, searched.tools(shown));
        Ok((searched, judged))
    }

    async fn ranked_with_services(
        &self,
        arrived: &DecodedRequest,
        shown: &[CallerListing],
        input: SearchInput,
    ) -> Result<(SearchedLists, Option<SelectionOutcome>), Failure> {
        let services = &self.selection_services;
        let SearchInput { query, limit, signals, .. } = input;
        // Callers without credentials are one principal: their networks tell them apart.
        let holder = arrived.holder.clone();
        let sent = self.sendable(arrived, &query).await;
        let now = self.clock.instant();
        let embedding = match (&services.embeddings, &sent) {
            (Some(embeddings), Some(sent)) => embeddings.of_request(&holder, sent, now).await,
            (Some(embeddings), None) => {
                embeddings.note_withheld();
                None
            }
            (None, _) => None,
        };
        let candidates = services.judge.as_ref().map_or(0, |judge| judge.candidates);
        let input = SearchInput { query, limit: limit.max(candidates), embedding, signals };
        let mut searched = self.searched(arrived, shown, input).await?;
        let mut order = Vec::new();
        let mut outcome = None;
        if let Some(judge) = &services.judge
            && searched.ranking.hits.len() > 1
        {
            let judged = judge.order(&holder, &searched, sent, now).await;
            let counted = judged.as_ref().map_or_else(|outcome| *outcome, |(_, outcome)| *outcome);
            judge.judge.count(counted);
            (order, outcome) =
                (judged.map_or_else(|_| Vec::new(), |(order, _)| order), Some(counted));
        }
        let weights = self.selection.weights;
        let search = Search { strategy: Strategy::Fused, limit, weights: &weights };
        let ranking = std::mem::take(&mut searched.ranking);
        searched.ranking = Index::judged(ranking, &search, &order);
        Ok((searched, outcome))
    }

    /// The text of a request as it may be sent to a service; `None` if it may not.
    async fn sendable(&self, arrived: &DecodedRequest, query: &str) -> Option<String> {
        let servers: Vec<ServerName> =
            arrived.route.servers.iter().map(|server| server.name().clone()).collect();
        let (text, bytes) = (query.to_owned(), query.len().saturating_mul(servers.len()));
        let look =
            move |policy: &Policy, _: &Facts, caller: &Arc<Principal>, budget: &WorkBudget| {
                inspected_query(policy, &servers, caller, text, budget)
            };
        self.inspect(&arrived.caller.principal, bytes, look).await.ok().flatten()
    }

    /// Searches the lists: on this thread if they are in the index, neither is long, no embeddings are compared, and no
    /// histories of others are asked; in the offload pool otherwise.
    async fn searched(
        &self,
        arrived: &DecodedRequest,
        shown: &[CallerListing],
        input: SearchInput,
    ) -> Result<SearchedLists, Failure> {
        let lacking = || Failure::Params("the route has no discovery");
        let index = arrived.route.discovery.as_ref().ok_or_else(lacking)?.index();
        let count: usize = shown.iter().map(|(_, written)| written.items().len()).sum();
        let known = index.current();
        let embeddings = self.selection_services.embeddings.clone();
        let is_short = embeddings.is_none() && count.max(known.index().len()) <= MAX_INLINE_TOOLS;
        let places = is_short.then(|| known.places(shown)).flatten();
        let bytes: usize = shown.iter().map(|(_, written)| written.offers().len()).sum();
        let bytes = if places.is_some() { 0 } else { bytes };
        let is_inline = places.is_some() && !input.signals.asks_others();
        let bytes = if is_inline { 0 } else { bytes.max(self.limits.inspected_inline) };
        let lists = shown.to_vec();
        let (weights, now) = (self.selection.weights, self.clock.instant());
        let look = move |_: &Policy, _: &Facts, _: &Arc<Principal>, budget: &WorkBudget| {
            let (index, places) = match places {
                Some(places) => (known, places),
                None => index.with(&lists, budget),
            };
            let query = Query::new(Model::built_in(), &input.query);
            let search =
                Search { strategy: Strategy::Fused, limit: input.limit, weights: &weights };
            let is_listed =
                |tool: ToolIndex| places.get(tool.0 as usize).is_some_and(Option::is_some);
            let embedding = |tool: ToolIndex| {
                let (embeddings, request) =
                    embeddings.as_deref().zip(input.embedding.as_deref())?;
                embeddings.cosine(request, index.text_digest(tool)?, now)
            };
            let signals = input.signals.signals(&query, &lists);
            let signals = |tool: ToolIndex| {
                let place = places.get(tool.0 as usize).copied().flatten();
                place.map_or_else(Signals::default, |place| signals.of(place))
            };
            let ranking =
                index.index().search_embedded(&query, &search, is_listed, signals, embedding);
            let lacking = embeddings
                .as_deref()
                .map(|embeddings| lacking_embeddings(embeddings, &index, now, is_listed));
            (SearchedLists { index, places, query, ranking }, lacking.unwrap_or_default())
        };
        let searched = self.inspect(&arrived.caller.principal, bytes, look).await;
        let (searched, lacking) = searched.map_err(|_refused| Failure::Overload)?;
        if let Some(embeddings) = self.selection_services.embeddings.as_ref()
            && !lacking.is_empty()
        {
            embeddings.want(lacking, now, &self.tasks);
        }
        Ok(searched)
    }
}

/// The listed definitions without an embedding, if there is room for more: the digest of the text of each, and the text.
/// Those that have one are noted as used at `now`.
fn lacking_embeddings(
    embeddings: &ToolEmbeddings,
    index: &BuiltIndex,
    now: Instant,
    is_listed: impl Fn(ToolIndex) -> bool,
) -> Vec<(CacheKey, String)> {
    if embeddings.is_full(now) {
        return Vec::new();
    }
    let tools = (0..).map(ToolIndex).take(index.index().len()).filter(|tool| is_listed(*tool));
    let digests = tools.filter_map(|tool| Some((tool, *index.text_digest(tool)?)));
    let lacking = digests.filter(|(_, digest)| !embeddings.has(digest, now)).take(MAX_NOTED);
    lacking
        .map(|(tool, digest)| {
            (digest, crate::outbound::embeddings::text_of(&index.signature(tool)))
        })
        .collect()
}

/// A request without what would be removed if it were an argument of a tool of one of the servers, and without secrets,
/// honeytokens and numbers of persons in any case; `None` if such an argument would be refused.
fn inspected_query(
    policy: &Policy,
    servers: &[ServerName],
    caller: &Principal,
    mut text: String,
    budget: &WorkBudget,
) -> Option<String> {
    let contents = policy.contents();
    for server in servers {
        let mut written = Vec::new();
        write_string(&mut written, &text);
        let document = Document::parse(written.into(), &JsonBounds::MESSAGE).ok()?;
        let seen = contents.look_at_part(server, caller.id.as_str(), document.root(), budget);
        if seen.blocked.is_some() {
            return None;
        }
        if let Some(changed) = seen.changed {
            let changed = Document::parse(changed.into(), &JsonBounds::MESSAGE).ok()?;
            text = changed.root().as_str()?.into_owned();
        }
    }
    Some(without_values(&text, Some(contents)).into_owned())
}

impl CachedJudge {
    /// The tools that the judge says fit, the best one first, and whether it was asked for that.
    ///
    /// # Errors
    /// Why there is no order of the judge.
    async fn order(
        &self,
        holder: &Holder,
        searched: &SearchedLists,
        request: Option<String>,
        now: Instant,
    ) -> Result<(Vec<ToolIndex>, SelectionOutcome), SelectionOutcome> {
        let request = request.ok_or(SelectionOutcome::Content)?;
        let index = &searched.index;
        let hits = searched.ranking.hits.iter().take(self.candidates);
        let tools: Vec<_> = hits.map(|hit| hit.tool).collect();
        let candidates = tools.iter().map(|tool| index.signature(*tool)).collect();
        let body = self.judge.body(&JudgeQuestion { request, candidates })?;
        let definitions = tools.iter().filter_map(|tool| index.digest(*tool));
        let key = answer_key(holder, definitions, &body);
        let placed = |places: &[u8]| -> Vec<ToolIndex> {
            places.iter().filter_map(|place| tools.get(usize::from(*place)).copied()).collect()
        };
        if let Some(known) = self.answers.get(&key, now) {
            return Ok((placed(&known), SelectionOutcome::Cached));
        }
        let places = self.judge.ask(holder, body, tools.len()).await?;
        let order = placed(&places);
        self.answers.insert(key, places.into(), ANSWER, now);
        let outcome = match order.is_empty() {
            true => SelectionOutcome::NoneFits,
            false => SelectionOutcome::Answered,
        };
        Ok((order, outcome))
    }
}

/// What an answer of a judge is kept under: the caller, the definitions of the candidates in their order, and the question.
/// A change of what the caller may see, or of a definition, makes another key. The caller is in it so that nobody learns
/// from the time of an answer what another one has asked.
fn answer_key<'a>(
    holder: &Holder,
    definitions: impl Iterator<Item = &'a [u8; 32]>,
    question: &[u8],
) -> CacheKey {
    let mut text = format!("{:?}", holder.payer()).into_bytes();
    text.push(0);
    definitions.for_each(|digest| text.extend_from_slice(digest));
    text.extend_from_slice(question);
    sha256(&text)
}
