//! Demultiplexes the messages of an upstream server on a connection that serves more than one request.
//!
//! A response goes to the request with its id. An elicitation or sampling request, or a log message, that names the
//! progress token of a call goes to that call. A message that names no request goes to a call only where it is
//! certain which call is meant: see [`ConnectionScope`]. A server's request that belongs to no single call is refused.
//! Progress goes to the request whose token it names; without a token it goes to the only request that wants
//! progress, if there is exactly one, and otherwise to none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use json::{self, Fragment, Value};
use policy_core::subject::name::ServerName;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;

use super::fan_out::FanOutPace;
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
    /// Sends notifications that belong to no request to the listeners. Its 8 KiB are allocated with the first of them:
    /// the stream of a client's own session has none.
    heard: OnceLock<broadcast::Sender<Arc<QueuedNotification>>>,
    /// Budget of bytes for long queued messages, without responses; allocated with the first of them.
    queued: OnceLock<Arc<Shares<Recipient>>>,
    /// The queued messages of the listeners.
    overheard: Arc<Backlog>,
    /// How fast the connection is read when its listeners are told something.
    fan_out: FanOutPace,
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
    /// When it was registered.
    begun: Instant,
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
    /// A demultiplexer for at most `limit` pending requests to `server`. Responses, and the queued messages of its
    /// callers, count against `responseMemory`.
    pub(super) fn new(
        serves: ConnectionScope,
        limit: usize,
        server: &ServerName,
        answers: &Arc<ResponseAccounts>,
        counts: &Arc<ServerMetrics>,
    ) -> Arc<Self> {
        let server: Arc<str> = server.as_str().into();
        Arc::new(Self {
            serves,
            limit,
            waiting: Mutex::default(),
            given_up: Mutex::default(),
            heard: OnceLock::new(),
            queued: OnceLock::new(),
            overheard: Backlog::new(answers.begin_for(&server, None)),
            fan_out: FanOutPace::new(),
            server,
            answers: Arc::clone(answers),
            counts: Arc::clone(counts),
            read: AtomicBool::new(false),
            fruitless: AtomicU32::new(0),
        })
    }

    /// The clients that the connection serves.
    pub(super) const fn serves(&self) -> ConnectionScope {
        self.serves
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<i64, PendingRequest>> {
        // No operation leaves the map half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the request `id`, which may belong to a caller; `None` if there are `limit` requests already.
    pub(super) fn wait(
        self: &Arc<Self>,
        id: i64,
        takes: AcceptedMessages,
        caller: Option<&str>,
    ) -> Option<RequestInbox> {
        let (sender, messages) = mpsc::channel(REQUEST_QUEUE);
        let mut waiting = self.waiting();
        if waiting.len() >= self.limit {
            return None;
        }
        let (caller, progress) = (caller.map(Into::into), Arc::<Mutex<QueuedProgress>>::default());
        let backlog = Backlog::new(self.answers.begin_for(&self.server, caller.as_ref()));
        let request = PendingRequest {
            id,
            messages: sender,
            progress: Arc::clone(&progress),
            takes,
            caller,
            backlog,
            is_sent: false,
            begun: Instant::now(),
        };
        waiting.insert(id, request);
        drop(waiting);
        Some(RequestInbox { demux: Arc::clone(self), id, messages, progress, received: None })
    }

    /// Reserves room for a message of `bytes` in both budgets.
    fn room(
        &self,
        recipient: Recipient,
        backlog: &Arc<Backlog>,
        bytes: usize,
    ) -> Result<QueueReservation, ShareError> {
        let queued = || self.queued.get_or_init(|| Shares::new(BYTES, BYTES_OF_ONE));
        let take = || queued().take(&recipient, bytes.min(BYTES_OF_ONE));
        let of_connection = (bytes > UNCOUNTED_BYTES).then(take).transpose()?;
        let of_caller = backlog.add(bytes.saturating_add(OVERHEAD))?;
        Ok(QueueReservation { _of_connection: of_connection, _of_caller: of_caller })
    }

    /// Reserves room in the queue of a request. The last place is for the response, because an interim message may be
    /// lost and a response must not be.
    fn room_at(
        &self,
        request: &PendingRequest,
        params: Option<&Fragment>,
    ) -> Option<QueueReservation> {
        if request.messages.capacity() <= 1 {
            return None;
        }
        self.room(Recipient::Request(request.id), &request.backlog, size(params)).ok()
    }

    /// Queues a notification for a request. Drops and counts it if there is no room.
    fn notify(&self, request: &PendingRequest, told: Notification) {
        match self.room_at(request, told.params.as_ref()) {
            Some(room) => hand(request, Queued::Interim(Message::Notification(told), room)),
            None => self.counts.notification_dropped(),
        }
    }

    /// Queues the response to a request, or a marker if there is no room for it.
    fn respond(&self, request: &PendingRequest, response: Response) {
        let (ResponseOutcome::Result(said) | ResponseOutcome::Error(said)) = &response.outcome;
        let bytes = size(Some(said));
        let keep = |caller| self.answers.keep(&self.server, caller, bytes);
        let queued = match request.caller.as_ref().map(keep).transpose() {
            Ok(received) => Queued::Response(response, received),
            Err(none) => Queued::NoRoom(none),
        };
        hand(request, queued);
    }

    /// Subscribes to the messages from now on that belong to no request.
    pub(super) fn listen(&self) -> broadcast::Receiver<Arc<QueuedNotification>> {
        self.heard.get_or_init(|| broadcast::channel(LISTENER_QUEUE).0).subscribe()
    }

    /// Whether a request waits or a listener is subscribed.
    pub(super) fn is_busy(&self) -> bool {
        let has_listener = || self.heard.get().is_some_and(|heard| heard.receiver_count() > 0);
        !self.waiting().is_empty() || has_listener()
    }

    /// Notes that all of the request `id` was written.
    pub(super) fn sent(&self, id: i64) {
        if let Some(request) = self.waiting().get_mut(&id) {
            request.is_sent = true;
        }
    }

    /// Whether a written request waits for its response. The server may then be working on it, and a program that
    /// does one thing at a time does not read its input meanwhile.
    pub(super) fn is_at_work(&self) -> bool {
        self.waiting().values().any(|request| request.is_sent)
    }

    /// Whether a written request that began before `begun` still waits for its response.
    pub(super) fn is_at_work_since(&self, begun: Instant) -> bool {
        self.waiting().values().any(|request| request.is_sent && request.begun < begun)
    }

    /// Waits until the connection may be read on, after what its listeners were told.
    pub(super) async fn ready(&self) {
        self.fan_out.ready().await;
    }

    /// Delivers a message to the request it belongs to, and returns what is left to do.
    pub(super) fn deliver(&self, message: Message) -> DeliveryOutcome {
        match message {
            Message::Response(response) => {
                let id = match &response.id {
                    Some(Id::Number(id)) => Some(*id),
                    Some(Id::Text(_)) | None => None,
                };
                match id.and_then(|id| self.waiting().remove(&id)) {
                    Some(request) => self.respond(&request, response),
                    None if id.is_some_and(|id| self.given_up().remove(&id)) => {
                        tracing::debug!("the response to an abandoned request was dropped");
                    }
                    None => return DeliveryOutcome::Stray,
                }
                DeliveryOutcome::Done
            }
            Message::Notification(told) if &*told.method == method::PROGRESS => {
                match self.progress(told) {
                    true => DeliveryOutcome::Done,
                    false => DeliveryOutcome::Unclaimed,
                }
            }
            Message::Notification(notification) => {
                self.tell(notification);
                DeliveryOutcome::Done
            }
            Message::Request(request) => match self.question(request) {
                Some(request) => DeliveryOutcome::Refused(request),
                None => DeliveryOutcome::Done,
            },
        }
    }

    fn given_up(&self) -> MutexGuard<'_, BTreeSet<i64>> {
        // No operation leaves the set half changed.
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the stream of the session is read from now on.
    pub(super) fn attended(&self) {
        self.read.store(true, Ordering::Relaxed);
    }

    /// Delivers progress to the request it belongs to. Returns whether there is one and nothing was dropped.
    ///
    /// THREAT: the progress of one person's call must not be disclosed to another. Progress that names a request
    /// which has ended, or is not of this session, is delivered to no request.
    pub(super) fn progress(&self, told: Notification) -> bool {
        let request = match ProgressTarget::of(&told) {
            ProgressTarget::Request(id) => {
                let waiting = self.waiting();
                waiting.get(&id).filter(|request| request.takes.progress).cloned()
            }
            ProgressTarget::Nothing => self.only(),
            ProgressTarget::UnknownToken => None,
        };
        let Some(request) = request else { return false };
        self.fruitless.store(0, Ordering::Relaxed);
        self.report(&request, told)
    }

    /// Queues progress for a request. Without a free place or room in the caller's share, it replaces the oldest
    /// queued progress. Returns whether nothing was dropped.
    fn report(&self, request: &PendingRequest, told: Notification) -> bool {
        let (recipient, bytes) = (Recipient::Request(request.id), size(told.params.as_ref()));
        let room = || self.room(recipient, &request.backlog, bytes).ok();
        let mut reported = reported(&request.progress);
        let free = if request.messages.capacity() > 1 { room() } else { None };
        if let Some(room) = free {
            reported.push_back((told, room));
            let is_queued = request.messages.try_send(Queued::Progress).is_ok();
            if !is_queued {
                reported.pop_back();
            }
            return is_queued;
        }
        // The room of the oldest is released before room for the new one is reserved.
        let has_made_room = reported.pop_front().map(drop).is_some();
        if has_made_room && let Some(room) = room() {
            reported.push_back((told, room));
        }
        false
    }

    /// The only request that wants progress; `None` if there are several, or if several callers share the connection.
    fn only(&self) -> Option<PendingRequest> {
        if self.serves == ConnectionScope::Everybody {
            return None;
        }
        let waiting = self.waiting();
        let mut requests = waiting.values().filter(|request| request.takes.progress);
        let only = requests.next().cloned();
        only.filter(|_| requests.next().is_none())
    }

    /// Delivers a notification other than progress. Those of subscriptions name their request. Log messages name
    /// none, and are delivered to no client where it is unclear whose they are.
    fn tell(&self, notification: Notification) {
        let named = notification.params.as_ref().and_then(|params| {
            let params = params.value();
            let token = params.get(meta::PROGRESS_TOKEN);
            let subscription = || params.get("_meta")?.get(meta::SUBSCRIPTION);
            token.or_else(subscription).and_then(Value::as_i64)
        });
        let request = match (named, &*notification.method) {
            (Some(id), _) => {
                let request = self.waiting().get(&id).cloned();
                let Some(request) = request else { return };
                Some(request)
            }
            (None, method::LOG | method::ELICITED) => {
                match (self.serves, self.call(UnnamedMessage::Notification)) {
                    (ConnectionScope::Session | ConnectionScope::Caller, CallMatch::One(call)) => {
                        Some(call)
                    }
                    (ConnectionScope::Session | ConnectionScope::Caller, CallMatch::None) => None,
                    (ConnectionScope::Everybody, _)
                        if &*notification.method == method::ELICITED =>
                    {
                        None
                    }
                    (_, CallMatch::One(_) | CallMatch::None | CallMatch::Several) => return,
                }
            }
            (None, _) => None,
        };
        let bytes = size(notification.params.as_ref());
        match request {
            Some(request) => self.notify(&request, notification),
            None => match self.room(Recipient::Listeners, &self.overheard, bytes) {
                Ok(room) => {
                    let told =
                        QueuedNotification { notification: Arc::new(notification), _room: room };
                    // An error means that there are no listeners.
                    let sent = self.heard.get().map(|heard| heard.send(Arc::new(told)));
                    self.fan_out.sent(sent.and_then(Result::ok).unwrap_or(0));
                }
                Err(none) => tracing::debug!(%none, "a notification was dropped"),
            },
        }
    }

    /// Delivers a server's request to the call it belongs to. Returns the request if it must be refused.
    ///
    /// THREAT: the answer of one person must not become the result of another person's call.
    fn question(&self, request: Request) -> Option<Request> {
        if self.serves == ConnectionScope::Everybody || &*request.method == method::PING {
            return Some(request);
        }
        let named = request
            .params
            .as_ref()
            .and_then(|params| params.value().get("_meta")?.get(meta::PROGRESS_TOKEN)?.as_i64());
        let named = named.and_then(|id| {
            let waiting = self.waiting();
            waiting.get(&id).filter(|call| call.takes.questions).cloned()
        });
        let asked = match named {
            Some(named) => CallMatch::One(named),
            None => self.call(UnnamedMessage::Request),
        };
        let asked = match asked {
            CallMatch::One(asked) => {
                self.room_at(&asked, request.params.as_ref()).map(|room| (asked, room))
            }
            CallMatch::None | CallMatch::Several => None,
        };
        let Some((asked, room)) = asked else { return Some(request) };
        hand(&asked, Queued::Interim(Message::Request(request), room));
        None
    }

    /// The call to which a message without a name belongs: a request of the server only to one whose client accepts
    /// requests. The gateway's own requests, such as for a list, are no calls.
    fn call(&self, of: UnnamedMessage) -> CallMatch {
        let waiting = self.waiting();
        let mut calls = waiting.values().rev().filter(|request| request.takes.questions);
        match (self.serves, calls.next(), calls.next()) {
            (ConnectionScope::Everybody | ConnectionScope::Caller, Some(_), Some(_)) => {
                CallMatch::Several
            }
            (_, Some(call), _) => CallMatch::One(call.clone()),
            // A log message belongs to a request even if its client accepts no requests.
            (ConnectionScope::Session, None, _) if of == UnnamedMessage::Notification => {
                match waiting.values().next_back() {
                    Some(request) => CallMatch::One(request.clone()),
                    None => CallMatch::None,
                }
            }
            (_, None, _) => CallMatch::None,
        }
    }
}

/// A message of the server that names no request it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnnamedMessage {
    Request,
    Notification,
}

