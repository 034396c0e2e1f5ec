//! `portcullis audit`: verifies the audit log, shows its records, and exports them for other tools. Works on the files
//! alone; it needs neither the gateway nor its configuration.

mod known;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use audit_log::note::{NoteSigner, NoteVerifier};
use audit_log::verify::{
    LogEnd, LogVerifier as Auditor, ProblemSeverity, UNCOVERED, VerifyOptions, VerifyReport,
};
use bytes::Bytes;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use detection::inspect::Certainty;
use gateway::audit::file::{logs, siblings};
use gateway::audit::lines::{finding_in_words, is_of_selftest};
use gateway::audit::ocsf;
use gateway::config::settings::file_of_process;
use gateway::mcp::tool_naming::prefixed;
use gateway::metrics::outcome::ExchangeOutcome;
use json::{Document, JsonBounds, Value, write_ascii};
use policy_core::subject::name::{RESERVED, ServerName};

use super::printable::{in_a_line, printable, with_quotes};
use super::{FAILED, OutputFormat, complain, hints, print, say};

/// Exit code: the log is not the one that the gateway wrote.
const BROKEN: u8 = 8;
/// Interval at which a followed file is read again.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);
/// First characters of a formula in a spreadsheet, also in the full-width forms of East Asian scripts.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];
/// Columns of the CSV output, by the names of the record's members.
const COLUMNS: [&str; 16] = [
    "time",
    "event",
    "outcome",
    "decision",
    "reason",
    "rule",
    "principal",
    "client",
    "method",
    "server",
    "tool",
    "route",
    "status",
    "peer",
    "trace",
    "id",
];

#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    verb: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Verify that the log is the one that was written, from its files alone. Exits with 8 if a record was changed,
    /// removed, inserted or moved, if the log was cut or forked, or if it is signed with a key that was not given, and
    /// names the first such record. A log that does not end with a stop record has an open end: `--checkpoint` shows
    /// whether more records came after it.
    Verify {
        /// The log files, or `-` for standard input. The rotated files beside a file are read as well. A folder stands
        /// for each log in it, and each is verified by itself: that of the gateway, and those of processes that serve
        /// one client.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The public key of the gateway, `NAME+HASH+KEY`, or a file with such keys. Without one, the keys that the log
        /// itself names are trusted.
        #[arg(long, value_name = "KEY")]
        key: Vec<String>,
        /// A file of checkpoints that was kept elsewhere. With it, a log whose end was cut off is detected. It belongs
        /// to one log, so name that log and not a folder.
        #[arg(long, value_name = "FILE")]
        checkpoint: Vec<PathBuf>,
        /// The log may begin with this record or an earlier one.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        from: u64,
        /// Most records that may follow the last checkpoint of a log without a stop record. Checked if a key is given.
        #[arg(long, value_name = "COUNT", default_value_t = UNCOVERED)]
        uncovered: u64,
        /// The log comes from a collector that may have received records twice.
        #[arg(long)]
        collected: bool,
        /// Output format of the result.
        #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
        format: OutputFormat,
    },
    /// Show the last records of a log file.
    Tail {
        /// The log file to read.
        file: PathBuf,
        /// How many of the existing records to show.
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: usize,
        /// Wait for new records and show them, until interrupted.
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        filter: RecordFilter,
        /// Output format of the records.
        #[arg(long, value_enum, default_value_t = RecordFormat::Human)]
        format: RecordFormat,
    },
    /// Show the records that match a filter.
    Query {
        /// The log files, or `-` for standard input. The rotated files beside a file are read as well.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        filter: RecordFilter,
        /// Output format of the records.
        #[arg(long, value_enum, default_value_t = RecordFormat::Human)]
        format: RecordFormat,
    },
    /// Convert records for other tools.
    Export {
        /// The log files, or `-` for standard input. The rotated files beside a file are read as well.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        filter: RecordFilter,
        /// Output format of the records.
        #[arg(long, value_enum, default_value_t = RecordFormat::Ocsf)]
        format: RecordFormat,
    },
    /// Make a key that signs checkpoints, write it to a file that only its owner can read, and print its public half.
    Keygen {
        /// The file to write the key to. It must not exist.
        file: PathBuf,
        /// The name of the gateway, as in `audit.checkpoints.origin`.
        #[arg(long, default_value = "portcullis")]
        origin: String,
    },
}

