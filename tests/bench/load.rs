//! A closed loop: each connection asks again as soon as it is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::framing;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The credential of every request, a header line each: the key of the benchmark; or, when
/// `BENCH_TOKENS` names a file, an access token, and with several in it each for one request alone.
/// An empty file: none.
fn credentials() -> Vec<String> {
    let Ok(file) = std::env::var("BENCH_TOKENS") else {
        return vec!["x-api-key: bench-key\r\n".to_owned()];
    };
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|token| format!("authorization: Bearer {token}\r\n"));
    let all: Vec<_> = lines.collect();
    if all.is_empty() { vec![String::new()] } else { all }
}

/// Stands where the credential goes.
const CREDENTIAL: &str = "x-credential: @\r\n";

/// Asks `requests` times over `connections` and prints requests per second and percentiles in
/// microseconds, as JSON.
pub(crate) async fn run(address: &str, era: &str, tool: &str, connections: usize, requests: usize) {
    let mut clients = clients(address, era, tool, connections).await;
    let credentials = Arc::new(credentials());
    let started = Instant::now();
    let mut times = all(&mut clients, requests, &credentials).await;
    let took = started.elapsed();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_micros();
    let rate = u128::try_from(times.len()).unwrap() * 1_000_000 / took.as_micros();
    println!(r#"{{"rps":{rate},"p50_us":{},"p99_us":{}}}"#, at(50), at(99));
}

/// Asks each of these in turn, again and again, and prints how many each has answered in a second of its own
/// turns, as JSON: what else the machine does meanwhile, it does to all of them.
pub(crate) async fn turns(
    era: &str,
    tool: &str,
    connections: usize,
    (turns, requests): (usize, usize),
    addresses: &[&str],
) {
    let credentials = Arc::new(credentials());
    let mut asked = Vec::new();
    for address in addresses {
        asked.push((clients(address, era, tool, connections).await, Duration::ZERO));
    }
    let count = asked.len();
    for turn in 0..turns {
        // Nobody is always the first, or always after the same.
        asked.rotate_left(turn % count);
        for (clients, took) in &mut asked {
            let started = Instant::now();
            all(clients, requests, &credentials).await;
            *took += started.elapsed();
        }
        asked.rotate_right(turn % count);
    }
    let total = u128::try_from(turns * requests).unwrap() * 1_000_000;
    let rates: Vec<_> = asked.iter().map(|(_, took)| total / took.as_micros()).collect();
    println!("{rates:?}");
}

/// Those who ask, and what: one for each connection, because legacy ones have a session each.
async fn clients(
    address: &str,
    era: &str,
    tool: &str,
    connections: usize,
) -> Vec<(TcpStream, String)> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        let request = request(address, era, tool).await;
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        clients.push((stream, request));
    }
    clients
}

/// Asks so many times over all of them, and how long each time took.
async fn all(
    clients: &mut Vec<(TcpStream, String)>,
    requests: usize,
    credentials: &Arc<Vec<String>>,
) -> Vec<Duration> {
    let left = Arc::new(AtomicUsize::new(requests));
    let asking = std::mem::take(clients).into_iter().map(|(stream, request)| {
        tokio::spawn(ask(stream, request, Arc::clone(&left), Arc::clone(credentials)))
    });
    let tasks: Vec<_> = asking.collect();
    let mut times = Vec::with_capacity(requests);
    for task in tasks {
        let (client, more) = task.await.unwrap();
        clients.push(client);
        times.extend(more);
    }
    times
}

/// Asks for the tool that streams and prints when the first event came, in microseconds, as JSON.
pub(crate) async fn first(address: &str, era: &str, requests: usize) {
    let request = with(&request(address, era, "stream").await, &credentials()[0]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut times, mut buffer) = (Vec::new(), Vec::with_capacity(16 * 1024));
    for _ in 0..requests {
        let started = Instant::now();
        stream.write_all(&request).await.unwrap();
        let mut came = None;
        buffer.clear();
        while memchr::memmem::find(&buffer, b"\r\n0\r\n\r\n").is_none() {
            assert!(stream.read_buf(&mut buffer).await.unwrap() > 0, "the connection was closed");
            let told = memchr::memmem::find(&buffer, b"\"progress\":1").is_some();
            came = came.or(told.then(|| started.elapsed()));
        }
        times.push(came.unwrap());
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_micros();
    println!(r#"{{"first_p50_us":{},"first_p99_us":{}}}"#, at(50), at(99));
}

fn with(request: &str, credential: &str) -> Vec<u8> {
    request.replacen(CREDENTIAL, credential, 1).into_bytes()
}

async fn ask(
    mut stream: TcpStream,
    request: String,
    left: Arc<AtomicUsize>,
    credentials: Arc<Vec<String>>,
) -> ((TcpStream, String), Vec<Duration>) {
    let mut times = Vec::new();
    let mut bytes = with(&request, &credentials[0]);
    let mut buffer = Vec::with_capacity(80 * 1024);
    while let Ok(place) =
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
    {
        if credentials.len() > 1 {
            bytes = with(&request, &credentials[place % credentials.len()]);
        }
        let started = Instant::now();
        stream.write_all(&bytes).await.unwrap();
        answer(&mut stream, &mut buffer).await;
        assert!(
            buffer.starts_with(b"HTTP/1.1 200")
                && memchr::memmem::find(&buffer, b"\"result\"").is_some(),
            "{}",
            String::from_utf8_lossy(&buffer)
        );
        times.push(started.elapsed());
    }
    ((stream, request), times)
}

async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) {
    buffer.clear();
    let mut whole = None;
    while whole.is_none_or(|whole| buffer.len() < whole) {
        assert!(stream.read_buf(buffer).await.unwrap() > 0, "the connection was closed");
        whole = whole.or_else(|| framing(buffer).map(|(head, length)| head + length));
    }
}

/// One request without its credential; for the legacy era after a handshake.
async fn request(address: &str, era: &str, tool: &str) -> String {
    let (method, name) =
        if tool == "list" { ("tools/list", None) } else { ("tools/call", Some(tool)) };
    let arguments = name.map(|name| {
        format!(
            r#""name":"{name}","arguments":{{"query":"shoes","limit":5,"path":"/srv/data/a.txt"}}"#
        ) + if name == "stream" && era == "legacy" { r#","_meta":{"progressToken":1}"# } else { "" }
    });
    let common = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{CREDENTIAL}"
    );
    let post = |headers: &str, body: &str| {
        format!("{common}{headers}content-length: {}\r\n\r\n{body}", body.len())
    };
    let params = arguments.unwrap_or_default();
    if era == "modern" {
        let comma = if params.is_empty() { "" } else { "," };
        let token = if name == Some("stream") { r#""progressToken":1,"# } else { "" };
        let meta = META.replacen('{', &format!("{{{token}"), 1);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{comma}{meta}}}}}"#
        );
        let name = name.map(|name| format!("mcp-name: {name}\r\n")).unwrap_or_default();
        let headers = format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{name}");
        return post(&headers, &body);
    }
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&with(&post("", hello), &credentials()[0])).await.unwrap();
    let mut buffer = Vec::new();
    answer(&mut stream, &mut buffer).await;
    let text = String::from_utf8(buffer).unwrap();
    let session =
        text.split("mcp-session-id: ").nth(1).map(|rest| rest.split("\r\n").next().unwrap());
    let session = session.map(|id| format!("mcp-session-id: {id}\r\n")).unwrap_or_default();
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
    post(&format!("mcp-protocol-version: 2025-11-25\r\n{session}"), &body)
}
