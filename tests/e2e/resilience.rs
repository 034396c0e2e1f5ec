//! Servers, clients, files and services that fail while the gateway works: what they take with them has a bound, and
//! an operator sees it. `docs/resilience.md` lists these tests, and those of other modules, by fault.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use e2e::client::{Client, get, until};
use e2e::gateway::{ANA, Config, Folder, Gateway, printed};
use e2e::server::{Call, Server, answer, greeting, ok, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn event(stream: &mut TcpStream, message: &Value) -> bool {
    let text = format!("data: {message}\n\n");
    write!(stream, "{:x}\r\n{text}\r\n", text.len()).is_ok()
}

/// Every era of a client with every era of a server.
fn pairs() -> impl Iterator<Item = (Era, Era)> {
    ERAS.into_iter().flat_map(|client| ERAS.map(|server| (client, server)))
}

/// The text that a call has as its argument.
fn text_of(call: &Call) -> &str {
    call.body["params"]["arguments"]["text"].as_str().unwrap_or_default()
}

fn readiness(gateway: &Gateway) -> u16 {
    get(gateway.ops.unwrap(), "/readyz").status
}

/// Waits until a metric has this value.
fn measured(gateway: &Gateway, name: &str, wanted: u64) {
    eventually(name, || (gateway.metric_now(name) == wanted).then_some(()));
}

/// The ids of all records of one kind.
fn ids(gateway: &Gateway, event: &str) -> BTreeSet<String> {
    let records = gateway.records().into_iter().filter(|record| record["event"] == event);
    records.map(|record| record["id"].as_str().unwrap().to_owned()).collect()
}

/// The server `up` on `/mcp`, and another one on `/good`.
fn beside(up: &str, good: &Server) -> Config {
    let servers = format!("- {{name: up, url: '{up}'}}\n- {{name: good, url: '{}'}}", good.url());
    let mut config = Config::with(&servers, "[up]");
    config.routes.push_str("\n- {path: /good, servers: [good]}");
    config
}

/// A server that answers every call, and the connections to it, so that the test can close them.
fn keeping(era: Era) -> (Server, Arc<Mutex<Vec<TcpStream>>>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    let server = Server::start(move |call, stream| {
        keeps.lock().unwrap().push(stream.try_clone().unwrap());
        let bytes = match call.method() {
            "tools/call" => call.text("done"),
            "tools/list" => call.result(&json!({
                "resultType": "complete", "tools": [tool("work")], "ttlMs": 0, "cacheScope": "public"
            })),
            _ => greeting(call, era),
        };
        stream.write_all(&bytes).is_ok()
    });
    (server, kept)
}

#[test]
fn a_connection_that_a_server_has_closed_meanwhile_is_not_used_for_a_call() {
    for (era, upstream) in pairs() {
        let (server, kept) = keeping(upstream);
        let gateway = Config::of(&server.url()).start();
        gateway.has_read(1);
        let ana = gateway.client(era, ANA);
        for _ in 0..10 {
            assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?} to {upstream:?}");
            // As a server does that ends between two calls.
            for stream in kept.lock().unwrap().drain(..) {
                drop(stream.shutdown(Shutdown::Both));
            }
        }
        assert_eq!(server.tool_calls().len(), 10, "{era:?} to {upstream:?}: each is sent once");
    }
}

