//! Demultiplexes the messages of an upstream server on a connection that serves more than one request.
//!
//! A response goes to the request with its id. An elicitation or sampling request, or a log message, that names the
//! progress token of a call goes to that call. A message that names no request goes to a call only where it is
//! certain which call is meant: see [`ConnectionScope`]. A server's request that belongs to no single call is refused.
//! Progress goes to the request whose token it names; without a token it goes to the only request that wants
//! progress, if there is exactly one, and otherwise to none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use json::{self, Fragment, Value};
use policy_core::subject::name::ServerName;
use tokio::sync::{broadcast, mpsc};

use super::request::AcceptedMessages;
use crate::base::intake::{ResponseAccount, ResponseAccounts};
use crate::base::share::{Share, ShareError, Shares};
use crate::mcp::protocol::{meta, method};
use crate::mcp::wire::{Id, Message, Notification, Request, Response, ResponseOutcome};
use crate::metrics::ServerMetrics;

/// Capacity in messages of the queue of one request. The last place is reserved for its response; of progress, the
/// latest is kept.
const REQUEST_QUEUE: usize = 64;
/// Capacity in messages of the queue of one listener; a slower listener misses the oldest.
const LISTENER_QUEUE: usize = 256;
/// Messages up to this many bytes do not count against the budget of the connection. Every byte counts against the
/// budget of the caller: see [`Backlog`].
const UNCOUNTED_BYTES: usize = 16 * 1024;
/// Overhead in bytes of a queued message, beside its text and the index over its values.
const OVERHEAD: usize = 256;
/// Budgets in bytes for queued messages of one connection, without responses, and for those of one request or of all
/// listeners together. A single longer message is accepted.
const BYTES: usize = 16 * 1024 * 1024;
const BYTES_OF_ONE: usize = 4 * 1024 * 1024;

/// The number of abandoned requests whose responses may still arrive; the oldest are forgotten first.
const GIVEN_UP: usize = 1024;
/// How many times in a row a response is held back for progress on the session's stream if none arrives.
const FRUITLESS: u32 = 4;

/// The clients that a connection serves, which decides how to treat a message that names no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionScope {
    /// All callers: a message without a name could be for any of them, so it is delivered to none.
    Everybody,
    /// One caller, without distinguishable sessions. Several people may use one credential, so a message without a
    /// name is delivered to a call only if that call is the only one.
    Caller,
    /// The session of one legacy client. The protocol delivers messages to that client for any of its calls, so the
    /// latest call carries them.
    Session,
}

impl ConnectionScope {
    /// The reason why a request that belongs to no single call is refused, and what would allow it.
    pub(super) const fn refuses(self) -> &'static str {
        match self {
            Self::Everybody => {
                "server requests are not possible on a process or connection that callers share; set `sharing: \
                 perSession` in the configuration of the gateway"
            }
            Self::Caller => {
                "the server request cannot be attributed to a call whose client supports it; include the progress \
                 token of the call"
            }
            Self::Session => "no call is under way whose client can be asked",
        }
    }
}

/// Distributes the messages of one connection to the requests that wait on it and to its listeners.
#[derive(Debug)]
pub(super) struct Demux {
    serves: ConnectionScope,
    limit: usize,
    waiting: Mutex<BTreeMap<i64, PendingRequest>>,
    /// Requests that were given up before they were answered. A late response is no fault: a program that starts
    /// slowly answers its first request after the gateway stopped waiting.
    given_up: Mutex<BTreeSet<i64>>,
    /// Sends notifications that belong to no request to the listeners.
    heard: broadcast::Sender<Arc<QueuedNotification>>,
    /// Budget of bytes for long queued messages, without responses.
    queued: Arc<Shares<Recipient>>,
    /// The queued messages of the listeners.
    overheard: Arc<Backlog>,
    /// The name of the server, and the memory budget for responses and queued messages of its callers.
    server: Arc<str>,
    answers: Arc<ResponseAccounts>,
    /// The metrics of the server.
    counts: Arc<ServerMetrics>,
    /// The stream of the session is read.
    read: AtomicBool,
    /// How many times in a row a response was held back for progress and none arrived on the stream.
    fruitless: AtomicU32,
}

