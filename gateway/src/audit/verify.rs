//! Whether a log is the one that was written: offline, from its files alone.
//!
//! What is found: a record that was changed, taken out, put in or moved; a file that was cut; two
//! records with one number; a checkpoint that is not of this log, or signed by somebody else. What
//! the files alone cannot show is that the end was cut off, or all of it written anew by somebody who
//! has the key: for that it takes a checkpoint that was kept elsewhere, or a key that was.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead};

use super::chain::{GENESIS, Place, read};
use super::file::{event_of, peaks};
use super::note::{Checkpoint, NoteError, Verifier};
use super::tree::{Hash, Tree, hash};

/// Longest line, in bytes: no record is nearly as long.
const LONGEST: u64 = 4 * 1024 * 1024;

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// In which file.
    pub file: String,
    /// At which line.
    pub line: u64,
    /// The number the record bears, if it is one.
    pub seq: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, seq, what } = self;
        match seq {
            Some(seq) => write!(f, "{file}:{line}: record {seq}: {what}"),
            None => write!(f, "{file}:{line}: {what}"),
        }
    }
}

/// What was found out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many files were read.
    pub files: u64,
    /// How many records.
    pub records: u64,
    /// How many checkpoints were good.
    pub checkpoints: u64,
    /// Records of the last chain that its last good checkpoint covers.
    pub covered: u64,
    /// Records after that.
    pub after: u64,
    /// The checkpoints are signed by keys that only the log itself vouches for.
    pub vouched: bool,
    /// What one should know.
    pub remarks: Vec<String>,
    /// The first thing that is wrong in each file, and what is missing at the end.
    pub problems: Vec<Problem>,
}

/// One chain as far as it was read.
#[derive(Debug)]
struct Strand {
    chain: Box<str>,
    tree: Tree,
    last: Hash,
    covered: u64,
    stopped: bool,
}

/// What is known of the records of a chain: how each hash begins, from a number on.
#[derive(Debug, Default)]
struct Known {
    first: u64,
    starts: Vec<u64>,
}

/// Reads files, the oldest first.
#[derive(Debug)]
pub struct Audit {
    keys: Vec<Verifier>,
    /// The keys are those that the log names itself.
    vouched: bool,
    witnessed: Vec<Checkpoint>,
    strand: Option<Strand>,
    known: HashMap<Box<str>, Known>,
    report: Report,
}

/// Where the reader is.
struct At<'a> {
    file: &'a str,
    line: u64,
    seq: Option<u64>,
}

impl At<'_> {
    fn wrong(&self, what: impl Into<String>) -> Problem {
        Problem { file: self.file.to_owned(), line: self.line, seq: self.seq, what: what.into() }
    }
}

impl Audit {
    /// A reader that believes these keys; without any, those that the log itself names.
    #[must_use]
    pub fn new(keys: Vec<Verifier>) -> Self {
        let vouched = keys.is_empty();
        let report = Report { vouched, ..Report::default() };
        let (witnessed, known) = (Vec::new(), HashMap::new());
        Self { keys, vouched, witnessed, strand: None, known, report }
    }

    /// Checkpoints that were kept elsewhere; the log has to agree with them. They are believed
    /// whoever has signed them where no key is given: whoever gives them has them from elsewhere.
    ///
    /// # Errors
    /// When one is none, or is signed by none of the keys.
    pub fn witness(&mut self, notes: &str) -> Result<usize, NoteError> {
        let notes = Checkpoint::split(notes);
        for note in &notes {
            let checkpoint = match self.vouched {
                true => Checkpoint::unsigned(note).ok_or(NoteError::Form)?,
                false => Checkpoint::open(note, &self.keys)?.0,
            };
            self.witnessed.push(checkpoint);
        }
        self.witnessed.sort_by(|a, b| (a.size, &a.origin).cmp(&(b.size, &b.origin)));
        Ok(notes.len())
    }

    /// Whether two of the checkpoints from elsewhere contradict each other: then the log was forked,
    /// whatever is in its files.
    fn contradiction(&self) -> Option<String> {
        let (one, other) = self
            .witnessed
            .iter()
            .zip(self.witnessed.iter().skip(1))
            .find(|(a, b)| a.size == b.size && a.origin == b.origin && a.root != b.root)?;
        Some(format!(
            "two checkpoints of {} over {} records have other heads",
            one.origin, other.size
        ))
    }

