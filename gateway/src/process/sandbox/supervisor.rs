//! The process between the gateway and a program: it starts the program, and no process of the program outlives it.
//!
//! A program can put a child into another session and process group, and end before it. Linux then gives the child
//! another parent: the nearest process above that is a subreaper (`prctl(2)`, `PR_SET_CHILD_SUBREAPER`). That is the
//! supervisor, one for each program, so whatever the program has started stays below it. When the program ends, when
//! the gateway asks for it, and when the gateway itself ends in whatever way, the supervisor ends all that is below it.

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

/// How often it is looked whether the gateway is still there, where the kernel does not tell.
const LOOK: Duration = Duration::from_secs(1);
/// The first and the longest pause before processes that have not ended are looked for again.
const PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// What a shell adds to the number of a signal that has ended a program to make an exit code of it.
const BY_SIGNAL: i32 = 128;

/// Starts `program` for the process `gateway`, and returns when none of the program's processes is left: its exit
/// code, or 128 and the number of the signal that has ended it.
///
/// SIGTERM goes on to the program. SIGQUIT, SIGINT, SIGHUP, and the end of the gateway, end all at once.
///
/// # Errors
/// When the program cannot be started, or would not be under control.
pub(super) fn supervise(gateway: Pid, program: Command) -> io::Result<u8> {
    // A key at the gateway's terminal is for the gateway, which ends this as it should.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(stay(gateway, program))
}

/// What a supervisor acts on.
struct Wakes {
    terminate: Signals,
    quit: Signals,
    interrupt: Signals,
    hang_up: Signals,
    child: Signals,
    /// The gateway has ended.
    gone: oneshot::Receiver<()>,
}

impl Wakes {
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
    let mut wakes = Wakes::new(gateway)?;
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let main = Pid::from_child(&program.spawn()?);
    let status = async {
        // The ends of its pipes are the program's alone: when it closes them they are closed.
        dup2_stdin(&nothing)?;
        dup2_stdout(&nothing)?;
        Ok::<_, io::Error>(ended(main, &mut wakes).await)
    };
    let status = status.await;
    let after = end_all(main, &mut wakes.child).await;
    Ok(status?.or(after).map_or(u8::MAX, code))
}

/// Waits until the program has ended, and says how; or until all is to be ended.
async fn ended(main: Pid, wakes: &mut Wakes) -> Option<WaitStatus> {
    loop {
        if let Reaped { main: Some(status), .. } = reap(main) {
            return Some(status);
        }
        tokio::select! {
            // Nothing is ever sent: the thread that watches the gateway ends.
            _ = &mut wakes.gone => return None,
            _ = wakes.quit.recv() => return None,
            _ = wakes.interrupt.recv() => return None,
            _ = wakes.hang_up.recv() => return None,
            _ = wakes.terminate.recv() => terminate(main),
            _ = wakes.child.recv() => {}
        }
    }
}

/// Asks the program to end. Its process was not reaped, so its number is not another's.
fn terminate(main: Pid) {
    // Before it has a group of its own it is alone.
    let told = kill_process_group(main, Signal::TERM);
    if let Err(error) = told.or_else(|_| kill_process(main, Signal::TERM)) {
        tracing::debug!(%error, "the program could not be signalled");
    }
}

/// What tells when the process `gateway` is no longer the one that this was started by. A thread of its own waits for it,
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
    // If it is there now, it is the process that was opened: a number is not given again before its process is gone.
    while is_there() {
        match &opened {
            // It can be read when the process has ended.
            Ok(fd) => match poll(&mut [PollFd::new(fd, PollFlags::IN)], None) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                Err(_) => thread::sleep(LOOK),
            },
            Err(_) => thread::sleep(LOOK),
        }
    }
}

/// What was found when children were reaped.
struct Reaped {
    /// How the program has ended, if it was among them.
    main: Option<WaitStatus>,
    /// Whether there are more children, which have not ended.
    more: bool,
}

/// Reaps every child that has ended, also those that had another parent first.
fn reap(program: Pid) -> Reaped {
    let mut main = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((child, status))) if child == program => main = Some(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Reaped { main, more: true },
            // ECHILD.
            Err(_) => return Reaped { main, more: false },
        }
    }
}

/// Ends everything that is below this process, and returns when nothing is: a process that starts another while it
/// is ended leaves that one here. Processes that this user may not end are left.
async fn end_all(program: Pid, child: &mut Signals) -> Option<WaitStatus> {
    let (mut main, mut pause) = (None, PAUSE);
    loop {
        let swept = end_each();
        let reaped = reap(program);
        main = main.or(reaped.main);
        if !reaped.more || swept == Swept::Refused {
            return main;
        }
        tokio::select! {
            _ = child.recv() => {}
            () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
    }
}

/// What came of ending the processes that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swept {
    /// Those that are left end, or can be ended.
    Going,
    /// There are none that this user may end.
    Refused,
}

/// Ends every process below this one that there is now.
fn end_each() -> Swept {
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
    // Without `/proc` nothing can be found.
    if parents.is_empty() || (found > 0 && refused == found) {
        Swept::Refused
    } else {
        Swept::Going
    }
}

/// Ends a process, if it is still the one that has this parent.
fn end(process: Pid, parent: Pid, own: Pid) -> rustix::io::Result<()> {
    match pidfd_open(process, PidfdFlags::empty()) {
        // The number may have been given to another process since; the descriptor stays with one.
        Ok(fd) if [Some(parent), Some(own)].contains(&parent_of(process)) => {
            pidfd_send_signal(fd, Signal::KILL)
        }
        // The number of an own child is not given again before it is reaped here.
        Err(Errno::NOSYS | Errno::PERM) if parent == own => kill_process(process, Signal::KILL),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether `process` is a descendant of `own`.
fn is_below(parents: &HashMap<Pid, Pid>, process: Pid, own: Pid) -> bool {
    let up = std::iter::successors(parents.get(&process), |parent| parents.get(*parent));
    // What was read at different moments could be a circle.
    up.take(parents.len()).any(|parent| *parent == own)
}

/// Every process that there is, and its parent.
fn parents() -> HashMap<Pid, Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let processes = numbers.filter_map(Pid::from_raw);
    processes.filter_map(|process| Some((process, parent_of(process)?))).collect()
}

/// The exit code that tells how a program has ended, as a shell would.
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
