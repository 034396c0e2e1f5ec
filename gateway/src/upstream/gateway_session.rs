//! Sessions with an upstream server that the gateway keeps for callers without a session of their own: for modern
//! clients in front of a legacy server, or of a program that runs one process for each session.
//!
//! Each caller gets its own session on each route, and a separate one for each client with another name or other
//! capabilities, so that the state a server keeps for one caller is never used for another.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::{StreamExt as _, stream};
use policy_core::subject::revoked::RevocationList;
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::demux::{ConnectionScope, DeliveryOutcome, Demux, QueuedNotification, RequestInbox};
use super::on_behalf_of::OnBehalfOf;
use super::single_flight::SingleFlight;
use super::stream::SessionStream;
use super::{CallAnswer, ServerReply, SessionEnd, Transport, Upstream, UpstreamError};
use crate::base::sha256::sha256;
use crate::mcp::protocol::{Era, LEVELS};
use crate::mcp::wire::{Message, Notification};
use crate::session::UpstreamSession;

/// How long a session is kept without being used.
const IDLE: Duration = Duration::from_secs(600);
/// How long to wait for the stream of a session to begin.
pub const STREAM_OPENING: Duration = Duration::from_secs(2);
/// The maximum number of calls that wait in one session.
const MAX_WAITING_CALLS: usize = 256;
/// How long the process of a session is kept without being used.
const IDLE_PROCESS: Duration = Duration::from_secs(1800);
/// The maximum number of standing sessions of one caller with one server.
const MAX_SESSIONS_PER_CALLER: usize = 16;
/// How long the information that a server returned to one caller is relied on.
const INFO_TTL: Duration = Duration::from_secs(3600);
/// How many idle sessions are closed at once.
const CLOSING: usize = 16;
/// Interval of the sweep of idle sessions and expired caches.
const SWEEP: Duration = Duration::from_secs(60);

impl OnBehalfOf {
    /// The key of the session that the gateway keeps for this caller.
    pub(super) fn session_key(&self) -> GatewaySessionKey {
        let principal = self.principal.as_ref().map(|principal| principal.key().into());
        GatewaySessionKey {
            principal,
            route: self.route.clone(),
            client: self.client.text().into(),
        }
    }

    /// The cache key for lists of a server without sessions. It covers the capabilities of the client, which a server
    /// may make its lists depend on, and not the client's name.
    pub(super) fn capability_key(&self) -> CapabilityKey {
        let principal = self.principal.as_ref().map(|principal| principal.key().into());
        let can = sha256(self.client.capabilities().as_bytes());
        CapabilityKey { principal, route: self.route.clone(), can }
    }
}

/// The owner of cached lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CatalogOwner {
    /// The session of one client.
    Session(UpstreamSession),
    /// The standing session of one caller.
    Standing(GatewaySessionKey),
    /// One caller, with clients of the same capabilities.
    Caller(CapabilityKey),
}

/// The attributes of a caller on which a server may make its lists depend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CapabilityKey {
    principal: Option<Box<str>>,
    route: Option<Arc<str>>,
    /// The digest of the client's capabilities.
    can: [u8; 32],
}

/// The owner of a standing session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatewaySessionKey {
    principal: Option<Box<str>>,
    /// The route of the caller: rules of one route do not apply to what a server keeps for another.
    route: Option<Arc<str>>,
    /// The client's name and capabilities, because several clients may share one credential.
    client: Box<str>,
}

impl GatewaySessionKey {
    /// The id of the principal, without its client and key.
    fn caller(&self) -> Option<&str> {
        self.principal.as_deref().and_then(|key| key.split('\0').next())
    }

    /// Whether the principal or its client was revoked.
    fn is_revoked(&self, revoked: &RevocationList) -> bool {
        let mut parts = self.principal.as_deref().unwrap_or_default().split('\0');
        let (id, client) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        revoked.principals.contains(id) || revoked.clients.contains(client)
    }
}

/// The demultiplexer of a client's own session. Alive only while a call waits in it or its stream is read.
#[derive(Clone, Debug, Default)]
pub(super) struct WeakDemux(Weak<Demux>);

