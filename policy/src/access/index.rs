//! Which rules can be about a thing, or about a caller, without looking at all of them.
//!
//! It only leaves out rules that cannot apply: who asks it checks each rule that it names. So what is
//! decided does not depend on it, only how long that takes.

use std::collections::BTreeMap;

use crate::kind::Kind;
use crate::pattern::{Pattern, Sought};
use crate::principal::{Principal, Who};

/// Places in the list of rules, each list in order.
type Places = Vec<usize>;

/// Finds rules by what they name and by whom they speak of.
#[derive(Debug, Default)]
pub(super) struct Index {
    tools: Names,
    prompts: Names,
    resources: Names,
    methods: Names,
    callers: BTreeMap<Who, Places>,
}

/// The rules that name things of one kind.
#[derive(Debug, Default)]
struct Names {
    exact: BTreeMap<Box<str>, Places>,
    /// What names begin with, by its length: there are few lengths, and each takes one look.
    beginnings: BTreeMap<usize, BTreeMap<Box<str>, Places>>,
    /// All other patterns.
    others: Places,
    /// Every rule that names something of this kind.
    all: Places,
}

impl Index {
    /// Adds the rule at `place`, which is after all that were added.
    pub(super) fn add<'a>(
        &mut self,
        place: usize,
        callers: &[Who],
        patterns: impl Fn(Kind) -> &'a [Pattern],
    ) {
        for who in callers {
            push(self.callers.entry(who.clone()).or_default(), place);
        }
        for kind in [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::Method] {
            let names = self.names_mut(kind);
            for pattern in patterns(kind) {
                names.add(place, pattern);
            }
        }
    }

    /// The rules that can be about any of these names of `kind`, asked for by `principal`; in order.
    pub(super) fn about<'a>(
        &self,
        principal: &Principal,
        kind: Kind,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Places {
        let mut named = Vec::new();
        for name in names {
            self.names(kind).find(name, &mut named);
        }
        shorter(named, self.speaking_of(principal))
    }

    /// The rules that name something of `kind` and can be for `principal`; in order.
    pub(super) fn of_kind(&self, principal: &Principal, kind: Kind) -> Places {
        shorter(vec![self.names(kind).all.as_slice()], self.speaking_of(principal))
    }

    /// The rules that can speak of whatever a rule speaks of that names `narrow` of `kind`, and `who`;
    /// in order.
    pub(super) fn around(&self, who: &Who, kind: Kind, narrow: &Pattern) -> Places {
        // A pattern that covers another is the same, or matches its text.
        let mut named = Vec::new();
        self.names(kind).find(narrow.as_str(), &mut named);
        let callers = [&Who::Anyone, who].into_iter().filter_map(|who| self.callers.get(who));
        shorter(named, callers.map(Vec::as_slice).collect())
    }

    /// The lists of rules that speak of `principal`.
    fn speaking_of(&self, principal: &Principal) -> Vec<&[usize]> {
        let Principal { id, groups, claims } = principal;
        let client = claims.client.as_ref().map(|client| Who::Client(client.clone()));
        let sorts = [Who::Anyone, Who::Principal(id.clone())].into_iter().chain(client);
        let groups = groups.iter().map(|group| Who::Group(group.clone()));
        let roles = claims.roles.iter().map(|role| Who::Role(role.clone()));
        let all = sorts.chain(groups).chain(roles);
        all.filter_map(|who| self.callers.get(&who).map(Vec::as_slice)).collect()
    }

    const fn names(&self, kind: Kind) -> &Names {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource | Kind::Template => &self.resources,
            Kind::Method => &self.methods,
        }
    }

    const fn names_mut(&mut self, kind: Kind) -> &mut Names {
        match kind {
            Kind::Tool => &mut self.tools,
            Kind::Prompt => &mut self.prompts,
            Kind::Resource | Kind::Template => &mut self.resources,
            Kind::Method => &mut self.methods,
        }
    }
}

impl Names {
    fn add(&mut self, place: usize, pattern: &Pattern) {
        push(&mut self.all, place);
        let places = match pattern.sought() {
            Sought::Name(name) => self.exact.entry(name.into()).or_default(),
            Sought::Beginning(beginning) => {
                let same = self.beginnings.entry(beginning.len()).or_default();
                same.entry(beginning.into()).or_default()
            }
            Sought::Other => &mut self.others,
        };
        push(places, place);
    }

    /// Adds the lists of rules with a pattern that can match `name`.
    fn find<'a>(&'a self, name: &str, found: &mut Vec<&'a [usize]>) {
        found.extend(self.exact.get(name).map(Vec::as_slice));
        for (length, same) in self.beginnings.range(..=name.len()) {
            let places = name.get(..*length).and_then(|beginning| same.get(beginning));
            found.extend(places.map(Vec::as_slice));
        }
        found.push(&self.others);
    }
}

/// Adds a rule once, however many of its patterns lead here.
fn push(places: &mut Places, place: usize) {
    if places.last() != Some(&place) {
        places.push(place);
    }
}

/// A rule that applies is in one list of each kind, so the kind with fewer of them will do.
fn shorter(named: Vec<&[usize]>, speaking: Vec<&[usize]>) -> Places {
    let count = |lists: &[&[usize]]| lists.iter().map(|list| list.len()).sum::<usize>();
    let fewer = if count(&named) <= count(&speaking) { named } else { speaking };
    let mut places = fewer.concat();
    places.sort_unstable();
    places.dedup();
    places
}
