//! Detects tools and prompts of one server that can be mistaken for those of another: by name, by description, or by
//! references to the other (control C11, threats T1008, T1301 and T1405).
//!
//! Names are compared in normal forms, which only serve to find similarities and never to grant access: rules match
//! names byte for byte.

mod approved;
mod likeness;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::definition::lock::ApprovalState;
use crate::definition::offer::{Catalog, CatalogItem, CatalogMatch};
use crate::definition::pins::Pins;
use crate::detection::content::ToolNames;
use crate::subject::kind::ItemKind;
use crate::subject::mode::Mode;
use crate::subject::name::ServerName;

pub use approved::approved;
use likeness::{DescriptionWords, NameForms};
pub use routes::SharedRoutes;

/// Most items of one server in a group of similar items that are compared with each other. The limit applies per
/// server, so that no server can prevent the comparison of another's items. An item beyond it counts as similar.
const GROUP: usize = 64;
/// Most pairs of names that are compared letter by letter.
const NEAR: usize = 1_000_000;
/// Most conflicts of each kind that are kept for one item.
const KEPT: usize = 16;
/// Consecutive words that two texts must share to be compared.
const RUN: usize = 3;
/// Fewest words of a text that is compared.
const FEWEST: usize = 6;
/// Fewest letters of a name that is compared for an edit distance of one.
const SHORTEST: usize = 5;
/// Most pairs of descriptions that are compared.
const PAIRS: usize = 50_000;
/// Names that no server may use, in normal form.
const RESERVED: [&str; 12] = [
    "toolslist",
    "toolscall",
    "promptslist",
    "promptsget",
    "resourceslist",
    "resourcesread",
    "initialize",
    "serverdiscover",
    "completioncomplete",
    "samplingcreatemessage",
    "elicitationcreate",
    "portcullis",
];

/// How one item resembles another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Similarity {
    /// The names are equal.
    Exact,
    /// The names differ only in case.
    Case,
    /// The names differ only in word separators.
    Separators,
    /// The names are equal after NFKC.
    Compatibility,
    /// The names look the same (UTS #39).
    Confusable,
    /// The name begins with the name of another server.
    Prefix,
    /// The name is reserved by the protocol or the gateway.
    Reserved,
    /// The names differ in one letter.
    OneLetter,
    /// The descriptions and arguments are nearly the same.
    Description,
    /// The description gives instructions about a tool of another server.
    Directs,
    /// The description names a tool of another server.
    Names,
}

impl Similarity {
    /// Verb phrase for messages, to be followed by the other item.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::Exact => "has the name of",
            Self::Case => "has, but for case, the name of",
            Self::Separators => "has, but for separators, the name of",
            Self::Compatibility => "has, in compatible characters, the name of",
            Self::Confusable => "looks like the name of",
            Self::Prefix => "begins with the name of the server",
            Self::Reserved => "has a reserved name",
            Self::OneLetter => "is one letter away from",
            Self::Description => "describes itself nearly as",
            Self::Directs => "says what is to be done with",
            Self::Names => "names",
        }
    }

    /// Whether the similarity concerns both items equally, rather than only the one that imitates or names the other.
    const fn is_mutual(self) -> bool {
        !matches!(self, Self::Prefix | Self::Reserved | Self::Directs | Self::Names)
    }
}

/// Treatment of similarities between tools and prompts of different servers that a caller sees.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ShadowingPolicy {
    /// Names that are equal except for case and separators. Default `audit`.
    pub same_names: Mode,
    /// Names that only look the same (NFKC, UTS #39), and names reserved by the protocol. Default `enforce`.
    pub look_alikes: Mode,
    /// Names that begin with the name of another server. Default `audit`.
    pub prefixes: Mode,
    /// Names that differ in one letter. Default `audit`.
    pub near_names: Mode,
    /// Descriptions and arguments that are nearly the same. Default `audit`.
    pub descriptions: Mode,
    /// Descriptions with instructions about a tool of another server on the same route. Default `enforce`.
    pub directions: Mode,
    /// Descriptions that name a tool of another server on the same route. Default `off`.
    pub references: Mode,
    /// Which of two similar items is shown: `nobody` (the default), `priority` or `oldestPin`.
    pub winner: Winner,
    /// Names of servers in descending priority, for `winner: priority`.
    pub priority: Vec<String>,
}

/// Which of two similar items is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Winner {
    /// Neither of the two is shown.
    #[default]
    Nobody,
    /// The item whose server comes first in `priority`.
    Priority,
    /// The item that was approved first.
    OldestPin,
}

