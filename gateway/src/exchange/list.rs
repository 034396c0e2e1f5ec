//! `tools/list`, `prompts/list`, `resources/list` and `resources/templates/list`, and the lookup of a listed name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use detection::inspect::{Detector, Finding};
use detection::labels::LabelledPart as SpokenPart;
use futures_util::future::join_all;
use http::Response;
use json::{Document, Fragment, JsonBounds};
use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
use policy::engine::message::Reply;
use policy::engine::pipeline::{
    CatalogView, EarlyMessage, Expectation, Facts, Permit, Policy, Shown, VisibleReply,
};
use policy::engine::places::is_meta;
use policy::flow::memory::ResultSource;
use policy::rules::decision::{Decision, Denial, Effect, Reason};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use tokio::time::timeout;

use super::call::RequestTarget;
use super::list_tokens::OwnDefinitions;
use super::loads::listed_names;
use super::planners::is_reviewed;
use super::{DecodedRequest, Gateway};
use crate::audit::{ReadEntry, Record, RecordedDecision, UNSEEN, WithheldItem};
use crate::base::offload::OffloadError;
use crate::edge::encode::{self, ListedItems};
use crate::edge::failure::Failure;
use crate::mcp::protocol::Era;
use crate::mcp::tool_naming::{self, Naming};
use crate::mcp::wire::{Id, Object};
use crate::metrics::outcome::ExchangeEnd;
use crate::stream::body::Body;
use crate::upstream::{Listing, OnBehalfOf, RenderedView, Upstream, UpstreamError};

/// Most bytes of listed resources of which a flow remembers each value; of more it forgets which values it knew.
const LISTED: usize = 256 * 1024;

/// A server's listing, and its encoding for the caller.
type EncodedListing = (Arc<Listing>, Arc<RenderedView>);

/// A server with its index on the route, and the permit for its list.
type ListPermit<'a> = (usize, &'a Arc<Upstream>, Permit);

/// What a caller is shown of the lists of the servers on a route.
pub(super) struct ShownLists {
    /// The lists, as they are written for the caller.
    pub(super) shown: Vec<EncodedListing>,
    /// The servers whose part is missing, of which the caller is told.
    pub(super) missing: Vec<ServerName>,
}

/// A server's listing, and the caller's view of it.
type ListingView = (Arc<Upstream>, Arc<Listing>, Arc<CatalogView>);

/// A server's listing before the listings of the other servers are known.
struct ServerListing {
    server: Arc<Upstream>,
    listing: Arc<Listing>,
    expectation: Expectation,
}

/// What the servers on a route answered to a list.
#[derive(Default)]
struct ReadListings<'a> {
    parts: Vec<ServerListing>,
    /// The servers whose part is missing, of which the caller is told.
    missing: Vec<ServerName>,
    /// Those servers, with the errors.
    failed: Vec<(&'a Arc<Upstream>, UpstreamError)>,
    /// Whether the identity of some server is not the approved one.
    has_identity_mismatch: bool,
}

/// A server whose catalog is read to find a name in it, with the permit for that.
struct CatalogToRead<'a> {
    server_index: usize,
    server: &'a Arc<Upstream>,
    permit: Permit,
}

/// A server with its catalog, on a route where several servers may have a name.
struct SeenCatalog<'a> {
    server_index: usize,
    server: &'a Arc<Upstream>,
    listing: Arc<Listing>,
}

/// Additional time for a list, so that the timeout of the server's connection expires first.
const GRACE: Duration = Duration::from_millis(100);

impl Gateway {
    /// Logs and counts that a list lacks the definitions of a server.
    fn note_missing(&self, server: &ServerName, kind: ItemKind) {
        tracing::warn!(
            event = "list.incomplete", %server, kind = kind.as_str(),
            "a list was returned without the definitions of this server"
        );
        self.metrics.partial_lists.add(1);
    }

