//! The table of limits: the key of each, where it stands in the raw and in the compiled form, and its default.

use std::time::Duration;

use policy_core::base::work::WorkLimits;

use super::Limits;
use super::raw::RawLimits;
use crate::net::http2;

pub(super) const KIB: usize = 1024;
pub(super) const MIB: usize = 1024 * KIB;

/// Half, rounded up so that it is never zero: the default share of one caller.
const fn half(all: usize) -> usize {
    all.div_ceil(2)
}

/// Three quarters: the default share of one address, which may be a proxy for all clients.
const fn most_of(all: usize) -> usize {
    all.saturating_sub(all / 4)
}

/// A third, rounded up so that it is never zero.
const fn third(all: usize) -> usize {
    all.div_ceil(3)
}

/// A quarter, rounded up so that it is never zero.
const fn quarter(all: usize) -> usize {
    all.div_ceil(4)
}

/// The memory of an empty configuration, or the largest limit of one kind if that is more.
///
/// An operator who raises a share expects that it can be used, so the common limit grows with it.
fn usual_memory(l: &Limits) -> usize {
    l.memory.max(l.request_body_memory).max(l.response_memory).max(l.replay_memory)
}

/// Half of the memory, or the largest share of one kind if that is more.
fn usual_memory_per_caller(l: &Limits) -> usize {
    let shares = [
        l.request_body_memory_per_caller,
        l.response_memory_per_caller,
        l.replay_memory_per_caller,
    ];
    shares.into_iter().fold(half(l.memory), usize::max).min(l.memory)
}

/// The limits of an empty configuration.
const USUAL: Limits = Limits {
    request_body: 4 * MIB,
    response_body: 16 * MIB,
    inspected_inline: 4 * KIB,
    inspection_work: WorkLimits::USUAL,
    notification: MIB,
    request_head: 16 * KIB,
    connections: 4096,
    connections_per_address: most_of(4096),
    in_flight: 1024,
    in_flight_per_caller: half(1024),
    other_requests_per_minute_per_caller: 6000,
    unauthenticated_per_address: half(1024),
    memory: 192 * MIB,
    memory_per_caller: half(192 * MIB),
    request_body_memory: 192 * MIB,
    request_body_memory_per_caller: half(192 * MIB),
    response_memory: 192 * MIB,
    response_memory_per_caller: half(192 * MIB),
    response_memory_per_server: third(192 * MIB),
    catalog_memory: 64 * MIB,
    catalog_memory_per_caller: half(64 * MIB),
    schema_memory: 64 * MIB,
    schema_memory_per_server: half(64 * MIB),
    subscription_memory: 64 * MIB,
    subscription_memory_per_caller: half(64 * MIB),
    send_queue: 16 * MIB,
    send_queue_per_caller: half(16 * MIB),
    request_timeout: Duration::from_secs(10),
    connect_timeout: Duration::from_secs(5),
    response_timeout: Duration::from_secs(60),
    call_timeout: Duration::from_secs(600),
    catalog_age: Duration::from_secs(60),
    definitions_per_list: 2000,
    pages_per_list: 100,
    sessions: 10_000,
    sessions_per_caller: half(10_000),
    ended_sessions: 100_000,
    ended_sessions_per_caller: half(100_000),
    list_timeout: Duration::from_secs(10),
    input_timeout: Duration::from_secs(600),
    pending_elicitations: 1000,
    pending_elicitations_per_caller: half(1000),
    streams_per_session: 32,
    event_streams: 4096,
    event_streams_per_caller: half(4096),
    replay_events: 256,
    replay_bytes: MIB,
    replay_memory: 192 * MIB,
    replay_memory_per_caller: half(192 * MIB),
    replay_ttl: Duration::from_secs(300),
    write_timeout: Duration::from_secs(30),
    batch: 50,
    processes: 64,
    processes_per_caller: 16,
    drain_timeout: Duration::from_secs(10),
    lame_duck_time: Duration::ZERO,
    tokens: 10_000,
    token_memory: 32 * MIB,
    token_memory_per_caller: quarter(32 * MIB),
    proofs: 100_000,
    http2: http2::Http2Bounds {
        max_concurrent_streams: 100,
        stream_resets: 200,
        control_frames: 1000,
        stream_window: 256 * 1024,
        connection_window: 1024 * 1024,
        send_buffer: 256 * KIB,
        response_buffer: 128 * MIB,
        idle_timeout: Duration::from_secs(60),
        ping_interval: Duration::from_secs(30),
        ping_timeout: Duration::from_secs(60),
    },
    result_store: 64 * MIB,
    result_store_per_caller: quarter(64 * MIB),
    result_store_ttl: Duration::from_secs(600),
    budget_counters: 10_000,
    repeated_call_entries: 50_000,
    hops: 5,
    flows: 10_000,
    flow_values: 50_000,
    flow_memory: 64 * MIB,
    flow_window: Duration::from_secs(1800),
};

