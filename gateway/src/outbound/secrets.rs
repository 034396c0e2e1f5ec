//! Secrets from environment variables, files and programs, which are read again while the gateway runs.
//!
//! A program runs without a shell and with a minimal environment; its output is bounded and kept only in the
//! [`Secret`], and its error output is discarded. A changed file takes effect after two equal readings, so that a
//! file being written is not used. If a secret cannot be read again, its last value stays in use; that of a program
//! only for `maxStale`, after which requests that need it fail.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fmt};

use arc_swap::ArcSwap;
use http::HeaderValue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::base::clock::Clock;
use crate::base::error_chain::ErrorChain;
use crate::base::file::{self, FileTasks, FileWatch};
use crate::base::secret::Secret;
use crate::base::sha256::sha256;
use crate::base::task::Tasks;
use crate::config::settings::{SECRET, SecretCommand, SecretRef};
use crate::metrics::Metrics;
use crate::process::sandbox;

/// The maximum output of a program, in bytes.
const OUTPUT: usize = 64 * 1024;
/// The variables that a program inherits from the gateway's environment.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Interval of checks whether a program that has closed its output has ended.
const PAUSE: Duration = Duration::from_millis(5);
/// How much longer than the `timeout` of its program a reading may take.
const MARGIN: Duration = Duration::from_secs(5);
/// The pause before a program that failed runs again, unless its `cacheTime` is shorter.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// A secret cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("could not read the secret from {place}")]
pub struct SecretError {
    /// The source, in words.
    pub place: String,
    /// The error from reading the source.
    #[source]
    pub cause: io::Error,
}

/// A secret whose value may change.
pub struct LiveSecret {
    /// The source; `None` for a value that never changes.
    source: Option<SecretRef>,
    kept: ArcSwap<SecretValue>,
    state: Mutex<SecretReadState>,
    /// Runs one reading at a time.
    aside: FileTasks,
    clock: Arc<dyn Clock>,
}

/// A value, and when the last reading that found it began.
struct SecretValue {
    secret: Arc<Secret>,
    read: Instant,
}

/// The state of the readings.
#[derive(Debug)]
struct SecretReadState {
    /// When the last attempt ended.
    tried: Instant,
    /// The last attempt failed.
    is_failing: bool,
    /// The digest of a changed value that was read once and has not taken effect.
    seen: Option<[u8; 32]>,
}

impl fmt::Debug for LiveSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveSecret").field("source", &self.source).finish_non_exhaustive()
    }
}

impl LiveSecret {
    fn new(source: Option<SecretRef>, secret: Secret, clock: Arc<dyn Clock>) -> Self {
        let read = clock.instant();
        Self {
            source,
            kept: ArcSwap::from_pointee(SecretValue { secret: Arc::new(secret), read }),
            state: Mutex::new(SecretReadState { tried: read, is_failing: false, seen: None }),
            aside: FileTasks::default(),
            clock,
        }
    }

    /// A secret that never changes.
    #[must_use]
    pub fn fixed(secret: Secret, clock: Arc<dyn Clock>) -> Self {
        Self::new(None, secret, clock)
    }

    /// The current value.
    ///
    /// # Errors
    /// If it could not be read again for longer than `maxStale`.
    pub fn now(&self) -> Result<Arc<Secret>, SecretError> {
        let kept = self.kept.load();
        if self.is_too_old(&kept) {
            let what = "it could not be run again for longer than `maxStale`";
            return Err(self.error(io::Error::new(io::ErrorKind::TimedOut, what)));
        }
        Ok(Arc::clone(&kept.secret))
    }

    /// The value as a bearer token for `Authorization` (RFC 6750, section 2.1); `None` if there is no current value
    /// or it is not valid in a header.
    #[must_use]
    pub fn bearer(&self) -> Option<HeaderValue> {
        let secret = self.now().ok()?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", secret.expose())).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    fn is_too_old(&self, kept: &SecretValue) -> bool {
        let age = self.clock.instant().saturating_duration_since(kept.read);
        match &self.source {
            Some(SecretRef::Command(command)) => age > command.cache_time + command.max_stale,
            Some(SecretRef::Env(_) | SecretRef::File(_)) | None => false,
        }
    }

