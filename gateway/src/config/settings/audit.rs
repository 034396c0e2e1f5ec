//! Compiles the `audit` section: sinks, checkpoints, refusals and capture.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::compiler::SettingsCompiler;
use super::raw::{
    RawAudit, RawCapture, RawCheckpoints, RawHttpSink, RawRefusals, RawRotation, RawSink,
    RawSyslog, SinkFormat, SpoolOverflow,
};
use super::{SecretRef, ServiceEndpoint};

const MIB: usize = 1024 * 1024;
/// The default size of captured arguments, and of a captured result, in bytes.
const USUAL_CAPTURE: usize = 2 * 1024;
/// The maximum size that can be configured for each, in bytes.
const MOST_CAPTURED: usize = 8 * 1024;
/// The maximum interval at which counted refusals are recorded.
const LONGEST_COUNT: Duration = Duration::from_secs(3600);
/// The maximum number of pairs of an address and a reason that can be tracked.
const MOST_TRACKED: usize = 65_536;
/// Bytes of the records of a call without captured contents, and of the records that belong to them.
const RECORDS: usize = 12 * 1024;

/// The sinks, checkpoints and contents of the audit log.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    /// The destinations of records; never empty.
    pub sinks: Vec<SinkSettings>,
    /// The HMAC key of argument digests; `None` for a new one at every start.
    pub digest_key: Option<SecretRef>,
    /// When the log is signed, and with which key.
    pub checkpoints: CheckpointSettings,
    /// How requests of unauthenticated callers are recorded.
    pub refusals: RefusalSettings,
    /// Which contents are recorded; `None` for none.
    pub capture: Option<CaptureSettings>,
    /// Whether a missing log is started anew. Set for one start, by the command line.
    pub anew: bool,
}

/// How requests of unauthenticated callers are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalSettings {
    /// How many requests of one address with one outcome and reason get a record each before further ones are
    /// counted.
    pub each: u64,
    /// The interval at which the counts are recorded.
    pub interval: Duration,
    /// The maximum number of pairs of an address and a reason that are counted separately.
    pub tracked: usize,
}

impl Default for RefusalSettings {
    fn default() -> Self {
        Self { each: 4, interval: Duration::from_secs(10), tracked: 256 }
    }
}

/// Which contents are recorded, redacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureSettings {
    /// Whether arguments of calls are recorded.
    pub arguments: bool,
    /// Whether results of calls are recorded.
    pub results: bool,
    /// Maximum size of each as written in a record, in bytes.
    pub size: usize,
}

/// A destination of records.
#[derive(Clone, Debug)]
pub struct SinkSettings {
    /// The name of the sink.
    pub name: Box<str>,
    /// Where the sink writes.
    pub to: SinkTarget,
    /// The format of its records.
    pub format: SinkFormat,
    /// Maximum bytes that wait to be written.
    pub spool: usize,
    /// What happens to a call if the sink has no room for its record.
    pub full: SpoolOverflow,
}

impl SinkSettings {
    /// Whether records wait in a spool.
    const fn spools(&self) -> bool {
        !matches!(self.to, SinkTarget::File(..))
    }
}

/// Where a sink writes.
#[derive(Clone, Debug)]
pub enum SinkTarget {
    /// To a file that is rotated.
    File(PathBuf, Rotation),
    /// To the standard output.
    Stdout,
    /// To an HTTP endpoint by POST, with this bearer token.
    Http(ServiceEndpoint, Option<SecretRef>),
    /// To an OTLP collector, with this bearer token.
    Otlp(ServiceEndpoint, Option<SecretRef>),
    /// To a syslog server, with this facility.
    Syslog(SyslogAddress, u8),
}

/// The address of a syslog server.
#[derive(Clone, Debug)]
pub enum SyslogAddress {
    /// UDP to this address.
    Udp(SocketAddr),
    /// TCP to this address.
    Tcp(SocketAddr),
    /// A Unix socket on this machine.
    Unix(PathBuf),
}

/// When a new file is started, and how long full files are kept.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// The size after which a new file is started, in bytes.
    pub size: u64,
    /// The age after which a new file is started; `None` for never.
    pub age: Option<Duration>,
    /// How many full files are kept; `None` for all.
    pub keep: Option<usize>,
    /// How long full files are kept; `None` for ever.
    pub retention: Option<Duration>,
}

