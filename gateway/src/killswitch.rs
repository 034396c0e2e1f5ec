//! What was revoked: from a file, which is watched, and by an operator, who is asked for a token.
//!
//! What an operator revokes holds at once. It is written into the file as well, if there is one, so
//! that a restart does not forget it (control C32).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use policy::json::{Document, Kind, Value};
use policy::name::RESERVED;
use policy::revoked::Revoked;

use crate::file::{Turn, Watch, replace};
use crate::jose;
use crate::live::{Generation, Live};
use crate::metrics::Metrics;
use crate::settings::revoked::{self, RevokedError};
use crate::specimens;
use crate::task::Tasks;

/// Most entries of one sort.
const MOST: usize = 10_000;

/// What was revoked, and where that is written down.
#[derive(Debug)]
pub struct Killswitch {
    live: Arc<Live>,
    tasks: Tasks,
    metrics: Arc<Metrics>,
    file: Option<PathBuf>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// What the file says, as it was last good.
    file: Revoked,
    /// What an operator has added and the file does not say.
    added: Revoked,
    /// The file as it was last looked at, good or not.
    seen: Option<Vec<u8>>,
}

impl Held {
    fn all(&self) -> Revoked {
        let mut all = self.file.clone();
        merge(&mut all, &self.added, true);
        // Something of the self-test, which shows that what is revoked is.
        all.tools.insert(own().into());
        all
    }
}

/// Why something was not revoked.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// It cannot be read.
    #[error("send an object with the lists `principals`, `clients`, `servers`, `tools`, `tokens`")]
    Shape,
    /// There is too much of it.
    #[error("more than {MOST} entries of one sort")]
    Many,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is in the file.
    Written,
    /// It holds until the gateway stops.
    Unwritten,
}

impl Killswitch {
    /// Revokes what the file says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new(live: Arc<Live>, file: Option<PathBuf>, tasks: Tasks) -> Result<Self, RevokedError> {
        let metrics = Arc::clone(&live.now().gateway.metrics);
        let switch = Self { live, tasks, metrics, file, held: Mutex::default() };
        if let Some(file) = &switch.file {
            switch.held().seen = fs::read(file).ok();
            let read = revoked::read(file)?;
            switch.held().file = read;
        }
        switch.apply(&switch.held());
        Ok(switch)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, held: &Held) {
        self.live.revoke(&held.all());
    }

    /// Puts another configuration in force, in which the same is revoked from the first request on.
    pub fn succeed(&self, generation: Generation) {
        let held = self.held();
        generation.gateway.revoke(held.all());
        self.live.replace(generation);
    }

    /// Watches the file, for as long as the gateway runs.
    pub async fn tend(self: Arc<Self>) {
        let mut watch = Watch::new(self.tasks.clone());
        while let Some(turn) = watch.next().await {
            if turn == Turn::Asked {
                self.held().seen = None;
            }
            if let Some(file) = &self.file {
                self.look(file);
            }
        }
    }

    /// Takes what the file says now. One that cannot be read changes nothing: what was revoked stays
    /// revoked.
    fn look(&self, file: &Path) {
        let text = fs::read(file).ok();
        let mut held = self.held();
        if held.seen == text && text.is_some() {
            return;
        }
        let first = held.seen != text;
        held.seen = text;
        // A file that is being written, or was cut short, lifts nothing.
        let emptied = held.seen.as_ref().is_some_and(Vec::is_empty);
        let read = if emptied && held.file != Revoked::default() {
            Err(RevokedError::Empty(file.display().to_string().into()))
        } else {
            revoked::read(file)
        };
        self.metrics.revocations_usable.store(u64::from(read.is_ok()), Ordering::Relaxed);
        match read {
            Ok(read) => {
                held.file = read;
                self.apply(&held);
                tracing::info!(file = %file.display(), "revocations were read");
            }
            Err(error) if first => {
                let error = crate::report::Chain(&error);
                tracing::error!(%error, "revocations cannot be read; those of before hold");
                self.metrics.revocations_unread.add(1);
            }
            Err(_) => {}
        }
    }

    /// Revokes what `text` says, or takes it back.
    ///
    /// # Errors
    /// When it cannot be read; then nothing changes.
    pub fn change(&self, text: Bytes, revoke: bool) -> Result<Kept, ChangeError> {
        let change = read(text)?;
        let mut held = self.held();
        merge(&mut held.added, &change, revoke);
        if !revoke {
            merge(&mut held.file, &change, false);
        }
        self.apply(&held);
        let Some(file) = &self.file else { return Ok(Kept::Unwritten) };
        match self.write(file, &mut held, &change, revoke) {
            Ok(()) => Ok(Kept::Written),
            Err(error) => {
                let error = crate::report::Chain(&*error);
                tracing::error!(%error, "revocations could not be written; they hold until a restart");
                Ok(Kept::Unwritten)
            }
        }
    }

    /// Writes a change into the file: into what it says now, which somebody else may have changed.
    fn write(
        &self,
        file: &Path,
        held: &mut Held,
        change: &Revoked,
        revoke: bool,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let lock = fs::File::create(file.with_extension("lock"))?;
        // Given up with the file handle, also when this fails.
        lock.lock()?;
        let mut all = revoked::read(file)?;
        merge(&mut all, &held.added, true);
        merge(&mut all, change, revoke);
        let text = write(&all);
        replace(file, text.as_bytes())?;
        // All of it is in the file now: who takes an entry out there lifts it.
        held.added = Revoked::default();
        held.file = all;
        held.seen = Some(text.into_bytes());
        self.apply(held);
        Ok(())
    }

    /// What is revoked, as JSON.
    #[must_use]
    pub fn list(&self) -> String {
        let mut all = Revoked::clone(&self.live.now().gateway.policy.revoked());
        all.tools.remove(own().as_str());
        let mut out = String::from("{");
        for (n, (name, list)) in lists(&all).into_iter().enumerate() {
            out.push_str(if n > 0 { "," } else { "" });
            write!(out, "\"{name}\":{}", array(list)).unwrap_or_default();
        }
        out.push_str("}\n");
        out
    }
}

