//! What callers compete for: one who takes its share leaves the rest to others, is told so, and is on
//! record. `docs/limits.md` has the table.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use e2e::client::{Answer, Client, raw, read, until};
use e2e::gateway::{ANA, BOB, Config, Gateway};
use e2e::server::{Server, answer, greeting, ok, tool};
use e2e::{ERAS, Era, PATIENCE, eventually};
use serde_json::{Value, json};

const ALL: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// A server with the tools `slow`, which is not answered before the sender is dropped, and `quick`.
fn server(era: Era) -> (Server, Sender<()>) {
    let (release, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::with(era, json!([tool("slow"), tool("quick")]), move |call, stream| {
        if call.tool() == "slow" {
            wait.lock().unwrap().recv().unwrap_or_default();
        }
        stream.write_all(&call.text("done")).is_ok()
    });
    (server, release)
}

fn start(server: &Server, limits: &str) -> Gateway {
    Config::of(&server.url()).policy(ALL).limits(limits).start()
}

/// Sends these bytes and does not wait for an answer.
fn begun(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

fn call(client: &Client, id: u64, tool: &str) -> Vec<u8> {
    client.call_bytes(&json!(id), &json!({ "name": tool, "arguments": {} }))
}

fn refused(gateway: &Gateway, answer: &Answer, reason: &str) {
    let told = (answer.status, answer.header("retry-after"));
    assert_eq!(told, (429, Some("1")), "{answer:?}");
    assert_eq!(answer.json()["error"]["data"]["reason"], reason, "{answer:?}");
    let is = |record: &Value| record["reason"] == reason && record["outcome"] == "refused";
    assert!(!gateway.recorded("the refusal", is).is_null());
}

fn end(client: &Client) -> Answer {
    let text = String::from_utf8(client.bytes("x", None, "")).unwrap();
    raw(client.address, text.replacen("POST", "DELETE", 1).as_bytes())
}

#[test]
fn one_caller_leaves_requests_to_others() {
    for era in ERAS {
        let (server, release) = server(era);
        let gateway = start(&server, "inFlight: 4");
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let slow = [1, 2].map(|id| begun(&gateway, &call(&ana, id, "slow")));
        eventually("both calls", || (server.tool_calls().len() == 2).then_some(()));
        refused(&gateway, &ana.call("quick", &json!({})), "caller-limit-requests");
        assert_eq!(bob.call("quick", &json!({})).json()["result"]["content"][0]["text"], "done");
        // One who gives a session back is not held up by what it has begun in others.
        if era == Era::Legacy {
            assert_eq!(end(&ana).status, 200);
        }
        drop(release);
        drop(slow);
        let ana = || gateway.client(Era::Modern, ANA).call("quick", &json!({}));
        eventually("the share is given back", || (ana().status == 200).then_some(()));
    }
}

#[test]
fn bodies_of_one_caller_leave_room_for_those_of_others() {
    for era in ERAS {
        let (server, _release) = server(era);
        let limits = "requestBody: 64KiB\nrequestBodyMemory: 128KiB\nrequestTimeout: 30s";
        let gateway = start(&server, limits);
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let text = "x".repeat(40_000);
        let whole = |client: &Client| {
            let params = json!({ "name": "quick", "arguments": { "text": text } });
            client.call_bytes(&json!(1), &params)
        };
        // Most of a body comes, and then nothing.
        let bytes = whole(&ana);
        let (slow, over) = eventually("the share is taken", || {
            // The whole one may be read before this one: then this one has no room.
            let slow = begun(&gateway, &bytes[..bytes.len() - 100]);
            let answer = raw(gateway.address, &whole(&ana));
            (answer.status != 200).then_some((slow, answer))
        });
        refused(&gateway, &over, "caller-limit-bodies");
        assert_eq!(raw(gateway.address, &whole(&bob)).status, 200);
        drop(slow);
        let again = || (raw(gateway.address, &whole(&ana)).status == 200).then_some(());
        eventually("the share is given back", again);
    }
}

#[test]
fn one_address_does_not_take_every_connection() {
    let (server, _release) = server(Era::Modern);
    let gateway = start(&server, "connections: 8\nconnectionsPerAddress: 2");
    let idle = [(), ()].map(|()| TcpStream::connect(gateway.address).unwrap());
    let closed = || {
        let mut third = TcpStream::connect(gateway.address).unwrap();
        third.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET /mcp HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address);
        drop(third.write_all(request.as_bytes()));
        matches!(third.read(&mut [0; 16]), Ok(0) | Err(_))
    };
    eventually("one too many is closed", || closed().then_some(()));
    assert!(gateway.metric_now("portcullis_connections_refused_total") > 0);
    gateway.says("connection refused");
    drop(idle);
    eventually("there is room again", || (!closed()).then_some(()));
}

#[test]
fn a_session_can_always_be_ended_whoever_has_ended_many() {
    let (server, _release) = server(Era::Modern);
    let gateway = start(&server, "endedSessions: 4");
    let bob = gateway.client(Era::Legacy, BOB);
    let other = gateway.client(Era::Legacy, BOB);
    for _ in 0..40 {
        let ana = gateway.client(Era::Legacy, ANA);
        assert_eq!(end(&ana).status, 200);
        assert_eq!(ana.call("quick", &json!({})).status, 404, "it has ended");
    }
    assert_eq!(end(&bob).status, 200);
    assert_eq!(bob.call("quick", &json!({})).status, 404);
    assert_eq!(other.call("quick", &json!({})).status, 200, "another session goes on");
}

/// A call for which there would be no conversation is not made.
#[test]
fn one_caller_leaves_conversations_to_others_and_nothing_is_refused_after_it_was_done() {
    let (server, _release) = server(Era::Modern);
    let gateway = start(&server, "sessions: 2");
    let (first, second) = (gateway.client(Era::Legacy, ANA), gateway.client(Era::Legacy, ANA));
    let bob = gateway.client(Era::Legacy, BOB);
    let mut stream = first.stream(None);
    until(&mut stream, "id: ");
    refused(&gateway, &second.call("quick", &json!({})), "caller-limit-sessions");
    assert!(server.tool_calls().is_empty(), "nothing was sent");
    assert_eq!(first.call("quick", &json!({})).status, 200);
    assert_eq!(bob.call("quick", &json!({})).json()["result"]["content"][0]["text"], "done");
    assert_eq!(end(&first).status, 200);
    drop(stream);
    let again = || second.call("quick", &json!({})).json()["result"].is_object();
    eventually("the share is given back", || again().then_some(()));
}

/// A call that has something to say on the way, and no stream to say it on, is answered all the same.
#[test]
fn a_call_without_room_for_a_stream_is_answered_as_one_object() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::with(Era::Modern, json!([tool("work")]), move |call, stream| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let token = &call.body["params"]["_meta"]["progressToken"];
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": token, "progress": 1 } });
        drop(stream.write_all(format!("{head}data: {told}\n\n").as_bytes()));
        if call.body["params"]["arguments"]["wait"] == true {
            wait.lock().unwrap().recv().unwrap_or_default();
        }
        let result =
            json!({ "resultType": "complete", "content": [{ "type": "text", "text": "done" }] });
        let done = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result });
        drop(stream.write_all(format!("data: {done}\n\n").as_bytes()));
        false
    });
    let gateway = start(&server, "streams: 1");
    let ana = gateway.client(Era::Legacy, ANA);
    let params = |wait: bool| json!({ "name": "work", "arguments": { "wait": wait }, "_meta": { "progressToken": "t" } });
    let mut first = begun(&gateway, &ana.call_bytes(&json!(1), &params(true)));
    until(&mut first, "\"progress\":1");
    let second = raw(gateway.address, &ana.call_bytes(&json!(2), &params(false)));
    assert_eq!(second.status, 200, "{second:?}");
    assert_eq!(second.header("content-type"), Some("application/json"), "{second:?}");
    assert_eq!(second.json()["result"]["content"][0]["text"], "done");
    drop(go);
    until(&mut first, "done");
}

