//! `portcullis pin approve`: approves proposed definitions, and accepts findings that are false alarms.

mod asking;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use detection::inspect::{self, AcceptedDetectors, Detector, Finding};
use gateway::config::settings::{Settings, UNREADABLE, nearest};
use policy::definition::lock::{AcceptedFinding, ApprovalState, LockedVersion, Lockfile};
use policy::definition::offer::{CatalogItem, ItemKind};
use policy::definition::pin::{Digest, DigestSubject};
use policy::definition::pins::{LinkStatus, PinViolation};
use policy::engine::pipeline::Policy;
use policy::rules::decision::Mode;
use policy_core::base::work::WorkBudget;

use super::super::printable::in_a_line;
use super::super::ungranted::Ungranted;
use super::super::why::thing;
use super::super::{complain, say};
use super::{LockfileEdit, PinSelector, changed, checked, locked, now, taking_back, volatile};

#[derive(Debug, Args)]
pub(super) struct ApproveArgs {
    #[command(flatten)]
    named: PinSelector,
    /// Keep earlier approvals, while replicas of a server are upgraded one after the other.
    #[arg(long)]
    keep: bool,
    /// Approve a changed URL or program of the server.
    #[arg(long)]
    identity: bool,
    /// Approve revoked definitions again, and nothing that is pending. Name the definition, and its `--digest` if
    /// several versions of it were revoked. Your name and the reason are written to the lockfile.
    #[arg(long, requires = "reason", conflicts_with = "identity")]
    revoked: bool,
    /// Accept the findings of these detectors in the named definitions as false alarms, such as `planted-instructions`.
    /// The acceptance holds for the definitions as they are now.
    #[arg(long, value_name = "FINDING", value_delimiter = ',', requires = "reason")]
    accept: Vec<String>,
    /// The reason, which is written to the lockfile.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Approve everything that is proposed without asking about each definition.
    #[arg(long)]
    yes: bool,
}

/// A version that can be approved, or whose findings can be accepted.
struct ApprovalCandidate<'a> {
    server: &'a str,
    offer: Option<(ItemKind, &'a str)>,
    version: &'a LockedVersion,
    /// All versions in the lockfile of the same definition.
    versions: &'a [LockedVersion],
    /// The definition as detectors read it; `None` for the server's description of itself.
    read: Option<CatalogItem>,
    findings: Vec<Finding>,
}

/// Approval of one version, from the terminal or the command line.
#[derive(Clone, Debug)]
struct Consent {
    server: Box<str>,
    offer: Option<(ItemKind, Box<str>)>,
    digest: Digest,
    reason: Option<Box<str>>,
    /// Detectors whose findings are accepted.
    accept: Vec<Detector>,
}

/// Approver and time of an approval.
#[derive(Clone, Copy)]
struct Approval<'a> {
    by: Option<&'a str>,
    /// Time in RFC 3339 format.
    at: &'a str,
    /// Whether earlier approvals of the same definition stay.
    keep: bool,
}

pub(super) fn approve(approve: &ApproveArgs) -> Result<ExitCode, ExitCode> {
    let named = approve.named.target().map_err(|why| complain(&why))?;
    let accept = accepted(&approve.accept).map_err(|why| complain(&why))?;
    check(approve, &named, &accept).map_err(|why| complain(&why))?;
    let is_asked = !approve.yes && accept.is_empty() && !approve.identity && is_terminal();
    // Check this before anything is read and shown.
    let by = named.by();
    if is_asked && by.is_none() {
        return Err(complain("say who approves: `--by NAME`"));
    }
    let settings = super::super::settings(&named.config)?;
    if settings.pins.mode == Mode::Off && !accept.is_empty() {
        say(
            "warning: `pins.mode` is `off`: the lockfile is not read, and nothing in it is accepted",
        );
    }
    let (mut lock, former) = locked(&settings)?;
    // The identity of a server and its definitions are approved separately.
    let only_identity = approve.identity && named.is_of_all();
    let candidates = chosen(approve, &lock, &named)?;
    let consents = if is_asked {
        asking::consents(&settings.policy, &candidates, approve.reason.as_deref())
    } else {
        given(&candidates, &accept, approve.reason.as_deref()).map_err(|why| complain(&why))?
    };
    let mut count = consents.len();
    if is_asked && count == 0 && is_left(&settings, &candidates) {
        return Ok(ExitCode::SUCCESS);
    }
    if count == 0 && !approve.identity {
        not_revoked(&lock, &named)?;
        return Err(complain(&nothing_approved(&settings.pins.file, &lock, &named)));
    }
    let mut done = told(&settings.policy, &candidates, &consents);
    done.extend(remade(&settings, &candidates, &consents));
    done.extend(ungranted(&settings, &consents));
    drop(candidates);
    done.extend(kept_of_servers(&lock, &consents));
    let at = now();
    let approval = Approval { by: by.as_deref(), at: &at, keep: approve.keep };
    apply(&mut lock, &consents, approval)?;
    done.extend(unevaluated(&settings, &lock, &consents));
    if let (true, Some(name)) = (approve.identity, &named.server) {
        match identify(&settings, &mut lock, name)? {
            IdentityApproval::Changed => count += 1,
            // Nothing is written for it, and a script that is run twice does not fail.
            IdentityApproval::Unchanged if count == 0 => return Ok(ExitCode::SUCCESS),
            IdentityApproval::Unchanged => {}
        }
    }
    let ended = changed(&settings, &lock, &former, LockfileEdit { count, what: "approved" });
    if ended.is_ok() {
        done.iter().for_each(|line| say(line));
        if only_identity {
            say(
                "note: this was its identity alone; what it offers now is approved separately: `portcullis pin`, read, \
                 then `portcullis pin approve`",
            );
        }
    }
    ended
}

