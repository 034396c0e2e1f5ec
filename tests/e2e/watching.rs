//! Who is told that a resource changes: who may read it, whatever the server says.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use e2e::client::until;
use e2e::gateway::{ANA, Config, Gateway};
use e2e::server::{Call, Server, answer, with_header};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

const RULES: &str = "rules:\n- {id: some, effect: allow, principals: ['group:dev'], servers: ['*'], \
                     resources: ['file:///open']}";
pub(crate) const OPEN: &str = "file:///open";
const CLOSED: &str = "file:///closed";
const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn event(stream: &mut TcpStream, message: &Value) -> bool {
    let text = format!("data: {message}\n\n");
    write!(stream, "{:x}\r\n{text}\r\n", text.len()).is_ok()
}

/// Tells of both resources, the closed one first.
fn tell(stream: &mut TcpStream, id: &Value) -> bool {
    [CLOSED, OPEN].iter().all(|uri| {
        let params =
            json!({ "uri": uri, "_meta": { "io.modelcontextprotocol/subscriptionId": id } });
        let method = "notifications/resources/updated";
        event(stream, &json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    })
}

/// A server that agrees to whatever it is asked to tell, and tells more than that once it is let.
pub(crate) fn telling(era: Era, go: Receiver<()>) -> Server {
    let go = Mutex::new(go);
    watched(era, move |stream, id| {
        go.lock().unwrap().recv().is_ok() && tell(stream, id) && stream.read(&mut [0]).is_err()
    })
}

/// A server that keeps the streams on which it tells, so that the test can close them, and tells something as soon as
/// one is opened after that.
fn losing(era: Era, streams: &Arc<Mutex<Vec<TcpStream>>>, is_lost: &Arc<AtomicBool>) -> Server {
    let (streams, is_lost) = (Arc::clone(streams), Arc::clone(is_lost));
    watched(era, move |stream, id| {
        streams.lock().unwrap().push(stream.try_clone().unwrap());
        if is_lost.load(Ordering::SeqCst) && !tell(stream, id) {
            return false;
        }
        // Until the test or the gateway closes it.
        drop(stream.read(&mut [0]));
        false
    })
}

/// A server that agrees to whatever it is asked to tell; `told` does so on each stream.
fn watched(
    era: Era,
    told: impl Fn(&mut TcpStream, &Value) -> bool + Send + Sync + 'static,
) -> Server {
    let capabilities = json!({ "resources": { "subscribe": true } });
    let resources = json!([{ "uri": OPEN, "name": "open" }, { "uri": CLOSED, "name": "closed" }]);
    Server::start(move |call: &Call, stream| {
        let bytes = match (call.method(), era) {
            ("server/discover", Era::Modern) => call.result(&json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities, "ttlMs": 0, "cacheScope": "public",
            })),
            ("initialize", Era::Legacy) => with_header(
                &call.result(&json!({
                    "protocolVersion": "2025-11-25", "capabilities": capabilities,
                    "serverInfo": { "name": "fake", "version": "1" },
                })),
                "mcp-session-id: s\r\n",
            ),
            ("server/discover" | "initialize", _) => {
                answer("400 Bad Request", "text/plain", "no")
            }
            ("resources/list", _) => call.result(&json!({
                "resultType": "complete", "resources": resources, "ttlMs": 0, "cacheScope": "private",
            })),
            ("subscriptions/listen", Era::Modern) => {
                let id = &call.body["id"];
                let agreed = json!({
                    "notifications": call.body["params"]["notifications"],
                    "_meta": { "io.modelcontextprotocol/subscriptionId": id },
                });
                let method = "notifications/subscriptions/acknowledged";
                let agreed = json!({ "jsonrpc": "2.0", "method": method, "params": agreed });
                let wanted = &call.body["params"]["notifications"]["resourceSubscriptions"];
                let good = stream.write_all(HEAD.as_bytes()).is_ok() && event(stream, &agreed);
                // A legacy session listens before it knows what for, and then again.
                return good && (wanted.is_null() || told(stream, id));
            }
            ("", Era::Legacy) if call.head.starts_with("GET") => {
                return stream.write_all(HEAD.as_bytes()).is_ok() && told(stream, &Value::Null);
            }
            _ if call.body["id"].is_null() => {
                b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
            }
            _ => call.result(&json!({ "resultType": "complete" })),
        };
        stream.write_all(&bytes).is_ok()
    })
}

/// Asks for news of both resources; gives the stream on which they come.
fn watch(gateway: &Gateway, era: Era) -> TcpStream {
    let ana = gateway.client(era, ANA);
    if era == Era::Modern {
        let wanted = json!({ "notifications": { "resourceSubscriptions": [CLOSED, OPEN] } });
        let body = ana.message(&json!("listen"), "subscriptions/listen", wanted);
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        stream.write_all(&ana.bytes("subscriptions/listen", None, &body)).unwrap();
        let agreed = until(&mut stream, "\n\n");
        assert!(agreed.contains(OPEN) && !agreed.contains(CLOSED), "{agreed}");
        stream
    } else {
        let refused = ana.ask("resources/subscribe", json!({ "uri": CLOSED }));
        assert_eq!(refused.code(), -32002, "{refused:?}");
        let unknown = ana.ask("resources/subscribe", json!({ "uri": "file:///never" }));
        assert_eq!(refused.json()["error"]["message"], unknown.json()["error"]["message"]);
        let mut stream = ana.stream(None);
        until(&mut stream, "200 OK");
        let agreed = ana.ask("resources/subscribe", json!({ "uri": OPEN }));
        assert!(agreed.json()["result"].is_object(), "{agreed:?}");
        stream
    }
}

