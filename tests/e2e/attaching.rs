//! Processes that clients start with `portcullis stdio`: several of one configuration, beside a running gateway, and
//! from any folder.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use e2e::client::Client;
use e2e::gateway::{ANA, Config, Folder, Gateway, binary, printed, root};
use e2e::server::{Server, tool};
use e2e::stdio::Started;
use e2e::{ERAS, Era, eventually};
use json::hex;
use serde_json::{Value, json};

use crate::sandbox::{boxed, python};
use crate::transports::long;

/// printf KEY | sha256sum, for the key of `ana`.
const HASH: &str = "5434d1fbe1648d10e4c47fcfab49b8f1a98b1ac20460ed66af94e6c80d6418a5";

/// Two servers, and a folder with the configuration of a gateway that has a route for each.
struct Routes {
    tickets: Server,
    files: Server,
    folder: Folder,
}

impl Routes {
    fn new(era: Era) -> Self {
        let (tickets, files) =
            (Server::echo(era, &["get_ticket"]), Server::echo(era, &["read_file"]));
        let folder = Folder::new();
        written(folder.path(), &tickets, &files);
        Self { tickets, files, folder }
    }
}

/// A configuration with two routes and relative paths in it, as `gateway.yaml` in this folder.
fn written(folder: &Path, tickets: &Server, files: &Server) {
    let yaml = format!(
        "apiVersion: portcullis.dev/v1
pins: {{mode: off}}
listeners: [{{name: main, address: '127.0.0.1:0', authentication: [apiKey]}}]
identity: {{apiKeys: [{{name: ana, principal: ana, groups: [dev], sha256: {HASH}}}]}}
servers: [{{name: tickets, url: '{}'}}, {{name: files, url: '{}'}}]
routes: [{{path: /tickets, servers: [tickets]}}, {{path: /files, servers: [files]}}]
policy: {{rules: [{{id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*']}}]}}
revocations: {{file: revoked.yaml}}
audit: {{sinks: [{{name: file, file: audit.jsonl}}], checkpoints: {{file: checkpoints}}}}
",
        tickets.url(),
        files.url()
    );
    fs::write(folder.join("revoked.yaml"), "{}\n").unwrap();
    fs::write(folder.join("gateway.yaml"), yaml).unwrap();
}

/// What a client of one route starts, from a folder that has nothing to do with the configuration.
pub(crate) fn started(file: &Path, route: &str, key: Option<&str>) -> Command {
    let mut command = Command::new(binary());
    command.args(["stdio", "-c"]).arg(file).args(["--route", route]).current_dir("/");
    command.env_remove("PORTCULLIS_API_KEY");
    command.envs(key.map(|key| ("PORTCULLIS_API_KEY", key)));
    command
}

/// The entries that are written for Claude Desktop, from a relative path to the configuration.
fn exported(folder: &Path) -> Value {
    let mut command = Command::new(binary());
    command.args(["export", "-c", "gateway.yaml", "--client", "claude-desktop"]);
    let output = command.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().parse().unwrap()
}

#[test]
fn a_second_run_of_a_configuration_is_told_that_its_gateway_runs_already() {
    let server = Server::echo(Era::Modern, &["read"]);
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let file = folder.path().join("gateway.yaml");
    let mut config = Config::of(&server.url());
    let gateway = config.start_at(&file);
    config.ops = format!("{{address: '{}'}}", gateway.ops.unwrap());
    let log = elsewhere.path().join("audit.jsonl");
    let other = elsewhere.path().join("gateway.yaml");
    for file in [&file, &other] {
        config.write(file, &log);
    }
    let said = |file: &Path| {
        let mut command = Command::new(binary());
        command.args(["run", "-c"]).arg(file).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        eventually("the refusal", || child.try_wait().unwrap());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        printed(&output)
    };
    let (own, others) = (said(&file), said(&other));
    assert!(own.contains("could not listen on `") && others.contains("could not listen on `"));
    assert!(own.contains("help: a gateway runs with this configuration already"), "{own}");
    assert!(!own.contains("another process listens there"), "{own}");
    assert!(others.contains("help: another process listens there"), "{others}");
    drop(gateway);
}

#[test]
fn two_windows_of_an_editor_use_one_configuration_at_once() {
    for era in ERAS {
        let Routes { folder, .. } = &Routes::new(era);
        let entries = exported(folder.path());
        // Twice each, as two windows do; as they stand in the file of the client.
        let mut clients = Vec::new();
        for name in ["tickets", "files", "tickets", "files"] {
            let entry = &entries["mcpServers"][name];
            let mut command = Command::new(entry["command"].as_str().unwrap());
            command.args(entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
            command.current_dir("/").env("PORTCULLIS_API_KEY", ANA);
            clients.push((name, Started::new(command, era)));
        }
        for (name, client) in &mut clients {
            let tool = if *name == "tickets" { "get_ticket" } else { "read_file" };
            assert_eq!(client.tools(), [tool], "{era:?}");
            let answer = client.call(tool, &json!({ "text": *name }));
            assert_eq!(answer["result"]["content"][0]["text"], json!(*name), "{answer}");
        }
        for (name, client) in clients {
            let ended = client.end();
            assert_eq!(ended.code, Some(0), "{name}: {}", ended.said);
        }
        // Each has a log of its own, which is whole.
        assert!(!folder.path().join("audit.jsonl").exists());
        for n in 1..=4 {
            assert!(folder.path().join(format!("audit.jsonl.stdio-{n}")).exists(), "{n}");
            assert!(folder.path().join(format!("checkpoints.stdio-{n}")).exists(), "{n}");
        }
        let verify = || {
            let mut command = Command::new(binary());
            command.args(["audit", "verify"]).arg(folder.path()).output().unwrap()
        };
        let verified = verify();
        let text = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(verified.status.success(), "{text}{}", String::from_utf8_lossy(&verified.stderr));
        assert_eq!(text.matches("whole: ").count(), 4, "{text}");
        // The next process goes on with the first.
        let mut again =
            Started::new(started(&folder.path().join("gateway.yaml"), "/files", Some(ANA)), era);
        assert_eq!(again.tools(), ["read_file"]);
        assert_eq!(again.end().code, Some(0));
        assert!(!folder.path().join("audit.jsonl.stdio-5").exists());
        assert!(verify().status.success());
        // One that was changed is found among them.
        let third = folder.path().join("audit.jsonl.stdio-3");
        let changed = fs::read_to_string(&third).unwrap().replacen("\"ana\"", "\"eve\"", 1);
        fs::write(&third, changed).unwrap();
        let verified = verify();
        assert_eq!(verified.status.code(), Some(8));
        assert!(String::from_utf8_lossy(&verified.stderr).contains("audit.jsonl.stdio-3"));
    }
}

#[test]
fn a_process_for_one_route_starts_no_other_servers() {
    for era in ERAS {
        let Routes { tickets, files, folder } = &Routes::new(era);
        let file = folder.path().join("gateway.yaml");
        let mut client = Started::new(started(&file, "/tickets", Some(ANA)), era);
        assert_eq!(client.tools(), ["get_ticket"]);
        assert_eq!(client.end().code, Some(0));
        assert!(!tickets.calls().is_empty() && files.calls().is_empty(), "{era:?}");
        // And which route is meant has to be said.
        let mut nowhere = Started::silent(started(&file, "/other", Some(ANA)), era);
        let ended = nowhere.ended();
        assert_eq!(ended.code, Some(1));
        assert!(
            ended.said.contains("`/other`") && ended.said.contains("`/files`, `/tickets`"),
            "{}",
            ended.said
        );
    }
}

/// Two servers on other routes, which refer to variables that are not set, in every kind of place.
const INCOMPLETE: &str = "
  - name: other
    url: '${UNSET_URL}'
    credential: {header: {fromEnv: UNSET_TOKEN}}
    circuitBreaker: {failures: '${UNSET_COUNT}', openFor: '${UNSET_TIME}'}
  - name: program
    command: '${UNSET_COMMAND}'
    args: ['--zone=${UNSET_ZONE}']
    env: [{name: TOKEN, fromEnv: UNSET_TOKEN}, {name: CERT, fromFile: no-such-file}]
    sandbox: {mode: required, read: ['${UNSET_FOLDER}']}
";

#[test]
fn a_process_for_one_route_needs_the_variables_and_secrets_of_its_own_servers_alone() {
    for era in ERAS {
        let Routes { tickets, folder, .. } = &Routes::new(era);
        let file = folder.path().join("gateway.yaml");
        let good = fs::read_to_string(&file).unwrap();
        let own =
            format!("servers: [{{name: tickets, url: '{}'}}, {{name: files, url: '", tickets.url());
        let more = format!("servers:\n  - {{name: tickets, url: '{}'}}{INCOMPLETE}", tickets.url());
        let (before, rest) = good.split_once(&own).unwrap();
        let (_, rest) = rest.split_once("routes: [").unwrap();
        let rest = rest.replacen("servers: [files]", "servers: [other, program]", 1);
        // A rule may name a server that is not started.
        let rest = rest.replacen("servers: ['*']", "servers: [tickets, other, program]", 1);
        let text = format!("{before}{more}routes: [{rest}");
        fs::write(&file, &text).unwrap();
        let mut client = Started::new(started(&file, "/tickets", Some(ANA)), era);
        assert_eq!(client.tools(), ["get_ticket"], "{era:?}");
        let answer = client.call("get_ticket", &json!({ "text": "hi" }));
        assert_eq!(answer["result"]["content"][0]["text"], "hi", "{answer}");
        let ended = client.end();
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        // Those of its own servers are needed, and it is said what else can be done.
        let ended = Started::silent(started(&file, "/files", Some(ANA)), era).ended();
        assert_eq!(ended.code, Some(3), "{}", ended.said);
        for said in ["`UNSET_URL` is not set", "`UNSET_TOKEN`", "or start `portcullis run -c "] {
            assert!(ended.said.contains(said), "{said}: {}", ended.said);
        }
        // So they are where it is not clear which servers these are, and where the name of a server needs one.
        for (from, to, said) in [
            ("servers: [tickets]}", "servers: ['${UNSET_NAME}']}", "`UNSET_URL` is not"),
            ("name: other", "name: '${UNSET_NAME}'", "`UNSET_NAME` is not set"),
            ("UNSET_ZONE}", "UNSET_ZONE", "`${` is not closed"),
        ] {
            fs::write(&file, text.replacen(from, to, 1)).unwrap();
            let ended = Started::silent(started(&file, "/tickets", Some(ANA)), era).ended();
            assert_eq!(ended.code, Some(3), "{to}: {}", ended.said);
            assert!(ended.said.contains(said), "{said}: {}", ended.said);
        }
    }
}

/// A gateway that runs with `gateway.yaml` of this folder.
fn running(folder: &Path, config: &mut Config) -> Gateway {
    config.audit = Some(folder.join("audit.jsonl"));
    config.start_at(&folder.join("gateway.yaml"))
}

#[test]
fn beside_a_running_gateway_a_client_is_served_by_it() {
    for era in ERAS {
        let server = Server::echo(era, &["work"]);
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        let mut gateway = running(folder.path(), &mut Config::of(&server.url()));
        let over_http = gateway.client(era, ANA);
        let left = folder.path().join("gateway.yaml.running");
        assert_eq!(fs::metadata(&left).unwrap().permissions().mode() & 0o777, 0o600);
        let mut clients: Vec<_> =
            (0..2).map(|_| Started::new(started(&file, "/mcp", Some(ANA)), era)).collect();
        for client in &mut clients {
            assert_eq!(client.tools(), ["work"], "{era:?}");
            let answer = client.call("work", &json!({ "text": "hi" }));
            assert_eq!(answer["result"]["content"][0]["text"], "hi", "{answer}");
        }
        assert!(over_http.call("work", &json!({ "text": "x" })).json()["result"].is_object());
        // What they do is in the log of the gateway, and there is no other.
        let record = gateway.recorded("the call of a client over stdio", |record| {
            record["listener"] == "stdio" && record["tool"] == "work"
        });
        assert_eq!(record["principal"], "ana");
        assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
        // One that is not known is not served, and does not go round the gateway that runs.
        for (key, hint) in [(Some("pcl_wrong"), "identity.apiKeys"), (None, "PORTCULLIS_API_KEY")] {
            let ended = Started::silent(started(&file, "/mcp", key), era).ended();
            assert_eq!(ended.code, Some(1), "{}", ended.said);
            assert!(ended.said.contains(hint), "{}", ended.said);
        }
        assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
        for client in clients {
            assert_eq!(client.end().code, Some(0));
        }
        // One that was killed leaves its file, which leads nowhere.
        gateway.kill();
        assert!(left.exists());
        let mut alone = Started::new(started(&file, "/mcp", Some(ANA)), era);
        assert_eq!(alone.tools(), ["work"]);
        assert_eq!(alone.end().code, Some(0));
        assert!(folder.path().join("audit.jsonl.stdio-1").exists());
    }
}

#[test]
fn a_gateway_and_its_client_may_name_the_configuration_by_different_links() {
    for (era, names) in
        ERAS.into_iter().flat_map(|era| [["real", "linked"], ["linked", "real"]].map(|n| (era, n)))
    {
        let (server, folder) = (Server::echo(era, &["work"]), Folder::new());
        for name in names {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        symlink("../real/gateway.yaml", folder.path().join("linked/gateway.yaml")).unwrap();
        let [own, other] = names.map(|name| folder.path().join(name).join("gateway.yaml"));
        let mut config = Config::of(&server.url());
        config.audit = Some(folder.path().join("audit.jsonl"));
        let gateway = config.start_at(&own);
        let mut client = Started::new(started(&other, "/mcp", Some(ANA)), era);
        assert_eq!(client.tools(), ["work"], "{era:?} {names:?}");
        let is_listed = |record: &Value| record["listener"] == "stdio";
        let record = gateway.recorded("the list of the client", is_listed);
        assert_eq!(record["principal"], "ana", "{record}");
        assert!(
            !folder.path().join("audit.jsonl.stdio-1").exists(),
            "it runs no gateway of its own"
        );
        assert_eq!(client.end().code, Some(0));
    }
}

#[test]
fn connections_that_say_nothing_take_no_place_of_a_client() {
    let server = Server::echo(Era::Modern, &["work"]);
    let folder = Folder::new();
    let _gateway = running(folder.path(), &mut Config::of(&server.url()));
    let left = fs::read_to_string(folder.path().join("gateway.yaml.running")).unwrap();
    let address = SocketAddr::from_abstract_name(left.lines().nth(1).unwrap()).unwrap();
    let silent: Vec<_> = (0..64).map(|_| UnixStream::connect_addr(&address).unwrap()).collect();
    for era in ERAS {
        let file = folder.path().join("gateway.yaml");
        let mut client = Started::new(started(&file, "/mcp", Some(ANA)), era);
        assert_eq!(client.tools(), ["work"], "{era:?}");
        assert_eq!(client.end().code, Some(0));
        // It was served by the gateway, and not by its own process.
        assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
    }
    drop(silent);
}

/// The abstract name of the socket of the gateway that runs with `gateway.yaml` of this folder.
fn socket_name(folder: &Path) -> String {
    let left = fs::read_to_string(folder.join("gateway.yaml.running")).unwrap();
    left.lines().nth(1).unwrap().to_owned()
}

#[test]
fn a_program_behind_the_gateway_takes_no_place_at_its_socket_and_keeps_no_client_out() {
    // The usual sandbox, none, and one without the sockets of others.
    for sandbox in ["", "mode: off", "mode: preferred, files: listed, read: [READ], network: any"] {
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        let gateway = running(folder.path(), &mut boxed(sandbox));
        let asked = format!("{} 20", socket_name(folder.path()));
        let flood = json!({ "what": "door", "arg": asked });
        let over_http = gateway.client(Era::Modern, ANA);
        let answer = over_http.call("try", &flood).json();
        assert_eq!(answer["result"]["content"][0]["text"], "refused", "{sandbox}: {answer}");
        // What it has started goes on.
        for era in ERAS {
            let mut client = Started::new(started(&file, "/mcp", Some(ANA)), era);
            assert_eq!(client.tools(), ["try"], "{sandbox} {era:?}");
            let answer = client.call("try", &json!({ "what": "threads", "arg": "1" }));
            assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
            assert_eq!(client.end().code, Some(0));
            assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
        }
        if sandbox == "mode: off" {
            gateway.says("stdio client refused");
        }
    }
}

/// The time that a process has spent on a processor, in user mode and in the kernel (`proc_pid_stat(5)`).
fn processor_time(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    // Linux counts 100 of them a second on every architecture that the gateway runs on.
    Duration::from_millis(10 * ticks.sum::<u64>())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what is measured is real time")]
fn a_program_behind_the_gateway_that_connects_again_and_again_costs_little_and_keeps_no_client_out()
{
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    let gateway = running(folder.path(), &mut boxed("mode: off"));
    let over_http = gateway.client(Era::Modern, ANA);
    let attempt = |what: &str, arg: &str| {
        let answer = over_http.call("try", &json!({ "what": what, "arg": arg })).json();
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    };
    let (before, began) = (processor_time(gateway.id()), Instant::now());
    assert_eq!(attempt("flood", &format!("{} 4 4", socket_name(folder.path()))), "begun");
    for era in ERAS {
        let mut client = Started::new(started(&file, "/mcp", Some(ANA)), era);
        assert_eq!(client.tools(), ["try"], "{era:?}");
        assert_eq!(client.end().code, Some(0));
        // It was served by the gateway, and not by its own process.
        assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
    }
    let connected: u64 = attempt("flooded", "").parse().unwrap();
    let (spent, took) = (processor_time(gateway.id()) - before, began.elapsed());
    assert!(connected > 1000, "{connected}");
    assert!(spent < took * 3 / 5, "{spent:?} of a processor in {took:?} for {connected}");
}

/// Processes that have nothing to do with the gateway and hold connections with its socket, until this is dropped.
struct Flood(Child);

impl Flood {
    /// Of processes whose parent has ended and of those whose parent has not, which hold so many connections each.
    fn new(name: &str, [orphans, children, each]: [usize; 3]) -> Self {
        let mut command = Command::new(python().0);
        command.arg(root().join("tests/sdk/boxed.py")).arg("door").arg(name);
        command.args([orphans, children, each].map(|number| number.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let flood = Self(child);
        let (sender, lines) = std::sync::mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        for _ in 0..orphans + children {
            assert_eq!(lines.recv_timeout(e2e::PATIENCE).unwrap(), "holds");
        }
        flood
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn processes_that_hold_the_socket_of_a_gateway_keep_no_client_out() {
    let server = Server::echo(Era::Modern, &["work"]);
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    let _gateway = running(folder.path(), &mut Config::of(&server.url()));
    // One process, one with many children, and many of which none can be told from a client by itself.
    for processes in [[0, 1, 300], [0, 60, 8], [180, 0, 1], [60, 0, 8]] {
        let _flood = Flood::new(&socket_name(folder.path()), processes);
        for era in ERAS {
            let mut client = Started::new(started(&file, "/mcp", Some(ANA)), era);
            assert_eq!(client.tools(), ["work"], "{processes:?} {era:?}");
            let answer = client.call("work", &json!({ "text": "hi" }));
            assert_eq!(answer["result"]["content"][0]["text"], "hi", "{answer}");
            assert_eq!(client.end().code, Some(0));
            // It was served by the gateway, and not by its own process.
            assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
        }
    }
}

/// A listener with the abstract name of a gateway's socket, and what it is told first by each that connects, which it
/// answers with this line.
fn impostor(name: &str, answer: Option<String>) -> Receiver<String> {
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let (sender, heard) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut text = String::new();
            if let Some(answer) = &answer {
                lines.read_line(&mut text).unwrap();
                let nonce = text.trim_end().to_owned();
                writeln!(stream, "{}", answer.replace("NONCE", &nonce)).unwrap();
            }
            // What it says besides, until it gives up.
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            drop(lines.read_to_string(&mut text));
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    heard
}

/// What a gateway that lives leaves beside `gateway.yaml` of this folder, with its lock.
fn left(folder: &Path, name: &str, form: &str) -> fs::File {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut held = options.open(folder.join("gateway.yaml.running")).unwrap();
    held.lock().unwrap();
    write!(held, "{form}\n{name}\nthe-token-of-the-gateway\n").unwrap();
    held
}

/// A name for a socket that nobody else has.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("portcullis-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn whatever_has_taken_the_name_of_a_gateway_that_was_killed_is_not_followed() {
    for era in ERAS {
        let server = Server::echo(era, &["work"]);
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        let mut gateway = running(folder.path(), &mut Config::of(&server.url()));
        gateway.kill();
        let left = fs::read_to_string(folder.path().join("gateway.yaml.running")).unwrap();
        let heard = impostor(left.lines().nth(1).unwrap(), None);
        let mut alone = Started::new(started(&file, "/mcp", Some(ANA)), era);
        assert_eq!(alone.tools(), ["work"], "{era:?}");
        assert_eq!(alone.end().code, Some(0));
        assert!(heard.try_recv().is_err(), "it was connected to");
        assert!(folder.path().join("audit.jsonl.stdio-1").exists());
    }
}

#[test]
fn a_key_is_shown_to_nothing_that_does_not_prove_that_it_is_the_gateway() {
    for era in ERAS {
        for answer in ["served", "NONCE", "NONCE NONCE", "00 00", "00 "] {
            let Routes { folder, .. } = &Routes::new(era);
            let name = name();
            let _held = left(folder.path(), &name, "portcullis-running/2");
            let heard = impostor(&name, Some(answer.to_owned()));
            let file = folder.path().join("gateway.yaml");
            let ended = Started::silent(started(&file, "/files", Some(ANA)), era).ended();
            assert_eq!(ended.code, Some(1), "{answer}: {}", ended.said);
            assert!(ended.said.contains("the API key was not sent"), "{answer}: {}", ended.said);
            let heard = heard.recv_timeout(e2e::PATIENCE).unwrap();
            assert!(!heard.contains(ANA) && !heard.contains("the-token"), "{answer}: {heard}");
            assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
        }
    }
}

#[test]
fn a_client_does_not_go_round_a_gateway_that_lives_and_cannot_be_reached() {
    for era in ERAS {
        for (form, hint) in [
            ("portcullis-running/2", "cannot be reached"),
            ("portcullis-running/3", "another version"),
        ] {
            let Routes { folder, .. } = &Routes::new(era);
            // Nobody listens there.
            let held = left(folder.path(), &name(), form);
            let file = folder.path().join("gateway.yaml");
            let ended = Started::silent(started(&file, "/files", Some(ANA)), era).ended();
            assert_eq!(ended.code, Some(1), "{}", ended.said);
            assert!(ended.said.contains(hint), "{}", ended.said);
            assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
            // When the gateway has ended, the client is served by itself.
            drop(held);
            let mut alone = Started::new(started(&file, "/files", Some(ANA)), era);
            assert_eq!(alone.tools(), ["read_file"], "{era:?}");
            assert_eq!(alone.end().code, Some(0));
        }
    }
}

/// A client that is attached to the gateway of `gateway.yaml` in this folder, and says nothing more.
fn attached(folder: &Path) -> UnixStream {
    let left = fs::read_to_string(folder.join("gateway.yaml.running")).unwrap();
    let (name, token) = (left.lines().nth(1).unwrap(), left.lines().nth(2).unwrap());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut line = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    let proof = |who: &str, nonce: &str| {
        let text = format!("portcullis-running/2\n{who}\n0123\n{nonce}\n");
        hex::encode(hmac::sign(&key, text.as_bytes()).as_ref())
    };
    writeln!(stream, "0123").unwrap();
    let hello = line();
    let (nonce, proved) = hello.split_once(' ').unwrap();
    assert_eq!(proved, proof("gateway", nonce));
    write!(stream, "{}\n/mcp\n{ANA}\n", proof("client", nonce)).unwrap();
    assert_eq!(line(), "served");
    stream
}

#[test]
fn a_client_for_which_the_gateway_has_no_place_is_told_so_and_does_not_go_round_it() {
    let server = Server::echo(Era::Modern, &["work"]);
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    let _gateway = running(folder.path(), &mut Config::of(&server.url()));
    let others: Vec<_> = (0..64).map(|_| attached(folder.path())).collect();
    for era in ERAS {
        let ended = Started::silent(started(&file, "/mcp", Some(ANA)), era).ended();
        assert_eq!(ended.code, Some(1), "{}", ended.said);
        assert!(ended.said.contains("serves 64 other clients"), "{}", ended.said);
        assert!(!folder.path().join("audit.jsonl.stdio-1").exists());
    }
    drop(others);
    // One that does not know the token is not served either.
    let left = fs::read_to_string(folder.path().join("gateway.yaml.running")).unwrap();
    let address = SocketAddr::from_abstract_name(left.lines().nth(1).unwrap()).unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    write!(stream, "0123\n0123\n/mcp\n{ANA}\n").unwrap();
    let mut told = String::new();
    // It may be reset, because not all that was said is read.
    drop(stream.read_to_string(&mut told));
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn a_client_that_is_attached_and_does_not_read_is_cut_off() {
    for era in ERAS {
        let server = long(era, 200_000);
        let folder = Folder::new();
        let mut config = Config::of(&server.url()).limits("writeTimeout: 1s");
        let gateway = running(folder.path(), &mut config);
        let file = folder.path().join("gateway.yaml");
        let mut command = started(&file, "/mcp", Some(ANA));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = command.spawn().unwrap();
        let mut input = client.stdin.take().unwrap();
        if era == Era::Legacy {
            let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
            let asked =
                json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
            writeln!(input, "{asked}").unwrap();
            let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            writeln!(input, "{told}").unwrap();
        }
        for id in 1..=30 {
            let mut params = json!({ "name": "work", "arguments": {} });
            if era == Era::Modern {
                params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {} });
            }
            let asked =
                json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            writeln!(input, "{asked}").unwrap();
        }
        gateway.says("client disconnected: it does not read");
        // What it holds is given back, and another is served.
        let mut other = Started::new(started(&file, "/mcp", Some(ANA)), era);
        assert_eq!(other.tools(), ["work"], "{era:?}");
        assert_eq!(other.end().code, Some(0));
        let ended = client.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{era:?}");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("the running gateway has ended the connection"), "{said}");
        drop(input);
    }
}

#[test]
fn a_gateway_that_stops_ends_the_processes_that_it_serves() {
    let server = Server::echo(Era::Modern, &["work"]);
    let folder = Folder::new();
    let mut gateway = running(folder.path(), &mut Config::of(&server.url()));
    let file = folder.path().join("gateway.yaml");
    let mut client = Started::new(started(&file, "/mcp", Some(ANA)), Era::Modern);
    assert_eq!(client.tools(), ["work"]);
    gateway.terminate();
    let ended = client.ended();
    assert_eq!(ended.code, Some(1));
    assert!(ended.said.contains("the running gateway has ended the connection"), "{}", ended.said);
    eventually("the end of the gateway", || gateway.ended());
    assert!(!folder.path().join("gateway.yaml.running").exists());
}

#[test]
fn a_client_that_is_attached_goes_on_under_a_new_configuration() {
    for era in ERAS {
        let tools = json!([tool("work"), tool("more")]);
        let server = Server::with(era, tools, |call, stream| {
            std::io::Write::write_all(stream, &call.text("done")).is_ok()
        });
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        let rules = |tools: &str| {
            format!(
                "rules: [{{id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: {tools}}}]"
            )
        };
        let mut config = Config::of(&server.url()).policy(&rules("[work]"));
        let _gateway = running(folder.path(), &mut config);
        let mut client = Started::new(started(&file, "/mcp", Some(ANA)), era);
        assert_eq!(client.tools(), ["work"], "{era:?}");
        config.policy(&rules("[work, more]")).write(&file, &folder.path().join("audit.jsonl"));
        eventually("the new list", || (client.tools().len() == 2).then_some(()));
        let answer = client.call("more", &json!({}));
        assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
        assert_eq!(client.end().code, Some(0));
    }
}

#[test]
fn no_program_is_started_for_a_client_whose_key_is_wrong() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    let (mark, script) = (at("mark"), at("server"));
    fs::create_dir_all(&mark).unwrap();
    let text =
        format!("#!/bin/sh\ntouch '{}/started'\necho it broke >&2\nexit 3\n", mark.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let yaml = format!(
        "apiVersion: portcullis.dev/v1
pins: {{mode: off}}
listeners: [{{name: main, address: '127.0.0.1:0', authentication: [apiKey]}}]
identity: {{apiKeys: [{{name: ana, principal: ana, groups: [dev], sha256: {HASH}}}]}}
servers: [{{name: files, command: '{}', sandbox: {{mode: off}}}}]
routes: [{{path: /files, servers: [files]}}]
policy: {{rules: [{{id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*']}}]}}
audit: {{sinks: [{{name: file, file: audit.jsonl}}]}}
",
        script.display()
    );
    fs::write(at("gateway.yaml"), yaml).unwrap();
    let command = started(&at("gateway.yaml"), "/files", Some("pcl_wrong"));
    let ended = Started::silent(command, Era::Legacy).ended();
    assert_eq!(ended.code, Some(1), "{}", ended.said);
    let last = ended.said.trim_end().lines().next_back().unwrap_or_default();
    assert!(last.contains("is not one of `identity.apiKeys`"), "{}", ended.said);
    assert!(!mark.join("started").exists() && !ended.said.contains("it broke"), "{}", ended.said);
    // With the right key the same program is started.
    let _client = Started::silent(started(&at("gateway.yaml"), "/files", Some(ANA)), Era::Legacy);
    eventually("the program is started", || mark.join("started").exists().then_some(()));
}

#[test]
fn a_process_that_cannot_serve_its_client_ends_at_once() {
    for era in ERAS {
        let Routes { folder, .. } = &Routes::new(era);
        let file = folder.path().join("gateway.yaml");
        for (key, hint) in [
            (Some("pcl_wrong"), "`PORTCULLIS_API_KEY` is not one of `identity.apiKeys`"),
            // As it stands in the file of a client before it is filled in.
            (Some(""), "set `PORTCULLIS_API_KEY`"),
            (None, "set `PORTCULLIS_API_KEY`"),
        ] {
            let ended = Started::silent(started(&file, "/files", key), era).ended();
            assert_eq!(ended.code, Some(1), "{}", ended.said);
            assert!(ended.said.contains(hint), "{}", ended.said);
        }
        let good = fs::read_to_string(&file).unwrap();
        fs::write(&file, good.replace("effect: allow", "effect: alow")).unwrap();
        let ended = Started::silent(started(&file, "/files", Some(ANA)), era).ended();
        assert_eq!(ended.code, Some(3));
        assert!(ended.said.contains("alow"), "{}", ended.said);
        fs::remove_file(&file).unwrap();
        let ended = Started::silent(started(&file, "/files", Some(ANA)), era).ended();
        assert_eq!(ended.code, Some(1));
        assert!(ended.said.contains("could not read"), "{}", ended.said);
    }
}

#[test]
fn a_request_that_is_refused_on_the_way_is_answered_by_its_id_and_ends_the_process() {
    for era in ERAS {
        let Routes { folder, .. } = &Routes::new(era);
        let mut client =
            Started::new(started(&folder.path().join("gateway.yaml"), "/files", Some(ANA)), era);
        assert_eq!(client.tools(), ["read_file"]);
        fs::write(folder.path().join("revoked.yaml"), "principals: [ana]\n").unwrap();
        // `ask` waits for the answer with the id of the request.
        let refused = eventually("the refusal", || {
            let answer = client.ask("tools/list", json!({}));
            answer["error"].is_object().then_some(answer)
        });
        assert!(refused["error"]["code"].is_i64(), "{refused}");
        let ended = client.ended();
        assert_eq!(ended.code, Some(1), "{}", ended.said);
        assert!(ended.said.contains("it was revoked"), "{}", ended.said);
    }
}

#[test]
fn relative_paths_in_a_configuration_are_from_its_folder() {
    let folder = Folder::new();
    let path = folder.path();
    fs::create_dir(path.join("bin")).unwrap();
    fs::create_dir(path.join("logs")).unwrap();
    symlink(binary(), path.join("bin/small-server")).unwrap();
    fs::write(path.join("ops-token"), "a-token-of-the-operator").unwrap();
    let yaml = format!(
        "apiVersion: portcullis.dev/v1
pins: {{mode: off}}
listeners: [{{name: main, address: '127.0.0.1:0', authentication: [apiKey]}}]
ops: {{address: '127.0.0.1:0', token: {{fromFile: ops-token}}}}
identity: {{apiKeys: [{{name: ana, principal: ana, groups: [dev], sha256: {HASH}}}]}}
servers:
- {{name: near, command: bin/small-server, args: [canary]}}
- {{name: there, command: ./small-server, args: [canary], workingDirectory: bin}}
routes: [{{path: /near, servers: [near]}}, {{path: /there, servers: [there]}}]
policy: {{rules: [{{id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*']}}]}}
audit: {{sinks: [{{name: file, file: logs/audit.jsonl}}]}}
"
    );
    fs::write(path.join("gateway.yaml"), yaml).unwrap();
    let mut command = Command::new(binary());
    command.args(["run", "-c"]).arg(path.join("gateway.yaml")).current_dir("/");
    let gateway = Gateway::spawn(command, Folder::new(), path.join("logs/audit.jsonl"));
    for era in ERAS {
        for route in ["/near", "/there"] {
            let client = Client::connect(gateway.address, route, era, Some(ANA));
            let answer = client.call("echo", &json!({ "text": "x" })).json();
            assert_eq!(answer["result"]["content"][0]["text"], "x", "{route} {era:?}: {answer}");
        }
    }
    assert_eq!(
        gateway.recorded("a call", |record| record["tool"] == "echo")["outcome"],
        "answered"
    );
}
