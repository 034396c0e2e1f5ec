//! Files that people and other programs change while the gateway runs: when to look at them, and how to read, lock
//! and replace them.
//!
//! Only regular files of a bounded size are read, and they are opened without blocking: a pipe in their place is an
//! error. A write creates a new file that replaces the old one, and follows no symbolic link. A disk or network file
//! system that does not answer blocks one thread of the blocking pool and nothing else ([`FileTasks`]).

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use json::hex;
use rustix::fs::{StatVfsMountFlags, statvfs};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, timeout_at};

use crate::base::random;
use crate::base::task::Tasks;

/// Interval between checks for a changed file.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for a check of files, after which the gateway goes on without its result.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of attempts to take a lock that another process holds, and the pause between attempts.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Mode bits: writable by every user, and the sticky bit, which keeps users from replacing files of others in a
/// folder.
const OF_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Says when a file should be read again: regularly, and on SIGHUP.
#[derive(Debug)]
pub struct FileWatch {
    turn: Interval,
    hangup: Option<Signal>,
    tasks: Tasks,
}

/// The reason to read a file again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The interval has passed, so the file could have changed.
    Time,
    /// The process has received SIGHUP: the file is read even if it looks the same.
    Asked,
}

impl FileWatch {
    /// Starts to watch, on the current runtime.
    #[must_use]
    pub fn new(tasks: Tasks) -> Self {
        let turn = tokio::time::interval(WATCH_INTERVAL);
        Self { turn, hangup: signal(SignalKind::hangup()).ok(), tasks }
    }

    /// Waits until the file should be read again; returns `None` when the gateway stops.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        let asked = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.turn.tick() => Some(WatchEvent::Time),
            _ = asked => Some(WatchEvent::Asked),
            () = self.tasks.halting() => None,
        }
    }
}

/// Reads a regular file of at most `longest` bytes and its metadata.
///
/// # Errors
/// If it cannot be read, is not a regular file, or is longer ([`io::ErrorKind::FileTooLarge`]).
pub fn look(path: &Path, longest: u64) -> io::Result<(Metadata, Vec<u8>)> {
    // Without `O_NONBLOCK`, opening a pipe blocks until another process opens it for writing.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let data = regular(&file)?;
    let long = || {
        let message = format!("it is longer than {longest} bytes");
        io::Error::new(io::ErrorKind::FileTooLarge, message)
    };
    if data.len() > longest {
        return Err(long());
    }
    let mut text = Vec::new();
    // The file may grow while it is read.
    io::Read::by_ref(&mut file).take(longest.saturating_add(1)).read_to_end(&mut text)?;
    if text.len() as u64 > longest {
        return Err(long());
    }
    Ok((data, text))
}

/// Reads a regular file of at most `longest` bytes.
///
/// # Errors
/// As for [`look`].
pub fn read(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    look(path, longest).map(|(_, text)| text)
}

/// Reads a regular UTF-8 file of at most `longest` bytes.
///
/// # Errors
/// As for [`look`], and if it is not UTF-8.
pub fn text(path: &Path, longest: u64) -> io::Result<String> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
    String::from_utf8(read(path, longest)?).map_err(invalid)
}

/// Whether every user of the machine can write to the file or to its folder. Returns false for a file whose metadata
/// cannot be read: it cannot be read either.
#[must_use]
pub fn is_open_to_all(path: &Path) -> bool {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    };
    is_writable_to_all(path, 0) || is_writable_to_all(folder, STICKY)
}

/// Whether every user of the machine can write to the file, or replace a folder on the path to it.
#[must_use]
pub fn is_replaceable_by_all(path: &Path) -> bool {
    let mut folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    is_writable_to_all(path, 0) || folders.any(|folder| is_writable_to_all(folder, STICKY))
}

/// Whether the mode lets every user write, unless the bit `sticky` is set. In a sticky folder, such as `/tmp`, users
/// cannot replace files of others.
fn is_writable_to_all(path: &Path, sticky: u32) -> bool {
    // An orchestrator often mounts files with a mode that is writable by all, on a read-only file system.
    let is_fixed =
        || statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::RDONLY));
    let data = fs::metadata(path);
    data.is_ok_and(|data| data.mode() & OF_ALL != 0 && data.mode() & sticky == 0) && !is_fixed()
}

/// Checks that a program may be run to obtain a secret: it is an executable regular file that other users cannot
/// replace.
///
/// # Errors
/// If it may not be run, with the reason as text.
pub fn may_run(program: &Path) -> io::Result<()> {
    let wrong = |kind, what: &str| Err(io::Error::new(kind, what.to_owned()));
    if !program.is_absolute() {
        return wrong(io::ErrorKind::InvalidInput, "it is not an absolute path");
    }
    let data = fs::metadata(program)?;
    if !data.is_file() || data.mode() & 0o111 == 0 {
        return wrong(io::ErrorKind::PermissionDenied, "it is not a program");
    }
    is_not_replaceable(program)
}

