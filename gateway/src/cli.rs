//! The verbs of the command line.

mod export;
mod exec;
mod hints;
mod import;
mod ops;
mod config;
mod manual;
mod printable;
mod audit;
mod inspect;
mod sarif;
mod token;
mod ungranted;
mod why;
mod pin;
mod doctor;
mod init;
mod plan;
mod policy;
mod scan;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{env, fs};

use ::policy::constraint::Missed;
use ::policy::decision::Mode;
use ::policy::lock::Lock;
use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use gateway::audit::lines::Colours;
use gateway::base::clock::{Clock as _, System};
use gateway::base::error_chain::Chain;
use gateway::base::hex;
use gateway::base::secret::Secret;
use gateway::base::systemd;
use gateway::config::settings::lockfile::{self, LockError};
use gateway::config::settings::{
    self, LogFormat, Problems, ProcessSharing, Protocol, Purpose, Reach, Remark, RouteError,
    Server, Settings, SinkTarget, Verbs,
};
use gateway::control::attach;
use gateway::control::build;
use gateway::control::demo_server::{self, Part};
use gateway::control::run::{self, Running, Source, StartError, Stopped};
use gateway::control::watchdog::{ABANDONED, Begins};
use gateway::process::sandbox::{self, Confinement, Plan};
use gateway::telemetry::terminal::Human;
use gateway::upstream::server_identity;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use doctor::{RecordFile, Unwritable};
use printable::printable;

/// Something failed.
const FAILED: u8 = 1;
/// Some of what a server says it has could not be read.
const INCOMPLETE: u8 = 8;
/// The configuration is not valid.
const INVALID: u8 = 3;
/// The configuration that is read where none is named, in the working folder.
const USUAL: &str = "portcullis.yaml";
/// Most processes of one configuration that serve one client each and run by themselves.
const PROCESSES: u8 = 64;

