//! The sandbox of a program that the gateway starts: limits the files, the network and the system calls that it can use
//! (control C28).
//!
//! The gateway starts itself with [`VERB`]; that process gives up rights and then becomes the program: nothing
//! has to be undone, and no code of the gateway runs between `fork` and `exec`. Landlock limits
//! files and TCP, seccomp removes system calls and sockets that no server needs, `no_new_privs` extends both to
//! everything that the program starts, and resource limits bound its consumption. A privileged user keeps only the
//! capabilities in [`KEPT`].
//!
//! Every program, even one without a sandbox, has a session of its own, so that it has no terminal. A server is
//! started by a supervisor process, which ends all of its processes when it ends: see [`supervised`].
//!
//! A program without a configured sandbox can reach everything but the gateway: see [`SandboxPlan::usual`].

mod around;
mod closed;
mod supervisor;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort,
    PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope,
};
use rustix::fs::access;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, geteuid, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter,
};
use serde::{Deserialize, Serialize};

use self::around::{AccessRules, PathAccess, UserPrivilege, is_of_the_system};
pub use self::closed::{DenialAdvice, DeniedPath, DeniedPathFinder};
use crate::base::error_chain::ErrorChain;
use crate::process::open_files;

/// The verb of the command line with which the gateway process becomes a program.
pub const VERB: &str = "__sandbox";
/// The verb of the command line that supervises a program.
pub const SUPERVISOR: &str = "__supervise";
/// The exit code when the sandbox cannot be set up, as for a command that cannot be executed.
pub const REFUSED: u8 = 126;

/// Paths that every program may read, where they exist: its loader, its libraries, and the files for name
/// resolution.
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
/// Devices that every program may read and write.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// System calls that no server needs: those that inspect or change other processes, change the machine
/// or its mounts, load code into the kernel, or have a history of exploits.
const TAKEN: [i64; 45] = [
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
    KEXEC_FILE_LOAD,
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
    libc::SYS_open_by_handle_at,
];
/// `kexec_file_load`, which `libc` does not name for every target that the gateway is built for.
const KEXEC_FILE_LOAD: i64 = if cfg!(target_arch = "x86_64") { 320 } else { 294 };
/// The flags of `clone` that create namespaces, as `unshare` does.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// The bit in the system call numbers of the x32 ABI. Linux reports such a call as one of x86-64, and it
/// has the effect of the call without the bit.
const X32: u32 = 0x4000_0000;

/// The ones among [`TAKEN`] that ordinary programs need for processes and users of their own: debuggers and
/// browsers. They cannot reach the gateway: Landlock keeps a program from inspecting processes outside
/// its sandbox, and the gateway is not dumpable. Where `unshare` is allowed, so is `clone`
/// with new namespaces.
const SPARED: [i64; 5] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_unshare,
    libc::SYS_chroot,
];

/// System calls that change how a process runs, with the id of the process or thread in the first argument. A
/// program could use them to slow down or stop any process of its user, which Landlock does not prevent, so they are
/// allowed only for the caller itself (0). A filter cannot tell its other threads from threads of other processes.
const BY_PROCESS: [i64; 6] = [
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];
/// The same for system calls with the kind of id in the first argument and the id in the second: with the kind that
/// stands for a single process (`PRIO_PROCESS`, `IOPRIO_WHO_PROCESS`). A group may include the gateway, and so does
/// the user.
const BY_KIND: [(i64, u64); 2] = [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];

/// System calls that change the mode, the owner or the attributes of the file at a path. Landlock does not
/// restrict them, so they apply to files that a program cannot open; those that take a file descriptor apply only to
/// files that Landlock lets it open, and are allowed.
const BY_PATH: [i64; 10] = [
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
];
/// The ones that only older architectures have.
#[cfg(target_arch = "x86_64")]
const BY_PATH_OF_OLD: [i64; 3] = [libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown];
/// The ones that only older architectures have.
#[cfg(not(target_arch = "x86_64"))]
const BY_PATH_OF_OLD: [i64; 0] = [];
/// System calls that `libc` does not name for every target. Their numbers are the same on all architectures.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// The capabilities that a program of root keeps (`capabilities(7)`). All others are dropped, including those of
/// kernels that are newer than this list:
///
/// * `CAP_DAC_OVERRIDE`: it opens files of other users, such as those of a container volume, as far
///   as Landlock permits;
/// * `CAP_SETUID`, `CAP_SETGID`: it can change to another user and so give up root (`setpriv`, `runuser`, `gosu`).
///
/// Without `CAP_NET_RAW` it cannot capture the network traffic of this machine, without
/// `CAP_NET_ADMIN` it cannot change addresses, routes or filters, and without `CAP_SYS_PTRACE`, `CAP_PERFMON` and
/// `CAP_SYS_ADMIN` it cannot read the environment of other processes.
const KEPT: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::SETUID).union(CapabilitySet::SETGID);

/// The socket families that a program may use (`address_families(7)`). Of `AF_NETLINK` only
/// `NETLINK_ROUTE` is allowed, with which libraries read addresses and routes (`getifaddrs`); changing them requires
/// `CAP_NET_ADMIN`.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The types of Internet sockets that it may use, which exclude raw and packet sockets.
const TYPES: [libc::c_int; 2] = [libc::SOCK_STREAM, libc::SOCK_DGRAM];
/// The types of socket pairs (`socketpair`) that a program without a network may use: their ends stay connected to
/// each other.
const PAIRS: [libc::c_int; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
/// The bits of the type in the second argument of `socket`; the other bits are flags for the descriptor.
const TYPE_BITS: u64 = 0xf;
/// The Internet protocols that it may use where it may connect only to certain TCP ports: Landlock restricts TCP
/// connections, but not SCTP and, in some kernels, not MPTCP.
const PROTOCOLS: [libc::c_int; 5] = [
    libc::IPPROTO_IP,
    libc::IPPROTO_TCP,
    libc::IPPROTO_UDP,
    libc::IPPROTO_ICMP,
    libc::IPPROTO_ICMPV6,
];
/// System calls that connect and send at once with the flag `MSG_FASTOPEN`, and the index of their flags argument.
/// Landlock restricts only `connect`.
const FAST_OPEN: [(i64, u8); 3] =
    [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];

/// The requests of `ioctl` that are refused, by its second argument (`asm-generic/ioctls.h`, the same on all supported
/// architectures): `TIOCSTI`, which types into a terminal, and `TIOCLINUX`, which pastes into a console. The
/// kernel reads only the lower half of the argument, and so does the filter.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// Whether the executable of this process has the verbs that start programs: [`VERB`] and [`SUPERVISOR`].
static IS_GATEWAY: AtomicBool = AtomicBool::new(false);

/// Most folders that are reported as sealed.
const MAX_REPORTED_FOLDERS: usize = 16;
/// Number of names that are tried for a temporary folder.
const FOLDERS: usize = 8;
/// Folders in the home of the user in which package runners cache what they download.
const CACHES: [&str; 4] = [".cache", ".config", ".local", ".npm"];

/// Protects the memory of this process: no process of the same user can read its memory or
/// its environment, attach to it, or find it in a core file. Called before anything else, while the gateway has
/// started no process that could read it. Programs are started later by the verbs of this program.
///
/// The secrets in the gateway's environment are in its memory as well, so the environment is
/// not wiped in addition: a process that can read one of them can read the other. A process with `CAP_SYS_PTRACE`, such
/// as one of root, can read both; a sandbox removes that capability.
///
/// # Errors
/// When the kernel refuses a setting.
pub fn conceal() -> io::Result<()> {
    IS_GATEWAY.store(true, Ordering::Relaxed);
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let core = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, core)?;
    Ok(())
}

