//! What was revoked: from a file, which is watched, and by an operator, who is asked for a token.
//!
//! What an operator revokes holds at once. It is written into the file as well, if there is one, so
//! that a restart does not forget it (control C32). What a file revokes holds at the first look at it, and is
//! lifted when the file was read whole (`settled`).

mod settled;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use policy::json::{Bounds, Document, Kind, Value};
use policy::name::RESERVED;
use policy::revoked::Revoked;

use crate::audit::By;
use crate::base::clock::Clock;
use crate::base::error_chain::Chain;
use crate::base::file::{self, Aside, Turn, Watch};
use crate::base::task::Tasks;
use crate::config::selftest_fixtures;
use crate::config::settings::revoked::{self, RevokedError, Said};
use crate::metrics::Metrics;
use crate::serve::generation::{Generation, Live, Names};

use settled::{Mark, Settled, Step};

/// Most entries of one sort in one change.
const MOST: usize = 10_000;
/// What is read of a change: the lists and their entries, and not much more.
const BOUNDS: Bounds = Bounds { depth: 4, nodes: 6 * MOST, key: 64, number: 32 };
/// How long a change of the file may take, with the wait for earlier ones, before it is given up.
const WRITE: Duration = Duration::from_secs(5);

/// What was revoked, and where that is written down.
#[derive(Debug)]
pub struct Killswitch {
    live: Arc<Live>,
    tasks: Tasks,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    file: Option<PathBuf>,
    held: Mutex<Held>,
    /// Who reads or writes the file; never taken by a thread that serves.
    turn: Mutex<()>,
    /// Changes of the file, one after the other.
    changes: Aside,
}

/// Settles whether a change of the file still takes effect: the thread that is about to replace the file
/// claims it, and so does the request that no longer waits. The first of them decides, so that a change that
/// was answered as refused never happens later.
#[derive(Debug, Default)]
struct Decision(AtomicBool);

impl Decision {
    /// Whether this is the first claim.
    fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

#[derive(Debug, Default)]
struct Held {
    /// What the file says, as it was last good.
    file: Settled,
    /// What an operator has added and the file does not say.
    added: Revoked,
    /// The content that was last looked at, good or not; `None` if there was none.
    seen: Option<Mark>,
}

impl Held {
    fn all(&self) -> Revoked {
        let mut all = self.file.force().clone();
        all.add(&self.added);
        // Something of the self-test, which shows that what is revoked is.
        all.tools.insert(own().into());
        all
    }
}

/// Which way something is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is revoked.
    Revoke,
    /// It is no longer revoked.
    Lift,
}

/// Why a change is refused; then nothing has changed, but for [`ChangeError::Undecided`].
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// It cannot be read.
    #[error(
        "send an object with `everything: true`, or with the lists `principals`, `clients`, `servers`, `tools`, `tokens`"
    )]
    Shape,
    /// There is too much of it.
    #[error("more than {MOST} entries of one sort")]
    Many,
    /// An entry is no name.
    #[error("{0}")]
    Name(String),
    /// It names what the configuration does not know.
    #[error("{0}; what is not configured can be revoked in the file of revocations alone")]
    Unknown(String),
    /// It takes back what is not revoked.
    #[error("not revoked: {0}")]
    NotRevoked(String),
    /// The file goes on saying it.
    #[error("the file of revocations names it and could not be written; nothing was changed")]
    Unwritten,
    /// The file is being replaced, and the file system does not say that it was.
    #[error(
        "the file of revocations is being replaced and the file system does not answer; ask what is revoked before you try again"
    )]
    Undecided,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It lasts: the file says it.
    Written,
    /// It holds until the gateway stops.
    Unwritten,
}

/// Why the file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] RevokedError),
    /// It cannot be locked or written.
    #[error("could not change `{0}`")]
    Write(Box<str>, #[source] io::Error),
}

/// Changes what the file says at this moment, which somebody else may have changed; gives all of it.
///
/// # Errors
/// When it cannot be locked, read or written; then it is as it was.
pub fn edit(path: &Path, change: impl FnOnce(&mut Revoked)) -> Result<Revoked, EditError> {
    edit_while(path, change, || true)
}

