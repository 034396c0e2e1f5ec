//! What a server offers, read to its last page, and how it is shown again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use policy::json::{Document, Fragment, Value};
use policy::name::ServerName;
use policy::offer::{Catalog, Kind, Offer};
use policy::pipeline::View;
use policy::work::Budget;

use super::error::UpstreamError;
use crate::base::intake::Received;
use crate::base::masking;
use crate::base::offload::{Cause, Offload};
use crate::base::sha256::sha256;
use crate::base::share::Share;
use crate::config::overrides::{Edits, Overrides};
use crate::config::settings::Limits;
use crate::mcp::tool_naming::Naming;
use crate::mcp::wire;

/// Most views of one listing that are kept written out.
const VIEWS: usize = 64;
/// Most bytes of them, besides the one that was asked for last.
const VIEWED: usize = 4 * 1024 * 1024;
/// How often the text of a list is in memory, about, beside what was read of its pages.
const COPIES: usize = 2;
/// Bytes that each definition takes beside its text, about.
const BESIDE: usize = 512;
/// Members of a result that are ours to write.
const OWN: [&str; 4] = ["nextCursor", "resultType", "ttlMs", "cacheScope"];

/// Members of a definition that clients read.
const DEFINITION: [&str; 12] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "icons",
    "arguments",
    "uri",
    "uriTemplate",
    "mimeType",
    "_meta",
];

/// What a server offers of one kind.
#[derive(Debug)]
pub struct Listing {
    catalog: Arc<Catalog>,
    /// Members of the result that we do not know, of the first page.
    extra: Vec<(Box<str>, Fragment)>,
    /// For how long the server says the list is fresh, in milliseconds.
    ttl: u64,
    /// The server says that it is the same for all.
    public: bool,
    /// It came as a stream of events.
    streamed: bool,
    /// The one page it was read from, and where our id stands in it.
    source: Option<(Bytes, Range<usize>)>,
    /// When it was last compared with what was approved.
    epoch: AtomicU64,
    /// What tells it from others of its server: every page, as it came.
    digest: [u8; 32],
    /// Bytes of the texts of all pages.
    bytes: usize,
    /// Bytes that all pages take: see [`Document::memory`].
    memory: usize,
    /// What counts it until it is kept.
    counted: Mutex<Option<Received>>,
    /// The share of the caller that it was read for first, for as long as somebody keeps it.
    share: OnceLock<Share<Arc<str>>>,
    /// Written out for those who have asked.
    views: ArcSwap<Vec<Arc<Written>>>,
}

/// A view, written out.
#[derive(Debug)]
pub struct Written {
    /// What is shown.
    pub view: Arc<View>,
    naming: Naming,
    /// The definitions with commas between them.
    pub offers: Bytes,
    /// Arguments for which there are words of the operator and which tools do not have: the name of the tool,
    /// and a JSON Pointer.
    pub unused: Vec<String>,
}

impl Listing {
    /// What is in it.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// When it was last compared with what was approved.
    pub(super) const fn epoch(&self) -> &AtomicU64 {
        &self.epoch
    }

    /// What tells it from others of its server.
    pub(super) const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// About how many bytes it takes: what was read of its pages, the same again of definitions from which something
    /// is taken out, a view, and what is worked out of it.
    pub(super) fn weight(&self) -> usize {
        let is_found = |offer: &&Offer| !offer.findings().is_empty();
        let found = self.catalog.offers().iter().filter(is_found);
        let found: usize = found.map(|offer| offer.definition().span().len()).sum();
        // As dense as the pages are on average.
        let cleaned = self.memory.saturating_mul(found) / self.bytes.max(1);
        self.memory + cleaned + COPIES * self.bytes + BESIDE * self.catalog.offers().len()
    }

    /// It is counted in `counted` until it is kept, or nobody uses it any more.
    pub(super) fn is_counted_in(&self, counted: Received) {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
    }

