//! The members of the protocol's schema, one by one over the wire: what a caller puts into any member of a
//! request is looked at before a server has it, and what a server puts into any member of an answer or a
//! notification before a client has it.
//!
//! The members are those that the table of places is held against, so a member that a later revision adds is
//! tried here as soon as it is in that list.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use e2e::client::{Client, raw};
use e2e::gateway::{ANA, Config};
use e2e::server::{Call, Server, answer, ok, tool, with_header};
use e2e::{ERAS, Era, PATIENCE};
use serde_json::{Value, json};

use crate::places::{events, quiet};

const MEMBERS: &str = include_str!("../../policy/src/engine/places/members.txt");
const OPEN: &str = "canaries: [canary-7f3a9c21]\nrules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], prompts: ['*'], resources: ['*'], methods: ['*']}";
const CANARY: &str = "canary-7f3a9c21";
const SECRET: &str = "AKIAQ3EGRZ7XK2MWPLVT";
/// What is found by no detector.
const PLAIN: &str = "plain words";

/// The method and the place of each member that one side says in one part of the messages of an era.
fn members(side: &str, part: &str, era: Era) -> Vec<(&'static str, &'static str)> {
    let revision = match era {
        Era::Legacy => "2025-11-25",
        Era::Modern => "2026-07-28",
    };
    let found: Vec<_> = MEMBERS
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [whose, what, method, at, revisions] = words[..] else { panic!("{line}") };
            let is_of_era = revisions.split(',').any(|one| one == revision);
            (whose == side && what == part && is_of_era).then_some((method, at))
        })
        .collect();
    assert!(!found.is_empty(), "{side} {part} {era:?}");
    found
}

/// Writes a value at a JSON Pointer, with objects on the way to it. An object is added to one that is there.
fn put(message: &mut Value, at: &str, value: Value) {
    let mut place = message;
    for name in at.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        let name = name.replace("~1", "/").replace("~0", "~");
        place = &mut place[name.as_str()];
    }
    match value {
        Value::Object(more) if place.is_object() => place.as_object_mut().unwrap().extend(more),
        value => *place = value,
    }
}

/// A text in every form that a member can have: by itself, in an object, in a list, and in what the protocol
/// has there.
fn forms(at: &str, text: &str) -> Vec<Value> {
    let words = json!({ "type": "text", "text": text });
    let mut forms = vec![json!(text), json!({ "example.com/x": text }), json!([text])];
    forms.extend(match at {
        "/uri" | "/ref/uri" => Some(json!(format!("file:///{text}"))),
        "/content" => Some(json!([words])),
        "/messages" => Some(json!([{ "role": "user", "content": words }])),
        "/contents" => Some(json!([{ "uri": "file:///a", "text": text }])),
        "/completion" => Some(json!({ "values": [text] })),
        "/tools" => {
            let mut tool = tool("work");
            tool["description"] = text.into();
            Some(json!([tool]))
        }
        "/prompts" => Some(json!([{ "name": "ask", "description": text }])),
        "/resources" => Some(json!([{ "name": "a", "uri": "file:///a", "description": text }])),
        "/resourceTemplates" => {
            Some(json!([{ "name": "t", "uriTemplate": "file:///{a}", "description": text }]))
        }
        _ => None,
    });
    forms
}

/// The params of a message of a client that says nothing unusual.
fn params(era: Era, method: &str) -> Value {
    let mut params = match method {
        "tools/call" => json!({ "name": "work", "arguments": {} }),
        "prompts/get" => json!({ "name": "ask", "arguments": {} }),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            json!({ "uri": "file:///a" })
        }
        "completion/complete" => json!({
            "ref": { "type": "ref/prompt", "name": "ask" }, "argument": { "name": "x", "value": "y" }
        }),
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" }
        }),
        "logging/setLevel" => json!({ "level": "info" }),
        "subscriptions/listen" => json!({ "notifications": { "toolsListChanged": true } }),
        "tasks/get" | "tasks/result" | "tasks/cancel" => json!({ "taskId": "t" }),
        "notifications/cancelled" => json!({ "requestId": "r" }),
        "notifications/progress" => json!({ "progressToken": "p", "progress": 1 }),
        "notifications/tasks/status" => json!({ "taskId": "t", "status": "working" }),
        _ => json!({}),
    };
    if era == Era::Modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    params
}

