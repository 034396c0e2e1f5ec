//! A program behind the gateway does what its sandbox allows, and nothing else. Each attempt works
//! without the sandbox: so it is the sandbox that stops it.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use e2e::client::Client;
use e2e::gateway::{ANA, Config, Folder, Gateway, root};
use e2e::{ERAS, Era};
use serde_json::json;

/// Where Python is, which may not be below `/usr`.
fn python() -> (String, String) {
    let said = Command::new("python3")
        .args([
            "-c",
            "import os, sys; print(os.path.realpath(sys.executable)); print(sys.base_prefix)",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let mut lines = said.lines().map(str::to_owned);
    (lines.next().unwrap(), lines.next().unwrap())
}

fn boxed(sandbox: &str) -> Config {
    let (python, prefix) = python();
    let script = root().join("tests/sdk/boxed.py");
    let sandbox = if sandbox.is_empty() {
        String::new()
    } else {
        let read = format!("'{prefix}', '{}'", script.display());
        format!(", sandbox: {{{}}}", sandbox.replace("READ", &read))
    };
    Config::with(
        &format!("- {{name: up, command: '{python}', args: ['{}']{sandbox}}}", script.display()),
        "[up]",
    )
}

struct Tried<'a> {
    client: Client,
    _gateway: &'a Gateway,
}

impl Tried<'_> {
    fn of(gateway: &Gateway, era: Era) -> Tried<'_> {
        Tried { client: gateway.client(era, ANA), _gateway: gateway }
    }

    /// What came of it: the text, and whether it failed.
    fn to(&self, what: &str, arg: &str) -> (bool, String) {
        let answer = self.client.call("try", &json!({ "what": what, "arg": arg })).json();
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{answer}")).to_owned();
        (answer["result"]["isError"] == true, text)
    }
}

/// The system calls that are to be refused, written down once more.
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
    if cfg!(target_arch = "x86_64") { 320 } else { 294 }, // kexec_file_load
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

fn is_privileged() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn a_program_for_which_nothing_is_configured_works_and_is_kept_from_what_is_the_gateways() {
    for era in ERAS {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for (name, text) in [("key", "a secret"), ("key.pub", "of it"), ("notes", "plain notes")] {
            fs::write(at(name), text).unwrap();
        }
        fs::create_dir(at("work")).unwrap();
        std::os::unix::fs::symlink(at("key"), at("link")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = boxed("");
        let env = format!(", env: [{{name: KEY, fromFile: '{}'}}]}}", at("key"));
        config.servers = format!("{}{env}", config.servers.strip_suffix('}').unwrap());
        let gateway = config.start();
        let kept = Tried::of(&gateway, era);
        let own = |name: &str| gateway.audit().with_file_name(name).display().to_string();
        // What an ordinary server does.
        let there = listener.local_addr().unwrap().to_string();
        for (what, arg) in [
            ("read", at("notes")),
            ("child", at("notes")),
            ("list", at("")),
            ("write", at("work/new")),
            ("read", at("work/new")),
            ("write", at("notes")),
            ("read", "/etc/hosts".to_owned()),
            ("read", "/proc/self/status".to_owned()),
            ("child", "/proc/self/status".to_owned()),
            ("temporary", String::new()),
            ("connect", there),
            ("udp", String::new()),
        ] {
            let (failed, text) = kept.to(what, &arg);
            assert!(!failed, "{what} {arg}: {text}");
        }
        // The gateway's configuration, its records, its secrets, and what else stands in its memory.
        for (what, arg) in [
            ("read", own("gateway.yaml")),
            ("write", own("gateway.yaml")),
            ("read", own("audit.jsonl")),
            ("write", own("audit.jsonl")),
            ("write", own("audit.000000000001.jsonl")),
            ("read", own("portcullis.lock")),
            ("write", own("portcullis.lock")),
            ("read", at("key")),
            ("read", at("link")),
            ("read", at("key.pub")),
            ("write", at("key")),
            ("child", at("key")),
            ("environ", String::new()),
            ("write", "/etc/portcullis-was-here".to_owned()),
        ] {
            let (failed, text) = kept.to(what, &arg);
            assert!(failed, "{what} {arg}: {text}");
        }
        assert!(fs::read_to_string(own("gateway.yaml")).unwrap().starts_with("apiVersion"));
        assert_eq!(fs::read_to_string(at("key")).unwrap(), "a secret");
    }
}

#[test]
fn what_a_sandbox_lacks_is_said_before_the_start() {
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    for (sandbox, warned) in
        [("mode: off", true), ("mode: required, files: any, network: any", false)]
    {
        boxed(sandbox).write(&file, &folder.path().join("audit.jsonl"));
        let output =
            Command::new(e2e::gateway::binary()).arg("validate").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("the server `up` has no sandbox"), warned, "{said}");
    }
    let gateway = boxed("mode: off").start();
    assert!(gateway.log.lock().unwrap().contains("it has no sandbox"));
}

