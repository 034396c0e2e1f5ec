//! What a byte on the wire costs in memory: with each method of the protocol, in each era and direction, the gateway takes
//! less than a hundred times as much as is under way, whatever it consists of.
//!
//! Bodies are generated: characters that expand when they are normalised, values of three bytes each, members with
//! something to find in each, and escapes. The same for everything that reads them by itself is in `tests/amplification`,
//! with more of them, and with work.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use e2e::client::{Answer, Client, raw, until};
use e2e::gateway::{ANA, Config, Gateway};
use e2e::server::{Call, Server, answer, ok};
use e2e::{ERAS, Era, PATIENCE};
use policy::engine::method::{self, METHODS, MethodAction, MethodEras, MethodSpec};
use serde_json::{Value, json};

const OPEN: &str = "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], \
    tools: ['*'], prompts: ['*'], resources: ['*'], skills: ['*'], methods: ['*']}";
/// Bytes of a body.
const LENGTH: usize = 256 * 1024;
/// Bytes of memory that a byte under way may take.
const EACH_BYTE: usize = 100;
/// Bytes that a message of any length may take beyond those: the caches of automata, which each thread that inspects has of
/// its own and keeps, and what the allocator has not given back yet.
const FIXED: usize = 12 << 20;
/// Stands in a message for the generated body.
const BODY: &str = "\"BODY\"";
const TOOL: &str = "t";
const URI: &str = "http://r.example/a";

fn repeated(part: &str) -> String {
    part.repeat(LENGTH / part.len())
}

/// Values that cost more than others, each as JSON.
fn bodies() -> [(&'static str, String); 4] {
    let members: Vec<_> = (0..LENGTH / 40)
        .map(|n| format!("\"k{n}\":\"password=x{n}y AKIAQ3EGRZ7XK2{n}\""))
        .collect();
    [
        ("a character that expands", format!("\"{}\"", repeated("\u{fdfa}"))),
        ("empty objects", format!("[{}0]", repeated("{},"))),
        ("findings", format!("{{{}}}", members.join(","))),
        ("escapes", format!("\"{}\"", repeated("![\\u0061](http:\\/\\/b.c\\n"))),
    ]
}

/// A gateway whose memory is looked at.
struct Watched {
    gateway: Gateway,
    /// What was resident before anything long was sent, in bytes.
    before: usize,
    /// What takes too much.
    over: Vec<String>,
    /// The most that a byte has taken.
    most: usize,
}

impl Watched {
    fn new(gateway: Gateway) -> Self {
        let before = memory_of(&gateway, "VmHWM:");
        Self { gateway, before, over: Vec::new(), most: 0 }
    }

    /// Does something in which so many bytes are under way, and compares the most that was resident with what was before
    /// all of them, so that nothing hides in what the allocator still has of an earlier one.
    fn watch(&mut self, what: &str, bytes: usize, act: impl FnOnce(&Gateway)) {
        // "5" resets the peak: proc_pid_clear_refs(5).
        fs::write(format!("/proc/{}/clear_refs", self.gateway.id()), "5").unwrap();
        act(&self.gateway);
        let more = memory_of(&self.gateway, "VmHWM:").saturating_sub(self.before);
        let each = more.saturating_sub(FIXED) / bytes;
        self.most = self.most.max(each);
        if each >= EACH_BYTE {
            self.over.push(format!("{what}: {more} bytes more for {bytes}"));
        }
    }

    fn end(self) {
        assert!(self.over.is_empty(), "{:#?}", self.over);
    }
}

fn memory_of(gateway: &Gateway, what: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// The methods of an era. One that names two kinds of things is there twice.
fn methods(era: Era) -> impl Iterator<Item = &'static MethodSpec> {
    let other = if era == Era::Modern { MethodEras::Legacy } else { MethodEras::Modern };
    METHODS.iter().filter(move |spec| spec.eras != other)
}

/// What a server answers, with a body in it.
#[derive(Clone, Debug)]
enum Planned {
    /// A result.
    Result(Value),
    /// An error.
    Error,
    /// A message before an ordinary result, on a stream.
    Message(Value),
}

/// What a server answers to one method instead of something short.
#[derive(Clone, Debug)]
struct Plan {
    method: &'static str,
    planned: Planned,
    body: String,
}

impl Plan {
    fn write(&self, call: &Call, stream: &mut TcpStream) -> bool {
        let id = &call.body["id"];
        let filled = |message: Value| message.to_string().replace(BODY, &self.body);
        let error = json!({ "code": -32603, "message": "m", "data": "BODY" });
        let message = match &self.planned {
            Planned::Result(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Planned::Error => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            Planned::Message(message) => {
                let result = json!({ "resultType": "complete", "content": [] });
                let last = json!({ "jsonrpc": "2.0", "id": id, "result": result });
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                let events = format!("{head}data: {}\n\ndata: {last}\n\n", filled(message.clone()));
                drop(stream.write_all(events.as_bytes()));
                return false;
            }
        };
        stream.write_all(&ok(&filled(message))).is_ok()
    }
}

/// What it answers if nothing is planned.
fn ordinary(call: &Call, era: Era) -> Vec<u8> {
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": { "subscribe": true }, "completions": {}, "logging": {} });
    let list = |key: &str, items: Value| {
        call.result(
            &json!({ "resultType": "complete", key: items, "ttlMs": 0, "cacheScope": "private" }),
        )
    };
    match (call.method(), era) {
        (method::TOOLS_LIST, _) => list("tools", json!([e2e::server::tool(TOOL)])),
        (method::PROMPTS_LIST, _) => list("prompts", json!([{ "name": TOOL }])),
        (method::RESOURCES_LIST, _) => list("resources", json!([{ "name": "r", "uri": URI }])),
        (method::TEMPLATES_LIST, _) => list("resourceTemplates", json!([])),
        (method::DISCOVER, Era::Modern) => call.result(&json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
            "ttlMs": 0, "cacheScope": "public",
        })),
        (method::INITIALIZE, Era::Legacy) => call.result(&json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": { "name": "fake", "version": "1" },
        })),
        (method::DISCOVER | method::INITIALIZE, _) => answer("400 Bad Request", "text/plain", "no"),
        _ if call.body["id"].is_null() => {
            b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
        _ => call.result(&json!({ "resultType": "complete", "content": [], "messages": [], "contents": [],
            "completion": { "values": [] } })),
    }
}