#[test]
fn an_answer_that_comes_too_late_is_given_to_no_later_call() {
    for (era, upstream) in pairs() {
        let (go, wait) = channel();
        let (written, late) = channel();
        let (wait, written) = (Mutex::new(wait), Mutex::new(written));
        let server = Server::with(upstream, json!([tool("work")]), move |call, stream| {
            if text_of(call) == "late" {
                let () = wait.lock().unwrap().recv().unwrap();
                // Nobody may be there any more to read it.
                drop(stream.write_all(&call.text("late")));
                written.lock().unwrap().send(()).unwrap();
                return true;
            }
            stream.write_all(&call.text(text_of(call))).is_ok()
        });
        let gateway = Config::of(&server.url()).limits("responseTimeout: 1s").start();
        let ana = gateway.client(era, ANA);
        let say = |text: &str| ana.call("work", &json!({ "text": text }));
        assert_eq!(say("before").text(), "before");
        assert_eq!(say("late").code(), -32603, "{era:?} to {upstream:?}");
        assert_eq!(gateway.last()["reason"], "upstream-timeout");
        go.send(()).unwrap();
        late.recv_timeout(e2e::PATIENCE).unwrap();
        for text in ["one", "two", "three"] {
            assert_eq!(say(text).text(), text, "{era:?} to {upstream:?}");
        }
    }
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_stream_fails_that_call_with_an_error() {
    for (era, upstream) in pairs() {
        let (die, wait) = channel();
        let wait = Mutex::new(wait);
        let tools = json!([tool("work"), tool("other")]);
        let server = Server::with(upstream, tools, move |call, stream| {
            if call.tool() == "other" {
                return stream.write_all(&call.text("done")).is_ok();
            }
            let token = &call.body["params"]["_meta"]["progressToken"];
            let params = json!({ "progressToken": token, "progress": 1 });
            let method = "notifications/progress";
            let said = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            assert!(stream.write_all(HEAD).is_ok() && event(stream, &said));
            let () = wait.lock().unwrap().recv().unwrap();
            false
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let params = json!({ "name": "work", "_meta": { "progressToken": "mine" } });
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        stream.write_all(&ana.call_bytes(&json!(41), &params)).unwrap();
        until(&mut stream, "\"progress\":1");
        die.send(()).unwrap();
        let rest = until(&mut stream, "\r\n0\r\n");
        assert!(rest.contains("\"id\":41") && rest.contains("-32603"), "{era:?}: {rest}");
        let record = gateway.recorded("the call", |record| record["method"] == "tools/call");
        assert_eq!(
            (&record["outcome"], &record["reason"]),
            (&json!("failed"), &json!("upstream-reset")),
            "{era:?} to {upstream:?}"
        );
        assert_eq!(readiness(&gateway), 200);
        assert_eq!(ana.call("other", &json!({})).text(), "done", "{era:?} to {upstream:?}");
    }
}

#[test]
fn an_answer_is_given_though_its_stream_does_not_end() {
    for (era, upstream) in pairs() {
        let server = Server::with(upstream, json!([tool("work")]), |call, stream| {
            let content = json!([{ "type": "text", "text": "done" }]);
            let result = json!({ "resultType": "complete", "content": content });
            let said = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result });
            // Neither the body nor the connection comes to an end.
            stream.write_all(HEAD).is_ok() && event(stream, &said)
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        for _ in 0..3 {
            assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?} to {upstream:?}");
        }
    }
}

#[test]
fn a_server_that_takes_connections_and_answers_none_fails_its_callers_in_time() {
    for era in ERAS {
        // The kernel completes the connections, and nobody reads from them.
        let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = Server::echo(era, &["work"]);
        let url = format!("http://{}/mcp", frozen.local_addr().unwrap());
        let gateway = beside(&url, &good).limits("responseTimeout: 1s").start();
        let key = format!("Bearer {ANA}");
        let ana = Client::silent(gateway.address, "/mcp", era, &[("authorization", &key)]);
        let failed = match era {
            Era::Legacy => ana.hello(),
            Era::Modern => ana.call("work", &json!({})),
        };
        assert_eq!(failed.code(), -32603, "{failed:?}");
        let record = gateway.last();
        assert_eq!(
            (&record["server"], &record["reason"]),
            (&json!("up"), &json!("upstream-timeout")),
            "{era:?}"
        );
        let ready = get(gateway.ops.unwrap(), "/readyz?verbose");
        assert!(ready.status == 200 && ready.body.contains("server up: not reached"), "{ready:?}");
        gateway.measures("portcullis_upstream_up{server=\"up\"} 0");
        let other = Client::connect(gateway.address, "/good", era, Some(ANA));
        assert_eq!(other.call("work", &json!({})).text(), "done");
    }
}

/// Fails in five ways, one after the other, and then answers.
fn flap(count: &AtomicUsize, call: &Call, stream: &mut TcpStream) -> bool {
    let bytes = match count.fetch_add(1, Ordering::Relaxed) % 6 {
        0 => return false,
        1 => answer("503 Not Now", "text/plain", "no"),
        2 => {
            let half = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"js";
            drop(stream.write_all(half.as_bytes()));
            return false;
        }
        3 => ok("{oops"),
        4 => {
            drop(stream.write_all(HEAD));
            return false;
        }
        _ => call.text(text_of(call)),
    };
    stream.write_all(&bytes).is_ok()
}

#[test]
fn a_server_that_flaps_under_load_gives_nobody_the_answer_of_another() {
    const CLIENTS: usize = 6;
    const CALLS: usize = 12;
    for (era, upstream) in pairs() {
        let count = AtomicUsize::new(0);
        let server = Server::with(upstream, json!([tool("work")]), move |call, stream| {
            flap(&count, call, stream)
        });
        let good = Server::echo(upstream, &["work"]);
        let gateway = beside(&server.url(), &good).start();
        let answered = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..CLIENTS {
                let (gateway, answered) = (&gateway, &answered);
                scope.spawn(move || {
                    let ana = gateway.client(era, ANA);
                    let other = Client::connect(gateway.address, "/good", era, Some(ANA));
                    for round in 0..CALLS {
                        let mine = format!("client {n} round {round}");
                        let arguments = json!({ "text": mine });
                        let answer = ana.call("work", &arguments);
                        if answer.code() == 0 {
                            assert_eq!(answer.text(), mine, "{era:?} to {upstream:?}");
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        assert_eq!(other.call("work", &arguments).text(), mine);
                    }
                });
            }
        });
        assert_eq!(server.tool_calls().len(), CLIENTS * CALLS, "each is sent once");
        assert!(answered.into_inner() > 0, "{era:?} to {upstream:?}");
        gateway.measures("portcullis_in_flight 0");
        assert!(ids(&gateway, "intent").is_subset(&ids(&gateway, "exchange")));
        assert_eq!(readiness(&gateway), 200);
    }
}

#[test]
fn a_program_that_closes_its_output_is_ended_and_another_is_started() {
    let folder = Folder::new();
    let program = folder.path().join("closing.py");
    fs::write(
        &program,
        r#"import json, os, sys, time
known = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}},
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ["work", "close"]]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("params", {}).get("name") == "close":
        os.close(1)
        time.sleep(600)
    if "id" in message:
        found = known.get(message.get("method"))
        answer = {"result": found} if found else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"#,
    )
    .unwrap();
    let servers = format!("- {{name: up, command: python3, args: ['{}']}}", program.display());
    for era in ERAS {
        let gateway = Config::with(&servers, "[up]").start();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?}");
        let first = gateway.children();
        assert_eq!(ana.call("close", &json!({})).code(), -32603, "{era:?}");
        assert_eq!(gateway.last()["reason"], "upstream-process", "{era:?}");
        gateway.says("program.output_closed");
        eventually("another program", || (ana.call("work", &json!({})).code() == 0).then_some(()));
        eventually("the end of the first program", || {
            let children = gateway.children();
            (!first.iter().any(|pid| children.contains(pid))).then_some(())
        });
        assert_eq!(readiness(&gateway), 200);
    }
}

