//! `portcullis doctor`: a configuration checked by doing what it says. Everything is done at once and within a time;
//! what was started for it ends with it.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use futures_util::future::join_all;
use gateway::base::clock::{Clock as _, System};
use gateway::base::error_chain::Chain;
use gateway::base::task::Tasks;
use gateway::config::quota::Quotas;
use gateway::config::settings::lockfile::{self, LockError};
use gateway::config::settings::{
    Issuer, Limits, Reach, Remark, Server, Settings, SinkTarget, file_of_process,
};
use gateway::control::build::{self, Continued, StartError};
use gateway::control::inventory::{self, Asking, Survey};
use gateway::edge::tls::Acceptor;
use gateway::identity;
use gateway::mcp::protocol::Era;
use gateway::metrics::Metrics;
use gateway::outbound::environment::World;
use gateway::process::sandbox;
use gateway::upstream::{self, server_identity};
use policy::constraint::Missed;
use policy::decision::Mode;
use policy::drift::visible;
use policy::lock::Lock;
use policy::offer::Kind;
use rustix::fs::{Access, access};
use serde_json::json;

use super::ungranted::Ungranted;
use super::{
    FAILED, PROCESSES, Purpose, USUAL, complain, hints, invalid, load, load_for, pin, print,
    text_of,
};

/// How long before a certificate ends it is said that it will.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);
/// Most names that are said of tools that a server does not have.
const NAMED: usize = 10;
/// A time that has passed: a clock that is before it was never set. 2026-01-01.
const PASSED: Duration = Duration::from_secs(1_767_225_600);
/// How far a file may be in the future on a machine whose clock is right.
const AHEAD: Duration = Duration::from_secs(120);
/// What to do about the log of a process that serves one client.
const OF_CLIENT: &str = "a `portcullis stdio` that runs by itself would not start: look at it with `portcullis audit verify`, and move it away";
/// How long a gateway that runs already may take to say so.
const PROMPT: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = USUAL)]
    config: PathBuf,
    /// How long each server and each issuer may take.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = pin::patience)]
    timeout: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Ok,
    Warn,
    Fail,
}

impl Mark {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Look {
    mark: Mark,
    /// What was looked at, such as `server files`.
    thing: String,
    /// How it is.
    said: String,
    /// What to do about it; empty where nothing has to be done.
    mend: String,
}

/// What was looked at so far.
#[derive(Debug, Default)]
struct Looks(Vec<Look>);

impl Looks {
    fn ok(&mut self, thing: &str, said: impl Into<String>) {
        self.add(Mark::Ok, thing, said, "");
    }

    fn warn(&mut self, thing: &str, said: impl Into<String>, mend: &str) {
        self.add(Mark::Warn, thing, said, mend);
    }

    fn fail(&mut self, thing: &str, said: impl Into<String>, mend: &str) {
        self.add(Mark::Fail, thing, said, mend);
    }

    fn add(&mut self, mark: Mark, thing: &str, said: impl Into<String>, mend: &str) {
        let (thing, mend) = (thing.to_owned(), hints::complete(mend).into_owned());
        let said = hints::complete(&said.into()).into_owned();
        self.0.push(Look { mark, thing, said, mend });
    }

    fn count(&self, mark: Mark) -> usize {
        self.0.iter().filter(|look| look.mark == mark).count()
    }

    fn human(&self) -> String {
        let width = self.0.iter().map(|look| look.thing.chars().count()).max().unwrap_or_default();
        let mut out = String::new();
        for Look { mark, thing, said, mend } in &self.0 {
            let said = said.replace('\n', &format!("\n{:1$}", "", width + 8));
            writeln!(out, "{:<4}  {thing:<width$}  {said}", mark.as_str()).unwrap_or_default();
            if !mend.is_empty() {
                writeln!(out, "{:1$}-> {mend}", "", width + 8).unwrap_or_default();
            }
        }
        let counts = [Mark::Ok, Mark::Warn, Mark::Fail];
        let counts = counts.map(|mark| format!("{} {}", self.count(mark), mark.as_str()));
        writeln!(out, "{}", counts.join(", ")).unwrap_or_default();
        out
    }

