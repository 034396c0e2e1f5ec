//! The `sandbox` of a server as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// What a program behind the gateway may access.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawSandbox {
    /// `required`: the program is not started if the kernel cannot enforce the sandbox (Linux 6.7 and later can).
    /// `preferred`: the kernel enforces as much as it can, and the rest is logged and recorded. `off`: the program
    /// may access everything that the gateway may.
    pub(in crate::config::settings) mode: RawSandboxMode,
    /// Which files the program may open; never the gateway's own. Default `listed` where `read` or `write` is
    /// given, else `any`, as without a `sandbox`.
    pub(in crate::config::settings) files: Option<RawFiles>,
    /// Files and directories that the program may read and execute, besides system libraries and certificates, such
    /// as its own code or an interpreter outside `/usr`.
    #[serde(default)]
    pub(in crate::config::settings) read: Vec<String>,
    /// Files and directories that the program may read and write. With `files: any`: only system directories, and
    /// devices, such as `/dev/pts` for a program that opens terminals.
    #[serde(default)]
    pub(in crate::config::settings) write: Vec<String>,
    /// What the program may connect to, including Unix sockets. Default `none` where `ports` is given, else `any`,
    /// as without a `sandbox`.
    pub(in crate::config::settings) network: Option<RawReachable>,
    /// TCP ports that the program may connect to, at any address. To no other port can it open a TCP connection; UDP,
    /// which name resolution needs, is open.
    #[serde(default)]
    pub(in crate::config::settings) ports: Vec<u16>,
    /// Maximum address space of each of its processes, in MiB. Runtimes that reserve more than they use (Node, Go)
    /// need several thousand, or no limit.
    #[serde(rename = "memoryMiB")]
    pub(in crate::config::settings) memory_mib: Option<u64>,
    /// Maximum processes and threads of the user that it runs as.
    pub(in crate::config::settings) processes: Option<u64>,
    /// Maximum open files of each of its processes.
    pub(in crate::config::settings) open_files: Option<u64>,
}

/// What happens to a program whose sandbox the kernel cannot enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawSandboxMode {
    /// The program is not started.
    Required,
    /// The program is started with as much of the sandbox as the kernel can enforce.
    Preferred,
    /// The program is started without a sandbox.
    Off,
}

/// Which files a program may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawFiles {
    /// System libraries, and the paths in `read` and `write`.
    Listed,
    /// All files that its user may open, except the gateway's own. System files are read-only.
    Any,
}

/// What a program may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawReachable {
    /// No sockets except connected pairs; with `ports`, also TCP to these ports and Unix sockets.
    None,
    /// Everything that its user may.
    Any,
}
