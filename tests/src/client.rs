//! Clients that send exactly the bytes they are told to.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{Era, PATIENCE};

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The value of a header, when it is there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let name = format!("\r\n{name}: ");
        self.head.split(&name).nth(1).map(|rest| rest.split("\r\n").next().unwrap())
    }

    /// The message as it is written: the body, or the last event of a stream. A legacy call that takes longer than an
    /// instant is answered with a stream.
    #[must_use]
    pub fn message(&self) -> String {
        if self.header("content-type") == Some("text/event-stream") {
            self.events().pop().unwrap_or_default()
        } else {
            self.body.clone()
        }
    }

    /// The message as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the gateway's output, not a peer's")]
    pub fn json(&self) -> Value {
        let text = self.message();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The data of the events of a stream.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        // The first event of a stream may have an id and nothing to say.
        data.filter(|data| !data.is_empty()).map(str::to_owned).collect()
    }

    /// What the gateway says to programs of a denied call of a tool, if this is one that it has denied with a
    /// result.
    #[must_use]
    pub fn denial(&self) -> Option<Value> {
        let result = &self.json()["result"];
        let denial = result["_meta"]["dev.portcullis/denial"].clone();
        denial.is_object().then_some(denial).filter(|_| result["isError"] == true)
    }

    /// What a model is told: the first text of a result.
    #[must_use]
    pub fn text(&self) -> String {
        self.json()["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }

    /// The members `key` of what it lists in `list`, as texts.
    ///
    /// # Panics
    /// When it has no such list.
    #[must_use]
    pub fn listed(&self, list: &str, key: &str) -> Vec<String> {
        let answer = self.json();
        let items = answer["result"][list].as_array().unwrap_or_else(|| panic!("{answer}"));
        items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
    }

    /// The JSON-RPC error code, or 0.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_default()
    }
}

/// Sends `bytes` and reads one answer.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server may answer and close before it has read everything.
    drop(stream.write_all(bytes));
    read(&mut stream)
}

/// The same from this address of the machine.
///
/// # Panics
/// When there is no answer, or the machine does not have the address.
#[must_use]
pub fn raw_from(source: std::net::IpAddr, address: SocketAddr, bytes: &[u8]) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(source, 0))?;
        socket.connect(address).await?.into_std()
    });
    let mut stream = connected.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    read(&mut stream)
}

/// A POST with these headers, as bytes.
#[must_use]
pub fn post(path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("POST {path} HTTP/1.1\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    text.into_bytes()
}

/// Reads one answer.
///
/// # Panics
/// When there is none.
pub fn read(stream: &mut impl std::io::Read) -> Answer {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        if let Some(answer) = whole(&bytes, false) {
            crate::canary::answered(&bytes);
            return answer;
        }
        match stream.read(&mut buffer) {
            Ok(0) => {
                return whole(&bytes, true).expect("the connection was closed without an answer");
            }
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) => panic!("no answer: {error}: {}", String::from_utf8_lossy(&bytes)),
        }
    }
}

/// Whether it is worth reading: a long answer arrives in many parts.
fn may_be_whole(bytes: &[u8]) -> bool {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let body = &bytes[end + 4..];
    if head.contains("transfer-encoding: chunked") {
        return body.starts_with(b"0\r\n") || memchr::memmem::find(body, b"\r\n0\r\n").is_some();
    }
    let length =
        head.split("\r\ncontent-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    length
        .and_then(|length| length.trim().parse().ok())
        .is_none_or(|length: usize| body.len() >= length)
}

fn whole(bytes: &[u8], closed: bool) -> Option<Answer> {
    if !closed && !may_be_whole(bytes) {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let head = head.to_ascii_lowercase();
    let answer = |body: String| {
        // Session ids tell upper from lower case.
        let original = text.split_once("\r\n\r\n").unwrap().0;
        let session = original.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.to_owned())
        });
        let head = match session {
            Some(id) => head.replace(&id.to_ascii_lowercase(), &id),
            None => head.clone(),
        };
        Some(Answer { status, head: format!("{head}\r\n"), body })
    };
    // RFC 9112, section 6.3: these have no body, whatever they say of it.
    if matches!(status, 204 | 304) {
        return answer(String::new());
    }
    if let Some(length) = head.split("\r\ncontent-length: ").nth(1) {
        let length: usize = length.split("\r\n").next()?.trim().parse().ok()?;
        let body = bytes.get(head.len() + 4..)?;
        return (body.len() >= length)
            .then(|| answer(String::from_utf8_lossy(&body[..length]).into_owned()))?;
    }
    if head.contains("transfer-encoding: chunked") {
        let mut out = String::new();
        let mut rest = body;
        loop {
            let (size, after) = rest.split_once("\r\n")?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            if size == 0 {
                return answer(out);
            }
            out.push_str(after.get(..size)?);
            rest = after.get(size + 2..)?;
        }
    }
    closed.then(|| answer(body.to_owned()))?
}

/// A client of one era.
#[derive(Clone, Debug)]
pub struct Client {
    /// Where it connects.
    pub address: SocketAddr,
    path: String,
    /// The era it speaks.
    pub era: Era,
    key: Option<String>,
    /// More headers of every request.
    pub headers: Vec<(String, String)>,
    /// Its session, when it has one.
    pub session: Option<String>,
    /// What it says it can do.
    pub capabilities: Value,
    /// The revision a legacy client asks for.
    pub version: &'static str,
}

/// Ids of one width, so that answers that say the same are equally long.
static NEXT: AtomicUsize = AtomicUsize::new(100_000);