/// A server that answers one method as planned.
fn planning(era: Era) -> (Server, Arc<Mutex<Option<Plan>>>) {
    let plan = Arc::new(Mutex::new(None::<Plan>));
    let planned = Arc::clone(&plan);
    let server = Server::start(move |call, stream| {
        let plan = planned.lock().unwrap().clone();
        match plan.filter(|plan| plan.method == call.method()) {
            Some(plan) => plan.write(call, stream),
            None if call.head.starts_with("GET") => {
                stream.write_all(&answer("405 Method Not Allowed", "text/plain", "no")).is_ok()
            }
            None => stream.write_all(&ordinary(call, era)).is_ok(),
        }
    });
    (server, plan)
}

fn able(gateway: &Gateway, era: Era) -> Client {
    let can = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    Client::able(gateway.address, "/mcp", era, Some(ANA), &can)
}

/// Sends a message and waits for its answer; of a subscription, for the head of its stream.
fn sent(gateway: &Gateway, spec: &MethodSpec, bytes: &[u8]) -> Option<Answer> {
    if spec.action != MethodAction::Listen {
        return Some(raw(gateway.address, bytes));
    }
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    until(&mut stream, "\r\n\r\n");
    None
}

/// The parameters of a method, with what it names.
fn named(spec: &MethodSpec) -> Value {
    let mut params = json!({});
    if let Some(place) = spec.named {
        let (outer, inner) = place.members();
        let name = |member: &str| json!(if member == "uri" { URI } else { TOOL });
        match inner {
            Some(inner) => params[outer] = json!({ "type": place.reference, inner: name(inner) }),
            None => params[outer] = name(outer),
        }
        if outer == "ref" {
            params["argument"] = json!({ "name": "a", "value": "v" });
        }
    }
    params
}