impl Default for ShadowingPolicy {
    fn default() -> Self {
        Self {
            same_names: Mode::Audit,
            look_alikes: Mode::Enforce,
            prefixes: Mode::Audit,
            near_names: Mode::Audit,
            descriptions: Mode::Audit,
            directions: Mode::Enforce,
            references: Mode::Off,
            winner: Winner::default(),
            priority: Vec::new(),
        }
    }
}

impl ShadowingPolicy {
    /// How this kind of similarity is treated.
    #[must_use]
    pub const fn of(&self, likeness: Similarity) -> Mode {
        match likeness {
            Similarity::Exact | Similarity::Case | Similarity::Separators => self.same_names,
            Similarity::Compatibility | Similarity::Confusable | Similarity::Reserved => {
                self.look_alikes
            }
            Similarity::Prefix => self.prefixes,
            Similarity::OneLetter => self.near_names,
            Similarity::Description => self.descriptions,
            Similarity::Directs => self.directions,
            Similarity::Names => self.references,
        }
    }

    /// Whether the item of `server` is withheld in favour of its rival. A server not in `priority` loses to those in
    /// it.
    #[must_use]
    pub fn yields(
        &self,
        conflict: &Conflict,
        pins: &Pins,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> bool {
        let Some((rival, other)) =
            conflict.rival.as_ref().filter(|_| conflict.likeness.is_mutual())
        else {
            return true;
        };
        match self.winner {
            Winner::Nobody => true,
            Winner::Priority => {
                let place = |server: &ServerName| {
                    self.priority.iter().position(|known| known == server.as_str())
                };
                match (place(server), place(rival)) {
                    (Some(own), Some(rival)) => own >= rival,
                    (own, _) => own.is_none(),
                }
            }
            Winner::OldestPin => {
                let since = |server: &ServerName, name: &str| {
                    let versions = pins.lock.servers.get(server.as_str())?.versions(kind, name);
                    let approved = versions.iter().filter(|v| v.state == ApprovalState::Approved);
                    approved.filter_map(|version| version.at.clone()).min()
                };
                match (since(server, name), since(rival, other)) {
                    (Some(own), Some(rival)) => own >= rival,
                    (own, _) => own.is_none(),
                }
            }
        }
    }
}

/// One similarity of an item to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// How the item resembles the other.
    pub likeness: Similarity,
    /// Server and name of the other item. The name is empty for [`Similarity::Prefix`]. `None` for
    /// [`Similarity::Reserved`], and if there were too many items for a complete comparison.
    pub rival: Option<(ServerName, Box<str>)>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.likeness.note())?;
        match &self.rival {
            // There were too many items for a complete comparison.
            None if self.likeness.is_mutual() => f.write_str(" too many others"),
            None => Ok(()),
            Some((server, name)) if name.is_empty() => write!(f, " `{server}`"),
            Some((server, name)) => write!(f, " `{}` of `{server}`", name.escape_debug()),
        }
    }
}

/// The coarsest normal form of a name: equal for all names that look the same.
#[must_use]
pub fn looks(name: &str) -> String {
    NameForms::of(name).skeleton
}

/// Conflicts of the items of one server, by name.
type ServerConflicts = BTreeMap<Box<str>, Vec<Conflict>>;

/// Conflicts by kind, server and name.
type Conflicts = BTreeMap<ItemKind, BTreeMap<Box<str>, ServerConflicts>>;

/// Catalogs by server and kind.
type Catalogs = BTreeMap<(ServerName, ItemKind), Vec<Arc<Catalog>>>;

/// All items that can be mistaken for others, across all servers.
#[derive(Debug, Default)]
pub struct ShadowingConflicts {
    /// Catalogs of each server and kind; several if callers are shown different lists.
    listed: Catalogs,
    /// Approved items of servers that have not yet been listed.
    approved: Catalogs,
    conflicts: Conflicts,
    /// Names of the tools of all servers.
    names: ToolNames,
}

/// An item in the forms in which it is compared.
struct ComparedItem<'a> {
    server: &'a ServerName,
    offer: &'a CatalogItem,
    forms: NameForms,
    words: DescriptionWords,
}

impl ShadowingConflicts {
    /// Compares all tools with each other, and all prompts. References to tools of other servers count if `routes`
    /// serve both servers to one client.
    #[must_use]
    pub fn among(catalogs: impl IntoIterator<Item = Arc<Catalog>>, routes: &SharedRoutes) -> Self {
        Self::expecting(catalogs, [], routes)
    }