/// A reverse proxy for the Model Context Protocol that lets through only what a policy permits.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write a configuration to begin with: a listener on loopback, an API key, and the servers that are named or that
    /// a client has. Nothing is started, and no secret stands in it.
    Init(init::Init),
    /// Start the gateway. Where there is neither a file nor a `portcullis.yaml` in the working folder: on loopback, in
    /// front of a small server that is built in.
    Run {
        /// The configuration; `portcullis.yaml` in the working folder, if it is there.
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Say what would be in force and what servers offer now, and end. Exits with 4 where that is
        /// not what was approved, and with 7 where a server is not reached.
        #[arg(long)]
        dry_run: bool,
        /// Begin a new audit log where the file of checkpoints says that there was one, which was moved away.
        /// For one start; it is on record.
        #[arg(long, conflicts_with = "dry_run")]
        new_log: bool,
        /// How the log is written, and whether it has a line for each request. Default: for people on a terminal, JSON
        /// elsewhere.
        #[arg(long, value_enum, value_name = "FORMAT")]
        log_format: Option<Format>,
    },
    /// Run the gateway and a program beside it, which is told where the gateway is. Ends as the program
    /// does.
    Exec(exec::Exec),
    /// Be an MCP server over stdio with the gateway behind it, for a client that starts its servers.
    /// Where a gateway runs with the same configuration, it serves the client. Otherwise this process does: it starts
    /// the servers of the route, and records to an audit log of its own, `FILE.stdio-N`. Nothing listens. The client
    /// calls with the API key in `PORTCULLIS_API_KEY`, or as the anonymous caller; one that is not let in is told on
    /// standard error, with exit code 1.
    Stdio {
        /// The configuration.
        #[arg(short, long, value_name = "FILE", default_value = USUAL)]
        config: PathBuf,
        /// The path of the route; needed where there is more than one.
        #[arg(short, long, value_name = "PATH")]
        route: Option<String>,
        /// How the log is written.
        #[arg(long, value_enum, value_name = "FORMAT")]
        log_format: Option<Format>,
    },
    /// Check a configuration. Exits with 3 when it is not valid.
    Validate {
        /// The configuration; `portcullis.yaml` if not given.
        #[arg(conflicts_with = "config")]
        file: Option<PathBuf>,
        /// The same, as other verbs take it.
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// How problems are shown.
        #[arg(long, value_enum, default_value_t = Format::Human)]
        format: Format,
        /// It is for another machine: secrets, and what a sandbox needs, do not have to be on this one.
        #[arg(long)]
        elsewhere: bool,
    },
    /// Check a configuration by doing what it says, in a bounded time: reach each server and each issuer, start each
    /// program, read each secret, bind each port. Exits with 1 when something fails.
    Doctor(doctor::Doctor),
    /// Propose what servers say and offer now for approval, in the lockfile; and look at, approve,
    /// revoke and sign what stands there.
    Pin(pin::Pin),
    /// Say what detectors and a reviewer find in what servers offer, and what to do about it. Exits
    /// with 6 when there is something grave.
    Scan(scan::Scan),
    /// Say what the detectors of a configuration find in definitions, results or arguments, which
    /// come as JSON Lines on standard input: one JSON object a line.
    Inspect(inspect::Inspect),
    /// Show a configuration as it counts.
    Config(config::Config),
    /// Print what a client has to be told to come to the gateway.
    Export(export::Export),
    /// Make a configuration of what a client has configured. Nothing is started, nothing is trusted, and
    /// no secret is printed or kept.
    Import(import::Import),
    /// Say what a configuration would decide, and why; test it, try it on what is on record, and look
    /// its rules over.
    Policy(policy::Policy),
    /// Say whether the audit log is whole, and what is in it.
    Audit(audit::Audit),
    /// Print the JSON Schema of the configuration, of the audit record, or of a file of policy tests.
    Schema {
        /// Of what.
        #[arg(value_enum, default_value_t = Of::Config)]
        of: Of,
    },
    /// Make an API key, and the line that admits it.
    Keygen,
    /// Print what a shell needs to complete the verbs and options.
    Completions {
        /// Which shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write a manual page for each verb.
    Man {
        /// Into this folder.
        folder: PathBuf,
    },
    /// Print a chapter of the documentation that is made from the code.
    #[command(hide = true)]
    Reference {
        /// Which.
        #[arg(value_enum)]
        what: manual::Chapter,
    },
    /// Say what the gateway would decide about an access token.
    Token(token::Token),
    /// Have a running gateway attack itself, and say what holds. Exits with 6 when something does not.
    Selftest(ops::Selftest),
    /// Revoke callers, clients, servers, tools or tokens, whatever the rules say, or everything: at the
    /// running gateway where the configuration has `ops.token`, else in `revocations.file`.
    Revoke(ops::Change),
    /// Show what is revoked, and take it back.
    Revocations(ops::Revocations),
    /// Say whether a running gateway is ready: exits with 0 or 1.
    Health(ops::Health),
    /// Be a small MCP server over stdio, to try a gateway on.
    Canary {
        /// Be the one that the self-test attacks with.
        #[arg(long, hide = true)]
        selftest: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// What there is a schema of.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Of {
    /// The configuration.
    Config,
    /// A record of the audit log.
    Audit,
    /// A file of cases for `portcullis policy test`.
    PolicyTests,
}

/// The schema of a record.
const AUDIT_SCHEMA: &str = include_str!("../../config/audit.schema.json");

/// How findings are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Human,
    /// For programs.
    Json,
    /// For code review tools: SARIF 2.1.0.
    Sarif,
}

