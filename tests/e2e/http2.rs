//! HTTP/2 with clients and with servers: the same answers as over HTTP/1.1, and what a peer may cost.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use e2e::client::{Client, until};
use e2e::gateway::{ANA, Config, Gateway};
use e2e::http2::{
    END_HEADERS, END_STREAM, Front, Wire, agreed, ask, frame, kind, packed, server, tunnel,
};
use e2e::pki::{Leaf, Pki};
use e2e::server::{Call, Server, greeting, tool};
use e2e::tls::client;
use e2e::{ERAS, Era, eventually};
use http::Request;
use rustls::ClientConfig;
use serde_json::{Value, json};

/// Errors (RFC 9113, section 7).
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// The flag of a head with a priority (RFC 9113, section 6.2).
const WITH_PRIORITY: u8 = 0x20;

const EVENTS: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// An authority, for the gateway and for servers.
pub(crate) fn authority() -> Arc<Pki> {
    Arc::new(Pki::new("both"))
}

/// A gateway that speaks TLS before `url`, and how its clients do.
pub(crate) struct Secure {
    gateway: Gateway,
    pub(crate) config: Arc<ClientConfig>,
    /// Its files are looked at now and then.
    _pki: Arc<Pki>,
}

impl Secure {
    pub(crate) fn before(url: &str, pki: &Arc<Pki>, limits: &str) -> Self {
        Self::with(
            &format!("- {}", upstream("up", url, pki)),
            "- {path: /mcp, servers: [up]}",
            pki,
            limits,
        )
    }

    fn with(servers: &str, routes: &str, pki: &Arc<Pki>, limits: &str) -> Self {
        let own = pki.issue(&Leaf::local());
        let mut config = Config::with(servers, "[]").limits(limits);
        config.routes = routes.to_owned();
        config.listener = format!(
            "tls: {{certificate: '{}', key: '{}'}}",
            own.certificate.display(),
            own.key.display()
        );
        Self { gateway: config.start(), config: client(pki.roots(), None), _pki: Arc::clone(pki) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.address
    }

    /// A client whose requests go over one connection of HTTP/2.
    fn client(&self, era: Era) -> Client {
        self.client_of("/mcp", era)
    }

    fn client_of(&self, path: &str, era: Era) -> Client {
        Client::connect(tunnel(self.address(), &self.config), path, era, Some(ANA))
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire::client(self.address(), &self.config, &[])
    }

    pub(crate) fn is_served(&self) {
        let answer = self.client(Era::Modern).call("echo", &json!({ "text": "served" }));
        assert_eq!(answer.json()["result"]["content"][0]["text"], "served", "{answer:?}");
    }
}

fn upstream(name: &str, url: &str, pki: &Pki) -> String {
    let tls = if url.starts_with("https") {
        format!(", tls: {{authorities: '{}'}}", pki.path())
    } else {
        String::new()
    };
    format!("{{name: {name}, url: '{url}'{tls}}}")
}

fn echoing(limits: &str) -> (Server, Secure) {
    let server = Server::echo(Era::Modern, &["echo"]);
    let secure = Secure::before(&server.url(), &authority(), limits);
    (server, secure)
}

/// A server whose calls wait until they are let go.
fn waiting(era: Era) -> (Server, Sender<()>) {
    let (go, wait): (_, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let server = Server::with(era, json!([tool("echo")]), move |call, stream| {
        wait.lock().unwrap().recv().is_ok() && stream.write_all(&call.text("late")).is_ok()
    });
    (server, go)
}

/// The headers of a call in HTTP/2; what is in `more` is appended.
pub(crate) fn call_headers<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/mcp"),
        ("authorization", "Bearer pcl_ana-secret-0123456789"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "echo"),
    ];
    fields.extend(more);
    fields
}

pub(crate) fn call_body() -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "echo", "arguments": { "text": "hi" }, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    } })
    .to_string()
}

/// A whole call on a stream.
fn call(stream: u32) -> Vec<u8> {
    let head = frame(kind::HEADERS, END_HEADERS, stream, &packed(&call_headers(&[])));
    [head, frame(kind::DATA, END_STREAM, stream, call_body().as_bytes())].concat()
}

#[test]
fn clients_choose_http2_and_those_who_cannot_speak_http1() {
    let (_server, secure) = echoing("");
    let agreed = |protocols: &[&str]| agreed(secure.address(), &secure.config, protocols);
    assert_eq!(agreed(&["h2", "http/1.1"]).as_deref(), Some("h2"));
    assert_eq!(agreed(&["http/1.1"]).as_deref(), Some("http/1.1"));
    assert_eq!(agreed(&[]), None);
    // A client that says nothing of protocols is served over HTTP/1.1.
    let plain = e2e::tls::tunnel(secure.address(), Arc::clone(&secure.config));
    let old = Client::connect(plain, "/mcp", Era::Modern, Some(ANA));
    assert_eq!(old.call("echo", &json!({ "text": "x" })).status, 200);
    secure.is_served();
}

#[test]
fn a_listener_can_be_kept_to_http1() {
    let (server, pki) = (Server::echo(Era::Modern, &["echo"]), authority());
    let own = pki.issue(&Leaf::local());
    let mut config = Config::of(&server.url());
    let (certificate, key) = (own.certificate.display(), own.key.display());
    config.listener = format!("tls: {{certificate: '{certificate}', key: '{key}', http2: false}}");
    let gateway = config.start();
    let offers = client(pki.roots(), None);
    let chosen = agreed(gateway.address, &offers, &["h2", "http/1.1"]);
    assert_eq!(chosen.as_deref(), Some("http/1.1"));
}

