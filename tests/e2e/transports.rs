//! Other ways in and out: standard input and output, the old HTTP+SSE transport, a process for each
//! session.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;

use e2e::client::{post, raw};
use e2e::gateway::{ANA, BOB, Config, Folder, binary, root};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, PATIENCE};
use serde_json::{Value, json};

/// The gateway as a server over standard input and output.
struct Console {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::sync::mpsc::Receiver<Value>,
    folder: Folder,
}

impl Console {
    fn start(server: &str, key: Option<&str>) -> Self {
        Self::saying(Stdio::null(), server, key)
    }

    /// With this standard error.
    fn saying(stderr: Stdio, server: &str, key: Option<&str>) -> Self {
        let folder = Folder::new();
        let hash = "5434d1fbe1648d10e4c47fcfab49b8f1a98b1ac20460ed66af94e6c80d6418a5";
        let yaml = format!(
            "apiVersion: portcullis.dev/v1
pins: {{mode: off}}
listeners: [{{name: main, address: '127.0.0.1:0', authentication: [apiKey]}}]
identity: {{apiKeys: [{{name: ana, principal: ana, groups: [dev], sha256: {hash}}}]}}
servers: [{server}]
routes: [{{path: /mcp, servers: [up]}}]
policy: {{rules: [{{id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: [work, echo]}}]}}
audit: {{sinks: [{{name: file, file: '{}/audit.jsonl'}}]}}
",
            folder.path().display()
        );
        let file = folder.path().join("gateway.yaml");
        fs::write(&file, yaml).unwrap();
        let mut command = Command::new(binary());
        command.args(["stdio", "-c"]).arg(&file).env_remove("PORTCULLIS_API_KEY");
        if let Some(key) = key {
            command.env("PORTCULLIS_API_KEY", key);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                #[expect(clippy::disallowed_methods, reason = "the gateway's output")]
                let message = serde_json::from_str(&line).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, folder }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn hear(&self) -> Value {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    fn ask(&mut self, era: Era, id: u64, method: &str, mut params: Value) -> Value {
        if era == Era::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.say(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
        self.hear()
    }

    /// Closes its input; the records it left.
    fn end(mut self) -> String {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
        fs::read_to_string(self.folder.path().join("audit.jsonl.stdio-1")).unwrap()
    }
}

#[test]
fn the_gateway_is_a_server_over_standard_input_and_output() {
    for era in ERAS {
        let server = Server::echo(era, &["work", "shut"]);
        let mut console =
            Console::start(&format!("{{name: up, url: '{}'}}", server.url()), Some(ANA));
        if era == Era::Legacy {
            let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
            assert_eq!(
                console.ask(era, 0, "initialize", params)["result"]["protocolVersion"],
                "2025-11-25"
            );
            console.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        }
        let list = console.ask(era, 1, "tools/list", json!({}));
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 1, "{list}");
        let called = console.ask(
            era,
            2,
            "tools/call",
            json!({ "name": "work", "arguments": { "text": "hi" } }),
        );
        assert_eq!(
            (&called["id"], &called["result"]["content"][0]["text"]),
            (&json!(2), &json!("hi"))
        );
        assert_eq!(
            console.ask(era, 3, "tools/call", json!({ "name": "shut" }))["error"]["code"],
            -32602
        );
        console.say("this is no JSON");
        assert_eq!(console.hear()["error"]["code"], -32700);
        assert_eq!(server.tool_calls().len(), 1);
        let records = console.end();
        assert!(
            records.contains(r#""listener":"stdio""#) && records.contains(r#""principal":"ana""#),
            "{records}"
        );
        assert!(records.contains(r#""outcome":"denied""#));
    }
}

#[test]
fn over_standard_input_a_credential_is_needed_too() {
    let server = Server::echo(Era::Modern, &["work"]);
    let server = format!("{{name: up, url: '{}'}}", server.url());
    // It is refused before anything of it is read, and that is on record.
    let mut wrong = Console::start(&server, Some("pcl_wrong"));
    assert_eq!(wrong.child.wait().unwrap().code(), Some(1));
    let log = wrong.folder.path().join("audit.jsonl.stdio-1");
    assert!(fs::read_to_string(log).unwrap().contains("credential-refused"));
    let mut without = Console::start(&server, None);
    drop(without.input.take());
    assert!(!without.child.wait().unwrap().success(), "nobody is anonymous here");
}

#[test]
fn a_log_that_nobody_reads_or_that_has_no_room_stops_nothing() {
    for era in ERAS {
        let server = Server::echo(era, &["work"]);
        // What a pipe holds by default: the next byte waits for a reader.
        let (reader, mut unread) = std::io::pipe().unwrap();
        unread.write_all(&[b'\n'; 65_536]).unwrap();
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        for stderr in [Stdio::from(unread), Stdio::from(full)] {
            let up = format!("{{name: up, url: '{}'}}", server.url());
            let mut console = Console::saying(stderr, &up, Some(ANA));
            if era == Era::Legacy {
                let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
                console.ask(era, 0, "initialize", params);
                console.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
            }
            let arguments = json!({ "name": "work", "arguments": { "text": "hi" } });
            let called = console.ask(era, 2, "tools/call", arguments);
            assert_eq!(called["result"]["content"][0]["text"], "hi");
            // It ends with its input.
            drop(console.input.take());
            let code = e2e::eventually("the end", || console.child.try_wait().unwrap());
            assert!(code.success(), "{era:?} {code}");
        }
        drop(reader);
    }
}

#[test]
fn a_modern_client_cancels_over_standard_input() {
    let (hung, hangs) = std::sync::mpsc::channel();
    let hung = Mutex::new(hung);
    let server = Server::with(Era::Modern, json!([tool("work")]), move |_, stream| {
        let mut buffer = [0];
        // The server never answers; it sees when nobody waits any more.
        let gone = matches!(stream.read(&mut buffer), Ok(0) | Err(_));
        hung.lock().unwrap().send(gone).unwrap();
        false
    });
    let mut console = Console::start(&format!("{{name: up, url: '{}'}}", server.url()), Some(ANA));
    console.say(&json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": { "name": "work", "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} } } }).to_string());
    e2e::eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
    console.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    assert!(hangs.recv_timeout(PATIENCE).unwrap(), "the server is not told");
    assert!(console.end().contains(r#""outcome":"cancelled""#));
}

fn old_stream(address: std::net::SocketAddr, key: &str) -> (BufReader<TcpStream>, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "GET /mcp/sse HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\nauthorization: Bearer {key}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    let endpoint = data(&mut stream);
    (stream, endpoint)
}

/// The data of the next event.
pub(crate) fn data(stream: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: ").filter(|data| !data.trim().is_empty()) {
            return data.trim().to_owned();
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the gateway's output, not a peer's")]
fn the_old_transport_is_served_where_a_route_asks_for_it() {
    for era in ERAS {
        let server = Server::echo(era, &["work", "shut"]);
        let mut config = Config::of(&server.url()).policy(
            "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: [work]}",
        );
        let off = config.start();
        let get = format!(
            "GET /mcp/sse HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\nauthorization: Bearer {ANA}\r\n\r\n",
            off.address
        );
        assert_eq!(raw(off.address, get.as_bytes()).status, 404, "it is off unless asked for");
        config.routes = "- {path: /mcp, servers: [up], httpSse: true}".into();
        let gateway = config.start();
        let nobody = get
            .replace(&off.address.to_string(), &gateway.address.to_string())
            .replace(ANA, "pcl_x");
        assert_eq!(raw(gateway.address, nobody.as_bytes()).status, 401);
        let (mut stream, endpoint) = old_stream(gateway.address, ANA);
        let say = |key: &str, body: &Value| {
            let host = gateway.address.to_string();
            let credential = format!("Bearer {key}");
            let headers = [
                ("host", host.as_str()),
                ("content-type", "application/json"),
                ("authorization", &credential),
            ];
            raw(gateway.address, &post(&endpoint, &headers, &body.to_string())).status
        };
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
        assert_eq!(say(BOB, &hello), 404, "the stream is another's");
        assert_eq!(say(ANA, &hello), 202);
        let mut answer = || -> Value { serde_json::from_str(&data(&mut stream)).unwrap() };
        assert_eq!(answer()["result"]["protocolVersion"], "2024-11-05");
        let call = |id: u64, name: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name } });
        assert_eq!(say(ANA, &call(1, "work")), 202);
        assert_eq!(answer()["result"]["content"][0]["text"], "done");
        assert_eq!(say(ANA, &call(2, "shut")), 202);
        assert_eq!(answer()["error"]["code"], -32602);
        assert_eq!(server.tool_calls().len(), 1);
        assert_eq!(gateway.last()["outcome"], "denied");
    }
}

