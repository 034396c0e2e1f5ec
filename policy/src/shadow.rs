//! One server's tool that could be taken for another's: by its name, by what it says, or by what it
//! says about the other (control C11, threats T1008, T1301 and T1405).
//!
//! Names are compared in normal forms, which serve to find likeness and never to grant anything: a
//! rule matches a name byte for byte.

mod approved;
mod likeness;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::content::ToolNames;
use crate::kind::Kind;
use crate::lock::State;
use crate::mode::Mode;
use crate::name::ServerName;
use crate::offer::{Catalog, Offer, Place};
use crate::pins::Pins;

pub use approved::approved;
use likeness::{Forms, Words};
pub use routes::SharedRoutes;

/// Most things of one server that are compared with others because they are alike at first sight. It is
/// counted by server, so that none can keep the things of another from being compared; of what is over it
/// nobody can tell what it is like, and it counts as alike.
const GROUP: usize = 64;
/// Most pairs of names that are compared letter by letter.
const NEAR: usize = 1_000_000;
/// Most likenesses of one thing that are kept.
const KEPT: usize = 16;
/// Words in a row that make two texts worth comparing.
const RUN: usize = 3;
/// Fewest words of texts that are compared.
const FEWEST: usize = 6;
/// Shortest name that is compared with one letter more, less or different.
const SHORTEST: usize = 5;
/// Most pairs of descriptions that are compared.
const PAIRS: usize = 50_000;
/// Names that no server may use, in the form in which names are compared.
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

/// In which way one thing is like another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// The same name.
    Exact,
    /// The same but for the case of letters.
    Case,
    /// The same but for what stands between words.
    Separators,
    /// The same after NFKC.
    Compatibility,
    /// It looks the same (UTS #39).
    Confusable,
    /// It begins with the name of another server.
    Prefix,
    /// It is a name of the protocol or of the gateway.
    Reserved,
    /// One letter is different.
    OneLetter,
    /// Nearly the same description and arguments.
    Description,
    /// It says what is to be done with a tool of another server.
    Directs,
    /// It names a tool of another server.
    Names,
}

impl Likeness {
    /// In words.
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

    /// Whether both of two things are in question, and not only the one that is like the other.
    const fn is_mutual(self) -> bool {
        !matches!(self, Self::Prefix | Self::Reserved | Self::Directs | Self::Names)
    }
}

/// What is done about likeness between the tools and prompts of servers that a caller sees.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Shadowing {
    /// Names that are the same, but for case and separators. Default `audit`.
    pub same_names: Mode,
    /// Names that only look the same (NFKC, UTS #39), and names of the protocol. Default `enforce`.
    pub look_alikes: Mode,
    /// Names that begin with the name of another server. Default `audit`.
    pub prefixes: Mode,
    /// Names that are one letter apart. Default `audit`.
    pub near_names: Mode,
    /// Descriptions and arguments that are nearly the same. Default `audit`.
    pub descriptions: Mode,
    /// A description that says what is to be done with a tool of another server that is on a route with it.
    /// Default `enforce`.
    pub directions: Mode,
    /// A description that names a tool of another server that is on a route with it. Default `off`.
    pub references: Mode,
    /// Which of two that are alike is shown.
    pub winner: Winner,
    /// The servers, the one that wins first. For `winner: priority`.
    pub priority: Vec<String>,
}

/// Which of two that are alike is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Winner {
    /// Neither.
    #[default]
    Nobody,
    /// The one whose server stands first in `priority`.
    Priority,
    /// The one that was approved first.
    OldestPin,
}

impl Default for Shadowing {
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

impl Shadowing {
    /// What is done about this one.
    #[must_use]
    pub const fn of(&self, likeness: Likeness) -> Mode {
        match likeness {
            Likeness::Exact | Likeness::Case | Likeness::Separators => self.same_names,
            Likeness::Compatibility | Likeness::Confusable | Likeness::Reserved => self.look_alikes,
            Likeness::Prefix => self.prefixes,
            Likeness::OneLetter => self.near_names,
            Likeness::Description => self.descriptions,
            Likeness::Directs => self.directions,
            Likeness::Names => self.references,
        }
    }

    /// Whether `server` gives way to the other in this conflict. One that does not stand in
    /// `priority` loses to those that do.
    #[must_use]
    pub fn yields(
        &self,
        conflict: &Conflict,
        pins: &Pins,
        server: &ServerName,
        kind: Kind,
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
                    let approved = versions.iter().filter(|v| v.state == State::Approved);
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

/// One likeness of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// In which way.
    pub likeness: Likeness,
    /// The other: its server and its name. A server alone for [`Likeness::Prefix`]. Nothing for
    /// [`Likeness::Reserved`], and where there were too many others to compare it with all of them.
    pub rival: Option<(ServerName, Box<str>)>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.likeness.note())?;
        match &self.rival {
            // There were too many to compare it with all of them.
            None if self.likeness.is_mutual() => f.write_str(" too many others"),
            None => Ok(()),
            Some((server, name)) if name.is_empty() => write!(f, " `{server}`"),
            Some((server, name)) => write!(f, " `{}` of `{server}`", name.escape_debug()),
        }
    }
}

