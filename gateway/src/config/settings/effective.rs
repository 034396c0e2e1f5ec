//! The values in force for keys that a configuration leaves out, by JSON Pointer, for `shown`. The schema has most
//! defaults; this module has those that derive from other keys or depend on their place.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use detection::content::{Direction, Handlings};

use super::limit_table::{COUNTS, KIB, MIB, SIZES, TIMES};
use super::{Limits, ServerTransport, Settings};
use crate::net::http2::Http2Bounds;
use crate::process::sandbox::{NetworkAccess, SandboxPlan, UnlistedFiles};

/// Values in force, formatted as in the file, by JSON Pointer.
#[derive(Debug, Default)]
pub(super) struct EffectiveValues {
    all: BTreeMap<String, String>,
    /// The environment variables that values are from.
    variables: BTreeMap<&'static str, &'static str>,
}

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
        for (at, (value, variable)) in &settings.telemetry.from_variables {
            all.put(at, value);
            all.variables.insert(at, variable);
        }
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
        self.all.get(at).map(String::as_str)
    }

    /// Where the value of the key at `at`, which the file does not have, is from: an environment variable, or the
    /// default.
    pub(super) fn origin(&self, at: &str) -> String {
        match self.variables.get(at) {
            Some(variable) => format!("from {variable}"),
            None => "default".to_owned(),
        }
    }

    /// The keys and values of the sandbox of the server `name`, for which none is written.
    pub(super) fn sandbox_of(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        let prefix = format!("sandbox {name} ");
        self.all.iter().filter_map(move |(at, text)| Some((at.strip_prefix(&prefix)?, &**text)))
    }

    fn put(&mut self, at: &str, text: &dyn Display) {
        self.all.insert(at.to_owned(), text.to_string());
    }

    fn limits(&mut self, limits: &Limits) {
        for key in COUNTS {
            self.put(&format!("/limits/{}", key.name), &key.value(limits));
        }
        self.put("/limits/inspectionWork", &limits.inspection_work.most);
        self.put("/limits/inspectionWorkPerByte", &limits.inspection_work.each_byte);
        for key in SIZES {
            self.put(&format!("/limits/{}", key.name), &size(key.value(limits)));
        }
        for key in TIMES {
            self.put_time(&format!("/limits/{}", key.name), key.value(limits));
        }
        self.http2(&limits.http2);
    }

    fn http2(&mut self, bounds: &Http2Bounds) {
        let bytes = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        for (key, count) in [
            ("maxConcurrentStreams", bounds.max_concurrent_streams),
            ("streamResets", bounds.stream_resets),
            ("controlFrames", bounds.control_frames),
        ] {
            self.put(&format!("/limits/http2/{key}"), &count);
        }
        for (key, bytes) in [
            ("streamWindow", bytes(bounds.stream_window)),
            ("connectionWindow", bytes(bounds.connection_window)),
            ("sendBuffer", bounds.send_buffer),
            ("responseBuffer", bounds.response_buffer),
        ] {
            self.put(&format!("/limits/http2/{key}"), &size(bytes));
        }
        for (key, time) in [
            ("idleTimeout", bounds.idle_timeout),
            ("pingInterval", bounds.ping_interval),
            ("pingTimeout", bounds.ping_timeout),
        ] {
            self.put_time(&format!("/limits/http2/{key}"), time);
        }
    }

    /// Zero is the value of an absent key and cannot be written.
    fn put_time(&mut self, at: &str, time: Duration) {
        if time > Duration::ZERO {
            self.put(at, &humantime::format_duration(time));
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
