//! The configuration: parses YAML, checks it against its JSON Schema and compiles it.
//!
//! [`Settings`] is what the gateway runs on: every name is resolved and every number parsed, but secrets are still
//! references. [`load`] returns one, or every problem in the file with its place.

mod problem;
mod raw;
mod limit_table;
mod effective;
mod remarks;
mod yaml;
pub mod revoked;
pub mod variables;
mod former_keys;
mod nearest;
mod in_clear;
mod names;
pub mod operator;
mod unserved;
mod compiler;
mod approvals;
mod apps;
mod audit;
mod bounds;
mod budgets;
mod secret_refs;
mod customary;
mod decoys;
mod discovery;
mod guardrails;
mod overrides;
mod pins;
mod planners;
pub mod lockfile;
mod clashes;
mod reach;
mod credentials;
mod identity;
mod listeners;
mod model_services;
mod registry;
mod selection;
pub mod selftest;
mod servers;
mod shape;
pub mod cases;
pub mod evaluation_folder;
pub mod shown;
mod otel_variables;
mod config_places;
mod telemetry;
mod compile;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Uri};
use policy::definition::pins::ResourcePins;
use policy::definition::registry::RateLimit;
use policy::engine::ask::ServerRequestPolicy;
use policy::engine::pipeline::Policy;
use policy::flow::planner::Planner;
use policy::rules::apps::AppPolicy;
use policy_core::base::work::WorkLimits;
use policy_core::subject::name::{PrincipalId, Scope, ServerName};
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::RequiredProof;

use crate::base::file;
use crate::config::call_budget::CallBudget;
use crate::config::overrides::Overrides;
use crate::mcp::tool_naming::PrefixMode;
use crate::net::connection;
use crate::net::egress::Egress;
use crate::net::http2;
use crate::process::sandbox::SandboxPlan;
use crate::process::scripts::{self, CommandLine};

pub use approvals::{ApprovalSettings, WebhookSettings};
pub use audit::{
    AuditSettings, CaptureSettings, CheckpointSettings, RefusalSettings, Rotation, SinkSettings,
    SinkTarget, SyslogAddress,
};
use compile::CompileContext;
pub use config_places::ConfigPlaces;
pub use credentials::{ServerCredential, ServerTls, TokenRequest, is_own_header, repeats_scheme};
pub use decoys::{DecoySettings, HONEYTOKEN, HoneytokenSettings};
pub use discovery::{DiscoverySettings, ListedTools, MAX_FOUND_TOOLS};
pub use guardrails::GuardrailSettings;
pub use identity::{
    ApiKey, ClaimPath, ClaimPaths, IdentitySettings, ImpliedScopes, IntrospectionSettings,
    IssuerSettings, KEY, KeySource, KnownCertificate, ServiceClaim,
};
pub use in_clear::has_secret_argument;
pub use listeners::{
    AuthScheme, ClientCertSettings, ForwardedCertificates, ForwardedHeader, ListenerSettings,
    ListenerTls,
};
pub use model_services::{EmbeddingsSettings, GivenService, JudgeSettings, ModelServiceSettings};
pub use nearest::nearest;
pub use otel_variables::{SpanBatch, read_headers};
pub use pins::{Approvers, ConfigSource, DriftAction, PinSettings};
use problem::ConfigProblem;
pub use problem::ConfigProblems;
pub use raw::{
    GuardrailFailure, HistorySharing, LogFormat, OtlpProtocol, OtlpSignal, RequestRecording,
    SinkFormat, SpoolOverflow,
};
pub use reach::{
    ClientProof, ClientRegistration, ConnectionSettings, GatewayCertificate, ServiceEndpoint,
};
pub use remarks::ConfigRemark;
pub use selection::{HistorySettings, SelectionSettings};
pub use shape::schema;
pub use telemetry::{OtlpSecret, OtlpSettings, TelemetrySettings};
use unserved::UnneededServers;
use yaml::YamlNode;

