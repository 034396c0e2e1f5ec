//! The definitions of one kind that an upstream server offers, collected from all pages of its list, and their
//! rendered views for clients.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use json::{Document, Fragment, JsonBounds, Value};
use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
use policy::engine::pipeline::CatalogView;
use policy::rules::apps::{kind, message};
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;

use super::error::UpstreamError;
use crate::base::intake::ResponseAccount;
use crate::base::masking;
use crate::base::offload::{Offload, OffloadHolder};
use crate::base::segments::Segments;
use crate::base::sha256::sha256;
use crate::base::share::Share;
use crate::config::overrides::{DefinitionEdits, Overrides};
use crate::config::settings::Limits;
use crate::mcp::model_text::model_tokens;
use crate::mcp::short_definition::shorten;
use crate::mcp::tool_naming::Naming;
use crate::mcp::wire;

/// The maximum number of rendered views that one listing keeps.
const VIEWS: usize = 64;
/// The maximum size of these views in bytes, beside the latest one.
const VIEWED: usize = 4 * 1024 * 1024;
/// The maximum number of budgets for which a rendered view keeps its definitions with shorter descriptions. They are no
/// longer than the view, but for their marks.
const SHORT_LISTS: usize = 2;
/// Estimated number of copies of the list's text in memory, beside the parsed pages.
const COPIES: usize = 2;
/// Estimated overhead in bytes of a definition, beside its text.
const BESIDE: usize = 512;
/// Members of a result that clients read; all but `_meta` the gateway writes itself. A list under a variant spelling
/// would bypass inspection.
const PAGE: [&str; 10] = [
    "nextCursor",
    "resultType",
    "ttlMs",
    "cacheScope",
    "tools",
    "prompts",
    "resources",
    "resourceTemplates",
    "skills",
    "_meta",
];

/// Members of a definition that clients read.
const DEFINITION: [&str; 14] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "icons",
    "arguments",
    "uri",
    "frontmatter",
    "resources",
    "uriTemplate",
    "mimeType",
    "_meta",
];

/// The definitions of one kind that a server offers.
#[derive(Debug)]
pub struct Listing {
    catalog: Arc<Catalog>,
    /// Unknown members of the first page's result, which are passed on.
    extra: Vec<(Box<str>, Fragment)>,
    /// The server's cache lifetime for the list, in milliseconds.
    ttl: u64,
    /// The server declares the list the same for all callers.
    public: bool,
    /// The list arrived as an SSE stream.
    streamed: bool,
    /// The text of the answer and the range of the request id in it, if the list has a single page.
    source: Option<(Bytes, Range<usize>)>,
    /// The epoch of the lockfile comparison that this list passed last.
    epoch: AtomicU64,
    /// The digest of all pages as received, which identifies the list among those of its server.
    digest: [u8; 32],
    /// Bytes of the texts of all pages.
    bytes: usize,
    /// Memory in bytes of all parsed pages: see [`Document::memory`].
    memory: usize,
    /// The memory budget that it counts against until it is cached.
    counted: Mutex<Option<ResponseAccount>>,
    /// Its part of the share of the caller for which it was read first, while it is cached.
    share: OnceLock<Share<Arc<str>>>,
    /// Rendered views, the oldest first.
    views: ArcSwap<Vec<Arc<RenderedView>>>,
}

/// A rendered view of a listing: what the policy shows to one caller. Only [`Listing::write`] makes one, from the view.
///
/// ```
/// # fn show(view: gateway::upstream::RenderedView) {
/// let offers = view.offers();
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # fn show(view: gateway::upstream::RenderedView, offers: bytes::Bytes) {
/// let view = gateway::upstream::RenderedView { offers, ..view }; // private fields
/// # }
/// ```
#[derive(Debug)]
pub struct RenderedView {
    /// The view that was rendered.
    view: Arc<CatalogView>,
    naming: Naming,
    /// The definitions as JSON, separated by commas.
    offers: Bytes,
    items: Box<[RenderedItem]>,
    /// Digests of the definitions as they are written, in their order.
    digests: OnceLock<Box<[[u8; 32]]>>,
    /// How many tokens each definition takes in the context of a model.
    tokens: OnceLock<Box<[usize]>>,
    /// The same definitions with shorter descriptions, for different budgets; the latest one last.
    short: Mutex<Vec<Arc<ShortList>>>,
    /// The reader that noted it last, as a number; 0 for none.
    noted_by: AtomicUsize,
    /// Argument descriptions in the configuration for arguments that the tool does not have: the name of the tool and
    /// a JSON Pointer.
    unused: Vec<String>,
}

