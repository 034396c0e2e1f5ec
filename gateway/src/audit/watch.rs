//! Whether a file that is written to is still what stands at its path, and whether its volume has room.
//!
//! A file that was removed or moved away takes what is written to it as before, and nobody will ever read that.

use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::fstatvfs;

/// What refusals leave free on a volume for the records of calls, in bytes; a quarter of a volume that is small.
const RESERVED: u64 = 64 * 1024 * 1024;

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Nothing stands at its path any more.
    Removed,
    /// Something else stands there.
    Replaced,
    /// It is shorter than what was written.
    Cut,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "the file was removed while it was written to",
            Self::Replaced => "the file was replaced while it was written to",
            Self::Cut => "the file was cut while it was written to",
        })
    }
}

/// A file to look at, without holding up who writes to it.
#[derive(Clone, Debug)]
pub struct Watch {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    /// How much was written to it.
    pub(super) bytes: u64,
    /// What became of it, where that is known already.
    pub(super) known: Option<Lost>,
}

impl Watch {
    /// What became of the file, where it is no longer what it was. A folder that may not be looked into says
    /// nothing either way.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        let own = self.file.metadata().ok()?;
        if own.nlink() == 0 {
            return Some(Lost::Removed);
        }
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) != (own.dev(), own.ino()) => {
                Some(Lost::Replaced)
            }
            Ok(_) => (own.len() < self.bytes).then_some(Lost::Cut),
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                .then_some(Lost::Removed),
        }
    }

    /// Whether what is left on its volume, as `volume` says it, is kept for the records of calls. A volume that says
    /// nothing has room: a record that it does not take is refused all the same.
    #[must_use]
    pub fn is_scarce(&self, volume: Volume) -> bool {
        volume(&self.file).is_some_and(|Space { free, all }| free < RESERVED.min(all / 4))
    }
}

/// What a volume has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What is left for us.
    pub free: u64,
    /// All of it.
    pub all: u64,
}

/// Says what the volume of a file has, where that can be known.
pub type Volume = fn(&File) -> Option<Space>;

/// What the system says of the volume of `file`.
#[must_use]
pub fn volume(file: &File) -> Option<Space> {
    let volume = fstatvfs(file).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(volume.f_frsize);
    Some(Space { free: bytes(volume.f_bavail), all: bytes(volume.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::{Lost, Space, Volume, Watch, volume};
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
        let watch = Watch { path: path.clone(), file: Arc::new(file), bytes: 4, known: None };
        assert_eq!(watch.lost(), None);
        watch.file.set_len(3).unwrap();
        assert_eq!(watch.lost(), Some(Lost::Cut));
        watch.file.set_len(5).unwrap();
        assert_eq!(watch.lost(), None, "it may have grown since");
        fs::rename(&path, &aside).unwrap();
        assert_eq!(watch.lost(), Some(Lost::Removed));
        fs::write(&path, "1234").unwrap();
        assert_eq!(watch.lost(), Some(Lost::Replaced));
        fs::rename(&aside, &path).unwrap();
        assert_eq!(watch.lost(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(watch.lost(), Some(Lost::Removed));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(watch.lost(), Some(Lost::Removed));
    }
    #[test]
    fn what_is_left_for_calls_is_64_mib_or_a_quarter_of_a_small_volume() {
        const MIB: u64 = 1024 * 1024;
        let path = std::env::temp_dir().join(format!("portcullis-room-{}", std::process::id()));
        let file = Arc::new(File::create(&path).unwrap());
        assert!(volume(&file).is_some_and(|space| space.free <= space.all && space.all > 0));
        let watch = Watch { path: path.clone(), file, bytes: 0, known: None };
        let cases: [(Volume, bool); 6] = [
            (|_| Some(Space { free: 64 * MIB, all: 1000 * MIB }), false),
            (|_| Some(Space { free: 64 * MIB - 1, all: 1000 * MIB }), true),
            (|_| Some(Space { free: 10 * MIB, all: 40 * MIB }), false),
            (|_| Some(Space { free: 10 * MIB - 1, all: 40 * MIB }), true),
            (|_| Some(Space { free: 0, all: 0 }), false),
            (|_| None, false),
        ];
        for (n, (space, scarce)) in cases.into_iter().enumerate() {
            assert_eq!(watch.is_scarce(space), scarce, "case {n}");
        }
        fs::remove_file(&path).unwrap();
    }
}