#[test]
fn lists_calls_and_sessions_are_the_same_over_http2_to_a_server_that_speaks_it() {
    for era in ERAS {
        let (inner, pki) = (Server::echo(era, &["echo", "drop"]), authority());
        let front = Front::before(inner.address, &pki.issue(&Leaf::local()));
        let secure = Secure::before(&front.url(), &pki, "");
        let ana = secure.client(era);
        assert_eq!(ana.tools(), ["echo", "drop"]);
        for n in 0..20 {
            let text = format!("call {n}");
            let answer = ana.call("echo", &json!({ "text": text }));
            assert_eq!(answer.json()["result"]["content"][0]["text"], json!(text));
            assert!(answer.header("connection").is_none() && answer.header("date").is_some());
        }
        // Long enough that both windows have to be opened again.
        let long = "x".repeat(1 << 20);
        let answer = ana.call("echo", &json!({ "text": long }));
        assert_eq!(answer.json()["result"]["content"][0]["text"], json!(long));
        assert_eq!(inner.tool_calls().len(), 21);
        let hosts = front.hosts.lock().unwrap().clone();
        let host = front.address.to_string();
        assert!(hosts.iter().all(|(name, twice)| *name == host && !twice), "{hosts:?}");
        let calls = secure.gateway.exchanges();
        assert_eq!(calls.iter().filter(|record| record["method"] == "tools/call").count(), 21);
        let refused = Client::silent(ana.address, "/mcp", era, &[("x-api-key", "pcl_wrong")]);
        assert_eq!(refused.hello().status, 401);
    }
}

#[test]
fn requests_share_connections_to_a_server_and_servers_share_none() {
    let (go, wait): (_, Receiver<()>) = channel();
    let wait = Arc::new(Mutex::new(wait));
    let inner = Server::with(Era::Modern, json!([tool("echo")]), move |call, stream| {
        wait.lock().unwrap().recv().is_ok() && stream.write_all(&call.text("late")).is_ok()
    });
    let pki = authority();
    let front = Front::before(inner.address, &pki.issue(&Leaf::local()));
    let servers = ["one", "two"].map(|name| format!("- {}", upstream(name, &front.url(), &pki)));
    let routes = "- {path: /one, servers: [one]}\n- {path: /two, servers: [two]}";
    let secure = Secure::with(&servers.join("\n"), routes, &pki, "");
    let one = secure.client_of("/one", Era::Modern);
    assert_eq!(one.tools(), ["echo"]);
    let made = front.connections.load(Ordering::Relaxed);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let one = one.clone();
            std::thread::spawn(move || one.call("echo", &json!({})).status)
        })
        .collect();
    eventually("the calls", || (inner.tool_calls().len() == 20).then_some(()));
    // All of them come over one connection of a client, so one worker has them.
    let more = front.connections.load(Ordering::Relaxed) - made;
    assert!(more <= 2, "{more} connections for 20 calls");
    (0..20).for_each(|_| go.send(()).unwrap());
    assert!(calls.into_iter().all(|call| call.join().unwrap() == 200));
    let before = front.connections.load(Ordering::Relaxed);
    assert_eq!(secure.client_of("/two", Era::Modern).tools(), ["echo"]);
    assert!(front.connections.load(Ordering::Relaxed) > before, "another entry, another identity");
}

#[test]
fn events_cross_http2_as_they_come() {
    for era in ERAS {
        let (go, wait): (_, Receiver<()>) = channel();
        let wait = Mutex::new(wait);
        let inner = Server::with(era, json!([tool("work")]), move |call, stream| {
            let token = &call.body["params"]["_meta"]["progressToken"];
            let event = |stream: &mut TcpStream, message: &Value| {
                let text = format!("data: {message}\n\n");
                stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).is_ok()
            };
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": token, "progress": 1, "total": 2,
            } });
            let result =
                json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": { "content": [] } });
            stream.write_all(EVENTS).is_ok()
                && event(stream, &progress)
                && wait.lock().unwrap().recv().is_ok()
                && event(stream, &result)
                && stream.write_all(b"0\r\n\r\n").is_ok()
        });
        let pki = authority();
        let front = Front::before(inner.address, &pki.issue(&Leaf::local()));
        let secure = Secure::before(&front.url(), &pki, "");
        let ana = secure.client(era);
        let params = json!({ "name": "work", "_meta": { "progressToken": "mine" } });
        let mut stream = TcpStream::connect(ana.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        stream.write_all(&ana.call_bytes(&json!(41), &params)).unwrap();
        until(&mut stream, "\"progress\":1");
        go.send(()).unwrap();
        until(&mut stream, "\"id\":41");
    }
}

#[test]
fn a_stream_that_is_reset_cancels_its_call_alone() {
    let (closed, seen) = channel();
    let closed = Mutex::new(closed);
    let inner =
        Server::with(Era::Modern, json!([tool("work"), tool("echo")]), move |call, stream| {
            if call.tool() == "echo" {
                return stream.write_all(&call.text("served")).is_ok();
            }
            let ended = matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_));
            closed.lock().unwrap().send(ended).unwrap();
            false
        });
    let pki = authority();
    let front = Front::before(inner.address, &pki.issue(&Leaf::local()));
    let secure = Secure::before(&front.url(), &pki, "");
    let ana = secure.client(Era::Modern);
    let mut stream = TcpStream::connect(ana.address).unwrap();
    stream.write_all(&ana.call_bytes(&json!(41), &json!({ "name": "work" }))).unwrap();
    eventually("the call", || (!inner.tool_calls().is_empty()).then_some(()));
    let made = front.connections.load(Ordering::Relaxed);
    drop(stream);
    assert!(seen.recv_timeout(e2e::PATIENCE).unwrap());
    assert_eq!(front.resets.load(Ordering::Relaxed), 1);
    let record = secure.gateway.recorded("the cancelled call", |r| r["method"] == "tools/call");
    assert_eq!((&record["outcome"], &record["status"]), (&json!("cancelled"), &json!(499)));
    // Over the same two connections.
    assert_eq!(ana.call("echo", &json!({})).status, 200);
    assert_eq!(front.connections.load(Ordering::Relaxed), made);
}