impl Default for Limits {
    fn default() -> Self {
        USUAL
    }
}

/// A key of the `limits` section, which is written as an `R` and compiled to a `V`.
pub(super) struct LimitKey<R: 'static, V: 'static> {
    pub(super) name: &'static str,
    written: fn(&RawLimits) -> &Option<R>,
    field: fn(&mut Limits) -> &mut V,
    /// The default, if it follows from keys that stand before this one in the table.
    usual: Option<fn(&Limits) -> V>,
}

impl<R, V: Copy> LimitKey<R, V> {
    /// What is written in the file.
    pub(super) fn written<'a>(&self, raw: &'a RawLimits) -> Option<&'a R> {
        (self.written)(raw).as_ref()
    }

    /// The value in `limits`.
    pub(super) fn value(&self, limits: &Limits) -> V {
        let mut limits = *limits;
        *(self.field)(&mut limits)
    }

    /// Sets the written `value`, or else the default. The keys before this one in the table are set already, and this
    /// one is not.
    pub(super) fn set(&self, limits: &mut Limits, value: Option<V>) {
        let value = value.or_else(|| self.usual.map(|usual| usual(limits)));
        if let Some(value) = value {
            *(self.field)(limits) = value;
        }
    }
}

/// A key with a default of its own, that of [`USUAL`].
const fn own<R, V>(
    name: &'static str,
    written: fn(&RawLimits) -> &Option<R>,
    field: fn(&mut Limits) -> &mut V,
) -> LimitKey<R, V> {
    LimitKey { name, written, field, usual: None }
}

/// A key whose default follows from keys before it.
const fn derived<R, V>(
    name: &'static str,
    written: fn(&RawLimits) -> &Option<R>,
    field: fn(&mut Limits) -> &mut V,
    usual: fn(&Limits) -> V,
) -> LimitKey<R, V> {
    LimitKey { name, written, field, usual: Some(usual) }
}

/// The limits in bytes.
#[rustfmt::skip]
pub(super) const SIZES: &[LimitKey<String, usize>] = &[
    own("requestBody", |raw| &raw.request_body, |limits| &mut limits.request_body),
    own("responseBody", |raw| &raw.response_body, |limits| &mut limits.response_body),
    own("replayBytes", |raw| &raw.replay_bytes, |limits| &mut limits.replay_bytes),
    own("replayMemory", |raw| &raw.replay_memory, |limits| &mut limits.replay_memory),
    own("inspectedInline", |raw| &raw.inspected_inline, |limits| &mut limits.inspected_inline),
    own("notification", |raw| &raw.notification, |limits| &mut limits.notification),
    own("resultStore", |raw| &raw.result_store, |limits| &mut limits.result_store),
    own("flowMemory", |raw| &raw.flow_memory, |limits| &mut limits.flow_memory),
    own("requestHead", |raw| &raw.request_head, |limits| &mut limits.request_head),
    derived("requestBodyMemory", |raw| &raw.request_body_memory, |limits| &mut limits.request_body_memory, |l| l.request_body_memory.max(l.request_body.saturating_mul(4))),
    derived("requestBodyMemoryPerCaller", |raw| &raw.request_body_memory_per_caller, |limits| &mut limits.request_body_memory_per_caller, |l| half(l.request_body_memory)),
    derived("responseMemory", |raw| &raw.response_memory, |limits| &mut limits.response_memory, |l| l.response_memory.max(8 * l.response_body)),
    derived("responseMemoryPerCaller", |raw| &raw.response_memory_per_caller, |limits| &mut limits.response_memory_per_caller, |l| half(l.response_memory)),
    derived("responseMemoryPerServer", |raw| &raw.response_memory_per_server, |limits| &mut limits.response_memory_per_server, |l| third(l.response_memory)),
    own("catalogMemory", |raw| &raw.catalog_memory, |limits| &mut limits.catalog_memory),
    derived("catalogMemoryPerCaller", |raw| &raw.catalog_memory_per_caller, |limits| &mut limits.catalog_memory_per_caller, |l| half(l.catalog_memory)),
    own("schemaMemory", |raw| &raw.schema_memory, |limits| &mut limits.schema_memory),
    derived("schemaMemoryPerServer", |raw| &raw.schema_memory_per_server, |limits| &mut limits.schema_memory_per_server, |l| half(l.schema_memory)),
    own("subscriptionMemory", |raw| &raw.subscription_memory, |limits| &mut limits.subscription_memory),
    derived("subscriptionMemoryPerCaller", |raw| &raw.subscription_memory_per_caller, |limits| &mut limits.subscription_memory_per_caller, |l| half(l.subscription_memory)),
    derived("sendQueue", |raw| &raw.send_queue, |limits| &mut limits.send_queue, |l| l.send_queue.max(l.request_body.saturating_mul(4))),
    derived("sendQueuePerCaller", |raw| &raw.send_queue_per_caller, |limits| &mut limits.send_queue_per_caller, |l| half(l.send_queue)),
    derived("replayMemoryPerCaller", |raw| &raw.replay_memory_per_caller, |limits| &mut limits.replay_memory_per_caller, |l| half(l.replay_memory)),
    derived("resultStorePerCaller", |raw| &raw.result_store_per_caller, |limits| &mut limits.result_store_per_caller, |l| quarter(l.result_store)),
    own("tokenMemory", |raw| &raw.token_memory, |limits| &mut limits.token_memory),
    derived("tokenMemoryPerCaller", |raw| &raw.token_memory_per_caller, |limits| &mut limits.token_memory_per_caller, |l| quarter(l.token_memory)),
    derived("memory", |raw| &raw.memory, |limits| &mut limits.memory, usual_memory),
    derived("memoryPerCaller", |raw| &raw.memory_per_caller, |limits| &mut limits.memory_per_caller, usual_memory_per_caller),
];

