//! Keeps questions and approvals in a file, so that they survive the end of the process.
//!
//! What can be used is in memory, as without a file; the file has the same, and is read once, at the start. An approval is
//! in the file before a call can use it, and out of it before the call is made: it is never used twice, also if the
//! process is killed in between.
//!
//! After a failed write or sync nobody knows what the file has. An approval is therefore written in two steps: the first
//! one is not believed at a start, and the second one follows only when the first is known to be on the disk, and the
//! approval is in force. So an approval that was answered as not recorded cannot be used later. The file is then closed,
//! and opened again with the next change, when everything in it is replaced by what is in memory.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::stored::{self, StoredApproval, StoredState};
use super::{
    AnswerError, ApprovalBinding, ApprovalId, ApprovalQuestion, ApprovalState, ApprovalStore,
    ApprovalVerdict, KeptQuestion, MemoryApprovals, OpenApproval, QuestionLimit, RemovedQuestion,
};
use crate::base::clock::Clock;
use crate::base::file;
use crate::config::settings::ApprovalSettings;

/// Each question by its id. The name is the version of the format.
const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("approvals/v1");
/// Most bytes of the file that are kept in memory.
const CACHE: usize = 1 << 20;
/// Pause between attempts to open a file again that could not be written.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Why the file of approvals cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalFileError {
    /// It cannot be opened.
    #[error(
        "the file of approvals `{0}` cannot be opened: its folder has to be there, and to belong to the user that the \
         gateway runs as, with mode 0700"
    )]
    Open(PathBuf, #[source] io::Error),
    /// Who can change it can approve calls.
    #[error(
        "other users can change the file of approvals `{0}`, or replace it: it has to belong to the user that the \
         gateway runs as, with mode 0600, in folders that not everybody can write to"
    )]
    OpenToOthers(PathBuf),
    /// Another process has it open.
    #[error("another gateway uses the file of approvals `{0}`: give each its own")]
    InUse(PathBuf),
    /// It is none, or is damaged.
    #[error("the file of approvals `{0}` cannot be used")]
    Content(PathBuf, #[source] Box<redb::Error>),
    /// Its parts do not belong together.
    #[error(
        "the file of approvals `{0}` is damaged: move it away, and the gateway makes a new one; calls that were approved \
         in it need another approval"
    )]
    Damaged(PathBuf),
}

/// Why the file does not have a change.
#[derive(Debug, thiserror::Error)]
enum UnkeptError {
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] Box<redb::Error>),
    /// It cannot be opened again after a failure.
    #[error("it cannot be opened again: {0}")]
    Open(#[from] ApprovalFileError),
    /// It was tried a moment ago.
    #[error("it could not be written a moment ago")]
    Paused,
}

impl From<redb::Error> for UnkeptError {
    fn from(error: redb::Error) -> Self {
        Self::Write(Box::new(error))
    }
}

/// Approvals in memory and in a file.
#[derive(Debug)]
pub struct FileApprovals {
    memory: MemoryApprovals,
    path: PathBuf,
    /// Locked while memory and file are changed, so that the file has the last state.
    file: Mutex<ApprovalFile>,
    /// Whether the last write has failed.
    failing: AtomicBool,
}

/// The database in the file.
#[derive(Debug)]
struct ApprovalFile {
    /// `None` after a write or sync that failed, until the file is opened again.
    database: Option<Database>,
    /// When it was last tried to open it again.
    tried: Option<Instant>,
}

impl FileApprovals {
    /// Opens the file, or makes it, and reads what can still be answered or used.
    ///
    /// # Errors
    /// If it cannot be opened or read, or other users can change it.
    pub fn open(
        path: &Path,
        settings: &ApprovalSettings,
        clock: &dyn Clock,
    ) -> Result<Self, ApprovalFileError> {
        let memory = MemoryApprovals::default();
        let database = unpanicked(path, || {
            let database = database(path)?;
            let unusable = |error| ApprovalFileError::Content(path.into(), Box::new(error));
            load(&database, &memory, settings, clock).map_err(unusable)?;
            Ok(database)
        })?;
        let file = Mutex::new(ApprovalFile { database: Some(database), tried: None });
        Ok(Self { memory, path: path.into(), file, failing: AtomicBool::new(false) })
    }

    fn file(&self) -> MutexGuard<'_, ApprovalFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the file. After a failure it is closed: what it has is not known any more.
    fn write(
        &self,
        file: &mut ApprovalFile,
        now: Instant,
        change: impl FnOnce(&Database) -> Result<(), redb::Error>,
    ) -> Result<(), UnkeptError> {
        let written = self.reopened(file, now).and_then(|database| Ok(change(database)?));
        if written.is_err() {
            file.database = None;
        }
        self.failing.store(written.is_err(), Ordering::Release);
        written
    }