/// A sentence on the folders of [`SandboxPlan::sealed`], without its subject, the server; `None` where there are none.
#[must_use]
pub fn shown(sealed: &[PathBuf]) -> Option<String> {
    let names: Vec<_> = sealed.iter().map(|folder| format!("`{}`", folder.display())).collect();
    (!names.is_empty()).then(|| {
        format!(
            "can create, rename or replace no file directly in {}, and cannot open files that are put there after it \
             started: these folders hold files of the gateway, or a folder that does. This is normal, and everywhere else it writes as its user may. If it needs files there, give it a \
             folder below that has none of the gateway's: docs/sandbox.md, \"A folder to write in\"",
            names.join(", ")
        )
    })
}

/// The sentences of [`shown`] for several servers with their plans; servers with the same sentence are named
/// together.
#[must_use]
pub fn shown_together<'a>(plans: impl Iterator<Item = (&'a str, &'a SandboxPlan)>) -> Vec<String> {
    let mut together: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, plan) in plans {
        if let Some(said) = shown(&plan.sealed()) {
            together.entry(said).or_default().push(format!("`{name}`"));
        }
    }
    let sentence = |(said, names): (String, Vec<String>)| match &names[..] {
        [only] => format!("the server {only} {said}"),
        all => format!("each of the servers {} {said}", all.join(", ")),
    };
    together.into_iter().map(sentence).collect()
}

/// A warning, if the gateway runs as root.
#[must_use]
pub fn privileged() -> Option<&'static str> {
    geteuid().is_root().then_some(
        "do not run it as root, but as a separate user: a program without a sandbox could read its memory, and the \
         kernel does not limit the number of processes of root, so `sandbox.processes` has no effect",
    )
}

/// The files of this machine that a program may open; the gateway's own files are never among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnlistedFiles {
    /// The files that every program needs, and the listed ones.
    Listed,
    /// Everything that the user may open.
    Any,
}

/// What a list of paths in a sandbox permits a program to do with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedUse {
    /// Reading: the list `read`.
    Reading,
    /// Reading and changing: the list `write`.
    Writing,
}

/// The network that a program may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkAccess {
    /// None, which excludes Unix sockets of other processes as well.
    None,
    /// These TCP ports of any host, and name resolution.
    Ports(Vec<u16>),
    /// Everything that the user may reach.
    Any,
}

/// The permissions of a sandboxed program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlan {
    /// Whether the program is not started where the sandbox cannot be enforced.
    pub required: bool,
    /// The files that it may open beside the listed ones.
    pub rest: UnlistedFiles,
    /// Paths that it may read and execute, beside those for every program.
    pub read: Vec<PathBuf>,
    /// Paths that it may read and write.
    pub write: Vec<PathBuf>,
    /// Paths that it cannot open, even where they are listed: the gateway's own files.
    pub hidden: Vec<PathBuf>,
    /// Paths that it cannot change, even where they are listed.
    pub fixed: Vec<PathBuf>,
    /// The network that it may use.
    pub network: NetworkAccess,
    /// Limit on the memory of each of its processes, in bytes.
    pub memory: Option<u64>,
    /// Limit on the processes and threads of its user.
    pub processes: Option<u64>,
    /// Limit on the open files of each of its processes.
    pub files: Option<u64>,
}