/// Sends a message with exactly these params; what came of it.
fn tell(client: &Client, part: &str, method: &str, params: &Value) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let mut body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    if part == "request" {
        body["id"] = NEXT.fetch_add(1, Ordering::Relaxed).into();
    }
    let mut client = client.clone();
    if method == "initialize" {
        client.session = None;
    }
    let name = params["name"].as_str().or(params["uri"].as_str());
    let bytes = client.bytes(method, name, &body.to_string());
    if method == "subscriptions/listen" {
        return listened(&client, &bytes);
    }
    let answer = raw(client.address, &bytes);
    format!("{}\r\n{}", answer.head, answer.body)
}

/// Reads what a client is answered that wants to listen: until that is acknowledged, or refused.
fn listened(client: &Client, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(client.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let is_whole = seen.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            length.is_some_and(|length| body.len() >= length.trim().parse().unwrap())
        });
        if is_whole || seen.contains("acknowledged") {
            return seen;
        }
        let read = stream.read(&mut buffer).unwrap();
        if read == 0 {
            return seen;
        }
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

/// How many of the requests that a server got have this in them.
fn carrying(server: &Server, text: &str) -> usize {
    let has = |call: &Call| String::from_utf8_lossy(&call.bytes).contains(text);
    server.calls().iter().filter(|call| has(call)).count()
}

#[test]
fn no_member_of_what_a_client_says_carries_a_blocked_value_to_a_server() {
    for era in ERAS {
        let (server, other) = (quiet(era), quiet(era));
        let gateway = Config::of(&server.url()).policy(OPEN).start();
        let off = Config::of(&other.url()).policy(&format!(
            "content: [{{servers: [up], arguments: {{canaries: 'off'}}}}]\n{OPEN}"
        ));
        let off = off.start();
        let (ana, free) = (gateway.client(era, ANA), off.client(era, ANA));
        let mut passed = BTreeSet::new();
        for part in ["request", "notification"] {
            for (method, at) in members("client", part, era) {
                let before = carrying(&other, CANARY);
                for value in forms(at, CANARY) {
                    let mut params = params(era, method);
                    if at == "/ref/uri" {
                        params["ref"] = json!({ "type": "ref/resource" });
                    }
                    put(&mut params, at, value);
                    let came = tell(&ana, part, method, &params);
                    let reached = carrying(&server, CANARY);
                    assert_eq!(reached, 0, "{era:?} {method} {at}: {params}: {came}");
                    tell(&free, part, method, &params);
                }
                if carrying(&other, CANARY) > before {
                    passed.insert((method, at));
                }
            }
        }
        // What was sent is served, and has come: without the control the same requests carry it.
        for place in [
            ("tools/call", "/arguments"),
            ("prompts/get", "/arguments"),
            ("resources/read", "/uri"),
            ("completion/complete", "/argument/value"),
            ("completion/complete", "/context/arguments"),
            ("tools/call", "/_meta"),
        ] {
            assert!(passed.contains(&place), "{era:?} {place:?}: {passed:?}");
        }
        let call = params(era, "tools/call");
        assert!(tell(&ana, "request", "tools/call", &call).contains("\"content\""));
        assert_eq!(carrying(&server, CANARY), 0, "{era:?}");
    }
}

/// Found by the comparison of readers (`tests/differential`): a server in Go reads `Uri` as `uri`, whichever comes last.
#[test]
fn what_a_completion_is_for_has_one_spelling() {
    for era in ERAS {
        let server = quiet(era);
        let gateway = Config::of(&server.url()).policy(OPEN).start();
        let ana = gateway.client(era, ANA);
        let usual = params(era, "completion/complete");
        for (part, name) in [
            ("ref", "Name"),
            ("ref", "TYPE"),
            ("ref", "Uri"),
            ("ref", " uri"),
            ("argument", "Value"),
            ("argument", "na_me"),
        ] {
            let mut asked = usual.clone();
            asked[part][name] = "respelt".into();
            let came = tell(&ana, "request", "completion/complete", &asked);
            assert!(came.contains("-32602"), "{era:?} {part} {name}: {came}");
            assert_eq!(carrying(&server, "respelt"), 0, "{era:?} {part} {name}");
        }
        assert!(tell(&ana, "request", "completion/complete", &usual).contains("\"values\""));
    }
}

