//! A program behind the gateway does what its sandbox allows, and nothing else. Each attempt works
//! without the sandbox: so it is the sandbox that stops it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};

use e2e::client::{Client, read};
use e2e::gateway::{ANA, Config, Folder, Gateway, binary, root};
use e2e::{ERAS, Era};
use serde_json::json;

/// Where Python is, which may not be below `/usr`.
pub(crate) fn python() -> (String, String) {
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

/// A gateway of one program that tries what it is told to, in this sandbox; in the usual one where it is empty.
pub(crate) fn boxed(sandbox: &str) -> Config {
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
        attempt(&self.client, what, arg)
    }
}

/// Has the program try something; whether it failed, and the text.
fn attempt(client: &Client, what: &str, arg: &str) -> (bool, String) {
    let answer = client.call("try", &json!({ "what": what, "arg": arg })).json();
    let text = answer["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{answer}")).to_owned();
    (answer["result"]["isError"] == true, text)
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
        symlink(at("key"), at("link")).unwrap();
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

/// As Kubernetes mounts a configuration: each file is a link into a folder that is a link.
#[test]
fn what_belongs_to_the_gateway_is_kept_from_a_program_also_behind_links() {
    for era in ERAS {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name);
        for name in ["conf/..v1", "logs", "log", "registry", "elsewhere"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("elsewhere/up.work.policy.yaml"), "server: up\ntool: work\n").unwrap();
        fs::write(at("elsewhere/notes"), "plain notes").unwrap();
        fs::write(at("log/audit.jsonl.copy"), "{}\n").unwrap();
        for (target, link) in [
            ("..v1", "conf/..data"),
            ("..data/gateway.yaml", "conf/gateway.yaml"),
            ("../logs/audit.jsonl", "log/audit.jsonl"),
            ("../elsewhere/up.work.policy.yaml", "registry/up.work.policy.yaml"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let mut config = boxed("");
        config.audit = Some(at("log/audit.jsonl"));
        config.more = format!("registry: {{folder: '{}'}}", at("registry").display());
        let gateway = config.start_at(&at("conf/gateway.yaml"));
        let kept = Tried::of(&gateway, era);
        let (failed, text) = kept.to("read", &at("elsewhere/notes").display().to_string());
        assert!(!failed, "{text}");
        for name in [
            "conf/gateway.yaml",
            "conf/gateway.yaml.running",
            "conf/..v1/gateway.yaml.running",
            "conf/gateway.yaml.next",
            "log/audit.jsonl",
            "log/audit.jsonl.copy",
            "logs/audit.jsonl",
            "registry/up.work.policy.yaml",
            "elsewhere/up.work.policy.yaml",
        ] {
            for what in ["read", "write"] {
                let (failed, text) = kept.to(what, &at(name).display().to_string());
                assert!(failed, "{era:?} {what} {name}: {text}");
            }
        }
        assert!(at("conf/gateway.yaml.running").is_file() && at("logs/audit.jsonl").is_file());
    }
}

#[test]
fn the_log_says_at_a_call_that_the_sandbox_denied_the_file() {
    for era in ERAS {
        let gateway = boxed("").start();
        let kept = Tried::of(&gateway, era);
        let folder = gateway.audit().parent().unwrap().canonicalize().unwrap();
        let (failed, text) = kept.to("write", &folder.join("minutes.txt").display().to_string());
        assert!(failed, "{text}");
        let told = "the sandbox of the server denied a file";
        let said = gateway.says(told);
        let line = said.lines().find(|line| line.contains(told)).unwrap();
        let why = format!("created or replaced directly in `{}`", folder.display());
        assert!(
            line.contains(&why) && line.contains("keep the gateway's files elsewhere"),
            "{line}"
        );
        assert!(line.contains("start the gateway again"), "{line}");
        // The path is part of what the caller and the server say to each other.
        assert!(!line.contains("minutes"), "{line}");
    }
}

#[test]
fn the_log_says_for_each_folder_that_the_sandbox_denied_a_file_there() {
    let gateway = boxed("").start();
    let kept = Tried::of(&gateway, Era::Modern);
    let folder = gateway.audit().parent().unwrap().canonicalize().unwrap();
    for place in [&*folder, folder.parent().unwrap()] {
        let (failed, text) = kept.to("write", &place.join("minutes.txt").display().to_string());
        assert!(failed, "{text}");
        gateway.says(&format!("created or replaced directly in `{}`", place.display()));
    }
}

/// The line of the log that says which file the sandbox denied, once it is there.
fn denial(gateway: &Gateway) -> String {
    let told = "request failed: the sandbox of the server denied a file";
    gateway.says(told).lines().find(|line| line.contains(told)).unwrap().to_owned()
}

#[test]
fn the_log_says_that_the_sandbox_denied_the_file_of_a_list_and_of_an_error() {
    for era in ERAS {
        let folder = Folder::new();
        let folder = folder.path().canonicalize().unwrap();
        let minutes = folder.join("minutes.txt").display().to_string();
        let why = format!("created or replaced directly in `{}`", folder.display());
        let mut listing = boxed("");
        listing.servers = listing.servers.replacen(
            "boxed.py'",
            &format!("boxed.py', list, write, '{minutes}'"),
            1,
        );
        let gateway = listing.start_at(&folder.join("gateway.yaml"));
        let client = gateway.client(era, ANA);
        assert_eq!(client.ask("tools/list", json!({})).code(), -32603);
        let line = denial(&gateway);
        assert!(line.contains(&why) && line.contains("\"list\":\"tools\""), "{line}");
        drop(gateway);

        let gateway = boxed("").start_at(&folder.join("gateway.yaml"));
        let given = json!({ "what": "write", "arg": minutes, "as": "error" });
        let answer = gateway.client(era, ANA).call("try", &given);
        assert_eq!(answer.code(), -32603, "{answer:?}");
        let line = denial(&gateway);
        assert!(line.contains(&why) && line.contains("\"tool\":\"try\""), "{line}");
        assert!(!line.contains("minutes"), "{line}");
    }
}

#[test]
fn the_log_says_that_a_file_is_newer_than_the_program_that_may_not_open_it() {
    for era in ERAS {
        let gateway = boxed("").start();
        let kept = Tried::of(&gateway, era);
        let folder = gateway.audit().parent().unwrap().canonicalize().unwrap();
        // Once it answers, its sandbox is made.
        assert!(!kept.to("list", "/").0);
        fs::write(folder.join("minutes.txt"), "new").unwrap();
        let (failed, text) = kept.to("read", &folder.join("minutes.txt").display().to_string());
        assert!(failed && text.contains("Permission denied"), "{text}");
        let line = denial(&gateway);
        let why = format!("replaced directly in `{}` while the program runs", folder.display());
        assert!(line.contains(&why) && line.contains("start the gateway again"), "{line}");
        assert!(!line.contains("minutes"), "{line}");
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
        let output = Command::new(binary()).arg("validate").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("the server `up` has no sandbox"), warned, "{said}");
    }
    let gateway = boxed("mode: off").start();
    gateway.says("no sandbox: the program has the same access as the gateway");
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
            "mode: required, read: [READ, '{}'], write: ['{}'], network: none, openFiles: 64",
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
fn a_program_without_a_network_reaches_no_socket_that_has_a_path() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (streams, datagrams) = (at("streams"), at("datagrams"));
    // Of a helper of the same user, such as a session bus or an agent with keys.
    let _streams = UnixListener::bind(&streams).unwrap();
    let _datagrams = UnixDatagram::bind(&datagrams).unwrap();
    for era in ERAS {
        for sandbox in ["mode: off", "", "mode: required, read: [READ], ports: [9]"] {
            let gateway = boxed(sandbox).start();
            let open = Tried::of(&gateway, era);
            for (what, arg) in [("path", &streams), ("datagram", &datagrams)] {
                let (failed, text) = open.to(what, arg);
                assert!(!failed, "{sandbox}: {what}: {text}");
            }
        }
        for sandbox in [
            "mode: required, files: listed, read: [READ], network: none",
            "mode: preferred, network: none",
        ] {
            let gateway = boxed(sandbox).start();
            let kept = Tried::of(&gateway, era);
            for (what, arg) in [("path", &streams), ("datagram", &datagrams)] {
                let (failed, text) = kept.to(what, arg);
                let refused = failed && text.contains("Operation not permitted");
                assert!(refused, "{sandbox}: {what}: {text}");
            }
            // What libraries use to talk to their own threads and processes.
            for (what, arg) in
                [("pair", libc::AF_UNIX.to_string()), ("child", "/etc/hosts".to_owned())]
            {
                let (failed, text) = kept.to(what, &arg);
                assert!(!failed, "{sandbox}: {what}: {text}");
            }
        }
    }
}