/// What is left to do after a message was delivered.
#[derive(Debug)]
pub(super) enum DeliveryOutcome {
    /// Nothing is left to do: delivered, dropped for lack of room, or for no recipient.
    Done,
    /// Nothing, but progress was dropped: it belongs to no request that wants it, or the queue of its request had no
    /// room.
    Unclaimed,
    /// A server's request that belongs to no single call and must be refused.
    Refused(Request),
    /// A response that belongs to no request.
    Stray,
}

/// The result of the search for the call that a message without a name belongs to.
enum CallMatch {
    One(PendingRequest),
    None,
    Several,
}

/// Memory in bytes of the message of which `part` is a part: its text, and the index over its values.
fn size(part: Option<&Fragment>) -> usize {
    part.map_or(0, |part| part.document().memory())
}

/// Locks the queued progress of a request.
fn reported(progress: &Mutex<QueuedProgress>) -> MutexGuard<'_, QueuedProgress> {
    // No operation leaves the queue half changed.
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Queues an entry without waiting, so a request that does not read its messages loses them.
fn hand(request: &PendingRequest, queued: Queued) {
    if let Err(error) = request.messages.try_send(queued) {
        tracing::debug!(%error, "a message was dropped");
    }
}

impl RequestInbox {
    /// The next message; `None` if there will be none. Cancel-safe.
    ///
    /// # Errors
    /// If there was no room for the response.
    pub(super) async fn next(&mut self) -> Option<Result<Message, ShareError>> {
        loop {
            let queued = self.messages.recv().await?;
            if let Some(message) = self.taken(queued) {
                return Some(message);
            }
        }
    }

