//! `portcullis doctor`: checks a configuration by using it. Servers and issuers are asked concurrently, each within a
//! time limit; every process that is started for a check ends with it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use futures_util::future::join_all;
use gateway::base::clock::{Clock as _, SystemClock};
use gateway::base::error_chain::ErrorChain;
use gateway::base::file;
use gateway::base::task::Tasks;
use gateway::config::quota::Quotas;
use gateway::config::settings::lockfile::{self, LockError};
use gateway::config::settings::{
    ConfigRemark, ConfigText, IssuerSettings, Limits, ServerSettings, ServerTransport, Settings,
    SinkTarget, file_of_process,
};
use gateway::control::attach;
use gateway::control::build::{self, LogContinuation, StartError};
use gateway::control::inventory::{self, InventoryOptions, ServerInventory};
use gateway::edge::tls::Acceptor;
use gateway::identity;
use gateway::mcp::protocol::Era;
use gateway::metrics::Metrics;
use gateway::outbound::environment::Environment;
use gateway::process::sandbox;
use gateway::upstream::{self, server_identity};
use policy::definition::drift::visible;
use policy::definition::lock::Lockfile;
use policy::definition::offer::ItemKind;
use policy::flow::guard::FlowMode;
use policy::rules::constraint::UnmatchedConstraint;
use policy::rules::decision::Mode;
use rustix::fs::{Access, access};
use serde_json::json;

use super::pin::UnapprovedThings;
use super::ungranted::Ungranted;
use super::{
    FAILED, LoadPurpose, OutputFormat, PROCESSES, USUAL, complain, given, hints, invalid, load_for,
    load_text_for, ops, pin, print, text_of,
};

/// Time before the end of a certificate from which on a warning is given.
const EXPIRY_WARNING: Duration = Duration::from_secs(30 * 24 * 3600);
/// Most names that are listed of tools that a server does not have.
const NAMED: usize = 10;
/// Time since the Unix epoch (2026-01-01) before which a clock was never set.
const PASSED: Duration = Duration::from_secs(1_767_225_600);
/// How far in the future the modification time of a file may be if the clock is right.
const AHEAD: Duration = Duration::from_secs(120);
/// Advice for a broken log of a process that serves one client.
const OF_CLIENT: &str = "a `portcullis stdio` that runs by itself would not start: look at it with `portcullis audit verify`, and move it away";
/// Time limit for a running gateway to answer the liveness probe.
const PROMPT: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = USUAL)]
    config: PathBuf,
    /// Time limit for each server and each issuer.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = pin::patience)]
    timeout: Duration,
    /// Output format of the checks.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
    /// Former spelling of `--format json`.
    #[arg(long, hide = true, conflicts_with = "format")]
    json: bool,
}

impl DoctorArgs {
    const fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.format }
    }
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStatus {
    Ok,
    Warn,
    Fail,
}

impl CheckStatus {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// A check that was made.
#[derive(Debug)]
struct DoctorCheck {
    mark: CheckStatus,
    /// Subject of the check, such as `server files`.
    thing: String,
    /// Description of the result.
    said: String,
    /// Advice; empty if nothing has to be done.
    mend: String,
}

/// The checks that were made so far.
#[derive(Debug, Default)]
struct DoctorReport(Vec<DoctorCheck>);

impl DoctorReport {
    fn ok(&mut self, thing: &str, said: impl Into<String>) {
        self.add(CheckStatus::Ok, thing, said, "");
    }

    fn warn(&mut self, thing: &str, said: impl Into<String>, mend: &str) {
        self.add(CheckStatus::Warn, thing, said, mend);
    }

    fn fail(&mut self, thing: &str, said: impl Into<String>, mend: &str) {
        self.add(CheckStatus::Fail, thing, said, mend);
    }

    fn add(&mut self, mark: CheckStatus, thing: &str, said: impl Into<String>, mend: &str) {
        let (thing, mend) = (thing.to_owned(), hints::complete(mend).into_owned());
        let said = hints::complete(&said.into()).into_owned();
        self.0.push(DoctorCheck { mark, thing, said, mend });
    }

    fn count(&self, mark: CheckStatus) -> usize {
        self.0.iter().filter(|look| look.mark == mark).count()
    }