    fn error(&self, cause: io::Error) -> SecretError {
        let place = self.source.as_ref().map(place).unwrap_or_default();
        SecretError { place, cause }
    }

    fn state(&self) -> MutexGuard<'_, SecretReadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is time to read the secret again.
    fn is_due(&self) -> bool {
        match &self.source {
            Some(SecretRef::File(_)) => true,
            Some(SecretRef::Command(command)) => {
                let now = self.clock.instant();
                let (tried, is_failing) = {
                    let state = self.state();
                    (state.tried, state.is_failing)
                };
                let pause = if is_failing {
                    RETRY_PAUSE.min(command.cache_time)
                } else {
                    command.cache_time
                };
                now.saturating_duration_since(tried) >= pause
            }
            Some(SecretRef::Env(_)) | None => false,
        }
    }

    /// The time limit of a reading.
    fn patience(&self) -> Duration {
        match &self.source {
            Some(SecretRef::Command(command)) => command.timeout + MARGIN,
            Some(SecretRef::File(_) | SecretRef::Env(_)) | None => file::CHECK_TIMEOUT,
        }
    }

    /// Reads the secret again. Returns whether a new value took effect.
    fn read_again(&self, why: ReadReason) -> Result<bool, SecretError> {
        let Some(source) = &self.source else { return Ok(false) };
        let begun = self.clock.instant();
        let found = read(source, &*self.clock);
        let mut state = self.state();
        if self.kept.load().read > begun {
            // A reading that began later has already ended with a newer result.
            return Ok(false);
        }
        state.tried = self.clock.instant();
        let secret = found.inspect_err(|_| state.seen = None)?;
        let digest = sha256(secret.expose().as_bytes());
        let is_same = self.kept.load().secret.expose() == secret.expose();
        let has_settled = why == ReadReason::Asked || state.seen == Some(digest);
        if !is_same && matches!(source, SecretRef::File(_)) && !has_settled {
            state.seen = Some(digest);
            return Ok(false);
        }
        state.seen = None;
        self.kept.store(Arc::new(SecretValue { secret: Arc::new(secret), read: begun }));
        Ok(!is_same)
    }
}

/// The reason for reading a secret again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadReason {
    /// The regular interval has passed.
    Time,
    /// The configuration is reloaded, or a reading was requested.
    Asked,
}

/// The secrets in use; one entry for each source.
#[derive(Debug)]
pub struct SecretStore {
    known: Mutex<BTreeMap<SecretRef, Weak<LiveSecret>>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl SecretStore {
    /// A store without any secrets.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self { known: Mutex::default(), clock, metrics }
    }

