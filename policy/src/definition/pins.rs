//! Decides whether a definition may be used: only if its canonical form equals an approved one and its server is
//! neither quarantined nor another server than the approved one (control C10).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use detection::inspect::AcceptedDetectors;
use json::{Fragment, Value};
use policy_core::schema::CachedSchema;
use policy_core::subject::mode::Mode;
use policy_core::subject::template::{MatchWork, UriTemplate};
use policy_core::subject::uri::{self, ResourceUri};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::definition::alike::{Regeneration, VolatileMembers, volatile_defaults};
use crate::definition::lock::{
    AcceptedFinding, ApprovalState, EvaluationResult, LockedServer, LockedVersion, Lockfile,
};
use crate::definition::offer::{CatalogItem, ItemKind};
use crate::definition::pin::{Digest, DigestSubject};

/// The members of `definition` to add to `pins.volatile` so that it matches an approved one of `versions`, if they
/// differ only in defaults that were `remade`; see [`volatile_defaults`]. `known` are the members already listed.
#[must_use]
pub fn volatile_members(
    versions: &[LockedVersion],
    definition: Value<'_>,
    known: &[Box<str>],
    remade: Regeneration,
) -> Vec<Box<str>> {
    let approved = versions.iter().filter(|version| version.state == ApprovalState::Approved);
    let members = approved
        .map(|version| volatile_defaults(version.definition.value(), definition, known, remade));
    members.into_iter().find(|members| !members.is_empty()).unwrap_or_default()
}

/// Why a definition may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinViolation {
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
    /// The definition is approved, but no evaluation of it is recorded.
    Unevaluated,
    /// The definition is approved, but its evaluation failed.
    EvaluationFailed,
}

impl PinViolation {
    /// The stable code for clients, metrics and the audit log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotApproved => "not-approved",
            Self::Changed => "definition-changed",
            Self::Revoked => "approval-revoked",
            Self::Unpinnable => "definition-not-canonical",
            Self::Removed => "definition-removed",
            Self::Inconsistent => "definition-inconsistent",
            Self::Quarantined => "server-quarantined",
            Self::Identity => "server-identity",
            Self::Unevaluated => "evaluation-missing",
            Self::EvaluationFailed => "evaluation-failed",
        }
    }

    /// Whether it is about the definition that the server offers, and not about the server or what it offers besides.
    #[must_use]
    pub const fn is_of_definition(self) -> bool {
        match self {
            Self::NotApproved
            | Self::Changed
            | Self::Revoked
            | Self::Unpinnable
            | Self::Unevaluated
            | Self::EvaluationFailed => true,
            Self::Removed | Self::Inconsistent | Self::Quarantined | Self::Identity => false,
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
            Self::Unevaluated => "no evaluation of it is recorded",
            Self::EvaluationFailed => "its evaluation failed",
        }
    }
}

impl fmt::Display for PinViolation {
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

/// Whether the definition of a tool needs a recorded evaluation besides its approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvaluationNeed {
    /// An approval is enough.
    #[default]
    None,
    /// The lockfile must record an evaluation of this version that passed.
    Passed,
}

impl EvaluationNeed {
    /// Why this version of a definition may not be used although it is approved; `None` if it may. Only tools need an
    /// evaluation.
    #[must_use]
    pub fn unmet(self, version: &LockedVersion) -> Option<PinViolation> {
        if version.digest.subject() != DigestSubject::Offer(ItemKind::Tool) {
            return None;
        }
        match (self, version.evaluation.as_ref().map(|one| one.result)) {
            (Self::None, _) | (Self::Passed, Some(EvaluationResult::Passed)) => None,
            (Self::Passed, Some(EvaluationResult::Failed)) => Some(PinViolation::EvaluationFailed),
            (Self::Passed, None) => Some(PinViolation::Unevaluated),
        }
    }
}

/// Whether a result of the server gave the caller a link to the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkStatus {
    /// The caller received a link to it.
    Given,
    /// No link was given, or it is not a resource.
    No,
}

/// A changed definition that is accepted without approval.
#[derive(Clone, Debug, Default)]
pub struct AcceptedChange {
    /// The approved definition, if arguments must match its schema as well.
    approved: Option<Fragment>,
    /// Input schema of the approved definition, compiled on first use.
    input: Arc<OnceLock<Option<Arc<CachedSchema>>>>,
}

impl AcceptedChange {
    /// A change that accepts no further arguments than `approved`, as far as is known; arguments must match both
    /// schemas.
    #[must_use]
    pub fn within(approved: Fragment) -> Self {
        Self { approved: Some(approved), input: Arc::default() }
    }