#[test]
fn the_authority_is_the_host_and_both_must_agree() {
    let (server, secure) = echoing("");
    let ask = |uri: &str, host: Option<&str>, more: &[(&str, &str)]| {
        let mut request = Request::post(uri);
        for (name, value) in call_headers(more).into_iter().skip(4) {
            request = request.header(name, value);
        }
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let before = secure.gateway.exchanges().len();
        let request = request.body(call_body().into_bytes()).unwrap();
        let status = ask(secure.address(), &secure.config, request).map(|answer| answer.status);
        let records = eventually("the record", || {
            let records = secure.gateway.exchanges();
            (records.len() > before).then_some(records)
        });
        assert_eq!(records.len(), before + 1, "one record for one request");
        (status, records.last().unwrap()["reason"].as_str().unwrap_or("none").to_owned())
    };
    let good = "https://localhost/mcp";
    let is = |status: u16, reason: &str| (Some(status), reason.to_owned());
    assert_eq!(ask(good, None, &[]), is(200, "none"));
    assert_eq!(ask(good, Some("localhost"), &[]), is(200, "none"));
    assert_eq!(ask(good, Some("evil.example"), &[]).1, "host-not-allowed");
    assert_eq!(ask("https://evil.example/mcp", None, &[]).1, "host-not-allowed");
    assert_eq!(ask("https://evil.example/mcp", Some("localhost"), &[]).1, "host-not-allowed");
    assert_eq!(ask("https://ana@localhost/mcp", None, &[]).1, "host-not-allowed");
    assert_eq!(ask("https://localhost/../mcp", None, &[]), is(404, "unknown-route"));
    assert_eq!(ask(good, None, &[("origin", "https://evil.example")]).1, "origin-not-allowed");
    let length = call_body().len().to_string();
    let twice = [("content-length", length.as_str()), ("content-length", length.as_str())];
    assert_eq!(ask(good, None, &twice).1, "ambiguous-framing");
    assert_eq!(server.tool_calls().len(), 2);
}

#[test]
fn connect_is_refused_in_both_forms() {
    let (_server, secure) = echoing("");
    let head = |more: &[(&str, &str)]| {
        let mut fields = vec![(":method", "CONNECT"), (":authority", "localhost")];
        fields.extend(more);
        fields.push(("authorization", "Bearer pcl_ana-secret-0123456789"));
        frame(kind::HEADERS, END_HEADERS, 1, &packed(&fields))
    };
    let mut wire = secure.wire();
    assert!(wire.send(&head(&[])));
    let record = secure.gateway.recorded("the refusal", |r| r["reason"] == "upgrade-not-supported");
    assert_eq!(record["status"], 400);
    let mut wire = secure.wire();
    let extended = [(":protocol", "websocket"), (":scheme", "https"), (":path", "/mcp")];
    assert!(wire.send(&head(&extended)));
    match wire.next(kind::RST_STREAM) {
        Some(reset) => assert!([PROTOCOL_ERROR, CANCEL, NO_ERROR].contains(&reset.code())),
        None => panic!("the connection has ended"),
    }
    secure.is_served();
}

#[test]
fn a_head_that_is_malformed_ends_its_stream() {
    let (server, secure) = echoing("");
    let without = |name: &str| {
        let fields = call_headers(&[]);
        fields.into_iter().filter(|(found, _)| *found != name).collect::<Vec<_>>()
    };
    let first = |field: (&'static str, &'static str)| {
        let mut fields = call_headers(&[]);
        fields.insert(0, field);
        fields
    };
    for (what, fields) in [
        ("an upper-case name", call_headers(&[("X-Upper", "1")])),
        ("connection", call_headers(&[("connection", "close")])),
        ("keep-alive", call_headers(&[("keep-alive", "1")])),
        ("proxy-connection", call_headers(&[("proxy-connection", "close")])),
        ("transfer-encoding", call_headers(&[("transfer-encoding", "chunked")])),
        ("upgrade", call_headers(&[("upgrade", "websocket")])),
        ("te", call_headers(&[("te", "gzip")])),
        ("no method", without(":method")),
        ("no scheme", without(":scheme")),
        ("no path", without(":path")),
        ("two paths", first((":path", "/other"))),
        ("two methods", first((":method", "GET"))),
        ("two authorities", first((":authority", "evil.example"))),
        ("an unknown pseudo-header", first((":secret", "1"))),
        ("the pseudo-header of answers", first((":status", "200"))),
        ("a pseudo-header behind others", call_headers(&[(":path", "/mcp")])),
        ("a line end in a value", call_headers(&[("x-lines", "a\r\nb: c")])),
        ("lengths that differ", call_headers(&[("content-length", "1"), ("content-length", "2")])),
        ("a length and no body", call_headers(&[("content-length", "5")])),
    ] {
        let mut wire = secure.wire();
        let head = frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &packed(&fields));
        assert!(wire.send(&head), "{what}");
        let (_, code) = wire.refusal().unwrap_or_else(|| panic!("{what}: the end without a word"));
        assert_eq!(code, PROTOCOL_ERROR, "{what}");
    }
    for (what, body) in [("more than its length", "123456"), ("less than its length", "1234")] {
        let mut wire = secure.wire();
        let head = packed(&call_headers(&[("content-length", "5")]));
        let head = frame(kind::HEADERS, END_HEADERS, 1, &head);
        let data = frame(kind::DATA, END_STREAM, 1, body.as_bytes());
        assert!(wire.send(&[head, data].concat()), "{what}");
        let (_, code) = wire.refusal().unwrap_or_else(|| panic!("{what}: the end without a word"));
        assert_eq!(code, PROTOCOL_ERROR, "{what}");
    }
    assert!(server.tool_calls().is_empty());
    secure.is_served();
}

