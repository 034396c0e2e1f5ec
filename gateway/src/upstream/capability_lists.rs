//! Catalogs that an upstream server shows only to clients that can answer its requests: some servers offer certain
//! tools only to clients with elicitation, sampling or roots.
//!
//! The gateway reads these catalogs in its own name, with all capabilities that `serverRequests` of the server
//! allows, so that such tools can be approved and changes of them are noticed. A caller is never shown these lists;
//! it gets the lists that the server returns for its own client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use policy::definition::offer::ItemKind;
use policy::engine::ask::ServerRequestPolicy;
use tokio::time::Instant;

use super::catalog::{CachedKind, CatalogCache};
use super::demux::ConnectionScope;
use super::handshake::{ServerInfo, ServerState};
use super::listing::Listing;
use super::on_behalf_of::OnBehalfOf;
use super::{Transport, Upstream, UpstreamError};
use crate::mcp::client_info::AppUse;
use crate::mcp::protocol::{Era, ProtocolVersion};
use crate::session::disclosed_client::DisclosedClient;

/// The catalogs of a server for clients that can answer all requests it may send, one for each era.
#[derive(Debug)]
pub(super) struct CapableCatalogs {
    modern: CatalogCache,
    legacy: CatalogCache,
    /// When they were last read: 0 for never, otherwise the generation of the server's channel plus one.
    read: AtomicU64,
    /// The server may send requests to clients or show apps, so such lists may exist.
    exists: bool,
}

impl CapableCatalogs {
    /// Empty catalogs of a server that may send clients the requests in `server_requests`, and show `apps`.
    pub(super) fn new(server_requests: &ServerRequestPolicy, apps: AppUse) -> Self {
        let (modern, legacy) = (CatalogCache::default(), CatalogCache::default());
        let exists = !server_requests.is_nothing() || apps == AppUse::Allowed;
        Self { modern, legacy, read: AtomicU64::new(0), exists }
    }

    /// Whether such lists may exist that were not read yet.
    pub(super) fn is_pending(&self) -> bool {
        self.exists && self.read.load(Ordering::Acquire) == 0
    }

    /// The era in which the list in `slot` is shown, if `slot` is one of these.
    pub(super) fn era_of(&self, slot: &CachedKind, kind: ItemKind) -> Option<Era> {
        let is = |cached: &CatalogCache| std::ptr::eq(cached.slot(kind), slot);
        match (is(&self.modern), is(&self.legacy)) {
            (true, _) => Some(Era::Modern),
            (_, true) => Some(Era::Legacy),
            (false, false) => None,
        }
    }

    fn cached(&self, era: Era) -> &CatalogCache {
        match era {
            Era::Modern => &self.modern,
            Era::Legacy => &self.legacy,
        }
    }
}

/// The information and the lists of a server, as a client that can answer all its requests gets them in each era.
#[derive(Debug, Default)]
pub struct CapableOffer {
    /// The server's information in each era.
    pub server_infos: Vec<Arc<ServerInfo>>,
    /// The server's lists in each era.
    pub listings: Vec<Arc<Listing>>,
}

impl Upstream {
    /// Reads what the server offers to clients that can answer all requests it may send. Empty if it may send none.
    /// Skips a legacy server with which all clients share one session, because it sees the capabilities of the
    /// gateway alone. Needs no proof: no caller asks, and the gateway reads for itself.
    ///
    /// # Errors
    /// If the server cannot be reached or a list cannot be read.
    pub async fn offered_to_capable(self: &Arc<Self>) -> Result<CapableOffer, UpstreamError> {
        let mut offered = CapableOffer::default();
        if !self.capable.exists {
            return Ok(offered);
        }
        let on_behalf = OnBehalfOf {
            client: DisclosedClient::capable_of(&self.server_requests, self.apps),
            ..OnBehalfOf::gateway()
        };
        let known = self.known(&on_behalf).await?;
        let session = match known.server_info.era {
            Era::Modern => {
                self.read_offered(&on_behalf, &known.server_info, &mut offered).await?;
                self.legacy_session(&on_behalf).await?
            }
            Era::Legacy => self.capable_session(&on_behalf).await?,
        };
        if let Some(opened) = session {
            let on_behalf =
                OnBehalfOf { upstream_session: opened.upstream_session.clone(), ..on_behalf };
            let read = self.read_offered(&on_behalf, &opened.server_info, &mut offered).await;
            if let Some(upstream_session) = &opened.upstream_session {
                self.close(&on_behalf, upstream_session, opened.since.elapsed()).await;
            }
            read?;
            offered.server_infos.push(opened.server_info);
        }
        self.capable.read.store(known.generation.saturating_add(1), Ordering::Release);
        Ok(offered)
    }

    /// Like [`Self::offered_to_capable`], for the periodic recheck. Returns nothing for a program whose lists were
    /// read since its last start, because they stay the same until it is started again.
    pub(super) async fn capable_again(self: &Arc<Self>) -> Result<CapableOffer, UpstreamError> {
        if let Transport::Channel(_) = &self.transport
            && self.capable.exists
        {
            let generation = self.known(&OnBehalfOf::gateway()).await?.generation;
            if self.capable.read.load(Ordering::Acquire) == generation.saturating_add(1) {
                return Ok(CapableOffer::default());
            }
        }
        self.offered_to_capable().await
    }

    /// Opens a session with a legacy server as a client with these capabilities; `None` where clients have no
    /// sessions of their own.
    async fn capable_session(
        &self,
        on_behalf: &OnBehalfOf,
    ) -> Result<Option<ServerState>, UpstreamError> {
        let own = match &self.transport {
            Transport::Http(_) => true,
            Transport::Channel(pool) => pool.own(),
        };
        if !own {
            return Ok(None);
        }
        self.session(ProtocolVersion::LAST_LEGACY, on_behalf, ConnectionScope::Session)
            .await
            .map(Some)
    }

    async fn read_offered(
        self: &Arc<Self>,
        on_behalf: &OnBehalfOf,
        server_info: &ServerInfo,
        offered: &mut CapableOffer,
    ) -> Result<(), UpstreamError> {
        for kind in ItemKind::LISTED.into_iter().filter(|kind| server_info.has(*kind)) {
            let until = Instant::now() + self.limits.response_timeout;
            let slot = self.capable.cached(server_info.era).slot(kind);
            offered.listings.push(self.read(slot, on_behalf, kind, until).await?);
        }
        Ok(())
    }
}
