//! Detects that an open audit file is no longer the file at its path, and that its volume is almost full.
//!
//! Writes to a file that was removed or renamed still succeed, but no reader would ever see them.
//!
//! When a volume is almost full, one caller must not use up what is left ([`VolumeReserve`]).

use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::fstatvfs;

use crate::base::caller_counters::{CallerCounters, CallerKey};

/// Space on a volume that is reserved for the records of calls, in bytes; at most a quarter of the volume.
const RESERVED: u64 = 64 * 1024 * 1024;
/// Number of counters of what callers have written to volumes that are almost full.
const COUNTERS: usize = 4096;

/// How a file was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// There is no file at its path any more.
    Removed,
    /// There is another file at its path.
    Replaced,
    /// It is shorter than what was written to it.
    Cut,
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "the file was removed while it was written to",
            Self::Replaced => "the file was replaced while it was written to",
            Self::Cut => "the file was cut while it was written to",
        })
    }
}

/// A handle to check a file without blocking its writer.
#[derive(Clone, Debug)]
pub struct FileIntegrity {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    /// Number of bytes that were written to it.
    pub(super) bytes: u64,
    /// The loss, if it is known already.
    pub(super) known: Option<LossKind>,
}

impl FileIntegrity {
    /// Checks whether the file was lost. A folder that cannot be read counts as no loss.
    #[must_use]
    pub fn lost(&self) -> Option<LossKind> {
        let own = self.file.metadata().ok()?;
        if own.nlink() == 0 {
            return Some(LossKind::Removed);
        }
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) != (own.dev(), own.ino()) => {
                Some(LossKind::Replaced)
            }
            Ok(_) => (own.len() < self.bytes).then_some(LossKind::Cut),
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                .then_some(LossKind::Removed),
        }
    }

    /// The free space of its volume beside what is reserved for the records of calls, if it is known.
    #[must_use]
    pub(super) fn space(&self, volume: SpaceProbe) -> Option<FileSpace> {
        // Some file systems do not know their size, and say 0.
        let VolumeSpace { free, all } = volume(&self.file).filter(|space| space.all > 0)?;
        let reserved = RESERVED.min(all / 4);
        Some(FileSpace { free: free.min(reserved), spare: free.saturating_sub(reserved) })
    }
}

/// The space that a file may still take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileSpace {
    /// What is free of the part that is reserved for the records of calls.
    pub(super) free: u64,
    /// What is free beside it.
    pub(super) spare: u64,
}

impl FileSpace {
    /// The space of a file whose volume is unknown: it counts as enough. If the volume is full, the record is refused
    /// anyway.
    pub(super) const ENOUGH: Self = Self { free: u64::MAX, spare: u64::MAX };

    /// The smaller space of two files.
    #[must_use]
    pub(super) fn least(self, other: Self) -> Self {
        Self { free: self.free.min(other.free), spare: self.spare.min(other.spare) }
    }
}

/// The space that is left on the volumes of the log, and the callers that have used it while it was scarce.
///
/// The operating system is asked once a second; in between, what is written is subtracted. From the moment that only
/// the reserve is left, a caller may write as much of it as it leaves to others. The ends of the space are kept as numbers
/// of bytes written since the start, so that what is written while the operating system is asked counts as well.
#[derive(Debug)]
pub(super) struct VolumeReserve {
    /// Number of bytes written since the start.
    written: AtomicU64,
    /// That number when only the reserve is left.
    spare_ends: AtomicU64,
    /// That number when nothing is left.
    ends: AtomicU64,
    /// The scarcity was told.
    told: AtomicBool,
    /// Something was counted in `callers`.
    counted: AtomicBool,
    callers: CallerCounters,
}

/// A number of bytes written since the start, which was read before the operating system was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenBefore(u64);

impl VolumeReserve {
    pub(super) fn new() -> Self {
        let FileSpace { free, spare } = FileSpace::ENOUGH;
        Self {
            written: AtomicU64::new(0),
            spare_ends: AtomicU64::new(spare),
            ends: AtomicU64::new(free),
            told: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            callers: CallerCounters::new(COUNTERS),
        }
    }

    /// To be called before the operating system is asked, for [`Self::found`].
    pub(super) fn written(&self) -> WrittenBefore {
        WrittenBefore(self.written.load(Ordering::Acquire))
    }

    /// Takes over what the operating system has said. Returns whether the space is scarce, if that has changed.
    pub(super) fn found(&self, space: FileSpace, before: WrittenBefore) -> Option<bool> {
        let spare_ends = before.0.saturating_add(space.spare);
        self.ends.store(spare_ends.saturating_add(space.free), Ordering::Release);
        self.spare_ends.store(spare_ends, Ordering::Release);
        let scarce = self.is_scarce();
        // It may have been scarce for a moment that nobody was told of.
        if !scarce && self.counted.swap(false, Ordering::AcqRel) {
            self.callers.clear();
        }
        (self.told.swap(scarce, Ordering::AcqRel) != scarce).then_some(scarce)
    }

    /// Counts the bytes that a record has taken in the files of the log.
    pub(super) fn wrote(&self, bytes: u64, caller: Option<CallerKey>) {
        let before = self.written.fetch_add(bytes, Ordering::AcqRel);
        if before < self.spare_ends.load(Ordering::Acquire) {
            return;
        }
        if let Some(caller) = caller {
            self.counted.store(true, Ordering::Release);
            self.callers.add(caller, bytes);
        }
    }

    /// Whether only the reserve is left.
    pub(super) fn is_scarce(&self) -> bool {
        self.written().0 >= self.spare_ends.load(Ordering::Acquire)
    }

