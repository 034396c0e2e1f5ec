//! Numbers with units, and the bounds that are made of them.

use std::time::Duration;

use super::Limits;
use super::compile::Compiler;
use super::raw::RawLimits;

impl Compiler<'_> {
    pub(super) fn limits(&mut self, raw: &RawLimits) -> Limits {
        const KIB: usize = 1024;
        const MIB: usize = 1024 * KIB;
        let seconds = Duration::from_secs;
        let at = |key: &str| format!("/limits/{key}");
        let mut size = |key: &str, text: &Option<String>, default| {
            self.size(&at(key), text.as_deref()).unwrap_or(default)
        };
        let request_body = size("requestBody", &raw.request_body, 4 * MIB);
        let response_body = size("responseBody", &raw.response_body, 16 * MIB);
        let request_head = size("requestHead", &raw.request_head, 16 * KIB);
        let mut count = |key: &str, value: Option<usize>, default| {
            if value == Some(0) {
                self.report(&at(key), "zero lets nothing through", "give at least 1");
            }
            value.unwrap_or(default)
        };
        let connections = count("connections", raw.connections, 4096);
        let in_flight = count("inFlight", raw.in_flight, 1024);
        let tools = count("tools", raw.tools, 2000);
        let pages = count("pages", raw.pages, 100);
        let sessions = count("sessions", raw.sessions, 10_000);
        let mut time = |key: &str, text: &Option<String>, default| {
            self.time(&at(key), text.as_deref()).unwrap_or(default)
        };
        Limits {
            request_body,
            response_body,
            request_head: request_head.max(8 * KIB),
            connections,
            in_flight,
            request_time: time("requestTime", &raw.request_time, seconds(10)),
            connect_time: time("connectTime", &raw.connect_time, seconds(5)),
            answer_time: time("answerTime", &raw.answer_time, seconds(60)),
            total_time: time("totalTime", &raw.total_time, seconds(600)),
            catalog_age: time("catalogAge", &raw.catalog_age, seconds(60)),
            tools,
            pages,
            sessions,
            drain_time: time("drainTime", &raw.drain_time, seconds(10)),
        }
    }

    pub(super) fn time(&mut self, at: &str, text: Option<&str>) -> Option<Duration> {
        let text = text?;
        let bounds = Duration::from_millis(1)..=Duration::from_secs(366 * 24 * 3600);
        let time = humantime::parse_duration(text).ok().filter(|time| bounds.contains(time));
        if time.is_none() {
            let message = format!("`{}` is not a time up to a year", text.escape_debug());
            self.report(at, message, "write `500ms`, `30s`, `10m` or `12h`");
        }
        time
    }

    fn size(&mut self, at: &str, text: Option<&str>) -> Option<usize> {
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
        if size.is_none() {
            let message = format!("`{}` is not a size up to 1024MiB", text.escape_debug());
            self.report(at, message, "write `512B`, `64KiB` or `4MiB`");
        }
        size
    }
}