    /// The number of queued messages, an upper bound.
    pub(super) fn waiting(&self) -> usize {
        self.messages.len()
    }

    /// The next message if one is queued; `None` also for progress that was dropped for later progress.
    ///
    /// # Errors
    /// If there was no room for the response.
    pub(super) fn try_next(&mut self) -> Option<Result<Message, ShareError>> {
        let queued = self.messages.try_recv().ok()?;
        self.taken(queued)
    }

    /// Takes the message of a queue entry; `None` for progress that was dropped for later progress.
    fn taken(&mut self, queued: Queued) -> Option<Result<Message, ShareError>> {
        match queued {
            Queued::Interim(message, room) => {
                drop(room);
                Some(Ok(message))
            }
            Queued::Progress => {
                let (told, room) = reported(&self.progress).pop_front()?;
                drop(room);
                Some(Ok(Message::Notification(told)))
            }
            Queued::Response(response, received) => {
                self.received = received;
                Some(Ok(Message::Response(response)))
            }
            Queued::NoRoom(none) => Some(Err(none)),
        }
    }

    /// Takes the memory budget of the response, to be kept for as long as its content is used.
    pub(super) const fn received(&mut self) -> Option<ResponseAccount> {
        self.received.take()
    }

    /// Whether progress may still arrive on the stream of the session after the response. False if none arrived there
    /// during the last few calls.
    pub(super) fn may_trail(&self) -> bool {
        let Demux { read, fruitless, .. } = &*self.demux;
        read.load(Ordering::Relaxed) && fruitless.fetch_add(1, Ordering::Relaxed) < FRUITLESS
    }
}

