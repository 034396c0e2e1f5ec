//! Decides whether a definition may be used: only if its canonical form equals an approved one and its server is
//! neither quarantined nor another server than the approved one (control C10).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::alike::{Remade, Volatile, volatile_defaults};
use crate::inspect::Excused;
use crate::json::{Fragment, Value};
use crate::lock::{Exception, Lock, Locked, State, Version};
use crate::mode::Mode;
use crate::offer::{Kind, Offer};
use crate::pin::{Digest, Subject};
use crate::schema::Compilable;
use crate::template::UriTemplate;
use crate::uri::{self, ResourceUri};

/// The members of `definition` to add to `pins.volatile` so that it matches an approved one of `versions`, if they
/// differ only in defaults that were `remade`; see [`volatile_defaults`]. `known` are the members already listed.
#[must_use]
pub fn volatile_members(
    versions: &[Version],
    definition: Value<'_>,
    known: &[Box<str>],
    remade: Remade,
) -> Vec<Box<str>> {
    let approved = versions.iter().filter(|version| version.state == State::Approved);
    let members = approved
        .map(|version| volatile_defaults(version.definition.value(), definition, known, remade));
    members.into_iter().find(|members| !members.is_empty()).unwrap_or_default()
}

/// Why a definition may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// No definition of this name is approved.
    NotApproved,
    /// Only another definition of this name is approved.
    Changed,
    /// The approval was withdrawn.
    Revoked,
    /// The definition has no digest: a number in it has no exact canonical form.
    Unpinnable,
    /// The definition is approved, but the server no longer lists it.
    Removed,
    /// The server alternates between definitions.
    Inconsistent,
    /// The server is quarantined, and none of its definitions may be used.
    Quarantined,
    /// The server is not the one that was approved.
    Identity,
}

impl Unfit {
    /// Every code, for the documentation and its test.
    pub const CODES: [&str; 8] = [
        "not-approved",
        "definition-changed",
        "approval-revoked",
        "unpinnable",
        "definition-removed",
        "definition-inconsistent",
        "server-quarantined",
        "server-identity",
    ];

    /// The stable code for clients, metrics and the audit log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotApproved => "not-approved",
            Self::Changed => "definition-changed",
            Self::Revoked => "approval-revoked",
            Self::Unpinnable => "unpinnable",
            Self::Removed => "definition-removed",
            Self::Inconsistent => "definition-inconsistent",
            Self::Quarantined => "server-quarantined",
            Self::Identity => "server-identity",
        }
    }

    /// Explains the reason in a few words.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::NotApproved => "nobody has approved it",
            Self::Changed => "another definition of it was approved",
            Self::Revoked => "its approval was taken back",
            Self::Unpinnable => "a number in it does not survive canonical form",
            Self::Removed => "it was approved, but its server does not list it",
            Self::Inconsistent => "its server defines it now this way and now that",
            Self::Quarantined => "its server is quarantined",
            Self::Identity => "its server is not the one that was approved",
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Which resources of a server may be used without an approval of their own, since servers create some at run time.
/// Their contents are inspected like every result, and rules and revocations apply as usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResourcePins {
    /// No resources without their own approval.
    Pinned,
    /// Resources that match an approved template of the server, and those that results of the server linked to, for
    /// the callers who received the links.
    #[default]
    ByTemplate,
    /// All resources of the server.
    Dynamic,
}

/// Whether a result of the server gave the caller a link to the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// The caller received a link to it.
    Given,
    /// No link was given, or it is not a resource.
    No,
}

/// A changed definition that is accepted without approval.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// The approved definition, if arguments must match its schema as well.
    approved: Option<Fragment>,
    /// Input schema of the approved definition, compiled on first use.
    input: Arc<OnceLock<Option<Arc<Compilable>>>>,
}

impl Accepted {
    /// A change that accepts no further arguments than `approved`, as far as is known; arguments must match both
    /// schemas.
    #[must_use]
    pub fn within(approved: Fragment) -> Self {
        Self { approved: Some(approved), input: Arc::default() }
    }