#[test]
fn frames_out_of_place_end_their_stream_or_the_connection() {
    let (server, secure) = echoing("");
    let head = |stream: u32| {
        let fields = packed(&call_headers(&[]));
        frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &fields)
    };
    let open = |stream: u32| {
        let fields = packed(&call_headers(&[]));
        frame(kind::HEADERS, END_HEADERS, stream, &fields)
    };
    let most = ((1_u32 << 31) - 1).to_be_bytes();
    let rows: Vec<(&str, Vec<u8>, Vec<u32>)> = vec![
        ("a stream of the server's", head(2), vec![PROTOCOL_ERROR]),
        ("a stream of no number", head(0), vec![PROTOCOL_ERROR]),
        ("numbers that go down", [open(5), head(3)].concat(), vec![PROTOCOL_ERROR, STREAM_CLOSED]),
        ("data on no stream", frame(kind::DATA, 0, 1, b"x"), vec![PROTOCOL_ERROR, STREAM_CLOSED]),
        ("data of the connection", frame(kind::DATA, 0, 0, b"x"), vec![PROTOCOL_ERROR]),
        (
            "data behind the end",
            [head(1), frame(kind::DATA, 0, 1, b"x")].concat(),
            vec![PROTOCOL_ERROR, STREAM_CLOSED],
        ),
        ("a reset of no stream", frame(kind::RST_STREAM, 0, 1, &[0; 4]), vec![PROTOCOL_ERROR]),
        ("no more window", frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), vec![PROTOCOL_ERROR]),
        (
            "too much window",
            [frame(kind::WINDOW_UPDATE, 0, 0, &most), frame(kind::WINDOW_UPDATE, 0, 0, &most)]
                .concat(),
            vec![FLOW_CONTROL_ERROR],
        ),
        (
            "too much window of a stream",
            [open(1), frame(kind::WINDOW_UPDATE, 0, 1, &most)].concat(),
            vec![FLOW_CONTROL_ERROR],
        ),
        ("a short ping", frame(kind::PING, 0, 0, &[0; 7]), vec![FRAME_SIZE_ERROR, PROTOCOL_ERROR]),
        ("settings of a stream", frame(kind::SETTINGS, 0, 1, &[]), vec![PROTOCOL_ERROR]),
        (
            "half a setting",
            frame(kind::SETTINGS, 0, 0, &[0; 5]),
            vec![FRAME_SIZE_ERROR, PROTOCOL_ERROR],
        ),
        ("a long frame", frame(kind::PING, 0, 0, &[0; 16_385]), vec![FRAME_SIZE_ERROR]),
        ("the end of no list", frame(kind::CONTINUATION, 4, 1, &[]), vec![PROTOCOL_ERROR]),
        (
            "a frame within a list",
            [frame(kind::HEADERS, 0, 1, &[]), frame(kind::PING, 0, 0, &[0; 8])].concat(),
            vec![PROTOCOL_ERROR],
        ),
    ];
    for (what, bytes, codes) in rows {
        let mut wire = secure.wire();
        assert!(wire.send(&bytes), "{what}");
        let (_, code) = wire.refusal().unwrap_or_else(|| panic!("{what}: the end without a word"));
        assert!(codes.contains(&code), "{what}: {code}");
    }
    assert!(server.tool_calls().is_empty());
    secure.is_served();
}

/// The frames of a stream with this number that make the gateway reset it.
type Provocation = fn(u32) -> Vec<u8>;
/// The frames that make the gateway reset a stream with this number, whose request is complete, and the largest window.
type LateProvocation = fn(u32, &[u8]) -> Vec<u8>;