/// What a server answers to the requests of one method: messages without their version and id.
#[derive(Default)]
struct Script {
    method: String,
    messages: Vec<Value>,
}

/// The result of a server that says nothing unusual.
fn result(method: &str) -> Value {
    let listed = |name: &str, items: Value| json!({ "resultType": "complete", name: items, "ttlMs": 0, "cacheScope": "private" });
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {} });
    match method {
        "tools/list" => listed("tools", json!([tool("work")])),
        "prompts/list" => listed("prompts", json!([{ "name": "ask" }])),
        "resources/list" => listed("resources", json!([{ "name": "a", "uri": "file:///a" }])),
        "resources/templates/list" => {
            listed("resourceTemplates", json!([{ "name": "t", "uriTemplate": "file:///{a}" }]))
        }
        "tools/call" => json!({ "resultType": "complete", "content": [] }),
        "prompts/get" => json!({ "resultType": "complete", "messages": [] }),
        "resources/read" => json!({ "resultType": "complete", "contents": [] }),
        "completion/complete" => {
            json!({ "resultType": "complete", "completion": { "values": [] } })
        }
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": capabilities, "ttlMs": 0, "cacheScope": "public",
        }),
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": { "name": "fake", "version": "1" },
        }),
        _ => json!({ "resultType": "complete" }),
    }
}

/// A server that answers what the script says, and otherwise nothing unusual.
fn scripted(era: Era, script: &Arc<Mutex<Script>>) -> Server {
    let script = Arc::clone(script);
    Server::start(move |call, stream| {
        let method = call.method();
        let mut messages = {
            let script = script.lock().unwrap();
            if script.method == method { script.messages.clone() } else { Vec::new() }
        };
        for message in &mut messages {
            message["jsonrpc"] = "2.0".into();
            if message["method"].is_null() {
                message["id"] = call.body["id"].clone();
            } else if message["params"]["progressToken"] == "the caller's" {
                let token = call.body["params"]["_meta"]["progressToken"].clone();
                message["params"]["progressToken"] = token;
            }
        }
        let bytes = match (messages.as_slice(), method, era) {
            ([one], "initialize", Era::Legacy) => {
                with_header(&ok(&one.to_string()), "mcp-session-id: session\r\n")
            }
            ([one], ..) => ok(&one.to_string()),
            ([_, _, ..], ..) => return events(stream, &messages),
            ([], "initialize", Era::Legacy) => {
                with_header(&call.result(&result(method)), "mcp-session-id: session\r\n")
            }
            ([], "initialize", Era::Modern) | ([], "server/discover", Era::Legacy) => {
                answer("400 Bad Request", "text/plain", "no")
            }
            ([], "", _) if call.head.starts_with("GET") => {
                answer("405 Method Not Allowed", "text/plain", "no")
            }
            ([], ..) if call.body["id"].is_null() => {
                b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
            }
            ([], ..) => call.result(&result(method)),
        };
        stream.write_all(&bytes).is_ok()
    })
}

fn say(script: &Mutex<Script>, method: &str, messages: Vec<Value>) {
    *script.lock().unwrap() = Script { method: method.to_owned(), messages };
}