/// The definitions that may be approved, which the command line names.
fn chosen<'a>(
    approve: &ApproveArgs,
    lock: &'a Lockfile,
    named: &PinSelector,
) -> Result<Vec<ApprovalCandidate<'a>>, ExitCode> {
    // The identity of a server and its definitions are approved separately.
    if approve.identity && named.is_of_all() {
        return Ok(Vec::new());
    }
    let states: &[ApprovalState] = if approve.revoked {
        &[ApprovalState::Revoked]
    } else {
        &[ApprovalState::Pending, ApprovalState::Approved]
    };
    let mut candidates = candidates(lock, named, states);
    if !approve.keep {
        without_replaced(&mut candidates);
    }
    if approve.revoked {
        is_one(&candidates).map_err(|why| complain(&why))?;
    } else if candidates.is_empty() {
        not_revoked(lock, named)?;
    }
    Ok(candidates)
}

/// Says which of the approved tools stay withheld because they need an evaluation.
fn unevaluated(settings: &Settings, lock: &Lockfile, consents: &[Consent]) -> Option<String> {
    let pins = settings.pins.approving(Arc::new(lock.clone()));
    let unmet = consents.iter().filter(|one| {
        let Some((ItemKind::Tool, name)) = &one.offer else { return false };
        let unfit = pins.unfit_unlisted(&one.server, ItemKind::Tool, name, LinkStatus::No);
        matches!(unfit, Some(PinViolation::Unevaluated | PinViolation::EvaluationFailed))
    });
    let count = unmet.count();
    (count > 0).then(|| {
        format!(
            "note: `pins.requireEvaluation` withholds {count} of them until `portcullis eval FOLDER -c FILE --record` \
             records that they passed"
        )
    })
}