    /// Like [`Self::among`], with `approved` in place of the catalogs of servers that have not been listed yet: see
    /// [`approved()`].
    #[must_use]
    pub fn expecting(
        listed: impl IntoIterator<Item = Arc<Catalog>>,
        approved: impl IntoIterator<Item = Arc<Catalog>>,
        routes: &SharedRoutes,
    ) -> Self {
        let (listed, approved) = (by_server(listed), by_server(approved));
        // Items of one server are consecutive, as `SimilarItems::takes` requires.
        let mut all = listed.clone();
        for (place, catalogs) in &approved {
            all.entry(place.clone()).or_default().extend(catalogs.iter().cloned());
        }
        let servers: BTreeSet<&ServerName> = all.keys().map(|(server, _)| server).collect();
        let mut found = BTreeMap::new();
        for kind in [ItemKind::Tool, ItemKind::Prompt] {
            let mut seen = BTreeSet::new();
            let of_kind = all.values().flatten().filter(|catalog| catalog.kind() == kind);
            let offers = of_kind
                .flat_map(|catalog| catalog.offers().iter().map(|offer| (catalog.server(), offer)));
            // Equal items in lists for different callers count once.
            let fresh = offers.filter(|(server, offer)| {
                seen.insert((server.as_str(), offer.name().as_str(), offer.digest()))
            });
            let items: Vec<_> = fresh.map(|(server, offer)| item(server, offer)).collect();
            let mut finder = ConflictFinder { items: &items, routes, found: &mut found };
            finder.names();
            finder.neighbours();
            finder.prefixes(&servers);
            finder.descriptions();
            finder.references();
        }
        let tools = all.values().flatten().filter(|catalog| catalog.kind() == ItemKind::Tool);
        let names = ToolNames::new(tools.flat_map(|catalog| {
            catalog.offers().iter().map(|offer| (catalog.server(), offer.name().as_str()))
        }));
        Self { listed, approved, conflicts: found, names }
    }

    /// The conflicts of the item `name`.
    pub fn of(&self, server: &ServerName, kind: ItemKind, name: &str) -> &[Conflict] {
        let of_server = self.conflicts.get(&kind).and_then(|of| of.get(server.as_str()));
        of_server.and_then(|of| of.get(name)).map_or(&[], Vec::as_slice)
    }

    /// Names of the tools of all servers.
    pub(crate) const fn names(&self) -> &ToolNames {
        &self.names
    }

    /// The listed definitions with this name.
    pub fn listed(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> impl Iterator<Item = &CatalogItem> {
        offers(&self.listed, server, kind, name)
    }

    /// The approved definitions with this name, if the server has not been listed yet.
    pub fn approved(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> impl Iterator<Item = &CatalogItem> {
        offers(&self.approved, server, kind, name)
    }

    /// The item in the last known catalogs that a caller's `name` refers to.
    #[must_use]
    pub fn place(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> Option<CatalogMatch<'_>> {
        let catalogs = self.listed.get(&(server.clone(), kind))?;
        catalogs.iter().find_map(|catalog| catalog.place(name))
    }

    /// All conflicts, by server, kind and name.
    pub fn all(&self) -> impl Iterator<Item = (&str, ItemKind, &str, &[Conflict])> {
        let of_kind = |(kind, servers): (&ItemKind, _)| (*kind, servers);
        self.conflicts.iter().map(of_kind).flat_map(
            |(kind, servers): (ItemKind, &BTreeMap<Box<str>, ServerConflicts>)| {
                servers.iter().flat_map(move |(server, names)| {
                    names.iter().map(move |(name, all)| (&**server, kind, &**name, all.as_slice()))
                })
            },
        )
    }
}

fn by_server(catalogs: impl IntoIterator<Item = Arc<Catalog>>) -> Catalogs {
    let mut all = Catalogs::new();
    for catalog in catalogs {
        all.entry((catalog.server().clone(), catalog.kind())).or_default().push(catalog);
    }
    all
}

/// Every definition with this name in the catalogs of `server`.
fn offers<'a>(
    catalogs: &'a Catalogs,
    server: &ServerName,
    kind: ItemKind,
    name: &str,
) -> impl Iterator<Item = &'a CatalogItem> {
    let of = catalogs.get(&(server.clone(), kind)).map_or(&[][..], Vec::as_slice);
    of.iter().filter_map(move |catalog| catalog.offer(name))
}

fn item<'a>(server: &'a ServerName, offer: &'a CatalogItem) -> ComparedItem<'a> {
    let forms = NameForms::of(offer.name().as_str());
    ComparedItem { server, offer, forms, words: DescriptionWords::of(offer.definition()) }
}

/// Positions of items that are similar at first sight, in order.
#[derive(Default)]
struct SimilarItems {
    members: Vec<usize>,
    /// Number of items of the server that the last item belongs to.
    own: usize,
}

