//! HTTP/2 around clients and servers that speak HTTP/1.1, by the `h2` crate; and HTTP/2 frame by frame, for
//! peers that break it.

use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response, Version};
use memchr::memmem;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::PATIENCE;
use crate::client::Answer;
use crate::pki::Files;
use crate::tls::{self, RUNTIME};

/// The same TLS, offering these protocols.
#[must_use]
pub fn offering(config: &Arc<ClientConfig>, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// The protocol that is agreed on with the listener at `to`, if any.
///
/// # Panics
/// When there is no TLS.
#[must_use]
pub fn agreed(to: SocketAddr, config: &Arc<ClientConfig>, protocols: &[&str]) -> Option<String> {
    let mut wire = Wire::shaken(to, &offering(config, protocols));
    let protocol = wire.connection.alpn_protocol().map(|name| String::from_utf8(name.to_vec()));
    wire.connection.send_close_notify();
    wire.flush();
    protocol.map(Result::unwrap)
}

async fn sender(to: SocketAddr, config: &Arc<ClientConfig>) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(to).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(offering(config, &["h2"]));
    let secure = connector.connect(name, stream).await.unwrap();
    assert_eq!(secure.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) = h2::client::handshake(secure).await.unwrap();
    RUNTIME.spawn(async move { drop(connection.await) });
    sender
}

/// A place on loopback from which every request goes on to `to`, over one connection of HTTP/2. A client
/// that hangs up there resets its stream.
///
/// # Panics
/// When there is no such connection.
#[must_use]
pub fn tunnel(to: SocketAddr, config: &Arc<ClientConfig>) -> SocketAddr {
    let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let sender = RUNTIME.block_on(sender(to, config));
    RUNTIME.spawn(async move {
        while let Ok((plain, _)) = listener.accept().await {
            RUNTIME.spawn(forward(plain, sender.clone()));
        }
    });
    address
}

/// Sends one request of HTTP/2, with these headers beside those in its URI, and reads the answer; `None`
/// when the stream is reset or the connection ends.
#[must_use]
pub fn ask(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
    request: Request<Vec<u8>>,
) -> Option<Answer> {
    RUNTIME.block_on(async {
        let sender = sender(to, config).await;
        let (mut head, body) = request.into_parts();
        head.version = Version::HTTP_2;
        let mut sender = sender.ready().await.ok()?;
        let head = Request::from_parts(head, ());
        let (response, mut upload) = sender.send_request(head, body.is_empty()).ok()?;
        if !body.is_empty() {
            upload.send_data(body.into(), true).ok()?;
        }
        let response = tokio::time::timeout(PATIENCE, response).await.unwrap().ok()?;
        let (head, mut body) = response.into_parts();
        let mut text = Vec::new();
        while let Some(data) = tokio::time::timeout(PATIENCE, body.data()).await.unwrap() {
            let data = data.ok()?;
            body.flow_control().release_capacity(data.len()).ok()?;
            text.extend_from_slice(&data);
        }
        let body = String::from_utf8(text).unwrap();
        let head_text = lines("HTTP/2", head.status.as_u16(), &head.headers);
        Some(Answer { status: head.status.as_u16(), head: head_text, body })
    })
}

fn lines(version: &str, status: u16, headers: &HeaderMap) -> String {
    let mut text = format!("{version} {status} x\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    text
}

/// The head of a message of HTTP/1.1; `rest` is what came after it.
async fn head(stream: &mut (impl AsyncRead + Unpin), rest: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = memmem::find(rest, b"\r\n\r\n") {
            return String::from_utf8(rest.drain(..end + 4).collect()).ok();
        }
        more(stream, rest).await?;
    }
}