    fn human(&self) -> String {
        let width = self.0.iter().map(|look| look.thing.chars().count()).max().unwrap_or_default();
        let mut out = String::new();
        for DoctorCheck { mark, thing, said, mend } in &self.0 {
            let said = said.replace('\n', &format!("\n{:1$}", "", width + 8));
            writeln!(out, "{:<4}  {thing:<width$}  {said}", mark.as_str()).unwrap_or_default();
            if !mend.is_empty() {
                writeln!(out, "{:1$}-> {mend}", "", width + 8).unwrap_or_default();
            }
        }
        let counts = [CheckStatus::Ok, CheckStatus::Warn, CheckStatus::Fail];
        let counts = counts.map(|mark| format!("{} {}", self.count(mark), mark.as_str()));
        writeln!(out, "{}", counts.join(", ")).unwrap_or_default();
        out
    }

    fn json(&self) -> String {
        let look = |DoctorCheck { mark, thing, said, mend }: &DoctorCheck| json!({ "status": mark.as_str(), "check": thing, "message": said, "mend": mend });
        let all: Vec<_> = self.0.iter().map(look).collect();
        format!("{:#}\n", serde_json::Value::from(all))
    }
}

pub(super) fn run(doctor: &DoctorArgs) -> ExitCode {
    let file = &doctor.config;
    let text = match text_of(file) {
        Ok(text) => text,
        Err(code) => return code,
    };
    // Only a valid configuration can be checked further.
    let name = file.display().to_string();
    let source = ConfigText { file: &name, text: &text };
    let settings = match load_text_for(LoadPurpose::Reading, source) {
        Ok(settings) => settings,
        Err(problems) if matches!(doctor.format(), OutputFormat::Json) => {
            let mut looks = DoctorReport::default();
            configuration(&mut looks, file, &text);
            drop(problems);
            print(&looks.json());
            return ExitCode::from(FAILED);
        }
        Err(problems) => {
            invalid(&problems);
            return ExitCode::from(FAILED);
        }
    };
    super::log_in_words("off");
    let mut looks = DoctorReport::default();
    configuration(&mut looks, file, &text);
    clock(&mut looks, file);
    sandboxes(&mut looks, &settings, file);
    folders(&mut looks, &settings);
    approvals(&mut looks, &settings);
    logs(&mut looks, source, &settings);
    ports(&mut looks, &settings, file);
    certificates(&mut looks, &settings);
    let lock = lock(&mut looks, &settings);
    if let Some(lock) = &lock {
        constraints(&mut looks, &settings, lock);
        ungranted(&mut looks, &settings, lock);
        flow(&mut looks, &settings, lock);
        decoys(&mut looks, &settings, lock);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("could not start the threads: {error}")),
    };
    let outside = runtime.block_on(async {
        tokio::select! {
            outside = outside(&settings, source, doctor.timeout) => Some(outside),
            () = super::told_to_stop() => None,
        }
    });
    // Ends the processes that were started for the checks without waiting for blocked threads.
    runtime.shutdown_background();
    let Some(outside) = outside else {
        return complain("stopped before every server had answered");
    };
    found_outside(&mut looks, &settings, outside, lock.as_ref());
    let printed = print(&match doctor.format() {
        OutputFormat::Human => looks.human(),
        OutputFormat::Json => looks.json(),
    });
    if looks.count(CheckStatus::Fail) > 0 { ExitCode::from(FAILED) } else { printed }
}

/// Checks the configuration itself, with the secrets and folders of this machine that it names.
fn configuration(looks: &mut DoctorReport, file: &Path, text: &str) {
    match load_for(LoadPurpose::Checking, file, text) {
        Ok(settings) => {
            looks.ok("configuration", "valid; every secret that it names is there");
            for remark in ConfigRemark::all(&settings) {
                match remark {
                    ConfigRemark::Note(_) => {}
                    ConfigRemark::Warning(what) => looks.warn("configuration", what, ""),
                }
            }
        }
        Err(problems) => {
            for (said, mend) in problems.each() {
                looks.fail("configuration", said, &mend);
            }
        }
    }
    if file::is_open_to_all(file) {
        looks.warn(
            "configuration",
            "every user of this machine can write to it or to its folder",
            "`chmod o-w` both",
        );
    }
    if let Some(warning) = sandbox::privileged() {
        looks.warn("user", warning, "");
    }
}