/// The definitions of a [`RenderedView`] with descriptions within a budget of tokens.
#[derive(Debug)]
pub struct ShortList {
    /// The most tokens that the descriptions of one tool have together.
    budget: usize,
    /// The definitions as JSON, separated by commas.
    offers: Bytes,
    /// Where each of them is, in the order of the view.
    places: Box<[Range<usize>]>,
    /// How many tokens each definition takes in the context of a model.
    tokens: OnceLock<Box<[usize]>>,
}

impl ShortList {
    /// The definitions as JSON, separated by commas.
    #[must_use]
    pub const fn offers(&self) -> &Bytes {
        &self.offers
    }

    /// The JSON of the definition with this index in the view.
    #[must_use]
    pub fn definition(&self, index: usize) -> Bytes {
        self.places.get(index).map_or_else(Bytes::new, |place| part(&self.offers, place))
    }

    /// Whether the tokens of the definitions were counted before.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.tokens.get().is_some()
    }

    /// How many tokens each definition takes in the context of a model. Computed once, and not for threads that serve
    /// clients.
    #[must_use]
    pub fn tokens(&self) -> &[usize] {
        self.tokens.get_or_init(|| {
            self.places.iter().map(|place| tokens_of(part(&self.offers, place))).collect()
        })
    }
}

/// A part of a JSON text. INVARIANT: the place is one of the text; both were written together.
fn part(text: &Bytes, place: &Range<usize>) -> Bytes {
    if place.end <= text.len() { text.slice(place.clone()) } else { Bytes::new() }
}

/// How many tokens a definition takes in the context of a model.
fn tokens_of(definition: Bytes) -> usize {
    // INVARIANT: the definition was written from a document within these bounds.
    Document::parse(definition, &JsonBounds::ANSWER).map_or(0, |one| model_tokens(one.root()))
}

/// A definition in a [`RenderedView`].
#[derive(Debug)]
pub struct RenderedItem {
    /// The name on the route.
    name: Box<str>,
    /// The name that the server uses.
    own_name: Box<str>,
    /// Where it is in the JSON.
    place: Range<usize>,
}

impl RenderedItem {
    /// The name on the route.
    #[must_use]
    pub const fn name(&self) -> &str {
        &self.name
    }

    /// The name that the server uses.
    #[must_use]
    pub const fn own_name(&self) -> &str {
        &self.own_name
    }
}

impl RenderedView {
    /// Notes that a reader, told apart by a number, has seen it. Returns whether another one saw it last, or none.
    pub fn is_new_to(&self, reader: usize) -> bool {
        // Most lists are shown again: then nothing is written.
        let is_new = self.noted_by.load(Ordering::Relaxed) != reader;
        if is_new {
            self.noted_by.store(reader, Ordering::Relaxed);
        }
        is_new
    }

    /// The view that was rendered.
    #[must_use]
    pub const fn view(&self) -> &Arc<CatalogView> {
        &self.view
    }

    /// The definitions as JSON, separated by commas.
    #[must_use]
    pub const fn offers(&self) -> &Bytes {
        &self.offers
    }

    /// The definitions, in the order of the JSON.
    #[must_use]
    pub const fn items(&self) -> &[RenderedItem] {
        &self.items
    }

    /// The JSON of one of its definitions.
    #[must_use]
    pub fn definition(&self, item: &RenderedItem) -> Bytes {
        part(&self.offers, &item.place)
    }

