//! Catalogs of upstream servers: reads the lists of definitions, caches them and compares them with the lockfile
//! before they are used. The exchange asks for them here.
//!
//! A list that a server returned to one caller is cached for that caller only, unless the server declares it the same
//! for all (SPEC 2026-07-28 server/utilities/caching, control C27).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use policy::definition::offer::{Catalog, ItemKind};
use policy::engine::pipeline::Permit;
use tokio::time::Instant;

use super::demux::ConnectionScope;
use super::gateway_session::CatalogOwner;
use super::handshake::ServerState;
use super::listing::{Listing, PageCollector};
use super::on_behalf_of::OnBehalfOf;
use super::request;
use super::single_flight::SingleFlight;
use super::{FailedRequest, MISDIRECTED, ServerInfo, Transport, Upstream, UpstreamError};
use crate::audit::ReadEntry;
use crate::base::intake::ResponseAccount;
use crate::base::share::Share;
use crate::mcp::protocol::{Era, ProtocolVersion};
use crate::mcp::wire::ResponseOutcome;
use crate::pins::ListAudience;
use crate::session::UpstreamSession;

/// At most this many lists of a caller are evicted to make room for one.
const FORGOTTEN: usize = 16;

/// The cached lists of a server, one for each kind.
#[derive(Debug, Default)]
pub(super) struct CatalogCache {
    slots: [CachedKind; 5],
    /// The caller it belongs to, and its part of that caller's share; `None` for the catalog that all callers share.
    place: Option<CacheShare>,
}

/// The part of a caller's share that one of its cached catalogs takes.
#[derive(Debug)]
struct CacheShare {
    caller: Arc<str>,
    _share: Share<Arc<str>>,
}

/// The cache entry of one list.
#[derive(Debug, Default)]
pub(super) struct CachedKind {
    held: ArcSwapOption<CachedList>,
    /// Number of readings started so far.
    begun: AtomicU64,
    /// Number of list-changed notifications so far.
    changes: AtomicU64,
    reading: SingleFlight,
}

/// One reading of a list: its number, the number of list-changed notifications before it, and when it began.
#[derive(Clone, Copy, Debug)]
struct ListReading {
    reading: u64,
    changes: u64,
    at: Instant,
}

/// A cached list, when it was read, and by which reading.
#[derive(Debug)]
struct CachedList {
    listing: Arc<Listing>,
    at: Instant,
    reading: u64,
    /// When that reading began.
    began: Instant,
    /// The server has announced a change since.
    stale: AtomicBool,
}

impl CatalogCache {
    pub(super) fn slot(&self, kind: ItemKind) -> &CachedKind {
        let [tools, prompts, resources, templates, skills] = &self.slots;
        match kind {
            ItemKind::Tool | ItemKind::Method => tools,
            ItemKind::Prompt => prompts,
            ItemKind::Resource => resources,
            ItemKind::Template => templates,
            ItemKind::Skill => skills,
        }
    }

    /// Marks the lists of `kind` as changed. Templates and skills change with resources: they have no notification of their
    /// own.
    pub(super) fn changed(&self, kind: ItemKind) {
        self.slot(kind).changes.fetch_add(1, Ordering::AcqRel);
        if let Some(held) = &*self.slot(kind).held.load() {
            held.stale.store(true, Ordering::Relaxed);
        }
        if kind == ItemKind::Resource {
            self.changed(ItemKind::Template);
            self.changed(ItemKind::Skill);
        }
    }

    /// Whether every list in it has expired: each was read at least `age` ago, and the server's own cache lifetime,
    /// capped at `most`, has passed.
    pub(super) fn is_spent(&self, age: Duration, most: Duration) -> bool {
        let spent = |held: &Arc<CachedList>| {
            let lasts = Duration::from_millis(held.listing.ttl()).min(most);
            held.at.elapsed() >= age.max(lasts)
        };
        self.slots.iter().all(|slot| slot.held.load().as_ref().is_none_or(spent))
    }

    /// When one of its lists was last read; `None` if it has none.
    fn last_read(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| Some(slot.held.load().as_ref()?.at)).max()
    }

    fn is_of(&self, caller: &str) -> bool {
        self.place.as_ref().is_some_and(|place| *place.caller == *caller)
    }

    fn has(&self, slot: &CachedKind) -> bool {
        self.slots.iter().any(|own| std::ptr::eq(own, slot))
    }
}

