//! What a server asks in mid-call, and what a client is given to carry meanwhile: it opens for the
//! same call of the same caller alone (vectors PV-40 to PV-45).

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

use e2e::client::{Answer, Client};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway};
use e2e::server::{Server, tool, with_header};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::revoking::{revoke, switchable};

const RULES: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

fn question(message: &str) -> Value {
    let fields = json!({ "v": { "type": "integer" }, "key": { "type": "string" }, "name": { "type": "string" } });
    json!({ "mode": "form", "message": message, "requestedSchema": { "type": "object", "properties": fields } })
}

/// A legacy server whose tool asks twice, on the stream of the call, and then says what it was told.
pub(crate) fn legacy() -> (Server, Arc<Mutex<Vec<Value>>>) {
    let answers: Arc<Mutex<Vec<Value>>> = Arc::default();
    let heard = Arc::clone(&answers);
    let waiting: Arc<Mutex<Vec<Sender<Value>>>> = Arc::default();
    let server = Server::start(move |call, stream| {
        let done = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
        match call.method() {
            "initialize" => {
                let result = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "fake", "version": "1" } });
                let answer = with_header(&call.result(&result), "mcp-session-id: s\r\n");
                stream.write_all(&answer).is_ok()
            }
            "tools/list" => {
                stream.write_all(&call.result(&json!({ "tools": [tool("ask")] }))).is_ok()
            }
            "tools/call" => {
                let (sender, told) = mpsc::channel();
                waiting.lock().unwrap().push(sender);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                if stream.write_all(head.as_bytes()).is_err() {
                    return false;
                }
                for (id, message) in [("q-1", "first?"), ("q-2", "second?")] {
                    let asked = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": question(message) });
                    event(stream, &asked);
                    let Ok(answer) = told.recv() else { return false };
                    heard.lock().unwrap().push(answer);
                }
                let result = json!({ "content": [{ "type": "text", "text": "both" }] });
                event(
                    stream,
                    &json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result }),
                );
                stream.write_all(b"0\r\n\r\n").is_ok()
            }
            "" if call.body["id"].is_string() => {
                let last = waiting.lock().unwrap().last().cloned();
                drop(last.map(|last| last.send(call.body.clone())));
                stream.write_all(done).is_ok()
            }
            "" => stream.write_all(&e2e::server::answer("405 No", "text/plain", "no")).is_ok(),
            "server/discover" => {
                stream.write_all(&e2e::server::answer("400 No", "text/plain", "no")).is_ok()
            }
            _ => stream.write_all(done).is_ok(),
        }
    });
    (server, answers)
}

fn event(stream: &mut TcpStream, message: &Value) {
    let event = format!("event: message\ndata: {message}\n\n");
    drop(stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()));
}

/// A modern server whose tool asks once and remembers by its state.
fn modern() -> Server {
    Server::with(Era::Modern, json!([tool("ask")]), |call, stream| {
        let params = &call.body["params"];
        let result = if params["requestState"] == "upstream-state" {
            json!({ "resultType": "complete", "content": [{ "type": "text", "text": params["inputResponses"]["name"]["action"] }] })
        } else {
            json!({ "resultType": "input_required", "requestState": "upstream-state", "x-more": 1,
                "inputRequests": { "name": { "method": "elicitation/create", "params": question("first?") } } })
        };
        stream.write_all(&call.result(&result)).is_ok()
    })
}

pub(crate) fn able(gateway: &Gateway, era: Era, key: &str) -> Client {
    Client::able(gateway.address, "/mcp", era, Some(key), &json!({ "elicitation": {} }))
}

pub(crate) fn again(client: &Client, arguments: &Value, state: &Value, inputs: &Value) -> Answer {
    client.ask(
        "tools/call",
        json!({ "name": "ask", "arguments": arguments, "requestState": state, "inputResponses": inputs }),
    )
}