/// A request that waits for its response.
#[derive(Clone, Debug)]
struct PendingRequest {
    id: i64,
    messages: mpsc::Sender<Queued>,
    /// The progress that is queued.
    progress: Arc<Mutex<QueuedProgress>>,
    /// The kinds of messages that the client of the request accepts.
    takes: AcceptedMessages,
    /// The id of the caller.
    caller: Option<Arc<str>>,
    /// The budget of its queued messages, without the response.
    backlog: Arc<Backlog>,
    /// All of it was written, so the server may be working on it.
    is_sent: bool,
}

/// The queued messages of one recipient, without the response. All their bytes count against the share of the caller,
/// apart from the first few that [`ResponseAccounts`] do not count.
#[derive(Debug)]
struct Backlog(Mutex<BacklogState>);

/// The content of a [`Backlog`]: bytes that are queued, and their reservation.
#[derive(Debug)]
struct BacklogState {
    bytes: usize,
    received: ResponseAccount,
}

impl Backlog {
    fn new(received: ResponseAccount) -> Arc<Self> {
        Arc::new(Self(Mutex::new(BacklogState { bytes: 0, received })))
    }

    fn unread(&self) -> MutexGuard<'_, BacklogState> {
        // No operation leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves room for another message of `bytes`.
    fn add(self: &Arc<Self>, bytes: usize) -> Result<BacklogEntry, ShareError> {
        let mut unread = self.unread();
        let all = unread.bytes.saturating_add(bytes);
        unread.received.reserve(all)?;
        unread.bytes = all;
        drop(unread);
        Ok(BacklogEntry { backlog: Arc::clone(self), bytes })
    }
}

/// One message of a [`Backlog`], whose room is released on drop.
#[derive(Debug)]
struct BacklogEntry {
    backlog: Arc<Backlog>,
    bytes: usize,
}

impl Drop for BacklogEntry {
    fn drop(&mut self) {
        let mut unread = self.backlog.unread();
        let left = unread.bytes.saturating_sub(self.bytes);
        unread.bytes = left;
        unread.received.shrink(left);
    }
}

/// The recipient of queued messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Recipient {
    /// The request with this id.
    Request(i64),
    /// The listeners for messages that belong to no request.
    Listeners,
}

/// The reserved room of a queued message.
#[derive(Debug)]
struct QueueReservation {
    /// Room on the connection; `None` for a message too short to be counted there.
    _of_connection: Option<Share<Recipient>>,
    /// Room in the share of the caller.
    _of_caller: BacklogEntry,
}

/// Queued progress of one request, the oldest first. The queue of the request holds at least as many
/// [`Queued::Progress`].
type QueuedProgress = VecDeque<(Notification, QueueReservation)>;

/// An entry in the queue of one request.
#[derive(Debug)]
enum Queued {
    /// A message before the response.
    Interim(Message, QueueReservation),
    /// Stands for the oldest queued progress, if any is left: some may have been dropped for later progress.
    Progress,
    /// The response, and the part of its caller's share that it takes.
    Response(Response, Option<ResponseAccount>),
    /// The response was dropped because there was no room for it.
    NoRoom(ShareError),
}

/// A notification for the listeners.
#[derive(Debug)]
pub(super) struct QueuedNotification {
    /// The notification to be delivered.
    pub(super) notification: Arc<Notification>,
    /// Released when every listener has received it.
    _room: QueueReservation,
}

/// The request that a progress notification names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressTarget {
    /// The request with this token, which is its JSON-RPC id.
    Request(i64),
    /// None: it has no token.
    Nothing,
    /// A token that the gateway never issues.
    UnknownToken,
}

impl ProgressTarget {
    /// Reads the token of a progress notification.
    pub(super) fn of(told: &Notification) -> Self {
        let token =
            told.params.as_ref().and_then(|params| params.value().get(meta::PROGRESS_TOKEN));
        let Some(token) = token.filter(|token| token.kind() != json::JsonKind::Null) else {
            return Self::Nothing;
        };
        token.as_i64().map_or(Self::UnknownToken, Self::Request)
    }
}

/// The registration of one request that waits at a [`Demux`].
#[derive(Debug)]
pub(super) struct RequestInbox {
    demux: Arc<Demux>,
    id: i64,
    messages: mpsc::Receiver<Queued>,
    /// The progress that is queued.
    progress: Arc<Mutex<QueuedProgress>>,
    /// The memory budget that the response holds.
    received: Option<ResponseAccount>,
}

impl Demux {