impl PartialEq for WeakDemux {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// A standing session of one caller with a server.
#[derive(Debug)]
pub(super) struct GatewaySession {
    upstream_session: ArcSwapOption<UpstreamSession>,
    /// Distributes the messages on the stream of the session.
    demux: Arc<Demux>,
    over: CancellationToken,
    /// The index in `LEVELS` of the least severe log level requested so far.
    level: AtomicUsize,
    opening: SingleFlight,
    born: Instant,
    /// When the server opened it.
    opened: OnceLock<Instant>,
    /// When it was last used, in seconds after `born`.
    used: AtomicU64,
}

impl GatewaySession {
    /// A session that is not opened yet; its calls wait in `demux`.
    fn new(demux: Arc<Demux>) -> Self {
        Self {
            upstream_session: ArcSwapOption::empty(),
            demux,
            over: CancellationToken::new(),
            level: AtomicUsize::new(LEVELS.len()),
            opening: SingleFlight::default(),
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

    /// The session at the server and its age; `None` if it was not opened yet.
    fn ended(&self) -> Option<(Arc<UpstreamSession>, Duration)> {
        Some((self.upstream_session.load_full()?, self.opened.get()?.elapsed()))
    }

    fn is_idle(&self) -> bool {
        let idle = self.born.elapsed().as_secs().saturating_sub(self.used.load(Ordering::Relaxed));
        idle >= IDLE.as_secs()
    }
}

/// A guard for a log level that is stored before the server is asked for it, so that concurrent calls ask once. Reverts
/// the level on drop unless [`Self::keep`] was called or another call has set a level.
struct LevelChange<'a> {
    level: &'a AtomicUsize,
    before: usize,
    place: usize,
    is_kept: bool,
}

impl<'a> LevelChange<'a> {
    fn begin(level: &'a AtomicUsize, place: usize) -> Self {
        Self { level, before: level.swap(place, Ordering::Relaxed), place, is_kept: false }
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for LevelChange<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            let relaxed = Ordering::Relaxed;
            // A level that another call has set meanwhile stays.
            let _set_by_another =
                self.level.compare_exchange(self.place, self.before, relaxed, relaxed).is_err();
        }
    }
}

impl Upstream {
    /// The standing session of a caller, opened if there is none. What makes the request in it has the proofs.
    pub(super) async fn gateway_session(
        self: &Arc<Self>,
        on_behalf: &OnBehalfOf,
    ) -> Result<UpstreamSession, UpstreamError> {
        let key = on_behalf.session_key();
        let gateway_session = match self.gateway_sessions.get(&key) {
            Some(gateway_session) => gateway_session,
            None => {
                self.make_room(&key)?;
                let new = Arc::new(GatewaySession::new(self.new_demux(ConnectionScope::Caller)));
                match self.gateway_sessions.insert(key.clone(), Arc::clone(&new)) {
                    Ok(None) => new,
                    Ok(Some(_)) => self.gateway_sessions.get(&key).unwrap_or(new),
                    Err(_) => return Err(UpstreamError::SessionLimit),
                }
            }
        };
        gateway_session.touch();
        let held = || {
            gateway_session
                .upstream_session
                .load_full()
                .map(|upstream_session| (*upstream_session).clone())
        };
        if let Some(upstream_session) = held() {
            return Ok(upstream_session);
        }
        let open = || async {
            let upstream_session = self.session_for(on_behalf).await?;
            gateway_session.opened.get_or_init(Instant::now);
            gateway_session.upstream_session.store(Some(Arc::new(upstream_session.clone())));
            if let Some(opened) = self.attend(on_behalf, &upstream_session, &gateway_session) {
                self.await_stream(&opened).await;
            }
            Ok(upstream_session)
        };
        gateway_session.opening.take(self.limits.response_timeout, held, open).await
    }

