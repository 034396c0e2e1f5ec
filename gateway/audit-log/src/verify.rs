//! The verifier: checks offline, from its files alone, that a log is intact. The CLI verb `audit verify` uses it.
//!
//! It detects records that were changed, removed, inserted or moved, a file that was truncated, two records with one
//! number, and checkpoints of another log or by another signer. The files alone cannot show that the end was cut off,
//! or that a holder of the key has rewritten the log: that needs a checkpoint or a key that was kept elsewhere.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead};

use crate::chain::{ChainLink, GENESIS, event_of, other_format, peaks, read};
use crate::note::{Checkpoint, NoteError, NoteVerifier};
use crate::tree::{Hash, MerkleTree};

/// Maximum length of a line, in bytes; no record is nearly as long.
const LONGEST: u64 = 4 * 1024 * 1024;

/// A problem that the verifier has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProblem {
    /// Name of the file.
    pub file: String,
    /// Line number, or 0.
    pub line: u64,
    /// The sequence number in the record, if the line is one.
    pub seq: Option<u64>,
    /// Description of the problem.
    pub what: String,
    /// The severity of the problem.
    pub weight: ProblemSeverity,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemSeverity {
    /// The log is not intact.
    Broken,
    /// The log is consistent, but signed with a key that only the log itself names.
    Unproved,
}

impl fmt::Display for LogProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, seq, what, weight: _ } = self;
        match seq {
            Some(seq) => write!(f, "{file}:{line}: record {seq}: {what}"),
            None => write!(f, "{file}:{line}: {what}"),
        }
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Number of files that were read.
    pub files: u64,
    /// Number of valid records.
    pub records: u64,
    /// Number of valid checkpoints.
    pub checkpoints: u64,
    /// Number of records of the last chain that its last valid checkpoint covers.
    pub covered: u64,
    /// Number of records after that checkpoint.
    pub after: u64,
    /// Whether the keys were taken from the log itself.
    pub vouched: bool,
    /// How the last chain ends.
    pub end: LogEnd,
    /// Remarks that are not problems.
    pub remarks: Vec<String>,
    /// The first problem in each file, and those of the log as a whole.
    pub problems: Vec<LogProblem>,
}

/// How the records of a log end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogEnd {
    /// With a `stop` record of the gateway.
    Stopped,
    /// Without one, so the files alone do not show whether there were more records.
    #[default]
    Open,
}

impl VerifyReport {
    /// The highest severity; `None` if there is no problem.
    #[must_use]
    pub fn weight(&self) -> Option<ProblemSeverity> {
        let is_broken = |problem: &LogProblem| problem.weight == ProblemSeverity::Broken;
        match self.problems.as_slice() {
            [] => None,
            problems if problems.iter().any(is_broken) => Some(ProblemSeverity::Broken),
            _ => Some(ProblemSeverity::Unproved),
        }
    }
}

/// Default maximum number of records after the last checkpoint: one default checkpoint interval and a little more.
pub const UNCOVERED: u64 = 1100;

/// What a log must satisfy.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// The trusted keys; if empty, those that the log itself names.
    pub keys: Vec<NoteVerifier>,
    /// Maximum number of records after the last checkpoint of a log that was not stopped: only the hash chain
    /// protects them, which anyone can recompute.
    pub uncovered: u64,
    /// The log may begin with this record or an earlier one.
    pub from: u64,
    /// The log comes from a collector that may have received records twice.
    pub collected: bool,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { keys: Vec::new(), uncovered: UNCOVERED, from: 0, collected: false }
    }
}

/// One chain as far as it was read.
#[derive(Debug)]
struct ChainState {
    chain: Box<str>,
    tree: MerkleTree,
    last: Hash,
    /// Number of the first record read here; earlier ones are known only by the peaks.
    begun: u64,
    covered: u64,
    stopped: bool,
    /// The key that the last `start` or `opened` record names.
    named: Option<NoteVerifier>,
}

/// The records seen of a chain, as runs: the first number, and the first 64 bits of each hash.
#[derive(Debug, Default)]
struct SeenRecords(Vec<(u64, Vec<u64>)>);