/// Checks that other users can neither change the file at `path` nor replace it.
///
/// # Errors
/// If every user of the machine can, with the reason as text, or if there is no such file.
pub fn is_not_replaceable(path: &Path) -> io::Result<()> {
    // The target of a symbolic link counts, and so does every folder on the path to it.
    if is_replaceable_by_all(path) || is_replaceable_by_all(&path.canonicalize()?) {
        let what = "every user of this machine can write to it or to a folder on the way to it: `chmod o-w`";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

fn regular(file: &File) -> io::Result<Metadata> {
    let data = file.metadata()?;
    if data.is_file() {
        return Ok(data);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

/// Appends `end` to the whole file name, so that two files never share the file beside them.
fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The path of the lock file that guards changes of `file`.
#[must_use]
pub fn lock_of(file: &Path) -> PathBuf {
    beside(file, ".lock")
}

/// Takes the lock for changes of `file`, held until the handle is dropped. The lock file is created if it is missing;
/// it is never truncated or written to.
///
/// # Errors
/// If the lock file is a symbolic link or not a regular file, cannot be opened, or is held by another process for too
/// long.
pub fn lock(file: &Path) -> io::Result<File> {
    let path = lock_of(file);
    let told = |error: io::Error| {
        io::Error::new(error.kind(), format!("could not lock `{}`: {error}", path.display()))
    };
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let open = |make: bool| {
        let mut options = OpenOptions::new();
        options.read(true).write(make).create(make).truncate(false).custom_flags(flags);
        options.open(&path)
    };
    let lock = open(true).or_else(|error| match error.kind() {
        // Another user owns the lock file: opening it for reading is enough to lock it.
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => open(false),
        _ => Err(error),
    });
    let lock = lock.map_err(told)?;
    regular(&lock).map_err(told)?;
    for _ in 0..TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(told(error)),
        }
    }
    Err(told(io::Error::new(io::ErrorKind::TimedOut, "another process holds it")))
}

/// Replaces `file` atomically by a file with this text and the same mode and owner: readers see the old text or the
/// new one.
///
/// # Errors
/// If it cannot be written, or is a symbolic link or not a regular file; then `file` is unchanged.
pub fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    replace_while(file, text, || true)
}

/// Like [`replace`], but asks `wanted` once after the new file is written and just before it replaces the old one.
///
/// # Errors
/// As for [`replace`], and if `wanted` returns false ([`io::ErrorKind::TimedOut`]).
pub fn replace_while(file: &Path, text: &[u8], wanted: impl FnOnce() -> bool) -> io::Result<()> {
    let former = match fs::symlink_metadata(file) {
        Ok(data) if data.is_symlink() => {
            return Err(io::Error::other("it is a symbolic link; name the file that it leads to"));
        }
        Ok(data) if !data.is_file() => return Err(io::Error::other("it is not a regular file")),
        Ok(data) => Some(data),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let random: [u8; 8] = random::bytes().map_err(io::Error::other)?;
    let next = beside(file, &format!(".{}.next", hex::encode(&random)));
    let given_up = || io::Error::new(io::ErrorKind::TimedOut, "the change was given up");
    let written = fill(&next, text, former.as_ref())
        .and_then(|()| if wanted() { fs::rename(&next, file) } else { Err(given_up()) });
    if let Err(error) = written {
        if let Err(error) = fs::remove_file(&next) {
            tracing::debug!(
                %error, file = %next.display(),
                "a temporary file could not be removed"
            );
        }
        return Err(error);
    }
    // Syncing the folder makes the new name durable. Not every file system supports it.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")));
    if let Err(error) = folder.and_then(|folder| folder.sync_all()) {
        tracing::debug!(
            %error, file = %file.display(),
            "the folder of a written file could not be synced"
        );
    }
    Ok(())
}

/// Writes a new file: `create_new` follows no link and opens no file that is already there.
fn fill(path: &Path, text: &[u8], former: Option<&Metadata>) -> io::Result<()> {
    let mut out = OpenOptions::new().write(true).create_new(true).open(path)?;
    if let Some(former) = former {
        out.set_permissions(former.permissions())?;
        let now = out.metadata()?;
        if (now.uid(), now.gid()) != (former.uid(), former.gid())
            && let Err(error) = fchown(&out, Some(former.uid()), Some(former.gid()))
        {
            tracing::debug!(
                %error, file = %path.display(),
                "the owner of a replaced file could not be preserved"
            );
        }
    }
    out.write_all(text)?;
    out.sync_all()
}

/// The reason why work on files has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileTaskError {
    /// The time limit passed; the work may still be running.
    #[error("the file system did not answer in time")]
    Late,
    /// Earlier work that was given up has not ended yet.
    #[error("the file system still does not answer")]
    Busy,
    /// The work ended in a panic.
    #[error("the work broke off")]
    Broken,
}

/// Runs work on files in the blocking pool, one piece at a time, so that a file system that does not answer blocks
/// one thread and not one thread per piece of work.
#[derive(Clone, Debug)]
pub struct FileTasks(Arc<Semaphore>);

impl Default for FileTasks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl FileTasks {
    /// Runs `work` and waits for its result for at most `within`. Work that is given up continues until it ends.
    ///
    /// # Errors
    /// If there is no result in time, or earlier work has not ended.
    pub async fn run<T: Send + 'static>(
        &self,
        within: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FileTaskError> {
        let turn = Arc::clone(&self.0).try_acquire_owned().map_err(|_taken| FileTaskError::Busy)?;
        done(turn, Instant::now() + within, work).await
    }

    /// Like [`Self::run`], but waits for earlier work; that wait counts against `within`.
    ///
    /// # Errors
    /// If there is no result in time; after [`FileTaskError::Busy`] the work was not started.
    pub async fn in_turn<T: Send + 'static>(
        &self,
        within: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FileTaskError> {
        let end = Instant::now() + within;
        match timeout_at(end, Arc::clone(&self.0).acquire_owned()).await {
            Ok(Ok(turn)) => done(turn, end, work).await,
            Ok(Err(_)) | Err(_) => Err(FileTaskError::Busy),
        }
    }
}

/// Returns the result of `work` if there is one before `end`. The permit is released when the work ends or panics,
/// not when its caller stops waiting.
async fn done<T: Send + 'static>(
    turn: OwnedSemaphorePermit,
    end: Instant,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FileTaskError> {
    let running = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    match timeout_at(end, running).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(FileTaskError::Broken),
        Err(_) => Err(FileTaskError::Late),
    }
}

