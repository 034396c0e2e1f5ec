//! Manages revocations, which come from a watched file and from operators through the admin API.
//!
//! A revocation by an operator takes effect at once. It is also written to the file, if there is one, so that it
//! survives a restart (control C32). An entry in the file takes effect when it is first seen, and its removal takes
//! effect when the file is known to be complete (`settled`).

mod settled;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use json::{Document, JsonBounds, JsonKind, Value};
use policy_core::subject::name::RESERVED;
use policy_core::subject::revoked::RevocationList;

use crate::audit::RevocationSource;
use crate::base::clock::Clock;
use crate::base::error_chain::ErrorChain;
use crate::base::file::{self, FileTasks, FileWatch, WatchEvent};
use crate::base::task::Tasks;
use crate::config::selftest_fixtures;
use crate::config::settings::revoked::{self, RevocationContent, RevokedError};
use crate::metrics::Metrics;
use crate::serve::generation::{ConfiguredNames, CurrentGeneration, Generation, quoted};
use crate::session::lock_store::PrincipalLock;

use settled::{FileCheckOutcome, FileVersion, SettledRevocations};

/// Maximum number of entries of one kind in a change.
const MOST: usize = 10_000;
/// Parser bounds for a change: its lists and their entries, and little more.
const BOUNDS: JsonBounds = JsonBounds { depth: 4, nodes: 6 * MOST, key: 64, number: 32 };
/// Maximum time for a change of the file, including the wait for earlier changes.
const WRITE: Duration = Duration::from_secs(5);

/// The revocations in force, and the file that stores them.
#[derive(Debug)]
pub struct RevocationManager {
    live: Arc<CurrentGeneration>,
    tasks: Tasks,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    file: Option<PathBuf>,
    held: Mutex<RevocationState>,
    /// Held while the file is read or written; never taken by a worker thread.
    turn: Mutex<()>,
    /// Runs changes of the file one after the other.
    changes: FileTasks,
}

/// Decides whether a change of the file still takes effect: the thread that is about to replace the file claims it,
/// and so does the request when it stops waiting. The first claim wins, so that a change that was reported as refused
/// never happens later.
#[derive(Debug, Default)]
struct ChangeClaim(AtomicBool);

impl ChangeClaim {
    /// Claims the decision; returns whether this is the first claim.
    fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

#[derive(Debug, Default)]
struct RevocationState {
    /// The revocations of the file, as it was last valid.
    file: SettledRevocations,
    /// Revocations by operators that are not in the file.
    added: RevocationList,
    /// The content that was last seen, valid or not; `None` if there was none.
    seen: Option<FileVersion>,
}

impl RevocationState {
    fn all(&self) -> RevocationList {
        let mut all = self.file.force().clone();
        all.add(&self.added);
        // The self-test uses a revoked tool to check that revocation works.
        all.tools.insert(own().into());
        all
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationAction {
    /// Adds entries to the revocations.
    Revoke,
    /// Removes entries from the revocations.
    Lift,
}

/// The reason why a change is refused. Nothing has changed then, except perhaps for [`ChangeError::Undecided`].
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The body is malformed.
    #[error(
        "send an object with `everything: true`, or with the lists `principals`, `clients`, `servers`, `tools`, `tokens`, \
         and a text `reason` if you want to"
    )]
    Shape,
    /// It has too many entries of one kind.
    #[error("more than {MOST} entries of one sort")]
    Many,
    /// An entry is not a valid name.
    #[error("{0}")]
    Name(String),
    /// It names something that is not in the configuration.
    #[error("{0}; what is not configured can be revoked in the file of revocations alone")]
    Unknown(String),
    /// It removes something that is not revoked.
    #[error("not revoked: {0}")]
    NotRevoked(String),
    /// The file still contains the entry.
    #[error("the file of revocations names it and could not be written; nothing was changed")]
    Unwritten,
    /// The replacement of the file has started, and the file system has not confirmed it.
    #[error(
        "the file of revocations is being replaced and the file system does not answer; ask what is revoked before you try again"
    )]
    Undecided,
}

/// Whether a change survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePersistence {
    /// It is in the file.
    Written,
    /// It lasts until the gateway stops.
    Unwritten,
}