    /// The input schema that arguments must match in addition to the current one; `None` if the approved schema is
    /// the same, or if wider schemas are accepted.
    fn input(&self, now: &Offer) -> Option<&Arc<Compilable>> {
        let said = self.approved.as_ref()?.value().get("inputSchema")?;
        let now = now.definition().get("inputSchema");
        self.input
            .get_or_init(|| {
                let differs = now.map(Value::raw) != Some(said.raw());
                differs.then(|| Arc::new(Compilable::new(said)))
            })
            .as_ref()
    }
}

/// Approvals, and reservations against servers, at one point in time. The default approves nothing.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    /// Whether pins are enforced, only audited, or off.
    pub mode: Mode,
    /// The content of the lockfile.
    pub lock: Arc<Lock>,
    /// Changed definitions that are accepted without approval, by server and digest.
    pub accepted: BTreeMap<(Box<str>, Digest), Accepted>,
    /// Definitions that their servers alternate between.
    pub inconsistent: BTreeSet<(Box<str>, Kind, Box<str>)>,
    /// Servers that are quarantined.
    pub quarantined: BTreeSet<Box<str>>,
    /// Servers whose identity differs from the approved one.
    pub strangers: BTreeSet<Box<str>>,
    /// Values that may differ between lists.
    pub volatile: Arc<Volatile>,
    /// Which resources may be used without their own approval, by server; the default for servers without an entry.
    pub resources: Arc<BTreeMap<Box<str>, ResourcePins>>,
    /// Templates and revoked resources of the lockfile, cached.
    pub made: MadeAtRunTime,
}

/// Cache of what the lockfile implies for resources that it does not contain, computed once per lockfile.
#[derive(Debug, Default)]
pub struct MadeAtRunTime(ArcSwapOption<MadeUnder>);

/// The cached value for one lockfile.
#[derive(Debug)]
struct MadeUnder {
    lock: Weak<Lock>,
    servers: BTreeMap<Box<str>, MadeOf>,
}

impl Clone for MadeAtRunTime {
    fn clone(&self) -> Self {
        Self(ArcSwapOption::from(self.0.load_full()))
    }
}

/// What the lockfile implies for unlisted resources of one server.
#[derive(Debug)]
struct MadeOf {
    /// Approved templates of the server.
    templates: Vec<UriTemplate>,
    /// Every form of the URIs whose approval was withdrawn.
    revoked: BTreeSet<Box<str>>,
}

impl MadeOf {
    fn new(locked: &Locked) -> Self {
        let (mut templates, mut revoked) = (Vec::new(), BTreeSet::new());
        for ((kind, name), versions) in &locked.offers {
            match (kind, decided(versions)) {
                (Kind::Template, Some(State::Approved)) => {
                    templates.extend(UriTemplate::read(name))
                }
                (Kind::Resource, Some(State::Revoked)) => {
                    let Ok(uri) = ResourceUri::listed(name) else { continue };
                    revoked.extend(uri::related(uri.as_str()).into_iter().map(|form| form.into()));
                }
                (
                    Kind::Tool | Kind::Prompt | Kind::Resource | Kind::Template | Kind::Method,
                    None | Some(State::Pending | State::Approved | State::Revoked),
                ) => {}
            }
        }
        Self { templates, revoked }
    }
}

/// The decision about a thing with these versions; `None` if all are pending.
fn decided(versions: &[Version]) -> Option<State> {
    let is = |state| versions.iter().any(|version| version.state == state);
    match (is(State::Approved), is(State::Revoked)) {
        (true, _) => Some(State::Approved),
        (false, true) => Some(State::Revoked),
        (false, false) => None,
    }
}

impl Pins {
    /// Why `name` may not be used, for a caller without links; `None` if it may. `offer` is `None` for things that
    /// are not listed.
    #[must_use]
    pub fn unfit(
        &self,
        server: &str,
        kind: Kind,
        name: &str,
        offer: Option<&Offer>,
    ) -> Option<Unfit> {
        self.unfit_for(server, kind, name, offer, Linked::No)
    }

