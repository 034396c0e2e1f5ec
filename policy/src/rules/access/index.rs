//! Finds the rules that can concern a name or a principal without scanning all of them.
//!
//! The index only excludes rules that cannot apply; the caller still checks each rule returned. It therefore affects
//! the time of a decision and never its outcome.

use std::borrow::Cow;
use std::collections::BTreeMap;

use policy_core::subject::kind::ItemKind;
use policy_core::subject::name::{ClientId, GroupName, PrincipalId, RoleName};
use policy_core::subject::pattern::{Pattern, PatternLookup};
use policy_core::subject::principal::{Principal, PrincipalSelector};

/// Positions in the list of rules, in ascending order.
type RulePositions = Vec<usize>;

/// Index of rules by the names and the principals they mention.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    tools: PatternIndex,
    prompts: PatternIndex,
    resources: PatternIndex,
    skills: PatternIndex,
    methods: PatternIndex,
    callers: CallerIndex,
}

/// The rules by the callers they select. There is a map for each kind of selector, so that a lookup borrows the name
/// that the caller has.
#[derive(Debug, Default)]
struct CallerIndex {
    anyone: RulePositions,
    groups: BTreeMap<GroupName, RulePositions>,
    roles: BTreeMap<RoleName, RulePositions>,
    clients: BTreeMap<ClientId, RulePositions>,
    principals: BTreeMap<PrincipalId, RulePositions>,
}

/// The rules that name things of one kind.
#[derive(Debug, Default)]
struct PatternIndex {
    exact: BTreeMap<Box<str>, RulePositions>,
    /// Prefix patterns by prefix length: there are few lengths, and each takes one lookup.
    beginnings: BTreeMap<usize, BTreeMap<Box<str>, RulePositions>>,
    /// Rules with a pattern that is neither a name nor a prefix.
    others: RulePositions,
    /// Every rule that names something of this kind.
    all: RulePositions,
}

impl RuleIndex {
    /// Adds the rule at `place`, which must be greater than all places added before.
    pub(super) fn add<'a>(
        &mut self,
        place: usize,
        callers: &[PrincipalSelector],
        patterns: impl Fn(ItemKind) -> &'a [Pattern],
    ) {
        for who in callers {
            push(self.callers.entry(who), place);
        }
        for kind in ItemKind::RULED {
            let names = self.names_mut(kind);
            for pattern in patterns(kind) {
                names.add(place, pattern);
            }
        }
    }

    /// The rules that can apply to any of these names of `kind` and to `principal`; in order.
    pub(super) fn about(
        &self,
        principal: &Principal,
        kind: ItemKind,
        names: impl IntoIterator<Item: AsRef<str>>,
    ) -> Cow<'_, [usize]> {
        let mut named = Vec::with_capacity(4);
        for name in names {
            self.names(kind).find(name.as_ref(), &mut named);
        }
        shorter(named, self.callers.selecting(principal))
    }

    /// The rules that name something of `kind` and can apply to `principal`; in order.
    pub(super) fn of_kind(&self, principal: &Principal, kind: ItemKind) -> Cow<'_, [usize]> {
        shorter(vec![self.names(kind).all.as_slice()], self.callers.selecting(principal))
    }

    /// The rules that can cover a rule for `who` that names `narrow` of `kind`; in order.
    pub(super) fn around(
        &self,
        who: &PrincipalSelector,
        kind: ItemKind,
        narrow: &Pattern,
    ) -> Cow<'_, [usize]> {
        // A pattern covers another only if it equals it or matches its text.
        let mut named = Vec::new();
        self.names(kind).find(narrow.as_str(), &mut named);
        let same = Some(who).filter(|who| **who != PrincipalSelector::Anyone);
        let callers = same.and_then(|who| self.callers.of(who));
        shorter(named, [self.callers.anyone.as_slice()].into_iter().chain(callers).collect())
    }

    const fn names(&self, kind: ItemKind) -> &PatternIndex {
        match kind {
            ItemKind::Tool => &self.tools,
            ItemKind::Prompt => &self.prompts,
            ItemKind::Resource | ItemKind::Template => &self.resources,
            ItemKind::Skill => &self.skills,
            ItemKind::Method => &self.methods,
        }
    }

    const fn names_mut(&mut self, kind: ItemKind) -> &mut PatternIndex {
        match kind {
            ItemKind::Tool => &mut self.tools,
            ItemKind::Prompt => &mut self.prompts,
            ItemKind::Resource | ItemKind::Template => &mut self.resources,
            ItemKind::Skill => &mut self.skills,
            ItemKind::Method => &mut self.methods,
        }
    }
}