/// Output format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RecordFormat {
    /// Text for people to read: a line for each record.
    Human,
    /// JSON for other programs: JSON Lines, as recorded. Also called `jsonl`.
    #[value(alias = "jsonl")]
    Json,
    /// CSV as in RFC 4180, with a header line.
    Csv,
    /// Events of OCSF 1.8, one JSON object a line.
    Ocsf,
}

/// Which records to show. A record has to match every option that is given.
#[derive(Clone, Debug, Args)]
struct RecordFilter {
    /// Only the record with this id, or the records of the approval with this id. A denied call has it in `_meta["dev.portcullis/denial"].record`.
    #[arg(long)]
    id: Option<String>,
    /// Only records of this event.
    #[arg(long, value_parser = known::events())]
    event: Option<String>,
    /// Only records of this principal.
    #[arg(long)]
    principal: Option<String>,
    /// Only records about this server.
    #[arg(long)]
    server: Option<String>,
    /// Only records about this tool, by its name on the route or at its server: `git__log`, or `log`, or `git/log`.
    #[arg(long)]
    tool: Option<String>,
    /// Only records with this method.
    #[arg(long)]
    method: Option<String>,
    /// Only records with this outcome.
    #[arg(long, value_parser = PossibleValuesParser::new(ExchangeOutcome::ALL.map(ExchangeOutcome::as_str)))]
    outcome: Option<String>,
    /// Only records with this reason, or with a server request that was refused for it. docs/reasons.md explains the
    /// codes, and a wrong one lists them all.
    #[arg(long, value_parser = known::reasons(), hide_possible_values = true)]
    reason: Option<String>,
    /// Only records with a finding of this detector, in the definition, in the call or in what the server sent
    /// (`secrets`), or with a server request that was refused for this reason (`server-request-secret`). docs/content.md explains the
    /// detectors, and a wrong name lists them all.
    #[arg(long, value_name = "NAME", value_parser = known::findings(), hide_possible_values = true)]
    found: Option<String>,
    /// Only records with a finding that is this sure; with `--found`, with one of that detector. Of records of earlier
    /// versions the text of the finding tells it.
    #[arg(long, value_parser = PossibleValuesParser::new(Certainty::ALL.map(Certainty::as_str)))]
    certainty: Option<String>,
    /// Only records that this rule decided.
    #[arg(long)]
    rule: Option<String>,
    /// Only records of this trace.
    #[arg(long)]
    trace: Option<String>,
    /// Only records from this time on (RFC 3339), or since so long ago, such as `2h`.
    #[arg(long, value_parser = moment)]
    since: Option<Moment>,
    /// Only records before this time (RFC 3339), or before so long ago.
    #[arg(long, value_parser = moment)]
    until: Option<Moment>,
    /// Include the records of the gateway's self-test, which `query` and `tail` leave out. `export` always includes
    /// them.
    #[arg(long)]
    selftest: bool,
}

/// A point in time, absolute or relative to now.
#[derive(Clone, Copy, Debug)]
enum Moment {
    At(SystemTime),
    Ago(Duration),
}

fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(at) = humantime::parse_rfc3339_weak(text) {
        return Ok(Moment::At(at));
    }
    let ago = humantime::parse_duration(text);
    ago.map(Moment::Ago).map_err(|_neither| "write `2026-11-21T08:00:00Z` or `2h`".to_owned())
}

impl Moment {
    fn time(self, now: SystemTime) -> SystemTime {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH),
        }
    }
}

impl RecordFilter {
    /// Whether the record is left out only because it belongs to the self-test. That is not so if the filter names the
    /// self-test's principal or server, or one record or trace.
    fn is_passed_over(&self, record: Value<'_>) -> bool {
        let named = [&self.principal, &self.server];
        let asked = named.iter().any(|name| name.as_deref() == Some(RESERVED));
        !asked && self.id.is_none() && self.trace.is_none() && is_of_selftest(record)
    }

