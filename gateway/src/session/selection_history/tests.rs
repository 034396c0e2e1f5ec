use std::time::{Duration, Instant};

use policy_core::subject::name::GroupName;
use proptest::prelude::{prop, prop_assert_eq, proptest};
use selector::history::{RequestWords, UseCounts};
use selector::model::Model;
use selector::query::Query;

use super::{
    AnsweredRequest, HistoryCaller, HistoryStep, HistoryTool, MAX_CLIENTS, MAX_MEMBERS,
    MAX_OPEN_REQUESTS, MAX_OPEN_TOOLS, RecentUse, SHARDS, SWEPT_SHARDS, SelectionHistory,
    UseOutcome,
};
use crate::base::clock::{Clock as _, SystemClock};
use crate::config::settings::{HistorySettings, HistorySharing};

const HOUR: Duration = Duration::from_secs(3600);
const SETTINGS: HistorySettings = HistorySettings {
    half_life: HOUR,
    window: Duration::from_secs(600),
    entries: 4,
    principals: 8,
    share_by: HistorySharing::Principal,
};
const GROUPS: HistorySettings = HistorySettings { share_by: HistorySharing::Group, ..SETTINGS };

fn words(text: &str) -> RequestWords {
    RequestWords::of(&Query::new(Model::built_in(), text))
}

fn tool(name: &str) -> HistoryTool {
    HistoryTool { server: "crm".into(), name: name.into() }
}

fn caller(key: &str) -> HistoryCaller {
    let groups = [GroupName::parse("dev").unwrap()].into();
    HistoryCaller { key: key.into(), groups, session: None }
}

/// A request that has no word of another one.
fn distinct(n: u64) -> String {
    let letter = |n: u64| char::from(b"abcdefgh"[usize::try_from(n % 8).unwrap()]);
    format!("zq{}{}k", letter(n / 8), letter(n))
}

struct Told {
    history: SelectionHistory,
    start: Instant,
    settings: HistorySettings,
}

impl Told {
    fn new(settings: HistorySettings) -> Self {
        Self { history: SelectionHistory::default(), start: SystemClock.instant(), settings }
    }

    fn asks(&self, who: &str, request: &str, tools: &[&str], at: Duration) -> bool {
        let tools = tools.iter().map(|name| tool(name)).collect();
        let request = AnsweredRequest { words: words(request), tools };
        self.history.asked(caller(who), request, self.settings, self.start + at)
    }

    fn calls(&self, who: &str, name: &str, outcome: UseOutcome, at: Duration) -> HistoryStep {
        let now = self.start + at;
        self.history.used(who, None, RecentUse { server: "crm", name, outcome, started: now, now })
    }

    /// A call of `refund` that succeeds, from a time to another one.
    fn takes(&self, from: Duration, until: Duration) -> HistoryStep {
        let [started, now] = [from, until].map(|at| self.start + at);
        let (server, name, outcome) = ("crm", "refund", UseOutcome::Succeeded);
        self.history.used("ana", None, RecentUse { server, name, outcome, started, now })
    }

    /// Asks for a tool and calls it.
    fn uses(&self, who: &str, at: Duration) {
        assert!(self.asks(who, "refund a customer", &["refund"], at), "{who}");
        self.calls(who, "refund", UseOutcome::Succeeded, at);
    }

    fn sweep(&self, at: Duration) {
        for _ in 0..SHARDS / SWEPT_SHARDS {
            self.history.sweep(self.start + at);
        }
    }

    fn counts(&self, who: &str, request: &str, name: &str, at: Duration) -> UseCounts {
        let now = self.start + at;
        let found = self.history.similar(&caller(who), &words(request), self.settings, now);
        found.get(&tool(name)).copied().unwrap_or_default()
    }
}

