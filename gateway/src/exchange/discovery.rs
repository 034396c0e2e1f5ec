//! The tools of the gateway by which a model finds, reads and calls the other tools of a route.
//!
//! What is found is what `tools/list` of the route would show this caller now, decided by the same function. A call through
//! a `call_*_tool` becomes the call of the tool itself before anything is decided about it, so that rules, pins, arguments,
//! flows, approvals, limits and records are about that tool.

mod answers;
mod counting;
mod definitions;

use std::sync::Arc;

use detection::clean::{self, Cleaning};
use http::Response;
use json::{Fragment, Value};
use policy::definition::offer::ItemKind;
use policy::engine::message::RequestOperation;
use policy::engine::pipeline::{Facts, Policy};
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;
use selector::ranking::ToolIndex;

use super::list::ShownLists;
use super::nested_call::NestedCall;
use super::route::Route;
use super::selection::{FindRequest, SearchedLists};
use super::through_call::{class_of, malformed, unclear_call};
use super::tool_index::CallerListing;
use super::{DecodedRequest, Gateway};
use crate::audit::{ReadEntry, Record, RecordedSearch};
use crate::config::settings::{MAX_FOUND_TOOLS, RequestRecording};
use crate::edge::decode::UseOperation;
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::discovery_tools::{DiscoveryTool, ThroughCall};
use crate::mcp::wire::Id;
use crate::metrics::outcome::ExchangeEnd;
use crate::stream::body::Body;
use policy::definition::registry::ToolEffect;

use answers::{CloseTool, FoundTool, FoundTools};
use definitions::MAX_QUERY_BYTES;

/// What is answered to a name that leads to no tool that the caller may use.
const NO_SUCH_TOOL: &str = "No tool has this name. find_tools finds the tools that there are.";

impl Route {
    /// The tool of discovery with this name, if the route has it.
    pub(super) fn discovery_tool(&self, name: &str) -> Option<DiscoveryTool> {
        self.discovery.as_ref()?;
        DiscoveryTool::named(name)
    }
}

impl Gateway {
    /// The tool of discovery that a call is of. On a route with discovery their names belong to the gateway.
    pub(super) fn called_discovery(
        arrived: &DecodedRequest,
        ask: &UseOperation,
    ) -> Option<DiscoveryTool> {
        let is_call = ask.verb == RequestOperation::Call;
        arrived.route.discovery_tool(&ask.name).filter(|_| is_call)
    }

    /// The definitions of these tools that the list of a caller has, as JSON.
    pub(super) fn discovery_tools(&self, arrived: &DecodedRequest, kind: ItemKind) -> Vec<Vec<u8>> {
        let discovery = arrived.route.discovery.as_ref().filter(|_| kind == ItemKind::Tool);
        let Some(discovery) = discovery.filter(|_| self.may_use_any(arrived)) else {
            return Vec::new();
        };
        let limit = discovery.settings.limit;
        DiscoveryTool::ALL.into_iter().map(|tool| definitions::definition(tool, limit)).collect()
    }

    /// Answers a call of `find_tools` or `describe_tool`.
    pub(super) async fn discovery_called(
        &self,
        arrived: &DecodedRequest,
        tool: DiscoveryTool,
        ask: UseOperation,
        mut record: Box<Record>,
    ) -> Response<Body> {
        self.note_asked(&ask, &mut record);
        let permits = self.listable(arrived, ItemKind::Tool, &mut record);
        let honeytokens = self.honeytokens_in(arrived, &ask).await;
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        if !honeytokens.is_empty() {
            entry.found(honeytokens);
            let failure = malformed("This may not be searched for.".to_owned());
            return self.failed_call(entry, &failure, &id);
        }
        let debit = match self.counted_discovery(arrived, tool, &ask, &mut entry) {
            Ok(debit) => debit,
            Err(failure) => return self.failed_call(entry, &failure, &id),
        };
        let arguments = ask.arguments.as_ref().map(Fragment::value);
        // What is wrong with the call is said before a server is asked.
        let asked = match tool {
            DiscoveryTool::Describe => read_name(arguments).map(|name| (name, None)),
            DiscoveryTool::Find | DiscoveryTool::Call(_) => {
                let limit = arrived.route.discovery.as_ref().map_or(1, |one| one.settings.limit);
                read_query(arguments, limit).map(|find| (find.query, Some(find.limit)))
            }
        };
        let (text, limit) = match asked {
            Ok(asked) => asked,
            Err(failure) => return self.failed_call(entry, &failure, &id),
        };
        let lists = self.shown_lists(arrived, ItemKind::Tool, permits, &mut entry).await;
        let answered = match (lists, limit) {
            (Err(failure), _) => Err(failure),
            (Ok(lists), Some(limit)) => {
                let find = FindRequest { query: text, limit };
                self.found(arrived, lists, find, &mut entry, &id).await
            }
            (Ok(lists), None) => self.described(arrived, &lists, &text, &mut entry, &id),
        };
        match answered {
            Ok(body) => {
                self.call_budgets.answered(&debit, body.length(), self.clock.instant());
                self.shown(entry, ExchangeEnd::answered(), Some(&id), encode::json(body))
            }
            Err(failure) => self.failed_call(entry, &failure, &id),
        }
    }

