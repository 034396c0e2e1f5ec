//! The index in which the tools of a route are found by words.
//!
//! It has the definitions that were shown to any caller, as they were shown. Which of them a search may answer is decided
//! anew for each search, by the list of its caller, and a definition outside of that moves no score and no place. So a
//! definition that is no longer listed does no harm here; it leaves when there is no more room.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use json::{Document, JsonBounds};
use policy_core::base::work::WorkBudget;
use selector::index::{Index, MAX_TOOLS, PreparedTool};
use selector::model::Model;
use selector::ranking::ToolIndex;
use selector::tool::ToolText;

use crate::base::sha256::sha256;
use crate::mcp::tool_signature::ToolSignature;
use crate::outbound::embeddings::text_of;
use crate::upstream::{Listing, RenderedView};

/// Most definitions in the index of a route.
const MAX_KNOWN_TOOLS: usize = 16 * 1024;
/// Most bytes that they take, as estimated.
const MAX_KNOWN_BYTES: usize = 64 * 1024 * 1024;
/// How many definitions that nobody may be shown any more are kept at least, before the index begins anew.
const MAX_STALE_TOOLS: usize = 1024;
/// Estimated bytes of a prepared definition besides its words.
const BESIDE: usize = 1024;
/// Estimated bytes of what is kept of a byte of a definition.
const DERIVED: usize = 5;
/// Most bytes of a definition whose words count: the words that are read of it are no longer.
const MAX_READ: usize = 32 * 1024;
/// Units of work that reading a byte of a definition takes, and the bytes that reading any definition counts for at least:
/// together less than a message of that length may cost.
const READING: usize = 32;
const LEAST_READ: usize = 128;

/// What identifies a definition as it is shown, with its server.
type DefinitionDigest = [u8; 32];

/// The name of a definition on the route, and its digest: the order of the index.
type ToolKey = (Box<str>, DefinitionDigest);

/// The list of a server, as it is written for a caller.
pub(super) type CallerListing = (Arc<Listing>, Arc<RenderedView>);

/// A definition in the lists of a caller: the index of the list, and of the definition in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListedPlace {
    pub(super) list: usize,
    pub(super) item: usize,
}

/// A definition that was read before.
#[derive(Clone, Debug)]
struct KnownTool {
    prepared: Arc<PreparedTool>,
    signature: Arc<ToolSignature>,
    /// The digest of the text that embeddings are made of.
    text_digest: [u8; 32],
    /// Estimated bytes in memory.
    bytes: usize,
}

impl KnownTool {
    fn read(server: &str, own_name: &str, definition: &[u8]) -> Self {
        let document = Document::parse(definition.to_vec().into(), &JsonBounds::ANSWER);
        // INVARIANT: the definition was written from a document within these bounds.
        let (text, signature) = document.map_or_else(
            |_| (ToolText::default(), ToolSignature::default()),
            |document| {
                (ToolText::read(server, document.root()), ToolSignature::read(document.root()))
            },
        );
        // A route may put the name of the server in front, which counts as a field of its own.
        let text = ToolText { name: own_name.to_owned(), ..text };
        let prepared = Arc::new(PreparedTool::new(Model::built_in(), &text));
        let text_digest = sha256(text_of(&signature).as_bytes());
        Self { prepared, signature: Arc::new(signature), text_digest, bytes: 0 }
    }
}

impl KnownTool {
    /// What the index keeps of it for the answers to searches.
    fn described(&self, digest: DefinitionDigest) -> DescribedTool {
        let signature = Arc::clone(&self.signature);
        DescribedTool { signature, definition: digest, text: self.text_digest }
    }
}

/// The definitions, sorted by name and digest, with their index.
#[derive(Debug)]
pub(super) struct BuiltIndex {
    index: Index,
    tools: BTreeMap<ToolKey, KnownTool>,
    places: HashMap<DefinitionDigest, u32>,
    described: Vec<DescribedTool>,
}

/// A definition in the index, as it is described to models.
#[derive(Debug)]
struct DescribedTool {
    signature: Arc<ToolSignature>,
    definition: DefinitionDigest,
    text: [u8; 32],
}

impl BuiltIndex {
    fn build(tools: BTreeMap<ToolKey, KnownTool>) -> Self {
        let prepared: Vec<_> = tools.values().map(|tool| (*tool.prepared).clone()).collect();
        let described = tools.iter().map(|((_, digest), tool)| tool.described(*digest));
        Self {
            described: described.collect(),
            index: Index::build(Model::built_in(), &prepared),
            places: tools.keys().map(|(_, digest)| *digest).zip(0..).collect(),
            tools,
        }
    }

