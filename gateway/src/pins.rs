//! Compares the definitions that upstream servers list with the approved ones of the lockfile.
//!
//! Every list is compared here before any caller sees it. The decision itself belongs
//! to the policy: this module gives it new [`Pins`] when the lockfile changes or a changed definition is accepted, and
//! reports each change once (control C10).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use detection::content::without_values;
use detection::inspect::{Detector, Finding};
use json::{Document, Fragment, JsonBounds, write_ascii};
use policy::definition::alike::Regeneration;
use policy::definition::drift::{self, Drift, Risk};
use policy::definition::lock::{AcceptedFinding, ApprovalState, LockedVersion, Lockfile};
use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
use policy::definition::pin::{Digest, DigestSubject};
use policy::definition::pins::{
    AcceptedChange, EvaluationNeed, PinViolation, Pins, volatile_members,
};
use policy::definition::shadow::{self, ShadowingConflicts};
use policy::engine::pipeline::Policy;
use policy::rules::constraint::UnmatchedConstraint;
use policy::rules::decision::Mode;
use policy_core::subject::name::ServerName;
use tokio::time::Instant;

use crate::audit::{AuditError, DefinitionSubject, Journal};
use crate::base::error_chain::ErrorChain;
use crate::base::file::{FileTaskError, FileTasks, FileWatch, WatchEvent};
use crate::base::masking;
use crate::base::task::Tasks;
use crate::config::selftest_fixtures::BUILT_IN;
use crate::config::settings::lockfile::{self, LockError};
use crate::config::settings::{ConfigSource, DriftAction, PinSettings, UNREADABLE};
use crate::mcp::protocol::Era;
use crate::metrics::{Metrics, PinCount};

/// Most items of one server whose definitions are followed over time, and most changes of one
/// server that are reported: a server with more is quarantined.
const MAX_ITEMS_PER_SERVER: usize = 4096;
/// Time limit for reading the lockfile and comparing it with all lists. Until then the previous approvals
/// apply.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Most accepted findings that are reported individually.
const EXCUSED: usize = 1000;
/// Most shadowing conflicts, and most findings in definitions, that are reported.
const LIKENESSES: usize = 10_000;
/// Most lists of one kind and server that are compared with those of other servers.
const LISTS: usize = 8;
/// Size limit of these lists that belong to single callers, in bytes; the latest one is kept regardless of its size.
const LISTS_BYTES: usize = 16 * 1024 * 1024;
/// Most former definitions of one item that are remembered. Once there are this many, any further change counts as
/// alternation.
const MAX_FORMER_DEFINITIONS: usize = 8;
/// Most changes of one definition that are reported.
const MAX_REPORTED_CHANGES: usize = 8;
/// Most reports that are remembered while lockfiles are read; beyond that, changes may be reported again.
const REPORTED: usize = 10_000;

/// The server, kind and name of an item.
type ItemKey = (Box<str>, ItemKind, Box<str>);

/// What follows from a finding in a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingEffect {
    /// The definition is withheld.
    Withheld,
    /// The definition is shown, and the finding is only recorded.
    Shown,
}

impl FindingEffect {
    /// The word in records.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Withheld => "withheld",
            Self::Shown => "shown",
        }
    }
}

/// An item with its definition, the detector that found something in it, and what follows. A change of the policy that
/// withholds what was shown is reported again.
type ReportedFinding = (ItemKey, Option<Digest>, Detector, FindingEffect);

/// The clients to which a server has shown a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListAudience {
    /// All clients, or the gateway with its own credentials. The lists for other audiences are known as well.
    All,
    /// All clients; the lists for clients with capabilities are not known yet.
    Plain,
    /// Clients of this era with all capabilities that the server may use.
    Capable(Era),
    /// A single caller, with its credentials.
    Caller,
}

impl ListAudience {
    /// Whether both lists are shown to the same clients, so that the later one replaces the earlier one.
    fn replaces(self, other: Self) -> bool {
        match (self, other) {
            (Self::All | Self::Plain, Self::All | Self::Plain) => true,
            (Self::Capable(era), Self::Capable(other)) => era == other,
            (Self::Caller, _)
            | (Self::All | Self::Plain, Self::Capable(_) | Self::Caller)
            | (Self::Capable(_), Self::All | Self::Plain | Self::Caller) => false,
        }
    }
}

/// The origin of a list that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListOrigin {
    /// It was read, beginning at this time.
    Now(Instant),
    /// It was read before the lockfile changed, and the server may list something else by now.
    Kept,
}

/// A list that is compared with those of other servers, and again with the lockfile when that changes.
#[derive(Clone, Debug)]
struct KeptList {
    catalog: Arc<Catalog>,
    audience: ListAudience,
    /// Callers get no list that is as old as this one: it is read, and compared, before any of them is shown one again.
    outdated: bool,
}

/// The lists of one kind of one server.
type AudienceLists = Vec<KeptList>;

/// The report of a change of a definition.
struct ChangeReport<'a> {
    place: &'a ItemKey,
    code: &'static str,
    action: DriftAction,
    digest: Option<Digest>,
    what: &'a str,
}

/// Whether `lock` approves the definition of an item with this digest.
fn is_approved(lock: &Lockfile, (server, kind, name): &ItemKey, digest: Digest) -> bool {
    let locked = lock.servers.get(server);
    let versions = locked.map_or(&[][..], |locked| match kind {
        ItemKind::Method => &locked.server,
        kind => locked.versions(*kind, name),
    });
    let mut of_digest = versions.iter().filter(|version| version.digest == digest);
    of_digest.any(|version| version.state == ApprovalState::Approved)
}

/// A definition that was approved on first use or is built in, with its server and, for an offer, its kind and name.
pub type FirstUseApproval = (Box<str>, Option<(ItemKind, Box<str>)>, LockedVersion);

/// Compares listed definitions with approved ones, and informs the policy.
#[derive(Debug)]
pub struct PinMonitor {
    policy: Arc<Policy>,
    settings: PinSettings,
    journal: Arc<Journal>,
    metrics: Arc<Metrics>,
    /// Increases when lists that have not changed have to be compared again.
    epoch: AtomicU64,
    held: Mutex<PinState>,
    /// Held while lists are compared with each other; locked before `held`.
    shading: Mutex<()>,
}

#[derive(Debug, Default)]
struct PinState {
    /// The state of the lockfile and its signatures when they were last read.
    stamp: Option<LockfileStamp>,
    /// Why the lockfile is unusable, if it is.
    closed: Option<Box<str>>,
    pins: Pins,
    /// The names of tools and prompts with an approved definition in the lockfile.
    approved: BTreeSet<Arc<str>>,
    /// The approved definitions, which stand for the lists of servers until these are read.
    expected: Vec<Arc<Catalog>>,
    /// The identities of the servers.
    identities: BTreeMap<Box<str>, Box<str>>,
    /// The latest lists, which are compared again when the lockfile changes.
    latest: BTreeMap<(Box<str>, ItemKind), AudienceLists>,
    /// The shadowing conflicts that were reported.
    shadows: BTreeSet<String>,
    followed: BTreeMap<ItemKey, DefinitionHistory>,
    /// The definitions in the latest lists that have been approved since these were read. Once they no longer are, as
    /// after the approval of an upgrade, their servers may no longer list them: they are judged when a list has them
    /// again.
    set_aside: BTreeSet<(ItemKey, Option<Digest>)>,
    /// The changes that were found since the lockfile was read, so that each is acted on once.
    told: BTreeSet<(ItemKey, Option<Digest>)>,
    /// The last report of each change, also from before the lockfile was read, so that each is reported once.
    reported: BTreeMap<(ItemKey, Option<Digest>), (&'static str, DriftAction)>,
    /// The number of reported changes of each server.
    counts: BTreeMap<Box<str>, usize>,
    /// The findings in definitions that were reported.
    findings: BTreeSet<ReportedFinding>,
    /// The reported constraints that name unknown tools or arguments.
    missed: BTreeSet<String>,
    /// The definitions approved on first use, which are kept when the lockfile changes.
    first: Vec<FirstUseApproval>,
}

impl PinState {
    /// Records the report of a change; `false` if it was reported before, or the limit is exceeded.
    fn tells(&mut self, place: &ItemKey, digest: Option<Digest>) -> bool {
        if self.told.contains(&(place.clone(), digest)) {
            return false;
        }
        let count = self.counts.entry(place.0.clone()).or_default();
        *count += 1;
        *count <= MAX_ITEMS_PER_SERVER && self.told.insert((place.clone(), digest))
    }

