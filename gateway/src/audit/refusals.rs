//! Summarises refused requests: those of callers that are not admitted, and those that upstream servers send outside
//! of calls without permission.
//!
//! A caller without a valid credential, or one that asks for routes that do not exist, decides how many requests it
//! sends; a record for each would let it decide how much is written. The first few requests of an address with one
//! outcome and reason have a record each; later ones are counted and recorded together, once an interval. With the
//! settings `individualRecords`, `interval` and `maxTracked`, at most `maxTracked * (individualRecords + 1)` records are written in an interval, and
//! a few for all other addresses.
//!
//! An upstream server also decides how often it sends requests on streams that belong to no call. Those it may not
//! send are counted in the same way, by server and reason.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use super::record::Record;
use crate::base::share::network;
use crate::config::settings;
use crate::metrics::credential_check::CredentialCheck;
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome};

/// The reason code of a request that is refused because the records of its caller take its share.
pub const OVER_SHARE: &str = "caller-limit-records";
/// How such a call ends that is refused when its intent was to be written.
pub(super) const OVER_SHARE_END: ExchangeEnd = ExchangeEnd {
    outcome: ExchangeOutcome::Refused,
    reason: Some(OVER_SHARE),
    detail: None,
    status: 429,
    code: None,
};

/// The origin of requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RefusalOrigin {
    /// An IPv4 address, or the /64 of an IPv6 address.
    Of(IpAddr),
    /// A configured upstream server.
    Server(Arc<str>),
    /// A caller that is authenticated, by the id of its principal.
    Caller(Arc<str>),
    /// All addresses or callers beyond the number that is tracked.
    Other,
}

impl RefusalOrigin {
    fn of(ip: IpAddr) -> Self {
        Self::Of(network(ip))
    }
}

impl fmt::Display for RefusalOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Of(IpAddr::V6(ip)) => write!(f, "{ip}/64"),
            Self::Server(name) | Self::Caller(name) => f.write_str(name),
            Self::Other => f.write_str("other"),
        }
    }
}

/// The key by which requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RefusalKind {
    /// The origin of the requests.
    pub(super) origin: RefusalOrigin,
    /// The outcome they share.
    pub(super) outcome: ExchangeOutcome,
    /// Their common reason code.
    pub(super) reason: Option<&'static str>,
    /// The check that their credentials failed, if that is the reason.
    pub(super) detail: Option<CredentialCheck>,
    /// The HTTP status of the responses.
    pub(super) status: u16,
}

impl RefusalKind {
    /// The kind of a request that the upstream server `name` has sent.
    pub(super) fn of_server(name: &str, ending: ExchangeEnd) -> Self {
        let ExchangeEnd { outcome, status, reason, detail, .. } = ending;
        Self { origin: RefusalOrigin::Server(name.into()), outcome, reason, detail, status }
    }

    /// The kind of a client's request, by its caller if that has a name, and by its address otherwise.
    pub(super) fn of(record: &Record, ending: ExchangeEnd) -> Self {
        let ExchangeEnd { outcome, status, reason, detail, .. } = ending;
        let named = record.caller.as_ref().and(record.principal.as_ref());
        let origin = match named {
            Some(principal) if !record.is_anonymous() => {
                RefusalOrigin::Caller(principal.id.as_str().into())
            }
            _ => RefusalOrigin::of(record.peer.ip()),
        };
        Self { origin, outcome, reason, detail, status }
    }
}

/// The time of a request, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusalTime {
    /// When it is counted, for the interval.
    pub(super) now: Instant,
    /// The time of its record.
    pub(super) time: SystemTime,
}

/// The count of one kind, to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusalSummary {
    /// The kind of the requests.
    pub(super) kind: RefusalKind,
    /// Number of requests it stands for.
    pub(super) count: u64,
    /// Time of the first one.
    pub(super) since: SystemTime,
}

/// The state of one kind.
#[derive(Debug)]
struct RefusalTally {
    /// The start of the current interval.
    begun: Instant,
    /// Number of requests with a record of their own.
    alone: u64,
    /// Number of requests that were counted and are not recorded yet.
    count: u64,
    /// Time of the first one that is not recorded yet.
    since: SystemTime,
}