#[test]
fn a_program_makes_terminals_where_they_are_listed_and_types_into_none() {
    for era in ERAS {
        let gateway = boxed("").start();
        let (failed, text) = Tried::of(&gateway, era).to("terminal", "");
        assert!(failed && text.contains("PermissionError"), "{text}");
        let listed = "mode: required, files: any, write: [/dev/pts, /dev/ptmx]";
        let gateway = boxed(listed).start();
        let kept = Tried::of(&gateway, era);
        let (failed, text) = kept.to("terminal", "");
        assert!(!failed, "{text}");
        let (failed, text) = kept.to("terminal", "typed into");
        assert!(failed && text.contains("Operation not permitted"), "{text}");
    }
}

/// Writes `config` where `gateway` reads it, and waits until it is in force, as the `count`th change.
fn changed(gateway: &Gateway, config: &Config, file: &Path, count: usize) {
    config.write(file, gateway.audit());
    gateway.hang_up();
    e2e::eventually("the change is in force", || {
        let said = gateway.said();
        (said.matches("configuration applied").count() == count).then_some(())
    });
}

#[test]
fn a_program_in_use_ends_when_more_files_are_protected_from_programs() {
    for era in ERAS {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir(at("work")).unwrap();
        fs::write(at("key"), "a secret").unwrap();
        let file = folder.path().join("gateway.yaml");
        let mut config = boxed("").limits("responseTimeout: 10m");
        let gateway = config.start_at(&file);
        let client = gateway.client(era, ANA);
        let held = json!({ "name": "try", "arguments": { "what": "hold", "arg": at("work/pid") } });
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.write_all(&client.call_bytes(&json!(1), &held)).unwrap();
        let pid = e2e::eventually("the call", || fs::read_to_string(at("work/pid")).ok());
        let lives = || Path::new(&format!("/proc/{pid}")).exists();
        // What protects nothing more lets it go on with the call.
        config.policy.push_str(
            "\n- {id: more, effect: allow, principals: ['*'], servers: ['*'], tools: [other]}",
        );
        changed(&gateway, &config, &file, 1);
        assert!(
            lives() && !gateway.said().contains("stopping programs of the previous configuration")
        );
        // The program runs in a sandbox that does not know of this file, and the call has no end.
        let env = format!(", env: [{{name: KEY, fromFile: '{}'}}]}}", at("key"));
        config.servers = format!("{}{env}", config.servers.strip_suffix('}').unwrap());
        changed(&gateway, &config, &file, 2);
        e2e::eventually("the program has ended", || (!lives()).then_some(()));
        let (failed, text) = Tried::of(&gateway, era).to("read", &at("key"));
        assert!(failed && text.contains("PermissionError"), "{text}");
    }
}

