//! A legacy client that loses its connection comes back and gets what it missed: once, in order,
//! and nothing of anybody else's.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};

use e2e::Era;
use e2e::client::{Client, read};
use e2e::gateway::{ANA, BOB, Config};
use e2e::server::{Server, tool, with_header};
use serde_json::{Value, json};

/// Steps of one call.
const STEPS: u64 = 5;

/// A server that tells a step of its work each time it is let.
fn stepping(go: Receiver<()>) -> Server {
    let go = Mutex::new(go);
    Server::with(Era::Legacy, json!([tool("work")]), move |call, stream| {
        let token = &call.body["params"]["_meta"]["progressToken"];
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut good = stream.write_all(head.as_bytes()).is_ok();
        let go = go.lock().unwrap();
        for step in 1..=STEPS {
            good = good && go.recv().is_ok();
            let told = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                "params": { "progressToken": token, "progress": step } });
            good = good && event(stream, &told);
        }
        good = good && go.recv().is_ok();
        let result =
            json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": { "content": [] } });
        good && event(stream, &result) && stream.write_all(b"0\r\n\r\n").is_ok()
    })
}

fn event(stream: &mut TcpStream, message: &Value) -> bool {
    let event = format!("event: message\ndata: {message}\n\n");
    stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).is_ok()
}

/// A client as far as it has come: the last event it knows, and what it was told.
#[derive(Default)]
struct Seen {
    last: Option<String>,
    told: Vec<String>,
    over: bool,
}

impl Seen {
    /// Reads `stream` until it has been told `count` things more, and then drops the connection.
    fn read(&mut self, mut stream: TcpStream, count: usize) {
        let (mut text, mut buffer) = (String::new(), [0; 4096]);
        let wanted = self.told.len() + count;
        loop {
            while let Some((event, rest)) = text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                text = rest;
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
                };
                self.last = field("id: ").or(self.last.take());
                if let Some(data) = field("data: ").filter(|data| !data.is_empty()) {
                    self.over |= data.contains("\"result\"");
                    self.told.push(data);
                }
                if self.told.len() >= wanted && self.last.is_some() {
                    return;
                }
            }
            match stream.read(&mut buffer).unwrap() {
                0 => return,
                read => text.push_str(&String::from_utf8_lossy(&buffer[..read])),
            }
        }
    }
}

#[test]
fn a_client_killed_and_restarted_a_hundred_times_loses_and_repeats_nothing() {
    let (go, steps) = mpsc::channel();
    let server = stepping(steps);
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut kills = 0;
    for call in 0.. {
        let params = json!({ "name": "work", "_meta": { "progressToken": format!("t-{call}") } });
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        stream.write_all(&ana.call_bytes(&json!(call), &params)).unwrap();
        let mut seen = Seen::default();
        // The first event says nothing but its id: with it the client can come back.
        seen.read(stream, 0);
        kills += 1;
        let mut allowed = 0;
        while !seen.over {
            // Some steps happen while nobody is connected, some while somebody is.
            let away = (kills + call) % 3;
            for _ in 0..away.min(STEPS + 1 - allowed) {
                go.send(()).unwrap();
                allowed += 1;
            }
            let stream = ana.stream(seen.last.as_deref());
            if allowed <= STEPS && (seen.told.len() as u64) == allowed {
                go.send(()).unwrap();
                allowed += 1;
            }
            seen.read(stream, 1);
            kills += 1;
        }
        let told: Vec<_> = (1..=STEPS).map(|step| format!("\"progress\":{step}}}")).collect();
        assert_eq!(seen.told.len(), told.len() + 1, "call {call}: {:?}", seen.told);
        for (got, step) in seen.told.iter().zip(&told) {
            assert!(got.contains(step) && got.contains(&format!("t-{call}")), "{got} {step}");
        }
        if kills >= 100 {
            break;
        }
    }
    assert!(kills >= 100);
    assert!(server.tool_calls().len() <= 100, "a call is made once");
}