/// Whether any candidate was left unapproved. If so, reports how many, and how to refuse one for good.
fn is_left(settings: &Settings, candidates: &[ApprovalCandidate<'_>]) -> bool {
    let left = candidates.iter().filter(|one| one.version.state != ApprovalState::Approved).count();
    if left > 0 {
        let file = settings.pins.file.display();
        say(&format!(
            "0 approved, {left} left as they were in `{file}`; to refuse one for good: `portcullis pin revoke SERVER/NAME \
             --pending --reason TEXT`"
        ));
    }
    left > 0
}

/// Returns an error if a named definition was revoked: it says why nothing was approved, and which command does it.
fn not_revoked(lock: &Lockfile, named: &PinSelector) -> Result<(), ExitCode> {
    let why = if named.is_of_all() { None } else { was_revoked(lock, named) };
    why.map_or(Ok(()), |why| Err(complain(&why)))
}

/// Says why nothing was approved: nothing is pending, or the lockfile does not have what is named.
fn nothing_approved(file: &Path, lock: &Lockfile, named: &PinSelector) -> String {
    let file = file.display();
    let adds = "`portcullis pin` adds what the servers offer now";
    if lock.servers.is_empty() {
        return format!("nothing was approved: there is nothing in `{file}`; {adds}");
    }
    if is_in(lock, named) || named.is_everything() {
        let of = if named.is_everything() { "" } else { "that is named " };
        return format!("nothing was approved: nothing {of}is pending in `{file}`; {adds}");
    }
    let server = named.server.as_deref().unwrap_or_default();
    let locked = lock.servers.get(server);
    if locked.is_none() && !server.is_empty() {
        let servers: Vec<_> = lock.servers.keys().map(|known| format!("`{known}`")).collect();
        let (server, servers) = (in_a_line(server), servers.join(", "));
        return format!(
            "nothing was approved: `{file}` has nothing of the server `{server}`, but of {servers}; {adds}"
        );
    }
    let thing = named.thing.as_deref().map(|thing| format!("no `{}`", in_a_line(thing)));
    let thing = thing.unwrap_or_else(|| "nothing of what is named".to_owned());
    let offers = locked.into_iter().flat_map(|locked| locked.offers.keys());
    let tools = offers.filter(|(kind, _)| *kind == ItemKind::Tool).map(|(_, name)| &**name);
    let near = named.tool.first().and_then(|name| nearest(name, tools));
    let near = near.map(|near| format!(" (did you mean `{server}/{}`?)", in_a_line(near)));
    format!(
        "nothing was approved: `{file}` has {thing}{}; `portcullis pin list` shows what it has, and {adds}",
        near.unwrap_or_default()
    )
}

/// Whether the lockfile has any version, in any state, of what is named.
fn is_in(lock: &Lockfile, named: &PinSelector) -> bool {
    lock.servers.iter().any(|(server, locked)| {
        let own = locked.server.iter().map(|version| (None, "", version));
        let offers = locked.offers.iter().flat_map(|((kind, name), versions)| {
            versions.iter().map(move |version| (Some(*kind), &**name, version))
        });
        own.chain(offers)
            .any(|(kind, name, version)| named.wants(server, kind, name, version.digest))
    })
}

fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Looks up detectors by name, and checks that their findings may be accepted.
fn accepted(names: &[String]) -> Result<Vec<Detector>, String> {
    let mut accepted = Vec::new();
    for name in names {
        let shown = name.escape_debug();
        let Some(detector) = Detector::of_definitions(name) else {
            let known = Detector::OF_DEFINITIONS.into_iter();
            let known = known.filter(|one| one.unacceptable().is_none()).map(Detector::name);
            let known: Vec<_> = known.collect();
            let known = known.join(", ");
            return Err(format!(
                "there is no finding `{shown}`; those that can be accepted: {known}"
            ));
        };
        if let Some(why) = detector.unacceptable() {
            return Err(format!("`{shown}` may not be accepted: {why}"));
        }
        if !accepted.contains(&detector) {
            accepted.push(detector);
        }
    }
    Ok(accepted)
}

/// Checks that the arguments name what they apply to, and who approves.
fn check(approve: &ApproveArgs, named: &PinSelector, accept: &[Detector]) -> Result<(), String> {
    if !accept.is_empty() && named.server.is_none() {
        return Err("name what `--accept` is about: `SERVER/TOOL`, or `--server`".to_owned());
    }
    if named.server.is_none() && (approve.identity || named.itself) {
        return Err("name the server: `--identity` and `--itself` are of one".to_owned());
    }
    checked(approve.reason.as_deref())?;
    if approve.revoked && named.is_of_all() {
        return Err("name what is approved again: `SERVER/NAME`, or `--digest`".to_owned());
    }
    if approve.revoked && named.by().is_none() {
        return Err("say who approves it again: `--by NAME`".to_owned());
    }
    if !approve.yes && named.is_everything() && !is_terminal() {
        return Err(
            "there is no terminal to ask at: name what is approved (`SERVER/TOOL`, `--server`, `--digest`), or \
             say `--yes` to approve all that is proposed"
                .to_owned(),
        );
    }
    Ok(())
}

/// The versions that `named` selects and that are in one of `states`.
fn candidates<'a>(
    lock: &'a Lockfile,
    named: &PinSelector,
    states: &[ApprovalState],
) -> Vec<ApprovalCandidate<'a>> {
    let mut found = Vec::new();
    for (server, locked) in &lock.servers {
        let own = (None, locked.server.as_slice());
        let offers = locked.offers.iter();
        let offers = offers.map(|((kind, name), all)| (Some((*kind, &**name)), all.as_slice()));
        for (offer, versions) in std::iter::once(own).chain(offers) {
            let (kind, name) = (offer.map(|(kind, _)| kind), offer.map_or("", |(_, name)| name));
            for version in versions.iter().filter(|version| {
                states.contains(&version.state) && named.wants(server, kind, name, version.digest)
            }) {
                let (read, findings) = found_in(offer.map(|(kind, _)| kind), version);
                found.push(ApprovalCandidate { server, offer, version, versions, read, findings });
            }
        }
    }
    found
}

