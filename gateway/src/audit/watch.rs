//! Detects that an open audit file is no longer the file at its path, and that its volume is almost full.
//!
//! Writes to a file that was removed or renamed still succeed, but no reader would ever see them.

use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::fstatvfs;

/// Space on a volume that is reserved for the records of calls, in bytes; at most a quarter of the volume.
const RESERVED: u64 = 64 * 1024 * 1024;

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

    /// Whether the free space on its volume is reserved for the records of calls. An unknown amount counts as enough:
    /// if the volume is full, the record is refused anyway.
    #[must_use]
    pub fn is_scarce(&self, volume: SpaceProbe) -> bool {
        volume(&self.file).is_some_and(|VolumeSpace { free, all }| free < RESERVED.min(all / 4))
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
    use super::{FileIntegrity, LossKind, SpaceProbe, VolumeSpace, volume};
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::sync::Arc;

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
            (|_| Some(VolumeSpace { free: 64 * MIB, all: 1000 * MIB }), false),
            (|_| Some(VolumeSpace { free: 64 * MIB - 1, all: 1000 * MIB }), true),
            (|_| Some(VolumeSpace { free: 10 * MIB, all: 40 * MIB }), false),
            (|_| Some(VolumeSpace { free: 10 * MIB - 1, all: 40 * MIB }), true),
            (|_| Some(VolumeSpace { free: 0, all: 0 }), false),
            (|_| None, false),
        ];
        for (n, (space, scarce)) in cases.into_iter().enumerate() {
            assert_eq!(watch.is_scarce(space), scarce, "case {n}");
        }
        fs::remove_file(&path).unwrap();
    }
}
