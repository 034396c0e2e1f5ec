//! From what is written to what is meant: names resolved, numbers read, contradictions reported.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use policy::config::Known;
use policy::name::ServerName;
use policy::shadow::SharedRoutes;

use super::clashes::Files;
use super::customary::Exposure;
use super::problem::Problem;
use super::raw::{RawOps, RawSecret, RawSettings};
use super::revoked::RevokedError;
use super::unserved::Unserved;
use super::variables::Lookup;
use super::yaml::Node;
use super::{
    Log, Ops, Own, Program, Purpose, Reach, Route, SecretCommand, SecretRef, Server, Settings,
    Terminal, revoked,
};
use crate::clock::{Clock as _, System};

/// Most arguments of a program that says a secret.
const ARGUMENTS: usize = 64;

/// Sessions live this long unless the file says otherwise.
const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);

pub(super) fn settings(
    raw: RawSettings,
    root: &Node,
    file: &Path,
    (key, unserved): (Option<String>, &Unserved),
    (purpose, variables): (Purpose, Lookup<'_>),
    misfits: Vec<Problem>,
) -> Result<Settings, Vec<Problem>> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let here = (purpose != Purpose::Reading).then_some(variables);
    let mut compiler = Compiler {
        root,
        folder,
        purpose,
        unserved,
        problems: misfits,
        now: System.now(),
        beside: Vec::new(),
        uses: Own::default(),
        secrets: Vec::new(),
    };
    let RawSettings { listeners, ops, identity, servers, routes, policy, audit, .. } = raw;
    let hashes: Vec<_> = identity.api_keys.iter().map(|key| key.sha256.clone()).collect();
    let sockets = listeners.len();
    let identity = compiler.identity(identity);
    let listeners = compiler.listeners(&listeners, &identity);
    let ops = ops.and_then(|raw| compiler.ops(raw));
    compiler.ports_differ(&listeners, ops.as_ref(), sockets);
    compiler.keys_are_secret(&hashes, &listeners);
    let written = servers.len();
    let mut servers = compiler.servers(servers);
    let routes = compiler.routes(routes, &servers, &identity, &listeners);
    let audit = compiler.audit(audit);
    let telemetry = compiler.telemetry(raw.telemetry);
    let session_keys = raw.sessions.keys.into_iter().enumerate();
    let session_keys = session_keys
        .filter_map(|(n, raw)| compiler.secret(&format!("/sessions/keys/{n}"), raw))
        .collect();
    let session_lifetime = compiler
        .time("/sessions/lifetime", raw.sessions.lifetime.as_deref())
        .unwrap_or(SESSION_LIFETIME);
    let limits = compiler.limits(&raw.limits);
    let callers = compiler.callers(&raw.limits.callers, &limits, &identity);
    let selftest = compiler.selftest(raw.selftest, key);
    let pins = compiler.pins(&raw.pins, folder, &servers);
    let revocations = raw.revocations.file.map(|file| folder.join(file));
    compiler.uses.files.extend(revocations.clone());
    if let Some(file) = &revocations
        && let Err(error) = revoked::read(file)
    {
        // A missing file is not taken for an empty one: a restart would lift what it revoked.
        let help = match &error {
            RevokedError::Read(_, cause) if cause.kind() == io::ErrorKind::NotFound => {
                "before the first start write `{}` into it, which revokes nothing; one that was lost has to be put back, \
                 because all that it revoked would be lifted"
            }
            _ => "give a file with the lists that are revoked, or `{}` in it where nothing is",
        };
        compiler.report("/revocations/file", error.to_string(), help);
    }
    compiler.clashes(&Files {
        configuration: file,
        pins: &pins,
        revocations: revocations.as_deref(),
        audit: &audit,
        ops: ops.as_ref(),
        listeners: &listeners,
    });
    let principals = identity.principals();
    let names: Vec<_> = servers.iter().map(|server| server.name.clone()).collect();
    let others = identity.has_others() || compiler.is_doubtful(Defining::Callers);
    let unnamed = compiler.is_doubtful(Defining::Servers);
    let known = Known { servers: &names, unnamed, principals: &principals, others };
    let policy = policy::config::compile(policy, known);
    if let Some(policy) = root.json().get("policy") {
        compiler.prefixed_names(policy, "/policy", &names);
    }
    let registry = compiler.registry(raw.registry, folder, &names);
    let shared = shared(&routes, &servers);
    let policy = policy.map(|policy| policy.with_registry(registry).with_routes(shared));
    let policy = policy.map_err(|problems| {
        for policy::config::Problem { at, message, help } in problems {
            compiler.report(&format!("/policy{at}"), message, help);
        }
    });
    compiler.uses.files.push(file.to_owned());
    let own = std::mem::take(&mut compiler.uses).absolute();
    for server in &mut servers {
        if let Reach::Stdio(Program { sandbox: Some(plan), .. }) = &mut server.reach {
            plan.keep_back(&own.files, &own.believed);
        }
    }
    // One that has no name stands no longer where it is written.
    if servers.len() == written {
        compiler.listed(&servers, here.is_some());
    }
    if let Some(variables) = here {
        compiler.secrets_are_here(variables, Exposure::of(&listeners));
    }
    if purpose == Purpose::Checking {
        compiler.folders_are_here(&audit, &pins);
    }
    let json = root.json();
    let mut digest = digest::Context::new(&digest::SHA256);
    digest.update(json.to_string().as_bytes());
    compiler.beside.iter().for_each(|file| digest.update(file));
    let pins = pins.of(&servers);
    match policy {
        Ok(policy) if compiler.problems.is_empty() => Ok(Settings {
            listeners,
            ops,
            identity,
            servers,
            routes,
            policy,
            pins,
            sections: sections(&json),
            digest: crate::hex::encode(digest.finish().as_ref()),
            revocations,
            audit,
            telemetry,
            log: Log { format: raw.log.format, terminal: Terminal::Ours },
            names: labels(&json),
            session_keys,
            session_lifetime,
            own,
            selftest,
            limits,
            callers,
            in_clear: Vec::new(),
        }),
        Ok(_) | Err(()) => Err(compiler.problems),
    }
}