/// A client of HTTP+SSE that has opened its stream and shaken hands, and reads nothing from then on.
pub(crate) fn unread(gateway: &e2e::gateway::Gateway) -> (BufReader<TcpStream>, String) {
    let (mut stream, endpoint) = old_stream(gateway.address, ANA);
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let said = raw(gateway.address, &message(gateway, &endpoint, &hello));
    assert_eq!(said.status, 202);
    assert!(data(&mut stream).contains("2024-11-05"));
    (stream, endpoint)
}

pub(crate) fn message(gateway: &e2e::gateway::Gateway, endpoint: &str, body: &Value) -> Vec<u8> {
    let (host, credential) = (gateway.address.to_string(), format!("Bearer {ANA}"));
    let headers = [
        ("host", host.as_str()),
        ("content-type", "application/json"),
        ("authorization", &credential),
    ];
    post(endpoint, &headers, &body.to_string())
}

pub(crate) fn call_of(id: usize, name: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name } })
}

/// A server whose tool answers with so many bytes.
pub(crate) fn long(era: Era, bytes: usize) -> Server {
    Server::with(era, json!([tool("work")]), move |call, stream| {
        stream.write_all(&call.text(&"long ".repeat(bytes / 5))).is_ok()
    })
}

#[test]
fn a_rule_that_is_removed_binds_an_old_client_that_does_not_read() {
    for era in ERAS {
        let server = long(era, 50_000);
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        let mut config = Config::of(&server.url()).policy(
            "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: [work]}",
        );
        config.routes = "- {path: /mcp, servers: [up], httpSse: true}".into();
        let gateway = config.start_at(&file);
        let (mut stream, endpoint) = unread(&gateway);
        // More than the sockets, the queues and the tasks that wait hold together.
        let waiting: Vec<_> = (1..=300)
            .map(|id| {
                let mut stream = TcpStream::connect(gateway.address).unwrap();
                let bytes = message(&gateway, &endpoint, &call_of(id, "work"));
                stream.write_all(&bytes).unwrap();
                stream
            })
            .collect();
        let enough = || (server.tool_calls().len() >= 60).then_some(());
        e2e::eventually("the calls", enough);
        config.policy = config.policy.replace("[work]", "[other]");
        config.write(&file, gateway.audit());
        gateway.hang_up();
        gateway.says("configuration applied");
        let late = raw(gateway.address, &message(&gateway, &endpoint, &call_of(999, "work")));
        assert_eq!(late.status, 404, "its stream ended with the configuration");
        // Whoever reads on finds the end of the stream.
        let (mut rest, mut buffer) = (Vec::new(), vec![0; 65_536]);
        while !rest.ends_with(b"0\r\n\r\n") {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "a stream that ends well has a last chunk");
            rest.extend_from_slice(&buffer[..read]);
        }
        drop(waiting);
        let calls = server.tool_calls();
        assert!(calls.iter().all(|call| !call.body.to_string().contains("999")));
    }
}