/// The verifier, which reads files from the oldest to the newest.
#[derive(Debug)]
pub struct LogVerifier {
    demands: VerifyOptions,
    keys: Vec<NoteVerifier>,
    /// Whether the keys are taken from the log itself.
    vouched: bool,
    witnessed: Vec<Checkpoint>,
    strand: Option<ChainState>,
    known: HashMap<Box<str>, SeenRecords>,
    /// The last record of each chain that was removed on expiry, as the log says.
    retired: HashMap<Box<str>, u64>,
    /// The `began` records, by which a new log says that it replaces another: position and text.
    began: Vec<(String, String)>,
    /// Keys that only the log names; each was reported once.
    unknown: Vec<NoteVerifier>,
    report: VerifyReport,
}

/// The position of the reader.
struct LinePosition<'a> {
    file: &'a str,
    line: u64,
    seq: Option<u64>,
}

impl LinePosition<'_> {
    fn wrong(&self, what: impl Into<String>) -> LogProblem {
        self.problem(what, ProblemSeverity::Broken)
    }

    fn problem(&self, what: impl Into<String>, weight: ProblemSeverity) -> LogProblem {
        let (file, what) = (self.file.to_owned(), what.into());
        LogProblem { file, line: self.line, seq: self.seq, what, weight }
    }
}

impl LogVerifier {
    /// Makes a verifier with these demands.
    #[must_use]
    pub fn new(demands: VerifyOptions) -> Self {
        let vouched = demands.keys.is_empty();
        let report = VerifyReport { vouched, ..VerifyReport::default() };
        Self {
            keys: demands.keys.clone(),
            demands,
            vouched,
            witnessed: Vec::new(),
            strand: None,
            known: HashMap::new(),
            retired: HashMap::new(),
            began: Vec::new(),
            unknown: Vec::new(),
            report,
        }
    }

    /// Adds checkpoints that were kept elsewhere and must agree with the log. If no key is given, their signatures
    /// are not verified, because the caller vouches for them. Returns their number.
    ///
    /// # Errors
    /// If one is not a checkpoint, or is not signed by a given key.
    pub fn witness(&mut self, notes: &str) -> Result<usize, NoteError> {
        let (mut read, mut unfinished) = (Vec::new(), 0);
        for note in Checkpoint::split(notes) {
            let checkpoint = match self.vouched {
                true => Checkpoint::unsigned(&note),
                false => Checkpoint::open(&note, &self.keys).map(|(checkpoint, _)| checkpoint),
            };
            match checkpoint {
                Ok(checkpoint) => read.push(checkpoint),
                // A crash leaves an unfinished checkpoint, and later ones follow it.
                Err(NoteError::Unfinished) => unfinished += 1,
                Err(error) => return Err(error),
            }
        }
        if unfinished > 0 {
            if read.is_empty() {
                return Err(NoteError::Form);
            }
            let remark = format!("{unfinished} of the checkpoints from elsewhere are not finished");
            self.report.remarks.push(remark);
        }
        let count = read.len();
        self.witnessed.append(&mut read);
        self.witnessed.sort_by(|a, b| (a.size, &a.origin).cmp(&(b.size, &b.origin)));
        Ok(count)
    }

    /// Checks that a log that does not begin with its first record says what became of earlier ones.
    fn beginnings(&mut self) {
        for (chain, known) in &self.known {
            let first = known.0.iter().map(|(first, _)| *first).min().unwrap_or_default();
            let gone = self.retired.get(chain).map_or(0, |last| last + 1);
            if first > self.demands.from.max(gone) {
                let what = format!(
                    "the records before {first} are not here, and nothing says that they were thrown \
                     away; say `--from {first}` if that is meant"
                );
                let file = format!("chain {chain}");
                self.report.problems.push(broken(file, what));
            }
        }
    }

    /// Whether two external checkpoints contradict each other. Then the log was forked, even if its files are
    /// consistent.
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