    fn wants(&self, record: Value<'_>, now: SystemTime) -> bool {
        let text = |name: &str| record.get(name).and_then(|value| value.as_str());
        let is = |name: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| text(name).as_deref() == Some(&**wanted))
        };
        let all = (self.selftest || !self.is_passed_over(record))
            && (is("id", &self.id) || is("approval", &self.id))
            && is("event", &self.event)
            && is("principal", &self.principal)
            && is("server", &self.server)
            && self.tool.as_deref().is_none_or(|wanted| is_of_tool(record, wanted))
            && is("method", &self.method)
            && is("outcome", &self.outcome)
            && self.reason.as_deref().is_none_or(|reason| {
                // A refused server request is part of an exchange, whose own outcome may be a success.
                text("reason").as_deref() == Some(reason)
                    || findings(record).any(|one| is_refused(&one.text, reason))
            })
            && is("rule", &self.rule)
            && is("trace", &self.trace)
            && self.has_finding(record);
        if !all || (self.since.is_none() && self.until.is_none()) {
            return all;
        }
        let time = text("time").and_then(|time| humantime::parse_rfc3339(&time).ok());
        time.is_some_and(|time| {
            self.since.is_none_or(|since| time >= since.time(now))
                && self.until.is_none_or(|until| time < until.time(now))
        })
    }
}

impl RecordFilter {
    /// Whether the record has a finding of the detector and of the certainty that are asked for.
    fn has_finding(&self, record: Value<'_>) -> bool {
        let is_named =
            |one: &RecordedFinding| self.found.as_deref().is_none_or(|name| is_of(&one.text, name));
        let is_sure = |one: &RecordedFinding| {
            self.certainty.as_deref().is_none_or(|certainty| one.certainty == certainty)
        };
        let all = self.found.is_none() && self.certainty.is_none();
        all || findings(record).any(|one| is_named(&one) && is_sure(&one))
    }
}

/// Whether the record is about a tool that is named as in the record, as at its server, or as `SERVER/NAME`. Records
/// have the name on the route, which may be the one at the server with the name of the server before it.
fn is_of_tool(record: Value<'_>, wanted: &str) -> bool {
    let text = |name: &str| record.get(name).and_then(|value| value.as_str());
    let Some(tool) = text("tool") else { return false };
    if tool == wanted {
        return true;
    }
    let server = text("server").and_then(|server| ServerName::parse(&server).ok());
    server.is_some_and(|server| {
        let is = |own: &str| tool == own || tool == prefixed(&server, own);
        let of_server = wanted.strip_prefix(server.as_str());
        is(wanted) || of_server.and_then(|rest| rest.strip_prefix('/')).is_some_and(is)
    })
}

pub(super) fn run(audit: AuditArgs, now: SystemTime) -> ExitCode {
    let done = match audit.verb {
        AuditCommand::Verify { files, key, checkpoint, from, uncovered, collected, format } => {
            let demands = VerifyOptions { keys: Vec::new(), uncovered, from, collected };
            let verification =
                LogVerification { keys: key, checkpoints: checkpoint, demands, format };
            verification.verify(&files)
        }
        AuditCommand::Tail { file, lines, follow, filter, format } => {
            let selection = RecordSelection { filter, format, now };
            let at_end = if follow { AtEnd::Follow } else { AtEnd::Stop };
            tail(&file, lines, at_end, &selection)
        }
        AuditCommand::Query { files, filter, format } => {
            query(&files, &RecordSelection { filter, format, now })
        }
        // An export is complete, so it includes the self-test.
        AuditCommand::Export { files, filter, format } => {
            let filter = RecordFilter { selftest: true, ..filter };
            query(&files, &RecordSelection { filter, format, now })
        }
        AuditCommand::Keygen { file, origin } => keygen(&file, &origin),
    };
    // A reader of standard output that stops early, such as `head`, is not an error.
    done.unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => complain(&error.to_string()),
    })
}

/// The files to read: each file after its rotated files, oldest first, without duplicates. A folder stands for the logs
/// in it.
fn all(files: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for file in files {
        if file.is_dir() {
            found.extend(all(&logs_in(file)?)?);
            continue;
        }
        if file.as_os_str() != "-" {
            let full = siblings(file).map_err(|error| unread(file, &error))?;
            found.extend(full.into_iter().map(|(_, path)| path));
        }
        found.push(file.clone());
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|file| seen.insert(file.clone()));
    Ok(found)
}

fn open(file: &Path) -> io::Result<Box<dyn io::BufRead>> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).map_err(|error| unread(file, &error))?;
    Ok(Box::new(BufReader::with_capacity(1024 * 1024, opened)))
}