/// Removes approved versions that a pending candidate of the same definition replaces.
fn without_replaced(candidates: &mut Vec<ApprovalCandidate<'_>>) {
    let pending: Vec<_> = candidates
        .iter()
        .filter(|one| one.version.state == ApprovalState::Pending)
        .filter_map(|one| Some((one.server, one.offer?)))
        .collect();
    candidates.retain(|one| {
        let place = one.offer.map(|offer| (one.server, offer));
        one.version.state == ApprovalState::Pending
            || place.is_none_or(|place| !pending.contains(&place))
    });
}

/// Checks that exactly one revoked version is named.
fn is_one(candidates: &[ApprovalCandidate<'_>]) -> Result<(), String> {
    match candidates {
        [_] => Ok(()),
        [] => Err("nothing was approved: nothing that is named was revoked".to_owned()),
        several => {
            let line =
                |one: &ApprovalCandidate<'_>| format!("\n  {} {}", one.shown(), one.version.digest);
            let lines: String = several.iter().map(line).collect();
            Err(format!(
                "several definitions that are named were revoked: name one with `--digest`:{lines}"
            ))
        }
    }
}

/// An error text if a named definition was revoked: who revoked it and why, and how to approve it again; `None` if none
/// was.
fn was_revoked(lock: &Lockfile, named: &PinSelector) -> Option<String> {
    let found = candidates(lock, named, &[ApprovalState::Revoked]);
    let one = found.first()?;
    let by = one.version.by.as_deref().unwrap_or("somebody who is not named");
    let at = one.version.at.as_deref().unwrap_or("a time that is not known");
    let why = one.version.reason.as_deref().map(|why| format!(" ({})", in_a_line(why)));
    let (why, command) = (why.unwrap_or_default(), taking_back(one.server, &one.thing()));
    Some(format!(
        "nothing was approved: `{}` was revoked by {by} at {at}{why}; to take that back: `{command}`",
        one.shown()
    ))
}

/// Reads a version, and runs the detectors on it.
pub(super) fn found_in(
    kind: Option<ItemKind>,
    version: &LockedVersion,
) -> (Option<CatalogItem>, Vec<Finding>) {
    let document = version.definition.document();
    if let Some(kind) = kind {
        let offer = CatalogItem::read(kind, document.root(), &document).ok();
        let findings = offer.as_ref().map(|offer| offer.findings().to_vec()).unwrap_or_default();
        return (offer, findings);
    }
    let Some(instructions) = document.root().get("instructions") else {
        return (None, Vec::new());
    };
    let placed = |finding: Finding| {
        let at = format!("/instructions{}", finding.at);
        Finding { at, ..finding }
    };
    let found = inspect::text(instructions, &WorkBudget::unlimited());
    (None, found.into_iter().map(placed).collect())
}

/// The findings that keep the definition withheld if `excused` are accepted.
pub(super) fn withheld(
    policy: &Policy,
    read: Option<&CatalogItem>,
    findings: &[Finding],
    excused: AcceptedDetectors,
) -> Vec<Finding> {
    if let Some(offer) = read {
        return policy.withheld(offer, excused);
    }
    let counts = |finding: &&Finding| {
        policy.withholds_but(std::slice::from_ref(*finding), excused).is_some()
    };
    findings.iter().filter(counts).cloned().collect()
}

/// The findings that were accepted in a version.
pub(super) fn excused(version: &LockedVersion) -> AcceptedDetectors {
    let mut excused = AcceptedDetectors::default();
    version.exceptions.iter().for_each(|exception| excused.note(exception.finding));
    excused
}

impl ApprovalCandidate<'_> {
    /// `SERVER THING`, for messages.
    fn shown(&self) -> String {
        format!("{} {}", self.server, self.thing())
    }

    fn thing(&self) -> String {
        self.offer.map_or_else(|| "server".to_owned(), |(kind, name)| thing(kind, name))
    }

    fn consent(&self, reason: Option<&str>, accept: Vec<Detector>) -> Consent {
        Consent {
            server: self.server.into(),
            offer: self.offer.map(|(kind, name)| (kind, name.into())),
            digest: self.version.digest,
            reason: reason.map(|reason| reason.trim().into()),
            accept,
        }
    }

    fn withheld(&self, policy: &Policy, excused: AcceptedDetectors) -> Vec<Finding> {
        withheld(policy, self.read.as_ref(), &self.findings, excused)
    }
}

