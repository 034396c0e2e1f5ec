//! What waits to be sent to a program, or to a server of HTTP+SSE, that does not read: it has a bound in bytes, it goes
//! with its callers, and a program that takes nothing any more is started again.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use e2e::client::{Answer, Client, raw, read};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway, binary, root};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, PATIENCE, eventually};
use serde_json::{Value, json};

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";
/// Bytes of the text of a call that is longer than what a pipe takes.
const LONG: usize = 1_000_000;

/// A gateway before a program that does one thing at a time, in this era, and on another route before a program that
/// is not concerned.
fn single(era: Era, folder: &Folder, limits: &str) -> Gateway {
    let script = root().join("tests/sdk/single.py");
    let spoken = if era == Era::Modern { "modern" } else { "legacy" };
    let servers = format!(
        "- {{name: up, command: python3, args: ['{}', {spoken}, '{}'], protocol: {spoken}}}\n\
         - {{name: other, command: '{}', args: [canary]}}",
        script.display(),
        folder.path().display(),
        binary().display()
    );
    let mut config = Config::with(&servers, "[up]").policy(OPEN).limits(limits);
    config.routes = "- {path: /mcp, servers: [up]}\n- {path: /other, servers: [other]}".into();
    let gateway = config.start();
    gateway.has_read(2);
    gateway
}