    /// Lists what the caller may see of every server on the route.
    pub(super) async fn list(
        &self,
        arrived: DecodedRequest,
        kind: ItemKind,
        mut record: Box<Record>,
    ) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        let era = arrived.inbound.version.era();
        let permits = self.listable(&arrived, kind, &mut record);
        if let [server] = &*arrived.route.servers {
            record.server = Some(server.name().as_str().into());
        }
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let lists = self.shown_lists(&arrived, kind, permits, &mut entry).await;
        let ShownLists { shown, missing } = match lists {
            Ok(lists) => lists,
            Err(failure) => return self.failed(entry, &failure, Some(&id)),
        };
        let short = match self.short_lists(&arrived, kind, &shown).await {
            Ok(short) => short,
            Err(_refused) => return self.failed(entry, &Failure::Overload, Some(&id)),
        };
        let discovery = self.discovery_tools(&arrived, kind);
        let mut others: Vec<_> = self.decoys_shown(&arrived, kind).into_iter().collect();
        others.extend(self.channel_tool(&arrived, kind));
        if kind == ItemKind::Tool {
            let own = OwnDefinitions { discovery: &discovery, others: &others };
            self.note_list_tokens(&arrived.route, &shown, &short, own);
        }
        let loaded = self.loaded(&arrived, kind, &entry);
        let only = listed_names(&arrived.route, kind, loaded.as_ref());
        let own = [discovery, others].concat();
        let items = ListedItems { shown: &shown, short: &short, only, own };
        if let Some((seen, _)) = &mut entry.listed {
            *seen = only.map_or(*seen, |_| items.count()) + items.own.len();
        }
        let mut found = Vec::new();
        let extra = self.beside(&arrived, &shown, &mut found).await;
        entry.found(found);
        let response = encode::list(&id, era, kind, &items, extra.as_ref(), &missing);
        // A legacy client may rely on a stream if the server answers with one.
        let streamed = shown.iter().any(|(listing, _)| listing.is_streamed());
        let response =
            if streamed && era == Era::Legacy { encode::one_event(response) } else { response };
        let reason = if missing.is_empty() { None } else { Some("partial") };
        self.shown(entry, ExchangeEnd { reason, ..ExchangeEnd::answered() }, Some(&id), response)
    }

    /// What the caller is shown of the lists of these servers, now. What is not shown is noted in the record.
    pub(super) async fn shown_lists(
        &self,
        arrived: &DecodedRequest,
        kind: ItemKind,
        permits: Vec<ListPermit<'_>>,
        entry: &mut ReadEntry,
    ) -> Result<ShownLists, Failure> {
        let started = self.clock.instant();
        let of = &*entry;
        let reads = permits.into_iter().map(|(server_index, server, permit)| {
            self.read(arrived, of, server_index, server, permit)
        });
        let read = join_all(reads).await;
        (entry.upstream_duration, entry.sent_at) = (self.since(started), Some(started));
        let ReadListings { parts, missing, failed, has_identity_mismatch } = self.sorted(read);
        if parts.is_empty()
            && let Some(failure) = of_servers(failed, entry)
        {
            return Err(failure);
        }
        let parts_are_empty = parts.is_empty();
        for part in &parts {
            let cleaned = self.clean(arrived, part.listing.catalog()).await;
            cleaned.map_err(|_refused| Failure::Overload)?;
        }
        let shown = self.written(arrived, kind, parts).map_err(Failure::Upstream)?;
        if has_identity_mismatch && parts_are_empty {
            entry.decision = RecordedDecision::Decided(Box::new(Policy::of_stranger().0));
        }
        let count = |(seen, hidden): (usize, usize), part: &EncodedListing| {
            let (more, withheld) = part.1.view().counts();
            (seen + more, hidden + withheld)
        };
        entry.listed = Some(shown.iter().fold((0, 0), count));
        entry.hidden_items = unseen(&shown);
        self.note_left_out(arrived, &shown, entry);
        self.remember_listed(arrived, &shown, entry);
        for server in &missing {
            self.note_missing(server, kind);
        }
        Ok(ShownLists { shown, missing })
    }

    /// Remembers in the flow what a list shows of resources that nobody has reviewed: their names and titles are words of
    /// others, like those of a result.
    fn remember_listed(&self, arrived: &DecodedRequest, shown: &[EncodedListing], record: &Record) {
        let is_made = shown.iter().any(|(part, _)| part.catalog().kind() == ItemKind::Resource);
        let Some(flow) = self.flow_of(arrived, record).filter(|_| is_made) else { return };
        let (facts, policy) = (self.policy.facts(), self.policy.flow());
        for (listing, written) in shown {
            let catalog = listing.catalog();
            if catalog.kind() != ItemKind::Resource {
                continue;
            }
            let (server, kind) = (catalog.server(), catalog.kind());
            let left_out = self.left_out(&arrived.route, catalog).unwrap_or_default();
            let made = written.view().offers().filter(|offer| {
                let name = offer.name().as_str();
                !left_out.contains(name) && !is_reviewed(&facts, server, kind, name)
            });
            let made: Vec<_> = made.collect();
            let bytes: usize = made.iter().map(|offer| offer.definition().span().len()).sum();
            for offer in made {
                let labels = policy.labels_of(server, kind, offer.name().as_str()).labels;
                let source = ResultSource { labels, vouched: &[], runs: policy.runs() };
                match bytes <= LISTED {
                    true => flow.shown(source, offer.definition()),
                    false => flow.forget(labels),
                }
            }
        }
    }

    /// Notes in the record of a list what the route leaves out of it: what its planner may not use, and what has the name of
    /// a tool of the gateway.
    fn note_left_out(
        &self,
        arrived: &DecodedRequest,
        shown: &[EncodedListing],
        record: &mut ReadEntry,
    ) {
        for (listing, written) in shown {
            let catalog = listing.catalog();
            let Some(left_out) = self.left_out(&arrived.route, catalog) else { continue };
            let offers = written.view().offers().map(|offer| offer.name().as_str());
            let names: Vec<_> = offers.filter(|name| left_out.contains(*name)).collect();
            if let Some((seen, hidden)) = &mut record.listed {
                (*seen, *hidden) = (seen.saturating_sub(names.len()), *hidden + names.len());
            }
            let room = UNSEEN.saturating_sub(record.hidden_items.len());
            let items = names.into_iter().map(|name| self.left_out_item(arrived, catalog, name));
            record.hidden_items.extend(items.take(room));
        }
    }

    /// The servers that may be asked for a list, with the permits. Records the last decision that allows, or the last
    /// denial if all servers are denied.
    pub(super) fn listable<'a>(
        &self,
        arrived: &'a DecodedRequest,
        kind: ItemKind,
        record: &mut Record,
    ) -> Vec<ListPermit<'a>> {
        let mut permits = Vec::new();
        let (facts, principal) = (&arrived.facts, &arrived.caller.principal);
        for (server_index, server) in arrived.route.servers.iter().enumerate() {
            let ruling = self.policy.admit_list(facts, principal, server.name(), kind);
            let granted =
                ruling.outcome.ok().map(|permit| permits.push((server_index, server, permit)));
            if granted.is_some() || permits.is_empty() {
                record.decision = RecordedDecision::Decided(Box::new(ruling.decision));
            }
        }
        permits
    }

    /// Sorts what the servers answered.
    fn sorted<'a>(
        &self,
        read: Vec<(&'a Arc<Upstream>, Result<ServerListing, UpstreamError>)>,
    ) -> ReadListings<'a> {
        let mut sorted = ReadListings::default();
        for (server, result) in read {
            match result {
                Ok(part) => sorted.parts.push(part),
                // The identity is not the pinned one: the server is left out without a notice to the caller.
                Err(error) if self.is_identity_mismatch(server, &error) => {
                    sorted.has_identity_mismatch = true
                }
                Err(error) => {
                    sorted.missing.push(server.name().clone());
                    sorted.failed.push((server, error));
                }
            }
        }
        sorted
    }

    /// Computes the cleaned form of definitions that need it; in the offload pool if they are long.
    async fn clean(
        &self,
        arrived: &DecodedRequest,
        catalog: &Arc<Catalog>,
    ) -> Result<(), OffloadError> {
        let bytes = catalog.uncleaned();
        if bytes == 0 {
            return Ok(());
        }
        let catalog = Arc::clone(catalog);
        let clean =
            move |policy: &Policy, facts: &Facts, _: &Arc<Principal>, budget: &WorkBudget| {
                policy.clean_all(facts, &catalog, budget);
            };
        self.inspect(&arrived.caller.principal, bytes, clean).await
    }

    /// An object with the members of a list result besides the definitions, as the caller may see them: of a single list
    /// only, none if several servers are listed.
    async fn beside(
        &self,
        arrived: &DecodedRequest,
        shown: &[EncodedListing],
        found: &mut Vec<Finding>,
    ) -> Option<Shown> {
        let [(listing, _)] = shown else { return None };
        let name = listing.catalog().server();
        let method = listing.catalog().kind().list();
        let said = listing.extra().iter().map(|(_, value)| Some(value.value()));
        if said.chain([None]).any(|said| self.is_withheld(&arrived.route, name, method, said)) {
            return None;
        }
        let server = arrived.route.servers.iter().find(|server| server.name() == name);
        let server = server.filter(|_| !listing.extra().is_empty())?;
        let mut out = Vec::new();
        let mut object = Object::open(&mut out);
        for (key, value) in listing.extra() {
            let meta = Some(value.value()).filter(|_| is_meta(key));
            let told = meta.into_iter().flat_map(|meta| self.unapproved_info(name, meta));
            encode::with_replacements(object.key(key), value.value(), &told.collect::<Vec<_>>());
        }
        object.close();
        // INVARIANT: the parts were parsed by the same reader within the same bounds.
        let document = Document::parse(out.into(), &JsonBounds::ANSWER).ok()?;
        let said = Fragment::whole(Arc::new(document));
        let told = EarlyMessage { part: SpokenPart::Result, said };
        let heard = self.heard(&arrived.caller.principal, server, told, None, found).await;
        heard.ok().flatten()
    }

    async fn read<'a>(
        &self,
        arrived: &DecodedRequest,
        entry: &ReadEntry,
        server_index: usize,
        server: &'a Arc<Upstream>,
        permit: Permit,
    ) -> (&'a Arc<Upstream>, Result<ServerListing, UpstreamError>) {
        let started = self.clock.instant();
        let on_behalf = arrived.on_behalf(server_index);
        // A slow server must not delay the others for long.
        let alone = arrived.route.servers.len() == 1;
        let patience = if alone { self.limits.response_timeout } else { self.limits.list_timeout };
        let list = server.list(permit, entry, &on_behalf, patience);
        let listed = timeout(patience + GRACE, list).await;
        let took = self.clock.instant().saturating_duration_since(started);
        server.counts().answered(took);
        let listed = listed.unwrap_or(Err(UpstreamError::Timeout(patience)));
        let server_of = Arc::clone(server);
        (
            server,
            listed.map(|(expectation, listing)| ServerListing {
                server: server_of,
                listing,
                expectation,
            }),
        )
    }

    /// Every part as the caller sees it, with the names of the route, under the facts as they are now: reading the
    /// definitions may have added approvals and conflicts.
    fn written(
        &self,
        arrived: &DecodedRequest,
        kind: ItemKind,
        parts: Vec<ServerListing>,
    ) -> Result<Vec<EncodedListing>, UpstreamError> {
        let (principal, route) = (&*arrived.caller.principal, &arrived.route);
        let facts = self.policy.facts();
        if !route.compares(kind) {
            let write = |part: ServerListing| {
                let left_out = self.left_out(route, part.listing.catalog());
                let naming = route.naming(part.server.name(), Arc::default()).without(left_out);
                self.shown_again(&facts, principal, part, naming)
            };
            return parts.into_iter().map(write).collect();
        }
        let view = |part: ServerListing| {
            let ServerListing { server, listing, expectation } = part;
            let reply = Reply::List(Arc::clone(listing.catalog()));
            // The budget for inspecting definitions was spent when the list was read.
            let budget = WorkBudget::new(USUAL_MOST);
            match self.policy.release(&facts, principal, expectation, reply, &budget).into_shown() {
                VisibleReply::List(view) => Ok((server, listing, view)),
                VisibleReply::Result(_)
                | VisibleReply::Error(_)
                | VisibleReply::Told(_)
                | VisibleReply::Withheld(_)
                | VisibleReply::Apart(_) => Err(MISTAKEN),
            }
        };
        let views: Vec<_> = parts.into_iter().map(view).collect::<Result<_, _>>()?;
        let names = |view: &CatalogView| -> BTreeSet<Box<str>> {
            view.offers().map(|offer| offer.name().as_str().into()).collect()
        };
        let all: Vec<_> = views.iter().map(|(_, _, view)| names(view)).collect();
        let write = |(n, (server, listing, view)): (usize, &ListingView)| {
            let others = all.iter().enumerate().filter(|(other, _)| *other != n);
            let taken: BTreeSet<_> = others.flat_map(|(_, names)| names.iter().cloned()).collect();
            withheld(server, view);
            let left_out = self.left_out(route, listing.catalog());
            let naming = route.naming(server.name(), Arc::new(taken)).without(left_out);
            let holds = |known: &CatalogView| self.policy.holds(&facts, known, principal);
            let known = listing.written(&naming, holds);
            let write = || self.write(server, listing, view, naming);
            let written = known.unwrap_or_else(write);
            (Arc::clone(listing), written)
        };
        Ok(views.iter().enumerate().map(write).collect())
    }

    /// Reuses the encoding for an equal caller, if listing and policy are the same.
    fn shown_again(
        &self,
        facts: &Facts,
        principal: &Principal,
        part: ServerListing,
        naming: Naming,
    ) -> Result<EncodedListing, UpstreamError> {
        let ServerListing { server, listing, expectation } = part;
        let known = listing.written(&naming, |view| self.policy.holds(facts, view, principal));
        let budget = WorkBudget::new(USUAL_MOST);
        let released = match &known {
            Some(written) => {
                self.policy.release_again(facts, principal, expectation, written.view())
            }
            None => self.policy.release(
                facts,
                principal,
                expectation,
                Reply::List(Arc::clone(listing.catalog())),
                &budget,
            ),
        };
        match (released.into_shown(), known) {
            (VisibleReply::List(view), Some(written)) if Arc::ptr_eq(&view, written.view()) => {
                Ok((listing, written))
            }
            // There was no encoding, or a link that the caller was given has changed the view in the meantime: the latest
            // view counts.
            (VisibleReply::List(view), _) => {
                withheld(&server, &view);
                let written = self.write(&server, &listing, &view, naming);
                Ok((listing, written))
            }
            (
                VisibleReply::Result(_)
                | VisibleReply::Error(_)
                | VisibleReply::Told(_)
                | VisibleReply::Withheld(_)
                | VisibleReply::Apart(_),
                _,
            ) => Err(MISTAKEN),
        }
    }

    /// Encodes the caller's view of a list, and logs overrides of arguments that do not exist.
    fn write(
        &self,
        server: &Upstream,
        listing: &Listing,
        view: &Arc<CatalogView>,
        naming: Naming,
    ) -> Arc<RenderedView> {
        let written = listing.write(Arc::clone(view), naming, server.overrides());
        for unused in written.unused() {
            if let Some(suppressed) = server.may_log(self.clock.instant()) {
                let (server, argument) = (server.name(), unused.escape_debug());
                tracing::warn!(
                    event = "override.unused", %server, %argument, suppressed,
                    "an override names an argument that the tool does not have"
                );
            }
        }
        written
    }

    /// The server that shows `name` on a route with several servers, and its name there; `None` if there is none or it
    /// is ambiguous. If exactly one server failed and no other has the name, `record` names that server.
    pub(super) async fn named<'a>(
        &self,
        arrived: &'a DecodedRequest,
        kind: ItemKind,
        name: &str,
        record: &mut ReadEntry,
    ) -> Result<Option<RequestTarget<'a>>, Failure> {
        let route = &arrived.route;
        let candidates = self.candidates(arrived, kind, name);
        // Names of one server depend on those of the others, which does not mean that calls wait for one that does not
        // answer.
        let is_read =
            |read: &CatalogToRead<'_>| !route.compares(kind) || read.server.reads_list(kind);
        let (asked, paused): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_read);
        let (mut seen, mut failed) = self.catalogs_of(arrived, asked, record).await;
        let mut found = self.showing(arrived, kind, name, &seen);
        if found.is_empty() && !paused.is_empty() {
            let (more, other) = self.catalogs_of(arrived, paused, record).await;
            seen.extend(more);
            failed.extend(other);
            found = self.showing(arrived, kind, name, &seen);
        }
        if let (None, [(server, _)]) = (found.first(), &failed[..]) {
            let naming = route.naming(server.name(), Arc::default());
            record.upstream_name = naming.own_name(server.name(), name).map(Into::into);
        }
        match (found.pop(), found.is_empty()) {
            (Some(found), true) => Ok(Some(found)),
            (Some(_), false) => Ok(None),
            // The name may belong to a server that could not be read.
            (None, _) => of_servers(failed, record).map_or(Ok(None), Err),
        }
    }

    /// The servers on a route that may show `name`, of those that the caller may ask, with the permits of their lists.
    fn candidates<'a>(
        &self,
        arrived: &'a DecodedRequest,
        kind: ItemKind,
        name: &str,
    ) -> Vec<CatalogToRead<'a>> {
        let (principal, route) = (&*arrived.caller.principal, &arrived.route);
        // A name with a server's prefix can only belong to that server.
        let may_show = |server: &Upstream| {
            let naming = || route.naming(server.name(), Arc::default());
            route.compares(kind) || naming().may_show(server.name(), name)
        };
        let candidates = route.servers.iter().enumerate().filter(|(_, server)| may_show(server));
        let granted = candidates.filter_map(|(server_index, server)| {
            let ruling = self.policy.admit_list(&arrived.facts, principal, server.name(), kind);
            Some(CatalogToRead { server_index, server, permit: ruling.outcome.ok()? })
        });
        granted.collect()
    }

    /// Reads the catalogs of several servers at once. Returns those that were read, and the servers that failed.
    async fn catalogs_of<'a>(
        &self,
        arrived: &DecodedRequest,
        servers: Vec<CatalogToRead<'a>>,
        record: &mut ReadEntry,
    ) -> (Vec<SeenCatalog<'a>>, Vec<(&'a Arc<Upstream>, UpstreamError)>) {
        let entry = &*record;
        let reads =
            servers.into_iter().map(|CatalogToRead { server_index, server, permit }| async move {
                let on_behalf: OnBehalfOf = arrived.on_behalf(server_index);
                let patience = self.limits.list_timeout;
                let read = server.catalog_within(permit, entry, &on_behalf, patience);
                let read = timeout(patience + GRACE, read).await;
                (server_index, server, read.unwrap_or(Err(UpstreamError::Timeout(patience))))
            });
        let asked = self.clock.instant();
        let read = join_all(reads).await;
        record.wait_before_send += self.since(asked);
        let (mut seen, mut failed) = (Vec::new(), Vec::new());
        for (server_index, server, listing) in read {
            match listing {
                Ok(listing) => seen.push(SeenCatalog { server_index, server, listing }),
                Err(error) => failed.push((server, error)),
            }
        }
        (seen, failed)
    }

    /// The definitions that the route shows as `name`.
    fn showing<'a>(
        &self,
        arrived: &DecodedRequest,
        kind: ItemKind,
        name: &str,
        seen: &[SeenCatalog<'a>],
    ) -> Vec<RequestTarget<'a>> {
        let (principal, route) = (&*arrived.caller.principal, &arrived.route);
        // As they are now: reading the definitions may have added approvals and conflicts.
        let facts = self.policy.facts();
        let is_visible = |of: &SeenCatalog<'_>, name: &str| {
            let offer = of.listing.catalog().offer(name);
            let about =
                |offer| self.policy.about(&facts, principal, of.server.name(), offer).shows();
            offer.is_some_and(about)
        };
        let mut found = Vec::new();
        for of in seen {
            let server = of.server;
            for offer in of.listing.catalog().offers() {
                let own = offer.name().as_str();
                // The shown name is computed only for definitions that could have it.
                if own != name && !tool_naming::could_be_of(server.name(), name) {
                    continue;
                }
                let taken = route.compares(kind)
                    && seen.iter().any(|other| {
                        other.server_index != of.server_index && is_visible(other, own)
                    });
                let taken = if taken { Arc::new([own.into()].into()) } else { Arc::default() };
                let shown = route.naming(server.name(), taken).show(server.name(), kind, own);
                if shown.as_deref() == Some(name) {
                    found.push(RequestTarget {
                        server_index: of.server_index,
                        server,
                        name: own.into(),
                    });
                }
            }
        }
        found
    }
}

