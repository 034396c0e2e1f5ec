//! Where records go, as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawReach, RawSecret};

/// Where every exchange is recorded.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawAudit {
    /// Every sink gets every record; one that fails stops all calls, unless it may lose some.
    pub(in crate::config::settings) sinks: Vec<RawSink>,
    /// The key that argument digests are made with. Without it a new one is made at every start,
    /// and digests of two runs cannot be compared.
    pub(in crate::config::settings) digest_key: Option<RawSecret>,
    /// The signed head of the log.
    #[serde(default)]
    pub(in crate::config::settings) checkpoints: RawCheckpoints,
    /// How requests of callers that are not known are recorded.
    #[serde(default)]
    pub(in crate::config::settings) refusals: RawRefusals,
    /// Contents that are recorded as well, without secrets and personal data as far as the detectors find
    /// them. Without it no record has any content.
    pub(in crate::config::settings) capture: Option<RawCapture>,
}

/// Which contents are recorded. They go to every sink.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawCapture {
    /// What callers send: the arguments of tools and prompts, also of calls that are denied.
    pub(in crate::config::settings) arguments: bool,
    /// What servers answer, whatever callers are shown of it, without members that are labelled as
    /// sensitive.
    pub(in crate::config::settings) results: bool,
    /// Most of each, as it is written in a record, up to `8KiB`. Default `2KiB`.
    pub(in crate::config::settings) size: Option<String>,
}

/// How requests of callers that are not known are recorded: the first of an address with one outcome and reason
/// one by one, those after them in one record that counts them. Requests of known callers have a record each in any case.
/// What a server asks outside of calls and may not ask is recorded in the same way, by server and reason.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawRefusals {
    /// How many have a record each before they are counted. Default 4.
    pub(in crate::config::settings) each: Option<u64>,
    /// How often those that were counted are recorded; an address that was quiet for so long begins anew. Default
    /// `10s`, at most `1h`.
    pub(in crate::config::settings) interval: Option<String>,
    /// How many pairs of an address and a reason are told apart at once; what comes from more is counted
    /// together. Default 256, at most 65536.
    pub(in crate::config::settings) tracked: Option<usize>,
}

/// Who signs the head of the log, and how often.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawCheckpoints {
    /// The key, Ed25519 in PEM (PKCS#8): `portcullis audit keygen` makes one. Without it a new one is
    /// made at every start, and only the log itself says that it is the gateway's.
    pub(in crate::config::settings) key: Option<RawSecret>,
    /// The public halves, `NAME+HASH+KEY`, of keys that were used before: a log that ends with a checkpoint
    /// of none of these and not of `key` is not continued.
    #[serde(default)]
    pub(in crate::config::settings) former_keys: Vec<String>,
    /// The name of this gateway in checkpoints, such as `gw.example.com/prod`: no space and no plus.
    /// Default `portcullis`.
    pub(in crate::config::settings) origin: Option<String>,
    /// The head is signed after so many records. Default 1000.
    pub(in crate::config::settings) records: Option<u64>,
    /// And after so long, if there were any. Default `10s`.
    pub(in crate::config::settings) interval: Option<String>,
    /// A file that checkpoints are appended to as well. On storage that can only be appended to, it is
    /// what proves that the end of the log has not been cut off.
    pub(in crate::config::settings) file: Option<String>,
}

/// A place for records: exactly one of `file`, `stdout`, `http`, `otlp` and `syslog`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawSink {
    /// Its name in records, logs and metrics.
    pub(in crate::config::settings) name: String,
    /// A file that records are appended to, one JSON object on each line, from the folder of this file. No other process
    /// may write to it: a `portcullis stdio` that runs by itself writes to `FILE.stdio-N` instead.
    pub(in crate::config::settings) file: Option<String>,
    /// When the file is begun anew. The full one is kept beside it as `NAME.NUMBER.EXTENSION`, with
    /// the number of its first record.
    pub(in crate::config::settings) rotate: Option<RawRotation>,
    /// Standard output, likewise.
    pub(in crate::config::settings) stdout: Option<bool>,
    /// Whoever takes them by POST, many at a time: an `https` URL, or an `http` one of this machine.
    pub(in crate::config::settings) http: Option<RawHttpSink>,
    /// A collector of OTLP, by HTTP: `/v1/logs` comes after its URL. A record is the body of a log record.
    pub(in crate::config::settings) otlp: Option<RawHttpSink>,
    /// A syslog (RFC 5424).
    pub(in crate::config::settings) syslog: Option<RawSyslog>,
    /// How a record is written for `http` and `syslog`. Default `portcullis`, which can be verified.
    #[serde(default)]
    pub(in crate::config::settings) format: Format,
    /// Bytes that may wait for `stdout`, `http`, `otlp` or `syslog`. Default `16MiB`, and `64KiB` for
    /// `stdout`.
    pub(in crate::config::settings) spool: Option<String>,
    /// What becomes of a call when there is no room for its record. Default `deny`.
    #[serde(default)]
    pub(in crate::config::settings) on_full: Full,
}

/// How a record is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// As in the file.
    #[default]
    Portcullis,
    /// As an event of OCSF 1.8: API Activity (6003), Authentication (3002), Detection Finding (2004)
    /// or Application Lifecycle (6002).
    Ocsf,
}

/// What becomes of a call when there is no room for its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Full {
    /// It is not made.
    #[default]
    Deny,
    /// It waits until there is room.
    Block,
    /// It is made. Which records the sink lacks is on record.
    Drop,
}

/// When a file is begun anew, and for how long full ones are kept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawRotation {
    /// After so many bytes. Default `256MiB`.
    pub(in crate::config::settings) size: Option<String>,
    /// After so long. Default: never.
    pub(in crate::config::settings) age: Option<String>,
    /// How many full ones are kept. Default: all.
    pub(in crate::config::settings) keep: Option<usize>,
    /// For how long full ones are kept. Default: for ever.
    pub(in crate::config::settings) keep_for: Option<String>,
}

/// Who takes records over HTTP.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawHttpSink {
    /// Where they are sent by POST, by `http` as `application/x-ndjson`. Any status of 200 to 299 means that all
    /// of them were taken; they are sent again otherwise.
    pub(in crate::config::settings) url: String,
    /// What it is shown in `Authorization: Bearer`.
    pub(in crate::config::settings) token: Option<RawSecret>,
    /// How it is reached.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// Where a syslog is: exactly one of `udp`, `tcp` and `unix`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawSyslog {
    /// An address and port, by UDP (RFC 5426).
    pub(in crate::config::settings) udp: Option<String>,
    /// An address and port, by TCP with counted octets (RFC 6587).
    pub(in crate::config::settings) tcp: Option<String>,
    /// A socket on this machine, such as `/dev/log`.
    pub(in crate::config::settings) unix: Option<String>,
    /// The facility. Default 13, log audit.
    pub(in crate::config::settings) facility: Option<u8>,
}
