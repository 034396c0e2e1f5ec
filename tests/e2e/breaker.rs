//! A server that keeps failing is left alone (control C16, threat ASI08), and how long sessions with
//! servers lasted.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use e2e::client::{Answer, Client, raw};
use e2e::gateway::{ANA, Config, Folder, Gateway, binary};
use e2e::port::ReservedPort;
use e2e::server::{Server, answer, greeting, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::json;

/// A server whose tool answers, unless it is `down`.
fn moody(era: Era) -> (Server, Arc<AtomicBool>) {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let server = Server::with(era, json!([tool("work")]), move |call, stream| {
        let bytes = match is_down.load(Ordering::SeqCst) {
            true => answer("503 Not Now", "text/plain", "no"),
            false => call.text("done"),
        };
        stream.write_all(&bytes).is_ok()
    });
    (server, down)
}

/// A gateway in front of it and of another server, with this breaker.
fn before(moody: &Server, good: &Server, breaker: &str) -> Gateway {
    let servers = format!(
        "- {{name: moody, url: '{}'{breaker}}}\n- {{name: good, url: '{}'}}",
        moody.url(),
        good.url()
    );
    let mut config = Config::with(&servers, "[moody]");
    config.routes.push_str("\n- {path: /good, servers: [good]}");
    config.start()
}

/// A metric of a server.
fn metric(gateway: &Gateway, name: &str, server: &str) -> Option<String> {
    let text = gateway.metrics();
    let line = format!("{name}{{server=\"{server}\"}} ");
    text.lines().find_map(|known| known.strip_prefix(&line).map(str::to_owned))
}

fn work(client: &Client) -> Answer {
    client.call("work", &json!({}))
}

/// Asks until the circuit has opened.
fn until_open(gateway: &Gateway, server: &str, ask: impl Fn() -> Answer) {
    eventually("the circuit opens", || {
        let _failed = ask();
        let openings = metric(gateway, "portcullis_circuit_breaker_openings_total", server);
        openings.filter(|openings| openings != "0")
    });
}

#[test]
fn a_server_that_keeps_failing_is_left_alone() {
    for era in ERAS {
        for servers in ERAS {
            let (server, _down) = moody(servers);
            let good = Server::echo(servers, &["work"]);
            let gateway = before(&server, &good, ", circuitBreaker: {failures: 3, openFor: 1h}");
            let ana = gateway.client(era, ANA);
            // The gateway reads the list by itself now and then, and that is an answer.
            let failures = (1..=9).take_while(|_| {
                let failed = work(&ana);
                let reason = gateway.last()["reason"].clone();
                assert!(reason == "upstream-status" || reason == "circuit-open", "{}", failed.body);
                reason == "upstream-status"
            });
            let failures = failures.count();
            assert!((3..=6).contains(&failures), "{failures} failures");
            for _ in 0..4 {
                let refused = work(&ana);
                let status = if era == Era::Modern { 503 } else { 200 };
                assert_eq!((refused.status, refused.code()), (status, -32603), "{}", refused.body);
                let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
                assert!(message.contains("keeps failing; try again"), "{message}");
                // Until it is tried again by itself; in both eras.
                let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
                assert!((3000..=3600).contains(&wait), "{wait}");
                assert!(message.ends_with(&format!("in {wait} s")), "{message}");
                let data = &refused.json()["error"]["data"];
                assert_eq!(data, &json!({ "reason": "circuit-open", "retryAfter": wait }));
                let record = gateway.last();
                assert_eq!(
                    (&record["reason"], &record["outcome"]),
                    (&json!("circuit-open"), &json!("failed"))
                );
            }
            assert_eq!(server.tool_calls().len(), failures, "it was not left alone");
            let state = |name: &str, server| metric(&gateway, name, server);
            assert_eq!(state("portcullis_circuit_breaker_open", "moody").as_deref(), Some("1"));
            assert_eq!(
                state("portcullis_circuit_breaker_openings_total", "moody").as_deref(),
                Some("1")
            );
            assert_eq!(state("portcullis_circuit_breaker_open", "good").as_deref(), Some("0"));
            let other = Client::connect(gateway.address, "/good", era, Some(ANA));
            assert!(work(&other).json()["result"].is_object(), "another server is refused as well");
            // Without a breaker everything is tried.
            let gateway = before(&server, &good, "");
            let ana = gateway.client(era, ANA);
            (0..7).for_each(|_| drop(work(&ana)));
            assert_eq!(server.tool_calls().len(), failures + 7);
        }
    }
}

/// Clients of the later revision have no notifications of their own, and servers of it are told of none.
#[test]
fn a_server_that_is_left_alone_is_sent_no_notification() {
    let (server, _down) = moody(Era::Legacy);
    let servers = format!(
        "- {{name: moody, url: '{}', circuitBreaker: {{failures: 3, openFor: 1h}}}}",
        server.url()
    );
    let policy = "rules:\n- {id: all, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], methods: ['com.example/*']}";
    let gateway = Config::with(&servers, "[moody]").policy(policy).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let tell = || {
        let body = json!({ "jsonrpc": "2.0", "method": "com.example/told" }).to_string();
        raw(ana.address, &ana.bytes("com.example/told", None, &body))
    };
    let _told = tell();
    eventually("the server is told", || (server.count("com.example/told") == 1).then_some(()));
    until_open(&gateway, "moody", || work(&ana));
    let _untold = tell();
    let _record = gateway.recorded("a notification that was not sent", |record| {
        record["method"] == "com.example/told" && record["reason"] == "circuit-open"
    });
    assert_eq!(server.count("com.example/told"), 1);
}

#[test]
fn a_server_that_answers_again_is_asked_again() {
    for era in ERAS {
        let (server, down) = moody(era);
        let good = Server::echo(era, &["work"]);
        let gateway = before(&server, &good, ", circuitBreaker: {failures: 2, openFor: 500ms}");
        let ana = gateway.client(era, ANA);
        work(&ana);
        // One answer, and the failures begin to count anew.
        down.store(false, Ordering::SeqCst);
        assert!(work(&ana).json()["result"].is_object());
        down.store(true, Ordering::SeqCst);
        work(&ana);
        assert_eq!(
            metric(&gateway, "portcullis_circuit_breaker_openings_total", "moody").as_deref(),
            Some("0")
        );
        until_open(&gateway, "moody", || work(&ana));
        down.store(false, Ordering::SeqCst);
        eventually("the server is asked again", || {
            let answered = work(&ana);
            let is_answered = answered.json()["result"].is_object();
            assert!(is_answered || gateway.last()["reason"] == "circuit-open", "{}", answered.body);
            is_answered.then_some(())
        });
        assert!((0..10).all(|_| work(&ana).json()["result"].is_object()));
        assert_eq!(
            metric(&gateway, "portcullis_circuit_breaker_open", "moody").as_deref(),
            Some("0")
        );
    }
}

/// A server of which nothing is known before it first answers: it hangs up while it is `down`, and its
/// list has two pages.
fn shy(era: Era) -> (Server, Arc<AtomicBool>) {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let server = Server::start(move |request, stream| {
        if is_down.load(Ordering::SeqCst) {
            return false;
        }
        let first = request.body["params"]["cursor"].is_null();
        let mut list = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "public" });
        list["tools"] = json!([tool(if first { "other" } else { "work" })]);
        if first {
            list["nextCursor"] = json!("2");
        }
        let bytes = match request.method() {
            "tools/call" => request.text("done"),
            "tools/list" => request.result(&list),
            _ => greeting(request, era),
        };
        stream.write_all(&bytes).is_ok()
    });
    (server, down)
}