/// The counters of all kinds, bounded by the settings.
#[derive(Debug)]
pub(super) struct RefusalCounters {
    limits: settings::RefusalSettings,
    tallies: Mutex<BTreeMap<RefusalKind, RefusalTally>>,
    /// Total number of requests that were counted.
    counted: AtomicU64,
}

impl RefusalCounters {
    pub(super) fn new(limits: settings::RefusalSettings) -> Self {
        Self { limits, tallies: Mutex::default(), counted: AtomicU64::new(0) }
    }

    /// Whether a request gets a record of its own; otherwise it is counted.
    pub(super) fn is_alone(&self, kind: &RefusalKind, at: RefusalTime) -> bool {
        let mut tallies = self.tallies();
        let tally = self.tally(&mut tallies, kind, at);
        if tally.alone < self.limits.each {
            tally.alone += 1;
            return true;
        }
        tally.add(1, at.time);
        self.counted.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Counts a request that has no record of its own: there is no room for one, or it could not be written.
    pub(super) fn count(&self, kind: &RefusalKind, at: RefusalTime) {
        self.tally(&mut self.tallies(), kind, at).add(1, at.time);
        self.counted.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the summaries whose interval has passed at `now`.
    pub(super) fn due(&self, now: Instant) -> Vec<RefusalSummary> {
        self.take(now, |tally| now.saturating_duration_since(tally.begun) >= self.limits.interval)
    }

    /// Takes all summaries at `now`, regardless of their interval.
    pub(super) fn all(&self, now: Instant) -> Vec<RefusalSummary> {
        self.take(now, |_| true)
    }

    fn take(&self, now: Instant, is_due: impl Fn(&RefusalTally) -> bool) -> Vec<RefusalSummary> {
        let mut due = Vec::new();
        self.tallies().retain(|kind, tally| {
            if !is_due(tally) {
                return true;
            }
            if tally.count == 0 {
                // No such request came for an interval, so the kind is forgotten.
                return false;
            }
            let count = std::mem::take(&mut tally.count);
            due.push(RefusalSummary { kind: kind.clone(), count, since: tally.since });
            tally.begun = now;
            true
        });
        due
    }

    /// Adds back a summary that could not be recorded.
    pub(super) fn give_back(&self, summary: &RefusalSummary, now: Instant) {
        let RefusalSummary { kind, count, since } = summary;
        let at = RefusalTime { now, time: *since };
        self.tally(&mut self.tallies(), kind, at).add(*count, *since);
    }

    /// Total number of requests that were counted.
    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    fn tally<'a>(
        &self,
        tallies: &'a mut BTreeMap<RefusalKind, RefusalTally>,
        kind: &RefusalKind,
        at: RefusalTime,
    ) -> &'a mut RefusalTally {
        let is_tracked = tallies.contains_key(kind) || tallies.len() < self.limits.tracked;
        let mut kind = kind.clone();
        if !is_tracked {
            kind.origin = RefusalOrigin::Other;
        }
        let RefusalTime { now: begun, time: since } = at;
        tallies.entry(kind).or_insert(RefusalTally { begun, alone: 0, count: 0, since })
    }

