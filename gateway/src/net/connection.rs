//! A connection to somebody else, or the place of one request on a connection that others share.
//!
//! There is no task behind a connection of HTTP/1.1: the exchange that holds it polls it, so an answer
//! crosses no queue on its way, and dropping it in mid-answer closes it, which a modern server takes for
//! the cancellation it is. Where TLS has agreed on HTTP/2 a connection is driven by a task of its own
//! ([`crate::net::http2::client`]), and dropping a [`Link`] in mid-answer resets its stream.

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
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

use crate::base::fair::Fair;
use crate::base::task::Tasks;
use crate::crypto::x509::Leaf;
use crate::net::egress::{self, Egress};
use crate::net::http2::client::{Seat, Shared, is_unprocessed};
use crate::net::http2::{self, Terms};
use crate::stream::body::Segments;

/// How long an unused connection is kept. Servers close theirs after five seconds and more; one
/// that is about to be closed must not be used for a call that cannot be repeated.
const IDLE: Duration = Duration::from_secs(4);
/// Most bytes of the head of an answer, and of what is read of its body at once: every connection
/// holds one such buffer.
const BUFFER: usize = 16 * 1024;
/// Most bytes of the head of an answer over HTTP/2.
pub const HEAD: u32 = 16 * 1024;

/// Why there is no connection, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No connection.
    #[error("could not connect")]
    Connect(#[source] io::Error),
    /// The name of the server stands for an address connections to it may not go to.
    #[error("`{host}` stands for {address}, and connections to this server may not go there")]
    Egress {
        /// The name, or the address it was given by.
        host: Box<str>,
        /// The address.
        address: IpAddr,
    },
    /// Whoever is there is not who it should be.
    #[error("the server is not who it should be")]
    Identity(#[source] io::Error),
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server has not looked at the request, so it can be sent again.
    #[error("the server did not take the request")]
    Unprocessed(#[source] h2::Error),
}

impl From<hyper::Error> for LinkError {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.into())
    }
}

impl From<h2::Error> for LinkError {
    fn from(error: h2::Error) -> Self {
        if is_unprocessed(&error) { Self::Unprocessed(error) } else { Self::Broken(error.into()) }
    }
}

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct Target {
    host: Box<str>,
    port: u16,
    egress: Egress,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    connect_time: Duration,
    lookup: Lookup,
    /// How HTTP/2 is spoken, where it may be.
    http2: Option<(Terms, Tasks)>,
}

/// Who is asked what a name stands for.
#[derive(Clone, Debug)]
enum Lookup {
    /// The resolver of the machine.
    Machine,
    /// A name server of a test, which says something else each time.
    #[cfg(test)]
    Told(Arc<std::sync::Mutex<std::collections::VecDeque<Vec<SocketAddr>>>>),
}

impl Lookup {
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Machine => Ok(lookup_host((host, port)).await?.take(egress::ADDRESSES).collect()),
            #[cfg(test)]
            Self::Told(answers) => Ok(answers.lock().unwrap().pop_front().unwrap()),
        }
    }
}

impl Target {
    /// The target of `uri`, at addresses that `egress` admits; `tls` is needed when its scheme is `https`.
    ///
    /// # Errors
    /// When the URI has no host that could be connected to.
    pub fn new(
        uri: &Uri,
        egress: Egress,
        tls: Option<Arc<ClientConfig>>,
        connect_time: Duration,
    ) -> Result<Self, LinkError> {
        let invalid = || LinkError::Connect(io::ErrorKind::InvalidInput.into());
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
        let (lookup, http2) = (Lookup::Machine, None);
        Ok(Self { host: host.into(), port, egress, tls, connect_time, lookup, http2 })
    }

    /// The same, and where TLS is spoken the server may choose HTTP/2. Its connections are driven by `tasks`.
    #[must_use]
    pub fn multiplexed(mut self, terms: Terms, tasks: Tasks) -> Self {
        if let Some((config, _)) = &mut self.tls {
            let mut offers = ClientConfig::clone(config);
            offers.alpn_protocols = vec![http2::ALPN.to_vec(), http2::ALPN_OLD.to_vec()];
            *config = Arc::new(offers);
            self.http2 = Some((terms, tasks));
        }
        self
    }