#[test]
fn what_has_to_be_found_out_anew_does_not_keep_the_circuit_open() {
    // Which era it speaks is found out, a session is opened, two pages are read, and then it is called.
    for era in ERAS {
        for servers in ERAS {
            let (server, down) = shy(servers);
            let servers = format!(
                "- {{name: up, url: '{}', circuitBreaker: {{failures: 2, openFor: 500ms}}}}",
                server.url()
            );
            let gateway = Config::with(&servers, "[up]").start();
            // A legacy client opens its session once the server is there.
            let probe = gateway.client(Era::Modern, ANA);
            until_open(&gateway, "up", || work(&probe));
            down.store(false, Ordering::SeqCst);
            eventually("it is asked again", || {
                work(&probe).json()["result"].is_object().then_some(())
            });
            let ana = gateway.client(era, ANA);
            assert!(work(&ana).json()["result"].is_object());
            assert_eq!(
                metric(&gateway, "portcullis_circuit_breaker_open", "up").as_deref(),
                Some("0")
            );
        }
    }
}

#[test]
fn a_program_that_ends_is_left_alone_and_asked_again() {
    for era in ERAS {
        let folder = Folder::new();
        let flag = folder.path().join("well");
        let script =
            format!("test -e {} || exit 1; exec {} canary", flag.display(), binary().display());
        for sharing in ["shared", "perSession"] {
            let servers = format!(
                "- {{name: up, command: sh, args: [-c, '{script}'], sharing: {sharing}, circuitBreaker: {{failures: 2, openFor: 500ms}}}}"
            );
            let gateway = Config::with(&servers, "[up]").start();
            let ana = gateway.client(Era::Modern, ANA);
            let echo = |client: &Client| client.call("echo", &json!({ "text": "x" }));
            until_open(&gateway, "up", || echo(&ana));
            std::fs::write(&flag, "").unwrap();
            eventually("it is started again", || {
                echo(&ana).json()["result"].is_object().then_some(())
            });
            assert!(echo(&gateway.client(era, ANA)).json()["result"].is_object());
            std::fs::remove_file(&flag).unwrap();
        }
    }
}