    fn json(&self) -> String {
        let look = |Look { mark, thing, said, mend }: &Look| json!({ "status": mark.as_str(), "check": thing, "message": said, "mend": mend });
        let all: Vec<_> = self.0.iter().map(look).collect();
        format!("{:#}\n", serde_json::Value::from(all))
    }
}

pub(super) fn run(doctor: &Doctor) -> ExitCode {
    let file = &doctor.config;
    let text = match text_of(file) {
        Ok(text) => text,
        Err(code) => return code,
    };
    // What is not valid says nothing that could be done.
    let settings = match load(file, &text) {
        Ok(settings) => settings,
        Err(problems) if doctor.json => {
            let mut looks = Looks::default();
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
    let mut looks = Looks::default();
    configuration(&mut looks, file, &text);
    clock(&mut looks, file);
    sandboxes(&mut looks, &settings);
    folders(&mut looks, &settings);
    logs(&mut looks, (file, &text), &settings);
    ports(&mut looks, &settings);
    certificates(&mut looks, &settings);
    let lock = lock(&mut looks, &settings);
    if let Some(lock) = &lock {
        constraints(&mut looks, &settings, lock);
        ungranted(&mut looks, &settings, lock);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("could not start the threads: {error}")),
    };
    let outside = runtime.block_on(async {
        tokio::select! {
            outside = outside(&settings, (file, &text), doctor.timeout) => Some(outside),
            () = super::told_to_stop() => None,
        }
    });
    // What was started for it ends with it.
    runtime.shutdown_background();
    let Some(outside) = outside else {
        return complain("stopped before every server had answered");
    };
    found_outside(&mut looks, &settings, outside, lock.as_ref());
    let printed = print(&if doctor.json { looks.json() } else { looks.human() });
    if looks.count(Mark::Fail) > 0 { ExitCode::from(FAILED) } else { printed }
}

/// The configuration itself, with the secrets and folders that it names on this machine.
fn configuration(looks: &mut Looks, file: &Path, text: &str) {
    match load_for(Purpose::Checking, file, text) {
        Ok(settings) => {
            looks.ok("configuration", "valid; every secret that it names is there");
            for remark in Remark::all(&settings) {
                match remark {
                    Remark::Note(_) => {}
                    Remark::Warning(what) => looks.warn("configuration", what, ""),
                }
            }
        }
        Err(problems) => {
            for (said, mend) in problems.each() {
                looks.fail("configuration", said, &mend);
            }
        }
    }
    if gateway::base::file::is_open_to_all(file) {
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

/// Whether each constraint is of something that the servers have.
fn constraints(looks: &mut Looks, settings: &Settings, lock: &Lock) {
    let servers: Vec<_> = settings.servers.iter().map(|server| server.name.clone()).collect();
    for missed in Missed::all(settings.policy.constraints(), &servers, lock) {
        looks.warn("policy", missed.to_string(), "correct the name, or remove it");
    }
}

/// Whether a rule grants what was approved: what none grants is shown to nobody.
fn ungranted(looks: &mut Looks, settings: &Settings, lock: &Lock) {
    let servers = settings.servers.iter().map(|server| &server.name);
    for one in Ungranted::all(&settings.policy, lock, servers) {
        looks.warn(&format!("policy {}", one.server), one.said(), &one.mend());
    }
}

/// Whether the clock could be right: tokens and certificates are judged by it.
fn clock(looks: &mut Looks, file: &Path) {
    let now = System.now();
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

/// Whether the kernel can keep programs as they are to be kept.
fn sandboxes(looks: &mut Looks, settings: &Settings) {
    for server in &settings.servers {
        let Reach::Stdio(program) = &server.reach else { continue };
        let thing = format!("sandbox {}", server.name);
        let Some(plan) = &program.sandbox else {
            let mend = "take `sandbox: {mode: off}` away";
            looks.warn(&thing, "none: the program can do what the gateway can", mend);
            continue;
        };
        match plan.check() {
            Ok(()) => looks.ok(&thing, "this kernel can enforce it"),
            Err(error) if plan.required => {
                let mend = "use a kernel that has it (docs/sandbox.md), or `mode: preferred`";
                looks.fail(&thing, Chain(&error).to_string(), mend);
            }
            Err(error) => {
                looks.warn(
                    &thing,
                    Chain(&error).to_string(),
                    "docs/sandbox.md says what the kernel has to have",
                );
            }
        }
    }
}

/// A file that the gateway writes to.
pub(super) struct RecordFile<'a> {
    /// What it is, such as `audit file`.
    pub(super) thing: String,
    /// Where it is.
    pub(super) path: &'a Path,
}

/// Why a file cannot be written by who asks.
pub(super) struct Unwritable {
    /// What is wrong.
    pub(super) said: String,
    /// What to do about it.
    pub(super) mend: &'static str,
}

/// The files of records and of checkpoints.
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

/// Why the file at `path` cannot be written, or made, by the user of this process.
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

/// Whether files can be written where they are to be.
fn folders(looks: &mut Looks, settings: &Settings) {
    for RecordFile { thing, path } in written(settings) {
        match unwritable(path) {
            None => looks.ok(&thing, format!("`{}` can be written", path.display())),
            Some(Unwritable { said, mend }) => looks.fail(&thing, said, mend),
        }
    }
}

/// Whether a start could go on with the logs that are there, and so could the processes that serve one client each.
fn logs(looks: &mut Looks, (file, text): (&Path, &str), settings: &Settings) {
    let sinks = settings.audit.sinks.iter().filter_map(|sink| match &sink.to {
        SinkTarget::File(path, _) => Some(path),
        SinkTarget::Stdout
        | SinkTarget::Http(..)
        | SinkTarget::Otlp(..)
        | SinkTarget::Syslog(..) => None,
    });
    let paths: Vec<_> = sinks.collect();
    if paths.is_empty() {
        return;
    }
    match continued(settings) {
        Ok(continued) => looks.ok("audit log", of_log(continued)),
        // That was said of the configuration.
        Err(error) if error.is_of_a_secret() => return,
        Err(error) => looks.fail("audit log", Chain(&error).to_string(), of_refused_log(&error)),
    }
    for number in 1..=PROCESSES {
        if !paths.iter().any(|path| file_of_process(path, number).exists()) {
            continue;
        }
        // What is not valid was said before.
        let Ok(own) = load_for(Purpose::Stdio(number), file, text) else { return };
        if let Err(error) = continued(&own) {
            let thing = format!("audit log stdio-{number}");
            looks.fail(&thing, Chain(&error).to_string(), OF_CLIENT);
        }
    }
}

/// What a start would go on with.
fn continued(settings: &Settings) -> Result<Continued, StartError> {
    let world = world(settings.limits, settings.limits.connect_time);
    build::examine_logs(&settings.audit, &world)
}

/// What is said of a log that a start goes on with.
fn of_log(continued: Continued) -> String {
    let Continued { records, kept } = continued;
    match (records, kept) {
        (None, _) => "there is none: a start begins one".to_owned(),
        (Some(records), None) => format!("a start goes on after {records} records"),
        (Some(records), Some(kept)) => format!(
            "a start goes on after {records} records, among them those of the last checkpoint, over {kept}"
        ),
    }
}

/// What to do about a log that a start would not go on with, where the error does not say so itself.
fn of_refused_log(error: &StartError) -> &'static str {
    match error {
        StartError::Log { .. } => "docs/audit.md says how a start compares them",
        _other => {
            "`portcullis run` would not start; docs/audit.md says what a log is held to, and how a key is turned on"
        }
    }
}

/// Whether the addresses are free, or a gateway listens there already.
fn ports(looks: &mut Looks, settings: &Settings) {
    let runs = settings.ops.as_ref().is_some_and(|ops| is_alive(ops.address));
    let listeners = settings.listeners.iter();
    let listeners = listeners.map(|one| (format!("listener {}", one.name), one.address));
    let ops = settings.ops.as_ref().map(|ops| ("ops".to_owned(), ops.address));
    for (thing, address) in listeners.chain(ops) {
        match TcpListener::bind(address) {
            Ok(_) => looks.ok(&thing, format!("{address} is free")),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && runs => {
                looks.warn(
                    &thing,
                    format!("{address} is in use, by a gateway that runs already"),
                    "",
                );
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

/// Whether a gateway says at its operator's listener that it is alive.
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

/// Whether the certificates of listeners can be used, and for how long.
fn certificates(looks: &mut Looks, settings: &Settings) {
    let now = System.now();
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
                looks.fail(&thing, Chain(&error).to_string(), "correct the files under `tls`");
            }
        }
    }
}

/// When a certificate ends; `mend` says what to do where that is soon.
fn certificate_end(looks: &mut Looks, thing: &str, end: SystemTime, mend: &str) {
    let said = format!("good until {}", day(end));
    if end < System.now() + SOON {
        looks.warn(thing, said, mend);
    } else {
        looks.ok(thing, said);
    }
}

/// What was approved; `None` where nothing has to be.
fn lock(looks: &mut Looks, settings: &Settings) -> Option<Lock> {
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
                Chain(&error).to_string(),
                "take it from version control, or pin and approve again",
            );
            None
        }
    }
}

/// What came of asking a server.
type Reached = Result<Survey, Unreached>;

/// Why a server could not be asked.
struct Unreached {
    /// What is wrong.
    why: String,
    /// What helps, where that is known.
    mend: Option<String>,
}

impl From<String> for Unreached {
    fn from(why: String) -> Self {
        Self { why, mend: None }
    }
}

/// What came of asking others, in the order of the configuration.
struct Outside {
    /// What each server is and offers.
    servers: Vec<Reached>,
    /// When the certificate of each server ends; none where it is reached without TLS.
    certificates: Vec<Result<Option<SystemTime>, String>>,
    /// How many keys each issuer has.
    issuers: Vec<Result<usize, String>>,
}

/// Asks every server and every issuer at once, each within a time.
async fn outside(settings: &Settings, (file, text): (&Path, &str), timeout: Duration) -> Outside {
    let world = world(settings.limits, timeout);
    let servers = settings.servers.iter().map(|server| reach(server, (file, text), timeout));
    let certificates = settings.servers.iter().map(|server| certificate(server, &world, timeout));
    let issuers = settings.identity.issuers.iter().map(|issuer| keys(issuer, &world, timeout));
    let (servers, certificates, issuers) =
        tokio::join!(join_all(servers), join_all(certificates), join_all(issuers));
    Outside { servers, certificates, issuers }
}

/// When the certificate ends that a server shows.
async fn certificate(
    server: &Server,
    world: &World,
    timeout: Duration,
) -> Result<Option<SystemTime>, String> {
    let end = upstream::certificate_end(server, timeout, world).await;
    end.map_err(|error| Chain(&error).to_string())
}

/// What is outside, where no single step takes longer than `timeout`.
pub(super) fn world(mut limits: Limits, timeout: Duration) -> World {
    bound(&mut limits, timeout);
    let metrics = Arc::new(Metrics::new(System.now()));
    let quotas = Arc::new(Quotas::new(&limits, &[]));
    World::new(Arc::new(System), limits, Tasks::default(), metrics, quotas)
}

/// No single step takes longer than all of them may.
fn bound(limits: &mut Limits, timeout: Duration) {
    for time in [
        &mut limits.connect_time,
        &mut limits.answer_time,
        &mut limits.total_time,
        &mut limits.drain_time,
    ] {
        *time = timeout.min(*time);
    }
}

async fn reach(server: &Server, (file, text): (&Path, &str), timeout: Duration) -> Reached {
    if let Some(Err(error)) = server_identity::started(server) {
        return Err(format!("its program {error}").into());
    }
    // Each has settings of its own: what one server does holds up no other.
    let mut own = load(file, text).map_err(|problems| problems.first())?;
    bound(&mut own.limits, timeout);
    // After it has answered, what was started for it is given time to end.
    let within = timeout + own.limits.drain_time;
    let name = server.name.as_str();
    let asking = Asking { patience: timeout, told: Box::new(|_, _| {}) };
    let asked = inventory::survey(own, |one| one == name, &asking);
    let surveys = match tokio::time::timeout(within, asked).await {
        Ok(surveys) => surveys.map_err(|error| Chain(&error).to_string())?,
        Err(_) => {
            let why = format!("no answer within {}", humantime::format_duration(timeout));
            return Err(why.into());
        }
    };
    let survey = surveys.into_iter().next().ok_or_else(|| "it was not asked".to_owned())?;
    match survey.failed.clone() {
        None => Ok(survey),
        Some(why) => Err(Unreached { why, mend: survey.mend }),
    }
}

async fn keys(issuer: &Issuer, world: &World, timeout: Duration) -> Result<usize, String> {
    let read = tokio::time::timeout(timeout, identity::count_keys(issuer, world)).await;
    read.unwrap_or_else(|_| {
        Err(format!("no answer within {}", humantime::format_duration(timeout)))
    })
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What is said of servers and issuers.
fn found_outside(looks: &mut Looks, settings: &Settings, outside: Outside, lock: Option<&Lock>) {
    let Outside { servers, certificates, issuers } = outside;
    for ((server, reached), end) in settings.servers.iter().zip(servers).zip(certificates) {
        let is_reached = reached.is_ok();
        about(looks, (settings, server), reached, lock);
        let thing = format!("server certificate {}", server.name);
        match end {
            Ok(Some(end)) => {
                let mend = "have those who run the server renew it; after that it is not reached";
                certificate_end(looks, &thing, end, mend);
            }
            Ok(None) => {}
            // Of a server that is not reached it was said why.
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

/// What is said of a server.
fn about(
    looks: &mut Looks,
    (settings, server): (&Settings, &Server),
    reached: Reached,
    lock: Option<&Lock>,
) {
    let thing = format!("server {}", server.name);
    let survey = match reached {
        Ok(survey) => survey,
        Err(Unreached { why, mend: Some(mend) }) => {
            looks.fail(&thing, why, &mend);
            return;
        }
        Err(Unreached { why, mend: None }) => {
            let mend = match &server.reach {
                Reach::Stdio(_) => {
                    "start the program by hand with the same arguments, and correct `command`, `args` or `env`"
                }
                Reach::Http(_) | Reach::Old(_) if why.contains(": a redirect to `") => {
                    "write where it leads in `url`"
                }
                Reach::Http(_) | Reach::Old(_) => {
                    "correct `url`, `tls` or `credential`, or start the server"
                }
            };
            looks.fail(&thing, why, mend);
            return;
        }
    };
    let eras = survey.hellos.iter().map(|hello| match hello.era {
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
    for (kind, why) in &survey.unread {
        let said = format!("its list of {} could not be read: {why}", kind.list());
        looks.warn(
            &thing,
            said,
            "have the server list it; until then nothing new of it can be approved",
        );
    }
    registered(looks, settings, &survey);
    let unlike = lock.map(|lock| pin::unlike(settings, lock, &survey)).unwrap_or_default();
    if unlike.is_empty() {
        looks.ok(&thing, said);
    } else {
        let said =
            format!("{said}, of which {} are not as approved: {}", unlike.len(), unlike.join(", "));
        looks.warn(&thing, said, "`portcullis pin diff` shows how; `portcullis pin` and `portcullis pin approve` approve it");
    }
}

/// Whether a server has the tools that the registry says something of: what is said of another name has no effect.
fn registered(looks: &mut Looks, settings: &Settings, survey: &Survey) {
    let is_read =
        survey.has_read(Kind::Tool) && !survey.unread.iter().any(|(kind, _)| *kind == Kind::Tool);
    let names: Vec<_> = settings.policy.registered_tools(&survey.server).collect();
    if names.is_empty() || !is_read {
        return;
    }
    let thing = format!("registry {}", survey.server);
    let lacking = names.iter().filter(|name| !survey.offers(Kind::Tool, name));
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
