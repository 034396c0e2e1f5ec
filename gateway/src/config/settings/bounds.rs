//! Parses sizes and times with their units, and compiles the `limits` section.

use std::collections::BTreeSet;
use std::time::Duration;

use policy::name::PrincipalId;
use policy::work::WorkLimits;

use super::compiler::{DefiningSection, SettingsCompiler};
use super::raw::{RawCallerLimits, RawHttp2, RawLimits};
use super::{CallerLimits, IdentitySettings, Limits};
use crate::net::http2;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Half, rounded up so that it is never zero: the default share of one caller.
const fn half(all: usize) -> usize {
    all.div_ceil(2)
}

/// Three quarters: the default share of one address, which may be a proxy for all clients.
const fn most_of(all: usize) -> usize {
    all.saturating_sub(all / 4)
}

/// A quarter, rounded up so that it is never zero.
const fn quarter(all: usize) -> usize {
    all.div_ceil(4)
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
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
            unauthenticated_per_address: half(1024),
            memory: 192 * MIB,
            memory_per_caller: half(192 * MIB),
            request_bodies: 192 * MIB,
            request_bodies_per_caller: half(192 * MIB),
            answers: 192 * MIB,
            answers_per_caller: half(192 * MIB),
            answers_per_server: quarter(192 * MIB),
            lists: 64 * MIB,
            lists_per_caller: half(64 * MIB),
            schemas: 64 * MIB,
            schemas_per_server: half(64 * MIB),
            subscriptions: 64 * MIB,
            subscriptions_per_caller: half(64 * MIB),
            send_queue: 16 * MIB,
            send_queue_per_caller: half(16 * MIB),
            request_time: seconds(10),
            connect_time: seconds(5),
            answer_time: seconds(60),
            total_time: seconds(600),
            catalog_age: seconds(60),
            tools: 2000,
            pages: 100,
            sessions: 10_000,
            sessions_per_caller: half(10_000),
            ended_sessions: 100_000,
            ended_sessions_per_caller: half(100_000),
            list_time: seconds(10),
            input_time: seconds(600),
            parked: 1000,
            parked_per_caller: half(1000),
            streams: 32,
            event_streams: 4096,
            event_streams_per_caller: half(4096),
            replay_events: 256,
            replay_bytes: MIB,
            replay_memory: 192 * MIB,
            replay_memory_per_caller: half(192 * MIB),
            replay_time: seconds(300),
            write_time: seconds(30),
            batch: 50,
            processes: 64,
            processes_per_caller: 16,
            drain_time: seconds(10),
            lame_duck_time: Duration::ZERO,
            tokens: 10_000,
            token_memory: 32 * MIB,
            token_memory_per_caller: quarter(32 * MIB),
            proofs: 100_000,
            http2: http2::Http2Bounds {
                streams: 100,
                resets: 200,
                control: 1000,
                window: 256 * 1024,
                connection_window: 1024 * 1024,
                send_buffer: 256 * KIB,
                answers: 128 * MIB,
                idle_time: seconds(60),
                ping_time: seconds(30),
                ping_timeout: seconds(60),
            },
            kept_results: 64 * MIB,
            kept_results_per_caller: quarter(64 * MIB),
            kept_time: seconds(600),
        }
    }
}