    /// Whether the complete list of this server and kind was read, with the lists for all audiences.
    fn has_listed(&self, catalog: &Catalog) -> bool {
        let place = (Box::from(catalog.server().as_str()), catalog.kind());
        let lists = self.latest.get(&place).map_or(&[][..], Vec::as_slice);
        lists.iter().any(|kept| kept.audience == ListAudience::All)
    }

    /// Sets the approved definitions in the latest lists aside, before another lockfile replaces the approvals.
    fn sets_aside(&mut self) {
        let mut aside = BTreeSet::new();
        for catalog in self.latest.values().flatten().map(|kept| &kept.catalog) {
            let server = catalog.server().as_str();
            for offer in catalog.offers() {
                let place: ItemKey = (server.into(), catalog.kind(), offer.name().as_str().into());
                let settled = self.pins.settled(server, offer);
                let is_approved =
                    settled.is_some_and(|digest| is_approved(&self.pins.lock, &place, digest));
                let key = (place, offer.digest());
                if is_approved || self.set_aside.contains(&key) {
                    aside.insert(key);
                }
            }
        }
        self.set_aside = aside;
    }

    /// Forgets the reports that no longer hold by the lockfile, so that what they were about is reported if it comes
    /// back.
    fn forgets_reports(&mut self) {
        let lock = &self.pins.lock;
        self.reported.retain(|(place, digest), (code, _)| match digest {
            Some(digest) => !is_approved(lock, place, *digest),
            None if *code == PinViolation::Removed.code() => {
                let (server, kind, name) = place;
                let locked = lock.servers.get(server);
                let versions = locked.map_or(&[][..], |locked| locked.versions(*kind, name));
                versions.iter().any(|version| version.state == ApprovalState::Approved)
            }
            None => true,
        });
    }

    /// Records a report; `false` if it was made before. A quarantine is reported each time that it is imposed.
    fn reports(&mut self, report: &ChangeReport<'_>) -> bool {
        let ChangeReport { place, code, action, digest, .. } = *report;
        if self.reported.len() >= REPORTED {
            self.reported.clear();
        }
        let former = self.reported.insert((place.clone(), digest), (code, action));
        former != Some((code, action)) || action == DriftAction::QuarantineServer
    }

    /// Whether a server has exceeded the limit of changes.
    fn is_restless(&self, server: &str) -> bool {
        self.counts.get(server).is_some_and(|count| *count > MAX_ITEMS_PER_SERVER)
    }
}

/// The lists that are compared to find shadowing.
struct ShadowInputs {
    /// The lists of the servers.
    listed: Vec<Arc<Catalog>>,
    /// The approved definitions of servers whose lists have not been read.
    approved: Vec<Arc<Catalog>>,
}

impl ShadowInputs {
    /// The lists that are kept now.
    fn of(held: &PinState) -> Self {
        let listed = held.latest.values().flatten().map(|kept| Arc::clone(&kept.catalog));
        let unlisted = held.expected.iter().filter(|catalog| !held.has_listed(catalog));
        Self { listed: listed.collect(), approved: unlisted.cloned().collect() }
    }