/// The reason why the file could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] RevokedError),
    /// It cannot be locked or written.
    #[error("could not change `{0}`")]
    Write(Box<str>, #[source] io::Error),
}

/// Applies a change to the current content of the file, under its lock, and returns the whole result.
///
/// # Errors
/// If it cannot be locked, read or written; then the file is unchanged.
pub fn edit(
    path: &Path,
    change: impl FnOnce(&mut RevocationList),
) -> Result<RevocationList, EditError> {
    edit_while(path, change, || true)
}

/// Like [`edit`], but asks `wanted` just before the new file replaces the old one.
fn edit_while(
    path: &Path,
    change: impl FnOnce(&mut RevocationList),
    wanted: impl FnOnce() -> bool,
) -> Result<RevocationList, EditError> {
    let failed = |error| EditError::Write(path.display().to_string().into(), error);
    // The lock is released when the handle is dropped, also on errors.
    let _lock = file::lock(path).map_err(failed)?;
    let mut all = revoked::read(path)?;
    change(&mut all);
    let text = revoked::write(&all);
    if text.len() as u64 > revoked::MAX_FILE {
        return Err(EditError::Read(RevokedError::Long(path.display().to_string().into())));
    }
    revoked::check_written(path, &text, &all).map_err(failed)?;
    file::replace_while(path, text.as_bytes(), wanted).map_err(failed)?;
    Ok(all)
}