    /// Reads one file, up to what is wrong in it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&mut self, file: &str, from: &mut dyn BufRead) -> io::Result<()> {
        self.report.files += 1;
        let mut line = Vec::new();
        let mut torn: Option<(u64, usize, Hash)> = None;
        for number in 1.. {
            line.clear();
            let count = io::Read::take(&mut *from, LONGEST).read_until(b'\n', &mut line)?;
            let whole = line.pop_if(|byte| *byte == b'\n').is_some();
            let at = At { file, line: number, seq: None };
            if count == 0 {
                if let Some((line, ..)) = torn {
                    let at = At { line, ..at };
                    self.report.problems.push(at.wrong("this is no record, and nothing says why"));
                }
                return Ok(());
            }
            let record = Place::of(&line);
            let Some((place, fits)) = record else {
                if torn.is_some() || !whole {
                    let what = if whole { "this is no record" } else { "the last line is cut" };
                    self.report.problems.push(at.wrong(what));
                    return Ok(());
                }
                torn = Some((number, line.len(), hash(&[&line])));
                continue;
            };
            let at = At { seq: Some(place.seq), ..at };
            let taken = torn.take().map_or(Ok(()), |torn| explains(&line, &torn, &at));
            let taken = taken.and_then(|()| self.record(&line, &place, fits, &at));
            if let Err(problem) = taken {
                self.report.problems.push(problem);
                self.strand = None;
                return Ok(());
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        line: &[u8],
        place: &Place,
        fits: bool,
        at: &At<'_>,
    ) -> Result<(), Problem> {
        if !fits {
            return Err(at.wrong("it is not what it was when it was written"));
        }
        let anew = spelled(line);
        let line = anew.as_deref().unwrap_or(line);
        let event = event_of(line);
        self.place(line, event, place, at)?;
        let Some(strand) = &mut self.strand else { return Ok(()) };
        if matches!(event, Some("start" | "opened")) {
            if text(line, "chain").as_deref() != Some(&*strand.chain) {
                return Err(at.wrong("it is of another chain"));
            }
            if let Some(key) = text(line, "key").filter(|_| self.vouched) {
                let key = Verifier::parse(&key);
                let key = key.map_err(|error| at.wrong(error.to_string()))?;
                if !self.keys.contains(&key) {
                    self.keys.push(key);
                }
            }
        }
        if event == Some("checkpoint") {
            let note = text(line, "note").ok_or_else(|| at.wrong("it has no checkpoint"))?;
            let opened = Checkpoint::open(&note, &self.keys);
            let (head, _) = opened.map_err(|error| at.wrong(format!("the checkpoint: {error}")))?;
            let same = head.size == strand.tree.size() && head.root == strand.tree.root();
            if !same || !head.origin.ends_with(&format!("/{}", strand.chain)) {
                return Err(at.wrong("the checkpoint is not of this log"));
            }
            strand.covered = head.size;
            self.report.checkpoints += 1;
        }
        strand.stopped = match event {
            Some("stop") => true,
            Some("checkpoint") => strand.stopped,
            _ => false,
        };
        strand.last = place.hash;
        strand.tree.push(&place.hash);
        self.report.records += 1;
        let known = self
            .known
            .entry(strand.chain.clone())
            .or_insert_with(|| Known { first: place.seq, starts: Vec::new() });
        if !known.agrees(place) {
            return Err(at.wrong("another record has this number too: the log was forked"));
        }
        let strand = &*strand;
        for witness in &self.witnessed {
            let ours = witness.origin.ends_with(&format!("/{}", strand.chain));
            if witness.size == strand.tree.size() && ours && witness.root != strand.tree.root() {
                return Err(at.wrong(
                    "a checkpoint from elsewhere has another head over the records up to here",
                ));
            }
        }
        Ok(())
    }

    /// Whether a record follows the one before it, or may begin something new.
    fn place(
        &mut self,
        line: &[u8],
        event: Option<&str>,
        place: &Place,
        at: &At<'_>,
    ) -> Result<(), Problem> {
        if let Some(strand) = &self.strand {
            let next = strand.tree.size();
            if place.seq == next && place.prev == strand.last {
                return Ok(());
            }
            let named = (number(line, "from"), number(line, "to"));
            if event == Some("gap") && named == (Some(next), place.seq.checked_sub(1)) {
                let remark = format!(
                    "records {next} to {} were not taken by this sink; record {} says so",
                    place.seq - 1,
                    place.seq
                );
                self.report.remarks.push(remark);
            } else if place.seq == next {
                return Err(at.wrong("it does not follow the record before it"));
            } else if !strand.may_begin(line, event, at) {
                let what = match place.seq.checked_sub(next) {
                    Some(missing) => format!("{missing} records before it are missing"),
                    None => "it was moved, or is here twice".to_owned(),
                };
                return Err(at.wrong(what));
            }
        }
        // A new beginning has to say what came before it.
        let Some((chain, tree)) = peaks(line).filter(|(_, tree)| tree.size() == place.seq) else {
            return Err(at.wrong("the log begins here, and nothing says what came before"));
        };
        if place.seq == 0 && place.prev != GENESIS {
            return Err(at.wrong("it is the first, but names one before it"));
        }
        self.close();
        if let Some(strand) = &self.strand
            && strand.chain == chain
            && place.seq > strand.tree.size()
            && event != Some("gap")
        {
            let missing = place.seq - strand.tree.size();
            return Err(at.wrong(format!("{missing} records before it are missing")));
        }
        if place.seq > 0 && event != Some("gap") {
            let remark = format!("{}: begins with record {}", at.file, place.seq);
            self.report.remarks.push(remark);
        }
        let (last, stopped) = (place.prev, false);
        self.strand = Some(Strand { chain, tree, last, covered: 0, stopped });
        Ok(())
    }

    /// Notes how a chain ends.
    fn close(&mut self) {
        let Some(strand) = &self.strand else { return };
        self.report.covered = strand.covered;
        self.report.after = strand.tree.size().saturating_sub(strand.covered);
        if !strand.stopped {
            let remark = format!(
                "chain {} ends with record {}, without a stop: the gateway is running, has been \
                 killed, or the end was cut off",
                strand.chain,
                strand.tree.size().saturating_sub(1)
            );
            self.report.remarks.push(remark);
        }
    }

    /// What was found out, when all files are read.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.close();
        if let Some(what) = self.contradiction() {
            let (file, line, seq) = (String::new(), 0, None);
            self.report.problems.insert(0, Problem { file, line, seq, what });
        }
        if self.report.problems.is_empty() {
            for witness in &self.witnessed {
                let chain = witness.origin.rsplit('/').next().unwrap_or_default();
                let end = self.known.get(chain).map(Known::end);
                if end.is_none_or(|end| end < witness.size) {
                    let what = format!(
                        "a checkpoint from elsewhere is over {} records, and there are {}: the end \
                         was cut off",
                        witness.size,
                        end.unwrap_or_default()
                    );
                    let file = witness.origin.to_string();
                    self.report.problems.push(Problem { file, line: 0, seq: None, what });
                    break;
                }
            }
        }
        if self.report.records == 0 && self.report.problems.is_empty() {
            let what = "there is no record in it".to_owned();
            self.report.problems.push(Problem { file: String::new(), line: 0, seq: None, what });
        }
        self.report
    }
}