    /// The shadowing conflicts among these lists.
    fn shadows(self, policy: &Policy) -> ShadowingConflicts {
        ShadowingConflicts::expecting(self.listed, self.approved, policy.routes())
    }
}

/// The definitions of one item over time.
#[derive(Debug)]
struct DefinitionHistory {
    now: Digest,
    /// The time of the last reading.
    seen: Instant,
    former: BTreeSet<Digest>,
    /// The members that `pins.volatile` would have to name so that the last definition that was not approved equals an
    /// approved one; empty where more than defaults differed.
    remade: Vec<Box<str>>,
}

impl DefinitionHistory {
    /// The history of a definition that is seen for the first time.
    fn begun(now: Digest) -> Self {
        Self { now, seen: Instant::now(), former: BTreeSet::new(), remade: Vec::new() }
    }
}

/// Modification time, size and inode of the lockfile and of its signatures, to detect changes.
#[derive(Debug, PartialEq, Eq)]
struct LockfileStamp([Option<(SystemTime, u64, u64)>; 2]);

impl LockfileStamp {
    fn of(file: &Path) -> Self {
        let stamp = |file: &Path| {
            let data = fs::metadata(file).ok()?;
            Some((data.modified().ok()?, data.len(), data.ino()))
        };
        Self([stamp(file), stamp(&lockfile::signatures(file))])
    }
}

impl PinMonitor {
    /// Reads the lockfile. A missing lockfile approves nothing.
    ///
    /// # Errors
    /// When the lockfile exists and is unusable.
    pub fn new(
        policy: Arc<Policy>,
        settings: PinSettings,
        journal: Arc<Journal>,
        metrics: Arc<Metrics>,
        own: Vec<FirstUseApproval>,
    ) -> Result<Self, LockError> {
        let (held, shading) = (Mutex::default(), Mutex::default());
        let epoch = AtomicU64::new(0);
        let pin_monitor = Self { policy, settings, journal, metrics, epoch, held, shading };
        let mut held = pin_monitor.held();
        held.pins.mode = pin_monitor.settings.mode;
        held.pins.resources = Arc::clone(&pin_monitor.settings.resources);
        held.pins.volatile = Arc::clone(&pin_monitor.settings.volatile);
        for (server, offer, version) in own.clone() {
            let offer = offer.as_ref().map(|(kind, name)| (*kind, &**name));
            Self::add(&mut held, &server, offer, version);
        }
        held.first = own;
        if pin_monitor.acts() {
            held.stamp = Some(LockfileStamp::of(&pin_monitor.settings.file));
            match lockfile::read(&pin_monitor.settings.file, &pin_monitor.settings.approvers) {
                Ok((lock, text)) => {
                    pin_monitor.found(&text);
                    pin_monitor.take(&mut held, lock);
                }
                Err(LockError::Missing(_)) if pin_monitor.settings.trust_on_first_use => {
                    pin_monitor.expect(&mut held);
                }
                Err(error @ LockError::Missing(_)) => {
                    pin_monitor.expect(&mut held);
                    pin_monitor.metrics.lockfile_usable.store(0, Ordering::Relaxed);
                    tracing::error!(
                        event = "lockfile.missing", %error,
                        "no lockfile: every definition is withheld"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        if pin_monitor.acts() && pin_monitor.settings.trust_on_first_use {
            tracing::warn!(
                event = "pins.trust_on_first_use",
                "`pins.trustOnFirstUse` is on: the first definition of each item is approved; for development only"
            );
        }
        pin_monitor.publish(&held);
        drop(held);
        pin_monitor.shade();
        Ok(pin_monitor)
    }

    /// Continues from the pin monitor of another configuration: takes over the definitions approved on first use, and which
    /// changes were reported. All other state is found again when the lists are read again, which happens
    /// before any of them is used.
    pub fn succeed(&self, former: &Self) {
        let reported = former.held().reported.clone();
        let mut held = self.held();
        held.reported = reported;
        held.forgets_reports();
        drop(held);
        if !self.settings.trust_on_first_use {
            return;
        }
        let mut first = former.held().first.clone();
        // Built-in definitions are added by the configuration itself.
        first.retain(|(_, _, version)| version.by.as_deref() != Some(BUILT_IN));
        let mut held = self.held();
        for (server, offer, version) in first.clone() {
            let offer = offer.as_ref().map(|(kind, name)| (*kind, &**name));
            Self::add(&mut held, &server, offer, version);
        }
        held.first.extend(first);
        self.expect(&mut held);
        self.publish(&held);
        drop(held);
        self.shade();
    }

    /// Whether pinning is enabled.
    pub fn acts(&self) -> bool {
        self.settings.mode != Mode::Off
    }

    /// Whether the lockfile applies: not where pinning is off, and not where definitions are trusted on first use and
    /// there is no lockfile, as in the quickstart.
    fn has_lockfile(&self) -> bool {
        let is_there = || self.settings.file.symlink_metadata().is_ok();
        self.acts() && (!self.settings.trust_on_first_use || is_there())
    }

    fn held(&self) -> MutexGuard<'_, PinState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, held: &PinState) {
        self.metrics.pinned(counted(&held.pins.lock));
        self.policy.pin(&Arc::new(held.pins.clone()));
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Labels metrics with the names of the tools and prompts that the lockfile approves.
    pub fn label(&self) {
        self.metrics.approved(&self.held().approved);
    }

    /// Whether a list that has not changed has to be compared again, because of an event since `epoch`, which is
    /// updated to the current one.
    pub fn has_moved(&self, epoch: &AtomicU64) -> bool {
        let now = self.epoch.load(Ordering::Acquire);
        epoch.swap(now, Ordering::Relaxed) != now
    }

    /// The interval at which the lists of every server are read in the background; `None` if pinning is off.
    #[must_use]
    pub fn recheck(&self) -> Option<Duration> {
        self.acts().then_some(self.settings.recheck)
    }

    /// Replaces the lockfile. Quarantines and reports are reset, and made again if they
    /// still apply.
    fn take(&self, held: &mut PinState, lock: Lockfile) {
        self.metrics.lockfile_usable.store(1, Ordering::Relaxed);
        held.approved = approved(&lock);
        held.sets_aside();
        let mode = held.pins.mode;
        held.pins = Pins { mode, ..self.settings.approving(Arc::new(lock)) };
        self.excused(&held.pins.lock);
        self.missed(held);
        held.closed = None;
        held.told.clear();
        held.counts.clear();
        held.shadows.clear();
        held.findings.clear();
        held.followed.clear();
        for (server, offer, version) in held.first.clone() {
            Self::add(held, &server, offer.as_ref().map(|(kind, name)| (*kind, &**name)), version);
        }
        held.forgets_reports();
        let identities = held.identities.clone();
        for (server, identity) in identities {
            self.compare_identity(held, &server, &identity);
        }
        let latest = held.latest.values().flatten().filter(|kept| !kept.outdated);
        let latest: Vec<_> = latest.cloned().collect();
        for KeptList { catalog, audience, .. } in latest {
            self.compare(held, &catalog, audience, ListOrigin::Kept);
        }
        self.expect(held);
    }

    /// Determines the definitions that stand for servers whose lists have not been read: the approved ones.
    fn expect(&self, held: &mut PinState) {
        held.expected = if self.acts() {
            shadow::approved(&held.pins.lock, &self.servers())
        } else {
            Vec::new()
        };
    }

    /// The names of the configured servers.
    fn servers(&self) -> Vec<ServerName> {
        let names = self.settings.resources.keys();
        names.filter_map(|name| ServerName::parse(name).ok()).collect()
    }

    /// Warns once of each constraint on a tool or an argument that no server has according to the lockfile, so that
    /// no call is checked against it.
    fn missed(&self, held: &mut PinState) {
        for missed in
            UnmatchedConstraint::all(self.policy.constraints(), &self.servers(), &held.pins.lock)
        {
            let missed = missed.to_string();
            if !held.missed.contains(&missed) {
                tracing::warn!(
                    event = "constraint.unmatched", note = %missed,
                    "a constraint applies to nothing: correct the name, or remove it"
                );
                held.missed.insert(missed);
            }
        }
    }

    /// Records each finding that was accepted: who accepted it, and why the definition is shown.
    fn excused(&self, lock: &Lockfile) {
        let mut told = 0;
        for (server, locked) in &lock.servers {
            let of_server = locked.server.iter().map(|version| (None, version));
            let offers = locked.offers.iter().flat_map(|((kind, name), versions)| {
                versions.iter().map(move |version| (Some((*kind, &**name)), version))
            });
            for (offer, version) in of_server.chain(offers) {
                for exception in &version.exceptions {
                    told += 1;
                    if told <= EXCUSED {
                        let what = accepted(server, offer, version, exception);
                        let item = offer.map(|(kind, name)| (kind, self.told_name(name)));
                        self.record_about("definition", &what, server, item.as_ref(), &[]);
                    }
                }
            }
        }
        if told > EXCUSED {
            let more = told - EXCUSED;
            tracing::warn!(
                event = "lockfile.exceptions_unrecorded",
                more,
                "not every accepted finding of the lockfile was written to the audit log"
            );
            self.record("definition", &format!("{more} more findings are accepted"));
        }
    }

    /// Reports once each definition that is withheld from all callers because of a finding, and the command that
    /// accepts it as a false alarm; again when the lockfile changes.
    fn tell_withheld(&self, catalog: &Catalog) {
        let (server, facts) = (catalog.server(), self.policy.facts());
        for offer in catalog.offers() {
            for finding in self.policy.enforced_now(&facts, server, offer) {
                self.withheld(server, offer, &finding);
            }
            if let Some(finding) = self.policy.suspects_now(&facts, server, offer) {
                self.suspect(server, offer, &finding);
            }
        }
    }

    /// Reports once that a definition is shown although `finding` is in it. A model reads it without calling anything.
    fn suspect(&self, server: &ServerName, offer: &CatalogItem, finding: &Finding) {
        self.report_definition(server, offer, finding, FindingEffect::Shown);
    }

    /// Reports that a definition is withheld because of `finding`, if that was not reported since the lockfile changed.
    pub fn withheld(&self, server: &ServerName, offer: &CatalogItem, finding: &Finding) {
        self.report_definition(server, offer, finding, FindingEffect::Withheld);
    }

    fn report_definition(
        &self,
        server: &ServerName,
        offer: &CatalogItem,
        finding: &Finding,
        effect: FindingEffect,
    ) {
        let (kind, name) = (offer.kind(), offer.name().as_str());
        let place: ItemKey = (server.as_str().into(), kind, name.into());
        if !self.is_new((place, offer.digest(), finding.detector, effect)) {
            return;
        }
        let accept = self.can_accept(finding).then(|| {
            let thing = format!("{}/{}", kind.list(), self.told_name(name));
            acceptance(server.as_str(), &thing, finding.detector)
        });
        let finding = &Finding { at: self.told_name(&finding.at), ..finding.clone() };
        let told = self.told_name(name);
        let (item, kind, name) = ((kind, told.clone()), kind.as_str(), ascii(&told));
        self.metrics.in_definition(finding);
        match effect {
            FindingEffect::Withheld => tracing::warn!(
                event = "definition.withheld", %server, kind, %name, %finding, accept,
                "definition withheld: a detector found something"
            ),
            FindingEffect::Shown => tracing::warn!(
                event = "definition.suspect", %server, kind, %name, %finding,
                "definition shown: a detector found something, and the policy only records it"
            ),
        }
        // The built-in server has definitions that are withheld on purpose.
        if !server.is_reserved() {
            let effect = effect.as_str();
            let what = format!("server `{server}`, {kind} {name}: {effect}; {finding}");
            let found = std::slice::from_ref(finding);
            self.record_about("definition", &what, server.as_str(), Some(&item), found);
        }
    }

    /// Reports the same for the instructions in the server info of `server`, which has this digest.
    pub fn report_instructions(
        &self,
        server: &ServerName,
        digest: Option<Digest>,
        finding: &Finding,
        effect: FindingEffect,
    ) {
        let place: ItemKey = (server.as_str().into(), ItemKind::Method, "".into());
        if !self.is_new((place, digest, finding.detector, effect)) {
            return;
        }
        let accept = self
            .can_accept(finding)
            .then(|| acceptance(server.as_str(), "server", finding.detector));
        match effect {
            FindingEffect::Withheld => tracing::warn!(
                event = "instructions.withheld", %server, %finding, accept,
                "server instructions withheld: a detector found something"
            ),
            FindingEffect::Shown => tracing::warn!(
                event = "instructions.suspect", %server, %finding,
                "server instructions shown: a detector found something, and the policy only records it"
            ),
        }
        self.metrics.in_definition(finding);
        let what = format!("server `{server}`, instructions: {}; {finding}", effect.as_str());
        let found = std::slice::from_ref(finding);
        self.record_about("definition", &what, server.as_str(), None, found);
    }

    /// Whether an operator can accept a finding with a command that this configuration can be given to.
    fn can_accept(&self, finding: &Finding) -> bool {
        finding.unacceptable().is_none() && self.settings.verbs == ConfigSource::CanRead
    }

    /// Notes the report of a finding; `false` if it was reported before, or the limit is exceeded.
    fn is_new(&self, what: ReportedFinding) -> bool {
        let mut held = self.held();
        held.findings.len() < LIKENESSES && held.findings.insert(what)
    }

    /// Reports which lockfile is in use from now on.
    fn found(&self, text: &[u8]) {
        let digest = json::hex::encode(&crate::base::sha256::sha256(text));
        let file = self.settings.file.display().to_string();
        tracing::info!(event = "lockfile.read", %file, sha256 = %digest, "lockfile read");
        self.record("pins", &format!("lockfile sha256:{digest}"));
    }

    /// A name, or a place in a definition, as it may appear in the log and in audit records: a server can write a
    /// secret or a canary into either.
    fn told_name(&self, name: &str) -> String {
        masking::uris(&without_values(name, Some(self.policy.contents()))).into_owned()
    }

    fn record(&self, event: &str, what: &str) {
        log_failure(self.journal.record_event(event, what));
    }

    /// Records an event about a definition of `server`: the kind and the name of `item`, as it may be recorded, and what
    /// was found in it.
    fn record_about(
        &self,
        event: &str,
        what: &str,
        server: &str,
        item: Option<&(ItemKind, String)>,
        findings: &[Finding],
    ) {
        let item = item.map(|(kind, name)| (*kind, name.as_str()));
        let subject = DefinitionSubject { server, item, findings };
        log_failure(self.journal.record_definition(event, what, subject));
    }

    /// Watches the lockfile until the gateway stops.
    pub async fn tend(self: Arc<Self>, tasks: Tasks) {
        if !self.acts() {
            return;
        }
        let (mut watch, aside) = (FileWatch::new(tasks), FileTasks::default());
        while let Some(turn) = watch.next().await {
            let pin_monitor = Arc::clone(&self);
            let looked = aside.run(READ_TIMEOUT, move || pin_monitor.look(turn)).await;
            let (why, held) = match looked {
                Ok(()) => continue,
                Err(FileTaskError::Broken) => {
                    ("it could not be compared with what servers say", Some(self.held()))
                }
                // During the comparison it has been read, and this thread must not wait for its end.
                Err(FileTaskError::Late | FileTaskError::Busy) => {
                    ("it was not read in time", self.held.try_lock().ok())
                }
            };
            let Some(mut held) = held else { continue };
            if held.closed.as_deref() != Some(why) {
                self.close(&mut held, why);
                // Forces another reading, even of an unchanged file.
                held.stamp = None;
                self.publish(&held);
            }
        }
    }

    /// Reads the lockfile again, if it has changed or if that is requested.
    fn look(&self, turn: WatchEvent) {
        let file = &self.settings.file;
        let stamp = Some(LockfileStamp::of(file));
        if turn != WatchEvent::Asked && self.held().stamp == stamp {
            return;
        }
        let read = lockfile::read(file, &self.settings.approvers);
        let _turn = self.shading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = self.held();
        // A file that could not be read may be readable the next time, without a change.
        held.stamp = stamp.filter(|_| !matches!(read, Err(LockError::Read(..))));
        match read {
            Ok((lock, text)) => {
                self.found(&text);
                self.take(&mut held, lock);
            }
            Err(error @ LockError::Missing(_)) if self.settings.trust_on_first_use => {
                tracing::warn!(
                    event = "lockfile.missing", %error,
                    "no lockfile: trust on first use is active"
                );
                self.record("pins", "no lockfile: trust on first use is active");
                self.take(&mut held, Lockfile::default());
            }
            Err(error) => self.close(&mut held, &error.in_a_line()),
        }
        self.metrics.approved(&held.approved);
        // Newly approved definitions are not shown before they are compared.
        let shadows = ShadowInputs::of(&held).shadows(&self.policy);
        self.compared(&mut held, shadows);
        self.publish(&held);
    }

    /// Fails closed: an unusable lockfile approves nothing. Logged once for each reason.
    fn close(&self, held: &mut PinState, error: &str) {
        self.metrics.lockfile_usable.store(0, Ordering::Relaxed);
        held.sets_aside();
        let Pins { mode, identity_mismatches, .. } = std::mem::take(&mut held.pins);
        held.pins = Pins { mode, identity_mismatches, ..self.settings.approving(Arc::default()) };
        if held.closed.as_deref() != Some(error) {
            tracing::error!(
                event = "lockfile.unusable", %error,
                "the lockfile cannot be used: every definition is withheld"
            );
            self.metrics.lockfile_unread.add(1);
            self.record("pins", "the lockfile cannot be used: every definition is withheld");
            held.closed = Some(error.into());
        }
    }

    /// Whether the identity of `server` is not the approved one, and the policy enforces it.
    #[must_use]
    pub fn is_identity_mismatch(&self, server: &ServerName) -> bool {
        self.policy.facts().unfit_server(server) == Some(PinViolation::Identity)
    }

    /// Records the identity of `server`; whether the gateway may connect to it.
    pub fn identified(&self, server: &ServerName, identity: &str) -> bool {
        if !self.acts() {
            return true;
        }
        let name = server;
        let mut held = self.held();
        let server: Box<str> = server.as_str().into();
        held.identities.insert(server.clone(), identity.into());
        if self.compare_identity(&mut held, &server, identity) {
            self.publish(&held);
        }
        drop(held);
        !self.is_identity_mismatch(name)
    }

    fn compare_identity(&self, held: &mut PinState, server: &str, identity: &str) -> bool {
        let locked = held.pins.lock.servers.get(server);
        let expected = locked.and_then(|locked| locked.identity.clone());
        let is_mismatch = expected.as_deref().is_some_and(|expected| {
            !masking::is_same_identity(expected, identity) || identity.starts_with(UNREADABLE)
        });
        if !is_mismatch {
            return held.pins.identity_mismatches.remove(server);
        }
        if held.pins.identity_mismatches.insert(server.into()) {
            let expected = expected.unwrap_or_default();
            let what = changed_identity(server, &expected, identity);
            tracing::error!(
                event = "server.identity_changed", %server, note = %what,
                "server identity changed"
            );
            self.record_about("definition", &what, server, None, &[]);
            return true;
        }
        false
    }

    /// Compares a list with the approved definitions, and with the lists of other servers. Takes time in proportion
    /// to the lists, so it must not run on a thread that serves clients.
    pub fn note(&self, catalog: &Arc<Catalog>, audience: ListAudience, begun: Instant) {
        let (fresh, first) = {
            let mut held = self.held();
            let first = audience == ListAudience::All && !held.has_listed(catalog);
            (Self::remember(&mut held, catalog, audience), first)
        };
        if fresh || first {
            self.shade();
        }
        if self.acts() {
            let mut held = self.held();
            if self.compare(&mut held, catalog, audience, ListOrigin::Now(begun)) {
                self.publish(&held);
            } else if fresh && matches!(audience, ListAudience::Capable(_)) {
                // The complete list is checked again for removed definitions, now that this list is known.
                self.epoch.fetch_add(1, Ordering::Release);
            }
        }
        self.tell_withheld(catalog);
    }

    /// Marks the lists that single callers got from `server` as outdated: all of its lists are read again before a caller
    /// is shown one.
    pub fn outdate(&self, server: &ServerName) {
        let mut held = self.held();
        for kind in ItemKind::LISTED {
            let lists = held.latest.get_mut(&(Box::from(server.as_str()), kind));
            let lists = lists.into_iter().flatten();
            for kept in lists.filter(|kept| kept.audience == ListAudience::Caller) {
                kept.outdated = true;
            }
        }
    }

    /// Keeps a list for the comparison with other servers; whether the kept definitions
    /// have changed. Where callers are shown different lists, the last few that differ are kept.
    fn remember(held: &mut PinState, catalog: &Arc<Catalog>, audience: ListAudience) -> bool {
        let said = |catalog: &Catalog| -> BTreeSet<_> {
            let one = |offer: &CatalogItem| (offer.name().clone(), offer.digest());
            catalog.offers().iter().map(one).collect()
        };
        let place = (Box::from(catalog.server().as_str()), catalog.kind());
        let kept = held.latest.entry(place).or_default();
        let new = said(catalog);
        let of_caller = |one: &KeptList| one.audience == ListAudience::Caller;
        let replaced = if audience == ListAudience::Caller {
            kept.iter().position(|one| of_caller(one) && said(&one.catalog) == new)
        } else {
            kept.iter().position(|one| audience.replaces(one.audience))
        };
        let mut gone = replaced.map(|at| said(&kept.remove(at).catalog)).unwrap_or_default();
        // The oldest lists of callers make room for the new one.
        while audience == ListAudience::Caller
            && let Some(oldest) = kept.iter().position(of_caller)
        {
            let of_callers = kept.iter().filter(|one| of_caller(one));
            let bytes: usize = of_callers.map(|one| one.catalog.memory()).sum();
            if kept.len() < LISTS && bytes.saturating_add(catalog.memory()) <= LISTS_BYTES {
                break;
            }
            gone.extend(said(&kept.remove(oldest).catalog));
        }
        let others: BTreeSet<_> = kept.iter().flat_map(|one| said(&one.catalog)).collect();
        kept.push(KeptList { catalog: Arc::clone(catalog), audience, outdated: false });
        new.symmetric_difference(&gone).any(|one| !others.contains(one))
    }

    /// Finds shadowing conflicts among all lists of servers, and the definitions that stand for unread ones.
    fn shade(&self) {
        // One at a time, from the current state: the last comparison covers all lists.
        let _turn = self.shading.lock().unwrap_or_else(PoisonError::into_inner);
        let comparing = ShadowInputs::of(&self.held());
        let shadows = comparing.shadows(&self.policy);
        self.compared(&mut self.held(), shadows);
    }

    /// Reports shadowing conflicts, and informs the policy.
    fn compared(&self, held: &mut PinState, shadows: ShadowingConflicts) {
        let shadowing = self.policy.shadowing();
        for (server, kind, name, conflicts) in shadows.all() {
            for conflict in conflicts {
                if shadowing.of(conflict.likeness) == Mode::Off {
                    continue;
                }
                let what = format!(
                    "server `{server}`, {} {}: shadowing; {}",
                    kind.as_str(),
                    ascii(&self.told_name(name)),
                    ascii(&self.told_name(&conflict.to_string())).trim_matches('"')
                );
                if held.shadows.len() < LIKENESSES && held.shadows.insert(what.clone()) {
                    tracing::warn!(
                        event = "definition.shadowing", %server, note = %what,
                        "definition shadows another one"
                    );
                    let item = (kind, self.told_name(name));
                    let note = self.told_name(&conflict.to_string());
                    let found = [Finding::shadowing(note)];
                    self.record_about("shadowing", &what, server, Some(&item), &found);
                }
            }
        }
        self.policy.shadow(&Arc::new(shadows));
    }

    /// Compares a list with the approved definitions; whether any decision may change.
    fn compare(
        &self,
        held: &mut PinState,
        catalog: &Catalog,
        audience: ListAudience,
        reading: ListOrigin,
    ) -> bool {
        let (server, kind) = (catalog.server().as_str(), catalog.kind());
        let mut decisive = false;
        for offer in catalog.offers() {
            let place: ItemKey = (server.into(), kind, offer.name().as_str().into());
            if let ListOrigin::Now(begun) = reading {
                if !held.set_aside.is_empty() {
                    held.set_aside.remove(&(place.clone(), offer.digest()));
                }
                decisive |= self.follow(held, &place, offer, begun);
            }
            decisive |= self.judge(held, &place, catalog, offer, reading);
        }
        // By a kept list nothing is gone: what the lockfile approves now may be newer than the list.
        if audience == ListAudience::All && reading != ListOrigin::Kept {
            self.missing(held, catalog);
        }
        decisive
    }

    /// Follows a definition over time; whether it has returned after an unapproved one in between: then it differs
    /// between callers, between replicas, or over time.
    fn follow(
        &self,
        held: &mut PinState,
        place: &ItemKey,
        offer: &CatalogItem,
        begun: Instant,
    ) -> bool {
        // A definition that is equivalent to an approved one counts as that, since sets may be ordered anew at a start.
        let Some(digest) = held.pins.settled(&place.0, offer) else { return false };
        let locked = held.pins.lock.servers.get(&place.0);
        let versions = locked.map_or(&[][..], |locked| locked.versions(place.1, &place.2));
        // An item that is not in the lockfile is not shown, regardless of its changes.
        if versions.is_empty() {
            return false;
        }
        let approved = |digest: &Digest| {
            let mut of_digest = versions.iter().filter(|version| version.digest == *digest);
            of_digest.any(|version| version.state == ApprovalState::Approved)
        };
        let Some(followed) = held.followed.get_mut(place) else {
            held.followed.insert(place.clone(), DefinitionHistory::begun(digest));
            return false;
        };
        // The order of two concurrent readings is unknown: the next reading decides, and is
        // evaluated even if it equals this one.
        if begun < followed.seen && followed.now != digest {
            if followed.former.len() < MAX_FORMER_DEFINITIONS {
                followed.former.insert(digest);
            }
            if !held.pins.inconsistent.contains(place) {
                self.epoch.fetch_add(1, Ordering::Release);
            }
            return false;
        }
        followed.seen = Instant::now();
        if followed.now == digest {
            return false;
        }
        let known = held.pins.volatile.get(place).map_or(&[][..], Vec::as_slice);
        if !approved(&digest) {
            let members =
                || volatile_members(versions, offer.definition(), known, Regeneration::Returned);
            followed.remade = if place.1 == ItemKind::Tool { members() } else { Vec::new() };
        }
        let members = followed.remade.clone();
        let left = std::mem::replace(&mut followed.now, digest);
        // Two approved versions may be listed side by side.
        let strange = !approved(&left);
        let back =
            followed.former.contains(&digest) || followed.former.len() >= MAX_FORMER_DEFINITIONS;
        if followed.former.len() < MAX_FORMER_DEFINITIONS {
            followed.former.insert(left);
        }
        self.epoch.fetch_add(1, Ordering::Release);
        let fresh = back && strange && held.pins.inconsistent.insert(place.clone());
        if fresh {
            let action = self.settings.on_inconsistent();
            self.act(held, place, action);
            let what =
                "the definition alternates between versions (per caller, per replica or over time)";
            let next = self.volatile_step(place, &members, Regeneration::Returned);
            let code = PinViolation::Inconsistent.code();
            let report = ChangeReport { place, code, action, digest: Some(digest), what };
            self.tell(&report, next.as_deref());
        }
        fresh
    }

    fn judge(
        &self,
        held: &mut PinState,
        place: &ItemKey,
        catalog: &Catalog,
        offer: &CatalogItem,
        reading: ListOrigin,
    ) -> bool {
        let (server, kind, name) = (&*place.0, place.1, &*place.2);
        let unfit = held.pins.unfit(server, kind, name, Some(offer));
        let digest = offer.digest();
        if unfit == Some(PinViolation::NotApproved)
            && self.trust(held, server, Some((kind, name)), digest, &offer.fragment())
        {
            return true;
        }
        let may_be_gone = matches!(
            unfit,
            Some(PinViolation::Changed | PinViolation::NotApproved | PinViolation::Revoked)
        );
        if may_be_gone
            && reading == ListOrigin::Kept
            && held.set_aside.contains(&(place.clone(), digest))
        {
            return false;
        }
        let told = unfit.is_some_and(PinViolation::is_of_definition) && !held.tells(place, digest);
        if held.is_restless(server) {
            return self.restless(held, place);
        }
        match unfit {
            None
            | Some(
                PinViolation::Identity
                | PinViolation::Quarantined
                | PinViolation::Inconsistent
                | PinViolation::Removed,
            ) => false,
            Some(_) if told => false,
            Some(
                unfit @ (PinViolation::Unpinnable
                | PinViolation::Revoked
                | PinViolation::Unevaluated
                | PinViolation::EvaluationFailed),
            ) => {
                self.held_back(held, place, unfit, digest);
                false
            }
            Some(PinViolation::NotApproved) => {
                let action = self.settings.on_new();
                let mut what = PinViolation::NotApproved.note().to_owned();
                let locked = held.pins.lock.servers.get(server);
                if let Some(former) = locked.and_then(|l| drift::former_name(l, catalog, offer)) {
                    let former = ascii(&self.told_name(former));
                    write!(what, "; it seems to be {former} under another name")
                        .unwrap_or_default();
                }
                let code = PinViolation::NotApproved.code();
                self.tell_once(held, &ChangeReport { place, code, action, digest, what: &what });
                self.act(held, place, action)
            }
            Some(PinViolation::Changed) => self.changed(held, place, offer),
        }
    }

    /// Compares a definition that has changed with the approved ones; whether any decision changes.
    fn changed(&self, held: &mut PinState, place: &ItemKey, offer: &CatalogItem) -> bool {
        let (server, kind, name) = place;
        let lock = Arc::clone(&held.pins.lock);
        let versions = lock.servers.get(server);
        let versions = versions.map_or(&[][..], |locked| locked.versions(*kind, name));
        let drift = drift::nearest(versions, DigestSubject::Offer(*kind), offer.definition());
        let known = held.pins.volatile.get(place).map_or(&[][..], Vec::as_slice);
        let members =
            || volatile_members(versions, offer.definition(), known, Regeneration::Reordered);
        let members = if *kind == ItemKind::Tool { members() } else { Vec::new() };
        self.drifted(held, place, offer.digest(), &DefinitionDrift { drift, members })
    }

    /// Acts on a definition that differs from the approved ones; whether any decision changes.
    fn drifted(
        &self,
        held: &mut PinState,
        place: &ItemKey,
        digest: Option<Digest>,
        changed: &DefinitionDrift<'_>,
    ) -> bool {
        let drift = &changed.drift;
        let changes = &drift.changes;
        let gravest = changes.iter().map(|change| change.risk).max().unwrap_or(Risk::Other);
        let actions = changes.iter().map(|change| self.settings.action(change.risk));
        let action = actions.max().unwrap_or(DriftAction::Hold);
        let plural = if changes.len() == 1 { "" } else { "s" };
        let mut what = format!("{} ({} change{plural})", gravest.as_str(), changes.len());
        for change in changes.iter().take(MAX_REPORTED_CHANGES) {
            let (risk, at) = (change.risk.as_str(), self.told_name(&change.at));
            write!(what, "; {risk} at `{at}`: {}", change.what).unwrap_or_default();
        }
        let is_held = matches!(action, DriftAction::Hold | DriftAction::QuarantineServer);
        let next = self.volatile_step(place, &changed.members, Regeneration::Reordered);
        let next = next.filter(|_| is_held);
        let code = PinViolation::Changed.code();
        let report = ChangeReport { place, code, action, digest, what: &what };
        let next = next.or_else(|| self.next_step(&report));
        if held.reports(&report) {
            self.tell(&report, next.as_deref());
        }
        match (action, digest) {
            (DriftAction::Accept | DriftAction::Alert, Some(digest)) => {
                let within = drift.from.filter(|_| drift.is_within());
                let approved = within.map(|version| version.definition.clone());
                let accepted = approved.map(AcceptedChange::within).unwrap_or_default();
                held.pins.accepted.insert((place.0.clone(), digest), accepted).is_none()
            }
            _ => self.act(held, place, action),
        }
    }

    fn act(&self, held: &mut PinState, place: &ItemKey, action: DriftAction) -> bool {
        action == DriftAction::QuarantineServer && held.pins.quarantined.insert(place.0.clone())
    }

    /// Quarantines a server that has exceeded the limit of changes.
    fn restless(&self, held: &mut PinState, place: &ItemKey) -> bool {
        let fresh = held.pins.quarantined.insert(place.0.clone());
        if fresh {
            let what = "too many changes to list";
            let (code, action) = (PinViolation::Quarantined.code(), DriftAction::QuarantineServer);
            self.tell(&ChangeReport { place, code, action, digest: None, what }, None);
        }
        fresh
    }

    /// Approves a definition on first use, if that is enabled; whether it was approved.
    fn trust(
        &self,
        held: &mut PinState,
        server: &str,
        offer: Option<(ItemKind, &str)>,
        digest: Option<Digest>,
        definition: &Fragment,
    ) -> bool {
        let room = held.first.len() < MAX_ITEMS_PER_SERVER && held.closed.is_none();
        let wanted = self.settings.trust_on_first_use && room;
        let Some(digest) = digest.filter(|_| wanted) else { return false };
        let by = Some("first use".into());
        let version = LockedVersion {
            by,
            ..LockedVersion::new(digest, ApprovalState::Approved, apart(definition))
        };
        let added = Self::add(held, server, offer, version.clone());
        if added {
            held.first.push((
                server.into(),
                offer.map(|(kind, name)| (kind, name.into())),
                version,
            ));
            tracing::debug!(server, ?offer, %digest, "definition approved on first use");
        }
        added
    }

    /// Adds a definition approved on first use to the lockfile in memory; `false` if it has been decided about
    /// already. Decisions of a person are kept.
    fn add(
        held: &mut PinState,
        server: &str,
        offer: Option<(ItemKind, &str)>,
        version: LockedVersion,
    ) -> bool {
        let lock = Arc::make_mut(&mut held.pins.lock);
        let locked = lock.servers.entry(server.into()).or_default();
        let versions = match offer {
            Some((kind, name)) => locked.offers.entry((kind, name.into())).or_default(),
            None => &mut locked.server,
        };
        match versions.iter_mut().find(|known| known.digest == version.digest) {
            Some(known) if known.state == ApprovalState::Pending => *known = version,
            Some(_) => return false,
            None => versions.push(version),
        }
        true
    }

    /// Reports approved definitions that are no longer listed.
    fn missing(&self, held: &mut PinState, catalog: &Catalog) {
        let (server, kind) = (catalog.server().as_str(), catalog.kind());
        let Some(locked) = held.pins.lock.servers.get(server) else { return };
        // A definition that is listed only for clients with capabilities is not removed.
        let lists = held.latest.get(&(server.into(), kind)).map_or(&[][..], Vec::as_slice);
        let is_capable = |kept: &&KeptList| matches!(kept.audience, ListAudience::Capable(_));
        let capable = lists.iter().filter(is_capable).map(|kept| Arc::clone(&kept.catalog));
        let capable: Vec<Arc<Catalog>> = capable.collect();
        let is_listed = |name: &str| {
            catalog.offer(name).is_some() || capable.iter().any(|list| list.offer(name).is_some())
        };
        let approved = |versions: &[LockedVersion]| {
            versions.iter().any(|v| v.state == ApprovalState::Approved)
        };
        let names: Vec<Box<str>> = locked
            .offers
            .iter()
            .filter(|((of, _), versions)| *of == kind && approved(versions))
            .map(|((_, name), _)| name.clone())
            .collect();
        for name in names {
            let place: ItemKey = (server.into(), kind, name);
            // A resource that may be created at run time may disappear.
            let goes = held.pins.unfit(server, kind, &place.2, None).is_none();
            if goes || is_listed(&place.2) {
                let key = (place, None);
                held.told.remove(&key);
                let code = PinViolation::Removed.code();
                if held.reported.get(&key).is_some_and(|(reported, _)| *reported == code) {
                    held.reported.remove(&key);
                }
            } else if held.tells(&place, None) {
                self.held_back(held, &place, PinViolation::Removed, None);
            }
        }
    }

    /// Compares the server info and instructions of a server with the approved ones.
    pub fn note_server(&self, server: &ServerName, said: &Fragment, digest: Option<Digest>) {
        let name = server.as_str();
        let approved = |pins: &Pins| {
            let versions = pins.lock.servers.get(name).map_or(&[][..], |locked| &locked.server);
            let mut of_digest = versions.iter().filter(|version| Some(version.digest) == digest);
            of_digest.any(|version| version.state == ApprovalState::Approved)
        };
        if !self.acts() || server.is_reserved() || approved(self.policy.facts().pins()) {
            return;
        }
        let mut held = self.held();
        let place: ItemKey = (name.into(), ItemKind::Method, "".into());
        if approved(&held.pins) {
            return;
        }
        let locked = held.pins.lock.servers.get(name);
        let versions = locked.map(|locked| locked.server.clone()).unwrap_or_default();
        // One version for each era that a server speaks.
        let decided =
            versions.iter().filter(|version| version.state != ApprovalState::Pending).count();
        if decided < 2 && self.trust(&mut held, name, None, digest, said) {
            self.publish(&held);
            return;
        }
        if !held.tells(&place, digest) {
            if held.is_restless(name) && self.restless(&mut held, &place) {
                self.publish(&held);
            }
            return;
        }
        let revoked = versions.iter().any(|version| {
            Some(version.digest) == digest && version.state == ApprovalState::Revoked
        });
        if revoked {
            self.held_back(&mut held, &place, PinViolation::Revoked, digest);
        } else if versions.iter().any(|version| version.state == ApprovalState::Approved) {
            let drift = drift::nearest(&versions, DigestSubject::Server, said.value());
            let changed = DefinitionDrift { drift, members: Vec::new() };
            if self.drifted(&mut held, &place, digest, &changed) {
                self.publish(&held);
            }
        } else {
            self.held_back(&mut held, &place, PinViolation::NotApproved, digest);
        }
    }

    /// Reports that a definition is held for what `unfit` says, unless that was reported before.
    fn held_back(
        &self,
        held: &mut PinState,
        place: &ItemKey,
        unfit: PinViolation,
        digest: Option<Digest>,
    ) {
        let (code, action, what) = (unfit.code(), DriftAction::Hold, unfit.note());
        self.tell_once(held, &ChangeReport { place, code, action, digest, what });
    }

    /// Reports a change, unless it was reported before.
    fn tell_once(&self, held: &mut PinState, report: &ChangeReport<'_>) {
        if held.reports(report) {
            self.tell(report, self.next_step(report).as_deref());
        }
    }

    /// Reports one change in the log and in an audit record. The advice `next` is for the log alone.
    fn tell(&self, report: &ChangeReport<'_>, next: Option<&str>) {
        let ChangeReport { place, code, action, digest, what } = *report;
        let (server, kind, name) = place;
        let of = match kind {
            ItemKind::Method => "what it says of itself".to_owned(),
            kind => format!("{} {}", kind.as_str(), ascii(&self.told_name(name))),
        };
        let done = match action {
            DriftAction::Accept => "accepted",
            DriftAction::Alert => "accepted with an alert",
            DriftAction::Hold => "held",
            DriftAction::QuarantineServer => "the server is quarantined",
        };
        let digest = digest.map(|digest| format!("{digest}; ")).unwrap_or_default();
        let what: String = format!("server `{server}`, {of}: {code}, {done}; {digest}{what}");
        if action == DriftAction::Accept {
            tracing::info!(
                event = "definition.changed", %server, code, action = done, note = %what,
                "definition changed"
            );
        } else {
            tracing::warn!(
                event = "definition.changed", %server, code, action = done, note = %what, next,
                "definition changed"
            );
        }
        self.metrics.definition_changes.add(1);
        let item = (*kind, self.told_name(name));
        let item = (*kind != ItemKind::Method).then_some(&item);
        self.record_about("definition", &what, server, item, &[]);
    }

    /// The advice to name these `members` of a tool in `pins.volatile`; `None` where there are none.
    fn volatile_step(
        &self,
        place: &ItemKey,
        members: &[Box<str>],
        remade: Regeneration,
    ) -> Option<String> {
        let (server, _, name) = place;
        if members.is_empty() || !self.has_lockfile() {
            return None;
        }
        let is_shown = |text: &str| self.told_name(text) == text;
        // A name that could be a secret is not printed.
        let entry = (is_shown(name) && members.iter().all(|at| is_shown(at)))
            .then(|| volatile_entry(server, name, members))
            .flatten();
        Some(volatile_advice(entry.as_deref(), remade))
    }

    /// The advice to approve a definition that is held, or to take back the approval of one that is gone; `None` where
    /// neither would settle it.
    fn next_step(&self, report: &ChangeReport<'_>) -> Option<String> {
        let ChangeReport { place: (server, kind, name), code, action, .. } = *report;
        let is_held = matches!(action, DriftAction::Hold | DriftAction::QuarantineServer);
        let can_approve =
            [PinViolation::Changed.code(), PinViolation::NotApproved.code()].contains(&code);
        let is_gone = code == PinViolation::Removed.code();
        let lacks_evaluation =
            [PinViolation::Unevaluated.code(), PinViolation::EvaluationFailed.code()]
                .contains(&code);
        if lacks_evaluation && self.has_lockfile() {
            return Some(
                "correct its definition or the examples if it failed; `portcullis eval FOLDER -c FILE --record` evaluates \
                 it and records the result"
                    .to_owned(),
            );
        }
        if !is_held || !(can_approve || is_gone) || !self.has_lockfile() {
            return None;
        }
        let thing = match kind {
            ItemKind::Method => "server".to_owned(),
            kind => format!("{}/{}", kind.list(), self.told_name(name)),
        };
        if is_gone {
            return Some(gone_advice(server, &thing));
        }
        let named = named(server, &thing);
        let needs_evaluation =
            self.settings.evaluation == EvaluationNeed::Passed && *kind == ItemKind::Tool;
        let evaluated = match needs_evaluation {
            true => ", `portcullis eval FOLDER -c FILE --record` evaluates it,",
            false => "",
        };
        Some(format!(
            "`portcullis pin diff` shows it; if it is right, `portcullis pin` proposes it{evaluated} and `portcullis pin \
             approve {named} --reason TEXT` approves it"
        ))
    }
}

/// The differences of a definition from the approved ones.
struct DefinitionDrift<'a> {
    /// The changes, and the version that they are relative to.
    drift: Drift<'a>,
    /// The members that `pins.volatile` would have to name, where only the order within defaults differs.
    members: Vec<Box<str>>,
}

/// The entry under `pins: {volatile: …}` that leaves values of a tool out of the comparison. `None` where a name that
/// the server chose could be misread in YAML.
#[must_use]
pub fn volatile_entry(server: &str, tool: &str, members: &[Box<str>]) -> Option<String> {
    let plain = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./~$".contains(c))
            && text.contains(|c: char| c.is_ascii_alphabetic())
    };
    let is_plain = plain(tool) && members.iter().all(|at| plain(at));
    is_plain.then(|| {
        format!("- {{server: {server}, tool: '{tool}', members: [{}]}}", members.join(", "))
    })
}

/// The advice for a tool whose server generates its defaults anew at every start.
#[must_use]
pub fn volatile_advice(entry: Option<&str>, remade: Regeneration) -> String {
    let why = match remade {
        Regeneration::Reordered => "only the order within defaults differs from what was approved",
        Regeneration::Returned => {
            "only defaults differ from what was approved, and they have come back"
        }
    };
    let how = match entry {
        Some(entry) => format!("write `{entry}` under `volatile` of `pins`"),
        None => "name these defaults of it in `pins.volatile`".to_owned(),
    };
    format!(
        "{why}: where its server makes them anew at every start, no approval lasts; {how} instead of the one that may be there, \
         which leaves them out of the comparison"
    )
}

/// The names of tools and prompts with an approved definition.
fn approved(lock: &Lockfile) -> BTreeSet<Arc<str>> {
    let offers = lock.servers.values().flat_map(|locked| &locked.offers);
    let is_named = |kind: ItemKind| matches!(kind, ItemKind::Tool | ItemKind::Prompt);
    let is_approved = |versions: &[LockedVersion]| {
        versions.iter().any(|one| one.state == ApprovalState::Approved)
    };
    let found = offers.filter(|((kind, _), versions)| is_named(*kind) && is_approved(versions));
    found.map(|((_, name), _)| Arc::from(&**name)).collect()
}

/// The number of definitions of each server in each state.
fn counted(lock: &Lockfile) -> Vec<PinCount> {
    let states = [ApprovalState::Approved, ApprovalState::Pending, ApprovalState::Revoked];
    let mut pinned = Vec::new();
    for (server, locked) in &lock.servers {
        let versions = locked.offers.values().flatten();
        let count =
            |state| versions.clone().filter(|version| version.state == state).count() as u64;
        pinned.extend(states.map(|state| PinCount {
            server: server.clone(),
            state,
            count: count(state),
        }));
    }
    pinned
}

/// The command that accepts a finding as a false alarm. `thing`: `tools/NAME`, or `server` for the server info
/// and instructions.
#[must_use]
pub fn acceptance(server: &str, thing: &str, detector: Detector) -> String {
    let named = named(server, thing);
    format!("portcullis pin approve {named} --accept {} --reason TEXT", detector.name())
}

/// The advice for an approved definition that its server does not list. `thing`: `tools/NAME`, `prompts/NAME` and the
/// like.
#[must_use]
pub fn gone_advice(server: &str, thing: &str) -> String {
    let named = named(server, thing);
    format!(
        "if it is gone for good, `portcullis pin revoke {named} --reason TEXT` takes its approval back; should it return, \
         it is refused"
    )
}

/// The argument of `pin approve` for an item: `tools/NAME`, or `server` for the server info and instructions.
fn named(server: &str, thing: &str) -> String {
    // The name is pasted into a shell, and `pin approve` tells a tool from a prompt by its first part.
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    let tool = thing.strip_prefix("tools/").filter(|name| !name.contains('/'));
    match thing {
        "server" => format!("{server} --itself"),
        thing if thing.chars().all(plain) => format!("{server}/{}", tool.unwrap_or(thing)),
        _ => "SERVER/NAME".to_owned(),
    }
}

/// The text of an audit record on an accepted finding.
fn accepted(
    server: &str,
    offer: Option<(ItemKind, &str)>,
    version: &LockedVersion,
    exception: &AcceptedFinding,
) -> String {
    let of = match offer {
        None => "what it says of itself".to_owned(),
        Some((kind, name)) => format!("{} {}", kind.as_str(), ascii(name)),
    };
    let AcceptedFinding { finding, by, at, reason } = exception;
    let (digest, finding) = (version.digest, finding.name());
    let (by, at, reason) = (ascii(by), ascii(at), ascii(reason));
    format!("server `{server}`, {of}: {finding} accepted; {digest}; by {by} at {at}: {reason}")
}

/// Logs that an event was not written.
fn log_failure(written: Result<(), AuditError>) {
    if let Err(error) = written {
        tracing::error!(
            event = "audit.write_failed", error = %ErrorChain(&error),
            "audit event not written"
        );
    }
}

/// The report of a changed server identity, with the advice for the operator.
fn changed_identity(server: &str, approved: &str, found: &str) -> String {
    // The names are from the configuration and from files; they are shown whole, because digests stand at the end.
    let shown = |text: &str| text.escape_debug().to_string();
    let program = |text: &str| text.split_once(" running ").map(|(program, _)| program.to_owned());
    let only = match (program(approved), program(found)) {
        (Some(one), Some(other)) if one == other => {
            " (the program is the same; a script or package that its `args` name has changed)"
        }
        _ => "",
    };
    format!(
        "server `{server}`: {}{only}; approved was `{}`, found was `{}`; if the change is right, run `portcullis pin \
         approve --server {server} --identity`",
        PinViolation::Identity,
        shown(approved),
        shown(found),
    )
}

/// A name that a peer chose, in printable ASCII and cut to 256 bytes.
fn ascii(text: &str) -> String {
    let mut out = Vec::new();
    write_ascii(&mut out, text.get(..text.floor_char_boundary(256)).unwrap_or_default());
    String::from_utf8(out).unwrap_or_default()
}

/// A copy of a definition that does not keep the whole response in memory.
fn apart(definition: &Fragment) -> Fragment {
    let text = Bytes::copy_from_slice(definition.value().raw().as_bytes());
    match Document::parse(text, &JsonBounds::ANSWER) {
        Ok(document) => Fragment::whole(Arc::new(document)),
        // INVARIANT: the same parser with the same bounds has accepted it.
        Err(_) => definition.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, JsonBounds};
    use policy::definition::lock::{ApprovalState, LockedVersion};
    use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
    use policy_core::subject::name::ServerName;

    use super::{ChangeReport, ItemKey, LISTS, LISTS_BYTES, ListAudience, PinMonitor, PinState};
    use crate::config::settings::DriftAction;

    /// A list with one prompt, which takes about this many bytes.
    fn list(name: usize, bytes: usize) -> Arc<Catalog> {
        // A number and the comma after it are two bytes of text, and sixteen of the index.
        let text = format!(r#"{{"name":"p{name}","x":[{}0]}}"#, "0,".repeat(bytes / 18));
        let document = Arc::new(Document::parse(text.into(), &JsonBounds::ANSWER).unwrap());
        let offer = CatalogItem::read(ItemKind::Prompt, document.root(), &document).unwrap();
        Arc::new(Catalog::new(ServerName::parse("up").unwrap(), ItemKind::Prompt, vec![offer]))
    }

    #[test]
    fn a_change_is_reported_once_unless_something_else_is_done_about_it() {
        let mut held = PinState::default();
        let place: ItemKey = ("up".into(), ItemKind::Tool, "work".into());
        let mut reports = |code, action, digest| {
            held.reports(&ChangeReport { place: &place, code, action, digest, what: "" })
        };
        let digest = list(0, 10).offers()[0].digest();
        assert!(reports("definition-changed", DriftAction::Hold, digest));
        assert!(!reports("definition-changed", DriftAction::Hold, digest));
        assert!(reports("definition-changed", DriftAction::Accept, digest));
        assert!(reports("approval-revoked", DriftAction::Hold, digest));
        assert!(reports("definition-removed", DriftAction::Hold, None));
        assert!(!reports("definition-removed", DriftAction::Hold, None));
        // Each change of the lockfile lifts a quarantine, so another one is an event of its own.
        assert!(reports("definition-changed", DriftAction::QuarantineServer, digest));
        assert!(reports("definition-changed", DriftAction::QuarantineServer, digest));
    }

    #[test]
    fn what_was_approved_in_a_kept_list_is_set_aside_as_long_as_the_list_is_kept() {
        let mut held = PinState::default();
        let kept = list(1, 10);
        let digest = kept.offers()[0].digest();
        PinMonitor::remember(&mut held, &kept, ListAudience::All);
        PinMonitor::remember(&mut held, &list(2, 10), ListAudience::Caller);
        held.sets_aside();
        assert!(held.set_aside.is_empty(), "nothing is approved");
        let version = LockedVersion::new(
            digest.unwrap(),
            ApprovalState::Approved,
            kept.offers()[0].fragment(),
        );
        assert!(PinMonitor::add(&mut held, "up", Some((ItemKind::Prompt, "p1")), version));
        held.sets_aside();
        let place: ItemKey = ("up".into(), ItemKind::Prompt, "p1".into());
        assert_eq!(held.set_aside, [(place, digest)].into());
        // It stays so under a lockfile that approves something else, until another list replaces this one.
        held.pins.lock = Arc::default();
        held.sets_aside();
        assert_eq!(held.set_aside.len(), 1);
        PinMonitor::remember(&mut held, &list(3, 10), ListAudience::All);
        held.sets_aside();
        assert!(held.set_aside.is_empty());
    }

    #[test]
    fn the_lists_of_callers_that_are_compared_have_a_bound_in_number_and_in_bytes() {
        let mut held = PinState::default();
        let mut after = |name: usize, bytes: usize, audience: ListAudience| {
            PinMonitor::remember(&mut held, &list(name, bytes), audience);
            held.latest.values().map(Vec::len).sum::<usize>()
        };
        assert_eq!(after(0, 10, ListAudience::All), 1);
        for name in 1..20 {
            assert_eq!(after(name, 10, ListAudience::Caller), (name + 1).min(LISTS));
        }
        assert_eq!(after(19, 10, ListAudience::Caller), LISTS, "the same again");
        // Two of these lists do not fit; the list for all clients is kept.
        assert_eq!(after(30, LISTS_BYTES / 2 + 1, ListAudience::Caller), LISTS);
        assert_eq!(after(31, LISTS_BYTES / 2 + 1, ListAudience::Caller), 2);
        assert_eq!(after(32, LISTS_BYTES + 1, ListAudience::Caller), 2);
        assert_eq!(after(33, 10, ListAudience::Caller), 2);
    }
}
