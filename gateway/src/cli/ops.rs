//! Verbs that ask a running gateway over its operator listener: health, self-test, applied configuration, revocations.
//! Without such a listener, revocations are changed in their file. Revoking works without a valid configuration,
//! because in an emergency the file may be half edited.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use gateway::base::clock::SystemClock;
use gateway::base::error_chain::ErrorChain;
use gateway::base::secret::Secret;
use gateway::config::settings::operator::OperatorAccess;
use gateway::config::settings::{self, SecretRef, Settings};
use gateway::control::revocation::{self, RevocationAction};
use gateway::control::selftest::words;
use gateway::outbound::secrets;
use gateway::serve::generation::ConfiguredNames;
use policy_core::subject::revoked::RevocationList;
use serde_json::{Map, Value};

use super::printable::in_a_line;
use super::{
    FAILED, OutputFormat, complain, invalid, load, print, print_for_people, say, variable,
};

/// Exit code: the self-test found a defence that does not hold, or the configurations differ.
const EXIT_FOUND: u8 = 6;
/// Most bytes of a response that are read.
const MAX_RESPONSE: u64 = 16 * 1024 * 1024;
/// Environment variable with the operator's token.
const TOKEN: &str = "PORTCULLIS_OPS_TOKEN";
/// Time limit for a change of the revocations, and for what concerns approvals.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// Time limit for the self-test.
const PATIENCE: Duration = Duration::from_secs(150);

/// Error if the configuration has no operator listener.
const NO_OPS: &str = "the configuration has no `ops`: add `ops: {address: 127.0.0.1:9901, token: {fromEnv: OPS_TOKEN}}`, set \
                      `OPS_TOKEN` to what `openssl rand -hex 32` prints, and start the gateway again";
/// Error if the operator listener has no token, and so answers only health checks.
const NO_TOKEN: &str = "the configuration has no `ops.token`, which an operator has to show: add `token: {fromEnv: OPS_TOKEN}` \
                        under `ops`, set `OPS_TOKEN` to what `openssl rand -hex 32` prints, here and for the gateway, and start \
                        it again";

#[derive(Debug, Args)]
pub(super) struct SelftestArgs {
    /// The configuration of the running gateway, for its `ops.address` and `ops.token`.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    #[command(flatten)]
    operator: OperatorArgs,
    /// Output format of the report.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
}

#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    /// The URL to ask: that of `/readyz`, or of `/livez`.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9901/readyz")]
    url: String,
    /// Time limit for the answer.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Compare a configuration with the one that the running gateway uses.
