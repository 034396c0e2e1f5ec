//! The values in force for keys that a configuration leaves out, by JSON Pointer, for `shown`. The schema has most
//! defaults; this module has those that derive from other keys or depend on their place.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use policy::content::{Direction, Handlings};

use super::{Limits, ServerTransport, Settings};
use crate::process::sandbox::{NetworkAccess, SandboxPlan, UnlistedFiles};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Values in force, formatted as in the file, by JSON Pointer.
#[derive(Debug, Default)]
pub(super) struct EffectiveValues(BTreeMap<String, String>);

impl EffectiveValues {
    /// The values in force with these settings.
    pub(super) fn of(settings: &Settings) -> Self {
        let mut all = Self::default();
        all.limits(&settings.limits);
        all.put("/pins/mode", &"enforce");
        for class in [
            "cosmetic",
            "narrowing",
            "annotation",
            "wording",
            "widening",
            "parameter",
            "sink",
            "capability",
            "instruction",
            "inconsistent",
            "new",
            "other",
        ] {
            all.put(&format!("/pins/drift/{class}"), &"hold");
        }
        all.put("/policy/shadowing/winner", &"nobody");
        for server in &settings.servers {
            if let ServerTransport::Stdio(program) = &server.reach
                && let Some(plan) = &program.sandbox
            {
                all.sandbox(server.name.as_str(), plan);
            }
        }
        all
    }

    /// The value of the key at `at`; `None` if the schema has it.
    pub(super) fn at(&self, at: &str) -> Option<&str> {
        self.0.get(at).map(String::as_str)
    }

    /// The keys and values of the sandbox of the server `name`, for which none is written.
    pub(super) fn sandbox_of(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        let prefix = format!("sandbox {name} ");
        self.0.iter().filter_map(move |(at, text)| Some((at.strip_prefix(&prefix)?, &**text)))
    }

    fn put(&mut self, at: &str, text: &dyn Display) {
        self.0.insert(at.to_owned(), text.to_string());
    }

    fn limits(&mut self, limits: &Limits) {
        let l = limits;
        for (key, count) in [
            ("connections", l.connections),
            ("connectionsPerAddress", l.connections_per_address),
            ("inFlight", l.in_flight),
            ("inFlightPerCaller", l.in_flight_per_caller),
            ("unauthenticatedPerAddress", l.unauthenticated_per_address),
            ("tools", l.tools),
            ("pages", l.pages),
            ("sessions", l.sessions),
            ("sessionsPerCaller", l.sessions_per_caller),
            ("endedSessions", l.ended_sessions),
            ("endedSessionsPerCaller", l.ended_sessions_per_caller),
            ("parked", l.parked),
            ("parkedPerCaller", l.parked_per_caller),
            ("streams", l.streams),
            ("eventStreams", l.event_streams),
            ("eventStreamsPerCaller", l.event_streams_per_caller),
            ("replayEvents", l.replay_events),
            ("batch", l.batch),
            ("processes", l.processes),
            ("processesPerCaller", l.processes_per_caller),
            ("tokens", l.tokens),
            ("proofs", l.proofs),
        ] {
            self.put(&format!("/limits/{key}"), &count);
        }
        self.put("/limits/inspectionWork", &l.inspection_work.most);
        self.put("/limits/inspectionWorkPerByte", &l.inspection_work.each_byte);
        for (key, bytes) in [
            ("requestBody", l.request_body),
            ("responseBody", l.response_body),
            ("inspectedInline", l.inspected_inline),
            ("notification", l.notification),
            ("requestHead", l.request_head),
            ("memory", l.memory),
            ("memoryPerCaller", l.memory_per_caller),
            ("requestBodies", l.request_bodies),
            ("requestBodiesPerCaller", l.request_bodies_per_caller),
            ("answers", l.answers),
            ("answersPerCaller", l.answers_per_caller),
            ("answersPerServer", l.answers_per_server),
            ("lists", l.lists),
            ("listsPerCaller", l.lists_per_caller),
            ("schemas", l.schemas),
            ("schemasPerServer", l.schemas_per_server),
            ("subscriptions", l.subscriptions),
            ("subscriptionsPerCaller", l.subscriptions_per_caller),
            ("sendQueue", l.send_queue),
            ("sendQueuePerCaller", l.send_queue_per_caller),
            ("replayBytes", l.replay_bytes),
            ("replayMemory", l.replay_memory),
            ("replayMemoryPerCaller", l.replay_memory_per_caller),
            ("tokenMemory", l.token_memory),
            ("tokenMemoryPerCaller", l.token_memory_per_caller),
            ("keptResults", l.kept_results),
            ("keptResultsPerCaller", l.kept_results_per_caller),
            ("http2/window", usize::try_from(l.http2.window).unwrap_or(usize::MAX)),
            (
                "http2/connectionWindow",
                usize::try_from(l.http2.connection_window).unwrap_or(usize::MAX),
            ),
            ("http2/sendBuffer", l.http2.send_buffer),
            ("http2/answers", l.http2.answers),
        ] {
            self.put(&format!("/limits/{key}"), &size(bytes));
        }
        for (key, count) in
            [("streams", l.http2.streams), ("resets", l.http2.resets), ("control", l.http2.control)]
        {
            self.put(&format!("/limits/http2/{key}"), &count);
        }
        for (key, time) in [
            ("requestTime", l.request_time),
            ("connectTime", l.connect_time),
            ("answerTime", l.answer_time),
            ("totalTime", l.total_time),
            ("catalogAge", l.catalog_age),
            ("listTime", l.list_time),
            ("inputTime", l.input_time),
            ("replayTime", l.replay_time),
            ("keptTime", l.kept_time),
            ("writeTime", l.write_time),
            ("drainTime", l.drain_time),
            ("lameDuckTime", l.lame_duck_time),
            ("http2/idleTime", l.http2.idle_time),
            ("http2/pingTime", l.http2.ping_time),
            ("http2/pingTimeout", l.http2.ping_timeout),
        ] {
            // Zero is the value of an absent key and cannot be written.
            if time > Duration::ZERO {
                self.put(&format!("/limits/{key}"), &humantime::format_duration(time));
            }
        }
    }

    fn sandbox(&mut self, server: &str, plan: &SandboxPlan) {
        let mode = if plan.required { "required" } else { "preferred" };
        let files = match plan.rest {
            UnlistedFiles::Listed => "listed",
            UnlistedFiles::Any => "any",
        };
        let network = match plan.network {
            NetworkAccess::None | NetworkAccess::Ports(_) => "none",
            NetworkAccess::Any => "any",
        };
        for (key, text) in [("mode", mode), ("files", files), ("network", network)] {
            self.put(&format!("sandbox {server} {key}"), &text);
        }
        let memory = plan.memory.map(|bytes| bytes >> 20);
        let numbers =
            [("memoryMiB", memory), ("processes", plan.processes), ("openFiles", plan.files)];
        for (key, number) in numbers {
            if let Some(number) = number {
                self.put(&format!("sandbox {server} {key}"), &number);
            }
        }
    }
}

/// The default actions of the content detectors for one direction, as `results` and `arguments` have them.
pub(super) fn content(direction: Direction) -> impl Iterator<Item = (&'static str, &'static str)> {
    Handlings::usual_of(direction)
}

/// Formats a number of bytes as in the file.
fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(MIB) {
        format!("{}MiB", bytes / MIB)
    } else if bytes.is_multiple_of(KIB) {
        format!("{}KiB", bytes / KIB)
    } else {
        format!("{bytes}B")
    }
}
