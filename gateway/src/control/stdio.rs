//! Serves MCP over standard input and output, for clients that start their servers: in the process that the client
//! has started, or over a socket that such a process is attached to.
//!
//! SPEC 2026-07-28 basic/transports/stdio

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::secret::Secret;
use crate::base::share::Holder;
use crate::base::task::Tasks;
use crate::config::settings::selftest::PATH;
use crate::config::settings::{AuthScheme, RouteSelectionError, chosen};
use crate::edge::admission::{Admission, Peer};
use crate::exchange::Gateway;
use crate::serve::bridge::{Bridge, ClientOutput, OnReload};
use crate::serve::generation::CurrentGeneration;
use crate::stream::body::PIECE;
use crate::stream::budget::StreamBounds;
use crate::stream::queue::{self, ReadProgress, queue};

/// Maximum number of messages that wait to be written.
const WRITE_QUEUE: usize = 64;

/// The reason why a client is not served, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum StdioServerError {
    /// The route is ambiguous or unknown.
    #[error(transparent)]
    Route(#[from] RouteSelectionError),
    /// The key is unknown or revoked.
    #[error(
        "the key in `PORTCULLIS_API_KEY` is not one of `identity.apiKeys`, or it was revoked: the audit log says which; \
         `portcullis keygen` makes one, with the line that admits it"
    )]
    Key,
    /// The client has no key, and anonymous callers are not admitted.
    #[error(
        "this client has no key: set `PORTCULLIS_API_KEY` in its environment, or define `identity.anonymous`"
    )]
    NoKey,
    /// The client is not admitted for another reason.
    #[error("the client is not let in (HTTP status {0}): the audit log says why")]
    Refused(u16),
    /// The messages that wait for the client exceed its room.
    #[error("the client did not read what it was sent")]
    Unread,
}

/// Whether the gateway that serves a client has other clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenancy {
    /// It has none: the process belongs to the client, which may read as slowly as it likes.
    Single,
    /// It has others: a client that does not read is cut off, because it would hold a share of the gateway.
    Multi,
}

/// The connection of one stdio client.
#[derive(Debug)]
pub struct StdioServer {
    live: Arc<CurrentGeneration>,
    /// The tasks of the process, across generations.
    tasks: Tasks,
    gateway: Arc<Gateway>,
    bridge: Arc<Bridge>,
    credentials: HeaderMap,
    has_key: bool,
    messages: queue::EventReceiver,
}