/// What makes the gateway reset a stream that was begun (CVE-2025-8671), by a number for the stream. What else that
/// attack uses ends the connection at once: an increment of 0, a priority of the wrong length, and data behind the end of a
/// stream (`http2_cases.json`).
fn provocations() -> [(&'static str, Provocation); 7] {
    fn head(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
        frame(kind::HEADERS, END_HEADERS, stream, &packed(&call_headers(more)))
    }
    fn on_itself(stream: u32) -> Vec<u8> {
        [&stream.to_be_bytes()[..], &[15]].concat()
    }
    [
        ("too much window of streams", |stream| {
            let most = ((1_u32 << 31) - 1).to_be_bytes();
            [head(stream, &[]), frame(kind::WINDOW_UPDATE, 0, stream, &most)].concat()
        }),
        ("priorities of streams that depend on themselves", |stream| {
            let priority = frame(kind::PRIORITY, 0, stream, &on_itself(stream));
            [head(stream, &[]), priority].concat()
        }),
        ("heads of streams that depend on themselves", |stream| {
            let block = [on_itself(stream), packed(&call_headers(&[]))].concat();
            frame(kind::HEADERS, END_HEADERS | WITH_PRIORITY, stream, &block)
        }),
        ("trailers that do not end their stream", |stream| {
            let trailers = packed(&[("x", "y")]);
            [head(stream, &[]), frame(kind::HEADERS, END_HEADERS, stream, &trailers)].concat()
        }),
        ("more data than the length", |stream| {
            let head = head(stream, &[("content-length", "1")]);
            [head, frame(kind::DATA, 0, stream, b"ab")].concat()
        }),
        ("less data than the length", |stream| {
            let head = head(stream, &[("content-length", "5")]);
            [head, frame(kind::DATA, END_STREAM, stream, b"ab")].concat()
        }),
        ("heads that are malformed", |stream| head(stream, &[("connection", "close")])),
    ]
}

/// What a client may send to no end.
struct Flood {
    what: &'static str,
    opening: Vec<u8>,
    /// What is sent the nth time.
    each: Box<dyn Fn(u32) -> Vec<u8>>,
}

impl Flood {
    fn new(what: &'static str, each: impl Fn(u32) -> Vec<u8> + 'static) -> Self {
        Self { what, opening: Vec::new(), each: Box::new(each) }
    }

    fn same(what: &'static str, one: Vec<u8>) -> Self {
        Self::new(what, move |_| one.clone())
    }

    /// On a stream whose head has these flags.
    fn on(self, flags: u8) -> Self {
        let opening = frame(kind::HEADERS, flags, 1, &packed(&call_headers(&[])));
        Self { opening, ..self }
    }
}

fn floods() -> Vec<Flood> {
    let begun = |n: u32| {
        let fields = packed(&call_headers(&[]));
        (2 * n + 1, frame(kind::HEADERS, END_HEADERS, 2 * n + 1, &fields))
    };
    let reset = move |n: u32| {
        let (stream, head) = begun(n);
        [head, frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
    };
    let more = frame(kind::CONTINUATION, 0, 1, &packed(&[("x", "y")]));
    let provoked = provocations().map(|(what, each)| Flood::new(what, move |n| each(2 * n + 1)));
    let floods = vec![
        Flood::new("rapid reset", reset),
        Flood::same("a list without an end", more).on(0),
        Flood::same("a list that goes on with nothing", frame(kind::CONTINUATION, 0, 1, &[])).on(0),
        Flood::same("empty data", frame(kind::DATA, 0, 1, &[])).on(END_HEADERS),
        Flood::same("settings", frame(kind::SETTINGS, 0, 0, &[])),
        Flood::same("pings", frame(kind::PING, 0, 0, &[0; 8])),
        Flood::same("answers to no ping", frame(kind::PING, END_STREAM, 0, &[0; 8])),
        Flood::same("priorities", frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        Flood::same("window updates", frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        Flood::same("frames of no known type", frame(99, 0, 0, &[])),
    ];
    floods.into_iter().chain(provoked).collect()
}

#[test]
fn a_client_that_floods_its_connection_loses_it_and_others_are_served() {
    let (server, secure) = echoing("");
    let before = secure.gateway.exchanges().len();
    let bystander = secure.client(Era::Modern);
    let floods = floods();
    let count = floods.len();
    for Flood { what, opening, each } in floods {
        let mut wire = secure.wire();
        let mut taken = wire.send(&opening);
        for n in (0..10_000).step_by(50) {
            let some: Vec<u8> = (n..n + 50).flat_map(&each).collect();
            // The connection may be closed while more is sent.
            taken = taken && wire.send(&some);
            wire.read_what_has_arrived();
        }
        let code = wire.goaway();
        assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{what}");
        let answer = bystander.call("echo", &json!({ "text": what }));
        assert_eq!(answer.json()["result"]["content"][0]["text"], json!(what));
    }
    // Of what was reset before it was decided there is nothing; of the rest no more than was let in.
    let records = secure.gateway.exchanges().len() - before;
    assert!(records < 1000 + count, "{records} records");
    assert!(server.tool_calls().len() <= 400 + count);
    eventually("the count", || {
        let metrics = secure.gateway.metrics_now();
        let ended = metrics.split("\nportcullis_http2_flood_closes_total ").nth(1).unwrap();
        (ended.lines().next().unwrap().trim().parse() == Ok(count)).then_some(())
    });
}

#[test]
fn frames_that_a_client_sends_write_no_lines_into_the_log() {
    let (_server, secure) = echoing("");
    let mut wire = secure.wire();
    let unasked = frame(kind::PING, END_STREAM, 0, b"INJECTED");
    assert!(wire.send(&unasked.repeat(500)));
    assert!(wire.send(&frame(kind::PING, 0, 0, b"still on")));
    assert_eq!(wire.next(kind::PING).unwrap().payload, b"still on");
    let resets = |n: u32| {
        let head = frame(kind::HEADERS, END_HEADERS, 2 * n + 1, &packed(&call_headers(&[])));
        [head, frame(kind::RST_STREAM, 0, 2 * n + 1, &CANCEL.to_be_bytes())].concat()
    };
    wire.send(&(0..1000).flat_map(resets).collect::<Vec<u8>>());
    assert_eq!(wire.goaway(), Some(ENHANCE_YOUR_CALM));
    let said = secure.gateway.says("connection.flood");
    assert!(said.lines().count() < 20 && !said.contains("PING"), "{said}");
}

#[test]
fn calls_under_way_that_the_gateway_is_made_to_reset_are_few_and_cancelled() {
    let most = ((1_u32 << 31) - 1).to_be_bytes();
    let provocations: [LateProvocation; 2] = [
        |stream, most| frame(kind::WINDOW_UPDATE, 0, stream, most),
        // A head behind the end of the request.
        |stream, _| frame(kind::HEADERS, END_HEADERS, stream, &packed(&[("x", "y")])),
    ];
    for provoke in provocations {
        let (server, go) = waiting(Era::Modern);
        let secure = Secure::before(&server.url(), &authority(), "");
        let mut wire = secure.wire();
        assert!(wire.send(&call(1)));
        eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
        let mut taken = wire.send(&provoke(1, &most));
        for first in (3..2000).step_by(20) {
            let streams = (first..first + 20).step_by(2);
            let some: Vec<u8> =
                streams.flat_map(|id| [call(id), provoke(id, &most)].concat()).collect();
            taken = taken && wire.send(&some);
            wire.read_what_has_arrived();
        }
        assert_eq!(wire.goaway(), Some(ENHANCE_YOUR_CALM));
        assert!(server.tool_calls().len() <= 400, "{}", server.tool_calls().len());
        secure.gateway.measures("portcullis_in_flight 0");
        drop(go);
    }
}

#[test]
fn a_client_may_cancel_all_it_has_asked_at_once() {
    let (server, go) = waiting(Era::Modern);
    let secure = Secure::before(&server.url(), &authority(), "");
    let mut wire = secure.wire();
    let ids: Vec<u32> = (0..100).map(|n| 2 * n + 1).collect();
    let calls: Vec<u8> = ids.iter().flat_map(|id| call(*id)).collect();
    let reset = |id: &u32| frame(kind::RST_STREAM, 0, *id, &CANCEL.to_be_bytes());
    let resets: Vec<u8> = ids.iter().flat_map(reset).collect();
    assert!(wire.send(&[calls, resets].concat()));
    assert!(wire.send(&frame(kind::PING, 0, 0, b"still on")));
    assert_eq!(wire.next(kind::PING).unwrap().payload, b"still on");
    drop(go);
}

#[test]
fn heads_have_a_size_and_a_number_of_headers() {
    let (_server, secure) = echoing("");
    let status = |count: usize, length: usize| {
        let mut request = Request::post("https://localhost/mcp");
        for (name, value) in call_headers(&[]).into_iter().skip(4) {
            request = request.header(name, value);
        }
        for n in 0..count {
            request = request.header(format!("x-{n}"), "y".repeat(length));
        }
        let request = request.body(call_body().into_bytes()).unwrap();
        ask(secure.address(), &secure.config, request).map(|answer| answer.status)
    };
    assert_eq!(status(50, 10), Some(200));
    assert_eq!(status(18, 1000), Some(431), "more bytes than a head may have");
    assert_eq!(status(150, 1), Some(431), "more headers than a head may have");
    // Crumbs of cookies count each.
    let mut wire = secure.wire();
    let crumbs: Vec<_> = (0..300).map(|_| ("cookie", "a")).collect();
    let head = packed(&call_headers(&crumbs));
    assert!(wire.send(&frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &head)));
    let answer = wire.next(kind::HEADERS).unwrap();
    assert_ne!(answer.payload[0], 0x88, "not `:status: 200`");
    secure.is_served();
}

#[test]
fn a_client_has_so_many_streams_and_no_more() {
    let (server, go) = waiting(Era::Modern);
    let secure = Secure::before(&server.url(), &authority(), "http2: {maxConcurrentStreams: 3}");
    let mut wire = secure.wire();
    for id in [1, 3, 5] {
        assert!(wire.send(&call(id)));
    }
    eventually("the calls", || (server.tool_calls().len() == 3).then_some(()));
    assert!(wire.send(&call(7)));
    assert_eq!(wire.refusal(), Some((kind::RST_STREAM, REFUSED_STREAM)));
    (0..3).for_each(|_| go.send(()).unwrap());
    let answered = (0..3).map(|_| wire.next(kind::HEADERS).unwrap().stream);
    let mut answered: Vec<_> = answered.collect();
    answered.sort_unstable();
    assert_eq!(answered, [1, 3, 5]);
    assert_eq!(server.tool_calls().len(), 3);
}

#[test]
fn a_preface_or_a_head_that_does_not_come_ends_the_connection() {
    let (_server, secure) = echoing("requestTimeout: 300ms");
    let mut wire = Wire::silent(secure.address(), &secure.config);
    assert!(wire.next(kind::GOAWAY).is_none(), "the end is all there is");
    let mut wire = secure.wire();
    let head = packed(&call_headers(&[]));
    let (begun, _) = head.split_at(20);
    assert!(wire.send(&frame(kind::HEADERS, 0, 1, begun)));
    assert_eq!(wire.goaway(), Some(ENHANCE_YOUR_CALM));
    secure.is_served();
}

#[test]
fn a_connection_that_nobody_uses_is_ended_with_a_word() {
    let (_server, secure) = echoing("http2: {idleTimeout: 300ms}");
    let mut wire = secure.wire();
    assert_eq!(wire.goaway(), Some(NO_ERROR));
    assert!(wire.frame().is_none());
}

#[test]
fn a_client_that_answers_no_ping_loses_its_connection_and_its_calls() {
    let (server, go) = waiting(Era::Modern);
    let limits = "http2: {pingInterval: 200ms, pingTimeout: 300ms}";
    let secure = Secure::before(&server.url(), &authority(), limits);
    let mut wire = secure.wire();
    assert!(wire.send(&call(1)));
    eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
    let ping = wire.next(kind::PING).unwrap();
    assert_eq!(ping.flags & END_STREAM, 0, "it asks");
    while wire.frame().is_some() {}
    let record = secure.gateway.recorded("the call", |r| r["method"] == "tools/call");
    assert_eq!(record["outcome"], "cancelled");
    drop(go);
}

#[test]
fn an_answer_that_is_given_no_window_ends_its_stream_alone() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let secure = Secure::before(&server.url(), &authority(), "writeTimeout: 500ms");
    // SETTINGS_INITIAL_WINDOW_SIZE of nothing.
    let mut wire = Wire::client(secure.address(), &secure.config, &[0, 4, 0, 0, 0, 0]);
    assert!(wire.send(&call(1)));
    assert_eq!(wire.refusal(), Some((kind::RST_STREAM, CANCEL)));
    assert!(wire.send(&frame(kind::PING, 0, 0, b"still on")));
    assert_eq!(wire.next(kind::PING).unwrap().payload, b"still on");
}

/// Window for so many bytes more on a stream.
fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// SETTINGS_INITIAL_WINDOW_SIZE of nothing.
const NO_WINDOW: &[u8] = &[0, 4, 0, 0, 0, 0];

#[test]
fn a_stream_whose_client_takes_a_byte_now_and_then_ends() {
    let server = Server::with(Era::Modern, json!([tool("echo")]), |call, stream| {
        stream.write_all(&call.text(&"x".repeat(600 << 10))).is_ok()
    });
    let secure = Secure::before(&server.url(), &authority(), "writeTimeout: 500ms");
    let mut wire = Wire::client(secure.address(), &secure.config, NO_WINDOW);
    assert!(wire.send(&call(1)));
    assert_eq!(wire.next(kind::HEADERS).unwrap().stream, 1);
    // Each byte is asked for when the one before has come, which is far more often than `writeTimeout`.
    let ended = (0..200_000).find_map(|_| {
        assert!(wire.send(&window(1, 1)));
        loop {
            let frame = wire.frame().unwrap();
            match frame.kind {
                kind::DATA => return None,
                kind::RST_STREAM => return Some(frame.code()),
                _ => {}
            }
        }
    });
    assert_eq!(ended, Some(CANCEL));
    assert!(wire.send(&frame(kind::PING, 0, 0, b"still on")));
    assert_eq!(wire.next(kind::PING).unwrap().payload, b"still on");
}

#[test]
fn an_answer_that_is_not_read_keeps_the_place_of_its_request_until_it_is() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let secure =
            Secure::before(&server.url(), &authority(), "inFlight: 4\ninFlightPerCaller: 2");
        let ana = secure.client(era);
        assert_eq!(ana.call("echo", &json!({ "text": "x" })).status, 200, "{era:?}");
        // Calls that are short, in the revision of 2026-07-28, and other requests of the same caller.
        let mut wire = Wire::client(secure.address(), &secure.config, NO_WINDOW);
        for id in [1, 3] {
            assert!(wire.send(&call(id)));
            assert_eq!(wire.next(kind::HEADERS).unwrap().stream, id);
        }
        let refused = ana.call("echo", &json!({ "text": "x" }));
        assert_eq!(refused.status, 429, "{era:?}: {refused:?}");
        secure.gateway.measures("portcullis_in_flight 2");
        let record =
            secure.gateway.recorded("the refusal", |r| r["reason"] == "caller-limit-requests");
        assert_eq!(record["principal"], "ana");
        // One is read, and one is given up.
        assert!(wire.send(&window(1, 1 << 20)));
        while wire.next(kind::DATA).unwrap().flags & END_STREAM == 0 {}
        secure.gateway.measures("portcullis_in_flight 1");
        assert_eq!(ana.call("echo", &json!({ "text": "x" })).status, 200, "{era:?}");
        assert!(wire.send(&frame(kind::RST_STREAM, 0, 3, &CANCEL.to_be_bytes())));
        secure.gateway.measures("portcullis_in_flight 0");
        // So is what a connection leaves that ends.
        assert!(wire.send(&call(5)));
        assert_eq!(wire.next(kind::HEADERS).unwrap().stream, 5);
        secure.gateway.measures("portcullis_in_flight 1");
        drop(wire);
        secure.gateway.measures("portcullis_in_flight 0");
    }
}