/// Does what the command line asks for.
pub(crate) fn run() -> ExitCode {
    // Before anything is read, and before anything is started that could look.
    if let Err(error) = sandbox::conceal() {
        return complain(&format!(
            "the memory of this process cannot be kept from others: {error}"
        ));
    }
    // Our own word to ourselves, which nobody has to read about.
    let mut line = env::args_os().skip(1);
    match line.next() {
        Some(verb) if verb == sandbox::VERB => return become_program(line),
        Some(verb) if verb == sandbox::SUPERVISOR => return supervise(line),
        Some(_) | None => {}
    }
    let matches = Arguments::command().get_matches();
    hints::remember(&matches);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match arguments.verb {
        Verb::Init(init) => init::run(&init),
        Verb::Run { config, dry_run: true, .. } => show(config),
        Verb::Run { config, new_log, log_format, .. } => run_usual(config, new_log, log_format),
        Verb::Doctor(doctor) => doctor::run(&doctor),
        Verb::Exec(exec) => exec::run(exec),
        Verb::Config(config) => config::run(&config),
        Verb::Export(export) => export::run(&export),
        Verb::Completions { shell } => manual::completions(shell),
        Verb::Man { folder } => manual::man(&folder),
        Verb::Reference { what } => print(&manual::reference(what)),
        Verb::Stdio { config, route, log_format } => {
            serve_inside(&config, route.as_deref(), log_format)
        }
        Verb::Validate { file, config, format, elsewhere } => {
            validate(&file.or(config).unwrap_or_else(|| USUAL.into()), format, elsewhere)
        }
        Verb::Pin(pin) => pin::run(pin),
        Verb::Scan(scan) => scan::run(&scan),
        Verb::Inspect(inspect) => inspect::run(&inspect),
        Verb::Import(import) => import::run(&import),
        Verb::Policy(policy) => policy::run(policy),
        Verb::Audit(audit) => audit::run(audit, System.now()),
        Verb::Schema { of: Of::Config } => print(&pretty(&settings::schema())),
        Verb::Schema { of: Of::PolicyTests } => print(&pretty(&settings::cases::schema())),
        Verb::Schema { of: Of::Audit } => print(AUDIT_SCHEMA),
        Verb::Keygen => keygen(),
        Verb::Token(token) => token::run(&token),
        Verb::Selftest(selftest) => ops::selftest(&selftest),
        Verb::Revoke(change) => ops::revoke(&change),
        Verb::Revocations(revocations) => ops::revocations(&revocations),
        Verb::Health(health) => ops::health(&health),
        Verb::Canary { selftest } => {
            let part = if selftest { Part::Attacker } else { Part::Quickstart };
            match demo_server::serve(|| System.now(), part) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(&format!("the canary has ended: {error}")),
            }
        }
    }
}

/// Gives up rights, and becomes the program that follows.
fn become_program(mut line: impl Iterator<Item = OsString>) -> ExitCode {
    let confinement = line.next().and_then(|text| Confinement::read(text.to_str()?));
    let command = line.nth(1).and_then(|command| command.into_string().ok());
    let (Some(confinement), Some(command)) = (confinement, command) else {
        return complain("this verb is for the gateway itself");
    };
    let rest: Vec<_> = line.collect();
    let Err(error) = confinement.become_program(&command, &rest, |text: &str| say(text));
    say(&format!("error: {}", Chain(&error)));
    ExitCode::from(sandbox::REFUSED)
}

/// Starts a program, and stays with it until none of its processes is left.
fn supervise(line: impl Iterator<Item = OsString>) -> ExitCode {
    match sandbox::supervise(line) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("error: the program cannot be watched over: {error}"));
            ExitCode::from(sandbox::REFUSED)
        }
    }
}

/// Writes data to standard output, without anything a terminal would act on.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(printable(text).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}

/// Writes talk to standard error, likewise.
fn say(text: &str) {
    say_styled(&printable(&hints::complete(text)));
}

/// The same with the colours in it, which has to be printable already.
fn say_styled(text: &str) {
    // There is nobody left to tell that nobody can be told.
    drop(writeln!(io::stderr(), "{text}"));
}

fn complain(text: &str) -> ExitCode {
    say(&format!("error: {text}"));
    ExitCode::from(FAILED)
}

fn pretty(schema: &serde_json::Value) -> String {
    let mut text = serde_json::to_string_pretty(schema).unwrap_or_default();
    text.push('\n');
    text
}

fn coloured() -> bool {
    build::colours(&io::stderr()) == Colours::Shown
}

fn validate(file: &Path, format: Format, elsewhere: bool) -> ExitCode {
    let text = match text_of(file) {
        Ok(text) => text,
        Err(code) => return code,
    };
    let purpose = if elsewhere { Purpose::Reading } else { Purpose::Checking };
    match (load_for(purpose, file, &text), format) {
        (Ok(settings), Format::Human) => {
            if let Some(warning) = sandbox::privileged().filter(|_| !elsewhere) {
                say(&format!("warning: {warning}"));
            }
            questions(&settings);
            if !elsewhere {
                missing_programs(&settings);
                unwritable(&settings);
                match lockfile_is_good(&settings, format) {
                    Ok(lock) => missed(&settings, &lock),
                    Err(code) => return code,
                }
            }
            let grave = if elsewhere { "warning" } else { "error" };
            if !sandboxes(&settings, grave) && !elsewhere {
                return ExitCode::from(INVALID);
            }
            remarks(&settings);
            print("valid\n")
        }
        (Ok(settings), Format::Json) => {
            if !elsewhere && programs(&settings).any(|(_, plan)| is_impossible(plan)) {
                say("error: a sandbox that is `required` cannot be enforced on this machine");
                return ExitCode::from(INVALID);
            }
            if !elsewhere && let Err(code) = lockfile_is_good(&settings, format) {
                return code;
            }
            print("[]\n")
        }
        (Err(problems), Format::Human) => invalid(&problems),
        (Err(problems), Format::Json) => {
            print(&format!("{}\n", problems.json()));
            ExitCode::from(INVALID)
        }
    }
}