    fn known(&self) -> Vec<Arc<LiveSecret>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, live| live.strong_count() > 0);
        known.values().filter_map(Weak::upgrade).collect()
    }

    /// The secret at `source`, read now. If a program that is already in use fails, its last value stays in use.
    ///
    /// # Errors
    /// If it cannot be read, or is empty.
    pub fn hold(&self, source: &SecretRef) -> Result<Arc<LiveSecret>, SecretError> {
        let known = self.known().into_iter().find(|live| live.source.as_ref() == Some(source));
        if let Some(live) = known {
            match (self.read_again(&live, ReadReason::Asked), source) {
                (Err(_), SecretRef::Command(_)) => drop(live.now()?),
                (Err(error), SecretRef::Env(_) | SecretRef::File(_)) => return Err(error),
                (Ok(()), _) => {}
            }
            return Ok(live);
        }
        let secret = read(source, &*self.clock)?;
        let live = LiveSecret::new(Some(source.clone()), secret, Arc::clone(&self.clock));
        let live = Arc::new(live);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(source.clone(), Arc::downgrade(&live));
        Ok(live)
    }

    /// Reads a secret again, and logs and counts the outcome. The log says only that the value has changed.
    fn read_again(&self, live: &LiveSecret, why: ReadReason) -> Result<(), SecretError> {
        let [good, bad] = &self.metrics.secrets;
        let done = live.read_again(why);
        let was_failing = std::mem::replace(&mut live.state().is_failing, done.is_err());
        let from = live.source.as_ref().map(place).unwrap_or_default();
        match &done {
            Ok(is_other) => {
                good.add(1);
                if *is_other {
                    tracing::info!(
                        event = "secret.changed", %from,
                        "a secret has changed; the new value is in use"
                    );
                }
                if was_failing {
                    tracing::info!(event = "secret.readable", %from, "a secret can be read again");
                }
            }
            Err(error) => {
                bad.add(1);
                if !was_failing {
                    let error = ErrorChain(error);
                    tracing::error!(
                        event = "secret.refresh_failed", %error,
                        "a secret could not be read again; keeping the previous value"
                    );
                }
            }
        }
        let stale = self.known().iter().filter(|live| live.state().is_failing).count();
        self.metrics.secrets_stale.store(stale as u64, Ordering::Relaxed);
        done.map(drop)
    }

    /// Reads all secrets again, regardless of their intervals.
    pub fn read_all(&self) {
        for live in self.known() {
            // The outcome was logged.
            drop(self.read_again(&live, ReadReason::Asked));
        }
    }

    /// Reads secrets again at their intervals, until the gateway stops. A slow reading does not delay others.
    pub async fn tend(self: Arc<Self>, tasks: Tasks) {
        let mut watch = FileWatch::new(tasks.clone());
        while watch.next().await.is_some() {
            for live in self.known().into_iter().filter(|live| live.is_due()) {
                let (store, aside) = (Arc::clone(&self), live.aside.clone());
                let (patience, name) = (live.patience(), live.source.as_ref().map(place));
                let ending = tasks.clone();
                tasks.spawn_service(async move {
                    let look = move || drop(store.read_again(&live, ReadReason::Time));
                    let done = tokio::select! {
                        done = aside.run(patience, look) => done,
                        () = ending.halting() => Ok(()),
                    };
                    if done == Err(file::FileTaskError::Late) {
                        tracing::warn!(
                            event = "secret.refresh_timeout",
                            from = name,
                            "reading a secret takes longer than its time limit"
                        );
                    }
                });
            }
        }
    }
}

/// The secrets of one configuration, each read only once while it is built.
#[derive(Debug, Default)]
pub struct ConfigSecrets(Mutex<BTreeMap<SecretRef, Arc<LiveSecret>>>);

impl ConfigSecrets {
    /// The secret at `source`, taken from `store` on first use.
    ///
    /// # Errors
    /// If it cannot be read, or is empty.
    pub fn hold(
        &self,
        store: &SecretStore,
        source: &SecretRef,
    ) -> Result<Arc<LiveSecret>, SecretError> {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = read.get(source) {
            return Ok(Arc::clone(live));
        }
        let live = store.hold(source)?;
        read.insert(source.clone(), Arc::clone(&live));
        Ok(live)
    }
}

/// Describes the source of a secret for messages, without the arguments of a program.
#[must_use]
pub fn place(source: &SecretRef) -> String {
    match source {
        SecretRef::Env(name) => format!("the environment variable `{name}`"),
        SecretRef::File(path) => format!("the file `{}`", path.display()),
        SecretRef::Command(command) => format!("the program `{}`", command.program.display()),
    }
}

/// Reads a secret.
///
/// # Errors
/// If it cannot be read, or is empty.
pub fn read(source: &SecretRef, clock: &dyn Clock) -> Result<Secret, SecretError> {
    let text = match source {
        SecretRef::Env(name) => {
            let missing = |_| io::Error::new(io::ErrorKind::NotFound, "not set, or not UTF-8");
            env::var(name).map_err(missing)
        }
        SecretRef::File(path) => file::text(path, SECRET),
        SecretRef::Command(command) => run(command, clock),
    };
    let failed = |cause| SecretError { place: place(source), cause };
    let text = text.map_err(failed)?;
    // Files and programs end their output with a line end that is not part of the secret.
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is empty")));
    }
    Ok(Secret::new(text.into()))
}

