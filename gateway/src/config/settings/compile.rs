//! Compiles the raw configuration into `Settings`: resolves names, parses numbers and reports contradictions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use policy::config::{KnownNames, PolicyProblem};
use policy::name::ServerName;
use policy::shadow::SharedRoutes;

use super::clashes::ConfiguredFiles;
use super::compiler::{DefiningSection, SettingsCompiler};
use super::customary::Exposure;
use super::problem::ConfigProblem;
use super::raw::{RawOps, RawSecret, RawSettings};
use super::revoked::RevokedError;
use super::unserved::UnneededServers;
use super::variables::VariableLookup;
use super::yaml::YamlNode;
use super::{
    LoadPurpose, LogSettings, OpsListener, Program, RouteSettings, SecretRef, ServerSettings,
    ServerTransport, Settings, TerminalUse, revoked,
};

/// How long a session is valid if the configuration does not say.
const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// What a configuration is compiled from and for, besides its raw form.
#[derive(Clone, Copy)]
pub(super) struct CompileContext<'a> {
    /// The parsed file, for the places of problems.
    pub(super) root: &'a YamlNode,
    /// The path of the file, to whose folder other paths are relative.
    pub(super) file: &'a Path,
    /// What the configuration is compiled for.
    pub(super) purpose: LoadPurpose,
    /// The environment variables of this machine.
    pub(super) variables: VariableLookup<'a>,
    /// The servers whose secrets may be missing.
    pub(super) unserved: &'a UnneededServers,
}