#[test]
fn a_program_that_is_silent_to_what_it_does_not_know_has_not_failed() {
    let folder = Folder::new();
    let program = folder.path().join("old.py");
    std::fs::write(
        &program,
        r#"import json, sys
known = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}},
    "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and message.get("method") in known:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": known[message["method"]]}), flush=True)
"#,
    )
    .unwrap();
    let servers = format!(
        "- {{name: up, command: python3, args: ['{}'], circuitBreaker: {{failures: 1, openFor: 1h}}}}",
        program.display()
    );
    let gateway = Config::with(&servers, "[up]").start();
    for era in ERAS {
        let answered = work(&gateway.client(era, ANA));
        assert_eq!(answered.json()["result"]["content"][0]["text"], "done", "{}", answered.body);
    }
    let openings = metric(&gateway, "portcullis_circuit_breaker_openings_total", "up");
    assert_eq!(openings.as_deref(), Some("0"));
}

#[test]
fn who_cannot_be_reached_is_left_alone_too() {
    let free = ReservedPort::new();
    let servers = format!(
        "- {{name: up, url: 'http://{free}/mcp', circuitBreaker: {{failures: 2, openFor: 1h}}}}"
    );
    let gateway = Config::with(&servers, "[up]").start();
    let ana = gateway.client(Era::Modern, ANA);
    until_open(&gateway, "up", || work(&ana));
    work(&ana);
    assert_eq!(gateway.last()["reason"], "circuit-open");
}