/// The limits that are counts.
#[rustfmt::skip]
pub(super) const COUNTS: &[LimitKey<usize, usize>] = &[
    own("connections", |raw| &raw.connections, |limits| &mut limits.connections),
    own("inFlight", |raw| &raw.in_flight, |limits| &mut limits.in_flight),
    own("definitionsPerList", |raw| &raw.definitions_per_list, |limits| &mut limits.definitions_per_list),
    own("pagesPerList", |raw| &raw.pages_per_list, |limits| &mut limits.pages_per_list),
    own("sessions", |raw| &raw.sessions, |limits| &mut limits.sessions),
    own("pendingElicitations", |raw| &raw.pending_elicitations, |limits| &mut limits.pending_elicitations),
    own("streamsPerSession", |raw| &raw.streams_per_session, |limits| &mut limits.streams_per_session),
    own("replayEvents", |raw| &raw.replay_events, |limits| &mut limits.replay_events),
    own("otherRequestsPerMinutePerCaller", |raw| &raw.other_requests_per_minute_per_caller, |limits| &mut limits.other_requests_per_minute_per_caller),
    own("batch", |raw| &raw.batch, |limits| &mut limits.batch),
    own("processes", |raw| &raw.processes, |limits| &mut limits.processes),
    own("processesPerCaller", |raw| &raw.processes_per_caller, |limits| &mut limits.processes_per_caller),
    own("tokens", |raw| &raw.tokens, |limits| &mut limits.tokens),
    own("proofs", |raw| &raw.proofs, |limits| &mut limits.proofs),
    own("endedSessions", |raw| &raw.ended_sessions, |limits| &mut limits.ended_sessions),
    own("budgetCounters", |raw| &raw.budget_counters, |limits| &mut limits.budget_counters),
    own("repeatedCallEntries", |raw| &raw.repeated_call_entries, |limits| &mut limits.repeated_call_entries),
    own("hops", |raw| &raw.hops, |limits| &mut limits.hops),
    own("flows", |raw| &raw.flows, |limits| &mut limits.flows),
    own("flowValues", |raw| &raw.flow_values, |limits| &mut limits.flow_values),
    own("eventStreams", |raw| &raw.event_streams, |limits| &mut limits.event_streams),
    derived("connectionsPerAddress", |raw| &raw.connections_per_address, |limits| &mut limits.connections_per_address, |l| most_of(l.connections)),
    derived("inFlightPerCaller", |raw| &raw.in_flight_per_caller, |limits| &mut limits.in_flight_per_caller, |l| half(l.in_flight)),
    derived("unauthenticatedPerAddress", |raw| &raw.unauthenticated_per_address, |limits| &mut limits.unauthenticated_per_address, |l| half(l.in_flight)),
    derived("sessionsPerCaller", |raw| &raw.sessions_per_caller, |limits| &mut limits.sessions_per_caller, |l| half(l.sessions)),
    derived("endedSessionsPerCaller", |raw| &raw.ended_sessions_per_caller, |limits| &mut limits.ended_sessions_per_caller, |l| half(l.ended_sessions)),
    derived("pendingElicitationsPerCaller", |raw| &raw.pending_elicitations_per_caller, |limits| &mut limits.pending_elicitations_per_caller, |l| half(l.pending_elicitations)),
    derived("eventStreamsPerCaller", |raw| &raw.event_streams_per_caller, |limits| &mut limits.event_streams_per_caller, |l| half(l.event_streams)),
];