    /// Why `name` may not be used by a caller, who may have received a link to it; `None` if it may.
    ///
    /// A resource may be created at run time, whether or not it is listed: see [`ResourcePins`].
    #[must_use]
    pub fn unfit_for(
        &self,
        server: &str,
        kind: Kind,
        name: &str,
        offer: Option<&Offer>,
        linked: Linked,
    ) -> Option<Unfit> {
        if let Some(unfit) = self.unfit_server(server) {
            return Some(unfit);
        }
        if kind == Kind::Method {
            return None;
        }
        let Some(offer) = offer else {
            if kind != Kind::Resource {
                return Some(Unfit::Removed);
            }
            return match self.of_resource(server, name) {
                Some(State::Revoked) => Some(Unfit::Removed),
                // The approval was for a listed resource, and the server no longer lists it.
                Some(State::Approved) => {
                    self.unfit_made(server, name, linked).map(|_| Unfit::Removed)
                }
                Some(State::Pending) | None => self.unfit_made(server, name, linked),
            };
        };
        let versions = self.versions(server, kind, name);
        let Some(digest) = offer.digest() else { return Some(Unfit::Unpinnable) };
        if !self.inconsistent.is_empty()
            && self.inconsistent.contains(&(server.into(), kind, name.into()))
        {
            return Some(Unfit::Inconsistent);
        }
        match self.unfit_version(server, versions, offer, digest) {
            Some(Unfit::NotApproved) if kind == Kind::Resource && decided(versions).is_none() => {
                self.unfit_made(server, name, linked)
            }
            unfit => unfit,
        }
    }

    /// Why a resource without any decision in the lockfile may not be used; `None` if it may.
    #[must_use]
    fn unfit_made(&self, server: &str, name: &str, linked: Linked) -> Option<Unfit> {
        let Ok(uri) = ResourceUri::listed(name) else { return Some(Unfit::NotApproved) };
        let made = self.made();
        let made = made.servers.get(server);
        let is_revoked = |made: &MadeOf| {
            uri::related(uri.as_str()).iter().any(|form| made.revoked.contains(&**form))
        };
        if made.is_some_and(is_revoked) {
            return Some(Unfit::Revoked);
        }
        let is_of_template =
            |made: &MadeOf| made.templates.iter().any(|template| template.matches(&uri));
        let fits = match self.mode_of(server) {
            ResourcePins::Pinned => false,
            ResourcePins::ByTemplate => linked == Linked::Given || made.is_some_and(is_of_template),
            ResourcePins::Dynamic => true,
        };
        (!fits).then_some(Unfit::NotApproved)
    }

    /// What the lockfile implies for resources that it does not contain.
    fn made(&self) -> Arc<MadeUnder> {
        let lock = Arc::downgrade(&self.lock);
        // INVARIANT: a lock is never modified in place while there are references to it, including weak ones.
        if let Some(known) = self.made.0.load_full().filter(|known| known.lock.ptr_eq(&lock)) {
            return known;
        }
        let locked = self.lock.servers.iter();
        let servers =
            locked.map(|(server, locked)| (server.clone(), MadeOf::new(locked))).collect();
        let made = Arc::new(MadeUnder { lock, servers });
        self.made.0.store(Some(Arc::clone(&made)));
        made
    }

    /// The digest of the approved version that equals `offer` regardless of order and volatile values; otherwise its
    /// own.
    #[must_use]
    pub fn settled(&self, server: &str, offer: &Offer) -> Option<Digest> {
        let own = offer.digest()?;
        let versions = self.versions(server, offer.kind(), offer.name().as_str());
        if versions.iter().any(|version| version.digest == own) {
            return Some(own);
        }
        let mut alike = self.like(server, versions, offer);
        Some(alike.find(|version| version.state == State::Approved).map_or(own, |v| v.digest))
    }

    /// Whether two definitions of one thing are equal, apart from order and volatile values.
    #[must_use]
    pub fn are_alike(&self, server: &str, one: &Offer, other: &Offer) -> bool {
        let (kind, name) = (one.kind(), one.name().as_str());
        let volatile = self.volatile.get(&(server.into(), kind, name.into()));
        let volatile = volatile.map_or(&[][..], Vec::as_slice);
        let like = one.alike(volatile);
        one.digest() == other.digest() || like.is_some() && like == other.alike(volatile)
    }