    /// The database, which is opened again after a failure and then gets what is in memory.
    fn reopened<'a>(
        &self,
        file: &'a mut ApprovalFile,
        now: Instant,
    ) -> Result<&'a Database, UnkeptError> {
        if file.database.is_none() {
            let is_early = |at| now.saturating_duration_since(at) < REOPEN_INTERVAL;
            if file.tried.is_some_and(is_early) {
                return Err(UnkeptError::Paused);
            }
            file.tried = Some(now);
            let opened = unpanicked(&self.path, || {
                let database = database(&self.path)?;
                let unusable = |error| ApprovalFileError::Content(self.path.clone(), error);
                let all = self.memory.all(now);
                replace(&database, &all).map_err(|error| unusable(Box::new(error)))?;
                Ok(database)
            })?;
            file.database = Some(opened);
            tracing::info!(
                event = "approval.kept_again",
                "the file of approvals can be written again, and has what is in memory"
            );
        }
        file.database.as_ref().ok_or(UnkeptError::Paused)
    }
}

/// Runs `opens`. The database panics about some files that are damaged, for example if an old copy replaced one in use.
fn unpanicked<T>(
    path: &Path,
    opens: impl FnOnce() -> Result<T, ApprovalFileError>,
) -> Result<T, ApprovalFileError> {
    let damaged = |_panic| Err(ApprovalFileError::Damaged(path.into()));
    panic::catch_unwind(AssertUnwindSafe(opens)).unwrap_or_else(damaged)
}

/// Opens the database, or makes it.
fn database(path: &Path) -> Result<Database, ApprovalFileError> {
    let unopened = |error| ApprovalFileError::Open(path.into(), error);
    let opened = opened(path).map_err(unopened)?;
    if file::is_replaceable_by_all(path) || !is_own(&opened).map_err(unopened)? {
        return Err(ApprovalFileError::OpenToOthers(path.into()));
    }
    let unusable = |error| match error {
        redb::Error::DatabaseAlreadyOpen => ApprovalFileError::InUse(path.into()),
        error => ApprovalFileError::Content(path.into(), Box::new(error)),
    };
    let backend = FileBackend::new(opened).map_err(|error| unusable(error.into()))?;
    let database = Database::builder().set_cache_size(CACHE).create_with_backend(backend);
    database.map_err(|error| unusable(error.into()))
}

/// Takes what has not expired into memory, and removes the rest from the file.
fn load(
    database: &Database,
    memory: &MemoryApprovals,
    settings: &ApprovalSettings,
    clock: &dyn Clock,
) -> Result<(), redb::Error> {
    // There is no table in a new file.
    let writing = database.begin_write()?;
    writing.open_table(TABLE)?;
    writing.commit()?;
    let mut kept = Vec::new();
    let mut over = Vec::new();
    let reading = database.begin_read()?;
    for row in reading.open_table(TABLE)?.iter()? {
        let (id, text) = row?;
        match stored::read(text.value()) {
            Some(stored) if clock.now() < stored.question.expires => kept.push(stored),
            Some(_) => over.push(id.value().to_owned()),
            None => {
                tracing::warn!(
                    event = "approval.unreadable", approval = %id.value().escape_debug(),
                    "a question in the file of approvals cannot be read: its call needs another approval"
                );
                over.push(id.value().to_owned());
            }
        }
    }
    forget(database, &over)?;
    kept.sort_by_key(|stored| stored.question.asked);
    for StoredApproval { question, state } in kept {
        let left = question.expires.duration_since(clock.now()).unwrap_or_default();
        // A clock that was set back does not make an approval last longer.
        let until = clock.instant() + left.min(settings.timeout);
        memory.restore(question, state, until);
    }
    Ok(())
}

/// Replaces everything in the file. Nothing that was written before is kept, because a part of it may never have
/// reached the disk.
fn replace(database: &Database, all: &[OpenApproval]) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    writing.delete_table(TABLE)?;
    {
        let mut table = writing.open_table(TABLE)?;
        for OpenApproval { question, state, .. } in all {
            let text = stored::written(question, StoredState::Believed(&state.borrow()));
            table.insert(question.id.as_str(), &*text)?;
        }
    }
    Ok(writing.commit()?)
}

fn keep(
    database: &Database,
    question: &ApprovalQuestion,
    state: StoredState<'_>,
) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    let text = stored::written(question, state);
    writing.open_table(TABLE)?.insert(question.id.as_str(), &*text)?;
    Ok(writing.commit()?)
}