async fn more(stream: &mut (impl AsyncRead + Unpin), rest: &mut Vec<u8>) -> Option<()> {
    let mut buffer = vec![0; 16384];
    match stream.read(&mut buffer).await {
        Ok(read @ 1..) => {
            rest.extend_from_slice(&buffer[..read]);
            Some(())
        }
        _ => None,
    }
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Returns when the peer has hung up.
async fn gone(plain: &TcpStream) {
    let mut buffer = [0; 1];
    if let Ok(1..) = plain.peek(&mut buffer).await {
        std::future::pending::<()>().await;
    }
}

async fn forward(mut plain: TcpStream, sender: SendRequest<Bytes>) -> Option<()> {
    let mut rest = Vec::new();
    loop {
        let head = head(&mut plain, &mut rest).await?;
        let length = value(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        while rest.len() < length {
            more(&mut plain, &mut rest).await?;
        }
        let body: Vec<u8> = rest.drain(..length).collect();
        let mut lines_of = head.split("\r\n").filter(|line| !line.is_empty());
        let mut first = lines_of.next()?.split(' ');
        let method = first.next()?;
        let uri = format!("https://{}{}", value(&head, "host")?, first.next()?);
        let mut request = Request::builder().method(method).uri(uri).version(Version::HTTP_2);
        for line in lines_of {
            let (name, value) = line.split_once(':')?;
            if !["host", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
                request = request.header(name, value.trim());
            }
        }
        let mut sender = sender.clone().ready().await.ok()?;
        let sent = sender.send_request(request.body(()).unwrap(), body.is_empty());
        let (response, mut upload) = sent.ok()?;
        if !body.is_empty() {
            upload.send_data(body.into(), true).ok()?;
        }
        let response = tokio::select! {
            response = response => response.ok()?,
            () = gone(&plain) => return None,
        };
        let (head, mut body) = response.into_parts();
        let mut text = lines("HTTP/1.1", head.status.as_u16(), &head.headers);
        let sized = head.headers.contains_key("content-length");
        let chunked = !sized && !body.is_end_stream();
        match (sized, chunked) {
            (true, _) => {}
            (false, true) => text.push_str("transfer-encoding: chunked\r\n"),
            (false, false) => text.push_str("content-length: 0\r\n"),
        }
        plain.write_all(format!("{text}\r\n").as_bytes()).await.ok()?;
        loop {
            let data = tokio::select! {
                data = body.data() => data,
                () = gone(&plain) => return None,
            };
            let Some(data) = data else { break };
            let data = data.ok()?;
            body.flow_control().release_capacity(data.len()).ok()?;
            if chunked && !data.is_empty() {
                let size = format!("{:x}\r\n", data.len());
                plain.write_all(&[size.as_bytes(), &data, b"\r\n"].concat()).await.ok()?;
            } else {
                plain.write_all(&data).await.ok()?;
            }
        }
        if chunked {
            plain.write_all(b"0\r\n\r\n").await.ok()?;
        }
    }
}

/// A server of HTTP/2 before one of HTTP/1.1.
#[derive(Debug)]
pub struct Front {
    /// Where it is.
    pub address: SocketAddr,
    /// Connections that were made to it.
    pub connections: Arc<AtomicUsize>,
    /// Streams that its client has reset.
    pub resets: Arc<AtomicUsize>,
    /// The hosts that requests named, and whether they had a `Host` as well.
    pub hosts: Arc<Mutex<Vec<(String, bool)>>>,
}

impl Front {
    /// A front before `to` that shows `files` and speaks HTTP/2 alone.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn before(to: SocketAddr, files: &Files) -> Self {
        let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, resets, hosts) = (Arc::default(), Arc::default(), Arc::default());
        let front = Self { address, connections, resets, hosts };
        let mut config = ServerConfig::clone(&tls::server(files, None));
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (connections, resets) = (Arc::clone(&front.connections), Arc::clone(&front.resets));
        let hosts = Arc::clone(&front.hosts);
        RUNTIME.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, resets) = (acceptor.clone(), Arc::clone(&resets));
                let (connections, hosts) = (Arc::clone(&connections), Arc::clone(&hosts));
                RUNTIME.spawn(async move {
                    let Ok(secure) = acceptor.accept(stream).await else { return };
                    let Ok(mut connection) = h2::server::handshake(secure).await else { return };
                    connections.fetch_add(1, Ordering::Relaxed);
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let host = request.uri().authority().unwrap().to_string();
                        let twice = request.headers().contains_key("host");
                        hosts.lock().unwrap().push((host, twice));
                        RUNTIME.spawn(relay(request, respond, to, Arc::clone(&resets)));
                    }
                });
            }
        });
        front
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/mcp", self.address.port())
    }
}

/// How the end of a body of HTTP/1.1 is known.
enum Ends {
    After(usize),
    Chunked,
    Closed,
}