    /// The accepted findings in the definition of `name` with exactly this digest; `kind` is `None` for what the
    /// server states about itself. A definition that merely resembles an approved one has no exceptions.
    #[must_use]
    pub fn exceptions(
        &self,
        server: &str,
        kind: Option<Kind>,
        name: &str,
        digest: Option<Digest>,
    ) -> &[Exception] {
        let locked = self.lock.servers.get(server);
        let versions = locked.map_or(&[][..], |locked| match kind {
            Some(kind) => locked.versions(kind, name),
            None => &locked.server,
        });
        let is = |v: &&Version| Some(v.digest) == digest && v.state == State::Approved;
        versions.iter().find(is).map_or(&[], |version| &version.exceptions)
    }

    /// The accepted findings of [`Self::exceptions`] as a set.
    #[must_use]
    pub fn excused(
        &self,
        server: &str,
        kind: Option<Kind>,
        name: &str,
        digest: Option<Digest>,
    ) -> Excused {
        let mut excused = Excused::default();
        for exception in self.exceptions(server, kind, name, digest) {
            excused.note(exception.finding);
        }
        excused
    }

    /// Why `name` may not be used if it is unknown whether it is listed; `None` if some version of it is approved, or
    /// if it is a resource that may be created at run time.
    #[must_use]
    pub fn unfit_unlisted(
        &self,
        server: &str,
        kind: Kind,
        name: &str,
        linked: Linked,
    ) -> Option<Unfit> {
        if let Some(unfit) = self.unfit_server(server) {
            return Some(unfit);
        }
        let is_approved = |version: &Version| version.state == State::Approved;
        let fits = match kind {
            Kind::Method => true,
            Kind::Resource => match self.of_resource(server, name) {
                Some(State::Approved) => true,
                Some(State::Revoked) => false,
                Some(State::Pending) | None => {
                    return self.unfit_made(server, name, linked);
                }
            },
            Kind::Tool | Kind::Prompt | Kind::Template => {
                self.versions(server, kind, name).iter().any(is_approved)
            }
        };
        (!fits).then_some(Unfit::NotApproved)
    }

    /// Why the resource `name` may not be used, which is not listed itself but related to the URI of the listed
    /// `offer`; `None` if it may. If the lockfile has versions of it, it counts as removed. Otherwise it is treated
    /// like `offer` if that is approved by name, except under [`ResourcePins::Pinned`]; beside a resource created at
    /// run time it must be usable as one itself.
    #[must_use]
    pub(crate) fn unfit_beside(
        &self,
        server: &str,
        name: &str,
        offer: &Offer,
        linked: Linked,
    ) -> Option<Unfit> {
        if !self.versions(server, Kind::Resource, name).is_empty() {
            return Some(Unfit::Removed);
        }
        let listed = offer.name().as_str();
        let unfit = self.unfit_for(server, Kind::Resource, listed, Some(offer), linked);
        if unfit.is_some() {
            return unfit;
        }
        let by_name = decided(self.versions(server, Kind::Resource, listed));
        match (by_name, self.mode_of(server)) {
            (Some(State::Approved), ResourcePins::ByTemplate | ResourcePins::Dynamic) => None,
            (_, _) => self.unfit_made(server, name, linked),
        }
    }

    /// Which resources of `server` may be used without their own approval.
    fn mode_of(&self, server: &str) -> ResourcePins {
        self.resources.get(server).copied().unwrap_or_default()
    }

    /// The decision about a resource under any related spelling of its URI. An approval of one spelling takes
    /// precedence over a revocation of another.
    fn of_resource(&self, server: &str, name: &str) -> Option<State> {
        let locked = self.lock.servers.get(server);
        let names = ResourceUri::parse(name).ok();
        let names: Vec<_> = names
            .as_ref()
            .map(|uri| uri::related(uri.as_str()).into_iter().map(String::from).collect())
            .unwrap_or_default();
        let own: Box<str> = name.into();
        let is = |known: &str| {
            let form = |uri: &str| names.iter().any(|name| name == uri);
            *known == *own
                || ResourceUri::listed(known)
                    .is_ok_and(|known| uri::related(known.as_str()).iter().any(|uri| form(uri)))
        };
        let offers = locked.into_iter().flat_map(|locked| &locked.offers);
        let own = offers.filter(|((kind, known), _)| *kind == Kind::Resource && is(known));
        let states: Vec<State> = own.filter_map(|(_, versions)| decided(versions)).collect();
        match states.contains(&State::Approved) {
            true => Some(State::Approved),
            false => states.first().copied(),
        }
    }

