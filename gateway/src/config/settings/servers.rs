//! Compiles the `servers` and `routes` sections, and checks that the secrets and directories of a configuration
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use policy::engine::ask::{
    FormPolicy, ModelHintAction, PersonalFormData, RootsPolicy, SamplingExcessAction,
    SamplingPolicy, SecretFormAction, ServerRequestPolicy, StandingGrantAction, UrlPolicy,
};
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;

use super::compiler::{DefiningSection, RequiredSecret, SettingsCompiler};
use super::credentials::repeats_scheme;
use super::customary::{Exposure, is_well_known};
use super::raw::{
    RawCircuitBreaker, RawFiles, RawFormSecrets, RawModelHints, RawOrigin, RawPrefix, RawProtocol,
    RawReachable, RawRoute, RawSamplingOver, RawSandbox, RawSandboxMode, RawSecret, RawServer,
    RawServerRequests, RawSharing, RawStandingGrants, RawTransport, RawVariable,
};
use super::registry;
use super::{
    AuditSettings, CircuitBreaker, IdentitySettings, ListenerSettings, LoadPurpose, PinSettings,
    ProcessSharing, Program, RouteSettings, SECRET, SecretRef, ServerConcurrency, ServerProtocol,
    ServerSettings, ServerTransport, SinkTarget, VariableValue,
};
use crate::base::file;
use crate::mcp::tool_naming::{self, PrefixMode};
use crate::net::egress::{self, Egress};
use crate::process::sandbox::{self, ListedUse, NetworkAccess, SandboxPlan, UnlistedFiles};

/// The default failure threshold of the circuit breaker, and its default pause.
const FAILURES: NonZeroU32 = NonZeroU32::new(5).unwrap();
const OPEN_FOR: Duration = Duration::from_secs(30);

/// The default limits of a sampling request: tokens of the answer, messages, and bytes.
const MAX_TOKENS: u64 = 4096;
const MESSAGES: usize = 32;
const SAMPLING: usize = 64 * 1024;
const SAMPLING_ANSWER: usize = 256 * 1024;

/// The default rate of a server's requests to each caller.
const REQUEST_RATE: &str = "60/m";

/// Whether elicitations of the server `name` begin with its name.
fn is_named(origin: RawOrigin, name: &String, routes: &[RawRoute]) -> bool {
    match origin {
        RawOrigin::Auto => {
            routes.iter().any(|route| route.servers.len() > 1 && route.servers.contains(name))
        }
        RawOrigin::Always => true,
        RawOrigin::Never => false,
    }
}

/// The patterns that these texts are.
fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text)).collect()
}

/// What to do about a secret that does not exist on this machine.
const fn help_for_missing(secret: &SecretRef) -> &'static str {
    match secret {
        // Nobody can change the environment of a process that runs.
        SecretRef::Env(_) => {
            "set it and restart the gateway with it, or use `fromFile`; `validate --elsewhere` checks a configuration \
             for another machine"
        }
        SecretRef::File(_) | SecretRef::Command(_) => {
            "put it there; `validate --elsewhere` checks a configuration for another machine"
        }
    }
}

