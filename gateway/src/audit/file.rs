//! A sink that appends to a file, resumes it after a restart or a crash, and rotates it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use audit_log::chain::{ChainLink, GENESIS, HashChain, event_of, other_format, peaks, read};
use audit_log::note::{Checkpoint, NoteVerifier};
use audit_log::tree::Hash;
use bytes::Bytes;

use super::sink::AuditSink;
use super::watch::{FileIntegrity, LossKind};
use crate::base::sha256::sha256;
use crate::config::settings::Rotation;

/// Number of bytes at the end of a file that are read first to find where its chain ends.
const TAIL: u64 = 1024 * 1024;
/// Prefixes of the first record of a file.
const BEGINNINGS: [&[u8]; 2] = [br#"{"chain":""#, br#"{"bytes":"#];
/// Number of digits in the name of a rotated file.
const DIGITS: usize = 12;
/// Interval between attempts to rotate a file after a failure.
const ROTATION_RETRY: Duration = Duration::from_secs(60);

/// A sink that writes records to a file.
#[derive(Debug)]
pub struct FileSink {
    name: Box<str>,
    path: PathBuf,
    file: Arc<File>,
    /// Whether it is a regular file, not a pipe or a device.
    regular: bool,
    rotation: Rotation,
    bytes: u64,
    /// The sequence number of its first record, and the time of that record.
    first: Option<u64>,
    since: SystemTime,
    /// Time of the last failed rotation.
    stuck: Option<SystemTime>,
    /// The file ends with a partial line that could not be removed.
    torn: bool,
    unsynced: bool,
    /// Bytes that other processes appended and that were not reported yet.
    foreign: u64,
    /// How the file was lost, if it was: nothing more is written to it then.
    lost: Option<LossKind>,
}

/// The end of an existing chain that is continued.
#[derive(Debug)]
pub struct ResumedChain {
    /// The chain up to its last record.
    pub chain: HashChain,
    /// Whether the last process ended without a `stop` record.
    pub crashed: bool,
    /// The length and SHA-256 of a partial record that was cut off the end.
    pub torn: Option<(usize, Hash)>,
    /// The last checkpoint found: the number of records it covers, and their root hash.
    pub signed: Option<(u64, Hash)>,
}

/// What is required of a log before it is continued.
#[derive(Clone, Debug, Default)]
pub struct ResumePolicy {
    /// The keys that may have signed its checkpoints. Without any, its origin is not verified.
    pub keys: Vec<NoteVerifier>,
    /// Maximum number of records after the last checkpoint.
    pub uncovered: u64,
}

/// Whether the path is free or holds a regular file, whose records can be continued, and not a pipe or a device.
#[must_use]
pub fn can_be_continued(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |found| found.is_file())
}

/// Adds the path to an error.
pub(super) fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// The options to open or create a file for appending, and whether it is a regular file.
pub(super) fn appending(path: &Path) -> (OpenOptions, bool) {
    let regular = can_be_continued(path);
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    if !regular {
        // A stalled reader of a pipe causes an error instead of blocking the writer.
        options.custom_flags(libc::O_NONBLOCK);
    }
    (options, regular)
}

impl FileSink {
    /// Opens or creates the file at `path`, readable by its owner alone, and returns the end of the chain in it, if
    /// there is one.
    ///
    /// # Errors
    /// If it cannot be opened, another process writes to it, or its content cannot be continued.
    pub fn open(
        name: &str,
        path: &Path,
        rotation: Rotation,
        trusted: &ResumePolicy,
        now: SystemTime,
    ) -> io::Result<(Self, Option<ResumedChain>)> {
        let (mut options, regular) = appending(path);
        // Nothing is read from a pipe or a device.
        let file = options.read(regular).mode(0o600).open(path);
        let file = file.map_err(|error| naming(path, &error))?;
        let mut sink = Self {
            name: name.into(),
            path: path.to_owned(),
            file: Arc::new(file),
            regular,
            rotation,
            bytes: 0,
            first: None,
            since: now,
            stuck: None,
            torn: false,
            unsynced: false,
            foreign: 0,
            lost: None,
        };
        let resumed = if sink.regular { sink.resume(trusted)? } else { None };
        Ok((sink, resumed))
    }