#[test]
fn a_modern_client_answers_a_legacy_server_whose_call_waits() {
    let (server, heard) = legacy();
    let gateway = Config::asked(&server.url()).policy(RULES).start();
    let ana = able(&gateway, Era::Modern, ANA);
    let arguments = json!({ "n": 1 });
    let mut answer = ana.call("ask", &arguments).json();
    for (n, message) in ["first?", "second?"].into_iter().enumerate() {
        let result = answer["result"].clone();
        assert_eq!(result["resultType"], "input_required", "{answer}");
        let (key, asked) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(
            (&asked["method"], &asked["params"]["message"]),
            (&json!("elicitation/create"), &json!(message))
        );
        let state = result["requestState"].clone();
        if n == 0 {
            // Of somebody else, for another call, changed, or without the answer: it does not open,
            // or the same is asked again.
            let bob = able(&gateway, Era::Modern, BOB);
            assert_eq!(again(&bob, &arguments, &state, &json!({})).code(), -32602);
            assert_eq!(again(&ana, &json!({ "n": 2 }), &state, &json!({})).code(), -32602);
            let text = state.as_str().unwrap();
            let rest = text.get(1..).unwrap();
            let changed = json!(format!("A{rest}"));
            let changed = if changed == state { json!(format!("B{rest}")) } else { changed };
            assert_eq!(again(&ana, &arguments, &changed, &json!({})).code(), -32602);
            assert_eq!(gateway.last()["reason"], "invalid-params");
            answer =
                again(&ana, &arguments, &state, &json!({ "other": { "action": "accept" } })).json();
            assert_eq!(
                answer["result"]["inputRequests"][key]["params"]["message"], message,
                "{answer}"
            );
            assert!(heard.lock().unwrap().is_empty());
        }
        let state = answer["result"]["requestState"].clone();
        let inputs = json!({ key: { "action": "accept", "content": { "v": n } } });
        answer = again(&ana, &arguments, &state, &inputs).json();
        // The call has gone on: the same state does not answer twice.
        assert_eq!(again(&ana, &arguments, &state, &inputs).code(), -32602);
    }
    assert_eq!(answer["result"]["content"][0]["text"], "both", "{answer}");
    let heard = heard.lock().unwrap();
    assert_eq!((&heard[0]["id"], &heard[0]["result"]["content"]["v"]), (&json!("q-1"), &json!(0)));
    assert_eq!((&heard[1]["id"], &heard[1]["result"]["content"]["v"]), (&json!("q-2"), &json!(1)));
    assert_eq!(server.tool_calls().len(), 1, "the server was called once");
    let rounds = gateway.exchanges();
    assert_eq!(rounds.iter().filter(|r| r["reason"] == "input-required").count(), 3);
}

#[test]
fn the_state_of_a_modern_server_is_sealed_for_the_call_it_belongs_to() {
    let server = modern();
    let gateway = Config::asked(&server.url()).policy(RULES).start();
    let (ana, bob) = (able(&gateway, Era::Modern, ANA), able(&gateway, Era::Modern, BOB));
    let answer = ana.call("ask", &json!({ "to": "x" }));
    assert!(!answer.body.contains("upstream-state"));
    let answer = answer.json();
    assert_eq!(answer["result"]["x-more"], 1);
    let state = answer["result"]["requestState"].clone();
    let inputs = json!({ "name": { "action": "accept" } });
    for (client, arguments, state) in [
        (&bob, json!({ "to": "x" }), &state),
        (&ana, json!({ "to": "y" }), &state),
        (&ana, json!({ "to": "x" }), &json!("upstream-state")),
    ] {
        assert_eq!(again(client, &arguments, state, &inputs).code(), -32602);
    }
    assert_eq!(server.tool_calls().len(), 1);
    // AV-65: no other text of this length or less is a state.
    let text = state.as_str().unwrap();
    for at in 0..text.len() {
        let mut changed = text.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        for wrong in [&*changed, text.get(..at).unwrap()] {
            let answer = again(&ana, &json!({ "to": "x" }), &json!(wrong), &inputs);
            assert_eq!(answer.code(), -32602, "{at}");
        }
    }
    assert_eq!(server.tool_calls().len(), 1);
    let done = again(&ana, &json!({ "to": "x" }), &state, &inputs).json();
    assert_eq!(done["result"]["content"][0]["text"], "accept", "{done}");
    // It is good for a time.
    let gateway = Config::asked(&server.url()).policy(RULES).limits("inputTimeout: 1s").start();
    let ana = able(&gateway, Era::Modern, ANA);
    let answer = ana.call("ask", &json!({ "to": "x" })).json();
    let state = answer["result"]["requestState"].clone();
    assert!(state.is_string(), "{answer}");
    eventually("the state expires", || {
        (again(&ana, &json!({ "to": "x" }), &state, &inputs).code() == -32602).then_some(())
    });
}