/// Adds the path to a read error.
fn unread(path: &Path, error: &io::Error) -> io::Error {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let beside = of_clients(path).next().filter(|_| is_missing);
    let hint = beside.map_or_else(String::new, |beside| {
        format!(
            "; `portcullis stdio` by itself records to logs of its own, such as `{}`",
            beside.display()
        )
    });
    io::Error::new(error.kind(), format!("could not read `{}`: {error}{hint}", path.display()))
}

/// The logs of `portcullis stdio` processes beside a log.
fn of_clients(path: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = (1..=super::PROCESSES).map(|number| file_of_process(path, number));
    beside.filter(|path| path.is_file())
}

/// The logs of `portcullis stdio` processes beside `files` that are not among the files to read.
fn unread_of_clients(files: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let named = files.iter().filter(|file| !file.is_dir() && file.as_os_str() != "-");
    let beside: Vec<_> = named.flat_map(|file| of_clients(file)).collect();
    if beside.is_empty() {
        return Ok(beside);
    }
    let read = all(files)?;
    Ok(beside.into_iter().filter(|file| !read.contains(file)).collect())
}

/// Says that a query did not read the logs `beside`, and which of them has the record that it asks for.
fn say_beside(beside: &[PathBuf], id: Option<&str>) -> io::Result<()> {
    let Some(first) = beside.first() else { return Ok(()) };
    let shown = |file: &Path| hints::word(&in_a_line(&file.display().to_string()));
    if let Some(id) = id {
        for file in beside {
            let mut has = false;
            lines(std::slice::from_ref(file), &mut |_, record| {
                has |= record.root().get("id").and_then(Value::as_str).is_some_and(|is| is == *id);
                Ok(())
            })?;
            if has {
                let (file, id) = (shown(file), hints::word(&in_a_line(id)));
                say(&format!(
                    "it is in the log of a `portcullis stdio` that ran by itself: `portcullis audit query {file} --id {id}`"
                ));
                return Ok(());
            }
        }
    }
    let more = match beside.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    say(&format!(
        "note: not read: `{}`{more}, logs of `portcullis stdio` that ran by itself; name them as well",
        shown(first)
    ));
    Ok(())
}

/// The logs in a folder. An error if there is none.
fn logs_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let found = logs(folder).map_err(|error| unread(folder, &error))?;
    if found.is_empty() {
        let none = io::Error::new(io::ErrorKind::NotFound, "there is no log in it");
        return Err(unread(folder, &none));
    }
    Ok(found)
}

/// What a log is verified against, and how the result is printed.
struct LogVerification {
    /// Public keys of the gateway, or files with such keys.
    keys: Vec<String>,
    /// Files of checkpoints that were kept elsewhere.
    checkpoints: Vec<PathBuf>,
    /// The options other than the keys.
    demands: VerifyOptions,
    format: OutputFormat,
}

impl LogVerification {
    /// Verifies `files` as one log, and each log of a folder by itself.
    fn verify(&self, files: &[PathBuf]) -> io::Result<ExitCode> {
        let (folders, files): (Vec<_>, Vec<_>) =
            files.iter().cloned().partition(|file| file.is_dir());
        if !folders.is_empty() && !self.checkpoints.is_empty() {
            let what = "a checkpoint belongs to one log: name that log and not a folder";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut code = ExitCode::SUCCESS;
        let mut whole = Vec::new();
        if !files.is_empty() {
            whole.push(files);
        }
        for folder in &folders {
            whole.extend(logs_in(folder)?.into_iter().map(|log| vec![log]));
        }
        let several = whole.len() > 1;
        for log in &whole {
            if let (true, OutputFormat::Human, Some(first)) = (several, self.format, log.first()) {
                print(&format!("{}: ", in_a_line(&first.display().to_string())));
            }
            if let Some(weight) = self.verify_one(log)? {
                code = ExitCode::from(BROKEN);
                if several && matches!(self.format, OutputFormat::Human) {
                    print(&format!("{}\n", verdict(weight)));
                }
            }
        }
        Ok(code)
    }

    /// Verifies one log. Returns the weight of the problems, or `None` if there are none.
    fn verify_one(&self, files: &[PathBuf]) -> io::Result<Option<ProblemSeverity>> {
        let keys = known_keys(&self.keys)?;
        let mut auditor = Auditor::new(VerifyOptions { keys, ..self.demands.clone() });
        for file in &self.checkpoints {
            // A crash may have cut the file within a UTF-8 sequence.
            let bytes = fs::read(file).map_err(|error| unread(file, &error))?;
            let read = auditor.witness(&String::from_utf8_lossy(&bytes));
            let named = |error| io::Error::other(format!("`{}`: {error}", file.display()));
            if read.map_err(named)? == 0 {
                return Err(named(audit_log::note::NoteError::Form));
            }
        }
        for file in all(files)? {
            auditor.read(&file.display().to_string(), &mut *open(&file)?)?;
        }
        let report = auditor.finish();
        match self.format {
            OutputFormat::Human => people(&report, &self.checkpoints),
            OutputFormat::Json => {
                print(&json(&report));
            }
        }
        Ok(report.weight())
    }
}

/// Reads public keys, each of which is given itself or as a file with keys.
fn known_keys(keys: &[String]) -> io::Result<Vec<NoteVerifier>> {
    let mut known = Vec::new();
    for key in keys {
        let text = match key.contains('+') {
            true => key.clone(),
            false => fs::read_to_string(key).map_err(|error| unread(Path::new(key), &error))?,
        };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            known.push(NoteVerifier::parse(line).map_err(io::Error::other)?);
        }
    }
    Ok(known)
}

