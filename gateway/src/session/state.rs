//! The state of legacy sessions in use: streams, requests that the client has not answered, and subscriptions.
//!
//! Losing it harms only the convenience of one client, because a session without state continues with a new one. It
//! is kept in memory; a store shared by replicas would replace [`SessionStates`] and [`ReplayBuffer`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::definition::offer::ItemKind;
use policy::engine::ask::AnswerTerms;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::base::bounded::BoundedMap;
use crate::base::clock::Clock;
use crate::base::random;
use crate::base::share::{Ceiling, Holder, Share, ShareError, Shares};
use crate::config::settings::Limits;
use crate::mcp::protocol::ProtocolVersion;
use crate::mcp::trace_context::Trace;
use crate::mcp::wire::{Id, ResponseOutcome};
use crate::session::SessionKey;
use crate::stream::budget::{StreamBounds, StreamBudget};
use crate::stream::replay::ReplayBuffer;

/// The maximum number of resources a session may subscribe to.
const SUBSCRIPTIONS: usize = 256;
/// How long a stream is kept after it was sent completely.
const STRETCH: Duration = Duration::from_secs(30);
/// The maximum number of requests that wait for one client.
const QUESTIONS: usize = 64;
/// How long a client that lost its connection waits before it reconnects (SSE `retry`).
pub const RETRY: Duration = Duration::from_millis(500);

/// The call that a stream answers, with the data needed to revoke the answer and record that.
#[derive(Clone, Debug)]
pub struct AnsweredCall {
    /// The principal that made the call.
    pub caller: Arc<Principal>,
    /// The route of the call.
    pub route: Arc<str>,
    /// The upstream server that was called.
    pub server: ServerName,
    /// The kind of definition that was used.
    pub kind: ItemKind,
    /// Its name at the upstream server.
    pub name: Box<str>,
    /// The JSON-RPC id under which the client awaits the response.
    pub id: Id,
    /// The protocol revision of the client.
    pub version: ProtocolVersion,
    /// The method as recorded in the audit record.
    pub method: Option<Box<str>>,
    /// The kind and name that the client requested, as recorded in the audit record.
    pub asked: Option<(ItemKind, Box<str>)>,
    /// The trace context of the call.
    pub trace: Option<Trace>,
    /// Whether the audit record says that the client was answered.
    pub receipt: Arc<AnswerReceipt>,
}

/// Whether the audit record of a call says that its client was answered. Shared by the code that closes the record
/// and the code that cuts the answer off, so that exactly one of them records a cut-off.
#[derive(Debug, Default)]
pub struct AnswerReceipt(AtomicU8);

impl AnswerReceipt {
    /// Neither of the two has happened.
    const OPEN: u8 = 0;
    /// The audit record says that the client was answered.
    const ANSWERED: u8 = 1;
    /// The answer was cut off.
    const CUT: u8 = 2;

    /// Called before the audit record says that the client was answered. Returns `false` if the answer was cut off
    /// before.
    #[must_use]
    pub fn answer(&self) -> bool {
        let (open, answered) = (Self::OPEN, Self::ANSWERED);
        self.0.compare_exchange(open, answered, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the client was answered or the answer was cut off.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) != Self::OPEN
    }

    /// Marks the answer as cut off. Returns `true` if the audit record says that the client was answered; only the
    /// first call can.
    #[must_use]
    pub fn cut(&self) -> bool {
        self.0.swap(Self::CUT, Ordering::AcqRel) == Self::ANSWERED
    }
}

