//! Decides how far the content of a watched file can be trusted.
//!
//! A file that is written in place may be read half written: it is valid, but its end is missing. An entry is
//! therefore revoked when it is first seen, and a missing entry is lifted only after two checks, some time apart,
//! have found the same content. A file that is missing or unreadable changes nothing.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use policy::subject::revoked::RevocationList;

use crate::base::sha256::sha256;

/// Minimum time between two equal checks: a little less than the interval of checks, which may come early.
const APART: Duration = Duration::from_millis(900);

/// Identifies one state of the file, including a rewrite with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    digest: [u8; 32],
    place: (u64, u64),
    changed: [i64; 4],
}

impl FileVersion {
    pub(super) fn of(data: &Metadata, text: &[u8]) -> Self {
        let changed = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
        Self { digest: sha256(text), place: (data.dev(), data.ino()), changed }
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileCheckOutcome {
    /// The file has what is in force.
    Same,
    /// The file has new entries, which are in force now.
    Added,
    /// The file lacks entries; another check must confirm it.
    Waits,
    /// The file has lacked entries for long enough, and they are lifted.
    Lifted,
}

/// The revocations of the file that are in force.
#[derive(Debug, Default)]
pub(super) struct SettledRevocations {
    force: RevocationList,
    /// A state of the file that would lift entries, and when it was first seen.
    next: Option<(FileVersion, Instant)>,
}

impl SettledRevocations {
    /// Starts with these revocations in force.
    pub(super) const fn new(force: RevocationList) -> Self {
        Self { force, next: None }
    }

    pub(super) const fn force(&self) -> &RevocationList {
        &self.force
    }

    /// Whether entries are lifted if the file does not change again.
    pub(super) const fn waits(&self) -> bool {
        self.next.is_some()
    }

    /// The file could not be read: a removal must be confirmed twice again.
    pub(super) fn doubt(&mut self) {
        self.next = None;
    }

    /// Processes the content `says` of the file at `now`.
    pub(super) fn look(
        &mut self,
        mark: FileVersion,
        says: &RevocationList,
        now: Instant,
    ) -> FileCheckOutcome {
        if self.force.is_within(says) {
            self.next = None;
            let more = self.force != *says;
            self.force.add(says);
            return if more { FileCheckOutcome::Added } else { FileCheckOutcome::Same };
        }
        match self.next {
            Some((seen, since)) if seen == mark => {
                if now.saturating_duration_since(since) >= APART {
                    *self = Self::new(says.clone());
                    return FileCheckOutcome::Lifted;
                }
            }
            Some(_) | None => self.next = Some((mark, now)),
        }
        self.force.add(says);
        FileCheckOutcome::Waits
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use policy::subject::revoked::RevocationList;

    use super::{FileCheckOutcome, FileVersion, SettledRevocations};

    const TURN: Duration = Duration::from_secs(1);

    fn names(names: &[&str]) -> RevocationList {
        let principals = names.iter().map(|name| (*name).into()).collect();
        RevocationList { principals, ..RevocationList::default() }
    }

    fn mark(digest: u8) -> FileVersion {
        FileVersion { digest: [digest; 32], place: (1, 1), changed: [0; 4] }
    }

    #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
    fn begin() -> Instant {
        Instant::now()
    }

    #[test]
    fn what_is_added_binds_at_once_and_what_is_taken_out_is_seen_twice() {
        let (mut file, start) = (SettledRevocations::new(names(&["a", "b"])), begin());
        assert_eq!(file.look(mark(1), &names(&["a", "b", "c"]), start), FileCheckOutcome::Added);
        assert_eq!(file.look(mark(2), &names(&["b", "d"]), start), FileCheckOutcome::Waits);
        assert_eq!(*file.force(), names(&["a", "b", "c", "d"]));
        // Checks at the same moment count as one.
        assert_eq!(file.look(mark(2), &names(&["b", "d"]), start), FileCheckOutcome::Waits);
        assert_eq!(file.look(mark(2), &names(&["b", "d"]), start + TURN), FileCheckOutcome::Lifted);
        assert_eq!(*file.force(), names(&["b", "d"]));
        assert_eq!(file.look(mark(2), &names(&["b", "d"]), start + TURN), FileCheckOutcome::Same);
    }

    #[test]
    fn a_file_that_goes_on_changing_lifts_nothing() {
        let (mut file, start) = (SettledRevocations::new(names(&["a", "b"])), begin());
        for n in 0..10 {
            let now = start + TURN * u32::from(n);
            assert_eq!(file.look(mark(n), &names(&["a"]), now), FileCheckOutcome::Waits);
        }
        assert_eq!(*file.force(), names(&["a", "b"]));
        assert_eq!(
            file.look(mark(10), &names(&["a", "b"]), start + TURN * 10),
            FileCheckOutcome::Same
        );
        assert!(!file.waits());
    }

    #[test]
    fn a_file_that_was_unusable_in_between_is_seen_twice_anew() {
        let (mut file, start) = (SettledRevocations::new(names(&["a"])), begin());
        assert_eq!(file.look(mark(1), &names(&[]), start), FileCheckOutcome::Waits);
        file.doubt();
        assert_eq!(file.look(mark(1), &names(&[]), start + TURN), FileCheckOutcome::Waits);
        assert_eq!(*file.force(), names(&["a"]));
        assert_eq!(file.look(mark(1), &names(&[]), start + TURN * 2), FileCheckOutcome::Lifted);
    }
}
