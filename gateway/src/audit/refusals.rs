//! Requests of callers that are not let in, and requests of servers that they may not make outside of calls,
//! counted where there are many.
//!
//! A caller without a credential, or with one that was revoked, decides how many requests it sends, and so does one
//! that asks for a route that does not exist; a record for each would let it decide how much is written. The first few of an address with one outcome and reason have a record each; those after them are
//! counted and recorded together, once an interval. With `each`, `interval` and `tracked` as configured at most
//! `tracked * (each + 1)` records and a few for all other addresses are written in an interval.
//!
//! A server decides as well how often it asks clients on streams that belong to no call. What it may not ask is
//! counted in the same way, by server and reason.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use super::record::Record;
use crate::config::settings;
use crate::metrics::credential_check::Detail;
use crate::metrics::outcome::{Ending, Outcome};

/// The part of an IPv6 address that its network shares: whoever has one address has all of a /64.
const NETWORK: u128 = u128::MAX << 64;

/// Where requests came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Address {
    /// From this address, or for IPv6 from this network.
    Of(IpAddr),
    /// From a configured server.
    Server(Arc<str>),
    /// From addresses that are not told apart.
    Other,
}

impl Address {
    fn of(ip: IpAddr) -> Self {
        Self::Of(match ip.to_canonical() {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & NETWORK).into(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Of(IpAddr::V6(ip)) => write!(f, "{ip}/64"),
            Self::Server(name) => f.write_str(name),
            Self::Other => f.write_str("other"),
        }
    }
}

/// What is counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    /// Where the requests came from.
    pub(super) address: Address,
    /// How they ended.
    pub(super) outcome: Outcome,
    /// Why.
    pub(super) reason: Option<&'static str>,
    /// Which check their credentials did not pass, if that is why.
    pub(super) detail: Option<Detail>,
    /// With which HTTP status.
    pub(super) status: u16,
}

impl Kind {
    /// Of what the server called `name` has asked.
    pub(super) fn of_server(name: &str, ending: Ending) -> Self {
        let Ending { outcome, status, reason, detail, .. } = ending;
        Self { address: Address::Server(name.into()), outcome, reason, detail, status }
    }

    /// Of a request, by where it came from.
    pub(super) fn of(record: &Record, ending: Ending) -> Self {
        let Ending { outcome, status, reason, detail, .. } = ending;
        Self { address: Address::of(record.peer.ip()), outcome, reason, detail, status }
    }
}

/// Requests that are recorded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// What they have in common.
    pub(super) kind: Kind,
    /// How many they are.
    pub(super) count: u64,
    /// When the first of them came.
    pub(super) since: SystemTime,
}

/// What is known of one kind.
#[derive(Debug)]
struct Tally {
    /// When the interval began.
    begun: Instant,
    /// How many had a record each.
    alone: u64,
    /// How many were counted and are not on record yet.
    count: u64,
    /// When the first of those came.
    since: SystemTime,
}

/// The counts.
#[derive(Debug)]
pub(super) struct Refusals {
    limits: settings::Refusals,
    tallies: Mutex<BTreeMap<Kind, Tally>>,
    /// How many were ever counted.
    counted: AtomicU64,
}

impl Refusals {
    pub(super) fn new(limits: settings::Refusals) -> Self {
        Self { limits, tallies: Mutex::default(), counted: AtomicU64::new(0) }
    }

