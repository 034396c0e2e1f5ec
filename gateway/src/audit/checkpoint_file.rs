//! A separate file of checkpoints. Kept on a volume where the gateway can only append, it proves that the end of the
//! log has not been cut off.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::file::{appending, naming};
use super::sink::{AuditSink as _, Rendering, SinkThread};
use super::spool::{Spool, SpoolReceiver};
use super::watch::{FileIntegrity, LossKind};

/// Name of the file in records and log lines.
pub(super) const NAME: &str = "checkpoints";
/// Maximum number of bytes of checkpoints that wait for a slow or missing file: about two thousand checkpoints.
const SPOOL_BYTES: usize = 512 * 1024;
/// Separator before and after checkpoints, so that text left by a crash or another process does not become part of
/// one.
const APART: &str = "\n\n";

/// The opened file, before anything is written to it.
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
    file: File,
    /// Whether it is a regular file, not a pipe or a device.
    regular: bool,
    spool: Spool,
    outlet: SpoolReceiver,
}

/// The file in use, written to by its own thread.
#[derive(Debug)]
pub(super) struct CheckpointWriter {
    path: PathBuf,
    regular: bool,
    /// The open file; replaced if the file was lost.
    out: Arc<ArcSwap<File>>,
    spool: Spool,
    state: Mutex<CheckpointFileState>,
}

/// What is known of the file.
#[derive(Debug)]
struct CheckpointFileState {
    /// The last checkpoint that was sent; it covers what all earlier ones cover.
    last: Option<String>,
    /// The largest size seen, in bytes: the file only grows.
    length: u64,
    /// How the file was lost, until a new one is started.
    lost: Option<LossKind>,
}

/// The file is no longer intact.
#[derive(Debug)]
pub(super) struct CheckpointFileLoss {
    /// How the file was lost.
    pub(super) what: LossKind,
    /// Whether the loss was not known before.
    pub(super) is_new: bool,
    /// Whether a new file was started in its place.
    pub(super) begun: io::Result<()>,
}

impl CheckpointFile {
    /// Opens or creates the file at `path`. It is only appended to and never read.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (options, regular) = appending(path);
        let file = options.open(path).map_err(|error| naming(path, &error))?;
        let (spool, outlet) = Spool::new(NAME, SPOOL_BYTES);
        Ok(Self { path: path.to_owned(), file, regular, spool, outlet })
    }

    /// Writes the first checkpoints, then starts a thread that writes those put into the spool: the file may be slow,
    /// and calls do not wait for it.
    ///
    /// # Errors
    /// If the first checkpoints cannot be written, or the thread cannot be started.
    pub(super) fn begin(self, first: &[String]) -> io::Result<CheckpointWriter> {
        let Self { path, mut file, regular, spool, outlet } = self;
        file.write_all(&joined(first))?;
        if regular {
            file.sync_data()?;
        }
        let length = file.metadata()?.len();
        let out = Arc::new(ArcSwap::from_pointee(file));
        let (out_of_it, written) = (Arc::clone(&out), Rendering::Whole);
        SinkThread { name: NAME, out: out_of_it, synced: regular, written, outlet }.start()?;
        let state =
            Mutex::new(CheckpointFileState { last: first.last().cloned(), length, lost: None });
        Ok(CheckpointWriter { path, regular, out, spool, state })
    }
}

impl CheckpointWriter {
    /// The queue of checkpoints to be written.
    pub(super) fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Queues these checkpoints; returns `false` if there is no room for them.
    pub(super) fn send(&self, notes: &[String]) -> bool {
        let sent = self.put(notes);
        if sent && let Some(last) = notes.last() {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).last = Some(last.clone());
        }
        sent
    }

    /// Checks that the file is intact, and starts a new one with the last checkpoint if it is not.
    pub(super) fn look(&self) -> Option<CheckpointFileLoss> {
        if !self.regular {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, file) = (self.path.clone(), self.out.load_full());
        let watch = FileIntegrity { path, file, bytes: state.length, known: None };
        let Some(what) = watch.lost() else {
            state.length = watch.file.metadata().map_or(state.length, |found| found.len());
            state.lost = None;
            return None;
        };
        let is_new = state.lost.replace(what).is_none();
        let begun = self.begin_anew(what, &mut state);
        Some(CheckpointFileLoss { what, is_new, begun })
    }

    fn begin_anew(&self, what: LossKind, state: &mut CheckpointFileState) -> io::Result<()> {
        if what != LossKind::Cut {
            let (options, regular) = appending(&self.path);
            if !regular {
                return Err(io::Error::other("what stands at its path is not a file"));
            }
            self.out.store(Arc::new(options.open(&self.path)?));
        }
        state.length = self.out.load().metadata()?.len();
        state.lost = None;
        // If the spool has no room for it, later checkpoints are queued already.
        if let Some(last) = &state.last {
            self.put(slice::from_ref(last));
        }
        Ok(())
    }

    fn put(&self, notes: &[String]) -> bool {
        let text = joined(notes);
        let room = self.spool.room(text.len());
        room && self.spool.clone().append(&text).is_ok()
    }
}

/// The checkpoints as they are written to the file.
fn joined(notes: &[String]) -> Bytes {
    let notes = notes.iter().flat_map(|note| [note, "\n"]);
    std::iter::once(APART).chain(notes).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::{CheckpointFile, CheckpointWriter};
    use crate::audit::watch::LossKind;
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Waits until everything that was sent is on disk.
    fn written(kept: &CheckpointWriter) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(20), kept.spool().drained()).await.unwrap();
        });
    }

    #[test]
    fn a_file_of_checkpoints_that_is_lost_is_begun_anew_with_the_last_of_them() {
        let name = format!("portcullis-checkpoints-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("checkpoints");
        let kept = CheckpointFile::open(&path).unwrap().begin(&["one".to_owned()]).unwrap();
        assert!(kept.send(&["two".to_owned(), "three".to_owned()]));
        written(&kept);
        assert!(kept.look().is_none());
        assert_eq!(lines(&path), ["one", "two", "three"]);

        fs::remove_file(&path).unwrap();
        let lapse = kept.look().unwrap();
        assert!(
            lapse.is_new && lapse.begun.is_ok() && lapse.what == LossKind::Removed,
            "{lapse:?}"
        );
        assert!(kept.send(&["four".to_owned()]));
        written(&kept);
        assert_eq!(lines(&path), ["three", "four"]);
        assert!(kept.look().is_none());

        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert_eq!(kept.look().map(|lapse| lapse.what), Some(LossKind::Cut));
        written(&kept);
        assert_eq!(lines(&path), ["four"]);

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let lapse = kept.look().unwrap();
        assert!(
            lapse.is_new && lapse.begun.is_err() && lapse.what == LossKind::Removed,
            "{lapse:?}"
        );
        assert!(!kept.look().unwrap().is_new, "it is said once");
        fs::remove_dir_all(&folder).unwrap();
    }
}
