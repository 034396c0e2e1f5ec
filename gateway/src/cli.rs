//! Command line of `portcullis`: the argument types, and one module for each verb that is more than a few lines. `main`
//! calls [`run()`], which parses the arguments and returns the exit code of the process.

mod printable;
mod given;
mod export;
mod exec;
mod hints;
mod import;
mod ops;
mod approvals;
mod config;
mod manual;
mod audit;
mod sarif;
mod token;
mod ungranted;
mod rule_review;
mod why;
mod pin;
mod inspect;
mod doctor;
mod select;
mod init;
mod plan;
mod policy;
mod weights;
mod scan;
mod eval;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{env, fs};

use ::policy::definition::drift::visible;
use ::policy::definition::lock::Lockfile;
use ::policy::rules::constraint::{UnmatchedConstraint, UnmatchedName};
use ::policy::rules::decision::Mode;
use ::policy::rules::explain::{RuleIssue, RuleRemark};
use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use gateway::audit::lines::Colours;
use gateway::base::clock::{Clock as _, SystemClock};
use gateway::base::error_chain::ErrorChain;
use gateway::base::log_queue;
use gateway::base::secret::Secret;
use gateway::base::systemd;
use gateway::config::settings::lockfile::{self, LockError};
use gateway::config::settings::{
    self, ClientSettings, ConfigPlaces, ConfigProblems, ConfigRemark, ConfigSource, ConfigText,
    LoadPurpose, LogFormat, ProcessSharing, RouteError, ServerProtocol, ServerSettings,
    ServerTransport, Settings, SinkTarget,
};
use gateway::control::attach;
use gateway::control::build;
use gateway::control::demo_server::{self, DemoTools};
use gateway::control::helper;
use gateway::control::run::{self, RunningGateway, SettingsSource, StartError, StopOutcome};
use gateway::control::watchdog::{ABANDONED, StopTrigger};
use gateway::process::sandbox::{self, SandboxPlan};
use gateway::telemetry::terminal::TerminalFormat;
use gateway::upstream::server_identity;
use json::hex;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use doctor::{RecordFile, Unwritable};
use printable::printable;
use rule_review::WildcardReview;

/// Exit code: the verb failed.
const FAILED: u8 = 1;
/// Exit code: some of the definitions that an upstream server offers could not be read.
const INCOMPLETE: u8 = 8;
/// Exit code: the configuration is not valid.
const INVALID: u8 = 3;
/// Configuration file that is read from the working folder if the command line names none.
const USUAL: &str = "portcullis.yaml";
/// Most `portcullis stdio` processes of one configuration that run without a shared gateway at the same time.
const PROCESSES: u8 = 64;