#[test]
fn a_program_changes_how_it_runs_itself_and_not_how_the_gateway_does() {
    for era in ERAS {
        let plain = boxed("mode: off").start();
        let free = Tried::of(&plain, era);
        for what in ["limit", "affinity", "scheduler", "parameters", "priority"] {
            let (failed, text) = free.to("parent", what);
            assert!(!failed, "without a sandbox, {what}: {text}");
        }
        for sandbox in ["", "mode: required, read: [READ], network: any"] {
            let gateway = boxed(sandbox).start();
            let kept = Tried::of(&gateway, era);
            for what in ["limit", "affinity", "scheduler", "parameters", "priority"] {
                let (failed, text) = kept.to("parent", what);
                let refused = failed && text.contains("PermissionError");
                assert!(refused, "{sandbox}: {what} of the gateway: {text}");
                let (failed, text) = kept.to("itself", what);
                assert!(!failed, "{sandbox}: {what} of itself: {text}");
            }
            for call in [libc::SYS_sched_setattr, libc::SYS_migrate_pages, libc::SYS_move_pages] {
                let (failed, text) = kept.to("call", &format!("{call} parent"));
                assert!(failed && text.contains("Operation not permitted"), "{call}: {text}");
            }
            // Its first argument says what kind of id follows; 0 is none of them.
            let (failed, text) = kept.to("call", &libc::SYS_ioprio_set.to_string());
            assert!(failed && text.contains("Operation not permitted"), "{text}");
            assert!(kept.to("itself", "user").0, "all processes of the user are the gateway, too");
            // A privileged user could go before all others.
            assert!(kept.to("itself", "realtime").0 && kept.to("itself", "first").0);
            let (failed, text) = kept.to("parent", "limits");
            assert!(!failed, "what the limits are is no secret: {text}");
        }
    }
}

/// The sets of rights of a process, as `/proc/self/status` tells them: a name, and a bit for each right.
fn rights(status: &str) -> Vec<(String, u64)> {
    let lines = status.lines().filter_map(|line| line.split_once(":\t"));
    let sets = lines.filter(|(name, _)| name.starts_with("Cap"));
    sets.map(|(name, bits)| (name.to_owned(), u64::from_str_radix(bits.trim(), 16).unwrap()))
        .collect()
}

/// The sandboxes in which a program can have the network.
const NETWORKED: [&str; 4] = [
    "",
    "mode: preferred, read: [READ], network: any",
    "mode: required, read: [READ], network: any",
    "mode: required, files: any, network: any",
];

#[test]
fn a_program_hears_nothing_of_others_on_the_network_of_the_machine_and_does_not_change_it() {
    let number = |value: i32| value.to_string();
    let [raw, stream] = [libc::SOCK_RAW, libc::SOCK_STREAM].map(number);
    let refused = [
        format!("{} {raw} 768", libc::AF_PACKET), // ETH_P_ALL
        format!("{} {} 768", libc::AF_PACKET, libc::SOCK_DGRAM),
        format!("{} {raw} 1", libc::AF_INET),   // ICMP
        format!("{} {raw} 58", libc::AF_INET6), // ICMPv6
        format!("{} 10 768", libc::AF_INET),    // SOCK_PACKET
        format!("{} {} 0", libc::AF_ALG, libc::SOCK_SEQPACKET),
        format!("{} {stream} 0", libc::AF_VSOCK),
        format!("{} {raw} 2", libc::AF_KEY),
        format!("{} {raw} 0", libc::AF_XDP),
        format!("{} {raw} 1", libc::AF_BLUETOOTH),
        format!("{} {raw} {}", libc::AF_NETLINK, libc::NETLINK_NETFILTER),
        format!("{} {raw} {}", libc::AF_NETLINK, libc::NETLINK_SOCK_DIAG),
    ];
    // CAP_NET_ADMIN and CAP_NET_RAW, which the gateway may not have here either.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let held = rights(&own).into_iter().find(|(name, _)| name == "CapEff").unwrap().1;
    let privileged = held & 0x3000 == 0x3000;
    for era in ERAS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap().to_string();
        if privileged {
            let plain = boxed("mode: off").start();
            let free = Tried::of(&plain, era);
            for socket in [&refused[0], &refused[2]] {
                let (failed, text) = free.to("socket", socket);
                assert!(!failed, "without a sandbox, {socket}: {text}");
            }
            let text = free.to("address", "").1;
            assert!(text.contains("File exists"), "without a sandbox: {text}");
        }
        for sandbox in NETWORKED {
            let gateway = boxed(sandbox).start();
            let kept = Tried::of(&gateway, era);
            for socket in &refused {
                let (failed, text) = kept.to("socket", socket);
                let why = failed && text.contains("Operation not permitted");
                assert!(why, "{sandbox}: {socket}: {text}");
            }
            let (failed, text) = kept.to("pair", &number(libc::AF_TIPC));
            assert!(failed && text.contains("Operation not permitted"), "{sandbox}: {text}");
            let (failed, text) = kept.to("address", "");
            assert!(failed && text.contains("Operation not permitted"), "{sandbox}: {text}");
            // What ordinary programs do.
            for (what, arg) in [
                ("connect", &*there),
                ("udp", ""),
                ("interfaces", ""),
                ("lookup", "localhost"),
                ("pair", &number(libc::AF_UNIX)),
            ] {
                let (failed, text) = kept.to(what, arg);
                assert!(!failed, "{sandbox}: {what} {arg}: {text}");
            }
            // A kernel may have no IPv6.
            let text = kept.to("socket", &format!("{} {stream} 0", libc::AF_INET6)).1;
            assert!(!text.contains("Operation not permitted"), "{sandbox}: {text}");
            assert!(kept.to("interfaces", "").1.contains("lo"), "{sandbox}");
        }
    }
}