/// The programs behind the gateway, and their sandboxes.
fn programs(settings: &Settings) -> impl Iterator<Item = (&Server, Option<&Plan>)> {
    settings.servers.iter().filter_map(|server| match &server.reach {
        Reach::Stdio(program) => Some((server, program.sandbox.as_ref())),
        Reach::Http(_) | Reach::Old(_) => None,
    })
}

/// Says which programs are not there, or cannot be started.
fn missing_programs(settings: &Settings) {
    for (server, _) in programs(settings) {
        if let Some(Err(error)) = server_identity::started(server) {
            say(&format!("warning: the program of the server `{}` {error}", server.name));
        }
    }
}

/// Says which files of records the user of this process could not write: that of the gateway may be another.
fn unwritable(settings: &Settings) {
    for RecordFile { thing, path } in doctor::written(settings) {
        if let Some(Unwritable { said, mend }) = doctor::unwritable(path) {
            say(&format!("warning: {thing}: {said}; {mend}"));
        }
    }
}

/// The lockfile, if it can be used; one with nothing in it where it is not there yet, or is not asked. Says what is wrong
/// with it.
fn lockfile_is_good(settings: &Settings, format: Format) -> Result<Lock, ExitCode> {
    if settings.pins.mode == Mode::Off {
        return Ok(Lock::default());
    }
    match (lockfile::read(&settings.pins.file, &settings.pins.approvers), format) {
        (Ok((lock, _)), _) => Ok(lock),
        (Err(error @ LockError::Missing(_)), Format::Human) => {
            say(&format!("note: {error}"));
            Ok(Lock::default())
        }
        (Err(LockError::Missing(_)), Format::Json) => Ok(Lock::default()),
        (Err(LockError::Shape { json, .. }), Format::Json) => {
            print(&format!("{json}\n"));
            Err(ExitCode::from(INVALID))
        }
        (Err(error), _) => {
            complain(&Chain(&error).to_string());
            Err(ExitCode::from(INVALID))
        }
    }
}

/// Says which constraints name a tool or an argument that there is not.
fn missed(settings: &Settings, lock: &Lock) {
    let servers: Vec<_> = settings.servers.iter().map(|server| server.name.clone()).collect();
    for missed in Missed::all(settings.policy.constraints(), &servers, lock) {
        say(&format!("warning: {missed}; correct the name, or remove it"));
    }
}

/// Whether a program would not be started, here.
fn is_impossible(plan: Option<&Plan>) -> bool {
    plan.is_some_and(|plan| plan.required && plan.check().is_err())
}

/// Says which programs are not kept where they could be, here, and how `grave` it is where they have to be.
/// Whether all could be started.
fn sandboxes(settings: &Settings, grave: &str) -> bool {
    let mut possible = true;
    for (server, plan) in programs(settings) {
        let name = &server.name;
        let Some(plan) = plan else {
            say(&format!(
                "warning: the server `{name}` has no sandbox: it can do what the gateway can"
            ));
            continue;
        };
        if let Err(error) = plan.check() {
            let error = Chain(&error);
            if plan.required {
                possible = false;
                say(&format!("{grave}: the sandbox of the server `{name}` cannot be had: {error}"));
            } else {
                say(&format!(
                    "warning: the sandbox of the server `{name}` is not complete on this machine: {error}"
                ));
            }
        }
    }
    let plans = programs(settings).filter_map(|(server, plan)| Some((server.name.as_str(), plan?)));
    for said in sandbox::shown_together(plans) {
        say(&format!("note: {said}"));
    }
    possible
}

