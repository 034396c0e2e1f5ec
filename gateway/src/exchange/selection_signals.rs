//! What is known of tools besides their definitions when they are ranked for a request: the history of the caller and the
//! health of the servers. It says nothing of a tool that is not in the caller's list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use policy::definition::offer::ItemKind;
use policy_core::subject::principal::Principal;
use selector::fusion::Signals;
use selector::history::{RequestWords, UseCounts};
use selector::query::Query;

use super::flows::owner;
use super::tool_index::{CallerListing, ListedPlace};
use super::{DecodedRequest, Gateway, Route};
use crate::audit::{Observer, Record};
use crate::base::clock::Clock;
use crate::config::settings::{HistorySettings, HistorySharing};
use crate::metrics::Metrics;
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome};
use crate::session::SessionKey;
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

/// The signals of the tools in the lists of a caller, by list and by item.
#[derive(Debug)]
pub(super) struct ToolSignals(Vec<Vec<Signals>>);

impl Gateway {
    /// From what the signals for a request of this caller are made.
    pub(super) fn signal_source(&self, arrived: &DecodedRequest) -> SignalSource {
        let session = arrived.session.as_ref().map(|session| session.key);
        self.signal_source_of(&arrived.route, &arrived.caller.principal, session)
    }

    /// The same for a caller without a request.
    pub(super) fn signal_source_of(
        &self,
        route: &Route,
        principal: &Principal,
        session: Option<SessionKey>,
    ) -> SignalSource {
        let servers = route.servers.iter();
        let available = servers.map(|server| (server.name().as_str().into(), server.available()));
        // What an untrusted planner does must not choose what the trusted one is shown first.
        let settings = self.selection.history.filter(|_| route.planner.is_none());
        let history = settings.map(|settings| CallerHistory {
            store: Arc::clone(&self.selection_history),
            metrics: Arc::clone(&self.metrics),
            caller: HistoryCaller {
                key: owner(principal),
                groups: principal.groups.clone(),
                session,
            },
            settings,
            now: self.clock.instant(),
        });
        SignalSource { history, available: available.collect() }
    }
}

impl SignalSource {
    /// Whether the histories of others are asked as well, which is no work for threads that serve clients.
    pub(super) fn asks_others(&self) -> bool {
        let history = self.history.as_ref();
        history.is_some_and(|history| history.settings.share_by == HistorySharing::Group)
    }

    /// The signals of tools, which are given by the names of their servers and the names that these use. These are all
    /// tools that the caller may use now: others count for nothing, not even as tools that a request led to.
    pub(super) fn of_names(&self, query: &Query, tools: &[(&str, &str)]) -> Vec<Signals> {
        let counts = self.led_to(query, tools);
        let all: f32 = counts.iter().flatten().map(|counts| counts.all()).sum();
        let available = |server: &str| self.available.get(server).copied().unwrap_or(1.0);
        let signals = tools.iter().enumerate().map(|(place, (server, _))| Signals {
            history: counts.get(place).copied().flatten().map_or(0.0, |one| one.share_of(all)),
            available: available(server),
            ..Signals::default()
        });
        signals.collect()
    }

    /// How often similar requests led to each of the tools; nothing at all if they led to none.
    fn led_to(&self, query: &Query, tools: &[(&str, &str)]) -> Vec<Option<UseCounts>> {
        let Some(CallerHistory { store, caller, settings, now, .. }) = &self.history else {
            return Vec::new();
        };
        let known = store.similar(caller, &RequestWords::of(query), *settings, *now);
        if known.is_empty() {
            return Vec::new();
        }
        let known = known.iter().map(|(tool, counts)| ((&*tool.server, &*tool.name), *counts));
        let known: BTreeMap<(&str, &str), UseCounts> = known.collect();
        tools.iter().map(|tool| known.get(tool).copied()).collect()
    }

    /// The signals of the tools in the lists for a request.
    pub(super) fn signals(&self, query: &Query, lists: &[CallerListing]) -> ToolSignals {
        let names = lists.iter().flat_map(|(listing, written)| {
            let server: &str = listing.catalog().server().as_str();
            written.items().iter().map(move |item| (server, item.own_name()))
        });
        let all = self.of_names(query, &names.collect::<Vec<_>>());
        let mut left = all.into_iter();
        let of_list =
            |(_, written): &CallerListing| left.by_ref().take(written.items().len()).collect();
        ToolSignals(lists.iter().map(of_list).collect())
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
        let Self(lists) = self;
        let signals = lists.get(place.list).and_then(|items| items.get(place.item));
        signals.copied().unwrap_or_default()
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
        let (started, now) = (record.started, self.clock.instant());
        let used = RecentUse { server, name, outcome, started, now };
        if self.history.used(&owner(principal), record.session, used) == HistoryStep::Counted {
            let [succeeded, failed, _] = &self.metrics.selection_history;
            match outcome {
                UseOutcome::Succeeded => succeeded.add(1),
                UseOutcome::Failed => failed.add(1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;
    use std::time::Duration;

    use selector::history::RequestWords;
    use selector::model::Model;
    use selector::query::Query;

    use super::{CallerHistory, SignalSource};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::config::settings::{HistorySettings, HistorySharing};
    use crate::metrics::Metrics;
    use crate::session::selection_history::{
        AnsweredRequest, HistoryCaller, HistoryTool, RecentUse, SelectionHistory, UseOutcome,
    };

    const SETTINGS: HistorySettings = HistorySettings {
        half_life: Duration::from_secs(3600),
        window: Duration::from_secs(600),
        entries: 100,
        principals: 8,
        share_by: HistorySharing::Principal,
    };

    /// A source for a caller whose requests led to these tools.
    fn source(used: &[&str], query: &Query) -> SignalSource {
        let (store, now) = (SelectionHistory::default(), SystemClock.instant());
        let caller = HistoryCaller { key: "ana".into(), groups: BTreeSet::new(), session: None };
        for name in used {
            let tool = HistoryTool { server: "crm".into(), name: (*name).into() };
            let request = AnsweredRequest { words: RequestWords::of(query), tools: vec![tool] };
            assert!(store.asked(caller.clone(), request, SETTINGS, now));
            let outcome = UseOutcome::Succeeded;
            let used = RecentUse { server: "crm", name, outcome, started: now, now };
            store.used("ana", None, used);
        }
        let metrics = Arc::new(Metrics::new(SystemClock.now()));
        let store = Arc::new(store);
        let history = Some(CallerHistory { store, metrics, caller, settings: SETTINGS, now });
        SignalSource { history, available: BTreeMap::from([("crm".into(), 0.5)]) }
    }

    #[test]
    fn what_a_caller_may_not_use_now_counts_for_nothing() {
        let query = Query::new(Model::built_in(), "refund a customer");
        let listed = [("crm", "refund"), ("crm", "find"), ("mail", "refund")];
        let alone = source(&["refund", "find"], &query).of_names(&query, &listed);
        let hidden = ["refund", "export", "export", "export", "find"];
        assert_eq!(source(&hidden, &query).of_names(&query, &listed), alone);
        let [refund, find, other] = &alone[..] else { panic!("{alone:?}") };
        assert!(refund.history > 0.3 && (refund.history - find.history).abs() < 1e-6);
        assert!((other.history, refund.available, other.available) == (0.0, 0.5, 1.0));
        let elsewhere = Query::new(Model::built_in(), "send a mail");
        let unlike = source(&hidden, &query).of_names(&elsewhere, &listed);
        assert!(unlike.iter().all(|signals| signals.history == 0.0));
    }
}