impl Client {
    /// A client; a legacy one has shaken hands.
    ///
    /// # Panics
    /// When the handshake fails.
    #[must_use]
    pub fn connect(address: SocketAddr, path: &str, era: Era, key: Option<&str>) -> Self {
        Self::able(address, path, era, key, &json!({}))
    }

    /// A client that can do this.
    ///
    /// # Panics
    /// When the handshake fails.
    #[must_use]
    pub fn able(
        address: SocketAddr,
        path: &str,
        era: Era,
        key: Option<&str>,
        capabilities: &Value,
    ) -> Self {
        let (path, key) = (path.to_owned(), key.map(str::to_owned));
        let capabilities = capabilities.clone();
        let version = "2025-11-25";
        let (headers, session) = (Vec::new(), None);
        let mut client = Self { address, path, era, key, headers, session, capabilities, version };
        if era == Era::Legacy {
            client.handshake("2025-11-25");
        }
        client
    }

    /// A client that has not shaken hands and shows no key of its own, but these headers.
    #[must_use]
    pub fn silent(address: SocketAddr, path: &str, era: Era, headers: &[(&str, &str)]) -> Self {
        let mut client = Self::able(address, path, Era::Modern, None, &json!({}));
        client.era = era;
        client.headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        client
    }

    /// Opens a new session in this revision.
    ///
    /// # Panics
    /// When the handshake fails.
    pub fn handshake(&mut self, version: &'static str) {
        self.version = version;
        let answer = self.hello();
        let session = answer.header("mcp-session-id").unwrap_or_else(|| panic!("{answer:?}"));
        self.session = Some(session.to_owned());
    }

    /// Opens the stream of the session, or goes on with one after an event.
    ///
    /// # Panics
    /// When there is no connection.
    #[must_use]
    pub fn stream(&self, last: Option<&str>) -> TcpStream {
        let (path, host) = (&self.path, self.address);
        let mut text =
            format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n");
        for (name, value) in [
            ("authorization", self.key.as_ref().map(|key| format!("Bearer {key}"))),
            ("mcp-session-id", self.session.clone()),
            ("mcp-protocol-version", Some(self.version.to_owned())),
            ("last-event-id", last.map(str::to_owned)),
        ] {
            text.extend(value.map(|value| format!("{name}: {value}\r\n")));
        }
        text.extend(self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{text}\r\n").as_bytes()).unwrap();
        stream
    }

    /// Sends `initialize`.
    #[must_use]
    pub fn hello(&self) -> Answer {
        raw(self.address, &self.hello_bytes())
    }

    /// The bytes of `initialize`.
    #[must_use]
    pub fn hello_bytes(&self) -> Vec<u8> {
        let params = json!({
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let client = Self { session: None, ..self.clone() };
        client.bytes("initialize", None, &body.to_string())
    }

    /// The bytes of a POST with the headers this client sends.
    #[must_use]
    pub fn bytes(&self, method: &str, name: Option<&str>, body: &str) -> Vec<u8> {
        let host = self.address.to_string();
        let mut headers = vec![
            ("host", host.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        // SPEC 2026-07-28 basic/transports/streamable-http#value-encoding
        let encoded = name.filter(|name| !name.is_ascii()).map(|name| {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(name);
            format!("=?base64?{text}?=")
        });
        let name = encoded.as_deref().or(name);
        let key = self.key.as_ref().map(|key| format!("Bearer {key}"));
        headers.extend(key.as_deref().map(|key| ("authorization", key)));
        headers.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        match self.era {
            Era::Modern => {
                headers.push(("mcp-protocol-version", "2026-07-28"));
                headers.push(("mcp-method", method));
                headers.extend(name.map(|name| ("mcp-name", name)));
            }
            Era::Legacy => {
                if method != "initialize" {
                    headers.push(("mcp-protocol-version", self.version));
                }
                headers.extend(self.session.as_deref().map(|id| ("mcp-session-id", id)));
            }
        }
        post(&self.path, &headers, body)
    }

    /// A request of this era.
    #[must_use]
    pub fn message(&self, id: &Value, method: &str, mut params: Value) -> String {
        if self.era == Era::Modern {
            let mut meta = params["_meta"].as_object().cloned().unwrap_or_default();
            meta.insert("io.modelcontextprotocol/protocolVersion".into(), "2026-07-28".into());
            meta.insert(
                "io.modelcontextprotocol/clientCapabilities".into(),
                self.capabilities.clone(),
            );
            params["_meta"] = meta.into();
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    }

    /// Asks something.
    #[must_use]
    pub fn ask(&self, method: &str, params: Value) -> Answer {
        let name = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
        let id = NEXT.fetch_add(1, Ordering::Relaxed).into();
        let body = self.message(&id, method, params);
        raw(self.address, &self.bytes(method, name.as_deref(), &body))
    }

    /// Calls a tool.
    #[must_use]
    pub fn call(&self, tool: &str, arguments: &Value) -> Answer {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The bytes of a call with this id.
    #[must_use]
    pub fn call_bytes(&self, id: &Value, params: &Value) -> Vec<u8> {
        let body = self.message(id, "tools/call", params.clone());
        self.bytes("tools/call", params["name"].as_str(), &body)
    }

    /// The names of the tools it sees.
    ///
    /// # Panics
    /// When the list fails.
    #[must_use]
    pub fn tools(&self) -> Vec<String> {
        self.ask("tools/list", json!({})).listed("tools", "name")
    }
}

/// Reads until `text` is there; gives all that was read.
///
/// # Panics
/// When the connection ends before.
pub fn until(stream: &mut TcpStream, text: &str) -> String {
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    while !seen.contains(text) {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "closed after {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    seen
}

/// A GET, without any credential.
#[must_use]
pub fn get(address: SocketAddr, path: &str) -> Answer {
    raw(address, format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())
}