impl SettingsCompiler<'_> {
    pub(super) fn limits(&mut self, raw: &RawLimits) -> Limits {
        let usual = Limits::default();
        let at = |key: &str| format!("/limits/{key}");
        let mut size = |key: &str, text: &Option<String>, usual| {
            self.size(&at(key), text.as_deref()).unwrap_or(usual)
        };
        let request_body = size("requestBody", &raw.request_body, usual.request_body);
        let response_body = size("responseBody", &raw.response_body, usual.response_body);
        let replay_bytes = size("replayBytes", &raw.replay_bytes, usual.replay_bytes);
        let replay_memory = size("replayMemory", &raw.replay_memory, usual.replay_memory);
        let inspected_inline =
            size("inspectedInline", &raw.inspected_inline, usual.inspected_inline);
        let notification = size("notification", &raw.notification, usual.notification);
        let kept_results = size("keptResults", &raw.kept_results, usual.kept_results);
        let request_head = size("requestHead", &raw.request_head, usual.request_head);
        let bodies = usual.request_bodies.max(request_body.saturating_mul(4));
        let request_bodies = size("requestBodies", &raw.request_bodies, bodies);
        let of_caller = &raw.request_bodies_per_caller;
        let request_bodies_per_caller =
            size("requestBodiesPerCaller", of_caller, half(request_bodies));
        let answers = size("answers", &raw.answers, usual.answers.max(8 * response_body));
        let answers_per_caller = size("answersPerCaller", &raw.answers_per_caller, half(answers));
        let answers_per_server =
            size("answersPerServer", &raw.answers_per_server, quarter(answers));
        let lists = size("lists", &raw.lists, usual.lists);
        let lists_per_caller = size("listsPerCaller", &raw.lists_per_caller, half(lists));
        let schemas = size("schemas", &raw.schemas, usual.schemas);
        let schemas_per_server = size("schemasPerServer", &raw.schemas_per_server, half(schemas));
        let subscriptions = size("subscriptions", &raw.subscriptions, usual.subscriptions);
        let of_caller = &raw.subscriptions_per_caller;
        let subscriptions_per_caller =
            size("subscriptionsPerCaller", of_caller, half(subscriptions));
        let queue = usual.send_queue.max(request_body.saturating_mul(4));
        let send_queue = size("sendQueue", &raw.send_queue, queue);
        let send_queue_per_caller =
            size("sendQueuePerCaller", &raw.send_queue_per_caller, half(send_queue));
        let of_caller = &raw.replay_memory_per_caller;
        let replay_memory_per_caller =
            size("replayMemoryPerCaller", of_caller, half(replay_memory));
        let of_caller = &raw.kept_results_per_caller;
        let kept_results_per_caller =
            size("keptResultsPerCaller", of_caller, quarter(kept_results));
        let token_memory = size("tokenMemory", &raw.token_memory, usual.token_memory);
        let of_caller = &raw.token_memory_per_caller;
        let token_memory_per_caller =
            size("tokenMemoryPerCaller", of_caller, quarter(token_memory));
        // An operator who raises a share expects that it can be used, so the common limit grows with it.
        let memory = usual.memory.max(request_bodies).max(answers).max(replay_memory);
        let memory = size("memory", &raw.memory, memory);
        let most = request_bodies_per_caller.max(answers_per_caller).max(replay_memory_per_caller);
        let memory_per_caller =
            size("memoryPerCaller", &raw.memory_per_caller, half(memory).max(most).min(memory));
        let mut count = |key: &str, value: Option<usize>, usual| {
            if value == Some(0) {
                self.report(&at(key), "zero lets nothing through", "give at least 1");
            }
            value.unwrap_or(usual)
        };
        let connections = count("connections", raw.connections, usual.connections);
        let in_flight = count("inFlight", raw.in_flight, usual.in_flight);
        let tools = count("tools", raw.tools, usual.tools);
        let pages = count("pages", raw.pages, usual.pages);
        let sessions = count("sessions", raw.sessions, usual.sessions);
        let parked = count("parked", raw.parked, usual.parked);
        let streams = count("streams", raw.streams, usual.streams);
        let replay_events = count("replayEvents", raw.replay_events, usual.replay_events);
        let batch = count("batch", raw.batch, usual.batch);
        let processes = count("processes", raw.processes, usual.processes);
        let per_caller = raw.processes_per_caller;
        let processes_per_caller =
            count("processesPerCaller", per_caller, usual.processes_per_caller);
        let tokens = count("tokens", raw.tokens, usual.tokens);
        let proofs = count("proofs", raw.proofs, usual.proofs);
        let (ended, streams_open) = (raw.ended_sessions, raw.event_streams);
        let ended_sessions = count("endedSessions", ended, usual.ended_sessions);
        let event_streams = count("eventStreams", streams_open, usual.event_streams);
        let connections_per_address =
            count("connectionsPerAddress", raw.connections_per_address, most_of(connections));
        let in_flight_per_caller =
            count("inFlightPerCaller", raw.in_flight_per_caller, half(in_flight));
        let unauthenticated_per_address =
            count("unauthenticatedPerAddress", raw.unauthenticated_per_address, half(in_flight));
        let sessions_per_caller =
            count("sessionsPerCaller", raw.sessions_per_caller, half(sessions));
        let of_caller = raw.ended_sessions_per_caller;
        let ended_sessions_per_caller =
            count("endedSessionsPerCaller", of_caller, half(ended_sessions));
        let parked_per_caller = count("parkedPerCaller", raw.parked_per_caller, half(parked));
        let event_streams_per_caller =
            count("eventStreamsPerCaller", raw.event_streams_per_caller, half(event_streams));
        for (key, part, whole, all) in [
            ("connectionsPerAddress", connections_per_address, "connections", connections),
            ("inFlightPerCaller", in_flight_per_caller, "inFlight", in_flight),
            ("unauthenticatedPerAddress", unauthenticated_per_address, "inFlight", in_flight),
            ("memoryPerCaller", memory_per_caller, "memory", memory),
            ("requestBodiesPerCaller", request_bodies_per_caller, "requestBodies", request_bodies),
            ("sessionsPerCaller", sessions_per_caller, "sessions", sessions),
            ("endedSessionsPerCaller", ended_sessions_per_caller, "endedSessions", ended_sessions),
            ("parkedPerCaller", parked_per_caller, "parked", parked),
            ("eventStreamsPerCaller", event_streams_per_caller, "eventStreams", event_streams),
            ("replayMemoryPerCaller", replay_memory_per_caller, "replayMemory", replay_memory),
            ("keptResultsPerCaller", kept_results_per_caller, "keptResults", kept_results),
            ("tokenMemoryPerCaller", token_memory_per_caller, "tokenMemory", token_memory),
            ("answersPerCaller", answers_per_caller, "answers", answers),
            ("answersPerServer", answers_per_server, "answers", answers),
            ("listsPerCaller", lists_per_caller, "lists", lists),
            ("schemasPerServer", schemas_per_server, "schemas", schemas),
            ("subscriptionsPerCaller", subscriptions_per_caller, "subscriptions", subscriptions),
            ("sendQueuePerCaller", send_queue_per_caller, "sendQueue", send_queue),
        ] {
            if part > all {
                let message = format!("`{key}` is more than `{whole}`, which is for all");
                self.report(&at(key), message, format!("give at most {all}"));
            }
        }
        if request_bodies_per_caller < request_body {
            let what =
                "`requestBodiesPerCaller` is less than `requestBody`: no such body could be sent";
            self.report(&at("requestBodiesPerCaller"), what, "give at least `requestBody`");
        }
        if send_queue_per_caller < request_body {
            let what = "`sendQueuePerCaller` is less than `requestBody`: the bound would not hold for such a body";
            self.report(&at("sendQueuePerCaller"), what, "give at least `requestBody`");
        }
        if memory_per_caller < request_body {
            let what = "`memoryPerCaller` is less than `requestBody`: no such body could be sent";
            self.report(&at("memoryPerCaller"), what, "give at least `requestBody`");
        }
        for (key, part) in [
            ("answersPerCaller", answers_per_caller),
            ("answersPerServer", answers_per_server),
            ("memoryPerCaller", memory_per_caller),
        ] {
            if part < response_body {
                let what =
                    format!("`{key}` is less than `responseBody`: no such answer could be read");
                self.report(&at(key), what, "give at least `responseBody`");
            }
        }
        let http2 = self.http2(&raw.http2, &usual.http2, response_body);
        let mut time = |key: &str, text: &Option<String>, usual| {
            self.time(&at(key), text.as_deref()).unwrap_or(usual)
        };
        Limits {
            request_body,
            response_body,
            inspected_inline,
            inspection_work: WorkLimits {
                most: raw.inspection_work.unwrap_or(usual.inspection_work.most).max(1),
                each_byte: raw.inspection_work_per_byte.unwrap_or(usual.inspection_work.each_byte),
            },
            notification,
            request_head: request_head.max(8 * KIB),
            connections,
            connections_per_address,
            in_flight,
            in_flight_per_caller,
            unauthenticated_per_address,
            memory,
            memory_per_caller,
            request_bodies,
            request_bodies_per_caller,
            answers,
            answers_per_caller,
            answers_per_server,
            lists,
            lists_per_caller,
            schemas,
            schemas_per_server,
            subscriptions,
            subscriptions_per_caller,
            send_queue,
            send_queue_per_caller,
            request_time: time("requestTime", &raw.request_time, usual.request_time),
            connect_time: time("connectTime", &raw.connect_time, usual.connect_time),
            answer_time: time("answerTime", &raw.answer_time, usual.answer_time),
            total_time: time("totalTime", &raw.total_time, usual.total_time),
            catalog_age: time("catalogAge", &raw.catalog_age, usual.catalog_age),
            tools,
            pages,
            sessions,
            sessions_per_caller,
            ended_sessions,
            ended_sessions_per_caller,
            list_time: time("listTime", &raw.list_time, usual.list_time),
            input_time: time("inputTime", &raw.input_time, usual.input_time),
            parked,
            parked_per_caller,
            streams,
            event_streams,
            event_streams_per_caller,
            replay_events,
            replay_bytes,
            replay_memory,
            replay_memory_per_caller,
            replay_time: time("replayTime", &raw.replay_time, usual.replay_time),
            write_time: time("writeTime", &raw.write_time, usual.write_time),
            batch,
            processes,
            processes_per_caller,
            drain_time: time("drainTime", &raw.drain_time, usual.drain_time),
            lame_duck_time: time("lameDuckTime", &raw.lame_duck_time, usual.lame_duck_time),
            http2,
            tokens,
            token_memory,
            token_memory_per_caller,
            proofs,
            kept_results,
            kept_results_per_caller,
            kept_time: time("keptTime", &raw.kept_time, usual.kept_time),
        }
    }

    /// Compiles the shares of some callers. Each caller may be listed once, and no share may exceed the common
    /// limit.
    pub(super) fn callers(
        &mut self,
        raw: &[RawCallerLimits],
        limits: &Limits,
        identity: &IdentitySettings,
    ) -> Vec<CallerLimits> {
        let known = identity.principals();
        let others = identity.has_others() || self.is_doubtful(DefiningSection::Callers);
        let mut seen = BTreeSet::new();
        let mut callers = Vec::new();
        for (n, raw) in raw.iter().enumerate() {
            let at = |key: &str| format!("/limits/callers/{n}/{key}");
            self.filled(&at("principals"), &raw.principals, "name the callers");
            let mut principals = Vec::new();
            for (m, name) in raw.principals.iter().enumerate() {
                let place = format!("/limits/callers/{n}/principals/{m}");
                match PrincipalId::parse(name) {
                    Err(error) => self.report(&place, error.to_string(), "name one caller"),
                    Ok(id) if !others && !known.iter().any(|known| known.id == id) => {
                        let message = format!("no caller can be `{}`", name.escape_debug());
                        self.report(&place, message, "name a `principal` of `identity`");
                    }
                    Ok(id) if !seen.insert(name.clone()) => {
                        let message =
                            format!("`{}` has other shares already", id.as_str().escape_debug());
                        self.report(&place, message, "name each caller once");
                    }
                    Ok(id) => principals.push(id),
                }
            }
            let mut size = |key: &str, text: &Option<String>| self.size(&at(key), text.as_deref());
            let bodies = size("requestBodiesPerCaller", &raw.request_bodies_per_caller);
            let subscriptions = size("subscriptionsPerCaller", &raw.subscriptions_per_caller);
            let lists = size("listsPerCaller", &raw.lists_per_caller);
            let answers = size("answersPerCaller", &raw.answers_per_caller);
            for (key, part, least, all) in [
                ("inFlightPerCaller", raw.in_flight_per_caller, 1, limits.in_flight),
                ("requestBodiesPerCaller", bodies, limits.request_body, limits.request_bodies),
                ("parkedPerCaller", raw.parked_per_caller, 1, limits.parked),
                ("eventStreamsPerCaller", raw.event_streams_per_caller, 1, limits.event_streams),
                ("subscriptionsPerCaller", subscriptions, 1, limits.subscriptions),
                ("listsPerCaller", lists, 1, limits.lists),
                ("answersPerCaller", answers, limits.response_body, limits.answers),
            ] {
                if part.is_some_and(|part| !(least..=all).contains(&part)) {
                    let message = format!(
                        "`{key}` is less than one request needs, or more than there is for all"
                    );
                    self.report(&at(key), message, format!("give {least} to {all}"));
                }
            }
            callers.push(CallerLimits {
                principals,
                in_flight: raw.in_flight_per_caller,
                request_bodies: bodies,
                parked: raw.parked_per_caller,
                event_streams: raw.event_streams_per_caller,
                subscriptions,
                lists,
                answers,
            });
        }
        callers
    }

    fn http2(
        &mut self,
        raw: &RawHttp2,
        usual: &http2::Http2Bounds,
        response_body: usize,
    ) -> http2::Http2Bounds {
        let at = |key: &str| format!("/limits/http2/{key}");
        let mut count = |key: &str, value: Option<usize>, usual| {
            let number = value.map_or(Some(usual), |value| u32::try_from(value).ok());
            let number = number.filter(|number| (1..=1_000_000).contains(number));
            if number.is_none() {
                let message = "zero lets nothing through, and more than a million bounds nothing";
                self.report(&at(key), message, "give 1 to 1000000");
            }
            number.unwrap_or(usual)
        };
        let streams = count("streams", raw.streams, usual.streams);
        let resets = count("resets", raw.resets, usual.resets);
        let control = count("control", raw.control, usual.control);
        let mut size = |key: &str, text: &Option<String>, usual| {
            self.size(&at(key), text.as_deref()).unwrap_or(usual)
        };
        // No size is above 1 GiB, so that it fits. The initial window of RFC 9113 is the minimum.
        let window = |bytes: usize| u32::try_from(bytes).unwrap_or(http2::WINDOW).max(65_535);
        let usual_bytes = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        let stream = size("window", &raw.window, usual_bytes(usual.window));
        let all = usual_bytes(usual.connection_window);
        let connection = size("connectionWindow", &raw.connection_window, all);
        let send_buffer = size("sendBuffer", &raw.send_buffer, usual.send_buffer);
        let answers = size("answers", &raw.answers, usual.answers.max(response_body));
        let mut time = |key: &str, text: &Option<String>, usual| {
            self.time(&at(key), text.as_deref()).unwrap_or(usual)
        };
        http2::Http2Bounds {
            streams,
            resets,
            control,
            window: window(stream),
            connection_window: window(connection),
            send_buffer,
            answers,
            idle_time: time("idleTime", &raw.idle_time, usual.idle_time),
            ping_time: time("pingTime", &raw.ping_time, usual.ping_time),
            ping_timeout: time("pingTimeout", &raw.ping_timeout, usual.ping_timeout),
        }
    }

    pub(super) fn time(&mut self, at: &str, text: Option<&str>) -> Option<Duration> {
        let text = text?;
        let bounds = Duration::from_millis(1)..=Duration::from_secs(366 * 24 * 3600);
        let time = humantime::parse_duration(text).ok().filter(|time| bounds.contains(time));
        if time.is_none() && is_number(text) {
            let (message, help) = Unit::Time.missing(text);
            self.report(at, message, help);
        } else if time.is_none() {
            let message = format!("`{}` is not a time up to a year", text.escape_debug());
            self.report(at, message, "write `500ms`, `30s`, `10m` or `12h`");
        }
        time
    }

    pub(super) fn size(&mut self, at: &str, text: Option<&str>) -> Option<usize> {
        let text = text?;
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let factor = match unit {
            "B" => Some(1),
            "KiB" => Some(1024),
            "MiB" => Some(1024 * 1024),
            _ => None,
        };
        let number = text.strip_suffix(unit).and_then(|digits| digits.parse::<usize>().ok());
        let size = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
        let size = size.filter(|size| (1..=1024 * 1024 * 1024).contains(size));
        if size.is_none() && is_number(text) {
            let (message, help) = Unit::Size.missing(text);
            self.report(at, message, help);
        } else if size.is_none() {
            let message = format!("`{}` is not a size up to 1024MiB", text.escape_debug());
            self.report(at, message, "write `512B`, `64KiB` or `4MiB`");
        }
        size
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The kind of a number with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A duration, such as `30s`.
    Time,
    /// A number of bytes, such as `64KiB`.
    Size,
}

impl Unit {
    /// The kind of value that a key takes, by the first example with a unit in its description: "such as `1h`".
    pub(super) fn of_examples(description: &str) -> Option<Self> {
        description.split('`').skip(1).step_by(2).find_map(|example| {
            let unit = example.trim_start_matches(|c: char| c.is_ascii_digit());
            match (unit.len() < example.len(), unit) {
                (true, "ms" | "s" | "m" | "h" | "d") => Some(Self::Time),
                (true, "B" | "KiB" | "MiB") => Some(Self::Size),
                _ => None,
            }
        })
    }

    /// The message and help for a `number` without a unit.
    pub(super) fn missing(self, number: &str) -> (String, String) {
        match self {
            Self::Time => (
                format!("`{number}` is not a time: its unit is missing"),
                format!(
                    "write `{number}s` for seconds, or `{number}ms`, `{number}m` or `{number}h`"
                ),
            ),
            Self::Size => (
                format!("`{number}` is not a size: its unit is missing"),
                format!("write `{number}B` for bytes, or `{number}KiB` or `{number}MiB`"),
            ),
        }
    }
}