    /// Whether the tokens of the definitions were counted before.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.tokens.get().is_some()
    }

    /// How many tokens each definition takes in the context of a model. Computed once, and not for threads that serve
    /// clients.
    #[must_use]
    pub fn tokens(&self) -> &[usize] {
        let tokens = |item: &RenderedItem| tokens_of(self.definition(item));
        self.tokens.get_or_init(|| self.items.iter().map(tokens).collect())
    }

    /// The definitions within this budget of tokens, if they were computed before.
    #[must_use]
    pub fn known_short(&self, budget: usize) -> Option<Arc<ShortList>> {
        let short = self.short.lock().unwrap_or_else(PoisonError::into_inner);
        short.iter().find(|known| known.budget == budget).cloned()
    }

    /// The definitions with descriptions within this budget of tokens: [`shorten`]. Not for threads that serve clients.
    #[must_use]
    pub fn short(&self, budget: usize) -> Arc<ShortList> {
        if let Some(known) = self.known_short(budget) {
            return known;
        }
        let (mut out, mut places) = (Vec::new(), Vec::with_capacity(self.items.len()));
        for item in &self.items {
            let definition = self.definition(item);
            let document = Document::parse(definition.clone(), &JsonBounds::ANSWER);
            // INVARIANT: the definition was written from a document within these bounds.
            let short = document.ok().and_then(|one| shorten(one.root(), budget));
            if !places.is_empty() {
                out.push(b',');
            }
            let start = out.len();
            out.extend_from_slice(short.as_deref().unwrap_or(&definition));
            places.push(start..out.len());
        }
        let (offers, places, tokens) = (out.into(), places.into(), OnceLock::new());
        let made = Arc::new(ShortList { budget, offers, places, tokens });
        let mut short = self.short.lock().unwrap_or_else(PoisonError::into_inner);
        if short.len() >= SHORT_LISTS {
            short.remove(0);
        }
        short.push(Arc::clone(&made));
        made
    }

    /// The digests of the definitions, if they were computed before.
    #[must_use]
    pub fn known_digests(&self) -> Option<&[[u8; 32]]> {
        self.digests.get().map(|digests| &**digests)
    }

    /// A digest of each definition as it is written, with its server and its name there. Computed once; the cost is linear
    /// in the length of the JSON.
    #[must_use]
    pub fn digests(&self, server: &ServerName) -> &[[u8; 32]] {
        let digest = |item: &RenderedItem| {
            let definition = self.definition(item);
            let parts = [server.as_str().as_bytes(), b"\0", item.own_name.as_bytes(), b"\0"];
            sha256(&[&parts.concat(), &*definition].concat())
        };
        self.digests.get_or_init(|| self.items.iter().map(digest).collect())
    }

    /// Argument descriptions in the configuration for arguments that the tool does not have: the name of the tool and
    /// a JSON Pointer.
    #[must_use]
    pub fn unused(&self) -> &[String] {
        &self.unused
    }
}

impl Listing {
    /// The catalog of definitions.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The epoch of the lockfile comparison that this list passed last.
    pub(super) const fn epoch(&self) -> &AtomicU64 {
        &self.epoch
    }

    /// The digest that identifies the list among those of its server.
    pub(super) const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Estimated memory in bytes: the parsed pages, cleaned copies of definitions with findings, a rendered view, and
    /// derived data.
    pub(super) fn weight(&self) -> usize {
        let is_found = |offer: &&CatalogItem| !offer.findings().is_empty();
        let found = self.catalog.offers().iter().filter(is_found);
        let found: usize = found.map(|offer| offer.definition().span().len()).sum();
        // At the average density of the pages.
        let cleaned = self.memory.saturating_mul(found) / self.bytes.max(1);
        self.memory + cleaned + COPIES * self.bytes + BESIDE * self.catalog.offers().len()
    }

    /// Counts the list against `counted` until it is cached or dropped.
    pub(super) fn is_counted_in(&self, counted: ResponseAccount) {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
    }