    /// Whether the caller may have further records.
    pub(super) fn has_share(&self, caller: CallerKey) -> bool {
        let left = self.ends.load(Ordering::Acquire).saturating_sub(self.written().0);
        !self.is_scarce() || self.callers.get(caller) <= left
    }
}

/// The space of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSpace {
    /// The space available to this process.
    pub free: u64,
    /// The total size of the volume.
    pub all: u64,
}

/// Returns the space of a file's volume, if it is known.
pub type SpaceProbe = fn(&File) -> Option<VolumeSpace>;

/// Asks the operating system for the space of the volume of `file`.
#[must_use]
pub fn volume(file: &File) -> Option<VolumeSpace> {
    let volume = fstatvfs(file).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(volume.f_frsize);
    Some(VolumeSpace { free: bytes(volume.f_bavail), all: bytes(volume.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::{
        FileIntegrity, FileSpace, LossKind, SpaceProbe, VolumeReserve, VolumeSpace, volume,
    };
    use crate::base::caller_counters::CallerRates;
    use crate::base::gcra::EventRate;
    use crate::base::share::Holder;
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_file_that_is_removed_replaced_or_cut_is_noticed() {
        let folder = std::env::temp_dir().join(format!("portcullis-watch-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, aside) = (folder.join("a"), folder.join("b"));
        let mut file = File::create(&path).unwrap();
        file.write_all(b"1234").unwrap();
        let watch =
            FileIntegrity { path: path.clone(), file: Arc::new(file), bytes: 4, known: None };
        assert_eq!(watch.lost(), None);
        watch.file.set_len(3).unwrap();
        assert_eq!(watch.lost(), Some(LossKind::Cut));
        watch.file.set_len(5).unwrap();
        assert_eq!(watch.lost(), None, "it may have grown since");
        fs::rename(&path, &aside).unwrap();
        assert_eq!(watch.lost(), Some(LossKind::Removed));
        fs::write(&path, "1234").unwrap();
        assert_eq!(watch.lost(), Some(LossKind::Replaced));
        fs::rename(&aside, &path).unwrap();
        assert_eq!(watch.lost(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(watch.lost(), Some(LossKind::Removed));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(watch.lost(), Some(LossKind::Removed));
    }
    #[test]
    fn what_is_left_for_calls_is_64_mib_or_a_quarter_of_a_small_volume() {
        const MIB: u64 = 1024 * 1024;
        let path = std::env::temp_dir().join(format!("portcullis-room-{}", std::process::id()));
        let file = Arc::new(File::create(&path).unwrap());
        assert!(volume(&file).is_some_and(|space| space.free <= space.all && space.all > 0));
        let watch = FileIntegrity { path: path.clone(), file, bytes: 0, known: None };
        let cases: [(SpaceProbe, bool); 6] = [
            (|_| Some(VolumeSpace { free: 64 * MIB + 1, all: 1000 * MIB }), false),
            (|_| Some(VolumeSpace { free: 64 * MIB, all: 1000 * MIB }), true),
            (|_| Some(VolumeSpace { free: 10 * MIB + 1, all: 40 * MIB }), false),
            (|_| Some(VolumeSpace { free: 10 * MIB, all: 40 * MIB }), true),
            (|_| Some(VolumeSpace { free: 0, all: 0 }), false),
            (|_| None, false),
        ];
        for (n, (space, scarce)) in cases.into_iter().enumerate() {
            let space = watch.space(space);
            assert_eq!(space.is_some_and(|space| space.spare == 0), scarce, "case {n}");
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn one_caller_uses_no_more_of_the_reserve_than_it_leaves() {
        let rates = CallerRates::new(EventRate::new(1, Duration::from_secs(1), 1), [].into());
        let [ana, bob] =
            [1, 2].map(|n| rates.caller(&Holder::network([192, 0, 2, n].into())).key());
        let reserve = VolumeReserve::new();
        let found = |reserve: &VolumeReserve, space| reserve.found(space, reserve.written());
        reserve.wrote(1000, Some(ana));
        assert!(!reserve.is_scarce() && reserve.has_share(ana), "nothing is known of the volume");
        assert_eq!(found(&reserve, FileSpace { free: 100, spare: 50 }), None);
        reserve.wrote(49, Some(ana));
        assert!(!reserve.is_scarce());
        reserve.wrote(49, Some(ana));
        assert!(reserve.is_scarce(), "it is known before the operating system is asked again");
        assert_eq!(found(&reserve, FileSpace { free: 100, spare: 0 }), Some(true));
        for _ in 0..5 {
            assert!(reserve.has_share(ana));
            reserve.wrote(10, Some(ana));
        }
        assert!(reserve.has_share(ana));
        reserve.wrote(10, Some(ana));
        assert!(!reserve.has_share(ana) && reserve.has_share(bob));
        assert_eq!(found(&reserve, FileSpace { free: 40, spare: 0 }), None);
        assert!(!reserve.has_share(ana) && reserve.has_share(bob));
        // What is written while the operating system is asked counts.
        let before = reserve.written();
        reserve.wrote(10, Some(bob));
        assert_eq!(reserve.found(FileSpace { free: 20, spare: 0 }, before), None);
        assert!(reserve.has_share(bob));
        reserve.wrote(1, Some(bob));
        assert!(!reserve.has_share(bob));
        // With more room everybody begins anew.
        assert_eq!(found(&reserve, FileSpace { free: 100, spare: 100 }), Some(false));
        assert!(reserve.has_share(ana));
        // Also after a scarcity of which nobody was told.
        reserve.wrote(200, Some(ana));
        assert!(reserve.is_scarce());
        assert_eq!(found(&reserve, FileSpace { free: 100, spare: 10 }), None);
        assert_eq!(reserve.callers.get(ana), 0);
    }
}
