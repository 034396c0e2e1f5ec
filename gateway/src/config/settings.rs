//! The configuration: read, compared with its schema, compiled.
//!
//! [`Settings`] is what the gateway runs on: every name resolved, every number a number, every
//! secret still a reference. [`load`] yields one, or every problem in the file with its place.

mod effective;
mod problem;
mod raw;
mod remarks;
mod yaml;
pub mod revoked;
pub mod variables;
mod in_clear;
pub mod operator;
mod unserved;
mod compiler;
mod audit;
mod bounds;
mod secret_refs;
mod customary;
mod guardrails;
mod overrides;
mod pins;
pub mod lockfile;
mod clashes;
mod compile;
mod reach;
mod credentials;
mod identity;
mod listeners;
mod registry;
pub mod selftest;
mod servers;
mod shape;
pub mod cases;
pub mod shown;
mod telemetry;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Uri};
use policy::ask::Asks;
use policy::name::{PrincipalId, Scope, ServerName};
use policy::pins::ResourcePins;
use policy::pipeline::Policy;
use policy::principal::Wanted;
use policy::work::Work;

use crate::base::file;
use crate::config::overrides::Overrides;
use crate::mcp::tool_naming::Prefix;
use crate::net::connection;
use crate::net::egress::Egress;
use crate::net::http2;
use crate::process::sandbox::Plan;
use crate::process::scripts::{self, CommandLine};

pub use audit::{Audit, Capture, Checkpoints, Refusals, Rotation, Sink, SinkTarget, Syslog};
pub use credentials::{Credential, Grant, ServerTls, repeats_scheme};
pub use guardrails::Guardrail;
pub use identity::{
    ApiKey, ClaimPath, ClaimPaths, Identity, Implied, Introspection, Issuer, KEY, KeySource,
    KnownCertificate, ServiceClaim,
};
pub use listeners::{Clients, Forwarded, ForwardedHeader, Listener, ListenerTls, Scheme};
pub use pins::{Action, Approvers, Pinning, Verbs};
pub use problem::Problems;
pub use raw::{Failing, Format, Full, LogFormat, OtlpProtocol};
pub use reach::{Client, ClientProof, OwnCertificate, Place, Way};
pub use remarks::Remark;
pub use shape::{nearest, schema};
pub use telemetry::{Otlp, Telemetry};
use unserved::Unserved;
use yaml::Node;

/// A configuration that was found good.
#[derive(Debug)]
pub struct Settings {
    /// Where clients connect; never empty.
    pub listeners: Vec<Listener>,
    /// The operator's listener.
    pub ops: Option<Ops>,
    /// How callers are known.
    pub identity: Identity,
    /// The servers; never empty.
    pub servers: Vec<Server>,
    /// The routes; never empty.
    pub routes: Vec<Route>,
    /// The policy.
    pub policy: Policy,
    /// The digest of each section of the file after substitution.
    pub sections: BTreeMap<Box<str>, [u8; 32]>,
    /// SHA-256 of the file after substitution, in hexadecimal: it names the policy in records.
    pub digest: String,
    /// How definitions are held to what was approved.
    pub pins: Pinning,
    /// The file with what is no longer to be used.
    pub revocations: Option<PathBuf>,
    /// What is recorded where.
    pub audit: Audit,
    /// What is told to an observability stack.
    pub telemetry: Telemetry,
    /// How the process logs.
    pub log: Log,
    /// The names of tools and prompts that stand in the file.
    pub names: BTreeSet<Arc<str>>,
    /// The keys session ids are sealed with.
    pub session_keys: Vec<SecretRef>,
    /// How long a session lives.
    pub session_lifetime: Duration,
    /// What the gateway itself uses of the machine.
    pub own: Own,
    /// How the gateway attacks itself, if it does.
    pub selftest: Option<selftest::Selftest>,
    /// The bounds.
    pub limits: Limits,
    /// Callers whose shares are others than those of everybody.
    pub callers: Vec<CallerLimits>,
    /// Of secrets that seem to stand in the file: where, and what to do. None of them is in it.
    pub in_clear: Vec<Box<str>>,
}

/// It is not clear which route is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told())]
pub struct NoRoute {
    /// The route that was asked for.
    pub asked: Option<Box<str>>,
    /// The routes that there are.
    pub known: Vec<Box<str>>,
}

