//! Progress as it happens, and calls that are given up.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use e2e::client::{Client, get, read, until};
use e2e::gateway::{ANA, BOB, Config, Gateway, binary, root};
use e2e::server::{Call, Server, greeting, tool, with_header};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn event(stream: &mut TcpStream, message: &Value) -> bool {
    let text = format!("id: upstream-1\r\nretry: 1\r\ndata: {message}\r\n\r\n");
    write!(stream, "{:x}\r\n{text}\r\n", text.len()).is_ok()
}

fn progress(token: &Value, done: i32) -> Value {
    let params = json!({ "progressToken": token, "progress": done, "total": 2, "x-more": "kept" });
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
}

/// A server that reports progress, then waits until it is told to go on.
fn stepping(era: Era) -> (Server, Sender<()>) {
    let (go, wait) = channel();
    let wait = Mutex::new(wait);
    let server = Server::with(era, json!([tool("work")]), move |call, stream| {
        let token = &call.body["params"]["_meta"]["progressToken"];
        assert!(token.is_number(), "the client's own token must not get here: {token}");
        let foreign = progress(&json!("someone-elses"), 1);
        let sent = stream.write_all(HEAD).is_ok()
            && event(stream, &foreign)
            && event(stream, &progress(token, 1));
        if wait.lock().unwrap().recv().is_err() {
            return false;
        }
        let result =
            json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": { "content": [] } });
        sent && event(stream, &progress(token, 2))
            && event(stream, &result)
            && stream.write_all(b"0\r\n\r\n").is_ok()
    });
    (server, go)
}

fn begun(gateway: &Gateway, era: Era) -> (TcpStream, Client) {
    let ana = gateway.client(era, ANA);
    let params = json!({ "name": "work", "_meta": { "progressToken": "my-token" } });
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.write_all(&ana.call_bytes(&json!(41), &params)).unwrap();
    (stream, ana)
}

#[test]
fn progress_arrives_while_the_call_is_under_way() {
    for era in ERAS {
        let (server, go) = stepping(era);
        let gateway = Config::of(&server.url()).start();
        let (mut stream, _) = begun(&gateway, era);
        let first = until(&mut stream, "\"progress\":1");
        assert!(first.to_lowercase().contains("x-accel-buffering: no"), "{first}");
        assert!(
            first.contains(r#""progressToken":"my-token""#)
                && first.contains("\"x-more\":\"kept\"")
        );
        assert!(
            !first.contains("someone-elses")
                && !first.contains("upstream-1")
                && !first.contains("retry: 1\n")
        );
        go.send(()).unwrap();
        let rest = until(&mut stream, "\r\n0\r\n");
        assert!(rest.contains("\"progress\":2") && rest.contains("\"id\":41"), "{rest}");
        let record = gateway.recorded("the call", |r| r["method"] == "tools/call");
        assert_eq!(record["outcome"], "answered");
        assert_eq!(dropped(&gateway), 1, "what is another's is counted");
        let sent: Vec<_> = server.tool_calls();
        assert!(!String::from_utf8_lossy(&sent[0].bytes).contains("my-token"));
    }
}

#[test]
fn an_answer_in_one_event_is_one_json_object() {
    for era in ERAS {
        let server = Server::with(era, json!([tool("work")]), |call, stream| {
            let result =
                json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": { "content": [] } });
            stream.write_all(HEAD).is_ok()
                && event(stream, &result)
                && stream.write_all(b"0\r\n\r\n").is_ok()
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        // A legacy call that takes longer than an instant is answered with a stream.
        let answer = eventually("an answer at once", || {
            let answer = ana.call("work", &json!({}));
            (answer.header("content-type") == Some("application/json")).then_some(answer)
        });
        assert_eq!(answer.json()["result"]["content"], json!([]));
        assert_eq!(answer.json()["result"]["resultType"].is_string(), era == Era::Modern);
    }
}

#[test]
fn a_modern_client_that_hangs_up_has_cancelled() {
    let (closed, seen) = channel();
    let closed = Mutex::new(closed);
    let server = Server::with(Era::Modern, json!([tool("work")]), move |_, stream| {
        // The gateway closes its connection: nothing more can be read from it.
        let ended = matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_));
        closed.lock().unwrap().send(ended).unwrap();
        false
    });
    let gateway = Config::of(&server.url()).start();
    let (stream, _) = begun(&gateway, Era::Modern);
    eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
    drop(stream);
    assert!(seen.recv_timeout(e2e::PATIENCE).unwrap());
    let record = gateway.recorded("the cancelled call", |r| r["method"] == "tools/call");
    assert_eq!((&record["outcome"], &record["status"]), (&json!("cancelled"), &json!(499)));
}

#[test]
fn a_legacy_client_that_hangs_up_has_not_cancelled_and_one_that_says_so_has() {
    let (server, go) = stepping(Era::Legacy);
    let gateway = Config::of(&server.url()).start();
    let (stream, _) = begun(&gateway, Era::Legacy);
    eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
    drop(stream);
    go.send(()).unwrap();
    let cancelled = |server: &Server| {
        server.calls().into_iter().find(|call| call.method() == "notifications/cancelled")
    };
    let record = gateway.recorded("the call", |r| r["method"] == "tools/call");
    assert!(cancelled(&server).is_none(), "{record}");

    let (mut stream, ana) = begun(&gateway, Era::Legacy);
    until(&mut stream, "\"progress\":1");
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 41 } });
    let bytes = ana.bytes("notifications/cancelled", None, &notification.to_string());
    assert_eq!(e2e::client::raw(gateway.address, &bytes).status, 202);
    let told = eventually("the cancellation", || cancelled(&server));
    let id = &server.tool_calls()[1].body["id"];
    assert_eq!(&told.body["params"]["requestId"], id, "in the server's terms");
    let rest = read_to_end(&mut stream);
    assert!(!rest.contains("\"id\":41"), "a cancelled request has no response: {rest}");
    drop(go);
}