#[test]
fn a_call_that_waits_is_given_up_when_its_client_does_not_come_back() {
    let (server, _) = legacy();
    let gateway = Config::asked(&server.url()).policy(RULES).limits("inputTimeout: 100ms").start();
    let ana = able(&gateway, Era::Modern, ANA);
    assert_eq!(ana.call("ask", &json!({})).json()["result"]["resultType"], "input_required");
    eventually("the server is told", || {
        (server.count("notifications/cancelled") > 0).then_some(())
    });
}

#[test]
fn a_server_that_asks_what_the_client_does_not_offer_gets_an_error_and_so_does_the_client() {
    for era in ERAS {
        let server = modern();
        let gateway = Config::asked(&server.url()).policy(RULES).start();
        let plain = gateway.client(era, ANA);
        let answer = plain.call("ask", &json!({}));
        assert_eq!(answer.code(), -32021, "{answer:?}");
        assert_eq!(
            answer.json()["error"]["data"]["requiredCapabilities"],
            json!({ "elicitation": {} })
        );
        assert_eq!(gateway.last()["reason"], "client-capability");
    }
    let (server, heard) = legacy();
    let gateway = Config::asked(&server.url()).policy(RULES).start();
    let plain = gateway.client(Era::Legacy, ANA);
    assert_eq!(plain.call("ask", &json!({})).json()["result"]["content"][0]["text"], "both");
    assert!(heard.lock().unwrap().iter().all(|answer| answer["error"]["code"] == -32601));
}

/// An answer to no question, or to somebody else's, answers nothing.
#[test]
fn a_client_answers_its_own_questions_alone() {
    let (server, heard) = legacy();
    let gateway = Config::asked(&server.url()).policy(RULES).start();
    let (ana, bob) = (able(&gateway, Era::Legacy, ANA), able(&gateway, Era::Legacy, BOB));
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&ana.call_bytes(&json!(1), &json!({ "name": "ask" }))).unwrap();
    let mut seen = String::new();
    for (n, message) in ["first?", "second?"].into_iter().enumerate() {
        let id = asked(&mut stream, &mut seen, message);
        let answer = |client: &Client, id: &Value| {
            let body = json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "decline" } });
            e2e::client::raw(client.address, &client.bytes("", None, &body.to_string())).status
        };
        assert_eq!(answer(&bob, &id), 202);
        assert_eq!(answer(&ana, &json!(4711)), 202);
        assert_eq!(heard.lock().unwrap().len(), n);
        assert_eq!(answer(&ana, &id), 202);
    }
    eventually("the answer", || {
        read_more(&mut stream, &mut seen);
        seen.contains(r#""text":"both""#).then_some(())
    });
    assert_eq!(heard.lock().unwrap().len(), 2);
}

/// What a client answers goes to a server, and is looked at as arguments are.
#[test]
fn a_secret_in_an_answer_is_not_sent() {
    let secret = "AKIAQ3EGRZ7XK2MWPLVT";
    let (server, heard) = legacy();
    let policy = format!("{RULES}\ncontent: [{{servers: [up], arguments: {{secrets: block}}}}]");
    let gateway = Config::asked(&server.url()).policy(&policy).start();
    let ana = able(&gateway, Era::Legacy, ANA);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&ana.call_bytes(&json!(1), &json!({ "name": "ask" }))).unwrap();
    let mut seen = String::new();
    for (message, key) in [("first?", secret), ("second?", "harmless")] {
        let id = asked(&mut stream, &mut seen, message);
        let result = json!({ "action": "accept", "content": { "key": key } });
        let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        let status = e2e::client::raw(ana.address, &ana.bytes("", None, &body.to_string())).status;
        assert_eq!(status, 202);
    }
    eventually("the answer", || {
        read_more(&mut stream, &mut seen);
        seen.contains(r#""text":"both""#).then_some(())
    });
    let heard = heard.lock().unwrap();
    assert!(heard[0]["error"].is_object(), "{heard:?}");
    assert_eq!(heard[1]["result"]["content"]["key"], "harmless");
    assert!(server.calls().iter().all(|call| !call.body.to_string().contains(secret)));
}