/// A reverse proxy for the Model Context Protocol that lets through only what a policy permits.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version)]
struct Cli {
    #[command(subcommand)]
    verb: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Write a first configuration: a listener on loopback, an API key, and the servers that are named here or that a
    /// client has. Nothing is started, and no secret is written to the file.
    Init(init::InitArgs),
    /// Start the gateway. Without `--config` and without a `portcullis.yaml` in the working folder, the gateway listens
    /// on loopback in front of a small built-in server.
    Run {
        /// The configuration. Default: `portcullis.yaml` in the working folder, if that file exists.
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Show the settings that would be in force and the definitions that servers offer now, and exit. Exits with 4
        /// if servers offer definitions that are not approved, and with 7 if a server is not reached.
        #[arg(long)]
        dry_run: bool,
        /// Begin a new audit log although the file of checkpoints shows an earlier log, which was moved away. Applies
        /// to this start only, and is recorded.
        #[arg(long, conflicts_with = "dry_run")]
        new_log: bool,
        /// Log format; it also decides whether each request gets a log line. Default: human on a terminal, JSON
        /// otherwise.
        #[arg(long, value_enum, value_name = "FORMAT")]
        log_format: Option<OutputFormat>,
    },
    /// Run the gateway and a program beside it. The program gets the address of the gateway. Ends when the program
    /// ends, with its exit code.
    Exec(exec::ExecArgs),
    /// Serve MCP over stdio through the gateway, for a client that starts its servers as programs. If a gateway runs
    /// with the same configuration, it serves the client. Otherwise this process serves it: it starts the servers of
    /// the route, and records to an audit log of its own, `FILE.stdio-N`. It opens no listener. The client
    /// authenticates with the API key in `PORTCULLIS_API_KEY`, or calls as the anonymous caller. If it is not let in,
    /// an error is written to standard error and the exit code is 1.
    Stdio {
        /// The configuration file to read.
        #[arg(short, long, value_name = "FILE", default_value = USUAL)]
        config: PathBuf,
        /// The path of the route. Required if the configuration has more than one route.
        #[arg(short, long, value_name = "PATH")]
        route: Option<String>,
        /// Format of the log on standard error.
        #[arg(long, value_enum, value_name = "FORMAT")]
        log_format: Option<OutputFormat>,
    },
    /// Check a configuration. Exits with 3 if it is not valid.
    Validate {
        /// The configuration. Default: `portcullis.yaml`.
        #[arg(conflicts_with = "config")]
        file: Option<PathBuf>,
        /// The configuration, named as for the other verbs.
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Output format of the problems.
        #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
        format: OutputFormat,
        /// The configuration is for another machine: secrets, and the kernel features that a sandbox needs, need not
        /// exist on this one.
        #[arg(long)]
        elsewhere: bool,
    },
    /// Check a configuration by using it, within a time limit: reach each server and each issuer, start each program,
    /// read each secret, bind each port. A program is started also if its identity is not the approved one. Exits with 1
    /// if a check fails.
    Doctor(doctor::DoctorArgs),
    /// Propose the definitions that servers offer now for approval, in the lockfile; and list, approve, revoke and sign
    /// what the lockfile holds.
    Pin(pin::PinArgs),
    /// Show what detectors and a reviewer find in the definitions that servers offer, and what to do about it. Starts
    /// the programs of stdio servers, also one whose identity is not the approved one. Exits with 6 if there is a grave
    /// finding.
    Scan(scan::ScanArgs),
    /// Evaluate definitions of tools by examples of requests, without a model: whether the requests lead to the tools, the
    /// arguments fit, and the policy decides as expected; and compare them with former definitions. Exits with 5 if a
    /// threshold is not reached or the comparison shows something worse, and with 3 if the input is not valid.
    Eval(eval::EvalArgs),
    /// Show what the detectors of a configuration find in definitions, results or arguments, read from standard input
    /// as JSON Lines: one JSON object a line.
    Inspect(inspect::InspectArgs),
    /// Rank the tools of a file for a request in a person's words, or for each request of a file. Nothing is started, and
    /// no gateway is asked.
    Select(select::SelectArgs),
    /// Choose what the scores of a selection count, by an audit log that has requests for tools: which tools callers used
    /// after which requests. Prints the section that would be better, and changes nothing. Exits with 1 if there are too few
    /// requests or no gain is sure.
    Weights(weights::WeightsArgs),
    /// Show a configuration as the gateway reads it.
    Config(config::ConfigArgs),
    /// Print the settings that a client needs to connect to the gateway.
    Export(export::ExportArgs),
    /// Make a configuration from the MCP servers that a client has configured. Nothing is started, nothing is trusted,
    /// and no secret is printed or kept.
    Import(import::ImportArgs),
    /// Show what a configuration would decide, and why; test its rules, replay recorded exchanges against them, and
    /// review them.
    Policy(policy::PolicyArgs),
    /// Verify the integrity of the audit log, and show or export its records.
    Audit(audit::AuditArgs),
    /// Print the JSON Schema of the configuration, of the audit record, or of a file of policy tests.
    Schema {
        /// The schema to print.
        #[arg(value_enum, default_value_t = SchemaKind::Config)]
        of: SchemaKind,
    },
    /// Make an API key, and print it with the hash that goes into the configuration.
    Keygen,
    /// Print a completion script for a shell.
    Completions {
        /// The shell to complete for.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write a manual page for each verb.
    Man {
        /// The folder to write the pages to.
        folder: PathBuf,
    },
    /// Print a chapter of the documentation that is generated from the code.
    #[command(hide = true)]
    Reference {
        /// The chapter to print.
        #[arg(value_enum)]
        what: manual::Chapter,
    },
    /// Check an access token as the gateway would, and show the decision.
    Token(token::TokenArgs),
    /// Let a running gateway attack itself, and report which defences hold. Exits with 6 if one does not.
    Selftest(ops::SelftestArgs),
    /// Revoke callers, clients, servers, tools or tokens, regardless of the rules, or everything. Uses the running
    /// gateway if the configuration has `ops.token`, else `revocations.file`.
    Revoke(ops::RevokeArgs),
    /// Show what is revoked, and lift revocations.
    Revocations(ops::RevocationsArgs),
    /// List, show, approve and deny the calls that wait for the approval of a person.
    Approvals(approvals::ApprovalsArgs),
    /// Check whether a running gateway is ready. Exits with 0 if it is, else with 1.
    Health(ops::HealthArgs),
    /// Run a small MCP server over stdio, to try the gateway with.
    Canary,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OutputFormat {
    /// Text for people to read.
    Human,
    /// JSON for other programs.
    Json,
}

/// Document that `portcullis schema` prints the JSON Schema of.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchemaKind {
    /// The configuration of the gateway.
    Config,
    /// A record of the audit log.
    Audit,
    /// A file of cases for `portcullis policy test`.
    PolicyTests,
}

/// JSON Schema of an audit record.
const AUDIT_SCHEMA: &str = include_str!("../../config/audit.schema.json");

/// Output format of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FindingsFormat {
    /// Text for people to read.
    Human,
    /// JSON for other programs.
    Json,
    /// SARIF 2.1.0, for code review tools.
    Sarif,
}

