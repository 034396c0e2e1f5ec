//! A file that is only appended to, continued after a crash, and begun anew when it is long.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::chain::{Chain, GENESIS, Place, other_format, read};
use super::note::{Checkpoint, Verifier};
use super::sink::Sink;
use super::tree::{Hash, Tree};
use super::watch::{Lost, Watch};
use crate::base::hex;
use crate::base::sha256::sha256;
use crate::config::settings::Rotation;

/// How much of the end of a file is read first to find out where it ends.
const TAIL: u64 = 1024 * 1024;
/// How the first record of a file begins.
const BEGINNINGS: [&[u8]; 2] = [br#"{"chain":""#, br#"{"bytes":"#];
/// Digits of the number in the name of a file that is full.
const DIGITS: usize = 12;
/// After how long a file that could not be begun anew is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// A file of records.
#[derive(Debug)]
pub struct FileSink {
    name: Box<str>,
    path: PathBuf,
    file: Arc<File>,
    /// It is a file, not a pipe or a device.
    regular: bool,
    rotation: Rotation,
    bytes: u64,
    /// The number of its first record, and since when it is written to.
    first: Option<u64>,
    since: SystemTime,
    /// When it was last tried in vain to begin it anew.
    stuck: Option<SystemTime>,
    /// A part of a line stands at its end, which could not be cut off.
    torn: bool,
    unsynced: bool,
    /// Bytes of others that stand in it and were not told of.
    foreign: u64,
    /// Its file is not what it was: nothing more is written to it.
    lost: Option<Lost>,
}

/// Where a chain ends that is continued.
#[derive(Debug)]
pub struct Resumed {
    /// The chain.
    pub chain: Chain,
    /// The last process ended without saying so.
    pub crashed: bool,
    /// A part of a record stood at the end and was cut off: how many bytes, and their SHA-256.
    pub torn: Option<(usize, Hash)>,
    /// The last checkpoint in it: over how many records, and their head.
    pub signed: Option<(u64, Hash)>,
}

/// What a log that is continued is held to.
#[derive(Clone, Debug, Default)]
pub struct Trusted {
    /// The keys of its checkpoints; without any there is nothing that only the gateway could have
    /// written.
    pub keys: Vec<Verifier>,
    /// Most records after the last checkpoint.
    pub uncovered: u64,
}

/// Whether what is or will be at `path` is a file, whose records can be continued, and not a pipe or a device.
#[must_use]
pub fn can_be_continued(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |found| found.is_file())
}

/// An error of the file at `path`, with its name.
pub(super) fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// How to open or make what is only appended to, and whether it is a file and not a pipe or a device.
pub(super) fn appending(path: &Path) -> (OpenOptions, bool) {
    let regular = can_be_continued(path);
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    if !regular {
        // A reader that stalls refuses what is written instead of holding who writes.
        options.custom_flags(libc::O_NONBLOCK);
    }
    (options, regular)
}

