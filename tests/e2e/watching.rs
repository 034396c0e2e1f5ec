//! Who is told that a resource changes: who may read it, whatever the server says.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use e2e::client::until;
use e2e::gateway::{ANA, Config, Gateway};
use e2e::server::{Call, Server, answer, ok, with_header};
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
    watched_when(era, || {}, told)
}

/// The same, once `ready` returns.
fn watched_when(
    era: Era,
    ready: impl Fn() + Send + Sync + 'static,
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
                ready();
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
#[expect(clippy::disallowed_methods, reason = "the wait is of real time")]
fn a_legacy_client_that_subscribes_waits_for_a_server_that_has_not_agreed_yet() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let ready = move || assert!(wait.lock().unwrap().recv().is_err());
    let server = watched_when(Era::Modern, ready, |stream, _| stream.read(&mut [0]).is_err());
    let gateway = Config::of(&server.url()).policy(RULES).limits("connectTimeout: 1s").start();
    let ana = gateway.client(Era::Legacy, ANA);
    let _stream = ana.stream(None);
    eventually("the question", || (server.count("subscriptions/listen") == 1).then_some(()));
    let begun = Instant::now();
    let agreed = ana.ask("resources/subscribe", json!({ "uri": OPEN }));
    assert!(agreed.json()["result"].is_object(), "{agreed:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(go);
}

const OTHER: &str = "file:///other";
const BOTH: &str = "rules:\n- {id: some, effect: allow, principals: ['group:dev'], servers: ['*'], \
                    resources: ['file:///open', 'file:///other']}";

/// A legacy server that says nothing on its streams, and answers `resources/subscribe` as `asked` does.
fn asked_to_watch(asked: impl Fn(&Call) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let sessions = AtomicUsize::new(0);
    Server::start(move |call: &Call, stream| {
        let bytes = match call.method() {
            "server/discover" => answer("400 Bad Request", "text/plain", "no"),
            "initialize" => {
                let session = sessions.fetch_add(1, Ordering::SeqCst);
                let capabilities = json!({ "resources": { "subscribe": true } });
                let result = json!({
                    "protocolVersion": "2025-11-25", "capabilities": capabilities,
                    "serverInfo": { "name": "fake", "version": "1" },
                });
                with_header(&call.result(&result), &format!("mcp-session-id: s{session}\r\n"))
            }
            "" if call.head.starts_with("GET") => {
                let is_open = stream.write_all(HEAD.as_bytes()).is_ok();
                // Until the gateway closes it.
                drop(stream.read(&mut [0]));
                return is_open;
            }
            "resources/list" => {
                let resources = [OPEN, OTHER].map(|uri| json!({ "uri": uri, "name": uri }));
                call.result(&json!({ "resources": resources }))
            }
            "resources/subscribe" => asked(call),
            _ if call.body["id"].is_null() => {
                b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
            }
            _ => call.result(&json!({})),
        };
        stream.write_all(&bytes).is_ok()
    })
}

/// Asks for news of `uris`; of the answer nothing was read.
fn listen(gateway: &Gateway, uris: &[&str]) -> TcpStream {
    let ana = gateway.client(Era::Modern, ANA);
    let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
    let body = ana.message(&json!("listen"), "subscriptions/listen", wanted);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&ana.bytes("subscriptions/listen", None, &body)).unwrap();
    stream
}

#[test]
fn a_resource_that_a_legacy_server_does_not_let_watch_is_left_out_of_what_is_acknowledged() {
    let statuses = ["200 OK", "400 Bad Request", "405 Method Not Allowed", "501 Not Implemented"];
    for status in statuses {
        let server = asked_to_watch(move |call| {
            let error = json!({ "code": -32602, "message": "no" });
            let error = json!({ "jsonrpc": "2.0", "id": call.body["id"], "error": error });
            match status {
                _ if call.body["params"]["uri"] == OPEN => call.result(&json!({})),
                "200 OK" => ok(&error.to_string()),
                status => answer(status, "text/plain", "no"),
            }
        });
        let gateway = Config::of(&server.url()).policy(BOTH).start();
        let agreed = until(&mut listen(&gateway, &[OTHER, OPEN]), "\n\n");
        assert!(agreed.contains(OPEN) && !agreed.contains(OTHER), "{status}: {agreed}");
        assert_eq!(server.count("resources/subscribe"), 2, "{status}");
    }
}

#[test]
fn a_session_that_a_server_forgot_before_a_client_watches_a_resource_is_opened_anew() {
    let session = |call: &Call| {
        let mut lines = call.head.lines();
        lines.find(|line| line.starts_with("mcp-session-id")).unwrap_or_default().to_owned()
    };
    let forgotten = OnceLock::new();
    let server = asked_to_watch(move |call| {
        if session(call) == *forgotten.get_or_init(|| session(call)) {
            answer("404 Not Found", "text/plain", "no")
        } else {
            call.result(&json!({}))
        }
    });
    let gateway = Config::of(&server.url()).policy(BOTH).start();
    until(&mut listen(&gateway, &[OPEN]), OPEN);
    let asked: Vec<_> = server.calls();
    let asked = asked.iter().filter(|call| call.method() == "resources/subscribe").map(session);
    let asked: Vec<_> = asked.collect();
    assert!(asked.len() == 2 && asked[0] != asked[1], "{asked:?}");
}

#[test]
fn nobody_relies_on_a_subscription_to_a_resource_that_has_failed() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let is_first = AtomicBool::new(true);
    let server = asked_to_watch(move |call| {
        if is_first.swap(false, Ordering::SeqCst) {
            assert!(wait.lock().unwrap().recv().is_err());
            return answer("503 Service Unavailable", "text/plain", "no");
        }
        call.result(&json!({}))
    });
    let gateway = Config::of(&server.url()).policy(BOTH).start();
    let _first = listen(&gateway, &[OPEN]);
    let asked = || server.count("resources/subscribe");
    eventually("the first question", || (asked() == 1).then_some(()));
    let mut second = listen(&gateway, &[OPEN]);
    until(&mut second, "text/event-stream");
    drop(go);
    until(&mut second, OPEN);
    eventually("the second question", || (asked() == 2).then_some(()));
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
