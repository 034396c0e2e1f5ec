//! Compiles the raw configuration into `Settings`: resolves names, parses numbers and reports contradictions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use policy::definition::shadow::SharedRoutes;
use policy::engine::config::{KnownNames, PolicyProblem, RawPolicy};
use policy::engine::pipeline::Policy;
use policy::rules::apps::AppPolicies;
use policy_core::subject::name::ServerName;

use super::clashes::ConfiguredFiles;
use super::compiler::{DefiningSection, SettingsCompiler};
use super::customary::Exposure;
use super::decoys::DecoyNames;
use super::problem::ConfigProblem;
use super::raw::{RawOps, RawRegistry, RawSecret, RawSettings};
use super::revoked::RevokedError;
use super::selftest::SelftestSettings;
use super::unserved::UnneededServers;
use super::variables::VariableLookup;
use super::yaml::YamlNode;
use super::{
    ApprovalSettings, AuditSettings, CallerLimits, GatewayResources, IdentitySettings, Limits,
    ListenerSettings, LoadPurpose, LogSettings, OpsListener, PinSettings, Program, RouteSettings,
    SecretRef, SelectionSettings, ServerSettings, ServerTransport, Settings, TelemetrySettings,
    TerminalUse, WebhookSettings, revoked,
};
use crate::base::sha256::sha256;

/// How long a session is valid if the configuration does not say.
const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// What a configuration is compiled from and for, besides its raw form.
#[derive(Clone, Copy)]
pub(super) struct CompileContext<'a> {
    /// The text of the file.
    pub(super) text: &'a str,
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

impl<'a> CompileContext<'a> {
    /// The folder of the file.
    fn folder(&self) -> &'a Path {
        self.file.parent().unwrap_or(Path::new(""))
    }
}

/// Compiles `raw`. `key` is the API key of the self-test, if there is one, and `misfits` are the problems that were
/// found before.
///
/// # Errors
/// Every problem.
pub(super) fn settings(
    mut raw: RawSettings,
    context: CompileContext<'_>,
    key: Option<String>,
    misfits: Vec<ConfigProblem>,
) -> Result<Settings, Vec<ConfigProblem>> {
    let CompileContext { text, root, file, purpose, variables, unserved } = context;
    let folder = context.folder();
    let here = (purpose != LoadPurpose::Reading).then_some(variables);
    let mut compiler = SettingsCompiler::new(root, folder, purpose, unserved, misfits);
    let format = raw.log.format;
    let (policy, registry) = (std::mem::take(&mut raw.policy), std::mem::take(&mut raw.registry));
    let (decoys, budgets) = (std::mem::take(&mut raw.decoys), std::mem::take(&mut raw.budgets));
    let repeated_calls = compiler.repeated_calls(raw.repeated_calls.as_ref());
    let mut compiled = compiler.sections(raw, context, key);
    compiler.clashes(&compiled.files(file));
    let policy = compiler.policy(policy, registry, &compiled, context);
    compiler.planners(&compiled.routes, policy.as_ref());
    let servers: Vec<_> = compiled.servers.iter().map(|server| server.name.clone()).collect();
    let names = DecoyNames::new(&compiled.identity, &servers, policy.as_ref());
    let decoys = compiler.decoys(decoys, &names);
    let budgets = compiler.budgets(budgets, &compiled.identity, &servers);
    let policy = policy.map(|policy| policy.with_decoys(decoys.tools.clone()));
    let own = compiler.own_resources(file, &mut compiled.servers);
    // A server without a valid name was dropped, so that the indices no longer match the file.
    if compiled.servers.len() == compiled.written {
        compiler.listed(&compiled.servers);
    }
    if let Some(variables) = here {
        compiler.secrets_are_here(variables, Exposure::of(&compiled.listeners));
    }
    if purpose == LoadPurpose::Checking {
        compiler.folders_are_here(&compiled.audit, &compiled.pins);
    }
    let json = root.json();
    let digest = compiler.digest(&json);
    let pins = compiled.pins.of(&compiled.servers);
    match policy {
        Some(policy) if compiler.problems.is_empty() => Ok(Settings {
            listeners: compiled.listeners,
            ops: compiled.ops,
            identity: compiled.identity,
            servers: compiled.servers,
            routes: compiled.routes,
            policy,
            approvals: compiled.approvals,
            approval_file: compiled.approval_file,
            approval_webhook: compiled.approval_webhook,
            budgets,
            repeated_calls,
            selection: compiled.selection,
            decoys,
            pins,
            sections: sections(&json),
            digest,
            text_digest: sha256(text.as_bytes()),
            revocations: compiled.revocations,
            audit: compiled.audit,
            telemetry: compiled.telemetry,
            log: LogSettings { format, terminal: TerminalUse::Ours },
            names: labels(&json),
            session_keys: compiled.session_keys,
            session_lifetime: compiled.session_lifetime,
            own,
            selftest: compiled.selftest,
            limits: compiled.limits,
            callers: compiled.callers,
            warnings: Vec::new(),
        }),
        Some(_) | None => Err(compiler.problems),
    }
}