/// A request without a credential on a stream.
fn stranger(stream: u32) -> Vec<u8> {
    let fields = call_headers(&[]);
    let fields: Vec<_> = fields.into_iter().filter(|(name, _)| *name != "authorization").collect();
    let head = frame(kind::HEADERS, END_HEADERS, stream, &packed(&fields));
    [head, frame(kind::DATA, END_STREAM, stream, call_body().as_bytes())].concat()
}

#[test]
fn answers_to_strangers_that_are_not_read_are_few_on_a_connection_and_wait_for_a_short_time() {
    let (server, secure) = echoing("inFlight: 4\nwriteTimeout: 10m");
    let mut wire = Wire::client(secure.address(), &secure.config, NO_WINDOW);
    let all: Vec<u8> = (1..18).step_by(2).flat_map(stranger).collect();
    assert!(wire.send(&all));
    let (mut begun, mut resets) = (Vec::new(), Vec::new());
    while resets.len() < 9 {
        let frame = wire.frame().unwrap();
        match frame.kind {
            // A ninth request is not read before one of the others has ended.
            kind::HEADERS => {
                assert!(begun.len() < 8 || !resets.is_empty(), "{begun:?}");
                begun.push(frame.stream);
                if begun.len() == 8 {
                    // They keep no place from callers.
                    assert_eq!(secure.client(Era::Modern).call("echo", &json!({})).status, 200);
                }
            }
            kind::RST_STREAM => resets.push((frame.stream, frame.code())),
            _ => {}
        }
    }
    assert!(resets.iter().all(|(_, code)| *code == CANCEL), "{resets:?}");
    // On a connection with a caller that is known, more are read, and no more than eight answers wait.
    let mut wire = Wire::client(secure.address(), &secure.config, NO_WINDOW);
    assert!(wire.send(&call(1)));
    assert_eq!(wire.next(kind::HEADERS).unwrap().stream, 1);
    assert!(wire.send(&(3..21).step_by(2).flat_map(stranger).collect::<Vec<u8>>()));
    let (mut begun, mut resets) = (Vec::new(), Vec::new());
    while resets.len() < 9 {
        let frame = wire.frame().unwrap();
        match frame.kind {
            kind::HEADERS => begun.push(frame.stream),
            kind::RST_STREAM => resets.push((frame.stream, frame.code())),
            _ => {}
        }
    }
    assert_eq!(begun.len(), 8, "{begun:?}");
    for (stream, code) in resets {
        let wanted = if begun.contains(&stream) { CANCEL } else { ENHANCE_YOUR_CALM };
        assert_eq!(code, wanted, "{stream}");
    }
    // A client that gives window is told what it is told over HTTP/1.1, and then it is served.
    let mut wire = secure.wire();
    for id in (1..100).step_by(2) {
        assert!(wire.send(&stranger(id)));
        assert_eq!(wire.next(kind::HEADERS).unwrap().stream, id);
        assert_eq!(wire.next(kind::DATA).unwrap().stream, id);
    }
    assert!(wire.send(&call(101)));
    assert_eq!(wire.next(kind::HEADERS).unwrap().payload[0], 0x88, "`:status: 200`");
    assert_eq!(server.tool_calls().len(), 3);
}