impl SettingsCompiler<'_> {
    /// `routes` decide which servers users have to be told apart from others.
    pub(super) fn servers(
        &mut self,
        raws: Vec<RawServer>,
        routes: &[RawRoute],
    ) -> Vec<ServerSettings> {
        self.filled("/servers", &raws, "add at least one server");
        let mut seen = BTreeSet::new();
        let server = |(n, mut raw): (usize, RawServer)| {
            let at = format!("/servers/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut seen);
            let protocol = match raw.protocol {
                RawProtocol::Auto => ServerProtocol::Auto,
                RawProtocol::Modern => ServerProtocol::Modern,
                RawProtocol::Legacy => ServerProtocol::Legacy,
            };
            let name = self.server_name(&format!("{at}/name"), &raw.name)?;
            let sharing = match raw.sharing {
                None => ProcessSharing::AsNeeded,
                Some(RawSharing::Shared) => ProcessSharing::Shared,
                Some(RawSharing::PerSession) => ProcessSharing::PerSession,
            };
            if sharing == ProcessSharing::PerSession
                && raw.url.is_some()
                && raw.transport == RawTransport::StreamableHttp
            {
                let help =
                    "remove it: every session has its own anyway where a server keeps sessions";
                let message = "`sharing` belongs to a `command` or to `transport: httpSse`";
                self.report(&format!("{at}/sharing"), message, help);
            }
            let egress = self.egress(&at, &raw);
            let (tls, credential, headers) = self.shown(&at, &mut raw);
            let circuit_breaker = raw.circuit_breaker.take().map(|raw| self.breaker(&at, &raw));
            let concurrency = self.concurrency(&at, &raw);
            let server_requests = std::mem::take(&mut raw.server_requests);
            let is_named = is_named(server_requests.origin, &raw.name, routes);
            let mut server_requests =
                self.server_requests(&format!("{at}/serverRequests"), server_requests);
            server_requests.named = Some(name.clone()).filter(|_| is_named);
            let client_meta = raw.client_meta.take().map(|keys| patterns(&keys));
            let apps = raw.apps.take().map(|raw| self.apps(&format!("{at}/apps"), raw));
            let resources = raw.resources;
            let overrides = std::mem::take(&mut raw.overrides);
            let overrides = Arc::new(self.overrides(&format!("{at}/overrides"), overrides));
            // The name stays defined even if the transport is invalid, so that references to it are not reported.
            let reach =
                self.reach(&at, raw).unwrap_or_else(|| ServerTransport::Http(Uri::default()));
            Some(ServerSettings {
                name,
                reach,
                protocol,
                sharing,
                egress,
                tls,
                credential,
                headers,
                circuit_breaker,
                concurrency,
                server_requests,
                client_meta,
                apps,
                resources,
                overrides,
            })
        };
        raws.into_iter().enumerate().filter_map(server).collect()
    }

    fn server_name(&mut self, at: &str, text: &str) -> Option<ServerName> {
        match ServerName::parse(text) {
            Ok(name) => {
                if text.contains("__") || text.ends_with('_') {
                    let help = "`__` stands between server and tool; use `-` in the name";
                    self.report(at, "the name has `__` in it or ends in `_`", help);
                }
                Some(name)
            }
            Err(error) => {
                self.report(at, format!("the name {error}"), "rename it");
                None
            }
        }
    }

    /// Compiles the `circuitBreaker` of a server or service.
    pub(super) fn breaker(&mut self, at: &str, raw: &RawCircuitBreaker) -> CircuitBreaker {
        let at = format!("{at}/circuitBreaker/openFor");
        // INVARIANT: the schema requires at least 1.
        let failures = raw.failures.and_then(NonZeroU32::new).unwrap_or(FAILURES);
        let open_for = self.time(&at, raw.open_for.as_deref()).unwrap_or(OPEN_FOR);
        CircuitBreaker { failures, open_for }
    }

    /// Compiles `maxConcurrent` and `maxConcurrentPerCaller` of a server.
    fn concurrency(&mut self, at: &str, raw: &RawServer) -> Option<ServerConcurrency> {
        let share = format!("{at}/maxConcurrentPerCaller");
        let (Some(all), per_caller) = (raw.max_concurrent, raw.max_concurrent_per_caller) else {
            if raw.max_concurrent_per_caller.is_some() {
                let help = "give `maxConcurrent` as well";
                self.report(&share, "this is a share of what has no limit", help);
            }
            return None;
        };
        if per_caller.is_some_and(|per_caller| per_caller > all) {
            let help = "give at most `maxConcurrent`";
            self.report(&share, "the share of one caller is larger than the whole", help);
        }
        Some(ServerConcurrency { all, per_caller: per_caller.unwrap_or(all.div_ceil(2)) })
    }

    /// Compiles the `serverRequests` of a server.
    fn server_requests(&mut self, at: &str, raw: RawServerRequests) -> ServerRequestPolicy {
        let RawServerRequests {
            form_elicitation: forms,
            url_elicitation: urls,
            sampling,
            roots,
            rate,
            origin: _,
        } = raw;
        let rate = rate.as_deref().unwrap_or(REQUEST_RATE);
        let parsed = registry::rate(rate);
        if parsed.is_none() {
            let message = format!("`{}` is not a rate", rate.escape_debug());
            self.report(&format!("{at}/rate"), message, "write a number and a unit: `60/m`");
        }
        let forms = forms.map(|raw| FormPolicy {
            secrets: match raw.secrets {
                RawFormSecrets::Refuse => SecretFormAction::Refuse,
                RawFormSecrets::Allow => SecretFormAction::Allow,
            },
            personal: raw.personal_data.map_or_else(PersonalFormData::default, |kinds| {
                PersonalFormData(kinds.into_iter().collect())
            }),
            standing: standing(raw.standing_grants),
        });
        let urls = urls.map(|raw| UrlPolicy {
            hosts: self.page_hosts(&format!("{at}/urlElicitation/hosts"), &raw.hosts),
            standing: standing(raw.standing_grants),
        });
        let sampling = sampling.map(|raw| {
            let size = self.size(&format!("{at}/sampling/maxSize"), raw.max_size.as_deref());
            let answer_size =
                self.size(&format!("{at}/sampling/maxAnswerSize"), raw.max_answer_size.as_deref());
            // INVARIANT: the schema requires at least 1 of each.
            SamplingPolicy {
                max_tokens: raw.max_tokens.map_or(MAX_TOKENS, u64::from),
                messages: raw.max_messages.unwrap_or(MESSAGES),
                size: size.unwrap_or(SAMPLING),
                answer_size: answer_size.unwrap_or(SAMPLING_ANSWER),
                over: match raw.on_exceeded {
                    RawSamplingOver::Refuse => SamplingExcessAction::Refuse,
                    RawSamplingOver::Cut => SamplingExcessAction::Cut,
                },
                hints: match raw.model_hints {
                    RawModelHints::Drop => ModelHintAction::Drop,
                    RawModelHints::Keep => ModelHintAction::Keep,
                },
            }
        });
        let roots = roots.map(|raw| RootsPolicy {
            only: raw.only.map(|list| self.granted_roots(&format!("{at}/roots/only"), &list)),
        });
        ServerRequestPolicy { forms, urls, sampling, roots, rate: parsed, named: None }
    }

    /// Compiles the patterns of the roots that a server may know of.
    fn granted_roots(&mut self, at: &str, list: &[String]) -> Vec<Pattern> {
        self.filled(at, list, "name the roots, such as `file:///srv/projects/*`");
        let mut patterns = Vec::with_capacity(list.len());
        for (n, text) in list.iter().enumerate() {
            match Pattern::resource(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => {
                    let message = format!("`{}` {error}", text.escape_debug());
                    let help = "write a URI in its usual form, with `*` for what differs";
                    self.report(&format!("{at}/{n}"), message, help);
                }
            }
        }
        patterns
    }

    /// Compiles the hosts of web pages that users may be sent to.
    fn page_hosts(&mut self, at: &str, list: &[String]) -> Vec<Pattern> {
        self.filled(at, list, "name the hosts, such as `login.example.com`");
        let known = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'*' | b'?' | b':' | b'[' | b']');
        for (n, host) in list.iter().enumerate() {
            if host.is_empty() || !host.bytes().all(known) {
                let message = format!("`{}` is not the name of a host", host.escape_debug());
                let help =
                    "write it in lower case, without a scheme or a path: `login.example.com`";
                self.report(&format!("{at}/{n}"), message, help);
            }
        }
        patterns(list)
    }

    /// Compiles the networks that connections to the server may go to.
    fn egress(&mut self, at: &str, raw: &RawServer) -> Egress {
        let uri = raw.url.as_deref().and_then(|url| url.parse::<Uri>().ok());
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let usual = Egress::usual(host);
        let (egress, at) = match &raw.egress {
            None => (usual, format!("{at}/url")),
            Some(list) => {
                let at = format!("{at}/egress");
                if raw.url.is_none() {
                    let help = "remove it: what a program connects to is not seen here";
                    self.report(&at, "`egress` belongs to a `url`", help);
                }
                (self.networks(&at, list), at)
            }
        };
        // A name is resolved when it is needed; an address can be checked now.
        let address = host.trim_matches(['[', ']']).parse().ok();
        if let Some(address) = address.filter(|address| !egress.admits(*address)) {
            let (message, help) = if egress::is_never(address) {
                let never = "link-local, multicast and metadata addresses are never connected to";
                (never.to_owned(), "give the address of a server")
            } else {
                (format!("`egress` does not admit {address}"), "add a network that has it")
            };
            self.report(&at, message, help);
        }
        egress
    }

    /// Compiles a list of networks.
    pub(super) fn networks(&mut self, at: &str, list: &[String]) -> Egress {
        self.filled(at, list, "name the networks, such as `public` or `10.0.0.0/8`");
        let networks = list.iter().enumerate().filter_map(|(n, text)| {
            let help = "write `public`, `private`, `loopback` or a prefix like `10.0.0.0/8`";
            let refused = |error| format!("`{}`: {error}", text.escape_debug());
            let read = text.parse().map_err(refused);
            read.map_err(|message| self.report(&format!("{at}/{n}"), message, help)).ok()
        });
        Egress::new(networks.collect())
    }

    fn reach(&mut self, at: &str, mut raw: RawServer) -> Option<ServerTransport> {
        match (raw.url.take(), raw.command.take()) {
            (Some(url), None) => self.url(at, &url, &raw),
            (None, Some(command)) => Some(ServerTransport::Stdio(self.stdio(at, command, raw))),
            (Some(_), Some(_)) => {
                self.report(at, "a server has `url` or `command`, not both", "remove one of them");
                None
            }
            (None, None) => {
                self.report(
                    at,
                    "a server needs `url` or `command`",
                    "add the one it is reached by",
                );
                None
            }
        }
    }

    /// Compiles the transport of a server at a URL.
    fn url(&mut self, at: &str, url: &str, raw: &RawServer) -> Option<ServerTransport> {
        let stdio_only = !raw.args.is_empty() || !raw.env.is_empty() || raw.sandbox.is_some();
        if stdio_only || raw.working_directory.is_some() {
            let help = "remove them, or use `command` instead of `url`";
            let message = "`args`, `env`, `workingDirectory` and `sandbox` belong to a `command`";
            self.report(at, message, help);
        }
        let uri = url.parse::<Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.authority().is_some_and(|a| !a.as_str().contains('@'))
        });
        if uri.is_none() {
            let message = format!("`{}` is not the URL of a server", url.escape_debug());
            let help = "write `http://host:port/path` or `https://host/path`";
            self.report(&format!("{at}/url"), message, help);
        }
        let clear = uri.as_ref().is_some_and(egress::is_in_the_clear);
        if clear && !raw.insecure {
            let message = "`http` to another machine: what is said can be read and changed";
            let help = "write `https`, or `insecure: true` if something else protects it";
            self.report(&format!("{at}/url"), message, help);
        }
        if raw.insecure && !clear && uri.is_some() {
            let help = "remove it: the connection is encrypted, or does not leave the machine";
            self.report(&format!("{at}/insecure"), "`insecure` changes nothing here", help);
        }
        uri.map(|uri| match raw.transport {
            RawTransport::StreamableHttp => ServerTransport::Http(uri),
            RawTransport::HttpSse => ServerTransport::HttpSse(uri),
        })
    }

    /// Compiles a server that is a program.
    fn stdio(&mut self, at: &str, command: String, raw: RawServer) -> Program {
        if raw.insecure {
            let help = "remove it: a program is spoken to over its input and output";
            self.report(&format!("{at}/insecure"), "`insecure` belongs to a `url`", help);
        }
        if raw.transport == RawTransport::HttpSse {
            let help = "remove it: a program is spoken to over its input and output";
            self.report(&format!("{at}/transport"), "`transport` belongs to a `url`", help);
        }
        let env = raw.env.into_iter().enumerate();
        let env = env.filter_map(|(n, raw)| self.variable(&format!("{at}/env/{n}"), raw));
        let env = env.collect();
        let sandbox = match raw.sandbox {
            Some(raw) => self.sandbox(&format!("{at}/sandbox"), raw),
            None => Some(SandboxPlan::usual()),
        };
        let directory = raw.working_directory.map(|folder| self.path(&folder));
        let command = self.program(command, directory.as_deref());
        Program { command, args: raw.args, env, directory, sandbox }
    }

    /// Resolves the path of a program, which is relative to the configured working directory or to the directory of
    /// the configuration. A name without a slash stays as it is and is looked up in `PATH`.
    fn program(&self, command: String, directory: Option<&Path>) -> String {
        let is_path = command.contains('/') && Path::new(&command).is_relative();
        match is_path && directory.is_none() {
            true => self.path(&command).into_os_string().into_string().unwrap_or(command),
            false => command,
        }
    }

    /// Compiles the sandbox of a program; `None` if it has none.
    fn sandbox(&mut self, at: &str, raw: RawSandbox) -> Option<SandboxPlan> {
        let required = match raw.mode {
            RawSandboxMode::Required => true,
            RawSandboxMode::Preferred => false,
            RawSandboxMode::Off => {
                self.nothing_enforced(at, &raw);
                return None;
            }
        };
        for (key, list) in [("read", &raw.read), ("write", &raw.write)] {
            for (n, path) in list.iter().enumerate().filter(|(_, path)| !path.starts_with('/')) {
                let message = format!("`{}` is no absolute path", path.escape_debug());
                self.report(&format!("{at}/{key}/{n}"), message, "write it from `/` on");
            }
        }
        for (key, value) in [
            ("memoryMiB", raw.memory_mib),
            ("processes", raw.processes),
            ("openFiles", raw.open_files),
        ] {
            if value == Some(0) {
                self.report(&format!("{at}/{key}"), "nothing can be done with none", "give more");
            }
        }
        let network = self.network(at, raw.network, raw.ports);
        let lists = !(raw.read.is_empty() && raw.write.is_empty());
        let rest = match raw.files {
            Some(RawFiles::Listed) => UnlistedFiles::Listed,
            None if lists => UnlistedFiles::Listed,
            Some(RawFiles::Any) | None => UnlistedFiles::Any,
        };
        if rest == UnlistedFiles::Any {
            let help = "take `files: any` away so that it may open what is listed alone, or take this away";
            for n in 0..raw.read.len() {
                let message = "it may read every file already";
                self.report(&format!("{at}/read/{n}"), message, help);
            }
            for (n, path) in raw.write.iter().enumerate() {
                // With `files: any` a program can already write everywhere except to system directories and
                // devices.
                if !sandbox::is_listed_apart(Path::new(path)) {
                    let message = "it may change what is here already";
                    self.report(&format!("{at}/write/{n}"), message, help);
                }
            }
        }
        Some(SandboxPlan {
            required,
            rest,
            read: raw.read.into_iter().map(PathBuf::from).collect(),
            write: raw.write.into_iter().map(PathBuf::from).collect(),
            network,
            memory: raw.memory_mib.map(|mib| mib.saturating_mul(1024 * 1024)),
            processes: raw.processes,
            files: raw.open_files,
            ..SandboxPlan::usual()
        })
    }

    /// Reports keys of a sandbox that is off.
    fn nothing_enforced(&mut self, at: &str, raw: &RawSandbox) {
        let bounded = [raw.memory_mib, raw.processes, raw.open_files];
        let listed = raw.files.is_some()
            || raw.network.is_some()
            || !(raw.read.is_empty() && raw.write.is_empty() && raw.ports.is_empty());
        if listed || bounded.iter().any(Option::is_some) {
            let help = "write `required` or `preferred`, or take the rest away";
            self.report(&format!("{at}/mode"), "nothing is enforced without a sandbox", help);
        }
    }

    /// Compiles what a program may connect to.
    fn network(
        &mut self,
        at: &str,
        network: Option<RawReachable>,
        ports: Vec<u16>,
    ) -> NetworkAccess {
        match (network, ports) {
            (Some(RawReachable::Any), ports) if !ports.is_empty() => {
                let help = "take `ports` or `network: any` away";
                self.report(&format!("{at}/ports"), "it may reach every port already", help);
                NetworkAccess::Any
            }
            (Some(RawReachable::None), ports) if ports.is_empty() => NetworkAccess::None,
            (Some(RawReachable::Any) | None, ports) if ports.is_empty() => NetworkAccess::Any,
            (_, ports) => NetworkAccess::Ports(ports),
        }
    }

    /// Reports paths in sandboxes that a program cannot get: the gateway's own files and, if the configuration is
    /// for this machine, paths that do not exist.
    pub(super) fn listed(&mut self, servers: &[ServerSettings]) {
        let is_here = self.purpose != LoadPurpose::Reading;
        for (n, server) in servers.iter().enumerate() {
            let ServerTransport::Stdio(Program { sandbox: Some(plan), .. }) = &server.reach else {
                continue;
            };
            let lists = [
                ("read", &plan.read, ListedUse::Reading),
                ("write", &plan.write, ListedUse::Writing),
            ];
            for (key, list, listed) in lists {
                for (i, path) in list.iter().enumerate() {
                    let at = format!("/servers/{n}/sandbox/{key}/{i}");
                    let shown = path.display().to_string();
                    let shown = shown.escape_debug();
                    if plan.keeps_back(path, listed) {
                        let message = format!(
                            "`{shown}` is one of the gateway's own files, or in a folder of them"
                        );
                        let help = "take it away: no program may open those, nor change certificates and keys";
                        self.report(&at, message, help);
                    } else if is_here
                        && plan.required
                        && let Err(error) = std::fs::metadata(path)
                    {
                        let message = format!("`{shown}` cannot be opened: {error}");
                        let help = "make it, or take it away; with `mode: preferred` the rest is enforced without it";
                        self.report(&at, message, help);
                    }
                }
            }
        }
    }

    /// Reports secrets that do not exist on this machine and, if other machines can connect, secrets that are easy
    /// to guess.
    pub(super) fn secrets_are_here(
        &mut self,
        variables: &dyn Fn(&str) -> Option<String>,
        exposure: Exposure,
    ) {
        for RequiredSecret { at, secret, prefix } in std::mem::take(&mut self.secrets) {
            if let SecretRef::Env(name) = &secret
                && !is_variable(name)
                && variables(name).is_none()
            {
                let help = "write the name of the variable that holds the secret, and not the secret: such as `API_TOKEN`";
                self.report_hiding(&at, "what stands here is not the name of a variable", help);
                continue;
            }
            if self.unserved.is_within(&at) {
                continue;
            }
            let found = match &secret {
                SecretRef::Env(name) => {
                    let place = format!("the environment variable `{}`", name.escape_debug());
                    (place, variables(name).ok_or_else(|| "it is not set, or not UTF-8".to_owned()))
                }
                SecretRef::File(path) => {
                    let place = format!("the file `{}`", path.display().to_string().escape_debug());
                    (place, file::text(path, SECRET).map_err(|error| error.to_string()))
                }
                // Programs run only when the configuration is served, not when it is checked.
                SecretRef::Command(command) => {
                    let program = command.program.display().to_string();
                    let message = format!("the program `{}` is not run", program.escape_debug());
                    if let Err(error) = command.may_run() {
                        let help = "use an existing program that only root or this user can write";
                        self.report(&at, format!("{message}: {error}"), help);
                    }
                    continue;
                }
            };
            let (place, text) = found;
            let why = match text {
                Ok(text) if text.trim_end_matches(['\n', '\r']).is_empty() => {
                    "it is empty".to_owned()
                }
                Ok(text) if exposure == Exposure::Network && is_well_known(&text) => {
                    let message = format!(
                        "the secret in {place} is a well-known password, and a listener is open to other machines"
                    );
                    self.report(&at, message, "generate one: `openssl rand -hex 32`");
                    continue;
                }
                Ok(text) if repeats_scheme(&prefix, &text) => {
                    self.scheme_is_repeated(&at, &place, &prefix);
                    continue;
                }
                Ok(_) => continue,
                Err(why) => why,
            };
            let message = format!("secret not found in {place}: {why}");
            self.report(&at, message, help_for_missing(&secret));
        }
    }

    /// Reports a secret in `place` that begins with the scheme that the gateway adds.
    fn scheme_is_repeated(&mut self, at: &str, place: &str, prefix: &str) {
        let prefix = prefix.escape_debug();
        let message = format!(
            "the secret in {place} begins with `{prefix}`, and the gateway would write that before it once more"
        );
        let help = format!(
            "take `{prefix}` out of it, or write `prefix: ''` beside this and the header is sent as it is there"
        );
        self.report(at, message, help);
    }

    /// Reports directories that do not exist on this machine although files are to be written there.
    pub(super) fn folders_are_here(&mut self, audit: &AuditSettings, pins: &PinSettings) {
        let sinks = audit.sinks.iter().enumerate().filter_map(|(n, sink)| match &sink.to {
            SinkTarget::File(path, _) => Some((format!("/audit/sinks/{n}/file"), path)),
            SinkTarget::Stdout
            | SinkTarget::Http(..)
            | SinkTarget::Otlp(..)
            | SinkTarget::Syslog(..) => None,
        });
        let checkpoints = audit.checkpoints.file.iter();
        let checkpoints = checkpoints.map(|path| ("/audit/checkpoints/file".to_owned(), path));
        let all: Vec<_> =
            sinks.chain(checkpoints).chain([("/pins/file".to_owned(), &pins.file)]).collect();
        for (at, path) in all {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            if let Err(error) = std::fs::read_dir(folder)
                && error.kind() != std::io::ErrorKind::PermissionDenied
            {
                let shown = folder.display().to_string();
                let message =
                    format!("the folder `{}` is not there: {error}", shown.escape_debug());
                let help = "make it, for the user of the gateway, or name another file; `validate --elsewhere` checks a \
                            configuration for another machine";
                self.report(&at, message, help);
            }
        }
    }

    pub(super) fn variable(
        &mut self,
        at: &str,
        raw: RawVariable,
    ) -> Option<(String, VariableValue)> {
        let RawVariable { name, value, from_env, from_file, from_command, .. } = raw;
        let (cache_time, timeout, max_stale) = (raw.cache_time, raw.timeout, raw.max_stale);
        let is_secret = from_env.is_some() || from_file.is_some() || from_command.is_some();
        let has_times = cache_time.is_some() || timeout.is_some() || max_stale.is_some();
        let secret =
            RawSecret { from_env, from_file, from_command, cache_time, timeout, max_stale };
        let value = match value {
            Some(value) if !is_secret && !has_times => VariableValue::Literal(value),
            None if is_secret => VariableValue::Secret(self.secret(at, secret)?),
            Some(_) | None => {
                let help = "give exactly one of `value`, `fromEnv`, `fromFile` and `fromCommand`";
                self.report(
                    at,
                    format!("the value of `{}` is not clear", name.escape_debug()),
                    help,
                );
                return None;
            }
        };
        if name.is_empty() || name.contains(['=', '\0']) {
            self.report(&format!("{at}/name"), "not the name of a variable", "rename it");
        }
        Some((name, value))
    }

    pub(super) fn routes(
        &mut self,
        raws: Vec<RawRoute>,
        servers: &[ServerSettings],
        identity: &IdentitySettings,
        listeners: &[ListenerSettings],
    ) -> Vec<RouteSettings> {
        self.filled("/routes", &raws, "add one: `path: /mcp` and the servers behind it");
        let named: BTreeMap<_, _> =
            servers.iter().enumerate().map(|(n, server)| (server.name.as_str(), n)).collect();
        let mut seen = BTreeSet::new();
        let mut routes = Vec::new();
        for (n, raw) in raws.into_iter().enumerate() {
            let at = format!("/routes/{n}");
            self.unique(&format!("{at}/path"), &raw.path, &mut seen);
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
            if !raw.path.starts_with('/') || !raw.path.bytes().all(plain) || raw.path.contains("..")
            {
                let message = format!("`{}` is not a path", raw.path.escape_debug());
                let help = "start with `/` and use letters, digits, `-`, `.`, `_` and `~`";
                self.report(&format!("{at}/path"), message, help);
            }
            let found = self.route_servers(&format!("{at}/servers"), &raw.servers, &named);
            if !self.is_doubtful(DefiningSection::Servers) {
                self.schemes_differ(&at, &found, servers);
            }
            let prefix = match raw.prefix {
                RawPrefix::Auto => PrefixMode::Auto,
                RawPrefix::Always => PrefixMode::Always,
                RawPrefix::OnConflict => PrefixMode::OnConflict,
                RawPrefix::Never => PrefixMode::Never,
            };
            let path = raw.path.as_str().into();
            let oauth = self.route_oauth(&format!("{at}/oauth"), &raw.oauth, identity);
            self.provable(&at, &oauth, identity, listeners);
            if raw.http_sse {
                self.provable_over_http_sse(&at, &oauth);
            }
            self.exchanged(&at, &found, servers, &oauth, listeners);
            let guardrails = self.guardrails(&at, raw.guardrails);
            let (http_sse, planner) = (raw.http_sse, raw.planner);
            let discovery = self.discovery(&format!("{at}/discovery"), raw.discovery);
            routes.push(RouteSettings {
                path,
                servers: found,
                prefix,
                http_sse,
                planner,
                discovery,
                oauth,
                guardrails,
            });
        }
        routes
    }

    /// Finds the servers behind a route among those that are `named`.
    fn route_servers(
        &mut self,
        at: &str,
        names: &[String],
        named: &BTreeMap<&str, usize>,
    ) -> Vec<usize> {
        self.filled(at, names, "name the servers behind this path");
        let mut used = BTreeSet::new();
        let mut found = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let at = format!("{at}/{i}");
            self.unique(&at, name, &mut used);
            let Some(server) = named.get(name.as_str()) else {
                let list: Vec<_> = named.keys().copied().collect();
                let message = format!("there is no server `{}`", name.escape_debug());
                let help = format!("the servers are: {}", list.join(", "));
                self.report_reference(DefiningSection::Servers, &at, message, help);
                continue;
            };
            found.push(*server);
        }
        found
    }

    /// Reports servers of a route whose names give the same URI scheme, by which their resources are told apart.
    fn schemes_differ(&mut self, at: &str, found: &[usize], servers: &[ServerSettings]) {
        let mut seen = BTreeSet::new();
        for server in found.iter().filter_map(|index| servers.get(*index)) {
            if !seen.insert(tool_naming::scheme(&server.name)) {
                let message = format!("`{}` is too like the name of another server", server.name);
                let help = "rename one: in URIs letters have no case and `_` is written `-`";
                self.report(&format!("{at}/servers"), message, help);
            }
        }
    }
}

/// Compiles what happens to an elicitation request that asks for a standing grant.
const fn standing(raw: RawStandingGrants) -> StandingGrantAction {
    match raw {
        RawStandingGrants::Refuse => StandingGrantAction::Refuse,
        RawStandingGrants::Allow => StandingGrantAction::Allow,
    }
}

/// Whether `name` is a valid name of an environment variable (POSIX.1-2024, section 8.1).
fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
