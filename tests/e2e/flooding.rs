//! Nobody fills the log, the audit log or the disk by sending much of what is refused or unasked.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use e2e::client::{Answer, Client, get, raw};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway, binary};
use e2e::server::{Server, answer, greeting, tool, with_header};
use e2e::{ERAS, Era, PATIENCE, eventually};
use serde_json::{Value, json};

/// A server over stdio that sends answers nobody has asked for before each answer.
const STRAYS: &str = r#"
import json, sys

def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}))

TOOLS = {"tools": [{"name": "read", "description": "A tool.", "inputSchema": {"type": "object"}}]}
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "strays", "version": "1"},
    },
    "tools/list": TOOLS,
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    for n in range(1000):
        send({"id": 7_000_000_000 + n, "result": {}})
    known = RESULTS.get(message["method"])
    answer = {"result": known} if known else {"error": {"code": -32601, "message": "no such method"}}
    send({"id": message["id"], **answer})
    sys.stdout.flush()
"#;

const CANARY: &str = "canary-7f3a9c21";
/// What a server says with the canary in it is withheld.
const WITHHOLDING: &str = "canaries: [canary-7f3a9c21]\ncontent: [{servers: [up], results: {canaries: block}}]\n\
    rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

#[test]
fn a_server_that_sends_answers_nobody_asked_for_does_not_fill_the_log() {
    for era in ERAS {
        let folder = Folder::new();
        let program = folder.path().join("strays.py");
        fs::write(&program, STRAYS).unwrap();
        let server = format!("- {{name: up, command: python3, args: ['{}']}}", program.display());
        let gateway = Config::with(&server, "[up]").start();
        let ana = gateway.client(era, ANA);
        // Each call brings a thousand. However fast they come: many more are counted than have a line of their own.
        eventually("lines that count many others", || {
            assert_eq!(ana.call("read", &json!({})).status, 200);
            let log = gateway.said();
            let counts = log.lines().filter(|line| line.contains("no request waits"));
            let counts: Vec<_> = counts.map(suppressed_in).collect();
            (counts.iter().sum::<u64>() > 4 * counts.len() as u64).then_some(())
        });
    }
}

/// How many lines a line of the log says were suppressed before it.
#[expect(clippy::disallowed_methods, reason = "our own output")]
fn suppressed_in(line: &str) -> u64 {
    let line: Value = serde_json::from_str(line).unwrap_or_default();
    line["fields"]["suppressed"].as_u64().unwrap_or_default()
}

/// Asks so often without a credential; each is refused.
fn knock(gateway: &Gateway, era: Era, times: usize) {
    let nobody = Client::silent(gateway.address, "/mcp", era, &[]);
    let body = nobody.message(&json!(1), "tools/list", json!({}));
    let bytes = nobody.bytes("tools/list", None, &body);
    for _ in 0..times {
        assert_eq!(raw(gateway.address, &bytes).status, 401);
    }
}

/// How many of these requests have a record each, and how many are counted in records of several.
fn recorded(gateway: &Gateway, reason: &str) -> (usize, u64) {
    let records = gateway.log();
    let of = |event: &str| {
        let event = event.to_owned();
        records.iter().filter(move |r| r["event"] == event && r["reason"] == reason)
    };
    (of("exchange").count(), of("refusals").map(|r| r["count"].as_u64().unwrap()).sum())
}