    /// Whether it can be continued: it is a regular file, not a pipe or a device.
    #[must_use]
    pub fn can_be_continued(&self) -> bool {
        self.regular
    }

    fn resume(&mut self, trusted: &ResumePolicy) -> io::Result<Option<ResumedChain>> {
        lock(&self.file, &self.path)?;
        self.bytes = self.file.metadata()?.len();
        let torn = self.mend()?;
        let extent = RecordExtent { bytes: self.bytes, last: LastLine::Ended };
        let mut resumed = continuation(&self.path, Some(&self.file), extent, trusted)?;
        if self.bytes > 0 {
            let first = first_line(&mut &*self.file)?;
            self.first = ChainLink::of(&first).map(|(place, _)| place.seq);
            self.since = time_of(&first).unwrap_or(self.since);
        }
        if let Some(resumed) = &mut resumed {
            resumed.torn = torn;
        }
        Ok(resumed)
    }

    /// Adds the missing line feed of a whole last record, and cuts off a partial one: it was never acknowledged.
    fn mend(&mut self) -> io::Result<Option<(usize, Hash)>> {
        match tail(&self.path, &self.file, self.bytes)? {
            FileEnd::Ended => Ok(None),
            FileEnd::Open => {
                (&*self.file).write_all(b"\n")?;
                self.bytes += 1;
                Ok(None)
            }
            FileEnd::Torn(rest) => {
                self.bytes -= rest.len() as u64;
                self.file.set_len(self.bytes)?;
                Ok(Some((rest.len(), sha256(&rest))))
            }
        }
    }

    /// Skips what another process has appended, and ends its line: a record that followed on an open line could not
    /// be read.
    fn step_over(&mut self) -> io::Result<()> {
        if !self.regular || self.torn {
            return Ok(());
        }
        // A seek costs less than a look at the metadata, after which the next write updates the times of the file. Where
        // the position is has no effect on writes, which append.
        let length = (&*self.file).seek(SeekFrom::End(0))?;
        let more = length.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let mut last = [0];
        self.file.read_exact_at(&mut last, length - 1)?;
        let open = last != *b"\n";
        if open {
            (&*self.file).write_all(b"\n")?;
        }
        self.bytes = length + u64::from(open);
        self.foreign = self.foreign.saturating_add(more);
        Ok(())
    }

    /// Renames the file after the number of its first record, and creates a new one in its place.
    fn begin(&self, first: u64) -> io::Result<File> {
        let (stem, end) = parts(&self.path);
        let full = self.path.with_file_name(format!("{stem}.{first:0DIGITS$}{end}"));
        if full.exists() {
            return Err(io::Error::other(format!("`{}` is there already", full.display())));
        }
        self.file.sync_data()?;
        fs::rename(&self.path, &full)?;
        let mut options = OpenOptions::new();
        let opened = options.append(true).create_new(true).read(true).mode(0o600).open(&self.path);
        let opened = opened.and_then(|file| lock(&file, &self.path).map(|()| file));
        opened.or_else(|error| {
            // On failure the old file is put back and continued.
            fs::rename(&full, &self.path)?;
            Err(error)
        })
    }
}

/// Lists the rotated files that belong to the file at `path`, by the number of their first record.
///
/// # Errors
/// If the folder cannot be read.
pub fn siblings(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let (stem, end) = parts(path);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(&stem).and_then(|rest| rest.strip_suffix(&end));
        let number = number.and_then(|number| number.strip_prefix('.'));
        let number = number.filter(|n| n.len() >= DIGITS && n.bytes().all(|b| b.is_ascii_digit()));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Lists the logs in a folder, without their rotated files: files that begin with a record, and all files with the
/// usual name of a log.
///
/// # Errors
/// If the folder or a file in it cannot be read.
pub fn logs(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if !fs::metadata(&path).is_ok_and(|data| data.is_file() && data.len() > 0) {
            continue;
        }
        let mut start = Vec::new();
        File::open(&path)?.take(16).read_to_end(&mut start)?;
        let is_named = entry.file_name().to_string_lossy().contains(".jsonl");
        if is_named || BEGINNINGS.iter().any(|first| start.starts_with(first)) {
            found.push(path);
        }
    }
    let mut full = Vec::new();
    for path in &found {
        full.extend(siblings(path)?.into_iter().map(|(_, path)| path));
    }
    found.retain(|path| !full.contains(path));
    found.sort();
    Ok(found)
}