    /// Whether connections are by TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// A new connection.
    ///
    /// # Errors
    /// When there is none to be had in time.
    pub async fn connect(&self) -> Result<Link, LinkError> {
        let connected = timeout(self.connect_time, self.stream()).await;
        let late = |_| LinkError::Connect(io::ErrorKind::TimedOut.into());
        let stream = connected.map_err(late)??;
        if let Some((terms, tasks)) = self.http2.as_ref().filter(|_| stream.is_http2()) {
            let shared = Shared::begin(stream, *terms, IDLE, tasks).await?;
            let closed = || LinkError::Connect(io::ErrorKind::ConnectionAborted.into());
            return Ok(Link::Shared(shared.enter().ok_or_else(closed)?));
        }
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Link::Own(Own {
            sender,
            connection: Box::pin(connection),
            closed: false,
            idle_since: Instant::now(),
        }))
    }

    /// When the certificate ends that is shown for a new connection, once it was verified; `None` where connections are
    /// without TLS.
    ///
    /// # Errors
    /// When there is no connection to be had in time, or the certificate cannot be read.
    pub async fn certificate_end(&self) -> Result<Option<SystemTime>, LinkError> {
        let connected = timeout(self.connect_time, self.stream()).await;
        let late = |_| LinkError::Connect(io::ErrorKind::TimedOut.into());
        let Stream::Tls(stream) = connected.map_err(late)?? else { return Ok(None) };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let leaf = shown.map(|leaf| Leaf::read(leaf)).transpose();
        let leaf = leaf.map_err(|unreadable| LinkError::Identity(io::Error::other(unreadable)))?;
        Ok(leaf.map(|leaf| leaf.ends))
    }

    /// The bytes of a connection, for a protocol that is spoken elsewhere.
    ///
    /// # Errors
    /// When there is no connection.
    pub(crate) async fn stream(&self) -> Result<Stream, LinkError> {
        // Once for a connection: what the name stands for afterwards makes no difference to it.
        let found = self.lookup.addresses(&self.host, self.port).await;
        let addresses = found.map_err(LinkError::Connect)?;
        // One that is out of bounds among others is no accident: none of them is used.
        if let Some(out) = addresses.iter().find(|address| !self.egress.admits(address.ip())) {
            return Err(LinkError::Egress { host: self.host.clone(), address: out.ip() });
        }
        let connect = TcpStream::connect(&*addresses);
        let stream = connect.await.map_err(LinkError::Connect)?;
        stream.set_nodelay(true).map_err(LinkError::Connect)?;
        let Some((config, name)) = &self.tls else { return Ok(Stream::Plain(stream)) };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name.clone(), stream).await;
        Ok(Stream::Tls(Box::new(stream.map_err(refused)?)))
    }
}

/// A certificate that is not believed is something else than a server that is not there.
fn refused(error: io::Error) -> LinkError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => LinkError::Identity(error),
        Some(_) | None => LinkError::Connect(error),
    }
}

/// A connection, or a part in one.
#[derive(Debug)]
pub enum Link {
    /// A connection of HTTP/1.1: one request after the other.
    Own(Own),
    /// The place of one request on a connection of HTTP/2.
    Shared(Seat),
}

/// A connection of HTTP/1.1.
#[derive(Debug)]
pub struct Own {
    sender: SendRequest<Segments>,
    connection: Pin<Box<Connection<TokioIo<Stream>, Segments>>>,
    closed: bool,
    idle_since: Instant,
}

/// The body of an answer, to be read with [`Link::frame`].
#[derive(Debug)]
pub struct Answer {
    body: Body,
    fair: Fair,
}

#[derive(Debug)]
enum Body {
    /// That of a connection of HTTP/1.1.
    Own(Incoming),
    /// That of a stream of HTTP/2.
    Shared(http2::Received),
}

impl Answer {
    const fn new(body: Body) -> Self {
        Self { body, fair: Fair::new() }
    }

    /// Whether all of it has been read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.body {
            Body::Own(body) => body.is_end_stream(),
            Body::Shared(body) => body.is_end_stream(),
        }
    }

    /// How many bytes there are at least.
    #[must_use]
    pub fn expected(&self) -> u64 {
        match &self.body {
            Body::Own(body) => body.size_hint().lower(),
            Body::Shared(body) => body.size_hint().lower(),
        }
    }
}