impl NoRoute {
    fn told(&self) -> String {
        let known = self.known.join("`, `");
        match &self.asked {
            Some(asked) => format!(
                "there is no route `{}`; name one of these with `--route`: `{known}`",
                asked.escape_debug()
            ),
            None => format!("there is more than one route; name one with `--route`: `{known}`"),
        }
    }
}

impl Settings {
    /// Keeps the route at `path`, or the only one there is, and the servers that it leads to: a process that serves
    /// one client starts nothing else.
    ///
    /// # Errors
    /// When there is no such route, or more than one.
    fn keep_route(&mut self, path: Option<&str>) -> Result<(), NoRoute> {
        let paths = self.routes.iter().map(|route| &*route.path);
        let path: Box<str> = chosen(path, paths)?.into();
        self.routes.retain(|route| route.path == path);
        let wanted: BTreeSet<usize> =
            self.routes.iter().flat_map(|route| route.servers.iter().copied()).collect();
        let place: BTreeMap<usize, usize> =
            wanted.iter().enumerate().map(|(new, old)| (*old, new)).collect();
        for route in &mut self.routes {
            route.servers =
                route.servers.iter().filter_map(|old| place.get(old).copied()).collect();
        }
        let mut at = 0..;
        self.servers.retain(|_| at.next().is_some_and(|n| wanted.contains(&n)));
        Ok(())
    }
}

/// Which of the routes at `known` is meant by `asked`: that one, or the only one there is.
///
/// # Errors
/// When there is no such route, or more than one.
pub fn chosen<'a>(
    asked: Option<&str>,
    known: impl Iterator<Item = &'a str>,
) -> Result<&'a str, NoRoute> {
    let mut known: Vec<_> = known.collect();
    known.sort_unstable();
    let found = match (asked, &known[..]) {
        (Some(asked), _) => known.iter().find(|path| **path == asked).copied(),
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    let refused = || {
        let known = known.iter().map(|path| Box::from(*path)).collect();
        NoRoute { asked: asked.map(Box::from), known }
    };
    found.ok_or_else(refused)
}

/// What the gateway itself uses of the machine: it is kept from the programs that it starts.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Files and folders that are nobody else's: the configuration, what is approved and revoked, records,
    /// secrets and private keys.
    pub files: Vec<PathBuf>,
    /// Files that others may read and must not change: certificates, and keys that are believed.
    pub believed: Vec<PathBuf>,
    /// The variables of the environment that the configuration names.
    pub variables: BTreeSet<String>,
}

impl Own {
    /// The same, wherever somebody else stands who reads the paths.
    fn absolute(mut self) -> Self {
        for path in self.files.iter_mut().chain(&mut self.believed) {
            if let Ok(absolute) = std::path::absolute(&*path) {
                *path = absolute;
            }
        }
        self
    }
}

/// How the process logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// How lines are written; by where they go if not given.
    pub format: Option<LogFormat>,
    /// Who has the terminal, if there is one.
    pub terminal: Terminal,
}

/// Who writes to the terminal that the gateway was started at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// The gateway.
    Ours,
    /// A program that the gateway runs beside: a line for each request would be in its way.
    Shared,
}

impl Log {
    /// Whether what goes to a stream, which is a terminal or not, is for people.
    #[must_use]
    pub fn is_human(&self, is_terminal: bool) -> bool {
        match self.format {
            Some(format) => format == LogFormat::Human,
            None => is_terminal,
        }
    }
}

/// The operator's listener.
#[derive(Clone, Debug)]
pub struct Ops {
    /// Where.
    pub address: SocketAddr,
    /// Names it answers to besides those of this machine and addresses, in lower case.
    pub hosts: BTreeSet<Box<str>>,
    /// What an operator shows to change something; without it nothing can be changed.
    pub token: Option<SecretRef>,
}

/// An MCP server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name.
    pub name: ServerName,
    /// How to reach it.
    pub reach: Reach,
    /// Which era it speaks.
    pub protocol: Protocol,
    /// Whether callers share its process or its connection.
    pub sharing: ProcessSharing,
    /// Where connections to its URL may go.
    pub egress: Egress,
    /// Who it has to be.
    pub tls: ServerTls,
    /// What it is shown.
    pub credential: Option<Credential>,
    /// Headers of every request to it.
    pub headers: Vec<(HeaderName, Value)>,
    /// When it is left alone because it keeps failing.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// What it may ask of clients.
    pub asks: Asks,
    /// Which of its resources may be used that nobody has approved one by one.
    pub resources: ResourcePins,
    /// What callers are shown of its tools in place of its own words.
    pub overrides: Arc<Overrides>,
}