    /// Makes room for one more session. A caller that would exceed its maximum loses its least recently used idle
    /// session, so it cannot displace the sessions of others by varying its client's name and capabilities.
    ///
    /// # Errors
    /// [`UpstreamError::SessionLimit`] if all sessions of the caller are in use.
    fn make_room(self: &Arc<Self>, key: &GatewaySessionKey) -> Result<(), UpstreamError> {
        let mut mine = Vec::new();
        self.gateway_sessions.retain(|other, gateway_session| {
            if other.caller() == key.caller() {
                mine.push((other.clone(), Arc::clone(gateway_session)));
            }
            true
        });
        if mine.len() < MAX_SESSIONS_PER_CALLER {
            return Ok(());
        }
        let idle = mine.into_iter().filter(|(_, gateway_session)| !self.is_used(gateway_session));
        let oldest = idle.min_by_key(|(_, gateway_session)| gateway_session.last_used());
        let (oldest, gateway_session) = oldest.ok_or(UpstreamError::SessionLimit)?;
        if self.gateway_sessions.remove(&oldest).is_some() {
            self.catalogs.remove(&CatalogOwner::Standing(oldest));
            gateway_session.over.cancel();
            if let Some((upstream_session, age)) = gateway_session.ended() {
                let upstream = Arc::clone(self);
                let close = async move {
                    upstream.close(&OnBehalfOf::gateway(), &upstream_session, age).await
                };
                self.tasks.spawn(close);
            }
        }
        Ok(())
    }

    /// Whether a call waits or a listener reads in a standing session, or it is being opened.
    fn is_used(&self, gateway_session: &GatewaySession) -> bool {
        let Some(upstream_session) = gateway_session.upstream_session.load_full() else {
            return true;
        };
        let process = match (&self.transport, &upstream_session.id) {
            (Transport::Channel(pool), Some(id)) => pool.is_busy(id),
            (Transport::Channel(_) | Transport::Http(_), _) => false,
        };
        process || gateway_session.demux.is_busy()
    }

    /// Forgets a standing session that the server no longer knows, unless a new one has replaced it.
    pub(super) fn forget(&self, on_behalf: &OnBehalfOf, gone: &UpstreamSession) {
        let key = on_behalf.session_key();
        let is_gone = |gateway_session: &Arc<GatewaySession>| {
            gateway_session.upstream_session.load().as_deref() == Some(gone)
        };
        if self.gateway_sessions.get(&key).is_some_and(|gateway_session| is_gone(&gateway_session))
            && let Some(gateway_session) = self.gateway_sessions.remove(&key)
        {
            self.catalogs.remove(&CatalogOwner::Standing(key));
            if let Some((upstream_session, age)) = gateway_session.ended() {
                self.over(&upstream_session, age, SessionEnd::Lost);
            }
            gateway_session.over.cancel();
        }
    }

    /// Waits until a stream has begun, because messages sent before that are lost. Sends nothing. A server that sends the headers of
    /// a stream only with its first message delays this once; later streams of it are not waited for.
    pub async fn await_stream(&self, opened: &CancellationToken) {
        if self.begins_late.load(Ordering::Relaxed) {
            return;
        }
        if timeout(STREAM_OPENING, opened.cancelled()).await.is_err() {
            self.begins_late.store(true, Ordering::Relaxed);
        }
    }

    /// Starts the task that reads the stream of a standing session while it is kept. The returned token is cancelled
    /// when the stream has begun; `None` if there is no stream.
    fn attend(
        self: &Arc<Self>,
        on_behalf: &OnBehalfOf,
        upstream_session: &UpstreamSession,
        gateway_session: &Arc<GatewaySession>,
    ) -> Option<CancellationToken> {
        let mut stream = SessionStream::new(self, on_behalf, upstream_session)?;
        let opened = stream.opened();
        let (demux, over) = (Arc::clone(&gateway_session.demux), gateway_session.over.clone());
        demux.attended();
        let (upstream, tasks) = (Arc::clone(self), self.tasks.clone());
        let (on_behalf, upstream_session) = (on_behalf.clone(), upstream_session.clone());
        self.tasks.spawn_service(async move {
            loop {
                let message = tokio::select! {
                    message = stream.next() => message,
                    () = over.cancelled() => return,
                    () = tasks.halting() => return,
                };
                let Ok(message) = message else {
                    // A server that was restarted has forgotten the session: its listeners must be told.
                    if stream.is_offered() {
                        upstream.lost(&on_behalf, Some(&upstream_session));
                    }
                    return;
                };
                if let Message::Notification(told) = &message {
                    upstream.heard(told);
                }
                match demux.deliver(message) {
                    DeliveryOutcome::Refused(question) => {
                        let why = demux.serves().refuses();
                        stream.replier().reply(ServerReply::unasked(&question, why)).await;
                    }
                    DeliveryOutcome::Unclaimed => upstream.progress_dropped(),
                    // A response without a waiter on this stream is awaited on the connection of its request.
                    DeliveryOutcome::Done | DeliveryOutcome::Stray => {}
                }
                tokio::select! {
                    () = demux.ready() => {}
                    () = over.cancelled() => return,
                    () = tasks.halting() => return,
                }
            }
        });
        Some(opened)
    }