/// Whether another process holds an exclusive lock on the file.
#[must_use]
pub fn is_locked(file: &File) -> bool {
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Duration;

    use json::hex;

    use super::{FileTaskError, FileTasks, lock, lock_of, read, replace, replace_while, text};
    use crate::base::random;

    fn folder() -> PathBuf {
        let random: [u8; 8] = random::bytes().unwrap();
        let folder = std::env::temp_dir().join(format!("portcullis-file-{}", hex::encode(&random)));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_lock_is_beside_the_whole_name_and_empties_nothing() {
        let folder = folder();
        let other = folder.join("list.lock");
        fs::write(&other, "what is approved").unwrap();
        drop(lock(&folder.join("list.revoked")).unwrap());
        assert_eq!(fs::read_to_string(&other).unwrap(), "what is approved");
        assert!(folder.join("list.revoked.lock").exists());
        // Locking does not change the content of a lock file.
        let file = folder.join("list");
        assert_eq!(lock_of(&file), other);
        drop(lock(&file).unwrap());
        assert_eq!(fs::read_to_string(&other).unwrap(), "what is approved");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_link_is_followed_to_lock_or_to_write() {
        let folder = folder();
        let (victim, file) = (folder.join("victim"), folder.join("file"));
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, lock_of(&file)).unwrap();
        let error = lock(&file).unwrap_err().to_string();
        assert!(error.contains("file.lock"), "{error}");
        symlink(&victim, &file).unwrap();
        let error = replace(&file, b"new").unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_replaced_keeps_its_mode_and_leaves_nothing_beside_it() {
        let folder = folder();
        let file = folder.join("file");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // A change that is given up at the last moment changes nothing either.
        let given_up = replace_while(&file, b"newer", || false).unwrap_err();
        assert_eq!(given_up.kind(), ErrorKind::TimedOut);
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = folder();
        let file = folder.join("file");
        fs::write(&file, "four").unwrap();
        assert_eq!(text(&file, 4).unwrap(), "four");
        assert_eq!(read(&file, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read(&folder, 3).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read(&folder.join("none"), 3).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&file, [0xff]).unwrap();
        assert_eq!(text(&file, 4).unwrap_err().kind(), ErrorKind::InvalidData);
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert_eq!(read(&pipe, 3).unwrap_err().kind(), ErrorKind::InvalidInput);
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn work_that_does_not_end_holds_one_thread_and_no_caller() {
        let (aside, (end, wait)) = (FileTasks::default(), mpsc::channel::<()>());
        let stuck = aside.run(Duration::ZERO, move || wait.recv().unwrap_or_default()).await;
        assert_eq!(stuck, Err(FileTaskError::Late));
        assert_eq!(aside.run(Duration::ZERO, || ()).await, Err(FileTaskError::Busy));
        end.send(()).unwrap();
        let long = Duration::from_secs(20);
        while aside.run(long, || ()).await == Err(FileTaskError::Busy) {
            tokio::task::yield_now().await;
        }
        assert_eq!(aside.run(long, || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_waits_for_its_turn_is_done_after_earlier_work_or_never() {
        let (aside, (end, wait)) = (FileTasks::default(), mpsc::channel::<()>());
        let stuck = aside.run(Duration::ZERO, move || wait.recv().unwrap_or_default()).await;
        assert_eq!(stuck, Err(FileTaskError::Late));
        let (ran, runs) = mpsc::channel();
        let late = aside.in_turn(Duration::ZERO, move || ran.send(())).await;
        assert!(matches!(late, Err(FileTaskError::Busy)), "{late:?}");
        let next = aside.in_turn(Duration::from_secs(20), || 7);
        end.send(()).unwrap();
        assert_eq!(next.await, Ok(7));
        assert!(runs.recv().is_err(), "what was given up before its turn is not begun");
    }
}
