//! Remembers which lists of a server were not answered in time, so that names of other servers are not looked for in
//! them, call after call.
//!
//! While a list is paused, it is read only for names that no other server of the route has. When the pause ends, one
//! request reads it again, and the others go on without it until that has an answer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy_core::subject::kind::ItemKind;
use tokio::time::Instant;

/// The first pause of a list that was not answered in time. Each further one is twice as long.
const FIRST: Duration = Duration::from_secs(10);
/// The longest pause, after several.
const LONGEST: Duration = Duration::from_secs(300);

/// The pauses of the lists of one server.
#[derive(Debug, Default)]
pub(super) struct ListPauses {
    tools: ListPause,
    prompts: ListPause,
}

impl ListPauses {
    /// The pause of the list of this kind; `None` if its names are never compared with those of other servers.
    pub(super) const fn of(&self, kind: ItemKind) -> Option<&ListPause> {
        match kind {
            ItemKind::Tool => Some(&self.tools),
            ItemKind::Prompt => Some(&self.prompts),
            ItemKind::Resource | ItemKind::Template | ItemKind::Skill | ItemKind::Method => None,
        }
    }
}

/// The pause of one list.
#[derive(Debug, Default)]
pub(super) struct ListPause(Mutex<Option<PauseState>>);

#[derive(Clone, Copy, Debug)]
struct PauseState {
    until: Instant,
    length: Duration,
}

impl ListPause {
    fn state(&self) -> MutexGuard<'_, Option<PauseState>> {
        // Each change is one assignment, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the list is read at `now`: it is not paused, or the pause has ended and nobody else reads it yet.
    pub(super) fn is_read(&self, now: Instant) -> bool {
        let mut state = self.state();
        match &mut *state {
            None => true,
            Some(pause) if now < pause.until => false,
            Some(pause) => {
                // The others go on without it for as long as the next pause would take.
                pause.until = now + pause.length;
                true
            }
        }
    }

    /// The list was not answered in time.
    pub(super) fn timed_out(&self, now: Instant) {
        let mut state = self.state();
        let length = match *state {
            // Another request that has waited for it.
            Some(pause) if now < pause.until && pause.length == FIRST => return,
            Some(pause) => (pause.length * 2).min(LONGEST),
            None => FIRST,
        };
        *state = Some(PauseState { until: now + length, length });
    }

    /// The list was answered.
    pub(super) fn answered(&self) {
        *self.state() = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{FIRST, LONGEST, ListPause};

    #[test]
    fn one_request_reads_a_list_again_after_each_pause() {
        let (pause, start) = (ListPause::default(), Instant::now());
        assert!(pause.is_read(start) && pause.is_read(start));
        pause.timed_out(start);
        pause.timed_out(start);
        assert!(!pause.is_read(start + FIRST / 2));
        let end = start + FIRST;
        assert!(pause.is_read(end));
        assert!(!pause.is_read(end), "somebody else does");
        pause.timed_out(end + FIRST);
        assert!(!pause.is_read(end + FIRST * 2));
        assert!(pause.is_read(end + FIRST * 3));
        let mut now = end + FIRST * 3;
        for _ in 0..10 {
            pause.timed_out(now + FIRST);
            now += LONGEST + FIRST;
            assert!(pause.is_read(now));
        }
        pause.answered();
        assert!(pause.is_read(now) && pause.is_read(now));
    }
}
