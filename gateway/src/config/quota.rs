//! The resources that callers compete for, and the share of each that one caller may hold.
//!
//! [`Quotas`] holds the shares of everything that requests and connections take. It lives as long as the process,
//! so a configuration reload gives no caller a second share. `docs/limits.md` lists them all.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use policy_core::subject::name::PrincipalId;
use policy_core::subject::principal::Principal;

use crate::base::caller_counters::CallerRates;
use crate::base::gcra::EventRate;
use crate::base::intake::ResponseAccounts;
use crate::base::share::{Ceiling, Holder, Payer, ShareLimits, Shares};
use crate::config::settings::{CallerLimits, Limits};
use crate::stream::slots::EventStreamSlots;

/// A resource of which one holder gets at most a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Requests of one address whose sender is not authenticated yet.
    Unauthenticated,
    /// Requests that are in flight.
    InFlight,
    /// Bytes of request bodies.
    Bodies,
    /// Calls that wait for their client to answer an elicitation or sampling request.
    Parked,
    /// Sessions that are in use.
    Sessions,
    /// Event streams that belong to no call.
    Streams,
    /// Bytes of the URIs that clients subscribe to.
    Subscriptions,
}

impl Quota {
    /// The configuration key that bounds the share.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticatedPerAddress",
            Self::InFlight => "inFlightPerCaller",
            Self::Bodies => "requestBodyMemoryPerCaller",
            Self::Parked => "pendingElicitationsPerCaller",
            Self::Sessions => "sessionsPerCaller",
            Self::Streams => "eventStreamsPerCaller",
            Self::Subscriptions => "subscriptionMemoryPerCaller",
        }
    }
}

/// The shares of all resources in the process.
#[derive(Debug)]
pub struct Quotas {
    /// Bytes of bodies, answers, lists, subscriptions and replay buffers together, by payer.
    pub ceiling: Arc<Ceiling>,
    /// Client connections, by network.
    pub connections: Arc<Shares<Holder>>,
    /// Requests whose sender is not authenticated yet, by network.
    pub unauthenticated: Arc<Shares<Holder>>,
    /// Requests in flight, by caller.
    pub in_flight: Arc<Shares<Holder>>,
    /// Bytes of request bodies, by caller.
    pub bodies: Arc<Shares<Holder>>,
    /// Calls that wait for their client to answer, by caller.
    pub parked: Arc<Shares<Holder>>,
    /// Event streams that belong to no call, by caller.
    pub streams: Arc<EventStreamSlots>,
    /// Bytes of the URIs that clients subscribe to, by caller.
    pub subscriptions: Arc<Shares<Holder>>,
    /// Bytes of cached lists, by the id of the caller that they were read for.
    pub lists: Arc<Shares<Arc<str>>>,
    /// Bytes of upstream answers.
    pub answers: Arc<ResponseAccounts>,
    /// Bytes of verified tokens, by the id of their caller.
    pub tokens: Arc<Shares<Arc<str>>>,
    /// Bytes of tokens that were obtained for callers, by the id of the caller.
    pub exchanged: Arc<Shares<Arc<str>>>,
    /// Requests that are no allowed calls, by caller: each leaves a record.
    pub other_requests: Arc<CallerRates>,
}

