//! Counts, kept as atomics and shown in the Prometheus text format.
//!
//! Labels are names from the configuration and from this code, never anything a peer sent.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::inspect::{Detector, Finding};

use crate::ending::Outcome;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets, in microseconds.
const BOUNDS: [u64; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000,
    10_000_000,
];

/// Durations, counted by size.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; 15],
    micros: Counter,
}

impl Histogram {
    /// Counts one.
    pub fn observe(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.add(1);
        }
        self.micros.add(micros);
    }

    fn show(&self, out: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        let comma = if labels.is_empty() { "" } else { "," };
        let bounds = BOUNDS.iter().map(|bound| seconds(*bound)).chain(["+Inf".to_owned()]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            below += bucket.get();
            line(out, &format!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}}"), below);
        }
        let sum = seconds(self.micros.get());
        writeln!(out, "{name}_sum{{{labels}}} {sum}").unwrap_or_default();
        line(out, &format!("{name}_count{{{labels}}}"), below);
    }
}

/// Micro- to whole seconds without a detour through floating point.
fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn line(out: &mut String, name: &str, value: u64) {
    writeln!(out, "{name} {value}").unwrap_or_default();
}

/// What is counted of one server.
#[derive(Debug)]
struct OfServer {
    name: Box<str>,
    calls: Histogram,
    up: AtomicU64,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    outcomes: [Counter; Outcome::ALL.len()],
    denials: [Counter; policy::decision::Reason::CODES.len()],
    findings: [Counter; Detector::CONTENT.len()],
    overhead: Histogram,
    servers: Vec<OfServer>,
    /// Requests being worked on.
    pub in_flight: AtomicU64,
    /// Connections of clients.
    pub connections: AtomicU64,
    /// Connections on which no TLS could be agreed on.
    pub handshakes_failed: Counter,
    /// Streams that were cut because the right to them had ended.
    pub streams_cut: Counter,
    /// Files of revocations that could not be read.
    pub revocations_unread: Counter,
    /// Changes of definitions that were told of.
    pub definition_changes: Counter,
    /// Lockfiles that could not be used.
    pub lockfile_unread: Counter,
    /// When the certificate of each listener ends, in seconds since 1970.
    certificates: Vec<(Box<str>, AtomicU64)>,
    /// Lists that lacked the part of some server.
    pub partial_lists: Counter,
    /// Records that were taken.
    pub audit_records: Counter,
    /// Records that were not.
    pub audit_failures: Counter,
    /// Bytes of records that are not delivered yet.
    pub audit_held: AtomicU64,
}