/// Why a sandbox cannot be set up, or its program not started.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel does not support Landlock as required.
    #[error("Landlock cannot be set up")]
    Landlock(#[from] RulesetError),
    /// A listed path cannot be opened.
    #[error("`{0}` cannot be opened")]
    Path(PathBuf, #[source] io::Error),
    /// Capabilities cannot be dropped.
    #[error("privileges cannot be given up")]
    Privileges(#[source] rustix::io::Errno),
    /// The kernel enforces only a part of it.
    #[error("the kernel enforces it in part")]
    Partial,
    /// The seccomp filter cannot be built or installed.
    #[error("seccomp: {0}")]
    Seccomp(String),
    /// A resource limit cannot be set.
    #[error("a limit cannot be set")]
    Limit(#[source] rustix::io::Errno),
    /// The program would stay in the session of its parent.
    #[error("the program cannot have a session of its own")]
    Session(#[source] rustix::io::Errno),
    /// The program cannot be executed.
    #[error("the program `{0}` cannot be started")]
    Start(String, #[source] io::Error),
    /// The program cannot be executed because the sandbox does not open it or its interpreter.
    #[error(
        "the program `{0}` cannot be run inside its sandbox; list its folder, and that of its interpreter, under \
         `sandbox: {{read: [..]}}`"
    )]
    Closed(String, #[source] io::Error),
}

impl SandboxPlan {
    /// The plan of a program without a configured sandbox: it can use what its user can, except for the gateway's
    /// own files, other processes, and system calls that change the machine; as far as the kernel can enforce it.
    #[must_use]
    pub const fn usual() -> Self {
        Self {
            required: false,
            rest: UnlistedFiles::Any,
            read: Vec::new(),
            write: Vec::new(),
            hidden: Vec::new(),
            fixed: Vec::new(),
            network: NetworkAccess::Any,
            memory: None,
            processes: None,
            files: None,
        }
    }

    /// Excludes `hidden` from all access and `fixed` from changes, regardless of what is open or listed.
    pub fn keep_back(&mut self, hidden: &[PathBuf], fixed: &[PathBuf]) {
        self.hidden.extend_from_slice(hidden);
        self.fixed.extend_from_slice(fixed);
    }

    /// Whether this plan protects every path that `other` protects.
    #[must_use]
    pub fn protects_all_of(&self, other: &Self) -> bool {
        other.hidden.iter().all(|path| self.hidden.contains(path))
            && other
                .fixed
                .iter()
                .chain(&other.hidden)
                .all(|path| self.fixed.contains(path) || self.hidden.contains(path))
    }

    /// Whether this plan equals `other` apart from the protected paths.
    #[must_use]
    pub fn allows_the_same(&self, other: &Self) -> bool {
        let rest = |plan: &Self| Self { hidden: Vec::new(), fixed: Vec::new(), ..plan.clone() };
        rest(self) == rest(other)
    }

    /// Whether a `path` that is listed for this use is protected from it nevertheless.
    #[must_use]
    pub fn keeps_back(&self, path: &Path, listed: ListedUse) -> bool {
        let access = match listed {
            ListedUse::Reading => PathAccess::Read,
            ListedUse::Writing => PathAccess::Full,
        };
        self.around().left(path, access) != Some(access)
    }

    /// Checks that all listed paths exist.
    ///
    /// # Errors
    /// For the first path that does not.
    pub fn present(&self) -> Result<(), SandboxError> {
        let absent = |path: &PathBuf| {
            fs::metadata(path).err().map(|error| SandboxError::Path(path.clone(), error))
        };
        self.read.iter().chain(&self.write).find_map(absent).map_or(Ok(()), Err)
    }

    /// Folders in which the program could create files if they did not contain files of the gateway, directly or in
    /// subfolders. In order, and at most [`MAX_REPORTED_FOLDERS`] of them.
    #[must_use]
    pub fn sealed(&self) -> Vec<PathBuf> {
        self.every_sealed().take(MAX_REPORTED_FOLDERS).collect()
    }

    /// The folders of [`Self::sealed`], all of them.
    fn every_sealed(&self) -> impl Iterator<Item = PathBuf> {
        let around = self.around();
        let listed: Vec<_> = self.write.iter().map(|path| around::real(path)).collect();
        let open = move |folder: &Path| match self.rest {
            UnlistedFiles::Any => !is_of_the_system(folder),
            UnlistedFiles::Listed => listed.iter().any(|path| folder.starts_with(path)),
        };
        // A folder that the user cannot write is no loss.
        let writable = |folder: &Path| access(folder, rustix::fs::Access::WRITE_OK).is_ok();
        let folders = around.on_the_way().into_iter();
        folders.filter(move |folder| open(folder) && writable(folder))
    }

    /// Those of `folders` in which the program could create files if they did not contain files of the gateway, with
    /// links resolved and in order. Unlike [`Self::sealed`], it returns all of them.
    #[must_use]
    pub fn sealed_among(&self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let sealed: Vec<_> = self.every_sealed().collect();
        let mut found: Vec<_> = folders.iter().map(|folder| around::real(folder)).collect();
        found.sort();
        found.dedup();
        found.retain(|folder| sealed.contains(folder));
        found
    }

    /// Checks whether this kernel can enforce the plan, without applying it.
    ///
    /// # Errors
    /// When it cannot, or only a part of it.
    pub fn check(&self) -> Result<(), SandboxError> {
        // The open paths make no difference to the capabilities of the kernel.
        self.ruleset(CompatLevel::HardRequirement, &self.around())?;
        filter(self)?;
        self.present()
    }

    /// Gives up all rights beyond the plan, and becomes the program. Reports with `complain` what could not be given
    /// up.
    fn become_program(
        &self,
        command: &str,
        args: &[OsString],
        complain: impl Fn(&str),
    ) -> Result<Infallible, SandboxError> {
        for (resource, limit) in [
            (Resource::As, self.memory),
            (Resource::Nproc, self.processes),
            (Resource::Nofile, self.files),
            // A core file could contain secrets.
            (Resource::Core, Some(0)),
        ] {
            let Some(limit) = limit else { continue };
            let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
            setrlimit(resource, limit).map_err(SandboxError::Limit)?;
        }
        let mut program = Command::new(command);
        let around = self.around();
        match self.own_folders(&around) {
            Ok(folder) => {
                program.envs(folder.map(|folder| ("TMPDIR", folder)));
            }
            Err(folder) => complain(&format!(
                "no folder for temporary files could be made in `{}`, where the gateway's own files are: set `TMPDIR` \
                 in `env` to a folder that the program can write",
                folder.display()
            )),
        }
        // Determined again, so that the folders that were created for the program are open.
        let around = self.opened(around);
        for folder in &around.crowded {
            complain(&format!("`{}` has too many entries; not all are open", folder.display()));
        }
        let runnable = is_runnable(command);
        match self.enforce(&around) {
            Ok(()) => {}
            Err(error) if self.required => return Err(error),
            Err(error) => complain(&format!("the sandbox is not complete: {}", ErrorChain(&error))),
        }
        let error = program.args(args).exec();
        // A program that was executable before the rights were given up is blocked by the sandbox.
        Err(if runnable && error.kind() == io::ErrorKind::PermissionDenied {
            SandboxError::Closed(command.to_owned(), error)
        } else {
            SandboxError::Start(command.to_owned(), error)
        })
    }

    /// The protected paths of the machine.
    fn around(&self) -> AccessRules {
        let mut fixed = self.fixed.clone();
        fixed.extend(std::env::current_exe());
        AccessRules::new(&self.hidden, &fixed, UserPrivilege::of_the_process())
    }

    /// The same, with all paths opened that exist now.
    fn opened(&self, mut around: AccessRules) -> AccessRules {
        match self.rest {
            UnlistedFiles::Any => around.look(),
            UnlistedFiles::Listed => {
                USUAL.iter().for_each(|path| around.open(Path::new(path), PathAccess::Read));
            }
        }
        self.read.iter().for_each(|path| around.open(path, PathAccess::Read));
        self.write.iter().for_each(|path| around.open(path, PathAccess::Full));
        around
    }

    /// Creates a temporary folder for programs where nothing can be created in the regular one, and likewise
    /// the caches of package runners in a home. `Err` with the regular temporary folder where none could be created.
    fn own_folders(&self, around: &AccessRules) -> Result<Option<PathBuf>, PathBuf> {
        let opens = |folder: &Path| {
            self.rest == UnlistedFiles::Any
                || self.write.iter().any(|path| folder.starts_with(path))
        };
        let home = std::env::var_os("HOME").map(PathBuf::from);
        if let Some(home) = home.filter(|home| opens(home) && around.is_on_the_way(home)) {
            // An existing folder is as good, and a program may do without one.
            CACHES.iter().for_each(|name| drop(private().create(home.join(name))));
        }
        let temporary = std::env::temp_dir();
        if !opens(&temporary) || !around.is_on_the_way(&temporary) {
            return Ok(None);
        }
        let user = geteuid().as_raw();
        // Another user may have taken the first name.
        let names = (0..FOLDERS).map(|n| match n {
            0 => format!("portcullis-programs-{user}"),
            n => format!("portcullis-programs-{user}-{n}"),
        });
        let found = names.map(|name| temporary.join(name)).find(|folder| is_made(folder, user));
        found.map(Some).ok_or(temporary)
    }

    /// Gives up all rights beyond the plan as far as possible; the first failure is returned.
    fn enforce(&self, around: &AccessRules) -> Result<(), SandboxError> {
        // Each step is applied even if another one failed, so that a program that runs nevertheless has fewer rights. A
        // missing path is not opened.
        let (present, filter) = (self.present(), filter(self));
        let given_up = [
            give_up_privileges(),
            self.restrict(around),
            filter.and_then(|filter| applied(&filter)),
            present,
        ];
        given_up.into_iter().collect()
    }

    fn restrict(&self, around: &AccessRules) -> Result<(), SandboxError> {
        let level = match self.required {
            true => CompatLevel::HardRequirement,
            false => CompatLevel::BestEffort,
        };
        let status = self.ruleset(level, around)?.restrict_self()?;
        match status.ruleset {
            RulesetStatus::FullyEnforced => Ok(()),
            // Only features beyond the required ones may be missing.
            RulesetStatus::PartiallyEnforced if self.required => Ok(()),
            RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
                Err(SandboxError::Partial)
            }
        }
    }

    fn ruleset(
        &self,
        level: CompatLevel,
        around: &AccessRules,
    ) -> Result<RulesetCreated, SandboxError> {
        // Linux 6.7: files and TCP are required. Later features are used where they are available.
        let mut ruleset = Ruleset::default()
            .set_compatibility(level)
            .handle_access(AccessFs::from_all(ABI::V4))?;
        if self.network != NetworkAccess::Any {
            ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
        }
        // Ordinary programs use abstract sockets as part of the network.
        let scope: BitFlags<Scope> = match (&self.rest, &self.network) {
            (UnlistedFiles::Any, NetworkAccess::Any) => BitFlags::from(Scope::Signal),
            (UnlistedFiles::Any | UnlistedFiles::Listed, _) => {
                Scope::AbstractUnixSocket | Scope::Signal
            }
        };
        let mut created = ruleset
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V5))?
            .scope(scope)?
            .create()?
            .set_compatibility(CompatLevel::BestEffort);
        let read = AccessFs::from_read(ABI::V5);
        for (path, access) in &around.rules {
            let access: BitFlags<AccessFs> = match access {
                PathAccess::List => BitFlags::from(AccessFs::ReadDir),
                PathAccess::Read => read,
                PathAccess::Full => AccessFs::from_all(ABI::V5),
            };
            created = allow(created, path, access)?;
        }
        if self.rest == UnlistedFiles::Listed {
            for path in DEVICES {
                let access = AccessFs::ReadFile | AccessFs::WriteFile;
                created = allow(created, Path::new(path), access)?;
            }
        }
        if let NetworkAccess::Ports(ports) = &self.network {
            for port in ports {
                created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
            }
        }
        Ok(created)
    }
}

/// The rights with which a program is started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Confinement {
    /// The rights of the gateway.
    None,
    /// The rights of a sandbox.
    Plan(Box<SandboxPlan>),
}