    /// Releases the budget of [`Self::is_counted_in`]: the list is cached and counts against the cache's budget.
    pub(super) fn is_kept(&self) {
        drop(self.counted.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The part of a cache share that it takes.
    pub(super) const fn share(&self) -> &OnceLock<Share<Arc<str>>> {
        &self.share
    }

    /// The kind of its definitions.
    #[must_use]
    pub fn kind(&self) -> ItemKind {
        self.catalog.kind()
    }

    /// Whether the server declares the list the same for all callers.
    #[must_use]
    pub const fn is_public(&self) -> bool {
        self.public
    }

    /// Whether the list arrived as an SSE stream.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// Unknown members of the result, which are passed on.
    #[must_use]
    pub fn extra(&self) -> &[(Box<str>, Fragment)] {
        &self.extra
    }

    /// The server's cache lifetime for the list, in milliseconds.
    #[must_use]
    pub const fn ttl(&self) -> u64 {
        self.ttl
    }

    /// Whether `text`, an answer to the request `id`, equals the one this list was read from, byte for byte except
    /// for the id.
    ///
    /// An answer that was parsed strictly once need not be parsed again.
    pub(super) fn is_repeated_by(&self, text: &Segments, id: i64) -> bool {
        let Some((source, place)) = &self.source else { return false };
        let id = itoa::Buffer::new().format(id).to_owned();
        let same = |range: Range<usize>| {
            source.get(range.clone()).is_some_and(|known| text.has_at(range.start, known))
        };
        text.length() == source.len()
            && id.len() == place.len()
            && text.has_at(place.start, id.as_bytes())
            && same(0..place.start)
            && same(place.end..source.len())
    }

    /// A rendered view with this naming for which `fits` holds.
    #[must_use]
    pub fn written(
        &self,
        naming: &Naming,
        fits: impl Fn(&CatalogView) -> bool,
    ) -> Option<Arc<RenderedView>> {
        let views = self.views.load();
        let found = views.iter().find(|known| known.naming == *naming && fits(&known.view));
        found.cloned()
    }

    /// Renders a view and caches it. A listing belongs to one configuration, so `overrides` are always the same.
    #[must_use]
    pub fn write(
        &self,
        view: Arc<CatalogView>,
        naming: Naming,
        overrides: &Overrides,
    ) -> Arc<RenderedView> {
        let (offers, items, unused) = write(&view, self.catalog.server(), &naming, overrides);
        let written = Arc::new(RenderedView {
            view,
            naming,
            offers,
            items: items.into(),
            digests: OnceLock::new(),
            tokens: OnceLock::new(),
            short: Mutex::default(),
            noted_by: AtomicUsize::new(0),
            unused,
        });
        self.views.rcu(|views| {
            // The oldest views are dropped first; they can be rendered again.
            let mut bytes = written.offers.len();
            let fits = |known: &&Arc<RenderedView>| {
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

/// Renders the visible definitions, with their names on the route and the operator's descriptions in place of the
/// server's.
///
/// Also returns where each of them is, and the arguments, each after the name of its tool, for which there is a description and which the tool
/// does not have.
fn write(
    view: &CatalogView,
    server: &ServerName,
    naming: &Naming,
    overrides: &Overrides,
) -> (Bytes, Vec<RenderedItem>, Vec<String>) {
    let (mut out, mut items, mut unused) = (Vec::new(), Vec::new(), Vec::new());
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
        let alone = without_renamed_apps(server, naming, definition);
        let (definition, key) = match &alone {
            Some(alone) => (alone.root(), alone.root().get(offer.kind().key()).unwrap_or(key)),
            None => (definition, key),
        };
        let mut edits = DefinitionEdits::default();
        if name != offer.name().as_str() {
            edits.text(key, &name);
        }
        if offer.kind() == ItemKind::Tool
            && let Some(wanted) = overrides.of(offer.name().as_str())
        {
            let tool = offer.name().as_str();
            let missing = wanted.edit(definition, &mut edits);
            unused.extend(missing.into_iter().map(|argument| format!("{tool} {argument}")));
        }
        if offer.kind() == ItemKind::Skill {
            let files = definition.get("resources").into_iter().flat_map(Value::items);
            for file in files.filter_map(|file| file.get("uri")) {
                let uri = file.as_str().unwrap_or_default();
                let shown = naming.show(server, ItemKind::Skill, &uri);
                if let Some(shown) = shown.filter(|shown| *shown != uri) {
                    edits.text(file, &shown);
                }
            }
        }
        let start = out.len();
        edits.write(definition, &mut out);
        let place = start..out.len();
        let own_name = offer.name().as_str().into();
        items.push(RenderedItem { name: name.into(), own_name, place });
    }
    (out.into(), items, unused)
}

/// A definition without what points to apps that have another URI on the route: a client does not take that for an app,
/// and the server's own URI may lead to an app of another server. `None` if it points to none.
fn without_renamed_apps(
    server: &ServerName,
    naming: &Naming,
    definition: Value<'_>,
) -> Option<Document> {
    let is_renamed = |uri: String| {
        naming.show(server, ItemKind::Resource, &uri).is_none_or(|shown| *shown != *uri)
    };
    let text = kind::linked_apps(definition).any(is_renamed);
    let text = text.then(|| message::definition(None, definition)).flatten()?;
    // INVARIANT: a document from which members were removed is within the bounds of the whole.
    Document::parse(text.into(), &JsonBounds::ANSWER).ok()
}

/// Limits for all pages of a list together. Their memory is limited by the budget of answers.
#[derive(Clone, Copy, Debug)]
struct PageLimits {
    pages: usize,
    /// The number of definitions.
    things: usize,
}

/// Collects the pages of a list.
#[derive(Debug)]
pub(super) struct PageCollector {
    server: ServerName,
    kind: ItemKind,
    most: PageLimits,
    /// The catalog of the previous reading.
    former: Option<Arc<Catalog>>,
    offers: Vec<CatalogItem>,
    extra: Vec<(Box<str>, Fragment)>,
    ttl: Option<u64>,
    /// Every page so far declares the list the same for all callers.
    public: bool,
    cursors: BTreeSet<String>,
    count: usize,
    /// Bytes of the texts of the pages, memory of the parsed pages, and the digests of all pages.
    bytes: usize,
    memory: usize,
    digests: Vec<u8>,
}

impl PageCollector {
    pub(super) fn new(
        server: ServerName,
        kind: ItemKind,
        limits: &Limits,
        former: Option<Arc<Catalog>>,
    ) -> Self {
        let (offers, extra, cursors) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (ttl, public, count) = (None, true, 0);
        // The tools of the self-test belong to the gateway and are few.
        let tools = if server.is_reserved() { usize::MAX } else { limits.definitions_per_list };
        let most = PageLimits { pages: limits.pages_per_list, things: tools };
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

    /// Memory in bytes of the pages read so far, with their definitions.
    pub(super) fn memory(&self) -> usize {
        self.memory + BESIDE * self.offers.len()
    }

    /// Adds a page and returns the cursor of the next one. A large page is inspected on another thread, because that
    /// takes a while.
    pub(super) async fn take(
        mut self,
        result: Fragment,
        offload: &Offload,
        limits: &Limits,
    ) -> Result<(Self, Option<String>), UpstreamError> {
        let (bytes, most) = (result.value().span().len(), limits.inspection_work);
        if bytes < limits.inspected_inline {
            let next = self.read(&result, &WorkBudget::of(bytes, most))?;
            return Ok((self, next));
        }
        let server = self.server.clone();
        let take = move |budget: &WorkBudget| {
            let next = self.read(&result, budget)?;
            Ok((self, next))
        };
        let taken =
            offload.run(OffloadHolder::Server(server.as_str().into()), bytes, most, take).await;
        taken.unwrap_or(Err(UpstreamError::Protocol("the list could not be read")))
    }

    /// Logs that a definition is dropped because it is invalid.
    fn log_invalid(&self, definition: Value<'_>, error: &(dyn std::error::Error + 'static)) {
        let error = crate::base::error_chain::ErrorChain(error);
        let name = definition.get(self.kind.key()).and_then(Value::as_str).unwrap_or_default();
        let name = masking::secrets(&name);
        let name = name.get(..name.floor_char_boundary(128)).unwrap_or_default().escape_debug();
        tracing::warn!(
            event = "definition.dropped", server = %self.server, kind = self.kind.as_str(), %name, %error,
            "definition dropped: invalid"
        );
    }

    fn read(
        &mut self,
        result: &Fragment,
        budget: &WorkBudget,
    ) -> Result<Option<String>, UpstreamError> {
        let page = result.value();
        self.count += 1;
        self.bytes += page.raw().len();
        self.memory += result.document().memory();
        self.digests.extend(sha256(page.raw().as_bytes()));
        let PageLimits { pages, things } = self.most;
        if self.count > pages {
            return Err(UpstreamError::Protocol("the list has more pages than are read"));
        }
        if wire::is_misspelled(page, &PAGE) {
            return Err(UpstreamError::Protocol("the list has a member in another spelling"));
        }
        let member = self.kind.list();
        let list = page.get(member).filter(|list| list.kind() == json::JsonKind::Array);
        let Some(list) = list else {
            return Err(UpstreamError::Protocol(missing(self.kind)));
        };
        let document: Arc<Document> = result.document();
        for definition in list.items() {
            if self.offers.len() >= things {
                return Err(UpstreamError::Protocol("the list is longer than is read"));
            }
            let kind = self.kind.as_str();
            if wire::is_misspelled(definition, &DEFINITION) {
                tracing::warn!(
                    event = "definition.dropped", server = %self.server, kind,
                    "definition dropped: a member name is a variant spelling of a protocol member"
                );
                continue;
            }
            let former = self.former.as_deref();
            match CatalogItem::read_again(self.kind, definition, &document, former, budget) {
                Ok(offer) => self.offers.push(offer),
                Err(error) => self.log_invalid(definition, &error),
            }
        }
        if self.count == 1 {
            let unknown =
                page.members().filter(|(key, _)| **key == *"_meta" || !PAGE.contains(&&**key));
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

    /// The listing of all pages. `source` is the text of the answer and the range of its id, if there was only one
    /// page.
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
            // At most a day: a list that never expires could not be withdrawn.
            ttl: self.ttl.unwrap_or(0).min(24 * 3600 * 1000),
            public: self.public && self.count > 0,
            streamed,
            source: source.filter(|_| self.count == 1),
            epoch: AtomicU64::new(0),
            views: ArcSwap::default(),
        }
    }
}

/// Says which member a list result of this kind lacks.
const fn missing(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "the list result has no list `tools`",
        ItemKind::Prompt => "the list result has no list `prompts`",
        ItemKind::Resource => "the list result has no list `resources`",
        ItemKind::Template => "the list result has no list `resourceTemplates`",
        ItemKind::Skill => "the list result has no list `skills`",
        ItemKind::Method => "the list result has no list",
    }
}
