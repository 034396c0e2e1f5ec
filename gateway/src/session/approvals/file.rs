//! Keeps questions and approvals in a file, so that they survive the end of the process.
//!
//! What can be used is in memory, as without a file; the file has the same, and is read once, at the start. An approval is
//! in the file before a call can use it, and out of it before the call is made: it is never used twice, also if the
//! process is killed in between.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::stored::{self, StoredApproval};
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

/// Approvals in memory and in a file.
#[derive(Debug)]
pub struct FileApprovals {
    memory: MemoryApprovals,
    database: Database,
    /// Held while memory and file are changed, so that the file has the last state.
    changing: Mutex<()>,
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
        // The database panics about some files that are damaged, for example if an old copy replaced one in use.
        let read = AssertUnwindSafe(|| Self::read(path, settings, clock));
        let damaged = |_panic| Err(ApprovalFileError::Damaged(path.into()));
        panic::catch_unwind(read).unwrap_or_else(damaged)
    }

    fn read(
        path: &Path,
        settings: &ApprovalSettings,
        clock: &dyn Clock,
    ) -> Result<Self, ApprovalFileError> {
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
        let database = Database::builder()
            .set_cache_size(CACHE)
            .create_with_backend(backend)
            .map_err(|error| unusable(error.into()))?;
        let store =
            Self { memory: MemoryApprovals::default(), database, changing: Mutex::default() };
        store.load(settings, clock).map_err(unusable)?;
        Ok(store)
    }

    /// Takes what has not expired into memory, and removes the rest from the file.
    fn load(&self, settings: &ApprovalSettings, clock: &dyn Clock) -> Result<(), redb::Error> {
        // There is no table in a new file.
        let writing = self.database.begin_write()?;
        writing.open_table(TABLE)?;
        writing.commit()?;
        let mut kept = Vec::new();
        let mut over = Vec::new();
        let reading = self.database.begin_read()?;
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
        self.forget(&over)?;
        kept.sort_by_key(|stored| stored.question.asked);
        for StoredApproval { question, state } in kept {
            let left = question.expires.duration_since(clock.now()).unwrap_or_default();
            // A clock that was set back does not make an approval last longer.
            let until = clock.instant() + left.min(settings.timeout);
            self.memory.restore(question, state, until);
        }
        Ok(())
    }

    fn keep(&self, question: &ApprovalQuestion, state: &ApprovalState) -> Result<(), redb::Error> {
        let writing = self.database.begin_write()?;
        let text = stored::written(question, state);
        writing.open_table(TABLE)?.insert(question.id.as_str(), &*text)?;
        Ok(writing.commit()?)
    }

    fn forget(&self, ids: &[impl AsRef<str>]) -> Result<(), redb::Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let writing = self.database.begin_write()?;
        {
            let mut table = writing.open_table(TABLE)?;
            for id in ids {
                table.remove(id.as_ref())?;
            }
        }
        Ok(writing.commit()?)
    }
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
fn log_unkept(error: &redb::Error, effect: &'static str) {
    tracing::error!(event = "approval.unkept", %error, effect, "the file of approvals cannot be written");
}

impl ApprovalStore for FileApprovals {
    fn waits_for_disk(&self) -> bool {
        true
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
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = self.memory.ask(question, settings, now)?;
        if kept.is_new
            && let Err(error) = self.keep(&kept.open.question, &ApprovalState::Waiting)
        {
            log_unkept(&error, "nobody is asked");
            self.memory.forget(&kept.open.question.id);
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
    ) -> Result<(), AnswerError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.memory.get(id, now).ok_or(AnswerError::Unknown)?;
        if *open.state.borrow() != ApprovalState::Waiting {
            return Err(AnswerError::Answered);
        }
        if let Err(error) = self.keep(&open.question, &verdict.state()) {
            log_unkept(&error, "an approval has no effect, and a denial ends with the process");
            if verdict == ApprovalVerdict::Approve {
                return Err(AnswerError::Unrecorded);
            }
        }
        self.memory.answer(id, verdict, now)
    }

