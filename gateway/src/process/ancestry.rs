//! Determines from `/proc` which processes another process of this machine descends from.

use std::fs;
use std::io::ErrorKind;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Most processes in a lineage. A process with more ancestors has none.
const DEEPEST: usize = 64;
/// How often a lineage is read again because a process ended in the meantime.
const TRIES: usize = 3;

/// A session, process group or process that a process belongs to (`credentials(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineageEntry {
    /// A session, by the id of its leader.
    Session(Pid),
    /// A process group, by the id of its leader.
    Group(Pid),
    /// The process itself, or one of its ancestors.
    Process(Pid),
}

/// The sessions, groups and processes that a process belongs to, from its first ancestor down to itself. A process
/// whose parent has ended still shares its session and its group with the processes that were started with it. Empty
/// for a process that is not visible here, as in another PID namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage(Vec<LineageEntry>);

/// Why the lineage of a process cannot be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// It is this process or descends from it.
    #[error("the process descends from this one")]
    Below,
    /// It or one of its ancestors ended in the meantime.
    #[error("the process has ended, or its ancestors have while they were looked for")]
    Gone,
    /// It has more ancestors than are followed.
    #[error("the process has more than {DEEPEST} ancestors")]
    Deep,
}

impl Lineage {
    /// The lineage of `process`. `is_below` tells whether a process is this one or known to descend from it, and is
    /// called for `process` and each of its ancestors in turn. Processes that `/proc` hides from this user
    /// (`hidepid`) are left out, with their ancestors.
    ///
    /// # Errors
    /// When the process descends from this one, or that cannot be ruled out.
    pub fn of(process: Pid, is_below: impl FnMut(Pid) -> bool) -> Result<Self, LineageError> {
        Self::read(process, is_below, look)
    }

    fn read(
        process: Pid,
        mut is_below: impl FnMut(Pid) -> bool,
        look: impl Fn(Pid) -> ProcResult,
    ) -> Result<Self, LineageError> {
        let mut found = Err(LineageError::Gone);
        for _ in 0..TRIES {
            found = Self::climb(process, &mut is_below, &look);
            if found != Err(LineageError::Gone) {
                break;
            }
        }
        found
    }

    fn climb(
        process: Pid,
        is_below: &mut impl FnMut(Pid) -> bool,
        look: impl Fn(Pid) -> ProcResult,
    ) -> Result<Self, LineageError> {
        let (mut upwards, mut at) = (Vec::new(), process);
        for _ in 0..DEEPEST {
            if is_below(at) {
                return Err(LineageError::Below);
            }
            upwards.push(LineageEntry::Process(at));
            let parent = match look(at) {
                ProcResult::Gone => return Err(LineageError::Gone),
                ProcResult::Hidden => None,
                ProcResult::Seen(ProcStat { parent, group, session }) => {
                    upwards.extend(group.map(LineageEntry::Group));
                    upwards.extend(session.map(LineageEntry::Session));
                    parent
                }
            };
            let Some(parent) = parent else {
                upwards.reverse();
                return Ok(Self(upwards));
            };
            at = parent;
        }
        Err(LineageError::Deep)
    }

    /// The entry at this step from the top; `None` beyond the process itself.
    #[must_use]
    pub fn at(&self, step: usize) -> Option<LineageEntry> {
        self.0.get(step).copied()
    }

    /// Whether both are lineages of the same process, which is visible here.
    #[must_use]
    pub fn is_of_same_process(&self, other: &Self) -> bool {
        self.0.last().is_some_and(|process| other.0.last() == Some(process))
    }

    /// A lineage with these entries, for tests.
    #[cfg(test)]
    pub(crate) fn made(kin: Vec<LineageEntry>) -> Self {
        Self(kin)
    }
}

/// The result of reading a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcResult {
    Seen(ProcStat),
    /// The process exists, but `/proc` hides it.
    Hidden,
    /// The process has ended, or cannot be read now.
    Gone,
}

/// The relevant fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcStat {
    parent: Option<Pid>,
    group: Option<Pid>,
    session: Option<Pid>,
}

impl ProcStat {
    /// Parses the fourth to the sixth field (`proc_pid_stat(5)`). The second is the name of the program in
    /// parentheses, which can contain any character.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        // 0 stands for a process outside this PID namespace.
        let mut ids = rest.split_whitespace().skip(1).map(|id| id.parse().ok().map(Pid::from_raw));
        let (parent, group, session) = (ids.next()??, ids.next()??, ids.next()??);
        Some(Self { parent, group, session })
    }
}

/// Reads `/proc/PID/stat`, on which the process cannot make the kernel wait.
fn look(process: Pid) -> ProcResult {
    match fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())) {
        Ok(text) => ProcStat::parse(&text).map_or(ProcResult::Gone, ProcResult::Seen),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => ProcResult::Hidden,
        // With `hidepid=2` or without `/proc`, signals still tell whether the process exists.
        Err(error) if error.kind() == ErrorKind::NotFound => match test_kill_process(process) {
            Ok(()) | Err(Errno::PERM) => ProcResult::Hidden,
            Err(_) => ProcResult::Gone,
        },
        Err(_) => ProcResult::Gone,
    }
}

