//! What a program behind the gateway can do: read and write where it may, reach what it may, and nothing
//! that changes the machine (control C28).
//!
//! The gateway starts itself with [`VERB`], which gives up rights and then becomes the program: nothing
//! has to be undone, and nothing of it runs between `fork` and `exec` of the gateway. Landlock bounds
//! files and TCP, seccomp takes system calls away that no server needs, `no_new_privs` makes both hold for
//! whatever the program starts, and limits bound what it uses.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use serde::{Deserialize, Serialize};

/// The verb of the command line that becomes a program.
pub const VERB: &str = "__sandbox";
/// The exit code when the sandbox cannot be had, as of a command that cannot be run.
pub const REFUSED: u8 = 126;

/// What every program may read, where it is there: its loader, its libraries and what names are looked
/// up with.
const USUAL: [&str; 20] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/etc/ld.so.cache",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/alternatives",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/sys/fs/cgroup",
];
/// Devices that it may read and write.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// System calls that no server needs: those that look into or change other processes, change the machine
/// or its view of files, load code into the kernel, or are known for what was done with them.
const TAKEN: [i64; 43] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_name_to_handle_at,
];

/// What a program may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Nothing but sockets of files.
    None,
    /// These ports by TCP, wherever they are; names can be looked up.
    Ports(Vec<u16>),
    /// Everything.
    Any,
}

/// What a program may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// It is not started where that cannot be enforced.
    pub required: bool,
    /// What it may read and run, besides what every program may.
    pub read: Vec<PathBuf>,
    /// What it may read and write.
    pub write: Vec<PathBuf>,
    /// What it may reach.
    pub network: Network,
    /// Bytes of memory of each of its processes.
    pub memory: Option<u64>,
    /// Processes and threads of its user.
    pub processes: Option<u64>,
    /// Files each of its processes has open.
    pub files: Option<u64>,
}

/// Why a sandbox cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel does not do it.
    #[error("Landlock: {0}")]
    Landlock(#[from] RulesetError),
    /// A path cannot be opened.
    #[error("`{0}` cannot be opened: {1}")]
    Path(PathBuf, #[source] landlock::PathFdError),
    /// The kernel does it in part.
    #[error("the kernel enforces it in part")]
    Partial,
    /// The filter of system calls cannot be had.
    #[error("seccomp: {0}")]
    Seccomp(String),
    /// A limit cannot be set.
    #[error("a limit cannot be set: {0}")]
    Limit(#[source] rustix::io::Errno),
    /// The program cannot be started.
    #[error("the program cannot be started: {0}")]
    Start(#[source] io::Error),
}

impl Plan {
    /// The command line that becomes `command` under this plan.
    ///
    /// # Errors
    /// When this program does not know where it is.
    pub fn command(&self, command: &str, args: &[String]) -> io::Result<(PathBuf, Vec<OsString>)> {
        let exe = std::env::current_exe()?;
        let plan = serde_json::to_string(self).map_err(io::Error::other)?;
        let mut line: Vec<OsString> = vec![VERB.into(), plan.into(), "--".into(), command.into()];
        line.extend(args.iter().map(OsString::from));
        Ok((exe, line))
    }

    /// Reads what [`Self::command`] wrote.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "our own words, from our own process")]
        serde_json::from_str(text).ok()
    }

    /// Whether this kernel can enforce it; nothing is given up.
    ///
    /// # Errors
    /// When it cannot, or only in part.
    pub fn check(&self) -> Result<(), SandboxError> {
        self.ruleset(true)?;
        filter(&self.network)?;
        Ok(())
    }

    /// Gives up what it does not say, and becomes the program. Says what could not be given up.
    ///
    /// # Errors
    /// When it cannot, and has to; or when the program cannot be started.
    pub fn become_program(
        &self,
        command: &str,
        args: &[OsString],
        complain: impl Fn(&str),
    ) -> Result<Infallible, SandboxError> {
        for (resource, limit) in [
            (Resource::As, self.memory),
            (Resource::Nproc, self.processes),
            (Resource::Nofile, self.files),
            // What a program leaves when it falls over may have secrets in it.
            (Resource::Core, Some(0)),
        ] {
            let Some(limit) = limit else { continue };
            let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
            setrlimit(resource, limit).map_err(SandboxError::Limit)?;
        }
        match self.enforce() {
            Ok(()) => {}
            Err(error) if self.required => return Err(error),
            Err(error) => complain(&format!("the sandbox is not complete: {error}")),
        }
        Err(SandboxError::Start(Command::new(command).args(args).exec()))
    }

    fn enforce(&self) -> Result<(), SandboxError> {
        // The filter first: it needs a file or two that Landlock would not open.
        let filter = filter(&self.network)?;
        let status = self.ruleset(self.required)?.restrict_self()?;
        apply_filter(&filter).map_err(|error| SandboxError::Seccomp(error.to_string()))?;
        match status.ruleset {
            RulesetStatus::FullyEnforced => Ok(()),
            // What is newer than what has to be enforced may be missing.
            RulesetStatus::PartiallyEnforced if self.required => Ok(()),
            RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
                Err(SandboxError::Partial)
            }
        }
    }

    fn ruleset(&self, required: bool) -> Result<RulesetCreated, SandboxError> {
        let level = if required { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
        // Linux 6.7: files, and TCP. What came later is taken where it is there.
        let mut ruleset = Ruleset::default()
            .set_compatibility(level)
            .handle_access(AccessFs::from_all(ABI::V4))?;
        if self.network != Network::Any {
            ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
        }
        let mut created = ruleset
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V5))?
            .scope(Scope::AbstractUnixSocket | Scope::Signal)?
            .create()?
            .set_compatibility(CompatLevel::BestEffort);
        let read = AccessFs::from_read(ABI::V5);
        for path in USUAL {
            created = allow(created, Path::new(path), read, false)?;
        }
        for path in DEVICES {
            let access = AccessFs::ReadFile | AccessFs::WriteFile;
            created = allow(created, Path::new(path), access, false)?;
        }
        for path in &self.read {
            created = allow(created, path, read, true)?;
        }
        for path in &self.write {
            created = allow(created, path, AccessFs::from_all(ABI::V5), true)?;
        }
        if let Network::Ports(ports) = &self.network {
            for port in ports {
                created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
            }
        }
        Ok(created)
    }
}

fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
    has_to_exist: bool,
) -> Result<RulesetCreated, SandboxError> {
    let file = match PathFd::new(path) {
        Ok(file) => file,
        Err(error) if has_to_exist => return Err(SandboxError::Path(path.to_owned(), error)),
        Err(_) => return Ok(ruleset),
    };
    // What makes sense for folders alone makes none for a file.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(ABI::V5) };
    Ok(ruleset.add_rule(PathBeneath::new(file, access))?)
}

/// The filter: what is taken is refused with EPERM, everything else is allowed.
fn filter(network: &Network) -> Result<BpfProgram, SandboxError> {
    let failed = |error: seccompiler::BackendError| SandboxError::Seccomp(error.to_string());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        TAKEN.iter().map(|call| (*call, Vec::new())).collect();
    if *network == Network::None {
        let unix = u64::try_from(libc::AF_UNIX).unwrap_or_default();
        let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix);
        let rule = SeccompRule::new(vec![other.map_err(failed)?]).map_err(failed)?;
        rules.insert(libc::SYS_socket, vec![rule]);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).map_err(failed)?;
    filter.try_into().map_err(failed)
}