/// The same, if `wanted` still says so when the new text is on the disk and is about to take the place of the
/// old one.
fn edit_while(
    path: &Path,
    change: impl FnOnce(&mut Revoked),
    wanted: impl FnOnce() -> bool,
) -> Result<Revoked, EditError> {
    let failed = |error| EditError::Write(path.display().to_string().into(), error);
    // Given up with the file handle, also when this fails.
    let _lock = file::lock(path).map_err(failed)?;
    let mut all = revoked::read(path)?;
    change(&mut all);
    let text = revoked::write(&all);
    if text.len() as u64 > revoked::LONGEST {
        return Err(EditError::Read(RevokedError::Long(path.display().to_string().into())));
    }
    file::replace_while(path, text.as_bytes(), wanted).map_err(failed)?;
    Ok(all)
}

impl Killswitch {
    /// Revokes what the file says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new(live: Arc<Live>, file: Option<PathBuf>, tasks: Tasks) -> Result<Self, RevokedError> {
        let now = live.now();
        let (metrics, clock) = (Arc::clone(&now.gateway.metrics), Arc::clone(&now.gateway.clock));
        drop(now);
        let mut held = Held::default();
        if let Some(path) = &file {
            let found = file::look(path, revoked::LONGEST);
            let (data, text) = found.map_err(|error| revoked::unread(path, error))?;
            held.seen = Some(Mark::of(&data, &text));
            held.file = Settled::new(match revoked::parse(path, &text)? {
                Said::Nothing => Revoked::default(),
                Said::Lists(lists) => lists,
            });
        }
        let (held, turn) = (Mutex::new(held), Mutex::default());
        let changes = Aside::default();
        let switch = Self { live, tasks, metrics, clock, file, held, turn, changes };
        switch.apply(&switch.held());
        // It may have been changed since the last process read it.
        let said = switch.held().file.force().clone();
        switch.record(&Revoked::default(), &said);
        Ok(switch)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, held: &Held) {
        let all = held.all();
        let (gauge, now) = (&self.metrics.everything_revoked, u64::from(all.everything));
        let before = gauge.swap(now, Ordering::Relaxed);
        self.live.revoke(&all);
        match (before, now) {
            (0, 1) => {
                tracing::warn!("everything is revoked: no caller is served and no server is used")
            }
            (1, 0) => tracing::warn!("everything is no longer revoked"),
            _ => {}
        }
    }

    /// Records and logs what the file changes, for which no operator has asked the gateway.
    fn record(&self, before: &Revoked, now: &Revoked) {
        let journal = Arc::clone(&self.live.now().gateway.journal);
        for (act, change) in [(Act::Revoke, rest(now, before)), (Act::Lift, rest(before, now))] {
            if change.is_empty() {
                continue;
            }
            let (revoke, what) = (act == Act::Revoke, written(&change));
            tracing::warn!(revoke, %what, "the file of revocations has changed what is revoked");
            if let Err(error) = journal.changed(revoke, (&what, By::File)) {
                tracing::error!(error = %Chain(&error), "not recorded");
            }
        }
    }

    /// Puts another configuration in force, in which the same is revoked from the first request on.
    pub fn succeed(&self, generation: Generation) {
        let held = self.held();
        generation.gateway.revoke(&held.all());
        self.live.replace(generation);
    }

    /// Watches the file, for as long as the gateway runs.
    pub async fn tend(self: Arc<Self>) {
        let (mut watch, aside) = (Watch::new(self.tasks.clone()), Aside::default());
        let mut stalled = false;
        while let Some(turn) = watch.next().await {
            let Some(file) = self.file.clone() else { continue };
            // After a look that did not end, the file counts as new.
            let (switch, asked) = (Arc::clone(&self), turn == Turn::Asked || stalled);
            let looked = aside.run(file::LOOK, move || switch.look(&file, asked)).await;
            let Err(error) = looked else {
                stalled = false;
                continue;
            };
            // Nothing was read, so nothing is lifted. Said once.
            self.held().file.doubt();
            if !std::mem::replace(&mut stalled, true) {
                tracing::error!(%error, "revocations cannot be read; those of before hold");
                self.metrics.revocations_usable.store(0, Ordering::Relaxed);
                self.metrics.revocations_unread.add(1);
            }
        }
    }

    /// Takes what the file says now. One that cannot be read changes nothing: what was revoked stays
    /// revoked.
    fn look(&self, path: &Path, asked: bool) {
        let _turn = self.turn();
        let found = file::look(path, revoked::LONGEST);
        let seen = found.as_ref().ok().map(|(data, text)| Mark::of(data, text));
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
        // A file that is being written, or was cut short, lifts nothing.
        let lists = said.and_then(|said| match said {
            Said::Lists(lists) => Ok(lists),
            Said::Nothing if held.file.force().is_empty() => Ok(Revoked::default()),
            Said::Nothing => Err(RevokedError::Empty(path.display().to_string().into())),
        });
        self.metrics.revocations_usable.store(u64::from(lists.is_ok()), Ordering::Relaxed);
        match (lists, seen) {
            (Ok(lists), Some(mark)) => {
                let step = held.file.look(mark, &lists, now);
                if step != Step::Same {
                    self.apply(&held);
                }
                let file = path.display();
                match step {
                    Step::Same => {}
                    Step::Added | Step::Lifted => tracing::info!(%file, "revocations were read"),
                    Step::Waits if first => {
                        let what = "revocations were read; what is no longer there is lifted if the file stays so";
                        tracing::info!(%file, "{what}");
                    }
                    Step::Waits => {}
                }
            }
            (Err(error), _) => {
                held.file.doubt();
                if first {
                    let error = Chain(&error);
                    tracing::error!(%error, "revocations cannot be read; those of before hold");
                    self.metrics.revocations_unread.add(1);
                }
            }
            (Ok(_), None) => held.file.doubt(),
        }
        let now = held.file.force().clone();
        drop(held);
        self.record(&before, &now);
    }

    /// Reads what is to be changed, and holds it to what the configuration in force knows.
    ///
    /// # Errors
    /// When it cannot be read, or would change nothing.
    pub fn read(&self, text: Bytes, act: Act) -> Result<Revoked, ChangeError> {
        let change = read(text)?;
        match act {
            Act::Revoke => unknown(&self.live.now().names, &change)?,
            Act::Lift => {
                let mut missing = change.clone();
                missing.remove(&self.held().all());
                if !missing.is_empty() {
                    return Err(ChangeError::NotRevoked(listed(&missing)));
                }
            }
        }
        Ok(change)
    }

    /// Revokes `change`, or takes it back.
    ///
    /// # Errors
    /// When the file goes on saying what is taken back, or may do so.
    pub async fn change(self: &Arc<Self>, change: Revoked, act: Act) -> Result<Kept, ChangeError> {
        {
            let mut held = self.held();
            let named = !held.file.force().common(&change).is_empty();
            match act {
                Act::Revoke => held.added.add(&change),
                // It is taken back when the file no longer says it.
                Act::Lift if named && self.file.is_some() => {}
                Act::Lift => {
                    held.added.remove(&change);
                    self.apply(&held);
                    return Ok(if self.file.is_some() { Kept::Written } else { Kept::Unwritten });
                }
            }
            self.apply(&held);
        }
        let path = self.file.clone();
        let Some(path) = path else { return Ok(Kept::Unwritten) };
        let (switch, decision) = (Arc::clone(self), Arc::new(Decision::default()));
        let decided = Arc::clone(&decision);
        let work = move || switch.write(&path, &change, act, &decided);
        let (error, is_settled) = match self.changes.in_turn(WRITE, work).await {
            Ok(Ok(())) => return Ok(Kept::Written),
            Ok(Err(error)) => (Chain(&error).to_string(), true),
            Err(stalled) => (stalled.to_string(), decision.claim()),
        };
        tracing::error!(%error, "revocations could not be written");
        match act {
            Act::Lift if is_settled => Err(ChangeError::Unwritten),
            Act::Lift => Err(ChangeError::Undecided),
            Act::Revoke => Ok(Kept::Unwritten),
        }
    }

    /// Writes a change into the file, unless it was given up meanwhile. What is in force goes with it: the file
    /// may be half written by somebody who does not take the lock, and what it lacks for that must not be lost.
    fn write(
        &self,
        path: &Path,
        change: &Revoked,
        act: Act,
        decision: &Decision,
    ) -> Result<(), EditError> {
        let _turn = self.turn();
        let (known, added) = {
            let held = self.held();
            let mut known = held.file.force().clone();
            known.add(&held.added);
            (known, held.added.clone())
        };
        let edited = |all: &mut Revoked| {
            all.add(&known);
            match act {
                // It is in force, and so in what is known, unless it was lifted while this waited.
                Act::Revoke => {}
                Act::Lift => all.remove(change),
            }
        };
        let all = edit_while(path, edited, || decision.claim())?;
        let mut held = self.held();
        // It is in the file now: taking an entry out there lifts it.
        held.added.remove(&added);
        held.file = Settled::new(all.clone());
        self.apply(&held);
        drop(held);
        // What the file says beside that was written by somebody else.
        let mut expected = known;
        expected.add(change);
        self.record(&expected, &{
            let mut now = all;
            now.add(&expected);
            now
        });
        Ok(())
    }

    /// What is in force and whether all of it lasts over a restart, as the members of a JSON object.
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
        write!(out, ",\"hasFile\":{}", self.file.is_some()).unwrap_or_default();
        write!(out, ",\"lastsOverRestart\":{}", added.is_empty()).unwrap_or_default();
        out
    }
}