fn read_to_end(stream: &mut TcpStream) -> String {
    until(stream, "0\r\n\r\n")
}

#[test]
fn a_call_can_be_cancelled_before_the_server_says_anything() {
    let (release, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::with(Era::Legacy, json!([tool("work")]), move |_, _| {
        assert!(wait.lock().unwrap().recv().is_err(), "released by hanging up");
        false
    });
    let gateway = Config::of(&server.url()).start();
    let (mut stream, ana) = begun(&gateway, Era::Legacy);
    eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 41 } });
    let bytes = ana.bytes("notifications/cancelled", None, &notification.to_string());
    assert_eq!(e2e::client::raw(gateway.address, &bytes).status, 202);
    eventually("the cancellation", || {
        server.calls().into_iter().find(|call| call.method() == "notifications/cancelled")
    });
    let answer = read(&mut stream);
    assert!(!answer.body.contains("\"id\":41"), "{answer:?}");
    let record = gateway.recorded("the call", |r| r["method"] == "tools/call");
    assert_eq!(record["outcome"], "cancelled");
    drop(release);
}

#[test]
fn another_session_cannot_cancel_a_call() {
    let (server, go) = stepping(Era::Legacy);
    let gateway = Config::of(&server.url()).start();
    let (mut stream, _) = begun(&gateway, Era::Legacy);
    until(&mut stream, "\"progress\":1");
    let other = gateway.client(Era::Legacy, ANA);
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 41 } });
    let bytes = other.bytes("notifications/cancelled", None, &notification.to_string());
    assert_eq!(e2e::client::raw(gateway.address, &bytes).status, 202);
    go.send(()).unwrap();
    assert!(until(&mut stream, "0\r\n\r\n").contains("\"id\":41"));
}