/// Says which servers may ask what they will not be able to.
fn questions(settings: &Settings) {
    for server in &settings.servers {
        let stdio = matches!(server.reach, Reach::Stdio(_));
        if !stdio || server.asks.is_nothing() {
            continue;
        }
        let speaks = match (server.sharing, server.protocol) {
            (ProcessSharing::PerSession, _) | (_, Protocol::Modern) => continue,
            (ProcessSharing::AsNeeded, Protocol::Auto) => {
                "speaks no revision but those before 2026-07-28"
            }
            (
                ProcessSharing::AsNeeded | ProcessSharing::Shared,
                Protocol::Auto | Protocol::Legacy,
            ) => "speaks a revision before 2026-07-28",
        };
        say(&format!(
            "warning: `serverRequests` of the server `{}`: a program that callers share can ask nobody where it {speaks}; \
             write `sharing: perSession`, or `protocol: modern` if it speaks that",
            server.name
        ));
    }
}

/// Says what tools are called, and what is odd about a configuration that is valid.
fn remarks(settings: &Settings) {
    for remark in Remark::all(settings) {
        match remark {
            Remark::Note(what) => say(&format!("note: {what}")),
            Remark::Warning(what) => say(&format!("warning: {what}")),
        }
    }
}

fn invalid(problems: &Problems) -> ExitCode {
    let count = match problems.count() {
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    let text = format!("{}{count}; nothing was started", problems.human(coloured()));
    if coloured() {
        say_styled(&hints::complete(&text))
    } else {
        say(&text)
    }
    ExitCode::from(INVALID)
}

/// `PORTCULLIS_EXE` stands for this program, so that the quickstart can start its own server.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().or_else(|| {
        let exe = (name == "PORTCULLIS_EXE").then(env::current_exe)?.ok()?;
        exe.into_os_string().into_string().ok()
    })
}

fn load(file: &Path, text: &str) -> Result<Settings, Problems> {
    load_for(Purpose::Reading, file, text)
}

fn load_for(purpose: Purpose, file: &Path, text: &str) -> Result<Settings, Problems> {
    settings::load_for(purpose, &file.display().to_string(), text, &variable)
}

/// The same, to serve clients with.
fn load_to_serve(file: &Path, text: &str) -> Result<Settings, Problems> {
    load_for(Purpose::Serving, file, text)
}

/// The text of a configuration, or the code to end with when it cannot be read.
fn text_of(file: &Path) -> Result<String, ExitCode> {
    fs::read_to_string(file).map_err(|error| {
        let help = match (error.kind(), file == Path::new(USUAL)) {
            (io::ErrorKind::NotFound, true) => {
                "; `portcullis init` writes one, or name another with `-c FILE`"
            }
            (io::ErrorKind::NotFound, false) => "; `portcullis init` writes one",
            _ => "",
        };
        complain(&format!("could not read `{}`: {error}{help}", file.display()))
    })
}

/// The configuration, or the code to end with when it is not valid.
fn settings(file: &Path) -> Result<Settings, ExitCode> {
    load(file, &text_of(file)?).map_err(|problems| invalid(&problems))
}

/// The same, to serve clients with.
fn settings_to_serve(file: &Path) -> Result<Settings, ExitCode> {
    load_to_serve(file, &text_of(file)?).map_err(|problems| invalid(&problems))
}

/// An API key, and the hash that admits it.
struct Drawn {
    key: String,
    sha256: String,
}

impl Drawn {
    fn new() -> Result<Self, ExitCode> {
        let mut random = [0; 32];
        if rand::fill(&mut random).is_err() {
            return Err(complain("the machine gave no random bytes"));
        }
        let key = format!("{}{}", settings::KEY, URL_SAFE_NO_PAD.encode(random));
        let sha256 = hex::encode(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
        Ok(Self { key, sha256 })
    }
}

fn keygen() -> ExitCode {
    match Drawn::new() {
        Ok(Drawn { key, sha256 }) => print(&format!("key:    {key}\nsha256: {sha256}\n")),
        Err(code) => code,
    }
}

fn serve_inside(file: &Path, route: Option<&str>, log_format: Option<Format>) -> ExitCode {
    // One that is empty stands in the file of a client to be filled in.
    let key = env::var("PORTCULLIS_API_KEY").ok().filter(|key| !key.is_empty());
    let key = key.map(|key| Secret::new(key.into()));
    match serve_attached(file, route, key.as_ref(), log_format) {
        Some(code) => code,
        None => serve_alone(file, route, key.as_ref(), log_format),
    }
}

/// Serves the client by the running gateway of the configuration; `None` where there is none.
fn serve_attached(
    file: &Path,
    route: Option<&str>,
    key: Option<&Secret>,
    log_format: Option<Format>,
) -> Option<ExitCode> {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(complain(&format!("could not start the threads: {error}"))),
    };
    let served = runtime.block_on(async {
        let connection = attach::attach(file, route, key).await.transpose()?;
        let served = match connection {
            Ok(connection) => {
                let usual = settings::Log { format: None, terminal: settings::Terminal::Shared };
                log("info", asked_log(usual, log_format));
                tokio::select! {
                    served = connection.copy() => served,
                    () = told_to_stop() => Ok(()),
                }
            }
            Err(error) => Err(error),
        };
        Some(served)
    });
    // The thread that reads standard input waits for the client.
    runtime.shutdown_background();
    Some(match served? {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&Chain(&error).to_string()),
    })
}