/// The states of all sessions in use.
#[derive(Debug)]
pub struct SessionStates {
    /// Each entry holds a share, so the table has room for every holder of one.
    table: BoundedMap<SessionKey, Arc<SessionState>>,
    shares: Arc<Shares<Holder>>,
    budget: Arc<StreamBudget>,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

/// Reservation of an entry in [`SessionStates`], taken before work that may need it.
#[derive(Debug)]
pub struct SessionSlot {
    key: SessionKey,
    taken: SlotState,
}

#[derive(Debug)]
enum SlotState {
    /// The session has an entry.
    Kept(Arc<SessionState>),
    /// The session may add an entry, with this share.
    Free(Share<Holder>, Holder),
}

/// The resources that a session subscribes to, by server index and URI, with the share that each takes.
type SubscriptionMap = BTreeMap<(usize, Box<str>), Share<Holder>>;

/// A request to the client that it has not answered.
#[derive(Debug)]
struct OpenQuestion {
    answer: oneshot::Sender<ResponseOutcome>,
    /// What the answer must be; `None` for a question of the gateway itself.
    terms: Option<Arc<AnswerTerms>>,
}

/// The state of one session.
#[derive(Debug)]
pub struct SessionState {
    budget: Arc<StreamBudget>,
    /// The holder of the session's share.
    holder: Holder,
    _share: Share<Holder>,
    streams: Mutex<Streams>,
    questions: Mutex<BTreeMap<i64, OpenQuestion>>,
    next: AtomicI64,
    /// Subscribed resources by server index, each with the bytes that it takes of the caller's share.
    watched: Mutex<SubscriptionMap>,
    /// Notifies the listeners of the session that its subscriptions have changed.
    rewatch: Notify,
    /// The version of the subscriptions, which grows with each change.
    wanted: AtomicU64,
    /// By server index, the version of the subscriptions that is in effect at the server.
    listened: watch::Sender<BTreeMap<usize, u64>>,
    /// The least severe log level that the client wants, as JSON.
    level: Mutex<Option<Box<str>>>,
    /// Cancelled when the session has ended.
    over: CancellationToken,
    limits: Limits,
}

#[derive(Debug, Default)]
struct Streams {
    all: BTreeMap<u64, KeptStream>,
    /// The stream for messages that belong to no call.
    standing: Option<Arc<ReplayBuffer>>,
    used: Option<Instant>,
}

#[derive(Debug)]
struct KeptStream {
    stream: Arc<ReplayBuffer>,
    /// The call it answers; `None` for a stream that answers none.
    about: Option<Arc<AnsweredCall>>,
    /// The caller that its messages were inspected for.
    caller: Arc<Principal>,
    since: Instant,
}

impl SessionStates {
    /// An empty table. Buffered events of its streams count against `ceiling` too.
    #[must_use]
    pub fn new(limits: Limits, ceiling: &Arc<Ceiling>, clock: Arc<dyn Clock>) -> Self {
        let table = BoundedMap::new(limits.sessions);
        let shares = Shares::new(limits.sessions, limits.sessions_per_caller);
        let each = limits.replay_memory_per_caller;
        let budget = StreamBudget::under(ceiling, limits.replay_memory, each);
        Self { table, shares, budget, limits, clock }
    }

    /// The buffer limits for one stream of `holder`.
    #[must_use]
    pub fn room(&self, holder: &Holder) -> StreamBounds {
        room(&self.limits, &self.budget, holder)
    }

    /// The state of a session, if there is any.
    pub fn find(&self, key: SessionKey) -> Option<Arc<SessionState>> {
        self.table.get(&key)
    }

    /// Reserves an entry for a session of `holder`.
    ///
    /// # Errors
    /// If there are too many, in total or of this holder.
    pub fn reserve(&self, key: SessionKey, holder: &Holder) -> Result<SessionSlot, ShareError> {
        if let Some(kept) = self.table.get(&key) {
            return Ok(SessionSlot { key, taken: SlotState::Kept(kept) });
        }
        let share = self.shares.take(holder, 1)?;
        Ok(SessionSlot { key, taken: SlotState::Free(share, holder.clone()) })
    }

    /// The state of the session that holds `slot`, added if there is none.
    pub fn enter(&self, slot: SessionSlot) -> Arc<SessionState> {
        let now = self.clock.instant();
        let conversation = match slot.taken {
            SlotState::Kept(kept) => kept,
            SlotState::Free(share, holder) => {
                let budget = Arc::clone(&self.budget);
                let new = Arc::new(SessionState::new(self.limits, budget, share, holder));
                match self.table.insert(slot.key, Arc::clone(&new)) {
                    // A concurrent request of the session was faster.
                    Ok(Some(_)) => self.table.get(&slot.key).unwrap_or(new),
                    Ok(None) | Err(_) => new,
                }
            }
        };
        conversation.streams().used = Some(now);
        conversation
    }

    /// Removes the state of a session that has ended.
    pub fn end(&self, key: SessionKey) {
        if let Some(conversation) = self.table.remove(&key) {
            conversation.end();
        }
    }

    /// The kept streams of completed and recorded calls that `is` selects.
    pub fn answered(
        &self,
        is: impl Fn(&AnsweredCall) -> bool,
    ) -> Vec<(Arc<ReplayBuffer>, Arc<AnsweredCall>)> {
        let mut found = Vec::new();
        self.table.retain(|_, conversation| {
            for kept in conversation.streams().all.values() {
                if let Some(about) = kept.about.as_ref().filter(|about| is(about))
                    && kept.stream.is_over()
                    && about.receipt.is_closed()
                {
                    found.push((Arc::clone(&kept.stream), Arc::clone(about)));
                }
            }
            true
        });
        found
    }

