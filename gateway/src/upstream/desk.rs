//! Who gets what a server says on a connection that serves more than one request.
//!
//! Each answer goes to the one request it belongs to, and so does a question or a log line that names
//! the progress token of a call. What names no request goes to a call where it is clear to whom that
//! is: see [`Serves`]. A question that belongs to no one call is refused. Progress goes to the request whose
//! token it has; without a token to the only request that wants progress, if there is one; and to nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::json::{self, Value};
use tokio::sync::{broadcast, mpsc};

use super::request::Takes;
use crate::protocol::{meta, method};
use crate::wire::{Id, Message, Notification, Request};

/// Messages that wait for one request.
const WAITING: usize = 64;
/// Messages that wait for one listener; a slower one misses the oldest.
const HEARD: usize = 256;

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
    heard: broadcast::Sender<Arc<Notification>>,
    /// The stream of the session is read.
    read: AtomicBool,
    /// How often in a row progress was waited for and none came on the stream.
    fruitless: AtomicU32,
}

#[derive(Debug)]
struct Waiting {
    messages: mpsc::Sender<Message>,
    /// What the client behind the request takes.
    takes: Takes,
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
    messages: mpsc::Receiver<Message>,
}

impl Desk {
    /// A desk at which at most `limit` requests wait.
    pub(super) fn new(serves: Serves, limit: usize) -> Arc<Self> {
        let heard = broadcast::channel(HEARD).0;
        let (waiting, given_up) = (Mutex::default(), Mutex::default());
        let (read, fruitless) = (AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Self { serves, limit, waiting, given_up, heard, read, fruitless })
    }

    /// Whom it serves.
    pub(super) const fn serves(&self) -> Serves {
        self.serves
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<i64, Waiting>> {
        // No operation leaves the map half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the request `id`; `None` when all are taken.
    pub(super) fn wait(self: &Arc<Self>, id: i64, takes: Takes) -> Option<Ticket> {
        let (sender, messages) = mpsc::channel(WAITING);
        let mut waiting = self.waiting();
        if waiting.len() >= self.limit {
            return None;
        }
        waiting.insert(id, Waiting { messages: sender, takes });
        drop(waiting);
        Some(Ticket { desk: Arc::clone(self), id, messages })
    }

    /// What comes from now on and belongs to no request.
    pub(super) fn listen(&self) -> broadcast::Receiver<Arc<Notification>> {
        self.heard.subscribe()
    }

    /// Whether somebody waits or listens here.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting().is_empty() || self.heard.receiver_count() > 0
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
                    Some(request) => hand(&request.messages, Message::Response(response)),
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

    /// Gives a progress notification to the request it belongs to; whether there is one, and it has room.
    ///
    /// THREAT: how far the call of one person is must not be told to another. One that names a request which
    /// is over, or is not of this session, is nobody's.
    pub(super) fn progress(&self, told: Notification) -> bool {
        let request = match Named::of(&told) {
            Named::Request(id) => {
                let waiting = self.waiting();
                let request = waiting.get(&id).filter(|request| request.takes.progress);
                request.map(|request| request.messages.clone())
            }
            Named::Nothing => self.only(),
            Named::Stranger => None,
        };
        // The last room is for the response: progress may be lost, an answer may not.
        let Some(request) = request.filter(|request| request.capacity() > 1) else { return false };
        self.fruitless.store(0, Ordering::Relaxed);
        hand(&request, Message::Notification(told));
        true
    }

    /// The only request that wants progress. Of those of several callers none is.
    fn only(&self) -> Option<mpsc::Sender<Message>> {
        if self.serves == Serves::Everybody {
            return None;
        }
        let waiting = self.waiting();
        let mut requests = waiting.values().filter(|request| request.takes.progress);
        let only = requests.next().map(|request| request.messages.clone());
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
                let request = self.waiting().get(&id).map(|request| request.messages.clone());
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
        match request {
            // The last room is for the response: progress may be lost, an answer may not.
            Some(request) if request.capacity() > 1 => {
                hand(&request, Message::Notification(notification));
            }
            Some(_) => {}
            // With nobody listening there is nobody to tell.
            None => drop(self.heard.send(Arc::new(notification))),
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
            waiting.get(&id).filter(|call| call.takes.questions).map(|call| call.messages.clone())
        });
        let asked = match named {
            Some(named) => Found::One(named),
            None => self.call(true),
        };
        match asked {
            Found::One(asked) if asked.capacity() > 1 => {
                hand(&asked, Message::Request(request));
                None
            }
            Found::One(_) | Found::None | Found::Several => Some(request),
        }
    }

    /// The call that a message without a name is for: of those whose client may be asked something, if
    /// it is a question. The gateway's own requests, such as for a list, are no calls.
    fn call(&self, asks: bool) -> Found {
        let waiting = self.waiting();
        let mut calls = waiting.values().rev().filter(|request| request.takes.questions);
        match (self.serves, calls.next(), calls.next()) {
            (Serves::Everybody | Serves::Caller, Some(_), Some(_)) => Found::Several,
            (_, Some(call), _) => Found::One(call.messages.clone()),
            // A log line of a request that cannot be asked anything is still that request's.
            (Serves::Session, None, _) if !asks => match waiting.values().next_back() {
                Some(request) => Found::One(request.messages.clone()),
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
    /// Nothing: it was progress that belongs to no request that wants it, and was dropped.
    Unclaimed,
    /// A question that belongs to no one call: the server is told that it cannot be asked.
    Refused(Request),
    /// A response to nothing that was asked.
    Stray,
}

/// Which call a message without a name is for.
enum Found {
    One(mpsc::Sender<Message>),
    None,
    Several,
}

/// A request that does not read what it asked for is given up rather than waited for.
fn hand(request: &mpsc::Sender<Message>, message: Message) {
    if let Err(error) = request.try_send(message) {
        tracing::debug!(%error, "a message was not taken");
    }
}

impl Ticket {
    /// The next message; `None` when there can be none any more.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
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

    use bytes::Bytes;
    use policy::json::Bounds;

    use super::super::request::Takes;
    use super::{Delivered, Desk, Serves, Ticket};
    use crate::wire::{self, Message};

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

    fn calls(serves: Serves) -> (Arc<Desk>, Ticket, Ticket) {
        let desk = Desk::new(serves, 8);
        let (first, second) = (desk.wait(1, ALL).unwrap(), desk.wait(2, ALL).unwrap());
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
            let desk = Desk::new(serves, 8);
            // Such as the gateway's own for a list.
            let mut own = desk.wait(1, Takes::default()).unwrap();
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
            let mut own = desk.wait(4, Takes::default()).unwrap();
            assert_eq!(told(""), !shared, "{serves:?}");
            assert_eq!(has(&mut first), !shared, "{serves:?}");
            assert!(!told(r#""progressToken":4,"#) && !has(&mut own));
        }
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