fn own() -> String {
    format!("{RESERVED}/{}", specimens::REVOKED)
}

fn lists(all: &Revoked) -> [(&'static str, &BTreeSet<Box<str>>); 5] {
    [
        ("principals", &all.principals),
        ("clients", &all.clients),
        ("servers", &all.servers),
        ("tools", &all.tools),
        ("tokens", &all.tokens),
    ]
}

fn merge(into: &mut Revoked, change: &Revoked, add: bool) {
    for (into, change) in [
        (&mut into.principals, &change.principals),
        (&mut into.clients, &change.clients),
        (&mut into.servers, &change.servers),
        (&mut into.tools, &change.tools),
        (&mut into.tokens, &change.tokens),
    ] {
        if add {
            into.extend(change.iter().cloned());
        } else {
            into.retain(|known| !change.contains(known));
        }
    }
}

fn read(text: Bytes) -> Result<Revoked, ChangeError> {
    let document = Document::parse(text, &jose::BOUNDS).map_err(|_wrong| ChangeError::Shape)?;
    let root = document.root();
    let mut revoked = Revoked::default();
    for (key, value) in root.members() {
        let list = match &*key {
            "principals" => &mut revoked.principals,
            "clients" => &mut revoked.clients,
            "servers" => &mut revoked.servers,
            "tools" => &mut revoked.tools,
            "tokens" => &mut revoked.tokens,
            _ => return Err(ChangeError::Shape),
        };
        if value.kind() != Kind::Array || value.items().count() > MOST {
            return Err(ChangeError::Many);
        }
        let texts = value.items().map(|item| Value::as_str(item).map(Into::into));
        *list = texts.collect::<Option<_>>().ok_or(ChangeError::Shape)?;
    }
    let named = revoked.tools.iter().all(|tool| tool.contains('/'));
    if root.is_object() && revoked != Revoked::default() && named {
        Ok(revoked)
    } else {
        Err(ChangeError::Shape)
    }
}

fn array(list: &BTreeSet<Box<str>>) -> String {
    let mut out = vec![b'['];
    for (n, text) in list.iter().enumerate() {
        out.extend_from_slice(if n > 0 { b"," } else { b"" });
        policy::json::write_ascii(&mut out, text);
    }
    out.push(b']');
    String::from_utf8(out).unwrap_or_default()
}

/// As the file has it: one entry a line, so that a change is a small one.
fn write(all: &Revoked) -> String {
    let mut out = String::from("# What is no longer to be used, whatever the rules say.\n");
    for (name, list) in lists(all) {
        if list.is_empty() {
            continue;
        }
        writeln!(out, "{name}:").unwrap_or_default();
        for text in list {
            let text = array(&[text.clone()].into());
            writeln!(out, "  - {}", text.trim_matches(['[', ']'])).unwrap_or_default();
        }
    }
    out
}