#[test]
fn one_caller_leaves_event_streams_to_others() {
    for era in ERAS {
        let (server, _release) = server(Era::Modern);
        let gateway = start(&server, "eventStreams: 2");
        let open = |key: &str| -> TcpStream {
            let client = gateway.client(era, key);
            match era {
                Era::Legacy => client.stream(None),
                Era::Modern => {
                    let filter = json!({ "notifications": { "toolsListChanged": true } });
                    let body = client.message(&json!(1), "subscriptions/listen", filter);
                    begun(&gateway, &client.bytes("subscriptions/listen", None, &body))
                }
            }
        };
        let mut ana = open(ANA);
        until(&mut ana, "200 OK");
        let over = read(&mut open(ANA));
        assert_eq!((over.status, over.header("retry-after")), (429, Some("1")), "{over:?}");
        assert_eq!(gateway.last()["reason"], "caller-limit-streams");
        let mut bob = open(BOB);
        until(&mut bob, "200 OK");
        drop(ana);
        eventually("the share is given back", || {
            let mut again = open(ANA);
            let mut head = [0; 12];
            again.read_exact(&mut head).unwrap();
            (&head == b"HTTP/1.1 200").then_some(())
        });
    }
}

#[test]
fn a_share_is_no_more_than_all_there_is() {
    let (server, _release) = server(Era::Modern);
    for limits in [
        "inFlight: 2\n  inFlightPerCaller: 3",
        "connections: 2\n  connectionsPerAddress: 3",
        "replayMemory: 1MiB\n  replayMemoryPerCaller: 2MiB",
        "resultStore: 1MiB\n  resultStorePerCaller: 2MiB",
        "tokenMemory: 1MiB\n  tokenMemoryPerCaller: 2MiB",
        "requestBodyMemory: 1MiB",
        "memory: 32MiB\n  memoryPerCaller: 33MiB",
        "memoryPerCaller: 3MiB",
        "memoryPerCaller: 15MiB",
        "responseMemory: 64MiB\n  responseMemoryPerCaller: 65MiB",
        "responseMemory: 64MiB\n  responseMemoryPerServer: 65MiB",
        "responseMemoryPerServer: 15MiB",
        "catalogMemory: 1MiB\n  catalogMemoryPerCaller: 2MiB",
        "schemaMemory: 1MiB\n  schemaMemoryPerServer: 2MiB",
        "subscriptionMemory: 1MiB\n  subscriptionMemoryPerCaller: 2MiB",
        "sendQueue: 16MiB\n  sendQueuePerCaller: 17MiB",
        "sendQueuePerCaller: 3MiB",
    ] {
        let limits = limits.replace("\n  ", "\n");
        let output = Config::of(&server.url()).limits(&limits).refused();
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        let key = limits.lines().last().unwrap().split(':').next().unwrap();
        assert!(!output.status.success() && said.contains(key), "{limits}: {said}");
    }
}

