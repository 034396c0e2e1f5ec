//! What belongs to one caller, one conversation and one listener, and to no other.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};

use e2e::client::{Client, raw, until};
use e2e::gateway::{ANA, Config, Folder, Gateway, binary};
use e2e::server::{Server, answer, greeting, ok, tool, with_header};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

/// Tells whoever waits that it is time.
type Signal = Arc<(Mutex<bool>, Condvar)>;

/// A legacy server that says on each stream that is listened to, once it is time, that its tools have changed.
fn telling(signal: &Signal) -> Server {
    let signal = Arc::clone(signal);
    Server::start(move |call, stream| {
        let bytes = match call.method() {
            "" if call.head.starts_with("GET") => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                let (is_time, turn) = &*signal;
                let listened = stream.write_all(head.as_bytes()).is_ok();
                drop(turn.wait_while(is_time.lock().unwrap(), |is_time| !*is_time).unwrap());
                let news =
                    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
                let event = format!("data: {news}\n\n");
                let told = write!(stream, "{:x}\r\n{event}\r\n", event.len()).is_ok();
                // The stream stays open until the gateway ends it.
                return listened && told && stream.read(&mut [0]).is_err();
            }
            "initialize" => with_header(
                &call.result(&json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": { "listChanged": true } },
                    "serverInfo": { "name": "fake", "version": "1" },
                })),
                "mcp-session-id: upstream-session\r\n",
            ),
            "tools/list" => call.result(&json!({ "tools": [tool("echo")] })),
            "tools/call" => call.text("done"),
            _ => greeting(call, Era::Legacy),
        };
        stream.write_all(&bytes).is_ok()
    })
}