/// Parses the command line and runs the verb. Returns the exit code of the process.
pub(crate) fn run() -> ExitCode {
    let code = run_verb();
    log_queue::flush();
    code
}

fn run_verb() -> ExitCode {
    // Before anything is read, and before a child process exists that could read the memory of this one.
    match helper::begin(env::args_os().skip(1), say) {
        Ok(Some(code)) => return code,
        Ok(None) => {}
        Err(error) => {
            return complain(&format!(
                "the memory of this process cannot be kept from others: {error}"
            ));
        }
    }
    let matches = Cli::command().get_matches();
    hints::remember(&matches);
    let arguments = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match arguments.verb {
        CliCommand::Init(init) => init::run(&init),
        CliCommand::Run { config, dry_run: true, .. } => show(config),
        CliCommand::Run { config, new_log, log_format, .. } => {
            run_usual(config, RunOptions { new_log, log_format })
        }
        CliCommand::Doctor(doctor) => doctor::run(&doctor),
        CliCommand::Exec(exec) => exec::run(exec),
        CliCommand::Config(config) => config::run(&config),
        CliCommand::Export(export) => export::run(&export),
        CliCommand::Completions { shell } => manual::completions(shell),
        CliCommand::Man { folder } => manual::man(&folder),
        CliCommand::Reference { what } => print(&manual::reference(what)),
        CliCommand::Stdio { config, route, log_format } => {
            serve_inside(&config, route.as_deref(), log_format)
        }
        CliCommand::Validate { file, config, format, elsewhere } => {
            let file = file.or(config).unwrap_or_else(|| USUAL.into());
            let target = if elsewhere { TargetMachine::Another } else { TargetMachine::This };
            validate(&file, format, target)
        }
        CliCommand::Pin(pin) => pin::run(pin),
        CliCommand::Scan(scan) => scan::run(&scan),
        CliCommand::Eval(eval) => eval::run(&eval),
        CliCommand::Inspect(inspect) => inspect::run(&inspect),
        CliCommand::Select(select) => select::run(&select),
        CliCommand::Weights(weights) => weights::run(&weights),
        CliCommand::Import(import) => import::run(&import),
        CliCommand::Policy(policy) => policy::run(policy),
        CliCommand::Audit(audit) => audit::run(audit, SystemClock.now()),
        CliCommand::Schema { of: SchemaKind::Config } => print(&pretty(&settings::schema())),
        CliCommand::Schema { of: SchemaKind::PolicyTests } => {
            print(&pretty(&settings::cases::schema()))
        }
        CliCommand::Schema { of: SchemaKind::Audit } => print(AUDIT_SCHEMA),
        CliCommand::Keygen => keygen(),
        CliCommand::Token(token) => token::run(&token),
        CliCommand::Selftest(selftest) => ops::selftest(&selftest),
        CliCommand::Revoke(change) => ops::revoke(&change),
        CliCommand::Revocations(revocations) => ops::revocations(&revocations),
        CliCommand::Approvals(approvals) => approvals::run(&approvals),
        CliCommand::Health(health) => ops::health(&health),
        CliCommand::Canary => canary(),
    }
}

/// Serves the tools of the quickstart over standard input and output.
fn canary() -> ExitCode {
    match demo_server::serve(|| SystemClock.now(), DemoTools::Quickstart) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("the canary has ended: {error}")),
    }
}

/// Writes `text` to standard output, with the characters escaped that a terminal would act on.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(printable(text).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}

/// Writes `text` for people to standard output as [`print()`] does, with suggested commands completed (see [`hints`]).
fn print_for_people(text: &str) -> ExitCode {
    print(&hints::complete(text))
}

/// Writes `text` to standard error, escaped likewise, and with suggested commands completed (see [`hints`]).
fn say(text: &str) {
    say_styled(&printable(&hints::complete(text)));
}