/// Warns about constraints on tools or arguments that the servers do not have.
fn constraints(looks: &mut DoctorReport, settings: &Settings, lock: &Lockfile) {
    let servers: Vec<_> = settings.servers.iter().map(|server| server.name.clone()).collect();
    for missed in UnmatchedConstraint::all(settings.policy.constraints(), &servers, lock) {
        looks.warn("policy", missed.to_string(), "correct the name, or remove it");
    }
}

/// Warns about approved definitions that no rule grants, and which no caller can see. That a rule forbids them is no
/// problem.
fn ungranted(looks: &mut DoctorReport, settings: &Settings, lock: &Lockfile) {
    let servers = settings.servers.iter().map(|server| &server.name);
    for one in Ungranted::all(&settings.policy, lock, servers) {
        let thing = format!("policy {}", one.server);
        match one.mend() {
            Some(mend) => looks.warn(&thing, one.said(), &mend),
            None => looks.ok(&thing, one.said()),
        }
    }
}

/// Warns about labels of flow control that the approved tools do not fit, and about tools without any.
fn flow(looks: &mut DoctorReport, settings: &Settings, lock: &Lockfile) {
    let flow = settings.policy.flow();
    if flow.mode() == FlowMode::Off {
        return;
    }
    for server in &settings.servers {
        let Some(locked) = lock.servers.get(server.name.as_str()) else { continue };
        let (mut unlabelled, mut missing) = (Vec::new(), Vec::new());
        for ((_, name), versions) in
            locked.offers.iter().filter(|((kind, _), _)| *kind == ItemKind::Tool)
        {
            let labels = flow.labels_of(&server.name, ItemKind::Tool, name);
            if !flow.has_labels(&server.name, ItemKind::Tool, name) {
                unlabelled.push(visible(name));
            }
            let Some(version) = versions.last() else { continue };
            let root = version.definition.value();
            let properties = root.get("inputSchema").and_then(|schema| schema.get("properties"));
            let has = |target: &str| properties.is_some_and(|all| all.get(target).is_some());
            let targets = labels.targets.into_iter().flatten();
            let absent = targets.filter(|target| !has(target));
            missing.extend(absent.map(|target| format!("`{target}` of `{}`", visible(name))));
        }
        let thing = format!("flow {}", server.name);
        if !unlabelled.is_empty() {
            let said = format!(
                "no label names {}: what {} shows counts as untrusted and confidential, and a call as sent to others",
                some_of(&unlabelled),
                if unlabelled.len() == 1 { "it" } else { "each of them" }
            );
            looks.warn(&thing, said, "label it under `policy.flow.labels` (docs/flow.md)");
        }
        if !missing.is_empty() {
            let said = format!("no such argument: {}", some_of(&missing));
            looks.warn(&thing, said, "correct `targets` of the label");
        }
    }
}

/// Warns about decoys with the name of an approved tool, whose callers would be taken for intruders.
fn decoys(looks: &mut DoctorReport, settings: &Settings, lock: &Lockfile) {
    for server in &settings.servers {
        let Some(locked) = lock.servers.get(server.name.as_str()) else { continue };
        for decoy in settings.decoys.tools.of(server.name.as_str()) {
            if !locked.versions(ItemKind::Tool, &decoy.name).is_empty() {
                let said = format!(
                    "the decoy `{}` of {} has the name of a tool in the lockfile: who calls the tool touches the decoy",
                    visible(&decoy.name),
                    server.name
                );
                looks.warn("decoys", said, "give the decoy another name");
            }
        }
    }
}

/// The first names of a list, quoted as they are.
fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        Some(0) | None => shown,
    }
}

/// Checks that the clock is plausible: tokens and certificates are validated against it.
fn clock(looks: &mut DoctorReport, file: &Path) {
    let now = SystemClock.now();
    let mend = "set it, for example with `timedatectl set-ntp true`: tokens and certificates are judged by it";
    let written = fs::metadata(file).and_then(|data| data.modified()).unwrap_or(UNIX_EPOCH);
    if now < UNIX_EPOCH + PASSED {
        looks.fail("clock", format!("it says {}, which is past", day(now)), mend);
    } else if written > now + AHEAD {
        let said = format!("it says {}, and the configuration was written later", day(now));
        looks.warn("clock", said, mend);
    } else {
        looks.ok("clock", day(now));
    }
}