impl SimilarItems {
    /// Adds the item at `n` unless its server has reached its limit. Items of one server must be added consecutively.
    fn takes(&mut self, items: &[ComparedItem<'_>], n: usize) -> bool {
        let server = |n: &usize| items.get(*n).map(|item| item.server);
        match self.members.last() {
            Some(last) if *last == n => return true,
            Some(last) if server(last) == server(&n) => {}
            Some(_) | None => self.own = 0,
        }
        let room = self.own < GROUP;
        if room {
            self.own += 1;
            self.members.push(n);
        }
        room
    }

    /// All pairs of items of different servers.
    fn pairs<'a>(
        &self,
        items: &'a [ComparedItem<'a>],
    ) -> impl Iterator<Item = (&'a ComparedItem<'a>, &'a ComparedItem<'a>)> {
        let at = |n: &usize| items.get(*n);
        self.members.iter().enumerate().filter_map(move |(n, one)| Some((n, at(one)?))).flat_map(
            move |(n, one)| {
                let others = self.members.iter().skip(n + 1).filter_map(at);
                others.filter(|other| other.server != one.server).map(move |other| (one, other))
            },
        )
    }
}

struct ConflictFinder<'a> {
    items: &'a [ComparedItem<'a>],
    routes: &'a SharedRoutes,
    found: &'a mut Conflicts,
}

impl<'a> ConflictFinder<'a> {
    fn note(
        &mut self,
        item: &ComparedItem<'a>,
        likeness: Similarity,
        rival: Option<(&ServerName, &str)>,
    ) {
        let (name, kind) = (item.offer.name().as_str(), item.offer.kind());
        let rival = rival.map(|(server, name)| (server.clone(), name.into()));
        let of_server =
            self.found.entry(kind).or_default().entry(item.server.as_str().into()).or_default();
        let known = of_server.entry(name.into()).or_default();
        if known.iter().any(|one| one.rival == rival && one.likeness == likeness) {
            return;
        }
        // The limit applies per kind, so that many conflicts of one kind do not displace others.
        if known.iter().filter(|one| one.likeness == likeness).count() < KEPT {
            known.push(Conflict { likeness, rival });
        }
    }

    fn both(&mut self, one: &ComparedItem<'a>, other: &ComparedItem<'a>, likeness: Similarity) {
        self.note(one, likeness, Some((other.server, other.offer.name().as_str())));
        self.note(other, likeness, Some((one.server, one.offer.name().as_str())));
    }

    /// Records that an item was not compared with everything similar to it.
    fn uncompared(&mut self, item: &ComparedItem<'a>, likeness: Similarity) {
        self.note(item, likeness, None);
    }

    /// Finds names that are equal in some normal form.
    fn names(&mut self) {
        let items = self.items;
        let reserved = RESERVED.map(|name| NameForms::of(name).skeleton);
        let mut groups: BTreeMap<&str, SimilarItems> = BTreeMap::new();
        for (n, item) in items.iter().enumerate() {
            let group = groups.entry(item.forms.skeleton.as_str()).or_default();
            if !group.takes(items, n) {
                self.uncompared(item, Similarity::Confusable);
            }
            if reserved.contains(&item.forms.skeleton) {
                self.note(item, Similarity::Reserved, None);
            }
        }
        for group in groups.values() {
            for (one, other) in group.pairs(items) {
                self.both(one, other, one.forms.likeness(&other.forms));
            }
        }
    }

    /// Finds names that differ in one letter: removing one letter from each can make them equal.
    fn neighbours(&mut self) {
        let items = self.items;
        let mut groups: BTreeMap<String, SimilarItems> = BTreeMap::new();
        for (n, item) in items.iter().enumerate() {
            let letters: Vec<char> = item.forms.compatible.chars().collect();
            if !(SHORTEST..=64).contains(&letters.len()) {
                continue;
            }
            for without in 0..=letters.len() {
                let rest = letters.iter().enumerate().filter(|(at, _)| *at != without);
                let group = groups.entry(rest.map(|(_, letter)| letter).collect()).or_default();
                if !group.takes(items, n) {
                    self.uncompared(item, Similarity::OneLetter);
                }
            }
        }
        let mut left = NEAR;
        for group in groups.values() {
            for (one, other) in group.pairs(items).take(left) {
                let near = one.forms.skeleton != other.forms.skeleton
                    && likeness::one_letter(&one.forms.compatible, &other.forms.compatible);
                if near {
                    self.both(one, other, Similarity::OneLetter);
                }
            }
            let over = group.pairs(items).nth(left).is_some();
            for item in group.members.iter().filter_map(|n| items.get(*n)).filter(|_| over) {
                self.uncompared(item, Similarity::OneLetter);
            }
            left = left.saturating_sub(group.pairs(items).take(left).count());
        }
    }