    /// Removes states that were not used for a while, and streams to which no client has returned.
    pub fn sweep(&self) {
        let (now, age) = (self.clock.instant(), self.limits.replay_ttl);
        self.table.retain(|_, conversation| {
            let mut streams = conversation.streams();
            streams.prune(now, age);
            let used = streams.used.is_some_and(|used| now.saturating_duration_since(used) < age);
            let keep = used || !streams.all.is_empty() || Arc::strong_count(conversation) > 1;
            drop(streams);
            if !keep {
                conversation.end();
            }
            keep
        });
    }
}

/// The buffer limits for one stream of `holder`.
fn room(limits: &Limits, all: &Arc<StreamBudget>, holder: &Holder) -> StreamBounds {
    let (events, bytes) = (limits.replay_events, limits.replay_bytes);
    StreamBounds { events, bytes, all: Arc::clone(all), holder: holder.clone() }
}

impl Streams {
    /// Removes ended streams to which no client has returned within `age`.
    fn prune(&mut self, now: Instant, age: Duration) {
        self.all.retain(|_, kept| {
            let wanted = kept.stream.is_attached() || !kept.stream.is_over();
            if wanted {
                kept.since = now;
            }
            // A stream that was sent completely is needed only by a client that lost the last part of it.
            let age = if kept.stream.is_read() { age.min(STRETCH) } else { age };
            wanted || now.saturating_duration_since(kept.since) < age
        });
    }
}

impl SessionState {
    fn new(
        limits: Limits,
        budget: Arc<StreamBudget>,
        share: Share<Holder>,
        holder: Holder,
    ) -> Self {
        Self {
            budget,
            holder,
            _share: share,
            streams: Mutex::default(),
            questions: Mutex::default(),
            next: AtomicI64::new(1),
            watched: Mutex::default(),
            rewatch: Notify::new(),
            wanted: AtomicU64::new(0),
            listened: watch::Sender::default(),
            level: Mutex::default(),
            over: CancellationToken::new(),
            limits,
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // No operation on any of the locked fields leaves them half changed.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.over.cancel();
        for kept in self.streams().all.values() {
            kept.stream.end();
        }
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Resolves when the session has ended.
    pub async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Adds a stream for a call or, without one, for messages that belong to no call; `None` if there are too many. What is
    /// sent on it is inspected for `caller`.
    #[must_use]
    pub fn stream(
        &self,
        about: Option<Arc<AnsweredCall>>,
        caller: &Arc<Principal>,
        now: Instant,
    ) -> Option<Arc<ReplayBuffer>> {
        let id = u64::from_be_bytes(random::bytes().ok()?);
        if !self.budget.has_room(&self.holder) {
            return None;
        }
        let stream = ReplayBuffer::new(id, room(&self.limits, &self.budget, &self.holder));
        let mut streams = self.streams();
        streams.prune(now, self.limits.replay_ttl);
        if streams.all.len() >= self.limits.streams_per_session {
            // The stream that ended first makes room.
            let done = streams
                .all
                .iter()
                .filter(|(_, kept)| kept.stream.is_over() && !kept.stream.is_attached());
            let oldest = done.min_by_key(|(_, kept)| kept.since).map(|(id, _)| *id)?;
            streams.all.remove(&oldest);
        }
        let standing = about.is_none();
        let caller = Arc::clone(caller);
        streams
            .all
            .insert(id, KeptStream { stream: Arc::clone(&stream), about, caller, since: now });
        if standing && let Some(before) = streams.standing.replace(Arc::clone(&stream)) {
            before.supersede();
        }
        Some(stream)
    }

    /// Ends the stream for messages that belong to no call if no client reads it, because another one is to take its place.
    pub fn end_unread_standing(&self) {
        let standing = self.streams().standing.clone();
        if let Some(unread) = standing.filter(|stream| !stream.is_attached()) {
            unread.end();
        }
    }

    /// The stream for messages that belong to no call, if a client reads it.
    #[must_use]
    pub fn standing(&self) -> Option<Arc<ReplayBuffer>> {
        let standing = self.streams().standing.clone();
        standing.filter(|stream| stream.is_attached() && !stream.is_over())
    }

    /// Whether there is room for another stream.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let streams = self.streams();
        let busy =
            streams.all.values().filter(|kept| !kept.stream.is_over() || kept.stream.is_attached());
        busy.count() < self.limits.streams_per_session && self.budget.has_room(&self.holder)
    }

    /// The stream with this id, if it is still kept, and the call it answers, if any. A caller that other rules select, as
    /// with a token of fewer groups, does not find it: other messages could be withheld from it. Nor does one with a token
    /// of fewer scopes: a rule may require them.
    #[must_use]
    pub fn find(
        &self,
        id: u64,
        caller: &Principal,
    ) -> Option<(Arc<ReplayBuffer>, Option<Arc<AnsweredCall>>)> {
        let streams = self.streams();
        let is_for = |kept: &&KeptStream| {
            kept.caller.is_selected_like(caller) && caller.has_scopes_of(&kept.caller)
        };
        let kept = streams.all.get(&id).filter(is_for)?;
        Some((Arc::clone(&kept.stream), kept.about.clone()))
    }

    /// Registers a request to the client, whose answer `terms` describes if a server asks: its id, and the receiver of the
    /// response; `None` if too many wait.
    #[must_use]
    pub fn ask(
        &self,
        terms: Option<AnswerTerms>,
    ) -> Option<(Id, oneshot::Receiver<ResponseOutcome>)> {
        let mut questions = self.questions();
        questions.retain(|_, waiting| !waiting.answer.is_closed());
        if questions.len() >= QUESTIONS {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        questions.insert(id, OpenQuestion { answer, terms: terms.map(Arc::new) });
        Some((Id::Number(id), receiver))
    }

    /// What the answer to a request must be; `None` for an unknown request, and for one of the gateway itself.
    #[must_use]
    pub fn terms_of(&self, id: &Id) -> Option<Arc<AnswerTerms>> {
        let Id::Number(id) = id else { return None };
        self.questions().get(id)?.terms.clone()
    }

    /// Delivers the client's response to a request. Ignores a response to an unknown request.
    pub fn answer(&self, id: &Id, outcome: ResponseOutcome) {
        let Id::Number(id) = id else { return };
        if let Some(waiting) = self.questions().remove(id) {
            // The receiver may be gone.
            drop(waiting.answer.send(outcome));
        }
    }

    /// Gives up a request, as if the client had not answered it.
    pub fn give_up(&self, id: &Id) {
        let Id::Number(id) = id else { return };
        self.questions().remove(id);
    }

    fn questions(&self) -> MutexGuard<'_, BTreeMap<i64, OpenQuestion>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least severe log level that the client wants, as JSON.
    #[must_use]
    pub fn level(&self) -> Option<Box<str>> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the least severe log level that the client wants, as JSON.
    pub fn set_level(&self, level: Box<str>) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// Subscribes to a resource of the server with the index `server_index`, with the share for its bytes; `None`
    /// unsubscribes. Returns whether there was room.
    #[must_use]
    pub fn watch(&self, server_index: usize, uri: &str, wanted: Option<Share<Holder>>) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (server_index, uri.into());
        match wanted {
            None => drop(watched.remove(&key)),
            Some(_) if watched.len() >= SUBSCRIPTIONS && !watched.contains_key(&key) => {
                return false;
            }
            Some(share) => drop(watched.insert(key, share)),
        }
        drop(watched);
        self.wanted.fetch_add(1, Ordering::AcqRel);
        self.rewatch.notify_waiters();
        true
    }

    /// The current version of the subscriptions, to be reported to `listened()` once it is in effect.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// Notes that the version `wanted` of the subscriptions is in effect at the server with the index `server_index`; `None`
    /// notes that nothing listens to that server any more.
    pub fn listened(&self, server_index: usize, wanted: Option<u64>) {
        self.listened.send_modify(|listened| match wanted {
            Some(wanted) => drop(listened.insert(server_index, wanted)),
            None => drop(listened.remove(&server_index)),
        });
    }

    /// Resolves when the current subscriptions are in effect at the server with the index `server_index`, or nothing listens
    /// to that server.
    pub async fn settled(&self, server_index: usize) {
        let wanted = self.wanted();
        let mut listened = self.listened.subscribe();
        let settled = |listened: &BTreeMap<usize, u64>| {
            listened.get(&server_index).is_none_or(|listened| *listened >= wanted)
        };
        // Cannot fail: the sender lives as long as `self`.
        drop(listened.wait_for(settled).await);
    }

    /// The resources that the session subscribes to at the server with the index `server_index`.
    #[must_use]
    pub fn watched(&self, server_index: usize) -> Vec<Box<str>> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.keys().filter(|(at, _)| *at == server_index).map(|(_, uri)| uri.clone()).collect()
    }

