//! Where records go, and who signs them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::compiler::Compiler;
use super::raw::{
    Format, Full, RawAudit, RawCapture, RawCheckpoints, RawHttpSink, RawRefusals, RawRotation,
    RawSink, RawSyslog,
};
use super::{Place, SecretRef};

const MIB: usize = 1024 * 1024;
/// Most bytes of arguments, and of a result, unless said otherwise.
const USUAL_CAPTURE: usize = 2 * 1024;
/// And the most that can be asked for.
const MOST_CAPTURED: usize = 8 * 1024;
/// Longest time for which refusals are counted before they are recorded.
const LONGEST_COUNT: Duration = Duration::from_secs(3600);
/// Most pairs of an address and a reason that can be told apart.
const MOST_TRACKED: usize = 65_536;
/// What the records of a call take beside that, and what belongs to them.
const RECORDS: usize = 12 * 1024;

/// What is recorded where.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Where records go; never empty.
    pub sinks: Vec<Sink>,
    /// The key of argument digests.
    pub digest_key: Option<SecretRef>,
    /// Who signs the head of the log.
    pub checkpoints: Checkpoints,
    /// How requests of callers that are not known are recorded.
    pub refusals: Refusals,
    /// What of contents is recorded; nothing if not given.
    pub capture: Option<Capture>,
    /// A new log is begun where one is missing: for one start, from the command line.
    pub anew: bool,
}

/// How requests of callers that are not known are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// How many of one address with one outcome and reason have a record each before they are counted.
    pub each: u64,
    /// How often those that were counted are recorded.
    pub interval: Duration,
    /// How many pairs of an address and a reason are told apart at once.
    pub tracked: usize,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { each: 4, interval: Duration::from_secs(10), tracked: 256 }
    }
}

/// What of contents is recorded, redacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Arguments of calls.
    pub arguments: bool,
    /// Their results.
    pub results: bool,
    /// Most bytes of each, as they are written.
    pub size: usize,
}

/// A place for records.
#[derive(Clone, Debug)]
pub struct Sink {
    /// Its name.
    pub name: Box<str>,
    /// Where.
    pub to: SinkTarget,
    /// How a record is written there.
    pub format: Format,
    /// Bytes that may wait.
    pub spool: usize,
    /// What becomes of a call when it has no room.
    pub full: Full,
}

impl Sink {
    /// Whether its lines wait in a spool.
    const fn spools(&self) -> bool {
        !matches!(self.to, SinkTarget::File(..))
    }
}

/// Where a sink writes.
#[derive(Clone, Debug)]
pub enum SinkTarget {
    /// To a file.
    File(PathBuf, Rotation),
    /// To standard output.
    Stdout,
    /// To whoever takes a POST, and what it is shown.
    Http(Place, Option<SecretRef>),
    /// To a collector of OTLP, and what it is shown.
    Otlp(Place, Option<SecretRef>),
    /// To a syslog, with this facility.
    Syslog(Syslog, u8),
}

/// Where a syslog is.
#[derive(Clone, Debug)]
pub enum Syslog {
    /// By UDP.
    Udp(SocketAddr),
    /// By TCP.
    Tcp(SocketAddr),
    /// On this machine.
    Unix(PathBuf),
}

/// When a file is begun anew, and for how long full ones are kept.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// After so many bytes.
    pub size: u64,
    /// After so long.
    pub age: Option<Duration>,
    /// How many full ones are kept.
    pub keep: Option<usize>,
    /// For how long full ones are kept.
    pub keep_for: Option<Duration>,
}

/// Who signs the head of the log, and how often.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    /// The key.
    pub key: Option<SecretRef>,
    /// The public halves of keys that were used before.
    pub former: Vec<Box<str>>,
    /// The name.
    pub origin: Box<str>,
    /// After so many records.
    pub records: u64,
    /// After so long.
    pub interval: Duration,
    /// A file of checkpoints alone.
    pub file: Option<PathBuf>,
}

impl Default for Checkpoints {
    fn default() -> Self {
        let interval = Duration::from_secs(10);
        Self {
            key: None,
            former: Vec::new(),
            origin: "portcullis".into(),
            records: 1000,
            interval,
            file: None,
        }
    }
}