/// The coarsest form in which names are compared: those that look the same have the same.
#[must_use]
pub fn looks(name: &str) -> String {
    Forms::of(name).skeleton
}

/// Likenesses of the things of one server, by name.
type OfServer = BTreeMap<Box<str>, Vec<Conflict>>;

/// Likenesses by kind, server and name.
type Conflicts = BTreeMap<Kind, BTreeMap<Box<str>, OfServer>>;

/// Catalogues by server and kind.
type Catalogs = BTreeMap<(ServerName, Kind), Vec<Arc<Catalog>>>;

/// Everything that could be taken for something else, among all servers.
#[derive(Debug, Default)]
pub struct Shadows {
    /// What each server lists of each kind; more than one where callers are shown different lists.
    listed: Catalogs,
    /// What was approved of servers that have not listed it yet.
    approved: Catalogs,
    conflicts: Conflicts,
    /// What the tools of all servers are called.
    names: ToolNames,
}

/// One thing, and the forms in which it is compared.
struct Item<'a> {
    server: &'a ServerName,
    offer: &'a Offer,
    forms: Forms,
    words: Words,
}

impl Shadows {
    /// Compares everything in these catalogues: tools with tools, prompts with prompts. What a description
    /// says of tools of other servers counts where `routes` offer both to one client.
    #[must_use]
    pub fn among(catalogs: impl IntoIterator<Item = Arc<Catalog>>, routes: &SharedRoutes) -> Self {
        Self::expecting(catalogs, [], routes)
    }

    /// The same, where `approved` is what servers are taken to offer that have not listed it yet: see
    /// [`approved()`].
    #[must_use]
    pub fn expecting(
        listed: impl IntoIterator<Item = Arc<Catalog>>,
        approved: impl IntoIterator<Item = Arc<Catalog>>,
        routes: &SharedRoutes,
    ) -> Self {
        let (listed, approved) = (by_server(listed), by_server(approved));
        // The things of a server stand one after another: see `Group::takes`.
        let mut all = listed.clone();
        for (place, catalogs) in &approved {
            all.entry(place.clone()).or_default().extend(catalogs.iter().cloned());
        }
        let servers: BTreeSet<&ServerName> = all.keys().map(|(server, _)| server).collect();
        let mut found = BTreeMap::new();
        for kind in [Kind::Tool, Kind::Prompt] {
            let mut seen = BTreeSet::new();
            let of_kind = all.values().flatten().filter(|catalog| catalog.kind() == kind);
            let offers = of_kind
                .flat_map(|catalog| catalog.offers().iter().map(|offer| (catalog.server(), offer)));
            // What two callers are shown alike is one thing.
            let fresh = offers.filter(|(server, offer)| {
                seen.insert((server.as_str(), offer.name().as_str(), offer.digest()))
            });
            let items: Vec<_> = fresh.map(|(server, offer)| item(server, offer)).collect();
            let mut finder = Finder { items: &items, routes, found: &mut found };
            finder.names();
            finder.neighbours();
            finder.prefixes(&servers);
            finder.descriptions();
            finder.references();
        }
        let tools = all.values().flatten().filter(|catalog| catalog.kind() == Kind::Tool);
        let names = ToolNames::new(tools.flat_map(|catalog| {
            catalog.offers().iter().map(|offer| (catalog.server(), offer.name().as_str()))
        }));
        Self { listed, approved, conflicts: found, names }
    }

    /// In which ways `name` is like something else.
    pub fn of(&self, server: &ServerName, kind: Kind, name: &str) -> &[Conflict] {
        let of_server = self.conflicts.get(&kind).and_then(|of| of.get(server.as_str()));
        of_server.and_then(|of| of.get(name)).map_or(&[], Vec::as_slice)
    }

    /// What the tools of all servers are called.
    pub(crate) const fn names(&self) -> &ToolNames {
        &self.names
    }

    /// The definitions of a rival that its server lists.
    pub fn listed(
        &self,
        server: &ServerName,
        kind: Kind,
        name: &str,
    ) -> impl Iterator<Item = &Offer> {
        offers(&self.listed, server, kind, name)
    }