/// The approvals that the command line gives, without asking.
fn given(
    candidates: &[ApprovalCandidate<'_>],
    accept: &[Detector],
    reason: Option<&str>,
) -> Result<Vec<Consent>, String> {
    let mut consents = Vec::new();
    for candidate in candidates {
        let of = |detector: &&Detector| {
            candidate.findings.iter().any(|finding| finding.detector == **detector)
        };
        let accepted: Vec<_> = accept.iter().filter(of).copied().collect();
        let refused = candidate.findings.iter().find_map(|finding| {
            let why = finding.unacceptable().filter(|_| accepted.contains(&finding.detector))?;
            Some(format!("{}: {finding}: it may not be accepted: {why}", candidate.shown()))
        });
        if let Some(why) = refused {
            return Err(why);
        }
        if candidate.version.state != ApprovalState::Approved || !accepted.is_empty() {
            consents.push(candidate.consent(reason, accepted));
        }
    }
    let lost = accept.iter().find(|detector| !consents.iter().any(|c| c.accept.contains(detector)));
    if let Some(detector) = lost {
        let found = candidates.iter().flat_map(|candidate| {
            candidate.findings.iter().map(|finding| format!("{}: {finding}", candidate.shown()))
        });
        let found: Vec<_> = found.collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join("; ") };
        let name = detector.name();
        return Err(format!(
            "`{name}` is not found in what is named, so it cannot be accepted; found is: {found}"
        ));
    }
    Ok(consents)
}

/// Report lines about the findings in each approved definition, and whether it stays withheld.
fn told(
    policy: &Policy,
    candidates: &[ApprovalCandidate<'_>],
    consents: &[Consent],
) -> Vec<String> {
    let mut lines = Vec::new();
    for consent in consents {
        let is = |one: &&ApprovalCandidate<'_>| {
            let offer = one.offer.map(|(kind, name)| (kind, Box::from(name)));
            *one.server == *consent.server
                && offer == consent.offer
                && one.version.digest == consent.digest
        };
        let Some(candidate) = candidates.iter().find(is) else { continue };
        let shown = candidate.shown();
        let mut excused = excused(candidate.version);
        consent.accept.iter().for_each(|detector| excused.note(*detector));
        for finding in &candidate.findings {
            let done = if excused.covers(finding) { "accepted: " } else { "" };
            lines.push(format!("{shown}: {done}{finding}"));
        }
        for finding in candidate.withheld(policy, excused) {
            lines.push(format!("{shown} {}", stays(&finding)));
        }
    }
    lines
}

/// Notes about approved definitions that differ from earlier versions only in the order within defaults, and will
/// change again.
fn remade(
    settings: &Settings,
    candidates: &[ApprovalCandidate<'_>],
    consents: &[Consent],
) -> Vec<String> {
    let is_approved = |one: &&ApprovalCandidate<'_>| {
        consents
            .iter()
            .any(|consent| *consent.server == *one.server && consent.digest == one.version.digest)
    };
    let advice = |one: &ApprovalCandidate<'_>| {
        let advice = volatile(settings, one.server, one.offer, one.versions, one.version)?;
        Some(format!("note: {}: {advice}", one.shown()))
    };
    candidates.iter().filter(is_approved).filter_map(advice).collect()
}

/// Notes about servers of which earlier descriptions of themselves stay approved beside a new one.
fn kept_of_servers(lock: &Lockfile, consents: &[Consent]) -> Vec<String> {
    let of_server = |server: &str| {
        let consents = consents.iter().filter(|one| one.offer.is_none() && *one.server == *server);
        consents.map(|consent| consent.digest).collect::<Vec<_>>()
    };
    let kept = lock.servers.iter().filter_map(|(server, locked)| {
        let meant = of_server(server);
        let is = |state| {
            let of_state = move |v: &&LockedVersion| v.state == state;
            locked.server.iter().filter(of_state)
        };
        let is_new = is(ApprovalState::Pending).any(|version| meant.contains(&version.digest));
        let earlier = is(ApprovalState::Approved).filter(|version| !meant.contains(&version.digest));
        let earlier = earlier.count();
        (is_new && earlier > 0).then(|| {
            let (noun, verb) = if earlier == 1 { ("version", "stays") } else { ("versions", "stay") };
            format!(
                "note: {server} server: {earlier} earlier {noun} {verb} approved, since a server may say something else of \
                 itself in each era; the next `portcullis pin` removes what it no longer says"
            )
        })
    });
    kept.collect()
}