/// The same of guardrails, and what is found is on record, whether it is sent or not.
#[test]
fn an_answer_of_a_legacy_client_is_put_to_guardrails_and_what_is_found_in_it_is_on_record() {
    let secret = "AKIAQ3EGRZ7XK2MWPLVT";
    let policy = format!("{RULES}\ncontent: [{{servers: [up], arguments: {{secrets: audit}}}}]");
    for server_era in ERAS {
        let (server, heard) = match server_era {
            Era::Legacy => legacy(),
            Era::Modern => (modern(), Arc::default()),
        };
        let guard = crate::places::guard();
        let mut config = Config::asked(&server.url()).policy(&policy);
        let guardrail = format!("{{name: guard, url: '{}', onFailure: deny}}", guard.url());
        config.routes = format!("- {{path: /mcp, servers: [up], guardrails: [{guardrail}]}}");
        let gateway = config.start();
        let ana = able(&gateway, Era::Legacy, ANA);
        let begun = |id: u8| {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            stream.write_all(&ana.call_bytes(&json!(id), &json!({ "name": "ask" }))).unwrap();
            (stream, String::new())
        };
        let (mut stream, mut seen) = begun(1);
        for (n, text) in ["nasty name", secret].into_iter().enumerate() {
            // A modern server is told of an answer with another request, which is the last of its call.
            let message = match server_era {
                Era::Modern if n > 0 => {
                    (stream, seen) = begun(2);
                    "first?"
                }
                _ => ["first?", "second?"][n],
            };
            let id = asked(&mut stream, &mut seen, message);
            let result = json!({ "action": "accept", "content": { "name": text } });
            let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            let taken = e2e::client::raw(ana.address, &ana.bytes("", None, &body.to_string()));
            assert_eq!(taken.status, 202);
            if server_era == Era::Modern || n > 0 {
                eventually("the end of the call", || {
                    let is_whole = seen.ends_with("\r\n0\r\n\r\n");
                    if !is_whole {
                        read_more(&mut stream, &mut seen);
                    }
                    is_whole.then_some(())
                });
            }
        }
        let sent = |text: &str| server.calls().iter().any(|c| c.body.to_string().contains(text));
        assert!(!sent("nasty name") && sent(secret), "{server_era:?}");
        assert!(guard.calls().iter().any(|call| call.body["part"] == "answers"));
        let found: Vec<_> = gateway.exchanges().iter().map(|r| r["found"].to_string()).collect();
        let found = found.concat();
        assert!(
            found.contains("guardrail") && found.contains("secrets"),
            "{server_era:?}: {found}"
        );
        if server_era == Era::Legacy {
            assert!(heard.lock().unwrap()[0]["error"].is_object(), "{heard:?}");
        }
    }
}

pub(crate) fn read_more(stream: &mut TcpStream, seen: &mut String) {
    use std::io::Read as _;
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer).unwrap();
    seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
}

#[expect(clippy::disallowed_methods, reason = "the gateway's output, not a peer's")]
pub(crate) fn asked(stream: &mut TcpStream, seen: &mut String, message: &str) -> Value {
    eventually("the question", || {
        let found = seen.lines().filter_map(|line| line.strip_prefix("data: ")).find_map(|data| {
            let asked: Value = serde_json::from_str(data).ok()?;
            (asked["params"]["message"] == message).then(|| asked["id"].clone())
        });
        if found.is_none() {
            read_more(stream, seen);
        }
        found
    })
}