impl Confinement {
    /// The confinement of a server with this sandbox, or without one.
    #[must_use]
    pub fn of(plan: Option<&SandboxPlan>) -> Self {
        plan.map_or(Self::None, |plan| Self::Plan(Box::new(plan.clone())))
    }

    /// The arguments after a verb that start `command` in this confinement.
    fn line(self, command: &OsStr, args: &[String]) -> io::Result<Vec<OsString>> {
        let terms = StartTerms { confinement: self, open_files: open_files::given() };
        let own = serde_json::to_string(&terms).map_err(io::Error::other)?;
        let mut line: Vec<OsString> = vec![own.into(), "--".into(), command.into()];
        line.extend(args.iter().map(OsString::from));
        Ok(line)
    }
}

/// What a process of the gateway has to know to become a program. Passed to it as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartTerms {
    confinement: Confinement,
    /// The limit of open files that the gateway was given, if it has raised it for itself.
    open_files: Option<u64>,
}

impl StartTerms {
    /// Parses what another process of the gateway has passed on the command line.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "our own words, from our own process")]
        serde_json::from_str(text).ok()
    }

    /// Starts a session, gives up all rights beyond the confinement, and becomes the program. Reports with `complain`
    /// what could not be given up. The program is killed when the process that started it ends.
    ///
    /// # Errors
    /// When a required sandbox cannot be enforced, or the program cannot be started.
    pub fn become_program(
        &self,
        command: &str,
        args: &[OsString],
        complain: impl Fn(&str),
    ) -> Result<Infallible, SandboxError> {
        setsid().map_err(SandboxError::Session)?;
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(SandboxError::Session)?;
        if let Some(Err(error)) = self.open_files.map(open_files::lower) {
            complain(&format!("the limit of open files stays that of the gateway: {error}"));
        }
        match &self.confinement {
            Confinement::Plan(plan) => plan.become_program(command, args, complain),
            Confinement::None => {
                let error = Command::new(command).args(args).exec();
                Err(SandboxError::Start(command.to_owned(), error))
            }
        }
    }
}

/// Whether the executable of this process has the verbs that start programs. An application that uses this library has
/// them if it calls [`helper::begin`](crate::control::helper::begin).
#[must_use]
pub fn can_start_programs() -> bool {
    IS_GATEWAY.load(Ordering::Relaxed)
}

/// A command that starts `command` as a server, under a supervisor that stays until no process of the server is left,
/// and ends them when it or this process ends. The supervisor passes SIGTERM on to the program, and SIGQUIT ends all.
///
/// # Errors
/// When the path of this program is unknown, or it does not have the verbs.
pub fn supervised(
    plan: Option<&SandboxPlan>,
    command: &str,
    args: &[String],
) -> io::Result<Command> {
    if !can_start_programs() {
        // The verbs would be arguments of an application, which would start itself without an end.
        return Err(io::Error::other("this application does not start programs"));
    }
    let mut started = Command::new(own_program()?);
    started.arg(SUPERVISOR).arg(std::process::id().to_string());
    started.args(Confinement::of(plan).line(command.as_ref(), args)?);
    Ok(started)
}

