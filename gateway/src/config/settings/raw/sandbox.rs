//! What a program may do, as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// What a program behind the gateway may do.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawSandbox {
    /// `required`: it is not started where the kernel cannot enforce it (Linux 6.7 and later can).
    /// `preferred`: as far as the kernel can; what it cannot is in the log and on record. `off`: it may
    /// whatever the gateway may.
    pub(in crate::config::settings) mode: RawSandboxMode,
    /// What it may open; the gateway's own files never. Default `listed` where `read` or `write` is given, else
    /// `any`, as without a `sandbox`.
    pub(in crate::config::settings) files: Option<RawFiles>,
    /// Files and folders that it may read and run, besides system libraries and certificates: those of
    /// an interpreter outside `/usr`, its own code.
    #[serde(default)]
    pub(in crate::config::settings) read: Vec<String>,
    /// Files and folders that it may read and write. Beside `files: any`: folders of the system, and devices, such as
    /// `/dev/pts` for a program that makes terminals.
    #[serde(default)]
    pub(in crate::config::settings) write: Vec<String>,
    /// What it may reach, Unix sockets included. Default `none` where `ports` is given, else `any`, as without a `sandbox`.
    pub(in crate::config::settings) network: Option<RawReachable>,
    /// Ports that it may connect to by TCP, wherever they are, so that it has no other way out but looking up
    /// names.
    #[serde(default)]
    pub(in crate::config::settings) ports: Vec<u16>,
    /// Address space of each of its processes, in MiB. Runtimes that reserve more than they use (Node,
    /// Go) need some thousands, or none of this.
    #[serde(rename = "memoryMiB")]
    pub(in crate::config::settings) memory_mib: Option<u64>,
    /// Processes and threads of the user it runs as.
    pub(in crate::config::settings) processes: Option<u64>,
    /// Files that each of its processes may have open.
    pub(in crate::config::settings) open_files: Option<u64>,
}

/// What becomes of a program where the kernel cannot enforce its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawSandboxMode {
    /// It is not started.
    Required,
    /// It is started.
    Preferred,
    /// It has none.
    Off,
}

/// Which files a program may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawFiles {
    /// System libraries, and what `read` and `write` name.
    Listed,
    /// Everything that the user may, but the gateway's own files. Those of the system cannot be changed.
    Any,
}

/// What a program may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawReachable {
    /// No socket but pairs that are connected to each other; with `ports`, these and Unix sockets.
    None,
    /// Everything.
    Any,
}
