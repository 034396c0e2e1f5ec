//! A file that is only appended to, continued after a crash, and begun anew when it is long.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::chain::{Chain, Place, read};
use super::sink::{Sink, Torn};
use super::tree::{Hash, Tree, hash};
use crate::hex;
use crate::settings::Rotation;

/// How much of the end of a file is read first to find out where it ends.
const TAIL: u64 = 1024 * 1024;
/// Digits of the number in the name of a file that is full.
const DIGITS: usize = 12;

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
    torn: Option<Torn>,
    /// The last line has no end.
    open: bool,
    unsynced: bool,
}

/// Where a chain ends that is continued.
#[derive(Debug)]
pub struct Resumed {
    /// The chain.
    pub chain: Chain,
    /// The last process ended without saying so.
    pub crashed: bool,
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
        now: SystemTime,
    ) -> io::Result<(Self, Option<Resumed>)> {
        let mut options = OpenOptions::new();
        // Of a pipe or a device nothing is read.
        let regular = fs::metadata(path).map_or(true, |found| found.is_file());
        options.append(true).create(true).read(regular).mode(0o600);
        let file = options.open(path)?;
        let mut sink = Self {
            name: name.into(),
            path: path.to_owned(),
            file: Arc::new(file),
            regular,
            rotation,
            bytes: 0,
            first: None,
            since: now,
            torn: None,
            open: false,
            unsynced: false,
        };
        let resumed = if sink.regular { sink.resume()? } else { None };
        Ok((sink, resumed))
    }

    fn resume(&mut self) -> io::Result<Option<Resumed>> {
        lock(&self.file, &self.path)?;
        self.bytes = self.file.metadata()?.len();
        if self.bytes == 0 {
            // The process may have ended between two files.
            let Some((_, before)) = self.full()?.pop() else { return Ok(None) };
            let mut file = File::open(&before)?;
            let length = file.metadata()?.len();
            return Ok(end_of(&mut file, length, &before)?.map(|end| end.resumed));
        }
        let mut file = &*self.file;
        let end = end_of(&mut file, self.bytes, &self.path)?;
        let first = first_line(&mut file)?;
        self.first = Place::of(&first).map(|(place, _)| place.seq);
        if let Some(time) = time_of(&first) {
            self.since = time;
        }
        self.torn = end.as_ref().and_then(|end| end.torn);
        self.open = end.as_ref().is_some_and(|end| end.open);
        Ok(end.map(|end| end.resumed))
    }

    /// The full files beside this one, by the number of their first record.
    fn full(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        siblings(&self.path)
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

/// What the name of a full file begins and ends with.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let end = text(path.extension());
    let end = if end.is_empty() { end } else { format!(".{end}") };
    (text(path.file_stem()), end)
}