#[test]
fn who_has_no_credential_costs_few_records_and_each_request_is_counted() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let mut config = Config::of(&server.url());
        config.refusals = "{}".to_owned();
        let mut gateway = config.start();
        knock(&gateway, era, 300);
        // Who is known has a record for each request, also where it is refused.
        let ana = gateway.client(era, ANA);
        for _ in 0..10 {
            assert_eq!(ana.call("read", &json!({})).status, 200);
            assert!(ana.call("none", &json!({})).code() < 0);
        }
        let metrics = gateway.metrics();
        let counted =
            metrics.lines().find(|l| l.starts_with("portcullis_audit_refusals_summarised"));
        assert!(counted.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0));
        let (alone, counted) = recorded(&gateway, "credential-missing");
        assert!((4..=8).contains(&alone), "{alone} have a record each");
        assert_eq!(alone as u64 + counted, 300, "none is lost");
        let of_ana = gateway.exchanges().into_iter().filter(|r| r["principal"] == "ana");
        assert!(of_ana.filter(|r| r["tool"].is_string()).count() == 20);
        let summary = gateway.log().into_iter().find(|r| r["event"] == "refusals").unwrap();
        assert_eq!(
            (&summary["address"], &summary["outcome"], &summary["status"]),
            (&json!("127.0.0.1"), &json!("refused"), &json!(401))
        );
        assert!(summary["since"].as_str().unwrap() <= summary["time"].as_str().unwrap());
        let audit = |arguments: &[&str]| {
            let mut command = Command::new(binary());
            command.arg("audit").args(arguments).arg(gateway.audit()).output().unwrap()
        };
        assert!(audit(&["verify"]).status.success());
        let shown = String::from_utf8(audit(&["query", "--event", "refusals"]).stdout).unwrap();
        let events = audit(&["export", "--event", "refusals"]).stdout;
        assert!(String::from_utf8_lossy(&events).contains("\"count\":"));
        assert_eq!(crate::ledger::misfits(&events), "");
        assert!(shown.contains(" refused ") && shown.contains("from 127.0.0.1"), "{shown}");
    }
}

#[test]
fn who_was_revoked_or_asks_for_no_route_costs_few_records_and_each_request_is_counted() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let folder = Folder::new();
        let revoked = folder.path().join("revoked.yaml");
        fs::write(&revoked, "principals: [ana]\n").unwrap();
        let mut config = Config::of(&server.url());
        config.refusals = "{}".to_owned();
        config.more = format!("revocations: {{file: '{}'}}", revoked.display());
        let mut gateway = config.start();
        let post = |path: &str, key: &str| {
            let mut client = Client::silent(gateway.address, path, era, &[]);
            client.headers.push(("authorization".to_owned(), format!("Bearer {key}")));
            let body = client.message(&json!(1), "tools/list", json!({}));
            raw(gateway.address, &client.bytes("tools/list", None, &body)).status
        };
        for _ in 0..100 {
            assert_eq!(post("/mcp", ANA), 401);
            assert_eq!(post("/nowhere", BOB), 404);
        }
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0));
        for (reason, who) in [("credential-revoked", "ana"), ("unknown-route", "bob")] {
            let (alone, counted) = recorded(&gateway, reason);
            assert!((4..=8).contains(&alone), "{alone} of {reason} have a record each");
            assert_eq!(alone as u64 + counted, 100, "none is lost");
            // The first say who it was.
            let first = gateway.exchanges().into_iter().find(|r| r["reason"] == reason).unwrap();
            assert_eq!(first["principal"], who);
        }
    }
}

#[test]
fn what_unknown_callers_send_leaves_room_for_the_records_of_calls() {
    for (full, spool, times) in [("deny", 64, 150), ("block", 256, 450)] {
        // A collector that takes nothing until it is told to.
        let held: &'static (Mutex<bool>, Condvar) = Box::leak(Box::default());
        let collector = Server::start(move |_, stream| {
            let (takes, told) = held;
            let takes = takes.lock().unwrap();
            drop(told.wait_timeout_while(takes, PATIENCE, |takes| !*takes).unwrap());
            stream.write_all(&answer("200 OK", "text/plain", "ok")).is_ok()
        });
        let server = Server::echo(Era::Modern, &["read"]);
        let mut config = Config::of(&server.url());
        config.refusals = "{individualRecords: 1000000, interval: 100ms}".to_owned();
        config.sinks = format!(
            "{{name: siem, http: {{url: '{}'}}, spool: {spool}KiB, onFull: {full}}}",
            collector.url()
        );
        let gateway = config.start();
        // More than the spool holds; they are refused for what they are, and never because nothing can be recorded.
        knock(&gateway, Era::Modern, times);
        let (alone, _) = recorded(&gateway, "credential-missing");
        assert!(alone < times * 4 / 5, "{full}: {alone} have a record each");
        let ana = gateway.client(Era::Modern, ANA);
        for _ in 0..3 {
            assert_eq!(ana.call("read", &json!({})).status, 200);
        }
        let (takes, told) = held;
        *takes.lock().unwrap() = true;
        told.notify_all();
        // What was counted meanwhile is on record as soon as there is room.
        eventually("all of them to be on record", || {
            let (alone, counted) = recorded(&gateway, "credential-missing");
            (alone as u64 + counted == times as u64).then_some(())
        });
    }
}