    /// Sets the log level of a legacy server to `level`, a JSON string, unless it logs that much already. Messages
    /// less severe than a single call wants are filtered from its answer. A part of making that call, which has its
    /// permit and its intent.
    pub(super) async fn lower(
        &self,
        on_behalf: &OnBehalfOf,
        upstream_session: &UpstreamSession,
        level: &str,
    ) {
        let Some(gateway_session) = self.gateway_sessions.get(&on_behalf.session_key()) else {
            return;
        };
        let place = LEVELS.iter().position(|known| *known == level.trim_matches('"'));
        let Some(place) =
            place.filter(|place| *place < gateway_session.level.load(Ordering::Relaxed))
        else {
            return;
        };
        let speaker = on_behalf.speaker(Some(upstream_session));
        let change = LevelChange::begin(&gateway_session.level, place);
        match self.ask_for_level(level.trim_matches('"'), speaker).await {
            // A server that answers has decided, also if it refuses.
            Ok(_) => change.keep(),
            Err(error) => {
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::debug!(server = %self.name, %error, "the log level could not be set");
            }
        }
    }

    fn new_demux(&self, serves: ConnectionScope) -> Arc<Demux> {
        Demux::new(serves, MAX_WAITING_CALLS, &self.name, &self.answers, &self.counts)
    }

    /// The demultiplexer of a client's own session, where its calls wait for progress on the stream of the session.
    /// Shared while any user keeps it; `None` without a session id or if there are too many.
    pub(super) fn demux(
        &self,
        on_behalf: &OnBehalfOf,
        upstream_session: &UpstreamSession,
    ) -> Option<Arc<Demux>> {
        upstream_session.id.as_ref()?;
        let key = (on_behalf.session_key(), upstream_session.clone());
        let known = self.demuxes.get(&key).and_then(|known| known.0.upgrade());
        if known.is_some() || self.demuxes.length() >= self.limits.sessions {
            return known;
        }
        let new = self.new_demux(ConnectionScope::Session);
        let entry = self.demuxes.update(key, |known| match known.0.strong_count() {
            0 => WeakDemux(Arc::downgrade(&new)),
            _ => known,
        });
        entry.0.upgrade()
    }

    /// Forwards progress that arrived in answer to another request of the session to the request it names. Returns
    /// whether there is such a request and it had room.
    pub(super) fn progress_elsewhere(&self, answer: &CallAnswer, told: Notification) -> bool {
        let Some(upstream_session) = &answer.upstream_session else { return false };
        let demux = match &answer.on_behalf.upstream_session {
            Some(_) => self
                .demuxes
                .get(&(answer.on_behalf.session_key(), upstream_session.clone()))
                .and_then(|k| k.0.upgrade()),
            None => self
                .gateway_sessions
                .get(&answer.on_behalf.session_key())
                .map(|gateway_session| Arc::clone(&gateway_session.demux)),
        };
        demux.is_some_and(|demux| demux.progress(told))
    }

    /// Counts progress that belongs to no request.
    pub fn progress_dropped(&self) {
        self.about.progress_dropped(&self.name);
    }

    /// Registers a call for the messages that its server sends on the stream of the session; `None` where there is no
    /// such stream.
    pub(super) fn aside(&self, answer: &CallAnswer) -> Option<RequestInbox> {
        let upstream_session = answer
            .upstream_session
            .as_ref()
            .filter(|upstream_session| upstream_session.version.era() == Era::Legacy)?;
        if !matches!(self.transport, Transport::Http(_)) {
            return None;
        }
        if answer.on_behalf.upstream_session.is_some() {
            // Other messages on the stream of a client's own session belong to no call.
            let demux = answer
                .options
                .progress
                .then(|| self.demux(&answer.on_behalf, upstream_session))
                .flatten();
            return demux?.wait(answer.id, answer.options.takes(), answer.on_behalf.caller());
        }
        let gateway_session = self.gateway_sessions.get(&answer.on_behalf.session_key())?;
        gateway_session.demux.wait(answer.id, answer.options.takes(), answer.on_behalf.caller())
    }

