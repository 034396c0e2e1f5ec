//! Who gets what a server says on a connection that serves more than one request.
//!
//! Each answer goes to the one request it belongs to. What names no request goes to the latest call
//! when the connection serves one client alone, and to whoever listens otherwise.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::json::Value;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;

use crate::log_limit::LogLimit;
use crate::protocol::{meta, method};
use crate::wire::{Id, Message, Notification, Request};

/// Messages that wait for one request.
const WAITING: usize = 64;
/// Messages that wait for one listener; a slower one misses the oldest.
const HEARD: usize = 256;
/// Log lines about answers that nobody waits for, of all servers: a server sends as many as it likes.
static STRAY: LogLimit = LogLimit::new(1, 5);

/// The requests that wait on one connection, and those who listen to it.
#[derive(Debug)]
pub(super) struct Desk {
    /// It serves one client alone.
    own: bool,
    limit: usize,
    waiting: Mutex<BTreeMap<i64, Waiting>>,
    /// What belongs to no request.
    heard: broadcast::Sender<Arc<Notification>>,
}

#[derive(Debug)]
struct Waiting {
    messages: mpsc::Sender<Message>,
    /// Whether the client behind the request may be asked something.
    asks: bool,
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
    pub(super) fn new(own: bool, limit: usize) -> Arc<Self> {
        let heard = broadcast::channel(HEARD).0;
        Arc::new(Self { own, limit, waiting: Mutex::default(), heard })
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<i64, Waiting>> {
        // No operation leaves the map half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the request `id`; `None` when all are taken.
    pub(super) fn wait(self: &Arc<Self>, id: i64, asks: bool) -> Option<Ticket> {
        let (sender, messages) = mpsc::channel(WAITING);
        let mut waiting = self.waiting();
        if waiting.len() >= self.limit {
            return None;
        }
        waiting.insert(id, Waiting { messages: sender, asks });
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

    /// Gives a message to whom it belongs. Gives a question back that nobody can be asked.
    pub(super) fn deliver(&self, message: Message) -> Option<Request> {
        match message {
            Message::Response(response) => {
                let id = match &response.id {
                    Some(Id::Number(id)) => self.waiting().remove(id),
                    Some(Id::Text(_)) | None => None,
                };
                match id {
                    Some(request) => hand(&request.messages, Message::Response(response)),
                    None => stray(),
                }
                None
            }
            Message::Notification(notification) => {
                self.tell(notification);
                None
            }
            Message::Request(request) => self.question(request),
        }
    }

    /// Progress and subscriptions name their request. Log lines name none: on a connection that
    /// many share nobody could say whose they are, so nobody gets them.
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
            (None, method::LOG | method::ELICITED) if self.own => self.latest(false),
            (None, method::LOG) => return,
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

    /// A question goes to the client whose call is under way, where that is clear.
    fn question(&self, request: Request) -> Option<Request> {
        let asked =
            if self.own && &*request.method != method::PING { self.latest(true) } else { None };
        let Some(asked) = asked.filter(|asked| asked.capacity() > 1) else { return Some(request) };
        hand(&asked, Message::Request(request));
        None
    }

    /// The latest call, or the latest whose client may be asked something.
    fn latest(&self, asks: bool) -> Option<mpsc::Sender<Message>> {
        let waiting = self.waiting();
        let latest = waiting.values().rev().find(|request| request.asks || !asks);
        latest.map(|request| request.messages.clone())
    }
}

/// Logs an answer that nobody waits for, or counts it for the next line.
fn stray() {
    if let Some(suppressed) = STRAY.allow(Instant::now().into_std()) {
        tracing::warn!(suppressed, "a response nobody waits for was dropped");
    }
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
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.desk.waiting().remove(&self.id);
    }
}
