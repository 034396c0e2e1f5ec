//! The tools of a server: when they are read, and from where they are had meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::listing::{Listing, Pages};
use super::request::{self, Speech};
use super::turn::Turn;
use super::{Upstream, UpstreamError, http};
use crate::session::Leg;
use crate::wire::Outcome;

#[derive(Debug, Default)]
pub(super) struct Slot {
    held: ArcSwapOption<Held>,
    /// Counts the readings that were begun.
    begun: AtomicU64,
    reading: Turn,
}

/// A listing, when it was read, and which reading it was.
#[derive(Debug)]
struct Held {
    listing: Arc<Listing>,
    at: Instant,
    reading: u64,
}

impl Slot {
    /// The listing, if it was read less than `age` ago.
    fn fresh(&self, age: Duration) -> Option<Arc<Listing>> {
        let held = self.held.load();
        held.as_ref().filter(|held| held.at.elapsed() < age).map(|held| Arc::clone(&held.listing))
    }

    /// Keeps what a reading found, unless one that began later has found something already.
    fn keep(&self, listing: &Arc<Listing>, reading: u64) {
        let at = Instant::now();
        let new = Arc::new(Held { listing: Arc::clone(listing), at, reading });
        self.held.rcu(|held| match held {
            Some(held) if held.reading > reading => Some(Arc::clone(held)),
            Some(_) | None => Some(Arc::clone(&new)),
        });
    }
}

impl Upstream {
    /// Its tools as they were last read, or read now if that was too long ago. The gateway asks in
    /// its own name: nothing of a caller's goes out.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn catalog(&self, leg: Option<&Leg>) -> Result<Arc<Listing>, UpstreamError> {
        let slot = self.slot(leg);
        let age = self.limits.catalog_age;
        if let Some(listing) = slot.fresh(age) {
            return Ok(listing);
        }
        let patience = self.limits.answer_time;
        slot.reading.take(patience, || slot.fresh(age), || self.read(&slot, leg)).await
    }

    pub(super) fn slot(&self, leg: Option<&Leg>) -> Arc<Slot> {
        let Some(leg) = leg.filter(|leg| leg.id.is_some()) else { return Arc::clone(&self.shared) };
        if let Some(slot) = self.sessions.get(leg) {
            return slot;
        }
        let slot = Arc::new(Slot::default());
        if self.sessions.insert(leg.clone(), Arc::clone(&slot)).is_ok() {
            return slot;
        }
        // Clients that leave without a word leave their lists behind.
        self.sessions.retain(|_, slot| slot.fresh(self.limits.catalog_age).is_some());
        // With no room to keep it the list is read for every request: slower, not wrong.
        if let Err(full) = self.sessions.insert(leg.clone(), Arc::clone(&slot)) {
            tracing::debug!(server = %self.name, %full, "the tools of a session are not kept");
        }
        slot
    }

    /// Reads every page of the list.
    pub(super) async fn read(
        &self,
        slot: &Slot,
        leg: Option<&Leg>,
    ) -> Result<Arc<Listing>, UpstreamError> {
        let known = if leg.is_none() { Some(self.known().await?) } else { None };
        let speech = match (leg, &known) {
            (Some(leg), _) => Speech::Legacy(leg),
            (None, Some(known)) => known.speech(),
            (None, None) => Speech::Modern,
        };
        let read = self.pages(slot, speech).await;
        if matches!(read, Err(UpstreamError::SessionGone)) && leg.is_none() {
            self.known.store(None);
            let known = self.known().await?;
            return self.noted(self.pages(slot, known.speech()).await);
        }
        self.noted(read)
    }

    async fn pages(&self, slot: &Slot, speech: Speech<'_>) -> Result<Arc<Listing>, UpstreamError> {
        let held = slot.held.load_full().map(|held| Arc::clone(&held.listing));
        let reading = slot.begun.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + self.limits.answer_time;
        let mut pages = Pages::new(self.name.clone(), self.limits);
        let mut cursor = None;
        loop {
            let id = self.id();
            let outgoing = request::tools(id, cursor.as_deref(), speech);
            let mut messages = self.send(&outgoing, deadline).await?;
            let text = messages.text(deadline, self.limits.answer_time).await?;
            if let (Some(text), Some(held), None) = (&text, &held, &cursor)
                && held.is_repeated_by(text, id)
            {
                slot.keep(held, reading);
                return Ok(Arc::clone(held));
            }
            let outcome = match &text {
                Some(text) => self.outcome(http::read(text.clone()).await?, id)?,
                None => self.wait(&mut messages, id, speech, deadline).await?,
            };
            self.done(messages);
            let Outcome::Result(result) = outcome else {
                return Err(UpstreamError::Protocol("the server answered the list with an error"));
            };
            (pages, cursor) = pages.take(result.clone()).await?;
            if cursor.is_none() {
                let source = text.and_then(|text| {
                    let id = result.document().root().get("id")?.span();
                    Some((text, id))
                });
                let listing = Arc::new(pages.finish(source));
                slot.keep(&listing, reading);
                return Ok(listing);
            }
        }
    }
}