impl Metrics {
    /// Nothing counted yet, for these servers.
    pub fn new<'a>(servers: impl IntoIterator<Item = &'a str>) -> Self {
        let server = |name: &str| OfServer {
            name: name.into(),
            calls: Histogram::default(),
            up: AtomicU64::new(0),
        };
        Self {
            outcomes: Default::default(),
            denials: Default::default(),
            findings: Default::default(),
            overhead: Histogram::default(),
            servers: servers.into_iter().map(server).collect(),
            in_flight: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            handshakes_failed: Counter::default(),
            streams_cut: Counter::default(),
            revocations_unread: Counter::default(),
            definition_changes: Counter::default(),
            lockfile_unread: Counter::default(),
            certificates: Vec::new(),
            partial_lists: Counter::default(),
            audit_records: Counter::default(),
            audit_failures: Counter::default(),
            audit_held: AtomicU64::new(0),
        }
    }

    /// Counts an exchange that has ended, the code of its denial, and the time it took in here.
    pub fn exchange(&self, outcome: Outcome, denial: Option<&str>, gateway: Duration) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.add(1);
        }
        let codes = &policy::decision::Reason::CODES;
        let at = denial.and_then(|code| codes.iter().position(|known| *known == code));
        if let Some(counter) = at.and_then(|at| self.denials.get(at)) {
            counter.add(1);
        }
        self.overhead.observe(gateway);
    }

    /// Counts what was found in what is said and sent.
    pub fn content<'a>(&self, findings: impl IntoIterator<Item = &'a Finding>) {
        for finding in findings {
            let at = Detector::CONTENT.iter().position(|known| *known == finding.detector);
            if let Some(counter) = at.and_then(|at| self.findings.get(at)) {
                counter.add(1);
            }
        }
    }

    /// The same, with these listeners that have certificates.
    #[must_use]
    pub fn with_certificates<'a>(self, listeners: impl IntoIterator<Item = &'a str>) -> Self {
        let listener = |name: &str| (name.into(), AtomicU64::new(0));
        Self { certificates: listeners.into_iter().map(listener).collect(), ..self }
    }

    /// Notes when the certificate of a listener ends, in seconds since 1970.
    pub fn certificate(&self, listener: &str, ends: u64) {
        let found = self.certificates.iter().find(|(name, _)| **name == *listener);
        if let Some((_, known)) = found {
            known.store(ends, Ordering::Relaxed);
        }
    }

    /// Counts what a server took for one answer.
    pub fn upstream(&self, server: usize, time: Duration) {
        if let Some(server) = self.servers.get(server) {
            server.calls.observe(time);
        }
    }

    /// Notes whether a server could be reached when it was last tried.
    pub fn reached(&self, server: usize, up: bool) {
        if let Some(server) = self.servers.get(server) {
            server.up.store(u64::from(up), Ordering::Relaxed);
        }
    }

    /// Which servers could not be reached when they were last tried.
    pub fn unreached(&self) -> impl Iterator<Item = &str> {
        let down = |server: &&OfServer| server.up.load(Ordering::Relaxed) == 0;
        self.servers.iter().filter(down).map(|server| &*server.name)
    }

    /// All of it, as Prometheus reads it.
    ///
    /// <https://prometheus.io/docs/instrumenting/exposition_formats/>
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str, body: &dyn Fn(&mut String)| {
            writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").unwrap_or_default();
            body(&mut out);
        };
        let version = env!("CARGO_PKG_VERSION");
        family("portcullis_build_info", "gauge", "The running version.", &|out| {
            line(out, &format!("portcullis_build_info{{version=\"{version}\"}}"), 1);
        });
        let name = "portcullis_exchanges_total";
        family(name, "counter", "Exchanges, by how they ended.", &|out| {
            for (outcome, count) in Outcome::ALL.iter().zip(&self.outcomes) {
                line(out, &format!("{name}{{outcome=\"{}\"}}", outcome.as_str()), count.get());
            }
        });
        let name = "portcullis_denials_total";
        family(name, "counter", "Denials of the policy, by reason code.", &|out| {
            for (code, count) in policy::decision::Reason::CODES.iter().zip(&self.denials) {
                line(out, &format!("{name}{{reason=\"{code}\"}}"), count.get());
            }
        });
        let name = "portcullis_content_findings_total";
        family(name, "counter", "What was found in results and arguments, by detector.", &|out| {
            for (detector, count) in Detector::CONTENT.iter().zip(&self.findings) {
                line(out, &format!("{name}{{detector=\"{}\"}}", detector.name()), count.get());
            }
        });
        let name = "portcullis_overhead_seconds";
        family(name, "histogram", "Time in the gateway, without its servers.", &|out| {
            self.overhead.show(out, name, "");
        });
        let name = "portcullis_upstream_duration_seconds";
        family(name, "histogram", "Time a server took for one answer.", &|out| {
            for server in &self.servers {
                server.calls.show(out, name, &format!("server=\"{}\"", server.name));
            }
        });
        let name = "portcullis_upstream_up";
        family(name, "gauge", "Whether the server was reached when last tried.", &|out| {
            for server in &self.servers {
                let up = server.up.load(Ordering::Relaxed);
                line(out, &format!("{name}{{server=\"{}\"}}", server.name), up);
            }
        });
        for (name, help, value) in [
            ("portcullis_in_flight", "Requests being worked on.", &self.in_flight),
            ("portcullis_connections", "Connections of clients.", &self.connections),
            (
                "portcullis_audit_spool_bytes",
                "Bytes of records that are not delivered yet.",
                &self.audit_held,
            ),
        ] {
            let value = value.load(Ordering::Relaxed);
            family(name, "gauge", help, &|out| line(out, name, value));
        }
        let name = "portcullis_certificate_expiry_timestamp_seconds";
        family(name, "gauge", "When the certificate of the listener ends.", &|out| {
            for (listener, ends) in &self.certificates {
                let ends = ends.load(Ordering::Relaxed);
                line(out, &format!("{name}{{listener=\"{listener}\"}}"), ends);
            }
        });
        for (name, help, counter) in [
            (
                "portcullis_streams_cut_total",
                "Streams that were cut because the right to them had ended.",
                &self.streams_cut,
            ),
            (
                "portcullis_revocations_unread_total",
                "Files of revocations that could not be read.",
                &self.revocations_unread,
            ),
            (
                "portcullis_definition_changes_total",
                "Definitions that are not as they were approved, each change counted once.",
                &self.definition_changes,
            ),
            (
                "portcullis_lockfile_unread_total",
                "Lockfiles that could not be used; nothing is approved meanwhile.",
                &self.lockfile_unread,
            ),
            (
                "portcullis_tls_handshake_failures_total",
                "Connections on which no TLS could be agreed on.",
                &self.handshakes_failed,
            ),
            (
                "portcullis_partial_lists_total",
                "Lists that lacked the part of a server, by server missing.",
                &self.partial_lists,
            ),
            ("portcullis_audit_records_total", "Records that were taken.", &self.audit_records),
            ("portcullis_audit_failures_total", "Records that were not.", &self.audit_failures),
        ] {
            family(name, "counter", help, &|out| line(out, name, counter.get()));
        }
        out
    }
}