/// A command that starts `command` with the gateway's rights, without its terminal and in a process group of its own.
///
/// # Errors
/// When the path of this program is unknown.
pub fn detached(command: &Path, args: &[String]) -> io::Result<Command> {
    if !can_start_programs() {
        // Another program that uses this library does not have the verb.
        let mut started = Command::new(command);
        started.args(args).process_group(0);
        return Ok(started);
    }
    let mut started = Command::new(own_program()?);
    started.arg(VERB).args(Confinement::None.line(command.as_os_str(), args)?);
    Ok(started)
}

/// Implements the verb [`SUPERVISOR`] with its arguments; returns the exit code of the program.
///
/// # Errors
/// When the program cannot be started, or cannot be supervised.
pub fn supervise(mut line: impl Iterator<Item = OsString>) -> io::Result<u8> {
    let gateway = line.next().and_then(|id| id.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let gateway = gateway.ok_or(io::ErrorKind::InvalidInput)?;
    let mut program = Command::new(own_program()?);
    program.arg(VERB).args(line);
    supervisor::supervise(gateway, program)
}

/// The path of the running program, even where its file has been replaced.
fn own_program() -> io::Result<PathBuf> {
    let own = Path::new("/proc/self/exe");
    if own.exists() { Ok(own.to_owned()) } else { std::env::current_exe() }
}

/// Whether a program with [`UnlistedFiles::Any`] may change `path` only if it is listed: a system folder, or a device.
pub(crate) fn is_listed_apart(path: &Path) -> bool {
    is_of_the_system(path) || path.starts_with("/dev")
}

/// Adds a rule for `path`, if it exists. Links are not followed, because the path may have become one in the meantime.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SandboxError> {
    let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let opened: io::Result<(File, fs::Metadata)> =
        opened.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    let Ok((file, metadata)) = opened else { return Ok(ruleset) };
    if metadata.file_type().is_symlink() {
        return Ok(ruleset);
    }
    // A file has no rights that apply only to folders.
    let access = if metadata.is_dir() { access } else { access & AccessFs::from_file(ABI::V5) };
    if access.is_empty() {
        return Ok(ruleset);
    }
    Ok(ruleset.add_rule(PathBeneath::new(file, access))?)
}

/// Whether the user may execute `command`, which is searched for in `PATH` if it has no slash.
fn is_runnable(command: &str) -> bool {
    let may = |path: &Path| access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if command.contains('/') {
        return may(Path::new(command));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| may(&folder.join(command)))
}

/// A builder for folders that only the user can access.
fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Creates `folder` for `user` alone. An existing folder is accepted if no other user can write to it, and its
/// permissions are restricted.
fn is_made(folder: &Path, user: u32) -> bool {
    drop(private().create(folder));
    let closed = || -> io::Result<bool> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let found = OpenOptions::new().read(true).custom_flags(flags).open(folder)?;
        let metadata = found.metadata()?;
        if metadata.uid() != user || metadata.mode() & 0o022 != 0 {
            return Ok(false);
        }
        found.set_permissions(fs::Permissions::from_mode(0o700))?;
        Ok(true)
    };
    closed().unwrap_or(false)
}

/// Drops all capabilities except [`KEPT`], also for child processes: from the bounding set, which limits a program of
/// root, from the effective and the permitted set, and all of the inheritable set. A capability that is not
/// inheritable is not ambient either (`capabilities(7)`).
fn give_up_privileges() -> Result<(), SandboxError> {
    let bounded = if geteuid().is_root() { bound_privileges() } else { Ok(()) };
    // A process of another user has capabilities if the gateway was started with ambient ones.
    let given_up = capabilities(None).and_then(|held| {
        let (effective, permitted) = (held.effective & KEPT, held.permitted & KEPT);
        let inheritable = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective, permitted, inheritable })
    });
    bounded.and(given_up).map_err(SandboxError::Privileges)
}

/// Drops all capabilities except [`KEPT`] from the bounding set.
fn bound_privileges() -> rustix::io::Result<()> {
    let single = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    // An error means that the kernel does not know the capability, so nobody has it.
    let held = |one: &CapabilitySet| capability_is_in_bounding_set(*one).unwrap_or(false);
    let taken = single.filter(|one| !KEPT.contains(*one)).filter(held);
    let results: Vec<_> = taken.map(remove_capability_from_bounding_set).collect();
    results.into_iter().collect()
}

fn applied(filter: &BpfProgram) -> Result<(), SandboxError> {
    apply_filter(filter).map_err(|error| SandboxError::Seccomp(error.to_string()))
}