fn day(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Checks that the kernel can enforce each sandbox.
fn sandboxes(looks: &mut DoctorReport, settings: &Settings, file: &Path) {
    for server in &settings.servers {
        let ServerTransport::Stdio(program) = &server.reach else { continue };
        let thing = format!("sandbox {}", server.name);
        let Some(plan) = &program.sandbox else {
            let mend = "take `sandbox: {mode: off}` away";
            looks.warn(&thing, "none: the program can do what the gateway can", mend);
            continue;
        };
        match plan.check() {
            Ok(()) => {
                let sealed = given::SealedFolder::all(server);
                let beside = given::beside(server, file).filter(|_| sealed.is_empty());
                if let Some(said) = beside {
                    let mend = "nothing, if it writes no files";
                    looks.warn(&thing, format!("this kernel can enforce it; but {said}"), mend);
                } else if sealed.is_empty() {
                    looks.ok(&thing, "this kernel can enforce it");
                }
                for sealed in sealed {
                    looks.warn(
                        &thing,
                        format!("this kernel can enforce it; but {}", sealed.said()),
                        &sealed.mend(),
                    );
                }
            }
            Err(error) if plan.required => {
                let mend = "use a kernel that has it (docs/sandbox.md), or `mode: preferred`";
                looks.fail(&thing, ErrorChain(&error).to_string(), mend);
            }
            Err(error) => {
                looks.warn(
                    &thing,
                    ErrorChain(&error).to_string(),
                    "docs/sandbox.md says what the kernel has to have",
                );
            }
        }
    }
}

/// A file that the gateway writes to.
pub(super) struct RecordFile<'a> {
    /// Name for messages, such as `audit file`.
    pub(super) thing: String,
    /// Path of the file.
    pub(super) path: &'a Path,
}

/// Why the current user cannot write a file.
pub(super) struct Unwritable {
    /// Description of the problem.
    pub(super) said: String,
    /// Advice for the operator.
    pub(super) mend: &'static str,
}

/// The files of audit records and of checkpoints.
pub(super) fn written(settings: &Settings) -> impl Iterator<Item = RecordFile<'_>> {
    let sinks = settings.audit.sinks.iter().filter_map(|sink| match &sink.to {
        SinkTarget::File(path, _) => {
            Some(RecordFile { thing: format!("audit {}", sink.name), path })
        }
        SinkTarget::Stdout
        | SinkTarget::Http(..)
        | SinkTarget::Otlp(..)
        | SinkTarget::Syslog(..) => None,
    });
    let checkpoints = settings.audit.checkpoints.file.iter();
    let checkpoints =
        checkpoints.map(|path| RecordFile { thing: "audit checkpoints".to_owned(), path });
    sinks.chain(checkpoints)
}

/// Why the user of this process cannot write or create the file at `path`; `None` if that is possible.
pub(super) fn unwritable(path: &Path) -> Option<Unwritable> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if path.exists() && access(path, Access::WRITE_OK).is_err() => Some(Unwritable {
            said: format!("`{}` cannot be written to", path.display()),
            mend: "give it to the user that the gateway runs as",
        }),
        Ok(()) => None,
        Err(error) => {
            let (folder, error) = (folder.display(), io::Error::from(error));
            Some(Unwritable {
                said: format!("the folder `{folder}` cannot be written in: {error}"),
                mend: "make the folder for the user that the gateway runs as, who has to be able to write in it",
            })
        }
    }
}

/// Checks that the audit files can be written.
fn folders(looks: &mut DoctorReport, settings: &Settings) {
    for RecordFile { thing, path } in written(settings) {
        match unwritable(path) {
            None => looks.ok(&thing, format!("`{}` can be written", path.display())),
            Some(Unwritable { said, mend }) => looks.fail(&thing, said, mend),
        }
    }
}

/// Checks that the gateway could open its file of approvals.
fn approvals(looks: &mut DoctorReport, settings: &Settings) {
    let Some(path) = &settings.approval_file else { return };
    let thing = "approvals file";
    match unwritable(path) {
        Some(Unwritable { said, mend }) => looks.fail(thing, said, mend),
        None if file::is_replaceable_by_all(path) => {
            let said = format!("every user of this machine can replace `{}`", path.display());
            looks.fail(thing, said, "keep it in a folder with mode 0700 of the gateway's user");
        }
        None => looks.ok(thing, format!("`{}` can be written", path.display())),
    }
}