impl FileSink {
    /// Opens or makes the file at `path`, readable by its owner alone, and says where the chain in it
    /// ends, if there is one.
    ///
    /// # Errors
    /// When it cannot be opened, another process writes to it, or what is in it cannot be continued.
    pub fn open(
        name: &str,
        path: &Path,
        rotation: Rotation,
        (trusted, now): (&Trusted, SystemTime),
    ) -> io::Result<(Self, Option<Resumed>)> {
        let (mut options, regular) = appending(path);
        // Of a pipe or a device nothing is read.
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

    /// Whether it can be continued: it is a file, not a pipe or a device.
    #[must_use]
    pub fn can_be_continued(&self) -> bool {
        self.regular
    }

    fn resume(&mut self, trusted: &Trusted) -> io::Result<Option<Resumed>> {
        lock(&self.file, &self.path)?;
        self.bytes = self.file.metadata()?.len();
        let torn = self.mend()?;
        let extent = Extent { bytes: self.bytes, last: LastLine::Ended };
        let mut resumed = continuation(&self.path, Some(&self.file), extent, trusted)?;
        if self.bytes > 0 {
            let first = first_line(&mut &*self.file)?;
            self.first = Place::of(&first).map(|(place, _)| place.seq);
            self.since = time_of(&first).unwrap_or(self.since);
        }
        if let Some(resumed) = &mut resumed {
            resumed.torn = torn;
        }
        Ok(resumed)
    }

    /// Ends the last line if it is whole, and cuts it off if it is not: it was acknowledged to nobody.
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

    /// Goes on behind what somebody else has appended, on a line of its own: a record that followed on their open
    /// line could not be read.
    fn step_over(&mut self) -> io::Result<()> {
        if !self.regular || self.torn {
            return Ok(());
        }
        let length = self.file.metadata()?.len();
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

    /// Puts the file aside under the number of its first record, and begins another in its place.
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
            // As it was: what cannot be begun anew is continued.
            fs::rename(&full, &self.path)?;
            Err(error)
        })
    }
}

/// The full files that belong to the file at `path`, by the number of their first record.
///
/// # Errors
/// When the folder cannot be read.
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

/// The logs in a folder, without the full files that belong to them: what begins with a record, and what has the usual
/// name of a log, whatever it begins with.
///
/// # Errors
/// When the folder or a file in it cannot be read.
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

/// What the name of a full file begins and ends with.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let end = text(path.extension());
    let end = if end.is_empty() { end } else { format!(".{end}") };
    (text(path.file_stem()), end)
}

/// What stands at the end of a file of records.
#[derive(Debug)]
enum FileEnd {
    /// The line feed of the last record, or nothing at all.
    Ended,
    /// A whole record without its line feed.
    Open,
    /// A part of a record.
    Torn(Vec<u8>),
}

/// What stands at the end of the first `bytes` of a file of records.
///
/// # Errors
/// When it cannot be read, or does not end as a file of records does.
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
    if Place::of(rest).is_some_and(|(_, fits)| fits) {
        return Ok(FileEnd::Open);
    }
    // Nothing is cut off a file that is somebody else's.
    let ours = match start {
        0 if window == bytes => {
            BEGINNINGS.iter().any(|first| first.starts_with(rest) || rest.starts_with(first))
        }
        _ => Place::of(&first_line(&mut &*file)?).is_some_and(|(_, fits)| fits),
    };
    if !ours || start == 0 && window < bytes {
        return Err(foreign(path, "it does not end with one"));
    }
    Ok(FileEnd::Torn(rest.to_vec()))
}

/// Where the chain ends in the file at `path`, as [`FileSink::open`] would continue it. The file is only read: it is
/// neither made nor locked, nothing is cut off it, and a gateway may be writing to it.
///
/// # Errors
/// When it cannot be read, or what is in it cannot be continued.
pub fn examine(path: &Path, trusted: &Trusted) -> io::Result<Option<Resumed>> {
    let nothing = Extent { bytes: 0, last: LastLine::Ended };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return continuation(path, None, nothing, trusted);
        }
        Err(error) => return Err(naming(path, &error)),
    };
    let bytes = file.metadata()?.len();
    let extent = match tail(path, &file, bytes)? {
        FileEnd::Ended => Extent { bytes, last: LastLine::Ended },
        FileEnd::Open => Extent { bytes, last: LastLine::Open },
        FileEnd::Torn(rest) => Extent { bytes: bytes - rest.len() as u64, last: LastLine::Ended },
    };
    continuation(path, Some(&file), extent, trusted)
}

/// How much of a file belongs to its records.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// So many bytes from its beginning.
    bytes: u64,
    /// How they end.
    last: LastLine,
}

/// Whether the last record of a file has its line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastLine {
    /// It has, or there is no record.
    Ended,
    /// It has not.
    Open,
}

