//! Progress as it happens, and calls that are given up.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use e2e::client::{get, read, until};
use e2e::gateway::{ANA, Config, binary};
use e2e::server::{Server, tool};
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

fn begun(gateway: &e2e::gateway::Gateway, era: Era) -> (TcpStream, e2e::client::Client) {
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
        let answer = gateway.client(era, ANA).call("work", &json!({}));
        assert_eq!(answer.header("content-type"), Some("application/json"));
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
    let (server, go) = stepping(Era::Modern);
    let gateway = Config::of(&server.url()).limits("inFlight: 1").start();
    let (mut stream, ana) = begun(&gateway, Era::Modern);
    eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
    // A stream holds its place until it ends.
    until(&mut stream, "\"progress\":1");
    let refused = ana.ask("tools/list", json!({}));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(gateway.last()["reason"], "overload");
    go.send(()).unwrap();
    until(&mut stream, "0\r\n\r\n");
    eventually("a place", || (ana.ask("tools/list", json!({})).status == 200).then_some(()));
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
        let mut gateway = Config::of(&server.url()).limits("{lameDuckTime: 10m}").start();
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