/// Sends these bytes and does not wait for an answer.
fn begun(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// A call during which the program reads nothing, once it is at work on it.
fn held(gateway: &Gateway, client: &Client, folder: &Folder, meta: &Value) -> TcpStream {
    let params = json!({ "name": "hold", "arguments": { "who": "one" }, "_meta": meta });
    let stream = begun(gateway, &client.call_bytes(&json!(900), &params));
    let file = folder.path().join("one.holds");
    eventually("the program is at work", || file.exists().then_some(()));
    stream
}

/// Waits until a part of the next message stands in the pipe of the program that is held: from then on it cannot be
/// withdrawn.
fn is_being_written(folder: &Folder) {
    let file = folder.path().join("one.unread");
    eventually("it is being written", || file.exists().then_some(()));
}

fn go(folder: &Folder) {
    fs::write(folder.path().join("one.go"), "").unwrap();
}

fn long_call(client: &Client, id: u64) -> Vec<u8> {
    let text = "plain ".repeat(LONG / 6 + 1);
    client.call_bytes(&json!(id), &json!({ "name": "take", "arguments": { "text": text } }))
}

/// Gives these calls up in the way of the era: a legacy client that hangs up has not cancelled.
fn give_up(gateway: &Gateway, client: &Client, calls: Vec<(u64, TcpStream)>) {
    for (id, stream) in calls {
        if client.era == Era::Legacy {
            let params = json!({ "requestId": id });
            let cancelled =
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            let bytes = client.bytes("notifications/cancelled", None, &cancelled.to_string());
            assert_eq!(raw(gateway.address, &bytes).status, 202);
        }
        drop(stream);
    }
}

/// Bytes that wait to be sent to the program.
fn unsent(gateway: &Gateway) -> usize {
    let bytes = gateway.metric_now("portcullis_upstream_send_queue_bytes{server=\"up\"}");
    usize::try_from(bytes).unwrap()
}

/// What the program says that has come so far.
#[expect(clippy::disallowed_methods, reason = "a server of the test")]
fn seen(client: &Client) -> Value {
    let answer = client.call("seen", &json!({}));
    serde_json::from_str(&answer.text()).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn is_served_elsewhere(gateway: &Gateway, era: Era) {
    let other = Client::connect(gateway.address, "/other", era, Some(BOB));
    let answer = other.call("echo", &json!({ "text": "x" }));
    assert_eq!(answer.text(), "x", "{answer:?}");
}

/// A call of bob's that is refused because too much of his waits.
fn refused(gateway: &Gateway, era: Era, answer: &Answer) {
    let status = if era == Era::Modern { 503 } else { 200 };
    assert_eq!((answer.status, answer.header("retry-after")), (status, Some("1")), "{answer:?}");
    let told = answer.json();
    assert_eq!(told["error"]["data"]["reason"], "upstream-session-limit", "{answer:?}");
    assert_eq!(told["error"]["data"]["retryAfter"], 1, "{answer:?}");
    let record =
        gateway.recorded("the refusal", |record| record["reason"] == "upstream-session-limit");
    assert_eq!(record["principal"], "bob");
}

#[test]
fn what_waits_for_a_program_that_does_not_read_is_dropped_when_its_callers_give_it_up() {
    for era in ERAS {
        let folder = Folder::new();
        let gateway = single(era, &folder, "");
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let mut at_work = held(&gateway, &ana, &folder, &json!({}));
        let calls = (1..=6).map(|id| (id, begun(&gateway, &long_call(&bob, id)))).collect();
        eventually("all of them wait", || (unsent(&gateway) > 6 * LONG).then_some(()));
        give_up(&gateway, &bob, calls);
        eventually("all but the one that was begun are dropped", || {
            (1..2 * LONG).contains(&unsent(&gateway)).then_some(())
        });
        is_served_elsewhere(&gateway, era);
        go(&folder);
        assert_eq!(read(&mut at_work).text(), "held");
        // The line that was begun was written to its end, and cancelled; of the others it has heard nothing.
        let seen = seen(&ana);
        assert_eq!((&seen["take"], &seen["cancelled"]), (&json!(1), &json!(1)), "{era:?} {seen}");
        eventually("nothing waits", || (unsent(&gateway) == 0).then_some(()));
        assert_eq!(bob.call("take", &json!({ "text": "short" })).text(), "taken");
    }
}

#[test]
fn a_message_that_is_being_written_takes_of_the_share_of_its_caller_also_when_that_has_gone() {
    for era in ERAS {
        let folder = Folder::new();
        let limits =
            "requestBody: 1536KiB\nrequestBodyMemory: 6MiB\nrequestBodyMemoryPerCaller: 1536KiB";
        let gateway = single(era, &folder, limits);
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let mut at_work = held(&gateway, &ana, &folder, &json!({}));
        let of_bob = begun(&gateway, &long_call(&bob, 1));
        is_being_written(&folder);
        give_up(&gateway, &bob, vec![(1, of_bob)]);
        eventually("the call has ended", || {
            (gateway.metric_now("portcullis_in_flight") == 1).then_some(())
        });
        let over = raw(gateway.address, &long_call(&bob, 2));
        assert_eq!(over.status, 429, "{era:?} {over:?}");
        assert_eq!(over.json()["error"]["data"]["reason"], "caller-limit-bodies", "{over:?}");
        // That of another caller is whole.
        let mut call = begun(&gateway, &long_call(&ana, 3));
        eventually("it waits", || (unsent(&gateway) > 2 * LONG).then_some(()));
        go(&folder);
        assert_eq!(read(&mut at_work).text(), "held");
        assert_eq!(read(&mut call).text(), "taken");
        assert_eq!(raw(gateway.address, &long_call(&bob, 4)).text(), "taken", "{era:?}");
    }
}

#[test]
fn a_caller_who_has_its_share_of_what_waits_for_a_program_is_refused_and_others_are_not() {
    for era in ERAS {
        let folder = Folder::new();
        let gateway =
            single(era, &folder, "requestBody: 1MiB\nsendQueue: 2MiB\nconnectTimeout: 1s");
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let mut at_work = held(&gateway, &ana, &folder, &json!({}));
        let of_bob = begun(&gateway, &long_call(&bob, 1));
        eventually("it waits", || (unsent(&gateway) > LONG).then_some(()));
        refused(&gateway, era, &raw(gateway.address, &long_call(&bob, 2)));
        let count = "portcullis_upstream_send_queue_rejected_total{server=\"up\"}";
        assert_eq!(gateway.metric_now(count), 1);
        let of_ana = begun(&gateway, &long_call(&ana, 3));
        eventually("both wait", || (unsent(&gateway) > 2 * LONG).then_some(()));
        is_served_elsewhere(&gateway, era);
        go(&folder);
        // What was taken is sent: nothing of it is dropped.
        assert_eq!(read(&mut at_work).text(), "held");
        for mut call in [of_bob, of_ana] {
            assert_eq!(read(&mut call).text(), "taken", "{era:?}");
        }
        assert_eq!(seen(&bob)["take"], 2);
    }
}

#[test]
fn a_program_that_takes_nothing_while_calls_to_it_time_out_is_started_again() {
    for era in ERAS {
        let folder = Folder::new();
        let gateway = single(era, &folder, "responseTimeout: 5s");
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let born = seen(&ana)["born"].clone();
        let at_work = held(&gateway, &ana, &folder, &json!({}));
        let waits = begun(&gateway, &long_call(&bob, 1));
        gateway.says("the server stopped reading");
        gateway.measures("portcullis_upstream_channels_stalled_total{server=\"up\"} 1");
        is_served_elsewhere(&gateway, era);
        eventually("nothing waits", || (unsent(&gateway) == 0).then_some(()));
        let again = eventually("another process", || {
            let answer = bob.call("take", &json!({ "text": "short" }));
            (answer.text() == "taken").then(|| seen(&bob)["born"].clone())
        });
        assert_ne!(again, born, "{era:?}");
        drop((at_work, waits));
    }
}

#[test]
fn a_program_that_is_at_work_on_a_call_in_time_is_not_ended_though_it_does_not_read() {
    for era in ERAS {
        let folder = Folder::new();
        let gateway = single(era, &folder, "responseTimeout: 5s");
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let born = seen(&ana)["born"].clone();
        // It says how far it is, so its call is in time.
        let mut at_work = held(&gateway, &ana, &folder, &json!({ "progressToken": "p" }));
        // Each of these has waited for as long as a silent server is waited for.
        for id in 1..=2 {
            let late = raw(gateway.address, &long_call(&bob, id)).json();
            assert_eq!(late["error"]["message"], "the server did not answer in time", "{late}");
        }
        go(&folder);
        assert_eq!(read(&mut at_work).text(), "held", "{era:?}");
        assert_eq!(seen(&ana)["born"], born, "{era:?}");
        assert_eq!(
            gateway.metric_now("portcullis_upstream_channels_stalled_total{server=\"up\"}"),
            0
        );
    }
}

/// A server of the old HTTP+SSE transport that takes no message while it works on a call of `hold`.
fn over_sse(wait: std::sync::mpsc::Receiver<()>) -> Server {
    let (wait, stream_of) = (Mutex::new(wait), Mutex::new(None::<TcpStream>));
    Server::start(move |call, stream| {
        let event = |stream: &mut TcpStream, event: &str| {
            write!(stream, "{:x}\r\n{event}\r\n", event.len()).is_ok()
        };
        if call.head.starts_with("GET") {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            let begun = stream.write_all(head.as_bytes()).is_ok()
                && event(stream, "event: endpoint\r\ndata: /message\r\n\r\n");
            *stream_of.lock().unwrap() = Some(stream.try_clone().unwrap());
            return begun;
        }
        if call.method() == "tools/call" && call.tool() == "hold" {
            wait.lock().unwrap().recv().unwrap_or_default();
        }
        let result = match call.method() {
            "initialize" => {
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                        "serverInfo": { "name": "old", "version": "1" } })
            }
            "tools/list" => json!({ "tools": [tool("hold"), tool("take")] }),
            _ => json!({ "content": [{ "type": "text", "text": "done" }] }),
        };
        let id = &call.body["id"];
        if !id.is_null() {
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            let mut said = stream_of.lock().unwrap();
            event(said.as_mut().unwrap(), &format!("data: {answer}\r\n\r\n"));
        }
        stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").is_ok()
    })
}