/// Nobody else may write to it: two chains in one file would be none.
fn lock(file: &File, path: &Path) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(format!(
            "another process writes to `{}`; give each gateway a file of its own",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// How a file ends.
struct End {
    resumed: Resumed,
    torn: Option<Torn>,
    open: bool,
}

fn end_of(
    file: &mut (impl io::Read + io::Seek),
    length: u64,
    path: &Path,
) -> io::Result<Option<End>> {
    let mut window = TAIL.min(length);
    loop {
        file.seek(SeekFrom::Start(length - window))?;
        let mut text = Vec::new();
        file.by_ref().take(window).read_to_end(&mut text)?;
        let whole = window == length;
        if let Some(end) = resume_in(&text, whole).map_err(|what| foreign(path, what))? {
            return Ok(Some(end));
        }
        if whole {
            return match text.contains(&b'\n') {
                true => Err(foreign(path, "there is no record in it that can be continued from")),
                false => Ok(None),
            };
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
fn resume_in(text: &[u8], whole: bool) -> Result<Option<End>, &'static str> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    if !whole && !lines.is_empty() {
        lines.remove(0);
    }
    let has_peaks = |line: &&[u8]| memchr::memmem::find(line, br#","peaks":["#).is_some();
    let Some(from) = lines.iter().rposition(has_peaks) else { return Ok(None) };
    let mut chain = None;
    let mut crashed = true;
    let mut lines = lines.get(from..).unwrap_or_default().iter().peekable();
    while let Some(line) = lines.next() {
        let Some((place, true)) = Place::of(line) else {
            // What was torn is named by the record after it, which the verifier compares.
            let named = lines.peek().is_some_and(|next| is_event(next, "torn"));
            if named && chain.is_some() {
                continue;
            }
            return Err("a record is not what it was when it was written");
        };
        let chain = match &mut chain {
            Some(chain) => chain,
            None => chain.insert(anchor(line, &place).ok_or("a record has peaks that are none")?),
        };
        if place.seq != chain.tree.size() || place.prev != chain.last {
            return Err("a record does not follow the one before it");
        }
        chain.push(&place);
        crashed = match is_event(line, "checkpoint") {
            true => crashed,
            false => !is_event(line, "stop"),
        };
    }
    let Some(mut chain) = chain else { return Ok(None) };
    let (mut torn, mut open) = (None, false);
    if !rest.is_empty() {
        match Place::of(rest) {
            Some((place, true)) if place.prev == chain.last => {
                chain.push(&place);
                open = true;
            }
            _ => torn = Some(Torn { bytes: rest.len(), digest: hash(&[rest]) }),
        }
    }
    Ok(Some(End { resumed: Resumed { chain, crashed }, torn, open }))
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
        let mut file = &*self.file;
        if self.open {
            file.write_all(b"\n")?;
            self.open = false;
        }
        // One `write`: whoever reads the file at the same time sees whole lines.
        match file.write(line) {
            Ok(written) if written == line.len() => {
                self.bytes += line.len() as u64;
                self.unsynced = true;
                Ok(())
            }
            Ok(written) => {
                if written > 0 {
                    let part = line.get(..written).unwrap_or_default();
                    self.torn = Some(Torn { bytes: written, digest: hash(&[part]) });
                    self.bytes += written as u64;
                }
                Err(io::Error::new(io::ErrorKind::WriteZero, "only a part of the line was written"))
            }
            Err(error) => Err(error),
        }
    }

    fn torn(&mut self) -> Option<Torn> {
        let torn = self.torn?;
        // What was torn gets a line of its own.
        (&*self.file).write_all(b"\n").ok()?;
        self.torn = None;
        Some(torn)
    }

    fn turn(&mut self, seq: u64, now: SystemTime) -> io::Result<bool> {
        let first = *self.first.get_or_insert(seq);
        let old = |age| now.duration_since(self.since).is_ok_and(|since| since >= age);
        let due = self.bytes >= self.rotation.size || self.rotation.age.is_some_and(old);
        if !due || !self.regular || self.bytes == 0 || self.torn.is_some() {
            return Ok(false);
        }
        let (stem, end) = parts(&self.path);
        let full = self.path.with_file_name(format!("{stem}.{first:0DIGITS$}{end}"));
        if full.exists() {
            return Err(io::Error::other(format!("`{}` is there already", full.display())));
        }
        fs::rename(&self.path, &full)?;
        let mut options = OpenOptions::new();
        let opened = options.append(true).create_new(true).read(true).mode(0o600).open(&self.path);
        let opened = opened.and_then(|file| lock(&file, &self.path).map(|()| file));
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                // As it was: what cannot be begun anew is continued.
                fs::rename(&full, &self.path)?;
                return Err(error);
            }
        };
        self.file.sync_data()?;
        self.file = Arc::new(file);
        (self.bytes, self.first, self.since) = (0, Some(seq), now);
        Ok(true)
    }

    fn unsynced(&mut self) -> Option<Arc<File>> {
        let unsynced = std::mem::take(&mut self.unsynced) && self.regular;
        unsynced.then(|| Arc::clone(&self.file))
    }

    fn expired(&mut self, now: SystemTime) -> Vec<PathBuf> {
        let Rotation { keep, keep_for, .. } = self.rotation;
        if !self.regular || (keep.is_none() && keep_for.is_none()) {
            return Vec::new();
        }
        let mut full = self.full().unwrap_or_default();
        let kept = keep.unwrap_or(usize::MAX);
        let many = full.len().saturating_sub(kept);
        let old = |path: &Path| {
            let changed = fs::metadata(path).and_then(|found| found.modified()).ok();
            let age = changed.and_then(|changed| now.duration_since(changed).ok());
            age.zip(keep_for).is_some_and(|(age, most)| age > most)
        };
        // The oldest go first, so that what is left is one piece.
        let aged = full.iter().take_while(|(_, path)| old(path)).count();
        full.truncate(many.max(aged));
        full.into_iter().map(|(_, path)| path).collect()
    }
}