/// When the log is signed, and with which key.
#[derive(Clone, Debug)]
pub struct CheckpointSettings {
    /// The signing key; `None` for a new one at every start.
    pub key: Option<SecretRef>,
    /// The public keys that were used before.
    pub former: Vec<Box<str>>,
    /// The name of the gateway in checkpoints.
    pub origin: Box<str>,
    /// The number of records after which a checkpoint is signed.
    pub records: u64,
    /// The time after which a checkpoint is signed if there are new records.
    pub interval: Duration,
    /// A file that checkpoints are also appended to.
    pub file: Option<PathBuf>,
}

impl Default for CheckpointSettings {
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

impl SettingsCompiler<'_> {
    pub(super) fn audit(&mut self, raw: RawAudit) -> AuditSettings {
        let digest_key = raw.digest_key.and_then(|raw| self.secret("/audit/digestKey", raw));
        let checkpoints = self.checkpoints(raw.checkpoints);
        let refusals = self.refusals(&raw.refusals);
        let capture = raw.capture.and_then(|raw| self.capture(&raw));
        let sinks = self.sinks(raw.sinks);
        let wanted = capture.map_or(0, |capture| 2 * capture.size + RECORDS);
        let fits = |sink: &SinkSettings| match sink.full {
            // One caller has half of it.
            SpoolOverflow::Deny => sink.spool / 2 >= wanted,
            SpoolOverflow::Block | SpoolOverflow::Drop => sink.spool >= wanted,
        };
        if let Some(sink) = sinks.iter().find(|sink| sink.spools() && !fits(sink)) {
            let wanted = if sink.full == SpoolOverflow::Deny { 2 * wanted } else { wanted };
            let message =
                format!("the spool of `{}` has no room for the records of a call", sink.name);
            let help =
                format!("give it `spool: {}KiB` or more, or capture less", wanted / 1024 + 1);
            self.report("/audit/capture/size", message, help);
        }
        AuditSettings { sinks, digest_key, checkpoints, refusals, capture, anew: false }
    }

    fn refusals(&mut self, raw: &RawRefusals) -> RefusalSettings {
        let usual = RefusalSettings::default();
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
        let tracked = raw.max_tracked.unwrap_or(usual.tracked);
        if !(1..=MOST_TRACKED).contains(&tracked) {
            let message = format!("{tracked} is not a number from 1 to {MOST_TRACKED}");
            let help = "leave it out, or give how many addresses are told apart at once";
            self.report("/audit/refusals/maxTracked", message, help);
        }
        RefusalSettings { each: raw.individual_records.unwrap_or(usual.each), interval, tracked }
    }

    fn capture(&mut self, raw: &RawCapture) -> Option<CaptureSettings> {
        let at = "/audit/capture/size";
        let size = self.size(at, raw.size.as_deref()).unwrap_or(USUAL_CAPTURE);
        if size > MOST_CAPTURED {
            let message = format!("a record has room for {} KiB", MOST_CAPTURED / 1024);
            self.report(at, message, "give less: what is cut is still found by its digest");
        }
        let capture = CaptureSettings { arguments: raw.arguments, results: raw.results, size };
        (raw.arguments || raw.results).then_some(capture)
    }

    fn checkpoints(&mut self, raw: RawCheckpoints) -> CheckpointSettings {
        let usual = CheckpointSettings::default();
        let key = raw.key.and_then(|raw| self.secret("/audit/checkpoints/key", raw));
        let origin = raw.origin.map_or(usual.origin, Box::from);
        let good = |c: char| c.is_ascii_graphic() && c != '+';
        if origin.is_empty() || origin.len() > 128 || !origin.chars().all(good) {
            let help = "write a name such as `gw.example.com/prod`";
            self.report("/audit/checkpoints/origin", "the name has a space or a plus in it", help);
        }
        if raw.records == Some(0) {
            let help = "give at least 1";
            self.report("/audit/checkpoints/records", "must be at least 1", help);
        }
        let interval = self.time("/audit/checkpoints/interval", raw.interval.as_deref());
        let file = raw.file.map(|file| self.of_process(&file));
        self.uses.files.extend(file.clone());
        CheckpointSettings {
            key,
            former: raw.former_keys.into_iter().map(Box::from).collect(),
            origin,
            records: raw.records.unwrap_or(usual.records),
            interval: interval.unwrap_or(usual.interval),
            file,
        }
    }

