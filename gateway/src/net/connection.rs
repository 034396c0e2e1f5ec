//! A client connection to a server, or the place of one request on a shared connection.
//!
//! An HTTP/1.1 connection has no task of its own: the exchange that holds it polls it, so a response
//! passes through no queue, and dropping the connection in the middle of a response closes it, which current servers
//! take for a cancellation. Where TLS negotiates HTTP/2, a task drives each connection
//! ([`crate::net::http2::client`]), and dropping a [`ServerConnection`] in the middle of a response resets its stream.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::Either;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::base::fair::ReadBudget;
use crate::base::segments::Segments;
use crate::base::task::Tasks;
use crate::crypto::x509::LeafCertificate;
use crate::net::egress::{self, Egress};
use crate::net::http2::client::{SharedHttp2, StreamSlot, is_unprocessed};
use crate::net::http2::{self, ConnectionBounds};
use crate::net::unbuffered::{HeadBounds, UnbufferedConnection, UnbufferedError};

/// Most bytes that a server sends before the head of its response is complete: interim responses (1xx) for the greatest
/// part. RFC 9110, section 15.2, sets no bound; a server sends one or two, and one that processes a request for long
/// one every 20 seconds.
const BEFORE_RESPONSE: usize = 64 * 1024;
/// How long an unused connection is kept. Servers close theirs after five seconds or more, and a connection
/// that is about to be closed must not be used for a call that cannot be repeated.
const IDLE: Duration = Duration::from_secs(4);
/// Size limit of the head of a response and of a single read of its body, in bytes: every connection
/// has one such buffer.
const BUFFER: usize = 16 * 1024;
/// Size limit of the head of an HTTP/2 response, in bytes.
pub const HEAD: u32 = 16 * 1024;

/// Why a connection cannot be established, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The connection could not be established.
    #[error("could not connect")]
    Connect(#[source] io::Error),
    /// The name of the server resolves to an address that the egress rules exclude.
    #[error("`{host}` resolves to {address}, which `egress` does not allow")]
    Egress {
        /// The host of the URL: a name or an address.
        host: Box<str>,
        /// The address that is excluded.
        address: IpAddr,
    },
    /// The certificate of the server is not accepted.
    #[error("server certificate verification failed")]
    Identity(#[source] io::Error),
    /// The established connection failed.
    #[error("the connection broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server has not processed the request, so it can be repeated.
    #[error("the server did not take the request")]
    Unprocessed(#[source] h2::Error),
}

impl From<hyper::Error> for ConnectionError {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.into())
    }
}

impl From<UnbufferedError> for ConnectionError {
    fn from(error: UnbufferedError) -> Self {
        Self::Broken(error.into())
    }
}

impl From<h2::Error> for ConnectionError {
    fn from(error: h2::Error) -> Self {
        if is_unprocessed(&error) { Self::Unprocessed(error) } else { Self::Broken(error.into()) }
    }
}

/// The address of a server, with everything that is needed to connect to it.
#[derive(Clone, Debug)]
pub struct ConnectTarget {
    host: Box<str>,
    port: u16,
    egress: Egress,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    connect_timeout: Duration,
    lookup: NameResolver,
    /// The limits of HTTP/2 and the tasks that drive its connections, where it is permitted.
    http2: Option<(ConnectionBounds, Tasks)>,
}

/// The resolver of host names.
#[derive(Clone, Debug)]
enum NameResolver {
    /// The resolver of the operating system.
    Machine,
    /// A scripted resolver for tests, with another answer each time.
    #[cfg(test)]
    Told(Arc<std::sync::Mutex<std::collections::VecDeque<Vec<SocketAddr>>>>),
}

impl NameResolver {
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Machine => Ok(lookup_host((host, port)).await?.take(egress::ADDRESSES).collect()),
            #[cfg(test)]
            Self::Told(answers) => Ok(answers.lock().unwrap().pop_front().unwrap()),
        }
    }
}