/// Which servers are offered to one client together.
fn shared(routes: &[Route], servers: &[Server]) -> SharedRoutes {
    let names = |route: &Route| -> Vec<ServerName> {
        route.servers.iter().filter_map(|at| servers.get(*at)).map(|s| s.name.clone()).collect()
    };
    SharedRoutes::of(routes.iter().map(names))
}

/// The digest of each section, to tell what has changed.
fn sections(root: &serde_json::Value) -> BTreeMap<Box<str>, [u8; 32]> {
    let section = |(name, value): (&String, &serde_json::Value)| {
        (name.as_str().into(), crate::sha256::sha256(value.to_string().as_bytes()))
    };
    root.as_object().into_iter().flatten().map(section).collect()
}

/// The names of tools and prompts that rules and the registry name: what metrics may be labelled with.
fn labels(root: &serde_json::Value) -> BTreeSet<Arc<str>> {
    let mut found = BTreeSet::new();
    let rules = root.pointer("/policy/rules").and_then(|rules| rules.as_array());
    for rule in rules.into_iter().flatten() {
        for kind in ["tools", "prompts"] {
            let patterns = rule.get(kind).and_then(|patterns| patterns.as_array());
            let patterns = patterns.into_iter().flatten().filter_map(|pattern| pattern.as_str());
            found.extend(patterns.filter(|name| !name.contains(['*', '?'])).map(Arc::from));
        }
    }
    let tools = root.pointer("/registry/tools").and_then(|tools| tools.as_array());
    let tools = tools.into_iter().flatten().filter_map(|tool| tool.get("tool")?.as_str());
    found.extend(tools.filter(|name| !name.contains(['*', '?'])).map(Arc::from));
    found
}

/// A section that others refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defining {
    /// `identity`, by the names and groups of callers, and by those who vouch for them.
    Callers,
    /// `servers`, by their names.
    Servers,
}

impl Defining {
    /// Its JSON Pointer.
    const fn section(self) -> &'static str {
        match self {
            Self::Callers => "/identity",
            Self::Servers => "/servers",
        }
    }
}

/// A secret that is to be found when something is served.
pub(super) struct SoughtSecret {
    /// The place in the file that says where it is.
    pub(super) at: String,
    /// Where it is.
    pub(super) secret: SecretRef,
    /// What is put before it in a header: `Bearer `; nothing for most.
    pub(super) prefix: Box<str>,
}

impl SoughtSecret {
    fn new(at: String, secret: SecretRef) -> Self {
        Self { at, secret, prefix: Box::default() }
    }
}