#[test]
fn a_stream_is_its_sessions_alone_and_an_event_nobody_sent_is_refused() {
    let (go, steps) = mpsc::channel();
    let server = stepping(steps);
    let rules =
        "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";
    let gateway = Config::of(&server.url()).policy(rules).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream
        .write_all(
            &ana.call_bytes(&json!(1), &json!({ "name": "work", "_meta": { "progressToken": 1 } })),
        )
        .unwrap();
    let mut seen = Seen::default();
    seen.read(stream, 0);
    let last = seen.last.clone().unwrap();
    let status = |client: &Client, last: &str| read(&mut client.stream(Some(last))).status;
    // Another's session, with the right event; her own other session; an event that never was.
    let bob = gateway.client(Era::Legacy, BOB);
    assert_eq!(status(&bob, &last), 400);
    let mut thief = bob.clone();
    thief.session.clone_from(&ana.session);
    assert_eq!(status(&thief, &last), 404);
    assert_eq!(status(&gateway.client(Era::Legacy, ANA), &last), 400);
    let (stream_id, _) = last.split_once('-').unwrap();
    for wrong in
        [format!("{stream_id}-99"), format!("{stream_id}-00"), "x".to_owned(), "0-0".to_owned()]
    {
        assert_eq!(status(&ana, &wrong), 400, "{wrong}");
        assert_eq!(gateway.last()["reason"], "replay-expired");
    }
    for _ in 0..=STEPS {
        go.send(()).unwrap();
    }
    seen.read(ana.stream(Some(&last)), usize::try_from(STEPS).unwrap() + 1);
    assert!(seen.over);
    // It is over, and can still be had again until it is forgotten; and not after the session is.
    let mut twice = Seen { last: Some(last.clone()), ..Seen::default() };
    twice.read(ana.stream(Some(&last)), seen.told.len());
    assert_eq!(twice.told, seen.told);
    let text = String::from_utf8(ana.bytes("x", None, "")).unwrap().replacen("POST", "DELETE", 1);
    assert_eq!(e2e::client::raw(gateway.address, text.as_bytes()).status, 200);
    assert_eq!(status(&ana, &last), 404);
}

/// Towards a legacy server the gateway itself comes back.
#[test]
fn a_stream_that_the_server_closes_is_asked_for_again() {
    let server = Server::start(|call, stream| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let result = |id: &Value| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": "late" }] } });
        match call.method() {
            "initialize" => {
                let result = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "fake", "version": "1" } });
                let answer = with_header(&call.result(&result), "mcp-session-id: s\r\n");
                stream.write_all(&answer).is_ok()
            }
            "tools/list" => {
                stream.write_all(&call.result(&json!({ "tools": [tool("work")] }))).is_ok()
            }
            "tools/call" => {
                let first = format!("{head}id: up-{}\nretry: 10\ndata: \n\n", call.body["id"]);
                stream.write_all(first.as_bytes()).unwrap();
                false
            }
            "" if call.head.starts_with("GET") => {
                let lower = call.head.to_lowercase();
                let last = lower
                    .split("last-event-id: up-")
                    .nth(1)
                    .map(|rest| rest.split("\r\n").next().unwrap().trim().to_owned());
                let Some(id) = last.and_then(|id| id.parse::<i64>().ok()) else {
                    return stream
                        .write_all(&e2e::server::answer("405 No", "text/plain", "no"))
                        .is_ok();
                };
                let event = format!("{head}id: up-x\ndata: {}\n\n", result(&json!(id)));
                drop(stream.write_all(event.as_bytes()));
                false
            }
            "server/discover" => {
                stream.write_all(&e2e::server::answer("400 No", "text/plain", "no")).is_ok()
            }
            _ => stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").is_ok(),
        }
    });
    let gateway = Config::of(&server.url()).start();
    let modern = gateway.client(Era::Modern, ANA).call("work", &json!({}));
    assert_eq!(modern.json()["result"]["content"][0]["text"], "late");
    // A legacy client is told to come back as the gateway was, and gets the answer then.
    let old = gateway.client(Era::Legacy, ANA);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&old.call_bytes(&json!(1), &json!({ "name": "work" }))).unwrap();
    let first = read(&mut stream);
    assert!(first.body.contains("retry: ") && first.events().is_empty(), "{first:?}");
    let last = first.body.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let rest = read(&mut old.stream(Some(last)));
    assert_eq!(rest.json()["result"]["content"][0]["text"], "late");
}