#[test]
fn an_account_of_many_people_has_a_share_of_its_own() {
    for era in ERAS {
        let (server, release) = server(era);
        let limits = "inFlight: 8\ninFlightPerCaller: 2\n\
                      callers: [{principals: [ana], inFlightPerCaller: 4}]";
        let gateway = start(&server, limits);
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let slow = [1, 2, 3, 4].map(|id| begun(&gateway, &call(&ana, id, "slow")));
        eventually("all four calls", || (server.tool_calls().len() == 4).then_some(()));
        refused(&gateway, &ana.call("quick", &json!({})), "caller-limit-requests");
        let of_bob = [1, 2].map(|id| begun(&gateway, &call(&bob, id, "slow")));
        eventually("the calls of bob", || (server.tool_calls().len() == 6).then_some(()));
        refused(&gateway, &bob.call("quick", &json!({})), "caller-limit-requests");
        drop(release);
        drop((slow, of_bob));
    }
}

#[test]
fn shares_of_callers_that_cannot_be_are_refused() {
    let (server, _release) = server(Era::Modern);
    for (callers, part) in [
        ("{principals: [anna], inFlightPerCaller: 1}", "no caller can be `anna`"),
        ("{principals: [], inFlightPerCaller: 1}", "the list is empty"),
        ("{principals: [ana, ana]}", "has other shares already"),
        ("{principals: [ana], inFlightPerCaller: 9}", "give 1 to 8"),
        ("{principals: [ana], pendingElicitationsPerCaller: 0}", "`pendingElicitationsPerCaller`"),
        ("{principals: [ana], responseMemoryPerCaller: 1MiB}", "`responseMemoryPerCaller`"),
        ("{principals: [ana], catalogMemoryPerCaller: 65MiB}", "`catalogMemoryPerCaller`"),
        (
            "{principals: [ana], subscriptionMemoryPerCaller: 65MiB}",
            "`subscriptionMemoryPerCaller`",
        ),
    ] {
        let config =
            Config::of(&server.url()).limits(&format!("inFlight: 8\ncallers: [{callers}]"));
        let said = String::from_utf8_lossy(&config.refused().stderr).into_owned();
        assert!(said.contains(part), "{callers}: {said}");
    }
}