/// The same by this process, with a log of its own and with no other servers than those of the route.
fn serve_alone(
    file: &Path,
    route: Option<&str>,
    key: Option<&Secret>,
    log_format: Option<Format>,
) -> ExitCode {
    let text = match text_of(file) {
        Ok(text) => text,
        Err(code) => return code,
    };
    let name = file.display().to_string();
    let load = |number| settings::load_for_route((number, route), &name, &text, &variable);
    let settings = match load(1) {
        Ok(settings) => logging(settings, log_format),
        Err(RouteError::Invalid(problems)) => {
            let code = invalid(&problems);
            if problems.each().iter().any(|(said, _)| said.contains("is not set")) {
                say(
                    "note: no gateway runs with this configuration, so this process is to start the servers of its route \
                     itself: set their variables where the client starts it, or start `portcullis run` first",
                );
            }
            return code;
        }
        Err(RouteError::Route(error)) => return complain(&error.to_string()),
    };
    if settings.audit.sinks.iter().any(|sink| matches!(sink.to, SinkTarget::Stdout)) {
        return complain("standard output belongs to the client; record to a file instead");
    }
    if key.is_none() && settings.identity.anonymous.is_none() {
        return complain("set `PORTCULLIS_API_KEY`, or define `identity.anonymous`");
    }
    let begin = async |mut settings: Settings| {
        for number in 2..=PROCESSES + 1 {
            match run::start_inside(settings).await {
                // Another process has this log: the next one.
                Err(StartError::Sink { cause, .. })
                    if cause.kind() == io::ErrorKind::ResourceBusy => {}
                started => return started,
            }
            let Ok(again) = load(number) else { break };
            settings = again;
        }
        Err(StartError::Crowded(PROCESSES))
    };
    run_to_end(settings, Some(file), begin, Begins::WithSignal, async |running| {
        let served = tokio::select! {
            served = running.serve_inside(route, key) => served,
            () = told_to_stop() => Ok(()),
        };
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&Chain(&error).to_string()),
        }
    })
}

/// The configuration that is named, or the usual one in the working folder.
fn named_or_usual(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| {
        // One that is there and cannot be read is no reason to start something else.
        let is_there = fs::symlink_metadata(USUAL).is_ok();
        is_there.then(|| {
            say(&format!("portcullis: reading `{USUAL}` in this folder"));
            PathBuf::from(USUAL)
        })
    })
}

/// Complains that there is no configuration where one is needed.
fn no_configuration() -> ExitCode {
    complain(&format!("there is no `{USUAL}` in this folder: name a configuration with `-c FILE`"))
}

/// Shows what would be in force. Of the configuration that is built in there is nothing to show.
fn show(named: Option<PathBuf>) -> ExitCode {
    named_or_usual(named).map_or_else(no_configuration, |config| plan::run(&config))
}

/// Starts the gateway with the configuration that is named, with the usual one, or with the one that is built in.
fn run_usual(named: Option<PathBuf>, new_log: bool, log_format: Option<Format>) -> ExitCode {
    match named_or_usual(named) {
        Some(config) => serve(Some(&config), new_log, log_format),
        None if new_log => no_configuration(),
        None => {
            say(&format!(
                "portcullis: there is no `{USUAL}` in this folder, so this is the quickstart; `portcullis init` writes one, and \
                 `LISTEN=127.0.0.1:8081 OPS=127.0.0.1:9902 portcullis run` takes other ports"
            ));
            serve(None, new_log, log_format)
        }
    }
}