    /// Resolves when the subscriptions change next.
    pub fn rewatched(&self) -> Notified<'_> {
        self.rewatch.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::{AnswerReceipt, AnsweredCall, SessionState, SessionStates};
    use crate::base::clock::{Clock, SystemClock};
    use crate::base::share::{Holder, ShareError};
    use crate::config::settings::Limits;
    use crate::mcp::protocol::ProtocolVersion;
    use crate::mcp::wire::Id;
    use policy::definition::offer::ItemKind;
    use policy_core::subject::name::{GroupName, PrincipalId, Scope, ServerName};
    use policy_core::subject::principal::Principal;
    use std::sync::Arc;

    fn holder(last: u8) -> Holder {
        Holder::network([192, 0, 2, last].into())
    }

    fn entered(session_states: &SessionStates, key: u8, who: u8) -> Arc<SessionState> {
        session_states.enter(session_states.reserve([key; 16], &holder(who)).unwrap())
    }

    fn call() -> Arc<AnsweredCall> {
        Arc::new(AnsweredCall {
            caller: Arc::new(Principal::new(PrincipalId::parse("ana").unwrap(), [].into())),
            route: "/mcp".into(),
            server: ServerName::parse("up").unwrap(),
            kind: ItemKind::Tool,
            name: "add".into(),
            id: Id::Number(1),
            version: ProtocolVersion::V2025November,
            method: None,
            asked: None,
            trace: None,
            receipt: Arc::new(AnswerReceipt::default()),
        })
    }