/// A valid configuration, compiled.
#[derive(Debug)]
pub struct Settings {
    /// The sockets that clients connect to; never empty.
    pub listeners: Vec<ListenerSettings>,
    /// The operator's listener; `None` if there is none.
    pub ops: Option<OpsListener>,
    /// How callers are authenticated.
    pub identity: IdentitySettings,
    /// The upstream servers; never empty.
    pub servers: Vec<ServerSettings>,
    /// The routes; never empty.
    pub routes: Vec<RouteSettings>,
    /// The compiled access rules and content controls.
    pub policy: Policy,
    /// How people are asked about calls that need an approval.
    pub approvals: ApprovalSettings,
    /// The service that is told of questions whether a call may be made.
    pub approval_webhook: Option<WebhookSettings>,
    /// The file in which questions and approvals are kept; in memory without one.
    pub approval_file: Option<PathBuf>,
    /// What calls may use up in a time.
    pub budgets: Vec<CallBudget>,
    /// How often one caller may make the same call; `None` for as often as it wants.
    pub repeated_calls: Option<RateLimit>,
    /// How tools are ranked for a request in words.
    pub selection: SelectionSettings,
    /// The traps for attackers.
    pub decoys: DecoySettings,
    /// SHA-256 of each section of the file after substitution, by section name.
    pub sections: BTreeMap<Box<str>, [u8; 32]>,
    /// SHA-256 of the file after substitution and of the files that belong to it, in hexadecimal. It identifies the
    /// policy in audit records.
    pub digest: String,
    /// SHA-256 of the text of the file, before substitution: the same text is read once.
    pub text_digest: [u8; 32],
    /// How definitions are checked against the approved ones.
    pub pins: PinSettings,
    /// The revocation file, if one is configured.
    pub revocations: Option<PathBuf>,
    /// The sinks, checkpoints and contents of the audit log.
    pub audit: AuditSettings,
    /// The export of traces and metrics.
    pub telemetry: TelemetrySettings,
    /// The format of the process log.
    pub log: LogSettings,
    /// The tool and prompt names in the file, which metrics may use as label values.
    pub names: BTreeSet<Arc<str>>,
    /// The keys that session ids are encrypted with; the first encrypts, all decrypt.
    pub session_keys: Vec<SecretRef>,
    /// How long a session is valid.
    pub session_lifetime: Duration,
    /// The files and variables of the gateway itself, which are kept from the programs that it starts.
    pub own: GatewayResources,
    /// When the self-test runs; `None` if it does not.
    pub selftest: Option<selftest::SelftestSettings>,
    /// Limits on sizes, counts and times.
    pub limits: Limits,
    /// Callers with shares of their own.
    pub callers: Vec<CallerLimits>,
    /// Warnings about former names of keys and about probable plaintext secrets in the file: the place of each, and how
    /// to fix it. The secrets are not included.
    pub warnings: Vec<Box<str>>,
}

/// The route for a single client cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told())]
pub struct RouteSelectionError {
    /// The path that was given, if any.
    pub asked: Option<Box<str>>,
    /// The paths of all routes.
    pub known: Vec<Box<str>>,
}

impl RouteSelectionError {
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
    /// Keeps the route at `path`, or the only one there is, and the servers that it leads to, because a process
    /// that serves one client must not start other servers.
    ///
    /// # Errors
    /// If no route has this path, or none was given and there are several.
    fn keep_route(&mut self, path: Option<&str>) -> Result<(), RouteSelectionError> {
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

/// Selects the path `asked` among `known`, or the only one there is.
///
/// # Errors
/// If no route has this path, or none was given and there are several.
pub fn chosen<'a>(
    asked: Option<&str>,
    known: impl Iterator<Item = &'a str>,
) -> Result<&'a str, RouteSelectionError> {
    let mut known: Vec<_> = known.collect();
    known.sort_unstable();
    let found = match (asked, &known[..]) {
        (Some(asked), _) => known.iter().find(|path| **path == asked).copied(),
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    let refused = || {
        let known = known.iter().map(|path| Box::from(*path)).collect();
        RouteSelectionError { asked: asked.map(Box::from), known }
    };
    found.ok_or_else(refused)
}

/// The files and variables of the gateway itself, which are kept from the programs that it starts.
#[derive(Clone, Debug, Default)]
pub struct GatewayResources {
    /// Files and directories that no program may read or write: the configuration, the lockfile, revocations, audit
    /// records, secrets and private keys.
    pub files: Vec<PathBuf>,
    /// Files that programs may read but not change: certificates, trusted keys, and programs that print secrets.
    pub believed: Vec<PathBuf>,
    /// The environment variables that the configuration refers to.
    pub variables: BTreeSet<String>,
}

impl GatewayResources {
    /// Makes the paths absolute, for processes with another working directory.
    fn absolute(mut self) -> Self {
        for path in self.files.iter_mut().chain(&mut self.believed) {
            if let Ok(absolute) = std::path::absolute(&*path) {
                *path = absolute;
            }
        }
        self
    }
}

/// The format of the process log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The format of log lines; if `None`, it depends on whether the output is a terminal.
    pub format: Option<LogFormat>,
    /// Which program uses the terminal that the gateway writes to.
    pub terminal: TerminalUse,
}