/// Checks that a start could continue the existing audit logs, and that a `portcullis stdio` process could continue its
/// own.
fn logs(looks: &mut DoctorReport, source: ConfigText<'_>, settings: &Settings) {
    let paths: Vec<_> = audit_files(settings).collect();
    if paths.is_empty() {
        return;
    }
    match continued(settings) {
        Ok(continued) => looks.ok("audit log", of_log(continued)),
        // An unreadable secret is reported by the check of the configuration.
        Err(error) if error.is_of_a_secret() => return,
        Err(error) => {
            looks.fail("audit log", ErrorChain(&error).to_string(), of_refused_log(&error))
        }
    }
    for number in 1..=PROCESSES {
        if !paths.iter().any(|path| file_of_process(path, number).exists()) {
            continue;
        }
        // An invalid configuration is reported by an earlier check.
        let Ok(own) = load_text_for(LoadPurpose::Stdio(number), source) else { return };
        if let Err(error) = continued(&own) {
            let thing = format!("audit log stdio-{number}");
            looks.fail(&thing, ErrorChain(&error).to_string(), OF_CLIENT);
        }
    }
}

/// Examines the existing logs as a start would.
fn continued(settings: &Settings) -> Result<LogContinuation, StartError> {
    let environment = environment(settings.limits, settings.limits.connect_timeout);
    build::examine_logs(&settings.audit, &environment)
}

/// Describes a log that a start continues.
fn of_log(continued: LogContinuation) -> String {
    let LogContinuation { records, kept } = continued;
    match (records, kept) {
        (None, _) => "there is none: a start begins one".to_owned(),
        (Some(records), None) => format!("a start goes on after {records} records"),
        (Some(records), Some(kept)) => format!(
            "a start goes on after {records} records, among them those of the last checkpoint, over {kept}"
        ),
    }
}

/// Advice for a log that a start would not continue, if the error itself gives none.
fn of_refused_log(error: &StartError) -> &'static str {
    match error {
        StartError::Log { .. } => "docs/audit.md says how a start compares them",
        _other => {
            "`portcullis run` would not start; docs/audit.md says what a log is held to, and how a key is turned on"
        }
    }
}

/// Whether the gateway that answers at `ops.address` runs with the configuration that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunningGateway {
    /// No gateway answers.
    None,
    /// A gateway answers there.
    Own,
    /// It runs with another configuration, or with an earlier state of this one that is not in this file.
    Other,
    /// It cannot be asked, and this configuration has no file that it would hold.
    Unknown,
}

impl RunningGateway {
    fn of(settings: &Settings, config: &Path) -> Self {
        if !settings.ops.as_ref().is_some_and(|ops| is_alive(ops.address)) {
            return Self::None;
        }
        let logs: Vec<_> = audit_files(settings).collect();
        // A gateway holds a lock on its audit files as long as it runs.
        let is_held = |path: &&PathBuf| File::open(path).is_ok_and(|log| file::is_locked(&log));
        if attach::seems_to_run(config) || logs.iter().any(is_held) {
            return Self::Own;
        }
        match ops::is_in_force(settings) {
            Some(true) => Self::Own,
            Some(false) => Self::Other,
            None if logs.is_empty() => Self::Unknown,
            None => Self::Other,
        }
    }
}

/// The audit files of the gateway.
fn audit_files(settings: &Settings) -> impl Iterator<Item = &PathBuf> {
    settings.audit.sinks.iter().filter_map(|sink| match &sink.to {
        SinkTarget::File(path, _) => Some(path),
        SinkTarget::Stdout
        | SinkTarget::Http(..)
        | SinkTarget::Otlp(..)
        | SinkTarget::Syslog(..) => None,
    })
}

/// Reports that an address is in use by a gateway.
fn taken(looks: &mut DoctorReport, thing: &str, address: SocketAddr, by: RunningGateway) {
    match by {
        RunningGateway::Own => looks.warn(
            thing,
            format!("{address} is in use, by the gateway that runs with this configuration"),
            "",
        ),
        RunningGateway::Unknown => looks.warn(
            thing,
            format!(
                "{address} is in use, by a gateway; whether it runs with this configuration cannot be known"
            ),
            "set `ops.token`, with which the gateway can be asked; if it is another one, stop it or use another port",
        ),
        RunningGateway::Other | RunningGateway::None => looks.fail(
            thing,
            format!("{address} is in use, by a gateway that runs with another configuration"),
            "stop that gateway, or use another port",
        ),
    }
}