#[test]
fn what_waits_for_a_server_of_http_sse_that_takes_no_messages_is_dropped_with_its_callers() {
    for era in ERAS {
        let (release, wait) = channel();
        let server = over_sse(wait);
        let servers = format!(
            "- {{name: up, url: '{}', transport: httpSse, protocol: legacy}}",
            server.url()
        );
        let gateway = Config::with(&servers, "[up]").policy(OPEN).start();
        gateway.has_read(1);
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let hold = ana.call_bytes(&json!(900), &json!({ "name": "hold", "arguments": {} }));
        let mut at_work = begun(&gateway, &hold);
        eventually("it is at work", || (server.tool_calls().len() == 1).then_some(()));
        let calls = (1..=6).map(|id| (id, begun(&gateway, &long_call(&bob, id)))).collect();
        eventually("all of them wait", || (unsent(&gateway) > 6 * LONG).then_some(()));
        give_up(&gateway, &bob, calls);
        eventually("they are dropped", || (unsent(&gateway) < LONG).then_some(()));
        release.send(()).unwrap();
        assert_eq!(read(&mut at_work).text(), "done", "{era:?}");
        assert_eq!(bob.call("take", &json!({ "text": "short" })).text(), "done", "{era:?}");
        assert_eq!(server.tool_calls().len(), 2, "{era:?}");
        assert_eq!(server.count("notifications/cancelled"), 0, "{era:?}");
    }
}
