//! The file of checkpoints alone. Kept where the gateway can only append, it is what proves that the
//! end of the log has not been cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use bytes::Bytes;

use super::sink::{Sink as _, write_apart};
use super::spool::{Outlet, Spool};

/// Most bytes of checkpoints that wait for a file that is slow or gone: some two thousand.
const WAITING: usize = 512 * 1024;
/// What stands after each: notes are separated by an empty line.
const END: &[u8; 2] = b"\n\n";

/// The file, until it is begun.
#[derive(Debug)]
pub struct Heads {
    file: File,
    /// It is a file, not a pipe or a device.
    regular: bool,
    spool: Spool,
    outlet: Outlet,
}

impl Heads {
    /// Opens or makes the file at `path`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let regular = fs::metadata(path).map_or(true, |found| found.is_file());
        let mut options = OpenOptions::new();
        options.append(true).create(true).read(regular);
        if !regular {
            // A pipe that nobody reads refuses what is written instead of holding who writes.
            options.custom_flags(libc::O_NONBLOCK);
        }
        let mut file = options.open(path)?;
        if regular && !is_whole(&mut file)? {
            // Of what a crash has left unfinished nothing becomes a part of what comes next.
            file.write_all(END)?;
        }
        let (spool, outlet) = Spool::new("checkpoints", WAITING);
        Ok(Self { file, regular, spool, outlet })
    }

    /// Writes the first of them, and whatever is put into the spool from then on, on a thread of its
    /// own: who keeps checkpoints may be slow, and calls do not wait for them.
    ///
    /// # Errors
    /// When the first are not taken, or there can be no more threads.
    pub(super) fn begin(mut self, first: &[String]) -> io::Result<Spool> {
        self.file.write_all(&joined(first))?;
        if self.regular {
            self.file.sync_data()?;
        }
        write_apart("checkpoints", self.file, self.outlet)?;
        Ok(self.spool)
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
    notes.iter().flat_map(|note| [note, "\n"]).collect::<String>().into()
}

/// Whether a file is empty or ends as each checkpoint does.
fn is_whole(file: &mut File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let Some(start) = length.checked_sub(END.len() as u64) else { return Ok(length == 0) };
    let mut end = [0; END.len()];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut end)?;
    Ok(end == *END)
}
