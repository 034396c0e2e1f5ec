//! Who gets what a server says on a connection that serves more than one request.
//!
//! Each answer goes to the one request it belongs to, and so does a question or a log line that names
//! the progress token of a call. What names no request goes to a call where it is clear to whom that
//! is: see [`Serves`]. A question that belongs to no one call is refused. Progress goes to the request whose
//! token it has; without a token to the only request that wants progress, if there is one; and to nobody else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::json::{self, Fragment, Value};
use policy::name::ServerName;
use tokio::sync::{broadcast, mpsc};

use super::request::Takes;
use crate::base::intake::{Intake, Received};
use crate::base::share::{NoShare, Share, Shares};
use crate::mcp::protocol::{meta, method};
use crate::mcp::wire::{Id, Message, Notification, Outcome, Request, Response};
use crate::metrics::OfServer;

/// Messages that wait for one request. The last place is for its response; of progress the latest waits.
const WAITING: usize = 64;
/// Messages that wait for one listener; a slower one misses the oldest.
const HEARD: usize = 256;
/// Bytes of a message that are not counted among those that wait on one connection. Among those of its caller every
/// byte is: see [`Backlog`].
const FREE: usize = 16 * 1024;
/// Bytes that a message takes while it waits, beside its text and the index over its values.
const OVERHEAD: usize = 256;
/// Bytes of messages that wait on one connection, beside responses, and those of one request, or of all listeners
/// together. A longer message waits alone.
const BYTES: usize = 16 * 1024 * 1024;
const BYTES_OF_ONE: usize = 4 * 1024 * 1024;

/// Requests given up whose answers may still come; the oldest are forgotten first.
const GIVEN_UP: usize = 1024;
/// How often in a row an answer is kept back for progress that may follow on the stream of the session, where
/// none does.
const FRUITLESS: u32 = 4;

/// Whom a connection serves. It decides what becomes of a message that names no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serves {
    /// Everybody: nobody could say whom such a message is for, so it is for nobody.
    Everybody,
    /// One caller, without sessions that could be told apart. Several people may stand behind one
    /// credential, so such a message is for a call only while that call is the only one.
    Caller,
    /// The session of one legacy client. The protocol gives it to that client, whichever call it is
    /// about, so the latest call carries it.
    Session,
}

impl Serves {
    /// Why a question that belongs to no one call is refused, and what lets it be asked.
    pub(super) const fn refuses(self) -> &'static str {
        match self {
            Self::Everybody => {
                "callers share this process or connection, so nobody can be asked; it takes `sharing: perSession` in the \
                 configuration of the gateway"
            }
            Self::Caller => {
                "it is not clear which call is meant, or its client cannot be asked; name the call by its progress token"
            }
            Self::Session => "no call is under way whose client can be asked",
        }
    }
}

/// The requests that wait on one connection, and those who listen to it.
#[derive(Debug)]
pub(super) struct Desk {
    serves: Serves,
    limit: usize,
    waiting: Mutex<BTreeMap<i64, Waiting>>,
    /// Requests that were given up before they were answered. A late answer is no sign of a fault: a
    /// program that is slow to start answers the first question after we stopped waiting for it.
    given_up: Mutex<BTreeSet<i64>>,
    /// What belongs to no request.
    heard: broadcast::Sender<Arc<Told>>,
    /// Bytes of long messages that wait, beside responses.
    queued: Arc<Shares<Recipient>>,
    /// What waits for those who listen.
    overheard: Arc<Backlog>,
    /// The name of the server, and what responses to its callers hold, with the messages that wait for them.
    server: Arc<str>,
    answers: Arc<Intake>,
    /// What is counted of the server.
    counts: Arc<OfServer>,
    /// The stream of the session is read.
    read: AtomicBool,
    /// How often in a row progress was waited for and none came on the stream.
    fruitless: AtomicU32,
}

/// A request that waits.
#[derive(Clone, Debug)]
struct Waiting {
    id: i64,
    messages: mpsc::Sender<Queued>,
    /// The progress that waits.
    progress: Arc<Mutex<Reported>>,
    /// What the client behind the request takes.
    takes: Takes,
    /// The id of the caller behind it.
    caller: Option<Arc<str>>,
    /// What of it waits beside the response.
    backlog: Arc<Backlog>,
    /// All of it was written, so the server may be at work on it.
    is_sent: bool,
}