#[derive(Debug, Args)]
pub(super) struct AppliedArgs {
    /// The configuration to compare, also read for its `ops.address` and `ops.token`.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// The address and the token of the operator listener, where they are not those of the configuration.
#[derive(Debug, Args)]
pub(super) struct OperatorArgs {
    /// The address of the operator listener, if not `ops.address`: `HOST:PORT`.
    #[arg(long, value_name = "ADDRESS")]
    ops: Option<String>,
    /// A file with the operator's token, instead of `ops.token`. The variable `PORTCULLIS_OPS_TOKEN` can hold the token
    /// as well. With a token and `--ops`, the configuration need not have `ops`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// How the command reaches the running gateway.
#[derive(Debug, Args)]
struct GatewayArgs {
    /// The configuration of the running gateway, for its `ops.address`, `ops.token` and `revocations.file`. With a token
    /// and `--ops` it is not read.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    #[command(flatten)]
    operator: OperatorArgs,
    /// Use `revocations.file` and contact no gateway. A running gateway reads the file when it changes.
    #[arg(long)]
    offline: bool,
    /// Output format of the answer.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
}

#[derive(Debug, Args)]
pub(super) struct RevokeArgs {
    #[command(flatten)]
    reached: GatewayArgs,
    /// A principal, as the audit records name it. Each of these options can be given more than once.
    #[arg(long, value_name = "ID")]
    principal: Vec<Box<str>>,
    /// A client, by the id that its issuer gave it.
    #[arg(long, value_name = "ID")]
    client: Vec<Box<str>>,
    /// A server, by its name in the configuration.
    #[arg(long, value_name = "NAME")]
    server: Vec<Box<str>>,
    /// A tool, a prompt or a resource.
    #[arg(long, value_name = "SERVER/NAME")]
    tool: Vec<Box<str>>,
    /// An access token, by its `jti`.
    #[arg(long, value_name = "JTI")]
    token: Vec<Box<str>>,
    /// Everything: while it is revoked, no caller is served and no server is used.
    #[arg(long)]
    everything: bool,
    /// The reason, which is recorded in the audit log, and listed as long as the revocation is in force.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RevocationsArgs {
    #[command(subcommand)]
    verb: RevocationsCommand,
}

#[derive(Debug, Subcommand)]
enum RevocationsCommand {
    /// Show what is revoked, and whether all of it survives a restart.
    List(RevocationsListArgs),
    /// Lift revocations that were made before.
    Lift(RevokeArgs),
}

#[derive(Debug, Args)]
struct RevocationsListArgs {
    #[command(flatten)]
    reached: GatewayArgs,
}

impl RevokeArgs {
    fn lists(&self) -> RevocationList {
        let set = |names: &[Box<str>]| names.iter().cloned().collect();
        let lists = RevocationList {
            everything: self.everything,
            principals: set(&self.principal),
            clients: set(&self.client),
            servers: set(&self.server),
            tools: set(&self.tool),
            tokens: set(&self.token),
            ..RevocationList::default()
        };
        match &self.reason {
            Some(reason) => lists.because(&reason.as_str().into()),
            None => lists,
        }
    }
}

/// Where revocations are read and changed.
enum RevocationStore {
    /// At the running gateway: its address, the token, and the file to suggest if the gateway does not answer.
    Gateway(String, Secret, Option<PathBuf>),
    /// In the file, with the names that the configuration knows, if it is valid.
    File(PathBuf, Option<ConfiguredNames>),
}

impl GatewayArgs {
    fn place(&self) -> Result<RevocationStore, ExitCode> {
        let given =
            if self.offline { None } else { given_token(self.operator.token_file.as_deref())? };
        let (address, token) = match (self.operator.ops.clone(), given) {
            (Some(address), Some(token)) => {
                return Ok(RevocationStore::Gateway(address, token, None));
            }
            given => given,
        };
        let (known, names) = self.configured()?;
        let configured = || known.token.as_ref().map(secret).transpose();
        let token = match token {
            Some(token) => Some(token),
            None if self.offline => None,
            None => configured().map_err(|why| complain(&why))?,
        };
        let address = address.or(known.address);
        if let Some((address, token)) = address.zip(token) {
            return Ok(RevocationStore::Gateway(address, token, known.revocations));
        }
        let file = known.revocations.map(|file| RevocationStore::File(file, names));
        file.ok_or_else(|| {
            let missing = if self.offline { "no" } else { "neither `ops.token` nor" };
            complain(&format!(
                "the configuration has {missing} `revocations.file`, so nothing can be revoked with it: add \
                 `revocations: {{file: revoked.yaml}}`, write `{{}}` into that file, and start the gateway again. \
                 Without a restart, `portcullis pin revoke SERVER/TOOL` withholds a tool from every caller as soon as the \
                 gateway has read its lockfile again"
            ))
        })
    }