    /// Why a member of what `server` states about itself may not be shown; `None` if an approved version has the same
    /// member. `field` is the digest of the member, `whole` that of the complete statement.
    #[must_use]
    pub fn unfit_field(
        &self,
        server: &str,
        whole: Option<Digest>,
        name: &str,
        field: Option<Digest>,
    ) -> Option<Unfit> {
        if let Some(unfit) = self.unfit_server(server) {
            return Some(unfit);
        }
        if whole.is_some_and(|whole| self.accepted.contains_key(&(server.into(), whole))) {
            return None;
        }
        let versions = self.lock.servers.get(server).map_or(&[][..], |locked| &locked.server);
        let mut approved = versions.iter().filter(|version| version.state == State::Approved);
        if approved.clone().any(|version| Some(version.digest) == whole) {
            return None;
        }
        let Some(field) = field else { return Some(Unfit::Unpinnable) };
        let has = |version: &Version| {
            let definition = version.definition.value();
            let fields = Digest::of_fields(version.digest.subject(), definition);
            fields.is_ok_and(|fields| fields.iter().any(|(n, d)| **n == *name && *d == field))
        };
        if approved.clone().next().is_none() {
            return Some(Unfit::NotApproved);
        }
        (!approved.any(has)).then_some(Unfit::Changed)
    }

    /// Why nothing of `server` may be used; `None` if nothing prevents it.
    #[must_use]
    pub fn unfit_server(&self, server: &str) -> Option<Unfit> {
        if self.strangers.contains(server) {
            return Some(Unfit::Identity);
        }
        self.quarantined.contains(server).then_some(Unfit::Quarantined)
    }

    /// The approved input schema that arguments must match in addition to the current one, if the current definition
    /// was accepted as a change that admits no more.
    #[must_use]
    pub fn approved_input(&self, server: &str, offer: &Offer) -> Option<&Arc<Compilable>> {
        if self.accepted.is_empty() || offer.kind() != Kind::Tool {
            return None;
        }
        let digest = offer.digest()?;
        let accepted = self.accepted.get(&(server.into(), digest))?;
        let versions = self.versions(server, Kind::Tool, offer.name().as_str());
        let approved =
            |version: &Version| version.digest == digest && version.state == State::Approved;
        // The definition may have been approved since.
        (!versions.iter().any(approved)).then(|| accepted.input(offer)).flatten()
    }

    fn versions(&self, server: &str, kind: Kind, name: &str) -> &[Version] {
        self.lock.servers.get(server).map_or(&[], |locked| locked.versions(kind, name))
    }

    fn unfit_version(
        &self,
        server: &str,
        versions: &[Version],
        offer: &Offer,
        digest: Digest,
    ) -> Option<Unfit> {
        let known = versions.iter().find(|version| version.digest == digest);
        match known.map(|version| version.state) {
            Some(State::Approved) => return None,
            Some(State::Revoked) => return Some(Unfit::Revoked),
            Some(State::Pending) | None if self.accepted.contains_key(&(server.into(), digest)) => {
                return None;
            }
            Some(State::Pending) | None => {}
        }
        let alike: Vec<_> = self.like(server, versions, offer).map(|v| v.state).collect();
        if alike.contains(&State::Revoked) {
            return Some(Unfit::Revoked);
        }
        if alike.contains(&State::Approved) {
            return None;
        }
        let approved = versions.iter().any(|version| version.state == State::Approved);
        Some(if approved { Unfit::Changed } else { Unfit::NotApproved })
    }