/// The parameters of a method with a body at each place where something can stand.
fn hostile(spec: &MethodSpec) -> Vec<(&'static str, Value)> {
    let with = |at: &'static str| {
        let mut params = named(spec);
        *params.pointer_mut(at).unwrap_or(&mut Value::Null) = json!("BODY");
        params
    };
    let mut of_method = named(spec);
    match spec.action {
        MethodAction::Initialize => {
            of_method = json!({ "protocolVersion": "2025-11-25", "capabilities": { "experimental": "BODY" },
                "clientInfo": { "name": "t", "version": "1" } });
        }
        MethodAction::Listen => of_method = json!({ "notifications": "BODY" }),
        MethodAction::Cancel => of_method = json!({ "requestId": 7, "reason": "BODY" }),
        _ => of_method["arguments"] = json!({ "v": "BODY" }),
    }
    let mut meta = named(spec);
    meta["_meta"] = json!({ "example.com/b": "BODY", "progressToken": "p" });
    meta["cursor"] = json!("c");
    let mut all = vec![("its own", of_method), ("meta", meta)];
    if spec.named.is_some_and(|place| place.reference.is_some()) {
        all.push(("argument", with("/argument/value")));
    }
    all
}

/// Sends each message of clients in this era, with each body at each place.
fn a_client_sends(era: Era) {
    let (server, _plan) = planning(era);
    let gateway = Config::asked(&server.url()).policy(OPEN).start();
    gateway.has_read(1);
    let ana = able(&gateway, era);
    let mut watched = Watched::new(gateway);
    for spec in methods(era) {
        for (at, params) in hostile(spec) {
            let id = if spec.is_notification() { Value::Null } else { json!("i") };
            let message = ana.message(&id, spec.name, params.clone()).replace("\"id\":null,", "");
            let name = params["name"].as_str().or(params["uri"].as_str());
            for (kind, body) in bodies() {
                let bytes = ana.bytes(spec.name, name, &message.replace(BODY, &body));
                let what = format!("{era:?} {} with {kind} in {at}", spec.name);
                watched.watch(&what, bytes.len(), |gateway| {
                    let answer = sent(gateway, spec, &bytes);
                    let status = answer.map_or(200, |answer| answer.status);
                    assert!(status < 500, "{what}: {status}");
                });
            }
        }
    }
    // The answers of a client to questions that nobody has asked.
    for member in ["result", "error"] {
        for (kind, body) in bodies() {
            let message = json!({ "jsonrpc": "2.0", "id": "q", member: "BODY" });
            let bytes = ana.bytes("", None, &message.to_string().replace(BODY, &body));
            watched.watch(&format!("{era:?} {member} of {kind}"), bytes.len(), |gateway| {
                drop(raw(gateway.address, &bytes));
            });
        }
    }
    watched.end();
}

#[test]
fn whatever_a_legacy_client_sends_takes_less_than_a_hundred_times_as_much_memory() {
    a_client_sends(Era::Legacy);
}

#[test]
fn whatever_a_modern_client_sends_takes_less_than_a_hundred_times_as_much_memory() {
    a_client_sends(Era::Modern);
}

/// Only clients of 2025-03-26 send batches.
#[test]
fn a_batch_takes_less_than_a_hundred_times_as_much_memory() {
    let (server, _plan) = planning(Era::Legacy);
    let gateway = Config::asked(&server.url()).policy(OPEN).start();
    gateway.has_read(1);
    let mut ana = able(&gateway, Era::Legacy);
    ana.handshake("2025-03-26");
    let mut watched = Watched::new(gateway);
    for (kind, body) in bodies() {
        let params = json!({ "name": TOOL, "arguments": { "v": "BODY" } });
        let call = |id: u64| ana.message(&json!(id), method::TOOLS_CALL, params.clone());
        let batch: Vec<_> = (0..4).map(call).collect();
        let bytes = ana.bytes("", None, &format!("[{}]", batch.join(",").replace(BODY, &body)));
        watched.watch(kind, bytes.len(), |gateway| drop(raw(gateway.address, &bytes)));
    }
    let pings: Vec<_> = (0..100)
        .map(|id| ana.message(&json!(id), method::PING, json!({ "x": [0; 1000] })))
        .collect();
    let bytes = ana.bytes("", None, &format!("[{}]", pings.join(",")));
    watched.watch("pings", bytes.len(), |gateway| drop(raw(gateway.address, &bytes)));
    watched.end();
}