/// The start and the end of the names of rotated files.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let end = text(path.extension());
    let end = if end.is_empty() { end } else { format!(".{end}") };
    (text(path.file_stem()), end)
}

/// How a file of records ends.
#[derive(Debug)]
enum FileEnd {
    /// With the line feed of the last record, or the file is empty.
    Ended,
    /// With a whole record without its line feed.
    Open,
    /// With a partial record.
    Torn(Vec<u8>),
}

/// Determines how the first `bytes` of a file of records end.
///
/// # Errors
/// If the file cannot be read, or does not end like a file of records.
fn tail(path: &Path, mut file: &File, bytes: u64) -> io::Result<FileEnd> {
    let window = TAIL.min(bytes);
    file.seek(SeekFrom::Start(bytes - window))?;
    let mut text = Vec::new();
    file.take(window).read_to_end(&mut text)?;
    let start = memchr::memrchr(b'\n', &text).map_or(0, |end| end + 1);
    let rest = text.get(start..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(FileEnd::Ended);
    }
    if ChainLink::of(rest).is_some_and(|(_, fits)| fits) {
        return Ok(FileEnd::Open);
    }
    // Nothing is cut off a file that is not a log of the gateway.
    let ours = match start {
        0 if window == bytes => {
            BEGINNINGS.iter().any(|first| first.starts_with(rest) || rest.starts_with(first))
        }
        _ => ChainLink::of(&first_line(&mut &*file)?).is_some_and(|(_, fits)| fits),
    };
    if !ours || start == 0 && window < bytes {
        return Err(foreign(path, "it does not end with one"));
    }
    Ok(FileEnd::Torn(rest.to_vec()))
}

/// Finds the end of the chain in the file at `path`, as [`FileSink::open`] would continue it. The file is only read,
/// neither created nor locked or truncated, and a gateway may be writing to it.
///
/// # Errors
/// If it cannot be read, or its content cannot be continued.
pub fn examine(path: &Path, trusted: &ResumePolicy) -> io::Result<Option<ResumedChain>> {
    let nothing = RecordExtent { bytes: 0, last: LastLine::Ended };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return continuation(path, None, nothing, trusted);
        }
        Err(error) => return Err(naming(path, &error)),
    };
    let bytes = file.metadata()?.len();
    let extent = match tail(path, &file, bytes)? {
        FileEnd::Ended => RecordExtent { bytes, last: LastLine::Ended },
        FileEnd::Open => RecordExtent { bytes, last: LastLine::Open },
        FileEnd::Torn(rest) => {
            RecordExtent { bytes: bytes - rest.len() as u64, last: LastLine::Ended }
        }
    };
    continuation(path, Some(&file), extent, trusted)
}

/// The part of a file that holds its records.
#[derive(Clone, Copy, Debug)]
struct RecordExtent {
    /// Length in bytes, from the start of the file.
    bytes: u64,
    /// How the last line ends.
    last: LastLine,
}

/// Whether the last record of a file has its line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastLine {
    /// It has one, or there is no record.
    Ended,
    /// The line feed is missing.
    Open,
}

/// Finds the end of the chain in the file at `path`, or in the rotated file before it.
fn continuation(
    path: &Path,
    file: Option<&File>,
    extent: RecordExtent,
    trusted: &ResumePolicy,
) -> io::Result<Option<ResumedChain>> {
    let full = siblings(path)?.pop();
    // The process may have ended between two files, or before the new one had a checkpoint.
    let before = || -> io::Result<Option<ResumedChain>> {
        let Some((_, before)) = &full else { return Ok(None) };
        let mut file = File::open(before)?;
        let extent = RecordExtent { bytes: file.metadata()?.len(), last: LastLine::Ended };
        end_of(&mut file, extent, before, None, trusted)
    };
    let Some(mut file) = file.filter(|_| extent.bytes > 0) else { return before() };
    let error = match end_of(&mut file, extent, path, None, trusted) {
        Ok(resumed) => return Ok(resumed),
        Err(error) => error,
    };
    let Some(ResumedChain { chain, signed, .. }) = before()? else { return Err(error) };
    let mut end = end_of(&mut file, extent, path, Some(&chain), trusted)?;
    if let Some(end) = &mut end {
        end.signed = end.signed.or(signed);
    }
    Ok(end)
}