    /// The versions that equal `offer` regardless of order and volatile values.
    fn like<'a>(
        &self,
        server: &str,
        versions: &'a [Version],
        offer: &Offer,
    ) -> impl Iterator<Item = &'a Version> {
        let (kind, name) = (offer.kind(), offer.name().as_str());
        let volatile = if self.volatile.is_empty() {
            None
        } else {
            self.volatile.get(&(server.into(), kind, name.into()))
        };
        let volatile = volatile.map_or(&[][..], Vec::as_slice);
        // Only schemas of tools have lists that are sets.
        let differs = !versions.is_empty() && (kind == Kind::Tool || !volatile.is_empty());
        let wanted = differs.then(|| offer.alike(volatile)).flatten();
        let subject = Subject::Offer(kind);
        let is = |version: &&Version| {
            let like = || version.alike.of(subject, version.definition.value(), volatile);
            wanted.is_some() && like() == wanted
        };
        versions.iter().filter(is).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{Accepted, Linked, Pins, ResourcePins, Unfit};
    use crate::inspect::Detector;
    use crate::json::{Bounds, Document, Fragment};
    use crate::lock::{Exception, Lock, Locked, State, Version};
    use crate::offer::{Kind, Offer};
    use std::sync::Arc;

    fn pins(state: State, definition: &str) -> Pins {
        let document = Document::parse(definition.to_owned().into(), &Bounds::MESSAGE).unwrap();
        let definition = Fragment::whole(Arc::new(document));
        let digest = Offer::for_tests(Kind::Tool, definition.value().raw()).digest().unwrap();
        let version = Version::new(digest, state, definition);
        let offers = [((Kind::Tool, "a".into()), vec![version])].into();
        let locked = Locked { offers, ..Locked::default() };
        let lock = Lock { servers: [("up".into(), locked)].into() };
        Pins { lock: Arc::new(lock), ..Pins::default() }
    }

    #[test]
    fn only_what_was_approved_as_it_was_approved_may_be_used() {
        let (v1, v2) = (r#"{"name":"a","description":"x"}"#, r#"{"name":"a","description":"y"}"#);
        let same = Offer::for_tests(Kind::Tool, r#"{ "description": "\u0078", "name": "a" }"#);
        let other = Offer::for_tests(Kind::Tool, v2);
        let check = |pins: &Pins, offer: &Offer| pins.unfit("up", Kind::Tool, "a", Some(offer));
        assert_eq!(check(&Pins::default(), &same), Some(Unfit::NotApproved));
        assert_eq!(check(&pins(State::Pending, v1), &same), Some(Unfit::NotApproved));
        assert_eq!(check(&pins(State::Revoked, v1), &same), Some(Unfit::Revoked));
        let mut approved = pins(State::Approved, v1);
        assert_eq!(check(&approved, &same), None);
        assert_eq!(check(&approved, &other), Some(Unfit::Changed));
        assert_eq!(approved.unfit("up", Kind::Tool, "a", None), Some(Unfit::Removed));
        assert_eq!(approved.unfit("down", Kind::Tool, "a", Some(&same)), Some(Unfit::NotApproved));
        let inexact = Offer::for_tests(Kind::Tool, r#"{"name":"a","x":9007199254740993}"#);
        assert_eq!(check(&approved, &inexact), Some(Unfit::Unpinnable));
        approved.accepted.insert(("up".into(), other.digest().unwrap()), Accepted::default());
        assert_eq!(check(&approved, &other), None);
        approved.inconsistent.insert(("up".into(), Kind::Tool, "a".into()));
        assert_eq!(check(&approved, &same), Some(Unfit::Inconsistent));
        approved.quarantined.insert("up".into());
        assert_eq!(check(&approved, &same), Some(Unfit::Quarantined));
        approved.strangers.insert("up".into());
        assert_eq!(check(&approved, &same), Some(Unfit::Identity));
    }

    const FLAG: &str = r#"{"name":"a","inputSchema":{"required":["x","y"],"default":"1"}}"#;

    #[test]
    fn what_is_only_written_in_another_order_is_what_was_approved() {
        let other = r#"{"name":"a","inputSchema":{"required":["y","x"],"default":"1"}}"#;
        let other = Offer::for_tests(Kind::Tool, other);
        let check = |pins: &Pins| pins.unfit("up", Kind::Tool, "a", Some(&other));
        let approved = pins(State::Approved, FLAG);
        assert_eq!(check(&approved), None);
        let same = Offer::for_tests(Kind::Tool, FLAG).digest();
        assert_eq!(approved.settled("up", &other), same);
        assert_ne!(other.digest(), same);
        assert_eq!(check(&pins(State::Revoked, FLAG)), Some(Unfit::Revoked));
        assert_eq!(check(&pins(State::Pending, FLAG)), Some(Unfit::NotApproved));
    }

    #[test]
    fn a_volatile_value_counts_at_its_place_and_for_its_tool_alone() {
        let other = |text: &str| Offer::for_tests(Kind::Tool, &FLAG.replace("\"1\"", text));
        let mut approved = pins(State::Approved, FLAG);
        let check = |pins: &Pins, text: &str| pins.unfit("up", Kind::Tool, "a", Some(&other(text)));
        assert_eq!(check(&approved, "\"2\""), Some(Unfit::Changed));
        let place = |name: &str| {
            let at: Vec<Box<str>> = vec!["/inputSchema/default".into()];
            Arc::new([((Box::from("up"), Kind::Tool, Box::from(name)), at)].into())
        };
        approved.volatile = place("a");
        assert_eq!(check(&approved, "\"2\""), None);
        assert_eq!(check(&approved, "{\"description\":\"2\"}"), Some(Unfit::Changed));
        approved.volatile = place("b");
        assert_eq!(check(&approved, "\"2\""), Some(Unfit::Changed));
    }

    #[test]
    fn an_exception_is_of_one_digest_and_of_what_is_approved() {
        let other = Offer::for_tests(Kind::Tool, &FLAG.replace("\"x\",\"y\"", "\"y\",\"x\""));
        let own = Offer::for_tests(Kind::Tool, FLAG);
        for (state, excused) in [(State::Approved, true), (State::Pending, false)] {
            let mut pins = pins(state, FLAG);
            let locked = Arc::make_mut(&mut pins.lock).servers.get_mut("up").unwrap();
            for version in locked.offers.values_mut().flatten() {
                let (finding, reason) = (Detector::PlantedInstructions, "it is a manual".into());
                let (by, at) = ("ana".into(), "2026-01-01T00:00:00Z".into());
                version.exceptions.push(Exception { finding, by, at, reason });
            }
            let is = |server: &str, name: &str, digest| {
                !pins.excused(server, Some(Kind::Tool), name, digest).is_empty()
            };
            assert_eq!(is("up", "a", own.digest()), excused);
            assert!(!is("up", "a", other.digest()) && !is("up", "a", None));
            assert!(!is("down", "a", own.digest()) && !is("up", "b", own.digest()));
        }
    }

    #[test]
    fn a_resource_that_no_list_has_needs_a_template_or_a_link() {
        let unlisted = |resources: ResourcePins, linked| {
            let resources = Arc::new([("up".into(), resources)].into());
            let pins = Pins { resources, ..Pins::default() };
            pins.unfit_for("up", Kind::Resource, "file:///x", None, linked)
        };
        let refused = Some(Unfit::NotApproved);
        assert_eq!(unlisted(ResourcePins::Pinned, Linked::No), refused);
        assert_eq!(unlisted(ResourcePins::Pinned, Linked::Given), refused);
        assert_eq!(unlisted(ResourcePins::ByTemplate, Linked::No), refused);
        assert_eq!(unlisted(ResourcePins::ByTemplate, Linked::Given), None);
        assert_eq!(unlisted(ResourcePins::Dynamic, Linked::No), None);
        assert_eq!(Pins::default().unfit("up", Kind::Resource, "file:///x", None), refused);
        assert_eq!(Pins::default().unfit("up", Kind::Tool, "x", None), Some(Unfit::Removed));
        assert_eq!(Pins::default().unfit("up", Kind::Method, "x/y", None), None);
    }

    fn resource(state: State, uri: &str) -> Pins {
        let text = serde_json::json!({ "uri": uri, "name": "n" }).to_string();
        let document = Document::parse(text.into(), &Bounds::MESSAGE).unwrap();
        let definition = Fragment::whole(Arc::new(document));
        let digest = Offer::for_tests(Kind::Resource, definition.value().raw()).digest().unwrap();
        let version = Version::new(digest, state, definition);
        let offers = [((Kind::Resource, uri.into()), vec![version])].into();
        let locked = Locked { offers, ..Locked::default() };
        let lock = Lock { servers: [("up".into(), locked)].into() };
        Pins { lock: Arc::new(lock), ..Pins::default() }
    }

    #[test]
    fn an_unlisted_resource_whose_approval_was_taken_back_is_not_read() {
        let unlisted = |pins: &Pins, server: &str, uri: &str| {
            pins.unfit_unlisted(server, Kind::Resource, uri, Linked::Given)
        };
        for mode in [ResourcePins::Pinned, ResourcePins::ByTemplate, ResourcePins::Dynamic] {
            let mut pins = resource(State::Revoked, "file:///srv/My note");
            pins.resources = Arc::new([("up".into(), mode), ("down".into(), mode)].into());
            for uri in
                ["file:///srv/My%20note", "file:///srv/My%20note?x", "file:///srv/My%20note/"]
            {
                let unfit = pins.unfit_for("up", Kind::Resource, uri, None, Linked::Given);
                assert_eq!(unfit, Some(Unfit::Removed), "{uri}");
                assert_eq!(unlisted(&pins, "up", uri), Some(Unfit::NotApproved), "{uri}");
            }
            // It stays revoked if its server lists it again in another spelling.
            let text = r#"{"uri":"file:///srv/My%20note?x","name":"n"}"#;
            let again = Offer::for_tests(Kind::Resource, text);
            let name = again.name().as_str();
            let unfit = pins.unfit_for("up", Kind::Resource, name, Some(&again), Linked::Given);
            assert_eq!(unfit, Some(Unfit::Revoked));
            let other = (mode == ResourcePins::Pinned).then_some(Unfit::NotApproved);
            assert_eq!(unlisted(&pins, "up", "file:///srv/other"), other);
            assert_eq!(unlisted(&pins, "down", "file:///srv/My%20note"), other);
        }
        let mut approved = resource(State::Approved, "file:///srv/a");
        assert_eq!(unlisted(&approved, "up", "file:///srv/a?x"), None);
        // An approved resource that is no longer listed is removed, unless resources can be created at run time.
        approved.resources = Arc::new([("up".into(), ResourcePins::Pinned)].into());
        for uri in ["file:///srv/a", "file:///srv/a?x"] {
            let unfit = approved.unfit_for("up", Kind::Resource, uri, None, Linked::Given);
            assert_eq!(unfit, Some(Unfit::Removed), "{uri}");
        }
    }

    #[test]
    fn a_resource_is_made_of_a_template_whether_or_not_it_is_listed() {
        let text = r#"{"uriTemplate":"note://made/{id}","name":"n"}"#;
        let template = Offer::for_tests(Kind::Template, text);
        let version = |state| Version::new(template.digest().unwrap(), state, template.fragment());
        let pins = |state| {
            let name = template.name().as_str().into();
            let offers = [((Kind::Template, name), vec![version(state)])].into();
            let locked = Locked { offers, ..Locked::default() };
            let lock = Lock { servers: [("up".into(), locked)].into() };
            Pins { lock: Arc::new(lock), ..Pins::default() }
        };
        let made = r#"{"uri":"note://made/7","name":"n","description":"d"}"#;
        let made = Offer::for_tests(Kind::Resource, made);
        let unfit = |pins: &Pins, offer| pins.unfit("up", Kind::Resource, "note://made/7", offer);
        let mut approved = pins(State::Approved);
        for listed in [None, Some(&made)] {
            assert_eq!(unfit(&approved, listed), None);
            for state in [State::Pending, State::Revoked] {
                assert_eq!(unfit(&pins(state), listed), Some(Unfit::NotApproved));
            }
        }
        let other = approved.unfit("up", Kind::Resource, "note://other/7", None);
        assert_eq!(other, Some(Unfit::NotApproved));
        // The cached value of one lock is not used for another.
        let lock = Arc::make_mut(&mut approved.lock);
        lock.servers.clear();
        assert_eq!(unfit(&approved, Some(&made)), Some(Unfit::NotApproved));
    }

    #[test]
    fn a_change_that_is_accepted_of_one_server_is_not_of_another() {
        let (v1, v2) = (r#"{"name":"a","description":"x"}"#, r#"{"name":"a","description":"y"}"#);
        let mut pins = pins(State::Approved, v1);
        let lock = Arc::make_mut(&mut pins.lock);
        let same = lock.servers.get("up").cloned().unwrap();
        lock.servers.insert("down".into(), same);
        let other = Offer::for_tests(Kind::Tool, v2);
        pins.accepted.insert(("up".into(), other.digest().unwrap()), Accepted::default());
        let check = |server: &str| pins.unfit(server, Kind::Tool, "a", Some(&other));
        assert_eq!(check("up"), None);
        assert_eq!(check("down"), Some(Unfit::Changed));
    }
}