/// Notes about approved definitions that no caller can see because no rule grants them.
fn ungranted(settings: &Settings, consents: &[Consent]) -> Vec<String> {
    let things = consents.iter().filter_map(|consent| {
        let (kind, name) = consent.offer.as_ref()?;
        let mut servers = settings.servers.iter().map(|server| &server.name);
        let server = servers.find(|server| server.as_str() == &*consent.server)?;
        Some((server, *kind, &**name))
    });
    let found = Ungranted::among(&settings.policy, things);
    found.iter().map(|one| format!("note: {one}")).collect()
}

/// Says that a definition stays withheld, and how to accept the finding.
fn stays(finding: &Finding) -> String {
    let name = finding.detector.name();
    match finding.unacceptable() {
        None => format!(
            "stays withheld: {name} (accept it with `--accept {name} --reason TEXT` if it is a false alarm)"
        ),
        Some(why) => format!("stays withheld: {name} (it cannot be accepted: {why})"),
    }
}

/// Writes the approvals to the lockfile.
fn apply(
    lock: &mut Lockfile,
    consents: &[Consent],
    approval: Approval<'_>,
) -> Result<(), ExitCode> {
    if approval.by.is_none() && consents.iter().any(|consent| !consent.accept.is_empty()) {
        return Err(complain("say who accepts it: `--by NAME`"));
    }
    for (server, locked) in &mut lock.servers {
        let own = std::iter::once((None, &mut locked.server));
        let offers = locked.offers.iter_mut();
        let offers = offers.map(|((kind, name), all)| (Some((*kind, name.clone())), all));
        for (offer, versions) in own.chain(offers) {
            let of: Vec<_> =
                consents.iter().filter(|one| one.server == *server && one.offer == offer).collect();
            if !of.is_empty() {
                settle(versions, &of, approval);
            }
        }
    }
    Ok(())
}

/// Applies the approvals to the versions of one definition.
fn settle(versions: &mut Vec<LockedVersion>, consents: &[&Consent], approval: Approval<'_>) {
    let Approval { by, at, keep } = approval;
    let meant = |digest: Digest| consents.iter().find(|consent| consent.digest == digest);
    // The server's description of itself has one version for each era that the server speaks; `portcullis pin` drops
    // versions that are no longer sent.
    let of_server = versions.iter().any(|v| v.digest.subject() == DigestSubject::Server);
    let is_new =
        versions.iter().any(|v| v.state != ApprovalState::Approved && meant(v.digest).is_some());
    if is_new && !keep && !of_server {
        versions.retain(|v| v.state != ApprovalState::Approved || meant(v.digest).is_some());
    }
    for version in versions.iter_mut() {
        let Some(consent) = meant(version.digest) else { continue };
        if version.state != ApprovalState::Approved {
            (version.by, version.at) = (by.map(Into::into), Some(at.into()));
            version.reason.clone_from(&consent.reason);
            version.state = ApprovalState::Approved;
        }
        for finding in &consent.accept {
            version.exceptions.retain(|known| known.finding != *finding);
            let (by, reason) = (by.unwrap_or_default(), consent.reason.clone().unwrap_or_default());
            let (by, at) = (by.into(), at.into());
            version.exceptions.push(AcceptedFinding { finding: *finding, by, at, reason });
        }
    }
}

/// Approves the current identity of a server.
fn identify(
    settings: &Settings,
    lock: &mut Lockfile,
    name: &str,
) -> Result<IdentityApproval, ExitCode> {
    let server = settings.servers.iter().find(|server| server.name.as_str() == name);
    let Some((server, locked)) = server.zip(lock.servers.get_mut(name)) else {
        return Err(complain(&format!("there is no server `{}`", name.escape_debug())));
    };
    let identity = gateway::upstream::server_identity::of(server);
    if identity.starts_with(UNREADABLE) {
        return Err(complain(&format!("`{}` is {identity}", name.escape_debug())));
    }
    if locked.identity.as_deref() == Some(&*identity) {
        say(&format!("`{name}` is `{identity}`, as it was approved before"));
        return Ok(IdentityApproval::Unchanged);
    }
    say(&format!("`{name}` is `{identity}`"));
    locked.identity = Some(identity.into());
    Ok(IdentityApproval::Changed)
}

/// Whether the approval of an identity changes the lockfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentityApproval {
    /// The server was approved with another identity, or with none.
    Changed,
    /// The server was approved with this identity before.
    Unchanged,
}