    /// Reads the operator's settings from the configuration, and the names that it knows. An invalid configuration
    /// still yields the settings, but no names.
    fn configured(&self) -> Result<(OperatorAccess, Option<ConfiguredNames>), ExitCode> {
        let file = &self.config;
        let text = fs::read_to_string(file).map_err(|error| {
            let help = format!(
                "with `--ops ADDRESS` and `--token-file FILE` (or `{TOKEN}`) none is needed"
            );
            complain(&format!("could not read `{}`: {error}; {help}", file.display()))
        })?;
        let problems = match load(file, &text) {
            Ok(settings) => {
                return Ok((OperatorAccess::of(&settings), Some(ConfiguredNames::of(&settings))));
            }
            Err(problems) => problems,
        };
        let Some(known) = OperatorAccess::read(file, &text, &variable) else {
            let code = invalid(&problems);
            say(&format!(
                "with `--ops ADDRESS` and `--token-file FILE` (or `{TOKEN}`) no configuration is needed"
            ));
            return Err(code);
        };
        say(&format!(
            "warning: the configuration is not valid, and only its `ops` and `revocations` are used: {}",
            problems.first()
        ));
        Ok((known, None))
    }
}

impl OperatorArgs {
    /// The address to ask and the token to show: what the command line and the variable say comes before the
    /// configuration. `Err` is the code to exit with.
    pub(super) fn reach(&self, settings: &Settings) -> Result<(String, Secret), ExitCode> {
        let ops = settings.ops.as_ref();
        let address = self.ops.clone().or_else(|| Some(ops?.address.to_string()));
        let address = address.ok_or_else(|| complain(NO_OPS))?;
        let token = match given_token(self.token_file.as_deref())? {
            Some(token) => token,
            None => {
                let configured = ops.ok_or_else(|| complain(NO_OPS))?.token.as_ref();
                let configured = configured.ok_or_else(|| complain(NO_TOKEN))?;
                secret(configured).map_err(|why| complain(&why))?
            }
        };
        Ok((address, token))
    }
}

/// The token from `--token-file` or from the variable, if one is given. `Err` is the code to exit with.
fn given_token(file: Option<&Path>) -> Result<Option<Secret>, ExitCode> {
    let file = file.map(|file| SecretRef::File(file.to_owned()));
    let variable = || std::env::var_os(TOKEN).map(|_| SecretRef::Env(TOKEN.to_owned()));
    let token = file.or_else(variable).map(|token| secret(&token)).transpose();
    token.map_err(|why| complain(&why))
}

/// Runs the verb `portcullis revoke`.
pub(super) fn revoke(change: &RevokeArgs) -> ExitCode {
    changed(change, RevocationAction::Revoke).unwrap_or_else(|why| why)
}

/// Runs `portcullis revocations`: lists or lifts revocations.
pub(super) fn revocations(revocations: &RevocationsArgs) -> ExitCode {
    let done = match &revocations.verb {
        RevocationsCommand::List(list) => listed(&list.reached),
        RevocationsCommand::Lift(change) => changed(change, RevocationAction::Lift),
    };
    done.unwrap_or_else(|why| why)
}

fn listed(reached: &GatewayArgs) -> Result<ExitCode, ExitCode> {
    match reached.place()? {
        RevocationStore::Gateway(address, token, file) => {
            let question = AdminRequest {
                method: "GET",
                token: Some(&token),
                ..AdminRequest::of("/revocations")
            };
            Ok(shown(reached, &asked(&address, &question, file.as_deref())?))
        }
        RevocationStore::File(file, _) => {
            let all = settings::revoked::read(&file).map_err(|error| failed(&error))?;
            Ok(shown(reached, &in_file(&all)))
        }
    }
}

fn changed(change: &RevokeArgs, act: RevocationAction) -> Result<ExitCode, ExitCode> {
    let lists = change.lists();
    if lists.is_empty() {
        let what =
            "name it: `--principal`, `--client`, `--server`, `--tool`, `--token` or `--everything`";
        return Err(complain(what));
    }
    settings::revoked::check(&lists).map_err(|why| complain(&why))?;
    if let Some(reason) = &change.reason {
        settings::revoked::check_reason(reason).map_err(|why| complain(&why))?;
    }
    let answer = match change.reached.place()? {
        RevocationStore::Gateway(address, token, file) => {
            let method = if act == RevocationAction::Revoke { "POST" } else { "DELETE" };
            let body = members(&lists).to_string();
            let question = AdminRequest {
                method,
                token: Some(&token),
                body: &body,
                ..AdminRequest::of("/revocations")
            };
            asked(&address, &question, file.as_deref())?
        }
        RevocationStore::File(file, names) => {
            let all = edited(&file, &lists, act, names.as_ref());
            in_file(&all.map_err(|why| complain(&why))?)
        }
    };
    if matches!(change.reached.format, OutputFormat::Human) {
        let what = revocation::listed(&lists);
        say(&match (act, is_any(&answer)) {
            (RevocationAction::Revoke, _) => format!("revoked: {what}; all that is revoked now:"),
            (RevocationAction::Lift, true) => format!("lifted: {what}; still revoked:"),
            (RevocationAction::Lift, false) => format!("lifted: {what}"),
        });
    }
    Ok(shown(&change.reached, &answer))
}

/// Whether the answer of a gateway names anything that is revoked.
fn is_any(answer: &Value) -> bool {
    let lists = RevocationList::default().lists().map(|(name, _)| name);
    let filled = |name: &str| {
        answer.get(name).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    };
    answer.get("everything").and_then(Value::as_bool) == Some(true) || lists.into_iter().any(filled)
}

/// Adds `lists` to the revocations file, or removes them. Returns the new content.
fn edited(
    file: &Path,
    lists: &RevocationList,
    act: RevocationAction,
    names: Option<&ConfiguredNames>,
) -> Result<RevocationList, String> {
    // Without a valid configuration a misspelt name cannot be detected, and that must not prevent a revocation.
    if let Some(names) = names.filter(|_| act == RevocationAction::Revoke) {
        revocation::unknown(names, lists).map_err(|error| ErrorChain(&error).to_string())?;
    }
    if act == RevocationAction::Lift {
        let mut missing = lists.clone();
        let all = settings::revoked::read(file).map_err(|error| ErrorChain(&error).to_string())?;
        missing.remove(&all);
        if !missing.is_empty() {
            return Err(format!("not revoked: {}", revocation::listed(&missing)));
        }
    }
    let changed = revocation::edit(file, |all| match act {
        RevocationAction::Revoke => all.add(lists),
        RevocationAction::Lift => all.remove(lists),
    });
    changed.map_err(|error| ErrorChain(&error).to_string())
}

/// Sends a request about revocations to the gateway, and parses the answer. `file` is suggested if the gateway does not
/// answer.
fn asked(
    address: &str,
    question: &AdminRequest<'_>,
    file: Option<&Path>,
) -> Result<Value, ExitCode> {
    let body = match ask(address, question, ANSWER) {
        Ok((200, body)) => body,
        Ok((status, body)) => return Err(complain(&format!("{status}: {}", body.trim()))),
        Err(error) => {
            let other = match file {
                Some(file) => format!("; `--offline` uses `{}` alone", file.display()),
                None => String::new(),
            };
            return Err(complain(&format!("`{address}` does not answer: {error}{other}")));
        }
    };
    body.parse().map_err(|_error| complain("the answer is no list of revocations"))
}

/// The lists that have entries, as JSON.
fn members(all: &RevocationList) -> Value {
    let filled = all.lists().into_iter().filter(|(_, list)| !list.is_empty());
    let mut members: Map<_, _> =
        filled.map(|(name, list)| (name.to_owned(), array(list))).collect();
    if all.everything {
        members.insert("everything".to_owned(), true.into());
    }
    // All of them have the reason of the command line.
    if let Some(reason) = all.reasons.values().next() {
        members.insert("reason".to_owned(), (**reason).into());
    }
    members.into()
}

/// The answer that a gateway with exactly these revocations would give.
fn in_file(all: &RevocationList) -> Value {
    let lists = all.lists().map(|(name, list)| (name.to_owned(), array(list)));
    let mut members: Map<_, _> = lists.into_iter().collect();
    members.insert("everything".to_owned(), all.everything.into());
    if !all.reasons.is_empty() {
        let reasons = all.reasons.iter().map(|(entry, why)| (entry.to_string(), (**why).into()));
        members.insert("reasons".to_owned(), reasons.collect::<Map<_, _>>().into());
    }
    members.insert("lastsOverRestart".to_owned(), true.into());
    members.into()
}

fn array(list: &BTreeSet<Box<str>>) -> Value {
    list.iter().map(|entry| &**entry).collect()
}

/// Prints the revocations in force, and whether they survive a restart.
fn shown(reached: &GatewayArgs, answer: &Value) -> ExitCode {
    if matches!(reached.format, OutputFormat::Json) {
        return print(&format!("{answer}\n"));
    }
    let is = |name: &str| answer.get(name).and_then(Value::as_bool);
    let mut out = String::new();
    let why = |entry: &str| {
        let why = answer.get("reasons").and_then(|reasons| reasons.get(entry)?.as_str());
        why.map(|why| format!("  ({})", in_a_line(why))).unwrap_or_default()
    };
    if is("everything") == Some(true) {
        writeln!(out, "everything{}", why("everything")).unwrap_or_default();
    }
    for (name, _) in RevocationList::default().lists() {
        for entry in answer.get(name).and_then(Value::as_array).into_iter().flatten() {
            let entry = entry.as_str().unwrap_or_default();
            let (shown, why) = (entry.escape_debug(), why(&format!("{name}/{entry}")));
            writeln!(out, "{name:<12}{shown}{why}").unwrap_or_default();
        }
    }
    for lock in answer.get("locks").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| in_a_line(lock.get(key).and_then(Value::as_str).unwrap_or_default());
        let (who, until, why) = (text("principal"), text("until"), text("reason"));
        writeln!(out, "{:<12}{who}  until {until}  ({why})", "locked").unwrap_or_default();
    }
    if out.is_empty() {
        out.push_str("nothing is revoked\n");
    }
    let unlisted = answer.get("unlisted").and_then(Value::as_array).into_iter().flatten();
    for tool in unlisted.filter_map(Value::as_str) {
        let tool = tool.escape_debug();
        say(&format!("warning: its server lists no `{tool}` now; it is revoked in case it does"));
    }
    if is("lastsOverRestart") == Some(false) {
        say(match is("hasFile") {
            Some(false) => {
                "this holds until the gateway stops: no `revocations.file` is configured"
            }
            _ => {
                "this holds until the gateway stops: it could not be written into `revocations.file`, and the log of \
                 the gateway says why"
            }
        });
    }
    print(&out)
}

fn failed(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    complain(&ErrorChain(error).to_string())
}

pub(super) fn health(health: &HealthArgs) -> ExitCode {
    let parts = health.url.strip_prefix("http://").map(|rest| rest.split_once('/'));
    let (address, path) = match parts {
        Some(Some((address, path))) => (address, format!("/{path}")),
        Some(None) => {
            let url = health.url.escape_debug();
            return complain(&format!(
                "`--url` has no path: write `{url}/readyz`, or `{url}/livez` to ask only whether the process answers"
            ));
        }
        None => {
            return complain(
                "`--url` is not `http://HOST:PORT/PATH`, such as `http://127.0.0.1:9901/readyz`",
            );
        }
    };
    match ask(address, &AdminRequest::of(&path), health.timeout) {
        Ok((200, _)) => print("ready\n"),
        Ok((status, body)) => {
            say(&format!("{status}: {}", body.trim()));
            ExitCode::from(FAILED)
        }
        Err(error) => complain(&format!("`{address}` does not answer: {error}")),
    }
}

/// Compares the hash of the configuration file with the hash of the configuration in force, as records have it in
/// `policy`.
pub(super) fn applied(applied: &AppliedArgs) -> ExitCode {
    let settings = match super::settings(&applied.config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let (address, token) = match applied.operator.reach(&settings) {
        Ok(reached) => reached,
        Err(code) => return code,
    };
    let question = AdminRequest { token: Some(&token), ..AdminRequest::of("/config") };
    let answer = match ask(&address, &question, ANSWER) {
        Ok((200, body)) => body,
        Ok((status, body)) => return complain(&format!("{status}: {}", body.trim())),
        Err(error) => return complain(&format!("`{address}` does not answer: {error}")),
    };
    let Ok(status) = answer.parse::<Value>() else {
        return complain("the answer is no status of a configuration");
    };
    let text = |at: &str| status.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (in_force, file) = (text("/appliedHash"), format!("sha256:{}", settings.digest));
    print(&format!(
        "in force   {in_force} since {}\nthis file  {file}\n",
        text("/appliedAt").escape_debug()
    ));
    let error = text("/lastError/what");
    if !error.is_empty() {
        say(&format!(
            "the gateway could not take the last change of its file: {}",
            error.escape_debug()
        ));
    }
    if in_force == file {
        say("this file is in force");
        return ExitCode::SUCCESS;
    }
    say("this file is not in force, or its variables are set otherwise here");
    ExitCode::from(EXIT_FOUND)
}

/// Whether the gateway at `ops.address` runs with these settings; `None` if it cannot be asked.
pub(super) fn is_in_force(settings: &Settings) -> Option<bool> {
    let ops = settings.ops.as_ref()?;
    let token = secret(ops.token.as_ref()?).ok()?;
    let question = AdminRequest { token: Some(&token), ..AdminRequest::of("/config") };
    let (status, body) = ask(&ops.address.to_string(), &question, ANSWER).ok()?;
    match status {
        200 => {
            let status = body.parse::<Value>().ok()?;
            let in_force = status.get("appliedHash").and_then(Value::as_str);
            Some(in_force == Some(&*format!("sha256:{}", settings.digest)))
        }
        // It has another token or none, or reads its configuration from no file.
        401 | 403 | 404 => Some(false),
        _ => None,
    }
}

pub(super) fn selftest(selftest: &SelftestArgs) -> ExitCode {
    let settings = match super::settings(&selftest.config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let (address, token) = match selftest.operator.reach(&settings) {
        Ok(reached) => reached,
        Err(code) => return code,
    };
    let question =
        AdminRequest { method: "POST", token: Some(&token), ..AdminRequest::of("/selftest") };
    let answer = match ask(&address, &question, PATIENCE) {
        Ok((200, body)) => body,
        Ok((status, body)) => return complain(&format!("{status}: {}", body.trim())),
        Err(error) => return complain(&format!("`{address}` does not answer: {error}")),
    };
    let Ok(report) = answer.parse::<Value>() else {
        return complain("the answer is no report");
    };
    let passed = report.get("passed").and_then(Value::as_bool) == Some(true);
    match selftest.format {
        OutputFormat::Human => {
            print_for_people(&words(&report));
            say(if passed { "everything holds" } else { "something does not hold" });
        }
        OutputFormat::Json => drop(print(&answer)),
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FOUND) }
}

fn secret(reference: &SecretRef) -> Result<Secret, String> {
    let read =
        secrets::read(reference, &SystemClock).map_err(|error| ErrorChain(&error).to_string())?;
    Ok(Secret::new(read.expose().trim().into()))
}

/// A request to the operator listener.
pub(super) struct AdminRequest<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) token: Option<&'a Secret>,
    pub(super) body: &'a str,
}

impl<'a> AdminRequest<'a> {
    const fn of(path: &'a str) -> Self {
        Self { method: "GET", path, token: None, body: "" }
    }
}

/// Sends one request over a new connection, and returns the status and the body.
pub(super) fn ask(
    address: &str,
    question: &AdminRequest<'_>,
    patience: Duration,
) -> Result<(u16, String), std::io::Error> {
    let AdminRequest { method, path, token, body } = question;
    let none = || std::io::Error::other("there is no such address");
    let target = address.to_socket_addrs()?.next().ok_or_else(none)?;
    let mut stream = TcpStream::connect_timeout(&target, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let shown = token.map(|token| format!("authorization: Bearer {}\r\n", token.expose()));
    // The Host header is the IP address, which the listener accepts for any name that resolves to it.
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {target}\r\nconnection: close\r\ncontent-length: {}\r\n{}\r\n{body}",
        body.len(),
        shown.unwrap_or_default()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("it does not speak HTTP"))?;
    Ok((status, body.to_owned()))
}
