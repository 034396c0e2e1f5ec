//! The log for people: a line for each request on a terminal, JSON elsewhere, and nothing that a terminal acts on.

use std::fs;
use std::process::Command;

use e2e::gateway::{ANA, Config, Folder, Gateway, binary};
use e2e::server::Server;
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

/// Runs a program with a terminal as its standard input, output and error; what it writes goes to standard error, and so
/// does a wish to stop it on to the program.
const TERMINAL: &str = r"
import os, pty, select, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
# A signal that comes just before a read begins would be seen only after it: it is read from a pipe instead.
asked, wake = os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
signal.signal(signal.SIGTERM, lambda *_: None)
while True:
    ready = select.select([terminal, asked], [], [])[0]
    if asked in ready:
        os.read(asked, 1)
        os.kill(pid, signal.SIGTERM)
        continue
    try:
        data = os.read(terminal, 4096)
    except OSError:
        break
    if not data:
        break
    os.write(2, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// One thing is forbidden by a rule, the rest is allowed.
fn config(server: &Server) -> Config {
    Config::with(&format!("- {{name: files, url: '{}'}}", server.url()), "[files]").policy(
        "rules:\n- {id: developers-read, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*']}\n\
         - {id: only-shared-files, effect: forbid, principals: ['*'], servers: [files], tools: [read_text_file]}",
    )
}

/// The variable by which people say that they want no colours (<https://no-color.org>).
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoColor {
    Set,
    Unset,
}

/// A gateway that is run by `before`, with these arguments and this configuration.
fn started(before: &[&str], config: &Config, arguments: &[&str], colours: NoColor) -> Gateway {
    let folder = Folder::new();
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    config.write(&file, &audit);
    let mut line = before.iter().map(ToString::to_string).collect::<Vec<_>>();
    line.extend([binary().display().to_string(), "run".to_owned(), "-c".to_owned()]);
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).arg(&file).args(arguments).env_remove("NO_COLOR");
    if colours == NoColor::Set {
        command.env("NO_COLOR", "1");
    }
    Gateway::spawn(command, folder, audit)
}

/// A call that is allowed, one that is denied, and somebody who is not known.
fn calls(gateway: &Gateway, era: Era) {
    let ana = gateway.client(era, ANA);
    assert_eq!(ana.call("echo", &json!({ "text": "x" })).status, 200);
    drop(ana.call("read_text_file", &json!({})));
    let stranger = "Bearer pcl_nobody-knows-this-key";
    let answer = crate::tokens::knock(gateway, era, &[("authorization", stranger)]);
    assert_eq!(answer.status, 401);
}

#[test]
fn with_log_format_human_each_request_is_a_line() {
    for era in ERAS {
        let server = Server::echo(era, &["echo", "read_text_file"]);
        let gateway = started(&[], &config(&server), &["--log-format", "human"], NoColor::Unset);
        calls(&gateway, era);
        let log = gateway.says("credential-refused");
        assert!(log.contains(" ALLOW  ana files/echo developers-read "), "{log}");
        assert!(log.contains(" DENY   ana files/read_text_file only-shared-files"), "{log}");
        assert!(log.contains(" REFUSE 127.0.0.1 "), "{log}");
        // A pipe gets no colours, and the time is that of the record.
        assert!(!log.contains('\u{1b}'), "{log}");
        let denied = gateway.recorded("the denial", |record| record["outcome"] == "denied");
        let time = denied["time"].as_str().and_then(|time| time.get(11..19)).unwrap();
        let line = format!("{time} DENY   ana files/read_text_file only-shared-files");
        assert!(log.contains(&line), "{line}: {log}");
        // What else is logged is short.
        assert!(log.lines().any(|line| line.contains(" INFO   ")), "{log}");
    }
}

#[test]
fn what_a_program_says_is_logged_with_quotation_marks_as_they_are() {
    let shown = r#"File "server.py", line 3, in 'call': {"id": 1} C:\\new\u{1b}[31m"#;
    let said =
        r"File \042server.py\042, line 3, in \047call\047: {\042id\042: 1} C:\134new\033[31m\n";
    let script = format!("printf '{said}' >&2; exec {} canary", binary().display());
    let script = json!(script);
    let servers = format!("- {{name: files, command: sh, args: [-c, {script}]}}");
    let config = Config::with(&servers, "[files]");
    let read_log = |format: &str| {
        let gateway = started(&[], &config, &["--log-format", format], NoColor::Unset);
        for era in ERAS {
            assert!(!gateway.client(era, ANA).tools().is_empty(), "{era:?}");
        }
        gateway.says("server.py")
    };
    let log = read_log("human");
    assert!(log.contains(shown) && !log.contains('\u{1b}'), "{log:?}");
    let log = read_log("json");
    let line = log.lines().find(|line| line.contains("server.py")).unwrap();
    let parsed: Value = line.parse().unwrap();
    assert_eq!(parsed["fields"]["text"], shown, "{line}");
}