/// Which program uses the terminal that the gateway was started at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalUse {
    /// Only the gateway writes to it.
    Ours,
    /// Also a program that the gateway was started for: a log line for each request would disturb its output.
    Shared,
}

impl LogSettings {
    /// Whether lines on this output are formatted for people.
    #[must_use]
    pub fn is_human(&self, output: &impl io::IsTerminal) -> bool {
        match self.format {
            Some(format) => format == LogFormat::Human,
            None => output.is_terminal(),
        }
    }
}

/// The listener for operators: health checks, metrics and the admin API.
#[derive(Clone, Debug)]
pub struct OpsListener {
    /// The address and port.
    pub address: SocketAddr,
    /// The host names accepted in `Host`, in lower case; names of this machine and IP addresses are always
    /// accepted.
    pub hosts: BTreeSet<Box<str>>,
    /// The bearer token for changes through the admin API; without it there are none.
    pub token: Option<SecretRef>,
}

/// An upstream MCP server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The name of the server.
    pub name: ServerName,
    /// The transport and address of the server.
    pub reach: ServerTransport,
    /// The protocol era that the server speaks.
    pub protocol: ServerProtocol,
    /// Whether callers share the process or connection of the server.
    pub sharing: ProcessSharing,
    /// The networks that connections to its URL may go to.
    pub egress: Egress,
    /// How the server is verified, and the gateway's client certificate.
    pub tls: ServerTls,
    /// How the gateway authenticates to the server; `None` for no credential.
    pub credential: Option<ServerCredential>,
    /// Additional headers of every request.
    pub headers: Vec<(HeaderName, VariableValue)>,
    /// When requests to the failing server are rejected at once; `None` for never.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// How many calls may be under way; `None` for any number.
    pub concurrency: Option<ServerConcurrency>,
    /// Which requests the server may send to clients.
    pub server_requests: ServerRequestPolicy,
    /// Patterns of the keys of clients' `_meta` that the server gets, of those that the protocol does not define; `None`
    /// for all.
    pub client_meta: Option<Vec<Pattern>>,
    /// Which apps it may show; `None` for none.
    pub apps: Option<AppPolicy>,
    /// Which of its resources may be read without an approval of their own.
    pub resources: ResourcePins,
    /// The titles and descriptions that callers see in place of the server's own.
    pub overrides: Arc<Overrides>,
}

/// Whether callers share the process of a stdio server, or the stream of an HTTP+SSE server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessSharing {
    /// One for all. A program that speaks both eras is started again for each legacy session whose client supports
    /// a request that the server may send.
    #[default]
    AsNeeded,
    /// All callers share one.
    Shared,
    /// One for each session, and one for each caller without a session.
    PerSession,
}

/// When requests to a failing server are rejected at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// The number of consecutive failures that opens the circuit.
    pub failures: NonZeroU32,
    /// The pause before the next request is let through.
    pub open_for: Duration,
}

/// How many calls of a server may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConcurrency {
    /// Most calls of all callers.
    pub all: usize,
    /// Most calls of one caller.
    pub per_caller: usize,
}

/// The transport and address of a server.
#[derive(Clone, Debug)]
pub enum ServerTransport {
    /// Streamable HTTP at this URL.
    Http(Uri),
    /// The HTTP+SSE transport of 2024-11-05.
    HttpSse(Uri),
    /// A program on this machine that speaks stdio.
    Stdio(Program),
}

/// A program of a stdio server.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program, as a path or a name that is looked up in `PATH`.
    pub command: String,
    /// The command-line arguments of the program.
    pub args: Vec<String>,
    /// The environment, besides the few variables that every program gets.
    pub env: Vec<(String, VariableValue)>,
    /// The working directory; the gateway's own if `None`.
    pub directory: Option<PathBuf>,
    /// The sandbox; without one the program may access what the gateway may.
    pub sandbox: Option<SandboxPlan>,
}