/// What of `one` is not in `other`.
fn rest(one: &Revoked, other: &Revoked) -> Revoked {
    let mut rest = one.clone();
    rest.remove(other);
    rest
}

/// The lists that have entries, as an operator would send them.
fn written(change: &Revoked) -> String {
    let filled = change.lists().into_iter().filter(|(_, list)| !list.is_empty());
    let mut members: Vec<_> =
        filled.map(|(name, list)| format!("\"{name}\":{}", array(list))).collect();
    if change.everything {
        members.push("\"everything\":true".to_owned());
    }
    format!("{{{}}}", members.join(","))
}

fn own() -> String {
    format!("{RESERVED}/{}", selftest_fixtures::REVOKED)
}

/// Holds a change to what the configuration knows: a name that is misspelt would revoke nothing.
///
/// # Errors
/// What it does not know, and what there is.
pub fn unknown(known: &Names, change: &Revoked) -> Result<(), ChangeError> {
    let refused = |text: String| Err(ChangeError::Unknown(text));
    let shown = |names: &BTreeSet<Box<str>>| {
        let names = names.iter().filter(|name| !name.starts_with(RESERVED));
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let of_tools = change.tools.iter().filter_map(|tool| tool.split_once('/'));
    let of_tools = of_tools.map(|(server, _)| server);
    let mut servers = change.servers.iter().map(|server| &**server).chain(of_tools);
    if let Some(server) = servers.find(|server| !known.servers.contains(*server)) {
        let (server, servers) = (server.escape_debug(), shown(&known.servers));
        return refused(format!("there is no server `{server}`; the servers are {servers}"));
    }
    if let Some(id) = change.principals.iter().find(|id| !known.may_be(id)) {
        let (callers, issuers) = (shown(&known.principals), shown(&known.issuers));
        return refused(format!(
            "no caller can be `{}`: there are the API keys of {callers}, and `ISSUER/SUBJECT` or `service:ISSUER/CLIENT` of the issuers {issuers}",
            id.escape_debug()
        ));
    }
    let of_tokens = [("clients", &change.clients), ("tokens", &change.tokens)];
    match of_tokens.into_iter().find(|(_, list)| !list.is_empty()) {
        Some((name, _)) if known.issuers.is_empty() => {
            refused(format!("`{name}` are those of access tokens, and no issuer is configured"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The entries of lists, in words.
#[must_use]
pub fn listed(lists: &Revoked) -> String {
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

fn read(text: Bytes) -> Result<Revoked, ChangeError> {
    let document = Document::parse(text, &BOUNDS).map_err(|_wrong| ChangeError::Shape)?;
    let root = document.root();
    let mut lists = Revoked::default();
    for (key, value) in root.members() {
        if &*key == "everything" {
            lists.everything = value.as_bool().ok_or(ChangeError::Shape)?;
            continue;
        }
        let list = lists.list_mut(&key).ok_or(ChangeError::Shape)?;
        if value.kind() != Kind::Array {
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
    Ok(lists)
}

fn array(list: &BTreeSet<Box<str>>) -> String {
    let entries: Vec<_> = list.iter().map(|entry| revoked::quoted(entry)).collect();
    format!("[{}]", entries.join(","))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{ChangeError, read, unknown};
    use crate::serve::generation::Names;

    #[test]
    fn what_the_configuration_does_not_know_is_named_and_refused() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        let keys = Names {
            servers: names(&["up"]),
            principals: names(&["ana"]),
            issuers: names(&[]),
            others: false,
        };
        let tokens = Names { issuers: names(&["corp"]), ..keys.clone() };
        let certificates = Names { others: true, ..keys.clone() };
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