impl RevocationManager {
    /// Starts with the revocations in the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn new(
        live: Arc<CurrentGeneration>,
        file: Option<PathBuf>,
        tasks: Tasks,
    ) -> Result<Self, RevokedError> {
        let now = live.now();
        let (metrics, clock) = (Arc::clone(&now.gateway.metrics), Arc::clone(&now.gateway.clock));
        drop(now);
        let mut held = RevocationState::default();
        if let Some(path) = &file {
            let found = file::look(path, revoked::MAX_FILE);
            let (data, text) = found.map_err(|error| revoked::unread(path, error))?;
            held.seen = Some(FileVersion::of(&data, &text));
            held.file = SettledRevocations::new(match revoked::parse(path, &text)? {
                RevocationContent::Nothing => {
                    tracing::warn!(
                        event = "revocation.file_empty", file = %path.display(),
                        "the file of revocations is empty or has only comments, so nothing is revoked; write \
                         `principals: []` into it if that is meant"
                    );
                    RevocationList::default()
                }
                RevocationContent::Lists(lists) => lists,
            });
        }
        let (held, turn) = (Mutex::new(held), Mutex::default());
        let changes = FileTasks::default();
        let switch = Self { live, tasks, metrics, clock, file, held, turn, changes };
        switch.apply(&switch.held());
        // The file may have changed since the last process read it, so its content is recorded.
        let said = switch.held().file.force().clone();
        switch.record(&RevocationList::default(), &said);
        Ok(switch)
    }

    fn held(&self) -> MutexGuard<'_, RevocationState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, held: &RevocationState) {
        let all = held.all();
        let (gauge, now) = (&self.metrics.everything_revoked, u64::from(all.everything));
        let before = gauge.swap(now, Ordering::Relaxed);
        self.live.revoke(&all);
        match (before, now) {
            (0, 1) => {
                tracing::warn!(
                    event = "revocation.everything",
                    "everything is revoked: every request is denied"
                )
            }
            (1, 0) => tracing::warn!(
                event = "revocation.everything_lifted",
                "the revocation of everything is lifted"
            ),
            _ => {}
        }
    }

    /// Records and logs what the file changes; such changes do not come from the admin API.
    fn record(&self, before: &RevocationList, now: &RevocationList) {
        let journal = Arc::clone(&self.live.now().gateway.journal);
        for (act, change) in [
            (RevocationAction::Revoke, rest(now, before)),
            (RevocationAction::Lift, rest(before, now)),
        ] {
            if change.is_empty() {
                continue;
            }
            let (revoke, what) = (act == RevocationAction::Revoke, written(&change));
            tracing::warn!(
                event = "revocation.changed", revoke, %what,
                "revocations changed in the file"
            );
            let recorded = match act {
                RevocationAction::Revoke => journal.record_revoked(&what, RevocationSource::File),
                RevocationAction::Lift => journal.record_lifted(&what, RevocationSource::File),
            };
            if let Err(error) = recorded {
                tracing::error!(
                    event = "audit.write_failed", error = %ErrorChain(&error),
                    "audit event not written"
                );
            }
        }
    }

    /// Activates a new generation, in which the revocations are in force from the first request.
    pub fn succeed(&self, generation: Generation) {
        let held = self.held();
        generation.gateway.revoke(&held.all());
        self.live.replace(generation);
    }

    /// Watches the file until the gateway stops.
    pub async fn tend(self: Arc<Self>) {
        let (mut watch, aside) = (FileWatch::new(self.tasks.clone()), FileTasks::default());
        let mut stalled = false;
        while let Some(turn) = watch.next().await {
            let Some(file) = self.file.clone() else { continue };
            // After a check that did not end, the file is read as if it were new.
            let turn = if stalled { WatchEvent::Asked } else { turn };
            let switch = Arc::clone(&self);
            let looked = aside.run(file::CHECK_TIMEOUT, move || switch.look(&file, turn)).await;
            let Err(error) = looked else {
                stalled = false;
                continue;
            };
            // Nothing was read, so nothing is lifted. Logged once.
            self.held().file.doubt();
            if !std::mem::replace(&mut stalled, true) {
                tracing::error!(
                    event = "revocation.file_unreadable", %error,
                    "the revocations file cannot be read; keeping the previous revocations"
                );
                self.metrics.revocations_usable.store(0, Ordering::Relaxed);
                self.metrics.revocations_unread.add(1);
            }
        }
    }

    /// Applies the current content of the file. A file that cannot be read changes nothing: revocations stay in
    /// force.
    fn look(&self, path: &Path, turn: WatchEvent) {
        let asked = turn == WatchEvent::Asked;
        let _turn = self.turn();
        let found = file::look(path, revoked::MAX_FILE);
        let seen = found.as_ref().ok().map(|(data, text)| FileVersion::of(data, text));
        {
            let held = self.held();
            if !asked && seen.is_some() && held.seen == seen && !held.file.waits() {
                return;
            }
        }
        let said = found.map_err(|error| revoked::unread(path, error));
        let said = said.and_then(|(_, text)| revoked::parse(path, &text));
        let now = self.clock.instant();
        let mut held = self.held();
        let before = held.file.force().clone();
        let first = asked || held.seen != seen;
        held.seen = seen;
        // A file that is being written, or was truncated, lifts nothing.
        let lists = said.and_then(|said| match said {
            RevocationContent::Lists(lists) => Ok(lists),
            RevocationContent::Nothing if held.file.force().is_empty() => {
                Ok(RevocationList::default())
            }
            RevocationContent::Nothing => {
                Err(RevokedError::Empty(path.display().to_string().into()))
            }
        });
        self.metrics.revocations_usable.store(u64::from(lists.is_ok()), Ordering::Relaxed);
        match (lists, seen) {
            (Ok(lists), Some(mark)) => {
                let step = held.file.look(mark, &lists, now);
                if step != FileCheckOutcome::Same {
                    self.apply(&held);
                }
                let file = path.display();
                match step {
                    FileCheckOutcome::Same => {}
                    FileCheckOutcome::Added | FileCheckOutcome::Lifted => {
                        tracing::info!(
                            event = "revocation.file_read", %file,
                            "revocations file read"
                        )
                    }
                    FileCheckOutcome::Waits if first => {
                        tracing::info!(
                            event = "revocation.file_read", %file,
                            "revocations file read: missing entries are lifted if the file stays unchanged"
                        );
                    }
                    FileCheckOutcome::Waits => {}
                }
            }
            (Err(error), _) => {
                held.file.doubt();
                if first {
                    let error = ErrorChain(&error);
                    tracing::error!(
                        event = "revocation.file_unreadable", %error,
                        "the revocations file cannot be read; keeping the previous revocations"
                    );
                    self.metrics.revocations_unread.add(1);
                }
            }
            (Ok(_), None) => held.file.doubt(),
        }
        let now = held.file.force().clone();
        drop(held);
        self.record(&before, &now);
    }

    /// Parses a change, and checks it against the configuration in force.
    ///
    /// # Errors
    /// If it is malformed, names something unknown, or removes something that is not revoked.
    pub fn read(&self, text: Bytes, act: RevocationAction) -> Result<RevocationList, ChangeError> {
        let change = read(text)?;
        match act {
            RevocationAction::Revoke => unknown(&self.live.now().names, &change)?,
            RevocationAction::Lift => {
                let mut missing = change.clone();
                missing.remove(&self.held().all());
                // A lock of a caller that touched a decoy is lifted in the same way.
                let gateway = Arc::clone(&self.live.now().gateway);
                let now = self.clock.instant();
                missing.principals.retain(|id| !gateway.locks.has(id, now));
                if !missing.is_empty() {
                    return Err(ChangeError::NotRevoked(listed(&missing)));
                }
            }
        }
        Ok(change)
    }

    /// Applies a change.
    ///
    /// # Errors
    /// If a removal could not be written to the file that has the entry, or may not have been.
    pub async fn change(
        self: &Arc<Self>,
        change: RevocationList,
        act: RevocationAction,
    ) -> Result<ChangePersistence, ChangeError> {
        if act == RevocationAction::Lift {
            let gateway = Arc::clone(&self.live.now().gateway);
            for id in &change.principals {
                gateway.locks.lift(id);
            }
        }
        {
            let mut held = self.held();
            let named = !held.file.force().common(&change).is_empty();
            match act {
                RevocationAction::Revoke => held.added.add(&change),
                // A removal takes effect after it is written to the file.
                RevocationAction::Lift if named && self.file.is_some() => {}
                RevocationAction::Lift => {
                    held.added.remove(&change);
                    self.apply(&held);
                    return Ok(if self.file.is_some() {
                        ChangePersistence::Written
                    } else {
                        ChangePersistence::Unwritten
                    });
                }
            }
            self.apply(&held);
        }
        let path = self.file.clone();
        let Some(path) = path else { return Ok(ChangePersistence::Unwritten) };
        let (switch, decision) = (Arc::clone(self), Arc::new(ChangeClaim::default()));
        let decided = Arc::clone(&decision);
        let work = move || switch.write(&path, &change, act, &decided);
        let (error, is_settled) = match self.changes.in_turn(WRITE, work).await {
            Ok(Ok(())) => return Ok(ChangePersistence::Written),
            Ok(Err(error)) => (ErrorChain(&error).to_string(), true),
            Err(stalled) => (stalled.to_string(), decision.claim()),
        };
        tracing::error!(
            event = "revocation.write_failed", %error,
            "the revocations file could not be written"
        );
        match act {
            RevocationAction::Lift if is_settled => Err(ChangeError::Unwritten),
            RevocationAction::Lift => Err(ChangeError::Undecided),
            RevocationAction::Revoke => Ok(ChangePersistence::Unwritten),
        }
    }

    /// Writes a change to the file, unless it was given up meanwhile. All revocations in force are written with it:
    /// another process that ignores the lock may have left the file half written, and nothing may be lost because of
    /// that.
    fn write(
        &self,
        path: &Path,
        change: &RevocationList,
        act: RevocationAction,
        decision: &ChangeClaim,
    ) -> Result<(), EditError> {
        let _turn = self.turn();
        let (known, added) = {
            let held = self.held();
            let mut known = held.file.force().clone();
            known.add(&held.added);
            (known, held.added.clone())
        };
        let edited = |all: &mut RevocationList| {
            all.add(&known);
            match act {
                // The revocation is in force, so `known` contains it, unless it was lifted during the wait.
                RevocationAction::Revoke => {}
                RevocationAction::Lift => all.remove(change),
            }
        };
        let all = edit_while(path, edited, || decision.claim())?;
        let mut held = self.held();
        // The entries are in the file now, so removing them there lifts them.
        held.added.remove(&added);
        held.file = SettledRevocations::new(all.clone());
        self.apply(&held);
        drop(held);
        // Any other difference in the file was written by another process.
        let mut expected = known;
        expected.add(change);
        self.record(&expected, &{
            let mut now = all;
            now.add(&expected);
            now
        });
        Ok(())
    }

    /// The revocations in force, and whether all of them survive a restart, as members of a JSON object.
    #[must_use]
    pub fn status(&self) -> String {
        let (mut all, added) = {
            let held = self.held();
            (held.all(), held.added.clone())
        };
        all.tools.remove(own().as_str());
        let mut out = format!("\"everything\":{}", all.everything);
        for (name, list) in all.lists() {
            write!(out, ",\"{name}\":{}", array(list)).unwrap_or_default();
        }
        out.push_str(&reasons(&all));
        let locks = self.live.now().gateway.locks.all(self.clock.instant());
        if !locks.is_empty() {
            let lock = |(id, lock): &(Box<str>, PrincipalLock)| {
                let (id, cause) = (revoked::quoted(id), revoked::quoted(&lock.cause));
                let until = humantime::format_rfc3339_seconds(lock.expires);
                format!("{{\"principal\":{id},\"reason\":{cause},\"until\":\"{until}\"}}")
            };
            let locks: Vec<_> = locks.iter().map(lock).collect();
            write!(out, ",\"locks\":[{}]", locks.join(",")).unwrap_or_default();
        }
        write!(out, ",\"hasFile\":{}", self.file.is_some()).unwrap_or_default();
        write!(out, ",\"lastsOverRestart\":{}", added.is_empty()).unwrap_or_default();
        out
    }
}