#[test]
fn a_program_reports_progress_and_is_told_of_a_cancellation() {
    for era in ERAS {
        let exe = binary();
        let servers = format!("- {{name: up, command: '{}', args: [canary]}}", exe.display());
        let gateway = Config::with(&servers, "[up]").start();
        let ana = gateway.client(era, ANA);
        let params = json!({ "name": "echo", "arguments": { "text": "hi" }, "_meta": { "progressToken": 9 } });
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.write_all(&ana.call_bytes(&json!(1), &params)).unwrap();
        let answer = read(&mut stream);
        let events = answer.events();
        assert_eq!(events.len(), 2, "{answer:?}");
        assert!(events[0].contains(r#""progressToken":9"#));
        assert_eq!(answer.json()["result"]["content"][0]["text"], "hi");
    }
}

#[test]
fn what_is_in_flight_ends_before_the_gateway_does() {
    for era in ERAS {
        let (server, go) = stepping(era);
        let mut gateway = Config::of(&server.url()).start();
        let (mut stream, _) = begun(&gateway, era);
        until(&mut stream, "\"progress\":1");
        gateway.terminate();
        let ops = gateway.ops.unwrap();
        eventually("the listener to close", || TcpStream::connect(ops).is_err().then_some(()));
        go.send(()).unwrap();
        assert!(until(&mut stream, "0\r\n\r\n").contains("\"id\":41"));
        drop(stream);
        assert_eq!(gateway.ended(), Some(0));
        let events: Vec<_> = gateway.records().iter().map(|r| r["event"].clone()).collect();
        assert_eq!(events.last(), Some(&json!("stop")));
    }
}

#[test]
fn more_requests_than_there_are_places_are_refused() {
    for era in ERAS {
        let (server, go) = stepping(era);
        let gateway = Config::of(&server.url()).limits("inFlight: 1").start();
        let (mut stream, ana) = begun(&gateway, era);
        eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
        // A stream holds its place until it ends.
        until(&mut stream, "\"progress\":1");
        let refused = ana.ask("tools/list", json!({}));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{era:?}");
        let data = &refused.json()["error"]["data"];
        assert_eq!(data, &json!({ "reason": "overload", "retryAfter": 1 }));
        assert_eq!(gateway.last()["reason"], "overload");
        go.send(()).unwrap();
        until(&mut stream, "0\r\n\r\n");
        eventually("a place", || (ana.ask("tools/list", json!({})).status == 200).then_some(()));
    }
    let (silent, release) = silent();
    let gateway = Config::of(&silent.url()).limits("inFlight: 1").start();
    let (_stream, ana) = begun(&gateway, Era::Modern);
    eventually("the call", || (!silent.tool_calls().is_empty()).then_some(()));
    assert_eq!(ana.ask("tools/list", json!({})).status, 503);
    drop(release);
}

fn silent() -> (Server, Sender<()>) {
    let (release, wait) = channel();
    let wait = Mutex::new(wait);
    let server = Server::with(Era::Modern, json!([tool("work")]), move |_, _| {
        assert!(wait.lock().unwrap().recv().is_err(), "released by hanging up");
        false
    });
    (server, release)
}

#[test]
fn before_it_stops_it_says_so_and_goes_on() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let mut gateway = Config::of(&server.url()).limits("lameDuckTime: 10m").start();
        let ops = gateway.ops.unwrap();
        assert_eq!(get(ops, "/readyz").status, 200);
        gateway.terminate();
        eventually("it says so", || (get(ops, "/readyz").status == 503).then_some(()));
        // Who comes all the same is served as before.
        let client = gateway.client(era, ANA);
        assert!(client.call("echo", &json!({ "text": "x" })).json()["result"].is_object());
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0));
    }
}

#[test]
fn progress_without_a_token_in_the_answer_to_a_call_is_of_that_call() {
    for upstream in ERAS {
        let server = Server::with(upstream, json!([tool("work")]), |call, stream| {
            let result = json!({ "resultType": "complete", "content": [] });
            let end = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result });
            stream.write_all(HEAD).is_ok()
                && event(stream, &progressed(None, 1))
                && event(stream, &end)
                && stream.write_all(b"0\r\n\r\n").is_ok()
        });
        for era in ERAS {
            let gateway = Config::of(&server.url()).start();
            let (mut stream, ana) = begun(&gateway, era);
            let answer = read(&mut stream);
            assert_eq!(answer.events().len(), 2, "{era:?} {upstream:?}: {answer:?}");
            assert!(answer.body.contains(r#""progressToken":"my-token""#), "{answer:?}");
            assert_eq!(dropped(&gateway), 0);
            // A client that does not want any gets none.
            let answer = ana.call("work", &json!({}));
            assert!(!answer.body.contains("notifications/progress"), "{answer:?}");
            eventually("it is counted", || (dropped(&gateway) == 1).then_some(()));
        }
    }
}

/// Everybody may call everything.
const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// The streams of the sessions of a server, by session id.
type Streams = Arc<Mutex<Vec<(String, TcpStream)>>>;

