//! The supervisor process between the gateway and a program: it starts the program, and ends all of its processes.
//!
//! A program can put a child into another session and process group, and end before it. Linux then gives the child
//! another parent: the nearest ancestor that is a subreaper (`prctl(2)`, `PR_SET_CHILD_SUBREAPER`). That is the
//! supervisor, one for each program, so all processes of the program stay its descendants. When the program ends, when
//! the gateway requests it, and when the gateway itself ends for any reason, the supervisor ends all of them.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process,
    kill_process_group, pidfd_open, pidfd_send_signal, set_child_subreaper, setsid, wait,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::process::ancestry::parent_of;

/// Interval at which the gateway's existence is checked, where the kernel does not report its end.
const PARENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The first and the longest pause before the remaining processes are searched for again.
const PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Added to the number of a terminating signal to form an exit code, as in shells.
const BY_SIGNAL: i32 = 128;

/// Starts `program` for the process `gateway`, and returns when no process of the program is left: with its exit
/// code, or 128 plus the number of the signal that terminated it.
///
/// SIGTERM is passed on to the program. SIGQUIT, SIGINT, SIGHUP and the end of the gateway kill all of its processes.
///
/// # Errors
/// When the program cannot be started, or cannot be supervised.
pub(super) fn supervise(gateway: Pid, program: Command) -> io::Result<u8> {
    // A key at the gateway's terminal signals the gateway, which ends this process in order.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(stay(gateway, program))
}

/// The events that a supervisor reacts to.
struct SupervisorEvents {
    terminate: Signals,
    quit: Signals,
    interrupt: Signals,
    hang_up: Signals,
    child: Signals,
    /// Completes when the gateway has ended.
    gone: oneshot::Receiver<()>,
}

impl SupervisorEvents {
    fn new(gateway: Pid) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            child: signal(SignalKind::child())?,
            gone: watched(gateway)?,
        })
    }
}

async fn stay(gateway: Pid, mut program: Command) -> io::Result<u8> {
    let mut wakes = SupervisorEvents::new(gateway)?;
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let main = Pid::from_child(&program.spawn()?);
    let status = async {
        // Only the program holds its ends of the pipes, so that they are closed when it closes them.
        dup2_stdin(&nothing)?;
        dup2_stdout(&nothing)?;
        Ok::<_, io::Error>(ended(main, &mut wakes).await)
    };
    let status = status.await;
    let after = end_all(main, &mut wakes.child).await;
    Ok(status?.or(after).map_or(u8::MAX, code))
}

/// Waits for the end of the program, and returns its status; `None` when everything is to be ended.
async fn ended(main: Pid, wakes: &mut SupervisorEvents) -> Option<WaitStatus> {
    loop {
        if let ReapResult { main: Some(status), .. } = reap(main) {
            return Some(status);
        }
        tokio::select! {
            // Nothing is ever sent: the channel closes when the watching thread ends.
            _ = &mut wakes.gone => return None,
            _ = wakes.quit.recv() => return None,
            _ = wakes.interrupt.recv() => return None,
            _ = wakes.hang_up.recv() => return None,
            _ = wakes.terminate.recv() => terminate(main),
            _ = wakes.child.recv() => {}
        }
    }
}

/// Sends SIGTERM to the program. Its process was not reaped, so its id is not reused.
fn terminate(main: Pid) {
    // Until it has a process group of its own, it is the only process.
    let told = kill_process_group(main, Signal::TERM);
    if let Err(error) = told.or_else(|_| kill_process(main, Signal::TERM)) {
        tracing::debug!(%error, "the program could not be signalled");
    }
}

/// A channel that closes when the process `gateway` is no longer the parent of this one. A thread waits for that,
/// and ends with this process.
fn watched(gateway: Pid) -> io::Result<oneshot::Receiver<()>> {
    let (gone, told) = oneshot::channel();
    thread::Builder::new().name("gateway".to_owned()).spawn(move || {
        await_end(gateway);
        drop(gone);
    })?;
    Ok(told)
}