/// The limits that are times.
#[rustfmt::skip]
pub(super) const TIMES: &[LimitKey<String, Duration>] = &[
    own("requestTimeout", |raw| &raw.request_timeout, |limits| &mut limits.request_timeout),
    own("connectTimeout", |raw| &raw.connect_timeout, |limits| &mut limits.connect_timeout),
    own("responseTimeout", |raw| &raw.response_timeout, |limits| &mut limits.response_timeout),
    own("callTimeout", |raw| &raw.call_timeout, |limits| &mut limits.call_timeout),
    own("catalogAge", |raw| &raw.catalog_age, |limits| &mut limits.catalog_age),
    own("listTimeout", |raw| &raw.list_timeout, |limits| &mut limits.list_timeout),
    own("inputTimeout", |raw| &raw.input_timeout, |limits| &mut limits.input_timeout),
    own("replayTtl", |raw| &raw.replay_ttl, |limits| &mut limits.replay_ttl),
    own("writeTimeout", |raw| &raw.write_timeout, |limits| &mut limits.write_timeout),
    own("drainTimeout", |raw| &raw.drain_timeout, |limits| &mut limits.drain_timeout),
    own("lameDuckTime", |raw| &raw.lame_duck_time, |limits| &mut limits.lame_duck_time),
    own("resultStoreTtl", |raw| &raw.result_store_ttl, |limits| &mut limits.result_store_ttl),
    own("flowWindow", |raw| &raw.flow_window, |limits| &mut limits.flow_window),
];

/// A limit for one caller, address or server, which is a share of a limit for all.
pub(super) struct LimitShare {
    pub(super) key: &'static str,
    /// The key of the limit for all.
    pub(super) of: &'static str,
    pub(super) part: fn(&Limits) -> usize,
    pub(super) whole: fn(&Limits) -> usize,
}

const fn share(
    key: &'static str,
    of: &'static str,
    part: fn(&Limits) -> usize,
    whole: fn(&Limits) -> usize,
) -> LimitShare {
    LimitShare { key, of, part, whole }
}