    fn spend(&self, id: &ApprovalId, binding: &ApprovalBinding, now: Instant) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.memory.spend(id, binding, now) {
            return false;
        }
        let forgotten = self.forget(&[id.as_str()]);
        forgotten.inspect_err(|error| log_unkept(error, "the call is not made")).is_ok()
    }

    fn remove(
        &self,
        now: Instant,
        is_withdrawn: &dyn Fn(&ApprovalQuestion) -> bool,
    ) -> Vec<RemovedQuestion> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = self.memory.remove(now, is_withdrawn);
        let ids: Vec<_> = removed.iter().map(|removed| removed.question.id.as_str()).collect();
        if let Err(error) = self.forget(&ids) {
            log_unkept(&error, "a question that was withdrawn is asked again after a restart");
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::sync::Mutex;
    use std::time::{Duration, Instant, SystemTime};

    use super::super::memory::tests::{SETTINGS, question};
    use super::{ApprovalFileError, FileApprovals};
    use crate::base::clock::Clock;
    use crate::base::random;
    use crate::session::approvals::{ApprovalState, ApprovalStore as _, ApprovalVerdict};

    /// A clock that is set by hand.
    #[derive(Debug)]
    struct Hand(Instant, Mutex<Duration>);

    impl Hand {
        #[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
        fn new() -> Self {
            Self(Instant::now(), Mutex::default())
        }

        fn advance(&self, by: Duration) {
            *self.1.lock().unwrap() += by;
        }
    }

    impl Clock for Hand {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + *self.1.lock().unwrap()
        }

        fn instant(&self) -> Instant {
            self.0 + *self.1.lock().unwrap()
        }
    }

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = json::hex::encode(&random::bytes::<8>().unwrap());
            let folder = std::env::temp_dir().join(format!("portcullis-approvals-{name}"));
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn open(&self, clock: &Hand) -> Result<FileApprovals, ApprovalFileError> {
            FileApprovals::open(&self.0.join("approvals"), &SETTINGS, clock)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn what_was_asked_and_answered_survives_and_what_was_spent_does_not() {
        let (folder, clock) = (Folder::new(), Hand::new());
        let ask = |store: &FileApprovals, tool: &str| {
            let mut asked = question("ana", "mail", tool);
            asked.asked = clock.now();
            asked.expires = clock.now() + SETTINGS.timeout;
            asked.arguments = "{\"to\":\"\\\\u{202e}\"}".into();
            store.ask(asked, &SETTINGS, clock.instant()).unwrap().open.question
        };
        let store = folder.open(&clock).unwrap();
        let [waits, approved, spent] = ["a", "b", "c"].map(|tool| ask(&store, tool));
        for one in [&approved, &spent] {
            store.answer(&one.id, ApprovalVerdict::Approve, clock.instant()).unwrap();
        }
        assert!(store.spend(&spent.id, &spent.binding, clock.instant()));
        drop(store);
        let store = folder.open(&clock).unwrap();
        let all = store.all(clock.instant());
        assert_eq!(all.len(), 2);
        let found = store.find(&waits.binding, clock.instant()).unwrap();
        assert_eq!(*found.state.borrow(), ApprovalState::Waiting);
        assert_eq!(format!("{:?}", found.question), format!("{waits:?}"));
        assert!(!store.spend(&spent.id, &spent.binding, clock.instant()), "spent once");
        assert!(store.spend(&approved.id, &approved.binding, clock.instant()));
        store.answer(&waits.id, ApprovalVerdict::Deny, clock.instant()).unwrap();
        drop(store);
        let store = folder.open(&clock).unwrap();
        let found = store.get(&waits.id, clock.instant()).unwrap();
        assert_eq!(*found.state.borrow(), ApprovalState::Denied, "a denial stands");
        drop(store);
        clock.advance(SETTINGS.timeout + Duration::from_secs(1));
        assert!(folder.open(&clock).unwrap().all(clock.instant()).is_empty());
    }

    #[test]
    fn one_process_uses_a_file_and_nobody_else_can_change_it() {
        let (folder, clock) = (Folder::new(), Hand::new());
        let store = folder.open(&clock).unwrap();
        let file = folder.0.join("approvals");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(folder.open(&clock), Err(ApprovalFileError::InUse(_))));
        drop(store);
        for open in [0o666, 0o660, 0o602] {
            fs::set_permissions(&file, fs::Permissions::from_mode(open)).unwrap();
            assert!(matches!(folder.open(&clock), Err(ApprovalFileError::OpenToOthers(_))));
        }
        // One that others can only read is closed to them.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        drop(folder.open(&clock).unwrap());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let link = folder.0.join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let linked = FileApprovals::open(&link, &SETTINGS, &clock);
        assert!(matches!(linked, Err(ApprovalFileError::Open(..))));
        // Each part of the file is replaced by one of another: the process goes on with what it is then.
        let (other, whole) = (Folder::new(), fs::read(&file).unwrap());
        drop(other.open(&clock).unwrap());
        let fresh = fs::read(other.0.join("approvals")).unwrap();
        for start in (0..whole.len()).step_by(whole.len() / 16) {
            let mut mixed = whole.clone();
            let most = fresh.len().min(mixed.len());
            mixed[start.min(most)..most].copy_from_slice(&fresh[start.min(most)..most]);
            mixed.truncate(whole.len() - start / 2);
            fs::write(&file, mixed).unwrap();
            drop(folder.open(&clock));
        }
        fs::write(&file, "no database").unwrap();
        assert!(matches!(folder.open(&clock), Err(ApprovalFileError::Content(..))));
        assert_eq!(fs::read(&file).unwrap(), b"no database", "nothing is lost");
    }
}