impl StdioServer {
    /// Opens a connection for the route `path`, or for the only route. The client authenticates with the API key
    /// `key`, or is anonymous, and is admitted or refused before any input is read. `tenancy` says whether the
    /// gateway has other clients.
    ///
    /// # Errors
    /// If there is no such route, or the client is not admitted.
    pub async fn open(
        live: Arc<CurrentGeneration>,
        tasks: Tasks,
        path: Option<&str>,
        key: Option<&Secret>,
        tenancy: Tenancy,
    ) -> Result<Self, StdioServerError> {
        let gateway = Arc::clone(&live.now().gateway);
        let known =
            gateway.routes.keys().map(|path| &**path).filter(|path| !path.starts_with(PATH));
        let path = chosen(path, known)?;
        let path = path.parse::<Uri>().map_err(|_odd| {
            StdioServerError::Route(RouteSelectionError {
                asked: Some(path.into()),
                known: Vec::new(),
            })
        })?;
        let mut credentials = HeaderMap::new();
        if let Some(key) = key {
            let value = HeaderValue::try_from(format!("Bearer {}", key.expose()));
            let value = value.map_err(|_odd| StdioServerError::Key)?;
            credentials.insert(AUTHORIZATION, value);
        }
        let scheme = if key.is_some() { AuthScheme::ApiKey } else { AuthScheme::Anonymous };
        let admission = Arc::new(Admission::plain("stdio".into(), vec![scheme]));
        let nowhere = Peer::at(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let room = gateway.session_states.room(&Holder::network(nowhere.address.ip()));
        let (queue, messages) = queue(StreamBounds { events: WRITE_QUEUE, ..room });
        let patience = match tenancy {
            Tenancy::Single => None,
            Tenancy::Multi => Some(gateway.limits.write_timeout),
        };
        let on_reload = OnReload::Continues;
        let out = ClientOutput { queue, write: |message| message, patience, on_reload };
        let bridge = Bridge::new(Arc::clone(&gateway), admission, nowhere, path, out);
        let has_key = key.is_some();
        if let Err(status) = bridge.admitted(&credentials).await {
            return Err(refused(status, has_key));
        }
        Ok(Self { live, tasks, gateway, bridge, credentials, has_key, messages })
    }

    /// Serves the client until it closes its end, or the gateway stops. `output` is closed at the end, even if the
    /// client does not read.
    ///
    /// # Errors
    /// If its credential is refused later, which the client is told, or if it is cut off because it does not read.
    pub async fn serve(
        mut self,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), StdioServerError> {
        let (written, mut all_written) = mpsc::channel::<()>(1);
        let messages = self.messages;
        let over = CancellationToken::new();
        let _ends_writing = over.clone().drop_guard();
        self.tasks.spawn(async move {
            tokio::select! {
                () = write(messages, output) => {}
                () = over.cancelled() => {}
            }
            drop(written);
        });
        let limit = self.gateway.limits.request_body;
        let mut lines = LineReader { input: BufReader::new(input), text: Vec::new(), limit };
        let mut ended = Ok(());
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = self.bridge.has_been_refused() => {
                    ended = Err(refused(StatusCode::UNAUTHORIZED, self.has_key));
                    None
                }
                () = self.bridge.has_been_cut() => {
                    ended = Err(StdioServerError::Unread);
                    None
                }
                () = self.gateway.tasks.stopping() => {
                    if self.tasks.is_retired() {
                        break;
                    }
                    (self.gateway, self.bridge) =
                        moved(&self.live, &self.bridge, &self.credentials);
                    continue;
                }
            };
            let Some(line) = line else { break };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let mut left = self.bridge.take(line.into(), &self.credentials).await;
            while let Some(line) = left.take() {
                if self.tasks.is_retired() {
                    break;
                }
                (self.gateway, self.bridge) = moved(&self.live, &self.bridge, &self.credentials);
                left = self.bridge.take(line, &self.credentials).await;
            }
        }
        self.bridge.end(&self.credentials).await;
        let patience = if matches!(ended, Err(StdioServerError::Unread)) {
            Duration::ZERO
        } else {
            self.gateway.limits.drain_timeout.min(Duration::from_secs(2))
        };
        drop(self.bridge);
        // Legacy-era requests in flight may finish, within a time limit.
        drop(tokio::time::timeout(patience, all_written.recv()).await);
        ended
    }
}

/// Moves the client to the gateway of the generation in force.
fn moved(
    live: &CurrentGeneration,
    bridge: &Bridge,
    credentials: &HeaderMap,
) -> (Arc<Gateway>, Arc<Bridge>) {
    let gateway = Arc::clone(&live.now().gateway);
    let bridge = bridge.moved(Arc::clone(&gateway), credentials);
    (gateway, bridge)
}

/// The error for a client that is not admitted, for its error output.
const fn refused(status: StatusCode, has_key: bool) -> StdioServerError {
    match (status, has_key) {
        (StatusCode::UNAUTHORIZED, true) => StdioServerError::Key,
        (StatusCode::UNAUTHORIZED, false) => StdioServerError::NoKey,
        (status, _) => StdioServerError::Refused(status.as_u16()),
    }
}

async fn write(mut messages: queue::EventReceiver, mut output: impl AsyncWrite + Unpin) {
    while let Some(piece) = messages.piece(PIECE).await {
        let mut text = Vec::with_capacity(piece.len() + 1);
        // A message must not contain a line end; in JSON a space is equivalent.
        text.extend(piece.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }));
        let is_whole = messages.progress() != ReadProgress::Within;
        if is_whole {
            text.push(b'\n');
        }
        if output.write_all(&text).await.is_err() || is_whole && output.flush().await.is_err() {
            return;
        }
    }
}

/// Reads lines of a client. A partial line is kept when the future is dropped.
struct LineReader<R> {
    input: BufReader<R>,
    text: Vec<u8>,
    limit: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Returns the next line; `None` at the end of the input. A line that is too long is consumed and truncated to
    /// one byte above the limit, so that it is refused as too long and the next line is read correctly.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let buffer = self.input.fill_buf().await.ok()?;
            if buffer.is_empty() {
                return (!self.text.is_empty()).then(|| std::mem::take(&mut self.text).into());
            }
            let end = memchr::memchr(b'\n', buffer);
            let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            let room = (self.limit + 1).saturating_sub(self.text.len());
            self.text.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Some(std::mem::take(&mut self.text).into());
            }
        }
    }
}