/// The seccomp filter: refused calls return EPERM, those of [`absent`] ENOSYS, and all others are
/// allowed.
fn filter(plan: &SandboxPlan) -> Result<BpfProgram, SandboxError> {
    let failed = |error: BackendError| SandboxError::Seccomp(error.to_string());
    let spared = |call: &i64| plan.rest != UnlistedFiles::Listed && SPARED.contains(call);
    let taken = TAKEN.iter().filter(|call| !spared(call));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        taken.map(|call| (*call, Vec::new())).collect();
    // A condition on the lower half of the first argument.
    let first = |operator, value: libc::c_int| {
        let value = u64::from(value.unsigned_abs());
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let namespaces = !spared(&libc::SYS_unshare);
    if namespaces {
        let flags = NAMESPACES.iter().map(|flag| {
            let mask = u64::from(flag.unsigned_abs());
            first(SeccompCmpOp::MaskedEq(mask), *flag)
        });
        rules.insert(libc::SYS_clone, flags.collect::<Result<_, _>>().map_err(failed)?);
    }
    rules.extend(sockets(&plan.network).map_err(failed)?);
    rules.insert(libc::SYS_ioctl, typing().map_err(failed)?);
    rules.extend(on_others().map_err(failed)?);
    if plan.required && plan.rest == UnlistedFiles::Listed {
        rules.extend(BY_PATH.iter().chain(&BY_PATH_OF_OLD).map(|call| (*call, Vec::new())));
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).map_err(failed)?;
    let filter: BpfProgram = filter.try_into().map_err(failed)?;
    Ok(absent(namespaces).into_iter().chain(filter).collect())
}

/// The rules for sockets: refuses all families but [`FAMILIES`], and unusual types of sockets.
fn sockets(network: &NetworkAccess) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let is = |argument: u8, operator: SeccompCmpOp, value: libc::c_int| {
        let value = u64::from(value.unsigned_abs());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let none_of = |argument: u8, values: &[libc::c_int]| -> Result<Vec<_>, BackendError> {
        values.iter().map(|value| is(argument, SeccompCmpOp::Ne, *value)).collect()
    };
    if *network == NetworkAccess::None {
        // Landlock does not restrict connections to Unix sockets with a path. An end of a datagram pair can be
        // reconnected, and can send to every path.
        let mut pairs = vec![SeccompRule::new(vec![is(0, SeccompCmpOp::Ne, libc::AF_UNIX)?])?];
        for kind in (0..=0xf).filter(|kind| !PAIRS.contains(kind)) {
            let kind = is(1, SeccompCmpOp::MaskedEq(TYPE_BITS), kind)?;
            pairs.push(SeccompRule::new(vec![kind])?);
        }
        return Ok([(libc::SYS_socket, Vec::new()), (libc::SYS_socketpair, pairs)].into());
    }
    let mut refused: Vec<Vec<SeccompCondition>> = vec![none_of(0, &FAMILIES)?];
    refused.push(vec![
        is(0, SeccompCmpOp::Eq, libc::AF_NETLINK)?,
        is(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE)?,
    ]);
    let mut rules = BTreeMap::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in (0..=0xf).filter(|kind| !TYPES.contains(kind)) {
            let is_kind = is(1, SeccompCmpOp::MaskedEq(TYPE_BITS), kind)?;
            refused.push(vec![is(0, SeccompCmpOp::Eq, family)?, is_kind]);
        }
        if let NetworkAccess::Ports(_) = network {
            let mut others = none_of(2, &PROTOCOLS)?;
            others.push(is(0, SeccompCmpOp::Eq, family)?);
            refused.push(others);
        }
    }
    if let NetworkAccess::Ports(_) = network {
        let flag = libc::MSG_FASTOPEN;
        let fast = SeccompCmpOp::MaskedEq(u64::from(flag.unsigned_abs()));
        for (call, flags) in FAST_OPEN {
            rules.insert(call, vec![SeccompRule::new(vec![is(flags, fast.clone(), flag)?])?]);
        }
    }
    let refused = refused.into_iter().map(SeccompRule::new).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_socket, refused);
    // A pair is of Unix sockets, or of a family that is refused.
    let others = SeccompRule::new(vec![is(0, SeccompCmpOp::Ne, libc::AF_UNIX)?])?;
    rules.insert(libc::SYS_socketpair, vec![others]);
    Ok(rules)
}

/// The rules for `ioctl`, which refuse [`TYPING`].
fn typing() -> Result<Vec<SeccompRule>, BackendError> {
    let typed = |request: u64| {
        let equal = SeccompCmpOp::Eq;
        SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, equal, request)?])
    };
    TYPING.into_iter().map(typed).collect()
}

/// The rules for [`BY_PROCESS`], [`BY_KIND`] and `prlimit64`, which refuse changes of processes other than the caller.
fn on_others() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let other = |argument: u8, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
    };
    let mut rules = BTreeMap::new();
    for call in BY_PROCESS {
        rules.insert(call, vec![SeccompRule::new(vec![other(0, 0)?])?]);
    }
    for (call, process) in BY_KIND {
        let of_a_kind = SeccompRule::new(vec![other(0, process)?])?;
        rules.insert(call, vec![of_a_kind, SeccompRule::new(vec![other(1, 0)?])?]);
    }
    // Without new limits in the third argument, it only reads the current ones.
    let new = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![other(0, 0)?, new])?]);
    Ok(rules)
}