    /// The result of `describe_tool`.
    fn described(
        &self,
        arrived: &DecodedRequest,
        lists: &ShownLists,
        name: &str,
        entry: &mut ReadEntry,
        id: &Id,
    ) -> Result<Body, Failure> {
        let era = arrived.inbound.version.era();
        for (listing, written) in &lists.shown {
            let Some(item) = written.items().iter().find(|item| item.name() == name) else {
                continue;
            };
            let definition = written.definition(item);
            let offer = listing.catalog().offer(item.own_name());
            // INVARIANT: the list was written from these offers, as UTF-8.
            let (Some(offer), Ok(text)) = (offer, str::from_utf8(&definition)) else { break };
            let class = class_of(&self.policy, listing.catalog().server(), offer);
            entry.listed = Some((1, 0));
            self.load(arrived, entry, vec![item.name().into()]);
            return Ok(answers::described(id, era, class, text));
        }
        entry.listed = Some((0, 0));
        Err(malformed(NO_SUCH_TOOL.to_owned()))
    }

    /// The result of `find_tools`.
    async fn found(
        &self,
        arrived: &DecodedRequest,
        lists: ShownLists,
        find: FindRequest,
        entry: &mut ReadEntry,
        id: &Id,
    ) -> Result<Body, Failure> {
        let ShownLists { shown, mut missing } = lists;
        let asked = find.query.clone();
        let (mut searched, judged) = self.ranked(arrived, &shown, find).await?;
        entry.judged = judged;
        if self.selection_services.are_configured() && !self.is_current(arrived, &shown) {
            // The search has waited for a service, and something was revoked or approved meanwhile.
            let permits = self.listable(arrived, ItemKind::Tool, entry);
            let present = self.shown_lists(arrived, ItemKind::Tool, permits, entry).await?;
            searched.keep_listed(&shown, &present.shown);
            missing = present.missing;
        }
        let found = FoundTools { missing, ..self.answer_of(&searched, &shown, &arrived.route) };
        if self.selection.record == RequestRecording::Queries {
            let tools = found.tools.iter().map(|tool| tool.name.clone()).collect();
            entry.search = Some(Box::new(RecordedSearch { query: asked, tools }));
        }
        entry.listed = Some((found.tools.len(), 0));
        // The best one is to be forgotten last.
        self.load(arrived, entry, found.tools.iter().rev().map(|tool| tool.name.clone()).collect());
        Ok(answers::found(id, arrived.inbound.version.era(), &found))
    }

    /// Whether the lists are what the caller is shown under the facts that are in force now.
    fn is_current(&self, arrived: &DecodedRequest, shown: &[CallerListing]) -> bool {
        let (facts, principal) = (self.policy.facts(), &arrived.caller.principal);
        shown.iter().all(|(_, written)| self.policy.holds(&facts, written.view(), principal))
    }

    /// What is said of the tools that a search found.
    fn answer_of(
        &self,
        searched: &SearchedLists,
        shown: &[CallerListing],
        route: &Route,
    ) -> FoundTools {
        let SearchedLists { index, places, ranking, .. } = searched;
        let at = |tool: ToolIndex| {
            let place = (*places.get(tool.0 as usize)?)?;
            let (listing, written) = shown.get(place.list)?;
            Some((listing.catalog(), written.items().get(place.item)?))
        };
        let tool = |tool: ToolIndex| {
            let (catalog, item) = at(tool)?;
            let class = class_of(&self.policy, catalog.server(), catalog.offer(item.own_name())?);
            Some(FoundTool { name: item.name().into(), class, signature: index.signature(tool) })
        };
        let distinct = ranking.ambiguity.iter().flat_map(|close| &close.tools);
        let is_shown = |tool: &ToolIndex| ranking.hits.iter().any(|hit| hit.tool == *tool);
        let distinct = distinct.filter(|one| is_shown(&one.tool));
        let close = distinct.filter_map(|one| {
            Some(CloseTool {
                name: at(one.tool)?.1.name().into(),
                server: one.server.clone().filter(|_| route.renames()),
                parameters: one.parameters.clone(),
            })
        });
        let close: Vec<_> = close.collect();
        FoundTools {
            tools: ranking.hits.iter().filter_map(|hit| tool(hit.tool)).collect(),
            close: if close.len() > 1 { close } else { Vec::new() },
            missing: Vec::new(),
        }
    }