/// A server with the tools `big`, which answers with 100 KB, `quick`, and `stalls`, which begins such an answer, as
/// JSON or as an event, and does not go on before the sender is dropped.
fn stalling(era: Era) -> (Server, Sender<()>) {
    let (release, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let tools = json!([tool("stalls"), tool("big"), tool("quick")]);
    let text = "plain words and so on ".repeat(4600);
    let server = Server::with(era, tools, move |call, stream| {
        let arguments = &call.body["params"]["arguments"];
        match call.tool() {
            "big" => return stream.write_all(&call.text(&text)).is_ok(),
            "quick" => return stream.write_all(&call.text("done")).is_ok(),
            _ => {}
        }
        let head = match arguments["kind"].as_str() {
            Some("events") => "content-type: text/event-stream\r\nconnection: close\r\n\r\ndata: ",
            _ => "content-type: application/json\r\ncontent-length: 200000\r\n\r\n",
        };
        let begun = format!("HTTP/1.1 200 OK\r\n{head}{{\"text\":\"{text}");
        drop(stream.write_all(begun.as_bytes()));
        wait.lock().unwrap().recv().unwrap_or_default();
        false
    });
    (server, release)
}

/// Makes a call whose answer does not end.
fn stall(gateway: &Gateway, client: &Client, id: u64, kind: &str) -> TcpStream {
    let params = json!({ "name": "stalls", "arguments": { "kind": kind } });
    begun(gateway, &client.call_bytes(&json!(id), &params))
}

#[test]
fn answers_that_do_not_end_leave_room_for_those_of_others() {
    for (era, kind) in ERAS.into_iter().flat_map(|era| ["json", "events"].map(|kind| (era, kind))) {
        let (server, release) = stalling(era);
        let limits = "responseBody: 256KiB\nresponseMemory: 1MiB\nresponseMemoryPerCaller: 256KiB\n\
                      responseMemoryPerServer: 512KiB";
        let gateway = start(&server, limits);
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let stalled = [1, 2].map(|id| stall(&gateway, &ana, id, kind));
        let held = || gateway.metric_now("portcullis_response_memory_bytes");
        eventually("both answers are being read", || (held() == 256 * 1024).then_some(()));
        let over = ana.call("big", &json!({})).json();
        assert!(
            over["error"]["message"].as_str().unwrap().contains("response memory limit reached"),
            "{over}"
        );
        let is =
            |record: &Value| record["reason"] == "upstream-memory-limit" && record["tool"] == "big";
        assert!(!gateway.recorded("the answer that was given up", is).is_null());
        assert_eq!(gateway.metric_now("portcullis_responses_dropped_total"), 1, "{era:?} {kind}");
        // A short one always finds room, and others have a share of their own.
        assert_eq!(ana.call("quick", &json!({})).json()["result"]["content"][0]["text"], "done");
        assert!(bob.call("big", &json!({})).json()["result"].is_object(), "{era:?} {kind}");
        drop(release);
        drop(stalled);
        eventually("the share is given back", || (held() == 0).then_some(()));
        assert!(ana.call("big", &json!({})).json()["result"].is_object(), "{era:?} {kind}");
    }
}

#[test]
fn answers_of_one_server_to_one_caller_leave_room_for_its_answers_to_others() {
    for (era, kind) in ERAS.into_iter().flat_map(|era| ["json", "events"].map(|kind| (era, kind))) {
        let (server, release) = stalling(era);
        // Ana's own share has room for more than one server may take.
        let limits = "responseBody: 256KiB\nresponseMemory: 4MiB\nresponseMemoryPerServer: 683KiB";
        let gateway = start(&server, limits);
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let stalled = [1, 2, 3, 4].map(|id| stall(&gateway, &ana, id, kind));
        let held = || gateway.metric_now("portcullis_response_memory_bytes");
        eventually("the answers are being read", || (held() == 512 * 1024).then_some(()));
        let over = ana.call("big", &json!({})).json();
        assert!(
            over["error"]["message"].as_str().unwrap().contains("response memory limit reached"),
            "{over}"
        );
        assert!(bob.call("big", &json!({})).json()["result"].is_object(), "{era:?} {kind}");
        drop(release);
        drop(stalled);
        eventually("the share is given back", || (held() == 0).then_some(()));
        assert!(ana.call("big", &json!({})).json()["result"].is_object(), "{era:?} {kind}");
    }
}

/// A definition whose text is as long as `count` empty objects, each of which takes several times its text when it is
/// read.
fn dense(name: &str, count: usize) -> Value {
    let mut tool = tool(name);
    tool["inputSchema"]["examples"] = vec![json!({}); count].into();
    tool
}

#[test]
fn what_is_read_of_the_pages_of_a_list_takes_of_the_shares_before_the_list_is_whole() {
    for (era, events) in ERAS.into_iter().flat_map(|era| [false, true].map(|events| (era, events)))
    {
        let server = Server::start(move |call, stream| {
            let body = match call.method() {
                "tools/list" => {
                    let cursor = call.body["params"]["cursor"].as_str();
                    let page = cursor.map_or(0, |page| page.parse::<u32>().unwrap());
                    let mut result = json!({
                        "resultType": "complete", "tools": [dense(&format!("t{page}"), 6000)],
                        "ttlMs": 0, "cacheScope": "private",
                    });
                    if page < 9 {
                        result["nextCursor"] = (page + 1).to_string().into();
                    }
                    let message =
                        json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result });
                    match events {
                        true => {
                            answer("200 OK", "text/event-stream", &format!("data: {message}\n\n"))
                        }
                        false => ok(&message.to_string()),
                    }
                }
                _ => greeting(call, era),
            };
            stream.write_all(&body).is_ok()
        });
        // The texts of all ten pages are less than half of that.
        let limits = "responseBody: 256KiB\nresponseMemory: 2MiB\nresponseMemoryPerServer: 512KiB";
        let gateway = start(&server, limits);
        let ana = gateway.client(era, ANA);
        let told = ana.ask("tools/list", json!({})).json();
        assert!(
            told["error"]["message"].as_str().unwrap().contains("response memory limit reached"),
            "{told}"
        );
        let is = |record: &Value| {
            record["reason"] == "upstream-memory-limit" && record["method"] == "tools/list"
        };
        assert!(!gateway.recorded("the list that was given up", is).is_null());
        assert!(gateway.metric_now("portcullis_responses_dropped_total") > 0, "{era:?}");
        let last = server.calls().into_iter().any(|call| call.body["params"]["cursor"] == "9");
        assert!(!last, "{era:?}: all pages were read");
        let held = || gateway.metric_now("portcullis_response_memory_bytes");
        eventually("the share is given back", || (held() == 0).then_some(()));
    }
}