impl ConnectTarget {
    /// The target of `uri`, at addresses that `egress` admits; an `https` URI needs `tls`.
    ///
    /// # Errors
    /// When the URI has no usable host, or is `https` without `tls`.
    pub fn new(
        uri: &Uri,
        egress: Egress,
        tls: Option<Arc<ClientConfig>>,
        connect_timeout: Duration,
    ) -> Result<Self, ConnectionError> {
        let invalid = || ConnectionError::Connect(io::ErrorKind::InvalidInput.into());
        let host = uri.host().ok_or_else(invalid)?.trim_matches(['[', ']']);
        let secure = uri.scheme_str() == Some("https");
        let tls = match tls.filter(|_| secure) {
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned()).map_err(|_unusable| invalid())?;
                Some((tls, name))
            }
            None if secure => return Err(invalid()),
            None => None,
        };
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let (lookup, http2) = (NameResolver::Machine, None);
        Ok(Self { host: host.into(), port, egress, tls, connect_timeout, lookup, http2 })
    }

    /// This target, with HTTP/2 offered in TLS. Its HTTP/2 connections are driven by `tasks`.
    #[must_use]
    pub fn multiplexed(mut self, terms: ConnectionBounds, tasks: Tasks) -> Self {
        if let Some((config, _)) = &mut self.tls {
            let mut offers = ClientConfig::clone(config);
            offers.alpn_protocols = vec![http2::ALPN.to_vec(), http2::ALPN_OLD.to_vec()];
            *config = Arc::new(offers);
            self.http2 = Some((terms, tasks));
        }
        self
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// When it cannot be established within the time limit.
    pub async fn connect(&self) -> Result<ServerConnection, ConnectionError> {
        let stream = match self.negotiated().await? {
            NegotiatedStream::Http1(stream) => stream,
            NegotiatedStream::Http2(slot) => return Ok(ServerConnection::Shared(slot)),
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER);
        let received = Arc::new(AtomicUsize::new(0));
        let stream = CountedStream { stream, received: Arc::clone(&received) };
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(ServerConnection::Own(Http1Connection {
            sender,
            connection: Box::pin(connection),
            received,
            closed: false,
            idle_since: Instant::now(),
        }))
    }

    /// Opens a new connection for one request, whose response may be silent for hours: HTTP/1.1 has no buffers for it
    /// while nothing arrives.
    ///
    /// # Errors
    /// When it cannot be established within the time limit.
    pub async fn connect_unbuffered(&self) -> Result<ServerConnection, ConnectionError> {
        Ok(match self.negotiated().await? {
            NegotiatedStream::Http1(stream) => {
                let bounds = HeadBounds { head: BUFFER, before_body: BEFORE_RESPONSE };
                let connection = UnbufferedConnection::new(stream, bounds);
                ServerConnection::Unbuffered(Box::new(connection))
            }
            NegotiatedStream::Http2(slot) => ServerConnection::Shared(slot),
        })
    }

    /// A new byte stream, within the time limit, and what is spoken on it.
    async fn negotiated(&self) -> Result<NegotiatedStream, ConnectionError> {
        let connected = timeout(self.connect_timeout, self.stream()).await;
        let late = |_| ConnectionError::Connect(io::ErrorKind::TimedOut.into());
        let stream = connected.map_err(late)??;
        let Some((terms, tasks)) = self.http2.as_ref().filter(|_| stream.is_http2()) else {
            return Ok(NegotiatedStream::Http1(stream));
        };
        let shared = SharedHttp2::begin(stream, *terms, IDLE, tasks).await?;
        let closed = || ConnectionError::Connect(io::ErrorKind::ConnectionAborted.into());
        Ok(NegotiatedStream::Http2(shared.enter().ok_or_else(closed)?))
    }

    /// The expiry of the verified certificate that the server presents on a new connection; `None` where connections do
    /// not use TLS.
    ///
    /// # Errors
    /// When no connection can be established within the time limit, or the certificate cannot be read.
    pub async fn certificate_end(&self) -> Result<Option<SystemTime>, ConnectionError> {
        let connected = timeout(self.connect_timeout, self.stream()).await;
        let late = |_| ConnectionError::Connect(io::ErrorKind::TimedOut.into());
        let ServerStream::Tls(stream) = connected.map_err(late)?? else { return Ok(None) };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let leaf = shown.map(|leaf| LeafCertificate::read(leaf)).transpose();
        let leaf =
            leaf.map_err(|unreadable| ConnectionError::Identity(io::Error::other(unreadable)))?;
        Ok(leaf.map(|leaf| leaf.ends))
    }

    /// A byte stream to the server, for a protocol that is implemented elsewhere.
    ///
    /// # Errors
    /// When it cannot be established. There is no time limit.
    pub(crate) async fn stream(&self) -> Result<ServerStream, ConnectionError> {
        // Resolved once for each connection: a later change of the name has no effect on it.
        let found = self.lookup.addresses(&self.host, self.port).await;
        let addresses = found.map_err(ConnectionError::Connect)?;
        // A single excluded address among others indicates an attack, so none of them is used.
        if let Some(out) = addresses.iter().find(|address| !self.egress.admits(address.ip())) {
            return Err(ConnectionError::Egress { host: self.host.clone(), address: out.ip() });
        }
        let connect = TcpStream::connect(&*addresses);
        let stream = connect.await.map_err(ConnectionError::Connect)?;
        stream.set_nodelay(true).map_err(ConnectionError::Connect)?;
        let Some((config, name)) = &self.tls else { return Ok(ServerStream::Plain(stream)) };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name.clone(), stream).await;
        Ok(ServerStream::Tls(Box::new(stream.map_err(refused)?)))
    }
}