    /// It is kept, and counted where it is.
    pub(super) fn is_kept(&self) {
        drop(self.counted.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The share that it takes of what is kept.
    pub(super) const fn share(&self) -> &OnceLock<Share<Arc<str>>> {
        &self.share
    }

    /// Of what kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.catalog.kind()
    }

    /// Whether the server says that it is the same for all.
    #[must_use]
    pub const fn is_public(&self) -> bool {
        self.public
    }

    /// Whether the server sent it as a stream of events.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// Members of the result that we do not know.
    #[must_use]
    pub fn extra(&self) -> &[(Box<str>, Fragment)] {
        &self.extra
    }

    /// For how long the server says the list is fresh, in milliseconds.
    #[must_use]
    pub const fn ttl(&self) -> u64 {
        self.ttl
    }

    /// Whether `text`, an answer to the request `id`, says the same as the one this was read from:
    /// byte for byte, but for the id.
    ///
    /// What was read strictly once need not be read again when it comes again.
    pub(super) fn is_repeated_by(&self, text: &[u8], id: i64) -> bool {
        let Some((source, place)) = &self.source else { return false };
        let same = |range: Range<usize>| text.get(range.clone()) == source.get(range);
        text.len() == source.len()
            && same(0..place.start)
            && same(place.end..source.len())
            && text.get(place.clone()) == Some(itoa::Buffer::new().format(id).as_bytes())
    }

    /// A view that was written out before and fits `fits`.
    #[must_use]
    pub fn written(&self, naming: &Naming, fits: impl Fn(&View) -> bool) -> Option<Arc<Written>> {
        let views = self.views.load();
        let found = views.iter().find(|known| known.naming == *naming && fits(&known.view));
        found.cloned()
    }

    /// Writes a view out and keeps it. A listing is of one configuration, and so are its overrides.
    #[must_use]
    pub fn write(&self, view: Arc<View>, naming: Naming, overrides: &Overrides) -> Arc<Written> {
        let (offers, unused) = write(&view, self.catalog.server(), &naming, overrides);
        let written = Arc::new(Written { view, naming, offers, unused });
        self.views.rcu(|views| {
            // Oldest first out: a view is a cache, it can be made again.
            let mut bytes = written.offers.len();
            let fits = |known: &&Arc<Written>| {
                bytes += known.offers.len();
                bytes <= VIEWED
            };
            let few = views.iter().rev().take(VIEWS - 1).take_while(fits).count();
            let kept = views.iter().skip(views.len() - few);
            kept.cloned().chain([Arc::clone(&written)]).collect::<Vec<_>>()
        });
        written
    }
}

/// The visible definitions as they came, or under the names they have on the route and with the words that
/// the operator has put in place of the server's.
///
/// Gives the arguments, each after the name of its tool, that have words and are not there as well.
fn write(
    view: &View,
    server: &ServerName,
    naming: &Naming,
    overrides: &Overrides,
) -> (Bytes, Vec<String>) {
    let (mut out, mut unused) = (Vec::new(), Vec::new());
    for (offer, definition) in view.definitions() {
        let key = definition.get(offer.kind().key());
        let (Some(key), Some(name)) =
            (key, naming.show(server, offer.kind(), offer.name().as_str()))
        else {
            continue;
        };
        if !out.is_empty() {
            out.push(b',');
        }
        let mut edits = Edits::default();
        if name != offer.name().as_str() {
            edits.text(key, &name);
        }
        if offer.kind() == Kind::Tool
            && let Some(wanted) = overrides.of(offer.name().as_str())
        {
            let tool = offer.name().as_str();
            let missing = wanted.edit(definition, &mut edits);
            unused.extend(missing.into_iter().map(|argument| format!("{tool} {argument}")));
        }
        edits.write(definition, &mut out);
    }
    (out.into(), unused)
}

/// The bounds of all pages of a list together. What they take in memory is bounded by the shares of answers.
#[derive(Clone, Copy, Debug)]
struct Most {
    pages: usize,
    /// Definitions.
    things: usize,
}

/// Collects the pages of a list.
#[derive(Debug)]
pub(super) struct Pages {
    server: ServerName,
    kind: Kind,
    most: Most,
    /// What was listed before.
    former: Option<Arc<Catalog>>,
    offers: Vec<Offer>,
    extra: Vec<(Box<str>, Fragment)>,
    ttl: Option<u64>,
    /// Every page so far says that it is the same for all.
    public: bool,
    cursors: BTreeSet<String>,
    count: usize,
    /// Bytes of the texts of the pages, bytes that the pages take, and the digest of each.
    bytes: usize,
    memory: usize,
    digests: Vec<u8>,
}

impl Pages {
    pub(super) fn new(
        server: ServerName,
        kind: Kind,
        limits: &Limits,
        former: Option<Arc<Catalog>>,
    ) -> Self {
        let (offers, extra, cursors) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (ttl, public, count) = (None, true, 0);
        // What the self-test offers is ours, and few.
        let tools = if server.is_reserved() { usize::MAX } else { limits.tools };
        let most = Most { pages: limits.pages, things: tools };
        let (bytes, memory, digests) = (0, 0, Vec::new());
        Self {
            server,
            kind,
            most,
            former,
            offers,
            extra,
            ttl,
            public,
            cursors,
            count,
            bytes,
            memory,
            digests,
        }
    }