/// Reads the parts and keeps what is wrong with them.
pub(super) struct Compiler<'a> {
    root: &'a Node,
    /// The folder of the configuration: paths in it are from there.
    folder: &'a Path,
    /// What it is read for.
    purpose: Purpose,
    /// The servers that are not needed for that.
    pub(super) unserved: &'a Unserved,
    /// With those of the schema, which were found first.
    problems: Vec<Problem>,
    /// The digests of files beside the configuration that are part of it, in the order they were read.
    pub(super) beside: Vec<[u8; 32]>,
    /// What the gateway itself uses.
    pub(super) uses: Own,
    /// The secrets that are to be found.
    pub(super) secrets: Vec<SoughtSecret>,
    /// What certificates must not have ended at.
    pub(super) now: SystemTime,
}

impl Compiler<'_> {
    pub(super) fn report(&mut self, at: &str, message: impl Into<String>, help: impl Into<String>) {
        if self.unserved.waives(at) {
            return;
        }
        let problem = Problem::new(self.root.place(at), message, help);
        // What a mapping lacks because of an unknown key in it is not said beside that key, and of a key that is missing
        // nothing else is said.
        let is_cause = |cause: &Problem| problem.follows(cause) || cause.is_of_missing(at);
        if !self.problems.iter().any(is_cause) {
            self.problems.push(problem);
        }
    }

    /// Reports a reference to something that a section does not define, unless what is wrong with that section may be why.
    pub(super) fn report_reference(
        &mut self,
        defining: Defining,
        at: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if !self.is_doubtful(defining) {
            self.report(at, message, help);
        }
    }

    /// Whether something is wrong with a section, so that it may define more than what was understood of it.
    pub(super) fn is_doubtful(&self, defining: Defining) -> bool {
        let section = defining.section();
        let found = self.root.node(section);
        let places: Vec<_> = match defining {
            Defining::Callers => found.map(|node| node.span.clone()).into_iter().collect(),
            // A server stands by its name, whatever else is wrong with it.
            Defining::Servers => {
                let name = |n| self.root.node(&format!("{section}/{n}/name"));
                (0..).map_while(name).map(|node| node.span.clone()).collect()
            }
        };
        let misplaced = |problem: &Problem| {
            problem.is_meant_as(section)
                || problem.is_of_missing(section)
                || places.iter().any(|place| problem.is_within(place))
        };
        self.problems.iter().any(misplaced)
    }

    /// Whether a section is missing, or a key in it that has to be there: it may be meant to say more than it does.
    pub(super) fn is_incomplete(&self, section: &str) -> bool {
        let is_within = |key: &str| {
            key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.problems.iter().filter_map(Problem::missing_key).any(is_within)
    }

    /// The same, without showing what is written there: it may be a secret.
    pub(super) fn report_hiding(
        &mut self,
        at: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.unserved.waives(at) {
            return;
        }
        let problem = Problem::new(self.root.place(at), message, help);
        self.problems.push(problem.hiding(self.root.scalars(at)));
    }

    /// Where a path in the configuration leads: one that is not absolute is from the folder of the file, whatever
    /// folder the process was started in.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// The same for a file of records, which only one process can write to: a process that serves one client over
    /// standard input and output has one of its own beside it, `FILE.stdio-N`. Pipes and devices take several writers.
    pub(super) fn of_process(&self, text: &str) -> PathBuf {
        let path = self.path(text);
        let Purpose::Stdio(number) = self.purpose else { return path };
        if std::fs::metadata(&path).is_ok_and(|data| !data.is_file()) {
            return path;
        }
        super::file_of_process(&path, number)
    }

    /// Reports a list with nothing in it.
    pub(super) fn filled<T>(&mut self, at: &str, list: &[T], help: &str) {
        if list.is_empty() {
            self.report(at, "the list is empty", help);
        }
    }

    /// Reports a name used before.
    pub(super) fn unique(&mut self, at: &str, name: &str, seen: &mut BTreeSet<String>) {
        if !seen.insert(name.to_owned()) {
            let message = format!("`{}` is used twice", name.escape_debug());
            let help = if name.starts_with('/') {
                "give each route its own path, or put the servers of both into one route"
            } else {
                "give each its own name"
            };
            self.report(at, message, help);
        }
    }

    fn ops(&mut self, raw: RawOps) -> Option<Ops> {
        let token = raw.token.and_then(|raw| self.secret("/ops/token", raw));
        let address = self.address("/ops/address", &raw.address)?;
        if token.is_some() && !address.ip().is_loopback() {
            let help = "bind it to 127.0.0.1; it speaks plain HTTP";
            self.report("/ops/token", "the token would be sent in the clear", help);
        }
        let mut hosts = self.host_names("/ops", &raw.hosts);
        hosts.insert("localhost".into());
        Some(Ops { address, hosts, token })
    }

    pub(super) fn address(&mut self, at: &str, text: &str) -> Option<SocketAddr> {
        let text = text.replacen("localhost:", "127.0.0.1:", 1);
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                let message = format!("`{}` is not an address and port", text.escape_debug());
                self.report(at, message, "write `127.0.0.1:8080`, `[::1]:8080` or `0.0.0.0:8080`");
                None
            }
        }
    }

    /// A secret in a variable, which is kept from programs.
    pub(super) fn secret_in_variable(&mut self, at: &str, variable: String) -> SecretRef {
        self.uses.variables.insert(variable.clone());
        let secret = SecretRef::Env(variable);
        self.secrets.push(SoughtSecret::new(format!("{at}/fromEnv"), secret.clone()));
        secret
    }

    /// A secret in a file, which is kept from programs.
    pub(super) fn secret_in_file(&mut self, at: &str, file: &str) -> SecretRef {
        let file = self.path(file);
        self.uses.files.push(file.clone());
        let secret = SecretRef::File(file);
        self.secrets.push(SoughtSecret::new(format!("{at}/fromFile"), secret.clone()));
        secret
    }

    pub(super) fn secret(&mut self, at: &str, raw: RawSecret) -> Option<SecretRef> {
        let times = [
            ("cacheTime", raw.cache_time.is_some()),
            ("timeout", raw.timeout.is_some()),
            ("maxStale", raw.max_stale.is_some()),
        ];
        for (key, _) in times.iter().filter(|(_, given)| *given && raw.from_command.is_none()) {
            let message = format!("`{key}` belongs to `fromCommand`");
            self.report(&format!("{at}/{key}"), message, "remove it");
        }
        match raw {
            RawSecret { from_env: Some(variable), from_file: None, from_command: None, .. } => {
                Some(self.secret_in_variable(at, variable))
            }
            RawSecret { from_env: None, from_file: Some(file), from_command: None, .. } => {
                Some(self.secret_in_file(at, &file))
            }
            RawSecret { from_env: None, from_file: None, from_command: Some(line), .. } => {
                let times = [&raw.cache_time, &raw.timeout, &raw.max_stale];
                self.secret_of_program(at, line, times.map(|time| time.as_deref()))
            }
            _ => {
                let help = "give exactly one of `fromEnv`, `fromFile` and `fromCommand`";
                self.report(at, "it is not clear where the secret is", help);
                None
            }
        }
    }

    /// A secret that a program says; the times are `cacheTime`, `timeout` and `maxStale`.
    fn secret_of_program(
        &mut self,
        at: &str,
        line: Vec<String>,
        [cache_time, timeout, max_stale]: [Option<&str>; 3],
    ) -> Option<SecretRef> {
        const MINUTE: Duration = Duration::from_secs(60);
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let command = format!("{at}/fromCommand");
        let mut words = line.into_iter();
        let program = words.next().map(PathBuf::from);
        let args: Vec<_> = words.collect();
        if args.len() > ARGUMENTS || args.iter().any(|arg| arg.contains('\0')) {
            let message = format!("more than {ARGUMENTS} arguments, or one with a NUL in it");
            self.report(&command, message, "write a script, and name that");
        }
        let Some(program) = program.filter(|program| program.is_absolute()) else {
            let help = "write a list: `[/usr/bin/vault, kv, get, -field=token, secret/crm]`; no shell reads it and no \
                        `PATH` is searched";
            self.report(&command, "it does not begin with the absolute path of a program", help);
            return None;
        };
        let mut time = |key: &str, text, usual, most| {
            self.time_within(&format!("{at}/{key}"), text, usual, most)
        };
        let cache_time = time("cacheTime", cache_time, MINUTE * 5, DAY);
        let timeout = time("timeout", timeout, MINUTE / 6, MINUTE);
        let max_stale = time("maxStale", max_stale, MINUTE * 60, DAY);
        let secret = SecretCommand { program, args, cache_time, timeout, max_stale };
        // Programs behind the gateway may run it as well, and must not change it or what it runs.
        self.uses.believed.push(secret.program.clone());
        match secret.named() {
            Ok(named) => self.uses.believed.extend(named),
            Err(error) => {
                let message = format!("it cannot be looked at what the program runs: {error}");
                self.report(
                    &command,
                    message,
                    "write a script that says the secret, and name that",
                );
            }
        }
        let secret = SecretRef::Command(Box::new(secret));
        self.secrets.push(SoughtSecret::new(command, secret.clone()));
        Some(secret)
    }
}