/// Distinguishes a certificate that is not accepted from a server that cannot be reached.
fn refused(error: io::Error) -> ConnectionError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => ConnectionError::Identity(error),
        Some(_) | None => ConnectionError::Connect(error),
    }
}

/// A connection, or the place of one request on a shared one.
#[derive(Debug)]
pub enum ServerConnection {
    /// An HTTP/1.1 connection, with one request at a time.
    Own(Http1Connection),
    /// An HTTP/1.1 connection for one request, without buffers while nothing arrives.
    Unbuffered(Box<UnbufferedConnection<ServerStream>>),
    /// The place of one request on an HTTP/2 connection.
    Shared(StreamSlot),
}

/// A new connection, by what is spoken on it.
enum NegotiatedStream {
    Http1(ServerStream),
    /// HTTP/2, with the place of one request.
    Http2(StreamSlot),
}

/// An HTTP/1.1 connection with its state.
#[derive(Debug)]
pub struct Http1Connection {
    sender: SendRequest<Segments>,
    connection: Pin<Box<Http1Driver>>,
    /// The bytes that were received since the last request.
    received: Arc<AtomicUsize>,
    closed: bool,
    idle_since: Instant,
}

/// The part of an HTTP/1.1 connection that reads and writes.
type Http1Driver = Connection<TokioIo<CountedStream>, Segments>;

/// The body of a response, to be read with [`ServerConnection::frame`].
#[derive(Debug)]
pub struct ServerResponseBody {
    body: ResponseBodyKind,
    fair: ReadBudget,
}

#[derive(Debug)]
enum ResponseBodyKind {
    /// The body on an HTTP/1.1 connection.
    Own(Incoming),
    /// The body on an HTTP/1.1 connection without buffers, which reads it itself.
    Unbuffered,
    /// The body on an HTTP/2 stream.
    Shared(http2::IncomingBody),
}

impl ServerResponseBody {
    const fn new(body: ResponseBodyKind) -> Self {
        Self { body, fair: ReadBudget::new() }
    }

    /// Whether the whole body has been read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.body {
            ResponseBodyKind::Own(body) => body.is_end_stream(),
            ResponseBodyKind::Unbuffered => false,
            ResponseBodyKind::Shared(body) => body.is_end_stream(),
        }
    }

    /// Least number of bytes that are left.
    #[must_use]
    pub fn expected(&self) -> u64 {
        match &self.body {
            ResponseBodyKind::Own(body) => body.size_hint().lower(),
            ResponseBodyKind::Unbuffered => 0,
            ResponseBodyKind::Shared(body) => body.size_hint().lower(),
        }
    }
}