    /// Reads one file, up to the first problem in it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&mut self, file: &str, from: &mut dyn BufRead) -> io::Result<()> {
        self.report.files += 1;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let count = io::Read::take(&mut *from, LONGEST).read_until(b'\n', &mut line)?;
            if count == 0 {
                return Ok(());
            }
            let whole = line.pop_if(|byte| *byte == b'\n').is_some();
            let at = LinePosition { file, line: number, seq: None };
            let taken = match ChainLink::of(&line) {
                Some((place, true)) => {
                    self.record(&line, &place, &LinePosition { seq: Some(place.seq), ..at })
                }
                Some((place, false)) => {
                    Err(altered(&line, &LinePosition { seq: Some(place.seq), ..at }))
                }
                None if whole => Err(at.wrong("this is no record")),
                None => Err(at.wrong("the last line is cut")),
            };
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
        place: &ChainLink,
        at: &LinePosition<'_>,
    ) -> Result<(), LogProblem> {
        let anew = spelled(line);
        let line = anew.as_deref().unwrap_or(line);
        let event = event_of(line);
        if self.demands.collected && self.is_again(place) {
            return Ok(());
        }
        self.place(line, event, place, at)?;
        if matches!(event, Some("start" | "opened")) {
            self.signer(line, at)?;
        }
        if event == Some("checkpoint") {
            self.checkpoint(line, at)?;
        }
        let Some(strand) = &mut self.strand else { return Ok(()) };
        strand.stopped = match event {
            Some("stop") => true,
            Some("checkpoint") => strand.stopped,
            _ => false,
        };
        if event == Some("began")
            && let Some(what) = text(line, "what")
        {
            self.began.push((format!("{}:{}: record {}", at.file, at.line, place.seq), what));
        }
        if event == Some("retired")
            && let Some(to) = number(line, "to")
        {
            let last = self.retired.entry(strand.chain.clone()).or_default();
            *last = (*last).max(to);
        }
        strand.last = place.hash;
        strand.tree.push(place.hash);
        self.report.records += 1;
        if !self.known.entry(strand.chain.clone()).or_default().agrees(place) {
            return Err(at.wrong("another record has this number too: the log was forked"));
        }
        self.compare(at)
    }

    /// Takes the key that the first record of a file names for its chain.
    fn signer(&mut self, line: &[u8], at: &LinePosition<'_>) -> Result<(), LogProblem> {
        let Some(strand) = &mut self.strand else { return Ok(()) };
        if text(line, "chain").as_deref() != Some(&*strand.chain) {
            return Err(at.wrong("it is of another chain"));
        }
        let key = text(line, "key").map(|key| NoteVerifier::parse(&key)).transpose();
        strand.named = match key {
            Ok(key) => key,
            Err(error) if self.vouched => return Err(at.wrong(error.to_string())),
            Err(_) => None,
        };
        if let Some(key) = strand.named.as_ref().filter(|_| self.vouched)
            && !self.keys.contains(key)
        {
            self.keys.push(key.clone());
        }
        Ok(())
    }

    /// Verifies a checkpoint against the records before it.
    fn checkpoint(&mut self, line: &[u8], at: &LinePosition<'_>) -> Result<(), LogProblem> {
        let Some(strand) = &mut self.strand else { return Ok(()) };
        let note = text(line, "note").ok_or_else(|| at.wrong("it has no checkpoint"))?;
        let wrong = |error: NoteError| at.wrong(format!("the checkpoint: {error}"));
        let head = match (Checkpoint::open(&note, &self.keys), &strand.named) {
            (Ok((head, _)), _) => head,
            (Err(NoteError::Stranger), Some(named)) => {
                let (head, by) = Checkpoint::open(&note, [named]).map_err(wrong)?;
                // The rest of the file can still be verified.
                if !self.unknown.contains(by) {
                    self.unknown.push(by.clone());
                    self.report.problems.push(at.problem(signed_by(by), ProblemSeverity::Unproved));
                }
                head
            }
            (Err(error), _) => return Err(wrong(error)),
        };
        let same = head.size == strand.tree.size() && head.root == strand.tree.root();
        if !same || !head.origin.ends_with(&format!("/{}", strand.chain)) {
            return Err(at.wrong("the checkpoint is not of this log"));
        }
        strand.covered = head.size;
        self.report.checkpoints += 1;
        Ok(())
    }

    /// Whether a record was read before.
    fn is_again(&self, place: &ChainLink) -> bool {
        let strand = self.strand.as_ref().filter(|strand| place.seq < strand.tree.size());
        let known = strand.and_then(|strand| self.known.get(&strand.chain));
        known.is_some_and(|known| known.start(place.seq) == Some(start_of(place)))
    }

    /// Checks that external checkpoints have the same root over the records so far.
    fn compare(&self, at: &LinePosition<'_>) -> Result<(), LogProblem> {
        let Some(strand) = &self.strand else { return Ok(()) };
        let size = strand.tree.size();
        let from = self.witnessed.partition_point(|witness| witness.size < size);
        let of_this = self.witnessed.iter().skip(from).take_while(|witness| witness.size == size);
        for witness in of_this {
            let ours = witness.origin.ends_with(&format!("/{}", strand.chain));
            if ours && witness.root != strand.tree.root() {
                return Err(at.wrong("a checkpoint from elsewhere has another head"));
            }
        }
        Ok(())
    }

    /// Checks that a record follows the one before it, or may begin a new file or chain.
    fn place(
        &mut self,
        line: &[u8],
        event: Option<&str>,
        place: &ChainLink,
        at: &LinePosition<'_>,
    ) -> Result<(), LogProblem> {
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
                    Some(missing) => lacking(missing),
                    None => "it was moved, or is here twice".to_owned(),
                };
                return Err(at.wrong(what));
            }
        }
        // A new start must carry the peaks of what came before it.
        let begins = matches!(event, Some("start" | "opened"))
            || (event == Some("gap") && self.strand.is_some());
        let found = peaks(line).filter(|(_, tree)| begins && tree.size() == place.seq);
        let Some((chain, tree)) = found else {
            return Err(at.wrong("the log begins here, and nothing says what came before"));
        };
        if place.seq == 0 && place.prev != GENESIS {
            return Err(at.wrong("it is the first, but names one before it"));
        }
        self.close(Some(at));
        let end = self.known.get(&chain).map(SeenRecords::end);
        if let Some(missing) = end.and_then(|end| place.seq.checked_sub(end)).filter(|m| *m > 0)
            && event != Some("gap")
        {
            return Err(at.wrong(lacking(missing)));
        }
        let has_begun = self.known.contains_key(&chain);
        if !has_begun && place.seq > 0 {
            let remark = format!("{}: begins with record {}", at.file, place.seq);
            self.report.remarks.push(remark);
        }
        let (last, stopped, begun) = (place.prev, false, place.seq);
        self.known.entry(chain.clone()).or_default();
        let named = None;
        self.strand = Some(ChainState { chain, tree, last, begun, covered: 0, stopped, named });
        self.compare(at)
    }

    /// Ends a part of a chain: notes how it ends and whether a checkpoint covers it.
    fn close(&mut self, at: Option<&LinePosition<'_>>) {
        let Some(strand) = &self.strand else { return };
        let size = strand.tree.size();
        self.report.covered = strand.covered;
        let after = size.saturating_sub(strand.covered.max(strand.begun));
        self.report.after = after;
        self.report.end = if strand.stopped { LogEnd::Stopped } else { LogEnd::Open };
        if at.is_none() && !strand.stopped {
            let remark = format!(
                "chain {} ends with record {}, without a stop: the gateway is running, has been \
                 killed, or the end was cut off",
                strand.chain,
                size.saturating_sub(1)
            );
            self.report.remarks.push(remark);
        }
        if self.vouched {
            return;
        }
        // The checkpoint itself is a record as well.
        let most = if strand.stopped { 1 } else { self.demands.uncovered };
        let what = if strand.covered == 0 || strand.covered < strand.begun {
            format!(
                "no checkpoint covers the records {} to {}",
                strand.begun,
                size.saturating_sub(1)
            )
        } else if after > most {
            format!("{after} records at the end of it are covered by no checkpoint")
        } else {
            return;
        };
        let file = at.map_or_else(|| format!("chain {}", strand.chain), |at| at.file.to_owned());
        let line = at.map_or(0, |at| at.line);
        self.report.problems.push(LogProblem { line, ..broken(file, what) });
    }

    /// Finishes the verification after all files are read.
    #[must_use]
    pub fn finish(mut self) -> VerifyReport {
        self.close(None);
        self.beginnings();
        if let Some(what) = self.contradiction() {
            self.report.problems.insert(0, broken(String::new(), what));
        }
        if self.report.weight() != Some(ProblemSeverity::Broken) {
            for witness in &self.witnessed {
                let chain = witness.origin.rsplit('/').next().unwrap_or_default();
                let end = self.known.get(chain).map(SeenRecords::end);
                if end.is_none_or(|end| end < witness.size) {
                    let began = self.began.iter().find(|(_, what)| what.contains(chain));
                    let what = match (end, began) {
                        (None, Some((place, _))) => format!(
                            "a checkpoint from elsewhere is over {} records of another log; {place} says that \
                             this one was begun in its place: give the files of that log as well",
                            witness.size
                        ),
                        (end, _) => format!(
                            "a checkpoint from elsewhere is over {} records, and there are {}: the end \
                             was cut off",
                            witness.size,
                            end.unwrap_or_default()
                        ),
                    };
                    let file = witness.origin.to_string();
                    self.report.problems.push(broken(file, what));
                    break;
                }
            }
        }
        if self.report.records == 0 && self.report.problems.is_empty() {
            let what = "there is no record in it".to_owned();
            self.report.problems.push(broken(String::new(), what));
        }
        self.report
    }
}