#[test]
fn a_call_counts_for_the_request_that_it_follows_and_fades() {
    let told = Told::new(SETTINGS);
    let (soon, zero) = (Duration::from_secs(5), Duration::ZERO);
    assert!(told.history.is_empty());
    assert_eq!(told.calls("ana", "refund", UseOutcome::Succeeded, zero), HistoryStep::Unasked);
    told.asks("ana", "refund a customer", &["find", "refund"], zero);
    // A tool that the answer did not have, another session, and what comes too late.
    assert_eq!(told.calls("ana", "mail", UseOutcome::Succeeded, soon), HistoryStep::Unasked);
    let used = RecentUse {
        server: "crm",
        name: "refund",
        outcome: UseOutcome::Succeeded,
        started: told.start + soon,
        now: told.start + soon,
    };
    assert_eq!(told.history.used("ana", Some([7; 16]), used), HistoryStep::Unasked);
    assert_eq!(told.calls("ana", "refund", UseOutcome::Succeeded, soon), HistoryStep::Counted);
    assert_eq!(told.calls("ana", "refund", UseOutcome::Succeeded, soon), HistoryStep::Unasked);
    assert_eq!(told.calls("ana", "find", UseOutcome::Failed, soon), HistoryStep::Counted);
    let refund = |at| told.counts("ana", "refund the customer", "refund", at).succeeded;
    assert!((refund(soon) - 1.0).abs() < 0.01);
    assert!((refund(soon + HOUR) - 0.5).abs() < 0.01);
    assert!(told.counts("ana", "refund a customer", "find", soon).failed > 0.9);
    assert!(told.counts("ana", "send a mail", "refund", soon).all() < f32::EPSILON);
    assert!(told.counts("bob", "refund a customer", "refund", soon).all() < f32::EPSILON);
    assert_eq!(told.calls("ana", "find", UseOutcome::Failed, HOUR), HistoryStep::Unasked);
    told.sweep(HOUR * 10);
    assert!(told.history.is_empty(), "what counts nothing is forgotten");
}

#[test]
fn everything_has_a_bound_and_nobody_takes_the_room_of_another() {
    let told = Told::new(SETTINGS);
    let at = Duration::from_secs;
    for n in 0..40 {
        told.asks("ana", &distinct(n), &["refund"], at(n));
        told.calls("ana", "refund", UseOutcome::Succeeded, at(n));
    }
    let (open, uses) = {
        let shard = told.history.shard("ana");
        let ana = shard.get("ana").unwrap();
        (ana.open.len(), ana.uses.len())
    };
    assert!(open <= MAX_OPEN_REQUESTS && uses == SETTINGS.entries, "{open} {uses}");
    assert!(told.counts("ana", &distinct(39), "refund", at(40)).succeeded > 0.9);
    assert!(told.counts("ana", &distinct(0), "refund", at(40)).all() < f32::EPSILON);
    for n in 0..7 {
        assert!(told.asks(&format!("other{n}"), "refund", &["refund"], at(41)));
    }
    assert!(!told.asks("last", "refund", &["refund"], at(41)), "there is no room");
    assert!(told.asks("ana", "refund", &["refund"], at(41)));
    assert!(told.counts("ana", &distinct(39), "refund", at(41)).succeeded > 0.9);
}

#[test]
fn a_group_says_something_if_enough_members_do_and_only_where_it_is_shared() {
    let (told, zero) = (Told::new(GROUPS), Duration::ZERO);
    let use_of = |who: &str| {
        for _ in 0..5 {
            told.asks(who, "refund a customer", &["refund"], zero);
            told.calls(who, "refund", UseOutcome::Succeeded, zero);
        }
    };
    let counted = || told.counts("ana", "refund a customer", "refund", zero);
    use_of("bob");
    use_of("carl");
    assert!(counted().all() < f32::EPSILON, "two members could be told apart");
    use_of("dora");
    // Each of them counts once.
    assert!((counted().succeeded - 3.0).abs() < 0.01, "{:?}", counted());
    let words = words("refund a customer");
    let mut other = caller("ana");
    other.groups = [GroupName::parse("ops").unwrap()].into();
    assert!(told.history.similar(&other, &words, GROUPS, told.start).is_empty());
    assert!(told.history.similar(&caller("ana"), &words, SETTINGS, told.start).is_empty());
}

