//! The `audit` section as written: sinks, checkpoints, refusals and capture.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawReach, RawSecret};

/// Where every exchange is recorded.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawAudit {
    /// The sinks. Each gets every record; a sink that fails stops all calls, unless it may drop records.
    pub(in crate::config::settings) sinks: Vec<RawSink>,
    /// The HMAC key of argument digests. Without it a new one is generated at every start, and digests of two runs
    /// cannot be compared.
    pub(in crate::config::settings) digest_key: Option<RawSecret>,
    /// The signed checkpoints of the log.
    #[serde(default)]
    pub(in crate::config::settings) checkpoints: RawCheckpoints,
    /// How requests of unauthenticated callers are recorded.
    #[serde(default)]
    pub(in crate::config::settings) refusals: RawRefusals,
    /// Which contents are recorded in addition, without the secrets and personal data that the detectors find.
    /// Without it no record contains any content.
    pub(in crate::config::settings) capture: Option<RawCapture>,
}

/// Which contents are recorded. They go to every sink.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawCapture {
    /// The arguments of tools and prompts as callers send them, also of denied calls.
    pub(in crate::config::settings) arguments: bool,
    /// The results as servers send them, even if callers get less of them. Members that are labelled as sensitive
    /// are left out.
    pub(in crate::config::settings) results: bool,
    /// Maximum size of each as written in a record, up to `8KiB`. Default `2KiB`.
    pub(in crate::config::settings) size: Option<String>,
}

/// How requests of unauthenticated callers are recorded: the first ones of an address with one outcome and reason
/// get a record each, further ones share one record with their count. Requests of authenticated callers always get
/// a record each. Requests that a server sends outside of calls and may not send are recorded in the same way, by
/// server and reason.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawRefusals {
    /// How many requests get a record each before further ones are counted. Default 4.
    pub(in crate::config::settings) individual_records: Option<u64>,
    /// How often the counts are recorded; an address that was silent for so long starts over. Default `10s`, at
    /// most `1h`.
    pub(in crate::config::settings) interval: Option<String>,
    /// Maximum pairs of an address and a reason that are counted separately; requests of further pairs are counted
    /// together. Default 256, at most 65536.
    pub(in crate::config::settings) max_tracked: Option<usize>,
}

/// The key that signs the checkpoints of the log, and how often it does.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawCheckpoints {
    /// The signing key, Ed25519 in PEM (PKCS#8), which `portcullis audit keygen` generates. Without it a new one is
    /// generated at every start, and only the log itself shows that the key is the gateway's.
    pub(in crate::config::settings) key: Option<RawSecret>,
    /// The public keys, as `NAME+HASH+KEY`, that were used before. A log whose last checkpoint is signed by none of
    /// these and not by `key` is not continued.
    #[serde(default)]
    pub(in crate::config::settings) former_keys: Vec<String>,
    /// The name of this gateway in checkpoints, such as `gw.example.com/prod`, without spaces and plus signs.
    /// Default `portcullis`.
    pub(in crate::config::settings) origin: Option<String>,
    /// The number of records after which a checkpoint is signed. Default 1000.
    pub(in crate::config::settings) records: Option<u64>,
    /// The time after which a checkpoint is signed if there are new records. Default `10s`.
    pub(in crate::config::settings) interval: Option<String>,
    /// A file that checkpoints are also appended to. If it is on append-only storage, it proves that the end of the
    /// log was not cut off.
    pub(in crate::config::settings) file: Option<String>,
}

/// A destination of records: exactly one of `file`, `stdout`, `http`, `otlp` and `syslog`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawSink {
    /// The name of the sink in records, logs and metrics.
    pub(in crate::config::settings) name: String,
    /// A file that records are appended to, one JSON object per line, relative to the directory of this file. No
    /// other process may write to it: a `portcullis stdio` that runs on its own writes to `FILE.stdio-N` instead.
    pub(in crate::config::settings) file: Option<String>,
    /// When a new file is started. The full one is renamed to `NAME.NUMBER.EXTENSION`, with the number of its first
    /// record.
    pub(in crate::config::settings) rotate: Option<RawRotation>,
    /// Write records to standard output, one JSON object per line.
    pub(in crate::config::settings) stdout: Option<bool>,
    /// An endpoint that takes batches of records by POST: an `https` URL, or an `http` URL on this machine.
    pub(in crate::config::settings) http: Option<RawHttpSink>,
    /// An OTLP collector, over HTTP: `/v1/logs` is appended to its URL. Each record is the body of a log record.
    pub(in crate::config::settings) otlp: Option<RawHttpSink>,
    /// A syslog server (RFC 5424).
    pub(in crate::config::settings) syslog: Option<RawSyslog>,
    /// The format of records for `http` and `syslog`. Default `portcullis`, the only one that can be verified.
    #[serde(default)]
    pub(in crate::config::settings) format: SinkFormat,
    /// Maximum bytes that wait for `stdout`, `http`, `otlp` or `syslog`. Default `16MiB`, and `64KiB` for `stdout`.
    pub(in crate::config::settings) spool: Option<String>,
    /// What happens to a call if the sink has no room for its record. Default `deny`.
    #[serde(default)]
    pub(in crate::config::settings) on_full: SpoolOverflow,
}

/// The format of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SinkFormat {
    /// The same JSON as in the file.
    #[default]
    Portcullis,
    /// An OCSF 1.8 event: API Activity (6003), Authentication (3002), Detection Finding (2004) or Application
    /// Lifecycle (6002).
    Ocsf,
}

/// What happens to a call if the sink has no room for its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SpoolOverflow {
    /// The call is denied.
    #[default]
    Deny,
    /// The call waits until there is room.
    Block,
    /// The call proceeds. The log records which records the sink lacks.
    Drop,
}

/// When a new file is started, and how long full files are kept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawRotation {
    /// The size after which a new file is started. Default `256MiB`.
    pub(in crate::config::settings) max_size: Option<String>,
    /// The age after which a new file is started. Default: never.
    pub(in crate::config::settings) max_age: Option<String>,
    /// How many full files are kept. Default: all.
    pub(in crate::config::settings) max_files: Option<usize>,
    /// How long full files are kept. Default: for ever.
    pub(in crate::config::settings) retention: Option<String>,
}

/// An HTTP endpoint that takes records.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawHttpSink {
    /// The URL that records are sent to by POST; with `http` as `application/x-ndjson`. A status of 200 to 299
    /// confirms the whole batch; otherwise it is sent again.
    pub(in crate::config::settings) url: String,
    /// The token in `Authorization: Bearer`.
    pub(in crate::config::settings) token: Option<RawSecret>,
    /// How the gateway connects to the endpoint.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// The address of a syslog server: exactly one of `udp`, `tcp` and `unix`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawSyslog {
    /// The address and port for UDP (RFC 5426).
    pub(in crate::config::settings) udp: Option<String>,
    /// The address and port for TCP with octet counting (RFC 6587).
    pub(in crate::config::settings) tcp: Option<String>,
    /// The path of a Unix socket on this machine, such as `/dev/log`.
    pub(in crate::config::settings) unix: Option<String>,
    /// The syslog facility. Default 13, log audit.
    pub(in crate::config::settings) facility: Option<u8>,
}