fn serve(config: Option<&Path>, new_log: bool, log_format: Option<Format>) -> ExitCode {
    let (file, text) = match config {
        None => {
            let (file, text) = run::quickstart();
            (file, text.to_owned())
        }
        Some(file) => match text_of(file) {
            Ok(text) => (file.to_owned(), text),
            Err(code) => return code,
        },
    };
    let mut settings = match load_to_serve(&file, &text) {
        Ok(settings) => logging(settings, log_format),
        Err(problems) => return invalid(&problems),
    };
    settings.audit.anew = new_log;
    if config.is_none() {
        settings.pins.verbs = Verbs::CannotRead;
    }
    let is_open = config.is_some_and(gateway::base::file::is_open_to_all);
    let source =
        config.map(|file| Arc::new(File { path: file.to_owned(), is_open }) as Arc<dyn Source>);
    run_to_end(
        settings,
        config,
        |settings| run::start(settings, source),
        Begins::WithSignal,
        async |running| {
            let told = told_to_stop();
            if let Some(config) = config {
                running.take_attachments(config);
            }
            announce(running, config.is_none());
            if is_open {
                tracing::warn!(
                    "every user of this machine can write to the configuration or to its folder, and so decide what is \
                     allowed: `chmod o-w` both"
                );
            }
            systemd::ready();
            told.await;
            systemd::stopping();
            tokio::select! {
                () = running.wane() => {}
                // Told twice, it does not wait.
                () = told_to_stop() => {}
            }
            ExitCode::SUCCESS
        },
    )
}

/// A configuration in a file.
#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Whether every user could write to it when the gateway started, as on file systems without modes.
    is_open: bool,
}

impl Source for File {
    fn text(&self) -> io::Result<String> {
        let text = gateway::base::file::text(&self.path, settings::LONGEST)?;
        // A program of the gateway's user can open it to all, and anybody may have written what it says.
        if !self.is_open && gateway::base::file::is_open_to_all(&self.path) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "every user of this machine can write to it or to its folder since the gateway has started: look at \
                 what it says, then `chmod o-w` both",
            ));
        }
        Ok(text)
    }

    fn settings(&self, text: &str) -> Result<Settings, Problems> {
        load_to_serve(&self.path, text)
    }
}

/// What to do about a start that failed, where the error does not say so itself. `config` is the file that it was
/// started with.
fn help_for(error: &StartError, config: Option<&Path>) -> Option<String> {
    if error.is_taken() && config.is_some_and(attach::is_running) {
        let what = "a gateway runs with this configuration already, and takes a change of the file by itself; to start it anew, stop that \
                    one first";
        return Some(what.to_owned());
    }
    error.help()
}

/// Starts a gateway, lets it `work`, and stops it. `config` is the file that it is started with, if there is one.
fn run_to_end(
    settings: Settings,
    config: Option<&Path>,
    start: impl AsyncFnOnce(Settings) -> Result<Running, StartError>,
    begins: Begins,
    work: impl AsyncFnOnce(&Running) -> ExitCode,
) -> ExitCode {
    log("info", settings.log);
    small_pages();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("could not start the threads: {error}")),
    };
    // It watches until this returns.
    let mut watchdog = None;
    let code = runtime.block_on(async {
        // SIGHUP before the files are watched must not end the process. What has changed by then is read at the first
        // look at them.
        let listens = outlive_full_files().and_then(|()| signal(SignalKind::hangup()).map(drop));
        if let Err(error) = listens {
            return complain(&format!("could not listen for signals: {error}"));
        }
        let running = match start(settings).await {
            Ok(running) => running,
            Err(error) => {
                let code = complain(&Chain(&error).to_string());
                if let Some(help) = help_for(&error, config) {
                    say(&format!("help: {help}"));
                }
                return if error.is_of_a_secret() { ExitCode::from(INVALID) } else { code };
            }
        };
        let code = match running.watch_over(begins) {
            Ok(watching) => {
                let watching = watchdog.insert(watching);
                let code = work(&running).await;
                watching.begin();
                code
            }
            Err(error) => complain(&Chain(&error).to_string()),
        };
        match running.stop().await {
            Stopped::Whole => code,
            Stopped::Abandoned => ExitCode::from(ABANDONED),
        }
    });
    // A thread that waits for a slow disk or pipe does not keep the process.
    runtime.shutdown_background();
    code
}

/// A file that has reached the limit of sizes (`RLIMIT_FSIZE`) refuses what is written with `EFBIG`, as a full volume
/// does with `ENOSPC`. Without a handler SIGXFSZ would end the process before the refusal is seen (`signal(7)`). A
/// program that is started does not inherit the handler.
fn outlive_full_files() -> io::Result<()> {
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

/// Memory is taken in small pages: most of what a connection needs is far below the two megabytes
/// of a huge one, and the allocator would ask for those.
fn small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages could not be switched off");
    }
}