/// How many operations of `method` with these labels clients saw end with `error`, by the server.
fn failed(gateway: &Gateway, method: &str, labels: &str, error: &str) -> u64 {
    let text = gateway.metrics();
    let begins = format!(
        "mcp_server_operation_duration_seconds_count{{mcp_method_name=\"{method}\",{labels}portcullis_server=\"dead\","
    );
    let error = format!("error_type=\"{error}\"");
    let lines = text.lines().filter(|line| line.starts_with(&begins) && line.contains(&error));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_server_whose_tools_cannot_be_read_is_named_with_the_failure() {
    let free = ReservedPort::new();
    let policy = "rules:\n- {id: all, effect: allow, principals: ['*'], servers: ['*'], tools: [work, other]}";
    for era in ERAS {
        let good = Server::echo(era, &["work"]);
        let servers = format!(
            "- {{name: dead, url: 'http://{free}/mcp', circuitBreaker: {{failures: 2, openFor: 1h}}}}\n- {{name: good, url: '{}'}}",
            good.url()
        );
        let mut config = Config::with(&servers, "[dead, good]").policy(policy);
        config.routes.push_str("\n- {path: /plain, servers: [good, dead], prefix: never}");
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        let labels = "gen_ai_tool_name=\"work\",gen_ai_operation_name=\"execute_tool\",".to_owned();
        let mut refused = 0;
        eventually("the circuit is open", || {
            let answer = ana.call("dead__work", &json!({}));
            let record = gateway.last();
            let reason = record["reason"].as_str().unwrap();
            assert!(["upstream-connect", "circuit-open"].contains(&reason), "{answer:?} {record}");
            assert_eq!(
                (&record["server"], &record["tool"]),
                (&json!("dead"), &json!("dead__work")),
                "{record}"
            );
            refused += u64::from(reason == "upstream-connect");
            (reason == "circuit-open").then_some(())
        });
        assert_eq!(failed(&gateway, "tools/call", &labels, "upstream-connect"), refused);
        assert_eq!(failed(&gateway, "tools/call", &labels, "circuit-open"), 1);
        // No other server of the route has the name.
        let plain = Client::connect(gateway.address, "/plain", era, Some(ANA));
        assert!(plain.call("other", &json!({})).code() < 0);
        assert_eq!(gateway.last()["server"], "dead");
        assert_eq!(
            failed(&gateway, "tools/call", &labels.replace("work", "other"), "circuit-open"),
            1
        );
        // It is another's.
        assert!(work(&plain).json()["result"].is_object());
        assert_eq!(gateway.last()["server"], "good");
    }
}

#[test]
fn a_server_that_cannot_be_met_is_named_with_the_failure() {
    let free = ReservedPort::new();
    for era in ERAS {
        let good = Server::echo(era, &["work"]);
        let servers = format!(
            "- {{name: dead, url: 'http://{free}/mcp'}}\n- {{name: good, url: '{}'}}",
            good.url()
        );
        let mut config = Config::with(&servers, "[dead, good]").policy(
            "rules:\n- {id: one, effect: allow, principals: ['*'], servers: [dead], tools: ['*']}",
        );
        config.routes.push_str("\n- {path: /alone, servers: [dead]}");
        let gateway = config.start();
        let key = format!("Bearer {ANA}");
        for path in ["/mcp", "/alone"] {
            let ana = Client::silent(gateway.address, path, era, &[("authorization", &key)]);
            let (method, answer) = match era {
                Era::Legacy => ("initialize", ana.hello()),
                Era::Modern => ("server/discover", ana.ask("server/discover", json!({}))),
            };
            assert!(answer.code() < 0, "{answer:?}");
            let record = gateway.last();
            assert_eq!(
                (&record["method"], &record["server"], &record["reason"]),
                (&json!(method), &json!("dead"), &json!("upstream-connect")),
                "{path}: {record}"
            );
            if era == Era::Modern {
                assert!(ana.ask("tools/list", json!({})).code() < 0);
                let record = gateway.last();
                assert_eq!(
                    (&record["server"], &record["reason"]),
                    (&json!("dead"), &json!("upstream-connect")),
                    "{path}: {record}"
                );
            }
        }
        let method = if era == Era::Legacy { "initialize" } else { "server/discover" };
        assert_eq!(failed(&gateway, method, "", "upstream-connect"), 2);
    }
}

#[test]
fn what_a_breaker_cannot_be_is_said_with_its_place() {
    let server = Server::echo(Era::Modern, &["work"]);
    for (breaker, what) in [
        ("{failures: 0}", "0 is less than the minimum of 1"),
        ("{openFor: soon}", "`soon` is not a time"),
        ("{tries: 3}", "tries"),
    ] {
        let servers = format!("- {{name: up, url: '{}', circuitBreaker: {breaker}}}", server.url());
        let refused = Config::with(&servers, "[up]").refused();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn how_long_sessions_with_a_server_lasted_is_measured() {
    let server = Server::echo(Era::Legacy, &["work"]);
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    assert!(work(&ana).json()["result"].is_object());
    let count = |labels: &str| {
        let text = gateway.metrics_now();
        let line = format!("mcp_client_session_duration_seconds_count{{{labels}}} ");
        text.lines().find_map(|known| known.strip_prefix(&line)?.parse::<u32>().ok()).unwrap_or(0)
    };
    let labels = "portcullis_server=\"up\"";
    let before = count(labels);
    let session = ana.session.clone().unwrap();
    let text = format!(
        "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nx-api-key: {ANA}\r\nmcp-session-id: {session}\r\n\r\n"
    );
    assert_eq!(raw(gateway.address, text.as_bytes()).status, 200);
    eventually("the end is counted", || (count(labels) == before + 1).then_some(()));

    // A server that forgets the session that is kept for a modern client.
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&gone);
    let offers = json!({ "tools": [tool("work")] });
    let server = Server::answering(
        Era::Legacy,
        move |_| offers.clone(),
        move |call, stream| {
            let bytes = match is_gone.swap(false, Ordering::SeqCst) {
                true => answer("404 Not Found", "text/plain", "no"),
                false => call.text("done"),
            };
            stream.write_all(&bytes).is_ok()
        },
    );
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Modern, ANA);
    assert!(work(&ana).json()["result"].is_object());
    gone.store(true, Ordering::SeqCst);
    assert!(work(&ana).json()["result"].is_object(), "it is called once more in a new session");
    let text = gateway.metrics();
    let lost = "mcp_client_session_duration_seconds_count{portcullis_server=\"up\",error_type=\"upstream-session\"} 1";
    assert!(text.contains(lost), "{text}");
}
