//! Sessions with a server that the gateway keeps for callers who have none of their own: a modern
//! client in front of a legacy server, or of a program that serves each session alone.
//!
//! Each caller gets its own on each route, and so does each client of a caller that is another or can
//! do other things: what the server keeps for one is never another's.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use policy::json::{Bounds, Document, Fragment};
use policy::revoked::Revoked;
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::demux::{Delivered, Desk, Serves, Ticket, Told};
use super::on_behalf_of::Party;
use super::single_flight::Turn;
use super::stream::Stream;
use super::{Answer, Transport, Upstream, UpstreamError, request};
use crate::base::sha256::sha256;
use crate::mcp::protocol::{Era, LEVELS, method};
use crate::mcp::wire::{Message, Notification};
use crate::session::Leg;

/// How long a session is kept without being used.
const IDLE: Duration = Duration::from_secs(600);
/// How long is waited for the stream of a session to begin.
const OPENING: Duration = Duration::from_secs(2);
/// Most calls that wait in one session.
const WAITING: usize = 256;
/// How long the process of a session is kept without being used.
const IDLE_PROCESS: Duration = Duration::from_secs(1800);
/// Most standing sessions of one caller with one server.
const OF_ONE: usize = 16;
/// How long it is relied on what a server has said of itself to one caller.
const KNOWN: Duration = Duration::from_secs(3600);
/// How often it is looked at.
const SWEEP: Duration = Duration::from_secs(60);

impl Party {
    /// What tells its standing session from others.
    pub(super) fn key(&self) -> Key {
        let principal = self.principal.as_ref().map(|principal| principal.key().into());
        Key { principal, route: self.route.clone(), client: self.client.text().into() }
    }

    /// For whom lists are kept where the server keeps no session: what a client calls itself makes no
    /// difference, and what it says it can do may.
    pub(super) fn asker(&self) -> Asker {
        let principal = self.principal.as_ref().map(|principal| principal.key().into());
        let can = sha256(self.client.capabilities().as_bytes());
        Asker { principal, route: self.route.clone(), can }
    }
}

/// For whom a server's lists are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whom {
    /// The clients of one session.
    Session(Leg),
    /// The standing session of one caller.
    Standing(Key),
    /// One caller, with clients that say that they can do the same.
    Caller(Asker),
}

/// A caller, by what of it a server may make its lists depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asker {
    principal: Option<Box<str>>,
    route: Option<Arc<str>>,
    /// The digest of what its client says it can do.
    can: [u8; 32],
}

/// Whose standing session it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    principal: Option<Box<str>>,
    /// The route it came by: rules of one route do not judge what a server keeps for another.
    route: Option<Arc<str>>,
    /// What its client can do, and what it calls itself: several may use one credential.
    client: Box<str>,
}

impl Key {
    /// The caller, whatever client it uses and with whatever key.
    fn caller(&self) -> Option<&str> {
        self.principal.as_deref().and_then(|key| key.split('\0').next())
    }

    /// Whether it is of somebody who was revoked, or whose client was.
    fn is_revoked(&self, revoked: &Revoked) -> bool {
        let mut parts = self.principal.as_deref().unwrap_or_default().split('\0');
        let (id, client) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        revoked.principals.contains(id) || revoked.clients.contains(client)
    }
}

/// The desk of a client's own session, for as long as a call waits at it or its stream is read.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnDesk(Weak<Desk>);

impl PartialEq for OwnDesk {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// A standing session.
#[derive(Debug)]
pub(super) struct Standing {
    leg: ArcSwapOption<Leg>,
    /// Who gets what the server says on the stream of the session.
    desk: Arc<Desk>,
    over: CancellationToken,
    /// The place among the levels of the least severe log message asked for so far.
    level: AtomicUsize,
    opening: Turn,
    born: Instant,
    /// When the server has opened it.
    opened: OnceLock<Instant>,
    /// When it was last used, in seconds after it was born.
    used: AtomicU64,
}

impl Standing {
    /// One that is not opened yet, with the desk of its calls.
    fn new(desk: Arc<Desk>) -> Self {
        Self {
            leg: ArcSwapOption::empty(),
            desk,
            over: CancellationToken::new(),
            level: AtomicUsize::new(LEVELS.len()),
            opening: Turn::default(),
            born: Instant::now(),
            opened: OnceLock::new(),
            used: AtomicU64::new(0),
        }
    }