impl ServerConnection {
    /// Sends `request` and waits for the head of the response.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn send<B: Into<Segments>>(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<ServerResponseBody>, ConnectionError>> + use<'_, B>
    {
        let request = request.map(Into::into);
        // No `async fn`: its future would hold the request, and each future around it would be larger by the same size
        // and be copied with it.
        match self {
            Self::Own(own) => {
                let sent = own.send(request);
                Either::Left(async move {
                    let response = sent.await?;
                    Ok(response.map(|body| ServerResponseBody::new(ResponseBodyKind::Own(body))))
                })
            }
            other => Either::Right(Box::pin(other.send_boxed(request))),
        }
    }

    /// Sends a request on a connection that is not [`Self::Own`].
    async fn send_boxed(
        &mut self,
        request: Request<Segments>,
    ) -> Result<Response<ServerResponseBody>, ConnectionError> {
        match self {
            Self::Own(own) => {
                let response = own.send(request).await?;
                Ok(response.map(|body| ServerResponseBody::new(ResponseBodyKind::Own(body))))
            }
            Self::Unbuffered(own) => {
                let response = own.send(request).await?;
                Ok(response.map(|()| ServerResponseBody::new(ResponseBodyKind::Unbuffered)))
            }
            Self::Shared(seat) => {
                let response = seat.send(multiplexed(request)?).await?;
                Ok(response.map(|body| ServerResponseBody::new(ResponseBodyKind::Shared(body))))
            }
        }
    }