/// The value of an environment variable or header.
#[derive(Clone, Debug)]
pub enum VariableValue {
    /// The text in the file.
    Literal(String),
    /// A reference to a secret.
    Secret(SecretRef),
}

/// Where a secret is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretRef {
    /// In an environment variable.
    Env(String),
    /// In a file at this path.
    File(PathBuf),
    /// A program prints it.
    Command(Box<SecretCommand>),
}

/// A program that prints a secret on its standard output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretCommand {
    /// The absolute path of the program.
    pub program: PathBuf,
    /// The arguments, which no shell interprets.
    pub args: Vec<String>,
    /// How long the output is used before the program runs again.
    pub cache_time: Duration,
    /// How long the program may run.
    pub timeout: Duration,
    /// How long after `cache_time` the last output is still used if the program fails.
    pub max_stale: Duration,
}

impl SecretCommand {
    /// The working directory of the program.
    pub const FOLDER: &str = "/";

    /// The files besides the program that determine its output: the code that its arguments name, and other files
    /// whose paths are in them.
    ///
    /// # Errors
    /// If the files cannot be inspected, or are too many.
    pub fn named(&self) -> io::Result<Vec<PathBuf>> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8");
        let command = self.program.to_str().ok_or_else(invalid)?;
        let folder = Path::new(Self::FOLDER);
        scripts::named(CommandLine { command, args: &self.args, folder, path: None })
    }

    /// Checks that the program can be run, and that no other user can replace it or a file that its arguments name.
    ///
    /// # Errors
    /// If one of them fails, with the reason for the operator.
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

/// The protocol era that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerProtocol {
    /// Probed when the server is used.
    Auto,
    /// Revision 2026-07-28 and later.
    Modern,
    /// Revision 2025-11-25 and earlier.
    Legacy,
}

/// A path and the servers behind it.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// The path, which is compared byte for byte.
    pub path: Box<str>,
    /// Indices into [`Settings::servers`]; never empty.
    pub servers: Vec<usize>,
    /// When tool and prompt names get the name of their server as a prefix.
    pub prefix: PrefixMode,
    /// Whether clients of the deprecated HTTP+SSE transport are served.
    pub http_sse: bool,
    /// The planner that the route is for, if there are two.
    pub planner: Option<Planner>,
    /// How models find the tools of the route; `None` if its list has all.
    pub discovery: Option<DiscoverySettings>,
    /// The requirements on access tokens.
    pub oauth: RouteOauth,
    /// The guardrails that judge arguments and results, in order.
    pub guardrails: Vec<GuardrailSettings>,
}

/// The requirements on access tokens on a route.
#[derive(Clone, Debug, Default)]
pub struct RouteOauth {
    /// The resource that tokens are issued for; if `None`, the public URL of the listener followed by the path.
    pub resource: Option<Box<str>>,
    /// Other audiences that are accepted.
    pub audiences: Vec<Box<str>>,
    /// Audiences that a token may have in addition to an accepted one.
    pub besides: Vec<Box<str>>,
    /// Indices of the accepted issuers in [`IdentitySettings::issuers`].
    pub issuers: Vec<usize>,
    /// The scopes that clients are told to request first.
    pub scopes: Vec<Scope>,
    /// The proof of possession that tokens must come with.
    pub proof: Option<RequiredProof>,
    /// Whether DPoP proofs must contain a nonce of the gateway.
    pub nonce: bool,
}

/// Maximum size of a configuration that is read at run time, in bytes.
pub const MAX_CONFIG: u64 = 16 * 1024 * 1024;

/// Maximum size of a file that holds a secret, in bytes.
pub const SECRET: u64 = 1024 * 1024;

/// The prefix of the identity of a program that cannot be read; no approval can match it.
pub const UNREADABLE: &str = "unreadable program";