/// What of a body has come, and whether that was all of it.
fn taken(rest: &mut Vec<u8>, ends: &mut Ends) -> (Vec<u8>, bool) {
    match ends {
        Ends::After(left) => {
            let data: Vec<u8> = rest.drain(..rest.len().min(*left)).collect();
            *left -= data.len();
            (data, *left == 0)
        }
        Ends::Closed => (std::mem::take(rest), false),
        Ends::Chunked => {
            let mut data = Vec::new();
            while let Some(end) = memmem::find(rest, b"\r\n") {
                let size = std::str::from_utf8(&rest[..end]).unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                if rest.len() < end + size + 4 {
                    break;
                }
                if size == 0 {
                    return (data, true);
                }
                data.extend_from_slice(&rest[end + 2..end + 2 + size]);
                rest.drain(..end + size + 4);
            }
            (data, false)
        }
    }
}

async fn relay(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    to: SocketAddr,
    resets: Arc<AtomicUsize>,
) -> Option<()> {
    let (asked, mut body) = request.into_parts();
    let mut sent = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
        sent.extend_from_slice(&data);
    }
    let mut plain = TcpStream::connect(to).await.ok()?;
    let (path, host) = (asked.uri.path_and_query()?, asked.uri.authority()?);
    let mut text = format!("{} {path} HTTP/1.1\r\nhost: {host}\r\n", asked.method);
    for (name, value) in &asked.headers {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().ok()?));
    }
    plain.write_all(&[text.as_bytes(), b"\r\n", &sent].concat()).await.ok()?;
    let mut rest = Vec::new();
    let told = tokio::select! {
        told = head(&mut plain, &mut rest) => told?,
        _ = poll_fn(|cx| respond.poll_reset(cx)) => {
            resets.fetch_add(1, Ordering::Relaxed);
            return None;
        }
    };
    let mut response = Response::builder().status(told.split(' ').nth(1)?);
    for line in told.split("\r\n").skip(1).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        if !["transfer-encoding", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
            response = response.header(name, value.trim());
        }
    }
    let mut ends = match value(&told, "content-length") {
        Some(length) => Ends::After(length.parse().ok()?),
        None if value(&told, "transfer-encoding").is_some() => Ends::Chunked,
        None => Ends::Closed,
    };
    let mut stream = respond.send_response(response.body(()).ok()?, false).ok()?;
    loop {
        let (data, over) = taken(&mut rest, &mut ends);
        if over || !data.is_empty() {
            stream.send_data(data.into(), over).ok()?;
        }
        if over {
            return Some(());
        }
        let came = tokio::select! {
            came = more(&mut plain, &mut rest) => came,
            _ = poll_fn(|cx| stream.poll_reset(cx)) => {
                resets.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        };
        if came.is_none() {
            stream.send_data(Bytes::new(), true).ok()?;
            return Some(());
        }
    }
}

/// Types of frames (RFC 9113, section 6).
pub mod kind {
    /// The body.
    pub const DATA: u8 = 0;
    /// The head.
    pub const HEADERS: u8 = 1;
    /// Said to be ignored.
    pub const PRIORITY: u8 = 2;
    /// The end of a stream.
    pub const RST_STREAM: u8 = 3;
    /// What an end allows.
    pub const SETTINGS: u8 = 4;
    /// A question, or its answer.
    pub const PING: u8 = 6;
    /// The end of the connection.
    pub const GOAWAY: u8 = 7;
    /// Room for more of a body.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of a head.
    pub const CONTINUATION: u8 = 9;
}

/// `END_STREAM`, and `ACK` of settings and pings.
pub const END_STREAM: u8 = 1;
/// `END_HEADERS`
pub const END_HEADERS: u8 = 4;

