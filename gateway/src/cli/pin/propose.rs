//! `portcullis pin`: writes the definitions that servers offer now into the lockfile as pending.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use detection::inspect::AcceptedDetectors;
use gateway::base::masking;
use gateway::config::settings::{ServerSettings, Settings, UNREADABLE};
use gateway::control::inventory::ServerInventory;
use gateway::pins::volatile_entry;
use json::Fragment;
use policy::definition::drift::visible;
use policy::definition::lock::{ApprovalState, LockedServer, LockedVersion, Lockfile};
use policy::definition::offer::{CatalogItem, ItemKind};
use policy::definition::pin::Digest;
use policy::definition::pins::{EvaluationNeed, PinViolation, Pins, ResourcePins};

use super::super::why::{self, thing};
use super::super::{FAILED, INCOMPLETE, say};
use super::asked::{self, SurveyArgs, UnstableDefinition};
use super::{LockfileSnapshot, by_option, identity_mend, locked, offers, store, taking_back};

/// Most places of one definition that are listed.
const PLACES: usize = 8;

/// State while the servers' definitions are proposed.
struct Proposal<'a> {
    settings: &'a Settings,
    lock: Lockfile,
    /// Content of the lockfile when it was read.
    former: LockfileSnapshot,
    /// The approvals before this run.
    pins: Pins,
    unsteady: &'a [UnstableDefinition],
    /// Number of new definitions.
    proposed: usize,
    /// Number of new descriptions of servers: one for each era that a server speaks.
    of_servers: usize,
    /// Number of servers that were asked.
    servers: usize,
    /// Whether a server could not be asked.
    failed: bool,
    /// Whether the identity of a server changed.
    strange: bool,
    /// Whether a list could not be read.
    incomplete: bool,
}

pub(super) fn propose(which: &SurveyArgs) -> Result<ExitCode, ExitCode> {
    let (settings, surveys, unsteady) = asked::ask_twice(which)?;
    let (lock, former) = locked(&settings)?;
    // A resource that may be created at run time is proposed as well, because only a listed resource can be revoked.
    let pinned = |server: &ServerSettings| (server.name.as_str().into(), ResourcePins::Pinned);
    let resources = Arc::new(settings.servers.iter().map(pinned).collect());
    // Whether a version was evaluated says nothing about whether it is known.
    let evaluation = EvaluationNeed::None;
    let pins = Pins { resources, evaluation, ..settings.pins.approving(Arc::new(lock.clone())) };
    let mut proposal = Proposal {
        settings: &settings,
        lock,
        former,
        pins,
        unsteady: &unsteady,
        proposed: 0,
        of_servers: 0,
        servers: surveys.len(),
        failed: false,
        strange: false,
        incomplete: false,
    };
    for survey in &surveys {
        proposal.incomplete |= !survey.unread.is_empty();
        proposal.failed |= survey.failed.is_some();
        if survey.failed.is_none() {
            proposal.of_server(survey);
        }
    }
    proposal.end()
}