/// A problem of the log as a whole, at no line.
fn broken(file: String, what: String) -> LogProblem {
    LogProblem { file, line: 0, seq: None, what, weight: ProblemSeverity::Broken }
}

/// The message for missing records.
fn lacking(count: u64) -> String {
    match count {
        1 => "the record before it is missing".to_owned(),
        count => format!("{count} records before it are missing"),
    }
}

/// The message for a checkpoint whose key only the log names.
fn signed_by(key: &NoteVerifier) -> String {
    format!(
        "the checkpoint: it is signed by none of the keys that were given, but by the one that the start before it names, `{}`. \
         A start without `audit.checkpoints.key` makes a key of its own: if that is so here, give this key as well (`--key`), as \
         the gateway told it elsewhere, and configure one. Otherwise somebody has written the log anew",
        key.text()
    )
}

impl ChainState {
    /// Whether a new file or another chain may begin here.
    fn may_begin(&self, line: &[u8], event: Option<&str>, at: &LinePosition<'_>) -> bool {
        let other = || text(line, "chain").as_deref() != Some(&*self.chain);
        matches!(event, Some("start" | "opened")) && (at.line == 1 || other())
    }
}

impl SeenRecords {
    /// The number after the last record seen.
    fn end(&self) -> u64 {
        self.0.iter().map(|(first, starts)| first + starts.len() as u64).max().unwrap_or_default()
    }