/// Limits on sizes, counts and times. The keys of the configuration file document each.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "described once, on the keys of the file")]
pub struct Limits {
    pub request_body: usize,
    pub response_body: usize,
    pub inspected_inline: usize,
    pub inspection_work: WorkLimits,
    pub notification: usize,
    pub request_head: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    pub in_flight: usize,
    pub in_flight_per_caller: usize,
    /// Maximum requests and notifications of one caller in a minute that are no allowed calls.
    pub other_requests_per_minute_per_caller: usize,
    pub unauthenticated_per_address: usize,
    pub memory: usize,
    pub memory_per_caller: usize,
    pub request_body_memory: usize,
    pub request_body_memory_per_caller: usize,
    pub response_memory: usize,
    pub response_memory_per_caller: usize,
    pub response_memory_per_server: usize,
    pub catalog_memory: usize,
    pub catalog_memory_per_caller: usize,
    pub schema_memory: usize,
    pub schema_memory_per_server: usize,
    pub subscription_memory: usize,
    pub subscription_memory_per_caller: usize,
    pub send_queue: usize,
    pub send_queue_per_caller: usize,
    pub request_timeout: Duration,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub call_timeout: Duration,
    pub catalog_age: Duration,
    pub definitions_per_list: usize,
    pub pages_per_list: usize,
    pub sessions: usize,
    pub sessions_per_caller: usize,
    pub ended_sessions: usize,
    pub ended_sessions_per_caller: usize,
    pub list_timeout: Duration,
    pub input_timeout: Duration,
    pub pending_elicitations: usize,
    pub pending_elicitations_per_caller: usize,
    pub streams_per_session: usize,
    pub event_streams: usize,
    pub event_streams_per_caller: usize,
    pub replay_events: usize,
    pub replay_bytes: usize,
    pub replay_memory: usize,
    pub replay_memory_per_caller: usize,
    pub replay_ttl: Duration,
    pub result_store: usize,
    pub result_store_per_caller: usize,
    pub result_store_ttl: Duration,
    pub budget_counters: usize,
    pub repeated_call_entries: usize,
    pub hops: usize,
    pub flows: usize,
    pub flow_values: usize,
    pub flow_memory: usize,
    pub flow_window: Duration,
    pub write_timeout: Duration,
    pub batch: usize,
    pub processes: usize,
    pub processes_per_caller: usize,
    pub drain_timeout: Duration,
    pub lame_duck_time: Duration,
    pub tokens: usize,
    pub token_memory: usize,
    pub token_memory_per_caller: usize,
    pub proofs: usize,
    pub http2: http2::Http2Bounds,
}

/// The shares of some callers. `None` leaves the common share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerLimits {
    /// The callers, by their principals.
    pub principals: Vec<PrincipalId>,
    /// Maximum requests in flight.
    pub in_flight: Option<usize>,
    /// Maximum requests and notifications in a minute that are no allowed calls.
    pub other_requests_per_minute: Option<usize>,
    /// Bytes of request bodies.
    pub request_body_memory: Option<usize>,
    /// Calls that wait for their client to answer an elicitation or sampling request.
    pub pending_elicitations: Option<usize>,
    /// Event streams that belong to no call.
    pub event_streams: Option<usize>,
    /// Bytes of the URIs that clients subscribe to.
    pub subscription_memory: Option<usize>,
    /// Bytes of cached lists.
    pub catalog_memory: Option<usize>,
    /// Bytes of upstream answers.
    pub response_memory: Option<usize>,
}

impl CallerLimits {
    /// The largest share that is in bytes; `None` if all of them are the common ones.
    #[must_use]
    pub fn most_bytes(&self) -> Option<usize> {
        [
            self.request_body_memory,
            self.subscription_memory,
            self.catalog_memory,
            self.response_memory,
        ]
        .into_iter()
        .max()?
    }
}

impl Limits {
    /// The limits of an HTTP/2 connection with a client.
    #[must_use]
    pub fn http2_of_clients(&self) -> http2::ConnectionBounds {
        http2::ConnectionBounds {
            bounds: self.http2,
            head: u32::try_from(self.request_head).unwrap_or(u32::MAX),
            head_time: self.request_timeout,
            write_timeout: self.write_timeout,
        }
    }

    /// The limits of an HTTP/2 connection with an upstream server.
    #[must_use]
    pub fn http2_of_servers(&self) -> http2::ConnectionBounds {
        http2::ConnectionBounds {
            head: connection::HEAD,
            head_time: self.response_timeout,
            ..self.http2_of_clients()
        }
    }
}