#[test]
fn a_program_reads_writes_and_reaches_what_it_may() {
    for era in ERAS {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for name in ["shared", "out", "secret"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("shared/a"), "shared").unwrap();
        fs::write(folder.path().join("secret/key"), "a secret").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap().to_string();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let elsewhere = other.local_addr().unwrap().to_string();
        let plain = boxed("mode: off").start();
        let free = Tried::of(&plain, era);
        let strict = format!(
            "mode: required, read: [READ, '{}'], write: ['{}'], openFiles: 64",
            at("shared"),
            at("out")
        );
        let strict = boxed(&strict).start();
        let kept = Tried::of(&strict, era);
        let refused = |what: &str, arg: &str, why: &str| {
            let (failed, text) = kept.to(what, arg);
            assert!(failed && text.contains(why), "{what} {arg}: {text}");
        };
        let both = |what: &str, arg: &str| {
            for tried in [&free, &kept] {
                let (failed, text) = tried.to(what, arg);
                assert!(!failed, "{what} {arg}: {text}");
            }
        };
        // What it may.
        both("read", &at("shared/a"));
        both("write", &at("out/b"));
        both("child", &at("shared/a"));
        both("read", "/etc/hosts");
        // What it may not, and could.
        for (what, arg) in [
            ("read", at("secret/key")),
            ("list", at("secret")),
            ("child", at("secret/key")),
            ("write", at("shared/a")),
            ("write", at("elsewhere")),
        ] {
            let (failed, text) = free.to(what, &arg);
            assert!(!failed, "{what} {arg}: {text}");
            let why = if what == "child" { "CalledProcessError" } else { "Permission denied" };
            refused(what, &arg, why);
        }
        assert!(!free.to("connect", &there).0 && !free.to("udp", "").0);
        refused("connect", &there, "Operation not permitted");
        refused("udp", "", "Operation not permitted");
        // What it could read as a privileged user: another is kept out by the gateway itself.
        assert_eq!(free.to("environ", "").0, !is_privileged());
        refused("environ", "", "denied");
        refused("files", "100", "Too many open files");
        for call in REFUSED {
            refused("call", &call.to_string(), "Operation not permitted");
        }
        assert_eq!(kept.to("core", "").1, "0");
        // It can reach one port, and no other.
        let port = listener.local_addr().unwrap().port();
        let ports = boxed(&format!("mode: required, read: [READ], ports: [{port}]")).start();
        let kept = Tried::of(&ports, era);
        assert_eq!(kept.to("connect", &there), (false, "connected".to_owned()));
        let (failed, text) = kept.to("connect", &elsewhere);
        assert!(failed && text.contains("Permission denied"), "{text}");
        // Everything.
        let any = boxed("mode: required, read: [READ], network: any").start();
        let kept = Tried::of(&any, era);
        assert!(!kept.to("connect", &elsewhere).0 && !kept.to("udp", "").0);
    }
}