const ALL: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// So many denied calls in a minute leave a record each.
const DENIED: usize = 20;

/// Whether the request was refused because its caller has sent too many that are no calls.
fn is_over_rate(answer: &Answer) -> bool {
    answer.json()["error"]["data"]["reason"] == "caller-limit-rate"
}

#[test]
fn a_caller_that_is_denied_again_and_again_costs_few_records_and_each_request_is_counted() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let mut config =
            Config::of(&server.url()).limits(&format!("otherRequestsPerMinutePerCaller: {DENIED}"));
        config.refusals = "{}".to_owned();
        let mut gateway = config.start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        // What is allowed does not count.
        for _ in 0..2 * DENIED {
            assert_eq!(ana.call("read", &json!({})).status, 200);
        }
        let answers: Vec<_> = (0..10 * DENIED).map(|_| ana.call("none", &json!({}))).collect();
        assert!(answers.iter().all(|answer| answer.code() < 0), "each is decided");
        // What is no call is refused now, also what is no message, or asked with a method of its own.
        let refused: Vec<_> = (0..10 * DENIED)
            .map(|_| ana.ask("tools/list", json!({})))
            .filter(is_over_rate)
            .collect();
        assert!(refused.len() > 9 * DENIED, "{}", refused.len());
        assert_eq!(refused[0].status, if era == Era::Modern { 429 } else { 200 });
        let wait: u64 = refused[0].header("retry-after").unwrap().parse().unwrap();
        assert!((1..=3).contains(&wait), "{wait}");
        let mut odd = ana.bytes("tools/list", None, "{}");
        let mut bad = Vec::new();
        for _ in 0..DENIED {
            bad.push(raw(gateway.address, &odd).status);
            odd = String::from_utf8(odd).unwrap().replacen("POST", "PUT", 1).into_bytes();
        }
        assert!(bad.iter().all(|status| *status >= 400), "{bad:?}");
        // What is allowed goes on, and others are served.
        assert!(ana.call("read", &json!({})).json()["result"].is_object());
        assert_eq!(bob.call("read", &json!({})).status, 200);
        assert!(bob.call("none", &json!({})).code() < 0);
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0));
        let (alone, counted) = recorded(&gateway, "caller-limit-rate");
        assert!(alone <= 12 && alone as u64 + counted >= refused.len() as u64, "{alone} {counted}");
        let log = gateway.log();
        let of_ana = |record: &&Value| record["principal"] == "ana";
        let own = log.iter().filter(of_ana).filter(|r| r["tool"] == "none").count();
        assert!((DENIED / 2..2 * DENIED).contains(&own), "{own} denials have a record each");
        let counts = log.iter().filter(of_ana).filter(|r| r["outcome"] == "denied");
        let together: u64 = counts.filter_map(|r| r["count"].as_u64()).sum();
        assert_eq!(own as u64 + together, answers.len() as u64, "none is lost");
        let odd = log.iter().filter(of_ana).filter(|r| r["httpMethod"] == "PUT").count();
        assert!(odd < DENIED / 2, "{odd} have a record each");
        let summary = gateway.log().into_iter().find(|r| r["event"] == "refusals").unwrap();
        assert_eq!((&summary["principal"], &summary["address"]), (&json!("ana"), &Value::Null));
        let mut command = Command::new(binary());
        let events = command.args(["audit", "export", "--event", "refusals"]).arg(gateway.audit());
        assert_eq!(crate::ledger::misfits(&events.output().unwrap().stdout), "");
    }
}