    fn tallies(&self) -> MutexGuard<'_, BTreeMap<RefusalKind, RefusalTally>> {
        // No operation leaves a count half changed, so a poisoned lock is usable.
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RefusalTally {
    fn add(&mut self, count: u64, since: SystemTime) {
        self.since = if self.count == 0 { since } else { self.since.min(since) };
        self.count = self.count.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::{RefusalCounters, RefusalKind, RefusalOrigin, RefusalTime};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::config::settings;
    use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome};
    use std::net::IpAddr;
    use std::time::{Duration, Instant, UNIX_EPOCH};

    fn kind(address: &str) -> RefusalKind {
        let origin = RefusalOrigin::of(address.parse::<IpAddr>().unwrap());
        let (outcome, reason) = (ExchangeOutcome::Refused, Some("credential-missing"));
        RefusalKind { origin, outcome, reason, detail: None, status: 401 }
    }

    fn when(now: Instant) -> RefusalTime {
        RefusalTime { now, time: UNIX_EPOCH }
    }

    fn refusals() -> (RefusalCounters, Instant) {
        let interval = Duration::from_secs(10);
        (
            RefusalCounters::new(settings::RefusalSettings { each: 2, interval, tracked: 3 }),
            SystemClock.instant(),
        )
    }

    #[test]
    fn a_steady_caller_costs_one_record_an_interval_and_all_it_sends_is_counted() {
        let (refusals, start) = refusals();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut alone, mut counted) = (0, 0);
        for second in 0..60 {
            for _ in 0..1000 {
                alone += u64::from(refusals.is_alone(&kind("192.0.2.1"), when(at(second))));
            }
            let due = refusals.due(at(second));
            assert!(due.len() <= 1);
            counted += due.iter().map(|summary| summary.count).sum::<u64>();
        }
        counted += refusals.all(at(60)).iter().map(|summary| summary.count).sum::<u64>();
        assert_eq!((alone, counted), (2, 60 * 1000 - 2));
        assert_eq!(refusals.counted(), counted);
        // After a quiet interval it starts again.
        assert!(refusals.due(at(80)).is_empty());
        assert!(refusals.is_alone(&kind("192.0.2.1"), when(at(80))));
    }

    #[test]
    fn more_addresses_than_are_tracked_are_counted_together() {
        let (refusals, now) = refusals();
        let at = when(now);
        let mut alone = 0;
        for n in 0..=255 {
            for _ in 0..10 {
                alone += u64::from(refusals.is_alone(&kind(&format!("192.0.2.{n}")), at));
            }
        }
        let due = refusals.all(now);
        assert_eq!(alone, 2 * 4, "three addresses, and all others");
        assert_eq!(due.len(), 4);
        assert_eq!(alone + due.iter().map(|summary| summary.count).sum::<u64>(), 2560);
        let other = due.iter().find(|summary| summary.kind.origin == RefusalOrigin::Other).unwrap();
        assert_eq!(other.count, 253 * 10 - 2);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let (refusals, now) = refusals();
        let at = when(now);
        let alone = (0..100)
            .filter(|n| refusals.is_alone(&kind(&format!("2001:db8:0:1:{n:x}::{n:x}")), at));
        assert_eq!(alone.count(), 2);
        let due = refusals.all(now);
        assert_eq!(due[0].kind.origin.to_string(), "2001:db8:0:1::/64");
        assert_eq!(kind("::ffff:192.0.2.1"), kind("192.0.2.1"));
    }

    #[test]
    fn what_has_no_room_or_is_not_taken_is_counted_until_it_is() {
        let (refusals, now) = refusals();
        let at = |seconds| {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            RefusalTime { now, time }
        };
        refusals.count(&kind("192.0.2.1"), at(1));
        refusals.count(&kind("192.0.2.1"), at(2));
        let due = refusals.all(now);
        let [summary] = &due[..] else { panic!("{due:?}") };
        assert_eq!((summary.count, summary.since), (2, at(1).time));
        refusals.give_back(summary, now);
        refusals.count(&kind("192.0.2.1"), at(3));
        let due = refusals.all(now);
        assert_eq!((due[0].count, due[0].since), (3, at(1).time));
    }

    #[test]
    fn what_a_server_asks_is_counted_by_server_and_reason() {
        let (refusals, now) = refusals();
        let at = when(now);
        let of = |server: &str, reason| {
            let ending = ExchangeEnd { reason: Some(reason), ..ExchangeEnd::answered() };
            RefusalKind::of_server(server, ending)
        };
        let alone = (0..100).filter(|_| refusals.is_alone(&of("crm", "server-request-url"), at));
        assert_eq!(alone.count(), 2);
        assert!(refusals.is_alone(&of("crm", "server-request-secret"), at));
        assert!(refusals.is_alone(&of("web", "server-request-url"), at));
        let due = refusals.all(now);
        let [summary] = &due[..] else { panic!("{due:?}") };
        assert_eq!((summary.count, summary.kind.origin.to_string()), (98, "crm".to_owned()));
    }
}