#[test]
fn one_caller_leaves_room_for_calls_of_others_that_wait() {
    let (server, _heard) = legacy();
    let gateway =
        Config::asked(&server.url()).policy(RULES).limits("pendingElicitations: 2").start();
    let (ana, bob) = (able(&gateway, Era::Modern, ANA), able(&gateway, Era::Modern, BOB));
    let arguments = |n: u64| json!({ "n": n });
    let waits = |answer: &Value| answer["result"]["resultType"] == "input_required";
    let first = ana.call("ask", &arguments(1)).json();
    assert!(waits(&first), "{first}");
    // One whose call cannot wait is told so, and not that it does.
    let second = ana.call("ask", &arguments(2));
    assert_eq!((second.status, second.header("retry-after")), (429, Some("1")), "{second:?}");
    assert_eq!(second.json()["error"]["data"]["reason"], "caller-limit-elicitations");
    assert_eq!(gateway.last()["reason"], "caller-limit-elicitations");
    let other = bob.call("ask", &arguments(1)).json();
    assert!(waits(&other), "{other}");
    // What waited before still does: without an answer the same is asked again.
    let state = first["result"]["requestState"].clone();
    let again = again(&ana, &arguments(1), &state, &json!({})).json();
    assert!(waits(&again), "{again}");
}

#[test]
fn a_call_that_waits_for_its_client_ends_when_it_is_revoked_and_leaves_its_place_to_others() {
    for body in [json!({ "principals": ["ana"] }), json!({ "tools": ["up/ask"] })] {
        let ((server, _heard), folder) = (legacy(), Folder::new());
        let limits = "pendingElicitations: 2\npendingElicitationsPerCaller: 2";
        let config = Config::asked(&server.url()).policy(RULES).limits(limits);
        let gateway = switchable(config, &folder).start();
        let ana = able(&gateway, Era::Modern, ANA);
        let waits = |answer: &Value| answer["result"]["resultType"] == "input_required";
        let both = [1, 2].map(|n| ana.call("ask", &json!({ "n": n })).json());
        assert!(both.iter().all(waits), "{both:?}");
        revoke(&gateway, &body);
        let lifted = crate::revoking::change(&gateway, "DELETE", "operator-secret", &body);
        assert_eq!(lifted.status, 200);
        // It does not come back with the right.
        let state = both[0]["result"]["requestState"].clone();
        let gone = again(&ana, &json!({ "n": 1 }), &state, &json!({})).json();
        assert!(gone["error"].is_object(), "{gone}");
        let bob = able(&gateway, Era::Modern, BOB);
        let others = [1, 2].map(|n| bob.call("ask", &json!({ "n": n })).json());
        assert!(others.iter().all(waits), "{others:?}");
    }
}

/// A legacy server that does not begin its response to a call of `ask` before its question on the stream of the session
/// is answered, and does not answer `never` at all.
fn asking_elsewhere() -> Server {
    let streams: Mutex<BTreeMap<String, TcpStream>> = Mutex::default();
    let (sender, told) = mpsc::channel();
    let (sender, told) = (Mutex::new(sender), Mutex::new(told));
    let count = AtomicUsize::new(0);
    Server::start(move |call, stream| {
        let session = crate::streaming::session_of(call);
        let bytes = match (call.method(), call.tool()) {
            ("initialize", _) => {
                let result = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "fake", "version": "1" } });
                let number = count.fetch_add(1, Ordering::SeqCst);
                with_header(&call.result(&result), &format!("mcp-session-id: s-{number}\r\n"))
            }
            ("tools/list", _) => call.result(&json!({ "tools": [tool("ask"), tool("never")] })),
            ("tools/call", "ask") => {
                let asked = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": question("now?") });
                eventually("the stream of the session", || {
                    let mut streams = streams.lock().unwrap();
                    streams.get_mut(&session).map(|stream| event(stream, &asked))
                });
                let Ok(answer) = told.lock().unwrap().recv() else { return false };
                let answer: Value = answer;
                call.text(answer["result"]["action"].as_str().unwrap_or("none"))
            }
            // Until the gateway has given it up.
            ("tools/call", _) => return stream.read(&mut [0]).is_ok_and(|read| read > 0),
            ("", _) if call.body["id"].is_string() => {
                drop(sender.lock().unwrap().send(call.body.clone()));
                b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
            }
            ("", _) if call.head.starts_with("GET") => {
                streams.lock().unwrap().insert(session, stream.try_clone().unwrap());
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
            }
            _ => e2e::server::greeting(call, Era::Legacy),
        };
        stream.write_all(&bytes).is_ok()
    })
}