/// Writes `text` to standard error as it is, with its colours. The text must be printable already.
fn say_styled(text: &str) {
    // There is nowhere left to report a failure of standard error.
    log_queue::say(text);
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

/// The machine that a configuration is validated for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TargetMachine {
    /// This one: its secrets, programs and files must exist here.
    This,
    /// Another one: only what the file itself says can be validated.
    Another,
}

impl TargetMachine {
    const fn purpose(self) -> LoadPurpose {
        match self {
            Self::This => LoadPurpose::Checking,
            Self::Another => LoadPurpose::Reading,
        }
    }
}

fn validate(file: &Path, format: OutputFormat, target: TargetMachine) -> ExitCode {
    let text = match text_of(file) {
        Ok(text) => text,
        Err(code) => return code,
    };
    let is_here = target == TargetMachine::This;
    match (load_for(target.purpose(), file, &text), format) {
        (Ok(settings), OutputFormat::Human) => {
            if let Some(warning) = sandbox::privileged().filter(|_| is_here) {
                say(&format!("warning: {warning}"));
            }
            questions(&settings);
            if is_here {
                let name = file.display().to_string();
                let places = ConfigPlaces::of(ConfigText { file: &name, text: &text });
                missing_programs(&settings, &places);
                unwritable(&settings);
                match lockfile_is_good(&settings, format) {
                    Ok(lock) => missed(&settings, &lock, &places),
                    Err(code) => return code,
                }
            }
            let grave = if is_here { "error" } else { "warning" };
            if !sandboxes(&settings, grave) && is_here {
                return ExitCode::from(INVALID);
            }
            remarks(&settings);
            print("valid\n")
        }
        (Ok(settings), OutputFormat::Json) => {
            if is_here && programs(&settings).any(|(_, plan)| is_impossible(plan)) {
                say("error: a sandbox that is `required` cannot be enforced on this machine");
                return ExitCode::from(INVALID);
            }
            if is_here && let Err(code) = lockfile_is_good(&settings, format) {
                return code;
            }
            print("[]\n")
        }
        (Err(problems), OutputFormat::Human) => invalid(&problems),
        (Err(problems), OutputFormat::Json) => {
            print(&format!("{}\n", problems.json()));
            ExitCode::from(INVALID)
        }
    }
}

/// The servers that are programs, each with its sandbox.
fn programs(settings: &Settings) -> impl Iterator<Item = (&ServerSettings, Option<&SandboxPlan>)> {
    settings.servers.iter().filter_map(|server| match &server.reach {
        ServerTransport::Stdio(program) => Some((server, program.sandbox.as_ref())),
        ServerTransport::Http(_) | ServerTransport::HttpSse(_) => None,
    })
}

/// Warns about programs that do not exist or cannot be started.
fn missing_programs(settings: &Settings, places: &ConfigPlaces<'_>) {
    for (server, _) in programs(settings) {
        let ServerTransport::Stdio(program) = &server.reach else { continue };
        if let Some(Err(error)) = server_identity::started(server) {
            let place = places.of_server(server.name.as_str(), &program.command);
            say(&format!("warning: the program of the server `{}` {error}{place}", server.name));
        }
    }
}

/// Warns about audit files that the user of this process cannot write; the gateway may run as another user.
fn unwritable(settings: &Settings) {
    for RecordFile { thing, path } in doctor::written(settings) {
        if let Some(Unwritable { said, mend }) = doctor::unwritable(path) {
            say(&format!("warning: {thing}: {said}; {mend}"));
        }
    }
}

/// Reads the lockfile, and reports what is wrong with it. The result is empty if the file does not exist yet or if pins
/// are off. `Err` is the code to exit with.
fn lockfile_is_good(settings: &Settings, format: OutputFormat) -> Result<Lockfile, ExitCode> {
    if settings.pins.mode == Mode::Off {
        return Ok(Lockfile::default());
    }
    match (lockfile::read(&settings.pins.file, &settings.pins.approvers), format) {
        (Ok((lock, _)), _) => Ok(lock),
        (Err(error @ LockError::Missing(_)), OutputFormat::Human) => {
            say(&format!("note: {error}"));
            Ok(Lockfile::default())
        }
        (Err(LockError::Missing(_)), OutputFormat::Json) => Ok(Lockfile::default()),
        (Err(LockError::Shape { json, .. }), OutputFormat::Json) => {
            print(&format!("{json}\n"));
            Err(ExitCode::from(INVALID))
        }
        (Err(error), _) => {
            complain(&ErrorChain(&error).to_string());
            Err(ExitCode::from(INVALID))
        }
    }
}