#[test]
fn a_member_counts_once_and_those_without_similar_uses_take_no_place() {
    let (mut told, zero) = (Told::new(GROUPS), Duration::ZERO);
    told.settings.principals = 1000;
    let mut ana = caller("ana");
    let ops = GroupName::parse("ops").unwrap();
    ana.groups.insert(ops.clone());
    let in_both = |who: &str| {
        told.uses(who, zero);
        let mut caller = caller(who);
        caller.groups.insert(ops.clone());
        let request = AnsweredRequest { words: words("send a mail"), tools: vec![tool("mail")] };
        assert!(told.history.asked(caller, request, told.settings, told.start));
    };
    // Two members in both groups, one of them with two clients, and the caller with another client.
    for who in ["bob", "carl\0one", "carl\0two", "ana\0other"] {
        in_both(who);
    }
    let counted = || {
        let words = words("refund a customer");
        let found = told.history.similar(&ana, &words, told.settings, told.start);
        found.get(&tool("refund")).copied().unwrap_or_default().succeeded
    };
    assert!(counted().abs() < f32::EPSILON, "{}", counted());
    // Many who used something else come before the third by name.
    for n in 0..2 * MAX_MEMBERS {
        let who = format!("c{n}");
        told.asks(&who, "send a mail", &["mail"], zero);
        told.calls(&who, "mail", UseOutcome::Succeeded, zero);
    }
    in_both("dora");
    assert!((counted() - 3.0).abs() < 0.01, "{}", counted());
    for n in 0..2 * MAX_MEMBERS {
        told.uses(&format!("e{n:03}"), zero);
    }
    let most: f32 = (0..MAX_MEMBERS).map(|_| 1.0).sum();
    assert!((counted() - most).abs() < 0.01, "{}", counted());
    told.sweep(HOUR * 20);
    assert!(told.history.is_empty() && told.history.members().is_empty());
}

#[test]
fn a_call_belongs_to_a_request_by_when_it_began() {
    let (told, at) = (Told::new(SETTINGS), Duration::from_secs);
    let asked = |time| assert!(told.asks("ana", "refund a customer", &["refund"], at(time)));
    asked(10);
    assert_eq!(told.takes(at(5), at(20)), HistoryStep::Unasked, "it began before the request");
    // It began within the window, and ended after it.
    told.sweep(at(700));
    assert_eq!(told.takes(at(600), at(700)), HistoryStep::Counted);
    asked(1000);
    assert_eq!(told.takes(at(1600), at(1601)), HistoryStep::Unasked);
}

#[test]
fn a_request_without_words_takes_no_place_and_open_tools_and_clients_are_bounded() {
    let (mut told, zero) = (Told::new(SETTINGS), Duration::ZERO);
    assert!(told.asks("ana", "of the", &["refund"], zero) && told.history.is_empty());
    told.asks("ana", "refund a customer", &["refund"], zero);
    for _ in 0..2 * MAX_OPEN_REQUESTS {
        told.asks("ana", "of the", &["refund"], zero);
        told.asks("ana", "send a mail", &[], zero);
    }
    let refund = told.calls("ana", "refund", UseOutcome::Succeeded, zero);
    assert_eq!(refund, HistoryStep::Counted, "what counts for nothing pushes nothing out");
    let names: Vec<_> = (0..=MAX_OPEN_TOOLS / 2).map(|n| n.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for request in ["refund a customer", "send a mail", "find an order"] {
        told.asks("ana", request, &names, zero);
    }
    assert_eq!(told.history.shard("ana").get("ana").unwrap().open.len(), 1);
    told.settings.principals = 100;
    for n in 1..MAX_CLIENTS {
        assert!(told.asks(&format!("bob\0{n}"), "refund", &["refund"], zero));
    }
    assert!(told.asks("bob", "refund", &["refund"], zero));
    assert!(!told.asks("bob\0more", "refund", &["refund"], zero), "there is no room");
    assert!(told.asks("bob\x001", "refund", &["refund"], zero), "it is known already");
    assert!(told.asks("bob1", "refund", &["refund"], zero), "that is another one");
}

proptest! {
    /// What others ask and call changes nothing that is known of a principal.
    #[test]
    fn nobody_changes_what_is_known_of_another(
        events in prop::collection::vec((0_usize..4, 0_usize..3, 0_usize..3, prop::bool::ANY), 0..60),
    ) {
        let requests = ["refund a customer", "send a mail", "refund the order of a customer"];
        let tools = ["refund", "mail", "find"];
        let (alone, among) = (Told::new(SETTINGS), Told::new(SETTINGS));
        for (n, (who, request, called, succeeds)) in (0..).zip(events) {
            let name = ["ana", "bob", "carl", "dora"][who];
            let outcome = if succeeds { UseOutcome::Succeeded } else { UseOutcome::Failed };
            // The same moment for both.
            let at = Duration::from_secs(n);
            for told in [&among].into_iter().chain((who == 0).then_some(&alone)) {
                told.asks(name, requests[request], &tools, at);
                told.calls(name, tools[called], outcome, at);
            }
        }
        for (request, name) in requests.iter().flat_map(|one| tools.map(|name| (one, name))) {
            let at = Duration::from_secs(100);
            let [one, other] = [&alone, &among].map(|told| told.counts("ana", request, name, at));
            prop_assert_eq!(one, other);
        }
    }
}