/// The text of a configuration and the name of its file, as messages call it.
#[derive(Clone, Copy, Debug)]
pub struct ConfigText<'a> {
    /// The name of the file.
    pub file: &'a str,
    /// The whole text.
    pub text: &'a str,
}

/// Compiles the configuration `text`, which messages call `file`.
///
/// # Errors
/// Every problem in the file; nothing is compiled then.
pub fn load(
    file: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, ConfigProblems> {
    load_for(LoadPurpose::Reading, file, text, variables)
}

/// What a configuration is read for, which determines what is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPurpose {
    /// To inspect it; it may be meant for another machine.
    Reading,
    /// To check whether it can be served on this machine, where its secrets and files must exist.
    Checking,
    /// To serve clients, including the self-test.
    Serving,
    /// To serve the one client that started this process over stdio. The process has this number and an audit log
    /// of its own.
    Stdio(u8),
}

/// The file beside `path` that the stdio process with this number uses in its place.
#[must_use]
pub fn file_of_process(path: &Path, number: u8) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".stdio-{number}"));
    name.into()
}

/// Compiles the configuration `text` for a purpose, as [`load`] does.
///
/// # Errors
/// As [`load`].
pub fn load_for(
    purpose: LoadPurpose,
    file: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, ConfigProblems> {
    let root = parsed(file, text)?;
    let written = ConfigText { file, text };
    compiled(purpose, UnneededServers::default(), written, root, variables)
        .map(|(settings, _)| settings)
}

/// Why a configuration cannot serve the one client of a stdio process.
#[derive(Debug)]
pub enum RouteError {
    /// The configuration is invalid.
    Invalid(ConfigProblems),
    /// The route cannot be determined.
    Route(RouteSelectionError),
}

/// Compiles the configuration `text` for the stdio process with this number, which serves one client on the route
/// `asked`, or on the only one there is, and starts only its servers. Variables and secrets of other servers may be
/// missing.
///
/// # Errors
/// Every remaining problem in the file, or that the route cannot be determined.
pub fn load_for_route(
    number: u8,
    asked: Option<&str>,
    file: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, RouteError> {
    let root = parsed(file, text).map_err(RouteError::Invalid)?;
    // Said first: which secrets are needed depends on the route.
    if let Some(error) = unserved::route_error(&root, asked, variables) {
        return Err(RouteError::Route(error));
    }
    let unserved = UnneededServers::of(&root, asked, variables);
    let written = ConfigText { file, text };
    let compiled = compiled(LoadPurpose::Stdio(number), unserved, written, root, variables);
    let (mut settings, unserved) = compiled.map_err(RouteError::Invalid)?;
    let names: Vec<Box<str>> =
        settings.servers.iter().map(|server| server.name.as_str().into()).collect();
    settings.keep_route(asked).map_err(RouteError::Route)?;
    // INVARIANT: `UnneededServers` only waives servers that this route does not use. If it were wrong, the server would
    // not start.
    if unserved.is_kept(&names, &settings) {
        return Err(RouteError::Invalid(ConfigProblems::new(file, text, unserved.waived)));
    }
    Ok(settings)
}

/// What clients are told of a configuration.
#[derive(Debug)]
pub struct ClientSettings {
    /// The listeners, at least one.
    pub listeners: Vec<ListenerSettings>,
    /// The routes, at least one.
    pub routes: Vec<RouteSettings>,
}

/// Compiles the configuration `text`, as [`load`] does, for what clients are told of it. Variables that only servers use
/// need not be set: clients do not learn their values.
///
/// # Errors
/// Every remaining problem in the file.
pub fn load_for_clients(
    file: &str,
    text: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<ClientSettings, ConfigProblems> {
    let root = parsed(file, text)?;
    let unserved = UnneededServers::every(&root);
    let written = ConfigText { file, text };
    let (settings, _) = compiled(LoadPurpose::Reading, unserved, written, root, variables)?;
    // INVARIANT: a server of which a problem was waived is used for nothing, because none of them is returned.
    Ok(ClientSettings { listeners: settings.listeners, routes: settings.routes })
}

/// Parses a YAML file that is no configuration, such as the file of a client, as JSON.
///
/// # Errors
/// If it is not YAML of the kind that configurations are. The message has nothing of the text.
pub fn yaml_value(text: &str) -> Result<serde_json::Value, String> {
    let wrong = |found: Vec<ConfigProblem>| match found.is_empty() {
        true => "it is no YAML".to_owned(),
        false => {
            let (place, _) = ConfigProblems::new("line", text, found).each().swap_remove(0);
            let place: String = place.chars().take_while(|c| *c != ' ').collect();
            format!("it is no YAML that can be read, at {}", place.trim_end_matches(':'))
        }
    };
    Ok(yaml::parse(text).map_err(wrong)?.json())
}

/// Parses the YAML of a configuration, and recognizes the configuration file of an MCP client.
fn parsed(file: &str, text: &str) -> Result<YamlNode, ConfigProblems> {
    let wrong = |found| ConfigProblems::new(file, text, found);
    let root =
        yaml::parse(text).map_err(|found| wrong(customary::or_of_client(file, text, found)))?;
    match customary::of_client(file, text, &root) {
        Some(problem) => Err(wrong(vec![problem])),
        None => Ok(root),
    }
}

/// Compiles a parsed configuration. Problems of servers that are not needed go into the returned `UnneededServers`.
fn compiled(
    purpose: LoadPurpose,
    mut unserved: UnneededServers,
    ConfigText { file, text }: ConfigText<'_>,
    mut root: YamlNode,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<(Settings, UnneededServers), ConfigProblems> {
    let wrong = |found| ConfigProblems::new(file, text, found);
    let former_keys::FormerKeys { mut warnings, mut problems } =
        former_keys::replace(file, text, &mut root);
    let former = warnings.clone();
    let wrong = |found| wrong(found).with_warnings(former.clone());
    warnings.extend(in_clear::warnings(file, text, &root));
    let named = RefCell::new(BTreeSet::new());
    let noted = |name: &str| {
        named.borrow_mut().insert(name.to_owned());
        variables(name)
    };
    unserved.substitute(&mut root, &noted, &mut problems);
    let shape::SchemaCheck { mut json, problems: misfits, waived } =
        shape::check(&mut root, &schema(), &|at| unserved.waives(at));
    problems.extend(misfits);
    problems.extend(names::problems(&root, &|at| unserved.waives(at)));
    unserved.waived.extend(waived);
    problems.extend(selftest::trespassers(&json, &root));
    let wanted = purpose == LoadPurpose::Serving
        && json.get("selftest").is_some_and(|section| !section.is_null());
    let key = wanted.then(|| selftest::add(&mut json)).flatten();
    let raw = match serde_json::from_value(json) {
        Ok(raw) => raw,
        Err(error) => {
            // A waived problem may be the cause, so that they are reported after all.
            problems.append(&mut unserved.waived);
            if problems.is_empty() {
                problems.extend(unread(text, &root, &error));
            }
            return Err(wrong(problems));
        }
    };
    let context = CompileContext {
        text,
        root: &root,
        file: Path::new(file),
        purpose,
        variables,
        unserved: &unserved,
    };
    let settings = compile::settings(raw, context, key, problems);
    let mut settings = settings.map_err(wrong)?;
    settings.own.variables.extend(named.into_inner());
    settings.warnings = warnings;
    Ok((settings, unserved))
}

/// Why a configuration that its schema accepts was not read: a whole number that its setting has no room for, because a
/// schema does not bound each of them. If the number that `error` names is not found, the error itself.
fn unread(text: &str, root: &YamlNode, error: &serde_json::Error) -> Vec<ConfigProblem> {
    let error = error.to_string();
    let named = error.split('`').nth(1).and_then(|named| named.parse::<f64>().ok());
    let is_named = |place: &Range<usize>| {
        let number = text.get(place.clone()).and_then(|text| text.parse::<f64>().ok());
        number.zip(named).is_some_and(|(number, named)| number.total_cmp(&named).is_eq())
    };
    let too_large = root.scalars("").filter(is_named);
    let mut found: Vec<_> = too_large
        .map(|place| ConfigProblem::new(place, "this number is too large", "write a smaller one"))
        .collect();
    if found.is_empty() {
        let message = format!("the configuration cannot be read: {error}");
        found.push(ConfigProblem::new(0..0, message, "report a bug"));
    }
    found
}

#[cfg(test)]
mod tests;