/// The session that a request belongs to, or nothing.
pub(crate) fn session_of(call: &Call) -> String {
    let line = call.head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then_some(value)
    });
    line.unwrap_or_default().to_owned()
}

/// A legacy server that says nothing in answer to a call but its end, when it is told to: what it reports comes
/// on the stream of the session.
fn aside() -> (Server, Streams, Sender<()>) {
    let (go, wait) = channel();
    let (wait, count) = (Mutex::new(wait), AtomicUsize::new(0));
    let streams = Streams::default();
    let kept = Arc::clone(&streams);
    let server = Server::start(move |call, stream| {
        let bytes = match call.method() {
            "initialize" => {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let session = format!("mcp-session-id: session-{number}\r\n");
                let hello = String::from_utf8(greeting(call, Era::Legacy)).unwrap();
                let hello = hello.replace("mcp-session-id: upstream-session\r\n", "");
                with_header(hello.as_bytes(), &session)
            }
            "tools/list" => call.result(&json!({ "tools": [tool("work")] })),
            "tools/call" => {
                if wait.lock().unwrap().recv().is_err() {
                    return false;
                }
                call.text("done")
            }
            "" if call.head.starts_with("GET") => {
                let clone = stream.try_clone().unwrap();
                let begun = stream.write_all(HEAD).is_ok();
                kept.lock().unwrap().push((session_of(call), clone));
                return begun;
            }
            _ => greeting(call, Era::Legacy),
        };
        stream.write_all(&bytes).is_ok()
    });
    (server, streams, go)
}

/// Says something on the stream of a session, once it is there.
fn say(streams: &Streams, session: &str, message: &Value) {
    let said = eventually("the stream", || {
        let mut streams = streams.lock().unwrap();
        let found = streams.iter_mut().find(|(known, _)| known == session);
        found.map(|(_, stream)| event(stream, message))
    });
    assert!(said);
}

/// A message of a server that belongs to no call.
fn said(text: &str) -> Value {
    let params = json!({ "level": "info", "data": text });
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params })
}

/// Everybody may call everything, and is told everything.
const TALKING: &str = "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], methods: ['*']}";

/// How many clients listen at the same time.
const LISTENERS: usize = 40;

#[test]
fn every_listener_gets_what_its_own_session_is_told_also_after_a_long_silence_and_an_ended_stream()
{
    let (server, streams, _go) = aside();
    let gateway = Config::of(&server.url()).policy(TALKING).start();
    let mut listening: Vec<_> = (0..LISTENERS)
        .map(|_| {
            let mut stream = gateway.client(Era::Legacy, ANA).stream(None);
            let head = until(&mut stream, "200 OK").to_lowercase();
            assert!(!head.contains("content-length"), "{head}");
            stream
        })
        .collect();
    for round in ["first", "second"] {
        eventually("the streams", || (streams.lock().unwrap().len() == LISTENERS).then_some(()));
        let mut sessions: Vec<_> =
            streams.lock().unwrap().iter().map(|(session, _)| session.clone()).collect();
        sessions.sort();
        for session in &sessions {
            say(&streams, session, &said(&format!("{round} of {session}!")));
        }
        let told = listening.iter_mut().map(|stream| {
            let seen = until(stream, "!");
            let (_, told) = seen.split_once(&format!("{round} of ")).unwrap();
            told.split_once('!').unwrap().0.to_owned()
        });
        let mut told: Vec<_> = told.collect();
        told.sort();
        assert_eq!(told, sessions, "each has one, and nobody that of another");
        // The server ends all of them, and the gateway listens again.
        for (_, mut stream) in streams.lock().unwrap().drain(..) {
            stream.write_all(b"0\r\n\r\n").unwrap();
        }
    }
}