fn forget(database: &Database, ids: &[impl AsRef<str>]) -> Result<(), redb::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(TABLE)?;
        for id in ids {
            table.remove(id.as_ref())?;
        }
    }
    Ok(writing.commit()?)
}

/// Opens the file, and makes it for its owner alone. A symbolic link is not followed: it could lead to another file.
fn opened(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Whether nobody else can change the file. If others can read it, they no longer can afterwards.
fn is_own(file: &File) -> io::Result<bool> {
    let data = file.metadata()?;
    let is_own = data.is_file() && data.uid() == rustix::process::geteuid().as_raw();
    if !is_own || data.mode() & 0o022 != 0 {
        return Ok(false);
    }
    if data.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(true)
}

/// Logs that the file could not be written, and what follows from that.
fn log_unkept(error: &UnkeptError, effect: &'static str) {
    tracing::error!(event = "approval.unkept", %error, effect, "the file of approvals cannot be written");
}

impl ApprovalStore for FileApprovals {
    fn waits_for_disk(&self) -> bool {
        true
    }

    fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    fn find(&self, binding: &ApprovalBinding, now: Instant) -> Option<OpenApproval> {
        self.memory.find(binding, now)
    }

    fn ask(
        &self,
        question: ApprovalQuestion,
        settings: &ApprovalSettings,
        now: Instant,
    ) -> Result<KeptQuestion, QuestionLimit> {
        let mut file = self.file();
        // A file that cannot be written takes nothing of the rate of the caller.
        if self.is_failing()
            && self.memory.find(&question.binding, now).is_none()
            && self.write(&mut file, now, |_| Ok(())).is_err()
        {
            return Err(QuestionLimit::Store);
        }
        let kept = self.memory.ask(question, settings, now)?;
        if !kept.is_new {
            return Ok(kept);
        }
        let asked = &kept.open.question;
        let waiting = StoredState::Believed(&ApprovalState::Waiting);
        if let Err(error) = self.write(&mut file, now, |data| keep(data, asked, waiting)) {
            log_unkept(&error, "nobody is asked");
            self.memory.forget(&asked.id);
            return Err(QuestionLimit::Store);
        }
        Ok(kept)
    }

    fn all(&self, now: Instant) -> Vec<OpenApproval> {
        self.memory.all(now)
    }

    fn get(&self, id: &ApprovalId, now: Instant) -> Option<OpenApproval> {
        self.memory.get(id, now)
    }

    fn answer(
        &self,
        id: &ApprovalId,
        verdict: ApprovalVerdict,
        now: Instant,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), AnswerError> {
        let mut file = self.file();
        let open = self.memory.get(id, now).ok_or(AnswerError::Unknown)?;
        if *open.state.borrow() != ApprovalState::Waiting {
            return Err(AnswerError::Answered);
        }
        let mut put = |state: StoredState<'_>| {
            self.write(&mut file, now, |data| keep(data, &open.question, state))
        };
        if verdict == ApprovalVerdict::Approve
            && let Err(error) = put(StoredState::Approving)
        {
            log_unkept(&error, "an approval has no effect");
            return Err(AnswerError::Unrecorded);
        }
        self.memory.answer(id, verdict, now, is_wanted)?;
        // From here on it is in force, also if the file is lost.
        if let Err(error) = put(StoredState::Believed(&verdict.state())) {
            log_unkept(&error, "an answer ends with the process");
        }
        Ok(())
    }

    fn spend(&self, id: &ApprovalId, binding: &ApprovalBinding, now: Instant) -> bool {
        let mut file = self.file();
        if !self.memory.spend(id, binding, now) {
            return false;
        }
        let forgotten = self.write(&mut file, now, |data| forget(data, &[id.as_str()]));
        forgotten.inspect_err(|error| log_unkept(error, "the call is not made")).is_ok()
    }

    fn remove(
        &self,
        now: Instant,
        is_withdrawn: &dyn Fn(&ApprovalQuestion) -> bool,
    ) -> Vec<RemovedQuestion> {
        let mut file = self.file();
        let removed = self.memory.remove(now, is_withdrawn);
        let ids: Vec<_> = removed.iter().map(|removed| removed.question.id.as_str()).collect();
        if ids.is_empty() && !self.is_failing() {
            return removed;
        }
        match self.write(&mut file, now, |data| forget(data, &ids)) {
            Ok(()) | Err(UnkeptError::Paused) => {}
            Err(error) => {
                log_unkept(&error, "a question that was withdrawn is asked again after a restart");
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests;