/// Checks that each listening address is free, or is in use by the gateway of this configuration.
fn ports(looks: &mut DoctorReport, settings: &Settings, config: &Path) {
    let running = RunningGateway::of(settings, config);
    let listeners = settings.listeners.iter();
    let listeners = listeners.map(|one| (format!("listener {}", one.name), one.address));
    let ops = settings.ops.as_ref().map(|ops| ("ops".to_owned(), ops.address));
    for (thing, address) in listeners.chain(ops) {
        match TcpListener::bind(address) {
            Ok(_) => looks.ok(&thing, format!("{address} is free")),
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && running != RunningGateway::None =>
            {
                taken(looks, &thing, address, running);
            }
            Err(error) => {
                let mend = match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "`ss -ltnp` says who has it: stop that, or use another port"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "use a port from 1024 on, or give the gateway CAP_NET_BIND_SERVICE"
                    }
                    io::ErrorKind::AddrNotAvailable => {
                        "this machine has no such address: correct it"
                    }
                    _ => "correct the address",
                };
                looks.fail(&thing, format!("{address} cannot be had: {error}"), mend);
            }
        }
    }
}

/// Whether a gateway answers `/livez` at the address of its operator listener.
fn is_alive(ops: SocketAddr) -> bool {
    let asked = || -> io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&ops, PROMPT)?;
        stream.set_read_timeout(Some(PROMPT))?;
        stream.set_write_timeout(Some(PROMPT))?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(head == *b"HTTP/1.1 200")
    };
    asked().unwrap_or(false)
}

/// Checks the certificates of listeners, and when they expire.
fn certificates(looks: &mut DoctorReport, settings: &Settings) {
    let now = SystemClock.now();
    for listener in &settings.listeners {
        let Some(tls) = &listener.tls else { continue };
        let thing = format!("certificate {}", listener.name);
        match Acceptor::new(tls, now) {
            Ok(acceptor) => {
                let end = UNIX_EPOCH + Duration::from_secs(acceptor.ends());
                let mend = "renew it: a new file is taken without a restart";
                certificate_end(looks, &thing, end, mend);
            }
            Err(error) => {
                looks.fail(&thing, ErrorChain(&error).to_string(), "correct the files under `tls`");
            }
        }
    }
}

/// Reports when a certificate expires; `mend` is the advice if that is soon.
fn certificate_end(looks: &mut DoctorReport, thing: &str, end: SystemTime, mend: &str) {
    let said = format!("good until {}", day(end));
    if end < SystemClock.now() + EXPIRY_WARNING {
        looks.warn(thing, said, mend);
    } else {
        looks.ok(thing, said);
    }
}

/// Reads the lockfile; `None` if it is not needed or cannot be read.
fn lock(looks: &mut DoctorReport, settings: &Settings) -> Option<Lockfile> {
    if settings.pins.mode == Mode::Off {
        looks.warn("lockfile", "`pins: {mode: off}`: nothing has to be approved", "");
        return None;
    }
    match lockfile::read(&settings.pins.file, &settings.pins.approvers) {
        Ok((lock, _)) => {
            looks.ok("lockfile", format!("`{}` can be read", settings.pins.file.display()));
            Some(lock)
        }
        Err(LockError::Missing(_)) if settings.pins.trust_on_first_use => {
            looks.warn("lockfile", "`trustOnFirstUse`: what servers say first is approved", "");
            None
        }
        Err(LockError::Missing(file)) => {
            let mend = "`portcullis pin` proposes what the servers offer, `portcullis pin approve` approves it";
            let said = format!("there is no `{file}`: nothing is approved, so nothing is shown");
            looks.fail("lockfile", said, mend);
            None
        }
        Err(error) => {
            looks.fail(
                "lockfile",
                ErrorChain(&error).to_string(),
                "take it from version control, or pin and approve again",
            );
            None
        }
    }
}

/// Result of asking a server.
type SurveyResult = Result<ServerInventory, UnreachableServer>;

/// Why a server could not be asked.
struct UnreachableServer {
    /// Description of the problem.
    why: String,
    /// Advice, if any is known.
    mend: Option<String>,
}

impl From<String> for UnreachableServer {
    fn from(why: String) -> Self {
        Self { why, mend: None }
    }
}

/// Results of the checks over the network, in the order of the configuration.
struct NetworkResults {
    /// What each server is and offers.
    servers: Vec<SurveyResult>,
    /// When the certificate of each server expires; `None` if the server is reached without TLS.
    certificates: Vec<Result<Option<SystemTime>, String>>,
    /// Number of keys of each issuer.
    issuers: Vec<Result<usize, String>>,
}