#[test]
fn an_event_of_a_listening_stream_may_be_cut_anywhere_and_a_wrong_chunk_ends_the_stream() {
    let (server, streams, _go) = aside();
    let gateway = Config::of(&server.url()).policy(TALKING).start();
    let mut listening = gateway.client(Era::Legacy, ANA).stream(None);
    let head = until(&mut listening, "200 OK").to_lowercase();
    let first = eventually("the stream", || streams.lock().unwrap().pop());
    let (_, mut stream) = first;
    let event = format!("event: message\ndata: {}\n\n", said("in pieces!"));
    for byte in event.as_bytes() {
        for part in [&b"1;piece\r"[..], b"\n", &[*byte], b"\r\n"] {
            stream.write_all(part).unwrap();
        }
    }
    let seen = until(&mut listening, "!");
    assert!(seen.contains("in pieces"), "{head}{seen}");
    // Two readers could read this differently, so nothing of it is shown.
    let event = format!("data: {}\n\n", said("in doubt!"));
    let chunk = format!("{:x}\n{event}\r\n", event.len());
    // At once: the gateway may close the stream at the first line.
    stream.write_all(chunk.as_bytes()).unwrap();
    assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)), "the gateway closes it");
    let (_, mut again) = eventually("another stream", || streams.lock().unwrap().pop());
    assert!(self::event(&mut again, &said("for certain!")));
    let seen = until(&mut listening, "!");
    assert!(seen.contains("for certain") && !seen.contains("in doubt"), "{seen}");
    gateway.says("stream.broken");
    // What came before the break is shown, also if both came at once.
    let event = format!("data: {}\n\n", said("at last!"));
    let chunk = format!("{:x}\r\n{event}\r\nno size\r\n", event.len());
    again.write_all(chunk.as_bytes()).unwrap();
    assert!(until(&mut listening, "!").contains("at last"));
}

#[test]
fn a_listener_is_told_that_its_connection_ends_with_its_stream_and_what_it_sends_meanwhile_is_nothing()
 {
    let (server, streams, _go) = aside();
    let gateway = Config::of(&server.url()).policy(TALKING).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut listening = ana.stream(None);
    // Another request on the connection of a response that does not end.
    let request = ana.call_bytes(&json!(41), &json!({ "name": "work" }));
    listening.write_all(&request).unwrap();
    let head = until(&mut listening, "\r\n\r\n").to_lowercase();
    assert!(head.contains("connection: close") && head.contains("transfer-encoding: chunked"));
    let (session, mut stream) = eventually("the stream", || streams.lock().unwrap().pop());
    assert!(event(&mut stream, &said("hello!")));
    assert!(until(&mut listening, "hello!").contains("notifications/message"), "{session}");
    gateway.terminate();
    let mut rest = String::new();
    listening.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(server.tool_calls().is_empty());
}

#[test]
fn a_modern_listener_is_told_that_its_connection_ends_and_its_stream_is_ended_when_the_gateway_stops()
 {
    let (server, _streams, _go) = aside();
    let gateway = Config::of(&server.url()).policy(TALKING).start();
    let ana = gateway.client(Era::Modern, ANA);
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let body = ana.message(&json!("listen"), "subscriptions/listen", wanted);
    let mut listening = TcpStream::connect(gateway.address).unwrap();
    listening.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    listening.write_all(&ana.bytes("subscriptions/listen", None, &body)).unwrap();
    // Another request on the connection of a response that does not end.
    let request = ana.call_bytes(&json!(41), &json!({ "name": "work" }));
    listening.write_all(&request).unwrap();
    let head = until(&mut listening, "subscriptions/acknowledged").to_lowercase();
    assert!(head.contains("connection: close") && head.contains("transfer-encoding: chunked"));
    gateway.terminate();
    let mut rest = String::new();
    listening.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(server.tool_calls().is_empty());
}

/// Progress with whatever stands for its token, if anything.
fn progressed(token: Option<Value>, done: i32) -> Value {
    let mut message = progress(&Value::Null, done);
    match token {
        Some(token) => message["params"]["progressToken"] = token,
        None => drop(message["params"].as_object_mut().unwrap().remove("progressToken")),
    }
    message
}

/// A call of `client` that wants progress; the session and the token that the server knows it by.
fn calling(
    gateway: &Gateway,
    server: &Server,
    client: &Client,
    token: &str,
) -> (TcpStream, String, Value) {
    let before = server.tool_calls().len();
    let params = json!({ "name": "work", "_meta": { "progressToken": token } });
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&client.call_bytes(&json!(41), &params)).unwrap();
    let call = eventually("the call", || server.tool_calls().into_iter().nth(before));
    let token = call.body["params"]["_meta"]["progressToken"].clone();
    (stream, session_of(&call), token)
}

fn dropped(gateway: &Gateway) -> u64 {
    gateway.metric_now("portcullis_progress_dropped_total{server=\"up\"}")
}