#[test]
fn a_program_that_hangs_and_reads_nothing_is_ended_and_another_is_started() {
    let folder = Folder::new();
    let program = folder.path().join("hanging.py");
    fs::write(
        &program,
        r#"import json, sys, time
known = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}},
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ["work", "hang"]]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("params", {}).get("name") == "hang":
        time.sleep(600)
    if "id" in message:
        found = known.get(message.get("method"))
        answer = {"result": found} if found else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"#,
    )
    .unwrap();
    let servers = format!("- {{name: up, command: python3, args: ['{}']}}", program.display());
    for era in ERAS {
        let gateway = Config::with(&servers, "[up]").limits("responseTimeout: 1s").start();
        gateway.has_read(1);
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?}");
        let first = gateway.children();
        assert_eq!(ana.call("hang", &json!({})).code(), -32603, "{era:?}");
        assert_eq!(gateway.last()["reason"], "upstream-timeout", "{era:?}");
        // Further calls, which have room in the pipe to it, show that it hangs.
        eventually("another program", || (ana.call("work", &json!({})).code() == 0).then_some(()));
        gateway.says("calls timed out one after the other, and the server sent nothing");
        measured(&gateway, "portcullis_upstream_channels_stalled_total{server=\"up\"}", 1);
        eventually("the end of the first program", || {
            let children = gateway.children();
            (!first.iter().any(|pid| children.contains(pid))).then_some(())
        });
        assert_eq!(readiness(&gateway), 200, "{era:?}");
    }
}