    /// Whether a request of this kind that came at this time has a record of its own, for which there must be
    /// `room`; otherwise it is counted.
    pub(super) fn is_alone(
        &self,
        kind: &Kind,
        (now, time): (Instant, SystemTime),
        room: bool,
    ) -> bool {
        let mut tallies = self.tallies();
        let tally = self.tally(&mut tallies, kind, (now, time));
        if room && tally.alone < self.limits.each {
            tally.alone += 1;
            return true;
        }
        tally.add(1, time);
        self.counted.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Counts a request whose own record was not taken.
    pub(super) fn count(&self, kind: &Kind, (now, time): (Instant, SystemTime)) {
        self.tally(&mut self.tallies(), kind, (now, time)).add(1, time);
        self.counted.fetch_add(1, Ordering::Relaxed);
    }

    /// What has to be recorded at `now`: what was counted for an interval, or all of it.
    pub(super) fn due(&self, now: Instant, all: bool) -> Vec<Summary> {
        let mut due = Vec::new();
        self.tallies().retain(|kind, tally| {
            if !all && now.saturating_duration_since(tally.begun) < self.limits.interval {
                return true;
            }
            if tally.count == 0 {
                // It was quiet for an interval.
                return false;
            }
            let count = std::mem::take(&mut tally.count);
            due.push(Summary { kind: kind.clone(), count, since: tally.since });
            tally.begun = now;
            true
        });
        due
    }

    /// Takes back what could not be recorded, to be recorded later.
    pub(super) fn give_back(&self, summary: &Summary, now: Instant) {
        let Summary { kind, count, since } = summary;
        let (count, since) = (*count, *since);
        self.tally(&mut self.tallies(), kind, (now, since)).add(count, since);
    }

    /// How many were ever counted.
    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    fn tally<'a>(
        &self,
        tallies: &'a mut BTreeMap<Kind, Tally>,
        kind: &Kind,
        (begun, since): (Instant, SystemTime),
    ) -> &'a mut Tally {
        let is_tracked = tallies.contains_key(kind) || tallies.len() < self.limits.tracked;
        let mut kind = kind.clone();
        if !is_tracked {
            kind.address = Address::Other;
        }
        tallies.entry(kind).or_insert(Tally { begun, alone: 0, count: 0, since })
    }

    fn tallies(&self) -> MutexGuard<'_, BTreeMap<Kind, Tally>> {
        // No operation leaves a count half changed.
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn add(&mut self, count: u64, since: SystemTime) {
        self.since = if self.count == 0 { since } else { self.since.min(since) };
        self.count = self.count.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Kind, Refusals};
    use crate::base::clock::{Clock as _, System};
    use crate::config::settings;
    use crate::metrics::outcome::{Ending, Outcome};
    use std::net::IpAddr;
    use std::time::{Duration, Instant, UNIX_EPOCH};

    fn kind(address: &str) -> Kind {
        let address = Address::of(address.parse::<IpAddr>().unwrap());
        let (outcome, reason) = (Outcome::Refused, Some("credential-missing"));
        Kind { address, outcome, reason, detail: None, status: 401 }
    }

    fn refusals() -> (Refusals, Instant) {
        let interval = Duration::from_secs(10);
        (Refusals::new(settings::Refusals { each: 2, interval, tracked: 3 }), System.instant())
    }

    #[test]
    fn a_steady_caller_costs_one_record_an_interval_and_all_it_sends_is_counted() {
        let (refusals, start) = refusals();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut alone, mut counted) = (0, 0);
        for second in 0..60 {
            for _ in 0..1000 {
                alone += u64::from(refusals.is_alone(
                    &kind("192.0.2.1"),
                    (at(second), UNIX_EPOCH),
                    true,
                ));
            }
            let due = refusals.due(at(second), false);
            assert!(due.len() <= 1);
            counted += due.iter().map(|summary| summary.count).sum::<u64>();
        }
        counted += refusals.due(at(60), true).iter().map(|summary| summary.count).sum::<u64>();
        assert_eq!((alone, counted), (2, 60 * 1000 - 2));
        assert_eq!(refusals.counted(), counted);
        // After a quiet interval it begins anew.
        assert!(refusals.due(at(80), false).is_empty());
        assert!(refusals.is_alone(&kind("192.0.2.1"), (at(80), UNIX_EPOCH), true));
    }

    #[test]
    fn more_addresses_than_are_tracked_are_counted_together() {
        let (refusals, now) = refusals();
        let at = (now, UNIX_EPOCH);
        let mut alone = 0;
        for n in 0..=255 {
            for _ in 0..10 {
                alone += u64::from(refusals.is_alone(&kind(&format!("192.0.2.{n}")), at, true));
            }
        }
        let due = refusals.due(now, true);
        assert_eq!(alone, 2 * 4, "three addresses, and all others");
        assert_eq!(due.len(), 4);
        assert_eq!(alone + due.iter().map(|summary| summary.count).sum::<u64>(), 2560);
        let other = due.iter().find(|summary| summary.kind.address == Address::Other).unwrap();
        assert_eq!(other.count, 253 * 10 - 2);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let (refusals, now) = refusals();
        let at = (now, UNIX_EPOCH);
        let alone = (0..100)
            .filter(|n| refusals.is_alone(&kind(&format!("2001:db8:0:1:{n:x}::{n:x}")), at, true));
        assert_eq!(alone.count(), 2);
        let due = refusals.due(now, true);
        assert_eq!(due[0].kind.address.to_string(), "2001:db8:0:1::/64");
        assert_eq!(kind("::ffff:192.0.2.1"), kind("192.0.2.1"));
    }

    #[test]
    fn what_has_no_room_or_is_not_taken_is_counted_until_it_is() {
        let (refusals, now) = refusals();
        let at = |seconds| (now, UNIX_EPOCH + Duration::from_secs(seconds));
        assert!(!refusals.is_alone(&kind("192.0.2.1"), at(1), false));
        refusals.count(&kind("192.0.2.1"), at(2));
        let due = refusals.due(now, true);
        let [summary] = &due[..] else { panic!("{due:?}") };
        assert_eq!((summary.count, summary.since), (2, at(1).1));
        refusals.give_back(summary, now);
        assert!(!refusals.is_alone(&kind("192.0.2.1"), at(3), false));
        let due = refusals.due(now, true);
        assert_eq!((due[0].count, due[0].since), (3, at(1).1));
    }

    #[test]
    fn what_a_server_asks_is_counted_by_server_and_reason() {
        let (refusals, now) = refusals();
        let at = (now, UNIX_EPOCH);
        let of = |server: &str, reason| {
            let ending = Ending { reason: Some(reason), ..Ending::answered() };
            Kind::of_server(server, ending)
        };
        let alone = (0..100).filter(|_| refusals.is_alone(&of("crm", "ask-url"), at, true));
        assert_eq!(alone.count(), 2);
        assert!(refusals.is_alone(&of("crm", "ask-secret"), at, true));
        assert!(refusals.is_alone(&of("web", "ask-url"), at, true));
        let due = refusals.due(now, true);
        let [summary] = &due[..] else { panic!("{due:?}") };
        assert_eq!((summary.count, summary.kind.address.to_string()), (98, "crm".to_owned()));
    }
}