    fn sinks(&mut self, raws: Vec<RawSink>) -> Vec<SinkSettings> {
        self.filled("/audit/sinks", &raws, "add a sink: a file, or `stdout: true`");
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for (n, raw) in raws.into_iter().enumerate() {
            let at = format!("/audit/sinks/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut seen);
            found.extend(self.sink(&at, raw));
        }
        found
    }

    fn sink(&mut self, at: &str, raw: RawSink) -> Option<SinkSettings> {
        let (waits, formatted) =
            (raw.spool.is_some() || raw.on_full != SpoolOverflow::Deny, raw.format);
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
                let facility = self.facility(&format!("{at}/syslog/facility"), syslog.facility);
                SinkTarget::Syslog(self.syslog(&format!("{at}/syslog"), syslog)?, facility)
            }
            _ => {
                let help =
                    "give exactly one of `file: PATH`, `stdout: true`, `http`, `otlp` and `syslog`";
                self.report(
                    at,
                    "a sink has exactly one of `file`, `stdout`, `http`, `otlp` and `syslog`",
                    help,
                );
                return None;
            }
        };
        let is_file = matches!(to, SinkTarget::File(..));
        if rotates && !is_file {
            let help = "remove `rotate`";
            self.report(&format!("{at}/rotate"), "`rotate` applies to files only", help);
        }
        if waits && is_file {
            let help = "remove `spool` and `onFull`: if a file does not accept a record, the request is refused";
            self.report(at, "`spool` and `onFull` do not apply to files", help);
        }
        let own = matches!(to, SinkTarget::File(..) | SinkTarget::Stdout | SinkTarget::Otlp(..));
        if formatted != SinkFormat::Portcullis && own {
            let help = "`portcullis audit export --format ocsf` converts a file";
            let message = "`format: ocsf` cannot be verified, so files, standard output and OTLP do not support it";
            self.report(&format!("{at}/format"), message, help);
        }
        let (format, full) = (raw.format, raw.on_full);
        let spool = spool.unwrap_or(usual);
        Some(SinkSettings { name: raw.name.into(), to, format, spool, full })
    }

    /// The facility of syslog messages (RFC 5424, section 6.2.1).
    fn facility(&mut self, at: &str, written: Option<u8>) -> u8 {
        let facility = written.unwrap_or(13);
        if facility > 23 {
            self.report(at, "there is no such facility", "give a number from 0 to 23");
        }
        facility
    }

    /// The URL of a collector and how the gateway connects to it, with its bearer token.
    fn collector_of(
        &mut self,
        at: &str,
        raw: RawHttpSink,
    ) -> Option<(ServiceEndpoint, Option<SecretRef>)> {
        let url = self.guarded_url(&format!("{at}/url"), &raw.url);
        let way = self.way(&format!("{at}/connection"), &raw.connection);
        let token = raw.token.and_then(|token| self.secret(&format!("{at}/token"), token));
        Some((ServiceEndpoint { url: url?, way }, token))
    }

    fn rotation(&mut self, at: &str, raw: &RawRotation) -> Rotation {
        let at = |key: &str| format!("{at}/rotate/{key}");
        let size = self.size(&at("maxSize"), raw.max_size.as_deref()).unwrap_or(256 * MIB) as u64;
        let age = self.time(&at("maxAge"), raw.max_age.as_deref());
        let retention = self.time(&at("retention"), raw.retention.as_deref());
        Rotation { size, age, keep: raw.max_files, retention }
    }

    fn syslog(&mut self, at: &str, raw: RawSyslog) -> Option<SyslogAddress> {
        match (raw.udp, raw.tcp, raw.unix) {
            (Some(udp), None, None) => {
                self.address(&format!("{at}/udp"), &udp).map(SyslogAddress::Udp)
            }
            (None, Some(tcp), None) => {
                self.address(&format!("{at}/tcp"), &tcp).map(SyslogAddress::Tcp)
            }
            (None, None, Some(path)) => Some(SyslogAddress::Unix(self.path(&path))),
            _ => {
                let help = "give exactly one of `udp`, `tcp` and `unix`";
                self.report(at, "the address of the syslog is given exactly once", help);
                None
            }
        }
    }
}