/// The word that is printed for a problem of this weight.
const fn verdict(weight: ProblemSeverity) -> &'static str {
    match weight {
        ProblemSeverity::Broken => "broken",
        ProblemSeverity::Unproved => "not proved",
    }
}

/// Prints the report for people. `kept` are the files of checkpoints that the log was compared with.
fn people(report: &VerifyReport, kept: &[PathBuf]) {
    for problem in &report.problems {
        say(&format!("{}: {problem}", verdict(problem.weight)));
    }
    for remark in &report.remarks {
        say(&format!("note: {remark}"));
    }
    if report.vouched && report.checkpoints > 0 {
        say("note: no --key was given: only the log itself says whose its checkpoints are");
    }
    if report.problems.is_empty() {
        let word = match report.end {
            LogEnd::Stopped => "whole",
            LogEnd::Open => "unbroken, with an open end",
        };
        print(&format!(
            "{word}: {} records in {}, {} checkpoints; the last covers {}, {} came after\n",
            report.records,
            if report.files == 1 { "1 file".to_owned() } else { format!("{} files", report.files) },
            report.checkpoints,
            report.covered,
            report.after
        ));
        // The checkpoints in the log are cut off with its end, so they prove nothing about it.
        if report.end == LogEnd::Open && kept.is_empty() {
            say(
                "note: without checkpoints that are kept elsewhere nobody can tell whether the end was cut off: `audit: {checkpoints: {file: FILE}}` \
                 has the gateway keep them, best on other storage, and `--checkpoint FILE` compares the log with them",
            );
        }
    }
}

fn json(report: &VerifyReport) -> String {
    let problems: Vec<_> = report
        .problems
        .iter()
        .map(|problem| {
            serde_json::json!({ "file": problem.file, "line": problem.line, "seq": problem.seq,
                "what": problem.what, "verdict": verdict(problem.weight) })
        })
        .collect();
    let value = serde_json::json!({
        "whole": report.problems.is_empty(), "stopped": report.end == LogEnd::Stopped, "files": report.files, "records": report.records,
        "checkpoints": report.checkpoints, "covered": report.covered, "after": report.after,
        "keysFromLog": report.vouched, "remarks": report.remarks, "problems": problems,
    });
    format!("{value}\n")
}

/// Which records are shown, and how.
struct RecordSelection {
    filter: RecordFilter,
    format: RecordFormat,
    /// The time from which the filter counts back.
    now: SystemTime,
}

impl RecordSelection {
    /// The line of a log in the chosen format; `None` if it is no record or is not selected.
    fn shown(&self, line: &[u8]) -> Option<Vec<u8>> {
        let document = record(line)?;
        let root = document.root();
        if !self.filter.wants(root, self.now) {
            return None;
        }
        match self.format {
            RecordFormat::Json => plain([line.trim_ascii_end(), b"\n"].concat()),
            RecordFormat::Ocsf => plain(ocsf::event(line.trim_ascii_end())?),
            RecordFormat::Csv => Some(row(root).into_bytes()),
            RecordFormat::Human => Some(words(root)),
        }
    }
}