/// Warns about constraints that name a tool or an argument that does not exist, and about rules that name a tool or a
/// prompt that does not.
fn missed(settings: &Settings, lock: &Lockfile, places: &ConfigPlaces<'_>) {
    let servers: Vec<_> = settings.servers.iter().map(|server| server.name.clone()).collect();
    for missed in UnmatchedConstraint::all(settings.policy.constraints(), &servers, lock) {
        let (UnmatchedName::Tool(name) | UnmatchedName::Argument(name)) = &missed.what;
        let place = places.of_constraint(missed.constraint, name);
        say(&format!("warning: {missed}; correct the name, or remove it{place}"));
    }
    for RuleRemark { rule, what } in
        &rule_review::remarks(&settings.policy, &servers, lock, WildcardReview::LeftOut)
    {
        if let RuleIssue::Idle(kind, name) = what {
            let place = places.of_rule(rule.as_str(), name);
            let (kind, name) = (kind.as_str(), visible(name));
            say(&format!(
                "warning: rule `{rule}`: its servers offer no {kind} `{name}`, by the lockfile; correct the name, or \
                 remove it{place}"
            ));
        }
    }
}

/// Whether a required sandbox cannot be enforced on this machine, so that its program would not be started.
fn is_impossible(plan: Option<&SandboxPlan>) -> bool {
    plan.is_some_and(|plan| plan.required && plan.check().is_err())
}

/// Reports sandboxes that are missing or that this machine cannot enforce. `grave` is the word used if such a sandbox
/// is required. Returns whether every program could be started.
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
            let error = ErrorChain(&error);
            if plan.required {
                possible = false;
                say(&format!("{grave}: cannot set up the sandbox of server `{name}`: {error}"));
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

/// Warns about servers that are allowed to send requests to clients but cannot, because callers share their process.
fn questions(settings: &Settings) {
    for server in &settings.servers {
        let stdio = matches!(server.reach, ServerTransport::Stdio(_));
        if !stdio || server.server_requests.is_nothing() {
            continue;
        }
        let speaks = match (server.sharing, server.protocol) {
            (ProcessSharing::PerSession, _) | (_, ServerProtocol::Modern) => continue,
            (ProcessSharing::AsNeeded, ServerProtocol::Auto) => {
                "speaks only revisions before 2026-07-28"
            }
            (
                ProcessSharing::AsNeeded | ProcessSharing::Shared,
                ServerProtocol::Auto | ServerProtocol::Legacy,
            ) => "speaks a revision before 2026-07-28",
        };
        say(&format!(
            "warning: `serverRequests` of the server `{}` has no effect if the program {speaks}: callers share it, so that \
             nobody knows which of them it asks; write `sharing: perSession`, or `protocol: modern` if it speaks 2026-07-28",
            server.name
        ));
    }
}

/// Prints the remarks about a valid configuration: how tools are named, and what is unusual.
fn remarks(settings: &Settings) {
    for remark in ConfigRemark::all(settings) {
        match remark {
            ConfigRemark::Note(what) => say(&format!("note: {what}")),
            ConfigRemark::Warning(what) => say(&format!("warning: {what}")),
        }
    }
}

fn invalid(problems: &ConfigProblems) -> ExitCode {
    let count = match problems.count() {
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    for warning in problems.warnings() {
        say(&format!("warning: {warning}"));
    }
    let shown = if coloured() { problems.styled() } else { problems.human() };
    let text = format!("{shown}{count}; nothing was started");
    if coloured() {
        say_styled(&hints::complete(&text))
    } else {
        say(&text)
    }
    ExitCode::from(INVALID)
}

/// Looks up an environment variable. `PORTCULLIS_EXE` defaults to the path of this program, so that the quickstart can
/// start its own server.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().or_else(|| {
        let exe = (name == "PORTCULLIS_EXE").then(env::current_exe)?.ok()?;
        exe.into_os_string().into_string().ok()
    })
}

fn load(file: &Path, text: &str) -> Result<Settings, ConfigProblems> {
    load_for(LoadPurpose::Reading, file, text)
}

fn load_for(purpose: LoadPurpose, file: &Path, text: &str) -> Result<Settings, ConfigProblems> {
    load_text_for(purpose, ConfigText { file: &file.display().to_string(), text })
}

fn load_text_for(purpose: LoadPurpose, source: ConfigText<'_>) -> Result<Settings, ConfigProblems> {
    settings::load_for(purpose, source.file, source.text, &variable)
}

/// Loads a configuration to serve clients with, as opposed to only reading it.
fn load_to_serve(file: &Path, text: &str) -> Result<Settings, ConfigProblems> {
    load_for(LoadPurpose::Serving, file, text)
}

/// Reads the text of a configuration. `Err` is the code to exit with if the file cannot be read.
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