#[test]
fn in_a_pipe_the_log_is_json_and_the_configuration_can_say_otherwise() {
    let server = Server::echo(Era::Modern, &["echo", "read_text_file"]);
    let lines = |gateway: &Gateway| -> Vec<String> {
        let log = gateway.says("tools listed");
        // The last line may be on its way.
        let (whole, _) = log.rsplit_once('\n').unwrap();
        let ours = |line: &&str| !line.starts_with("portcullis: ");
        whole.lines().filter(ours).map(str::to_owned).collect()
    };
    let gateway = started(&[], &config(&server), &[], NoColor::Unset);
    calls(&gateway, Era::Modern);
    for line in lines(&gateway) {
        let parsed: Value = line.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(parsed["level"].is_string(), "{line}");
    }
    assert!(!gateway.said().contains("DENY"));
    drop(gateway);
    let mut config = config(&server);
    config.more = "log: {format: human}".to_owned();
    let gateway = started(&[], &config, &[], NoColor::Unset);
    calls(&gateway, Era::Modern);
    gateway.says(" DENY   ana files/read_text_file only-shared-files");
    drop(gateway);
    // The command line counts more.
    let gateway = started(&[], &config, &["--log-format", "json"], NoColor::Unset);
    calls(&gateway, Era::Modern);
    assert!(lines(&gateway).iter().all(|line| line.starts_with('{')));
}

#[test]
fn on_a_terminal_the_log_is_for_people() {
    for era in ERAS {
        let server = Server::echo(era, &["echo", "read_text_file"]);
        let mut config = config(&server);
        config.sinks = "{name: out, stdout: true}".to_owned();
        let terminal = ["python3", "-c", TERMINAL];
        let gateway = started(&terminal, &config, &[], NoColor::Unset);
        calls(&gateway, era);
        let log = gateway.says("credential-refused");
        assert!(
            log.contains("\u{1b}[31mDENY  \u{1b}[0m ana files/read_text_file only-shared-files"),
            "{log}"
        );
        // Records are lines here as well, each request once, and whole in the file.
        assert_eq!(log.matches("files/read_text_file only-shared-files").count(), 1, "{log}");
        assert!(!log.contains("\"schema\""), "{log}");
        assert!(gateway.exchanges().iter().any(|record| record["rule"] == "only-shared-files"));
        drop(gateway);
        let gateway = started(&terminal, &config, &[], NoColor::Set);
        calls(&gateway, era);
        let log = gateway.says("credential-refused");
        assert!(log.contains(" DENY   ana files/read_text_file only-shared-files"), "{log}");
        assert!(!log.contains('\u{1b}'), "{log}");
        drop(gateway);
        // Who wants records and JSON at a terminal says so.
        let gateway = started(&terminal, &config, &["--log-format", "json"], NoColor::Unset);
        calls(&gateway, era);
        let log = gateway.says("credential-refused");
        assert!(log.contains("\"schema\":\"portcullis.audit"), "{log}");
        assert!(!log.contains("DENY") && !log.contains('\u{1b}'), "{log}");
    }
}

#[test]
fn what_a_caller_chose_is_not_acted_on_by_a_terminal_and_begins_no_line() {
    let name = "x\u{1b}[2J\u{9b}31m\r\n11:02:52 ALLOW  ana everything\u{202e}é";
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        for terminal in [&[][..], &["python3", "-c", TERMINAL]] {
            let gateway =
                started(terminal, &config(&server), &["--log-format", "human"], NoColor::Set);
            drop(gateway.client(era, ANA).call(name, &json!({})));
            drop(gateway.client(era, ANA).call("echo", &json!({ "text": "x" })));
            let log = gateway.says("ana files/echo");
            assert!(!log.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{log:?}");
            assert!(
                !log.lines().any(|line| line.starts_with("11:02:52 ALLOW  ana everything")),
                "{log}"
            );
            let long = "y".repeat(200);
            drop(gateway.client(era, ANA).call(&long, &json!({})));
            let log = gateway.says("yyyy");
            assert!(log.lines().all(|line| line.len() < 500), "{log}");
        }
    }
}

#[test]
fn the_log_of_a_file_is_json_however_the_records_are_shown() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo", "read_text_file"]), Folder::new());
    let log = folder.path().join("log");
    // Standard error goes to a file while standard output is a terminal.
    let program = folder.path().join("redirect");
    fs::write(&program, format!("#!/bin/sh\nexec \"$@\" 2>'{}'\n", log.display())).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).unwrap();
    let mut config = config(&server);
    config.sinks = "{name: out, stdout: true}".to_owned();
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    config.write(&file, &audit);
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL]).arg(&program).arg(binary()).args(["run", "-c"]).arg(&file);
    command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually("the log", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.contains("tools listed").then_some(())
    });
    let kill = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success() && child.wait().unwrap().success());
    let text = fs::read_to_string(&log).unwrap();
    for line in text.lines().filter(|line| !line.starts_with("portcullis: ")) {
        assert!(line.parse::<Value>().is_ok(), "{line}");
    }
}