#[test]
fn an_old_client_that_does_not_read_is_cut_off_when_its_share_of_memory_is_taken() {
    for era in ERAS {
        let server = long(era, 200_000);
        let mut config = Config::of(&server.url())
            .policy("rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: [work]}")
            .limits("replayMemory: 1MiB");
        config.routes = "- {path: /mcp, servers: [up], httpSse: true}".into();
        let gateway = config.start();
        let (stream, endpoint) = unread(&gateway);
        let mut id = 0;
        e2e::eventually("the end of the stream", || {
            id += 1;
            let bytes = message(&gateway, &endpoint, &call_of(id, "work"));
            (raw(gateway.address, &bytes).status == 404).then_some(())
        });
        gateway.says("client disconnected: it does not read");
        drop(stream);
        // One who reads is served.
        let (mut stream, endpoint) = unread(&gateway);
        let said = raw(gateway.address, &message(&gateway, &endpoint, &call_of(1, "work")));
        assert_eq!(said.status, 202);
        assert!(data(&mut stream).contains("long "));
    }
}

/// A server of the old transport whose stream ends when its tool `lose` is called.
fn losing_its_stream() -> Server {
    let kept = Mutex::new(None::<TcpStream>);
    Server::start(move |call, stream| {
        let event = |stream: &mut TcpStream, text: &str| {
            write!(stream, "{:x}\r\n{text}\r\n", text.len()).is_ok()
        };
        let mut kept = kept.lock().unwrap();
        if call.head.starts_with("GET") {
            *kept = Some(stream.try_clone().unwrap());
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            return stream.write_all(head.as_bytes()).is_ok()
                && event(stream, "event: endpoint\r\ndata: /message\r\n\r\n");
        }
        let kept = kept.as_mut().unwrap();
        let result = match (call.method(), call.tool()) {
            ("initialize", _) => {
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                        "serverInfo": { "name": "old", "version": "1" } })
            }
            ("tools/list", _) => json!({ "tools": [tool("lose"), tool("work")] }),
            ("tools/call", "lose") => {
                drop(kept.shutdown(Shutdown::Both));
                Value::Null
            }
            _ => json!({ "content": [{ "type": "text", "text": "done" }] }),
        };
        let id = &call.body["id"];
        if !id.is_null() && !result.is_null() {
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            if !event(kept, &format!("data: {answer}\r\n\r\n")) {
                return false;
            }
        }
        stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").is_ok()
    })
}