/// Locks the file, because records of two processes in one file would form no chain.
fn lock(file: &File, path: &Path) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let file = path.display();
            let what =
                format!("another process writes to `{file}`; give each gateway a file of its own");
            Err(io::Error::new(io::ErrorKind::ResourceBusy, what))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Finds the end of the chain in a file of whole lines, starting from the last trusted checkpoint, or from the chain
/// `start` if the file begins there.
fn end_of(
    file: &mut (impl io::Read + io::Seek),
    extent: RecordExtent,
    path: &Path,
    start: Option<&HashChain>,
    trusted: &ResumePolicy,
) -> io::Result<Option<ResumedChain>> {
    let RecordExtent { bytes: length, last } = extent;
    if length == 0 {
        return Ok(None);
    }
    let mut window = TAIL.min(length);
    loop {
        let whole = window == length;
        file.seek(SeekFrom::Start(length - window))?;
        let mut text = Vec::new();
        file.by_ref().take(window).read_to_end(&mut text)?;
        if last == LastLine::Open {
            text.push(b'\n');
        }
        let start = start.cloned().filter(|_| whole);
        let part = if whole { FileWindow::Whole } else { FileWindow::End };
        let refused = |what: &str| {
            let last = text.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
            match last.and_then(other_format) {
                Some(version) => {
                    let what = format!("they say that they are in version {version} of the format");
                    foreign(path, &what)
                }
                None => foreign(path, what),
            }
        };
        if let Some(end) = resume_in(&text, part, start, trusted).map_err(refused)? {
            return Ok(Some(end));
        }
        if whole {
            return Err(refused("there is no checkpoint in it that this gateway has signed"));
        }
        window = window.saturating_mul(4).min(length);
    }
}

fn foreign(path: &Path, what: &str) -> io::Error {
    let path = path.display();
    io::Error::other(format!(
        "the records in `{path}` cannot be continued: {what}; look at them with `portcullis audit \
         verify`, and move the file away"
    ))
}

/// The part of a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileWindow {
    /// The file from its first line on.
    Whole,
    /// Its end, which may begin within a line.
    End,
}

/// Finds the end of the chain in the last part of a file; `None` if more of it must be read.
fn resume_in(
    text: &[u8],
    window: FileWindow,
    start: Option<HashChain>,
    trusted: &ResumePolicy,
) -> Result<Option<ResumedChain>, &'static str> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    lines.pop();
    let whole = window == FileWindow::Whole;
    if !whole && !lines.is_empty() {
        lines.remove(0);
    }
    let trusts = |line: &&[u8]| is_trusted(line, trusted);
    // A log of one record has no checkpoint yet: the second record is one.
    let begins = |line: &&[u8]| {
        let first =
            ChainLink::of(line).is_some_and(|(place, _)| place.seq == 0 && place.prev == GENESIS);
        whole && lines.len() == 1 && first && is_event(line, "start")
    };
    let from = lines.iter().rposition(trusts);
    let from = from.or_else(|| (start.is_none() && lines.first().is_some_and(begins)).then_some(0));
    let from = match (from, &start) {
        (Some(from), _) => from,
        (None, Some(_)) => 0,
        (None, None) => return Ok(None),
    };
    let (mut chain, mut uncovered) = (start.filter(|_| from == 0), 0);
    let mut signed = None;
    for line in lines.get(from..).unwrap_or_default() {
        let Some((place, true)) = ChainLink::of(line) else {
            return Err("a record is not what it was when it was written");
        };
        let chain = match &mut chain {
            Some(chain) => chain,
            None => chain.insert(anchor(line, &place).ok_or("a record has peaks that are none")?),
        };
        if place.seq != chain.tree.size() || place.prev != chain.last {
            return Err("a record does not follow the one before it");
        }
        let is_checkpoint = is_event(line, "checkpoint");
        if is_checkpoint {
            signed = Some((chain.tree.size(), chain.tree.root()));
        }
        chain.push(&place);
        match is_checkpoint {
            true => uncovered = 0,
            false => uncovered += 1,
        }
    }
    if !trusted.keys.is_empty() && uncovered > trusted.uncovered {
        return Err("too many records at its end are not covered by a checkpoint");
    }
    // What follows the checkpoint of a log that was stopped was not written by the process that stopped.
    let was_closed = has_stopped(lines.get(..=from).unwrap_or_default());
    let has_more = was_closed && uncovered > 0 && !trusted.keys.is_empty();
    let crashed = has_more || !has_stopped(&lines);
    Ok(chain.map(|chain| ResumedChain { chain, crashed, torn: None, signed }))
}

