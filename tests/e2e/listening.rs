//! Subscriptions of modern clients: what they are told while servers are silent, away or keep ending their streams.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::client::Client;
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway};
use e2e::server::{Call, Server, answer, greeting, ok, tool, with_header};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::revoking::{revoke, switchable};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const CHANGED: &str = "notifications/tools/list_changed";
/// How soon what has ended is noticed; far less than a server may be silent.
const SOON: Duration = Duration::from_secs(5);

/// A modern server with the tool `work`, that answers `subscriptions/listen` as `listened` does.
fn server(listened: impl Fn(&Call, &mut TcpStream) -> bool + Send + Sync + 'static) -> Server {
    Server::start(move |call, stream| {
        let bytes = match call.method() {
            "subscriptions/listen" => return listened(call, stream),
            "tools/list" => call.result(&json!({
                "resultType": "complete", "tools": [tool("work")], "ttlMs": 60_000,
                "cacheScope": "private",
            })),
            "tools/call" => call.text("done"),
            _ => greeting(call, Era::Modern),
        };
        stream.write_all(&bytes).is_ok()
    })
}

fn event(stream: &mut TcpStream, message: &Value) -> bool {
    let text = format!("data: {message}\n\n");
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    stream.write_all(chunk.as_bytes()).is_ok()
}

/// Agrees to all that it is asked to tell.
fn agree(call: &Call, stream: &mut TcpStream) -> bool {
    let params = json!({
        "notifications": call.body["params"]["notifications"],
        "_meta": { "io.modelcontextprotocol/subscriptionId": call.body["id"] },
    });
    stream.write_all(HEAD.as_bytes()).is_ok()
        && event(stream, &json!({ "jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": params }))
}

/// Tells that the tools have changed, with a word by which the test knows it.
fn tell(stream: &mut TcpStream, word: &str) -> bool {
    event(stream, &json!({ "jsonrpc": "2.0", "method": CHANGED, "params": { "word": word } }))
}

/// Waits until the gateway closes the connection.
fn until_closed(stream: &mut TcpStream) -> bool {
    drop(stream.read(&mut [0]));
    false
}

/// The stream of a subscription, and what was read of it and not given yet.
struct Listening {
    stream: TcpStream,
    seen: String,
}

impl Listening {
    /// Reads until `text` is there; gives what came up to its end.
    fn until(&mut self, text: &str) -> String {
        let mut buffer = [0; 4096];
        while !self.seen.contains(text) {
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "closed after {}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
        let end = self.seen.find(text).unwrap() + text.len();
        let rest = self.seen.split_off(end);
        std::mem::replace(&mut self.seen, rest)
    }

    /// Reads to the end of the stream, which may have no last chunk if it is cut.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        drop(self.stream.read_to_end(&mut rest));
        std::mem::take(&mut self.seen) + &String::from_utf8_lossy(&rest)
    }
}

/// Asks to be told when tools change; of the answer nothing was read.
fn listen(gateway: &Gateway, client: &Client) -> Listening {
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let body = client.message(&json!("listen"), "subscriptions/listen", wanted);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&client.bytes("subscriptions/listen", None, &body)).unwrap();
    Listening { stream, seen: String::new() }
}

/// Two servers behind one route.
fn both(one: &Server, two: &Server) -> Config {
    let servers =
        format!("- {{name: one, url: '{}'}}\n- {{name: two, url: '{}'}}", one.url(), two.url());
    Config::with(&servers, "[one, two]")
}