/// Loads a configuration. `Err` is the code to exit with if it is not valid.
fn settings(file: &Path) -> Result<Settings, ExitCode> {
    load(file, &text_of(file)?).map_err(|problems| invalid(&problems))
}

/// Loads what clients are told of a configuration. `Err` is the code to exit with if it is not valid.
fn client_settings(file: &Path) -> Result<ClientSettings, ExitCode> {
    let (name, text) = (file.display().to_string(), text_of(file)?);
    settings::load_for_clients(&name, &text, &variable).map_err(|problems| invalid(&problems))
}

/// Loads a configuration to serve clients with. `Err` is the code to exit with if it is not valid.
fn settings_to_serve(file: &Path) -> Result<Settings, ExitCode> {
    load_to_serve(file, &text_of(file)?).map_err(|problems| invalid(&problems))
}

/// A new random API key, and the SHA-256 hash that the configuration holds.
struct NewApiKey {
    key: String,
    sha256: String,
}

impl NewApiKey {
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
    match NewApiKey::new() {
        Ok(NewApiKey { key, sha256 }) => print(&format!("key:    {key}\nsha256: {sha256}\n")),
        Err(code) => code,
    }
}

fn serve_inside(file: &Path, route: Option<&str>, log_format: Option<OutputFormat>) -> ExitCode {
    // A client's file may hold an empty variable as a placeholder.
    let key = env::var("PORTCULLIS_API_KEY").ok().filter(|key| !key.is_empty());
    let key = key.map(|key| Secret::new(key.into()));
    match serve_attached(file, route, key.as_ref(), log_format) {
        Some(code) => code,
        None => serve_alone(file, route, key.as_ref(), log_format),
    }
}

/// Serves the client through the running gateway of this configuration; `None` if no gateway runs.
fn serve_attached(
    file: &Path,
    route: Option<&str>,
    key: Option<&Secret>,
    log_format: Option<OutputFormat>,
) -> Option<ExitCode> {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(complain(&format!("could not start the threads: {error}"))),
    };
    let served = runtime.block_on(async {
        let connection = attach::attach(file, route, key).await.transpose()?;
        let served = match connection {
            Ok(connection) => {
                let usual =
                    settings::LogSettings { format: None, terminal: settings::TerminalUse::Shared };
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
    // The thread that reads standard input would block until the client closes it.
    runtime.shutdown_background();
    Some(match served? {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&ErrorChain(&error).to_string()),
    })
}

/// Serves the client from this process, with an audit log of its own and only the servers of the route.
fn serve_alone(
    file: &Path,
    route: Option<&str>,
    key: Option<&Secret>,
    log_format: Option<OutputFormat>,
) -> ExitCode {
    let text = match text_of(file) {
        Ok(text) => text,
        Err(code) => return code,
    };
    let name = file.display().to_string();
    let load = |number| settings::load_for_route(number, route, &name, &text, &variable);
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
            match Box::pin(run::start_inside(settings)).await {
                // Another process holds this log: try the next number.
                Err(StartError::Sink { cause, .. })
                    if cause.kind() == io::ErrorKind::ResourceBusy => {}
                started => return started,
            }
            let Ok(again) = load(number) else { break };
            settings = again;
        }
        Err(StartError::Crowded(PROCESSES))
    };
    run_to_end(settings, Some(file), begin, StopTrigger::WithSignal, async |running| {
        let served = tokio::select! {
            served = running.serve_inside(route, key) => served,
            () = told_to_stop() => Ok(()),
        };
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&ErrorChain(&error).to_string()),
        }
    })
}

/// The configuration that the command line names, or else `portcullis.yaml` in the working folder, if it exists.
fn named_or_usual(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| {
        // An unreadable file is an error, not a reason to fall back to the quickstart.
        let is_there = fs::symlink_metadata(USUAL).is_ok();
        is_there.then(|| {
            say(&format!("portcullis: reading `{USUAL}` in this folder"));
            PathBuf::from(USUAL)
        })
    })
}

/// A configuration of a verb that can do without: `None` if it is `portcullis.yaml` in the working folder and there is none.
fn named_or_absent(config: &Path) -> Option<&Path> {
    let is_there = config != Path::new(USUAL) || fs::symlink_metadata(config).is_ok();
    is_there.then_some(config)
}

/// Reports that a configuration is needed and none was found.
fn no_configuration() -> ExitCode {
    complain(&format!("there is no `{USUAL}` in this folder: name a configuration with `-c FILE`"))
}

/// Runs `--dry-run`. It needs a configuration; the built-in one is not shown.
fn show(named: Option<PathBuf>) -> ExitCode {
    named_or_usual(named).map_or_else(no_configuration, |config| plan::run(&config))
}