#[test]
fn a_person_may_take_longer_than_a_server_also_where_the_response_has_not_begun() {
    let server = asking_elsewhere();
    let gateway = Config::asked(&server.url()).policy(RULES).limits("responseTimeout: 1s").start();
    let (ana, bob) = (able(&gateway, Era::Modern, ANA), able(&gateway, Era::Modern, BOB));
    let asked = ana.call("ask", &json!({})).json();
    let state = asked["result"]["requestState"].clone();
    assert!(state.is_string(), "{asked}");
    // When this has failed, the time that a server may be silent has passed since the question.
    let silent = bob.call("never", &json!({}));
    assert_eq!(silent.code(), -32603, "{silent:?}");
    let key = asked["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let inputs = json!({ key: { "action": "decline" } });
    let answer = again(&ana, &json!({}), &state, &inputs);
    assert_eq!(answer.text(), "decline", "{answer:?}");
}

/// A legacy server whose tool reports progress on the stream of its call and asks there; the rest of its progress comes
/// on the stream of the session, when a test says so.
struct Reporting {
    server: Server,
    /// The streams of its sessions, by session id.
    streams: Arc<Mutex<BTreeMap<String, TcpStream>>>,
    /// When the gateway has answered a ping.
    ponged: mpsc::Receiver<()>,
}

fn progress(token: &Value, done: usize) -> Value {
    let params = json!({ "progressToken": token, "progress": done });
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
}

impl Reporting {
    fn start() -> Self {
        let streams: Arc<Mutex<BTreeMap<String, TcpStream>>> = Arc::default();
        let (kept, count) = (Arc::clone(&streams), AtomicUsize::new(0));
        let (pong, ponged) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (told, ended) = (Mutex::new(told), Mutex::new(ended));
        let (pong, tell, end) = (Mutex::new(pong), Mutex::new(tell), Mutex::new(end));
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let taken = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
        let server = Server::start(move |call, stream| {
            let id = call.body["id"].as_str().unwrap_or_default();
            match (call.method(), id) {
                ("tools/call", _) => {
                    let begun = stream.write_all(head).is_ok();
                    event(stream, &progress(&call.body["params"]["_meta"]["progressToken"], 1));
                    let asked = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": question("now?") });
                    event(stream, &asked);
                    let answer: Result<Value, _> = told.lock().unwrap().recv_timeout(e2e::PATIENCE);
                    let Ok(answer) = answer else { return false };
                    let content = json!([{ "type": "text", "text": answer["result"]["action"] }]);
                    let result = json!({ "content": content });
                    event(
                        stream,
                        &json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result }),
                    );
                    let whole = begun && stream.write_all(b"0\r\n\r\n").is_ok();
                    end.lock().unwrap().send(()).is_ok() && whole
                }
                ("", "q") => {
                    drop(tell.lock().unwrap().send(call.body.clone()));
                    // The call has ended by the time that the answer to its question is taken.
                    ended.lock().unwrap().recv_timeout(e2e::PATIENCE).is_ok()
                        && stream.write_all(taken).is_ok()
                }
                ("", "p") => {
                    pong.lock().unwrap().send(()).is_ok() && stream.write_all(taken).is_ok()
                }
                ("", _) if call.head.starts_with("GET") => {
                    let session = crate::streaming::session_of(call);
                    let begun = stream.write_all(head).is_ok();
                    kept.lock().unwrap().insert(session, stream.try_clone().unwrap());
                    begun
                }
                ("initialize", _) => {
                    let result = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                        "serverInfo": { "name": "fake", "version": "1" } });
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    let session = format!("mcp-session-id: s-{number}\r\n");
                    stream.write_all(&with_header(&call.result(&result), &session)).is_ok()
                }
                ("tools/list", _) => {
                    stream.write_all(&call.result(&json!({ "tools": [tool("work")] }))).is_ok()
                }
                _ => stream.write_all(&e2e::server::greeting(call, Era::Legacy)).is_ok(),
            }
        });
        Self { server, streams, ponged }
    }

    fn gateway(&self) -> Gateway {
        Config::asked(&self.server.url()).policy(RULES).start()
    }

    /// Reports on the stream of the session how far the latest call is, and waits until that was read.
    fn reports(&self, steps: impl IntoIterator<Item = usize>) {
        let call = self.server.tool_calls().pop().unwrap();
        let session = crate::streaming::session_of(&call);
        let mut stream = eventually("the stream of the session", || {
            let streams = self.streams.lock().unwrap();
            streams.get(&session).map(|stream| stream.try_clone().unwrap())
        });
        for done in steps {
            event(&mut stream, &progress(&call.body["params"]["_meta"]["progressToken"], done));
        }
        event(&mut stream, &json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" }));
        self.ponged.recv_timeout(e2e::PATIENCE).unwrap();
    }
}