/// A frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// The stream it is of.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of a reset or a `GOAWAY`.
    #[must_use]
    pub fn code(&self) -> u32 {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// The bytes of a frame.
///
/// # Panics
/// When the payload is longer than any frame.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A list of headers as HPACK has it, each literal and none remembered (RFC 7541, section 6.2.2).
#[must_use]
pub fn packed(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            let mut left = text.len();
            if left < 127 {
                bytes.push(u8::try_from(left).unwrap());
            } else {
                bytes.push(127);
                left -= 127;
                while left >= 128 {
                    bytes.push(u8::try_from(left % 128 + 128).unwrap());
                    left /= 128;
                }
                bytes.push(u8::try_from(left).unwrap());
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// One end of a connection of HTTP/2, frame by frame.
#[derive(Debug)]
pub struct Wire {
    connection: Connection,
    socket: StdStream,
    read: Vec<u8>,
}

impl Wire {
    fn shaken(to: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap().into();
        Self::over(connection, StdStream::connect(to).unwrap()).expect("no TLS")
    }

    fn over(mut connection: Connection, mut socket: StdStream) -> Option<Self> {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        connection.set_buffer_limit(None);
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).ok()?;
        }
        Some(Self { connection, socket, read: Vec::new() })
    }

    /// A client without a preface.
    #[must_use]
    pub fn silent(to: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        Self::shaken(to, &offering(config, &["h2"]))
    }

    /// A client with these settings, which both ends have agreed to.
    ///
    /// # Panics
    /// When the server does not speak HTTP/2.
    #[must_use]
    pub fn client(to: SocketAddr, config: &Arc<ClientConfig>, settings: &[u8]) -> Self {
        let mut wire = Self::silent(to, config);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let own = frame(kind::SETTINGS, 0, 0, settings);
        assert!(wire.send(&[&preface[..], &own].concat()));
        let first = wire.frame().expect("no settings");
        assert_eq!(first.kind, kind::SETTINGS);
        assert!(wire.send(&frame(kind::SETTINGS, END_STREAM, 0, &[])));
        wire
    }

    /// Sends these bytes; whether they were taken.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.connection.writer().write_all(bytes).is_ok() && self.flush()
    }

    fn flush(&mut self) -> bool {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut self.socket).is_err() {
                return false;
            }
        }
        true
    }

    /// Reads what has already arrived, as a client does while it sends. The kernel drops what a socket has no room
    /// for, and a peer that closes its end does not send it again.
    ///
    /// # Panics
    /// When the socket cannot be set to return at once.
    pub fn read_what_has_arrived(&mut self) {
        let mut buffer = vec![0; 16384];
        self.socket.set_nonblocking(true).unwrap();
        while let Ok(1..) = self.connection.read_tls(&mut self.socket) {
            if self.connection.process_new_packets().is_err() {
                break;
            }
            while let Ok(read @ 1..) = self.connection.reader().read(&mut buffer) {
                self.read.extend_from_slice(&buffer[..read]);
            }
        }
        self.socket.set_nonblocking(false).unwrap();
    }

    /// Reads some bytes, without writing any: a peer that has closed its end may have said why before.
    fn more(&mut self) -> Option<()> {
        let mut buffer = vec![0; 16384];
        loop {
            match self.connection.reader().read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => {
                    self.read.extend_from_slice(&buffer[..read]);
                    return Some(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
            match self.connection.read_tls(&mut self.socket) {
                Ok(1..) => self.connection.process_new_packets().ok()?,
                Ok(0) | Err(_) => return None,
            };
        }
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.read.len() < count {
            self.more()?;
        }
        Some(self.read.drain(..count).collect())
    }

    /// The next frame; `None` when the connection has ended.
    ///
    /// # Panics
    /// Never: what is read has the length it is taken for.
    pub fn frame(&mut self) -> Option<Frame> {
        let head = self.bytes(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        let payload = self.bytes(usize::try_from(length).unwrap())?;
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of this type, if there is one before the connection ends.
    pub fn next(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.frame()?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// The code of the first `GOAWAY` that names an error, or of the last one before the end.
    pub fn goaway(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next(kind::GOAWAY) {
            code = Some(frame.code());
            if code != Some(0) {
                break;
            }
        }
        code
    }

    /// How the peer ends a stream or the connection, whichever is first: the type of the frame, and its
    /// code.
    pub fn refusal(&mut self) -> Option<(u8, u32)> {
        loop {
            let frame = self.frame()?;
            if matches!(frame.kind, kind::GOAWAY | kind::RST_STREAM) {
                return Some((frame.kind, frame.code()));
            }
        }
    }
}

/// Accepts connections of HTTP/2 at a place of its own, and does `each` with each of them after both ends
/// have told their settings.
///
/// # Panics
/// When there is no port.
pub fn server(files: &Files, each: impl Fn(&mut Wire) + Send + Sync + 'static) -> SocketAddr {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = ServerConfig::clone(&tls::server(files, None));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (config, each) = (Arc::new(config), Arc::new(each));
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (config, each) = (Arc::clone(&config), Arc::clone(&each));
            thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap().into();
                let Some(mut wire) = Wire::over(connection, socket.unwrap()) else { return };
                let settings = frame(kind::SETTINGS, 0, 0, &[]);
                let acknowledged = frame(kind::SETTINGS, END_STREAM, 0, &[]);
                if wire.bytes(24).is_some() && wire.send(&[settings, acknowledged].concat()) {
                    each(&mut wire);
                }
            });
        }
    });
    address
}