/// Runs a program and returns its standard output.
fn run(command: &SecretCommand, clock: &dyn Clock) -> io::Result<String> {
    command.may_run()?;
    let end = clock.instant() + command.timeout;
    let inherited = INHERITED.iter().filter_map(|name| Some((*name, env::var_os(name)?)));
    // Without the gateway's terminal, and in a separate process group, so that child processes are stopped with it.
    let mut child = sandbox::detached(&command.program, &command.args)?
        .env_clear()
        .envs(inherited)
        .current_dir(SecretCommand::FOLDER)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let out = output(&mut child, end, clock)
        .and_then(|out| ended_well(&child, end, clock).map(|()| out))
        .inspect_err(|_| stop(&mut child))?;
    child.wait()?;
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "its output is not UTF-8");
    String::from_utf8(out).map_err(invalid)
}

/// Reads the output of a program until every process that holds it has closed it. On this thread, because a reader
/// thread would outlive the time limit while such a process keeps the output open.
fn output(child: &mut Child, end: Instant, clock: &dyn Clock) -> io::Result<Vec<u8>> {
    let mut stdout = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
    let (mut out, mut part) = (Vec::new(), [0; 4096]);
    loop {
        await_output(&stdout, end, clock)?;
        let length = match stdout.read(&mut part) {
            Ok(0) => return Ok(out),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        out.extend_from_slice(part.get(..length).unwrap_or_default());
        if out.len() > OUTPUT {
            let what = format!("its output is longer than {OUTPUT} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
    }
}

/// Waits until `stdout` is readable: it has output or has ended.
fn await_output(stdout: &ChildStdout, end: Instant, clock: &dyn Clock) -> io::Result<()> {
    loop {
        let left = end.saturating_duration_since(clock.instant());
        if left.is_zero() {
            return Err(late());
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until a program has ended successfully. Does not reap it, so that its process group id stays valid.
fn ended_well(child: &Child, end: Instant, clock: &dyn Clock) -> io::Result<()> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        if let Some(status) = waitid(WaitId::Pid(Pid::from_child(child)), look)? {
            let what = "it ended with an error; run it by hand to see which";
            return match status.exit_status() {
                Some(0) => Ok(()),
                Some(_) | None => Err(io::Error::other(what)),
            };
        }
        if clock.instant() >= end {
            return Err(late());
        }
        thread::sleep(PAUSE);
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not end within its `timeout`")
}

/// Kills a program that was not reaped, with its process group.
fn stop(child: &mut Child) {
    if let Err(error) = kill_process_group(Pid::from_child(child), Signal::KILL) {
        tracing::debug!(%error, "the program that prints a secret has no process group yet");
        drop(child.kill());
    }
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use json::hex;

    use super::{LiveSecret, ReadReason, read};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::base::file::may_run;
    use crate::base::random;
    use crate::base::secret::Secret;
    use crate::config::settings::{SecretCommand, SecretRef};

    fn of(program: &str, args: &[&str], timeout: Duration) -> Result<String, ErrorKind> {
        let hour = Duration::from_secs(3600);
        let source = SecretRef::Command(Box::new(SecretCommand {
            program: PathBuf::from(program),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            cache_time: hour,
            timeout,
            max_stale: hour,
        }));
        let secret = read(&source, &SystemClock).map_err(|error| error.cause.kind())?;
        Ok(secret.expose().to_owned())
    }

    #[test]
    fn what_a_program_writes_is_the_secret_without_the_line_end() {
        let long = Duration::from_secs(20);
        assert_eq!(of("/bin/echo", &["a b"], long), Ok("a b".to_owned()));
        assert_eq!(of("/bin/echo", &["$HOME; id"], long), Ok("$HOME; id".to_owned()));
        assert_eq!(of("/bin/sh", &["-c", "exit 3"], long), Err(ErrorKind::Other));
        assert_eq!(of("/bin/sh", &["-c", "echo"], long), Err(ErrorKind::InvalidData));
        assert_eq!(of("/bin/sh", &["-c", "printf '\\377'"], long), Err(ErrorKind::InvalidData));
        assert_eq!(of("/bin/cat", &["/dev/zero"], long), Err(ErrorKind::FileTooLarge));
        assert_eq!(of("/bin/none", &[], long), Err(ErrorKind::NotFound));
        assert_eq!(of("echo", &["x"], long), Err(ErrorKind::InvalidInput));
        let short = Duration::from_millis(50);
        assert_eq!(of("/bin/sh", &["-c", "sleep 600"], short), Err(ErrorKind::TimedOut));
        assert_eq!(of("/bin/sh", &["-c", "exec >&-; sleep 600"], short), Err(ErrorKind::TimedOut));
    }

    #[test]
    fn what_a_program_leaves_behind_costs_no_thread_and_is_stopped_when_it_fails() {
        let random: [u8; 8] = random::bytes().unwrap();
        let file = std::env::temp_dir().join(format!("portcullis-left-{}", hex::encode(&random)));
        let path = file.display().to_string();
        // A process outside of the group keeps the output open after the program was stopped.
        let script = format!("setsid sleep 600 & echo $! > {path}; sleep 600");
        let readers = || {
            let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
            let names = tasks.map(|task| fs::read_to_string(task.path().join("comm")));
            names.flatten().filter(|name| name.trim() == "secret").count()
        };
        let before = readers();
        let short = Duration::from_secs(2);
        assert_eq!(of("/bin/sh", &["-c", &script], short), Err(ErrorKind::TimedOut));
        assert_eq!(readers(), before);
        kill(&file);
        // One in the group ends with a program that ends with an error.
        let script = format!("sleep 600 >&- & echo $! > {path}; exit 3");
        let long = Duration::from_secs(20);
        assert_eq!(of("/bin/sh", &["-c", &script], long), Err(ErrorKind::Other));
        let stat = format!("/proc/{}/stat", fs::read_to_string(&file).unwrap().trim());
        // A process that was not reaped yet has ended as well.
        let runs = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let begun = SystemClock.instant();
        while runs() {
            assert!(SystemClock.instant() - begun < long, "it goes on");
            std::thread::park_timeout(Duration::from_millis(1));
        }
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_reading_that_began_earlier_does_not_replace_what_a_later_one_has_found() {
        let random: [u8; 8] = random::bytes().unwrap();
        let folder =
            std::env::temp_dir().join(format!("portcullis-later-{}", hex::encode(&random)));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("value"), "old").unwrap();
        // The first one says the value as it was, and ends when the second one has ended.
        let script = format!(
            "cd {}; cat value; if mkdir first 2>/dev/null; then until [ -e go ]; do sleep 0.01; done; fi",
            folder.display()
        );
        let hour = Duration::from_secs(3600);
        let source = SecretRef::Command(Box::new(SecretCommand {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), script],
            cache_time: hour,
            timeout: Duration::from_secs(20),
            max_stale: hour,
        }));
        let begun = Secret::new("begun".into());
        let live = LiveSecret::new(Some(source), begun, std::sync::Arc::new(SystemClock));
        let (live, begun) = (&live, SystemClock.instant());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| live.read_again(ReadReason::Time).unwrap());
            while !folder.join("first").exists() {
                assert!(SystemClock.instant() - begun < Duration::from_secs(20));
                std::thread::park_timeout(Duration::from_millis(1));
            }
            fs::write(folder.join("value"), "new").unwrap();
            assert!(live.read_again(ReadReason::Asked).unwrap());
            fs::write(folder.join("go"), "").unwrap();
            assert!(!first.join().unwrap());
        });
        assert_eq!(live.now().unwrap().expose(), "new");
        fs::remove_dir_all(folder).unwrap();
    }

    /// Ends the process whose number is in this file.
    fn kill(file: &Path) {
        let number = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let process = rustix::process::Pid::from_raw(number).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn a_program_that_everybody_can_replace_is_not_run() {
        let random: [u8; 8] = random::bytes().unwrap();
        let folder =
            std::env::temp_dir().join(format!("portcullis-secret-{}", hex::encode(&random)));
        fs::create_dir(&folder).unwrap();
        let program = folder.join("program");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::write(&program, "#!/bin/sh\necho x\n").unwrap();
        mode(&program, 0o600);
        assert_eq!(may_run(&program).unwrap_err().kind(), ErrorKind::PermissionDenied);
        mode(&program, 0o755);
        may_run(&program).unwrap();
        mode(&program, 0o757);
        assert!(may_run(&program).unwrap_err().to_string().contains("every user"));
        mode(&program, 0o755);
        mode(&folder, 0o777);
        assert!(may_run(&program).unwrap_err().to_string().contains("every user"));
        fs::remove_dir_all(folder).unwrap();
    }
}
