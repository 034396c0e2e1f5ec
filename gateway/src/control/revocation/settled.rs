//! What a watched file revokes, as far as one look at it can be believed.
//!
//! A file that is written in place is seen half written: it reads well and lacks what comes behind. So what
//! it names is revoked at the first look, and what it no longer names is lifted when two looks that are
//! some time apart have found the same content. A file that is gone or cannot be read says nothing at all.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use policy::revoked::Revoked;

use crate::base::sha256::sha256;

/// How far apart two equal looks have to be: a little less than a turn, which may come early.
const APART: Duration = Duration::from_millis(900);

/// What tells one content of the file from another, also from one that reads the same and was written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    digest: [u8; 32],
    place: (u64, u64),
    changed: [i64; 4],
}

impl Mark {
    pub(super) fn of(data: &Metadata, text: &[u8]) -> Self {
        let changed = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
        Self { digest: sha256(text), place: (data.dev(), data.ino()), changed }
    }
}

/// What became of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The file says what is in force.
    Same,
    /// It names more, which is revoked from now on.
    Added,
    /// It also names less, which has to be seen once more.
    Waits,
    /// It has named less for long enough: that is lifted.
    Lifted,
}

/// What the file has in force.
#[derive(Debug, Default)]
pub(super) struct Settled {
    force: Revoked,
    /// A content that would lift something, and when it was first seen.
    next: Option<(Mark, Instant)>,
}

impl Settled {
    /// What is in force, however it came to be.
    pub(super) const fn new(force: Revoked) -> Self {
        Self { force, next: None }
    }

    pub(super) const fn force(&self) -> &Revoked {
        &self.force
    }

    /// Whether something is lifted if the file stays as it is.
    pub(super) const fn waits(&self) -> bool {
        self.next.is_some()
    }

    /// The file could not be used: what it said before has to be seen twice again.
    pub(super) fn doubt(&mut self) {
        self.next = None;
    }

    /// The file has this content at `now`.
    pub(super) fn look(&mut self, mark: Mark, says: &Revoked, now: Instant) -> Step {
        if self.force.is_within(says) {
            self.next = None;
            let more = self.force != *says;
            self.force.add(says);
            return if more { Step::Added } else { Step::Same };
        }
        match self.next {
            Some((seen, since)) if seen == mark => {
                if now.saturating_duration_since(since) >= APART {
                    *self = Self::new(says.clone());
                    return Step::Lifted;
                }
            }
            Some(_) | None => self.next = Some((mark, now)),
        }
        self.force.add(says);
        Step::Waits
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use policy::revoked::Revoked;

    use super::{Mark, Settled, Step};

    const TURN: Duration = Duration::from_secs(1);

    fn names(names: &[&str]) -> Revoked {
        let principals = names.iter().map(|name| (*name).into()).collect();
        Revoked { principals, ..Revoked::default() }
    }

    fn mark(digest: u8) -> Mark {
        Mark { digest: [digest; 32], place: (1, 1), changed: [0; 4] }
    }

    #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
    fn begin() -> Instant {
        Instant::now()
    }

    #[test]
    fn what_is_added_binds_at_once_and_what_is_taken_out_is_seen_twice() {
        let (mut file, start) = (Settled::new(names(&["a", "b"])), begin());
        assert_eq!(file.look(mark(1), &names(&["a", "b", "c"]), start), Step::Added);
        assert_eq!(file.look(mark(2), &names(&["b", "d"]), start), Step::Waits);
        assert_eq!(*file.force(), names(&["a", "b", "c", "d"]));
        // Looks at one moment are one look.
        assert_eq!(file.look(mark(2), &names(&["b", "d"]), start), Step::Waits);
        assert_eq!(file.look(mark(2), &names(&["b", "d"]), start + TURN), Step::Lifted);
        assert_eq!(*file.force(), names(&["b", "d"]));
        assert_eq!(file.look(mark(2), &names(&["b", "d"]), start + TURN), Step::Same);
    }

    #[test]
    fn a_file_that_goes_on_changing_lifts_nothing() {
        let (mut file, start) = (Settled::new(names(&["a", "b"])), begin());
        for n in 0..10 {
            let now = start + TURN * u32::from(n);
            assert_eq!(file.look(mark(n), &names(&["a"]), now), Step::Waits);
        }
        assert_eq!(*file.force(), names(&["a", "b"]));
        assert_eq!(file.look(mark(10), &names(&["a", "b"]), start + TURN * 10), Step::Same);
        assert!(!file.waits());
    }

    #[test]
    fn a_file_that_was_unusable_in_between_is_seen_twice_anew() {
        let (mut file, start) = (Settled::new(names(&["a"])), begin());
        assert_eq!(file.look(mark(1), &names(&[]), start), Step::Waits);
        file.doubt();
        assert_eq!(file.look(mark(1), &names(&[]), start + TURN), Step::Waits);
        assert_eq!(*file.force(), names(&["a"]));
        assert_eq!(file.look(mark(1), &names(&[]), start + TURN * 2), Step::Lifted);
    }
}