/// Whether the last process recorded that it stopped: a `stop` follows its `start`. Other records may follow the
/// `stop`: its checkpoint, and those of work that did not end in time.
fn has_stopped(lines: &[&[u8]]) -> bool {
    let mut events = lines.iter().rev().filter_map(|line| event_of(line));
    events.find(|event| matches!(*event, "start" | "stop")) == Some("stop")
}

/// Whether a chain can be continued from this record: a checkpoint that a trusted key has signed over the tree whose
/// peaks it carries. Without keys, any record with peaks.
fn is_trusted(line: &[u8], trusted: &ResumePolicy) -> bool {
    if memchr::memmem::find(line, br#","peaks":["#).is_none() {
        return false;
    }
    if trusted.keys.is_empty() {
        return true;
    }
    let note =
        read(line).and_then(|record| Some(record.root().get("note")?.as_str()?.into_owned()));
    let head = note.and_then(|note| Some(Checkpoint::open(&note, &trusted.keys).ok()?.0));
    head.zip(peaks(line)).is_some_and(|(head, (chain, tree))| {
        head.size == tree.size()
            && head.root == tree.root()
            && head.origin.ends_with(&format!("/{chain}"))
    })
}

/// The chain just before a record that carries the peaks of the tree so far.
fn anchor(line: &[u8], place: &ChainLink) -> Option<HashChain> {
    let (id, tree) = peaks(line)?;
    (tree.size() == place.seq).then_some(HashChain { id, last: place.prev, tree })
}

fn is_event(line: &[u8], event: &str) -> bool {
    event_of(line) == Some(event)
}

fn first_line(file: &mut (impl io::Read + io::Seek)) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut text = Vec::new();
    file.by_ref().take(TAIL).read_to_end(&mut text)?;
    let end = memchr::memchr(b'\n', &text).unwrap_or(text.len());
    text.truncate(end);
    Ok(text)
}

fn time_of(line: &[u8]) -> Option<SystemTime> {
    let document = read(line)?;
    humantime::parse_rfc3339(&document.root().get("time")?.as_str()?).ok()
}