fn query(files: &[PathBuf], selection: &RecordSelection) -> io::Result<ExitCode> {
    let RecordSelection { filter, format, now } = selection;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if *format == RecordFormat::Csv {
        writeln!(out, "{}\r", COLUMNS.join(","))?;
    }
    let (mut found, mut passed_over) = (0_u64, 0_u64);
    let mut principals = SeenPrincipals::default();
    let whole = RecordFilter { selftest: true, ..filter.clone() };
    let unread = lines(files, &mut |line, record| {
        let Some(text) = selection.shown(line) else {
            let root = record.root();
            principals.see(root);
            let is_own = !filter.selftest && filter.is_passed_over(root);
            passed_over += u64::from(is_own && whole.wants(root, *now));
            return Ok(());
        };
        found += 1;
        out.write_all(&text)
    })?;
    out.flush()?;
    let beside = unread_of_clients(files)?;
    if passed_over > 0 {
        let records = if passed_over == 1 { "record" } else { "records" };
        say(&format!("{passed_over} {records} of the self-test left out: `--selftest` shows them"));
    }
    if unread > 0 {
        say(&format!("{unread} lines are no records; `portcullis audit verify` says why"));
        return Ok(ExitCode::from(FAILED));
    }
    // The id was copied from an answer or a log, so its absence is an error.
    if let (0, Some(id)) = (found, &filter.id) {
        say(&format!(
            "no record in these files has the id `{}`; an older one may have been thrown away, and a replica has its own log",
            id.escape_debug()
        ));
        say_beside(&beside, Some(id))?;
        return Ok(ExitCode::from(FAILED));
    }
    if filter.id.is_none() {
        say_beside(&beside, None)?;
    }
    if found == 0 {
        say(&match principals.like(filter.principal.as_deref()) {
            None => "no record matches".to_owned(),
            Some(like) => format!(
                "no record matches; did you mean `--principal {}`? A principal of an issuer is named with it",
                hints::word(&in_a_line(like))
            ),
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// The principals of the records of one query, of which the one that was meant is found if none was named exactly.
#[derive(Debug, Default)]
struct SeenPrincipals(BTreeSet<String>);

impl SeenPrincipals {
    /// Most principals that are remembered.
    const MOST: usize = 1000;

    fn see(&mut self, record: Value<'_>) {
        let principal = record.get("principal").and_then(Value::as_str);
        if let Some(principal) = principal.filter(|_| self.0.len() < Self::MOST) {
            self.0.insert(principal.into_owned());
        }
    }

    /// The one whose name within its issuer is `asked`, if there is exactly one and `asked` itself is not among them.
    /// `None` as well if there may be more principals than are remembered.
    fn like(&self, asked: Option<&str>) -> Option<&str> {
        let asked = asked.filter(|asked| self.0.len() < Self::MOST && !self.0.contains(*asked))?;
        let is_meant = |known: &&str| known.rsplit_once('/').is_some_and(|(_, name)| name == asked);
        let mut meant = self.0.iter().map(String::as_str).filter(is_meant);
        match (meant.next(), meant.next()) {
            (Some(only), None) => Some(only),
            (None, _) | (Some(_), Some(_)) => None,
        }
    }
}

/// Calls `seen` with every record of the files, oldest first. Returns how many lines are not records.
pub(super) fn each(files: &[PathBuf], seen: &mut dyn FnMut(Value<'_>)) -> io::Result<u64> {
    lines(files, &mut |_, record| {
        seen(record.root());
        Ok(())
    })
}

fn lines(
    files: &[PathBuf],
    seen: &mut dyn FnMut(&[u8], &Document) -> io::Result<()>,
) -> io::Result<u64> {
    let mut unread = 0;
    for file in all(files)? {
        let mut from = open(&file)?;
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line)? > 0 {
            match record(&line) {
                Some(record) => seen(&line, &record)?,
                None => unread += 1,
            }
            line.clear();
        }
    }
    Ok(unread)
}

/// What `tail` does at the end of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtEnd {
    /// Stops after the records that are there.
    Stop,
    /// Waits for new records, also after the file was rotated.
    Follow,
}

/// Prints the last records of a file, and new ones if it is to be followed.
fn tail(
    path: &Path,
    lines: usize,
    at_end: AtEnd,
    selection: &RecordSelection,
) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut file = BufReader::new(File::open(path).map_err(|error| unread(path, &error))?);
    let mut last = std::collections::VecDeque::new();
    let mut line = Vec::new();
    loop {
        let read = file.read_until(b'\n', &mut line)?;
        if read > 0 && line.ends_with(b"\n") {
            if let Some(text) = selection.shown(&line) {
                last.push_back(text);
                if last.len() > lines {
                    last.pop_front();
                }
            }
            line.clear();
            continue;
        }
        for text in last.drain(..) {
            out.write_all(&text)?;
        }
        if at_end == AtEnd::Stop {
            return Ok(ExitCode::SUCCESS);
        }
        // The existing lines are printed; from now on each record is printed as it arrives.
        out.flush()?;
        let known = file.get_ref().metadata()?;
        let other = fs::metadata(path).is_ok_and(|now| now.ino() != known.ino());
        if other && read == 0 {
            file = BufReader::new(File::open(path).map_err(|error| unread(path, &error))?);
            line.clear();
        } else if read == 0 {
            std::thread::sleep(FOLLOW_INTERVAL);
        }
    }
}

fn record(line: &[u8]) -> Option<Document> {
    Document::parse(Bytes::copy_from_slice(line.trim_ascii_end()), &JsonBounds::MESSAGE).ok()
}

/// JSON lines, escaped for a terminal. The gateway writes ASCII, but another program may have rewritten the file.
fn plain(json: Vec<u8>) -> Option<Vec<u8>> {
    let text = String::from_utf8(json).ok()?;
    Some(printable(&text).into_owned().into_bytes())
}

fn text(record: Value<'_>, name: &str) -> Option<String> {
    let value = record.get(name)?;
    Some(value.as_str().map_or_else(|| value.raw().to_owned(), String::from))
}

/// A finding in a record.
struct RecordedFinding {
    /// The finding, as in the record.
    text: String,
    /// How sure it is.
    certainty: String,
}

/// Findings of detectors in the definition, in the call and in what the server sent.
fn findings(record: Value<'_>) -> impl Iterator<Item = RecordedFinding> {
    let lists = ["findings", "found"].into_iter().filter_map(move |name| record.get(name));
    let texts =
        lists.flat_map(|list| list.items().filter_map(|one| one.as_str().map(String::from)));
    // In the same order; records of earlier versions have none.
    let mut detections = record.get("detections").into_iter().flat_map(Value::items);
    texts.map(move |text| {
        let said = detections.next().and_then(|one| one.get("certainty")?.as_str());
        let certainty = said.map_or_else(
            || Certainty::of_text(&text).as_str().to_owned(),
            |said| said.into_owned(),
        );
        RecordedFinding { text, certainty }
    })
}

/// Whether a finding, ``DETECTOR at `PLACE`: NOTE``, is of the detector `name`, or is a server request that was refused
/// for the reason `name`, which is then the note.
fn is_of(finding: &str, name: &str) -> bool {
    finding.strip_prefix(name).is_some_and(|rest| rest.starts_with(" at `"))
        || is_refused(finding, name)
}

fn is_refused(finding: &str, reason: &str) -> bool {
    finding.starts_with("server-requests at `")
        && finding.strip_suffix(reason).is_some_and(|rest| rest.ends_with("`: "))
}

fn row(record: Value<'_>) -> String {
    let cell = |name: &&str| {
        let text = in_a_line(&text(record, name).unwrap_or_default());
        // RFC 4180 quoting. No cell may begin like a formula, because a spreadsheet would evaluate it.
        let formula = text.trim_start().starts_with(FORMULA);
        let text = if formula { format!("'{text}") } else { text };
        match text.contains(['"', ',']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text,
        }
    };
    let cells: Vec<_> = COLUMNS.iter().map(cell).collect();
    cells.join(",") + "\r\n"
}

/// Formats a record as `TIME OUTCOME PRINCIPAL METHOD SERVER/TOOL (REASON, RULE; FINDINGS)` in printable ASCII; for an
/// unauthenticated caller with `from PEER ROUTE`, for `find_tools` with `query QUERY judged OUTCOME tools NAMES`.
fn words(record: Value<'_>) -> Vec<u8> {
    let text = |name: &str| text(record, name);
    let event = text("event").unwrap_or_default();
    let mut out = Vec::new();
    let mut word = |text: &str| {
        if !out.is_empty() {
            out.push(b' ');
        }
        let mut quoted = Vec::new();
        write_ascii(&mut quoted, text);
        let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
        out.extend_from_slice(with_quotes(&String::from_utf8_lossy(inner)).as_bytes());
    };
    word(&text("time").unwrap_or_default());
    word(&text("outcome").unwrap_or(event));
    word(&text("principal").unwrap_or_else(|| "-".to_owned()));
    // A request without an MCP method is shown by its HTTP method, but not that of an unauthenticated caller.
    let of_http = || text("principal").and_then(|_| text("httpMethod"));
    if let Some(method) = text("method").or_else(of_http) {
        word(&method);
    }
    let item =
        ["tool", "prompt", "resource", "template", "skill"].iter().find_map(|kind| text(kind));
    match (text("server"), item) {
        (Some(server), Some(item)) => word(&format!("{server}/{item}")),
        (Some(one), None) | (None, Some(one)) => word(&one),
        (None, None) => {}
    }
    match (text("count"), text("address")) {
        (Some(count), Some(address)) => word(&format!("{count} from {address}")),
        (Some(count), None) => word(&format!("{count} times")),
        (None, _) => {}
    }
    if let (None, Some(peer)) = (text("principal"), text("peer")) {
        // Port 0 stands for the client that started this process; nobody connects from it.
        match (peer.ends_with(":0"), text("route")) {
            (true, None) => word("from standard input"),
            (true, Some(route)) => word(&format!("from standard input {route}")),
            (false, route) => {
                word(&format!("from {peer}"));
                word(route.as_deref().unwrap_or("to no route"));
            }
        }
    }
    // A step in the life of an approval: the records of the exchange name it by its id.
    if text("event").as_deref() == Some("approval") {
        for name in ["step", "approval"] {
            text(name).iter().for_each(|text| word(text));
        }
        if let Some(by) = text("by") {
            word(&format!("by {by}"));
        }
    }
    // What was asked of `find_tools`, and what came of it.
    found(record).iter().for_each(|text| word(text));
    // The hash of the configuration that is in force from this record on.
    if let (Some("start" | "applied"), Some(policy)) = (text("event").as_deref(), text("policy")) {
        word(&policy);
    }
    let why = reasons(record);
    if !why.is_empty() {
        word(&format!("({})", why.join("; ")));
    }
    out.push(b'\n');
    out
}

/// What was asked of `find_tools`, what came of the judge, and the tools of the answer, as far as they are recorded.
fn found(record: Value<'_>) -> Vec<String> {
    let named = |name: &str| text(record, name).map(|text| format!("{name} {text}"));
    let tools = record.get("tools").into_iter().flat_map(Value::items);
    let tools: Vec<_> = tools.filter_map(|tool| Some(tool.as_str()?.into_owned())).collect();
    let tools = (!tools.is_empty()).then(|| format!("tools {}", tools.join(", ")));
    ["query", "judged"].into_iter().filter_map(named).chain(tools).collect()
}

/// The reason of an outcome, and what was found.
fn reasons(record: Value<'_>) -> Vec<String> {
    let text = |name: &str| text(record, name);
    let why = ["reason", "detail", "rule", "what"].iter().filter_map(|name| text(name));
    let missing = text("missing").map(|name| format!("without `{name}`"));
    let why: Vec<_> = why.chain(missing).collect();
    let why = (!why.is_empty()).then(|| why.join(", "));
    // Of an event, `what` says it.
    let found = findings(record).filter(|_| text("what").is_none());
    why.into_iter().chain(found.map(|finding| finding_in_words(&finding.text))).collect()
}

fn keygen(file: &Path, origin: &str) -> io::Result<ExitCode> {
    let signer = NoteSigner::generate(origin).map_err(io::Error::other)?;
    let mut options = fs::OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(0o600).open(file)?;
    out.write_all(signer.pem().map_err(io::Error::other)?.as_bytes())?;
    out.sync_all()?;
    if io::stdout().is_terminal() {
        say("keep the line below where the gateway cannot write: it is what `--key` wants");
    }
    Ok(print(&format!("{}\n", signer.public().text())))
}