    fn prefixes(&mut self, servers: &BTreeSet<&ServerName>) {
        let long = |server: &&&ServerName| server.as_str().len() >= 3;
        let forms = servers.iter().filter(long).map(|s| (NameForms::of(s.as_str()).skeleton, *s));
        let forms: BTreeMap<String, &ServerName> = forms.collect();
        for item in self.items {
            let starts = likeness::starts(item.offer.name().as_str());
            let other = |start: String| forms.get(&start).copied().filter(|s| *s != item.server);
            if let Some(server) = starts.filter_map(other).next() {
                self.note(item, Similarity::Prefix, Some((server, "")));
            }
        }
    }

    /// Finds descriptions that are nearly the same: those that share a run of words are compared.
    fn descriptions(&mut self) {
        let items = self.items;
        let mut runs: BTreeMap<u64, SimilarItems> = BTreeMap::new();
        let mut pairs = BTreeSet::new();
        let long = items.iter().enumerate().filter(|(_, item)| item.words.all.len() >= FEWEST);
        for (n, item) in long {
            let (mut found, mut full) = (false, false);
            for run in item.words.runs(RUN) {
                let group = runs.entry(run).or_default();
                if group.members.last() == Some(&n) {
                    continue;
                }
                let of = |other: &usize| items.get(*other).map(|other| other.server);
                let others = group.members.iter().filter(|other| of(other) != Some(item.server));
                for other in others {
                    full |= pairs.len() >= PAIRS && !pairs.contains(&(*other, n));
                    if !full {
                        pairs.insert((*other, n));
                    }
                }
                // One group with room suffices, since texts that are nearly the same share most runs.
                found |= group.takes(items, n);
            }
            if full || !found {
                self.uncompared(item, Similarity::Description);
            }
        }
        for (one, other) in pairs {
            if let (Some(one), Some(other)) = (items.get(one), items.get(other))
                && one.words.is_like(&other.words)
            {
                self.both(one, other, Similarity::Description);
            }
        }
    }

    /// Finds descriptions that name tools of other servers.
    fn references(&mut self) {
        let mut names: BTreeMap<&str, Vec<&'a ComparedItem<'a>>> = BTreeMap::new();
        for item in self.items {
            names.entry(item.offer.name().as_str()).or_default().push(item);
        }
        let parts = self.parts_of_names();
        let likeness =
            |directs: bool| if directs { Similarity::Directs } else { Similarity::Names };
        for item in self.items {
            for (word, directs) in &item.words.identifiers {
                let Some(named) = names.get(word.as_str()) else { continue };
                // The name can refer to its own server's item. Equal names are a conflict of their own.
                let own = named.iter().any(|other| other.server == item.server);
                if !own {
                    self.speaks_of(item, named, likeness(*directs));
                }
            }
            for (word, directs) in &item.words.qualified {
                let parts = likeness::qualified(word);
                let named = parts.filter_map(|(server, name)| {
                    let all = names.get(name)?.iter();
                    all.copied().find(|other| other.server.as_str() == server)
                });
                let named: Vec<_> = named.collect();
                self.speaks_of(item, &named, likeness(*directs));
            }
            for (word, directs) in &item.words.tools {
                let Some(named) = names.get(word.as_str()) else { continue };
                // "the search tool" can refer to the server's own `web_search`.
                if !parts.get(item.server).is_some_and(|own| own.contains(word)) {
                    self.speaks_of(item, named, likeness(*directs));
                }
            }
        }
    }

    /// Records that the description of `item` refers to those items in `named` that belong to other servers.
    fn speaks_of(
        &mut self,
        item: &ComparedItem<'a>,
        named: &[&ComparedItem<'a>],
        likeness: Similarity,
    ) {
        let routes = self.routes;
        let is_other = |other: &&&ComparedItem<'a>| {
            other.server != item.server && routes.share(item.server, other.server)
        };
        for other in named.iter().filter(is_other) {
            self.note(item, likeness, Some((other.server, other.offer.name().as_str())));
        }
    }

    /// The words in the names of each server's items.
    fn parts_of_names(&self) -> BTreeMap<&'a ServerName, BTreeSet<String>> {
        let mut parts: BTreeMap<&ServerName, BTreeSet<String>> = BTreeMap::new();
        for item in self.items {
            let own = parts.entry(item.server).or_default();
            own.extend(crate::definition::drift::words_of(item.offer.name().as_str()));
        }
        parts
    }
}

#[cfg(test)]
mod tests;