#[test]
fn a_call_ends_with_the_stream_of_a_server_of_the_old_transport_and_the_next_has_another() {
    for era in ERAS {
        let server = losing_its_stream();
        let servers = format!(
            "- {{name: up, url: '{}', transport: httpSse, protocol: legacy}}",
            server.url()
        );
        let gateway = Config::with(&servers, "[up]").start();
        gateway.has_read(1);
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("work", &json!({})).text(), "done", "{era:?}");
        assert_eq!(ana.call("lose", &json!({})).code(), -32603, "{era:?}");
        assert_eq!(gateway.last()["reason"], "upstream-process", "{era:?}");
        gateway.says("stream.broken");
        e2e::eventually("another stream", || {
            (ana.call("work", &json!({})).code() == 0).then_some(())
        });
    }
}

#[test]
fn what_a_server_of_the_old_transport_says_before_an_event_that_is_too_long_is_delivered() {
    for era in ERAS {
        let server = in_one_piece();
        let servers = format!(
            "- {{name: up, url: '{}', transport: httpSse, protocol: legacy}}",
            server.url()
        );
        let gateway = Config::with(&servers, "[up]").limits("responseBody: 2KiB").start();
        gateway.has_read(1);
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("flood", &json!({})).text(), "done", "{era:?}");
        gateway.says("stream.broken");
    }
}

/// A server of the old transport that answers its tool `flood`, and sends an event that is too long in the same write.
fn in_one_piece() -> Server {
    let kept = Mutex::new(None::<TcpStream>);
    Server::start(move |call, stream| {
        let send = |stream: &mut TcpStream, text: &str| {
            stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).is_ok()
        };
        let mut kept = kept.lock().unwrap();
        if call.head.starts_with("GET") {
            *kept = Some(stream.try_clone().unwrap());
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            return stream.write_all(head.as_bytes()).is_ok()
                && send(stream, "event: endpoint\r\ndata: /message\r\n\r\n");
        }
        let result = match call.method() {
            "initialize" => {
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                        "serverInfo": { "name": "old", "version": "1" } })
            }
            "tools/list" => json!({ "tools": [tool("flood")] }),
            _ => json!({ "content": [{ "type": "text", "text": "done" }] }),
        };
        let id = &call.body["id"];
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        let long = if call.method() == "tools/call" { "x".repeat(4096) } else { String::new() };
        if !id.is_null() {
            send(kept.as_mut().unwrap(), &format!("data: {answer}\r\n\r\n{long}"));
        }
        stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").is_ok()
    })
}

