//! Parses sizes and times with their units, and compiles the `limits` section.

use std::collections::BTreeSet;
use std::time::Duration;

use policy_core::base::work::WorkLimits;
use policy_core::subject::name::PrincipalId;

use super::compiler::{DefiningSection, SettingsCompiler};
use super::limit_table::{COUNTS, KIB, LimitShare, SHARES, SIZES, TIMES};
use super::raw::{RawCallerLimits, RawHttp2, RawLimits};
use super::{CallerLimits, IdentitySettings, Limits};
use crate::net::http2;

impl SettingsCompiler<'_> {
    pub(super) fn limits(&mut self, raw: &RawLimits) -> Limits {
        let at = |key: &str| format!("/limits/{key}");
        let mut limits = Limits::default();
        for key in SIZES {
            let size = self.size(&at(key.name), key.written(raw).map(String::as_str));
            key.set(&mut limits, size);
        }
        for key in COUNTS {
            let count = key.written(raw).copied();
            if count == Some(0) {
                self.report(&at(key.name), "zero lets nothing through", "give at least 1");
            }
            key.set(&mut limits, count);
        }
        self.shares_fit(&limits);
        self.messages_fit(&limits);
        let usual_http2 = limits.http2;
        limits.http2 = self.http2(&raw.http2, &usual_http2, limits.response_body);
        for key in TIMES {
            let time = self.time(&at(key.name), key.written(raw).map(String::as_str));
            key.set(&mut limits, time);
        }
        let usual_work = limits.inspection_work;
        limits.inspection_work = WorkLimits {
            most: raw.inspection_work.unwrap_or(usual_work.most).max(1),
            each_byte: raw.inspection_work_per_byte.unwrap_or(usual_work.each_byte),
        };
        limits.request_head = limits.request_head.max(8 * KIB);
        limits
    }

    /// Reports shares that are more than the limit for all.
    fn shares_fit(&mut self, limits: &Limits) {
        for LimitShare { key, of, part, whole } in SHARES {
            let all = whole(limits);
            if part(limits) > all {
                let message = format!("`{key}` is more than `{of}`, which is for all");
                self.report(&format!("/limits/{key}"), message, format!("give at most {all}"));
            }
        }
    }

    /// Reports shares that are less than one message needs.
    fn messages_fit(&mut self, limits: &Limits) {
        let at = |key: &str| format!("/limits/{key}");
        if limits.request_body_memory_per_caller < limits.request_body {
            let what = "`requestBodyMemoryPerCaller` is less than `requestBody`: no such body could be sent";
            self.report(&at("requestBodyMemoryPerCaller"), what, "give at least `requestBody`");
        }
        if limits.send_queue_per_caller < limits.request_body {
            let what = "`sendQueuePerCaller` is less than `requestBody`: the bound would not hold for such a body";
            self.report(&at("sendQueuePerCaller"), what, "give at least `requestBody`");
        }
        if limits.memory_per_caller < limits.request_body {
            let what = "`memoryPerCaller` is less than `requestBody`: no such body could be sent";
            self.report(&at("memoryPerCaller"), what, "give at least `requestBody`");
        }
        for (key, part) in [
            ("responseMemoryPerCaller", limits.response_memory_per_caller),
            ("responseMemoryPerServer", limits.response_memory_per_server),
            ("memoryPerCaller", limits.memory_per_caller),
        ] {
            if part < limits.response_body {
                let what =
                    format!("`{key}` is less than `responseBody`: no such answer could be read");
                self.report(&at(key), what, "give at least `responseBody`");
            }
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
            let bodies = size("requestBodyMemoryPerCaller", &raw.request_body_memory_per_caller);
            let subscriptions =
                size("subscriptionMemoryPerCaller", &raw.subscription_memory_per_caller);
            let lists = size("catalogMemoryPerCaller", &raw.catalog_memory_per_caller);
            let answers = size("responseMemoryPerCaller", &raw.response_memory_per_caller);
            for (key, part, least, all) in [
                ("inFlightPerCaller", raw.in_flight_per_caller, 1, limits.in_flight),
                (
                    "otherRequestsPerMinutePerCaller",
                    raw.other_requests_per_minute_per_caller,
                    1,
                    usize::MAX,
                ),
                (
                    "requestBodyMemoryPerCaller",
                    bodies,
                    limits.request_body,
                    limits.request_body_memory,
                ),
                (
                    "pendingElicitationsPerCaller",
                    raw.pending_elicitations_per_caller,
                    1,
                    limits.pending_elicitations,
                ),
                ("eventStreamsPerCaller", raw.event_streams_per_caller, 1, limits.event_streams),
                ("subscriptionMemoryPerCaller", subscriptions, 1, limits.subscription_memory),
                ("catalogMemoryPerCaller", lists, 1, limits.catalog_memory),
                ("responseMemoryPerCaller", answers, limits.response_body, limits.response_memory),
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
                other_requests_per_minute: raw.other_requests_per_minute_per_caller,
                request_body_memory: bodies,
                pending_elicitations: raw.pending_elicitations_per_caller,
                event_streams: raw.event_streams_per_caller,
                subscription_memory: subscriptions,
                catalog_memory: lists,
                response_memory: answers,
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
        let streams =
            count("maxConcurrentStreams", raw.max_concurrent_streams, usual.max_concurrent_streams);
        let resets = count("streamResets", raw.stream_resets, usual.stream_resets);
        let control = count("controlFrames", raw.control_frames, usual.control_frames);
        let mut size = |key: &str, text: &Option<String>, usual| {
            self.size(&at(key), text.as_deref()).unwrap_or(usual)
        };
        // No size is above 1 GiB, so that it fits. The initial window of RFC 9113 is the minimum.
        let window = |bytes: usize| u32::try_from(bytes).unwrap_or(http2::WINDOW).max(65_535);
        let usual_bytes = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        let stream = size("streamWindow", &raw.stream_window, usual_bytes(usual.stream_window));
        let all = usual_bytes(usual.connection_window);
        let connection = size("connectionWindow", &raw.connection_window, all);
        let send_buffer = size("sendBuffer", &raw.send_buffer, usual.send_buffer);
        let answers =
            size("responseBuffer", &raw.response_buffer, usual.response_buffer.max(response_body));
        let mut time = |key: &str, text: &Option<String>, usual| {
            self.time(&at(key), text.as_deref()).unwrap_or(usual)
        };
        http2::Http2Bounds {
            max_concurrent_streams: streams,
            stream_resets: resets,
            control_frames: control,
            stream_window: window(stream),
            connection_window: window(connection),
            send_buffer,
            response_buffer: answers,
            idle_timeout: time("idleTimeout", &raw.idle_timeout, usual.idle_timeout),
            ping_interval: time("pingInterval", &raw.ping_interval, usual.ping_interval),
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