#[test]
fn answers_that_are_not_read_have_a_bound_on_one_connection() {
    let server = Server::with(Era::Modern, json!([tool("echo")]), |call, stream| {
        stream.write_all(&call.text(&"x".repeat(600 << 10))).is_ok()
    });
    let limits = "responseBody: 1MiB\nhttp2: {responseBuffer: 1MiB}";
    let secure = Secure::before(&server.url(), &authority(), limits);
    let mut wire = Wire::client(secure.address(), &secure.config, &[0, 4, 0, 0, 0, 0]);
    assert!(wire.send(&call(1)));
    assert_eq!(wire.next(kind::HEADERS).unwrap().stream, 1);
    assert!(wire.send(&call(3)));
    assert_eq!(wire.refusal(), Some((kind::RST_STREAM, ENHANCE_YOUR_CALM)));
}

#[test]
fn a_gateway_that_stops_says_so_and_finishes_what_is_under_way() {
    let (server, go) = waiting(Era::Modern);
    let mut secure = Secure::before(&server.url(), &authority(), "");
    let (mut busy, mut idle) = (secure.wire(), secure.wire());
    assert!(busy.send(&call(1)));
    eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
    secure.gateway.terminate();
    for wire in [&mut busy, &mut idle] {
        assert_eq!(wire.next(kind::GOAWAY).unwrap().code(), NO_ERROR);
    }
    while idle.frame().is_some() {}
    go.send(()).unwrap();
    let answer = busy.next(kind::HEADERS).unwrap();
    assert_eq!(answer.payload[0], 0x88, "`:status: 200`");
    let mut body = Vec::new();
    loop {
        let data = busy.next(kind::DATA).unwrap();
        body.extend_from_slice(&data.payload);
        if data.flags & END_STREAM != 0 {
            break;
        }
    }
    assert!(String::from_utf8(body).unwrap().contains("late"));
    assert_eq!(secure.gateway.ended(), Some(0));
}

/// What a hostile server does to a call on a stream.
type Deed = fn(&mut Wire, u32);