#[test]
fn lists_and_calls_over_their_rate_cost_few_records() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let limits = format!("otherRequestsPerMinutePerCaller: {DENIED}");
        let mut config = Config::of(&server.url()).policy(ALL).limits(&limits);
        config.more = "registry: {tools: [{server: up, tool: read, rate: 1/h}]}".to_owned();
        let gateway = config.start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        // Lists of what is allowed count as well.
        let lists = (0..4 * DENIED).map(|_| bob.ask("tools/list", json!({})));
        let refused = lists.filter(is_over_rate).count();
        assert!(refused > 2 * DENIED, "{refused}");
        for _ in 0..4 * DENIED {
            assert!(ana.call("read", &json!({})).code() == 0);
        }
        let own = gateway.log().iter().filter(|r| r["reason"] == "rate-limited").count();
        assert!(own < 2 * DENIED, "{own} have a record each");
    }
}

#[test]
fn the_messages_of_a_batch_count_one_by_one_against_the_rate_of_their_caller() {
    let server = Server::echo(Era::Legacy, &["read"]);
    let mut config =
        Config::of(&server.url()).limits(&format!("otherRequestsPerMinutePerCaller: {DENIED}"));
    config.refusals = "{}".to_owned();
    let mut gateway = config.start();
    let mut ana = gateway.client(Era::Legacy, ANA);
    ana.handshake("2025-03-26");
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/x" });
    let batch = Value::from(vec![note; 50]).to_string();
    let mut last = String::new();
    for _ in 0..10 {
        last = raw(gateway.address, &ana.bytes("x", None, &batch)).body;
    }
    assert!(last.contains("caller-limit-rate"), "{last}");
    gateway.terminate();
    assert_eq!(gateway.ended(), Some(0));
    let alone = gateway.exchanges().len();
    assert!(alone < 50 + 2 * DENIED, "{alone} have a record each");
}

#[test]
fn the_records_of_one_caller_leave_room_in_a_queue_for_those_of_others() {
    for era in ERAS {
        for full in ["deny", "block"] {
            // A collector that takes nothing until it is told to.
            let held: &'static (Mutex<bool>, Condvar) = Box::leak(Box::default());
            let collector = Server::start(move |_, stream| {
                let (takes, told) = held;
                let takes = takes.lock().unwrap();
                drop(told.wait_timeout_while(takes, PATIENCE, |takes| !*takes).unwrap());
                stream.write_all(&answer("200 OK", "text/plain", "ok")).is_ok()
            });
            let server = Server::echo(era, &["read"]);
            let mut config = Config::of(&server.url()).policy(ALL);
            config.refusals = "{}".to_owned();
            config.sinks = format!(
                "{{name: siem, http: {{url: '{}'}}, spool: 256KiB, onFull: {full}}}",
                collector.url()
            );
            let gateway = config.start();
            let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
            let calls = AtomicUsize::new(0);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let last = scope.spawn(|| {
                    loop {
                        let answer = ana.call("read", &json!({}));
                        if answer.code() != 0 || is_over.load(Ordering::Acquire) {
                            return answer;
                        }
                        calls.fetch_add(1, Ordering::AcqRel);
                    }
                });
                match full {
                    "deny" => {
                        let last = last.join().unwrap();
                        let reason = &last.json()["error"]["data"]["reason"];
                        assert_eq!(reason, "caller-limit-records");
                    }
                    _ => eventually("it to wait", || {
                        let metrics = gateway.metrics_now();
                        let held = metrics
                            .lines()
                            .find_map(|l| l.strip_prefix("portcullis_audit_spool_bytes "))
                            .and_then(|held| held.parse::<u64>().ok());
                        (held? > 120 * 1024).then_some(())
                    }),
                }
                for _ in 0..5 {
                    let answer = bob.call("read", &json!({}));
                    assert!(answer.json()["result"].is_object(), "{era:?} {full} {answer:?}");
                }
                is_over.store(true, Ordering::Release);
                let (takes, told) = held;
                *takes.lock().unwrap() = true;
                told.notify_all();
            });
            assert!(calls.load(Ordering::Acquire) > 10);
            eventually("room for the other", || {
                (ana.call("read", &json!({})).code() == 0).then_some(())
            });
        }
    }
}

