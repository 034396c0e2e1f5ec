//! What survives the end of the process, and a disk that fails.

use std::fs;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use redb::backends::FileBackend;
use redb::{BackendError, Database, StorageBackend};

use super::super::memory::tests::{SETTINGS, question};
use super::{ApprovalFileError, CACHE, FileApprovals, REOPEN_INTERVAL, opened};
use crate::base::clock::Clock;
use crate::base::random;
use crate::session::approvals::{
    AnswerError, ApprovalState, ApprovalStore as _, ApprovalVerdict, QuestionLimit,
};

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
        store.answer(&one.id, ApprovalVerdict::Approve, clock.instant(), &|| true).unwrap();
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
    store.answer(&waits.id, ApprovalVerdict::Deny, clock.instant(), &|| true).unwrap();
    drop(store);
    let store = folder.open(&clock).unwrap();
    let found = store.get(&waits.id, clock.instant()).unwrap();
    assert_eq!(*found.state.borrow(), ApprovalState::Denied, "a denial stands");
    drop(store);
    clock.advance(SETTINGS.timeout + Duration::from_secs(1));
    assert!(folder.open(&clock).unwrap().all(clock.instant()).is_empty());
}

/// A disk that takes everything and then says that it did not: the worst that a failed sync leaves.
#[derive(Debug)]
struct FailingDisk {
    file: FileBackend,
    /// After so many syncs each one fails; 255 for never.
    good: Arc<AtomicU8>,
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        let good = self.good.load(Ordering::Relaxed);
        self.good
            .store(if good == u8::MAX { good } else { good.saturating_sub(1) }, Ordering::Relaxed);
        if good == 0 { Err(io::Error::other("told to")) } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

/// A store whose disk fails after `good` syncs, until its file is opened again.
fn on_failing_disk(folder: &Folder, clock: &Hand, good: u8) -> FileApprovals {
    let store = folder.open(clock).unwrap();
    drop(store.file().database.take());
    let backend = FailingDisk {
        file: FileBackend::new(opened(&store.path).unwrap()).unwrap(),
        good: Arc::new(AtomicU8::new(u8::MAX)),
    };
    let syncs = Arc::clone(&backend.good);
    let database = Database::builder().set_cache_size(CACHE).create_with_backend(backend);
    store.file().database = Some(database.unwrap());
    syncs.store(good, Ordering::Relaxed);
    store
}

/// A question that was asked, and the time of it.
fn asked(store: &FileApprovals, clock: &Hand) -> Arc<super::ApprovalQuestion> {
    let mut asked = question("ana", "mail", "send");
    (asked.asked, asked.expires) = (clock.now(), clock.now() + SETTINGS.timeout);
    store.ask(asked, &SETTINGS, clock.instant()).unwrap().open.question
}

#[test]
fn an_approval_that_was_answered_as_not_recorded_is_in_force_neither_now_nor_after_a_restart() {
    // The process is killed at once, or goes on and opens the file again.
    for (good, goes_on) in (0..8).flat_map(|good| [(good, false), (good, true)]) {
        let (folder, clock) = (Folder::new(), Hand::new());
        let first = asked(&folder.open(&clock).unwrap(), &clock);
        let store = on_failing_disk(&folder, &clock, good);
        let answered = store.answer(&first.id, ApprovalVerdict::Approve, clock.instant(), &|| true);
        if let Err(error) = answered {
            assert_eq!((error, store.is_failing()), (AnswerError::Unrecorded, true));
            let state = store.find(&first.binding, clock.instant()).unwrap().state;
            assert_eq!(*state.borrow(), ApprovalState::Waiting);
            if goes_on {
                store.remove(clock.instant(), &|_| true);
                assert!(!store.is_failing());
            }
        } else {
            assert!(good > 0);
        }
        drop(store);
        let store = folder.open(&clock).unwrap();
        let found = store.find(&first.binding, clock.instant());
        if answered.is_err() {
            let state = found.map(|found| found.state.borrow().clone());
            let wanted = (!goes_on).then_some(ApprovalState::Waiting);
            assert_eq!(state, wanted, "after {good} syncs");
        }
        let is_used = store.spend(&first.id, &first.binding, clock.instant());
        assert!(!is_used || answered.is_ok(), "after {good} syncs");
    }
}

#[test]
fn an_answer_that_was_given_up_is_in_force_neither_now_nor_after_a_restart() {
    for verdict in [ApprovalVerdict::Approve, ApprovalVerdict::Deny] {
        let (folder, clock) = (Folder::new(), Hand::new());
        let store = folder.open(&clock).unwrap();
        let first = asked(&store, &clock);
        let given_up = store.answer(&first.id, verdict, clock.instant(), &|| false);
        assert_eq!(given_up.unwrap_err(), AnswerError::Unrecorded);
        let is_usable = |store: &FileApprovals| {
            let found = store.find(&first.binding, clock.instant()).unwrap();
            assert_eq!(*found.state.borrow(), ApprovalState::Waiting, "{verdict:?}");
            store.spend(&first.id, &first.binding, clock.instant())
        };
        assert!(!is_usable(&store));
        drop(store);
        assert!(!is_usable(&folder.open(&clock).unwrap()));
    }
}

#[test]
fn an_approval_that_could_not_be_spent_is_not_used_later() {
    let (folder, clock) = (Folder::new(), Hand::new());
    let first = asked(&folder.open(&clock).unwrap(), &clock);
    let store = on_failing_disk(&folder, &clock, u8::MAX);
    store.answer(&first.id, ApprovalVerdict::Approve, clock.instant(), &|| true).unwrap();
    drop(store);
    let store = on_failing_disk(&folder, &clock, 0);
    assert!(!store.spend(&first.id, &first.binding, clock.instant()), "the disk fails");
    assert!(store.is_failing());
    // The next change finds the disk well, and replaces everything in the file.
    clock.advance(REOPEN_INTERVAL);
    store.remove(clock.instant(), &|_| false);
    assert!(!store.is_failing());
    drop(store);
    let store = folder.open(&clock).unwrap();
    assert!(store.all(clock.instant()).is_empty());
}

#[test]
fn a_file_that_could_not_be_written_is_tried_again_with_the_next_question() {
    let (folder, clock) = (Folder::new(), Hand::new());
    let store = on_failing_disk(&folder, &clock, 0);
    let ask = |tool: &str| {
        let mut asked = question("ana", "mail", tool);
        (asked.asked, asked.expires) = (clock.now(), clock.now() + SETTINGS.timeout);
        store.ask(asked, &SETTINGS, clock.instant()).map(|kept| kept.open.question)
    };
    assert_eq!(ask("a").unwrap_err(), QuestionLimit::Store);
    let path = folder.0.join("approvals");
    // Now it cannot be opened again either.
    let aside = folder.0.join("aside");
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    for _ in 0..10 {
        assert_eq!(ask("a").unwrap_err(), QuestionLimit::Store);
        clock.advance(REOPEN_INTERVAL / 5);
    }
    fs::remove_dir(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    clock.advance(REOPEN_INTERVAL);
    // The attempts took nothing of the rate.
    for tool in ["a", "b"] {
        ask(tool).unwrap();
    }
    assert!(!store.is_failing());
    drop(store);
    assert_eq!(folder.open(&clock).unwrap().all(clock.instant()).len(), 2);
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