#[test]
fn an_answer_with_many_values_takes_what_they_take_when_they_are_read() {
    for (era, events) in ERAS.into_iter().flat_map(|era| [false, true].map(|events| (era, events)))
    {
        let server = Server::with(era, json!([tool("many"), tool("long")]), move |call, stream| {
            let content = match call.tool() {
                "many" => json!({ "items": vec![json!({}); 60_000] }),
                _ => json!({ "text": "x".repeat(200_000) }),
            };
            let result =
                json!({ "resultType": "complete", "content": [], "structuredContent": content });
            let message = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result });
            let bytes = match events {
                true => answer("200 OK", "text/event-stream", &format!("data: {message}\n\n")),
                false => ok(&message.to_string()),
            };
            stream.write_all(&bytes).is_ok()
        });
        let limits = "responseBody: 256KiB\nresponseMemory: 2MiB\nresponseMemoryPerCaller: 512KiB\n\
                      responseMemoryPerServer: 2MiB";
        let gateway = start(&server, limits);
        let ana = gateway.client(era, ANA);
        // Both texts have about the same length.
        assert!(ana.call("long", &json!({})).json()["result"].is_object(), "{era:?} {events}");
        let told = ana.call("many", &json!({})).json();
        assert!(
            told["error"]["message"].as_str().unwrap().contains("response memory limit reached"),
            "{told}"
        );
        let is = |record: &Value| {
            record["reason"] == "upstream-memory-limit" && record["tool"] == "many"
        };
        assert!(!gateway.recorded("the answer that was given up", is).is_null());
        assert_eq!(gateway.metric_now("portcullis_responses_dropped_total"), 1, "{era:?} {events}");
    }
}

#[test]
fn what_is_kept_for_all_callers_of_a_server_has_a_bound_and_the_rest_is_read_again() {
    for era in ERAS {
        let mut prompt = json!({ "name": "ask" });
        prompt["examples"] = vec![json!({}); 16_000].into();
        let offers = json!({
            "tools": [dense("read", 16_000)], "prompts": [prompt], "cacheScope": "public",
            "ttlMs": 300_000,
        });
        // There is room for either of the lists, and not for both.
        let limits = "responseBody: 768KiB\nresponseMemory: 4MiB\nresponseMemoryPerServer: 768KiB";
        let server = Server::offering(era, offers, |_| json!({ "content": [] }));
        let policy = ALL.replace("tools: ['*']", "tools: ['*'], prompts: ['*']");
        let gateway = Config::of(&server.url()).policy(&policy).limits(limits).start();
        gateway.has_read(1);
        let ana = gateway.client(era, ANA);
        let before = ["tools/list", "prompts/list"].map(|method| server.count(method));
        for _ in 0..3 {
            assert_eq!(ana.tools(), ["read"], "{era:?}");
            let prompts = ana.ask("prompts/list", json!({}));
            assert_eq!(prompts.listed("prompts", "name"), ["ask"], "{era:?}");
        }
        assert_eq!(server.count("tools/list"), before[0], "{era:?}");
        assert_eq!(server.count("prompts/list"), before[1] + 3, "{era:?}");
        let held = || gateway.metric_now("portcullis_response_memory_bytes");
        eventually("what was read is given back", || (held() == 0).then_some(()));
    }
}

#[test]
fn a_list_that_several_ask_for_at_once_is_read_by_one_of_them_at_a_time() {
    for era in ERAS {
        let stalls = Arc::new(AtomicBool::new(false));
        let (release, wait) = channel::<()>();
        let (stalled, wait) = (Arc::clone(&stalls), Mutex::new(wait));
        let server = Server::start(move |call, stream| {
            let body = match call.method() {
                "tools/list" => {
                    if stalled.load(Ordering::SeqCst) {
                        // What is sent before lets one go on.
                        wait.lock().unwrap().recv().unwrap_or_default();
                    }
                    call.result(&json!({
                        "resultType": "complete", "tools": [tool("read")], "ttlMs": 0,
                        "cacheScope": "private",
                    }))
                }
                _ => greeting(call, era),
            };
            stream.write_all(&body).is_ok()
        });
        let gateway = start(&server, "");
        gateway.has_read(1);
        let ana = gateway.client(era, ANA);
        let before = server.count("tools/list");
        stalls.store(true, Ordering::SeqCst);
        let list = |id: u64| {
            let body = ana.message(&json!(id), "tools/list", json!({}));
            begun(&gateway, &ana.bytes("tools/list", None, &body))
        };
        let asked: Vec<_> = (1..=6).map(list).collect();
        let in_flight = || gateway.metric_now("portcullis_in_flight");
        eventually("all of them are there", || (in_flight() >= 6).then_some(()));
        eventually("the list is asked for", || (server.count("tools/list") > before).then_some(()));
        assert_eq!(server.count("tools/list"), before + 1, "{era:?}: one reads");
        drop(release);
        for mut one in asked {
            let told = read(&mut one).json();
            assert_eq!(told["result"]["tools"][0]["name"], "read", "{told}");
        }
        // One more, which began after all of them had come, is that of all who waited.
        assert!(server.count("tools/list") <= before + 2, "{era:?}");
    }
}

