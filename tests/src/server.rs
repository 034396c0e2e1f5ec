//! Servers that answer with exactly the bytes they are told to.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::Era;

/// A request as a server got it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The whole head.
    pub head: String,
    /// The body, read as JSON.
    pub body: Value,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Call {
    /// The method of the message.
    #[must_use]
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// The tool it calls.
    #[must_use]
    pub fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }

    /// An HTTP answer with `result`.
    #[must_use]
    pub fn result(&self, result: &Value) -> Vec<u8> {
        ok(&json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result }).to_string())
    }

    /// An HTTP answer with a text as a tool's result.
    #[must_use]
    pub fn text(&self, text: &str) -> Vec<u8> {
        self.result(&json!({
            "resultType": "complete", "content": [{ "type": "text", "text": text }]
        }))
    }
}

/// An HTTP answer with this JSON.
#[must_use]
pub fn ok(body: &str) -> Vec<u8> {
    answer("200 OK", "application/json", body)
}

/// An HTTP answer.
#[must_use]
pub fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// A server on a port of its own.
#[derive(Debug)]
pub struct Server {
    /// Where it is.
    pub address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Server {
    /// Answers every request with what `respond` writes. A connection ends when it says so.
    pub fn start(respond: impl Fn(&Call, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        Self::begin(respond, false)
    }

    /// The same for one that may be shown what callers show: an authorization server.
    pub fn trusted(
        respond: impl Fn(&Call, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::begin(respond, true)
    }

    fn begin(
        respond: impl Fn(&Call, &mut TcpStream) -> bool + Send + Sync + 'static,
        trusted: bool,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (respond, calls) = (Arc::new(respond), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&calls);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (respond, log) = (Arc::clone(&respond), Arc::clone(&log));
                thread::spawn(move || serve(stream.unwrap(), &*respond, &log, trusted));
            }
        });
        Self { address, calls }
    }

    /// A well-behaved server of one era with these tools; `call` answers their calls.
    pub fn with(
        era: Era,
        tools: Value,
        call: impl Fn(&Call, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |request, stream| {
            let bytes = match (request.method(), era) {
                ("tools/call", _) => return call(request, stream),
                ("tools/list", _) => request.result(&json!({
                    "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "public"
                })),
                _ => greeting(request, era),
            };
            stream.write_all(&bytes).is_ok()
        })
    }

    /// A well-behaved server of one era that offers all this: the members `tools`, `prompts`,
    /// `resources`, `resourceTemplates` and `skills`, and for each list its `ttlMs` and `cacheScope`. What else
    /// is asked `answer` gives the result of.
    pub fn offering(
        era: Era,
        offers: Value,
        answer: impl Fn(&Call) -> Value + Send + Sync + 'static,
    ) -> Self {
        Self::shifting(era, move |_| offers.clone(), answer)
    }

    /// The same for one whose offers may be others for every request; also its `instructions`, and a
    /// `session` that its session ids end in.
    pub fn shifting(
        era: Era,
        offers: impl Fn(&Call) -> Value + Send + Sync + 'static,
        answer: impl Fn(&Call) -> Value + Send + Sync + 'static,
    ) -> Self {
        Self::answering(era, offers, move |request, stream| {
            stream.write_all(&request.result(&answer(request))).is_ok()
        })
    }