/// The settings with the format of the log that the command line asks for, if it does.
fn logging(mut settings: Settings, format: Option<Format>) -> Settings {
    settings.log = asked_log(settings.log, format);
    settings
}

/// How the log is written where the command line asks for a format, or does not.
fn asked_log(mut log: settings::Log, format: Option<Format>) -> settings::Log {
    let asked = format.map(|format| match format {
        Format::Human => LogFormat::Human,
        Format::Json => LogFormat::Json,
    });
    log.format = asked.or(log.format);
    log
}

/// Writes what the process says to standard error from now on.
fn log(usual: &str, log: settings::Log) {
    let filter = EnvFilter::try_from_env("PORTCULLIS_LOG").unwrap_or_else(|_| usual.into());
    let writer = || hints::Completed(io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // A log that is set already, as in a test, is good enough.
    if log.is_human(io::stderr().is_terminal()) {
        let human = Human(build::colours(&io::stderr()));
        drop(builder.event_format(human).try_init());
    } else {
        drop(builder.json().with_target(false).try_init());
    }
}

/// The same in words, one line for each, whatever standard error is: for verbs that answer people there.
fn log_in_words(usual: &str) {
    let filter = EnvFilter::try_from_env("PORTCULLIS_LOG").unwrap_or_else(|_| usual.into());
    let writer = || hints::Completed(io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let builder = builder.with_ansi(coloured()).with_target(false).without_time();
    drop(builder.try_init());
}

/// SIGINT or SIGTERM, from the moment this is called and not only once it is waited for: whoever reads
/// where the gateway listens may stop it at once.
fn told_to_stop() -> impl Future<Output = ()> {
    let signals = signal(SignalKind::interrupt()).and_then(|interrupt| {
        let terminate = signal(SignalKind::terminate())?;
        Ok((interrupt, terminate))
    });
    async {
        let Ok((mut interrupt, mut terminate)) = signals else {
            return std::future::pending().await;
        };
        let signal = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        };
        tracing::info!(signal, "the gateway is told to stop");
    }
}

fn announce(running: &Running, quickstart: bool) {
    let mut text = String::new();
    for (name, address, secure) in &running.listeners {
        let scheme = if *secure { "https" } else { "http" };
        writeln!(text, "portcullis: `{name}` listens on {scheme}://{address}").unwrap_or_default();
    }
    if let Some(address) = running.ops {
        writeln!(text, "portcullis: ops on http://{address}").unwrap_or_default();
    }
    if let (true, Some((_, address, _))) = (quickstart, running.listeners.first()) {
        text.push_str(&try_it(&format!("http://{address}/mcp")));
    }
    say(text.trim_end());
}

/// What a newcomer can paste into another terminal.
fn try_it(url: &str) -> String {
    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let curl = |method: &str, name: Option<&str>, params: &str| {
        let name = name.map(|name| format!(" -H 'Mcp-Name: {name}'")).unwrap_or_default();
        let comma = if params.is_empty() { "" } else { "," };
        format!(
            "  curl -sS {url} -H 'Content-Type: application/json' \
             -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: {method}'{name} \
             -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{{{params}{comma}{META}}}}}'"
        )
    };
    let call = |name: &str, arguments: &str| {
        curl("tools/call", Some(name), &format!(r#""name":"{name}","arguments":{{{arguments}}}"#))
    };
    let list = curl("tools/list", None, "");
    let allowed = call("add", r#""a":2,"b":3"#);
    let denied = call("delete_account", r#""account":"ana""#);
    let poisoned = call("convert", r#""amount":1"#);
    format!(
        "\nThis is the quickstart: a small server behind the gateway, for you to try.\n\
         Every exchange is recorded on standard output.\n\n\
         The tools you may see; the poisoned one is not among them:\n{list}\n\n\
         A call that is allowed:\n{allowed}\n\n\
         A call that a rule denies, and says so (`disclose: true`); others get `unknown tool`:\n{denied}\n\n\
         The poisoned tool, which does not exist for you:\n{poisoned}\n\n\
         For an MCP client (mcp.json):\n  \
         {{\"mcpServers\":{{\"portcullis\":{{\"type\":\"http\",\"url\":\"{url}\"}}}}}}\n"
    )
}