    /// The input schema that arguments must match in addition to the current one; `None` if the approved schema is
    /// the same, or if wider schemas are accepted.
    fn input(&self, now: &CatalogItem) -> Option<&Arc<CachedSchema>> {
        let said = self.approved.as_ref()?.value().get("inputSchema")?;
        let now = now.definition().get("inputSchema");
        self.input
            .get_or_init(|| {
                let differs = now.map(Value::raw) != Some(said.raw());
                differs.then(|| Arc::new(CachedSchema::new(said)))
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
    pub lock: Arc<Lockfile>,
    /// Changed definitions that are accepted without approval, by server and digest.
    pub accepted: BTreeMap<(Box<str>, Digest), AcceptedChange>,
    /// Definitions that their servers alternate between.
    pub inconsistent: BTreeSet<(Box<str>, ItemKind, Box<str>)>,
    /// Servers that are quarantined.
    pub quarantined: BTreeSet<Box<str>>,
    /// Servers whose identity differs from the approved one.
    pub identity_mismatches: BTreeSet<Box<str>>,
    /// Whether definitions of tools need a recorded evaluation.
    pub evaluation: EvaluationNeed,
    /// Values that may differ between lists.
    pub volatile: Arc<VolatileMembers>,
    /// Which resources may be used without their own approval, by server; the default for servers without an entry.
    pub resources: Arc<BTreeMap<Box<str>, ResourcePins>>,
    /// Templates and revoked resources of the lockfile, cached.
    pub made: UnlistedResources,
}

/// Cache of what the lockfile implies for resources that it does not contain, computed once per lockfile.
#[derive(Debug, Default)]
pub struct UnlistedResources(ArcSwapOption<LockUnlistedResources>);

/// The cached value for one lockfile.
#[derive(Debug)]
struct LockUnlistedResources {
    lock: Weak<Lockfile>,
    servers: BTreeMap<Box<str>, ServerUnlistedResources>,
}

impl Clone for UnlistedResources {
    fn clone(&self) -> Self {
        Self(ArcSwapOption::from(self.0.load_full()))
    }
}

/// What the lockfile implies for unlisted resources of one server.
#[derive(Debug)]
struct ServerUnlistedResources {
    /// Approved templates of the server.
    templates: Vec<UriTemplate>,
    /// Every form of the URIs whose approval was withdrawn.
    revoked: BTreeSet<Box<str>>,
}

impl ServerUnlistedResources {
    fn new(locked: &LockedServer) -> Self {
        let (mut templates, mut revoked) = (Vec::new(), BTreeSet::new());
        for ((kind, name), versions) in &locked.offers {
            match (kind, decided(versions)) {
                (ItemKind::Template, Some(ApprovalState::Approved)) => {
                    templates.extend(UriTemplate::read(name))
                }
                (ItemKind::Resource, Some(ApprovalState::Revoked)) => {
                    let Ok(uri) = ResourceUri::listed(name) else { continue };
                    revoked.insert(uri::reduced(uri.as_str()).into());
                }
                (
                    ItemKind::Tool
                    | ItemKind::Prompt
                    | ItemKind::Resource
                    | ItemKind::Template
                    | ItemKind::Skill
                    | ItemKind::Method,
                    None
                    | Some(ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Revoked),
                ) => {}
            }
        }
        Self { templates, revoked }
    }
}

/// The decision about a thing with these versions; `None` if all are pending.
fn decided(versions: &[LockedVersion]) -> Option<ApprovalState> {
    let is = |state| versions.iter().any(|version| version.state == state);
    match (is(ApprovalState::Approved), is(ApprovalState::Revoked)) {
        (true, _) => Some(ApprovalState::Approved),
        (false, true) => Some(ApprovalState::Revoked),
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
        kind: ItemKind,
        name: &str,
        offer: Option<&CatalogItem>,
    ) -> Option<PinViolation> {
        self.unfit_for(server, kind, name, offer, LinkStatus::No)
    }

    /// Why `name` may not be used by a caller, who may have received a link to it; `None` if it may.
    ///
    /// A resource may be created at run time, whether or not it is listed: see [`ResourcePins`].
    #[must_use]
    pub fn unfit_for(
        &self,
        server: &str,
        kind: ItemKind,
        name: &str,
        offer: Option<&CatalogItem>,
        linked: LinkStatus,
    ) -> Option<PinViolation> {
        if let Some(unfit) = self.unfit_server(server) {
            return Some(unfit);
        }
        if kind == ItemKind::Method {
            return None;
        }
        let Some(offer) = offer else {
            if kind != ItemKind::Resource {
                return Some(PinViolation::Removed);
            }
            return match self.of_resource(server, name) {
                Some(ApprovalState::Revoked) => Some(PinViolation::Removed),
                // The approval was for a listed resource, and the server no longer lists it.
                Some(ApprovalState::Approved) => {
                    self.unfit_made(server, name, linked).map(|_| PinViolation::Removed)
                }
                Some(ApprovalState::Pending) | None => self.unfit_made(server, name, linked),
            };
        };
        let versions = self.versions(server, kind, name);
        let Some(digest) = offer.digest() else { return Some(PinViolation::Unpinnable) };
        if !self.inconsistent.is_empty()
            && self.inconsistent.contains(&(server.into(), kind, name.into()))
        {
            return Some(PinViolation::Inconsistent);
        }
        match self.unfit_version(server, versions, offer, digest) {
            Some(PinViolation::NotApproved)
                if kind == ItemKind::Resource && decided(versions).is_none() =>
            {
                self.unfit_made(server, name, linked)
            }
            unfit => unfit,
        }
    }

    /// Why a resource without any decision in the lockfile may not be used; `None` if it may.
    #[must_use]
    fn unfit_made(&self, server: &str, name: &str, linked: LinkStatus) -> Option<PinViolation> {
        let Ok(uri) = ResourceUri::listed(name) else { return Some(PinViolation::NotApproved) };
        let made = self.made();
        let made = made.servers.get(server);
        let is_revoked =
            |made: &ServerUnlistedResources| made.revoked.contains(&*uri::reduced(uri.as_str()));
        if made.is_some_and(is_revoked) {
            return Some(PinViolation::Revoked);
        }
        let is_of_template = |made: &ServerUnlistedResources| {
            let mut left = MatchWork::default();
            made.templates.iter().any(|template| template.matches(&uri, &mut left))
        };
        let fits = match self.mode_of(server) {
            ResourcePins::Pinned => false,
            ResourcePins::ByTemplate => {
                linked == LinkStatus::Given || made.is_some_and(is_of_template)
            }
            ResourcePins::Dynamic => true,
        };
        (!fits).then_some(PinViolation::NotApproved)
    }

    /// What the lockfile implies for resources that it does not contain.
    fn made(&self) -> Arc<LockUnlistedResources> {
        let lock = Arc::downgrade(&self.lock);
        // INVARIANT: a lock is never modified in place while there are references to it, including weak ones.
        if let Some(known) = self.made.0.load_full().filter(|known| known.lock.ptr_eq(&lock)) {
            return known;
        }
        let locked = self.lock.servers.iter();
        let servers = locked
            .map(|(server, locked)| (server.clone(), ServerUnlistedResources::new(locked)))
            .collect();
        let made = Arc::new(LockUnlistedResources { lock, servers });
        self.made.0.store(Some(Arc::clone(&made)));
        made
    }

    /// The digest of the approved version that equals `offer` regardless of order and volatile values; otherwise its
    /// own.
    #[must_use]
    pub fn settled(&self, server: &str, offer: &CatalogItem) -> Option<Digest> {
        let own = offer.digest()?;
        let versions = self.versions(server, offer.kind(), offer.name().as_str());
        if versions.iter().any(|version| version.digest == own) {
            return Some(own);
        }
        let mut alike = self.like(server, versions, offer);
        Some(
            alike
                .find(|version| version.state == ApprovalState::Approved)
                .map_or(own, |v| v.digest),
        )
    }

    /// Whether two definitions of one thing are equal, apart from order and volatile values.
    #[must_use]
    pub fn are_alike(&self, server: &str, one: &CatalogItem, other: &CatalogItem) -> bool {
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
        kind: Option<ItemKind>,
        name: &str,
        digest: Option<Digest>,
    ) -> &[AcceptedFinding] {
        let locked = self.lock.servers.get(server);
        let versions = locked.map_or(&[][..], |locked| match kind {
            Some(kind) => locked.versions(kind, name),
            None => &locked.server,
        });
        let is =
            |v: &&LockedVersion| Some(v.digest) == digest && v.state == ApprovalState::Approved;
        versions.iter().find(is).map_or(&[], |version| &version.exceptions)
    }

    /// The accepted findings of [`Self::exceptions`] as a set.
    #[must_use]
    pub fn excused(
        &self,
        server: &str,
        kind: Option<ItemKind>,
        name: &str,
        digest: Option<Digest>,
    ) -> AcceptedDetectors {
        let mut excused = AcceptedDetectors::default();
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
        kind: ItemKind,
        name: &str,
        linked: LinkStatus,
    ) -> Option<PinViolation> {
        if let Some(unfit) = self.unfit_server(server) {
            return Some(unfit);
        }
        let is_approved = |version: &LockedVersion| version.state == ApprovalState::Approved;
        let fits = match kind {
            ItemKind::Method => true,
            ItemKind::Resource => match self.of_resource(server, name) {
                Some(ApprovalState::Approved) => true,
                Some(ApprovalState::Revoked) => false,
                Some(ApprovalState::Pending) | None => {
                    return self.unfit_made(server, name, linked);
                }
            },
            ItemKind::Tool => {
                let versions = self.versions(server, kind, name);
                let mut unmet = versions.iter().filter(|version| is_approved(version));
                return match unmet.next() {
                    None => Some(PinViolation::NotApproved),
                    Some(first) => self
                        .evaluation
                        .unmet(first)
                        .filter(|_| unmet.all(|other| self.evaluation.unmet(other).is_some())),
                };
            }
            ItemKind::Prompt | ItemKind::Template | ItemKind::Skill => {
                self.versions(server, kind, name).iter().any(is_approved)
            }
        };
        (!fits).then_some(PinViolation::NotApproved)
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
        offer: &CatalogItem,
        linked: LinkStatus,
    ) -> Option<PinViolation> {
        if !self.versions(server, ItemKind::Resource, name).is_empty() {
            return Some(PinViolation::Removed);
        }
        let listed = offer.name().as_str();
        let unfit = self.unfit_for(server, ItemKind::Resource, listed, Some(offer), linked);
        if unfit.is_some() {
            return unfit;
        }
        let by_name = decided(self.versions(server, ItemKind::Resource, listed));
        match (by_name, self.mode_of(server)) {
            (Some(ApprovalState::Approved), ResourcePins::ByTemplate | ResourcePins::Dynamic) => {
                None
            }
            (_, _) => self.unfit_made(server, name, linked),
        }
    }

    /// Which resources of `server` may be used without their own approval.
    fn mode_of(&self, server: &str) -> ResourcePins {
        self.resources.get(server).copied().unwrap_or_default()
    }

    /// The decision about a resource under any related spelling of its URI. An approval of one spelling takes
    /// precedence over a revocation of another.
    fn of_resource(&self, server: &str, name: &str) -> Option<ApprovalState> {
        let locked = self.lock.servers.get(server);
        let parsed = ResourceUri::parse(name).ok();
        let form = parsed.as_ref().map(|uri| uri::reduced(uri.as_str()));
        let is = |known: &str| {
            let known_form = || {
                let known = ResourceUri::listed(known).ok()?;
                Some(uri::reduced(known.as_str()).into_owned())
            };
            *known == *name || form.is_some() && form.as_deref() == known_form().as_deref()
        };
        let offers = locked.into_iter().flat_map(|locked| &locked.offers);
        let own = offers.filter(|((kind, known), _)| *kind == ItemKind::Resource && is(known));
        let states: Vec<ApprovalState> =
            own.filter_map(|(_, versions)| decided(versions)).collect();
        match states.contains(&ApprovalState::Approved) {
            true => Some(ApprovalState::Approved),
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
    ) -> Option<PinViolation> {
        if let Some(unfit) = self.unfit_server(server) {
            return Some(unfit);
        }
        if whole.is_some_and(|whole| self.accepted.contains_key(&(server.into(), whole))) {
            return None;
        }
        let versions = self.lock.servers.get(server).map_or(&[][..], |locked| &locked.server);
        let mut approved =
            versions.iter().filter(|version| version.state == ApprovalState::Approved);
        if approved.clone().any(|version| Some(version.digest) == whole) {
            return None;
        }
        let Some(field) = field else { return Some(PinViolation::Unpinnable) };
        let has = |version: &LockedVersion| {
            let definition = version.definition.value();
            let fields = Digest::of_fields(version.digest.subject(), definition);
            fields.is_ok_and(|fields| fields.iter().any(|(n, d)| **n == *name && *d == field))
        };
        if approved.clone().next().is_none() {
            return Some(PinViolation::NotApproved);
        }
        (!approved.any(has)).then_some(PinViolation::Changed)
    }

    /// Why nothing of `server` may be used; `None` if nothing prevents it.
    #[must_use]
    pub fn unfit_server(&self, server: &str) -> Option<PinViolation> {
        if self.identity_mismatches.contains(server) {
            return Some(PinViolation::Identity);
        }
        self.quarantined.contains(server).then_some(PinViolation::Quarantined)
    }

    /// The approved input schema that arguments must match in addition to the current one, if the current definition
    /// was accepted as a change that admits no more.
    #[must_use]
    pub fn approved_input(&self, server: &str, offer: &CatalogItem) -> Option<&Arc<CachedSchema>> {
        if self.accepted.is_empty() || offer.kind() != ItemKind::Tool {
            return None;
        }
        let digest = offer.digest()?;
        let accepted = self.accepted.get(&(server.into(), digest))?;
        let versions = self.versions(server, ItemKind::Tool, offer.name().as_str());
        let approved = |version: &LockedVersion| {
            version.digest == digest && version.state == ApprovalState::Approved
        };
        // The definition may have been approved since.
        (!versions.iter().any(approved)).then(|| accepted.input(offer)).flatten()
    }

    fn versions(&self, server: &str, kind: ItemKind, name: &str) -> &[LockedVersion] {
        self.lock.servers.get(server).map_or(&[], |locked| locked.versions(kind, name))
    }

    fn unfit_version(
        &self,
        server: &str,
        versions: &[LockedVersion],
        offer: &CatalogItem,
        digest: Digest,
    ) -> Option<PinViolation> {
        let known = versions.iter().find(|version| version.digest == digest);
        match known.map(|version| version.state) {
            Some(ApprovalState::Approved) => {
                return known.and_then(|one| self.evaluation.unmet(one));
            }
            Some(ApprovalState::Revoked) => return Some(PinViolation::Revoked),
            Some(ApprovalState::Pending) | None
                if self.accepted.contains_key(&(server.into(), digest)) =>
            {
                let is_open =
                    self.evaluation == EvaluationNeed::None || offer.kind() != ItemKind::Tool;
                return (!is_open).then_some(PinViolation::Unevaluated);
            }
            Some(ApprovalState::Pending) | None => {}
        }
        let alike: Vec<_> = self.like(server, versions, offer).collect();
        if alike.iter().any(|version| version.state == ApprovalState::Revoked) {
            return Some(PinViolation::Revoked);
        }
        let mut approved = alike.iter().filter(|version| version.state == ApprovalState::Approved);
        if let Some(first) = approved.next() {
            let need = self.evaluation;
            return need.unmet(first).filter(|_| approved.all(|one| need.unmet(one).is_some()));
        }
        let approved = versions.iter().any(|version| version.state == ApprovalState::Approved);
        Some(if approved { PinViolation::Changed } else { PinViolation::NotApproved })
    }

    /// The versions that equal `offer` regardless of order and volatile values.
    fn like<'a>(
        &self,
        server: &str,
        versions: &'a [LockedVersion],
        offer: &CatalogItem,
    ) -> impl Iterator<Item = &'a LockedVersion> {
        let (kind, name) = (offer.kind(), offer.name().as_str());
        let volatile = if self.volatile.is_empty() {
            None
        } else {
            self.volatile.get(&(server.into(), kind, name.into()))
        };
        let volatile = volatile.map_or(&[][..], Vec::as_slice);
        // Only schemas of tools have lists that are sets.
        let differs = !versions.is_empty() && (kind == ItemKind::Tool || !volatile.is_empty());
        let wanted = differs.then(|| offer.alike(volatile)).flatten();
        let subject = DigestSubject::Offer(kind);
        let is = |version: &&LockedVersion| {
            let like = || version.alike.of(subject, version.definition.value(), volatile);
            wanted.is_some() && like() == wanted
        };
        versions.iter().filter(is).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use detection::inspect::Detector;
    use json::{Document, Fragment, JsonBounds};

    use super::{AcceptedChange, EvaluationNeed, LinkStatus, PinViolation, Pins, ResourcePins};
    use crate::definition::lock::{
        AcceptedFinding, ApprovalState, EvaluationResult, LockedServer, LockedVersion, Lockfile,
        RecordedEvaluation,
    };
    use crate::definition::offer::{CatalogItem, ItemKind};
    use std::sync::Arc;

    fn pins(state: ApprovalState, definition: &str) -> Pins {
        let document = Document::parse(definition.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let definition = Fragment::whole(Arc::new(document));
        let digest =
            CatalogItem::for_tests(ItemKind::Tool, definition.value().raw()).digest().unwrap();
        let version = LockedVersion::new(digest, state, definition);
        let offers = [((ItemKind::Tool, "a".into()), vec![version])].into();
        let locked = LockedServer { offers, ..LockedServer::default() };
        let lock = Lockfile { servers: [("up".into(), locked)].into() };
        Pins { lock: Arc::new(lock), ..Pins::default() }
    }

    #[test]
    fn only_what_was_approved_as_it_was_approved_may_be_used() {
        let (v1, v2) = (r#"{"name":"a","description":"x"}"#, r#"{"name":"a","description":"y"}"#);
        let same =
            CatalogItem::for_tests(ItemKind::Tool, r#"{ "description": "\u0078", "name": "a" }"#);
        let other = CatalogItem::for_tests(ItemKind::Tool, v2);
        let check =
            |pins: &Pins, offer: &CatalogItem| pins.unfit("up", ItemKind::Tool, "a", Some(offer));
        assert_eq!(check(&Pins::default(), &same), Some(PinViolation::NotApproved));
        assert_eq!(
            check(&pins(ApprovalState::Pending, v1), &same),
            Some(PinViolation::NotApproved)
        );
        assert_eq!(check(&pins(ApprovalState::Revoked, v1), &same), Some(PinViolation::Revoked));
        let mut approved = pins(ApprovalState::Approved, v1);
        assert_eq!(check(&approved, &same), None);
        assert_eq!(check(&approved, &other), Some(PinViolation::Changed));
        assert_eq!(approved.unfit("up", ItemKind::Tool, "a", None), Some(PinViolation::Removed));
        assert_eq!(
            approved.unfit("down", ItemKind::Tool, "a", Some(&same)),
            Some(PinViolation::NotApproved)
        );
        let inexact =
            CatalogItem::for_tests(ItemKind::Tool, r#"{"name":"a","x":9007199254740993}"#);
        assert_eq!(check(&approved, &inexact), Some(PinViolation::Unpinnable));
        approved.accepted.insert(("up".into(), other.digest().unwrap()), AcceptedChange::default());
        assert_eq!(check(&approved, &other), None);
        approved.inconsistent.insert(("up".into(), ItemKind::Tool, "a".into()));
        assert_eq!(check(&approved, &same), Some(PinViolation::Inconsistent));
        approved.quarantined.insert("up".into());
        assert_eq!(check(&approved, &same), Some(PinViolation::Quarantined));
        approved.identity_mismatches.insert("up".into());
        assert_eq!(check(&approved, &same), Some(PinViolation::Identity));
    }

    #[test]
    fn what_needs_an_evaluation_is_withheld_without_one() {
        let (v1, v2) = (r#"{"name":"a","description":"x"}"#, r#"{"name":"a","description":"y"}"#);
        let offer = |text: &str| CatalogItem::for_tests(ItemKind::Tool, text);
        let (own, other) = (offer(v1), offer(v2));
        let mut pins = pins(ApprovalState::Approved, v1);
        pins.evaluation = EvaluationNeed::Passed;
        let unfit = |pins: &Pins, offer| pins.unfit("up", ItemKind::Tool, "a", Some(offer));
        let unlisted = |pins: &Pins| pins.unfit_unlisted("up", ItemKind::Tool, "a", LinkStatus::No);
        let record = |pins: &mut Pins, result| {
            let locked = Arc::make_mut(&mut pins.lock).servers.get_mut("up").unwrap();
            let version = locked.offers.values_mut().flatten().next().unwrap();
            let (digest, at) = ("sha256:".into(), "2026-01-01T00:00:00Z".into());
            version.evaluation = Some(RecordedEvaluation { result, digest, at });
        };
        assert_eq!(unfit(&pins, &own), Some(PinViolation::Unevaluated));
        assert_eq!(unlisted(&pins), Some(PinViolation::Unevaluated));
        record(&mut pins, EvaluationResult::Failed);
        assert_eq!(unfit(&pins, &own), Some(PinViolation::EvaluationFailed));
        assert_eq!(unlisted(&pins), Some(PinViolation::EvaluationFailed));
        record(&mut pins, EvaluationResult::Passed);
        assert_eq!((unfit(&pins, &own), unlisted(&pins)), (None, None));
        // An evaluation is of one definition, however a change of it is treated.
        assert_eq!(unfit(&pins, &other), Some(PinViolation::Changed));
        pins.accepted.insert(("up".into(), other.digest().unwrap()), AcceptedChange::default());
        assert_eq!(unfit(&pins, &other), Some(PinViolation::Unevaluated));
        pins.evaluation = EvaluationNeed::None;
        assert_eq!(unfit(&pins, &other), None);
    }

    const FLAG: &str = r#"{"name":"a","inputSchema":{"required":["x","y"],"default":"1"}}"#;

    #[test]
    fn what_is_only_written_in_another_order_is_what_was_approved() {
        let other = r#"{"name":"a","inputSchema":{"required":["y","x"],"default":"1"}}"#;
        let other = CatalogItem::for_tests(ItemKind::Tool, other);
        let check = |pins: &Pins| pins.unfit("up", ItemKind::Tool, "a", Some(&other));
        let approved = pins(ApprovalState::Approved, FLAG);
        assert_eq!(check(&approved), None);
        let same = CatalogItem::for_tests(ItemKind::Tool, FLAG).digest();
        assert_eq!(approved.settled("up", &other), same);
        assert_ne!(other.digest(), same);
        assert_eq!(check(&pins(ApprovalState::Revoked, FLAG)), Some(PinViolation::Revoked));
        assert_eq!(check(&pins(ApprovalState::Pending, FLAG)), Some(PinViolation::NotApproved));
    }

    #[test]
    fn a_volatile_value_counts_at_its_place_and_for_its_tool_alone() {
        let other =
            |text: &str| CatalogItem::for_tests(ItemKind::Tool, &FLAG.replace("\"1\"", text));
        let mut approved = pins(ApprovalState::Approved, FLAG);
        let check =
            |pins: &Pins, text: &str| pins.unfit("up", ItemKind::Tool, "a", Some(&other(text)));
        assert_eq!(check(&approved, "\"2\""), Some(PinViolation::Changed));
        let place = |name: &str| {
            let at: Vec<Box<str>> = vec!["/inputSchema/default".into()];
            Arc::new([((Box::from("up"), ItemKind::Tool, Box::from(name)), at)].into())
        };
        approved.volatile = place("a");
        assert_eq!(check(&approved, "\"2\""), None);
        assert_eq!(check(&approved, "{\"description\":\"2\"}"), Some(PinViolation::Changed));
        approved.volatile = place("b");
        assert_eq!(check(&approved, "\"2\""), Some(PinViolation::Changed));
    }

    #[test]
    fn an_exception_is_of_one_digest_and_of_what_is_approved() {
        let other =
            CatalogItem::for_tests(ItemKind::Tool, &FLAG.replace("\"x\",\"y\"", "\"y\",\"x\""));
        let own = CatalogItem::for_tests(ItemKind::Tool, FLAG);
        for (state, excused) in [(ApprovalState::Approved, true), (ApprovalState::Pending, false)] {
            let mut pins = pins(state, FLAG);
            let locked = Arc::make_mut(&mut pins.lock).servers.get_mut("up").unwrap();
            for version in locked.offers.values_mut().flatten() {
                let (finding, reason) = (Detector::PlantedInstructions, "it is a manual".into());
                let (by, at) = ("ana".into(), "2026-01-01T00:00:00Z".into());
                version.exceptions.push(AcceptedFinding { finding, by, at, reason });
            }
            let is = |server: &str, name: &str, digest| {
                !pins.excused(server, Some(ItemKind::Tool), name, digest).is_empty()
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
            pins.unfit_for("up", ItemKind::Resource, "file:///x", None, linked)
        };
        let refused = Some(PinViolation::NotApproved);
        assert_eq!(unlisted(ResourcePins::Pinned, LinkStatus::No), refused);
        assert_eq!(unlisted(ResourcePins::Pinned, LinkStatus::Given), refused);
        assert_eq!(unlisted(ResourcePins::ByTemplate, LinkStatus::No), refused);
        assert_eq!(unlisted(ResourcePins::ByTemplate, LinkStatus::Given), None);
        assert_eq!(unlisted(ResourcePins::Dynamic, LinkStatus::No), None);
        assert_eq!(Pins::default().unfit("up", ItemKind::Resource, "file:///x", None), refused);
        assert_eq!(
            Pins::default().unfit("up", ItemKind::Tool, "x", None),
            Some(PinViolation::Removed)
        );
        assert_eq!(Pins::default().unfit("up", ItemKind::Method, "x/y", None), None);
    }

    fn resource(state: ApprovalState, uri: &str) -> Pins {
        let text = serde_json::json!({ "uri": uri, "name": "n" }).to_string();
        let document = Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap();
        let definition = Fragment::whole(Arc::new(document));
        let digest =
            CatalogItem::for_tests(ItemKind::Resource, definition.value().raw()).digest().unwrap();
        let version = LockedVersion::new(digest, state, definition);
        let offers = [((ItemKind::Resource, uri.into()), vec![version])].into();
        let locked = LockedServer { offers, ..LockedServer::default() };
        let lock = Lockfile { servers: [("up".into(), locked)].into() };
        Pins { lock: Arc::new(lock), ..Pins::default() }
    }

    #[test]
    fn an_unlisted_resource_whose_approval_was_taken_back_is_not_read() {
        let unlisted = |pins: &Pins, server: &str, uri: &str| {
            pins.unfit_unlisted(server, ItemKind::Resource, uri, LinkStatus::Given)
        };
        for mode in [ResourcePins::Pinned, ResourcePins::ByTemplate, ResourcePins::Dynamic] {
            let mut pins = resource(ApprovalState::Revoked, "file:///srv/My note");
            pins.resources = Arc::new([("up".into(), mode), ("down".into(), mode)].into());
            for uri in
                ["file:///srv/My%20note", "file:///srv/My%20note?x", "file:///srv/My%20note/"]
            {
                let unfit = pins.unfit_for("up", ItemKind::Resource, uri, None, LinkStatus::Given);
                assert_eq!(unfit, Some(PinViolation::Removed), "{uri}");
                assert_eq!(unlisted(&pins, "up", uri), Some(PinViolation::NotApproved), "{uri}");
            }
            // It stays revoked if its server lists it again in another spelling.
            let text = r#"{"uri":"file:///srv/My%20note?x","name":"n"}"#;
            let again = CatalogItem::for_tests(ItemKind::Resource, text);
            let name = again.name().as_str();
            let unfit =
                pins.unfit_for("up", ItemKind::Resource, name, Some(&again), LinkStatus::Given);
            assert_eq!(unfit, Some(PinViolation::Revoked));
            let other = (mode == ResourcePins::Pinned).then_some(PinViolation::NotApproved);
            assert_eq!(unlisted(&pins, "up", "file:///srv/other"), other);
            assert_eq!(unlisted(&pins, "down", "file:///srv/My%20note"), other);
        }
        let mut approved = resource(ApprovalState::Approved, "file:///srv/a");
        assert_eq!(unlisted(&approved, "up", "file:///srv/a?x"), None);
        // An approved resource that is no longer listed is removed, unless resources can be created at run time.
        approved.resources = Arc::new([("up".into(), ResourcePins::Pinned)].into());
        for uri in ["file:///srv/a", "file:///srv/a?x"] {
            let unfit = approved.unfit_for("up", ItemKind::Resource, uri, None, LinkStatus::Given);
            assert_eq!(unfit, Some(PinViolation::Removed), "{uri}");
        }
    }

    #[test]
    fn a_resource_is_made_of_a_template_whether_or_not_it_is_listed() {
        let text = r#"{"uriTemplate":"note://made/{id}","name":"n"}"#;
        let template = CatalogItem::for_tests(ItemKind::Template, text);
        let version =
            |state| LockedVersion::new(template.digest().unwrap(), state, template.fragment());
        let pins = |state| {
            let name = template.name().as_str().into();
            let offers = [((ItemKind::Template, name), vec![version(state)])].into();
            let locked = LockedServer { offers, ..LockedServer::default() };
            let lock = Lockfile { servers: [("up".into(), locked)].into() };
            Pins { lock: Arc::new(lock), ..Pins::default() }
        };
        let made = r#"{"uri":"note://made/7","name":"n","description":"d"}"#;
        let made = CatalogItem::for_tests(ItemKind::Resource, made);
        let unfit =
            |pins: &Pins, offer| pins.unfit("up", ItemKind::Resource, "note://made/7", offer);
        let mut approved = pins(ApprovalState::Approved);
        for listed in [None, Some(&made)] {
            assert_eq!(unfit(&approved, listed), None);
            for state in [ApprovalState::Pending, ApprovalState::Revoked] {
                assert_eq!(unfit(&pins(state), listed), Some(PinViolation::NotApproved));
            }
        }
        let other = approved.unfit("up", ItemKind::Resource, "note://other/7", None);
        assert_eq!(other, Some(PinViolation::NotApproved));
        // The cached value of one lock is not used for another.
        let lock = Arc::make_mut(&mut approved.lock);
        lock.servers.clear();
        assert_eq!(unfit(&approved, Some(&made)), Some(PinViolation::NotApproved));
    }

    #[test]
    fn a_change_that_is_accepted_of_one_server_is_not_of_another() {
        let (v1, v2) = (r#"{"name":"a","description":"x"}"#, r#"{"name":"a","description":"y"}"#);
        let mut pins = pins(ApprovalState::Approved, v1);
        let lock = Arc::make_mut(&mut pins.lock);
        let same = lock.servers.get("up").cloned().unwrap();
        lock.servers.insert("down".into(), same);
        let other = CatalogItem::for_tests(ItemKind::Tool, v2);
        pins.accepted.insert(("up".into(), other.digest().unwrap()), AcceptedChange::default());
        let check = |server: &str| pins.unfit(server, ItemKind::Tool, "a", Some(&other));
        assert_eq!(check("up"), None);
        assert_eq!(check("down"), Some(PinViolation::Changed));
    }
}