    /// The index that is searched.
    pub(super) const fn index(&self) -> &Index {
        &self.index
    }

    /// The signature of a definition.
    pub(super) fn signature(&self, tool: ToolIndex) -> Arc<ToolSignature> {
        let described = self.described.get(tool.0 as usize);
        described.map(|one| Arc::clone(&one.signature)).unwrap_or_default()
    }

    /// The digest of a definition.
    pub(super) fn digest(&self, tool: ToolIndex) -> Option<&DefinitionDigest> {
        Some(&self.described.get(tool.0 as usize)?.definition)
    }

    /// The digest of the text of a definition that embeddings are made of.
    pub(super) fn text_digest(&self, tool: ToolIndex) -> Option<&[u8; 32]> {
        Some(&self.described.get(tool.0 as usize)?.text)
    }

    /// Where the definitions of the index are in the lists of a caller, `None` for those that are in none; `None` if the
    /// index lacks a definition of the lists.
    pub(super) fn places(&self, lists: &[CallerListing]) -> Option<Vec<Option<ListedPlace>>> {
        let mut found = vec![None; self.places.len()];
        for (list, (_, written)) in lists.iter().enumerate() {
            for (item, digest) in written.known_digests()?.iter().enumerate() {
                let place = *self.places.get(digest)? as usize;
                *found.get_mut(place)? = Some(ListedPlace { list, item });
            }
        }
        Some(found)
    }
}

/// The index of a route, which grows with the definitions that its callers are shown.
#[derive(Debug)]
pub(super) struct ToolIndexCache {
    current: ArcSwap<BuiltIndex>,
    /// Held while an index is built, so that definitions are read once.
    building: Mutex<()>,
}

impl Default for ToolIndexCache {
    fn default() -> Self {
        let empty = BuiltIndex {
            index: Index::build(Model::built_in(), &[]),
            tools: BTreeMap::new(),
            places: HashMap::new(),
            described: Vec::new(),
        };
        Self { current: ArcSwap::from_pointee(empty), building: Mutex::new(()) }
    }
}

impl ToolIndexCache {
    /// The index as it is.
    pub(super) fn current(&self) -> Arc<BuiltIndex> {
        self.current.load_full()
    }

    /// An index with all definitions of the lists, and where those are in the lists. What does not fit is left out, and so
    /// is a definition whose reading takes more work than is left of `budget`; a later search reads it if that one can.
    ///
    /// It reads the definitions that it lacks, and is not for threads that serve clients.
    pub(super) fn with(
        &self,
        lists: &[CallerListing],
        budget: &WorkBudget,
    ) -> (Arc<BuiltIndex>, Vec<Option<ListedPlace>>) {
        for (listing, written) in lists {
            let _computed = written.digests(listing.catalog().server());
        }
        let is_known = |known: Arc<BuiltIndex>| {
            let places = known.places(lists)?;
            Some((known, places))
        };
        if let Some(found) = is_known(self.current()) {
            return found;
        }
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.current();
        if let Some(found) = is_known(Arc::clone(&known)) {
            return found;
        }
        let wanted = wanted(lists);
        let kept =
            known.tools.len() <= wanted.len().saturating_mul(2).saturating_add(MAX_STALE_TOOLS);
        let kept = kept.then(|| known.tools.iter().map(|(key, tool)| (key.clone(), tool.bytes)));
        let sizes = wanted.iter().map(|(key, one)| (key.clone(), one.bytes));
        let all: BTreeMap<_, _> = kept.into_iter().flatten().chain(sizes.clone()).collect();
        let chosen = if fits(&all) { all } else { cut(sizes.collect()) };
        if chosen.keys().eq(known.tools.keys()) {
            let places = known.places_of_known(lists);
            return (known, places);
        }
        let read = |key: ToolKey| {
            let tool = known.tools.get(&key).cloned();
            let tool = tool.or_else(|| wanted.get(&key).and_then(|one| one.read(lists, budget)));
            Some((key, tool?))
        };
        let wanted_count = chosen.len();
        let tools: BTreeMap<_, _> = chosen.into_keys().filter_map(read).collect();
        if tools.len() < wanted_count {
            tracing::warn!(
                event = "discovery.index_full",
                wanted = wanted_count,
                kept = tools.len(),
                "some tools of a route are not found by words: reading them takes too much work"
            );
        }
        if tools.keys().eq(known.tools.keys()) {
            let places = known.places_of_known(lists);
            return (known, places);
        }
        let built = Arc::new(BuiltIndex::build(tools));
        self.current.store(Arc::clone(&built));
        let places = built.places_of_known(lists);
        (built, places)
    }
}