/// Returns when `gateway` is no longer the parent of this process.
fn await_end(gateway: Pid) {
    let is_there = || getppid() == Some(gateway);
    let opened = pidfd_open(gateway, PidfdFlags::empty());
    // As the parent still exists, it is the process that was opened: an id is not reused while its process exists.
    while is_there() {
        match &opened {
            // A pidfd is readable when its process has ended.
            Ok(fd) => match poll(&mut [PollFd::new(fd, PollFlags::IN)], None) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                Err(_) => thread::sleep(PARENT_CHECK_INTERVAL),
            },
            Err(_) => thread::sleep(PARENT_CHECK_INTERVAL),
        }
    }
}

/// The result of reaping children.
struct ReapResult {
    /// The exit status of the program, if it was among them.
    main: Option<WaitStatus>,
    /// Whether there are children that have not ended.
    more: bool,
}

/// Reaps all children that have ended, including adopted ones.
fn reap(program: Pid) -> ReapResult {
    let mut main = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((child, status))) if child == program => main = Some(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return ReapResult { main, more: true },
            // ECHILD: there are no children.
            Err(_) => return ReapResult { main, more: false },
        }
    }
}

/// Kills all descendants of this process, and returns when none is left: a process that is started by one that
/// is being killed becomes a child of this process. Processes that this user cannot kill are left.
async fn end_all(program: Pid, child: &mut Signals) -> Option<WaitStatus> {
    let (mut main, mut pause) = (None, PAUSE);
    loop {
        let swept = end_each();
        let reaped = reap(program);
        main = main.or(reaped.main);
        if !reaped.more || swept == KillResult::Refused {
            return main;
        }
        tokio::select! {
            _ = child.recv() => {}
            () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
    }
}

/// The result of killing the processes that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillResult {
    /// The rest is ending, or can be killed.
    Going,
    /// This user cannot kill any of them.
    Refused,
}

/// Kills all descendants of this process that exist now.
fn end_each() -> KillResult {
    let parents = parents();
    let own = getpid();
    let (mut found, mut refused) = (0_usize, 0_usize);
    for (process, parent) in &parents {
        if !is_below(&parents, *process, own) {
            continue;
        }
        found += 1;
        refused += usize::from(end(*process, *parent, own) == Err(Errno::PERM));
    }
    // Without `/proc`, descendants cannot be found.
    if parents.is_empty() || (found > 0 && refused == found) {
        KillResult::Refused
    } else {
        KillResult::Going
    }
}

/// Kills a process, if it still has this parent.
fn end(process: Pid, parent: Pid, own: Pid) -> rustix::io::Result<()> {
    match pidfd_open(process, PidfdFlags::empty()) {
        // The id may have been reused in the meantime, but the descriptor refers to a single process.
        Ok(fd) if [Some(parent), Some(own)].contains(&parent_of(process)) => {
            pidfd_send_signal(fd, Signal::KILL)
        }
        // The id of a child of this process is not reused before it is reaped here.
        Err(Errno::NOSYS | Errno::PERM) if parent == own => kill_process(process, Signal::KILL),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether `process` is a descendant of `own`.
fn is_below(parents: &HashMap<Pid, Pid>, process: Pid, own: Pid) -> bool {
    let up = std::iter::successors(parents.get(&process), |parent| parents.get(*parent));
    // Parents that were read at different times could form a cycle.
    up.take(parents.len()).any(|parent| *parent == own)
}

/// All processes with their parents.
fn parents() -> HashMap<Pid, Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let processes = numbers.filter_map(Pid::from_raw);
    processes.filter_map(|process| Some((process, parent_of(process)?))).collect()
}

/// The exit code for the status of a program, as in shells.
fn code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| BY_SIGNAL + signal);
    let code = status.exit_status().or(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rustix::process::Pid;

    use super::is_below;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    #[test]
    fn what_is_below_a_process_is_found_at_every_depth_and_a_circle_ends() {
        let pairs = [(10, 1), (11, 10), (12, 11), (20, 1), (30, 31), (31, 30)];
        let parents: HashMap<_, _> = pairs.map(|(one, up)| (pid(one), pid(up))).into();
        for (process, below) in
            [(10, false), (11, true), (12, true), (20, false), (30, false), (99, false)]
        {
            assert_eq!(is_below(&parents, pid(process), pid(10)), below, "{process}");
        }
    }
}