impl AuditSink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn append(&mut self, line: &Bytes) -> io::Result<()> {
        if let Some(lost) = self.lost {
            return Err(io::Error::other(lost.to_string()));
        }
        let mut file = &*self.file;
        if self.torn {
            // A line that was not written whole was not accepted.
            match self.regular {
                true => file.set_len(self.bytes)?,
                false => file.write_all(b"\n")?,
            }
            self.torn = false;
        }
        self.step_over()?;
        let mut file = &*self.file;
        // A single `write`, so that readers of the file see whole lines.
        match file.write(line) {
            Ok(written) if written == line.len() => {
                if self.first.is_none() && self.bytes == 0 {
                    self.first = ChainLink::of(line).map(|(place, _)| place.seq);
                }
                self.bytes += line.len() as u64;
                self.unsynced = true;
                Ok(())
            }
            Ok(written) => {
                self.torn = written > 0 && !(self.regular && file.set_len(self.bytes).is_ok());
                Err(io::Error::new(io::ErrorKind::WriteZero, "only a part of the line was written"))
            }
            Err(error) => Err(error),
        }
    }

    fn takes_space(&self) -> bool {
        self.regular
    }

    fn turn(&mut self, seq: u64, now: &dyn Fn() -> SystemTime) -> io::Result<bool> {
        let first = *self.first.get_or_insert(seq);
        if self.bytes < self.rotation.size && self.rotation.age.is_none() {
            return Ok(false);
        }
        let now = now();
        let since = |at| now.duration_since(at).unwrap_or_default();
        let old = self.rotation.age.is_some_and(|age| since(self.since) >= age);
        let due = self.bytes >= self.rotation.size || old;
        let stuck = self.stuck.is_some_and(|at| since(at) < ROTATION_RETRY);
        let is_ours = self.regular && self.lost.is_none();
        if !due || stuck || !is_ours || self.bytes == 0 || self.torn {
            return Ok(false);
        }
        let begun = self.begin(first);
        self.stuck = begun.is_err().then_some(now);
        self.file = Arc::new(begun?);
        (self.bytes, self.first, self.since) = (0, Some(seq), now);
        Ok(true)
    }

    fn unsynced(&mut self) -> Option<Arc<File>> {
        let unsynced = std::mem::take(&mut self.unsynced) && self.regular;
        unsynced.then(|| Arc::clone(&self.file))
    }

    fn room(&self, _bytes: usize) -> bool {
        self.lost.is_none()
    }

    fn watch(&self) -> Option<FileIntegrity> {
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        self.regular.then_some(FileIntegrity { path, file, bytes: self.bytes, known: self.lost })
    }

    fn foreign(&mut self) -> io::Result<u64> {
        if self.lost.is_none() {
            self.step_over()?;
        }
        Ok(std::mem::take(&mut self.foreign))
    }

    fn lose(&mut self, what: LossKind) {
        self.lost = Some(what);
    }

    fn recover(&mut self, seq: u64, now: SystemTime) -> io::Result<Option<u64>> {
        if self.watch().is_some_and(|watch| watch.lost().is_none()) {
            self.lost = None;
            return Ok(None);
        }
        let (mut options, regular) = appending(&self.path);
        let file = options.read(regular).mode(0o600).open(&self.path)?;
        let (found, own) = (file.metadata()?, self.file.metadata()?);
        if !found.is_file() || found.len() > 0 {
            let path = self.path.display();
            let what = format!("`{path}` is not empty and cannot be continued; move it away");
            return Err(io::Error::other(what));
        }
        // A file that was only truncated is locked already.
        if (found.dev(), found.ino()) != (own.dev(), own.ino()) {
            lock(&file, &self.path)?;
            self.file = Arc::new(file);
        }
        let first = self.first.unwrap_or(seq);
        (self.bytes, self.first, self.since) = (0, Some(seq), now);
        (self.torn, self.lost, self.stuck) = (false, None, None);
        Ok(Some(first))
    }

    fn kept(&self) -> Option<(PathBuf, Rotation)> {
        let Rotation { keep, retention, .. } = self.rotation;
        let limited = self.regular && (keep.is_some() || retention.is_some());
        limited.then(|| (self.path.clone(), self.rotation))
    }
}

/// Lists the rotated files of `path` that have expired, each with the numbers of its first record and of the first
/// one after it. The oldest come first, so that the rest stays contiguous.
#[must_use]
pub fn expired(path: &Path, rotation: Rotation, now: SystemTime) -> Vec<(PathBuf, u64, u64)> {
    let full = siblings(path).unwrap_or_default();
    let many = full.len().saturating_sub(rotation.keep.unwrap_or(usize::MAX));
    let old = |path: &Path| {
        let changed = fs::metadata(path).and_then(|found| found.modified()).ok();
        let age = changed.and_then(|changed| now.duration_since(changed).ok());
        age.zip(rotation.retention).is_some_and(|(age, most)| age > most)
    };
    let aged = full.iter().take_while(|(_, path)| old(path)).count();
    let current = File::open(path).and_then(|mut file| first_line(&mut file)).ok();
    let current = current.and_then(|line| ChainLink::of(&line)).map(|(place, _)| place.seq);
    let nexts = full.iter().skip(1).map(|(first, _)| Some(*first)).chain([current]);
    let gone = full.iter().zip(nexts).take(many.max(aged));
    // Without the number of the next record, nothing is removed.
    gone.map_while(|((first, path), next)| Some((path.clone(), *first, next?))).collect()
}