/// The entries of `one` that are not in `other`.
fn rest(one: &RevocationList, other: &RevocationList) -> RevocationList {
    let mut rest = one.clone();
    rest.remove(other);
    rest
}

/// The lists with entries, in the format of a request.
fn written(change: &RevocationList) -> String {
    let filled = change.lists().into_iter().filter(|(_, list)| !list.is_empty());
    let mut members: Vec<_> =
        filled.map(|(name, list)| format!("\"{name}\":{}", array(list))).collect();
    if change.everything {
        members.push("\"everything\":true".to_owned());
    }
    format!("{{{}{}}}", members.join(","), reasons(change))
}

fn own() -> String {
    format!("{RESERVED}/{}", selftest_fixtures::REVOKED)
}

/// Checks the names of a change against the configuration, because a misspelt name would revoke nothing.
///
/// # Errors
/// The first unknown name, with the names that are known.
pub fn unknown(known: &ConfiguredNames, change: &RevocationList) -> Result<(), ChangeError> {
    let refused = |text: String| Err(ChangeError::Unknown(text));
    let of_tools = change.tools.iter().filter_map(|tool| tool.split_once('/'));
    let of_tools = of_tools.map(|(server, _)| server);
    let mut servers = change.servers.iter().map(|server| &**server).chain(of_tools);
    if let Some(server) = servers.find(|server| !known.servers.contains(*server)) {
        let (server, servers) = (server.escape_debug(), quoted(&known.servers));
        return refused(format!("there is no server `{server}`; the servers are {servers}"));
    }
    if let Some(id) = change.principals.iter().find(|id| !known.may_be(id)) {
        return refused(known.unknown_caller(id));
    }
    let of_tokens = [("clients", &change.clients), ("tokens", &change.tokens)];
    match of_tokens.into_iter().find(|(_, list)| !list.is_empty()) {
        Some((name, _)) if known.issuers.is_empty() => {
            refused(format!("`{name}` are those of access tokens, and no issuer is configured"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Formats the entries of all lists as text.
#[must_use]
pub fn listed(lists: &RevocationList) -> String {
    let everything = lists.everything.then(|| "everything".to_owned());
    let list = |(name, list): (&str, &BTreeSet<Box<str>>)| {
        let entries: Vec<_> =
            list.iter().map(|entry| format!("`{}`", entry.escape_debug())).collect();
        (!list.is_empty()).then(|| format!("{name} {}", entries.join(", ")))
    };
    let all: Vec<_> =
        everything.into_iter().chain(lists.lists().into_iter().filter_map(list)).collect();
    all.join("; ")
}

fn read(text: Bytes) -> Result<RevocationList, ChangeError> {
    let document = Document::parse(text, &BOUNDS).map_err(|_wrong| ChangeError::Shape)?;
    let root = document.root();
    let (mut lists, mut reason) = (RevocationList::default(), None);
    for (key, value) in root.members() {
        if &*key == "reason" {
            reason = Some(value.as_str().ok_or(ChangeError::Shape)?);
            continue;
        }
        if &*key == "everything" {
            lists.everything = value.as_bool().ok_or(ChangeError::Shape)?;
            continue;
        }
        let list = lists.list_mut(&key).ok_or(ChangeError::Shape)?;
        if value.kind() != JsonKind::Array {
            return Err(ChangeError::Shape);
        }
        if value.items().count() > MOST {
            return Err(ChangeError::Many);
        }
        let texts = value.items().map(|item| Value::as_str(item).map(Into::into));
        *list = texts.collect::<Option<_>>().ok_or(ChangeError::Shape)?;
    }
    if !root.is_object() || lists.is_empty() {
        return Err(ChangeError::Shape);
    }
    revoked::check(&lists).map_err(ChangeError::Name)?;
    match reason {
        Some(reason) => {
            revoked::check_reason(&reason).map_err(ChangeError::Name)?;
            Ok(lists.because(&(&*reason).into()))
        }
        None => Ok(lists),
    }
}

/// The reasons of entries as a JSON object, as a member behind others; empty if there are none.
fn reasons(all: &RevocationList) -> String {
    let reasons = all.reasons.iter();
    let reasons =
        reasons.map(|(entry, why)| format!("{}:{}", revoked::quoted(entry), revoked::quoted(why)));
    let reasons: Vec<_> = reasons.collect();
    if reasons.is_empty() {
        String::new()
    } else {
        format!(",\"reasons\":{{{}}}", reasons.join(","))
    }
}

fn array(list: &BTreeSet<Box<str>>) -> String {
    let entries: Vec<_> = list.iter().map(|entry| revoked::quoted(entry)).collect();
    format!("[{}]", entries.join(","))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{ChangeError, read, unknown};
    use crate::serve::generation::ConfiguredNames;

    #[test]
    fn what_the_configuration_does_not_know_is_named_and_refused() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        let keys = ConfiguredNames {
            servers: names(&["up"]),
            principals: names(&["ana"]),
            issuers: names(&[]),
            others: false,
        };
        let tokens = ConfiguredNames { issuers: names(&["corp"]), ..keys.clone() };
        let certificates = ConfiguredNames { others: true, ..keys.clone() };
        for (known, text, wanted) in [
            (&keys, r#"{"servers":["up"],"tools":["up/x"],"principals":["ana"]}"#, Ok(())),
            (&keys, r#"{"servers":["pu"]}"#, Err("`pu`")),
            (&keys, r#"{"tools":["pu/x"]}"#, Err("`pu`")),
            (&keys, r#"{"principals":["anna"]}"#, Err("`anna`")),
            (&keys, r#"{"principals":["corp/ana"]}"#, Err("`corp/ana`")),
            (&keys, r#"{"clients":["agent"]}"#, Err("no issuer")),
            (&keys, r#"{"tokens":["t"]}"#, Err("no issuer")),
            (&tokens, r#"{"principals":["corp/ana"],"clients":["a"],"tokens":["t"]}"#, Ok(())),
            (&tokens, r#"{"principals":["crop/ana"]}"#, Err("`crop/ana`")),
            (&tokens, r#"{"principals":["service:corp/agent"]}"#, Ok(())),
            (&tokens, r#"{"principals":["service:crop/agent"]}"#, Err("`service:ISSUER/CLIENT`")),
            (&tokens, r#"{"principals":["service:corp"]}"#, Err("`service:corp`")),
            (&keys, r#"{"principals":["service:corp/agent"]}"#, Err("`service:corp/agent`")),
            (&certificates, r#"{"principals":["spiffe://x/y"]}"#, Ok(())),
            (&keys, r#"{"everything":true}"#, Ok(())),
        ] {
            let change = read(Bytes::from_static(text.as_bytes())).unwrap();
            match (unknown(known, &change), wanted) {
                (Ok(()), Ok(())) => {}
                (Err(ChangeError::Unknown(said)), Err(part)) => {
                    assert!(said.contains(part), "{text}: {said}");
                    // Without an issuer nothing is said of callers with tokens.
                    assert!(!said.contains("issuers ") || !known.issuers.is_empty(), "{said}");
                }
                (came, _) => panic!("{text}: {came:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"everything":false}"#,
            r#"{"everything":"yes"}"#,
            r#"{"people":["ana"]}"#,
            r#"{"principals":"ana"}"#,
            r#"{"servers":["*"]}"#,
            r#"{"tools":["echo"]}"#,
        ] {
            assert!(read(Bytes::from_static(text.as_bytes())).is_err(), "{text}");
        }
    }
}