impl CachedKind {
    /// The list, if it is younger than `age` or than the server's cache lifetime, and the server has announced no
    /// change.
    fn fresh(&self, age: Duration) -> Option<Arc<Listing>> {
        let held = self.held.load();
        let young = |held: &&Arc<CachedList>| {
            let age = age.max(Duration::from_millis(held.listing.ttl()));
            !held.stale.load(Ordering::Relaxed) && held.at.elapsed() < age
        };
        held.as_ref().filter(young).map(|held| Arc::clone(&held.listing))
    }

    /// The list, if the reading that found it began after `came` and the server has announced no change since.
    fn read_since(&self, came: Instant) -> Option<Arc<Listing>> {
        let held = self.held.load();
        let since =
            |held: &&Arc<CachedList>| !held.stale.load(Ordering::Relaxed) && held.began >= came;
        held.as_ref().filter(since).map(|held| Arc::clone(&held.listing))
    }

    /// Starts a reading and numbers it.
    fn begin(&self) -> ListReading {
        let changes = self.changes.load(Ordering::Acquire);
        ListReading {
            reading: self.begun.fetch_add(1, Ordering::Relaxed),
            changes,
            at: Instant::now(),
        }
    }

    /// Stores the result of a reading, unless a later reading has stored one. A result is stale at once if the server
    /// announced a change during the reading.
    fn keep(
        &self,
        listing: &Arc<Listing>,
        ListReading { reading, changes, at: began }: ListReading,
    ) {
        let at = Instant::now();
        let listing = Arc::clone(listing);
        let stale = AtomicBool::new(self.changes.load(Ordering::Acquire) != changes);
        let new = Arc::new(CachedList { listing, at, reading, began, stale });
        self.held.rcu(|held| match held {
            Some(held) if held.reading > reading => Some(Arc::clone(held)),
            Some(_) | None => Some(Arc::clone(&new)),
        });
    }
}

impl Upstream {
    /// The definitions of one kind that a decision about one of them is made from: from the cache, or read now if the
    /// cached list is older than the configured age. Takes the permit of the list, and the entry of the exchange that
    /// asks: a caller that may list nothing of a server causes no request to it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use gateway::{audit::ReadEntry, upstream::{OnBehalfOf, Upstream}};
    /// # use policy::engine::pipeline::Permit;
    /// # async fn read(upstream: Arc<Upstream>, permit: Permit, entry: &ReadEntry, caller: &OnBehalfOf) {
    /// drop(upstream.catalog(permit, entry, caller).await);
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use std::sync::Arc;
    /// # use gateway::{audit::ReadEntry, upstream::{OnBehalfOf, Upstream}};
    /// # use policy::engine::pipeline::Standing;
    /// # async fn read(upstream: Arc<Upstream>, answer: Standing, entry: &ReadEntry, caller: &OnBehalfOf) {
    /// drop(upstream.catalog(answer, entry, caller).await); // the answer to a question
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the list cannot be read, or the permit is for another server or a use.
    pub async fn catalog(
        self: &Arc<Self>,
        permit: Permit,
        on_record: &ReadEntry,
        on_behalf: &OnBehalfOf,
    ) -> Result<Arc<Listing>, UpstreamError> {
        self.catalog_within(permit, on_record, on_behalf, self.limits.response_timeout).await
    }

    /// Like [`Self::catalog`], with `patience` as the time limit for the server's answer.
    ///
    /// # Errors
    /// If the list cannot be read, or the permit is for another server or a use.
    pub async fn catalog_within(
        self: &Arc<Self>,
        permit: Permit,
        _on_record: &ReadEntry,
        on_behalf: &OnBehalfOf,
        patience: Duration,
    ) -> Result<Arc<Listing>, UpstreamError> {
        match permit.spend_on_reading() {
            Some((server, kind)) if server == self.name => {
                let age = self.limits.catalog_age;
                let listing = self.listing(on_behalf, kind, age, patience).await;
                match (self.list_pauses.of(kind), &listing) {
                    (Some(pause), Ok(_)) => pause.answered(),
                    (Some(pause), Err(UpstreamError::Timeout(_))) => {
                        pause.timed_out(Instant::now());
                    }
                    (Some(_) | None, _) => {}
                }
                listing
            }
            Some(_) | None => Err(MISDIRECTED),
        }
    }

