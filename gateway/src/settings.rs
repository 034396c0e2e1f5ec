//! The configuration: read, compared with its schema, compiled.
//!
//! [`Settings`] is what the gateway runs on: every name resolved, every number a number, every
//! secret still a reference. [`load`] yields one, or every problem in the file with its place.

mod bounds;
mod compile;
mod servers;
mod problem;
mod raw;
mod shape;
mod variables;
mod yaml;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use policy::name::{GroupName, ServerName};
use policy::pipeline::Policy;
use policy::principal::Principal;

use crate::egress::Egress;
use crate::naming::Prefix;

pub use problem::Problems;
pub use shape::schema;

/// A configuration that was found good.
#[derive(Debug)]
pub struct Settings {
    /// Where clients connect; never empty.
    pub listeners: Vec<Listener>,
    /// The operator's listener.
    pub ops: Option<SocketAddr>,
    /// Callers by key.
    pub api_keys: Vec<ApiKey>,
    /// The caller without a credential.
    pub anonymous: Option<Principal>,
    /// The servers; never empty.
    pub servers: Vec<Server>,
    /// The routes; never empty.
    pub routes: Vec<Route>,
    /// The policy.
    pub policy: Policy,
    /// SHA-256 of the file after substitution, in hexadecimal: it names the policy in records.
    pub digest: String,
    /// Where records go; never empty.
    pub sinks: Vec<Sink>,
    /// The key of argument digests.
    pub digest_key: Option<SecretRef>,
    /// The keys session ids are sealed with.
    pub session_keys: Vec<SecretRef>,
    /// How long a session lives.
    pub session_lifetime: Duration,
    /// The bounds.
    pub limits: Limits,
}

/// A socket that clients connect to.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name.
    pub name: Box<str>,
    /// Where.
    pub address: SocketAddr,
    /// The ways to authenticate, in order; never empty.
    pub schemes: Vec<Scheme>,
    /// Names it answers to, in lower case, without a port.
    pub hosts: BTreeSet<Box<str>>,
    /// Origins whose pages may call it.
    pub origins: BTreeSet<Box<str>>,
}

/// A way to authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// By key.
    ApiKey,
    /// Without a credential; only on a loopback listener.
    Anonymous,
}

/// A caller's key.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
    /// Whose it is.
    pub principal: Principal,
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
    /// Each session gets a process or a connection of its own.
    pub own: bool,
    /// Where connections to its URL may go.
    pub egress: Egress,
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
#[derive(Clone, Debug)]
pub enum SecretRef {
    /// In the environment.
    Env(String),
    /// In a file.
    File(PathBuf),
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
}

/// A place for records.
#[derive(Clone, Debug)]
pub struct Sink {
    /// Its name.
    pub name: Box<str>,
    /// Where.
    pub to: SinkTarget,
}

/// Where a sink writes.
#[derive(Clone, Debug)]
pub enum SinkTarget {
    /// To a file.
    File(PathBuf),
    /// To standard output.
    Stdout,
}

/// The bounds; each is described with its key in the schema.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "described once, on the keys of the file")]
pub struct Limits {
    pub request_body: usize,
    pub response_body: usize,
    pub request_head: usize,
    pub connections: usize,
    pub in_flight: usize,
    pub request_time: Duration,
    pub connect_time: Duration,
    pub answer_time: Duration,
    pub total_time: Duration,
    pub catalog_age: Duration,
    pub tools: usize,
    pub pages: usize,
    pub sessions: usize,
    pub list_time: Duration,
    pub input_time: Duration,
    pub parked: usize,
    pub streams: usize,
    pub replay_events: usize,
    pub replay_bytes: usize,
    pub replay_memory: usize,
    pub replay_time: Duration,
    pub write_time: Duration,
    pub batch: usize,
    pub processes: usize,
    pub drain_time: Duration,
}

impl Settings {
    /// Every principal there can be.
    fn principals(api_keys: &[ApiKey], anonymous: Option<&Principal>) -> Vec<Principal> {
        api_keys.iter().map(|key| key.principal.clone()).chain(anonymous.cloned()).collect()
    }
}

/// The groups of a principal, when every name is one.
fn groups(names: &[String]) -> Result<BTreeSet<GroupName>, (usize, policy::name::NameError)> {
    names.iter().enumerate().map(|(n, name)| GroupName::parse(name).map_err(|e| (n, e))).collect()
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
    let wrong = |found| Problems::new(file, text, found);
    let mut root = yaml::parse(text).map_err(wrong)?;
    let mut problems = Vec::new();
    variables::substitute(&mut root, variables, &mut problems);
    let (json, misfits) = shape::check(&mut root);
    problems.extend(misfits);
    let compiled = serde_json::from_value(json).ok().map(|raw| compile::settings(raw, &root));
    match compiled {
        Some(Ok(settings)) if problems.is_empty() => Ok(settings),
        Some(Err(more)) => {
            problems.extend(more);
            Err(wrong(problems))
        }
        Some(Ok(_)) | None => Err(wrong(problems)),
    }
}

#[cfg(test)]
mod tests;