/// A client that asks this and reads nothing of the answer, for which its system takes in little.
pub(crate) fn deaf(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        socket.connect(gateway.address).await?.into_std()
    });
    let mut stream = connected.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn answers_that_their_client_does_not_read_take_of_its_share_and_of_no_others() {
    const MIB: usize = 1024 * 1024;
    for era in ERAS {
        let server = Server::with(era, json!([tool("long"), tool("medium")]), |call, stream| {
            let length = if call.tool() == "long" { 12 * MIB } else { MIB };
            stream.write_all(&call.text(&"plain ".repeat(length / 6))).is_ok()
        });
        // A server has less than a caller: what waits for the one must not take the place of the other.
        let limits = "responseMemory: 64MiB\nresponseMemoryPerCaller: 25MiB\nresponseMemoryPerServer: 16MiB\nwriteTimeout: 60s";
        // Nobody has to read what is sent, and it may sound like anything.
        let content = "content: [{servers: ['*'], results: {plantedInstructions: off}}]";
        let config = Config::of(&server.url()).policy(&format!("{content}\n{ALL}"));
        let gateway = config.limits(limits).start();
        let mut ana = gateway.client(era, ANA);
        if era == Era::Legacy {
            // Of the revision after it a slow call is answered with events, which have room of their own.
            ana.handshake("2025-06-18");
        }
        let refused = || {
            let answer = ana.call("medium", &json!({}));
            answer.body.contains("response memory limit reached").then_some(())
        };
        let mut unread = Vec::new();
        for id in 1..=2 {
            assert!(refused().is_none(), "{era:?}: {id}");
            unread.push(deaf(&gateway, &call(&ana, id, "long")));
            let done = |r: &&Value| r["tool"] == "long" && r["outcome"] == "answered";
            let all = || gateway.records().iter().filter(done).count() == unread.len();
            eventually("the answer is with its client", || all().then_some(()));
        }
        eventually("the share is taken", refused);
        let bob = gateway.client(era, BOB);
        assert!(bob.call("medium", &json!({})).json()["result"].is_object(), "{era:?}");
        drop(unread);
        eventually("the share is given back", || refused().is_none().then_some(()));
    }
}

#[test]
fn answers_to_a_batch_that_its_client_does_not_read_take_of_its_share_and_of_no_others() {
    const MIB: usize = 1024 * 1024;
    // Whether the server answers with an object, or with a stream of events.
    for streams in [false, true] {
        let tools = json!([tool("long"), tool("medium")]);
        let server = Server::with(Era::Legacy, tools, move |call, stream| {
            let length = if call.tool() == "long" { 12 * MIB } else { MIB };
            let text = call.text(&"plain ".repeat(length / 6));
            if !streams {
                return stream.write_all(&text).is_ok();
            }
            let body = text.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
            let told = json!({
                "jsonrpc": "2.0", "method": "notifications/message",
                "params": { "level": "info", "data": "begun" },
            });
            let event = format!("data: {told}\n\ndata: ");
            let body = [event.as_bytes(), &text[body..], b"\n\n"].concat();
            let body = String::from_utf8(body).unwrap();
            stream.write_all(&answer("200 OK", "text/event-stream", &body)).is_ok()
        });
        let limits = "responseMemory: 128MiB\nresponseMemoryPerCaller: 25MiB\nresponseMemoryPerServer: 64MiB\nwriteTimeout: 60s";
        let content = "content: [{servers: ['*'], results: {plantedInstructions: off}}]";
        let config = Config::of(&server.url()).policy(&format!("{content}\n{ALL}"));
        let gateway = config.limits(limits).start();
        let mut ana = gateway.client(Era::Legacy, ANA);
        ana.handshake("2025-03-26");
        let refused = || {
            let answer = ana.call("medium", &json!({}));
            answer.body.contains("response memory limit reached").then_some(())
        };
        assert!(refused().is_none(), "{streams}");
        let long = |id: u64| ana.message(&json!(id), "tools/call", json!({ "name": "long" }));
        let batch = format!("[{},{}]", long(1), long(2));
        let unread = deaf(&gateway, &ana.bytes("", None, &batch));
        let done = |r: &&Value| r["tool"] == "long" && r["outcome"] == "answered";
        eventually("the answers are with their client", || {
            (gateway.records().iter().filter(done).count() == 2).then_some(())
        });
        eventually("the share is taken", refused);
        let bob = gateway.client(Era::Legacy, BOB);
        assert!(bob.call("medium", &json!({})).json()["result"].is_object(), "{streams}");
        drop(unread);
        eventually("the share is given back", || refused().is_none().then_some(()));
        // One that is read is whole.
        let medium = |id: u64| ana.message(&json!(id), "tools/call", json!({ "name": "medium" }));
        let batch = format!("[{},{}]", medium(3), medium(4));
        let read = raw(gateway.address, &ana.bytes("", None, &batch)).json();
        let texts = read.as_array().unwrap().iter().map(|one| one["result"].to_string().len());
        assert_eq!(texts.filter(|length| *length > MIB - 6).count(), 2, "{streams}");
    }
}