/// A gateway whose log is on a volume of one MiB; `None` where a process may not mount one in a namespace of its own.
fn on_a_small_volume(config: &Config) -> Option<Gateway> {
    let namespace = ["--user", "--map-root-user", "--mount"];
    let may = Command::new("unshare").args(namespace).arg("true").status();
    may.is_ok_and(|status| status.success()).then_some(())?;
    let folder = Folder::new();
    let volume = folder.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let (audit, file) = (volume.join("audit.jsonl"), folder.path().join("gateway.yaml"));
    config.write(&file, &audit);
    let mut command = Command::new("unshare");
    let mount = "mount -t tmpfs -o size=1m tmpfs \"$0\" && exec \"$@\"";
    command.args(namespace).args(["sh", "-c", mount]).arg(volume).arg(binary());
    command.args(["run", "-c"]).arg(&file);
    Some(Gateway::spawn(command, folder, audit))
}

#[test]
fn the_records_of_one_caller_leave_room_on_a_volume_for_those_of_others() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let config = Config::of(&server.url())
            .policy(ALL)
            .limits("otherRequestsPerMinutePerCaller: 1000000");
        let Some(gateway) = on_a_small_volume(&config) else {
            eprintln!("not tested: a process may not have a volume of its own here");
            return;
        };
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let refused =
            (0..10_000).map(|_| ana.call("read", &json!({}))).find(|answer| answer.code() != 0);
        let refused = refused.expect("a volume of one MiB has no room for so many records");
        let reason = &refused.json()["error"]["data"]["reason"];
        assert_eq!(*reason, "caller-limit-records", "{era:?} {refused:?}");
        for _ in 0..5 {
            let answer = bob.call("read", &json!({}));
            assert!(answer.json()["result"].is_object(), "{era:?} {answer:?}");
        }
        assert_ne!(ana.call("read", &json!({})).code(), 0);
        gateway.says("audit.volume_low");
    }
}

#[test]
fn lines_of_the_log_about_records_that_are_not_taken_are_few() {
    let folder = Folder::new();
    let pipe = folder.path().join("audit.pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let open = || fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let reader = open();
    let server = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&server.url());
    config.audit = Some(pipe.clone());
    let gateway = config.start();
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.call("read", &json!({})).status, 200);
    drop(reader);
    eventually("the sink to fail", || (ana.call("read", &json!({})).status == 503).then_some(()));
    for _ in 0..300 {
        assert_eq!(ana.call("read", &json!({})).status, 503);
    }
    let log = gateway.says("did not take the record");
    let lines = log.lines().filter(|line| line.contains("did not take the record")).count();
    assert!((1..100).contains(&lines), "{lines} lines");
    let reader = open();
    eventually("it to work again", || (ana.call("read", &json!({})).status == 200).then_some(()));
    drop(gateway);
    drop(reader);
}

/// How many questions the server below asks on the stream of a session.
const QUESTIONS: usize = 100;

/// A legacy server that asks on the stream of a session what it may not, and says the same as often.
fn asking() -> Server {
    let no = answer("400 Bad Request", "text/plain", "no");
    Server::start(move |call, stream| {
        let bytes = match call.method() {
            "initialize" => with_header(
                &call.result(&json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "fake", "version": "1" },
                })),
                "mcp-session-id: s\r\n",
            ),
            "server/discover" => no.clone(),
            "tools/list" => call.result(&json!({ "tools": [] })),
            "" if call.head.starts_with("GET") => {
                let mut text = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                                connection: close\r\n\r\n"
                    .to_owned();
                for n in 0..QUESTIONS {
                    let params = json!({ "message": "your key?", "level": "info", "data": CANARY });
                    let told = json!({ "jsonrpc": "2.0", "method": "notifications/message",
                        "params": params });
                    let asked = json!({ "jsonrpc": "2.0", "id": format!("q-{n}"),
                        "method": "elicitation/create", "params": params });
                    text.push_str(&format!("data: {told}\n\ndata: {asked}\n\n"));
                }
                let mut rest = [0];
                return stream.write_all(text.as_bytes()).is_ok()
                    && stream.read(&mut rest).is_err();
            }
            _ => b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec(),
        };
        stream.write_all(&bytes).is_ok()
    })
}