/// The parent of a process; `None` if either is not visible.
#[must_use]
pub fn parent_of(process: Pid) -> Option<Pid> {
    match look(process) {
        ProcResult::Seen(stat) => stat.parent,
        ProcResult::Hidden | ProcResult::Gone => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, getpid, getppid};

    use super::{DEEPEST, Lineage, LineageEntry, LineageError, ProcResult, ProcStat};

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn is(own: i32) -> impl Fn(Pid) -> bool + Copy {
        move |process| process == pid(own)
    }

    fn seen(parent: i32, group: i32, session: i32) -> ProcResult {
        let [parent, group, session] = [parent, group, session].map(Pid::from_raw);
        ProcResult::Seen(ProcStat { parent, group, session })
    }

    #[test]
    fn the_ids_are_found_behind_a_name_that_looks_like_more_fields() {
        for (text, parent) in [
            ("12 (a) S 7 (b) R 9) S 3 12 12 0 -1", Some(3)),
            ("12 (sh) Z 41 12 12 0 -1", Some(41)),
            ("1 (init) S 0 1 1 0 -1", None),
        ] {
            let stat = ProcStat::parse(text).unwrap();
            assert_eq!(stat.parent, parent.map(pid), "{text}");
        }
        let stat = ProcStat::parse("12 (sh) S 3 4 5 0 -1").unwrap();
        assert_eq!((stat.group, stat.session), (Some(pid(4)), Some(pid(5))));
        for without in ["", "12 (sh", "12 (sh) S", "12 (sh) S 3 4", "12 (sh) S a b c"] {
            assert_eq!(ProcStat::parse(without), None, "{without}");
        }
    }

    #[test]
    fn a_lineage_goes_from_the_first_ancestor_down_to_the_process() {
        let look = |process: Pid| match process.as_raw_nonzero().get() {
            1 => seen(0, 1, 1),
            20 => seen(1, 20, 20),
            30 => seen(20, 30, 20),
            _ => ProcResult::Gone,
        };
        let lineage = Lineage::read(pid(30), is(9), look).unwrap();
        let kin = [
            LineageEntry::Session(pid(1)),
            LineageEntry::Group(pid(1)),
            LineageEntry::Process(pid(1)),
            LineageEntry::Session(pid(20)),
            LineageEntry::Group(pid(20)),
            LineageEntry::Process(pid(20)),
            LineageEntry::Session(pid(20)),
            LineageEntry::Group(pid(30)),
            LineageEntry::Process(pid(30)),
        ];
        assert_eq!(lineage, Lineage::made(kin.to_vec()));
        // At every depth, the process itself included.
        for own in [1, 20, 30] {
            assert_eq!(Lineage::read(pid(30), is(own), look), Err(LineageError::Below));
        }
    }

    #[test]
    fn what_cannot_be_followed_to_its_end_has_no_lineage() {
        let own = is(9);
        assert_eq!(Lineage::read(pid(30), own, |_| ProcResult::Gone), Err(LineageError::Gone));
        let circle = |process: Pid| seen(if process == pid(30) { 31 } else { 30 }, 1, 1);
        assert_eq!(Lineage::read(pid(30), own, circle), Err(LineageError::Deep));
        let deepest = i32::try_from(DEEPEST).unwrap();
        let chain = |process: Pid| seen(process.as_raw_nonzero().get() - 1, 1, 1);
        assert!(Lineage::read(pid(deepest), is(5000), chain).is_ok());
        assert_eq!(Lineage::read(pid(deepest + 1), is(5000), chain), Err(LineageError::Deep));
    }

    #[test]
    fn nothing_is_read_above_a_process_that_is_known_to_be_below() {
        let look = |process: Pid| match process.as_raw_nonzero().get() {
            30 => seen(20, 30, 30),
            _ => panic!("it is not looked at"),
        };
        assert_eq!(Lineage::read(pid(30), is(20), look), Err(LineageError::Below));
        assert_eq!(Lineage::read(pid(20), is(20), look), Err(LineageError::Below));
    }

    #[test]
    fn a_process_whose_parent_ends_while_it_is_read_is_found_below_its_next_parent() {
        // 30 was started by 20, which has ended by the time that it is looked at; then 9 is its parent.
        let has_ended = Cell::new(false);
        let look = |process: Pid| match process.as_raw_nonzero().get() {
            30 if has_ended.get() => seen(9, 30, 30),
            30 => seen(20, 30, 30),
            20 => {
                has_ended.set(true);
                ProcResult::Gone
            }
            _ => seen(0, 1, 1),
        };
        assert_eq!(Lineage::read(pid(30), is(9), look), Err(LineageError::Below));
    }

    #[test]
    fn what_is_hidden_ends_a_lineage_and_refuses_nothing() {
        let look =
            |process: Pid| if process == pid(30) { seen(20, 30, 30) } else { ProcResult::Hidden };
        let lineage = Lineage::read(pid(30), is(9), look).unwrap();
        let [process, ended] = [lineage.at(0), lineage.at(4)];
        assert_eq!((process, ended), (Some(LineageEntry::Process(pid(20))), None));
        assert_eq!(Lineage::read(pid(30), is(20), look), Err(LineageError::Below));
    }

    #[test]
    fn a_child_is_below_and_a_parent_is_not() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let below = Lineage::of(Pid::from_child(&child), is(getpid().as_raw_nonzero().get()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(below, Err(LineageError::Below));
        let gone = Lineage::of(Pid::from_child(&child), is(getpid().as_raw_nonzero().get()));
        assert_eq!(gone, Err(LineageError::Gone));
        let parent = getppid().unwrap();
        let above = Lineage::of(parent, is(getpid().as_raw_nonzero().get())).unwrap();
        assert!(above.is_of_same_process(&Lineage::made(vec![LineageEntry::Process(parent)])));
    }
}