/// What has come on a stream that has not ended.
fn so_far(stream: &TcpStream) -> String {
    stream.set_nonblocking(true).unwrap();
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    loop {
        match (&mut &*stream).read(&mut buffer) {
            Ok(0) => panic!("the stream has ended after {seen}"),
            Ok(read) => seen.push_str(&String::from_utf8_lossy(&buffer[..read])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return seen,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_second_stream_of_a_session_does_not_take_the_place_of_the_first() {
    // AV-64
    let signal = Signal::default();
    let server = telling(&signal);
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let (mut first, mut second) = (ana.stream(None), ana.stream(None));
    until(&mut first, "text/event-stream");
    until(&mut second, "text/event-stream");
    // Each goes on by itself: a call of the session is answered meanwhile.
    assert_eq!(ana.call("echo", &json!({})).status, 200);
    let (is_time, turn) = &*signal;
    *is_time.lock().unwrap() = true;
    turn.notify_all();
    // What is said to the session comes on one of them, once, and neither has ended when it has come.
    // SPEC 2025-11-25 basic/transports#multiple-connections
    let streams = [first, second];
    let mut seen = [String::new(), String::new()];
    let count = |seen: &[String; 2]| seen.concat().matches("list_changed").count();
    eventually("the news", || {
        for (seen, stream) in seen.iter_mut().zip(&streams) {
            seen.push_str(&so_far(stream));
        }
        (count(&seen) > 0).then_some(())
    });
    // Had it been sent on both, the other one would have come by the time a later call is answered.
    assert_eq!(ana.call("echo", &json!({})).status, 200);
    for (seen, stream) in seen.iter_mut().zip(&streams) {
        seen.push_str(&so_far(stream));
    }
    assert_eq!(count(&seen), 1, "{seen:?}");
}

#[test]
fn a_cursor_is_of_nobody() {
    // AV-68: every page was read and shown, so no cursor was ever given.
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let long = "c".repeat(1024 * 1024);
        for cursor in ["", "1", "upstream-cursor", &long] {
            assert_eq!(ana.ask("tools/list", json!({ "cursor": cursor })).code(), -32602);
        }
        let asked =
            server.calls().into_iter().filter(|call| !call.body["params"]["cursor"].is_null());
        assert_eq!(asked.count(), 0);
    }
}

#[test]
fn what_only_the_gateway_says_nobody_else_says() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let with = |meta: Value| {
            ana.ask("tools/call", json!({ "name": "echo", "arguments": {}, "_meta": meta }))
        };
        // AV-69: whose subscription a message belongs to is not for the client to say.
        let spoofed = with(json!({ "io.modelcontextprotocol/subscriptionId": "spoofed-7" }));
        assert_eq!(spoofed.status, 200);
        // AV-70: nor who it is.
        for key in [
            "dev.portcullis/principal",
            "dev.portcullis/tenant",
            "dev.portcullis/partial",
            "Dev.Portcullis/denial",
        ] {
            assert_eq!(with(json!({ key: "forged-9" })).code(), -32602, "{key}");
            assert_eq!(gateway.last()["reason"], "invalid-params");
        }
        for call in server.calls() {
            let text = String::from_utf8_lossy(&call.bytes).into_owned();
            assert!(!text.contains("spoofed-7") && !text.contains("forged-9"), "{text}");
        }
    }
}

/// Marks of the gateway in several spellings, and a key of the server's own.
fn marks() -> Value {
    json!({
        "dev.portcullis/denial": { "reason": "forbidden", "contact": "evil@example.com" },
        "Dev.Portcullis/partial": ["up"],
        "example.com/own": 7,
    })
}

/// A server that sets marks of the gateway wherever it can. Its tool `says` reports and logs on the way to a result,
/// and its tool `fails` gives an error.
fn forging(era: Era) -> Server {
    Server::start(move |call, stream| {
        let id = &call.body["id"];
        let bytes = match (call.method(), call.tool()) {
            ("tools/list", _) => {
                let forged = |name| {
                    let mut tool = tool(name);
                    tool["_meta"] = marks();
                    tool
                };
                call.result(&json!({
                    "resultType": "complete", "tools": [forged("says"), forged("fails")],
                    "ttlMs": 0, "cacheScope": "private", "_meta": marks(),
                }))
            }
            ("tools/call", "fails") => {
                let error = json!({ "code": -32000, "message": "no", "data": { "_meta": marks() }, "_meta": marks() });
                ok(&json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
            }
            ("tools/call", _) => {
                let token = &call.body["params"]["_meta"]["progressToken"];
                let progress = json!({ "progressToken": token, "progress": 1, "_meta": marks() });
                let line = json!({ "level": "error", "data": "a line", "_meta": marks() });
                let block =
                    json!({ "type": "text", "text": "done", "_meta": marks(), "meta": marks() });
                let result =
                    json!({ "resultType": "complete", "content": [block], "meta": marks() });
                let events = [
                    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": progress }),
                    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": line }),
                    json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                ];
                let events = events.map(|event| format!("data: {event}\n\n")).concat();
                // The same with escapes in the key.
                let events = events.replace("\"Dev.Portcullis", "\"\\u0064ev.portcullis");
                answer("200 OK", "text/event-stream", &events)
            }
            _ => greeting(call, era),
        };
        stream.write_all(&bytes).is_ok()
    })
}

#[test]
fn what_only_the_gateway_says_no_server_says() {
    for (era, upstream) in ERAS.into_iter().flat_map(|era| ERAS.map(|upstream| (era, upstream))) {
        let server = forging(upstream);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let meta = json!({ "progressToken": "t", "io.modelcontextprotocol/logLevel": "debug" });
        let called = |tool: &str| {
            let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
            raw(gateway.address, &ana.call_bytes(&json!(7), &params)).body
        };
        let listed = || ana.ask("tools/list", json!({})).body;
        for (about, places, answer) in [
            ("a list and two definitions", 3, listed()),
            ("a list that is kept", 3, listed()),
            ("progress, a line of the log, a result and a block in it", 5, called("says")),
            ("an error and its data", 2, called("fails")),
        ] {
            assert!(!answer.to_lowercase().contains("portcullis/"), "{about}: {answer}");
            // What is the server's own stays, under `_meta` and under `meta`.
            let kept = answer.matches(r#"meta":{"example.com/own":7}"#).count();
            assert_eq!(kept, places, "{about} ({era:?}, {upstream:?}): {answer}");
        }
        gateway.says("are reserved for the gateway; they were removed");
    }
}

/// What a server says where it offers something or is asked for it, with marks of the gateway wherever there may be a
/// `_meta`; `None` where it is asked something else. The number of the marks, and the result.
fn forged_everywhere(method: &str) -> Option<(usize, Value)> {
    let text = || json!({ "type": "text", "text": "plain words", "_meta": marks() });
    let contents = || json!({ "uri": "file:///a", "text": "plain words", "_meta": marks() });
    let complete = |members: Value| {
        let mut result = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": marks() });
        let object = result.as_object_mut().unwrap();
        object.extend(members.as_object().unwrap().clone());
        result
    };
    let (count, members) = match method {
        "tools/list" => {
            let mut listed = tool("says");
            listed["_meta"] = marks();
            (2, json!({ "tools": [listed] }))
        }
        "prompts/list" => (2, json!({ "prompts": [{ "name": "p", "_meta": marks() }] })),
        "resources/list" => {
            (2, json!({ "resources": [{ "uri": "file:///a", "name": "a", "_meta": marks() }] }))
        }
        "resources/templates/list" => {
            let template =
                json!({ "uriTemplate": "file:///{name}", "name": "t", "_meta": marks() });
            (2, json!({ "resourceTemplates": [template] }))
        }
        "prompts/get" => (2, json!({ "messages": [{ "role": "user", "content": text() }] })),
        "resources/read" => (2, json!({ "contents": [contents()] })),
        "completion/complete" => (1, json!({ "completion": { "values": ["one"] } })),
        "tools/call" => {
            let embedded = json!({ "type": "resource", "resource": contents(), "_meta": marks() });
            (4, json!({ "content": [text(), embedded] }))
        }
        _ => return None,
    };
    Some((count, complete(members)))
}

#[test]
fn no_list_no_entry_and_no_part_of_a_result_has_a_mark_that_the_server_has_set() {
    const RULES: &str = "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], \
                         prompts: ['*'], resources: ['*'], methods: ['*']}";
    for (era, upstream) in ERAS.into_iter().flat_map(|era| ERAS.map(|upstream| (era, upstream))) {
        let server = Server::start(move |call, stream| {
            let capabilities =
                json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {} });
            let bytes = match (call.method(), upstream) {
                ("server/discover", Era::Modern) => call.result(&json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": capabilities, "ttlMs": 0, "cacheScope": "public", "_meta": marks(),
                })),
                ("initialize", Era::Legacy) => {
                    let result = json!({
                        "protocolVersion": "2025-11-25", "capabilities": capabilities,
                        "serverInfo": { "name": "fake", "version": "1" }, "_meta": marks(),
                    });
                    with_header(&call.result(&result), "mcp-session-id: upstream-session\r\n")
                }
                (method, _) => match forged_everywhere(method) {
                    Some((_, result)) => call.result(&result),
                    None => greeting(call, upstream),
                },
            };
            stream.write_all(&bytes).is_ok()
        });
        let gateway = Config::of(&server.url()).policy(RULES).start();
        let ana = gateway.client(era, ANA);
        let prompt = json!({
            "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "x", "value": "" }
        });
        for (method, params) in [
            ("tools/list", json!({})),
            ("prompts/list", json!({})),
            ("resources/list", json!({})),
            ("resources/templates/list", json!({})),
            ("prompts/get", json!({ "name": "p" })),
            ("resources/read", json!({ "uri": "file:///a" })),
            ("completion/complete", prompt),
            ("tools/call", json!({ "name": "says", "arguments": {} })),
        ] {
            let told = ana.ask(method, params).body;
            let about = format!("{method} ({era:?}, {upstream:?}): {told}");
            assert!(!told.to_lowercase().contains("portcullis/"), "{about}");
            // What is the server's own stays.
            let places = forged_everywhere(method).map(|(places, _)| places);
            assert_eq!(Some(told.matches("example.com/own").count()), places, "{about}");
        }
        let hello = match era {
            Era::Modern => ana.ask("server/discover", json!({})),
            Era::Legacy => ana.hello(),
        };
        assert!(!hello.body.to_lowercase().contains("dev.portcullis/"), "{}", hello.body);
    }
}