/// Whether callers share the process of a program, or the connection to a server of HTTP+SSE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessSharing {
    /// All share one. A program that speaks both eras is started once more for each legacy session whose
    /// client can be asked what the program may ask.
    #[default]
    AsNeeded,
    /// All share one.
    Shared,
    /// Each session has one, and so has each caller without a session.
    PerSession,
}

/// When a server that keeps failing is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// After so many failures in a row.
    pub failures: NonZeroU32,
    /// For so long.
    pub open_for: Duration,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Streamable HTTP.
    Http(Uri),
    /// The old HTTP+SSE.
    Old(Uri),
    /// A program on this machine.
    Stdio(Program),
}

/// A program to be started.
#[derive(Clone, Debug)]
pub struct Program {
    /// What to start.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, besides the few variables every program gets.
    pub env: Vec<(String, Value)>,
    /// Where to start it.
    pub directory: Option<PathBuf>,
    /// What it may do; whatever we may if there is none.
    pub sandbox: Option<Plan>,
}

/// The value of a variable.
#[derive(Clone, Debug)]
pub enum Value {
    /// Written in the file.
    Literal(String),
    /// Somewhere else.
    Secret(SecretRef),
}

/// Where a secret is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretRef {
    /// In the environment.
    Env(String),
    /// In a file.
    File(PathBuf),
    /// A program says it.
    Command(Box<SecretCommand>),
}

/// A program that says a secret on its standard output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretCommand {
    /// Its absolute path.
    pub program: PathBuf,
    /// Its arguments, which no shell reads.
    pub args: Vec<String>,
    /// After how long it is run again.
    pub cache_time: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// How long after that its last answer is used when it fails.
    pub max_stale: Duration,
}

impl SecretCommand {
    /// The folder that it is run in.
    pub const FOLDER: &str = "/";

    /// What decides about what it says besides the program: the code that its arguments name, and other files whose
    /// paths stand in them.
    ///
    /// # Errors
    /// When that cannot be looked at, or is more than can be.
    pub fn named(&self) -> io::Result<Vec<PathBuf>> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8");
        let command = self.program.to_str().ok_or_else(invalid)?;
        let folder = Path::new(Self::FOLDER);
        scripts::named(CommandLine { command, args: &self.args, folder, path: None })
    }

    /// Whether it may be run: its program can be, and nobody else can put something in the place of that or of what
    /// its arguments name.
    ///
    /// # Errors
    /// When it may not, in words.
    pub fn may_run(&self) -> io::Result<()> {
        file::may_run(&self.program)?;
        self.named()?.iter().try_for_each(|path| {
            let told = |error: io::Error| {
                let message = format!("its arguments name `{}`, but {error}", path.display());
                io::Error::new(error.kind(), message)
            };
            file::is_not_replaceable(path).map_err(told)
        })
    }
}

/// Which era a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// To be found out.
    Auto,
    /// 2026-07-28.
    Modern,
    /// 2025-11-25 and earlier.
    Legacy,
}

/// A path and the servers behind it.
#[derive(Clone, Debug)]
pub struct Route {
    /// The path.
    pub path: Box<str>,
    /// Indices into [`Settings::servers`]; never empty.
    pub servers: Vec<usize>,
    /// When tools carry the name of their server.
    pub prefix: Prefix,
    /// Whether clients of the old HTTP+SSE transport are served.
    pub old: bool,
    /// What access tokens have to be like.
    pub oauth: RouteOauth,
    /// Who is asked about arguments and results.
    pub guardrails: Vec<Guardrail>,
}

/// What access tokens have to be like on a route.
#[derive(Clone, Debug, Default)]
pub struct RouteOauth {
    /// The resource they are for; the public URL of the listener and the path if not given.
    pub resource: Option<Box<str>>,
    /// Other audiences that will do.
    pub audiences: Vec<Box<str>>,
    /// Audiences that a token may have beside one that will do.
    pub besides: Vec<Box<str>>,
    /// Indices of the issuers that are believed.
    pub issuers: Vec<usize>,
    /// The scopes that clients are told to ask for first.
    pub scopes: Vec<Scope>,
    /// The proof they must come with.
    pub proof: Option<Wanted>,
    /// Whether proofs by DPoP must have a nonce of ours in them.
    pub nonce: bool,
}