impl Proposal<'_> {
    fn of_server(&mut self, survey: &ServerInventory) {
        if !self.identity(survey) {
            return;
        }
        let locked = self.lock.servers.entry(survey.server.as_str().into()).or_default();
        let now: BTreeSet<Digest> = offers(survey).filter_map(CatalogItem::digest).collect();
        // Versions of a list that could not be read stay as they are.
        locked.offers.iter_mut().for_each(|((kind, _), versions)| {
            let read = survey.has_read(*kind);
            versions
                .retain(|v| v.state != ApprovalState::Pending || !read || now.contains(&v.digest));
        });
        locked.offers.retain(|_, versions| !versions.is_empty());
        self.of_servers += server_infos(locked, survey);
        for offer in offers(survey) {
            self.offer(survey, offer);
        }
    }

    /// Whether the identity of the server is the approved one, or the first that is seen.
    fn identity(&mut self, survey: &ServerInventory) -> bool {
        let locked = self.lock.servers.entry(survey.server.as_str().into()).or_default();
        let identity = survey.identity.as_str();
        match locked.identity.as_deref() {
            None if identity.starts_with(UNREADABLE) => {
                say(&format!("warning: `{}` is {identity}", survey.server));
            }
            None => locked.identity = Some(identity.into()),
            Some(known) if !masking::is_same_identity(known, identity) => {
                self.strange = true;
                let mend = identity_mend(survey.server.as_str());
                say(&format!(
                    "warning: `{}` is `{identity}` and was approved as `{known}`: nothing of it is proposed; if that is \
                     right: {mend}",
                    survey.server
                ));
                return false;
            }
            Some(_) => {}
        }
        true
    }

    fn offer(&mut self, survey: &ServerInventory, offer: &CatalogItem) {
        let server = &survey.server;
        let of = thing(offer.kind(), offer.name().as_str());
        if offer.digest().is_none() {
            let note = PinViolation::Unpinnable.note();
            return say(&format!("warning: `{server}` {of} cannot be pinned: {note}"));
        }
        let is = |one: &&UnstableDefinition| {
            let second = (one.second.kind(), one.second.name());
            one.server == *server && second == (offer.kind(), offer.name())
        };
        let unsteady = self.unsteady;
        let Some(found) = unsteady.iter().find(is) else { return self.add(survey, offer) };
        let fits = |offer: &CatalogItem| {
            let name = offer.name().as_str();
            self.pins.unfit(server.as_str(), offer.kind(), name, Some(offer))
        };
        let (first, second) = (fits(offer), fits(&found.second));
        if first.is_none() || second.is_none() {
            // One of the two is approved, as during a rolling upgrade of replicas.
            say(&format!(
                "warning: `{server}` {of} has two versions side by side; to keep both: \
                 `portcullis pin approve --keep`"
            ));
            self.add(survey, offer);
            return self.add(survey, &found.second);
        }
        let places: Vec<_> = found.places.iter().take(PLACES).map(|at| visible(at)).collect();
        let members: Vec<Box<str>> = found.places.iter().map(|at| at.as_str().into()).collect();
        let entry = (offer.kind() == ItemKind::Tool)
            .then(|| volatile_entry(server.as_str(), offer.name().as_str(), &members))
            .flatten();
        let entry = entry.map(|entry| format!(": `{entry}`")).unwrap_or_default();
        say(&format!(
            "warning: `{server}` {of} differs at every start: {}; no approval of it lasts: have its server \
             changed, or name these members in `pins.volatile`{entry}",
            places.join(", ")
        ));
        // If an earlier version is approved, another version would not match the next start either.
        if first != Some(PinViolation::Changed) {
            self.add(survey, offer);
        }
    }

    /// Proposes a definition unless it is approved, is equal to an approved one, or was revoked.
    fn add(&mut self, survey: &ServerInventory, offer: &CatalogItem) {
        let (server, kind, name) = (&survey.server, offer.kind(), offer.name().as_str());
        let of = thing(kind, name);
        let unfit = self.pins.unfit(server.as_str(), kind, name, Some(offer));
        let Some(digest) = offer.digest() else { return };
        if unfit == Some(PinViolation::Revoked) {
            let command = taking_back(server.as_str(), &of);
            say(&format!(
                "note: `{server}` {of} was revoked, and is not proposed again; to take that back: `{command}`"
            ));
        }
        if matches!(unfit, None | Some(PinViolation::Revoked)) {
            return;
        }
        let locked = self.lock.servers.entry(server.as_str().into()).or_default();
        let versions = locked.offers.entry((kind, name.into())).or_default();
        if !add(versions, digest, &offer.fragment()) {
            return;
        }
        let forms = now(survey, offer);
        let stays =
            |v: &LockedVersion| v.state == ApprovalState::Approved && forms.contains(&v.digest);
        if versions.iter().any(stays) {
            say(&format!(
                "note: `{server}` {of} is offered in more than one form, to different clients: approve the new \
                 one with `--keep`"
            ));
        }
        self.proposed += 1;
        for finding in offer.findings() {
            say(&format!("warning: `{server}` {of}: {finding}"));
        }
        for finding in self.settings.policy.withheld(offer, AcceptedDetectors::default()) {
            let why = why::finding(server.as_str(), &of, &finding);
            say(&format!("warning: `{server}` {of} stays withheld when it is approved: {why}"));
        }
    }

    fn end(self) -> Result<ExitCode, ExitCode> {
        let Self {
            settings,
            lock,
            former,
            proposed,
            of_servers,
            servers,
            failed,
            strange,
            incomplete,
            ..
        } = self;
        store(settings, &lock, &former)?;
        let file = settings.pins.file.display();
        let has = |state| {
            lock.servers.values().any(|locked| {
                let mut versions = locked.offers.values().flatten().chain(&locked.server);
                versions.any(|version| version.state == state)
            })
        };
        let pending = has(ApprovalState::Pending);
        let before = match (proposed + of_servers, pending) {
            (0, true) => "; what was proposed before waits there",
            (_, true) | (_, false) => "",
        };
        let approve = format!("{before}; read it, then `portcullis pin approve{}`", by_option());
        let next = match (pending, failed || incomplete) {
            (true, _) => approve.as_str(),
            (false, true) => {
                "; nothing is there to be approved until the servers above can be asked"
            }
            (false, false) if strange => {
                "; nothing is there to be approved until the identity of the servers above is"
            }
            (false, false) if has(ApprovalState::Revoked) => {
                "; everything but what was revoked is approved already"
            }
            (false, false) => "; everything is approved already",
        };
        let all = proposed + of_servers;
        let parts = match of_servers {
            0 => String::new(),
            of_servers => {
                let noun = if proposed == 1 { "definition" } else { "definitions" };
                let eras = if of_servers > servers { ", which may differ in each era" } else { "" };
                format!(
                    " ({proposed} {noun}, {of_servers} of what servers say of themselves{eras})"
                )
            }
        };
        say(&format!("{all} proposed in `{file}`{parts}{next}"));
        Ok(match (failed || strange, incomplete) {
            (true, _) => ExitCode::from(FAILED),
            (false, true) => {
                say("incomplete: what could not be read keeps what was approved of it before");
                ExitCode::from(INCOMPLETE)
            }
            (false, false) => ExitCode::SUCCESS,
        })
    }
}