#[test]
fn a_client_that_goes_in_the_middle_of_its_request_takes_no_place() {
    for era in ERAS {
        let server = Server::echo(era, &["work"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let bytes = ana.call_bytes(&json!(1), &json!({ "name": "work", "arguments": {} }));
        // In the middle of a head nobody knows yet who sends it; in the middle of a body it is known.
        for (length, is_recorded) in [(40, false), (bytes.len() - 5, true)] {
            let before = gateway.exchanges().len();
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.write_all(bytes.split_at(length).0).unwrap();
            drop(stream);
            if is_recorded {
                let broken = |record: &Value| record["reason"] == "body-broken";
                let record = gateway.recorded("the broken request", broken);
                let who = (&record["principal"], &record["status"]);
                assert_eq!(who, (&json!("ana"), &json!(400)), "{era:?}");
            }
            gateway.measures("portcullis_connections 0");
            gateway.measures("portcullis_in_flight 0");
            let after = before + usize::from(is_recorded);
            assert_eq!(gateway.exchanges().len(), after, "{era:?} {length}");
        }
        assert!(server.tool_calls().is_empty(), "{era:?}");
        assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?}");
    }
}

#[test]
fn a_client_that_goes_in_the_middle_of_an_answer_takes_no_place() {
    for era in ERAS {
        let long = "word ".repeat(80_000);
        let length = long.len();
        let server = Server::with(era, json!([tool("work")]), move |call, stream| {
            stream.write_all(&call.text(&long)).is_ok()
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        stream.write_all(&ana.call_bytes(&json!(1), &json!({ "name": "work" }))).unwrap();
        assert!(stream.read(&mut [0; 100]).unwrap() > 0, "the answer has begun");
        drop(stream);
        let record = gateway.recorded("the call", |record| record["method"] == "tools/call");
        let outcome = record["outcome"].as_str().unwrap();
        assert!(["answered", "cancelled"].contains(&outcome), "{era:?}: {record}");
        gateway.measures("portcullis_connections 0");
        gateway.measures("portcullis_in_flight 0");
        gateway.measures("portcullis_response_memory_bytes 0");
        assert_eq!(ana.call("work", &json!({})).text().len(), length, "{era:?}");
    }
}

#[test]
fn a_log_whose_reader_stalls_stops_calls_until_it_reads_again() {
    for era in ERAS {
        let folder = Folder::new();
        let pipe = folder.path().join("audit.pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Opened for both so that neither end waits for the other.
        let mut reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let server = Server::echo(era, &["work"]);
        let mut config = Config::of(&server.url());
        config.audit = Some(pipe);
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        let refused = eventually("a pipe that is full", || {
            let answer = ana.call("work", &json!({}));
            (answer.code() != 0).then_some(answer)
        });
        assert!(refused.body.contains("audit log unavailable"), "{era:?}: {refused:?}");
        let before = server.tool_calls().len();
        assert_eq!(ana.call("work", &json!({})).code(), -32603, "{era:?}");
        assert_eq!((server.tool_calls().len(), readiness(&gateway)), (before, 503), "{era:?}");
        gateway.says("audit.write_failed");
        let mut all = vec![0; 1 << 20];
        assert!(reader.read(&mut all).unwrap() > 0);
        eventually("calls", || (ana.call("work", &json!({})).code() == 0).then_some(()));
        assert_eq!(readiness(&gateway), 200, "{era:?}");
        drop(gateway);
        drop(reader);
    }
}

#[test]
fn a_lockfile_that_is_gone_or_damaged_withholds_everything_until_it_is_back() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["work"]), Folder::new());
        let lock = folder.path().join("portcullis.lock");
        let gateway = Config::of(&server.url()).approved(&lock).start();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["work"]);
        let good = fs::read_to_string(&lock).unwrap();
        let half = good.split_at(good.len() / 2).0;
        for damaged in [None, Some(half)] {
            match damaged {
                Some(text) => fs::write(&lock, text).unwrap(),
                None => fs::remove_file(&lock).unwrap(),
            }
            measured(&gateway, "portcullis_lockfile_usable", 0);
            eventually("an empty list", || ana.tools().is_empty().then_some(()));
            let before = server.tool_calls().len();
            assert_eq!(ana.call("work", &json!({})).code(), -32602, "{era:?} {damaged:?}");
            assert_eq!(gateway.last()["reason"], "not-approved", "{era:?} {damaged:?}");
            assert_eq!(server.tool_calls().len(), before, "{era:?} {damaged:?}");
            assert_eq!(readiness(&gateway), 200, "{era:?} {damaged:?}");
            fs::write(&lock, &good).unwrap();
            measured(&gateway, "portcullis_lockfile_usable", 1);
            eventually("the tool", || (ana.tools() == ["work"]).then_some(()));
            assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?} {damaged:?}");
        }
    }
}