impl Quotas {
    /// The shares that `limits` and `callers` set, with nothing taken yet.
    #[must_use]
    pub fn new(limits: &Limits, callers: &[CallerLimits]) -> Self {
        let by_holder =
            |id: &PrincipalId| Holder::Caller(Arc::new(Principal::new(id.clone(), [].into())));
        let by_id = |id: &PrincipalId| Arc::<str>::from(id.as_str());
        let shares = |all, each, other: ShareOf| {
            Shares::with_others(all, each, others(callers, by_holder, other))
        };
        let shares_by_id = |all, each, other: ShareOf| {
            Shares::with_others(all, each, others(callers, by_id, other))
        };
        let (all, each) = (limits.memory, limits.memory_per_caller);
        // A caller with a share of its own must be able to take all of it.
        let own = others(callers, by_id, CallerLimits::most_bytes);
        let own = own
            .into_iter()
            .map(|(id, most)| (Payer::Caller(id), most.max(each).min(all)))
            .collect();
        let ceiling = Shares::with_others(all, each, own);
        let under = |light, all, each, other: ShareOf| {
            let portions = ShareLimits { all, each, others: others(callers, by_holder, other) };
            Shares::under(&ceiling, Holder::payer, light, portions)
        };
        let paces = others(callers, by_holder, |one| one.other_requests_per_minute);
        let paces = paces.into_iter().map(|(holder, count)| (holder, in_a_minute(count))).collect();
        let usual_pace = in_a_minute(limits.other_requests_per_minute_per_caller);
        Self {
            other_requests: CallerRates::new(usual_pace, paces),
            connections: Shares::new(limits.connections, limits.connections_per_address),
            unauthenticated: Shares::new(limits.in_flight, limits.unauthenticated_per_address),
            in_flight: shares(limits.in_flight, limits.in_flight_per_caller, |one| one.in_flight),
            bodies: under(
                LIGHT,
                limits.request_body_memory,
                limits.request_body_memory_per_caller,
                |one| one.request_body_memory,
            ),
            parked: shares(
                limits.pending_elicitations,
                limits.pending_elicitations_per_caller,
                |one| one.pending_elicitations,
            ),
            streams: EventStreamSlots::new(
                shares(limits.event_streams, limits.event_streams_per_caller, |one| {
                    one.event_streams
                }),
                // Bounded for each caller by the ceiling.
                under(0, limits.memory, limits.memory, |_one| None),
            ),
            subscriptions: under(
                0,
                limits.subscription_memory,
                limits.subscription_memory_per_caller,
                |one| one.subscription_memory,
            ),
            lists: Shares::under(
                &ceiling,
                Payer::caller,
                0,
                ShareLimits {
                    all: limits.catalog_memory,
                    each: limits.catalog_memory_per_caller,
                    others: others(callers, by_id, |one| one.catalog_memory),
                },
            ),
            answers: Arc::new(ResponseAccounts::under(
                &ceiling,
                shares_by_id(limits.response_memory, limits.response_memory_per_caller, |one| {
                    one.response_memory
                }),
                Shares::new(limits.response_memory, limits.response_memory_per_server),
                of_server_use(limits),
            )),
            tokens: Shares::new(limits.token_memory, limits.token_memory_per_caller),
            exchanged: Shares::new(limits.token_memory, limits.token_memory_per_caller),
            ceiling,
        }
    }
}

/// Bodies up to this many bytes, with the memory of their parsed values, do not count against the ceiling: most
/// bodies are shorter, and the number of requests is bounded.
const LIGHT: usize = 16 * 1024;

/// The part of a server's share of `responseMemory` that one caller may take: three quarters, and at least what the longest
/// answer takes.
fn of_server_use(limits: &Limits) -> usize {
    let share = limits.response_memory_per_server;
    (share - share / 4).max(limits.response_body.min(share))
}

/// So many in a minute, also all at once.
fn in_a_minute(count: usize) -> EventRate {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    EventRate::new(count, Duration::from_secs(60), count)
}

/// Selects one share from a caller's limits; `None` if that caller has the common one.
type ShareOf = fn(&CallerLimits) -> Option<usize>;

/// The callers with a share of their own, and its size.
fn others<K: Eq + Hash>(
    callers: &[CallerLimits],
    holder: impl Fn(&PrincipalId) -> K,
    share: ShareOf,
) -> HashMap<K, usize> {
    let with_share = callers.iter().filter_map(|one| Some((one, share(one)?)));
    let each = |(one, share): (&CallerLimits, usize)| {
        one.principals.iter().map(|id| (holder(id), share)).collect::<Vec<_>>()
    };
    with_share.flat_map(each).collect()
}