#[test]
fn only_who_may_read_a_resource_is_told_that_it_changes() {
    for (client, server_era) in ERAS.into_iter().flat_map(|era| ERAS.map(|other| (era, other))) {
        let (go, wait) = channel();
        let server = telling(server_era, wait);
        let gateway = Config::of(&server.url()).policy(RULES).start();
        let mut stream = watch(&gateway, client);
        go.send(()).unwrap();
        let seen = until(&mut stream, OPEN);
        assert!(!seen.contains(CLOSED), "{client:?} to {server_era:?}: {seen}");
        for call in server.calls() {
            assert!(!call.body.to_string().contains(CLOSED), "{call:?}");
        }
    }
}

#[test]
fn who_watches_a_resource_is_told_again_after_the_stream_of_its_server_was_lost() {
    for (client, server_era) in ERAS.into_iter().flat_map(|era| ERAS.map(|other| (era, other))) {
        let (streams, is_lost) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let server = losing(server_era, &streams, &is_lost);
        let gateway = Config::of(&server.url()).policy(RULES).start();
        let mut stream = watch(&gateway, client);
        eventually("the stream of the server", || {
            (!streams.lock().unwrap().is_empty()).then_some(())
        });
        is_lost.store(true, Ordering::SeqCst);
        for lost in streams.lock().unwrap().drain(..) {
            drop(lost.shutdown(Shutdown::Both));
        }
        let seen = until(&mut stream, OPEN);
        assert!(!seen.contains(CLOSED), "{client:?} to {server_era:?}: {seen}");
    }
}

/// A legacy server that keeps its streams for the test to close, and knows no session any more once `is_lost`.
fn forgetting(streams: &Arc<Mutex<Vec<TcpStream>>>, is_lost: &Arc<AtomicBool>) -> Server {
    let (streams, is_lost) = (Arc::clone(streams), Arc::clone(is_lost));
    Server::start(move |call: &Call, stream| {
        let bytes = match call.method() {
            "server/discover" => answer("400 Bad Request", "text/plain", "no"),
            "initialize" => with_header(
                &call.result(&json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "resources": { "subscribe": true } },
                    "serverInfo": { "name": "fake", "version": "1" },
                })),
                "mcp-session-id: s\r\n",
            ),
            _ if is_lost.load(Ordering::SeqCst) => answer("404 Not Found", "text/plain", "no"),
            "" if call.head.starts_with("GET") => {
                let is_open = stream.write_all(HEAD.as_bytes()).is_ok();
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                // Until the test closes it.
                drop(stream.read(&mut [0]));
                return is_open && !is_lost.load(Ordering::SeqCst);
            }
            "resources/list" => {
                call.result(&json!({ "resources": [{ "uri": OPEN, "name": "open" }] }))
            }
            _ if call.body["id"].is_null() => {
                b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
            }
            _ => call.result(&json!({})),
        };
        stream.write_all(&bytes).is_ok()
    })
}

#[test]
fn who_watches_a_resource_of_a_server_that_forgot_its_session_is_told_so() {
    for client in ERAS {
        let (streams, is_lost) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let server = forgetting(&streams, &is_lost);
        let gateway = Config::of(&server.url()).policy(RULES).start();
        let mut stream = watch(&gateway, client);
        eventually("the stream of the server", || {
            (!streams.lock().unwrap().is_empty()).then_some(())
        });
        is_lost.store(true, Ordering::SeqCst);
        for lost in streams.lock().unwrap().drain(..) {
            drop(lost.shutdown(Shutdown::Both));
        }
        // The end of the stream, after which the client listens again.
        until(&mut stream, "0\r\n\r\n");
    }
}

#[test]
fn a_listener_names_no_more_resources_than_may_be_whether_or_not_it_may_have_them() {
    for era in ERAS {
        let (go, wait) = channel();
        drop(go);
        let server = telling(era, wait);
        let gateway =
            Config::of(&server.url()).policy(RULES).limits("inspectionWork: 9000000").start();
        let ana = gateway.client(Era::Modern, ANA);
        let listen = |uris: Vec<String>| {
            let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
            let body = ana.message(&json!("listen"), "subscriptions/listen", wanted);
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            stream.write_all(&ana.bytes("subscriptions/listen", None, &body)).unwrap();
            stream
        };
        let denied = |count: usize| (0..count).map(|n| format!("{CLOSED}/{n}")).collect::<Vec<_>>();
        for uris in [denied(257), vec![OPEN.to_owned(); 257]] {
            let refused = e2e::client::read(&mut listen(uris));
            assert_eq!((refused.status, refused.code()), (400, -32602), "{era:?}: {refused:?}");
            assert_eq!(gateway.last()["reason"], "invalid-params", "{era:?}");
        }
        for uris in [denied(256), vec![OPEN.to_owned(); 256]] {
            until(&mut listen(uris), "subscriptions/acknowledged");
        }
    }
}

#[test]
fn what_a_listener_names_has_the_budget_of_one_message() {
    for era in ERAS {
        let (go, wait) = channel();
        drop(go);
        let server = telling(era, wait);
        let all = RULES.replace(OPEN, "*");
        let gateway = Config::of(&server.url()).policy(&all).limits("inspectionWork: 1500000");
        let gateway = gateway.start();
        let ana = gateway.client(Era::Modern, ANA);
        let long = "word/".repeat(380);
        let long: Vec<_> = (0..256).map(|n| format!("{OPEN}/{n}/{long}")).collect();
        let wanted = json!({ "notifications": { "resourceSubscriptions": long } });
        let withheld = ana.ask("subscriptions/listen", wanted).json();
        assert_eq!(withheld["error"]["data"]["reason"], "content", "{era:?}: {withheld}");
        let record = gateway.last();
        assert!(record["found"].to_string().contains("inspection-budget"), "{era:?}: {record}");
    }
}