    /// The next frame of a response body. A server whose next frame is always ready does not block the thread:
    /// other tasks run in between, and a timeout around this call takes effect. Cancel-safe.
    pub async fn frame(
        &mut self,
        answer: &mut ServerResponseBody,
    ) -> Option<Result<Frame<Bytes>, ConnectionError>> {
        let ServerResponseBody { body, fair } = answer;
        fair.turn().await;
        let frame = poll_fn(|cx| {
            match self {
                Self::Own(own) => drive(&mut own.connection, &mut own.closed, cx),
                Self::Unbuffered(own) => {
                    let data = own.poll_data(cx).map_ok(Frame::data);
                    return data.map_err(ConnectionError::from);
                }
                Self::Shared(_) => {}
            }
            match body {
                ResponseBodyKind::Own(body) => {
                    let frame = Pin::new(body).poll_frame(cx);
                    frame.map(|frame| frame.map(|frame| frame.map_err(ConnectionError::from)))
                }
                ResponseBodyKind::Shared(body) => {
                    let frame = Pin::new(body).poll_frame(cx);
                    frame.map(|frame| frame.map(|frame| frame.map_err(broken)))
                }
                // It is the body of another connection.
                ResponseBodyKind::Unbuffered => Poll::Ready(None),
            }
        });
        let frame = frame.await;
        if let Some(Ok(frame)) = &frame {
            fair.took(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
    }

    /// Whether the connection can take another request; called when it is returned to the pool and when it is taken
    /// from it. A place on a shared connection serves a single request, and so does a connection without buffers.
    pub async fn is_usable(&mut self) -> bool {
        match self {
            Self::Own(own) => own.is_usable().await,
            Self::Unbuffered(_) | Self::Shared(_) => false,
        }
    }

    /// Starts the idle time, after which the connection is no longer used.
    pub fn rest(&mut self) {
        if let Self::Own(own) = self {
            own.idle_since = Instant::now();
        }
    }

    /// The shared connection; `None` for HTTP/1.1.
    #[must_use]
    pub fn shared(&self) -> Option<&SharedHttp2> {
        match self {
            Self::Own(_) | Self::Unbuffered(_) => None,
            Self::Shared(seat) => Some(seat.shared()),
        }
    }
}

impl Http1Connection {
    fn send(
        &mut self,
        request: Request<Segments>,
    ) -> impl Future<Output = Result<Response<Incoming>, ConnectionError>> {
        let Self { sender, connection, received, closed, .. } = self;
        received.store(0, Ordering::Relaxed);
        let mut response = Box::pin(sender.send_request(request));
        poll_fn(move |cx| {
            drive(connection, closed, cx);
            let answer = response.as_mut().poll(cx).map_err(ConnectionError::from);
            if answer.is_pending() && received.load(Ordering::Relaxed) > BEFORE_RESPONSE {
                return Poll::Ready(Err(ConnectionError::Broken(
                    "too many interim responses".into(),
                )));
            }
            answer
        })
    }

    async fn is_usable(&mut self) -> bool {
        let usable = poll_fn(|cx| {
            drive(&mut self.connection, &mut self.closed, cx);
            Poll::Ready(!self.closed && self.sender.is_ready())
        });
        usable.await && self.idle_since.elapsed() < IDLE
    }
}

/// The failure of a response that has begun: the server has processed the request, regardless of the error.
fn broken(error: h2::Error) -> ConnectionError {
    ConnectionError::Broken(error.into())
}

/// The request in the form of HTTP/2, with the host in the URI (RFC 9113, section 8.3.1).
fn multiplexed(request: Request<Segments>) -> Result<Request<Segments>, ConnectionError> {
    let invalid = || ConnectionError::Connect(io::ErrorKind::InvalidInput.into());
    let (mut head, body) = request.into_parts();
    let host = head.headers.remove(HOST).ok_or_else(invalid)?;
    let mut uri = head.uri.into_parts();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority = Some(Authority::try_from(host.as_bytes()).map_err(|_unusable| invalid())?);
    head.uri = Uri::from_parts(uri).map_err(|_unusable| invalid())?;
    head.version = Version::HTTP_2;
    Ok(Request::from_parts(head, body))
}

/// Polls the connection. Its own errors appear in the request or in the body.
fn drive(connection: &mut Pin<Box<Http1Driver>>, closed: &mut bool, cx: &mut Context<'_>) {
    if !*closed && connection.as_mut().poll(cx).is_ready() {
        *closed = true;
    }
}

/// The byte stream to a server.
#[derive(Debug)]
pub enum ServerStream {
    /// The server is reached without TLS.
    Plain(TcpStream),
    /// The server is reached over TLS, and its certificate was verified.
    Tls(Box<TlsStream<TcpStream>>),
}

impl ServerStream {
    /// Whether HTTP/2 was negotiated.
    fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(http2::ALPN),
        }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The byte stream of an HTTP/1.1 connection, which counts what it receives.
#[derive(Debug)]
struct CountedStream {
    stream: ServerStream,
    received: Arc<AtomicUsize>,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, received } = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(stream).poll_read(cx, buffer);
        received.fetch_add(buffer.filled().len() - before, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for CountedStream {
    forward_writes!(stream);

    forward_flush_and_shutdown!(stream);
}

#[cfg(test)]
mod tests {
    use super::{ConnectTarget, ConnectionError, NameResolver};
    use crate::net::egress::Egress;
    use std::net::{SocketAddr, TcpListener};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    #[test]
    fn a_name_that_is_turned_elsewhere_between_two_lookups_leads_nowhere_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let inside: SocketAddr = "169.254.169.254:80".parse().unwrap();
        let other: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let answers = [vec![here], vec![inside], vec![here, other], vec![here]];
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        let egress = Egress::new(vec!["loopback".parse().unwrap()]);
        let uri = "http://mcp.example/mcp".parse().unwrap();
        let mut target = ConnectTarget::new(&uri, egress, None, Duration::from_secs(5)).unwrap();
        target.lookup = NameResolver::Told(Arc::clone(&answers));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connect = || runtime.block_on(target.connect());
        assert!(connect().is_ok());
        // One lookup for each connection: the second answer was not requested.
        assert_eq!(answers.lock().unwrap().len(), 3);
        for refused in [inside, other] {
            match connect() {
                Err(ConnectionError::Egress { host, address }) => {
                    assert_eq!((&*host, address), ("mcp.example", refused.ip()));
                }
                wrong => panic!("{wrong:?}"),
            }
        }
        assert!(connect().is_ok());
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_ok() && listener.accept().is_ok());
        assert!(listener.accept().is_err());
    }
}