    /// When it was last used, to the second.
    fn last_used(&self) -> Instant {
        self.born + Duration::from_secs(self.used.load(Ordering::Relaxed))
    }

    fn touch(&self) {
        self.used.store(self.born.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// What is to be ended, and how long it has lasted.
    fn ended(&self) -> Option<(Arc<Leg>, Duration)> {
        Some((self.leg.load_full()?, self.opened.get()?.elapsed()))
    }

    fn is_idle(&self) -> bool {
        let idle = self.born.elapsed().as_secs().saturating_sub(self.used.load(Ordering::Relaxed));
        idle >= IDLE.as_secs()
    }
}

impl Upstream {
    /// The standing session of a caller, opened if there is none.
    pub(super) async fn standing(self: &Arc<Self>, party: &Party) -> Result<Leg, UpstreamError> {
        let key = party.key();
        let standing = match self.standing.get(&key) {
            Some(standing) => standing,
            None => {
                self.make_room(&key)?;
                let new = Arc::new(Standing::new(self.new_desk(Serves::Caller)));
                match self.standing.insert(key.clone(), Arc::clone(&new)) {
                    Ok(None) => new,
                    Ok(Some(_)) => self.standing.get(&key).unwrap_or(new),
                    Err(_) => return Err(UpstreamError::Crowded),
                }
            }
        };
        standing.touch();
        let held = || standing.leg.load_full().map(|leg| (*leg).clone());
        if let Some(leg) = held() {
            return Ok(leg);
        }
        let open = || async {
            let leg = self.session_for(party).await?;
            standing.opened.get_or_init(Instant::now);
            standing.leg.store(Some(Arc::new(leg.clone())));
            if let Some(opened) = self.attend(party, &leg, &standing) {
                self.begun(&opened).await;
            }
            Ok(leg)
        };
        standing.opening.take(self.limits.answer_time, held, open).await
    }

    /// One caller does not take the place of others, whatever its clients say they are and can do: when
    /// it wants more sessions than are kept for one, its longest unused one ends.
    fn make_room(self: &Arc<Self>, key: &Key) -> Result<(), UpstreamError> {
        let mut mine = Vec::new();
        self.standing.retain(|other, standing| {
            if other.caller() == key.caller() {
                mine.push((other.clone(), Arc::clone(standing)));
            }
            true
        });
        if mine.len() < OF_ONE {
            return Ok(());
        }
        let idle = mine.into_iter().filter(|(_, standing)| !self.is_used(standing));
        let oldest = idle.min_by_key(|(_, standing)| standing.last_used());
        let (oldest, standing) = oldest.ok_or(UpstreamError::Crowded)?;
        if self.standing.remove(&oldest).is_some() {
            self.shelves.remove(&Whom::Standing(oldest));
            standing.over.cancel();
            if let Some((leg, age)) = standing.ended() {
                let upstream = Arc::clone(self);
                let close = async move { upstream.close(&Party::gateway(), &leg, age).await };
                self.tasks.spawn(close);
            }
        }
        Ok(())
    }

    /// Whether a call waits or somebody listens in a standing session, or it is being opened.
    fn is_used(&self, standing: &Standing) -> bool {
        let Some(leg) = standing.leg.load_full() else { return true };
        let process = match (&self.transport, &leg.id) {
            (Transport::Channel(seats), Some(id)) => seats.is_busy(id),
            (Transport::Channel(_) | Transport::Http(_), _) => false,
        };
        process || standing.desk.is_busy()
    }

    /// Forgets a standing session that the server no longer knows, unless there is a new one by now.
    pub(super) fn forget(&self, party: &Party, gone: &Leg) {
        let key = party.key();
        let is_gone = |standing: &Arc<Standing>| standing.leg.load().as_deref() == Some(gone);
        if self.standing.get(&key).is_some_and(|standing| is_gone(&standing))
            && let Some(standing) = self.standing.remove(&key)
        {
            self.shelves.remove(&Whom::Standing(key));
            if let Some((leg, age)) = standing.ended() {
                self.over(&leg, age, false);
            }
            standing.over.cancel();
        }
    }

    /// Waits until a stream has begun: what a server says where nobody listens yet is lost. Some
    /// servers begin a stream with the first thing they say on it; those are waited for once.
    pub async fn begun(&self, opened: &CancellationToken) {
        if self.begins_late.load(Ordering::Relaxed) {
            return;
        }
        if timeout(OPENING, opened.cancelled()).await.is_err() {
            self.begins_late.store(true, Ordering::Relaxed);
        }
    }

    /// Reads the stream of a standing session, for as long as it is kept.
    fn attend(
        self: &Arc<Self>,
        party: &Party,
        leg: &Leg,
        standing: &Arc<Standing>,
    ) -> Option<CancellationToken> {
        let mut stream = Stream::new(self, party, leg)?;
        let opened = stream.opened();
        let (desk, over) = (Arc::clone(&standing.desk), standing.over.clone());
        desk.attended();
        let (upstream, tasks) = (Arc::clone(self), self.tasks.clone());
        self.tasks.spawn_service(async move {
            loop {
                let message = tokio::select! {
                    message = stream.next() => message,
                    () = over.cancelled() => return,
                    () = tasks.halting() => return,
                };
                let Ok(message) = message else { return };
                if let Message::Notification(told) = &message {
                    upstream.heard(told);
                }
                match desk.deliver(message) {
                    Delivered::Refused(question) => {
                        let why = desk.serves().refuses();
                        stream.replier().reply(request::unasked(&question, why)).await;
                    }
                    Delivered::Unclaimed => upstream.progress_dropped(),
                    // An answer on this stream that nobody waits for here is waited for elsewhere.
                    Delivered::Done | Delivered::Stray => {}
                }
            }
        });
        Some(opened)
    }

    /// Has a legacy server log from `level` on, a level as JSON, if it does not already. What is less
    /// severe than a single call wants is left out of its answer.
    pub(super) async fn lower(&self, party: &Party, leg: &Leg, level: &str) {
        let Some(standing) = self.standing.get(&party.key()) else { return };
        let place = LEVELS.iter().position(|known| *known == level.trim_matches('"'));
        let Some(place) = place.filter(|place| *place < standing.level.load(Ordering::Relaxed))
        else {
            return;
        };
        standing.level.store(place, Ordering::Relaxed);
        let Ok(document) = Document::parse(level.to_owned().into(), &Bounds::MESSAGE) else {
            return;
        };
        let params = [("level".into(), Fragment::whole(Arc::new(document)))];
        let speaker = party.speaker(Some(leg));
        let set = self.short(method::SET_LEVEL, &params, speaker);
        if let Err(error) = set.await {
            let error = crate::base::error_chain::Chain(&error);
            tracing::debug!(server = %self.name, %error, "the log level was not set");
        }
    }

    fn new_desk(&self, serves: Serves) -> Arc<Desk> {
        Desk::new(serves, WAITING, &self.name, &self.answers, &self.counts)
    }

    /// The desk of a client's own session, at which its calls wait for progress that comes on the stream of
    /// the session; one for all who ask for it while any of them keeps it.
    pub(super) fn desk(&self, party: &Party, leg: &Leg) -> Option<Arc<Desk>> {
        leg.id.as_ref()?;
        let key = (party.key(), leg.clone());
        let known = self.desks.get(&key).and_then(|known| known.0.upgrade());
        if known.is_some() || self.desks.length() >= self.limits.sessions {
            return known;
        }
        let new = self.new_desk(Serves::Session);
        let entry = self.desks.update(key, |known| match known.0.strong_count() {
            0 => OwnDesk(Arc::downgrade(&new)),
            _ => known,
        });
        entry.0.upgrade()
    }

    /// Gives progress that came in answer to another request of the session to the one it names; whether
    /// there is such a request.
    pub(super) fn progress_elsewhere(&self, answer: &Answer, told: Notification) -> bool {
        let Some(leg) = &answer.leg else { return false };
        let desk = match &answer.party.leg {
            Some(_) => {
                self.desks.get(&(answer.party.key(), leg.clone())).and_then(|k| k.0.upgrade())
            }
            None => {
                self.standing.get(&answer.party.key()).map(|standing| Arc::clone(&standing.desk))
            }
        };
        desk.is_some_and(|desk| desk.progress(told))
    }

    /// Counts progress that belongs to no request.
    pub fn progress_dropped(&self) {
        self.about.progress_dropped(&self.name);
    }

    /// What the server says in the session behind `answer` elsewhere, and means for that call.
    pub(super) fn aside(&self, answer: &Answer) -> Option<Ticket> {
        let leg = answer.leg.as_ref().filter(|leg| leg.version.era() == Era::Legacy)?;
        if !matches!(self.transport, Transport::Http(_)) {
            return None;
        }
        if answer.party.leg.is_some() {
            // Whatever else is said on the stream of a client's own session belongs to no call.
            let desk = answer.manner.progress.then(|| self.desk(&answer.party, leg)).flatten();
            return desk?.wait(answer.id, answer.manner.takes(), answer.party.caller());
        }
        let standing = self.standing.get(&answer.party.key())?;
        standing.desk.wait(answer.id, answer.manner.takes(), answer.party.caller())
    }

    /// What the server says in a standing session and means for no call.
    pub(super) fn overheard(&self, party: &Party) -> Option<broadcast::Receiver<Arc<Told>>> {
        self.standing.get(&party.key()).map(|standing| standing.desk.listen())
    }

    /// Ends the sessions of those who were revoked; all of them if this server was.
    pub fn cut(self: &Arc<Self>, revoked: &Revoked) {
        let all = revoked.has_server(&self.name);
        let (mut over, mut gone) = (Vec::new(), Vec::new());
        self.standing.retain(|key, standing| {
            let cut = all || key.is_revoked(revoked);
            if cut {
                standing.over.cancel();
                over.extend(standing.ended());
                gone.push(key.clone());
            }
            !cut
        });
        self.without_lists(gone);
        for (leg, age) in over {
            let upstream = Arc::clone(self);
            self.tasks.spawn(async move { upstream.close(&Party::gateway(), &leg, age).await });
        }
    }

    /// Forgets the lists of standing sessions that have ended.
    fn without_lists(&self, gone: Vec<Key>) {
        for key in gone {
            self.shelves.remove(&Whom::Standing(key));
        }
    }

    /// Ends the sessions that nobody has used for a while.
    pub(super) async fn sweep(self: Arc<Self>) {
        let mut turn = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                _ = turn.tick() => {}
                () = self.tasks.halting() => return,
            }
            let (mut idle, mut gone) = (Vec::new(), Vec::new());
            self.standing.retain(|key, standing| {
                let keep = !standing.is_idle() || standing.desk.is_busy();
                if !keep {
                    standing.over.cancel();
                    idle.extend(standing.ended());
                    gone.push(key.clone());
                }
                keep
            });
            self.without_lists(gone);
            for (leg, age) in idle {
                self.close(&Party::gateway(), &leg, age).await;
            }
            match &self.transport {
                Transport::Channel(seats) => seats.sweep(IDLE_PROCESS),
                Transport::Http(http) => http.sweep(),
            }
            // Who has gone must not take the room of who comes: those who are still there ask once more.
            self.known_by.retain(|_, known| known.known.since.elapsed() < KNOWN);
            self.desks.retain(|_, known| known.0.strong_count() > 0);
            // The lists of a session are large, and most clients leave without a word.
            self.shelves.retain(|_, shelf| !shelf.is_spent(self.limits.catalog_age, IDLE));
            self.same.retain(|_, listing| listing.strong_count() > 0);
        }
    }
}