/// Longest configuration that is read while the gateway runs, in bytes.
pub const LONGEST: u64 = 16 * 1024 * 1024;

/// Longest file with a secret in it that is read, in bytes.
pub const SECRET: u64 = 1024 * 1024;

/// How the identity of a program begins that cannot be read: it is nobody's.
pub const UNREADABLE: &str = "unreadable program";

/// The bounds; each is described with its key in the schema.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "described once, on the keys of the file")]
pub struct Limits {
    pub request_body: usize,
    pub response_body: usize,
    pub inspected_inline: usize,
    pub inspection_work: Work,
    pub notification: usize,
    pub request_head: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    pub in_flight: usize,
    pub in_flight_per_caller: usize,
    pub unauthenticated_per_address: usize,
    pub memory: usize,
    pub memory_per_caller: usize,
    pub request_bodies: usize,
    pub request_bodies_per_caller: usize,
    pub answers: usize,
    pub answers_per_caller: usize,
    pub answers_per_server: usize,
    pub lists: usize,
    pub lists_per_caller: usize,
    pub schemas: usize,
    pub schemas_per_server: usize,
    pub subscriptions: usize,
    pub subscriptions_per_caller: usize,
    pub send_queue: usize,
    pub send_queue_per_caller: usize,
    pub request_time: Duration,
    pub connect_time: Duration,
    pub answer_time: Duration,
    pub total_time: Duration,
    pub catalog_age: Duration,
    pub tools: usize,
    pub pages: usize,
    pub sessions: usize,
    pub sessions_per_caller: usize,
    pub ended_sessions: usize,
    pub ended_sessions_per_caller: usize,
    pub list_time: Duration,
    pub input_time: Duration,
    pub parked: usize,
    pub parked_per_caller: usize,
    pub streams: usize,
    pub event_streams: usize,
    pub event_streams_per_caller: usize,
    pub replay_events: usize,
    pub replay_bytes: usize,
    pub replay_memory: usize,
    pub replay_memory_per_caller: usize,
    pub replay_time: Duration,
    pub kept_results: usize,
    pub kept_results_per_caller: usize,
    pub kept_time: Duration,
    pub write_time: Duration,
    pub batch: usize,
    pub processes: usize,
    pub processes_per_caller: usize,
    pub drain_time: Duration,
    pub lame_duck_time: Duration,
    pub tokens: usize,
    pub token_memory: usize,
    pub token_memory_per_caller: usize,
    pub proofs: usize,
    pub http2: http2::Bounds,
}

/// Callers who have other shares than everybody. What is not given is as for everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerLimits {
    /// Who, by the name in records.
    pub principals: Vec<PrincipalId>,
    /// Requests that are worked on.
    pub in_flight: Option<usize>,
    /// Bytes of the bodies of requests.
    pub request_bodies: Option<usize>,
    /// Calls that wait for their client to answer.
    pub parked: Option<usize>,
    /// Event streams that belong to no call.
    pub event_streams: Option<usize>,
    /// Bytes of the URIs that are listened for.
    pub subscriptions: Option<usize>,
    /// Bytes of kept lists.
    pub lists: Option<usize>,
    /// Bytes of answers of servers.
    pub answers: Option<usize>,
}

impl CallerLimits {
    /// The largest of their shares that are in bytes, if they have any.
    #[must_use]
    pub fn most_bytes(&self) -> Option<usize> {
        [self.request_bodies, self.subscriptions, self.lists, self.answers].into_iter().max()?
    }
}

impl Limits {
    /// The bounds of a connection of a client that speaks HTTP/2.
    #[must_use]
    pub fn http2_of_clients(&self) -> http2::Terms {
        http2::Terms {
            bounds: self.http2,
            head: u32::try_from(self.request_head).unwrap_or(u32::MAX),
            head_time: self.request_time,
            write_time: self.write_time,
        }
    }

    /// The bounds of a connection to a server that speaks HTTP/2.
    #[must_use]
    pub fn http2_of_servers(&self) -> http2::Terms {
        http2::Terms {
            head: connection::HEAD,
            head_time: self.answer_time,
            ..self.http2_of_clients()
        }
    }
}