/// A definition in the lists of a caller.
#[derive(Clone, Copy, Debug)]
struct WantedTool {
    place: ListedPlace,
    /// Estimated bytes in memory, once it is read.
    bytes: usize,
}

impl WantedTool {
    fn read(&self, lists: &[CallerListing], budget: &WorkBudget) -> Option<KnownTool> {
        let (listing, written) = lists.get(self.place.list)?;
        let item = written.items().get(self.place.item)?;
        let definition = written.definition(item);
        if !affords(budget, definition.len()) {
            return None;
        }
        let server = listing.catalog().server().as_str();
        Some(KnownTool {
            bytes: self.bytes,
            ..KnownTool::read(server, item.own_name(), &definition)
        })
    }
}

/// The definitions of the lists.
fn wanted(lists: &[CallerListing]) -> BTreeMap<ToolKey, WantedTool> {
    let mut wanted = BTreeMap::new();
    for (list, (_, written)) in lists.iter().enumerate() {
        let digests = written.known_digests().unwrap_or_default();
        for (item, (of, digest)) in written.items().iter().zip(digests).enumerate() {
            let length = written.definition(of).len();
            let bytes = length.min(MAX_READ).saturating_mul(DERIVED).saturating_add(BESIDE);
            let place = ListedPlace { list, item };
            wanted.insert((of.name().into(), *digest), WantedTool { place, bytes });
        }
    }
    wanted
}

impl BuiltIndex {
    /// Like [`Self::places`], without the definitions that did not fit.
    fn places_of_known(&self, lists: &[CallerListing]) -> Vec<Option<ListedPlace>> {
        let mut found = vec![None; self.places.len()];
        for (list, (_, written)) in lists.iter().enumerate() {
            for (item, digest) in written.known_digests().unwrap_or_default().iter().enumerate() {
                let place = self.places.get(digest).map(|place| *place as usize);
                if let Some(slot) = place.and_then(|place| found.get_mut(place)) {
                    *slot = Some(ListedPlace { list, item });
                }
            }
        }
        found
    }
}

/// Takes the work of reading a definition of so many bytes from the budget. One that is too long for what is left takes
/// nothing, so that it costs no other definition its place.
fn affords(budget: &WorkBudget, bytes: usize) -> bool {
    let units = bytes.saturating_add(LEAST_READ).saturating_mul(READING);
    u64::try_from(units).is_ok_and(|units| units <= budget.left()) && budget.spend(units)
}

/// Whether definitions of these sizes fit together.
fn fits(sizes: &BTreeMap<ToolKey, usize>) -> bool {
    sizes.len() <= MAX_KNOWN_TOOLS.min(MAX_TOOLS)
        && sizes.values().sum::<usize>() <= MAX_KNOWN_BYTES
}

/// As many of the definitions as fit, in the order of their names.
fn cut(sizes: BTreeMap<ToolKey, usize>) -> BTreeMap<ToolKey, usize> {
    let wanted = sizes.len();
    let mut bytes = 0_usize;
    let has_room = |(_, size): &(ToolKey, usize)| {
        bytes = bytes.saturating_add(*size);
        bytes <= MAX_KNOWN_BYTES
    };
    let some = sizes.into_iter().take(MAX_KNOWN_TOOLS.min(MAX_TOOLS)).take_while(has_room);
    let kept: BTreeMap<_, _> = some.collect();
    if kept.len() < wanted {
        tracing::warn!(
            event = "discovery.index_full",
            wanted,
            kept = kept.len(),
            "some tools of a route are not found by words: there is no room for them"
        );
    }
    kept
}

#[cfg(test)]
mod tests {
    use policy_core::base::work::WorkBudget;

    use super::{LEAST_READ, READING, affords};

    #[test]
    fn a_definition_that_takes_too_much_work_costs_no_other_one_its_place() {
        let budget = WorkBudget::new(3 * 1024 * READING as u64);
        let most = 3 * 1024 - LEAST_READ;
        assert!(!affords(&budget, most + 1) && budget.spent() == 0);
        assert!(affords(&budget, 1024 - LEAST_READ) && affords(&budget, 1024 - LEAST_READ));
        assert!(!affords(&budget, 1025 - LEAST_READ) && !affords(&budget, usize::MAX));
        assert!(affords(&budget, 1024 - LEAST_READ) && !affords(&budget, 0));
        // What a list may cost is enough for its own definitions, also for the shortest ones.
        for (count, bytes) in [(16 * 1024, 60), (1, 1 << 20), (64, 64 * 1024)] {
            let budget = WorkBudget::for_bytes(count * bytes, 1 << 30);
            assert!((0..count).all(|_| affords(&budget, bytes)), "{count} of {bytes} bytes");
        }
    }
}