// Only a legacy session has a stream on which servers ask.
#[test]
fn a_server_that_asks_again_and_again_costs_few_records_and_few_lines_of_the_log() {
    let server = asking();
    let mut config = Config::of(&server.url());
    config.refusals = "{}".to_owned();
    let mut gateway = config.policy(WITHHOLDING).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let stream = ana.stream(None);
    eventually("each question is refused", || {
        let calls = server.calls();
        let told = calls.iter().filter(|call| call.body["error"]["code"] == -31403).count();
        (told == QUESTIONS).then_some(())
    });
    drop(stream);
    gateway.terminate();
    assert_eq!(gateway.ended(), Some(0));
    let (alone, counted) = recorded(&gateway, "server-request-not-configured");
    assert!((4..=8).contains(&alone), "{alone} have a record each");
    assert_eq!(alone as u64 + counted, QUESTIONS as u64, "none is lost");
    let log = gateway.log();
    let summary = log.iter().find(|record| record["event"] == "refusals").unwrap();
    assert_eq!((&summary["server"], &summary["address"]), (&json!("up"), &Value::Null));
    let log = gateway.said();
    for said in ["server request refused by the policy", "notification withheld"] {
        assert!(log.lines().filter(|line| line.contains(said)).count() < 40, "{said}");
    }
    let mut command = Command::new(binary());
    let events = command.args(["audit", "export", "--event", "refusals"]).arg(gateway.audit());
    assert_eq!(crate::ledger::misfits(&events.output().unwrap().stdout), "");
}

/// The head of a stream of events.
const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
/// Clients that call while a server floods: more than there are threads, so that some share its thread.
const BYSTANDERS: usize = 8;
/// How long one call of a bystander may take.
const SOON: Duration = Duration::from_secs(2);

/// Writes a stream of `unit` in writes of about 8 KiB without a pause, until nobody reads it or the test is over.
fn pour(stream: &mut TcpStream, unit: &str, over: &AtomicBool) -> bool {
    let block = unit.repeat(8192 / unit.len());
    let mut open = stream.write_all(STREAM).is_ok();
    while open && !over.load(Ordering::Acquire) {
        open = stream.write_all(block.as_bytes()).is_ok();
    }
    false
}

/// Calls of bystanders go on while `flooded` goes on: each is answered soon.
#[expect(clippy::disallowed_methods, reason = "the bound is one of real time")]
fn bystanders(gateway: &Gateway, era: Era, over: &AtomicBool, flooded: impl FnOnce()) {
    std::thread::scope(|scope| {
        for _ in 0..BYSTANDERS {
            scope.spawn(|| {
                let client = Client::connect(gateway.address, "/calm", era, Some(ANA));
                let mut calls = 0;
                while calls < 5 || !over.load(Ordering::Acquire) {
                    let begun = Instant::now();
                    let answer = client.call("read", &json!({}));
                    assert_eq!(answer.status, 200, "{answer:?}");
                    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
                    calls += 1;
                }
            });
        }
        // The server stops also where this fails, so that the test ends.
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(flooded));
        over.store(true, Ordering::Release);
        if let Err(failed) = failed {
            std::panic::resume_unwind(failed);
        }
    });
}