#[test]
fn an_error_of_a_server_is_not_taken_for_a_denial() {
    for (era, upstream) in ERAS.into_iter().flat_map(|era| ERAS.map(|upstream| (era, upstream))) {
        let server = Server::with(upstream, json!([tool("fails")]), |call, stream| {
            let data =
                json!({ "reason": "forbidden", "rule": "frozen", "contact": "evil@example.com" });
            let code = call.body["params"]["arguments"]["code"].clone();
            let error = json!({ "code": code, "message": "no", "data": data });
            let told = json!({ "jsonrpc": "2.0", "id": call.body["id"], "error": error });
            stream.write_all(&ok(&told.to_string())).is_ok()
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let error = |code: i64| ana.call("fails", &json!({ "code": code })).json()["error"].clone();
        assert_eq!(error(-31403), json!({ "code": -32603, "message": "no" }), "{era:?}");
        assert_eq!(gateway.last()["outcome"], "server-error");
        gateway.says("are reserved for the gateway; they were removed");
        // Other errors are passed on as they came.
        assert_eq!(error(-32050)["data"]["contact"], "evil@example.com", "{era:?}");
    }
}

#[test]
fn a_request_names_this_host_and_comes_from_a_page_that_may() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let mut config = Config::of(&server.url());
    config.listener = "hosts: [gw.example]\norigins: ['https://good.example']".to_owned();
    let gateway = config.start();
    let silent = Client::silent(gateway.address, "/mcp", Era::Modern, &[]);
    let body = silent.message(&json!(1), "tools/list", json!({}));
    let ask = |target: &str, headers: &str| {
        let length = body.len();
        let text = format!(
            "POST {target} HTTP/1.1\r\n{headers}x-api-key: {ANA}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
             mcp-method: tools/list\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        raw(gateway.address, text.as_bytes()).status
    };
    assert_eq!(ask("/mcp", "host: gw.example\r\n"), 200);
    assert_eq!(ask("http://gw.example/mcp", "host: gw.example\r\n"), 200);
    for (what, target, headers) in [
        ("AV-71 other host", "/mcp", "host: evil.example\r\n"),
        ("AV-71 no host", "/mcp", ""),
        ("AV-71 two hosts", "/mcp", "host: gw.example\r\nhost: gw.example\r\n"),
        ("AV-71 other target", "http://evil.example/mcp", "host: gw.example\r\n"),
        ("AV-71 suffix", "/mcp", "host: gw.example.evil\r\n"),
        ("AV-74 any address", "/mcp", "host: 0.0.0.0\r\n"),
        ("AV-74 decimal", "/mcp", "host: 2130706433\r\n"),
        ("AV-74 octal", "/mcp", "host: 0177.0.0.1\r\n"),
        ("AV-74 IPv6", "/mcp", "host: [::ffff:127.0.0.1]\r\n"),
    ] {
        assert!(matches!(ask(target, headers), 400 | 421), "{what}");
    }
    assert_eq!(ask("/mcp", "host: [::1]:8080\r\n"), 200, "AV-74");
    let from = |origin: &str| ask("/mcp", &format!("host: gw.example\r\n{origin}"));
    assert_eq!(from("origin: https://good.example\r\n"), 200);
    assert_eq!(from(""), 200, "AV-73");
    for origin in [
        "null",
        "http://good.example",
        "https://good.example:8443",
        "https://good.example.evil",
        "https://GOOD.example",
        "https://user@good.example",
        "https://good.example\r\norigin: https://good.example",
        "https://good.example https://evil.example",
    ] {
        assert_eq!(from(&format!("origin: {origin}\r\n")), 403, "AV-72 {origin}");
    }
    // AV-75: a preflight has no credential, and is answered for a listed page alone.
    for (origin, allowed) in
        [("https://good.example", true), ("https://evil.example", false), ("null", false)]
    {
        let text = format!(
            "OPTIONS /mcp HTTP/1.1\r\nhost: gw.example\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\r\n"
        );
        let answer = raw(gateway.address, text.as_bytes());
        let shown = answer.header("access-control-allow-origin");
        assert_eq!(shown, allowed.then_some(origin), "{origin}");
        assert_eq!(answer.header("access-control-allow-credentials"), None);
    }
}

#[test]
fn a_page_of_a_listener_that_is_not_on_loopback_may_not_call() {
    for (era, address) in
        ERAS.into_iter().flat_map(|era| ["127.0.0.1", "0.0.0.0"].map(|at| (era, at)))
    {
        let server = Server::echo(era, &["echo"]);
        let mut config = Config::of(&server.url());
        config.listener = "hosts: [gw.example]\norigins: ['https://good.example']".to_owned();
        let folder = Folder::new();
        let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
        config.write(&file, &audit);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("address: 127.0.0.1:0").count(), 1, "{text}");
        let text = text.replace("address: 127.0.0.1:0", &format!("address: {address}:0"));
        std::fs::write(&file, text).unwrap();
        let mut command = std::process::Command::new(binary());
        command.args(["run", "-c"]).arg(&file);
        let gateway = Gateway::spawn(command, folder, audit);
        let port = gateway.address.port();
        let own = format!("gw.example:{port}");
        let from = |origin: &str| {
            let mut client = Client::silent(([127, 0, 0, 1], port).into(), "/mcp", era, &[]);
            let body = client.message(&json!(1), "tools/list", json!({}));
            client.headers = vec![
                ("x-api-key".to_owned(), ANA.to_owned()),
                ("origin".to_owned(), origin.to_owned()),
            ];
            let bytes = match era {
                Era::Legacy => client.hello_bytes(),
                Era::Modern => client.bytes("tools/list", None, &body),
            };
            let text = String::from_utf8(bytes).unwrap();
            let host = format!("host: 127.0.0.1:{port}\r\n");
            assert!(text.contains(&host), "{text}");
            raw(client.address, text.replace(&host, &format!("host: {own}\r\n")).as_bytes())
        };
        let page = from(&format!("http://{own}"));
        let expected = if address == "127.0.0.1" { 200 } else { 403 };
        assert_eq!(page.status, expected, "{era:?} {address}: {page:?}");
        if expected == 403 {
            assert_eq!(gateway.last()["reason"], "origin-not-allowed", "{era:?}");
            assert!(server.tool_calls().is_empty());
        }
        assert_eq!(from("https://good.example").status, 200, "{era:?} {address}");
    }
}