#[test]
fn a_configuration_file_that_is_gone_changes_nothing_until_it_is_back() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["work"]), Folder::new());
        let file = folder.path().join("gateway.yaml");
        let gateway = Config::of(&server.url()).start_at(&file);
        let ana = gateway.client(era, ANA);
        let good = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        measured(&gateway, "portcullis_config_usable", 0);
        gateway.says("config.unreadable");
        assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?}");
        assert_eq!(readiness(&gateway), 200, "{era:?}");
        fs::write(&file, good).unwrap();
        measured(&gateway, "portcullis_config_usable", 1);
        gateway.says("config.readable");
        assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?}");
    }
}

#[test]
fn a_file_of_approvals_that_is_damaged_ends_the_start() {
    let (server, folder) = (Server::echo(Era::Modern, &["work"]), Folder::new());
    let file = folder.path().join("approvals");
    let mut config = Config::of(&server.url());
    config.more = format!("approvals: {{file: '{}'}}", file.display());
    drop(config.start());
    let good = fs::read(&file).unwrap();
    for damaged in [vec![7; good.len()], good.split_at(good.len() / 2).0.to_vec()] {
        fs::write(&file, damaged).unwrap();
        let output = config.refused();
        assert_eq!(output.status.code(), Some(1));
        let said = printed(&output);
        assert!(said.contains("error: the file of approvals `"), "{said}");
    }
    fs::write(&file, good).unwrap();
    drop(config.start());
}

#[test]
fn a_guardrail_that_never_answers_decides_as_the_route_says() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    for era in ERAS {
        for (on_failure, is_made) in [("deny", false), ("allow", true)] {
            let server = Server::echo(era, &["work"]);
            let mut config = Config::of(&server.url());
            config.routes = format!(
                "- {{path: /mcp, servers: [up], guardrails: [{{name: guard, url: '{url}', onFailure: {on_failure}, timeout: 300ms}}]}}"
            );
            let gateway = config.start();
            if is_made {
                let ana = gateway.client(era, ANA);
                assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?}");
            } else {
                // What a legacy client says of itself is put to the guardrail first.
                let key = format!("Bearer {ANA}");
                let ana = Client::silent(gateway.address, "/mcp", era, &[("authorization", &key)]);
                let refused = match era {
                    Era::Legacy => ana.hello(),
                    Era::Modern => ana.call("work", &json!({})),
                };
                let refused = refused.json();
                let is_refused =
                    refused["error"].is_object() || refused["result"]["isError"] == true;
                assert!(is_refused, "{era:?}: {refused}");
                assert_eq!(gateway.last()["reason"], "content", "{era:?}");
            }
            let found = gateway.last()["found"].to_string();
            assert!(found.contains("gave no answer"), "{era:?} {on_failure}: {found}");
            gateway.says("guardrail.failed");
            assert_eq!(server.tool_calls().len(), usize::from(is_made), "{era:?} {on_failure}");
            assert_eq!(readiness(&gateway), 200);
        }
    }
}