/// The failure for servers that could not be reached: that of the last one; `None` if there are none. `record` names
/// the server if it is the only one.
pub(super) fn of_servers(
    mut failed: Vec<(&Arc<Upstream>, UpstreamError)>,
    record: &mut Record,
) -> Option<Failure> {
    if let [(server, _)] = &failed[..] {
        record.server = Some(server.name().as_str().into());
    }
    failed.pop().map(|(_, error)| Failure::Upstream(error))
}

const MISTAKEN: UpstreamError = UpstreamError::Protocol("a list was released as something else");

/// Logs, once per definition, what is hidden from callers because of its content.
fn withheld(server: &Upstream, view: &CatalogView) {
    for (offer, decision) in view.hidden() {
        let held = match &decision.effect {
            Effect::Deny(Denial { reason: Reason::Definition(finding), .. }) => Some(finding),
            // Rules do not apply to a URI without a canonical form, so no rule denies it.
            _ => decision.findings.iter().find(|found| found.detector == Detector::ResourceUris),
        };
        if let Some(finding) = held {
            server.withheld(offer, finding);
        }
    }
}

/// The code of a definition that is hidden because of a finding.
const DEFINITION: &str = "definition-finding";

/// The hidden definitions with their reasons, as many as a record holds: those with findings first, then those that no
/// rule allows.
fn unseen(shown: &[EncodedListing]) -> Vec<WithheldItem> {
    let hidden = || {
        shown.iter().flat_map(|(listing, written)| {
            let server = listing.catalog().server();
            written.view().hidden().map(move |(offer, decision)| (server, offer, decision))
        })
    };
    let by_rule = |decision: &Decision| match &decision.effect {
        Effect::Allow(_) => false,
        Effect::Deny(denial) => {
            matches!(denial.reason, Reason::NotGranted) || denial.reason.rule().is_some()
        }
    };
    let (held, ruled) =
        (hidden().filter(|(.., d)| !by_rule(d)), hidden().filter(|(.., d)| by_rule(d)));
    let one = |(server, offer, decision): (&ServerName, &CatalogItem, &Decision)| {
        let (code, detector) = match &decision.effect {
            // Allowed, but hidden because of a finding when it was cleaned.
            Effect::Allow(_) => (DEFINITION, None),
            Effect::Deny(Denial { reason: Reason::Definition(finding), .. }) => {
                (DEFINITION, Some(finding.detector.name()))
            }
            Effect::Deny(denial) => (denial.reason.code(), None),
        };
        let (server, name) = (server.as_str().into(), offer.name().as_str().into());
        WithheldItem { server, name, code, detector }
    };
    held.chain(ruled).take(UNSEEN).map(one).collect()
}