    /// Like [`Self::catalog_within`], for the gateway itself: at its start, and for an operator who looks at a server.
    /// Needs no proof: no caller asks, so there is no exchange to record. `patience` is the time limit for the answer,
    /// `responseTimeout` if not given.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub async fn own_catalog(
        self: &Arc<Self>,
        kind: ItemKind,
        patience: Option<Duration>,
    ) -> Result<Arc<Listing>, UpstreamError> {
        let patience = patience.unwrap_or(self.limits.response_timeout);
        self.listing(&OnBehalfOf::gateway(), kind, self.limits.catalog_age, patience).await
    }

    /// The definitions of one kind, not older than `age` or than the server's own cache lifetime.
    ///
    /// Each list has one reading at a time, because reading takes memory. With an `age` of zero the first waiter
    /// reads again, and the other waiters get its result, because that reading began after they arrived.
    pub(super) async fn listing(
        self: &Arc<Self>,
        on_behalf: &OnBehalfOf,
        kind: ItemKind,
        age: Duration,
        patience: Duration,
    ) -> Result<Arc<Listing>, UpstreamError> {
        let came = Instant::now();
        let until = came + patience.min(self.limits.response_timeout);
        if let Some(listing) = self.shared.slot(kind).fresh(age).filter(|l| l.is_public()) {
            return Ok(listing);
        }
        let cached = self.cached(on_behalf).await?;
        let slot = cached.slot(kind);
        if let Some(listing) = slot.fresh(age) {
            return Ok(listing);
        }
        let known = |slot: &CachedKind| match age.is_zero() {
            true => slot.read_since(came),
            false => slot.fresh(age),
        };
        let patience = match age.is_zero() {
            true => until.saturating_duration_since(Instant::now()),
            false => self.limits.response_timeout,
        };
        // Boxed, because it is rare and large, and the futures of all calls would have room for it.
        let read = || Box::pin(self.read(slot, on_behalf, kind, until));
        let public = || known(self.shared.slot(kind)).filter(|l| l.is_public());
        Box::pin(slot.reading.take(patience, || known(slot).or_else(public), read)).await
    }

    /// The cache with the lists for `on_behalf`, added if there is none.
    async fn cached(&self, on_behalf: &OnBehalfOf) -> Result<Arc<CatalogCache>, UpstreamError> {
        let whom = match &on_behalf.upstream_session {
            // A server without session ids cannot tell its sessions apart, so its lists are cached by caller.
            Some(upstream_session) if upstream_session.id.is_some() => {
                CatalogOwner::Session(upstream_session.clone())
            }
            Some(_) => CatalogOwner::Caller(on_behalf.capability_key()),
            None => {
                let known = self.known(on_behalf).await?;
                if on_behalf.principal.is_none() || self.is_shared(known.server_info.era) {
                    return Ok(Arc::clone(&self.shared));
                }
                match self.keeps_sessions(known.server_info.era) {
                    true => CatalogOwner::Standing(on_behalf.session_key()),
                    false => CatalogOwner::Caller(on_behalf.capability_key()),
                }
            }
        };
        if let Some(cached) = self.catalogs.get(&whom) {
            return Ok(cached);
        }
        let Some(caller) = on_behalf.caller() else { return Ok(Arc::default()) };
        let caller: Arc<str> = caller.into();
        let share = self.places.take(&caller, 1).or_else(|_none| {
            // Clients that disappear without closing their session leave their lists behind.
            self.forget_oldest(&caller, None);
            self.places.take(&caller, 1)
        });
        let Ok(share) = share else { return Ok(Arc::default()) };
        let place = Some(CacheShare { caller, _share: share });
        let cached = Arc::new(CatalogCache { place, ..CatalogCache::default() });
        if self.catalogs.insert(whom.clone(), Arc::clone(&cached)).is_ok() {
            return Ok(self.catalogs.get(&whom).unwrap_or(cached));
        }
        self.catalogs.retain(|_, cached| !cached.is_spent(self.limits.catalog_age, Duration::ZERO));
        // Without room in the cache, the list is read for every request: slower, not wrong.
        if let Err(full) = self.catalogs.insert(whom, Arc::clone(&cached)) {
            tracing::debug!(server = %self.name, %full, "the lists of a session are not cached");
        }
        Ok(cached)
    }

    /// Evicts the least recently read cache of a caller, except the one that holds `slot`. Returns whether there was
    /// one.
    fn forget_oldest(&self, caller: &str, slot: Option<&CachedKind>) -> bool {
        let mut oldest: Option<(Option<Instant>, CatalogOwner)> = None;
        self.catalogs.retain(|whom, cached| {
            if cached.is_of(caller) && !slot.is_some_and(|slot| cached.has(slot)) {
                let read = cached.last_read();
                if oldest.as_ref().is_none_or(|(before, _)| read < *before) {
                    oldest = Some((read, whom.clone()));
                }
            }
            true
        });
        oldest.is_some_and(|(_, whom)| self.catalogs.remove(&whom).is_some())
    }

    /// Reserves room for a list in the share of its caller, and evicts older lists of that caller if necessary. A
    /// list without room is read for every request.
    fn has_room(&self, slot: &CachedKind, listing: &Listing, caller: Option<&str>) -> bool {
        let Some(caller) = caller else { return true };
        if listing.share().get().is_some() {
            return true;
        }
        let (caller, weight) = (Arc::<str>::from(caller), listing.weight());
        let mut share = self.lists.take(&caller, weight);
        if share.is_err() {
            // The list replaces the previous one in the slot.
            slot.held.store(None);
            share = self.lists.take(&caller, weight);
        }
        for _ in 0..FORGOTTEN {
            if share.is_ok()
                || weight > self.lists.limit_of(&caller)
                || !self.forget_oldest(&caller, Some(slot))
            {
                break;
            }
            share = self.lists.take(&caller, weight);
        }
        match share {
            // A concurrent reader of the same list may have set a share first; this one is then dropped.
            Ok(share) => drop(listing.share().set(share)),
            Err(none) => {
                tracing::debug!(server = %self.name, %none, "a list is not cached");
                return false;
            }
        }
        true
    }

    /// Reserves room for a list that is kept in `slot` for all callers; the previous list in the slot makes room. A
    /// list without room is read for every request.
    fn has_room_for_all(&self, slot: &CachedKind, listing: &Listing) -> bool {
        if listing.share().get().is_some() {
            return true;
        }
        let (server, weight) = (Arc::<str>::from(self.name.as_str()), listing.weight());
        let share = self.lists_for_all.take(&server, weight).or_else(|_none| {
            slot.held.store(None);
            self.lists_for_all.take(&server, weight)
        });
        match share {
            // A concurrent reader of the same list may have set a share first; this one is then dropped.
            Ok(share) => drop(listing.share().set(share)),
            Err(none) => {
                tracing::warn!(
                    event = "catalog.not_cached", server = %self.name,
                    kind = listing.kind().as_str(), %none,
                    "a list is not cached: it is read for every request"
                );
                return false;
            }
        }
        true
    }

    /// Deduplicates a list: returns the cached one with the same digest, if any caller has it.
    fn same(&self, listing: Listing) -> Arc<Listing> {
        let known = self.same.get(listing.digest());
        if let Some(known) = known.and_then(|known| known.upgrade()) {
            return known;
        }
        let listing = Arc::new(listing);
        self.same.remove(listing.digest());
        if self.same.insert(*listing.digest(), Arc::downgrade(&listing)).is_err() {
            self.same.retain(|_, listing| listing.strong_count() > 0);
        }
        listing
    }

    /// The definitions of a kind as last read without a caller; `None` if they never were.
    #[must_use]
    pub fn last_catalog(&self, kind: ItemKind) -> Option<Arc<Catalog>> {
        let held = self.shared.slot(kind).held.load();
        held.as_ref().map(|held| Arc::clone(held.listing.catalog()))
    }

    /// Whether the server has a tool or prompt called `name`, as last read without a caller. `None` if that is not
    /// known, and for a URI, which any resource template may match.
    #[must_use]
    pub fn lists(&self, name: &str) -> Option<bool> {
        if name.contains(':') {
            return None;
        }
        let lists = |kind| {
            let held = self.shared.slot(kind).held.load();
            held.as_ref().map(|held| held.listing.catalog().offer(name).is_some())
        };
        let tools = lists(ItemKind::Tool)?;
        Some(tools || lists(ItemKind::Prompt).unwrap_or_default())
    }

    /// Whether all callers share one session with the server, which then cannot tell them apart.
    #[must_use]
    pub fn is_shared(&self, era: Era) -> bool {
        match &self.transport {
            Transport::Http(_) => false,
            Transport::Channel(pool) => !pool.own() && era == Era::Legacy,
        }
    }

    /// Whether the server keeps state for each session, so the gateway opens one for each caller without its own.
    pub(super) fn keeps_sessions(&self, era: Era) -> bool {
        match &self.transport {
            Transport::Http(_) => era == Era::Legacy,
            Transport::Channel(pool) => pool.own(),
        }
    }

    /// Handles a list-changed notification: no cached list of `kind` is fresh any more.
    pub(super) fn changed(&self, kind: ItemKind) {
        self.shared.changed(kind);
        self.catalogs.retain(|_, cached| {
            cached.changed(kind);
            true
        });
    }

    /// Marks the list of skills as changed, because an answer about a skill was not the listed one: the next caller gets a
    /// list that was read anew.
    pub fn skills_changed(&self) {
        self.changed(ItemKind::Skill);
    }

    /// Reads all lists of the server again, regardless of their cache lifetime, and compares them with the lockfile. Needs
    /// no proof: no caller asks, and the gateway reads for itself.
    pub async fn recheck(self: &Arc<Self>) {
        if self.is_revoked() {
            return;
        }
        let ourselves = OnBehalfOf::gateway();
        // Callers get no list that is older than this recheck, regardless of the server's cache lifetime.
        self.replaced();
        self.pin_monitor.outdate(&self.name);
        // A failure was logged where the request was made.
        let Ok(server_info) = self.ask_again(&ourselves).await else { return };
        self.compare(&server_info);
        // Lists for capable clients come first: they may contain definitions that the list for all lacks.
        match self.capable_again().await {
            Ok(found) => {
                found.server_infos.iter().for_each(|server_info| self.compare(server_info))
            }
            Err(error) => {
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::debug!(
                    server = %self.name, %error,
                    "the lists for clients with capabilities could not be read"
                );
            }
        }
        for kind in ItemKind::LISTED.into_iter().filter(|kind| server_info.has(*kind)) {
            drop(self.own_catalog(kind, None).await);
        }
    }

    /// Asks for the server's information again. A program is asked once, when it is started.
    async fn ask_again(&self, on_behalf: &OnBehalfOf) -> Result<Arc<ServerInfo>, UpstreamError> {
        let known = self.known(on_behalf).await?;
        match (&self.transport, known.server_info.era) {
            (Transport::Channel(_), _) => Ok(Arc::clone(&known.server_info)),
            (Transport::Http(_), Era::Modern) => {
                let found = self.discover(on_behalf, known.generation, None).await?;
                let Some(found) = found else { return Ok(Arc::clone(&known.server_info)) };
                let server_info = Arc::clone(&found.server_info);
                self.known.store(Some(Arc::new(found)));
                Ok(server_info)
            }
            (Transport::Http(_), Era::Legacy) => {
                let opened = self
                    .session(ProtocolVersion::LAST_LEGACY, on_behalf, ConnectionScope::Session)
                    .await?;
                if let Some(upstream_session) = &opened.upstream_session {
                    self.close(on_behalf, upstream_session, opened.since.elapsed()).await;
                }
                let (server_info, upstream_session) =
                    (Arc::clone(&opened.server_info), known.upstream_session.clone());
                let (generation, since) = (known.generation, known.since);
                let found = ServerState { server_info, generation, upstream_session, since };
                self.known.store(Some(Arc::new(found)));
                Ok(opened.server_info)
            }
        }
    }

    /// Marks all lists as stale, because the server may have been replaced by another.
    pub(super) fn replaced(&self) {
        ItemKind::LISTED.into_iter().for_each(|kind| self.changed(kind));
    }

    /// Reads every page of a list. Opens a new session and repeats this once if the gateway's own was forgotten.
    pub(super) async fn read(
        self: &Arc<Self>,
        slot: &CachedKind,
        on_behalf: &OnBehalfOf,
        kind: ItemKind,
        until: Instant,
    ) -> Result<Arc<Listing>, UpstreamError> {
        let upstream_session = self.reach(on_behalf).await?;
        let read = self.pages(slot, on_behalf, upstream_session.as_ref(), kind, until).await;
        let read = match read {
            Err(UpstreamError::SessionGone) if on_behalf.upstream_session.is_none() => {
                self.lost(on_behalf, upstream_session.as_ref());
                let upstream_session = self.reach(on_behalf).await?;
                self.pages(slot, on_behalf, upstream_session.as_ref(), kind, until).await
            }
            read => read,
        };
        self.noted(read)
    }

    /// Reads every page of a list over one session, and caches the list.
    async fn pages(
        &self,
        slot: &CachedKind,
        on_behalf: &OnBehalfOf,
        upstream_session: Option<&UpstreamSession>,
        kind: ItemKind,
        deadline: Instant,
    ) -> Result<Arc<Listing>, UpstreamError> {
        let (speaker, shared) = (on_behalf.speaker(upstream_session), self.shared.slot(kind));
        let held = slot.held.load_full();
        let public = || shared.held.load_full().filter(|held| held.listing.is_public());
        let held = held.or_else(public).map(|held| Arc::clone(&held.listing));
        let begun = Instant::now();
        let keeping = CacheTarget {
            slot,
            own: slot.begin(),
            shared: shared.begin(),
            caller: on_behalf.caller(),
        };
        let former = held.as_ref().map(|held| Arc::clone(held.catalog()));
        let mut pages = PageCollector::new(self.name.clone(), kind, &self.limits, former);
        let mut cursor = None;
        // The budget of the pages is held until the list is cached or no longer used.
        let mut counted = self.counts_pages(on_behalf);
        loop {
            let id = self.id();
            let outgoing = request::list(id, kind, cursor.as_deref(), speaker);
            let mut messages = self.send(&outgoing, deadline).await?;
            let text = messages.text(deadline, self.limits.response_timeout).await?;
            if let (Some(text), Some(held), None) = (&text, &held, &cursor)
                && held.is_repeated_by(text, id)
            {
                if self.pin_monitor.has_moved(held.epoch()) {
                    self.noted_list(slot, held, begun).await?;
                }
                self.keep(keeping, held);
                return Ok(Arc::clone(held));
            }
            let outcome = match &text {
                Some(text) => self.outcome(messages.read(text.clone()).await?, id)?,
                None => self.wait(&mut messages, id, speaker, deadline).await?,
            };
            let streamed = messages.is_streamed();
            let received = messages.received();
            self.done(messages);
            if let ResponseOutcome::Error(error) = &outcome {
                let list = FailedRequest::List(kind.list());
                self.explain_denial(list, error.value(), Instant::now().into_std());
            }
            let Some(result) = page(outcome, cursor.as_deref())? else {
                // A server without the method has no definitions of the kind.
                let listing = Arc::new(pages.finish(None, false));
                self.noted_list(slot, &listing, begun).await?;
                self.keep(keeping, &listing);
                return Ok(listing);
            };
            (pages, cursor) =
                pages.take(result.clone(), self.tasks.offload(), &self.limits).await?;
            // From here on `counted` covers this page with those before it.
            drop(received);
            counted.holds(pages.memory()).map_err(UpstreamError::Memory)?;
            if cursor.is_none() {
                // The parsed text: members that only the gateway may set were removed from the received one.
                let source = text.and_then(|_| {
                    let document = result.document();
                    Some((document.text().clone(), document.root().get("id")?.span()))
                });
                let listing = pages.finish(source, streamed);
                counted.holds(listing.weight()).map_err(UpstreamError::Memory)?;
                listing.is_counted_in(counted);
                let listing = self.kept_once(slot, listing);
                self.noted_list(slot, &listing, begun).await?;
                self.keep(keeping, &listing);
                return Ok(listing);
            }
        }
    }

    /// A list that was read, or the equal one that is kept for another caller: comparing the list for one caller covers
    /// the other callers who get the same list.
    fn kept_once(&self, slot: &CachedKind, listing: Listing) -> Arc<Listing> {
        match self.audience(slot, &listing) {
            ListAudience::Caller => self.same(listing),
            ListAudience::All | ListAudience::Plain | ListAudience::Capable(_) => Arc::new(listing),
        }
    }

    /// The memory budget for the pages of a list that is read for `on_behalf`. On a channel that callers share it counts
    /// against the caller only, so that one caller's lists do not block the channel for others.
    fn counts_pages(&self, on_behalf: &OnBehalfOf) -> ResponseAccount {
        let server: Arc<str> = self.name.as_str().into();
        match (&self.transport, on_behalf.caller()) {
            (Transport::Channel(_), Some(caller)) => {
                self.answers.begin_for(&server, Some(&caller.into()))
            }
            (Transport::Channel(_) | Transport::Http(_), caller) => {
                self.answers.begin(&server, caller)
            }
        }
    }

    /// The audience to which the server shows a list.
    fn audience(&self, slot: &CachedKind, listing: &Listing) -> ListAudience {
        if let Some(era) = self.capable.era_of(slot, listing.kind()) {
            return ListAudience::Capable(era);
        }
        match listing.is_public() || std::ptr::eq(self.shared.slot(listing.kind()), slot) {
            true if self.capable.is_pending() => ListAudience::Plain,
            true => ListAudience::All,
            false => ListAudience::Caller,
        }
    }

    /// Compares a list with the lockfile on a blocking thread, before any caller sees it.
    ///
    /// # Errors
    /// If the comparison did not finish; the list must not be used then.
    async fn noted_list(
        &self,
        slot: &CachedKind,
        listing: &Listing,
        begun: Instant,
    ) -> Result<(), UpstreamError> {
        self.pin_monitor.has_moved(listing.epoch());
        let (pin_monitor, catalog) = (Arc::clone(&self.pin_monitor), Arc::clone(listing.catalog()));
        let audience = self.audience(slot, listing);
        let noted =
            tokio::task::spawn_blocking(move || pin_monitor.note(&catalog, audience, begun));
        let what = "the list could not be compared with what was approved";
        noted.await.map_err(|_ended| UpstreamError::Protocol(what))
    }

    /// Caches a list if there is room: once for all if the server declares it public, otherwise in the slot it was
    /// read for.
    fn keep(&self, keeping: CacheTarget<'_>, listing: &Arc<Listing>) {
        let CacheTarget { slot, own, shared: begun, caller } = keeping;
        let shared = self.shared.slot(listing.kind());
        if std::ptr::eq(shared, slot) || self.capable.era_of(slot, listing.kind()).is_some() {
            if !self.has_room_for_all(slot, listing) {
                slot.held.store(None);
                return;
            }
            slot.keep(listing, own);
        } else if listing.is_public() {
            slot.held.store(None);
            if !self.has_room_for_all(shared, listing) {
                return;
            }
            shared.keep(listing, begun);
        } else if self.has_room(slot, listing, caller) {
            slot.keep(listing, own);
        } else {
            slot.held.store(None);
            return;
        }
        listing.is_kept();
    }
}

/// The slot in which a list will be cached once it is read.
#[derive(Clone, Copy, Debug)]
struct CacheTarget<'a> {
    slot: &'a CachedKind,
    /// The reading as numbered in `slot` and in the slot shared by all callers.
    own: ListReading,
    shared: ListReading,
    /// The caller it is read for; `None` for the gateway.
    caller: Option<&'a str>,
}

/// The page after `cursor` in the answer of a server; `None` if the server does not know the method.
///
/// # Errors
/// If the server answers with another error.
fn page(
    outcome: ResponseOutcome,
    cursor: Option<&str>,
) -> Result<Option<json::Fragment>, UpstreamError> {
    match outcome {
        ResponseOutcome::Result(result) => Ok(Some(result)),
        ResponseOutcome::Error(error) if cursor.is_none() && is_unknown(&error) => Ok(None),
        ResponseOutcome::Error(error) => {
            let code = error.value().get("code").and_then(json::Value::as_i64);
            Err(UpstreamError::ListError(code.unwrap_or_default()))
        }
    }
}

fn is_unknown(error: &json::Fragment) -> bool {
    let code = error.value().get("code").and_then(json::Value::as_i64);
    code == Some(i64::from(crate::mcp::protocol::code::METHOD))
}