/// Asks every server and every issuer concurrently, each within `timeout`.
async fn outside(settings: &Settings, source: ConfigText<'_>, timeout: Duration) -> NetworkResults {
    let environment = environment(settings.limits, timeout);
    let servers = settings.servers.iter().map(|server| reach(server, source, timeout));
    let certificates =
        settings.servers.iter().map(|server| certificate(server, &environment, timeout));
    let issuers =
        settings.identity.issuers.iter().map(|issuer| keys(issuer, &environment, timeout));
    let (servers, certificates, issuers) =
        tokio::join!(join_all(servers), join_all(certificates), join_all(issuers));
    NetworkResults { servers, certificates, issuers }
}

/// When the TLS certificate of a server expires; `None` without TLS.
async fn certificate(
    server: &ServerSettings,
    environment: &Environment,
    timeout: Duration,
) -> Result<Option<SystemTime>, String> {
    let end = upstream::certificate_end(server, timeout, environment).await;
    end.map_err(|error| ErrorChain(&error).to_string())
}

/// The environment for requests, with each time limit at most `timeout`.
pub(super) fn environment(mut limits: Limits, timeout: Duration) -> Environment {
    bound(&mut limits, timeout);
    let metrics = Arc::new(Metrics::new(SystemClock.now()));
    let quotas = Arc::new(Quotas::new(&limits, &[]));
    Environment::new(Arc::new(SystemClock), limits, Tasks::default(), metrics, quotas)
}

/// Limits each step to the time that all steps together may take.
fn bound(limits: &mut Limits, timeout: Duration) {
    for time in [
        &mut limits.connect_timeout,
        &mut limits.response_timeout,
        &mut limits.call_timeout,
        &mut limits.drain_timeout,
    ] {
        *time = timeout.min(*time);
    }
}

async fn reach(server: &ServerSettings, source: ConfigText<'_>, timeout: Duration) -> SurveyResult {
    if let Some(Err(error)) = server_identity::started(server) {
        return Err(format!("its program {error}").into());
    }
    // Each server gets its own settings, so that one server does not delay another.
    let mut own =
        load_text_for(LoadPurpose::Reading, source).map_err(|problems| problems.first())?;
    bound(&mut own.limits, timeout);
    // After the answer, the process gets the drain time to end.
    let within = timeout + own.limits.drain_timeout;
    let name = server.name.as_str();
    let asking = InventoryOptions { patience: timeout, told: Box::new(|_, _| {}) };
    let asked = inventory::survey(own, |one| one == name, &asking);
    let surveys = match tokio::time::timeout(within, asked).await {
        Ok(surveys) => surveys.map_err(|error| ErrorChain(&error).to_string())?,
        Err(_) => {
            let why = format!("no answer within {}", humantime::format_duration(timeout));
            return Err(why.into());
        }
    };
    let survey = surveys.into_iter().next().ok_or_else(|| "it was not asked".to_owned())?;
    match survey.failed.clone() {
        None => Ok(survey),
        Some(why) => Err(UnreachableServer { why, mend: survey.mend }),
    }
}