impl Link {
    /// Sends `request` and waits for the head of the answer.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn send(
        &mut self,
        request: Request<impl Into<Segments>>,
    ) -> Result<Response<Answer>, LinkError> {
        let request = request.map(Into::into);
        match self {
            Self::Own(own) => {
                let response = own.send(request).await?;
                Ok(response.map(|body| Answer::new(Body::Own(body))))
            }
            Self::Shared(seat) => {
                let response = seat.send(multiplexed(request)?).await?;
                Ok(response.map(|body| Answer::new(Body::Shared(body))))
            }
        }
    }

    /// The next part of the body of an answer. A server whose next part is always there does not hold the thread:
    /// other tasks run in between, and a limit of time around this one is seen. May be given up and called again.
    pub async fn frame(&mut self, answer: &mut Answer) -> Option<Result<Frame<Bytes>, LinkError>> {
        let Answer { body, fair } = answer;
        fair.turn().await;
        let frame = poll_fn(|cx| {
            if let Self::Own(own) = self {
                drive(&mut own.connection, &mut own.closed, cx);
            }
            match body {
                Body::Own(body) => {
                    let frame = Pin::new(body).poll_frame(cx);
                    frame.map(|frame| frame.map(|frame| frame.map_err(LinkError::from)))
                }
                Body::Shared(body) => {
                    let frame = Pin::new(body).poll_frame(cx);
                    frame.map(|frame| frame.map(|frame| frame.map_err(broken)))
                }
            }
        });
        let frame = frame.await;
        if let Some(Ok(frame)) = &frame {
            fair.took(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
    }

    /// Whether it can take another request; asked when it comes back and when it is taken again. The place
    /// on a shared connection is that of one request.
    pub async fn is_usable(&mut self) -> bool {
        match self {
            Self::Own(own) => own.is_usable().await,
            Self::Shared(_) => false,
        }
    }

    /// Starts the time after which it is no longer used.
    pub fn rest(&mut self) {
        if let Self::Own(own) = self {
            own.idle_since = Instant::now();
        }
    }

    /// The connection that others may share.
    #[must_use]
    pub fn shared(&self) -> Option<&Shared> {
        match self {
            Self::Own(_) => None,
            Self::Shared(seat) => Some(seat.shared()),
        }
    }
}

impl Own {
    async fn send(&mut self, request: Request<Segments>) -> Result<Response<Incoming>, LinkError> {
        let Self { sender, connection, closed, .. } = self;
        let mut response = pin!(sender.send_request(request));
        let answered = poll_fn(|cx| {
            drive(connection, closed, cx);
            response.as_mut().poll(cx)
        });
        Ok(answered.await?)
    }

    async fn is_usable(&mut self) -> bool {
        let usable = poll_fn(|cx| {
            drive(&mut self.connection, &mut self.closed, cx);
            Poll::Ready(!self.closed && self.sender.is_ready())
        });
        usable.await && self.idle_since.elapsed() < IDLE
    }
}

/// An answer that has begun and broke: the request was looked at, whatever the error says.
fn broken(error: h2::Error) -> LinkError {
    LinkError::Broken(error.into())
}

/// The same request for HTTP/2, which names the host in the URI (RFC 9113, section 8.3.1).
fn multiplexed(request: Request<Segments>) -> Result<Request<Segments>, LinkError> {
    let invalid = || LinkError::Connect(io::ErrorKind::InvalidInput.into());
    let (mut head, body) = request.into_parts();
    let host = head.headers.remove(HOST).ok_or_else(invalid)?;
    let mut uri = head.uri.into_parts();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority = Some(Authority::try_from(host.as_bytes()).map_err(|_unusable| invalid())?);
    head.uri = Uri::from_parts(uri).map_err(|_unusable| invalid())?;
    head.version = Version::HTTP_2;
    Ok(Request::from_parts(head, body))
}

/// Lets the connection read and write. An error of its own shows up in the request or the body.
fn drive(
    connection: &mut Pin<Box<Connection<TokioIo<Stream>, Segments>>>,
    closed: &mut bool,
    cx: &mut Context<'_>,
) {
    if !*closed && connection.as_mut().poll(cx).is_ready() {
        *closed = true;
    }
}

/// Bytes to and from a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Whether HTTP/2 was agreed on.
    fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(http2::ALPN),
        }
    }
}

impl AsyncRead for Stream {
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

impl AsyncWrite for Stream {
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

#[cfg(test)]
mod tests {
    use super::{LinkError, Lookup, Target};
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
        let mut target = Target::new(&uri, egress, None, Duration::from_secs(5)).unwrap();
        target.lookup = Lookup::Told(Arc::clone(&answers));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connect = || runtime.block_on(target.connect());
        assert!(connect().is_ok());
        // One lookup for one connection: the second answer was not asked for.
        assert_eq!(answers.lock().unwrap().len(), 3);
        for refused in [inside, other] {
            match connect() {
                Err(LinkError::Egress { host, address }) => {
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