#[test]
fn answers_for_an_account_of_many_people_have_a_share_of_its_own() {
    for era in ERAS {
        let (server, release) = stalling(era);
        let limits = "responseBody: 256KiB\nresponseMemory: 1MiB\nresponseMemoryPerCaller: 256KiB\nresponseMemoryPerServer: 1MiB\n\
                      callers: [{principals: [ana], responseMemoryPerCaller: 512KiB}]";
        let gateway = start(&server, limits);
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let stalls = |client: &Client, id: u64| begun(&gateway, &call(client, id, "stalls"));
        let held = || gateway.metric_now("portcullis_response_memory_bytes");
        let stalled = [stalls(&ana, 1), stalls(&ana, 2), stalls(&bob, 1), stalls(&bob, 2)];
        eventually("the answers are being read", || (held() == 512 * 1024).then_some(()));
        assert!(ana.call("big", &json!({})).json()["result"].is_object(), "{era:?}");
        let over = bob.call("big", &json!({})).json();
        assert!(
            over["error"]["message"].as_str().unwrap().contains("response memory limit reached"),
            "{over}"
        );
        drop(release);
        drop(stalled);
    }
}

#[test]
fn lists_for_one_account_have_a_share_of_its_own() {
    for era in ERAS {
        let server = Server::offering(era, long_list(0), |_| json!({ "content": [] }));
        let limits = "callers: [{principals: [ana], catalogMemoryPerCaller: 1KiB}]";
        let gateway = start(&server, limits);
        let held = || gateway.metric_now("portcullis_catalog_memory_bytes");
        gateway.says("tools listed");
        assert_eq!(able(&gateway, era, ANA, 0).tools(), ["read"]);
        assert_eq!(held(), 0, "{era:?}");
        assert_eq!(able(&gateway, era, BOB, 0).tools(), ["read"]);
        eventually("the list is kept", || (held() > 0).then_some(()));
    }
}

/// One tool with a long description that says which list it is of.
fn long_list(which: usize) -> Value {
    let mut read = tool("read");
    read["description"] =
        format!("List {which}. {}", "It reads what is there. ".repeat(160)).into();
    json!({ "tools": [read], "cacheScope": "private", "ttlMs": 300_000 })
}

/// What a client says it can do, of which a server may make its list depend.
fn able(gateway: &Gateway, era: Era, key: &str, n: usize) -> Client {
    let can = json!({ "experimental": { format!("x{n}"): {} } });
    Client::able(gateway.address, "/mcp", era, Some(key), &can)
}

#[test]
fn a_list_that_many_sessions_are_shown_is_kept_once_and_given_back_with_the_last_of_them() {
    for era in ERAS {
        let server = Server::offering(era, long_list(0), |_| json!({ "content": [] }));
        let gateway = start(&server, "");
        let held = || gateway.metric_now("portcullis_catalog_memory_bytes");
        // Whoever asks while the gateway reads the list for itself is shown that one, and none is kept for them.
        gateway.has_read(1);
        let first = able(&gateway, era, ANA, 0);
        assert_eq!(first.tools(), ["read"]);
        let once = eventually("the list is kept", || Some(held()).filter(|held| *held > 0));
        let others: Vec<_> = (1..6).map(|n| able(&gateway, era, ANA, n)).collect();
        assert!(others.iter().all(|other| other.tools() == ["read"]));
        for n in 0..6 {
            // What a client calls itself makes no difference.
            let info = json!({ "name": format!("client {n}"), "version": "1" });
            let meta = json!({ "io.modelcontextprotocol/clientInfo": info });
            let params = if era == Era::Modern { json!({ "_meta": meta }) } else { json!({}) };
            assert!(first.ask("tools/list", params).json()["result"].is_object());
        }
        assert_eq!(held(), once, "{era:?}");
        if era == Era::Legacy {
            assert!(others.iter().chain([&first]).all(|client| end(client).status == 200));
            eventually("the list is given back", || (held() == 0).then_some(()));
        }
    }
}

#[test]
fn lists_of_one_caller_make_room_for_its_next_and_leave_those_of_others() {
    for era in ERAS {
        let lists = AtomicUsize::new(0);
        let next = move || lists.fetch_add(1, Ordering::Relaxed);
        let server =
            Server::shifting(era, move |_| long_list(next()), |_| json!({ "content": [] }));
        let gateway = start(&server, "catalogMemory: 64KiB");
        let held = || gateway.metric_now("portcullis_catalog_memory_bytes");
        gateway.has_read(1);
        let bob = able(&gateway, era, BOB, 0);
        assert_eq!(bob.tools(), ["read"]);
        let of_bob =
            eventually("the list of bob is kept", || Some(held()).filter(|held| *held > 0));
        for n in 0..12 {
            assert_eq!(able(&gateway, era, ANA, n).tools(), ["read"], "{era:?}");
            eventually("a list of ana is kept, within her share", || {
                (of_bob + 1..=of_bob + 32 * 1024).contains(&held()).then_some(())
            });
        }
        // That of bob was not forgotten for them, so it is not read again.
        let before = server.count("tools/list");
        assert!(bob.call("read", &json!({})).json()["result"].is_object());
        assert_eq!(server.count("tools/list"), before, "{era:?}");
    }
}