    /// The definitions of a rival that were approved, as long as its server has not listed what it offers.
    pub fn approved(
        &self,
        server: &ServerName,
        kind: Kind,
        name: &str,
    ) -> impl Iterator<Item = &Offer> {
        offers(&self.approved, server, kind, name)
    }

    /// What a caller's `name` stands for among what was listed last.
    #[must_use]
    pub fn place(&self, server: &ServerName, kind: Kind, name: &str) -> Option<Place<'_>> {
        let catalogs = self.listed.get(&(server.clone(), kind))?;
        catalogs.iter().find_map(|catalog| catalog.place(name))
    }

    /// Everything that was found.
    pub fn all(&self) -> impl Iterator<Item = (&str, Kind, &str, &[Conflict])> {
        let of_kind = |(kind, servers): (&Kind, _)| (*kind, servers);
        self.conflicts.iter().map(of_kind).flat_map(
            |(kind, servers): (Kind, &BTreeMap<Box<str>, OfServer>)| {
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

/// Every definition of one name in these catalogues.
fn offers<'a>(
    catalogs: &'a Catalogs,
    server: &ServerName,
    kind: Kind,
    name: &str,
) -> impl Iterator<Item = &'a Offer> {
    let of = catalogs.get(&(server.clone(), kind)).map_or(&[][..], Vec::as_slice);
    of.iter().filter_map(move |catalog| catalog.offer(name))
}

fn item<'a>(server: &'a ServerName, offer: &'a Offer) -> Item<'a> {
    let forms = Forms::of(offer.name().as_str());
    Item { server, offer, forms, words: Words::of(offer.definition()) }
}

/// Things that are alike at first sight, by their place among all, in order.
#[derive(Default)]
struct Group {
    members: Vec<usize>,
    /// How many of the server whose things come last.
    own: usize,
}

impl Group {
    /// Adds the thing at `n`, if there is room for one more of its server. The things of a server come
    /// one after another.
    fn takes(&mut self, items: &[Item<'_>], n: usize) -> bool {
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

    /// Every two of different servers.
    fn pairs<'a>(
        &self,
        items: &'a [Item<'a>],
    ) -> impl Iterator<Item = (&'a Item<'a>, &'a Item<'a>)> {
        let at = |n: &usize| items.get(*n);
        self.members.iter().enumerate().filter_map(move |(n, one)| Some((n, at(one)?))).flat_map(
            move |(n, one)| {
                let others = self.members.iter().skip(n + 1).filter_map(at);
                others.filter(|other| other.server != one.server).map(move |other| (one, other))
            },
        )
    }
}

struct Finder<'a> {
    items: &'a [Item<'a>],
    routes: &'a SharedRoutes,
    found: &'a mut Conflicts,
}

impl<'a> Finder<'a> {
    fn note(&mut self, item: &Item<'a>, likeness: Likeness, rival: Option<(&ServerName, &str)>) {
        let (name, kind) = (item.offer.name().as_str(), item.offer.kind());
        let rival = rival.map(|(server, name)| (server.clone(), name.into()));
        let of_server =
            self.found.entry(kind).or_default().entry(item.server.as_str().into()).or_default();
        let known = of_server.entry(name.into()).or_default();
        if known.iter().any(|one| one.rival == rival && one.likeness == likeness) {
            return;
        }
        // Counted by likeness, so that many of one sort hide none of another.
        if known.iter().filter(|one| one.likeness == likeness).count() < KEPT {
            known.push(Conflict { likeness, rival });
        }
    }

    fn both(&mut self, one: &Item<'a>, other: &Item<'a>, likeness: Likeness) {
        self.note(one, likeness, Some((other.server, other.offer.name().as_str())));
        self.note(other, likeness, Some((one.server, one.offer.name().as_str())));
    }

    /// Notes that something could not be compared with everything that it could be like.
    fn uncompared(&mut self, item: &Item<'a>, likeness: Likeness) {
        self.note(item, likeness, None);
    }

    /// Names that are the same in some form.
    fn names(&mut self) {
        let items = self.items;
        let reserved = RESERVED.map(|name| Forms::of(name).skeleton);
        let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
        for (n, item) in items.iter().enumerate() {
            let group = groups.entry(item.forms.skeleton.as_str()).or_default();
            if !group.takes(items, n) {
                self.uncompared(item, Likeness::Confusable);
            }
            if reserved.contains(&item.forms.skeleton) {
                self.note(item, Likeness::Reserved, None);
            }
        }
        for group in groups.values() {
            for (one, other) in group.pairs(items) {
                self.both(one, other, one.forms.likeness(&other.forms));
            }
        }
    }