impl Drop for RequestInbox {
    fn drop(&mut self) {
        if self.demux.waiting().remove(&self.id).is_none() {
            return;
        }
        let mut given_up = self.demux.given_up();
        given_up.insert(self.id);
        if given_up.len() > GIVEN_UP {
            given_up.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use bytes::Bytes;
    use json::JsonBounds;
    use policy_core::subject::name::ServerName;

    use super::super::request::AcceptedMessages;
    use super::{
        BYTES_OF_ONE, ConnectionScope, DeliveryOutcome, Demux, Notification, QueueReservation,
        REQUEST_QUEUE, RequestInbox, reported,
    };
    use crate::base::intake::ResponseAccounts;
    use crate::mcp::wire::{self, Message};
    use crate::metrics::Metrics;

    fn message(text: &str) -> Message {
        wire::decode(Bytes::copy_from_slice(text.as_bytes()), &JsonBounds::ANSWER).unwrap()
    }

    fn question(named: Option<i64>) -> Message {
        let meta = named.map(|id| format!(r#""_meta":{{"progressToken":{id}}}"#));
        message(&format!(
            r#"{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{{{}}}}}"#,
            meta.unwrap_or_default()
        ))
    }

    const ALL: AcceptedMessages = AcceptedMessages { questions: true, progress: true };

    const MIB: usize = 1024 * 1024;

    fn demux(serves: ConnectionScope) -> Arc<Demux> {
        desk_with(serves, 32 * MIB)
    }

    /// A demultiplexer of whose responses one caller may hold `each` bytes.
    fn desk_with(serves: ConnectionScope, each: usize) -> Arc<Demux> {
        let answers = Arc::new(ResponseAccounts::new(usize::MAX, each, usize::MAX));
        let counts = Metrics::new(SystemTime::UNIX_EPOCH).server("up");
        Demux::new(serves, 8, &ServerName::parse("up").unwrap(), &answers, &counts)
    }

    fn wait(demux: &Arc<Demux>, id: i64, takes: AcceptedMessages) -> RequestInbox {
        demux.wait(id, takes, Some("ana")).unwrap()
    }

    fn calls(serves: ConnectionScope) -> (Arc<Demux>, RequestInbox, RequestInbox) {
        let demux = demux(serves);
        let (first, second) = (wait(&demux, 1, ALL), wait(&demux, 2, ALL));
        (demux, first, second)
    }

    fn progress(token: &str) -> Message {
        message(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{token}"progress":1}}}}"#
        ))
    }

    fn has(inbox: &mut RequestInbox) -> bool {
        inbox.messages.try_recv().is_ok()
    }

    #[test]
    fn a_question_among_several_calls_of_a_caller_is_refused() {
        let (demux, mut first, mut second) = calls(ConnectionScope::Caller);
        assert!(matches!(demux.deliver(question(None)), DeliveryOutcome::Refused(_)));
        assert!(!has(&mut first) && !has(&mut second));
        // One that names its call is asked there, and one that is left alone is asked.
        assert!(matches!(demux.deliver(question(Some(1))), DeliveryOutcome::Done));
        assert!(has(&mut first) && !has(&mut second));
        drop(first);
        assert!(matches!(demux.deliver(question(None)), DeliveryOutcome::Done));
        assert!(has(&mut second));
    }

    #[test]
    fn a_question_that_names_a_request_without_a_client_is_refused() {
        for serves in [ConnectionScope::Caller, ConnectionScope::Session] {
            let demux = demux(serves);
            // Such as the gateway's own for a list.
            let mut own = wait(&demux, 1, AcceptedMessages::default());
            assert!(matches!(demux.deliver(question(Some(1))), DeliveryOutcome::Refused(_)));
            assert!(!has(&mut own));
        }
    }

    #[test]
    fn a_session_of_one_client_may_be_asked_and_a_shared_connection_never() {
        let (demux, mut first, mut second) = calls(ConnectionScope::Session);
        assert!(matches!(demux.deliver(question(None)), DeliveryOutcome::Done));
        assert!(!has(&mut first) && has(&mut second));
        let (demux, mut first, mut second) = calls(ConnectionScope::Everybody);
        for named in [None, Some(1)] {
            assert!(matches!(demux.deliver(question(named)), DeliveryOutcome::Refused(_)));
        }
        assert!(!has(&mut first) && !has(&mut second));
    }

    #[test]
    fn a_log_line_of_one_call_is_not_told_to_another() {
        let line =
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"a pin"}}"#;
        let (demux, mut first, mut second) = calls(ConnectionScope::Caller);
        assert!(matches!(demux.deliver(message(line)), DeliveryOutcome::Done));
        assert!(!has(&mut first) && !has(&mut second));
        drop(second);
        assert!(matches!(demux.deliver(message(line)), DeliveryOutcome::Done));
        assert!(has(&mut first));
    }

    #[test]
    fn progress_is_of_the_request_it_names_and_without_a_name_of_the_only_one() {
        for serves in
            [ConnectionScope::Session, ConnectionScope::Caller, ConnectionScope::Everybody]
        {
            let (demux, mut first, mut second) = calls(serves);
            let shared = serves == ConnectionScope::Everybody;
            let told =
                |token: &str| matches!(demux.deliver(progress(token)), DeliveryOutcome::Done);
            assert!(told(r#""progressToken":2,"#));
            assert!(has(&mut second) && !has(&mut first));
            // Of several requests it could be, it is of none.
            assert!(!told("") && !told(r#""progressToken":null,"#));
            for stranger in [3.to_string(), "\"2\"".to_owned(), "\"x\"".to_owned(), "{}".to_owned()]
            {
                let stranger = &format!("\"progressToken\":{stranger},");
                assert!(!told(stranger), "{stranger}");
            }
            drop(second);
            assert!(!told(r#""progressToken":2,"#), "what has ended is told nothing");
            // The gateway's own requests want none.
            let mut own = wait(&demux, 4, AcceptedMessages::default());
            assert_eq!(told(""), !shared, "{serves:?}");
            assert_eq!(has(&mut first), !shared, "{serves:?}");
            assert!(!told(r#""progressToken":4,"#) && !has(&mut own));
        }
    }

    fn taken(inbox: &mut RequestInbox) -> usize {
        let next = || (inbox.waiting() > 0).then(|| inbox.try_next());
        std::iter::from_fn(next).flatten().count()
    }

    #[test]
    fn what_waits_for_a_request_is_bounded_in_bytes_and_the_response_still_comes() {
        let (demux, mut first, mut second) = calls(ConnectionScope::Caller);
        let long = |id: i64| {
            let text = "x".repeat(BYTES_OF_ONE / 4);
            progress(&format!(r#""progressToken":{id},"message":"{text}","#))
        };
        for _ in 0..REQUEST_QUEUE {
            drop(demux.deliver(long(1)));
        }
        // Another request has room of its own, and short messages are not counted.
        assert!(matches!(demux.deliver(long(2)), DeliveryOutcome::Done));
        assert!(matches!(demux.deliver(progress(r#""progressToken":1,"#)), DeliveryOutcome::Done));
        drop(demux.deliver(message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
        // Each is a little longer than a quarter of the room.
        assert_eq!((taken(&mut first), taken(&mut second)), (3 + 1 + 1, 1));
        assert!(
            matches!(demux.deliver(long(2)), DeliveryOutcome::Done),
            "what was read makes room"
        );
    }

    #[test]
    fn of_progress_that_waits_the_latest_is_kept_and_the_response_still_comes() {
        let (demux, mut first, _second) = calls(ConnectionScope::Session);
        let said = |n: usize| {
            let token = format!(r#""progressToken":1,"message":"{n}","#);
            matches!(demux.deliver(progress(&token)), DeliveryOutcome::Done)
        };
        let whole = (0..2 * REQUEST_QUEUE).filter(|n| said(*n)).count();
        drop(demux.deliver(message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
        let seen: Vec<_> = std::iter::from_fn(|| first.try_next()).map(Result::unwrap).collect();
        let text = |message: &Message| match message {
            Message::Notification(told) => {
                let said = told.params.as_ref().unwrap().value().get("message").unwrap();
                said.as_str().unwrap().into_owned()
            }
            Message::Response(_) => "the response".to_owned(),
            Message::Request(_) => "a question".to_owned(),
        };
        let kept = (REQUEST_QUEUE + 1..2 * REQUEST_QUEUE).map(|n| n.to_string());
        let kept: Vec<_> = kept.chain(["the response".to_owned()]).collect();
        assert_eq!((whole, seen.iter().map(text).collect()), (REQUEST_QUEUE - 1, kept));
    }

    #[test]
    fn short_messages_that_wait_take_of_the_share_of_their_caller_together() {
        let demux = desk_with(ConnectionScope::Caller, 4 * MIB / 16);
        let (mut first, mut second) = (wait(&demux, 1, ALL), wait(&demux, 2, ALL));
        let other = demux.wait(3, ALL, Some("bob")).unwrap();
        let short = |id: i64, n: usize| {
            let text = format!("{n} {}", "x".repeat(15_000));
            progress(&format!(r#""progressToken":{id},"message":"{text}","#))
        };
        for id in [1, 2, 3] {
            for n in 0..REQUEST_QUEUE {
                drop(demux.deliver(short(id, n)));
            }
        }
        // Four steps of 64 KiB in all, which are four messages each at most; of each caller by itself. The latest stay.
        let text = |(told, _): &(Notification, QueueReservation)| {
            let said = told.params.as_ref().unwrap().value().get("message").unwrap();
            said.as_str().unwrap().split(' ').next().unwrap().to_owned()
        };
        let kept: Vec<_> = reported(&first.progress).iter().map(text).collect();
        let latest: Vec<_> = (REQUEST_QUEUE - 16..REQUEST_QUEUE).map(|n| n.to_string()).collect();
        assert_eq!(kept, latest);
        assert_eq!(taken(&mut first), 16);
        assert!((1..=2).contains(&taken(&mut second)), "only what is not counted");
        assert_eq!(demux.answers.bytes(), 4 * MIB / 16, "what waits for the other caller");
        drop(other);
        assert_eq!(demux.answers.bytes(), 0);
    }

    #[tokio::test]
    async fn a_response_takes_of_the_share_of_its_caller_until_it_is_not_used_any_more() {
        let demux = desk_with(ConnectionScope::Caller, MIB);
        let (mut first, mut second) = (wait(&demux, 1, ALL), wait(&demux, 2, ALL));
        let long = |id: i64| {
            let text = "x".repeat(600 * 1024);
            message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"{text}"}}}}"#))
        };
        for id in [1, 2] {
            assert!(matches!(demux.deliver(long(id)), DeliveryOutcome::Done));
        }
        assert!(matches!(first.next().await, Some(Ok(Message::Response(_)))));
        assert!(matches!(second.next().await, Some(Err(_))));
        let used = first.received();
        drop(first);
        let mut third = wait(&demux, 3, ALL);
        drop(demux.deliver(long(3)));
        assert!(matches!(third.next().await, Some(Err(_))));
        drop(used);
        let mut fourth = wait(&demux, 4, ALL);
        drop(demux.deliver(long(4)));
        assert!(matches!(fourth.next().await, Some(Ok(Message::Response(_)))));
    }

    #[test]
    fn a_late_answer_is_no_stray_one() {
        let (demux, first, second) = calls(ConnectionScope::Everybody);
        drop(first);
        let late = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(matches!(demux.deliver(message(late)), DeliveryOutcome::Done));
        assert!(matches!(demux.deliver(message(late)), DeliveryOutcome::Stray));
        drop(second);
    }
}