/// Compiles the configuration `text`; `file` is its name in messages.
///
/// # Errors
/// Every problem there is, if there is any; then nothing was compiled.
pub fn load(
    file: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, Problems> {
    load_for(Purpose::Reading, file, text, variables)
}

/// What a configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To see what it says, wherever it is to be served.
    Reading,
    /// To say whether it could be served here: with secrets and files that are there.
    Checking,
    /// To serve clients: with what the self-test needs.
    Serving,
    /// To serve the one client that started the process, as the process with this number: it has an audit log of its
    /// own.
    Stdio(u8),
}

/// The file that a process that serves one client over standard input and output has beside `path`, as the process with
/// this number.
#[must_use]
pub fn file_of_process(path: &Path, number: u8) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".stdio-{number}"));
    name.into()
}

/// The same as [`load`], for a purpose.
///
/// # Errors
/// As [`load`].
pub fn load_for(
    purpose: Purpose,
    file: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, Problems> {
    let root = parsed(file, text)?;
    compiled((purpose, Unserved::default()), (file, text), root, variables)
        .map(|(settings, _)| settings)
}

/// Why a configuration cannot serve the one client of a route.
#[derive(Debug)]
pub enum RouteError {
    /// It is not valid.
    Invalid(Problems),
    /// It is not clear which route is meant.
    Route(NoRoute),
}

/// Compiles the configuration `text` for the process with this number, which serves one client on the route `asked`, or
/// on the only one there is: with its servers and no others. Variables and secrets of the others do not have to be there.
///
/// # Errors
/// Every problem there is with what is left, or that it is not clear which route is meant.
pub fn load_for_route(
    (number, asked): (u8, Option<&str>),
    file: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, RouteError> {
    let root = parsed(file, text).map_err(RouteError::Invalid)?;
    let unserved = Unserved::of(&root, asked, variables);
    let purpose = (Purpose::Stdio(number), unserved);
    let compiled = compiled(purpose, (file, text), root, variables);
    let (mut settings, unserved) = compiled.map_err(RouteError::Invalid)?;
    let names: Vec<Box<str>> =
        settings.servers.iter().map(|server| server.name.as_str().into()).collect();
    settings.keep_route(asked).map_err(RouteError::Route)?;
    // INVARIANT: none is, by what has decided which are not needed; were one, it would not be started.
    if unserved.is_kept(&names, &settings) {
        return Err(RouteError::Invalid(Problems::new(file, text, unserved.waived)));
    }
    Ok(settings)
}

/// The YAML of a configuration.
fn parsed(file: &str, text: &str) -> Result<Node, Problems> {
    let wrong = |found| Problems::new(file, text, found);
    let root =
        yaml::parse(text).map_err(|found| wrong(customary::or_of_client(file, text, found)))?;
    match customary::of_client(file, text, &root) {
        Some(problem) => Err(wrong(vec![problem])),
        None => Ok(root),
    }
}

/// Compiles what was parsed, without what is wrong with servers that are not needed because a variable is not set.
fn compiled(
    (purpose, mut unserved): (Purpose, Unserved),
    (file, text): (&str, &str),
    mut root: Node,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<(Settings, Unserved), Problems> {
    let wrong = |found| Problems::new(file, text, found);
    let in_clear = in_clear::warnings(file, text, &root);
    let mut problems = Vec::new();
    let named = RefCell::new(BTreeSet::new());
    let noted = |name: &str| {
        named.borrow_mut().insert(name.to_owned());
        variables(name)
    };
    unserved.substitute(&mut root, &noted, &mut problems);
    let shape::Checked { mut json, problems: misfits, waived } =
        shape::check(&mut root, &schema(), &|at| unserved.waives(at));
    problems.extend(misfits);
    unserved.waived.extend(waived);
    problems.extend(selftest::trespassers(&json, &root));
    let wanted = purpose == Purpose::Serving
        && json.get("selftest").is_some_and(|section| !section.is_null());
    let key = wanted.then(|| selftest::add(&mut json)).flatten();
    let Ok(raw) = serde_json::from_value(json) else {
        // What was not reported may be why.
        problems.append(&mut unserved.waived);
        return Err(wrong(problems));
    };
    let use_for = (purpose, variables);
    let settings =
        compile::settings(raw, &root, Path::new(file), (key, &unserved), use_for, problems);
    let mut settings = settings.map_err(wrong)?;
    settings.own.variables.extend(named.into_inner());
    settings.in_clear = in_clear;
    Ok((settings, unserved))
}

#[cfg(test)]
mod tests;
