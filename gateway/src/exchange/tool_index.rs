//! The index in which the tools of a route are found by words.
//!
//! It has the definitions that were shown to any caller, as they were shown. Which of them a search may answer is decided
//! anew for each search, by the list of its caller, and a definition outside of that moves no score and no place. So a
//! definition that is no longer listed does no harm here; it leaves when there is no more room.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use json::{Document, JsonBounds};
use selector::index::{Index, MAX_TOOLS, PreparedTool};
use selector::model::Model;
use selector::ranking::ToolIndex;
use selector::tool::ToolText;

use super::tool_signature::ToolSignature;
use crate::upstream::{Listing, RenderedView};

/// Most definitions in the index of a route.
const MAX_KNOWN_TOOLS: usize = 16 * 1024;
/// Most bytes that they take, as estimated.
const MAX_KNOWN_BYTES: usize = 64 * 1024 * 1024;
/// Estimated bytes of a prepared definition besides its words.
const BESIDE: usize = 1024;
/// Most bytes of a definition whose words count: the words that are read of it are no longer.
const MAX_READ: usize = 32 * 1024;

/// What identifies a definition as it is shown, with its server.
type DefinitionDigest = [u8; 32];

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
        let bytes = 4 * definition.len().min(MAX_READ) + signature.bytes() + BESIDE;
        let prepared = Arc::new(PreparedTool::new(Model::built_in(), &text));
        Self { prepared, signature: Arc::new(signature), bytes }
    }
}

/// The definitions, sorted by name and digest, with their index.
#[derive(Debug)]
pub(super) struct BuiltIndex {
    index: Index,
    tools: BTreeMap<(Box<str>, DefinitionDigest), KnownTool>,
    places: HashMap<DefinitionDigest, u32>,
    signatures: Vec<Arc<ToolSignature>>,
}

impl BuiltIndex {
    fn build(tools: BTreeMap<(Box<str>, DefinitionDigest), KnownTool>) -> Self {
        let prepared: Vec<_> = tools.values().map(|tool| (*tool.prepared).clone()).collect();
        Self {
            index: Index::build(Model::built_in(), &prepared),
            places: tools.keys().map(|(_, digest)| *digest).zip(0..).collect(),
            signatures: tools.values().map(|tool| Arc::clone(&tool.signature)).collect(),
            tools,
        }
    }

    /// The index itself.
    pub(super) const fn index(&self) -> &Index {
        &self.index
    }

    /// The signature of a definition.
    pub(super) fn signature(&self, tool: ToolIndex) -> Arc<ToolSignature> {
        self.signatures.get(tool.0 as usize).cloned().unwrap_or_default()
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
            signatures: Vec::new(),
        };
        Self { current: ArcSwap::from_pointee(empty), building: Mutex::new(()) }
    }
}

impl ToolIndexCache {
    /// The index as it is.
    pub(super) fn current(&self) -> Arc<BuiltIndex> {
        self.current.load_full()
    }

    /// An index with all definitions of the lists, and where those are in the lists. What does not fit is left out.
    ///
    /// It reads the definitions that it lacks, and is not for threads that serve clients.
    pub(super) fn with(
        &self,
        lists: &[CallerListing],
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
        let wanted = known.wanted(lists);
        let fits = |tools: &BTreeMap<_, KnownTool>| {
            let bytes: usize = tools.values().map(|tool| tool.bytes).sum();
            tools.len() <= MAX_KNOWN_TOOLS.min(MAX_TOOLS) && bytes <= MAX_KNOWN_BYTES
        };
        let mut all = known.tools.clone();
        all.extend(wanted.iter().map(|(key, tool)| (key.clone(), tool.clone())));
        let tools = if fits(&all) { all } else { cut(wanted) };
        let built = Arc::new(BuiltIndex::build(tools));
        self.current.store(Arc::clone(&built));
        let places = built.places_of_known(lists);
        (built, places)
    }
}

impl BuiltIndex {
    /// The definitions of the lists: those that are known, and the others, which are read.
    fn wanted(&self, lists: &[CallerListing]) -> BTreeMap<(Box<str>, DefinitionDigest), KnownTool> {
        let mut wanted = BTreeMap::new();
        for (listing, written) in lists {
            let server = listing.catalog().server();
            for (item, digest) in written.items().iter().zip(written.digests(server)) {
                let key = (item.name().into(), *digest);
                let read =
                    || KnownTool::read(server.as_str(), item.own_name(), &written.definition(item));
                let tool = self.tools.get(&key).cloned().unwrap_or_else(read);
                wanted.insert(key, tool);
            }
        }
        wanted
    }

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

/// As many of the definitions as fit.
fn cut(
    tools: BTreeMap<(Box<str>, DefinitionDigest), KnownTool>,
) -> BTreeMap<(Box<str>, DefinitionDigest), KnownTool> {
    let (mut count, mut bytes) = (0, 0);
    let fits = |tool: &KnownTool| {
        (count, bytes) = (count + 1, bytes + tool.bytes);
        count <= MAX_KNOWN_TOOLS.min(MAX_TOOLS) && bytes <= MAX_KNOWN_BYTES
    };
    let mut fits = fits;
    let wanted = tools.len();
    let kept: BTreeMap<_, _> = tools.into_iter().take_while(|(_, tool)| fits(tool)).collect();
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