    /// The same for one that writes its answers itself, also as streams.
    pub fn answering(
        era: Era,
        offers: impl Fn(&Call) -> Value + Send + Sync + 'static,
        answer: impl Fn(&Call, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let count = std::sync::atomic::AtomicUsize::new(0);
        Self::start(move |request, stream| {
            let offers = offers(request);
            let list = match request.method() {
                "tools/list" => "tools",
                "prompts/list" => "prompts",
                "resources/list" => "resources",
                "resources/templates/list" => "resourceTemplates",
                "skills/list" if offers["skills"].is_array() => "skills",
                _ => "",
            };
            let mut capabilities =
                json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {} });
            if offers["skills"].is_array() {
                capabilities["extensions"] =
                    json!({ "io.modelcontextprotocol/skills": { "directoryRead": true } });
            }
            let bytes = match (request.method(), era) {
                (_, _) if !list.is_empty() => request.result(&json!({
                    "resultType": "complete", list: offers[list].as_array().cloned().unwrap_or_default(),
                    "ttlMs": offers["ttlMs"].as_u64().unwrap_or(0),
                    "cacheScope": offers["cacheScope"].as_str().unwrap_or("private"),
                })),
                ("server/discover", Era::Modern) => request.result(&json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": capabilities, "ttlMs": 0, "cacheScope": "public",
                    "instructions": offers["instructions"],
                })),
                ("initialize", Era::Legacy) => {
                    let result = json!({
                        "protocolVersion": "2025-11-25", "capabilities": capabilities,
                        "serverInfo": { "name": "fake", "version": "1" },
                        "instructions": offers["instructions"],
                    });
                    let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "result": result });
                    let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let whose = offers["session"].as_str().unwrap_or_default();
                    let session = format!("mcp-session-id: session-{number}{whose}\r\n");
                    with_header(&ok(&body.to_string()), &session)
                }
                ("server/discover" | "initialize", _) => {
                    crate::server::answer("400 Bad Request", "text/plain", "no")
                }
                ("", _) if request.head.starts_with("GET") => {
                    crate::server::answer("405 Method Not Allowed", "text/plain", "no")
                }
                _ if request.body["id"].is_null() => {
                    b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
                }
                _ => return answer(request, stream),
            };
            stream.write_all(&bytes).is_ok()
        })
    }

    /// A well-behaved server whose tools give back their `text`.
    #[must_use]
    pub fn echo(era: Era, tools: &[&str]) -> Self {
        let tools: Vec<_> = tools.iter().map(|name| tool(name)).collect();
        Self::with(era, tools.into(), |call, stream| {
            let text = call.body["params"]["arguments"]["text"].as_str().unwrap_or("done");
            stream.write_all(&call.text(text)).is_ok()
        })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The requests it got.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// How often it was asked for `method`.
    #[must_use]
    pub fn count(&self, method: &str) -> usize {
        self.calls().iter().filter(|call| call.method() == method).count()
    }

    /// The calls of tools it got.
    #[must_use]
    pub fn tool_calls(&self) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.method() == "tools/call").collect()
    }
}

/// What a server of one era that has tools answers to whoever comes, beside lists and calls.
#[must_use]
pub fn greeting(request: &Call, era: Era) -> Vec<u8> {
    match (request.method(), era) {
        ("server/discover", Era::Modern) => request.result(&json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "public",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "fake", "version": "1" } },
        })),
        ("initialize", Era::Legacy) => {
            let result = json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "fake", "version": "1" },
            });
            let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "result": result });
            with_header(&ok(&body.to_string()), "mcp-session-id: upstream-session\r\n")
        }
        _ if request.body["id"].is_null() => {
            b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
        _ => answer("400 Bad Request", "text/plain", "no"),
    }
}

/// The definition of a tool.
#[must_use]
pub fn tool(name: &str) -> Value {
    json!({ "name": name, "description": "A tool.", "inputSchema": { "type": "object" } })
}

/// An answer with one more header line.
///
/// # Panics
/// When the answer is no text.
#[must_use]
pub fn with_header(answer: &[u8], header: &str) -> Vec<u8> {
    let text = String::from_utf8(answer.to_vec()).unwrap();
    text.replacen("\r\n", &format!("\r\n{header}"), 1).into_bytes()
}

/// The head of the request in `bytes`, and where its body is, if it has arrived as a whole.
fn whole(bytes: &[u8]) -> Option<(String, Range<usize>)> {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let lower = head.to_ascii_lowercase();
    let length = lower.split("content-length: ").nth(1);
    let length = length.map_or("0", |rest| rest.split("\r\n").next().unwrap());
    let body = end + 4..end + 4 + length.trim().parse::<usize>().unwrap();
    (bytes.len() >= body.end).then_some((head, body))
}

#[expect(clippy::disallowed_methods, reason = "a fake server reads loosely on purpose")]
fn serve(
    mut stream: TcpStream,
    respond: &dyn Fn(&Call, &mut TcpStream) -> bool,
    log: &Mutex<Vec<Call>>,
    trusted: bool,
) {
    stream.set_nodelay(true).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 16384];
    loop {
        if let Some((head, place)) = whole(&bytes) {
            let body = bytes.get(place.clone()).unwrap();
            let body = serde_json::from_str(&String::from_utf8_lossy(body)).unwrap_or_default();
            let call = Call { head, body, bytes: bytes.drain(..place.end).collect() };
            if !trusted {
                crate::canary::sent(&call.bytes);
            }
            log.lock().unwrap().push(call.clone());
            if !respond(&call, &mut stream) {
                return;
            }
            continue;
        }
        match stream.read(&mut buffer) {
            Ok(read @ 1..) => bytes.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
}