/// The options of `portcullis run` besides the configuration.
#[derive(Clone, Copy)]
struct RunOptions {
    /// Begin a new audit log.
    new_log: bool,
    /// The format of the log events, instead of the configured one.
    log_format: Option<OutputFormat>,
}

/// Starts the gateway with the named configuration, with `portcullis.yaml`, or with the built-in one.
fn run_usual(named: Option<PathBuf>, options: RunOptions) -> ExitCode {
    match named_or_usual(named) {
        Some(config) => serve(Some(&config), options),
        None if options.new_log => no_configuration(),
        None => {
            say(&format!(
                "portcullis: there is no `{USUAL}` in this folder, so this is the quickstart; `portcullis init` writes one, and \
                 `LISTEN=127.0.0.1:8081 OPS=127.0.0.1:9902 portcullis run` takes other ports"
            ));
            serve(None, options)
        }
    }
}

fn serve(config: Option<&Path>, options: RunOptions) -> ExitCode {
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
        Ok(settings) => logging(settings, options.log_format),
        Err(problems) => return invalid(&problems),
    };
    settings.audit.anew = options.new_log;
    if config.is_none() {
        settings.pins.verbs = ConfigSource::CannotRead;
    }
    let is_open = config.is_some_and(gateway::base::file::is_open_to_all);
    let source = config.map(|file| {
        Arc::new(ConfigFile { path: file.to_owned(), is_open }) as Arc<dyn SettingsSource>
    });
    run_to_end(
        settings,
        config,
        |settings| run::start(settings, source),
        StopTrigger::WithSignal,
        async |running| {
            let told = told_to_stop();
            if let Some(config) = config {
                running.take_attachments(config);
            }
            announce(running, config);
            if is_open {
                tracing::warn!(
                    event = "config.writable_by_others",
                    "every user of this machine can change the configuration or its folder, and so the policy: \
                     run `chmod o-w` on both"
                );
            }
            systemd::ready();
            told.await;
            systemd::stopping();
            tokio::select! {
                () = running.wane() => {}
                // A second signal cuts the drain short.
                () = told_to_stop() => {}
            }
            ExitCode::SUCCESS
        },
    )
}

/// A configuration file that the running gateway reloads from.
#[derive(Debug)]
struct ConfigFile {
    path: PathBuf,
    /// Whether every user could write to the file at the start, as on file systems without modes.
    is_open: bool,
}

impl SettingsSource for ConfigFile {
    fn text(&self) -> io::Result<String> {
        let text = gateway::base::file::text(&self.path, settings::MAX_CONFIG)?;
        // A program with the gateway's user id can make the file writable for all users, and so let anybody change it.
        if !self.is_open && gateway::base::file::is_open_to_all(&self.path) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "every user of this machine can write to it or to its folder since the gateway has started: look at \
                 what it says, then `chmod o-w` both",
            ));
        }
        Ok(text)
    }

    fn settings(&self, text: &str) -> Result<Settings, ConfigProblems> {
        load_to_serve(&self.path, text)
    }
}

/// Advice for a start that failed, if the error or the running gateway suggests one. `config` is the configuration file
/// of this start.
fn help_for(error: &StartError, config: Option<&Path>) -> Option<String> {
    if error.is_taken() && config.is_some_and(attach::is_running) {
        let what = "a gateway runs with this configuration already, and takes a change of the file by itself; to start it anew, stop that \
                    one first";
        return Some(what.to_owned());
    }
    error.help()
}

/// Starts a gateway, runs `work`, and stops it. `config` is the configuration file of this start, if there is one.
fn run_to_end(
    settings: Settings,
    config: Option<&Path>,
    start: impl AsyncFnOnce(Settings) -> Result<RunningGateway, StartError>,
    begins: StopTrigger,
    work: impl AsyncFnOnce(&RunningGateway) -> ExitCode,
) -> ExitCode {
    log("info", settings.log);
    small_pages();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("could not start the threads: {error}")),
    };
    // The watchdog must outlive the runtime.
    let mut watchdog = None;
    let code = runtime.block_on(async {
        // A SIGHUP before the files are watched must not end the process. The first look at the files picks up its
        // change.
        let listens = outlive_full_files().and_then(|()| signal(SignalKind::hangup()).map(drop));
        if let Err(error) = listens {
            return complain(&format!("could not listen for signals: {error}"));
        }
        let running = match start(settings).await {
            Ok(running) => running,
            Err(error) => {
                let code = complain(&ErrorChain(&error).to_string());
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
            Err(error) => complain(&ErrorChain(&error).to_string()),
        };
        match running.stop().await {
            StopOutcome::Whole => code,
            StopOutcome::Abandoned => ExitCode::from(ABANDONED),
        }
    });
    // A thread that is blocked on a slow disk or pipe must not delay the exit.
    runtime.shutdown_background();
    code
}