    /// Bytes that the pages take which were read so far, with their definitions.
    pub(super) fn memory(&self) -> usize {
        self.memory + BESIDE * self.offers.len()
    }

    /// Takes a page; says where the next one is. Looking at every string of a large page takes
    /// its time, so that is done on another thread.
    pub(super) async fn take(
        mut self,
        result: Fragment,
        offload: &Offload,
        limits: &Limits,
    ) -> Result<(Self, Option<String>), UpstreamError> {
        let (bytes, most) = (result.value().span().len(), limits.inspection_work);
        if bytes < limits.inspected_inline {
            let next = self.read(&result, &Budget::of(bytes, most))?;
            return Ok((self, next));
        }
        let server = self.server.clone();
        let take = move |budget: &Budget| {
            let next = self.read(&result, budget)?;
            Ok((self, next))
        };
        let taken = offload.run(Cause::Server(server.as_str().into()), bytes, most, take).await;
        taken.unwrap_or(Err(UpstreamError::Protocol("the list could not be read")))
    }

    fn read(
        &mut self,
        result: &Fragment,
        budget: &Budget,
    ) -> Result<Option<String>, UpstreamError> {
        let page = result.value();
        self.count += 1;
        self.bytes += page.raw().len();
        self.memory += result.document().memory();
        self.digests.extend(sha256(page.raw().as_bytes()));
        let Most { pages, things } = self.most;
        if self.count > pages {
            return Err(UpstreamError::Protocol("the list has more pages than are read"));
        }
        if wire::is_misspelled(page, &OWN) {
            return Err(UpstreamError::Protocol("the list has a member in another spelling"));
        }
        let member = self.kind.list();
        let list = page.get(member).filter(|list| list.kind() == policy::json::Kind::Array);
        let Some(list) = list else {
            return Err(UpstreamError::Protocol("the list is not where it should be"));
        };
        let document: Arc<Document> = result.document();
        for definition in list.items() {
            if self.offers.len() >= things {
                return Err(UpstreamError::Protocol("the list is longer than is read"));
            }
            let kind = self.kind.as_str();
            if wire::is_misspelled(definition, &DEFINITION) {
                tracing::warn!(server = %self.server, kind, "one with a misspelled member was left out");
                continue;
            }
            let former = self.former.as_deref();
            match Offer::read_again(self.kind, definition, &document, former, budget) {
                Ok(offer) => self.offers.push(offer),
                Err(error) => {
                    let error = crate::base::error_chain::Chain(&error);
                    let name = definition.get(self.kind.key()).and_then(Value::as_str);
                    let name = name.unwrap_or_default();
                    let name = masking::secrets(&name);
                    let name = name.get(..name.floor_char_boundary(128)).unwrap_or_default();
                    let name = name.escape_debug();
                    tracing::warn!(server = %self.server, kind, %name, %error, "one was left out");
                }
            }
        }
        if self.count == 1 {
            let unknown = page.members().filter(|(key, _)| !OWN.contains(&&**key) && key != member);
            self.extra =
                unknown.map(|(key, value)| (key.into(), value.fragment(&document))).collect();
        }
        let ttl = page.get("ttlMs").and_then(Value::as_i64).and_then(|ttl| u64::try_from(ttl).ok());
        self.ttl = Some(self.ttl.unwrap_or(u64::MAX).min(ttl.unwrap_or(0)));
        self.public &= page.get("cacheScope").and_then(Value::as_str).as_deref() == Some("public");
        let Some(cursor) = page.get("nextCursor").and_then(Value::as_str) else { return Ok(None) };
        if !self.cursors.insert(cursor.clone().into_owned()) {
            return Err(UpstreamError::Protocol("the list comes back to a page it had"));
        }
        Ok(Some(cursor.into_owned()))
    }

    /// The listing of all pages; `source` is the answer, if there was but one.
    pub(super) fn finish(self, source: Option<(Bytes, Range<usize>)>, streamed: bool) -> Listing {
        let mut digests = self.digests;
        digests.extend([u8::from(streamed), u8::from(source.is_some())]);
        Listing {
            digest: sha256(&digests),
            bytes: self.bytes,
            memory: self.memory,
            counted: Mutex::default(),
            share: OnceLock::new(),
            catalog: Arc::new(Catalog::new(self.server, self.kind, self.offers)),
            extra: self.extra,
            // Not longer than a day: a promise for ever could not be taken back.
            ttl: self.ttl.unwrap_or(0).min(24 * 3600 * 1000),
            public: self.public && self.count > 0,
            streamed,
            source: source.filter(|_| self.count == 1),
            epoch: AtomicU64::new(0),
            views: ArcSwap::default(),
        }
    }
}