impl CallerIndex {
    /// The rules with this selector; to add one.
    fn entry(&mut self, who: &PrincipalSelector) -> &mut RulePositions {
        match who {
            PrincipalSelector::Anyone => &mut self.anyone,
            PrincipalSelector::Group(group) => self.groups.entry(group.clone()).or_default(),
            PrincipalSelector::Role(role) => self.roles.entry(role.clone()).or_default(),
            PrincipalSelector::Client(client) => self.clients.entry(client.clone()).or_default(),
            PrincipalSelector::Principal(id) => self.principals.entry(id.clone()).or_default(),
        }
    }

    /// The rules with this selector, if there are any.
    fn of(&self, who: &PrincipalSelector) -> Option<&[usize]> {
        let places = match who {
            PrincipalSelector::Anyone => Some(&self.anyone),
            PrincipalSelector::Group(group) => self.groups.get(group),
            PrincipalSelector::Role(role) => self.roles.get(role),
            PrincipalSelector::Client(client) => self.clients.get(client),
            PrincipalSelector::Principal(id) => self.principals.get(id),
        };
        places.map(Vec::as_slice)
    }

    /// The lists of rules that select `principal`.
    fn selecting(&self, principal: &Principal) -> Vec<&[usize]> {
        let Principal { id, groups, claims } = principal;
        let client = claims.client.as_ref().and_then(|client| self.clients.get(client));
        let groups = groups.iter().filter_map(|group| self.groups.get(group));
        let roles = claims.roles.iter().filter_map(|role| self.roles.get(role));
        let own = self.principals.get(id).into_iter().chain(client);
        let all = std::iter::once(&self.anyone).chain(own).chain(groups).chain(roles);
        all.map(Vec::as_slice).filter(|places| !places.is_empty()).collect()
    }
}

impl PatternIndex {
    fn add(&mut self, place: usize, pattern: &Pattern) {
        push(&mut self.all, place);
        let places = match pattern.sought() {
            PatternLookup::Name(name) => self.exact.entry(name.into()).or_default(),
            PatternLookup::Beginning(beginning) => {
                let same = self.beginnings.entry(beginning.len()).or_default();
                same.entry(beginning.into()).or_default()
            }
            PatternLookup::Other => &mut self.others,
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

/// Adds a rule once, even if several of its patterns end up in this list.
fn push(places: &mut RulePositions, place: usize) {
    if places.last() != Some(&place) {
        places.push(place);
    }
}

/// Every applicable rule is in a list of both groups, so the group with fewer rules suffices.
fn shorter<'a>(named: Vec<&'a [usize]>, speaking: Vec<&'a [usize]>) -> Cow<'a, [usize]> {
    let count = |lists: &[&[usize]]| lists.iter().map(|list| list.len()).sum::<usize>();
    let fewer = if count(&named) <= count(&speaking) { named } else { speaking };
    let mut filled = fewer.iter().filter(|list| !list.is_empty());
    match (filled.next(), filled.next()) {
        (None, _) => Cow::Borrowed(&[]),
        // Each list is in order.
        (Some(only), None) => Cow::Borrowed(only),
        (Some(_), Some(_)) => {
            let mut places = fewer.concat();
            places.sort_unstable();
            places.dedup();
            Cow::Owned(places)
        }
    }
}