#[test]
fn a_program_makes_no_namespace_and_still_starts_threads_and_processes() {
    for era in ERAS {
        let strict = boxed("mode: required, read: [READ], network: any").start();
        let kept = Tried::of(&strict, era);
        for (call, flags) in [
            (libc::SYS_clone, libc::CLONE_NEWUSER),
            (libc::SYS_clone, libc::CLONE_NEWNS | libc::SIGCHLD),
            (libc::SYS_clone, libc::CLONE_NEWNET | libc::CLONE_NEWPID),
        ] {
            let (failed, text) = kept.to("call", &format!("{call} {flags}"));
            assert!(failed && text.contains("Operation not permitted"), "{flags:#x}: {text}");
        }
        // Its flags cannot be seen, so it is as if the kernel did not have it; libraries take `clone`.
        let mut absent = vec![libc::SYS_clone3];
        if cfg!(target_arch = "x86_64") {
            // Of the x32 ABI.
            absent.extend([libc::SYS_getpid, libc::SYS_unshare].map(|call| call | 0x4000_0000));
        }
        for call in absent {
            let (failed, text) = kept.to("call", &call.to_string());
            assert!(failed && text.contains("Function not implemented"), "{call}: {text}");
        }
        for (what, arg) in [("threads", "8"), ("child", "/etc/hosts"), ("forks", "4")] {
            let (failed, text) = kept.to(what, arg);
            assert!(!failed, "{what}: {text}");
        }
    }
}

#[test]
fn the_runners_of_packages_start_threads_and_processes_in_a_sandbox() {
    // Node starts threads before it runs anything, and its package runner is a program of it.
    for (runner, arguments) in [
        (
            "node",
            "-e 'const {Worker}=require(\"worker_threads\");new Worker(\"process.exit(0)\",{eval:true}).on(\"exit\",c=>process.exit(c))'",
        ),
        ("node", "-e 'process.exit(require(\"child_process\").spawnSync(\"/bin/true\").status)'"),
        ("npx", "--version"),
    ] {
        let found = Command::new("sh").args(["-c", &format!("command -v {runner}")]).output();
        let path = String::from_utf8(found.unwrap().stdout).unwrap();
        // Where it is not installed, or not where every program may read, there is nothing to show.
        if !path.starts_with("/usr/") {
            continue;
        }
        let strict = boxed("mode: required, read: [READ], network: any").start();
        let kept = Tried::of(&strict, Era::Legacy);
        let (failed, text) = kept.to("shell", &format!("{runner} {arguments}"));
        assert!(!failed, "{runner} {arguments}: {text}");
    }
}

#[test]
fn a_sandbox_that_cannot_be_had_stops_the_start_where_it_is_required() {
    let required = boxed("mode: required, read: [READ, /no/such/folder]");
    let output = required.refused();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("the sandbox of the server `up` cannot be had: `/no/such/folder`"),
        "{said}"
    );
    // Where it is preferred, the program runs, and that it is not kept is on record.
    let gateway = boxed("mode: preferred, read: [READ, /no/such/folder]").start();
    let tried = Tried::of(&gateway, Era::Modern);
    assert!(!tried.to("read", "/etc/hosts").0);
    let record = gateway.records().into_iter().find(|record| record["event"] == "sandbox").unwrap();
    assert!(record["what"].as_str().unwrap().contains("server up: `/no/such/folder`"), "{record}");
    assert!(gateway.log.lock().unwrap().contains("its sandbox is not complete"));
}

#[test]
fn mistakes_in_a_sandbox_are_shown_where_they_are() {
    for (sandbox, problem) in [
        ("mode: required, read: [relative]", "`relative` is no absolute path"),
        ("mode: required, network: any, ports: [1]", "it may reach every port already"),
        ("mode: required, openFiles: 0", "nothing can be done with none"),
        ("read: []", "`mode` is missing"),
        ("mode: off, network: any", "nothing is enforced without a sandbox"),
    ] {
        let output = boxed(sandbox).refused();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && said.contains(problem), "{said}");
    }
}