#[test]
fn no_member_of_a_result_or_an_error_shows_a_client_a_secret() {
    for era in ERAS {
        let script = Arc::<Mutex<Script>>::default();
        let server = scripted(era, &script);
        let config = Config::of(&server.url()).policy(OPEN).limits("catalogAge: 1ms");
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        let mut shown = BTreeSet::new();
        for (method, at) in members("server", "result", era) {
            // What a server says of itself is told once, and is tried below.
            if matches!(method, "initialize" | "server/discover") {
                continue;
            }
            for text in [SECRET, PLAIN] {
                for value in forms(at, text) {
                    let mut result = result(method);
                    put(&mut result, at, value);
                    say(&script, method, vec![json!({ "result": result })]);
                    let came = tell(&ana, "request", method, &params(era, method));
                    assert!(!came.contains(SECRET), "{era:?} {method} {at}: {result}: {came}");
                    if came.contains(PLAIN) {
                        shown.insert((method, at));
                    }
                }
            }
        }
        for (_, at) in members("server", "error", era) {
            for value in forms(at, SECRET) {
                let mut error = json!({ "code": -32000, "message": "no", "data": {} });
                put(&mut error, at, value);
                for method in ["tools/call", "prompts/get", "resources/read", "tools/list"] {
                    say(&script, method, vec![json!({ "error": error })]);
                    let came = tell(&ana, "request", method, &params(era, method));
                    assert!(!came.contains(SECRET), "{era:?} {method} {at}: {error}: {came}");
                }
            }
        }
        // What is not found in it is shown, so these answers do reach the client.
        for place in [
            ("tools/call", "/content"),
            ("prompts/get", "/messages"),
            ("resources/read", "/contents"),
            ("completion/complete", "/completion"),
            ("tools/list", "/tools"),
        ] {
            assert!(shown.contains(&place), "{era:?} {place:?}: {shown:?}");
        }
    }
}

#[test]
fn no_member_of_what_a_server_says_of_itself_shows_a_client_a_secret() {
    for era in ERAS {
        for (method, at) in members("server", "result", era) {
            if !matches!(method, "initialize" | "server/discover") {
                continue;
            }
            let in_words = matches!(
                at,
                "/instructions" | "/protocolVersion" | "/resultType" | "/cacheScope" | "/ttlMs"
            );
            let value = if in_words { json!(SECRET) } else { json!({ "example.com/x": SECRET }) };
            let script = Arc::<Mutex<Script>>::default();
            let mut result = result(method);
            put(&mut result, at, value);
            say(&script, method, vec![json!({ "result": result })]);
            let server = scripted(era, &script);
            let gateway = Config::of(&server.url()).policy(OPEN).start();
            let bearer = format!("Bearer {ANA}");
            let headers = [("authorization", bearer.as_str())];
            let client = Client::silent(gateway.address, "/mcp", era, &headers);
            let asked = match era {
                Era::Legacy => &["initialize"][..],
                Era::Modern => &["server/discover", "tools/list"],
            };
            for method in asked {
                let came = tell(&client, "request", method, &params(era, method));
                assert!(!came.contains(SECRET), "{era:?} {method} {at}: {result}: {came}");
            }
        }
    }
}

#[test]
fn no_member_of_a_notification_shows_a_client_a_secret() {
    for era in ERAS {
        let script = Arc::<Mutex<Script>>::default();
        let server = scripted(era, &script);
        let gateway = Config::of(&server.url()).policy(OPEN).start();
        let ana = gateway.client(era, ANA);
        let mut call = params(era, "tools/call");
        call["_meta"]["progressToken"] = "p".into();
        call["_meta"]["io.modelcontextprotocol/logLevel"] = "info".into();
        let mut shown = BTreeSet::new();
        for (method, at) in members("server", "notification", era) {
            for text in [SECRET, PLAIN] {
                for value in forms(at, text) {
                    let mut params = match method {
                        "notifications/message" => json!({ "level": "info", "data": "x" }),
                        "notifications/progress" => {
                            json!({ "progressToken": "the caller's", "progress": 1 })
                        }
                        "notifications/cancelled" => json!({ "requestId": "r" }),
                        "notifications/resources/updated" => json!({ "uri": "file:///a" }),
                        "notifications/elicitation/complete" => json!({ "elicitationId": "e" }),
                        _ => json!({}),
                    };
                    put(&mut params, at, value);
                    let told = json!({ "method": method, "params": params });
                    let done = json!({ "result": result("tools/call") });
                    say(&script, "tools/call", vec![told, done]);
                    let came = tell(&ana, "request", "tools/call", &call);
                    assert!(!came.contains(SECRET), "{era:?} {method} {at}: {params}: {came}");
                    if came.contains(PLAIN) {
                        shown.insert((method, at));
                    }
                }
            }
        }
        assert!(shown.contains(&("notifications/message", "/data")), "{era:?}: {shown:?}");
        assert!(shown.contains(&("notifications/progress", "/message")), "{era:?}: {shown:?}");
    }
}