/// What a server can answer to a method with a body in it.
fn results(spec: &MethodSpec) -> Vec<Value> {
    let list = |key: &str, item: Value| json!({ "resultType": "complete", key: [item], "ttlMs": 0, "cacheScope": "private" });
    let text = json!({ "type": "text", "text": "BODY" });
    let mut all = match spec.name {
        method::TOOLS_LIST => {
            let tool = |description: &str, schema: Value| json!({ "name": TOOL, "description": description, "inputSchema": schema });
            let schema = json!({ "type": "object", "properties": { "a": { "enum": "BODY" } } });
            vec![
                list("tools", tool("BODY", json!({ "type": "object" }))),
                list("tools", tool("d", schema)),
            ]
        }
        method::PROMPTS_LIST => {
            vec![list("prompts", json!({ "name": TOOL, "description": "BODY" }))]
        }
        method::RESOURCES_LIST => {
            vec![list("resources", json!({ "name": "r", "uri": URI, "description": "BODY" }))]
        }
        method::TEMPLATES_LIST => {
            let template =
                json!({ "name": "r", "uriTemplate": "http://r.example/{a}", "title": "BODY" });
            vec![list("resourceTemplates", template)]
        }
        method::SKILLS_LIST => vec![list("skills", json!({ "uri": URI, "frontmatter": "BODY" }))],
        method::TOOLS_CALL => {
            let question = json!({ "method": method::SAMPLE, "params": { "maxTokens": 1,
                "messages": [{ "role": "user", "content": text }] } });
            let form = json!({ "method": method::ELICIT, "params": { "message": "BODY",
                "requestedSchema": { "type": "object", "properties": { "a": { "type": "string" } } } } });
            let asks = |question: Value| {
                json!({ "resultType": "input_required", "requestState": "s",
                "inputRequests": { "q": question } })
            };
            vec![
                json!({ "resultType": "complete", "content": [text] }),
                json!({ "resultType": "complete", "content": [], "structuredContent": { "v": "BODY" } }),
                json!({ "resultType": "complete", "content": "BODY" }),
                asks(question),
                asks(form),
            ]
        }
        method::PROMPTS_GET => {
            vec![
                json!({ "resultType": "complete", "messages": [{ "role": "user", "content": text }] }),
            ]
        }
        method::RESOURCES_READ => {
            vec![json!({ "resultType": "complete", "contents": [{ "uri": URI, "text": "BODY" }] })]
        }
        method::COMPLETE => {
            vec![json!({ "resultType": "complete", "completion": { "values": "BODY" } })]
        }
        _ => Vec::new(),
    };
    all.push(
        json!({ "resultType": "complete", "_meta": { "example.com/b": "BODY" }, "x": "BODY" }),
    );
    all
}

/// Has a server answer each request of this era, with each body at each place, and send each message in a call.
fn a_server_sends(era: Era) {
    let (server, plan) = planning(era);
    let gateway = Config::asked(&server.url()).policy(OPEN).start();
    gateway.has_read(1);
    let ana = able(&gateway, era);
    let mut watched = Watched::new(gateway);
    let mut answered = |ask: &'static str, about: &str, planned: Planned| {
        let spec = MethodSpec::by_name(ask).unwrap();
        let params = named(spec);
        let name = params["name"].as_str().or(params["uri"].as_str());
        let meta = json!({ "progressToken": "p", "io.modelcontextprotocol/logLevel": "debug" });
        let mut given = params.clone();
        given["_meta"] = meta;
        let bytes = ana.bytes(ask, name, &ana.message(&json!("i"), ask, given));
        for (kind, body) in bodies() {
            let length = body.len();
            let planned = planned.clone();
            *plan.lock().unwrap() = Some(Plan { method: ask, planned, body });
            let what = format!("{era:?} {about} with {kind}");
            watched.watch(&what, length, |gateway| drop(sent(gateway, spec, &bytes)));
        }
        *plan.lock().unwrap() = None;
    };
    for spec in methods(era) {
        let asks = matches!(spec.action, MethodAction::List(_) | MethodAction::Use(_));
        if asks {
            for (n, result) in results(spec).into_iter().enumerate() {
                answered(
                    spec.name,
                    &format!("result {n} of {}", spec.name),
                    Planned::Result(result),
                );
            }
            answered(spec.name, &format!("error of {}", spec.name), Planned::Error);
        }
        // Every message, also those that only clients send.
        let mut params = named(spec);
        let text = json!({ "type": "text", "text": "BODY" });
        for (member, value) in [
            ("message", json!("BODY")),
            ("data", json!("BODY")),
            ("messages", json!([{ "role": "user", "content": text }])),
            ("requestedSchema", json!({ "type": "object", "properties": "BODY" })),
            ("progressToken", json!("p")),
            ("progress", json!(1)),
            ("level", json!("error")),
            ("maxTokens", json!(1)),
        ] {
            params[member] = value;
        }
        let mut message = json!({ "jsonrpc": "2.0", "method": spec.name, "params": params });
        if !spec.is_notification() {
            message["id"] = json!("q");
        }
        let about = format!("{} in a call", spec.name);
        answered(method::TOOLS_CALL, &about, Planned::Message(message));
    }
    watched.end();
}