    /// Makes the call of a tool out of the call of a `call_*_tool`. What was wrong with it and is clear all the same is
    /// mended; the record says so.
    pub(super) async fn unwrap_call(
        &self,
        arrived: &DecodedRequest,
        ask: &mut UseOperation,
        class: ToolEffect,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let given = ask.arguments.clone();
        let is_regular = NestedCall::is_regular(given.as_ref());
        let bytes = given.as_ref().map_or(0, |given| given.value().span().len());
        let bytes = if is_regular { 0 } else { bytes };
        let read = move |_: &Policy, _: &Facts, _: &Arc<Principal>, _: &WorkBudget| {
            NestedCall::read(given.as_ref())
        };
        let read = self.inspect(&arrived.caller.principal, bytes, read).await;
        let read = read.map_err(|_refused| Failure::Overload)?;
        record.through = Some(ThroughCall { class, mended: Vec::new() });
        let NestedCall { name, arguments, mended } =
            read.map_err(|unclear| unclear_call(class, &unclear))?;
        let is_ours = arrived.route.discovery_tool(&name).is_some()
            || arrived.route.planner.is_some() && self.policy.flow().reserves(&name);
        if is_ours {
            let text = format!(
                "`{name}` is a tool of the gateway. Call it directly, not with {}.",
                DiscoveryTool::Call(class).name()
            );
            return Err(malformed(text));
        }
        let through = ThroughCall { class, mended };
        record.through = Some(through.clone());
        (ask.name, ask.arguments, ask.through) = (name, arguments, Some(through));
        // The client does not know which arguments of the tool are repeated in headers.
        ask.mirrored = None;
        Ok(())
    }
}

/// The query of a call of `find_tools`, and how many tools it asks for.
fn read_query(arguments: Option<Value<'_>>, usual: usize) -> Result<FindRequest, Failure> {
    let wrong = |what: &str| {
        malformed(format!(
            "Nothing was searched: {what}. Call find_tools with {{\"query\":\"what you want to do\",\"limit\":{usual}}}; \
             `limit` can be left out."
        ))
    };
    let (mut query, mut limit) = (None, usual);
    for (key, value) in arguments.into_iter().flat_map(Value::members) {
        match &*key {
            "query" => query = value.as_str(),
            "limit" => {
                let asked = value.as_i64().and_then(|asked| usize::try_from(asked).ok());
                let asked = asked.filter(|asked| (1..=MAX_FOUND_TOOLS).contains(asked));
                let range = format!("`limit` is not a whole number from 1 to {MAX_FOUND_TOOLS}");
                limit = asked.ok_or_else(|| wrong(&range))?;
            }
            _ => return Err(wrong("it has a member that is not `query` or `limit`")),
        }
    }
    let query = query.filter(|query| !query.trim().is_empty());
    let query = query.ok_or_else(|| wrong("`query` is not a text with words"))?;
    if query.len() > MAX_QUERY_BYTES {
        let long = format!("`query` is longer than {MAX_QUERY_BYTES} bytes");
        return Err(wrong(&long));
    }
    // A value that is split by what nobody sees is read, recorded and sent to services as what it is.
    let query = clean::text(&query, Cleaning { hidden: true, ..Cleaning::default() });
    if query.trim().is_empty() {
        return Err(wrong("`query` is not a text with words"));
    }
    Ok(FindRequest { query, limit })
}

/// The name in a call of `describe_tool`.
fn read_name(arguments: Option<Value<'_>>) -> Result<String, Failure> {
    let wrong = || {
        let text = "Nothing was described: `name` is missing, no text, or not alone. Call describe_tool with \
                    {\"name\":\"NAME\"}, and a name that find_tools shows.";
        malformed(text.to_owned())
    };
    let mut members = arguments.into_iter().flat_map(Value::members);
    let (Some((key, value)), None) = (members.next(), members.next()) else { return Err(wrong()) };
    let name = value.as_str().filter(|_| key == "name");
    name.map(std::borrow::Cow::into_owned).ok_or_else(wrong)
}
