//! What a server offers to clients that can be asked something: some offer tools to those alone that offer
//! elicitation, sampling or roots.
//!
//! The gateway asks for it in its own name, saying that it can be asked whatever the server may ask
//! (`serverRequests`), so that such tools can be approved and their changes are seen. A caller is never shown
//! these lists: it gets those that the server has for its own client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use policy::ask::Asks;
use policy::offer::Kind;
use tokio::time::Instant;

use super::catalog::{Shelf, Slot};
use super::demux::Serves;
use super::handshake::{Hello, Known};
use super::listing::Listing;
use super::on_behalf_of::Party;
use super::{Transport, Upstream, UpstreamError};
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, Version};

/// What is known of what a server offers to clients that can be asked something.
#[derive(Debug)]
pub(super) struct CapableShelves {
    modern: Shelf,
    legacy: Shelf,
    /// When it was last read: 0 never, otherwise one more than the generation of the server's channel.
    read: AtomicU64,
    /// The server may ask something, so it may have such lists.
    exists: bool,
}

impl CapableShelves {
    /// Nothing is known yet of a server that may ask this.
    pub(super) fn new(asks: &Asks) -> Self {
        let (modern, legacy) = (Shelf::default(), Shelf::default());
        Self { modern, legacy, read: AtomicU64::new(0), exists: !asks.is_nothing() }
    }

    /// Whether there may be such lists that were not read yet.
    pub(super) fn is_pending(&self) -> bool {
        self.exists && self.read.load(Ordering::Acquire) == 0
    }

    /// In which era the list of `slot` is shown, where it is one of these.
    pub(super) fn era_of(&self, slot: &Slot, kind: Kind) -> Option<Era> {
        let is = |shelf: &Shelf| std::ptr::eq(shelf.slot(kind), slot);
        match (is(&self.modern), is(&self.legacy)) {
            (true, _) => Some(Era::Modern),
            (_, true) => Some(Era::Legacy),
            (false, false) => None,
        }
    }

    fn shelf(&self, era: Era) -> &Shelf {
        match era {
            Era::Modern => &self.modern,
            Era::Legacy => &self.legacy,
        }
    }
}

/// What a server says and offers to clients that can be asked whatever it may ask, in each era in which it is
/// spoken to.
#[derive(Debug, Default)]
pub struct Offered {
    /// What it says of itself.
    pub hellos: Vec<Arc<Hello>>,
    /// Its lists.
    pub listings: Vec<Arc<Listing>>,
}

impl Upstream {
    /// Asks what the server offers to clients that can be asked whatever it may ask. Nothing where it may ask
    /// nothing, and where all clients share one legacy conversation, in which it sees the gateway alone.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn offered_to_capable(self: &Arc<Self>) -> Result<Offered, UpstreamError> {
        let mut offered = Offered::default();
        if self.asks.is_nothing() {
            return Ok(offered);
        }
        let party = Party { client: Client::capable_of(&self.asks), ..Party::gateway() };
        let known = self.known(&party).await?;
        let session = match known.hello.era {
            Era::Modern => {
                self.read_offered(&party, &known.hello, &mut offered).await?;
                self.legacy_session(&party).await?
            }
            Era::Legacy => self.capable_session(&party).await?,
        };
        if let Some(opened) = session {
            let party = Party { leg: opened.leg.clone(), ..party };
            let read = self.read_offered(&party, &opened.hello, &mut offered).await;
            if let Some(leg) = &opened.leg {
                self.close(&party, leg, opened.since.elapsed()).await;
            }
            read?;
            offered.hellos.push(opened.hello);
        }
        self.capable.read.store(known.generation.saturating_add(1), Ordering::Release);
        Ok(offered)
    }

    /// The same for the background. A program offers the same until it is started again, so it is asked once
    /// for each start.
    pub(super) async fn capable_again(self: &Arc<Self>) -> Result<Offered, UpstreamError> {
        if let Transport::Channel(_) = &self.transport
            && !self.asks.is_nothing()
        {
            let generation = self.known(&Party::gateway()).await?.generation;
            if self.capable.read.load(Ordering::Acquire) == generation.saturating_add(1) {
                return Ok(Offered::default());
            }
        }
        self.offered_to_capable().await
    }

    /// A session with a legacy server in the name of a client that can be asked something, where clients get
    /// sessions of their own.
    async fn capable_session(&self, party: &Party) -> Result<Option<Known>, UpstreamError> {
        let own = match &self.transport {
            Transport::Http(_) => true,
            Transport::Channel(seats) => seats.own(),
        };
        if !own {
            return Ok(None);
        }
        self.session(Version::LAST_LEGACY, party, Serves::Session).await.map(Some)
    }

    async fn read_offered(
        self: &Arc<Self>,
        party: &Party,
        hello: &Hello,
        offered: &mut Offered,
    ) -> Result<(), UpstreamError> {
        for kind in Kind::LISTED.into_iter().filter(|kind| hello.has(*kind)) {
            let until = Instant::now() + self.limits.answer_time;
            let slot = self.capable.shelf(hello.era).slot(kind);
            offered.listings.push(self.read(slot, party, kind, until).await?);
        }
        Ok(())
    }
}