/// Compiles `raw`. `key` is the API key of the self-test, if there is one, and `misfits` are the problems that were
/// found before.
///
/// # Errors
/// Every problem.
pub(super) fn settings(
    raw: RawSettings,
    context: CompileContext<'_>,
    key: Option<String>,
    misfits: Vec<ConfigProblem>,
) -> Result<Settings, Vec<ConfigProblem>> {
    let CompileContext { root, file, purpose, variables, unserved } = context;
    let folder = file.parent().unwrap_or(Path::new(""));
    let here = (purpose != LoadPurpose::Reading).then_some(variables);
    let mut compiler = SettingsCompiler::new(root, folder, purpose, unserved, misfits);
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
    let session_keys = compiler.session_keys(raw.sessions.keys);
    let session_lifetime = compiler.session_lifetime(raw.sessions.lifetime.as_deref());
    let limits = compiler.limits(&raw.limits);
    let callers = compiler.callers(&raw.limits.callers, &limits, &identity);
    let selftest = compiler.selftest(raw.selftest, key);
    let pins = compiler.pins(&raw.pins, folder, &servers);
    let revocations = raw.revocations.file.map(|file| compiler.revocations(&folder.join(file)));
    compiler.clashes(&ConfiguredFiles {
        configuration: file,
        pins: &pins,
        revocations: revocations.as_deref(),
        audit: &audit,
        ops: ops.as_ref(),
        listeners: &listeners,
    });
    let principals = identity.principals();
    let names: Vec<_> = servers.iter().map(|server| server.name.clone()).collect();
    let others = identity.has_others() || compiler.is_doubtful(DefiningSection::Callers);
    let unnamed = compiler.is_doubtful(DefiningSection::Servers);
    let known = KnownNames { servers: &names, unnamed, principals: &principals, others };
    let policy = policy::config::compile(policy, known);
    if let Some(policy) = root.json().get("policy") {
        compiler.prefixed_names(policy, "/policy", &names);
    }
    let registry = compiler.registry(raw.registry, folder, &names);
    let shared = shared(&routes, &servers);
    let policy = policy.map(|policy| policy.with_registry(registry).with_routes(shared));
    let policy = policy.map_err(|problems| compiler.report_policy(problems));
    compiler.uses.files.push(file.to_owned());
    let own = std::mem::take(&mut compiler.uses).absolute();
    for server in &mut servers {
        if let ServerTransport::Stdio(Program { sandbox: Some(plan), .. }) = &mut server.reach {
            plan.keep_back(&own.files, &own.believed);
        }
    }
    // A server without a valid name was dropped, so that the indices no longer match the file.
    if servers.len() == written {
        compiler.listed(&servers);
    }
    if let Some(variables) = here {
        compiler.secrets_are_here(variables, Exposure::of(&listeners));
    }
    if purpose == LoadPurpose::Checking {
        compiler.folders_are_here(&audit, &pins);
    }
    let json = root.json();
    let digest = compiler.digest(&json);
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
            digest,
            revocations,
            audit,
            telemetry,
            log: LogSettings { format: raw.log.format, terminal: TerminalUse::Ours },
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

/// Which servers share a route.
fn shared(routes: &[RouteSettings], servers: &[ServerSettings]) -> SharedRoutes {
    let names = |route: &RouteSettings| -> Vec<ServerName> {
        route.servers.iter().filter_map(|at| servers.get(*at)).map(|s| s.name.clone()).collect()
    };
    SharedRoutes::of(routes.iter().map(names))
}

/// SHA-256 of each section, to detect which of them changed.
fn sections(root: &serde_json::Value) -> BTreeMap<Box<str>, [u8; 32]> {
    let section = |(name, value): (&String, &serde_json::Value)| {
        (name.as_str().into(), crate::base::sha256::sha256(value.to_string().as_bytes()))
    };
    root.as_object().into_iter().flatten().map(section).collect()
}

/// The tool and prompt names in rules and the registry, which metrics may use as label values.
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

impl SettingsCompiler<'_> {
    fn session_keys(&mut self, keys: Vec<RawSecret>) -> Vec<SecretRef> {
        let keys = keys.into_iter().enumerate();
        keys.filter_map(|(n, raw)| self.secret(&format!("/sessions/keys/{n}"), raw)).collect()
    }

    fn session_lifetime(&mut self, text: Option<&str>) -> Duration {
        self.time("/sessions/lifetime", text).unwrap_or(SESSION_LIFETIME)
    }

    /// Checks that the revocation file can be read.
    fn revocations(&mut self, file: &Path) -> PathBuf {
        self.uses.files.push(file.to_owned());
        if let Err(error) = revoked::read(file) {
            // A missing file must not count as an empty one: a restart would lift all revocations.
            let help = match &error {
                RevokedError::Read(_, cause) if cause.kind() == io::ErrorKind::NotFound => {
                    "before the first start write `{}` into it, which revokes nothing; one that was lost has to be put back, \
                     because all that it revoked would be lifted"
                }
                _ => "give a file with the lists that are revoked, or `{}` in it where nothing is",
            };
            self.report("/revocations/file", error.to_string(), help);
        }
        file.to_owned()
    }

    fn report_policy(&mut self, problems: Vec<PolicyProblem>) {
        for PolicyProblem { at, message, help } in problems {
            self.report(&format!("/policy{at}"), message, help);
        }
    }

    /// The SHA-256 of the configuration and of the files beside it that it consists of.
    fn digest(&self, root: &serde_json::Value) -> String {
        let mut digest = digest::Context::new(&digest::SHA256);
        digest.update(root.to_string().as_bytes());
        self.beside.iter().for_each(|file| digest.update(file));
        crate::base::hex::encode(digest.finish().as_ref())
    }

    fn ops(&mut self, raw: RawOps) -> Option<OpsListener> {
        let token = raw.token.and_then(|raw| self.secret("/ops/token", raw));
        let address = self.address("/ops/address", &raw.address)?;
        if token.is_some() && !address.ip().is_loopback() {
            let help = "bind it to 127.0.0.1; it speaks plain HTTP";
            self.report("/ops/token", "the token would be sent in the clear", help);
        }
        let mut hosts = self.host_names("/ops", &raw.hosts);
        hosts.insert("localhost".into());
        Some(OpsListener { address, hosts, token })
    }
}