#[test]
fn compiled_schemas_of_a_server_make_room_for_its_next() {
    let costly = |n: usize| {
        let part = |p: usize| {
            let pattern = format!("^[a-y]{{50}}x{n}x{p}$");
            (format!("p{p}"), json!({ "type": "string", "pattern": pattern }))
        };
        let properties: serde_json::Map<_, _> = (0..4).map(part).collect();
        let mut tool = tool(&format!("tool{n}"));
        tool["inputSchema"] = json!({ "type": "object", "properties": properties });
        tool
    };
    for era in ERAS {
        let tools: Vec<_> = (0..10).map(costly).collect();
        let server = Server::with(era, tools.into(), |call, stream| {
            stream.write_all(&call.text("done")).is_ok()
        });
        let gateway = start(&server, "schemaMemory: 1MiB");
        let ana = gateway.client(era, ANA);
        for n in (0..10).chain(0..10) {
            let told = ana.call(&format!("tool{n}"), &json!({ "p1": "abc" })).json();
            assert_eq!(told["result"]["isError"], true, "{told}");
            let held = gateway.metric_now("portcullis_schema_memory_bytes");
            assert!((1..=512 * 1024).contains(&held), "{era:?}: {held}");
        }
        assert!(server.tool_calls().is_empty(), "{era:?}");
        assert_eq!(gateway.metric_now("portcullis_schemas_compiled_total"), 20, "{era:?}");
        let good = gateway.client(era, BOB).call("tool3", &json!({ "p9": "abc" })).json();
        assert_eq!(good["result"]["content"][0]["text"], "done", "{good}");
    }
}

/// What of the process is resident, in KiB.
fn resident(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Only a modern client has calls that wait without a connection.
#[test]
fn a_call_that_waits_for_its_client_does_not_keep_its_arguments() {
    let (server, _heard) = crate::asking::legacy();
    let gateway = Config::asked(&server.url()).policy(ALL).start();
    let ana = crate::asking::able(&gateway, Era::Modern, ANA);
    let arguments = |n: usize| json!({ "n": n, "text": "plain words ".repeat(300_000) });
    let wait = |n: usize| {
        let answer = ana.call("ask", &arguments(n)).json();
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
        answer["result"].clone()
    };
    (0..6).for_each(|n| drop(wait(n)));
    let before = resident(&gateway);
    let last = (6..36).map(wait).fold(Value::Null, |_before, answer| answer);
    let more = resident(&gateway).saturating_sub(before);
    // They were 30 times 3.6 MB.
    assert!(more < 60 * 1024, "{more} KiB more are resident");
    // It goes on for the same arguments, and for no others.
    let state = &last["requestState"];
    let key = last["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let inputs = json!({ key: { "action": "cancel" } });
    let other = crate::asking::again(&ana, &arguments(7), state, &inputs).json();
    assert!(other["error"].is_object(), "{other}");
    let on = crate::asking::again(&ana, &arguments(35), state, &inputs).json();
    assert_eq!(on["result"]["resultType"], "input_required", "{on}");
}

#[test]
fn one_caller_leaves_room_for_what_others_listen_for() {
    const RULES: &str = "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], \
                         resources: ['file:///*']}";
    let uri = |n: usize| format!("file:///{}/{n}", "x".repeat(1000));
    let resources: Vec<_> = (0..12).map(|n| json!({ "uri": uri(n), "name": "r" })).collect();
    let offers = json!({ "resources": resources });
    for era in ERAS {
        // A server of the modern era keeps no session, so the subscriptions of one are kept here.
        let server = Server::offering(Era::Modern, offers.clone(), |_| json!({ "contents": [] }));
        let config = Config::of(&server.url()).policy(RULES);
        let limits = "subscriptionMemory: 64KiB\nsubscriptionMemoryPerCaller: 1KiB\n\
                      callers: [{principals: [ana, bob], subscriptionMemoryPerCaller: 32KiB}]";
        let gateway = config.limits(limits).start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        if era == Era::Legacy {
            let subscribe = |client: &Client, n: usize| {
                client.ask("resources/subscribe", json!({ "uri": uri(n) }))
            };
            for n in 0..9 {
                let told = subscribe(&ana, n).json();
                assert!(told["result"].is_object(), "{told}");
            }
            refused(&gateway, &subscribe(&ana, 9), "caller-limit-subscriptions");
            assert!(subscribe(&bob, 9).json()["result"].is_object());
            let less = ana.ask("resources/unsubscribe", json!({ "uri": uri(0) })).json();
            assert!(less["result"].is_object(), "{less}");
            assert!(subscribe(&ana, 9).json()["result"].is_object());
            continue;
        }
        let listen = |client: &Client, uris: Vec<String>| {
            let filter = json!({ "notifications": { "resourceSubscriptions": uris } });
            let body = client.message(&json!("l"), "subscriptions/listen", filter);
            begun(&gateway, &client.bytes("subscriptions/listen", None, &body))
        };
        let mut first = listen(&ana, (0..9).map(uri).collect());
        until(&mut first, "200 OK");
        refused(&gateway, &read(&mut listen(&ana, vec![uri(9)])), "caller-limit-subscriptions");
        until(&mut listen(&bob, vec![uri(9)]), "200 OK");
        drop(first);
        eventually("the share is given back", || {
            let mut again = listen(&ana, vec![uri(9)]);
            let mut head = [0; 12];
            again.read_exact(&mut head).unwrap();
            (&head == b"HTTP/1.1 200").then_some(())
        });
    }
}