/// A server that floods and one that does not, on routes of their own.
fn flooding(flood: &Server, calm: &Server) -> Config {
    let servers =
        format!("- {{name: up, url: '{}'}}\n- {{name: calm, url: '{}'}}", flood.url(), calm.url());
    let mut config = Config::with(&servers, "[up]").limits("callTimeout: 3s\ndrainTimeout: 1s");
    config.routes.push_str("\n- {path: /calm, servers: [calm]}");
    config
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the bound is one of real time")]
fn an_answer_that_is_an_endless_stream_ends_in_time_and_delays_nobody() {
    let changed = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
    for era in ERAS {
        for (unit, reasons) in [
            // Messages are read for as long as the whole answer may take.
            (changed, &["upstream-timeout"][..]),
            // What carries no message is not.
            ("data:\n\n", &["upstream-protocol"][..]),
            ("retry: 0\n\n", &["upstream-protocol"][..]),
            (":\n\n", &["upstream-protocol"][..]),
        ] {
            let over = Arc::new(AtomicBool::new(false));
            let stop = Arc::clone(&over);
            let flood = Server::with(era, json!([tool("read")]), move |_, stream| {
                pour(stream, unit, &stop)
            });
            let calm = Server::echo(era, &["read"]);
            let gateway = flooding(&flood, &calm).start();
            let ana = gateway.client(era, ANA);
            bystanders(&gateway, era, &over, || {
                let begun = Instant::now();
                let answer = ana.call("read", &json!({}));
                assert!(begun.elapsed() < Duration::from_secs(8), "{unit:?}: {answer:?}");
                let record = gateway.recorded("the end of the call", |record| {
                    reasons.iter().any(|reason| record["reason"] == *reason)
                });
                assert_eq!(record["server"], "up", "{record}");
                assert_eq!(get(gateway.ops.unwrap(), "/livez").status, 200);
            });
        }
    }
}

#[test]
fn the_stream_of_a_session_that_never_pauses_is_closed_and_delays_nobody() {
    let (over, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (stop, count) = (Arc::clone(&over), Arc::clone(&opened));
    let flood = Server::start(move |request, stream| {
        let bytes = match request.method() {
            "" if request.head.starts_with("GET") => {
                count.fetch_add(1, Ordering::AcqRel);
                return pour(stream, "data:\n\n", &stop);
            }
            "tools/list" => request.result(&json!({ "tools": [tool("read")] })),
            "tools/call" => request.text("done"),
            _ => greeting(request, Era::Legacy),
        };
        stream.write_all(&bytes).is_ok()
    });
    let calm = Server::echo(Era::Legacy, &["read"]);
    let gateway = flooding(&flood, &calm).start();
    let ana = gateway.client(Era::Legacy, ANA);
    assert_eq!(ana.call("read", &json!({})).status, 200);
    // Somebody listens, so the gateway does.
    let _listening = ana.stream(None);
    bystanders(&gateway, Era::Legacy, &over, || {
        // It is opened again, after a pause.
        eventually("a second stream", || (opened.load(Ordering::Acquire) > 1).then_some(()));
        gateway.says("event stream broken");
    });
    assert!(opened.load(Ordering::Acquire) < 20, "the pause between two streams grows");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the bound is one of real time")]
fn a_call_whose_server_pings_without_end_and_closes_is_answered_at_once() {
    let ping = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n";
    for era in ERAS {
        let server = Server::start(move |request, stream| {
            let bytes = match request.method() {
                "tools/list" => request.result(&json!({
                    "resultType": "complete", "tools": [tool("read")], "ttlMs": 0,
                    "cacheScope": "private",
                })),
                "tools/call" => {
                    drop(stream.write_all(STREAM));
                    drop(stream.write_all(ping.repeat(5000).as_bytes()));
                    return false;
                }
                // It never takes a reply.
                "" => return !stream.read(&mut [0; 1]).map_or(true, |read| read == 0),
                _ => greeting(request, era),
            };
            stream.write_all(&bytes).is_ok()
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let begun = Instant::now();
        let answer = ana.call("read", &json!({}));
        assert!(begun.elapsed() < Duration::from_secs(5), "{answer:?}");
        let record = gateway.last();
        assert_eq!(record["reason"], "upstream-protocol", "{record}");
    }
}