/// The compiled sections of a configuration, without the policy and the registry.
struct CompiledSections {
    listeners: Vec<ListenerSettings>,
    ops: Option<OpsListener>,
    identity: IdentitySettings,
    servers: Vec<ServerSettings>,
    /// Number of servers in the file, including those that were dropped.
    written: usize,
    approvals: ApprovalSettings,
    approval_file: Option<PathBuf>,
    approval_webhook: Option<WebhookSettings>,
    routes: Vec<RouteSettings>,
    audit: AuditSettings,
    telemetry: TelemetrySettings,
    session_keys: Vec<SecretRef>,
    session_lifetime: Duration,
    limits: Limits,
    callers: Vec<CallerLimits>,
    selftest: Option<SelftestSettings>,
    selection: SelectionSettings,
    pins: PinSettings,
    revocations: Option<PathBuf>,
}

impl CompiledSections {
    /// The files that the sections name, and the configuration `file` itself.
    fn files<'a>(&'a self, file: &'a Path) -> ConfiguredFiles<'a> {
        ConfiguredFiles {
            configuration: file,
            pins: &self.pins,
            revocations: self.revocations.as_deref(),
            approvals: self.approval_file.as_deref(),
            audit: &self.audit,
            ops: self.ops.as_ref(),
            listeners: &self.listeners,
        }
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
        (name.as_str().into(), sha256(value.to_string().as_bytes()))
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
    /// Compiles every section but the policy and the registry.
    fn sections(
        &mut self,
        raw: RawSettings,
        context: CompileContext<'_>,
        key: Option<String>,
    ) -> CompiledSections {
        let folder = context.folder();
        let RawSettings { listeners, ops, identity, servers, routes, audit, .. } = raw;
        let hashes: Vec<_> = identity.api_keys.iter().map(|key| key.sha256.clone()).collect();
        let sockets = listeners.len();
        let identity = self.identity(identity);
        let listeners = self.listeners(&listeners, &identity);
        let ops = ops.and_then(|raw| self.ops(raw));
        let approvals = self.approvals(&raw.approvals, ops.as_ref());
        let approval_file = self.approval_file(raw.approvals.file.as_deref());
        let webhook = raw.approvals.webhook;
        let approval_webhook = webhook.and_then(|raw| self.webhook(raw, &approvals));
        self.ports_differ(&listeners, ops.as_ref(), sockets);
        self.keys_are_secret(&hashes, &listeners);
        let written = servers.len();
        let servers = self.servers(servers, &routes);
        let routes = self.routes(routes, &servers, &identity, &listeners);
        let audit = self.audit(audit);
        let telemetry = self.telemetry(raw.telemetry, context.variables);
        let session_keys = self.session_keys(raw.sessions.keys);
        let session_lifetime = self.session_lifetime(raw.sessions.lifetime.as_deref());
        let limits = self.limits(&raw.limits);
        let callers = self.callers(&raw.limits.callers, &limits, &identity);
        let selftest = self.selftest(raw.selftest, key);
        let selection = self.selection(raw.selection);
        let pins = self.pins(&raw.pins, folder, &servers);
        let revocations = raw.revocations.file.map(|file| self.revocations(&folder.join(file)));
        CompiledSections {
            listeners,
            ops,
            identity,
            servers,
            written,
            approvals,
            approval_file,
            approval_webhook,
            routes,
            audit,
            telemetry,
            session_keys,
            session_lifetime,
            limits,
            callers,
            selftest,
            selection,
            pins,
            revocations,
        }
    }

    /// Compiles the policy with the registry, for the callers, servers and routes of the other sections. `None` if the
    /// policy has a problem.
    fn policy(
        &mut self,
        raw: RawPolicy,
        registry: RawRegistry,
        compiled: &CompiledSections,
        context: CompileContext<'_>,
    ) -> Option<Policy> {
        let CompiledSections { identity, servers, routes, .. } = compiled;
        let principals = identity.principals();
        let names: Vec<_> = servers.iter().map(|server| server.name.clone()).collect();
        let others = identity.has_others() || self.is_doubtful(DefiningSection::Callers);
        let unnamed = self.is_doubtful(DefiningSection::Servers);
        let known = KnownNames { servers: &names, unnamed, principals: &principals, others };
        let policy = policy::engine::config::compile(raw, known);
        if let Some(policy) = context.root.json().get("policy") {
            self.prefixed_names(policy, "/policy", &names);
        }
        let registry = self.registry(registry, context.folder(), &names);
        let shared = shared(routes, servers);
        let apps =
            servers.iter().filter_map(|server| Some((server.name.clone(), server.apps.clone()?)));
        let apps = AppPolicies::new(apps);
        let policy = policy.map(|policy| {
            policy
                .with_registry(registry.known)
                .with_flow_labels(registry.flow)
                .with_routes(shared)
                .with_apps(apps)
        });
        policy.map_err(|problems| self.report_policy(problems)).ok()
    }

    /// The files and variables that the gateway itself uses. The sandboxes of `servers` keep them back.
    fn own_resources(&mut self, file: &Path, servers: &mut [ServerSettings]) -> GatewayResources {
        self.uses.files.push(file.to_owned());
        let own = std::mem::take(&mut self.uses).absolute();
        for server in servers {
            if let ServerTransport::Stdio(Program { sandbox: Some(plan), .. }) = &mut server.reach {
                plan.keep_back(&own.files, &own.believed);
            }
        }
        own
    }

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
        json::hex::encode(digest.finish().as_ref())
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