/// The messages that wait for one recipient, beside the response: all their bytes take of the share of its caller, apart
/// from the first few that an [`Intake`] does not count.
#[derive(Debug)]
struct Backlog(Mutex<Unread>);

/// How much a [`Backlog`] is.
#[derive(Debug)]
struct Unread {
    bytes: usize,
    received: Received,
}

impl Backlog {
    fn new(received: Received) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Unread { bytes: 0, received })))
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        // No operation leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for another message of `bytes`.
    fn add(self: &Arc<Self>, bytes: usize) -> Result<Queueing, NoShare> {
        let mut unread = self.unread();
        let all = unread.bytes.saturating_add(bytes);
        unread.received.reserve(all)?;
        unread.bytes = all;
        drop(unread);
        Ok(Queueing { backlog: Arc::clone(self), bytes })
    }
}

/// A message among those of a [`Backlog`]; its room is given back when this is dropped.
#[derive(Debug)]
struct Queueing {
    backlog: Arc<Backlog>,
    bytes: usize,
}

impl Drop for Queueing {
    fn drop(&mut self) {
        let mut unread = self.backlog.unread();
        let left = unread.bytes.saturating_sub(self.bytes);
        unread.bytes = left;
        unread.received.shrink(left);
    }
}

/// For whom messages wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Recipient {
    /// The request with this id.
    Request(i64),
    /// Those who listen to what belongs to no request.
    Listeners,
}

/// Room for a message that waits.
#[derive(Debug)]
struct Room {
    /// On its connection; `None` where it is too short to be counted there.
    _of_connection: Option<Share<Recipient>>,
    /// Of the share of its caller.
    _of_caller: Queueing,
}

/// Progress that waits for one request, the oldest first. At least as many [`Queued::Progress`] wait as there is of it.
type Reported = VecDeque<(Notification, Room)>;

/// What waits for one request.
#[derive(Debug)]
enum Queued {
    /// Something on the way to the response.
    Interim(Message, Room),
    /// The oldest progress that waits, if there is any left: some may have made room for what came later.
    Progress,
    /// The response, and the part of its caller's share that it takes.
    Response(Response, Option<Received>),
    /// There was a response, and no room for it.
    NoRoom(NoShare),
}

/// A notification that waits for listeners.
#[derive(Debug)]
pub(super) struct Told {
    /// The notification.
    pub(super) notification: Arc<Notification>,
    /// Given back when every listener has it.
    _room: Room,
}

/// Which request a progress notification names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// One with this token, which is the id of a request.
    Request(i64),
    /// None: it has no token.
    Nothing,
    /// None of ours: no token of the gateway looks like this.
    Stranger,
}

impl Named {
    /// Which request a progress notification names.
    pub(super) fn of(told: &Notification) -> Self {
        let token =
            told.params.as_ref().and_then(|params| params.value().get(meta::PROGRESS_TOKEN));
        let Some(token) = token.filter(|token| token.kind() != json::Kind::Null) else {
            return Self::Nothing;
        };
        token.as_i64().map_or(Self::Stranger, Self::Request)
    }
}

/// The place of one request.
#[derive(Debug)]
pub(super) struct Ticket {
    desk: Arc<Desk>,
    id: i64,
    messages: mpsc::Receiver<Queued>,
    /// The progress that waits.
    progress: Arc<Mutex<Reported>>,
    /// What the response takes.
    received: Option<Received>,
}

impl Desk {
    /// A desk at which at most `limit` requests to `server` wait. Its responses, and the messages that wait for its
    /// callers, are counted among `answers`.
    pub(super) fn new(
        serves: Serves,
        limit: usize,
        server: &ServerName,
        answers: &Arc<Intake>,
        counts: &Arc<OfServer>,
    ) -> Arc<Self> {
        let server: Arc<str> = server.as_str().into();
        Arc::new(Self {
            serves,
            limit,
            waiting: Mutex::default(),
            given_up: Mutex::default(),
            heard: broadcast::channel(HEARD).0,
            queued: Shares::new(BYTES, BYTES_OF_ONE),
            overheard: Backlog::new(answers.begin_for(&server, None)),
            server,
            answers: Arc::clone(answers),
            counts: Arc::clone(counts),
            read: AtomicBool::new(false),
            fruitless: AtomicU32::new(0),
        })
    }