/// Where the chain ends in the file at `path`, or in the full one before it.
fn continuation(
    path: &Path,
    file: Option<&File>,
    extent: Extent,
    trusted: &Trusted,
) -> io::Result<Option<Resumed>> {
    let full = siblings(path)?.pop();
    // The process may have ended between two files, or before the new one had a checkpoint.
    let before = || -> io::Result<Option<Resumed>> {
        let Some((_, before)) = &full else { return Ok(None) };
        let mut file = File::open(before)?;
        let extent = Extent { bytes: file.metadata()?.len(), last: LastLine::Ended };
        end_of(&mut file, extent, (before, None), trusted)
    };
    let Some(mut file) = file.filter(|_| extent.bytes > 0) else { return before() };
    let error = match end_of(&mut file, extent, (path, None), trusted) {
        Ok(resumed) => return Ok(resumed),
        Err(error) => error,
    };
    let Some(Resumed { chain, signed, .. }) = before()? else { return Err(error) };
    let mut end = end_of(&mut file, extent, (path, Some(chain)), trusted)?;
    if let Some(end) = &mut end {
        end.signed = end.signed.or(signed);
    }
    Ok(end)
}

/// Nobody else may write to it: two chains in one file would be none.
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

/// The end of the chain in a file of whole lines: from the last checkpoint that can be trusted on, or from
/// `start`, if that is where the file begins.
fn end_of(
    file: &mut (impl io::Read + io::Seek),
    Extent { bytes: length, last }: Extent,
    (path, start): (&Path, Option<Chain>),
    trusted: &Trusted,
) -> io::Result<Option<Resumed>> {
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
        let start = start.clone().filter(|_| whole);
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
        if let Some(end) = resume_in(&text, whole, start, trusted).map_err(refused)? {
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

/// The end of the chain in the last part of a file; `None` when more of it has to be read.
fn resume_in(
    text: &[u8],
    whole: bool,
    start: Option<Chain>,
    trusted: &Trusted,
) -> Result<Option<Resumed>, &'static str> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    lines.pop();
    if !whole && !lines.is_empty() {
        lines.remove(0);
    }
    let trusts = |line: &&[u8]| is_trusted(line, trusted);
    // A log of one record has nothing to go by but that it begins: the second is a checkpoint.
    let begins = |line: &&[u8]| {
        let first =
            Place::of(line).is_some_and(|(place, _)| place.seq == 0 && place.prev == GENESIS);
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
        let Some((place, true)) = Place::of(line) else {
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
    let crashed = !has_stopped(&lines);
    Ok(chain.map(|chain| Resumed { chain, crashed, torn: None, signed }))
}

/// Whether the last process recorded that it stopped: there is a `stop` after its `start`. Other records may stand
/// behind the `stop`: its checkpoint, and those of work that a worker had not ended in time.
fn has_stopped(lines: &[&[u8]]) -> bool {
    let mut events = lines.iter().rev().filter_map(|line| event_of(line));
    events.find(|event| matches!(*event, "start" | "stop")) == Some("stop")
}

/// Whether a line is a record that a chain can be continued from: a checkpoint that one of the keys has
/// signed, over the tree whose peaks it has; without keys any record with peaks.
fn is_trusted(line: &[u8], trusted: &Trusted) -> bool {
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

/// The chain just before a record that has the peaks of the tree so far.
fn anchor(line: &[u8], place: &Place) -> Option<Chain> {
    let (id, tree) = peaks(line)?;
    (tree.size() == place.seq).then_some(Chain { id, last: place.prev, tree })
}

/// The chain of a record that has the peaks of the tree so far, and the tree.
#[must_use]
pub fn peaks(line: &[u8]) -> Option<(Box<str>, Tree)> {
    let document = read(line)?;
    let root = document.root();
    let size = root.get("size")?.raw().parse().ok()?;
    let mut peaks: Vec<Hash> = Vec::new();
    for peak in root.get("peaks")?.items() {
        peaks.push(hex::decode(&peak.as_str()?)?.try_into().ok()?);
    }
    let id = Box::from(&*root.get("chain")?.as_str()?);
    Some((id, Tree::resume(size, peaks)?))
}

/// What a record in canonical form is of. A quote inside a string is escaped, so no name that a peer
/// chose can look like it.
#[must_use]
pub fn event_of(line: &[u8]) -> Option<&str> {
    const KEY: &[u8] = br#","event":""#;
    let rest = line.get(memchr::memmem::find(line, KEY)? + KEY.len()..)?;
    std::str::from_utf8(rest.get(..memchr::memchr(b'"', rest)?)?).ok()
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

impl Sink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn append(&mut self, line: &Bytes) -> io::Result<()> {
        if let Some(lost) = self.lost {
            return Err(io::Error::other(lost.to_string()));
        }
        let mut file = &*self.file;
        if self.torn {
            // What was not taken whole was not taken.
            match self.regular {
                true => file.set_len(self.bytes)?,
                false => file.write_all(b"\n")?,
            }
            self.torn = false;
        }
        self.step_over()?;
        let mut file = &*self.file;
        // One `write`: whoever reads the file at the same time sees whole lines.
        match file.write(line) {
            Ok(written) if written == line.len() => {
                if self.first.is_none() && self.bytes == 0 {
                    self.first = Place::of(line).map(|(place, _)| place.seq);
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

    fn turn(&mut self, seq: u64, now: &dyn Fn() -> SystemTime) -> io::Result<bool> {
        let first = *self.first.get_or_insert(seq);
        if self.bytes < self.rotation.size && self.rotation.age.is_none() {
            return Ok(false);
        }
        let now = now();
        let since = |at| now.duration_since(at).unwrap_or_default();
        let old = self.rotation.age.is_some_and(|age| since(self.since) >= age);
        let due = self.bytes >= self.rotation.size || old;
        let stuck = self.stuck.is_some_and(|at| since(at) < AGAIN);
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

    fn watch(&self) -> Option<Watch> {
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        self.regular.then_some(Watch { path, file, bytes: self.bytes, known: self.lost })
    }

    fn foreign(&mut self) -> io::Result<u64> {
        if self.lost.is_none() {
            self.step_over()?;
        }
        Ok(std::mem::take(&mut self.foreign))
    }

    fn lose(&mut self, what: Lost) {
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
        // A file that was only emptied is locked already.
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
        let Rotation { keep, keep_for, .. } = self.rotation;
        let limited = self.regular && (keep.is_some() || keep_for.is_some());
        limited.then(|| (self.path.clone(), self.rotation))
    }
}

/// The full files beside the one at `path` that are not to be kept, each with the numbers of its first
/// record and of the first one after it. The oldest go first, so that what is left is one piece.
#[must_use]
pub fn expired(path: &Path, rotation: Rotation, now: SystemTime) -> Vec<(PathBuf, u64, u64)> {
    let full = siblings(path).unwrap_or_default();
    let many = full.len().saturating_sub(rotation.keep.unwrap_or(usize::MAX));
    let old = |path: &Path| {
        let changed = fs::metadata(path).and_then(|found| found.modified()).ok();
        let age = changed.and_then(|changed| now.duration_since(changed).ok());
        age.zip(rotation.keep_for).is_some_and(|(age, most)| age > most)
    };
    let aged = full.iter().take_while(|(_, path)| old(path)).count();
    let current = File::open(path).and_then(|mut file| first_line(&mut file)).ok();
    let current = current.and_then(|line| Place::of(&line)).map(|(place, _)| place.seq);
    let nexts = full.iter().skip(1).map(|(first, _)| Some(*first)).chain([current]);
    let gone = full.iter().zip(nexts).take(many.max(aged));
    // Without knowing where the next begins, nothing is thrown away.
    gone.map_while(|((first, path), next)| Some((path.clone(), *first, next?))).collect()
}