#[test]
fn a_program_keeps_three_rights_of_root_and_none_of_another_user() {
    // CAP_DAC_OVERRIDE, CAP_SETGID, CAP_SETUID.
    let kept = if is_privileged() { 0b1100_0010 } else { 0 };
    for era in ERAS {
        for sandbox in NETWORKED {
            let gateway = boxed(sandbox).start();
            let (failed, text) = Tried::of(&gateway, era).to("rights", "");
            assert!(!failed, "{sandbox}: {text}");
            let sets = rights(&text);
            assert_eq!(sets.len(), 10, "five of itself and five of what it starts: {text}");
            for (name, bits) in sets {
                let allowed = match &*name {
                    "CapEff" | "CapPrm" => kept,
                    // What bounds another user's programs is not used: they get no new rights.
                    "CapBnd" if is_privileged() => kept,
                    "CapBnd" => u64::MAX,
                    _ => 0,
                };
                assert_eq!(bits & !allowed, 0, "{sandbox}: {name}: {text}");
            }
        }
    }
}

#[test]
fn where_ports_are_listed_a_program_reaches_no_other_by_another_protocol() {
    for era in ERAS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let elsewhere = listener.local_addr().unwrap().to_string();
        let gateway = boxed("mode: required, read: [READ], ports: [9]").start();
        let kept = Tried::of(&gateway, era);
        for protocol in [libc::IPPROTO_SCTP, libc::IPPROTO_MPTCP] {
            let socket = format!("{} {} {protocol}", libc::AF_INET, libc::SOCK_STREAM);
            let (failed, text) = kept.to("socket", &socket);
            assert!(failed && text.contains("Operation not permitted"), "{protocol}: {text}");
        }
        let (failed, text) = kept.to("fast open", &elsewhere);
        assert!(failed && text.contains("Operation not permitted"), "{text}");
        for (what, arg) in [("udp", ""), ("lookup", "localhost"), ("interfaces", "")] {
            let (failed, text) = kept.to(what, arg);
            assert!(!failed, "{what}: {text}");
        }
    }
}

#[test]
fn a_gateway_that_can_open_no_file_is_not_ready() {
    for era in ERAS {
        let gateway = boxed("mode: off").start();
        // Another connection would need a file.
        let mut stream = TcpStream::connect(gateway.ops.unwrap()).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        let mut asked = || {
            let request = b"GET /readyz?verbose HTTP/1.1\r\nhost: localhost\r\n\r\n";
            stream.write_all(request).unwrap();
            read(&mut stream)
        };
        let answer = asked();
        assert!(answer.body.contains("files and threads: ok"), "{}", answer.body);
        assert_eq!(answer.status, 200);
        let tried = Tried::of(&gateway, era);
        let (failed, text) = tried.to("starve", "");
        assert!(!failed, "{text}");
        let answer = e2e::eventually("the gateway is not ready", || {
            let answer = asked();
            (answer.status == 503).then_some(answer)
        });
        assert!(answer.body.contains("files and threads: failing"), "{}", answer.body);
        gateway.says("new connections are refused");
    }
}

#[test]
fn the_gateway_opens_as_many_files_as_it_may_and_a_program_as_many_as_are_usual() {
    for era in ERAS {
        for sandbox in ["", "mode: off"] {
            let folder = Folder::new();
            let at = |name: &str| folder.path().join(name);
            let (file, audit) = (at("gateway.yaml"), at("audit.jsonl"));
            boxed(sandbox).write(&file, &audit);
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -S -n 300; exec \"$0\" run -c \"$1\""]);
            command.arg(binary()).arg(&file);
            let gateway = Gateway::spawn(command, folder, audit);
            let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.id())).unwrap();
            let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
            let most = line.split_whitespace().nth(4).unwrap();
            assert_eq!(line.split_whitespace().nth(3), Some(most), "as many as it may");
            let (failed, text) = Tried::of(&gateway, era).to("open files", "");
            assert!(!failed, "{text}");
            assert_eq!(text, format!("300 of {most}"), "{sandbox}");
        }
    }
}