#[test]
fn whatever_a_legacy_server_sends_takes_less_than_a_hundred_times_as_much_memory() {
    a_server_sends(Era::Legacy);
}

#[test]
fn whatever_a_modern_server_sends_takes_less_than_a_hundred_times_as_much_memory() {
    a_server_sends(Era::Modern);
}

#[test]
fn a_server_that_says_much_of_itself_takes_less_than_a_hundred_times_as_much_memory() {
    for era in ERAS {
        let (server, _plan) = planning(era);
        let usual = Config::asked(&server.url()).policy(OPEN).start();
        usual.has_read(1);
        let before = memory_of(&usual, "VmHWM:");
        drop(usual);
        let (method, result) = match era {
            Era::Legacy => (
                method::INITIALIZE,
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "experimental": "BODY" },
                    "serverInfo": { "name": "fake", "version": "1" }, "instructions": "BODY" }),
            ),
            Era::Modern => (
                method::DISCOVER,
                json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": { "tools": {}, "experimental": "BODY" }, "ttlMs": 0, "cacheScope": "public",
                    "instructions": "BODY" }),
            ),
        };
        for (kind, body) in bodies() {
            let (server, plan) = planning(era);
            let length = 2 * body.len();
            *plan.lock().unwrap() =
                Some(Plan { method, planned: Planned::Result(result.clone()), body });
            let gateway = Config::asked(&server.url()).policy(OPEN).start();
            let mut watched = Watched { gateway, before, over: Vec::new(), most: 0 };
            watched.watch(&format!("{era:?} {kind}"), length, |gateway| {
                drop(able(gateway, era).ask(method::TOOLS_LIST, json!({})));
            });
            watched.end();
        }
    }
}

#[test]
fn what_a_guardrail_answers_takes_less_than_a_hundred_times_as_much_memory() {
    for era in ERAS {
        let said = Arc::new(Mutex::new(String::new()));
        let saying = Arc::clone(&said);
        let guard = Server::start(move |_call, stream| {
            stream.write_all(&ok(&saying.lock().unwrap())).is_ok()
        });
        let (server, _plan) = planning(era);
        let mut config = Config::asked(&server.url()).policy(OPEN);
        let guardrail = format!("{{name: guard, url: '{}', onFailure: deny}}", guard.url());
        config.routes = format!("- {{path: /mcp, servers: [up], guardrails: [{guardrail}]}}");
        *said.lock().unwrap() = json!({ "verdict": "allow" }).to_string();
        let gateway = config.start();
        gateway.has_read(1);
        let ana = able(&gateway, era);
        let mut watched = Watched::new(gateway);
        for (kind, body) in bodies() {
            let verdict = json!({ "verdict": "deny", "reason": "BODY", "x": "BODY" });
            *said.lock().unwrap() = verdict.to_string().replace(BODY, &body);
            watched.watch(kind, 2 * body.len(), |_gateway| drop(ana.call(TOOL, &json!({}))));
        }
        watched.end();
    }
}
