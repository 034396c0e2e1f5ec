//! A server with a hundred tools and three sizes of answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::framing;

/// What follows the id in each answer.
struct Answers {
    small: Vec<u8>,
    medium: Vec<u8>,
    large: Vec<u8>,
    list: Vec<u8>,
    discover: Vec<u8>,
    initialize: Vec<u8>,
    lists: AtomicUsize,
}

/// Serves on a free port of the loopback interface and prints its address.
///
/// With `fresh` its list says that it lasts. `stub/count` asks how often the list was asked for, and
/// the tool `stream` tells of its progress a while before it answers.
pub(crate) async fn serve(fresh: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let answers = Arc::new(Answers::new(fresh));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(connection(stream, Arc::clone(&answers)));
    }
}

async fn connection(mut stream: TcpStream, answers: Arc<Answers>) {
    let mut buffer = Vec::with_capacity(16 * 1024);
    let mut out = Vec::with_capacity(80 * 1024);
    loop {
        while let Some((head, length)) = framing(&buffer) {
            if buffer.len() < head + length {
                break;
            }
            // It has no streams and no sessions of its own.
            if !buffer.starts_with(b"POST ") {
                buffer.drain(..head);
                let refused = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n";
                if stream.write_all(refused).await.is_err() {
                    return;
                }
                continue;
            }
            let body = &buffer[head..head + length];
            out.clear();
            if memchr::memmem::find(body, b"\"name\":\"stream\"").is_some() {
                let body = body.to_vec();
                buffer.drain(..head + length);
                if !stream_out(&mut stream, &body).await {
                    return;
                }
                continue;
            }
            answers.write(body, &mut out);
            buffer.drain(..head + length);
            if stream.write_all(&out).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut buffer).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
}

/// Progress at once, and the answer later: what is measured is when the first arrives.
async fn stream_out(stream: &mut TcpStream, body: &[u8]) -> bool {
    let field = |name: &str| {
        let at =
            memchr::memmem::find(body, name.as_bytes()).map_or(body.len(), |at| at + name.len());
        let rest = &body[at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        String::from_utf8_lossy(&rest[..digits]).into_owned()
    };
    let chunk = |message: &str| {
        let event = format!("event: message\ndata: {message}\n\n");
        format!("{:x}\r\n{event}\r\n", event.len())
    };
    let (id, token) = (field("\"id\":"), field("\"progressToken\":"));
    let told = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
    );
    let done = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[]}}}}"#
    );
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    if stream.write_all((head.to_owned() + &chunk(&told)).as_bytes()).await.is_err() {
        return false;
    }
    // The work of a tool: what is timed is how long before its end the first event is there.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    stream.write_all((chunk(&done) + "0\r\n\r\n").as_bytes()).await.is_ok()
}

impl Answers {
    fn new(fresh: bool) -> Self {
        let text = |size: usize| {
            let line = "The quick brown fox jumps over the lazy dog, and runs on.\\n";
            let text = line.repeat(size / line.len() + 1);
            // Not in the middle of an escape.
            let text = text[..size].trim_end_matches('\\');
            format!(
                r#"{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}],"isError":false}}}}"#
            )
        };
        let tool = |n: usize| {
            format!(
                r#"{{"name":"tool_{n:03}","title":"Tool number {n}","description":"Looks something up in the catalogue of things and gives back what it finds, at most ten at a time.","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","description":"What to look for."}},"limit":{{"type":"integer","minimum":1,"maximum":10}}}},"required":["query"]}},"annotations":{{"readOnlyHint":true}}}}"#
            )
        };
        let names = ["small", "medium", "large", "stream"].map(|name| {
            format!(
                r#"{{"name":"{name}","description":"Answers.","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","maxLength":200}},"limit":{{"type":"integer","minimum":1,"maximum":100}},"path":{{"type":"string"}}}},"required":["query"],"additionalProperties":false}}}}"#
            )
        });
        let tools: Vec<_> = names.into_iter().chain((4..100).map(tool)).collect();
        let list = format!(
            r#"{{"resultType":"complete","tools":[{}],"ttlMs":{},"cacheScope":"public"}}}}"#,
            tools.join(","),
            if fresh { 600_000 } else { 0 }
        );
        let discover = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}"#;
        let initialize = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"stub","version":"1"}}}"#;
        Self {
            small: text(200).into_bytes(),
            medium: text(1900).into_bytes(),
            large: text(64 * 1024 - 120).into_bytes(),
            list: list.into_bytes(),
            discover: discover.as_bytes().to_vec(),
            initialize: initialize.as_bytes().to_vec(),
            lists: AtomicUsize::new(0),
        }
    }

    fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        let has = |text: &str| memchr::memmem::find(body, text.as_bytes()).is_some();
        let Some(at) = memchr::memmem::find(body, b"\"id\":") else {
            out.extend_from_slice(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
            return;
        };
        let digits = body[at + 5..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let id = &body[at + 5..at + 5 + digits];
        let counted;
        let rest = if has("\"stub/count\"") {
            let lists = self.lists.load(Ordering::Relaxed);
            counted = format!(r#"{{"lists":{lists}}}}}"#).into_bytes();
            &counted
        } else if has("\"tools/list\"") {
            self.lists.fetch_add(1, Ordering::Relaxed);
            &self.list
        } else if has("\"server/discover\"") {
            &self.discover
        } else if has("\"initialize\"") {
            &self.initialize
        } else if has("\"large\"") {
            &self.large
        } else if has("\"medium\"") {
            &self.medium
        } else {
            &self.small
        };
        let start = b"{\"jsonrpc\":\"2.0\",\"id\":";
        let length = start.len() + id.len() + 10 + rest.len();
        out.extend_from_slice(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ",
        );
        out.extend_from_slice(length.to_string().as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(start);
        out.extend_from_slice(id);
        out.extend_from_slice(b",\"result\":");
        out.extend_from_slice(rest);
    }
}
