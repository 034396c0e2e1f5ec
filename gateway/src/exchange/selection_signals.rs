//! What is known of tools besides their definitions when they are ranked for a request: the history of the caller and the
//! health of the servers. It says nothing of a tool that is not in the caller's list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use policy::definition::offer::ItemKind;
use selector::fusion::Signals;
use selector::history::{RequestWords, UseCounts};
use selector::query::Query;

use super::flows::owner;
use super::tool_index::{CallerListing, ListedPlace};
use super::{DecodedRequest, Gateway};
use crate::audit::{Observer, Record};
use crate::base::clock::Clock;
use crate::config::settings::HistorySettings;
use crate::metrics::Metrics;
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome};
use crate::session::selection_history::{
    AnsweredRequest, HistoryCaller, HistoryStep, HistoryTool, RecentUse, SelectionHistory,
    UseOutcome,
};

/// The history of a caller.
#[derive(Clone, Debug)]
struct CallerHistory {
    store: Arc<SelectionHistory>,
    metrics: Arc<Metrics>,
    caller: HistoryCaller,
    settings: HistorySettings,
    now: Instant,
}

/// From what the signals of a caller's tools are made.
#[derive(Clone, Debug)]
pub(super) struct SignalSource {
    history: Option<CallerHistory>,
    /// How likely calls of the servers on the route succeed, by name.
    available: BTreeMap<Box<str>, f32>,
}

/// The signals of the tools in the lists of a caller.
#[derive(Debug)]
pub(super) struct ToolSignals {
    /// By list.
    available: Vec<f32>,
    /// By list and by item, for those that similar requests led to.
    history: BTreeMap<(usize, usize), f32>,
}

impl Gateway {
    /// From what the signals for a request of this caller are made.
    pub(super) fn signal_source(&self, arrived: &DecodedRequest) -> SignalSource {
        let servers = arrived.route.servers.iter();
        let available = servers.map(|server| (server.name().as_str().into(), server.available()));
        let history = self.selection.history.map(|settings| CallerHistory {
            store: Arc::clone(&self.selection_history),
            metrics: Arc::clone(&self.metrics),
            caller: HistoryCaller {
                key: owner(&arrived.caller.principal),
                groups: arrived.caller.principal.groups.clone(),
                session: arrived.session.as_ref().map(|session| session.key),
            },
            settings,
            now: self.clock.instant(),
        });
        SignalSource { history, available: available.collect() }
    }
}

impl SignalSource {
    /// The signals of the tools in the lists for a request.
    pub(super) fn signals(&self, query: &Query, lists: &[CallerListing]) -> ToolSignals {
        let server = |(listing, _): &CallerListing| {
            self.available.get(listing.catalog().server().as_str()).copied().unwrap_or(1.0)
        };
        ToolSignals {
            available: lists.iter().map(server).collect(),
            history: self.led_to(query, lists),
        }
    }

    /// The shares of similar requests that led to the tools in the lists. What the caller may not use now counts for
    /// nothing, not even as a request that led elsewhere.
    fn led_to(&self, query: &Query, lists: &[CallerListing]) -> BTreeMap<(usize, usize), f32> {
        let Some(CallerHistory { store, caller, settings, now, .. }) = &self.history else {
            return BTreeMap::new();
        };
        let known = store.similar(caller, &RequestWords::of(query), *settings, *now);
        if known.is_empty() {
            return BTreeMap::new();
        }
        let mut listed = BTreeMap::new();
        for (list, (listing, written)) in lists.iter().enumerate() {
            let server: &str = listing.catalog().server().as_str();
            let names = known.iter().filter(|(tool, _)| *tool.server == *server);
            let names: BTreeMap<&str, UseCounts> =
                names.map(|(tool, counts)| (&*tool.name, *counts)).collect();
            if names.is_empty() {
                continue;
            }
            let items = written.items().iter().enumerate();
            listed.extend(
                items.filter_map(|(place, item)| {
                    Some(((list, place), *names.get(item.own_name())?))
                }),
            );
        }
        let all: f32 = listed.values().map(|counts: &UseCounts| counts.all()).sum();
        listed.into_iter().map(|(place, counts)| (place, counts.share_of(all))).collect()
    }

    /// Remembers that the caller was answered with these tools.
    pub(super) fn answered(&self, query: &Query, tools: Vec<HistoryTool>) {
        let Some(CallerHistory { store, metrics, caller, settings, now }) = &self.history else {
            return;
        };
        let request = AnsweredRequest { words: RequestWords::of(query), tools };
        if !store.asked(caller.clone(), request, *settings, *now) {
            let [_, _, full] = &metrics.selection_history;
            full.add(1);
        }
    }
}

impl ToolSignals {
    /// The signals of the tool at a place in the lists.
    pub(super) fn of(&self, place: ListedPlace) -> Signals {
        let history = self.history.get(&(place.list, place.item)).copied();
        Signals {
            history: history.unwrap_or_default(),
            available: self.available.get(place.list).copied().unwrap_or(1.0),
            ..Signals::default()
        }
    }
}

/// Counts the calls of tools that end for the requests that they follow.
#[derive(Debug)]
pub struct HistoryObserver {
    /// Where they are counted.
    pub history: Arc<SelectionHistory>,
    /// Counts them as well.
    pub metrics: Arc<Metrics>,
    /// The clock of the process.
    pub clock: Arc<dyn Clock>,
}

impl Observer for HistoryObserver {
    fn ended(&self, record: &Record, ending: ExchangeEnd, _now: Instant) {
        if self.history.is_empty() {
            return;
        }
        let outcome = match ending.outcome {
            // A call that waits for its caller has not ended.
            ExchangeOutcome::Answered if ending.reason.is_some() => return,
            ExchangeOutcome::Answered => UseOutcome::Succeeded,
            ExchangeOutcome::ToolError
            | ExchangeOutcome::ServerError
            | ExchangeOutcome::Denied
            | ExchangeOutcome::Failed => UseOutcome::Failed,
            ExchangeOutcome::Refused | ExchangeOutcome::Cancelled => return,
        };
        let (Some(principal), Some(server), Some((ItemKind::Tool, _)), Some(name)) =
            (&record.principal, &record.server, &record.item, &record.upstream_name)
        else {
            return;
        };
        let used = RecentUse { server, name, outcome, now: self.clock.instant() };
        if self.history.used(&owner(principal), record.session, used) == HistoryStep::Counted {
            let [succeeded, failed, _] = &self.metrics.selection_history;
            match outcome {
                UseOutcome::Succeeded => succeeded.add(1),
                UseOutcome::Failed => failed.add(1),
            }
        }
    }
}