    /// The first 64 bits of the hash of this record, if it was seen.
    fn start(&self, seq: u64) -> Option<u64> {
        self.0.iter().find_map(|(first, starts)| {
            let at = usize::try_from(seq.checked_sub(*first)?).ok()?;
            starts.get(at).copied()
        })
    }

    /// Adds a record; returns `false` if another record with this number was seen.
    fn agrees(&mut self, place: &ChainLink) -> bool {
        let start = start_of(place);
        let next =
            |(first, starts): &&mut (u64, Vec<u64>)| first + starts.len() as u64 == place.seq;
        // In most logs each record follows the one before it.
        if self.0.len() == 1
            && let Some((_, starts)) = self.0.iter_mut().find(next)
        {
            starts.push(start);
            return true;
        }
        match self.start(place.seq) {
            Some(known) => known == start,
            None => {
                match self.0.iter_mut().find(next) {
                    Some((_, starts)) => starts.push(start),
                    None => self.0.push((place.seq, vec![start])),
                }
                true
            }
        }
    }
}

fn start_of(place: &ChainLink) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = place.hash;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Restores the canonical form of a record that was reformatted; `None` if it has that form.
fn spelled(line: &[u8]) -> Option<Vec<u8>> {
    if line.starts_with(b"{\"") && event_of(line).is_some() {
        return None;
    }
    let document = read(line)?;
    let mut out = Vec::new();
    json::write_canonical(&mut out, document.root()).ok()?;
    Some(out)
}

fn text(line: &[u8], name: &str) -> Option<String> {
    read(line)?.root().get(name)?.as_str().map(String::from)
}

fn number(line: &[u8], name: &str) -> Option<u64> {
    read(line)?.root().get(name)?.raw().parse().ok()
}

/// The problem of a record whose digest does not match its content.
fn altered(line: &[u8], at: &LinePosition<'_>) -> LogProblem {
    match other_format(line) {
        Some(version) => at.wrong(format!(
            "it says that it is in version {version} of the format; if it was written so, a gateway that writes it \
             can verify it"
        )),
        None => at.wrong("it is not what it was when it was written"),
    }
}