/// The beginning of the filter: calls for which the kernel seems to lack support, so that a library
/// uses another one. `SeccompFilter` has a single error code and compares whole numbers, so these are instructions of
/// classic BPF (`linux/bpf_common.h`); all other calls continue to the rest of the filter.
///
/// * `clone3` has its flags in memory, which a filter cannot read: libraries fall back to `clone`, whose
///   flags it can read.
/// * System calls of the x32 ABI, whose numbers differ from those in the filter.
fn absent(namespaces: bool) -> Vec<sock_filter> {
    let (load, equal, at_least, answer) = (0x20, 0x15, 0x35, 0x06);
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let no_such_call = || {
        let errno = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        step(answer, u32::from(errno), 0, 0)
    };
    // The number of the system call is the first member of `struct seccomp_data`.
    let mut program = vec![step(load, 0, 0, 0)];
    if cfg!(target_arch = "x86_64") {
        // A tracer sets the number to -1 where it has emulated the call.
        program.extend([step(at_least, X32, 0, 2), step(equal, u32::MAX, 1, 0), no_such_call()]);
    }
    if namespaces && let Ok(clone3) = u32::try_from(libc::SYS_clone3) {
        program.extend([step(equal, clone3, 0, 1), no_such_call()]);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::{
        BY_PATH, BY_PATH_OF_OLD, KEXEC_FILE_LOAD, NAMESPACES, NetworkAccess, SPARED, SandboxPlan,
        UnlistedFiles, filter, sock_filter,
    };

    /// The system calls that must be refused, listed a second time so that none is lost.
    const REFUSED: [i64; 45] = [
        libc::SYS_acct,
        libc::SYS_add_key,
        libc::SYS_adjtimex,
        libc::SYS_bpf,
        libc::SYS_chroot,
        libc::SYS_clock_adjtime,
        libc::SYS_clock_settime,
        libc::SYS_delete_module,
        libc::SYS_finit_module,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        libc::SYS_init_module,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_setup,
        libc::SYS_kcmp,
        KEXEC_FILE_LOAD,
        libc::SYS_kexec_load,
        libc::SYS_keyctl,
        libc::SYS_mount,
        libc::SYS_mount_setattr,
        libc::SYS_move_mount,
        libc::SYS_name_to_handle_at,
        libc::SYS_open_by_handle_at,
        libc::SYS_open_tree,
        libc::SYS_perf_event_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pivot_root,
        libc::SYS_process_madvise,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        libc::SYS_quotactl,
        libc::SYS_reboot,
        libc::SYS_request_key,
        libc::SYS_setns,
        libc::SYS_settimeofday,
        libc::SYS_swapoff,
        libc::SYS_swapon,
        libc::SYS_syslog,
        libc::SYS_umount2,
        libc::SYS_unshare,
        libc::SYS_userfaultfd,
    ];

    /// What the kernel would do: the filter run on a call, as classic BPF. The instructions are those of
    /// `linux/bpf_common.h` that the compiler of the filter writes.
    fn answer(plan: &SandboxPlan, call: i64, argument: u32) -> u32 {
        answer_to(plan, call, [u64::from(argument), 0, 0])
    }

    /// The same for a call with these three first arguments.
    fn answer_to(plan: &SandboxPlan, call: i64, [one, two, three]: [u64; 3]) -> u32 {
        answer_to_all(plan, call, [one, two, three, 0])
    }

    /// The same with four of them.
    fn answer_to_all(plan: &SandboxPlan, call: i64, arguments: [u64; 4]) -> u32 {
        run(&filter(plan).unwrap(), call, arguments)
    }

    /// The same for a filter that is built already.
    fn run(program: &[sock_filter], call: i64, arguments: [u64; 4]) -> u32 {
        let arch = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
        let (mut at, mut held) = (0_usize, 0_u32);
        loop {
            let step = &program[at];
            let jump = |taken: bool| usize::from(if taken { step.jt } else { step.jf });
            at += 1;
            match step.code {
                // `struct seccomp_data`: nr, arch, instruction pointer, args.
                0x20 => {
                    held = match step.k {
                        0 => u32::try_from(call).unwrap(),
                        4 => arch,
                        // Each argument has two words, the lower one first.
                        offset @ 16..48 => {
                            let word = usize::try_from(offset - 16).unwrap() / 4;
                            let argument = arguments[word / 2] >> (32 * (word % 2));
                            u32::try_from(argument & u64::from(u32::MAX)).unwrap()
                        }
                        _ => 0,
                    }
                }
                0x05 => at += usize::try_from(step.k).unwrap(),
                0x15 => at += jump(held == step.k),
                0x25 => at += jump(held > step.k),
                0x35 => at += jump(held >= step.k),
                0x54 => held &= step.k,
                0x06 => return step.k,
                other => panic!("an instruction that is not known here: {other:#x}"),
            }
        }
    }

    fn plan(rest: UnlistedFiles, network: NetworkAccess) -> SandboxPlan {
        SandboxPlan { rest, network, ..SandboxPlan::usual() }
    }

    #[test]
    fn every_system_call_that_is_forbidden_is_refused_and_others_are_not() {
        // SECCOMP_RET_ERRNO with EPERM, and SECCOMP_RET_ALLOW.
        let (refused, allowed) = (0x0005_0001, 0x7fff_0000);
        let strict = plan(UnlistedFiles::Listed, NetworkAccess::None);
        let usual = SandboxPlan::usual();
        for call in REFUSED {
            assert_eq!(answer(&strict, call, 0), refused, "{call}");
            let spared = SPARED.contains(&call);
            assert_eq!(answer(&usual, call, 0), if spared { allowed } else { refused }, "{call}");
        }
        for call in [libc::SYS_read, libc::SYS_openat, libc::SYS_clone, libc::SYS_execve] {
            assert_eq!(answer(&strict, call, 0), allowed, "{call}");
        }
    }

    #[test]
    fn only_ordinary_sockets_are_made() {
        let (refused, allowed) = (0x0005_0001, 0x7fff_0000);
        let none = plan(UnlistedFiles::Listed, NetworkAccess::None);
        let ports = plan(UnlistedFiles::Listed, NetworkAccess::Ports(vec![443]));
        let any = plan(UnlistedFiles::Listed, NetworkAccess::Any);
        let usual = SandboxPlan::usual();
        let [none, ports, any, usual] =
            [none, ports, any, usual].map(|plan| filter(&plan).unwrap());
        let raised = |program: &[sock_filter], call: i64, arguments: [i32; 3]| {
            let [one, two, three] = arguments.map(|argument| u64::from(argument.unsigned_abs()));
            run(program, call, [one, two, three, 0])
        };
        let opened = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, opened] {
            // The families that Linux has, and those that it may get.
            for family in 0..64 {
                for kind in 0..16 {
                    let internet = [libc::AF_INET, libc::AF_INET6].contains(&family)
                        && [libc::SOCK_STREAM, libc::SOCK_DGRAM].contains(&kind);
                    let files = family == libc::AF_UNIX;
                    let wide = internet || files || family == libc::AF_NETLINK;
                    let asked = [family, kind | flags, 0];
                    for program in [&ports, &any, &usual] {
                        let expected = if wide { allowed } else { refused };
                        let said = raised(program, libc::SYS_socket, asked);
                        assert_eq!(said, expected, "{asked:?}");
                    }
                    assert_eq!(raised(&none, libc::SYS_socket, asked), refused, "{asked:?}");
                    let expected = if files { allowed } else { refused };
                    for program in [&ports, &any, &usual] {
                        let said = raised(program, libc::SYS_socketpair, asked);
                        assert_eq!(said, expected, "a pair of {asked:?}");
                    }
                    // An end of another type of pair could be connected to a path.
                    let stays = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].contains(&kind);
                    let expected = if files && stays { allowed } else { refused };
                    let said = raised(&none, libc::SYS_socketpair, asked);
                    assert_eq!(said, expected, "a pair of {asked:?}");
                }
            }
        }
        for protocol in 1..32 {
            let asked = [libc::AF_NETLINK, libc::SOCK_RAW, protocol];
            assert_eq!(raised(&usual, libc::SYS_socket, asked), refused, "{protocol}");
        }
    }

    #[test]
    fn nothing_is_typed_into_a_terminal() {
        let (refused, allowed) = (0x0005_0001, 0x7fff_0000);
        for plan in [plan(UnlistedFiles::Listed, NetworkAccess::None), SandboxPlan::usual()] {
            let asked = |request: u64| answer_to(&plan, libc::SYS_ioctl, [0, request, 0]);
            // TIOCSTI and TIOCLINUX; the kernel does not look at the upper half.
            for request in [0x5412, 0x541c, 0x1_0000_5412, 0xffff_ffff_0000_541c] {
                assert_eq!(asked(request), refused, "{request:#x}");
            }
            // TCGETS, TIOCGWINSZ, FIONREAD and FIOCLEX.
            for request in [0x5401, 0x5413, 0x541b, 0x5451] {
                assert_eq!(asked(request), allowed, "{request:#x}");
            }
        }
    }

    #[test]
    fn where_ports_are_listed_nothing_connects_that_landlock_does_not_see() {
        let (refused, allowed) = (0x0005_0001, 0x7fff_0000);
        let ports = plan(UnlistedFiles::Any, NetworkAccess::Ports(vec![443]));
        let usual = SandboxPlan::usual();
        let number = |value: i32| u64::from(value.unsigned_abs());
        for family in [libc::AF_INET, libc::AF_INET6].map(number) {
            for (protocol, expected) in [
                (libc::IPPROTO_IP, allowed),
                (libc::IPPROTO_TCP, allowed),
                (libc::IPPROTO_UDP, allowed),
                (libc::IPPROTO_SCTP, refused),
                (libc::IPPROTO_MPTCP, refused),
                (256, refused), // IPPROTO_SMC
            ] {
                let asked = [family, number(libc::SOCK_STREAM), number(protocol)];
                assert_eq!(answer_to(&ports, libc::SYS_socket, asked), expected, "{protocol}");
                assert_eq!(answer_to(&usual, libc::SYS_socket, asked), allowed, "{protocol}");
            }
        }
        let (quiet, fast) = (number(libc::MSG_NOSIGNAL), number(libc::MSG_FASTOPEN));
        for call in [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg] {
            // The flags are the third or the fourth argument; the other is another number.
            let at = |flags: u64| match call {
                libc::SYS_sendmsg => [3, 0x7fff_1234_5678, flags, 0],
                _ => [3, 0x7fff_1234_5678, 8, flags],
            };
            assert_eq!(answer_to_all(&ports, call, at(quiet)), allowed, "{call}");
            assert_eq!(answer_to_all(&ports, call, at(fast | quiet)), refused, "{call}");
            assert_eq!(answer_to_all(&usual, call, at(fast)), allowed, "{call}");
        }
    }

    #[test]
    fn a_program_changes_how_it_runs_itself_and_no_other_process() {
        let (refused, allowed) = (0x0005_0001, 0x7fff_0000);
        // A process of the machine, a thread of it, and an id whose upper half does not count.
        let others = [1_u64, 4_194_304, 0xffff_ffff, 0x1_0000_0001];
        for plan in [plan(UnlistedFiles::Listed, NetworkAccess::None), SandboxPlan::usual()] {
            let answer = |call: i64, arguments: [u64; 3]| answer_to(&plan, call, arguments);
            for call in [
                libc::SYS_sched_setaffinity,
                libc::SYS_sched_setattr,
                libc::SYS_sched_setparam,
                libc::SYS_sched_setscheduler,
                libc::SYS_migrate_pages,
                libc::SYS_move_pages,
            ] {
                assert_eq!(answer(call, [0, 8, 8]), allowed, "{call}");
                for other in others {
                    assert_eq!(answer(call, [other, 8, 8]), refused, "{call} {other}");
                }
            }
            // `PRIO_PROCESS` and `IOPRIO_WHO_PROCESS`, then those of groups and users.
            for (call, process, kinds) in
                [(libc::SYS_setpriority, 0, [1, 2]), (libc::SYS_ioprio_set, 1, [2, 3])]
            {
                assert_eq!(answer(call, [process, 0, 19]), allowed, "{call}");
                for other in others {
                    assert_eq!(answer(call, [process, other, 19]), refused, "{call} {other}");
                }
                for kind in kinds {
                    assert_eq!(answer(call, [kind, 0, 19]), refused, "{call} {kind}");
                }
            }
            // The third argument is the address of the new limits: either half of it can be zero.
            for new in [0x7fff_1234_5678, 0x5678, 0x7fff_0000_0000] {
                assert_eq!(answer(libc::SYS_prlimit64, [0, 7, new]), allowed, "{new:#x}");
                for other in others {
                    assert_eq!(answer(libc::SYS_prlimit64, [other, 7, new]), refused, "{new:#x}");
                }
            }
            assert_eq!(answer(libc::SYS_prlimit64, [1, 7, 0]), allowed, "it only asks");
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_not_changed_by_its_path_where_a_sandbox_is_strict() {
        let (refused, allowed) = (0x0005_0001, 0x7fff_0000);
        let listed = plan(UnlistedFiles::Listed, NetworkAccess::Any);
        let strict = SandboxPlan { required: true, ..listed.clone() };
        let open = SandboxPlan { required: true, ..SandboxPlan::usual() };
        for call in BY_PATH.into_iter().chain(BY_PATH_OF_OLD) {
            assert_eq!(answer(&strict, call, 0), refused, "{call}");
            assert_eq!(answer(&listed, call, 0), allowed, "{call}");
            assert_eq!(answer(&open, call, 0), allowed, "{call}");
        }
        for call in [libc::SYS_fchmod, libc::SYS_fchown, libc::SYS_fsetxattr, libc::SYS_utimensat] {
            assert_eq!(answer(&strict, call, 0), allowed, "{call}");
        }
    }

    #[test]
    fn no_namespace_is_made_with_another_call_than_unshare() {
        let (refused, absent, allowed) =
            (0x0005_0001, 0x0005_0000 | libc::ENOSYS.unsigned_abs(), 0x7fff_0000);
        let strict = plan(UnlistedFiles::Listed, NetworkAccess::Any);
        let usual = SandboxPlan::usual();
        // As glibc starts a thread, and a process that waits for its child.
        let thread = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_SETTLS
            | libc::CLONE_PARENT_SETTID
            | libc::CLONE_CHILD_CLEARTID;
        let process = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        for flags in [thread, process, libc::SIGCHLD] {
            let flags = flags.unsigned_abs();
            assert_eq!(answer(&strict, libc::SYS_clone, flags), allowed, "{flags:#x}");
            for namespace in NAMESPACES {
                let flags = flags | namespace.unsigned_abs();
                assert_eq!(answer(&strict, libc::SYS_clone, flags), refused, "{flags:#x}");
                assert_eq!(answer(&usual, libc::SYS_clone, flags), allowed, "{flags:#x}");
            }
        }
        assert_eq!(answer(&strict, libc::SYS_clone3, 0), absent);
        assert_eq!(answer(&usual, libc::SYS_clone3, 0), allowed, "unshare is spared as well");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_numbers_of_another_abi_are_no_way_round_the_filter() {
        use super::X32;

        let absent = 0x0005_0000 | libc::ENOSYS.unsigned_abs();
        for plan in [plan(UnlistedFiles::Listed, NetworkAccess::None), SandboxPlan::usual()] {
            for call in REFUSED.into_iter().chain([libc::SYS_read, libc::SYS_clone]) {
                assert_eq!(answer(&plan, call | i64::from(X32), 0), absent, "{call}");
            }
            // Calls that x32 alone has begin at 512.
            assert_eq!(answer(&plan, i64::from(X32) + 512, 0), absent);
            assert_eq!(answer(&plan, i64::from(u32::MAX), 0), 0x7fff_0000, "done by a tracer");
        }
    }
}