#[test]
fn a_strict_program_changes_no_mode_owner_or_attribute_by_path() {
    for era in ERAS {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let rest = format!("read: [READ], write: ['{}'], network: any", at("work"));
        fs::create_dir(at("work")).unwrap();
        fs::write(at("work/file"), "of the program").unwrap();
        let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let strict = boxed(&format!("mode: required, {rest}")).start();
        let kept = Tried::of(&strict, era);
        let own = strict.audit().with_file_name("gateway.yaml").display().to_string();
        let parent = strict.audit().parent().unwrap().display().to_string();
        let before = [mode(&own), mode(&parent)];
        for path in [&own, &parent, &at("work/file")] {
            for what in ["mode", "owner", "attribute"] {
                let (failed, text) = kept.to(what, path);
                assert!(failed && text.contains("PermissionError"), "{what} {path}: {text}");
            }
        }
        assert_eq!([mode(&own), mode(&parent)], before);
        // What it can open it can change.
        let (failed, text) = kept.to("mode of an open file", &at("work/file"));
        assert!(!failed, "{text}");
        assert!(kept.to("mode of an open file", &own).0);
        // Runners of packages make what they have fetched executable.
        for sandbox in [String::new(), format!("mode: preferred, {rest}")] {
            let gateway = boxed(&sandbox).start();
            let kept = Tried::of(&gateway, era);
            for what in ["mode", "owner"] {
                let (failed, text) = kept.to(what, &at("work/file"));
                assert!(!failed, "{sandbox}: {what}: {text}");
            }
        }
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
fn a_program_for_which_nothing_is_configured_makes_no_call_that_only_administrators_need() {
    let gateway = boxed("").start();
    let kept = Tried::of(&gateway, Era::Modern);
    // What debuggers and browsers need, with an argument with which it does nothing.
    let spared = [
        (libc::SYS_ptrace, " 7"), // PTRACE_CONT, of no process
        (libc::SYS_process_vm_readv, ""),
        (libc::SYS_process_vm_writev, ""),
        (libc::SYS_unshare, ""),
        (libc::SYS_chroot, ""),
    ];
    for call in REFUSED {
        let argument = spared.iter().find(|(spared, _)| *spared == call).map(|(_, first)| first);
        let (failed, text) = kept.to("call", &format!("{call}{}", argument.unwrap_or(&"")));
        let is_refused = failed && text.contains("Operation not permitted");
        assert_eq!(is_refused, argument.is_none(), "{call}: {text}");
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
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let why = "`/no/such/folder` cannot be opened: No such file";
    assert!(said.contains(why) && said.contains("gateway.yaml:"), "{said}");
    assert_eq!(said.matches("(os error 2)").count(), 1, "{said}");
    // It is found before the start, unless the configuration is for another machine.
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    required.write(&file, &folder.path().join("audit.jsonl"));
    for (more, code) in [(None, Some(3)), (Some("--elsewhere"), Some(0))] {
        let mut command = Command::new(binary());
        let output = command.arg("validate").arg(&file).args(more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == code && said.contains("/no/such/folder"), "{said}");
    }
    // Where it is preferred, the program runs, and that it is not kept is on record.
    let gateway = boxed("mode: preferred, read: [READ, /no/such/folder]").start();
    let tried = Tried::of(&gateway, Era::Modern);
    assert!(!tried.to("read", "/etc/hosts").0);
    // What can be enforced is.
    let own = gateway.audit().display().to_string();
    assert!(tried.to("read", &own).0);
    let record = gateway.records().into_iter().find(|record| record["event"] == "sandbox").unwrap();
    assert!(record["what"].as_str().unwrap().contains("server up: `/no/such/folder`"), "{record}");
    gateway.says("the sandbox is incomplete");
}

#[test]
fn mistakes_in_a_sandbox_are_shown_where_they_are() {
    for (sandbox, problem) in [
        ("mode: required, read: [relative]", "`relative` is no absolute path"),
        ("mode: required, network: any, ports: [1]", "it may reach every port already"),
        ("mode: preferred, files: any, read: [/srv]", "it may read every file already"),
        ("mode: preferred, files: any, write: [/srv]", "it may change what is here already"),
        (
            "mode: preferred, files: any, write: [/srv, /dev/pts]",
            "it may change what is here already",
        ),
        ("mode: required, openFiles: 0", "nothing can be done with none"),
        ("read: []", "`mode` is missing"),
        ("mode: off, network: any", "nothing is enforced without a sandbox"),
    ] {
        let output = boxed(sandbox).refused();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && said.contains(problem), "{said}");
    }
}

#[test]
fn a_folder_that_is_listed_is_open_but_for_the_gateways_own_files() {
    for era in ERAS {
        for mode in ["required", "preferred"] {
            let folder = Folder::new();
            let at = |name: &str| folder.path().join(name).display().to_string();
            for (name, text) in [("key", "a secret"), ("notes", "plain notes")] {
                fs::write(at(name), text).unwrap();
            }
            fs::create_dir(at("work")).unwrap();
            let mut config = boxed(&format!("mode: {mode}, read: [READ], write: ['{}']", at("")));
            let env = format!(", env: [{{name: KEY, fromFile: '{}'}}]}}", at("key"));
            config.servers = format!("{}{env}", config.servers.strip_suffix('}').unwrap());
            config.audit = Some(folder.path().join("audit.jsonl"));
            let gateway = config.start_at(&folder.path().join("gateway.yaml"));
            let kept = Tried::of(&gateway, era);
            for (what, arg) in [
                ("read", at("notes")),
                ("write", at("notes")),
                ("list", at("")),
                ("write", at("work/new")),
                ("read", at("work/new")),
            ] {
                let (failed, text) = kept.to(what, &arg);
                assert!(!failed, "{what} {arg}: {text}");
            }
            for file in ["gateway.yaml", "audit.jsonl", "portcullis.lock", "key", "key.copy"] {
                for what in ["read", "write"] {
                    let (failed, text) = kept.to(what, &at(file));
                    assert!(failed, "{what} {file}: {text}");
                }
            }
            assert_eq!(fs::read_to_string(at("key")).unwrap(), "a secret");
            gateway.says("can create, rename or replace no file directly in");
        }
    }
}

#[test]
fn one_of_the_gateways_own_files_cannot_be_listed() {
    let folder = Folder::new();
    let key = folder.path().join("key").display().to_string();
    fs::write(&key, "a secret").unwrap();
    for list in ["read", "write"] {
        let mut config = boxed(&format!("mode: preferred, {list}: ['{key}']"));
        let env = format!(", env: [{{name: KEY, fromFile: '{key}'}}]}}");
        config.servers = format!("{}{env}", config.servers.strip_suffix('}').unwrap());
        let output = config.refused();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("is one of the gateway's own files"), "{said}");
    }
}

#[test]
fn a_key_of_a_sandbox_that_is_not_written_changes_nothing() {
    let folder = Folder::new();
    let file = folder.path().join("notes").display().to_string();
    fs::write(&file, "plain notes").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = listener.local_addr().unwrap().to_string();
    for (sandbox, reads, connects) in [
        ("mode: required", true, true),
        ("mode: required, processes: 10000", true, true),
        ("mode: required, network: none", true, false),
        ("mode: required, read: [READ]", false, true),
        ("mode: required, files: listed, read: [READ], network: none", false, false),
    ] {
        let gateway = boxed(sandbox).start();
        let kept = Tried::of(&gateway, Era::Modern);
        assert_eq!(!kept.to("read", &file).0, reads, "{sandbox}");
        assert_eq!(!kept.to("connect", &there).0, connects, "{sandbox}");
    }
}

#[test]
fn folders_in_which_a_program_can_make_nothing_new_are_named_before_the_start() {
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    boxed("").write(&file, &folder.path().join("audit.jsonl"));
    let said = |arguments: &[&str]| {
        let output = Command::new(binary()).args(arguments).arg(&file).output().unwrap();
        [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat()
    };
    let named = format!("`{}`", fs::canonicalize(folder.path()).unwrap().display());
    for arguments in [&["validate"][..], &["run", "--dry-run", "-c"]] {
        let said = said(arguments);
        let told = said.contains("can create, rename or replace no file directly in")
            && said.contains(&named);
        assert!(
            said.contains("This is normal, and everywhere else it writes as its user may."),
            "{said}"
        );
        assert!(told, "{arguments:?}: {said}");
    }
}

#[test]
fn what_is_the_same_of_the_sandboxes_of_several_servers_is_said_once() {
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    let mut config = boxed("");
    config.servers =
        format!("{0}\n{1}", config.servers, config.servers.replace("name: up", "name: two"));
    config.audit = Some(folder.path().join("audit.jsonl"));
    let gateway = config.start_at(&file);
    let said = gateway
        .says("each of the servers `up`, `two` can create, rename or replace no file directly in");
    assert_eq!(
        said.matches("can create, rename or replace no file directly in").count(),
        1,
        "{said}"
    );
    let validated = Command::new(binary()).arg("validate").arg(&file).output().unwrap();
    let said = String::from_utf8(validated.stderr).unwrap();
    assert!(
        said.contains(
            "note: each of the servers `up`, `two` can create, rename or replace no file"
        ),
        "{said}"
    );
    assert_eq!(
        said.matches("can create, rename or replace no file directly in").count(),
        1,
        "{said}"
    );
}

#[test]
fn a_folder_for_temporary_files_that_is_there_already_is_closed_or_passed_over() {
    use std::os::unix::fs::MetadataExt as _;
    let user = fs::metadata("/proc/self").unwrap().uid();
    for (mode, used) in [(0o755, ""), (0o777, "-1")] {
        let (folder, audits) = (Folder::new(), Folder::new());
        let folder = fs::canonicalize(folder.path()).map(|path| (folder, path)).unwrap();
        let first = folder.1.join(format!("portcullis-programs-{user}"));
        fs::create_dir(&first).unwrap();
        fs::set_permissions(&first, fs::Permissions::from_mode(mode)).unwrap();
        let (file, audit) = (folder.1.join("gateway.yaml"), audits.path().join("audit.jsonl"));
        boxed("").write(&file, &audit);
        let mut command = Command::new(binary());
        command.args(["run", "-c"]).arg(&file).env("TMPDIR", &folder.1);
        let gateway = Gateway::spawn(command, audits, audit);
        let tried = Tried::of(&gateway, Era::Modern);
        let wanted = folder.1.join(format!("portcullis-programs-{user}{used}"));
        assert_eq!(tried.to("tmpdir", ""), (false, wanted.display().to_string()));
        assert!(!tried.to("write", &wanted.join("new").display().to_string()).0);
        assert_eq!(fs::metadata(&wanted).unwrap().mode() & 0o777, 0o700);
    }
}

#[test]
fn a_program_that_its_sandbox_does_not_open_says_so() {
    let folder = Folder::new();
    let script = folder.path().join("server");
    fs::write(&script, "#!/bin/sh\necho it was run >&2\nexit 3\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.display();
    for (sandbox, why) in [
        (", sandbox: {mode: required, files: listed}", "cannot be run inside its sandbox"),
        ("", "it was run"),
    ] {
        let server = format!("- {{name: up, command: '{script}'{sandbox}}}");
        let mut config = Config::with(&server, "[up]");
        config.pins = format!("{{file: '{}'}}", folder.path().join("lock").display());
        for verb in [&["pin"][..], &["scan"], &["run", "--dry-run"]] {
            let output = config.tried(verb);
            let said = [output.stdout, output.stderr]
                .map(|said| String::from_utf8(said).unwrap())
                .concat();
            assert!(said.contains(why) && said.contains("could not be asked"), "{verb:?}: {said}");
            // The output of the program has lines of its own.
            assert!(said.contains("error output:\n    | ") && !said.contains("\\n"), "{said}");
        }
        let gateway = config.start();
        e2e::eventually("the log says why the program ended", || {
            let log = gateway.said();
            let told =
                |line: &str| line.contains("program ended with an error") && line.contains(why);
            log.lines().any(told).then_some(())
        });
    }
}

/// A home with the gateway's files in `.config/portcullis`, and a program that keeps a folder of its own in the home.
struct Home {
    folder: Folder,
}

impl Home {
    fn new() -> Self {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name);
        for name in [".config/portcullis", "bin"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let script = "#!/bin/sh\nset -e\nd=\"$HOME/.mongodb\"\nif [ ! -d \"$d\" ] && ! mkdir \"$d\"; then\n\
                      for n in 1 2 3 4 5 6 7 8 9; do echo \"    at line $n\" >&2; done; exit 1\nfi\necho x > \"$d/state\"\nexec \"$0-real\" canary\n";
        fs::write(at("bin/server"), script).unwrap();
        fs::set_permissions(at("bin/server"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(binary(), at("bin/server-real")).unwrap();
        let mut config = Config::with(
            &format!("- {{name: up, command: '{}'}}", at("bin/server").display()),
            "[up]",
        );
        config.pins = format!("{{file: '{}'}}", at(".config/portcullis/lock").display());
        config.write(&at(".config/portcullis/gateway.yaml"), &at(".config/portcullis/audit.jsonl"));
        Self { folder }
    }

    fn state(&self) -> String {
        self.folder.path().join(".mongodb").display().to_string()
    }

    fn command(&self, verb: &[&str]) -> Command {
        let mut command = Command::new(binary());
        let file = self.folder.path().join(".config/portcullis/gateway.yaml");
        command.args(verb).arg("-c").arg(file).env("HOME", self.folder.path()).env("LANG", "C");
        command
    }
}

#[test]
fn a_program_that_keeps_a_folder_in_a_home_that_is_closed_is_told_of_with_what_helps() {
    let home = Home::new();
    let state = home.state();
    let said = |verb: &[&str]| {
        let output = home.command(verb).output().unwrap();
        let [out, log] = [output.stdout, output.stderr].map(|one| String::from_utf8(one).unwrap());
        (output.status.code(), out, log)
    };
    let closed =
        format!("its sandbox closes `{state}`: nothing can be created or replaced directly in ");
    let mend = format!("`mkdir -p {state}` before the program is started");
    for verb in [&["scan"][..], &["pin"], &["doctor"], &["run", "--dry-run"]] {
        let (code, out, log) = said(verb);
        let all = format!("{out}{log}");
        assert!(all.contains(&closed) && all.contains(&mend), "{verb:?}: {all}");
        assert_ne!(code, Some(0), "{verb:?}: {all}");
    }
    let (code, out, _) = said(&["scan"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.starts_with("nothing is known: 1 of 1 server could not be asked"), "{out}");
    let spawned = || {
        let audit = home.folder.path().join(".config/portcullis/audit.jsonl");
        Gateway::spawn(home.command(&["run"]), Folder::new(), audit)
    };
    let gateway = spawned();
    gateway.says("its sandbox closes");
    gateway.says(&mend);
    drop(gateway);
    // With what it says, the program works, in both eras.
    fs::create_dir(&state).unwrap();
    let (code, _, log) = said(&["pin"]);
    assert_eq!(code, Some(0), "{log}");
    let approved = home.command(&["pin", "approve", "--yes", "--by", "ana"]).output().unwrap();
    assert!(approved.status.success());
    let gateway = spawned();
    for era in ERAS {
        assert!(gateway.client(era, ANA).tools().contains(&"add".to_owned()), "{era:?}");
    }
    assert_eq!(fs::read_to_string(format!("{state}/state")).unwrap(), "x\n");
}

#[test]
fn a_path_that_a_strict_sandbox_does_not_list_is_told_with_the_key_to_list_it_under() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let state = elsewhere.path().join("state").display().to_string();
    let script = folder.path().join("server");
    fs::write(&script, format!("#!/bin/sh\nmkdir '{state}'\nexit 3\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let server = format!(
        "- {{name: up, command: '{0}', sandbox: {{mode: preferred, read: ['{0}']}}}}",
        script.display()
    );
    let output = Config::with(&server, "[up]").tried(&["doctor"]);
    let said = String::from_utf8(output.stdout).unwrap();
    let closed = format!("its sandbox closes `{state}`: it opens what is listed");
    assert!(said.contains(&closed), "{said}");
    assert!(
        said.contains(&format!("-> `mkdir -p {state}`, and list it under `sandbox.write`")),
        "{said}"
    );
}

#[test]
fn a_program_that_fails_while_the_gateway_closes_it_is_no_warning() {
    let folder = Folder::new();
    let script = folder.path().join("server");
    let text = format!(
        "#!/bin/sh\n'{}' canary\necho 'Error: write EPIPE' >&2\nexit 1\n",
        binary().display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut config =
        Config::with(&format!("- {{name: up, command: '{}'}}", script.display()), "[up]");
    config.pins = format!("{{file: '{}'}}", folder.path().join("lock").display());
    for verb in [&["scan", "--fail-on", "none"][..], &["pin"]] {
        let output = config.tried(verb);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{verb:?}: {said}");
        assert!(!said.contains("ended with an error") && !said.contains("EPIPE"), "{said}");
    }
}

#[test]
fn a_question_that_a_program_asks_again_and_again_is_logged_once_with_what_allows_it() {
    let folder = Folder::new();
    let script = folder.path().join("server");
    let text = format!(
        "#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8 9; do\n\
         echo '{{\"jsonrpc\":\"2.0\",\"id\":\"roots'$n'\",\"method\":\"roots/list\"}}'\ndone\n\
         grep --line-buffered -v '\"roots[0-9]\"' | '{}' canary\n",
        binary().display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut config =
        Config::with(&format!("- {{name: up, command: '{}'}}", script.display()), "[up]");
    config.pins = format!("{{file: '{}'}}", folder.path().join("lock").display());
    // `pin` asks twice.
    for (verb, most) in [(&["scan", "--fail-on", "none"][..], 1), (&["pin"], 2)] {
        let output = config.tried(verb);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{verb:?}: {said}");
        let count = said.matches("server request refused").count();
        assert!((1..=most).contains(&count), "{verb:?}: {said}");
        assert!(said.contains("`serverRequests: {roots: {}}` of the server"), "{said}");
    }
}

#[test]
fn a_program_does_not_change_what_a_program_for_a_secret_is_told_to_run_or_to_read() {
    for era in ERAS {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for name in ["own", "links", "work"] {
            fs::create_dir(at(name)).unwrap();
        }
        let (script, link, list) = (at("own/get.sh"), at("links/get.sh"), at("own/list"));
        let text = "#!/bin/sh\necho said-by-the-script\n";
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&list, "said-by-the-list\n").unwrap();
        symlink(&script, &link).unwrap();
        for line in [
            format!("[/bin/sh, '{script}']"),
            format!("[/bin/sh, '{link}']"),
            format!("[/usr/bin/env, A=b, '{link}']"),
            format!("[/usr/bin/env, A=b, /bin/sh, '{script}']"),
            format!("[/bin/sh, -c, '. {link}']"),
            format!("[/bin/sed, -n, 1p, '{list}', '{script}']"),
        ] {
            let mut config = boxed("");
            let env = format!(", env: [{{name: KEY, fromCommand: {line}}}]}}");
            config.servers = format!("{}{env}", config.servers.strip_suffix('}').unwrap());
            let gateway = config.start();
            let tried = Tried::of(&gateway, era);
            let other = at("work/other");
            let mut attempts = vec![
                ("write", script.clone()),
                ("shell", format!("echo other > {other} && mv {other} {script}")),
                ("shell", format!("rm -f {script}")),
                ("shell", format!("mv {} {}", at("own"), at("work/own"))),
            ];
            if line.contains(&link) {
                attempts.push(("shell", format!("ln -s /bin/true {other} && mv {other} {link}")));
                attempts.push(("shell", format!("mv {} {}", at("links"), at("work/links"))));
            }
            if line.contains(&list) {
                attempts.push(("write", list.clone()));
            }
            for (what, arg) in attempts {
                let (failed, said) = tried.to(what, &arg);
                assert!(failed, "{line}: {what} {arg}: {said}");
                drop(fs::remove_file(&other));
            }
            // It may run it, too, and make files elsewhere.
            for (what, arg) in
                [("shell", format!("sh {link} >/dev/null")), ("write", at("work/new"))]
            {
                let (failed, said) = tried.to(what, &arg);
                assert!(!failed, "{line}: {what} {arg}: {said}");
            }
            assert_eq!(fs::read_to_string(&link).unwrap(), text, "{line}");
        }
    }
}

/// An agent that `portcullis exec` starts: it says where the gateway and its file are, and reads the file when it is
/// told to.
const AGENT: &str = r#"echo "$PORTCULLIS_URL"; echo "$PORTCULLIS_MCP_CONFIG"; read -r line; exec cat "$PORTCULLIS_MCP_CONFIG""#;

#[test]
fn a_program_does_not_reach_the_file_that_the_program_beside_the_gateway_is_given() {
    for era in ERAS {
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name);
        let (file, run) = (at("gateway.yaml"), at("run"));
        fs::create_dir(&run).unwrap();
        fs::create_dir(at("work")).unwrap();
        boxed("").write(&file, &at("audit.jsonl"));
        // Nothing can be made beside a descriptor.
        let beside = "exec \"$0\" exec -c \"$1\" -- sh -c \"$2\"";
        let elsewhere = "exec 3<\"$1\"; exec \"$0\" exec -c /dev/fd/3 -- sh -c \"$2\"";
        for (script, place) in [(beside, folder.path()), (elsewhere, &run)] {
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).arg(binary()).arg(&file).arg(AGENT);
            command.env("XDG_RUNTIME_DIR", &run).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let mut line = || {
                let mut line = String::new();
                output.read_line(&mut line).unwrap();
                line.trim_end().to_owned()
            };
            let (url, path) = (line(), line());
            assert!(Path::new(&path).starts_with(place), "{path}");
            let address = url.strip_prefix("http://").unwrap().parse().unwrap();
            let client = Client::connect(address, "/mcp", era, Some(ANA));
            for (what, arg) in [
                ("read", path.clone()),
                ("write", path.clone()),
                ("shell", format!("rm -f {path}")),
                ("shell", format!("echo other > {0} && mv {0} {path}", at("work/new").display())),
            ] {
                let (failed, said) = attempt(&client, what, &arg);
                assert!(failed, "{what} {arg}: {said}");
            }
            // The agent gets what was written for it, and nothing is left behind.
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
            let mut told = String::new();
            output.read_to_string(&mut told).unwrap();
            assert!(told.contains(&format!("\"url\": \"{url}/mcp\"")), "{told}");
            assert!(child.wait().unwrap().success());
            assert!(!Path::new(&path).exists(), "{path}");
            assert_eq!(fs::read_dir(&run).unwrap().count(), 0);
        }
    }
}