/// Begins a call of `work` that wants progress: what its client has to send with the answer.
fn works(client: &Client) -> (Value, Value) {
    let meta = json!({ "progressToken": "first" });
    let answer =
        client.ask("tools/call", json!({ "name": "work", "arguments": {}, "_meta": meta }));
    let events = answer.events();
    assert!(events[0].contains(r#""progressToken":"first""#), "{answer:?}");
    let result = answer.json()["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{answer:?}");
    let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    (result["requestState"].clone(), json!({ key: { "action": "decline" } }))
}

/// Comes back with the answer, and with `meta`: how far the call was said to be, under the token `second`.
#[expect(clippy::disallowed_methods, reason = "the gateway's output, not a peer's")]
fn comes_back(client: &Client, (state, inputs): &(Value, Value), meta: &Value) -> Vec<u64> {
    let answer = client.ask(
        "tools/call",
        json!({ "name": "work", "arguments": {}, "requestState": state, "inputResponses": inputs, "_meta": meta }),
    );
    assert_eq!(answer.text(), "decline", "{answer:?}");
    let told = answer.events().into_iter().filter(|event| event.contains("notifications/progress"));
    let told = told.map(|event| {
        let params = serde_json::from_str::<Value>(&event).unwrap()["params"].clone();
        assert_eq!(params["progressToken"], "second", "{event}");
        params["progress"].as_u64().unwrap()
    });
    told.collect()
}

fn lost(gateway: &Gateway) -> u64 {
    gateway.metric_now("portcullis_progress_dropped_total{server=\"up\"}")
}

#[test]
fn progress_on_the_stream_of_a_session_that_follows_a_question_is_told_when_the_client_comes_back()
{
    let reporting = Reporting::start();
    let gateway = reporting.gateway();
    let ana = able(&gateway, Era::Modern, ANA);
    let begun = works(&ana);
    // The response to the call is there before all of it could be passed on.
    reporting.reports(2..=41);
    let told = comes_back(&ana, &begun, &json!({ "progressToken": "second" }));
    assert_eq!((told, lost(&gateway)), ((2..=41).collect::<Vec<_>>(), 0));
}

#[test]
fn of_much_progress_while_a_call_waits_for_its_client_the_latest_is_told() {
    let reporting = Reporting::start();
    let gateway = reporting.gateway();
    let ana = able(&gateway, Era::Modern, ANA);
    let begun = works(&ana);
    reporting.reports(2..=101);
    let told = comes_back(&ana, &begun, &json!({ "progressToken": "second" }));
    // 63 beside the response.
    assert_eq!(told, (39..=101).collect::<Vec<_>>());
    assert_eq!(lost(&gateway), 37);
}

/// SPEC 2026-07-28 basic/patterns/progress#behavior-requirements: progress names a token of an active request.
#[test]
fn a_client_that_comes_back_without_a_progress_token_is_told_of_none() {
    let reporting = Reporting::start();
    let gateway = reporting.gateway();
    let ana = able(&gateway, Era::Modern, ANA);
    let begun = works(&ana);
    reporting.reports([2, 3]);
    assert_eq!(comes_back(&ana, &begun, &json!({})), Vec::<u64>::new());
    eventually("it is counted", || (lost(&gateway) == 2).then_some(()));
}