    #[test]
    fn streams_are_bounded_and_found_again() {
        let limits = Limits { streams_per_session: 2, ..Limits::default() };
        let ceiling = crate::base::share::Shares::new(1 << 30, 1 << 30);
        let session_states = SessionStates::new(limits, &ceiling, Arc::new(SystemClock));
        let conversation = entered(&session_states, 7, 1);
        let now = SystemClock.instant();
        let ana = call().caller.clone();
        let first = conversation.stream(Some(call()), &ana, now).unwrap();
        let second = conversation.stream(Some(call()), &ana, now).unwrap();
        assert!(conversation.stream(Some(call()), &ana, now).is_none());
        first.end();
        assert!(conversation.stream(Some(call()), &ana, now).is_some());
        assert!(conversation.find(first.id(), &ana).is_none());
        assert!(conversation.find(second.id(), &ana).is_some());
        let groups = [GroupName::parse("dev").unwrap()].into();
        let more = Principal::new(ana.id.clone(), groups);
        assert!(conversation.find(second.id(), &more).is_none());
        let mut scoped = (*ana).clone();
        scoped.claims.scopes = [Scope::parse("files:read").unwrap()].into();
        assert!(conversation.find(second.id(), &scoped).is_some());
        second.end();
        let third = conversation.stream(Some(call()), &Arc::new(scoped.clone()), now).unwrap();
        assert!(conversation.find(third.id(), &ana).is_none());
        assert!(conversation.find(third.id(), &scoped).is_some());
        session_states.end([7; 16]);
        assert!(third.is_over());
    }

    #[test]
    fn one_caller_leaves_conversations_to_others_and_gives_back_what_has_ended() {
        let limits = Limits { sessions: 3, sessions_per_caller: 2, ..Limits::default() };
        let ceiling = crate::base::share::Shares::new(1 << 30, 1 << 30);
        let session_states = SessionStates::new(limits, &ceiling, Arc::new(SystemClock));
        drop((entered(&session_states, 1, 1), entered(&session_states, 2, 1)));
        let none = session_states.reserve([3; 16], &holder(1)).unwrap_err();
        assert_eq!(none, ShareError::Holder { limit: 2 });
        // One that it has goes on.
        drop(entered(&session_states, 2, 1));
        let kept = entered(&session_states, 4, 2);
        assert!(Arc::ptr_eq(&kept, &session_states.find([4; 16]).unwrap()));
        assert!(session_states.reserve([5; 16], &holder(3)).is_err());
        session_states.end([1; 16]);
        // A place that is not used is given back too.
        drop(session_states.reserve([3; 16], &holder(1)).unwrap());
        assert!(session_states.find([3; 16]).is_none());
        drop(entered(&session_states, 3, 1));
        // Two requests of one session take one.
        session_states.end([2; 16]);
        session_states.end([3; 16]);
        let slots = [1, 1].map(|_| session_states.reserve([6; 16], &holder(1)).unwrap());
        let [one, two] = slots.map(|slot| session_states.enter(slot));
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(session_states.shares.taken(), 2);
    }
}