fn logged(gateway: &Gateway) -> usize {
    gateway.said().matches("progress dropped").count()
}

#[test]
fn progress_on_the_stream_of_a_session_reaches_the_call_it_belongs_to() {
    let (server, streams, go) = aside();
    let gateway = Config::of(&server.url()).start();
    // The stream of the session is that of the client, or the gateway's own for a client that has none.
    for era in ERAS {
        let ana = gateway.client(era, ANA);
        let mut listening = (era == Era::Legacy).then(|| ana.stream(None));
        listening.iter_mut().for_each(|stream| drop(until(stream, "200 OK")));
        let (mut call, session, token) = calling(&gateway, &server, &ana, "my-token");
        for done in 1..=3 {
            say(&streams, &session, &progressed(Some(token.clone()), done));
        }
        let seen = until(&mut call, "\"progress\":3");
        assert_eq!(seen.matches(r#""progressToken":"my-token""#).count(), 3, "{era:?}: {seen}");
        assert!(seen.contains("\"progress\":1") && seen.contains("\"progress\":2"), "{seen}");
        assert!(!seen.contains(&token.to_string()), "{seen}");
        go.send(()).unwrap();
        assert!(until(&mut call, "\r\n0\r\n").contains("\"id\":41"));
    }
    assert_eq!((dropped(&gateway), logged(&gateway)), (0, 0));
}

#[test]
fn progress_without_a_token_is_of_the_only_call_and_else_is_dropped_counted_and_logged_once() {
    let (server, streams, go) = aside();
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut listening = ana.stream(None);
    until(&mut listening, "200 OK");
    let (mut first, session, ended) = calling(&gateway, &server, &ana, "first");
    let params = json!({ "name": "work", "_meta": { "progressToken": "second" } });
    let mut second = TcpStream::connect(gateway.address).unwrap();
    second.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    second.write_all(&ana.call_bytes(&json!(42), &params)).unwrap();
    eventually("both calls", || (server.tool_calls().len() == 2).then_some(()));
    // It could be of either.
    say(&streams, &session, &progressed(None, 1));
    eventually("the first is dropped", || (dropped(&gateway) == 1).then_some(()));
    go.send(()).unwrap();
    let seen = read(&mut first);
    assert_eq!(seen.json()["id"], 41, "{seen:?}");
    assert!(!seen.body.contains("\"progress\""), "{seen:?}");
    // What has ended, and what never was, is nobody's, also where there is one call alone.
    for stranger in [ended, json!("x"), json!(7), json!({})] {
        say(&streams, &session, &progressed(Some(stranger), 2));
    }
    eventually("the others are dropped", || (dropped(&gateway) == 5).then_some(()));
    say(&streams, &session, &progressed(None, 3));
    say(&streams, &session, &progressed(Some(Value::Null), 4));
    let seen = until(&mut second, "\"progress\":4");
    assert_eq!(seen.matches(r#""progressToken":"second""#).count(), 2, "{seen}");
    assert!(!seen.contains("\"progress\":1") && !seen.contains("\"progress\":2"), "{seen}");
    go.send(()).unwrap();
    until(&mut second, "\r\n0\r\n");
    gateway.says("progress dropped");
    assert_eq!((dropped(&gateway), logged(&gateway)), (5, 1));
}

#[test]
fn progress_of_one_session_never_reaches_a_call_of_another() {
    for era in ERAS {
        let (server, streams, go) = aside();
        let gateway = Config::of(&server.url()).policy(OPEN).start();
        // Two callers; and two sessions of one, where its clients have sessions of their own.
        let other = if era == Era::Legacy { [ANA, BOB].as_slice() } else { &[BOB] };
        for (n, other) in other.iter().enumerate() {
            let clients = [gateway.client(era, ANA), gateway.client(era, other)];
            let mut listening = Vec::new();
            for client in clients.iter().filter(|_| era == Era::Legacy) {
                let mut stream = client.stream(None);
                until(&mut stream, "200 OK");
                listening.push(stream);
            }
            let (mut one, of_one, token) = calling(&gateway, &server, &clients[0], "first");
            let (mut two, of_two, its) = calling(&gateway, &server, &clients[1], "second");
            assert_ne!(of_one, of_two);
            // On the stream of each the token of the other.
            say(&streams, &of_two, &progressed(Some(token.clone()), 8));
            say(&streams, &of_one, &progressed(Some(its.clone()), 9));
            eventually("both are dropped", || {
                (dropped(&gateway) == 2 * (n as u64 + 1)).then_some(())
            });
            // On its own stream what names nothing is its own.
            say(&streams, &of_one, &progressed(None, 10));
            say(&streams, &of_two, &progressed(Some(its.clone()), 10));
            for (stream, own, foreign) in
                [(&mut one, "first", "second"), (&mut two, "second", "first")]
            {
                let seen = until(stream, "\"progress\":10");
                assert!(seen.contains(own) && !seen.contains(foreign), "{era:?}: {seen}");
                assert!(
                    !seen.contains("\"progress\":8") && !seen.contains("\"progress\":9"),
                    "{seen}"
                );
            }
            // Which of them ends first the server decides.
            go.send(()).unwrap();
            go.send(()).unwrap();
            for stream in [&mut one, &mut two] {
                until(stream, "\r\n0\r\n");
            }
        }
        gateway.says("progress dropped");
        assert_eq!(logged(&gateway), 1);
    }
}

/// What `tests/sdk/reporter.py` says, over the old HTTP+SSE transport.
fn over_sse() -> Server {
    let streams = Streams::default();
    Server::start(move |call, stream| {
        if call.head.starts_with("GET") {
            let begin = "event: endpoint\r\ndata: /message\r\n\r\n";
            let begun = stream.write_all(HEAD).is_ok()
                && write!(stream, "{:x}\r\n{begin}\r\n", begin.len()).is_ok();
            // The newest stream is the one that the next messages are answered on.
            streams.lock().unwrap().insert(0, (String::new(), stream.try_clone().unwrap()));
            return begun;
        }
        let result = match call.method() {
            "initialize" => {
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                                    "serverInfo": { "name": "old", "version": "1" } })
            }
            "tools/list" => json!({ "tools": [tool("work")] }),
            _ => json!({ "content": [{ "type": "text", "text": "done" }] }),
        };
        let accepted = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
        if call.method() == "tools/call" {
            let token = call.body["params"]["_meta"]["progressToken"].clone();
            let text = token.to_string().into();
            for (token, done) in
                [Some(token), Some(text), None, Some(json!("x"))].into_iter().zip(1..)
            {
                say(&streams, "", &progressed(token, done));
            }
        }
        let id = &call.body["id"];
        let unknown = call.method() == "server/discover";
        let answer = match unknown {
            true => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no" } })
            }
            false => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        };
        if !id.is_null() {
            say(&streams, "", &answer);
        }
        stream.write_all(accepted).is_ok()
    })
}

#[test]
fn progress_over_a_channel_is_of_the_call_it_names_and_without_a_token_only_where_callers_share_none()
 {
    let program = root().join("tests/sdk/reporter.py");
    let old = over_sse();
    let stdio = format!("command: python3, args: ['{}']", program.display());
    let sse = format!("url: '{}', transport: httpSse", old.url());
    for era in ERAS {
        for (server, sharing, seen) in [
            (&stdio, "perSession", vec![1, 3]),
            (&stdio, "shared", vec![1]),
            (&sse, "shared", vec![1]),
        ] {
            let servers = format!("- {{name: up, {server}, sharing: {sharing}}}");
            let gateway = Config::with(&servers, "[up]").start();
            let ana = gateway.client(era, ANA);
            let params = json!({ "name": "work", "_meta": { "progressToken": "mine" } });
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            stream.write_all(&ana.call_bytes(&json!(1), &params)).unwrap();
            let answer = read(&mut stream);
            let what = format!("{era:?} {server} {sharing}: {answer:?}");
            let told = answer.events().into_iter().filter(|event| event.contains("\"progress\""));
            let told: Vec<_> = told.collect();
            assert_eq!(told.len(), seen.len(), "{what}");
            for (event, done) in told.iter().zip(&seen) {
                assert!(event.contains(&format!("\"progress\":{done}")), "{what}");
                assert!(event.contains(r#""progressToken":"mine""#), "{what}");
            }
            assert_eq!(answer.json()["result"]["content"][0]["text"], "done", "{what}");
            eventually(&what, || (dropped(&gateway) == 4 - seen.len() as u64).then_some(()));
        }
    }
}