/// Installs a handler for SIGXFSZ. A write beyond the file size limit (`RLIMIT_FSIZE`) then fails with `EFBIG`, as a
/// write to a full volume fails with `ENOSPC`. Without the handler the signal would end the process first
/// (`signal(7)`). Started programs do not inherit the handler.
fn outlive_full_files() -> io::Result<()> {
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

/// Disables transparent huge pages: a connection needs far less than the two megabytes of such a page, and the
/// allocator would ask for them.
fn small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "transparent huge pages could not be disabled");
    }
}

/// Overrides the log format of the settings with that of the command line, if one is given.
fn logging(mut settings: Settings, format: Option<OutputFormat>) -> Settings {
    settings.log = asked_log(settings.log, format);
    settings
}

/// Overrides the format of `log` with that of the command line, if one is given.
fn asked_log(
    mut log: settings::LogSettings,
    format: Option<OutputFormat>,
) -> settings::LogSettings {
    let asked = format.map(|format| match format {
        OutputFormat::Human => LogFormat::Human,
        OutputFormat::Json => LogFormat::Json,
    });
    log.format = asked.or(log.format);
    log
}

/// Sends log events to standard error from now on. `usual` is the filter if `PORTCULLIS_LOG` is not set.
fn log(usual: &str, log: settings::LogSettings) {
    // `h2` warns of each frame that it does not expect, and a client may send many: only our own events about a peer are
    // bounded in number.
    let usual = format!("{usual},h2=error");
    let filter = EnvFilter::try_from_env("PORTCULLIS_LOG").unwrap_or_else(|_| usual.into());
    let writer = || hints::HintWriter(log_queue::writer());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // A subscriber that is set already, as in a test, is kept.
    if log.is_human(&io::stderr()) {
        let human = TerminalFormat(build::colours(&io::stderr()));
        drop(builder.event_format(human).try_init());
    } else {
        drop(builder.json().with_target(false).try_init());
    }
}

/// Sends log events to standard error as plain text, one line each, for verbs whose standard error is read by people.
fn log_in_words(usual: &str) {
    let filter = EnvFilter::try_from_env("PORTCULLIS_LOG").unwrap_or_else(|_| usual.into());
    let writer = || hints::HintWriter(io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let builder = builder.with_ansi(coloured()).with_target(false).without_time();
    drop(builder.try_init());
}

/// Waits for SIGINT or SIGTERM. The handlers are installed when this is called and not when the future is first polled,
/// because a caller that reads the listening address may stop the process at once.
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
        tracing::info!(event = "gateway.stopping", signal, "shutdown signal received");
    }
}

/// Prints the addresses, and for the quickstart, which has no configuration file, what to try.
fn announce(running: &RunningGateway, config: Option<&Path>) {
    let mut text = String::new();
    for (name, address, secure) in &running.listeners {
        let scheme = if *secure { "https" } else { "http" };
        writeln!(text, "portcullis: `{name}` listens on {scheme}://{address}").unwrap_or_default();
    }
    if let Some(address) = running.ops {
        writeln!(text, "portcullis: ops on http://{address}").unwrap_or_default();
    }
    if config.is_none()
        && let Some((_, address, _)) = running.listeners.first()
    {
        text.push_str(&try_it(&format!("http://{address}/mcp")));
    }
    say(text.trim_end());
}

/// Commands that a new user can paste into another terminal.
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

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::Cli;

    /// Adds each verb below `verb` that has a `--format`, with the values that its help names.
    fn formats(verb: &Command, name: &str, found: &mut Vec<(String, Vec<String>)>) {
        let of_format = verb.get_arguments().filter(|one| one.get_long() == Some("format"));
        for argument in of_format {
            let values = argument.get_possible_values();
            let values = values.iter().map(|value| value.get_name().to_owned()).collect();
            found.push((name.to_owned(), values));
        }
        for inner in verb.get_subcommands() {
            formats(inner, &format!("{name} {}", inner.get_name()), found);
        }
    }

    #[test]
    fn every_verb_with_a_format_writes_for_people_and_for_programs_under_the_same_names() {
        let mut found = Vec::new();
        formats(&Cli::command(), "portcullis", &mut found);
        assert!(found.len() > 12, "{found:?}");
        for (verb, values) in found {
            assert_eq!(
                values.get(..2),
                Some(&["human".to_owned(), "json".to_owned()][..]),
                "{verb}"
            );
        }
    }
}