    /// Whom it serves.
    pub(super) const fn serves(&self) -> Serves {
        self.serves
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<i64, Waiting>> {
        // No operation leaves the map half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the request `id` of a caller, if it is of one; `None` when all are taken.
    pub(super) fn wait(
        self: &Arc<Self>,
        id: i64,
        takes: Takes,
        caller: Option<&str>,
    ) -> Option<Ticket> {
        let (sender, messages) = mpsc::channel(WAITING);
        let mut waiting = self.waiting();
        if waiting.len() >= self.limit {
            return None;
        }
        let (caller, progress) = (caller.map(Into::into), Arc::<Mutex<Reported>>::default());
        let backlog = Backlog::new(self.answers.begin_for(&self.server, caller.as_ref()));
        let request = Waiting {
            id,
            messages: sender,
            progress: Arc::clone(&progress),
            takes,
            caller,
            backlog,
            is_sent: false,
        };
        waiting.insert(id, request);
        drop(waiting);
        Some(Ticket { desk: Arc::clone(self), id, messages, progress, received: None })
    }

    /// Room for a message of `bytes` that is to wait.
    fn room(
        &self,
        recipient: Recipient,
        backlog: &Arc<Backlog>,
        bytes: usize,
    ) -> Result<Room, NoShare> {
        let take = || self.queued.take(&recipient, bytes.min(BYTES_OF_ONE));
        let of_connection = (bytes > FREE).then(take).transpose()?;
        let of_caller = backlog.add(bytes.saturating_add(OVERHEAD))?;
        Ok(Room { _of_connection: of_connection, _of_caller: of_caller })
    }

    /// Room among the messages that wait for a request. The last place is for the response: what is said on the way may
    /// be lost, an answer may not.
    fn room_at(&self, request: &Waiting, params: Option<&Fragment>) -> Option<Room> {
        if request.messages.capacity() <= 1 {
            return None;
        }
        self.room(Recipient::Request(request.id), &request.backlog, size(params)).ok()
    }

    /// Gives a notification to a request, or drops and counts it where there is no room for it.
    fn notify(&self, request: &Waiting, told: Notification) {
        match self.room_at(request, told.params.as_ref()) {
            Some(room) => hand(request, Queued::Interim(Message::Notification(told), room)),
            None => self.counts.notification_dropped(),
        }
    }

    /// The response to a request, if there is room for it.
    fn respond(&self, request: &Waiting, response: Response) {
        let (Outcome::Result(said) | Outcome::Error(said)) = &response.outcome;
        let bytes = size(Some(said));
        let keep = |caller| self.answers.keep(&self.server, caller, bytes);
        let queued = match request.caller.as_ref().map(keep).transpose() {
            Ok(received) => Queued::Response(response, received),
            Err(none) => Queued::NoRoom(none),
        };
        hand(request, queued);
    }

    /// What comes from now on and belongs to no request.
    pub(super) fn listen(&self) -> broadcast::Receiver<Arc<Told>> {
        self.heard.subscribe()
    }

    /// Whether somebody waits or listens here.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting().is_empty() || self.heard.receiver_count() > 0
    }

    /// Notes that all of the request `id` was written.
    pub(super) fn sent(&self, id: i64) {
        if let Some(request) = self.waiting().get_mut(&id) {
            request.is_sent = true;
        }
    }

    /// Whether somebody waits for the answer to a request that was written: then the server may be at work, and a
    /// program that does one thing at a time does not read meanwhile.
    pub(super) fn is_at_work(&self) -> bool {
        self.waiting().values().any(|request| request.is_sent)
    }

    /// Gives a message to the request it belongs to, and says what is left to do.
    pub(super) fn deliver(&self, message: Message) -> Delivered {
        match message {
            Message::Response(response) => {
                let id = match &response.id {
                    Some(Id::Number(id)) => Some(*id),
                    Some(Id::Text(_)) | None => None,
                };
                match id.and_then(|id| self.waiting().remove(&id)) {
                    Some(request) => self.respond(&request, response),
                    None if id.is_some_and(|id| self.given_up().remove(&id)) => {
                        tracing::debug!("the answer to a request that was given up was dropped");
                    }
                    None => return Delivered::Stray,
                }
                Delivered::Done
            }
            Message::Notification(told) if &*told.method == method::PROGRESS => {
                match self.progress(told) {
                    true => Delivered::Done,
                    false => Delivered::Unclaimed,
                }
            }
            Message::Notification(notification) => {
                self.tell(notification);
                Delivered::Done
            }
            Message::Request(request) => match self.question(request) {
                Some(request) => Delivered::Refused(request),
                None => Delivered::Done,
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

    /// Gives a progress notification to the request it belongs to; whether there is one, and nothing was dropped for it.
    ///
    /// THREAT: how far the call of one person is must not be told to another. One that names a request which
    /// is over, or is not of this session, is nobody's.
    pub(super) fn progress(&self, told: Notification) -> bool {
        let request = match Named::of(&told) {
            Named::Request(id) => {
                let waiting = self.waiting();
                waiting.get(&id).filter(|request| request.takes.progress).cloned()
            }
            Named::Nothing => self.only(),
            Named::Stranger => None,
        };
        let Some(request) = request else { return false };
        self.fruitless.store(0, Ordering::Relaxed);
        self.report(&request, told)
    }

    /// Puts progress among what waits for a request: in the place of the oldest progress there, where no other is free
    /// or the caller has no share left. Whether nothing was dropped.
    fn report(&self, request: &Waiting, told: Notification) -> bool {
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
        // Its room is given back before room is taken for what came later.
        let has_made_room = reported.pop_front().map(drop).is_some();
        if has_made_room && let Some(room) = room() {
            reported.push_back((told, room));
        }
        false
    }

    /// The only request that wants progress. Of those of several callers none is.
    fn only(&self) -> Option<Waiting> {
        if self.serves == Serves::Everybody {
            return None;
        }
        let waiting = self.waiting();
        let mut requests = waiting.values().filter(|request| request.takes.progress);
        let only = requests.next().cloned();
        only.filter(|_| requests.next().is_none())
    }

    /// Subscriptions name their request. Log lines name none: where it is not clear
    /// whose they are, nobody gets them.
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
            (None, method::LOG | method::ELICITED) => match (self.serves, self.call(false)) {
                (Serves::Session | Serves::Caller, Found::One(call)) => Some(call),
                (Serves::Session | Serves::Caller, Found::None) => None,
                (Serves::Everybody, _) if &*notification.method == method::ELICITED => None,
                (_, Found::One(_) | Found::None | Found::Several) => return,
            },
            (None, _) => None,
        };
        let bytes = size(notification.params.as_ref());
        match request {
            Some(request) => self.notify(&request, notification),
            None => match self.room(Recipient::Listeners, &self.overheard, bytes) {
                Ok(room) => {
                    let told = Told { notification: Arc::new(notification), _room: room };
                    // With nobody listening there is nobody to tell.
                    drop(self.heard.send(Arc::new(told)));
                }
                Err(none) => tracing::debug!(%none, "a notification was not taken"),
            },
        }
    }

    /// A question goes to the call it belongs to, or it is given back and refused.
    ///
    /// THREAT: the answer of one person must not become the result of another's call.
    fn question(&self, request: Request) -> Option<Request> {
        if self.serves == Serves::Everybody || &*request.method == method::PING {
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
            Some(named) => Found::One(named),
            None => self.call(true),
        };
        let asked = match asked {
            Found::One(asked) => {
                self.room_at(&asked, request.params.as_ref()).map(|room| (asked, room))
            }
            Found::None | Found::Several => None,
        };
        let Some((asked, room)) = asked else { return Some(request) };
        hand(&asked, Queued::Interim(Message::Request(request), room));
        None
    }

    /// The call that a message without a name is for: of those whose client may be asked something, if
    /// it is a question. The gateway's own requests, such as for a list, are no calls.
    fn call(&self, asks: bool) -> Found {
        let waiting = self.waiting();
        let mut calls = waiting.values().rev().filter(|request| request.takes.questions);
        match (self.serves, calls.next(), calls.next()) {
            (Serves::Everybody | Serves::Caller, Some(_), Some(_)) => Found::Several,
            (_, Some(call), _) => Found::One(call.clone()),
            // A log line of a request that cannot be asked anything is still that request's.
            (Serves::Session, None, _) if !asks => match waiting.values().next_back() {
                Some(request) => Found::One(request.clone()),
                None => Found::None,
            },
            (_, None, _) => Found::None,
        }
    }
}

/// What is left to do with a message.
#[derive(Debug)]
pub(super) enum Delivered {
    /// Nothing: it was given to the request it belongs to, or nobody is to have it.
    Done,
    /// Nothing: it was progress that belongs to no request that wants it, or there was no room for all progress of its
    /// request, and some was dropped.
    Unclaimed,
    /// A question that belongs to no one call: the server is told that it cannot be asked.
    Refused(Request),
    /// A response to nothing that was asked.
    Stray,
}

/// Which call a message without a name is for.
enum Found {
    One(Waiting),
    None,
    Several,
}

/// Bytes that the message takes that something was read from: its text, and the index over its values.
fn size(part: Option<&Fragment>) -> usize {
    part.map_or(0, |part| part.document().memory())
}

/// The progress that waits for a request.
fn reported(progress: &Mutex<Reported>) -> MutexGuard<'_, Reported> {
    // No operation leaves the queue half changed.
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that does not read what it asked for is given up rather than waited for.
fn hand(request: &Waiting, queued: Queued) {
    if let Err(error) = request.messages.try_send(queued) {
        tracing::debug!(%error, "a message was not taken");
    }
}

impl Ticket {
    /// The next message; `None` when there can be none any more. May be given up and called again.
    ///
    /// # Errors
    /// When there is no room for the response.
    pub(super) async fn next(&mut self) -> Option<Result<Message, NoShare>> {
        loop {
            let queued = self.messages.recv().await?;
            if let Some(message) = self.taken(queued) {
                return Some(message);
            }
        }
    }

    /// How many messages wait now, at most.
    pub(super) fn waiting(&self) -> usize {
        self.messages.len()
    }

    /// The next message, if one waits; `None` also in the place of progress that has made room for later progress.
    ///
    /// # Errors
    /// When there is no room for the response.
    pub(super) fn try_next(&mut self) -> Option<Result<Message, NoShare>> {
        let queued = self.messages.try_recv().ok()?;
        self.taken(queued)
    }

    /// The message that has waited; `None` where it was progress that has made room for later progress.
    fn taken(&mut self, queued: Queued) -> Option<Result<Message, NoShare>> {
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

    /// What of the response is in memory, to be kept for as long as it is used.
    pub(super) const fn received(&mut self) -> Option<Received> {
        self.received.take()
    }

    /// Whether progress may still be on its way on the stream of the session when the answer has come. Not
    /// where none has come there in the last calls.
    pub(super) fn may_trail(&self) -> bool {
        let Desk { read, fruitless, .. } = &*self.desk;
        read.load(Ordering::Relaxed) && fruitless.fetch_add(1, Ordering::Relaxed) < FRUITLESS
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.desk.waiting().remove(&self.id).is_none() {
            return;
        }
        let mut given_up = self.desk.given_up();
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
    use policy::json::Bounds;
    use policy::name::ServerName;

    use super::super::request::Takes;
    use super::{
        BYTES_OF_ONE, Delivered, Desk, Notification, Room, Serves, Ticket, WAITING, reported,
    };
    use crate::base::intake::Intake;
    use crate::mcp::wire::{self, Message};
    use crate::metrics::Metrics;

    fn message(text: &str) -> Message {
        wire::decode(Bytes::copy_from_slice(text.as_bytes()), &Bounds::ANSWER).unwrap()
    }

    fn question(named: Option<i64>) -> Message {
        let meta = named.map(|id| format!(r#""_meta":{{"progressToken":{id}}}"#));
        message(&format!(
            r#"{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{{{}}}}}"#,
            meta.unwrap_or_default()
        ))
    }

    const ALL: Takes = Takes { questions: true, progress: true };

    const MIB: usize = 1024 * 1024;

    fn desk(serves: Serves) -> Arc<Desk> {
        desk_with(serves, 32 * MIB)
    }

    /// A desk of whose answers one caller may have `each` bytes.
    fn desk_with(serves: Serves, each: usize) -> Arc<Desk> {
        let answers = Arc::new(Intake::new(usize::MAX, each, usize::MAX));
        let counts = Metrics::new(SystemTime::UNIX_EPOCH).server("up");
        Desk::new(serves, 8, &ServerName::parse("up").unwrap(), &answers, &counts)
    }

    fn wait(desk: &Arc<Desk>, id: i64, takes: Takes) -> Ticket {
        desk.wait(id, takes, Some("ana")).unwrap()
    }

    fn calls(serves: Serves) -> (Arc<Desk>, Ticket, Ticket) {
        let desk = desk(serves);
        let (first, second) = (wait(&desk, 1, ALL), wait(&desk, 2, ALL));
        (desk, first, second)
    }

    fn progress(token: &str) -> Message {
        message(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{token}"progress":1}}}}"#
        ))
    }

    fn has(ticket: &mut Ticket) -> bool {
        ticket.messages.try_recv().is_ok()
    }

    #[test]
    fn a_question_among_several_calls_of_a_caller_is_refused() {
        let (desk, mut first, mut second) = calls(Serves::Caller);
        assert!(matches!(desk.deliver(question(None)), Delivered::Refused(_)));
        assert!(!has(&mut first) && !has(&mut second));
        // One that names its call is asked there, and one that is left alone is asked.
        assert!(matches!(desk.deliver(question(Some(1))), Delivered::Done));
        assert!(has(&mut first) && !has(&mut second));
        drop(first);
        assert!(matches!(desk.deliver(question(None)), Delivered::Done));
        assert!(has(&mut second));
    }

    #[test]
    fn a_question_that_names_a_request_without_a_client_is_refused() {
        for serves in [Serves::Caller, Serves::Session] {
            let desk = desk(serves);
            // Such as the gateway's own for a list.
            let mut own = wait(&desk, 1, Takes::default());
            assert!(matches!(desk.deliver(question(Some(1))), Delivered::Refused(_)));
            assert!(!has(&mut own));
        }
    }

    #[test]
    fn a_session_of_one_client_may_be_asked_and_a_shared_connection_never() {
        let (desk, mut first, mut second) = calls(Serves::Session);
        assert!(matches!(desk.deliver(question(None)), Delivered::Done));
        assert!(!has(&mut first) && has(&mut second));
        let (desk, mut first, mut second) = calls(Serves::Everybody);
        for named in [None, Some(1)] {
            assert!(matches!(desk.deliver(question(named)), Delivered::Refused(_)));
        }
        assert!(!has(&mut first) && !has(&mut second));
    }

    #[test]
    fn a_log_line_of_one_call_is_not_told_to_another() {
        let line =
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"a pin"}}"#;
        let (desk, mut first, mut second) = calls(Serves::Caller);
        assert!(matches!(desk.deliver(message(line)), Delivered::Done));
        assert!(!has(&mut first) && !has(&mut second));
        drop(second);
        assert!(matches!(desk.deliver(message(line)), Delivered::Done));
        assert!(has(&mut first));
    }

    #[test]
    fn progress_is_of_the_request_it_names_and_without_a_name_of_the_only_one() {
        for serves in [Serves::Session, Serves::Caller, Serves::Everybody] {
            let (desk, mut first, mut second) = calls(serves);
            let shared = serves == Serves::Everybody;
            let told = |token: &str| matches!(desk.deliver(progress(token)), Delivered::Done);
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
            let mut own = wait(&desk, 4, Takes::default());
            assert_eq!(told(""), !shared, "{serves:?}");
            assert_eq!(has(&mut first), !shared, "{serves:?}");
            assert!(!told(r#""progressToken":4,"#) && !has(&mut own));
        }
    }

    fn taken(ticket: &mut Ticket) -> usize {
        let next = || (ticket.waiting() > 0).then(|| ticket.try_next());
        std::iter::from_fn(next).flatten().count()
    }

    #[test]
    fn what_waits_for_a_request_is_bounded_in_bytes_and_the_response_still_comes() {
        let (desk, mut first, mut second) = calls(Serves::Caller);
        let long = |id: i64| {
            let text = "x".repeat(BYTES_OF_ONE / 4);
            progress(&format!(r#""progressToken":{id},"message":"{text}","#))
        };
        for _ in 0..WAITING {
            drop(desk.deliver(long(1)));
        }
        // Another request has room of its own, and short messages are not counted.
        assert!(matches!(desk.deliver(long(2)), Delivered::Done));
        assert!(matches!(desk.deliver(progress(r#""progressToken":1,"#)), Delivered::Done));
        drop(desk.deliver(message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
        // Each is a little longer than a quarter of the room.
        assert_eq!((taken(&mut first), taken(&mut second)), (3 + 1 + 1, 1));
        assert!(matches!(desk.deliver(long(2)), Delivered::Done), "what was read makes room");
    }

    #[test]
    fn of_progress_that_waits_the_latest_is_kept_and_the_response_still_comes() {
        let (desk, mut first, _second) = calls(Serves::Session);
        let said = |n: usize| {
            let token = format!(r#""progressToken":1,"message":"{n}","#);
            matches!(desk.deliver(progress(&token)), Delivered::Done)
        };
        let whole = (0..2 * WAITING).filter(|n| said(*n)).count();
        drop(desk.deliver(message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
        let seen: Vec<_> = std::iter::from_fn(|| first.try_next()).map(Result::unwrap).collect();
        let text = |message: &Message| match message {
            Message::Notification(told) => {
                let said = told.params.as_ref().unwrap().value().get("message").unwrap();
                said.as_str().unwrap().into_owned()
            }
            Message::Response(_) => "the response".to_owned(),
            Message::Request(_) => "a question".to_owned(),
        };
        let kept = (WAITING + 1..2 * WAITING).map(|n| n.to_string());
        let kept: Vec<_> = kept.chain(["the response".to_owned()]).collect();
        assert_eq!((whole, seen.iter().map(text).collect()), (WAITING - 1, kept));
    }

    #[test]
    fn short_messages_that_wait_take_of_the_share_of_their_caller_together() {
        let desk = desk_with(Serves::Caller, 4 * MIB / 16);
        let (mut first, mut second) = (wait(&desk, 1, ALL), wait(&desk, 2, ALL));
        let other = desk.wait(3, ALL, Some("bob")).unwrap();
        let short = |id: i64, n: usize| {
            let text = format!("{n} {}", "x".repeat(15_000));
            progress(&format!(r#""progressToken":{id},"message":"{text}","#))
        };
        for id in [1, 2, 3] {
            for n in 0..WAITING {
                drop(desk.deliver(short(id, n)));
            }
        }
        // Four steps of 64 KiB in all, which are four messages each at most; of each caller by itself. The latest stay.
        let text = |(told, _): &(Notification, Room)| {
            let said = told.params.as_ref().unwrap().value().get("message").unwrap();
            said.as_str().unwrap().split(' ').next().unwrap().to_owned()
        };
        let kept: Vec<_> = reported(&first.progress).iter().map(text).collect();
        let latest: Vec<_> = (WAITING - 16..WAITING).map(|n| n.to_string()).collect();
        assert_eq!(kept, latest);
        assert_eq!(taken(&mut first), 16);
        assert!((1..=2).contains(&taken(&mut second)), "only what is not counted");
        assert_eq!(desk.answers.bytes(), 4 * MIB / 16, "what waits for the other caller");
        drop(other);
        assert_eq!(desk.answers.bytes(), 0);
    }

    #[tokio::test]
    async fn a_response_takes_of_the_share_of_its_caller_until_it_is_not_used_any_more() {
        let desk = desk_with(Serves::Caller, MIB);
        let (mut first, mut second) = (wait(&desk, 1, ALL), wait(&desk, 2, ALL));
        let long = |id: i64| {
            let text = "x".repeat(600 * 1024);
            message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"{text}"}}}}"#))
        };
        for id in [1, 2] {
            assert!(matches!(desk.deliver(long(id)), Delivered::Done));
        }
        assert!(matches!(first.next().await, Some(Ok(Message::Response(_)))));
        assert!(matches!(second.next().await, Some(Err(_))));
        let used = first.received();
        drop(first);
        let mut third = wait(&desk, 3, ALL);
        drop(desk.deliver(long(3)));
        assert!(matches!(third.next().await, Some(Err(_))));
        drop(used);
        let mut fourth = wait(&desk, 4, ALL);
        drop(desk.deliver(long(4)));
        assert!(matches!(fourth.next().await, Some(Ok(Message::Response(_)))));
    }

    #[test]
    fn a_late_answer_is_no_stray_one() {
        let (desk, first, second) = calls(Serves::Everybody);
        drop(first);
        let late = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(matches!(desk.deliver(message(late)), Delivered::Done));
        assert!(matches!(desk.deliver(message(late)), Delivered::Stray));
        drop(second);
    }
}