#[test]
fn a_collector_that_never_answers_fails_no_call_and_does_not_keep_the_gateway() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for era in ERAS {
        let server = Server::echo(era, &["work"]);
        let mut config = Config::of(&server.url());
        config.more = format!("telemetry: {{otlp: {{url: '{url}', interval: 100ms}}}}");
        let mut gateway = config.start();
        let ana = gateway.client(era, ANA);
        for _ in 0..5 {
            assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?}");
        }
        assert_eq!(readiness(&gateway), 200, "{era:?}");
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0), "{era:?}");
        gateway.says("telemetry.flush_failed");
        assert_eq!(gateway.records().last().unwrap()["event"], "stop", "{era:?}");
    }
}

#[test]
fn a_gateway_that_is_told_to_stop_under_load_answers_every_call_that_reached_a_server() {
    for era in ERAS {
        let server = Server::echo(era, &["work"]);
        let mut gateway = Config::of(&server.url()).start();
        let clients: Vec<_> = (0..8).map(|_| gateway.client(era, ANA)).collect();
        let (answered, next) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0));
        thread::scope(|scope| {
            for client in &clients {
                let (answered, next) = (&answered, &next);
                scope.spawn(move || {
                    loop {
                        let text = format!("call {}", next.fetch_add(1, Ordering::Relaxed));
                        let arguments = json!({ "text": text });
                        // Until there is nobody to connect to.
                        let called = catch_unwind(AssertUnwindSafe(|| {
                            client.call("work", &arguments).text() == text
                        }));
                        if !called.unwrap_or(false) {
                            return;
                        }
                        answered.lock().unwrap().insert(text);
                    }
                });
            }
            eventually("some calls", || (answered.lock().unwrap().len() > 50).then_some(()));
            gateway.terminate();
        });
        assert_eq!(gateway.ended(), Some(0), "{era:?}");
        let arrived: BTreeSet<String> =
            server.tool_calls().iter().map(|call| text_of(call).to_owned()).collect();
        assert_eq!(answered.into_inner().unwrap(), arrived, "{era:?}");
        assert_eq!(ids(&gateway, "intent").len(), arrived.len(), "{era:?}");
        assert!(ids(&gateway, "intent").is_subset(&ids(&gateway, "exchange")), "{era:?}");
        assert_eq!(gateway.records().last().unwrap()["event"], "stop", "{era:?}");
    }
}

#[test]
fn a_call_that_is_cut_off_when_the_gateway_stops_is_on_record() {
    for era in ERAS {
        // It never answers.
        let server = Server::with(era, json!([tool("slow")]), |_, stream| {
            drop(stream.read(&mut [0; 64]));
            false
        });
        let mut gateway = Config::of(&server.url()).limits("drainTimeout: 1s").start();
        let ana = gateway.client(era, ANA);
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let params = json!({ "name": "slow", "arguments": {} });
        stream.write_all(&ana.call_bytes(&json!(1), &params)).unwrap();
        eventually("the call to arrive", || (!server.tool_calls().is_empty()).then_some(()));
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0), "{era:?}");
        gateway.says("listener.drain_timeout");
        assert_eq!(ids(&gateway, "intent").len(), 1, "{era:?}");
        assert!(ids(&gateway, "intent").is_subset(&ids(&gateway, "exchange")), "{era:?}");
        assert_eq!(gateway.records().last().unwrap()["event"], "stop", "{era:?}");
    }
}