    /// Names that differ in one letter: what both become when one letter is taken out is the same.
    fn neighbours(&mut self) {
        let items = self.items;
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for (n, item) in items.iter().enumerate() {
            let letters: Vec<char> = item.forms.compatible.chars().collect();
            if !(SHORTEST..=64).contains(&letters.len()) {
                continue;
            }
            for without in 0..=letters.len() {
                let rest = letters.iter().enumerate().filter(|(at, _)| *at != without);
                let group = groups.entry(rest.map(|(_, letter)| letter).collect()).or_default();
                if !group.takes(items, n) {
                    self.uncompared(item, Likeness::OneLetter);
                }
            }
        }
        let mut left = NEAR;
        for group in groups.values() {
            for (one, other) in group.pairs(items).take(left) {
                let near = one.forms.skeleton != other.forms.skeleton
                    && likeness::one_letter(&one.forms.compatible, &other.forms.compatible);
                if near {
                    self.both(one, other, Likeness::OneLetter);
                }
            }
            let over = group.pairs(items).nth(left).is_some();
            for item in group.members.iter().filter_map(|n| items.get(*n)).filter(|_| over) {
                self.uncompared(item, Likeness::OneLetter);
            }
            left = left.saturating_sub(group.pairs(items).take(left).count());
        }
    }

    fn prefixes(&mut self, servers: &BTreeSet<&ServerName>) {
        let long = |server: &&&ServerName| server.as_str().len() >= 3;
        let forms = servers.iter().filter(long).map(|s| (Forms::of(s.as_str()).skeleton, *s));
        let forms: BTreeMap<String, &ServerName> = forms.collect();
        for item in self.items {
            let starts = likeness::starts(item.offer.name().as_str());
            let other = |start: String| forms.get(&start).copied().filter(|s| *s != item.server);
            if let Some(server) = starts.filter_map(other).next() {
                self.note(item, Likeness::Prefix, Some((server, "")));
            }
        }
    }

    /// Descriptions that are nearly the same: those that share a run of words are compared.
    fn descriptions(&mut self) {
        let items = self.items;
        let mut runs: BTreeMap<u64, Group> = BTreeMap::new();
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
                // One run that it can be found by is enough: what is nearly the same shares most of them.
                found |= group.takes(items, n);
            }
            if full || !found {
                self.uncompared(item, Likeness::Description);
            }
        }
        for (one, other) in pairs {
            if let (Some(one), Some(other)) = (items.get(one), items.get(other))
                && one.words.is_like(&other.words)
            {
                self.both(one, other, Likeness::Description);
            }
        }
    }

    /// Tools of other servers that a description names.
    fn references(&mut self) {
        let mut names: BTreeMap<&str, Vec<&'a Item<'a>>> = BTreeMap::new();
        for item in self.items {
            names.entry(item.offer.name().as_str()).or_default().push(item);
        }
        let parts = self.parts_of_names();
        for item in self.items {
            for (word, directs) in &item.words.identifiers {
                let Some(named) = names.get(word.as_str()) else { continue };
                // What its own server offers too it may well mean. That two have one name is found by itself.
                let own = named.iter().any(|other| other.server == item.server);
                if !own {
                    self.speaks_of(item, named, *directs);
                }
            }
            for (word, directs) in &item.words.qualified {
                let parts = likeness::qualified(word);
                let named = parts.filter_map(|(server, name)| {
                    let all = names.get(name)?.iter();
                    all.copied().find(|other| other.server.as_str() == server)
                });
                let named: Vec<_> = named.collect();
                self.speaks_of(item, &named, *directs);
            }
            for (word, directs) in &item.words.tools {
                let Some(named) = names.get(word.as_str()) else { continue };
                // It means its own `web_search` by "the search tool".
                if !parts.get(item.server).is_some_and(|own| own.contains(word)) {
                    self.speaks_of(item, named, *directs);
                }
            }
        }
    }

    /// Notes that the description of `item` speaks of the things of other servers among `named`.
    fn speaks_of(&mut self, item: &Item<'a>, named: &[&Item<'a>], directs: bool) {
        let routes = self.routes;
        let is_other = |other: &&&Item<'a>| {
            other.server != item.server && routes.share(item.server, other.server)
        };
        for other in named.iter().filter(is_other) {
            let likeness = if directs { Likeness::Directs } else { Likeness::Names };
            self.note(item, likeness, Some((other.server, other.offer.name().as_str())));
        }
    }

    /// The words in the names of the things of each server.
    fn parts_of_names(&self) -> BTreeMap<&'a ServerName, BTreeSet<String>> {
        let mut parts: BTreeMap<&ServerName, BTreeSet<String>> = BTreeMap::new();
        for item in self.items {
            let own = parts.entry(item.server).or_default();
            own.extend(crate::drift::words_of(item.offer.name().as_str()));
        }
        parts
    }
}

#[cfg(test)]
mod tests;