async fn keys(
    issuer: &IssuerSettings,
    environment: &Environment,
    timeout: Duration,
) -> Result<usize, String> {
    let read = tokio::time::timeout(timeout, identity::count_keys(issuer, environment)).await;
    read.unwrap_or_else(|_| {
        Err(format!("no answer within {}", humantime::format_duration(timeout)))
    })
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Reports the results for servers and issuers.
fn found_outside(
    looks: &mut DoctorReport,
    settings: &Settings,
    outside: NetworkResults,
    lock: Option<&Lockfile>,
) {
    let NetworkResults { servers, certificates, issuers } = outside;
    for ((server, reached), end) in settings.servers.iter().zip(servers).zip(certificates) {
        let is_reached = reached.is_ok();
        about(looks, settings, server, reached, lock);
        let thing = format!("server certificate {}", server.name);
        match end {
            Ok(Some(end)) => {
                let mend = "have those who run the server renew it; after that it is not reached";
                certificate_end(looks, &thing, end, mend);
            }
            Ok(None) => {}
            // The check of the server has reported why it is not reached.
            Err(_) if !is_reached => {}
            Err(why) => looks.warn(&thing, why, ""),
        }
    }
    for (issuer, keys) in settings.identity.issuers.iter().zip(issuers) {
        let thing = format!("issuer {}", issuer.name);
        match keys {
            Ok(count) => {
                looks.ok(&thing, format!("its key set was read: {}", counted(count, "key")));
            }
            Err(why) => looks.fail(
                &thing,
                why,
                "correct `issuer`, `keys` or `connection` of it, or ask who runs it",
            ),
        }
    }
}

/// Reports the result for one server.
fn about(
    looks: &mut DoctorReport,
    settings: &Settings,
    server: &ServerSettings,
    reached: SurveyResult,
    lock: Option<&Lockfile>,
) {
    let thing = format!("server {}", server.name);
    let survey = match reached {
        Ok(survey) => survey,
        Err(UnreachableServer { why, mend: Some(mend) }) => {
            looks.fail(&thing, why, &mend);
            return;
        }
        Err(UnreachableServer { why, mend: None }) => {
            let mend = match &server.reach {
                ServerTransport::Stdio(_) => {
                    "start the program by hand with the environment that it has here, `env -i PATH=\"$PATH\" HOME=\"$HOME\" LANG=\"$LANG\" \
                     COMMAND ARGS`, and correct `command`, `args` or `env`: of the environment it gets `PATH`, `HOME`, `LANG`, \
                     `TMPDIR` and what `env` names, so not `SSL_CERT_FILE` or `HTTPS_PROXY` of this shell"
                }
                ServerTransport::Http(_) | ServerTransport::HttpSse(_)
                    if why.contains(": a redirect to `") =>
                {
                    "write where it leads in `url`"
                }
                ServerTransport::Http(_) | ServerTransport::HttpSse(_) => {
                    "correct `url`, `tls` or `credential`, or start the server"
                }
            };
            looks.fail(&thing, why, mend);
            return;
        }
    };
    let eras = survey.server_infos.iter().map(|server_info| match server_info.era {
        Era::Modern => "2026-07-28",
        Era::Legacy => "2025-11-25 or before",
    });
    let mut eras: Vec<_> = eras.collect();
    eras.dedup();
    let offers: usize = survey.catalogs.iter().map(|catalog| catalog.offers().len()).sum();
    let said = format!(
        "reached; it speaks {} and offers {}",
        eras.join(" and "),
        counted(offers, "definition")
    );
    flaws(looks, &thing, &survey);
    registered(looks, settings, &survey);
    let unlike = lock.map(|lock| pin::unlike(settings, lock, &survey)).unwrap_or_default();
    let UnapprovedThings { named, mend } = unlike;
    if named.is_empty() {
        looks.ok(&thing, said);
    } else {
        let said = format!("{said}; {} not as approved: {}", named.len(), named.join(", "));
        looks.warn(&thing, said, &mend);
    }
}

/// Warns about lists of a server that could not be read, and about output of its program that is no message.
fn flaws(looks: &mut DoctorReport, thing: &str, survey: &ServerInventory) {
    for (kind, why) in &survey.unread {
        let said = format!("its list of {} could not be read: {why}", kind.list());
        looks.warn(
            thing,
            said,
            "have the server list it; until then nothing new of it can be approved",
        );
    }
    if let Some(first) = &survey.stray {
        looks.warn(thing, inventory::stray_output(first), inventory::STRAY_MEND);
    }
}

/// Warns about registry entries for tools that the server does not have; they have no effect.
fn registered(looks: &mut DoctorReport, settings: &Settings, survey: &ServerInventory) {
    let is_read = survey.has_read(ItemKind::Tool)
        && !survey.unread.iter().any(|(kind, _)| *kind == ItemKind::Tool);
    let names: Vec<_> = settings.policy.registered_tools(&survey.server).collect();
    if names.is_empty() || !is_read {
        return;
    }
    let thing = format!("registry {}", survey.server);
    let lacking = names.iter().filter(|name| !survey.offers(ItemKind::Tool, name));
    let lacking: Vec<_> = lacking.map(|name| format!("`{}`", visible(name))).collect();
    if lacking.is_empty() {
        looks.ok(&thing, format!("the server has {}", counted(names.len(), "registered tool")));
        return;
    }
    let more = lacking.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown = lacking.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let said = format!("the server lists no tool {shown}{more}");
    let mend =
        "write `tool` as the server names it, or take the entry away: what it says has no effect";
    looks.warn(&thing, said, mend);
}