#[test]
fn a_client_is_told_by_the_servers_that_answer_while_another_is_silent() {
    let (go, wait) = channel();
    let wait = Mutex::new(wait);
    let silent = server(move |call, stream| {
        let is_let = wait.lock().unwrap().recv().is_ok();
        is_let && agree(call, stream) && tell(stream, "late") && until_closed(stream)
    });
    let (change, changes) = channel();
    let changes = Mutex::new(changes);
    let other = server(move |call, stream| {
        let is_good = agree(call, stream) && changes.lock().unwrap().recv().is_ok();
        is_good && tell(stream, "early") && until_closed(stream)
    });
    let limits = "inFlight: 2\ninFlightPerCaller: 1";
    let gateway = both(&silent, &other).limits(limits).start();
    let ana = gateway.client(Era::Modern, ANA);
    let mut stream = listen(&gateway, &ana);
    stream.until("text/event-stream");
    // The stream takes no place of a request, although a server has not answered.
    assert_eq!(ana.call("two__work", &json!({})).text(), "done");
    let agreed = stream.until("\n\n");
    assert!(agreed.contains(ACKNOWLEDGED), "{agreed}");
    assert!(agreed.contains(r#""toolsListChanged":true"#), "{agreed}");
    assert!(!agreed.contains(CHANGED), "the acknowledgement comes first: {agreed}");
    change.send(()).unwrap();
    stream.until("early");
    go.send(()).unwrap();
    let told = stream.until("late");
    // Once for what may have changed before the server agreed, and once for what it says.
    assert_eq!(told.matches(CHANGED).count(), 2, "{told}");
}

#[test]
fn the_stream_of_a_session_begins_while_a_server_is_silent() {
    let (go, wait) = channel();
    let wait = Mutex::new(wait);
    let silent = server(move |call, stream| {
        let is_let = wait.lock().unwrap().recv().is_ok();
        is_let && agree(call, stream) && tell(stream, "late") && until_closed(stream)
    });
    let other =
        server(|call, stream| agree(call, stream) && tell(stream, "early") && until_closed(stream));
    let gateway = both(&silent, &other).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut stream = Listening { stream: ana.stream(None), seen: String::new() };
    stream.until("early");
    go.send(()).unwrap();
    let told = stream.until("late");
    // Once for what may have changed before the server agreed, and once for what it says.
    assert_eq!(told.matches(CHANGED).count(), 2, "{told}");
}

/// A legacy server that keeps a session for each client, and answers its GET stream as `streamed` does.
fn legacy(streamed: impl Fn(&mut TcpStream) -> bool + Send + Sync + 'static) -> Server {
    Server::start(move |call, stream| {
        let bytes = match call.method() {
            "" if call.head.starts_with("GET") => return streamed(stream),
            "tools/list" => call.result(&json!({ "tools": [tool("work")] })),
            _ => greeting(call, Era::Legacy),
        };
        stream.write_all(&bytes).is_ok()
    })
}

#[test]
fn a_stray_response_on_the_stream_of_a_session_delays_no_message() {
    let server = legacy(|stream| {
        let stray = json!({ "jsonrpc": "2.0", "id": 7, "result": {} });
        stream.write_all(HEAD.as_bytes()).is_ok()
            && (0..8).all(|_| event(stream, &stray))
            && tell(stream, "after")
            && until_closed(stream)
    });
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut stream = Listening { stream: ana.stream(None), seen: String::new() };
    stream.until("after");
}

/// How many changes of its list a server tells without a pause.
const CHANGES: usize = 100;

/// Tells a hundred times that the tools have changed, the last time with the word `last`.
fn tell_often(mut tell: impl FnMut(&str) -> bool) -> bool {
    (1..CHANGES).all(|number| tell(&format!("w{number}"))) && tell("last")
}

/// Reads to the last of the changes, and checks that the client was told at most once a second, beginning at once.
#[expect(clippy::disallowed_methods, reason = "the pace is one of real time")]
fn told_now_and_then(stream: &mut Listening) {
    let begun = Instant::now();
    let first = stream.until("w1");
    assert!(first.contains(CHANGED), "{first}");
    let told = stream.until("last");
    let pauses = begun.elapsed().as_secs();
    let count = u64::try_from(told.matches(CHANGED).count()).unwrap();
    assert!(count <= pauses + 1, "{count} in {pauses} seconds: {told}");
}

#[test]
fn a_client_is_told_once_a_second_that_a_list_changes_all_the_time() {
    let modern = server(|call, stream| {
        agree(call, stream) && tell_often(|word| tell(stream, word)) && until_closed(stream)
    });
    let gateway = Config::of(&modern.url()).start();
    let mut stream = listen(&gateway, &gateway.client(Era::Modern, ANA));
    told_now_and_then(&mut stream);

    let legacy = legacy(|stream| {
        stream.write_all(HEAD.as_bytes()).is_ok()
            && tell_often(|word| tell(stream, word))
            && until_closed(stream)
    });
    let gateway = Config::of(&legacy.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut stream = Listening { stream: ana.stream(None), seen: String::new() };
    told_now_and_then(&mut stream);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the pace is one of real time")]
fn the_stream_of_a_call_tells_once_a_second_that_a_list_changes_and_at_its_end() {
    let server = Server::with(Era::Legacy, json!([tool("work")]), |call, stream| {
        let content = json!([{ "type": "text", "text": "done" }]);
        let result =
            json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": { "content": content } });
        stream.write_all(HEAD.as_bytes()).is_ok()
            && tell_often(|word| tell(stream, word))
            && event(stream, &result)
            && stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let begun = Instant::now();
    let seen = ana.call("work", &json!({})).body;
    let pauses = begun.elapsed().as_secs();
    let count = u64::try_from(seen.matches(CHANGED).count()).unwrap();
    assert!(count <= pauses + 2, "{count} in {pauses} seconds: {seen}");
    let order = ["w1", "last", "done"].map(|word| seen.find(word));
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{order:?}: {seen}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the wait is of real time")]
fn a_server_that_begins_its_streams_late_delays_only_the_first_of_them() {
    let gateway = Config::of(&legacy(until_closed).url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut first = Listening { stream: ana.stream(None), seen: String::new() };
    first.until("200 OK");
    let begun = Instant::now();
    let mut second = Listening { stream: ana.stream(None), seen: String::new() };
    second.until("200 OK");
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_offers_no_subscriptions_any_more_is_not_asked_for_ever() {
    let asked = AtomicUsize::new(0);
    let server = server(move |call, stream| {
        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            return agree(call, stream) && stream.write_all(b"0\r\n\r\n").is_ok();
        }
        let refusal = answer("405 Method Not Allowed", "text/plain", "no");
        stream.write_all(&refusal).is_ok()
    });
    let gateway = Config::of(&server.url()).start();
    let mut stream = listen(&gateway, &gateway.client(Era::Modern, ANA));
    stream.until(ACKNOWLEDGED);
    gateway.says("subscription.not_offered");
    assert_eq!(server.count("subscriptions/listen"), 2);
}

#[test]
fn a_subscription_at_a_silent_server_ends_with_its_client_its_right_its_rule_and_the_gateway() {
    for end in ["client", "right", "rule", "gateway"] {
        let (gone, ended) = channel();
        let gone = Mutex::new(gone);
        let silent = server(move |_, stream| {
            until_closed(stream);
            gone.lock().unwrap().send(()).unwrap();
            false
        });
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        let config = Config::of(&silent.url()).limits("drainTimeout: 5m");
        let gateway = switchable(config, &folder).start_at(&file);
        let mut stream = listen(&gateway, &gateway.client(Era::Modern, ANA));
        let head = stream.until("text/event-stream");
        eventually("the question to the server", || {
            (silent.count("subscriptions/listen") == 1).then_some(())
        });
        match end {
            "client" => stream.stream.shutdown(Shutdown::Both).unwrap(),
            "right" => revoke(&gateway, &json!({ "servers": ["up"] })),
            "rule" => {
                let text = fs::read_to_string(&file).unwrap();
                let next = file.with_extension("next");
                fs::write(&next, text.replace("['group:dev']", "['group:ops']")).unwrap();
                fs::rename(next, &file).unwrap();
                gateway.hang_up();
            }
            _ => gateway.terminate(),
        }
        let closed = ended.recv_timeout(SOON);
        assert!(closed.is_ok(), "the server is still asked after the end of the {end}");
        let seen = head + &stream.rest();
        // The stream may be cut before its last message; what comes is in order.
        if let Some(last) = seen.find(r#""resultType":"complete""#) {
            assert!(seen.find(ACKNOWLEDGED).is_some_and(|first| first < last), "{end}: {seen}");
        }
    }
}

/// A server that is away until `is_up`, and tells on each of its streams once it is to tell.
fn away(era: Era, is_up: &Arc<AtomicBool>, tells: &Arc<AtomicBool>) -> Server {
    let (is_up, tells) = (Arc::clone(is_up), Arc::clone(tells));
    Server::start(move |call, stream| {
        let told = |stream: &mut TcpStream| {
            eventually("the word", || tells.load(Ordering::SeqCst).then_some(()));
            tell(stream, "back") && until_closed(stream)
        };
        let bytes = match (call.method(), era) {
            _ if !is_up.load(Ordering::SeqCst) => {
                answer("503 Service Unavailable", "text/plain", "no")
            }
            ("subscriptions/listen", Era::Modern) => return agree(call, stream) && told(stream),
            ("", Era::Legacy) if call.head.starts_with("GET") => {
                return stream.write_all(HEAD.as_bytes()).is_ok() && told(stream);
            }
            ("initialize", Era::Legacy) => with_header(
                &call.result(&json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": { "listChanged": true } },
                    "serverInfo": { "name": "fake", "version": "1" },
                })),
                "mcp-session-id: s\r\n",
            ),
            ("tools/list", _) => call.result(&json!({
                "resultType": "complete", "tools": [tool("work")], "ttlMs": 60_000,
                "cacheScope": "private",
            })),
            _ => greeting(call, era),
        };
        stream.write_all(&bytes).is_ok()
    })
}

#[test]
fn a_server_that_was_away_when_a_client_began_to_listen_is_asked_again() {
    for era in ERAS {
        let (is_up, tells) = (Arc::default(), Arc::default());
        let server = away(era, &is_up, &tells);
        let gateway = Config::of(&server.url()).start();
        let mut stream = listen(&gateway, &gateway.client(Era::Modern, ANA));
        let agreed = stream.until("\n\n");
        assert!(agreed.contains(ACKNOWLEDGED), "{era:?}: {agreed}");
        assert!(agreed.contains(r#""toolsListChanged":true"#), "{era:?}: {agreed}");
        gateway.says("subscription.failed");
        is_up.store(true, Ordering::SeqCst);
        // Its tools may have changed while it was away.
        stream.until(CHANGED);
        tells.store(true, Ordering::SeqCst);
        stream.until("back");
    }
}

#[test]
fn a_server_that_offers_no_subscriptions_is_left_out_of_what_is_acknowledged() {
    let statuses =
        ["400 Bad Request", "404 Not Found", "405 Method Not Allowed", "501 Not Implemented"];
    let asked = AtomicUsize::new(0);
    let server = server(move |call, stream| {
        let status = statuses.get(asked.fetch_add(1, Ordering::SeqCst));
        let error = json!({ "code": -32601, "message": "no" });
        let error = json!({ "jsonrpc": "2.0", "id": call.body["id"], "error": error });
        let bytes = match status {
            Some(status) => answer(status, "text/plain", "no"),
            None => ok(&error.to_string()),
        };
        stream.write_all(&bytes).is_ok()
    });
    let gateway = Config::of(&server.url()).start();
    for status in statuses.into_iter().chain(["200 OK"]) {
        let mut stream = listen(&gateway, &gateway.client(Era::Modern, ANA));
        let agreed = stream.until("\n\n");
        assert!(agreed.contains(ACKNOWLEDGED), "{status}: {agreed}");
        assert!(!agreed.contains("toolsListChanged"), "{status}: {agreed}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the pauses are of real time")]
fn a_server_that_ends_each_stream_after_one_message_is_asked_less_and_less_often() {
    let begun: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let times = Arc::clone(&begun);
    let server = server(move |call, stream| {
        times.lock().unwrap().push(Instant::now());
        if agree(call, stream) && tell(stream, "again") {
            drop(stream.write_all(b"0\r\n\r\n"));
        }
        false
    });
    let gateway = Config::of(&server.url()).start();
    let mut stream = listen(&gateway, &gateway.client(Era::Modern, ANA));
    eventually("the third stream", || (begun.lock().unwrap().len() == 3).then_some(()));
    // Each was heard.
    for _ in 0..3 {
        stream.until("again");
    }
    let begun = begun.lock().unwrap();
    let pause = begun[2] - begun[1];
    assert!(pause >= Duration::from_millis(1900), "asked again after {pause:?}");
}

/// A modern program that writes the method and the id of all that it gets to a file, and does not answer who listens.
const SILENT: &str = r#"import json, sys
known = {
    "server/discover": {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "public"},
    "tools/list": {"resultType": "complete", "tools": [], "ttlMs": 60000, "cacheScope": "private"},
}
for line in sys.stdin:
    message = json.loads(line)
    about = message.get("id", message.get("params", {}).get("requestId"))
    with open(sys.argv[1], "a") as seen:
        print(message.get("method"), about, file=seen, flush=True)
    if message.get("method") in known:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": known[message["method"]]}), flush=True)
"#;

/// A legacy server over stdio that tells of 3000 changes in a call, and answers how many milliseconds that took.
const TELLING: &str = r#"
import json, sys, time

def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}))

known = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {"subscribe": True}},
                   "serverInfo": {"name": "telling", "version": "1"}},
    "tools/list": {"tools": [{"name": "work", "description": "Works.", "inputSchema": {"type": "object"}}]},
}
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "tools/call":
        begun = time.monotonic()
        for n in range(3000):
            send({"method": "notifications/resources/updated", "params": {"uri": f"file:///{n:040}"}})
        sys.stdout.flush()
        took = str(int((time.monotonic() - begun) * 1000))
        send({"id": message["id"], "result": {"content": [{"type": "text", "text": took}]}})
    elif "id" in message:
        answer = known.get(method)
        send({"id": message["id"], **({"result": answer} if answer else {"error": {"code": -32601, "message": "no"}})})
    sys.stdout.flush()
"#;

/// What a program says to all who listen is read as fast as it may be told to them: 20,000 messages a second.
#[test]
fn a_program_that_tells_many_listeners_much_is_read_at_a_pace() {
    for era in ERAS {
        let folder = Folder::new();
        let program = folder.path().join("telling.py");
        fs::write(&program, TELLING).unwrap();
        let servers = format!("- {{name: up, command: python3, args: ['{}']}}", program.display());
        let gateway = Config::with(&servers, "[up]").start();
        let ana = gateway.client(era, ANA);
        let took = || {
            let answer = ana.call("work", &json!({})).json();
            let text = answer["result"]["content"][0]["text"].as_str();
            text.unwrap_or_else(|| panic!("{answer}")).parse::<u64>().unwrap()
        };
        let listeners = (0..20).map(|_| gateway.client(era, ANA)).collect::<Vec<_>>();
        let streams = listeners.iter().map(|one| match era {
            Era::Legacy => one.stream(None),
            Era::Modern => listen(&gateway, one).stream,
        });
        let _streams = streams.collect::<Vec<_>>();
        // 60,000 messages, of which the pipe holds some; the streams are opened meanwhile.
        eventually("a program that waits", || (took() > 1500).then_some(()));
    }
}

#[test]
fn a_program_that_has_not_agreed_is_told_when_nobody_listens_any_more() {
    let folder = Folder::new();
    let (program, seen) = (folder.path().join("silent.py"), folder.path().join("seen"));
    fs::write(&program, SILENT).unwrap();
    let servers = format!(
        "- {{name: up, command: python3, args: ['{}', '{}'], protocol: modern}}",
        program.display(),
        seen.display()
    );
    let gateway = Config::with(&servers, "[up]").start();
    let mut stream = listen(&gateway, &gateway.client(Era::Modern, ANA));
    stream.until("text/event-stream");
    let of = |method: &str| {
        let seen = fs::read_to_string(&seen).unwrap_or_default();
        let line = seen.lines().find_map(|line| line.strip_prefix(method).map(str::to_owned));
        // A line that is being written has no end yet.
        line.filter(|_| seen.ends_with('\n'))
    };
    let asked = eventually("the question", || of("subscriptions/listen "));
    drop(stream);
    assert_eq!(eventually("the cancellation", || of("notifications/cancelled ")), asked);
}

/// A modern server that counts the streams that are open at it, and how many it was asked for.
#[derive(Default)]
struct StreamCount {
    open: AtomicUsize,
    asked: AtomicUsize,
}

impl StreamCount {
    fn server(self: &Arc<Self>) -> Server {
        let counted = Arc::clone(self);
        server(move |call, stream| {
            counted.asked.fetch_add(1, Ordering::SeqCst);
            counted.open.fetch_add(1, Ordering::SeqCst);
            if agree(call, stream) {
                until_closed(stream);
            }
            counted.open.fetch_sub(1, Ordering::SeqCst);
            false
        })
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// Opens the stream of a session; `None` if it is refused because too many are open.
fn standing(client: &Client, last: Option<&str>) -> Option<Listening> {
    let mut stream = Listening { stream: client.stream(last), seen: String::new() };
    let head = stream.until("\r\n\r\n");
    if head.starts_with("HTTP/1.1 429") {
        stream.until("caller-limit-streams");
        return None;
    }
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    Some(stream)
}

#[test]
fn streams_of_clients_that_have_left_take_of_their_callers_share_and_give_way() {
    let counts: [Arc<StreamCount>; 2] = Default::default();
    let [one, two] = counts.each_ref().map(StreamCount::server);
    let limits = "eventStreams: 4\neventStreamsPerCaller: 2";
    let gateway = both(&one, &two).limits(limits).start();
    for _ in 0..6 {
        let ana = gateway.client(Era::Legacy, ANA);
        drop(eventually("a stream", || standing(&ana, None)));
    }
    // The last two may be waited for, the others have given way.
    for count in &counts {
        eventually("streams end", || (count.open() == 2).then_some(()));
        assert_eq!(count.asked.load(Ordering::SeqCst), 6);
    }
    gateway.says("stream.displaced");
    // Streams of connected clients do not give way.
    let [first, second] = [(); 2].map(|()| gateway.client(Era::Legacy, ANA));
    let held = [&first, &second].map(|client| eventually("a stream", || standing(client, None)));
    assert!(standing(&gateway.client(Era::Legacy, ANA), None).is_none());
    for count in &counts {
        eventually("the others end", || (count.open() == 2).then_some(()));
    }
    drop(held);
}

#[test]
fn a_client_comes_back_to_its_stream_although_its_share_is_used_up() {
    let (told, wait) = channel();
    let wait = Mutex::new(wait);
    let server = server(move |call, stream| {
        let words: [&str; 2] = ["before", "missed"];
        let tells = agree(call, stream)
            && words.iter().all(|word| wait.lock().unwrap().recv().is_ok() && tell(stream, word));
        tells && until_closed(stream)
    });
    let limits = "eventStreams: 2\neventStreamsPerCaller: 1";
    let gateway = Config::of(&server.url()).limits(limits).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut stream = standing(&ana, None).unwrap();
    told.send(()).unwrap();
    let seen = stream.until("before");
    let last = seen.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    // Of one stream: whether the old connection is still open makes no difference.
    let second = standing(&ana, Some(&last)).unwrap();
    drop(stream);
    drop(second.stream.shutdown(Shutdown::Both));
    told.send(()).unwrap();
    let mut third = standing(&ana, Some(&last)).unwrap();
    third.until("missed");
    // It is used up by this one stream.
    assert!(standing(&gateway.client(Era::Legacy, ANA), None).is_none());
}

#[test]
fn what_is_revoked_keeps_no_stream_to_a_server_for_a_client_that_has_left() {
    for body in [json!({ "principals": ["ana"] }), json!({ "servers": ["one", "two"] })] {
        let (count, folder) = (Arc::new(StreamCount::default()), Folder::new());
        let one = count.server();
        // It never answers.
        let silent = Arc::new(StreamCount::default());
        let counted = Arc::clone(&silent);
        let away = server(move |_call, stream| {
            counted.open.fetch_add(1, Ordering::SeqCst);
            until_closed(stream);
            counted.open.fetch_sub(1, Ordering::SeqCst);
            false
        });
        let gateway = switchable(both(&one, &away), &folder).start();
        let ana = gateway.client(Era::Legacy, ANA);
        let stream = standing(&ana, None).unwrap();
        eventually("streams", || (count.open() == 1 && silent.open() == 1).then_some(()));
        drop(stream);
        revoke(&gateway, &body);
        eventually("they end", || (count.open() == 0 && silent.open() == 0).then_some(()));
    }
}

#[test]
fn messages_of_a_server_that_was_revoked_are_not_given_to_a_client_that_comes_back() {
    let (told, wait) = channel();
    let wait = Mutex::new(wait);
    let one = server(move |call, stream| {
        let is_good = agree(call, stream) && tell(stream, "before");
        is_good
            && wait.lock().unwrap().recv().is_ok()
            && tell(stream, "revoked")
            && until_closed(stream)
    });
    let two = Arc::new(StreamCount::default());
    let (other, folder) = (two.server(), Folder::new());
    let gateway = switchable(both(&one, &other), &folder).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut stream = standing(&ana, None).unwrap();
    let seen = stream.until("before");
    let last = seen.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    drop(stream);
    told.send(()).unwrap();
    // It is kept for a client that comes back.
    standing(&ana, Some(&last)).unwrap().until("revoked");
    revoke(&gateway, &json!({ "servers": ["one"] }));
    let mut back = standing(&ana, Some(&last)).unwrap();
    drop(back.stream.shutdown(Shutdown::Write));
    assert!(!back.rest().contains("revoked"));
}

#[test]
fn the_place_of_a_session_is_free_when_its_client_has_left_a_stream_that_nobody_feeds() {
    let server = server(|call, stream| agree(call, stream) && until_closed(stream));
    // Bob may use no server of the route.
    let rules = "rules: [{id: ana, effect: allow, principals: ['principal:ana'], servers: ['*'], tools: ['*']}]";
    let limits = "sessions: 2\nsessionsPerCaller: 1\nreplayTtl: 1s";
    let gateway = Config::of(&server.url()).policy(rules).limits(limits).start();
    let bob = gateway.client(Era::Legacy, BOB);
    let mut stream = standing(&bob, None).unwrap();
    let again = gateway.client(Era::Legacy, BOB);
    let mut over = Listening { stream: again.stream(None), seen: String::new() };
    over.until("caller-limit-sessions");
    drop(stream.stream.shutdown(Shutdown::Both));
    stream.rest();
    eventually("a place", || {
        let mut stream = Listening { stream: again.stream(None), seen: String::new() };
        stream.until("\r\n\r\n").starts_with("HTTP/1.1 200").then_some(())
    });
}

#[test]
fn a_stream_that_is_not_there_any_more_displaces_none_of_those_that_are() {
    let count = Arc::new(StreamCount::default());
    let server = count.server();
    let limits = "eventStreams: 2\neventStreamsPerCaller: 1";
    let gateway = Config::of(&server.url()).limits(limits).start();
    let left = gateway.client(Era::Legacy, ANA);
    drop(standing(&left, None).unwrap());
    let other = gateway.client(Era::Legacy, ANA);
    let mut lost =
        Listening { stream: other.stream(Some("0123456789abcdef-7")), seen: String::new() };
    assert!(lost.until("\r\n\r\n").starts_with("HTTP/1.1 400"));
    // Its own earlier stream makes room for a new one.
    drop(eventually("a stream", || standing(&left, None)));
    assert_eq!(count.asked.load(Ordering::SeqCst), 2);
}