/// Messages and the credential would go to another host, or to a path that the server did not mean.
#[test]
fn a_server_of_the_old_transport_names_a_path_of_its_own_in_plain_text() {
    for (coding, endpoint, is_used) in [
        ("", "/message", true),
        ("", "//other.example/message", false),
        ("", "http://other.example/message", false),
        ("content-encoding: gzip\r\n", "/message", false),
    ] {
        let server = Server::start(move |call, stream| {
            if call.head.starts_with("GET") {
                let text = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{coding}\r\n\
                     event: endpoint\r\ndata: {endpoint}\r\n\r\n"
                );
                return stream.write_all(text.as_bytes()).is_ok();
            }
            stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").is_ok()
        });
        let servers = format!(
            "- {{name: up, url: '{}', transport: httpSse, protocol: legacy}}",
            server.url()
        );
        let gateway = Config::with(&servers, "[up]").start();
        let sent = |method: &str| {
            let calls = server.calls();
            calls.iter().filter(|call| call.head.starts_with(method)).count()
        };
        if is_used {
            e2e::eventually("a message", || (sent("POST") > 0).then_some(()));
            continue;
        }
        // A legacy client would not get as far as a call: its handshake fails.
        let answer = gateway.client(Era::Modern, ANA).call("work", &json!({}));
        assert_ne!(answer.code(), 0, "{coding}{endpoint}");
        assert!(sent("GET") > 0 && sent("POST") == 0, "{coding}{endpoint}");
    }
}

/// Over a channel that all sessions share nobody could say whom a question is for.
#[test]
fn a_process_for_each_session_keeps_them_apart() {
    for era in ERAS {
        let exe = binary();
        let servers = format!(
            "- {{name: up, command: '{}', args: [canary], sharing: perSession}}",
            exe.display()
        );
        let config = Config::with(&servers, "[up]")
            .policy("rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: [echo]}")
            .limits("processes: 8");
        let gateway = config.start();
        let clients = [gateway.client(era, ANA), gateway.client(era, BOB)];
        for client in &clients {
            let answer = client.call("echo", &json!({ "text": "hi" })).json();
            assert_eq!(answer["result"]["content"][0]["text"], "hi", "{answer}");
        }
        // One for each, and the one the gateway asks in its own name.
        e2e::eventually("a process for each", || (gateway.children().len() == 3).then_some(()));
        if era == Era::Legacy {
            let text = String::from_utf8(clients[0].bytes("x", None, "")).unwrap();
            let ended = raw(gateway.address, text.replacen("POST", "DELETE", 1).as_bytes());
            assert_eq!(ended.status, 200);
            e2e::eventually("its process ends", || (gateway.children().len() == 2).then_some(()));
        }
    }
}

#[test]
fn a_request_of_neither_era_is_told_how_to_begin() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let authorization = format!("Bearer {ANA}");
        let bare = |more: &[(&str, &str)], body: &Value| {
            let headers = [
                ("host", "localhost"),
                ("authorization", &*authorization),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
            ];
            raw(gateway.address, &post("/mcp", &[&headers[..], more].concat(), &body.to_string()))
        };
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        let refused = bare(&[], &list);
        assert_eq!(refused.status, 400, "{}", refused.body);
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        for part in ["`initialize` first", "`Mcp-Session-Id`", "`MCP-Protocol-Version: 2026-07-28`"]
        {
            assert!(message.contains(part), "{message}");
        }
        // What it says to do is enough, in either way.
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-11-25",
            "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
        let greeted = bare(&[], &hello);
        let session = greeted.header("mcp-session-id").unwrap().to_owned();
        let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(bare(&[("mcp-session-id", &session)], &begun).status, 202);
        let listed = bare(&[("mcp-session-id", &session)], &list);
        assert_eq!(listed.json()["result"]["tools"][0]["name"], "read", "{}", listed.body);
    }
}

#[test]
fn the_lines_of_the_page_open_a_legacy_session_by_hand() {
    let page = fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let (_, script) = page.split_once("```bash\n").unwrap();
    let script = script.split("```").next().unwrap();
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let there = format!("http://{}/mcp", gateway.address);
        let script = script.replace("http://127.0.0.1:8080/tickets", &there);
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &script]).env("KEY", ANA).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains("\"name\":\"read\""),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