    /// Subscribes to the messages on the stream of a standing session that belong to no call.
    pub(super) fn overheard(
        &self,
        on_behalf: &OnBehalfOf,
    ) -> Option<broadcast::Receiver<Arc<QueuedNotification>>> {
        self.gateway_sessions
            .get(&on_behalf.session_key())
            .map(|gateway_session| gateway_session.demux.listen())
    }

    /// Ends the sessions of revoked principals and clients. If this server was revoked, ends all sessions and its processes,
    /// and sends it no request until that is lifted. Needs no proof: the operator is the reason, and nothing but the end of
    /// a session is sent.
    pub fn cut(self: &Arc<Self>, revoked: &RevocationList) {
        let all = revoked.has_server(&self.name);
        self.revoked.store(all, Ordering::Release);
        match &self.transport {
            Transport::Channel(pool) if !all => pool.resume(),
            Transport::Channel(pool) if pool.suspend() => {
                let upstream = Arc::clone(self);
                self.tasks.spawn(async move { upstream.end_processes().await });
            }
            Transport::Channel(_) | Transport::Http(_) => {}
        }
        let (mut over, mut gone) = (Vec::new(), Vec::new());
        self.gateway_sessions.retain(|key, gateway_session| {
            let cut = all || key.is_revoked(revoked);
            if cut {
                gateway_session.over.cancel();
                over.extend(gateway_session.ended());
                gone.push(key.clone());
            }
            !cut
        });
        self.without_lists(gone);
        for (upstream_session, age) in over {
            let upstream = Arc::clone(self);
            self.tasks.spawn(async move {
                upstream.close(&OnBehalfOf::gateway(), &upstream_session, age).await
            });
        }
    }

    /// Ends the processes of a program, or the connections of HTTP+SSE, of a revoked server.
    async fn end_processes(&self) {
        if let Transport::Channel(pool) = &self.transport {
            pool.end_suspended().await;
        }
    }

    /// Removes the cached lists of standing sessions that have ended.
    fn without_lists(&self, gone: Vec<GatewaySessionKey>) {
        for key in gone {
            self.catalogs.remove(&CatalogOwner::Standing(key));
        }
    }

    /// Ends idle sessions and removes expired cache entries, until the gateway stops.
    pub(super) async fn sweep(self: Arc<Self>) {
        let mut turn = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                _ = turn.tick() => {}
                () = self.tasks.halting() => return,
            }
            let (mut idle, mut gone) = (Vec::new(), Vec::new());
            self.gateway_sessions.retain(|key, gateway_session| {
                let keep = !gateway_session.is_idle() || gateway_session.demux.is_busy();
                if !keep {
                    gateway_session.over.cancel();
                    idle.extend(gateway_session.ended());
                    gone.push(key.clone());
                }
                keep
            });
            self.without_lists(gone);
            // One server that does not answer must not delay the end of the other sessions.
            let close = |(upstream_session, age): (Arc<UpstreamSession>, Duration)| {
                let upstream = Arc::clone(&self);
                async move { upstream.close(&OnBehalfOf::gateway(), &upstream_session, age).await }
            };
            stream::iter(idle).for_each_concurrent(CLOSING, close).await;
            match &self.transport {
                Transport::Channel(pool) => pool.sweep(IDLE_PROCESS),
                Transport::Http(http) => http.sweep(),
            }
            // Entries of callers that are gone must not fill the cache; the remaining callers cost one more request.
            self.known_by.retain(|_, known| known.known.since.elapsed() < INFO_TTL);
            self.demuxes.retain(|_, known| known.0.strong_count() > 0);
            self.watched.retain(|_, known| known.is_used());
            // The lists of a session are large, and most clients disappear without closing their session.
            self.catalogs.retain(|_, cached| !cached.is_spent(self.limits.catalog_age, IDLE));
            self.same.retain(|_, listing| listing.strong_count() > 0);
        }
    }
}