impl Compiler<'_> {
    pub(super) fn audit(&mut self, raw: RawAudit) -> Audit {
        let digest_key = raw.digest_key.and_then(|raw| self.secret("/audit/digestKey", raw));
        let checkpoints = self.checkpoints(raw.checkpoints);
        let refusals = self.refusals(&raw.refusals);
        let capture = raw.capture.and_then(|raw| self.capture(&raw));
        let sinks = self.sinks(raw.sinks);
        let wanted = capture.map_or(0, |capture| 2 * capture.size + RECORDS);
        if let Some(sink) = sinks.iter().find(|sink| sink.spools() && sink.spool < wanted) {
            let message =
                format!("the spool of `{}` has no room for the records of a call", sink.name);
            let help =
                format!("give it `spool: {}KiB` or more, or capture less", wanted / 1024 + 1);
            self.report("/audit/capture/size", message, help);
        }
        Audit { sinks, digest_key, checkpoints, refusals, capture, anew: false }
    }

    fn refusals(&mut self, raw: &RawRefusals) -> Refusals {
        let usual = Refusals::default();
        let at = "/audit/refusals/interval";
        let interval = self.time(at, raw.interval.as_deref()).unwrap_or(usual.interval);
        if interval > LONGEST_COUNT {
            let help =
                "give at most `1h`: a crash loses what was counted since it was last recorded";
            self.report(
                at,
                "refusals would be counted for too long before they are recorded",
                help,
            );
        }
        let tracked = raw.tracked.unwrap_or(usual.tracked);
        if !(1..=MOST_TRACKED).contains(&tracked) {
            let message = format!("{tracked} is not a number from 1 to {MOST_TRACKED}");
            let help = "leave it out, or give how many addresses are told apart at once";
            self.report("/audit/refusals/tracked", message, help);
        }
        Refusals { each: raw.each.unwrap_or(usual.each), interval, tracked }
    }

    fn capture(&mut self, raw: &RawCapture) -> Option<Capture> {
        let at = "/audit/capture/size";
        let size = self.size(at, raw.size.as_deref()).unwrap_or(USUAL_CAPTURE);
        if size > MOST_CAPTURED {
            let message = format!("a record has room for {} KiB", MOST_CAPTURED / 1024);
            self.report(at, message, "give less: what is cut is still found by its digest");
        }
        let capture = Capture { arguments: raw.arguments, results: raw.results, size };
        (raw.arguments || raw.results).then_some(capture)
    }

    fn checkpoints(&mut self, raw: RawCheckpoints) -> Checkpoints {
        let usual = Checkpoints::default();
        let key = raw.key.and_then(|raw| self.secret("/audit/checkpoints/key", raw));
        let origin = raw.origin.map_or(usual.origin, Box::from);
        let good = |c: char| c.is_ascii_graphic() && c != '+';
        if origin.is_empty() || origin.len() > 128 || !origin.chars().all(good) {
            let help = "write a name such as `gw.example.com/prod`";
            self.report("/audit/checkpoints/origin", "the name has a space or a plus in it", help);
        }
        if raw.records == Some(0) {
            let help = "give at least 1";
            self.report("/audit/checkpoints/records", "zero records are no reason to sign", help);
        }
        let interval = self.time("/audit/checkpoints/interval", raw.interval.as_deref());
        let file = raw.file.map(|file| self.of_process(&file));
        self.uses.files.extend(file.clone());
        Checkpoints {
            key,
            former: raw.former_keys.into_iter().map(Box::from).collect(),
            origin,
            records: raw.records.unwrap_or(usual.records),
            interval: interval.unwrap_or(usual.interval),
            file,
        }
    }

    fn sinks(&mut self, raws: Vec<RawSink>) -> Vec<Sink> {
        self.filled("/audit/sinks", &raws, "add a file or `stdout: true`: no record, no call");
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for (n, raw) in raws.into_iter().enumerate() {
            let at = format!("/audit/sinks/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut seen);
            found.extend(self.sink(&at, raw));
        }
        found
    }

    fn sink(&mut self, at: &str, raw: RawSink) -> Option<Sink> {
        let (waits, formatted) = (raw.spool.is_some() || raw.on_full != Full::Deny, raw.format);
        let rotates = raw.rotate.is_some();
        let rotation = self.rotation(at, &raw.rotate.unwrap_or_default());
        let spool = self.size(&format!("{at}/spool"), raw.spool.as_deref());
        let mut usual = 16 * MIB;
        let to = match (raw.file, raw.stdout, raw.http, raw.otlp, raw.syslog) {
            (Some(file), None, None, None, None) => {
                let file = self.of_process(&file);
                self.uses.files.push(file.clone());
                SinkTarget::File(file, rotation)
            }
            (None, Some(true), None, None, None) => {
                usual = 64 * 1024;
                SinkTarget::Stdout
            }
            (None, None, Some(http), None, None) => {
                let (place, token) = self.collector_of(&format!("{at}/http"), http)?;
                SinkTarget::Http(place, token)
            }
            (None, None, None, Some(otlp), None) => {
                let (place, token) = self.collector_of(&format!("{at}/otlp"), otlp)?;
                SinkTarget::Otlp(place, token)
            }
            (None, None, None, None, Some(syslog)) => {
                let facility = syslog.facility.unwrap_or(13);
                if facility > 23 {
                    let help = "give a number from 0 to 23";
                    self.report(
                        &format!("{at}/syslog/facility"),
                        "there is no such facility",
                        help,
                    );
                }
                SinkTarget::Syslog(self.syslog(&format!("{at}/syslog"), syslog)?, facility)
            }
            _ => {
                let help =
                    "give exactly one of `file: PATH`, `stdout: true`, `http`, `otlp` and `syslog`";
                self.report(at, "it is not clear where this sink writes", help);
                return None;
            }
        };
        let is_file = matches!(to, SinkTarget::File(..));
        if rotates && !is_file {
            let help = "take `rotate` away";
            self.report(&format!("{at}/rotate"), "only a file is begun anew", help);
        }
        if waits && is_file {
            let help = "take `spool` and `onFull` away: what a file does not take is not done";
            self.report(at, "nothing waits for a file", help);
        }
        let own = matches!(to, SinkTarget::File(..) | SinkTarget::Stdout | SinkTarget::Otlp(..));
        if formatted != Format::Portcullis && own {
            let help = "`portcullis audit export --format ocsf` writes a file anew";
            let message =
                "what is written to files, to standard output and as OTLP can be verified";
            self.report(&format!("{at}/format"), message, help);
        }
        let (format, full) = (raw.format, raw.on_full);
        let spool = spool.unwrap_or(usual);
        Some(Sink { name: raw.name.into(), to, format, spool, full })
    }

    /// Where a collector is, and what it is shown.
    fn collector_of(&mut self, at: &str, raw: RawHttpSink) -> Option<(Place, Option<SecretRef>)> {
        let url = self.guarded_url(&format!("{at}/url"), &raw.url);
        let way = self.way(&format!("{at}/connection"), &raw.connection);
        let token = raw.token.and_then(|token| self.secret(&format!("{at}/token"), token));
        Some((Place { url: url?, way }, token))
    }

    fn rotation(&mut self, at: &str, raw: &RawRotation) -> Rotation {
        let at = |key: &str| format!("{at}/rotate/{key}");
        let size = self.size(&at("size"), raw.size.as_deref()).unwrap_or(256 * MIB) as u64;
        let age = self.time(&at("age"), raw.age.as_deref());
        let keep_for = self.time(&at("keepFor"), raw.keep_for.as_deref());
        Rotation { size, age, keep: raw.keep, keep_for }
    }

    fn syslog(&mut self, at: &str, raw: RawSyslog) -> Option<Syslog> {
        match (raw.udp, raw.tcp, raw.unix) {
            (Some(udp), None, None) => self.address(&format!("{at}/udp"), &udp).map(Syslog::Udp),
            (None, Some(tcp), None) => self.address(&format!("{at}/tcp"), &tcp).map(Syslog::Tcp),
            (None, None, Some(path)) => Some(Syslog::Unix(self.path(&path))),
            _ => {
                let help = "give exactly one of `udp`, `tcp` and `unix`";
                self.report(at, "it is not clear where the syslog is", help);
                None
            }
        }
    }
}
