//! The file of checkpoints alone. Kept where the gateway can only append, it is what proves that the
//! end of the log has not been cut off.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use bytes::Bytes;

use super::file::appending;
use super::sink::{Apart, Sink as _};
use super::spool::{Outlet, Spool};

/// Most bytes of checkpoints that wait for a file that is slow or gone: some two thousand.
const WAITING: usize = 512 * 1024;
/// What stands before some of them and after each: whatever a crash or somebody else has left there does not
/// become a part of them.
const APART: &str = "\n\n";

/// The file, until it is begun.
#[derive(Debug)]
pub struct CheckpointFile {
    file: File,
    /// It is a file, not a pipe or a device.
    regular: bool,
    spool: Spool,
    outlet: Outlet,
}

impl CheckpointFile {
    /// Opens or makes the file at `path`. It is only appended to, and never read.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (options, regular) = appending(path);
        let file = options.open(path)?;
        let (spool, outlet) = Spool::new("checkpoints", WAITING);
        Ok(Self { file, regular, spool, outlet })
    }

    /// Writes the first of them, and whatever is put into the spool from then on, on a thread of its
    /// own: who keeps checkpoints may be slow, and calls do not wait for them.
    ///
    /// # Errors
    /// When the first are not taken, or there can be no more threads.
    pub(super) fn begin(self, first: &[String]) -> io::Result<Spool> {
        let Self { mut file, regular, spool, outlet } = self;
        file.write_all(&joined(first))?;
        if regular {
            file.sync_data()?;
        }
        Apart { name: "checkpoints", out: file, synced: regular, outlet }.start()?;
        Ok(spool)
    }
}

/// Puts these into the spool; `false` where it has no room for them.
pub(super) fn send(spool: &Spool, notes: &[String]) -> bool {
    let text = joined(notes);
    let room = spool.room(text.len());
    room && spool.clone().append(&text).is_ok()
}

/// Notes as they stand in a file, one after the other.
fn joined(notes: &[String]) -> Bytes {
    let notes = notes.iter().flat_map(|note| [note, "\n"]);
    std::iter::once(APART).chain(notes).collect::<String>().into()
}