impl Strand {
    /// Whether something else may begin here: a file, or a chain where several follow each other.
    fn may_begin(&self, line: &[u8], event: Option<&str>, at: &At<'_>) -> bool {
        let other = || text(line, "chain").as_deref() != Some(&*self.chain);
        matches!(event, Some("start" | "opened")) && (at.line == 1 || other())
    }
}

impl Known {
    fn end(&self) -> u64 {
        self.first + self.starts.len() as u64
    }

    /// Whether no other record has this number.
    fn agrees(&mut self, place: &Place) -> bool {
        let [a, b, c, d, e, f, g, h, ..] = place.hash;
        let start = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let at = place.seq.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(at) = at else { return true };
        match self.starts.get(at) {
            Some(0) | None => {
                if self.starts.len() <= at {
                    self.starts.resize(at, 0);
                    self.starts.push(start);
                }
                true
            }
            Some(known) => *known == start,
        }
    }
}

/// Whether a record is the one that says what of the line before it was torn.
fn explains(line: &[u8], torn: &(u64, usize, Hash), at: &At<'_>) -> Result<(), Problem> {
    let (number_of_line, bytes, digest) = torn;
    let named = event_of(line) == Some("torn")
        && number(line, "bytes") == Some(*bytes as u64)
        && text(line, "digest").as_deref() == Some(&*crate::hex::encode(digest));
    let at = At { line: *number_of_line, seq: None, file: at.file };
    if named { Ok(()) } else { Err(at.wrong("this is no record, and the next does not say why")) }
}

/// A record as the gateway writes it, where somebody has written it otherwise.
fn spelled(line: &[u8]) -> Option<Vec<u8>> {
    if line.starts_with(b"{\"") && event_of(line).is_some() {
        return None;
    }
    let document = read(line)?;
    let mut out = Vec::new();
    policy::json::write_canonical(&mut out, document.root()).ok()?;
    Some(out)
}

fn text(line: &[u8], name: &str) -> Option<String> {
    read(line)?.root().get(name)?.as_str().map(String::from)
}

fn number(line: &[u8], name: &str) -> Option<u64> {
    read(line)?.root().get(name)?.raw().parse().ok()
}