/// Proposes the server's description of itself. Returns how many versions are new.
fn server_infos(locked: &mut LockedServer, survey: &ServerInventory) -> usize {
    let mut proposed = 0;
    for server_info in &survey.server_infos {
        if let (Some(said), Some(digest)) = (&server_info.said, server_info.digest) {
            proposed += usize::from(add(&mut locked.server, digest, said));
        }
    }
    let said: BTreeSet<_> =
        survey.server_infos.iter().filter_map(|server_info| server_info.digest).collect();
    locked.server.retain(|v| v.state != ApprovalState::Pending || said.contains(&v.digest));
    let approved = |digest: &Digest| {
        let mut of_digest = locked.server.iter().filter(|version| version.digest == *digest);
        of_digest.any(|version| version.state == ApprovalState::Approved)
    };
    // A server that was asked in only one era may still send an approved description in the other one.
    if !said.is_empty() && survey.whole && said.iter().all(approved) {
        // Descriptions from before an upgrade are no longer needed.
        locked.server.retain(|v| v.state == ApprovalState::Revoked || said.contains(&v.digest));
    }
    proposed
}

/// Digests of the forms in which a server offers this definition now, to different clients.
fn now(survey: &ServerInventory, offer: &CatalogItem) -> BTreeSet<Digest> {
    let is = |other: &&CatalogItem| (other.kind(), other.name()) == (offer.kind(), offer.name());
    offers(survey).filter(is).filter_map(CatalogItem::digest).collect()
}

/// Adds a pending version unless its digest is known. Returns whether it was added.
fn add(versions: &mut Vec<LockedVersion>, digest: Digest, definition: &Fragment) -> bool {
    if versions.iter().any(|version| version.digest == digest) {
        return false;
    }
    versions.push(LockedVersion::new(digest, ApprovalState::Pending, definition.clone()));
    true
}