/// The limits that cannot be more than another one.
#[rustfmt::skip]
pub(super) const SHARES: &[LimitShare] = &[
    share("connectionsPerAddress", "connections", |l| l.connections_per_address, |l| l.connections),
    share("inFlightPerCaller", "inFlight", |l| l.in_flight_per_caller, |l| l.in_flight),
    share("unauthenticatedPerAddress", "inFlight", |l| l.unauthenticated_per_address, |l| l.in_flight),
    share("memoryPerCaller", "memory", |l| l.memory_per_caller, |l| l.memory),
    share("requestBodyMemoryPerCaller", "requestBodyMemory", |l| l.request_body_memory_per_caller, |l| l.request_body_memory),
    share("sessionsPerCaller", "sessions", |l| l.sessions_per_caller, |l| l.sessions),
    share("endedSessionsPerCaller", "endedSessions", |l| l.ended_sessions_per_caller, |l| l.ended_sessions),
    share("pendingElicitationsPerCaller", "pendingElicitations", |l| l.pending_elicitations_per_caller, |l| l.pending_elicitations),
    share("eventStreamsPerCaller", "eventStreams", |l| l.event_streams_per_caller, |l| l.event_streams),
    share("replayMemoryPerCaller", "replayMemory", |l| l.replay_memory_per_caller, |l| l.replay_memory),
    share("resultStorePerCaller", "resultStore", |l| l.result_store_per_caller, |l| l.result_store),
    share("tokenMemoryPerCaller", "tokenMemory", |l| l.token_memory_per_caller, |l| l.token_memory),
    share("responseMemoryPerCaller", "responseMemory", |l| l.response_memory_per_caller, |l| l.response_memory),
    share("responseMemoryPerServer", "responseMemory", |l| l.response_memory_per_server, |l| l.response_memory),
    share("catalogMemoryPerCaller", "catalogMemory", |l| l.catalog_memory_per_caller, |l| l.catalog_memory),
    share("schemaMemoryPerServer", "schemaMemory", |l| l.schema_memory_per_server, |l| l.schema_memory),
    share("subscriptionMemoryPerCaller", "subscriptionMemory", |l| l.subscription_memory_per_caller, |l| l.subscription_memory),
    share("sendQueuePerCaller", "sendQueue", |l| l.send_queue_per_caller, |l| l.send_queue),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Debug;
    use std::time::Duration;

    use serde_json::json;

    use super::super::raw::RawLimits;
    use super::{COUNTS, LimitKey, LimitShare, SHARES, SIZES, TIMES, USUAL};

    /// The keys of the section that are not in the table: their values have a form of their own.
    const OTHERS: [&str; 4] = ["callers", "http2", "inspectionWork", "inspectionWorkPerByte"];

    #[test]
    fn every_key_stands_once_in_the_table() {
        let names = SIZES.iter().map(|key| key.name);
        let names = names.chain(COUNTS.iter().map(|key| key.name));
        let names: Vec<_> = names.chain(TIMES.iter().map(|key| key.name)).collect();
        let different: BTreeSet<_> = names.iter().copied().collect();
        assert_eq!(different.len(), names.len());
        let schema = schemars::schema_for!(RawLimits).to_value();
        let keys = schema["properties"].as_object().unwrap().keys().map(String::as_str);
        assert_eq!(different, keys.filter(|key| !OTHERS.contains(key)).collect());
    }

    /// Checks that each key sets a field that no other one of `keys` reads.
    fn have_own_fields<R, V: Copy + Debug + PartialEq>(keys: &[LimitKey<R, V>], mark: V) {
        for (n, key) in keys.iter().enumerate() {
            let mut limits = USUAL;
            key.set(&mut limits, Some(mark));
            for (m, other) in keys.iter().enumerate() {
                assert_eq!(other.value(&limits) == mark, n == m, "{}, {}", key.name, other.name);
            }
        }
    }

    #[test]
    fn each_key_has_a_field_of_its_own() {
        have_own_fields(SIZES, 12_345);
        have_own_fields(COUNTS, 12_345);
        have_own_fields(TIMES, Duration::from_secs(12_345));
    }

    /// The keys of the table that are written in `raw`.
    fn written(raw: &RawLimits) -> Vec<&'static str> {
        fn among<R, V: Copy>(
            keys: &'static [LimitKey<R, V>],
            raw: &RawLimits,
        ) -> Vec<&'static str> {
            keys.iter().filter(|key| key.written(raw).is_some()).map(|key| key.name).collect()
        }
        [among(SIZES, raw), among(COUNTS, raw), among(TIMES, raw)].concat()
    }

    #[test]
    fn each_key_reads_what_is_written_under_its_name() {
        assert_eq!(written(&RawLimits::default()), [""; 0]);
        let texts = SIZES.iter().map(|key| key.name).chain(TIMES.iter().map(|key| key.name));
        let texts = texts.map(|name| (name, json!({ name: "1" })));
        let counts = COUNTS.iter().map(|key| (key.name, json!({ key.name: 1 })));
        for (name, section) in texts.chain(counts) {
            let raw: RawLimits = serde_json::from_value(section).unwrap();
            assert_eq!(written(&raw), [name]);
        }
    }

    #[test]
    fn the_defaults_that_follow_from_others_are_those_of_an_empty_configuration() {
        let mut limits = USUAL;
        SIZES.iter().for_each(|key| key.set(&mut limits, None));
        COUNTS.iter().for_each(|key| key.set(&mut limits, None));
        TIMES.iter().for_each(|key| key.set(&mut limits, None));
        assert_eq!(format!("{limits:?}"), format!("{USUAL:?}"));
    }

    #[test]
    fn each_share_is_of_the_limit_that_it_names() {
        let value = |name: &str| {
            let sizes = SIZES.iter().filter(|key| key.name == name).map(|key| key.value(&USUAL));
            let counts = COUNTS.iter().filter(|key| key.name == name).map(|key| key.value(&USUAL));
            sizes.chain(counts).next().unwrap()
        };
        for LimitShare { key, of, part, whole } in SHARES {
            assert_eq!((part(&USUAL), whole(&USUAL)), (value(key), value(of)), "{key} of {of}");
            assert!(part(&USUAL) <= whole(&USUAL), "{key}");
        }
    }
}