/// A server that answers well, but for so many calls of tools.
fn hostile(files: &e2e::pki::Files, deed: Deed, times: usize) -> SocketAddr {
    let count = AtomicUsize::new(0);
    server(files, move |wire| {
        let mut bodies = std::collections::BTreeMap::<u32, Vec<u8>>::new();
        while let Some(came) = wire.frame() {
            if came.kind == kind::PING && came.flags & END_STREAM == 0 {
                wire.send(&frame(kind::PING, END_STREAM, 0, &came.payload));
            }
            if came.kind != kind::DATA {
                continue;
            }
            let body = bodies.entry(came.stream).or_default();
            body.extend_from_slice(&came.payload);
            if came.flags & END_STREAM == 0 {
                continue;
            }
            let body = bodies.remove(&came.stream).unwrap();
            #[expect(clippy::disallowed_methods, reason = "the gateway's output, not a peer's")]
            let message: Value = serde_json::from_slice(&body).unwrap();
            let call = Call { head: String::new(), body: message, bytes: body };
            let answer = match call.method() {
                "tools/call" if count.fetch_add(1, Ordering::Relaxed) < times => {
                    deed(wire, came.stream);
                    continue;
                }
                "tools/call" => call.text("the second time"),
                "tools/list" => call.result(&json!({
                    "resultType": "complete", "tools": [tool("echo")], "ttlMs": 0,
                    "cacheScope": "public",
                })),
                _ => greeting(&call, Era::Modern),
            };
            let text = String::from_utf8(answer).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let status = head.split(' ').nth(1).unwrap();
            let fields = packed(&[(":status", status), ("content-type", "application/json")]);
            let head = frame(kind::HEADERS, END_HEADERS, came.stream, &fields);
            let data = frame(kind::DATA, END_STREAM, came.stream, body.as_bytes());
            wire.send(&[head, data].concat());
        }
    })
}

fn row(what: &'static str, deed: Deed) -> (&'static str, Deed) {
    (what, deed)
}

/// Sends the same until the connection is closed.
fn for_ever(wire: &mut Wire, bytes: &[u8]) {
    let many = bytes.repeat(100);
    while wire.send(&many) {}
}

#[test]
fn a_hostile_server_fails_its_callers_within_the_limits_and_nobody_else() {
    let rows = [
        row("a reset", |wire, stream| {
            wire.send(&frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        }),
        row("resets for ever", |wire, stream| {
            for_ever(wire, &frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        }),
        row("a list without an end", |wire, stream| {
            wire.send(&frame(kind::HEADERS, 0, stream, &packed(&[(":status", "200")])));
            for_ever(wire, &frame(kind::CONTINUATION, 0, stream, &packed(&[("x", "y")])));
        }),
        row("a list that does not go on", |wire, stream| {
            wire.send(&frame(kind::HEADERS, 0, stream, &packed(&[(":status", "200")])));
        }),
        row("pings", |wire, _| for_ever(wire, &frame(kind::PING, 0, 0, &[0; 8]))),
        row("settings", |wire, _| for_ever(wire, &frame(kind::SETTINGS, 0, 0, &[]))),
        row("empty data", |wire, stream| {
            let fields = packed(&[(":status", "200"), ("content-type", "application/json")]);
            wire.send(&frame(kind::HEADERS, END_HEADERS, stream, &fields));
            for_ever(wire, &frame(kind::DATA, 0, stream, &[]));
        }),
        row("an end in mid-call", |wire, stream| {
            let last = [stream.to_be_bytes(), 2_u32.to_be_bytes()].concat();
            wire.send(&frame(kind::GOAWAY, 0, 0, &last));
        }),
        row("an end without a status", |wire, stream| {
            let fields = packed(&[("content-type", "application/json")]);
            wire.send(&frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &fields));
        }),
        row("interim responses", |wire, stream| {
            for_ever(
                wire,
                &frame(kind::HEADERS, END_HEADERS, stream, &packed(&[(":status", "103")])),
            );
        }),
        row("a push", |wire, stream| {
            let promise = [&2_u32.to_be_bytes()[..], &packed(&call_headers(&[]))].concat();
            wire.send(&frame(5, END_HEADERS, stream, &promise));
        }),
    ];
    for (what, deed) in rows {
        let (good, pki) = (Server::echo(Era::Modern, &["echo"]), authority());
        let files = pki.issue(&Leaf::local());
        let bad = format!("https://127.0.0.1:{}/mcp", hostile(&files, deed, usize::MAX).port());
        let front = Front::before(good.address, &files);
        let servers = format!(
            "- {}\n- {}",
            upstream("bad", &bad, &pki),
            upstream("good", &front.url(), &pki)
        );
        let routes = "- {path: /bad, servers: [bad]}\n- {path: /mcp, servers: [good]}";
        let secure = Secure::with(&servers, routes, &pki, "responseTimeout: 2s\ncallTimeout: 5s");
        let ana = secure.client_of("/bad", Era::Modern);
        assert_eq!(ana.tools(), ["echo"], "{what}");
        let answer = ana.call("echo", &json!({ "text": "x" }));
        assert_ne!(answer.json()["result"]["content"][0]["text"], "x", "{what}: {answer:?}");
        let record = secure.gateway.recorded("the call", |r| r["method"] == "tools/call");
        let reason = record["reason"].as_str().unwrap_or_default();
        assert!(["upstream-reset", "upstream-timeout"].contains(&reason), "{what}: {record}");
        assert!(what != "interim responses" || reason == "upstream-reset", "{record}");
        secure.is_served();
    }
}

#[test]
fn a_request_that_a_server_has_not_looked_at_is_sent_once_more() {
    fn refuses(wire: &mut Wire, stream: u32) {
        wire.send(&frame(kind::RST_STREAM, 0, stream, &REFUSED_STREAM.to_be_bytes()));
    }
    fn leaves(wire: &mut Wire, _: u32) {
        wire.send(&frame(kind::GOAWAY, 0, 0, &[0; 8]));
    }
    for (_, deed) in [row("a stream is refused", refuses), row("the server leaves", leaves)] {
        let pki = authority();
        let files = pki.issue(&Leaf::local());
        // A server that refuses again is not asked a third time.
        for (times, served) in [(1, true), (2, false)] {
            let address = hostile(&files, deed, times);
            let url = format!("https://127.0.0.1:{}/mcp", address.port());
            let servers = format!("- {}", upstream("up", &url, &pki));
            let secure = Secure::with(&servers, "- {path: /mcp, servers: [up]}", &pki, "");
            let answer = secure.client(Era::Modern).call("echo", &json!({ "text": "x" }));
            let text = &answer.json()["result"]["content"][0]["text"];
            assert_eq!(text == "the second time", served, "{answer:?}");
            drop(secure.gateway.recorded("the call", |r| r["method"] == "tools/call"));
            let records = secure.gateway.exchanges();
            let calls = records.iter().filter(|record| record["method"] == "tools/call").count();
            assert_eq!(calls, 1, "once on record, however often it is sent");
        }
    }
}
